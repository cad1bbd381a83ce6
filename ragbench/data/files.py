"""Reading text, JSON and JSON-lines files so that every fault names its file and line."""

from __future__ import annotations

import difflib
import gzip
import hashlib
import io
import json
import re
import shlex
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, AnyStr, TypeVar

from ragbench.errors import ConfigError, DataError, EmptyFileError, NotHereError, unknown
from ragbench.paths import mirror

MAX_FIELD = 1_000_000  # characters; a longer line or field is a damaged file, not a document
MAX_LINE = 64 * 2**20  # characters or bytes of a line in a file that is read line by line, as it unpacks
MAX_UNPACKED = 2**30  # bytes of a compressed file that is read as a whole; one of a megabyte may unpack to a thousand
EXPORT = "export it as CSV: in a spreadsheet program File, Save as, CSV UTF-8"
SPREADSHEETS = (".xlsx", ".xls", ".ods")
SPLITS = ("dev", "test")  # of labelled rows: settings are chosen on the first, and measured on the second
Record = TypeVar("Record")
_SHOWN = 8
_NO_TEXT = re.compile(r"\\u(?:d[89a-f][0-9a-f]{2}|0000)", re.IGNORECASE)


def closest(folder: Path, name: str, count: int = 6) -> list[str]:
    """List the first ``count`` names in a folder, those most like ``name`` first, hidden ones left out."""
    names = sorted(p.name for p in folder.iterdir() if not p.name.startswith("."))
    close = difflib.get_close_matches(name, names)
    return [*close, *(n for n in names if n not in close)][:count]


def check_limit(limit: Any) -> None:
    """Refuse a number of questions to keep that is neither None nor a whole number of at least 1, by ConfigError."""
    if limit is not None and (isinstance(limit, bool) or not hasattr(limit, "__index__") or limit < 1):
        raise ConfigError(f"limit={limit!r}", "at least 1, or None for all", "leave it out to load every question")


def read_text(path: str | Path) -> str:
    """Read a UTF-8 text file, plain or gzip.

    Raises
    ------
    DataError when it is missing, a folder, empty, damaged, a spreadsheet, or in another encoding.
    """
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
            raise DataError(
                f"{path} is a damaged gzip file: {error}", "a whole file", "download or copy it again"
            ) from None
    if raw[:4] == b"PK\3\4" or raw[:4] == b"\xd0\xcf\x11\xe0":
        raise DataError(f"{path} is a spreadsheet, or another office file or archive", "a text file", EXPORT)
    if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise DataError(f"{path} is in UTF-16", "UTF-8", f"convert it: {_iconv('UTF-16', path)}")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"{path}, line {line}: byte 0x{raw[error.start]:02x} is not UTF-8",
            "UTF-8 text",
            f"convert it, for instance: {_iconv('WINDOWS-1252', path)}",
        ) from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise DataError(
            f"{path}, line {line}: a NUL character", "text", "check that it is a text file, and remove the character"
        )
    if not text.strip():
        raise EmptyFileError(
            f"{path} is empty", "at least one record", "check that it was written or downloaded completely"
        )
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
                raise DataError(
                    f"{path} ({len(raw):,} bytes) unpacks to more than {MAX_UNPACKED:,} bytes",
                    "a compressed file of at most so many (ragbench.data.files.MAX_UNPACKED)",
                    "if it is what it should be, unpack it first: gunzip",
                )
            yield block


def bounded_lines(stream: IO[AnyStr], name: str | Path) -> Iterator[AnyStr]:
    """Yield the lines of an open file, one in memory at a time.

    Raises
    ------
    DataError for a line of `MAX_LINE` or more, before the whole of it is in memory.
    """
    number = 0
    while line := stream.readline(MAX_LINE):
        number += 1
        if len(line) == MAX_LINE:
            raise DataError(
                f"{name}, line {number} has {MAX_LINE:,} characters or more",
                "one record per line (at most ragbench.data.files.MAX_LINE)",
                "check that this is the right file",
            )
        yield line


