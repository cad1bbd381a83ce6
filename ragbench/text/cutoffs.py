"""Where the first N tokens of a text end, in characters: C_N of the thesis (§2.3).

The default tokenizer is the embedded MiniLM's WordPiece; Llama-3's, as published, plugs in as a ``tokenizer.json`` (its
licence keeps it from being shipped). With a tokenizer of BERT's kind each distinct chunk is tokenised once and the
counts are added up over the join with one space, which gives what tokenising the joined text gives.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ragbench.errors import ConfigError, DataError
from ragbench.text.wordpiece import default_tokenizer, token_offsets

_BATCH = 1024


class TokenOffsets:
    """Token end offsets of texts, each text tokenised once and remembered.

    Parameters
    ----------
    tokenizer : None for the embedded MiniLM's WordPiece; a ``tokenizers.Tokenizer``; the path of a
        ``tokenizer.json``; or any function from a text to the ascending end offsets of its tokens.

    Truncation, padding and special tokens are left aside. Offsets count Unicode code points; where a byte-level
    tokenizer splits one character over several tokens, each of them ends after it.
    """

    def __init__(self, tokenizer: Any = None) -> None:
        self._ends: dict[str, np.ndarray] = {}
        self._function = callable(tokenizer)
        self._tokenizer: Any = tokenizer if self._function else _load(tokenizer)
        self._adds_up = not self._function and _adds_up(json.loads(self._tokenizer.to_str()))

    def ends(self, text: str) -> np.ndarray:
        """End offsets of a text's tokens: int64 array, shape (n_tokens,), ascending."""
        if text not in self._ends:
            self.warm([text])
        return self._ends[text]

    def warm(self, texts: Iterable[str]) -> None:
        """Tokenise the texts not seen before, in batches over all cores."""
        new = [t for t in dict.fromkeys(texts) if t not in self._ends]
        for start in range(0, len(new), _BATCH):
            batch = new[start : start + _BATCH]
            for text, ends in zip(batch, self._tokenise(batch), strict=True):
                # A normaliser that drops characters may leave offsets that step back; a prefix never does.
                self._ends[text] = np.maximum.accumulate(np.fromiter(ends, np.int64))

    def warm_chunks(self, chunk_texts: Iterable[str]) -> None:
        """Tokenise retrieved chunks in the form that `joined_cutoffs` will ask for."""
        if self._adds_up:
            self.warm(chunk_texts)

    def joined_ends(self, chunks: Sequence[str], at_most: int) -> np.ndarray:
        """End offsets of the first ``at_most`` (or more) tokens of ``" ".join(chunks)``."""
        if not self._adds_up:
            return self.ends(" ".join(chunks))
        parts, count, shift = [np.zeros(0, np.int64)], 0, 0
        for chunk in chunks:
            parts.append(self.ends(chunk) + shift)
            count += parts[-1].size
            shift += len(chunk) + 1
            if count > at_most:
                break
        return np.concatenate(parts)

    def _tokenise(self, texts: list[str]) -> list[Iterable[int]]:
        if self._function:
            return [self._tokenizer(t) for t in texts]
        try:
            spans = token_offsets(self._tokenizer, texts)
        except (UnicodeEncodeError, TypeError):
            lone = next(filter(None, (re.search("[\ud800-\udfff]", text) for text in texts)), None)
            if lone is None:
                raise
            got = f"a text with a lone surrogate (U+{ord(lone[0]):04X} at character {lone.start()})"
            raise DataError(got, "valid Unicode", "read the file as UTF-8 with errors='replace'") from None
        return [(end for _, end in of_text) for of_text in spans]


def _load(tokenizer: Any) -> Any:
    from tokenizers import Tokenizer

    if tokenizer is None:
        return default_tokenizer()
    if isinstance(tokenizer, (str, os.PathLike)):
        path = Path(tokenizer)
        if not path.is_file():
            raise ConfigError(f"no tokenizer file {path}", "the path of a tokenizer.json", "check the path")
        try:
            tokenizer = Tokenizer.from_str(path.read_text(encoding="utf-8"))
        except Exception as error:  # the library raises bare Exception
            got = f"{path} is not a tokenizer file ({error})"
            raise ConfigError(got, "a tokenizer.json of the tokenizers library") from None
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


def _adds_up(spec: dict[str, Any]) -> bool:
    """Tell whether a space always separates tokens and belongs to none (BERT): then chunks count as they are."""
    glued = any(token["lstrip"] or token["rstrip"] for token in spec.get("added_tokens", []))
    return not glued and (spec.get("pre_tokenizer") or {}).get("type") == "BertPreTokenizer"


def as_offsets(tokenizer: Any) -> TokenOffsets:
    """Return the tokenizer argument of every function here as `TokenOffsets` (itself, when it is one)."""
    return tokenizer if isinstance(tokenizer, TokenOffsets) else TokenOffsets(tokenizer)


def as_cutoffs(cutoffs: Sequence[int]) -> np.ndarray:
    """Check cut-offs: a sequence of whole numbers >= 0."""
    values = np.atleast_1d(np.asarray(cutoffs))
    if values.ndim != 1 or values.size == 0 or values.dtype.kind not in "iu" or values.min() < 0:
        raise ConfigError(f"cutoffs {cutoffs!r}", "whole numbers of tokens, 0 or more, at least one")
    return values.astype(np.int64)


def joined_cutoffs(
    chunk_texts: Sequence[str], cutoffs: Sequence[int], tokenizer: Any = None, begin_token: bool = False
) -> np.ndarray:
    """Character positions where the first N tokens of ``" ".join(chunk_texts)`` end, from the counts of the chunks.

    Parameters
    ----------
    cutoffs : N, whole numbers of tokens >= 0, in any order.
    tokenizer : as `TokenOffsets` takes it, or one that is kept between calls.
    begin_token : as the thesis was run: the tokenizer's begin token counts, so N - 1 tokens of text remain.

    Returns
    -------
    int64 array, shape (len(cutoffs),): C_N is ``joined[:position]``; at most the text's length.

    Source: thesis §2.3 (C_N), §3.1; the begin token is a fact of the published runs.
    """
    if isinstance(chunk_texts, str):
        raise DataError("chunk_texts is one text", "a list", "put a single one into a list: [text]")
    values = as_cutoffs(cutoffs)
    length = sum(map(len, chunk_texts)) + max(len(chunk_texts) - 1, 0)
    ends = as_offsets(tokenizer).joined_ends(chunk_texts, int(values.max()))
    keep = np.maximum(values - 1, 0) if begin_token else values
    return np.where(keep < ends.size, np.append(0, ends)[np.minimum(keep, ends.size)], length)


def truncate(text: str, n_tokens: int, tokenizer: Any = None, begin_token: bool = False) -> str:
    """C_N: the text up to the end of its ``n_tokens``-th token."""
    return text[: joined_cutoffs([text], [n_tokens], tokenizer, begin_token)[0]]
