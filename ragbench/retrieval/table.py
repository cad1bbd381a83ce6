"""Retrievers by name: one table of builders, one factory.

A builder takes chunks and plain settings. The papers' retrievers are settings of these. A retriever
of your own is a class with ``_search`` and one entry: ``RETRIEVERS["mine"] = Mine``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from langchain_core.embeddings import Embeddings

from ragbench.embedding import make_embedder
from ragbench.errors import check_known
from ragbench.records import Chunk
from ragbench.retrieval.base import Retriever, check_retriever
from ragbench.retrieval.bm25 import BM25
from ragbench.retrieval.dense import MMR, Dense
from ragbench.retrieval.gold import Gold
from ragbench.retrieval.multiquery import MultiQuery
from ragbench.retrieval.rerank import Hybrid, LongContextReorder, Rerank

_latest: tuple[list[Chunk], Embeddings | None, bool, Dense] | None = None


def _dense(
    chunks: Sequence[Chunk], embedder: Embeddings | None = None, title: bool = False
) -> Dense:
    """Index the chunks, or take the index of the call before: SIM, MMR, MLQ, REO and Hybrid share
    one.
    """
    global _latest
    chunks = list(chunks)
    if _latest is not None:
        its_chunks, its_embedder, its_title, dense = _latest
        if its_embedder is embedder and its_title == title and its_chunks == chunks:
            return dense
    dense = Dense(chunks, embedder or make_embedder(), title=title)
    _latest = (chunks, embedder, title, dense)
    return dense


class _OverDense:
    """Builds a retriever over the dense index of the chunks; it takes the settings of both."""

    def __init__(self, kind: Callable[..., Retriever]) -> None:
        self.kind = kind

    def __call__(
        self,
        chunks: Sequence[Chunk],
        *,
        embedder: Embeddings | None = None,
        title: bool = False,
        **settings: Any,
    ) -> Retriever:
        return self.kind(_dense(chunks, embedder, title), **settings)


def _hybrid(
    chunks: Sequence[Chunk],
    *,
    embedder: Embeddings | None = None,
    title: bool = False,
    variant: str = "lucene",
    tokenizer: Any = None,
    constant: float = 60.0,
    depth: int = 100,
) -> Hybrid:
    words = BM25(chunks, variant=variant, tokenizer=tokenizer, title=title)
    return Hybrid([words, _dense(chunks, embedder, title)], constant, depth)


def _rerank(
    chunks: Sequence[Chunk],
    *,
    scorer: Any = None,
    over: str = "Hybrid",
    depth: int = 50,
    embedder: Embeddings | None = None,
) -> Rerank:
    settings = {}
    if "embedder" in settings_of(over):
        settings["embedder"] = embedder
    return Rerank(make_retriever(over, chunks, **settings), scorer, depth)


RETRIEVERS: dict[str, Callable[..., Any]] = {
    "BM25": BM25,
    "SIM": _dense,
    "MMR": _OverDense(MMR),
    "MLQ": _OverDense(MultiQuery),
    "REO": _OverDense(LongContextReorder),
    "Hybrid": _hybrid,
    "Rerank": _rerank,
    "Gold": Gold,
}


def make_retriever(name: str, chunks: Sequence[Chunk], **settings: Any) -> Any:
    """Build a retriever by its name in `RETRIEVERS`.

    Parameters
    ----------
    name : ``"BM25"``, ``"SIM"`` (dense), ``"MMR"``, ``"MLQ"`` (several queries), ``"REO"``
        (long-context reorder), ``"Hybrid"`` (BM25 and SIM), ``"Rerank"`` (the hits of ``over`` by
        ``scorer``), ``"Gold"`` (a ceiling: the evidence that the data set names), or your own.
    settings : of the retriever's class, by name. ``title=True`` searches titles with their chunks.
        The dense ones take ``embedder`` (default MiniLM), MLQ needs ``decompose``, Hybrid takes
        ``variant`` and ``tokenizer`` of BM25.
    """
    check_known(f"option of {name}", settings, settings_of(name))
    return check_retriever(RETRIEVERS[name](chunks, **settings))


def settings_of(name: str) -> list[str]:
    """List the settings that a retriever takes; a class of one's own takes its fields too."""
    check_known("retriever", [name], RETRIEVERS)
    builder = RETRIEVERS[name]
    makes = builder.__init__ if isinstance(builder, type) else builder
    parameters = inspect.signature(makes).parameters.values()
    names = [p.name for p in parameters if p.kind is not p.VAR_KEYWORD]
    if isinstance(builder, _OverDense):
        _, _, *of_kind = inspect.signature(builder.kind.__init__).parameters  # self, over
        names += of_kind
    elif len(names) < len(parameters):
        names += getattr(builder, "model_fields", ())
    hidden = ("self", "chunks", *Retriever.model_fields)
    return [name for name in dict.fromkeys(names) if name not in hidden]
