"""Means and shares from few labels and many judge grades: prediction-powered inference.

`ppi_mean` is for two independent samples. `ppi_shares` and `ppi_difference` follow PPI++
(Angelopoulos et al. 2023) for labels drawn within strata of a finite set of answers: the difference
estimator of survey statistics (Särndal et al. 1992).

Letters, as in the formulas: y labels, f the judge's predictions; h a stratum with N_h items, of
which n_h are labelled; pi = n_h / N_h; w the judge's weight; N the sum of ``of``, or the number of
items.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from scipy.special import betaincinv, ndtri, stdtrit

from ragbench.errors import ConfigError, DataError, check_known
from ragbench.stats.inputs import TAIL, as_floats, as_paired, group_index, same_length
from ragbench.stats.intervals import (
    EXACT_CLUSTERS,
    T_CLUSTERS,
    Interval,
    T,
    share_bounds,
    t_p_value,
)

Weight = float | Literal["tuned"]
NORMAL = "normal"
JEFFREYS = "Jeffreys' of the strata, joined"
_Bounds = tuple[np.ndarray, np.ndarray, str]  # low and high by category, and the method
_LENT_LABELS = 3  # of the rarer kind, for which the judge gains nothing


def ppi_mean(
    labelled: Any,
    judged_labelled: Any,
    judged_unlabelled: Any,
    *,
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

    >>> print(rb.ppi_mean([1, 0, 1, 1, 0], [1, 0, 1, 0, 0], [1, 1, 0, 1, 1, 0, 1]))
    0.914 [0.014, 1.000] (n = 5)
    """
    y, judged, rest = _two_samples(labelled, judged_labelled, judged_unlabelled)
    n = y.size
    N = rest.size
    items = n + N
    f = np.concatenate([judged, rest])
    w = _chosen_weight(weight, _tuned_weight_of_mean, y, judged, f)
    (interval,) = ppi_shares(
        np.concatenate([y, np.full(N, np.nan)])[:, None],
        f[:, None],
        np.zeros(items),
        of=None if _is_share(y, f) else np.ones(items),
        cluster=np.arange(items),
        weight=w * items / N,  # there the judge's mean is over all items
    )
    missing = len(labelled) + len(judged_unlabelled) - items
    if n < 2 or N < 2:
        return Interval.without_bounds(interval.estimate, n, missing)
    if interval.method == T_CLUSTERS:
        interval = replace(interval, method=T)
    return replace(interval, n_missing=missing, clusters=0, effective=float("nan"))


