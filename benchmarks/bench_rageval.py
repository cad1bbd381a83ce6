"""RAGEval's measures, timed beside peers in one run.

    python benchmarks/bench_rageval.py [--questions 6711]

Recall and EIR: MiniHop's questions and references, and passages of its documents; the peer is the
plain loop over the same definition with the pySBD segmenter where it is installed (it is what the
published evaluation splits with), else with our segmenter and no cache. ROUGE-L: the rouge-score
package.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import pandas  # noqa: F401  (its import is not part of what is timed)

from ragbench.data import load_minihop
from ragbench.metrics.keypoints import answer_rouge_l, passage_table
from ragbench.records import Dataset
from ragbench.text.sentences import split_sentences


def timed(function: Callable, *arguments) -> tuple[float, object]:
    start = time.perf_counter()
    result = function(*arguments)
    return time.perf_counter() - start, result


def questions_of(minihop: Dataset, n: int) -> tuple[list[list[str]], list[list[str]]]:
    """References, and five passages each:

    windows of 12 sentences over the gold documents and random others.
    """
    rng = np.random.default_rng(0)
    windows = {}
    for document in minihop.documents:
        sentences = split_sentences(document.text, "en")
        windows[document.id] = [
            " ".join(sentences[i : i + 12]) for i in range(0, len(sentences), 12)
        ]
    pool = [window for own in windows.values() for window in own]
    references = []
    passages = []
    for i in range(n):
        question = minihop.questions[i % len(minihop.questions)]
        own = [window for name in question.meta["doc_ids"] for window in windows[name]][:3]
        references.append(list(question.references))
        passages.append([*own, *(pool[j] for j in rng.integers(0, len(pool), 5 - len(own)))])
    return references, passages


def peer_segmenter() -> tuple[str, Callable[[str], list[str]]]:
    try:
        import pysbd
    except ImportError:
        return "our segmenter, uncached", lambda text: list(split_sentences.__wrapped__(text, "en"))
    segmenter = pysbd.Segmenter()
    return "pySBD", lambda text: [s.strip() for s in segmenter.segment(text) if s.strip()]


def plain_loop(
    references: list[list[str]], passages: list[list[str]], split: Callable
) -> np.ndarray:
    rows = []
    for own, found in zip(references, passages, strict=True):
        parts = [split(r) for r in own]
        whole = [all(any(s in p for p in found) for s in sentences) for sentences in parts]
        words = sum(
            len(s.split())
            for sentences, hit in zip(parts, whole, strict=True)
            if hit
            for s in sentences
        )
        rows.append((np.mean(whole), words / sum(len(p.split()) for p in found)))
    return np.array(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--questions", type=int, default=6711)
    arguments = parser.parse_args()

    minihop = load_minihop()
    references, passages = questions_of(minihop, arguments.questions)
    split_sentences.cache_clear()
    ours, table = timed(partial(passage_table, variant="paper"), references, passages)
    name, split = peer_segmenter()
    theirs, rows = timed(plain_loop, references, passages, split)
    same = np.isclose(rows, table[["recall", "eir"]]).all(axis=1).mean()
    print(
        f"Recall and EIR, {arguments.questions:,} questions x 5 passages: {ours:.2f} s; plain "
        f"loop with {name}: "
        f"{theirs:.2f} s, {theirs / ours:.1f} x; equal in {same:.1%} of the questions"
    )

    from rouge_score.rouge_scorer import RougeScorer

    answers = [text for texts in references for text in texts][:1000]
    others = [" ".join(text.split()[::-1]) for text in answers]
    ours, scores = timed(answer_rouge_l, others, answers)
    scorer = RougeScorer(["rougeL"])
    theirs, peer = timed(
        lambda: [
            scorer.score(a, b)["rougeL"].fmeasure for a, b in zip(answers, others, strict=True)
        ]
    )
    print(
        f"ROUGE-L, 1,000 pairs: {1e3 * ours:.0f} ms; rouge-score: {1e3 * theirs:.0f} ms, "
        f"{theirs / ours:.1f} x; "
        f"largest difference {np.abs(scores - peer).max():.1e}"
    )


if __name__ == "__main__":
    main()
