"""Maximal marginal relevance over a dense retriever (thesis: *mmr*): relevant, yet not redundant."""

from __future__ import annotations

from typing import Any

import numpy as np

from ragbench.errors import ConfigError
from ragbench.records import Hit
from ragbench.retrieval.base import Retriever, Scopes, check_positive, cores, hits_of, in_parts
from ragbench.retrieval.dense import Dense


class MMR(Retriever):
    """Maximal marginal relevance: re-selects among the ``fetch_k`` nearest chunks.

    The first pick is the nearest chunk; each next one maximises ``lambda_mult * cos(query, chunk) - (1 - lambda_mult) *
    max cos(chunk, pick)``. The same order as ``langchain_core.vectorstores.utils.maximal_marginal_relevance``.

    Parameters
    ----------
    dense : the ``Dense`` retriever that supplies candidates and vectors.
    fetch_k : number of candidates; no more hits than that are returned.
    lambda_mult : 1 is relevance alone, 0 is novelty alone; in [0, 1].
    k : hits per ``invoke()``.

    A hit's score is its cosine to the query, so scores need not fall with rank.

    Raises
    ------
    ConfigError for a parameter out of range.

    Source: Carbonell and Goldstein, SIGIR 1998; thesis §2.5.3 (fetch_k 20, lambda 0.5, top 10, LangChain's defaults).
    """

    fetch_k: int
    lambda_mult: float
    dense: Dense

    def __init__(self, dense: Dense, fetch_k: int = 20, lambda_mult: float = 0.5, *, k: int = 10) -> None:
        if not isinstance(dense, Dense):
            raise ConfigError(
                f"dense is {type(dense).__name__}", "a Dense retriever, whose vectors MMR compares", "pass Dense(...)"
            )
        number = isinstance(lambda_mult, (int, float)) and not isinstance(lambda_mult, bool)
        if not number or not 0 <= lambda_mult <= 1:
            raise ConfigError(f"lambda_mult={lambda_mult!r}", "a number in [0, 1]", "the thesis uses 0.5")
        fetch_k, k = check_positive("fetch_k", fetch_k), check_positive("k", k)
        super().__init__(dense=dense, fetch_k=fetch_k, lambda_mult=float(lambda_mult), k=k)

    def settings(self) -> dict[str, Any]:
        return {
            "retriever": "MMR",
            "fetch_k": self.fetch_k,
            "lambda_mult": self.lambda_mult,
            "over": self.dense.settings(),
        }

    def _search(self, queries: list[str], k: int, scopes: Scopes) -> list[list[Hit]]:
        items, scores, found = self.dense.nearest(self.dense.embed_queries(queries), self.fetch_k, scopes)
        chosen, n = select_mmr(self.dense.vectors, items, scores, found, k, self.lambda_mult)
        places, values = (np.take_along_axis(array, chosen, axis=1) for array in (items, scores))
        return hits_of(self.dense.chunks, places, values, n)


def select_mmr(
    vectors: np.ndarray, items: np.ndarray, scores: np.ndarray, found: np.ndarray, k: int, lambda_mult: float
) -> tuple[np.ndarray, np.ndarray]:
    """Select by maximal marginal relevance for many queries at once.

    Parameters
    ----------
    vectors : float32 (chunks, dimension), unit rows.
    items, scores, found : candidates as ``Dense.nearest`` returns them.
    k : how many to select at most.
    lambda_mult : weight of relevance, in [0, 1].

    Returns
    -------
    chosen : int64 (queries, min(k, candidates)), places in each row of ``items``; n : int32 (queries,), how many count.
    """
    from ragbench.retrieval import _kernels

    chosen = np.zeros((len(items), min(k, items.shape[1])), np.int64)
    n = np.zeros(len(items), np.int32)

    def part(first: int, stop: int) -> None:
        r = slice(first, stop)
        _kernels.diversify(vectors, items[r], scores[r], found[r], float(lambda_mult), chosen[r], n[r])

    in_parts(len(items), max(64, -(-len(items) // cores())), part)
    return chosen, n
