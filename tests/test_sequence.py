"""Anytime-valid intervals: by hand, against a slow betting game, and in simulations with clusters and many looks."""

import math

import numpy as np
import pytest

from ragbench.errors import ConfigError, DataError
from ragbench.stats import anytime_interval, betting_capital, units_until_decided
from ragbench.stats.sequence import STAKES


def slow_capital(differences, mean):
    """Play the game in plain Python: each stake's money on its own, question by question."""
    money = []
    for stake in STAKES:
        held = 1 / len(STAKES)
        for d in differences:
            held += stake * held * (d - mean) / (1 + mean)
        money.append(held)
    return sum(money)


def test_capital_follows_the_game_played_in_plain_python():
    rng = np.random.default_rng(0)
    for mean in (-0.7, 0.0, 0.4):
        d = rng.uniform(-1, 1, 30)
        each = [slow_capital(d[:n], mean) for n in range(1, 31)]
        np.testing.assert_allclose(np.exp(betting_capital(d, mean)), each)
    many = rng.uniform(-1, 1, (4, 5, 9))
    np.testing.assert_allclose(betting_capital(many)[2, 3], betting_capital(many[2, 3]))
    np.testing.assert_allclose(betting_capital(many, 0.3, last=True), betting_capital(many, 0.3)[..., -1])


def test_nine_wins_in_a_row_decide_and_eight_do_not():
    # A stake s holds (1 + s)^n; their mean passes 40 = 2 / 0.05 at nine.
    assert np.mean([(1 + s) ** 8 for s in STAKES]) < 40 < np.mean([(1 + s) ** 9 for s in STAKES])
    assert anytime_interval([1] * 8).low < 0 < anytime_interval([1] * 9).low
    assert anytime_interval([-1] * 8).high > 0 > anytime_interval([-1] * 9).high


def test_bounds_are_where_the_slow_game_makes_one_rich():
    d = np.random.default_rng(1).choice([-1, 0, 1], 60, p=[0.1, 0.4, 0.5])
    found = anytime_interval(d, level=0.9)
    assert found.estimate == pytest.approx(d.mean())
    for side, bound in ((1, found.low), (-1, -found.high)):
        assert slow_capital(side * d, bound - 1e-6) > 20 > slow_capital(side * d, bound + 1e-6)


def test_interval_turns_with_the_sides_and_does_not_depend_on_order_or_names():
    d = np.random.default_rng(2).uniform(-0.2, 1, 40)
    clusters = np.arange(40) // 3
    one, other = anytime_interval(d, clusters=clusters), anytime_interval(-d, clusters=clusters)
    np.testing.assert_allclose([one.low, one.high], [-other.high, -other.low], atol=1e-9)
    order = np.random.default_rng(3).permutation(40)
    again = anytime_interval(d[order], clusters=[f"c{c}" for c in clusters[order]])
    np.testing.assert_allclose([again.low, again.high], [one.low, one.high], atol=1e-9)


def test_a_cluster_counts_once_by_its_mean_and_missing_values_are_counted():
    found = anytime_interval([1, 0, math.nan, 0.5, math.nan], clusters=["a", "a", "a", "b", "c"])
    assert (found.estimate, found.n, found.n_missing) == (0.5, 3, 2)
    assert (found.low, found.high) == (anytime_interval([0.5, 0.5]).low, anytime_interval([0.5, 0.5]).high)
    empty = anytime_interval([math.nan])
    assert math.isnan(empty.estimate)
    assert (empty.low, empty.high, empty.n_missing) == (-1, 1, 1)


def clustered_null(rng, runs, clusters, size=4):
    """Differences of a true mean of 0: all questions of a cluster share a sign and a size."""
    sides = rng.choice([-1.0, 1.0], (runs, clusters)) * rng.choice([0.2, 0.6, 1.0], (runs, clusters))
    return np.repeat(sides, size, axis=1)


def test_a_thousand_runs_with_a_look_after_every_cluster_keep_the_promised_error():
    d = clustered_null(np.random.default_rng(4), 1000, 60)
    units = d.reshape(1000, 60, 4).mean(axis=2)
    rich = math.log(2 / 0.05)
    wrong = ((betting_capital(units) >= rich) | (betting_capital(-units) >= rich)).any(axis=1)
    assert wrong.mean() <= 0.05
    alone = ((betting_capital(d) >= rich) | (betting_capital(-d) >= rich)).any(axis=1)
    assert alone.mean() > 0.2  # each question on its own does not hold the level: not offered


def test_the_true_mean_is_inside_at_every_look():
    rng = np.random.default_rng(5)
    lost = 0
    for _ in range(80):
        d = rng.choice([-1.0, 0.0, 1.0], 50, p=[0.2, 0.3, 0.5])
        looks = (anytime_interval(d[:n]) for n in range(5, 51, 5))
        lost += any(not look.low <= 0.3 <= look.high for look in looks)
    assert lost <= 4


def test_expected_length_falls_with_the_difference_and_ends_at_the_most():
    lengths = [units_until_decided(d, most=150) for d in (0.0, 0.1, 0.3, 0.5)]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] > 145
    assert units_until_decided(1.0, 1.0) == 9  # every question is won
    assert units_until_decided(-0.3) == pytest.approx(units_until_decided(0.3), rel=0.1)


def test_bad_input_is_named():
    with pytest.raises(DataError, match="a difference of 5"):
        anytime_interval([0.5, 5])
    with pytest.raises(ConfigError, match=r"a difference of 0\.6"):
        units_until_decided(0.6, 0.5)
    with pytest.raises(DataError, match="2 group labels for 1"):
        anytime_interval([0.5], clusters=[1, 2])
