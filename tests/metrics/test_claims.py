"""RAGChecker's metrics from labels."""

import math
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from checks import refused
from hypothesis import given, settings
from hypothesis import strategies as st
from notebook_parts import parts

from ragbench.data.ragchecker import RagResult, read_ragchecker
from ragbench.errors import DataError
from ragbench.metrics import claims
from ragbench.metrics.claims import (
    CHECKS,
    CLAIM_METRICS,
    COUNTS,
    IN_RETRIEVED,
    WRONG_CLAIMS,
    claim_metrics,
    claim_metrics_table,
)
from ragbench.metrics.table import METRICS
from ragbench.paths import packaged_data

ragchecker_averages = parts("20").ragchecker_averages


def labelled(tables, name="q"):
    return {"id": name, **dict(zip(CHECKS, tables, strict=True))}


def flags(text):
    """Labels of claims (rows) by chunks (columns), written as "10 01"."""
    return [[int(flag) for flag in row] for row in text.split()]


def slow(
    response, reference, response_chunks, reference_chunks, empty=math.nan
) -> dict[str, float]:
    """The definitions of section 3.3, one claim at a time."""
    chunks = range(max(map(len, [*response_chunks, *reference_chunks]), default=0))
    relevant = [j for j in chunks if any(row[j] for row in reference_chunks)]
    entailed = [any(row) for row in response_chunks]
    from_relevant = [any(row[j] for j in relevant) for row in response_chunks]
    recalled = [any(row) for row in reference_chunks]

    def share(values, defined=True):
        values = list(values)
        return sum(values) / len(values) if values and defined else empty

    def response_claims(is_counted, defined=True):
        labels = zip(response, entailed, from_relevant, strict=True)
        return share((is_counted(*claim) for claim in labels), chunks and defined)

    p = share(response)
    r = share(reference)
    f1 = empty
    split = dict.fromkeys(WRONG_CLAIMS, math.nan)  # booleans do not tell
    if response and reference:
        f1 = 2 * p * r / (p + r) if p + r else 0.0
    return {
        "precision": p,
        "recall": r,
        "f1": f1,
        "claim_recall": share(recalled),
        "context_precision": share((j in relevant for j in chunks), reference),
        "context_utilization": share(
            covered for covered, found in zip(reference, recalled, strict=True) if found
        ),
        "relevant_noise_sensitivity": response_claims(
            lambda right, entailed, relevant: not right and relevant, reference
        ),
        "irrelevant_noise_sensitivity": response_claims(
            lambda right, entailed, relevant: not right and entailed and not relevant, reference
        ),
        "hallucination": response_claims(lambda right, entailed, _: not right and not entailed),
        "self_knowledge": response_claims(lambda right, entailed, _: right and not entailed),
        "faithfulness": response_claims(lambda right, entailed, _: entailed),
        **(split if response else dict.fromkeys(WRONG_CLAIMS, empty)),
    }


@st.composite
def labels(draw, least=0):
    """Four sets of labels as nested lists of booleans; sizes from ``least``."""
    n, m, k = (draw(st.integers(least, 5)) for _ in range(3))

    def booleans(*shape):
        *outer, size = shape
        values = st.lists(st.booleans(), min_size=size, max_size=size)
        for size in outer:
            values = st.lists(values, min_size=size, max_size=size)
        return draw(values)

    return booleans(n), booleans(m), booleans(n, k), booleans(m, k)


def eleven(sets, empty=math.nan) -> dict[str, float]:
    """RAGChecker's, which need not tell contradicted claims."""
    scores = claim_metrics(*sets, empty=empty)
    return {name: scores[name] for name in CLAIM_METRICS}


def same(a: dict[str, float], b: dict[str, float]) -> bool:
    return list(a) == list(b) and a == pytest.approx(b, nan_ok=True)


# Chunks: two relevant, one irrelevant. 13 response claims: 3 correct and grounded, 2 correct on
# their own, 1 wrong from a relevant chunk, 2 wrong from a relevant and the irrelevant one, 1 wrong
# from the irrelevant one; 4 from nowhere.
RESPONSE = [True] * 5 + [False] * 8
EXAMPLE = (
    RESPONSE,
    [True, False, True, False, True],
    flags("100 011 001 000 000 110 011 011 001 000 000 000 000"),
    flags("100 110 000 010 100"),
)
NUMBERS = (
    5 / 13,
    3 / 5,
    2 / (13 / 5 + 5 / 3),
    4 / 5,
    2 / 3,
    2 / 4,
    3 / 13,
    1 / 13,
    4 / 13,
    2 / 13,
    7 / 13,
)
BY_HAND = dict(zip(CLAIM_METRICS, NUMBERS, strict=True))


