"""Maximal marginal relevance over a dense retriever (thesis: *mmr*): relevant, yet not redundant."""

from __future__ import annotations

from typing import Any

import numpy as np
from pydantic import Field, PositiveInt

from ragbench.errors import ConfigError
from ragbench.onnx_models import cores
from ragbench.records import Hit
from ragbench.retrieval.base import Retriever, Scopes, hits_of, in_parts


class MMR(Retriever):
    """Re-select among the ``fetch_k`` nearest chunks: the nearest one, then one by one that which maximises

        lambda_mult * cos(query, chunk) - (1 - lambda_mult) * max cos(chunk, pick)

    The same order as ``langchain_core.vectorstores.utils.maximal_marginal_relevance``. A hit's score is its cosine to
    the query, so scores need not fall with rank.

    Parameters
    ----------
    dense : supplies candidates and vectors, as `Dense` does; ConfigError for a retriever without vectors.
    fetch_k : number of candidates; no more hits than that are returned.
    lambda_mult : 1 is relevance alone, 0 is novelty alone.
    k : hits per ``invoke()``.

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
        chosen, counts = select_mmr(self.dense.vectors, *candidates, k, self.lambda_mult)
        places, scores = (np.take_along_axis(array, chosen, axis=1) for array in candidates[:2])
        return hits_of(self.dense.chunks, places, scores, counts)


def select_mmr(
    vectors: np.ndarray, places: np.ndarray, scores: np.ndarray, counts: np.ndarray, k: int, lambda_mult: float
) -> tuple[np.ndarray, np.ndarray]:
    """Select for many queries at once among candidates as ``Dense.nearest`` returns them.

    ``vectors`` are the chunks', of unit length. Returns places in each row of candidates, int64 (queries, k or fewer),
    and how many of each row count.
    """
    from ragbench.retrieval import _kernels

    chosen = np.zeros((len(places), min(k, places.shape[1])), np.int64)
    n = np.zeros(len(places), np.int32)

    def part(first: int, stop: int) -> None:
        r = slice(first, stop)
        _kernels.diversify(vectors, places[r], scores[r], counts[r], float(lambda_mult), chosen[r], n[r])

    in_parts(len(places), max(64, -(-len(places) // cores())), part)
    return chosen, n
