"""Loading: MiniHop, HotpotQA and users' files; every fault is one error with its place, nothing is
half-loaded.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
from typing import Annotated

import numpy as np
import pandas as pd
import pytest
from checks import refused
from pydantic import Field, StrictInt

from ragbench.data import hotpotqa as hotpotqa_module
from ragbench.data import (
    load_clapnq,
    load_documents,
    load_dragonball,
    load_hotpotqa,
    load_minihop,
    load_questions,
    load_ragchecker_meta,
    load_wikieval,
    validate,
)
from ragbench.data.files import FileRecord, Filled, as_record, find_file
from ragbench.data.user import save_questions
from ragbench.errors import ConfigError, DataError
from ragbench.paths import packaged_data
from ragbench.records import Dataset, Document, Question
from ragbench.text.languages import language_of


def row(**changes) -> dict:
    base = {
        "_id": "q1",
        "question": "Which town lies on the river that Ann crossed?",
        "answer": "Ely",
        "type": "bridge",
        "level": "easy",
        "supporting_facts": [["Ann", 1], ["Ouse", 0]],
        "context": [
            ["Ann", ["Ann was born.", " She crossed the Ouse."]],
            ["Ouse", ["Ely lies on the Ouse."]],
        ],
    }
    return base | changes


@pytest.fixture
def hotpot(put):
    """Loads these rows as HotpotQA's file."""
    return lambda *rows: load_hotpotqa(put("h.json", rows))


@pytest.fixture
def official(monkeypatch):
    """Makes a file the official one, whose hash is known; returns its path."""

    def known(path):
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        monkeypatch.setattr(hotpotqa_module, "OFFICIAL_SHA256", digest)
        return path

    return known


class Part(FileRecord):
    name: Filled
    score: StrictInt | None = None


class Whole(FileRecord):
    id: Filled
    parts: Annotated[tuple[Part | str, ...], Field(min_length=1)]


@pytest.mark.parametrize(
    ("change", "got", "expected"),
    [
        ({"id": 7}, "'id' is 7", "valid string"),
        ({"id": " "}, "'id' is empty", "a text that is not empty"),
        ({"parts": []}, "'parts' is []", "at least 1 item"),
        ({"parts": [{"name": "n", "score": "x"}]}, "'parts.0.Part.score' is 'x'", "integer"),
    ],
)
def test_a_record_of_another_shape_is_told_by_field_in_pydantics_words(change, got, expected):
    good = {"id": "1", "parts": [{"name": "n"}, "text"]}
    assert as_record(Whole, good, "f, line 1").parts == (Part(name="n"), "text")
    with pytest.raises(DataError) as told:
        as_record(Whole, good | change, "f, line 1")
    assert told.value.got.startswith(f"f, line 1: {got}")
    assert expected in told.value.expected
    assert told.value.do == "correct that record"


def test_every_question_of_minihop_is_there_in_german_french_and_chinese_and_30_went_back(minihop):
    translated = pd.read_json(packaged_data("minihop", "questions_translated.jsonl"), lines=True)
    assert translated["question_id"].tolist() == [q.id for q in minihop.questions]
    for language in ("german", "french", "chinese"):
        assert language_of(translated[language]) == language
        assert translated[language].is_unique
    back = pd.DataFrame(translated["back"].dropna().tolist())
    assert back["from"].value_counts().to_dict() == {"german": 10, "french": 10, "chinese": 10}
    assert language_of(back["english"]) == "english"
    assert back["same"].sum() == 29


def test_a_missing_field_is_named_with_those_that_are_there():
    with refused(DataError, r"no field 'id' \(it has 'idd', 'parts'\)(?s:.)*add id$"):
        as_record(Whole, {"idd": "1", "parts": ["x"]}, "f", add="add {field}")