def test_all_eleven_metrics_and_the_counts_worked_by_hand():
    scores = claim_metrics(*EXAMPLE)
    row = claim_metrics_table([labelled(EXAMPLE)]).loc["q"]
    assert list(scores) == [*CLAIM_METRICS, *WRONG_CLAIMS]
    assert scores == pytest.approx(BY_HAND | dict.fromkeys(WRONG_CLAIMS, math.nan), nan_ok=True)
    assert row[list(COUNTS)].tolist() == [13, 5, 3, 2, 4]
    assert {type(value) for value in scores.values()} == {float}


def test_a_claim_that_two_chunks_entail_together_moves_from_self_knowledge_to_faithfulness():
    # Two right claims: the first stands in a chunk, the second follows from both chunks; a third
    # one is wrong.
    result = labelled(([1, 1, 0], [1, 0], flags("10 00 00"), flags("00 01")), "x")
    result["response_in_retrieved"] = ["Entailment", "Entailment", None]
    result["reference_in_retrieved"] = ["Entailment", "Entailment"]
    alone, together = (
        claim_metrics_table([result], in_retrieved=way).loc["x"] for way in (False, True)
    )
    by_one_chunk = {
        "claim_recall": 1 / 2,
        "context_utilization": 0,
        "self_knowledge": 1 / 3,
        "faithfulness": 1 / 3,
        "hallucination": 1 / 3,
    }
    by_all_chunks = {
        "claim_recall": 1,
        "context_utilization": 1 / 2,
        "self_knowledge": 0,
        "faithfulness": 2 / 3,
        "hallucination": 1 / 3,
    }
    moved = list(IN_RETRIEVED)
    assert alone[moved].to_dict() == pytest.approx(by_one_chunk)
    assert together[moved].to_dict() == pytest.approx(by_all_chunks)
    assert alone.drop(moved).equals(together.drop(moved))


def test_labels_against_the_retrieved_text_are_there_for_every_claim_or_named():
    bare = labelled(([1], [1], [[0]], [[0]]), "x")
    bare["response_in_retrieved"] = ["Entailment", None]
    with refused(DataError, "result 'x': no labels for reference_in_retrieved"):
        claim_metrics_table([bare], in_retrieved=True)
    with refused(DataError, "2 labels against the retrieved text"):
        claim_metrics_table([bare | {"reference_in_retrieved": [None]}], in_retrieved=True)


@pytest.mark.parametrize("name", ["answer_claims", "claims_1000", "claims_prompts"])
def test_minihops_right_claims_are_held_against_the_retrieved_text_and_wrong_ones_are_not(name):
    path = packaged_data("minihop", "labels", "claims", f"{name}.json")
    for result in read_ragchecker(path).results:
        labels = zip(
            result.response_in_reference,
            result.response_in_chunks,
            result.extra["response_in_retrieved"],
            strict=True,
        )
        for right, by_chunk, together in labels:
            if "Entailment" in by_chunk:
                assert together == "Entailment"
            else:
                assert (together is None) == (right != "Entailment")


@given(labels(), st.sampled_from([math.nan, 0.0, -1.0]))
def test_metrics_equal_the_definitions_with_sets(sets, empty):
    assert same(claim_metrics(*sets, empty=empty), slow(*sets, empty=empty))


@settings(max_examples=30)
@given(st.lists(labels(), max_size=12))
def test_many_results_of_different_sizes_score_as_each_alone(sets):
    table = claim_metrics_table(labelled(one, f"q{i}") for i, one in enumerate(sets))
    assert table.index.tolist() == [f"q{i}" for i in range(len(sets))]
    shares = [*CLAIM_METRICS, *WRONG_CLAIMS]
    assert table.columns.tolist() == [*shares, *COUNTS]
    assert table.dtypes.tolist() == [np.float64] * len(shares) + [np.int64] * len(COUNTS)
    for (_, row), one in zip(table.iterrows(), sets, strict=True):
        assert same(row[shares].to_dict(), slow(*one))
        assert row[list(COUNTS[:2])].tolist() == [len(one[0]), len(one[1])]


def test_labels_may_be_words_numbers_arrays_or_frames():
    booleans = [np.array(part, bool) for part in EXAMPLE]
    words = [np.where(part, "Entailment", "Contradiction") for part in booleans]
    for form in (
        [part.tolist() for part in words],
        words,
        [part.astype(float) for part in booleans],
        [np.asfortranarray(part) for part in booleans],
        [tuple(part) for part in booleans],
        [pd.DataFrame(part) if part.ndim == 2 else pd.Series(part) for part in words],
    ):
        assert eleven(form) == eleven(EXAMPLE)
    assert claim_metrics([False], [1], [["Neutral"]], [[1]])["hallucination"] == 1


