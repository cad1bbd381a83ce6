"""From the IR score to the grade of the answer: the thesis's thresholds h and k (section 3.3).

The printed likelihood (Eq 3.1-3.5) carries a minus sign, so the published run minimised it, with a
stochastic optimiser. It depends on the threshold only through the number of agreements, a step
function that changes at the observed scores: one pass over the sorted scores gives the best value
and the whole plateau on which it holds. There is no interval of h or k: they maximise a count, and
the bootstrap is not valid for such an estimator (Abrevaya & Huang 2005, Econometrica 73). What has
an interval is the gain over always saying never (notebook 14).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ragbench.errors import DataError, check_known
from ragbench.stats.inputs import as_floats, same_length

_Side = Literal["above", "below"]


@dataclass(frozen=True, slots=True)
class Threshold:
    """A threshold that agrees best with the labels."""

    value: float  # the middle of the plateau
    low: float  # the plateau: the interval of thresholds that do equally well
    high: float
    agreement: float  # share of points on which threshold and label agree, in [0, 1]

    def __float__(self) -> float:
        return self.value


def best_threshold(scores: Any, positive: Any, side: _Side = "above") -> Threshold:
    """Threshold that agrees best with a yes/no label, by an exact sweep.

    Parameters
    ----------
    scores : finite numbers, shape (n,).
    positive : booleans, shape (n,).
    side : "above": positive is expected where score > threshold, and every threshold in [low, high)
        of the plateau does equally well; "below": where score < threshold, and (low, high].

    Sought in [min(0, smallest score), max(1, largest score)].

    Source: thesis, section 3.3, Eq 3.1-3.5 (the maximum of the likelihood). Paper values: h =
    0.105, k = 0.670.

    >>> best_threshold([0.1, 0.2, 0.6, 0.9], [False, False, True, True])
    Threshold(value=0.4, low=0.2, high=0.6, agreement=1.0)
    """
    check_known("side", [side], ("above", "below"))
    values = _scores(scores)
    labels = np.asarray(positive)
    same_length(scores=values, labels=labels)
    if not np.isin(labels, (0, 1)).all():
        raise DataError(
            f"labels of type {labels.dtype}", "booleans, or 0 and 1", "pass e.g. grades == 5"
        )
    labels = labels.astype(bool)
    if labels.all() or not labels.any():
        kind = "positive" if labels.any() else "negative"
        raise DataError(
            f"{labels.size} points, all {kind}",
            "both classes",
            "a threshold needs points on both sides: add data",
        )
    return _best(values, labels, side)


def fit_thresholds(ir_scores: Any, grades: Any) -> tuple[Threshold, Threshold]:
    """The thesis's h and k from IR scores and grades: ``h, k = fit_thresholds(scores, grades)``.

    h agrees best in (score < h) == (grade is 1), k in (score > k) == (grade is 5), each on its own.

    Source: thesis, section 3.3, Eq 3.1-3.5. Paper values: h = 0.105, k = 0.670, from 37,020 points
    (N = 1000).

    >>> h, k = rb.fit_thresholds([0.1, 0.2, 0.6, 0.9], [1, 1, 5, 5])
    >>> h.value, k.value
    (0.4, 0.4)
    """
    scores = as_floats(ir_scores, "scores")
    marks = as_floats(grades, "grades")
    same_length(scores=scores, grades=marks)
    wrong = np.flatnonzero(~np.isin(marks, range(1, 6)))
    if wrong.size:
        raise DataError(
            f"{wrong.size} grades outside 1-5 (first: {marks[wrong[0]]} at position {wrong[0]})",
            "whole numbers 1 to 5",
            "leave unscored answers out, and count them",
        )
    return best_threshold(scores, marks == 1, "below"), best_threshold(scores, marks == 5)


def _best(scores: np.ndarray, positive: np.ndarray, side: _Side) -> Threshold:
    """The widest plateau: a run of neighbouring stretches with the most agreements."""
    left, right, agreements = _sweep(scores, positive, side)
    best = np.flatnonzero(agreements == agreements.max())
    starts_run = np.diff(best, prepend=-2) > 1
    ends_run = np.diff(best, append=agreements.size + 1) > 1
    lows = left[best[starts_run]]
    highs = right[best[ends_run]]
    widest = np.argmax(highs - lows)
    low = float(lows[widest])
    high = float(highs[widest])
    agreement = float(agreements.max() / positive.size)
    return Threshold(low + (high - low) / 2, low, high, agreement)


def _sweep(
    scores: np.ndarray, positive: np.ndarray, side: _Side
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Every stretch of thresholds between two distinct scores: its ends, and the agreements there.

    Stretch c has c distinct scores at or under it; -1 agreements where no threshold fits.
    """
    distinct, place = np.unique(scores, return_inverse=True)
    left = np.append(min(0.0, distinct[0]), distinct)
    right = np.append(distinct, max(1.0, distinct[-1]))
    # A point agrees either before the threshold has passed its score, or from then on.
    agrees_after = positive == (side == "below")
    agree_at_first = (~agrees_after).sum()
    change = np.where(agrees_after, 1, -1)
    change_at_score = np.bincount(place, change)
    agreements = agree_at_first + np.append(0, np.cumsum(change_at_score))
    # To call everything positive the threshold would have to lie beyond the last score.
    end = 0 if side == "above" else -1
    if left[end] == right[end]:
        agreements[end] = -1
    return left, right, agreements


def _scores(scores: Any) -> np.ndarray:
    """Finite scores, at least one."""
    values = as_floats(scores, "scores")
    missing = np.isnan(values).sum()
    if missing or not values.size:
        raise DataError(
            f"{missing} of {values.size} scores are NaN",
            "finite scores",
            "leave those answers out, and count them",
        )
    return values
