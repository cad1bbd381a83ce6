"""Reading text, JSON and JSON-lines files; each error names file, line and field."""

from __future__ import annotations

import difflib
import functools
import gzip
import hashlib
import io
import json
import re
import shlex
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Annotated, Any, AnyStr, TypeVar

from pydantic import BaseModel, ConfigDict, StringConstraints, TypeAdapter, ValidationError

from ragbench.errors import ConfigError, DataError, EmptyFileError, NotHereError, check_known
from ragbench.paths import shared_data

MAX_FIELD = 1_000_000  # characters; a longer line or field is a damaged file, not a document
MAX_LINE = 64 * 2**20  # characters or bytes of a line in a file that is read line by line, as it unpacks
MAX_UNPACKED = 2**30  # bytes of a compressed file that is read as a whole; one of a megabyte may unpack to a thousand
EXPORT = "export it as CSV: in a spreadsheet program File, Save as, CSV UTF-8"
SPREADSHEETS = (".xlsx", ".xls", ".ods")
SPLITS = ("dev", "test")  # of labelled rows: settings are chosen on the first, and measured on the second
Plain = Annotated[str, StringConstraints(max_length=MAX_FIELD)]
Filled = Annotated[str, StringConstraints(max_length=MAX_FIELD, pattern=r"\S")]  # not empty
Record = TypeVar("Record")
_LISTED = 8
_NO_TEXT = re.compile(r"\\u(?:d[89a-f][0-9a-f]{2}|0000)", re.IGNORECASE)


class Row(BaseModel):
    """What stands in a file; fields that a subclass does not name are its ``model_extra``."""

    model_config = ConfigDict(extra="allow", frozen=True)


def closest(folder: Path, name: str, count: int = 6) -> list[str]:
    """List the first ``count`` names in a folder, those most like ``name`` first, hidden ones left out."""
    names = sorted(p.name for p in folder.iterdir() if not p.name.startswith("."))
    close = difflib.get_close_matches(name, names)
    return [*close, *(n for n in names if n not in close)][:count]


def check_limit(limit: Any) -> None:
    """Raise ConfigError unless ``limit`` is None or a whole number of at least 1."""
    if limit is not None and (isinstance(limit, bool) or not hasattr(limit, "__index__") or limit < 1):
        raise ConfigError(f"limit={limit!r}", "at least 1, or None for all", "leave it out to load every question")


def read_text(path: str | Path) -> str:
    """Read a UTF-8 text file, plain or gzip; DataError for what is none."""
    path = Path(path).expanduser()
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        near = closest(path.parent, path.name) if path.parent.is_dir() else []
        there = f"; the folder holds {', '.join(near)}" if near else ""
        raise DataError(f"there is no file {path}{there}", "an existing file", "check the path") from None
    except IsADirectoryError:
        raise DataError(f"{path} is a folder", "a file", "name the file in it, or use load_documents(folder)") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}", "a readable file", "check its rights") from None
    if raw[:2] == b"\x1f\x8b":
        try:
            raw = b"".join(_unpacked(raw, path))
        except (OSError, EOFError, zlib.error) as error:
            got = f"{path} is a damaged gzip file: {error}"
            raise DataError(got, "a whole file", "download or copy it again") from None
    if raw[:4] in (b"PK\3\4", b"\xd0\xcf\x11\xe0"):
        raise DataError(f"{path} is a spreadsheet, or another office file or archive", "a text file", EXPORT)
    if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise DataError(f"{path} is in UTF-16", "UTF-8", f"convert it: {_iconv('UTF-16', path)}")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        got = f"{path}, line {line}: byte 0x{raw[error.start]:02x} is not UTF-8"
        raise DataError(got, "UTF-8 text", f"convert it, for instance: {_iconv('WINDOWS-1252', path)}") from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        got = f"{path}, line {line}: a NUL character"
        raise DataError(got, "text", "check that it is a text file, and remove the character")
    if not text.strip():
        do = "check that it was written or downloaded completely"
        raise EmptyFileError(f"{path} is empty", "at least one record", do)
    return text


def _iconv(encoding: str, path: Path) -> str:
    new = path.with_name(f"{path.stem}-utf8{path.suffix}")
    return f"iconv -f {encoding} -t UTF-8 {shlex.quote(str(path))} > {shlex.quote(str(new))}"


def _unpacked(raw: bytes, path: Path) -> Iterator[bytes]:
    size = 0
    with gzip.GzipFile(fileobj=io.BytesIO(raw)) as packed:
        while block := packed.read(2**20):
            size += len(block)
            if size > MAX_UNPACKED:
                got = f"{path} ({len(raw):,} bytes) unpacks to more than {MAX_UNPACKED:,} bytes"
                expected = "a compressed file of at most so many (ragbench.data.files.MAX_UNPACKED)"
                raise DataError(got, expected, "if it is what it should be, unpack it first: gunzip")
            yield block


