"""BEIR folders, TREC runs and judgements, Parquet: small files as the tools write them, there and back."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace

import pandas as pd
import pytest

import ragbench as rb
from ragbench.data import formats
from ragbench.data.parquet import read_parquet, write_parquet
from ragbench.errors import ConfigError, DataError
from ragbench.records import Chunk, Hit

RUN = """q1 Q0 d2 1 9.5 bm25
q1 Q0 d1 2 7.0 bm25
q1 Q0 d3 3 7.0 bm25
q2 Q0 d1 1 1.0 bm25
"""
QRELS = "q1 0 d1 2\nq1 0 d9 0\nq1 0 d3 1\nq2 0 d4 1\nq3 0 d1 1\n"


@pytest.fixture
def beir(tmp_path):
    folder = tmp_path / "scifact"
    (folder / "qrels").mkdir(parents=True)
    corpus = [{"_id": "d1", "title": "Mill", "text": "It burned."}, {"_id": "d2", "title": "", "text": "A dam."}]
    queries = [{"_id": "q1", "text": "What burned?", "metadata": {}}, {"_id": "q2", "text": "Not judged?"}]
    for name, rows in (("corpus", corpus), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\t2\nq1\td2\t0\n", encoding="utf-8")
    return folder


def test_a_beir_folder_is_read_and_written_again(beir, tmp_path):
    data = formats.load_beir(beir)
    assert [(q.id, q.text, q.meta["relevant"]) for q in data.questions] == [("q1", "What burned?", {"d1": 2, "d2": 0})]
    assert data.questions[0].meta["doc_ids"] == ("d1",)
    assert [(d.id, d.title, d.text) for d in data.documents] == [("d1", "Mill", "It burned."), ("d2", "", "A dam.")]
    again = formats.load_beir(formats.write_beir(data, tmp_path / "scifact2"))
    assert (again.questions, again.documents) == (data.questions, data.documents)


def test_faults_of_a_beir_folder_name_file_and_line(beir):
    with pytest.raises(DataError, match=r"no file .*dev\.tsv \(there is test\.tsv\)"):
        formats.load_beir(beir, "dev")
    path = beir / "qrels" / "test.tsv"
    faults = {"q1\td9\t1": "document 'd9' is not there", "q1\td1\tx": "the gain is 'x'", "q1 d1": "has 1 cells"}
    for line, message in faults.items():
        path.write_text(f"query-id\tcorpus-id\tscore\n{line}\n", encoding="utf-8")
        with pytest.raises(DataError, match=rf"test\.tsv, line 2.*{message}"):
            formats.load_beir(beir)


def test_minihop_goes_to_beir_with_its_evidence_as_judgements(tmp_path):
    data = rb.data.load_minihop(limit=5)
    again = formats.load_beir(formats.write_beir(data, tmp_path / "minihop"))
    assert len(again.documents) == len(data.documents)
    assert [q.meta["doc_ids"] for q in again.questions] == [q.meta["doc_ids"] for q in data.questions]


def test_trec_files_give_the_scores_of_ir_measures_own_reader(tmp_path):
    import ir_measures

    (tmp_path / "run.txt").write_text(RUN)
    (tmp_path / "qrels.txt").write_text(QRELS)
    tag, rankings = formats.read_trec_run(tmp_path / "run.txt")
    assert (tag, list(rankings["q1"])) == ("bm25", ["d2", "d3", "d1"])  # ties from the last id, as trec_eval
    table = rb.score(formats.trec_rows(tmp_path / "run.txt", tmp_path / "qrels.txt"), ["ranking"])
    assert table["system"].unique().tolist() == ["bm25"]
    measures = [ir_measures.parse_measure(name) for name in table.attrs["numbers"]]
    judged = ir_measures.read_trec_qrels(str(tmp_path / "qrels.txt"))
    theirs = ir_measures.calc(measures, judged, ir_measures.read_trec_run(str(tmp_path / "run.txt")))
    for name, measure in zip(table.attrs["numbers"], measures, strict=True):
        assert table[name].mean() == pytest.approx(theirs.aggregated[measure]), name
    assert table.set_index("question_id")["RR"].to_dict() == {"q1": 0.5, "q2": 0.0, "q3": 0.0}


def test_hits_are_written_as_a_run_that_keeps_their_order(tmp_path):
    found = [("d2", 3.0), ("d1", 2.5), ("d2", 1.0)]  # two chunks of d2
    hits = [Hit(Chunk(f"c{i}", "t", doc, doc), score, i) for i, (doc, score) in enumerate(found, 1)]
    path = formats.write_trec_run({"q1": hits, "q2": ["a", "b"]}, tmp_path / "new" / "run.txt", "mine")
    assert path.read_text().splitlines()[0] == "q1 Q0 d2 1 3.0 mine"
    assert formats.read_trec_run(path) == ("mine", {"q1": {"d2": 3.0, "d1": 2.5}, "q2": {"a": 2.0, "b": 1.0}})
    judged = {"q1": {"d1": 2, "d2": 0}}
    assert formats.read_trec_qrels(formats.write_trec_qrels(judged, tmp_path / "qrels.txt")) == judged
    with pytest.raises(DataError, match=r"the id 'a b'"):
        formats.write_trec_run({"q": ["a b"]}, tmp_path / "x.txt")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("q1 Q0 d1 1 0.5", r"line 1 has 5 cells"),
        ("q1 Q0 d1 1 0.5 t\nq1 Q0 d1 2 0.4 t", r"line 2: document 'd1' is in the ranking"),
        ("q1 Q0 d1 1 high t", r"line 1: the score is 'high'"),
    ],
)
def test_faults_of_a_run_name_file_and_line(text, message, tmp_path):
    (tmp_path / "run.txt").write_text(text)
    with pytest.raises(DataError, match=r"run\.txt, " + message):
        formats.read_trec_run(tmp_path / "run.txt")


def test_parquet_keeps_lists_and_is_told_where_pyarrow_is_missing(tmp_path, monkeypatch):
    frame = pd.DataFrame({"question": ["q"], "chunks": [["a", "b"]], "n": [1]})
    path = write_parquet(frame, tmp_path / "new" / "a.parquet")
    assert rb.data.answers.read_answers(path).at[0, "chunks"] == ["a", "b"]
    for name in [name for name in sys.modules if name.split(".")[0] == "pyarrow"] + ["pyarrow"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ConfigError, match=r"a\.parquet without pyarrow(.|\n)*ragbench\[parquet\]"):
        read_parquet(path)


def test_ids_of_ir_datasets_are_loaded_where_the_package_is(monkeypatch):
    monkeypatch.setitem(sys.modules, "ir_datasets", None)
    with pytest.raises(ConfigError, match="without ir_datasets"):
        formats.load_ir_dataset("beir/scifact/test")
    record = SimpleNamespace(doc_id="d1", title="Mill", default_text=lambda: "Mill burned.")
    query = SimpleNamespace(query_id="q1", default_text=lambda: "What burned?")
    judgement = SimpleNamespace(query_id="q1", doc_id="d1", relevance=1)
    made = SimpleNamespace(qrels_iter=lambda: [judgement], docs_iter=lambda: [record], queries_iter=lambda: [query])
    monkeypatch.setitem(sys.modules, "ir_datasets", SimpleNamespace(load={"beir/x": made}.__getitem__))
    data = formats.load_ir_dataset("beir/x")
    assert (data.name, data.documents[0].text, data.questions[0].meta["doc_ids"]) == ("beir-x", "Mill burned.", ("d1",))
    with pytest.raises(ConfigError, match="unknown id 'beir/y'"):
        formats.load_ir_dataset("beir/y")
