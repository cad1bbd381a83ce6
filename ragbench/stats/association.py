"""Correlations with intervals, odds within questions, RAGChecker's correlation of differences with preference."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal

import numpy as np
import pandas as pd
from scipy.optimize import brentq
from scipy.special import stdtrit

from ragbench.errors import DataError, check_known
from ragbench.stats.inputs import Seed, as_paired, group_counts, group_index, percentiles, same_length
from ragbench.stats.intervals import Interval, bootstrap_ci

_PAIRS = 2_000_000  # of points, whose signs are held at a time

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
    """Correlation of two variables with a percentile bootstrap interval.

    Parameters
    ----------
    x, y : numbers, shape (n,); a pair with a missing side is left out and counted.
    method : "pearson"; "spearman" (average ranks for ties); "kendall" (tau-b).
    groups : labels, shape (n,): points of one group (the systems of one question) are resampled together.

    Returns
    -------
    Interval in [-1, 1]. NaN when a variable is constant or fewer than two pairs are left; resamples in which a
    variable is constant are left out of the percentiles.
    """
    check_known("method", [method], _METHODS)
    a, b = as_paired(x=x, y=y)
    present = ~(np.isnan(a) | np.isnan(b))
    index, n_groups = group_index(groups, a.size, present)
    missing, a, b = int((~present).sum()), a[present], b[present]
    compute, draws = _METHODS[method], iter(())
    estimate = float(compute(a, b, np.ones((1, a.size), np.int64))[0]) if a.size > 1 else float("nan")
    if not np.isnan(estimate):
        if method == "pearson":
            draws = _pearson_by_groups(a, b, index, n_groups, resamples, seed)
        else:
            blocks = group_counts(n_groups, resamples, seed, a.size)
            draws = (compute(a, b, counts[:, index]) for counts in blocks)
    return Interval(estimate, *percentiles(draws, level), a.size, missing, level)


def within_correlation(x: Any, y: Any, groups: Any, method: Method = "spearman", **options: Any) -> Interval:
    """Mean over groups of the correlation within each group, with a bootstrap interval over groups.

    What all points of a group share, the difficulty of a question for instance, does not enter; in `correlation` over
    all points it does.

    Returns
    -------
    Interval in [-1, 1], by `bootstrap_ci` and its options; ``n`` counts groups, ``n_missing`` those in which ``x`` or
    ``y`` is constant, which have no correlation and do not enter the mean.

    >>> within_correlation([1, 2, 11, 12], [8, 7, 18, 17], ["a", "a", "b", "b"]).estimate
    -1.0
    """
    a, b = as_paired(x=x, y=y)
    same_length(x=a, y=b, groups=groups)
    check_known("method", [method], _METHODS)
    pairs = pd.DataFrame({"x": a, "y": b}).groupby(np.asarray(groups))
    return bootstrap_ci(pairs.corr(method=method).xs("y", level=1)["x"], **options)


def _pearson(x: np.ndarray, y: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Pearson of the points repeated ``weights`` times: shape (rows,). ``x`` and ``y``: (n,) or (rows, n)."""
    w = weights.astype(float)
    total = w.sum(1)
    x = x - (_dot(w, x) / total)[:, None]
    y = y - (_dot(w, y) / total)[:, None]
    flat = _constant(x, weights) | _constant(y, weights)
    scale = np.sqrt(_dot(w, x * x)) * np.sqrt(_dot(w, y * y))
    scale[flat] = 1.0
    return np.where(flat, np.nan, np.clip(_dot(w, x * y) / scale, -1, 1))


def _pearson_by_groups(
    x: np.ndarray, y: np.ndarray, index: np.ndarray, n_groups: int, resamples: int, seed: Seed
) -> Iterator[np.ndarray]:
    """Bootstrap samples of Pearson from the groups' sums alone: one matrix product per block of resamples."""
    x, y = x - x.mean(), y - y.mean()
    sums = np.stack([np.bincount(index, v, n_groups) for v in (np.ones(x.size), x, y, x * x, y * y, x * y)], axis=1)
    for counts in group_counts(n_groups, resamples, seed):
        total, sx, sy, sxx, syy, sxy = (counts @ sums).T
        vx, vy = sxx / total - (sx / total) ** 2, syy / total - (sy / total) ** 2
        # Where a resample is (nearly) constant the difference of sums is rounding noise: go back to its points.
        weak = (vx < 1e-9 * x.var()) | (vy < 1e-9 * y.var())
        vx[weak] = vy[weak] = 1.0
        r = np.clip((sxy / total - sx * sy / total**2) / np.sqrt(vx * vy), -1, 1)
        if weak.any():
            r[weak] = _pearson(x, y, counts[weak][:, index])
        yield r


def _dot(weights: np.ndarray, values: np.ndarray) -> np.ndarray:
    return weights @ values if values.ndim == 1 else np.einsum("ij,ij->i", weights, values)


