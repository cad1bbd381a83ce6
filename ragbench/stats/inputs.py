"""Checks that metrics and statistics share: texts, numbers, points that belong together."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ragbench.errors import DataError
from ragbench.records import as_id

Seed = int | np.random.Generator
TAIL = (1 - 0.95) / 2  # below an interval, and above it


def several(names: str | Sequence[str]) -> list[str]:
    """Return one name, or several, as a list."""
    return [names] if isinstance(names, str) else list(names)


def as_list(values: Any, name: str, kind: type = str) -> list[Any]:
    """Return a list of texts (or of another kind); DataError for a single text, no list, or
    anything else in it.
    """
    got = ""
    if isinstance(values, str):
        got = "one text"
    elif not isinstance(values, Iterable):
        got = type(values).__name__
    if got:
        raise DataError(f"{name} is {got}", "a list", "put a single one into a list: [text]")
    items = list(values)
    for place, value in enumerate(items):
        if not isinstance(value, kind):
            raise DataError(
                f"{name}[{place}] is {value!r:.60}", kind.__name__, "leave out what is missing"
            )
    return items


def as_floats(values: Any, name: str = "values") -> np.ndarray:
    """A 1-d float array; None and "" become NaN, in pandas NA too. DataError for text, infinities
    or another shape.
    """
    if pd.api.types.is_object_dtype(values):  # of a list it says no
        cells = np.where(pd.isna(values), np.nan, values)
        values = np.where(cells == "", np.nan, cells)
    try:
        array = np.asarray(values, dtype=float)
    except (TypeError, ValueError):
        raise DataError(
            f"{name} that are not numbers", "numbers, with NaN or None for missing"
        ) from None
    if array.ndim != 1:
        raise DataError(
            f"{name} of shape {array.shape}", "one dimension", "pass one number per question"
        )
    if np.isinf(array).any():
        place = np.flatnonzero(np.isinf(array))[0]
        raise DataError(f"infinite {name} (first at position {place})", "finite numbers or NaN")
    return array


def same_length(**arrays: Any) -> None:
    """DataError unless all arguments have the same length."""
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise DataError(
            f"lengths that differ: {listed}",
            "one value per question in each, in the same order",
            "use NaN where a value is missing",
        )


def as_paired(**sides: Any) -> list[np.ndarray]:
    """Float arrays of one length, else DataError with the argument's name."""
    arrays = {name: as_floats(values, name) for name, values in sides.items()}
    same_length(**arrays)
    return list(arrays.values())


def group_index(groups: Any, n: int, present: np.ndarray | None = None) -> np.ndarray:
    """Number the groups from 0 on, by first appearance: the group of each of n points, or of those
    present.

    ``groups`` None: each point is its own group. So is a point
    without a label (None, NaN), with a warning.
    """
    if present is None:
        present = np.ones(n, dtype=bool)
    if groups is None:
        return np.arange(present.sum())
    labels = pd.Series(list(groups), dtype=object)
    if len(labels) != n:
        raise DataError(f"{len(labels)} group labels for {n} points", "one group label per point")
    if labels.map(type).nunique() > 1:  # 1 and "1" are one group, as ids are
        labels = labels.map(as_id, na_action="ignore")
    index, names = pd.factorize(labels[present])
    lacking = np.flatnonzero(index < 0)
    if lacking.size:
        warnings.warn(
            f"{lacking.size} of {index.size} values have no group: each counts as one of its own",
            stacklevel=3,
        )
        index[lacking] = len(names) + np.arange(lacking.size)
    return index
