"""Words of a text, their stems and ranks. Fitted models depend on what a word is, so each use has its own row.

``overlap``  runs of Unicode word characters, Porter stems: `idf_overlap`.
``claims``   runs of letters and digits, numbers with their decimals, Snowball stems: the judge and the checker.
``reader``   words, and single characters of scripts without spaces; no stop words; one stem for words of one event
             ("died", "death", "perished"): the extractive reader.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ragbench.errors import check_known
from ragbench.text.tokens import default_tokenizer

_MONTHS = "January February March April May June July August September October November December"
_UNITS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
)
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
MONTHS = tuple(_MONTHS.split())
ANY_MONTH = "|".join(MONTHS)
UNITS = {word: value for value, word in enumerate(_UNITS.split())}
TENS = dict(zip(_TENS.split(), range(20, 100, 10), strict=True))

_CJK = "\u3040-\u30ff\u3400-\u9fff"
# Everyday words for the events questions ask about; each group counts as one word.
_EVENTS = (
    "die died dies dying death dead perish perished killed drowned murdered",
    "born birth birthplace native",
    "bury buried burial grave tomb remains interred",
    "marry married marriage wed wedding wife husband bride spouse",
    "found founded founder establish established founding",
    "write wrote written writer author authored",
    "name named called christened namesake",
    "discover discovered discoverer discovery detected",
    "brother sister sibling siblings",
    "son daughter child children",
    "publish published printed issued",
    "win won winner awarded prize",
    "paint painted painter painting",
    "compose composed composer",
)

_LINES = Path(__file__).with_name("stop_words.txt").read_text(encoding="utf-8").splitlines()
STOP_WORDS = frozenset(word for line in _LINES if not line.startswith("#") for word in line.split())

# MiniLM's WordPiece vocabulary lists its words by falling frequency, from the id of "the" on; before them
# come single characters, and before those reserved pieces.
_FIRST_WORD, _VOCABULARY = 1996, 30522
_FIRST_CHARACTER = 999
_CHARACTER_RANK = 50  # single characters count like frequent words
_PIECE = 0.3  # each further piece of a word outside the vocabulary makes it a little rarer
_EVERYDAY = 4000  # rank up to which a word is everyday language


@dataclass(frozen=True)
class _WordRule:
    """What a word is, in lower case, and what becomes of it."""

    pattern: re.Pattern[str]
    stemmer: str = "english"  # a PyStemmer algorithm
    drop: frozenset[str] = frozenset()  # words that have no stem
    groups: tuple[str, ...] = ()  # words that share the stem of the first


WORDS: dict[str, _WordRule] = {
    "overlap": _WordRule(re.compile(r"\w+"), "porter"),
    "claims": _WordRule(re.compile(r"[^\W_]+(?:[.,]\d+)*")),
    "reader": _WordRule(re.compile(rf"[{_CJK}]|[^\W_{_CJK}]+"), drop=STOP_WORDS | {"s"}, groups=_EVENTS),
}


@functools.cache
def stemmer(algorithm: str) -> Any:
    """Return a PyStemmer stemmer without a cache of its own, which is not thread-safe."""
    import Stemmer

    return Stemmer.Stemmer(algorithm, 0)


def _rule(profile: str) -> _WordRule:
    check_known("word profile", [profile], WORDS)
    return WORDS[profile]


@functools.cache
def _same(profile: str) -> dict[str, str]:
    rule = _rule(profile)
    stem_word = stemmer(rule.stemmer).stemWord
    return {stem_word(word): stem_word(group.split()[0]) for group in rule.groups for word in group.split()}


@functools.lru_cache(maxsize=200_000)
def stem(word: str, profile: str) -> str:
    """Return the stem of a lower-case word; Porter leaves nothing of a lone "s"."""
    stemmed = stemmer(_rule(profile).stemmer).stemWord(word)
    return _same(profile).get(stemmed, stemmed)


def words(text: str, profile: str) -> list[str]:
    """Return the lower-cased words of a text, in order."""
    return _rule(profile).pattern.findall(text.lower())


def stems(text: str, profile: str) -> list[str]:
    """Return the stems of a text's words, in order; words that are dropped or have an empty stem are left out.

    >>> stems("Where did she die?", "reader") == stems("her death", "reader")
    True
    """
    drop = _rule(profile).drop
    return [s for w in words(text, profile) if w not in drop and (s := stem(w, profile))]


@functools.lru_cache(maxsize=200_000)
def word_weight(word: str) -> float:
    """Log of a lower-case word's frequency rank: 1.8 for "the", about 10.5 for a word outside the vocabulary.

    By Zipf's law this is the word's IDF up to a constant, and needs no corpus.
    """
    ids = default_tokenizer().encode(word, add_special_tokens=False).ids
    if len(ids) != 1 or ids[0] < _FIRST_CHARACTER:  # below the characters are [UNK] and reserved pieces
        return float(np.log(_VOCABULARY - _FIRST_WORD) + _PIECE * max(len(ids) - 1, 0))
    return float(np.log((ids[0] - _FIRST_WORD + 1 if ids[0] >= _FIRST_WORD else _CHARACTER_RANK) + 5))


@functools.lru_cache(maxsize=100_000)
def everyday(word: str) -> bool:
    """Say whether a lower-case word is among the 4,000 most frequent of MiniLM's vocabulary."""
    number = default_tokenizer().token_to_id(word)
    return number is not None and number < _FIRST_WORD + _EVERYDAY
