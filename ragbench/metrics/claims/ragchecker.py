"""The metrics under RAGChecker's own names, so that its files can be completed here and read there."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ragbench.data.ragchecker.results import RagResults
from ragbench.metrics.claims.scores import METRICS, Empty, Noise, claim_metrics_table, macro_average

if TYPE_CHECKING:
    import pandas as pd

_GROUPS = {
    "overall": ("precision", "recall", "f1"),
    "retriever": ("claim_recall", "context_precision"),
    "generator": METRICS[5:],
}
RAGCHECKER_NAMES = {name: name for name in METRICS} | {
    "relevant_noise_sensitivity": "noise_sensitivity_in_relevant",
    "irrelevant_noise_sensitivity": "noise_sensitivity_in_irrelevant",
}


def ragchecker_averages(table: pd.DataFrame) -> dict[str, dict[str, float]]:
    """Return the macro averages as RAGChecker writes them: by group, under its names, in percent with one decimal.

    Parameters
    ----------
    table : from `claim_metrics_table`; NaN is left out of the averages, so the released numbers need
        ``empty="published"`` there.
    """
    means = macro_average(table)["mean"]
    return {
        group: {RAGCHECKER_NAMES[name]: round(float(means[name]) * 100, 1) for name in names}
        for group, names in _GROUPS.items()
    }


def score_ragchecker(
    results: RagResults, empty: Empty = "published", irrelevant_noise: Noise = "exclusive"
) -> RagResults:
    """Fill in the metrics of every result and their averages, as RAGChecker does after checking.

    Parameters
    ----------
    results : checked results, e.g. from `ragbench.data.read_ragchecker`.
    empty : value of undefined metrics. Unlike elsewhere the default is RAGChecker's 0, since its format has no other;
        with NaN they are written as null.
    irrelevant_noise : as in `ragbench.metrics.claims.claim_metrics`.

    Returns
    -------
    RagResults with all metrics replaced; everything else is unchanged.

    Raises
    ------
    DataError that names id and field when a result has not been checked.
    """
    table = claim_metrics_table(results.results, empty, irrelevant_noise)
    rows = table[list(METRICS)].rename(columns=RAGCHECKER_NAMES).to_dict("records")
    scored = tuple(replace(result, metrics=row) for result, row in zip(results.results, rows, strict=True))
    return replace(results, results=scored, metrics=ragchecker_averages(table))