def test_hotpotqa_row_becomes_a_question_with_its_supporting_sentences(hotpot):
    data = hotpot(row())
    q = data.questions[0]
    assert (q.id, q.answer, q.kind, q.level) == ("q1", "Ely", "bridge", "easy")
    assert q.references == ("She crossed the Ouse.", "Ely lies on the Ouse.")
    assert q.meta == {"supporting_facts": (("Ann", 1), ("Ouse", 0)), "doc_ids": ("Ann", "Ouse")}
    ann, ouse = data.documents
    assert ann.text == "".join(ann.sentences) == "Ann was born. She crossed the Ouse."
    assert ouse.text == "Ely lies on the Ouse."


def test_equal_paragraphs_are_one_document_and_a_second_text_under_a_title_another(hotpot):
    other = [["Ann", ["Ann is a film.", " It ran long."]], ["Ouse", ["Ely lies on the Ouse."]]]
    data = hotpot(row(), row(_id="q2", context=other))
    assert [d.id for d in data.documents] == ["Ann", "Ouse", "Ann #2"]
    assert data.questions[1].references[0] == "It ran long."
    assert data.questions[1].meta["doc_ids"] == ("Ann #2", "Ouse")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"supporting_facts": [["Ann", 2]]}, r"\['Ann', 2\] points nowhere.*has 2 sentences"),
        ({"supporting_facts": [["Bob", 0]]}, r"'Bob' is no document's title"),
        ({"supporting_facts": [["Ann", -1]]}, r"\['Ann', -1\] points nowhere"),
        ({"supporting_facts": [["Ann", "1"]]}, r"'supporting_facts\.0\.1' is '1'"),
        ({"context": [["Ann", "text"]]}, r"'context\.0\.1' is 'text'"),
        ({"answer": " "}, "'answer' is empty"),
    ],
)
def test_bad_hotpotqa_rows_are_named_by_record(hotpot, changes, message):
    with refused(DataError, rf"h\.json, row 0(?s:.)*{message}(?s:.)*do: "):
        hotpot(row(**changes))


def test_all_bad_rows_are_listed_together(hotpot):
    rows = [row(_id=f"q{i}", answer="" if i % 2 else "Ely") for i in range(30)]
    with refused(DataError, r"15 of 30 are bad(.|\n)*row 1(.|\n)*and 7 more"):
        hotpot(*rows)
    with refused(DataError, r"9 of 18 are bad(.|\n)*row 15(.|\n)*and 1 more"):
        hotpot(*rows[:18])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"  \n", "is empty"),
        (b'[{"_id": "q1", ', "line 1, column"),
        (b'[\n{"_id": "q1" "x"}]', "line 2, column 14"),
        (b'{"_id": "q1"}', "a table as dict"),
        (b"[]", "holds no record"),
        (b"[3]", "a table as int"),
        ('[{"question": "café"}]'.encode("latin-1"), "line 1: byte 0xe9 is not UTF-8"),
        ("[]".encode("utf-16"), "not UTF-8(.|\\n)*CSV UTF-8"),
        (b"\x1f\x8b\x08broken", "cannot be read"),
        (b"\x1f\x8b\x07 unknown method", "cannot be read"),
        (b"PK\3\4\xff a spreadsheet", r"not UTF-8(.|\n)*Excel: File, Save as, CSV UTF-8"),
        (b"[" * 100_000, "recursion"),
    ],
)
def test_damaged_files_say_where_and_what_to_do(put, content, message):
    path = put("h.json", content)
    with refused(DataError, message) as caught:
        load_hotpotqa(path)
    assert str(path) in str(caught.value)


def test_missing_file_shows_what_is_there(tmp_path, put):
    for name in ("hotpot.json", ".hidden", "a", "b", "c", "d", "e", "f"):
        put(name, "[]")
    with refused(DataError, r"(?m)the folder holds hotpot\.json(, [a-f]){5}$"):
        load_hotpotqa(tmp_path / "hotpott.json")
    with refused(DataError, "load_documents"):
        load_hotpotqa(tmp_path)


