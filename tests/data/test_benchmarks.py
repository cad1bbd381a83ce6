"""RAGChecker's benchmark and RefChecker's labels as their repositories write them, on made files."""

from __future__ import annotations

import gzip
import json

import pytest
from checks import refused

from ragbench import data
from ragbench.errors import DataError, NotHereError

ASKED = {"query_id": "7", "query": "Who?", "gt_answer": "Ada founded it."}
CLAIMS = {"novel": "Emma", "gt_answer_claims": ["Ada founded it."]}


def lines(*rows):
    return "\n".join(map(json.dumps, rows))


@pytest.mark.parametrize("name", ["fiqa", "finance"])
@pytest.mark.parametrize("asked", ["fiqa", "finance"])
def test_finance_has_two_names(put, tmp_path, name, asked):
    put(f"processed_data/fiqa/{name}_queries.json", {"input_data": [ASKED]})
    put("processed_data/fiqa/corpus.jsonl", lines({"doc_id": 3, "title": "Mill", "text": "It."}))
    put("processed_data/kiwi/corpus.jsonl", lines({"doc_id": 4, "text": "No."}))
    loaded = data.load_dataset("ragchecker", domain=asked, path=tmp_path)
    (question,) = loaded.questions
    assert (question.id, question.text, question.answer) == ("7", "Who?", "Ada founded it.")
    assert [(d.id, d.title, d.text) for d in loaded.documents] == [("3", "Mill", "It.")]


def test_a_corpus_without_titles_a_bare_list_and_gzip_are_read_and_other_fields_kept(put, tmp_path):
    corpus = gzip.compress(lines({"doc_id": "0", "text": "A mill."}).encode())
    put("writing/corpus.jsonl.gz", corpus)
    put("writing/writing_queries.json.gz", gzip.compress(json.dumps([ASKED | CLAIMS]).encode()))
    loaded = data.load_ragchecker_benchmark("writing", tmp_path)
    assert [(d.id, d.title) for d in loaded.documents] == [("0", "")]
    answer = {"long_answer": "Ada founded it.", "claims": ["Ada founded it."]}
    assert loaded.questions[0].meta == {"novel": "Emma"} | answer


def test_a_domain_without_its_files_and_a_question_of_another_shape_are_named(put, tmp_path):
    put("kiwi/kiwi_queries.json", {"input_data": [ASKED, {"query_id": "8"}]})
    with refused(NotHereError, r"kiwi is not in (.|\n)*corpus\.jsonl(.|\n)*data_process\.sh"):
        data.load_ragchecker_benchmark("kiwi", tmp_path)
    put("kiwi/corpus.jsonl", lines({"doc_id": "0", "text": "A mill."}))
    with refused(DataError, r"record 2 has another shape: KeyError 'query'"):
        data.load_ragchecker_benchmark("kiwi", tmp_path)


LABELLED = [{"triplet": ["Ada", "founded", "it"], "human_label": "Entailment"}]


def test_refcheckers_labels_are_read_from_their_files_or_from_one(put, tmp_path):
    with refused(NotHereError, r"RefChecker's labels are not in (.|\n)*21 files"):
        data.load_refchecker(tmp_path)
    answer = {"id": "q1", "response": "Ada did."}
    kept = answer | {"claude2_response_kg": LABELLED, "gpt4_response_kg": []}
    put("zero_context/nq_alpaca_7B_answers.json", [kept])
    put("noisy_context/msmarco_gpt4_answers.json.gz", gzip.compress(json.dumps([kept]).encode()))
    read = data.load_refchecker(tmp_path)
    assert read[["setting", "dataset", "model"]].to_numpy().tolist() == [
        ["noisy_context", "msmarco", "gpt4"],
        ["zero_context", "nq", "alpaca_7B"],
    ]
    assert read["claims"].tolist() == [LABELLED] * 2
    row = {"setting": "zero_context", "dataset": "nq", "model": "gpt4"} | answer
    put("human_annotations_v1.jsonl", lines(row | {"claims": LABELLED}))
    assert data.load_refchecker(tmp_path).to_dict("records") == [row | {"claims": LABELLED}]


@pytest.mark.data
def test_refcheckers_labels_have_the_published_counts(data_mirror):
    labels = data.load_refchecker(data_mirror / "refchecker")
    assert (len(labels), labels["claims"].map(len).sum()) == (2100, 10733)
