"""RAGChecker's experiment: rows to results and metrics, a model live and replayed; notebook 22's
parts.
"""

import json
import re

import pandas as pd
from fake_ollama import FakeOllama
from notebook_parts import parts as notebook_parts

from ragbench.data import load_minihop
from ragbench.data.ragchecker import RagResult, RetrievedText
from ragbench.labelling.claims import ragchecker_labels
from ragbench.llm import Cassette, chat_model
from ragbench.metrics.claims import CLAIM_METRICS
from ragbench.papers import ragchecker as rc
from ragbench.records import Dataset, Document, Question
from ragbench.stats import means

BOOK = notebook_parts("22")
DIAGNOSIS = notebook_parts("23")
E = "Entailment"
N = "Neutral"
SYSTEM = ["retriever", "generator"]


def test_minihop_has_65_long_answers_with_their_claims():
    data = DIAGNOSIS.long_answered(load_minihop())
    assert (len(data.questions), len(data.documents), len(data.excluded)) == (65, 270, 115)
    assert sum(len(q.meta["claims"]) for q in data.questions) == 438  # eleven verdicts among them
    assert all(q.meta["long_answer"] for q in data.questions)
    assert DIAGNOSIS.long_answered(load_minihop(), 3).questions == data.questions[:3]


TEXTS = ("The river Nile is long. It flows north.", "The dam is old. It was built in 1902.")
CLAIMS = ["The Nile is long."]
LONG = "The river Nile, which flows north, is long."
CLAIMED = {"claims": ({"text": CLAIMS[0]},)}
BUILT = "The dam was built in 1902. It is old."
QUESTIONS = (
    Question("q1", "Which river is long?", "The river Nile is long.", meta=CLAIMED),
    Question("q2", "When was the dam built?", BUILT, meta={"claims": None}),
)
SMALL = Dataset(
    "small", QUESTIONS, tuple(Document(f"d{i}", f"d{i}", t, ()) for i, t in enumerate(TEXTS))
)


GRID = rc.grid("small", SMALL, dict.fromkeys(("BM25", "SIM"), None.__class__), {"copier": str})


def place(question, retriever):
    return f"{question}/{rc.DEFAULT.chunker}/{retriever}/20/copier"


def rows_of(*parts):
    rows = pd.DataFrame(
        parts, columns=["question_id", "retriever", "chunks", "answer", "status"]
    ).assign(generator="copier", k=20, chunker=rc.DEFAULT.chunker)
    asked = {q.id: q for q in QUESTIONS}
    rows["question"] = [asked[name].text for name in rows["question_id"]]
    rows["reference"] = [asked[name].answer for name in rows["question_id"]]
    rows["long_reference"] = [LONG if name == "q1" else None for name in rows["question_id"]]
    rows["reference_claims"] = [CLAIMS if name == "q1" else None for name in rows["question_id"]]
    return rows.assign(kind="", context_tokens=1)


ROWS = rows_of(
    ("q1", "BM25", [*TEXTS], "The river Nile is long.", "ok"),
    ("q1", "SIM", [TEXTS[1]], "The dam is old.", "ok"),
    ("q2", "BM25", [], None, "failed"),
    ("q2", "SIM", [TEXTS[1]], "", "ok"),
)


def test_rows_become_results_with_their_texts_and_shipped_claims():
    first, second, third = rc.results(ROWS)
    assert first == RagResult(
        place("q1", "BM25"),
        QUESTIONS[0].text,
        LONG,
        "The river Nile is long.",
        tuple(RetrievedText(text=text) for text in TEXTS),
        reference_claims=("The Nile is long.",),
        extra={"question_id": "q1", "retriever": "BM25", "generator": "copier"},
    )
    assert (third.reference, third.reference_claims) == (BUILT, None)
    assert (second.response, third.id) == ("The dam is old.", place("q2", "SIM"))


def result(retriever, correct, found):
    """An answer to q1 with one claim per letter of ``correct`` and the reference's two claims in
    two chunks.
    """
    n = len(correct)
    about = {"question_id": "q1", "retriever": retriever, "generator": "copier"}
    return RagResult(
        place("q1", retriever), "?", "r", "a", (RetrievedText(text="0"), RetrievedText(text="1")),
        ("c",) * n, ("r1", "r2"), tuple(E if c == "1" else N for c in correct), (E, N),
        ((N, N),) * n, tuple(tuple(E if c == "1" else N for c in row) for row in found), extra=about,
    )  # fmt: skip


