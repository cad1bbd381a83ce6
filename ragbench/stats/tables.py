"""From rows to tables: the only place where scores of single questions are averaged, and compared in pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from ragbench.errors import ConfigError, DataError, check_known
from ragbench.stats.inputs import Seed
from ragbench.stats.intervals import bootstrap_ci, paired_bootstrap_difference
from ragbench.stats.paired import holm, paired_permutation_test, power_analysis, questions_needed

_SYSTEM = "the system's name"  # a column beside those of the caller
_MAX_GROUPS = 50  # of a column that is offered to tell rows apart
_CLUSTERS = ("clusters", "effective")
_NEEDS = ("power", "needed", "needed_all")
_MEASURED = ("mean a", "mean b", "difference", "low", "high", "p", "p_holm", "n", "missing", *_NEEDS)


def means(
    rows: pd.DataFrame,
    by: str | Sequence[str],
    measures: str | Sequence[str],
    *,
    groups: str | None = None,
    resamples: int = 2000,
    seed: Seed = 0,
) -> pd.DataFrame:
    """Average measures (a column, or several) over questions, with 95% bootstrap intervals.

    Parameters
    ----------
    by : columns that make the groups, in the order of first appearance; none averages all rows.
    groups : a column; rows that share its value (the systems of one question, the questions about one document) are
        resampled together.

    Returned are the columns of ``by``, metric (left out for a single one), mean, low, high, n (scored), unscored; with
    ``groups`` also clusters (their number) and effective (see `Interval`).
    """
    by, wanted = _several(by), _several(measures)
    check_known("column", [*by, *wanted, *_several(groups or ())], rows.columns)
    cells = []
    for key, part in rows.groupby(by, sort=False, dropna=False) if by else [((), rows)]:
        together = None if groups is None else part[groups].to_numpy()
        for measure in wanted:
            i = bootstrap_ci(part[measure].to_numpy(float), groups=together, resamples=resamples, seed=seed)
            cells.append((*key, measure, i.estimate, i.low, i.high, i.n, i.n_missing, i.clusters, i.effective))
    columns = [*by, "metric", "mean", "low", "high", "n", "unscored", *_CLUSTERS]
    table = pd.DataFrame(cells, columns=columns).drop(columns=[] if groups else [*_CLUSTERS])
    return table.drop(columns="metric") if isinstance(measures, str) else table


def _several(columns: str | Sequence[str]) -> list[str]:
    return [columns] if isinstance(columns, str) else list(columns)


def compare(
    rows: pd.DataFrame,
    systems: str | Sequence[str],
    measure: str,
    *,
    by: str | Sequence[str] = (),
    pairs: Sequence[tuple[str, str]] | None = None,
    cluster: str | None = None,
    **options: Any,
) -> pd.DataFrame:
    """Compare systems over the same questions, in pairs: the table of `compare_pairs`, by ``by``, a and b.

    Parameters
    ----------
    rows : one row per question and system, with a column question_id.
    systems : the column that names the system, or several, whose values are joined: "small, BM25".
    by : columns; systems are compared within each group of rows that share their values.
    pairs : (a, b) to compare; None: every pair, in the order of first appearance.
    cluster : a column with one value a question (its document, its topic): questions that share it are resampled and
        flipped together.
    options : for `compare_pairs`.

    Raises DataError when a system has several rows for a question.
    """
    if not isinstance(measure, str):
        do = "compare one measure at a time, or several by rb.compare_scores(table, columns)"
        raise ConfigError(f"measure is {measure!r}", "the name of one column", do)
    by, names, scores = _several(by), _several(systems), {}
    check_known("column", [*by, *names, measure, "question_id", *_several(cluster or ())], rows.columns)
    again = rows.duplicated([*by, *names, "question_id"], keep=False)
    if again.any():
        at, differ = rows[again].iloc[0], _told_apart_by(rows, [*by, *names, "question_id"], measure)
        do = f"tell them apart: by={[*by, *differ]}" if differ else "keep one of them"
        got = f"{', '.join(str(at[name]) for name in names)} has several rows for the question {at['question_id']!r}"
        raise DataError(got, "one row per question and system", do)
    named = rows[names[0]] if len(names) == 1 else rows[names].astype(str).agg(", ".join, axis=1)
    check_known("system", [name for pair in pairs or () for name in pair], named.unique())
    rows = rows.assign(**{_SYSTEM: named})
    for key, part in rows.groupby(by, sort=False) if by else [((), rows)]:
        wide = part.pivot(index="question_id", columns=_SYSTEM, values=measure)
        for a, b in pairs or combinations(dict.fromkeys(part[_SYSTEM]), 2):
            if not {a, b} <= {*wide.columns}:
                continue  # answers without documents are one system, in a group of their own
            scores[*key, a, b] = wide[a], wide[b]
            if cluster is not None:
                options.setdefault("groups", {})[*key, a, b] = cluster_of_question(part, cluster).reindex(wide.index)
    return compare_pairs(scores, [*by, "a", "b"], **options)


def _told_apart_by(rows: pd.DataFrame, key: list[str], measure: str) -> list[str]:
    """Return the first columns that leave one row for each key; none where no columns do."""
    found: list[str] = []
    left = int(rows.duplicated(key).sum())
    for column in rows.columns.drop([*key, measure]):
        values = rows[column]
        if left and not pd.api.types.is_float_dtype(values) and values.map(lambda v: isinstance(v, str | int)).all():
            now = int(rows.duplicated([*key, *found, column]).sum())
            if now < left and values.nunique() < _MAX_GROUPS:
                found, left = [*found, column], now
    return [] if left else found


def cluster_of_question(rows: pd.DataFrame, cluster: str) -> pd.Series:
    """Return the cluster of each question; DataError for a question with two, or none."""
    each = rows.groupby("question_id")[cluster].agg(["nunique", "first"])
    wrong = each.index[each["nunique"] != 1]
    if len(wrong):
        got = f"question {str(wrong[0])!r} has {each['nunique'].loc[wrong[0]]} values in the column {cluster!r}"
        raise DataError(got, "one value for all rows of a question", "name a column such as topic, or add one")
    return each["first"]


def compare_pairs(
    scores: Mapping[tuple, tuple[Any, Any]],
    names: Sequence[str],
    *,
    groups: Mapping[tuple, Any] | None = None,
    power: float = 0.8,
    alpha: float = 0.05,
    resamples: int = 2000,
    seed: Seed = 0,
) -> pd.DataFrame:
    """Compare pairs of scores: interval, paired permutation test, Holm's correction over the table, power.

    Parameters
    ----------
    scores : two arrays over the same questions by key, NaN where a score is missing.
    names : columns for the parts of the keys.
    groups : by key, a label per question: questions of one label are resampled and their signs flipped together.
    power, alpha : of the questions needed. resamples : of the bootstrap. seed : of the bootstrap and the test.

    Returns
    -------
    DataFrame, one row per key: ``names``, mean a, mean b (over questions with both scores), difference (a - b), low,
    high (95%, bootstrap), p, p_holm (for all rows together), n, missing (questions without a score of either), power
    (chance that as many questions show this difference again), needed (questions for it at ``power`` and ``alpha``),
    needed_all (with alpha divided by the number of rows). The last three are NaN with ``groups``: they count questions
    on their own; the table then ends with clusters (their number) and effective (see `Interval`).
    """
    rows = []
    for key, pair in scores.items():
        a, b = (np.asarray(side, float) for side in pair)
        labels = None if groups is None else np.asarray(groups[key])
        both = ~np.isnan(a - b)
        interval = paired_bootstrap_difference(a, b, groups=labels, resamples=resamples, seed=seed)
        needs = dict.fromkeys(_NEEDS, np.nan)
        if groups is None:
            found = power_analysis(a, b, power=power, alpha=alpha, resamples=0)
            needed_all = questions_needed(found.difference, found.sd, power, alpha / len(scores))
            needs = {"power": found.power, "needed": found.needed, "needed_all": needed_all}
        rows.append(
            dict(zip(names, key, strict=True))
            | {name: side[both].mean() if both.any() else np.nan for name, side in (("mean a", a), ("mean b", b))}
            | {"difference": interval.estimate, "low": interval.low, "high": interval.high}
            | {"p": paired_permutation_test(a, b, cluster=labels, seed=seed).p_value, "p_holm": np.nan}
            | {"n": interval.n, "missing": interval.n_missing, **needs}
            | {"clusters": interval.clusters, "effective": interval.effective}
        )
    table = pd.DataFrame(rows, columns=[*names, *_MEASURED, *(_CLUSTERS if groups is not None else ())])
    return table.assign(p_holm=holm(table["p"]))
