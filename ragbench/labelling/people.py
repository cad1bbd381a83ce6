"""Labels that people give: what is asked, the CSV file, and the way to the next item without a
label.

The wording is ours, the scales are the papers':

``grade``       the thesis's five categories (§2.4).
``preference``  RAGChecker's five-way comparison of two responses in three aspects (section 4.2).
``rubric``      RAGEval's score of a question with its answer and references, 0 to 5 (Figure 3).
``ranks``       RAGEval's order of several documents by four criteria, ties allowed (Figure 4); the
aspect of a rank is
                "criterion/candidate".
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
        """The key that gives each label: its own digit, or its place."""
        digits = all(label.isdigit() for label in self.labels)
        return {
            label if digits else str(place): label for place, label in enumerate(self.labels, 1)
        }


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
        name = answer.meta.get("id") or f"{question.id}/{answer.generator}"
        items.append(
            LabelItem(str(name), texts | {"Answer to be graded": answer.text or "(empty)"})
        )
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
        begun = file.tell() > 0
        if begun and not _is_label_file(path):
            raise DataError(
                f"{path} is no label file",
                f"the first line {','.join(COLUMNS)}",
                "choose another file",
            )
        file.write(
            rows.to_csv(None, index=False, header=not begun, lineterminator="\n").encode("utf-8")
        )


def load_labels(*paths: str | Path) -> pd.DataFrame:
    """Read label files, or all label files of a folder, every row in the order given; `current`
    gives what holds.

    DataError names file and line of every bad row.
    """
    rows = []
    for path in (Path(path).expanduser() for path in paths):
        for file in filter(_is_label_file, sorted(path.glob("*.csv"))) if path.is_dir() else [path]:
            lines = read_text(file).splitlines()
            if lines[0] != ",".join(COLUMNS):
                do = (
                    "check that this is a label file; a spreadsheet may have changed its "
                    "separator when saving"
                )
                raise DataError(
                    f"{file}, line 1: {lines[0][:80]!r}", f"the columns {','.join(COLUMNS)}", do
                )
            numbered = (
                (f"line {number}", row)
                for number, row in enumerate(csv.reader(lines[1:]), 2)
                if row
            )
            rows += each_record(file, numbered, _checked)
    return pd.DataFrame(rows, columns=COLUMNS, dtype=object)


def current(labels: pd.DataFrame, kind: str | None = None) -> pd.DataFrame:
    """Keep the row that holds for each kind (or one), item, aspect and annotator:

    the last, if not taken back.
    """
    rows = labels if kind is None else labels[labels["kind"] == kind]
    rows = rows.drop_duplicates(["kind", "item", "aspect", "annotator"], keep="last")
    return rows[rows["label"] != ""].reset_index(drop=True)


def _is_label_file(path: Path) -> bool:
    with open(path, encoding="utf-8-sig", errors="replace") as file:
        return file.readline().rstrip("\r\n") == ",".join(COLUMNS)


def _checked(row: list[str], where: str) -> list[str]:
    fault = ""
    if len(row) != len(COLUMNS):
        fault = f"{len(row)} columns instead of {len(COLUMNS)}"
    elif row[0] not in KINDS:
        fault = f"the kind {row[0]!r}; there are {', '.join(KINDS)}"
    else:
        name, item, aspect, label, annotator, *_ = row
        kind = KINDS[name]
        if not (item.strip() and annotator.strip() and aspect.strip()):
            fault = "an empty item, aspect or annotator"
        elif (
            kind.aspects and (aspect.partition("/")[0] if kind.each else aspect) not in kind.aspects
        ):
            fault = f"the aspect {aspect!r} of {name}; it has {', '.join(kind.aspects)}"
        elif label not in ("", *kind.labels):
            fault = f"the label {label!r} of {name}; it has {', '.join(kind.labels)}"
    if fault:
        raise DataError(
            f"{where}: {fault}", "a row as the labelling form writes it", "mend or remove that line"
        )
    return row


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
    a = current(a)
    b = current(b)
    kinds, people = ({*a[column], *b[column]} for column in ("kind", "annotator"))
    if (
        len(kinds) != 1
        or len(people) != 2
        or a["annotator"].nunique() != 1
        or b["annotator"].nunique() != 1
    ):
        got = f"labels of kind {', '.join(sorted(kinds))} by {', '.join(sorted(people))}"
        do = "take current(labels, kind), and each person's rows of it"
        raise DataError(got, "one kind, two people", do)
    kind = KINDS[kinds.pop()]
    table = a.merge(b, on=["item", "aspect"], how="outer", suffixes=("_a", "_b"))
    about = table["aspect"].str.partition("/")[0] if kind.each else table["aspect"]
    rows = []
    for aspect in kind.aspects or ("all keypoints",):
        given = table.loc[about.eq(aspect) | (not kind.aspects), ["label_a", "label_b"]]
        first, second = (given.dropna()[side] for side in given)
        counts = {
            "n": len(first),
            "only_a": given["label_b"].isna().sum(),
            "only_b": given["label_a"].isna().sum(),
        }
        shares = binomial_ci(int((first == second).sum()), len(first)).columns("agreement")
        options: dict[str, Any] = {
            "labels": list(kind.labels),
            "resamples": resamples,
            "seed": seed,
        }
        row = (
            {"aspect": aspect} | counts | shares | kappa(first, second, **options).columns("kappa")
        )
        row |= {"weighted_kappa": math.nan, "within_one": math.nan}
        if kind.ordered:
            row["weighted_kappa"] = kappa(first, second, weights="quadratic", **options).estimate
            row["within_one"] = (first.astype(float) - second.astype(float)).abs().le(1).mean()
        rows.append(row)
    return pd.DataFrame(rows)


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
        if not items or len({i.id for i in items}) != len(items):
            raise ConfigError(
                f"{len(items)} items with {len({i.id for i in items})} ids",
                "one or more, an id each",
            )
        if not annotator.strip():
            raise ConfigError("no annotator", "a name or initials", "pass annotator='...'")
        low, high = self.kind.candidates
        for item in items:
            if not low <= len(item.candidates) <= high:
                expected = f"{low} to {high} of them for {kind}"
                raise ConfigError(
                    f"item {item.id!r} with {len(item.candidates)} candidates", expected
                )
            if bool(self.kind.aspects) == bool(item.aspects):
                expected = "none: the kind has its own" if self.kind.aspects else "one per keypoint"
                raise ConfigError(f"item {item.id!r} with {len(item.aspects)} aspects", expected)
        self.annotator = annotator.strip()
        self.items = list(items) if seed is None else sorted(items, key=lambda i: self._hash(i.id))
        self._given: dict[
            tuple[str, str], tuple[str, str]
        ] = {}  # item and aspect -> label and note
        if self.path.is_file() and self.path.stat().st_size:
            rows = current(load_labels(self.path), kind)
            for row in rows[rows["annotator"] == self.annotator].itertuples():
                self._given[row.item, row.aspect] = row.label, row.note
        self.position = 0
        self.aspect = ""
        self.next_open(-1)

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
        return self._given.get((item.id, aspect), ("", ""))[0]

    def edited_texts(self) -> dict[str, str]:
        """The texts of the item that may be changed, by heading, as they were last edited."""
        _, note = (
            self._given.get((self.item.id, self.aspect), ("", "")) if self.kind.edited else ("", "")
        )
        return {heading: self.item.texts[heading] for heading in self.kind.edited} | read_edits(
            note
        )

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
        """This annotator's labels that hold, of the session's items:

        the columns kind to annotator of the file.
        """
        known = {item.id for item in self.items}
        given = ((*key, label) for key, (label, _) in self._given.items() if key[0] in known)
        rows = [(self.kind.name, *labelled, self.annotator) for labelled in given]
        return pd.DataFrame(rows, columns=COLUMNS[:5], dtype=object)

    def go(self, position: int) -> None:
        """Show another item (beyond an end, the last or first) and ask what is open of it."""
        self.position = min(max(position, 0), len(self.items) - 1)
        asked = list(self.asked())
        self.aspect = next(
            (aspect for aspect in asked if not self._label_of(aspect, self.item)), asked[0]
        )

    def next_open(self, after: int | None = None) -> None:
        """Show the next item after a position that is not done, from the start again;

        stay when all are.
        """
        after = self.position if after is None else after
        order = [*range(after + 1, len(self.items)), *range(after + 1)]
        self.go(next((i for i in order if not self._is_done(self.items[i])), after))

    def step_aspect(self, step: int) -> None:
        """Ask the next (1) or the previous (-1) question about the item, staying at the ends."""
        asked = list(self.asked())
        self.aspect = asked[min(max(asked.index(self.aspect) + step, 0), len(asked) - 1)]

    def choices(self) -> dict[str, str]:
        """The keys that mean something now, and what."""
        choices = {key: self.kind.labels[label] for key, label in self.kind.keys.items()}
        return (
            dict(list(choices.items())[: len(self.item.candidates)]) if self.kind.each else choices
        )

    def press(self, key: str, note: str = "") -> bool:
        """Write the label of a key, if it has one, and move on to what is open;

        return whether it was written.
        """
        if key not in self.choices():
            return False
        label = self._turned(self.kind.keys[key])
        before = self._label_of(self.aspect, self.item)
        at = datetime.now(UTC).isoformat(timespec="seconds")
        row = (self.kind.name, self.item.id, self.aspect, label, self.annotator, at, note)
        # raises on a full disk: the item stays open
        append_labels(self.path, [dict(zip(COLUMNS, row, strict=True))])
        self._given[self.item.id, self.aspect] = label, note
        asked = list(self.asked())
        later = asked[asked.index(self.aspect) + 1 :]
        # a first pass goes on to what is open; a correction walks through the rest of the item
        if not before:
            later = [aspect for aspect in later if not self._label_of(aspect, self.item)]
        if later:
            self.aspect = later[0]
        else:
            self.next_open() if self._is_done(self.item) else self.go(self.position)
        return True

    def _turned(self, label: str) -> str:
        """A preference in the file is about the candidates as given:

        turn it round when the sides are swapped.
        """
        swapped = self.kind.name == "preference" and list(self.candidates().values()) != list(
            self.item.candidates
        )
        return str(-int(label)) if swapped else label

    def shown_label(self, aspect: str) -> str:
        """The key that gives the label which an aspect has; empty without one."""
        label = self._label_of(aspect, self.item)
        return next(
            (
                key
                for key, value in self.kind.keys.items()
                if label and value == self._turned(label)
            ),
            "",
        )


def read_edits(note: str) -> dict[str, str]:
    """Return the texts that the note of an edited item holds, by heading."""
    edits = json.loads(note) if note.startswith("{") else {}
    return {heading: text for heading, text in edits.items() if text.strip()}