def test_a_limit_is_at_least_one(write_lines):
    path = write_lines("q.jsonl", *[{"question": "a", "answer": "b"}] * 2)
    with refused(ConfigError, "limit=0"):
        load_questions(path, limit=0)
    assert len(load_questions(path, limit=1).questions) == 1


def test_a_column_named_in_fields_has_to_be_there(put):
    questions = put("q.csv", "frage,answer,passages\na,b,c\n")
    names = {"question": "frage", "references": "passages"}
    assert load_questions(questions, fields=names).questions[0].references == ("c",)
    with refused(DataError, r"(?s)the column 'passage' for 'references'.*frage, answer, passages"):
        load_questions(questions, fields=names | {"references": "passage"})
    with refused(ConfigError, r"unknown name in fields.*'frage'"):
        load_questions(questions, fields={"frage": "question"})
    # A document's column counts where a table of documents is read, and may be named where none is.
    documents = put("d.csv", "titel,body\nA,c.\n")
    both = names | {"title": "titel", "text": "body"}
    assert load_questions(questions, documents, fields=both).documents[0].text == "c."
    assert load_questions(questions, fields=both).questions[0].text == "a"
    with refused(DataError, "'titl' for 'title'"):
        load_questions(questions, documents, fields=both | {"title": "titl"})


@pytest.mark.parametrize(
    ("load", "message"),
    [
        (load_hotpotqa, "ragbench data fetch hotpotqa"),
        (load_clapnq, r"RAGBENCH_DATA/clapnq/clapnq_dev_answerable\.jsonl"),
        (load_dragonball, "notebook 40"),
        (load_wikieval, "set RAGBENCH_DATA"),
        (load_ragchecker_meta, "RAGBENCH_DATA/ragchecker"),
    ],
)
@pytest.mark.parametrize("folder", [True, False], ids=["an empty folder", "no folder"])
def test_without_its_data_a_loader_says_where_they_belong(
    tmp_path, monkeypatch, load, message, folder
):
    monkeypatch.setenv("RAGBENCH_CACHE", str(tmp_path))
    monkeypatch.setenv("RAGBENCH_DATA", str(tmp_path) if folder else "")
    with refused(DataError, message):
        load()


def test_a_dangling_fact_is_left_out_of_the_official_file_only(put, official):
    path = put("h.json", [row(), row(_id="q2", supporting_facts=[["Ann", 9]])])
    with refused(DataError, "points nowhere"):
        load_hotpotqa(path)
    data = load_hotpotqa(official(path))
    assert [question.id for question in data.questions] == ["q1"]
    assert [name for name, _ in data.excluded] == ["q2"]


@pytest.mark.data
def test_the_official_file_gives_the_same_1886_questions_and_documents_as_the_subset(
    data_mirror, tmp_path, monkeypatch, put, official
):
    path = data_mirror / "hotpotqa" / "hotpot_dev_distractor_subset.json.gz"
    subset = load_hotpotqa(path)
    rows = json.loads(gzip.decompress(path.read_bytes()))
    # The official file: other questions after them, ten paragraphs in every context.
    for place, item in enumerate(rows):
        more = [[f"Page {place}.{n}", ["Nothing."]] for n in range(10 - len(item["context"]))]
        item["context"] = more + item["context"]
    others = [rows[n] | {"_id": f"other {n}"} for n in range(50)]
    made = official(put(f"hotpotqa/{hotpotqa_module.OFFICIAL_NAME}", others + rows))
    monkeypatch.setenv("RAGBENCH_DATA", str(tmp_path))
    data = load_hotpotqa()
    assert (data.questions, data.documents) == (subset.questions, subset.documents)
    assert data.meta["setting"] == "subset"
    assert len(load_hotpotqa(made).questions) == 1936
    assert load_hotpotqa(limit=3).questions == subset.questions[:3]
    monkeypatch.setenv("RAGBENCH_DATA", str(data_mirror))
    monkeypatch.setenv("RAGBENCH_CACHE", str(tmp_path / "empty"))
    assert load_hotpotqa(limit=3).questions == subset.questions[:3]


