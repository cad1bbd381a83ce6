"""Thresholds h and k (thesis §3.3) against brute force, the printed equations and the published
optimiser.
"""

import numpy as np
import pytest
from checks import refusals
from hypothesis import given, settings
from hypothesis import strategies as st
from notebook_parts import parts

from ragbench.errors import DataError
from ragbench.metrics.thresholds import (
    best_threshold,
    fit_thresholds,
)

NAN = float("nan")


def made_points(n_questions: int, seed: int = 0, h: float = 0.1, k: float = 0.67):
    """Scores of five systems per question, and grades that mostly follow h and k."""
    rng = np.random.default_rng(seed)
    size = 5 * n_questions
    level = rng.beta(0.8, 0.8, n_questions).repeat(5)
    scores = np.clip(level + rng.normal(0, 0.08, size), 0, 1).round(3)
    grades = np.where(scores > k, 5, np.where(scores < h, 1, rng.integers(2, 5, size)))
    return scores, np.where(rng.random(size) < 0.15, rng.integers(1, 6, size), grades)


def agreement(scores, positive, side, threshold) -> float:
    """The definition, point by point."""
    predicted = [s > threshold if side == "above" else s < threshold for s in scores]
    return sum(p == bool(q) for p, q in zip(predicted, positive, strict=True)) / len(scores)


@pytest.mark.parametrize(
    ("scores", "positive", "side", "low", "high", "value", "agrees"),
    [
        ([0.1, 0.2, 0.6, 0.9], [0, 0, 1, 1], "above", 0.2, 0.6, 0.4, 1),
        ([0.0, 0.1, 0.3, 0.9], [1, 1, 0, 0], "below", 0.1, 0.3, 0.2, 1),
        # 0.4 holds a hit and a miss: moving past it changes nothing.
        ([0.1, 0.4, 0.4, 0.8], [0, 1, 0, 1], "above", 0.1, 0.8, 0.45, 3 / 4),
        # The plateau reaches to the end of the unit interval where the labels run against the
        # score.
        ([0.2, 0.3, 0.6], [1, 0, 0], "above", 0.6, 1.0, 0.8, 2 / 3),
        ([0.2, 0.3, 0.6], [1, 1, 0], "above", 0.0, 0.2, 0.1, 2 / 3),
        # No k >= 0 calls a score of 0 positive, so the best there is agrees on the last point only.
        ([0.0, 0.0, 0.9], [1, 1, 0], "above", 0.9, 1.0, 0.95, 1 / 3),
        # Of several best plateaus the widest is given.
        ([0.1, 0.2, 0.3, 0.9], [0, 1, 0, 1], "above", 0.3, 0.9, 0.6, 3 / 4),
        ([0.1, 0.2, 0.3, 0.9], [1, 0, 1, 0], "below", 0.3, 0.9, 0.6, 3 / 4),
    ],
)
def test_threshold_by_hand_with_its_plateau(scores, positive, side, low, high, value, agrees):
    got = best_threshold(scores, [bool(p) for p in positive], side)
    assert (got.low, got.high) == (low, high)
    assert (got.value, got.agreement) == pytest.approx((value, agrees))
    assert float(got) == got.value


def test_scores_equal_to_the_threshold_are_neither_above_nor_below():
    # With k = 0.5 the score 0.5 is not above, so the plateau begins there; with h = 0.5 it is not
    # below.
    assert best_threshold([0.5, 0.5, 0.8], [False, False, True]).low == 0.5
    assert best_threshold([0.5, 0.5, 0.2], [False, False, True], "below").high == 0.5


points = st.lists(st.tuples(st.integers(-2, 12), st.booleans()), min_size=2, max_size=25)


