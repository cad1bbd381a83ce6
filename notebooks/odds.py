"""Conditional logistic regression within questions (notebook 13): whether the answer with the higher
score is the right one, of several answers to one question.

Source: Breslow and Day 1980, section 7.2; a stratum is a question.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import brentq
from scipy.special import stdtrit

from ragbench import stats


def other_sums(score: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return d of every set of answers that could have been the right ones: the sum of their
    scores, less that of those that were right.
    """
    sets = itertools.combinations(score, int(right.sum()))
    return np.array([sum(one) for one in sets]) - score @ right


def slope(scores: np.ndarray, rights: np.ndarray) -> float:
    """Return beta of the greatest likelihood, where its derivative is 0; NaN where there is none."""
    sums = [other_sums(score, right) for score, right in zip(scores, rights, strict=True)]

    def derivative(beta: float) -> float:
        return -sum(np.average(d, weights=np.exp(beta * (d - d.max()))) for d in sums)

    bound = 1.0
    while derivative(-bound) < 0 or derivative(bound) > 0:
        bound *= 2
        if bound > 500:  # the right answers are always those with the highest scores, or lowest
            return np.nan
    return brentq(derivative, -bound, bound)


def permutation_p(scores: np.ndarray, rights: np.ndarray, cluster: np.ndarray, resamples: int = 10_000) -> float:
    """Return p of the sum of the right answers' scores, among orders of the systems, one a cluster."""
    rng = np.random.default_rng(0)
    systems = np.tile(np.arange(scores.shape[1]), (cluster.max() + 1, 1))
    observed = abs((scores * rights).sum())
    hits = 0
    for _ in range(resamples):
        order = rng.permuted(systems, axis=1)[cluster]
        total = (np.take_along_axis(scores, order, axis=1) * rights).sum()
        hits += abs(total) >= observed - 1e-12
    return (hits + 1) / (resamples + 1)


def within_questions(
    scores: np.ndarray, rights: np.ndarray, clusters: Any, step: float = 0.1, resamples: int = 10_000
) -> tuple[str, float, int]:
    """Return the odds ratio for a step of the score with its interval, p, and the number of questions
    that tell something: of which some answers are right and some are not.

    ``scores``, ``rights``: a row a question, a column a system. The interval leaves out one cluster of
    questions at a time, with Student's t.
    """
    tells = np.isfinite(scores + rights).all(axis=1) & (np.ptp(np.nan_to_num(rights), axis=1) > 0)
    if tells.sum() < 10:
        return "too few questions tell", np.nan, int(tells.sum())
    scores, rights = scores[tells], rights[tells]
    scores = scores - scores.mean(axis=1, keepdims=True)
    cluster = pd.factorize(np.asarray(clusters)[tells])[0]
    beta = slope(scores, rights)
    count = cluster.max() + 1
    without = np.array([slope(scores[cluster != c], rights[cluster != c]) for c in range(count)])
    error = np.sqrt((count - 1) / count * ((without - without.mean()) ** 2).sum())
    half = stdtrit(count - 1, 0.975) * error
    low, ratio, high = np.exp(step * np.array([beta - half, beta, beta + half]))
    text = stats.interval_text(ratio, low, high)
    return text, permutation_p(scores, rights, cluster, resamples), len(scores)
