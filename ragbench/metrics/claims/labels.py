"""Labels of claims in whatever form they come, as checked boolean arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ragbench.errors import DataError

CHECKS = ("response_in_reference", "reference_in_response", "response_in_chunks", "reference_in_chunks")

# One look-up serves the label words and whatever equals 1 or 0: True and False, numpy's booleans, 1.0 and 0.0.
_ENTAILED = {"Entailment": 1, "Neutral": 0, "Contradiction": 0, 1: 1, 0: 0}


@dataclass(frozen=True, slots=True, eq=False)
class ClaimLabels:
    """Labels of one result: booleans, 0/1, or the words Entailment / Neutral / Contradiction.

    Shapes: (n_response_claims,), (n_reference_claims,), (n_response_claims, n_chunks), (n_reference_claims, n_chunks).
    ``id`` names the result in tables and error messages.
    """

    response_in_reference: Any
    reference_in_response: Any
    response_in_chunks: Any
    reference_in_chunks: Any
    id: str = ""


class FlatLabels:
    """The four sets of labels of one result as flat boolean arrays, in the order of `CHECKS`, shapes checked.

    ``sizes`` are the numbers of response claims, reference claims and chunks.
    """

    __slots__ = ("arrays", "sizes")

    def __init__(self, labels: Any, where: str = "") -> None:
        """Check ``labels``, an object with the attributes `CHECKS`; ``where`` begins the error messages."""
        responses = _vector(labels.response_in_reference, f"{where}{CHECKS[0]}")
        references = _vector(labels.reference_in_response, f"{where}{CHECKS[1]}")
        in_response, k = _matrix(labels.response_in_chunks, responses.size, f"{where}{CHECKS[2]}")
        in_reference, other = _matrix(labels.reference_in_chunks, references.size, f"{where}{CHECKS[3]}")
        if k is not None and other is not None and k != other:
            raise DataError(
                f"{where}{CHECKS[2]} has {k} chunks, {CHECKS[3]} has {other}",
                "the same chunks in both",
                "check the claims against all chunks again",
            )
        self.sizes = (responses.size, references.size, k if k is not None else other or 0)
        self.arrays = (responses, references, in_response, in_reference)


def flatten(result: Any, number: int) -> tuple[str, FlatLabels]:
    """Id and labels of one result: an object with the attributes `CHECKS` and ``id``, or a mapping with such keys.

    ``number`` names a result without id. DataError when labels are missing, misshapen or unknown.
    """
    others: list[Any] = []
    if isinstance(result, Mapping):
        others = [key for key in result if key not in CHECKS and key != "id"]
        result = ClaimLabels(*(result.get(check) for check in CHECKS), id=result.get("id", ""))
    name = getattr(result, "id", "")
    name = str(number) if name in ("", None) else str(name)
    lacking = [check for check in CHECKS if getattr(result, check, None) is None]
    if lacking:
        # A mistyped field is among those that nobody knows.
        others += getattr(result, "extra", None) or ()
        beside = f" (it has {', '.join(map(str, others))})" if others else ""
        raise DataError(
            f"result {name!r}: no labels for {', '.join(lacking)}{beside}",
            f"all of {', '.join(CHECKS)}",
            "check the claims of that result first, or leave it out and say so",
        )
    return name, FlatLabels(result, f"result {name!r}, ")


def _vector(values: Any, where: str) -> np.ndarray:
    if isinstance(values, np.ndarray):
        if values.ndim != 1:
            raise DataError(f"{where} has shape {values.shape}", "one dimension: a label per claim", "ravel it")
        return values if values.dtype == bool else _booleans(values.tolist(), where)
    return _booleans(_sequence(values, where), where)


def _matrix(values: Any, rows: int, where: str) -> tuple[np.ndarray, int | None]:
    """Flat labels, and the number of chunks or None when an empty list does not tell it."""
    if hasattr(values, "to_numpy"):  # a DataFrame, claims by chunks
        values = values.to_numpy()
    if isinstance(values, np.ndarray) and values.ndim > 1:
        if values.ndim > 2 or values.shape[0] != rows:
            raise _misshapen(where, rows, f"has shape {values.shape}")
        width = values.shape[1]
        return values.ravel() if values.dtype == bool else _booleans(values.ravel().tolist(), where, width), width
    found = _sequence(values, where)
    if not len(found):
        return np.empty(0, bool), 0 if rows else None
    if not all(issubclass(kind, (list, tuple, np.ndarray)) for kind in set(map(type, found))):
        raise _misshapen(where, rows, "has one dimension")
    widths = set(map(len, found))
    if len(found) != rows or len(widths) > 1:
        raise _misshapen(where, rows, f"has {len(found)} rows of {' and '.join(map(str, sorted(widths)))} labels")
    width = widths.pop()
    flat: list[Any] = []
    for row in found:
        flat.extend(row)  # a third of the time of itertools.chain
    return _booleans(flat, where, width), width


def _sequence(values: Any, where: str) -> Sequence[Any]:
    if not isinstance(values, (list, tuple)):
        values = values.tolist() if hasattr(values, "tolist") else values
    if not isinstance(values, (list, tuple)):
        raise DataError(f"{where} is {values!r:.60}", "an array or a list of labels", "pass one label per claim")
    return values


def _misshapen(where: str, rows: int, got: str) -> DataError:
    return DataError(
        f"{where} {got}",
        f"shape ({rows}, n_chunks): one row for each of the {rows} claims, one column for each chunk",
        "transpose it if rows are chunks; check the claims again if labels are missing",
    )


def _booleans(values: Sequence[Any], where: str, width: int | None = None) -> np.ndarray:
    try:
        # Through bytes it takes half the time of np.fromiter, and labels come by the million.
        return np.frombuffer(bytes(map(_ENTAILED.__getitem__, values)), bool)
    except (KeyError, TypeError):
        place, label = next((i, value) for i, value in enumerate(values) if not _is_label(value))
        at = f"[{place}]" if width is None else f"[{place // width}, {place % width}]"
        raise DataError(
            f"{where}{at}: label {label!r:.60}",
            "Entailment, Neutral or Contradiction; or True or False",
            "check that claim again; do not pad missing labels with Neutral",
        ) from None


def _is_label(value: Any) -> bool:
    try:
        return value in _ENTAILED
    except TypeError:
        return False
