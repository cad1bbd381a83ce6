"""Metrics by name: one table. A metric of your own is a function and one entry.

``METRICS["short"] = Metric(("answer",), lambda answer: float(len(answer) < 100), "mine")``

`ragbench.score` computes them by name from rows. What a metric needs are columns of the rows: texts
that are there (``question``, ``answer``, ``reference``, ``context``, ``chunks``, ``keypoints``,
``references``, ``retrieved``, ``relevant``, ``kind``), or labels (``claim_labels``,
``keypoint_verdicts``, ``ragas``, ``grade``, ``abstained``), which `ragbench.score` has made where
the rows lack them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ragbench.errors import ConfigError, check_known
from ragbench.metrics.claims import CHECKS, LOWER_IS_BETTER, ClaimLabels, claim_metrics
from ragbench.metrics.claims import METRICS as CLAIM_METRICS
from ragbench.metrics.ir_score import ir_score
from ragbench.metrics.keypoints import (
    KEYPOINT_METRICS,
    effective_information_rate,
    keypoint_metrics,
    reference_recall,
)
from ragbench.metrics.lexical import (
    best_over_references,
    bleu,
    claim_overlap,
    contained,
    exact_match,
    idf_weights,
    rouge_l,
    token_f1,
)
from ragbench.metrics.nuggets import NUGGET_METRICS, nugget_metrics
from ragbench.metrics.ranking import MEASURES, rank_scores
from ragbench.text.languages import language_of

_Value = float | Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric, or several that come out of the same labels."""

    needs: tuple[str, ...]  # columns of a row that ``function`` takes, in this order
    function: Callable[..., _Value]  # returns a number, or numbers by name; NaN where undefined
    source: str  # paper and equation
    range: tuple[float, float] = (0.0, 1.0)
    names: tuple[str, ...] = ()  # of the numbers, where there are several
    lower_is_better: tuple[
        str, ...
    ] = ()  # of the numbers; ``("mine",)`` for a metric of one number named "mine"


def readable(labels: ClaimLabels) -> bool:
    """Tell whether all labels of a result are there:

    an unread one (None) would decide between the shares.
    """
    parts = [getattr(labels, check) for check in CHECKS]
    return not any(part is None or None in np.array(part, dtype=object) for part in parts)


def _claims(labels: ClaimLabels) -> _Value:
    read = readable(labels)
    return (
        claim_metrics(*(getattr(labels, c) for c in CHECKS))
        if read
        else dict.fromkeys(CLAIM_METRICS, math.nan)
    )


def _keypoints(verdicts: Sequence[str | None]) -> _Value:
    return keypoint_metrics([] if None in verdicts else verdicts)  # as with claims


def _grades(grade: int) -> _Value:
    return {f"grade {n}": float(grade == n) for n in range(1, 6)}


def _abstentions(abstained: object, kind: str) -> _Value:
    did = {"true": 1.0, "1": 1.0, "false": 0.0, "0": 0.0}.get(str(abstained).casefold(), math.nan)
    open_ = "unanswerable" in kind.casefold()
    no = math.nan
    return dict(zip(_ABSTENTIONS, (did, did if open_ else no, no if open_ else did), strict=True))


def _recall(texts: Sequence[str], chunks: Sequence[str]) -> float:
    return reference_recall(texts, chunks, language(texts))


def _eir(texts: Sequence[str], chunks: Sequence[str]) -> float:
    return effective_information_rate(texts, chunks, language(texts))


def _claim_overlap(reference: str | Sequence[str], chunks: Sequence[str]) -> float:
    """The true answer's words in the retrieved text;

    weights from this row's chunks. Of several answers, the best.
    """
    idf = idf_weights(chunks)
    return best_over_references(
        lambda text, claim: claim_overlap(claim, text, idf), " ".join(chunks), reference
    )


def language(texts: Iterable[str]) -> str:
    """Return "zh" for Chinese texts, else "en": the two that RAGEval's metrics know."""
    return "zh" if language_of(texts) == "chinese" else "en"


