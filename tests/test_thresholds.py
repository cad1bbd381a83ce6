"""Thresholds h and k (thesis §3.3) against brute force, the printed equations and the published optimiser."""

import math

import numpy as np
import pytest
from checks import refusals
from hypothesis import given, settings
from hypothesis import strategies as st

from ragbench.errors import DataError
from ragbench.metrics.thresholds import (
    _group_probabilities,
    best_threshold,
    calibrate,
    fit_thresholds,
    likelihood_h,
    likelihood_k,
    region_shares,
)
from ragbench.stats import brier_score, brier_terms, paired_bootstrap_difference, reliability_curve

NAN = float("nan")


def made_points(n_questions: int, seed: int = 0, h: float = 0.1, k: float = 0.67) -> tuple[np.ndarray, ...]:
    """Scores of five systems per question, and grades that mostly follow h and k."""
    rng = np.random.default_rng(seed)
    question = np.repeat(np.arange(n_questions), 5)
    scores = np.clip(rng.beta(0.8, 0.8, n_questions)[question] + rng.normal(0, 0.08, question.size), 0, 1).round(3)
    grades = np.where(scores > k, 5, np.where(scores < h, 1, rng.integers(2, 5, scores.size)))
    return scores, np.where(rng.random(scores.size) < 0.15, rng.integers(1, 6, scores.size), grades), question


def smooth_points(n_questions: int) -> tuple[np.ndarray, ...]:
    """As above, with grade groups drawn from probabilities that change smoothly with the score."""
    rng = np.random.default_rng(0)
    question = np.repeat(np.arange(n_questions), 5)
    scores = rng.random(question.size)
    odds = np.exp(np.stack([0 * scores, 8 * scores - 1, 18 * scores - 8], axis=1))
    group = (rng.random(question.size)[:, None] > np.cumsum(odds / odds.sum(1, keepdims=True), axis=1)).sum(1)
    return scores, np.array([1, 3, 5])[group], question


def agreement(scores, positive, side, threshold) -> float:
    """The definition, point by point."""
    predicted = [s > threshold if side == "above" else s < threshold for s in scores]
    return sum(p == bool(q) for p, q in zip(predicted, positive, strict=True)) / len(scores)


# --- the sweep --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scores", "positive", "side", "low", "high", "value", "agrees", "plateaus"),
    [
        ([0.1, 0.2, 0.6, 0.9], [0, 0, 1, 1], "above", 0.2, 0.6, 0.4, 1, 1),
        ([0.0, 0.1, 0.3, 0.9], [1, 1, 0, 0], "below", 0.1, 0.3, 0.2, 1, 1),
        # 0.4 holds a hit and a miss: moving past it changes nothing.
        ([0.1, 0.4, 0.4, 0.8], [0, 1, 0, 1], "above", 0.1, 0.8, 0.45, 3 / 4, 1),
        # The plateau reaches to the end of the unit interval where the labels run against the score.
        ([0.2, 0.3, 0.6], [1, 0, 0], "above", 0.6, 1.0, 0.8, 2 / 3, 1),
        ([0.2, 0.3, 0.6], [1, 1, 0], "above", 0.0, 0.2, 0.1, 2 / 3, 1),
        # No k >= 0 calls a score of 0 positive, so the best there is agrees on the last point only.
        ([0.0, 0.0, 0.9], [1, 1, 0], "above", 0.9, 1.0, 0.95, 1 / 3, 1),
        # Of several best plateaus the widest is given.
        ([0.1, 0.2, 0.3, 0.9], [0, 1, 0, 1], "above", 0.3, 0.9, 0.6, 3 / 4, 2),
    ],
)
def test_threshold_by_hand_with_its_plateau(scores, positive, side, low, high, value, agrees, plateaus):
    got = best_threshold(scores, [bool(p) for p in positive], side)
    assert (got.low, got.high, got.plateaus) == (low, high, plateaus)
    assert (got.value, got.agreement) == pytest.approx((value, agrees))
    assert float(got) == got.value


def test_scores_equal_to_the_threshold_are_neither_above_nor_below():
    # With k = 0.5 the score 0.5 is not above, so the plateau begins there; with h = 0.5 it is not below.
    assert best_threshold([0.5, 0.5, 0.8], [False, False, True]).low == 0.5
    assert best_threshold([0.5, 0.5, 0.2], [False, False, True], "below").high == 0.5


