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
from dataclasses import dataclass, field
from typing import Any, Literal

from ragbench.data.ragchecker import CHECKS, RagResult
from ragbench.errors import ConfigError, check_known
from ragbench.metrics.claims import (
    CLAIM_METRICS,
    LOWER_IS_BETTER,
    WRONG_CLAIMS,
    claim_metrics,
)
from ragbench.metrics.ir_score import ir_score
from ragbench.metrics.keypoints import (
    KEYPOINT_METRICS,
    effective_information_rate,
    keypoint_metrics,
    reference_recall,
)
from ragbench.metrics.lexical import (
    bleu,
    claim_overlap,
    contained,
    exact_match,
    idf_weights,
    rouge_l,
    token_f1,
)
from ragbench.metrics.nuggets import NUGGET_METRICS, nugget_metrics
from ragbench.metrics.ranking import RANK_MEASURES, rank_table
from ragbench.records import GRADES
from ragbench.stats.inputs import several
from ragbench.stats.tables import fully_right, grade_numbers
from ragbench.text.languages import language_of

_Value = float | Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric, or several that come out of the same labels."""

    needs: tuple[str, ...]  # columns of a row that ``function`` takes, in this order
    function: Callable[
        ..., _Value | Sequence[_Value]
    ]  # returns a number, or numbers by name; NaN where undefined
    source: str  # paper and equation
    range: tuple[float, float] = (0.0, 1.0)  # (False, True): no or yes, and a mean is a share
    names: tuple[str, ...] = ()  # of the numbers, where there are several
    # of the numbers; ``("mine",)`` for a metric of one number named "mine"
    lower_is_better: tuple[str, ...] = ()
    # whether ``function`` takes the columns of all rows at once, and returns a value per row
    all_rows: bool = False
    # further columns that ``function`` takes, with what holds where a row has none
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def says_yes_or_no(self) -> bool:
        """Whether its range is declared as (False, True), which equals (0, 1)."""
        return isinstance(self.range[0], bool)

    @staticmethod
    def find(names: str | Sequence[str] | None = None) -> dict[str, tuple[str, str]]:
        """Return column -> (metric, number of it) of what is asked for: of all there are, or of
        metrics, groups or single numbers, each once.

        A name that two metrics have belongs to the first in the table: ``faithfulness`` is
        RAGChecker's, RAGAS' is ``ragas_faithfulness``.
        """
        every = _every_number()
        if names is None:
            return every
        wanted: dict[str, tuple[str, str]] = {}
        for name in several(names):
            if nearest := _ELSEWHERE.get(name.casefold()):
                raise ConfigError(
                    f"there is no metric {name!r}",
                    "a name of rb.metric_table()",
                    f"use {nearest}, or add a function of your own, see README",
                )
            check_known("metric", [name], {**METRICS, **GROUPS, **every})
            for metric in GROUPS.get(name, [name]):
                if metric in METRICS:
                    wanted |= {col: pair for col, pair in every.items() if pair[0] == metric}
                else:
                    wanted[name] = every[name]
        return wanted

    @staticmethod
    def where_lower_is_better() -> list[str]:
        """Return the columns of which less is better, such as ``hallucination``."""
        columns = []
        for column, (name, key) in _every_number().items():
            if key in METRICS[name].lower_is_better:
                columns.append(column)
        return columns

    @staticmethod
    def ends(columns: Iterable[str]) -> dict[str, tuple[float, float]]:
        """Return the worst and the best value that each number can have."""
        every = _every_number()
        lower = Metric.where_lower_is_better()
        ends = {}
        for column in columns:
            ends[column] = (0.0, 1.0)  # of a grade on another scale
            if column in every:
                name, _ = every[column]
                low, high = METRICS[name].range
                ends[column] = float(low), float(high)
            if column in lower:
                ends[column] = ends[column][::-1]
        return ends


def _claims(labels: RagResult | Mapping[str, Any]) -> dict[str, float]:
    result = RagResult.of(labels)
    if result.missing():  # an unread label would decide between the shares
        return dict.fromkeys((*CLAIM_METRICS, *WRONG_CLAIMS), math.nan)
    return claim_metrics(**{check: getattr(result, check) for check in CHECKS})


def _keypoints(verdicts: Sequence[Any]) -> dict[str, float]:
    if None in verdicts:  # as with claims
        return dict.fromkeys(KEYPOINT_METRICS, math.nan)
    return keypoint_metrics(verdicts)


def grade_metrics(scale: Iterable[int] = GRADES) -> dict[str, Metric]:
    """Make the metrics of grades: fully_right (the best of the scale), and the share of each.

    ``METRICS |= grade_metrics(prompt_scale("mine.txt"))`` is for a grading prompt of your own.
    """

    def right(grade: Any) -> float:
        return float(fully_right([grade], scale)[0])

    def shares(grade: Any) -> dict[str, float]:
        number = grade_numbers([grade], scale)[0]
        if math.isnan(number):
            return {f"grade {n}": math.nan for n in scale}
        return {f"grade {n}": float(number == n) for n in scale}

    return {
        "fully_right": Metric(("grade",), right, "thesis §2.4", (False, True)),
        # categories: their means are shares
        "grade": Metric(("grade",), shares, "thesis §2.4", (False, True), tuple(shares(1))),
    }


_YES_OR_NO = {
    **dict.fromkeys(("true", "1", "1.0", "yes"), 1.0),
    **dict.fromkeys(("false", "0", "0.0", "no"), 0.0),
}


def _abstentions(abstained: object, kind: str) -> dict[str, float]:
    abstention = _YES_OR_NO.get(str(abstained).strip().casefold(), math.nan)
    rates = {
        "any_abstention": abstention,
        "right_abstention": math.nan,
        "wrong_abstention": math.nan,
    }
    if "unanswerable" in kind.casefold():
        rates["right_abstention"] = abstention
    else:
        rates["wrong_abstention"] = abstention
    return rates


def _ranking(
    retrieved: Sequence[Any], relevant: Sequence[Any], questions: Sequence[Any]
) -> list[Mapping[str, float]]:
    table = rank_table(retrieved, relevant, questions=questions)
    names = list(map(str, table))
    return [dict(zip(names, row, strict=True)) for row in table.to_numpy().tolist()]


def _recall(texts: Sequence[str], chunks: Sequence[str]) -> float:
    return reference_recall(texts, chunks, _language(texts))


def _eir(texts: Sequence[str], chunks: Sequence[str]) -> float:
    return effective_information_rate(texts, chunks, _language(texts))


def _claim_overlap(reference: str | Sequence[str], chunks: Sequence[str]) -> float:
    """The true answer's words in the retrieved text; of several answers, the best.

    Weights are from this row's chunks.
    """
    if isinstance(reference, str):
        reference = [reference]
    idf = idf_weights(chunks)
    context = " ".join(chunks)
    return max(claim_overlap(text, context, idf) for text in reference)


def _language(texts: Iterable[str]) -> Literal["en", "zh"]:
    """Return "zh" for Chinese texts, else "en": the two that RAGEval's metrics know."""
    return "zh" if language_of(texts) == "chinese" else "en"


