"""BEIR folders, TREC runs and judgements: small files as the tools write them."""

from __future__ import annotations

import json

import pytest
from checks import refused

import ragbench as rb
from ragbench import data
from ragbench.data.relevance import judgements
from ragbench.errors import DataError
from ragbench.records import Chunk, Hit


@pytest.fixture
def beir(tmp_path):
    folder = tmp_path / "scifact"
    (folder / "qrels").mkdir(parents=True)
    corpus = [
        {"_id": "d1", "title": "Mill", "text": "It burned."},
        {"_id": "nan", "title": "", "text": "A dam."},
    ]
    queries = [
        {"_id": "q1", "text": "What burned?", "metadata": {}},
        {"_id": "q2", "text": "Not judged?"},
    ]
    for name, rows in (("corpus", corpus), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    (folder / "qrels" / "test.tsv").write_text(
        "query-id\tcorpus-id\tscore\nq1\td1\t2\nq1\tnan\t0\n", encoding="utf-8"
    )
    return folder


def test_a_beir_folder_is_read_with_its_judgements(beir):
    loaded = data.load_beir(beir)
    (question,) = loaded.questions
    assert (question.id, question.text, question.meta["relevant"]) == (
        "q1",
        "What burned?",
        {"d1": 2, "nan": 0},
    )
    assert question.meta["doc_ids"] == ("d1",)
    assert [(d.id, d.title, d.text) for d in loaded.documents] == [
        ("d1", "Mill", "It burned."),
        ("nan", "", "A dam."),
    ]
    assert judgements(loaded) == {"q1": {"d1": 2, "nan": 0}}


def test_judgements_are_those_given_else_the_documents_of_the_evidence_else_those_that_hold_a_reference():
    minihop = data.load_minihop(limit=5)
    assert [tuple(gains) for gains in judgements(minihop).values()] == [
        q.meta["doc_ids"] for q in minihop.questions
    ]
    question = rb.Question("q", "?", "a", ("It burned.",))
    documents = [
        rb.Document(name, name, text) for name, text in (("a", "It burned."), ("b", "No."))
    ]
    assert judgements(rb.Dataset("d", (question,), documents)) == {"q": {"a": 1}}
    again = rb.Question("q", "Again?", "b", ("No.",))
    both = {"q": {"a": 1, "b": 1}}
    assert judgements(rb.Dataset("d", (question, again), documents)) == both


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("q1\td9\t1", ": 'd9' is not in the folder"),
        ("q9\td1\t1", ": 'q9' is not in the folder"),
        ("q1\td1\tx", ", line 3: .*'x'"),
        ("q1\td1\t0.5", ", line 3: .*'0.5'"),
        ("q1 d1", ", line 3: the number of cells differs"),
        ("q1\td1\t1\tmore", ", line 3: the number of cells differs"),
        ("q1\td1\t1\nq1\td1\t2", ", line 4: .*'d1'.* was there before"),
    ],
)
def test_faults_of_a_beir_folder_name_file_and_line(beir, line, message):
    path = beir / "qrels" / "test.tsv"
    path.write_text(f"query-id\tcorpus-id\tscore\n\n{line}\n", encoding="utf-8")
    with refused(DataError, rf"test\.tsv{message}"):
        data.load_beir(beir)
    with refused(DataError, r"no file .*dev\.tsv; the folder holds test\.tsv"):
        data.load_beir(beir, "dev")


def test_ranking_scores_are_those_of_ir_measures_own_readers(tmp_path):
    import ir_measures

    retrieved = {"q1": ["d2", "d3", "d1"], "q2": ["d1"], "q3": []}
    relevant = {"q1": {"d1": 2, "d9": 0, "d3": 1}, "q2": {"d4": 1}, "q3": {"d1": 1}}
    rows = [
        {"question_id": name, "retrieved": found, "relevant": relevant[name]}
        for name, found in retrieved.items()
    ]
    table = rb.score(rows, ["ranking"])
    measures = [ir_measures.parse_measure(name) for name in table.attrs["numbers"]]
    lines = [f"{q} 0 {d} {gain}\n" for q, gains in relevant.items() for d, gain in gains.items()]
    (tmp_path / "qrels.txt").write_text("".join(lines))
    run = data.write_trec_run(retrieved, tmp_path / "run.txt")
    judged = ir_measures.read_trec_qrels(str(tmp_path / "qrels.txt"))
    theirs = ir_measures.calc(measures, judged, ir_measures.read_trec_run(str(run)))
    for name, measure in zip(table.attrs["numbers"], measures, strict=True):
        assert table[name].mean() == pytest.approx(theirs.aggregated[measure]), name
    assert table.set_index("question_id")["RR"].to_dict() == {"q1": 0.5, "q2": 0.0, "q3": 0.0}


def test_ids_that_are_numbers_match_however_they_are_written():
    ranked = rb.rank_table([[3.0, 1, "2"]], [{1.0: 1, 2: 1}], ["RR", "R@3"])
    assert ranked.iloc[0].to_dict() == {"RR": 0.5, "R@3": 1.0}
    assert rb.score([{"retrieved": [1.0, 2.0], "relevant": [2]}], ["ranking"])["RR"].tolist() == [
        0.5
    ]


def test_hits_are_written_as_a_run_that_keeps_their_order(tmp_path):
    found = [("d2", 3.0), ("d1", 2.5), ("d2", 1.0)]  # two chunks of d2
    hits = [Hit(Chunk(f"c{i}", "t", doc, doc), score, i) for i, (doc, score) in enumerate(found, 1)]
    path = data.write_trec_run({"q1": hits, "q2": ["a", "b"]}, tmp_path / "new" / "run.txt", "mine")
    assert path.read_text().splitlines() == [
        "q1 Q0 d2 1 2 mine", "q1 Q0 d1 2 1 mine", "q2 Q0 a 1 2 mine", "q2 Q0 b 2 1 mine",
    ]  # fmt: skip
    with refused(DataError, r"the id 'a\\tb'"):
        data.write_trec_run({"q": ["a\tb"]}, tmp_path / "x.txt")


def test_ids_with_blanks_go_into_a_run(tmp_path):
    path = data.write_trec_run({"q 1": ["Ada Ruck", "b"]}, tmp_path / "run.txt")
    assert path.read_text() == "q%201 Q0 Ada%20Ruck 1 2 ragbench\nq%201 Q0 b 2 1 ragbench\n"
