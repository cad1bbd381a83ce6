"""Rows from anywhere: CSV, JSON lines, JSON and Parquet files, data frames, lists of dicts, objects of other tools."""

from __future__ import annotations

import ast
import csv
import io
import json
import re
import tokenize
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from ragbench.data.files import EXPORT, MAX_FIELD, SPREADSHEETS, read_json, read_jsonl, read_text
from ragbench.data.parquet import read_parquet
from ragbench.data.ragchecker import RagResult, RagResults, from_ragchecker
from ragbench.errors import ConfigError, DataError, unknown

CSV_ENDINGS = (".csv", ".tsv")
ENDINGS = (*CSV_ENDINGS, ".jsonl", ".json", ".parquet")
_BETWEEN = {",": "commas", ";": "semicolons", "\t": "tabs"}  # the cells of a CSV file, as spreadsheets write it
_SEPARATOR = "||"


def plain_name(column: str) -> str:
    """Return a column's name without capitals, with "_" for spaces and hyphens: "Ground Truth" is "ground_truth"."""
    return re.sub(r"[\s-]+", "_", column.strip()).casefold()


def is_csv(path: str | Path) -> bool:
    """Tell by the ending whether a file is read by `read_csv`."""
    return str(path).lower().removesuffix(".gz").endswith(CSV_ENDINGS)


def read_csv(path: str | Path) -> Iterator[tuple[str, dict]]:
    """Yield ("line 3", record without its empty cells) of a CSV file with a header line.

    Commas, semicolons or tabs are between the cells. DataError for a row with too few or too many of them.
    """
    csv.field_size_limit(MAX_FIELD)
    text = read_text(path)
    header = text.lstrip("\r\n").partition("\n")[0]
    # Most columns win; a comma wins a tie.
    between = max(_BETWEEN, key=lambda separator: len(next(csv.reader([header], delimiter=separator))))
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True, delimiter=between)
    try:
        for row in reader:
            if None in row or None in row.values():
                raise DataError(
                    f"{path}, line {reader.line_num}: the number of cells differs from the header",
                    f"{len(reader.fieldnames or ())} cells, one per column",
                    f'put cells that hold {_BETWEEN[between]} or line breaks in double quotes, and write a quote as ""',
                )
            yield f"line {reader.line_num}", {name: cell for name, cell in row.items() if cell != ""}
    except csv.Error as error:
        got = f"{path}, line {reader.reader.line_num}: {error}"
        expected = f"CSV cells of at most {MAX_FIELD:,} characters, quotes closed"
        raise DataError(got, expected, "mend that line") from None


def as_frame(source: Any) -> tuple[str, list[str], pd.DataFrame]:
    """Return what the source is called in messages, what each row is called, and the rows.

    Parameters
    ----------
    source : a path with one of `ENDINGS`; a data frame; a list of dicts or a dict of lists; RAGChecker's JSON, parsed
        or read; anything with ``to_pandas()``.
    """
    if isinstance(source, str | Path):
        path = Path(source).expanduser()
        if path.suffix.lower() == ".parquet":
            frame = read_parquet(path)
            return str(path), [f"{path}, row {i}" for i in range(len(frame))], frame
        places, rows = _file(path)
        return str(path), [f"{path}, {place}" for place in places], _of_dicts(rows)
    if isinstance(source, Mapping) and "results" in source:
        source = from_ragchecker(source)
    if isinstance(source, RagResults):
        source = source.results
    if hasattr(source, "to_pandas"):
        source = source.to_pandas()
    if isinstance(source, Mapping):
        if all(hasattr(part, "to_pandas") for part in source.values()):
            names = ", ".join(map(repr, source))
            raise DataError(f"several sets: {names}", "one of them", "pass for instance data[split]")
        source = pd.DataFrame({name: pd.Series(list(cells), dtype=object) for name, cells in source.items()})
    if isinstance(source, pd.DataFrame):
        return "the table", [f"row {label!r}" for label in source.index], source.reset_index(drop=True)
    rows = list(source) if isinstance(source, Iterable) else [source]
    if strange := [row for row in rows if not isinstance(row, Mapping | RagResult)]:
        expected, do = "a data frame, a list of dicts, or a path", "bring it into one of these forms"
        raise DataError(f"a table as {type(strange[0]).__name__}", expected, do)
    return "the rows", [f"row {i}" for i in range(len(rows))], _of_dicts(rows)