UNDEFINED = {
    "no response claim": (
        ([], [1, 0], np.empty((0, 2)), [[1, 0], [0, 0]]),
        {"precision", "f1", *CLAIM_METRICS[6:]},
    ),
    "no response claim, a list": (
        ([], [1, 0], [], [[1, 0], [0, 0]]),
        {"precision", "f1", *CLAIM_METRICS[6:]},
    ),
    "no reference claim": (
        ([1, 0], [], [[1, 0], [0, 0]], []),
        {"recall", "f1", *CLAIM_METRICS[3:8]},
    ),
    "no chunk": (([1, 0], [1], [[], []], [[]]), set(CLAIM_METRICS[4:])),
    "no chunk, a list": (([1, 0], [1], [], []), set(CLAIM_METRICS[4:])),
    "nothing recalled": (([1, 0], [1], [[1], [1]], [[0]]), {"context_utilization"}),
    "nothing": (([], [], [], []), set(CLAIM_METRICS)),
}


@pytest.mark.parametrize(("sets", "undefined"), UNDEFINED.values(), ids=UNDEFINED)
def test_what_is_undefined_is_nan_and_zero_only_by_name(sets, undefined):
    scores = eleven(sets)
    assert {name for name, value in scores.items() if math.isnan(value)} == undefined
    for empty in (0.0, 0.25):
        assert eleven(sets, empty) == scores | dict.fromkeys(undefined, empty)


def test_no_result_at_all_gives_an_empty_table():
    table = claim_metrics_table([])
    assert (len(table), list(table)) == (0, [*CLAIM_METRICS, *WRONG_CLAIMS, *COUNTS])


def test_averages_leave_out_what_is_undefined():
    results = [labelled(([1, 0], [1], [[1], [0]], [[1]])), labelled(([], [0], [], [[1]]), "r")]
    overall = ragchecker_averages(claim_metrics_table(results))["overall"]
    assert (overall["precision"], overall["recall"]) == (50, 50)
    published = ragchecker_averages(claim_metrics_table(results, empty=0.0))
    assert (published["overall"]["precision"], published["generator"]["faithfulness"]) == (25, 25)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"response_in_reference": [True, "Supported"]},
            ["response_in_reference[1]", "'Supported'"],
        ),
        ({"response_in_reference": [True, None]}, ["response_in_reference[1]", "None"]),
        ({"response_in_reference": [True, [True]]}, ["response_in_reference[1]"]),
        (
            {"response_in_reference": np.ones((2, 1))},
            ["response_in_reference", "(2, 1)", "a label per claim"],
        ),
        ({"response_in_reference": "Entailment"}, ["response_in_reference", "a list"]),
        ({"reference_in_response": np.array([np.nan])}, ["reference_in_response[0]", "nan"]),
        (
            {"response_in_chunks": [[1, 0, 1], [1, 0, "maybe"]]},
            ["response_in_chunks[1, 2]", "'maybe'"],
        ),
        ({"response_in_chunks": [[1, 0, 1], [1, 0]]}, ["response_in_chunks", "a row per claim"]),
        ({"response_in_chunks": [1, 0]}, ["response_in_chunks", "(2,)", "a column per chunk"]),
        (
            {"response_in_chunks": np.ones((3, 2))},
            ["response_in_chunks", "(3, 2)", "(2, 3)", "transpose"],
        ),
        (
            {"reference_in_chunks": [[1, 0]]},
            ["reference_in_chunks has shape (1, 2)", "(1, 3)"],
        ),
        ({"reference_in_chunks": []}, ["reference_in_chunks", "(0, 0)", "(1, 3)"]),
    ],
)
def test_bad_labels_are_named_with_field_and_place(change, said):
    result = labelled(([True, False], [True], flags("101 000"), flags("100")), "q7") | change
    with pytest.raises(DataError) as in_table:
        claim_metrics_table([result])
    del result["id"]
    with pytest.raises(DataError) as alone:
        claim_metrics(**result)
    for part in said:
        assert part in str(alone.value)
        assert part in str(in_table.value)
    assert "result 'q7'" in str(in_table.value)


