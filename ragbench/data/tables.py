"""Rows from anywhere, by one reader: CSV, JSON lines, JSON and Parquet files, data frames, lists of
dicts, objects of other tools; and whose columns mean ours.
"""

from __future__ import annotations

import ast
import contextlib
import csv
import dataclasses
import io
import json
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from pydantic import BaseModel

from ragbench.data import files
from ragbench.data.files import (
    Record,
    check_unpacked,
    each_record,
    read_json,
    read_jsonl,
    read_text,
)
from ragbench.data.ragchecker import RagResult, RagResults, read_ragchecker
from ragbench.errors import ConfigError, DataError, unknown

_CSVS = (".csv", ".tsv")
MAX_CELLS = 20_000_000  # of a Parquet file: a run of equal cells takes no room in it
# An item of a list as Python or numpy writes it; numpy writes no commas.
_ITEM = (
    r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|None|nan"""
    r"|-?\d+(?:\.\d*)?(?:e[-+]?\d+)?(?=[\s,\]])"
)
_WRITTEN_LIST = re.compile(rf"\s*\[[\s,]*(?:(?:{_ITEM})[\s,]*)*\]\s*", re.DOTALL)


class Table(NamedTuple):
    """Rows, and what the table and each row are called in messages.

    In a CSV every cell is a text, and lists are texts with || between them.
    """

    name: str
    places: list[str]
    frame: pd.DataFrame
    is_csv: bool = False

    @classmethod
    def of(cls, source: Any, name: str = "the table") -> Table:
        """Return the rows of a path, a frame, a list of dicts or of objects with fields, or of
        RAGChecker's JSON, or of what has ``to_pandas()``; ``name`` is what messages call them.
        """
        if isinstance(source, str | Path):
            return _read_file(Path(source).expanduser())
        rows = source
        if isinstance(rows, Mapping) and "results" in rows:
            rows = read_ragchecker(rows, name)
        if isinstance(rows, RagResults):
            rows = rows.results
        if hasattr(rows, "to_pandas"):
            rows = rows.to_pandas()
        if _has_fields(rows):
            rows = [rows]
        if isinstance(rows, Mapping):
            rows = _frame_of_columns(rows, name)
        if not isinstance(rows, Iterable):
            raise _no_table(rows, name)
        if not isinstance(rows, pd.DataFrame):
            rows = pd.DataFrame([_as_dict(row, name) for row in rows], dtype=object)
        frame = rows.reset_index(drop=True)
        return cls(name, [f"row {number}" for number in frame.index], frame)

    def records(
        self,
        make: type[Record] | Callable[[dict, str], Record],
        once: Callable[[Record], Any] | None = operator.attrgetter("id"),
    ) -> list[Record]:
        """Make a record of each row without its empty cells, see `each_record`."""
        rows = zip(self.places, self._filled_rows(), strict=True)
        return each_record(self.name, rows, make, once)

    def _filled_rows(self) -> Iterator[dict]:
        for cells in self.frame.to_dict("records"):
            values = {name: _plain(cell) for name, cell in cells.items()}
            yield {name: value for name, value in values.items() if value is not None}

    def in_our_names(
        self,
        aliases: Mapping[str, Sequence[str]],
        columns: Mapping[str, str],
        option: str,
        lists: Sequence[str],
        kept_empty: Sequence[str],
    ) -> Table:
        """Return the table with its columns in our names.

        Parameters
        ----------
        aliases : our name -> other tools' names. Capitals, blanks and hyphens do not count.
        columns : our name -> the user's own, which goes before what is recognised. A column that
            has our name without being meant becomes ``given_NAME``.
        option : what the user's names are called in messages.
        lists : our names of the columns in which a cell of a CSV may hold several texts.
        kept_empty : those in which an empty cell of a CSV is an empty text; elsewhere it is None.

        DataError for a table without a row, for two columns that mean the same, and for a name that
        is not there.
        """
        if self.frame.empty:
            raise DataError(
                f"{self.name} holds no record",
                "at least one",
                "check that it was written completely",
            )
        heads = list(self.frame.columns.map(str))
        for ours, theirs in columns.items():
            if theirs not in heads:
                raise DataError(
                    f"{self.name}: {option} names the column {theirs!r} for {ours!r}",
                    f"one of {', '.join(heads)}",
                    f"correct {option}={{{ours!r}: {theirs!r}}}: our name first, then yours",
                )
        names = _our_names(heads, aliases, columns)
        _check_once(self.name, heads, names, option)
        frame = self.frame.set_axis(names, axis=1)
        if self.is_csv:
            for name in frame.columns.drop(list(kept_empty), errors="ignore"):
                cells = [_csv_cell(cell, name in lists) for cell in frame[name]]
                frame[name] = pd.Series(cells, dtype=object)
        return self._replace(frame=frame)


def _our_names(
    heads: Iterable[str], aliases: Mapping[str, Sequence[str]], columns: Mapping[str, str]
) -> list[str]:
    """Return our name of each column, else its own."""
    own = {theirs: ours for ours, theirs in columns.items()}
    recognised = {ours: ours for ours in aliases}
    for ours, others in aliases.items():
        recognised |= dict.fromkeys(others, ours)
    names = []
    for head in heads:
        ours = own.get(head) or recognised.get(_simple_name(head), head)
        if ours in columns and head not in own:
            ours = f"given_{ours}"
        names.append(ours)
    return names


def _check_once(table: str, heads: Sequence[str], names: Sequence[str], option: str) -> None:
    """Refuse two columns that have one name of ours."""
    for place, ours in enumerate(names):
        first = names.index(ours)
        if first < place:
            second = heads[place]
            raise DataError(
                f"{table}: the columns {heads[first]!r} and {second!r} both mean {ours!r}",
                "one of them",
                f"say which: {option}={{{ours!r}: {second!r}}}",
            )


def _simple_name(column: str) -> str:
    """Return a column's name without capitals, with "_" for spaces and hyphens: "Ground Truth" is
    "ground_truth".
    """
    return re.sub(r"[\s-]+", "_", column.strip()).casefold()


def _csv_cell(text: str, is_list: bool) -> Any:
    if is_list and text.lstrip().startswith("["):
        return read_list(text)
    if is_list and "||" in text:
        return [part.strip() for part in text.split("||") if part.strip()]
    return text or None


def is_missing(value: Any) -> bool:
    """Tell whether a cell is empty: None, NaN or pandas' NA."""
    return value is None or (pd.api.types.is_scalar(value) and bool(pd.isna(value)))


def _plain(value: Any) -> Any:
    """Return a cell as a value of Python: lists for arrays, tuples and sets; None where it is
    empty.
    """
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, tuple | set | frozenset):
        return list(value)
    if is_missing(value):
        return None
    return value