def _two_samples(
    labelled: Any, judged_labelled: Any, judged_unlabelled: Any
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the values that are there of both samples: y and f of the labelled items, f of the
    rest; DataError where one is empty.
    """
    pairs = np.array(as_paired(labelled=labelled, judged_labelled=judged_labelled))
    y, judged = pairs[:, ~np.isnan(pairs).any(axis=0)]
    rest = as_floats(judged_unlabelled, "judged_unlabelled")
    rest = rest[~np.isnan(rest)]
    if not y.size or not rest.size:
        raise DataError(
            f"{y.size} items with human and judge values, {rest.size} with the judge's alone",
            "at least one of each",
            "with human labels only use mean_interval",
        )
    return y, judged, rest


def _tuned_weight_of_mean(y: np.ndarray, judged: np.ndarray, f: np.ndarray) -> float:
    """w = cov(y, judged) / ((1 + n / N) var(f)), in [0, 1]."""
    n = y.size
    N = f.size - n
    covariance = 0.0
    if n > 1:
        covariance = np.cov(y, judged)[0, 1]
    return _best_weight(covariance, (1 + n / N) * f.var())


def _is_share(y: np.ndarray, f: np.ndarray) -> bool:
    """Whether labels are 0 and 1, and the judge within them; both occur."""
    if not np.isin(y, (0, 1)).all():
        return False
    seen = np.concatenate([y, f])
    return bool(seen.min() == 0 and seen.max() == 1)


def _chosen_weight(weight: Weight, tuned: Callable[..., float], *sample: Any) -> float:
    """Return the weight, or where it is "tuned" that of the sample."""
    if isinstance(weight, str):
        check_known("weight", [weight], ["tuned"])
        return tuned(*sample)
    return weight


def _best_weight(shared: float, own: float) -> float:
    """Covariance of labels and judge over the judge's own variance, in [0, 1]."""
    if own <= 0:
        return 0.0
    return float(np.clip(shared / own, 0, 1))


def stratified_draw(strata: Any, n: int, *, least: int = 25, seed: int) -> np.ndarray:
    """Draw n items at random within strata: ``least`` of every stratum, or all it has, the rest in
    proportion.

    What is left of n is shared in proportion to what is left of the strata, by largest remainders.
    ``strata`` is the stratum of every item, shape (N,); so is the result, booleans. The inclusion
    probability of an item is the share of its stratum that was drawn.

    >>> stratified_draw(["a"] * 8 + ["b"] * 2, 5, least=1, seed=0).sum()
    np.int64(5)
    """
    _, stratum, N_h = np.unique(np.asarray(strata), return_inverse=True, return_counts=True)
    n = min(n, stratum.size)
    n_h = np.minimum(N_h, least)
    more = n - n_h.sum()
    if more < 0:
        raise ConfigError(
            f"{n} items for {N_h.size} strata of at least {least}",
            f"n of {n_h.sum()}",
            "lower least",
        )
    if more:
        n_h = n_h + _in_proportion(more, N_h - n_h)
    random = np.random.default_rng(seed)
    drawn = np.zeros(stratum.size, dtype=bool)
    for h, count in enumerate(n_h):
        items = np.flatnonzero(stratum == h)
        drawn[random.choice(items, count, replace=False)] = True
    return drawn


def _in_proportion(n: int, sizes: np.ndarray) -> np.ndarray:
    """Share n in proportion to sizes, by largest remainders; ties go to the earlier one."""
    exact = n * sizes / sizes.sum()
    whole = np.floor(exact).astype(int)
    by_remainder = np.argsort(whole - exact, kind="stable")
    left = n - whole.sum()
    whole[by_remainder[:left]] += 1
    return whole


@dataclass(frozen=True, slots=True)
class _Sample:
    """Labels drawn within strata, and a judge's predictions of all items."""

    y: np.ndarray  # shape (items, categories); 0 where there is no label
    f: np.ndarray
    of: np.ndarray  # what each item adds to N
    labelled: np.ndarray
    stratum: np.ndarray
    N_h: np.ndarray  # shape (strata, 1)
    n_h: np.ndarray
    share: bool  # else it is a difference

    @property
    def inverse_pi(self) -> np.ndarray:
        """N_h / n_h of each item."""
        return (self.N_h / self.n_h)[self.stratum]

    @property
    def factor(self) -> np.ndarray:
        """Of the variance within a stratum, in that of the sum: N_h^2 (1 - n_h / N_h) / n_h."""
        return self.N_h**2 * (1 - self.n_h / self.N_h) / self.n_h

    @property
    def scale(self) -> np.ndarray:
        """Of a stratum's spread, in that of the share: W_h^2 (1 - n_h / N_h), W_h = N_h / N."""
        return self.n_h * self.factor / self.N_h.sum() ** 2

    @property
    def rarer(self) -> np.ndarray:
        """Labels of each category, or of the others, whichever are fewer."""
        of_category = self.y.sum(axis=0)
        return np.minimum(of_category, self.labelled.sum() - of_category)

    def mean_h(self, values: np.ndarray) -> np.ndarray:
        """Mean of the labelled items of each stratum: shape (strata, categories)."""
        sums = np.zeros((len(self.N_h), values.shape[1]))
        np.add.at(sums, self.stratum[self.labelled], values[self.labelled])
        return sums / self.n_h


def ppi_shares(
    values: Any,
    predictions: Any,
    strata: Any,
    *,
    of: Any = None,
    cluster: Any = None,
    weight: Weight = "tuned",
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
    of : what each item adds to N, of a difference: then labels and predictions may have signs.
        Default 1, of a share.
    cluster : of each item; those of one belong together. Without: the interval is for *these*
        items, whose labels were sampled. With: for items *like* these, by a jackknife that leaves
        out one cluster at a time.
    weight : w, one for all categories; "tuned" takes that of least summed variance in [0, 1], 0
        ignores the judge.

    Returns
    -------
    One Interval per category; ``n`` counts labels, ``n_missing`` items without; ``method`` names
    the interval.

    - A share of these items: `_bounds_of_these`.
    - A share of items like these: `_bounds_of_like`.
    - A difference (``of``, or values that are not 0 and 1): symmetric, not cut at -1 and 1; NaN
      where nothing varies, where a stratum has one label of several items, or, with clusters, has
      all labels in one. Normal for these items, Student's t with clusters.

    How often they hold: ``benchmarks/sim_intervals.py``. DataError for a stratum without a label,
    half a label, a missing prediction.

    >>> nan = float("nan")
    >>> labels, judged = [[1], [0], [1], [nan]], [[1], [0], [1], [1]]
    >>> (share,) = rb.stats.ppi_shares(labels, judged, ["all"] * 4)
    >>> round(share.estimate, 2)
    0.75
    """
    sample = _read(values, predictions, strata, of)
    w = _chosen_weight(weight, _tuned_weight, sample)
    p = _estimate(sample, w)
    if cluster is None:
        return _intervals(sample, p, _bounds_of_these(sample, p, w), None)
    index = group_index(cluster, len(sample.stratum))
    if not index.any():
        raise DataError(
            "1 cluster", "at least 2", "leave cluster out: the interval is then for these items"
        )
    return _intervals(sample, p, _bounds_of_like(sample, p, w, index), index)


def _intervals(
    sample: _Sample, p: np.ndarray, bounds: _Bounds, cluster: np.ndarray | None
) -> list[Interval]:
    low, high, method = bounds
    n = int(sample.labelled.sum())
    intervals = []
    for estimate, below, above in np.array([p, low, high]).T.tolist():
        interval = Interval.without_bounds(estimate, n, len(sample.y) - n, cluster)
        if not np.isnan(below):
            interval = replace(interval, low=below, high=above, method=method)
        if method == T_CLUSTERS and above > below:
            half = (above - below) / 2
            interval = replace(interval, p=t_p_value(estimate, half, interval.clusters))
        intervals.append(interval)
    return intervals


def _read(values: Any, predictions: Any, strata: Any, of: Any) -> _Sample:
    """Check the arguments of `ppi_shares`."""
    y, f, labelled = _read_labels(values, predictions)
    share = of is None and bool(np.isin(y[labelled], (0, 1)).all())
    if of is None:
        of = np.ones(len(y))
    same_length(values=y, strata=strata, of=of)
    names, stratum, N_h = np.unique(np.asarray(strata), return_inverse=True, return_counts=True)
    n_h = np.bincount(stratum[labelled], minlength=names.size)
    if not n_h.all():
        raise DataError(
            f"no label in stratum {str(names[n_h == 0][0])!r}",
            "labels in every stratum",
            "label some of it",
        )
    return _Sample(
        y=np.nan_to_num(y),
        f=f,
        of=np.asarray(of, dtype=float),
        labelled=labelled,
        stratum=stratum,
        N_h=N_h[:, None],
        n_h=n_h[:, None],
        share=share,
    )


def _read_labels(values: Any, predictions: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return y, f and which items have a label."""
    y = np.asarray(values, dtype=float)
    f = np.asarray(predictions, dtype=float)
    if y.ndim != 2 or y.shape != f.shape:
        raise DataError(
            f"values {y.shape}, predictions {f.shape}",
            "the same two dimensions",
            "one column a category",
        )
    labelled = (~np.isnan(y)).max(axis=1, initial=False)
    if np.isnan(y[labelled]).any() or np.isnan(f).any():
        raise DataError(
            "half a label, or a missing prediction",
            "whole labels or none; every prediction",
            "check both",
        )
    return y, f, labelled


def _covariance(sample: _Sample, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return that of two arrays among the labels of each stratum: shape (strata, categories).

    cov_h = n_h / (n_h - 1) * mean_h of (a - mean_h(a)) (b - mean_h(b)); NaN for a single label.
    """
    from_mean_a = a - sample.mean_h(a)[sample.stratum]
    from_mean_b = b - sample.mean_h(b)[sample.stratum]
    n_h = sample.n_h
    degrees = np.where(n_h > 1, n_h - 1, np.nan)
    return n_h / degrees * sample.mean_h(from_mean_a * from_mean_b)


def _tuned_weight(sample: _Sample) -> float:
    """Return the weight of least variance, in [0, 1].

        w = sum over strata of factor_h * cov_h(y, f) / sum over strata of factor_h * var_h(f)

    Strata that are labelled in full add nothing to the variance.
    """
    covariance_h = _covariance(sample, sample.y, sample.f)
    variance_h = _covariance(sample, sample.f, sample.f)
    shared = np.nansum(sample.factor * covariance_h)
    own = np.nansum(sample.factor * variance_h)
    return _best_weight(shared, own)


def _estimate(sample: _Sample, w: float) -> np.ndarray:
    """Return p: the judge's sum, and what the labels correct, over N."""
    judged = w * sample.f.sum(axis=0)
    rest = (sample.y - w * sample.f) * sample.inverse_pi
    corrections = rest[sample.labelled].sum(axis=0)
    N = sample.of.sum()
    return (judged + corrections) / N


# Bounds


def _bounds_of_these(sample: _Sample, p: np.ndarray, w: float) -> _Bounds:
    """For these items, of which some were sampled.

    variance = (1/N^2) sum over strata of factor_h * var_h(y - w * f)
    """
    rest = sample.y - w * sample.f
    sampled = sample.n_h < sample.N_h
    within = np.where(sampled, sample.factor * _covariance(sample, rest, rest), 0.0)
    N = sample.of.sum()
    if sample.share:
        return _joined_jeffreys(sample, p, np.nansum(within, axis=0) / N**2)
    variance = within.sum(axis=0) / N**2
    if sampled.any():
        variance = np.where(variance > 0, variance, np.nan)
    z = -ndtri(TAIL)
    half = z * np.sqrt(variance)
    return p - half, p + half, NORMAL


def _joined_jeffreys(sample: _Sample, p: np.ndarray, variance: np.ndarray) -> _Bounds:
    """A share of these items: Jeffreys' bounds of its strata, joined.

        low = p - sqrt(gain * sum over strata of scale_h (p_h - low_h)^2 + added), high alike
        binomial = sum over strata of scale_h p_h (1 - p_h) / (n_h - 1)
        added = z^2 (variance - binomial) where the judge makes the variance more

    low_h, high_h by `_jeffreys`; gain, where the judge makes the variance less, by `_gain`.

    Source: Zou & Donner (2008) for joining.
    """
    n_h = sample.n_h
    p_h = sample.mean_h(sample.y)
    low_h, high_h = _jeffreys(p_h, n_h)
    scale_h = sample.scale
    binomial_h = scale_h * p_h * (1 - p_h) / np.maximum(n_h - 1, 1)
    binomial = binomial_h.sum(axis=0)
    gain = _gain(variance, binomial, sample.rarer)
    added = ndtri(TAIL) ** 2 * np.maximum(variance - binomial, 0)
    below = (scale_h * (p_h - low_h) ** 2).sum(axis=0)
    above = (scale_h * (high_h - p_h) ** 2).sum(axis=0)
    low = p - np.sqrt(gain * below + added)
    high = p + np.sqrt(gain * above + added)
    return np.clip(low, 0, 1), np.clip(high, 0, 1), JEFFREYS


def _jeffreys(p_h: np.ndarray, n_h: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Quantiles of beta with half a label of either kind added; 0 and 1 where all are of one kind.

    Source: Brown, Cai & DasGupta (2001).
    """
    a = n_h * p_h + 0.5
    b = n_h * (1 - p_h) + 0.5
    low_h = np.where(p_h > 0, betaincinv(a, b, TAIL), 0.0)
    high_h = np.where(p_h < 1, betaincinv(a, b, 1 - TAIL), 1.0)
    return low_h, high_h


def _gain(variance: np.ndarray, binomial: np.ndarray, rarer: np.ndarray) -> np.ndarray:
    """Return variance / binomial, at most 1: what the judge makes of the variance.

    With few labels of the rarer kind nearer to 1, as if `_LENT_LABELS` more had gained nothing.
    """
    measured = np.ones_like(variance)
    np.divide(variance, binomial, where=binomial > 0, out=measured)
    measured = np.minimum(measured, 1)
    return (rarer * measured + _LENT_LABELS) / (rarer + _LENT_LABELS)


def _bounds_of_like(sample: _Sample, p: np.ndarray, w: float, cluster: np.ndarray) -> _Bounds:
    """For items like these: a share's exact binomial, else Student's t, over clusters.

    Source: Korn & Graubard (1998) for the share, of as many labels as would have the estimate's
    variance; see `ragbench.stats.intervals.share_bounds`.
    """
    variance = _jackknife_variance(sample, w, cluster)
    C = int(cluster.max()) + 1
    if not sample.share:
        t = -stdtrit(C - 1, TAIL)
        half = t * np.sqrt(np.where(variance > 0, variance, np.nan))
        return p - half, p + half, T_CLUSTERS
    n = sample.labelled.sum()
    stands_for = sample.inverse_pi[sample.labelled, 0]  # items, by label
    sizes = np.bincount(cluster[sample.labelled], stands_for)
    options = {"sizes": sizes, "clusters": C}
    bounds = []
    for share, spread, rarer in zip(np.clip(p, 0, 1), variance, sample.rarer, strict=True):
        bounds.append(share_bounds(share, n, variance=spread, rarer=rarer, **options))
    low, high = np.array(bounds).T
    return low, high, EXACT_CLUSTERS


def _jackknife_variance(sample: _Sample, w: float, cluster: np.ndarray) -> np.ndarray:
    """Return the variance over clusters left out in turn, with pi taken anew each time.

        (C - 1) / C * sum over clusters c of (p without c - mean of these)^2
        p without c = sum over strata of [sum of w * f + N_h / n_h * sum of (y - w * f)] / N,
                      all of them without c

    NaN where all labels of a stratum are in one cluster.
    """
    labelled = sample.labelled[:, None]
    judged = w * sample.f
    rest = np.where(labelled, sample.y - judged, 0.0)
    N_h = _without_each(np.ones_like(labelled, float), sample, cluster)
    n_h = _without_each(labelled.astype(float), sample, cluster)
    N = _without_each(sample.of[:, None], sample, cluster).sum(axis=1)
    inverse_pi = N_h / np.where(n_h > 0, n_h, np.nan)
    inverse_pi[N_h == 0] = 0.0
    corrections = inverse_pi * _without_each(rest, sample, cluster)
    sums = _without_each(judged, sample, cluster) + corrections
    p = sums.sum(axis=1) / N
    C = len(p)
    squares = (p - p.mean(axis=0)) ** 2
    return (C - 1) / C * squares.sum(axis=0)


def _without_each(values: np.ndarray, sample: _Sample, cluster: np.ndarray) -> np.ndarray:
    """Sums by stratum over all clusters but one: shape (clusters, strata, categories)."""
    C = int(cluster.max()) + 1
    sums = np.zeros((C, sample.N_h.size, values.shape[1]))
    np.add.at(sums, (cluster, sample.stratum), values)
    return sums.sum(axis=0) - sums


def ppi_difference(
    labels_a: Any,
    labels_b: Any,
    judged_a: Any,
    judged_b: Any,
    *,
    strata: Any = None,
    cluster: Any = None,
    weight: Weight = "tuned",
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
    if strata is None:
        strata = np.zeros(questions)
    if cluster is None:
        cluster = np.arange(questions)
    of = np.ones(questions)  # a difference, also where all are 0 or 1
    y = (y_a - y_b)[:, None]
    f = (f_a - f_b)[:, None]
    (difference,) = ppi_shares(y, f, strata, of=of, cluster=cluster, weight=weight)
    return difference