@pytest.mark.data
def test_recorded_subset_has_the_counts_of_its_description(data_mirror):
    data = load_hotpotqa(data_mirror / "hotpotqa" / "hotpot_dev_distractor_subset.json.gz")
    table = pd.DataFrame(data.questions)
    assert len(table) == 1886
    assert (table["kind"] == "bridge").sum() == 1488
    assert (table["level"] == "hard").all()
    assert len(data.documents) == 18297
    assert len({d.title for d in data.documents}) == 18293
    counts = table["references"].map(len).value_counts()
    assert counts.to_dict() == {2: 1234, 3: 479, 4: 151, 5: 17, 6: 3, 7: 2}
    first = ["5a8b57f25542995d1e6f1371", "yes", "comparison"]
    assert table.loc[0, ["id", "answer", "kind"]].tolist() == first


def test_own_questions_and_documents_by_jsonl(write_lines):
    ann = {"title": "Ann", "sentences": ["Ann was born.", "She sang."]}
    ouse = {"id": "o", "title": "Ouse", "text": "A river."}
    who = {"question": "Who sang?", "answer": "Ann", "supporting_facts": [["Ann", 1]]}
    what = {"id": 7, "question": "What is it?", "answer": "a river", "references": ["A river."]}
    questions = write_lines("q.jsonl", who | {"topic": "music"}, what)
    data = load_questions(questions, write_lines("d.jsonl", ann, ouse))
    document, other = data.documents
    assert (document.id, other.id) == ("Ann", "o")
    assert document.text == "".join(document.sentences) == "Ann was born. She sang."
    first, second = data.questions
    assert (first.id, first.references, first.meta["topic"]) == ("line-1", ("She sang.",), "music")
    assert first.meta["doc_ids"] == ("Ann",)
    assert (second.id, second.references) == ("7", ("A river.",))


def test_columns_with_other_capitals_spaces_or_hyphens_are_recognised(put):
    heads = "ID,Question,Answer , REFERENCES ,Level of Care\n"
    (question,) = load_questions(
        put("q.csv", heads + "7,Who?,Ann,Ann was.||It was Ann.,low\n")
    ).questions
    references = ("Ann was.", "It was Ann.")
    meta = {"Level of Care": "low"}
    assert question == Question("7", "Who?", "Ann", references, meta=meta)
    path = put("q.csv", "Question,question,Answer,gold\nnot this,Who?,Bob,Ann\n")
    with refused(DataError, "both mean 'question'"):
        load_questions(path, fields={"answer": "gold"})
    fields = {"question": "question", "answer": "gold"}
    (question,) = load_questions(path, fields=fields).questions
    assert (question.text, question.answer) == ("Who?", "Ann")
    assert question.meta == {"given_question": "not this", "given_answer": "Bob"}
    with refused(DataError, "answers that were already given"):
        load_questions(put("q.csv", "Question,Answer,Contexts,Ground Truth\nWho?,Ann,[],Ann\n"))


def test_a_text_with_two_bars_is_one_reference_in_json_lines_and_an_id_that_is_a_float_is_a_whole_number(
    write_lines,
):
    row = {"id": 1.0, "question": "q", "answer": "a", "references": "if (a || b)"}
    (question,) = load_questions(write_lines("q.jsonl", row)).questions
    assert (question.id, question.references) == ("1", ("if (a || b)",))


def test_a_table_of_given_answers_is_refused_and_its_true_answers_can_be_named(put):
    text = 'question,answer,contexts,ground_truth\nWho?,Bob,"[""Ann did it.""]",Ann\n'
    path = put("ragas.csv", text)
    with refused(DataError, r"(?s)of answers.*rb.score.*'answer': 'ground_truth'"):
        load_questions(path)
    truth = load_questions(path, fields={"answer": "ground_truth"})
    assert truth.questions[0].answer == "Ann"


