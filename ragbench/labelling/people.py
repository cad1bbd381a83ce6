"""Labels that people give: what they are asked, the file they stand in, and the way through the items.

A label is a text, as it stands in the file. The wording is ours; the scales are the papers':

``grade``       the thesis's five categories (§2.4).
``preference``  RAGChecker's five-way comparison of two responses in three aspects (section 4.2).
``rubric``      RAGEval's score of a question with its answer and references, 0 to 5 (Figure 3).
``ranks``       RAGEval's order of several documents by four criteria, ties allowed (Figure 4).
``keypoints``   RAGEval's verdict on each keypoint of a true answer (section 3.5.2), for people in place of a judge
                model (Figure 6).

The file is one CSV for all kinds, only ever appended to: kind, item, aspect, label, annotator, at, note. The last row
of a kind, item, aspect and annotator is what that person says; an empty label takes it back. ``at`` is the time with
its zone (ISO 8601). Two people may write to one file, or each to their own. The form in JupyterLab is
`ragbench.widgets.LabellingTool`.
"""

from __future__ import annotations

import csv
import hashlib
import io
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from filelock import FileLock

from ragbench.data.files import each_record, read_text
from ragbench.errors import ConfigError, DataError, check_known
from ragbench.labelling.grades import GRADES, facts_of, questions_of
from ragbench.records import Answer, Question

# What is asked


@dataclass(frozen=True, slots=True)
class LabelKind:
    """One kind of labelling.

    Attributes
    ----------
    name, title : in the file's first column, and for people.
    aspects : what is asked, by the name in the file; empty when each item brings its own (keypoints).
    labels : what can be said and what it means, in order; empty for ranks, which depend on the item's candidates.
    ordered : whether labels have distances, so that a weighted kappa makes sense.
    first_key : the number key of the first label; the others follow.
    """

    name: str
    title: str
    aspects: Mapping[str, str]
    labels: Mapping[str, str]
    ordered: bool = False
    first_key: int = 1

    @property
    def keys(self) -> dict[str, str]:
        """The key that gives each label."""
        return {str(key): label for key, label in enumerate(self.labels, self.first_key)}

    def wrong(self, aspect: str, label: str) -> str:
        """Return what is wrong with an aspect and its label; an empty text when nothing is."""
        if self.aspects and aspect not in self.aspects:
            return f"the aspect {aspect!r} of {self.name}; it has {', '.join(self.aspects)}"
        if not aspect.strip():
            return f"an empty aspect of {self.name}"
        if label == "":  # taken back
            return ""
        if self.labels:
            known = ", ".join(self.labels)
            return "" if label in self.labels else f"the label {label!r} of {self.name}; it has {known}"
        return _wrong_ranks(label)


KINDS: Mapping[str, LabelKind] = {
    kind.name: kind
    for kind in (
        LabelKind(
            "grade",
            "Grade the answer",
            {"grade": "Which category fits the answer?"},
            {str(grade): meaning for grade, meaning in GRADES.items()},
        ),
        LabelKind(
            "preference",
            "Compare two responses",
            {
                "correctness": "Which response has fewer wrong statements?",
                "completeness": "Which response leaves out less of what was asked?",
                "overall": "Which response would you rather have, all in all?",
            },
            {
                "-2": "response 1 is much better",
                "-1": "response 1 is a little better",
                "0": "equally good",
                "1": "response 2 is a little better",
                "2": "response 2 is much better",
            },
            ordered=True,
        ),
        LabelKind(
            "rubric",
            "Score question, answer and references",
            {"quality": "How good are question, answer and references together?"},
            {
                "0": "wrong throughout, or about something else",
                "1": "mostly wrong; little of it can be used",
                "2": "partly right, with serious mistakes or gaps",
                "3": "mostly right, with mistakes or gaps that matter",
                "4": "right, with a small flaw in content or language",
                "5": "right, complete and well put",
            },
            ordered=True,
            first_key=0,
        ),
        LabelKind(
            "ranks",
            "Rank the documents",
            {
                "safety": "Which document keeps clear of real people, firms and other sensitive facts?",
                "clarity": "Which document says clearly and exactly what happened?",
                "conformity": "Which document looks most like a real one of its kind?",
                "richness": "Which document has more to say, in breadth and in depth?",
            },
            {},
            ordered=True,
        ),
        LabelKind(
            "keypoints",
            "Judge each keypoint",
            {},
            {
                "covered": "the answer says this, and rightly",
                "contradicted": "the answer says something that cannot be true along with this",
                "neither": "the answer does not touch this",
            },
        ),
    )
}


