"""RAGAS's three metrics (Es et al. 2023, section 3), from labels and vectors; none of them calls a model.

Faithfulness takes one verdict per statement of the answer, answer relevance the vectors of the questions that a model
wrote for the answer, context relevance the sentences that a model copied from the context. The labels come from
`ragbench.labelling`, from a recorded run, or from a person.

Where nothing can be said (an answer without statements, no generated question, a zero vector, an empty context, a reply
that could not be read) the value is NaN unless the caller names another; the tables count, and say why.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from ragbench.errors import ConfigError, DataError, check_known

Unread = Literal["undefined", "dropped", "unsupported"]
Noncommittal = Literal["ignore", "zero"]
UNREAD = ("undefined", "dropped", "unsupported")
NONCOMMITTAL = ("ignore", "zero")
_NAN = float("nan")
_WORDS = {"Yes": True, "No": False}
INSUFFICIENT = "Insufficient Information"


@dataclass(frozen=True, slots=True)
class Picked:
    """What the model copied from one context.

    Attributes
    ----------
    sentences : the context's own sentences that it copied whole, each once, in the order of the context.
    altered : what it wrote and the context does not hold as whole sentences: not counted.
    total : sentences of the context.
    insufficient : it copied nothing, or wrote just "Insufficient Information".
    """

    sentences: tuple[str, ...]
    altered: tuple[str, ...]
    total: int
    insufficient: bool


def faithfulness(verdicts: Sequence[Any], *, unread: Unread = "undefined", empty: float = _NAN) -> float:
    """Share of an answer's statements that its context supports: F = |V| / |S|.

    Parameters
    ----------
    verdicts : one per statement, shape (n_statements,): True or False, 1 or 0, "Yes" or "No"; None (or NaN) where the
        judge's reply could not be read.
    unread : what an unread verdict does: "undefined" makes the score NaN, since it would decide; "dropped" leaves it
        out, which flatters a judge that fails on hard statements; "unsupported" counts it as a No.
    empty : value without (read) statements.

    Returns
    -------
    float in [0, 1].

    Raises
    ------
    DataError for another verdict, ConfigError for another ``unread``.

    Source: RAGAS, section 3 (faithfulness). Paper value: 0.95 agreement with people on WikiEval (Table 1).

    >>> faithfulness([1, 1, 0, 1])
    0.75
    """
    check_known("treatment of unread verdicts", [unread], UNREAD)
    read = _read_verdicts(verdicts)
    known = [v for v in read if v is not None]
    if unread == "undefined" and len(known) < len(read):
        return _NAN
    total = len(read) if unread == "unsupported" else len(known)
    return sum(known) / total if total else empty


def answer_relevance(
    question_vec: Any,
    generated_vecs: Any,
    *,
    noncommittal: Noncommittal = "ignore",
    flags: Sequence[Any] | None = None,
    empty: float = _NAN,
) -> float:
    """Mean cosine between a question and the questions that its answer would answer: AR = 1/n sum_i sim(q, q_i).

    Parameters
    ----------
    question_vec : shape (d,); need not be of unit length.
    generated_vecs : shape (n, d), one row per generated question.
    noncommittal : "ignore" is Eq 1. "zero" is what later releases of RAGAS add: 0 when one of the generated questions
        came with the remark that the answer is evasive.
    flags : those remarks, shape (n,), needed for "zero": True or 1 where the answer was called evasive.
    empty : value without generated questions, or where a vector is zero and so has no direction.

    Returns
    -------
    float in [-1, 1].

    Raises
    ------
    DataError for shapes that do not fit or numbers that are not finite; ConfigError for "zero" without flags.

    Source: RAGAS, Eq 1. Paper value: 0.78 agreement with people on WikiEval (Table 1).

    >>> round(answer_relevance([1.0, 0.0], [[1.0, 0.0], [1.0, 1.0]]), 4)
    0.8536
    """
    check_known("treatment of evasive answers", [noncommittal], NONCOMMITTAL)
    question, generated = _read_vectors(question_vec, generated_vecs)
    if noncommittal == "zero" and _evasive(flags, len(generated)):
        return 0.0
    if not len(generated) or not question.any() or not generated.any(axis=1).all():
        return empty
    cosines = _directions(generated) @ _directions(question[None])[0]
    return float(np.clip(cosines, -1.0, 1.0).mean())


def context_relevance(
    extracted: Sequence[str] | int | None, sentences: Sequence[str] | int, *, empty: float = _NAN
) -> float:
    """Share of a context's sentences that a question needs: CR = extracted / all sentences.

    Parameters
    ----------
    extracted : what the model copied, or only how many; None where its reply could not be read. An empty list, or
        nothing but "Insufficient Information", is 0.
    sentences : the context's sentences, or only how many. With the sentences, an extracted text counts for each of them
        that it holds whole, each once; what is no copy counts for nothing (`context_relevance_table` reports it). With
        a number there is nothing to compare with, and every item counts as it was written.
    empty : value for a context without sentences.

    Returns
    -------
    float in [0, 1]; NaN for ``extracted=None``.

    Raises
    ------
    DataError when more is extracted than there is, or for anything that is neither texts nor a number.

    Source: RAGAS, Eq 2. Paper value: 0.70 agreement with people on WikiEval (Table 1).

    >>> context_relevance(["B."], ["A.", "B.", "C.", "D."])
    0.25
    """
    if extracted is None:
        return _NAN
    count, total, _, _ = _read_extraction(extracted, sentences)
    return count / total if total else empty


def faithfulness_table(verdicts: Sequence[Sequence[Any] | None], *, unread: Unread = "undefined") -> pd.DataFrame:
    """Faithfulness of many answers, with counts beside it.

    Parameters
    ----------
    verdicts : for each answer its verdicts; None where its statements are not known.
    unread : as for `faithfulness`.

    Returns
    -------
    DataFrame, one row per answer: faithfulness, n (statements), supported, unread, status ("scored", or why not).

    Raises
    ------
    ConfigError for an unknown treatment of unread verdicts; DataError for something that is no list of verdicts.
    """
    rows = []
    for labels in verdicts:
        read = _read_verdicts(labels or ())
        missing = read.count(None)
        score = faithfulness(read, unread=unread)
        reason = "statements unread" if labels is None else "unread verdicts" if missing else "no statements"
        status = reason if labels is None or np.isnan(score) else "scored"
        rows.append((score if labels is not None else _NAN, len(read), read.count(True), missing, status))
    return pd.DataFrame(rows, columns=["faithfulness", "n", "supported", "unread", "status"])


def answer_relevance_table(
    question_vecs: Sequence[Any],
    generated_vecs: Sequence[Any],
    *,
    noncommittal: Noncommittal = "ignore",
    flags: Sequence[Sequence[Any] | None] | None = None,
) -> pd.DataFrame:
    """Answer relevance of many answers, with counts beside it.

    Parameters
    ----------
    question_vecs : shape (n_answers, d). generated_vecs : for each answer an array of shape (n, d), or None where its
        generated questions are not known.
    noncommittal, flags : as for `answer_relevance`, flags per answer.

    Returns
    -------
    DataFrame, one row per answer: answer_relevance, n (generated questions), noncommittal (flags set), zero_vectors,
    status ("scored", or why not).

    Raises
    ------
    ConfigError for an unknown treatment of evasive answers; DataError for lengths that differ, or vectors that
    cannot be used.
    """
    _same_length(question_vecs, generated_vecs, "question vectors", "answers' generated questions")
    remarks = [None] * len(question_vecs) if flags is None else flags
    _same_length(question_vecs, remarks, "question vectors", "answers' flags")
    rows: list[tuple] = []
    for q, vecs, remark in zip(question_vecs, generated_vecs, remarks, strict=True):
        if vecs is None:
            rows.append((_NAN, 0, 0, 0, "questions unread"))
            continue
        question, generated = _read_vectors(q, vecs)
        zero = int((~generated.any(axis=1)).sum()) + (not question.any())
        score = answer_relevance(question, generated, noncommittal=noncommittal, flags=remark)
        reason = "zero vector" if len(generated) else "no questions"
        said = sum(map(bool, remark)) if remark is not None else 0
        rows.append((score, len(generated), said, zero, reason if np.isnan(score) else "scored"))
    return pd.DataFrame(rows, columns=["answer_relevance", "n", "noncommittal", "zero_vectors", "status"])


def context_relevance_table(
    extracted: Sequence[Sequence[str] | int | None], sentences: Sequence[Sequence[str] | int]
) -> pd.DataFrame:
    """Context relevance of many contexts, with counts beside it.

    Parameters
    ----------
    extracted, sentences : as for `context_relevance`, one per context.

    Returns
    -------
    DataFrame, one row per context: context_relevance, n (sentences), extracted (that count), altered (texts that are no
    copies), insufficient (nothing extracted), status ("scored", or why not).

    Raises
    ------
    DataError for lengths that differ, or more extracted sentences than the context has.
    """
    _same_length(extracted, sentences, "extractions", "contexts")
    rows = []
    for copied, parts in zip(extracted, sentences, strict=True):
        count, total, altered, nothing = _read_extraction(0 if copied is None else copied, parts)
        status = "extraction unread" if copied is None else "scored" if total else "empty context"
        score = context_relevance(copied, parts)
        rows.append((score, total, count, altered, nothing and copied is not None, status))
    columns = ["context_relevance", "n", "extracted", "altered", "insufficient", "status"]
    return pd.DataFrame(rows, columns=columns)


def _same_length(a: Sequence[Any], b: Sequence[Any], first: str, second: str) -> None:
    if len(a) != len(b):
        raise DataError(f"{len(a)} {first} and {len(b)} {second}", "as many of each", "pass one per example")


def pick(items: Sequence[str], sentences: Sequence[str]) -> Picked:
    """Find the context's sentences that were copied whole, and what is no copy.

    Parameters
    ----------
    items : what the model wrote; an item may hold several sentences in a row.
    sentences : of the context, in order.
    """
    wrote = [item for item in items if item.strip()]
    phrase = [item.strip().strip("\"'.").casefold() == INSUFFICIENT.casefold() for item in wrote]
    if all(phrase):
        return Picked((), (), len(sentences), True)
    starts, text = [], ""
    for sentence in sentences:
        starts.append(len(text))
        text += _compact(sentence)
    starts.append(len(text))
    taken: set[int] = set()
    altered = []
    for item in wrote:
        inside = [s for s in _places(_compact(item), text, starts) if s]
        fresh = next((s for s in inside if not s <= taken), None)
        if not inside:
            altered.append(item)
        elif fresh is not None:
            taken |= fresh
    return Picked(tuple(sentences[i] for i in sorted(taken)), tuple(altered), len(sentences), False)


def _places(item: str, text: str, starts: Sequence[int]) -> list[set[int]]:
    """For each place of the item in the text: the sentences that lie wholly inside it."""
    places = []
    at = text.find(item)
    while at >= 0:
        end = at + len(item)
        places.append({i for i in range(len(starts) - 1) if at <= starts[i] and starts[i + 1] <= end})
        at = text.find(item, at + 1)
    return places


def _read_verdicts(verdicts: Sequence[Any]) -> list[bool | None]:
    """Return verdicts as True, False or None (unread)."""
    if isinstance(verdicts, str) or not isinstance(verdicts, Iterable):
        raise DataError(f"{verdicts!r:.60} as verdicts", "a list of verdicts, one per statement", "put it in a list")
    return [_verdict(v, i) for i, v in enumerate(verdicts)]


def _verdict(value: Any, place: int, what: str = "verdict") -> bool | None:
    # pandas' NA is none of its own type's equals, and importing pandas to ask would be slow.
    if value is None or type(value).__name__ == "NAType" or (isinstance(value, float | np.floating) and value != value):
        return None
    if isinstance(value, str):
        supported = _WORDS.get(value)
    else:
        supported = bool(value) if isinstance(value, bool | int | float | np.generic) and value in (0, 1) else None
    if supported is None:
        raise DataError(
            f"{what} {place} is {value!r}", "1 or 0, True or False, Yes or No", "pass None for an unread one"
        )
    return supported


def _read_vectors(question_vec: Any, generated_vecs: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return one vector (d,) and a matrix (n, d), checked."""
    try:
        question, generated = np.asarray(question_vec, float), np.asarray(generated_vecs, float)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"vectors that are no table of numbers: {error}",
            "a vector of numbers, and rows of equal length",
            "embed the texts first, all with one model",
        ) from None
    if generated.size == 0:
        generated = generated.reshape(0, question.size)
    if question.ndim != 1 or generated.ndim != 2 or generated.shape[1] != question.size:
        raise DataError(
            f"a question of shape {question.shape} and generated questions of shape {generated.shape}",
            "shapes (d,) and (n, d)",
            "embed both with the same model, and pass the question as one vector",
        )
    if not (np.isfinite(question).all() and np.isfinite(generated).all()):
        raise DataError(
            "a vector with NaN or infinity", "finite numbers", "check the embedder and the texts it was given"
        )
    return question, generated


