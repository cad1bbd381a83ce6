"""From the IR score to the grade of the answer: the thesis's thresholds h and k (§3.3), and how far to trust them.

``sweep`` finds the thresholds exactly, each with the plateau of equally good values; ``calibration`` tests the boxes on
questions they were not fitted on, and replaces them by probabilities. Imports point that way only.

There is no interval of h or k: they maximise a count of agreements, and the bootstrap is not valid for such an
estimator (Abrevaya & Huang 2005, Econometrica 73). What has an interval is the gain in agreement on unseen questions
(notebook 14).
"""

from ragbench.thresholds.calibration import (
    Calibration,
    GroupModel,
    brier_score,
    brier_terms,
    calibrate,
    reliability_curve,
)
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
    "Thresholds",
    "agreement_curve",
    "best_threshold",
    "brier_score",
    "brier_terms",
    "calibrate",
    "fit_thresholds",
    "grade_groups",
    "likelihood_h",
    "likelihood_k",
    "predicted_groups",
    "region_shares",
    "reliability_curve",
]
