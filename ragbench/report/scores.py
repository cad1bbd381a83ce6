"""The scores of a run, beside its rows: a row per answer, and how it was made."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pandas as pd

from ragbench.errors import DataError
from ragbench.paths import sha256_of, written_whole
from ragbench.rows import ROWS
from ragbench.stats import means

RESAMPLES = 2000  # of the bootstrap behind the tables
_SCORES = "scores.csv"


def score_means(table: pd.DataFrame) -> pd.DataFrame:
    """Average the numbers of a table from `ragbench.score` by system, with their intervals."""
    by = ["system"] if "system" in table else []
    return means(table, by, table.attrs["numbers"], resamples=RESAMPLES)


def save_scores(table: pd.DataFrame, folder: Path) -> Path:
    """Write a table from `ragbench.score` beside the rows that it was computed from.

    ``scores.json`` says how it was made, and holds the sha256 of these rows and of the scores.
    """
    path = folder / _SCORES
    cells = table.drop(columns="claim_labels", errors="ignore").to_csv(index=False)
    facts = table.attrs | {"rows_sha256": sha256_of(folder / ROWS)}
    facts["scores_sha256"] = hashlib.sha256(cells.encode()).hexdigest()
    text = json.dumps(facts, indent=1, ensure_ascii=False) + "\n"
    for place, content in ((path, cells), (path.with_suffix(".json"), text)):
        with written_whole(place) as part:
            part.write_text(content, encoding="utf-8", newline="")
    return path


def load_scores(folder: Path) -> pd.DataFrame | None:
    """Read what `save_scores` wrote; None where there is nothing, or it is of other rows."""
    path = folder / _SCORES
    if not path.with_suffix(".json").is_file():
        return None
    # An id may be "NA" or "null".
    texts = dict.fromkeys(("system", "question_id"), str)
    try:
        facts = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        if facts.pop("rows_sha256", None) != sha256_of(folder / ROWS):
            return None
        if facts.pop("scores_sha256", None) not in (None, sha256_of(path)):
            raise ValueError("it was cut or edited")
        table = pd.read_csv(path, dtype=texts, keep_default_na=False, na_values=[""])
    except (OSError, ValueError, AttributeError, TypeError, RecursionError) as error:
        raise DataError(
            f"{path} or the .json beside it cannot be read: {error}",
            "scores that a run writes",
            "delete both, run it again",
        ) from None
    table.attrs = facts
    return table
