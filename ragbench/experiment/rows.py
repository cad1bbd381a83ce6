"""The journal: one JSON line per question and cell, written as it comes, read again whatever happened."""

from __future__ import annotations

import contextlib
import difflib
import gc
import hashlib
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pandas as pd
from pydantic_core import from_json

from ragbench.errors import DataError, check_known
from ragbench.paths import results_dir, written_whole

ROWS, MANIFEST = "rows.jsonl", "manifest.json"
BY_COLUMNS = "rows.columns.jsonl"  # the beginning of a large file of rows, made from it
_LARGE = 50_000  # rows, from which reading them by columns saves more time than it costs to write them
NOT_TOLD = "not told"  # digest of a model whose server says nothing of its weights: another one would not be noticed
_EMPTY_SHARE = 0.1  # of the questions without any context, above which a run warns

AXIS_COLUMNS = ("data", "question_id", "chunker", "retriever", "k", "N", "generator", "judge")
# Clocks and where a reply came from differ from run to run; everything else is the same for the same experiment.
TIMING = ("seconds", "judge_seconds", "cached")
_ERRORS = ("error_step", "error_kind", "error")
_TOKENS = ("prompt_tokens", "prompt_estimate", "output_tokens")
_MODEL = ("model", "digest", "temperature", "seed", "num_ctx", "prompt_sha256")
REPLY_COLUMNS = ("finish", *_TOKENS, "tagged", "cached")
ANSWER_COLUMNS = ("answer", "abstained", "seconds", *_MODEL, *REPLY_COLUMNS)  # what a row says of its answer
_JUDGED = ("judge_shown", "judge_position", "judge_answer_cut", "judge_form", "judge_repairs", "judge_grades_got")
_JUDGED += ("judge_prompt_tokens", "judge_prompt_estimate", "judge_raw")
COLUMNS = (*AXIS_COLUMNS, "status", "kind", "level", "ir_score", "context_tokens", "hits", "zero_hits", "answer")
COLUMNS += ("abstained", "seconds", "grade", "judge_seconds", *_ERRORS, *_MODEL, *REPLY_COLUMNS)
COLUMNS += (*(f"judge_{name}" for name in _MODEL), *_JUDGED, "answer_key", "key")
_FRACTIONS = ("ir_score", "seconds", "judge_seconds", "temperature", "judge_temperature")
_WHOLE = ("k", "N", "context_tokens", "zero_hits", "grade", "seed", "num_ctx", "judge_seed", "judge_num_ctx", *_TOKENS)
_WHOLE += tuple(name for name in _JUDGED if name not in ("judge_answer_cut", "judge_form", "judge_raw"))


