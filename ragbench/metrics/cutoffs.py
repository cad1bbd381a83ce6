"""Where the first N tokens of a text end, in characters: C_N of the thesis (§2.3).

The tokenizer is an argument. The default is the embedded MiniLM's WordPiece; Llama-3's, as published, plugs in as a
``tokenizer.json`` (its licence keeps it from being shipped). Retrieved chunks are joined with one space; each distinct
chunk is tokenised once and the counts are added up over the join, which gives what tokenising the joined text gives.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ragbench.errors import ConfigError, DataError

if TYPE_CHECKING:  # slow imports
    import tokenizers

_BATCH = 1024


class TokenOffsets:
    """Token end offsets of texts, each text tokenised once and remembered.

    Parameters
    ----------
    tokenizer : None for the embedded MiniLM's WordPiece; a ``tokenizers.Tokenizer``; the path of a
        ``tokenizer.json``; or any function from a text to the ascending end offsets of its tokens.

    Truncation, padding and special tokens of the tokenizer are left aside. Offsets count Unicode code points. When a
    byte-level tokenizer splits one character over several tokens, each of them ends after that character.

    Raises
    ------
    ConfigError for a tokenizer that is none of these, or a file that is not there or no tokenizer.
    """

    def __init__(
        self, tokenizer: tokenizers.Tokenizer | str | os.PathLike[str] | Callable[[str], Iterable[int]] | None = None
    ) -> None:
        self._ends: dict[str, np.ndarray] = {}
        self._tokenizer: Any = None
        self._function: Callable[[str], Iterable[int]] | None = None
        if callable(tokenizer):
            self._function = tokenizer
            self._join = "whole"
            return
        self._tokenizer = _load(tokenizer)
        self._join = _join_rule(json.loads(self._tokenizer.to_str()))

    def __len__(self) -> int:
        return len(self._ends)

    def ends(self, text: str) -> np.ndarray:
        """End offsets of a text's tokens: int64 array, shape (n_tokens,), ascending."""
        if text not in self._ends:
            self.warm([text])
        return self._ends[text]

    def warm(self, texts: Iterable[str]) -> None:
        """Tokenise the texts not seen before, in batches over all cores.

        Raises
        ------
        DataError for a text that is no valid Unicode (a lone surrogate).
        """
        new = [t for t in dict.fromkeys(texts) if t not in self._ends]
        for start in range(0, len(new), _BATCH):
            batch = new[start : start + _BATCH]
            for text, ends in zip(batch, self._tokenise(batch), strict=True):
                # A normaliser that drops characters may leave offsets that step back; a prefix never does.
                self._ends[text] = np.maximum.accumulate(np.fromiter(ends, np.int64))

    def warm_chunks(self, chunk_texts: Iterable[str]) -> None:
        """Tokenise retrieved chunks in the forms that :func:`joined_cutoffs` will ask for."""
        if self._join != "whole":
            self.warm(self._inner(t) for t in chunk_texts)

    def _tokenise(self, texts: list[str]) -> list[Iterable[int]]:
        if self._function is not None:
            return [self._function(t) for t in texts]
        try:
            encodings = self._tokenizer.encode_batch(texts, add_special_tokens=False)
        except (UnicodeEncodeError, TypeError):
            for text in texts:
                if lone := re.search("[\ud800-\udfff]", text):
                    raise DataError(
                        f"a text with a lone surrogate (U+{ord(lone[0]):04X} at character {lone.start()})",
                        "valid Unicode",
                        "read the file as UTF-8 with errors='replace'",
                    ) from None
            raise
        return [(end for _, end in e.offsets) for e in encodings]

    def _inner(self, chunk: str) -> str:
        """The form in which a chunk that follows another one is tokenised."""
        return chunk if self._join == "plain" else " " + chunk

    def joined_ends(self, chunks: Sequence[str], at_most: int) -> np.ndarray:
        """End offsets of the first ``at_most`` (or more) tokens of ``" ".join(chunks)``."""
        if self._join == "whole" or (self._join == "spaced" and not all(_tight(c) for c in chunks)):
            return self.ends(" ".join(chunks))
        parts, count, shift = [], 0, 0
        for i, chunk in enumerate(chunks):
            if i == 0 or self._join == "plain":
                ends = self.ends(chunk) + shift
            else:
                ends = self.ends(self._inner(chunk)) + (shift - 1)
            parts.append(ends)
            count += ends.size
            shift += len(chunk) + 1
            if count > at_most:
                break
        return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def _load(tokenizer: Any) -> tokenizers.Tokenizer:
    from tokenizers import Tokenizer

    if tokenizer is None:
        from ragbench.embedding import default_tokenizer

        return default_tokenizer()
    if isinstance(tokenizer, (str, os.PathLike)):
        path = Path(tokenizer)
        if not path.is_file():
            raise ConfigError(f"no tokenizer file {path}", "the path of a tokenizer.json", "check the path")
        try:
            tokenizer = Tokenizer.from_str(path.read_text(encoding="utf-8"))
        except Exception as error:  # the library raises bare Exception
            raise ConfigError(
                f"{path} is not a tokenizer file ({error})", "a tokenizer.json of the tokenizers library"
            ) from None
    if not isinstance(tokenizer, Tokenizer):
        raise ConfigError(
            f"a tokenizer of type {type(tokenizer).__name__}",
            "None, a tokenizers.Tokenizer, the path of a tokenizer.json, or a function text -> token end offsets",
            "for a transformers tokenizer pass its .backend_tokenizer",
        )
    if tokenizer.truncation is not None or tokenizer.padding is not None:
        tokenizer = Tokenizer.from_str(tokenizer.to_str())  # a copy: the caller's own stays as it was
        tokenizer.no_truncation()
        tokenizer.no_padding()
    return tokenizer


