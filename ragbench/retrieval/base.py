"""What every retriever shares: a batched ``search()`` with checked arguments, and LangChain's ``invoke()`` on top.

Rules that hold for all of them: best hit first; ties by chunk id; a hit whose score is exactly zero carries no evidence
and is not returned; the same input gives the same output, whatever the order of the chunks.
"""

from __future__ import annotations

import hashlib
import inspect
import os
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
from langchain_core.documents import Document as LangChainDocument
from langchain_core.retrievers import BaseRetriever
from pydantic import PrivateAttr

from ragbench.errors import ConfigError, DataError
from ragbench.records import Chunk, Hit

Scope = Collection[str] | Sequence[Collection[str] | None] | None
Scopes = list[frozenset[str] | None] | None


def check_chunks(chunks: Iterable[Chunk]) -> list[Chunk]:
    """Return the chunks as a list; ConfigError for something else, DataError for none or two that share an id."""
    if isinstance(chunks, (str, Chunk)) or not isinstance(chunks, Iterable):
        raise ConfigError(f"chunks is {type(chunks).__name__}", "a list of Chunk", "call token_chunks(documents) first")
    chunks = list(chunks)
    if not chunks:
        raise DataError("no chunks to index", "at least one Chunk", "check that the documents have text")
    seen: dict[str, int] = {}
    for i, chunk in enumerate(chunks):
        if not isinstance(chunk, Chunk):
            raise ConfigError(
                f"chunk {i} is {type(chunk).__name__}",
                "ragbench.Chunk(id, text, doc_id, title)",
                "call token_chunks(documents) or semantic_chunks(documents, embedder)",
            )
        if not isinstance(chunk.text, str) or not isinstance(chunk.id, str):
            raise ConfigError(
                f"chunk {i} has id {chunk.id!r} and text of type {type(chunk.text).__name__}",
                "both str",
                "convert them where the chunk is made",
            )
        first = seen.setdefault(chunk.id, i)
        if first != i:
            raise DataError(
                f"chunks {first} and {i} share the id {chunk.id!r}", "unique ids", "give every chunk an id of its own"
            )
    return chunks


def check_queries(queries: Sequence[str]) -> list[str]:
    """Return the queries as a list; ConfigError for a single string, or a query that is no text or empty."""
    if isinstance(queries, str) or not isinstance(queries, Iterable):
        raise ConfigError(
            f"queries is {type(queries).__name__}", "a list of str", "pass [query], or call invoke(query)"
        )
    queries = list(queries)
    for i, query in enumerate(queries):
        if not isinstance(query, str):
            raise ConfigError(f"query {i} is {type(query).__name__}", "str", "pass question.text")
        if not query.strip():
            raise ConfigError(f"query {i} is empty: {query!r}", "some text", "leave empty questions out")
    return queries


def check_positive(name: str, value: Any) -> int:
    """Return ``value``, an int of at least 1, or raise ConfigError."""
    if isinstance(value, bool) or not hasattr(value, "__index__") or value < 1:
        raise ConfigError(f"{name}={value!r}", "a whole number, at least 1", f"use for instance {name}=10")
    return int(value)


def check_retriever(retriever: Any) -> Any:
    """Return the retriever, or raise ConfigError when it has no batched ``search``."""
    if isinstance(retriever, type) or not callable(getattr(retriever, "search", None)):
        raise ConfigError(
            f"retriever is {retriever if isinstance(retriever, type) else type(retriever).__name__}",
            "a retriever with search(queries, k, scope)",
            "pass for instance BM25(chunks) or Dense(chunks, embedder)",
        )
    return retriever


def describe(retriever: Any) -> dict[str, Any]:
    """Return a retriever's settings, or its class's name when it has none."""
    settings = getattr(retriever, "settings", None)
    return settings() if callable(settings) else {"retriever": type(retriever).__name__}


