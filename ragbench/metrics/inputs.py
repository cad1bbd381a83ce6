"""The readers of what metrics take: one for lists of texts, one for labels."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ragbench.errors import DataError

_ENTAILED = {"Entailment": True, "Neutral": False, "Contradiction": False, 1: True, 0: False}  # 1 == True == 1.0


def as_list(values: Any, name: str, kind: type = str) -> list[Any]:
    """Return a list of texts (or of another kind); DataError for a single text, no list, or a stranger in it."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        got = "one text" if isinstance(values, str) else type(values).__name__
        raise DataError(f"{name} is {got}", "a list", "put a single one into a list: [text]")
    found = list(values)
    for place, value in enumerate(found):
        if not isinstance(value, kind):
            raise DataError(f"{name}[{place}] is {value!r:.60}", kind.__name__, "leave out what is missing")
    return found


def as_matrix(labels: Any, name: str, n_claims: int | None = None) -> np.ndarray:
    """Return labels of claims (booleans, 0 or 1, or Entailment, Neutral, Contradiction) as booleans.

    Shape (n,), a label a claim; with ``n_claims`` (n_claims, n_chunks), a row a claim and a column a chunk.
    """
    found = labels if isinstance(labels, np.ndarray) and labels.dtype == bool else np.asarray(labels, dtype=object)
    if n_claims is None and found.ndim != 1:
        got = f"{name} is {labels!r:.60}" if found.ndim == 0 else f"{name} has shape {found.shape}"
        raise DataError(got, "a list: one dimension, one label per claim", "ravel an array of two")
    if n_claims is not None:
        found = found.reshape(n_claims, 0) if found.shape == (0,) else found
        if found.ndim != 2 or len(found) != n_claims:
            raise DataError(
                f"{name} has shape {found.shape}" + (", or rows of unequal length" if found.ndim == 1 else ""),
                f"shape ({n_claims}, n_chunks): one row for each of the {n_claims} claims, one column for each chunk",
                "transpose it if rows are chunks; check the claims again if labels are missing",
            )
    if found.dtype == bool:
        return found
    try:
        return np.array([_ENTAILED[label] for label in found.flat], bool).reshape(found.shape)
    except (KeyError, TypeError):
        place, label = next((p, x) for p, x in np.ndenumerate(found) if isinstance(x, list) or x not in _ENTAILED)
        raise DataError(
            f"{name}{list(place)}: label {label!r:.60}",
            "Entailment, Neutral or Contradiction; or True or False",
            "check that claim again; do not pad missing labels with Neutral",
        ) from None
