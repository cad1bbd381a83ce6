"""Judging without a language model: a score for an answer against a reference, and labels for claims against a text.

Both are lexical and embedding methods, fitted or set on data named in their docstrings; results made with them are
labelled *embedded*.
"""

from ragbench.judge.checker import EmbeddedChecker, split_claims
from ragbench.judge.fit import FitReport, fit_judge
from ragbench.judge.labels import embedded_labels
from ragbench.judge.model import EmbeddedJudge, load_coefficients
from ragbench.judge.pairs import LabelledPair, load_ragchecker_pairs, read_pairs
from ragbench.judge.validation import (
    LabelledClaim,
    checker_intervals,
    checker_quality,
    embedded_checker_quality,
    load_labelled_claims,
)

__all__ = [
    "EmbeddedChecker",
    "EmbeddedJudge",
    "FitReport",
    "LabelledClaim",
    "LabelledPair",
    "checker_intervals",
    "checker_quality",
    "embedded_checker_quality",
    "embedded_labels",
    "fit_judge",
    "load_coefficients",
    "load_labelled_claims",
    "load_ragchecker_pairs",
    "read_pairs",
    "split_claims",
]