@settings(max_examples=200)
@given(
    points.filter(lambda points: len({p for _, p in points}) == 2),
    st.sampled_from(["above", "below"]),
)
def test_sweep_is_optimal_and_its_plateau_exactly_the_optimal_stretch(points, side):
    scores, positive = zip(*points, strict=True)
    scores = np.array(scores) / 10
    got = best_threshold(scores, np.array(positive), side)

    def agrees(threshold):
        return agreement(scores, positive, side, threshold)

    low = min(0.0, *scores)
    high = max(1.0, *scores)
    grid = np.unique([*np.linspace(low, high, 601), *scores])
    values = np.array([agrees(t) for t in grid])
    assert got.agreement == pytest.approx(values.max())
    assert agrees(got.value) == pytest.approx(got.agreement)
    assert low <= got.low <= got.value <= got.high <= high
    inside = (grid > got.low) & (grid < got.high)
    assert np.isclose(values, values.max())[inside].all()
    # One step beyond either end it is worse (unless the plateau ends where the search does).
    for outside in (got.low - 1e-6, got.high + 1e-6):
        if low <= outside <= high:
            assert agrees(outside) < got.agreement - 1e-9
    closed = got.low if side == "above" else got.high
    assert agrees(closed) == pytest.approx(got.agreement)


@pytest.mark.parametrize("name", ["h", "k"])
def test_fitted_thresholds_minimise_the_printed_likelihood_and_beat_the_published_optimiser(name):
    from scipy.optimize import differential_evolution

    scores, grades = made_points(400)
    fitted = dict(zip("hk", fit_thresholds(scores, grades), strict=True))[name].value

    def likelihood(threshold):
        # Eq 3.1, where p_ir and p_llm are 0 or 1, with Eq 3.4 and 3.5 for h, Eq 3.2 and 3.3 for k.
        p_ir, p_llm = {
            "h": (scores < threshold, grades == 1),
            "k": (scores > threshold, grades == 5),
        }[name]
        return -np.log(p_ir * p_llm + (1 - p_ir) * (1 - p_llm) + 1e-10).sum()

    assert likelihood(fitted) <= min(map(likelihood, np.linspace(0, 1, 1001))) + 1e-6
    found = differential_evolution(likelihood, [(0, 1)], seed=0, maxiter=20)
    assert likelihood(fitted) <= found.fun + 1e-6


def test_a_score_at_a_threshold_lies_in_the_middle_box_and_grades_2_to_4_are_one_group():
    boxes = parts("14").boxes_of(np.array([0.0, 0.1, 0.3, 0.67, 0.7]), 0.1, 0.67)
    assert boxes.tolist() == [0, 1, 1, 1, 2]


def test_thresholds_that_made_the_grades_are_found_again():
    h, k = fit_thresholds(*made_points(4000, h=0.105, k=0.67))
    assert h.low - 0.01 <= 0.105 <= h.high + 0.01
    assert k.low - 0.01 <= 0.67 <= k.high + 0.01
    assert k.agreement > 0.8


test_bad_input_says_what_was_wrong_and_numpy_does_not_warn = pytest.mark.filterwarnings("error")(
    refusals(
        (lambda: fit_thresholds([0.1, 0.2], [1, 6]), DataError, "6.0 at position 1"),
        (lambda: fit_thresholds([0.1, 0.2], [1, 2.5]), DataError, "2.5 at position 1"),
        (lambda: fit_thresholds([0.1, 0.2], [1, None]), DataError, "leave unscored answers out"),
        (
            lambda: fit_thresholds([0.1, 0.2], ["good", "bad"]),
            DataError,
            "grades that are not numbers",
        ),
        (lambda: fit_thresholds([0.1, NAN], [1, 5]), DataError, "1 of 2 scores are NaN"),
        (
            lambda: fit_thresholds([0.1, float("inf")], [1, 5]),
            DataError,
            "infinite scores.*position 1",
        ),
        (lambda: fit_thresholds([0.1], [1, 5]), DataError, "scores 1, grades 2"),
        (lambda: fit_thresholds([], []), DataError, "0 of 0 scores"),
        (lambda: fit_thresholds([0.1, 0.2], [1, 2]), DataError, "2 points, all negative"),
        (lambda: fit_thresholds([0.1, 0.2], [1, 1]), DataError, "2 points, all positive"),
        (lambda: best_threshold([0.1, 0.2], [True, True]), DataError, "2 points, all positive"),
        (lambda: best_threshold([0.1, 0.2], [1, 5]), DataError, "pass e.g. grades == 5"),
        (lambda: best_threshold([0.1, 0.2], [True, False], "over"), "above, below"),
        (lambda: best_threshold([0.1], [True, False]), DataError, "scores 1, labels 2"),
    )
)
