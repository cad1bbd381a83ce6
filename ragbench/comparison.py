"""Which of two systems is better, and how sure: scores compared in pairs over the same questions.

Every comparison has a paired permutation test, corrected by Holm for all that were made, an
interval, and the number of questions that would show the difference. Scores are those of an
experiment's rows, or of any table of `ragbench.score`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

# scores are compared by these
from ragbench.data.relevance import document_clusters as document_clusters
from ragbench.errors import DataError, check_known
from ragbench.experiment.rows import AXIS_COLUMNS, system_names
from ragbench.metrics.table import lower_is_better
from ragbench.stats import MISSING, compare_pairs, interval_text, with_interval
from ragbench.stats.tables import KNOWN, fully_right, known_clusters, with_measures

Pair = tuple[str, str]
IR_SCORE = "IR score"
RIGHT = "fully right"


def system_scores(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of an experiment (on one data set) with a system's name and its scores.

    Returns
    -------
    The rows with ``system``, such as "BM25@300" (or "BM25, k=5@300" where several k were run), "IR
    score", and where there are grades "fully right" (1 for grade 5, else 0; NaN when ungraded).
    """
    if lacking := [name for name in (*AXIS_COLUMNS, "ir_score", "grade") if name not in rows]:
        do = (
            "take ragbench.compare_scores for a table of scores, ragbench.stats.compare for any "
            "other"
        )
        raise DataError(f"rows without the column {lacking[0]!r}", "rows of an experiment", do)
    if rows["data"].nunique() > 1:
        names = ", ".join(sorted(rows["data"].unique()))
        do = "compare within one: rows.query('data == ...')"
        raise DataError(f"rows of the data sets {names}", "one data set", do)
    scored = rows.assign(**{"system": system_names(rows), IR_SCORE: rows["ir_score"].astype(float)})
    numbers = [IR_SCORE]
    if rows["grade"].notna().any():
        scored[RIGHT] = fully_right(rows["grade"])
        numbers.append(RIGHT)
    scored.attrs["numbers"] = numbers
    return scored


def compare_systems(
    rows: pd.DataFrame, pairs: Sequence[Pair] | None = None, **options: Any
) -> pd.DataFrame:
    """Compare the systems of an experiment's rows: IR score, and the share of fully right answers.

    ``pairs``: such as ``[("BM25@300", "SIM@300")]``. None: every two systems at the same N (answers
    without documents with all others), or every two where no N is shared. Everything else is as for
    `compare_scores`.
    """
    scored = system_scores(rows)
    if pairs is None:
        systems = scored.drop_duplicates("system")[["system", "N"]].to_numpy()
        every = combinations(systems, 2)
        pairs = [(a, b) for (a, n), (b, m) in every if n == m or 0 in (n, m)] or None
    return compare_scores(scored, pairs=pairs, **options)


def compare_scores(
    table: pd.DataFrame,
    columns: Sequence[str] | None = None,
    pairs: Sequence[Pair] | None = None,
    *,
    cluster: str | None = KNOWN,
    **options: Any,
) -> pd.DataFrame:
    """Compare systems in pairs over the same questions, corrected by Holm for all that is compared.

    Parameters
    ----------
    table : from `ragbench.score`, or any with question_id, system, and a column per number.
    columns : numbers to compare; None: all of ``score``. Choose few, and before you look.
    pairs : two names of systems each; None: every two.
    cluster : which questions stand or fall together, and are resampled and flipped together.
        Default: what the columns of the table say (see `ragbench.stats.tables.known_clusters`); or
        a column such as topic; None: each question is on its own.
    options : for `ragbench.stats.compare_pairs`: ``difference``, ``power``, ``alpha``, ``seed`` ...

    Returns
    -------
    The table of `ragbench.stats.compare_pairs`, named a, b, measure; `conclusions` puts it into
    words. Pairs without a question scored for both are left out.

    Raises ConfigError for a system that is not there, DataError for one that answered a question
    twice, or when there is nothing to compare.
    """
    scores = {
        key: (a, b)
        for key, (a, b) in paired_scores(table, columns, pairs).items()
        if not np.isnan(a - b).all()
    }
    if not scores:
        do = (
            "give the questions references, or add a generator and a judge; rows['error'] says "
            "why a row failed"
        )
        raise DataError("no pair of systems has a question scored for both", "scores of both", do)
    clusters = known_clusters(table, cluster)
    if clusters is not None:
        options["groups"] = dict.fromkeys(scores, clusters.reindex(table["question_id"].unique()))
    return compare_pairs(scores, ("a", "b", "measure"), **options)


