"""Correlations with intervals, and RAGChecker's correlation of differences with preference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from ragbench.errors import DataError, check_known
from ragbench.stats.inputs import Seed, as_paired, group_index, same_length
from ragbench.stats.intervals import Interval, resampled_bounds

Method = Literal["pearson", "spearman", "kendall"]


def correlation(
    x: Any,
    y: Any,
    method: Method = "pearson",
    *,
    groups: Any = None,
    resamples: int = 2000,
    seed: Seed = 0,
) -> Interval:
    """Correlation of two variables with a percentile bootstrap interval, all in [-1, 1].

    Parameters
    ----------
    x, y : numbers, shape (n,); a pair with a missing side is left out and counted.
    method : "pearson"; "spearman" (average ranks for ties); "kendall" (tau-b).
    groups : labels, shape (n,): points of one group (the systems of one question) are resampled
        together.

    NaN when a variable is constant or fewer than two pairs are left; such resamples are left out of
    the percentiles.
    """
    check_known("method", [method], _METHODS)
    x, y = as_paired(x=x, y=y)
    present = ~np.isnan(x + y)
    index = group_index(groups, present.size, present)
    x = x[present]
    y = y[present]
    if method == "spearman":  # ranks need the order alone: found once, not in every resample
        x = np.unique(x, return_inverse=True)[1]
        y = np.unique(y, return_inverse=True)[1]
    compute = _METHODS[method]
    clusters = None if groups is None else index
    interval = Interval.without_bounds(compute(x, y), x.size, present.size - x.size, clusters)
    if np.isnan(interval.estimate):
        return interval
    low, high = resampled_bounds(lambda i: compute(x[i], y[i]), index, resamples, seed)
    return replace(interval, low=low, high=high)


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
    return float(kendalltau(x, y, method=method).statistic)


_METHODS: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "pearson": _pearson,
    "spearman": _spearman,
    "kendall": _kendall,
}


def preference_difference(score_1: Any, score_2: Any) -> np.ndarray:
    """Score differences (model 2 - model 1) of response pairs, mapped linearly to [-2, 2]: shape
    (n_pairs,).

        e_i = 4 * (d_i - min d) / (max d - min d) - 2

    All NaN when the differences are equal.

    Source: RAGChecker, section 4.2 (e_i; the linear map is fixed by the extremes over the pairs).
    """
    first, second = as_paired(score_1=score_1, score_2=score_2)
    d = second - first
    present = d[~np.isnan(d)]
    if not present.size or np.ptp(present) == 0:
        return np.full(d.size, np.nan)
    in_unit_interval = (d - present.min()) / np.ptp(present)
    return 4 * in_unit_interval - 2


def preference_correlation(
    score_1: Any, score_2: Any, labels: Any, method: Method = "pearson", **options: Any
) -> Interval:
    """Correlation of a metric's score differences with human preference between response pairs.

    Parameters
    ----------
    labels : preferences in -2..2, positive when response 2 is better, shape (n_pairs, n_annotators)
        or (n_pairs,). Each pair counts once per annotator (``n``: 560 for 280 pairs and two); a
        missing label is NaN.
    method : "pearson" or "spearman" as published. options : for `correlation`, whose bootstrap
        resamples pairs with all their annotators.

    Source: RAGChecker, section 4.2, Tables 2 and 5. Paper values (overall, RAGChecker): 61.93 /
    60.90 (x100).
    """
    e = preference_difference(score_1, score_2)
    h = np.asarray(labels, float)
    same_length(scores=e, labels=h)
    h = h.reshape(e.size, -1)
    if (np.abs(h) > 2).any():
        raise DataError(
            "preference labels outside [-2, 2]", "-2 (response 1 much better) to 2 (response 2)"
        )
    pairs = np.repeat(np.arange(e.size), h.shape[1])
    return correlation(e[pairs], h.ravel(), method, groups=pairs, **options)
