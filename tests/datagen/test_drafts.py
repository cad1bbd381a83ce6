"""Drafts of questions: what a model writes about documents, what the checks refuse, what a person
makes of the rest.
"""

import json
import random
import re

import pytest
from fake_ollama import FakeOllama

import ragbench as rb
from ragbench import cli
from ragbench.datagen import drafts
from ragbench.labelling.people import Session, load_labels
from ragbench.paths import packaged_data
from ragbench.prompts import load_prompt
from ragbench.recordings import RECORDINGS
from ragbench.widgets import LabellingTool

MILL = "Ada Ruck founded the mill in 1841. It burnt down in 1903."
LAKE = "The lake is 40 metres deep. Ada Ruck swam in it every day."
DOCUMENTS = [rb.Document("mill", "Mill", MILL), rb.Document("lake", "Lake", LAKE)]
INSUFFICIENT = {"sentences": ["Insufficient Information"]}
# Type -> document that the prompt begins with -> question, answer, numbers of the evidence.
SAID = {
    "single fact": {
        "Mill": ("When was the mill founded?", "1841", [1]),
        "Lake": ("How deep is the lake?", "40 metres", [1]),
    },
    "unanswerable": {
        "Mill": ("Who owns the mill?", "", []),
        "Lake": ("Who owns the lake?", "", []),
    },
}
BY_QUESTION = {asked: numbers for kind in SAID.values() for asked, _, numbers in kind.values()}


class Writer:
    """Answers as `SAID`, as changed by ``changes``: question -> (answer, numbers); ``knows``:
    question -> reply.
    """

    def __init__(self, changes=(), knows=(), found=()):
        self.changes = dict(changes)
        self.knows = dict(knows)
        self.found = dict(found)
        self.prompts = []

    def __call__(self, body):
        prompt = body["messages"][-1]["content"]
        self.prompts.append(prompt)
        if "You write one question for a test" in prompt:
            (kind,) = re.findall(r"^Type of question: ([^.]*)\.", prompt, re.M)
            title = prompt.split("Sentences:\n")[1].split("\n")[0]
            asked, answer, _ = SAID[kind][title]
            answer = self.changes.get(asked, (answer,))[0]
            return json.dumps(
                {"question": asked} | ({} if kind == "unanswerable" else {"answer": answer})
            )
        (asked,) = re.findall(r"^Question: (.*)$", prompt, re.M)
        if "You look for evidence" in prompt:
            return json.dumps({"sentences": self.changes.get(asked, (None, BY_QUESTION[asked]))[1]})
        if "Insufficient Information" in prompt:
            return json.dumps(self.found.get(asked, INSUFFICIENT))
        return self.knows.get(asked, "I do not know.")


def drafted(writer, documents=DOCUMENTS, **settings):
    with FakeOllama(reply=writer) as server:
        return rb.draft_questions(
            documents, rb.chat_model("ollama:llama3:8b", host=server.url), **settings
        )


def reasons(made):
    return dict(zip(made.rows["id"], made.rows["reason"], strict=True))


def test_each_document_gets_a_draft_of_each_type_with_evidence_copied_from_it():
    made = drafted(Writer())
    by_id = {q.id: q for q in made.questions}
    assert len(by_id) == 4
    assert by_id["mill single fact 1"].references == ("Ada Ruck founded the mill in 1841.",)
    assert by_id["mill single fact 1"].meta["doc_ids"] == ["mill"]
    nothing = by_id["mill unanswerable 1"]
    assert (nothing.answer, nothing.references) == (drafts.NO_ANSWER["english"], ())
    assert {q.meta["drafted_by"] for q in made.questions} == {"ollama:llama3:8b"}
    assert made.table()["share"].tolist() == [1, 1]


WHEN = "When was the mill founded?"
FOUNDED = "Ada Ruck founded the mill in 1841."


@pytest.mark.parametrize(
    ("name", "writer", "reason"),
    [
        ("mill single fact 1", Writer({WHEN: ("1842", [1])}), "'1842' is not in its evidence"),
        ("mill single fact 1", Writer({WHEN: ("1841", [2])}), "'1841' is not in its evidence"),
        ("mill single fact 1", Writer({WHEN: ("1841", [])}), "no supporting text"),
        ("mill single fact 1", Writer({WHEN: ("the mill", [1])}), "the question holds its"),
        ("mill single fact 1", Writer({WHEN: ("1841", [9])}), "[9], but there are 2"),
        (
            "mill single fact 1",
            Writer(knows={WHEN: "In 1841."}),
            "answered without its evidence: 'In 1841.'",
        ),
        (
            "mill unanswerable 1",
            Writer(found={"Who owns the mill?": {"sentences": [FOUNDED]}}),
            f"the documents may answer it: '{FOUNDED}'",
        ),
    ],
)
def test_a_draft_that_fails_a_check_is_left_out_with_the_reason(name, writer, reason):
    made = drafted(writer)
    assert [i for i, why in reasons(made).items() if why] == [name]
    assert reason in reasons(made)[name]
    status = made.rows.set_index("id")["status"]
    # a reply that says nothing fails
    assert status[name] == ("failed" if "but there are" in reason else "rejected")
    assert name not in {q.id for q in made.questions}


