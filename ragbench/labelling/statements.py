"""RAGAS's labels: statements of an answer, verdicts on them, questions it would answer, sentences it needs.

By a model: four steps, and `ModelRagas` with the three metrics. Four calls per example, where the paper asks n times
for a question (3 + n calls): at temperature 0 n equal prompts would give n equal questions. Without a model:
`EmbeddedRagas`. How far both agree with people: `ragbench.papers.ragas`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from langchain_core.embeddings import Embeddings

from ragbench.data.ragchecker import Claim
from ragbench.embedding import default_embedder, embed_distinct
from ragbench.errors import ConfigError
from ragbench.labelling.asking import (
    Context,
    JointStep,
    LabelResult,
    LabelStep,
    StepReport,
    context_text,
    names_of,
    texts_schema,
)
from ragbench.labelling.checkers import EmbeddedChecker, split_claims
from ragbench.metrics.reference_free import (
    ExtractedSentences,
    answer_relevance_table,
    context_relevance,
    context_relevance_table,
    faithfulness_table,
    match_sentences,
)
from ragbench.text.negation import abstains
from ragbench.text.parse import ParsedText, parse
from ragbench.text.sentences import split_sentences
from ragbench.text.words import ANY_MONTH, TENS, UNITS

_STATEMENTS = LabelStep(
    "statements", "steps_statements", texts_schema("claims"), "answer", lambda reply: tuple(reply.claims)
)
_VERDICTS = JointStep("verdicts", "steps_verdicts", ("Yes", "No"), "No", "context", "statements", explain=True)
_SENTENCES = LabelStep(
    "sentences", "steps_sentences", texts_schema("sentences"), "context", lambda reply: reply.sentences
)


def extract_statements(model: Any, questions: Sequence[str], answers: Sequence[str], **options: Any) -> LabelResult:
    """Split answers into statements, with their questions in view; an empty answer has none and needs no call.

    Source: RAGAS, section 3 (faithfulness, first step: one call per answer).
    """
    names = names_of(options, questions=questions, answers=answers)
    return _STATEMENTS.ask(model, names, {"question": questions, "answer": answers}, options)


def statement_verdicts(
    model: Any,
    statements: Sequence[Sequence[Claim] | None],
    contexts: Sequence[Context],
    joint: int | None = None,
    **options: Any,
) -> LabelResult:
    """Decide which statements their context supports: "Yes" or "No" each, after a sentence that says why.

    ``statements``: from `extract_statements`, or claims from `extract_claims`; None where they are not known.
    ``contexts``: one text, or a list of passages, per example; an empty one supports nothing: No. ``joint``: statements
    per prompt, as for `ragbench.labelling.claims.check_claims`; None is the paper's way.

    Source: RAGAS, section 3 (faithfulness, second step).
    """
    return _VERDICTS.ask(model, statements, contexts, joint, options)


def generate_questions(model: Any, answers: Sequence[str], n: int = 3, **options: Any) -> LabelResult:
    """Write n questions that each answer would answer, in one call per different answer; none for an empty answer.

    Source: RAGAS, section 3, Eq 1.
    """
    if n < 1:
        raise ConfigError(f"n={n!r}", "a number of questions of at least 1", "the paper's metric averages over n")
    names = names_of(options, answers=answers)
    schema = texts_schema("questions", n)
    step = LabelStep("questions", "steps_questions", schema, "answer", lambda reply: tuple(reply.questions))
    return step.ask(model, names, {"answer": answers, "count": [str(n)] * len(answers)}, options)


def extract_sentences(model: Any, questions: Sequence[str], contexts: Sequence[Context], **options: Any) -> LabelResult:
    """Copy from each context the sentences that its question needs, one `ExtractedSentences` each.

    ``contexts`` : one text, or a list of passages, per example; an empty one is insufficient, without a call.

    Source: RAGAS, section 3, Eq 2.
    """
    names = names_of(options, questions=questions, contexts=contexts)
    texts = [context_text(context, name) for name, context in zip(names, contexts, strict=True)]
    copied = _SENTENCES.ask(model, names, {"context": texts, "question": questions}, options)
    matched = (
        None if copies is None else match_sentences(copies, split_sentences(text, "en"))
        for copies, text in zip(copied.labels, texts, strict=True)
    )
    return replace(copied, labels=tuple(matched))


class ModelRagas:
    """RAGAS's three metrics by a chat model; `EmbeddedRagas` is the embedded form.

    Every metric is a DataFrame, one row per example: score in [0, 1], n (what it counts), status ("scored", or why the
    score is NaN). ``reports`` says what each step took, in order.

    ``model``, ``options``: as for `ragbench.llm.ask`. ``embedder``: for answer relevance; default the embedded MiniLM
    (the paper: text-embedding-ada-002). ``n``: generated questions per answer, in one call.
    """

    def __init__(self, model: Any, embedder: Embeddings | None = None, n: int = 3, **options: Any) -> None:
        self.model, self.n, self.options = model, n, options
        self.embedder = embedder or default_embedder()
        self.reports: list[StepReport] = []

    def faithfulness(
        self, answers: Sequence[str], contexts: Sequence[Context], questions: Sequence[str] | None = None
    ) -> pd.DataFrame:
        """Score how far contexts back answers: statements, then verdicts; at most two calls each.

        ``questions`` help to read the answers.
        """
        asked = [""] * len(answers) if questions is None else questions
        extracted = extract_statements(self.model, asked, answers, **self.options)
        judged = statement_verdicts(self.model, extracted.labels, contexts, **self.options)
        self.reports += [extracted.report, judged.report]
        return faithfulness_table(judged.labels).rename(columns={"faithfulness": "score"})

    def answer_relevance(self, questions: Sequence[str], answers: Sequence[str]) -> pd.DataFrame:
        """Score answers by the questions they would answer; one call each."""
        guessed = generate_questions(self.model, answers, self.n, **self.options)
        self.reports.append(guessed.report)
        texts = itertools.chain.from_iterable(filter(None, guessed.labels))
        vectors = embed_distinct(self.embedder, [*questions, *texts])
        generated = [None if guesses is None else np.array([vectors[g] for g in guesses]) for guesses in guessed.labels]
        table = answer_relevance_table([vectors[q] for q in questions], generated)
        return table.rename(columns={"answer_relevance": "score"})

    def context_relevance(self, questions: Sequence[str], contexts: Sequence[Context]) -> pd.DataFrame:
        """Score contexts by the sentences copied from them; one call each. Column altered: texts that are no copies."""
        copied = extract_sentences(self.model, questions, contexts, **self.options)
        self.reports.append(copied.report)
        counts = [(None, 0, 0) if p is None else (len(p.sentences), p.total, len(p.altered)) for p in copied.labels]
        table = context_relevance_table([count for count, *_ in counts], [total for _, total, _ in counts])
        table["altered"] = [altered for *_, altered in counts]
        return table.rename(columns={"context_relevance": "score"})


# Without a model. The paper's answer relevance lets a model guess the question from the answer; a guess is near when
# the answer holds what was asked for. Here that is looked for directly: a question has needs (who, when, where, how
# many, what), and an answer meets them with names, dates, numbers and content words that the question lacks. Rules and
# constants were made on MiniHop (`ragbench.datagen.ragas_pairs`), never on WikiEval, which measures them.

_CONTENT = 30.0  # content weight (five or six rare words) that counts as half of an explanation
_SHORT = 4  # words up to which an answer is taken for a bare name or number
_GATE = 0.4  # cosine of question and answer from which the answer is to that question
_KEEP, _FLOOR = 0.7, 0.15  # of a sentence's worth to a question

_KINDS = {
    "number": r"\bhow (?:many|much|long|far|old|tall|high|deep|large|big|often|wide|fast)\b",
    "when": r"\b(?:when|(?:what|which) (?:year|date|day|month|decade|century|time|season))\b",
    "where": r"\b(?:where|(?:what|which) (?:\w+ ){0,2}(?:city|town|country|place|state|region|county|village|island"
    r"|river|lake|mountain|continent|location|venue))\b",
    "who": r"\b(?:who|whom|whose)\b",
    "what": r"\b(?:what|which|why|how)\b",
}
_ASKS = {kind: re.compile(pattern, re.I) for kind, pattern in _KINDS.items()}
_DATE = re.compile(
    rf"\b(?:{ANY_MONTH}|(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day|century|decade|spring|summer|autumn|winter)\b"
)
_NUMERAL = re.compile("|".join([*[*UNITS][1:], *TENS]) + "|(?:hundred|thousand|million|billion|dozen)s?")
_NAN = float("nan")
_COLUMNS = ["score", "n", "status"]


class _AnswerParts(NamedTuple):
    """What an answer's relevance is made of."""

    committed: float  # share of its sentences that do not evade
    met: float  # mean over the question's needs of how far each is met, in [0, 1]
    added: float  # content beyond the question, saturating: w / (w + `_CONTENT` x needs)
    needs: tuple[str, ...]  # what the question asks for
    text: str  # the sentences that do not evade