def kind_of(name: str) -> LabelKind:
    """Return a kind by name."""
    check_known("kind of labels", [name], KINDS)
    return KINDS[name]


@dataclass(frozen=True)
class LabelItem:
    """One thing to be labelled.

    Parameters
    ----------
    id : its name in the file.
    texts : what is shown, by heading, e.g. ``{"Question": ..., "Answer": ...}``. Nothing else is shown: leave out who
        wrote it.
    candidates : texts to be compared, by the name in the file (writers, systems); two for preferences. They are shown
        in an order of the session's own, as A, B, ..., without their names.
    aspects : for keypoints, each one's text by its name in the file, e.g. its number.
    """

    id: str
    texts: Mapping[str, str] = field(default_factory=dict)
    candidates: Mapping[str, str] = field(default_factory=dict)
    aspects: Mapping[str, str] = field(default_factory=dict)

    def asked(self, kind: LabelKind) -> Mapping[str, str]:
        """What is asked of this item, by aspect; ConfigError when the item lacks what its kind needs."""
        n = len(self.candidates)
        few, many, wanted = {"preference": (2, 2, "exactly 2"), "ranks": (2, 9, "2 to 9")}.get(kind.name, (0, 0, "no"))
        if not few <= n <= many:
            raise ConfigError(f"item {self.id!r} with {n} candidates", f"{wanted} candidates for {kind.name}")
        if any(mark in name for name in self.candidates for mark in "=;"):
            raise ConfigError(f"item {self.id!r} with a candidate named with = or ;", "names without them", "rename it")
        if bool(kind.aspects) == bool(self.aspects):
            expected = "none: the kind has its own" if kind.aspects else "at least one, e.g. a keypoint by its number"
            raise ConfigError(f"item {self.id!r} with {len(self.aspects)} aspects", expected)
        return kind.aspects or self.aspects


def rank_label(ranks: Mapping[str, int]) -> str:
    """Write ranks by candidate as a label, e.g. ``"one-shot=2;ours=1"``; 1 is best, equal numbers are ties.

    Only the order counts: 1, 1, 3 and 1, 1, 2 are the same.
    """
    label = ";".join(f"{name}={rank}" for name, rank in sorted(ranks.items()))
    _check_ranks(label)
    return label


def ranks_of(label: str) -> dict[str, int]:
    """Read a label that `rank_label` wrote, as ranks 1, 2, ... without gaps.

    >>> ranks_of("one-shot=3;ours=1;zero-shot=3")
    {'one-shot': 2, 'ours': 1, 'zero-shot': 2}
    """
    _check_ranks(label)
    given = {name: int(rank) for name, _, rank in (part.partition("=") for part in label.split(";"))}
    order = sorted(set(given.values()))
    return {name: order.index(rank) + 1 for name, rank in given.items()}


def _check_ranks(label: str) -> None:
    if wrong := _wrong_ranks(label):
        raise DataError(wrong, "a positive rank for each of two or more candidates, such as 'one-shot=2;ours=1'")


def _wrong_ranks(label: str) -> str:
    if not re.fullmatch(r"[^=;]+=\d+(;[^=;]+=\d+)+", label):
        return f"the ranks {label!r}, not of the form name=1;name=2"
    names, ranks = zip(*(part.split("=") for part in label.split(";")), strict=True)
    if len(set(names)) < len(names) or min(map(int, ranks)) < 1:
        return f"the ranks {label!r} with a candidate twice or a rank below 1"
    return ""


def grade_items(questions: Sequence[Question], answers: Sequence[Answer], *, facts: bool = True) -> list[LabelItem]:
    """Make items for grades: question, true answer, what supports it, and the answer. The generator is not shown.

    Parameters
    ----------
    answers : several for one question are several items. An item's id is the answer's ``meta["id"]`` where it has
        one, else question id and generator.
    facts : whether the supporting sentences are shown.

    Source: thesis §2.4 (what its judge was shown).
    """
    items = []
    for answer, question in zip(answers, questions_of(answers, questions), strict=True):
        texts = {"Question": question.text, "True answer": question.answer}
        if facts and question.references:
            texts["Supporting facts"] = "\n".join(facts_of(question))
        name = answer.meta.get("id") or f"{question.id}/{answer.generator}"
        items.append(LabelItem(str(name), texts | {"Answer to be graded": answer.text or "(empty)"}))
    return items


