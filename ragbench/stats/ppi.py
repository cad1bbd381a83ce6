"""Means and shares from few labels and many judge grades: prediction-powered inference.

`ppi_mean` is for two independent samples. `ppi_shares` and `ppi_difference` follow PPI++
(Angelopoulos et al. 2023) for labels drawn within strata of a finite set of answers: the difference
estimator of survey statistics (Särndal et al. 1992).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from scipy.special import betaincinv, ndtri

from ragbench.errors import ConfigError, DataError
from ragbench.stats.inputs import as_floats, as_paired, as_tail, group_index, same_length
from ragbench.stats.intervals import (
    EXACT_CLUSTERS,
    T_CLUSTERS,
    Interval,
    design_effect,
    effective_number,
    rarer,
    share_bounds,
    t_quantile,
)

Weight = float | Literal["tuned"]
NORMAL = "normal"
JEFFREYS = "Jeffreys' of the strata, joined"
_LENT_LABELS = 3  # of the rarer kind, for which the judge gains nothing


def _check_weight(weight: Weight) -> None:
    if isinstance(weight, str) and weight != "tuned":
        raise ConfigError(f"weight {weight!r}", 'a number or "tuned"')


def ppi_mean(
    labelled: Any,
    judged_labelled: Any,
    judged_unlabelled: Any,
    *,
    level: float = 0.95,
    weight: Weight = 1.0,
) -> Interval:
    """Prediction-powered mean: many judge grades, corrected by few human ones.

        estimate = mean(human) + weight * (mean(judge, unlabelled) - mean(judge, labelled))
        variance = weight^2 * var(judge, unlabelled) / N + var(human - weight * judge) / n

    Parameters
    ----------
    labelled : human values, shape (n,).
    judged_labelled : the judge's values for the same items, shape (n,). A pair with a missing side
    is left out.
    judged_unlabelled : the judge's values for other items, shape (N,).
    weight : 1.0 as in ARES; 0.0 ignores the judge; "tuned" takes the weight of least variance
    (PPI++).

    The interval is normal. Where the human values are 0 and 1 it is the exact binomial one, for as
    many labels as would have this variance, with few labels of the rarer kind for as many as there
    are (`ragbench.stats.intervals`): the normal one holds in 66 to 88 of 100 cases for shares of 2
    to 5%. For items in clusters take `ppi_shares`.

    ``n`` of the Interval is the number of human labels used, ``n_missing`` counts left-out values
    of all three. Bounds are NaN with fewer than two labels or two unlabelled values, and where
    nothing varies. DataError without labels or without unlabelled items.

    Source: Angelopoulos et al. (2023), prediction-powered inference; tuned: PPI++ (2023). ARES uses
    it with 150 to 300 human labels (thesis §1.2).
    """
    _check_weight(weight)
    human, judge = as_paired(labelled=labelled, judged_labelled=judged_labelled)
    rest = as_floats(judged_unlabelled, "judged_unlabelled")
    present = ~(np.isnan(human) | np.isnan(judge))
    missing = int((~present).sum() + np.isnan(rest).sum())
    human = human[present]
    judge = judge[present]
    rest = rest[~np.isnan(rest)]
    n = human.size
    if not n or not rest.size:
        got = f"{n} items with human and judge values, {rest.size} with the judge's alone"
        raise DataError(got, "at least one of each", "with human labels only use bootstrap_ci")
    weight = _weight_of_samples(human, judge, rest) if weight == "tuned" else weight
    estimate = float(human.mean() + weight * (rest.mean() - judge.mean()))
    interval = Interval(estimate, float("nan"), float("nan"), n, missing, level)
    if n < 2 or rest.size < 2:
        return interval
    variance = float(
        weight**2 * rest.var(ddof=1) / rest.size + (human - weight * judge).var(ddof=1) / n
    )
    values = np.concatenate([human, judge, rest])
    if np.isin(human, (0, 1)).all() and values.min() == 0 and values.max() == 1:
        return _exact_interval(interval, human, variance)
    if not variance > 0:
        return interval
    half = float(-ndtri(as_tail(level)) * np.sqrt(variance))
    return replace(interval, low=estimate - half, high=estimate + half, method=NORMAL)


def _exact_interval(interval: Interval, human: np.ndarray, variance: float) -> Interval:
    """Add the bounds of a share with this variance."""
    p = min(max(interval.estimate, 0.0), 1.0)
    effect = design_effect(p, human.size, variance, rarer(human), human.size)
    quantile = float(-ndtri(as_tail(interval.level)))
    low, high = share_bounds(p, human.size / effect, quantile, interval.level)
    return replace(interval, low=low, high=high, method=EXACT_CLUSTERS)


def _weight_of_samples(human: np.ndarray, judge: np.ndarray, rest: np.ndarray) -> float:
    """cov(human, judge) / ((1 + n / N) var(judge)), in [0, 1]: the weight of least variance."""
    variance = np.concatenate([judge, rest]).var()
    if human.size < 2 or not variance > 0:
        return 0.0
    best = np.cov(human, judge)[0, 1] / ((1 + human.size / rest.size) * variance)
    return float(np.clip(best, 0, 1))


def stratified_draw(strata: Any, n: int, *, least: int = 25, seed: int) -> np.ndarray:
    """Draw n items at random within strata: ``least`` of every stratum, or all it has, the rest in
    proportion.

    What is left of n is shared in proportion to what is left of the strata, by largest remainders.
    ``strata`` is the stratum of every item, shape (N,); so is the result, booleans. The inclusion
    probability of an item is the share of its stratum that was drawn.

    >>> stratified_draw(["a"] * 8 + ["b"] * 2, 5, least=1, seed=0).reshape(2,
    5).sum(axis=1).tolist() [3, 2]
    """
    names, where, sizes = np.unique(np.asarray(strata), return_inverse=True, return_counts=True)
    n = min(n, where.size)
    quota = np.minimum(sizes, least)
    if quota.sum() > n:
        raise ConfigError(
            f"{n} items for {names.size} strata of at least {least}",
            f"n of {quota.sum()}",
            "lower least",
        )
    left = sizes - quota
    more = n - quota.sum()
    if more:
        exact = more * left / left.sum()
        quota = quota + np.floor(exact).astype(int)
        # Ties go to the earlier stratum; no stratum is asked for more than it has, as exact <=
        # left.
        quota[np.argsort(-(exact % 1), kind="stable")[: n - quota.sum()]] += 1
    random = np.random.default_rng(seed)
    drawn = np.zeros(where.size, dtype=bool)
    for stratum, count in enumerate(quota):
        drawn[random.choice(np.flatnonzero(where == stratum), count, replace=False)] = True
    return drawn


@dataclass(frozen=True, slots=True)
class _Labels:
    """Labels drawn within strata, and a judge's predictions of all items;

    shapes (items, categories) and (items,).
    """

    y: np.ndarray  # labels times counts, 0 where there is none
    f: np.ndarray  # predictions times counts
    counts: np.ndarray  # how often an item counts
    of: np.ndarray  # what it adds to N
    labelled: np.ndarray
    stratum: np.ndarray
    size: np.ndarray  # of each stratum
    drawn: np.ndarray  # labels in each stratum
    share: bool  # else it is a difference

    @property
    def inverse_pi(self) -> np.ndarray:
        """One over the share of its stratum that was drawn, of each item."""
        return (self.size / self.drawn)[self.stratum]

    @property
    def factor(self) -> np.ndarray:
        """N_h^2 (1 - n_h / N_h) / n_h: of the variance within a stratum, in that of the sum."""
        return self.size**2 * (1 - self.drawn / self.size) / self.drawn

    @property
    def counted(self) -> np.ndarray:
        """Labels of items that count."""
        return self.labelled & (self.counts > 0)

    @property
    def rarer(self) -> np.ndarray:
        """Labels of each category, or of the others, whichever are fewer."""
        of_category = (self.y[self.counted] > 0).sum(axis=0)
        return np.minimum(of_category, self.counted.sum() - of_category)


def ppi_shares(
    values: Any,
    predictions: Any,
    strata: Any,
    *,
    counts: Any = None,
    of: Any = None,
    clusters: Any = None,
    weight: Weight = "tuned",
    level: float = 0.95,
) -> list[Interval]:
    """Estimate shares of categories: judge grades of all items, corrected by labels of some.

        p = (1/N) [ sum over all of weight * f + sum over the labelled of (y - weight * f) / pi ]

    Parameters
    ----------
    values : y, 1 where an item's label is the category and 0 where not; NaN in all columns where it
    has no label.
        Shape (items, categories).
    predictions : f, the judge's probabilities or 0 and 1, for every item; same shape. Not fitted on
    these labels, or
        cross-fitted.
    strata : within which the labelled items were drawn at random, shape (items,); pi is the share
    drawn of a stratum.
    counts : how often an item counts, e.g. the answers that read so; 0 leaves it out of this share
    (not out of its
        stratum), a minus sign subtracts. Default 1.
    of : what each item adds to N; default ``counts``.
    clusters : items that stand or fall together. Without: the interval is for *these* items, whose
    labels were sampled.
        With: for items *like* these, by a jackknife that leaves out one cluster at a time.
    weight : one for all categories; "tuned" takes that of least summed variance in [0, 1], 0
    ignores the judge.

    Returns
    -------
    One Interval per category; ``n`` counts labels, ``n_missing`` items without; ``method`` names
    the interval.

    - A share of these items: it joins those of the strata (Zou & Donner 2008), each Jeffreys' for
      its labels (Brown,
      Cai & DasGupta 2001).
    - A share of items like these: the exact binomial one for as many labels as would have the
      estimate's variance (Korn
      & Graubard 1998). Few labels of a category do not tell it: see
      `ragbench.stats.intervals.design_effect`.
    - A difference (``of``, or counts below 0): symmetric, not cut at -1 and 1; NaN where nothing
      varies, where a
      stratum has one label of several items, or, with clusters, has all labels in one.

    How often they hold: ``benchmarks/sim_intervals.py``. DataError for a stratum without a label,
    half a label, a missing prediction.
    """
    _check_weight(weight)
    labels = _read(values, predictions, strata, counts, of)
    covariances = _covariances(labels)
    weight = _tuned_weight(labels, covariances) if weight == "tuned" else weight
    estimate = _estimate(labels, weight)
    of_clusters = {}
    if clusters is None:
        by_stratum = _variance_by_stratum(labels, covariances, weight)
        if labels.share:
            low, high, method = _bounds_of_these(
                labels, estimate, np.nansum(by_stratum, axis=0), level
            )
        else:
            low, high, method = _symmetric_bounds(labels, estimate, by_stratum.sum(axis=0), level)
    else:
        index, groups = group_index(clusters, len(labels.stratum))
        if groups < 2:
            raise DataError(
                f"{groups} cluster",
                "at least 2",
                "leave clusters out: the interval is then for these items",
            )
        of_clusters = {"clusters": groups, "effective": effective_number(np.bincount(index))}
        variance = _jackknife_variance(labels, weight, index, groups)
        if labels.share:
            low, high, method = _bounds_of_like(labels, estimate, variance, index, level)
        else:
            half = t_quantile(groups, level) * np.sqrt(np.where(variance > 0, variance, np.nan))
            low = estimate - half
            high = estimate + half
            method = T_CLUSTERS
    n = int(labels.labelled.sum())
    intervals = []
    for p, below, above in zip(estimate.tolist(), low.tolist(), high.tolist(), strict=True):
        how = "" if np.isnan(below) else method
        intervals.append(
            Interval(p, below, above, n, len(labels.y) - n, level, method=how, **of_clusters)
        )
    return intervals


def _read(values: Any, predictions: Any, strata: Any, counts: Any, of: Any) -> _Labels:
    """Check what `ppi_shares` is given."""
    y = np.asarray(values, dtype=float)
    f = np.asarray(predictions, dtype=float)
    if y.ndim != 2 or y.shape != f.shape:
        raise DataError(
            f"values {y.shape}, predictions {f.shape}",
            "the same two dimensions",
            "one column a category",
        )
    times = np.ones(len(y)) if counts is None else np.asarray(counts, dtype=float)
    each = times if of is None else np.asarray(of, dtype=float)
    same_length(values=y, strata=strata, counts=times, of=each)
    missing = np.isnan(y)
    labelled = ~missing.any(axis=1)
    if (missing.any(axis=1) != missing.all(axis=1)).any() or np.isnan(f).any():
        raise DataError(
            "half a label, or a missing prediction",
            "whole labels or none; every prediction",
            "check both",
        )
    names, stratum = np.unique(np.asarray(strata), return_inverse=True)
    size = np.bincount(stratum)
    drawn = np.bincount(stratum[labelled], minlength=names.size)
    if (drawn == 0).any():
        got = f"no label in stratum {str(names[drawn == 0][0])!r}"
        raise DataError(got, "labels in every stratum", "label some of it")
    share = of is None and bool((times >= 0).all()) and bool(np.isin(y[labelled], (0, 1)).all())
    y = times[:, None] * np.where(labelled[:, None], y, 0.0)
    return _Labels(y, times[:, None] * f, times, each, labelled, stratum, size, drawn, share)


def _covariances(labels: _Labels) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return those of y with f, f with f, y with y, among the labels of each stratum:

    shape (strata, categories).
    """
    sums = []
    for a, b in ((labels.y, labels.f), (labels.f, labels.f), (labels.y, labels.y)):
        rows = [labels.labelled & (labels.stratum == h) for h in range(labels.size.size)]
        sums.append(np.array([_covariance(a[inside], b[inside]) for inside in rows]))
    return sums[0], sums[1], sums[2]