def _asked_for(question: str) -> tuple[str, ...]:
    """Return what a question asks for, one entry per question word: number, when, where, who or what."""
    needs: list[str] = []
    for kind, pattern in _ASKS.items():
        question, count = pattern.subn(" ", question)
        needs += [kind] * count
    return tuple(needs) or ("what",)


def _answer_parts(question: str, answer: str) -> _AnswerParts:
    sentences = split_sentences(answer, "claims")
    kept = [s for s in sentences if not abstains(s, "sentence")]
    text = " ".join(kept)
    asked, said, needs = parse(question), parse(text), _asked_for(question)
    stems = frozenset(asked.stems)
    content = sum(weight for stem, weight in said.weight.items() if stem not in stems)
    met = [_met(kind, asked, said, content) for kind in needs]
    added = content / (content + _CONTENT * len(needs))
    return _AnswerParts(len(kept) / max(len(sentences), 1), sum(met) / len(met), added, needs, text)


def _met(kind: str, asked: ParsedText, said: ParsedText, content: float) -> float:
    if kind == "what":
        return content / (content + _CONTENT)
    new = frozenset(said.words) - frozenset(asked.words)
    numbers = (said.numbers - asked.numbers) or [word for word in new if _NUMERAL.fullmatch(word)]
    if kind == "number":
        return float(bool(numbers))
    if kind == "when":
        return float(bool(numbers) or bool(set(_DATE.findall(said.text)) - set(_DATE.findall(asked.text))))
    names = said.names - frozenset(asked.words)
    return float(bool(names) or (len(said.words) <= _SHORT and bool(new)))