# The label file

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
        if wrong := _wrong(row):
            raise DataError(f"a label with {wrong}", "a row that fits its kind", "see ragbench.labelling.people.KINDS")
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
    for path in (Path(path).expanduser() for path in paths):
        labels += each_record(path, _rows(path), _label)
    return labels


def current(labels: Iterable[Label], kind: str | None = None) -> list[Label]:
    """Return the label that holds for each kind (or one), item, aspect and annotator: the last, if not taken back."""
    if kind is not None:
        kind_of(kind)
    of_kind = [label for label in labels if kind in (None, label.kind)]
    last = {(label.kind, label.item, label.aspect, label.annotator): label for label in of_kind}
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


def _rows(path: Path) -> Iterator[tuple[str, list[str] | csv.Error]]:
    """Yield ("line 3", its columns, or why it cannot be read)."""
    text = read_text(path)
    if not is_label_file(path):
        raise DataError(
            f"{path}, line 1: {text.splitlines()[0][:80]!r}",
            f"the columns {','.join(COLUMNS)}",
            "check that this is a label file; a spreadsheet may have changed its separator when saving",
        )
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    next(reader)
    while True:
        line = f"line {reader.line_num + 1}"
        try:
            row: list[str] | csv.Error = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            row = error
        if row:
            yield line, row


def _label(row: list[str] | csv.Error, where: str) -> Label:
    wrong = f"a row that cannot be read ({row})" if isinstance(row, csv.Error) else _wrong(tuple(row))
    if wrong:
        do = "mend that line; if it is the last, a crash cut it off: remove it and label that item again"
        raise DataError(f"{where}: {wrong}", "a row as the labelling form writes it", do)
    return Label(*row)


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
    return KINDS[kind].wrong(aspect, label)


# One person's way through the items, without a screen. The form only draws it

_now = partial(datetime.now, UTC)


