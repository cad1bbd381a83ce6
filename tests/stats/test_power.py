"""Power read off paired differences: worked by hand, by simulation, and where it is undefined."""

import math
from dataclasses import asdict
from functools import partial

import numpy as np
import pytest
from checks import refusals
from hypothesis import given, settings
from hypothesis import strategies as st

from ragbench.errors import DataError
from ragbench.stats import paired_permutation_test, power_analysis

NAN = float("nan")


def pairs(n, mean, sd, seed=0):
    """Differences with exactly this mean and standard deviation."""
    d = np.random.default_rng(seed).normal(size=n)
    return mean + sd * (d - d.mean()) / d.std(ddof=1)


def test_a_pilot_worked_by_hand():
    # Differences 0.1 .. 0.5: sum of squares around the mean 0.1, sd sqrt(0.1 / 4) = 0.15811.
    found = power_analysis([0.6, 0.7, 0.8, 0.9, 1.0, NAN], [0.5] * 6, difference=0.3)
    assert (found.n, found.n_missing, found.difference) == (5, 1, 0.3)
    assert found.sd == pytest.approx(math.sqrt(0.025))
    # d = 1.897: G*Power gives 5 pairs for 0.8, below the 6 without which no permutation test
    # reaches 0.05.
    assert found.needed == 6


def test_the_textbook_sizes_come_out_of_differences_with_that_effect():
    # Cohen's tables: d = 0.2, 0.5, 0.8 take 199, 34, 15 pairs. What the pilot's own mean is does
    # not matter.
    pilot = pairs(40, 0.31, 1.0)
    needed = [power_analysis(pilot, difference=d).needed for d in (0.2, 0.5, 0.8)]
    assert needed == [199, 34, 15]
    assert power_analysis(pairs(40, 0.31, 0.5), difference=-0.1).needed == 199


def test_with_clusters_their_means_are_what_varies():
    values = [0.1, 0.3, 0.6, 0.5, 0.7, 0.2, NAN]
    found = power_analysis(values, difference=0.2, cluster=list("aabccdd"))
    alone = power_analysis([0.2, 0.6, 0.6, 0.2], difference=0.2)
    assert asdict(found) == pytest.approx(asdict(alone) | {"n_missing": 1})


def test_planned_by_clusters_a_run_finds_the_difference_as_often_as_asked_and_planned_by_questions_it_does_not(
    rng,
):

    def run(clusters):
        cluster = np.repeat(np.arange(clusters), 5)
        level = 0.15 + rng.normal(0, 0.3, clusters)[cluster]
        return level + rng.normal(0, 0.3, cluster.size), cluster

    def found(clusters):
        results = []
        for _ in range(250):
            differences, cluster = run(math.ceil(clusters))
            zeros = np.zeros(cluster.size)
            test = paired_permutation_test(differences, zeros, cluster=cluster, resamples=199)
            results.append(test.p_value <= 0.05)
        return np.mean(results)

    pilot, cluster = run(400)  # it knows the spread
    by_clusters = power_analysis(pilot, difference=0.15, cluster=cluster).needed
    by_questions = power_analysis(pilot, difference=0.15).needed / 5
    assert 0.72 <= found(by_clusters) <= 0.88
    assert found(by_questions) < 0.6


@pytest.mark.parametrize(
    ("n", "power", "alpha"), [(2, 0.8, 0.05), (20, 0.8, 0.05), (300, 0.95, 0.01)]
)
def test_the_detectable_difference_has_the_power_asked_for(n, power, alpha):
    plan = partial(power_analysis, pairs(n, 1.0, 0.4), power=power, alpha=alpha)
    least = plan(difference=1).detectable
    assert plan(difference=least).power == pytest.approx(power, abs=1e-6)


def test_undefined_is_nan_and_out_of_reach_is_inf():
    for values, n in (([NAN, None], 0), ([0.4], 1)):
        found = power_analysis(values, difference=0.1)
        assert found.n == n
        assert np.isnan([found.sd, found.power, found.needed, found.detectable]).all()
    none = power_analysis([0.1, -0.1], difference=0)
    assert (none.power, none.needed) == (0.05, math.inf)
    assert power_analysis([1e-9, 1.0, -1.0, 0.0], difference=1e-9).needed == math.inf


@pytest.mark.parametrize(("alpha", "floor"), [(0.05, 6), (0.01, 8)])
def test_equal_differences_need_what_a_permutation_test_needs_to_reach_alpha_at_all(alpha, floor):
    enough = [0.1] * floor
    found = power_analysis(enough, difference=0.1, alpha=alpha)
    assert (found.sd, found.power, found.needed) == (0.0, 1.0, floor)
    assert math.isnan(found.detectable)
    assert paired_permutation_test(enough, [0] * floor).p_value < alpha
    fewer = enough[1:]
    assert power_analysis(fewer, difference=0.1, alpha=alpha).power == 0.0
    assert paired_permutation_test(fewer, [0] * len(fewer)).p_value > alpha


@settings(max_examples=40)
@given(
    st.lists(st.floats(-1, 1).map(lambda score: round(score, 9)), min_size=2, max_size=30),
    st.floats(0.1, 50),
)
def test_sign_and_unit_of_the_scores_do_not_matter(differences, unit):
    found = power_analysis(differences, difference=0.1)
    other = power_analysis(-unit * np.array(differences), difference=-0.1 * unit)
    assert other.power == pytest.approx(found.power, rel=1e-6, nan_ok=True)
    assert other.sd == pytest.approx(found.sd * unit, rel=1e-9)
    if math.isfinite(found.needed) and math.isfinite(other.needed):
        assert other.needed == pytest.approx(found.needed, rel=1e-6, abs=1)


test_what_cannot_work_is_said = refusals(
    (
        lambda: power_analysis([1, 2], [1], difference=1),
        DataError,
        "lengths that differ: a 2, b 1",
    ),
    (lambda: power_analysis([math.inf, 1], difference=1), DataError, "infinite a"),
    (lambda: power_analysis(["x"], difference=1), DataError, "not numbers"),
    (
        lambda: power_analysis([1, 2], difference=1, cluster=["a"]),
        DataError,
        "1 group labels for 2",
    ),
    (lambda: power_analysis([1, 2], difference=1, power=0.04), "power 0.04"),
    (lambda: power_analysis([1, 2], difference=1, alpha=0), "alpha 0"),
)
