"""RAGChecker's own JSON of results, read and written without loss, so that one can move between the tools.

One record per question: question, reference answer, response, retrieved texts; then, as far as the work has gone, the
claims of both texts, the label of every claim against every text, and the metrics.

RAGChecker names a check after the text that is asked and the text whose claims are asked about:
``answer2response`` holds one label per *response* claim. Here the same thing is ``response_in_reference``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ragbench.data.files import raise_all, read_json
from ragbench.errors import DataError

LABELS = ("Entailment", "Neutral", "Contradiction")
Claim = str | tuple[str, str, str]

_SAME = {label: label for label in LABELS}
_TEXTS = {"query": "question", "gt_answer": "reference", "response": "response"}
_CLAIMS = {"response_claims": "response_claims", "gt_answer_claims": "reference_claims"}
_VECTORS = {"answer2response": "response_in_reference", "response2answer": "reference_in_response"}
_MATRICES = {"retrieved2response": "response_in_chunks", "retrieved2answer": "reference_in_chunks"}
_CHECKS = _VECTORS | _MATRICES
_OPTIONAL = (*_CLAIMS, *_CHECKS, "metrics")
_OF_RESPONSE = ("response_claims", "answer2response", "retrieved2response")
_OF_REFERENCE = ("gt_answer_claims", "response2answer", "retrieved2answer")


@dataclass(frozen=True, slots=True)
class RetrievedText:
    """One retrieved text; ``doc_id`` may be missing in RAGChecker's format, ``extra`` keeps fields of other tools."""

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
        return tuple(name for name in _CHECKS.values() if getattr(self, name) is None)


@dataclass(frozen=True, slots=True)
class RagResults:
    """A file of results; ``metrics`` are RAGChecker's averages in percent, by group, or None when not computed."""

    results: tuple[RagResult, ...]
    metrics: Mapping[str, Mapping[str, float]] | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


def claim_text(claim: Claim) -> str:
    """Return a claim as one text: a sentence as it is, a triple (subject, predicate, object) joined by spaces."""
    return claim if isinstance(claim, str) else " ".join(claim)


def read_ragchecker(path: str | Path) -> RagResults:
    """Read RAGChecker's JSON: checking inputs, outputs, or anything between.

    Parameters
    ----------
    path : JSON file, plain or gzip, an object with a list under "results".

    Returns
    -------
    RagResults; claims may be triples or sentences.

    Raises
    ------
    DataError that names result id and field (in RAGChecker's words) for a missing field, an unknown label word, or
    numbers of claims, labels and retrieved texts that do not fit. Several bad results are listed together.
    """
    return from_ragchecker(read_json(path), where=str(path))


def from_ragchecker(data: Any, where: str = "the data") -> RagResults:
    """Build results from parsed RAGChecker JSON; ``where`` begins the error messages. As `read_ragchecker`."""
    if not isinstance(data, dict) or not isinstance(data.get("results"), list):
        got = f"the fields {', '.join(map(repr, data)) or 'none'}" if isinstance(data, dict) else type(data).__name__
        raise DataError(
            f"{where}: JSON with {got}",
            'an object such as {"results": [...]}',
            'put the list of results under "results", or check that this is RAGChecker\'s file',
        )
    results: list[RagResult] = []
    errors: list[DataError] = []
    seen: dict[str, int] = {}
    for number, row in enumerate(data["results"]):
        try:
            result = _result(row, where, number)
            if str(result.id) in seen:
                raise DataError(
                    f"{where}, results[{number}]: the id {result.id!r} is that of results[{seen[str(result.id)]}] too",
                    "an id used once",
                    "rename one, or keep the systems in separate files",
                )
            seen[str(result.id)] = number
            results.append(result)
        except DataError as error:
            errors.append(error)
    raise_all(errors, where, len(data["results"]))
    metrics = data.get("metrics")
    if metrics is not None:
        if not isinstance(metrics, dict):
            raise DataError(f"{where}: 'metrics' is {type(metrics).__name__}", "an object of groups of numbers")
        metrics = {group: _numbers(part, f"{where}, metrics[{group!r}]") for group, part in metrics.items()}
    extra = {k: v for k, v in data.items() if k != "results" and (k != "metrics" or v is None)}
    return RagResults(tuple(results), metrics, extra)


def _result(row: Any, where: str, number: int) -> RagResult:
    where = f"{where}, results[{number}]"
    if not isinstance(row, dict):
        raise DataError(f"{where} is a JSON {type(row).__name__}", "an object", "check that file")
    name = row.get("query_id")
    if type(name) not in (str, int):
        said = f"'query_id' is {name!r}" if "query_id" in row else f"no field 'query_id' (it has {', '.join(row)})"
        raise DataError(f"{where}: {said}", "a text under 'query_id'", "give every result an id of its own")
    where = f"{where} (id {name!r})"
    values: dict[str, Any] = {ours: _text(row, theirs, where) for theirs, ours in _TEXTS.items()}
    values["chunks"] = _chunks(row, where)
    for theirs, ours in _CLAIMS.items():
        values[ours] = _claims(row.get(theirs), f"{where}: {theirs}")
    for theirs, ours in _CHECKS.items():
        width = None if theirs in _VECTORS else len(values["chunks"])
        values[ours] = _labels(row.get(theirs), width, f"{where}: {theirs}")
    for side in (_OF_RESPONSE, _OF_REFERENCE):
        _same_claims(row, side, len(values["chunks"]), where)
    metrics = row.get("metrics")
    values["metrics"] = None if metrics is None else _numbers(metrics, f"{where}: metrics")
    known = {"query_id", "retrieved_context", *_TEXTS, *_OPTIONAL}
    # A null stays a null when the file is written again.
    extra = {k: v for k, v in row.items() if k not in known or (k in _OPTIONAL and v is None)}
    return RagResult(name, **values, extra=extra)