def check_scope(scope: Scope, n: int) -> Scopes:
    """Return one set of document ids (or None: everything) for each of ``n`` queries, or None."""
    if scope is None:
        return None
    wrong = ConfigError(
        f"scope is {type(scope).__name__}",
        "a set of document ids, or a list with one set per query",
        "pass for instance scope={document.id}",
    )
    if isinstance(scope, (str, bytes)) or not isinstance(scope, Collection):
        raise wrong
    if all(isinstance(item, str) for item in scope):
        return [frozenset(scope)] * n  # type: ignore[arg-type]
    if not isinstance(scope, Sequence):
        raise wrong
    if len(scope) != n:
        raise ConfigError(
            f"{len(scope)} scopes for {n} queries", "one scope per query", "pass one set of ids per query"
        )
    known: dict[int, frozenset[str]] = {}
    for item in scope:
        if item is not None and id(item) not in known:
            if isinstance(item, (str, bytes)) or not isinstance(item, Collection):
                raise wrong
            known[id(item)] = item if isinstance(item, frozenset) else frozenset(item)
    return [None if item is None else known[id(item)] for item in scope]


def model_name(model: Any) -> str:
    """Return the name of a chat model (or of an object of one's own, its class), for ``settings()``."""
    name = getattr(model, "model", None) or getattr(model, "model_name", None) or model
    return name if isinstance(name, str) else type(name).__name__


def in_parts(n: int, size: int, work: Callable[[int, int], Any]) -> list[Any]:
    """Call ``work(start, stop)`` for consecutive parts of ``range(n)`` on all cores; return the results in order."""
    parts = [(i, min(n, i + size)) for i in range(0, n, size)]
    threads = min(len(parts), cores())
    if threads <= 1:
        return [work(*part) for part in parts]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(lambda part: work(*part), parts))


def cores() -> int:
    """Return the number of cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def before(end: int, chunks: Iterable[Chunk]) -> list[Chunk]:
    """Return the chunks that begin before character ``end`` of their texts joined with one space, the last one cut."""
    kept, start = [], 0
    for chunk in chunks:
        if start >= end:
            break
        kept.append(replace(chunk, text=chunk.text[: end - start]))
        start += len(chunk.text) + 1
    return kept


def ranked(pairs: Iterable[tuple[Chunk, float]]) -> list[Hit]:
    """Number hits that are in order, from 1."""
    return [Hit(chunk, score, rank) for rank, (chunk, score) in enumerate(pairs, 1)]


def hits_of(chunks: Sequence[Chunk], items: np.ndarray, scores: np.ndarray, found: np.ndarray) -> list[list[Hit]]:
    """Return each query's hits: of its row of places in ``chunks`` and of scores, the first ``found``."""
    return [
        ranked((chunks[i], s) for i, s in zip(items[q, :n].tolist(), scores[q, :n].tolist(), strict=True))
        for q, n in enumerate(found.tolist())
    ]


def as_document(chunk: Chunk, **more: Any) -> LangChainDocument:
    """Return a chunk as a LangChain document, with ``more`` in its metadata."""
    metadata = {"title": chunk.title, "doc_id": chunk.doc_id, "chunk_id": chunk.id}
    return LangChainDocument(page_content=chunk.text, id=chunk.id, metadata=metadata | more)


