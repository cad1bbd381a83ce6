"""Pairs from MiniHop: a set of WikiEval's shape by rules, and pairs of its graded answers."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ragbench.data.wikieval import Dimension, Pair, WikiEval, WikiEvalRow, joined
from ragbench.errors import ConfigError, unknown
from ragbench.ragas_data.padding import back_linked, sentences_of
from ragbench.text.sentences import split_sentences

if TYPE_CHECKING:
    from ragbench.records import Dataset, Document, Question

INCOMPLETE = ("without the answer", "evasive", "vague")
_YEAR = re.compile(r"\b1[0-9]{3}\b|\b20[0-9]{2}\b")
_NUMBER = re.compile(r"(?<![\w.,])\d[\d,.]*\d|(?<![\w.,])\d\b")
_MONTH = "January|February|March|April|May|June|July|August|September|October|November|December"
_NAME = re.compile(rf"(?<=[a-z,;] )(?!(?:{_MONTH})\b)[A-Z][\w’'-]+(?: (?:(?:of|de|von|van) )?[A-Z][\w’'-]+)*")
_WORSE = {"faithfulness": (4, 2), "answer_relevance": (1, 3)}


def minihop_ragas_set(limit: int | None = None, seed: int = 0, padding: float = 0.5) -> WikiEval:
    """Make a set of WikiEval's shape from MiniHop, by rules alone.

    Parameters
    ----------
    limit : keep the first so many rows.
    seed : of the choices among names, numbers and padding.
    padding : sentences added to ``context_v2``, as a share of those in ``context_v1``.

    Returns
    -------
    WikiEval named "minihop-ragas", one row per question with a long answer (65). ``context_v1`` are the documents that
    support the answer. ``ungrounded_answer`` is the answer with its names and numbers exchanged for others of the same
    topic that the context does not hold. ``poor_answer`` is in turn the answer without the sentences that
    answer, an evasion with a remark on the topic, or the answer with names and numbers made vague;
    ``meta["incomplete"]`` says which.

    Source: RAGAS, section 4; there ChatGPT writes the answers.
    """
    from ragbench.data.minihop import load_minihop

    if not 0 < padding <= 5:
        raise ConfigError(f"padding={padding}", "a share above 0 and up to 5", "0.5 adds half as many sentences")
    if limit is not None and limit < 1:
        raise ConfigError(f"limit={limit}", "at least 1, or None for all", "leave it out to make every row")
    dataset = load_minihop()
    titles = {d.title: d for d in dataset.documents}
    rows = []
    for question in dataset.questions:
        if "long_answer" in question.meta and (limit is None or len(rows) < limit):
            rows.append(_minihop_row(question, dataset, titles, INCOMPLETE[len(rows) % 3], seed, padding))
    return WikiEval("minihop-ragas", tuple(rows))


def minihop_graded_pairs(dimension: Dimension, split: str | None = None) -> list[Pair]:
    """Take pairs from MiniHop's graded answers: a right and complete answer and a worse one, neither made by rule.

    Parameters
    ----------
    dimension : "faithfulness" (worse: a wrong conclusion, else a wrong detail; judged against the gold documents) or
        "answer_relevance" (worse: no answer, else a part of it).
    split : "dev" or "test" of the graded answers; default both.

    Returns
    -------
    list of Pair, one per question that has both. The better answer is often the shorter one, so length alone decides
    the wrong way there.
    """
    from ragbench.data.minihop import load_minihop
    from ragbench.grading.graded import load_graded_answers

    if dimension not in _WORSE:
        raise unknown("dimension of graded pairs", dimension, _WORSE)
    dataset = load_minihop()
    texts = {d.title: d.text for d in dataset.documents}
    answers: dict[str, dict[int, str]] = {}
    for graded in load_graded_answers(split=split):
        answers.setdefault(graded.question_id, {})[graded.grade] = graded.text
    pairs = []
    for q in dataset.questions:
        own = answers.get(q.id, {})
        worse = next((own[grade] for grade in _WORSE[dimension] if grade in own), None)
        if 5 in own and worse is not None:
            gold = dict.fromkeys(title for title, _ in q.meta["supporting_facts"])
            context = joined([texts[title] for title in gold]) if dimension == "faithfulness" else ""
            pairs.append(Pair(q.id, q.text, own[5], worse, context))
    return pairs


def _minihop_row(
    question: Question, dataset: Dataset, titles: dict[str, Document], kind: str, seed: int, padding: float
) -> WikiEvalRow:
    rng = random.Random(f"{seed}/{question.id}")
    used = dict.fromkeys(title for claim in question.meta["claims"] for title, _ in claim["support"])
    gold = [titles[title] for title in used]
    siblings = [d for d in dataset.documents if d.title not in used and d.meta["topic"] == gold[0].meta["topic"]]
    context = tuple(" ".join(sentences_of(d)) for d in gold)
    answer = question.meta["long_answer"]
    extra = back_linked(gold, dataset.documents, round(padding * sum(len(d.sentences) for d in gold)), siblings)
    poor = _incomplete(kind, question, answer, rng, siblings)
    return WikiEvalRow(
        question.id,
        question.text,
        context,
        (*context, " ".join(extra)),
        answer,
        exchanged(answer, " ".join(context) + " " + question.text, [d.text for d in siblings], rng),
        poor,
        source=", ".join(used),
        meta={"incomplete": kind},
    )


def exchanged(answer: str, context: str, others: Sequence[str], rng: random.Random) -> str:
    """Exchange the answer's names and numbers for others that the context does not hold.

    Parameters
    ----------
    answer : the grounded answer. context : what may not be used. others : texts that names are taken from.
    rng : makes the choices; a name is exchanged for the same one throughout.

    Returns
    -------
    The answer; unchanged only where it has neither a name nor a number outside the first words of its sentences.
    """
    names = [n for n in dict.fromkeys(m for text in others for m in _NAME.findall(text)) if n not in context]
    rng.shuffle(names)
    taken: dict[str, str] = {}

    def name(match: re.Match[str]) -> str:
        if match[0] not in taken and names:
            taken[match[0]] = names.pop()
        return taken.get(match[0], match[0])

    def number(match: re.Match[str]) -> str:
        old = match[0]
        if old not in taken:
            digits = int(re.sub(r"\D", "", old))
            steps = [n for n in range(3, 40) if str(digits + n) not in context]
            taken[old] = str(digits + rng.choice(steps))
        return taken[old]

    return _NUMBER.sub(number, _NAME.sub(name, answer))


def _incomplete(kind: str, question: Question, answer: str, rng: random.Random, siblings: Sequence[Document]) -> str:
    if kind == "without the answer":
        told = [s for s in split_sentences(answer, "en") if question.answer.lower() not in s.lower()]
        # The opening sentence answers in other words where it does not name the answer itself.
        return (
            " ".join(told if len(told) < len(split_sentences(answer, "en")) else told[1:])
            or "That is part of a longer story."
        )
    if kind == "evasive":
        aside = rng.choice([s for d in siblings for s in sentences_of(d)])
        opening = rng.choice(
            ("That has not been recorded in what is known to me.", "No definite answer can be given here.",
             "There is more than one side to this matter.", "This would have to be looked up elsewhere.")
        )  # fmt: skip
        return f"{opening} {aside}"
    vague = _NAME.sub(lambda match: rng.choice(("somebody", "a certain place", "something of that kind")), answer)
    return _NUMBER.sub("some", _YEAR.sub("some year", vague))
