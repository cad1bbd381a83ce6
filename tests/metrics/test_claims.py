"""RAGChecker's metrics from labels."""

import doctest
import math
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from checks import refused
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from notebook_parts import parts

from ragbench.data.ragchecker import read_ragchecker
from ragbench.errors import DataError
from ragbench.metrics import claims
from ragbench.metrics.claims import (
    CHECKS,
    COUNTS,
    GROUPS,
    IN_RETRIEVED,
    METRICS,
    claim_metrics,
    claim_metrics_table,
)
from ragbench.paths import packaged_data

ragchecker_averages = parts("20").ragchecker_averages

# Busy machines: the time one example takes says nothing about the code.
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def labelled(tables, name="q"):
    return {"id": name, **dict(zip(CHECKS, tables, strict=True))}


def slow(
    response, reference, response_chunks, reference_chunks, empty=math.nan
) -> dict[str, float]:
    """The definitions of section 3.3, one claim at a time."""
    chunks = range(max(map(len, [*response_chunks, *reference_chunks]), default=0))
    relevant = [j for j in chunks if any(row[j] for row in reference_chunks)]
    counts = dict.fromkeys(METRICS, 0)
    for correct, row in zip(response, response_chunks, strict=True):
        from_relevant = any(row[j] for j in relevant)
        counts["precision"] += correct
        counts["faithfulness"] += any(row)
        counts["self_knowledge"] += correct and not any(row)
        counts["hallucination"] += not correct and not any(row)
        counts["relevant_noise_sensitivity"] += not correct and from_relevant
        counts["irrelevant_noise_sensitivity"] += not correct and any(row) and not from_relevant
    for covered, row in zip(reference, reference_chunks, strict=True):
        counts["recall"] += covered
        counts["claim_recall"] += any(row)
        counts["context_utilization"] += covered and any(row)
    counts["context_precision"] = len(relevant)
    whole = dict.fromkeys(METRICS, len(response)) | dict.fromkeys(
        ("recall", "claim_recall"), len(reference)
    )
    whole["context_utilization"] = counts["claim_recall"]
    whole["context_precision"] = len(chunks) if reference else 0
    values = {}
    for name in METRICS:
        needs_chunks = name in GROUPS["generator"] and name != "context_utilization"
        needs_reference = name.endswith("noise_sensitivity")
        defined = (chunks or not needs_chunks) and (reference or not needs_reference)
        values[name] = counts[name] / whole[name] if defined and whole[name] else empty
    p = values["precision"]
    r = values["recall"]
    values["f1"] = empty
    if response and reference:
        values["f1"] = 2 * p * r / (p + r) if p + r else 0.0
    return values


@st.composite
def labels(draw, least=0):
    """Four sets of labels as nested lists of booleans; sizes from ``least``."""
    n, m, k = (draw(st.integers(least, 5)) for _ in range(3))
    flags = st.lists(st.booleans(), min_size=n + m + (n + m) * k, max_size=n + m + (n + m) * k)
    flat = iter(draw(flags))
    take = lambda size: [next(flat) for _ in range(size)]  # noqa: E731
    return take(n), take(m), [take(k) for _ in range(n)], [take(k) for _ in range(m)]


def same(a: dict[str, float], b: dict[str, float]) -> bool:
    return list(a) == list(b) and all(
        x == pytest.approx(b[name], nan_ok=True) for name, x in a.items()
    )


# Chunks: two relevant, one irrelevant. 13 response claims: 3 correct and grounded, 2 correct on
# their own, 1 wrong from a relevant chunk, 2 wrong from a relevant and the irrelevant one, 1 wrong
# from the irrelevant one; 4 from nowhere.
RESPONSE = [True] * 5 + [False] * 8
IN_CHUNKS = (
    [[1, 0, 0], [0, 1, 1], [0, 0, 1]]
    + [[0, 0, 0]] * 2
    + [[1, 1, 0]]
    + [[0, 1, 1]] * 2
    + [[0, 0, 1]]
    + [[0, 0, 0]] * 4
)
REFERENCE = [True, False, True, False, True]
REFERENCE_CHUNKS = [[1, 0, 0], [1, 1, 0], [0, 0, 0], [0, 1, 0], [1, 0, 0]]
EXAMPLE = (RESPONSE, REFERENCE, IN_CHUNKS, REFERENCE_CHUNKS)
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
BY_HAND = dict(zip(METRICS, NUMBERS, strict=True))


def test_all_eleven_metrics_and_the_counts_worked_by_hand():
    scores = claim_metrics(*EXAMPLE)
    row = claim_metrics_table([labelled(EXAMPLE)]).loc["q"]
    assert list(scores) == list(METRICS)
    assert scores == pytest.approx(BY_HAND)
    assert row[list(COUNTS)].tolist() == [13, 5, 3, 2, 4]
    assert {type(value) for value in scores.values()} == {float}


