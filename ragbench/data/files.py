"""Reading text, JSON and JSON-lines files; each error names file, line and field."""

from __future__ import annotations

import difflib
import functools
import gzip
import json
import operator
import re
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, TypeVar

import pandas as pd
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
)
from pydantic_core import PydanticCustomError

from ragbench.errors import DataError, EmptyFileError, NotHereError
from ragbench.paths import refuse_stream, shared_data
from ragbench.records import once

_LISTED = 8
_LINE_END = re.compile(r"\r\n|\r|\n")
Record = TypeVar("Record")


def is_missing(value: Any) -> bool:
    """Tell whether a cell is empty: None, NaN or pandas' NA."""
    if value is None or isinstance(value, str):  # most cells, and quickly
        return value is None
    return pd.api.types.is_scalar(value) and bool(pd.isna(value))


def _not_blank(text: str) -> str:
    if not text.strip():
        raise PydanticCustomError("blank", "Input should be a text that is not empty")
    return text


Filled = Annotated[str, AfterValidator(_not_blank)]


class FileRecord(BaseModel):
    """A record of a file; fields that a subclass does not name are its ``model_extra``."""

    model_config = ConfigDict(extra="allow", frozen=True)


def _of_words(text: Any, info: ValidationInfo) -> Any:
    """Warn of a true answer without a letter or digit, to which no answer has a word in common."""
    if isinstance(text, str) and not re.search(r"[^\W_]", text):
        warnings.warn(
            f"{info.context}: the true answer {text!r} holds no word; write it in words, or leave "
            "the row out",
            stacklevel=5,
        )
    return text


OfWords = AfterValidator(_of_words)


def read_text(path: str | Path) -> str:
    """Read a UTF-8 text file, plain or gzip.

    DataError for a file that is not there or not UTF-8; EmptyFileError for one without text.
    """
    path = Path(path).expanduser()
    raw = _unpacked(path)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        byte = raw[error.start]
        raise DataError(
            f"{path}, line {line}: byte 0x{byte:02x} is not UTF-8",
            "text in UTF-8",
            "in Excel: File, Save as, CSV UTF-8; in an editor: Save as, encoding UTF-8",
        ) from None
    if not text.strip("\0 \r\n\t"):
        raise EmptyFileError(
            f"{path} is empty", "at least one record", "check that it was written completely"
        )
    return text


def _unpacked(path: Path) -> bytes:
    """Return the bytes of a file, plain or gzip."""
    refuse_stream(path)
    try:
        raw = path.read_bytes()
        return gzip.decompress(raw) if raw.startswith(b"\x1f\x8b") else raw
    except FileNotFoundError:
        got = f"there is no file {path}"
        if path.parent.is_dir():
            names = [each.name for each in path.parent.iterdir() if each.name[0] != "."]
            close = difflib.get_close_matches(path.name, sorted(names), n=6, cutoff=0)
            got += f"; the folder holds {', '.join(close)}"
        raise DataError(got, "an existing file", "check the path") from None
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(
            f"{path} cannot be read: {error}",
            "a whole file (for a folder: load_documents)",
            "check it",
        ) from None


def _parsed(text: str, path: str | Path, line: int | None = None) -> Any:
    """Parse JSON, a file or a line of it; DataError with its place."""
    try:
        value = json.loads(text, object_pairs_hook=once)
        if "\\u" in text:  # half of a surrogate pair could not be written again
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except json.JSONDecodeError as error:
        got = f"{path}, line {line or error.lineno}, column {error.colno}: {error.msg}"
    except (RecursionError, ValueError) as error:
        got = f"{path}, line {line or 1}: {error}"
    expected = "one JSON object per line" if line else "valid JSON"
    raise DataError(
        got, expected, "correct that place; a file with one record a line is named .jsonl"
    )


def read_json(path: str | Path) -> Any:
    """Read a JSON file; a syntax error names line and column."""
    return _parsed(read_text(path), path)


def read_jsonl(path: str | Path) -> Iterator[tuple[str, dict]]:
    """Yield ("line 3", record) of a JSON-lines file without its empty lines; DataError for a line
    that is no object.
    """
    for number, line in enumerate(_LINE_END.split(read_text(path)), 1):
        if not line.strip():
            continue
        row = _parsed(line, path, number)
        if not isinstance(row, dict):
            raise DataError(
                f"{path}, line {number} is a JSON {type(row).__name__}",
                'an object such as {"question": ...}',
                "write one object per line, or name a list .json",
            )
        yield f"line {number}", row


