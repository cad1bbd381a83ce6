"""Statistics for evaluations: intervals, paired tests, correlations, agreement, few labels with many judge grades.

Numbers in, small frozen records out. Missing values (NaN, None) are left out and counted (``n_missing``); what is
undefined is NaN. Everything random takes a seed and gives the same answer twice.
"""

from ragbench.stats.agreement import (
    ConfusionMatrix,
    PairwiseAgreement,
    annotator_agreement,
    brier_score,
    brier_terms,
    confusion_matrix,
    kappa,
    pairwise_agreement,
    reliability_curve,
    repeat_changes,
)
from ragbench.stats.association import (
    WithinOdds,
    conditional_logit,
    correlation,
    preference_correlation,
    preference_difference,
    separation,
    within_correlation,
)
from ragbench.stats.intervals import (
    MISSING,
    Interval,
    binomial_ci,
    bootstrap_ci,
    interval_text,
    paired_bootstrap_difference,
    with_interval,
)
from ragbench.stats.paired import (
    PermutationTest,
    PowerAnalysis,
    holm,
    paired_permutation_test,
    paired_power,
    power_analysis,
    power_curve,
    questions_needed,
)
from ragbench.stats.ppi import label_next, ppi_difference, ppi_mean, ppi_shares, stratified_draw
from ragbench.stats.sequence import anytime_interval, betting_capital, units_until_decided
from ragbench.stats.tables import compare, compare_pairs, means
