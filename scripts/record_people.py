"""Record what Qwen says where people said it before: MTRAG's answers, and TREC's nuggets.

    RAGBENCH_DATA=... python scripts/record_people.py prompts REQUESTS.jsonl.gz
    python scripts/label_probabilities.py MODEL.gguf REQUESTS.jsonl.gz REPLIES.jsonl.gz
    RAGBENCH_DATA=... python scripts/record_people.py ship REPLIES.jsonl.gz

`ship` writes `data/mtrag/qwen.jsonl.gz` (the exam's replies, beside those that are there),
`data/mtrag/qwen_labels.csv.gz` and `data/recordings/nuggets.csv.gz` (probabilities of labels, no
text). The plan is `docs/preregistration/people.md`.
"""

import gzip
import itertools
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

from ragbench.data.answers import read_answers
from ragbench.data.mtrag import load_mtrag
from ragbench.embedding import make_embedder
from ragbench.labelling.exam import SCALE, SYSTEMS, exam_prompts
from ragbench.llm import Cassette
from ragbench.llm.cassette import Keys
from ragbench.llm.endpoints import Endpoint
from ragbench.llm.reply import Usage
from ragbench.metrics.nuggets import SUPPORT
from ragbench.paths import packaged_data, shared_data
from ragbench.prompts import fill_prompt, load_prompt
from ragbench.text.sentences import split_sentences

sys.path.append(str(Path(__file__).parents[1] / "notebooks"))
from recorded import RECORDINGS

NUGGET = "nugget_assignment"
PAIR = "steps_gpt_ranking_faithfulness"
GZIP = {"method": "gzip", "mtime": 0}  # the same rows to the same bytes
GRADES = [str(grade) for grade in SCALE]


def reply(field, quote=""):
    """Return how a reply begins, as llama.cpp's grammar writes it."""
    return f'{{\n  "{field}": {quote}'


def reversed_grades(prompt):
    """Return an exam's prompt with its lines of grades from the best to the worst."""
    lines = prompt.split("\n")
    starts = tuple(f"{grade} - " for grade in GRADES)
    places = [at for at, line in enumerate(lines) if line.startswith(starts)][-len(GRADES) :]
    grades = [lines[at] for at in places]
    for at, line in zip(places, reversed(grades), strict=True):
        lines[at] = line
    return "\n".join(lines)


def exam_requests():
    """Yield every prompt about MTRAG's answers."""
    data = load_mtrag()
    texts = data.answers.set_index(["question_id", "system"])["answer"]
    for name, rows in exam_prompts(data).groupby("question_id", sort=False):
        for _, system, measure, prompt in rows.itertuples(index=False):
            about = {"opening": reply("grade"), "labels": GRADES, "group": f"{name} {system}"}
            yield {"key": ["exam", name, system, measure], "prompt": prompt, **about}
            turned = reversed_grades(prompt)
            yield {"key": ["reversed", name, system, measure], "prompt": turned, **about}
        turns = data.dataset.question(name).meta["turns"]
        conversation = "\n".join(f"{speaker}: {text}" for speaker, text in turns)
        context = "\n\n".join([*data.passages(name), conversation])
        for first, second in itertools.permutations(SYSTEMS):
            shown = {"first": texts[name, first], "second": texts[name, second]}
            prompt = fill_prompt(load_prompt(PAIR), context=context, **shown)
            about = {"opening": reply("better"), "labels": ["1", "2"], "group": f"pair {name}"}
            yield {"key": ["pair", name, first, "faithfulness"], "prompt": prompt, **about}


def track_answers():
    """Return the answers of TREC RAG 2024 with their nuggets."""
    track = shared_data("trec_rag24", "nugget_assignment.20241108.jl.gz")
    return read_answers(track, {"system": "run_id", "answer": "answer_text"})


def nugget_requests():
    """Yield a prompt for every nugget of every answer."""
    prompt = load_prompt(NUGGET)
    for row in track_answers().itertuples():
        for number, nugget in enumerate(row.nuggets):
            shown = {"question": row.question, "answer": row.answer or "(none)"}
            yield {
                "key": ["nugget", row.question_id, row.system, number],
                "prompt": fill_prompt(prompt, nugget=nugget["text"], **shown),
                "opening": reply("label", '"'),
                "labels": list(SUPPORT),
                "group": f"{row.question_id} {row.system}",
            }


