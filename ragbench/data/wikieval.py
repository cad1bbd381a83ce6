"""WikiEval, the data set of the RAGAS paper (section 4).

People's own preferences are not published with it; which text was *made* better is known. So
results are agreement with the construction, never with people.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal, NamedTuple

import pandas as pd

from ragbench.data.files import shared_file
from ragbench.data.tables import Table
from ragbench.errors import NotHereError, check_known

Dimension = Literal["faithfulness", "answer_relevance", "context_relevance"]
# Dimension -> the better text, the worse one, and what faithfulness is judged against.
_COMPARED = {
    "faithfulness": ("answer", "ungrounded_answer", "context_v1"),
    "answer_relevance": ("answer", "poor_answer", None),
    "context_relevance": ("context_v1", "context_v2", None),
}
DIMENSIONS = tuple(_COMPARED)
_PREFIX = re.compile(r"^\s*(?:Question|Answer)\s*:\s*", re.I)


class Pair(NamedTuple):
    """Two texts of which one was made better.

    ``context`` is what faithfulness is judged against, else empty.
    """

    id: str
    question: str
    better: str
    worse: str
    context: str = ""


def load_wikieval(path: str | Path | None = None) -> pd.DataFrame:
    """Load WikiEval, or a file of the same shape.

    Parameters
    ----------
    path : JSON lines, the release's Parquet file, or a folder with one of them. Fields: question,
        context_v1, context_v2 (lists of texts, or one text), answer, ungrounded_answer, poor_answer
        and optionally source. "Question:" and "Answer:" before a text are taken off. Default:
        ``RAGBENCH_DATA/wikieval``.

    Returns
    -------
    DataFrame, a row per question, under the data set's own names. ``context_v1`` is a page's
    introduction, ``context_v2`` the same padded with related sentences (tuples of texts);
    ``answer`` was made from the introduction, ``ungrounded_answer`` without it, ``poor_answer`` to
    be incomplete. Column ``id`` numbers the rows from ``wikieval-01``.

    Source: RAGAS, section 4 (50 rows).

    >>> len(rb.data.load_wikieval())
    50
    """
    do = "set RAGBENCH_DATA, or pass WikiEval as JSON lines"
    place = shared_file(path, "wikieval", name="WikiEval", do=do)
    file = place
    if place.is_dir():
        found = [*place.glob("wikieval.jsonl*"), *sorted(place.rglob("*.parquet"))]
        if not found:
            raise NotHereError(f"WikiEval is not in {place}", "wikieval.jsonl or *.parquet", do)
        file = found[0]
    rows = pd.DataFrame(Table.of(file).records(_row, None))
    ids = [f"wikieval-{number + 1:02d}" for number in rows.index]
    rows.insert(0, "id", ids)
    return rows


def _row(row: dict, where: str) -> dict:
    for name in ("context_v1", "context_v2"):
        text = row[name]
        row[name] = (text,) if isinstance(text, str) else tuple(text)
    for name in ("question", "answer", "ungrounded_answer", "poor_answer"):
        row[name] = _PREFIX.sub("", row[name], count=1).strip()
    return row


def wikieval_pairs(rows: pd.DataFrame, dimension: Dimension) -> list[Pair]:
    """Return the paper's comparisons of one dimension.

    Faithfulness compares ``answer`` and ``ungrounded_answer`` given ``context_v1``, answer
    relevance ``answer`` and ``poor_answer``, context relevance ``context_v1`` and ``context_v2``.
    """
    check_known("dimension", [dimension], DIMENSIONS)
    better, worse, context = _COMPARED[dimension]
    pairs = []
    for row in rows.to_dict("records"):
        pair = Pair(row["id"], row["question"], _text(row[better]), _text(row[worse]))
        if context:
            pair = pair._replace(context=_text(row[context]))
        pairs.append(pair)
    return pairs


def _text(value: str | tuple[str, ...]) -> str:
    """Return one text; passages with a blank line between them."""
    if isinstance(value, str):
        return value
    return "\n\n".join(passage.strip() for passage in value if passage.strip())
