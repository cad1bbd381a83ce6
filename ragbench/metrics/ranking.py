"""Retrieval measured against the relevant documents: recall, precision, reciprocal rank, nDCG.

Every function takes one question's hits, best first, and its relevant ids; averages are the caller's. A hit is a
``Hit``, a ``Chunk``, or an id. Several hits may belong to one document: each takes a rank, only the first one counts.
Undefined (no relevant id) is NaN.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from ragbench.errors import ConfigError, unknown
from ragbench.records import Chunk, Hit

KINDS = ("partial", "any", "full")


def _ids(retrieved: Sequence[Hit | Chunk | str], by: str) -> list[str]:
    if by not in ("doc_id", "id", "title"):
        raise unknown("field of a chunk", by, ("doc_id", "id", "title"))
    if isinstance(retrieved, str) or not isinstance(retrieved, Sequence):
        raise ConfigError(
            f"retrieved is {type(retrieved).__name__}", "a list of hits or ids", "pass one list per question"
        )
    found = []
    for item in retrieved:
        chunk = item.chunk if isinstance(item, Hit) else item
        found.append(getattr(chunk, by) if isinstance(chunk, Chunk) else chunk)
    return found


def _relevant(relevant: Collection[str]) -> Collection[str]:
    if isinstance(relevant, str) or not isinstance(relevant, Collection):
        raise ConfigError(f"relevant is {type(relevant).__name__}", "a set of ids", "pass {document.id, ...}")
    return relevant if isinstance(relevant, Mapping) else set(relevant)


def _cut(found: list[str], k: int | None) -> list[str]:
    if k is not None and (isinstance(k, bool) or not isinstance(k, int) or k < 1):
        raise ConfigError(f"k={k!r}", "a whole number, at least 1", "use for instance k=10")
    return found[:k]


def recall_at_k(
    retrieved: Sequence[Hit | Chunk | str],
    relevant: Collection[str],
    k: int | None = None,
    *,
    kind: str = "partial",
    by: str = "doc_id",
) -> float:
    """Return how much of the relevant is among the first k hits.

    Parameters
    ----------
    retrieved : hits or ids, best first.
    relevant : ids of the relevant documents.
    k : how many hits count; None for all.
    kind : ``"partial"`` (share found), ``"any"`` (1 if one is found) or ``"full"`` (1 if all are found).
    by : what identifies a hit: ``"doc_id"``, ``"id"`` (of the chunk) or ``"title"``.

    Returns
    -------
    float in [0, 1]; NaN when nothing is relevant.

    Raises
    ------
    ConfigError for an unknown kind.

    >>> recall_at_k(["a", "x", "b"], {"a", "b"}, 2)
    0.5
    """
    if kind not in KINDS:
        raise unknown("kind of recall", kind, KINDS)
    wanted = set(_relevant(relevant))
    n = len(wanted & set(_cut(_ids(retrieved, by), k)))
    if not wanted:
        return math.nan
    return {"partial": n / len(wanted), "any": float(n > 0), "full": float(n == len(wanted))}[kind]


def precision_at_k(
    retrieved: Sequence[Hit | Chunk | str], relevant: Collection[str], k: int | None = None, *, by: str = "doc_id"
) -> float:
    """Return the share of the first k hits that are relevant (of those there are, where fewer were returned).

    Every hit counts here, also the second one of a document.

    Returns
    -------
    float in [0, 1]; NaN when nothing was retrieved.
    """
    wanted = _relevant(relevant)
    found = _cut(_ids(retrieved, by), k)
    return sum(i in wanted for i in found) / len(found) if found else math.nan


def reciprocal_rank(
    retrieved: Sequence[Hit | Chunk | str], relevant: Collection[str], k: int | None = None, *, by: str = "doc_id"
) -> float:
    """Return 1 / rank of the first relevant hit among the first k, 0 without one; the mean over questions is MRR.

    Returns
    -------
    float in [0, 1]; NaN when nothing is relevant.

    >>> reciprocal_rank(["x", "a", "b"], {"a", "b"})
    0.5
    """
    wanted = _relevant(relevant)
    found = _cut(_ids(retrieved, by), k)
    if not wanted:
        return math.nan
    return next((1 / rank for rank, i in enumerate(found, 1) if i in wanted), 0.0)


def ndcg_at_k(
    retrieved: Sequence[Hit | Chunk | str],
    relevant: Collection[str] | Mapping[str, float],
    k: int | None = None,
    *,
    by: str = "doc_id",
) -> float:
    """Return the discounted gain of the first k hits as a share of the best possible one.

    Parameters
    ----------
    relevant : ids, each worth 1, or a mapping id -> gain (at least 0).

    Returns
    -------
    float in [0, 1]; NaN when nothing is relevant.

    Raises
    ------
    ConfigError for gains that are negative or not finite.

    Source: Järvelin and Kekäläinen 2002, with gain / log2(rank + 1), as scikit-learn's ``ndcg_score``.
    """
    relevant = _relevant(relevant)
    gains = dict(relevant) if isinstance(relevant, Mapping) else dict.fromkeys(relevant, 1.0)
    if any(not math.isfinite(gain) or gain < 0 for gain in gains.values()):
        raise ConfigError(
            f"gains {sorted(gains.values())!r}", "finite numbers, at least 0", "leave out what is irrelevant"
        )
    best = sorted(gains.values(), reverse=True)
    found = _cut(_ids(retrieved, by), k)
    if not any(best):
        return math.nan
    gained = [gains.pop(i, 0.0) for i in found]  # popped: a document gains once
    return _dcg(gained) / _dcg(best[:k])


def _dcg(gains: Iterable[float]) -> float:
    return math.fsum(gain / math.log2(rank + 1) for rank, gain in enumerate(gains, 1))


def ranking_table(
    results: Sequence[Sequence[Hit | Chunk | str]],
    relevant: Sequence[Collection[str]],
    ks: Sequence[int] = (2, 5, 10),
    *,
    by: str = "doc_id",
) -> pd.DataFrame:
    """Return one row per question; a column's name carries its parameters, as ``recall[full]@5``.

    Parameters
    ----------
    results : hits of each question, as ``search`` returns them.
    relevant : relevant ids of each question.
    ks : cutoffs.

    Returns
    -------
    DataFrame (questions, 5 x cutoffs): recall[any], recall[full], recall[partial], reciprocal_rank, ndcg at each k.

    Raises
    ------
    ConfigError when the two lists differ in length.
    """
    if len(results) != len(relevant):
        raise ConfigError(
            f"{len(results)} results for {len(relevant)} questions", "one list of hits each", "search all questions"
        )
    rows: list[dict[str, Any]] = []
    for found, wanted in zip(results, relevant, strict=True):
        row = {}
        for k in ks:
            row |= {f"recall[{kind}]@{k}": recall_at_k(found, wanted, k, kind=kind, by=by) for kind in sorted(KINDS)}
            row[f"reciprocal_rank@{k}"] = reciprocal_rank(found, wanted, k, by=by)
            row[f"ndcg@{k}"] = ndcg_at_k(found, wanted, k, by=by)
        rows.append(row)
    return pd.DataFrame(rows)
