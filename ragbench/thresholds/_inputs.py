"""Checks of scores, grades and labels, shared by the threshold modules."""

from __future__ import annotations

from typing import Any

import numpy as np

from ragbench.errors import DataError


def as_points(ir_scores: Any, grades: Any) -> tuple[np.ndarray, np.ndarray]:
    """Check scores and grades of the same answers."""
    scores, marks = as_scores(ir_scores), as_grades(grades)
    same_size(scores, marks, "grades")
    return scores, marks


def same_size(scores: np.ndarray, other: np.ndarray, name: str) -> None:
    """DataError unless there is one of the other per score."""
    if other.shape != scores.shape:
        raise DataError(f"{scores.size} scores and {other.size} {name}", "one of each per answer, in the same order")


def as_scores(scores: Any) -> np.ndarray:
    """Finite scores, one dimension, at least one."""
    try:
        values = np.asarray(scores, float)
    except (TypeError, ValueError):
        raise DataError("scores that are not numbers", "finite numbers") from None
    if values.ndim != 1 or not values.size:
        raise DataError(f"scores of shape {values.shape}", "one dimension, at least one score")
    wrong = np.flatnonzero(~np.isfinite(values))
    if wrong.size:
        raise DataError(
            f"{wrong.size} of {values.size} scores are NaN or infinite (first at position {wrong[0]})",
            "finite scores",
            "leave those answers out, and report how many they are",
        )
    return values


def as_grades(grades: Any) -> np.ndarray:
    """Whole numbers 1 to 5, one dimension."""
    try:
        values = np.asarray(grades, float)
    except (TypeError, ValueError):
        raise DataError("grades that are not numbers", "whole numbers 1 to 5") from None
    wrong = np.flatnonzero(~((values >= 1) & (values <= 5) & (np.floor(values) == values)))
    if values.ndim != 1 or wrong.size:
        first = f"{values.ravel()[wrong[0]]} at position {wrong[0]}" if wrong.size else f"shape {values.shape}"
        raise DataError(
            f"{wrong.size} grades outside 1-5 (first: {first})",
            "whole numbers 1 to 5, one dimension",
            "leave unscored answers out, and report how many they are",
        )
    return values.astype(np.int64)
