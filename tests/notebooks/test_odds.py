"""Notebook 13: conditional logistic regression within questions, by hand and by a slow likelihood."""

import itertools

import numpy as np
import pytest
from scipy.stats import t

import odds


def test_the_odds_of_matched_pairs_are_the_ratio_of_the_pairs_that_differ():
    # Of pairs with one right answer each, it has the higher score in 6 and the lower in 2; alike
    # pairs say nothing. 6 / 2 = 3.
    scores = np.array([[1.0, 0.0]] * 12 + [[0.0, 1.0]] * 4 + [[1, 0], [0, 1]])
    rights = np.array([[1, 0]] * 16 + [[1, 1], [0, 0]])
    text, _, n = odds.within_questions(scores, rights, range(18), step=1)
    # Left out in turn: ln(11 / 4) twelve times and ln(12 / 3) four times; t with 15 degrees.
    without = np.log([11 / 4] * 12 + [12 / 3] * 4)
    half = np.sqrt(15 / 16 * ((without - without.mean()) ** 2).sum()) * t.ppf(0.975, 15)
    low, high = np.exp(np.log(3) - half), np.exp(np.log(3) + half)
    assert (text, n) == (f"3.000 [{low:.3f}, {high:.3f}]", 16)
    assert odds.within_questions(scores[:4], rights[:4], range(4))[2] == 4  # too few to tell


@pytest.mark.parametrize("seed", range(4))
def test_the_slope_has_the_greatest_conditional_likelihood(seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(12, 4))
    y = (rng.random((12, 4)) < 1 / (1 + np.exp(-x - rng.normal(size=(12, 1))))).astype(int)

    def likelihood(slope):
        total = 0.0
        for row, right in zip(x, y, strict=True):
            sets = itertools.combinations(range(4), int(right.sum()))
            total += slope * row @ right
            total -= np.log(sum(np.exp(slope * sum(row[i] for i in one)) for one in sets))
        return total

    slope = odds.slope(x, y)
    assert likelihood(slope) > max(likelihood(slope - 0.01), likelihood(slope + 0.01))


def test_the_permutation_test_counts_orders_of_the_systems_within_clusters():
    x = np.array([[0.0, 1.0, 5.0], [0.2, 0.9, 0.1]])
    x -= x.mean(axis=1, keepdims=True)
    y = np.array([[0, 0, 1], [0, 1, 0]])
    orders = list(itertools.permutations(range(3)))

    def exact(pairs):
        sums = [
            sum(row[list(order)] @ right for row, right, order in zip(x, y, both, strict=True))
            for both in pairs
        ]
        return np.mean(np.abs(sums) >= abs((x * y).sum()) - 1e-9)

    alone = odds.permutation_p(x, y, np.array([0, 1]))
    together = odds.permutation_p(x, y, np.array([0, 0]))
    assert alone == pytest.approx(exact(itertools.product(orders, orders)), abs=0.015)
    assert together == pytest.approx(exact(zip(orders, orders, strict=True)), abs=0.015)
    assert abs(together - alone) > 0.05


def test_right_answers_that_always_have_the_highest_score_have_no_slope():
    highest = np.array([[1.0, 0.0], [3.0, 2.0]])
    assert np.isnan(odds.slope(highest, np.array([[1, 0], [1, 0]])))
    assert np.isnan(odds.slope(highest, np.array([[0, 1], [0, 1]])))
