"""From rows to tables:

the only place where scores of single questions are averaged, and compared in pairs.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from ragbench.data.relevance import linked_questions
from ragbench.errors import ConfigError, DataError, check_known
from ragbench.stats.inputs import Seed
from ragbench.stats.intervals import Interval, is_share, mean_interval, paired_bootstrap_difference
from ragbench.stats.paired import (
    detectable_difference,
    holm,
    paired_permutation_test,
    questions_needed,
    spread,
)

QUESTIONS = "questions"  # the default groups of `means`
KNOWN = "known"  # the default cluster of `compare`
# columns that say which questions stand or fall together
KNOWN_CLUSTERS = ("cluster", "topic", "document")
# Numbers that are yes or no, also where all values of a table are the same.
YES_OR_NO = (
    "fully_right",
    "fully right",
    "contained",
    "exact_match",
    *(f"grade {n}" for n in range(1, 6)),
)
_SYSTEM = "the system's name"  # a column beside those of the caller
_MAX_GROUPS = 50  # of a column that is offered to tell rows apart
_COUNTS = ("clusters", "effective")
_MEASURED = (
    "mean a",
    "mean b",
    "difference",
    "low",
    "high",
    "p",
    "p_holm",
    "n",
    "missing",
    "detectable",
    "needed",
)


def fully_right(grades: Any) -> np.ndarray:
    """1.0 for grade 5, 0.0 for 1 to 4, NaN for what is no grade: empty, outside 1 to 5, or other
    words.

    Grades may be text, as of a table: "5" and "5.0" are 5.

    >>> fully_right([5, "5", "5.0", 4, 7, "good", None]).tolist()
    [1.0, 1.0, 1.0, 0.0, nan, nan, nan]
    """
    numbers = pd.to_numeric(pd.Series(list(grades), dtype=object), errors="coerce").to_numpy(
        float, na_value=np.nan
    )
    return np.where(np.isin(numbers, range(1, 6)), (numbers == 5).astype(float), np.nan)


def means(
    rows: pd.DataFrame,
    by: str | Sequence[str],
    measures: str | Sequence[str],
    *,
    groups: str | None = QUESTIONS,
    resamples: int = 2000,
    seed: Seed = 0,
) -> pd.DataFrame:
    """Average measures (a column, or several) over questions, with 95% intervals.

    Parameters
    ----------
    by : columns that make the groups, in the order of first appearance; none averages all rows.
    groups : a column; rows that share its value (the questions about one document) are resampled
    together. Default:
        the rows of one question, by question_id, or by its text where there is no such column.
        None: each row alone.

    Returned are the columns of ``by``, metric (left out for a single one), mean, low, high, n
    (scored), unscored. With a column of groups, or where a question has several rows, also clusters
    (the number of groups, or of questions) and effective (see `Interval`). ``attrs["intervals"]``
    names the kinds of interval.

    Raises ConfigError for grades, which are categories: average "fully_right".
    """
    rows = rows.reset_index(drop=True)
    by = _several(by)
    wanted = _several(measures)
    rows = with_measures(rows, wanted)
    columns = [] if groups in (QUESTIONS, None) else [groups]
    check_known("column", [*by, *wanted, *columns], rows.columns)
    together = question_keys(rows) if groups == QUESTIONS else rows[groups] if groups else None
    shares = {measure: measure in YES_OR_NO or is_share(rows[measure]) for measure in wanted}
    keys = []
    intervals = []
    for key, part in rows.groupby(by, sort=False, dropna=False) if by else [((), rows)]:
        labels = None if together is None else together[part.index]
        for measure in wanted:
            values = part[measure].to_numpy(float)
            options = {"share": shares[measure]}
            intervals.append(
                mean_interval(values, np.mean, labels, resamples, 0.95, seed, **options)
            )
            keys.append((*key, measure))
    table = _means_table(keys, [*by, "metric"], intervals, counted=groups not in (QUESTIONS, None))
    return table.drop(columns="metric") if isinstance(measures, str) else table


def _several(columns: str | Sequence[str]) -> list[str]:
    return [columns] if isinstance(columns, str) else list(columns)


def _means_table(
    keys: Sequence[tuple], names: Sequence[str], intervals: Sequence[Interval], *, counted: bool
) -> pd.DataFrame:
    table = pd.DataFrame(keys, columns=names)
    table["mean"] = [i.estimate for i in intervals]
    table["low"] = [i.low for i in intervals]
    table["high"] = [i.high for i in intervals]
    table["n"] = [i.n for i in intervals]
    table["unscored"] = [i.n_missing for i in intervals]
    if counted or any(i.clusters not in (0, i.n) for i in intervals):
        table["clusters"] = [i.clusters for i in intervals]
        table["effective"] = [i.effective for i in intervals]
    table.attrs["intervals"] = sorted({i.method for i in intervals} - {""})
    return table


def with_measures(rows: pd.DataFrame, measures: Sequence[str]) -> pd.DataFrame:
    """Refuse to average grades; add fully_right to rows with grades."""
    if "grade" in measures:
        do = "take 'fully_right', the share of grade 5, which rows with a grade have"
        raise ConfigError("the mean of 'grade'", "a number: grades are categories", do)
    if "fully_right" in measures and "fully_right" not in rows and "grade" in rows:
        return rows.assign(fully_right=fully_right(rows["grade"]))
    return rows


def question_keys(rows: pd.DataFrame) -> pd.Series | None:
    """Number the questions of rows:

    by data set and question_id, or the text of the question; None without either.
    """
    named = [name for name in ("question_id", "question") if name in rows][:1]
    if not named:
        return None
    if "data" in rows:
        named = ["data", *named]
    return rows.groupby(named, sort=False).ngroup().replace(-1, np.nan)


def compare(
    rows: pd.DataFrame,
    systems: str | Sequence[str],
    measure: str,
    *,
    by: str | Sequence[str] = (),
    pairs: Sequence[tuple[str, str]] | None = None,
    cluster: str | None = KNOWN,
    **options: Any,
) -> pd.DataFrame:
    """Compare systems over the same questions, in pairs: the table of `compare_pairs`, by ``by``, a
    and b.

    Parameters
    ----------
    rows : one row per question and system, with a column question_id.
    systems : the column that names the system, or several, whose values are joined: "small, BM25".
    by : columns; systems are compared within each group of rows that share their values.
    pairs : (a, b) to compare; None: every pair, in the order of first appearance.
    cluster : which questions stand or fall together, and are resampled and flipped together: see
    `question_clusters`.
    options : for `compare_pairs`.

    Raises DataError when a system has several rows for a question, ConfigError for grades, which
    are categories.
    """
    if not isinstance(measure, str):
        do = "compare one measure at a time, or several by rb.compare_scores(table, columns)"
        raise ConfigError(f"measure is {measure!r}", "the name of one column", do)
    by = _several(by)
    names = _several(systems)
    rows = with_measures(rows, [measure])
    check_known("column", [*by, *names, measure, "question_id"], rows.columns)
    _require_one_row(rows, by, names, measure)
    named = rows[names[0]] if len(names) == 1 else rows[names].astype(str).agg(", ".join, axis=1)
    check_known("system", [name for pair in pairs or () for name in pair], named.unique())
    rows = rows.assign(**{_SYSTEM: named})
    scores = {}
    groups = {}
    for key, part in rows.groupby(by, sort=False) if by else [((), rows)]:
        clusters = question_clusters(part, cluster)
        for (a, b), sides in _paired(part, measure, pairs).items():
            scores[*key, a, b] = sides
            if clusters is not None:
                groups[*key, a, b] = clusters.reindex(sides[0].index)
    return compare_pairs(scores, [*by, "a", "b"], groups=groups or None, **options)


def _paired(
    part: pd.DataFrame, measure: str, pairs: Sequence[tuple[str, str]] | None
) -> dict[tuple[str, str], tuple[pd.Series, pd.Series]]:
    """Return the scores of each pair of systems over the same questions."""
    wide = part.pivot(index="question_id", columns=_SYSTEM, values=measure)
    pairs = pairs or list(combinations(dict.fromkeys(part[_SYSTEM]), 2))
    # Answers without documents are one system, in a group of their own.
    return {(a, b): (wide[a], wide[b]) for a, b in pairs if {a, b} <= {*wide.columns}}


def _require_one_row(rows: pd.DataFrame, by: list[str], names: list[str], measure: str) -> None:
    key = [*by, *names, "question_id"]
    again = rows.duplicated(key, keep=False)
    if not again.any():
        return
    first = rows[again].iloc[0]
    differ = _told_apart_by(rows, key, measure)
    do = f"tell them apart: by={[*by, *differ]}" if differ else "keep one of them"
    system = ", ".join(str(first[name]) for name in names)
    got = f"{system} has several rows for the question {first['question_id']!r}"
    raise DataError(got, "one row per question and system", do)


def _told_apart_by(rows: pd.DataFrame, key: list[str], measure: str) -> list[str]:
    """Return the first columns that leave one row for each key; none where no columns do."""
    found: list[str] = []
    left = int(rows.duplicated(key).sum())
    for column in rows.columns.drop([*key, measure]):
        values = rows[column]
        if (
            left
            and not pd.api.types.is_float_dtype(values)
            and values.map(lambda v: isinstance(v, str | int)).all()
        ):
            now = int(rows.duplicated([*key, *found, column]).sum())
            if now < left and values.nunique() < _MAX_GROUPS:
                found = [*found, column]
                left = now
    return [] if left else found


def question_clusters(rows: pd.DataFrame, cluster: str | None = KNOWN) -> pd.Series | None:
    """Return the cluster of each question, by question_id; None where each question is on its own.

    Parameters
    ----------
    cluster : a column with one value a question. "known": the first of the columns `KNOWN_CLUSTERS`
    that has several
        values, each for several questions; else the questions that share a relevant document (the
        column ``relevant``). None: each question is on its own, which is right where the rows'
        documents are all that there will ever be.

    A question without a value is a cluster of its own, with a warning. DataError for a question
    with two values.
    """
    if cluster is None:
        return None
    if cluster != KNOWN:
        check_known("column", [cluster], rows.columns)
        return _each_its_own(cluster_of_question(rows, cluster))
    for column in KNOWN_CLUSTERS:
        if column in rows and rows.groupby("question_id")[column].nunique().max() == 1:
            clusters = cluster_of_question(rows, column)
            if clusters.nunique() > 1 and clusters.dropna().duplicated().any():
                return _each_its_own(clusters)
    if "relevant" in rows:
        judged = rows.drop_duplicates("question_id").set_index("question_id")["relevant"]
        documents = {
            name: [*named] if isinstance(named, list | dict) else []
            for name, named in judged.items()
        }
        clusters = pd.Series(linked_questions(documents))
        if 1 < clusters.nunique() < len(clusters):
            return clusters
    return None


def _each_its_own(clusters: pd.Series) -> pd.Series:
    """Make a cluster of each question that has none, with a warning."""
    lacking = clusters.isna()
    if not lacking.any():
        return clusters
    said = (
        f"{lacking.sum()} of {len(clusters)} questions have no {clusters.name}: each counts "
        "as one of its own"
    )
    warnings.warn(said, stacklevel=4)
    names = pd.Series([f"question {name}" for name in clusters.index], clusters.index, dtype=object)
    return clusters.astype(object).where(~lacking, names)


def cluster_of_question(rows: pd.DataFrame, cluster: str) -> pd.Series:
    """Return the cluster of each question, missing where it has none;

    DataError for a question with two.
    """
    each = rows.groupby("question_id", sort=False)[cluster].agg(["nunique", "first"])
    wrong = each.index[each["nunique"] > 1]
    if len(wrong):
        got = (
            f"question {str(wrong[0])!r} has {each['nunique'].loc[wrong[0]]} values in the "
            f"column {cluster!r}"
        )
        raise DataError(
            got, "one value for all rows of a question", "name a column such as topic, or add one"
        )
    return each["first"].rename(cluster)


def compare_pairs(
    scores: Mapping[tuple, tuple[Any, Any]],
    names: Sequence[str],
    *,
    groups: Mapping[tuple, Any] | None = None,
    difference: float | None = None,
    power: float = 0.8,
    alpha: float = 0.05,
    resamples: int = 2000,
    seed: Seed = 0,
) -> pd.DataFrame:
    """Compare pairs of scores: interval, paired permutation test, Holm's correction over the table,
    power.

    Parameters
    ----------
    scores : two arrays over the same questions by key, NaN where a score is missing.
    names : columns for the parts of the keys.
    groups : by key, a label per question: questions of one label are resampled and their signs
    flipped together.
    difference : the smallest difference that matters to you, for ``needed``.
    power, alpha : of detectable and needed. resamples : of the bootstrap. seed : of the bootstrap
    and the test.

    Returns
    -------
    DataFrame, one row per key: ``names``, mean a, mean b (over questions with both scores),
    difference (a - b), low, high (95%), p, p_holm (for all rows together), n, missing (questions
    without a score of either), detectable (the smallest difference that as many questions find with
    a chance of ``power``, tested at ``alpha`` over the number of rows), needed (questions that find
    ``difference`` so; NaN without one). With ``groups`` needed counts clusters, and the table ends
    with clusters (their number) and effective (see `Interval`).
    """
    each_alpha = alpha / max(len(scores), 1)
    rows = []
    intervals = []
    for key, (first, second) in scores.items():
        a = np.asarray(first, float)
        b = np.asarray(second, float)
        labels = None if groups is None else groups.get(key)
        interval = paired_bootstrap_difference(a, b, groups=labels, resamples=resamples, seed=seed)
        row = dict(zip(names, key, strict=True)) | _side_by_side(a, b, interval)
        row["p"] = paired_permutation_test(a, b, cluster=labels, seed=seed).p_value
        row["detectable"] = detectable_difference(a - b, labels, power, each_alpha)
        if difference is not None:
            row["needed"] = questions_needed(difference, spread(a - b, labels), power, each_alpha)
        rows.append(row)
        intervals.append(interval.method)
    counts = _COUNTS if groups else ()
    table = pd.DataFrame(rows, columns=[*names, *_MEASURED, *counts])
    table["p_holm"] = holm(table["p"])
    table.attrs["intervals"] = sorted({*intervals} - {""})
    return table


def _side_by_side(a: np.ndarray, b: np.ndarray, interval: Interval) -> dict[str, float]:
    """Return the means of both over the questions that both have, and the interval of their
    difference.
    """
    both = ~np.isnan(a - b)
    return {
        "mean a": a[both].mean() if both.any() else np.nan,
        "mean b": b[both].mean() if both.any() else np.nan,
        "difference": interval.estimate,
        "low": interval.low,
        "high": interval.high,
        "n": interval.n,
        "missing": interval.n_missing,
        "clusters": interval.clusters,
        "effective": interval.effective,
    }