def _frame_of_columns(columns: Mapping[str, Any], name: str) -> pd.DataFrame:
    """Return columns of one length as a frame; a single row is no table."""
    if any(isinstance(cells, str | bytes) for cells in columns.values()):
        raise _no_table(columns, name)
    try:
        return pd.DataFrame(dict(columns), dtype=object)
    except ValueError:  # of unequal lengths, or of single cells
        raise _no_table(columns, name) from None


def _has_fields(row: Any) -> bool:
    is_object = isinstance(row, BaseModel | RagResult) or dataclasses.is_dataclass(row)
    return is_object and not isinstance(row, type)


def _as_dict(row: Any, name: str) -> dict:
    """Return a row by name: of an object, as ragas and DeepEval keep theirs, the fields that hold
    something.
    """
    if isinstance(row, Mapping):
        return dict(row)
    if isinstance(row, RagResult):
        return _result_row(row)
    if not _has_fields(row):
        raise _no_table(row, name)
    values = dict(row) if isinstance(row, BaseModel) else dataclasses.asdict(row)
    return {name: value for name, value in values.items() if value is not None}


def _no_table(source: Any, name: str) -> DataError:
    return DataError(
        f"{name}: a table as {type(source).__name__}",
        "a data frame, a list of dicts or of objects with fields, columns of one length, or a path",
        "bring it into one of these forms; of several sets pass one",
    )


def _result_row(result: RagResult) -> dict:
    row = {
        "question_id": result.id,
        "question": result.question,
        "answer": result.response,
        "reference": result.reference,
        "chunks": [chunk.text for chunk in result.chunks],
    }
    if not result.missing():
        row["claim_labels"] = result
    return row


def _read_file(path: Path) -> Table:
    unpacked = Path(path.name.removesuffix(".gz"))
    ending = unpacked.suffix.lower()
    if ending == ".json":
        return Table.of(read_json(path), str(path))
    if ending == ".parquet":
        return Table.of(_read_parquet(path), str(path))
    if ending in _READERS:
        rows = dict(_READERS[ending](path))  # by place
        frame = pd.DataFrame(list(rows.values()), dtype=object)
        return Table(str(path), list(rows), frame, ending in _CSVS)
    if not path.exists():
        raise DataError(
            f"there is no file or folder {path.absolute()}", "an existing one", "check the path"
        )
    endings = [*_READERS, ".parquet", ".json"]
    error = unknown("kind of file", ending or path.name, endings)
    raise ConfigError(
        error.got,
        error.expected,
        "save it as CSV: in Excel or LibreOffice File, Save as, CSV UTF-8",
    )