def paired_scores(
    table: pd.DataFrame, columns: Sequence[str] | None = None, pairs: Sequence[Pair] | None = None
) -> dict[tuple[str, str, str], tuple[np.ndarray, np.ndarray]]:
    """Return what `compare_scores` compares, by (a, b, measure): scores over the same questions,
    NaN where missing.
    """
    systems = _systems(table)
    pairs = list(combinations(systems, 2) if pairs is None else pairs)
    if not pairs or isinstance(pairs[0], str) or any(len(pair) != 2 for pair in pairs):
        raise DataError(f"pairs={pairs!r:.80}", "a list of pairs", f"write [{tuple(systems[:2])}]")
    check_known("system", [name for pair in pairs for name in pair], systems)
    measures = list(columns or table.attrs["numbers"])
    table = with_measures(table, measures)
    check_known("column", measures, table.columns)
    scores = {}
    for measure in measures:
        wide = table.pivot(index="question_id", columns="system", values=measure)
        wide = wide.reindex(table["question_id"].unique()).astype(float)
        for a, b in pairs:
            scores[a, b, measure] = wide[a].to_numpy(), wide[b].to_numpy()
    return {(a, b, measure): scores[a, b, measure] for a, b in pairs for measure in measures}


def _systems(table: pd.DataFrame) -> list[str]:
    """Return the systems of a table; DataError unless there are several, each with one answer."""
    systems = list(dict.fromkeys(table["system"])) if "system" in table else []
    if len(systems) < 2:
        do = "name yours: columns={'system': 'model'}; of a run, add a retriever, or an N"
        got = "one system: nothing to compare" if systems else "no systems"
        raise DataError(got, "two or more in the column 'system'", do)
    twice = table[table.duplicated(["question_id", "system"])]
    if len(twice):
        got = f"{twice['system'].iloc[0]} answered a question twice"
        raise DataError(got, "one row per question and system", "drop one of them")
    return systems


def format_comparison(table: pd.DataFrame) -> pd.DataFrame:
    """Return what `ragbench.report.tables.table` prints of a comparison: intervals in cells, whole
    questions.
    """
    return pd.DataFrame(
        {
            "first": table["a"],
            "second": table["b"],
            "measure": table["measure"],
            "difference [95%]": with_interval(table, "difference"),
            "p (Holm)": [
                f"{value:.3f}" if value >= 0.001 else "< 0.001" for value in table["p_holm"]
            ],
            "n": table["n"],
            "could show": [f"{d:.3f}" if np.isfinite(d) else MISSING for d in table["detectable"]],
        }
    )


def conclusions(table: pd.DataFrame) -> list[str]:
    """Say each comparison in a sentence, by its corrected p: a table of this module or of
    `ragbench.stats.compare`.

    What is significant at 0.05 is said as "higher than", or "lower than" for a measure of which
    less is better. Else the smallest difference is named that as many questions would show with a
    chance of 0.8.
    """
    lower = lower_is_better()
    sentences = []
    for row in table.to_dict("records"):
        # `ragbench.stats.compare` has one measure and no column of its name
        measure = row.get("measure")
        verdict = _verdict(row, less=measure in lower)
        direction = " (lower is better)" if measure in lower else ""
        sentences.append(f"{measure}{direction}: {verdict}" if measure else verdict)
    return sentences


def _verdict(row: Mapping[str, Any], *, less: bool) -> str:
    interval = interval_text(row["difference"], row["low"], row["high"], "+.3f")
    result = f"{interval}, p = {row['p_holm']:.2g} after Holm"
    if row["p_holm"] < 0.05:
        first_wins = (row["difference"] >= 0) != less
        better, worse = (row["a"], row["b"]) if first_wins else (row["b"], row["a"])
        return f"{better} is {'lower' if less else 'higher'} than {worse}: {result}."
    questions = f"{row['n']} questions"
    if row.get("clusters"):
        questions += f" in {row['clusters']} clusters"
    shown = f"no difference shown between {row['a']} and {row['b']}: {result}"
    if np.isnan(row["detectable"]):
        return f"{shown}; {questions} were asked."
    return f"{shown}; {questions} would show one of {row['detectable']:.3f}."
