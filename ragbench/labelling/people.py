"""Labels that people give: what is asked, the CSV file, and the way to the next item without a
label.

The wording is ours, the scales are the papers':

``grade``       the thesis's five categories (§2.4).
``preference``  RAGChecker's five-way comparison of two responses in three aspects (section 4.2).
``rubric``      RAGEval's score of a question with its answer and references, 0 to 5 (Figure 3).
``ranks``       RAGEval's order of several documents by four criteria, ties allowed (Figure 4); the
                aspect of a rank is "criterion/candidate".
``keypoints``   RAGEval's verdict on each keypoint of a true answer (section 3.5.2, Figure 6).
``draft``       whether a question that a model drafted counts; question and answer may be edited,
                which the note holds.

The file is one CSV for all kinds with the columns `COLUMNS`, to which rows are only appended. The
last row of a kind, item, aspect and annotator is what that person says; an empty label takes it
back. Two people may write to one file, or each to their own. The form in JupyterLab is
`ragbench.widgets.LabellingTool`.
"""

from __future__ import annotations

import csv
import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
from filelock import FileLock

from ragbench.data.files import each_record, read_text
from ragbench.errors import ConfigError, DataError, check_known
from ragbench.records import GRADES, Answer, Question, facts_of, questions_of
from ragbench.stats import binomial_ci, kappa

COLUMNS = ["kind", "item", "aspect", "label", "annotator", "at", "note"]


@dataclass(frozen=True, slots=True)
class _LabelKind:
    name: str
    title: str
    # what is asked, by the name in the file; empty when each item brings its own
    aspects: Mapping[str, str]
    labels: Mapping[str, str]  # what can be said, and what it means
    ordered: bool = False  # whether labels have distances, so a weighted kappa makes sense
    candidates: tuple[int, int] = (0, 0)  # least and greatest number of texts that an item compares
    each: bool = False  # whether every candidate has a label
    edited: tuple[str, ...] = ()  # headings of the texts that may be changed

    @property
    def keys(self) -> dict[str, str]:
        """The label that each key gives: a digit is its own key, else its place is."""
        if all(label.isdigit() for label in self.labels):
            return {label: label for label in self.labels}
        return {str(place): label for place, label in enumerate(self.labels, 1)}

    def is_aspect(self, aspect: str) -> bool:
        """Whether this kind asks for an aspect; any name of a keypoint is one."""
        criterion = aspect.partition("/")[0] if self.each else aspect
        return criterion in self.aspects or not self.aspects


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
                "safety": (
                    "Which document keeps clear of real people, firms and other sensitive facts?"
                ),
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
    """One thing to be labelled."""

    id: str  # its name in the file
    # what is shown, by heading; leave out who wrote it
    texts: Mapping[str, str] = field(default_factory=dict)
    # to be compared, by the name in the file
    candidates: Mapping[str, str] = field(default_factory=dict)
    # for keypoints, each one's text by its name
    aspects: Mapping[str, str] = field(default_factory=dict)


def grade_items(questions: Sequence[Question], answers: Sequence[Answer]) -> list[LabelItem]:
    """Make items for grades: question, true answer, what supports it, and the answer. The generator
    is not shown.

    An item's id is the answer's ``meta["id"]`` where it has one, else question id and generator.

    Source: thesis §2.4 (what its judge was shown).
    """
    items = []
    for answer, question in zip(answers, questions_of(answers, questions), strict=True):
        texts = {"Question": question.text, "True answer": question.answer}
        if question.references:
            texts["Supporting facts"] = "\n".join(facts_of(question))
        texts["Answer to be graded"] = answer.text or "(empty)"
        name = answer.meta.get("id") or f"{question.id}/{answer.generator}"
        items.append(LabelItem(str(name), texts))
    return items


def append_labels(path: str | Path, labels: pd.DataFrame | Iterable[Mapping[str, str]]) -> None:
    """Append rows with the columns `COLUMNS` (``at`` and ``note`` may be missing) to a label file,
    new or old.

    Writers take turns by a lock, so that a reader or a second annotator sees whole rows. Line
    breaks become blanks: one row, one line. DataError for a row that `load_labels` would refuse;
    nothing is written then.
    """
    path = Path(path).expanduser()
    rows = pd.DataFrame(labels, columns=COLUMNS, dtype=object).fillna("")
    rows = rows.map(lambda text: " ".join(str(text).splitlines()))
    for row in rows.to_numpy().tolist():
        _checked(row, f"{path}, a new row")
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_name(f".{path.name}.lock")), open(path, "a+b") as file:
        is_new = file.tell() == 0
        if not is_new and not _is_label_file(path):
            expected = f"the first line {','.join(COLUMNS)}"
            raise DataError(f"{path} is no label file", expected, "choose another file")
        lines = rows.to_csv(None, index=False, header=is_new, lineterminator="\n")
        file.write(lines.encode("utf-8"))


