"""Reading text, JSON and JSON-lines files; each error names file, line and field."""

from __future__ import annotations

import difflib
import functools
import gzip
import io
import json
import re
import shlex
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError

from ragbench.errors import ConfigError, DataError, EmptyFileError, NotHereError
from ragbench.paths import shared_data

EXPORT = "export it as CSV: in a spreadsheet program File, Save as, CSV UTF-8"
MAX_UNPACKED = 2**30  # bytes of a compressed file
_LISTED = 8
_NO_TEXT = re.compile(r"\\u(?:d[89a-f][0-9a-f]{2}|0000)", re.IGNORECASE)
_LINE_END = re.compile(r"\r\n|\r|\n")
Record = TypeVar("Record")


def _not_blank(text: str) -> str:
    if not text.strip():
        raise PydanticCustomError("blank", "Input should be a text that is not empty")
    return text


Filled = Annotated[str, AfterValidator(_not_blank)]


class Row(BaseModel):
    """A record of a file; fields that a subclass does not name are its ``model_extra``."""

    model_config = ConfigDict(extra="allow", frozen=True)


def closest(folder: Path, name: str, count: int = 6) -> list[str]:
    """List the first ``count`` names in a folder, those most like ``name`` first, without hidden
    ones.
    """
    names = sorted(p.name for p in folder.iterdir() if not p.name.startswith("."))
    close = difflib.get_close_matches(name, names)
    return [*close, *(n for n in names if n not in close)][:count]


def check_limit(limit: int | None) -> None:
    """Raise ConfigError for a number of questions below 1."""
    if limit is not None and limit < 1:
        raise ConfigError(
            f"limit={limit!r}", "at least 1, or None for all", "leave it out to load every question"
        )


def read_text(path: str | Path) -> str:
    """Read a UTF-8 text file, plain or gzip."""
    path = Path(path).expanduser()
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        near = closest(path.parent, path.name) if path.parent.is_dir() else []
        listed = f"; the folder holds {', '.join(near)}" if near else ""
        raise DataError(
            f"there is no file {path}{listed}", "an existing file", "check the path"
        ) from None
    except IsADirectoryError:
        raise DataError(
            f"{path} is a folder", "a file", "name the file in it, or use load_documents(folder)"
        ) from None
    except OSError as error:
        raise DataError(
            f"{path} cannot be read: {error.strerror}", "a readable file", "check its rights"
        ) from None
    if raw[:2] == b"\x1f\x8b":
        packed = len(raw)
        try:
            raw = gzip.GzipFile(fileobj=io.BytesIO(raw)).read(MAX_UNPACKED + 1)
        except (OSError, EOFError, zlib.error) as error:
            do = "download or copy it again"
            raise DataError(f"{path} is a damaged gzip file: {error}", "a whole file", do) from None
        if len(raw) > MAX_UNPACKED:
            got = f"{path} ({packed:,} bytes) unpacks to more than {MAX_UNPACKED:,} bytes"
            raise DataError(got, "a smaller file", "unpack it first: gunzip")
    if raw[:4] in (b"PK\3\4", b"\xd0\xcf\x11\xe0"):
        raise DataError(
            f"{path} is a spreadsheet, or another office file or archive", "a text file", EXPORT
        )
    if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise DataError(f"{path} is in UTF-16", "UTF-8", f"convert it: {_iconv('UTF-16', path)}")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        got = f"{path}, line {line}: byte 0x{raw[error.start]:02x} is not UTF-8"
        raise DataError(
            got, "UTF-8 text", f"convert it, for instance: {_iconv('WINDOWS-1252', path)}"
        ) from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise DataError(
            f"{path}, line {line}: a NUL character",
            "text",
            "check that it is a text file, or remove it",
        )
    if not text.strip():
        raise EmptyFileError(
            f"{path} is empty", "at least one record", "check that it was written completely"
        )
    return text


def _iconv(encoding: str, path: Path) -> str:
    new = path.with_name(f"{path.stem}-utf8{path.suffix}")
    return f"iconv -f {encoding} -t UTF-8 {shlex.quote(str(path))} > {shlex.quote(str(new))}"


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(
            f"the key {next(name for name in names if names.count(name) > 1)!r} occurs twice"
        )
    return record


def _parsed(text: str, path: str | Path, line: int | None = None) -> Any:
    """Parse JSON, a file or a line of it; DataError with its place, also for a key that occurs
    twice in an object, and for an escape that stands for no character.
    """
    where = f"{path}, line {line}" if line else str(path)
    do = "mend that place"
    try:
        value = json.loads(text, object_pairs_hook=_object)
        if _NO_TEXT.search(text):  # half a surrogate pair, or NUL: it could not be written again
            again = json.dumps(value, ensure_ascii=False)
            if "\\u0000" in again or any("\ud800" <= character <= "\udfff" for character in again):
                raise ValueError(
                    "an escape that stands for no character (NUL, or half of a surrogate pair)"
                )
        return value
    except json.JSONDecodeError as error:
        where = f"{path}, line {line or error.lineno}, column {error.colno}"
        said = error.msg
        if line is None and error.pos >= len(text.rstrip()):
            said = f"the JSON ends in the middle ({error.msg})"
            do = "download or copy the file again"
        elif line is None:
            do = "mend that place; if each line is a record of its own, name the file .jsonl"
    except RecursionError:
        said = "nests too deeply"
        do = "check that this is the right file"
    except ValueError as error:
        said = str(error)
    expected = "one JSON object per line, each key once" if line else "valid JSON, each key once"
    raise DataError(f"{where}: {said}", expected, "mend that line" if line else do)


