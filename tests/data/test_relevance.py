"""BEIR folders, TREC runs and judgements: small files as the tools write them."""

from __future__ import annotations

import json

import pandas as pd
import pytest
from checks import refused

import ragbench as rb
from ragbench import data
from ragbench.data.relevance import judgements
from ragbench.errors import ConfigError, DataError
from ragbench.records import Chunk, Hit


@pytest.fixture
def beir(tmp_path, put, write_lines):
    """A folder of two documents, a judged question and one that is not; takes more judgements."""

    def write(judged="q1\td1\t2\nq1\tnan\t0\n"):
        put("scifact/qrels/test.tsv", f"query-id\tcorpus-id\tscore\n{judged}")
        mill = {"_id": "d1", "title": "Mill", "text": "It burned."}
        write_lines("scifact/corpus.jsonl", mill, {"_id": "nan", "title": "", "text": "A dam."})
        burned = {"_id": "q1", "text": "What burned?", "metadata": {}}
        write_lines("scifact/queries.jsonl", burned, {"_id": "q2", "text": "Not judged?"})
        return tmp_path / "scifact"

    return write


def test_a_beir_folder_is_read_with_its_judgements(beir):
    loaded = data.load_beir(beir())
    (question,) = loaded.questions
    gains = {"d1": 2, "nan": 0}
    assert (question.id, question.text, question.meta["relevant"]) == ("q1", "What burned?", gains)
    assert question.meta["doc_ids"] == ("d1",)
    assert [(d.id, d.title, d.text) for d in loaded.documents] == [
        ("d1", "Mill", "It burned."),
        ("nan", "", "A dam."),
    ]
    assert judgements(loaded) == {"q1": gains}


def test_judgements_are_those_given_else_the_documents_of_the_evidence_else_those_that_hold_a_reference():
    minihop = data.load_minihop(limit=5)
    assert [tuple(gains) for gains in judgements(minihop).values()] == [
        q.meta["doc_ids"] for q in minihop.questions
    ]
    question = rb.Question("q", "?", "a", ("It burned.",))
    again = rb.Question("q", "Again?", "b", ("No.",))
    documents = [rb.Document("a", "a", "It burned."), rb.Document("b", "b", "No.")]
    assert judgements(rb.Dataset("d", (question,), documents)) == {"q": {"a": 1}}
    both = rb.Dataset("d", (question, again), documents)
    assert judgements(both) == {"q": {"a": 1, "b": 1}}


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
    folder = beir(f"\n{line}\n")
    with refused(DataError, rf"test\.tsv{message}"):
        data.load_beir(folder)
    with refused(DataError, r"no file .*dev\.tsv; the folder holds test\.tsv"):
        data.load_beir(folder, "dev")


def test_ranking_scores_are_those_of_ir_measures_own_readers(tmp_path, put):
    import ir_measures

    retrieved = {"q1": ["d2", "d3", "d1"], "q2": ["d1"], "q3": []}
    relevant = {"q1": {"d1": 2, "d9": 0, "d3": 1}, "q2": {"d4": 1}, "q3": {"d1": 1}}
    rows = {"question_id": [*retrieved], "retrieved": [*retrieved.values()]}
    table = rb.score(rows | {"relevant": [*relevant.values()]}, ["ranking"])
    lines = [f"{q} 0 {d} {gain}\n" for q, gains in relevant.items() for d, gain in gains.items()]
    judged = ir_measures.read_trec_qrels(str(put("qrels.txt", "".join(lines))))
    run = ir_measures.read_trec_run(str(data.write_trec_run(retrieved, tmp_path / "run.txt")))
    numbers = table.numbers
    theirs = ir_measures.calc([*map(ir_measures.parse_measure, numbers)], judged, run).aggregated
    expected = {str(measure): mean for measure, mean in theirs.items()}
    assert table[numbers].mean().to_dict() == pytest.approx(expected)
    assert table.set_index("question_id")["RR"].to_dict() == {"q1": 0.5, "q2": 0.0, "q3": 0.0}


def test_ids_that_are_numbers_match_however_they_are_written():
    ranked = rb.rank_table([[3.0, 1, "2"]], [{1.0: 1, 2: 1}], ["RR", "R@3"])
    assert ranked.iloc[0].to_dict() == {"RR": 0.5, "R@3": 1.0}
    scored = rb.score([{"retrieved": [1.0, 2.0], "relevant": [2]}], ["ranking"])
    assert scored["RR"].tolist() == [0.5]


def test_hits_are_written_as_a_run_that_keeps_their_order(tmp_path):
    found = [("d2", 3.0), ("d1", 2.5), ("d2", 1.0)]  # two chunks of d2
    hits = [Hit(Chunk(f"c{i}", "t", doc, doc), score, i) for i, (doc, score) in enumerate(found, 1)]
    path = data.write_trec_run({"q1": hits, "q2": ["a", "b"]}, tmp_path / "new" / "run.txt", "mine")
    assert path.read_text().splitlines() == [
        "q1 Q0 d2 1 2 mine", "q1 Q0 d1 2 1 mine", "q2 Q0 a 1 2 mine", "q2 Q0 b 2 1 mine",
    ]  # fmt: skip


def test_ids_with_blanks_go_into_a_run(tmp_path):
    path = data.write_trec_run({"q 1": ["Ada Ruck", "b"]}, tmp_path / "run.txt")
    assert path.read_text() == "q%201 Q0 Ada%20Ruck 1 2 ragbench\nq%201 Q0 b 2 1 ragbench\n"


