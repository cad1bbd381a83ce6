"""What every retriever shares: a batched ``search()`` with checked arguments, and LangChain's
``invoke()`` on top.

Best hit first; ties by chunk id; a hit whose score is exactly zero carries no evidence and is not
returned; the same input gives the same output, whatever the order of the chunks.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Annotated, Any

import numpy as np
from langchain_core.documents import Document as LangChainDocument
from langchain_core.retrievers import BaseRetriever
from pydantic import AfterValidator, PositiveInt, PrivateAttr, ValidationError

from ragbench.errors import ConfigError, DataError
from ragbench.records import Chunk, Hit


def check_chunks(chunks: Iterable[Chunk]) -> list[Chunk]:
    """List the chunks; ConfigError for something else, DataError for none or two that share an
    id.
    """
    chunks = list(chunks)
    if not chunks:
        do = "check that the documents have text"
        raise DataError("no chunks to index", "at least one Chunk", do)
    names = set()
    for chunk in chunks:
        texts = (chunk.id, chunk.text) if isinstance(chunk, Chunk) else [None]
        if not all(isinstance(text, str) for text in texts):
            do = "call token_chunks(documents)"
            raise ConfigError(f"a chunk is {chunk!r:.200}", "ragbench.Chunk", do)
        if chunk.id in names:
            do = "give every chunk an id of its own"
            raise DataError(f"two chunks share the id {chunk.id!r}", "unique ids", do)
        names.add(chunk.id)
    return chunks


def check_retriever(retriever: Any) -> Any:
    """Return the retriever, or raise ConfigError when it has no batched ``search``."""
    if isinstance(retriever, type) or not callable(getattr(retriever, "search", None)):
        do = "pass for instance BM25(chunks)"
        raise ConfigError(f"retriever is {retriever!r:.60}", "one with search(queries, k)", do)
    return retriever


# a field that holds a retriever, ours or anybody's
Searcher = Annotated[Any, AfterValidator(check_retriever)]


def retriever_settings(retriever: Any) -> dict[str, Any]:
    """Return a retriever's settings, or without any its name, or its class's."""
    settings = getattr(retriever, "settings", None)
    name = getattr(retriever, "__qualname__", type(retriever).__name__)
    return settings() if callable(settings) else {"retriever": name}


def _described(value: Any) -> Any:
    if isinstance(value, list):
        return [*map(_described, value)]
    plain = value is None or isinstance(value, bool | int | float | str | dict | tuple)
    return value if plain else retriever_settings(value)


def before(end: int, chunks: Iterable[Chunk]) -> list[Chunk]:
    """Return the chunks that begin before character ``end`` of their texts joined with one space,
    the last one cut.
    """
    kept = []
    start = 0
    for chunk in chunks:
        if start >= end:
            break
        kept.append(replace(chunk, text=chunk.text[: end - start]))
        start += len(chunk.text) + 1
    return kept


def ranked(pairs: Iterable[tuple[Chunk, float]]) -> list[Hit]:
    """Number hits that are in order, from 1."""
    return [Hit(chunk, score, rank) for rank, (chunk, score) in enumerate(pairs, 1)]


def _document(chunk: Chunk, **more: Any) -> LangChainDocument:
    """Return a chunk as a LangChain document, with ``more`` in its metadata."""
    metadata = {"title": chunk.title, "doc_id": chunk.doc_id, "chunk_id": chunk.id}
    return LangChainDocument(page_content=chunk.text, id=chunk.id, metadata=metadata | more)


class Retriever(BaseRetriever):
    """A LangChain retriever with batched, deterministic search.

    ``invoke(query)`` returns ``k`` LangChain documents whose metadata holds ``title, doc_id,
    chunk_id, score, rank``; ``k`` may be passed to it too.
    """

    k: PositiveInt = 10

    def __init__(self, **fields: Any) -> None:
        try:
            super().__init__(**fields)
        except ValidationError as error:
            wrong = error.errors()[0]
            got = f"{wrong['loc'][0]}={fields.get(wrong['loc'][0])!r}"
            expected = wrong["msg"]
            raise ConfigError(got, expected, f"see help({type(self).__name__})") from None

    def search(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        """Return the best ``k`` hits of every query, best first; fewer where fewer chunks
        qualify.
        """
        queries = _texts(queries)
        if isinstance(k, bool) or not hasattr(k, "__index__") or k < 1:
            raise ConfigError(f"k={k!r}", "a whole number, at least 1", "use for instance k=10")
        if not queries:
            return []
        hits = self._search(queries, int(k))
        if not isinstance(hits, list) or len(hits) != len(queries) or max(map(len, hits)) > k:
            got = f"{type(self).__name__}._search returned {hits!r:.120}"
            do = "return self.best(scores, k), or lists of Hit"
            raise DataError(got, f"a list of {len(queries)} lists, each of at most {k} Hit", do)
        return hits

    @abstractmethod
    def _search(self, queries: list[str], k: int) -> list[list[Hit]]: ...

    def settings(self) -> dict[str, Any]:
        """Return every parameter that can change the hits, ready for JSON.

        Default: the fields of the class, objects by their own settings; a field ``over`` is what a
        retriever wraps.
        """
        fields = {
            name: _described(value) for name, value in self if name not in Retriever.model_fields
        }
        return {"retriever": type(self).__name__, **fields}

    def __repr__(self) -> str:
        """Write what changes the hits in one line: ``Dense(embedder='all-MiniLM-L6-v2-fp32',
        chunks=12)``.
        """
        settings = retriever_settings(self)
        over = settings.pop("over", [])
        parts = [str(inner["retriever"]) for inner in (over if isinstance(over, list) else [over])]
        for name, value in settings.items():
            if name != "retriever" and not isinstance(value, dict | list):
                parts.append(f"{name}={value!r}")
        return f"{type(self).__name__}({', '.join(parts)})"

    __str__ = __repr__

    def _get_relevant_documents(
        self, query: str, *, run_manager: Any = None, k: int | None = None
    ) -> list[LangChainDocument]:
        hits = self.search([query], self.k if k is None else k)[0]
        return [_document(hit.chunk, score=hit.score, rank=hit.rank) for hit in hits]


def _texts(queries: Sequence[str]) -> list[str]:
    if isinstance(queries, str) or not isinstance(queries, Iterable):
        got = f"queries is {type(queries).__name__}"
        raise ConfigError(got, "a list of str", "pass [query], or call invoke(query)")
    queries = list(queries)
    for i, query in enumerate(queries):
        if not isinstance(query, str) or not query.strip():
            do = "pass question.text; leave empty questions out"
            raise ConfigError(f"query {i} is {query!r}", "some text", do)
    return queries


class Index(Retriever):
    """A retriever that holds chunks, sorted so that a lower position wins a tie.

    ``title=True`` searches the document's title with each of its chunks (default: the text alone,
    as in the papers).
    """

    _chunks: list[Chunk] = PrivateAttr()
    _title: bool = PrivateAttr()

    def __init__(self, chunks: Iterable[Chunk], *, title: bool = False, **fields: Any) -> None:
        super().__init__(**fields)
        self._title = title
        self._chunks = sorted(check_chunks(chunks), key=lambda chunk: chunk.id)

    @property
    def texts(self) -> list[str]:
        """What is searched, in the order of ``chunks``."""
        return [f"{c.title}\n{c.text}" if self._title and c.title else c.text for c in self._chunks]

    @property
    def with_title(self) -> dict[str, bool]:
        """The entry of ``settings()``: none where titles are not searched, as in older runs."""
        return {"title": True} if self._title else {}

    @property
    def chunks(self) -> list[Chunk]:
        """The indexed chunks, in the order that breaks ties."""
        return list(self._chunks)

    def best(self, scores: Sequence[Sequence[float]], k: int) -> list[list[Hit]]:
        """Return what ``_search`` has to return, from scores of shape (queries, chunks), in the
        order of ``chunks``.
        """
        hits = []
        for row in scores:
            row = np.asarray(row, float)
            if row.shape != (len(self._chunks),) or np.isnan(row).any():
                got = f"{type(self).__name__} gave scores of shape {row.shape}, or one that is NaN"
                expected = f"a number for each of {len(self._chunks)} chunks"
                raise DataError(got, expected, "score every chunk, with 0 for no hit")
            order = np.argsort(-row, kind="stable")
            hits.append(self._hits(order, row[order], k))
        return hits

    def _hits(self, places: np.ndarray, scores: np.ndarray, k: int) -> list[Hit]:
        """Return the hits at places of chunks, best first, as far as their scores are not 0."""
        kept = np.flatnonzero(scores)[:k]
        pairs = zip(places[kept].tolist(), scores[kept].tolist(), strict=True)
        return ranked((self._chunks[place], score) for place, score in pairs)


# Anybody's: a vector store's ``as_retriever()``, a retriever of another package


def to_langchain(chunks: Iterable[Chunk]) -> list[LangChainDocument]:
    """Return chunks as LangChain documents, for a vector store:
    ``store.add_documents(to_langchain(chunks))``.
    """
    return [_document(chunk) for chunk in chunks]


class FromLangChain(Index):
    """A LangChain retriever's ranking as hits; scores are 1 / rank.

    Parameters
    ----------
    retriever : with ``invoke(query)``. It is asked for k documents where it has ``search_kwargs``
        or a field ``k``.
    chunks : those that it searches, see `to_langchain`. A document is found again by its chunk's
        id, else by its text.
    label : what it is, with all that can change its hits ("Chroma, bge-m3"): a run keeps rows by
        this label.
    """

    label: str
    _retriever: Any = PrivateAttr()
    _known: dict[str, Chunk] = PrivateAttr()

    def __init__(self, retriever: Any, chunks: Iterable[Chunk], label: str) -> None:
        if not callable(getattr(retriever, "invoke", None)):
            got = f"retriever is {type(retriever).__name__}"
            raise ConfigError(
                got, "a LangChain retriever", "of a vector store, pass store.as_retriever()"
            )
        super().__init__(chunks, label=label)
        self._retriever = retriever
        self._known = {c.text: c for c in reversed(self._chunks)} | {c.id: c for c in self._chunks}

    def _search(self, queries: list[str], k: int) -> list[list[Hit]]:
        retriever = self._retriever
        if isinstance(retriever, BaseRetriever):
            if isinstance(getattr(retriever, "search_kwargs", None), dict):
                search_options = {"search_kwargs": retriever.search_kwargs | {"k": k}}
                retriever = retriever.model_copy(update=search_options)
            elif hasattr(retriever, "k"):
                retriever = retriever.model_copy(update={"k": k})
        hits = []
        for query in queries:
            chunks = list(dict.fromkeys(map(self._chunk, retriever.invoke(query))))[:k]
            hits.append(ranked((chunk, 1 / rank) for rank, chunk in enumerate(chunks, 1)))
        return hits

    def _chunk(self, document: LangChainDocument) -> Chunk:
        for key in (document.metadata.get("chunk_id"), document.id, document.page_content):
            if key in self._known:
                return self._known[key]
        got = (
            f"{self.label} found a text that is none of the chunks: {document.page_content[:60]!r}"
        )
        do = "index ragbench.to_langchain(chunks), which keeps their ids"
        raise DataError(got, "documents made of these chunks", do)
