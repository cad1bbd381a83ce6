"""The tables of the scores of a run or of answers."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
from matplotlib.figure import Figure

from ragbench import plots
from ragbench.comparison import may_be_first
from ragbench.report.tables import FIRST, MOST_DRAWN, ReportTable
from ragbench.stats import compare_scores, means
from ragbench.stats.tables import numbers_of

MOST_COMPARED = 8  # systems with scores of which every pair is compared


def score_tables(table: pd.DataFrame, name: str) -> list[ReportTable]:
    """Make the means of a table from `ragbench.score`, and the differences of its systems where
    they are at most `MOST_COMPARED`.
    """
    title = f"{name}: mean of every metric, with 95% intervals"
    if "labelled_by" in table:
        title += f". Labels: {', '.join(table['labelled_by'].dropna().unique())}"
    cell = ["system"] * ("system" in table)
    averages = means(table, cell, numbers_of(table))
    differences = []
    if _are_compared(table):
        pairs = compare_scores(table)
        first = may_be_first(pairs).rename(columns={"measure": "metric"})
        if len(first):
            title += f". {FIRST} may be the best: no other is shown to be better"
            notes = averages.attrs
            averages = averages.merge(first, how="left", on=["metric", "system"])
            averages["may_be_first"] = averages["may_be_first"].eq(True)
            averages.attrs = notes
        words = f"{name}: systems compared over the same questions"
        differences = [ReportTable.differences(pairs, [], "comparison", words)]
    shown = ReportTable.means(averages, cell, "means", title)
    return [replace(shown, figure=_score_figure(averages)), *differences]


def _are_compared(table: pd.DataFrame) -> bool:
    """Say whether systems are few, none answered a question twice, and two have a number for one
    question.
    """
    if "system" not in table or not 1 < table["system"].nunique() <= MOST_COMPARED:
        return False
    if table[["system", "question_id"]].duplicated().any():
        return False
    scored = [table["question_id"][table[name].notna()] for name in numbers_of(table)]
    return any(questions.duplicated().any() for questions in scored)


def _score_figure(averages: pd.DataFrame) -> Figure | None:
    """Draw the means between 0 and 1, if there are any."""
    # A mean of floats may be 1.0000000000000004.
    drawn = averages[averages["mean"].between(0, 1 + 1e-9)]
    system = None
    if "system" in drawn:
        system = "system"
    if drawn.empty or (system and drawn[system].nunique() > MOST_DRAWN):
        return None
    label = "mean, with its 95% interval"
    filled = None
    if "may_be_first" in drawn:
        filled = "may_be_first"
        label += "; filled: may be the best"
    return plots.dots(drawn, "metric", "mean", system, xlabel=label, filled=filled)