def _file(path: Path) -> tuple[list[str], Sequence[Any]]:
    """Return what each row is called, and the rows."""
    ending = Path(path.name.removesuffix(".gz")).suffix.lower()
    if ending == ".json":
        rows: Any = read_json(path)
        if isinstance(rows, dict) and "results" in rows:
            rows = from_ragchecker(rows, str(path)).results
        if not isinstance(rows, list | tuple) or not all(isinstance(row, Mapping | RagResult) for row in rows):
            raise DataError(
                f"{path} holds no list of objects",
                'a list such as [{"question": ..., "answer": ...}], or RAGChecker\'s {"results": [...]}',
                "write one object per answer",
            )
        return [f"[{i}]" for i in range(len(rows))], rows
    if ending in SPREADSHEETS:
        raise ConfigError(f"unknown kind of file {ending!r}: {path.name}", ", ".join(ENDINGS), EXPORT)
    if ending not in ENDINGS:
        raise unknown("kind of file", ending or path.name, ENDINGS)
    numbered = list(read_csv(path) if is_csv(path) else read_jsonl(path))
    return [place for place, _ in numbered], [row for _, row in numbered]


def _of_dicts(rows: Sequence[Mapping[str, Any] | RagResult]) -> pd.DataFrame:
    dicts = [_of_result(row) if isinstance(row, RagResult) else row for row in rows]
    names = dict.fromkeys(str(name) for row in dicts for name in row)
    # Built by column: pandas would spread equally long lists over columns of their own.
    return pd.DataFrame({name: pd.Series([row.get(name) for row in dicts], dtype=object) for name in names})


def _of_result(result: RagResult) -> dict[str, Any]:
    row = {
        "question_id": result.id,
        "question": result.question,
        "answer": result.response,
        "reference": result.reference,
        "chunks": [chunk.text for chunk in result.chunks],
    }
    return row if result.missing() else row | {"claim_labels": result}


def written_list(text: str, *, numbers: bool = False) -> list[Any]:
    """Read a list that a cell holds as text: JSON's, Python's or numpy's way of writing it, or texts with || between.

    Parameters
    ----------
    numbers : whether Python's way may hold numbers, which come back as texts.
    """
    if not text.lstrip().startswith("["):
        return [part.strip() for part in text.split(_SEPARATOR) if part.strip()]
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError):  # brackets by the thousand
        pass
    try:
        return _literals(text, numbers)
    except (ValueError, SyntaxError, tokenize.TokenError):
        raise ValueError('a list of texts in quotes: ["first", "second"]') from None


def _literals(text: str, numbers: bool) -> list[str | None]:
    """Read Python's or numpy's way of writing a list."""
    *tokens, last = [
        token
        for token in tokenize.generate_tokens(io.StringIO(text.strip()).readline)
        if token.type not in (tokenize.NL, tokenize.NEWLINE, tokenize.ENDMARKER)
    ]
    items: list[str | None] = []
    for token in tokens[1:]:
        # numpy writes no commas: each literal is an item of its own, though Python would join them.
        if token.type == tokenize.STRING:
            items.append(ast.literal_eval(token.string))
        elif token.type == tokenize.NUMBER and numbers:
            items.append(token.string)
        elif token.string in ("None", "nan"):
            items.append(None)
        elif token.string != ",":
            raise ValueError
    if last.string != "]" or not all(isinstance(item, str | None) for item in items):
        raise ValueError
    return items
