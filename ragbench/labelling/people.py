"""Labels that people give: what is asked, the CSV file, and the way to the next item without a
label.

The wording is ours, the scales are the papers':

``grade``       the thesis's five categories (§2.4).
``preference``  RAGChecker's five-way comparison of two responses in three aspects (section 4.2).
``rubric``      RAGEval's score of a question with its answer and references, 0 to 5 (Figure 3).
``keypoints``   RAGEval's verdict on each keypoint of a true answer (section 3.5.2, Figure 6).
``draft``       whether a question that a model drafted counts.

The file is one CSV for all kinds with the columns `LABEL_COLUMNS`, to which rows are only appended.
The last row of a kind, item, aspect and annotator is what that person says. Two people may write to
one file, or each to their own. The form in JupyterLab is `ragbench.widgets.LabellingTool`.
"""

from __future__ import annotations

import csv
import hashlib
import math
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd
from filelock import FileLock

from ragbench.data.files import each_record, read_text
from ragbench.errors import ConfigError, DataError, check_known
from ragbench.paths import written_whole
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
    candidates: int = 0  # texts that an item compares
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
            candidates=2,
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
    """One thing to be labelled."""

    id: str  # its name in the file
    # what is shown, by heading; leave out who wrote it
    texts: Mapping[str, str] = field(default_factory=dict)
    # to be compared, by the name in the file
    candidates: Mapping[str, str] = field(default_factory=dict)
    # for keypoints, each one's text by its name
    aspects: Mapping[str, str] = field(default_factory=dict)
    # the grades of a judge with its own scale, digits, and their meaning; empty: those of the kind
    labels: Mapping[str, str] = field(default_factory=dict)


def append_labels(path: str | Path, labels: pd.DataFrame | Iterable[Mapping[str, str]]) -> None:
    """Append rows with the columns `LABEL_COLUMNS` (``at`` and ``note`` may be missing) to a label
    file, new or old.

    Writers take turns by a lock, so that a reader or a second annotator sees whole rows. Line
    breaks become blanks: one row, one line. DataError for a row that `load_labels` would refuse;
    nothing is written then.
    """
    path = Path(path).expanduser()
    rows = pd.DataFrame(labels, columns=LABEL_COLUMNS, dtype=object).fillna("")
    rows = rows.map(lambda text: " ".join(str(text).splitlines()))
    for row in rows.to_numpy().tolist():
        _checked(row, f"{path}, a new row")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_name(f".{path.name}.lock")), open(path, "a+b") as file:
            torn = _torn_end(path)
            file.truncate(file.tell() - len(torn))
            is_new = file.seek(0, os.SEEK_END) == 0
            if not is_new and not _is_label_file(path):
                raise DataError(
                    f"{path} is no label file", f"the first line {_HEAD}", "choose another file"
                )
            lines = rows.to_csv(None, index=False, header=is_new, lineterminator="\n")
            has_open_line = not is_new and not path.read_bytes().endswith((b"\n", b"\r"))
            file.write(has_open_line * b"\n" + lines.encode("utf-8"))
    except OSError as error:
        raise DataError(
            f"the labels cannot be written to {path}: {error.strerror}",
            "a file in a folder that you may write to",
            "choose another path=, or free the disk",
        ) from None
    _warn_of(path, torn, "removed")


def _remove_row(path: Path, row: Mapping[str, str]) -> None:
    """Take the last line of a label file that is this row out of it again."""
    wanted = [" ".join(str(row[name]).splitlines()) for name in LABEL_COLUMNS]
    with FileLock(path.with_name(f".{path.name}.lock")), written_whole(path) as new:
        lines = path.read_bytes().splitlines(keepends=True)
        rows = list(csv.reader(line.decode("utf-8-sig") for line in lines))
        if wanted not in rows:
            raise DataError(
                f"{path} does not hold the label any more: {','.join(wanted)}",
                "the file as the form writes it",
                "label the item again",
            )
        del lines[len(rows) - 1 - rows[::-1].index(wanted)]
        new.write_bytes(b"".join(lines))


