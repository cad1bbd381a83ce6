"""RAGAS's labels: statements of an answer, verdicts on them, questions it would answer, sentences
it needs.

Four steps of a model, and `ModelRagas` with the three metrics: three calls per example, and one per
statement (in the paper one for all statements, which small models label by their place). The paper
asks n times for a question: at temperature 0 n equal prompts would give n equal questions. How far
a model agrees with the way WikiEval was made: `ragbench.papers.ragas`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import pandas as pd
from langchain_core.embeddings import Embeddings

from ragbench.data.ragchecker import Claim
from ragbench.embedding import default_embedder, embed_distinct
from ragbench.labelling.asking import (
    Context,
    ItemStep,
    LabelStep,
    context_text,
    explained_label,
    names_of,
    texts_schema,
)
from ragbench.metrics.reference_free import (
    ExtractedSentences,
    answer_relevance,
    context_relevance,
    faithfulness,
    match_sentences,
)
from ragbench.text.sentences import split_sentences

_STATEMENTS = LabelStep(
    "statements",
    "steps_statements",
    texts_schema("claims"),
    "answer",
    lambda reply: tuple(reply.claims),
)
_VERDICTS = ItemStep(
    LabelStep(
        "verdicts",
        "steps_verdicts",
        explained_label(("Yes", "No")),
        "context",
        lambda reply: reply.labels[0].verdict,
        blank="No",
    ),
    "statements",
)
_SENTENCES = LabelStep(
    "sentences",
    "steps_sentences",
    texts_schema("sentences"),
    "context",
    lambda reply: reply.sentences,
)


def extract_statements(
    model: Any, questions: Sequence[str], answers: Sequence[str], **options: Any
) -> list[tuple[str, ...] | None]:
    """Split answers into statements, with their questions in view; an empty answer has none and
    needs no call.

    Source: RAGAS, section 3 (faithfulness, first step: one call per answer).
    """
    names = names_of(options, questions=questions, answers=answers)
    return _STATEMENTS.ask(model, names, {"question": questions, "answer": answers}, options)


def statement_verdicts(
    model: Any,
    statements: Sequence[Sequence[Claim] | None],
    contexts: Sequence[Context],
    **options: Any,
) -> list[tuple[str | None, ...] | None]:
    """Decide which statements their context supports: "Yes" or "No" each, after a sentence that
    says why.

    ``statements``: from `extract_statements`, or claims from `extract_claims`; None where they are
    not known. ``contexts``: one text, or a list of passages, per example; an empty one supports
    nothing: No.

    Source: RAGAS, section 3 (faithfulness, second step, where one prompt has all statements).
    """
    return _VERDICTS.ask(model, statements, contexts, options)


def generate_questions(
    model: Any, answers: Sequence[str], n: int = 3, **options: Any
) -> list[tuple[str, ...] | None]:
    """Write n questions that each answer would answer, in one call per different answer; none for
    an empty answer.

    Source: RAGAS, section 3, Eq 1.
    """
    names = names_of(options, answers=answers)
    schema = texts_schema("questions", n)
    step = LabelStep(
        "questions", "steps_questions", schema, "answer", lambda reply: tuple(reply.questions)
    )
    return step.ask(model, names, {"answer": answers, "count": [str(n)] * len(answers)}, options)


def extract_sentences(
    model: Any, questions: Sequence[str], contexts: Sequence[Context], **options: Any
) -> list[ExtractedSentences | None]:
    """Copy from each context the sentences that its question needs, one `ExtractedSentences` each.

    ``contexts`` : one text, or a list of passages, per example; an empty one is insufficient,
    without a call.

    Source: RAGAS, section 3, Eq 2.
    """
    names = names_of(options, questions=questions, contexts=contexts)
    texts = [context_text(context, name) for name, context in zip(names, contexts, strict=True)]
    copied = _SENTENCES.ask(model, names, {"context": texts, "question": questions}, options)
    return [
        None if copies is None else match_sentences(copies, split_sentences(text, "en"))
        for copies, text in zip(copied, texts, strict=True)
    ]


class ModelRagas:
    """RAGAS's three metrics by a chat model.

    Every metric is a DataFrame, one row per example: score, n (what it counts), status ("scored",
    or why the score is NaN), and the labels behind the score.

    Parameters
    ----------
    model, options : as for `ragbench.llm.ask`.
    embedder : for answer relevance; default MiniLM (the paper: text-embedding-ada-002).
    n : generated questions per answer, in one call.
    """

    def __init__(
        self,
        model: Any,
        embedder: Embeddings | None = None,
        n: int = 3,
        **options: Any,
    ) -> None:
        self.model = model
        self.embedder = embedder or default_embedder()
        self.n = n
        self.options = options

    def faithfulness(
        self,
        answers: Sequence[str],
        contexts: Sequence[Context],
        questions: Sequence[str] | None = None,
    ) -> pd.DataFrame:
        """Score how far contexts back answers: statements, then verdicts (column ``verdicts``).

        ``questions`` help to read the answers.
        """
        questions = [""] * len(answers) if questions is None else questions
        extracted = extract_statements(self.model, questions, answers, **self.options)
        judged = statement_verdicts(self.model, extracted, contexts, **self.options)
        rows = []
        for verdicts in judged:
            score = math.nan if verdicts is None else faithfulness(verdicts)
            why = "no statements"
            if verdicts is None:
                why = "statements unread"
            elif None in verdicts:
                why = "unread verdicts"
            rows.append((score, len(verdicts or ()), _status(score, why), verdicts))
        return pd.DataFrame(rows, columns=["score", "n", "status", "verdicts"])

    def answer_relevance(self, questions: Sequence[str], answers: Sequence[str]) -> pd.DataFrame:
        """Score answers by the questions they would answer; one call each.

        Column ``cosines``: of each generated question to the question.
        """
        generated = generate_questions(self.model, answers, self.n, **self.options)
        texts = itertools.chain.from_iterable(filter(None, generated))
        vectors = embed_distinct(self.embedder, [*questions, *texts])
        rows = []
        for question, texts in zip(questions, generated, strict=True):
            if texts is None:
                rows.append((math.nan, 0, "questions unread", None))
                continue
            vector = vectors[question]
            score = answer_relevance(vector, [vectors[text] for text in texts])
            cosines = [answer_relevance(vector, [vectors[text]]) for text in texts]
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
        copied = extract_sentences(self.model, questions, contexts, **self.options)
        rows = []
        for found in copied:
            if found is None:
                rows.append((math.nan, 0, "extraction unread", 0, 0))
                continue
            score = context_relevance(len(found.sentences), found.total)
            counts = (len(found.sentences), len(found.altered))
            rows.append((score, found.total, _status(score, "empty context"), *counts))
        return pd.DataFrame(rows, columns=["score", "n", "status", "extracted", "altered"])


def _status(score: float, why: str) -> str:
    return why if math.isnan(score) else "scored"
