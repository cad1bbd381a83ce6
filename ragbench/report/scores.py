"""The scores of a run, beside its rows: a row per answer, and how it was made."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from ragbench.experiment.rows import ROWS
from ragbench.paths import sha256_of, written_whole
from ragbench.report.methods import RESAMPLES
from ragbench.stats import means
from ragbench.text.escape import from_csv, in_csv

_SCORES = "scores.csv"


def score_means(table: pd.DataFrame, names: Sequence[str] | None = None) -> pd.DataFrame:
    """Average the numbers of a table from `ragbench.score` by system, with their intervals."""
    by = ["system"] if "system" in table else []
    numbers = names or table.attrs["numbers"]
    return means(table, by, numbers, groups="question_id", resamples=RESAMPLES)


def save_scores(table: pd.DataFrame, folder: Path) -> Path:
    """Write a table from `ragbench.score` beside the rows that it was computed from.

    ``scores.json`` says how it was made, and holds the sha256 of these rows.
    """
    path = folder / _SCORES
    cells = in_csv(table.drop(columns="claim_labels", errors="ignore"))
    made = table.attrs | {"rows_sha256": sha256_of(folder / ROWS)}
    with written_whole(path) as part:
        cells.to_csv(part, index=False, lineterminator="\n")
    with written_whole(path.with_suffix(".json")) as part:
        text = json.dumps(made, indent=1, ensure_ascii=False)
        part.write_text(text + "\n", encoding="utf-8")
    return path


def load_scores(folder: Path) -> pd.DataFrame | None:
    """Read what `save_scores` wrote; None where there is nothing, or it is of other rows."""
    path = folder / _SCORES
    about = path.with_suffix(".json")
    if not (path.is_file() and about.is_file()):
        return None
    made = json.loads(about.read_text(encoding="utf-8"))
    if made.pop("rows_sha256", None) != sha256_of(folder / ROWS):
        return None
    # An id may be "NA" or "null".
    texts = pd.read_csv(path, dtype=str, keep_default_na=False)
    names = [name for name in ("system", "question_id") if name in texts]
    table = pd.read_csv(path, low_memory=False)
    table[names] = texts[names].map(from_csv)
    table.attrs |= made
    return table