@pytest.mark.parametrize("escape", [r"\ud800", r"\uDFFF"])
def test_text_that_cannot_be_written_again_is_refused_with_its_line(put, escape):
    good = '{"question": "a \\ud83d\\ude00", "answer": "b"}\n'
    bad = f'{{"question": "a{escape}", "answer": "b"}}\n'
    with refused(DataError, r"line 2: .*surrogates"):
        load_questions(put("q.jsonl", good + bad))
    (question,) = load_questions(put("good.jsonl", good)).questions
    assert question.text == "a \N{GRINNING FACE}"


def test_questions_and_documents_come_from_tsv_files(put):
    documents = put("documents.tsv", "id\ttitle\ttext\nd1\tMill\tIt is in Ely, and old.\n")
    asked = b"question\tanswer\treferences\nWhere, then?\tEly\tIt is in Ely, and old.\n"
    packed = put("asked.TSV.gz", gzip.compress(asked))
    loaded = load_questions(put("questions.tsv", asked), documents)
    assert loaded.questions == load_questions(packed).questions
    assert [(q.text, q.answer) for q in loaded.questions] == [("Where, then?", "Ely")]
    assert [(d.id, d.text) for d in loaded.documents] == [("d1", "It is in Ely, and old.")]
    assert validate(loaded) == []


def test_files_that_are_skipped_in_a_folder_are_counted(tmp_path, put):
    for name in ("a.txt", "b.md", "c.xlsx", "d.XLSX", "e.png", "Makefile", "f", "g", ".h"):
        put(name, "Ann Lee was born in Ely.")
    skipped = r"2 files are read; skipped: 6 of other kinds \(Makefile, c\.xlsx.*, f, \.\.\.\)"
    with pytest.warns(UserWarning, match=skipped):
        assert len(load_documents(tmp_path)) == 2


def test_a_question_is_found_by_its_id_and_a_typo_is_told_without_a_list_of_thousands():
    data = Dataset("d", tuple(Question(f"q-{n}", f"Is it {n}?", "Yes.") for n in range(2000)), ())
    assert data.question("q-7").text == "Is it 7?"
    for wrong in ("q7", "Q-7"):
        with refused(ConfigError, r"2,000 in all(?s:.)*mean 'q-7'") as told:
            data.question(wrong)
        assert len(str(told.value)) < 300


def test_a_data_set_is_a_table_of_counts_in_a_notebook_without_its_texts():
    questions = (
        Question("q0", "Where?", "Ely"),
        Question("q1", "Where?", "Ely", ("In Ely.",)),
        *[Question(name, "Where?", "Ely", ("In Ely.",), "bridge") for name in ("q2", "q3")],
    )
    documents = (Document("d", "Ely", "In Ely."),)
    html = Dataset("a < b", questions, documents, (("x", "no text"),))._repr_html_()
    (table,) = pd.read_html(io.StringIO(html))
    assert table.to_dict("records") == [
        {"data set": "a < b", "questions": 4, "by kind": "2 -, 2 bridge", "without references": 1, "documents": 1,
         "excluded": 1}
    ]  # fmt: skip
    assert "Where?" not in html
    assert "In Ely" not in html


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"question": "a?", "answer": "b"}\n{"question": }', "line 2, column 14"),
        ('{"question": "a?", "answer": "b"}\n[1]', "line 2 is a JSON list"),
        ('{"question": "a?"}', "q.jsonl: no field 'answer'"),
        ('{"question": "a?", "answer": ""}', "line 1: 'answer' is empty"),
        (
            '{"id": 1, "question": "a", "answer": "b"}\n\n' * 2,
            r"line 3: '1' was there before \(line 1\)",
        ),
        (
            '{"question": "a", "answer": "b", "supporting_facts": [["X", 0]]}',
            "nowhere: 'X' is no document's title",
        ),
        (
            '{"question": "a", "answer": "b", "references": [" "]}',
            r"line 1: 'references\.0' is empty",
        ),
        (
            '{"question": "a", "answer": "b", "supporting_facts": 3}',
            r"line 1: 'supporting_facts' is 3\n.*valid tuple",
        ),
        (
            '{"question": "a", "answer": "b", "supporting_facts": [["Ann", 2]]}',
            "that document has 2 sentences",
        ),
        ("question,answer\na,b,c\n", "line 2: the number of cells"),
        ("question,answer\na\n", "line 2: the number of cells"),
        ('question,answer\na,"b\n', "unexpected end of data"),
        ("question,answer\n", "no record"),
        ("question,answer\na,\n", r"line 2: 'answer' is empty"),
    ],
)
def test_bad_question_lines_are_named(put, text, message):
    name = "q.jsonl" if text.startswith("{") else "q.csv"
    documents = [Document("a", "Ann", "One. Two.", ("One.", " Two."))]
    with refused(DataError, message) as caught:
        load_questions(put(name, text), documents)
    assert name in str(caught.value)
    assert len(str(caught.value)) < 1000