def test_middle_of_neighbouring_floats_stays_on_the_plateau():
    for low in (0.3, math.nextafter(0.3, 1)):  # one of the two rounds down, the other up
        high = math.nextafter(low, 1)
        for side, labels in (("above", [False, True]), ("below", [True, False])):
            got = best_threshold([low, high], labels, side)
            assert agreement([low, high], labels, side, got.value) == 1.0 == got.agreement


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.integers(-2, 12), st.booleans()), min_size=2, max_size=25).filter(
        lambda points: len({p for _, p in points}) == 2
    ),
    st.sampled_from(["above", "below"]),
)
def test_sweep_is_optimal_and_its_plateau_exactly_the_optimal_stretch(points, side):
    scores = [s / 10 for s, _ in points]
    positive = [p for _, p in points]
    got = best_threshold(scores, positive, side)
    low, high = min(0.0, *scores), max(1.0, *scores)
    grid = np.unique([*np.linspace(low, high, 601), *scores])
    values = np.array([agreement(scores, positive, side, t) for t in grid])
    assert got.agreement == pytest.approx(values.max())
    assert agreement(scores, positive, side, got.value) == pytest.approx(got.agreement)
    assert low <= got.low <= got.value <= got.high <= high
    best = np.isclose(values, values.max())
    inside = (grid > got.low) & (grid < got.high)
    assert best[inside].all()
    # One step beyond either end it is worse (unless the plateau ends where the search does).
    for outside in (got.low - 1e-6, got.high + 1e-6):
        if low <= outside <= high:
            assert agreement(scores, positive, side, outside) < got.agreement - 1e-9
    closed = got.low if side == "above" else got.high
    assert agreement(scores, positive, side, closed) == pytest.approx(got.agreement)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 10), st.booleans()), min_size=2, max_size=20), st.randoms())
def test_sweep_ignores_order_and_duplication_of_all_points_and_mirrors_its_sides(points, random):
    if len({p for _, p in points}) < 2:
        return
    scores, positive = np.array([s / 10 for s, _ in points]), np.array([p for _, p in points])
    base = best_threshold(scores, positive)
    order = list(range(len(points)))
    random.shuffle(order)
    assert best_threshold(scores[order], positive[order]) == base
    assert best_threshold(np.tile(scores, 3), np.tile(positive, 3)) == base
    mirrored = best_threshold(1 - scores, positive, "below")
    assert mirrored.agreement == base.agreement
    assert mirrored.plateaus == base.plateaus


def test_likelihoods_by_hand():
    scores, grades = [0.1, 0.5, 0.9, 0.95], [1, 5, 5, 3]
    # k = 0.6: agree on 0.1 (no, no) and 0.9 (yes, yes); disagree on 0.5 and 0.95.
    expected = -(2 * math.log(1 + 1e-10) + 2 * math.log(1e-10))
    assert likelihood_k(0.6, scores, grades) == pytest.approx(expected)
    # h = 0.2: agree on all four.
    assert likelihood_h(0.2, scores, grades) == pytest.approx(-4 * math.log(1 + 1e-10))
    # A score equal to the threshold is not above (Eq 3.2) and not below (Eq 3.4).
    assert likelihood_k(0.9, [0.9], [5]) == pytest.approx(-math.log(1e-10))
    assert likelihood_h(0.1, [0.1], [1]) == pytest.approx(-math.log(1e-10))
    both = likelihood_k(np.array([[0.6], [0.0]]), scores, grades)
    assert both.tolist() == [[pytest.approx(expected)], [pytest.approx(-2 * math.log(1e-10))]]


def test_fitted_thresholds_minimise_the_printed_likelihood_and_beat_the_published_optimiser():
    from scipy.optimize import differential_evolution

    scores, grades, _ = made_points(400)
    fitted = fit_thresholds(scores, grades)
    for value, likelihood in ((fitted.h.value, likelihood_h), (fitted.k.value, likelihood_k)):
        grid = np.linspace(0, 1, 1001)
        assert likelihood(value, scores, grades) <= likelihood(grid, scores, grades).min() + 1e-6
        found = differential_evolution(lambda t, f=likelihood: f(t[0], scores, grades), [(0, 1)], seed=0, maxiter=20)
        assert likelihood(value, scores, grades) <= found.fun + 1e-6


