"""Curation as in RAGChecker's appendix A: long answers behind a claim check."""

import json

import pandas as pd
import pytest
from fake_ollama import FakeOllama

from ragbench.datagen import curation
from ragbench.errors import DataError
from ragbench.llm import Cassette, chat_model
from ragbench.records import Dataset, Document, Question

QUIET = {"progress": False, "retries": 0}
PASSAGES = {"p1": "Ann built the tower on the hill.", "p2": "It was finished in 1896.", "p3": "Rob paid for it."}


def item(name="q1", answer="Ann", doc_ids=tuple(PASSAGES)):
    return Question(name, f"Who built it ({name})?", answer, meta={"doc_ids": doc_ids})


def data_set(questions):
    return Dataset("towers", tuple(questions), tuple(Document(name, name, text) for name, text in PASSAGES.items()))


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
        made = curation.long_answers(
            chat_model("ollama:llama3:8b", host=server.url), data_set(items), **QUIET, **options
        )
        return made, [call.prompt for call in server.calls]


def outcome(made):
    return list(zip(made["status"], made["reason"], strict=True))


def test_an_answer_passes_only_if_all_its_claims_follow_from_the_passages_it_cites():
    model = Model(
        q1=("Ann built the tower on the hill. It was finished in 1896.", ["p1", "p2"]),
        q2=("Ann built the tower on the hill. It was finished in 1896.", ["p1"]),
        q3=("Ann built the tower on the hill. It was finished in 1901. Moss grows there.", ["[p1]", "p2"]),
    )
    made, _ = run([item("q1"), item("q2"), item("q3")], model)
    first, second, third = made.itertuples()
    assert (first.status, first.reason, first.labels) == ("accepted", "all claims entailed", ("Entailment",) * 2)
    assert first.claims == ("Ann built the tower on the hill.", "It was finished in 1896.")
    # True, but not in the passage it cites.
    assert (second.status, second.reason) == ("rejected", "of 2 claims 1 not entailed")
    assert third.cited == ("p1", "p2")
    assert third.reason == "of 3 claims 1 contradicted and 1 not entailed"
    counts = made[["entailed", "neutral", "contradicted", "unread"]]
    assert counts.to_numpy().tolist() == [[2, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0]]


def test_the_writer_sees_question_answers_and_passages_and_the_checker_only_the_cited_ones():
    made, prompts = run([item(answer="Ann\nSmith")], Model(q1=("Ann built the tower on the hill.", ["p1"])))
    assert made["status"].tolist() == ["accepted"]
    write, _, check = prompts
    assert "- Ann Smith\n" in write
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
        q2=("This answer is unreadable to all of us.", ["p1"]),
        q3=("Ann built the tower on the hill. It is blurred.", ["p1"]),
        q4=("It is blurred. It was finished in 1901.", ["p2"]),
    )
    made, _ = run([item(f"q{i}") for i in (1, 2, 3, 4)], model)
    assert outcome(made) == [
        ("unscored", "the long answer could not be read"),
        ("unscored", "the claims could not be read"),
        ("unscored", "1 labels could not be read"),
        ("rejected", "of 2 claims 1 contradicted"),
    ]
    assert made["labels"][2] == ("Entailment", None)
    assert {name: r.unscored for name, r in made.attrs["reports"].items()} == {
        "long answers": 1,
        "claims": 1,
        "claim check": 2,
    }


def test_a_cassette_answers_every_call_again(tmp_path):
    model = Model(q1=("Ann built the tower on the hill. It was finished in 1896.", ["p1", "p2"]), q2=("", []))
    items = [item("q1"), item("q2")]
    with Cassette(tmp_path / "c.sqlite") as cassette:
        first, prompts = run(items, model, cassette=cassette)
        again, none = run(items, model, cassette=cassette)
    assert len(prompts) == 4
    assert len(none) == 0
    pd.testing.assert_frame_equal(again, first)


def test_a_prompt_of_ones_own_asks_for_the_long_answer_and_for_nothing_else(tmp_path):
    own = tmp_path / "own.txt"
    own.write_text("In verse: {question} {answers} {passages}")
    made, (first, *others) = run([item()], Model(q1=("Ann built the tower on the hill.", ["p1"])), prompt=own)
    assert first == "In verse: Who built it (q1)? - Ann " + "\n\n".join(f"[{i}]\n{PASSAGES[i]}" for i in PASSAGES)
    assert len(others) == 2
    assert made["status"].tolist() == ["accepted"]


def test_another_model_may_check():
    with (
        FakeOllama(reply=Model(q1=("Ann built the tower on the hill.", ["p1"]))) as writer,
        FakeOllama(reply=Model()) as judge,
    ):
        models = [chat_model("ollama:llama3:8b", host=s.url) for s in (writer, judge)]
        made = curation.long_answers(models[0], data_set([item()]), checker=models[1], **QUIET)
        assert (len(writer.calls), len(judge.calls)) == (1, 2)
    assert made["status"].tolist() == ["accepted"]


@pytest.mark.parametrize(
    ("question", "message"),
    [
        (item(answer=""), "'q1' has no answer"),
        (item(doc_ids=()), "'q1' has no gold documents"),
        (item(doc_ids=("Moss",)), "'q1' rests on 'Moss'"),
    ],
)
def test_questions_that_cannot_be_asked_are_named_before_any_call(question, message):
    with pytest.raises(DataError, match=message):
        curation.long_answers(None, data_set([question]))
