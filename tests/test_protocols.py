"""CRAG, RGB and eRAG scores against hand-worked cases and scikit-learn."""

import numpy as np
import pytest
from checks import refusals
from hypothesis import given, settings
from hypothesis import strategies as st

from ragbench.errors import DataError
from ragbench.metrics.protocols import (
    contains_answer,
    crag_score,
    erag_scores,
    rgb_accuracy,
    rgb_error_rates,
    rgb_rejection_rate,
)


def test_crag_scales_by_hand():
    # (1 + 1 + 0.5 + 0 - 1) / 5; on the other scale silence beats a wrong answer: (1 + 0 - 1 - 1) / 4
    assert crag_score(["perfect", "perfect", "acceptable", "missing", "incorrect"]) == 0.3
    assert crag_score(["correct", "missing", "incorrect", "incorrect"], "auto") == -0.25


def test_crag_macro_average_is_the_mean_of_group_means():
    labels, groups = ["correct", "correct", "incorrect", "missing"], ["simple", "simple", "simple", "set"]
    assert crag_score(labels, "auto", groups=groups) == pytest.approx((1 / 3 + 0) / 2)
    assert np.isnan(crag_score([]))


@pytest.mark.parametrize(
    ("prediction", "answers", "expected"),
    [
        ("It was PARIS in 2022.", ["paris"], True),
        ("It was Paris.", ["paris", "2022"], False),
        ("January 2, 2022 in Paris", [["Jan 2 2022", "january 2, 2022"], "Paris"], True),
        ("January 2 in Paris", [["Jan 2 2022", "January 2, 2022"], "Paris"], False),
        ("在巴黎", ["巴黎"], True),
    ],
)
def test_rgb_exact_match_needs_every_answer_in_one_of_its_forms(prediction, answers, expected):
    assert contains_answer(prediction, answers) is expected


def test_rgb_accuracy_by_noise_ratio_and_rejection_rate_by_hand():
    correct = [True, True, False, True, False, False]
    ratios = [0.8, 0.0, 0.0, 0.0, 0.8, 0.8]
    assert rgb_accuracy(correct) == 0.5
    assert list(rgb_accuracy(correct, ratios).items()) == [(0.0, pytest.approx(2 / 3)), (0.8, pytest.approx(1 / 3))]
    assert rgb_rejection_rate([1, 0, 0, 1, 0]) == 0.4
    assert np.isnan([rgb_accuracy([]), rgb_rejection_rate([])]).all()


def test_rgb_correction_is_a_share_of_those_that_detect_or_as_the_thesis_words_it_of_all_answers():
    # Four of ten detect, three of those are right; two more are right without noticing.
    detected = [1] * 4 + [0] * 6
    correct = [1, 1, 1, 0, 1, 1, 0, 0, 0, 0]
    assert rgb_error_rates(detected, correct) == {"detection": 0.4, "correction": 0.75}
    assert rgb_error_rates(detected, correct, "all") == {"detection": 0.4, "correction": 0.5}
    assert rgb_error_rates([0, 0], [1, 0], "all") == {"detection": 0, "correction": 0.5}
    assert np.isnan(rgb_error_rates([0, 0], [1, 0])["correction"])


def test_erag_by_hand():
    got = erag_scores([0, 1, 0.5], pool_scores=[0, 1, 0.5, 1, 0])
    assert got["precision"] == 0.5
    assert got["hit"] == 1
    assert got["recall"] == pytest.approx(1.5 / 2.5)
    assert got["f1"] == pytest.approx(2 * 0.5 * 0.6 / 1.1)
    assert got["mrr"] == 0.5
    dcg = 1 / np.log2(3) + 0.5 / np.log2(4)
    assert got["ndcg"] == pytest.approx(dcg / (1 + 1 / np.log2(3) + 0.5 / np.log2(4)))
    assert erag_scores([0.2, 0.6], relevant=0.5)["mrr"] == 0.5


def test_erag_undefined_values_are_nan():
    assert all(np.isnan(v) for v in erag_scores([]).values())
    nothing = erag_scores([0, 0], pool_scores=[0, 0, 0])
    assert (nothing["precision"], nothing["hit"], nothing["mrr"]) == (0, 0, 0)
    assert np.isnan([nothing["recall"], nothing["ndcg"]]).all()
    assert np.isnan(erag_scores([1.0])["recall"])
    assert erag_scores([0, 0], pool_scores=[0, 0, 1])["f1"] == 0


@settings(deadline=None)
@given(st.lists(st.floats(0, 1), min_size=2, max_size=8).filter(lambda s: sum(s) > 0.01))
def test_erag_ndcg_equals_scikit_learn_and_is_best_for_the_sorted_list(scores):
    from sklearn.metrics import ndcg_score

    ranks = -np.arange(len(scores))[None, :]
    assert erag_scores(scores)["ndcg"] == pytest.approx(ndcg_score([scores], ranks))
    assert erag_scores(sorted(scores, reverse=True))["ndcg"] == pytest.approx(1)


test_bad_input_says_what_was_wrong = refusals(
    (lambda: crag_score(["right"]), "acceptable, incorrect, missing, perfect"),
    (lambda: crag_score(["acceptable"], "auto"), "correct, incorrect, missing"),
    (lambda: crag_score(["missing"], "robot"), "auto, human"),
    (lambda: crag_score(["missing"], groups=["a", "b"]), DataError, "labels 1, groups 2"),
    (lambda: contains_answer("x", "x"), r"write \[answer\]"),
    (lambda: contains_answer("x", []), "at least one answer"),
    (lambda: rgb_accuracy([0.5]), DataError, "not booleans"),
    (lambda: rgb_accuracy([True], [0.1, 0.2]), DataError, "correct 1, noise_ratio 2"),
    (lambda: rgb_accuracy([True], [80]), DataError, r"outside \[0, 1\]"),
    (lambda: rgb_error_rates([1], [1, 0]), DataError, "detected 1, correct 2"),
    (lambda: rgb_error_rates([1], [1], "some"), "all, detected"),
    (lambda: erag_scores([1.2]), DataError, r"outside \[0, 1\]"),
    (lambda: erag_scores([float("nan")]), DataError, "NaN"),
    (lambda: erag_scores([1, 1], pool_scores=[1]), DataError, "a pool of 1 documents"),
)
