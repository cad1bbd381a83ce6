"""Are predicted probabilities right: Brier score and reliability curve."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from ragbench.errors import ConfigError, DataError
from ragbench.stats.intervals import binomial_ci


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

    The bins are those of scikit-learn's calibration_curve (strategy "quantile"), which does not return the counts that
    the intervals need.
    """
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
