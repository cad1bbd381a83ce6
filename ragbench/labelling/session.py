"""One person's way through the items, without a screen: order, position, keys, undo. The form only draws it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from ragbench.errors import ConfigError
from ragbench.labelling.kinds import LabelItem, kind_of, rank_label, ranks_of
from ragbench.labelling.store import Label, append_labels, by_annotator, current, load_labels


def _now() -> datetime:
    return datetime.now(UTC)


class Session:
    """Label items in a blind, seeded order; every label is on the disk before the next item is shown.

    Parameters
    ----------
    items : what to label; ids must differ.
    kind : a name in `ragbench.labelling.KINDS`.
    annotator : who labels.
    path : the label file; it is made when the first label is given, and read to resume.
    seed : order of the items and of each item's candidates, by a hash of seed and id: it stays the same when items are
        added or the session is resumed. None: as given.
    clock : for tests; returns a time with its zone.

    Raises
    ------
    ConfigError for no items, items that do not fit the kind, ids used twice or an empty annotator; DataError for bad
    rows in the file.

    Attributes
    ----------
    position : index of the item in `items`, the session's order. aspect : what is asked next of it.
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
        if not items or len({i.id for i in items}) != len(items) or not all(i.id.strip() for i in items):
            found = f"{len(items)} items with {len({i.id for i in items})} ids"
            raise ConfigError(found, "one or more, with an id each that is not empty", "mend the ids")
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
        self.position = 0
        self.aspect = ""
        self.typed: dict[str, int] = {}
        self.go(self._next_open(-1))

    def _hash(self, text: str) -> str:
        return hashlib.sha256(f"{self.seed}/{text}".encode()).hexdigest()

    @property
    def item(self) -> LabelItem:
        """The item at the position."""
        return self.items[self.position]

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
        asked = list(self.item.asked(self.kind))
        self.aspect = next((a for a in asked if not self.label_of(a)), asked[0])
        self.typed = {}

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

        Ranks take one key for each candidate, in the order shown; the last one gives the label.

        Returns
        -------
        Whether the label is complete and was written. An unknown key does nothing.
        """
        if key not in self.choices():
            return False
        if self.kind.labels:
            label = self._unshuffled(self.kind.keys[key])
        else:
            self.typed[self.candidates()[list(self.candidates())[len(self.typed)]]] = int(key)
            if len(self.typed) < len(self.item.candidates):
                return False
            label = rank_label(self.typed)
        before = self.label_of(self.aspect)
        self._append(self.aspect, label, note)
        self._undo.append((self.position, self.aspect, before))
        asked = list(self.item.asked(self.kind))
        later = asked[asked.index(self.aspect) + 1 :]
        if not before:  # a first pass goes on to what is open; who corrects a done item walks through all of it
            later = [a for a in later if not self.label_of(a)]
        if later:
            self.aspect, self.typed = later[0], {}
        elif self.is_done(self.item):
            self.next_open()
        else:
            self.go(self.position)
        return True

    def step_aspect(self, step: int) -> None:
        """Ask the next (1) or the previous (-1) aspect of the item, staying at the ends."""
        asked = list(self.item.asked(self.kind))
        place = min(max(asked.index(self.aspect) + step, 0), len(asked) - 1)
        self.aspect, self.typed = asked[place], {}

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

        Returns
        -------
        False when nothing is left to take back. Ranks that are half typed are dropped first.
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
