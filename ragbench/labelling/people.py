"""Labels that people give: what is asked, the CSV file, and the way to the next item without a
label.

The wording is ours, the scales are the papers':

``grade``       the thesis's five categories (§2.4).
``rubric``      RAGEval's score of a question with its answer and references, 0 to 5 (Figure 3).
``keypoints``   RAGEval's verdict on each keypoint of a true answer (section 3.5.2, Figure 6).
``draft``       whether a question that a model drafted counts.

The file is one CSV for all kinds with the columns `LABEL_COLUMNS`, to which rows are only appended.
The last row of a kind, item, aspect and annotator is what that person says; with an empty label it
takes back what was said. Two people may write to one file, or each to their own. The form in
JupyterLab is `ragbench.widgets.LabellingTool`.
"""

from __future__ import annotations

import csv
import hashlib
import warnings
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pandas as pd
from filelock import FileLock

from ragbench.data.files import each_record
from ragbench.errors import ConfigError, DataError, check_known
from ragbench.paths import refuse_stream
from ragbench.records import GRADES
from ragbench.stats import binomial_ci, kappa

_POOLED = "all keypoints"
# The thesis's categories, as the codebook of `ragbench init --study` has them: 4 is *wrong*.
_CODEBOOK = (5, 4, 2, 3, 1)
LABEL_COLUMNS = ["kind", "item", "aspect", "label", "annotator", "at", "note"]
_HEAD = ",".join(LABEL_COLUMNS)  # the first line of a label file


@dataclass(frozen=True, slots=True)
class _LabelKind:
    name: str
    title: str
    # what is asked, by the name in the file; empty when each item brings its own
    aspects: Mapping[str, str]
    labels: Mapping[str, str]  # what can be said, and what it means
    ordered: bool = False  # whether labels have distances, so a weighted kappa makes sense
    own_scale: bool = False  # whether an item may bring other numbers than these


LABEL_KINDS: Mapping[str, _LabelKind] = {
    kind.name: kind
    for kind in (
        _LabelKind(
            "grade",
            "Grade the answer",
            {"grade": "Which category fits the answer?"},
            {str(grade): GRADES[grade] for grade in _CODEBOOK},
            own_scale=True,
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
            "Accept or drop the draft",
            {"draft": "Does this question count, with this answer and this evidence?"},
            {"accept": "accept", "drop": "drop"},
        ),
    )
}


@dataclass(frozen=True)
class LabelItem:
    """One thing to be labelled.

    >>> item = rb.LabelItem("q1", {"question": "Who built the mill?", "answer": "Ada"})
    >>> item.texts["answer"]
    'Ada'
    """

    id: str  # its name in the file
    # what is shown, by heading; leave out who wrote it
    texts: Mapping[str, str] = field(default_factory=dict)
    # for keypoints, each one's text by its name
    aspects: Mapping[str, str] = field(default_factory=dict)
    # the grades of a judge with its own scale, digits, and their meaning; empty: those of the kind
    labels: Mapping[str, str] = field(default_factory=dict)


def append_labels(path: str | Path, labels: pd.DataFrame | Iterable[dict[str, str]]) -> None:
    """Append rows with the columns `LABEL_COLUMNS` (``at`` and ``note`` may be missing) to a label
    file, new or old.

    Writers take turns by a lock, so that a reader or a second annotator sees whole rows. Line
    breaks become blanks: one row, one line. DataError for a row that `load_labels` would refuse;
    nothing is written then.

    >>> said = {"kind": "grade", "item": "q1", "aspect": "grade", "label": "5"}
    >>> rb.append_labels("labels.csv", [said | {"annotator": "me"}])
    >>> rb.append_labels("labels.csv", [said | {"annotator": "you", "label": "4"}])
    >>> rb.load_labels("labels.csv")["annotator"].tolist()
    ['me', 'you']
    """
    path = Path(path).expanduser()
    refuse_stream(path)
    rows = pd.DataFrame(labels, columns=LABEL_COLUMNS, dtype=object).fillna("")
    rows = rows.map(lambda text: " ".join(str(text).splitlines()))
    for row in rows.to_numpy().tolist():
        _checked(row, f"{path}, a new row")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_name(f".{path.name}.lock")):
            _append(path, rows)
    except OSError as error:
        raise DataError(
            f"the labels cannot be written to {path}: {error.strerror}",
            "a file in a folder that you may write to",
            "choose another path=, or free the disk",
        ) from None


