"""CPU of ``rb.score(frame, ["ranking"])`` beside ir_measures alone, and of `contained` in a long text.

python benchmarks/bench_score.py [--rows 1500] [--words 100000]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import ir_measures
import numpy as np
import pandas as pd

import ragbench as rb
from ragbench.metrics.ranking import RANK_MEASURES


def cpu_seconds(function: Callable[[], Any], times: int = 9) -> float:
    """Return the median CPU time of a call, after one that is not counted."""
    function()
    seconds = []
    for _ in range(times):
        start = time.process_time()
        function()
        seconds.append(time.process_time() - start)
    return float(np.median(seconds))


def rankings(rows: int) -> pd.DataFrame:
    """Make rankings of ten documents, of which one of two relevant ones was found."""
    rng = np.random.default_rng(0)
    retrieved = [[f"d{n}" for n in rng.choice(5000, 10, replace=False)] for _ in range(rows)]
    relevant = [[ids[rng.integers(10)], f"d{rng.integers(5000, 9000)}"] for ids in retrieved]
    table = {"question_id": [f"q{n}" for n in range(rows)], "question": "?", "answer": "x"}
    return pd.DataFrame({**table, "retrieved": retrieved, "relevant": relevant})


def by_ir_measures(table: pd.DataFrame) -> list[Any]:
    """Score the same rankings with nothing around it."""
    measures = [ir_measures.parse_measure(name) for name in RANK_MEASURES]
    gains = {}
    run = {}
    for row in table.itertuples():
        gains[row.question_id] = dict.fromkeys(row.relevant, 1)
        run[row.question_id] = {name: -float(rank) for rank, name in enumerate(row.retrieved)}
    return list(ir_measures.iter_calc(measures, gains, run))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1500)
    parser.add_argument("--words", type=int, default=100_000)
    asked = parser.parse_args()
    table = rankings(asked.rows)
    ours = cpu_seconds(lambda: rb.score(table, ["ranking"]))
    theirs = cpu_seconds(lambda: by_ir_measures(table))
    print(f"ranking, {asked.rows} rows: {ours:.3f} s of CPU, ir_measures {theirs:.3f}", end="; ")
    print(f"{ours / theirs:.1f} times")
    text = "word " * asked.words
    seconds = cpu_seconds(lambda: rb.contained(text, "another word"), times=3)
    print(f"contained, {asked.words} words: {seconds:.3f} s of CPU")