@pytest.mark.parametrize(
    ("retrieved", "relevant"),
    [
        ("d1, d2", "d2"),
        ("d1;d2", "d2"),
        ("d1 d2", "d2"),
        ("d1||d2", "d2"),
        ("d1|d2", "d2"),
        ("d1\nd2", "d2"),
        ("d1、d2", "d2"),
        ("('d1', 'd2')", "{'d2'}"),
        ('["d1", "d2"]', '{"d2": 2, "d3": null}'),
        ("1 2", "{'2': 1}"),
        ("Ely, Mill; Ada Ruck", "Ada Ruck"),
        ('{"d1": 0.9, "d3": 0.1, "d2": 0.5}', "d2"),  # by score
    ],
)
def test_ids_in_one_cell_are_divided_by_one_rule(tmp_path, put, retrieved, relevant):
    rows = [{"retrieved": retrieved, "relevant": relevant}]
    for source in (rows, pd.DataFrame(rows), put("a.jsonl", json.dumps(rows[0]))):
        assert rb.score(source, ["RR"])["RR"].tolist() == [0.5]
    pd.DataFrame(rows).to_csv(tmp_path / "a.csv", index=False)
    assert rb.score(tmp_path / "a.csv", ["RR"])["RR"].tolist() == [0.5]


def test_a_number_in_a_cell_is_one_id():
    frame = pd.DataFrame({"retrieved": [["1", "2"]], "relevant": [2]})
    assert rb.score(frame, ["RR"])["RR"].tolist() == [0.5]
    asked = rb.Question("q", "Who?", "Ada", meta={"relevant": 2})
    named = rb.Dataset("d", (asked,), (rb.Document("2", "", "Ada."),))
    assert judgements(named) == {"q": {"2": 1}}


def test_an_id_with_a_blank_and_no_digit_is_one_id():
    rows = [{"retrieved": "Bea Ruck", "relevant": "Ada Ruck"}]
    with pytest.warns(UserWarning, match="no row"):
        assert rb.score(rows, ["RR"])["RR"].tolist() == [0.0]


@pytest.mark.parametrize("gains", ['{"d1": 1, "d1": 2}', '{"d1": 1', "{d1: 1}"])
def test_gains_that_cannot_be_read_are_refused(gains):
    with refused(DataError, "'relevant'"):
        data.read_answers([{"retrieved": ["d1"], "relevant": gains}])


def test_ids_of_a_questions_file_are_divided_by_the_same_rule(put):
    path = put("q.csv", "question,answer,relevant\nWho?,Ada,d1;d2\n")
    documents = [{"id": name, "text": "Ada."} for name in ("d1", "d2")]
    assert judgements(data.load_questions(path, documents)) == {"line-2": {"d1": 1, "d2": 1}}


@pytest.mark.parametrize(
    ("retrieved", "relevant"),
    [
        (["d2#3"], ["d2"]),
        (["D2"], ["d2"]),
        (["d2.txt", "d3.txt"], {"d2": 1, "d1": 0}),
        (["2"], ["d2"]),
        (["d2 "], ["d2"]),
    ],
)
def test_ids_that_never_meet_are_said_once_with_one_of_each(recwarn, retrieved, relevant):
    rb.rank_table([retrieved, retrieved], [relevant, relevant])
    (warning,) = recwarn.list
    shown = f"{retrieved[0]!r} was retrieved, 'd2' is relevant"
    assert f"of no row is any retrieved id relevant: {shown}" in str(warning.message)
    recwarn.clear()
    rb.rank_table([retrieved, ["d2"]], [relevant, relevant])
    rb.rank_table([[], ["d2"]], [relevant, []])
    assert not recwarn.list


def test_a_document_with_the_id_of_its_question_is_left_out_of_the_ranking():
    rows = [{"question_id": 7, "retrieved": ["7", "d1"], "relevant": ["d1"]}]
    with pytest.warns(UserWarning, match="in 1 rankings .* BEIR's ignore_identical_ids"):
        assert rb.score(rows, ["nDCG@10"])["nDCG@10"].tolist() == [1.0]
    with pytest.warns(UserWarning, match="in 1 rankings"):
        ranked = rb.rank_table([[7.0, "d1", 7]], [["d1"]], ["RR", "P@2"], ["7"])
    assert ranked.iloc[0].tolist() == [1.0, 0.5]
    assert rb.rank_table([[7, "d1"]], [["d1"]], ["RR"])["RR"].tolist() == [0.5]
    judged = rb.rank_table([[7, "d1"]], [{7: 1, "d1": 1}], ["R@1"], [7])  # it is relevant
    assert judged["R@1"].tolist() == [0.5]


@pytest.mark.parametrize("text", ["query-id\tcorpus-id\tscore\n", "q1\td1\t1\n", "q1 0 d1 1"])
def test_judgements_of_one_line_are_no_data_set_without_questions(beir, put, text):
    folder = beir()
    put("scifact/qrels/test.tsv", text)
    with refused(DataError, r"test\.tsv holds no record"):
        data.load_beir(folder)


def test_rankings_without_hits_are_scored_and_a_measure_without_its_program_is_refused():
    ranked = rb.rank_table([[], ["a"]], [["a"], ["a"]], ["Judged@10", "ERR@5", "nDCG@10", "infAP"])
    assert ranked.iloc[0].tolist() == [0.0] * 4
    assert ranked["Judged@10"].tolist() == [0.0, 1.0]
    assert rb.rank_table([[]], [["a"]], ["Judged@10"])["Judged@10"].tolist() == [0.0]
    with refused(ConfigError, "computes no INST here"):
        rb.rank_table([[]], [["a"]], ["INST"])
