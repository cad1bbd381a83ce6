"""How many questions a comparison needs: the power of a paired test.

The design calculation (`paired_power`, `questions_needed`, `detectable_difference`) takes a difference and a standard
deviation. `power_analysis` estimates both from the per-question differences of a run, and says beside it what that
estimate leaves open.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import brentq

from ragbench.errors import ConfigError
from ragbench.stats.inputs import Seed, as_floats, as_paired
from ragbench.stats.intervals import bootstrap_ci

_MOST = 10_000_000  # more questions than this are reported as inf: nobody will write them


def paired_power(n: int, difference: float, sd: float, alpha: float = 0.05) -> float:
    """Chance that a two-sided paired t test on n questions finds a true mean difference.

    Parameters
    ----------
    n : number of questions, 2 or more.
    difference : true mean difference between the systems.
    sd : standard deviation of the per-question differences.
    alpha : level of the test.

    Returns
    -------
    float in (alpha, 1].

    Source: noncentral t distribution; Cohen (1988), chapter 2.
    """
    from scipy.stats import nct, t  # slow to import

    _check_design(difference, sd, alpha)
    if n < 2 or n != int(n):
        raise ConfigError(f"n {n!r}", "a whole number of questions, 2 or more")
    critical = t.isf(alpha / 2, n - 1)
    shift = abs(difference) / sd * np.sqrt(n)
    # From a shift of 5 on the wrong tail holds less than 1e-8, and scipy gives NaN for some of it.
    wrong = nct.cdf(-critical, n - 1, shift) if shift < 5 else 0.0
    return float(nct.sf(critical, n - 1, shift) + wrong)


def questions_needed(difference: float, sd: float, power: float = 0.8, alpha: float = 0.05) -> int:
    """Smallest number of questions at which a paired comparison finds a difference.

    Parameters
    ----------
    difference : the mean difference worth finding, e.g. 0.02 of IR score.
    sd : standard deviation of the per-question differences, e.g. from a pilot run.
    power : chance of finding it.
    alpha : level of the two-sided test; divide it by the number of comparisons when there are several.

    Returns
    -------
    int, the smallest n with :func:`paired_power` at least ``power``.

    Raises
    ------
    ConfigError for a difference of 0, or an ``sd``, ``power`` or ``alpha`` out of range.

    >>> questions_needed(0.5, 1.0)
    34
    """
    _check_design(difference, sd, alpha)
    _check_levels(alpha, power)
    high = 2
    while paired_power(high, difference, sd, alpha) < power:
        high *= 2
    sizes = range(high // 2 + 1, high + 1)
    return sizes[bisect_left(sizes, power, hi=len(sizes) - 1, key=lambda n: paired_power(n, difference, sd, alpha))]


@dataclass(frozen=True, slots=True)
class PowerAnalysis:
    """What a paired comparison found, could have found, and would need.

    Attributes
    ----------
    n, n_missing : pairs used, and pairs left out since a side is missing.
    difference : the difference that power and questions are reckoned for: the mean of the pairs, or the one asked for.
    low, high : 95% bootstrap interval of the mean of the pairs.
    sd : standard deviation of the differences (n - 1); NaN with fewer than two pairs.
    power : chance that a new run of n questions finds ``difference``.
    needed : questions at which that chance is ``target``; inf for a difference of 0, NaN without an sd.
    needed_low, needed_high : the same at the ends of the interval: the difference may be as large, or as small, as
        they say; inf when the interval holds 0. NaN when a difference was asked for, which has no interval.
    detectable : smallest difference that n questions find with chance ``target``; NaN without an sd, or for sd 0.
    target, alpha : the power wanted and the level of the test.
    """

    n: int
    n_missing: int
    difference: float
    low: float
    high: float
    sd: float
    power: float
    needed: float
    needed_low: float
    needed_high: float
    detectable: float
    target: float
    alpha: float

    def __str__(self) -> str:
        if math.isnan(self.needed):
            return f"{self.n} pairs, {self.n_missing} missing: too few to say how many questions are needed"
        design = f"a difference of {self.difference:+.4g} (sd {self.sd:.3g}) over {self.n} questions"
        enough = f"has power {self.power:.2f}; power {self.target:g} takes {_count(self.needed)} questions"
        spread = f" [{_count(self.needed_low)}, {_count(self.needed_high)}]" if not math.isnan(self.needed_low) else ""
        return f"{design} {enough}{spread}"


def power_analysis(
    a: Any,
    b: Any = None,
    *,
    difference: float | None = None,
    power: float = 0.8,
    alpha: float = 0.05,
    resamples: int = 2000,
    seed: Seed = 0,
) -> PowerAnalysis:
    """Say how many questions would show a difference, from the paired differences of a run.

    Parameters
    ----------
    a, b : scores of two systems over the same questions, shape (n,); or ``a`` alone: their differences. NaN and None
        are missing: the pair is left out and counted.
    difference : the difference worth finding; default the mean of the pairs. The default makes ``power`` a restatement
        of the p-value (it is near 0.5 where p is near alpha): use it to plan the next run, not to judge this one.
    power : chance of finding it, between alpha and 1.
    alpha : level of the two-sided test; divide it by the number of comparisons when there are several.
    resamples, seed : of the interval.

    Returns
    -------
    PowerAnalysis. Undefined values are NaN: everything without pairs, all but the difference with one. All pairs
    differing by the same amount (sd 0) need only as many questions as a permutation test needs to reach alpha at all
    (6 at 0.05); a difference of 0, or more than ten million questions, is inf.

    Raises
    ------
    DataError for infinite scores, text or different lengths; ConfigError for an impossible power, alpha or difference.

    Source: noncentral t distribution, Cohen (1988), chapter 2; the floor is that of an exact permutation test, whose
    smallest two-sided p-value is 2 / 2**n.
    """
    _check_levels(alpha, power)
    if difference is not None and not math.isfinite(difference):
        raise ConfigError(f"difference {difference!r}", "a finite number, or None for the mean of the pairs")
    both = as_floats(a, "a") if b is None else np.subtract(*as_paired(a=a, b=b))
    mean = bootstrap_ci(both, resamples=resamples, seed=seed)
    wanted = mean.estimate if difference is None else float(difference)
    sd = _spread(both)
    needed = [questions_for(d, sd, power, alpha) for d in (wanted, *_ends(mean.low, mean.high))]
    if difference is not None or math.isnan(mean.low):
        needed[1:] = [math.nan, math.nan]
    reached, detectable = power_at(mean.n, wanted, sd, alpha), detectable_difference(mean.n, sd, power, alpha)
    return PowerAnalysis(
        mean.n, mean.n_missing, wanted, mean.low, mean.high, sd, reached, *needed, detectable, power, alpha
    )


def power_at(n: int, difference: float, sd: float, alpha: float = 0.05) -> float:
    """Chance that n questions show a difference, with the limits that `paired_power` refuses.

    Returns
    -------
    float in [0, 1]: NaN without a difference, an sd or two questions; alpha for a difference of 0; with sd 0 it is
    1 as soon as n reaches the floor of a permutation test, else 0.
    """
    if math.isnan(difference) or math.isnan(sd) or n < 2:
        return math.nan
    if difference == 0:
        return alpha
    return float(n >= _floor(alpha)) if sd == 0 else paired_power(n, difference, sd, alpha)


def questions_for(difference: float, sd: float, power: float = 0.8, alpha: float = 0.05) -> float:
    """Questions at which a difference is found with a given chance, with the limits `questions_needed` refuses.

    Returns
    -------
    float, a whole number of at least the floor of a permutation test (6 at alpha 0.05); inf for a difference of 0 or
    above ten million; NaN when difference or sd is.
    """
    if math.isnan(difference) or math.isnan(sd):
        return math.nan
    if difference == 0:
        return math.inf
    # Ten million questions find what is 1/1000 of an sd: below, the search is not worth its time.
    if sd > 0 and abs(difference) / sd < 2 / math.sqrt(_MOST):
        return math.inf
    needed = questions_needed(difference, sd, power, alpha) if sd > 0 else 0
    return float(max(needed, _floor(alpha)))


def detectable_difference(n: int, sd: float, power: float = 0.8, alpha: float = 0.05) -> float:
    """Smallest mean difference that n questions find with a given chance.

    Parameters
    ----------
    n : number of questions. sd : standard deviation of the per-question differences.
    power, alpha : of the two-sided paired test.

    Returns
    -------
    float, in the unit of ``sd``; NaN with fewer than two questions, without an sd, or for sd 0: where all differences
    are the same, the pairs say nothing of how they would spread.
    """
    if n < 2 or math.isnan(sd) or sd == 0:
        return math.nan
    high = 1.0
    while paired_power(n, high, 1.0, alpha) < power:
        high *= 2
    return sd * float(brentq(lambda d: paired_power(n, d, 1.0, alpha) - power, 1e-9, high, xtol=1e-9))


def power_curve(analysis: PowerAnalysis, sizes: Sequence[int] | None = None) -> list[tuple[int, float]]:
    """Power at several numbers of questions.

    Parameters
    ----------
    analysis : from `power_analysis`.
    sizes : numbers of questions; default a dozen from 5 to beyond both n and what is needed (4 n where that is inf).

    Returns
    -------
    list of (questions, power); empty where the analysis has no sd.
    """
    if math.isnan(analysis.sd):
        return []
    if sizes is None:
        end = 1.5 * max(analysis.needed if math.isfinite(analysis.needed) else 4 * analysis.n, analysis.n, 10)
        sizes = np.unique(np.geomspace(5, end, 24).round().astype(int)).tolist()
    return [(int(n), power_at(int(n), analysis.difference, analysis.sd, analysis.alpha)) for n in sizes]


def _spread(differences: np.ndarray) -> float:
    """Standard deviation of what is there; exactly 0 for equal values, whose rounding noise would look like power."""
    d = differences[~np.isnan(differences)]
    if d.size < 2:
        return math.nan
    sd = float(d.std(ddof=1))
    return 0.0 if sd <= 1e-12 * float(np.abs(d).max()) else sd


def _ends(low: float, high: float) -> tuple[float, float]:
    """Return the difference farthest from 0 in an interval, and the nearest."""
    far = max(abs(low), abs(high))
    return far, 0.0 if low <= 0 <= high else min(abs(low), abs(high))


def _floor(alpha: float) -> int:
    return math.ceil(1 - math.log2(alpha))


def _count(n: float) -> str:
    return f"{n:,.0f}" if math.isfinite(n) else f"more than {_MOST:,}"


def _check_design(difference: float, sd: float, alpha: float) -> None:
    if not (np.isfinite(difference) and difference != 0):
        raise ConfigError(f"difference {difference!r}", "a finite difference other than 0")
    if not (np.isfinite(sd) and sd > 0):
        raise ConfigError(f"sd {sd!r}", "a positive standard deviation of the differences")
    _check_levels(alpha)


def _check_levels(alpha: float, power: float | None = None) -> None:
    if not 0 < alpha < 1:
        raise ConfigError(f"alpha {alpha!r}", "between 0 and 1, e.g. 0.05")
    if power is not None and not alpha < power < 1:
        raise ConfigError(f"power {power!r}", f"between alpha ({alpha}) and 1, e.g. 0.8")
