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
from ragbench.stats.inputs import Seed, as_paired, group_index, percentiles, same_length
from ragbench.stats.intervals import Interval, binomial_ci, bootstrap_ci, effective_number

BAYESIAN = "Bayesian bootstrap"
_SPREAD = 2  # items (or groups) spread over all cells of a table of labels


def confusion_matrix(
    truth: Sequence[Any], predicted: Sequence[Any], labels: Sequence[Hashable] | None = None
) -> pd.DataFrame:
    """Count how often each true label (rows) was given each predicted one (columns).

    An item with None or NaN on a side is left out. ``labels``: the possible ones in order; default:
    those that occur, sorted. DataError for lengths that differ, or a label that is not among
    ``labels`` (with its position).
    """
    same_length(truth=truth, predicted=predicted)
    pairs = pd.DataFrame(
        {"truth": np.asarray(truth, object), "predicted": np.asarray(predicted, object)}
    ).dropna()
    present = pairs.stack()
    try:
        labels = sorted(present.unique()) if labels is None else list(labels)
    except TypeError:
        raise DataError(
            "labels of types that have no common order", "all numbers or all text"
        ) from None
    if len(strange := present[~present.isin(labels)]):
        got = f"label {strange.iloc[0]!r} at position {strange.index[0][0]}"
        raise DataError(got, f"one of {', '.join(map(repr, labels))}")
    return pd.crosstab(pairs["truth"], pairs["predicted"]).reindex(
        index=labels, columns=labels, fill_value=0
    )


def kappa(
    a: Sequence[Any],
    b: Sequence[Any],
    *,
    weights: Literal["linear", "quadratic"] | None = None,
    labels: Sequence[Hashable] | None = None,
    groups: Any = None,
    resamples: int = 2000,
    level: float = 0.95,
    seed: Seed = 0,
) -> Interval:
    """Cohen's kappa of two judges, in [-1, 1].

    Parameters
    ----------
    a, b : the judges' labels, shape (n,); an item with a missing side is left out and counted.
    weights : None for categories (the thesis's grades are such); "linear" or "quadratic" for
    ordered labels.
    labels : the possible labels in order, needed for weights unless they are numbers, whose
    distance is their
        difference.
    groups : labels, shape (n,): items of one group (the answers to one question) belong together.

    The interval is of a Bayesian bootstrap: each item (or group) gets a random weight, and two more
    items are spread over all cells of the table of labels. For two labels and items on their own
    that is Jeffreys' prior. It holds where a label is rare, and where the judges never differ; the
    plain bootstrap held in 45 to 90 of 100 cases there (``benchmarks/sim_intervals.py``). Where
    both judges give everything the same one label, kappa and bounds are NaN: no disagreement is
    possible by chance.

    Source: Cohen (1960); weighted: Cohen (1968); interval: Rubin (1981), The Annals of Statistics
    9.
    """
    if weights not in (None, "linear", "quadratic"):
        raise unknown("weights", weights, ("None", "linear", "quadratic"))
    matrix = confusion_matrix(a, b, labels)
    cost = _cost(matrix, weights, ordered=labels is not None)
    counts = matrix.to_numpy()
    n = int(matrix.to_numpy().sum())
    interval = Interval(float("nan"), float("nan"), float("nan"), n, len(a) - n, level)
    if not n:
        return interval
    estimate = float(_kappas(counts[None], cost)[0])
    cells = _cells(a, b, matrix)
    index, n_groups = group_index(groups, len(cells), cells >= 0)
    if groups is not None:
        interval = replace(
            interval, clusters=n_groups, effective=effective_number(np.bincount(index))
        )
    if n_groups < 2 or not resamples or np.isnan(estimate):
        return replace(interval, estimate=estimate)
    by_group = np.zeros((n_groups, counts.size))
    np.add.at(by_group, (index, cells[cells >= 0]), 1.0)
    drawn = _weighted_tables(by_group, resamples, np.random.default_rng(seed))
    low, high = percentiles(_kappas(drawn.reshape(-1, *counts.shape), cost), level)
    low = min(low, estimate)
    high = max(high, estimate)
    return replace(interval, estimate=estimate, low=low, high=high, method=BAYESIAN)


def _cost(matrix: pd.DataFrame, weights: str | None, *, ordered: bool) -> np.ndarray:
    """What each pair of labels counts as disagreement:

    1 unless equal; their distance; its square.
    """
    places: Any = np.arange(len(matrix))
    if weights is not None and not ordered:
        if not all(isinstance(label, Real) for label in matrix.index):
            got = (
                f"weights={weights!r} for labels without a given order: "
                f"{', '.join(map(str, matrix.index))}"
            )
            raise ConfigError(
                got, "their order, from least to most", "pass labels=('low', 'mid', 'high')"
            )
        places = np.array(matrix.index, float)
    distance = np.abs(np.subtract.outer(places, places)).astype(float)
    if weights is None:
        return (distance > 0).astype(float)
    return distance if weights == "linear" else distance**2