def as_record(shape: type[Record], row: Any, where: str, add: str = "add it") -> Record:
    """Make a record of a JSON value; a DataError names the first field that does not fit, in
    pydantic's words.

    Parameters
    ----------
    shape : a dataclass or pydantic model.
    where : file and line or record number, for the message.
    add : what to do about a missing ``{field}``.
    """
    try:
        return _adapter(shape).validate_python(row, context=where)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
    field = ".".join(map(str, fault["loc"])) or "the record"
    value = fault["input"]
    expected = fault["msg"]
    if fault["type"] == "missing":
        name = field.rpartition(".")[2]
        raise DataError(
            f"{where}: no field {field!r} (it has {', '.join(map(repr, value))})",
            expected,
            add.replace("{field}", name),
        )
    shown = f"{value!r:.60}"
    if not str(value).strip():
        shown = "empty"
    raise DataError(f"{where}: {field!r} is {shown}", expected, "correct that record")


@functools.cache
def _adapter(shape: Any) -> TypeAdapter:
    return TypeAdapter(shape)


def each_record(
    path: str | Path,
    rows: Iterable[tuple[str, Any]],
    make: Callable[[Any, str], Record],
    once: Callable[[Record], Any] | None = operator.attrgetter("id"),
) -> list[Record]:
    """Make a record of every row; the bad ones are reported together, and nothing is loaded by
    halves.

    Parameters
    ----------
    rows : (place, row).
    make : row and where -> record; DataError, or what a row of another shape raises, such as
        KeyError, for a bad one.
    once : what may occur only once of a record, None in a record that has it not; None for nothing.
    """
    records = []
    places: dict[Any, str] = {}  # of each key
    errors = []
    for place, row in rows:
        where = f"{path}, {place}"
        try:
            record = make(row, where)
            if once:
                _check_first(once(record), where, place, places)
            records.append(record)
        except DataError as error:
            errors.append(error)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            got = f"{where} has another shape: {type(error).__name__} {error}"
            errors.append(DataError(got, "the published file", "download it again"))
    if errors:
        raise _together(errors, f"{path}: {len(errors)} of {len(errors) + len(records)} are bad")
    return records


def _check_first(key: Any, where: str, place: str, places: dict[Any, str]) -> None:
    first = places.setdefault(key, place)
    if key is not None and first != place:
        raise DataError(
            f"{where}: {key!r} was there before ({first})",
            "each one once",
            "rename or remove one of the two",
        )


def _together(errors: list[DataError], head: str) -> DataError:
    if len(errors) == 1:
        return errors[0]
    listed = errors[:_LISTED]
    lines = [head, *(error.got for error in listed)]
    more = len(errors) - _LISTED
    if more > 0:
        lines.append(f"and {more} more")
    expected = dict.fromkeys(error.expected for error in listed)
    steps = dict.fromkeys(error.do for error in listed)
    return DataError("\n    ".join(lines), "; ".join(expected), "; ".join(steps))


def shared_file(path: str | Path | None, *parts: str, name: str, do: str) -> Path:
    """Return a given path, else that in ``RAGBENCH_DATA``, else raise NotHereError (``name``, and
    what to ``do``).
    """
    file = Path(path).expanduser() if path is not None else shared_data(*parts)
    if file is None:
        raise NotHereError(f"{name} is not on this machine", f"RAGBENCH_DATA/{'/'.join(parts)}", do)
    return file


def find_file(folder: Path, *names: str) -> Path | None:
    """Return the file of one of these names, plain or gzip, in a folder or one of its folders; the
    nearest to the top, the first name first. Capitals do not count.

    A path that is a file already is returned as it is.
    """
    if folder.is_file():
        return folder
    for wanted in names:
        found = []
        for path in sorted(folder.rglob("*")):
            name = path.name.casefold().removesuffix(".gz")
            if name == wanted.casefold() and path.is_file():
                found.append(path)
        if found:
            return min(found, key=lambda path: len(path.parts))
    return None