def dataset(**changes) -> Dataset:
    documents = (
        Document("Ann", "Ann", "Ann was born. She crossed the Ouse."),
        Document("Ouse", "Ouse", "Ely lies on the Ouse."),
    )
    fields = {
        "id": "q",
        "text": "Which town is meant?",
        "answer": "Ely",
        "kind": "bridge",
        "references": ("She crossed the Ouse.", "Ely lies on the Ouse."),
        "meta": {"doc_ids": ("Ann", "Ouse"), "supporting_facts": (("Ann", 1), ("Ouse", 0))},
    }
    return Dataset("d", (Question(**fields | changes),), documents)


REASONED = {"reasoning": "Her river leads to York."}


@pytest.mark.parametrize(
    ("changes", "problems"),
    [
        ({}, []),
        ({"references": ()}, ["q: no supporting text"]),
        ({"references": (), "answer": "York"}, ["q: no supporting text"]),
        (
            {"references": ("She sang.", "Ely lies on the Ouse.")},
            ["q: supporting text not found in any document"],
        ),
        ({"answer": "York"}, ["q: note: the answer 'York' is not in its evidence word for word;"]),
        ({"answer": "York", "meta": REASONED}, []),
        ({"answer": "York", "kind": "comparison", "text": "Ely or York?", "meta": {}}, []),
        ({"answer": "yes", "kind": "comparison", "meta": {}}, []),
        ({"kind": "unanswerable", "references": (), "meta": {}}, []),
    ],
)
def test_each_defect_of_a_question_is_one_problem_and_an_answer_in_other_words_a_note(
    changes, problems
):
    found = map(str, validate(dataset(**changes)))
    for problem, text in zip(problems, found, strict=True):
        assert text.startswith(problem)


def test_evidence_from_one_document_is_enough_unless_more_is_asked_for_and_ids_are_unique():
    single = dataset(meta={"doc_ids": ("Ann",)})
    assert validate(single) == []
    (problem,) = validate(single, min_documents=2)
    assert "evidence from 1 document(s), 2 wanted" in str(problem)
    assert validate(dataset(), min_documents=2) == []
    twice = Dataset("d", single.questions * 2, single.documents)
    assert "more than once" in str(validate(twice)[0])


def test_evidence_with_a_hyphen_is_found_where_a_line_ends_after_it():
    asked = Question("q", "Who was it?", "a well-known miller", ("It was a well-known miller.",))
    document = Document("d", "d", "It was a well-\nknown miller.")
    assert validate(Dataset("d", (asked,), (document,))) == []


@pytest.fixture(scope="module")
def minihop():
    return load_minihop()


