"""Intervals: exact for shares, bootstrap for means of many values, t for differences; correlations
among it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pandas as pd
from scipy.special import betaincinv, ndtri, stdtr, stdtrit

from ragbench.errors import ConfigError, DataError, check_known
from ragbench.stats.inputs import TAIL, Seed, as_floats, as_paired, group_index, same_length

# Random draws held at once; blocks of resamples keep memory at a few tens of MB whatever the number
# of points.
_DRAWS = 2_000_000

# effective number of deviations below which the bootstrap is too narrow (docs/metrics.md)
_FEW = 20
_PRIOR = 2  # values that are added to a spread
_FEW_PAIRS = 30  # effective, below which the bootstrap of a correlation is too narrow
_NEARLY_1 = 1 - 1e-12  # of which Fisher's z is finite
_LENT = 1  # value of the rarer kind that is lent to a design effect
MISSING = "–"  # what a printed table shows where there is no number
EXACT = "exact binomial"
EXACT_CLUSTERS = "exact binomial for the effective number of values"
T = "Student's t"
T_CLUSTERS = "jackknife over clusters with Student's t"
BOOTSTRAP = "percentile bootstrap"
BOOTSTRAP_CLUSTERS = "percentile bootstrap over clusters"
_OVER_CLUSTERS = {
    EXACT: EXACT_CLUSTERS,
    EXACT_CLUSTERS: EXACT_CLUSTERS,
    T: T_CLUSTERS,
    BOOTSTRAP: BOOTSTRAP_CLUSTERS,
}


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with its 95% confidence interval.

    ``n`` values were used, ``n_missing`` were left out because they are missing. Bounds are NaN
    where no interval can be given (fewer than two values, equal values that are no shares, or none
    asked for). ``clusters`` is the number of groups that belong together, 0 where each value is on
    its own; ``effective`` the number of clusters of equal size that would tell as much, (sum of
    sizes)^2 / sum of squared sizes. ``method`` names the interval, such as "exact binomial"; empty
    where there is none. ``p`` is the two-sided p-value of no difference, by the same Student's t as
    the interval of a difference: below 0.05 exactly where it excludes 0. NaN for other intervals.

    >>> interval = rb.mean_interval([1, 2, 3, 4, 5])
    >>> print(interval)
    3.000 [0.455, 5.545] (n = 5)
    >>> interval.n
    5
    """

    estimate: float
    low: float
    high: float
    n: int
    n_missing: int = 0
    clusters: int = 0
    effective: float = float("nan")
    method: str = ""
    p: float = float("nan")

    def __str__(self) -> str:
        counts = f"n = {self.n}"
        if self.clusters:
            counts += f" in {self.clusters} clusters, effectively {self.effective:.1f}"
        if self.n_missing:
            counts += f", {self.n_missing} missing"
        return f"{self.text()} ({counts})"

    def text(self, spec: str = ".3f") -> str:
        """Return the `interval_text` of estimate and bounds."""
        return interval_text(self.estimate, self.low, self.high, spec)

    @classmethod
    def without_bounds(
        cls, estimate: float, n: int, n_missing: int, cluster: np.ndarray | None = None
    ) -> Interval:
        """Make one whose bounds are NaN; ``cluster`` numbers the cluster of each value."""
        nan = float("nan")
        interval = cls(estimate, nan, nan, n, n_missing)
        if cluster is None or not n:
            return interval
        sizes = np.bincount(cluster)
        return replace(interval, clusters=sizes.size, effective=_effective_number(sizes))

    def bounded(self, low: float, high: float, method: str, p: float = float("nan")) -> Interval:
        """Return it with bounds and the name of their method, or as it is where they are NaN."""
        if np.isnan(low):
            return replace(self, p=p)
        if self.clusters not in (0, self.n):
            method = _OVER_CLUSTERS[method]
        return replace(self, low=low, high=high, method=method, p=p)

    def columns(self, name: str) -> dict[str, float]:
        """Return estimate and bounds as a table's columns: ``name``, ``name_low``,
        ``name_high``.
        """
        return {name: self.estimate, f"{name}_low": self.low, f"{name}_high": self.high}


def interval_text(estimate: float, low: float, high: float, spec: str = ".3f") -> str:
    """Write "0.512 [0.480, 0.544]": a dash without an estimate, no brackets without an interval."""
    if np.isnan(estimate):
        return MISSING
    estimate, low, high = (_unsigned_zero(value, spec) for value in (estimate, low, high))
    text = format(estimate, spec)
    if np.isnan(low + high):
        return text
    return f"{text} [{low:{spec}}, {high:{spec}}]"


