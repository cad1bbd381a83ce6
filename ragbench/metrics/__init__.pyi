"""Metrics: labels or texts in, numbers out. No metric calls a model.
"""

from ragbench.metrics import claims as claims
from ragbench.metrics import ir_score as ir_score
from ragbench.metrics import keypoints as keypoints
from ragbench.metrics import lexical as lexical
from ragbench.metrics import nuggets as nuggets
from ragbench.metrics import ranking as ranking
from ragbench.metrics import reference_free as reference_free
from ragbench.metrics import table as table
from ragbench.metrics import thresholds as thresholds
