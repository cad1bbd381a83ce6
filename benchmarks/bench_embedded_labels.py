"""Embedded claim labels of whole results beside the same checker pair by pair and result by result, in one run.

    python benchmarks/bench_embedded_labels.py [--questions 65] [--slow-questions 3]

MiniHop's long answers, BM25's 20 chunks, two generators. Vectors are cached before the clock starts, so this is the
rule's own time and the look-ups. Pair by pair sees a few questions, its time is scaled up; labels are compared.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from typing import Any

from ragbench.chunking import token_chunks
from ragbench.data import load_minihop
from ragbench.data.ragchecker import RagResult, RetrievedText
from ragbench.labelling.checkers import EmbeddedChecker, split_claims
from ragbench.labelling.claims import embedded_labels
from ragbench.papers.ragchecker import DEFAULT, LeadSentences, NearestSentences, long_answered
from ragbench.retrieval import BM25

Matrix = list[list[str]]


def results(questions: int) -> list[RagResult]:
    """Responses of two copying generators to the first so many questions."""
    data = long_answered(load_minihop(), questions)
    bm25 = BM25(token_chunks(data.documents), variant="lucene", tokenizer="plain")
    hits = bm25.search([q.text for q in data.questions], DEFAULT.k)
    made = []
    for reader in (LeadSentences(3), NearestSentences(8)):
        for q, found in zip(data.questions, hits, strict=True):
            chunks = tuple(RetrievedText(text=h.chunk.text, doc_id=h.chunk.id) for h in found)
            response = reader.answer(q.text, " ".join(c.text for c in chunks))
            claims, true = tuple(c["text"] for c in q.meta["claims"]), q.meta["long_answer"]
            made.append(RagResult(f"{q.id} {reader.name}", q.text, true, response, chunks, reference_claims=claims))
    return made


def blocks(rows: Sequence[RagResult], label: Callable[[Sequence[Any], Sequence[str]], Matrix]) -> list[Matrix]:
    """Labels of the response's claims and of the reference's against reference or response, and chunks."""
    made = []
    for r in rows:
        chunks = [c.text for c in r.chunks]
        made += [
            label(split_claims(r.response), [r.reference, *chunks]),
            label(r.reference_claims, [r.response, *chunks]),
        ]
    return made


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds and result of a call."""
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--questions", type=int, default=65)
    parser.add_argument("--slow-questions", type=int, default=3)
    args = parser.parse_args()
    rows, few, checker = results(args.questions), results(args.slow_questions), EmbeddedChecker()
    embedded_labels(rows, checker)  # vectors and texts are in their caches from here on
    whole, labelled = timed(lambda: embedded_labels(rows, checker))
    by_result, many = timed(lambda: blocks(rows, checker.check_many))
    by_pair, pairs = timed(lambda: blocks(few, lambda c, t: [[checker.check([a], b)[0] for b in t] for a in c]))
    n, n_few = (sum(len(m) * len(m[0]) for m in part if m) for part in (many, pairs))
    by_id = {r.id: r for r in labelled.results.results}
    for found, of in ((many, rows), (pairs, few)):
        for i, r in enumerate(of):
            got = by_id[r.id]
            response = [[a, *b] for a, b in zip(got.response_in_reference, got.response_in_chunks, strict=True)]
            reference = [[a, *b] for a, b in zip(got.reference_in_response, got.reference_in_chunks, strict=True)]
            assert found[2 * i : 2 * i + 2] == [response, reference], r.id
    by_pair *= n / n_few
    print(f"{len(rows)} results, {n:,} labels, equal in all three")
    for name, seconds in (("embedded_labels", whole), ("check_many", by_result), ("pair by pair, scaled", by_pair)):
        print(f"{name:22s} {seconds:8.2f} s {1e6 * seconds / n:8.1f} us/label {seconds / whole:7.1f} x")


if __name__ == "__main__":
    main()
