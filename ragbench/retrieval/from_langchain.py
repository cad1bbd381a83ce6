"""Any other LangChain retriever over our chunks: a vector store's ``as_retriever()``, one of another package."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from langchain_core.documents import Document as LangChainDocument
from langchain_core.retrievers import BaseRetriever
from pydantic import PrivateAttr

from ragbench.errors import ConfigError, DataError
from ragbench.records import Chunk, Hit
from ragbench.retrieval.base import Index, Scopes, as_document, ranked


def to_langchain(chunks: Iterable[Chunk]) -> list[LangChainDocument]:
    """Return chunks as LangChain documents, for a vector store: ``store.add_documents(to_langchain(chunks))``."""
    return [as_document(chunk) for chunk in chunks]


class FromLangChain(Index):
    """A LangChain retriever's ranking as hits, to be run and compared like any other.

    Parameters
    ----------
    retriever : with ``invoke(query)``, which returns documents, best first. It is asked for k of them where it has
        ``search_kwargs`` (a vector store's) or a field ``k``; any other decides itself how many.
    chunks : those that it searches, see `to_langchain`. A document is found again by its chunk's id, else by its text.
    label : what it is, with all that can change its hits ("Chroma, bge-m3"): a run keeps rows by this label.

    A hit's score is 1 / rank, since LangChain gives none. ``scope`` is applied to what was found.
    """

    label: str
    _retriever: Any = PrivateAttr()
    _known: dict[str, Chunk] = PrivateAttr()

    def __init__(self, retriever: Any, chunks: Iterable[Chunk], label: str) -> None:
        if not callable(getattr(retriever, "invoke", None)):
            got = f"retriever is {type(retriever).__name__}"
            raise ConfigError(got, "a LangChain retriever", "of a vector store, pass store.as_retriever()")
        super().__init__(chunks, label=label)
        self._retriever = retriever
        self._known = {c.text: c for c in reversed(self._chunks)} | {c.id: c for c in self._chunks}

    def _search(self, queries: list[str], k: int, scopes: Scopes) -> list[list[Hit]]:
        retriever, hits = self._asking_for(k), []
        for query, scope in zip(queries, scopes or [None] * len(queries), strict=True):
            found = dict.fromkeys(map(self._chunk, retriever.invoke(query)))
            kept = [chunk for chunk in found if scope is None or chunk.doc_id in scope][:k]
            hits.append(ranked((chunk, 1 / rank) for rank, chunk in enumerate(kept, 1)))
        return hits

    def _asking_for(self, k: int) -> Any:
        inner = self._retriever
        if isinstance(inner, BaseRetriever) and isinstance(getattr(inner, "search_kwargs", None), dict):
            return inner.model_copy(update={"search_kwargs": inner.search_kwargs | {"k": k}})
        return inner.model_copy(update={"k": k}) if isinstance(inner, BaseRetriever) and hasattr(inner, "k") else inner

    def _chunk(self, document: LangChainDocument) -> Chunk:
        for key in (document.metadata.get("chunk_id"), document.id, document.page_content):
            if key in self._known:
                return self._known[key]
        got = f"{self.label} found a text that is none of the chunks: {document.page_content[:60]!r}"
        do = "index ragbench.to_langchain(chunks), which keeps their ids"
        raise DataError(got, "documents made of these chunks", do)
