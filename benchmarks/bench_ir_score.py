"""IR score of the whole grid against its peers, in one run: 37,025 (question, retriever) pairs, 10
cut-offs.

    python benchmarks/bench_ir_score.py [--pairs 37025] [--sample 60] [--cpu]

Texts are HotpotQA paragraphs when RAGBENCH_DATA is set, made-up sentences otherwise; about 6,000
characters each. ragbench scores every pair; the peers score a sample, their results are compared
with ours, and the times per pair are printed with their ratio. Cut positions are given, so that
tokenising is measured apart (last lines). ``--cpu`` counts CPU seconds of all threads.
"""

from __future__ import annotations

import argparse
import difflib
import gzip
import json
import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from ragbench.metrics.ir_score import ir_score_table
from ragbench.text.tokens import TokenOffsets, joined_cutoffs

TEXT_LENGTH = 5970
CUTS = np.arange(1, 11) * 500
clock = time.process_time if "--cpu" in sys.argv else time.perf_counter


def hotpotqa(folder: str) -> list[tuple[list[str], list[str]]]:
    """Facts and paragraphs of each question."""
    path = Path(folder) / "hotpotqa" / "hotpot_dev_distractor_subset.json.gz"
    questions = []
    for row in json.loads(gzip.decompress(path.read_bytes())):
        context = dict(row["context"])
        facts = [
            context[t][i].strip() for t, i in row["supporting_facts"] if i < len(context.get(t, []))
        ]
        questions.append((facts, ["".join(sentences) for sentences in context.values()]))
    return questions


def made_up(rng: random.Random) -> list[tuple[list[str], list[str]]]:
    """The same with sentences of words drawn by a steep frequency law."""
    words = ["".join(rng.choices("etaoinshrdlu", k=rng.randint(2, 9))) for _ in range(8000)]
    weights = [1 / (i + 1) for i in range(8000)]

    def sentence() -> str:
        return " ".join(rng.choices(words, weights, k=rng.randint(15, 30))).capitalize() + "."

    questions = []
    for _ in range(1000):
        paragraphs = [[sentence() for _ in range(rng.randint(2, 6))] for _ in range(10)]
        facts = [rng.choice(p) for p in paragraphs[: rng.choice([2, 2, 3])]]
        questions.append((facts, [" ".join(p) for p in paragraphs]))
    return questions


def pairs_of(
    questions: list, n: int, rng: random.Random
) -> tuple[list[list[str]], list[list[str]]]:
    """n pairs: a question's facts, and chunks of which some are its own paragraphs."""
    pool = [p for _, paragraphs in questions for p in paragraphs]
    parts = []
    chunks = []
    for _ in range(n):
        facts, own = rng.choice(questions)
        parts.append(facts)
        chunks.append(rng.sample(own, rng.randint(1, min(8, len(own)))) + rng.sample(pool, 8))
    return parts, chunks


def growing_window(part: str, text: str) -> int:
    """Longest common substring by Python's ``in``: keep a window of the fact, grow it while the
    text holds it.
    """
    best = 0
    for end in range(1, len(part) + 1):
        while best < end and part[end - best - 1 : end] in text:
            best += 1
    return best


def with_difflib(part: str, text: str) -> int:
    return difflib.SequenceMatcher(None, part, text, autojunk=False).find_longest_match().size


def peer_table(lcs: Callable[[str, str], int], parts: list, texts: list) -> np.ndarray:
    return np.array(
        [
            [np.mean([lcs(p, t[:c]) / len(p) for p in ps]) for c in CUTS]
            for ps, t in zip(parts, texts, strict=True)
        ]
    )


def timed(function: Callable, *arguments, **options) -> tuple[float, object]:
    start = clock()
    result = function(*arguments, **options)
    return clock() - start, result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--pairs", type=int, default=37_025)
    parser.add_argument("--sample", type=int, default=60, help="pairs that the slow peers score")
    arguments = parser.parse_args()
    rng = random.Random(0)
    folder = os.environ.get("RAGBENCH_DATA")
    parts, chunks = pairs_of(hotpotqa(folder) if folder else made_up(rng), arguments.pairs, rng)
    texts = [" ".join(c)[:TEXT_LENGTH] for c in chunks]
    positions = np.minimum(CUTS, np.array([[len(t)] for t in texts]))
    print(
        f"{'HotpotQA' if folder else 'made-up'} text, {os.cpu_count()} cores: {len(texts):,} "
        "pairs, "
        f"{sum(map(len, parts)):,} facts, {sum(map(len, texts)) / 1e6:.0f} million characters, "
        f"{len(CUTS)} cut-offs"
    )

    sample = slice(0, arguments.sample)
    peers = {
        "exact": {"growing window": growing_window, "difflib": with_difflib},
        "substring": {},  # what normalising adds to "exact"
    }
    for match, functions in peers.items():
        ir_score_table(parts[:2], texts[:2], CUTS, match=match, positions=positions[:2])  # compile
        options = {"match": match, "positions": positions}
        seconds = {
            t: min(
                timed(ir_score_table, parts, texts, CUTS, threads=t, **options)[0] for _ in range(3)
            )
            for t in (1, 2)
        }
        for threads, total in seconds.items():
            print(
                f"{match:17} ragbench, {threads} thread(s): {total:7.2f} s in all, "
                f"{1e6 * total / len(texts):9.1f} us per pair"
            )
        ours = ir_score_table(
            parts[sample], texts[sample], CUTS, match=match, positions=positions[sample]
        )
        for name, lcs in functions.items():
            few = slice(0, 4) if name == "difflib" else sample
            taken, theirs = timed(peer_table, lcs, parts[few], texts[few])
            np.testing.assert_allclose(ours[few], theirs)
            per_pair = taken / len(texts[few])
            print(
                f"{match:17} {name:21}: {per_pair * len(texts):7.0f} s in all, "
                f"{1e6 * per_pair:9.1f} us per pair, "
                f"{per_pair * len(texts) / seconds[1]:7.0f} x one thread, "
                f"{per_pair * len(texts) / seconds[2]:7.0f} x two"
            )

    chunks = chunks[:5000]
    cache = TokenOffsets()
    warm = timed(cache.warm_chunks, [c for cs in chunks for c in cs])[0]
    joined = timed(lambda: [joined_cutoffs(c, range(100, 1001, 100), cache) for c in chunks])[0]
    direct = (
        timed(lambda: TokenOffsets().warm([" ".join(c) for c in chunks[:500]]))[0]
        * len(chunks)
        / 500
    )
    print(
        f"cut-offs of {len(chunks):,} joined texts: {warm:.2f} s for the distinct chunks + "
        f"{joined:.2f} s "
        f"to add up; tokenising each joined text {direct:.1f} s, {direct / (warm + joined):.1f} x"
    )


if __name__ == "__main__":
    main()
