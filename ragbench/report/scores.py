"""The scores of a run, beside its rows: a row per answer, and how it was made."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pandas as pd

from ragbench.errors import DataError
from ragbench.paths import sha256_of, written_whole
from ragbench.rows import ROWS
from ragbench.scoring import Scores
from ragbench.stats import means
from ragbench.stats.tables import numbers_of

RESAMPLES = 2000  # of the bootstrap behind the tables
_SCORES = "scores.csv"


def score_means(table: pd.DataFrame) -> pd.DataFrame:
    """Average the numbers of a table from `ragbench.score` by system, with their intervals."""
    by = ["system"] if "system" in table else []
    return means(table, by, numbers_of(table), resamples=RESAMPLES)


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
