"""WikiEval, the data set of the RAGAS paper (section 4), and recorded runs of RAGAS's metrics on half of it.

People's own preferences are not published with it; which text was *made* better is known. So results are agreement with
the construction, never with people.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import pandas as pd
from pydantic import AfterValidator, BeforeValidator

from ragbench.data.files import Filled, Plain, as_record, each_record, read_jsonl, shared_file
from ragbench.data.tables import read_csv
from ragbench.errors import DataError, check_known

Dimension = Literal["faithfulness", "answer_relevance", "context_relevance"]
DIMENSIONS = ("faithfulness", "answer_relevance", "context_relevance")
_PREFIX = re.compile(r"^\s*(?:Question|Answer)\s*:\s*", re.I)
_VERDICT = re.compile(r"\s*(?:Verdict|Answer)\s*:\s*([01])\b(?!\s+or\b)", re.I)
_INSUFFICIENT = re.compile(r"""[\s\["'`]*(?:Insufficient Information|\]\s*$)""", re.I)
_without_prefix = AfterValidator(lambda text: _PREFIX.sub("", text, count=1).strip())
_Passages = Annotated[tuple[Plain, ...], BeforeValidator(lambda value: [value] if isinstance(value, str) else value)]


@dataclass(frozen=True, slots=True)
class WikiEvalRow:
    """A question with texts made for it, under the data set's own names.

    ``context_v1`` is a page's introduction, ``context_v2`` the same padded with related sentences; ``answer`` was made
    from the introduction, ``ungrounded_answer`` without it, ``poor_answer`` to be incomplete. ``meta`` holds the rest.
    """

    id: str
    question: Annotated[Filled, _without_prefix]
    context_v1: _Passages
    context_v2: _Passages
    answer: Annotated[Plain, _without_prefix]
    ungrounded_answer: Annotated[Plain, _without_prefix]
    poor_answer: Annotated[Plain, _without_prefix]
    source: Annotated[str, BeforeValidator(lambda value: str(value or ""))] = ""
    meta: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pair:
    """Two texts of which one was made better. ``context`` is what faithfulness is judged against, else empty."""

    id: str
    question: str
    better: str
    worse: str
    context: str = ""


@dataclass(frozen=True)
class WikiEval:
    """Rows of WikiEval, or of a set of the same shape. ``failed``: what a generator could not make, as (id, reason)."""

    name: str
    rows: tuple[WikiEvalRow, ...]
    failed: tuple[tuple[str, str], ...] = ()

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[WikiEvalRow]:
        return iter(self.rows)

    def __repr__(self) -> str:
        return f"WikiEval({self.name!r}, {len(self.rows)} rows)"

    def pairs(self, dimension: Dimension) -> list[Pair]:
        """Return the pairs of one dimension: the paper's comparisons, the text made better first.

        Faithfulness compares ``answer`` and ``ungrounded_answer`` given ``context_v1``, answer relevance ``answer`` and
        ``poor_answer``, context relevance ``context_v1`` and ``context_v2``.
        """
        check_known("dimension", [dimension], DIMENSIONS)
        if dimension == "faithfulness":
            return [Pair(r.id, r.question, r.answer, r.ungrounded_answer, joined(r.context_v1)) for r in self.rows]
        if dimension == "answer_relevance":
            return [Pair(r.id, r.question, r.answer, r.poor_answer) for r in self.rows]
        return [Pair(r.id, r.question, joined(r.context_v1), joined(r.context_v2)) for r in self.rows]


def load_wikieval(path: str | Path | None = None) -> WikiEval:
    """Load WikiEval, or a file of the same shape; its ids number the rows from ``wikieval-01``.

    Parameters
    ----------
    path : JSON lines with the fields question, context_v1, context_v2 (lists of texts, or one text), answer,
        ungrounded_answer, poor_answer and optionally source; plain or gzip. "Question:" and "Answer:" before a text are
        taken off; an answer may be empty. Default: ``RAGBENCH_DATA/wikieval``.

    Source: RAGAS, section 4 (50 rows).
    """
    do = "set RAGBENCH_DATA, or pass WikiEval as JSON lines; ragbench.datagen.ragas_pairs makes a set of its shape"
    given = shared_file(path, "wikieval", "wikieval.jsonl", name="WikiEval", do=do)
    known = {part.name for part in fields(WikiEvalRow)}

    def record(row: dict, where: str) -> WikiEvalRow:
        meta = {name: value for name, value in row.items() if name not in known}
        return replace(as_record(WikiEvalRow, {**row, "id": ""}, where), meta=meta)

    rows = each_record(given, read_jsonl(given), record)
    return WikiEval("wikieval", tuple(replace(row, id=f"wikieval-{n:02d}") for n, row in enumerate(rows, 1)))


def joined(passages: Sequence[str]) -> str:
    """Join passages, a blank line between them."""
    return "\n\n".join(passage.strip() for passage in passages if passage.strip())


@dataclass(frozen=True, slots=True)
class RecordedRow:
    """One text that a model judged.

    Attributes
    ----------
    better : whether the text was made better.
    labels : verdicts as recorded (1 or 0), or the sentences recorded as extracted.
    raw : replies of the model: one per verdict, or the one with the sentences.
    texts : statements, or generated questions with their ``flags`` (1: the answer was called evasive).
    total : number of sentences of the context, as recorded.
    status : how the source parsed the replies. ``truncated``: whether one was cut off.
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
        return tuple(map(_read_verdict, self.raw))

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
        """Return (id, score of the better text, score of the worse) per question, by id.

        ``scores``, one per row, take the place of the recorded ones.
        """
        frame = pd.DataFrame({"id": [row.id for row in self.rows], "better": [row.better for row in self.rows]})
        if scores is not None and len(scores) != len(frame):
            raise DataError(f"{len(scores)} scores for {len(frame)} rows", "one per row", "keep the rows' order")
        frame["score"] = [row.score for row in self.rows] if scores is None else list(scores)
        sides = frame.groupby("id")["better"].agg(sorted)
        if odd := [name for name, of_question in sides.items() if of_question != [False, True]]:
            got, expected = f"run {self.name}: the rows of question {odd[0]}", "a better and a worse text"
            raise DataError(got, expected, "check that the file is whole")
        table = frame.pivot(index="id", columns="better", values="score")
        return [*zip(table.index, table[True], table[False], strict=True)]


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
    """
    do = "set RAGBENCH_DATA, or pass the folder"
    folder = shared_file(path, "wikieval", name="the folder of recorded runs", do=do)
    data = rows if rows is not None else load_wikieval(folder / "wikieval.jsonl")
    ids = {row.question: row.id for row in data}

    def judged(cells: dict, where: str) -> RecordedRow:
        if cells["question"] not in ids:
            raise DataError(f"{where}: an unknown question", "one of the data set", "pass the rows that belong to it")
        try:
            return _recorded(cells, ids[cells["question"]])
        except (KeyError, ValueError) as error:
            raise DataError(f"{where}: {error!r}", "a row as it was recorded", "copy the file again") from None

    runs = {}
    for name, dimension in _RUNS.items():
        file = folder / f"ragas_llama3_8b_{name}.csv.gz"
        runs[name] = RecordedRun(name, dimension, tuple(each_record(file, read_csv(file), judged)))
    return runs


def _recorded(cells: dict[str, str], name: str) -> RecordedRow:
    """Make a row of the columns of its metric: "1" or "0", texts, lists as JSON."""

    def listed(*columns: str) -> tuple[Any, ...]:
        return tuple(json.loads(next((cells[column] for column in columns if column in cells), "[]")))

    (score,) = [float(cell) for column, cell in cells.items() if column.endswith("_score")]
    statuses = ", ".join(dict.fromkeys(listed("output_parse_status")))
    return RecordedRow(
        name,
        cells["question"],
        cells["is_better_by_construction"] == "1",
        score,
        labels=listed("verdicts", "extracted_sentences"),
        raw=(cells["raw_output"],) if "raw_output" in cells else listed("raw_judge_outputs"),
        texts=listed("parsed_statements", "gen_questions"),
        flags=listed("noncommittal_flags"),
        context=cells.get("context", "").replace("\\n", "\n"),  # so were line ends written
        total=int(cells.get("total_sentences", 0)),
        status=cells.get("parse_status") or statuses,
        truncated="1" in (cell for column, cell in cells.items() if column.endswith("truncated")),
    )


def _read_verdict(raw: str) -> int | None:
    """Read a verdict at the beginning of a reply ("Verdict: 1", "Answer: 0 ..."); None where there is none."""
    verdict = _VERDICT.match(raw)
    return int(verdict.group(1)) if verdict else None


_RUNS: dict[str, Dimension] = {
    "ff": "faithfulness",
    "ff_base": "faithfulness",
    "ar": "answer_relevance",
    "cr": "context_relevance",
    "cr_base": "context_relevance",
}
