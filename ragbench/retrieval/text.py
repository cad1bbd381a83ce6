"""Text -> terms: the tokenisers of BM25, one table.

``auto``     the default: the row below for the language that the chunks are in (`language_of`),
             else ``words``.
``words``    runs of letters, digits and their marks in any script, compared under NFKC and case
             folding; no stop words, no stems. Scripts without blanks (Chinese, Japanese, Thai ...)
             and Korean: overlapping pairs of characters.
a language   ``english``, ``german``, ``french``: ``words`` with Snowball stems; ``chinese``:
             ``words``.
``jieba``    Chinese words by the package jieba; where it is installed, ``auto`` takes it for
             Chinese.
``terrier``  as the thesis ran it (§2.5.3, PyTerrier's defaults): runs of ASCII letters and digits,
             lower case, no term longer than 20 characters, with more than four digits or four equal
             characters in a row, English stop words, Porter stems; a query keeps only
             ``[A-Za-z0-9 ]``. Words with any other letter are lost.
``plain``    runs of Unicode word characters, lower case; no stop words, no stems.
``split``    ``text.lower().split()``, as in the recorded HotpotQA rankings.
"""

from __future__ import annotations

import functools
import importlib.util
import itertools
import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ragbench.errors import ConfigError, check_known
from ragbench.text.languages import ANY_UNSPACED, LANGUAGES, UNSPACED, language_of
from ragbench.text.layout import undivided
from ragbench.text.words import STOP_WORDS, stemmer

# that a token is made of
_CHARACTER = {"ascii": "[a-z0-9]", "unicode": r"\w", "space": r"\S", "words": r"[^\W_]"}
_NOT_IN_QUERY = re.compile(r"[^A-Za-z0-9 ]+")
# Terrier's filter: more than 20 characters, the same one four times in a row, or more than four
# digits.
_NOISE = re.compile(r".{21}|(.)\1{3}|(?:\d\D*){5}", re.DOTALL)
_ONE_SCRIPT = re.compile(f"[{UNSPACED}]+|[^{UNSPACED}]+")
_SOFT_HYPHEN = "\u00ad"
_TURKISH_I = "i\u0307"  # what lower case makes of İ
_SAMPLE = 500  # chunks that are looked at to choose a language


@functools.cache
def _runs() -> re.Pattern[str]:
    """Compile what finds runs of letters, digits, marks and ``_``."""
    # Without its vowel signs a Hindi or Thai word would fall to pieces, and so would one in
    # decomposed form.
    points = (i for i in range(0x300, 0xFFFF) if not 0xFE00 <= i <= 0xFE0F)  # those select pictures
    marks = "".join(chr(i) for i in points if unicodedata.category(chr(i))[0] == "M")
    return re.compile(rf"[\w{marks}]+")


def _fold(text: str) -> str:
    """Make equal what looks the same: compatibility forms (NFKC) and case; soft hyphens go.

    >>> _fold("Ｓtra\u00adße")
    'strasse'
    """
    if text.isascii():
        return text.lower()
    folded = unicodedata.normalize("NFKC", text.replace(_SOFT_HYPHEN, "")).casefold()
    return folded.replace(_TURKISH_I, "i")


