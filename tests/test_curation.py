"""Curation as in RAGChecker's appendix A: long answers behind a claim check, and a corpus cut down."""

import json

import numpy as np
import pandas as pd
import pytest
from checks import refusals
from fake_ollama import FakeOllama
from hypothesis import given
from hypothesis import strategies as st

from ragbench.data import load_minihop
from ragbench.datagen import curation
from ragbench.errors import DataError
from ragbench.llm import Cassette, chat_model
from ragbench.records import Chunk, Dataset, Document, Hit, Question

QUIET = {"progress": False, "retries": 0}
PASSAGES = {"p1": "Ann built the tower.", "p2": "It was finished in 1896.", "p3": "Rob paid for it."}


def item(name="q1", answers=("Ann",), passages=None):
    return curation.ShortAnswered(name, f"Who built it ({name})?", answers, PASSAGES if passages is None else passages)


class Model:
    """Writes what it is told to by question; claims are sentences, entailed when the text has them."""

    def __init__(self, **written):
        self.written = written

    def __call__(self, body):
        prompt = body["messages"][0]["content"]
        fields = body["format"]["properties"]
        if "passages" in fields:
            found = next(w for name, w in self.written.items() if f"({name})" in prompt)
            return found if isinstance(found, str) else json.dumps({"answer": found[0], "passages": found[1]})
        if "claims" in fields:
            text = prompt.split("Text:\n")[-1].split("\n\nReply")[0]
            if "unreadable" in text:
                return "no JSON"
            return json.dumps({"claims": [s.strip() + "." for s in text.split(".") if s.strip()]})
        reference = prompt.split("Reference text:\n")[1].split("\n\nEach claim")[0]
        lines = [x.split(". ", 1)[1] for x in prompt.split("to check:\n")[1].split("\n\nReply")[0].splitlines()]
        return json.dumps({"labels": [self.label(line, reference) for line in lines]})

    @staticmethod
    def label(claim, reference):
        if "blurred" in claim:
            return "Perhaps"
        if claim in reference:
            return "Entailment"
        return "Contradiction" if "1901" in claim else "Neutral"


def run(items, model, **options):
    with FakeOllama(reply=model) as server:
        made = curation.long_answers(chat_model("ollama:llama3:8b", host=server.url), items, **QUIET, **options)
        return made, [call.prompt for call in server.calls]


def outcome(made):
    return list(zip(made.rows["status"], made.rows["reason"], strict=True))


def test_an_answer_passes_only_if_all_its_claims_follow_from_the_passages_it_cites():
    model = Model(
        q1=("Ann built the tower. It was finished in 1896.", ["p1", "p2"]),
        q2=("Ann built the tower. It was finished in 1896.", ["p1"]),
        q3=("Ann built the tower. It was finished in 1901. Moss grows there.", ["[p1]", "p2"]),
    )
    made, _ = run([item("q1"), item("q2"), item("q3")], model)
    first, second, third = made.rows.itertuples()
    assert (first.status, first.reason, first.labels) == ("accepted", "all claims entailed", ("Entailment",) * 2)
    assert first.claims == ("Ann built the tower.", "It was finished in 1896.")
    # True, but not in the passage it cites.
    assert (second.status, second.reason) == ("rejected", "of 2 claims 1 not entailed")
    assert third.cited == ("p1", "p2")
    assert third.reason == "of 3 claims 1 contradicted and 1 not entailed"
    assert made.accepted["id"].tolist() == ["q1"]
    assert made.counts == {"accepted": 1, "rejected": 2, "unscored": 0}
    assert repr(made) == "LongAnswers(1 accepted, 2 rejected, 0 unscored)"
    counts = made.rows[["entailed", "neutral", "contradicted", "unread"]]
    assert counts.to_numpy().tolist() == [[2, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0]]


def test_the_writer_sees_question_answers_and_passages_and_the_checker_only_the_cited_ones():
    made, prompts = run([item(answers=("Ann", "Ann\nSmith"))], Model(q1=("Ann built the tower.", ["p1"])))
    assert made.rows["status"].tolist() == ["accepted"]
    write, _, check = prompts
    assert "- Ann\n- Ann Smith\n" in write
    assert all(f"[{name}]\n{text}" in write for name, text in PASSAGES.items())
    assert PASSAGES["p1"] in check
    assert PASSAGES["p2"] not in check


def test_what_needs_no_claim_check_is_rejected_without_one():
    model = Model(q1=("", ["p1"]), q2=("Ann built it.", []), q3=("Ann built it.", ["p9"]), q4=("...", ["p1"]))
    made, prompts = run([item(f"q{i}") for i in (1, 2, 3, 4)], model)
    assert outcome(made) == [
        ("rejected", "no answer"),
        ("rejected", "no passage cited"),
        ("rejected", "cites 'p9', which is no passage of the question"),
        ("rejected", "no claims"),
    ]
    assert len(prompts) == 4 + 1


def test_unread_replies_leave_an_answer_unscored_unless_another_claim_decides():
    model = Model(
        q1="no JSON",
        q2=("unreadable.", ["p1"]),
        q3=("Ann built the tower. It is blurred.", ["p1"]),
        q4=("It is blurred. It was finished in 1901.", ["p2"]),
    )
    made, _ = run([item(f"q{i}") for i in (1, 2, 3, 4)], model)
    assert outcome(made) == [
        ("unscored", "the long answer could not be read"),
        ("unscored", "the claims could not be read"),
        ("unscored", "1 labels could not be read"),
        ("rejected", "of 2 claims 1 contradicted"),
    ]
    assert made.rows["labels"][2] == ("Entailment", None)
    assert {name: r.unscored for name, r in made.reports.items()} == {"long answers": 1, "claims": 1, "claim check": 2}


