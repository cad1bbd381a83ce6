"""Probabilities instead of three boxes: how likely each grade group is at a given IR score (beyond the thesis).

The boxes say one group with certainty. A calibrated model says how often each group occurs at that score; the Brier
score tells which of them is nearer to the truth, on questions neither has seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ragbench.errors import ConfigError, DataError, unknown
from ragbench.stats import binomial_ci
from ragbench.stats._inputs import Seed, group_index
from ragbench.thresholds._inputs import as_points
from ragbench.thresholds.sweep import Sweep, grade_groups, predicted_groups

if TYPE_CHECKING:
    import pandas as pd

Method = Literal["isotonic", "logistic"]
_CLASSES = np.arange(3)


class GroupModel:
    """Probability of each grade group given the IR score.

    Parameters
    ----------
    method : "isotonic": P(grade > 1) and P(grade = 5) as non-falling step functions of the score, and the middle group
        what lies between them (the two never cross, as grade 5 implies grade > 1); "logistic": multinomial logistic
        regression on the score.
    """

    def __init__(self, method: Method = "isotonic") -> None:
        if method not in ("isotonic", "logistic"):
            raise unknown("method", method, ("isotonic", "logistic"))
        self.method = method

    def fit(self, ir_scores: Any, grades: Any) -> GroupModel:
        """Fit on scores and grades, shape (n,); returns itself."""
        scores, marks = as_points(ir_scores, grades)
        groups = grade_groups(marks)
        self._logistic: Any = None
        if self.method == "isotonic":
            from sklearn.isotonic import IsotonicRegression

            self._steps = [
                IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip").fit(scores, groups >= g) for g in (1, 2)
            ]
        elif np.unique(groups).size == 1:
            self._only = (groups[0] == _CLASSES).astype(float)
        else:
            from sklearn.linear_model import LogisticRegression

            # Next to no shrinkage: a few parameters, thousands of points, and shrinking would spoil the calibration.
            self._logistic = LogisticRegression(C=1e6, max_iter=1000).fit(scores[:, None], groups)
        return self

    def predict(self, ir_scores: Any) -> np.ndarray:
        """Probabilities of the groups in the order of GROUPS: float array, shape (n, 3), rows adding up to 1."""
        scores = np.asarray(ir_scores, float)
        if self.method == "isotonic":
            some, full = (step.predict(scores) for step in self._steps)
            return np.stack([1 - some, some - full, full], axis=1).clip(0, 1)
        if self._logistic is None:
            return np.tile(self._only, (scores.size, 1))
        result = np.zeros((scores.size, 3))
        result[:, self._logistic.classes_] = self._logistic.predict_proba(scores[:, None])
        return result


@dataclass(frozen=True, slots=True, eq=False)
class Calibration:
    """Out-of-fold predictions for every point, by four predictors fitted on the other folds.

    Attributes
    ----------
    groups : int array, shape (n,): the true group, 0, 1 or 2.
    probabilities : dict of float arrays, shape (n, 3): "calibrated" (the model); "boxes" (h and k, certain of their
        group); "boxes with shares" (the shares of the groups within each box); "base rate" (the shares overall).
    brier : dict of floats in [0, 2]: mean multi-class Brier score of each; smaller is better.
    """

    groups: np.ndarray
    probabilities: dict[str, np.ndarray]
    brier: dict[str, float]


def calibrate(
    ir_scores: Any,
    grades: Any,
    groups: Any = None,
    *,
    method: Method = "isotonic",
    folds: int = 5,
    seed: Seed = 0,
) -> Calibration:
    """Cross-validated probabilities of the grade groups, beside the three boxes.

    Parameters
    ----------
    ir_scores, grades : as in :func:`ragbench.thresholds.fit_thresholds`, shape (n,).
    groups : question ids, shape (n,): the points of one question fall into one fold.
    method : see :class:`GroupModel`.
    folds : number of folds, between 2 and the number of questions.
    seed : of the assignment of questions to folds.

    Returns
    -------
    Calibration.

    Raises
    ------
    DataError as :func:`ragbench.thresholds.fit_thresholds`, also when the training part of a fold lacks grade 1 or 5.
    """
    scores, marks = as_points(ir_scores, grades)
    index, n_groups = group_index(groups, scores.size)
    if not 2 <= folds <= n_groups:
        raise ConfigError(f"{folds} folds for {n_groups} questions", "2 or more, at most one per question")
    fold = (np.random.default_rng(seed).permutation(n_groups) % folds)[index]
    truth = grade_groups(marks)
    names = ("calibrated", "boxes", "boxes with shares", "base rate")
    probabilities = {name: np.empty((scores.size, 3)) for name in names}
    for held in range(folds):
        train, test = fold != held, fold == held
        sweep = Sweep(scores[train])
        h, k = sweep.best(marks[train] == 1, "below").value, sweep.best(marks[train] == 5, "above").value
        if np.isnan(h + k):
            raise DataError(
                "a training fold without grade 1 or 5", "both in every fold", "use fewer folds or more data"
            )
        boxes = predicted_groups(scores, h, k)
        base = np.bincount(truth[train], minlength=3) / train.sum()
        shares = np.array([_shares(truth[train][boxes[train] == box], base) for box in _CLASSES])
        probabilities["calibrated"][test] = GroupModel(method).fit(scores[train], marks[train]).predict(scores[test])
        probabilities["boxes"][test] = boxes[test][:, None] == _CLASSES
        probabilities["boxes with shares"][test] = shares[boxes[test]]
        probabilities["base rate"][test] = base
    return Calibration(truth, probabilities, {name: brier_score(p, truth) for name, p in probabilities.items()})


def _shares(labels: np.ndarray, empty: np.ndarray) -> np.ndarray:
    return np.bincount(labels, minlength=3) / labels.size if labels.size else empty


def brier_terms(probabilities: Any, groups: Any) -> np.ndarray:
    """Squared error of each prediction: sum over classes of (p - 1[class is true])^2.

    Parameters
    ----------
    probabilities : shape (n, classes), rows adding up to 1.
    groups : the true class of each point, ints from 0, shape (n,).

    Returns
    -------
    float array, shape (n,), in [0, 2].

    Source: Brier (1950), the multi-class form. Two predictors are compared by
    :func:`ragbench.stats.paired_bootstrap_difference` of their terms, grouped by question.
    """
    p, truth = np.asarray(probabilities, float), np.asarray(groups)
    if p.ndim != 2 or truth.shape != p.shape[:1]:
        raise DataError(f"probabilities of shape {p.shape} for {truth.size} points", "one row per point")
    if not np.allclose(p.sum(1), 1):
        raise DataError("probabilities that do not add up to 1 in each row", "one probability per class")
    if not np.isin(truth, np.arange(p.shape[1])).all():
        raise DataError(f"classes outside 0-{p.shape[1] - 1}", "the column of the true class")
    return ((p - (truth[:, None] == np.arange(p.shape[1]))) ** 2).sum(1)


def brier_score(probabilities: Any, groups: Any) -> float:
    """Mean of :func:`brier_terms`: 0 for certain and right, 2 for certain and wrong; NaN without points."""
    terms = brier_terms(probabilities, groups)
    return float(terms.mean()) if terms.size else float("nan")


def reliability_curve(probability: Any, outcome: Any, bins: int = 10, level: float = 0.95) -> pd.DataFrame:
    """Predicted against observed frequency of one event, in bins of equal size.

    Parameters
    ----------
    probability : predicted probability of the event, shape (n,), in [0, 1].
    outcome : whether it happened, booleans, shape (n,).
    bins : number of bins of about equal numbers of points; equal predictions stay together, so there may be fewer.
    level : of the exact binomial interval of the observed share.

    Returns
    -------
    DataFrame, one row per bin in ascending order: ``predicted`` (mean), ``observed`` (share), ``low``, ``high``, ``n``.
    On a calibrated predictor observed = predicted up to chance.
    """
    import pandas as pd

    p, happened = np.asarray(probability, float), np.asarray(outcome)
    if p.ndim != 1 or p.shape != happened.shape or not p.size:
        raise DataError(f"{p.size} probabilities and {happened.size} outcomes", "one of each per point, at least one")
    if not ((p >= 0) & (p <= 1)).all():
        raise DataError("probabilities that are NaN or outside [0, 1]", "numbers in [0, 1]")
    if bins < 1:
        raise ConfigError(f"bins {bins!r}", "1 or more")
    edges = np.unique(np.quantile(p, np.linspace(0, 1, int(bins) + 1)[1:-1]))
    place = np.searchsorted(edges, p, side="left")
    rows = []
    for b in np.unique(place):
        inside = place == b
        share = binomial_ci(int(happened[inside].sum()), int(inside.sum()), level)
        rows.append((p[inside].mean(), share.estimate, share.low, share.high, share.n))
    return pd.DataFrame(rows, columns=["predicted", "observed", "low", "high", "n"])
