"""Text -> terms: the tokenisers of BM25, one table.

``auto``     the default: the row below for the language that the chunks are in (`language_of`), else ``words``.
``words``    runs of letters, digits and their marks in any script, compared under NFKC and case folding; no stop words,
             no stems. Scripts without blanks (Chinese, Japanese, Thai ...) and Korean: overlapping pairs of characters.
a language   ``words`` with its Snowball stemmer where it has one: ``english``, ``german``, ``chinese`` ...
``jieba``    Chinese words by the package jieba; where it is installed, ``auto`` takes it for Chinese.
``terrier``  as the thesis ran it (§2.5.3, PyTerrier's defaults): runs of ASCII letters and digits, lower case, no term
             longer than 20 characters, with more than four digits or four equal characters in a row, English stop
             words, Porter stems; a query keeps only ``[A-Za-z0-9 ]``. Words with any other letter are lost.
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

import numpy as np

from ragbench.errors import ConfigError, check_known
from ragbench.text.languages import LANGUAGES, UNSPACED, language_of
from ragbench.text.stopwords import STOP_WORDS
from ragbench.text.words import stemmer

AUTO = "auto"
# Languages that PyStemmer has had no Snowball stemmer for since 2.2; some came later, which would change results.
_UNSTEMMED = frozenset(("polish", "czech", "persian", "chinese", "japanese", "korean", "thai"))
_PATTERNS = {"ascii": r"[a-z0-9]+", "unicode": r"\w+", "space": r"\S+", "words": ""}
_NOT_IN_QUERY = re.compile(r"[^A-Za-z0-9 ]+")
# Terrier's filter: more than 20 characters, the same one four times in a row, or more than four digits.
_NOISE = re.compile(r".{21}|(.)\1{3}|(?:\d\D*){5}", re.DOTALL)
_LAST_MARK = 0x1EFFF  # the combining marks above are selectors of pictures, as those at FE00 are
_SOFT_HYPHEN = "\u00ad"
_SAMPLE = 500  # chunks that are looked at to choose a language


@functools.cache
def word_table(pattern: str) -> np.ndarray:
    """Say for every code point what it is to the tokens of ``pattern``.

    Returns
    -------
    uint8 array, shape (0x110000,): 0 not in a token; 1 in a run; 2 (only in ``"words"``) in a script without blanks, of
    which every two neighbours are a token. The others agree with the regular expression of the same name.
    """
    table = np.zeros(0x110000, np.uint8)
    if pattern == "ascii":
        table[[ord(c) for c in "abcdefghijklmnopqrstuvwxyz0123456789"]] = 1
        return table
    every = "".join(map(chr, range(0x110000)))
    one = {"unicode": r"\w", "space": r"\S", "words": r"[^\W_]"}[pattern]
    table[[m.start() for m in re.finditer(one, every)]] = 1
    if pattern == "words":
        # Without its vowel signs a Hindi or Thai word would fall to pieces, and so would one in decomposed form.
        marks = (i for i in range(0x300, _LAST_MARK) if unicodedata.category(chr(i))[0] == "M")
        table[[i for i in marks if not 0xFE00 <= i <= 0xFE0F]] = 1
        table[[m.start() for m in re.finditer(f"[{UNSPACED}]", every)]] *= 2
    return table


@functools.cache
def _kinds() -> bytes:
    return word_table("words").tobytes()


def fold(text: str) -> str:
    """Make equal what looks the same: compatibility forms (NFKC) and case; soft hyphens go.

    >>> fold("Ｓtra\u00adße")
    'strasse'
    """
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFKC", text.replace(_SOFT_HYPHEN, "")).casefold()


@dataclass(frozen=True)
class Tokenizer:
    """A pipeline text -> tokens -> terms. Call it with a text to get its terms.

    Parameters
    ----------
    name : shown in ``settings()``.
    pattern : what a token is: ``"ascii"`` ([a-z0-9]+), ``"unicode"`` (word characters) or ``"space"`` (str.split) of
        the lower-cased text; or ``"words"``: of the folded text (`fold`), runs of letters, digits and marks, and pairs
        of characters in scripts without blanks.
    stop : terms to drop, before stemming.
    stemmer : a PyStemmer algorithm such as ``"porter"``, or None.
    drop_noise : apply Terrier's filter of long, numeric and repetitive tokens.
    strip_query : remove everything but ``[A-Za-z0-9 ]`` from a query first.
    """

    name: str
    pattern: str = "unicode"
    stop: frozenset[str] = frozenset()
    stemmer: str | None = None
    drop_noise: bool = False
    strip_query: bool = False

    def __post_init__(self) -> None:
        check_known("token pattern", [self.pattern], _PATTERNS)

    def tokens(self, text: str) -> list[str]:
        """Cut a text into tokens, before stop words and stems."""
        text = self.prepared(text)
        if self.pattern == "words":
            kinds, tokens = _kinds(), []
            for kind, run in itertools.groupby(text, key=lambda c: kinds[ord(c)]):
                word = "".join(run)
                tokens += _pairs(word) if kind == 2 else [word] if kind else []
            return tokens
        return text.split() if self.pattern == "space" else re.findall(_PATTERNS[self.pattern], text)

    @property
    def prepared(self) -> Callable[[str], str]:
        """What is done to a text before it is cut."""
        return fold if self.pattern == "words" else str.lower

    def terms(self, tokens: Sequence[str]) -> list[str | None]:
        """Map each token to its term, None where it is dropped. Same length as ``tokens``."""
        kept: list[str | None] = [
            None if t in self.stop or (self.drop_noise and _NOISE.search(t)) else t for t in tokens
        ]
        if self.stemmer:
            stems = iter(stemmer(self.stemmer).stemWords([t for t in kept if t is not None]))
            kept = [None if t is None else next(stems) or None for t in kept]  # Porter leaves nothing of "s"
        return kept

    def clean_query(self, query: str) -> str:
        """Return the query as it is tokenised."""
        return _NOT_IN_QUERY.sub("", query) if self.strip_query else query

    def __call__(self, text: str) -> list[str]:
        return [t for t in self.terms(self.tokens(text)) if t is not None]


def _pairs(run: str) -> list[str]:
    return [run[i : i + 2] for i in range(len(run) - 1)] or [run]


def jieba_words(text: str) -> list[str]:
    """Words of Chinese text by the jieba package (extra ``[dev]``), without punctuation."""
    import logging

    import jieba

    jieba.setLogLevel(logging.WARNING)
    return [word for word in jieba.lcut(text.lower()) if any(c.isalnum() for c in word)]


def folded_jieba_words(text: str) -> list[str]:
    """`jieba_words` of the folded text."""
    return jieba_words(fold(text))


TERRIER = Tokenizer("terrier", "ascii", STOP_WORDS, "porter", drop_noise=True, strip_query=True)
PLAIN = Tokenizer("plain", "unicode")
SPLIT = Tokenizer("split", "space")
WORDS = Tokenizer("words", "words")
TOKENIZERS: dict[str, Tokenizer | Callable[[str], list[str]]] = {
    **{t.name: t for t in (TERRIER, PLAIN, SPLIT, WORDS)},
    **{name: Tokenizer(name, "words", stemmer=None if name in _UNSTEMMED else name) for name in LANGUAGES},
    "jieba": folded_jieba_words,
}
TOKENIZER_NAMES = (AUTO, *TOKENIZERS)


def get_tokenizer(
    tokenizer: str | Tokenizer | Callable[[str], list[str]], texts: Sequence[str] = ()
) -> Tokenizer | Callable[[str], list[str]]:
    """Return the tokenizer of that name, or the given one.

    Parameters
    ----------
    tokenizer : one of ``TOKENIZER_NAMES``, a Tokenizer, or a callable text -> terms.
    texts : what will be searched; ``"auto"`` chooses by up to 500 of them.

    Raises
    ------
    ConfigError for an unknown name, something that cannot be called, or jieba where it is not installed.
    """
    if isinstance(tokenizer, str):
        check_known("tokenizer", [tokenizer], TOKENIZER_NAMES)
        jieba_is_there = importlib.util.find_spec("jieba") is not None
        if tokenizer == AUTO:
            tokenizer = language_of(texts[:: max(1, len(texts) // _SAMPLE)]) or WORDS.name
            tokenizer = "jieba" if tokenizer == "chinese" and jieba_is_there else tokenizer
        if tokenizer == "jieba" and not jieba_is_there:
            raise ConfigError("jieba, which is not installed", "the package jieba", "pip install jieba, or use 'auto'")
        return TOKENIZERS[tokenizer]
    if not callable(tokenizer):
        raise ConfigError(
            f"tokenizer is {type(tokenizer).__name__}",
            "a name (" + ", ".join(TOKENIZER_NAMES) + ") or a callable text -> list of terms",
            "pass for instance tokenizer='auto' or tokenizer=str.split",
        )
    return tokenizer


def tokenizer_name(tokenizer: Tokenizer | Callable[[str], list[str]]) -> str:
    """Return the name a tokenizer has in settings and messages."""
    known = next((name for name, one in TOKENIZERS.items() if one is tokenizer), None)
    return known or getattr(tokenizer, "name", None) or getattr(tokenizer, "__qualname__", type(tokenizer).__name__)