def test_a_claim_that_two_chunks_entail_together_moves_from_self_knowledge_to_faithfulness():
    # Two right claims: the first stands in a chunk, the second follows from both chunks; a third
    # one is wrong.
    labels = {
        "id": "x",
        "response_in_reference": [1, 1, 0],
        "reference_in_response": [1, 0],
        "response_in_chunks": [[1, 0], [0, 0], [0, 0]],
        "reference_in_chunks": [[0, 0], [0, 1]],
        "response_in_retrieved": ["Entailment", "Entailment", None],
        "reference_in_retrieved": ["Entailment", "Entailment"],
    }
    alone, together = (
        claim_metrics_table([labels], in_retrieved=way).iloc[0] for way in (False, True)
    )
    expected = {
        "claim_recall": (1 / 2, 1),
        "context_utilization": (0, 1 / 2),
        "self_knowledge": (1 / 3, 0),
        "faithfulness": (1 / 3, 2 / 3),
        "hallucination": (1 / 3, 1 / 3),
    }
    assert set(expected) == set(IN_RETRIEVED)
    for metric, (one_chunk, all_chunks) in expected.items():
        assert (alone[metric], together[metric]) == pytest.approx((one_chunk, all_chunks)), metric
    others = [metric for metric in METRICS if metric not in IN_RETRIEVED]
    assert alone[others].equals(together[others])


def test_labels_against_the_retrieved_text_are_there_for_every_claim_or_named():
    bare = {"id": "x", "response_in_reference": [1], "reference_in_response": [1]}
    bare |= {
        "response_in_chunks": [[0]],
        "reference_in_chunks": [[0]],
        "response_in_retrieved": ["Entailment", None],
    }
    with refused(DataError, "result 'x': no labels for reference_in_retrieved"):
        claim_metrics_table([bare], in_retrieved=True)
    with refused(DataError, "2 labels against the retrieved text"):
        claim_metrics_table([bare | {"reference_in_retrieved": [None]}], in_retrieved=True)


@pytest.mark.parametrize("name", ["answer_claims", "claims_1000", "claims_prompts"])
def test_minihops_right_claims_are_held_against_the_retrieved_text_and_wrong_ones_are_not(name):
    for result in read_ragchecker(
        packaged_data("minihop", "labels", "claims", f"{name}.json")
    ).results:
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


def test_example_in_the_documentation_holds():
    assert doctest.testmod(claims).failed == 0


@unhurried
@given(labels(), st.sampled_from([math.nan, 0.0, -1.0]))
def test_metrics_equal_the_definitions_with_sets(sets, empty):
    assert same(claim_metrics(*sets, empty=empty), slow(*sets, empty=empty))


@unhurried
@given(labels(least=1))
def test_the_two_partitions_of_the_response_claims_add_up_to_one(sets):
    scores = claim_metrics(*sets)
    parts = (
        "precision",
        "relevant_noise_sensitivity",
        "irrelevant_noise_sensitivity",
        "hallucination",
    )
    assert sum(scores[name] for name in parts) == pytest.approx(1)
    assert scores["faithfulness"] + scores["hallucination"] + scores[
        "self_knowledge"
    ] == pytest.approx(1)


@unhurried
@given(labels(), st.randoms(use_true_random=False))
def test_order_of_claims_and_chunks_never_matters(sets, random):
    response, reference, in_response, in_reference = sets
    k = max((len(row) for row in [*in_response, *in_reference]), default=0)
    by_response, by_reference, by_chunk = (
        random.sample(range(n), n) for n in (len(response), len(reference), k)
    )
    shuffled = (
        [response[i] for i in by_response],
        [reference[i] for i in by_reference],
        [[in_response[i][j] for j in by_chunk] for i in by_response],
        [[in_reference[i][j] for j in by_chunk] for i in by_reference],
    )
    assert same(claim_metrics(*sets), claim_metrics(*shuffled))


@unhurried
@given(labels(least=1), st.data())
def test_duplicated_chunk_changes_context_precision_only(sets, data):
    response, reference, in_response, in_reference = sets
    k = len(in_response[0])
    j = data.draw(st.integers(0, k - 1))
    before = claim_metrics(*sets)
    after = claim_metrics(
        response,
        reference,
        [[*row, row[j]] for row in in_response],
        [[*row, row[j]] for row in in_reference],
    )
    is_relevant = any(row[j] for row in in_reference)
    expected = (before["context_precision"] * k + is_relevant) / (k + 1)
    assert after == pytest.approx(before | {"context_precision": expected}, nan_ok=True)