def _join_rule(spec: dict[str, Any]) -> str:
    """How token counts add up over a join with one space.

    "plain": a space always separates tokens and belongs to none (BERT): chunks count as they are.
    "spaced": a space opens the next token (byte-level BPE of the GPT-2 kind, Llama-3 too): every later chunk is
    tokenised with its space, as long as no chunk begins or ends with white space.
    "whole": anything else is tokenised joined, without the cache.
    """
    pre = spec.get("pre_tokenizer") or {}
    steps = pre.get("pretokenizers", [pre])
    kinds = [s.get("type") for s in steps]
    if any(t["lstrip"] or t["rstrip"] for t in spec.get("added_tokens", [])):
        return "whole"
    if kinds == ["BertPreTokenizer"]:
        return "plain"
    if kinds in (["ByteLevel"], ["Split", "ByteLevel"]) and not steps[-1].get("add_prefix_space", True):
        # The GPT family's pattern keeps a single space for the word after it; another one may not.
        known = kinds == ["ByteLevel"] or r"\s+(?!\S)" in str(steps[0]["pattern"].get("Regex", ""))
        return "spaced" if known and spec.get("normalizer") is None else "whole"
    return "whole"


def _tight(chunk: str) -> bool:
    return bool(chunk) and not chunk[0].isspace() and not chunk[-1].isspace()


def as_offsets(tokenizer: Any) -> TokenOffsets:
    """The tokenizer argument of every function here as a :class:`TokenOffsets` (itself, when it is one)."""
    return tokenizer if isinstance(tokenizer, TokenOffsets) else TokenOffsets(tokenizer)


def as_cutoffs(cutoffs: Sequence[int]) -> np.ndarray:
    """Check cut-offs: a sequence of whole numbers >= 0."""
    values = np.atleast_1d(np.asarray(cutoffs))
    if values.ndim != 1 or values.size == 0 or values.dtype.kind not in "iu" or values.min() < 0:
        raise ConfigError(f"cutoffs {cutoffs!r}", "whole numbers of tokens, 0 or more, at least one")
    return values.astype(np.int64)


def _positions(ends: np.ndarray, length: int, cutoffs: np.ndarray, begin_token: bool) -> np.ndarray:
    keep = np.maximum(cutoffs - 1, 0) if begin_token else cutoffs
    bounds = np.append(0, ends)
    return np.where(keep < ends.size, bounds[np.minimum(keep, ends.size)], length)


def token_cutoffs(text: str, cutoffs: Sequence[int], tokenizer: Any = None, begin_token: bool = False) -> np.ndarray:
    """Character positions where the first N tokens of a text end.

    Parameters
    ----------
    text : the text C.
    cutoffs : N, whole numbers of tokens >= 0, in any order.
    tokenizer : as in :class:`TokenOffsets`, or such a cache.
    begin_token : True as the thesis was run: the tokenizer's begin token counts among the N and is then dropped, so
        N - 1 tokens of text remain.

    Returns
    -------
    int64 array, shape (len(cutoffs),): C_N is ``text[:position]``. 0 for N = 0; the text's length when it has no more
    than N tokens.

    Raises
    ------
    ConfigError for cutoffs that are no whole numbers of 0 or more; DataError for a text that is no valid Unicode.

    Source: thesis §2.3 (C_N); the begin token is a fact of the published runs.
    """
    return _positions(as_offsets(tokenizer).ends(text), len(text), as_cutoffs(cutoffs), begin_token)


def joined_cutoffs(
    chunk_texts: Sequence[str], cutoffs: Sequence[int], tokenizer: Any = None, begin_token: bool = False
) -> np.ndarray:
    """:func:`token_cutoffs` of ``" ".join(chunk_texts)``, from the cached counts of the chunks.

    Parameters
    ----------
    chunk_texts : the retrieved chunks in their order.
    cutoffs, begin_token : as in :func:`token_cutoffs`.
    tokenizer : a :class:`TokenOffsets` that is kept between calls, or anything it takes.

    Returns
    -------
    int64 array, shape (len(cutoffs),), equal to tokenising the joined text.

    Raises
    ------
    ConfigError for one string in place of a list of chunk texts, or for impossible cut-offs.

    Source: thesis §2.3, §3.1.
    """
    if isinstance(chunk_texts, str):
        raise ConfigError("one string as chunk_texts", "a sequence of chunk texts", "use token_cutoffs for one text")
    values = as_cutoffs(cutoffs)
    length = sum(map(len, chunk_texts)) + max(len(chunk_texts) - 1, 0)
    ends = as_offsets(tokenizer).joined_ends(chunk_texts, int(values.max()))
    return _positions(ends, length, values, begin_token)


def truncate(text: str, n_tokens: int, tokenizer: Any = None, begin_token: bool = False) -> str:
    """C_N: the text up to the end of its ``n_tokens``-th token (arguments as in :func:`token_cutoffs`)."""
    return text[: token_cutoffs(text, [n_tokens], tokenizer, begin_token)[0]]
