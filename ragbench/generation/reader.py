"""The extractive reader: the embedded generator. It copies sentences; it knows nothing and writes nothing of its own.

A question over two documents is answered by two sentences: one that matches the question's description and brings in a
new name, and one about that name which holds the kind of thing asked for. All pairs of sentences are scored for the
share of the question's words they cover (weighted by rarity), for the names that link them, and for the kind of answer.
No language model, no vectors: on MiniHop's held-out topics (arts, history; BM25, N = 1000) its answer holds the true
one for 21% of the questions, where the context does for 60%; only 2 of 17 choices between two options hold it.
English cues; other scripts are matched word by word (Chinese: character by character).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ragbench.records import Chunk
from ragbench.text.languages import language_of
from ragbench.text.parse import ParsedSentence, sentence, sentences
from ragbench.text.words import ANY_MONTH, MONTHS, stem, stems

ABSTENTION = "The documents do not contain enough information to answer this question."
ABSTENTIONS = {
    "english": ABSTENTION,
    "german": "Die Dokumente enthalten nicht genügend Informationen, um diese Frage zu beantworten.",
    "french": "Les documents ne contiennent pas assez d'informations pour répondre à cette question.",
    "chinese": "现有文档不足以回答该问题。",
}

_Rarity = Callable[[str], float]
_FIRST_HOPS = 40
_ADDS = 0.05  # a second sentence must cover this much more of the question to be said
# Weights of a pair's score, chosen on MiniHop's questions about places, science and letters.
_LINK, _KIND, _ASKED, _BOTH = 0.2, 0.2, 2.0, 1.0
_DECAY = (1.0, 0.5, 0.35, 0.25)


class ExtractiveReader:
    """Answer in one or two sentences of the context, word for word, or abstain; the same for any order of calls.

    A comparison is answered by a name or yes or no, and the evidence after a colon. The thesis used Llama-3 (§2.4):
    tables must name this reader.

    Parameters
    ----------
    background : chunks (or texts) of the corpus, for the rarity of words. None: the context's own sentences.
    threshold : share of the question's words (weighted by rarity, in [0, 1]) that the chosen sentences must cover.
    abstention : what is said instead of an answer. None: a sentence in the language of the question, or else of the
        context, where ``ABSTENTIONS`` has one.
    """

    name = "extractive reader (no LLM)"

    def __init__(
        self, background: Iterable[Chunk | str] | None = None, threshold: float = 0.2, abstention: str | None = None
    ) -> None:
        self.threshold, self.abstention = threshold, abstention
        texts = [item.text if isinstance(item, Chunk) else item for item in background or ()]
        words = (word for text in texts for word in set(stems(text, "reader")))
        self._frequency, self._texts = None if background is None else Counter(words), len(texts)

    def settings(self) -> dict[str, Any]:
        """Return every parameter that can change an answer, ready for JSON."""
        said = self.abstention or "in the question's language"
        about = {"generator": self.name, "threshold": self.threshold}
        return about | {"abstention": said, "background_texts": self._texts}

    def abstains(self, text: str) -> bool:
        """Say whether an answer is the abstention."""
        return text in (ABSTENTIONS.values() if self.abstention is None else (self.abstention,))

    def answer(self, question: str, context: str) -> str:
        """Answer one question from a context that is already cut to its budget; without one, abstain."""
        parts = sentences(context)
        asked = list(dict.fromkeys(stems(question, "reader")))
        if not parts or not asked:
            return self._abstain(question, context)
        rarity = self._rarity(parts)
        verdict = _answer_comparison(question, parts, rarity)
        return verdict or self._pair(question, parts, asked, rarity) or self._abstain(question, context)

    def _abstain(self, question: str, context: str) -> str:
        if self.abstention is not None:
            return self.abstention
        return ABSTENTIONS.get(language_of([question]) or language_of([context]) or "", ABSTENTION)

    def _rarity(self, parts: Sequence[ParsedSentence]) -> _Rarity:
        frequency, n = self._frequency, self._texts
        if frequency is None:
            frequency, n = Counter(t for s in parts for t in s.terms), len(parts)
        return lambda term: math.log1p((n + 1) / (frequency[term] + 0.5))

    def _pair(self, question: str, parts: Sequence[ParsedSentence], asked: Sequence[str], rarity: _Rarity) -> str:
        """Answer by the best pair of sentences; empty when it covers too little of the question."""
        weights = np.array([rarity(t) for t in asked])
        idf = weights / weights.sum()
        present = np.array([[t in s.terms for t in asked] for s in parts], dtype=float)
        near = _smooth(present)
        # The last part of the question that asks something.
        clauses = reversed(re.split(r"(?<=[.?!;:])\s+", question))
        clause = next((part for part in clauses if _ASKING.search(part)), question)
        wanted = set(stems(clause, "reader"))
        tail = idf * [t in wanted for t in asked]
        kind = next((kind for kind, words in _KINDS.items() if re.search(words, clause, re.IGNORECASE)), "thing")
        known = {stem(w, "reader") for w in re.findall(r"\w+", question.lower())}
        fits = np.array([_fits(s, kind, known) for s in parts])
        first = np.sort(np.argsort(-(near @ idf), kind="stable")[:_FIRST_HOPS])
        links = _links(parts, first, known, rarity)
        # (first, answer, term): what the two sentences cover together.
        cover = np.maximum(near[first][:, None, :], near[None, :, :]) @ idf
        ask = (0.5 * present + 0.5 * near) @ tail
        both = np.maximum(present[first][:, None, :], present[None, :, :]) @ idf
        score = cover + _LINK * links + _KIND * fits + _ASKED * ask + _BOTH * both
        a, b = np.unravel_index(int(np.argmax(score)), score.shape)
        if cover[a, b] < self.threshold:
            return ""
        i, j = int(first[a]), int(b)
        alone = near[j] @ idf
        chosen = [j] if i == j or cover[a, b] - alone < _ADDS else sorted((i, j))
        return " ".join(parts[c].text for c in chosen)


def _links(parts: Sequence[ParsedSentence], first: np.ndarray, known: set[str], rarity: _Rarity) -> np.ndarray:
    """How strongly a name that sentence a adds to the question is taken up by sentence b, 0 to 1."""
    new = [_name_stems(s.names) - known for s in parts]
    names = sorted(set().union(*(new[i] for i in first)))
    if not names:
        return np.zeros((len(first), len(parts)))
    present = np.array([[name in terms for name in names] for terms in new], dtype=float)
    weights = np.array([rarity(name) for name in names])
    return np.minimum(present[first] * (weights / weights.max()) @ _smooth(present).T, 1.0)


def _smooth(rows: np.ndarray) -> np.ndarray:
    """Let a sentence share in what its neighbours say: pronouns leave the name to the sentence before."""
    out = rows.copy()
    for d, weight in enumerate(_DECAY[1:], 1):
        np.maximum(out[d:], weight * rows[:-d], out=out[d:])
        np.maximum(out[:-d], weight * rows[d:], out=out[:-d])
    return out


_ASKING = re.compile(r"\b(?:who|whom|whose|where|when|what|which|how)\b", re.IGNORECASE)
# What a question asks for, by its words; the first that fits.
_KINDS = {
    "time": r"\bwhen\b|\b(?:which|what) (?:\w+ ){0,3}(?:year|date|day|month|century|decade)\b",
    "count": r"\bhow (?:many|much|old|long|far|tall|high|deep|large|big)\b|\bwhat (?:age|number)\b",
    "place": r"\bwhere\b|\b(?:which|what) (?:\w+ ){0,3}(?:city|town|country|village|place|port|region|street|island|"
    r"settlement|canton|county|bay|cathedral|birthplace|university|house|castle|fortress|stronghold|church|province)\b",
    "person": r"\b(?:who|whom|whose)\b|"
    r"\b(?:which|what) (?:\w+ ){0,3}(?:man|woman|person|singer|writer|king|queen)\b",
}


def _fits(s: ParsedSentence, kind: str, known: set[str]) -> float:
    """1 when the sentence holds something of the asked kind that the question does not name already, else 0."""
    if kind == "time":
        return float(s.dated)
    if kind == "count":
        return float(bool(s.numbers))
    fresh = [name for name in s.names if not _name_stems([name]) <= known]
    if kind == "place":
        return float(s.placed and bool(fresh))
    return 1.0 if kind == "person" and any(" " in name for name in fresh) else 0.5 * bool(fresh)


# Comparisons and yes/no questions: two options, a value for each, a verdict
#
# "Which was launched first, X or Y?" looks up a date for X and one for Y; "Were X and Y both born in Z?" looks whether
# the words of the rest stand with each. English question forms; anything else is left to the pair of sentences.

_YES_NO = re.compile(r"^(?:did|do|does|was|were|is|are|has|have|had)\b", re.IGNORECASE)
_LEAST = "first earlier earliest sooner older oldest before shorter shortest fewer less lower smaller smallest lighter"
_MOST = "later latest last younger youngest recent longer longest larger largest bigger higher highest deeper deepest"
_MOST += " more greater wider taller heavier after farther further outlived"
_TIMES = {"first", "earlier", "earliest", "sooner", "older", "oldest", "before", "later", "latest", "last", "younger"}
_TIMES |= {"youngest", "recent", "after", "outlived"}
_WORD = re.compile(r"\b(?:" + "|".join((_LEAST + " " + _MOST).split()) + r")\b", re.IGNORECASE)
_DATE = re.compile(rf"(?:\b(\d{{1,2}}) )?(?:\b({ANY_MONTH}) )?\b(\d{{4}})\b")
_BACK = 8
_OPTION_SHARE = 0.5
_REST_SHARE = 0.4  # of the other words of a yes/no question, which must stand with each option for a yes
_ABOUT = 0.4  # for evidence within eight sentences of one that opens with the option's name


def _name_stems(names: Iterable[str]) -> set[str]:
    """Return the stems of the words in some names."""
    return {stem(word, "reader") for name in names for word in name.lower().split()}


def _options(question: str) -> tuple[str, str, str] | None:
    """Split a comparison into its two options and the rest of what is asked.

    >>> _options("Which is deeper, Lake Baikal or Lake Tanganyika?")
    ('Lake Baikal', 'Lake Tanganyika', 'Which is deeper')
    """
    text = question.strip().rstrip("?").strip()
    last = re.split(r"(?<=[.?!])\s+", text)[-1]
    for pattern in (
        r"(?P<rest>[^:]+):\s*(?P<a>.+?),? or (?P<b>.+)",
        r"(?P<rest>.*(?:which|who|what)\b.*?),\s*(?P<a>.+?),? or (?P<b>.+)",
        r"(?:of|between) (?P<a>.+?) and (?P<b>.+?),\s*(?P<rest>.+)",
    ):
        m = re.fullmatch(pattern, last, re.IGNORECASE)
        if m and stems(m["a"], "reader") and stems(m["b"], "reader"):
            return m["a"].strip(), m["b"].strip(" ,"), m["rest"].strip()
    if not _YES_NO.match(last):
        return None
    if m := re.fullmatch(r"\w+ (?P<a>.+?) and (?P<b>.+?) (?P<rest>(?:both|each) .+)", last):
        return m["a"], m["b"], m["rest"]
    names = sentence(last.partition(" ")[2]).names
    if len(names) < 2:
        return None
    a, b = names[:2]
    return a, b, last.replace(a, " ", 1).replace(b, " ", 1)


def _answer_comparison(question: str, sentences: Sequence[ParsedSentence], rarity: _Rarity) -> str | None:
    """Decide a comparison or yes/no question by the sentences of the context, in order.

    "NAME: evidence; evidence." or "Yes: ..." or "No: ...", or None when the question is no comparison or the context
    holds no evidence for one of its options.
    """
    split = _options(question)
    if split is None:
        return None
    a, b, rest = split
    yes_no = bool(_YES_NO.match(rest) or _YES_NO.match(re.split(r"(?<=[.?!])\s+", question.strip())[-1]))
    word = _WORD.search(rest)
    limit = re.search(r"\b(before|after|by) (\d{3,4})\b", rest)
    timed = bool(word and word[0].lower() in _TIMES)
    wants = "any" if word is None else "date" if timed else "number"
    i, j = (_evidence(option, rest, sentences, rarity, wants) for option in (a, b))
    if i is None or j is None:
        return None
    evidence = "; ".join(dict.fromkeys(sentences[k].text.rstrip(".") for k in (i, j))) + "."
    if yes_no:
        if i == j and re.search(r"\bsame\b", rest):
            return None  # one sentence shares its names with itself
        return f"{'Yes' if _holds(sentences[i], sentences[j], rest, word, limit, rarity) else 'No'}: {evidence}"
    if word is None:
        return None
    x, y = (_date(sentences[k].text, rest) if timed else max(sentences[k].numbers) for k in (i, j))
    if x == y:
        return None
    least = word[0].lower() in _LEAST.split()
    return f"{_shown(a, sentences, i) if (x < y) == least else _shown(b, sentences, j)}: {evidence}"


def _evidence(option: str, rest: str, sentences: Sequence[ParsedSentence], rarity: _Rarity, wants: str) -> int | None:
    """The sentence that says most about the option; names may stand up to eight sentences before it."""
    named, asked = set(stems(option, "reader")), set(stems(rest, "reader")) - set(stems(option, "reader"))
    total = sum(map(rarity, named))
    if not total:
        return None  # a name of function words only ("The Who") cannot be found by its words
    best, place = 0.0, None
    seen: dict[str, int] = {}
    about = -_BACK
    for k, s in enumerate(sentences):
        seen.update(dict.fromkeys(s.terms & named, k))
        opening = _name_stems([_opening_name(s)])
        if opening and len(opening & named) >= _OPTION_SHARE * len(opening):
            about = k
        if (wants == "date" and not s.years) or (wants == "number" and not s.numbers):
            continue
        near = sum(rarity(t) * (1 - (k - at) / (2 * _BACK)) for t, at in seen.items() if k - at <= _BACK) / total
        if near < _OPTION_SHARE:
            continue
        score = near + sum(rarity(t) for t in asked & s.terms) / (sum(map(rarity, asked)) or 1.0)
        score += _ABOUT * (k - about < _BACK)
        if score > best:
            best, place = score, k
    return place


def _date(text: str, rest: str) -> tuple[int, int, int]:
    """The date that stands nearest to a word of the question ("born in 1820 and died in 1865"): year, month, day."""
    dates = list(_DATE.finditer(text))
    if not dates:
        return sentence(text).years[0], 0, 0
    asked = set(stems(rest, "reader"))
    places = [m.start() for m in re.finditer(r"\w+", text) if stem(m[0].lower(), "reader") in asked]
    m = min(dates, key=lambda d: min((abs(d.start() - p) for p in places), default=0))
    return int(m[3]), MONTHS.index(m[2]) + 1 if m[2] else 0, int(m[1] or 0)


def _holds(
    x: ParsedSentence, y: ParsedSentence, rest: str, word: re.Match | None, limit: re.Match | None, rarity: _Rarity
) -> bool:
    if limit is not None:
        least = limit[1] != "after"
        return all(bool(s.years) and (_date(s.text, rest)[0] < int(limit[2])) == least for s in (x, y))
    if word is not None and word[0].lower() in _TIMES:
        return (_date(x.text, rest) < _date(y.text, rest)) == (word[0].lower() in _LEAST.split())
    if re.search(r"\bsame\b", rest):
        asked = {stem(w, "reader") for w in re.findall(r"\w+", rest.lower())}
        return bool((_name_stems(x.names) & _name_stems(y.names)) - asked)
    asked = set(stems(rest, "reader"))
    total = sum(map(rarity, asked)) or 1.0
    return all(sum(rarity(t) for t in asked & s.terms) / total >= _REST_SHARE for s in (x, y))


def _opening_name(s: ParsedSentence) -> str:
    """The name a sentence begins with, which the next sentences are likely about; empty when there is none."""
    return s.names[0] if s.names and s.text.removeprefix("The ").startswith(s.names[0]) else ""


def _shown(option: str, sentences: Sequence[ParsedSentence], k: int) -> str:
    """The option's name: as the question gives it, or for a description the last subject before the evidence."""
    if re.match(r"(?:the|a|an) [a-z]", option):
        for s in reversed(sentences[max(0, k - _BACK) : k + 1]):
            if _opening_name(s):
                return _opening_name(s)
    return option[:1].upper() + option[1:]
