"""What the steps of data generation hand to each other: frozen records, to be looked at and edited with ``replace``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic import BaseModel

from ragbench.llm import Cassette, Reply, ask

LANGUAGES = {"en": "English", "zh": "Chinese"}
KINDS = (
    "factual",
    "multi-hop",
    "summary",
    "information integration",
    "numerical comparison",
    "temporal sequence",
    "unanswerable",
)
MULTI = ("information integration", "numerical comparison", "temporal sequence")  # over several documents
Fact = tuple[str, str]  # (document id, field)
Made = TypeVar("Made")


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
class FactSentence:
    """A sentence, the fields it states, and the pattern it was written from (empty for a model's sentence)."""

    text: str
    facts: tuple[str, ...] = ()
    pattern: str = ""


@dataclass(frozen=True)
class Section:
    """A heading and its sentences."""

    heading: str
    sentences: tuple[FactSentence, ...]


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
    def sentences(self) -> tuple[FactSentence, ...]:
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
    changes: tuple[str, ...] = ()

    @property
    def answer(self) -> str:
        """The statements as one text."""
        return (" " if self.language == "en" else "").join(self.statements)


@dataclass(frozen=True)
class Done(Generic[Made]):
    """Results of a model's step, and for what failed its id and the reason: nothing is dropped in silence."""

    made: tuple[Made, ...]
    failed: tuple[tuple[str, str], ...] = ()


def field_list(configuration: Configuration, names: Sequence[str]) -> str:
    """Write fields and their values as a list, for a prompt."""
    return "\n".join(f"- {name.replace('_', ' ')}: {configuration.text[name]}" for name in names)


def ask_step(
    model: Any,
    prompts: Sequence[str],
    reply: type[BaseModel] | None,
    cassette: Cassette | None,
    ids: Sequence[str],
    step: str,
) -> list[Reply]:
    """Send the prompts of one step; none, no call."""
    return ask(model, prompts, reply, cassette, ids=ids, step=f"rageval {step}") if prompts else []
