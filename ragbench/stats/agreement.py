"""Agreement of judges with each other and with people."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from numbers import Real
from typing import Any, Literal

import numpy as np
import pandas as pd

from ragbench.errors import ConfigError, DataError, unknown
from ragbench.stats.inputs import Seed, as_paired, percentiles, same_length
from ragbench.stats.intervals import Interval, binomial_ci, bootstrap_ci


def confusion_matrix(
    truth: Sequence[Any], predicted: Sequence[Any], labels: Sequence[Hashable] | None = None
) -> pd.DataFrame:
    """Count how often each true label (rows) was given each predicted one (columns).

    An item with None or NaN on a side is left out. ``labels``: the possible ones in order; default: those that occur,
    sorted. DataError for lengths that differ, or a label that is not among ``labels`` (with its position).
    """
    same_length(truth=truth, predicted=predicted)
    pairs = pd.DataFrame({"truth": np.asarray(truth, object), "predicted": np.asarray(predicted, object)}).dropna()
    present = pairs.stack()
    try:
        labels = sorted(present.unique()) if labels is None else list(labels)
    except TypeError:
        raise DataError("labels of types that have no common order", "all numbers or all text") from None
    if len(strange := present[~present.isin(labels)]):
        got = f"label {strange.iloc[0]!r} at position {strange.index[0][0]}"
        raise DataError(got, f"one of {', '.join(map(repr, labels))}")
    return pd.crosstab(pairs["truth"], pairs["predicted"]).reindex(index=labels, columns=labels, fill_value=0)


def kappa(
    a: Sequence[Any],
    b: Sequence[Any],
    *,
    weights: Literal["linear", "quadratic"] | None = None,
    labels: Sequence[Hashable] | None = None,
    resamples: int = 2000,
    level: float = 0.95,
    seed: Seed = 0,
) -> Interval:
    """Cohen's kappa of two judges, in [-1, 1], with a percentile bootstrap interval over items.

    Parameters
    ----------
    a, b : the judges' labels, shape (n,); an item with a missing side is left out and counted.
    weights : None for categories (the thesis's grades are such); "linear" or "quadratic" for ordered labels.
    labels : the possible labels in order, needed for weights unless they are numbers, whose distance is their
        difference.

    NaN without items, and when both judges give everything the same one label (no disagreement is possible by chance);
    such resamples are left out. Bounds are NaN where every resample gives the same kappa.

    Source: Cohen (1960); weighted: Cohen (1968).
    """
    if weights not in (None, "linear", "quadratic"):
        raise unknown("weights", weights, ("None", "linear", "quadratic"))
    matrix = confusion_matrix(a, b, labels)
    counts, n = matrix.to_numpy(), int(matrix.to_numpy().sum())
    places: Any = np.arange(len(counts))
    if weights is not None and labels is None:
        if not all(isinstance(label, Real) for label in matrix.index):
            got = f"weights={weights!r} for labels without a given order: {', '.join(map(str, matrix.index))}"
            raise ConfigError(got, "their order, from least to most", "pass labels=('low', 'mid', 'high')")
        places = np.array(matrix.index, float)
    distance = np.abs(np.subtract.outer(places, places)).astype(float)
    cost = (distance > 0).astype(float) if weights is None else distance ** (1 if weights == "linear" else 2)
    estimate, draws = float(_kappas(counts[None], cost)[0]) if n else float("nan"), np.empty(0)
    if n > 1 and not np.isnan(estimate):
        # Resampling items is drawing cells: kappa depends on the counts alone.
        drawn = np.random.default_rng(seed).multinomial(n, counts.ravel() / n, resamples)
        draws = _kappas(drawn.reshape(-1, *counts.shape), cost)
    return Interval(estimate, *percentiles(draws, level), n, len(a) - n, level)


def _kappas(counts: np.ndarray, cost: np.ndarray) -> np.ndarray:
    """1 - observed / expected disagreement of confusion matrices, shape (rows, k, k).

    All resamples at once: scikit-learn's cohen_kappa_score takes one pair of label lists, and 500 times as long for an
    interval. A test compares the two.
    """
    observed = (counts * cost).sum((1, 2))
    by_chance = np.einsum("ri,rj,ij->r", counts.sum(2), counts.sum(1), cost) / counts.sum((1, 2))
    undefined = by_chance == 0
    return np.where(undefined, np.nan, 1 - observed / np.where(undefined, 1.0, by_chance))


def annotator_agreement(labels: Any, within: float = 1, level: float = 0.95) -> Interval:
    """Share of items, shape (n, 2), on which two annotators differ by at most ``within``; exact binomial interval.

    Source: RAGChecker, section 4.2 (human agreement rate |h - h'| <= 1; paper value 90.95%).
    """
    h = np.asarray(labels, float)
    if h.ndim != 2 or h.shape[1] != 2:
        raise DataError(f"labels of shape {h.shape}", "shape (n, 2): two annotators")
    gaps = np.abs(h[:, 0] - h[:, 1])
    known = gaps[~np.isnan(gaps)]
    return replace(binomial_ci(int((known <= within).sum()), known.size, level), n_missing=gaps.size - known.size)


@dataclass(frozen=True, slots=True)
class _PairwiseAgreement:
    """How often a metric prefers what people prefer.

    ``expected`` counts a tie as half, which is the mean over random tie-breaks; ``random`` is one seeded tie-break, as
    published. ``expected.n`` pairs were used.
    """

    expected: Interval
    random: float
    wins: int
    ties: int
    losses: int


def pairwise_agreement(better: Any, worse: Any, *, level: float = 0.95, seed: Seed = 0) -> _PairwiseAgreement:
    """Share of pairs in which a metric scores the item that people prefer higher (a missing side leaves a pair out).

    The interval around the expectation is the exact binomial one; ties count as half successes, which makes it wider
    than needed, never narrower.

    Source: RAGAS, section 5, Table 1 (accuracy against the annotators, ties broken at random).
    """
    margins = np.subtract(*as_paired(better=better, worse=worse))
    known = margins[~np.isnan(margins)]
    wins, ties = int((known > 0).sum()), int((known == 0).sum())
    expected = replace(binomial_ci(wins + ties / 2, known.size, level), n_missing=margins.size - known.size)
    lucky = int(np.random.default_rng(seed).binomial(ties, 0.5))
    random = (wins + lucky) / known.size if known.size else float("nan")
    return _PairwiseAgreement(expected, random, wins, ties, int(known.size) - wins - ties)


def repeat_changes(labels: Any, **options: Any) -> Interval:
    """Share of pairs of repeats in which a judge gave the same item two different labels; 0: it repeats itself.

    ``labels`` has shape (items, repeats), such as three grades of each answer; None or NaN where one is unread. The
    interval, by `bootstrap_ci` and its options, is over items. Unlike the share of items that change at all, this does
    not grow with the number of repeats. An item with fewer than two labels is left out and counted.

    >>> repeat_changes([[5, 5, 5], [5, 5, 4]]).estimate.__round__(3)
    0.333
    """
    pairs = [list(combinations([x for x in row if x is not None and x == x], 2)) for row in labels]
    return bootstrap_ci([np.mean([a != b for a, b in some]) if some else np.nan for some in pairs], **options)
