"""Power read off paired differences: worked by hand, by simulation, and where it is undefined."""

import math

import numpy as np
import pytest
from checks import refusals
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as reference

from ragbench import stats
from ragbench.errors import DataError

NAN = float("nan")


def pairs(n, mean, sd, seed=0):
    """Differences with exactly this mean and standard deviation."""
    d = np.random.default_rng(seed).normal(size=n)
    return mean + sd * (d - d.mean()) / d.std(ddof=1)


def test_a_pilot_worked_by_hand():
    # Differences 0.1 .. 0.5: mean 0.3, sum of squares 0.1, sd sqrt(0.1 / 4) = 0.15811.
    found = stats.power_analysis([0.6, 0.7, 0.8, 0.9, 1.0, NAN], [0.5, 0.5, 0.5, 0.5, 0.5, 0.5])
    assert (found.n, found.n_missing) == (5, 1)
    assert found.difference == pytest.approx(0.3)
    assert found.sd == pytest.approx(math.sqrt(0.025))
    # d = 1.897: G*Power gives 5 pairs for 0.8, below the 6 without which no permutation test reaches 0.05.
    assert found.needed == stats.questions_needed(0.3, found.sd) == 6


def test_the_textbook_sizes_come_out_of_differences_with_that_effect():
    # Cohen's tables: d = 0.2, 0.5, 0.8 take 199, 34, 15 pairs.
    assert [stats.power_analysis(pairs(40, d, 1.0)).needed for d in (0.2, 0.5, 0.8)] == [199, 34, 15]
    assert stats.power_analysis(pairs(40, -0.1, 0.5)).needed == 199


def test_simulated_runs_of_the_needed_size_find_the_difference_as_often_as_asked():
    found = stats.power_analysis(pairs(50, 0.3, 1.0), power=0.9)
    rng = np.random.default_rng(1)
    runs = rng.normal(0.3, 1.0, (20_000, int(found.needed)))
    rejected = (reference.ttest_1samp(runs, 0, axis=1).pvalue < 0.05).mean()
    assert rejected == pytest.approx(0.9, abs=0.01)
    short = reference.ttest_1samp(runs[:, : int(found.needed) // 2], 0, axis=1).pvalue < 0.05
    assert short.mean() == pytest.approx(stats.paired_power(int(found.needed) // 2, 0.3, 1.0), abs=0.012)


def test_the_interval_of_the_difference_becomes_one_of_questions():
    clear = stats.power_analysis(pairs(100, 0.5, 1.0))
    assert clear.low > 0
    assert clear.needed_low == stats.questions_needed(clear.high, clear.sd)
    assert clear.needed_high == stats.questions_needed(clear.low, clear.sd)
    assert clear.needed_low <= clear.needed <= clear.needed_high < math.inf
    unclear = stats.power_analysis(pairs(100, -0.05, 1.0))
    assert unclear.low < 0 < unclear.high
    assert unclear.needed_high == math.inf
    assert unclear.needed_low == stats.questions_needed(unclear.low, unclear.sd)  # the end farther from 0


def test_a_difference_asked_for_is_reckoned_with_in_place_of_the_observed_one():
    found = stats.power_analysis(pairs(100, 0.5, 1.0), difference=0.2)
    assert found.needed == 199
    assert found.power == pytest.approx(stats.paired_power(100, 0.2, 1.0))
    assert math.isnan(found.needed_low)
    assert math.isnan(found.needed_high)
    assert found.low > 0.2  # the interval stays that of the pairs


@pytest.mark.parametrize(("n", "power", "alpha"), [(2, 0.8, 0.05), (20, 0.8, 0.05), (300, 0.95, 0.01)])
def test_the_detectable_difference_has_the_power_asked_for(n, power, alpha):
    least = stats.power_analysis(pairs(n, 1.0, 0.4), power=power, alpha=alpha).detectable
    assert stats.paired_power(n, least, 0.4, alpha) == pytest.approx(power, abs=1e-6)


def test_undefined_is_nan_and_out_of_reach_is_inf():
    nothing = stats.power_analysis([NAN, None])
    assert (nothing.n, nothing.n_missing) == (0, 2)
    assert all(math.isnan(getattr(nothing, k)) for k in ("difference", "sd", "power", "needed", "detectable"))
    one = stats.power_analysis([0.4])
    assert one.difference == 0.4
    assert all(math.isnan(getattr(one, k)) for k in ("sd", "power", "needed", "needed_low", "detectable"))
    assert "too few" in str(one)
    none = stats.power_analysis([0.1, -0.1])
    assert none.power == 0.05
    assert none.needed == math.inf
    assert stats.power_analysis([1e-9, 1.0, -1.0, 0.0]).needed == math.inf


def test_equal_differences_need_what_a_permutation_test_needs_to_reach_alpha_at_all():
    for alpha, floor in ((0.05, 6), (0.01, 8)):
        found = stats.power_analysis([0.1] * floor, alpha=alpha)
        assert (found.sd, found.power, found.needed) == (0.0, 1.0, floor)
        assert math.isnan(found.detectable)
        assert stats.power_analysis([0.1] * (floor - 1), alpha=alpha).power == 0.0
        assert stats.paired_permutation_test(np.full(floor, 0.1), np.zeros(floor)).p_value < alpha
        assert stats.paired_permutation_test(np.full(floor - 1, 0.1), np.zeros(floor - 1)).p_value > alpha
    assert stats.power_analysis([0.0] * 9).needed == math.inf


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(-1, 1).map(lambda score: round(score, 9)), min_size=2, max_size=30), st.floats(0.1, 50))
def test_sign_and_unit_of_the_scores_do_not_matter(differences, unit):
    found, other = (stats.power_analysis(np.array(differences) * f, resamples=0) for f in (1, -unit))
    assert other.power == pytest.approx(found.power, rel=1e-6, nan_ok=True)
    assert other.sd == pytest.approx(found.sd * unit, rel=1e-9)
    if math.isfinite(found.needed) and math.isfinite(other.needed):
        assert abs(other.needed - found.needed) <= 1e-6 * found.needed + 1


def test_said_in_one_line():
    text = str(stats.power_analysis(pairs(50, 0.5, 1.0)))
    assert "+0.5 (sd 1) over 50 questions" in text
    assert "power 0.8 takes 34 questions [" in text
    assert "more than 10,000,000" in str(stats.power_analysis(pairs(50, 0.0, 1.0)))


test_what_cannot_work_is_said = refusals(
    (lambda: stats.power_analysis([1, 2], [1]), DataError, "lengths that differ: a 2, b 1"),
    (lambda: stats.power_analysis([math.inf, 1]), DataError, "infinite a"),
    (lambda: stats.power_analysis(["x"]), DataError, "not numbers"),
    (lambda: stats.power_analysis([1, 2], power=0.04), "power 0.04"),
    (lambda: stats.power_analysis([1, 2], alpha=0), "alpha 0"),
    (lambda: stats.power_analysis([1, 2], difference=math.inf), "difference inf"),
)
