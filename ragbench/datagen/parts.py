"""Records that the steps of RAGEval hand on, and the one way in which a step asks a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from pydantic import BaseModel

from ragbench.llm import ask
from ragbench.prompts import Prompt, fill_prompt, load_prompt
from ragbench.records import Question

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
OVER_SEVERAL = ("information integration", "numerical comparison", "temporal sequence")
Result = TypeVar("Result")


@dataclass(frozen=True)
class SchemaSection:
    """A part of a document, and the names of the facts that stand in it."""

    heading: str
    fields: tuple[str, ...]


@dataclass(frozen=True)
class Schema:
    """What documents of a domain state (RAGEval, 3.1).

    ``subject`` is the field that names what a document is about, such as a company; documents are
    written about the subdomains in turn.
    """

    domain: str
    language: str
    subject: str
    sections: tuple[SchemaSection, ...]
    subdomains: tuple[str, ...]

    @property
    def fields(self) -> tuple[str, ...]:
        """The subject, and the fields of all sections."""
        return (self.subject, *(name for section in self.sections for name in section.fields))


@dataclass(frozen=True)
class Configuration:
    """Values for the fields of a schema, by field name. One configuration makes one document."""

    id: str
    subdomain: str
    values: Mapping[str, str]


@dataclass(frozen=True)
class Section:
    """A heading and the sentences below it."""

    heading: str
    sentences: tuple[str, ...]


@dataclass(frozen=True)
class GeneratedDocument:
    """A document written from the configuration with the same id.

    ``lost`` are the fields of the schema that it does not state.
    """

    id: str
    title: str
    language: str
    sections: tuple[Section, ...]
    lost: tuple[str, ...] = ()

    @property
    def sentences(self) -> tuple[str, ...]:
        """All sentences, in order."""
        return tuple(text for section in self.sections for text in section.sentences)

    @property
    def text(self) -> str:
        """The title, and each section's heading and sentences on lines of their own."""
        lines = [self.title]
        for section in self.sections:
            lines.append("")
            if section.heading:
                lines.append(section.heading)
            lines.append(joined(section.sentences, self.language))
        return "\n".join(lines)


@dataclass(frozen=True)
class Reference:
    """A sentence of a document, word for word."""

    doc_id: str
    text: str


@dataclass(frozen=True)
class QRA:
    """A question with references and answer (RAGEval, 3.3); the answer is a tuple of statements.

    ``lost``: the fields that an unanswerable question may ask for. ``changes``: what the refinement
    did.
    """

    id: str
    kind: str
    language: str
    question: str
    statements: tuple[str, ...]
    doc_ids: tuple[str, ...]
    references: tuple[Reference, ...] = ()
    keypoints: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()

    @property
    def answer(self) -> str:
        """The statements as one text."""
        return joined(self.statements, self.language)

    def as_question(self, level: str, meta: Mapping[str, Any]) -> Question:
        """Return it as the package's own question, with this ``meta``."""
        references = tuple(reference.text for reference in self.references)
        return Question(self.id, self.question, self.answer, references, self.kind, level, meta)


class Rejected(NamedTuple):
    """What goes no further:

    at which step, why in few words (they are counted), and what was seen.
    """

    id: str
    step: str
    reason: str
    detail: str = ""


class Unfit(Exception):
    """Raised where a reply or a record cannot be used: a reason in few words, and what was seen."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason
        self.detail = detail


class Call(NamedTuple):
    """One prompt of a step:

    its id, what fills its fields, the form of the reply (None: text), and the item.
    """

    id: str
    fields: Mapping[str, str]
    form: type[BaseModel] | None
    item: Any


@dataclass(frozen=True)
class StepResult(Generic[Result]):
    """What a step made, and what it rejected."""

    made: tuple[Result, ...]
    rejected: tuple[Rejected, ...] = ()


FAILED = "no readable reply"


def ask_step(
    model: Any,
    step: str,
    prompt: Prompt,
    calls: Sequence[Call],
    read: Callable[[Any, Any], Result],
    options: Mapping[str, Any],
) -> StepResult[Result]:
    """Ask a model one prompt a call, and read each reply.

    Parameters
    ----------
    read : (the call's item, the reply as its form or as text) -> result; it raises `Unfit` where it
    cannot be used.
    options : of `ragbench.llm.ask`.
    """
    template = load_prompt(prompt)
    prompts = [fill_prompt(template, **call.fields) for call in calls]
    forms = [call.form for call in calls]
    names = [call.id for call in calls]
    replies = ask(model, prompts, forms, ids=names, **{"step": step, **options}) if calls else []
    made = []
    rejected = []
    for call, reply in zip(calls, replies, strict=True):
        try:
            if not reply.ok:
                raise Unfit(FAILED, str(reply.error))
            made.append(read(call.item, reply.parsed if call.form else reply.text))
        except Unfit as fault:
            rejected.append(Rejected(call.id, step, fault.reason, fault.detail))
    return StepResult(tuple(made), tuple(rejected))


def joined(texts: Sequence[str], language: str) -> str:
    """Join sentences: with blanks, in Chinese without."""
    return ("" if language == "zh" else " ").join(texts)


def numbered(texts: Sequence[str]) -> str:
    """Write texts as a numbered list, from 1."""
    return "\n".join(f"{number}. {text}" for number, text in enumerate(texts, 1))


def field_list(values: Mapping[str, str]) -> str:
    """Write fields and their values as a list for a prompt."""
    return "\n".join(f"- {name.replace('_', ' ')}: {value}" for name, value in values.items())