def _directions(vectors: np.ndarray) -> np.ndarray:
    # Divided by the largest entry first: the square of a very large or small number is no number.
    scaled = vectors / np.abs(vectors).max(axis=1, keepdims=True)
    return scaled / np.linalg.norm(scaled, axis=1, keepdims=True)


def _evasive(flags: Sequence[Any] | None, n: int) -> bool:
    if flags is None:
        raise ConfigError(
            'noncommittal="zero" without flags', "one remark per generated question", "pass flags=, or use 'ignore'"
        )
    if len(flags) != n:
        raise DataError(
            f"{len(flags)} flags for {n} generated questions", "as many of each", "check how they were read"
        )
    read = [_verdict(flag, place, "flag") for place, flag in enumerate(flags)]
    if None in read:
        raise DataError(f"flag {read.index(None)} is unread", "1 or 0 per question", "leave that question out")
    return any(read)


def _read_extraction(extracted: Sequence[str] | int, sentences: Sequence[str] | int) -> tuple[int, int, int, bool]:
    """Return how many sentences count, of how many; how many texts are no copies; whether nothing was found."""
    listed, known = _texts(extracted, "extracted"), _texts(sentences, "sentences")
    total = len(known) if known is not None else int(sentences)  # type: ignore[call-overload]
    count, altered = len(listed) if listed is not None else int(extracted), 0  # type: ignore[call-overload]
    if listed is not None:
        picked = pick(listed, known or ())
        if picked.insufficient:
            count = 0
        elif known is not None:
            count, altered = len(picked.sentences), len(picked.altered)
    if count > total:
        raise DataError(
            f"{count} extracted of {total} sentences",
            "at most as many as the context has",
            "pass the sentences themselves, so that repeated and altered ones are told apart",
        )
    return count, total, altered, count == 0


def _texts(value: Any, name: str) -> list[str] | None:
    """Return texts as a list, None for a count."""
    if isinstance(value, int | np.integer) and not isinstance(value, bool) and value >= 0:
        return None
    listed = [None] if isinstance(value, str) or not isinstance(value, Iterable) else list(value)
    if not all(isinstance(v, str) for v in listed):
        raise DataError(
            f"{name} is {value!r:.60}", "a list of sentences, or their number", "split the text into sentences"
        )
    return listed


def _compact(text: str) -> str:
    return "".join(text.split())
