"""RAGChecker's JSON read and checked: every message names result id and field, in RAGChecker's words."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ragbench.data.files import raise_all, read_json
from ragbench.data.ragchecker.results import (
    CHECKS,
    CLAIMS,
    LABELS,
    MATRICES,
    OPTIONAL,
    TEXTS,
    VECTORS,
    Claim,
    RagResult,
    RagResults,
    RetrievedText,
)
from ragbench.errors import DataError

_SAME = {label: label for label in LABELS}
_OF_RESPONSE = ("response_claims", "answer2response", "retrieved2response")
_OF_REFERENCE = ("gt_answer_claims", "response2answer", "retrieved2answer")


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
    values: dict[str, Any] = {ours: _text(row, theirs, where) for theirs, ours in TEXTS.items()}
    values["chunks"] = _chunks(row, where)
    for theirs, ours in CLAIMS.items():
        values[ours] = _claims(row.get(theirs), f"{where}: {theirs}")
    for theirs, ours in CHECKS.items():
        width = None if theirs in VECTORS else len(values["chunks"])
        values[ours] = _labels(row.get(theirs), width, f"{where}: {theirs}")
    for side in (_OF_RESPONSE, _OF_REFERENCE):
        _same_claims(row, side, len(values["chunks"]), where)
    metrics = row.get("metrics")
    values["metrics"] = None if metrics is None else _numbers(metrics, f"{where}: metrics")
    known = {"query_id", "retrieved_context", *TEXTS, *OPTIONAL}
    # A null stays a null when the file is written again.
    extra = {k: v for k, v in row.items() if k not in known or (k in (*OPTIONAL, "retrieved_context") and v is None)}
    return RagResult(name, **values, extra=extra)


def _text(row: dict, name: str, where: str) -> str:
    if not isinstance(row.get(name), str):
        said = f"{name!r} is {row[name]!r:.60}" if name in row else f"no field {name!r} (it has {', '.join(row)})"
        raise DataError(f"{where}: {said}", f"a text under {name!r}", 'add it; write "" for an empty text')
    return row[name]


def _chunks(row: dict, where: str) -> tuple[RetrievedText, ...]:
    found = row.get("retrieved_context")
    if found is None and "retrieved_context" in row:
        return ()  # what RAGChecker writes where nothing was retrieved
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
        chunks.append(RetrievedText(text=_text(item, "text", at), doc_id=item.get("doc_id"), extra=extra))
    return tuple(chunks)


def _claims(found: Any, where: str) -> tuple[Claim, ...] | None:
    if found is None:
        return None
    if not isinstance(found, list):
        raise DataError(f"{where} is {type(found).__name__}", "a list of claims", "write an empty list for no claim")
    claims: list[Claim] = []
    for place, claim in enumerate(found):
        if isinstance(claim, list) and len(claim) != 3 and _letters(claim):
            claim = "".join(claim)
        triple = isinstance(claim, list) and len(claim) == 3 and all(isinstance(part, str) for part in claim)
        if not (triple or isinstance(claim, str)):
            raise DataError(
                f"{where}[{place}] is {str(claim)[:60]!r}",
                "a sentence, or a triple [subject, predicate, object] of texts",
                "mend that claim",
            )
        claims.append(claim if isinstance(claim, str) else (claim[0], claim[1], claim[2]))
    return tuple(claims)


def _letters(claim: list) -> bool:
    return bool(claim) and all(isinstance(part, str) and len(part) == 1 for part in claim)


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
        sizes = {name: size for name, size in sizes.items() if size or name not in MATRICES}
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
