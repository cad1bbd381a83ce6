"""Generators without a language model for RAGChecker's experiment: they copy sentences of their context, no more.

A copied sentence is in the context by construction, so faithfulness is 1 up to the checker's mistakes, hallucination
and self-knowledge are 0. They differ in what a retriever can do for them: `LeadSentences` sees the first passage only,
`NearestSentences` searches all of them, for a small or a large budget of sentences.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ragbench.errors import ConfigError
from ragbench.judge.features import embed
from ragbench.judge.text import split_sentences

if TYPE_CHECKING:
    from langchain_core.embeddings import Embeddings


class LeadSentences:
    """Answer with the first ``n`` sentences of the context: the opening of the passage that was ranked first."""

    def __init__(self, n: int) -> None:
        self.n = _positive(n)
        self.name = f"lead {n} (no LLM)"

    def settings(self) -> dict[str, Any]:
        """Return every parameter that can change an answer, ready for JSON."""
        return {"generator": self.name, "n": self.n}

    def answer(self, question: str, context: str) -> str:
        """Return the sentences; an empty context gives an empty answer."""
        return " ".join(split_sentences(context)[: self.n])


class NearestSentences:
    """Answer with the ``n`` sentences of the context nearest to the question, in the order of the context.

    Parameters
    ----------
    n : how many different sentences.
    embedder : a LangChain ``Embeddings`` with unit vectors; default the embedded MiniLM.

    Each text is embedded once, however many contexts it comes back in. Ties go to the earlier sentence.
    """

    def __init__(self, n: int, embedder: Embeddings | None = None) -> None:
        self.n = _positive(n)
        self.name = f"nearest {n} (no LLM)"
        self._embedder = embedder
        self._vectors: dict[str, np.ndarray] = {}

    def settings(self) -> dict[str, Any]:
        """Return every parameter that can change an answer, ready for JSON."""
        model = getattr(self.embedder, "model_id", None) or repr(self.embedder)
        return {"generator": self.name, "n": self.n, "embedder": model}

    @functools.cached_property
    def embedder(self) -> Embeddings:
        """The embedding model, loaded at first use."""
        if self._embedder is not None:
            return self._embedder
        from ragbench.embedding import default_embedder

        return default_embedder()

    def with_n(self, n: int) -> NearestSentences:
        """Return a reader with another budget that shares this one's vectors."""
        other = NearestSentences(n, self._embedder)
        other._vectors = self._vectors
        return other

    def warm(self, questions: Sequence[str], texts: Sequence[str]) -> None:
        """Embed questions and the sentences of texts in one call, which is faster than context by context."""
        new = dict.fromkeys([*questions, *(s for text in texts for s in split_sentences(text))])
        missing = [text for text in new if text not in self._vectors]
        if missing:
            self._vectors.update(embed(self.embedder, missing))

    def answer(self, question: str, context: str) -> str:
        """Return the sentences; an empty context gives an empty answer."""
        sentences = list(dict.fromkeys(split_sentences(context)))
        if not sentences:
            return ""
        self.warm([question], [context])
        near = np.array([self._vectors[s] for s in sentences]) @ self._vectors[question]
        return " ".join(sentences[i] for i in sorted(np.argsort(-near, kind="stable")[: self.n]))


def _positive(n: int) -> int:
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise ConfigError(f"n={n!r}", "a number of sentences, at least 1", "use for instance 3")
    return n
