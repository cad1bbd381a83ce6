"""Agreement between judges: confusion matrix, kappa, annotators among themselves, preference in pairs."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, Literal

import numpy as np
import pandas as pd

from ragbench.errors import DataError, unknown
from ragbench.stats.inputs import Seed, as_level, as_paired, as_resamples, percentiles, same_length
from ragbench.stats.intervals import Interval, binomial_ci, bootstrap_ci


@dataclass(frozen=True, slots=True, eq=False)
class ConfusionMatrix:
    """Counts of (truth, predicted): int array, shape (k, k), rows truth, both axes in the order of ``labels``."""

    labels: tuple[Hashable, ...]
    counts: np.ndarray
    n_missing: int

    @property
    def n(self) -> int:
        """Number of items with both labels."""
        return int(self.counts.sum())

    @property
    def accuracy(self) -> float:
        """Share on the diagonal; NaN without items."""
        return float(np.trace(self.counts) / self.n) if self.n else float("nan")

    def to_frame(self) -> pd.DataFrame:
        """The counts as a table with named axes."""
        index, columns = pd.Index(self.labels, name="truth"), pd.Index(self.labels, name="predicted")
        return pd.DataFrame(self.counts, index=index, columns=columns)


def confusion_matrix(
    truth: Sequence[Any], predicted: Sequence[Any], labels: Sequence[Hashable] | None = None
) -> ConfusionMatrix:
    """Count how often each true label was given each predicted one.

    Parameters
    ----------
    truth, predicted : labels of the same items, shape (n,); None or NaN where there is none (an unscored answer).
    labels : the possible labels in order; default: those that occur, sorted.

    Returns
    -------
    ConfusionMatrix; items with a missing side are counted in ``n_missing``.

    Raises
    ------
    DataError for lengths that differ, or a label that is not among ``labels`` (with its position).
    """
    same_length(truth=truth, predicted=predicted)
    pairs = pd.DataFrame({"truth": np.asarray(truth, object), "predicted": np.asarray(predicted, object)})
    present = list(pairs.dropna().itertuples(name=None))
    if labels is None:
        try:
            labels = sorted({x for _, t, p in present for x in (t, p)})
        except TypeError:
            raise DataError("labels of types that have no common order", "all numbers or all text") from None
    order = tuple(labels)
    place = {label: i for i, label in enumerate(order)}
    counts = np.zeros((len(order), len(order)), np.int64)
    for i, t, p in present:
        if t not in place or p not in place:
            wrong = p if t in place else t
            raise DataError(f"label {wrong!r} at position {i}", f"one of {', '.join(map(repr, order))}")
        counts[place[t], place[p]] += 1
    return ConfusionMatrix(order, counts, len(pairs) - len(present))


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
    """Cohen's kappa of two judges, with a percentile bootstrap interval over items.

    Parameters
    ----------
    a, b : the judges' labels, shape (n,); an item with a missing side is left out and counted.
    weights : None for categories (the thesis's grades are such); "linear" or "quadratic" for ordered labels.
    labels : the possible labels in order; default: those that occur, sorted. Matters with weights only.
    resamples, level, seed : as in :func:`ragbench.stats.bootstrap_ci`.

    Returns
    -------
    Interval in [-1, 1]. NaN without items, and when both judges give everything the same one label (no disagreement
    is possible by chance); such resamples are left out of the percentiles.

    Raises
    ------
    ConfigError for unknown weights; DataError for labels of different number.

    Source: Cohen (1960); weighted: Cohen (1968).
    """
    level, resamples = as_level(level), as_resamples(resamples)
    if weights not in (None, "linear", "quadratic"):
        raise unknown("weights", weights, ("None", "linear", "quadratic"))
    matrix = confusion_matrix(a, b, labels)
    counts, n = matrix.counts, matrix.n
    distance = np.abs(np.subtract.outer(np.arange(len(counts)), np.arange(len(counts)))).astype(float)
    cost = (distance > 0).astype(float) if weights is None else distance ** (1 if weights == "linear" else 2)
    estimate = float(_kappas(counts[None], cost)[0]) if n else float("nan")
    low = high = float("nan")
    if n > 1 and resamples and not np.isnan(estimate):
        # Resampling items is drawing cells: kappa depends on the counts alone.
        drawn = np.random.default_rng(seed).multinomial(n, counts.ravel() / n, resamples)
        low, high = percentiles(_kappas(drawn.reshape(-1, *counts.shape), cost), level)
    return Interval(estimate, low, high, n, matrix.n_missing, level)


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
    """Share of items on which two annotators differ by at most ``within``.

    Parameters
    ----------
    labels : numbers, shape (n, 2); an item with a missing label is left out and counted.
    within : the largest difference that still counts as agreement.
    level : of the exact binomial interval.

    Returns
    -------
    Interval in [0, 1].

    Source: RAGChecker, section 4.2 (human agreement rate |h - h'| <= 1; paper value 90.95%).
    """
    h = np.asarray(labels, float)
    if h.ndim != 2 or h.shape[1] != 2:
        raise DataError(f"labels of shape {h.shape}", "shape (n, 2): two annotators")
    gap = np.abs(h[:, 0] - h[:, 1])
    known = gap[~np.isnan(gap)]
    return replace(binomial_ci(int((known <= within).sum()), known.size, level), n_missing=int(gap.size - known.size))


@dataclass(frozen=True, slots=True)
class PairwiseAgreement:
    """How often a metric prefers what people prefer.

    ``expected`` counts a tie as half, which is the mean over random tie-breaks; ``random`` is one seeded tie-break, as
    published. ``expected.n`` pairs were used.
    """

    expected: Interval
    random: float
    wins: int
    ties: int
    losses: int


def pairwise_agreement(better: Any, worse: Any, *, level: float = 0.95, seed: Seed = 0) -> PairwiseAgreement:
    """Share of pairs in which a metric scores the preferred item higher.

    Parameters
    ----------
    better, worse : the metric's scores of the item people prefer and of the other, shape (n_pairs,). A pair with a
        missing side is left out and counted.
    level : of the exact binomial (Clopper-Pearson) interval around the expectation; ties count as half successes,
        which makes it wider than needed, never narrower.
    seed : of the random tie-break.

    Raises
    ------
    DataError for lengths that differ, or values that are no finite numbers or NaN; ConfigError for a level
    outside (0, 1).

    Source: RAGAS, section 5, Table 1 (accuracy against the annotators, ties broken at random).
    """
    gap = np.subtract(*as_paired(better=better, worse=worse))
    known = gap[~np.isnan(gap)]
    wins, ties = int((known > 0).sum()), int((known == 0).sum())
    expected = replace(binomial_ci(wins + ties / 2, known.size, level), n_missing=int(gap.size - known.size))
    lucky = int(np.random.default_rng(seed).binomial(ties, 0.5))
    random = (wins + lucky) / known.size if known.size else float("nan")
    return PairwiseAgreement(expected, random, wins, ties, int(known.size) - wins - ties)


def repeat_changes(
    labels: Any, *, groups: Any = None, resamples: int = 2000, level: float = 0.95, seed: Seed = 0
) -> Interval:
    """Share of pairs of repeats in which a judge gave the same item two different labels.

    Parameters
    ----------
    labels : shape (items, repeats), such as three grades of each answer by one judge; None or NaN where one is unread.
    groups, resamples, level, seed : as for `bootstrap_ci`, over items.

    Returns
    -------
    Interval of the mean over items of the share of their pairs of repeats that differ; 0: the judge repeats itself.
    Unlike the share of items that change at all, it does not grow with the number of repeats. An item with fewer than
    two labels is left out and counted.

    >>> repeat_changes([[5, 5, 5], [5, 5, 4]]).estimate.__round__(3)
    0.333
    """
    rows = [[one for one in row if one is not None and one == one] for row in labels]
    pairs = [list(combinations(row, 2)) for row in rows]
    shares = [np.mean([a != b for a, b in some]) if some else np.nan for some in pairs]
    return bootstrap_ci(shares, groups=groups, resamples=resamples, level=level, seed=seed)