def _covariance(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the covariance of two arrays column by column; NaN for a single row."""
    if len(a) < 2:
        return np.full(a.shape[1], np.nan)
    return ((a - a.mean(axis=0)) * (b - b.mean(axis=0))).sum(axis=0) / (len(a) - 1)


def _tuned_weight(labels: _Labels, covariances: tuple[np.ndarray, np.ndarray, np.ndarray]) -> float:
    """Return the weight of least variance:

    sum of factor * cov(y, f) over sum of factor * var(f), in [0, 1].
    """
    with_judge, judge, _ = covariances
    sampled = labels.factor > 0
    factor = labels.factor[sampled]
    shared = np.nansum(factor * with_judge[sampled].sum(axis=1))
    own = np.nansum(factor * judge[sampled].sum(axis=1))
    return float(np.clip(shared / own, 0, 1)) if own > 0 else 0.0


def _estimate(labels: _Labels, weight: float) -> np.ndarray:
    judged = weight * labels.f.sum(axis=0)
    corrections = (labels.y - weight * labels.f) * labels.inverse_pi[:, None]
    return (judged + corrections[labels.labelled].sum(axis=0)) / labels.of.sum()


def _variance_by_stratum(
    labels: _Labels, covariances: tuple[np.ndarray, np.ndarray, np.ndarray], weight: float
) -> np.ndarray:
    """factor * var(y - weight * f) / N^2 of each stratum and category;

    0 where all of a stratum is labelled.
    """
    with_judge, judge, own = covariances
    within = own - 2 * weight * with_judge + weight**2 * judge
    factor = labels.factor[:, None]
    return np.where(factor > 0, factor * within, 0.0) / labels.of.sum() ** 2


def _symmetric_bounds(
    labels: _Labels, estimate: np.ndarray, variance: np.ndarray, level: float
) -> tuple[np.ndarray, np.ndarray, str]:
    """Of a difference of these items; without width where all are labelled."""
    known = (labels.drawn == labels.size).all()
    half = -ndtri(as_tail(level)) * np.sqrt(np.where((variance > 0) | known, variance, np.nan))
    return estimate - half, estimate + half, NORMAL


def _bounds_of_these(
    labels: _Labels, estimate: np.ndarray, variance: np.ndarray, level: float
) -> tuple[np.ndarray, np.ndarray, str]:
    """Of a share of these items: joined Jeffreys bounds, narrower by what the judge gains, wider by
    unequal counts.

    low = p - sqrt(gain * sum over strata of (p_h - low_h)^2 + added), high alike
    """
    below, above, binomial = _joined_bounds(labels, as_tail(level))
    ones = np.ones_like(binomial)
    gain = np.divide(variance, binomial, out=ones, where=binomial > variance)
    # it is measured on few labels
    gain = (labels.rarer * gain + _LENT_LABELS) / (labels.rarer + _LENT_LABELS)
    added = ndtri(as_tail(level)) ** 2 * np.maximum(variance - binomial, 0)
    low = estimate - np.sqrt(gain * below + added)
    high = estimate + np.sqrt(gain * above + added)
    return np.clip(low, 0, 1), np.clip(high, 0, 1), JEFFREYS


def _joined_bounds(labels: _Labels, tail: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Squared distances of a share's bounds below and above it, from Jeffreys' of each stratum, and
    its variance.

        sum over strata of W_h^2 (1 - n_h / N_h) (p_h - low_h)^2; (high_h - p_h)^2; p_h (1 - p_h) /
        (n_h - 1)

    W_h is a stratum's share of all counts; n_h as many labels as unequal counts are worth (Kish's
    effective number).
    """
    strata = labels.size.size
    counted = labels.counted
    counts = labels.counts[counted]
    stratum = labels.stratum[counted]
    mass = np.bincount(stratum, counts, strata)[:, None]
    squares = np.bincount(stratum, counts**2, strata)[:, None]
    of_category = np.array(
        [np.bincount(stratum, column, strata) for column in labels.y[counted].T]
    ).T
    n = np.divide(mass**2, squares, out=np.zeros_like(mass), where=squares > 0)
    p = np.divide(of_category, mass, out=np.full_like(of_category, 0.5), where=mass > 0)
    low, high = _jeffreys(p, n, tail)
    variance = np.divide(p * (1 - p), n - 1, out=np.zeros_like(p), where=n > 1)
    W = np.bincount(labels.stratum, labels.counts, strata) / labels.counts.sum()
    scale = (W**2 * (1 - labels.drawn / labels.size))[:, None]
    below = (scale * (p - low) ** 2).sum(axis=0)
    above = (scale * (high - p) ** 2).sum(axis=0)
    return below, above, (scale * variance).sum(axis=0)


def _jeffreys(p: np.ndarray, n: np.ndarray, tail: float) -> tuple[np.ndarray, np.ndarray]:
    """Quantiles of the beta distribution with half a label of either kind added;

    0 and 1 where there is none.
    """
    a = n * p + 0.5
    b = n * (1 - p) + 0.5
    low = np.where(p > 0, betaincinv(a, b, tail), 0.0)
    high = np.where(p < 1, betaincinv(a, b, 1 - tail), 1.0)
    return low, high


def _bounds_of_like(
    labels: _Labels, estimate: np.ndarray, variance: np.ndarray, cluster: np.ndarray, level: float
) -> tuple[np.ndarray, np.ndarray, str]:
    """Of a share of items like these:

    exact binomial bounds for the effective number of labels, always given.
    """
    n = labels.counted.sum()
    weights = (labels.counts * labels.inverse_pi)[labels.counted]
    by_cluster = np.bincount(cluster[labels.counted], weights)
    effective = effective_number(by_cluster[by_cluster > 0])
    quantile = t_quantile(int(cluster.max()) + 1, level)
    bounds = []
    for p, spread, rare in zip(np.clip(estimate, 0, 1), variance, labels.rarer, strict=True):
        effect = design_effect(p, n, spread, rare, effective)
        bounds.append(share_bounds(p, n / effect, quantile, level))
    low, high = np.array(bounds).T
    return low, high, EXACT_CLUSTERS


def _jackknife_variance(
    labels: _Labels, weight: float, cluster: np.ndarray, clusters: int
) -> np.ndarray:
    """Return the variance over clusters left out in turn, with pi taken anew each time.

        (C - 1) / C * sum over c of (p without c - mean of these)^2

    NaN where all labels of a stratum are in one cluster.
    """
    strata = labels.size.size
    place = cluster * strata + labels.stratum

    def without(a: np.ndarray) -> np.ndarray:
        """Sum by stratum over all clusters but one: shape (clusters, strata, ...)."""
        sums = np.zeros((clusters * strata, *a.shape[1:]))
        np.add.at(sums, place, a)
        sums = sums.reshape(clusters, strata, *a.shape[1:])
        return sums.sum(axis=0) - sums

    judged = weight * labels.f
    corrections = np.where(labels.labelled[:, None], labels.y - judged, 0.0)
    size = without(np.ones(len(place)))
    drawn = without(labels.labelled.astype(float))
    inverse_pi = np.divide(size, drawn, out=np.full_like(size, np.nan), where=drawn > 0)
    inverse_pi[size == 0] = 0.0
    total = without(judged).sum(axis=1) + (without(corrections) * inverse_pi[:, :, None]).sum(
        axis=1
    )
    p = total / without(labels.of).sum(axis=1)[:, None]
    return (clusters - 1) / clusters * ((p - p.mean(axis=0)) ** 2).sum(axis=0)


def ppi_difference(
    labels_a: Any,
    labels_b: Any,
    judged_a: Any,
    judged_b: Any,
    *,
    strata: Any = None,
    cluster: Any = None,
    weight: Weight = "tuned",
    level: float = 0.95,
) -> Interval:
    """Estimate the mean of system a minus that of system b: a judge's scores of all questions,
    labels of some (PPI++).

    The judge's differences are corrected by labelled differences, so a judge that favours one
    system does no harm: what it adds to a, it adds to the labelled questions too.

    A question counts as labelled (not NaN) when both sides are. ``strata``: within which the
    labelled questions were drawn at random, None: among all. ``cluster`` of every question (its
    document, its topic), None: each is on its own. The interval is for questions like these (a
    jackknife over clusters).

    >>> ppi_difference([1, 0, None, None], [0, 0, None, None], [1, 1, 1, 0], [0, 0, 1, 0],
    weight=1.0).estimate
    0.0
    """
    sides = as_paired(labels_a=labels_a, labels_b=labels_b, judged_a=judged_a, judged_b=judged_b)
    values = (sides[0] - sides[1])[:, None]
    predictions = (sides[2] - sides[3])[:, None]
    strata = np.zeros(len(values), int) if strata is None else strata
    clusters = np.arange(len(values)) if cluster is None else cluster
    each = np.ones(len(values))  # a difference, also where all are 0 or 1
    return ppi_shares(
        values, predictions, strata, of=each, clusters=clusters, weight=weight, level=level
    )[0]
