"""From rows to tables: the only place where scores of single questions are averaged, and compared
in pairs.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pandas as pd

from ragbench.data.tables import read_mapping
from ragbench.errors import ConfigError, DataError, check_known
from ragbench.records import GRADES, as_id
from ragbench.stats.clusters import KNOWN, find_clusters
from ragbench.stats.inputs import Seed, as_floats, as_paired, group_index, several
from ragbench.stats.intervals import Interval, mean_interval, paired_difference
from ragbench.stats.paired import holm, power_analysis

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
    "smallest p",
    "n",
    "wins",
    "ties",
    "losses",
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
    cluster: str | None = KNOWN,
    resamples: int = 2000,
    seed: Seed = 0,
) -> pd.DataFrame:
    """Average measures (a column, or several) over questions, with 95% intervals: those of a share
    for a column of booleans, which answers yes or no.

    Parameters
    ----------
    by : columns that make the groups, in the order of first appearance; none averages all rows.
    cluster : which rows belong together, and are resampled as one cluster: see
        `ragbench.stats.find_clusters`. Default: what the columns say, else the rows of one
        question. None: each row alone.

    Returned are the columns of ``by``, metric (left out for a single one), mean, low, high, n
    (scored), unscored. Where groups share questions and one lacks some of them, missed counts
    those. With clusters, or where a question has several rows, also clusters (their
    number) and effective (see `Interval`). ``attrs["clusters"]`` says which rule gave them,
    ``attrs["intervals"]`` the kinds of interval.

    Raises ConfigError for grades, which are categories: average "fully_right".

    >>> import pandas as pd
    >>> rows = pd.DataFrame({"question_id": [*range(8)] * 2, "system": ["a"] * 8 + ["b"] * 8})
    >>> rows["contained"] = [1, 1, 1, 0, 1, 1, 1, 0] + [0, 1, 0, 0, 1, 0, 1, 0]
    >>> rb.means(rows, "system", "contained", cluster=None)[["system", "mean", "n"]]
      system   mean  n
    0      a  0.750  8
    1      b  0.375  8
    """
    by = several(by)
    columns = several(measures)
    rows = _with_measures(rows.reset_index(drop=True), columns)
    check_known("column", [*by, *columns], rows.columns)
    clusters = find_clusters(rows, cluster, by)
    intervals = _intervals(rows, by, columns, clusters.labels, resamples=resamples, seed=seed)
    table = clusters.annotate(_interval_table(intervals, [*by, "metric"]))
    missed = _missed(rows, by)
    if any(missed):
        table["missed"] = np.repeat(missed, len(columns))
    is_once = table["clusters"].eq(0) | table["clusters"].eq(table["n"])
    if not clusters.column and is_once.all():  # each question
        table = table.drop(columns=["clusters", "effective"])
    if isinstance(measures, str):
        table = table.drop(columns="metric")
    return table


def _intervals(
    rows: pd.DataFrame,
    by: list[str],
    columns: Sequence[str],
    cluster: pd.Series | None,
    **options: Any,
) -> dict[tuple, Interval]:
    """Average the columns within each group of rows: (its values, column) -> interval."""
    intervals = {}
    for key, part in _parts(rows, by):
        labels = None
        if cluster is not None:
            labels = cluster[part.index]
        for name in columns:
            intervals[*key, name] = mean_interval(part[name], cluster=labels, **options)
    return intervals


def _interval_table(intervals: Mapping[tuple, Interval], names: Sequence[str]) -> pd.DataFrame:
    """Return a row per interval, with columns for the parts of its key; its kinds in ``attrs``."""
    keys = pd.DataFrame(list(intervals), columns=list(names))
    numbers = pd.DataFrame(list(intervals.values()), columns=[*_INTERVAL, "method"])
    table = keys.join(numbers[[*_INTERVAL]].rename(columns=_INTERVAL))
    table.attrs["intervals"] = sorted(set(numbers["method"]) - {""})
    return table


def _parts(rows: pd.DataFrame, by: list[str]) -> Iterable[tuple[tuple, pd.DataFrame]]:
    """Return the groups of rows, by the values of columns; all rows where there are none."""
    if not by:
        return [((), rows)]
    return rows.groupby(by, sort=False, dropna=False)


def _missed(rows: pd.DataFrame, by: list[str]) -> list[int]:
    """Count by group what questions it lacks of those groups that share a question with it."""
    if "question_id" not in rows or not by:
        return []
    names = [name for name in ("data", "question_id") if name in rows]
    keys = pd.Series(list(rows[names].itertuples(index=False, name=None)), rows.index)
    asked = [set(keys[part.index]) for _, part in _parts(rows, by)]
    missed = []
    for own in asked:
        shared = set().union(*(other for other in asked if own & other))
        missed.append(len(shared - own))
    return missed


def _with_measures(rows: pd.DataFrame, measures: Sequence[str]) -> pd.DataFrame:
    """Refuse to average grades; add fully_right to rows with grades."""
    if "grade" in measures:
        raise ConfigError(
            "the mean of 'grade'",
            "a number: grades are categories",
            "take 'fully_right', the share of grade 5, which rows with a grade have",
        )
    if "fully_right" in measures and "fully_right" not in rows and "grade" in rows:
        return rows.assign(fully_right=pd.array(fully_right(rows), dtype="boolean"))
    return rows


def compare(
    rows: pd.DataFrame,
    system: str | Sequence[str],
    measure: str | Sequence[str],
    *,
    by: str | Sequence[str] = (),
    pairs: Sequence[tuple[str, str]] | None = None,
    cluster: str | None = KNOWN,
    **options: Any,
) -> pd.DataFrame:
    """Compare systems over the same questions, in pairs: the table of `compare_pairs`, by ``by``, a
    and b, and measure where it is a list.

    Parameters
    ----------
    rows : one row per question and system, with a column question_id.
    system : the column that names the system, or several, whose values are joined: "small, BM25".
    measure : a column, or a list of them, for whose comparisons Holm's correction is one.
    by : columns; systems are compared within each group of rows that share their values.
    pairs : (a, b) to compare; None: every pair, in the order of first appearance.
    cluster : which questions belong together, and count as one cluster: see
        `ragbench.stats.find_clusters`. None: each question is on its own, which is right where the
        rows' documents are all that there will ever be.
    options : for `compare_pairs`.

    ``attrs["clusters"]`` of the table says which rule gave the clusters.

    Raises DataError when a system has several rows for a question, ConfigError for grades, which
    are categories.

    >>> import pandas as pd
    >>> rows = pd.DataFrame({"question_id": [*range(8)] * 2, "system": ["a"] * 8 + ["b"] * 8})
    >>> rows["contained"] = [1, 1, 1, 0, 1, 1, 1, 0] + [0, 1, 0, 0, 1, 0, 1, 0]
    >>> rb.compare(rows, "system", "contained")[["a", "b", "difference", "wins", "losses"]]
       a  b  difference  wins  losses
    0  a  b       0.375     3       0
    """
    by = several(by)
    system = several(system)
    measures = several(measure)
    names = [*by, "a", "b"]
    if not isinstance(measure, str):
        names.append("measure")
    rows = _with_measures(_with_ids(rows), measures)
    check_known("column", [*by, *system, *measures, "question_id"], rows.columns)
    # a column that tells systems apart does not tell questions apart
    told_apart = rows.drop(columns=[name for name in system if name != cluster])
    clusters = find_clusters(told_apart, cluster, by)
    rows, name = _with_system(rows, system)
    check_known("system", itertools.chain(*(pairs or ())), rows[name].unique())
    scores = {}
    labels = {}
    for key, part in _parts(rows, by):
        of_part = clusters.of_questions(part)
        for pair, of_pair in _paired_scores(part, name, measures, pairs).items():
            key_of_pair = (*key, *pair)[: len(names)]
            scores[key_of_pair] = of_pair
            if of_part is not None:
                labels[key_of_pair] = of_part.reindex(of_pair[0].index)
    return clusters.annotate(compare_pairs(scores, names, cluster=labels or None, **options))


def _with_system(rows: pd.DataFrame, system: list[str]) -> tuple[pd.DataFrame, str]:
    """Return rows with one column that names the system, and its name."""
    name = ", ".join(system)
    if len(system) > 1:
        rows = rows.assign(**{name: rows[system].astype(str).agg(", ".join, axis=1)})
    return rows, name


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
    cluster : which questions belong together, as for `compare`.
    options : for `compare_pairs`: ``difference``.

    Returns
    -------
    The table of `compare_pairs`, named a, b, measure; `ragbench.comparison.conclusions` puts it
    into words. Pairs without a question scored for both are left out.

    Raises ConfigError for a system that is not there, DataError for one that answered a question
    twice, or when there is nothing to compare.

    >>> import pandas as pd
    >>> rows = pd.DataFrame({"question_id": [*range(8)] * 2, "system": ["a"] * 8 + ["b"] * 8})
    >>> rows["contained"] = [1, 1, 1, 0, 1, 1, 1, 0] + [0, 1, 0, 0, 1, 0, 1, 0]
    >>> rb.compare_scores(rows, ["contained"])[["measure", "difference", "n"]]
         measure  difference  n
    0  contained       0.375  8
    """
    _check_systems(table, pairs)
    measures = several(columns or numbers_of(table))
    if not measures:
        raise ConfigError(
            "no columns to compare: the table is not of rb.score",
            "names of columns",
            "write for instance columns=['exact_match']",
        )
    compared = compare(table, "system", measures, pairs=pairs, cluster=cluster, **options)
    is_scored = compared["n"] > 0
    if not is_scored.any():
        raise DataError(
            "no pair of systems has a question scored for both",
            "scores of both",
            "have two systems answer one question; the columns 'reason' and 'error' say why a "
            "number is missing",
        )
    return compared[is_scored].reset_index(drop=True)


