"""Checks and resampling shared by metrics and statistics: what is a text, a number, which points
belong together.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pandas as pd

from ragbench.errors import ConfigError, DataError

Seed = int | np.random.Generator

# Random draws held at once; blocks of resamples keep memory at a few tens of MB whatever the number
# of points.
_DRAWS = 2_000_000
TAIL = (1 - 0.95) / 2  # below an interval, and above it


def as_list(values: Any, name: str, kind: type = str) -> list[Any]:
    """Return a list of texts (or of another kind); DataError for a single text, no list, or a
    stranger in it.
    """
    if isinstance(values, str) or not isinstance(values, Iterable):
        got = "one text" if isinstance(values, str) else type(values).__name__
        raise DataError(f"{name} is {got}", "a list", "put a single one into a list: [text]")
    items = list(values)
    for place, value in enumerate(items):
        if not isinstance(value, kind):
            raise DataError(
                f"{name}[{place}] is {value!r:.60}", kind.__name__, "leave out what is missing"
            )
    return items


def as_floats(values: Any, name: str = "values") -> np.ndarray:
    """A 1-d float array; None becomes NaN. DataError for text, infinities or another shape."""
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


def as_complete(**sides: Any) -> tuple[list[np.ndarray], np.ndarray]:
    """Return what of the sides stands where none is missing, and where that is."""
    arrays = as_paired(**sides)
    present = ~np.isnan(sum(arrays))
    return [array[present] for array in arrays], present


def group_index(
    groups: Any, n: int, present: np.ndarray | None = None, *, sort: bool = False
) -> tuple[np.ndarray, int]:
    """Number the groups 0..G-1 of all n points, or of those present; None: each is its own.

    By first appearance, or by name. A point without a label (None, NaN) is a group of its own, with
    a warning.
    """
    if present is None:
        present = np.ones(n, dtype=bool)
    if groups is None:
        n = int(present.sum())
        return np.arange(n), n
    labels = pd.Series(list(groups), dtype=object)
    if len(labels) != n:
        raise DataError(f"{len(labels)} group labels for {n} points", "one group label per point")
    index, names = pd.factorize(labels[present], sort=sort)
    lacking = np.flatnonzero(index < 0)
    if lacking.size:
        values = f"{lacking.size} of {index.size} values"
        warnings.warn(f"{values} have no group: each counts as one of its own", stacklevel=3)
        index[lacking] = len(names) + np.arange(lacking.size)
    return index, len(names) + lacking.size


def group_counts(n_groups: int, resamples: int, seed: Seed) -> Iterator[np.ndarray]:
    """Bootstrap resamples as counts: blocks of int arrays, shape (resamples in the block,
    n_groups).

    Nothing for fewer than two groups.
    """
    if resamples != int(resamples) or resamples < 0:
        raise ConfigError(f"resamples {resamples!r}", "a whole number, 0 or more")
    if n_groups < 2:
        return
    rng = np.random.default_rng(seed)
    block = max(1, _DRAWS // n_groups)
    for start in range(0, int(resamples), block):
        rows = min(block, int(resamples) - start)
        drawn = rng.integers(0, n_groups, (rows, n_groups))
        place = drawn + n_groups * np.arange(rows)[:, None]
        yield np.bincount(place.ravel(), minlength=rows * n_groups).reshape(rows, n_groups)


def resampled(index: np.ndarray, n_groups: int, resamples: int, seed: Seed) -> Iterator[np.ndarray]:
    """Bootstrap resamples as the places of their points; ``index`` is the group of each point."""
    for counts in group_counts(n_groups, resamples, seed):
        for times in counts:
            yield np.repeat(np.arange(index.size), times[index])


def percentiles(samples: np.ndarray) -> tuple[float, float]:
    """95% percentile bounds of bootstrap samples; NaN ones are left out.

    NaN when none is left, and when all are equal: the sample then does not tell how the statistic
    would spread.
    """
    defined = samples[~np.isnan(samples)]
    if not defined.size or np.ptp(defined) < 1e-12:
        return float("nan"), float("nan")
    low, high = np.quantile(defined, [TAIL, 1 - TAIL]).tolist()
    return low, high
