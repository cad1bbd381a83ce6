"""Intervals: bootstrap, exact binomial, prediction-powered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy.special import betaincinv, ndtri

from ragbench.errors import ConfigError, DataError, unknown
from ragbench.stats.inputs import (
    Seed,
    as_floats,
    as_level,
    as_paired,
    as_resamples,
    group_counts,
    group_index,
    percentiles,
)

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


Statistic = Literal["mean", "median"] | Callable[..., np.ndarray]
_STATISTICS: dict[str, Callable[..., Any]] = {"mean": np.mean, "median": np.median}


def bootstrap_ci(
    values: Any,
    statistic: Statistic = "mean",
    *,
    groups: Any = None,
    resamples: int = 2000,
    level: float = 0.95,
    seed: Seed = 0,
) -> Interval:
    """Percentile bootstrap interval of a statistic of one sample.

    Parameters
    ----------
    values : numbers, shape (n,); NaN and None are left out and counted.
    statistic : "mean", "median", or a function of an array and ``axis`` such as ``np.std``.
    groups : labels, shape (n,): points of one group (the systems of one question) are resampled together.
    resamples : number of bootstrap resamples; 0 for none, with NaN bounds.
    level : confidence level.
    seed : an int, or a numpy Generator.

    Returns
    -------
    Interval. Without values everything is NaN; with a single value (or group) the bounds are.

    Raises
    ------
    DataError for text, infinities or group labels of another length; ConfigError for an impossible level, number of
    resamples or statistic.

    Source: Efron & Tibshirani (1993), percentile method.
    """
    sample = as_floats(values)
    level, resamples = as_level(level), as_resamples(resamples)
    if not callable(statistic) and statistic not in _STATISTICS:
        raise unknown("statistic", statistic, _STATISTICS)
    compute = statistic if callable(statistic) else _STATISTICS[statistic]
    present = ~np.isnan(sample)
    index, _ = group_index(groups, sample.size)
    kept, missing = sample[present], int((~present).sum())
    if not kept.size:
        return Interval(float("nan"), float("nan"), float("nan"), 0, missing, level)
    index, n_groups = group_index(index[present], kept.size)
    estimate = float(compute(kept[None, :], axis=1)[0])
    low = high = float("nan")
    if n_groups > 1 and resamples:
        if statistic == "mean":
            draws = _grouped_means(kept, index, n_groups, resamples, seed)
        else:
            draws = _resampled(compute, kept, index, n_groups, resamples, seed)
        low, high = percentiles(draws, level)
    return Interval(estimate, low, high, kept.size, missing, level)


def _grouped_means(values: np.ndarray, index: np.ndarray, n_groups: int, resamples: int, seed: Seed) -> np.ndarray:
    # The mean of a resample needs only the sum and the size of each group: two matrix products for all resamples.
    centre = values.mean()
    sums = np.bincount(index, values - centre, n_groups)
    sizes = np.bincount(index, minlength=n_groups)
    return np.concatenate(
        [centre + (counts @ sums) / (counts @ sizes) for counts in group_counts(n_groups, resamples, seed)]
    )


def _resampled(
    compute: Callable[..., np.ndarray], values: np.ndarray, index: np.ndarray, n_groups: int, resamples: int, seed: Seed
) -> np.ndarray:
    result = []
    for counts in group_counts(n_groups, resamples, seed, values.size):
        weights = counts[:, index]
        if n_groups == values.size:  # every resample has n values, so the whole block is one array
            repeated = np.repeat(np.tile(values, len(weights)), weights.ravel()).reshape(len(weights), -1)
            result.append(np.asarray(compute(repeated, axis=1), float))
        else:
            rows = [compute(np.repeat(values, w)[None, :], axis=1) for w in weights]
            result.append(np.asarray(rows, float).ravel())
    return np.concatenate(result)


def paired_bootstrap_difference(
    a: Any, b: Any, *, groups: Any = None, resamples: int = 2000, level: float = 0.95, seed: Seed = 0
) -> Interval:
    """Mean of ``a - b`` over the same questions, with a bootstrap interval over questions.

    Parameters
    ----------
    a, b : scores of two systems, shape (n,), in the same order of questions. A pair with a missing side is left out.
    groups, resamples, level, seed : as in :func:`bootstrap_ci`.

    Returns
    -------
    Interval of the mean difference; it excludes zero when the systems differ at this level.

    Raises
    ------
    DataError for lengths that differ, or values that are no finite numbers or NaN; ConfigError as :func:`bootstrap_ci`.
    """
    differences = np.subtract(*as_paired(a=a, b=b))
    return bootstrap_ci(differences, groups=groups, resamples=resamples, level=level, seed=seed)


def binomial_ci(successes: float, n: int, level: float = 0.95) -> Interval:
    """Exact (Clopper-Pearson) interval of a share.

    Parameters
    ----------
    successes : number of successes in [0, n]. A half counts as such (ties), by the same beta quantiles.
    n : number of trials.
    level : confidence level.

    Returns
    -------
    Interval of successes / n; NaN throughout for n = 0.

    Raises
    ------
    ConfigError unless 0 <= successes <= n.

    Source: Clopper & Pearson (1934), Biometrika 26.
    """
    level = as_level(level)
    if n < 0 or not 0 <= successes <= n:
        raise ConfigError(f"{successes!r} successes of {n!r}", "0 <= successes <= n")
    if n == 0:
        return Interval(float("nan"), float("nan"), float("nan"), 0, 0, level)
    # The beta quantiles themselves: scipy.stats.binomtest takes no half successes.
    tail = (1 - level) / 2
    low = float(betaincinv(successes, n - successes + 1, tail)) if successes > 0 else 0.0
    high = float(betaincinv(successes + 1, n - successes, 1 - tail)) if successes < n else 1.0
    return Interval(successes / n, low, high, int(n), 0, level)


def ppi_mean(
    labelled: Any,
    judged_labelled: Any,
    judged_unlabelled: Any,
    *,
    level: float = 0.95,
    weight: float | Literal["tuned"] = 1.0,
) -> Interval:
    """Prediction-powered mean: many judge grades, corrected by few human ones.

        estimate = mean(human) + weight * (mean(judge, unlabelled) - mean(judge, labelled))

    With weight 1 this is the judge's mean plus the mean of (human - judge) where both are known (the rectifier). The
    interval is normal, from the variances of the two independent samples.

    Parameters
    ----------
    labelled : human values, shape (n,).
    judged_labelled : the judge's values for the same items, shape (n,). A pair with a missing side is left out.
    judged_unlabelled : the judge's values for other items, shape (N,).
    level : confidence level.
    weight : 1.0 as in ARES; 0.0 ignores the judge; "tuned" takes the weight of least variance (PPI++), which is never
        wider than either for large samples.

    Returns
    -------
    Interval; ``n`` is the number of human labels used, ``n_missing`` counts left-out values of all three arguments.
    The bounds are NaN with fewer than two labels or two unlabelled values.

    Raises
    ------
    DataError for labels and judgements of different number; ConfigError for another weight.

    Source: Angelopoulos et al. (2023), prediction-powered inference; tuned: PPI++ (2023). ARES uses it with 150 to 300
    human labels (thesis §1.2).
    """
    level = as_level(level)
    human, judge = as_paired(labelled=labelled, judged_labelled=judged_labelled)
    rest = as_floats(judged_unlabelled, "judged_unlabelled")
    present = ~(np.isnan(human) | np.isnan(judge))
    missing = int((~present).sum() + np.isnan(rest).sum())
    human, judge, rest = human[present], judge[present], rest[~np.isnan(rest)]
    n, many = human.size, rest.size
    if not n or not many:
        raise DataError(
            f"{n} items with human and judge values, {many} with the judge's alone",
            "at least one of each",
            "with human labels only use bootstrap_ci",
        )
    if weight == "tuned":
        weight = _tuned_weight(human, judge, rest)
    elif isinstance(weight, str):
        raise ConfigError(f"weight {weight!r}", 'a number or "tuned"')
    estimate = float(human.mean() + weight * (rest.mean() - judge.mean()))
    if n < 2 or many < 2:
        return Interval(estimate, float("nan"), float("nan"), n, missing, level)
    variance = weight**2 * rest.var(ddof=1) / many + (human - weight * judge).var(ddof=1) / n
    half = float(ndtri((1 + level) / 2) * np.sqrt(variance))
    return Interval(estimate, estimate - half, estimate + half, n, missing, level)


def _tuned_weight(human: np.ndarray, judge: np.ndarray, rest: np.ndarray) -> float:
    spread = np.concatenate([judge, rest]).var()
    if human.size < 2 or spread == 0:
        return 0.0
    covariance = np.cov(human, judge)[0, 1]
    return float(np.clip(covariance / ((1 + human.size / rest.size) * spread), 0, 1))