@contextlib.contextmanager
def without_gc() -> Iterator[None]:
    """Make many objects that all stay without looking for circles among them again and again: a third of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def newly_used(row: Mapping[str, Any], counted: dict[Any, tuple]) -> tuple[int, int, float]:
    """Return prompt tokens, output tokens and seconds that a row adds to those ``counted`` (answer key -> its last).

    The rows of one answer (several judges) are taken once, an answer that was made again is taken again, and a reply
    from a cassette adds nothing.
    """
    used = (row.get("prompt_tokens") or 0, row.get("output_tokens") or 0, row.get("seconds") or 0.0)
    key = row.get("answer_key")
    if row.get("cached") or not any(used[:2]) or counted.get(key) == used:
        return (0, 0, 0.0)
    counted[key] = used
    return used


def without_text(rows: pd.DataFrame) -> list[str]:
    """Say which retrievers leave more than a tenth of the questions without any text: no hit, or only blank ones."""
    warnings = []
    with_documents = (rows["N"] > 0) & rows["context_tokens"].notna()
    searched = rows.loc[with_documents, ["data", "chunker", "retriever", "k", "question_id", "context_tokens"]]
    for (data, chunker, retriever, k), part in searched.groupby(["data", "chunker", "retriever", "k"], sort=False):
        questions = part["question_id"].nunique()
        empty = questions - part.loc[part["context_tokens"] > 0, "question_id"].nunique()
        if empty > _EMPTY_SHARE * questions:
            warnings.append(
                f"{retriever} (k={k}, {chunker}) on {data} finds no text for {empty} of {questions} questions: "
                "check that questions and documents share words; for BM25 see its tokenizer"
            )
    return warnings


def run_folder(run: str | os.PathLike[str]) -> Path:
    """Return the folder of a run, given its name, its folder or its file of rows; DataError names those there are."""
    path = Path(run).expanduser()
    homes = (Path("results"), results_dir())  # the first: in a folder of `ragbench init`
    with contextlib.suppress(OSError, ValueError):  # a name too long for a file, or with NUL, is no run
        if path.is_file():
            return path.parent
        for folder in (path, *(home / path for home in homes)):
            if (folder / ROWS).is_file():
                return folder
    known = sorted({rows.parent.name for home in homes for rows in home.glob(f"*/{ROWS}")})
    guess = "".join(f"did you mean {name!r}? " for name in difflib.get_close_matches(str(run), known, n=1))
    do = f"{guess}known runs: {', '.join(known)}" if known else "make one first: ragbench run experiment.yaml"
    raise DataError(f"no run {str(run)[:80]!r}", f"a folder with {ROWS}, or the name of a run", do)


class Journal:
    """The file of rows, open for appending. One line is one write, so no reader and no kill sees two halves mixed.

    A file that is not there is made. A last line that a kill left half-written is cut off first.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        _repair(path)
        self._file = os.open(path, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o644)

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)

    def write(self, row: Mapping[str, Any]) -> None:
        """Append one row; it is with the operating system when this returns."""
        line = (json.dumps(_finite(row), ensure_ascii=True, allow_nan=False) + "\n").encode()
        try:
            written = os.write(self._file, line)
        except OSError as error:
            raise no_room(self.path, error.strerror or type(error).__name__) from None
        if written != len(line):
            os.ftruncate(self._file, os.fstat(self._file).st_size - written)  # or the next line would be glued on
            raise no_room(self.path, "only a part of the line could be written")


def no_room(file: object, reason: str | None) -> DataError:
    """Build the error that ends a run when a file cannot be written."""
    do = "make room, then run again: the rows that are there are not made again"
    return DataError(f"{file} cannot be written: {reason}", "room on the disk", do)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _repair(path: Path) -> None:
    """Cut off what follows the last line end."""
    if not path.exists():
        return
    with open(path, "r+b") as file:
        size = end = file.seek(0, os.SEEK_END)
        while end > 0:
            start = max(0, end - 65536)
            file.seek(start)
            found = file.read(end - start).rfind(b"\n")
            if found >= 0:
                end = start + found + 1
                break
            end = start
        if end < size:
            file.truncate(end)


def read_rows(path: Path, after: tuple[int, int] = (0, 0)) -> Iterator[dict[str, Any]]:
    """Yield the whole rows of a file, ``after`` so many lines and bytes of it; DataError for a line that is no row.

    A last line without its end (a run under way, or killed) is passed over.
    """
    if not path.exists():
        return
    with open(path, "rb") as file:
        file.seek(after[1])
        for number, line in enumerate(file, after[0] + 1):
            if not line.endswith(b"\n"):
                return
            try:
                row = _parsed(line)
                row["key"], row["status"]
            except (ValueError, KeyError, TypeError):
                raise DataError(
                    f"{path}, line {number} is no row: {line[:60].decode('utf-8', 'replace')!r}",
                    "one JSON object with key and status per line",
                    "delete that line; the next run makes the row again",
                ) from None
            yield row


def _parsed(line: bytes) -> Any:
    try:
        return from_json(line)  # equal short strings are one object: half of the memory
    except ValueError:
        return json.loads(line)  # with half of a surrogate pair, which the other one refuses


def _sha256(file: BinaryIO, size: int) -> str:
    """Return the sha256 of the first bytes of a file."""
    total = hashlib.sha256()
    while size > 0 and (part := file.read(min(size, 1 << 20))):
        total.update(part)
        size -= len(part)
    return total.hexdigest()