def test_minihop_has_the_size_and_the_mix_it_promises(minihop):
    assert len(minihop.documents) >= 240
    table = pd.DataFrame(minihop.questions)
    assert len(table) >= 160
    topics = pd.Series([d.meta["topic"] for d in minihop.documents])
    assert topics.value_counts().min() >= 10
    assert table["kind"].value_counts()[["bridge", "comparison"]].min() >= 50
    assert table["level"].value_counts()[["easy", "medium", "hard"]].min() >= 40
    assert table["meta"].str["doc_ids"].map(len).min() >= 2
    long = table["meta"].str.get("long_answer").dropna()
    assert len(long) >= 60
    assert long.str.count(r"[.!?](?:\s|$)").between(3, 8).all()
    assert validate(minihop, min_documents=2) == []


TABLE = {
    "Question": ["Who founded the mill?", "When?"],
    "answer": ["Ada Ruck", "1841"],
    "references": [["Ada Ruck founded it."], np.array(["It was 1841."])],
    "n": [3, None],
}


@pytest.mark.parametrize(
    "table",
    [
        pd.DataFrame(TABLE),
        pd.DataFrame(TABLE, index=["a", "b"]),
        pd.DataFrame(TABLE).to_dict("records"),
    ],
    ids=["frame", "frame with an index", "list of dicts"],
)
def test_questions_and_documents_load_from_tables(table):
    rows = [{"id": 7, "title": "Mill", "text": "Ada Ruck founded it. It was 1841."}]
    for documents in (rows, pd.DataFrame(rows), load_documents(pd.DataFrame(rows))):
        loaded = load_questions(table, documents)
        # an empty cell is no value
        assert [(q.id, q.references, q.meta) for q in loaded.questions] == [
            ("row-0", ("Ada Ruck founded it.",), {"n": 3}),
            ("row-1", ("It was 1841.",), {}),
        ]
        assert [(d.id, d.title) for d in loaded.documents] == [("7", "Mill")]


def test_bad_rows_of_a_table_are_told_by_row():
    with refused(DataError, r"the table: no field 'answer' \(it has"):
        load_questions(pd.DataFrame(TABLE).drop(columns="answer"))
    with refused(DataError, r"row 1: 'x' was there before \(row 0\)"):
        load_questions(pd.DataFrame(TABLE).assign(id="x"))
    for strange in (None, 5, ["Who?"]):
        with refused(DataError, r"a table as (.|\n)*a list of dicts"):
            load_questions(strange)


def test_records_of_another_kind_are_refused_where_they_are_made():
    with refused(DataError, "question '1': references is one text, 'Ada'"):
        Question("1", "Who?", "Ada", "Ada")
    rows = pd.DataFrame(TABLE)
    for questions in (rows, rows.to_dict("records")):
        with refused(DataError, r"questions of mine: item 0(.|\n)*one Question per row"):
            Dataset("mine", questions, ())
    with refused(DataError, "documents of mine: item 0"):
        Dataset("mine", (), ["a text"])


def test_questions_are_not_written_over_others(tmp_path):
    path = tmp_path / "q.jsonl"
    question = Question("q", "Who?", "Ann")
    for _ in range(2):  # the same ones are
        save_questions([question], path)
    with pytest.raises(DataError, match="is there already"):
        save_questions([Question("q", "Who?", "Bea")], path)
    assert "Ann" in path.read_text()


def test_questions_are_written_in_their_own_letters(tmp_path):
    save_questions([Question("q", "Wer?", "Zoë")], tmp_path / "q.jsonl")
    assert '"Zoë"' in (tmp_path / "q.jsonl").read_text(encoding="utf-8")


def test_of_files_of_one_name_that_nearest_to_the_top_is_found(tmp_path):
    for name in ("a/b/q.jsonl", "b/Q.jsonl.gz", "c/q.jsonl", "r.jsonl"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "s.jsonl").mkdir()
    assert find_file(tmp_path, "q.jsonl", "r.jsonl") == tmp_path / "b" / "Q.jsonl.gz"
    assert find_file(tmp_path, "s.jsonl", "R.jsonl") == tmp_path / "r.jsonl"
    assert find_file(tmp_path / "c" / "q.jsonl", "r.jsonl") == tmp_path / "c" / "q.jsonl"
    assert find_file(tmp_path, "s.jsonl") is None
