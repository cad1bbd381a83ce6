"""Intervals: exact for shares, t for few values or clusters, bootstrap for the rest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import betaincinv, ndtri, stdtr, stdtrit

from ragbench.errors import ConfigError, DataError
from ragbench.stats.inputs import (
    Seed,
    as_floats,
    as_paired,
    as_tail,
    check_resamples,
    group_counts,
    group_index,
    percentiles,
    resampled,
)

# values, or effective clusters, below which the bootstrap is too narrow (docs/metrics.md, few
# clusters)
FEW = 30
LENT = 1  # value of the rarer kind that is lent to a design effect
MISSING = "–"  # what a printed table shows where there is no number
EXACT = "exact binomial"
EXACT_CLUSTERS = "exact binomial for the effective number of values"
T = "Student's t"
T_CLUSTERS = "jackknife over clusters with Student's t"
BOOTSTRAP = "percentile bootstrap"
BOOTSTRAP_CLUSTERS = "percentile bootstrap over clusters"


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with its confidence interval.

    ``n`` values were used, ``n_missing`` were left out because they are missing. Bounds are NaN
    where no interval can be given (fewer than two values, equal values that are no shares, or none
    asked for). ``clusters`` is the number of groups that belong together, 0 where each value is on
    its own; ``effective`` the number of clusters of equal size that would tell as much, (sum of
    sizes)^2 / sum of squared sizes. ``method`` names the interval, such as "exact binomial"; empty
    where there is none.
    """

    estimate: float
    low: float
    high: float
    n: int
    n_missing: int = 0
    level: float = 0.95
    clusters: int = 0
    effective: float = float("nan")
    method: str = ""

    def __str__(self) -> str:
        missing = f", {self.n_missing} missing" if self.n_missing else ""
        clusters = (
            f" in {self.clusters} clusters, effectively {self.effective:.1f}"
            if self.clusters
            else ""
        )
        return (
            f"{interval_text(self.estimate, self.low, self.high)} (n = {self.n}{clusters}{missing})"
        )

    def columns(self, name: str) -> dict[str, float]:
        """Return estimate and bounds as a table's columns:

        ``name``, ``name_low``, ``name_high``.
        """
        return {name: self.estimate, f"{name}_low": self.low, f"{name}_high": self.high}


def interval_text(estimate: float, low: float, high: float, spec: str = ".3f") -> str:
    """Write "0.512 [0.480, 0.544]": a dash without an estimate, no brackets without an interval."""
    if np.isnan(estimate):
        return MISSING
    bounds = "" if np.isnan(low + high) else f" [{low:{spec}}, {high:{spec}}]"
    return format(estimate, spec) + bounds


def with_interval(
    df: pd.DataFrame, mean: str = "mean", low: str = "low", high: str = "high", digits: int = 3
) -> pd.Series:
    """Return the `interval_text` of each row."""
    rows = df[[mean, low, high]].astype(float).itertuples(index=False)
    return pd.Series(
        [interval_text(*row, spec=f".{digits}f") for row in rows], index=df.index, dtype=object
    )


def is_share(values: Any) -> bool:
    """Tell whether values are yes or no: booleans, or 0 and 1, both of them and nothing else.

    Zeros alone may be of a score from 0 to 3: they are not taken for a share.
    """
    if pd.api.types.is_bool_dtype(getattr(values, "dtype", None) or np.asarray(values)):
        return True
    numbers = as_floats(values)
    return set(numbers[~np.isnan(numbers)]) == {0.0, 1.0}


def bootstrap_ci(
    values: Any,
    statistic: Callable[[np.ndarray], Any] = np.mean,
    *,
    groups: Any = None,
    share: bool | None = None,
    resamples: int = 2000,
    level: float = 0.95,
    seed: Seed = 0,
) -> Interval:
    """Interval of the mean of one sample, or of another statistic.

    Parameters
    ----------
    values : numbers, shape (n,); NaN and None are left out and counted.
    statistic : a function of an array, such as ``np.median``.
    groups : labels, shape (n,): points of one group (the systems of one question) belong together.
    A value without a
        label is a group of its own, with a warning. None: each value is on its own.
    share : whether 0 and 1 mean no and yes; None: where values are booleans, or 0 and 1 and both
    occur.
    resamples : number of bootstrap resamples; 0 for none, with NaN bounds.
    seed : an int, or a numpy Generator.

    Returns
    -------
    Interval, whose ``method`` says which of these it is:

    - of a share: exact binomial (Clopper & Pearson 1934), with groups for their effective number
      (`share_bounds`).
    - of another mean, with an effective number of values (or groups) below `FEW`: a jackknife over
      them, with t of one
      degree less than that number.
    - else: percentile bootstrap (Efron & Tibshirani 1993). Of another statistic of few values it is
      narrow.

    Bounds are NaN with fewer than two values (or groups), and for equal values that are no share.
    Coverage: ``benchmarks/sim_intervals.py``.
    """
    if share is None:
        share = is_share(values)
    return mean_interval(as_floats(values), statistic, groups, resamples, level, seed, share=share)


