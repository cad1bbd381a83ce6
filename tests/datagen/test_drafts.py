"""Drafts of questions: what a model writes about documents, what the checks refuse, what a person
makes of the rest.
"""

import json
import re

import pytest
from fake_ollama import FakeOllama

import ragbench as rb
from ragbench import cli
from ragbench.datagen import drafts
from ragbench.labelling.people import Session, load_labels
from ragbench.paths import packaged_data
from ragbench.widgets import LabellingTool
from recorded import RECORDINGS

MILL = "Ada Ruck founded the mill in 1841. It burnt down in 1903."
LAKE = "The lake is 40 metres deep. Ada Ruck swam in it every day."
DOCUMENTS = [rb.Document("mill", "Mill", MILL), rb.Document("lake", "Lake", LAKE)]
# Document that the prompt begins with -> question, answer, numbers of the evidence.
REPLIES = {
    "Mill": ("When was the mill founded?", "1841", [1]),
    "Lake": ("How deep is the lake?", "40 metres", [1]),
}
BY_QUESTION = {asked: numbers for asked, _, numbers in REPLIES.values()}
WHEN = "When was the mill founded?"


class Writer:
    """Answers as `REPLIES`, as changed by ``changes``: question -> (answer, numbers)."""

    def __init__(self, changes=()):
        self.changes = dict(changes)
        self.prompts = []

    def __call__(self, body):
        prompt = body["messages"][-1]["content"]
        self.prompts.append(prompt)
        if "You write one question for a test" in prompt:
            asked, answer, _ = REPLIES[prompt.split("Sentences:\n")[1].split("\n")[0]]
            return json.dumps({"question": asked, "answer": self.changes.get(asked, (answer,))[0]})
        (asked,) = re.findall(r"^Question: (.*)$", prompt, re.M)
        return json.dumps({"sentences": self.changes.get(asked, (None, BY_QUESTION[asked]))[1]})


def drafted(writer, documents=DOCUMENTS, **settings):
    with FakeOllama(reply=writer) as server:
        model = rb.chat_model("ollama:llama3:8b", host=server.url)
        return rb.draft_questions(documents, model, **settings)


def test_each_document_gets_a_draft_with_evidence_copied_from_it():
    made = drafted(Writer())
    mill, lake = made.questions
    assert (mill.id, mill.text, mill.answer) == ("mill 1", WHEN, "1841")
    assert mill.references == ("Ada Ruck founded the mill in 1841.",)
    assert lake.references == ("The lake is 40 metres deep.",)
    assert [q.meta["doc_ids"] for q in made.questions] == [["mill"], ["lake"]]
    assert {q.meta["drafted_by"] for q in made.questions} == {"ollama:llama3:8b"}
    assert made.rejected.empty


@pytest.mark.parametrize(
    ("answer", "numbers", "reason"),
    [
        ("1842", [1], "'1842' is not in its evidence"),
        ("1841", [2], "'1841' is not in its evidence"),
        ("1841", [], "no supporting text"),
        ("1841", [9], "sentences [9], but there are 2"),
        ("1841", [0, 1], "sentences [0, 1], but there are 2"),
        ("", [1], "no readable reply"),
    ],
)
def test_a_draft_whose_evidence_does_not_hold_is_left_out_with_the_reason(answer, numbers, reason):
    made = drafted(Writer({WHEN: (answer, numbers)}))
    assert [q.id for q in made.questions] == ["lake 1"]
    assert made.rejected["id"].tolist() == ["mill 1"]
    assert reason in made.rejected["reason"].iloc[0]


def test_the_first_twenty_sentences_of_a_long_document_are_shown():
    lines = [f"This is line number {n}." for n in range(50)]
    long = rb.Document("long", "Long", " ".join(lines))
    assert drafts._draft_of(long).sentences == lines[:20]
    wide = rb.Document("wide", "Wide", " ".join("Mill " * 200 + f"{n}." for n in range(9)))
    assert len(drafts._draft_of(wide).sentences) == 2  # of a thousand letters each


def test_a_sentence_goes_on_over_a_wrapped_line_and_is_a_copy():
    text = (
        "# Mills\n\nThe mill of Tarn was founded by a woman of the name of\nAda Ruck, in "
        "1841. It burnt down.\n- a list"
    )
    found = drafts._sentences_of(rb.Document("m", "M", text))
    assert found == [
        "# Mills",
        "The mill of Tarn was founded by a woman of the name of\nAda Ruck, in 1841.",
        "It burnt down.",
        "- a list",
    ]
    assert all(sentence in text for sentence in found)