def prompts(path):
    """Write all requests."""
    with gzip.open(path, "wt") as file:
        for request in itertools.chain(exam_requests(), nugget_requests()):
            file.write(json.dumps(request) + "\n")


def ship(path):
    """Write what is shipped from the replies."""
    with gzip.open(path, "rt") as file:
        replies = [json.loads(line) for line in file]
    asked = {"exam", "reversed", "pair"}
    labels = ship_labels([reply for reply in replies if reply["key"][0] in asked])
    ship_exam(labels[labels["asked"] == "exam"])
    ship_nuggets([reply for reply in replies if reply["key"][0] == "nugget"])


def ship_labels(replies):
    """Write and return the logarithms of the probabilities that each label about MTRAG had."""
    columns = ["asked", "question_id", "system", "measure", *(f"log_{label}" for label in SCALE)]
    rows = [dict(zip(columns, [*reply["key"], *reply["logs"]], strict=False)) for reply in replies]
    table = pd.DataFrame(rows, columns=columns)
    table = table.sort_values(columns[:4], ignore_index=True)
    table.to_csv(packaged_data("mtrag") / "qwen_labels.csv.gz", index=False, compression=GZIP)
    return table


def ship_exam(labels):
    """Add the likeliest grade of each prompt to the recorded exam, where it has no reply."""
    logs = labels[[f"log_{grade}" for grade in SCALE]].to_numpy()
    answer = ["question_id", "system", "measure"]
    grades = dict(
        zip(labels[answer].itertuples(index=False, name=None), logs.argmax(1), strict=True)
    )
    judge = RECORDINGS["qwen"].chat_model(num_ctx=8192, num_predict=64)
    shipped = packaged_data("mtrag", "qwen.jsonl.gz")
    endpoint = Endpoint.of(judge)
    keys = Keys(endpoint.provider, endpoint.name, endpoint.pinned_digest, endpoint.options)
    with tempfile.TemporaryDirectory() as folder, Cassette(Path(folder, "exam")) as cassette:
        cassette.import_(shipped)
        (first,) = cassette.rows("SELECT request FROM replies LIMIT 1")
        schema = json.loads(first[0])["schema"]
        for request in exam_requests():
            asked, *about = request["key"]
            if asked != "exam":
                continue
            messages = [{"role": "user", "content": request["prompt"]}]
            text = f"{request['opening']}{SCALE[grades[tuple(about)]]}\n}}"
            reply = {"ok": True, "text": text, "raw": text, "finish": "stop", "seconds": 0.0}
            reply |= {"repairs": 0, "attempts": 1, "form": "json_schema", "error": None}
            reply["usage"] = Usage(1, uncounted=1).to_dict()  # of no server
            key = keys.key(messages, schema)
            about = {"step": "exam", "prompt_id": " ".join(about)}
            cassette.put(key, keys.request(messages, schema), reply, **about)
        print(cassette.export(shipped), "replies of the exam;", cassette.verify() or "whole")


def ship_nuggets(replies):
    """Write the probabilities of the nuggets' labels, with MiniLM's cosines."""
    columns = ["question_id", "system", "nugget", *SUPPORT]
    rows = [[*reply["key"][1:], *np.exp(reply["logs"])] for reply in replies]
    table = pd.DataFrame(rows, columns=columns).set_index(columns[:3])
    table["minilm"] = cosines()
    table = table.sort_index().drop(columns="not_support")
    path = packaged_data("recordings") / "nuggets.csv.gz"
    table.to_csv(path, float_format="%.4g", compression=GZIP)
    print(len(table), "nuggets", path.stat().st_size, "bytes")


def cosines():
    """Return each nugget's largest cosine with a sentence of the answer; 0 with none."""
    embedder = make_embedder("minilm")
    found = {}
    for row in track_answers().itertuples():
        sentences = split_sentences(row.answer, "claims")
        texts = [nugget["text"] for nugget in row.nuggets]
        best = np.zeros(len(texts))
        if sentences:
            vectors = np.array(embedder.embed_documents([*texts, *sentences]))
            vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
            best = (vectors[: len(texts)] @ vectors[len(texts) :].T).max(1)
        for number, cosine in enumerate(best):
            found[row.question_id, row.system, number] = float(cosine)
    return pd.Series(found)


if __name__ == "__main__":
    {"prompts": prompts, "ship": ship}[sys.argv[1]](*sys.argv[2:])