@settings(unhurried, max_examples=30)
@given(st.lists(labels(), max_size=12))
def test_many_results_of_different_sizes_score_as_each_alone(sets):
    table = claim_metrics_table(labelled(one, f"q{i}") for i, one in enumerate(sets))
    assert table.index.tolist() == [f"q{i}" for i in range(len(sets))]
    assert table.columns.tolist() == [*METRICS, *COUNTS]
    assert table.dtypes.tolist() == [np.float64] * len(METRICS) + [np.int64] * len(COUNTS)
    for i, one in enumerate(sets):
        assert same(table.iloc[i][list(METRICS)].to_dict(), slow(*one))
        assert table.iloc[i][list(COUNTS[:2])].tolist() == [len(one[0]), len(one[1])]


def test_labels_may_be_words_numbers_arrays_or_frames():
    words = {True: "Entailment", False: "Contradiction"}
    vectors = [[words[x] for x in part] for part in EXAMPLE[:2]]
    matrices = [[[words[x] for x in row] for row in part] for part in EXAMPLE[2:]]
    expected = claim_metrics(*EXAMPLE)
    for form in (
        [*vectors, *matrices],
        [np.array(part) for part in (*vectors, *matrices)],
        [np.array(part, float) for part in EXAMPLE],
        [np.asfortranarray(part, dtype=bool) for part in EXAMPLE],
        [
            [np.array(row, bool) for row in part] if isinstance(part[0], list) else tuple(part)
            for part in EXAMPLE
        ],
        [
            pd.DataFrame(part) if isinstance(part[0], list) else pd.Series(part)
            for part in (*vectors, *matrices)
        ],
    ):
        assert claim_metrics(*form) == expected
    assert claim_metrics([False], [1], [["Neutral"]], [[1]])["hallucination"] == 1


UNDEFINED = {
    "no response claim": (
        ([], [1, 0], np.empty((0, 2)), [[1, 0], [0, 0]]),
        {"precision", "f1", *METRICS[6:]},
    ),
    "no response claim, a list": (
        ([], [1, 0], [], [[1, 0], [0, 0]]),
        {"precision", "f1", *METRICS[6:]},
    ),
    "no reference claim": (
        ([1, 0], [], [[1, 0], [0, 0]], []),
        {"recall", "f1", *METRICS[3:6], *METRICS[6:8]},
    ),
    "no chunk": (([1, 0], [1], [[], []], [[]]), set(METRICS[4:])),
    "no chunk, a list": (([1, 0], [1], [], []), set(METRICS[4:])),
    "nothing recalled": (([1, 0], [1], [[1], [1]], [[0]]), {"context_utilization"}),
    "nothing": (([], [], [], []), set(METRICS)),
}


@pytest.mark.parametrize(("sets", "undefined"), UNDEFINED.values(), ids=UNDEFINED)
def test_what_is_undefined_is_nan_and_zero_only_by_name(sets, undefined):
    scores = claim_metrics(*sets)
    assert {name for name, value in scores.items() if math.isnan(value)} == undefined
    for empty, value in ((0.0, 0.0), (0.25, 0.25)):
        expected = {name: value if name in undefined else scores[name] for name in scores}
        assert claim_metrics(*sets, empty=empty) == expected


def test_no_result_at_all_gives_an_empty_table():
    table = claim_metrics_table([])
    assert (len(table), list(table)) == (0, [*METRICS, *COUNTS])


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
    good = labelled(([True, False], [True], [[1, 0, 1], [0, 0, 0]], [[1, 0, 0]]), "q7")
    name = good.pop("id")
    for call in (
        lambda: claim_metrics(**good | change),
        lambda: claim_metrics_table([{"id": name} | good | change]),
    ):
        with pytest.raises(DataError) as caught:
            call()
        for part in said:
            assert part in str(caught.value)
    assert "result 'q7'" in str(caught.value)


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


def test_a_file_as_it_was_read_is_a_list_of_results_and_one_result_is_not():
    read = read_ragchecker({"results": [ragchecker_record()]})
    pd.testing.assert_frame_equal(claim_metrics_table(read), claim_metrics_table(read.results))
    for one in ({check: [1] for check in CHECKS}, read.results[0], "q7"):
        with refused(DataError, r"results is (dict|RagResult|str)(?s:.)*pass \[result\]"):
            claim_metrics_table(one)


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
    for result in recorded.results:
        ours = {
            claims.RAGCHECKER_NAMES[name]: value
            for name, value in table.loc[result.id, list(METRICS)].items()
        }
        assert ours == result.metrics
    assert ragchecker_averages(table) == recorded.metrics


def test_a_bad_label_against_the_retrieved_text_is_named_by_its_place():
    together = [None, "bad"]
    labels = (
        ["Entailment", "Neutral"],
        ["Entailment"],
        [["Entailment"], ["Neutral"]],
        [["Neutral"]],
    )
    with refused(DataError, r"the retrieved text\[1\]: label 'bad'"):
        claims.claim_metrics(*labels, response_in_retrieved=together)