def mean_interval(
    sample: np.ndarray,
    statistic: Callable[[np.ndarray], Any],
    groups: Any,
    resamples: int,
    level: float,
    seed: Seed,
    *,
    share: bool,
    cut: bool = True,
) -> Interval:
    """As `bootstrap_ci`, of an array;

    ``cut``: an interval of t for values in [0, 1] stays there.
    """
    check_resamples(resamples)
    present = ~np.isnan(sample)
    kept = sample[present]
    if share and not np.isin(kept, (0, 1)).all():
        raise DataError("a share of values that are not all 0 or 1", "0 and 1", "leave share out")
    index, n_groups = group_index(groups, sample.size, present)
    sizes = np.bincount(index, minlength=n_groups)
    estimate = float(statistic(kept)) if kept.size else float("nan")
    interval = Interval(
        estimate, float("nan"), float("nan"), kept.size, sample.size - kept.size, level
    )
    if groups is not None and n_groups:
        interval = replace(interval, clusters=n_groups, effective=effective_number(sizes))
    if not resamples or n_groups < 2:
        return interval
    if statistic is np.mean and share:
        return _exact_interval(interval, kept, index, sizes)
    if (kept == kept[0]).all():
        return interval
    if statistic is np.mean and effective_number(sizes) < FEW:
        return _t_interval(
            interval, kept, index, sizes, cut=cut and kept.min() >= 0 and kept.max() <= 1
        )
    draws = _draws(kept, statistic, index, sizes, resamples, seed)
    low, high = percentiles(draws, level)
    return _bounded(interval, low, high, BOOTSTRAP, BOOTSTRAP_CLUSTERS)


def _bounded(interval: Interval, low: float, high: float, alone: str, clustered: str) -> Interval:
    """Add bounds, and which of two methods they are of."""
    method = alone if interval.clusters in (0, interval.n) else clustered
    return replace(
        interval, low=float(low), high=float(high), method="" if np.isnan(low) else method
    )


def _exact_interval(
    interval: Interval, kept: np.ndarray, index: np.ndarray, sizes: np.ndarray
) -> Interval:
    effective = effective_number(sizes)
    if sizes.max() == 1:
        exact = binomial_ci(kept.sum(), kept.size, interval.level)
        return _bounded(interval, exact.low, exact.high, EXACT, EXACT)
    variance = jackknife_variance(kept, index, sizes)
    effect = design_effect(interval.estimate, kept.size, variance, rarer(kept), effective)
    quantile = t_quantile(effective, interval.level)
    low, high = share_bounds(interval.estimate, kept.size / effect, quantile, interval.level)
    return _bounded(interval, low, high, EXACT, EXACT_CLUSTERS)


def _t_interval(
    interval: Interval, kept: np.ndarray, index: np.ndarray, sizes: np.ndarray, *, cut: bool
) -> Interval:
    error = np.sqrt(jackknife_variance(kept, index, sizes))
    half = t_quantile(effective_number(sizes), interval.level) * error
    low = interval.estimate - half
    high = interval.estimate + half
    if cut:
        low = max(low, 0.0)
        high = min(high, 1.0)
    return _bounded(interval, low, high, T, T_CLUSTERS)


def _draws(
    kept: np.ndarray,
    statistic: Callable[[np.ndarray], Any],
    index: np.ndarray,
    sizes: np.ndarray,
    resamples: int,
    seed: Seed,
) -> np.ndarray:
    """Return the statistic of resamples of whole groups."""
    n_groups = sizes.size
    if statistic is not np.mean:
        return np.array(
            [statistic(kept[i]) for i in resampled(index, n_groups, resamples, seed)], float
        )
    # The mean of a resample needs only the sum and the size of each group: two matrix products for
    # all resamples.
    estimate = float(np.mean(kept))
    sums = np.bincount(index, kept - estimate, n_groups)
    blocks = [
        estimate + (counts @ sums) / (counts @ sizes)
        for counts in group_counts(n_groups, resamples, seed)
    ]
    return np.concatenate(blocks)


def jackknife_variance(values: np.ndarray, index: np.ndarray, sizes: np.ndarray) -> float:
    """Return the variance of a mean, by leaving out one group at a time.

    (G - 1) / G * sum over groups of (mean without it - mean of these means)^2
    """
    without = (values.sum() - np.bincount(index, values)) / (values.size - sizes)
    groups = sizes.size
    return float((groups - 1) / groups * ((without - without.mean()) ** 2).sum())


def rarer(values: np.ndarray) -> float:
    """Count the ones or the zeros, whichever are fewer."""
    ones = float(values.sum())
    return min(ones, values.size - ones)