def _unsigned_zero(value: float, spec: str) -> float:
    """Return 0 for what would be written as -0.000."""
    return value if np.isnan(value) or float(format(value, spec).rstrip("%")) else 0.0


def with_interval(
    df: pd.DataFrame, mean: str = "mean", low: str = "low", high: str = "high", digits: int = 3
) -> pd.Series:
    """Return the `interval_text` of each row."""
    rows = df[[mean, low, high]].astype(float).itertuples(index=False)
    return pd.Series(
        [interval_text(*row, spec=f".{digits}f") for row in rows], index=df.index, dtype=object
    )


def _is_share(values: Any) -> bool:
    """Tell by their type whether values are yes or no: booleans, with missing ones among them."""
    return pd.api.types.infer_dtype(values, skipna=True) == "boolean"


def mean_interval(
    values: Any,
    statistic: Callable[[np.ndarray], Any] = np.mean,
    *,
    cluster: Any = None,
    share: bool | None = None,
    resamples: int = 2000,
    seed: Seed = 0,
) -> Interval:
    """Interval of the mean of one sample, or of another statistic.

    Parameters
    ----------
    values : numbers, shape (n,); NaN and None are left out and counted.
    statistic : a function of an array, such as ``np.median``.
    cluster : labels, shape (n,), of points that belong together (the systems of one question).
        A value without a label is a cluster of its own, with a warning. None: each value is on its
        own.
    share : whether 0 and 1 mean no and yes; None: where values are booleans.
    resamples : number of bootstrap resamples; 0 for none, with NaN bounds.
    seed : an int, or a numpy Generator.

    Returns
    -------
    Interval, whose ``method`` says which of these it is:

    - of a share: exact binomial (Clopper & Pearson 1934), with groups for their effective number
      (`share_bounds`).
    - of another mean, where the effective number of deviations (see `paired_difference`) is 20 or
      more: percentile bootstrap (Efron & Tibshirani 1993), as of every other statistic, of which it
      is narrow where values are few.
    - of a mean of fewer: where all values lie between 0 and 1, the exact binomial for as many
      values as would have its variance, else Student's t as of a difference.

    Bounds are NaN with fewer than two values (or groups), and for equal values that are no share.
    Coverage: ``benchmarks/sim_intervals.py``.

    >>> print(rb.mean_interval([1, 0, 1, 1, 0, 1, 1, 1]))
    0.750 [0.236, 0.989] (n = 8)
    """
    if share is None:
        share = _is_share(values)
    values = as_floats(values)
    if share and not np.isin(values[~np.isnan(values)], (0, 1)).all():
        raise DataError("a share of values that are not all 0 or 1", "0 and 1", "leave share out")
    kept, index, interval = _counted(values, cluster, statistic)
    if not resamples or np.bincount(index).size < 2:
        return interval
    if statistic is np.mean and share:
        return interval.bounded(*_exact_bounds(kept, index), EXACT)
    if (kept == kept[0]).all():
        return interval
    if statistic is np.mean:
        return interval.bounded(*_mean_bounds(kept, index, resamples, seed))
    drawn = _resampled(lambda places: statistic(kept[places]), index, resamples, seed)
    return interval.bounded(*_percentiles(drawn), BOOTSTRAP)


def paired_difference(a: Any, b: Any, *, cluster: Any = None) -> Interval:
    """Mean of ``a - b`` over the same questions, with interval and p-value by one Student's t.

        k = (sum of u^2)^2 / sum of u^4
        standard error^2 = (1 + 2 / k) * (G - 1) / G * sum of u^2
        p = P(|t| > |mean| / standard error)

    u are the deviations of the mean without one group from the mean of these, G the groups (each
    question is one without ``cluster``); t has one degree of freedom less than their effective
    number. k is the effective number of deviations, about 3 where 3 of 30 questions differ. So
    2 / k adds two differences of the size that makes the spread, a win and a loss: few differences
    do not tell their own spread. A pair with a missing side is left out and counted. Where both
    scores lie between 0 and 1, bounds are cut at -1 and 1.

    Where no question (or no group's mean) differs there is no interval, and p is 1.

    Source: jackknife, Tukey (1958); the prior of two values as for `kappa`. Coverage and errors
    beside those of the sign-flip test: ``benchmarks/sim_intervals.py``, docs/metrics.md.

    >>> print(paired_difference([1, 1, 1, 0, 0, 0, 0, 0, 0, 0], [0] * 10))
    0.300 [-0.102, 0.702] (n = 10)
    """
    a, b = as_paired(a=a, b=b)
    values, index, interval = _counted(a - b, cluster, np.mean)
    if np.bincount(index).size < 2:
        return interval
    half, p = _student_t(values, index)
    if not half > 0:
        return replace(interval, p=p)
    low, high = interval.estimate - half, interval.estimate + half
    if _are_fractions(a) and _are_fractions(b):
        low = max(low, -1.0)
        high = min(high, 1.0)
    return interval.bounded(low, high, T, p)


