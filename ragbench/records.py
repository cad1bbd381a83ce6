"""The five small frozen records everything else passes around, and the data set that holds them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self

from ragbench.errors import DataError, check_known


@dataclass(frozen=True, slots=True)
class Document:
    """One source text. ``sentences`` joined as they are give ``text``.

    >>> rb.Document("mill", "The mill", "Ada built it. It burnt down.").title
    'The mill'
    """

    id: str
    title: str
    text: str
    sentences: tuple[str, ...] = ()
    meta: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Question:
    """A question, its true answer, and the texts that support it.

    ``references`` are the thesis's extracted relevant parts p_1..p_n (§2.1): the supporting
    sentences. ``kind`` is the data set's own question type (bridge, comparison, ...), ``level`` its
    difficulty.

    >>> question = rb.Question("q1", "Who built the mill?", "Ada", references=("Ada built it.",))
    >>> question.answer
    'Ada'
    """

    id: str
    text: str
    answer: str
    references: tuple[str, ...] = ()
    kind: str = ""
    level: str = ""
    meta: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if isinstance(self.references, str):  # each of its letters would count as a text
            raise DataError(
                f"question {self.id!r}: references is one text, {self.references[:40]!r}",
                "a sequence of texts",
                "put it in a list",
            )

    def facts(self) -> tuple[str, ...]:
        """Return the supporting sentences, each with its document's title before it where that is
        known.

        The title says who is meant by a pronoun ("He was born in Bolton").
        """
        marks = self.meta.get("supporting_facts", ())
        if len(marks) != len(self.references):
            return tuple(self.references)
        titles = [mark[0] for mark in marks]
        pairs = zip(titles, self.references, strict=True)
        return tuple(f"{title}: {text}" for title, text in pairs)


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of a document, the unit that retrievers return.

    >>> rb.Chunk("mill-1", "Ada built the mill.", doc_id="mill", title="The mill").text
    'Ada built the mill.'
    """

    id: str
    text: str
    doc_id: str
    title: str = ""


@dataclass(frozen=True, slots=True)
class Hit:
    """A retrieved chunk with its score and its rank (1 is best).

    >>> hit = rb.Hit(rb.Chunk("1", "Ada built the mill.", "mill"), score=1.5, rank=1)
    >>> hit.chunk.doc_id
    'mill'
    """

    chunk: Chunk
    score: float
    rank: int

    @classmethod
    def ranked(cls, pairs: Iterable[tuple[Chunk, float]]) -> list[Self]:
        """Number chunks with their scores, best first, from 1."""
        return [cls(chunk, score, rank) for rank, (chunk, score) in enumerate(pairs, 1)]


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make a mapping of a JSON object, for ``object_pairs_hook``; ValueError for a key that is
    there twice.
    """
    record = dict(pairs)
    if len(record) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice!r} is there twice")
    return record


@dataclass(frozen=True, slots=True)
class Failure:
    """Why there is no answer or grade.

    ``kind`` is one of `ragbench.llm.KINDS`, or the name of an object's own exception.
    """

    kind: str
    message: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"


@dataclass(frozen=True, slots=True)
class Answer:
    """A generated answer. ``generator`` names the model, ``seconds`` is wall-clock time.

    >>> rb.Answer("q1", "Ada built it.", generator="mine").text
    'Ada built it.'
    """

    question_id: str
    text: str
    generator: str
    seconds: float = float("nan")
    meta: Mapping[str, Any] = field(default_factory=dict)
    failure: Failure | None = None


GRADES: Mapping[int, str] = {
    1: "no information",
    2: "partly right, with wrong statements",
    3: "partly right, incomplete",
    4: "wrong",
    5: "fully correct",
}
"""The grades of thesis §2.4. They are categories: 3 is not better than 2, and no mean is taken.
2 and 4 contain hallucination, 1 and 3 lack information."""


@dataclass(frozen=True, slots=True)
class Grade:
    """A verdict in the thesis's five categories (§2.4).

    ``value`` is None when the verdict could not be read.

    >>> rb.Grade("q1", 5, judge="ollama:llama3:8b").value
    5
    """

    question_id: str
    value: int | None
    judge: str
    raw: str = ""
    meta: Mapping[str, Any] = field(default_factory=dict)
    failure: Failure | None = None


@dataclass(frozen=True)
class Dataset:
    """Questions and the documents they are asked over.

    ``excluded`` lists what the loader left out, as (id, reason): nothing is dropped in silence.

    >>> questions = [rb.Question("q1", "Who built the mill?", "Ada")]
    >>> rb.Dataset("mine", questions, documents=(rb.Document("mill", "Mill", "Ada built it."),))
    Dataset('mine', 1 questions, 1 documents)
    """

    name: str
    questions: tuple[Question, ...]
    documents: tuple[Document, ...]
    excluded: tuple[tuple[str, str], ...] = ()
    meta: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_records(self.questions, Question, f"questions of {self.name}")
        check_records(self.documents, Document, f"documents of {self.name}")

    def question(self, name: str) -> Question:
        """Return the question with this id; ConfigError for one that is not there."""
        by_id = {question.id: question for question in self.questions}
        check_known("question", [name], by_id)
        return by_id[name]

    def shuffled(self, seed: int) -> list[Question]:
        """Return the questions in a random order, so that every beginning of it is a random
        sample.
        """
        questions = sorted(self.questions, key=lambda question: question.id)
        random.Random(seed).shuffle(questions)
        return questions

    def __repr__(self) -> str:
        parts = [repr(self.name), f"{len(self.questions)} questions", self.size()]
        if self.excluded:
            parts.append(f"{len(self.excluded)} excluded")
        return f"Dataset({', '.join(parts)})"

    def size(self) -> str:
        """Return how many documents there are, in words; those of a PDF are pages: "47 files, 58
        pages".
        """
        if any("page" in document.meta for document in self.documents):
            files = {document.meta.get("file", document.id) for document in self.documents}
            return f"{len(files)} files, {len(self.documents)} pages"
        return f"{len(self.documents)} documents"

    def _repr_html_(self) -> str:
        """Show counts alone: texts of a set may not be what a saved notebook is allowed to hold."""
        import pandas as pd

        kinds = Counter(question.kind or "-" for question in self.questions)
        row = {
            "data set": self.name,
            "questions": len(self.questions),
            "by kind": ", ".join(f"{count} {kind}" for kind, count in kinds.most_common()),
            "without references": sum(not question.references for question in self.questions),
            "documents": self.size().removesuffix(" documents"),
            "excluded": len(self.excluded),
        }
        return pd.DataFrame([row]).to_html(index=False, border=0)


def as_id(value: Any) -> str:
    """Write an id as text. A whole number that is a float, as pandas makes it beside empty cells,
    is that number.

    >>> as_id(7.0), as_id("7.0")
    ('7', '7.0')
    """
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value)


def check_records(values: Iterable[Any], kind: type, what: str) -> None:
    """Refuse anything but records of one kind, by a DataError that names the first other value and
    how to make a record.

    A data frame iterates over its column names and a series over bare texts: both would fail far
    from here.
    """
    for place, value in enumerate(values):
        if not isinstance(value, kind):
            names = ", ".join(field.name for field in fields(kind))
            raise DataError(
                f"{what}: item {place} is {type(value).__name__} {str(value)[:40]!r}",
                f"a sequence of {kind.__name__} records",
                f"make one {kind.__name__} per row of your table, with the fields {names}",
            )
