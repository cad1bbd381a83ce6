"""RAGChecker's files, its human-labelled pairs, RefChecker's labelled claims (notebook 20)."""

from __future__ import annotations

import copy
import gzip
import json
import math
from collections import Counter

import numpy as np
import pandas as pd
import pytest
from checks import refused
from hypothesis import given
from hypothesis import strategies as st
from notebook_parts import parts

from ragbench import papers
from ragbench.data import load_ragchecker_baselines, load_ragchecker_meta, read_ragchecker
from ragbench.data.files import read_jsonl
from ragbench.data.ragchecker import ASPECTS, CLAIM_LABELS, RetrievedText, claim_text
from ragbench.errors import DataError, NotHereError

RECORD = {
    "query_id": "q1",
    "query": "Which moon is largest?",
    "gt_answer": "Ganymede.",
    "response": "Titan, I think.",
    "retrieved_context": [
        {"doc_id": "a", "text": "Ganymede is a moon."},
        {"text": "No id."},
    ],
    "response_claims": [["Titan", "is", "largest"], "Titan is a moon."],
    "gt_answer_claims": [["Ganymede", "is", "largest"]],
    "answer2response": ["Contradiction", "Neutral"],
    "response2answer": ["Neutral"],
    "retrieved2response": [["Neutral", "Contradiction"], ["Neutral", "Entailment"]],
    "retrieved2answer": [["Entailment", "Neutral"]],
    "metrics": {"precision": 0.0, "f1": 0.25},
}


def file(*records: dict, **rest) -> dict:
    return {"results": copy.deepcopy([*records])} | rest


def test_a_check_with_an_unread_label_is_left_out_when_it_is_written():
    (row,) = read_ragchecker(file(RECORD | {"answer2response": ["Neutral", None]})).to_dict()[
        "results"
    ]
    assert RECORD.keys() - row.keys() == {"answer2response"}
    assert row["retrieved2answer"] == [["Entailment", "Neutral"]]


def test_fields_arrive_under_the_names_of_the_metrics():
    (result,) = read_ragchecker(file(RECORD)).results
    assert (result.id, result.question, result.reference, result.response) == (
        "q1",
        "Which moon is largest?",
        "Ganymede.",
        "Titan, I think.",
    )
    assert result.chunks == (
        RetrievedText(text="Ganymede is a moon.", doc_id="a"),
        RetrievedText(text="No id."),
    )
    assert result.response_claims == (("Titan", "is", "largest"), "Titan is a moon.")
    assert result.reference_claims == (("Ganymede", "is", "largest"),)
    assert result.response_in_reference == ("Contradiction", "Neutral")
    assert result.reference_in_response == ("Neutral",)
    assert result.response_in_chunks == (("Neutral", "Contradiction"), ("Neutral", "Entailment"))
    assert result.reference_in_chunks == (("Entailment", "Neutral"),)
    assert result.missing() == ()
    shown = [claim_text(claim) for claim in result.response_claims]
    assert shown == ["Titan is largest", "Titan is a moon."]


OPTIONAL = [*list(RECORD)[5:], "note"]


@given(st.lists(st.sets(st.sampled_from(OPTIONAL)), max_size=3), st.booleans())
def test_any_file_is_written_as_it_was_read(dropped, is_averaged):
    every = RECORD | {"note": None}
    data = file(
        *[
            {name: value for name, value in every.items() if name not in names} | {"query_id": i}
            for i, names in enumerate(dropped)
        ]
    )
    if is_averaged:
        data["metrics"] = {"overall": {"f1": 0.5}}
    again = read_ragchecker(data).to_dict()
    assert again == data
    assert read_ragchecker(again).to_dict() == again


def test_undefined_metric_is_null_in_the_file_and_nan_here(put):
    metrics = {"precision": None, "recall": 1}
    results = read_ragchecker(file(RECORD | {"metrics": metrics}))
    assert math.isnan(results.results[0].metrics["precision"])
    path = put("results.json", results.to_dict())
    assert json.loads(path.read_text())["results"][0]["metrics"] == metrics
    assert math.isnan(read_ragchecker(path).results[0].metrics["precision"])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"gt_answer": 5}, ["'gt_answer' is 5"]),
        (
            {"retrieved_context": [{"doc_id": "a"}]},
            ["no field 'retrieved_context.0.text' (it has 'doc_id')"],
        ),
        (
            {"response_claims": ["ok", ["Titan", "is"]]},
            ["response_claims.1", "['Titan', 'is']"],
        ),
        (
            {"answer2response": ["Neutral", "entailment"]},
            ["'answer2response.1' is 'entailment'", *CLAIM_LABELS],
        ),
        (
            {"answer2response": ["Neutral"]},
            ["answer2response has 1", "response_claims has 2", "do not pad"],
        ),
        ({"response2answer": []}, ["response2answer has 0", "gt_answer_claims has 1"]),
        (
            {"retrieved2response": [["Neutral", "Neutral"]]},
            ["retrieved2response has 1", "answer2response has 2"],
        ),
        (
            {"retrieved2response": [["Neutral"], ["Neutral"]]},
            ["not 2 labels in each row"],
        ),
        ({"metrics": {"f1": "x"}}, ["'metrics.f1' is 'x'", "valid number"]),
    ],
)
def test_bad_field_is_named_with_the_id_of_its_result(change, said):
    with pytest.raises(DataError) as caught:
        read_ragchecker(file(RECORD | change))
    for part in ("results[0] (id 'q1')", *said):
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ([RECORD], "here: 'the record' is "),
        (
            {"data": [RECORD]},
            (
                r"here: no field 'results' \(it has 'data'\)(.|\n)*do: write \{\"results\": "
                r"\[\.\.\.\]\}"
            ),
        ),
        ({"results": RECORD}, "here: 'results' is {.*\n  expected: Input should be a valid list"),
    ],
)
def test_foreign_json_is_told_what_was_expected(data, said):
    with refused(DataError, said):
        read_ragchecker(data, "here")


