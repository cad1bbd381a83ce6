"""Records that the steps hand on (change them with ``dataclasses.replace``), and the one way a step asks a model."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic import BaseModel

from ragbench.llm import ask
from ragbench.prompts import fill_prompt, load_prompt
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
MULTI = ("information integration", "numerical comparison", "temporal sequence")  # over several documents
Fact = tuple[str, str]  # (document id, field)
Result = TypeVar("Result")


@dataclass(frozen=True)
class Configuration:
    """Values for a schema's fields, and how each is written in a text. One configuration makes one document."""

    id: str
    subdomain: str
    values: Mapping[str, Any]
    text: Mapping[str, str]


@dataclass(frozen=True)
class FactSentence:
    """A sentence and the fields it states."""

    text: str
    facts: tuple[str, ...] = ()


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
        lines = [self.title]
        for section in self.sections:
            lines += ["", section.heading] if section.heading else [""]
            lines.append(blank.join(s.text for s in section.sentences))
        return "\n".join(lines)


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

    def as_question(self, level: str, meta: Mapping[str, Any]) -> Question:
        """Return it as the package's own question; what ``meta`` does not take over is left behind."""
        references = tuple(r.text for r in self.references)
        return Question(self.id, self.question, self.answer, references, self.kind, level, meta)


def question_row(q: Question) -> dict[str, Any]:
    """Lay a question out as a row of a file that `ragbench.load_questions` reads."""
    row = {"id": q.id, "question": q.text, "answer": q.answer, "references": q.references, "type": q.kind}
    return {**row, "level": q.level, **q.meta}


def json_lines(rows: Iterable[Mapping[str, Any]]) -> str:
    """Write rows as JSON lines."""
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


@dataclass(frozen=True)
class Done(Generic[Result]):
    """Results of a model's step, and (id, reason) of what failed: nothing is dropped in silence."""

    made: tuple[Result, ...]
    failed: tuple[tuple[str, str], ...] = ()


def ask_step(
    model: Any,
    step: str,
    prompt: str,
    calls: Sequence[tuple[str, Mapping[str, str] | None, Any]],
    form: type[BaseModel] | None,
    settle: Callable[[Any, Any], Result | str],
    options: Mapping[str, Any],
) -> Done[Result]:
    """Ask a model about every call that has fields for the prompt; what another is about is its result.

    Parameters
    ----------
    prompt : its id, unless ``options`` name another.
    calls : (id, fields of the prompt or None, what it is about).
    form : of the reply; None for text.
    settle : (what the call is about, the reply) -> result. A text in its place says why the reply cannot be used.
    options : of `ragbench.llm.ask`.
    """
    settings = {"step": f"rageval {step}", **options}
    template = load_prompt(settings.pop("prompt", prompt))
    asked = {"ids": [name for name, fields, _ in calls if fields is not None]}
    prompts = [fill_prompt(template, **fields) for _, fields, _ in calls if fields is not None]
    replies = iter(ask(model, prompts, form, **asked | settings) if prompts else ())
    records, failed = [], []
    for name, fields, result in calls:
        if fields is not None:
            reply = next(replies)
            result = settle(result, reply.parsed if form else reply.text) if reply.ok else str(reply.error)
        if isinstance(result, str):
            failed.append((name, result))
        else:
            records.append(result)
    return Done(tuple(records), tuple(failed))


def field_list(configuration: Configuration, names: Sequence[str]) -> str:
    """Write fields and their values as a list, for a prompt."""
    return "\n".join(f"- {name.replace('_', ' ')}: {configuration.text[name]}" for name in names)
