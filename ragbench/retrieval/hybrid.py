"""Hybrid retrieval: several retrievers' rankings fused by reciprocal rank."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ragbench.errors import ConfigError, DataError
from ragbench.records import Chunk, Hit
from ragbench.retrieval.base import Retriever, Scopes, check_positive, check_retriever, describe, ranked


class Hybrid(Retriever):
    """Reciprocal rank fusion: a chunk scores the sum over the retrievers of ``weight / (constant + rank)``.

    Parameters
    ----------
    retrievers : at least one; they should share their chunks, and chunks with one id must have one text.
    constant : how little the top ranks stand out; 60 in the paper.
    depth : how many hits of each retriever are fused (at least k are asked for).
    weights : one number above 0 per retriever; default 1 each.
    k : hits per ``invoke()``.

    Raises
    ------
    ConfigError for no retriever or a parameter out of range; DataError when two chunks share an id but not their text.

    Source: Cormack, Clarke and Büttcher, SIGIR 2009.
    """

    retrievers: list[Any]
    constant: float
    depth: int
    weights: list[float]

    def __init__(
        self,
        retrievers: Sequence[Any],
        constant: float = 60.0,
        depth: int = 100,
        weights: Sequence[float] | None = None,
        *,
        k: int = 10,
    ) -> None:
        if not isinstance(retrievers, (list, tuple)) or not retrievers:
            raise ConfigError(f"retrievers={retrievers!r}", "a list of retrievers", "pass [bm25, dense]")
        weights = [1.0] * len(retrievers) if weights is None else list(weights)
        if len(weights) != len(retrievers) or not all(math.isfinite(w) and w > 0 for w in weights):
            raise ConfigError(
                f"weights={weights!r}", f"{len(retrievers)} numbers above 0", "leave them out for equal ones"
            )
        if not math.isfinite(constant) or constant < 0:
            raise ConfigError(f"constant={constant!r}", "a number, at least 0", "the paper uses 60")
        super().__init__(
            retrievers=[check_retriever(r) for r in retrievers],
            constant=float(constant),
            depth=check_positive("depth", depth),
            weights=weights,
            k=check_positive("k", k),
        )

    def settings(self) -> dict[str, Any]:
        return {
            "retriever": "Hybrid",
            "fusion": "reciprocal rank",
            "constant": self.constant,
            "depth": self.depth,
            "weights": self.weights,
            "over": [describe(r) for r in self.retrievers],
        }

    def _search(self, queries: list[str], k: int, scopes: Scopes) -> list[list[Hit]]:
        rankings = [r.search(queries, max(k, self.depth), scopes) for r in self.retrievers]
        return [self._fuse([ranking[q] for ranking in rankings], k) for q in range(len(queries))]

    def _fuse(self, rankings: list[list[Hit]], k: int) -> list[Hit]:
        chunks: dict[str, Chunk] = {}
        shares: dict[str, list[float]] = {}
        for hits, weight in zip(rankings, self.weights, strict=True):
            for hit in hits:
                chunk = hit.chunk
                if chunks.setdefault(chunk.id, chunk).text != chunk.text:
                    raise DataError(
                        f"two chunks share the id {chunk.id!r} but not their text",
                        "retrievers over the same chunks",
                        "build all retrievers from one list of chunks",
                    )
                shares.setdefault(chunk.id, []).append(weight / (self.constant + hit.rank))
        # fsum: equal shares in another order must tie, so that the id decides.
        scores = {chunk_id: math.fsum(parts) for chunk_id, parts in shares.items()}
        best = sorted(scores, key=lambda chunk_id: (-scores[chunk_id], chunk_id))[:k]
        return ranked((chunks[chunk_id], scores[chunk_id]) for chunk_id in best)
