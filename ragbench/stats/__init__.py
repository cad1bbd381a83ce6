"""Statistics for evaluations: intervals, paired tests, correlations, agreement, few labels with
many judge grades.

Numbers in, small frozen records out. Missing values (NaN, None) are left out and counted
(``n_missing``); what is undefined is NaN. Everything random takes a seed and gives the same answer
twice.
"""

from ragbench._lazy import lazy

HOMES = {
    "agreement": [
        "kappa",
        "PairwiseAgreement",
        "pairwise_agreement",
        "preference_correlation",
        "preference_difference",
    ],
    "clusters": [
        "Clusters",
        "find_clusters",
    ],
    "intervals": [
        "binomial_ci",
        "mean_interval",
        "correlation",
        "Interval",
        "interval_text",
        "MISSING",
        "paired_difference",
        "rogan_gladen",
        "with_interval",
    ],
    "paired": [
        "holm",
        "PermutationTest",
        "PowerAnalysis",
        "paired_permutation_test",
        "power_analysis",
    ],
    "ppi": [
        "ppi_difference",
        "ppi_mean",
        "ppi_shares",
        "stratified_draw",
    ],
    "tables": [
        "compare",
        "compare_pairs",
        "compare_scores",
        "means",
    ],
}
__getattr__, __dir__ = lazy(__name__, HOMES)