class Rows:
    """The last row of every key, by column: of half a million rows, dicts would take three times the memory.

    Of a row that was tried again the last try counts, but never a failure over a success; it keeps its first place.
    ``columns`` are those that are kept.
    """

    def __init__(self, rows: Iterable[Mapping[str, Any]] = (), columns: Sequence[str] = COLUMNS) -> None:
        self.place: dict[str, int] = {}
        self.status: list[str] = []
        self.columns: dict[str, list[Any] | bytes] = {name: [] for name in columns}
        for row in rows:
            self.add(row)

    @classmethod
    def read(cls, path: Path, columns: Sequence[str] = COLUMNS, *, remember: bool = False) -> Rows:
        """Read a file of rows; ``remember``: write many lines by columns beside it, for the next time to be short."""
        rows = cls(columns=columns)
        known = lines, _ = rows._take_columns(path)
        if known[1] and path.stat().st_size > known[1]:
            for name in columns:
                rows.values(name)
        for row in read_rows(path, known):
            rows.add(row)
            lines += 1
        if remember and lines - known[0] >= _LARGE:
            rows._write_columns(path, lines)
            rows._take_columns(path)
        return rows

    def _take_columns(self, path: Path) -> tuple[int, int]:
        """Take in the rows that stand by columns beside the file; return how many lines and bytes of it they are."""
        try:
            with open(path.with_name(BY_COLUMNS), "rb") as file, open(path, "rb") as journal:
                head = json.loads(file.readline())
                if head["columns"] != list(COLUMNS) or _sha256(journal, head["bytes"]) != head["sha256"]:
                    return 0, 0  # of another version, or of rows that were changed since
                wanted = {*self.columns, "key", "status"}
                lines = {name: line for name, line in zip(COLUMNS, file, strict=True) if name in wanted}
            self.place = {key: place for place, key in enumerate(_parsed(lines["key"]))}
            status = _parsed(lines["status"])
            self.status = status * len(self.place) if len(status) == 1 else status
        except (OSError, ValueError, KeyError, TypeError):
            return 0, 0
        self.columns = {name: lines[name] for name in self.columns}
        return head["lines"], head["bytes"]

    def _brief(self, name: str) -> list[Any]:
        """Return one column, or a single value that all its rows have."""
        values = self.columns[name]
        if isinstance(values, bytes):  # as it was read: of a large run, all columns as lists take twice the memory
            values = self.columns[name] = _parsed(values)
        return values

    def values(self, name: str) -> list[Any]:
        """Return one column."""
        values = self._brief(name)
        if len(values) == 1 < len(self.status):
            values = self.columns[name] = [math.nan if values[0] != values[0] else values[0]] * len(self.status)
        return values

    def _write_columns(self, path: Path, lines: int) -> None:
        with open(path, "rb") as journal:
            size = os.fstat(journal.fileno()).st_size
            head = {"lines": lines, "bytes": size, "sha256": _sha256(journal, size), "columns": list(COLUMNS)}
        # Without room on the disk the lines are read again.
        with contextlib.suppress(OSError), written_whole(path.with_name(BY_COLUMNS)) as part, open(part, "w") as file:
            file.write(json.dumps(head))
            file.write("\n")
            for name in COLUMNS:
                values = self.values(name)
                if len(set(map(type, values))) == 1 and values.count(values[0]) == len(values):
                    values = values[:1]  # half of the columns of most runs
                file.write("[")
                for start in range(0, len(values), 10_000):
                    file.write((", " if start else "") + json.dumps(values[start : start + 10_000])[1:-1])
                file.write("]\n")

    def __contains__(self, key: str) -> bool:
        return key in self.place

    def add(self, row: Mapping[str, Any]) -> None:
        """Take in one row; what it does not have is NaN."""
        key, status = row["key"], row["status"]
        place = self.place.setdefault(key, len(self.status))
        if place == len(self.status):
            self.status.append(status)
            for name, values in self.columns.items():
                values.append(row.get(name, math.nan))
        elif status == "ok" or self.status[place] != "ok":
            self.status[place] = status
            for name, values in self.columns.items():
                values[place] = row.get(name, math.nan)

    def failed(self, key: str) -> bool:
        """Whether the row of this key failed."""
        return self.status[self.place[key]] == "failed"

    def row(self, key: str) -> dict[str, Any]:
        """Return one row as it was taken in."""
        place = self.place[key]
        every = ((name, self.values(name)[place]) for name in self.columns)
        return {name: value for name, value in every if value == value}

    @without_gc()
    def frame(self, keys: Iterable[str] | None = None) -> pd.DataFrame:
        """Turn rows into a data frame, those of the ``keys`` that are there in this order; None: all.

        They are used up: two copies of a large run do not fit.
        """
        wanted = list(self.place if keys is None else dict.fromkeys(keys))
        ordered = wanted == list(self.place)
        places = np.array([self.place[key] for key in wanted if key in self.place], int)
        columns = {}
        for name in list(self.columns):
            values = self._brief(name)
            del self.columns[name]
            if name in _WHOLE:
                columns[name] = _whole_numbers(values)
            elif name in _FRACTIONS:
                columns[name] = pd.Series(values, dtype=object).astype(float)
            elif name in _ERRORS:
                columns[name] = pd.Series(["" if v is None or v != v else v for v in values], dtype=object)
            else:
                try:
                    columns[name] = pd.Series(values, dtype=None if values else object)
                except UnicodeEncodeError:  # half of a surrogate pair: strings of pyarrow, where installed, hold none
                    columns[name] = pd.Series(values, dtype=object)
            if len(values) < len(self.status) or not ordered:  # one value for all, or rows in another order
                # Not repeat(), which makes strings of objects.
                at = np.zeros_like(places) if len(values) == 1 else places
                columns[name] = pd.Series(columns[name]).take(at).reset_index(drop=True)
        self.place, self.status = {}, []
        return pd.DataFrame(columns, copy=False)