@dataclass(frozen=True)
class Tokenizer:
    """A pipeline text -> tokens -> terms. Call it with a text to get its terms.

    ``pattern`` is what a token is: ``"ascii"`` ([a-z0-9]+), ``"unicode"`` (word characters) or
    ``"space"`` (str.split) of the lower-cased text; or ``"words"``: of the folded text (`_fold`),
    runs of letters, digits and marks, and pairs of characters in scripts without blanks.
    """

    name: str  # shown in ``settings()``
    pattern: str = "unicode"
    stop: frozenset[str] = frozenset()  # tokens to drop, before stemming
    stemmer: str | None = None  # a PyStemmer algorithm such as "porter"
    drop_noise: bool = (
        False  # whether Terrier's filter of long, numeric and repetitive tokens applies
    )
    strip_query: bool = False  # whether everything but [A-Za-z0-9 ] is removed from a query first

    def __post_init__(self) -> None:
        check_known("token pattern", [self.pattern], _CHARACTER)

    def prepared(self, text: str) -> str:
        """Return a text as it is cut: words that a line end divides are joined, as the IR score
        reads them.
        """
        text = undivided(text)
        return _fold(text) if self.pattern == "words" else text.lower()

    def tokens(self, text: str) -> list[str]:
        """Cut a text into tokens, before stop words and stems."""
        text = self.prepared(text)
        if self.pattern != "words" or text.isascii():
            return re.findall(f"{_CHARACTER[self.pattern]}+", text)
        runs = _runs().findall(text.replace("_", " "))
        if not ANY_UNSPACED.search(text):
            return runs
        tokens = []
        for word in (part for run in runs for part in _ONE_SCRIPT.findall(run)):
            pairs = [a + b for a, b in itertools.pairwise(word)] if ANY_UNSPACED.match(word) else []
            tokens += pairs or [word]
        return tokens

    def terms(self, tokens: Sequence[str]) -> list[str | None]:
        """Map each token to its term, None where it is dropped."""
        kept: list[str | None] = [
            None if t in self.stop or (self.drop_noise and _NOISE.search(t)) else t for t in tokens
        ]
        if self.stemmer:
            stems = iter(stemmer(self.stemmer).stemWords([t for t in kept if t is not None]))
            # Porter leaves nothing of "s"
            kept = [None if t is None else next(stems) or None for t in kept]
        return kept

    def clean_query(self, query: str) -> str:
        """Return the query as it is tokenised."""
        return _NOT_IN_QUERY.sub("", query) if self.strip_query else query

    def __call__(self, text: str) -> list[str]:
        return [t for t in self.terms(self.tokens(text)) if t is not None]


Words = Tokenizer | Callable[[str], list[str]]


def jieba_words(text: str) -> list[str]:
    """Words of Chinese text by the jieba package (``pip install jieba``), without punctuation."""
    import logging

    import jieba

    jieba.setLogLevel(logging.WARNING)
    return [word for word in jieba.lcut(text.lower()) if any(c.isalnum() for c in word)]


def _folded_jieba_words(text: str) -> list[str]:
    return jieba_words(_fold(text))


TOKENIZERS: dict[str, Words] = {
    "terrier": Tokenizer(
        "terrier", "ascii", STOP_WORDS, "porter", drop_noise=True, strip_query=True
    ),
    "plain": Tokenizer("plain", "unicode"),
    "split": Tokenizer("split", "space"),
    "words": Tokenizer("words", "words"),
    **{
        name: Tokenizer(name, "words", stemmer=None if name == "chinese" else name)
        for name in LANGUAGES
    },
    "jieba": _folded_jieba_words,
}


def get_tokenizer(tokenizer: str | Words, texts: Sequence[str] = ()) -> Words:
    """Return the tokenizer of that name, or the given one; ``"auto"`` chooses by up to 500 of
    ``texts``.
    """
    if not isinstance(tokenizer, str):
        if callable(tokenizer):
            return tokenizer
        expected = f"a name (auto, {', '.join(TOKENIZERS)}) or a callable text -> list of terms"
        raise ConfigError(
            f"tokenizer is {type(tokenizer).__name__}",
            expected,
            "pass for instance tokenizer='auto'",
        )
    check_known("tokenizer", [tokenizer], ("auto", *TOKENIZERS))
    jieba_is_there = importlib.util.find_spec("jieba") is not None
    if tokenizer == "auto":
        tokenizer = language_of(texts[:: max(1, len(texts) // _SAMPLE)]) or "words"
        tokenizer = "jieba" if tokenizer == "chinese" and jieba_is_there else tokenizer
    if tokenizer == "jieba" and not jieba_is_there:
        raise ConfigError(
            "jieba, which is not installed", "the package jieba", "pip install jieba, or use 'auto'"
        )
    return TOKENIZERS[tokenizer]
