"""RAGChecker's diagnosis of settings (Ru et al. 2024, section 4.4, appendices D and F): Figures 6, 7, 8 and 10.

One setting is varied at a time around the paper's default (20 chunks of 300 tokens, overlap 0.2), as one `Experiment`;
or the whole grid. Its rows say what was retrieved and answered; `scores` turns them into RAGChecker's metrics with any
way of labelling claims. The retriever's half needs no model at all: a data set's references are its claims, and a chunk
entails a reference that it contains (`Contained`), so claim recall and context precision are counted, not judged.
`trends` then holds every tendency the paper reports against paired differences with intervals.
"""

from ragbench.diagnosis.grid import (
    DEFAULT,
    FACTORS,
    KS,
    OVERLAPS,
    PROMPTS,
    SIZES,
    Setting,
    answerable,
    dataset,
    grid,
    settings,
    topic_pages,
)
from ragbench.diagnosis.scoring import CLAIMS, NOISE, RETRIEVER, Contained, plan, reachable, scores
from ragbench.diagnosis.trends import (
    F1_OF_MEANS,
    PLACE,
    SYSTEM,
    TRENDS,
    Trend,
    as_printed,
    by_factor,
    equal_budgets,
    f1_of_means,
    identities,
    published,
    trends,
    verdict,
)

__all__ = [
    "CLAIMS",
    "DEFAULT",
    "F1_OF_MEANS",
    "FACTORS",
    "KS",
    "NOISE",
    "OVERLAPS",
    "PLACE",
    "PROMPTS",
    "RETRIEVER",
    "SIZES",
    "SYSTEM",
    "TRENDS",
    "Contained",
    "Setting",
    "Trend",
    "answerable",
    "as_printed",
    "by_factor",
    "dataset",
    "equal_budgets",
    "f1_of_means",
    "grid",
    "identities",
    "plan",
    "published",
    "reachable",
    "scores",
    "settings",
    "topic_pages",
    "trends",
    "verdict",
]
