"""How RAGChecker's benchmark was made from other people's data (appendix A), to do the same with one's own.

`long_answers` turns short answers into long ones with a model and keeps those whose every claim the cited passages
entail (A.2). `downsample` cuts a corpus down to the annotated documents and what retrievers find (A.3).
"""

from ragbench.curation.downsampling import BIOMEDICAL, SCIENCE, Downsampled, downsample
from ragbench.curation.long_answers import (
    STATUSES,
    LongAnswer,
    LongAnswers,
    ShortAnswered,
    long_answers,
    short_answered,
    steps_for_long_answers,
)

__all__ = [
    "BIOMEDICAL",
    "SCIENCE",
    "STATUSES",
    "Downsampled",
    "LongAnswer",
    "LongAnswers",
    "ShortAnswered",
    "downsample",
    "long_answers",
    "short_answered",
    "steps_for_long_answers",
]
