"""RAGChecker's side of `bench_peers.py`, run by the Python of its own environment:
``peer_ragchecker.py GIVEN RESULT``.

A function that replays given claims and labels stands where a language model would (RAGChecker's
own ``custom_llm_api_func``); what it is asked is kept and counted.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from importlib.metadata import version
from typing import Any

from loguru import logger
from ragchecker import RAGChecker, RAGResult, RAGResults
from ragchecker.computation import METRIC_FUNC_MAP
from ragchecker.container import RetrievedDoc

logger.disable("ragchecker")


def between(text: str, before: str, after: str) -> str:
    """The text between the last ``before`` and the last ``after``: examples come first in these
    prompts.
    """
    return text[text.rindex(before) + len(before) : text.rindex(after)]


class Replay:
    def __init__(self, given: dict[str, Any]) -> None:
        self.claims = given["claims"]
        self.labels = given["labels"]
        self.log: list[tuple[str, str]] = []

    def __call__(self, prompts: list[str]) -> list[str]:
        replies = [self.reply(prompt) for prompt in prompts]
        self.log += zip(prompts, replies, strict=True)
        return replies

    def reply(self, prompt: str) -> str:
        if "### Candidate Answer:" in prompt:
            text = between(prompt, "### Candidate Answer:\n", "\n\n### KG:")
            return "\n".join(
                f"({', '.join(map(json.dumps, triple))})" for triple in self.claims[text]
            )
        text = between(prompt, "### Reference:\n", "\n\n### Claims:")
        lines = between(prompt, "### Claims:\n", "\n\n\nYour answer").splitlines()
        return "\n".join(self.labels[text][line[2:-2].replace('", "', " ")] for line in lines)


def numbers(results: list[RAGResult]) -> list[dict[str, float]]:
    for result in results:
        result.metrics = {}
        for function in METRIC_FUNC_MAP.values():
            function(result)
    return [{name: float(value) for name, value in result.metrics.items()} for result in results]


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as file:
        given = json.load(file)
    rows = [
        RAGResult(
            r["id"],
            r["question"],
            r["reference"],
            r["answer"],
            [RetrievedDoc(None, text) for text in r["chunks"]],
        )
        for r in given["rows"]
    ]
    model = Replay(given)
    start = time.process_time()
    RAGChecker(extractor_name="replay", checker_name="replay", custom_llm_api_func=model).evaluate(
        RAGResults(rows)
    )
    whole = time.process_time() - start
    labelled = RAGResults.from_dict(given["labelled"]).results
    seconds = []
    for _ in range(3):
        start = time.process_time()
        values = numbers(labelled)
        seconds.append(time.process_time() - start)
    result = {
        "version": version("ragchecker"),
        "whole_seconds": whole,
        "formula_seconds": statistics.median(seconds),
        "values": [{name: float(value) for name, value in row.metrics.items()} for row in rows],
        "labelled": values,
        "log": model.log,
    }
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        json.dump(result, file)


if __name__ == "__main__":
    main()
