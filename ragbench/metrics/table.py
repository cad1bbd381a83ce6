"""Metrics by name: one table. A metric of your own is a function and one entry.

``METRICS["short"] = Metric(("answer",), lambda answer: float(len(answer) < 100), "mine")``

`ragbench.score` computes them by name from rows. What a metric needs are columns of the rows: texts that are there
(``question``, ``answer``, ``reference``, ``context``, ``chunks``, ``facts``, ``keypoints``, ``references``,
``retrieved``, ``relevant``), or labels (``claim_labels``, ``keypoint_verdicts``, ``ragas``, ``grade``), which
`ragbench.score` has made where the rows lack them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ragbench.metrics.claims import METRICS as CLAIM_METRICS
from ragbench.metrics.claims import ClaimLabels, claim_metrics
from ragbench.metrics.ir_score import ir_score
from ragbench.metrics.keypoints import effective_information_rate, keypoint_metrics, reference_recall
from ragbench.metrics.lexical import bleu, exact_match, rouge_l, token_f1
from ragbench.metrics.ranking import ndcg_at_k, recall_at_k, reciprocal_rank

Value = float | Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric, or several that come out of the same labels.

    Attributes
    ----------
    needs : columns of a row that ``function`` takes, in this order.
    function : returns a number, or numbers by name; NaN where undefined.
    source : paper and equation.
    range : least and greatest value.
    names : of the numbers, where there are several.
    """

    needs: tuple[str, ...]
    function: Callable[..., Value]
    source: str
    range: tuple[float, float] = (0.0, 1.0)
    names: tuple[str, ...] = ()


def _claims(labels: ClaimLabels) -> Mapping[str, float]:
    return claim_metrics(
        labels.response_in_reference,
        labels.reference_in_response,
        labels.response_in_chunks,
        labels.reference_in_chunks,
    )


def _keypoints(verdicts: Sequence[str | None]) -> Mapping[str, float]:
    return keypoint_metrics([] if None in verdicts else verdicts)  # an unread verdict would decide between the shares


METRICS: dict[str, Metric] = {
    "ir_score": Metric(("facts", "context"), ir_score, "thesis, Eq 2.2"),
    "fully_right": Metric(("grade",), lambda grade: float(grade == 5), "thesis §2.4"),
    "ragchecker": Metric(("claim_labels",), _claims, "RAGChecker, section 3.3", names=CLAIM_METRICS),
    "ragas": Metric(
        ("ragas",), dict, "RAGAS, section 3", names=("faithfulness", "answer_relevance", "context_relevance")
    ),
    "keypoints": Metric(
        ("keypoint_verdicts",), _keypoints, "RAGEval, Eq 3-5", names=("completeness", "hallucination", "irrelevance")
    ),
    "reference_recall": Metric(("references", "chunks"), reference_recall, "RAGEval, Eq 1"),
    "eir": Metric(("references", "chunks"), effective_information_rate, "RAGEval, Eq 2"),
    "exact_match": Metric(("answer", "reference"), exact_match, "HotpotQA"),
    "token_f1": Metric(("answer", "reference"), token_f1, "HotpotQA"),
    "bleu": Metric(("answer", "reference"), bleu, "Papineni et al. 2002"),
    "rouge_l": Metric(("answer", "reference"), rouge_l, "Lin 2004"),
    "recall": Metric(("retrieved", "relevant"), recall_at_k, "share of the relevant documents retrieved"),
    "reciprocal_rank": Metric(("retrieved", "relevant"), reciprocal_rank, "1 / rank of the first relevant document"),
    "ndcg": Metric(("retrieved", "relevant"), ndcg_at_k, "Järvelin and Kekäläinen 2002"),
}
