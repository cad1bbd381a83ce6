"""RAGChecker's experiment on systems of our own (sections 4.1 and 4.3): retrievers x generators.

The generators without a language model copy sentences: what retrieval does shows, how a language model uses, misreads
or ignores its context does not. A copied sentence is in the context by construction, so faithfulness is 1 up to the
checker's mistakes, hallucination and self-knowledge are 0. The generators differ in what a retriever can do for them:
`LeadSentences` sees the first passage only, `NearestSentences` searches all of them, for a small or a large budget.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np
from langchain_core.embeddings import Embeddings

from ragbench.data import load_clapnq, load_minihop
from ragbench.embedding import default_embedder, embed_distinct
from ragbench.generation import ExtractiveReader
from ragbench.records import Dataset
from ragbench.retrieval import make_retriever
from ragbench.text.sentences import split_sentences

# Sets with long answers; see `ragbench.papers.ragchecker.long_answered`.
DATA: Mapping[str, Callable[..., Dataset]] = {"minihop": load_minihop, "clapnq": load_clapnq}
SYSTEM = ["retriever", "generator"]
# BM25 as in OpenSearch, MiniLM, and both fused by rank.
_WORDS = {"variant": "lucene", "tokenizer": "plain"}
RETRIEVERS: Mapping[str, Callable[[Sequence[Any]], Any]] = {
    "BM25": partial(make_retriever, "BM25", **_WORDS),
    "SIM": partial(make_retriever, "SIM"),
    "hybrid": partial(make_retriever, "Hybrid", **_WORDS),
}


class LeadSentences:
    """Answer with the first ``n`` sentences of the context: the opening of the passage that was ranked first."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.name = f"lead {n} (no LLM)"

    def settings(self) -> dict[str, Any]:
        """Return every parameter that can change an answer, ready for JSON."""
        return {"generator": self.name, "n": self.n}

    def answer(self, question: str, context: str) -> str:
        """Return the sentences; an empty context gives an empty answer."""
        return " ".join(split_sentences(context, "claims")[: self.n])


class NearestSentences:
    """Answer with the ``n`` different sentences of the context nearest to the question, in the order of the context.

    ``embedder`` gives unit vectors; default the embedded MiniLM. Each text is embedded once, however many contexts it
    comes back in. Ties go to the earlier sentence.
    """

    def __init__(self, n: int, embedder: Embeddings | None = None) -> None:
        self.n = n
        self.name = f"nearest {n} (no LLM)"
        self._embedder = embedder
        self._vectors: dict[str, np.ndarray] = {}

    def settings(self) -> dict[str, Any]:
        """Return every parameter that can change an answer, ready for JSON."""
        model = getattr(self.embedder, "model_id", None) or repr(self.embedder)
        return {"generator": self.name, "n": self.n, "embedder": model}

    @cached_property
    def embedder(self) -> Embeddings:
        """The embedding model, loaded at first use."""
        return self._embedder or default_embedder()

    def with_n(self, n: int) -> NearestSentences:
        """Return a reader with another budget that shares this one's vectors."""
        other = NearestSentences(n, self._embedder)
        other._vectors = self._vectors
        return other

    def warm(self, questions: Sequence[str], texts: Sequence[str]) -> None:
        """Embed questions and the sentences of texts in one call, which is faster than context by context."""
        new = dict.fromkeys([*questions, *(s for text in texts for s in split_sentences(text, "claims"))])
        missing = [text for text in new if text not in self._vectors]
        if missing:
            self._vectors.update(embed_distinct(self.embedder, missing))

    def answer(self, question: str, context: str) -> str:
        """Return the sentences; an empty context gives an empty answer."""
        sentences = list(dict.fromkeys(split_sentences(context, "claims")))
        if not sentences:
            return ""
        self.warm([question], [context])
        near = np.array([self._vectors[s] for s in sentences]) @ self._vectors[question]
        return " ".join(sentences[i] for i in sorted(np.argsort(-near, kind="stable")[: self.n]))


def generators(data: Dataset, model: str | Mapping[str, Any] | None = None, **options: Any) -> dict[str, Any]:
    """Return the generators of the notebook by name: four without a language model, and ``model`` when it is named.

    ``data`` is embedded here in one call, for ``nearest``. ``options`` are of `ragbench.llm.chat_model`; the context
    window is 16,384 tokens unless you say otherwise, since 20 chunks of 300 tokens and a reply of 2,048 must fit.
    """
    near = NearestSentences(3)
    near.warm([q.text for q in data.questions], [d.text for d in data.documents])
    readers: dict[str, Any] = {
        "lead 3": LeadSentences(3),
        # Without a threshold it never abstains: an abstention would count as a wrong claim.
        "reader": ExtractiveReader(threshold=0),
        "nearest 3": near,
        "nearest 8": near.with_n(8),
    }
    if model is not None:
        from ragbench.llm import chat_model, model_name

        readers[model_name(model)] = chat_model(model, **{"num_ctx": 16384, "num_predict": 2048, **options})
    return readers