def _append(path: Path, rows: pd.DataFrame) -> None:
    with open(path, "ab") as file:
        held = path.read_bytes()
        if held and not _is_label_file(path):
            raise DataError(
                f"{path} is not a label file", f"the first line {_HEAD}", "choose another file"
            )
        if held and not held.endswith((b"\n", b"\r")):
            file.write(b"\n")  # after a line that was cut off
        file.write(rows.to_csv(index=False, header=not held, lineterminator="\n").encode())


def load_labels(*paths: str | Path) -> pd.DataFrame:
    """Read label files, or all label files of a folder, every row in the order given; `current`
    gives what holds.

    A line that was cut off when it was written is left out with a warning. DataError names file and
    line of every other bad row.

    >>> said = {"kind": "grade", "item": "q1", "aspect": "grade", "label": "5"}
    >>> rb.append_labels("labels.csv", [said | {"annotator": "me"}])
    >>> rb.load_labels("labels.csv")["label"].tolist()
    ['5']
    """
    files: list[Path] = []
    for path in paths:
        path = Path(path).expanduser()
        if path.is_dir():
            files += filter(_is_label_file, sorted(path.glob("*.csv")))
        else:
            files.append(path)
    rows = []
    for file in files:
        refuse_stream(file)
        rows += each_record(file, _cells_of(file), _checked, None)
    return pd.DataFrame(rows, columns=LABEL_COLUMNS, dtype=object)


def _cells_of(file: Path) -> list[tuple[str, list[str]]]:
    """Return the cells of a label file, by line."""
    first, *lines = file.read_text(encoding="utf-8-sig", errors="replace").splitlines() or [""]
    if first != _HEAD:
        raise DataError(
            f"{file}, line 1: {first[:80]!r}",
            f"the columns {_HEAD}",
            "check that this is a label file; a spreadsheet may have changed its separator",
        )
    cells = []
    for number, line in enumerate(lines, 2):
        row = next(csv.reader([line]), [])
        if 0 < len(row) < len(LABEL_COLUMNS):
            warnings.warn(
                f"{file}, line {number} was cut off when it was written, and is left out: "
                f"{line!r}; give that label again",
                stacklevel=3,
            )
        elif row:
            cells.append((f"line {number}", row))
    return cells


def current(labels: pd.DataFrame, kind: str | None = None) -> pd.DataFrame:
    """Keep the row that holds for each kind (or one), item, aspect and annotator: the last, unless
    it takes a label back.
    """
    if kind is not None:
        labels = labels[labels["kind"] == kind]
    held = labels.drop_duplicates(["kind", "item", "aspect", "annotator"], keep="last")
    return held[held["label"] != ""].reset_index(drop=True)


def _is_label_file(path: Path) -> bool:
    refuse_stream(path)
    with open(path, encoding="utf-8-sig", errors="replace") as file:
        return file.readline().rstrip("\r\n") == _HEAD


def _checked(row: list[str], where: str) -> list[str]:
    """Return a row that is as the form writes it."""
    fault = _fault(row)
    if fault:
        raise DataError(
            f"{where}: {fault}",
            "a row as the labelling form writes it",
            "correct or remove that line",
        )
    return row


def _fault(row: list[str]) -> str:
    """Say what is wrong with a row; an empty text where nothing is."""
    if len(row) != len(LABEL_COLUMNS):
        return f"{len(row)} columns instead of {len(LABEL_COLUMNS)}"
    name, item, aspect, label, annotator, *_ = row
    kind = LABEL_KINDS.get(name)
    if kind is None:
        return f"the kind {name!r}; there are {', '.join(LABEL_KINDS)}"
    for column, text in (("item", item), ("aspect", aspect), ("annotator", annotator)):
        if not text.strip():
            return f"an empty {column}"
    if kind.aspects and aspect not in kind.aspects:
        return f"the aspect {aspect!r} of {name}; there are {', '.join(kind.aspects)}"
    is_of_own_scale = kind.own_scale and label.isdigit()
    if label and label not in kind.labels and not is_of_own_scale:
        return f"the label {label!r} of {name}; there are {', '.join(kind.labels)}"
    return ""


