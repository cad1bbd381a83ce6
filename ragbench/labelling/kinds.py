"""What people are asked, kind by kind, and which labels there are.

A label is a text, as it stands in the file. The wording is ours; the scales are the papers':

``grade``       the thesis's five categories (§2.4).
``preference``  RAGChecker's five-way comparison of two responses in three aspects (section 4.2).
``rubric``      RAGEval's score of a question with its answer and references, 0 to 5 (Figure 3).
``ranks``       RAGEval's order of several documents by four criteria, ties allowed (Figure 4).
``keypoints``   RAGEval's verdict on each keypoint of a true answer (section 3.5.2), for people instead of a judge model
                (Figure 6).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from ragbench.errors import ConfigError, DataError, unknown
from ragbench.grading.categories import GRADES
from ragbench.metrics.keypoints import VERDICTS

_RANKS = re.compile(r"[^=;]+=\d+(;[^=;]+=\d+)+")


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of labelling.

    Attributes
    ----------
    name, title : of the file's first column, and for people.
    aspects : what is asked, by the name in the file; empty when each item brings its own (keypoints).
    labels : what can be said and what it means, in order; empty for ranks, which depend on the item's candidates.
    keys : the key that gives each label.
    ordered : whether labels have distances, so that a weighted kappa makes sense.
    """

    name: str
    title: str
    aspects: Mapping[str, str]
    labels: Mapping[str, str]
    keys: Mapping[str, str]
    ordered: bool

    def check(self, aspect: str, label: str) -> str:
        """Return what is wrong with an aspect and its label; an empty text when nothing is."""
        if self.aspects and aspect not in self.aspects:
            return f"the aspect {aspect!r} of {self.name}; it has {', '.join(self.aspects)}"
        if not self.aspects and not aspect.strip():
            return f"an empty aspect of {self.name}"
        if label == "":  # taken back
            return ""
        if self.labels:
            known = ", ".join(self.labels)
            return "" if label in self.labels else f"the label {label!r} of {self.name}; it has {known}"
        return _wrong_ranks(label)


_STEPS = {
    "-2": "response 1 is much better",
    "-1": "response 1 is a little better",
    "0": "equally good",
    "1": "response 2 is a little better",
    "2": "response 2 is much better",
}
KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind(
            "grade",
            "Grade the answer",
            {"grade": "Which category fits the answer?"},
            {str(grade): meaning for grade, meaning in GRADES.items()},
            {str(grade): str(grade) for grade in GRADES},
            False,
        ),
        Kind(
            "preference",
            "Compare two responses",
            {
                "correctness": "Which response has fewer wrong statements?",
                "completeness": "Which response leaves out less of what was asked?",
                "overall": "Which response would you rather have, all in all?",
            },
            _STEPS,
            {str(place): label for place, label in enumerate(_STEPS, 1)},
            True,
        ),
        Kind(
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
            {str(score): str(score) for score in range(6)},
            True,
        ),
        Kind(
            "ranks",
            "Rank the documents",
            {
                "safety": "Which document keeps clear of real people, firms and other sensitive facts?",
                "clarity": "Which document says clearly and exactly what happened?",
                "conformity": "Which document looks most like a real one of its kind?",
                "richness": "Which document has more to say, in breadth and in depth?",
            },
            {},
            {},
            True,
        ),
        Kind(
            "keypoints",
            "Judge each keypoint",
            {},
            dict(
                zip(
                    VERDICTS,
                    (
                        "the answer says this, and rightly",
                        "the answer says something that cannot be true along with this",
                        "the answer does not touch this",
                    ),
                    strict=True,
                )
            ),
            {str(place): verdict for place, verdict in enumerate(VERDICTS, 1)},
            False,
        ),
    )
}


def kind_of(name: str) -> Kind:
    """Return a kind by name; ConfigError for an unknown one."""
    if name not in KINDS:
        raise unknown("kind of labels", name, KINDS)
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

    def asked(self, kind: Kind) -> Mapping[str, str]:
        """What is asked of this item, by aspect.

        Raises
        ------
        ConfigError when the item lacks what its kind needs.
        """
        wanted = {"preference": "exactly 2", "ranks": "2 to 9"}.get(kind.name, "no")
        n = len(self.candidates)
        if not {"exactly 2": n == 2, "2 to 9": 2 <= n <= 9, "no": n == 0}[wanted]:
            raise ConfigError(f"item {self.id!r} with {n} candidates", f"{wanted} candidates for {kind.name}")
        if any(mark in name for name in self.candidates for mark in "=;"):
            raise ConfigError(f"item {self.id!r} with a candidate named with = or ;", "names without them", "rename it")
        if bool(kind.aspects) == bool(self.aspects):
            expected = "none: the kind has its own" if kind.aspects else "at least one, e.g. a keypoint by its number"
            raise ConfigError(f"item {self.id!r} with {len(self.aspects)} aspects", expected)
        return kind.aspects or self.aspects


def rank_label(ranks: Mapping[str, int]) -> str:
    """Write ranks by candidate as a label, e.g. ``"one-shot=2;ours=1"``; 1 is best, equal numbers are ties.

    Only the order counts: 1, 1, 3 and 1, 1, 2 are the same. Raises DataError for a rank that is no positive number, or
    a name with ``=`` or ``;``.
    """
    label = ";".join(f"{name}={rank}" for name, rank in sorted(ranks.items()))
    wrong = _wrong_ranks(label)
    if wrong:
        raise DataError(wrong, "a positive whole number for each of two or more candidates")
    return label


def ranks_of(label: str) -> dict[str, int]:
    """Read a label that `rank_label` wrote, as ranks 1, 2, ... without gaps.

    >>> ranks_of("one-shot=3;ours=1;zero-shot=3")
    {'one-shot': 2, 'ours': 1, 'zero-shot': 2}
    """
    wrong = _wrong_ranks(label)
    if wrong:
        raise DataError(wrong, "ranks such as 'one-shot=2;ours=1'")
    given = {name: int(rank) for name, _, rank in (part.partition("=") for part in label.split(";"))}
    order = sorted(set(given.values()))
    return {name: order.index(rank) + 1 for name, rank in given.items()}


def _wrong_ranks(label: str) -> str:
    if not _RANKS.fullmatch(label):
        return f"the ranks {label!r}, not of the form name=1;name=2"
    names, ranks = zip(*(part.split("=") for part in label.split(";")), strict=True)
    if len(set(names)) < len(names) or min(map(int, ranks)) < 1:
        return f"the ranks {label!r} with a candidate twice or a rank below 1"
    return ""
