"""Text -> terms: the three tokenisers of BM25.

``terrier``  as the thesis ran it (§2.5.3, PyTerrier's defaults): runs of ASCII letters and digits, lower case, no term
             longer than 20 characters, with more than four digits or four equal characters in a row, English stop
             words, Porter stems; a query keeps only ``[A-Za-z0-9 ]``.
``plain``    runs of Unicode word characters, lower case; no stop words, no stems.
``split``    ``text.lower().split()``, as in the recorded HotpotQA rankings.

Does not handle languages written without spaces: pass a callable ``text -> list of terms`` for those.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ragbench.errors import ConfigError, unknown
from ragbench.retrieval.stopwords import STOP_WORDS

_PATTERNS = {"ascii": r"[a-z0-9]+", "unicode": r"\w+", "space": r"\S+"}
_NOT_IN_QUERY = re.compile(r"[^A-Za-z0-9 ]+")
# Terrier's filter: more than 20 characters, the same one four times in a row, or more than four digits.
_NOISE = re.compile(r".{21}|(.)\1{3}|(?:\d\D*){5}", re.DOTALL)


@functools.cache
def word_table(pattern: str) -> np.ndarray:
    """Say for every code point whether it belongs to a token of ``pattern``.

    Returns
    -------
    bool array, shape (0x110000,). Agrees with the regular expression of the same name.
    """
    table = np.zeros(0x110000, dtype=np.bool_)
    if pattern == "ascii":
        table[[ord(c) for c in "abcdefghijklmnopqrstuvwxyz0123456789"]] = True
        return table
    every = "".join(map(chr, range(0x110000)))
    table[[m.start() for m in re.finditer({"unicode": r"\w", "space": r"\S"}[pattern], every)]] = True
    return table


@functools.cache
def _stemmer(language: str) -> Any:
    import Stemmer

    return Stemmer.Stemmer(language, 0)  # no inner cache: every term is stemmed once, and the cache is not thread-safe


@dataclass(frozen=True)
class Tokenizer:
    """A pipeline text -> tokens -> terms. Call it with a text to get its terms.

    Parameters
    ----------
    name : shown in ``settings()``.
    pattern : what a token is: ``"ascii"`` ([a-z0-9]+), ``"unicode"`` (word characters) or ``"space"`` (str.split).
        The text is lower-cased first.
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
        if self.pattern not in _PATTERNS:
            raise unknown("token pattern", self.pattern, _PATTERNS)

    def tokens(self, text: str) -> list[str]:
        """Cut a text into lower-case tokens, before stop words and stems."""
        text = text.lower()
        return text.split() if self.pattern == "space" else re.findall(_PATTERNS[self.pattern], text)

    def terms(self, tokens: Sequence[str]) -> list[str | None]:
        """Map each token to its term, None where it is dropped. Same length as ``tokens``."""
        kept: list[str | None] = [
            None if t in self.stop or (self.drop_noise and _NOISE.search(t)) else t for t in tokens
        ]
        if self.stemmer:
            stems = iter(_stemmer(self.stemmer).stemWords([t for t in kept if t is not None]))
            kept = [None if t is None else next(stems) or None for t in kept]  # Porter leaves nothing of "s"
        return kept

    def clean_query(self, query: str) -> str:
        """Return the query as it is tokenised."""
        return _NOT_IN_QUERY.sub("", query) if self.strip_query else query

    def __call__(self, text: str) -> list[str]:
        return [t for t in self.terms(self.tokens(text)) if t is not None]


TERRIER = Tokenizer("terrier", "ascii", STOP_WORDS, "porter", drop_noise=True, strip_query=True)
PLAIN = Tokenizer("plain", "unicode")
SPLIT = Tokenizer("split", "space")
TOKENIZERS = {t.name: t for t in (TERRIER, PLAIN, SPLIT)}


def get_tokenizer(tokenizer: str | Tokenizer | Callable[[str], list[str]]) -> Tokenizer | Callable[[str], list[str]]:
    """Return the tokenizer of that name, or the given one.

    Raises
    ------
    ConfigError for an unknown name or something that cannot be called.
    """
    if isinstance(tokenizer, str):
        if tokenizer not in TOKENIZERS:
            raise unknown("tokenizer", tokenizer, TOKENIZERS)
        return TOKENIZERS[tokenizer]
    if not callable(tokenizer):
        raise ConfigError(
            f"tokenizer is {type(tokenizer).__name__}",
            "a name (" + ", ".join(TOKENIZERS) + ") or a callable text -> list of terms",
            "pass for instance tokenizer='plain' or tokenizer=str.split",
        )
    return tokenizer
