"""RAGChecker's data: its JSON of checked results, the human-labelled response pairs, and RefChecker's labelled claims.

Everything keeps the three label words apart (Entailment, Neutral, Contradiction); only the metrics make them two.
"""

from ragbench.data.ragchecker.benchmark import BENCHMARK, load_ragchecker_counts
from ragbench.data.ragchecker.meta import ASPECTS, MetaEvaluation, PreferencePair, RatedResponse, load_ragchecker_meta
from ragbench.data.ragchecker.reading import from_ragchecker, read_ragchecker
from ragbench.data.ragchecker.refchecker import SETTINGS, LabelledResponse, load_refchecker
from ragbench.data.ragchecker.results import (
    LABELS,
    Claim,
    RagResult,
    RagResults,
    RetrievedText,
    claim_text,
    to_ragchecker,
    write_ragchecker,
)

__all__ = [
    "ASPECTS",
    "BENCHMARK",
    "LABELS",
    "SETTINGS",
    "Claim",
    "LabelledResponse",
    "MetaEvaluation",
    "PreferencePair",
    "RagResult",
    "RagResults",
    "RatedResponse",
    "RetrievedText",
    "claim_text",
    "from_ragchecker",
    "load_ragchecker_counts",
    "load_ragchecker_meta",
    "load_refchecker",
    "read_ragchecker",
    "to_ragchecker",
    "write_ragchecker",
]