def test_a_question_is_asked_again_without_its_evidence():
    writer = Writer()
    drafted(writer)
    opening = load_prompt("ragas_data_ungrounded")[:30]
    without = [prompt for prompt in writer.prompts if prompt.startswith(opening)]
    assert len(without) == 2
    assert not any("Ada Ruck founded" in prompt for prompt in without)


def test_without_a_type_there_is_no_draft():
    made = drafted(Writer(), types=[])
    assert (made.questions, made.table().empty, made.rejected.empty) == ((), True, True)


def test_a_question_counts_once():
    made = drafted(Writer(), DOCUMENTS[:1], per_document=2, types=["single fact"])
    assert reasons(made) == {
        "mill single fact 1": "",
        "mill single fact 2": "the question was asked before",
    }


def test_the_second_draft_of_a_document_is_shown_the_first():
    writer = Writer()
    drafted(writer, DOCUMENTS[:1], per_document=2, types=["single fact"])
    first, second = (p for p in writer.prompts if p.startswith("You write"))
    assert (
        "do not ask: none yet" in first,
        "do not ask: When was the mill founded?" in second,
    ) == (True, True)


def test_a_long_document_shows_twenty_sentences_in_a_row_that_the_seed_chooses():
    long = rb.Document("long", "Long", " ".join(f"This is line number {n}." for n in range(200)))

    def shown(seed):
        return list(drafts._passage(long, random.Random(seed)).sentences)

    assert len(shown(0)) == 20
    assert " ".join(shown(0)) in long.text
    assert shown(0) == shown(0) != shown(1)
    wide = rb.Document("a@b", "Wide", " ".join("Mill " * 200 + f"{n}." for n in range(9)))
    passage = drafts._passage(wide, random.Random(0))
    assert len(passage.sentences) == 2  # of a thousand letters each
    assert passage.id.rpartition("@")[0] == "a@b"


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


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"types": ["riddle"]}, "unknown type of question 'riddle'"),
        ({"per_document": 0}, "per_document=0"),
    ],
)
def test_settings_that_cannot_be_are_refused_before_a_call(settings, message):
    with pytest.raises(rb.ConfigError, match=message):
        rb.draft_questions(DOCUMENTS, None, **settings)


def test_the_shipped_drafts_of_a_real_model_are_replayed(tmp_path):
    with rb.Cassette(tmp_path / "drafts.sqlite") as tape:
        tape.import_(packaged_data("recordings", "drafts.jsonl.gz"))
    with rb.Cassette(tmp_path / "drafts.sqlite", "replay") as tape:
        model = RECORDINGS["qwen"].chat_model()
        ten = rb.data.load_minihop().documents[:10]
        made = rb.draft_questions(ten, model, 1, ["single fact", "unanswerable"], cassette=tape)
    assert made.table()["left"].to_dict() == {"single fact": 7, "unanswerable": 0}
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
    writer = Writer(knows={"How deep is the lake?": "40 metres"})
    with FakeOllama(reply=writer) as server:
        monkeypatch.setenv("OLLAMA_HOST", server.url)
        command = f"data draft {tmp_path}/docs --model ollama:llama3:8b --to {tmp_path}/q.jsonl"
        assert cli.main(command.split()) == 0
    (tmp_path / "said.txt").write_text(capsys.readouterr().out)
    return tmp_path / "q.jsonl"


def test_the_command_writes_drafts_that_load_and_validate_and_lists_the_rest(questions):
    said = (questions.parent / "said.txt").read_text()
    assert "left out: Lake.txt single fact 1: answered without its evidence: '40 metres'" in said
    assert "Drafts(3 of 4 passed the checks; accepted by a person: 0)" in said
    with pytest.warns(
        UserWarning, match="3 of 3 questions are a model's drafts; accepted by a person: 0"
    ):
        loaded = rb.data.load_questions(questions, questions.parent / "docs")
    assert len(loaded.questions) == 3
    assert loaded.meta["drafts"].startswith("3 of 3")
    with pytest.warns(UserWarning, match="drafts"):
        assert cli.main(["validate", str(questions), str(questions.parent / "docs")]) == 0


@pytest.mark.filterwarnings("ignore:.*drafts")
def test_a_person_accepts_and_drops_drafts_and_only_the_accepted_are_written(questions, tmp_path):
    loaded = rb.data.load_questions(questions).questions
    path = tmp_path / "labels.csv"
    tool = LabellingTool(rb.draft_items(loaded), "draft", "ab", path, None)
    assert "Ada Ruck founded" in tool._item.value
    tool._after(tool._label, "1")
    tool._after(tool._label, "2")
    assert Session(tool.session.items, "draft", "ab", path, None).done == 2
    to = tmp_path / "accepted.jsonl"
    counts = rb.accept_drafts(loaded, path, to)
    assert counts == {"accepted": 1, "dropped": 1, "open": 1}
    (accepted,) = rb.data.load_questions(to).questions
    assert (accepted.answer, accepted.meta["accepted_by"]) == (loaded[0].answer, "ab")
    # who drops what another accepts has the last word
    other = load_labels(path).iloc[:1].assign(label="drop", annotator="cd")
    rb.append_labels(tmp_path / "cd.csv", other)
    with pytest.raises(rb.DataError, match=r"no draft was accepted \(2 dropped, 1 open\)"):
        rb.accept_drafts(loaded, tmp_path, tmp_path / "out.jsonl")
    assert not (tmp_path / "out.jsonl").exists()
