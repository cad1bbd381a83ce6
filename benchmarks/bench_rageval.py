"""RAGEval's measures and the offline generator, timed beside peers in one run.

    python benchmarks/bench_rageval.py [--questions 6711] [--documents 1000]

Recall and EIR: questions, references and passages are generated here; the peer is the plain loop over the same
definition with the pySBD segmenter where it is installed (it is what the published evaluation splits with), else with
our segmenter and no cache. ROUGE-L: the rouge-score package. The generator has no offline peer; its rate is printed.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import pandas  # noqa: F401  (its import is not part of what is timed)

from ragbench.datagen import GeneratedSet, load_schema, make_set
from ragbench.metrics.keypoints import answer_rouge_l, passage_table
from ragbench.text.sentences import split_sentences


def timed(function: Callable, *arguments) -> tuple[float, object]:
    start = time.perf_counter()
    result = function(*arguments)
    return time.perf_counter() - start, result


def made_questions(generated: GeneratedSet, n: int) -> tuple[list[list[str]], list[list[str]]]:
    """References, and five passages each: windows of 12 sentences over the gold documents and random others."""
    rng = np.random.default_rng(0)
    windows = [
        [" ".join(s.text for s in d.sentences[i : i + 12]) for i in range(0, len(d.sentences), 12)]
        for d in generated.documents
    ]
    number = {d.id: i for i, d in enumerate(generated.documents)}
    pool = [w for own in windows for w in own]
    references, passages = [], []
    questions = [q for q in generated.questions if q.references]
    for i in range(n):
        q = questions[i % len(questions)]
        own = [w for d in q.doc_ids for w in windows[number[d]]][:3]
        references.append([r.text for r in q.references])
        passages.append([*own, *(pool[j] for j in rng.integers(0, len(pool), 5 - len(own)))])
    return references, passages


def peer_segmenter() -> tuple[str, Callable[[str], list[str]]]:
    try:
        import pysbd
    except ImportError:
        return "our segmenter, uncached", lambda text: list(split_sentences.__wrapped__(text, "en"))
    segmenter = pysbd.Segmenter()
    return "pySBD", lambda text: [s.strip() for s in segmenter.segment(text) if s.strip()]


def plain_loop(references: list[list[str]], passages: list[list[str]], split: Callable) -> np.ndarray:
    rows = []
    for own, found in zip(references, passages, strict=True):
        parts = [split(r) for r in own]
        whole = [all(any(s in p for p in found) for s in sentences) for sentences in parts]
        words = sum(len(s.split()) for sentences, hit in zip(parts, whole, strict=True) if hit for s in sentences)
        rows.append((np.mean(whole), words / sum(len(p.split()) for p in found)))
    return np.array(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--questions", type=int, default=6711)
    parser.add_argument("--documents", type=int, default=1000)
    arguments = parser.parse_args()

    for domain, language in (("finance", "en"), ("finance", "zh"), ("law", "en"), ("medicine", "zh")):
        schema = load_schema(domain, language)
        seconds, generated = timed(make_set, schema, arguments.documents, 7)
        checking, problems = timed(generated.problems)
        print(
            f"{domain} {language}: {len(generated.documents):,} documents, {len(generated.questions):,} questions in "
            f"{seconds:.1f} s ({60 * len(generated.documents) / seconds:,.0f} documents a minute); "
            f"validator {checking:.1f} s, {len(problems)} problems"
        )

    generated = make_set(load_schema("finance", "en"), 300, 7)
    references, passages = made_questions(generated, arguments.questions)
    split_sentences.cache_clear()
    ours, table = timed(passage_table, references, passages, variant="paper")
    name, split = peer_segmenter()
    theirs, rows = timed(plain_loop, references, passages, split)
    same = np.isclose(rows, table[["recall", "eir"]]).all(axis=1).mean()
    print(
        f"Recall and EIR, {arguments.questions:,} questions x 5 passages: {ours:.2f} s; plain loop with {name}: "
        f"{theirs:.2f} s, {theirs / ours:.1f} x; equal in {same:.1%} of the questions"
    )

    from rouge_score.rouge_scorer import RougeScorer

    answers = [q.answer for q in generated.questions[:1000]]
    others = [" ".join(q.statements[::-1]) for q in generated.questions[:1000]]
    ours, scores = timed(answer_rouge_l, others, answers)
    scorer = RougeScorer(["rougeL"])
    theirs, peer = timed(lambda: [scorer.score(a, b)["rougeL"].fmeasure for a, b in zip(answers, others, strict=True)])
    print(
        f"ROUGE-L, 1,000 pairs: {1e3 * ours:.0f} ms; rouge-score: {1e3 * theirs:.0f} ms, {theirs / ours:.1f} x; "
        f"largest difference {np.abs(scores - peer).max():.1e}"
    )


if __name__ == "__main__":
    main()
