"""Notebook 98: an interval for every look, by hand and in simulations; notebook 95: what labels are
worth.
"""

import numpy as np
import pandas as pd
import pytest
from notebook_parts import parts
from scipy.stats import ttest_1samp

BOOK = parts("98")
LABELS = parts("95")


def test_the_capital_is_the_mean_over_stakes_of_the_product_of_what_each_bet_leaves():
    differences = [0.5, -1.0, 0.25, 1.0]
    for mean in (0.0, 0.3, -0.4):
        each = [
            np.prod([1 + stake * (d - mean) / (1 + mean) for d in differences])
            for stake in BOOK.STAKES
        ]
        assert np.exp(BOOK.capital(differences, mean)[-1]) == pytest.approx(np.mean(each))
    many = np.random.default_rng(0).uniform(-1, 1, (3, 2, 9))
    np.testing.assert_allclose(BOOK.capital(many)[2, 1], BOOK.capital(many[2, 1]))


def test_the_interval_leaves_zero_when_a_gambler_holds_40_and_mirrors_its_sign():
    assert BOOK.betting_interval(np.ones(8))[0] < 0 < BOOK.betting_interval(np.ones(9))[0]
    differences = np.random.default_rng(1).choice([-1.0, 0.0, 1.0], 40, p=[0.1, 0.4, 0.5])
    low, high = BOOK.betting_interval(differences)
    assert -1 <= low < differences.mean() < high <= 1
    assert BOOK.betting_interval(-differences) == pytest.approx((-high, -low))
    assert np.exp(BOOK.capital(differences, low + 1e-6)[-1]) == pytest.approx(40, rel=0.01)


def test_without_a_difference_betting_is_wrong_in_at_most_a_twentieth_and_the_test_at_every_look_in_more():
    drawn = BOOK.draw(np.array([1.0, 0.5, 0.0]), 0, null=True)
    assert drawn.shape == (BOOK.RUNS, BOOK.GROUPS)
    assert BOOK.betting(drawn).any(axis=1).mean() <= 0.05
    assert BOOK.t_test(drawn).any(axis=1).mean() > 0.15


def test_the_test_after_each_group_is_scipys():
    drawn = np.random.default_rng(2).normal(0.3, 1, (50, 30))
    found = BOOK.t_test(drawn)
    for n in (5, 12, 30):
        assert (found[:, n - 1] == (ttest_1samp(drawn[:, :n], 0, axis=1).pvalue < 0.05)).all()
    assert not found[:, :4].any()


def test_made_groups_have_their_difference_and_small_ones_look_larger_at_the_stop():
    for difference in (0.1, 0.2, 0.4):
        assert BOOK.made(difference).mean() == pytest.approx(difference)
    small = BOOK.outcome(BOOK.made(0.2))
    assert small["decided"] + small["undecided"] == 1
    assert small["at the stop"] > small["difference"] == pytest.approx(0.2)


def test_an_estimate_with_half_the_variance_is_worth_as_many_labels_again():
    rng = np.random.default_rng(0)
    draws = pd.DataFrame({"draw": np.arange(4000)})
    plain = draws.assign(way="plain labels", estimate=rng.normal(0, 2**0.5, 4000))
    other = draws.assign(way="PPI", estimate=rng.normal(0, 1, 4000))
    worth = LABELS.worth(pd.concat([plain, other]), "PPI")
    assert worth.estimate == pytest.approx(1.0, abs=0.1)
    assert worth.low < 1 < worth.high