class EmbeddedRagas:
    """RAGAS's metrics without a language model, as tables like those of `ModelRagas`.

    *Faithfulness*: the mean over the answer's sentences of how far the context backs each: its support
    (`EmbeddedChecker.support`) times the share of its names and numbers that the context has.

    *Answer relevance*: committed x affinity x (met + added) / 2, see `_AnswerParts`. Affinity is the cosine between
    question and answer over `_GATE`, at most 1, so that it only tells answers to something else; a bare name or number
    has 1.

    *Context relevance*: a sentence's worth is the support that it gives the question. Needed are the sentences worth at
    least `_KEEP` times the best; none is when the best is worth less than `_FLOOR`. The score is Eq 2's, needed / all.

    ``embedder``: with unit vectors; default the embedded MiniLM.

    Source: RAGAS, section 3, whose model steps these rules replace.
    """

    def __init__(self, embedder: Embeddings | None = None) -> None:
        self._checker = EmbeddedChecker(embedder)

    def __repr__(self) -> str:
        return "EmbeddedRagas()"

    def faithfulness(
        self, answers: Sequence[str], contexts: Sequence[Context], questions: Sequence[str] | None = None
    ) -> pd.DataFrame:
        """Score how far contexts back answers; an empty context backs nothing: 0. ``questions`` are not used."""
        names_of({}, answers=_texts(answers, "answer"), contexts=contexts)
        texts = [context_text(context, str(i)) for i, context in enumerate(contexts)]
        statements = [split_claims(answer) for answer in answers]
        ready = self._checker.warm(list(itertools.chain(*statements)), texts)
        rows = []
        for text, of_answer in zip(texts, statements, strict=True):
            backed = _backing(ready, of_answer, text)
            rows.append((float(np.mean(backed)), len(backed), "scored") if backed else (_NAN, 0, "no statements"))
        return pd.DataFrame(rows, columns=_COLUMNS)

    def answer_relevance(self, questions: Sequence[str], answers: Sequence[str]) -> pd.DataFrame:
        """Score how far answers answer their questions, without context or truth; an answer that only evades has 0."""
        names_of({}, questions=_texts(questions, "question"), answers=_texts(answers, "answer"))
        vectors = embed_distinct(self._checker.embedder, [*questions, *answers])
        rows = []
        for question, answer in zip(questions, answers, strict=True):
            empty = [name for name, text in (("question", question), ("answer", answer)) if _no_sentence(text)]
            if empty:
                rows.append((_NAN, 0, f"empty {empty[0]}"))
                continue
            parts = _answer_parts(question, answer)
            near = max(float(vectors[question] @ vectors[answer]), 0.0) / _GATE
            # A word or two has no direction to speak of.
            affinity = 1.0 if len(parse(parts.text).words) <= _SHORT else min(near, 1.0)
            rows.append((parts.committed * affinity * (parts.met + parts.added) / 2, len(parts.needs), "scored"))
        return pd.DataFrame(rows, columns=_COLUMNS)

    def context_relevance(self, questions: Sequence[str], contexts: Sequence[Context]) -> pd.DataFrame:
        """Score how much of contexts their questions need."""
        rows = []
        for question, found in zip(questions, self.needed(questions, contexts), strict=True):
            empty = "empty question" if _no_sentence(question) else "" if found.total else "empty context"
            score = _NAN if empty else context_relevance(len(found.sentences), found.total)
            rows.append((score, found.total, empty or "scored"))
        return pd.DataFrame(rows, columns=_COLUMNS)

    def needed(self, questions: Sequence[str], contexts: Sequence[Context]) -> list[ExtractedSentences]:
        """Return the sentences of each context that its question needs."""
        names_of({}, questions=_texts(questions, "question"), contexts=contexts)
        split = [split_sentences(context_text(context, str(i)), "claims") for i, context in enumerate(contexts)]
        ready = self._checker.warm(questions, list(itertools.chain(*split)))
        needed = []
        for question, sentences in zip(questions, split, strict=True):
            (worth,) = ready.support([question], sentences)
            best = worth.max(initial=0.0)
            chosen = tuple(itertools.compress(sentences, worth >= _KEEP * best)) if best >= _FLOOR else ()
            needed.append(ExtractedSentences(chosen, (), len(sentences), insufficient=not chosen))
        return needed


def _backing(checker: EmbeddedChecker, statements: Sequence[str], context: str) -> list[float]:
    """Return for each statement the degree, in [0, 1], to which a context backs it."""
    source, degrees = parse(context), []
    known = source.numbers | frozenset(source.words)
    for statement, value in zip(statements, checker.support(statements, [context])[:, 0].clip(0, 1), strict=True):
        said = parse(statement)
        facts = said.numbers | said.names
        degrees.append(float(value) * (len(facts & known) / len(facts) if facts else 1.0))
    return degrees


def _no_sentence(text: str) -> bool:
    return not split_sentences(text, "claims")


def _texts(values: Sequence[str], what: str) -> Sequence[str]:
    for place, value in enumerate(values):
        if not isinstance(value, str):
            raise ConfigError(f"{what} {place} is {value!r:.40}", "a text", "leave that row out, or write '' for none")
    return values
