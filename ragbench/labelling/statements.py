"""RAGAS's labels: statements of an answer, verdicts on them, questions it would answer, sentences
it needs.

`ModelRagas` has the four steps of a model and the three metrics: three calls per example, and one
per statement (in the paper one for all statements, which small models label by their place). The
paper asks n times for a question: at temperature 0 n equal prompts would give n equal questions.
How far a model agrees with the way WikiEval was made: notebook 30.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import pandas as pd
from langchain_core.embeddings import Embeddings
from pydantic import BaseModel, Field

from ragbench.data.ragchecker import Claim
from ragbench.embedding import embed_distinct, make_embedder
from ragbench.labelling.asking import Context, LabelStep
from ragbench.metrics.reference_free import (
    ExtractedSentences,
    answer_relevance,
    context_relevance,
    faithfulness,
)
from ragbench.text.sentences import split_sentences

_STATEMENTS = LabelStep.of_texts("statements", "steps_statements", "answer", "claims")
_SENTENCES = LabelStep.of_texts("sentences", "steps_sentences", "context", "sentences")


# A label after a sentence that says why. Names and fields are a part of recorded requests.
class _OneVerdict(BaseModel, extra="forbid", title="LabelsFor1"):
    class Verdict(BaseModel, extra="forbid"):
        why: str
        verdict: Literal["Yes", "No"]

    labels: Annotated[list[Verdict], Field(min_length=1, max_length=1)]


_VERDICTS = LabelStep(
    "verdicts",
    "steps_verdicts",
    _OneVerdict,
    "context",
    lambda reply: reply.labels[0].verdict,
    blank="No",
    items="statements",
)


class ModelRagas:
    """RAGAS's labels and its three metrics by a chat model.

    Every metric is a DataFrame, one row per example: score, n (what it counts), status ("scored",
    or why the score is NaN), and the labels behind the score. Contexts are one text, or a list of
    passages, per example.

    Parameters
    ----------
    model, options : see `ragbench.labelling.asking`.
    embedder : for answer relevance; default MiniLM (the paper: text-embedding-ada-002).
    n : generated questions per answer, in one call.

    >>> rb.ModelRagas("ollama:llama3:8b", rb.MiniLM()).n
    3
    """

    def __init__(
        self,
        model: Any,
        embedder: Embeddings | None = None,
        n: int = 3,
        **options: Any,
    ) -> None:
        self.model = model
        self.embedder = embedder
        self.n = n
        self.options = options

    def statements(
        self, questions: Sequence[str], answers: Sequence[str]
    ) -> list[tuple[str, ...] | None]:
        """Split answers into statements, with their questions in view; an empty answer has none
        and needs no call.

        Source: RAGAS, section 3 (faithfulness, first step: one call per answer).
        """
        return _STATEMENTS.ask(self.model, self.options, question=questions, answer=answers)

    def verdicts(
        self, statements: Sequence[Sequence[Claim] | None], contexts: Sequence[Context]
    ) -> list[tuple[str | None, ...] | None]:
        """Decide which statements their context supports: "Yes" or "No" each, after a sentence
        that says why.

        ``statements``: as `statements` gives them, or claims; None where they are not known. An
        empty context supports nothing: No.

        Source: RAGAS, section 3 (faithfulness, second step, where one prompt has all statements).
        """
        return _VERDICTS.ask_items(self.model, self.options, statements, context=contexts)

    def questions(self, answers: Sequence[str]) -> list[tuple[str, ...] | None]:
        """Write n questions that each answer would answer, in one call per different answer; none
        for an empty answer.

        Source: RAGAS, section 3, Eq 1.
        """
        step = LabelStep.of_texts("questions", "steps_questions", "answer", "questions", self.n)
        counts = [str(self.n)] * len(answers)
        return step.ask(self.model, self.options, answer=answers, count=counts)

    def sentences(
        self, questions: Sequence[str], contexts: Sequence[Context]
    ) -> list[ExtractedSentences | None]:
        """Copy from each context the sentences that its question needs, one `ExtractedSentences`
        each.

        An empty context is insufficient, without a call.

        Source: RAGAS, section 3, Eq 2.
        """
        copied = _SENTENCES.ask(self.model, self.options, context=contexts, question=questions)
        extracted: list[ExtractedSentences | None] = []
        for copies, context in zip(copied, contexts, strict=True):
            if copies is None:
                extracted.append(None)
                continue
            sentences = split_sentences(LabelStep.context_text(context, "context"), "en")
            extracted.append(ExtractedSentences.of(copies, sentences))
        return extracted

    def faithfulness(
        self,
        questions: Sequence[str],
        answers: Sequence[str],
        contexts: Sequence[Context],
    ) -> pd.DataFrame:
        """Score how far contexts back answers: statements, made with the questions in view, then
        verdicts (column ``verdicts``).
        """
        statements = self.statements(questions, answers)
        rows = []
        for verdicts in self.verdicts(statements, contexts):
            if verdicts is None:
                rows.append((math.nan, 0, "statements unread", None))
                continue
            score = faithfulness(verdicts)
            why = "unread verdicts" if None in verdicts else "no statements"
            rows.append((score, len(verdicts), _status(score, why), verdicts))
        return pd.DataFrame(rows, columns=["score", "n", "status", "verdicts"])

    def answer_relevance(self, questions: Sequence[str], answers: Sequence[str]) -> pd.DataFrame:
        """Score answers by the questions they would answer; one call each.

        Column ``cosines``: of each generated question to the question.
        """
        generated = self.questions(answers)
        every = [*questions, *itertools.chain.from_iterable(filter(None, generated))]
        vectors = embed_distinct(self.embedder or make_embedder(), every)
        rows = []
        for question, texts in zip(questions, generated, strict=True):
            if texts is None:
                rows.append((math.nan, 0, "questions unread", None))
                continue
            of_question = vectors[question]
            of_texts = [vectors[text] for text in texts]
            score = answer_relevance(of_question, of_texts)
            cosines = [answer_relevance(of_question, [vector]) for vector in of_texts]
            why = "zero vector" if texts else "no questions"
            rows.append((score, len(texts), _status(score, why), cosines))
        return pd.DataFrame(rows, columns=["score", "n", "status", "cosines"])

    def context_relevance(
        self, questions: Sequence[str], contexts: Sequence[Context]
    ) -> pd.DataFrame:
        """Score contexts by the sentences copied from them; one call each.

        Columns ``extracted`` (sentences of the context that count) and ``altered`` (texts that are
        no copies).
        """
        rows = []
        for sentences in self.sentences(questions, contexts):
            if sentences is None:
                rows.append((math.nan, 0, "extraction unread", 0, 0))
                continue
            extracted = len(sentences.sentences)
            score = context_relevance(extracted, sentences.total)
            status = _status(score, "empty context")
            rows.append((score, sentences.total, status, extracted, len(sentences.altered)))
        return pd.DataFrame(rows, columns=["score", "n", "status", "extracted", "altered"])


def _status(score: float, why: str) -> str:
    return why if math.isnan(score) else "scored"
