"""Dense retrieval: exact nearest neighbours by cosine (thesis: *sim*), in tiles of one matrix
product.

The product in float32 is exact to about 1e-4. Every chunk that it puts that near to the k-th best
is scored again in float64, so that equal vectors get equal scores, and ties fall by chunk id. `MMR`
chooses among those neighbours: relevant, yet not redundant (thesis: *mmr*).
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from langchain_core.embeddings import Embeddings
from pydantic import Field, PositiveInt, PrivateAttr

from ragbench.embedding import MiniLM, as_array
from ragbench.errors import ConfigError, ModelError
from ragbench.records import Chunk, Hit
from ragbench.retrieval.base import Index, Retriever

TILE = 1 << 24  # similarities computed at a time: 64 MB


class Dense(Index):
    """Exact search by cosine similarity over embedded chunks (thesis: the retriever *sim*).

    Parameters
    ----------
    embedder : any LangChain ``Embeddings``; one with ``embed_array(texts)`` is called once for all
        queries. A text whose vector is zero is never returned. The chunks are embedded at the first
        search.

    Source: thesis §2.5.3 (all-MiniLM-L6-v2, FAISS, top 10).

    >>> chunks = [rb.Chunk("1", "Ada built the mill.", ""), rb.Chunk("2", "The lake is deep.", "")]
    >>> rb.Dense(chunks, rb.MiniLM()).search(["Which water is deep?"], k=1)[0][0].chunk.text
    'The lake is deep.'
    """

    embedder: Any
    _vectors: np.ndarray | None = PrivateAttr(default=None)
    _unread: float = PrivateAttr()  # share of the chunks' tokens that the embedder does not read

    def __init__(
        self, chunks: Sequence[Chunk], embedder: Embeddings, *, title: bool = False, k: int = 10
    ) -> None:
        if not hasattr(embedder, "embed_documents"):
            raise ConfigError(
                f"embedder is {embedder!r:.60}",
                "a LangChain Embeddings",
                "pass for instance ragbench.MiniLM()",
            )
        super().__init__(chunks, embedder=embedder, title=title, k=k)
        self._unread = 0.0
        model = getattr(embedder, "embedder", embedder)  # within a cache
        if isinstance(model, MiniLM):
            model.warn_of_language([chunk.text for chunk in self._chunks])
            self._unread = round(model.unread_share(self.texts), 3)
        if self._unread:
            warnings.warn(
                f"{self._unread:.1%} of the chunks' tokens lie beyond the 256 that "
                "all-MiniLM-L6-v2 reads of a text: make chunks of at most 250 tokens, or name a "
                "model that reads more: embedder: ollama:bge-m3 (docs/models.md)",
                stacklevel=2,
            )

    def settings(self) -> dict[str, Any]:
        model = getattr(self.embedder, "model_id", None) or getattr(self.embedder, "model", None)
        settings = super().settings()
        settings["embedder"] = str(model or type(self.embedder).__name__)
        settings |= {"similarity": "cosine", "chunks": len(self._chunks)}
        if self._unread:
            settings["share_not_read"] = self._unread
        return settings

    @property
    def vectors(self) -> np.ndarray:
        """The chunks' unit vectors, float32 (chunks, dimension), in the order of ``chunks``."""
        if self._vectors is None:
            try:
                self._vectors = _unit(as_array(self.embedder, self.texts))
            except ModelError as error:
                text = getattr(error, "text", None)  # that is too long, without the chunk's name
                if text not in self.texts:
                    raise
                raise ModelError(
                    f"chunk {self._chunks[self.texts.index(text)].id!r}: {error.got}",
                    error.expected,
                    error.do,
                ) from None
        return self._vectors

    def embed_queries(self, queries: Sequence[str]) -> np.ndarray:
        """Embed queries: float32 (len(queries), dimension), rows of unit length (or zero)."""
        dimension = self.vectors.shape[1]
        vectors = _unit(as_array(self.embedder, queries, queries=True))
        if vectors.shape[1] != dimension:
            raise ModelError(
                f"query vectors of dimension {vectors.shape[1]}",
                f"{dimension}, as of the chunks",
                "embed queries and chunks with the same model",
            )
        return vectors

    def nearest(self, queries: np.ndarray, k: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """Find the k chunks nearest to each query vector: their places in ``chunks`` and float64
        scores, best first.
        """
        vectors = self.vectors
        size = max(1, TILE // len(vectors))
        nearest = []
        for start in range(0, len(queries), size):
            tile = queries[start : start + size]
            cosines = tile @ vectors.T
            for query, rough in zip(tile, cosines, strict=True):
                nearest.append(_exact(rough, query, vectors, k))
        return nearest

    def _search(self, queries: list[str], k: int) -> list[list[Hit]]:
        # scaled once more: the last bit of recorded scores is of that
        vectors = _unit(self.embed_queries(queries))
        nearest = self.nearest(vectors, k)
        return [self.hits_at(places.tolist(), scores.tolist()) for places, scores in nearest]


def _exact(
    rough: np.ndarray, query: np.ndarray, vectors: np.ndarray, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return places and scores of the k best among ``vectors``, zeros left out, from their rough
    similarities.
    """
    n = len(rough)
    places = np.arange(n)
    if k < n:
        kth_best = np.partition(rough, -k)[-k]
        # bounds the rounding of a float32 product of unit vectors
        error = len(query) * np.finfo(np.float32).eps
        places = np.flatnonzero(rough >= kth_best - 2 * error)
    scores = _dots(vectors[places], query)
    if len(places) < n and np.count_nonzero(scores) < k:  # there may be hits below zero
        places = np.arange(n)
        scores = _dots(vectors, query)
    best_first = np.argsort(-scores, kind="stable")
    hits = best_first[scores[best_first] != 0][:k]
    return places[hits], scores[hits]


def _dots(vectors: np.ndarray, query: np.ndarray) -> np.ndarray:
    """Inner products in float64; equal vectors have equal ones, which a matrix product does not
    promise.
    """
    return (vectors.astype(np.float64) * query).sum(axis=1)


def _unit(vectors: np.ndarray) -> np.ndarray:
    """Scale rows to unit length; zero rows stay zero."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    norms[norms == 0] = 1
    return np.ascontiguousarray(vectors / norms)


class MMR(Retriever):
    """Re-select among the ``fetch_k`` nearest chunks: the nearest one, then one by one that which
    maximises

        lambda_mult * cos(query, chunk) - (1 - lambda_mult) * max cos(chunk, pick)

    The same order as ``langchain_core.vectorstores.utils.maximal_marginal_relevance``. A hit's
    score is its cosine to the query, so scores need not fall with rank. ``lambda_mult`` of 1 is
    relevance alone, 0 novelty alone.

    Source: Carbonell and Goldstein, SIGIR 1998; thesis §2.5.3 (fetch_k 20, lambda 0.5, top 10,
    LangChain's defaults).

    >>> chunks = [rb.Chunk("1", "Ada built the mill.", ""), rb.Chunk("2", "The lake is deep.", "")]
    >>> dense = rb.Dense(chunks, rb.MiniLM())
    >>> [hit.chunk.id for hit in rb.MMR(dense).search(["Who built the mill?"], k=2)[0]]
    ['1', '2']
    """

    fetch_k: PositiveInt
    lambda_mult: float = Field(ge=0, le=1, strict=True)
    over: Any

    def __init__(
        self, over: Any, fetch_k: int = 20, lambda_mult: float = 0.5, *, k: int = 10
    ) -> None:
        if not hasattr(over, "nearest"):
            raise ConfigError(
                f"over is {type(over).__name__}",
                "a Dense retriever, whose vectors MMR compares",
                "pass Dense(...)",
            )
        super().__init__(over=over, fetch_k=fetch_k, lambda_mult=lambda_mult, k=k)

    def _search(self, queries: list[str], k: int) -> list[list[Hit]]:
        dense = self.over
        nearest = dense.nearest(dense.embed_queries(queries), self.fetch_k)
        hits = []
        for places, scores in nearest:
            chosen = _select_mmr(dense.vectors[places], scores, k, self.lambda_mult)
            hits.append(dense.hits_at(places[chosen].tolist(), scores[chosen].tolist()))
        return hits


def _select_mmr(
    vectors: np.ndarray, similarity: np.ndarray, k: int, lambda_mult: float
) -> list[int]:
    """Select among candidates, the most similar one first, by their unit vectors; the earlier one
    wins a tie.
    """
    n = len(vectors)
    if n == 0:
        return []
    chosen = [0]
    redundancy = np.full(n, -np.inf)  # largest similarity to one that is chosen
    while len(chosen) < min(k, n):
        latest = vectors[chosen[-1]]
        redundancy = np.maximum(redundancy, _dots(vectors, latest))
        value = lambda_mult * similarity - (1 - lambda_mult) * redundancy
        value[chosen] = -np.inf
        chosen.append(int(value.argmax()))
    return chosen
