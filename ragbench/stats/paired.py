"""Is the difference between two systems more than chance, and how many questions would show it?

`paired_power` and `questions_needed` take a difference and a standard deviation; `power_analysis` estimates both from
the per-question differences of a run.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import brentq

from ragbench.errors import ConfigError, DataError
from ragbench.stats.inputs import Seed, as_floats, as_paired, same_length
from ragbench.stats.intervals import paired_bootstrap_difference

# Up to this many pairs all 2^n sign patterns are counted.
_EXACT = 16
_BLOCK = 4_000_000
_MAX_QUESTIONS = 10_000_000  # more questions than this are reported as inf: nobody will write them


@dataclass(frozen=True, slots=True)
class _PermutationTest:
    """Result of a paired permutation test. ``exact``: all sign patterns were counted, not a sample of them."""

    difference: float
    p_value: float
    n: int
    n_missing: int
    resamples: int
    exact: bool


def paired_permutation_test(
    a: Any, b: Any, *, cluster: Any = None, resamples: int = 10_000, seed: Seed = 0
) -> _PermutationTest:
    """Test (two-sided) whether two systems have the same mean score, by flipping signs of their differences.

    Parameters
    ----------
    a, b : scores of two systems, shape (n,), in the same order of questions. A pair with a missing side is left out.
    cluster : labels, shape (n,): the signs of questions that share one (a document, a topic) are flipped together.
    resamples : random sign patterns; with up to 16 pairs (or clusters) all 2**n patterns are counted instead.

    The p-value of a sample of patterns is (hits + 1) / (resamples + 1), never 0; NaN without pairs.

    Source: Fisher's randomisation test; Smucker et al. (2007) for retrieval; Phipson & Smyth (2010) for the + 1.
    """
    if resamples < 1:
        raise ConfigError(f"resamples {resamples}", "1 or more random sign patterns")
    both = np.subtract(*as_paired(a=a, b=b))
    d = both[~np.isnan(both)]
    pairs, missing = d.size, int(both.size - d.size)
    if not pairs:
        return _PermutationTest(float("nan"), float("nan"), 0, missing, 0, False)
    mean = float(d.mean())
    if cluster is not None:
        same_length(a=a, cluster=cluster)
        d = np.bincount(np.unique(np.asarray(cluster)[~np.isnan(both)], return_inverse=True)[1], d)
    exact = d.size <= _EXACT
    total = 2**d.size if exact else resamples
    # Not scipy.stats.permutation_test: it draws other patterns, so every recorded p-value would move, and it takes 14
    # times as long for 500 questions. A test compares the two.
    # Sums of the same numbers in another order differ in the last bits; they must count as equal.
    observed, slack = d.sum(), 1e-12 * np.abs(d).sum()
    hits, rng = 0, np.random.default_rng(seed)
    block = max(1, _BLOCK // d.size)
    for start in range(0, total, block):
        rows = min(block, total - start)
        if exact:
            flips = (np.arange(start, start + rows)[:, None] >> np.arange(d.size)) & 1
        else:
            width = -(-d.size // 8)
            bits = np.frombuffer(rng.bytes(rows * width), np.uint8).reshape(rows, width)
            flips = np.unpackbits(bits, axis=1, count=d.size)
        hits += int((np.abs(observed - 2 * (flips @ d)) >= abs(observed) - slack).sum())
    return _PermutationTest(mean, hits / total if exact else (hits + 1) / (total + 1), pairs, missing, total, exact)


def holm(p_values: Any) -> np.ndarray:
    """Holm's step-down adjustment of p-values for several tests, in the given order, at most 1.

    Those below alpha are rejected with a family-wise error of at most alpha. NaN stands for a test that was not made
    and is not counted.

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

    ``sd`` is the standard deviation of the per-question differences. NaN without a difference, an sd or two questions;
    alpha for a difference of 0; with sd 0 it is 1 from `_floor` questions on, before that 0.

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


