"""A ceiling, and no system: a retriever that finds what is known to support each question."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Self

from pydantic import PrivateAttr

from ragbench.errors import ConfigError
from ragbench.records import Chunk, Dataset, Hit, Question
from ragbench.retrieval.base import Retriever


class Gold(Retriever):
    """Finds the evidence that a data set names for a question; the generator's ceiling.

    An `Experiment` tells it the data set (`of`), also where another retriever holds it; the chunks
    are not searched.

    Parameters
    ----------
    unit : ``"sentences"``, the supporting sentences with their documents' titles, or
        ``"documents"``, the whole documents that hold them.
    """

    unit: Literal["sentences", "documents"] = "sentences"
    _evidence: dict[str, list[Chunk]] = PrivateAttr(default_factory=dict)

    def __init__(self, chunks: Any = (), **fields: Any) -> None:
        super().__init__(**fields)

    def of(self, data: Dataset) -> Self:
        """Take over the evidence of a data set, and return itself; ConfigError where it names
        none.
        """
        pages = {document.id: document for document in data.documents}
        for question in data.questions:
            evidence = _sentences(question)
            if self.unit == "documents":
                named = [pages[name] for name in question.meta.get("doc_ids", ()) if name in pages]
                evidence = [Chunk(page.id, page.text, page.id, page.title) for page in named]
            self._evidence[question.text] = evidence
        if not any(self._evidence.values()):
            raise ConfigError(
                f"Gold finds nothing: no question of {data.name!r} names its {self.unit}",
                "questions with references (sentences) or doc_ids (documents)",
                "give the data set its supporting texts, or leave Gold out",
            )
        return self

    def _search(self, queries: list[str], k: int) -> list[list[Hit]]:
        hits = []
        for query in queries:
            if query not in self._evidence:
                raise ConfigError(
                    f"Gold knows nothing of {query[:60]!r}",
                    "a question of the data set that it was told",
                    "use it in an Experiment, or Gold().of(data)",
                )
            evidence = self._evidence[query][:k]
            hits.append(Hit.ranked((chunk, 1.0) for chunk in evidence))
        return hits


def _sentences(question: Question) -> list[Chunk]:
    """Return the supporting sentences, each a chunk of its document."""
    marks: Sequence[Any] = question.meta.get("supporting_facts", ())
    if len(marks) != len(question.references):
        marks = [("", 0)] * len(question.references)
    chunks = []
    for number, (text, (title, _)) in enumerate(zip(question.facts(), marks, strict=True)):
        chunks.append(Chunk(f"{question.id}#gold{number}", text, title, title))
    return chunks
