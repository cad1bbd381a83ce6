"""How good a claim checker is, measured on claims that people labelled (RAGChecker's Table 16)."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from ragbench.errors import DataError
from ragbench.judge.checker import ENTAILMENT, LABELS


def checker_quality(
    human: Sequence[str],
    predicted: Sequence[str | None],
    responses: Sequence[Hashable] | None = None,
) -> dict[str, float]:
    """Measure a checker's labels against people's.

    Parameters
    ----------
    human : a label per claim: Entailment, Neutral or Contradiction.
    predicted : the checker's; None where it gave none, which is left out and counted.
    responses : the response each claim is from, for the two correlations; None leaves them undefined.

    Returns
    -------
    dict: ``accuracy`` (entailed or not), ``factual f1`` (of Entailment), ``non-factual f1`` (of the other two),
    ``accuracy, three labels``, all in [0, 1]; ``pearson`` and ``spearman`` between the shares of claims not entailed,
    per response, in [-1, 1]; ``n`` claims, ``responses`` and ``unscored`` claims. What is undefined is NaN: an F1
    without such a claim on either side, a correlation of fewer than two responses or of a constant.

    Raises
    ------
    DataError for lists of different length or an unknown label word.

    Source: RAGChecker, appendix G, Table 16. Paper value (Llama3 + Llama3, zero context): accuracy 91.89, F1 83.06 and
    94.67, Pearson 81.77, Spearman 80.83 (x100). That accuracy is of two classes follows from the published numbers:
    accuracy and the two F1 determine each other only then.
    """
    from ragbench.stats import correlation

    sizes = {len(human), len(predicted), len(predicted if responses is None else responses)}
    if len(sizes) > 1:
        raise DataError(f"lists of {' and '.join(map(str, sorted(sizes)))} items", "one item per claim in each")
    for who, labels in (("human", human), ("predicted", [p for p in predicted if p is not None])):
        unknown = [label for label in labels if label not in LABELS]
        if unknown:
            raise DataError(f"{who} label {unknown[0]!r}", f"one of {', '.join(LABELS)}", "check that claim again")
    kept = [i for i, label in enumerate(predicted) if label is not None]
    truth, guess = ([labels[i] for i in kept] for labels in (human, predicted))
    true, said = (np.array([label == ENTAILMENT for label in labels], bool) for labels in (truth, guess))
    pearson = spearman = float("nan")
    of = [responses[i] for i in kept] if responses is not None else []
    if of:
        place = {response: i for i, response in enumerate(dict.fromkeys(of))}
        index = np.array([place[response] for response in of])
        shares = [np.bincount(index, ~flags) / np.bincount(index) for flags in (true, said)]
        pearson = correlation(*shares, "pearson", resamples=0).estimate
        spearman = correlation(*shares, "spearman", resamples=0).estimate
    same = [a == b for a, b in zip(truth, guess, strict=True)]
    return {
        "accuracy": float((true == said).mean()) if kept else float("nan"),
        "factual f1": _f1(true, said),
        "non-factual f1": _f1(~true, ~said),
        "accuracy, three labels": float(np.mean(same)) if kept else float("nan"),
        "pearson": pearson,
        "spearman": spearman,
        "n": len(kept),
        "responses": len(set(of)),
        "unscored": len(predicted) - len(kept),
    }


def _f1(true: np.ndarray, said: np.ndarray) -> float:
    total = int(true.sum() + said.sum())
    return float(2 * (true & said).sum() / total) if total else float("nan")