def test_a_cassette_goes_on_where_a_call_broke_off_and_asks_nothing_twice(tmp_path):
    writer = Writer()
    tape = tmp_path / "t.sqlite"
    once = drafted(writer, cassette=tape)
    asked = len(writer.prompts)
    again = drafted(writer, cassette=tape)
    assert len(writer.prompts) == asked
    assert again.rows.equals(once.rows)


def test_the_shipped_drafts_of_a_real_model_are_replayed(tmp_path):
    with rb.Cassette(tmp_path / "drafts.sqlite") as tape:
        tape.import_(packaged_data("recordings", "drafts.jsonl.gz"))
    ten = rb.data.load_minihop().documents[:10]
    with rb.Cassette(tmp_path / "drafts.sqlite", "replay") as tape:
        made = rb.draft_questions(ten, RECORDINGS["qwen"].chat_model(), cassette=tape)
    assert len(made.questions) == 7
    texts = " ".join(document.text for document in ten)
    assert all(
        q.answer in " ".join(q.references) and q.references[0] in texts for q in made.questions
    )


@pytest.fixture
def questions(tmp_path, capsys, monkeypatch):
    """A file of drafts as the command writes it, its documents beside it."""
    for document in DOCUMENTS:
        (tmp_path / "docs").mkdir(exist_ok=True)
        (tmp_path / "docs" / f"{document.title}.txt").write_text(document.text)
    (tmp_path / "docs" / "Mole.txt").write_text(MILL.replace("mill", "mole"))
    replies = {**REPLIES, "Mole": ("When was the mole founded?", "1900", [1])}
    monkeypatch.setitem(REPLIES, "Mole", replies["Mole"])
    monkeypatch.setitem(BY_QUESTION, "When was the mole founded?", [1])
    with FakeOllama(reply=Writer()) as server:
        monkeypatch.setenv("OLLAMA_HOST", server.url)
        command = f"data draft {tmp_path}/docs --model ollama:llama3:8b --to {tmp_path}/q.jsonl"
        assert cli.main(command.split()) == 0
    (tmp_path / "said.txt").write_text(capsys.readouterr().out)
    return tmp_path / "q.jsonl"


def test_the_command_writes_drafts_that_load_and_validate_and_lists_the_rest(questions):
    said = (questions.parent / "said.txt").read_text()
    assert "left out: Mole.txt 1: " in said
    assert "Drafts(2 of 3 passed the checks; accepted by a person: 0)" in said
    with pytest.warns(
        UserWarning, match="2 of 2 questions are a model's drafts; accepted by a person: 0"
    ):
        loaded = rb.data.load_questions(questions, questions.parent / "docs")
    assert loaded.meta["drafts"].startswith("2 of 2")
    with pytest.warns(UserWarning, match="drafts"):
        assert cli.main(["validate", str(questions), str(questions.parent / "docs")]) == 0


def test_drafts_are_not_written_over_a_file_of_questions(tmp_path):
    made = drafted(Writer())
    path = made.write(tmp_path / "q.jsonl")
    path.write_text(path.read_text().replace('"level"', '"grade"'))  # as a person edits it
    before = path.read_bytes()
    with pytest.raises(rb.DataError, match="is there already"):
        made.write(path)
    assert path.read_bytes() == before
    with pytest.raises(rb.DataError, match="is there already"):
        made.write(tmp_path)


@pytest.mark.filterwarnings("ignore:.*drafts")
def test_a_person_accepts_and_drops_drafts_and_only_the_accepted_are_written(questions, tmp_path):
    loaded = rb.data.load_questions(questions).questions
    path = tmp_path / "labels.csv"
    tool = LabellingTool(rb.draft_items(loaded), "draft", "ab", path, None)
    assert "40 metres" in tool._item.value
    tool._buttons["1"].click()
    assert Session(tool.session.items, "draft", "ab", path, None).done == 1
    to = tmp_path / "accepted.jsonl"
    counts = rb.accept_drafts(loaded, path, to)
    assert counts == {"accepted": 1, "dropped": 0, "open": 1}
    (accepted,) = rb.data.load_questions(to).questions
    assert (accepted.answer, accepted.meta["accepted_by"]) == (loaded[0].answer, "ab")
    # who drops what another accepts has the last word
    other = load_labels(path).iloc[:1].assign(label="drop", annotator="cd")
    rb.append_labels(tmp_path / "cd.csv", other)
    with pytest.raises(rb.DataError, match=r"no draft was accepted \(1 dropped, 1 open\)"):
        rb.accept_drafts(loaded, tmp_path, tmp_path / "out.jsonl")
    assert not (tmp_path / "out.jsonl").exists()
