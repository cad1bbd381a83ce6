"""Rows from anywhere:

CSV, JSON lines, JSON and Parquet files, data frames, lists of dicts, objects of other tools.
"""

from __future__ import annotations

import ast
import contextlib
import csv
import dataclasses
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from pydantic import BaseModel

from ragbench.data.files import EXPORT, MAX_UNPACKED, read_json, read_jsonl, read_text
from ragbench.data.ragchecker import RagResult, RagResults, from_ragchecker
from ragbench.errors import ConfigError, DataError, unknown

CSV_ENDINGS = (".csv", ".tsv")
_ENDINGS = (*CSV_ENDINGS, ".jsonl", ".json", ".parquet")
_SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs"}
# An item of a list as Python or numpy writes it; numpy writes no commas.
_ITEM = re.compile(
    r"""\s*,?\s*(?:(?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")|(?P<number>-?\d[-+.\de]*)|None|nan)""",
    re.DOTALL,
)


class Table(NamedTuple):
    """Rows, what the table and each row are called in messages, and whether lists are texts with ||
    between them.
    """

    name: str
    places: list[str]
    frame: pd.DataFrame
    csv: bool = False


def plain_name(column: str) -> str:
    """Return a column's name without capitals, with "_" for spaces and hyphens:

    "Ground Truth" is "ground_truth".
    """
    return re.sub(r"[\s-]+", "_", column.strip()).casefold()


