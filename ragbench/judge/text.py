"""Text -> the units the judge and the checker compare: stems with weights, sentences, numbers, names, stance.

Word weights need no corpus: the embedded model's WordPiece vocabulary lists its words by falling frequency, so the
logarithm of a word's rank is its IDF up to a constant (Zipf's law). Made for English; other languages with spaces work
through the vocabulary's pieces, languages without spaces do not.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections import Counter
from dataclasses import dataclass

import numpy as np

FIRST_WORD = 1996  # the id of "the": from here on the vocabulary is ordered by frequency
FIRST_CHARACTER = 999  # ids 999..1995 are single characters, below are reserved pieces
VOCABULARY = 30522
_CHARACTER_RANK = 50  # single characters count like frequent words
_PIECE = 0.3  # each further piece of a word outside the vocabulary makes it a little rarer
_COMMON = 3.0  # log rank up to which a word is taken to carry nothing ("the" 1.8, "with" 3.1, "river" 5.8)
_LEAST = 0.1  # so that a reference of common words only ("The Who") can still be matched

_WORD = re.compile(r"[^\W_]+(?:[.,]\d+)*")
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_NAME = re.compile(r"(?<=[^\W_.!?][ \t])[A-Z][\w-]+|(?<=[,;:(\"'] )[A-Z][\w-]+|(?<=[(\"'])[A-Z][\w-]+")
_BREAK = re.compile(r"(?<=[.!?])[\"')\]]*\s+(?=[\"'(\[*]?[A-Z0-9])|\s*\n\s*")
_ABBREVIATION = re.compile(r"\b(?:[A-Z]|Mr|Mrs|Ms|Dr|St|Prof|Sr|Jr|vs|No|Fig|Eq|e\.g|i\.e|approx|ca|c)\.$")
_YES_NO = re.compile(r"^\W*(?:the answer is )?(yes|no)\b", re.I)
_POLAR = re.compile(
    r"^\W*(is|are|was|were|am|do|does|did|can|could|should|would|will|has|have|had|may|might|must)\b", re.I
)
NEGATION = re.compile(r"\b(no|not|never|none|neither|nor|cannot|without|unlikely|false|incorrect)\b|n['’]t\b", re.I)
_ABSTENTION = re.compile(
    r"\bI (?:do not|don['’]t) (?:know|have)|\b(?:cannot|can['’]t|unable to|not possible to) (?:be )?"
    r"(?:answer|determin|find|provid|tell)|\b(?:not|n['’]t) (?:explicitly |directly |specifically )?"
    r"(?:mention|specif|provide|contain|state|include|give|discuss|say)|\bno (?:explicit |direct |specific |relevant )?"
    r"(?:mention|information|answer)\b|\binsufficient\b",
    re.I,
)


@functools.lru_cache(maxsize=1)
def _stemmer():
    import Stemmer

    return Stemmer.Stemmer("english")


@functools.lru_cache(maxsize=200_000)
def word_weight(word: str) -> float:
    """Log of a lower-case word's frequency rank: 1.8 for "the", about 10.5 for a word outside the vocabulary."""
    from ragbench.embedding import default_tokenizer

    ids = default_tokenizer().encode(word, add_special_tokens=False).ids
    if len(ids) != 1:
        return float(np.log(VOCABULARY - FIRST_WORD) + _PIECE * max(len(ids) - 1, 0))
    rank = ids[0] - FIRST_WORD + 1 if ids[0] >= FIRST_WORD else _CHARACTER_RANK
    # A piece below the characters is [UNK] or reserved: as rare as it gets.
    return float(np.log(rank + 5)) if ids[0] >= FIRST_CHARACTER else float(np.log(VOCABULARY - FIRST_WORD))


def split_sentences(text: str) -> list[str]:
    """Cut a text into sentences: at line ends and after ``.!?`` before a capital or digit, not after abbreviations."""
    sentences: list[str] = []
    start = 0
    for match in _BREAK.finditer(text):
        piece = text[start : match.start()].strip()
        if "\n" not in match.group() and _ABBREVIATION.search(piece):
            continue
        sentences.append(piece)
        start = match.end()
    sentences.append(text[start:].strip())
    return [s for s in sentences if _WORD.search(s)]


def stance(text: str, polar: bool) -> int:
    """1 for yes, -1 for no, 0 for neither; without a yes or no, a polar question is answered by its first sentence."""
    match = _YES_NO.match(text)
    if match:
        return 1 if match.group(1).lower() == "yes" else -1
    if not polar or not text.strip():
        return 0
    return -1 if NEGATION.search(split_sentences(text)[0] if split_sentences(text) else text) else 1


def is_polar(question: str) -> bool:
    """Whether a question asks for yes or no."""
    return bool(_POLAR.match(question))


def abstains(text: str) -> bool:
    """Whether a text opens with saying that it cannot answer (first 300 characters)."""
    return bool(_ABSTENTION.search(text[:300]))


@dataclass(frozen=True)
class Prepared:
    """A text taken apart. ``stems`` are in text order, ``weights`` their log ranks; ``sentences`` index into both."""

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


def _number(text: str) -> str:
    return text.replace(",", "").rstrip(".")


@functools.lru_cache(maxsize=20_000)
def prepare(text: str) -> Prepared:
    """Take a text apart; the last 20,000 texts are remembered, since a reference meets many answers."""
    sentences = split_sentences(text)
    by_sentence = [_WORD.findall(s.lower()) for s in sentences]
    words = [w for ws in by_sentence for w in ws]
    ends = np.cumsum([0, *map(len, by_sentence)]).tolist()
    return Prepared(
        text,
        tuple(words),
        tuple(_stemmer().stemWords(words)),
        tuple(word_weight(w) for w in words),
        tuple(sentences),
        tuple(itertools.pairwise(ends)),
        frozenset(_number(n) for n in _NUMBER.findall(text)),
        frozenset(n.lower() for n in _NAME.findall(text)),
    )
