"""From the IR score to the grade of the answer: the thesis's thresholds h and k (§3.3), and how far to trust them.

``sweep`` finds the thresholds exactly, ``resampling`` says how certain they are, ``calibration`` replaces the three
boxes by probabilities. Imports point that way only.
"""

from ragbench.thresholds.calibration import (
    Calibration,
    GroupModel,
    brier_score,
    brier_terms,
    calibrate,
    reliability_curve,
)
from ragbench.thresholds.resampling import ThresholdIntervals, bootstrap_thresholds, heldout_agreement
from ragbench.thresholds.sweep import (
    GROUPS,
    RegionShares,
    Threshold,
    Thresholds,
    agreement_curve,
    best_threshold,
    fit_thresholds,
    grade_groups,
    likelihood_h,
    likelihood_k,
    predicted_groups,
    region_shares,
)

__all__ = [
    "GROUPS",
    "Calibration",
    "GroupModel",
    "RegionShares",
    "Threshold",
    "ThresholdIntervals",
    "Thresholds",
    "agreement_curve",
    "best_threshold",
    "bootstrap_thresholds",
    "brier_score",
    "brier_terms",
    "calibrate",
    "fit_thresholds",
    "grade_groups",
    "heldout_agreement",
    "likelihood_h",
    "likelihood_k",
    "predicted_groups",
    "region_shares",
    "reliability_curve",
]
