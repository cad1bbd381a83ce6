"""RAGAS's model steps: statements of an answer, verdicts on them, questions it would answer, sentences it needs.

The embedded way is `ragbench.labelling.embedded_ragas`. Per example one call each for statements, verdicts, questions
and sentences: four, where the paper asks n times for a question (a call each, 3 + n). At temperature 0 n equal prompts
would give n equal questions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from langchain_core.embeddings import Embeddings

from ragbench.data.ragchecker import Claim
from ragbench.embedding import default_embedder, embed_distinct
from ragbench.errors import ConfigError
from ragbench.labelling.asking import (
    Context,
    Judged,
    Judgement,
    Request,
    StepReport,
    Unit,
    as_step,
    common_length,
    context_text,
    judge_items,
    names_of,
    requests_for,
    send_some,
    texts_schema,
)
from ragbench.labelling.claims import Extracted, SharedClaims, checked, claims_of_requests
from ragbench.llm import Step
from ragbench.metrics.reference_free import (
    Picked,
    answer_relevance_table,
    context_relevance_table,
    faithfulness_table,
    pick,
)
from ragbench.prompts import Prompt, load_prompt
from ragbench.text.sentences import split_sentences

# Statements, verdicts, questions

VERDICTS = ("Yes", "No")
STATEMENTS, QUESTIONS, SENTENCES = "steps_statements", "steps_questions", "steps_sentences"  # prompts


@dataclass(frozen=True, slots=True)
class Generated:
    """Questions for each answer, shape (n_answers, n); None where no reply could be read."""

    questions: tuple[tuple[str, ...] | None, ...]
    report: StepReport


def extract_statements(
    model: Any,
    questions: Sequence[str],
    answers: Sequence[str],
    *,
    shared: SharedClaims | None = None,
    prompt: Prompt = STATEMENTS,
    ids: Sequence[Any] | None = None,
    **options: Any,
) -> Extracted:
    """Take answers apart into statements, with their questions in view.

    Parameters
    ----------
    model, shared, ids, options : as for `ragbench.labelling.claims.extract_claims`, whose claims do as well where the
        answer is to be taken apart once for RAGChecker and RAGAS together.
    questions, answers : shape (n,) each.
    prompt : id or file with the fields question and answer.

    Source: RAGAS, section 3 (faithfulness, first step: one call per answer).
    """
    requests = statement_requests(questions, answers, prompt, ids)
    return claims_of_requests(model, "statements", requests, "sentence", shared, options)


def statement_verdicts(
    model: Any,
    statements: Sequence[Sequence[Claim] | None],
    contexts: Sequence[Context],
    joint: int | None = None,
    *,
    prompt: Prompt = "steps_verdicts",
    ids: Sequence[Any] | None = None,
    **options: Any,
) -> Judged:
    """Decide which statements their context supports, with a sentence that says why before each verdict.

    Parameters
    ----------
    model, ids, options : as for `extract_statements`.
    statements : from `extract_statements`, or claims from `extract_claims`; None where they are not known.
    contexts : one text, or a list of passages, per example.
    joint : statements per prompt; None: all of one answer, as in the paper. A reply with a wrong number of verdicts is
        not used, its statements are asked again one by one.
    prompt : id or file with the fields context, count and statements.

    Returns
    -------
    Judged with "Yes" or "No" per statement, None where unscored. An empty context supports nothing: No.

    Raises
    ------
    ConfigError for lists of unequal length, or one string in place of a list; DataError for a statement that is no
    text.

    Source: RAGAS, section 3 (faithfulness, second step).
    """
    names = names_of(ids, statements=statements, contexts=contexts)
    units = [
        None if claims is None else Unit(name, context_text(context, name), checked(claims, name, "statement"), {})
        for name, claims, context in zip(names, statements, contexts, strict=True)
    ]
    task = Judgement(
        "verdicts", load_prompt(prompt), VERDICTS, "No", "context", "statements", "statement", explain=True
    )
    return judge_items(model, task, units, joint, options)


def generate_questions(
    model: Any,
    answers: Sequence[str],
    n: int = 3,
    *,
    prompt: Prompt = QUESTIONS,
    ids: Sequence[Any] | None = None,
    **options: Any,
) -> Generated:
    """Write n questions that each answer would answer, in one call per different answer.

    Parameters
    ----------
    model, ids, options : as for `extract_statements`.
    answers : shape (n_answers,).
    prompt : id or file with the fields answer and count.

    Returns
    -------
    Generated. An empty answer answers nothing: no questions, no call.

    Raises
    ------
    ConfigError for n below 1.

    Source: RAGAS, section 3, Eq 1.
    """
    requests = _question_requests(answers, n, prompt, ids)
    replies, report = send_some(model, "questions", requests, options)
    written = (None if reply is None else tuple(reply.questions) for reply in replies)
    return Generated(tuple(() if r is None else texts for r, texts in zip(requests, written, strict=True)), report)


def statement_requests(
    questions: Sequence[str], answers: Sequence[str], prompt: Prompt, ids: Sequence[Any] | None = None
) -> list[Request | None]:
    """Make the prompt of each answer; None for an empty answer."""
    names = names_of(ids, questions=questions, answers=answers)
    return requests_for(names, prompt, texts_schema("claims"), "answer", question=questions, answer=answers)


def steps_for_ragas(
    questions: Sequence[str],
    answers: Sequence[str],
    contexts: Sequence[Context],
    n: int = 3,
) -> list[Step]:
    """Count the calls of the three metrics before the run, for `ragbench.llm.plan`: at most four per example.

    Returns
    -------
    [statements, verdicts, questions, sentences]. All but the verdicts have their prompts, each different one once. Of
    verdicts there is at most one call per example (``joint=None``): none for an answer without statements. Verdicts
    that come back in a wrong number are asked again one by one, which comes on top.

    Raises
    ------
    ConfigError for lists of unequal length, or ``n`` below 1.
    """
    common_length(questions=questions, answers=answers, contexts=contexts)
    texts = [context_text(context, str(i)) for i, context in enumerate(contexts)]
    taken = statement_requests(questions, answers, STATEMENTS)
    judged = {(r.prompt, text) for r, text in zip(taken, texts, strict=True) if r is not None and text}
    asked = _question_requests(answers, n, QUESTIONS, None)
    copied = sentence_requests(questions, contexts, SENTENCES, None)
    return [
        as_step("statements", taken),
        Step("verdicts, at most", calls=len(judged)),
        as_step("questions", asked),
        as_step("sentences", copied),
    ]


def _question_requests(
    answers: Sequence[str], n: int, prompt: Prompt, ids: Sequence[Any] | None
) -> list[Request | None]:
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise ConfigError(
            f"n={n!r}", "a number of questions of at least 1", "the paper's metric averages over n of them"
        )
    names, schema = names_of(ids, answers=answers), texts_schema("questions", n)
    return requests_for(names, prompt, schema, "answer", answer=answers, count=[str(n)] * len(answers))


# Sentences that a question needs, copied from a context by the model and checked to be copies


@dataclass(frozen=True, slots=True)
class PickedSentences:
    """One `Picked` per example; None where no reply could be read."""

    picked: tuple[Picked | None, ...]
    report: StepReport


def extract_sentences(
    model: Any,
    questions: Sequence[str],
    contexts: Sequence[Context],
    *,
    rule: str = "en",
    prompt: Prompt = SENTENCES,
    ids: Sequence[Any] | None = None,
    **options: Any,
) -> PickedSentences:
    """Copy from each context the sentences that its question needs, and check that they are copies.

    Parameters
    ----------
    model, ids, options : as for `extract_statements`.
    questions : shape (n,). contexts : one text, or a list of passages, per example.
    rule : a row of `ragbench.text.sentences.SENTENCES`, by which a context is cut.
    prompt : id or file with the fields context and question.

    Returns
    -------
    PickedSentences. Copies are compared without white space. An empty context has no sentences: insufficient, no call.

    Raises
    ------
    ConfigError for lists of unequal length, or a context that holds something else than texts.

    Source: RAGAS, section 3, Eq 2.
    """
    requests = sentence_requests(questions, contexts, prompt, ids)
    texts = [context_text(context, "a context") for context in contexts]
    replies, report = send_some(model, "sentences", requests, options)
    picked = [
        None if reply is None else pick(reply.sentences, split_sentences(text, rule))
        for reply, text in zip(replies, texts, strict=True)
    ]
    nothing = Picked((), (), 0, True)
    return PickedSentences(tuple(nothing if r is None else p for r, p in zip(requests, picked, strict=True)), report)


def sentence_requests(
    questions: Sequence[str], contexts: Sequence[Context], prompt: Prompt, ids: Sequence[Any] | None
) -> list[Request | None]:
    """Make the prompt of each question and context; None for an empty context."""
    names = names_of(ids, questions=questions, contexts=contexts)
    texts = [context_text(context, name) for name, context in zip(names, contexts, strict=True)]
    return requests_for(names, prompt, texts_schema("sentences"), "context", context=texts, question=questions)


# The three metrics


class ModelRagas:
    """RAGAS's three metrics by a chat model; `EmbeddedRagas` is the embedded form.

    Parameters
    ----------
    model, options : as for `ragbench.llm.ask` (``cassette``, ``concurrency`` ...).
    embedder : for answer relevance; default the embedded MiniLM (the paper: text-embedding-ada-002).
    n : generated questions per answer, in one call.

    Attributes
    ----------
    reports : what each step took, in order.
    """

    def __init__(self, model: Any, embedder: Embeddings | None = None, n: int = 3, **options: Any) -> None:
        self.model, self.n, self.options = model, n, options
        self._embedder = embedder
        self.reports: list[StepReport] = []

    def faithfulness(
        self,
        answers: Sequence[str],
        contexts: Sequence[Any],
        questions: Sequence[str] | None = None,
        claims: Sequence[Sequence[Any] | None] | None = None,
    ) -> pd.DataFrame:
        """Score answers: statements, then verdicts; at most two calls each.

        ``questions`` help to read the answers. ``claims`` of the answers, found before (RAGChecker's), serve as their
        statements, so that no answer is taken apart twice.
        """
        if claims is None:
            asked = list(questions) if questions is not None else [""] * len(answers)
            taken = extract_statements(self.model, asked, answers, **self.options)
            claims = taken.claims
            self.reports.append(taken.report)
        judged = statement_verdicts(self.model, claims, contexts, **self.options)
        self.reports.append(judged.report)
        return faithfulness_table(judged.labels).rename(columns={"faithfulness": "score"})

    def answer_relevance(self, questions: Sequence[str], answers: Sequence[str]) -> pd.DataFrame:
        """Score answers by the questions they would answer; one call each."""
        guessed = generate_questions(self.model, answers, self.n, **self.options)
        self.reports.append(guessed.report)
        texts = [text for guesses in guessed.questions if guesses for text in guesses]
        vectors = embed_distinct(self._embedder or default_embedder(), [*questions, *texts])
        generated = [
            None if guesses is None else np.array([vectors[g] for g in guesses]) for guesses in guessed.questions
        ]
        table = answer_relevance_table([vectors[q] for q in questions], generated)
        return table.rename(columns={"answer_relevance": "score"})

    def context_relevance(self, questions: Sequence[str], contexts: Sequence[Any]) -> pd.DataFrame:
        """Score contexts by the sentences copied from them; one call each. Column altered: texts that are no copies."""
        copied = extract_sentences(self.model, questions, contexts, **self.options)
        self.reports.append(copied.report)
        known = [(None, 0) if p is None else (len(p.sentences), p.total) for p in copied.picked]
        table = context_relevance_table([count for count, _ in known], [total for _, total in known])
        table["altered"] = [0 if p is None else len(p.altered) for p in copied.picked]
        return table.rename(columns={"context_relevance": "score"})
