"""From labels to one table: a row per answer, a column per metric of the four papers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ragbench.concordance.cases import Case, check_cases
from ragbench.concordance.labels import RAGAS, Labels
from ragbench.errors import DataError
from ragbench.metrics.claims import METRICS as CLAIM_METRICS

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric of the table: whose it is, what it looks at, and whether more of it is better.

    ``reads`` is "answer" (with the true answer), "answer and context", or "context".
    """

    name: str
    paper: str
    reads: str
    higher: bool = True


_WORSE = {"relevant_noise_sensitivity", "irrelevant_noise_sensitivity", "hallucination", "self_knowledge"}
_OF_ANSWER = {"precision", "recall", "f1"}
_OF_CONTEXT = {"claim_recall", "context_precision"}


def _claim_metric(name: str) -> Metric:
    reads = "answer" if name in _OF_ANSWER else "context" if name in _OF_CONTEXT else "answer and context"
    return Metric(f"RAGChecker {name.replace('_', ' ')}", "RAGChecker", reads, name not in _WORSE)


METRICS: tuple[Metric, ...] = (
    Metric("IR score", "thesis", "context"),
    Metric("grader: fully right", "thesis", "answer"),
    *(_claim_metric(name) for name in CLAIM_METRICS),
    Metric("RAGAS faithfulness", "RAGAS", "answer and context"),
    Metric("RAGAS answer relevance", "RAGAS", "answer"),
    Metric("RAGAS context relevance", "RAGAS", "context"),
    Metric("RAGEval completeness", "RAGEval", "answer"),
    Metric("RAGEval hallucination", "RAGEval", "answer", higher=False),
    Metric("RAGEval irrelevance", "RAGEval", "answer", higher=False),
    Metric("RAGEval recall", "RAGEval", "context"),
    Metric("RAGEval EIR", "RAGEval", "context"),
    Metric("exact match", "lexical", "answer"),
    Metric("token F1", "lexical", "answer"),
    Metric("ROUGE-L", "lexical", "answer"),
    Metric("BLEU", "lexical", "answer"),
    Metric("IDF overlap", "lexical", "answer"),
    Metric("judge: preference", "ragbench", "answer"),
)


def score_table(cases: Sequence[Case], labels: Labels) -> pd.DataFrame:
    """Score every case by every metric.

    Parameters
    ----------
    cases : what is scored. labels : of the same cases, in their order.

    Returns
    -------
    DataFrame, one row per case: case, question_id, kind, system, grade (missing where nobody graded), the names of
    `METRICS` (NaN where undefined or unread), and the counts they rest on: response claims, reference claims, chunks,
    keypoints.

    Raises
    ------
    DataError when labels and cases differ in number, or an id is used twice.

    Source: thesis Eq 2.2 and §2.4; RAGChecker §3.3; RAGAS §3; RAGEval Eq 1-5.
    """
    import pandas as pd

    from ragbench.metrics.claims import COUNTS
    from ragbench.metrics.keypoints import keypoint_table, passage_table

    check_cases(cases)
    if len(labels.claims) != len(cases):
        raise DataError(f"{len(labels.claims)} labels for {len(cases)} cases", "one of each", "label these cases")
    claims = _claim_scores(labels)
    keypoints = keypoint_table(labels.verdicts)
    references = [c.question.references for c in cases]
    passages = passage_table(references, [c.chunks for c in cases], variant="paper")
    columns = {
        "IR score": _ir_scores(cases),
        "grader: fully right": labels.right,
        **{m.name: claims[:, i] for i, m in enumerate(METRICS[2 : 2 + len(CLAIM_METRICS)])},
        **{f"RAGAS {name.replace('_', ' ')}": labels.ragas[name] for name in RAGAS},
        **{f"RAGEval {name}": keypoints[name] for name in ("completeness", "hallucination", "irrelevance")},
        "RAGEval recall": passages["recall"],
        "RAGEval EIR": passages["eir"],
        **_lexical(cases),
        "judge: preference": labels.preference,
    }
    about = {
        "case": [c.id for c in cases],
        "question_id": [c.question.id for c in cases],
        "kind": [c.question.kind for c in cases],
        "system": [c.system for c in cases],
        "grade": pd.array([c.grade for c in cases], dtype="Int64"),
    }
    counts = {name[2:].replace("_", " "): claims[:, len(CLAIM_METRICS) + i] for i, name in enumerate(COUNTS[:3])}
    counts["keypoints"] = keypoints["n"]
    scores = {m.name: np.asarray(columns[m.name], float) for m in METRICS}
    return pd.DataFrame({**about, **scores, **{k: np.asarray(v, float) for k, v in counts.items()}})


def defined(table: pd.DataFrame) -> pd.DataFrame:
    """Count, per metric, the answers that have a value.

    Returns
    -------
    DataFrame: metric, paper, reads, n (with a value), undefined, distinct (different values), mean.
    """
    import pandas as pd

    rows = []
    for metric in METRICS:
        values = table[metric.name]
        n = int(values.notna().sum())
        distinct = values.round(6).nunique()
        rows.append((metric.name, metric.paper, metric.reads, n, len(values) - n, distinct, values.mean()))
    return pd.DataFrame(rows, columns=["metric", "paper", "reads", "n", "undefined", "distinct", "mean"])


def _claim_scores(labels: Labels) -> np.ndarray:
    """RAGChecker's metrics and counts, shape (n, 11 + 5); a row of NaN where there are no labels."""
    from ragbench.metrics.claims import claim_metrics_table

    known = [i for i, own in enumerate(labels.claims) if own is not None]
    scores = np.full((len(labels.claims), 16), np.nan)
    if known:
        scores[known] = claim_metrics_table([labels.claims[i] for i in known]).to_numpy(float)
    return scores


def _ir_scores(cases: Sequence[Case]) -> np.ndarray:
    from ragbench.metrics.ir_score import ir_score_table

    texts = [c.context for c in cases]
    ends = np.array([[len(text)] for text in texts], dtype=np.int64)
    longest = max(1, max(len(text) for text in texts))
    references = [list(c.question.references) for c in cases]
    return ir_score_table(references, texts, [longest], match="exact", positions=ends)[:, 0]


def _lexical(cases: Sequence[Case]) -> dict[str, list[float]]:
    from ragbench.metrics.lexical import bleu, exact_match, idf_overlap, idf_weights, rouge_l, token_f1

    idf = idf_weights({c.question.id: f"{c.question.answer} {c.question.text}" for c in cases}.values())
    pairs = [(c.answer, c.question.answer) for c in cases]
    return {
        "exact match": [exact_match(a, r) for a, r in pairs],
        "token F1": [token_f1(a, r) for a, r in pairs],
        "ROUGE-L": [rouge_l(a, r) for a, r in pairs],
        "BLEU": [bleu(a, r) for a, r in pairs],
        "IDF overlap": [idf_overlap(a, r, idf) for a, r in pairs],
    }
