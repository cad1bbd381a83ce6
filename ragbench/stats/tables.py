"""From rows to tables: the only place where scores of single questions are averaged, and compared
in pairs.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pandas as pd

from ragbench.data.relevance import linked_questions
from ragbench.data.tables import read_mapping
from ragbench.errors import ConfigError, DataError, check_known
from ragbench.records import GRADES
from ragbench.stats.inputs import Seed, as_floats, as_paired, group_index, several
from ragbench.stats.intervals import Interval, bootstrap_ci, is_share, paired_bootstrap_difference
from ragbench.stats.paired import holm, paired_permutation_test, power_analysis

QUESTIONS = "questions"  # the default groups of `means`
KNOWN = "known"  # the default cluster of `compare`
# columns that say which questions stand or fall together
KNOWN_CLUSTERS = ("cluster", "topic", "document")
# Numbers that are yes or no, also where all values of a table are the same.
YES_OR_NO = re.compile(r"fully.right|contained|exact_match|grade \d+")
# fields of an interval and their columns in a table of means
_INTERVAL = {
    "estimate": "mean",
    "low": "low",
    "high": "high",
    "n": "n",
    "n_missing": "unscored",
    "clusters": "clusters",
    "effective": "effective",
}


_COMPARED = (
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


def grade_numbers(grades: Any, scale: Iterable[int] = range(1, 6)) -> np.ndarray:
    """Read grades: NaN for what is no grade of the scale: empty, another number, or other words.

    Grades may be text, as of a table: "5" and "5.0" are 5.
    """
    values = pd.Series(list(grades), dtype=object)
    numbers = pd.to_numeric(values, errors="coerce").to_numpy(float)
    of_scale = np.isin(numbers, list(scale))
    return np.where(of_scale, numbers, np.nan)


def rows_by_scale(rows: pd.DataFrame) -> list[tuple[Mapping[int, str], np.ndarray]]:
    """Return the scales of a run's judges, and which rows each has: ``judge_scale``, else the
    thesis's five grades. A file may hold a scale as text, or its grades as text.
    """
    scale_of: dict[str, Mapping[int, str]] = {"": GRADES}
    names = []
    for cell in rows.get("judge_scale", [None] * len(rows)):
        name = str(cell)
        if not name.startswith("{") or name == "{}":
            name = ""
        if name not in scale_of:
            scale_of[name] = _scale(cell)
        names.append(name)
    of_row = np.array(names)
    return [(scale_of[name], of_row == name) for name in dict.fromkeys(names)]


def _scale(cell: Any) -> dict[int, str]:
    try:
        return {int(grade): words for grade, words in read_mapping(cell).items()}
    except (ValueError, AttributeError, TypeError):
        raise DataError(
            f"judge_scale {cell!s:.80}", "grades with their meanings", "leave it empty"
        ) from None


def fully_right(grades: Any, scale: Iterable[int] = range(1, 6)) -> np.ndarray:
    """1.0 for the best grade of the scale, 0.0 for the others, NaN for what is no grade.

    ``grades`` : also the rows of a run, each of which has its judge's scale.

    >>> fully_right([5, "5", "5.0", 4, 7, "good", None]).tolist()
    [1.0, 1.0, 1.0, 0.0, nan, nan, nan]
    """
    if isinstance(grades, pd.DataFrame):
        right = np.full(len(grades), np.nan)
        for own, places in rows_by_scale(grades):
            right[places] = fully_right(grades["grade"][places], own)
        return right
    numbers = grade_numbers(grades, scale)
    return np.where(np.isnan(numbers), np.nan, numbers == max(scale))


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
        together. Default: the rows of one question, by question_id, or by its text where there is
        no such column. None: each row alone.

    Returned are the columns of ``by``, metric (left out for a single one), mean, low, high, n
    (scored), unscored. With a column of groups, or where a question has several rows, also clusters
    (the number of groups, or of questions) and effective (see `Interval`). ``attrs["intervals"]``
    names the kinds of interval.

    Raises ConfigError for grades, which are categories: average "fully_right".
    """
    by = several(by)
    columns = several(measures)
    rows = _with_measures(rows.reset_index(drop=True), columns)
    check_known("column", [*by, *columns], rows.columns)
    shares = {}
    for name in columns:
        shares[name] = bool(YES_OR_NO.fullmatch(str(name))) or is_share(rows[name])
    cluster = _together(rows, groups)
    labels = None
    intervals: dict[tuple, Interval] = {}
    for key, part in _parts(rows, by):
        if cluster is not None:
            labels = cluster[part.index]
        for name in columns:
            intervals[*key, name] = bootstrap_ci(
                part[name], groups=labels, share=shares[name], resamples=resamples, seed=seed
            )
    table = _interval_table(intervals, [*by, "metric"])
    is_once = table["clusters"].eq(0) | table["clusters"].eq(table["n"])
    if groups in (QUESTIONS, None) and is_once.all():  # each question
        table = table.drop(columns=["clusters", "effective"])
    if isinstance(measures, str):
        table = table.drop(columns="metric")
    return table


