"""Dense search and MMR beside the bare matrix product and LangChain's function in one run.

    python benchmarks/bench_dense_mmr.py [--chunks 20000] [--queries 500] [--slow-queries 50]

Vectors are random, of 384 numbers. LangChain's maximal_marginal_relevance takes a few queries, and
its time is scaled.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from langchain_core.embeddings import FakeEmbeddings
from langchain_core.vectorstores.utils import maximal_marginal_relevance

from ragbench.records import Chunk
from ragbench.retrieval import Dense
from ragbench.retrieval.dense import _select_mmr

DIMENSION = 384
K = 10
FETCH = 20


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds and result of a call."""
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def unit(rng: np.random.Generator, n: int) -> np.ndarray:
    """n random unit vectors."""
    rows = rng.standard_normal((n, DIMENSION), dtype=np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--chunks", type=int, default=20_000)
    parser.add_argument("--queries", type=int, default=500)
    parser.add_argument("--slow-queries", type=int, default=50)
    given = parser.parse_args()
    rng = np.random.default_rng(0)
    vectors = unit(rng, given.chunks)
    queries = unit(rng, given.queries)
    chunks = [Chunk(f"{i:07d}", "", "") for i in range(given.chunks)]
    dense = Dense(chunks, FakeEmbeddings(size=DIMENSION))
    dense._vectors = vectors  # instead of embedding the chunks
    print(
        f"{given.chunks:,} x {DIMENSION}, {given.queries:,} queries, k={K}, {os.cpu_count()} "
        "cores\n"
    )

    bare, _ = timed(lambda: [queries[i : i + 64] @ vectors.T for i in range(0, len(queries), 64)])
    ours, hits = timed(lambda: dense.nearest(queries, K))
    slow = queries[: given.slow_queries]
    order = [np.argsort(-(vectors @ query), kind="stable")[:K].tolist() for query in slow]
    same = np.mean(
        [places.tolist() == best for (places, _), best in zip(hits, order, strict=False)]
    )
    print(
        f"Dense {ours:.2f} s, the bare matrix product {bare:.2f} s; same order as numpy: "
        f"{same:.1%} of queries"
    )

    candidates = dense.nearest(queries, FETCH)
    ours, chosen = timed(
        lambda: [_select_mmr(dense.vectors[places], s, K, 0.5) for places, s in candidates]
    )
    few = list(zip(slow, candidates, strict=False))
    seconds, theirs = timed(
        lambda: [maximal_marginal_relevance(q, vectors[p], 0.5, K) for q, (p, _) in few]
    )
    peer = seconds * len(queries) / len(slow)
    same = np.mean([a == b for a, b in zip(chosen, theirs, strict=False)])
    print(
        f"MMR {ours:.3f} s, LangChain {peer:.2f} s ({peer / ours:.0f} x); same order: {same:.1%} "
        "of queries"
    )


if __name__ == "__main__":
    main()