def _whole_numbers(values: Sequence[Any]) -> Any:
    """Return whole numbers, some of them missing, as an array; where all are or none is, without looking at each."""
    kinds = set(map(type, values))
    if kinds == {int}:
        return pd.array(np.array(values), dtype="Int64")
    if kinds == {float} and np.isnan(values).all():
        return pd.array(np.full(len(values), math.nan), dtype="Int64")
    return pd.array([None if value != value else value for value in values], dtype="Int64")


def load_rows(run: str | os.PathLike[str], columns: Sequence[str] = COLUMNS) -> pd.DataFrame:
    """Load the rows of a run (its name, folder or file of rows), whole or under way.

    Parameters
    ----------
    columns : those to load; of a large run a few take a part of the memory.

    Returns
    -------
    DataFrame, one row per question and cell in the order of the file; of a row that was tried again, the last try.
    ``status`` is "ok" or "failed" (then ``error_step``, ``error_kind``, ``error`` say why); ``grade`` is missing where
    there is none; ``ir_score`` is NaN without documents or references.
    """
    check_known("column", columns, COLUMNS)
    return Rows.read(run_folder(run) / ROWS, columns).frame()


def system_names(rows: pd.DataFrame) -> list[str]:
    """Name the system of each row: its retriever, and the other axes that take several values ("BM25, k=5")."""
    with_documents = [a for a in ("chunker", "k") if rows.loc[rows["N"] > 0, a].nunique() > 1]
    always = [a for a in ("generator", "judge") if rows[a].nunique() > 1]
    names = []
    for row in rows[["retriever", "N", *with_documents, *always]].to_dict("records"):
        axes = [*(with_documents if row["N"] else ()), *always]  # without documents there is no chunker and no k
        parts = [f"k={row[a]}" if a == "k" else str(row[a]) for a in axes]
        names.append(", ".join([str(row["retriever"]), *parts]))
    return names
