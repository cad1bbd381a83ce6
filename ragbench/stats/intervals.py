"""Intervals: bootstrap and exact binomial."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import betaincinv

from ragbench.errors import ConfigError
from ragbench.stats.inputs import Seed, as_floats, as_paired, as_tail, group_counts, group_index, percentiles, resampled

MISSING = "–"  # what a printed table shows where there is no number


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with its confidence interval.

    ``n`` values were used, ``n_missing`` were left out because they are missing. Bounds are NaN where no interval can
    be given (fewer than two values, or none asked for).
    """

    estimate: float
    low: float
    high: float
    n: int
    n_missing: int = 0
    level: float = 0.95

    def __str__(self) -> str:
        missing = f", {self.n_missing} missing" if self.n_missing else ""
        return f"{interval_text(self.estimate, self.low, self.high)} (n = {self.n}{missing})"

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
    """Return "0.512 [0.480, 0.544]" for each row; the dash of a missing value where there is no mean."""
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
    """Percentile bootstrap interval of the mean of one sample, or of another statistic.

    Parameters
    ----------
    values : numbers, shape (n,); NaN and None are left out and counted.
    statistic : a function of an array, such as ``np.median``.
    groups : labels, shape (n,): points of one group (the systems of one question) are resampled together.
    resamples : number of bootstrap resamples; 0 for none, with NaN bounds.
    seed : an int, or a numpy Generator.

    Returns
    -------
    Interval. Without values everything is NaN; with a single value (or group) the bounds are.

    Source: Efron & Tibshirani (1993), percentile method.
    """
    sample = as_floats(values)
    present = ~np.isnan(sample)
    kept = sample[present]
    index, n_groups = group_index(groups, sample.size, present)
    estimate = float(statistic(kept)) if kept.size else float("nan")
    if statistic is np.mean:
        # The mean of a resample needs only the sum and the size of each group: two matrix products for all resamples.
        sums, sizes = np.bincount(index, kept - estimate, n_groups), np.bincount(index, minlength=n_groups)
        blocks = [estimate + (counts @ sums) / (counts @ sizes) for counts in group_counts(n_groups, resamples, seed)]
        draws = np.concatenate([np.empty(0), *blocks])
    else:
        draws = np.array([statistic(kept[i]) for i in resampled(index, n_groups, resamples, seed)], float)
    return Interval(estimate, *percentiles(draws, level), kept.size, sample.size - kept.size, level)


def paired_bootstrap_difference(
    a: Any, b: Any, *, groups: Any = None, resamples: int = 2000, level: float = 0.95, seed: Seed = 0
) -> Interval:
    """Mean of ``a - b`` over the same questions, as `bootstrap_ci`; a pair with a missing side is left out.

    The interval excludes zero when the systems differ at this level.
    """
    differences = np.subtract(*as_paired(a=a, b=b))
    return bootstrap_ci(differences, groups=groups, resamples=resamples, level=level, seed=seed)


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
