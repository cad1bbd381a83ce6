"""Intervals: bootstrap, t for few clusters, exact binomial."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import betaincinv, stdtr, stdtrit

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

FEW = 30  # values, or effective clusters, below which the bootstrap is too narrow (docs/metrics.md, few clusters)
MISSING = "–"  # what a printed table shows where there is no number


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with its confidence interval.

    ``n`` values were used, ``n_missing`` were left out because they are missing. Bounds are NaN where no interval can
    be given (fewer than two values, equal values that are no shares, or none asked for). ``clusters`` is the number of
    groups that belong together, 0 where each value is on its own; ``effective`` the number of clusters of equal size
    that would tell as much, (sum of sizes)^2 / sum of squared sizes.
    """

    estimate: float
    low: float
    high: float
    n: int
    n_missing: int = 0
    level: float = 0.95
    clusters: int = 0
    effective: float = float("nan")

    def __str__(self) -> str:
        missing = f", {self.n_missing} missing" if self.n_missing else ""
        clusters = f" in {self.clusters} clusters, effectively {self.effective:.1f}" if self.clusters else ""
        return f"{interval_text(self.estimate, self.low, self.high)} (n = {self.n}{clusters}{missing})"

    def columns(self, name: str) -> dict[str, float]:
        """Return estimate and bounds as a table's columns: ``name``, ``name_low``, ``name_high``."""
        return {name: self.estimate, f"{name}_low": self.low, f"{name}_high": self.high}


def interval_text(estimate: float, low: float, high: float, spec: str = ".3f") -> str:
    """Write "0.512 [0.480, 0.544]": a dash without an estimate, no brackets without an interval."""
    if np.isnan(estimate):
        return MISSING
    return format(estimate, spec) + ("" if np.isnan(low + high) else f" [{low:{spec}}, {high:{spec}}]")


def with_interval(
    df: pd.DataFrame, mean: str = "mean", low: str = "low", high: str = "high", digits: int = 3
) -> pd.Series:
    """Return the `interval_text` of each row."""
    rows = df[[mean, low, high]].astype(float).itertuples(index=False)
    return pd.Series([interval_text(*row, spec=f".{digits}f") for row in rows], index=df.index, dtype=object)


def bootstrap_ci(
    values: Any,
    statistic: Callable[[np.ndarray], Any] = np.mean,
    *,
    groups: Any = None,
    resamples: int = 2000,
    level: float = 0.95,
    seed: Seed = 0,
) -> Interval:
    """Interval of the mean of one sample, or of another statistic: percentile bootstrap, or t for few values.

    Parameters
    ----------
    values : numbers, shape (n,); NaN and None are left out and counted.
    statistic : a function of an array, such as ``np.median``.
    groups : labels, shape (n,): points of one group (the systems of one question) are resampled together. None: each
        value is on its own.
    resamples : number of bootstrap resamples; 0 for none, with NaN bounds.
    seed : an int, or a numpy Generator.

    Returns
    -------
    Interval. With an effective number of values (or groups) below `FEW`, the interval of a mean is that of a jackknife
    over them, with t of one degree less than that number. Other statistics keep the bootstrap, which is then narrow.
    Where all values are 0, or all 1, it is the exact binomial one, of as many trials as there are values (or groups).
    Bounds are NaN with fewer than two values (or groups), and for values that are equal to another number.

    Source: Efron & Tibshirani (1993), percentile method. Coverage with few clusters: ``benchmarks/sim_intervals.py``.
    """
    return _interval(as_floats(values), statistic, groups, resamples, level, seed, shares=True)


