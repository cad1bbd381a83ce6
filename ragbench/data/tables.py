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
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from pydantic import BaseModel

from ragbench.data import files
from ragbench.data.files import EXPORT, check_unpacked, read_json, read_jsonl, read_text
from ragbench.data.ragchecker import RagResult, RagResults, from_ragchecker
from ragbench.errors import ConfigError, DataError, unknown

CSVS = (".csv", ".tsv")
_SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs"}
_MAX_CELLS = 20_000_000  # of a Parquet file: a run of equal cells takes no room in it
# An item of a list as Python or numpy writes it; numpy writes no commas.
_ITEM = (
    r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|None|nan"""
    r"|-?\d+(?:\.\d*)?(?:e[-+]?\d+)?(?=[\s,\]])"
)
_WRITTEN_LIST = re.compile(rf"\s*\[[\s,]*(?:(?:{_ITEM})[\s,]*)*\]\s*", re.DOTALL)


class Table(NamedTuple):
    """Rows, what the table and each row are called in messages, and whether lists are texts with ||
    between them.
    """

    name: str
    places: list[str]
    frame: pd.DataFrame
    csv: bool = False


def is_missing(value: Any) -> bool:
    """Tell whether a cell is empty: None, NaN or pandas' NA."""
    return value is None or (pd.api.types.is_scalar(value) and bool(pd.isna(value)))


def as_table(source: Any) -> Table:
    """Return the rows of a path, a frame, a list of dicts, a dict of lists, RAGChecker's JSON, or
    ``to_pandas()``.
    """
    if isinstance(source, str | Path):
        return _file(Path(source).expanduser())
    if isinstance(source, Mapping) and "results" in source:
        source = from_ragchecker(source)
    if isinstance(source, RagResults):
        source = source.results
    if hasattr(source, "to_pandas"):
        source = source.to_pandas()
    if isinstance(source, pd.DataFrame):
        places = [f"row {label!r}" for label in source.index]
        return Table("the table", places, source.reset_index(drop=True))
    if isinstance(source, Mapping):
        frame = _of_columns(source)
    else:
        one = _is_object(source) or not isinstance(source, Iterable)
        frame = pd.DataFrame([_as_dict(row) for row in ([source] if one else source)], dtype=object)
    return Table("the rows", [f"row {i}" for i in range(len(frame))], frame)


def _is_object(row: Any) -> bool:
    """Tell whether a row is an object with named fields, as ragas and DeepEval keep theirs."""
    return isinstance(row, BaseModel) or dataclasses.is_dataclass(row)


def _as_dict(row: Any) -> dict[str, Any]:
    """Return a row by name: of an object the fields that hold something."""
    if isinstance(row, RagResult):
        return _of_result(row)
    if isinstance(row, Mapping):
        return dict(row)
    if isinstance(row, type) or not _is_object(row):
        expected = "a data frame, a list of dicts or of objects with fields, or a path"
        got = f"a table as {type(row).__name__}"
        raise DataError(got, expected, "bring it into one of these forms")
    values = dict(row) if isinstance(row, BaseModel) else dataclasses.asdict(row)
    return {name: value for name, value in values.items() if value is not None}


def _of_result(result: RagResult) -> dict[str, Any]:
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


def _of_columns(columns: Mapping[str, Any]) -> pd.DataFrame:
    """Make a table of a list per column; of texts and numbers alone, one row."""
    sizes = {}
    for name, cells in columns.items():
        if hasattr(cells, "to_pandas"):
            got = f"a table as dict of {type(cells).__name__}"
            raise DataError(got, "one of the sets", f"pass it alone: data[{name!r}]")
        is_one = isinstance(cells, str | Mapping) or not isinstance(cells, Iterable)
        sizes[name] = None if is_one else len(list(cells))
    if set(sizes.values()) == {None}:
        return pd.DataFrame([columns], dtype=object)
    if len(set(sizes.values())) > 1:
        lengths = ["one cell" if size is None else f"{size} cells" for size in sizes.values()]
        got = ", ".join(f"{name!r}: {length}" for name, length in zip(sizes, lengths, strict=True))
        do = "write [row] for one answer, or as many cells in every column"
        raise DataError(f"columns of different lengths: {got}", "a list per column", do)
    return pd.DataFrame(
        {name: pd.Series(list(cells), dtype=object) for name, cells in columns.items()}
    )


def _file(path: Path) -> Table:
    ending = Path(path.name.removesuffix(".gz")).suffix.lower()
    if ending == ".parquet":
        frame = _read_parquet(path)
        return Table(str(path), [f"{path}, row {i}" for i in range(len(frame))], frame)
    if ending in _READERS:
        rows = list(_READERS[ending](path))
        frame = pd.DataFrame([row for _, row in rows], dtype=object)
        return Table(str(path), [f"{path}, {place}" for place, _ in rows], frame, ending in CSVS)
    if not path.exists():
        got = f"there is no file or folder {path.absolute()}"
        raise DataError(got, "an existing one", "check the path")
    error = unknown("kind of file", ending or path.name, [*_READERS, ".parquet"])
    raise ConfigError(error.got, error.expected, EXPORT)


def _read_json(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield ("[0]", record) of a JSON list, or of RAGChecker's results."""
    rows = read_json(path)
    if isinstance(rows, dict) and "results" in rows:
        rows = [_as_dict(result) for result in from_ragchecker(rows, str(path)).results]
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        expected = 'a list such as [{"question": ..., "answer": ...}], or RAGChecker\'s results'
        raise DataError(f"{path} holds no list of objects", expected, "write one object per answer")
    for place, row in enumerate(rows):
        yield f"[{place}]", row


def _read_csv(path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield ("line 3", record) of a CSV file with a header line; commas, semicolons or tabs are
    between the cells. Rows of empty cells, as spreadsheets leave them, are none.

    DataError for a row with too few or too many cells, and for a column that occurs twice.
    """
    csv.field_size_limit(2**31 - 1)  # the module's own is shorter than a document
    text = read_text(path).lstrip("\r\n")
    header = re.split(r"[\r\n]", text, maxsplit=1)[0]
    # Most columns win; a comma wins a tie.
    separator = max(_SEPARATORS, key=lambda s: len(next(csv.reader([header], delimiter=s))))
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True, delimiter=separator)
    columns = list(reader.fieldnames or ())
    _check_columns(path, columns)
    try:
        for row in reader:
            line = f"line {reader.line_num}"
            if None in row or None in row.values():
                got = f"{path}, {line}: the number of cells differs from the header"
                do = (
                    f"put cells that hold {_SEPARATORS[separator]} or line breaks in double "
                    'quotes, and write a quote as ""'
                )
                raise DataError(got, f"{len(columns)} cells, one per column", do)
            if any(row.values()):
                yield line, row
    except csv.Error as error:
        got = f"{path}, line {reader.line_num}: {error}"
        raise DataError(got, "CSV cells, quotes closed", "correct that line") from None


_READERS: dict[str, Callable[[Path], Iterable[tuple[str, dict[str, Any]]]]] = {
    ".csv": _read_csv,
    ".tsv": _read_csv,
    ".jsonl": read_jsonl,
    ".json": _read_json,
}


def _check_columns(name: str | Path, columns: Sequence[str]) -> None:
    for column in columns:
        if columns.count(column) > 1:
            got = f"{name} has two columns {column!r}"
            raise DataError(got, "each column once", "rename one, or drop it")


def _read_parquet(path: Path) -> pd.DataFrame:
    """Read a Parquet file, of which the number of cells is bounded first, then the bytes."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        do = 'pip install "ragbench-lab[parquet]"'
        raise ConfigError(f"{path} without pyarrow", "that package", do) from None
    try:
        with pq.ParquetFile(path) as file:
            cells = file.metadata.num_rows * max(file.metadata.num_columns, 1)
            if cells > _MAX_CELLS:
                got = f"{path} ({path.stat().st_size:,} bytes) unpacks to {cells:,} cells"
                raise DataError(got, f"at most {_MAX_CELLS:,} cells", "split it into several files")
            groups = [file.metadata.row_group(i) for i in range(file.num_row_groups)]
            longest = max((group.total_byte_size for group in groups), default=1)  # of any cell
            batches = []
            size = 0
            for batch in file.iter_batches(max(1, min(1024, files.MAX_UNPACKED // longest))):
                batches.append(batch)
                size += batch.nbytes
                check_unpacked(path, size)
            return pa.Table.from_batches(batches, file.schema_arrow).to_pandas()
    except (OSError, ValueError) as error:
        got = f"{path} cannot be read: {error}"
        raise DataError(got, "a Parquet file", "check that it was written completely") from None


def _plain_name(column: str) -> str:
    """Return a column's name without capitals, with "_" for spaces and hyphens: "Ground Truth" is
    "ground_truth".
    """
    return re.sub(r"[\s-]+", "_", column.strip()).casefold()


def in_our_names(
    table: Table, aliases: Mapping[str, Sequence[str]], columns: Mapping[str, str], option: str
) -> pd.DataFrame:
    """Return a table's frame with its columns in our names.

    Parameters
    ----------
    aliases : our name -> other tools' names. Capitals, blanks and hyphens do not count. Another
        name of an id is read where there is no column of our name.
    columns : our name -> the user's own, which goes before what is recognised. A column that has
        our name without being meant becomes ``given_NAME``.
    option : what the user's names are called in messages.

    DataError for two columns that mean the same, and for a name that is not there.
    """
    there = [str(column) for column in table.frame.columns]
    for ours, theirs in columns.items():
        if theirs not in there:
            got = f"{table.name}: {option} names the column {theirs!r} for {ours!r}"
            expected = f"one of {', '.join(there)}"
            raise DataError(
                got,
                expected,
                f"correct {option}={{{ours!r}: {theirs!r}}}: our name first, then yours",
            )
    plain = [_plain_name(column) for column in there]
    recognised = {ours: ours for ours in aliases}
    for ours, others in aliases.items():
        if not (ours.endswith("id") and ours in plain):
            recognised |= dict.fromkeys(others, ours)
    own = {theirs: ours for ours, theirs in columns.items()}
    names = []
    for column, name in zip(there, plain, strict=True):
        ours = own.get(column) or recognised.get(name, column)
        if ours in columns and column not in own:
            ours = f"given_{ours}"
        if ours in names:
            got = f"{table.name}: the columns {there[names.index(ours)]!r} and {column!r}"
            do = f"say which: {option}={{{ours!r}: {column!r}}}"
            raise DataError(f"{got} both mean {ours!r}", "one of them", do)
        names.append(ours)
    return table.frame.set_axis(names, axis=1)


def written_list(text: str, *, csv: bool) -> list[Any]:
    """Read a list that is written as text: by JSON, Python or numpy, or (in a CSV cell) texts with
    || between them. Another text is a list of one; ValueError for a list that cannot be read.
    """
    if not text.lstrip().startswith("["):
        return [part.strip() for part in text.split("||") if part.strip()] if csv else [text]
    with contextlib.suppress(json.JSONDecodeError, RecursionError):  # brackets by the thousand
        return json.loads(text)
    if not _WRITTEN_LIST.fullmatch(text):
        raise ValueError('a list of texts in quotes: ["first", "second"]')
    return [
        None if item == "nan" else ast.literal_eval(item)
        for item in re.findall(_ITEM, text, re.DOTALL)
    ]
