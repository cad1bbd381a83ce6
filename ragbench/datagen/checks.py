"""What the steps of RAGEval check by strings: a text's values, its numbers, its words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import product

_NUMBER = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?")
_WORD = re.compile(r"[a-z]{4,}")  # words that carry meaning
_MOST_WORDS = 0.7  # of a value that is stated in other words


def mentions(text: str, value: str) -> bool:
    """Tell whether a text has a value whole, not as a part of a longer word or number, in any
    case of letters.
    """
    whole = rf"(?<![a-z0-9])(?<![0-9][.,]){re.escape(value)}(?![a-z0-9])(?![.,][0-9])"
    return bool(value) and re.search(whole, text, re.IGNORECASE) is not None


def states(sentences: Sequence[str], value: str) -> bool:
    """Tell whether sentences state a value, word for word or with most of its words.

    So "April 10, 2023" states "10 April 2023": the numbers of a value stand in one sentence, beside
    most of its words. A value without numbers may be told in several sentences.
    """
    text = " ".join(sentences)
    if mentions(text, value):
        return True
    if not _content_words(value):
        return False
    needed = set(_numbers(value))
    places = sentences if needed else [text]
    return any(
        needed <= set(_numbers(place)) and shared_words(value, place) >= _MOST_WORDS
        for place in places
    )


def _numbers(text: str) -> list[float]:
    """Return the numbers of a text, in order."""
    return [float(number.replace(",", "")) for number in _NUMBER.findall(text)]


def _content_words(text: str) -> set[str]:
    """Return a text's words of four letters and more."""
    return set(_WORD.findall(text.lower()))


def unfounded_numbers(text: str, source: str) -> list[float]:
    """Return the numbers of a text that the source does not have, nor are the sum or difference of
    two that it has.
    """
    founded = _numbers(source)
    for first, second in product(set(founded), repeat=2):
        founded += [round(first + second, 6), round(first - second, 6)]
    valid = set(founded)
    return [x for x in _numbers(text) if x not in valid and round(x, 6) not in valid]


def shared_words(text: str, source: str) -> float:
    """Return the share of a text's content words that the source has too; 1 for a text without
    any.
    """
    words = _content_words(text)
    if not words:
        return 1.0
    return len(words & _content_words(source)) / len(words)
