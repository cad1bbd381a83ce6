"""Records that the steps of RAGEval hand on, and the writer: a model that every step asks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pydantic import BaseModel

from ragbench.llm import Reply, ask
from ragbench.prompts import Prompt, fill_prompt, load_prompt
from ragbench.records import Question

LANGUAGE = "English"
Fields = dict[str, str]  # what fills a prompt
KINDS = (
    "factual",
    "multi-hop",
    "summary",
    "information integration",
    "numerical comparison",
    "temporal sequence",
    "unanswerable",
)


@dataclass(frozen=True)
class Schema:
    """What documents of a domain state (RAGEval, 3.1).

    ``subject`` is the field that names what a document is about, such as a company; ``sections``
    are headings with the names of the facts below each; documents are written about the subdomains
    in turn.
    """

    domain: str
    subject: str
    sections: Mapping[str, tuple[str, ...]]
    subdomains: tuple[str, ...]

    @property
    def fields(self) -> tuple[str, ...]:
        """The subject, and the fields of all sections."""
        return (self.subject, *(name for fields in self.sections.values() for name in fields))


@dataclass(frozen=True)
class Configuration:
    """Values for the fields of a schema, by field name. One configuration makes one document."""

    id: str
    subdomain: str
    values: Mapping[str, str]


@dataclass(frozen=True)
class GeneratedDocument:
    """A document written from the configuration with the same id: sentences by heading.

    ``stated`` are the values that it states, ``lost`` the fields of the schema that it does not.
    """

    id: str
    title: str
    sections: Mapping[str, tuple[str, ...]]
    stated: Mapping[str, str] = field(default_factory=dict)
    lost: tuple[str, ...] = ()

    @property
    def sentences(self) -> tuple[str, ...]:
        """All sentences, in order."""
        return tuple(text for sentences in self.sections.values() for text in sentences)

    @property
    def text(self) -> str:
        """The title, and each section's heading and sentences on lines of their own."""
        lines = [self.title]
        for heading, sentences in self.sections.items():
            lines.append("")
            if heading:
                lines.append(heading)
            lines.append(" ".join(sentences))
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
        return " ".join(self.statements)

    def as_question(self, level: str, meta: Mapping[str, Any]) -> Question:
        """Return it as the package's own question, with this ``meta``."""
        references = tuple(reference.text for reference in self.references)
        return Question(self.id, self.question, self.answer, references, self.kind, level, meta)


class Rejected(NamedTuple):
    """What goes no further: at which step, why in few words (they are counted), what was seen."""

    id: str
    step: str
    reason: str
    detail: str = ""


class Unfit(Exception):
    """Raised where a reply or a record cannot be used: a reason in few words, and what was seen."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason, detail)
        self.reason = reason
        self.detail = detail


class Writer:
    """A chat model, or its name, that the steps ask; ``rejected`` lists what they did not use.

    ``options`` are of `ragbench.llm.ask`; with ``cassette`` replies are recorded, and replayed.
    """

    def __init__(self, model: Any, **options: Any) -> None:
        self.model = model
        self.options = options
        self.rejected: list[Rejected] = []

    def reject(self, name: str, step: str, reason: str, detail: str = "") -> None:
        """Note what goes no further."""
        self.rejected.append(Rejected(name, step, reason, detail))

    def ask(
        self,
        step: str,
        prompt: Prompt,
        items: Mapping[str, Any],
        fields: Callable[[Any], Fields | None],
        read: Callable[[Any, Any], Any],
        form: type[BaseModel] | None = None,
    ) -> dict[str, Any]:
        """Ask one prompt for each item, and return what was read of each reply by id.

        Parameters
        ----------
        items : by id.
        fields : item -> what fills the prompt's fields; None: the item passes as it is. It raises
            `Unfit` for what cannot be asked.
        read : (item, reply) -> result; it raises `Unfit` where the reply cannot be used.
        form : of a reply; None: text.
        """
        filled = self.fit(step, items, lambda name: fields(items[name]))
        waiting = {name: filled[name] for name in filled if filled[name] is not None}
        replies = self._replies(step, prompt, waiting, form)

        def read_one(name: str) -> Any:
            if name not in replies:
                return items[name]
            reply = replies[name]
            if not reply.ok:
                raise Unfit("no readable reply", str(reply.error))
            return read(items[name], reply.parsed if form else reply.text)

        return self.fit(step, filled, read_one)

    def _replies(
        self, step: str, prompt: Prompt, fields: Mapping[str, Fields], form: type[BaseModel] | None
    ) -> dict[str, Reply]:
        """Ask the prompt filled with each of the fields, by id."""
        if not fields:
            return {}
        template = load_prompt(prompt)
        prompts = [fill_prompt(template, **values) for values in fields.values()]
        options = {"step": step, **self.options}
        replies = ask(self.model, prompts, form, ids=list(fields), **options)
        return dict(zip(fields, replies, strict=True))

    def fit(self, step: str, names: Iterable[str], make: Callable[[str], Any]) -> dict[str, Any]:
        """Make something for each id; what is `Unfit` is rejected."""
        results = {}
        for name in names:
            try:
                results[name] = make(name)
            except Unfit as fault:
                self.reject(name, step, fault.reason, fault.detail)
        return results


def field_list(values: Mapping[str, str]) -> str:
    """Write fields and their values as a list for a prompt."""
    return "\n".join(f"- {name.replace('_', ' ')}: {value}" for name, value in values.items())
