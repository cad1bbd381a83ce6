"""The scores of a run or of answers: their tables, and their file beside a run's rows."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from ragbench import plots
from ragbench.comparison import may_be_first
from ragbench.errors import DataError
from ragbench.paths import sha256_of, written_whole
from ragbench.report.tables import FIRST, MOST_DRAWN, ReportTable
from ragbench.rows import ROWS
from ragbench.scoring import Scores
from ragbench.stats import compare_scores, means
from ragbench.stats.tables import numbers_of

MOST_COMPARED = 8  # systems with scores of which every pair is compared
_SCORES = "scores.csv"


def score_means(table: pd.DataFrame) -> pd.DataFrame:
    """Average the numbers of a table from `ragbench.score` by system, with their intervals."""
    return means(table, _cell(table), numbers_of(table))


def _cell(table: pd.DataFrame) -> list[str]:
    return ["system"] * ("system" in table)


def score_tables(table: pd.DataFrame, name: str) -> list[ReportTable]:
    """Make the means of a table from `ragbench.score`, and the differences of its systems where
    they are at most `MOST_COMPARED`.
    """
    title = f"{name}: mean of every metric, with 95% intervals"
    if "labelled_by" in table:
        title += f". Labels: {', '.join(table['labelled_by'].dropna().unique())}"
    averages = score_means(table)
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
    shown = ReportTable.means(averages, _cell(table), "means", title)
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


# -- beside the rows of a run


def save_scores(scores: Scores, folder: Path) -> Path:
    """Write scores beside the rows that they were computed from.

    ``scores.json`` says how it was made, and holds the sha256 of these rows and of the scores.
    """
    path = folder / _SCORES
    cells = scores.drop(columns="claim_labels", errors="ignore").to_csv(index=False)
    facts = {**scores.facts, "rows_sha256": sha256_of(folder / ROWS)}
    facts["scores_sha256"] = hashlib.sha256(cells.encode()).hexdigest()
    text = json.dumps(facts, indent=1, ensure_ascii=False) + "\n"
    for place, content in ((path, cells), (path.with_suffix(".json"), text)):
        with written_whole(place) as part:
            part.write_text(content, encoding="utf-8", newline="")
    return path


def load_scores(folder: Path) -> Scores | None:
    """Read what `save_scores` wrote; None where there is nothing, or it is of other rows."""
    path = folder / _SCORES
    if not path.with_suffix(".json").is_file():
        return None
    try:
        facts = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        if facts.pop("rows_sha256", None) != sha256_of(folder / ROWS):
            return None
        if facts.pop("scores_sha256", None) not in (None, sha256_of(path)):
            raise ValueError("it was cut or edited")
        scores = Scores.read(path)
    except (OSError, ValueError, AttributeError, TypeError, RecursionError) as error:
        raise DataError(
            f"{path} or the .json beside it cannot be read: {error}",
            "scores that a run writes",
            "delete both, run it again",
        ) from None
    scores.facts = facts
    return scores