def _are_fractions(values: np.ndarray) -> bool:
    return not (values < 0).any() and not (values > 1).any()


def _counted(
    values: np.ndarray, cluster: Any, statistic: Callable[[np.ndarray], Any]
) -> tuple[np.ndarray, np.ndarray, Interval]:
    """Return the values that are there, the group of each, and an interval without bounds."""
    present = ~np.isnan(values)
    kept = values[present]
    index = group_index(cluster, values.size, present)
    # Resamples are drawn in an order of the values, so that the order of rows does not count.
    sums = np.bincount(index, kept) if kept.size else kept
    order = np.lexsort((kept, sums[index]))
    kept = kept[order]
    index = pd.factorize(index[order])[0]
    estimate = float("nan")
    if kept.size:
        estimate = float(statistic(kept))
    clusters = None if cluster is None else index
    missing = values.size - kept.size
    return kept, index, Interval.without_bounds(estimate, kept.size, missing, clusters)


def _mean_bounds(
    values: np.ndarray, index: np.ndarray, resamples: int, seed: Seed
) -> tuple[float, float, str]:
    """Choose the interval of a mean that is no share: see `mean_interval`."""
    variance, k = _jackknife_variance(values, index)
    if k >= _FEW:
        return *_percentiles(_resampled_means(values, index, resamples, seed)), BOOTSTRAP
    mean = float(values.mean())
    if not variance > 0:
        return float("nan"), float("nan"), ""
    if _are_fractions(values):
        clusters = _effective_number(np.bincount(index))
        return *_binomial_bounds(mean, mean * (1 - mean) / variance, clusters), EXACT_CLUSTERS
    half, _ = _student_t(values, index)
    low = mean - half
    if values.min() >= 0:  # as of seconds
        low = max(low, 0.0)
    return low, mean + half, T


def _exact_bounds(values: np.ndarray, index: np.ndarray) -> tuple[float, float]:
    n = values.size
    ones = values.sum()
    sizes = np.bincount(index)
    if sizes.max() == 1:
        return _clopper_pearson(ones, n)
    return share_bounds(
        values.mean(),
        n,
        variance=_jackknife_variance(values, index)[0],
        rarer=min(ones, n - ones),
        sizes=sizes,
        clusters=_effective_number(sizes),
    )


def _student_t(values: np.ndarray, index: np.ndarray) -> tuple[float, float]:
    """Return half the interval of a mean and the p-value of a mean of 0: see `paired_difference`.

    Where all values are equal, two more of their size, a win and a loss, are the whole spread.
    """
    variance, k = _jackknife_variance(values, index)
    mean = values.mean()
    sizes = np.bincount(index)
    if k > 0:
        variance *= 1 + _PRIOR / k
    else:
        variance = _PRIOR * mean**2 / (sizes.size * (sizes.size - 1))
    clusters = _effective_number(sizes)
    half = float(_t_quantile(clusters) * np.sqrt(variance))
    return half, t_p_value(mean, half, clusters)


def _jackknife_variance(values: np.ndarray, index: np.ndarray) -> tuple[float, float]:
    """Return the variance of a mean, by leaving out one group at a time, and the effective number
    of deviations.

        u = mean without a group - mean of these means
        variance = (G - 1) / G * sum of u^2
        number = (sum of u^2)^2 / sum of u^4, 0 where all are equal
    """
    sizes = np.bincount(index)
    sums = np.bincount(index, values)
    G = sizes.size
    without = (values.sum() - sums) / (values.size - sizes)
    u = without - without.mean()
    if np.abs(u).max() <= 1e-12 * np.abs(values).max():
        return 0.0, 0.0
    squares = u**2
    return float((G - 1) / G * squares.sum()), float(squares.sum() ** 2 / (squares**2).sum())


