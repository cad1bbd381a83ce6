"""Means and shares from few labels and many judge grades: prediction-powered inference.

`ppi_mean` is for two independent samples. `ppi_shares` and `ppi_difference` follow PPI++
(Angelopoulos et al. 2023) for labels drawn within strata of a finite set of answers: the difference
estimator of survey statistics (Särndal et al. 1992).

Letters, as in the formulas: y labels, f the judge's predictions, both times the counts of their
items; h a stratum with N_h items, of which n_h are labelled; pi = n_h / N_h; w the judge's weight;
N the sum of ``of``.
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
    T,
    effective_number,
    share_bounds,
    t_quantile,
    without_bounds,
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

        estimate = mean(human) + w * (mean(judge, unlabelled) - mean(judge, labelled))

    Its variance is near w^2 * var(judge, unlabelled) / N + var(human - w * judge) / n.

    Parameters
    ----------
    labelled : human values, shape (n,).
    judged_labelled : the judge's values for the same items, shape (n,). A pair with a missing side
        is left out.
    judged_unlabelled : the judge's values for other items, shape (N,).
    weight : w; 1.0 as in ARES; 0.0 ignores the judge; "tuned" takes the weight of least variance
        (PPI++), cov(human, judge) / ((1 + n / N) var(judge)) in [0, 1].

    It is `ppi_shares` for one stratum whose items are each on their own: the interval is Student's
    t, and where the human values are 0 and 1 exact binomial, for as many labels as would have this
    variance. (A normal one holds in 66 to 88 of 100 cases for shares of 2 to 5%.)

    ``n`` of the Interval is the number of human labels used, ``n_missing`` counts left-out values
    of all three. Bounds are NaN with fewer than two labels or two unlabelled values, and where
    nothing varies. DataError without labels or without unlabelled items.

    Source: Angelopoulos et al. (2023), prediction-powered inference; tuned: PPI++ (2023). ARES uses
    it with 150 to 300 human labels (thesis §1.2).
    """
    _check_weight(weight)
    human, judge, rest = _two_samples(labelled, judged_labelled, judged_unlabelled)
    n = human.size
    N = rest.size
    missing = len(labelled) - n + len(judged_unlabelled) - N
    y = np.concatenate([human, np.full(N, np.nan)])
    f = np.concatenate([judge, rest])
    if weight == "tuned":
        own = (1 + n / N) * f.var()
        shared = np.cov(human, judge)[0, 1] if n > 1 else 0.0
        weight = float(np.clip(shared / own, 0, 1)) if own > 0 else 0.0
    both = np.concatenate([human, f])
    is_share = np.isin(human, (0, 1)).all() and both.min() == 0 and both.max() == 1
    (interval,) = ppi_shares(
        y[:, None],
        f[:, None],
        np.zeros(n + N),
        of=None if is_share else np.ones(n + N),
        clusters=np.arange(n + N),
        weight=weight * (n + N) / N,  # there the judge's mean is over all items
        level=level,
    )
    if n < 2 or N < 2:
        return without_bounds(interval.estimate, n, missing, level)
    method = T if interval.method == T_CLUSTERS else interval.method
    return replace(interval, n_missing=missing, clusters=0, effective=float("nan"), method=method)


