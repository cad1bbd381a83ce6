"""Which of two systems is better, and how sure, in words and on a page.

Systems are compared in pairs over the same questions by `ragbench.stats.compare_scores`. Every
comparison has a paired permutation test, corrected by Holm for all that were made, an
interval, and the number of questions that would show the difference. Scores are those of an
experiment's rows, or of any table of `ragbench.score`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

# questions that share a document, for the clusters of a comparison
from ragbench.data.relevance import document_clusters as document_clusters
from ragbench.metrics.table import lower_is_better
from ragbench.stats import MISSING, interval_text, with_interval
from ragbench.stats.tables import compare_scores as compare_scores


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
