"""What the steps of data generation hand to each other: frozen records, to be looked at and edited with ``replace``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

LANGUAGES = ("en", "zh")
KINDS = (
    "factual",
    "multi-hop",
    "summary",
    "information integration",
    "numerical comparison",
    "temporal sequence",
    "unanswerable",
)
Fact = tuple[str, str]  # (document id, field)


@dataclass(frozen=True)
class Configuration:
    """Values for a schema's fields, and how each is written in a text. One configuration makes one document."""

    id: str
    domain: str
    language: str
    subdomain: str
    values: Mapping[str, Any]
    text: Mapping[str, str]


@dataclass(frozen=True)
class Sentence:
    """A sentence, the fields it states, and the pattern it was written from (empty for a model's sentence)."""

    text: str
    facts: tuple[str, ...] = ()
    pattern: str = ""


@dataclass(frozen=True)
class Section:
    """A heading and its sentences."""

    heading: str
    sentences: tuple[Sentence, ...]


@dataclass(frozen=True)
class GeneratedDocument:
    """A document written from a configuration with the same id; ``dropped`` are the fields it does not state."""

    id: str
    title: str
    language: str
    sections: tuple[Section, ...]
    dropped: tuple[str, ...] = ()
    writer: str = "template"

    @property
    def sentences(self) -> tuple[Sentence, ...]:
        """All sentences, in order."""
        return tuple(s for section in self.sections for s in section.sentences)

    @property
    def text(self) -> str:
        """Title, and each section's heading and sentences on lines of their own."""
        blank = " " if self.language == "en" else ""
        parts = [self.title]
        for section in self.sections:
            parts += ["", section.heading] if section.heading else [""]
            parts.append(blank.join(s.text for s in section.sentences))
        return "\n".join(parts)

    @property
    def patterns(self) -> tuple[str, ...]:
        """The patterns of its sentences, in order."""
        return tuple(s.pattern for s in self.sentences)


@dataclass(frozen=True)
class Reference:
    """A verbatim sentence of a document."""

    doc_id: str
    text: str


@dataclass(frozen=True)
class Derived:
    """A value that no document states but that follows from values they do state, e.g. the days between two dates."""

    text: str
    rule: str
    of: tuple[Fact, ...]
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class QRA:
    """A question with its references and answer, the answer as a tuple of statements."""

    id: str
    kind: str
    language: str
    question: str
    statements: tuple[str, ...]
    doc_ids: tuple[str, ...]
    references: tuple[Reference, ...] = ()
    derived: tuple[Derived, ...] = ()
    keypoints: tuple[str, ...] = ()
    lost: tuple[Fact, ...] = ()
    changes: tuple[str, ...] = field(default=())

    @property
    def answer(self) -> str:
        """The statements as one text."""
        return (" " if self.language == "en" else "").join(self.statements)


def mentions(text: str, value: str) -> bool:
    """Tell whether a text holds a value as a whole, not as a part of a longer number or word.

    Parameters
    ----------
    text, value : compared without regard to case; a value that starts or ends in a Latin letter or digit must not be
        continued by another one, nor a number by decimals or a group of thousands.
    """
    return next(_places(text, value), None) is not None


def without(text: str, value: str) -> str:
    """Take a value out of a text wherever the text `mentions` it; longer numbers that hold it stay."""
    for place in reversed([*_places(text, value)]):
        text = text[:place] + text[place + len(value) :]
    return text


def _places(text: str, value: str) -> Iterator[int]:
    text, value = _lower(text), _lower(value)
    start = text.find(value)
    while start >= 0 and value:
        end = start + len(value)
        if not (
            _continued(text[max(0, start - 2) : start][::-1], value[0]) or _continued(text[end : end + 2], value[-1])
        ):
            yield start
        start = text.find(value, start + 1)


@lru_cache(maxsize=8192)
def _lower(text: str) -> str:
    low = text.lower()
    # A few letters grow when lowered; places in the text must stay what they are.
    return low if len(low) == len(text) else "".join(c.lower() if len(c.lower()) == 1 else c for c in text)


def _continued(outside: str, edge: str) -> bool:
    """Whether a word or number goes on; ``outside`` are the two characters next to the edge, nearest first."""
    if not (edge.isascii() and edge.isalnum()) or not outside:
        return False
    if outside[0].isascii() and outside[0].isalnum():
        # Chinese writes numbers and Latin letters without blanks: 3月14日, but a digit next to a digit goes on.
        return True
    return edge.isdigit() and outside[0] in ".," and outside[1:].isdigit()


FIELD = re.compile(r"\{([A-Za-z_][\w.]*)\}")