def bounded_lines(stream: IO[AnyStr], name: str | Path) -> Iterator[AnyStr]:
    """Yield the lines of an open file; DataError for one of `MAX_LINE` before the whole of it is in memory."""
    number = 0
    while line := stream.readline(MAX_LINE):
        number += 1
        if len(line) == MAX_LINE:
            expected = "one record per line (at most ragbench.data.files.MAX_LINE)"
            got = f"{name}, line {number} has {MAX_LINE:,} characters or more"
            raise DataError(got, expected, "check that this is the right file")
        yield line


def _writable(value: Any, source: str, where: str) -> Any:
    """Return a JSON value whose texts can be written again; half a surrogate pair or NUL would fail later in a run."""
    if _NO_TEXT.search(source):
        again = json.dumps(value, ensure_ascii=False)
        if "\\u0000" in again or any("\ud800" <= character <= "\udfff" for character in again):
            got = f"{where}: an escape that stands for no character (NUL, or half of a surrogate pair)"
            raise DataError(got, "texts that can be written as UTF-8", "remove it, or write the character itself")
    return value


def read_json(path: str | Path) -> Any:
    """Read a JSON file; a syntax error names line and column."""
    text = read_text(path)
    try:
        return _writable(json.loads(text), text, str(path))
    except json.JSONDecodeError as error:
        if error.pos >= len(text.rstrip()):
            got = f"{path}, line {error.lineno}: the JSON ends in the middle ({error.msg})"
            raise DataError(got, "a complete JSON value", "download or copy the file again") from None
        do = "mend that place; if each line is a record of its own, it is JSON lines: use load_jsonl"
        raise DataError(f"{path}, line {error.lineno}, column {error.colno}: {error.msg}", "valid JSON", do) from None
    except RecursionError:
        raise DataError(f"{path} nests too deeply", "a list of records", "check that this is the right file") from None