def _constant(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Rows whose points of positive weight all have one value (their variance is rounding noise, not 0)."""
    there = weights > 0
    first = np.take_along_axis(values, there.argmax(1)[:, None], axis=1)
    return ~(there & (values != first)).any(1)


def _spearman(x: np.ndarray, y: np.ndarray, weights: np.ndarray) -> np.ndarray:
    return _pearson(_ranks(x, weights), _ranks(y, weights), weights)


def _ranks(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Average rank of each point in the sample where point i occurs ``weights[:, i]`` times: shape of ``weights``."""
    tied, index = _tied(values, weights)
    return (np.cumsum(tied, axis=1) - tied + (tied + 1) / 2)[:, index]


def _tied(values: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How many points of each sample have each distinct value, ascending: (rows, values); and each point's value."""
    distinct, index = np.unique(values, return_inverse=True)
    order = np.argsort(index, kind="stable")
    starts = np.searchsorted(index[order], np.arange(distinct.size))
    return np.add.reduceat(weights[:, order], starts, axis=1), index


def _kendall(x: np.ndarray, y: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Tau-b of the points repeated ``weights`` times: shape (rows,). All are sums of whole numbers, hence exact."""
    agreed, step = np.zeros(len(weights)), max(1, _PAIRS // x.size)
    narrow = weights.astype(np.float32)
    for at in range(0, x.size, step):
        part = slice(at, at + step)
        signs = (np.sign(x[part, None] - x) * np.sign(y[part, None] - y)).astype(np.float32)
        agreed += _dot(weights.astype(float), narrow[:, part] @ signs)
    apart = [weights.sum(1) ** 2.0 - (_tied(values, weights)[0].astype(float) ** 2).sum(1) for values in (x, y)]
    scale = np.sqrt(apart[0]) * np.sqrt(apart[1])
    return np.clip(np.divide(agreed, scale, out=np.full(len(weights), np.nan), where=scale > 0), -1, 1)


# Of points repeated by weights, so that scipy's functions, which take one sample, are not called 2,000 times.
_METHODS: dict[str, Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]] = {
    "pearson": _pearson,
    "spearman": _spearman,
    "kendall": _kendall,
}


def separation(
    values: Any, positive: Any, groups: Any = None, *, resamples: int = 1000, level: float = 0.95, seed: Seed = 0
) -> tuple[float, float, float]:
    """Area under the ROC curve with a bootstrap interval over groups.

    Returns
    -------
    (auc, low, high) in [0, 1]: the chance that a value (finite) of the positive points is above one of the others, ties
    half. NaN without both kinds; resamples without both are left out.

    Source: Hanley & McNeil (1982), the Mann-Whitney form.
    """
    x, good = np.asarray(values, float), np.asarray(positive, bool)
    if not good.any() or good.all():
        return (np.nan,) * 3
    index, n_groups = group_index(groups, x.size)
    _, place = np.unique(x, return_inverse=True)
    # Counts of positives and negatives per distinct value and group: a resample is then two matrix products.
    size = (n_groups, int(place.max()) + 1)
    above, below = np.zeros(size), np.zeros(size)
    np.add.at(above, (index[good], place[good]), 1)
    np.add.at(below, (index[~good], place[~good]), 1)

    def area(counts: np.ndarray) -> np.ndarray:
        p, n = counts @ above, counts @ below
        wins = (p * (np.cumsum(n, axis=1) - n / 2)).sum(1)
        pairs = p.sum(1) * n.sum(1)
        return np.divide(wins, pairs, out=np.full(len(wins), np.nan), where=pairs > 0)

    draws = map(area, group_counts(n_groups, resamples, seed, size[1]))
    return float(area(np.ones((1, n_groups)))[0]), *percentiles(draws, level)


# Odds within questions


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
    """Odds ratio of an outcome for a step of x, within questions: conditional logistic regression, one stratum each.

    What all systems of a question share, such as its difficulty, cancels. A question whose systems all have the
    outcome, or none, says nothing.

    Parameters
    ----------
    x : such as IR scores, shape (questions, systems). y : outcomes 0 and 1, same shape.
    clusters : labels, shape (questions,); questions of one cluster are permuted and left out together. None: each is
        on its own.
    step : of x, that the ratio is for. resamples, seed : of the test, which permutes x among the systems.

    Returns
    -------
    WithinOdds. Its ratio is in [0, inf], NaN where no question tells anything; ``n`` counts the questions that do,
    ``n_missing`` the others and those with a missing value. The interval is a jackknife over clusters of the
    logarithm, with t; NaN where leaving one out gives no finite ratio. The p-value is (hits + 1) / (resamples + 1).

    Raises DataError for shapes that differ or an outcome that is neither 0 nor 1.

    >>> conditional_logit([[1, 0], [1, 0], [1, 0], [0, 1]], [[1, 0]] * 4).ratio.estimate.__round__(6)
    3.0

    Source: Breslow and Day (1980), section 7.2; the test is that of the score.
    """
    scores, outcomes = np.asarray(x, float), np.asarray(y, float)
    if scores.ndim != 2 or scores.shape != outcomes.shape:
        raise DataError(f"x {scores.shape}, y {outcomes.shape}", "one shape (questions, systems)", "pivot both alike")
    if not np.isin(outcomes[~np.isnan(outcomes)], (0, 1)).all():
        raise DataError("an outcome that is neither 0 nor 1", "0, 1 or a missing value", "compare it with a threshold")
    cluster = group_index(clusters, len(scores))[0]
    tells = np.isfinite(scores + outcomes).all(axis=1) & (np.ptp(np.nan_to_num(outcomes), axis=1) > 0)
    scores, outcomes, cluster = scores[tells], outcomes[tells], np.unique(cluster[tells], return_inverse=True)[1]
    told, untold, many = len(scores), int((~tells).sum()), int(cluster.max(initial=-1)) + 1
    nothing = float("nan")
    if not told:
        return WithinOdds(Interval(nothing, nothing, nothing, 0, untold, level), nothing)
    scores = scores - scores.mean(axis=1, keepdims=True)
    slope, low, high = _slope(scores, outcomes), nothing, nothing
    again = np.array([_slope(scores[cluster != one], outcomes[cluster != one]) for one in range(many)])
    if many > 1 and np.isfinite([slope, *again]).all():
        spread = np.sqrt((many - 1) / many * ((again - again.mean()) ** 2).sum()) * stdtrit(many - 1, (1 + level) / 2)
        low, high = np.exp(step * (slope - spread)), np.exp(step * (slope + spread))
    observed, rng = (scores * outcomes).sum(), np.random.default_rng(seed)
    hits = 0
    for _ in range(resamples):
        order = rng.permuted(np.tile(np.arange(scores.shape[1]), (many, 1)), axis=1)[cluster]
        permuted = (np.take_along_axis(scores, order, axis=1) * outcomes).sum()
        hits += abs(permuted) >= abs(observed) - 1e-12
    with np.errstate(over="ignore"):
        ratio = Interval(float(np.exp(step * slope)), float(low), float(high), told, untold, level)
    return WithinOdds(ratio, (hits + 1) / (resamples + 1))


def _slope(scores: np.ndarray, outcomes: np.ndarray) -> float:
    """Return the slope with the greatest conditional likelihood; infinite where the outcomes are in order of x."""
    sums = []  # of the scores of every set of systems that could have had the outcome, the real one's taken off
    for row, outcome in zip(scores, outcomes, strict=True):
        subsets = combinations(row, int(outcome.sum()))
        sums.append(np.array([sum(subset) for subset in subsets]) - row @ outcome)

    def score(slope: float) -> float:
        total = 0.0
        for others in sums:
            weights = np.exp(slope * others - (slope * others).max())
            total -= weights @ others / weights.sum()
        return total

    if not sums or max(map(np.ptp, sums)) == 0:
        return float("nan")
    least, most = min(others.min() for others in sums), max(others.max() for others in sums)
    if most <= 0 or least >= 0:
        return float("inf") if most <= 0 else float("-inf")
    bound = 1.0
    while score(-bound) < 0 or score(bound) > 0:
        bound *= 2
    return float(brentq(score, -bound, bound))


# RAGChecker's meta evaluation


def preference_difference(score_1: Any, score_2: Any) -> np.ndarray:
    """Score differences (model 2 - model 1) of response pairs, mapped linearly to [-2, 2]: shape (n_pairs,).

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
    labels : preferences in -2..2, positive when response 2 is better, shape (n_pairs, n_annotators) or (n_pairs,).
        Each pair counts once per annotator; a missing label is NaN.
    method : "pearson" or "spearman" as published. options : for `correlation`, whose bootstrap resamples pairs with all
        their annotators.

    Returns
    -------
    Interval; ``n`` counts labels (560 for 280 pairs and two annotators).

    Raises DataError when the arguments disagree in the number of pairs, or labels lie outside [-2, 2].

    Source: RAGChecker, section 4.2, Tables 2 and 5. Paper values (overall, RAGChecker): 61.93 / 60.90 (x100).
    """
    e = preference_difference(score_1, score_2)
    h = np.asarray(labels, float)
    h = h[:, None] if h.ndim == 1 else h
    if h.ndim != 2 or h.shape[0] != e.size:
        raise DataError(f"labels of shape {h.shape} for {e.size} pairs", f"shape ({e.size}, number of annotators)")
    if (np.abs(h[~np.isnan(h)]) > 2).any():
        raise DataError(
            "preference labels outside [-2, 2]", "-2 (response 1 much better) to 2 (response 2 much better)"
        )
    pairs = np.repeat(np.arange(e.size), h.shape[1])
    return correlation(e[pairs], h.ravel(), method, groups=pairs, **options)