def _writable(value: Any, source: str, where: str) -> Any:
    """Return a JSON value whose texts can be written again; half a surrogate pair or NUL would fail later in a run."""
    if _NO_TEXT.search(source):
        again = json.dumps(value, ensure_ascii=False)
        if "\\u0000" in again or any("\ud800" <= character <= "\udfff" for character in again):
            raise DataError(
                f"{where}: an escape that stands for no character (NUL, or half of a surrogate pair)",
                "texts that can be written as UTF-8",
                "remove it, or write the character itself",
            )
    return value


def read_json(path: str | Path) -> Any:
    """Read a JSON file; a syntax error names line and column."""
    text = read_text(path)
    try:
        return _writable(json.loads(text), text, str(path))
    except json.JSONDecodeError as error:
        if error.pos >= len(text.rstrip()):
            raise DataError(
                f"{path}, line {error.lineno}: the JSON ends in the middle ({error.msg})",
                "a complete JSON value",
                "download or copy the file again",
            ) from None
        raise DataError(
            f"{path}, line {error.lineno}, column {error.colno}: {error.msg}",
            "valid JSON",
            "mend that place; if each line is a record of its own, it is JSON lines: use load_jsonl",
        ) from None
    except RecursionError:
        raise DataError(f"{path} nests too deeply", "a list of records", "check that this is the right file") from None


def read_jsonl(path: str | Path) -> Iterator[tuple[int, dict]]:
    """Yield (line number, record) of a JSON-lines file; empty lines are passed over.

    Raises
    ------
    DataError for a line that is no JSON object or longer than a million characters.
    """
    for number, line in enumerate(read_text(path).split("\n"), 1):
        if not line.strip():
            continue
        if len(line) > MAX_FIELD:
            raise DataError(
                f"{path}, line {number} has {len(line):,} characters",
                f"one record of at most {MAX_FIELD:,} characters per line",
                "split long documents, or check that line ends were not lost",
            )
        try:
            row = json.loads(line)
        except (json.JSONDecodeError, RecursionError) as error:
            what = (
                f"column {error.colno}: {error.msg}" if isinstance(error, json.JSONDecodeError) else "nests too deeply"
            )
            raise DataError(f"{path}, line {number}, {what}", "one JSON object per line", "mend that line") from None
        if not isinstance(row, dict):
            raise DataError(
                f"{path}, line {number} is a JSON {type(row).__name__}",
                'an object such as {"question": ..., "answer": ...}',
                "write one object per line; an array of objects is read by load_hotpotqa or json.load",
            )
        yield number, _writable(row, line, f"{path}, line {number}")


def plain_name(column: str) -> str:
    """Return a column's name without capitals, with "_" for spaces and hyphens: "Ground Truth" is "ground_truth"."""
    return re.sub(r"[\s-]+", "_", column.strip()).casefold()


def require_text(row: dict, field: str, where: str, *, empty: bool = False, named: bool = False) -> str:
    """Return a text field of a record.

    Parameters
    ----------
    where : file and line or record number, for the message.
    empty : whether an empty text is allowed.
    named : whether the caller's user can give the field another name with ``fields``.

    Raises
    ------
    DataError when it is missing, not a text, empty, or longer than a million characters.
    """
    if field not in row:
        rename = f", or name your own column with fields={{{field!r}: 'your column'}}" if named else ""
        raise DataError(
            f"{where}: no field {field!r} (it has {', '.join(map(repr, row)) or 'none'})",
            f"a text under {field!r}",
            f"add it{rename}",
        )
    value = row[field]
    if not isinstance(value, str):
        raise DataError(
            f"{where}: {field!r} is {type(value).__name__} {str(value)[:40]!r}", "a text", "write it in quotes"
        )
    if not value.strip() and not empty:
        raise DataError(f"{where}: {field!r} is empty", "a text", "fill it in, or remove the record")
    if len(value) > MAX_FIELD:
        raise DataError(
            f"{where}: {field!r} has {len(value):,} characters",
            f"at most {MAX_FIELD:,}",
            "split the document, or check the file for lost separators",
        )
    return value


