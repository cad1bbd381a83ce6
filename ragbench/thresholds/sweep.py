"""Thresholds by an exact sweep, and the likelihood they maximise (thesis §3.3, Eq 3.1-3.5).

The printed likelihood carries a minus sign, so the published run minimised it, with a stochastic optimiser. It depends
on the threshold only through the number of agreements, a step function that changes at the observed scores: one pass
over the sorted scores gives the best value and the whole plateau on which it holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ragbench.errors import ConfigError, DataError, unknown
from ragbench.thresholds._inputs import as_grades, as_points, as_scores, same_size

Side = Literal["above", "below"]

# Grade groups of §3.3, in the order of the IR score: grade 1; grades 2, 3, 4; grade 5.
GROUPS = ("no information", "wrong or incomplete", "fully right")


@dataclass(frozen=True, slots=True)
class Threshold:
    """A threshold that agrees best with the labels.

    Attributes
    ----------
    value : the middle of the plateau.
    low, high : the plateau, the interval of thresholds that do equally well.
    agreement : share of points on which threshold and label agree, in [0, 1].
    plateaus : number of separate intervals that reach this agreement; the widest is reported.
    """

    value: float
    low: float
    high: float
    agreement: float
    plateaus: int = 1

    def __float__(self) -> float:
        return self.value


@dataclass(frozen=True, slots=True)
class Thresholds:
    """h (below it: grade 1 expected) and k (above it: grade 5 expected)."""

    h: Threshold
    k: Threshold


@dataclass(frozen=True, slots=True)
class RegionShares:
    """Shares of scores below h, between h and k, and above k; they add up to 1 over ``n`` scores."""

    below: float
    between: float
    above: float
    n: int


class Sweep:
    """Scores sorted once; the best threshold for any labels of the points.

    ``side="above"`` predicts positive where score > threshold, ``"below"`` where score < threshold. Thresholds are
    sought in [min(0, smallest score), max(1, largest score)].
    """

    def __init__(self, scores: np.ndarray) -> None:
        self.order = np.argsort(scores, kind="stable")
        ascending = scores[self.order]
        self.last = np.flatnonzero(np.append(ascending[1:] != ascending[:-1], True))
        self.distinct = ascending[self.last]
        low, high = min(0.0, float(self.distinct[0])), max(1.0, float(self.distinct[-1]))
        # Cut c leaves c distinct scores at or under the threshold; it holds between left[c] and right[c].
        self.left, self.right = np.append(low, self.distinct), np.append(self.distinct, high)

    def agreements(self, positive: np.ndarray, side: Side) -> np.ndarray:
        """Number of agreements at every cut: shape (distinct scores + 1,); -1 where no threshold fits."""
        gain = np.where(positive, -1, 1) if side == "above" else np.where(positive, 1, -1)
        start = positive.sum() if side == "above" else (~positive).sum()
        steps = np.cumsum(gain[self.order])[self.last]
        result = np.append(start, start + steps)
        if side == "above" and self.left[0] == self.right[0]:
            result[0] = -1  # to call everything positive the threshold would have to lie under the lowest score
        if side == "below" and self.left[-1] == self.right[-1]:
            result[-1] = -1
        return result

    def best(self, positive: np.ndarray, side: Side) -> Threshold:
        """The widest run of best cuts; NaN for labels of one class."""
        if positive.all() or not positive.any():
            return Threshold(*(float("nan"),) * 4, plateaus=0)
        agreements = self.agreements(positive, side)
        top = np.flatnonzero(agreements == agreements.max())
        breaks = np.flatnonzero(np.diff(top) > 1)
        first, last = top[np.append(0, breaks + 1)], top[np.append(breaks, top.size - 1)]
        widest = int(np.argmax(self.right[last] - self.left[first]))
        low, high = float(self.left[first[widest]]), float(self.right[last[widest]])
        value = low + (high - low) / 2
        # Between neighbouring floats the middle rounds to one end; take the end that belongs to the plateau.
        if side == "above" and value >= high:
            value = low
        if side == "below" and value <= low:
            value = high
        return Threshold(value, low, high, float(agreements.max() / positive.size), first.size)


def best_threshold(scores: Any, positive: Any, side: Side = "above") -> Threshold:
    """Threshold that agrees best with a yes/no label, by an exact sweep.

    Parameters
    ----------
    scores : finite numbers, shape (n,).
    positive : booleans, shape (n,).
    side : "above": positive is expected where score > threshold; "below": where score < threshold.

    Returns
    -------
    Threshold with its plateau: for "above" every threshold in [low, high) does equally well, for "below" every one in
    (low, high]. Sought in [min(0, smallest score), max(1, largest score)].

    Raises
    ------
    DataError for empty input, lengths that differ, NaN scores, labels that are not boolean, or a single class.

    Source: thesis §3.3, Eq 3.1-3.5 (the maximum of the likelihood). Paper values: h = 0.105, k = 0.670.

    >>> best_threshold([0.1, 0.2, 0.6, 0.9], [False, False, True, True])
    Threshold(value=0.4, low=0.2, high=0.6, agreement=1.0, plateaus=1)
    """
    values, labels = _labelled(scores, positive, side)
    if labels.all() or not labels.any():
        kind = "positive" if labels.any() else "negative"
        raise DataError(
            f"{labels.size} points, all {kind}", "both classes", "a threshold needs points on both sides: add data"
        )
    return Sweep(values).best(labels, side)


def agreement_curve(scores: Any, positive: Any, side: Side = "above") -> tuple[np.ndarray, np.ndarray]:
    """Agreement as a function of the threshold, for pictures.

    Parameters
    ----------
    scores, positive, side : as in :func:`best_threshold`.

    Returns
    -------
    thresholds : float array, shape (m,), ascending: the middle of each stretch between neighbouring distinct scores.
    agreement : float array, shape (m,), share of agreements on that stretch.
    """
    values, labels = _labelled(scores, positive, side)
    sweep = Sweep(values)
    agreements = sweep.agreements(labels, side)
    there = agreements >= 0
    return ((sweep.left + sweep.right) / 2)[there], agreements[there] / labels.size


def fit_thresholds(ir_scores: Any, grades: Any) -> Thresholds:
    """The thesis's h and k from IR scores and grades.

    Parameters
    ----------
    ir_scores : IR scores, shape (n,), e.g. of all retrievers at N = 1000 (37,020 points as published).
    grades : grades 1 to 5 of the answers, shape (n,).

    Returns
    -------
    Thresholds: h from (score < h) == (grade is 1), k from (score > k) == (grade is 5), each on its own.

    Raises
    ------
    DataError for empty input, lengths that differ, NaN scores, grades outside 1-5, or no (or only) grades 1 or 5.

    Source: thesis §3.3, Eq 3.1-3.5. Paper values: h = 0.105, k = 0.670.
    """
    scores, marks = as_points(ir_scores, grades)
    for grade in (1, 5):
        if (marks == grade).all() or not (marks == grade).any():
            raise DataError(
                f"{'only' if (marks == grade).all() else 'no'} grade {grade} among {marks.size} points",
                "answers with and without it",
                "grade more answers, of weak and of strong retrieval",
            )
    sweep = Sweep(scores)
    return Thresholds(sweep.best(marks == 1, "below"), sweep.best(marks == 5, "above"))


def likelihood_k(k: Any, ir_scores: Any, grades: Any) -> Any:
    """L(k) of Eq 3.1 with p_ir = 1 where score > k (Eq 3.2) and p_llm = 1 where grade = 5 (Eq 3.3).

    Parameters
    ----------
    k : a threshold, or an array of them.
    ir_scores, grades : as in :func:`fit_thresholds`.

    Returns
    -------
    float, or float array of the shape of k: minus the sum of logarithms, so the best k has the *smallest* value.
    """
    scores, marks = as_points(ir_scores, grades)
    return _likelihood(k, lambda threshold: scores > threshold, marks == 5)


def likelihood_h(h: Any, ir_scores: Any, grades: Any) -> Any:
    """L(h) of Eq 3.1 with p_ir = 1 where score < h (Eq 3.4) and p_llm = 1 where grade = 1 (Eq 3.5).

    Parameters, return value: as in :func:`likelihood_k`.
    """
    scores, marks = as_points(ir_scores, grades)
    return _likelihood(h, lambda threshold: scores < threshold, marks == 1)


def _likelihood(thresholds: Any, predict: Any, p_llm: np.ndarray) -> Any:
    def one(threshold: float) -> float:
        p_ir = predict(threshold)
        return float(-np.log(p_ir * p_llm + (1 - p_ir) * (1 - p_llm) + 1e-10).sum())

    values = np.asarray(thresholds, float)
    return one(float(values)) if values.ndim == 0 else np.array([one(t) for t in values.ravel()]).reshape(values.shape)


def region_shares(scores: Any, h: Any, k: Any) -> RegionShares:
    """Shares of scores below h, between, and above k: the three numbers in each panel of Figure 3.2.

    Parameters
    ----------
    scores : IR scores of one retriever, shape (n,).
    h, k : numbers or :class:`Threshold`; a score equal to h or k lies between.

    Returns
    -------
    RegionShares.

    Raises
    ------
    DataError for empty input or NaN scores; ConfigError when h > k or either is NaN.

    Source: thesis §3.3, Figure 3.2. Paper values (BM25): below 5.61%, between 56.51%, above 37.88%.
    """
    values, low, high = as_scores(scores), float(h), float(k)
    if not low <= high:
        raise ConfigError(f"h = {low}, k = {high}", "h <= k", "fit both on the same points, with enough of each grade")
    below, above = float((values < low).mean()), float((values > high).mean())
    return RegionShares(below, float(((values >= low) & (values <= high)).mean()), above, values.size)


def grade_groups(grades: Any) -> np.ndarray:
    """Grades 1-5 as groups: int array of 0 (grade 1), 1 (grades 2, 3, 4), 2 (grade 5), in the order of GROUPS."""
    return np.array([-1, 0, 1, 1, 1, 2])[as_grades(grades)]


def predicted_groups(scores: Any, h: Any, k: Any) -> np.ndarray:
    """The group that the three boxes predict from a score: 2 above k, else 0 below h, else 1 (thesis §3.3)."""
    values = as_scores(scores)
    return np.where(values > float(k), 2, np.where(values < float(h), 0, 1))


def _labelled(scores: Any, positive: Any, side: str) -> tuple[np.ndarray, np.ndarray]:
    if side not in ("above", "below"):
        raise unknown("side", side, ("above", "below"))
    values, labels = as_scores(scores), np.asarray(positive)
    same_size(values, labels, "labels")
    if labels.dtype != bool and not np.isin(labels, (0, 1)).all():
        raise DataError(f"labels of type {labels.dtype}", "booleans, or 0 and 1", "pass e.g. grades == 5")
    return values, labels.astype(bool)
