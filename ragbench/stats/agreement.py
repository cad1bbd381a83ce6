"""Agreement of judges with each other, and of metrics with people."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pandas as pd

from ragbench.errors import ConfigError, DataError, check_known
from ragbench.records import as_id
from ragbench.stats.inputs import TAIL, Seed, as_paired, group_index, same_length
from ragbench.stats.intervals import Interval, Method, binomial_ci, correlation, t_over_z

BAYESIAN = "Bayesian bootstrap"
_PRIOR = 2  # items over all cells of a table of labels


def kappa(
    a: Sequence[Any],
    b: Sequence[Any],
    *,
    weights: Literal["quadratic"] | None = None,
    labels: Sequence[Hashable] | None = None,
    cluster: Any = None,
    resamples: int = 2000,
    seed: Seed = 0,
) -> Interval:
    """Cohen's kappa of two judges, in [-1, 1].

        kappa = 1 - (observed disagreement) / (disagreement expected by chance)

    Parameters
    ----------
    a, b : the judges' labels, shape (n,), equal as ids are: "5", 5 and 5.0 are one label. An item
        with a missing or blank side is left out and counted.
    weights : None for categories (the thesis's grades are such); "quadratic" for ordered labels,
        whose disagreement is the square of their distance.
    labels : the possible labels in order, needed for weights unless they are numbers, whose
        distance is their difference.
    cluster : labels, shape (n,), of items that belong together (the answers to one question).

    The interval is of a Bayesian bootstrap: each item (or group) gets a random weight, with a prior
    of two items over all cells of the table of labels. For two labels and items on their own that
    is Jeffreys' prior. Of groups, whose number may be small, it is made wider by Student's t for
    their effective number. It holds where a label is rare, and where the judges never differ; the
    plain bootstrap held in 27 to 95 of 100 cases there (``benchmarks/sim_intervals.py``). Where a
    label has 5% and items of a group are alike, it holds in 89 of 100 with 30 groups. Where
    both judges give everything the same one label, kappa and bounds are NaN: no disagreement is
    possible by chance.

    Source: Cohen (1960); weighted: Cohen (1968); interval: Rubin (1981), The Annals of Statistics
    9. The values are those of scikit-learn's ``cohen_kappa_score``, which has no interval.

    >>> print(rb.kappa([1, 1, 0, 0, 1, 0, 1, 0], [1, 1, 0, 0, 1, 1, 1, 0]))
    0.750 [0.088, 0.937] (n = 8)
    """
    check_known("weights", [weights or "quadratic"], ["quadratic"])
    same_length(a=a, b=b)
    items = pd.DataFrame({"a": np.asarray(a, object), "b": np.asarray(b, object)}).map(_label)
    pairs = items.dropna()
    missing = len(items) - len(pairs)
    if pairs.empty:
        return Interval.without_bounds(float("nan"), 0, missing)
    present = items.index.isin(pairs.index)
    names = _label_names(pairs) if labels is None else [as_id(label) for label in labels]
    index = group_index(cluster, present.size, present)
    counts = _tables(pairs, names, index)
    cost = _costs(names, weights, ordered=labels is not None)
    estimate = float(_kappas(counts.sum(axis=0), cost)[0])
    interval = Interval.without_bounds(
        estimate, len(pairs), missing, None if cluster is None else index
    )
    if len(counts) < 2 or not resamples or np.isnan(estimate):
        return interval
    drawn = _kappas(_weighted_tables(counts, resamples, seed), cost)
    return _with_bounds(interval, drawn, are_groups=len(counts) < len(pairs))


def _with_bounds(interval: Interval, drawn: np.ndarray, *, are_groups: bool) -> Interval:
    """Return the interval with the 95% percentiles of the draws, wider where they are of groups."""
    estimate = interval.estimate
    if are_groups:
        drawn = estimate + (drawn - estimate) * _few_groups(interval.effective)
    low, high = np.quantile(drawn, [TAIL, 1 - TAIL]).clip(-1, 1).tolist()
    return replace(interval, low=min(low, estimate), high=max(high, estimate), method=BAYESIAN)


def _label(value: Any) -> str | None:
    """Return a label as text; None for a missing or blank one."""
    if pd.isna(value) or not str(value).strip():
        return None
    return as_id(value)


def _label_names(pairs: pd.DataFrame) -> list[str]:
    """Return the labels that occur: numbers in their order, else by name."""
    names = sorted({*pairs["a"], *pairs["b"]})
    try:
        return sorted(names, key=float)
    except ValueError:
        return names


def _few_groups(effective: float) -> float:
    """Return by how much few groups make an interval wider: t over z, and the variance of random
    weights, which is that of one group more, over the unbiased one.
    """
    return t_over_z(effective) * float(np.sqrt((effective + 1) / (effective - 1)))


def _costs(names: Sequence[Any], weights: str | None, *, ordered: bool) -> np.ndarray:
    """What each pair of labels counts as disagreement: 1 unless equal, or distance squared."""
    if weights is None:
        return 1 - np.eye(len(names))
    places = range(len(names)) if ordered else names
    try:
        numbers = np.array(places, dtype=float)
    except ValueError:
        raise ConfigError(
            f"weights={weights!r} for labels without a given order: {list(names)}",
            "their order, from least to most",
            "pass labels=('low', 'mid', 'high')",
        ) from None
    return np.subtract.outer(numbers, numbers) ** 2


def _tables(pairs: pd.DataFrame, names: Sequence[Any], index: np.ndarray) -> np.ndarray:
    """Count items by group (rows) and by cell of the table of labels (columns)."""
    places = pairs.apply(pd.Index(names, dtype=object).get_indexer)
    strange = pairs[(places < 0).any(axis=1)]
    if len(strange):
        raise DataError(
            f"labels [{', '.join(strange.iloc[0])}] at position {strange.index[0]}",
            f"each one of {', '.join(names)}",
        )
    cell = places["a"] * len(names) + places["b"]
    n_groups = index.max() + 1
    counts = np.zeros((n_groups, len(names) ** 2))
    np.add.at(counts, (index, cell), 1.0)
    return counts


def _weighted_tables(counts: np.ndarray, resamples: int, seed: Seed) -> np.ndarray:
    """Return tables of labels under random weights of the groups: shape (resamples, cells).

    Weights are of an exponential distribution; those of the items of one cell sum to gamma's, so
    without groups this is a draw from the posterior of Dirichlet, `_PRIOR` items its prior.
    """
    n_groups, cells = counts.shape
    rng = np.random.default_rng(seed)
    weight = rng.standard_exponential((resamples, n_groups))
    prior = rng.standard_gamma(_PRIOR / cells, (resamples, cells))
    return weight @ counts + prior


def _kappas(tables: np.ndarray, cost: np.ndarray) -> np.ndarray:
    """1 - observed / expected disagreement of tables of labels, each a row of all its cells.

    observed = sum of n_ij cost_ij, expected = sum of n_i. n_.j cost_ij / n; NaN where that is 0.
    """
    n_ij = tables.reshape(-1, *cost.shape)
    of_a = n_ij.sum(axis=2)
    of_b = n_ij.sum(axis=1)
    n = n_ij.sum(axis=(1, 2))
    observed = (n_ij * cost).sum(axis=(1, 2))
    expected = np.einsum("ti,tj,ij->t", of_a, of_b, cost) / n
    expected[expected == 0] = np.nan
    return 1 - observed / expected


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


def pairwise_agreement(better: Any, worse: Any, *, seed: Seed = 0) -> PairwiseAgreement:
    """Share of pairs in which a metric scores the item that people prefer higher (a missing side
    leaves a pair out).

    The interval around the expectation is the exact binomial one; ties count as half successes,
    which makes it wider than needed, never narrower.

    Source: RAGAS, section 5, Table 1 (accuracy against the annotators, ties broken at random).

    >>> print(rb.pairwise_agreement([0.9, 0.8, 0.5], [0.1, 0.2, 0.7]).expected)
    0.667 [0.094, 0.992] (n = 3)
    """
    scores, others = as_paired(better=better, worse=worse)
    margins = scores - others
    n = int((~np.isnan(margins)).sum())
    wins = int((margins > 0).sum())
    ties = int((margins == 0).sum())
    expected = replace(binomial_ci(wins + ties / 2, n), n_missing=margins.size - n)
    won_ties = int(np.random.default_rng(seed).binomial(ties, 0.5))
    return PairwiseAgreement(
        expected=expected,
        random=(wins + won_ties) / n if n else float("nan"),
        wins=wins,
        ties=ties,
        losses=n - wins - ties,
    )


def preference_difference(
    score_1: Any, score_2: Any, missing: Literal["median"] | None = None
) -> np.ndarray:
    """Score differences (model 2 - model 1) of response pairs, mapped linearly to [-2, 2]: shape
    (n_pairs,).

        e_i = 4 * (d_i - min d) / (max d - min d) - 2

    All NaN when the differences are equal. A difference with a missing side stays NaN; "median"
    gives it the median of the others, as RAGChecker's authors did for their baselines.

    Source: RAGChecker, section 4.2 (e_i; the linear map is fixed by the extremes over the pairs).
    """
    check_known("missing", [missing or "median"], ["median"])
    first, second = as_paired(score_1=score_1, score_2=score_2)
    d = second - first
    present = d[~np.isnan(d)]
    if not present.size or np.ptp(present) == 0:
        return np.full(d.size, np.nan)
    if missing:
        d = np.where(np.isnan(d), np.median(present), d)
    in_unit_interval = (d - present.min()) / np.ptp(present)
    return 4 * in_unit_interval - 2


def preference_correlation(
    score_1: Any,
    score_2: Any,
    labels: Any,
    method: Method = "pearson",
    missing: Literal["median"] | None = None,
    **options: Any,
) -> Interval:
    """Correlation of a metric's score differences with human preference between response pairs.

    Parameters
    ----------
    labels : preferences in -2..2, positive when response 2 is better, shape (n_pairs, n_annotators)
        or (n_pairs,). Each pair counts once per annotator (``n``: 560 for 280 pairs and two); a
        missing label is NaN.
    method : "pearson" or "spearman" as published.
    missing : as in `preference_difference`.
    options : for `correlation`, whose bootstrap
        resamples pairs with all their annotators.

    Source: RAGChecker, section 4.2, Tables 2 and 5. Paper values (overall, RAGChecker): 61.93 /
    60.90 (x100).

    >>> first, second = [5, 4, 3, 2, 4, 5], [1, 4, 4, 3, 2, 2]
    >>> print(rb.preference_correlation(first, second, [2, 0, -1, -1, 1, 2]))
    -0.985 [-1.000, -0.931] (n = 6 in 6 clusters, effectively 6.0)
    """
    e = preference_difference(score_1, score_2, missing)
    h = np.asarray(labels, float)
    same_length(scores=e, labels=h)
    h = h.reshape(e.size, -1)
    if (np.abs(h) > 2).any():
        raise DataError(
            "preference labels outside [-2, 2]", "-2 (response 1 much better) to 2 (response 2)"
        )
    pairs = np.repeat(np.arange(e.size), h.shape[1])
    return correlation(e[pairs], h.ravel(), method, cluster=pairs, **options)
