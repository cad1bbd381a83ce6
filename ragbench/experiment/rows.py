"""The rows of a run: one `Row` per question and cell, one JSON object a line in ``rows.jsonl``,
read as a data frame.
"""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd

from ragbench.errors import DataError, check_known
from ragbench.generation import PROMPTS
from ragbench.paths import results_dir

ROWS = "rows.jsonl"
MANIFEST = "manifest.json"
AXIS_COLUMNS = ("data", "question_id", "chunker", "retriever", "k", "N", "generator", "judge")
# Clocks and where a reply came from differ from run to run; everything else is the same for the
# same experiment.
TIMING = ("seconds", "judge_seconds", "cached")
_EMPTY_SHARE = 0.1  # of the questions without any context, above which a run warns


@dataclass(slots=True)
class Row:
    """One question in one cell of the grid; the columns of rows, with their types, in this order.

    ``context``, what the generator read, is made of ``chunks``. ``meta`` has the other columns of
    the questions file; they are columns of the frame.
    """

    data: str
    question_id: str
    chunker: str
    retriever: str
    k: int
    N: int
    generator: str
    judge: str
    status: str = "ok"  # or "failed": then error_step, error_kind, error say why
    kind: str = ""
    level: str = ""
    topic: Any = None
    ir_score: float | None = None
    context_tokens: int | None = None
    hits: list[str] | None = None  # ids of chunks, best first
    zero_hits: int | None = None  # hits with a score of 0
    answer: str | None = None
    seconds: float | None = None
    grade: int | None = None
    judge_seconds: float | None = None
    error_step: str = ""
    error_kind: str = ""
    error: str = ""
    model: str | None = None
    digest: str | None = None
    temperature: float | None = None
    seed: int | None = None
    num_ctx: int | None = None
    prompt: str | None = None  # that was asked: at N = 0 another one than with documents
    prompt_sha256: str | None = None
    finish: str | None = None
    prompt_tokens: int | None = None
    prompt_estimate: int | None = None
    output_tokens: int | None = None
    tagged: bool | None = None
    cached: bool | None = None
    judge_model: str | None = None
    judge_digest: str | None = None
    judge_temperature: float | None = None
    judge_seed: int | None = None
    judge_num_ctx: int | None = None
    judge_prompt_sha256: str | None = None
    judge_shown: int | None = None
    judge_position: int | None = None
    judge_answer_cut: bool | None = None
    judge_form: str | None = None
    judge_repairs: int | None = None
    judge_prompt_tokens: int | None = None
    judge_prompt_estimate: int | None = None
    judge_raw: str | None = None
    question: str | None = None
    reference: str | None = None
    references: list[str] | None = None
    retrieved: list[str] | None = None  # ids of the documents of the hits
    relevant: dict[str, int] | None = None  # document -> gain
    chunks: list[str] | None = None  # the texts that stand in the context; the last may be cut
    meta: dict[str, Any] = field(default_factory=dict)

    @property
    def context(self) -> str | None:
        """What the generator read; None without documents."""
        if self.N == 0 or self.chunks is None:
            return None
        return " ".join(self.chunks)

    def update(self, values: Mapping[str, Any]) -> None:
        """Set several fields."""
        for name, value in values.items():
            setattr(self, name, value)

    def fail(self, step: str, kind: str, message: str) -> None:
        """Mark the row as failed."""
        self.status = "failed"
        self.error_step = step
        self.error_kind = kind
        self.error = message

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON takes them; NaN is None."""
        values = {name: getattr(self, name) for name in _FIELDS}
        for name, value in values.items():
            if isinstance(value, float) and not math.isfinite(value):
                values[name] = None
        return values

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        """Make a row of what `to_dict` gave, or of a row of an older version (``chunk_ends``)."""
        row = cls(**{name: record[name] for name in _FIELDS if name in record})
        context = record.get("context")
        ends = record.get("chunk_ends")
        if row.chunks is None and isinstance(context, str) and ends is not None:
            # one space stands between two chunks
            places = pairwise([-1, *ends])
            row.chunks = [context[before + 1 : end] for before, end in places]
        for name in ("error_step", "error_kind", "error"):
            if getattr(row, name) is None:
                setattr(row, name, "")
        return row


_FIELDS = tuple(each.name for each in fields(Row))
_TYPES = {each.name: str(each.type) for each in fields(Row)}
COLUMNS = (*(name for name in _FIELDS if name not in ("chunks", "meta")), "context", "chunks")


class RowsFile:
    """The file of rows while a run writes it.

    A first run's rows grow in place. Later ones are written beside the earlier ones, which stay
    until `take_place`.
    """

    def __init__(self, folder: Path) -> None:
        self.place = folder / ROWS
        self.path = self.place
        if self.place.exists():
            self.path = folder / f"{ROWS}.part"
        self.count = 0
        self._sha256 = hashlib.sha256()

    @property
    def sha256(self) -> str:
        """Of what is written so far."""
        return self._sha256.hexdigest()

    def write(self, rows: Iterable[Row]) -> None:
        """Append a block of rows; DataError for a full disk."""
        lines = [json.dumps(row.to_dict(), default=_plain, allow_nan=False) for row in rows]
        text = "".join(f"{line}\n" for line in lines).encode()
        mode = "ab" if self.count else "wb"
        try:
            with self.path.open(mode) as file:
                file.write(text)
        except OSError as error:
            raise no_room(self.path, error.strerror) from None
        self.count += len(lines)
        self._sha256.update(text)

    def replaces(self, whole: bool) -> bool:
        """Say whether these rows take the place: the whole grid's, or no fewer than the earlier."""
        if whole or self.path == self.place:
            return True
        with self.place.open("rb") as file:
            earlier = sum(1 for _ in file)
        return self.count >= earlier

    def take_place(self) -> None:
        """Replace the earlier rows."""
        if self.path != self.place and self.path.exists():
            os.replace(self.path, self.place)

    def discard(self) -> None:
        """Leave the earlier rows as they are."""
        if self.path != self.place:
            self.path.unlink(missing_ok=True)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else str(value)


