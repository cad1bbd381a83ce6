"""Is the difference between two systems more than chance, and how many questions would show it?

`paired_power` and `questions_needed` take a difference and a standard deviation; `power_analysis`
estimates the second from the per-question differences of a run, and takes the first from you: the
difference that matters.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import brentq

from ragbench.errors import ConfigError, DataError
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
    resamples: int
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
    flipped together. A
        question without a label is a cluster of its own, with a warning.
    resamples : random sign patterns; with up to 16 pairs (or clusters) all 2**n patterns are
    counted instead.

    The p-value of a sample of patterns is (hits + 1) / (resamples + 1), never 0; NaN without pairs.

    The test supposes that differences are as likely to be d as -d. Where they are skewed (one
    system seldom, but then much better), a test at 0.05 errs more often: docs/metrics.md has the
    numbers. Dividing by the standard deviation would change nothing: the sum of squares is the same
    for every pattern of signs.

    Source: Fisher's randomisation test; Smucker et al. (2007) for retrieval; Phipson & Smyth (2010)
    for the + 1.
    """
    if resamples < 1:
        raise ConfigError(f"resamples {resamples}", "1 or more random sign patterns")
    pairs = np.subtract(*as_paired(a=a, b=b))
    present = ~np.isnan(pairs)
    differences = pairs[present]
    n = differences.size
    missing = int((~present).sum())
    if not n:
        return PermutationTest(float("nan"), float("nan"), 0, missing, 0, False)
    index, _ = group_index(cluster, pairs.size, present, sort=True)
    sums = np.bincount(index, differences)
    exact = sums.size <= _EXACT
    total = 2**sums.size if exact else resamples
    hits = sum(
        _as_far(sums, signs) for signs in _sign_patterns(sums.size, total, seed, exact=exact)
    )
    p_value = hits / total if exact else (hits + 1) / (total + 1)
    return PermutationTest(float(differences.mean()), p_value, n, missing, total, exact)