def require_texts(row: dict, field: str, where: str) -> tuple[str, ...]:
    """Return a field of a record that is a list of texts; DataError naming ``where`` for anything else."""
    value = row.get(field)
    if not isinstance(value, list) or not all(isinstance(text, str) and text.strip() for text in value):
        got = f"is {str(value)[:40]!r}" if field in row else "is missing"
        raise DataError(f"{where}: {field!r} {got}", "a list of texts", "mend that record")
    return tuple(value)


def each_record(
    path: str | Path, rows: Iterable[tuple[str, Any]], make: Callable[[Any, str], Record | None]
) -> list[Record]:
    """Make a record of every row; the bad ones are reported together, and nothing is loaded by halves.

    Parameters
    ----------
    path : what is read, for the message.
    rows : (where, row): file and line, or what else tells the row.
    make : row and where -> record; None leaves the row out; DataError for a bad one.
    """
    records, errors, total = [], [], 0
    for where, row in rows:
        total += 1
        try:
            records.append(make(row, where))
        except DataError as error:
            errors.append(error)
    raise_all(errors, path, total)
    return [record for record in records if record is not None]


def from_mirror(path: str | Path | None, *parts: str, got: str, do: str, expected: str = "") -> Path:
    """Return a given path, or that in ``RAGBENCH_DATA``; NotHereError (got, expected, do) when there is neither."""
    there = Path(path).expanduser() if path is not None else mirror(*parts)
    if there is None:
        raise NotHereError(got, expected or f"RAGBENCH_DATA/{'/'.join(parts)}", do)
    return there


def split_records(
    path: str | Path,
    split: str | None,
    make: Callable[[dict, str], Record],
    keys: Callable[[Record], Sequence[str]],
    group: Callable[[Record], str],
    noun: str,
) -> tuple[Record, ...]:
    """Make the records of a JSON-lines file whose rows have a ``split``, and keep those of one, or all.

    Parameters
    ----------
    make : row and where -> record, with an attribute split.
    keys : what may occur only once, in words, such as "id 'a'".
    group : what must not be in both splits, and ``noun``, what that is: a question, a document.
    """
    if split is not None and split not in SPLITS:
        raise unknown("split", split, SPLITS)
    seen: set[str] = set()
    split_of: dict[str, str] = {}

    def checked(row: dict, where: str) -> Record:
        record: Any = make(row, where)
        if record.split not in SPLITS:
            raise DataError(f"{where}: split is {record.split!r}", "'dev' or 'test'", "write one of the two")
        again = [key for key in keys(record) if key in seen]
        if again:
            raise DataError(f"{where}: {again[0]} was there before", "each one once", "drop one, or rename it")
        if split_of.setdefault(group(record), record.split) != record.split:
            raise DataError(
                f"{where}: {noun} {group(record)!r} is in both splits",
                f"all rows about a {noun} in one split",
                f"move them together, or tuning sees the test {noun}s",
            )
        seen.update(keys(record))
        return record

    records: list[Any] = each_record(path, numbered_lines(path), checked)
    return tuple(record for record in records if split in (None, record.split))


def numbered_lines(path: str | Path) -> Iterator[tuple[str, dict]]:
    """Yield ("FILE, line 3", record) of a JSON-lines file, as `read_jsonl` reads it."""
    return ((f"{path}, line {number}", row) for number, row in read_jsonl(path))


def raise_all(errors: list[DataError], path: str | Path, total: int, noun: str = "records") -> None:
    """Raise one error that lists bad records; nothing when there is none."""
    if not errors:
        return
    if len(errors) == 1:
        raise errors[0]
    shown = "\n    ".join(e.got for e in errors[:_SHOWN])
    more = f"\n    and {len(errors) - _SHOWN} more" if len(errors) > _SHOWN else ""
    first = errors[0]
    raise DataError(f"{path}: {len(errors)} of {total} {noun} are bad\n    {shown}{more}", first.expected, first.do)


def sha256(path: str | Path) -> str:
    """Return the sha256 of a file, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
