"""The rows of a run: one `Row` per question and cell, one JSON object a line in ``rows.jsonl``,
read as a data frame; and the manifest beside them, as it is read.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import math
import os
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pandas as pd
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from ragbench.errors import DataError
from ragbench.generation import PROMPTS
from ragbench.metrics.ir_score import Match
from ragbench.paths import refuse_stream, results_dir
from ragbench.records import Failure

ROWS = "rows.jsonl"
MANIFEST = "manifest.json"
AXIS_COLUMNS = ("data", "question_id", "chunker", "retriever", "k", "N", "generator", "judge")


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
    match: str = "substring"  # of the IR score, see `ragbench.metrics.ir_score.MATCHES`
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
    judge_prompt: str | None = None
    judge_prompt_sha256: str | None = None
    judge_scale: dict[int, str] | None = None  # grade -> meaning; None: the thesis's five
    judge_shown: int | None = None
    judge_position: int | None = None
    judge_answer_cut: bool | None = None
    judge_repairs: int | None = None
    judge_prompt_tokens: int | None = None
    judge_prompt_estimate: int | None = None
    judge_raw: str | None = None
    question: str | None = None
    reference: str | None = None
    references: list[str] | None = None
    retrieved: list[str] | None = None  # ids of the documents of the hits
    relevant: Mapping[str, int | float] | None = None  # document -> gain
    chunks: list[str] | None = None  # the texts that stand in the context; the last may be cut
    meta: dict[str, Any] = field(default_factory=dict)

    @property
    def context(self) -> str | None:
        """What the generator read; None without documents."""
        if self.N == 0 or self.chunks is None:
            return None
        return " ".join(self.chunks)

    @property
    def place(self) -> str:
        """The question and what it is asked with: the name of a prompt on the cassette."""
        return f"{self.question_id}/{self.chunker}/{self.retriever}/{self.k}/{self.N}"

    def take(
        self, record: Mapping[str, Any], names: Iterable[str] | None = None, prefix: str = ""
    ) -> None:
        """Set fields from a record: all that it has, or those of ``names`` that it has.

        ``prefix`` : of the fields, such as "judge_".
        """
        for name in names or record:
            if name in record:
                setattr(self, prefix + name, record[name])

    def fail(self, step: str, failure: Failure) -> None:
        """Mark the row as failed."""
        self.status = "failed"
        self.error_step = step
        self.error_kind = failure.kind
        self.error = failure.message

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON takes them; NaN is None."""
        values = {}
        for name in _TYPES:
            value = getattr(self, name)
            missing = isinstance(value, float) and not math.isfinite(value)
            values[name] = None if missing else value
        return values

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Row:
        """Make a row of what `to_dict` gave."""
        known = {name: value for name, value in record.items() if value is not None}
        return _reader().validate_python(known)

    @staticmethod
    def frame(rows: Sequence[Row]) -> pd.DataFrame:
        """Return rows as a data frame, whole numbers as ``Int64``, with the columns of ``meta``."""
        columns = {}
        for name in _COLUMNS:
            cells = [getattr(row, name) for row in rows]
            values = pd.Series(cells, dtype=object)
            kind = _TYPES.get(name, "str")
            if kind in _KINDS:
                columns[name] = values.astype(_KINDS[kind])
                continue
            columns[name] = values.where(values.notna(), np.nan)
            # half of a surrogate pair fits no string of pyarrow
            with contextlib.suppress(UnicodeEncodeError):
                columns[name] = columns[name].infer_objects()
        for name in dict.fromkeys(name for row in rows for name in row.meta):
            columns.setdefault(name, [row.meta.get(name) for row in rows])
        return pd.DataFrame(columns)


@functools.cache
def _reader() -> TypeAdapter[Row]:
    """Return what checks the types of a row's fields; it is built when rows are first read."""
    return TypeAdapter(Row)


_TYPES = {each.name: str(each.type).removesuffix(" | None") for each in fields(Row)}
_KINDS = {"int": "Int64", "float": float}
_COLUMNS = (*(name for name in _TYPES if name not in ("chunks", "meta")), "context", "chunks")


