"""ClapNQ: the loader on small files made here, and the counts of the real one."""

from __future__ import annotations

import json

import pytest
from checks import refused

from ragbench.data import load_clapnq
from ragbench.errors import DataError
from ragbench.records import Document

TARN = {"title": "Tarn", "text": "A tarn is small . It lies high up .  Ice made it . "}


def row(name, *outputs, passages=(TARN,), text="what is a tarn"):
    made = [
        {"answer": answer, "selected_sentences": list(selected)} for answer, selected in outputs
    ]
    return {"id": name, "input": text, "passages": list(passages), "output": made}


ROWS = [
    row("7", ("", ()), ("A small lake .", ("A tarn is small .", "Ice made it .")), ("Ice .", ())),
    row("8", ("High up .", ("It lies high up .",))),
    row("9", ("", ())),
]


@pytest.fixture
def write(write_lines):
    return lambda rows: write_lines("clapnq.jsonl", *rows)


def test_the_answer_is_the_first_written_one_and_a_question_without_one_is_listed_not_lost(write):
    data = load_clapnq(write(ROWS))
    first, second = data.questions
    assert (first.id, first.text, first.answer) == ("7", "what is a tarn", "A small lake .")
    assert first.references == ("A tarn is small .", "Ice made it .")
    assert first.meta == {"doc_ids": ("Tarn",), "answers": ("A small lake .", "Ice .")}
    assert (second.answer, second.references) == ("High up .", ("It lies high up .",))
    assert data.excluded == (("9", "no annotator wrote an answer"),)
    assert data.documents == (
        Document("Tarn", "Tarn", "A tarn is small . It lies high up .  Ice made it ."),
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"id": "7"}, "'7' was there before"),
        ({"id": ["8"]}, "another shape: TypeError"),
        ({"output": [{"answer": "x"}]}, "selected_sentences"),
    ],
)
def test_bad_input_names_file_line_and_field(write, change, message):
    with refused(DataError, rf"clapnq\.jsonl, line 2.*{message}"):
        load_clapnq(write([ROWS[0], ROWS[1] | change, ROWS[2]]))


def test_the_first_bad_line_says_what_is_expected(write):
    with refused(DataError, r"line 2: '7' was there before(.|\n)*each one once"):
        load_clapnq(write([ROWS[0], ROWS[0], ROWS[1] | {"output": [{"answer": "x"}]}]))


def test_all_bad_lines_are_listed_together(write):
    with refused(DataError, "3 of 3 are bad"):
        load_clapnq(write([{"id": row["id"], "passages": [{"title": None}]} for row in ROWS]))


@pytest.mark.data
def test_the_real_file_has_the_papers_300_questions(data_mirror):
    data = load_clapnq()
    assert (len(data.questions), len(data.documents), data.excluded) == (300, 297, ())
    ids = json.loads((data_mirror / "ragchecker/benchmark/clapnq_ids.json").read_text())
    assert {q.id for q in data.questions} == set(ids)
    texts = {d.id: d.text for d in data.documents}
    for q in data.questions:
        gold = [texts[name] for name in q.meta["doc_ids"]]
        assert all(any(part in text for text in gold) for part in q.references)
    assert sum(not q.references for q in data.questions) == 1
    assert sum(len(q.meta["answers"]) for q in data.questions) == 485


@pytest.mark.data
def test_the_sample_is_the_same_fifty_and_the_grid_shows_every_chunk_uncut():
    from ragbench.papers.ragchecker import _sample, clapnq_grid

    fifty = _sample()
    all_of_them = _sample(questions=300)
    assert [q.id for q in fifty.questions] == [q.id for q in all_of_them.questions[:50]]
    assert fifty.questions[0].text == "why did jamie kill her mom in halloween 4"
    assert len(fifty.documents) == 297

    rows = clapnq_grid(questions=3).run(progress=False)
    assert rows.groupby("retriever").size().to_dict() == {"BM25": 3, "MiniLM": 3}
    assert rows["context_tokens"].max() < 1500
    assert rows["hits"].str.len().eq(5).all()


@pytest.mark.data
def test_the_recorded_answers_are_those_that_were_labelled(tmp_path):
    from ragbench.data.ragchecker import read_ragchecker
    from ragbench.papers.ragchecker import clapnq_grid
    from ragbench.paths import packaged_data
    from recorded import RECORDINGS, replay

    model = RECORDINGS["qwen"].chat_model(num_predict=512, num_ctx=4096)
    with replay(packaged_data("clapnq", "replies.jsonl.gz")) as tape:
        rows = clapnq_grid({"qwen": model}, cassette=tape, folder=tmp_path).run(progress=False)
    assert rows["status"].eq("ok").all()
    answers = dict(zip(rows["question_id"] + " " + rows["retriever"], rows["answer"], strict=True))
    labelled = read_ragchecker(packaged_data("clapnq", "claims.json")).results
    assert answers == {result.id: result.response for result in labelled}
    assert all(result.response_claims for result in labelled)
