"""What the steps of RAGEval check by strings: whether a text states a value, its numbers, its words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

_NUMBER = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?")
# Words that carry meaning; in Chinese, characters.
_WORD = re.compile(r"[a-z]{4,}|[\u4e00-\u9fff]")
_MOST_WORDS = 0.7  # of a value that is stated in other words


def mentions(text: str, value: str) -> bool:
    """Tell whether a text states a value whole, not as a part of a longer word or number; case does not count."""
    return bool(value) and _whole(value).search(text) is not None


@lru_cache(maxsize=4096)
def _whole(value: str) -> re.Pattern[str]:
    """Return a pattern for a value that goes on neither before nor after it.

    Chinese writes numbers and Latin letters without blanks (3月14日), so only a letter or digit beside another counts.
    """
    before = ""
    after = ""
    if re.match(r"[A-Za-z0-9]", value):
        before = r"(?<![A-Za-z0-9])"
    if value[0].isdigit():
        before += r"(?<![0-9][.,])"
    if re.search(r"[A-Za-z0-9]\Z", value):
        after = r"(?![A-Za-z0-9])"
    if value[-1].isdigit():
        after += r"(?![.,][0-9])"
    return re.compile(before + re.escape(value) + after, re.IGNORECASE)


def states(sentences: Sequence[str], value: str) -> bool:
    """Tell whether sentences state a value, word for word or with most of its words.

    So "April 10, 2023" states "10 April 2023": the numbers of a value stand in one sentence, beside most of its words.
    A value without numbers may be told in several sentences.
    """
    text = " ".join(sentences)
    if mentions(text, value):
        return True
    if not content_words(value):
        return False
    needed = set(numbers(value))
    places = sentences if needed else [text]
    return any(needed <= set(numbers(place)) and shared_words(value, place) >= _MOST_WORDS for place in places)


def numbers(text: str) -> list[float]:
    """Return the numbers of a text, in order."""
    return [float(number.replace(",", "")) for number in _NUMBER.findall(text)]


def content_words(text: str) -> set[str]:
    """Return a text's words of four letters and more, and its Chinese characters."""
    return set(_WORD.findall(text.lower()))


def unfounded_numbers(text: str, source: str) -> list[float]:
    """Return the numbers of a text that the source does not have, nor are the sum or difference of two that it has."""
    given = set(numbers(source))
    derived = set()
    for first in given:
        for second in given:
            derived.add(round(first + second, 6))
            derived.add(round(first - second, 6))
    return [number for number in numbers(text) if number not in given and round(number, 6) not in derived]


def shared_words(text: str, source: str) -> float:
    """Return the share of a text's content words that the source has too; 1 for a text without any."""
    words = content_words(text)
    if not words:
        return 1.0
    return len(words & content_words(source)) / len(words)
