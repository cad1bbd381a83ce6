"""What wrapped lines cost the IR score: Python's own help topics, searched by BM25, scored with two
matches.

    python benchmarks/bench_wrapped.py [--topics 60] [--tokens 300]

The topics (``pydoc_data.topics``) are wrapped at 70 columns. Of each, the first sentence that runs
over a line end is the supporting fact, written on one line as a person would copy it; the question
is its first ten words.
"""

from __future__ import annotations

import argparse
import re
import time
from pydoc_data.topics import topics

import numpy as np

from ragbench.chunking import token_chunks
from ragbench.metrics.ir_score import ir_score_table
from ragbench.records import Document
from ragbench.retrieval import BM25

_SENTENCE = re.compile(r"(?<=\n\n)[A-Z][^.]{80,250}\.(?=\s)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--topics", type=int, default=60)
    parser.add_argument("--tokens", type=int, default=300, help="the budget N")
    arguments = parser.parse_args()
    facts = {
        name: found[0] for name, text in sorted(topics.items()) if (found := _SENTENCE.search(text))
    }
    facts = {
        name: " ".join(fact.split())
        for name, fact in facts.items()
        if "\n" in fact and "- " not in fact
    }
    facts = dict(list(facts.items())[: arguments.topics])
    chunks = token_chunks(
        [Document(name, name, text) for name, text in topics.items()], size=100, overlap=0.2
    )
    hits = BM25(chunks).search([" ".join(fact.split()[:10]) for fact in facts.values()], 10)
    texts = [[hit.chunk.text for hit in found] for found in hits]
    ir_score_table([["a"]], ["a"], [1])  # compile
    for match in ("exact", "substring", "substring_nfkc"):
        start = time.perf_counter()
        scores = ir_score_table(
            [[fact] for fact in facts.values()], texts, [arguments.tokens], match=match
        )
        seconds = time.perf_counter() - start
        print(
            f"{match:15} IR score {np.mean(scores):.3f}, whole facts {np.mean(scores == 1):.3f}, "
            f"{seconds:.3f} s "
            f"({len(facts)} topics, BM25, N = {arguments.tokens})"
        )


if __name__ == "__main__":
    main()
