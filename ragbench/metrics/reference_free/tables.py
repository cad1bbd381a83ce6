"""Many answers or contexts at once: scores, with the counts and the reasons of what could not be scored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ragbench.errors import DataError
from ragbench.metrics.reference_free.scores import (
    Noncommittal,
    Unread,
    answer_relevance,
    context_relevance,
    faithfulness,
    read_extraction,
    read_vectors,
    read_verdicts,
)

if TYPE_CHECKING:
    import pandas as pd

_NAN = float("nan")


def faithfulness_table(verdicts: Sequence[Sequence[Any] | None], *, unread: Unread = "undefined") -> pd.DataFrame:
    """Faithfulness of many answers, with counts beside it.

    Parameters
    ----------
    verdicts : for each answer its verdicts; None where its statements are not known.
    unread : as for `faithfulness`.

    Returns
    -------
    DataFrame, one row per answer: faithfulness, n (statements), supported, unread, status ("scored", or why not).
    """
    import pandas as pd

    rows = []
    for own in verdicts:
        read = read_verdicts(own or ())
        missing = read.count(None)
        score = faithfulness(read, unread=unread)
        reason = "statements unread" if own is None else "unread verdicts" if missing else "no statements"
        status = reason if own is None or np.isnan(score) else "scored"
        rows.append((score if own is not None else _NAN, len(read), read.count(True), missing, status))
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
    """
    import pandas as pd

    _same_length(question_vecs, generated_vecs, "question vectors", "answers' generated questions")
    remarks = [None] * len(question_vecs) if flags is None else flags
    _same_length(question_vecs, remarks, "question vectors", "answers' flags")
    rows: list[tuple] = []
    for q, own, remark in zip(question_vecs, generated_vecs, remarks, strict=True):
        if own is None:
            rows.append((_NAN, 0, 0, 0, "questions unread"))
            continue
        question, generated = read_vectors(q, own)
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
    """
    import pandas as pd

    _same_length(extracted, sentences, "extractions", "contexts")
    rows = []
    for own, parts in zip(extracted, sentences, strict=True):
        count, total, altered, nothing = read_extraction(0 if own is None else own, parts)
        reason = "extraction unread" if own is None else "empty context"
        status = reason if own is None or not total else "scored"
        score = context_relevance(own, parts)
        rows.append((score, total, count, altered, nothing and own is not None, status))
    columns = ["context_relevance", "n", "extracted", "altered", "insufficient", "status"]
    return pd.DataFrame(rows, columns=columns)


def _same_length(a: Sequence[Any], b: Sequence[Any], first: str, second: str) -> None:
    if len(a) != len(b):
        raise DataError(f"{len(a)} {first} and {len(b)} {second}", "as many of each", "pass one per example")
