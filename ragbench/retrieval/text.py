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

import importlib.util
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ragbench.errors import ConfigError, check_known
from ragbench.text.languages import FUNCTION_WORDS, language_of
from ragbench.text.layout import undivided
from ragbench.text.words import STOP_WORDS, folded, stemmer, words

# that a token is made of
_CHARACTER = {"ascii": "[a-z0-9]", "unicode": r"\w", "space": r"\S", "words": r"[^\W_]"}
_NOT_IN_QUERY = re.compile(r"[^A-Za-z0-9 ]+")
# Terrier's filter: more than 20 characters, the same one four times in a row, or more than four
# digits.
_NOISE = re.compile(r".{21}|(.)\1{3}|(?:\d\D*){5}", re.DOTALL)
_SAMPLE = 500  # chunks that are looked at to choose a language


@dataclass(frozen=True)
class Tokenizer:
    """A pipeline text -> tokens -> terms. Call it with a text to get its terms.

    ``pattern`` is what a token is: ``"ascii"`` ([a-z0-9]+), ``"unicode"`` (word characters) or
    ``"space"`` (str.split) of the lower-cased text; or ``"words"``: of the folded text (`folded`),
    runs of letters, digits and marks, and pairs of characters in scripts without blanks. ``cut`` is
    a function text -> tokens in its place.
    """

    name: str  # shown in ``settings()``
    pattern: str = "unicode"
    stop: frozenset[str] = frozenset()  # tokens to drop, before stemming
    stemmer: str | None = None  # a PyStemmer algorithm such as "porter"
    # whether Terrier's filter of long, numeric and repetitive tokens applies
    drop_noise: bool = False
    strip_query: bool = False  # whether everything but [A-Za-z0-9 ] is removed from a query first
    cut: Callable[[str], list[str]] | None = None

    def __post_init__(self) -> None:
        check_known("token pattern", [self.pattern], _CHARACTER)

    @classmethod
    def of(cls, tokenizer: str | Words, texts: Sequence[str] = ()) -> Tokenizer:
        """Return the tokenizer of that name, or of that function; ``"auto"`` chooses by up to 500
        of ``texts``.
        """
        if isinstance(tokenizer, str):
            return _named_tokenizer(tokenizer, texts)
        if isinstance(tokenizer, cls):
            return tokenizer
        if callable(tokenizer):
            own_name = getattr(tokenizer, "name", None) or getattr(tokenizer, "__qualname__", None)
            return cls(own_name or type(tokenizer).__name__, cut=tokenizer)
        raise ConfigError(
            f"tokenizer is {type(tokenizer).__name__}",
            f"a name (auto, {', '.join(TOKENIZERS)}) or a callable text -> list of terms",
            "pass for instance tokenizer='auto'",
        )

    def prepared(self, text: str) -> str:
        """Return a text as it is cut: words that a line end divides are joined, as the IR score
        reads them.
        """
        return folded(text) if self.pattern == "words" else undivided(text).lower()

    def tokens(self, text: str) -> list[str]:
        """Cut a text into tokens, before stop words and stems."""
        if self.cut is not None:
            return self.cut(text)
        if self.pattern == "words":
            return words(text)
        return re.findall(f"{_CHARACTER[self.pattern]}+", self.prepared(text))

    def terms(self, tokens: Sequence[str]) -> list[str | None]:
        """Map each token to its term, None where it is dropped."""
        term_of = {token: token for token in tokens if token not in self.stop}
        if self.drop_noise:
            term_of = {token: token for token in term_of if not _NOISE.search(token)}
        if self.stemmer:
            stems = stemmer(self.stemmer).stemWords(list(term_of))
            # Porter leaves nothing of "s"
            term_of = {token: stem or None for token, stem in zip(term_of, stems, strict=True)}
        return [term_of.get(token) for token in tokens]

    def clean_query(self, query: str) -> str:
        """Return the query as it is tokenised."""
        return _NOT_IN_QUERY.sub("", query) if self.strip_query else query

    def __call__(self, text: str) -> list[str]:
        return [term for term in self.terms(self.tokens(text)) if term is not None]


Words = Tokenizer | Callable[[str], list[str]]


def jieba_words(text: str) -> list[str]:
    """Words of Chinese text by the jieba package (``pip install jieba``), without punctuation."""
    import logging

    import jieba

    jieba.setLogLevel(logging.WARNING)
    return [word for word in jieba.lcut(text.lower()) if any(c.isalnum() for c in word)]


def _folded_jieba_words(text: str) -> list[str]:
    return jieba_words(folded(text))


_TERRIER = Tokenizer("terrier", "ascii", STOP_WORDS, "porter", drop_noise=True, strip_query=True)
TOKENIZERS: dict[str, Words] = {
    "terrier": _TERRIER,
    "plain": Tokenizer("plain", "unicode"),
    "split": Tokenizer("split", "space"),
    "words": Tokenizer("words", "words"),
    **{name: Tokenizer(name, "words", stemmer=name) for name in FUNCTION_WORDS},
    "chinese": Tokenizer("chinese", "words"),
    "jieba": Tokenizer("jieba", cut=_folded_jieba_words),
}


def _named_tokenizer(name: str, texts: Sequence[str]) -> Tokenizer:
    check_known("tokenizer", [name], ("auto", *TOKENIZERS))
    jieba_is_there = importlib.util.find_spec("jieba") is not None
    if name == "auto":
        name = language_of(texts[:: max(1, len(texts) // _SAMPLE)]) or "words"
        if name == "chinese" and jieba_is_there:
            name = "jieba"
    if name == "jieba" and not jieba_is_there:
        raise ConfigError(
            "jieba, which is not installed", "the package jieba", "pip install jieba, or use 'auto'"
        )
    tokenizer = TOKENIZERS[name]
    if isinstance(tokenizer, Tokenizer):
        return tokenizer
    return Tokenizer(name, cut=tokenizer)
