"""Words of a text and their stems, function words, number words.

One reader of words serves BM25, the overlaps and ``contained``: what looks the same is the same
word (`folded`), and `words` cuts it. Published measures have their own rules.
"""

from __future__ import annotations

import functools
import itertools
import re
import unicodedata
from pathlib import Path
from typing import Any

from ragbench.text.languages import ANY_UNSPACED, UNSPACED
from ragbench.text.layout import UNSEEN, undivided

_UNITS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
    "fifteen sixteen seventeen "
    "eighteen nineteen"
)
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
ONES = {word: value for value, word in enumerate(_UNITS.split())}
TENS = dict(zip(_TENS.split(), range(20, 100, 10), strict=True))

_LINES = Path(__file__).with_name("stop_words.txt").read_text(encoding="utf-8").splitlines()
STOP_WORDS = frozenset(word for line in _LINES if not line.startswith("#") for word in line.split())
_ONE_SCRIPT = re.compile(f"[{UNSPACED}]+|[^{UNSPACED}]+")
# A raised digit, a fraction or a digit in a circle after a digit: 10⁶, 10⁻⁶, 1½, 1841①.
_AFTER_DIGIT = re.compile(
    "(?<=[0-9])(?=[\u00b2\u00b3\u00b9\u2070-\u207b\u00bc-\u00be\u2150-\u215f\u2460-\u249b])"
)
_FOREIGN_DIGIT = re.compile(r"(?![0-9])\d")
_TURKISH_I = "i\u0307"  # what lower case makes of İ


@functools.cache
def word_characters() -> str:
    """Return letters, digits, marks and ``_`` as the inside of a class of a regular expression."""
    # Without its vowel signs a Hindi or Thai word would fall to pieces, and so would one in
    # decomposed form.
    marks = [c for c in map(chr, range(0x300, 0xFFFF)) if unicodedata.category(c)[0] == "M"]
    return rf"\w{''.join(marks)}"


@functools.cache
def _runs() -> re.Pattern[str]:
    return re.compile(f"[{word_characters()}]+")


def unified(text: str) -> str:
    """Make equal what looks the same, but for case: words divided at a line end, hidden characters,
    compatibility forms (NFKC), digits of other scripts.

    A power stays apart from its base: 10⁶ is 10 6, not 106.

    >>> unified("Ｒｅｄ of\u00adﬁce, ١٩٩٧")
    'Red office, 1997'
    """
    text = undivided(text)
    if text.isascii():
        return text
    text = _AFTER_DIGIT.sub(" ", UNSEEN.sub("", text))
    text = unicodedata.normalize("NFKC", text)
    return _FOREIGN_DIGIT.sub(lambda digit: str(unicodedata.digit(digit[0])), text)


def folded(text: str) -> str:
    """Make equal what looks the same, and case too.

    >>> folded("Ｓtra\u00adße in İSTANBUL")
    'strasse in istanbul'
    """
    return unified(text).casefold().replace(_TURKISH_I, "i")


def words(text: str, unspaced: int = 2) -> list[str]:
    """Return the words of a folded text: runs of letters, digits and their marks.

    In scripts without blanks, and Korean, they are overlapping pairs of characters, or each
    character (``unspaced=1``).

    >>> words("L'Été in 北京市")
    ['l', 'été', 'in', '北京', '京市']
    """
    text = folded(text)
    if text.isascii():
        return re.findall("[a-z0-9]+", text)
    runs = _runs().findall(text.replace("_", " "))
    if not ANY_UNSPACED.search(text):
        return runs
    found = []
    for run in runs:
        for part in _ONE_SCRIPT.findall(run):
            if not ANY_UNSPACED.match(part):
                found.append(part)
            elif unspaced == 1:
                found += part
            else:
                pairs = [first + second for first, second in itertools.pairwise(part)]
                found += pairs or [part]
    return found


@functools.cache
def stemmer(algorithm: str) -> Any:
    """Return a PyStemmer stemmer without a cache of its own, which is not thread-safe."""
    import Stemmer

    return Stemmer.Stemmer(algorithm, 0)


@functools.lru_cache(maxsize=200_000)
def _stem(word: str) -> str:
    return stemmer("porter").stemWord(word)


def stems(text: str) -> list[str]:
    """Return the Porter stems of a text's `words`, in order.

    A lone "s" has no stem.

    >>> stems("Ada's mills")
    ['ada', 'mill']
    """
    return [stem for stem in map(_stem, words(text)) if stem]