def open_file(path: Path) -> BinaryIO:
    """Open a file that a run wrote; DataError where that cannot be done."""
    try:
        return path.open("rb")
    except OSError as error:
        raise DataError(
            f"{path} cannot be read: {error.strerror}",
            "a file of a run",
            "check its rights, or delete it",
        ) from None


def folder_name(name: str) -> str:
    """Return the name of a run as every system can have it for a folder: Windows refuses
    "llama3:8b" and "con". A name that is changed gets some letters of its own, so that no other
    name has its folder.

    >>> folder_name("llama3:8b")
    'llama3-8b-0c9477'
    """
    safe = re.sub(r'[<>:"|?*\\]', "-", name).rstrip(". ")
    stem, _, _ = safe.partition(".")
    if safe == name and not re.fullmatch(r"con|prn|aux|nul|(com|lpt)\d", stem.casefold()):
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()
    return f"{safe}-{digest[:6]}"


def run_folder(run: str | os.PathLike[str]) -> Path:
    """Return the folder of a run, given its name or folder; DataError names those there are."""
    path = Path(run).expanduser()
    homes = (Path("results"), results_dir())  # the first: in a folder of `ragbench init`
    places = [path]
    for home in homes:
        places += [home / path, home / folder_name(str(run))]
    with contextlib.suppress(OSError):  # a name too long for a file is not a run
        for folder in places:
            # a run that was stopped before its first row has a manifest alone
            if (folder / ROWS).is_file() or (folder / MANIFEST).is_file():
                for name in (ROWS, MANIFEST):
                    refuse_stream(folder / name)
                return folder
    names = sorted({rows.parent.name for home in homes for rows in home.glob(f"*/{ROWS}")})
    raise DataError(
        f"no run {str(run)[:80]!r}",
        f"a folder with {ROWS}, or the name of a run: {', '.join(names) or 'there is none'}",
        "make it: ragbench run experiment.yaml",
    )


def _read_rows(path: Path) -> tuple[list[Row], str]:
    """Read a file of rows, whole or under way, and its sha256, in one pass.

    Raises DataError for a line that is not a row.
    """
    rows = []
    digest = hashlib.sha256()
    with open_file(path) as file:
        for number, line in enumerate(file, 1):
            digest.update(line)
            if not line.endswith(b"\n"):  # a run under way, or killed
                break
            try:
                rows.append(Row.from_dict(json.loads(line)))
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                start = line[:60].decode("utf-8", "replace")
                raise DataError(
                    f"{path}, line {number} is not a row: {start!r}",
                    "one JSON object a line",
                    "delete that line, or run the experiment again",
                ) from None
    return rows, digest.hexdigest()


class _Run(BaseModel):
    rows: int
    failed: dict[str, int] = {}


class _Parameters(BaseModel):
    """Those that the methods cannot be written without."""

    k: Any
    N: list[int]
    match: Match
    order: Any
    per_prompt: Any


class _Manifest(BaseModel):
    """What is read again from a manifest, with its types."""

    name: str = ""
    grid: dict[str, list[str]]
    machine: dict[str, Any]
    axes: dict[str, dict[str, dict[str, Any]]] = {}
    chunkers: dict[str, dict[str, Any]] = {}
    parameters: _Parameters
    prompts: dict[str, str] = {}
    seeds: dict[str, int | None] = {}
    packages: dict[str, str] = {}
    python: str = ""
    git: dict[str, Any] | None = None
    runs: list[_Run] = Field(min_length=1)


def load_manifest(run: str | os.PathLike[str]) -> dict[str, Any]:
    """Read the manifest of a run, given its name or folder; DataError when it is missing or
    damaged.
    """
    path = run_folder(run) / MANIFEST
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        _Manifest.model_validate(manifest)
    except (OSError, ValueError, RecursionError) as error:
        why = str(error)
        if isinstance(error, ValidationError):
            (first, *_) = error.errors(include_url=False)
            why = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise DataError(
            f"{path} cannot be read: {why}",
            "the manifest that a run writes",
            "run it again",
        ) from None
    return manifest


