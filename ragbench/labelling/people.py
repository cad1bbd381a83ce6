"""Labels that people give: what is asked, the CSV file, and the way to the next item without a label.

A label is a text, as in the file. The wording is ours, the scales are the papers':

``grade``       the thesis's five categories (§2.4).
``preference``  RAGChecker's five-way comparison of two responses in three aspects (section 4.2).
``rubric``      RAGEval's score of a question with its answer and references, 0 to 5 (Figure 3).
``ranks``       RAGEval's order of several documents by four criteria, ties allowed (Figure 4): one rank per document.
``keypoints``   RAGEval's verdict on each keypoint of a true answer (section 3.5.2, Figure 6).
``draft``       whether a question that a model drafted counts; question and answer may be edited, which the note holds.

The file is one CSV for all kinds, to which rows are only appended: kind, item, aspect, label, annotator, at, note. The
last row of a kind, item, aspect and annotator is what that person says; an empty label takes it back. Two people may
write to one file, or each to their own. The form in JupyterLab is `ragbench.widgets.LabellingTool`.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
from filelock import FileLock

from ragbench.data.files import each_record, read_text
from ragbench.errors import ConfigError, DataError, check_known
from ragbench.records import GRADES, Answer, Question, facts_of, questions_of
from ragbench.stats import annotator_agreement, binomial_ci, kappa

# What is asked


@dataclass(frozen=True, slots=True)
class _LabelKind:
    """One kind of labelling.

    ``aspects``: what is asked, by the name in the file; empty when each item brings its own (keypoints). ``labels``:
    what can be said, and what it means. ``ordered``: labels have distances, so a weighted kappa makes sense.
    ``candidates``: least and greatest number of texts that an item compares. ``each``: every candidate has a label.
    ``edited``: headings of the texts that may be changed.
    """

    name: str
    title: str
    aspects: Mapping[str, str]
    labels: Mapping[str, str]
    ordered: bool = False
    candidates: tuple[int, int] = (0, 0)
    each: bool = False
    edited: tuple[str, ...] = ()

    @property
    def keys(self) -> dict[str, str]:
        """The key that gives each label: its own digit, or its place."""
        digits = all(label.isdigit() for label in self.labels)
        return {label if digits else str(place): label for place, label in enumerate(self.labels, 1)}


KINDS: Mapping[str, _LabelKind] = {
    kind.name: kind
    for kind in (
        _LabelKind(
            "grade",
            "Grade the answer",
            {"grade": "Which category fits the answer?"},
            {str(grade): meaning for grade, meaning in GRADES.items()},
        ),
        _LabelKind(
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
            candidates=(2, 2),
        ),
        _LabelKind(
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
        ),
        _LabelKind(
            "ranks",
            "Rank the documents",
            {
                "safety": "Which document keeps clear of real people, firms and other sensitive facts?",
                "clarity": "Which document says clearly and exactly what happened?",
                "conformity": "Which document looks most like a real one of its kind?",
                "richness": "Which document has more to say, in breadth and in depth?",
            },
            {str(rank): f"rank {rank}" for rank in range(1, 10)},
            ordered=True,
            candidates=(2, 9),
            each=True,
        ),
        _LabelKind(
            "keypoints",
            "Judge each keypoint",
            {},
            {
                "covered": "the answer says this, and rightly",
                "contradicted": "the answer says something that cannot be true along with this",
                "neither": "the answer does not touch this",
            },
        ),
        _LabelKind(
            "draft",
            "Accept, edit or drop the draft",
            {"draft": "Does this question count, with this answer and this evidence?"},
            {"accept": "accept, as it stands in the boxes", "drop": "drop"},
            edited=("Question", "Answer"),
        ),
    )
}


@dataclass(frozen=True)
class LabelItem:
    """One thing to be labelled; ``id`` is its name in the file.

    ``texts``: what is shown, by heading; leave out who wrote it. ``candidates``: texts to be compared, by the name in
    the file, shown in an order of the session's own, as A, B, ... ``aspects``: for keypoints, each one's text by its
    name.
    """

    id: str
    texts: Mapping[str, str] = field(default_factory=dict)
    candidates: Mapping[str, str] = field(default_factory=dict)
    aspects: Mapping[str, str] = field(default_factory=dict)


def grade_items(questions: Sequence[Question], answers: Sequence[Answer]) -> list[LabelItem]:
    """Make items for grades: question, true answer, what supports it, and the answer. The generator is not shown.

    An item's id is the answer's ``meta["id"]`` where it has one, else question id and generator.

    Source: thesis §2.4 (what its judge was shown).
    """
    items = []
    for answer, question in zip(answers, questions_of(answers, questions), strict=True):
        texts = {"Question": question.text, "True answer": question.answer}
        if question.references:
            texts["Supporting facts"] = "\n".join(facts_of(question))
        name = answer.meta.get("id") or f"{question.id}/{answer.generator}"
        items.append(LabelItem(str(name), texts | {"Answer to be graded": answer.text or "(empty)"}))
    return items


# The label file


@dataclass(frozen=True, slots=True)
class Label:
    """One row of a label file. An aspect of ranks is "criterion/candidate"."""

    kind: str
    item: str
    aspect: str
    label: str
    annotator: str
    at: str
    note: str = ""


_HEADER = ",".join(column.name for column in fields(Label))


def append_labels(path: str | Path, labels: Iterable[Label]) -> None:
    """Append rows to a label file; a new file gets its header in the same write.

    Writers take turns by a lock, so that a reader or a second annotator sees whole rows. Line breaks become blanks: one
    row, one line. DataError for a row that `load_labels` would refuse; nothing is written then.
    """
    path = Path(path).expanduser()
    rows = [[" ".join(part.splitlines()) for part in astuple(label)] for label in labels]
    for row in rows:
        _label(row, f"{path}, a new row")
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_name(f".{path.name}.lock")), open(path, "a+b") as file:
        begun = file.tell() > 0
        if begun and not is_label_file(path):
            raise DataError(f"{path} is no label file", f"the first line {_HEADER}", "choose another file")
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([*([] if begun else [_HEADER.split(",")]), *rows])
        file.write(text.getvalue().encode("utf-8"))


def load_labels(*paths: str | Path) -> list[Label]:
    """Read label files, every row in the order given: the history. `current` gives what holds.

    DataError names file and line of every bad row: a wrong number of columns, an unknown kind, aspect or label, an
    empty item or annotator.
    """
    return [label for path in paths for label in each_record(path, _rows(Path(path).expanduser()), _label)]


def current(labels: Iterable[Label], kind: str | None = None) -> list[Label]:
    """Return the label that holds for each kind (or one), item, aspect and annotator: the last, if not taken back."""
    of_kind = [label for label in labels if kind in (None, label.kind)]
    last = {(label.kind, label.item, label.aspect, label.annotator): label for label in of_kind}
    return [label for label in last.values() if label.label]


def by_annotator(labels: Iterable[Label]) -> dict[str, list[Label]]:
    """Part rows by annotator, in order of first appearance."""
    parts: dict[str, list[Label]] = {}
    for label in labels:
        parts.setdefault(label.annotator, []).append(label)
    return parts


def read_edits(note: str) -> dict[str, str]:
    """Return the texts that an edited item's note holds, by heading; none for a note in a person's own words."""
    if not note.startswith("{"):
        return {}
    try:
        edits = json.loads(note)
    except ValueError:
        got = f"a note of edits that cannot be read: {note[:60]!r}"
        raise DataError(got, "JSON, as the labelling form writes it", "mend or remove that line") from None
    return {heading: text for heading, text in edits.items() if text.strip()}


def is_label_file(path: str | Path) -> bool:
    """Say whether a file begins with the header of a label file."""
    try:
        with open(path, encoding="utf-8-sig") as file:
            return file.readline().rstrip("\r\n") == _HEADER
    except (OSError, UnicodeDecodeError):
        return False


def _rows(path: Path) -> Iterator[tuple[str, list[str]]]:
    text = read_text(path)
    if not is_label_file(path):
        do = "check that this is a label file; a spreadsheet may have changed its separator when saving"
        raise DataError(f"{path}, line 1: {text.splitlines()[0][:80]!r}", f"the columns {_HEADER}", do)
    lines = list(csv.reader(text.splitlines()))
    return ((f"line {number}", row) for number, row in enumerate(lines[1:], 2) if row)


def _label(row: list[str], where: str) -> Label:
    """Make a row's label; DataError when a part of it is none of the known ones."""

    def fault() -> str:
        if len(row) != len(fields(Label)):
            return f"{len(row)} columns instead of {len(fields(Label))}"
        kind, item, aspect, label, annotator, *_ = row
        if kind not in KINDS:
            return f"the kind {kind!r}; there are {', '.join(KINDS)}"
        known = KINDS[kind]
        if not (item.strip() and annotator.strip() and aspect.strip()):
            return "an empty item, aspect or annotator"
        if known.aspects and (aspect.partition("/")[0] if known.each else aspect) not in known.aspects:
            return f"the aspect {aspect!r} of {kind}; it has {', '.join(known.aspects)}"
        return (
            f"the label {label!r} of {kind}; it has {', '.join(known.labels)}"
            if label not in ("", *known.labels)
            else ""
        )

    if wrong := fault():
        raise DataError(f"{where}: {wrong}", "a row as the labelling form writes it", "mend or remove that line")
    return Label(*row)