# Resampling


def _resampled(
    statistic: Callable[[np.ndarray], float], index: np.ndarray, resamples: int, seed: Seed
) -> np.ndarray:
    """Return a statistic of resamples of whole groups.

    ``statistic`` takes the places of a resample's points; ``index`` is the group of each point.
    """
    places = np.arange(index.size)
    n_groups = np.bincount(index).size
    draws: list[float] = []
    for counts in _group_counts(n_groups, resamples, seed):
        draws += [statistic(np.repeat(places, times[index])) for times in counts]
    return np.array(draws, float)


def _resampled_means(
    values: np.ndarray, index: np.ndarray, resamples: int, seed: Seed
) -> np.ndarray:
    """Return the means of resamples of whole groups: sums of the drawn groups over their sizes."""
    mean = values.mean()
    sums = np.bincount(index, values - mean)
    sizes = np.bincount(index)
    drawn = _group_counts(sizes.size, resamples, seed)
    means = [(counts @ sums) / (counts @ sizes) for counts in drawn]
    return mean + np.concatenate(means)


def _group_counts(n_groups: int, resamples: int, seed: Seed) -> Iterator[np.ndarray]:
    """Yield how often each group is drawn: blocks of shape (resamples in the block, n_groups).

    Nothing for fewer than two groups.
    """
    if resamples != int(resamples) or resamples < 0:
        raise ConfigError(f"resamples {resamples!r}", "a whole number, 0 or more")
    if n_groups < 2:
        return
    rng = np.random.default_rng(seed)
    block = max(1, _DRAWS // n_groups)
    for start in range(0, int(resamples), block):
        rows = min(block, int(resamples) - start)
        drawn = rng.integers(0, n_groups, (rows, n_groups))
        # a row's groups are numbered apart from those of the other rows, to count all at once
        first = n_groups * np.arange(rows)
        number = drawn + first[:, None]
        counts = np.bincount(number.ravel(), minlength=rows * n_groups)
        yield counts.reshape(rows, n_groups)


def _percentiles(samples: np.ndarray) -> tuple[float, float]:
    """95% percentile bounds of bootstrap samples; NaN ones are left out.

    NaN when none is left, and when all are equal: the sample then does not tell how the statistic
    would spread.
    """
    defined = samples[~np.isnan(samples)]
    if not defined.size or np.ptp(defined) < 1e-12:
        return float("nan"), float("nan")
    low, high = np.quantile(defined, [TAIL, 1 - TAIL]).tolist()
    return low, high


# Shares


def share_bounds(
    p: float,
    n: float,
    *,
    variance: float,
    rarer: float,
    sizes: np.ndarray,
    clusters: float,
) -> tuple[float, float]:
    """Return the exact binomial bounds of a share, for an effective number of values.

        measured = variance / (p (1 - p) / n)
        worst = n / effective number of clusters
        design effect = (rarer * measured + 1 * worst) / (rarer + 1)
        n* = n / design effect * (z / t)^2

    The design effect is by how much the variance of the share exceeds that of n independent values.
    Few values of the rarer kind do not tell it. So one more is added for which all values of a
    cluster are alike, the worst case. Without any of the rarer kind it is taken to be that.

    Parameters
    ----------
    p, variance : the share, and its variance. n : values.
    rarer : values of the rarer kind, the ones or the zeros.
    sizes : of the clusters, in values, or in what the values stand for.
    clusters : t is of one degree less, which allows for few of them; z is the normal's quantile.

    Source: Korn & Graubard (1998), Survey Methodology 24; Clopper & Pearson for n* values.
    """
    design_effect = n / _effective_number(sizes)
    if 0 < p < 1 and not np.isnan(variance):
        measured = variance / (p * (1 - p) / n)
        design_effect = (rarer * measured + _LENT * design_effect) / (rarer + _LENT)
    return _binomial_bounds(p, n / design_effect, clusters)


def _binomial_bounds(p: float, n: float, clusters: float) -> tuple[float, float]:
    """Return the exact binomial bounds of a share of n values, fewer where clusters are few."""
    n_star = n / t_over_z(clusters) ** 2
    return _clopper_pearson(n_star * p, n_star)


def _clopper_pearson(successes: float, n: float) -> tuple[float, float]:
    """By the beta quantiles themselves: scipy.stats.binomtest takes no fractions."""
    failures = n - successes
    low = 0.0
    high = 1.0
    if successes > 0:
        low = float(betaincinv(successes, failures + 1, TAIL))
    if failures > 0:
        high = float(betaincinv(successes + 1, failures, 1 - TAIL))
    return low, high


def _effective_number(sizes: np.ndarray) -> float:
    """Return the number of equal clusters that tell as much as these: (sum of sizes)^2 / sum of
    squared sizes.
    """
    return float(sizes.sum() ** 2 / (sizes**2).sum())


def _t_quantile(clusters: float) -> float:
    """Return Student's t for an interval over so many clusters, of one degree of freedom less."""
    return float(-stdtrit(clusters - 1, TAIL))


def t_over_z(clusters: float) -> float:
    """Return by how much t for so many clusters is above the normal quantile."""
    return float(_t_quantile(clusters) / -ndtri(TAIL))


def t_p_value(estimate: float, half: float, clusters: float) -> float:
    """Two-sided p-value of no difference, of an interval by Student's t with half this width."""
    if half == 0 == estimate:
        return 1.0
    t = abs(estimate) / half * _t_quantile(clusters)
    return float(2 * stdtr(clusters - 1, -t))


def binomial_ci(successes: float, n: int) -> Interval:
    """Exact (Clopper-Pearson) interval of a share; NaN throughout for n = 0.

    Parameters
    ----------
    successes : in [0, n]. A half counts as such (ties), by the same beta quantiles.

    Raises ConfigError unless 0 <= successes <= n.

    Source: Clopper & Pearson (1934), Biometrika 26.

    >>> print(rb.binomial_ci(9, 10))
    0.900 [0.555, 0.997] (n = 10)
    """
    if n < 0 or not 0 <= successes <= n:
        raise ConfigError(f"{successes!r} successes of {n!r}", "0 <= successes <= n")
    if n == 0:
        return Interval.without_bounds(float("nan"), 0, 0)
    low, high = _clopper_pearson(successes, n)
    return Interval(successes / n, low, high, int(n), method=EXACT)


# A share by a judge's errors


def rogan_gladen(
    labels: Any, judged: Any, *, of: Any = None, cluster: Any = None, seed: Seed = 0
) -> Interval:
    """Share of a judge's yes, corrected by the errors that labels of some items show.

        share = (judged + specificity - 1) / (sensitivity + specificity - 1)

    Parameters
    ----------
    labels : 0 or 1, shape (n,); NaN for an item that nobody labelled.
    judged : 0 or 1 of every item, shape (n,).
    of : the items whose share it is, as 0 and 1, shape (n,); the labels of others tell the judge's
        errors alone. Default all. Errors that differ there make it wrong (notebook 52).
    cluster : labels, shape (n,), of items that belong together.

    Returns
    -------
    Interval with the bounds of a percentile bootstrap, cut at 0 and 1. NaN, and the reason as its
    ``method``, where the labels do not show that the judge tells a yes from a no: the interval of
    Youden's J, sensitivity + specificity - 1, reaches 0.

    Source: Rogan & Gladen (1978).
    """
    labels, judged = as_paired(labels=labels, judged=judged)
    counted = np.ones(labels.size) if of is None else as_floats(of)
    same_length(labels=labels, of=counted)
    places, index, interval = _counted(np.arange(labels.size), cluster, np.mean)
    counts = _counts_of_errors(labels, judged, counted)[places.astype(int)]
    by_cluster = np.zeros((np.bincount(index).size, counts.shape[1]))
    np.add.at(by_cluster, index, counts)
    drawn = [times @ by_cluster for times in _group_counts(len(by_cluster), 2000, seed)]
    youden, share = map(float, _corrected(by_cluster.sum(axis=0)))
    youdens, shares = _corrected(np.vstack([np.empty((0, counts.shape[1])), *drawn]))
    low, high = _percentiles(youdens)
    if not low > 0:
        reason = f"refused: Youden's J is {interval_text(youden, low, high, '.2f')}"
        return replace(interval, estimate=float("nan"), method=reason)
    estimate, low, high = np.clip([share, *_percentiles(shares)], 0, 1).tolist()
    return replace(interval, estimate=estimate).bounded(low, high, BOOTSTRAP)


def _counts_of_errors(labels: np.ndarray, judged: np.ndarray, of: np.ndarray) -> np.ndarray:
    """Return what each item adds to the counts that `_corrected` takes: shape (items, 6)."""
    right = labels == 1
    wrong = ~np.isnan(labels) & ~right
    return np.column_stack([right, right * judged, wrong, wrong * judged, of, of * judged])


def _corrected(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return Youden's J and the corrected share; NaN where J is 0, or a kind has no label.

    Counts, in the last axis: right items with a label, and the judge's yes among them; wrong ones,
    alike; the items whose share it is, alike.
    """
    right, yes_of_right, wrong, yes_of_wrong, items, yes = np.moveaxis(counts, -1, 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        false_alarms = yes_of_wrong / wrong
        youden = yes_of_right / right - false_alarms
        share = (yes / items - false_alarms) / np.where(youden == 0, np.nan, youden)
    return youden, share


# Correlations

Method = Literal["pearson", "spearman", "kendall"]


def correlation(
    x: Any,
    y: Any,
    method: Method = "pearson",
    *,
    cluster: Any = None,
    resamples: int = 2000,
    seed: Seed = 0,
) -> Interval:
    """Correlation of two variables with a percentile bootstrap interval, all in [-1, 1].

    With an effective number of pairs (or groups) below 30 the percentiles are those of Fisher's z,
    made wider by Student's t: ties and few groups make the plain bootstrap too narrow.

    Parameters
    ----------
    x, y : numbers, shape (n,); a pair with a missing side is left out and counted.
    method : "pearson"; "spearman" (average ranks for ties); "kendall" (tau-b).
    cluster : labels, shape (n,), of points that are resampled together (the systems of one
        question).

    NaN when a variable is constant or fewer than two pairs are left; such resamples are left out of
    the percentiles.

    >>> print(rb.correlation([1, 2, 3, 4, 5, 6], [1, 3, 2, 4, 6, 5]))
    0.886 [0.437, 1.000] (n = 6)
    """
    check_known("method", [method], _METHODS)
    x, y = as_paired(x=x, y=y)
    present = ~np.isnan(x + y)
    index = group_index(cluster, present.size, present)
    x = x[present]
    y = y[present]
    if method == "spearman":  # ranks need the order alone: found once, not in every resample
        x = np.unique(x, return_inverse=True)[1]
        y = np.unique(y, return_inverse=True)[1]
    compute = _METHODS[method]
    clusters = None if cluster is None else index
    interval = Interval.without_bounds(compute(x, y), x.size, present.size - x.size, clusters)
    if np.isnan(interval.estimate):
        return interval
    drawn = _resampled(lambda i: compute(x[i], y[i]), index, resamples, seed)
    effective = _effective_number(np.bincount(index))
    if 1 < effective < _FEW_PAIRS:
        drawn = _wider(drawn, interval.estimate, effective)
    low, high = _percentiles(drawn)
    return replace(interval, low=low, high=high)


def _wider(drawn: np.ndarray, estimate: float, effective: float) -> np.ndarray:
    """Spread resampled correlations wider, in Fisher's z: by t over z, and by the unbiased
    variance of so many.
    """
    z = np.arctanh(np.clip([estimate, *drawn], -_NEARLY_1, _NEARLY_1))
    wider = t_over_z(effective) * np.sqrt(effective / (effective - 1))
    return np.tanh(z[0] + (z[1:] - z[0]) * wider)


def _pearson(x: np.ndarray, y: np.ndarray) -> float:
    if x.size < 2 or (x == x[0]).all() or (y == y[0]).all():
        return float("nan")
    x = x - x.mean()
    y = y - y.mean()
    length_x = np.sqrt(x @ x)
    length_y = np.sqrt(y @ y)
    r = x @ y / (length_x * length_y)
    return float(np.clip(r, -1, 1))  # rounding leaves it by a bit


def _spearman(x: np.ndarray, y: np.ndarray) -> float:
    return _pearson(_ranks(x), _ranks(y))


def _ranks(order: np.ndarray) -> np.ndarray:
    """Rank from 1, equal values the mean of their ranks; ``order`` are whole numbers from 0."""
    counts = np.bincount(order)
    last_rank = np.cumsum(counts)
    mean_rank = last_rank - (counts - 1) / 2
    return mean_rank[order]


def _kendall(x: np.ndarray, y: np.ndarray) -> float:
    from scipy.stats import kendalltau  # slow to import

    if x.size < 2:
        return float("nan")
    # The p value of two points has no variance.
    method = "asymptotic" if x.size > 2 else "exact"
    tau: Any = kendalltau(x, y, method=method)
    return float(tau.statistic)


_METHODS: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "pearson": _pearson,
    "spearman": _spearman,
    "kendall": _kendall,
}
