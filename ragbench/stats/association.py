"""Correlations with intervals, odds within questions, RAGChecker's correlation of differences with
preference.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, Literal

import numpy as np
from scipy.optimize import brentq

from ragbench.errors import DataError, check_known
from ragbench.stats.inputs import Seed, as_paired, group_index, percentiles, resampled
from ragbench.stats.intervals import Interval, effective_number, t_quantile

Method = Literal["pearson", "spearman", "kendall"]


def correlation(
    x: Any,
    y: Any,
    method: Method = "pearson",
    *,
    groups: Any = None,
    resamples: int = 2000,
    level: float = 0.95,
    seed: Seed = 0,
) -> Interval:
    """Correlation of two variables in [-1, 1], with a percentile bootstrap interval.

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
    a, b = as_paired(x=x, y=y)
    present = ~np.isnan(a + b)
    index, n_groups = group_index(groups, a.size, present)
    missing = int((~present).sum())
    a = a[present]
    b = b[present]
    compute = _METHODS[method]
    draws = np.empty(0)
    estimate = compute(a, b)
    if not np.isnan(estimate):
        draws = np.array([compute(a[i], b[i]) for i in resampled(index, n_groups, resamples, seed)])
    low, high = percentiles(draws, level)
    interval = Interval(estimate, low, high, a.size, missing, level)
    if groups is None:
        return interval
    return replace(interval, clusters=n_groups, effective=effective_number(np.bincount(index)))


def _pearson(x: np.ndarray, y: np.ndarray) -> float:
    if x.size < 2 or (x == x[0]).all() or (y == y[0]).all():
        return float("nan")
    x = x - x.mean()
    y = y - y.mean()
    return float(np.clip(x @ y / (np.sqrt(x @ x) * np.sqrt(y @ y)), -1, 1))


def _spearman(x: np.ndarray, y: np.ndarray) -> float:
    return _pearson(_ranks(x), _ranks(y))


def _kendall(x: np.ndarray, y: np.ndarray) -> float:
    from scipy.stats import kendalltau  # slow to import

    # of the p value, which of two points has no variance
    method = "asymptotic" if x.size > 2 else "exact"
    return float(kendalltau(x, y, method=method).statistic) if x.size > 1 else float("nan")


def _ranks(values: np.ndarray) -> np.ndarray:
    """Rank from 1, equal values the mean of their ranks:

    scipy's rankdata, without the half second of its import.
    """
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[place]


_METHODS: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "pearson": _pearson,
    "spearman": _spearman,
    "kendall": _kendall,
}


@dataclass(frozen=True, slots=True)
class WithinOdds:
    """Odds ratio of an outcome within questions, and the permutation test of a ratio of 1."""

    ratio: Interval
    p_value: float


def conditional_logit(
    x: Any,
    y: Any,
    clusters: Any = None,
    *,
    step: float = 1.0,
    resamples: int = 10_000,
    level: float = 0.95,
    seed: Seed = 0,
) -> WithinOdds:
    """Odds ratio of an outcome for a step of x, within questions: conditional logistic regression,
    a stratum each.

    What all systems of a question share, such as its difficulty, cancels. A question whose systems
    all have the outcome, or none, says nothing.

    Parameters
    ----------
    x : such as IR scores, shape (questions, systems). y : outcomes 0 and 1, same shape.
    clusters : labels, shape (questions,); questions of one cluster are permuted and left out
    together.
    step : of x, that the ratio is for. resamples, seed : of the test, which permutes x among the
    systems.

    Returned are ``ratio`` (an `Interval`) and ``p_value``. The ratio is NaN where no question tells
    anything; ``n`` counts the questions that do, ``n_missing`` the others. The interval is a
    jackknife over clusters of the logarithm, with t; NaN where leaving one out gives no finite
    ratio. The p-value is (hits + 1) / (resamples + 1).

    >>> conditional_logit([[1, 0], [1, 0], [1, 0], [0, 1]], [[1, 0]] *
    4).ratio.estimate.__round__(6)
    3.0

    Source: Breslow and Day (1980), section 7.2; the test is that of the score.
    """
    scores, outcomes = _scores_and_outcomes(x, y)
    tells = np.isfinite(scores + outcomes).all(axis=1) & (
        np.ptp(np.nan_to_num(outcomes), axis=1) > 0
    )
    scores = scores[tells]
    outcomes = outcomes[tells]
    cluster, n_clusters = group_index(clusters, len(tells), tells)
    ratio = Interval(
        float("nan"), float("nan"), float("nan"), len(scores), int((~tells).sum()), level
    )
    if not len(scores):
        return WithinOdds(ratio, float("nan"))
    if clusters is not None:
        ratio = replace(
            ratio, clusters=n_clusters, effective=effective_number(np.bincount(cluster))
        )
    scores = scores - scores.mean(axis=1, keepdims=True)
    slope = _slope(scores, outcomes)
    half = _half_width(slope, scores, outcomes, cluster, level)
    with np.errstate(over="ignore"):
        bounds = {
            "low": float(np.exp(step * (slope - half))),
            "high": float(np.exp(step * (slope + half))),
        }
        ratio = replace(ratio, estimate=float(np.exp(step * slope)), **bounds)
    return WithinOdds(ratio, _permuted(scores, outcomes, cluster, resamples, seed))