def _interval_table(intervals: Mapping[tuple, Interval], names: Sequence[str]) -> pd.DataFrame:
    """Return a row per interval, with columns for the parts of its key; its kinds in ``attrs``."""
    keys = pd.DataFrame(list(intervals), columns=names)
    numbers = pd.DataFrame(intervals.values(), columns=[*_INTERVAL, "method"])
    table = keys.join(numbers[[*_INTERVAL]].rename(columns=_INTERVAL))
    table.attrs["intervals"] = sorted(set(numbers["method"]) - {""})
    return table


def _parts(rows: pd.DataFrame, by: list[str]) -> Iterable[tuple[tuple, pd.DataFrame]]:
    """Return the groups of rows, by the values of columns; all rows where there are none."""
    if not by:
        return [((), rows)]
    return rows.groupby(by, sort=False, dropna=False)


def _with_measures(rows: pd.DataFrame, measures: Sequence[str]) -> pd.DataFrame:
    """Refuse to average grades; add fully_right to rows with grades."""
    if "grade" in measures:
        raise ConfigError(
            "the mean of 'grade'",
            "a number: grades are categories",
            "take 'fully_right', the share of grade 5, which rows with a grade have",
        )
    if "fully_right" in measures and "fully_right" not in rows and "grade" in rows:
        return rows.assign(fully_right=fully_right(rows))
    return rows


def _together(rows: pd.DataFrame, groups: str | None) -> pd.Series | None:
    """Return what rows belong together by: a column, or their question; None: each row alone.

    A question is named by data set and question_id, or by its text; None without either.
    """
    if groups is None:
        return None
    if groups != QUESTIONS:
        check_known("column", [groups], rows.columns)
        return rows[groups]
    if "question_id" in rows:
        columns = ["question_id"]
    elif "question" in rows:
        columns = ["question"]
    else:
        return None
    if "data" in rows:
        columns = ["data", *columns]
    return rows.groupby(columns, sort=False).ngroup().replace(-1, np.nan)