def labelled(*results):
    return ragchecker_labels(None, results)  # all labels are there: nothing is asked


def test_failed_rows_are_counted_with_every_metric_missing():
    made = labelled(*(result(name, "1", ("01", "00")) for name in ("BM25", "SIM")))
    scores = DIAGNOSIS.metric_scores(GRID, ROWS, made)
    assert scores["scored"].tolist() == [True, True, False, False]
    assert scores[list(CLAIM_METRICS)].isna().all(axis=1).tolist() == [False, False, True, True]
    names = ["question_id", "retriever", "precision", "claim_recall"]
    assert scores.loc[0, names].tolist() == ["q1", "BM25", 1, 0.5]
    table = means(scores, SYSTEM, CLAIM_METRICS, resamples=10).set_index(["retriever", "metric"])
    assert table.loc[("BM25", "precision"), ["mean", "n", "unscored"]].tolist() == [1, 1, 1]
    assert len(table) == 2 * len(CLAIM_METRICS)


def test_a_run_shows_all_20_chunks(tmp_path, minilm):
    documents = tuple(Document(f"d{i}", f"d{i}", f"River {i} is long.", ()) for i in range(25))
    data = Dataset("small", QUESTIONS, documents)
    read = {"copier": lambda question, context: context}
    first = rc.grid("small", data, rc.PAPER_RETRIEVERS, read, folder=tmp_path).run(progress=False)
    assert len(first) == 6
    assert first["retriever"].unique().tolist() == ["BM25", "SIM", "hybrid"]
    assert first[first["retriever"] == "SIM"]["hits"].map(len).tolist() == [20, 20]
    assert first.loc[0, "answer"].count("River") == len(first.loc[0, "hits"])
    small = [rc.Setting(size=7, overlap=0.0)]
    (cut,) = rc.grid("small", data, rc.PAPER_RETRIEVERS, settings=small).chunker.values()
    texts = [c.text for c in cut([Document("d", "T", "unbelievably unbelievably")])]
    assert texts == ["unbelievably unbel", "ievably"]  # within words, as in the recorded runs


def reply(body):
    prompt = body["messages"][0]["content"]
    if not body.get("format"):
        return "The Nile is long."
    if "claims to check" in prompt.lower():
        count = len(re.findall(r"^\d+\. ", prompt.lower().split("claims to check:")[1], re.M))
        return json.dumps({"labels": [E] * count})
    return json.dumps({"claims": ["The Nile is long."]})


def test_a_model_answers_and_labels_and_both_are_replayed(tmp_path, minilm, monkeypatch):
    name = "ollama:llama3:8b"
    tape = tmp_path / "calls.sqlite"

    def scores(host, folder):
        answerers = {name: chat_model(name, host=host, num_ctx=16384, num_predict=2048)}
        grid = rc.grid("small", SMALL, rc.PAPER_RETRIEVERS, answerers, cassette=tape, folder=folder)
        rows = grid.run(progress=False)
        judge = chat_model(name, host=host, num_ctx=4096)
        made = ragchecker_labels(judge, rc.results(rows), cassette=Cassette(tape))
        return DIAGNOSIS.metric_scores(grid, rows, made)

    with FakeOllama(reply=reply) as server:
        live = scores(server.url, tmp_path / "a")
        assert server.calls
    assert live["scored"].all()
    assert live["precision"].tolist() == [1.0] * 6
    monkeypatch.setenv("RAGBENCH_CASSETTE", "replay")
    pd.testing.assert_frame_equal(live, scores("http://127.0.0.1:9", tmp_path / "b"))


def test_where_a_right_claim_stands():
    assert BOOK.source((N, E), E) == "in one chunk"
    assert BOOK.source((N, N), E) == "in several chunks together"
    assert BOOK.source((N, "Contradiction"), N) == "not in the retrieved text"


def test_every_label_is_one_pair_of_claim_and_text():
    pairs = list(BOOK.pairs_of(result("BM25", "10", ("01", "00"))))
    assert len(pairs) == 2 + 2 + 2 * 2 + 2 * 2
    assert ("reference_in_chunks", "r1", "1", E) in pairs
    assert ("response_in_reference", "c", "r", E) in pairs
