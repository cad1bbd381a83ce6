"""Nuggets: the facts that a good answer holds, each vital or okay, and whether an answer supports
them.

A nugget is what RAGEval calls a keypoint and RAGChecker a claim of the true answer: one fact, held
against the answer. Nuggets alone say how much each fact matters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ragbench.errors import DataError

SUPPORT = {"support": 1.0, "partial_support": 0.5, "not_support": 0.0}
IMPORTANCE = ("vital", "okay")
NUGGET_METRICS = ("vital_strict", "all_strict", "vital", "all")


def nugget_metrics(nuggets: Sequence[Mapping[str, str]]) -> dict[str, float]:
    """Measure the share of its nuggets that an answer supports.

    Parameters
    ----------
    nuggets : of one answer, each with ``importance`` ("vital" or "okay") and ``assignment``
        ("support", "partial_support" or "not_support").

    Returns
    -------
    vital_strict, all_strict: of the vital nuggets, and of all, the share that is supported; vital,
    all: the same, where partial support counts one half. 0 to 1; NaN without such nuggets.

        vital_strict = (vital nuggets supported) / (vital nuggets)
        vital = (vital supported + vital partly supported / 2) / (vital nuggets)

    Source: AutoNuggetizer, arXiv 2411.09607, section 3; TREC 2024 RAG, arXiv 2504.15068.
    """
    for nugget in nuggets:
        if nugget.get("importance") not in IMPORTANCE or nugget.get("assignment") not in SUPPORT:
            raise DataError(
                f"the nugget {dict(nugget)!r:.120}",
                f"importance {' or '.join(IMPORTANCE)}, assignment {', '.join(SUPPORT)}",
            )
    vital = [nugget["assignment"] for nugget in nuggets if nugget["importance"] == "vital"]
    every = [nugget["assignment"] for nugget in nuggets]
    return {
        "vital_strict": _share(vital, {"support": 1.0}),
        "all_strict": _share(every, {"support": 1.0}),
        "vital": _share(vital, SUPPORT),
        "all": _share(every, SUPPORT),
    }


def _share(assignments: Sequence[str], worth: Mapping[str, float]) -> float:
    if not assignments:
        return float("nan")
    return sum(worth.get(assignment, 0.0) for assignment in assignments) / len(assignments)