def numbers_of(table: pd.DataFrame) -> list[str]:
    """Return the columns that `ragbench.score` computed, as its column ``numbers`` says; none of
    another table.
    """
    if "numbers" not in table:
        return []
    cells = table["numbers"].dropna().astype(str).unique()
    named = dict.fromkeys("; ".join(cells).split("; "))
    return [name for name in named if name in table]


def _with_ids(rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows numbered from 0 on, with ids of questions as text: 1 and "1" are one question."""
    rows = rows.reset_index(drop=True)
    if "question_id" in rows:
        ids = rows["question_id"].map(as_id, na_action="ignore")
        rows = rows.assign(question_id=ids)
    return rows


def _check_systems(table: pd.DataFrame, pairs: Sequence[tuple[str, str]] | None) -> None:
    if "system" not in table or table["system"].nunique() < 2:
        raise DataError(
            "fewer than two systems",
            "two or more in the column 'system'",
            "name yours: columns={'system': 'model'}; of a run, add a retriever, or an N",
        )
    if pairs and isinstance(pairs[0], str):
        raise DataError(f"pairs={pairs!r:.80}", "a list of pairs", f"write [{tuple(pairs)}]")


def _paired_scores(
    rows: pd.DataFrame, system: str, measures: Sequence[str], pairs: Sequence[tuple] | None
) -> dict[tuple[str, str, str], tuple[pd.Series, pd.Series]]:
    """Return the scores of two systems over the same questions, by (a, b, measure).

    A pair is left out where a system has no row: answers without documents are one system, in a
    group of their own.
    """
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


def compare_pairs(
    scores: Mapping[tuple, tuple[Any, Any]],
    names: Sequence[str],
    *,
    cluster: Mapping[tuple, Any] | None = None,
    difference: float | None = None,
) -> pd.DataFrame:
    """Compare pairs of scores: interval and p-value of `paired_difference`, Holm's correction over
    the table, power.

    Parameters
    ----------
    scores : two arrays over the same questions by key, NaN where a score is missing.
    names : columns for the parts of the keys.
    cluster : by key, a label per question: questions of one label count as one cluster.
    difference : the smallest difference that matters to you, for ``needed``.

    Returns
    -------
    DataFrame, one row per key: ``names``, mean a, mean b (over questions with both scores),
    difference (a - b), low, high (95%), p, p_holm (for all rows together), smallest p (what p would
    be if one side won all questions that differ by the same margin), n, wins, ties, losses
    (questions in which a is above, equal to, below b), missing (questions without a score of
    either), detectable (the smallest difference that as many questions find with a chance of 0.8,
    tested at 0.05 over the number of rows), needed (questions that find ``difference`` so; NaN
    without one). With ``cluster`` needed counts clusters, and the table ends with clusters (their
    number) and effective (see `Interval`).

    >>> scores = {("BM25", "SIM"): ([1, 1, 0, 1, 1, 0], [0, 1, 0, 0, 1, 0])}
    >>> rb.stats.compare_pairs(scores, ["a", "b"])[["a", "b", "difference", "wins", "losses"]]
          a    b  difference  wins  losses
    0  BM25  SIM    0.333333     2       0
    """
    pairs = {key: as_paired(a=a, b=b) for key, (a, b) in scores.items()}
    tests = sum(not np.isnan(a - b).all() for a, b in pairs.values())
    alpha = 0.05 / max(tests, 1)
    columns = [*names, *_COMPARED]
    if cluster:
        columns += ["clusters", "effective"]
    rows = []
    methods = set()
    for key, (a, b) in pairs.items():
        labels = (cluster or {}).get(key)
        compared = _compared(a, b, labels, difference, alpha=alpha)
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
) -> dict[str, Any]:
    """Compare one pair: the columns `_COMPARED` and ``method``, that of the interval."""
    if labels is not None:  # numbered once, with one warning of those that have none
        labels = group_index(labels, a.size)
    interval = paired_difference(a, b, cluster=labels)
    plan = power_analysis(a, b, difference=difference or 0.0, cluster=labels, alpha=alpha)
    both = pd.DataFrame({"mean a": a, "mean b": b}).dropna()
    apart = np.sign((a - b).round(12))
    same_margin = paired_difference(np.abs(apart), np.zeros(apart.size), cluster=labels)
    return {
        **both.mean(),
        **asdict(interval),
        "difference": interval.estimate,
        "smallest p": same_margin.p,
        "missing": interval.n_missing,
        "wins": int((apart > 0).sum()),
        "ties": int((apart == 0).sum()),
        "losses": int((apart < 0).sum()),
        "detectable": plan.detectable,
        "needed": plan.needed if difference is not None else np.nan,
    }