def test_thresholds_that_made_the_grades_are_found_again():
    fitted = fit_thresholds(*made_points(4000, h=0.105, k=0.67)[:2])
    assert fitted.h.low - 0.01 <= 0.105 <= fitted.h.high + 0.01
    assert fitted.k.low - 0.01 <= 0.67 <= fitted.k.high + 0.01
    assert fitted.k.agreement > 0.8


def test_region_shares_by_hand_with_the_borders_between():
    got = region_shares([0.0, 0.105, 0.3, 0.67, 0.68, 1.0, 1.0, 0.1], 0.105, 0.67)
    assert (got.below, got.between, got.above, got.n) == (0.25, 0.375, 0.375, 8)
    points = made_points(50)[:2]
    fitted = fit_thresholds(*points)
    assert region_shares(points[0], fitted.h, fitted.k) == region_shares(points[0], fitted.h.value, fitted.k.value)


# --- calibration ------------------------------------------------------------------------------------------------------


def test_calibrated_probabilities_beat_the_boxes_and_are_reliable_on_unseen_questions():
    scores, grades, question = smooth_points(600)
    got = calibrate(scores, grades, question)
    p = got.probabilities["calibrated"]
    assert p.shape == (3000, 3)
    assert np.allclose(p.sum(1), 1)
    assert (p >= 0).all()
    assert got.brier["calibrated"] < got.brier["boxes"]
    assert got.brier["calibrated"] < got.brier["base rate"]
    assert got.brier["boxes with shares"] < got.brier["boxes"]
    gain = paired_bootstrap_difference(
        brier_terms(p, got.groups), brier_terms(got.probabilities["boxes"], got.groups), groups=question
    )
    assert gain.high < 0
    assert gain.estimate == pytest.approx(got.brier["calibrated"] - got.brier["boxes"])
    curve = reliability_curve(p[:, 2], got.groups == 2, bins=8)
    assert curve.n.sum() == 3000
    assert np.abs(curve.predicted - curve.observed).max() < 0.06


def test_calibration_does_not_see_the_question_it_predicts():
    # Scores are the questions' own numbers and grades are drawn: a model that saw a question would know its grade.
    rng = np.random.default_rng(0)
    question = np.repeat(np.arange(80), 5)
    scores, grades = question / 80, rng.choice([1, 3, 5], 80)[question]
    leaky = _group_probabilities(scores, grades, scores)
    got = calibrate(scores, grades, question)
    assert got.brier["calibrated"] > got.brier["base rate"] > brier_score(leaky, got.groups)


def test_boxes_are_those_of_thresholds_fitted_on_the_other_questions():
    scores, grades, question = made_points(60)
    boxes = calibrate(scores, grades, question, seed=4).probabilities["boxes"].argmax(1)
    fold = (np.random.default_rng(4).permutation(60) % 5)[question]
    for held in range(5):
        fitted = fit_thresholds(scores[fold != held], grades[fold != held])
        unseen = scores[fold == held]
        expected = np.where(unseen > fitted.k.value, 2, np.where(unseen < fitted.h.value, 0, 1))
        assert boxes[fold == held].tolist() == expected.tolist()


def test_boxes_fitted_to_noise_do_not_beat_the_commoner_answer_on_unseen_questions():
    rng = np.random.default_rng(0)
    got = calibrate(rng.random(400), rng.integers(1, 6, 400))
    reached = {name: (got.probabilities[name].argmax(1) == got.groups).mean() for name in ("boxes", "base rate")}
    assert reached["boxes"] < reached["base rate"] + 0.01


def test_isotonic_groups_follow_the_shares_at_each_score():
    grades = [1, 1, 1, 3, 1, 2, 4, 5, 3, 5, 5, 5]
    shares = [[0.75, 0.25, 0.0], [0.25, 0.5, 0.25], [0.0, 0.25, 0.75]]
    assert _group_probabilities(np.repeat([0.1, 0.5, 0.9], 4), grades, [0.1, 0.5, 0.9]).tolist() == shares


