"""How far a text answers a question, read from the two alone: what is asked for, what is told, what is evaded.

The paper's metric lets a model guess the question from the answer and compares; a guess is near when the answer holds
what was asked for. Here that is looked for directly: a question has one or more *needs* (who, when, where, how many,
what), and an answer meets them with names, dates, numbers and content words that the question does not have itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ragbench.text.apart import Prepared, prepare
from ragbench.text.sentences import split_sentences
from ragbench.text.stance import abstains

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
    found: list[str] = []
    rest = question
    for kind, pattern in _ASKS.items():
        rest, count = pattern.subn(" ", rest)
        found += [kind] * count
    return tuple(found) or ("what",)


def answer_parts(question: str, answer: str) -> AnswerParts:
    """Take an answer apart by what its question asks for.

    Parameters
    ----------
    question, answer : texts; an answer without a word has committed, met and told of 0.
    """
    sentences = split_sentences(answer, "claims")
    kept = [s for s in sentences if not abstains(s, "sentence")]
    text = " ".join(kept)
    asked, said, needs = prepare(question), prepare(text), asked_for(question)
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
