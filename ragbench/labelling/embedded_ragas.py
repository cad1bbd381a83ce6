"""RAGAS's three metrics without a language model: words, numbers, names and MiniLM vectors. Labelled *embedded*.

The paper's answer relevance lets a model guess the question from the answer and compares; a guess is near when the
answer holds what was asked for. Here that is looked for directly: a question has one or more *needs* (who, when, where,
how many, what), and an answer meets them with names, dates, numbers and content words that the question lacks.

Rules and constants were made on MiniHop (`ragbench.datagen.ragas_pairs`), never on WikiEval, which measures them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from langchain_core.embeddings import Embeddings

from ragbench.embedding import embed_distinct
from ragbench.errors import ConfigError
from ragbench.labelling.asking import Context, common_length, context_text
from ragbench.labelling.embedded_checker import EmbeddedChecker, split_claims
from ragbench.metrics.reference_free import context_relevance
from ragbench.text.apart import Prepared, take_apart
from ragbench.text.sentences import split_sentences
from ragbench.text.stance import abstains

# What is asked for, what is told, what is evaded

CONTENT = 30.0  # content weight (five or six rare words) that counts as half of an explanation
SHORT = 4  # words up to which an answer is taken for a bare name or number

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
    r"\b(?:January|February|March|April|May|June|July|August|September|October|November|December|Monday|Tuesday|Wednesday"
    r"|Thursday|Friday|Saturday|Sunday|century|decade|spring|summer|autumn|winter)\b"
)
_NUMERAL = re.compile(
    r"one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|(?:thir|four|fif|six|seven|eigh|nine)teen"
    r"|twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety|hundreds?|thousands?|millions?|billions?|dozens?"
)


@dataclass(frozen=True, slots=True)
class AnswerParts:
    """What an answer's relevance is made of, each in [0, 1].

    Attributes
    ----------
    committed : share of its sentences that do not evade.
    met : mean over the question's needs of how far each is met.
    told : content beyond the question, saturating: w / (w + `CONTENT` x needs).
    needs : what the question asks for.
    text : the sentences that do not evade.
    """

    committed: float
    met: float
    told: float
    needs: tuple[str, ...]
    text: str


def asked_for(question: str) -> tuple[str, ...]:
    """Return what a question asks for, one entry per question word: number, when, where, who or what.

    >>> asked_for("When and where was she born, and how many languages did she speak?")
    ('number', 'when', 'where')
    """
    needs: list[str] = []
    rest = question
    for kind, pattern in _ASKS.items():
        rest, count = pattern.subn(" ", rest)
        needs += [kind] * count
    return tuple(needs) or ("what",)


def answer_parts(question: str, answer: str) -> AnswerParts:
    """Take an answer apart by what its question asks for; one without a word has committed, met and told of 0."""
    sentences = split_sentences(answer, "claims")
    kept = [s for s in sentences if not abstains(s, "sentence")]
    text = " ".join(kept)
    asked, said, needs = take_apart(question), take_apart(text), asked_for(question)
    stems = frozenset(asked.stems)
    content = sum(weight for stem, weight in said.weight.items() if stem not in stems)
    met = [_met(kind, asked, said, content) for kind in needs]
    told = content / (content + CONTENT * len(needs))
    return AnswerParts(len(kept) / max(len(sentences), 1), sum(met) / len(met), told, needs, text)


def _met(kind: str, asked: Prepared, said: Prepared, content: float) -> float:
    if kind == "what":
        return content / (content + CONTENT)
    new = frozenset(said.words) - frozenset(asked.words)
    numbers = (said.numbers - asked.numbers) or [word for word in new if _NUMERAL.fullmatch(word)]
    if kind == "number":
        return float(bool(numbers))
    if kind == "when":
        return float(bool(numbers) or bool(set(_DATE.findall(said.text)) - set(_DATE.findall(asked.text))))
    names = said.names - frozenset(asked.words)
    return float(bool(names) or (len(said.words) <= SHORT and bool(new)))


# Scores

_NAN = float("nan")
_COLUMNS = ["score", "n", "status"]


@dataclass(frozen=True, slots=True)
class Needed:
    """The sentences of a context, and those of them that a question needs, in order."""

    sentences: tuple[str, ...]
    needed: tuple[str, ...]


class EmbeddedRagas:
    """RAGAS's metrics without a language model.

    *Faithfulness*: the answer's sentences are its statements. The degree to which the context backs one is its support
    (`EmbeddedChecker.support`: words and vectors against the best window of sentences) times the share of its names and
    numbers that the context has. F is the mean degree.

    *Answer relevance*: committed x affinity x (met + told) / 2, see `answer_parts`. Affinity is the cosine between
    question and answer over ``gate``, at most 1, so that it only tells answers to something else; a bare name
    or number has 1.

    *Context relevance*: a sentence's worth to the question is ``mix`` x coverage of the question's words + (1 -
    ``mix``) x cosine. Needed are the sentences worth at least ``keep`` times the best; none is when the best is worth
    less than ``floor``. The score is Eq 2's, needed / all.

    Parameters
    ----------
    embedder : a LangChain ``Embeddings`` with unit vectors; default the embedded MiniLM.
    mix, keep, floor, gate : in (0, 1]; the defaults were set on MiniHop (see LOG.md) and on nothing else.

    Raises
    ------
    ConfigError for a setting outside its range.

    Source: RAGAS, section 3, whose model steps these rules stand in for.
    """

    def __init__(
        self,
        embedder: Embeddings | None = None,
        *,
        mix: float = 0.7,
        keep: float = 0.7,
        floor: float = 0.15,
        gate: float = 0.4,
    ) -> None:
        for name, value in (("mix", mix), ("keep", keep), ("floor", floor), ("gate", gate)):
            if not 0 < value <= 1:
                raise ConfigError(f"{name}={value}", "a number above 0 and up to 1", "leave it out for the default")
        self.mix, self.keep, self.floor, self.gate = mix, keep, floor, gate
        self._checker = EmbeddedChecker(embedder)

    def __repr__(self) -> str:
        return f"EmbeddedRagas(mix={self.mix}, keep={self.keep}, floor={self.floor}, gate={self.gate})"

    @property
    def embedder(self) -> Embeddings:
        """The embedding model, loaded at first use."""
        return self._checker.embedder

    def faithfulness(
        self, answers: Sequence[str], contexts: Sequence[Context], questions: Sequence[str] | None = None
    ) -> pd.DataFrame:
        """Score how far contexts back answers.

        Parameters
        ----------
        answers : shape (n,). contexts : one text, or a list of passages, per answer; equal ones are read once.
        questions : not used; a model reads answers with their questions in view.

        Returns
        -------
        DataFrame, one row per answer: score in [0, 1], n (statements), status. An answer without statements has NaN,
        an empty context backs nothing: 0.

        Raises
        ------
        ConfigError for lists of unequal length, or something that is no text.
        """
        common_length(answers=_texts(answers, "answer"), contexts=contexts)
        texts = [context_text(context, str(i)) for i, context in enumerate(contexts)]
        statements = [split_claims(answer) for answer in answers]
        together: dict[str, dict[str, None]] = {}
        for text, of_answer in zip(texts, statements, strict=True):
            together.setdefault(text, {}).update(dict.fromkeys(of_answer))
        ready = self._checker.warm([s for of_text in together.values() for s in of_text], list(together))
        degrees = {text: backing(ready, list(of_text), text) for text, of_text in together.items()}
        rows = []
        for text, of_answer in zip(texts, statements, strict=True):
            backed = [degrees[text][statement] for statement in of_answer]
            rows.append((float(np.mean(backed)), len(backed), "scored") if backed else (_NAN, 0, "no statements"))
        return pd.DataFrame(rows, columns=_COLUMNS)

    def answer_relevance(self, questions: Sequence[str], answers: Sequence[str]) -> pd.DataFrame:
        """Score how far answers answer their questions; neither context nor truth has a part in it.

        Parameters
        ----------
        questions, answers : shape (n,) each.

        Returns
        -------
        DataFrame, one row per answer: score in [0, 1], n (things asked for), status. An empty question or answer has
        NaN; an answer that only evades has 0.

        Raises
        ------
        ConfigError for lists of unequal length, or something that is no text.
        """
        common_length(questions=_texts(questions, "question"), answers=_texts(answers, "answer"))
        vectors = embed_distinct(self.embedder, [*questions, *answers])
        rows = []
        for question, answer in zip(questions, answers, strict=True):
            if not (split_sentences(question, "claims") and split_sentences(answer, "claims")):
                rows.append((_NAN, 0, "empty question" if not split_sentences(question, "claims") else "empty answer"))
                continue
            parts = answer_parts(question, answer)
            near = max(float(vectors[question] @ vectors[answer]), 0.0) / self.gate
            # A word or two has no direction to speak of.
            affinity = 1.0 if len(take_apart(parts.text).words) <= SHORT else min(near, 1.0)
            score = parts.committed * affinity * (parts.met + parts.told) / 2
            rows.append((score, len(parts.needs), "scored"))
        return pd.DataFrame(rows, columns=_COLUMNS)

    def context_relevance(self, questions: Sequence[str], contexts: Sequence[Context]) -> pd.DataFrame:
        """Score how much of contexts their questions need.

        Parameters
        ----------
        questions : shape (n,). contexts : one text, or a list of passages, per question.

        Returns
        -------
        DataFrame, one row per context: score in [0, 1], n (sentences), status. An empty context or question has NaN.
        """
        rows = []
        for question, picked in zip(questions, self.needed(questions, contexts), strict=True):
            if not split_sentences(question, "claims") or not picked.sentences:
                reason = "empty context" if split_sentences(question, "claims") else "empty question"
                rows.append((_NAN, len(picked.sentences), reason))
                continue
            score = context_relevance(len(picked.needed), len(picked.sentences))
            rows.append((score, len(picked.sentences), "scored"))
        return pd.DataFrame(rows, columns=_COLUMNS)

    def needed(self, questions: Sequence[str], contexts: Sequence[Context]) -> list[Needed]:
        """Return the sentences of each context, and those of them that its question needs.

        ConfigError for lists of unequal length, or something that is no text.
        """
        common_length(questions=_texts(questions, "question"), contexts=contexts)
        split = [split_sentences(context_text(context, str(i)), "claims") for i, context in enumerate(contexts)]
        vectors = embed_distinct(self.embedder, [*questions, *(s for parts in split for s in parts)])
        needed = []
        for question, sentences in zip(questions, split, strict=True):
            worth = self._worth(question, sentences, vectors)
            best = worth.max(initial=0.0)
            chosen = worth >= self.keep * best if best >= self.floor else np.zeros(len(sentences), bool)
            needed.append(Needed(sentences, tuple(s for s, c in zip(sentences, chosen, strict=True) if c)))
        return needed

    def _worth(self, question: str, sentences: Sequence[str], vectors: dict[str, np.ndarray]) -> np.ndarray:
        weights = take_apart(question).weight
        total = sum(weights.values()) or 1.0
        stems = [frozenset(take_apart(s).stems) for s in sentences]
        covered = np.array([sum(w for stem, w in weights.items() if stem in part) for part in stems]) / total
        near = np.array([float(vectors[s] @ vectors[question]) for s in sentences])
        return self.mix * covered + (1 - self.mix) * near


def backing(checker: EmbeddedChecker, statements: Sequence[str], context: str) -> dict[str, float]:
    """Return for each statement the degree, in [0, 1], to which a context backs it."""
    if not statements:
        return {}
    source = take_apart(context)
    words = frozenset(source.words)
    support = checker.support(statements, [context])[:, 0].clip(0, 1)
    degrees = {}
    for statement, value in zip(statements, support, strict=True):
        said = take_apart(statement)
        facts = said.numbers | said.names
        backed = sum(fact in source.numbers or fact in words for fact in facts)
        degrees[statement] = float(value) * (backed / len(facts) if facts else 1.0)
    return degrees


def _texts(values: Sequence[str], what: str) -> Sequence[str]:
    for place, value in enumerate(values):
        if not isinstance(value, str):
            raise ConfigError(f"{what} {place} is {value!r:.40}", "a text", "leave that row out, or write '' for none")
    return values