def test_group_probabilities_handle_grades_of_one_or_two_groups():
    assert _group_probabilities([0.1, 0.9], [5, 5], [0.5]).tolist() == [[0, 0, 1]]
    two = _group_probabilities([0.1, 0.2, 0.8, 0.9], [1, 5, 1, 5], [0.0, 1.0])
    assert two[:, 1].tolist() == pytest.approx([0, 0])
    assert two.sum(1) == pytest.approx([1, 1])


def test_brier_by_hand():
    p = [[1, 0, 0], [0.5, 0.5, 0], [0, 0, 1]]
    assert brier_terms(p, [0, 0, 1]).tolist() == [0, 0.5, 2]
    assert brier_score(p, [0, 0, 1]) == pytest.approx(2.5 / 3)
    assert np.isnan(brier_score(np.empty((0, 3)), []))


def test_the_bins_of_the_reliability_curve_are_scikit_learns():
    from sklearn.calibration import calibration_curve

    rng = np.random.default_rng(0)
    p = rng.random(997)
    happened = rng.random(997) < p
    ours = reliability_curve(p, happened, bins=7)
    observed, predicted = calibration_curve(happened, p, n_bins=7, strategy="quantile")
    np.testing.assert_allclose(ours["observed"], observed)
    np.testing.assert_allclose(ours["predicted"], predicted)
    assert ours["n"].sum() == 997


def test_reliability_curve_by_hand_keeps_equal_predictions_together():
    p = [0.1, 0.1, 0.1, 0.1, 0.7, 0.9]
    curve = reliability_curve(p, [0, 0, 1, 0, 1, 1], bins=2)
    assert curve.n.tolist() == [4, 2]
    assert curve.predicted.tolist() == pytest.approx([0.1, 0.8])
    assert curve.observed.tolist() == [0.25, 1]
    assert (curve.low <= curve.observed).all()
    assert (curve.observed <= curve.high).all()


test_bad_input_says_what_was_wrong_and_numpy_does_not_warn = pytest.mark.filterwarnings("error")(
    refusals(
        (lambda: fit_thresholds([0.1, 0.2], [1, 6]), DataError, "6.0 at position 1"),
        (lambda: fit_thresholds([0.1, 0.2], [1, 2.5]), DataError, "2.5 at position 1"),
        (lambda: fit_thresholds([0.1, 0.2], [1, None]), DataError, "leave unscored answers out"),
        (lambda: fit_thresholds([0.1, 0.2], ["good", "bad"]), DataError, "grades that are not numbers"),
        (lambda: fit_thresholds([0.1, NAN], [1, 5]), DataError, r"1 of 2 scores are NaN.*position 1"),
        (lambda: fit_thresholds([0.1, float("inf")], [1, 5]), DataError, "1 infinite scores.*position 1"),
        (lambda: fit_thresholds([0.1], [1, 5]), DataError, "scores 1, grades 2"),
        (lambda: fit_thresholds([], []), DataError, "at least one score"),
        (lambda: fit_thresholds([0.1, 0.2], [1, 2]), DataError, "no grade 5 among 2"),
        (lambda: fit_thresholds([0.1, 0.2], [1, 1]), DataError, "only grade 1 among 2"),
        (lambda: best_threshold([0.1, 0.2], [True, True]), DataError, "2 points, all positive"),
        (lambda: best_threshold([0.1, 0.2], [1, 5]), DataError, "pass e.g. grades == 5"),
        (lambda: best_threshold([0.1, 0.2], [True, False], "over"), "above, below"),
        (lambda: best_threshold([0.1], [True, False]), DataError, "scores 1, labels 2"),
        (lambda: region_shares([0.1], 0.7, 0.1), "h <= k"),
        (lambda: calibrate([0.1, 0.9], [1, 5], folds=3), "3 folds for 2 questions"),
        (lambda: calibrate([0.1, 0.9], [1, 5], folds=2), DataError, "without grade 1 or 5"),
        (lambda: brier_terms([[0.5, 0.6]], [0]), DataError, "add up to 1"),
        (lambda: brier_terms([[0.5, 0.5]], [2]), DataError, "classes outside 0-1"),
        (lambda: brier_terms([[0.5, 0.5]], [0, 1]), DataError, "for 2 points"),
        (lambda: reliability_curve([1.1], [True]), DataError, r"outside \[0, 1\]"),
        (lambda: reliability_curve([], []), DataError, "at least one"),
        (lambda: reliability_curve([0.5], [True], bins=0), "bins 0"),
    )
)
