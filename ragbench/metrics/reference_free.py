"""RAGAS's three metrics (Es et al. 2023, section 3), from labels and vectors.

Where nothing can be said (an answer without statements, no generated question, a zero vector, an
empty context, a reply that could not be read) the value is NaN.
"""

from __future__ import annotations

import itertools
import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pandas as pd

from ragbench.errors import DataError
from ragbench.stats.inputs import as_list

_INSUFFICIENT = "insufficient information"
_NAN = float("nan")
_VERDICTS = {1: True, 0: False, "Yes": True, "No": False}


@dataclass(frozen=True, slots=True)
class ExtractedSentences:
    """What the model copied from one context."""

    # the context's own that it copied whole, each once, in the order of the context
    sentences: tuple[str, ...]
    # what it wrote and the context does not hold as whole sentences: not counted
    altered: tuple[str, ...]
    total: int  # sentences of the context
    insufficient: bool  # it copied nothing, or wrote just "Insufficient Information"

    @classmethod
    def of(cls, items: Sequence[str], sentences: Sequence[str]) -> Self:
        """Find which of a context's sentences the items copied whole (one may hold several), and
        what is no copy.
        """
        wrote = [item for item in items if item.strip()]
        if _is_insufficient(wrote):
            return cls((), (), len(sentences), True)
        compact = ["".join(sentence.split()) for sentence in sentences]
        text = "".join(compact)
        ends = list(itertools.accumulate(map(len, compact), initial=0))
        copied: set[int] = set()
        altered = []
        for item in wrote:
            held = [places for places in _sentences_held(item, text, ends) if places]
            if not held:
                altered.append(item)
            for places in held:
                if not places <= copied:  # a sentence that stands there twice may be copied twice
                    copied |= places
                    break
        whole = tuple(sentences[place] for place in sorted(copied))
        return cls(whole, tuple(altered), len(sentences), False)


def faithfulness(verdicts: Sequence[Any]) -> float:
    """Share of an answer's statements that its context supports: F = |V| / |S|.

    Parameters
    ----------
    verdicts : one per statement: True or False, 1 or 0, "Yes" or "No"; None (or NaN) where the
        reply could not be read, which makes the score NaN, since it would decide.

    Source: RAGAS, section 3 (faithfulness). Paper value: 0.95 agreement with people on WikiEval
    (Table 1).

    >>> faithfulness([1, 1, 0, 1])
    0.75
    """
    supported = [_as_verdict(verdict) for verdict in as_list(verdicts, "verdicts", object)]
    if None in supported:
        return _NAN
    return supported.count(True) / len(supported) if supported else _NAN


def answer_relevance(question_vec: Any, generated_vecs: Any) -> float:
    """Mean cosine between a question and the questions that its answer would answer: AR = 1/n sum_i
    sim(q, q_i).

    Parameters
    ----------
    question_vec : shape (d,), of any length.
    generated_vecs : shape (n, d), one row per generated question.

    NaN without generated questions, or where a vector is zero and so has no direction.

    Later releases of RAGAS take 0 for an answer that one of the generated questions calls evasive;
    Eq 1 knows no such thing (notebook 30 has both).

    Source: RAGAS, Eq 1, in [-1, 1]. Paper value: 0.78 agreement with people on WikiEval (Table 1).

    >>> round(answer_relevance([1.0, 0.0], [[1.0, 0.0], [1.0, 1.0]]), 4)
    0.8536
    """
    question = np.asarray(question_vec, float)
    generated = np.asarray(generated_vecs, float)
    if question.ndim != 1 or not (np.isfinite(question).all() and np.isfinite(generated).all()):
        raise DataError(
            f"question_vec of shape {question.shape}, or a number that is not finite",
            "one vector of finite numbers",
            "embed the texts first, the question as one vector",
        )
    if not generated.size or not question.any() or not generated.any(axis=1).all():
        return _NAN
    if question.size != generated.shape[1]:
        raise DataError(
            f"vectors of {question.size} and of {generated.shape[1]} numbers",
            "as many in both",
            "embed both with one model",
        )
    lengths = np.linalg.norm(generated, axis=1) * np.linalg.norm(question)
    cosines = generated @ question / lengths
    return float(np.clip(cosines, -1.0, 1.0).mean())


def context_relevance(extracted: int | None, sentences: int) -> float:
    """Share of a context's sentences that a question needs: CR = extracted / all sentences, in [0,
    1].

    Parameters
    ----------
    extracted : how many the model copied (`ExtractedSentences.of` finds them); None (an unread
        reply) is NaN.
    sentences : how many the context has.

    Source: RAGAS, Eq 2. Paper value: 0.70 agreement with people on WikiEval (Table 1).

    >>> context_relevance(1, 4)
    0.25
    """
    if extracted is None:
        return _NAN
    if extracted > sentences:
        raise DataError(
            f"{extracted} extracted of {sentences} sentences",
            "at most all of them",
            "count each sentence once",
        )
    return extracted / sentences if sentences else _NAN


def _is_insufficient(items: Sequence[str]) -> bool:
    return all(item.strip().strip("\"'.").casefold() == _INSUFFICIENT for item in items)


def _sentences_held(item: str, text: str, ends: Sequence[int]) -> list[set[int]]:
    """For each place of the item in the text: the sentences that lie wholly inside it."""
    item = "".join(item.split())
    held = []
    for match in re.finditer(f"(?={re.escape(item)})", text):
        # the sentences that begin at or behind its start, and end at or before its end
        first = bisect_left(ends, match.start())
        last = bisect_right(ends, match.start() + len(item)) - 1
        held.append(set(range(first, last)))
    return held


def _as_verdict(value: Any) -> bool | None:
    """Return a verdict as True, False or None (unread)."""
    if not pd.api.types.is_scalar(value) or not (pd.isna(value) or value in _VERDICTS):
        raise DataError(f"the verdict {value!r}", "1 or 0, Yes or No; None for an unread one")
    return None if pd.isna(value) else _VERDICTS[value]