@pytest.mark.parametrize("matrix", [[], [[], []]])
def test_result_without_retrieved_texts_may_hold_a_row_per_claim_or_none(matrix):
    bare = RECORD | {
        "retrieved_context": [],
        "retrieved2response": matrix,
        "retrieved2answer": [[]],
    }
    assert read_ragchecker(file(bare)).to_dict()["results"][0] == bare


@pytest.mark.data
@pytest.mark.parametrize("name", ["checking_inputs.json", "checking_outputs.json"])
def test_recorded_files_come_out_as_they_went_in(data_mirror, put, name):
    original = data_mirror / "ragchecker" / "examples" / name
    results = read_ragchecker(original)
    written = put(name, results.to_dict())
    assert json.loads(written.read_text()) == json.loads(original.read_text())
    assert read_ragchecker(written) == results
    found = Counter(label for r in results.results for label in r.response_in_reference or ())
    expected = {"Entailment": 12, "Neutral": 3, "Contradiction": 1} if "outputs" in name else {}
    assert found == expected


def human(instance: int, annotator: int, **labels) -> dict:
    sides = {
        f"model{i}": {"model_name": f"m{i}", "response": f"r{instance}{i}", "critiques": "c"}
        for i in (1, 2)
    }
    given = {f"{aspect}_label": annotator - 1 for aspect in ASPECTS} | labels
    shared = {"dataset": "kiwi", "query_id": "7", "query": "why?", "gt_answer": "so"}
    return {"instance_id": instance} | shared | sides | given


def scored(instance: int, one: float, two: float) -> dict:
    row = human(instance, 0)
    names = [f"{aspect}_label" for aspect in ASPECTS]
    row["model1"]["ragchecker"] = dict.fromkeys(names, one)
    row["model2"]["ragchecker"] = dict.fromkeys(names, two)
    return row


@pytest.fixture
def meta_folder(tmp_path, put):
    """Two pairs, each labelled by two annotators; a function writes their scores, changed."""
    rows = [
        human(i, a, overall_label=label)
        for i, a, label in ((0, 0, 2), (0, 1, -1), (1, 0, 0), (1, 1, 1))
    ]
    put("human_labeled_data.json.gz", gzip.compress(json.dumps(rows).encode()))

    def write(change=lambda rows: None):
        scores = [scored(1, 0.25, 1), scored(0, 0, 0.5)]
        change(scores)
        put("baseline_ragchecker.json", scores)
        return tmp_path

    return write


def test_pairs_carry_both_annotators_and_the_scores_of_their_own_responses(meta_folder):
    meta = load_ragchecker_meta(meta_folder()).set_index("id")
    assert meta.index.tolist() == ["0", "1"]
    assert meta["overall"].tolist() == [[2, -1], [0, 1]]
    assert meta["correctness"].tolist() == [[-1, 0], [-1, 0]]
    assert meta["recorded completeness"].tolist() == [[0, 0.5], [0.25, 1]]
    shared = {"domain": "kiwi", "query_id": "7", "question": "why?", "reference": "so"}
    expected = shared | {"models": ("m1", "m2"), "responses": ("r11", "r12")}
    assert meta.loc["1", [*expected]].to_dict() == expected


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: rows.pop(0),
        lambda rows: rows[0]["model1"].update(response="x"),
        lambda rows: rows[0]["model1"].pop("ragchecker"),
    ],
)
def test_a_response_without_recorded_scores_has_nan(meta_folder, change):
    meta = load_ragchecker_meta(meta_folder(change)).set_index("id")
    assert math.isnan(meta.loc["1", "recorded overall"][0])
    assert meta.loc["0", "recorded overall"] == [0, 0.5]


