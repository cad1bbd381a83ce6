"""Hybrid retrieval: several retrievers' rankings fused by reciprocal rank."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

from pydantic import Field, PositiveInt

from ragbench.errors import DataError
from ragbench.records import Chunk, Hit
from ragbench.retrieval.base import Retriever, Scopes, Searcher, ranked, retriever_settings


class Hybrid(Retriever):
    """Reciprocal rank fusion: a chunk scores the sum over the retrievers of ``1 / (constant + rank)``.

    ``depth`` hits of each retriever are fused (at least k are asked for); ``constant`` is 60 in the paper.

    Source: Cormack, Clarke and Büttcher, SIGIR 2009.
    """

    retrievers: list[Searcher] = Field(min_length=1)
    constant: float = Field(ge=0, allow_inf_nan=False)
    depth: PositiveInt

    def __init__(self, retrievers: Sequence[Any], constant: float = 60.0, depth: int = 100, *, k: int = 10) -> None:
        super().__init__(retrievers=retrievers, constant=constant, depth=depth, k=k)

    def settings(self) -> dict[str, Any]:
        about = {"retriever": "Hybrid", "fusion": "reciprocal rank", "constant": self.constant, "depth": self.depth}
        return about | {"over": [retriever_settings(retriever) for retriever in self.retrievers]}

    def _search(self, queries: list[str], k: int, scopes: Scopes) -> list[list[Hit]]:
        rankings = [retriever.search(queries, max(k, self.depth), scopes) for retriever in self.retrievers]
        fused = []
        for of_query in zip(*rankings, strict=True):
            chunks: dict[str, Chunk] = {}
            shares: dict[str, list[float]] = {}
            for hit in itertools.chain(*of_query):
                chunk = hit.chunk
                if chunks.setdefault(chunk.id, chunk).text != chunk.text:
                    got = f"two chunks share the id {chunk.id!r} but not their text"
                    do = "build all retrievers from one list of chunks"
                    raise DataError(got, "retrievers over the same chunks", do)
                shares.setdefault(chunk.id, []).append(1 / (self.constant + hit.rank))
            # fsum: equal shares in another order must tie, so that the id decides.
            scores = {name: math.fsum(parts) for name, parts in shares.items()}
            best = sorted(scores, key=lambda name: (-scores[name], name))[:k]
            fused.append(ranked((chunks[name], scores[name]) for name in best))
        return fused
