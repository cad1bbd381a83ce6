"""The label file: one CSV for all kinds, only ever appended to.

Columns kind, item, aspect, label, annotator, at, note. The last row of a kind, item, aspect and annotator is what that
person says; an empty label takes it back. ``at`` is the time with its zone (ISO 8601). Two people may write to one
file, or each to their own.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable
from dataclasses import astuple, dataclass
from datetime import datetime
from pathlib import Path

from filelock import FileLock

from ragbench.data.files import raise_all, read_text
from ragbench.errors import DataError
from ragbench.labelling.kinds import KINDS, kind_of

COLUMNS = ("kind", "item", "aspect", "label", "annotator", "at", "note")


@dataclass(frozen=True, slots=True)
class Label:
    """One row of a label file."""

    kind: str
    item: str
    aspect: str
    label: str
    annotator: str
    at: str
    note: str = ""

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What a later row replaces: kind, item, aspect, annotator."""
        return self.kind, self.item, self.aspect, self.annotator


def append_labels(path: str | Path, labels: Iterable[Label]) -> None:
    """Append rows to a label file; a new file gets its header in the same write.

    All rows go out in one write, are flushed to the disk before this returns, and writers take turns by a lock, so a
    reader or a second annotator sees whole rows. Line breaks in notes become blanks: one row, one line.

    Raises
    ------
    DataError for a row that `load_labels` would refuse, or a file that is none of labels; nothing is written then.
    """
    path = Path(path).expanduser()
    rows = [tuple(" ".join(part.splitlines()) for part in astuple(label)) for label in labels]
    for row in rows:
        wrong = _wrong(row)
        if wrong:
            raise DataError(f"a label with {wrong}", "a row that fits its kind", "see ragbench.labelling.KINDS")
    if not rows:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_name(f".{path.name}.lock")), open(path, "ab+") as file:
        size = file.seek(0, os.SEEK_END)
        if size and not is_label_file(path):
            raise DataError(
                f"{path} is no label file", f"the first line {','.join(COLUMNS)}", "choose another file for the labels"
            )
        # A line that a crash left unfinished must not run into this one.
        start = ""
        if size:
            file.seek(-1, os.SEEK_END)
            start = "" if file.read(1) == b"\n" else "\n"
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([*([] if size else [COLUMNS]), *rows])
        file.write((start + text.getvalue()).encode("utf-8"))
        file.flush()
        os.fsync(file.fileno())


def load_labels(*paths: str | Path) -> list[Label]:
    """Read label files, every row in the order given: the history. `current` gives what holds.

    Raises
    ------
    DataError naming file and line of every bad row, before anything is returned: a wrong number of columns, an unknown
    kind, aspect or label, an empty item or annotator, a time without zone.
    """
    labels: list[Label] = []
    for path in paths:
        labels += _rows(Path(path).expanduser())
    return labels


def current(labels: Iterable[Label], kind: str | None = None) -> list[Label]:
    """Return the label that holds for each kind, item, aspect and annotator: the last, unless it was taken back.

    Parameters
    ----------
    labels : rows in order, from `load_labels`.
    kind : only this kind.
    """
    if kind is not None:
        kind_of(kind)
    last = {label.key: label for label in labels if kind in (None, label.kind)}
    return [label for label in last.values() if label.label]


def by_annotator(labels: Iterable[Label]) -> dict[str, list[Label]]:
    """Part rows by annotator, in order of first appearance."""
    parts: dict[str, list[Label]] = {}
    for label in labels:
        parts.setdefault(label.annotator, []).append(label)
    return parts


def is_label_file(path: str | Path) -> bool:
    """Say whether a file begins with the header of a label file."""
    try:
        with open(path, encoding="utf-8-sig") as file:
            return file.readline().rstrip("\r\n") == ",".join(COLUMNS)
    except (OSError, UnicodeDecodeError):
        return False


def _rows(path: Path) -> list[Label]:
    text = read_text(path)
    if not is_label_file(path):
        raise DataError(
            f"{path}, line 1: {text.splitlines()[0][:80]!r}",
            f"the columns {','.join(COLUMNS)}",
            "check that this is a label file; a spreadsheet may have changed its separator when saving",
        )
    labels, errors, line, total = [], [], 1, 0
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    next(reader)
    while True:
        line = reader.line_num + 1
        try:
            row = next(reader, None)
        except csv.Error as error:
            row, wrong = [], f"a row that cannot be read ({error})"
        else:
            if row is None:
                break
            if not row:
                continue
            wrong = _wrong(tuple(row))
        total += 1
        if wrong:
            do = "mend that line; if it is the last, a crash cut it off: remove it and label that item again"
            errors.append(DataError(f"{path}, line {line}: {wrong}", "a row as the labelling form writes it", do))
        else:
            labels.append(Label(*row))
    raise_all(errors, path, total)
    return labels


def _wrong(row: tuple[str, ...]) -> str:
    """What is wrong with a row; an empty text when nothing is."""
    if len(row) != len(COLUMNS):
        return f"{len(row)} columns instead of {len(COLUMNS)}"
    kind, item, aspect, label, annotator, at, _ = row
    if kind not in KINDS:
        return f"the kind {kind!r}; there are {', '.join(KINDS)}"
    if not item.strip() or not annotator.strip():
        return "an empty item or annotator"
    try:
        zone = datetime.fromisoformat(at).tzinfo
    except ValueError:
        zone = None
    if zone is None:
        return f"the time {at!r}, not like 2026-01-31T09:30:00+00:00"
    return KINDS[kind].check(aspect, label)