# How far two people agree


def agreement(a: Iterable[Label], b: Iterable[Label], *, resamples: int = 2000, seed: int = 0) -> pd.DataFrame:
    """Compare two annotators' labels of one kind, one person's rows each (what holds is found by `current`).

    ``resamples``, ``seed``: of kappa's bootstrap interval; 0 resamples for none. DataFrame, one row per aspect
    (keypoints: one for all of them; ranks: one per criterion), with the columns

    n, only_a, only_b : labels that both gave (of the same item and aspect), and that only one gave.
    agreement, agreement_low, agreement_high : share of equal labels, with an exact interval.
    kappa, kappa_low, kappa_high : Cohen's, unweighted.
    weighted_kappa, within_one : with quadratic weights, and the share at most one step apart, where labels have
        distances; else NaN.

    Source: Cohen (1960, 1968). RAGChecker, section 4.2 (within one step: 90.95%).
    """
    sides = [current(a), current(b)]
    people = [{label.annotator for label in side} for side in sides]
    kinds = {label.kind for side in sides for label in side}
    if len(kinds) != 1 or max(map(len, people)) > 1 or people[0] & people[1]:
        got = f"labels of kind {', '.join(sorted(kinds))} by {', '.join(sorted(people[0] | people[1]))}"
        do = "part the rows with current(labels, kind) and by_annotator(labels)"
        raise DataError(got, "one kind, two people", do)
    kind = KINDS[kinds.pop()]
    first, second = ({(label.item, label.aspect): label.label for label in side} for side in sides)
    keys = dict.fromkeys([*first, *second])
    table = pd.DataFrame([(aspect, first.get((item, aspect)), second.get((item, aspect))) for item, aspect in keys])
    about = table[0].str.partition("/")[0] if kind.each else table[0]
    rows = []
    for aspect in kind.aspects or ("all keypoints",):
        part = table[about.eq(aspect) | (not kind.aspects)]
        both = part.dropna()
        counts = {"n": len(both), "only_a": part[2].isna().sum(), "only_b": part[1].isna().sum()}
        shares = binomial_ci(int((both[1] == both[2]).sum()), len(both)).columns("agreement")
        options: dict[str, Any] = {"labels": list(kind.labels), "resamples": resamples, "seed": seed}
        row = {"aspect": aspect} | counts | shares | kappa(both[1], both[2], **options).columns("kappa")
        row |= {"weighted_kappa": math.nan, "within_one": math.nan}
        if kind.ordered:
            row["weighted_kappa"] = kappa(both[1], both[2], weights="quadratic", **options).estimate
            row["within_one"] = annotator_agreement(both[[1, 2]].to_numpy(float)).estimate
        rows.append(row)
    return pd.DataFrame(rows)


