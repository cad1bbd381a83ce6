"""Maximal marginal relevance over a dense retriever (thesis: *mmr*): relevant, yet not redundant."""

from __future__ import annotations

from typing import Any

import numpy as np
from pydantic import Field, PositiveInt

from ragbench.errors import ConfigError
from ragbench.records import Hit
from ragbench.retrieval.base import Retriever, Scopes, ranked
from ragbench.retrieval.dense import dots


class MMR(Retriever):
    """Re-select among the ``fetch_k`` nearest chunks: the nearest one, then one by one that which maximises

        lambda_mult * cos(query, chunk) - (1 - lambda_mult) * max cos(chunk, pick)

    The same order as ``langchain_core.vectorstores.utils.maximal_marginal_relevance``. A hit's score is its cosine to
    the query, so scores need not fall with rank.

    Parameters
    ----------
    dense : supplies candidates and vectors, as `Dense` does.
    fetch_k : number of candidates; no more hits than that are returned.
    lambda_mult : 1 is relevance alone, 0 is novelty alone.

    Source: Carbonell and Goldstein, SIGIR 1998; thesis §2.5.3 (fetch_k 20, lambda 0.5, top 10, LangChain's defaults).
    """

    fetch_k: PositiveInt
    lambda_mult: float = Field(ge=0, le=1, strict=True)
    dense: Any

    def __init__(self, dense: Any, fetch_k: int = 20, lambda_mult: float = 0.5, *, k: int = 10) -> None:
        if not hasattr(dense, "nearest"):
            got = f"dense is {type(dense).__name__}"
            raise ConfigError(got, "a Dense retriever, whose vectors MMR compares", "pass Dense(...)")
        super().__init__(dense=dense, fetch_k=fetch_k, lambda_mult=lambda_mult, k=k)

    def settings(self) -> dict[str, Any]:
        own = {"fetch_k": self.fetch_k, "lambda_mult": self.lambda_mult}
        return {"retriever": "MMR", **own, "over": self.dense.settings()}

    def _search(self, queries: list[str], k: int, scopes: Scopes) -> list[list[Hit]]:
        candidates = self.dense.nearest(self.dense.embed_queries(queries), self.fetch_k, scopes)
        chunks, vectors = self.dense.chunks, self.dense.vectors
        hits = []
        for places, scores in candidates:
            chosen = select_mmr(vectors[places], scores, k, self.lambda_mult)
            hits.append(ranked((chunks[places[c]], float(scores[c])) for c in chosen))
        return hits


def select_mmr(vectors: np.ndarray, similarity: np.ndarray, k: int, lambda_mult: float) -> list[int]:
    """Select among candidates, the most similar one first, by their unit vectors; the earlier one wins a tie."""
    chosen = [0] if len(vectors) else []
    redundancy = np.full(len(vectors), -np.inf)  # largest similarity to one that is chosen
    while len(chosen) < min(k, len(vectors)):
        redundancy = np.maximum(redundancy, dots(vectors, vectors[chosen[-1]]))
        value = lambda_mult * similarity - (1 - lambda_mult) * redundancy
        value[chosen] = -np.inf
        chosen.append(int(value.argmax()))
    return chosen