def questions_needed(difference: float, sd: float, power: float = 0.8, alpha: float = 0.05) -> float:
    """Smallest number of questions at which a paired comparison finds a difference.

    ``difference`` is the mean difference worth finding, ``sd`` the standard deviation of the per-question differences
    (of a pilot run), ``power`` the chance of finding it. Divide ``alpha`` by the number of comparisons. At least as
    many as a permutation test needs to reach alpha at all (6 at 0.05), also for sd 0; inf for a difference of 0 or more
    than ten million questions; NaN when difference or sd is.

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
    least = sizes[bisect_left(sizes, power, hi=len(sizes) - 1, key=lambda n: paired_power(n, difference, sd, alpha))]
    return float(max(least, _floor(alpha)))


@dataclass(frozen=True, slots=True)
class _PowerAnalysis:
    """What a paired comparison found, could have found, and would need."""

    n: int  # pairs used
    n_missing: int  # pairs left out since a side is missing
    difference: float  # that power and questions are reckoned for: the mean of the pairs, or the one asked for
    low: float  # 95% bootstrap interval of the mean of the pairs
    high: float
    sd: float  # of the differences (n - 1); NaN with fewer than two pairs
    power: float  # chance that a new run of n questions finds ``difference``
    needed: float  # questions at which that chance is ``target``; inf for a difference of 0, NaN without an sd
    needed_low: float  # the same at the ends of the interval; inf when it holds 0, NaN when a difference was asked for
    needed_high: float
    detectable: float  # smallest difference that n questions find with chance ``target``; NaN without an sd, or for 0
    target: float  # the power wanted
    alpha: float  # the level of the test

    def __str__(self) -> str:
        if math.isnan(self.needed):
            return f"{self.n} pairs, {self.n_missing} missing: too few to say how many questions are needed"
        design = f"a difference of {self.difference:+.4g} (sd {self.sd:.3g}) over {self.n} questions"
        enough = f"has power {self.power:.2f}; power {self.target:g} takes {_count(self.needed)} questions"
        spread = f" [{_count(self.needed_low)}, {_count(self.needed_high)}]" if not math.isnan(self.needed_low) else ""
        return f"{design} {enough}{spread}"


def _count(n: float) -> str:
    return f"{n:,.0f}" if math.isfinite(n) else f"more than {_MAX_QUESTIONS:,}"


def power_analysis(
    a: Any,
    b: Any = None,
    *,
    difference: float | None = None,
    power: float = 0.8,
    alpha: float = 0.05,
    resamples: int = 2000,
    seed: Seed = 0,
) -> _PowerAnalysis:
    """Say how many questions would show a difference, from the paired differences of a run.

    Parameters
    ----------
    a, b : scores of two systems over the same questions, shape (n,); or ``a`` alone: their differences. A pair with a
        missing side is left out and counted.
    difference : the difference worth finding; default the mean of the pairs. The default makes ``power`` a restatement
        of the p-value (it is near 0.5 where p is near alpha): use it to plan the next run, not to judge this one.
    power : chance of finding it. alpha : as for `questions_needed`. resamples, seed : of the interval.

    Undefined values are NaN: everything without pairs, all but the difference with one. Limits: see `questions_needed`.

    Source: noncentral t distribution, Cohen (1988), chapter 2; the floor is that of an exact permutation test, whose
    smallest two-sided p-value is 2 / 2**n.
    """
    _check_levels(alpha, power)
    if difference is not None and not math.isfinite(difference):
        raise ConfigError(f"difference {difference!r}", "a finite number, or None for the mean of the pairs")
    both = as_floats(a, "a") if b is None else np.subtract(*as_paired(a=a, b=b))
    mean = paired_bootstrap_difference(both, np.zeros(both.size), resamples=resamples, seed=seed)
    wanted, sd = mean.estimate if difference is None else float(difference), _spread(both)
    ends = [math.nan, math.nan]
    if difference is None and not math.isnan(mean.low):  # the difference farthest from 0, and the nearest
        sides = sorted(map(abs, (mean.low, mean.high)))
        ends = [
            questions_needed(d, sd, power, alpha) for d in (sides[1], 0.0 if mean.low <= 0 <= mean.high else sides[0])
        ]
    reached, detectable = paired_power(mean.n, wanted, sd, alpha), _detectable(mean.n, sd, power, alpha)
    pairs = mean.n, mean.n_missing, wanted, mean.low, mean.high, sd
    return _PowerAnalysis(*pairs, reached, questions_needed(wanted, sd, power, alpha), *ends, detectable, power, alpha)


def _detectable(n: int, sd: float, power: float, alpha: float) -> float:
    """Smallest difference found with a given chance; NaN for sd 0, which says nothing of how pairs would spread."""
    if n < 2 or math.isnan(sd) or sd == 0:
        return math.nan
    high = 1.0
    while paired_power(n, high, 1.0, alpha) < power:
        high *= 2
    return sd * float(brentq(lambda d: paired_power(n, d, 1.0, alpha) - power, 1e-9, high, xtol=1e-9))


def _spread(differences: np.ndarray) -> float:
    """Standard deviation of what is there; exactly 0 for equal values, whose rounding noise would look like power."""
    d = differences[~np.isnan(differences)]
    if d.size < 2:
        return math.nan
    sd = float(d.std(ddof=1))
    return 0.0 if sd <= 1e-12 * float(np.abs(d).max()) else sd


def _floor(alpha: float) -> int:
    """Questions from which a permutation test can reach alpha."""
    return math.ceil(1 - math.log2(alpha))


def _check_levels(alpha: float, power: float | None = None) -> None:
    if not 0 < alpha < 1:
        raise ConfigError(f"alpha {alpha!r}", "between 0 and 1, e.g. 0.05")
    if power is not None and not alpha < power < 1:
        raise ConfigError(f"power {power!r}", f"between alpha ({alpha}) and 1, e.g. 0.8")
