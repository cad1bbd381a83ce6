"""How far metrics agree: with each other over answers, with reference grades, and in the ranking of systems.

Every metric is turned so that more is better before it is compared (hallucination counts as its negative), so that a
positive number always means agreement.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from ragbench.concordance import METRICS
from ragbench.errors import DataError, check_known, unknown
from ragbench.stats import correlation
from ragbench.stats.association import Method
from ragbench.stats.inputs import group_counts, group_index, percentiles

_SIGN = {m.name: 1.0 if m.higher else -1.0 for m in METRICS}
NAMES = tuple(_SIGN)
METHODS: tuple[Method, ...] = ("spearman", "kendall")


def metric_correlations(
    table: pd.DataFrame, metrics: Sequence[str] = NAMES, *, resamples: int = 500, seed: int = 0
) -> pd.DataFrame:
    """Correlate every two metrics over answers.

    Parameters
    ----------
    table : from `score_table`. metrics : its columns.
    resamples, seed : of the bootstrap over questions (the answers to one question stay together); 0 for none.

    Returns
    -------
    DataFrame: a, b, method, estimate, low, high (95%), n (answers scored by both), missing. NaN where a metric has only
    one value.
    """
    values = _turned(table, metrics)
    rows = []
    for (a, x), (b, y) in combinations(values.items(), 2):
        for method in METHODS:
            i = correlation(x, y, method, groups=table["question_id"].tolist(), resamples=resamples, seed=seed)
            rows.append((a, b, method, i.estimate, i.low, i.high, i.n, i.n_missing))
    return pd.DataFrame(rows, columns=["a", "b", "method", "estimate", "low", "high", "n", "missing"])


def correlation_matrix(pairs: pd.DataFrame, method: str | None = None) -> pd.DataFrame:
    """Lay out `metric_correlations` or `ranking_correlations` as a symmetric matrix with ones on the diagonal.

    Parameters
    ----------
    pairs : columns a, b, estimate and, if there are several, method.
    method : which one.
    """
    if method is not None:
        known = list(dict.fromkeys(pairs["method"]))
        check_known("method", [method], known)
        pairs = pairs[pairs["method"] == method]
    names = list(dict.fromkeys([*pairs["a"], *pairs["b"]]))
    matrix = pd.DataFrame(np.eye(len(names)), index=names, columns=names)
    for a, b, estimate in pairs[["a", "b", "estimate"]].itertuples(index=False):
        matrix.loc[a, b] = matrix.loc[b, a] = estimate
    return matrix


def cluster_order(matrix: pd.DataFrame) -> tuple[list[str], np.ndarray]:
    """Order metrics so that like ones stand together: average linkage on 1 - correlation.

    Parameters
    ----------
    matrix : from `correlation_matrix`; an undefined correlation counts as 0.

    Returns
    -------
    (names in order, linkage of `scipy.cluster.hierarchy` over the matrix's own order); the linkage of fewer than two
    metrics is empty.
    """
    from scipy.cluster.hierarchy import leaves_list, linkage, optimal_leaf_ordering
    from scipy.spatial.distance import squareform

    if len(matrix) < 2:
        return list(matrix.index), np.empty((0, 4))
    distance = 1 - np.nan_to_num(matrix.to_numpy(float), nan=0.0)
    np.fill_diagonal(distance, 0)
    condensed = squareform(distance.clip(min=0), checks=False)
    tree = optimal_leaf_ordering(linkage(condensed, "average"), condensed)
    return [matrix.index[i] for i in leaves_list(tree)], tree


def grade_agreement(
    table: pd.DataFrame, metrics: Sequence[str] = NAMES, *, right: int = 5, resamples: int = 1000, seed: int = 0
) -> pd.DataFrame:
    """Say how well each metric tells answers with the reference grade "fully right" from the others.

    Parameters
    ----------
    table : from `score_table`, with grades; answers without one are left out and counted as missing.
    metrics : its columns. right : the grade that counts as right.
    resamples, seed : of the bootstrap over questions.

    Returns
    -------
    DataFrame, best first: metric, auc (chance that a right answer scores above another; ties count half), low, high,
    tau (Kendall's tau-b with right or not), within (share of pairs of a right and another answer *to the same question*
    that the metric orders rightly, ties half: the question's own difficulty has no part in it), pairs (of that kind),
    n, missing. NaN without right and other answers.

    Raises
    ------
    DataError when nobody graded.
    """
    if not table["grade"].notna().any():
        raise DataError("no grades", "answers with reference grades", "use cases of graded answers")
    grades = table["grade"].astype(float).to_numpy()
    rows = []
    for name, values in _turned(table, metrics).items():
        present = ~np.isnan(values) & ~np.isnan(grades)
        x, good = values[present], grades[present] == right
        groups = table["question_id"].to_numpy()[present]
        auc, low, high = separation(x, good, groups, resamples=resamples, seed=seed)
        tau = correlation(x, good.astype(float), "kendall", resamples=0).estimate
        rows.append((name, auc, low, high, tau, *_within(x, good, groups), int(present.sum()), int((~present).sum())))
    columns = ["metric", "auc", "low", "high", "tau", "within", "pairs", "n", "missing"]
    frame = pd.DataFrame(rows, columns=columns)
    return frame.sort_values("auc", ascending=False, kind="stable", ignore_index=True)


def separation(
    values: Any, positive: Any, groups: Any = None, *, resamples: int = 1000, level: float = 0.95, seed: int = 0
) -> tuple[float, float, float]:
    """Area under the ROC curve with a bootstrap interval over groups.

    Parameters
    ----------
    values : shape (n,), finite. positive : booleans, shape (n,). groups : labels that stay together, or None.

    Returns
    -------
    (auc, low, high) in [0, 1]: the chance that a positive value is above a negative one, ties half. NaN without both
    kinds; resamples without both are left out.

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
    estimate = float(_auc(np.ones((1, n_groups)), above, below)[0])
    draws = [_auc(counts, above, below) for counts in group_counts(n_groups, resamples, seed, size[1])]
    low, high = percentiles(np.concatenate(draws), level) if draws and n_groups > 1 else (np.nan, np.nan)
    return estimate, low, high


def _auc(counts: np.ndarray, above: np.ndarray, below: np.ndarray) -> np.ndarray:
    p, n = counts @ above, counts @ below
    wins = (p * (np.cumsum(n, axis=1) - n / 2)).sum(1)
    pairs = p.sum(1) * n.sum(1)
    return np.divide(wins, pairs, out=np.full(len(wins), np.nan), where=pairs > 0)


def _within(values: np.ndarray, good: np.ndarray, groups: np.ndarray) -> tuple[float, int]:
    won, pairs = 0.0, 0
    for name in dict.fromkeys(groups[good].tolist()):
        of_question = groups == name
        gaps = values[of_question & good][:, None] - values[of_question & ~good][None, :]
        won += float((gaps > 0).sum() + (gaps == 0).sum() / 2)
        pairs += gaps.size
    return (won / pairs if pairs else np.nan), pairs


def ranking_correlations(
    table: pd.DataFrame, metrics: Sequence[str] = NAMES, *, resamples: int = 1000, seed: int = 0
) -> pd.DataFrame:
    """Kendall's tau-b between the rankings of systems that metrics give by their means.

    Parameters
    ----------
    table : from `score_table`, every question answered by every system.
    metrics : its columns.
    resamples, seed : of the bootstrap over questions.

    Returns
    -------
    DataFrame: a, b, estimate, low, high, systems. NaN for a metric by which all systems are equal.

    Raises
    ------
    DataError with fewer than three systems, or for a system that lacks a question.
    """
    systems, questions = list(dict.fromkeys(table["system"])), list(dict.fromkeys(table["question_id"]))
    if len(systems) < 3:
        raise DataError(f"{len(systems)} systems", "at least 3, or there is no ranking", "add retrievers or budgets")
    cells = table.set_index(["system", "question_id"])
    if not cells.index.is_unique or len(cells) != len(systems) * len(questions):
        raise DataError(
            f"{len(cells)} answers of {len(systems)} systems to {len(questions)} questions",
            "every question answered once by every system",
            "leave out questions that a system lacks",
        )
    ordered = cells.reindex(pd.MultiIndex.from_product([systems, questions]))
    draws = [np.ones((1, len(questions))), *group_counts(len(questions), resamples, seed, len(systems))]
    turned = _turned(ordered, metrics)
    signs = {name: _pair_signs(x.reshape(len(systems), -1), draws) for name, x in turned.items()}
    rows = []
    for (a, x), (b, y) in combinations(signs.items(), 2):
        scale = np.sqrt((x**2).sum(1) * (y**2).sum(1))
        tau = np.divide((x * y).sum(1), scale, out=np.full(len(x), np.nan), where=scale > 0)
        low, high = percentiles(tau[1:], 0.95)
        rows.append((a, b, float(tau[0]), low, high, len(systems)))
    return pd.DataFrame(rows, columns=["a", "b", "estimate", "low", "high", "systems"])


def _pair_signs(values: np.ndarray, draws: Sequence[np.ndarray]) -> np.ndarray:
    """Which of every two systems has the higher mean, per resample: -1, 0, 1, shape (resamples, pairs)."""
    known = ~np.isnan(values)
    filled = np.where(known, values, 0.0)
    first, second = np.triu_indices(len(values), 1)
    signs = []
    for counts in draws:
        total, n = counts @ filled.T, counts @ known.T.astype(float)
        means = np.divide(total, n, out=np.full(total.shape, np.nan), where=n > 0)
        gap = np.round(means[:, first] - means[:, second], 12)  # sums in another order are no difference
        signs.append(np.sign(np.nan_to_num(gap, nan=0.0)))
    return np.concatenate(signs)


def disagreements(table: pd.DataFrame, metrics: Sequence[str], top: int = 5) -> pd.DataFrame:
    """Find the answers on which metrics part most.

    Parameters
    ----------
    table : from `score_table`.
    metrics : those to be held against each other, for instance one of each paper. All are brought to one scale: the
        share of answers that score lower (ties half), turned so that more is better.
    top : how many answers.

    Returns
    -------
    DataFrame indexed by case, most disagreement first: question_id, system, grade, a column per metric with that share
    (0 worst, 1 best, NaN undefined), spread (largest minus smallest). An answer that fewer than two metrics score is
    left out.
    """
    turned = pd.DataFrame(_turned(table, metrics), table.index)
    shares = (turned.rank() - 0.5) / turned.count()
    frame = table[["case", "question_id", "system", "grade"]].assign(**shares)
    frame["spread"] = (shares.max(axis=1) - shares.min(axis=1)).where(shares.notna().sum(axis=1) > 1)
    frame = frame.dropna(subset="spread").sort_values("spread", ascending=False, kind="stable")
    return frame.head(top).set_index("case")


def _turned(table: pd.DataFrame, metrics: Sequence[str]) -> dict[str, np.ndarray]:
    """Columns as arrays in which more is better."""
    for name in metrics:
        if name not in table:
            raise unknown("metric", name, [n for n in NAMES if n in table])
    return {name: _SIGN.get(name, 1.0) * table[name].to_numpy(float) for name in metrics}
