"""RAGChecker's eleven metrics from labels, beside the ragchecker package's own computation, in one run.

    python -m pip install --no-deps --target PEER ragchecker==0.1.9 dataclasses-json marshmallow typing-inspect \
        mypy-extensions
    python benchmarks/bench_claims.py [--results 10000] [--chunks 20] [--peer PEER]

Only the peer's container and computation modules are imported; its package would import language models too. The peer
scores a sample and its numbers are compared with ours; without it, `claim_metrics` one result at a time is the peer.
The last lines read the sample from RAGChecker's JSON first, as a user does.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ragbench.data.ragchecker import from_ragchecker
from ragbench.metrics.claims import CHECKS, METRICS, RAGCHECKER_NAMES, ClaimLabels, claim_metrics, claim_metrics_table

WORDS = np.array(["Neutral", "Entailment", "Contradiction"], object)


def made_up(results: int, chunks: int) -> list[ClaimLabels]:
    """Random labels as words: 5-24 claims on either side, a tenth of the pairs of claim and chunk entailed."""
    rng = np.random.default_rng(0)

    def words(*shape: int) -> list[Any]:
        entailed = 0.5 if len(shape) == 1 else 0.1
        return WORDS[rng.choice(3, shape, p=[0.9 - entailed, entailed, 0.1])].tolist()

    made = []
    for i in range(results):
        n, m = rng.integers(5, 25, 2).tolist()
        made.append(ClaimLabels(words(n), words(m), words(n, chunks), words(m, chunks), str(i)))
    return made


def as_arrays(labels: ClaimLabels) -> ClaimLabels:
    return ClaimLabels(*(np.array(getattr(labels, check), object) == "Entailment" for check in CHECKS), labels.id)


def timed(function: Callable[[], Any], repeat: int = 3) -> tuple[float, Any]:
    """Median seconds, and the result."""
    seconds = []
    for _ in range(repeat):
        start = time.perf_counter()
        result = function()
        seconds.append(time.perf_counter() - start)
    return sorted(seconds)[repeat // 2], result


def as_json(sample: list[ClaimLabels]) -> str:
    """The labels as a file of RAGChecker, texts and claims left out."""
    names = ("answer2response", "response2answer", "retrieved2response", "retrieved2answer")
    texts = {"query": "", "gt_answer": "", "response": ""}
    rows = []
    for labels in sample:
        chunks = [{"doc_id": str(i), "text": ""} for i in range(len(labels.response_in_chunks[0]))]
        checks = {name: getattr(labels, check) for name, check in zip(names, CHECKS, strict=True)}
        rows.append({"query_id": labels.id} | texts | {"retrieved_context": chunks} | checks)
    return json.dumps({"results": rows})


class Peer:
    """The ragchecker package's own reading and computing."""

    def __init__(self, folder: Path) -> None:
        package = types.ModuleType("ragchecker")
        package.__path__ = [str(folder / "ragchecker")]
        sys.path.insert(0, str(folder))
        sys.modules["ragchecker"] = package
        self.functions = list(importlib.import_module("ragchecker.computation").METRIC_FUNC_MAP.values())
        self.container = importlib.import_module("ragchecker.container")

    def read(self, text: str) -> list[Any]:
        return self.container.RAGResults.from_json(text).results

    def score(self, results: list[Any]) -> np.ndarray:
        rows = []
        for result in results:
            result.metrics = {}
            for function in self.functions:
                function(result)
            rows.append([result.metrics[RAGCHECKER_NAMES[name]] for name in METRICS])
        return np.array(rows)


def one_by_one(sample: list[ClaimLabels]) -> np.ndarray:
    return np.array([list(claim_metrics(*(getattr(labels, check) for check in CHECKS)).values()) for labels in sample])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=int, default=10_000)
    parser.add_argument("--chunks", type=int, default=20)
    parser.add_argument("--sample", type=int, default=300)
    parser.add_argument("--peer", type=Path)
    options = parser.parse_args()
    words = made_up(options.results, options.chunks)
    arrays = [as_arrays(labels) for labels in words]
    sample = words[: options.sample]
    claim_metrics_table(sample)  # imports pandas

    text = as_json(sample)
    print(f"{'method':<34} {'labels':<9} {'results':>8} {'seconds':>8} {'us each':>8} {'ratio':>7}")

    def line(method: str, form: str, results: int, seconds: float, base: float | None = None) -> float:
        each = seconds / results
        ratio = (base or each) / each
        print(f"{method:<34} {form:<9} {results:>8} {seconds:>8.3f} {each * 1e6:>8.0f} {ratio:>7.1f}")
        return each

    if options.peer:
        peer = Peer(options.peer)
        results = peer.read(text)
        seconds, expected = timed(lambda: peer.score(results))
        base = line("ragchecker", "words", len(sample), seconds)
    else:
        seconds, expected = timed(lambda: one_by_one(sample))
        base = line("claim_metrics, one by one", "words", len(sample), seconds)
    for form, labels in (("words", sample), ("words", words), ("booleans", arrays)):
        seconds, table = timed(lambda labels=labels: claim_metrics_table(labels, empty="published"))
        line("claim_metrics_table", form, len(labels), seconds, base)
        gap = np.abs(table[list(METRICS)].to_numpy()[: len(sample)] - expected).max()
        print(f"    largest difference to the {len(sample)} of the first line: {gap:.1e}")
    if options.peer:
        seconds, _ = timed(lambda: peer.score(peer.read(text)))
        base = line("ragchecker, with reading", "JSON", len(sample), seconds)
        seconds, _ = timed(lambda: claim_metrics_table(from_ragchecker(json.loads(text)).results, empty="published"))
        line("claim_metrics_table, with reading", "JSON", len(sample), seconds, base)


if __name__ == "__main__":
    main()
