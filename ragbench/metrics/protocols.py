"""Scores of the evaluation protocols that the thesis reviews (§1.2): CRAG, RGB, eRAG; undefined values are NaN.

ARES's prediction-powered interval is `ragbench.stats.ppi_mean`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from ragbench.errors import ConfigError, DataError, check_known
from ragbench.stats.inputs import as_floats, same_length

_CRAG_POINTS: Mapping[str, Mapping[str, float]] = {
    "human": {"perfect": 1.0, "acceptable": 0.5, "missing": 0.0, "incorrect": -1.0},
    "auto": {"correct": 1.0, "missing": 0.0, "incorrect": -1.0},
}
_NAN = float("nan")


def crag_score(
    labels: Sequence[str], mode: Literal["human", "auto"] = "human", *, groups: Sequence[Any] | None = None
) -> float:
    """CRAG's truthfulness score, in [-1, 1]: a wrong answer costs what a right one earns, silence costs nothing.

    ``groups``, the question type of each answer, asks for the mean of the groups' means (the competition's own weights
    of types are not public).

    Source: thesis §1.2; CRAG (Yang et al. 2024), section 4.

    >>> crag_score(["perfect", "acceptable", "missing", "incorrect"])
    0.125
    """
    check_known("mode", [mode], _CRAG_POINTS)
    check_known(f"CRAG label (mode {mode!r})", labels, _CRAG_POINTS[mode])
    groups = ["all"] * len(labels) if groups is None else list(groups)
    same_length(labels=labels, groups=groups)
    points = np.array([_CRAG_POINTS[mode][label] for label in labels])
    return _rate(np.array([points[[g == group for g in groups]].mean() for group in dict.fromkeys(groups)]))


def contains_answer(prediction: str, answers: Sequence[str | Sequence[str]]) -> bool:
    """RGB's exact match: every required answer (or one of its alternatives) is in the prediction, in any case.

    Source: RGB (Chen et al. 2024), section 3; thesis §1.2.

    >>> contains_answer("It was in January 2022, in Paris.", [["January 2022", "2022-01"], "paris"])
    True
    """
    if isinstance(answers, str) or not answers:
        raise ConfigError(f"answers {answers!r}", "a list with at least one answer", "write [answer]")
    text = prediction.lower()
    return all(any(a.lower() in text for a in ([one] if isinstance(one, str) else one)) for one in answers)


def rgb_accuracy(correct: Any, noise_ratio: Any = None) -> float | dict[float, float]:
    """RGB's accuracy (noise robustness, information integration): share of exact matches, see `contains_answer`.

    With ``noise_ratio``, the share of noise documents behind each answer: a dict from each ratio, ascending, to it.

    Source: RGB, section 3 and Table 1; thesis §1.2.
    """
    hits = _flags(correct, "correct")
    if noise_ratio is None:
        return _rate(hits)
    ratios = _shares(noise_ratio, "noise_ratio")
    same_length(correct=hits, noise_ratio=ratios)
    return {float(r): _rate(hits[ratios == r]) for r in np.unique(ratios)}


def rgb_rejection_rate(rejected: Any) -> float:
    """RGB's negative rejection: share of answers that decline, where only noise documents were given.

    Source: RGB, section 3; thesis §1.2.
    """
    return _rate(_flags(rejected, "rejected"))


def rgb_error_rates(
    detected: Any, correct: Any, among: Literal["detected", "all"] = "detected"
) -> dict[Literal["detection", "correction"], float]:
    """RGB's counterfactual robustness: error detection rate and error correction rate.

    Parameters
    ----------
    detected, correct : whether each answer says that the documents are wrong, and is right in spite of them.
    among : what the correction rate is a share of: "detected", the answers that detected the error, as in RGB's own
        code (a share of none is 0 there, NaN here); "all", all answers, as the thesis words it.

    Source: RGB, section 3; thesis §1.2.
    """
    check_known("among", [among], ("detected", "all"))
    seen, right = _flags(detected, "detected"), _flags(correct, "correct")
    same_length(detected=seen, correct=right)
    return {"detection": _rate(seen), "correction": _rate(right[seen] if among == "detected" else right)}


def erag_scores(
    document_scores: Sequence[float], pool_scores: Sequence[float] | None = None, *, relevant: float = 1.0
) -> dict[str, float]:
    """eRAG: a retrieved list judged by what each document alone yields downstream.

    Parameters
    ----------
    document_scores : for each retrieved document, best first, the score in [0, 1] of the answer generated from it
        alone.
    pool_scores : the same for all documents that could have been retrieved, for recall and the ideal ranking of nDCG;
        default: the retrieved ones, which leaves recall undefined.
    relevant : a document counts as relevant for MRR from this score on.

    Returns
    -------
    dict: "precision" (mean score), "hit" (best score), "recall" (sum over the pool's sum), "f1" (of precision and
    recall), "mrr" (0 without a relevant document), "ndcg" (gain = score). NaN: no documents, or no downstream gain to
    be had.

    Source: eRAG (Salemi & Zamani 2024), section 3; thesis §1.2.
    """
    gains = _shares(document_scores, "document_scores")
    pool = gains if pool_scores is None else _shares(pool_scores, "pool_scores")
    if pool.size < gains.size:
        raise DataError(f"a pool of {pool.size} documents, {gains.size} retrieved", "a pool that holds those too")
    if not gains.size:
        return dict.fromkeys(("precision", "hit", "recall", "f1", "mrr", "ndcg"), _NAN)
    precision = float(gains.mean())
    recall = float(gains.sum() / pool.sum()) if pool_scores is not None and pool.sum() > 0 else _NAN
    first = np.flatnonzero(gains >= relevant)
    discount = 1 / np.log2(np.arange(2, gains.size + 2))
    ideal = np.sort(pool)[::-1][: gains.size] @ discount
    return {
        "precision": precision,
        "hit": float(gains.max()),
        "recall": recall,
        "f1": 0.0 if precision + recall == 0 else 2 * precision * recall / (precision + recall),
        "mrr": 1 / (first[0] + 1) if first.size else 0.0,
        "ndcg": float(gains @ discount / ideal) if ideal > 0 else _NAN,
    }


def _flags(values: Any, name: str) -> np.ndarray:
    array = as_floats(values, name)
    if not np.isin(array, (0, 1)).all():
        raise DataError(f"{name} that are not booleans", "one True or False per answer")
    return array.astype(bool)


def _rate(flags: np.ndarray) -> float:
    return float(flags.mean()) if flags.size else _NAN


def _shares(values: Any, name: str) -> np.ndarray:
    array = as_floats(values, name)
    if not ((array >= 0) & (array <= 1)).all():
        raise DataError(f"{name} that are NaN or outside [0, 1]", "numbers in [0, 1]")
    return array