def _read_csv(path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield ("line 3", record) of a CSV file with a header line; commas, semicolons or tabs are
    between the cells. Rows of empty cells, as spreadsheets leave them, are none.

    DataError for a row with too few or too many cells, and for a column that occurs twice.
    """
    csv.field_size_limit(2**31 - 1)  # the module's own is shorter than a document
    text = read_text(path).lstrip("\r\n")
    header = re.split(r"[\r\n]", text, maxsplit=1)[0]
    separator = max(",;\t", key=header.count)
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True, delimiter=separator)
    heads = enumerate(reader.fieldnames or (), 1)
    # a spreadsheet may leave columns without a head
    columns = [head or f"column {number}" for number, head in heads]
    reader.fieldnames = columns
    try:
        if len(set(columns)) < len(columns):
            raise csv.Error(f"a column occurs twice: {', '.join(columns)}")
        for row in reader:
            if None in row or None in row.values():
                raise csv.Error(f"the number of cells differs from the header's {len(columns)}")
            if any(row.values()):
                yield f"line {reader.line_num}", row
    except csv.Error as error:
        raise DataError(
            f"{path}, line {reader.line_num}: {error}",
            "one cell for each column, quotes closed",
            f'put cells that hold {separator!r} or line breaks in double quotes, a quote as ""',
        ) from None


_READERS = {".csv": _read_csv, ".tsv": _read_csv, ".jsonl": read_jsonl, ".jl": read_jsonl}


def _read_parquet(path: Path) -> pd.DataFrame:
    """Read a Parquet file, of which the number of cells is bounded first, then the bytes."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ConfigError(
            f"{path} without pyarrow", "that package", 'pip install "ragbench-lab[parquet]"'
        ) from None
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            rows = _batch_rows(path, file.metadata)
            batches = []
            size = 0
            for batch in file.iter_batches(rows):
                size += batch.nbytes
                check_unpacked(path, size)
                batches.append(batch)
            return pyarrow.Table.from_batches(batches, file.schema_arrow).to_pandas()
    except (OSError, ValueError) as error:
        raise DataError(
            f"{path} cannot be read: {error}",
            "a Parquet file",
            "check that it was written completely",
        ) from None


def _batch_rows(path: Path, head: Any) -> int:
    """Check the number of a Parquet file's cells; return how many rows may be read at a time."""
    cells = head.num_rows * max(head.num_columns, 1)
    if cells > MAX_CELLS:
        raise DataError(
            f"{path} ({path.stat().st_size:,} bytes) unpacks to {cells:,} cells",
            f"at most {MAX_CELLS:,} cells",
            "split it into several files",
        )
    largest = 1  # bytes of a group of rows: no cell is longer than the group that holds it
    for number in range(head.num_row_groups):
        largest = max(largest, head.row_group(number).total_byte_size)
    rows = files.MAX_UNPACKED // largest
    return min(max(rows, 1), 1024)


def read_list(value: Any) -> Any:
    """Read a list that is written as text, by JSON, Python or numpy; another text is a list of one.

    What cannot be read, and what is no text, is returned as it is.
    """
    if not isinstance(value, str):
        return value
    if not value.lstrip().startswith("["):
        return [value]
    with contextlib.suppress(json.JSONDecodeError, RecursionError):  # brackets by the thousand
        return json.loads(value)
    if not _WRITTEN_LIST.fullmatch(value):
        return value
    items = re.findall(_ITEM, value, re.DOTALL)
    return [None if item == "nan" else ast.literal_eval(item) for item in items]


def read_mapping(value: Any) -> Any:
    """Read a mapping, which may be written as text by Python, without its empty places: Parquet has
    one for every key of every row.

    What cannot be read, and what is no mapping, is returned as it is.
    """
    if isinstance(value, str) and value.lstrip().startswith("{"):
        with contextlib.suppress(ValueError, SyntaxError, MemoryError, RecursionError):
            value = ast.literal_eval(value.strip())
    if not isinstance(value, Mapping):
        return value
    return {key: cell for key, cell in value.items() if not is_missing(cell)}