def load_rows(run: str | os.PathLike[str]) -> pd.DataFrame:
    """Load the rows of a run (its name or folder), whole or under way.

    Returns
    -------
    DataFrame, one row per question and cell: the fields of `ragbench.rows.Row`, and the
    columns of the questions file. ``status`` is "ok" or "failed" (then ``error_step``,
    ``error_kind``, ``error`` say why); ``grade`` is missing where there is none; ``ir_score`` is
    NaN without documents or references.

    >>> settings = {"retriever": "BM25", "N": 100, "folder": "look"}
    >>> small = {"small": {"use": "token_chunks", "size": 100}}
    >>> grid = rb.Experiment("look", data="minihop", chunker=small, **settings)
    >>> _ = grid.run(progress=False)
    >>> len(rb.load_rows("look"))
    180
    """
    folder = run_folder(run)
    rows, sha256 = _read_rows(folder / ROWS)
    noted = sha256
    with contextlib.suppress(OSError, ValueError, RecursionError, AttributeError):
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        noted = manifest.get("rows_sha256", sha256)
    if noted != sha256:
        warnings.warn(
            f"{folder / ROWS} was cut or edited: it is not what {MANIFEST} describes; "
            "run the experiment again",
            stacklevel=2,
        )
    return Row.frame(rows)


def load_run(run: str | os.PathLike[str]) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Load the rows of a run and their manifest.

    Raises DataError where there are no rows, or not those that the manifest describes.
    """
    folder = run_folder(run)
    rows, sha256 = _read_rows(folder / ROWS)
    if not rows:
        raise DataError("the run has no rows", "at least one", "run the experiment first")
    manifest = load_manifest(folder)
    if manifest.get("rows_sha256", sha256) != sha256:
        raise DataError(
            f"{folder / ROWS} is not what {MANIFEST} beside it describes",
            "rows and manifest of one run",
            "run the experiment again",
        )
    return Row.frame(rows), manifest


def _system_names(rows: pd.DataFrame) -> pd.Series:
    """Name the system of each row, see `answers_of`."""
    alone = rows["N"] == 0
    texts = rows[["retriever", "chunker", "k", "generator", "judge", "N"]].astype(str)
    texts["k"] = "k=" + texts["k"]
    names = texts["retriever"]
    for axis in ("chunker", "k", "generator", "judge"):
        places = ~alone | (axis in ("generator", "judge"))
        if texts.loc[places, axis].nunique() > 1:
            names = names.where(~places, names + ", " + texts[axis])
    if "prompt" in rows:
        is_other = alone & rows["generator"].isin(_with_own_prompt(rows[~alone]))
        names = names.where(~is_other, names + ", prompt " + rows["prompt"].astype(str))
    names = names + "@" + texts["N"]
    if rows["data"].nunique() > 1:
        names = names + " on " + rows["data"]
    return names


def _with_own_prompt(rows: pd.DataFrame) -> pd.Series:
    """Return the generators whose prompt with documents is not the thesis's."""
    prompts = rows[["generator", "prompt"]].dropna()
    return prompts.loc[~prompts["prompt"].isin(PROMPTS.values()), "generator"]


def measure_answers(rows: pd.DataFrame, metric: Callable[[str, str], float]) -> pd.Series:
    """Return a metric of answer and true answer for each row; NaN where one of them is missing."""
    both = rows[["answer", "reference"]].dropna()
    values = [metric(*pair) for pair in both.itertuples(index=False)]
    return pd.Series(values, both.index, dtype=float).reindex(rows.index)


def answers_of(rows: pd.DataFrame) -> pd.DataFrame:
    """Add ``system`` to the rows of a run, as `ragbench.score` reads them: "BM25, k=5@300".

    It is the retriever, the other axes that take several values, and N. Without documents, at
    N = 0, there are no chunks and no context, no chunker and no k; where the generator has another
    prompt with documents, the prompt that was asked stands there too.
    """
    rows = rows.assign(system=_system_names(rows))
    for name in ("context", "chunks"):
        texts = rows[name].astype(object)
        rows[name] = texts.where(texts.notna(), None)
    return rows