def load_labels(*paths: str | Path) -> pd.DataFrame:
    """Read label files, or all label files of a folder, every row in the order given; `current`
    gives what holds.

    DataError names file and line of every bad row.
    """
    files: list[Path] = []
    for path in map(Path, paths):
        path = path.expanduser()
        files += filter(_is_label_file, sorted(path.glob("*.csv"))) if path.is_dir() else [path]
    rows = []
    for file in files:
        first, *lines = read_text(file).splitlines()
        if first != ",".join(COLUMNS):
            do = "check that this is a label file; a spreadsheet may have changed its separator"
            raise DataError(
                f"{file}, line 1: {first[:80]!r}", f"the columns {','.join(COLUMNS)}", do
            )
        numbered = [
            (f"line {number}", row) for number, row in enumerate(csv.reader(lines), 2) if row
        ]
        rows += each_record(file, numbered, _checked)
    return pd.DataFrame(rows, columns=COLUMNS, dtype=object)


def current(labels: pd.DataFrame, kind: str | None = None) -> pd.DataFrame:
    """Keep the row that holds for each kind (or one), item, aspect and annotator: the last, if not
    taken back.
    """
    rows = labels if kind is None else labels[labels["kind"] == kind]
    rows = rows.drop_duplicates(["kind", "item", "aspect", "annotator"], keep="last")
    return rows[rows["label"] != ""].reset_index(drop=True)


def _is_label_file(path: Path) -> bool:
    with open(path, encoding="utf-8-sig", errors="replace") as file:
        return file.readline().rstrip("\r\n") == ",".join(COLUMNS)


def _checked(row: list[str], where: str) -> list[str]:
    fault = _fault(row)
    if fault:
        expected = "a row as the labelling form writes it"
        raise DataError(f"{where}: {fault}", expected, "correct or remove that line")
    return row


def _fault(row: Sequence[str]) -> str:
    """Say what is wrong with a row; nothing where it is as the form writes it."""
    if len(row) != len(COLUMNS):
        return f"{len(row)} columns instead of {len(COLUMNS)}"
    name, item, aspect, label, annotator, *_ = row
    if name not in KINDS:
        return f"the kind {name!r}; there are {', '.join(KINDS)}"
    kind = KINDS[name]
    if not all(cell.strip() for cell in (item, annotator, aspect)):
        return "an empty item, aspect or annotator"
    if not kind.is_aspect(aspect):
        return f"the aspect {aspect!r} of {name}; it has {', '.join(kind.aspects)}"
    if label not in ("", *kind.labels):
        return f"the label {label!r} of {name}; it has {', '.join(kind.labels)}"
    return ""


def agreement(
    a: pd.DataFrame, b: pd.DataFrame, *, resamples: int = 2000, seed: int = 0
) -> pd.DataFrame:
    """Compare two annotators' labels of one kind, one person's rows each (`current` is applied).

    ``resamples``, ``seed``: of kappa's bootstrap interval. DataFrame, one row per aspect
    (keypoints: one for all of them; ranks: one per criterion), with the columns

    n, only_a, only_b : labels that both gave (of the same item and aspect), and that only one gave.
    agreement, agreement_low, agreement_high : share of equal labels, with an exact interval.
    kappa, kappa_low, kappa_high : Cohen's, unweighted.
    weighted_kappa, within_one : with quadratic weights, and the share at most one step apart, where
    labels have
        distances; else NaN.

    Source: Cohen (1960, 1968). RAGChecker, section 4.2 (within one step: 90.95%).
    """
    sides = [current(a), current(b)]
    both = pd.concat(sides)
    kinds = sorted(set(both["kind"]))
    people = sorted(set(both["annotator"]))
    if len(kinds) != 1 or len(people) != 2 or any(one["annotator"].nunique() > 1 for one in sides):
        got = f"labels of kind {', '.join(kinds)} by {', '.join(people)}"
        do = "take current(labels, kind), and each person's rows of it"
        raise DataError(got, "one kind, two people", do)
    kind = KINDS[kinds[0]]
    table = sides[0].merge(sides[1], on=["item", "aspect"], how="outer", suffixes=("_a", "_b"))
    criterion = table["aspect"].str.partition("/")[0] if kind.each else table["aspect"]
    rows = []
    for aspect in kind.aspects or ["all keypoints"]:
        labels = table[criterion == aspect] if kind.aspects else table
        labels = labels[["label_a", "label_b"]]
        counts = {
            "aspect": aspect,
            "n": len(labels.dropna()),
            "only_a": labels["label_b"].isna().sum(),
            "only_b": labels["label_a"].isna().sum(),
        }
        rows.append({**counts, **_agreement(labels.dropna(), kind, resamples, seed)})
    return pd.DataFrame(rows)


