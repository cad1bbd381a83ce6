"""The page of what was tried with people's files: each line of its tables is tried here."""

import datetime
import re
import warnings
from itertools import pairwise

import httpx
import numpy as np
import pandas as pd
import pytest
from fake_ollama import FakeOllama
from test_documents import html, word_text

import ragbench as rb
from ragbench import data, stats
from ragbench.errors import DataError
from ragbench.labelling.claims import extract_claims
from ragbench.llm import ask, chat_model
from ragbench.llm.structured import without_thinking
from ragbench.paths import project_root

QUIET = {"progress": False, "backoff_s": 0.01}
PAGE = (project_root() / "docs" / "tried.md").read_text(encoding="utf-8")
LINES = [
    [part.strip().replace(r"\|", "|") for part in re.split(r"(?<!\\)\|", line)[1:-1]]
    for line in PAGE.splitlines()
    if line.startswith("| `")
]


def rr(retrieved, relevant):
    rows = [{"retrieved": retrieved, "relevant": relevant}]
    return rb.score(rows, ["RR"])["RR"].item()


def ndcg(name, retrieved, relevant):
    rows = [{"question_id": name, "retrieved": retrieved, "relevant": relevant}]
    return rb.score(rows, ["nDCG@10"])["nDCG@10"].item()


def judged(retrieved, relevant):
    return rb.rank_table([retrieved], [relevant], ["Judged@10"])["Judged@10"].item()


def agreed(a, b):
    agreement = rb.kappa(a, b)
    return agreement.estimate, agreement.n


def compared(ids, others):
    rows = {"question_id": ids + others, "system": list("aaabbb"), "m": [0.1, 0.2, 0.3] * 2}
    return rb.compare(pd.DataFrame(rows), "system", "m")["n"].item()


def chunks(cell):
    return data.read_answers([{"answer": "a", "chunks": cell}])["chunks"].item()


def reference(value):
    return data.read_answers([{"answer": "a", "reference": value}])["reference"].item()


def titles(*names):
    return data.load_questions(
        [{"question": "q", "answer": "a"}], [{"title": name, "text": "It."} for name in names]
    )


def asked(text):
    with FakeOllama() as fake:
        extract_claims(fake.model(), [text], questions=["Which?"], **QUIET)
        return bool(fake.calls)


def graded(answer, reply):
    question = rb.Question("q", "Who?", "Ada", ("Ada.",))
    with FakeOllama(reply=lambda body: reply) as fake:
        (grade,) = rb.grade(fake.model(), [question], [rb.Answer("q", answer, "")], **QUIET)
    return grade.value


def kind(body):
    transport = httpx.MockTransport(lambda request: httpx.Response(200, json=body))
    client = httpx.Client(transport=transport)
    model = chat_model("openai:m", host="http://made.example", digest="d", http_client=client)
    return ask(model, ["p"], retries=0, **QUIET)[0].error.kind


def bounds(rows):
    return rb.means(rows, ["system"], "m").sort_values("system").to_dict("records")


ROWS = pd.DataFrame(
    {
        "question_id": [*range(30)] * 2,
        "system": ["a"] * 30 + ["b"] * 30,
        "m": np.random.default_rng(0).random(60),
    }
)


@pytest.mark.parametrize(("tried", "value"), LINES, ids=[tried for tried, _ in LINES])
def test_what_the_page_says_was_tried_has_the_value_that_it_says(
    tried, value, tmp_path, put, monkeypatch
):
    def answers(name, content):
        return data.read_answers(put(name, content))["answer"].tolist()

    def beir(lines):
        put("beir/corpus.jsonl", '{"_id": "d1", "title": "t", "text": "A fox."}')
        put("beir/queries.jsonl", '{"_id": "q1", "text": "A fox?"}')
        put("beir/qrels/test.tsv", lines)
        return len(data.load_beir(tmp_path / "beir").questions)

    def ok(name, proxy):
        monkeypatch.setenv(name, proxy)
        with FakeOllama() as fake:
            return ask(fake.model(), ["p"], **QUIET)[0].ok

    names = globals() | {
        "datetime": datetime,
        "without_thinking": without_thinking,
        "answers": answers,
        "beir": beir,
        "ok": ok,
        "rows": ROWS,
        "html": lambda text: html(tmp_path, text),
        "word": lambda *run: word_text(tmp_path, *run),
        "contained": rb.contained,
        "overlap": lambda answer, true: rb.claim_overlap(true, answer, {}),
        "interval_text": stats.interval_text,
        "MARN": "(RML) Ltd was founded in 1990.",
    }
    expression = tried.split("`")[1]
    if value.startswith("refused: "):
        with pytest.raises(DataError, match=re.escape(value.removeprefix("refused: "))):
            eval(expression, names)
        return
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        got = eval(expression, names)
    if value.startswith("warns: "):
        said = [str(warning.message) for warning in raised]
        assert any(value.removeprefix("warns: ") in message for message in said)
    else:
        assert got == eval(value.strip("`"))


def test_each_kind_was_tried_with_five_inputs_at_least():
    starts = [match.start() for match in re.finditer("(?m)^###? ", PAGE)]
    for start, end in pairwise([*starts, len(PAGE)]):
        part = PAGE[start:end]
        if "| tried |" in part:
            assert part.count("\n| `") >= 5, part[:40]
    assert PAGE.count("| tried |") == 12