def no_room(file: object, reason: str | None) -> DataError:
    """Build the error that ends a run when a file cannot be written."""
    do = "make room, then run again: recorded replies and vectors are kept"
    return DataError(f"{file} cannot be written: {reason}", "room on the disk", do)


def as_frame(rows: Sequence[Row], columns: Sequence[str] = COLUMNS) -> pd.DataFrame:
    """Return rows as a data frame, whole numbers as ``Int64``; with all columns those of
    ``meta``.
    """
    frame = pd.DataFrame({name: _column(rows, name) for name in columns})
    if len(columns) < len(COLUMNS):
        return frame
    own = dict.fromkeys(name for row in rows for name in row.meta)
    for name in own:
        if name not in frame:
            frame[name] = [row.meta.get(name) for row in rows]
    return frame


def _column(rows: Sequence[Row], name: str) -> pd.Series:
    values = pd.Series([getattr(row, name) for row in rows], dtype=object)
    kind = _TYPES.get(name, "str")
    if kind.startswith("int"):
        return values.astype("Int64")
    if kind.startswith("float"):
        return values.astype(float)
    values = values.where(values.notna(), np.nan)
    # half of a surrogate pair fits no string of pyarrow
    with contextlib.suppress(UnicodeEncodeError):
        return values.infer_objects()
    return values


def load_rows(run: str | os.PathLike[str], columns: Sequence[str] = COLUMNS) -> pd.DataFrame:
    """Load the rows of a run (its name, folder or file of rows), whole or under way.

    Parameters
    ----------
    columns : those to load; of a large run a few take a part of the memory.

    Returns
    -------
    DataFrame, one row per question and cell: the fields of `Row`, and the columns of the questions
    file. ``status`` is "ok" or "failed" (then ``error_step``, ``error_kind``, ``error`` say why);
    ``grade`` is missing where there is none; ``ir_score`` is NaN without documents or references.
    """
    check_known("column", columns, COLUMNS)
    path = run_folder(run) / ROWS
    unread = {*_FIELDS} - {*columns, "N", "chunks", *AXIS_COLUMNS}
    rows = []
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):  # a run under way, or killed
                break
            try:
                record = json.loads(line)
                record["status"]
                if len(columns) < len(COLUMNS):
                    record = {name: value for name, value in record.items() if name not in unread}
                rows.append(Row.from_dict(record))
            except (ValueError, KeyError, TypeError, AttributeError):
                shown = line[:60].decode("utf-8", "replace")
                do = "delete that line, or run the experiment again"
                raise DataError(
                    f"{path}, line {number} is no row: {shown!r}", "one JSON object a line", do
                ) from None
    return as_frame(rows, columns)