def _scores_and_outcomes(x: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
    scores = np.asarray(x, float)
    outcomes = np.asarray(y, float)
    if scores.ndim != 2 or scores.shape != outcomes.shape:
        raise DataError(
            f"x {scores.shape}, y {outcomes.shape}",
            "one shape (questions, systems)",
            "pivot both alike",
        )
    if not np.isin(outcomes[~np.isnan(outcomes)], (0, 1)).all():
        raise DataError(
            "an outcome that is neither 0 nor 1",
            "0, 1 or a missing value",
            "compare it with a threshold",
        )
    return scores, outcomes


def _half_width(
    slope: float, scores: np.ndarray, outcomes: np.ndarray, cluster: np.ndarray, level: float
) -> float:
    """t times the jackknife's standard error of the slope; NaN where it cannot be had."""
    clusters = int(cluster.max()) + 1
    without = np.array(
        [_slope(scores[cluster != c], outcomes[cluster != c]) for c in range(clusters)]
    )
    if clusters < 2 or not np.isfinite([slope, *without]).all():
        return float("nan")
    variance = (clusters - 1) / clusters * ((without - without.mean()) ** 2).sum()
    return t_quantile(clusters, level) * float(np.sqrt(variance))


def _permuted(
    scores: np.ndarray, outcomes: np.ndarray, cluster: np.ndarray, resamples: int, seed: Seed
) -> float:
    """p of the sum of x where the outcome is, against its orders among the systems, one order a
    cluster.
    """
    rng = np.random.default_rng(seed)
    hits = 0
    systems = np.tile(np.arange(scores.shape[1]), (int(cluster.max()) + 1, 1))
    observed = abs((scores * outcomes).sum())
    for _ in range(resamples):
        order = rng.permuted(systems, axis=1)[cluster]
        total = (np.take_along_axis(scores, order, axis=1) * outcomes).sum()
        hits += abs(total) >= observed - 1e-12
    return (hits + 1) / (resamples + 1)


def _slope(scores: np.ndarray, outcomes: np.ndarray) -> float:
    """Return the slope with the greatest conditional likelihood;

    infinite where the outcomes are in order of x.
    """
    sums = [_other_sums(row, outcome) for row, outcome in zip(scores, outcomes, strict=True)]
    if not sums or max(map(np.ptp, sums)) == 0:
        return float("nan")
    if max(others.max() for others in sums) <= 0:
        return float("inf")
    if min(others.min() for others in sums) >= 0:
        return float("-inf")
    bound = 1.0
    while _score(-bound, sums) < 0 or _score(bound, sums) > 0:
        bound *= 2
    return float(brentq(_score, -bound, bound, args=(sums,)))


def _other_sums(row: np.ndarray, outcome: np.ndarray) -> np.ndarray:
    """Sum x over every set of systems that could have had the outcome, the real set's sum taken
    off.
    """
    subsets = combinations(row, int(outcome.sum()))
    return np.array([sum(subset) for subset in subsets]) - row @ outcome


def _score(slope: float, sums: list[np.ndarray]) -> float:
    """Derivative of the log likelihood, -sum over questions of log(sum of exp(slope * others))."""
    total = 0.0
    for others in sums:
        weights = np.exp(slope * others - (slope * others).max())
        total -= weights @ others / weights.sum()
    return total


def preference_difference(score_1: Any, score_2: Any) -> np.ndarray:
    """Score differences (model 2 - model 1) of response pairs, mapped linearly to [-2, 2]: shape
    (n_pairs,).

    The smallest difference becomes -2, the largest 2; all NaN when they are equal.

    Source: RAGChecker, section 4.2 (e_i; the linear map is fixed by the extremes over the pairs).
    """
    first, second = as_paired(score_1=score_1, score_2=score_2)
    d = second - first
    known = d[~np.isnan(d)]
    if not known.size or known.min() == known.max():
        return np.full(d.size, np.nan)
    return (d - known.min()) / (known.max() - known.min()) * 4 - 2


def preference_correlation(
    score_1: Any, score_2: Any, labels: Any, method: Method = "pearson", **options: Any
) -> Interval:
    """Correlation of a metric's score differences with human preference between response pairs.

    Parameters
    ----------
    labels : preferences in -2..2, positive when response 2 is better, shape (n_pairs, n_annotators)
    or (n_pairs,).
        Each pair counts once per annotator (``n``: 560 for 280 pairs and two); a missing label is
        NaN.
    method : "pearson" or "spearman" as published. options : for `correlation`, whose bootstrap
    resamples pairs with all
        their annotators.

    Source: RAGChecker, section 4.2, Tables 2 and 5. Paper values (overall, RAGChecker): 61.93 /
    60.90 (x100).
    """
    e = preference_difference(score_1, score_2)
    h = np.asarray(labels, float)
    h = h[:, None] if h.ndim == 1 else h
    if h.ndim != 2 or h.shape[0] != e.size:
        raise DataError(
            f"labels of shape {h.shape} for {e.size} pairs",
            f"shape ({e.size}, number of annotators)",
        )
    if (np.abs(h[~np.isnan(h)]) > 2).any():
        raise DataError(
            "preference labels outside [-2, 2]", "-2 (response 1 much better) to 2 (response 2)"
        )
    pairs = np.repeat(np.arange(e.size), h.shape[1])
    return correlation(e[pairs], h.ravel(), method, groups=pairs, **options)
