"""The sheets of ClapNQ's claims: blind, each text once, and labels that reach the right system."""

import json

import pandas as pd
import pytest
from checks import load_script

from ragbench.data.ragchecker import read_ragchecker
from ragbench.metrics.claims import claim_metrics_table

TOOL = load_script("label_clapnq")
CHUNKS = {"Tarn#0": "A tarn is a small lake.", "Ice#0": "Ice made it.", "Sea#0": "A sea is large."}
ROWS = pd.DataFrame(
    {
        "question_id": "7",
        "question": "what is a tarn",
        "reference": "A small lake that ice made.",
        "retriever": ["BM25", "MiniLM"],
        "answer": ["A lake.", "A sea."],
        "hits": [["Tarn#0", "Ice#0"], ["Sea#0", "Tarn#0"]],
    }
)


def entry(claim, entailed=(), contradicted=(), together=(), **others):
    lists = {
        "entailed_by": list(entailed),
        "contradicted_by": list(contradicted),
        "together": list(together),
    }
    return {"claim": claim, **others, **lists}


@pytest.fixture
def laid_out():
    seen, key = TOOL.sheets(ROWS, CHUNKS)
    name = {
        text: label
        for texts in (seen[0]["answers"], seen[0]["chunks"])
        for label, text in texts.items()
    }
    tarn, ice, _ = (name[text] for text in CHUNKS.values())
    right = name["A lake."]
    wrong = name["A sea."]
    label = {
        "id": "c01",
        "true_claims": [
            entry("A tarn is a small lake.", [tarn], answers={right: "E", wrong: "C"}),
            entry(
                "Ice made small lakes called tarns.",
                together=[[tarn, ice]],
                answers={right: "N", wrong: "N"},
            ),
        ],
        "answer_claims": {
            right: [entry("A tarn is a lake.", [tarn], true_answer="E")],
            wrong: [entry("A tarn is a sea.", [], [tarn], true_answer="C")],
        },
    }
    return seen, key, {"c01": label}


def test_a_sheet_has_each_text_once_and_no_system(laid_out):
    (sheet,), key, _ = laid_out
    assert sorted(sheet["chunks"].values()) == sorted(CHUNKS.values())
    assert sorted(sheet["answers"].values()) == ["A lake.", "A sea."]
    shown = json.dumps(sheet)
    assert "BM25" not in shown
    assert "Tarn#0" not in shown
    assert sorted(key["c01"]["systems"]) == ["BM25", "MiniLM"]


def test_labels_reach_the_system_that_retrieved_the_chunk(laid_out):
    results = TOOL.collect(*laid_out)
    # its claims and labels fit, chunk for chunk
    assert read_ragchecker(results.to_dict()) == results
    bm25, dense = results.results
    assert [chunk.doc_id for chunk in bm25.chunks] == ["Tarn#0", "Ice#0"]
    assert bm25.reference_in_chunks == (("Entailment", "Neutral"), ("Neutral", "Neutral"))
    assert bm25.extra["reference_in_retrieved"] == ["Entailment", "Entailment"]
    # it did not find the ice
    assert dense.extra["reference_in_retrieved"] == ["Entailment", "Neutral"]
    assert dense.response_in_chunks == (("Neutral", "Contradiction"),)
    assert claim_metrics_table(results)[
        ["precision", "recall", "claim_recall", "faithfulness", "hallucination"]
    ].to_numpy().tolist() == [[1, 0.5, 0.5, 1, 0], [0, 0, 0.5, 0, 1]]


def test_the_second_sheet_has_claims_and_no_labels(laid_out):
    seen, _, labels = laid_out
    (sheet,) = TOOL.second_sheets(seen, labels)
    assert sheet["true_claims"] == ["A tarn is a small lake.", "Ice made small lakes called tarns."]
    assert sorted(map(tuple, sheet["answer_claims"].values())) == [
        ("A tarn is a lake.",),
        ("A tarn is a sea.",),
    ]


def test_a_slip_in_the_labels_is_named(laid_out):
    seen, _, labels = laid_out
    assert TOOL.check(seen, labels) == []
    assert TOOL.check(seen, {}) == ["c01: no labels"]
    labels["c01"]["true_claims"][0]["entailed_by"] = ["K9"]
    labels["c01"]["true_claims"][1]["answers"] = {"A1": "X"}
    labels["c01"]["answer_claims"].pop("A2")
    said = " ".join(TOOL.check(seen, labels))
    for slip in (
        "no chunk 'K9'",
        "is held against ['A1']",
        "the label 'X'",
        "claims of ['A1'], not ['A1', 'A2']",
    ):
        assert slip in said