def _agreement(labels: pd.DataFrame, kind: _LabelKind, resamples: int, seed: int) -> dict[str, Any]:
    """Measure the agreement of two columns of labels."""
    first = labels["label_a"]
    second = labels["label_b"]
    options: dict[str, Any] = {"labels": list(kind.labels), "resamples": resamples, "seed": seed}
    measured = {
        **binomial_ci(int((first == second).sum()), len(labels)).columns("agreement"),
        **kappa(first, second, **options).columns("kappa"),
        "weighted_kappa": math.nan,
        "within_one": math.nan,
    }
    if kind.ordered:
        measured["weighted_kappa"] = kappa(first, second, weights="quadratic", **options).estimate
        measured["within_one"] = (first.astype(float) - second.astype(float)).abs().le(1).mean()
    return measured


class Session:
    """Label items in a blind, seeded order; every label is in the file before the next item is
    shown.

    ``kind`` is a name in `KINDS`, ``path`` the label file, which is read to resume. ``seed`` orders
    the items and each item's candidates, by a hash of seed and id: the order stays the same when
    items are added or the session is resumed. None: as given. ``position`` is the index of the item
    in ``items``, ``aspect`` what is asked next of it. ConfigError for items that do not fit the
    kind, or no annotator. The form in JupyterLab only draws it.
    """

    def __init__(
        self,
        items: Sequence[LabelItem],
        kind: str,
        annotator: str,
        path: str | Path,
        seed: int | None = 0,
    ) -> None:
        check_known("kind of labels", [kind], KINDS)
        self.kind = KINDS[kind]
        self.seed = seed
        self.path = Path(path).expanduser()
        self.annotator = annotator.strip()
        if not self.annotator:
            raise ConfigError("no annotator", "a name or initials", "pass annotator='...'")
        names = {item.id for item in items}
        if not items or len(names) != len(items):
            raise ConfigError(
                f"{len(items)} items with {len(names)} ids", "one or more, an id each"
            )
        for item in items:
            self._check(item)
        self.items = list(items)
        if seed is not None:
            self.items.sort(key=lambda item: self._hash(item.id))
        # item and aspect -> label and note
        self._labels: dict[tuple[str, str], tuple[str, str]] = {}
        if self.path.is_file() and self.path.stat().st_size:
            rows = current(load_labels(self.path), kind)
            for row in rows[rows["annotator"] == self.annotator].itertuples():
                self._labels[row.item, row.aspect] = row.label, row.note
        self.position = 0
        self.aspect = ""
        self.next_open(-1)

    def _check(self, item: LabelItem) -> None:
        low, high = self.kind.candidates
        if not low <= len(item.candidates) <= high:
            got = f"item {item.id!r} with {len(item.candidates)} candidates"
            raise ConfigError(got, f"{low} to {high} of them for {self.kind.name}")
        if bool(self.kind.aspects) == bool(item.aspects):
            expected = "none: the kind has its own" if self.kind.aspects else "one per keypoint"
            raise ConfigError(f"item {item.id!r} with {len(item.aspects)} aspects", expected)

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
        return {
            f"{aspect}/{name}": f"{question} Rank of {letter} (1: best):"
            for aspect, question in self.kind.aspects.items()
            for letter, name in self.candidates(item).items()
        }

    def _label_of(self, aspect: str, item: LabelItem) -> str:
        return self._labels.get((item.id, aspect), ("", ""))[0]

    def edited_texts(self) -> dict[str, str]:
        """The texts of the item that may be changed, by heading, as they were last edited."""
        texts = {heading: self.item.texts[heading] for heading in self.kind.edited}
        if texts:
            _, note = self._labels.get((self.item.id, self.aspect), ("", ""))
            texts |= read_edits(note)
        return texts

    def edits_note(self, texts: Mapping[str, str]) -> str:
        """Write what was changed as a note for `press`; empty when nothing was."""
        changed = {
            heading: text
            for heading, text in texts.items()
            if text.strip() != self.item.texts[heading].strip()
        }
        return json.dumps(changed, ensure_ascii=False) if changed else ""

    def _is_done(self, item: LabelItem) -> bool:
        return all(self._label_of(aspect, item) for aspect in self.asked(item))

    @property
    def done(self) -> int:
        """How many items have all labels that are asked for."""
        return sum(self._is_done(item) for item in self.items)

    @property
    def labels(self) -> pd.DataFrame:
        """This annotator's labels that hold, of the session's items: the columns kind to annotator
        of the file.
        """
        known = {item.id for item in self.items}
        rows = []
        for (item, aspect), (label, _) in self._labels.items():
            if item in known:
                rows.append((self.kind.name, item, aspect, label, self.annotator))
        return pd.DataFrame(rows, columns=COLUMNS[:5], dtype=object)

    def go(self, position: int) -> None:
        """Show another item (beyond an end, the last or first) and ask what is open of it."""
        self.position = min(max(position, 0), len(self.items) - 1)
        aspects = list(self.asked())
        open_aspects = [aspect for aspect in aspects if not self._label_of(aspect, self.item)]
        self.aspect = (open_aspects or aspects)[0]

    def next_open(self, after: int | None = None) -> None:
        """Show the next item after a position that is not done, from the start again; stay when all
        are.
        """
        after = self.position if after is None else after
        order = [*range(after + 1, len(self.items)), *range(after + 1)]
        self.go(next((i for i in order if not self._is_done(self.items[i])), after))

    def step_aspect(self, step: int) -> None:
        """Ask the next (1) or the previous (-1) question about the item, staying at the ends."""
        aspects = list(self.asked())
        place = aspects.index(self.aspect) + step
        self.aspect = aspects[min(max(place, 0), len(aspects) - 1)]

    def choices(self) -> dict[str, str]:
        """The keys that mean something now, and what."""
        keys = self.kind.keys.items()
        choices = {key: self.kind.labels[label] for key, label in keys}
        if self.kind.each:  # as many ranks as there are candidates
            choices = dict(list(choices.items())[: len(self.item.candidates)])
        return choices

    def press(self, key: str, note: str = "") -> bool:
        """Write the label of a key, if it has one, and move on to what is open.

        Return whether it was written.
        """
        if key not in self.choices():
            return False
        row = {
            "kind": self.kind.name,
            "item": self.item.id,
            "aspect": self.aspect,
            "label": self._turned(self.kind.keys[key]),
            "annotator": self.annotator,
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "note": note,
        }
        append_labels(self.path, [row])  # raises on a full disk: the item stays open
        is_first = not self._label_of(self.aspect, self.item)
        self._labels[self.item.id, self.aspect] = row["label"], note
        aspects = list(self.asked())
        later = aspects[aspects.index(self.aspect) + 1 :]
        # a first pass goes on to what is open; a correction walks through the rest of the item
        if is_first:
            later = [aspect for aspect in later if not self._label_of(aspect, self.item)]
        if later:
            self.aspect = later[0]
        elif self._is_done(self.item):
            self.next_open()
        else:
            self.go(self.position)
        return True

    def _turned(self, label: str) -> str:
        """A preference in the file is about the candidates as given: turn it round when the sides
        are swapped.
        """
        is_swapped = list(self.candidates().values()) != list(self.item.candidates)
        return str(-int(label)) if self.kind.name == "preference" and is_swapped else label

    def shown_label(self, aspect: str) -> str:
        """The key that gives the label which an aspect has; empty without one."""
        label = self._label_of(aspect, self.item)
        if not label:
            return ""
        key_of = {value: key for key, value in self.kind.keys.items()}
        return key_of[self._turned(label)]


def read_edits(note: str) -> dict[str, str]:
    """Return the texts that the note of an edited item holds, by heading."""
    edits = json.loads(note) if note.startswith("{") else {}
    return {heading: text for heading, text in edits.items() if text.strip()}