def load_labels(*paths: str | Path) -> pd.DataFrame:
    """Read label files, or all label files of a folder, every row in the order given; `current`
    gives what holds.

    A last line that was cut off is left out with a warning. DataError names file and line of every
    other bad row.
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
        torn = _torn_end(file)
        if torn:
            _warn_of(file, torn, "left out")
            text = file.read_bytes().removesuffix(torn).decode("utf-8-sig") or _HEAD
        else:
            text = read_text(file)
        first, *lines = text.splitlines()
        if first != _HEAD:
            raise DataError(
                f"{file}, line 1: {first[:80]!r}",
                f"the columns {_HEAD}",
                "check that this is a label file; a spreadsheet may have changed its separator",
            )
        numbered = enumerate(csv.reader(lines), 2)
        cells = ((f"line {number}", row) for number, row in numbered if row)
        rows += each_record(file, cells, _checked, None)
    return pd.DataFrame(rows, columns=LABEL_COLUMNS, dtype=object)


def current(labels: pd.DataFrame, kind: str | None = None) -> pd.DataFrame:
    """Keep the row that holds for each kind (or one), item, aspect and annotator: the last."""
    if kind is not None:
        labels = labels[labels["kind"] == kind]
    held = labels.drop_duplicates(["kind", "item", "aspect", "annotator"], keep="last")
    return held.reset_index(drop=True)


def _torn_end(path: Path) -> bytes:
    """Return the last line of a label file where its writing broke off: neither a line break nor a
    whole row.
    """
    raw = path.read_bytes() if path.is_file() else b""
    start = max(raw.rfind(b"\n"), raw.rfind(b"\r")) + 1
    end = raw[start:]
    if start == 0:  # another file is none of ours to cut
        return end if _HEAD.encode().startswith(end) and end != _HEAD.encode() else b""
    try:
        rows = list(csv.reader([end.decode("utf-8")], strict=True))
    except (UnicodeDecodeError, csv.Error):
        return end
    return end if end and _fault(rows[0]) else b""


def _warn_of(path: Path, torn: bytes, what: str) -> None:
    if torn:
        text = torn.decode("utf-8", "replace")
        warnings.warn(
            f"{path}: the last line was cut off when it was written, and is {what}: {text!r}; give "
            "that label again",
            stacklevel=3,
        )


def _is_label_file(path: Path) -> bool:
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
    cells = dict(zip(LABEL_COLUMNS, row, strict=True))
    kind = LABEL_KINDS.get(cells["kind"])
    if kind is None:
        return f"the kind {cells['kind']!r}; there are {', '.join(LABEL_KINDS)}"
    for column in ("aspect", "label", "item", "annotator"):
        if not cells[column].strip():
            return f"an empty {column}"
    labels = kind.labels
    if kind.own_scale and cells["label"].isdigit():
        labels = {}  # of a judge's own scale
    for column, names in (("aspect", kind.aspects), ("label", labels)):
        if names and cells[column] not in names:
            valid = ", ".join(names)
            return f"the {column} {cells[column]!r} of {kind.name}; there are {valid}"
    return ""


def agreement(a: pd.DataFrame, b: pd.DataFrame, *, resamples: int = 2000) -> pd.DataFrame:
    """Compare two people's labels of one kind, one person's rows each (`current` is applied).

    ``resamples``: of kappa's bootstrap interval. DataFrame, one row per aspect
    (keypoints: one for all of them), with the columns

    n : labels that both gave, of the same item and aspect.
    agreement, agreement_low, agreement_high : share of equal labels, with an exact interval.
    kappa, kappa_low, kappa_high : Cohen's; a difference counts by its square where labels have
        distances (preferences, rubric scores).
    within_one : the share at most one step apart, where labels have distances; else NaN.

    Source: Cohen (1960, 1968). RAGChecker, section 4.2 (within one step: 90.95%).
    """
    a = current(a)
    b = current(b)
    kind = _shared_kind(a, b)
    both = a.merge(b, on=["item", "aspect"], suffixes=("_a", "_b"))
    if not kind.aspects:
        both["aspect"] = _POOLED
    rows = []
    for aspect in kind.aspects or [_POOLED]:
        of_aspect = both[both["aspect"] == aspect]
        labels = (of_aspect["label_a"], of_aspect["label_b"])
        rows.append({"aspect": aspect, **_agreement(*labels, kind, resamples)})
    return pd.DataFrame(rows)


def _shared_kind(a: pd.DataFrame, b: pd.DataFrame) -> _LabelKind:
    """Return the kind of two people's labels; DataError for several kinds or other people."""
    kinds = sorted({*a["kind"], *b["kind"]})
    by_a = sorted(set(a["annotator"]))
    by_b = sorted(set(b["annotator"]))
    if (len(kinds), len(by_a), len(by_b)) != (1, 1, 1) or by_a == by_b:
        raise DataError(
            f"labels of kind {', '.join(kinds)} by {by_a} and {by_b}",
            "one kind, two people",
            "take current(labels, kind), and each person's rows of it",
        )
    return LABEL_KINDS[kinds[0]]


def _agreement(
    first: pd.Series, second: pd.Series, kind: _LabelKind, resamples: int
) -> dict[str, float]:
    weights = None
    within_one = math.nan
    if kind.ordered:
        weights = "quadratic"
        steps = first.astype(float) - second.astype(float)
        within_one = steps.abs().le(1).mean()
    equal = binomial_ci(int((first == second).sum()), len(first))
    labels = list(dict.fromkeys([*kind.labels, *sorted({*first, *second})]))
    beyond_chance = kappa(first, second, weights=weights, labels=labels, resamples=resamples)
    intervals = equal.columns("agreement") | beyond_chance.columns("kappa")
    return {"n": len(first), **intervals, "within_one": within_one}