_RAGAS = ("faithfulness", "answer_relevance", "context_relevance")
_ABSTENTIONS = ("any_abstention", "right_abstention", "wrong_abstention")
_WORSE = ("hallucination", "irrelevance")
_TRUE = ("answer", "reference")
METRICS: dict[str, Metric] = {
    "ir_score": Metric(("references", "context"), ir_score, "thesis, Eq 2.2"),
    "fully_right": Metric(("grade",), lambda grade: float(grade == 5), "thesis §2.4"),
    "grade": Metric(
        ("grade",), _grades, "thesis §2.4", names=tuple(_grades(1))
    ),  # categories: their means are shares
    "abstention": Metric(
        ("abstained", "kind"),
        _abstentions,
        "thesis §2.4, grade 1; RAGEval, unanswerable questions",
        names=_ABSTENTIONS,
        lower_is_better=("wrong_abstention",),
    ),
    "ragchecker": Metric(
        ("claim_labels",),
        _claims,
        "RAGChecker, section 3.3",
        names=CLAIM_METRICS,
        lower_is_better=LOWER_IS_BETTER,
    ),
    "ragas": Metric(("ragas",), dict, "RAGAS, section 3", names=_RAGAS),
    "keypoints": Metric(
        ("keypoint_verdicts",),
        _keypoints,
        "RAGEval, Eq 3-5",
        names=KEYPOINT_METRICS,
        lower_is_better=_WORSE,
    ),
    "nuggets": Metric(
        ("nuggets",), nugget_metrics, "AutoNuggetizer, arXiv 2411.09607", names=NUGGET_METRICS
    ),
    "reference_recall": Metric(("references", "chunks"), _recall, "RAGEval, Eq 1"),
    "eir": Metric(("references", "chunks"), _eir, "RAGEval, Eq 2"),
    "exact_match": Metric(_TRUE, exact_match, "HotpotQA"),
    "contained": Metric(_TRUE, contained, "Mallen et al. 2023; Liu et al. 2024"),
    "claim_overlap": Metric(
        ("reference", "chunks"), _claim_overlap, "ours: words found, not entailment"
    ),
    "token_f1": Metric(_TRUE, token_f1, "HotpotQA"),
    "bleu": Metric(_TRUE, bleu, "Papineni et al. 2002"),
    "rouge_l": Metric(_TRUE, rouge_l, "Lin 2004"),
    "ranking": Metric(("retrieved", "relevant"), rank_scores, "ir_measures", names=MEASURES),
}
# Several by one name.
GROUPS: dict[str, tuple[str, ...]] = {
    "rageval": ("keypoints", "reference_recall", "eir"),
    "lexical": ("exact_match", "contained", "token_f1", "rouge_l", "bleu"),
}


def numbers_by_column() -> dict[str, tuple[str, str]]:
    """Return column -> (metric, number of it), of all there are.

    A name that two metrics have belongs to the first in the table: ``faithfulness`` is
    RAGChecker's, RAGAS' is ``ragas_faithfulness``.
    """
    columns: dict[str, tuple[str, str]] = {}
    for name, metric in METRICS.items():
        for key in metric.names or (name,):
            taken = key in columns or (metric.names and key in METRICS)
            columns[f"{name}_{key}" if taken else key] = (name, key)
    return columns


def lower_is_better() -> list[str]:
    """Return the columns of which less is better, such as ``hallucination``."""
    return [
        column
        for column, (name, key) in numbers_by_column().items()
        if key in METRICS[name].lower_is_better
    ]


# What other tools call a metric, and what is nearest to it here.
_ELSEWHERE = {
    "bertscore": "token_f1 or rouge_l (words, no embeddings; notebook 21 has it on MiniLM)",
    "bert_score": "token_f1 or rouge_l (words, no embeddings; notebook 21 has it on MiniLM)",
    "accuracy": "contained (the true answer stands in the answer) or fully_right (grade 5)",
    "em": "exact_match",
    "cover_em": "contained",
    "cover_exact_match": "contained",
    "correctness": "grade",
    "answer_correctness": "grade",
    "mrr": "RR",
    "map": "AP",
    "ndcg": "nDCG@10",
}


def find_numbers(names: str | Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return column -> (metric, number of it) of what is asked for:

    metrics, groups or single numbers, each once.
    """
    every = numbers_by_column()
    names = [names] if isinstance(names, str) else names
    if absent := next((name for name in names if name.casefold() in _ELSEWHERE), None):
        do = f"use {_ELSEWHERE[absent.casefold()]}, or add a function of your own, see README"
        raise ConfigError(
            f"there is no metric {absent!r}", "a name that rb.metric_table() lists", do
        )
    check_known("metric", names, {**METRICS, **GROUPS, **every})
    asked: dict[str, tuple[str, str]] = {}
    for name in names:
        metrics = GROUPS.get(name, (name,) if name in METRICS else ())
        several = {
            column: of for metric in metrics for column, of in every.items() if of[0] == metric
        }
        asked |= several or {name: every[name]}
    return asked