def read_jsonl(path: str | Path) -> Iterator[tuple[str, dict]]:
    """Yield ("line 3", record) of a JSON-lines file without its empty lines; DataError for a line that is no object."""
    for number, line in enumerate(read_text(path).split("\n"), 1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        if len(line) > MAX_FIELD:
            expected = f"one record of at most {MAX_FIELD:,} characters per line"
            do = "split long documents, or check that line ends were not lost"
            raise DataError(f"{where} has {len(line):,} characters", expected, do)
        try:
            row = json.loads(line)
        except (json.JSONDecodeError, RecursionError) as error:
            place = f"column {error.colno}: {error.msg}" if isinstance(error, ValueError) else "nests too deeply"
            raise DataError(f"{where}, {place}", "one JSON object per line", "mend that line") from None
        if not isinstance(row, dict):
            expected = 'an object such as {"question": ..., "answer": ...}'
            do = "write one object per line; an array of objects is read by load_hotpotqa or json.load"
            raise DataError(f"{where} is a JSON {type(row).__name__}", expected, do)
        yield f"line {number}", _writable(row, line, where)


def as_record(shape: type[Record], row: Any, where: str, *, add: str = "add it") -> Record:
    """Make a record of a JSON value; DataError that names the fields, what is there, and what was expected.

    Parameters
    ----------
    shape : a dataclass or pydantic model, whose types say what may stand in each field.
    where : file and line or record number, for the message.
    add : what to do about a missing ``{field}``.
    """
    if not isinstance(row, dict):
        got = f"{where} is a JSON {type(row).__name__}"
        raise DataError(got, "an object", "check that this is the right file")
    try:
        return _adapter(shape).validate_python(row)
    except ValidationError as error:
        faults = error.errors(include_url=False)[:100]
    by_field: dict[str, list[DataError]] = {}
    for fault in faults:
        field, problem = _fault(fault, row, shape, add)
        by_field.setdefault(field, []).append(problem)
    # A list with a bad item may count as too short besides.
    inner = [name for name in by_field if not any(other.startswith((f"{name}.", f"{name}[")) for other in by_field)]
    got = "; ".join(by_field[name][0].got for name in inner[:_LISTED]) + "; and more" * (len(inner) > _LISTED)
    # Where a value may have one of several types, each of them has a fault of its own.
    first = by_field[inner[0]]
    raise DataError(f"{where}: {got}", " or ".join(dict.fromkeys(problem.expected for problem in first)), first[0].do)


@functools.cache
def _adapter(shape: Any) -> TypeAdapter:
    return TypeAdapter(shape)


_EXPECTED = {
    "string_type": "a text",
    "int_type": "a whole number",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
    "dataclass_type": "an object",
    "missing": "a longer list",
    "too_long": "a shorter list",
    "too_short": "a list of one or more",
}


def _fault(fault: Any, row: dict, shape: Any, add: str) -> tuple[str, DataError]:
    """Return the field of one of pydantic's faults, and what to tell of it."""
    kind, value, field, there = fault["type"], fault["input"], "", row
    *outer, last = fault["loc"]
    for part in outer if kind == "missing" else fault["loc"]:
        if isinstance(part, int):
            field += f"[{part}]"
            there = there[part] if isinstance(there, list) and part < len(there) else None
        elif isinstance(there, dict) and part in there:  # else it is pydantic's name for one of several types
            field += f".{part}" if field else part
            there = there[part]
    if kind == "missing" and isinstance(value, dict):
        lacking = f"{field}.{last}" if field else last
        got = f"no field {lacking!r} ({field or 'it'} has {', '.join(map(repr, value)) or 'none'})"
        known = getattr(shape, "model_fields", None) or getattr(shape, "__dataclass_fields__", {})
        close = difflib.get_close_matches(last, value.keys() - known, 1)
        do = f"rename {close[0]!r}, or {add}" if close else add
        return lacking, DataError(got, f"a value under {last!r}", do.replace("{field}", last))
    if kind == "string_too_long":
        do = "split the document, or check the file for lost separators"
        got, most = f"{field!r} has {len(value):,} characters", fault["ctx"]["max_length"]
        return field, DataError(got, f"at most {most:,}", do)
    if kind == "string_pattern_mismatch" and not value.strip():
        return field, DataError(f"{field!r} is empty", "a text", "fill it in, or remove the record")
    expected = _EXPECTED.get(kind, fault["msg"].replace("Input should be ", ""))
    expected = str(fault["ctx"]["error"]) if kind == "value_error" else expected
    return field, DataError(f"{field!r} is {value!r:.60}", expected, "mend that record")


def read_records(
    path: str | Path,
    shape: type[Any],
    make: Callable[[Any, str], Record] = lambda record, where: record,
    once: Callable[[Record], Sequence[str]] = lambda record: (),
) -> list[Record]:
    """Read a JSON-lines file: each line is `as_record` of a shape, and ``make`` of that; see `each_record`."""
    return each_record(path, read_jsonl(path), lambda row, where: make(as_record(shape, row, where), where), once)


def each_record(
    path: str | Path,
    rows: Iterable[tuple[str, Any]],
    make: Callable[[Any, str], Record],
    once: Callable[[Record], Sequence[str]] = lambda record: (),
) -> list[Record]:
    """Make a record of every row; the bad ones are reported together, and nothing is loaded by halves.

    Parameters
    ----------
    path : what is read, for the message.
    rows : (place in it, row).
    make : row and where -> record; DataError for a bad one.
    once : what may occur only once of a record, in words, such as "the id 'a'".
    """
    records, errors, first = [], [], {}
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


def split_records(
    path: str | Path,
    split: str | None,
    make: Callable[[dict, str], Any],
    keys: Callable[[Any], Sequence[str]],
    group: Callable[[Any], str],
    noun: str,
) -> tuple:
    """Make the records of a JSON-lines file whose rows have a ``split``, and keep those of one, or all.

    Parameters
    ----------
    make : row and where -> record, with an attribute split.
    keys : what may occur only once, in words, such as "id 'a'".
    group : what must not be in both splits, and ``noun``, what that is: a question, a document.
    """
    if split is not None:
        check_known("split", [split], SPLITS)
    split_of: dict[str, str] = {}

    def checked(row: dict, where: str) -> Any:
        record = make(row, where)
        if record.split not in SPLITS:
            raise DataError(f"{where}: split is {record.split!r}", "'dev' or 'test'", "write one of the two")
        if split_of.setdefault(group(record), record.split) != record.split:
            got = f"{where}: {noun} {group(record)!r} is in both splits"
            do = f"move them together, or tuning sees the test {noun}s"
            raise DataError(got, f"all rows about a {noun} in one split", do)
        return record

    records = each_record(path, read_jsonl(path), checked, keys)
    return tuple(record for record in records if split in (None, record.split))


def from_mirror(path: str | Path | None, *parts: str, got: str, do: str, expected: str = "") -> Path:
    """Return a given path, or that in ``RAGBENCH_DATA``; NotHereError (got, expected, do) when there is neither."""
    there = Path(path).expanduser() if path is not None else shared_data(*parts)
    if there is None:
        raise NotHereError(got, expected or f"RAGBENCH_DATA/{'/'.join(parts)}", do)
    return there


def sha256(path: str | Path) -> str:
    """Return the sha256 of a file, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