def agreement(a: pd.DataFrame, b: pd.DataFrame, *, resamples: int = 2000) -> pd.DataFrame:
    """Compare two people's labels of one kind, one person's rows each (`current` is applied).

    ``resamples``: of kappa's bootstrap interval. DataFrame, one row per aspect
    (keypoints: one for all of them), with the columns

    n : labels that both gave, of the same item and aspect.
    agreement, agreement_low, agreement_high : share of equal labels, with an exact interval.
    kappa, kappa_low, kappa_high : Cohen's; a difference counts by its square where labels have
        distances (rubric scores).

    Source: Cohen (1960, 1968).
    """
    a = current(a)
    b = current(b)
    every = pd.concat([a, b])
    kinds = every["kind"].unique().tolist()
    people = every["annotator"].unique().tolist()
    if len(kinds) != 1 or len(people) != 2 or a["annotator"].nunique() != 1:
        raise DataError(
            f"labels of kind {', '.join(kinds)} by {', '.join(people)}",
            "one kind, two people",
            "take current(labels, kind), and each person's rows of it",
        )
    kind = LABEL_KINDS[kinds[0]]
    both = a.merge(b, on=["item", "aspect"], suffixes=("_a", "_b"))
    if not kind.aspects:
        both["aspect"] = _POOLED
    rows = []
    for aspect in kind.aspects or [_POOLED]:
        of_aspect = both[both["aspect"] == aspect]
        rows.append({"aspect": aspect, **_agreement(of_aspect, kind, resamples)})
    return pd.DataFrame(rows)


def _agreement(both: pd.DataFrame, kind: _LabelKind, resamples: int) -> dict[str, float]:
    first = both["label_a"]
    second = both["label_b"]
    weights = "quadratic" if kind.ordered else None
    equal = binomial_ci(int((first == second).sum()), len(both))
    labels = list(dict.fromkeys([*kind.labels, *sorted({*first, *second})]))
    beyond_chance = kappa(
        first.tolist(), second.tolist(), weights=weights, labels=labels, resamples=resamples
    )
    return {"n": len(both)} | equal.columns("agreement") | beyond_chance.columns("kappa")