def test_missing_labels_are_named_with_the_fields_that_nobody_knows():
    good = labelled(([1], [1], [[1]], [[1]]), "q7")
    part = SimpleNamespace(id="b", response_in_reference=[1], reference_in_response=None)
    lacking = "'b': no labels for reference_in_response, response_in_chunks, reference_i"
    with refused(DataError, lacking):
        claim_metrics_table([good, part])
    with refused(DataError, r"result '1': no labels"):
        claim_metrics_table([good, {}])
    good["response_in_refrence"] = good.pop("response_in_reference")
    with refused(DataError, r"'q7': no labels for response_in_reference.*_refrence"):
        claim_metrics_table([good])
    record = ragchecker_record()
    record["answer2respones"] = record.pop("answer2response")
    with refused(DataError, r"'q': no labels for response_in_reference.*answer2resp"):
        claim_metrics_table(read_ragchecker({"results": [record]}))


def test_a_file_as_it_was_read_is_a_list_of_results():
    read = read_ragchecker({"results": [ragchecker_record()]})
    pd.testing.assert_frame_equal(claim_metrics_table(read), claim_metrics_table(read.results))


def ragchecker_record(**fields) -> dict:
    return {
        "query_id": "q", "query": "", "gt_answer": "", "response": "",
        "retrieved_context": [{"doc_id": "d", "text": ""}],
        "answer2response": ["Entailment", "Contradiction"], "response2answer": ["Neutral"],
        "retrieved2response": [["Neutral"], ["Entailment"]], "retrieved2answer": [["Entailment"]],
    } | fields  # fmt: skip


def test_averages_have_ragcheckers_own_names_and_percentages():
    second = ragchecker_record(query_id="r", answer2response=["Entailment"] * 2)
    results = read_ragchecker({"results": [ragchecker_record(), second]})
    averages = ragchecker_averages(claim_metrics_table(results))
    assert averages["overall"] == {"precision": 75.0, "recall": 0.0, "f1": 0.0}
    assert averages["generator"]["noise_sensitivity_in_relevant"] == 25.0
    assert list(averages["retriever"]) == ["claim_recall", "context_precision"]
    assert sum(map(len, averages.values())) == 11


@pytest.mark.data
def test_recorded_example_is_reproduced_per_question_and_overall(data_mirror):
    recorded = read_ragchecker(data_mirror / "ragchecker" / "examples" / "checking_outputs.json")
    table = claim_metrics_table(recorded.results)
    assert len(table) == 2
    ours = table[list(CLAIM_METRICS)].rename(columns=claims.RAGCHECKER_NAMES)
    assert ours.to_dict("index") == {result.id: result.metrics for result in recorded.results}
    assert ragchecker_averages(table) == recorded.metrics


def test_a_bad_label_against_the_retrieved_text_is_named_by_its_place():
    labels = ([1, 0], [1], [[1], [0]], [[0]])
    with refused(DataError, r"the retrieved text\[1\]: label 'bad'"):
        claim_metrics(*labels, response_in_retrieved=[None, "bad"])


def test_wrong_claims_are_contradicted_or_not_in_the_true_answer_by_hand():
    yes, no, against = "Entailment", "Neutral", "Contradiction"
    labels = {"a": [yes, no, no, against], "b": [against], "c": [yes, yes], "d": []}
    results = [
        {
            "id": name,
            "response_in_reference": claims,
            "reference_in_response": [yes],
            "response_in_chunks": [[no]] * len(claims),
            "reference_in_chunks": [[yes]],
        }
        for name, claims in labels.items()
    ]
    table = claim_metrics_table(results)
    split = table[["contradicted", "not_in_reference"]]
    assert split[:3].to_numpy().tolist() == [[0.25, 0.5], [1, 0], [0, 0]]
    assert split.loc["d"].isna().all()
    assert split.sum(axis=1)[:3].tolist() == (1 - table["precision"])[:3].tolist()
    assert split.mean().tolist() == [1.25 / 3, 0.5 / 3]
    assert split.mean().sum() == pytest.approx(1 - table["precision"].mean())
    claims = table["n_response_claims"]
    pooled = split.mul(claims, axis=0).sum() / claims.sum()
    assert pooled.tolist() == [2 / 7, 2 / 7]
    assert 1 - pooled.sum() == pytest.approx((table["precision"] * claims).sum() / claims.sum())
    # yes or no does not tell them apart
    told = [{**result, "response_in_reference": [True] * 4} for result in results[:1]]
    assert claim_metrics_table(told)[[*split]].isna().all(axis=None)
    cell = RagResult(question="q", reference="r", response="x", **results[0])
    assert METRICS["wrong_claims"].function(cell)["contradicted"] == 0.25
