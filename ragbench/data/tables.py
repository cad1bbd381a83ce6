"""Rows from anywhere, by one reader: CSV, JSON lines, JSON and Parquet files, data frames, lists of
dicts, objects of other tools; and whose columns mean ours.
"""

from __future__ import annotations

import ast
import contextlib
import csv
import dataclasses
import datetime
import io
import json
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from pydantic import BaseModel

from ragbench.data.files import Record, each_record, is_missing, read_json, read_jsonl, read_text
from ragbench.data.ragchecker import RagResult, RagResults, read_ragchecker
from ragbench.errors import ConfigError, DataError
from ragbench.records import once
from ragbench.text.escape import from_csv

_CSVS = (".csv", ".tsv")
_SEPARATOR = re.compile(r'"?sep=(.)"?(?:\r\n|\r|\n)', re.IGNORECASE)  # as Excel writes it
_QUOTED = re.compile(r'"(?:[^"]|"")*"')
_LINE_END = re.compile(r"[\r\n]")
# An item of a list as Python or numpy writes it; numpy writes no commas. A list may be a set, or a
# tuple, which has a comma.
_ITEM = (
    r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|None|nan"""
    r"|-?\d+(?:\.\d*)?(?:e[-+]?\d+)?(?=[\s,\])}])"
)
_ITEMS = rf"[\s,]*(?:(?:{_ITEM})[\s,]*)*"
_IN_BRACKETS = rf"(?:\[{_ITEMS}\]|\{{{_ITEMS}\}}|\((?:\s*(?:{_ITEM})\s*,{_ITEMS}|\s*)\))"
_WRITTEN_LIST = re.compile(
    rf"\s*(?:{_IN_BRACKETS}|set\(\)|(?:frozenset|array)\({_IN_BRACKETS}?(?:,\s*dtype=\w+)?\))\s*",
    re.DOTALL,
)
# What divides the ids of a cell: the first of these that is in it.
_BETWEEN_IDS = ("||", "|", "\n", "\t", ";", "；", ",", "，", "、")


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
        DataError where there is none.
        """
        if isinstance(source, str | Path):
            table = _read_file(Path(source).expanduser())
        else:
            frame = _frame_of(source, name).reset_index(drop=True)
            table = cls(name, [f"row {number}" for number in frame.index], frame)
        if table.frame.empty:
            raise DataError(
                f"{table.name} holds no record",
                "at least one",
                "check that it was written completely",
            )
        return table

    def records(
        self,
        make: Callable[[dict, str], Record],
        once: Callable[[Record], Any] | None = operator.attrgetter("id"),
    ) -> list[Record]:
        """Make a record of each row without its empty cells, see `each_record`."""
        rows = zip(self.places, self._filled_rows(), strict=True)
        return each_record(self.name, rows, make, once)

    def _filled_rows(self) -> Iterator[dict]:
        for cells in self.frame.to_dict("records"):
            values = {name: _plain(cell) for name, cell in cells.items()}
            yield {name: value for name, value in values.items() if value is not None}

    def with_squad_answers(self) -> Table:
        """Return SQuAD's rows with their true answers as ``reference``, a list; other rows as they
        are.

        SQuAD keeps them as ``answers``: {"text": [...], "answer_start": [...]}.
        """
        frame = self.frame
        if "reference" in frame or "answers" not in frame:
            return self
        answers = frame["answers"].to_list()
        if not all(isinstance(cell, Mapping) and "text" in cell for cell in answers):
            return self
        texts = [list(dict.fromkeys(cell["text"])) for cell in answers]
        references = pd.Series(texts, frame.index, dtype=object)
        return self._replace(frame=frame.assign(reference=references))

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

        DataError for two columns that mean the same, and for a name that is not there.
        """
        heads = list(map(str, self.frame.columns))
        names = _our_names(heads, aliases, columns)
        self._check_names(heads, names, columns, option)
        frame = self.frame.set_axis(names, axis=1)
        if self.is_csv:
            for name in frame.columns.drop(list(kept_empty), errors="ignore"):
                cells = [_csv_cell(cell, name in lists) for cell in frame[name]]
                frame[name] = pd.Series(cells, dtype=object)
        return self._replace(frame=frame)

    def _check_names(
        self, heads: list[str], names: list[str], columns: Mapping[str, str], option: str
    ) -> None:
        """Refuse two columns that mean the same, and a column that is not there."""
        for ours, theirs in columns.items():
            if theirs not in heads:
                raise DataError(
                    f"{self.name}: {option} names the column {theirs!r} for {ours!r}",
                    f"one of {', '.join(heads)}",
                    f"correct {option}={{{ours!r}: {theirs!r}}}: our name first, then yours",
                )
        for head, ours in zip(heads, names, strict=True):
            first = heads[names.index(ours)]
            if first != head:
                raise DataError(
                    f"{self.name}: the columns {first!r} and {head!r} both mean {ours!r}",
                    "one of them",
                    f"say which: {option}={{{ours!r}: {head!r}}}",
                )


def _our_names(
    heads: Iterable[str], aliases: Mapping[str, Sequence[str]], columns: Mapping[str, str]
) -> list[str]:
    """Return our name of each column, else its own."""
    recognised = {ours: ours for ours in aliases}
    for ours, others in aliases.items():
        recognised |= dict.fromkeys(others, ours)
    own = {theirs: ours for ours, theirs in columns.items()}
    names = []
    for head in heads:
        ours = own.get(head) or recognised.get(_simple_name(head), head)
        if ours in columns and head not in own:
            ours = f"given_{ours}"
        names.append(ours)
    return names


def _simple_name(column: str) -> str:
    """Return a column's name without capitals, with "_" for spaces and hyphens: "Ground Truth" is
    "ground_truth".
    """
    return re.sub(r"[\s-]+", "_", column.strip()).casefold()


def _csv_cell(text: str, is_list: bool) -> Any:
    if is_list and (text.lstrip().startswith("[") or _WRITTEN_LIST.fullmatch(text)):
        return read_list(text)
    if is_list and "||" in text:
        return [part.strip() for part in text.split("||") if part.strip()]
    return text or None


def _plain(value: Any) -> Any:
    """Return a cell as a value of Python: lists for arrays, tuples and sets, dates as text; None
    where it is empty.
    """
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, tuple | set | frozenset):
        value = list(value)
    if is_missing(value):
        return None
    if isinstance(value, list) and not are_texts(value):
        return [_date_text(item) for item in value]
    return _date_text(value)


def are_texts(values: Sequence[Any]) -> bool:
    """Tell, quickly, whether all values are bare texts, which need no reading."""
    return set(map(type, values)) == {str}


def _date_text(value: Any) -> Any:
    """Return a date as text, 1841-05-03, with its time if it has one; other values as they are."""
    if not isinstance(value, datetime.date) or is_missing(value):
        return value
    text = str(value)
    return text.removesuffix(" 00:00:00")


def _frame_of(source: Any, name: str) -> pd.DataFrame:
    """Return rows as a frame: columns by name, dicts or objects with fields."""
    rows = _unwrapped(source, name)
    if isinstance(rows, pd.DataFrame):
        return rows
    if isinstance(rows, Mapping):
        is_one_row = any(isinstance(cells, str | bytes) for cells in rows.values())
        with contextlib.suppress(ValueError):  # of unequal lengths, or of single cells
            if not is_one_row:
                return pd.DataFrame(dict(rows), dtype=object)
        raise _no_table(rows, name)
    if _has_fields(rows):
        rows = [rows]
    if not isinstance(rows, Iterable):
        raise _no_table(rows, name)
    return pd.DataFrame([_as_dict(row, name) for row in rows], dtype=object)


def _unwrapped(source: Any, name: str) -> Any:
    """Return the rows that RAGChecker's results, a test run of DeepEval or something with
    ``to_pandas()`` hold; else what is given.
    """
    if hasattr(source, "to_pandas"):
        return source.to_pandas()
    if isinstance(source, Mapping):
        run = source.get("testRunData", source)
        if isinstance(run, Mapping) and isinstance(run.get("testCases"), list):
            return list(map(_test_case, run["testCases"]))
        if "results" in source:
            source = read_ragchecker(source, name)
    if isinstance(source, RagResults):
        return source.results
    return source


def _test_case(case: Mapping[str, Any]) -> dict[str, Any]:
    """Return a case of DeepEval, whose JSON has retrievalContext for retrieval_context."""
    return {re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower(): case[name] for name in case}


def _has_fields(row: Any) -> bool:
    is_object = isinstance(row, BaseModel) or dataclasses.is_dataclass(row)
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
    ending = Path(path.name.removesuffix(".gz")).suffix.lower()
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
    raise ConfigError(
        f"unknown kind of file {ending or path.name!r}",
        f"one of {', '.join([*_READERS, '.parquet', '.json'])}",
        "save it as CSV: in Excel or LibreOffice File, Save as, CSV UTF-8",
    )


def _read_csv(path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield ("line 3", record) of a CSV file with a header line; commas, semicolons or tabs are
    between the cells, or what a first line "sep=;" names. Rows of empty cells, as spreadsheets
    leave them, are none. A TSV has tabs and no quoting, unless its writer quoted (`_has_quoting`).

    DataError for a row with too few or too many cells, and for a column that occurs twice.
    """
    csv.field_size_limit(2**31 - 1)  # the module's own is shorter than a document
    text = read_text(path).lstrip("\r\n")
    named = _SEPARATOR.match(text)
    header, *_ = _LINE_END.split(text, maxsplit=1)
    separator = named[1] if named else max(",;\t", key=header.count)
    quoting = csv.QUOTE_MINIMAL
    if ".tsv" in path.suffixes:
        separator = "\t"
        if not _has_quoting(text):
            quoting = csv.QUOTE_NONE
    lines = io.StringIO(text, newline="")
    reader = csv.reader(lines, strict=True, delimiter=separator, quoting=quoting)
    try:
        if named:
            next(reader)
        yield from _csv_rows(reader, from_csv if quoting == csv.QUOTE_MINIMAL else _unquoted)
    except csv.Error as error:
        raise DataError(
            f"{path}, line {reader.line_num}: {error}",
            "one cell for each column, quotes closed",
            f'put cells that hold {separator!r} or line breaks in double quotes, a quote as ""',
        ) from None


def _csv_rows(reader: Any, unquoted: Callable[[str], str]) -> Iterator[tuple[str, dict[str, str]]]:
    heads = enumerate(next(reader, []), 1)
    # a spreadsheet may leave columns without a head
    columns = [unquoted(head) or f"column {number}" for number, head in heads]
    if len(set(columns)) < len(columns):
        raise csv.Error(f"a column occurs twice: {', '.join(columns)}")
    for cells in reader:
        if len(cells) not in (0, len(columns)):
            raise csv.Error(f"the number of cells differs from the header's {len(columns)}")
        if any(cells):
            yield f"line {reader.line_num}", dict(zip(columns, map(unquoted, cells), strict=True))


def _has_quoting(text: str) -> bool:
    """Tell whether cells of a TSV are quoted as in a CSV: all heads are, or tabs or line breaks
    stand in a cell, so that lines differ in their number of cells.
    """
    lines = [line for line in _LINE_END.split(text) if line]
    heads = lines[0].split("\t")
    return all(map(_QUOTED.fullmatch, heads)) or len({line.count("\t") for line in lines}) > 1


def _unquoted(cell: str) -> str:
    """Return a cell whose quotation marks pandas or a spreadsheet doubled as it was."""
    if _QUOTED.fullmatch(cell) and '"' in cell[1:-1]:
        cell = cell[1:-1].replace('""', '"')
    return from_csv(cell)


_READERS = {".csv": _read_csv, ".tsv": _read_csv, ".jsonl": read_jsonl, ".jl": read_jsonl}


def _read_parquet(path: Path) -> pd.DataFrame:
    """Read a Parquet file."""
    try:
        return pd.read_parquet(path)
    except ImportError:
        raise ConfigError(
            f"{path} without pyarrow", "that package", 'pip install "ragbench-lab[parquet]"'
        ) from None
    except (OSError, ValueError) as error:
        raise DataError(
            f"{path} cannot be read: {error}",
            "a Parquet file",
            "check that it was written completely",
        ) from None


def read_list(value: Any) -> Any:
    """Read a list, tuple or set that is written as text, by JSON, Python or numpy; another text is
    a list of one.

    What cannot be read, and what is no text, is returned as it is.
    """
    if not isinstance(value, str):
        return value
    is_list = value.lstrip().startswith("[")
    if is_list:
        with contextlib.suppress(ValueError, RecursionError):  # brackets by the thousand
            return json.loads(value)
    if not _WRITTEN_LIST.fullmatch(value):
        return value if is_list else [value]
    value = re.sub(r",\s*dtype=\w+\)\s*\Z", "", value)
    items = re.findall(_ITEM, value, re.DOTALL)
    return [None if item == "nan" else ast.literal_eval(item) for item in items]


def read_ids(value: Any) -> Any:
    """Read the ids of a cell: a list, also as text; a number, which is one; else a text with
    ``||``, ``|``, a line break, a tab, a semicolon or a comma between the ids, the first of these
    that is in it; else with blanks between them, where each id has a digit.

    >>> read_ids("d1, d2"), read_ids("d1 d2"), read_ids("Ada Ruck")
    (['d1', 'd2'], ['d1', 'd2'], ['Ada Ruck'])
    """
    if isinstance(value, int | float):
        return [value]
    listed = read_list(value)
    if not isinstance(value, str) or listed != [value]:
        return listed
    mark = next((mark for mark in _BETWEEN_IDS if mark in value.strip()), None)
    parts = value.split(mark)
    if mark is None and not all(re.search(r"\d", part) for part in parts):
        return listed
    return [part.strip() for part in parts if part.strip()]


def read_mapping(value: Any) -> Any:
    """Read a mapping, which may be written as text by JSON or Python, without its empty places:
    Parquet has one for every key of every row.

    What cannot be read, and what is no mapping, is returned as it is.
    """
    if isinstance(value, str) and value.lstrip().startswith("{"):
        value = _written_mapping(value.strip())
    if not isinstance(value, Mapping):
        return value
    return {key: cell for key, cell in value.items() if not is_missing(cell)}


def _written_mapping(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=once)
    except json.JSONDecodeError:
        with contextlib.suppress(ValueError, SyntaxError, MemoryError, RecursionError):
            return ast.literal_eval(text)
    except (ValueError, RecursionError):  # a key twice; brackets by the thousand
        pass
    return text