def partners(path: str | Path, kind: str, annotator: str) -> dict[str, list[Label]]:
    """Return other people's labels of one kind that hold, by annotator: in the file, and in label files beside it."""
    files = [file for file in sorted(Path(path).expanduser().parent.glob("*.csv")) if is_label_file(file)]
    people = by_annotator(current(load_labels(*files), kind))
    return {name: labels for name, labels in people.items() if name != annotator}


# One person's way through the items, without a screen. The form only draws it


class Session:
    """Label items in a blind, seeded order; every label is in the file before the next item is shown.

    Parameters
    ----------
    kind : a name in `KINDS`. annotator : who labels. path : the label file; it is read to resume.
    seed : order of the items and of each item's candidates, by a hash of seed and id: it stays the same when items are
        added or the session is resumed. None: as given.

    ``position`` is the index of the item in ``items``, ``aspect`` what is asked next of it. Raises ConfigError for
    items that do not fit the kind, or no annotator.
    """

    def __init__(
        self, items: Sequence[LabelItem], kind: str, annotator: str, path: str | Path, seed: int | None = 0
    ) -> None:
        check_known("kind of labels", [kind], KINDS)
        self.kind, self.seed, self.path = KINDS[kind], seed, Path(path).expanduser()
        if not items or len({i.id for i in items}) != len(items):
            raise ConfigError(f"{len(items)} items with {len({i.id for i in items})} ids", "one or more, an id each")
        if not annotator.strip():
            raise ConfigError("no annotator", "a name or initials", "pass annotator='...'")
        low, high = self.kind.candidates
        for item in items:
            if not low <= len(item.candidates) <= high:
                expected = f"{low} to {high} of them for {kind}"
                raise ConfigError(f"item {item.id!r} with {len(item.candidates)} candidates", expected)
            if bool(self.kind.aspects) == bool(item.aspects):
                expected = "none: the kind has its own" if self.kind.aspects else "one per keypoint"
                raise ConfigError(f"item {item.id!r} with {len(item.aspects)} aspects", expected)
        self.annotator = annotator.strip()
        self.items = list(items) if seed is None else sorted(items, key=lambda i: self._hash(i.id))
        self._labels: dict[tuple[str, str], str] = {}
        self._notes: dict[tuple[str, str], str] = {}
        if self.path.is_file() and self.path.stat().st_size:
            labels = by_annotator(current(load_labels(self.path), kind)).get(self.annotator, [])
            self._labels = {(label.item, label.aspect): label.label for label in labels}
            self._notes = {(label.item, label.aspect): label.note for label in labels}
        self.position, self.aspect = 0, ""
        self.go(self._next_open(-1))

    def _hash(self, text: str) -> str:
        return hashlib.sha256(f"{self.seed}/{text}".encode()).hexdigest()

    @property
    def item(self) -> LabelItem:
        """The item at the position."""
        return self.items[self.position]

    def candidates(self, item: LabelItem | None = None) -> dict[str, str]:
        """An item's candidates as they are shown: letter -> name in the file."""
        item = item or self.item
        names = list(item.candidates)
        if self.seed is not None:
            names.sort(key=lambda name: self._hash(f"{item.id}/{name}"))
        return {chr(ord("A") + place): name for place, name in enumerate(names)}

    def asked(self, item: LabelItem | None = None) -> dict[str, str]:
        """What is asked of an item: question by aspect."""
        item = item or self.item
        if not self.kind.each:
            return dict(self.kind.aspects or item.aspects)
        shown = self.candidates(item).items()
        return {
            f"{aspect}/{name}": f"{question} Rank of {letter} (1: best):"
            for aspect, question in self.kind.aspects.items()
            for letter, name in shown
        }

    def label_of(self, aspect: str, item: LabelItem | None = None) -> str:
        """The label that an aspect of an item has, as in the file; empty when it has none."""
        return self._labels.get(((item or self.item).id, aspect), "")

    def edited_texts(self) -> dict[str, str]:
        """The texts of the item that may be changed, by heading, as they were last edited."""
        texts = {heading: self.item.texts[heading] for heading in self.kind.edited}
        return texts | read_edits(self._notes.get((self.item.id, self.aspect), ""))

    def edits_note(self, texts: Mapping[str, str]) -> str:
        """Write what was changed as a note for `press`; empty when nothing was."""
        changed = {heading: text for heading, text in texts.items() if text.strip() != self.item.texts[heading].strip()}
        return json.dumps(changed, ensure_ascii=False) if changed else ""

    def is_done(self, item: LabelItem) -> bool:
        """Whether all that is asked of an item has a label."""
        return all(self.label_of(aspect, item) for aspect in self.asked(item))

    @property
    def done(self) -> int:
        """How many items are done."""
        return sum(self.is_done(item) for item in self.items)

    @property
    def labels(self) -> list[Label]:
        """This annotator's labels that hold, of the session's items."""
        known = {item.id for item in self.items}
        held = ((*key, label) for key, label in self._labels.items() if key[0] in known)
        return [Label(self.kind.name, *key, self.annotator, "") for key in held]

    def go(self, position: int) -> None:
        """Show another item (beyond an end, the last or first) and ask what is open of it."""
        self.position = min(max(position, 0), len(self.items) - 1)
        self.aspect = next((a for a in self.asked() if not self.label_of(a)), next(iter(self.asked())))

    def next_open(self) -> None:
        """Show the next item that is not done, from the start again after the end; stay when all are."""
        self.go(self._next_open(self.position))

    def _next_open(self, after: int) -> int:
        order = [*range(after + 1, len(self.items)), *range(after + 1)]
        return next((i for i in order if not self.is_done(self.items[i])), max(after, 0))

    def step_aspect(self, step: int) -> None:
        """Ask the next (1) or the previous (-1) question about the item, staying at the ends."""
        asked = list(self.asked())
        self.aspect = asked[min(max(asked.index(self.aspect) + step, 0), len(asked) - 1)]

    def choices(self) -> dict[str, str]:
        """The keys that mean something now, and what."""
        choices = {key: self.kind.labels[label] for key, label in self.kind.keys.items()}
        return dict(list(choices.items())[: len(self.item.candidates)]) if self.kind.each else choices

    def press(self, key: str, note: str = "") -> bool:
        """Write the label of a key and move on: to the next question of the item, or to the next open item.

        An unknown key does nothing. Returns whether a label was written.
        """
        if key not in self.choices():
            return False
        label, before = self._turned(self.kind.keys[key]), self.label_of(self.aspect)
        at = datetime.now(UTC).isoformat(timespec="seconds")
        row = Label(self.kind.name, self.item.id, self.aspect, label, self.annotator, at, note)
        append_labels(self.path, [row])  # raises on a full disk: the item stays open then
        self._labels[self.item.id, self.aspect], self._notes[self.item.id, self.aspect] = label, note
        asked = list(self.asked())
        later = asked[asked.index(self.aspect) + 1 :]
        if not before:  # a first pass goes on to what is open; a correction walks through the rest of the item
            later = [aspect for aspect in later if not self.label_of(aspect)]
        if later:
            self.aspect = later[0]
        else:
            self.next_open() if self.is_done(self.item) else self.go(self.position)
        return True

    def _turned(self, label: str) -> str:
        """A preference in the file is about the candidates as given: turn it round when the sides are swapped."""
        swapped = self.kind.name == "preference" and list(self.candidates().values()) != list(self.item.candidates)
        return str(-int(label)) if swapped else label

    def shown_label(self, aspect: str) -> str:
        """The key that gives the label which an aspect has; empty without one."""
        label = self.label_of(aspect)
        return next((key for key, value in self.kind.keys.items() if label and value == self._turned(label)), "")
