"""Recorded runs of RAGAS's metrics on half of WikiEval, by Llama-3-8B-Instruct: labels, replies and scores."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragbench.data.files import raise_all, read_text
from ragbench.data.wikieval import Dimension, WikiEval, load_wikieval
from ragbench.errors import DataError
from ragbench.paths import mirror

RUNS = {
    "ff": "faithfulness",
    "ff_base": "faithfulness",
    "ar": "answer_relevance",
    "cr": "context_relevance",
    "cr_base": "context_relevance",
}
_VERDICT = re.compile(r"\s*(?:Verdict|Answer)\s*:\s*([01])\b(?!\s+or\b)", re.I)
_INSUFFICIENT = re.compile(r"""[\s\["'`]*(?:Insufficient Information|\]\s*$)""", re.I)


@dataclass(frozen=True, slots=True)
class RecordedRow:
    """One text that a model judged.

    Attributes
    ----------
    id : row of WikiEval. better : whether the text was made better. score : as recorded.
    labels : verdicts as recorded (1 or 0), or the sentences recorded as extracted.
    raw : replies of the model: one per verdict, or the one with the sentences.
    texts : statements, or generated questions with their ``flags`` (1: the answer was called evasive).
    context : where there is one. total : number of its sentences, as recorded.
    status : how the source parsed the replies. truncated : whether one was cut off.
    """

    id: str
    question: str
    better: bool
    score: float
    labels: tuple[Any, ...] = ()
    raw: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    flags: tuple[int, ...] = ()
    context: str = ""
    total: int = 0
    status: str = ""
    truncated: bool = False

    def verdicts(self) -> tuple[int | None, ...]:
        """Read the verdicts again from the replies; None where one does not open with a verdict."""
        return tuple(map(read_verdict, self.raw))

    def extraction(self) -> tuple[str, ...] | None:
        """Return the extracted sentences, or None where none were read though the reply names some."""
        nothing = any(_INSUFFICIENT.match(reply) for reply in self.raw)
        return self.labels if self.labels or nothing else None


@dataclass(frozen=True)
class RecordedRun:
    """A recorded run of one metric over pairs of WikiEval."""

    name: str
    dimension: Dimension
    rows: tuple[RecordedRow, ...]

    def pairs(self, scores: Sequence[float] | None = None) -> list[tuple[str, float, float]]:
        """Return (id, score of the better text, score of the worse) per question, in order of the ids.

        Parameters
        ----------
        scores : one per row, in place of the recorded ones.

        Raises
        ------
        DataError when scores and rows differ in number, or a question lacks one of its two texts.
        """
        values = [row.score for row in self.rows] if scores is None else list(scores)
        if len(values) != len(self.rows):
            raise DataError(f"{len(values)} scores for {len(self.rows)} rows", "one per row", "keep the rows' order")
        found: dict[str, dict[bool, float]] = {}
        for row, value in zip(self.rows, values, strict=True):
            found.setdefault(row.id, {})[row.better] = value
        lacking = [name for name, sides in found.items() if len(sides) < 2]
        if lacking or 2 * len(found) != len(self.rows):
            raise DataError(
                f"run {self.name}: {len(self.rows)} rows for {len(found)} questions, as {(lacking or list(found))[0]}",
                "a better and a worse text per question",
                "check that the file is whole",
            )
        return [(name, found[name][True], found[name][False]) for name in sorted(found)]


def load_wikieval_runs(path: str | Path | None = None, rows: WikiEval | None = None) -> dict[str, RecordedRun]:
    """Load the recorded runs of RAGAS's metrics by Llama-3-8B-Instruct on half of WikiEval (25 questions).

    Parameters
    ----------
    path : folder with ``ragas_llama3_8b_{ff,ff_base,ar,cr,cr_base}.csv.gz``. Default: ``RAGBENCH_DATA/wikieval``.
    rows : the data set that gives the rows their ids, by question; default `load_wikieval` of the same folder.

    Returns
    -------
    dict by name: "ff", "ar" and "cr" are chat runs, "ff_base" and "cr_base" the same with a plain completion prompt,
    whose replies often cannot be read. That was recorded as 0: `RecordedRow.verdicts` and `RecordedRow.extraction` tell
    it apart.

    Raises
    ------
    DataError for a missing folder or file, a question that is not in ``rows``, or a malformed cell (with its line).
    """
    folder = Path(path).expanduser() if path is not None else mirror("wikieval")
    if folder is None or not folder.is_dir():
        raise DataError(
            f"no folder {folder}" if folder else "the recorded runs are not on this machine",
            "RAGBENCH_DATA/wikieval with ragas_llama3_8b_*.csv.gz",
            "set RAGBENCH_DATA, or pass the folder",
        )
    data = rows if rows is not None else load_wikieval(folder / "wikieval.jsonl")
    ids = {row.question: row.id for row in data}
    return {name: _run(folder / f"ragas_llama3_8b_{name}.csv.gz", name, ids) for name in RUNS}


def read_verdict(raw: str) -> int | None:
    """Read a verdict at the beginning of a reply ("Verdict: 1", "Answer: 0 ..."); None where there is none."""
    found = _VERDICT.match(raw)
    return int(found.group(1)) if found else None


def _run(path: Path, name: str, ids: dict[str, str]) -> RecordedRun:
    rows: list[RecordedRow] = []
    errors: list[DataError] = []
    table = list(csv.DictReader(io.StringIO(read_text(path), newline="")))
    for number, record in enumerate(table, 1):
        try:
            rows.append(_recorded(record, f"{path}, record {number}", RUNS[name], ids))
        except DataError as error:
            errors.append(error)
    raise_all(errors, path, len(table))
    return RecordedRun(name, RUNS[name], tuple(rows))  # type: ignore[arg-type]


def _recorded(record: dict[str, str], where: str, dimension: str, ids: dict[str, str]) -> RecordedRow:
    question = record.get("question", "")
    if question not in ids:
        raise DataError(f"{where}: an unknown question", "one of the data set", "pass the rows that belong to it")
    try:
        better = bool(int(record["is_better_by_construction"]))
        score = float(record[f"{dimension}_score"])
        return RecordedRow(ids[question], question, better, score, **_fields(record, where, dimension))
    except KeyError as error:
        raise DataError(f"{where}: no column {error}", "the columns of a recorded run", "check the file") from None
    except ValueError as error:
        raise DataError(f"{where}: {error}", "numbers and JSON lists", "check the file") from None


def _fields(record: dict[str, str], where: str, dimension: str) -> dict[str, Any]:
    def cells(name: str) -> tuple[Any, ...]:
        found = json.loads(record[name])
        if not isinstance(found, list):
            raise DataError(f"{where}: {name} is {record[name][:40]!r}", "a JSON list", "check the file")
        return tuple(found)

    def flag(name: str) -> bool:
        return bool(int(record[name]))

    # Line ends were written as a backslash and an n.
    context = record.get("context", "").replace("\\n", "\n")
    if dimension == "faithfulness":
        parts = {"labels": cells("verdicts"), "raw": cells("raw_judge_outputs"), "texts": cells("parsed_statements")}
        cut = flag("any_judge_truncated") or flag("statements_truncated")
        return {**parts, "context": context, "status": record["parse_status"], "truncated": cut}
    if dimension == "answer_relevance":
        parts = {"texts": cells("gen_questions"), "flags": tuple(map(int, cells("noncommittal_flags")))}
        status = ", ".join(dict.fromkeys(cells("output_parse_status")))
        return {**parts, "status": status, "truncated": flag("any_truncated")}
    return {
        "labels": cells("extracted_sentences"),
        "raw": (record["raw_output"],),
        "context": context,
        "total": int(record["total_sentences"]),
        "status": record["parse_status"],
        "truncated": flag("statements_truncated"),
    }
