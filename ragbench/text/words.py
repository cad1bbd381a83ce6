"""Words of a text and their stems, function words, number words."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

_UNITS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
    "fifteen sixteen seventeen "
    "eighteen nineteen"
)
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
UNITS = {word: value for value, word in enumerate(_UNITS.split())}
TENS = dict(zip(_TENS.split(), range(20, 100, 10), strict=True))

_LINES = Path(__file__).with_name("stop_words.txt").read_text(encoding="utf-8").splitlines()
STOP_WORDS = frozenset(word for line in _LINES if not line.startswith("#") for word in line.split())
_WORD = re.compile(r"\w+")


@functools.cache
def stemmer(algorithm: str) -> Any:
    """Return a PyStemmer stemmer without a cache of its own, which is not thread-safe."""
    import Stemmer

    return Stemmer.Stemmer(algorithm, 0)


@functools.lru_cache(maxsize=200_000)
def _stem(word: str) -> str:
    return stemmer("porter").stemWord(word)


def stems(text: str) -> list[str]:
    """Return the Porter stems of a text's lower-cased words (runs of Unicode word characters), in
    order.

    A lone "s" has no stem.

    >>> stems("Ada's mills")
    ['ada', 'mill']
    """
    words = _WORD.findall(text.lower())
    return [stem for stem in map(_stem, words) if stem]