def design_effect(p: float, n: float, variance: float, rarer: float, effective: float) -> float:
    """Return by how much the variance of a share exceeds that of n independent values, p (1 - p) /
    n.

        (rarer * variance / (p (1 - p) / n) + LENT * n / effective) / (rarer + LENT)

    Few values of the rarer kind do not tell it. So `LENT` more are added for which all values of a
    cluster are alike, which is the worst case: n / effective. Without any of the rarer kind it is
    taken to be that.
    """
    worst = n / effective
    if not 0 < p < 1 or np.isnan(variance):
        return worst
    measured = variance / (p * (1 - p) / n)
    return (rarer * measured + LENT * worst) / (rarer + LENT)


def share_bounds(p: float, n: float, quantile: float, level: float) -> tuple[float, float]:
    """Return the exact binomial bounds of a share for an effective number of values, by quantiles
    of beta.

    ``quantile`` of t, which allows for few clusters: n is divided by its square over that of the
    normal's.

    Source: Korn & Graubard (1998), Survey Methodology 24.
    """
    tail = as_tail(level)
    n = n * (ndtri(tail) / quantile) ** 2
    return _clopper_pearson(n * p, n, tail)


def _clopper_pearson(successes: float, n: float, tail: float) -> tuple[float, float]:
    """By the beta quantiles themselves: scipy.stats.binomtest takes no fractions."""
    failures = n - successes
    low = float(betaincinv(successes, failures + 1, tail)) if successes > 0 else 0.0
    high = float(betaincinv(successes + 1, failures, 1 - tail)) if failures > 0 else 1.0
    return low, high


def effective_number(sizes: np.ndarray) -> float:
    """Return the number of equal clusters that tell as much as these:

    (sum of sizes)^2 / sum of squared sizes.
    """
    return float(sizes.sum() ** 2 / (sizes**2).sum()) if len(sizes) else float("nan")


def t_quantile(clusters: float, level: float) -> float:
    """Return Student's t for an interval over so many clusters, of one degree of freedom less."""
    return float(-stdtrit(clusters - 1, as_tail(level)))


def p_of_no_difference(difference: Interval) -> float:
    """Two-sided p-value of a difference of 0, from its symmetric t interval over clusters.

    The half-width of the interval divided by t is the standard error. The p-value is below 1 minus
    the level exactly where the interval excludes 0.

    Parameters
    ----------
    difference : from `ppi_difference`, or from `ppi_shares` with clusters and ``of``. Its level and
    its clusters minus
        1 degrees of freedom are taken from the record. `bootstrap_ci` has other degrees of freedom.

    Returns
    -------
    NaN where the bounds are NaN, or equal. DataError without clusters, and for an asymmetric
    interval (of a share).

    >>> round(p_of_no_difference(Interval(3.0, 3.0 - 12.706, 3.0 + 12.706, n=2, clusters=2)), 3)
    0.205
    """
    width = difference.high - difference.low
    if not width > 0:
        return float("nan")
    aside = abs(difference.high + difference.low - 2 * difference.estimate)
    if difference.clusters < 2 or aside > 1e-9 * width:
        got = f"an interval over {difference.clusters} clusters, {aside / 2:.3g} off its estimate"
        raise DataError(
            got,
            "a symmetric one over clusters",
            "take a difference with clusters, as of ppi_difference",
        )
    error = width / 2 / t_quantile(difference.clusters, difference.level)
    return float(2 * stdtr(difference.clusters - 1, -abs(difference.estimate) / error))


def paired_bootstrap_difference(
    a: Any,
    b: Any,
    *,
    groups: Any = None,
    resamples: int = 2000,
    level: float = 0.95,
    seed: Seed = 0,
) -> Interval:
    """Mean of ``a - b`` over the same questions, as `bootstrap_ci`; a pair with a missing side is
    left out.

    The interval excludes zero when the systems differ at this level. Differences are no shares.
    """
    differences = np.subtract(*as_paired(a=a, b=b))
    return mean_interval(
        differences, np.mean, groups, resamples, level, seed, share=False, cut=False
    )


def binomial_ci(successes: float, n: int, level: float = 0.95) -> Interval:
    """Exact (Clopper-Pearson) interval of a share; NaN throughout for n = 0.

    Parameters
    ----------
    successes : in [0, n]. A half counts as such (ties), by the same beta quantiles.

    Raises ConfigError unless 0 <= successes <= n.

    Source: Clopper & Pearson (1934), Biometrika 26.
    """
    tail = as_tail(level)
    if n < 0 or not 0 <= successes <= n:
        raise ConfigError(f"{successes!r} successes of {n!r}", "0 <= successes <= n")
    if n == 0:
        return Interval(float("nan"), float("nan"), float("nan"), 0, 0, level)
    low, high = _clopper_pearson(successes, n, tail)
    return Interval(successes / n, low, high, int(n), 0, level, method=EXACT)
