"""Texts parsed once for many comparisons: for the judge, the grader, the extractive reader.

`parse`      for the judge and the checker: stems with weights, sentences, numbers, names. Made for English; other
             languages with spaces work through the pieces of the vocabulary, languages without spaces do not.
`tokens`     for the grader: comparable words (accents, number words, months and possessives made equal), with names and
             numbers marked. Words of other scripts are kept; they share none with an English reference.
`sentences`  for the reader: stems, names, years, quantities, places. English rules, any script.
"""

from __future__ import annotations

import functools
import itertools
import re
import unicodedata
from collections import Counter
from dataclasses import dataclass

import numpy as np

from ragbench.text.sentences import split_sentences
from ragbench.text.words import (
    ANY_MONTH,
    MONTHS,
    STOP_WORDS,
    TENS,
    UNITS,
    everyday,
    stem,
    stemmer,
    stems,
    word_weight,
    words,
)

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


# The grader's

_UNSPACED = "\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff"
_GRADED_WORD = re.compile(rf"\d+(?:[.,]\d+)*|[{_UNSPACED}]|[^\W\d_{_UNSPACED}]+(?:['’][^\W\d_{_UNSPACED}]+)?|[^\W_]")
_OPENS_AFTER = re.compile(r"[.!?:;\n]")
_SHORT = {m[:3].lower(): m.lower() for m in MONTHS if m != "May"} | {"sept": "september", "st": "saint", "mt": "mount"}
_SMALL = UNITS | TENS
_LARGE = {"hundred": 100, "thousand": 1000, "million": 10**6}


@dataclass(frozen=True, slots=True)
class Token:
    """One word. ``word`` is its comparable form, ``stem`` that of its family; ``start`` its place in the text."""

    word: str
    stem: str
    start: int
    capital: bool
    name: bool  # a capitalised word, save everyday ones where a sentence opens
    number: bool
    plain: bool  # a function word, or nothing but everyday language

    @property
    def content(self) -> bool:
        """Whether it is more than a function word."""
        return self.word not in FUNCTION_WORDS


FUNCTION_WORDS = STOP_WORDS | {"s", "t", "not", "yes", "no", "ca", "wo", "one"}
# Signs that change what a formula or a name says (x+1, C++, -5). A hyphen inside a word and a bullet are none.
_SIGN = re.compile(r"([+=<>^±×÷√∑∏∫∞≤≥≠]|(?<![\w)\]])-(?=[\d(]|[a-z]\b))")


def signs(text: str) -> list[str]:
    """Return the mathematical signs of a text in order; none in ordinary prose."""
    return _SIGN.findall(folded_line(text))


def folded_line(text: str) -> str:
    """Return a text with characters of one meaning made equal (NFKC, one minus, lower case), white space as one blank.

    Signs stay, unlike in `tokens`: for answers whose words do not say it all.
    """
    return " ".join(unicodedata.normalize("NFKC", text).replace("\u2212", "-").casefold().split())


def holds(text: str, wanted: str) -> bool:
    """Say whether a text holds another one to the sign, as a whole: "x + 1" holds "x+1", "2x+10" does not."""
    parts = r"\s*".join(map(re.escape, "".join(folded_line(wanted).split())))
    return bool(re.search(rf"(?<![\w+*/^=<>-]){parts}(?!\w|\s*[+*/^=<>-])", folded_line(text)))


def _comparable(raw: str) -> str:
    folded = unicodedata.normalize("NFKD", raw.replace("’", "'")).casefold()
    word = "".join(c for c in folded if not unicodedata.combining(c))
    word = word.removesuffix("'s").removesuffix("n't").removesuffix("'")
    word = re.sub(r"'(?:m|re|ve|ll|d)$", "", word)
    if word[:1].isdigit():
        return word.replace(",", "")
    return _SHORT.get(word, word)


def _merge_numbers(words: list[tuple[str, str, int]]) -> list[tuple[str, str, int]]:
    """Join number words: "forty two" 42, "sixteen hundred" 1600, "nineteen seventy-eight" 1978, "third" stays."""
    merged: list[tuple[str, str, int]] = []

    def following(i: int) -> str:
        return words[i][1] if i < len(words) else ""

    i = 0
    while i < len(words):
        raw, word, start = words[i]
        if word not in _SMALL or (
            word == "one" and following(i + 1) not in _LARGE
        ):  # "the Siberian one" counts nothing
            merged.append(words[i])
            i += 1
            continue
        value, i = _SMALL[word], i + 1
        if 10 < value < 20 and following(i) in TENS:
            value, i, word = value * 100 + TENS[following(i)], i + 1, following(i)
        if word in TENS and 0 < _SMALL.get(following(i), 99) < 10:
            value, i = value + _SMALL[following(i)], i + 1
        while following(i) in _LARGE:
            value, i = value * _LARGE[following(i)], i + 1
        merged.append((raw, str(value), start))
    return merged


@functools.lru_cache(maxsize=20_000)
def tokens(text: str) -> tuple[Token, ...]:
    """Cut a text into tokens; remembered, since questions and facts come back for many answers."""
    words = [(m[0], _comparable(m[0]), m.start()) for m in _GRADED_WORD.finditer(text)]
    result, end_of_last = [], 0
    for raw, word, start in _merge_numbers(words):
        opens = not result or bool(_OPENS_AFTER.search(text, end_of_last, start))
        number = word[:1].isdigit()
        is_name = raw[:1].isupper() and word not in FUNCTION_WORDS and not (opens and everyday(word))
        is_plain = word in FUNCTION_WORDS or (not is_name and not number and everyday(word))
        result.append(Token(word, stem(word, "claims"), start, raw[:1].isupper(), is_name, number, is_plain))
        end_of_last = start + len(raw)
    return tuple(result)


def token_stems(text: str) -> frozenset[str]:
    """Return the stems of all of a text's `tokens`."""
    return frozenset(t.stem for t in tokens(text))


def content_stems(text: str) -> frozenset[str]:
    """Return the stems of the `tokens` that are more than function words; of all when there are no others."""
    every = tokens(text)
    return frozenset(t.stem for t in every if t.content) or frozenset(t.stem for t in every)


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


def opening_name(s: ParsedSentence) -> str:
    """Return the name a sentence begins with, which the next sentences are likely about; empty when there is none."""
    return s.names[0] if s.names and s.text.removeprefix("The ").startswith(s.names[0]) else ""


@functools.lru_cache(maxsize=4096)
def sentences(text: str) -> tuple[ParsedSentence, ...]:
    """Split a text into analysed sentences; a piece cut off at the end counts as one."""
    return tuple(map(sentence, split_sentences(text, "reader")))


def trim(text: str) -> str:
    """Drop what a sentence says in brackets and the connective it opens with; end it with a full stop."""
    text = re.sub(r"\s*\([^()]*\)", "", text)
    text = re.sub(r"^(?:However|Moreover|Therefore|Thus|Instead|Meanwhile),\s+", "", text)
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "!", "?", "。", "！", "？", '"', "”")) else text.rstrip(" ,;:") + "."