def _interval(
    sample: np.ndarray,
    statistic: Callable[[np.ndarray], Any],
    groups: Any,
    resamples: int,
    level: float,
    seed: Seed,
    *,
    shares: bool,
) -> Interval:
    """As `bootstrap_ci`; ``shares`` says whether 0 and 1 mean no and yes (not so for differences)."""
    present = ~np.isnan(sample)
    kept = sample[present]
    index, n_groups = group_index(groups, sample.size, present)
    sizes = np.bincount(index, minlength=n_groups)
    estimate = float(statistic(kept)) if kept.size else float("nan")
    effective = effective_number(sizes)
    check_resamples(resamples)  # with few values no bootstrap would tell
    if kept.size and (kept == kept[0]).all():
        low = high = float("nan")
        if shares and statistic is np.mean and estimate in (0, 1) and resamples and n_groups > 1:
            exact = binomial_ci(estimate * n_groups, n_groups, level)
            low, high = exact.low, exact.high
    elif statistic is np.mean and n_groups > 1 and effective < FEW and resamples:
        again = (kept.sum() - np.bincount(index, kept)) / (kept.size - sizes)
        spread = np.sqrt((n_groups - 1) / n_groups * ((again - again.mean()) ** 2).sum())
        half = t_quantile(effective, level) * spread
        low, high = estimate - half, estimate + half
        if shares and kept.min() >= 0 and kept.max() <= 1:
            low, high = max(low, 0.0), min(high, 1.0)
    elif statistic is np.mean:
        # The mean of a resample needs only the sum and the size of each group: two matrix products for all resamples.
        sums = np.bincount(index, kept - estimate, n_groups)
        blocks = [estimate + (counts @ sums) / (counts @ sizes) for counts in group_counts(n_groups, resamples, seed)]
        low, high = percentiles(np.concatenate([np.empty(0), *blocks]), level)
    else:
        draws = np.array([statistic(kept[i]) for i in resampled(index, n_groups, resamples, seed)], float)
        low, high = percentiles(draws, level)
    many = (n_groups, effective) if groups is not None and n_groups else ()
    return Interval(estimate, float(low), float(high), kept.size, sample.size - kept.size, level, *many)


def effective_number(sizes: np.ndarray) -> float:
    """Return the number of equal clusters that tell as much as these: (sum of sizes)^2 / sum of squared sizes."""
    return float(sizes.sum() ** 2 / (sizes**2).sum()) if len(sizes) else float("nan")


def t_quantile(clusters: float, level: float) -> float:
    """Return Student's t for an interval over so many clusters, of one degree of freedom less."""
    return float(-stdtrit(clusters - 1, as_tail(level)))


def p_of_no_difference(difference: Interval) -> float:
    """Two-sided p-value of a difference of 0, from its symmetric t interval over clusters.

    The half-width of the interval divided by t is the standard error. The p-value is below 1 minus the level exactly
    where the interval excludes 0.

    Parameters
    ----------
    difference : from `ppi_difference`, or from `ppi_shares` with clusters and ``of``. Its level and its clusters minus
        1 degrees of freedom are taken from the record. `bootstrap_ci` has other degrees of freedom.

    Returns
    -------
    NaN where the bounds are NaN, or equal. DataError without clusters, and for an asymmetric interval (of a share).

    >>> round(p_of_no_difference(Interval(3.0, 3.0 - 12.706, 3.0 + 12.706, n=2, clusters=2)), 3)
    0.205
    """
    width = difference.high - difference.low
    if not width > 0:
        return float("nan")
    aside = abs(difference.high + difference.low - 2 * difference.estimate)
    if difference.clusters < 2 or aside > 1e-9 * width:
        got = f"an interval over {difference.clusters} clusters, {aside / 2:.3g} off its estimate"
        raise DataError(got, "a symmetric one over clusters", "take a difference with clusters, as of ppi_difference")
    error = width / 2 / t_quantile(difference.clusters, difference.level)
    return float(2 * stdtr(difference.clusters - 1, -abs(difference.estimate) / error))


def paired_bootstrap_difference(
    a: Any, b: Any, *, groups: Any = None, resamples: int = 2000, level: float = 0.95, seed: Seed = 0
) -> Interval:
    """Mean of ``a - b`` over the same questions, as `bootstrap_ci`; a pair with a missing side is left out.

    The interval excludes zero when the systems differ at this level.
    """
    differences = np.subtract(*as_paired(a=a, b=b))
    return _interval(differences, np.mean, groups, resamples, level, seed, shares=False)


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
    # The beta quantiles themselves: scipy.stats.binomtest takes no half successes.
    low = float(betaincinv(successes, n - successes + 1, tail)) if successes > 0 else 0.0
    high = float(betaincinv(successes + 1, n - successes, 1 - tail)) if successes < n else 1.0
    return Interval(successes / n, low, high, int(n), 0, level)
