"""The model steps of the papers' metrics: texts in, labels out. The metrics themselves take the labels.

``extraction`` (claims, statements) -> ``checking`` (claims against texts) -> ``ragchecker`` (both, over whole results);
``ragas`` (verdicts, generated questions), ``sentences`` (copied ones) and the ``baselines``; ``keypoints`` (RAGEval).
``engine`` is what they share: each different prompt once, several items per prompt without guessing; ``report`` says
what a step took.

Every call goes through `ragbench.llm.ask`, whose options (``cassette``, ``concurrency`` ...) all steps take. A reply
that cannot be read leaves its item unscored (None), with the raw reply in the report. ``steps_for_...`` give the calls
of a run before it, to `ragbench.llm.plan`. The prompts are ``ragbench/prompts/steps_*.txt``; any can be replaced.
"""

from ragbench.metrics.steps.baselines import (
    DIMENSIONS,
    Ranking,
    Scores,
    gpt_ranking,
    gpt_score,
    steps_for_baselines,
)
from ragbench.metrics.steps.checking import check_claims
from ragbench.metrics.steps.engine import Judged
from ragbench.metrics.steps.extraction import Extracted, extract_claims, extract_statements
from ragbench.metrics.steps.keypoints import keypoint_verdicts, steps_for_keypoints
from ragbench.metrics.steps.ragas import (
    Generated,
    generate_questions,
    statement_verdicts,
    steps_for_ragas,
)
from ragbench.metrics.steps.ragchecker import Labelled, ragchecker_labels, steps_for_ragchecker
from ragbench.metrics.steps.report import StepReport, Unscored
from ragbench.metrics.steps.sentences import INSUFFICIENT, Picked, PickedSentences, extract_sentences, pick

__all__ = [
    "DIMENSIONS",
    "INSUFFICIENT",
    "Extracted",
    "Generated",
    "Judged",
    "Labelled",
    "Picked",
    "PickedSentences",
    "Ranking",
    "Scores",
    "StepReport",
    "Unscored",
    "check_claims",
    "extract_claims",
    "extract_sentences",
    "extract_statements",
    "generate_questions",
    "gpt_ranking",
    "gpt_score",
    "keypoint_verdicts",
    "pick",
    "ragchecker_labels",
    "statement_verdicts",
    "steps_for_baselines",
    "steps_for_keypoints",
    "steps_for_ragas",
    "steps_for_ragchecker",
]
