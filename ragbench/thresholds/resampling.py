"""How certain the thresholds are: bootstrap over questions, and fit on one half, test on the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ragbench.errors import ConfigError, DataError
from ragbench.stats import Interval
from ragbench.stats._inputs import Seed, as_level, as_resamples, group_counts, group_index, percentiles
from ragbench.thresholds._inputs import as_points
from ragbench.thresholds.sweep import Sweep, fit_thresholds, grade_groups, predicted_groups

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class ThresholdIntervals:
    """h and k with bootstrap intervals; ``n`` of each counts points."""

    h: Interval
    k: Interval


def bootstrap_thresholds(
    ir_scores: Any, grades: Any, groups: Any = None, *, resamples: int = 200, level: float = 0.95, seed: Seed = 0
) -> ThresholdIntervals:
    """Percentile bootstrap intervals of h and k over questions.

    Parameters
    ----------
    ir_scores, grades : as in :func:`ragbench.thresholds.fit_thresholds`, shape (n,).
    groups : question ids, shape (n,): the points of one question (its retrievers) are resampled together. None: every
        point is its own question.
    resamples, level, seed : of the bootstrap.

    Returns
    -------
    ThresholdIntervals. A resample without (or with only) grade 1 has no h, and likewise for k; it is left out.

    Raises
    ------
    DataError as :func:`ragbench.thresholds.fit_thresholds`, or when ``groups`` has another length.
    """
    scores, marks = as_points(ir_scores, grades)
    level, resamples = as_level(level), as_resamples(resamples)
    index, n_groups = group_index(groups, scores.size)
    fitted = fit_thresholds(scores, marks)
    # In ascending order of score once, so that no resample has to gather its weights from all over memory again.
    order = np.argsort(scores, kind="stable")
    scores, marks, index = scores[order], marks[order], index[order]
    sweep = Sweep(scores)
    draws = np.array(
        [
            (sweep.best(marks == 1, "below", weights).value, sweep.best(marks == 5, "above", weights).value)
            for counts in group_counts(n_groups, resamples, seed)
            for weights in counts[:, index]
        ]
    ).reshape(resamples, 2)
    h, k = (
        Interval(threshold.value, *percentiles(column, level), scores.size, 0, level)
        for threshold, column in zip((fitted.h, fitted.k), draws.T, strict=True)
    )
    return ThresholdIntervals(h, k)


def heldout_agreement(
    ir_scores: Any, grades: Any, groups: Any = None, *, repeats: int = 100, seed: Seed = 0
) -> pd.DataFrame:
    """Fit h and k on half of the questions, test them on the other half, again and again.

    Parameters
    ----------
    ir_scores, grades, groups : as in :func:`bootstrap_thresholds`; a question is in one half with all its points.
    repeats : number of random halvings.
    seed : an int, or a numpy Generator.

    Returns
    -------
    DataFrame, one row per halving: ``h``, ``k`` as fitted; for each of them ``*_train`` and ``*_test``, the agreement
    on the half it was fitted on and on the other; ``boxes_test``, the share of answers whose grade group ({1}, {2,3,4},
    {5}) the three boxes predict; ``*_majority``, what always giving the fitted half's commonest answer reaches on the
    other half. NaN where a half lacks a class.
    """
    import pandas as pd

    scores, marks = as_points(ir_scores, grades)
    index, n_groups = group_index(groups, scores.size)
    if n_groups < 2:
        raise DataError(f"{n_groups} question", "two or more, to halve them")
    if repeats != int(repeats) or repeats < 1:
        raise ConfigError(f"repeats {repeats!r}", "a whole number, 1 or more")
    rng = np.random.default_rng(seed)
    sweep, truth = Sweep(scores), grade_groups(marks)
    rows = []
    for _ in range(int(repeats)):
        half = np.zeros(n_groups, bool)
        half[rng.permutation(n_groups)[: n_groups // 2]] = True
        train, test = half[index], ~half[index]
        h = sweep.best(marks == 1, "below", train.astype(np.int64))
        k = sweep.best(marks == 5, "above", train.astype(np.int64))
        boxes = predicted_groups(scores, h.value, k.value)[test] == truth[test]
        rows.append(
            {
                "h": h.value,
                "k": k.value,
                "h_train": h.agreement,
                "h_test": _agreement(scores < h.value, marks == 1, test, h.value),
                "h_majority": _majority(marks == 1, train, test),
                "k_train": k.agreement,
                "k_test": _agreement(scores > k.value, marks == 5, test, k.value),
                "k_majority": _majority(marks == 5, train, test),
                "boxes_test": float(boxes.mean()) if np.isfinite(h.value + k.value) else float("nan"),
                "boxes_majority": _majority(truth, train, test),
            }
        )
    return pd.DataFrame(rows)


def _agreement(predicted: np.ndarray, actual: np.ndarray, test: np.ndarray, threshold: float) -> float:
    return float((predicted == actual)[test].mean()) if np.isfinite(threshold) else float("nan")


def _majority(labels: np.ndarray, train: np.ndarray, test: np.ndarray) -> float:
    values, counts = np.unique(labels[train], return_counts=True)
    return float((labels[test] == values[counts.argmax()]).mean())
