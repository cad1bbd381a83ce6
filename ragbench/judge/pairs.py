"""Pairs of answers that people compared: what the judge is fitted on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ragbench.errors import DataError


@dataclass(frozen=True)
class LabelledPair:
    """Two answers to one question, and how people compare them.

    ``labels`` maps a criterion to one label per annotator, -2 (answer 1 much better) .. 2 (answer 2 much better).
    ``group`` names the domain that is left out together; ``recorded`` holds another metric's scores of both answers.
    """

    question: str
    reference: str
    answers: tuple[str, str]
    labels: Mapping[str, tuple[float, ...]]
    group: str = ""
    recorded: Mapping[str, tuple[float, float]] = field(default_factory=dict)


def load_ragchecker_pairs(path: str | Path | None = None) -> list[LabelledPair]:
    """Load RAGChecker's 280 human-labelled pairs with its recorded scores.

    Parameters
    ----------
    path : as for `ragbench.data.load_ragchecker_meta`, which reads and checks the files.

    Returns
    -------
    280 pairs in 10 groups, two labels for each of three criteria; ``recorded`` is empty where RAGChecker's scores are
    not beside the labels.

    Raises
    ------
    DataError when the files are missing, malformed, or do not belong together.
    """
    from ragbench.data.ragchecker import load_ragchecker_meta

    pairs = []
    for pair in load_ragchecker_meta(path).pairs:
        first, second = pair.responses
        pairs.append(
            LabelledPair(
                pair.question,
                pair.reference,
                (first.text, second.text),
                {c: tuple(map(float, labels)) for c, labels in pair.labels.items()},
                pair.domain,
                {c: (score, second.scores[c]) for c, score in first.scores.items()},
            )
        )
    return pairs


def read_pairs(path: str | Path) -> list[LabelledPair]:
    """Read a user's labelled pairs from JSON lines.

    Each line: ``question``, ``reference``, ``answer_1``, ``answer_2`` (texts; an answer may be empty), ``labels``: an
    object from criterion to a label or a list of labels in -2..2 (or ``label``, which is ``overall``), and where
    there is one ``group``: the domain, left out together with its fellows when the fit is measured.

    Raises
    ------
    DataError naming file, line and field.
    """
    from ragbench.data.files import read_jsonl, require_text

    pairs = []
    for number, row in read_jsonl(path):
        where = f"{path}, line {number}"
        question, reference = (require_text(row, name, where) for name in ("question", "reference"))
        answers = tuple(require_text(row, name, where, empty=True) for name in ("answer_1", "answer_2"))
        raw = row["labels"] if "labels" in row else {"overall": row.get("label")}
        if not isinstance(raw, dict) or not raw:
            raise DataError(
                f"{where}: 'labels' is {type(raw).__name__}", 'an object such as {"overall": [1, 2]}', "mend that line"
            )
        labels = {name: _labels(value, f"{where}: {name!r}") for name, value in raw.items()}
        pairs.append(LabelledPair(question, reference, answers, labels, str(row.get("group") or "")))  # type: ignore[arg-type]
    return pairs


def _labels(value: Any, where: str) -> tuple[float, ...]:
    values = value if isinstance(value, list) else [value]
    good = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool) and -2 <= v <= 2]
    if not values or len(good) != len(values):
        raise DataError(
            f"{where} has the label {value!r}",
            "numbers from -2 (answer 1 much better) to 2 (answer 2 much better)",
            "write for instance 1 or [1, 2], one number per annotator",
        )
    return tuple(float(v) for v in values)


def shared_criteria(pairs: Sequence[LabelledPair]) -> list[str]:
    """Return the criteria that every pair is labelled for, in the order of the first pair.

    Raises
    ------
    DataError when there is none.
    """
    common = [c for c in pairs[0].labels if all(c in p.labels for p in pairs)]
    if not common:
        raise DataError(
            "no criterion is labelled in every pair", "at least one", "label all pairs for 'overall', for instance"
        )
    return common
