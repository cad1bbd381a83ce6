"""Is the difference between two systems more than chance, and how many questions would show it?

`power_analysis` estimates the spread of differences from a run, and takes the difference that
matters from you.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import root_scalar

from ragbench.errors import ConfigError
from ragbench.stats.inputs import Seed, as_floats, as_paired, group_index

# Up to this many pairs all 2^n sign patterns are counted.
_EXACT = 16
_BLOCK = 4_000_000
_MAX_QUESTIONS = 10_000_000  # more questions than this are reported as inf: nobody will write them


@dataclass(frozen=True, slots=True)
class PermutationTest:
    """Result of a paired permutation test.

    ``exact``: all sign patterns were counted, not a sample of them.
    """

    difference: float
    p_value: float
    n: int
    n_missing: int
    exact: bool


def paired_permutation_test(
    a: Any, b: Any, *, cluster: Any = None, resamples: int = 10_000, seed: Seed = 0
) -> PermutationTest:
    """Test (two-sided) whether two systems have the same mean score, by flipping signs of their
    differences.

    Parameters
    ----------
    a, b : scores of two systems, shape (n,), in the same order of questions. A pair with a missing
        side is left out.
    cluster : labels, shape (n,): the signs of questions that share one (a document, a topic) are
        flipped together. A question without a label is a cluster of its own, with a warning.
    resamples : random sign patterns; with up to 16 pairs (or clusters) all 2**n patterns are
        counted instead.

    The p-value is that of ``scipy.stats.permutation_test``: of a sample of patterns never 0; NaN
    without pairs.

    The test supposes that differences are as likely to be d as -d. Where they are skewed (one
    system seldom, but then much better), it errs in up to 35 of 100 cases (docs/metrics.md);
    `paired_difference`, which the tables of comparisons have, holds there from 30 questions on.

    Source: Fisher's randomisation test; Smucker et al. (2007) for retrieval; Phipson & Smyth (2010)
    for random patterns.

    >>> rb.paired_permutation_test([5, 4, 5, 4, 5, 5], [3, 4, 4, 2, 4, 3]).p_value
    0.0625
    """
    from scipy.stats import permutation_test  # slow to import

    if resamples < 1:
        raise ConfigError(f"resamples {resamples}", "1 or more random sign patterns")
    differences = np.subtract(*as_paired(a=a, b=b))
    present = ~np.isnan(differences)
    index = group_index(cluster, present.size, present)
    differences = differences[present]
    sums = np.bincount(index, differences)
    exact = sums.size <= _EXACT
    p_value = math.nan
    if sums.size == 1:  # both patterns are as far from 0
        p_value = 1.0
    elif sums.size:
        test = permutation_test(
            (sums,),
            np.sum,
            permutation_type="samples",
            vectorized=True,
            n_resamples=2**sums.size if exact else resamples,
            batch=max(1, _BLOCK // sums.size),
            rng=np.random.default_rng(seed),
        )
        p_value = float(test.pvalue)
    n = differences.size
    difference = float(differences.mean()) if n else math.nan
    return PermutationTest(difference, p_value, n, present.size - n, exact)


def holm(p_values: Any) -> np.ndarray:
    """Holm's step-down adjustment of p-values for several tests, in the given order, at most 1.

        adjusted of the i-th smallest of m = max over j <= i of (m - j + 1) * p_j

    Those below alpha are rejected with a family-wise error of at most alpha. NaN stands for a test
    that was not made and is not counted.

    Source: Holm (1979), Scandinavian Journal of Statistics 6.

    >>> holm([0.01, 0.04, 0.03, 0.005]).round(3).tolist()
    [0.03, 0.06, 0.06, 0.02]
    """
    p = as_floats(p_values, "p-values")
    m = int((~np.isnan(p)).sum())
    order = np.argsort(p, kind="stable")[:m]  # NaN come last
    factor = np.arange(m, 0, -1)
    largest_so_far = np.maximum.accumulate(p[order] * factor)
    adjusted = np.full(p.size, np.nan)
    adjusted[order] = largest_so_far.clip(max=1)
    return adjusted


# How many questions


@dataclass(frozen=True, slots=True)
class PowerAnalysis:
    """What a paired comparison could find, and would need.

    With clusters, ``n`` and ``needed`` count clusters.
    """

    n: int  # pairs used, or clusters of them
    n_missing: int  # pairs left out since a side is missing
    difference: float  # that power and needed are reckoned for
    sd: float  # of the differences, or of the clusters' means (n - 1); NaN with fewer than two
    power: float  # chance that a new run of n finds ``difference``
    # n at which that chance is ``target``; inf for a difference of 0, NaN without an sd
    needed: float
    # smallest difference that n find with chance ``target``; NaN without an sd, or for 0
    detectable: float


def power_analysis(
    a: Any,
    b: Any = None,
    *,
    difference: float,
    cluster: Any = None,
    power: float = 0.8,
    alpha: float = 0.05,
) -> PowerAnalysis:
    """Say how many questions would show a difference that matters, from the spread of a run's
    paired differences.

    Parameters
    ----------
    a, b : scores of two systems over the same questions, shape (n,); or ``a`` alone: their
        differences. A pair with a missing side is left out and counted.
    difference : the smallest difference that matters to you. The difference that a
        small run happened to show is no plan: with pilots of 30 questions, a quarter to nearly half
        of the runs so planned have a power below 0.6 for 0.8.
    cluster : labels, shape (n,), of questions that belong together (a document, a topic).
        The means of clusters are then what varies, and clusters are counted.
    power : chance of finding it. alpha : level of the test; divide it by the number of comparisons.

    Undefined values are NaN. ``needed`` is at least what a permutation test needs to reach alpha at
    all (6 at 0.05); inf for a difference of 0, or more than ten million. Where one system wins
    seldom (shares that differ in few questions), the power is 0.67 to 0.78 for 0.8: ask for 0.9.

    Source: noncentral t distribution, Cohen (1988), chapter 2; the floor is that of an exact
    permutation test, whose smallest two-sided p-value is 2 / 2**n. The simulation is
    ``benchmarks/sim_intervals.py``.

    >>> power_analysis([0.6, 0.4, 0.5, 0.1, 0.9], [0.5, 0.5, 0.4, 0.2, 0.4], difference=0.1).needed
    50.0
    """
    if not 0 < alpha < power < 1:
        raise ConfigError(
            f"alpha {alpha!r}, power {power!r}", "0 < alpha < power < 1, e.g. 0.05 and 0.8"
        )
    differences = as_floats(a, "a")
    if b is not None:
        differences = np.subtract(*as_paired(a=a, b=b))
    present = ~np.isnan(differences)
    index = group_index(cluster, present.size, present)
    means = np.bincount(index, differences[present]) / np.bincount(index)
    n = means.size
    sd = _spread(means)
    return PowerAnalysis(
        n=n,
        n_missing=int(np.isnan(differences).sum()),
        difference=float(difference),
        sd=sd,
        power=_power(n, difference, sd, alpha),
        needed=_needed(difference, sd, power, alpha),
        detectable=_detectable(n, sd, power, alpha),
    )


def _spread(means: np.ndarray) -> float:
    """Standard deviation; 0 for equal values, whose rounding noise would look like power."""
    if means.size < 2:
        return math.nan
    sd = float(means.std(ddof=1))
    if sd <= 1e-12 * np.abs(means).max():
        return 0.0
    return sd


def _power(n: int, difference: float, sd: float, alpha: float) -> float:
    """Chance that a two-sided paired t test on n questions finds a true mean difference.

    With sd 0 it is 1 from `_floor` questions on, before that 0.
    """
    from scipy.stats import nct, t  # slow to import

    if math.isnan(sd) or n < 2:
        return math.nan
    if difference == 0:
        return alpha
    if sd == 0:
        return float(n >= _floor(alpha))
    critical = t.isf(alpha / 2, n - 1)
    shift = abs(difference) / sd * np.sqrt(n)
    right_tail = nct.sf(critical, n - 1, shift)
    wrong_tail = 0.0
    # From a shift of 5 on it holds less than 1e-8, and scipy gives NaN for some of it.
    if shift < 5:
        wrong_tail = nct.cdf(-critical, n - 1, shift)
    return float(right_tail + wrong_tail)


def _needed(difference: float, sd: float, power: float, alpha: float) -> float:
    """Smallest number of questions at which a paired comparison finds a difference."""
    if math.isnan(sd):
        return math.nan
    # Ten million questions find what is 1/1000 of an sd: below, the search is not worth its time.
    if difference == 0 or abs(difference) < sd * 2 / math.sqrt(_MAX_QUESTIONS):
        return math.inf
    high = 2
    while _power(high, difference, sd, alpha) < power:
        high *= 2
    sizes = range(high + 1)
    least = bisect_left(sizes, power, lo=2, key=lambda n: _power(n, difference, sd, alpha))
    return float(max(least, _floor(alpha)))


def _detectable(n: int, sd: float, power: float, alpha: float) -> float:
    """Smallest difference found with a given chance.

    NaN for sd 0, which says nothing of how pairs would spread.
    """
    if n < 2 or math.isnan(sd) or sd == 0:
        return math.nan
    high = 1.0  # in standard deviations
    while _power(n, high, 1.0, alpha) < power:
        high *= 2
    found = root_scalar(lambda d: _power(n, d, 1.0, alpha) - power, bracket=(1e-9, high), xtol=1e-9)
    return sd * found.root


def _floor(alpha: float) -> int:
    """Questions from which a permutation test can reach alpha."""
    return math.ceil(1 - math.log2(alpha))