def test_a_cassette_answers_every_call_again(tmp_path):
    model = Model(q1=("Ann built the tower. It was finished in 1896.", ["p1", "p2"]), q2=("", []))
    items = [item("q1"), item("q2")]
    with Cassette(tmp_path / "c.sqlite") as cassette:
        first, prompts = run(items, model, cassette=cassette)
        again, none = run(items, model, cassette=cassette)
    assert len(prompts) == 4
    assert len(none) == 0
    pd.testing.assert_frame_equal(again.rows, first.rows)


def test_another_model_may_check():
    with FakeOllama(reply=Model(q1=("Ann built the tower.", ["p1"]))) as writer, FakeOllama(reply=Model()) as judge:
        models = [chat_model("ollama:llama3:8b", host=s.url) for s in (writer, judge)]
        made = curation.long_answers(models[0], [item()], checker=models[1], **QUIET)
        assert (len(writer.calls), len(judge.calls)) == (1, 2)
    assert made.rows["status"].tolist() == ["accepted"]


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([item(answers=())], "'q1' without answers"),
        ([item(passages={})], "'q1' without passages"),
        ([item(), item()], "'q1' twice"),
    ],
)
def test_questions_that_cannot_be_asked_are_named_before_any_call(items, message):
    with pytest.raises(DataError, match=message):
        curation.long_answers(None, items)


def test_no_questions_need_no_call():
    made, prompts = run([], Model())
    assert made.counts == dict.fromkeys(curation._STATUSES, 0)
    assert not prompts


def test_questions_of_a_data_set_come_with_their_gold_documents_once():
    minihop = load_minihop()
    made = curation.short_answered(minihop)
    assert len(made) == len(minihop.questions)
    texts = {d.title: d.text for d in minihop.documents}
    question = minihop.questions[0]
    assert made[0].answers == (question.answer,)
    assert list(made[0].passages.values()) == [
        texts[t] for t in ("Lake Victoria", "John Hanning Speke", "Richard Francis Burton")
    ]
    nothing = Dataset("x", (Question("q", "Who?", "Ann"),), ())
    with pytest.raises(DataError, match="'q' has no supporting facts"):
        curation.short_answered(nothing)
    strange = Dataset("x", (Question("q", "Who?", "Ann", meta={"supporting_facts": [("Moss", 0)]}),), ())
    with pytest.raises(DataError, match="'q' rests on 'Moss'"):
        curation.short_answered(strange)


# --- down-sampling ----------------------------------------------------------------------------------------------

TEXTS = {"a": "red tower", "b": "green moss", "c": "blue ferry", "d": "red ferry", "e": "old book"}
CORPUS = [Document(name, name, text) for name, text in TEXTS.items()]


class Listed:
    """Returns the same documents for every query, best first."""

    def __init__(self, **by_query):
        self.by_query = by_query

    def search(self, queries, k):
        return [[Hit(Chunk(f"{n}-{i}", "", n), 1.0, i) for i, n in enumerate(self.by_query[q][:k], 1)] for q in queries]


def test_annotated_documents_and_the_top_k_of_each_query_are_kept_in_the_order_of_the_corpus():
    bm25, dense = Listed(x="dab", y="d"), Listed(x="ca", y="ac")
    made = curation.downsample(CORPUS, ["x", "y"], [["b"], []], {"bm25": (bm25, 2), "dense": (dense, 1)})
    assert made.kept == ("a", "b", "c", "d")
    assert made.by_source.to_numpy().tolist() == [[0, 1, 1], [1, 0, 0], [0, 0, 1], [0, 1, 0]]
    assert repr(made) == "Downsampled(4 of 5 documents)"
    table = made.table()
    assert table.loc["annotated"].tolist() == [1, 1, 1.0]
    assert table.loc["bm25"].tolist() == [2, 1, 0.0]
    assert table.loc["dense"].tolist() == [2, 1, 0.0]
    assert (
        curation.downsample(CORPUS, ["y", "x"], [[], ["b"]], {"bm25": (bm25, 2), "dense": (dense, 1)}).kept == made.kept
    )


def test_the_share_of_annotated_documents_that_a_retriever_finds_itself_is_reported():
    assert downsampled([["a", "e"]], "ab", 2).table().loc["bm25"].tolist() == [2, 1, 0.5]
    assert np.isnan(downsampled([[]], "ab", 2).table().loc["bm25", "annotated"])


@given(st.lists(st.tuples(st.sets(st.sampled_from("abcde")), st.permutations("abcde")), min_size=1, max_size=4))
def test_kept_documents_are_a_plain_union(drawn):
    queries = [str(i) for i in range(len(drawn))]
    annotated = [own for own, _ in drawn]
    found = {q: "".join(order) for q, (_, order) in zip(queries, drawn, strict=True)}
    made = curation.downsample(CORPUS, queries, annotated, {"r": (Listed(**found), 2)})
    assert set(made.kept) == set().union(*annotated, *(order[:2] for order in found.values()))
    assert list(made.kept) == sorted(made.kept)


def downsampled(annotated, found="a", k=1):
    return curation.downsample(CORPUS, ["x"], annotated, {"bm25": (Listed(x=found), k)})


test_what_cannot_belong_together_is_refused = refusals(
    (lambda: downsampled([["z"]]), DataError, "annotated: 'z' for 'x'"),
    (lambda: downsampled([[]], "z"), DataError, "bm25: 'z' for 'x'"),
    (lambda: downsampled([]), DataError, "1 queries and 0 annotations"),
    (lambda: downsampled([[]], "aa", 2), "several chunks of one document for 'x'"),
)