def read_csv(path: str | Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield ("line 3", record) of a CSV file with a header line; commas, semicolons or tabs are
    between the cells.

    A first line such as ``sep=;`` names the separator, as spreadsheets write it. DataError for a
    row with too few or too many cells, and for a column that occurs twice.
    """
    csv.field_size_limit(2**31 - 1)  # the module's own is shorter than a document
    text = read_text(path).lstrip("\r\n")
    header, *rest = re.split(r"\r\n|\r|\n", text, maxsplit=1)
    if named := re.fullmatch(r"sep=(.)", header.strip('"')):
        text = "".join(rest)
        header = re.split(r"[\r\n]", text, maxsplit=1)[0]
    # Most columns win; a comma wins a tie.
    separator = (
        named[1]
        if named
        else max(_SEPARATORS, key=lambda s: len(next(csv.reader([header], delimiter=s), [])))
    )
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True, delimiter=separator)
    try:
        columns = list(reader.fieldnames or ())
        if twice := [name for name in columns if columns.count(name) > 1]:
            raise DataError(
                f"{path} has two columns {twice[0]!r}", "each column once", "rename one, or drop it"
            )
        for row in reader:
            line = reader.line_num + bool(named)
            if None in row or None in row.values():
                between = _SEPARATORS.get(separator, repr(separator))
                raise DataError(
                    f"{path}, line {line}: the number of cells differs from the header",
                    f"{len(columns)} cells, one per column",
                    (
                        f"put cells that hold {between} or line breaks in double quotes, and write a "
                        'quote as ""'
                    ),
                )
            yield f"line {line}", row
    except csv.Error as error:
        line = reader.reader.line_num + bool(named)
        raise DataError(
            f"{path}, line {line}: {error}", "CSV cells, quotes closed", "mend that line"
        ) from None


def _read_parquet(path: Path) -> pd.DataFrame:
    """Read a Parquet file of at most `MAX_UNPACKED` bytes:

    a run of equal values takes room in memory alone.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise ConfigError(
            f"{path} without pyarrow", "that package", 'pip install "ragbench-lab[parquet]"'
        ) from None
    batches = []
    size = 0
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(1024):
                batches.append(batch)
                size += batch.nbytes
                if size > MAX_UNPACKED:
                    got = (
                        f"{path} ({path.stat().st_size:,} bytes) unpacks to more than "
                        f"{MAX_UNPACKED:,} bytes"
                    )
                    raise DataError(
                        got,
                        "a smaller table",
                        "split it, or pass the columns you need as a data frame",
                    )
            return pa.Table.from_batches(batches, file.schema_arrow).to_pandas()
    except FileNotFoundError:
        raise DataError(f"there is no file {path}", "an existing file", "check the path") from None
    except (OSError, ValueError) as error:
        got = f"{path} cannot be read: {error}"
        raise DataError(got, "a Parquet file", "check that it was written completely") from None


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
    if isinstance(source, Mapping):
        if source and all(hasattr(part, "to_pandas") for part in source.values()):
            names = ", ".join(map(repr, source))
            raise DataError(
                f"several sets: {names}", "one of them", "pass for instance data[split]"
            )
        source = _of_columns(source)
    if isinstance(source, pd.DataFrame):
        return Table(
            "the table", [f"row {label!r}" for label in source.index], source.reset_index(drop=True)
        )
    alone = _is_object(source) or not isinstance(source, Iterable)
    rows = [_fields(row) if _is_object(row) else row for row in ([source] if alone else source)]
    if strange := [row for row in rows if not isinstance(row, Mapping | RagResult)]:
        expected = "a data frame, a list of dicts or of objects with fields, or a path"
        do = "bring it into one of these forms"
        raise DataError(f"a table as {type(strange[0]).__name__}", expected, do)
    return Table("the rows", [f"row {i}" for i in range(len(rows))], _of_dicts(rows))


def _is_object(row: Any) -> bool:
    """Tell whether a row is an object with named fields, as ragas and DeepEval keep theirs."""
    if isinstance(row, RagResult | type):
        return False
    return dataclasses.is_dataclass(row) or isinstance(row, BaseModel)


def _fields(row: Any) -> dict[str, Any]:
    """Return an object's fields that hold something, by name."""
    if isinstance(row, BaseModel):
        values = dict(row)
    else:
        values = {field.name: getattr(row, field.name) for field in dataclasses.fields(row)}
    return {name: value for name, value in values.items() if value is not None}


def _of_columns(columns: Mapping[str, Any]) -> pd.DataFrame:
    """Make a table of a list per column; of texts and numbers alone, one row."""
    sizes = {}
    for name, cells in columns.items():
        is_one = isinstance(cells, str | Mapping) or not isinstance(cells, Iterable)
        sizes[name] = None if is_one else len(list(cells))
    if set(sizes.values()) == {None}:
        return _of_dicts([columns])
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
    if ending == ".json":
        rows: Any = read_json(path)
        if isinstance(rows, dict) and "results" in rows:
            rows = from_ragchecker(rows, str(path)).results
        if not isinstance(rows, list | tuple) or not all(
            isinstance(row, Mapping | RagResult) for row in rows
        ):
            raise DataError(
                f"{path} holds no list of objects",
                (
                    'a list such as [{"question": ..., "answer": ...}], or RAGChecker\'s {"results": '
                    "[...]}"
                ),
                "write one object per answer",
            )
        return Table(str(path), [f"{path}, [{i}]" for i in range(len(rows))], _of_dicts(rows))
    if ending in (".xlsx", ".xls", ".ods"):
        raise ConfigError(
            f"unknown kind of file {ending!r}: {path.name}", ", ".join(_ENDINGS), EXPORT
        )
    if ending not in _ENDINGS and not path.exists():
        raise DataError(f"there is no file or folder {path}", "an existing one", "check the path")
    if ending not in _ENDINGS:
        raise unknown("kind of file", ending or path.name, _ENDINGS)
    is_csv = ending in CSV_ENDINGS
    numbered = list(read_csv(path) if is_csv else read_jsonl(path))
    frame = _of_dicts([row for _, row in numbered])
    return Table(str(path), [f"{path}, {place}" for place, _ in numbered], frame, is_csv)


def _of_dicts(rows: Sequence[Mapping[str, Any] | RagResult]) -> pd.DataFrame:
    dicts = []
    for row in rows:
        if isinstance(row, RagResult):
            labels = {} if row.missing() else {"claim_labels": row}
            about = {"question_id": row.id, "question": row.question, "answer": row.response}
            row = (
                about
                | {"reference": row.reference, "chunks": [chunk.text for chunk in row.chunks]}
                | labels
            )
        dicts.append(row)
    names = dict.fromkeys(str(name) for row in dicts for name in row)
    # Built by column: pandas would spread equally long lists over columns of their own.
    return pd.DataFrame(
        {name: pd.Series([row.get(name) for row in dicts], dtype=object) for name in names}
    )


def written_list(text: str, *, csv: bool, numbers: bool = False) -> list[Any]:
    """Read a list that is written as text: by JSON, Python or numpy, or (in a CSV cell) texts with
    || between them.

    Another text is a list of one. ``numbers``: whether Python's way may hold numbers, which come
    back as texts.
    """
    if not text.lstrip().startswith("["):
        return [part.strip() for part in text.split("||") if part.strip()] if csv else [text]
    with contextlib.suppress(json.JSONDecodeError, RecursionError):  # brackets by the thousand
        return json.loads(text)
    items = []
    at = text.index("[") + 1
    stop = len(text.rstrip()) - 1
    while item := _ITEM.match(text, at, stop):
        if item["number"] and not numbers:
            break
        items.append(ast.literal_eval(item["text"]) if item["text"] else item["number"])
        at = item.end()
    if text[stop:].strip() != "]" or text[at:stop].strip():
        raise ValueError('a list of texts in quotes: ["first", "second"]')
    return items
