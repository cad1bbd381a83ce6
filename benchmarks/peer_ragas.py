"""ragas' side of `bench_peers.py`, run by the Python of ragas' own environment: ``peer_ragas.py
GIVEN RESULT``.

A chat model that replays given labels stands where a language model would; what ragas asks it is
kept and counted.
"""

from __future__ import annotations

import asyncio
import json
import logging
import statistics
import sys
import time
import warnings
from importlib.metadata import version
from itertools import cycle
from typing import Any

from langchain_core.embeddings import Embeddings
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from pydantic import Field
from ragas.dataset_schema import SingleTurnSample
from ragas.embeddings import LangchainEmbeddingsWrapper
from ragas.llms import LangchainLLMWrapper
from ragas.metrics import Faithfulness, ResponseRelevancy
from ragas.metrics._answer_relevance import ResponseRelevanceOutput
from ragas.metrics._faithfulness import NLIStatementOutput, StatementFaithfulnessAnswer

warnings.filterwarnings("ignore", category=DeprecationWarning)
logging.disable(logging.WARNING)  # "No statements were generated": told by the NaN


class Replay(BaseChatModel):
    """Answers with the labels of the row that is set, in the form that the prompt's schema names."""

    row: dict[str, Any] = Field(default_factory=dict)
    questions: Any = None
    log: list = Field(default_factory=list)

    @property
    def _llm_type(self) -> str:
        return "replay"

    def set_row(self, row: dict[str, Any]) -> None:
        self.row = row
        self.questions = cycle(zip(row["questions"], row["evasive"], strict=True))

    def _generate(
        self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> ChatResult:
        prompt = messages[-1].content
        if "StatementGeneratorOutput" in prompt:
            said: dict[str, Any] = {"statements": self.row["statements"]}
        elif "NLIStatementOutput" in prompt:
            pairs = zip(self.row["statements"], self.row["verdicts"], strict=True)
            said = {
                "statements": [
                    {"statement": s, "reason": self.row["why"], "verdict": int(v)} for s, v in pairs
                ]
            }
        else:
            question, evasive = next(self.questions)
            said = {"question": question, "noncommittal": int(evasive)}
        reply = json.dumps(said, ensure_ascii=False)
        self.log.append((prompt, reply))
        return ChatResult(generations=[ChatGeneration(message=AIMessage(content=reply))])


class Vectors(Embeddings):
    """Looks texts up among the given vectors."""

    def __init__(self, known: dict[str, list[float]]) -> None:
        self.known = known

    def embed_query(self, text: str) -> list[float]:
        return self.known[text]

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.known[text] for text in texts]


def formulas(
    rows: list[dict[str, Any]], faithful: Faithfulness, relevant: ResponseRelevancy
) -> float:
    """Median seconds of both formulas, from labels as ragas holds them."""
    verdicts = [
        NLIStatementOutput(
            statements=[
                StatementFaithfulnessAnswer(statement=s, reason="", verdict=int(v))
                for s, v in zip(row["statements"], row["verdicts"], strict=True)
            ]
        )
        for row in rows
    ]
    questions = [
        [
            ResponseRelevanceOutput(question=q, noncommittal=int(e))
            for q, e in zip(r["questions"], r["evasive"], strict=True)
        ]
        for r in rows
    ]
    seconds = []
    for _ in range(5):
        start = time.process_time()
        for row, said, asked in zip(rows, verdicts, questions, strict=True):
            faithful._compute_score(said)
            relevant._calculate_score(asked, {"user_input": row["question"]})
        seconds.append(time.process_time() - start)
    return statistics.median(seconds)


async def whole(
    rows: list[dict[str, Any]], model: Replay, metrics: dict[str, Any]
) -> dict[str, list[float]]:
    values: dict[str, list[float]] = {name: [] for name in metrics}
    for row in rows:
        model.set_row(row)
        sample = SingleTurnSample(
            user_input=row["question"], response=row["answer"], retrieved_contexts=row["chunks"]
        )
        for name, metric in metrics.items():
            values[name].append(float(await metric.single_turn_ascore(sample)))
    return values


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as file:
        given = json.load(file)
    model = Replay()
    llm = LangchainLLMWrapper(model)
    vectors = LangchainEmbeddingsWrapper(Vectors(given["vectors"]))
    metrics = {
        "faithfulness": Faithfulness(llm=llm),
        "answer_relevance": ResponseRelevancy(llm=llm, embeddings=vectors),
    }
    start = time.process_time()
    values = asyncio.run(whole(given["rows"], model, metrics))
    result = {
        "version": version("ragas"),
        "whole_seconds": time.process_time() - start,
        "formula_seconds": formulas(given["rows"], *metrics.values()),
        "values": values,
        "log": model.log,
    }
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        json.dump(result, file)


if __name__ == "__main__":
    main()
