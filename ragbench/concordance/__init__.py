"""Concordance: the same answers scored by the metrics of all four papers, and how far these agree.

Reading order: ``cases`` (an answer with its question and context) -> ``labels`` (claims, verdicts, grades: embedded, or
by a model) -> ``scores`` (labels to one table, a row per answer and a column per metric) -> ``agreement``
(correlations, agreement with reference grades, rankings of systems, the answers on which metrics part).
"""

from ragbench.concordance.agreement import (
    cluster_order,
    correlation_matrix,
    disagreements,
    grade_agreement,
    metric_correlations,
    ranking_correlations,
    system_means,
)
from ragbench.concordance.cases import Case, graded_cases, system_cases
from ragbench.concordance.labels import Labels, embedded_labels, model_labels, model_steps
from ragbench.concordance.scores import METRICS, Metric, defined, score_table

__all__ = [
    "METRICS",
    "Case",
    "Labels",
    "Metric",
    "cluster_order",
    "correlation_matrix",
    "defined",
    "disagreements",
    "embedded_labels",
    "grade_agreement",
    "graded_cases",
    "metric_correlations",
    "model_labels",
    "model_steps",
    "ranking_correlations",
    "score_table",
    "system_cases",
    "system_means",
]