def folder_name(name: str) -> str:
    """Return the name of a run as every system can have it for a folder: Windows refuses
    "llama3:8b".

    >>> folder_name("llama3:8b")
    'llama3-8b'
    """
    return re.sub(r'[<>:"|?*\\]', "-", name)


def run_folder(run: str | os.PathLike[str]) -> Path:
    """Return the folder of a run, given its name, its folder or its file of rows; DataError names
    those there are.
    """
    path = Path(run).expanduser()
    homes = (Path("results"), results_dir())  # the first: in a folder of `ragbench init`
    # a name too long for a file, or with NUL, is no run
    with contextlib.suppress(OSError, ValueError):
        if path.is_file():
            return path.parent
        for folder in (
            path,
            *(home / own for home in homes for own in (path, folder_name(str(run)))),
        ):
            if (folder / ROWS).is_file():
                return folder
    known = sorted({rows.parent.name for home in homes for rows in home.glob(f"*/{ROWS}")})
    guess = "".join(
        f"did you mean {name!r}? " for name in difflib.get_close_matches(str(run), known, n=1)
    )
    do = (
        f"{guess}known runs: {', '.join(known)}"
        if known
        else "make one first: ragbench run experiment.yaml"
    )
    raise DataError(f"no run {str(run)[:80]!r}", f"a folder with {ROWS}, or the name of a run", do)


def without_text(rows: pd.DataFrame) -> list[str]:
    """Say which retrievers leave more than a tenth of the questions without any text: no hit, or
    only blank ones.
    """
    searched = rows[(rows["N"] > 0) & rows["context_tokens"].notna()]
    most = searched.groupby(["data", "chunker", "retriever", "k", "question_id"], sort=False)[
        "context_tokens"
    ].max()
    warnings = []
    for (data, chunker, retriever, k), tokens in most.groupby(level=[0, 1, 2, 3], sort=False):
        if (empty := int(tokens.eq(0).sum())) > _EMPTY_SHARE * len(tokens):
            warnings.append(
                f"{retriever} (k={k}, {chunker}) on {data} finds no text for {empty} of "
                f"{len(tokens)} questions: "
                "check that questions and documents share words; for BM25 see its tokenizer"
            )
    return warnings


def system_names(rows: pd.DataFrame) -> list[str]:
    """Name the system of each row: "BM25, k=5@300".

    It is the retriever, the other axes that take several values, and N. Without documents there is
    no chunker and no k; where the generator has another prompt with documents, the prompt that was
    asked stands there too.
    """
    found = rows[rows["N"] > 0]
    with_documents = [axis for axis in ("chunker", "k") if found[axis].nunique() > 1]
    always = [axis for axis in ("generator", "judge") if rows[axis].nunique() > 1]
    variants = set()
    if "prompt" in rows:
        own = found["prompt"].notna() & ~found["prompt"].isin(PROMPTS.values())
        variants = set(found.loc[own, "generator"])
    names = []
    for row in rows.to_dict("records"):
        parts = [str(row["retriever"])]
        if row["N"]:
            parts += [
                f"k={row[axis]}" if axis == "k" else str(row[axis]) for axis in with_documents
            ]
        parts += [str(row[axis]) for axis in always]
        if not row["N"] and row["generator"] in variants:
            parts.append(f"prompt {row['prompt']}")
        names.append(f"{', '.join(parts)}@{row['N']}")
    return names


def measure_answers(rows: pd.DataFrame, metric: Callable[[str, str], float]) -> pd.Series:
    """Return a metric of answer and true answer for each row; NaN where one of them is missing."""
    both = rows[rows["answer"].notna() & rows["reference"].notna()]
    pairs = zip(both["answer"], both["reference"], strict=True)
    values = [metric(answer, reference) for answer, reference in pairs]
    return pd.Series(values, both.index, dtype=float).reindex(rows.index)


def answers_of(rows: pd.DataFrame) -> pd.DataFrame:
    """Add ``system`` to the rows of a run: ``rb.score(experiment.answers(rows), [...])``.

    It is the retriever, the other axes that take several values, and N. Without documents, at
    N = 0, there are no chunks and no context.
    """
    names = system_names(rows)
    if rows["data"].nunique() > 1:
        names = [f"{name} on {data}" for name, data in zip(names, rows["data"], strict=True)]
    texts = rows[["context", "chunks"]].astype(object)
    return rows.assign(system=names, **texts.where(texts.notna(), None))