def _text(row: dict, name: str, where: str) -> str:
    if not isinstance(row.get(name), str):
        said = f"{name!r} is {row[name]!r:.60}" if name in row else f"no field {name!r} (it has {', '.join(row)})"
        raise DataError(f"{where}: {said}", f"a text under {name!r}", 'add it; write "" for an empty text')
    return row[name]


def _chunks(row: dict, where: str) -> tuple[RetrievedText, ...]:
    found = row.get("retrieved_context")
    if not isinstance(found, list):
        said = f"is {type(found).__name__}" if "retrieved_context" in row else "is missing"
        raise DataError(
            f"{where}: the field 'retrieved_context' {said}",
            'a list of {"doc_id": ..., "text": ...}',
            "write an empty list where nothing was retrieved",
        )
    chunks = []
    for place, item in enumerate(found):
        at = f"{where}: retrieved_context[{place}]"
        if not isinstance(item, dict):
            raise DataError(f"{at} is {type(item).__name__}", 'an object {"doc_id": ..., "text": ...}', "mend it")
        extra = {k: v for k, v in item.items() if k not in ("doc_id", "text") or (k == "doc_id" and v is None)}
        chunks.append(RetrievedText(_text(item, "text", at), item.get("doc_id"), extra))
    return tuple(chunks)


def _claims(found: Any, where: str) -> tuple[Claim, ...] | None:
    if found is None:
        return None
    if not isinstance(found, list):
        raise DataError(f"{where} is {type(found).__name__}", "a list of claims", "write an empty list for no claim")
    claims: list[Claim] = []
    for place, claim in enumerate(found):
        triple = isinstance(claim, list) and len(claim) == 3 and all(isinstance(part, str) for part in claim)
        if not (triple or isinstance(claim, str)):
            raise DataError(
                f"{where}[{place}] is {str(claim)[:60]!r}",
                "a sentence, or a triple [subject, predicate, object] of texts",
                "mend that claim",
            )
        claims.append(claim if isinstance(claim, str) else (claim[0], claim[1], claim[2]))
    return tuple(claims)


def _labels(found: Any, width: int | None, where: str) -> tuple | None:
    """Labels, one per claim; with a ``width``, one row of so many labels per claim."""
    if found is None:
        return None
    if not isinstance(found, list):
        what = "one label per claim" if width is None else "one list of labels per claim"
        raise DataError(f"{where} is {type(found).__name__}", what, "mend that field")
    if width is None:
        return _known(found, where)
    rows = []
    for i, row in enumerate(found):
        if not isinstance(row, list) or len(row) != width:
            got = f"has {len(row)} labels" if isinstance(row, list) else f"is {row!r}"
            raise DataError(
                f"{where}[{i}] {got}",
                f"{width} labels, one per retrieved text",
                "check that rows are claims and columns retrieved texts",
            )
        rows.append(_known(row, f"{where}[{i}]"))
    return tuple(rows)


def _known(labels: list, where: str) -> tuple[str, ...]:
    """The labels as the three strings of `LABELS` themselves: a file holds millions of equal ones."""
    try:
        return tuple([_SAME[label] for label in labels])
    except (KeyError, TypeError):
        place, label = next((i, label) for i, label in enumerate(labels) if label not in LABELS)
        raise DataError(
            f"{where}[{place}]: label {label!r:.60}", f"one of {', '.join(LABELS)}", "check that claim again"
        ) from None


def _same_claims(row: dict, side: Sequence[str], width: int, where: str) -> None:
    sizes = {name: len(row[name]) for name in side if row.get(name) is not None}
    if not width:
        # Without a retrieved text there is nothing to hold a row per claim: [] is right as well.
        sizes = {name: size for name, size in sizes.items() if size or name not in _MATRICES}
    if len(set(sizes.values())) > 1:
        raise DataError(
            f"{where}: {', '.join(f'{name} has {size}' for name, size in sizes.items())}",
            "the same number of claims in each",
            "extract and check that result again; do not pad the labels",
        )


def _numbers(found: Any, where: str) -> dict[str, float]:
    if not isinstance(found, dict):
        raise DataError(f"{where} is {type(found).__name__}", "an object of numbers", "mend that field")
    for name, value in found.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float))):
            raise DataError(f"{where}[{name!r}] is {value!r}", "a number, or null where undefined", "mend that value")
    return {name: float("nan") if value is None else value for name, value in found.items()}


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
    row: dict[str, Any] = {"query_id": result.id} | {k: getattr(result, v) for k, v in _TEXTS.items()}
    row["retrieved_context"] = [
        ({} if chunk.doc_id is None else {"doc_id": chunk.doc_id}) | {"text": chunk.text} | dict(chunk.extra)
        for chunk in result.chunks
    ]
    for theirs, ours in (_CLAIMS | _CHECKS).items():
        value = getattr(result, ours)
        if value is not None:
            row[theirs] = [item if isinstance(item, str) else list(item) for item in value]
    if result.metrics is not None:
        row["metrics"] = _plain(result.metrics)
    return row | {k: v for k, v in result.extra.items() if k not in row}


def _plain(numbers: Mapping[str, float]) -> dict[str, float | None]:
    return {name: None if value != value else value for name, value in numbers.items()}
