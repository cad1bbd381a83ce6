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

from ragbench.data.mtrag import load_mtrag
from ragbench.data.nuggets import read_nuggets
from ragbench.labelling.exam import PROMPTS, SCALE, SYSTEMS, exam_order, exam_prompt
from ragbench.metrics.nuggets import SUPPORT
from ragbench.prompts import fill_prompt, load_prompt

NUGGET = "nugget_assignment"
PAIR = "steps_gpt_ranking_faithfulness"
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
    for name in exam_order(data):
        question = data.dataset.question(name)
        passages = data.passages(name)
        for system, measure in itertools.product(SYSTEMS, PROMPTS):
            prompt = exam_prompt(question, passages, texts[name, system], measure)
            about = {"opening": reply("grade"), "labels": GRADES, "group": f"{name} {system}"}
            yield {"key": ["exam", name, system, measure], "prompt": prompt, **about}
            turned = reversed_grades(prompt)
            yield {"key": ["reversed", name, system, measure], "prompt": turned, **about}
        turns = "\n".join(f"{speaker}: {text}" for speaker, text in question.meta["turns"])
        context = "\n\n".join([*passages, turns])
        for first, second in itertools.permutations(SYSTEMS):
            shown = {"first": texts[name, first], "second": texts[name, second]}
            prompt = fill_prompt(load_prompt(PAIR), context=context, **shown)
            about = {"opening": reply("better"), "labels": ["1", "2"], "group": f"pair {name}"}
            yield {"key": ["pair", name, first, "faithfulness"], "prompt": prompt, **about}


def nugget_requests():
    """Yield a prompt for every nugget of every answer."""
    prompt = load_prompt(NUGGET)
    for row in read_nuggets().itertuples():
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


if __name__ == "__main__":
    {"prompts": prompts}[sys.argv[1]](*sys.argv[2:])