def _two_samples(
    labelled: Any, judged_labelled: Any, judged_unlabelled: Any
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Read the three arrays of `ppi_mean`, and leave out what is missing."""
    human, judge = as_paired(labelled=labelled, judged_labelled=judged_labelled)
    rest = as_floats(judged_unlabelled, "judged_unlabelled")
    present = ~np.isnan(human + judge)
    rest = rest[~np.isnan(rest)]
    if not present.any() or not rest.size:
        got = (
            f"{present.sum()} items with human and judge values, {rest.size} with the judge's alone"
        )
        raise DataError(got, "at least one of each", "with human labels only use bootstrap_ci")
    return human[present], judge[present], rest


def stratified_draw(strata: Any, n: int, *, least: int = 25, seed: int) -> np.ndarray:
    """Draw n items at random within strata: ``least`` of every stratum, or all it has, the rest in
    proportion.

    What is left of n is shared in proportion to what is left of the strata, by largest remainders.
    ``strata`` is the stratum of every item, shape (N,); so is the result, booleans. The inclusion
    probability of an item is the share of its stratum that was drawn.

    >>> stratified_draw(["a"] * 8 + ["b"] * 2, 5, least=1, seed=0).sum()
    np.int64(5)
    """
    _, stratum, sizes = np.unique(np.asarray(strata), return_inverse=True, return_counts=True)
    n = min(n, stratum.size)
    quota = np.minimum(sizes, least)
    if quota.sum() > n:
        got = f"{n} items for {sizes.size} strata of at least {least}"
        raise ConfigError(got, f"n of {quota.sum()}", "lower least")
    left = sizes - quota
    more = n - quota.sum()
    if more:
        exact = more * left / left.sum()
        whole = np.floor(exact).astype(int)
        largest = np.argsort(whole - exact, kind="stable")  # ties go to the earlier stratum
        whole[largest[: more - whole.sum()]] += 1
        quota = quota + whole
    random = np.random.default_rng(seed)
    drawn = np.zeros(stratum.size, dtype=bool)
    for h, count in enumerate(quota):
        drawn[random.choice(np.flatnonzero(stratum == h), count, replace=False)] = True
    return drawn


@dataclass(frozen=True, slots=True)
class _Labels:
    """Labels drawn within strata, and a judge's predictions of all items."""

    y: np.ndarray  # labels times counts, 0 where there is none; shape (items, categories)
    f: np.ndarray  # predictions times counts; same shape
    counts: np.ndarray  # how often an item counts
    of: np.ndarray  # what it adds to N
    labelled: np.ndarray
    stratum: np.ndarray
    size: np.ndarray  # N_h
    drawn: np.ndarray  # n_h
    share: bool  # else it is a difference

    @property
    def inverse_pi(self) -> np.ndarray:
        """N_h / n_h of each item."""
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

        p = (1/N) [ sum over all of w * f + sum over the labelled of (y - w * f) / pi ]

    Parameters
    ----------
    values : y, 1 where an item's label is the category and 0 where not; NaN in all columns where it
        has no label. Shape (items, categories).
    predictions : f, the judge's probabilities or 0 and 1, for every item; same shape. Not fitted on
        these labels, or cross-fitted.
    strata : within which the labelled items were drawn at random, shape (items,); pi is the share
        drawn of a stratum.
    counts : how often an item counts, e.g. the answers that read so; 0 leaves it out of this share
        (not out of its stratum), a minus sign subtracts. Default 1.
    of : what each item adds to N; default ``counts``.
    clusters : items that stand or fall together. Without: the interval is for *these* items, whose
        labels were sampled. With: for items *like* these, by a jackknife that leaves out one
        cluster at a time.
    weight : w, one for all categories; "tuned" takes that of least summed variance in [0, 1], 0
        ignores the judge.

    Returns
    -------
    One Interval per category; ``n`` counts labels, ``n_missing`` items without; ``method`` names
    the interval.

    - A share of these items: `_bounds_of_these`.
    - A share of items like these: `_bounds_of_like`.
    - A difference (``of``, or counts below 0): symmetric, not cut at -1 and 1; NaN where nothing
      varies, where a stratum has one label of several items, or, with clusters, has all labels in
      one. Normal for these items, Student's t with clusters.

    How often they hold: ``benchmarks/sim_intervals.py``. DataError for a stratum without a label,
    half a label, a missing prediction.
    """
    _check_weight(weight)
    labels = _read(values, predictions, strata, counts, of)
    if weight == "tuned":
        weight = _tuned_weight(labels)
    p = _estimate(labels, weight)
    cluster = None
    if clusters is None:
        low, high, method = _bounds_of_these(labels, p, weight, level)
    else:
        cluster, n_clusters = group_index(clusters, len(labels.stratum))
        if n_clusters < 2:
            do = "leave clusters out: the interval is then for these items"
            raise DataError(f"{n_clusters} cluster", "at least 2", do)
        low, high, method = _bounds_of_like(labels, p, weight, cluster, level)
    n = int(labels.labelled.sum())
    intervals = []
    for share, below, above in zip(p.tolist(), low.tolist(), high.tolist(), strict=True):
        interval = without_bounds(share, n, len(labels.y) - n, level, cluster)
        if not np.isnan(below):
            interval = replace(interval, low=below, high=above, method=method)
        intervals.append(interval)
    return intervals


def _read(values: Any, predictions: Any, strata: Any, counts: Any, of: Any) -> _Labels:
    """Check the arguments of `ppi_shares`."""
    y = np.asarray(values, dtype=float)
    f = np.asarray(predictions, dtype=float)
    if y.ndim != 2 or y.shape != f.shape:
        got = f"values {y.shape}, predictions {f.shape}"
        raise DataError(got, "the same two dimensions", "one column a category")
    times = np.ones(len(y)) if counts is None else np.asarray(counts, dtype=float)
    each = times if of is None else np.asarray(of, dtype=float)
    same_length(values=y, strata=strata, counts=times, of=each)
    labelled = ~np.isnan(y).all(axis=1)
    if np.isnan(y[labelled]).any() or np.isnan(f).any():
        got = "half a label, or a missing prediction"
        raise DataError(got, "whole labels or none; every prediction", "check both")
    stratum, size, drawn = _strata(strata, labelled)
    yes_or_no = bool(np.isin(y[labelled], (0, 1)).all())
    return _Labels(
        y=times[:, None] * np.where(labelled[:, None], y, 0.0),
        f=times[:, None] * f,
        counts=times,
        of=each,
        labelled=labelled,
        stratum=stratum,
        size=size,
        drawn=drawn,
        share=of is None and bool((times >= 0).all()) and yes_or_no,
    )


def _strata(strata: Any, labelled: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Number the stratum of each item; its size and its number of labels by stratum."""
    names, stratum = np.unique(np.asarray(strata), return_inverse=True)
    drawn = np.bincount(stratum[labelled], minlength=names.size)
    if (drawn == 0).any():
        got = f"no label in stratum {str(names[drawn == 0][0])!r}"
        raise DataError(got, "labels in every stratum", "label some of it")
    return stratum, np.bincount(stratum), drawn


def _covariance(labels: _Labels, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return that of two arrays among the labels of each stratum: shape (strata, categories).

    NaN for a single label.
    """
    rows = []
    for h in range(labels.size.size):
        inside = labels.labelled & (labels.stratum == h)
        a_h, b_h = a[inside], b[inside]
        if len(a_h) < 2:
            rows.append(np.full(a.shape[1], np.nan))
            continue
        products = (a_h - a_h.mean(axis=0)) * (b_h - b_h.mean(axis=0))
        rows.append(products.sum(axis=0) / (len(a_h) - 1))
    return np.array(rows)


def _tuned_weight(labels: _Labels) -> float:
    """Return the weight of least variance, in [0, 1].

        w = sum over strata of factor_h * cov_h(y, f) / sum over strata of factor_h * var_h(f)

    Strata that are labelled in full add nothing to the variance.
    """
    sampled = labels.factor > 0
    factor = labels.factor[sampled]
    covariance = _covariance(labels, labels.y, labels.f).sum(axis=1)[sampled]
    variance = _covariance(labels, labels.f, labels.f).sum(axis=1)[sampled]
    shared = np.nansum(factor * covariance)
    own = np.nansum(factor * variance)
    return float(np.clip(shared / own, 0, 1)) if own > 0 else 0.0


def _estimate(labels: _Labels, weight: float) -> np.ndarray:
    judged = weight * labels.f.sum(axis=0)
    corrections = (labels.y - weight * labels.f) * labels.inverse_pi[:, None]
    return (judged + corrections[labels.labelled].sum(axis=0)) / labels.of.sum()


# -- bounds: low, high and the method, each for all categories

_Bounds = tuple[np.ndarray, np.ndarray, str]


def _bounds_of_these(labels: _Labels, p: np.ndarray, weight: float, level: float) -> _Bounds:
    """For these items, of which some were sampled.

    variance = (1/N^2) sum over strata of factor_h * var_h(y - w * f)
    """
    rest = labels.y - weight * labels.f
    factor = labels.factor[:, None]
    within = np.where(factor > 0, factor * _covariance(labels, rest, rest), 0.0)
    N = labels.of.sum()
    if labels.share:
        return _joined_jeffreys(labels, p, np.nansum(within, axis=0) / N**2, level)
    variance = within.sum(axis=0) / N**2
    all_labelled = (labels.drawn == labels.size).all()
    variance = np.where((variance > 0) | all_labelled, variance, np.nan)
    half = -ndtri(as_tail(level)) * np.sqrt(variance)
    return p - half, p + half, NORMAL


def _joined_jeffreys(labels: _Labels, p: np.ndarray, variance: np.ndarray, level: float) -> _Bounds:
    """A share of these items: Jeffreys' bounds of its strata, joined.

        low = p - sqrt(gain * sum over strata of scale_h (p_h - low_h)^2 + added), high alike
        scale_h = W_h^2 (1 - n_h / N_h)
        binomial = sum over strata of scale_h p_h (1 - p_h) / (n_h - 1)
        gain = variance / binomial where the judge makes it less; with few labels of the rarer
               kind nearer to 1, as if `_LENT_LABELS` more had gained nothing
        added = z^2 (variance - binomial) where unequal counts make it more

    W_h is a stratum's share of all counts; n_h as many labels as unequal counts are worth (Kish's
    effective number); low_h, high_h are quantiles of beta with half a label of either kind added.

    Source: Zou & Donner (2008) for joining; Brown, Cai & DasGupta (2001) for Jeffreys' interval.
    """
    p_h, n_h = _strata_shares(labels)
    tail = as_tail(level)
    low_h, high_h = _jeffreys(p_h, n_h, tail)
    variance_h = np.divide(p_h * (1 - p_h), n_h - 1, out=np.zeros_like(p_h), where=n_h > 1)
    W = np.bincount(labels.stratum, labels.counts) / labels.counts.sum()
    scale = (W**2 * (1 - labels.drawn / labels.size))[:, None]
    below = (scale * (p_h - low_h) ** 2).sum(axis=0)
    above = (scale * (high_h - p_h) ** 2).sum(axis=0)
    binomial = (scale * variance_h).sum(axis=0)
    gain = np.divide(variance, binomial, out=np.ones_like(binomial), where=binomial > variance)
    gain = (labels.rarer * gain + _LENT_LABELS) / (labels.rarer + _LENT_LABELS)
    added = ndtri(tail) ** 2 * np.maximum(variance - binomial, 0)
    low = p - np.sqrt(gain * below + added)
    high = p + np.sqrt(gain * above + added)
    return np.clip(low, 0, 1), np.clip(high, 0, 1), JEFFREYS


def _strata_shares(labels: _Labels) -> tuple[np.ndarray, np.ndarray]:
    """Return the share of each category among the labels of each stratum, and their number.

    p_h is .5 in a stratum of which no label counts; n_h is (sum of counts)^2 / sum of their
    squares.
    """
    strata = labels.size.size
    stratum = labels.stratum[labels.counted]
    counts = labels.counts[labels.counted]
    mass = np.bincount(stratum, counts, strata)[:, None]
    squares = np.bincount(stratum, counts**2, strata)[:, None]
    of_category = np.zeros((strata, labels.y.shape[1]))
    np.add.at(of_category, stratum, labels.y[labels.counted])
    p_h = np.divide(of_category, mass, out=np.full_like(of_category, 0.5), where=mass > 0)
    n_h = np.divide(mass**2, squares, out=np.zeros_like(mass), where=squares > 0)
    return p_h, n_h


def _jeffreys(p: np.ndarray, n: np.ndarray, tail: float) -> tuple[np.ndarray, np.ndarray]:
    """Quantiles of beta with half a label of either kind added; 0 and 1 where there is none."""
    a = n * p + 0.5
    b = n * (1 - p) + 0.5
    low = np.where(p > 0, betaincinv(a, b, tail), 0.0)
    high = np.where(p < 1, betaincinv(a, b, 1 - tail), 1.0)
    return low, high


def _bounds_of_like(
    labels: _Labels, p: np.ndarray, weight: float, cluster: np.ndarray, level: float
) -> _Bounds:
    """For items like these: a share's exact binomial, else Student's t, over clusters.

    Source: Korn & Graubard (1998) for the share, of as many labels as would have the estimate's
    variance; see `ragbench.stats.intervals.share_bounds`.
    """
    variance = _jackknife_variance(labels, weight, cluster)
    quantile = t_quantile(int(cluster.max()) + 1, level)
    if not labels.share:
        half = quantile * np.sqrt(np.where(variance > 0, variance, np.nan))
        return p - half, p + half, T_CLUSTERS
    counted = labels.counted
    mass = np.bincount(cluster[counted], (labels.counts * labels.inverse_pi)[counted])
    bounds = []
    for share, spread, rarer in zip(np.clip(p, 0, 1), variance, labels.rarer, strict=True):
        low_high = share_bounds(
            share,
            counted.sum(),
            variance=spread,
            rarer=rarer,
            effective=effective_number(mass[mass > 0]),
            quantile=quantile,
            level=level,
        )
        bounds.append(low_high)
    low, high = np.array(bounds).T
    return low, high, EXACT_CLUSTERS


def _jackknife_variance(labels: _Labels, weight: float, cluster: np.ndarray) -> np.ndarray:
    """Return the variance over clusters left out in turn, with pi taken anew each time.

        (C - 1) / C * sum over clusters c of (p without c - mean of these)^2
        p without c = sum over strata of [sum of w * f + N_h / n_h * sum of (y - w * f)] / N,
                      all of them without c

    NaN where all labels of a stratum are in one cluster.
    """
    strata = labels.size.size
    C = int(cluster.max()) + 1

    def without_each(values: np.ndarray) -> np.ndarray:
        """Sums by stratum over all clusters but one: shape (clusters, strata, ...)."""
        sums = np.zeros((C, strata, *values.shape[1:]))
        np.add.at(sums, (cluster, labels.stratum), values)
        return sums.sum(axis=0) - sums

    judged = weight * labels.f
    corrections = np.where(labels.labelled[:, None], labels.y - judged, 0.0)
    N_h = without_each(np.ones(len(cluster)))
    n_h = without_each(labels.labelled.astype(float))
    inverse_pi = np.divide(N_h, n_h, out=np.full_like(N_h, np.nan), where=n_h > 0)
    inverse_pi[N_h == 0] = 0.0
    sums = without_each(judged) + inverse_pi[:, :, None] * without_each(corrections)
    N = without_each(labels.of).sum(axis=1)
    p = sums.sum(axis=1) / N[:, None]
    return (C - 1) / C * ((p - p.mean(axis=0)) ** 2).sum(axis=0)


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

    >>> labels = [1, 0, None, None], [0, 0, None, None]
    >>> judged = [1, 1, 1, 0], [0, 0, 1, 0]
    >>> ppi_difference(*labels, *judged, weight=1.0).estimate
    0.0
    """
    y_a, y_b, f_a, f_b = as_paired(
        labels_a=labels_a, labels_b=labels_b, judged_a=judged_a, judged_b=judged_b
    )
    questions = y_a.size
    (difference,) = ppi_shares(
        (y_a - y_b)[:, None],
        (f_a - f_b)[:, None],
        np.zeros(questions) if strata is None else strata,
        of=np.ones(questions),  # a difference, also where all are 0 or 1
        clusters=np.arange(questions) if cluster is None else cluster,
        weight=weight,
        level=level,
    )
    return difference