class Session:
    """Label items in a blind, seeded order; every label is in the file before the next item is
    shown.

    ``kind`` is a name in `LABEL_KINDS`, ``path`` the label file, which is read to resume. ``seed``
    orders the items and each item's candidates, by a hash of seed and id: the order stays the same
    when items are added or the session is resumed. None: as given. ``position`` is the index of the
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
        # of this session: position, row in the file, and the label and note that it replaced
        self._given: list[tuple[int, dict[str, str], tuple[str, str] | None]] = []
        self.position = 0
        self.aspect = ""
        self.next_open(-1)

    def _recorded(self) -> dict[tuple[str, str], tuple[str, str]]:
        """Return this annotator's labels in the file: item and aspect -> label and note."""
        labels: dict[tuple[str, str], tuple[str, str]] = {}
        if self.path.is_file() and self.path.stat().st_size:
            rows = current(load_labels(self.path), self.kind.name)
            for row in rows[rows["annotator"] == self.annotator].itertuples():
                labels[row.item, row.aspect] = (row.label, row.note)
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

    def candidates(self) -> list[str]:
        """The names of the item's candidates, in the order in which they are shown."""
        item = self.item
        return sorted(item.candidates, key=lambda name: self._place(f"{item.id}/{name}"))

    def aspect_questions(self, item: LabelItem | None = None) -> dict[str, str]:
        """What is asked of an item: question by aspect."""
        return dict(self.kind.aspects or (item or self.item).aspects)

    def _open(self, item: LabelItem) -> list[str]:
        """Return the aspects of an item that have no label."""
        return [
            aspect
            for aspect in self.aspect_questions(item)
            if (item.id, aspect) not in self._labels
        ]

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
        for (item, aspect), (label, _) in self._labels.items():
            if item in ids:
                rows.append((self.kind.name, item, aspect, label, self.annotator))
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
        n = len(self.items)
        for step in range(1, n + 1):
            place = (after + step) % n
            if self._open(self.items[place]):
                return self.go(place)
        return self.go(after)

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
        names = [(item.id, aspect) for aspect in self.aspect_questions(item)]
        notes = [self._labels[name][1] for name in names if name in self._labels]
        return "; ".join(filter(None, notes))

    def undo(self) -> bool:
        """Take the last label of this session out of the file again, and show its item.

        Return whether there was one. A label that the item had before holds again.
        """
        if not self._given:
            return False
        position, row, before = self._given[-1]
        _remove_row(self.path, row)
        self._given.pop()
        name = (row["item"], row["aspect"])
        self._labels.pop(name)
        if before is not None:
            self._labels[name] = before
        self.position = position
        self.aspect = row["aspect"]
        return True

    def press(self, key: str, note: str = "") -> bool:
        """Write the label of a key, if it has one, and move on to what is open.

        Return whether it was written.
        """
        label_of_key = self._label_of_key()
        if key not in label_of_key:
            return False
        item = self.item.id
        label = self._turned(label_of_key[key])
        now = datetime.now(UTC).isoformat(timespec="seconds")
        cells = (self.kind.name, item, self.aspect, label, self.annotator, now, note)
        row = dict(zip(LABEL_COLUMNS, cells, strict=True))
        append_labels(self.path, [row])  # on a full disk it raises
        self._given.append((self.position, row, self._labels.get((item, self.aspect))))
        self._labels[item, self.aspect] = (label, note)
        if self._open(self.item):
            self.go(self.position)  # first what is open of this item
        else:
            self.next_open()
        return True

    def _turned(self, label: str) -> str:
        """A preference in the file is about the candidates as given: turn it round when the sides
        are swapped.
        """
        if self.kind.name != "preference" or self.candidates() == list(self.item.candidates):
            return label
        return str(-int(label))

    def shown_label(self, aspect: str) -> str:
        """The key that gives the label which an aspect has; empty without one."""
        label, _ = self._labels.get((self.item.id, aspect), ("", ""))
        if not label:
            return ""
        key_of = {own: key for key, own in self._label_of_key().items()}
        return key_of.get(self._turned(label), "")  # a label of another scale has no key


def _check_items(items: Sequence[LabelItem], kind: _LabelKind) -> None:
    """ConfigError for items that do not fit the kind."""
    ids = {item.id for item in items}
    if not items or len(ids) != len(items):
        raise ConfigError(f"{len(items)} items with {len(ids)} ids", "one or more, an id each")
    aspects = "none: the kind has its own" if kind.aspects else "one per keypoint"
    for item in items:
        name = f"item {item.id!r}"
        if len(item.candidates) != kind.candidates:
            raise ConfigError(
                f"{name} with {len(item.candidates)} candidates",
                f"{kind.candidates} for {kind.name}",
            )
        if bool(kind.aspects) == bool(item.aspects):
            raise ConfigError(f"{name} with {len(item.aspects)} aspects", aspects)
