"""RAGChecker's eleven claim-level metrics, from labels (Ru et al. 2024, section 3.3 and appendix B).

A label says whether a text entails a claim. Four sets of labels give all metrics: response claims against the
reference, reference claims against the response, and both against every retrieved chunk. Nothing here calls a model.

Follows the paper's tables and released code, not the letter of appendix B, in one point: irrelevant noise counts only
claims that no relevant chunk entails, so that precision, both noise sensitivities and hallucination add up to 1
(``irrelevant_noise="literal"`` gives the formula as printed). Contradiction counts as not entailed, as published.
"""

from ragbench.metrics.claims.labels import CHECKS, ClaimLabels
from ragbench.metrics.claims.ragchecker import RAGCHECKER_NAMES, ragchecker_averages, score_ragchecker
from ragbench.metrics.claims.scores import (
    COUNTS,
    METRICS,
    claim_counts,
    claim_metrics,
    claim_metrics_table,
    macro_average,
)

__all__ = [
    "CHECKS",
    "COUNTS",
    "METRICS",
    "RAGCHECKER_NAMES",
    "ClaimLabels",
    "claim_counts",
    "claim_metrics",
    "claim_metrics_table",
    "macro_average",
    "ragchecker_averages",
    "score_ragchecker",
]