def compare(
    rows: pd.DataFrame,
    system: str | Sequence[str],
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
    system : the column that names the system, or several, whose values are joined: "small, BM25".
    by : columns; systems are compared within each group of rows that share their values.
    pairs : (a, b) to compare; None: every pair, in the order of first appearance.
    cluster : which questions stand or fall together, and are resampled and flipped together: see
        `known_clusters`.
    options : for `compare_pairs`.

    Raises DataError when a system has several rows for a question, ConfigError for grades, which
    are categories.
    """
    if not isinstance(measure, str):
        raise ConfigError(
            f"measure is {measure!r}",
            "the name of one column",
            "compare one measure at a time, or several by rb.compare_scores(table, columns)",
        )
    by = several(by)
    names = several(system)
    rows = _with_measures(rows, [measure])
    check_known("column", [*by, *names, measure, "question_id"], rows.columns)
    system = ", ".join(names)
    if len(names) > 1:
        joined = rows[names].astype(str).agg(", ".join, axis=1)
        rows = rows.assign(**{system: joined})
    check_known("system", itertools.chain(*(pairs or ())), rows[system].unique())
    scores = {}
    groups = {}
    for key, part in _parts(rows, by):
        clusters = known_clusters(part, cluster)
        for (a, b, _), sides in _paired_scores(part, system, [measure], pairs).items():
            scores[*key, a, b] = sides
            if clusters is not None:
                groups[*key, a, b] = clusters.reindex(sides[0].index)
    return compare_pairs(scores, [*by, "a", "b"], groups=groups or None, **options)


def compare_scores(
    table: pd.DataFrame,
    columns: str | Sequence[str] | None = None,
    pairs: Sequence[tuple[str, str]] | None = None,
    *,
    cluster: str | None = KNOWN,
    **options: Any,
) -> pd.DataFrame:
    """Compare systems in pairs over the same questions, corrected by Holm for all that is compared.

    Parameters
    ----------
    table : from `ragbench.score`, or any with question_id, system, and a column per number.
    columns : numbers to compare; None: all of a table that `ragbench.score` returned. Choose few,
        and before you look.
    pairs : two names of systems each; None: every two.
    cluster : which questions stand or fall together, and are resampled and flipped together.
        Default: what the columns of the table say (see `known_clusters`); or a column such as
        topic; None: each question is on its own.
    options : for `compare_pairs`: ``difference``, ``resamples``, ``seed``.

    Returns
    -------
    The table of `compare_pairs`, named a, b, measure; `ragbench.comparison.conclusions` puts it
    into words. Pairs without a question scored for both are left out.

    Raises ConfigError for a system that is not there, DataError for one that answered a question
    twice, or when there is nothing to compare.
    """
    _check_systems(table, pairs)
    measures = several(columns or table.attrs.get("numbers", ()))
    if not measures:
        raise ConfigError(
            "no columns to compare: a file keeps no list of a table's numbers",
            "names of columns",
            "write for instance columns=['exact_match']",
        )
    scores_of_all = _paired_scores(table, "system", measures, pairs)
    questions = table["question_id"].unique()
    scores = {}
    for key, (a, b) in scores_of_all.items():
        if (a + b).notna().any():
            scores[key] = a[questions], b[questions]
    if not scores:
        raise DataError(
            "no pair of systems has a question scored for both",
            "scores of both",
            "have two systems answer one question; the columns 'reason' and 'error' say why a "
            "number is missing",
        )
    clusters = known_clusters(table, cluster)
    if clusters is not None:
        options["groups"] = dict.fromkeys(scores, clusters[questions])
    return compare_pairs(scores, ("a", "b", "measure"), **options)


def _check_systems(table: pd.DataFrame, pairs: Sequence[tuple[str, str]] | None) -> None:
    if "system" not in table or table["system"].nunique() < 2:
        raise DataError(
            "fewer than two systems",
            "two or more in the column 'system'",
            "name yours: columns={'system': 'model'}; of a run, add a retriever, or an N",
        )
    for pair in pairs or ():
        if isinstance(pair, str):
            raise DataError(f"pairs={pairs!r:.80}", "a list of pairs", f"write [{tuple(pairs)}]")
        check_known("system", pair, table["system"].unique())


def _paired_scores(
    rows: pd.DataFrame, system: str, measures: Sequence[str], pairs: Sequence[tuple] | None
) -> dict[tuple[str, str, str], tuple[pd.Series, pd.Series]]:
    """Return the scores of two systems over the same questions, by (a, b, measure).

    A pair is left out where a system has no row: answers without documents are one system, in a
    group of their own.
    """
    rows = _with_measures(rows, measures)
    check_known("column", [*measures, "question_id"], rows.columns)
    twice = rows[rows.duplicated([system, "question_id"])]
    if len(twice):
        first = twice.iloc[0]
        raise DataError(
            f"{first[system]} has several rows for the question {first['question_id']!r}",
            "one row per question and system",
            "name the columns that tell them apart, as by=['N'], or keep one of them",
        )
    numbers = rows[["question_id", system]].copy()
    for name in measures:
        numbers[name] = as_floats(rows[name], name)
    wide = numbers.pivot(index="question_id", columns=system, values=list(measures))
    names = rows[system].unique()
    scores = {}
    for a, b in pairs or itertools.combinations(names, 2):
        if {a, b} <= set(names):
            for name in measures:
                scores[a, b, name] = wide[name, a], wide[name, b]
    return scores


def known_clusters(rows: pd.DataFrame, cluster: str | None = KNOWN) -> pd.Series | None:
    """Return the cluster of each question, by question_id; None where each question is on its own.

    Parameters
    ----------
    cluster : a column with one value a question. "known": the first of the columns `KNOWN_CLUSTERS`
        that has several values, each for several questions; else the questions that share a
        relevant document (the column ``relevant``). None: each question is on its own, which is
        right where the rows' documents are all that there will ever be.

    A question without a value is a cluster of its own, with a warning where it is used. DataError
    for a question with two values.
    """
    if cluster is None:
        return None
    questions = rows.groupby("question_id", sort=False)
    if cluster != KNOWN:
        check_known("column", [cluster], rows.columns)
        values = questions[cluster].nunique()
        if (values > 1).any():
            question = values.index[values > 1][0]
            count = values[question]
            raise DataError(
                f"question {str(question)!r} has {count} values in the column {cluster!r}",
                "one value for all rows of a question",
                "name a column such as topic, or add one",
            )
        return questions[cluster].first()
    for clusters in _candidates(questions):
        if 1 < clusters.nunique() < clusters.count():
            return clusters
    return None


def _candidates(questions: Any) -> Iterator[pd.Series]:
    """Yield the cluster of each question by the columns that may say it, the best first."""
    columns = questions.obj.columns
    for name in KNOWN_CLUSTERS:
        if name in columns and questions[name].nunique().max() == 1:
            yield questions[name].first()
    if "relevant" in columns:
        documents = {}
        for question, names in questions["relevant"].first().items():
            documents[question] = names if isinstance(names, list | dict) else []
        yield pd.Series(linked_questions(documents))


def compare_pairs(
    scores: Mapping[tuple, tuple[Any, Any]],
    names: Sequence[str],
    *,
    groups: Mapping[tuple, Any] | None = None,
    difference: float | None = None,
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
    resamples : of the bootstrap. seed : of the bootstrap and the test.

    Returns
    -------
    DataFrame, one row per key: ``names``, mean a, mean b (over questions with both scores),
    difference (a - b), low, high (95%), p, p_holm (for all rows together), n, missing (questions
    without a score of either), detectable (the smallest difference that as many questions find with
    a chance of 0.8, tested at 0.05 over the number of rows), needed (questions that find
    ``difference`` so; NaN without one). With ``groups`` needed counts clusters, and the table ends
    with clusters (their number) and effective (see `Interval`).
    """
    pairs = {key: as_paired(a=a, b=b) for key, (a, b) in scores.items()}
    tests = sum(not np.isnan(a - b).all() for a, b in pairs.values())
    options = {"alpha": 0.05 / max(tests, 1), "resamples": resamples, "seed": seed}
    columns = [*names, *_COMPARED]
    if groups:
        columns += ["clusters", "effective"]
    rows = []
    methods = set()
    for key, (a, b) in pairs.items():
        labels = (groups or {}).get(key)
        compared = _compared(a, b, labels, difference, **options)
        methods.add(compared.pop("method"))
        rows.append(compared | dict(zip(names, key, strict=True)))
    table = pd.DataFrame(rows, columns=columns)
    table["p_holm"] = holm(table["p"])
    table.attrs["intervals"] = sorted(methods - {""})
    return table


def _compared(
    a: np.ndarray,
    b: np.ndarray,
    labels: Any,
    difference: float | None,
    *,
    alpha: float,
    resamples: int,
    seed: Seed,
) -> dict[str, Any]:
    """Compare one pair: the columns `_COMPARED` and ``method``, that of the interval."""
    if labels is not None:  # numbered once, with one warning of those that have none
        labels = group_index(labels, a.size, sort=True)
    interval = paired_bootstrap_difference(a, b, groups=labels, resamples=resamples, seed=seed)
    test = paired_permutation_test(a, b, cluster=labels, seed=seed)
    plan = power_analysis(a, b, difference=difference or 0.0, cluster=labels, alpha=alpha)
    both = pd.DataFrame({"mean a": a, "mean b": b}).dropna()
    return {
        **both.mean(),
        **asdict(interval),
        "difference": interval.estimate,
        "missing": interval.n_missing,
        "p": test.p_value,
        "detectable": plan.detectable,
        "needed": plan.needed if difference is not None else np.nan,
    }
