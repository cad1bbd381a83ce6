"""Texts parsed once for many comparisons: for the judge and the extractive reader.

`parse`      for the judge and the checker: stems with weights, sentences, numbers, names. Made for English; other
             languages with spaces work through the pieces of the vocabulary, languages without spaces do not.
`sentences`  for the reader: stems, names, years, quantities, places. English rules, any script.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections import Counter
from dataclasses import dataclass

import numpy as np

from ragbench.text.sentences import split_sentences
from ragbench.text.words import ANY_MONTH, STOP_WORDS, TENS, UNITS, stemmer, stems, word_weight, words

# The judge's and the checker's

_COMMON = 3.0  # log rank up to which a word is taken to carry nothing ("the" 1.8, "with" 3.1, "river" 5.8)
_LEAST = 0.1  # so that a reference of common words only ("The Who") can still be matched
_DIGITS = re.compile(r"\d+(?:[.,]\d+)*")
_INNER_NAME = re.compile(r"(?<=[^\W_.!?][ \t])[A-Z][\w-]+|(?<=[,;:(\"'] )[A-Z][\w-]+|(?<=[(\"'])[A-Z][\w-]+")


@dataclass(frozen=True)
class ParsedText:
    """A parsed text: words, their stems and weights (log ranks); ``bounds`` of the sentences among them."""

    text: str
    words: tuple[str, ...]
    stems: tuple[str, ...]
    weights: tuple[float, ...]
    sentences: tuple[str, ...]
    bounds: tuple[tuple[int, int], ...]
    numbers: frozenset[str]
    names: frozenset[str]

    @functools.cached_property
    def counts(self) -> Counter:
        return Counter(self.stems)

    @functools.cached_property
    def weight(self) -> dict[str, float]:
        """Content weight of each stem: its log rank (of the commonest form) above that of common words."""
        lightest: dict[str, float] = {}
        for s, w in zip(self.stems, self.weights, strict=True):
            lightest[s] = min(w, lightest.get(s, w))
        return {s: max(w - _COMMON, _LEAST) for s, w in lightest.items()}

    @functools.cached_property
    def sentence_stems(self) -> list[frozenset[str]]:
        return [frozenset(self.stems[a:b]) for a, b in self.bounds]


@functools.lru_cache(maxsize=20_000)
def parse(text: str) -> ParsedText:
    """Parse a text; the last 20,000 texts are remembered, since a reference meets many answers."""
    pieces = split_sentences(text, "claims")
    by_sentence = [words(piece, "claims") for piece in pieces]
    every = [word for ws in by_sentence for word in ws]
    ends = np.cumsum([0, *map(len, by_sentence)]).tolist()
    return ParsedText(
        text,
        tuple(every),
        tuple(stemmer("english").stemWords(every)),
        tuple(word_weight(w) for w in every),
        pieces,
        tuple(itertools.pairwise(ends)),
        frozenset(n.replace(",", "").rstrip(".") for n in _DIGITS.findall(text)),
        frozenset(n.lower() for n in _INNER_NAME.findall(text)),
    )


# The reader's

_CAPITAL = r"[A-ZÀ-ÖØ-ÞČŁŚŠŽΑ-ΩА-Я][\w'’]*"
# "Bay of Bengal", "Pont de Normandie", "Ludwig van Beethoven": small words inside a name.
_NAME = re.compile(
    rf"(?<!\w){_CAPITAL}(?:(?:[ -]|, (?=Queen|King))(?:(?:of|the|de|la|du|von|van|d')[ ]?){{0,2}}{_CAPITAL})*"
)
_DAY = re.compile(rf"\b\d{{1,2}} (?={ANY_MONTH})|\b(?:{ANY_MONTH}) \d{{1,2}}\b")
_YEAR = re.compile(r"(?<![\d.,])\b(?:1\d{3}|20\d{2}|[3-9]\d{2}(?! (?:metres|km|kilometres|miles|men|square)))\b(?!,\d)")
_PLACE = re.compile(rf"\b(?:in|at|near|on|to|from|of|off|into) (?:the )?{_CAPITAL}")
_NUMBER_WORDS = {w: v for w, v in (UNITS | TENS).items() if v} | {
    f"{ten}-{unit}": TENS[ten] + value for ten in TENS for unit, value in UNITS.items() if 0 < value < 10
}
_QUANTITY = re.compile(r"\d[\d,]*(?:\.\d+)?|\b(?:" + "|".join(sorted(_NUMBER_WORDS, key=len, reverse=True)) + r")\b")


@dataclass(frozen=True, slots=True)
class ParsedSentence:
    """One sentence and what was found in it."""

    text: str
    terms: frozenset[str]  # all stems
    names: tuple[str, ...]  # capitalised spans; the first word only when it is no function word
    years: tuple[int, ...]
    numbers: tuple[float, ...]  # quantities that are not years
    dated: bool
    placed: bool


def _trim_name(name: str) -> str:
    parts = name.split(" ")
    while parts and parts[0].lower() in STOP_WORDS:
        parts.pop(0)
    return " ".join(parts).removesuffix("'s").removesuffix("’s")


@functools.lru_cache(maxsize=32768)
def sentence(text: str) -> ParsedSentence:
    """Analyse one sentence; remembered, since the same sentences come back in many contexts."""
    names = tuple(n for n in (_trim_name(m[0]) for m in _NAME.finditer(text)) if n)
    years = tuple(int(y) for y in _YEAR.findall(text))
    quantities = (_NUMBER_WORDS.get(q) or float(q.replace(",", "")) for q in _QUANTITY.findall(_DAY.sub("", text)))
    numbers = tuple(float(value) for value in quantities if value not in years)
    dated = bool(years) or bool(re.search(rf"\b(?:{ANY_MONTH})\b", text))
    terms, placed = frozenset(stems(text, "reader")), bool(_PLACE.search(text))
    return ParsedSentence(text, terms, names, years, numbers, dated, placed)


@functools.lru_cache(maxsize=4096)
def sentences(text: str) -> tuple[ParsedSentence, ...]:
    """Split a text into analysed sentences; a piece cut off at the end counts as one."""
    return tuple(map(sentence, split_sentences(text, "reader")))