def baseline(name: str, *pairs: tuple, metric: str) -> str:
    """A baseline's file: no field but its scores; NaN is the bare word, as the authors write it."""
    rows = [{f"model{i}": {name: {metric: x}} for i, x in enumerate(p, 1)} for p in pairs]
    return json.dumps(rows)


def test_baselines_are_read_by_position_and_nan_stays(put, tmp_path, monkeypatch):
    one = baseline("ares", (0.5, 1), (float("nan"), 0), metric="Answer Relevance Scores")
    assert "NaN" in one
    both = json.loads(one)
    for row in both:
        for side in row.values():
            side["ares"]["Answer Faithfulness Scores"] = 0.25
    put("baseline_ares_llama3.json", both)
    found = load_ragchecker_baselines(tmp_path)
    assert list(found) == ["ARES | Answer Relevance", "ARES | Answer Faithfulness"]
    expected = [[0.5, 1], [math.nan, 0]]
    assert np.array_equal(found["ARES | Answer Relevance"], expected, equal_nan=True)
    assert load_ragchecker_baselines(tmp_path, judge=None) == {}
    put("baseline_ares.json", both)
    assert list(load_ragchecker_baselines(tmp_path, judge=None)) == list(found)
    monkeypatch.delenv("RAGBENCH_DATA", raising=False)
    with refused(NotHereError, "RAGChecker's baselines is not on this machine"):
        load_ragchecker_baselines()


IN_THE_FILES = {  # in the order of the rows of Table 5
    "crud": ["bleu-avg", "rouge-L", "bertScore", "QA_avg_F1", "QA_recall"],
    "trulens": ["groundedness", "answer_relevance"],
    "ares": ["Answer Relevance Scores", "Answer Faithfulness Scores"],
    "ragas": ["faithfulness", "answer_correctness", "answer_similarity", "answer_relevancy"],
}


def test_each_row_of_table_5_has_its_metric_in_the_files(put, tmp_path):
    for name, metrics in IN_THE_FILES.items():
        scores = {metric: place / 10 for place, metric in enumerate(metrics)}
        put(f"baseline_{name}_llama3.json", [{"model1": {name: scores}, "model2": {name: scores}}])
    found = {row: scores[0, 0] for row, scores in load_ragchecker_baselines(tmp_path).items()}
    printed = papers.published("ragchecker", "Table 5")["row"].unique()
    assert list(found) == [row for row in printed if not row.startswith(("RAGChecker", "Human"))]
    assert [*found.values()] == [0, 0.1, 0.2, 0, 0.1, 0, 0.1, 0, 0.1, 0.2, 0.3, 0.3, 0.4]


def test_a_baseline_without_a_metric_is_named_with_its_record(put, tmp_path):
    put("baseline_ragas_llama3.json", baseline("ragas", (1, 0), metric="faithfulness"))
    with refused(DataError, "record 1 has another shape: KeyError 'answer_correctness'"):
        load_ragchecker_baselines(tmp_path)


@pytest.mark.data
def test_recorded_meta_evaluation_has_280_pairs_in_ten_domains(data_mirror):
    meta = load_ragchecker_meta(data_mirror / "ragchecker" / "meta_evaluation")
    assert set(Counter(meta["domain"]).values()) == {28}
    assert np.stack(meta["overall"]).shape == np.stack(meta["recorded overall"]).shape == (280, 2)
    assert {int(x) for x in np.unique(np.stack(meta["overall"]))} == {-2, -1, 0, 1, 2}
    assert meta["models"].explode().nunique() == 8
    sides = meta[["responses", *(f"recorded {aspect}" for aspect in ASPECTS)]]
    sides = sides.explode(list(sides))
    empty = sides[sides["responses"] == ""]
    # an empty response has precision 0 and F1 0 in the recorded scores, but not always recall 0
    assert len(empty) == 6
    assert not empty[["recorded correctness", "recorded overall"]].any(axis=None)
    assert (empty["recorded completeness"] > 0).sum() == 4


@pytest.mark.data
def test_recorded_claim_labels_have_the_published_counts(data_mirror):
    path = data_mirror / "refchecker" / "human_annotations_v1.jsonl.gz"
    rows = pd.DataFrame([row for _, row in read_jsonl(path)])
    assert rows["setting"].value_counts().to_dict() == dict.fromkeys(parts("20").SETS, 700)
    assert (rows["claims"].map(len) == 0).sum() == 195
    labels = rows.explode("claims").dropna(subset="claims")
    labels["label"] = labels["claims"].str["human_label"]
    published = {"Entailment": 7176, "Neutral": 2622, "Contradiction": 935}
    assert labels["label"].value_counts().to_dict() == published
    zero = labels["label"][labels["setting"] == "zero_context"]
    assert zero.value_counts().to_dict() == {
        "Neutral": 1818, "Entailment": 1047, "Contradiction": 454,
    }  # fmt: skip
