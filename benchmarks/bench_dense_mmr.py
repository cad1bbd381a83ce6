"""Dense search and MMR beside their peers in one run.

    python benchmarks/bench_dense_mmr.py [--chunks 20000] [--queries 500] [--slow-queries 50]

The reach is set for ``--chunks 300000 --queries 7405``: search near the time of the bare matrix product, MMR 0.2 s for
all queries. Vectors are random, of 384 numbers. Peers: the matrix product alone (the limit), numpy one query at a time
(a few, scaled up), faiss where it is installed, LangChain's maximal_marginal_relevance (a few, scaled up).
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

from ragbench.errors import ConfigError
from ragbench.records import Chunk
from ragbench.retrieval import Dense
from ragbench.retrieval.mmr import select_mmr

DIMENSION, K, FETCH = 384, 10, 20


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds and result of a call."""
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def unit(rng: np.random.Generator, n: int) -> np.ndarray:
    """n random unit vectors."""
    rows = rng.standard_normal((n, DIMENSION), dtype=np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def product_alone(vectors: np.ndarray, queries: np.ndarray) -> None:
    """The similarities themselves, tile by tile, thrown away."""
    out = np.empty((1024, 4096), np.float32)
    for i in range(0, len(queries), 1024):
        some = queries[i : i + 1024]
        for j in range(0, len(vectors), 4096):
            block = vectors[j : j + 4096]
            np.matmul(some, block.T, out=out[: len(some), : len(block)])


def one_by_one(vectors: np.ndarray, queries: np.ndarray) -> list[list[int]]:
    """A matrix-vector product and a partial sort per query."""
    found = []
    for query in queries:
        similarity = vectors @ query
        top = np.argpartition(-similarity, K)[:K]
        found.append(top[np.argsort(-similarity[top])].tolist())
    return found


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chunks", type=int, default=20_000)
    parser.add_argument("--queries", type=int, default=500)
    parser.add_argument("--slow-queries", type=int, default=50)
    given = parser.parse_args()
    rng = np.random.default_rng(0)
    vectors, queries = unit(rng, given.chunks), unit(rng, given.queries)
    chunks = [Chunk(f"{i:07d}", "", "") for i in range(given.chunks)]
    print(f"{given.chunks:,} x {DIMENSION}, {given.queries:,} queries, k={K}, {os.cpu_count()} cores\n")

    embedder = FakeEmbeddings(size=DIMENSION)
    dense = Dense(chunks, embedder, vectors=vectors)
    dense.nearest(queries[:2], K)  # compiles
    select_mmr(dense.vectors, *dense.nearest(queries[:2], FETCH), K, 0.5)

    slow = queries[: given.slow_queries]
    rows = {"product alone": timed(lambda: product_alone(vectors, queries))[0]}
    rows["ragbench Dense"], hits = timed(lambda: dense.nearest(queries, K))
    seconds, found = timed(lambda: one_by_one(vectors, slow))
    rows["numpy one by one"] = seconds * len(queries) / len(slow)
    try:
        backed = Dense(chunks, embedder, vectors=vectors, backend="faiss")
        rows["ragbench with faiss"], again = timed(lambda: backed.nearest(queries, K))
        print(f"same hits with faiss: {np.array_equal(again[0], hits[0])}")
    except ConfigError as error:  # not installed
        print(str(error).splitlines()[0])
    same = np.mean([a.tolist() == b for a, b in zip(hits[0][: len(slow)], found, strict=True)])
    for name, s in rows.items():
        print(f"{name:22}{s:10.3f} s{s / rows['ragbench Dense']:8.2f} x ragbench")
    print(f"same order as numpy: {same:.1%} of queries\n")

    items, scores, n = dense.nearest(queries, FETCH)
    ours, (chosen, _) = timed(lambda: select_mmr(dense.vectors, items, scores, n, K, 0.5))
    seconds, theirs = timed(
        lambda: [
            maximal_marginal_relevance(q, vectors[i], 0.5, K) for q, i in zip(slow, items[: len(slow)], strict=True)
        ]
    )
    peer = seconds * len(queries) / len(slow)
    same = np.mean([a.tolist() == b for a, b in zip(chosen[: len(slow)], theirs, strict=True)])
    print(f"MMR of {len(queries):,} queries: ragbench {ours:.3f} s, LangChain {peer:.2f} s ({peer / ours:.0f} x)")
    print(f"same order as LangChain: {same:.1%} of queries")


if __name__ == "__main__":
    main()