class Retriever(BaseRetriever):
    """A LangChain retriever with batched, deterministic search.

    ``invoke(query)`` returns ``k`` LangChain documents whose metadata holds ``title, doc_id, chunk_id, score, rank``;
    ``k`` and ``scope`` may be passed to it too.
    """

    k: int = 10

    def search(self, queries: Sequence[str], k: int, scope: Scope = None) -> list[list[Hit]]:
        """Return the best ``k`` hits of every query.

        Parameters
        ----------
        queries : the texts to search for.
        k : how many hits at most, at least 1.
        scope : restricts the hits to chunks of these documents: a set of document ids, or one set per query.
            The index's statistics stay those of all chunks.

        Returns
        -------
        One list per query, best first; ties by chunk id. A list is shorter than ``k`` when fewer chunks qualify.

        Raises
        ------
        ConfigError for an empty query, a wrong type, ``k`` below 1, or a document id that has no chunk.
        """
        queries = check_queries(queries)
        return self._search(queries, check_positive("k", k), check_scope(scope, len(queries))) if queries else []

    @abstractmethod
    def _search(self, queries: list[str], k: int, scopes: Scopes) -> list[list[Hit]]: ...

    def settings(self) -> dict[str, Any]:
        """Return every parameter that can change the hits, ready for JSON. Default: the fields, and a hash of the code.

        A run keeps rows by these settings, so rows of an edited ``_search`` are made again.
        """
        try:
            code = inspect.getsource(type(self)).encode()
        except (OSError, TypeError):  # typed at a prompt
            function = type(self)._search.__code__
            code = function.co_code + repr((function.co_names, function.co_consts)).encode()
        fields = {name: value for name, value in self if name not in Retriever.model_fields}
        return {"retriever": type(self).__name__, **fields, "code": hashlib.sha256(code).hexdigest()}

    def __repr__(self) -> str:
        """Write what changes the hits in one line: ``Dense(embedder='all-MiniLM-L6-v2-fp32', chunks=12)``."""
        settings = describe(self)
        over = settings.get("over", [])
        parts = [str(inner.get("retriever")) for inner in (over if isinstance(over, list) else [over])]
        hidden = ("retriever", "code")
        parts += [f"{k}={v!r}" for k, v in settings.items() if k not in hidden and not isinstance(v, dict | list)]
        return f"{type(self).__name__}({', '.join(parts)})"

    __str__ = __repr__

    def _get_relevant_documents(
        self, query: str, *, run_manager: Any = None, k: int | None = None, scope: Scope = None
    ) -> list[LangChainDocument]:
        hits = self.search([query], self.k if k is None else k, scope)[0]
        return [as_document(hit.chunk, score=hit.score, rank=hit.rank) for hit in hits]


class Index(Retriever):
    """A retriever that holds chunks, sorted so that a lower position wins a tie."""

    _chunks: list[Chunk] = PrivateAttr()
    _positions: dict[str, list[int]] | None = PrivateAttr(default=None)

    def __init__(self, chunks: Iterable[Chunk], **fields: Any) -> None:
        super().__init__(**fields)
        self._chunks = sorted(check_chunks(chunks), key=lambda chunk: chunk.id)

    @property
    def chunks(self) -> list[Chunk]:
        """The indexed chunks, in the order that breaks ties."""
        return list(self._chunks)

    def best(self, scores: Sequence[Sequence[float]], k: int, scopes: Scopes) -> list[list[Hit]]:
        """Return what ``_search`` has to return, from a score of every chunk.

        Parameters
        ----------
        scores : shape (queries, chunks), in the order of ``chunks``; 0 is no hit.
        k, scopes : as ``_search`` gets them.
        """
        allowed = {q: row for row, members in self._rows(scopes) for q in members}
        hits = []
        for q, row in enumerate(scores):
            places = allowed.get(q)
            places = range(len(self._chunks)) if places is None else places
            order = sorted((i for i in places if row[i] != 0), key=lambda i: (-row[i], i))
            hits.append(ranked((self._chunks[i], float(row[i])) for i in order[:k]))
        return hits

    def _rows(self, scopes: Scopes) -> list[tuple[list[int] | None, list[int]]]:
        """Group queries by scope: (positions of the allowed chunks or None, numbers of the queries)."""
        if scopes is None:
            return []
        if self._positions is None:
            positions: dict[str, list[int]] = {}
            for i, chunk in enumerate(self._chunks):
                positions.setdefault(chunk.doc_id, []).append(i)
            self._positions = positions
        groups: dict[frozenset[str] | None, list[int]] = {}
        for q, scope in enumerate(scopes):
            groups.setdefault(scope, []).append(q)
        return [(self._allowed(scope), members) for scope, members in groups.items()]

    def _allowed(self, scope: frozenset[str] | None) -> list[int] | None:
        if scope is None:
            return None
        assert self._positions is not None
        missing = [d for d in scope if d not in self._positions]
        if missing:
            raise ConfigError(
                f"scope names {len(missing)} document(s) without a chunk, such as {min(map(str, missing))!r}",
                "ids of indexed documents",
                "use Document.id as it stands in Chunk.doc_id",
            )
        return sorted(i for d in scope for i in self._positions[d])