def _cells(a: Sequence[Any], b: Sequence[Any], matrix: pd.DataFrame) -> np.ndarray:
    """Number the cell of the table of labels for each item; -1 where a side is missing."""
    row, column = (matrix.index.get_indexer(pd.Series(list(side), dtype=object)) for side in (a, b))
    return np.where((row < 0) | (column < 0), -1, row * len(matrix) + column)


def _weighted_tables(table: np.ndarray, resamples: int, rng: np.random.Generator) -> np.ndarray:
    """Return tables of labels under random weights of the groups, with `_SPREAD` groups spread over
    all cells.

    ``table`` counts labels by group, shape (groups, cells). Weights are of an exponential
    distribution; those of the items of one cell sum to gamma's, so without groups this is a draw
    from the posterior of Dirichlet.
    """
    groups, cells = table.shape
    weights = rng.standard_exponential((resamples, groups))
    prior = rng.standard_gamma(_SPREAD / cells, (resamples, cells))
    return weights @ table + prior * table.sum() / groups


def _kappas(counts: np.ndarray, cost: np.ndarray) -> np.ndarray:
    """1 - observed / expected disagreement of tables of labels, shape (tables, k, k).

    All resamples at once: scikit-learn's cohen_kappa_score takes one pair of label lists, and 500
    times as long for an interval. A test compares the two.
    """
    observed = (counts * cost).sum((1, 2))
    by_chance = np.einsum("ri,rj,ij->r", counts.sum(2), counts.sum(1), cost) / counts.sum((1, 2))
    undefined = by_chance == 0
    return np.where(undefined, np.nan, 1 - observed / np.where(undefined, 1.0, by_chance))


def annotator_agreement(labels: Any, within: float = 1, level: float = 0.95) -> Interval:
    """Share of items, shape (n, 2), on which two annotators differ by at most ``within``; exact
    binomial interval.

    Source: RAGChecker, section 4.2 (human agreement rate |h - h'| <= 1; paper value 90.95%).
    """
    h = np.asarray(labels, float)
    if h.ndim != 2 or h.shape[1] != 2:
        raise DataError(f"labels of shape {h.shape}", "shape (n, 2): two annotators")
    gaps = np.abs(h[:, 0] - h[:, 1])
    known = gaps[~np.isnan(gaps)]
    return replace(
        binomial_ci(int((known <= within).sum()), known.size, level),
        n_missing=gaps.size - known.size,
    )


@dataclass(frozen=True, slots=True)
class PairwiseAgreement:
    """How often a metric prefers what people prefer.

    ``expected`` counts a tie as half, which is the mean over random tie-breaks; ``random`` is one
    seeded tie-break, as published. ``expected.n`` pairs were used.
    """

    expected: Interval
    random: float
    wins: int
    ties: int
    losses: int


def pairwise_agreement(
    better: Any, worse: Any, *, level: float = 0.95, seed: Seed = 0
) -> PairwiseAgreement:
    """Share of pairs in which a metric scores the item that people prefer higher (a missing side
    leaves a pair out).

    The interval around the expectation is the exact binomial one; ties count as half successes,
    which makes it wider than needed, never narrower.

    Source: RAGAS, section 5, Table 1 (accuracy against the annotators, ties broken at random).
    """
    margins = np.subtract(*as_paired(better=better, worse=worse))
    known = margins[~np.isnan(margins)]
    wins = int((known > 0).sum())
    ties = int((known == 0).sum())
    expected = replace(
        binomial_ci(wins + ties / 2, known.size, level), n_missing=margins.size - known.size
    )
    lucky = int(np.random.default_rng(seed).binomial(ties, 0.5))
    random = (wins + lucky) / known.size if known.size else float("nan")
    return PairwiseAgreement(expected, random, wins, ties, int(known.size) - wins - ties)


def repeat_changes(labels: Any, **options: Any) -> Interval:
    """Share of pairs of repeats in which a judge gave the same item two different labels; 0: it
    repeats itself.

    ``labels`` has shape (items, repeats), such as three grades of each answer; None or NaN where
    one is unread. The interval, by `bootstrap_ci` and its options, is over items. Unlike the share
    of items that change at all, this does not grow with the number of repeats. An item with fewer
    than two labels is left out and counted.

    >>> repeat_changes([[5, 5, 5], [5, 5, 4]]).estimate.__round__(3)
    0.333
    """
    pairs = [list(combinations([x for x in row if x is not None and x == x], 2)) for row in labels]
    return bootstrap_ci(
        [np.mean([a != b for a, b in some]) if some else np.nan for some in pairs], **options
    )
