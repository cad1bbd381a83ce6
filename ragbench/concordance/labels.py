"""The labels that all metrics need, made once for all cases: by the embedded tools, or by a language model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ragbench.concordance.cases import Case, check_cases
from ragbench.labelling.keypoints import VERDICT_OF
from ragbench.metrics.claims import ClaimLabels

if TYPE_CHECKING:
    from langchain_core.embeddings import Embeddings

    from ragbench.data.ragchecker import RagResult
    from ragbench.llm import Step

RAGAS = ("faithfulness", "answer_relevance", "context_relevance")


@dataclass(frozen=True)
class Labels:
    """What the metrics are computed from, one entry per case.

    Attributes
    ----------
    claims : RAGChecker's four sets of labels; None where a claim or a check could not be read.
    verdicts : RAGEval's verdict per keypoint; None for an unread one.
    ragas : metric -> scores, NaN where undefined or unread.
    right : probability of grade 5 (a model's grade: 1 or 0), NaN when ungraded.
    preference : score of the embedded judge against the long true answer; NaN where a model labelled.
    by : who labelled.
    """

    claims: tuple[ClaimLabels | None, ...]
    verdicts: tuple[tuple[str | None, ...], ...]
    ragas: dict[str, np.ndarray]
    right: np.ndarray
    preference: np.ndarray
    by: str


class Once:
    """An embedder that embeds every text once and keeps its vector; the embedded tools below share one.

    Parameters
    ----------
    embedder : a LangChain ``Embeddings``.
    """

    def __init__(self, embedder: Any) -> None:
        self._make = getattr(embedder, "embed_array", embedder.embed_documents)
        self._kept: dict[str, np.ndarray] = {}

    def embed_array(self, texts: Sequence[str]) -> np.ndarray:
        """Return the vectors of texts: float32, shape (len(texts), dimension)."""
        new = [text for text in dict.fromkeys(texts) if text not in self._kept]
        if new:
            self._kept.update(zip(new, np.asarray(self._make(new), np.float32), strict=True))
        return np.array([self._kept[text] for text in texts], np.float32)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """As LangChain's."""
        return self.embed_array(texts).tolist()

    def embed_query(self, text: str) -> list[float]:
        """As LangChain's."""
        return self.embed_documents([text])[0]


def embedded_labels(cases: Sequence[Case], embedder: Embeddings | None = None) -> Labels:
    """Label cases without a language model: sentence claims, and the embedded checker, RAGAS, grader and judge.

    Parameters
    ----------
    cases : what is scored. Claims are checked against the chunks as they are cut; equal work is done once.
    embedder : a LangChain ``Embeddings`` with unit vectors; default the embedded MiniLM.

    Returns
    -------
    Labels, ``by`` "embedded".

    Source: stand-ins for the papers' model steps, see `ragbench.labelling`.
    """
    from ragbench.embedding import default_embedder
    from ragbench.labelling.claims import embedded_labels as label_claims
    from ragbench.labelling.embedded_checker import EmbeddedChecker
    from ragbench.labelling.embedded_grader import EmbeddedGrader
    from ragbench.labelling.embedded_judge import EmbeddedJudge
    from ragbench.labelling.embedded_ragas import EmbeddedRagas
    from ragbench.records import Answer

    check_cases(cases)
    once: Any = Once(embedder or default_embedder())
    once.embed_array(_texts(cases))  # one call for all, instead of one per step and text
    checker = EmbeddedChecker(once)
    labelled = label_claims(results_of(cases), checker)
    ragas = EmbeddedRagas(once)
    answers, questions = [c.answer for c in cases], [c.question.text for c in cases]
    contexts = [c.context for c in cases]
    scores = {
        "faithfulness": ragas.faithfulness(answers, contexts),
        "answer_relevance": ragas.answer_relevance(questions, answers),
        "context_relevance": _shared(ragas.context_relevance, questions, contexts),
    }
    grader = EmbeddedGrader()
    asked = list({c.question.id: c.question for c in cases}.values())
    graded = grader.grade_all(asked, [Answer(c.question.id, c.answer, "") for c in cases])
    right = [np.nan if g.value is None else g.meta["probabilities"][4] for g in graded]
    preference = EmbeddedJudge(embedder=once).scores(answers, [c.reference for c in cases], questions)
    return Labels(
        tuple(_claim_labels(row) for row in labelled.results.results),
        _keypoint_verdicts(cases, checker),
        {name: table["score"].to_numpy(float) for name, table in scores.items()},
        np.array(right, float),
        preference,
        "embedded",
    )


def model_labels(model: Any, cases: Sequence[Case], embedder: Embeddings | None = None, **options: Any) -> Labels:
    """Label cases by a chat model: the papers' own way. Reply by reply through `ragbench.llm.ask`.

    An answer is taken apart once: RAGChecker's claims are the statements that RAGAS's faithfulness judges, too.

    Parameters
    ----------
    model, options : as for `ragbench.llm.ask` (``cassette``, ``concurrency`` ...).
    cases : what is scored.
    embedder : of answer relevance; default the embedded MiniLM.

    Returns
    -------
    Labels; what could not be read is None or NaN.
    """
    from ragbench.labelling.claims import ragchecker_labels
    from ragbench.labelling.grades import grade
    from ragbench.labelling.keypoints import keypoint_verdicts
    from ragbench.papers.ragas import LiveRagas
    from ragbench.records import Answer

    check_cases(cases)
    answers, questions = [c.answer for c in cases], [c.question.text for c in cases]
    contexts = [c.context for c in cases]
    labelled = ragchecker_labels(model, results_of(cases), **options)
    # Taken apart once: RAGAS's statements are RAGChecker's claims here.
    claims = [row.response_claims for row in labelled.results.results]
    ragas = LiveRagas(model, embedder, **options)
    scores = {
        "faithfulness": ragas.faithfulness(answers, contexts, claims=claims),
        "answer_relevance": ragas.answer_relevance(questions, answers),
        "context_relevance": ragas.context_relevance(questions, contexts),
    }
    verdicts = keypoint_verdicts(model, questions, answers, [c.keypoints for c in cases], **options)
    asked = list({c.question.id: c.question for c in cases}.values())
    grades = grade(model, asked, [Answer(c.question.id, c.answer, "") for c in cases], **options)
    return Labels(
        tuple(_claim_labels(row) for row in labelled.results.results),
        tuple(tuple(own) if own is not None else (None,) for own in verdicts.labels),
        {name: table["score"].to_numpy(float) for name, table in scores.items()},
        np.array([np.nan if g.value is None else float(g.value == 5) for g in grades]),
        np.full(len(cases), np.nan),
        str(getattr(model, "model", None) or model),
    )


def model_steps(cases: Sequence[Case], claims_per_text: int = 5) -> list[Step]:
    """Count the calls of `model_labels` before the run, for `ragbench.llm.plan`.

    Parameters
    ----------
    cases : what is scored. claims_per_text : claims to reckon with in an answer that has not been taken apart.
    """
    from ragbench.labelling.claims import steps_for_ragchecker
    from ragbench.labelling.grades import grading_prompts
    from ragbench.labelling.keypoints import steps_for_keypoints
    from ragbench.labelling.statements import steps_for_ragas
    from ragbench.llm import Step
    from ragbench.records import Answer

    answers, questions = [c.answer for c in cases], [c.question.text for c in cases]
    asked = list({c.question.id: c.question for c in cases}.values())
    prompts = grading_prompts(asked, [Answer(c.question.id, c.answer, "") for c in cases])
    return [
        *steps_for_ragchecker(results_of(cases), claims_per_text=claims_per_text),
        *steps_for_ragas(questions, answers, [c.context for c in cases])[1:],  # its statements are the claims above
        *steps_for_keypoints(questions, answers, [c.keypoints for c in cases]),
        Step("grades", prompts=[p.text for p in prompts], schema=[p.schema for p in prompts]),
    ]


def results_of(cases: Sequence[Case]) -> list[RagResult]:
    """Turn cases into RAGChecker's records, with the claims of the true answer where the data set has them."""
    from ragbench.data.ragchecker import RagResult, RetrievedText

    return [
        RagResult(
            c.id, c.question.text, c.reference, c.answer, tuple(RetrievedText(text=text) for text in c.chunks),
            reference_claims=c.reference_claims,
        )
        for c in cases
    ]  # fmt: skip


def _texts(cases: Sequence[Case]) -> list[str]:
    """Every text that the embedded steps below compare by its vector."""
    from ragbench.labelling.embedded_checker import split_claims
    from ragbench.text.sentences import split_sentences

    whole = {t for c in cases for t in (c.question.text, c.answer, c.reference, *c.reference_claims, *c.keypoints)}
    answers = {claim for text in {c.answer for c in cases} for claim in split_claims(text)}
    # A join of chunks may make one sentence of two ends, so contexts are split as a whole too.
    apart = {t for c in cases for t in (c.context, c.answer, c.reference, *c.chunks)}
    sentences = {sentence for text in apart for sentence in split_sentences(text, "claims")}
    return sorted(text for text in whole | answers | sentences if text.strip())


def _shared(score: Any, questions: Sequence[str], contexts: Sequence[str]) -> Any:
    """Score each different (question, context) once: the answers to a question share them."""
    pairs = list(zip(questions, contexts, strict=True))
    place = {pair: i for i, pair in enumerate(dict.fromkeys(pairs))}
    table = score([q for q, _ in place], [c for _, c in place])
    return table.iloc[[place[pair] for pair in pairs]].reset_index(drop=True)


def _keypoint_verdicts(cases: Sequence[Case], checker: Any) -> tuple[tuple[str | None, ...], ...]:
    kept = checker.warm([k for c in cases for k in c.keypoints], [c.answer for c in cases])
    made = []
    for case in cases:
        labels = kept.check(list(case.keypoints), case.answer) if case.keypoints else []
        made.append(tuple(VERDICT_OF[label] for label in labels))
    return tuple(made)


def _claim_labels(row: Any) -> ClaimLabels | None:
    if row.missing():
        return None
    return ClaimLabels(
        row.response_in_reference, row.reference_in_response, row.response_in_chunks, row.reference_in_chunks, row.id
    )
