"""Dense retrieval: exact nearest neighbours by cosine (thesis: *sim*), in tiles of one matrix product.

The product in float32 proposes candidates; their scores are then computed again in float64, one by one, so that
equal vectors get equal scores and ties fall by chunk id whatever the tile they were in.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from langchain_core.embeddings import Embeddings
from pydantic import PrivateAttr

from ragbench.errors import ConfigError, ModelError, check_known
from ragbench.records import Chunk, Hit
from ragbench.retrieval.base import (
    Index,
    Scope,
    Scopes,
    check_chunks,
    check_positive,
    check_scope,
    cores,
    hits_of,
    in_parts,
)
from ragbench.text.languages import language_of

_QUERIES_AT_ONCE = 1024
_SAMPLE = 50  # chunks whose language is looked at
_FEW = 0.1  # of them in other languages than English are not worth a warning: quotations, tables, names
_SPARE = 16  # candidates beyond k: rounding in the matrix product may misplace a few


class Dense(Index):
    """Exact search by cosine similarity over embedded chunks (thesis: the retriever *sim*).

    Parameters
    ----------
    chunks : what to index; ids must be unique.
    embedder : any LangChain ``Embeddings``. Vectors need not be of unit length; a text whose vector is zero is never
        returned. One with ``embed_array(texts)`` (or ``embed_queries``), as ragbench's own, is called once for all
        queries.
    vectors : float array (len(chunks), dimension), in the order of ``chunks``, to use instead of embedding them.
        Without it the chunks are embedded at the first search, or when ``vectors`` is read.
    backend : ``"numpy"``, or ``"faiss"`` (extra ``[faiss]``) to propose the candidates; the hits are the same.
    k : hits per ``invoke()``.

    Raises
    ------
    ConfigError for a wrong embedder or vectors of a wrong shape; DataError for no chunks or repeated ids; at the first
    search, ModelError for vectors from the embedder that cannot be used, or not of one length for queries and chunks.

    Source: thesis §2.5.3 (all-MiniLM-L6-v2, FAISS, top 10).
    """

    backend: str
    embedder: Any
    embeds: bool  # whether the chunks are embedded, or their vectors were given
    _vectors: np.ndarray | None = PrivateAttr(default=None)
    _faiss: Any = PrivateAttr(default=None)

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
        if not callable(getattr(embedder, "embed_documents", None)) or not callable(
            getattr(embedder, "embed_query", None)
        ):
            raise ConfigError(
                f"embedder is {type(embedder).__name__}",
                "a LangChain Embeddings with embed_documents and embed_query",
                "pass ragbench.MiniLM() or for instance langchain_ollama.OllamaEmbeddings(model=...)",
            )
        chunks = check_chunks(chunks)
        k = check_positive("k", k)
        super().__init__(chunks, backend=backend, embedder=embedder, embeds=vectors is None, k=k)
        if vectors is None:
            _warn_of_language(embedder, self._chunks)
        else:
            vectors = np.asarray(vectors)
            if vectors.ndim != 2 or len(vectors) != len(chunks):
                raise ConfigError(
                    f"vectors of shape {vectors.shape}",
                    f"({len(chunks)}, dimension), one row per chunk",
                    "leave vectors out to embed the chunks",
                )
            self._vectors = _unit(vectors[sorted(range(len(chunks)), key=lambda i: chunks[i].id)])
        if backend == "faiss":
            _import_faiss()  # that it is missing is said here, not at the first search

    def settings(self) -> dict[str, Any]:
        return {
            "retriever": "Dense",
            "embedder": embedder_name(self.embedder),
            "similarity": "cosine",
            "chunks": len(self._chunks),
        }

    @property
    def vectors(self) -> np.ndarray:
        """The chunks' unit vectors, float32 (chunks, dimension), in the order of ``chunks``."""
        if self._vectors is None:
            self._vectors = self._embed([chunk.text for chunk in self._chunks])
        return self._vectors

    def _index(self) -> Any:
        """Return faiss' index of the vectors; None without faiss."""
        if self.backend == "faiss" and self._faiss is None:
            self._faiss = _import_faiss().IndexFlatIP(self.vectors.shape[1])
            self._faiss.add(self.vectors)
        return self._faiss

    def embed_queries(self, queries: Sequence[str]) -> np.ndarray:
        """Embed queries: float32 (len(queries), dimension), rows of unit length (or zero)."""
        dimension = self.vectors.shape[1]
        make = getattr(self.embedder, "embed_queries", getattr(self.embedder, "embed_array", None))
        if callable(make):
            return _unit(np.asarray(make(list(queries))), dimension)
        return _unit(np.array([self.embedder.embed_query(query) for query in queries]), dimension)

    def search_vectors(self, vectors: np.ndarray, k: int, scope: Scope = None) -> list[list[Hit]]:
        """Return the best ``k`` hits of every query vector, shape (queries, dimension); otherwise as ``search``.

        Raises
        ------
        ModelError for vectors that are not finite or of another length than the chunks'; ConfigError as ``search``.
        """
        vectors = _unit(np.atleast_2d(vectors), self.vectors.shape[1])
        items, scores, found = self.nearest(vectors, check_positive("k", k), check_scope(scope, len(vectors)))
        return hits_of(self._chunks, items, scores, found)

    def nearest(self, queries: np.ndarray, k: int, scopes: Scopes = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Find the nearest chunks as arrays.

        Parameters
        ----------
        queries : float32 (queries, dimension), as from ``embed_queries``.
        k : how many at most.
        scopes : None, or one set of document ids (or None) per query.

        Returns
        -------
        items : int32 (queries, k), places in ``chunks``; scores : float64 (queries, k); found : int32 (queries,), how
        many of each row count.
        """
        k = min(k, len(self._chunks))
        items = np.zeros((len(queries), k), np.int32)
        scores, found = np.zeros((len(queries), k)), np.zeros(len(queries), np.int32)
        if scopes is None:
            _fill(queries, self.vectors, self._index(), items, scores, found)
            return items, scores, found
        for allowed, members in self._rows(scopes):
            if allowed is None:
                vectors, index, names = self.vectors, self._index(), np.arange(len(self._chunks), dtype=np.int32)
            else:
                vectors, index, names = self.vectors[allowed], None, np.array(allowed, np.int32)
            width = min(k, len(names))
            if width:
                part = np.zeros((len(members), width), np.int32), np.zeros((len(members), width))
                n = np.zeros(len(members), np.int32)
                _fill(queries[members], vectors, index, *part, n)
                items[members, :width], scores[members, :width], found[members] = names[part[0]], part[1], n
        return items, scores, found

    def _search(self, queries: list[str], k: int, scopes: Scopes) -> list[list[Hit]]:
        return self.search_vectors(self.embed_queries(queries), k, scopes)

    def _embed(self, texts: list[str]) -> np.ndarray:
        embedder = self.embedder
        make = getattr(embedder, "embed_array", None)
        vectors = _unit(np.asarray(make(texts) if callable(make) else embedder.embed_documents(texts)))
        if len(vectors) != len(texts):
            raise ModelError(
                f"{type(embedder).__name__} returned {len(vectors)} vectors for {len(texts)} texts",
                "one vector per text",
                "check the embedding model",
            )
        return vectors


def embedder_name(embedder: Any) -> str:
    """Return the name of an embedder's model, or of its class."""
    return str(getattr(embedder, "model_id", None) or getattr(embedder, "model", None) or type(embedder).__name__)


def _warn_of_language(embedder: Any, chunks: Sequence[Chunk]) -> None:
    """Warn where the English MiniLM is to embed texts in other languages."""
    if str(getattr(embedder, "model_id", "")).startswith("all-MiniLM-L6-v2"):
        sample = chunks[:: max(1, len(chunks) // _SAMPLE)]
        spoken = Counter(language_of([chunk.text]) for chunk in sample)
        others = Counter({name: n for name, n in spoken.items() if name not in (None, "english")})
        if others.total() > _FEW * len(sample):
            named = ", ".join(f"{n} {str(name).capitalize()}" for name, n in others.most_common())
            warnings.warn(
                f"of {len(sample)} texts looked at, {named}: all-MiniLM-L6-v2 knows English, its vectors say little of "
                "them. Name a multilingual model, for instance embedder: ollama:bge-m3, or embedder: onnx:FOLDER "
                "(docs/models.md)",
                stacklevel=3,
            )


def _unit(vectors: np.ndarray, dimension: int | None = None) -> np.ndarray:
    """Scale rows to unit length (zero rows stay zero), as float32."""
    if vectors.ndim != 2 or not np.issubdtype(vectors.dtype, np.number):
        raise ModelError(
            f"vectors of shape {vectors.shape} and type {vectors.dtype}",
            "numbers of shape (texts, dimension)",
            "check the embedding model: all its vectors must have one length",
        )
    if dimension is not None and vectors.shape[1] != dimension:
        raise ModelError(
            f"query vectors of dimension {vectors.shape[1]}",
            f"{dimension}, as of the chunks",
            "embed queries and chunks with the same model",
        )
    vectors = vectors.astype(np.float32)
    norms = np.linalg.norm(vectors, axis=1)
    bad = np.flatnonzero(~np.isfinite(norms))
    if len(bad):
        raise ModelError(
            f"the vector of text {bad[0]} is not finite ({len(bad)} such)",
            "finite numbers",
            "check the embedding model",
        )
    return np.ascontiguousarray(vectors / np.where(norms == 0, 1, norms)[:, None])


def _import_faiss() -> Any:
    try:
        import faiss
    except ImportError:
        raise ConfigError(
            "backend='faiss', but faiss is not installed", "the extra [faiss]", "pip install 'ragbench[faiss]'"
        ) from None
    return faiss


def _fill(queries: np.ndarray, vectors: np.ndarray, index: Any, items, scores, found) -> None:
    """Write the exact hits of each query among ``vectors`` into ``items, scores`` (queries, k) and ``found``."""
    from ragbench.retrieval import _kernels

    wide = min(len(vectors), items.shape[1] + _SPARE)
    error = vectors.shape[1] * np.finfo(np.float32).eps  # bounds the rounding of a float32 product of unit vectors
    for low in range(0, len(queries), _QUERIES_AT_ONCE):
        batch = slice(low, low + _QUERIES_AT_ONCE)
        some, into = queries[batch], (scores[batch], items[batch], found[batch])
        rough, candidates, n = _propose(some, vectors, wide, index)

        def exact(first: int, stop: int, some=some, into=into, rough=rough, candidates=candidates, n=n) -> None:
            r = slice(first, stop)
            _kernels.exact_hits(some[r], vectors, rough[r], candidates[r], n[r], error, *(array[r] for array in into))

        in_parts(len(some), -(-len(some) // cores()), exact)


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

        def collect(low: int, high: int, first: int = first, block: np.ndarray = block) -> None:
            r = slice(low, high)
            _kernels.collect(tile[r], len(block), first, rough[r], candidates[r], n[r])

        in_parts(m, -(-m // cores()), collect)
    return rough, candidates, n
