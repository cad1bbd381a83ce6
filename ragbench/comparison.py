"""Which of two systems is better, and how sure: scores compared in pairs over the same questions.

Every comparison has a paired permutation test, corrected by Holm for all that were made, an
interval, and the number of questions that would show the difference. Scores are those of an
experiment's rows, or of any table of `ragbench.score`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

# questions that share a document, for the clusters of a comparison
from ragbench.data.relevance import document_clusters as document_clusters
from ragbench.errors import DataError, check_known
from ragbench.metrics.table import lower_is_better
from ragbench.stats import MISSING, compare_pairs, interval_text, with_interval
from ragbench.stats.tables import KNOWN, known_clusters, paired_scores


def compare_scores(
    table: pd.DataFrame,
    columns: Sequence[str] | None = None,
    pairs: Sequence[tuple[str, str]] | None = None,
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
    options : for `ragbench.stats.compare_pairs`: ``difference``, ``resamples``, ``seed``.

    Returns
    -------
    The table of `ragbench.stats.compare_pairs`, named a, b, measure; `conclusions` puts it into
    words. Pairs without a question scored for both are left out.

    Raises ConfigError for a system that is not there, DataError for one that answered a question
    twice, or when there is nothing to compare.
    """
    _check_systems(table, pairs)
    measures = list(columns or table.attrs["numbers"])
    scores_of_all = paired_scores(table, "system", measures, pairs)
    questions = table["question_id"].unique()
    scores = {}
    for key, (a, b) in scores_of_all.items():
        if (a + b).notna().any():
            scores[key] = a[questions], b[questions]
    if not scores:
        raise DataError(
            got="no pair of systems has a question scored for both",
            expected="scores of both",
            do="have two systems answer one question; the columns 'reason' and 'error' say why a "
            "number is missing",
        )
    clusters = known_clusters(table, cluster)
    if clusters is not None:
        options["groups"] = dict.fromkeys(scores, clusters[questions])
    return compare_pairs(scores, ("a", "b", "measure"), **options)


def _check_systems(table: pd.DataFrame, pairs: Sequence[tuple[str, str]] | None) -> None:
    if "system" not in table or table["system"].nunique() < 2:
        raise DataError(
            got="fewer than two systems",
            expected="two or more in the column 'system'",
            do="name yours: columns={'system': 'model'}; of a run, add a retriever, or an N",
        )
    for pair in pairs or ():
        if isinstance(pair, str):
            raise DataError(f"pairs={pairs!r:.80}", "a list of pairs", f"write [{tuple(pairs)}]")
        check_known("system", pair, table["system"].unique())


def format_comparison(table: pd.DataFrame) -> pd.DataFrame:
    """Return what a page shows of a comparison: intervals in cells, whole questions."""
    return pd.DataFrame(
        {
            "first": table["a"],
            "second": table["b"],
            "measure": table["measure"],
            "difference [95%]": with_interval(table, "difference"),
            "p (Holm)": table["p_holm"].map(_p_value),
            "n": table["n"],
            "could show": table["detectable"].map(_difference),
        }
    )


def _difference(value: float) -> str:
    if np.isfinite(value):
        return f"{value:.3f}"
    return MISSING


def _p_value(p: float) -> str:
    if p < 0.001:
        return "< 0.001"
    return f"{p:.3f}"


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
        sentence = _verdict(row, less=measure in lower)
        if measure in lower:
            sentence = f"{measure} (lower is better): {sentence}"
        elif measure:
            sentence = f"{measure}: {sentence}"
        sentences.append(sentence)
    return sentences


def _verdict(row: Mapping[str, Any], *, less: bool) -> str:
    """Say which system is better, or what difference would have been shown."""
    interval = interval_text(row["difference"], row["low"], row["high"], "+.3f")
    result = f"{interval}, p = {row['p_holm']:.2g} after Holm"
    if row["p_holm"] < 0.05:
        better = row["a"]
        worse = row["b"]
        if (row["difference"] < 0) != less:
            better = row["b"]
            worse = row["a"]
        direction = "lower" if less else "higher"
        return f"{better} is {direction} than {worse}: {result}."
    questions = f"{row['n']} questions"
    if row.get("clusters"):
        questions += f" in {row['clusters']} clusters"
    nothing = f"no difference shown between {row['a']} and {row['b']}: {result}"
    if np.isnan(row["detectable"]):
        return f"{nothing}; {questions} were asked."
    return f"{nothing}; {questions} would show one of {row['detectable']:.3f}."
