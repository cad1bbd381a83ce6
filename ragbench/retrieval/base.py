"""What every retriever shares: a batched ``search()`` with checked arguments, and LangChain's
``invoke()`` on top.

Best hit first; ties by chunk id; a hit whose score is exactly zero carries no evidence and is not
returned; the same input gives the same output, whatever the order of the chunks.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any

import numpy as np
from langchain_core.documents import Document as LangChainDocument
from langchain_core.retrievers import BaseRetriever
from pydantic import AfterValidator, PositiveInt, PrivateAttr, ValidationError

from ragbench.errors import ConfigError, DataError
from ragbench.records import Chunk, Hit


def check_retriever(retriever: Any) -> Any:
    """Return the retriever, or raise ConfigError when it has no batched ``search``."""
    if isinstance(retriever, type) or not callable(getattr(retriever, "search", None)):
        raise ConfigError(
            f"retriever is {retriever!r:.60}",
            "one with search(queries, k)",
            "pass for instance BM25(chunks)",
        )
    return retriever


# a field that holds a retriever, ours or anybody's
Searcher = Annotated[Any, AfterValidator(check_retriever)]


def inner_searches(retriever: Any, queries: Sequence[str]) -> Iterator[tuple[Any, list[str]]]:
    """Yield a retriever and all inside it, each with its queries as far as they are known.

    What a model derives costs, and is known only when it is asked: below a retriever that
    decomposes there are no queries.
    """
    yield retriever, list(queries)
    if hasattr(retriever, "decompose"):
        queries = []
    for inner in _inner(retriever):
        yield from inner_searches(inner, queries)


def _inner(retriever: Any) -> list[Any]:
    """Return the retrievers that one wraps."""
    over = getattr(retriever, "over", [])
    return over if isinstance(over, list) else [over]


def _described(value: Any) -> Any:
    """Return a setting, ready for JSON: an object by its own settings, else by its name."""
    if isinstance(value, list):
        return [_described(each) for each in value]
    if value is None or isinstance(value, bool | int | float | str | dict | tuple):
        return value
    if callable(getattr(value, "settings", None)):
        return value.settings()
    return {"retriever": getattr(value, "__qualname__", type(value).__name__)}


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
            name = str(wrong["loc"][0])
            raise ConfigError(
                f"{name}={fields.get(name)!r}",
                wrong["msg"],
                f"see help({type(self).__name__})",
            ) from None

    def search(self, queries: Sequence[str], k: int) -> list[list[Hit]]:
        """Return the best ``k`` hits of every query, best first; fewer where fewer chunks
        qualify.
        """
        queries = _checked_queries(queries)
        if isinstance(k, bool) or not hasattr(k, "__index__") or k < 1:
            raise ConfigError(f"k={k!r}", "a whole number, at least 1", "use for instance k=10")
        if not queries:
            return []
        hits = self._search(queries, int(k))
        is_list = isinstance(hits, list) and len(hits) == len(queries)
        if not is_list or max(map(len, hits)) > k:
            raise DataError(
                f"{type(self).__name__}._search returned {hits!r:.120}",
                f"a list of {len(queries)} lists, each of at most {k} Hit",
                "return self.best(scores, k), or lists of Hit",
            )
        return hits

    @abstractmethod
    def _search(self, queries: list[str], k: int) -> list[list[Hit]]: ...

    def settings(self) -> dict[str, Any]:
        """Return every parameter that can change the hits, ready for JSON.

        Default: the fields of the class, objects by their own settings; a field ``over`` is what a
        retriever wraps.
        """
        settings = {"retriever": type(self).__name__}
        for name, value in self:
            if name not in Retriever.model_fields:
                settings[name] = _described(value)
        return settings

    def __repr__(self) -> str:
        """Write what changes the hits in one line: ``Dense(embedder='all-MiniLM-L6-v2-fp32',
        chunks=12)``.
        """
        parts = [_described(inner)["retriever"] for inner in _inner(self)]
        for name, value in self.settings().items():
            if name != "retriever" and not isinstance(value, dict | list):
                parts.append(f"{name}={value!r}")
        return f"{type(self).__name__}({', '.join(parts)})"

    __str__ = __repr__

    def _get_relevant_documents(
        self, query: str, *, run_manager: Any = None, k: int | None = None
    ) -> list[LangChainDocument]:
        if k is None:
            k = self.k
        (hits,) = self.search([query], k)
        return [_document(hit.chunk, score=hit.score, rank=hit.rank) for hit in hits]


def _checked_queries(queries: Sequence[str]) -> list[str]:
    if isinstance(queries, str) or not isinstance(queries, Iterable):
        raise ConfigError(
            f"queries is {type(queries).__name__}",
            "a list of str",
            "pass [query], or call invoke(query)",
        )
    queries = list(queries)
    for i, query in enumerate(queries):
        if not isinstance(query, str) or not query.strip():
            raise ConfigError(
                f"query {i} is {query!r}",
                "some text",
                "pass question.text; leave empty questions out",
            )
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
        self._chunks = sorted(_checked_chunks(chunks), key=lambda chunk: chunk.id)

    @property
    def texts(self) -> list[str]:
        """What is searched, in the order of ``chunks``."""
        texts = []
        for chunk in self._chunks:
            titled = self._title and chunk.title
            texts.append(f"{chunk.title}\n{chunk.text}" if titled else chunk.text)
        return texts

    def settings(self) -> dict[str, Any]:
        settings = super().settings()
        if self._title:  # no entry where titles are not searched, as in older runs
            settings["title"] = True
        return settings

    @property
    def chunks(self) -> list[Chunk]:
        """The indexed chunks, in the order that breaks ties."""
        return list(self._chunks)

    def best(self, scores: Sequence[Sequence[float]], k: int) -> list[list[Hit]]:
        """Return what ``_search`` has to return, from scores of shape (queries, chunks), in the
        order of ``chunks``.
        """
        n = len(self._chunks)
        hits = []
        for row in scores:
            row = np.asarray(row, float)
            if row.shape != (n,) or np.isnan(row).any():
                raise DataError(
                    f"{type(self).__name__} gave scores of shape {row.shape}, or one that is NaN",
                    f"a number for each of {n} chunks",
                    "score every chunk, with 0 for no hit",
                )
            best_first = np.argsort(-row, kind="stable")
            places = best_first[row[best_first] != 0][:k]
            hits.append(self.hits_at(places.tolist(), row[places].tolist()))
        return hits

    def hits_at(self, places: Iterable[int], scores: Iterable[float]) -> list[Hit]:
        """Return the hits at places in ``chunks``, in the order given."""
        chunks = self._chunks  # every look at a private attribute of a pydantic model is slow
        pairs = zip(places, scores, strict=True)
        return Hit.ranked((chunks[place], score) for place, score in pairs)


def _checked_chunks(chunks: Iterable[Chunk]) -> list[Chunk]:
    """List the chunks; ConfigError for something else, DataError for none or two that share an
    id.
    """
    chunks = list(chunks)
    if not chunks:
        raise DataError(
            "no chunks to index", "at least one Chunk", "check that the documents have text"
        )
    ids = set()
    for chunk in chunks:
        is_chunk = isinstance(chunk, Chunk)
        if not is_chunk or not isinstance(chunk.id, str) or not isinstance(chunk.text, str):
            raise ConfigError(
                f"a chunk is {chunk!r:.200}", "ragbench.Chunk", "call token_chunks(documents)"
            )
        if chunk.id in ids:
            raise DataError(
                f"two chunks share the id {chunk.id!r}",
                "unique ids",
                "give every chunk an id of its own",
            )
        ids.add(chunk.id)
    return chunks


# Anybody's: a vector store's ``as_retriever()``, a retriever of another package


def to_langchain(chunks: Iterable[Chunk]) -> list[LangChainDocument]:
    """Return chunks as LangChain documents, for a vector store:
    ``store.add_documents(to_langchain(chunks))``.

    >>> chunks = [rb.Chunk("1", "Ada built the mill.", ""), rb.Chunk("2", "The lake is deep.", "")]
    >>> rb.to_langchain(chunks)[0].page_content
    'Ada built the mill.'
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

    >>> from langchain_core.vectorstores import InMemoryVectorStore
    >>> chunks = [rb.Chunk("1", "Ada built the mill.", ""), rb.Chunk("2", "The lake is deep.", "")]
    >>> store = InMemoryVectorStore.from_documents(rb.to_langchain(chunks), rb.MiniLM())
    >>> mine = rb.FromLangChain(store.as_retriever(), chunks, "in memory, MiniLM")
    >>> mine.search(["Which water is deep?"], k=1)[0][0].chunk.id
    '2'
    """

    label: str
    _retriever: Any = PrivateAttr()
    _chunk_of: dict[str, Chunk] = PrivateAttr()  # by its id, or by its text

    def __init__(self, retriever: Any, chunks: Iterable[Chunk], label: str) -> None:
        if not callable(getattr(retriever, "invoke", None)):
            raise ConfigError(
                f"retriever is {type(retriever).__name__}",
                "a LangChain retriever",
                "of a vector store, pass store.as_retriever()",
            )
        super().__init__(chunks, label=label)
        self._retriever = retriever
        by_text = {chunk.text: chunk for chunk in reversed(self._chunks)}  # the first of equal ones
        self._chunk_of = by_text | {chunk.id: chunk for chunk in self._chunks}

    def _search(self, queries: list[str], k: int) -> list[list[Hit]]:
        retriever = self._asked_for(k)
        hits = []
        for query in queries:
            retrieved = [self._found(document) for document in retriever.invoke(query)]
            chunks = list(dict.fromkeys(retrieved))[:k]
            hits.append(Hit.ranked((chunk, 1 / rank) for rank, chunk in enumerate(chunks, 1)))
        return hits

    def _asked_for(self, k: int) -> Any:
        """Return the retriever set to k documents, as far as it says how."""
        retriever = self._retriever
        options = {}
        if isinstance(getattr(retriever, "search_kwargs", None), dict):
            options = {"search_kwargs": retriever.search_kwargs | {"k": k}}
        elif hasattr(retriever, "k"):
            options = {"k": k}
        if not options or not isinstance(retriever, BaseRetriever):
            return retriever
        return retriever.model_copy(update=options)

    def _found(self, document: LangChainDocument) -> Chunk:
        """Return the chunk that a document was made of."""
        text = document.page_content
        for key in (document.metadata.get("chunk_id"), document.id, text):
            if key in self._chunk_of:
                return self._chunk_of[key]
        raise DataError(
            f"{self.label} found a text that is none of the chunks: {text[:60]!r}",
            "documents made of these chunks",
            "index ragbench.to_langchain(chunks), which keeps their ids",
        )
