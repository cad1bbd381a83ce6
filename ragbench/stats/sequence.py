"""Intervals that hold however often one looks: is the difference between two systems decided yet?

A fixed-n test is right once, at a number of questions that was fixed before. Looked at after every block, it finds a
difference that is not there in far more than 5% of the runs. The interval here may be looked at after each question.

Follows Waudby-Smith and Ramdas (2024), "Estimating means of bounded random variables by betting", JRSS B 86, section 4,
with their diversified Kelly bets: a gambler who starts with 1 bets that the mean is above m. If it is not, the chance
that he ever holds 1 / a is at most a (Ville). So every m at which he becomes that rich is left out of the interval.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ragbench.errors import ConfigError, DataError
from ragbench.stats.inputs import as_floats, as_tail, group_index
from ragbench.stats.intervals import Interval

# Shares of his money that the gambler puts on each question; he splits what he has over all of them at the start.
STAKES = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9)
_STEPS = 50  # halvings of [-1, 1] by which a bound is found


def betting_capital(differences: Any, mean: float | np.ndarray = 0.0, *, last: bool = False) -> np.ndarray:
    """Return what a gambler holds, as a logarithm, after each of some differences, if he bets that they are above mean.

    ``differences``: in [-1, 1], shape (..., units), each unit independent of the others. ``mean``: in (-1, 1); if the
    true mean is not above it, the chance of ever holding 1 / a is at most a. ``last``: only what he holds at the end,
    shape (...), which is quicker.

    >>> betting_capital([1.0, 1.0]).round(3).tolist()
    [0.302, 0.653]
    """
    gain = (np.asarray(differences, dtype=float) - mean) / (1 + mean)  # at worst -1: all that was put on it is lost
    add = np.sum if last else np.cumsum
    held = [add(np.log1p(stake * gain), axis=-1) for stake in STAKES]
    return np.logaddexp.reduce(held, axis=0) - np.log(len(STAKES))


def anytime_interval(differences: Any, *, clusters: Any = None, level: float = 0.95) -> Interval:
    """Interval of a mean difference that holds at every look, for questions asked in random order.

    Parameters
    ----------
    differences : a's score minus b's, in [-1, 1], one per question asked so far, shape (n,); NaN is left out, counted.
    clusters : labels, shape (n,): questions that share one (a document) count once, by their mean, since they stand or
        fall together. Clusters are in random order and whole when one looks. None: each question is on its own.

    Returned is the Interval of the mean over clusters. It holds its level for any number of clusters, and says little
    with few: below nine it cannot exclude 0 at all. Treating questions of one cluster as independent does not hold the
    level, so it is not offered (notebook 98). DataError for a difference outside [-1, 1].

    >>> print(anytime_interval([1, 1, 0, 1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1]))
    0.867 [0.243, 0.995] (n = 15)
    """
    values, tail = as_floats(differences, "differences"), as_tail(level)
    present = ~np.isnan(values)
    if (np.abs(values[present]) > 1).any():
        got = f"a difference of {values[present][np.abs(values[present]).argmax()]:g}"
        raise DataError(got, "differences from -1 to 1", "divide scores by the length of their range")
    index, n_units = group_index(clusters, values.size, present)
    n, missing = int(present.sum()), int((~present).sum())
    if not n:
        return Interval(float("nan"), -1.0, 1.0, 0, missing, level)
    units = np.bincount(index, values[present], n_units) / np.bincount(index, minlength=n_units)
    low, high = _lower_bound(units, tail), -_lower_bound(-units, tail)
    return Interval(float(units.mean()), low, high, n, missing, level)


def _lower_bound(units: np.ndarray, tail: float) -> float:
    """Return the largest mean at which the gambler is rich by now: his capital falls as the mean rises."""
    low, high = -1.0, 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        rich = betting_capital(units, middle, last=True) >= -np.log(tail)
        low, high = (middle, high) if rich else (low, middle)
    return low


def units_until_decided(
    difference: float, disagreement: float = 0.5, *, level: float = 0.95, most: int = 1000, runs: int = 400
) -> float:
    """Say after how many independent questions (or clusters) an interval is expected to exclude 0; ``most`` if later.

    Simulated, seed 0: a question is won by a, or by b, or neither: the systems disagree on a share ``disagreement`` of
    the questions (ConfigError if it is smaller than the difference), and their mean difference is ``difference``.
    """
    if abs(difference) > disagreement or disagreement > 1:
        got = f"a difference of {difference} with a disagreement of {disagreement}"
        raise ConfigError(got, "at most as large, to 1")
    shares = [(disagreement - difference) / 2, 1 - disagreement, (disagreement + difference) / 2]
    drawn = np.random.default_rng(0).choice([-1.0, 0.0, 1.0], (runs, most), p=shares)
    rich = -np.log(as_tail(level))
    decided = (betting_capital(drawn) >= rich) | (betting_capital(-drawn) >= rich)
    return float(np.where(decided.any(axis=1), decided.argmax(axis=1) + 1, most).mean())