def read_json(path: str | Path) -> Any:
    """Read a JSON file; a syntax error names line and column."""
    return _parsed(read_text(path), path)


def read_list(path: str | Path) -> Iterator[tuple[str, Any]]:
    """Yield ("record 1", value) of a file that holds a JSON list;

    DataError for another file, or an empty list.
    """
    rows = read_json(path)
    if not isinstance(rows, list) or not rows:
        got = f"{path} holds a JSON {type(rows).__name__}"
        raise DataError(got, "a list of records", "check that this is the right file")
    yield from ((f"record {number}", row) for number, row in enumerate(rows, 1))


def read_jsonl(path: str | Path) -> Iterator[tuple[str, dict]]:
    """Yield ("line 3", record) of a JSON-lines file without its empty lines;

    DataError for a line that is no object.
    """
    for number, line in enumerate(_LINE_END.split(read_text(path)), 1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        row = _parsed(line, path, number)
        if not isinstance(row, dict):
            do = (
                "write one object per line; an array of objects is read by load_hotpotqa or "
                "json.load"
            )
            raise DataError(
                f"{where} is a JSON {type(row).__name__}", 'an object such as {"question": ...}', do
            )
        yield f"line {number}", row


def as_record(shape: type[Record], row: Any, where: str, *, add: str = "add it") -> Record:
    """Make a record of a JSON value; a DataError names the fields that do not fit, and what
    pydantic says of them.

    Parameters
    ----------
    shape : a dataclass or pydantic model.
    where : file and line or record number, for the message.
    add : what to do about a missing ``{field}``.
    """
    try:
        return _adapter(shape).validate_python(row)
    except ValidationError as error:
        faults = error.errors(include_url=False)[:100]
    got: dict[str, str] = {}
    for fault in faults:
        field = ".".join(map(str, fault["loc"])) or "the record"
        value = fault["input"]
        if fault["type"] == "missing" and isinstance(value, dict):
            got.setdefault(
                field, f"no field {field!r} (it has {', '.join(map(repr, value)) or 'none'})"
            )
        else:
            got.setdefault(
                field,
                f"{field!r} is {value!r:.60}" if str(value).strip() else f"{field!r} is empty",
            )
    listed = "; ".join([*got.values()][:_LISTED]) + "; and more" * (len(got) > _LISTED)
    said = (
        fault["msg"].replace("Field required", "every required field") for fault in faults[:_LISTED]
    )
    first = faults[0]
    do = "mend that record"
    if first["type"] == "missing" and isinstance(first["input"], dict):
        known = getattr(shape, "model_fields", None) or getattr(shape, "__dataclass_fields__", {})
        field = str(first["loc"][-1])
        close = difflib.get_close_matches(field, map(str, first["input"].keys() - known), 1)
        do = (f"rename {close[0]!r}, or {add}" if close else add).replace("{field}", field)
    raise DataError(f"{where}: {listed}", " or ".join(dict.fromkeys(said)), do)


@functools.cache
def _adapter(shape: Any) -> TypeAdapter:
    return TypeAdapter(shape)


def read_records(
    path: str | Path,
    shape: type[Any],
    make: Callable[[Any, str], Record] = lambda record, where: record,
    once: Callable[[Record], Sequence[str]] = lambda record: (),
) -> list[Record]:
    """Read a JSON-lines file:

    each line is `as_record` of a shape, and ``make`` of that; see `each_record`.
    """
    return each_record(
        path, read_jsonl(path), lambda row, where: make(as_record(shape, row, where), where), once
    )


def each_record(
    path: str | Path,
    rows: Iterable[tuple[str, Any]],
    make: Callable[[Any, str], Record],
    once: Callable[[Record], Sequence[str]] = lambda record: (),
) -> list[Record]:
    """Make a record of every row; the bad ones are reported together, and nothing is loaded by
    halves.

    Parameters
    ----------
    rows : (place, row).
    make : row and where -> record; DataError for a bad one.
    once : what may occur only once of a record, in words, such as "the id 'a'".
    """
    records = []
    errors = []
    first = {}
    total = 0
    for place, row in rows:
        total += 1
        where = f"{path}, {place}"
        try:
            record = make(row, where)
            for key in once(record):
                if first.setdefault(key, place) != place:
                    got = f"{where}: {key} was there before ({first[key]})"
                    raise DataError(got, "each one once", "rename or remove one of the two")
            records.append(record)
        except DataError as error:
            errors.append(error)
    raise_all(errors, path, total)
    return records


def place_id(where: str) -> str:
    """Name a record without an id by its place: "line-3"."""
    return where.rpartition(", ")[2].replace(" ", "-")


def raise_all(errors: list[DataError], path: str | Path, total: int, noun: str = "records") -> None:
    """Raise one error that lists bad records; nothing when there is none."""
    if not errors:
        return
    if len(errors) == 1:
        raise errors[0]
    listed = "\n    ".join(error.got for error in errors[:_LISTED])
    more = f"\n    and {len(errors) - _LISTED} more" if len(errors) > _LISTED else ""
    got = f"{path}: {len(errors)} of {total} {noun} are bad\n    {listed}{more}"
    raise DataError(got, errors[0].expected, errors[0].do)


def shared_file(path: str | Path | None, *parts: str, name: str, do: str) -> Path:
    """Return a given path, else that in ``RAGBENCH_DATA``, else raise NotHereError (``name``, and
    what to ``do``).
    """
    found = Path(path).expanduser() if path is not None else shared_data(*parts)
    if found is None:
        raise NotHereError(f"{name} is not on this machine", f"RAGBENCH_DATA/{'/'.join(parts)}", do)
    return found