class Session:
    """Label items in a blind, seeded order; every label is on the disk before the next item is shown.

    Parameters
    ----------
    items : what to label; ids must differ.
    kind : a name in `KINDS`.
    annotator : who labels.
    path : the label file; it is made when the first label is given, and read to resume.
    seed : order of the items and of each item's candidates, by a hash of seed and id: it stays the same when items are
        added or the session is resumed. None: as given.
    clock : for tests; returns a time with its zone.

    Attributes
    ----------
    position : index of the item in `items`, the session's order. aspect : what is asked next of it.
    typed : ranks given so far, by candidate, while not all of an item's candidates have one.
    """

    def __init__(
        self,
        items: Sequence[LabelItem],
        kind: str,
        annotator: str,
        path: str | Path,
        seed: int | None = 0,
        clock: Callable[[], datetime] = _now,
    ) -> None:
        self.kind = kind_of(kind)
        if not items or len({i.id for i in items}) != len(items):
            counts = f"{len(items)} items with {len({i.id for i in items})} ids"
            raise ConfigError(counts, "one or more, with an id each", "mend the ids")
        if not annotator.strip():
            raise ConfigError("an empty annotator", "a name or initials", "they tell two people's labels apart")
        for item in items:
            item.asked(self.kind)
        self.annotator, self.path, self.seed, self._clock = annotator.strip(), Path(path).expanduser(), seed, clock
        self.items = list(items) if seed is None else sorted(items, key=lambda i: self._hash(i.id))
        self._labels: dict[tuple[str, str], str] = {}
        self._undo: list[tuple[int, str, str]] = []  # position, aspect, what the label was before
        if self.path.is_file() and self.path.stat().st_size:
            mine = by_annotator(current(load_labels(self.path), kind)).get(self.annotator, [])
            self._labels = {(label.item, label.aspect): label.label for label in mine}
        self.typed: dict[str, int] = {}
        self.position, self.aspect = 0, ""
        self.go(self._next_open(-1))

    def _hash(self, text: str) -> str:
        return hashlib.sha256(f"{self.seed}/{text}".encode()).hexdigest()

    @property
    def item(self) -> LabelItem:
        """The item at the position."""
        return self.items[self.position]

    @property
    def _asked(self) -> list[str]:
        return list(self.item.asked(self.kind))

    def candidates(self) -> dict[str, str]:
        """The item's candidates as they are shown: letter -> name in the file."""
        names = list(self.item.candidates)
        if self.seed is not None:
            names.sort(key=lambda name: self._hash(f"{self.item.id}/{name}"))
        return {chr(ord("A") + place): name for place, name in enumerate(names)}

    def label_of(self, aspect: str, item: LabelItem | None = None) -> str:
        """The label that an aspect of an item has, as in the file; empty when it has none."""
        return self._labels.get(((item or self.item).id, aspect), "")

    def is_done(self, item: LabelItem) -> bool:
        """Whether all that is asked of an item has a label."""
        return all(self.label_of(aspect, item) for aspect in item.asked(self.kind))

    @property
    def done(self) -> int:
        """How many items are done."""
        return sum(self.is_done(item) for item in self.items)

    @property
    def labels(self) -> list[Label]:
        """This annotator's labels that hold, of the session's items."""
        known = {item.id for item in self.items}
        return [
            Label(self.kind.name, item, aspect, label, self.annotator, "")
            for (item, aspect), label in self._labels.items()
            if label and item in known
        ]

    def go(self, position: int) -> None:
        """Show another item; beyond an end, the last or first."""
        self.position = min(max(position, 0), len(self.items) - 1)
        self._ask(next((aspect for aspect in self._asked if not self.label_of(aspect)), self._asked[0]))

    def _ask(self, aspect: str) -> None:
        self.aspect, self.typed = aspect, {}

    def next_open(self) -> None:
        """Show the next item that is not done, from the start again after the end; stay when all are."""
        self.go(self._next_open(self.position))

    def _next_open(self, after: int) -> int:
        order = [*range(after + 1, len(self.items)), *range(after + 1)]
        return next((i for i in order if not self.is_done(self.items[i])), max(after, 0))

    def choices(self) -> Mapping[str, str]:
        """The keys that mean something now, and what: labels, or for ranks the rank of the next candidate."""
        if self.kind.labels:
            return {key: self.kind.labels[label] for key, label in self.kind.keys.items()}
        letter = list(self.candidates())[len(self.typed)]
        return {str(rank): f"rank {rank} for {letter}" for rank in range(1, len(self.item.candidates) + 1)}

    def press(self, key: str, note: str = "") -> bool:
        """Give the label that belongs to a key, and move on to what is asked next.

        Ranks take one key for each candidate, in the order shown; the last one gives the label. An unknown key does
        nothing. Returns whether the label is complete and was written.
        """
        if key not in self.choices():
            return False
        if self.kind.labels:
            label = self._unshuffled(self.kind.keys[key])
        else:
            self.typed[list(self.candidates().values())[len(self.typed)]] = int(key)
            if len(self.typed) < len(self.item.candidates):
                return False
            label = rank_label(self.typed)
        before = self.label_of(self.aspect)
        self._append(self.aspect, label, note)
        self._undo.append((self.position, self.aspect, before))
        later = self._asked[self._asked.index(self.aspect) + 1 :]
        if not before:  # a first pass goes on to what is open; who corrects a done item walks through all of it
            later = [aspect for aspect in later if not self.label_of(aspect)]
        if later:
            self._ask(later[0])
        elif self.is_done(self.item):
            self.next_open()
        else:
            self.go(self.position)
        return True

    def step_aspect(self, step: int) -> None:
        """Ask the next (1) or the previous (-1) aspect of the item, staying at the ends."""
        place = self._asked.index(self.aspect) + step
        self._ask(self._asked[min(max(place, 0), len(self._asked) - 1)])

    def _unshuffled(self, label: str) -> str:
        """The label in the file's order of candidates: a preference turns round when the sides are swapped."""
        swapped = self.kind.name == "preference" and list(self.candidates().values()) != list(self.item.candidates)
        return str(-int(label)) if swapped else label

    def shown_label(self, aspect: str) -> str:
        """The label of an aspect as the person gave it: by key, or for ranks a digit for each candidate shown."""
        label = self.label_of(aspect)
        if not label:
            return ""
        if self.kind.labels:
            given = self._unshuffled(label)
            return next(key for key, value in self.kind.keys.items() if value == given)
        ranks = ranks_of(label)
        return "".join(str(ranks[name]) for name in self.candidates().values())

    def undo(self) -> bool:
        """Take back the last label given in this session: a further row says what holds again.

        Ranks that are half typed are dropped first. Returns False when nothing is left to take back.
        """
        if self.typed:
            self.typed = {}
            return True
        if not self._undo:
            return False
        position, aspect, before = self._undo.pop()
        self.go(position)
        self._append(aspect, before, "taken back")
        self.aspect = aspect
        return True

    def _append(self, aspect: str, label: str, note: str) -> None:
        at = self._clock().isoformat(timespec="seconds")
        append_labels(self.path, [Label(self.kind.name, self.item.id, aspect, label, self.annotator, at, note)])
        # Only what is on the disk counts: a full disk raises above, and the item stays open.
        self._labels[self.item.id, aspect] = label
