"""Dense retrieval: exact nearest neighbours by cosine (thesis: *sim*), in tiles of one matrix product.

The product in float32 proposes candidates; their scores are then computed again in float64, one by one, so that
equal vectors get equal scores and ties fall by chunk id whatever the tile they were in.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from langchain_core.embeddings import Embeddings
from pydantic import PrivateAttr

from ragbench.embedding import as_array, query_array
from ragbench.errors import ConfigError, ModelError, check_known
from ragbench.onnx_models import cores
from ragbench.records import Chunk, Hit
from ragbench.retrieval.base import Index, Scopes, check_chunks, hits_of, in_parts
from ragbench.text.languages import language_of

_QUERIES_AT_ONCE = 1024
_SAMPLE = 50  # chunks whose language is looked at
_FEW = 0.1  # of them in other languages than English are not worth a warning: quotations, tables, names
_SPARE = 16  # candidates beyond k: rounding in the matrix product may misplace a few


class Dense(Index):
    """Exact search by cosine similarity over embedded chunks (thesis: the retriever *sim*).

    Parameters
    ----------
    embedder : any LangChain ``Embeddings``. Vectors need not be of unit length; a text whose vector is zero is never
        returned. One with ``embed_array(texts)`` (or ``embed_queries``), as ragbench's own, is called once for all
        queries.
    vectors : float array (len(chunks), dimension), in the order of ``chunks``, to use instead of embedding them.
        Without it the chunks are embedded at the first search, or when ``vectors`` is read.
    backend : ``"numpy"``, or ``"faiss"`` (extra ``[faiss]``) to propose the candidates; the hits are the same.
    k : hits per ``invoke()``.

    Raises ConfigError for a wrong embedder or vectors of a wrong shape; at the first search, ModelError for vectors
    that cannot be used, or not of one length for queries and chunks.

    Source: thesis §2.5.3 (all-MiniLM-L6-v2, FAISS, top 10).
    """

    backend: str
    embedder: Any
    embeds: bool  # whether the chunks are embedded, or their vectors were given
    _vectors: np.ndarray | None = PrivateAttr(default=None)

    def __init__(
        self,
        chunks: Sequence[Chunk],
        embedder: Embeddings,
        *,
        vectors: np.ndarray | None = None,
        backend: str = "numpy",
        k: int = 10,
    ) -> None:
        check_known("dense backend", [backend], ("numpy", "faiss"))
        if not all(callable(getattr(embedder, name, None)) for name in ("embed_documents", "embed_query")):
            raise ConfigError(
                f"embedder is {type(embedder).__name__}",
                "a LangChain Embeddings with embed_documents and embed_query",
                "pass ragbench.MiniLM() or for instance langchain_ollama.OllamaEmbeddings(model=...)",
            )
        chunks = check_chunks(chunks)
        super().__init__(chunks, backend=backend, embedder=embedder, embeds=vectors is None, k=k)
        if vectors is None:
            _warn_of_language(embedder, self._chunks)
        else:
            vectors = np.asarray(vectors)
            if vectors.ndim != 2 or len(vectors) != len(chunks):
                got, expected = f"vectors of shape {vectors.shape}", f"({len(chunks)}, dimension), one row per chunk"
                raise ConfigError(got, expected, "leave vectors out to embed the chunks")
            self._vectors = _unit(vectors[sorted(range(len(chunks)), key=lambda i: chunks[i].id)])
        if backend == "faiss":
            _import_faiss()  # that it is missing is said here, not at the first search

    def settings(self) -> dict[str, Any]:
        name = embedder_name(self.embedder)
        return {"retriever": "Dense", "embedder": name, "similarity": "cosine", "chunks": len(self._chunks)}

    @property
    def vectors(self) -> np.ndarray:
        """The chunks' unit vectors, float32 (chunks, dimension), in the order of ``chunks``."""
        if self._vectors is None:
            vectors = _unit(as_array(self.embedder, [chunk.text for chunk in self._chunks]))
            if len(vectors) != len(self._chunks):
                got = f"{type(self.embedder).__name__} returned {len(vectors)} vectors for {len(self._chunks)} texts"
                raise ModelError(got, "one vector per text", "check the embedding model")
            self._vectors = vectors
        return self._vectors

    @cached_property
    def _faiss(self) -> Any:
        index = _import_faiss().IndexFlatIP(self.vectors.shape[1])
        index.add(self.vectors)
        return index

    def embed_queries(self, queries: Sequence[str]) -> np.ndarray:
        """Embed queries: float32 (len(queries), dimension), rows of unit length (or zero)."""
        dimension = self.vectors.shape[1]
        vectors = _unit(query_array(self.embedder, queries))
        if vectors.shape[1] != dimension:
            got = f"query vectors of dimension {vectors.shape[1]}"
            raise ModelError(got, f"{dimension}, as of the chunks", "embed queries and chunks with the same model")
        return vectors

    def nearest(self, queries: np.ndarray, k: int, scopes: Scopes = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Find the chunks nearest to query vectors, as from ``embed_queries``: places in ``chunks``, int32, and scores,
        float64, both (queries, k), and how many of each row count.
        """
        m, k = len(queries), min(k, len(self._chunks))
        places, scores, counts = np.zeros((m, k), np.int32), np.zeros((m, k)), np.zeros(m, np.int32)
        for allowed, members in self._by_scope(scopes) or [(None, range(m))]:
            whole = allowed is None
            vectors = self.vectors if whole else self.vectors[allowed]
            if width := min(k, len(vectors)):
                index = self._faiss if whole and self.backend == "faiss" else None
                some, scores[members, :width], counts[members] = _nearest(queries[members], vectors, width, index)
                places[members, :width] = some if whole else np.array(allowed, np.int32)[some]
        return places, scores, counts

    def _search(self, queries: list[str], k: int, scopes: Scopes) -> list[list[Hit]]:
        vectors = _unit(self.embed_queries(queries))  # scaled once more: the last bit of recorded scores is of that
        return hits_of(self._chunks, *self.nearest(vectors, k, scopes))


def embedder_name(embedder: Any) -> str:
    """Return the name of an embedder's model, or of its class."""
    return str(getattr(embedder, "model_id", None) or getattr(embedder, "model", None) or type(embedder).__name__)


def _warn_of_language(embedder: Any, chunks: Sequence[Chunk]) -> None:
    """Warn where the English MiniLM is to embed texts in other languages."""
    if str(getattr(embedder, "model_id", "")).startswith("all-MiniLM-L6-v2"):
        sample = chunks[:: max(1, len(chunks) // _SAMPLE)]
        languages = Counter(language_of([chunk.text]) for chunk in sample)
        others = Counter({name: n for name, n in languages.items() if name not in (None, "english")})
        if others.total() > _FEW * len(sample):
            named = ", ".join(f"{n} {str(name).capitalize()}" for name, n in others.most_common())
            warnings.warn(
                f"of {len(sample)} texts looked at, {named}: all-MiniLM-L6-v2 knows English, its vectors say little of "
                "them. Name a multilingual model, for instance embedder: ollama:bge-m3, or embedder: onnx:FOLDER "
                "(docs/models.md)",
                stacklevel=3,
            )


def _unit(vectors: np.ndarray) -> np.ndarray:
    """Scale rows to unit length (zero rows stay zero); ModelError for what is no matrix of finite numbers."""
    if vectors.ndim != 2:
        got, do = f"vectors of shape {vectors.shape}", "check the embedding model: all its vectors must have one length"
        raise ModelError(got, "numbers of shape (texts, dimension)", do)
    vectors = vectors.astype(np.float32)
    norms = np.linalg.norm(vectors, axis=1)
    bad = np.flatnonzero(~np.isfinite(norms))
    if len(bad):
        got = f"the vector of text {bad[0]} is not finite ({len(bad)} such)"
        raise ModelError(got, "finite numbers", "check the embedding model")
    return np.ascontiguousarray(vectors / np.where(norms == 0, 1, norms)[:, None])


def _import_faiss() -> Any:
    try:
        import faiss
    except ImportError:
        got = "backend='faiss', but faiss is not installed"
        raise ConfigError(got, "the extra [faiss]", "pip install 'ragbench[faiss]'") from None
    return faiss


def _nearest(queries: np.ndarray, vectors: np.ndarray, k: int, index: Any) -> list[np.ndarray]:
    """Return the exact hits of each query among ``vectors``: places, scores and how many count."""
    starts = range(0, len(queries), _QUERIES_AT_ONCE)
    batches = [_nearest_of_batch(queries[i : i + _QUERIES_AT_ONCE], vectors, k, index) for i in starts]
    return [np.concatenate(arrays) for arrays in zip(*batches, strict=True)]


def _nearest_of_batch(queries: np.ndarray, vectors: np.ndarray, k: int, index: Any) -> tuple[np.ndarray, ...]:
    from ragbench.retrieval import _kernels

    m = len(queries)
    places, scores, counts = np.zeros((m, k), np.int32), np.zeros((m, k)), np.zeros(m, np.int32)
    rough, candidates, n = _propose(queries, vectors, min(len(vectors), k + _SPARE), index)
    error = vectors.shape[1] * np.finfo(np.float32).eps  # bounds the rounding of a float32 product of unit vectors

    def exact(first: int, stop: int) -> None:
        r = slice(first, stop)
        proposed = rough[r], candidates[r], n[r]
        _kernels.exact_hits(queries[r], vectors, *proposed, error, scores[r], places[r], counts[r])

    in_parts(m, -(-m // cores()), exact)
    return places, scores, counts


def _propose(queries: np.ndarray, vectors: np.ndarray, wide: int, index: Any) -> tuple:
    """Return ``wide`` rough candidates per query, the worst one first: (similarities, places, how many)."""
    from ragbench.retrieval import _kernels

    m = len(queries)
    if index is not None:
        rough, candidates = index.search(queries, wide)
        worst_first = np.ascontiguousarray(rough[:, ::-1]), np.ascontiguousarray(candidates[:, ::-1], np.int32)
        return *worst_first, np.full(m, wide, np.int32)
    rough, candidates, n = np.empty((m, wide), np.float32), np.empty((m, wide), np.int32), np.zeros(m, np.int32)
    tile = np.empty((m, _kernels.TILE), np.float32)
    for first in range(0, len(vectors), _kernels.TILE):
        block = vectors[first : first + _kernels.TILE]
        np.matmul(queries, block.T, out=tile[:, : len(block)])

        def collect(low: int, high: int, first: int = first, width: int = len(block)) -> None:
            r = slice(low, high)
            _kernels.collect(tile[r], width, first, rough[r], candidates[r], n[r])

        in_parts(m, -(-m // cores()), collect)
    return rough, candidates, n