def _sign_patterns(size: int, total: int, seed: Seed, *, exact: bool) -> Iterator[np.ndarray]:
    """Yield blocks of patterns, shape (patterns, size): 1 where a sign is flipped.

    Not scipy.stats.permutation_test: it draws other patterns, so every recorded p-value would move,
    and it takes 14 times as long for 500 questions. A test compares the two.
    """
    rng = np.random.default_rng(seed)
    block = max(1, _BLOCK // size)
    for start in range(0, total, block):
        rows = min(block, total - start)
        if exact:
            yield (np.arange(start, start + rows)[:, None] >> np.arange(size)) & 1
        else:
            width = -(-size // 8)
            random_bytes = np.frombuffer(rng.bytes(rows * width), np.uint8).reshape(rows, width)
            yield np.unpackbits(random_bytes, axis=1, count=size)


def _as_far(sums: np.ndarray, flips: np.ndarray) -> int:
    """Count the patterns whose sum is at least as far from 0 as the observed one.

    Sums of the same numbers in another order differ in the last bits; they count as equal.
    """
    observed = sums.sum()
    slack = 1e-12 * np.abs(sums).sum()
    flipped = observed - 2 * (flips @ sums)
    return int((np.abs(flipped) >= abs(observed) - slack).sum())


def holm(p_values: Any) -> np.ndarray:
    """Holm's step-down adjustment of p-values for several tests, in the given order, at most 1.

    Those below alpha are rejected with a family-wise error of at most alpha. NaN stands for a test
    that was not made and is not counted.

    Source: Holm (1979), Scandinavian Journal of Statistics 6.

    >>> holm([0.01, 0.04, 0.03, 0.005]).round(3).tolist()
    [0.03, 0.06, 0.06, 0.02]
    """
    p = as_floats(p_values, "p-values")
    known = np.flatnonzero(~np.isnan(p))
    if ((p[known] < 0) | (p[known] > 1)).any():
        raise DataError("p-values outside [0, 1]", "probabilities")
    result = np.full(p.size, np.nan)
    order = known[np.argsort(p[known], kind="stable")]
    factors = np.arange(order.size, 0, -1)
    result[order] = np.minimum(np.maximum.accumulate(p[order] * factors), 1.0)
    return result


# How many questions


def paired_power(n: int, difference: float, sd: float, alpha: float = 0.05) -> float:
    """Chance that a two-sided paired t test on n questions finds a true mean difference.

    ``sd`` is the standard deviation of the per-question differences. NaN without a difference, an
    sd or two questions; alpha for a difference of 0; with sd 0 it is 1 from `_floor` questions on,
    before that 0.

    Source: noncentral t distribution; Cohen (1988), chapter 2.
    """
    from scipy.stats import nct, t  # slow to import

    _check_levels(alpha)
    if math.isnan(difference) or math.isnan(sd) or n < 2:
        return math.nan
    if difference == 0:
        return alpha
    if sd == 0:
        return float(n >= _floor(alpha))
    critical = t.isf(alpha / 2, n - 1)
    shift = abs(difference) / sd * np.sqrt(n)
    # From a shift of 5 on the wrong tail holds less than 1e-8, and scipy gives NaN for some of it.
    wrong = nct.cdf(-critical, n - 1, shift) if shift < 5 else 0.0
    return float(nct.sf(critical, n - 1, shift) + wrong)


def questions_needed(
    difference: float, sd: float, power: float = 0.8, alpha: float = 0.05
) -> float:
    """Smallest number of questions at which a paired comparison finds a difference.

    ``difference`` is the mean difference worth finding, ``sd`` the standard deviation of the
    per-question differences (of a pilot run), ``power`` the chance of finding it. Divide ``alpha``
    by the number of comparisons. At least as many as a permutation test needs to reach alpha at all
    (6 at 0.05), also for sd 0; inf for a difference of 0 or more than ten million questions; NaN
    when difference or sd is.

    >>> questions_needed(0.5, 1.0)
    34.0
    """
    _check_levels(alpha, power)
    if math.isnan(difference) or math.isnan(sd):
        return math.nan
    # Ten million questions find what is 1/1000 of an sd: below, the search is not worth its time.
    if difference == 0 or (sd > 0 and abs(difference) / sd < 2 / math.sqrt(_MAX_QUESTIONS)):
        return math.inf
    high = 2
    while paired_power(high, difference, sd, alpha) < power:
        high *= 2
    sizes = range(high // 2 + 1, high + 1)
    least = sizes[
        bisect_left(
            sizes, power, hi=len(sizes) - 1, key=lambda n: paired_power(n, difference, sd, alpha)
        )
    ]
    return float(max(least, _floor(alpha)))


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
    needed: (
        float  # n at which that chance is ``target``; inf for a difference of 0, NaN without an sd
    )
    detectable: (
        float  # smallest difference that n find with chance ``target``; NaN without an sd, or for 0
    )
    target: float  # the power wanted
    alpha: float  # the level of the test
    clustered: bool = False

    def __str__(self) -> str:
        units = "clusters" if self.clustered else "questions"
        if math.isnan(self.needed):
            return (
                f"{self.n} {units}, {self.n_missing} pairs missing: too few to say how many "
                "are needed"
            )
        design = f"a difference of {self.difference:+.4g} (sd {self.sd:.3g}) over {self.n} {units}"
        return (
            f"{design} has power {self.power:.2f}; power {self.target:g} takes "
            f"{_count(self.needed)} {units}"
        )


def _count(n: float) -> str:
    return f"{n:,.0f}" if math.isfinite(n) else f"more than {_MAX_QUESTIONS:,}"


def power_analysis(
    a: Any,
    b: Any = None,
    *,
    difference: float | None = None,
    cluster: Any = None,
    power: float = 0.8,
    alpha: float = 0.05,
) -> PowerAnalysis:
    """Say how many questions would show a difference that matters, from the spread of a run's
    paired differences.

    Parameters
    ----------
    a, b : scores of two systems over the same questions, shape (n,); or ``a`` alone: their
    differences. A pair with a
        missing side is left out and counted.
    difference : the smallest difference that matters to you; must be given. The difference that a
    small run happened to
        show is no plan: with pilots of 30 questions, a third to nearly half of the runs so planned
        have a power below
        0.6 for 0.8.
    cluster : labels, shape (n,), of questions that stand or fall together (a document, a topic).
    The means of clusters
        are then what varies, and clusters are counted.
    power : chance of finding it. alpha : as for `questions_needed`.

    Undefined values are NaN. Limits: see `questions_needed`; where one system wins seldom (shares
    that differ in few questions), the power is 0.67 to 0.78 for 0.8, so ask for 0.9.

    Source: noncentral t distribution, Cohen (1988), chapter 2; the floor is that of an exact
    permutation test, whose smallest two-sided p-value is 2 / 2**n. The simulation is
    ``benchmarks/sim_intervals.py``.

    >>> power_analysis([0.6, 0.4, 0.5, 0.1, 0.9], [0.5, 0.5, 0.4, 0.2, 0.4], difference=0.1).needed
    50.0
    """
    _check_levels(alpha, power)
    if difference is None or not math.isfinite(difference):
        do = "difference=0.05, say: the one that a small run shows is too uncertain to plan by"
        raise ConfigError(f"difference {difference!r}", "the smallest difference that matters", do)
    pairs = as_floats(a, "a") if b is None else np.subtract(*as_paired(a=a, b=b))
    values = _cluster_means(pairs, cluster)
    sd = spread(pairs, cluster)
    return PowerAnalysis(
        n=values.size,
        n_missing=int(np.isnan(pairs).sum()),
        difference=float(difference),
        sd=sd,
        power=paired_power(values.size, difference, sd, alpha),
        needed=questions_needed(difference, sd, power, alpha),
        detectable=_detectable(values.size, sd, power, alpha),
        target=power,
        alpha=alpha,
        clustered=cluster is not None,
    )


def detectable_difference(
    differences: Any, cluster: Any = None, power: float = 0.8, alpha: float = 0.05
) -> float:
    """Return the smallest difference that as many questions (or clusters) find with a given chance.

    It depends on the spread of the differences alone, not on their mean. NaN for fewer than two, or
    equal ones.
    """
    _check_levels(alpha, power)
    values = _cluster_means(as_floats(differences), cluster)
    return _detectable(values.size, spread(differences, cluster), power, alpha)


def _cluster_means(pairs: np.ndarray, cluster: Any) -> np.ndarray:
    """Return the mean of each cluster, in which each pair is present;

    without clusters the pairs themselves.
    """
    present = ~np.isnan(pairs)
    index, _ = group_index(cluster, pairs.size, present)
    return np.bincount(index, pairs[present]) / np.bincount(index)


def _detectable(n: int, sd: float, power: float, alpha: float) -> float:
    """Smallest difference found with a given chance;

    NaN for sd 0, which says nothing of how pairs would spread.
    """
    if n < 2 or math.isnan(sd) or sd == 0:
        return math.nan
    high = 1.0  # in standard deviations
    while paired_power(n, high, 1.0, alpha) < power:
        high *= 2
    return sd * float(
        brentq(lambda d: paired_power(n, d, 1.0, alpha) - power, 1e-9, high, xtol=1e-9)
    )


def spread(differences: Any, cluster: Any = None) -> float:
    """Standard deviation of paired differences, or of the clusters' means; NaN with fewer than two.

    Exactly 0 for equal values, whose rounding noise would look like power.
    """
    values = _cluster_means(as_floats(differences), cluster)
    if values.size < 2:
        return math.nan
    sd = float(values.std(ddof=1))
    return 0.0 if sd <= 1e-12 * float(np.abs(values).max()) else sd


def _floor(alpha: float) -> int:
    """Questions from which a permutation test can reach alpha."""
    return math.ceil(1 - math.log2(alpha))


def _check_levels(alpha: float, power: float | None = None) -> None:
    if not 0 < alpha < 1:
        raise ConfigError(f"alpha {alpha!r}", "between 0 and 1, e.g. 0.05")
    if power is not None and not alpha < power < 1:
        raise ConfigError(f"power {power!r}", f"between alpha ({alpha}) and 1, e.g. 0.8")
