"""RAGChecker's own JSON of results, read and written without loss, so that one can move between the tools.

One record per question: question, reference answer, response, retrieved texts; then, as far as the work has gone, the
claims of both texts, the label of every claim against every text, and the metrics.

RAGChecker names a check after the text that is asked and the text whose claims are asked about:
``answer2response`` holds one label per *response* claim. Here the same thing is ``response_in_reference``.

RAGChecker (0.1.9) expects triples: when it reads a claim that is a sentence it takes it for a list, and writes its
letters. Labels and metrics do not suffer; read here again, the letters are a sentence again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LABELS = ("Entailment", "Neutral", "Contradiction")
Claim = str | tuple[str, str, str]

TEXTS = {"query": "question", "gt_answer": "reference", "response": "response"}
CLAIMS = {"response_claims": "response_claims", "gt_answer_claims": "reference_claims"}
VECTORS = {"answer2response": "response_in_reference", "response2answer": "reference_in_response"}
MATRICES = {"retrieved2response": "response_in_chunks", "retrieved2answer": "reference_in_chunks"}
CHECKS = VECTORS | MATRICES
OPTIONAL = (*CLAIMS, *CHECKS, "metrics")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievedText:
    """One retrieved text, its fields by keyword only: text and id exchanged would make every context metric 0.

    ``doc_id`` may be missing in RAGChecker's format, ``extra`` keeps fields of other tools."""

    text: str
    doc_id: str | int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RagResult:
    """One question with its response, and what is known about their claims; None where a step has not been done.

    ``response_in_reference`` has one label per response claim, ``reference_in_response`` one per reference claim;
    ``response_in_chunks`` and ``reference_in_chunks`` have one row per claim with one label per retrieved text.
    ``extra`` keeps fields that RAGChecker does not know.
    """

    id: str | int
    question: str
    reference: str
    response: str
    chunks: tuple[RetrievedText, ...] = ()
    response_claims: tuple[Claim, ...] | None = None
    reference_claims: tuple[Claim, ...] | None = None
    response_in_reference: tuple[str, ...] | None = None
    reference_in_response: tuple[str, ...] | None = None
    response_in_chunks: tuple[tuple[str, ...], ...] | None = None
    reference_in_chunks: tuple[tuple[str, ...], ...] | None = None
    metrics: Mapping[str, float] | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    def missing(self) -> tuple[str, ...]:
        """Names of the checks that have not been done, as in this record; empty when metrics can be computed."""
        return tuple(name for name in CHECKS.values() if getattr(self, name) is None)


@dataclass(frozen=True, slots=True)
class RagResults:
    """A file of results; ``metrics`` are RAGChecker's averages in percent, by group, or None when not computed."""

    results: tuple[RagResult, ...]
    metrics: Mapping[str, Mapping[str, float]] | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


def claim_text(claim: Claim) -> str:
    """Return a claim as one text: a sentence as it is, a triple (subject, predicate, object) joined by spaces."""
    return claim if isinstance(claim, str) else " ".join(claim)


def to_ragchecker(results: RagResults) -> dict[str, Any]:
    """Return results as RAGChecker's JSON object; what has not been done is left out, an undefined metric is null."""
    data: dict[str, Any] = {"results": [_row(result) for result in results.results]}
    if results.metrics is not None:
        data["metrics"] = {group: _plain(part) for group, part in results.metrics.items()}
    return data | {k: v for k, v in results.extra.items() if k not in data}


def write_ragchecker(results: RagResults, path: str | Path) -> Path:
    """Write results as RAGChecker's JSON and return the path; reading it again gives the same results."""
    path = Path(path).expanduser()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(to_ragchecker(results), indent=2), encoding="utf-8")
    return path


def _row(result: RagResult) -> dict[str, Any]:
    row: dict[str, Any] = {"query_id": result.id} | {k: getattr(result, v) for k, v in TEXTS.items()}
    found = [
        ({} if chunk.doc_id is None else {"doc_id": chunk.doc_id}) | {"text": chunk.text} | dict(chunk.extra)
        for chunk in result.chunks
    ]
    if found or "retrieved_context" not in result.extra:
        row["retrieved_context"] = found
    for theirs, ours in (CLAIMS | CHECKS).items():
        value = getattr(result, ours)
        if value is not None:
            row[theirs] = [item if isinstance(item, str) else list(item) for item in value]
    if result.metrics is not None:
        row["metrics"] = _plain(result.metrics)
    return row | {k: v for k, v in result.extra.items() if k not in row}


def _plain(numbers: Mapping[str, float]) -> dict[str, float | None]:
    return {name: None if value != value else value for name, value in numbers.items()}
