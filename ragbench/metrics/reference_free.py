"""RAGAS's three metrics (Es et al. 2023, section 3), from labels and vectors; none of them calls a
model.

Where nothing can be said (an answer without statements, no generated question, a zero vector, an
empty context, a reply that could not be read) the value is NaN unless the caller names another; the
tables count, and say why.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from ragbench.errors import ConfigError, DataError, check_known
from ragbench.stats.inputs import as_list, same_length

_Unread = Literal["undefined", "dropped", "unsupported"]
_Noncommittal = Literal["ignore", "zero"]
_INSUFFICIENT = "insufficient information"
_NAN = float("nan")


@dataclass(frozen=True, slots=True)
class ExtractedSentences:
    """What the model copied from one context."""

    # the context's own that it copied whole, each once, in the order of the context
    sentences: tuple[str, ...]
    # what it wrote and the context does not hold as whole sentences: not counted
    altered: tuple[str, ...]
    total: int  # sentences of the context
    insufficient: bool  # it copied nothing, or wrote just "Insufficient Information"


def faithfulness(
    verdicts: Sequence[Any], *, unread: _Unread = "undefined", empty: float = _NAN
) -> float:
    """Share of an answer's statements that its context supports: F = |V| / |S|.

    Parameters
    ----------
    verdicts : one per statement: True or False, 1 or 0, "Yes" or "No"; None (or NaN) where the
    reply could not be read.
    unread : what an unread verdict does: "undefined" makes the score NaN, since it would decide;
    "dropped" leaves it
        out, which flatters a judge that fails on hard statements; "unsupported" counts it as a No.
    empty : value without (read) statements.

    Source: RAGAS, section 3 (faithfulness). Paper value: 0.95 agreement with people on WikiEval
    (Table 1).

    >>> faithfulness([1, 1, 0, 1])
    0.75
    """
    check_known("treatment of unread verdicts", [unread], ("undefined", "dropped", "unsupported"))
    read = _as_verdicts(verdicts, "verdict")
    known = [verdict for verdict in read if verdict is not None]
    if unread == "undefined" and len(known) < len(read):
        return _NAN
    total = len(read) if unread == "unsupported" else len(known)
    return sum(known) / total if total else empty


def answer_relevance(
    question_vec: Any,
    generated_vecs: Any,
    *,
    noncommittal: _Noncommittal = "ignore",
    flags: Sequence[Any] | None = None,
    empty: float = _NAN,
) -> float:
    """Mean cosine between a question and the questions that its answer would answer: AR = 1/n sum_i
    sim(q, q_i).

    Parameters
    ----------
    question_vec : shape (d,), of any length. generated_vecs : shape (n, d), one row per generated
    question.
    noncommittal : "ignore" is Eq 1. "zero" is what later releases of RAGAS add: 0 when one of the
    generated questions
        came with the remark that the answer is evasive.
    flags : those remarks, shape (n,), needed for "zero": True or 1 where the answer was called
    evasive.
    empty : value without generated questions, or where a vector is zero and so has no direction.

    Source: RAGAS, Eq 1, in [-1, 1]. Paper value: 0.78 agreement with people on WikiEval (Table 1).

    >>> round(answer_relevance([1.0, 0.0], [[1.0, 0.0], [1.0, 1.0]]), 4)
    0.8536
    """
    check_known("treatment of evasive answers", [noncommittal], ("ignore", "zero"))
    question, generated = _as_vectors(question_vec, generated_vecs)
    if noncommittal == "zero":
        if flags is None:
            raise ConfigError(
                'noncommittal="zero" without flags', "one remark per question", "pass flags="
            )
        same_length(flags=flags, generated=generated)
        remarks = _as_verdicts(flags, "flag")
        if None in remarks:
            raise DataError(
                f"flag {remarks.index(None)} is unread",
                "1 or 0 per question",
                "leave that question out",
            )
        if any(remarks):
            return 0.0
    if not len(generated) or not question.any() or not generated.any(axis=1).all():
        return empty
    cosines = _directions(generated) @ _directions(question[None])[0]
    return float(np.clip(cosines, -1.0, 1.0).mean())


def context_relevance(
    extracted: Sequence[str] | int | None, sentences: Sequence[str] | int, *, empty: float = _NAN
) -> float:
    """Share of a context's sentences that a question needs: CR = extracted / all sentences, in [0,
    1].

    Parameters
    ----------
    extracted : what the model copied, or only how many; None (an unread reply) is NaN. An empty
    list, or nothing but
        "Insufficient Information", is 0.
    sentences : the context's sentences, or only how many. With the sentences, an extracted text
    counts for each of them
        that it holds whole, each once; what is no copy counts for nothing. With a number every item
        counts as written.
    empty : value for a context without sentences.

    Source: RAGAS, Eq 2. Paper value: 0.70 agreement with people on WikiEval (Table 1).

    >>> context_relevance(["B."], ["A.", "B.", "C.", "D."])
    0.25
    """
    if extracted is None:
        return _NAN
    count, total, _ = _count_extracted(extracted, sentences)
    return count / total if total else empty


def faithfulness_table(verdicts: Sequence[Sequence[Any] | None]) -> pd.DataFrame:
    """Faithfulness of many answers; None where an answer's statements are not known.

    DataFrame, one row per answer: faithfulness, n (statements), supported, unread, status
    ("scored", or why not).
    """
    rows = []
    for labels in verdicts:
        read = _as_verdicts(labels or (), "verdict")
        score = _NAN if labels is None else faithfulness(read)
        reason = (
            "statements unread"
            if labels is None
            else "unread verdicts"
            if None in read
            else "no statements"
        )
        rows.append(
            (
                score,
                len(read),
                read.count(True),
                read.count(None),
                reason if np.isnan(score) else "scored",
            )
        )
    return pd.DataFrame(rows, columns=["faithfulness", "n", "supported", "unread", "status"])


def answer_relevance_table(
    question_vecs: Sequence[Any],
    generated_vecs: Sequence[Any],
    *,
    noncommittal: _Noncommittal = "ignore",
    flags: Sequence[Sequence[Any] | None] | None = None,
) -> pd.DataFrame:
    """Answer relevance of many answers; None where generated questions are not known.

    DataFrame, one row per answer: answer_relevance, n (generated questions), noncommittal (flags
    set), zero_vectors, status ("scored", or why not).
    """
    remarks = [None] * len(question_vecs) if flags is None else flags
    same_length(question_vecs=question_vecs, generated_vecs=generated_vecs, flags=remarks)
    rows: list[tuple] = []
    for q, vecs, remark in zip(question_vecs, generated_vecs, remarks, strict=True):
        if vecs is None:
            rows.append((_NAN, 0, 0, 0, "questions unread"))
            continue
        question, generated = _as_vectors(q, vecs)
        zero = int((~generated.any(axis=1)).sum()) + (not question.any())
        score = answer_relevance(question, generated, noncommittal=noncommittal, flags=remark)
        status = "scored" if score == score else "zero vector" if len(generated) else "no questions"
        rows.append((score, len(generated), sum(map(bool, remark or ())), zero, status))
    return pd.DataFrame(
        rows, columns=["answer_relevance", "n", "noncommittal", "zero_vectors", "status"]
    )


def context_relevance_table(
    extracted: Sequence[Sequence[str] | int | None], sentences: Sequence[Sequence[str] | int]
) -> pd.DataFrame:
    """Context relevance of many contexts.

    DataFrame, one row per context: context_relevance, n (sentences), extracted (that count),
    altered (texts that are no copies), insufficient (nothing extracted), status ("scored", or why
    not).
    """
    same_length(extracted=extracted, sentences=sentences)
    rows = []
    for copied, parts in zip(extracted, sentences, strict=True):
        count, total, altered = _count_extracted(0 if copied is None else copied, parts)
        status = "extraction unread" if copied is None else "scored" if total else "empty context"
        score = context_relevance(copied, parts)
        rows.append((score, total, count, altered, count == 0 and copied is not None, status))
    return pd.DataFrame(
        rows, columns=["context_relevance", "n", "extracted", "altered", "insufficient", "status"]
    )


def match_sentences(items: Sequence[str], sentences: Sequence[str]) -> ExtractedSentences:
    """Find which of a context's sentences the items copied whole (one may hold several), and what
    is no copy.
    """
    wrote = [item for item in items if item.strip()]
    if all(item.strip().strip("\"'.").casefold() == _INSUFFICIENT for item in wrote):
        return ExtractedSentences((), (), len(sentences), True)
    compact = ["".join(sentence.split()) for sentence in sentences]
    text = "".join(compact)
    ends = list(itertools.accumulate(map(len, compact), initial=0))
    copied: set[int] = set()
    altered = []
    for item in wrote:
        inside = [s for s in _places("".join(item.split()), text, ends) if s]
        if not inside:
            altered.append(item)
        copied |= next((s for s in inside if not s <= copied), set())
    return ExtractedSentences(
        tuple(sentences[i] for i in sorted(copied)), tuple(altered), len(sentences), False
    )


def _places(item: str, text: str, ends: Sequence[int]) -> list[set[int]]:
    """For each place of the item in the text: the sentences that lie wholly inside it."""
    places = [match.start() for match in re.finditer(f"(?={re.escape(item)})", text)]
    pairs = list(enumerate(itertools.pairwise(ends)))
    return [
        {i for i, (start, end) in pairs if at <= start and end <= at + len(item)} for at in places
    ]


def _as_verdicts(verdicts: Sequence[Any], name: str) -> list[bool | None]:
    """Return verdicts as True, False or None (unread)."""
    read: list[bool | None] = []
    for place, value in enumerate(as_list(verdicts, f"{name}s", object)):
        if value is None or (pd.api.types.is_scalar(value) and pd.isna(value)):
            read.append(None)
        elif isinstance(value, bool | int | float | np.generic | str) and value in (
            0,
            1,
            "Yes",
            "No",
        ):
            read.append(value in (1, "Yes"))
        else:
            raise DataError(
                f"{name} {place} is {value!r}",
                "1 or 0, True or False, Yes or No",
                "None is an unread one",
            )
    return read


def _as_vectors(question_vec: Any, generated_vecs: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return one vector (d,) and a matrix (n, d), checked."""
    try:
        question = np.asarray(question_vec, float)
        generated = np.asarray(generated_vecs, float)
    except (TypeError, ValueError) as error:
        got = f"vectors that are no table of numbers: {error}"
        expected = "a vector, and rows of equal length"
        raise DataError(got, expected, "embed the texts first, all with one model") from None
    generated = generated if generated.size else generated.reshape(0, question.size)
    if question.ndim != 1 or generated.ndim != 2 or generated.shape[1] != question.size:
        got = (
            f"a question of shape {question.shape} and generated questions of shape "
            f"{generated.shape}"
        )
        raise DataError(
            got,
            "shapes (d,) and (n, d)",
            "embed both with one model, pass the question as one vector",
        )
    if not (np.isfinite(question).all() and np.isfinite(generated).all()):
        raise DataError(
            "a vector with NaN or infinity", "finite numbers", "check the embedder and its texts"
        )
    return question, generated


def _directions(vectors: np.ndarray) -> np.ndarray:
    # Divided by the largest entry first: the square of a very large or small number is no number.
    scaled = vectors / np.abs(vectors).max(axis=1, keepdims=True)
    return scaled / np.linalg.norm(scaled, axis=1, keepdims=True)


def _count_extracted(
    extracted: Sequence[str] | int, sentences: Sequence[str] | int
) -> tuple[int, int, int]:
    """Return how many sentences count, of how many, and how many texts are no copies."""
    copied, known = (
        int(value)
        if isinstance(value, int | np.integer) and not isinstance(value, bool) and value >= 0
        else as_list(value, name)
        for name, value in (("extracted", extracted), ("sentences", sentences))
    )
    total = known if isinstance(known, int) else len(known)
    if not (isinstance(copied, int) or isinstance(known, int)):
        match = match_sentences(copied, known)
        return len(match.sentences), total, len(match.altered)
    count = (
        copied
        if isinstance(copied, int)
        else 0
        if match_sentences(copied, []).insufficient
        else len(copied)
    )
    if count > total:
        got = f"{count} extracted of {total} sentences"
        raise DataError(got, "at most all of them", "pass the sentences themselves")
    return count, total, 0
