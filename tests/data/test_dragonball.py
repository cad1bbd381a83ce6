"""DRAGONBall: the loader on small files made here, and Table 1 on the real ones."""

from __future__ import annotations

import copy

import pytest
from checks import refused
from notebook_parts import parts

from ragbench.data import load_dragonball, load_dragonball_answers
from ragbench.errors import ConfigError, DataError

BOOK = parts("41")
DOCUMENTS = [
    {
        "domain": "Finance",
        "language": "en",
        "doc_id": 4,
        "company_name": "Tarn",
        "content": "Tarn grew. It hired.",
    },
    {
        "domain": "Law",
        "language": "zh",
        "doc_id": 7,
        "court_name": "某法院",
        "content": "判决如下。",
    },
]


def question(kind, language, domain, doc_ids, references, number=None):
    query = {"query_id": number, "query_type": kind, "content": "Did Tarn grow?"}
    truth = {"doc_ids": doc_ids, "content": "Yes.", "references": references, "keypoints": None}
    return {
        "domain": domain,
        "language": language,
        "query": query,
        "ground_truth": truth,
        "prediction": {"content": "", "references": []},
    }


QUESTIONS = [
    question("Factual Question", "en", "Finance", [4], ["Tarn grew."], 12),
    question("无关无解问", "zh", "Law", [], []),
    question("多文档对比问题", "zh", "Law", [7], ["判决如下。"] * 6),
]


def test_the_clone_is_a_folder_and_its_release_goes_before_what_was_rebuilt(tmp_path, write_lines):
    clone = "rageval/dragonball_dataset"
    for place in ("", f"{clone}/"):
        (tmp_path / place).mkdir(parents=True, exist_ok=True)
    write_lines(f"{clone}/dragonball_docs.jsonl", *DOCUMENTS)
    write_lines("dragonball_queries_rebuilt.jsonl", QUESTIONS[0])
    assert load_dragonball(tmp_path).meta["setting"] == "rebuilt"
    write_lines(f"{clone}/dragonball_queries.jsonl", *QUESTIONS)
    loaded = load_dragonball(tmp_path)
    assert (loaded.meta["setting"], len(loaded.questions), len(loaded.documents)) == (
        "release",
        3,
        2,
    )


@pytest.fixture
def folder(tmp_path, write_lines):
    def write(questions=QUESTIONS):
        write_lines("dragonball_queries.jsonl", *questions)
        write_lines("dragonball_docs.jsonl", *DOCUMENTS)
        return tmp_path

    return write


def changed(index, part, **fields):
    rows = copy.deepcopy(QUESTIONS)
    (rows[index][part] if part else rows[index]).update(fields)
    return rows


def test_a_release_folder_loads_with_one_name_per_question_type(folder):
    data = load_dragonball(folder())
    assert [q.kind for q in data.questions] == ["factual", "unanswerable", "numerical comparison"]
    assert [q.id for q in data.questions] == ["12", "line-2", "line-3"]
    assert data.questions[0].references == ("Tarn grew.",)
    assert data.questions[0].meta["doc_ids"] == ("4",)
    documents = [("4", "Tarn", "finance"), ("7", "某法院", "law")]
    assert [(d.id, d.title, d.meta["domain"]) for d in data.documents] == documents


def test_filters_keep_questions_and_documents_of_the_language_and_domain(folder):
    data = load_dragonball(folder(), language="zh")
    assert (len(data.questions), [d.id for d in data.documents]) == (2, ["7"])
    data = load_dragonball(folder(), domain="finance")
    assert ([q.id for q in data.questions], [d.id for d in data.documents]) == (["12"], ["4"])


def test_statistics_by_hand(folder):
    table = BOOK.table_1(load_dragonball(folder())).set_index(["row", "column"])
    value = table["value"]
    assert value["Legal CN", "documents"] == 1
    assert value["Finance CN", "documents"] == 0
    assert value["Factual", "share of questions"] == pytest.approx(100 / 3)
    many = table.loc[("More than 4", "share by reference count"), ["value", "n"]]
    assert many.tolist() == pytest.approx([100 / 3, 1])
    assert table.loc[("0 Documents", "share by reference count"), "n"] == 1
    assert table.loc[("Summary", "share of questions"), "paper"] == 17.40


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (changed(0, "query", query_type="Riddle"), "line 1 .*Riddle"),
        (changed(0, "", domain="Sport"), "line 1 .*Sport"),
        (changed(2, "query", query_id=12), "line 3: '12' was there before"),
    ],
)
def test_bad_records_are_named_by_line(folder, rows, message):
    with refused(DataError, message):
        load_dragonball(folder(rows))


def test_unknown_language_domain_and_folder(folder, tmp_path):
    with refused(ConfigError, "en, zh"):
        load_dragonball(folder(), language="de")
    with refused(ConfigError, "finance, law, medicine"):
        load_dragonball(folder(), domain="Finance")
    (tmp_path / "empty").mkdir()
    with refused(DataError, "has no file of questions, or none of documents"):
        load_dragonball(tmp_path / "empty")


def test_recorded_answers_pair_with_their_questions(write_lines):
    row = changed(0, "prediction", content="It grew.", references=["(Co: Tarn)Tarn grew."])[0]
    path = write_lines("run_finance_en_some-model.jsonl", row)
    (question,), (answer,) = load_dragonball_answers(path)
    assert (question.id, answer.question_id, answer.text) == ("12", "12", "It grew.")
    assert answer.generator == "some-model"
    assert answer.meta["passages"] == ("(Co: Tarn)Tarn grew.",)


@pytest.mark.data
def test_the_files_give_table_1_up_to_the_two_lost_questions(data_mirror):
    data = load_dragonball(data_mirror / "rageval")
    table = BOOK.table_1(data).set_index("row")
    documents = table[table["column"] == "documents"]
    assert documents["value"].tolist() == documents["paper"].tolist()
    counts = {
        "Information Integration": 1490,
        "Factual": 1298,
        "Multi-hop Reasoning": 1080,
        "Summary": 1159,
        "Numerical Comparison": 698,
        "Time-series": 480,
        "Irrelevant/Unanswerable": 504,
        "All": 6709,
    }
    assert table.loc[[*counts], "n"].to_dict() == counts
    shares = table[table["column"] == "share of questions"]
    assert (shares["value"] - shares["paper"]).abs().max() < 0.6
    assert len(load_dragonball(data_mirror / "rageval", "zh", "law").questions) == 652
    assert sum(not q.meta["doc_ids"] for q in data.questions) == 11


@pytest.mark.data
def test_references_of_the_rebuilt_set_stand_in_their_documents(data_mirror):
    data = load_dragonball(data_mirror / "rageval")
    text = {d.id: d.text for d in data.documents}
    with_references = [q for q in data.questions if q.references and q.meta["doc_ids"]]
    verbatim = [
        all(any(r in text[i] for i in q.meta["doc_ids"]) for r in q.references)
        for q in with_references
    ]
    assert sum(verbatim) / len(verbatim) > 0.95


@pytest.mark.data
def test_the_350_recorded_answers_load(data_mirror, monkeypatch):
    monkeypatch.setenv("RAGBENCH_DATA", str(data_mirror))
    questions, answers = load_dragonball_answers()
    assert len(questions) == len(answers) == 350
    assert {a.generator for a in answers} == {"gpt-4o"}
    assert {len(a.meta["passages"]) for a in answers} == {5}
    assert all(q.meta["keypoints"] for q in questions)