_RAGAS = ("faithfulness", "answer_relevance", "context_relevance")
_WORSE = ("hallucination", "irrelevance")
_TRUE = ("answer", "reference")
METRICS: dict[str, Metric] = {
    "ir_score": Metric(
        ("references", "context"), ir_score, "thesis, Eq 2.2", settings={"match": "substring"}
    ),
    **grade_metrics(),
    "abstention": Metric(
        ("abstained", "kind"),
        _abstentions,
        "thesis §2.4, grade 1; RAGEval, unanswerable questions",
        (False, True),
        names=tuple(_abstentions(1, "")),
        lower_is_better=("wrong_abstention",),
    ),
    "ragchecker": Metric(
        ("claim_labels",),
        _claims,
        "RAGChecker, section 3.3",
        names=CLAIM_METRICS,
        lower_is_better=LOWER_IS_BETTER,
    ),
    "wrong_claims": Metric(
        ("claim_labels",),
        _claims,
        "ours, after RAGChecker, appendix H",
        names=WRONG_CLAIMS,
        lower_is_better=WRONG_CLAIMS,
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
    "exact_match": Metric(_TRUE, exact_match, "HotpotQA", (False, True)),
    "contained": Metric(_TRUE, contained, "Mallen et al. 2023; Liu et al. 2024", (False, True)),
    "claim_overlap": Metric(
        ("reference", "chunks"), _claim_overlap, "ours: words found, not entailment"
    ),
    "token_f1": Metric(_TRUE, token_f1, "HotpotQA"),
    "bleu": Metric(_TRUE, bleu, "Papineni et al. 2002"),
    "rouge_l": Metric(_TRUE, rouge_l, "Lin 2004"),
    "ranking": Metric(
        ("retrieved", "relevant"),
        _ranking,
        "ir_measures",
        names=RANK_MEASURES,
        all_rows=True,
        settings={"question_id": ""},
    ),
}
# Several by one name.
GROUPS: dict[str, tuple[str, ...]] = {
    "rageval": ("keypoints", "reference_recall", "eir"),
    "lexical": ("exact_match", "contained", "token_f1", "rouge_l", "bleu"),
}


# What other tools call a metric, and what is nearest to it here.
_WORDS = "token_f1 or rouge_l (words, no embeddings; notebook 21 has it on MiniLM)"
_ELSEWHERE = {
    "bertscore": _WORDS,
    "bert_score": _WORDS,
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


def _every_number() -> dict[str, tuple[str, str]]:
    columns: dict[str, tuple[str, str]] = {}
    for name, metric in METRICS.items():
        for key in metric.names or (name,):
            column = key
            if key in columns or (metric.names and key in METRICS):
                column = f"{name}_{key}"
            columns[column] = (name, key)
    return columns
