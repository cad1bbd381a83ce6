"""BM25 beside bm25s and rank_bm25 in one run: tokenise and index, then the best 10 of every query.

    python benchmarks/bench_bm25.py [--chunks 20000] [--queries 500] [--slow-queries 20] [--cpu]

The reach is set for ``--chunks 300000 --queries 2000``: ahead of bm25s in index and search, on 2
cores. Chunks are halves of two HotpotQA paragraphs put together when RAGBENCH_DATA is set (about 90
words), made-up words otherwise. rank_bm25 answers only a few queries, and its time is scaled up.
The hits of the same variant are compared. ``--cpu`` counts CPU seconds of all threads; under
``taskset -c 0`` there is one.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ragbench.onnx_models import cores
from ragbench.records import Chunk
from ragbench.retrieval import BM25
from ragbench.retrieval.text import TOKENIZERS, Tokenizer
from ragbench.text.words import STOP_WORDS

K = 10
PLAIN = TOKENIZERS["plain"]


def hotpotqa(folder: str, n: int, m: int, rng: random.Random) -> tuple[list[str], list[str]]:
    """n texts of two half paragraphs each, and m questions."""
    rows = json.loads(
        gzip.decompress(
            (Path(folder) / "hotpotqa" / "hotpot_dev_distractor_subset.json.gz").read_bytes()
        )
    )
    words = [p.split() for p in {"".join(s): 0 for row in rows for _, s in row["context"]}]
    halves = ((rng.choice(words), rng.choice(words)) for _ in range(n))
    texts = [" ".join(a[: len(a) // 2] + b[len(b) // 2 :]) for a, b in halves]
    questions = [row["question"] for row in rows]
    return texts, [questions[i % len(questions)] for i in range(m)]


def made_up(n: int, m: int, rng: random.Random) -> tuple[list[str], list[str]]:
    """The same with words drawn by a steep frequency law."""
    words = ["".join(rng.choices("etaoinshrdlucmfw", k=rng.randint(2, 9))) for _ in range(60_000)]
    draw = np.random.default_rng(0)
    p = 1 / np.arange(1, len(words) + 1)
    numbers = draw.choice(len(words), (n, 90), p=p / p.sum())
    texts = [" ".join(words[i] for i in row) for row in numbers]
    return texts, [
        " ".join(words[i] for i in row) for row in draw.choice(len(words), (m, 12), p=p / p.sum())
    ]


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds and result of a call."""
    clock = time.process_time if "--cpu" in sys.argv else time.perf_counter
    start = clock()
    result = work()
    return clock() - start, result


def with_bm25s(
    texts: list[str], queries: list[str], backend: str, stop: Any = None
) -> tuple[float, float, np.ndarray]:
    """Seconds to index, seconds to search, chunk numbers (queries, K) by bm25s."""
    import bm25s

    def index() -> tuple:
        tokens = bm25s.tokenize(texts, stopwords=stop, token_pattern=r"\w+", show_progress=False)
        retriever = bm25s.BM25(method="lucene", k1=1.2, b=0.75, backend=backend)
        retriever.index(tokens, show_progress=False)
        return retriever

    def search(some: list[str]) -> np.ndarray:
        tokens = bm25s.tokenize(
            some, stopwords=stop, token_pattern=r"\w+", show_progress=False, return_ids=False
        )
        return retriever.retrieve(tokens, k=K, show_progress=False, n_threads=cores()).documents

    build, retriever = timed(index)
    search(queries[:2])  # compiles
    seconds, found = timed(lambda: search(queries))
    return build, seconds, found


def with_rank_bm25(texts: list[str], queries: list[str]) -> tuple[float, float]:
    """Seconds to index and to search by rank_bm25, one query at a time."""
    from rank_bm25 import BM25Okapi

    build, retriever = timed(lambda: BM25Okapi([PLAIN(text) for text in texts]))
    seconds, _ = timed(lambda: [retriever.get_scores(PLAIN(query)) for query in queries])
    return build, seconds


def ours(
    chunks: list[Chunk], queries: list[str], **options: Any
) -> tuple[float, float, list[list[int]]]:
    """The same by ragbench."""
    build, retriever = timed(lambda: BM25(chunks, **options))
    seconds, hits = timed(lambda: retriever.search(queries, K))
    return build, seconds, [[int(hit.chunk.id) for hit in one] for one in hits]


def same(a: Any, b: Any) -> float:
    """Share of queries with the same chunks, in any order (equal scores may be listed either way)."""
    return float(np.mean([set(map(int, x)) == set(map(int, y)) for x, y in zip(a, b, strict=True)]))


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--chunks", type=int, default=20_000)
    parser.add_argument("--queries", type=int, default=500)
    parser.add_argument("--slow-queries", type=int, default=20)
    parser.add_argument("--cpu", action="store_true")
    given = parser.parse_args()
    rng = random.Random(0)
    folder = os.environ.get("RAGBENCH_DATA")
    make = (lambda *a: hotpotqa(folder, *a)) if folder else made_up
    texts, queries = make(given.chunks, given.queries, rng)
    chunks = [Chunk(f"{i:07d}", text, str(i)) for i, text in enumerate(texts)]
    words = np.mean([len(text.split()) for text in texts[:1000]])
    print(
        f"{len(texts):,} chunks of {words:.0f} words, {len(queries):,} queries, k={K}, "
        f"{os.cpu_count()} cores\n"
    )
    BM25(chunks[:50]).search(["warm up"], 1)
    BM25(chunks[:50], variant="terrier").search(["warm up"], 1)

    slow = queries[: given.slow_queries]
    rows = {
        "ragbench default": ours(chunks, queries),
        "ragbench terrier": ours(chunks, queries, variant="terrier"),
        "ragbench lucene": ours(chunks, queries, variant="lucene", tokenizer="plain"),
        "ragbench no stops": ours(
            chunks, queries, variant="lucene", tokenizer=Tokenizer("x", "unicode", STOP_WORDS)
        ),
        "bm25s numpy": with_bm25s(texts, queries, "numpy"),
        "bm25s numba": with_bm25s(texts, queries, "numba"),
        "bm25s no stops": with_bm25s(texts, queries, "numba", sorted(STOP_WORDS)),
    }
    build, seconds = with_rank_bm25(texts, slow)
    rows["rank_bm25"] = build, seconds * len(queries) / len(slow), []
    base = rows["ragbench lucene"]
    print(f"{'':18}{'index s':>10}{'x':>8}{'search s':>12}{'x':>9}")
    for name, (index_s, search_s, _) in rows.items():
        print(
            f"{name:18}{index_s:10.2f}{index_s / base[0]:8.1f}{search_s:12.2f}{search_s / base[1]:9.1f}"
        )
    print(
        "\nx: times of ragbench lucene in this run; rank_bm25's search is scaled up from "
        f"{len(slow)} queries"
    )
    print("no stops: lucene without ragbench's stop words")
    print(f"same chunks as bm25s (lucene): {same(base[2], rows['bm25s numba'][2]):.1%} of queries")


if __name__ == "__main__":
    main()