class Session:
    """Label items in a blind, seeded order; every label is in the file before the next item is
    shown.

    ``kind`` is a name in `LABEL_KINDS`, ``path`` the label file, which is read to resume. ``seed``
    orders the items by a hash of seed and id: the order stays the same when items are added or the
    session is resumed. None: as given. ``position`` is the index of the
    item in ``items``, ``aspect`` what is asked next of it. ConfigError for items that do not fit
    the kind, or no annotator. The form in JupyterLab only draws it.
    """

    def __init__(
        self,
        items: Sequence[LabelItem],
        kind: str,
        annotator: str,
        path: str | Path,
        seed: int | None = 0,
    ) -> None:
        check_known("kind of labels", [kind], LABEL_KINDS)
        self.kind = LABEL_KINDS[kind]
        self.seed = seed
        self.path = Path(path).expanduser()
        self.annotator = annotator.strip()
        if not self.annotator:
            raise ConfigError("no annotator", "a name or initials", "pass annotator='...'")
        _check_items(items, self.kind)
        self.items = sorted(items, key=lambda item: self._place(item.id))
        self._labels = self._recorded()
        # of this session: position, aspect, and the label that was replaced
        self._given: list[tuple[int, str, _Label]] = []
        self.position = 0
        self.aspect = ""
        self.next_open(-1)

    def _recorded(self) -> defaultdict[tuple[str, str], _Label]:
        """Return this annotator's labels in the file, by item and aspect."""
        labels: defaultdict[tuple[str, str], _Label] = defaultdict(lambda: _Label("", ""))
        if self.path.is_file() and self.path.stat().st_size:
            rows = current(load_labels(self.path), self.kind.name)
            own = rows[rows["annotator"] == self.annotator]
            cells = own[["item", "aspect", "label", "note"]].to_numpy().tolist()
            for item, aspect, label, note in cells:
                labels[item, aspect] = _Label(label, note)
        return labels

    def _place(self, name: str) -> str:
        """Return what orders names: a hash with the seed; without a seed all are alike."""
        if self.seed is None:
            return ""
        return hashlib.sha256(f"{self.seed}/{name}".encode()).hexdigest()

    @property
    def item(self) -> LabelItem:
        """The item at the position."""
        return self.items[self.position]

    def aspect_questions(self, item: LabelItem | None = None) -> dict[str, str]:
        """What is asked of an item: question by aspect."""
        return dict(self.kind.aspects or (item or self.item).aspects)

    def _open(self, item: LabelItem) -> list[str]:
        """Return the aspects of an item that have no label."""
        aspects = self.aspect_questions(item)
        return [aspect for aspect in aspects if not self._labels[item.id, aspect].label]

    def open_positions(self) -> list[int]:
        """The positions of the items that lack a label."""
        return [place for place, item in enumerate(self.items) if self._open(item)]

    @property
    def done(self) -> int:
        """How many items have all labels that are asked for."""
        return len(self.items) - len(self.open_positions())

    @property
    def labels(self) -> pd.DataFrame:
        """This annotator's labels that hold, of the session's items: the columns kind to annotator
        of the file.
        """
        ids = {item.id for item in self.items}
        rows = []
        for (item, aspect), given in self._labels.items():
            if item in ids and given.label:
                rows.append((self.kind.name, item, aspect, given.label, self.annotator))
        return pd.DataFrame(rows, columns=LABEL_COLUMNS[:5], dtype=object)

    def go(self, position: int) -> None:
        """Show another item (beyond an end, the last or first) and ask what is open of it."""
        self.position = min(max(position, 0), len(self.items) - 1)
        self.aspect = [*self._open(self.item), *self.aspect_questions()][0]

    def next_open(self, after: int | None = None) -> None:
        """Show the next item after a position that is not done, from the start again; stay when all
        are.
        """
        if after is None:
            after = self.position
        places = self.open_positions() or [after]
        self.go(min(places, key=lambda place: (place <= after, place)))

    def step_aspect(self, step: int) -> None:
        """Ask the next (1) or the previous (-1) question about the item, staying at the ends."""
        aspects = list(self.aspect_questions())
        place = aspects.index(self.aspect) + step
        self.aspect = aspects[min(max(place, 0), len(aspects) - 1)]

    @property
    def _scale(self) -> Mapping[str, str]:
        """What can be said of the item, and what it means: its own labels, else the kind's."""
        return self.item.labels or self.kind.labels

    def _label_of_key(self) -> dict[str, str]:
        """The label that each key gives: a digit is its own key, else its place is."""
        labels = self._scale
        if all(label.isdigit() and len(label) == 1 for label in labels):
            return {label: label for label in labels}
        return {str(place): label for place, label in enumerate(labels, 1)}

    def choices(self) -> dict[str, str]:
        """The keys that mean something for this item, and what, in the order of the scale."""
        return {key: self._scale[label] for key, label in self._label_of_key().items()}

    def note(self, item: LabelItem) -> str:
        """What this annotator noted with an item's labels; empty without a note."""
        notes = [self._labels[item.id, aspect].note for aspect in self.aspect_questions(item)]
        return "; ".join(filter(None, notes))

    def undo(self) -> bool:
        """Take the last label of this session back, and show its item.

        Return whether there was one. A label that the item had before holds again.
        """
        if not self._given:
            return False
        position, aspect, before = self._given[-1]
        self._write(self.items[position].id, aspect, before)
        self._given.pop()
        self.position = position
        self.aspect = aspect
        return True

    def press(self, key: str, note: str = "") -> bool:
        """Write the label of a key, if it has one, and move on to what is open.

        Return whether it was written.
        """
        label_of_key = self._label_of_key()
        if key not in label_of_key:
            return False
        before = self._labels[self.item.id, self.aspect]
        given = _Label(label_of_key[key], note)
        self._write(self.item.id, self.aspect, given)
        self._given.append((self.position, self.aspect, before))
        if self._open(self.item):
            self.go(self.position)  # first what is open of this item
        else:
            self.next_open()
        return True

    def _write(self, item: str, aspect: str, given: _Label) -> None:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        cells = (self.kind.name, item, aspect, given.label, self.annotator, now, given.note)
        # on a full disk it raises
        append_labels(self.path, [dict(zip(LABEL_COLUMNS, cells, strict=True))])
        self._labels[item, aspect] = given

    def shown_label(self, aspect: str) -> str:
        """The key that gives the label which an aspect has; empty without one."""
        label = self._labels[self.item.id, aspect].label
        key_of = {own: key for key, own in self._label_of_key().items()}
        return key_of.get(label, "")  # a label of another scale has no key


class _Label(NamedTuple):
    """What an annotator said of an aspect of an item; an empty label: nothing, or no more."""

    label: str
    note: str


def _check_items(items: Sequence[LabelItem], kind: _LabelKind) -> None:
    """ConfigError for items that do not fit the kind."""
    ids = {item.id for item in items}
    if not items or len(ids) != len(items):
        raise ConfigError(f"{len(items)} items with {len(ids)} ids", "one or more, an id each")
    aspects = "none: the kind has its own" if kind.aspects else "one per keypoint"
    for item in items:
        if bool(kind.aspects) == bool(item.aspects):
            raise ConfigError(f"item {item.id!r} with {len(item.aspects)} aspects", aspects)
