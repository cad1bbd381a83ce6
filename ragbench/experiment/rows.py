"""The rows of a run:

one JSON object a line in ``rows.jsonl``, written block by block, read as a data frame.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ragbench.errors import DataError, check_known
from ragbench.paths import results_dir

ROWS = "rows.jsonl"
MANIFEST = "manifest.json"
AXIS_COLUMNS = ("data", "question_id", "chunker", "retriever", "k", "N", "generator", "judge")
# Clocks and where a reply came from differ from run to run; everything else is the same for the
# same experiment.
TIMING = ("seconds", "judge_seconds", "cached")
TEXTS = ("question", "reference", "references", "retrieved", "relevant", "context", "chunk_ends")
_ERRORS = ("error_step", "error_kind", "error")
_TOKENS = ("prompt_tokens", "prompt_estimate", "output_tokens")
_MODEL = ("model", "digest", "temperature", "seed", "num_ctx", "prompt_sha256")
REPLY_COLUMNS = ("finish", *_TOKENS, "tagged", "cached")
_JUDGED = ("judge_shown", "judge_position", "judge_answer_cut", "judge_form", "judge_repairs")
_JUDGED += ("judge_prompt_tokens", "judge_prompt_estimate", "judge_raw")
COLUMNS = (
    *AXIS_COLUMNS,
    "status",
    "kind",
    "level",
    "topic",
    "ir_score",
    "context_tokens",
    "hits",
    "zero_hits",
)
COLUMNS += ("answer", "seconds", "grade", "judge_seconds", *_ERRORS, *_MODEL, *REPLY_COLUMNS)
COLUMNS += (*(f"judge_{name}" for name in _MODEL), *_JUDGED, *TEXTS)
_FRACTIONS = ("ir_score", "seconds", "judge_seconds", "temperature", "judge_temperature")
_WHOLE = (
    "k",
    "N",
    "context_tokens",
    "zero_hits",
    "grade",
    "seed",
    "num_ctx",
    "judge_seed",
    "judge_num_ctx",
    *_TOKENS,
)
_WHOLE += tuple(
    name for name in _JUDGED if name not in ("judge_answer_cut", "judge_form", "judge_raw")
)
_EMPTY_SHARE = 0.1  # of the questions without any context, above which a run warns


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]], *, first: bool) -> None:
    """Append a block of rows to a file, or begin it with the ``first`` one.

    DataError for a full disk.
    """
    lines = (json.dumps(row, default=_plain, allow_nan=False) for row in map(_finite, rows))
    try:
        with path.open("wb" if first else "ab") as file:
            file.write("".join(f"{line}\n" for line in lines).encode())
    except OSError as error:
        raise no_room(path, error.strerror) from None


def _finite(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        n: None if isinstance(value, float) and not math.isfinite(value) else value
        for n, value in row.items()
    }


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else str(value)


def no_room(file: object, reason: str | None) -> DataError:
    """Build the error that ends a run when a file cannot be written."""
    do = "make room, then run again: recorded replies and vectors are kept"
    return DataError(f"{file} cannot be written: {reason}", "room on the disk", do)


def as_frame(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] = COLUMNS) -> pd.DataFrame:
    """Return rows as a data frame with all columns, whole numbers as ``Int64``."""
    frame = pd.DataFrame(
        {name: pd.Series([row.get(name) for row in rows], dtype=object) for name in columns}
    )
    for name in columns:
        if name in _WHOLE:
            frame[name] = frame[name].astype("Int64")
        elif name in _FRACTIONS:
            frame[name] = frame[name].astype(float)
        elif name in _ERRORS:
            frame[name] = frame[name].fillna("")
        else:
            frame[name] = frame[name].where(frame[name].notna(), np.nan)
            # half of a surrogate pair fits no string of pyarrow
            with contextlib.suppress(UnicodeEncodeError):
                frame[name] = frame[name].infer_objects()
    return frame


def load_rows(run: str | os.PathLike[str], columns: Sequence[str] = COLUMNS) -> pd.DataFrame:
    """Load the rows of a run (its name, folder or file of rows), whole or under way.

    Parameters
    ----------
    columns : those to load; of a large run a few take a part of the memory.

    Returns
    -------
    DataFrame, one row per question and cell. ``status`` is "ok" or "failed" (then ``error_step``,
    ``error_kind``, ``error`` say why); ``grade`` is missing where there is none; ``ir_score`` is
    NaN without documents or references. ``context`` is what the generator read; see
    `Experiment.answers`.
    """
    check_known("column", columns, COLUMNS)
    path = run_folder(run) / ROWS
    rows = []
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):  # a run under way, or killed
                break
            try:
                row = json.loads(line)
                row["question_id"], row["status"]
            except (ValueError, KeyError, TypeError):
                shown = line[:60].decode("utf-8", "replace")
                do = "delete that line, or run the experiment again"
                raise DataError(
                    f"{path}, line {number} is no row: {shown!r}", "one JSON object a line", do
                ) from None
            rows.append({name: row.get(name) for name in columns})
    return as_frame(rows, columns)


def folder_name(name: str) -> str:
    """Return the name of a run as every system can have it for a folder: Windows refuses
    "llama3:8b".

    >>> folder_name("llama3:8b")
    'llama3-8b'
    """
    return re.sub(r'[<>:"|?*\\]', "-", name)


def run_folder(run: str | os.PathLike[str]) -> Path:
    """Return the folder of a run, given its name, its folder or its file of rows;

    DataError names those there are.
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
    """Say which retrievers leave more than a tenth of the questions without any text:

    no hit, or only blank ones.
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
    """Name the system of each row:

    retriever, the other axes that take several values, and N ("BM25, k=5@300").
    """
    with_documents = [a for a in ("chunker", "k") if rows.loc[rows["N"] > 0, a].nunique() > 1]
    always = [a for a in ("generator", "judge") if rows[a].nunique() > 1]
    names = []
    for row in rows[["retriever", "N", *with_documents, *always]].to_dict("records"):
        # without documents there is no chunker and no k
        axes = [*(with_documents if row["N"] else ()), *always]
        parts = [f"k={row[a]}" if a == "k" else str(row[a]) for a in axes]
        names.append(", ".join([str(row["retriever"]), *parts]) + f"@{row['N']}")
    return names


def answers_of(rows: pd.DataFrame) -> pd.DataFrame:
    """Put beside rows of a run what scoring needs: ``rb.score(experiment.answers(rows), [...])``.

    Adds ``system`` (the retriever, the other axes that take several values, and N) and ``chunks``,
    the texts that stand in ``context``. Without documents, at N = 0, there are no chunks and no
    context.
    """
    names = system_names(rows)
    if rows["data"].nunique() > 1:
        names = [f"{name} on {data}" for name, data in zip(names, rows["data"], strict=True)]
    chunks: list[list[str] | None] = []
    for context, ends, n in zip(rows["context"], rows["chunk_ends"], rows["N"], strict=True):
        known = isinstance(context, str) and isinstance(ends, list)
        starts = [0, *(end + 1 for end in ends)] if known else []
        chunks.append(
            [context[a:b] for a, b in zip(starts, ends, strict=False)]
            if known
            else []
            if n == 0
            else None
        )
    context = rows["context"].astype(object).where(rows["context"].notna(), None)
    return rows.assign(
        system=names, chunks=pd.Series(chunks, rows.index, dtype=object), context=context
    )
