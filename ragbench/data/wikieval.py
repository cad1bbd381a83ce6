"""WikiEval, the data set of the RAGAS paper (section 4).

People's own preferences are not published with it; which text was *made* better is known. So
results are agreement with the construction, never with people.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ragbench.data.files import each_record, read_jsonl, shared_file
from ragbench.errors import check_known

Dimension = Literal["faithfulness", "answer_relevance", "context_relevance"]
# Dimension -> the better text, the worse one, and what faithfulness is judged against.
_COMPARED = {
    "faithfulness": ("answer", "ungrounded_answer", "context_v1"),
    "answer_relevance": ("answer", "poor_answer", None),
    "context_relevance": ("context_v1", "context_v2", None),
}
DIMENSIONS = tuple(_COMPARED)
_PREFIX = re.compile(r"^\s*(?:Question|Answer)\s*:\s*", re.I)


@dataclass(frozen=True, slots=True)
class WikiEvalRow:
    """A question with texts made for it, under the data set's own names.

    ``context_v1`` is a page's introduction, ``context_v2`` the same padded with related sentences;
    ``answer`` was made from the introduction, ``ungrounded_answer`` without it, ``poor_answer`` to
    be incomplete. ``meta`` holds the rest.
    """

    id: str
    question: str
    context_v1: tuple[str, ...]
    context_v2: tuple[str, ...]
    answer: str
    ungrounded_answer: str
    poor_answer: str
    source: str = ""
    meta: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pair:
    """Two texts of which one was made better.

    ``context`` is what faithfulness is judged against, else empty.
    """

    id: str
    question: str
    better: str
    worse: str
    context: str = ""


@dataclass(frozen=True)
class WikiEval:
    """Rows of WikiEval, or of a set of the same shape."""

    name: str
    rows: tuple[WikiEvalRow, ...]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[WikiEvalRow]:
        return iter(self.rows)

    def __repr__(self) -> str:
        return f"WikiEval({self.name!r}, {len(self.rows)} rows)"

    def pairs(self, dimension: Dimension) -> list[Pair]:
        """Return the pairs of one dimension: the paper's comparisons, the text made better first.

        Faithfulness compares ``answer`` and ``ungrounded_answer`` given ``context_v1``, answer
        relevance ``answer`` and ``poor_answer``, context relevance ``context_v1`` and
        ``context_v2``.
        """
        check_known("dimension", [dimension], DIMENSIONS)
        return [_pair(row, dimension) for row in self.rows]


def _pair(row: WikiEvalRow, dimension: str) -> Pair:
    better, worse, context = (_text(row, name) for name in _COMPARED[dimension])
    return Pair(row.id, row.question, better, worse, context)


def _text(row: WikiEvalRow, name: str | None) -> str:
    """Return a text of a row; passages with a blank line between them."""
    if name is None:
        return ""
    text = getattr(row, name)
    if isinstance(text, str):
        return text
    return "\n\n".join(passage.strip() for passage in text if passage.strip())


def load_wikieval(path: str | Path | None = None) -> WikiEval:
    """Load WikiEval, or a file of the same shape; its ids number the rows from ``wikieval-01``.

    Parameters
    ----------
    path : JSON lines with the fields question, context_v1, context_v2 (lists of texts, or one
        text), answer, ungrounded_answer, poor_answer and optionally source. "Question:" and
        "Answer:" before a text are taken off. Default: ``RAGBENCH_DATA/wikieval``.

    Source: RAGAS, section 4 (50 rows).
    """
    do = "set RAGBENCH_DATA, or pass WikiEval as JSON lines"
    given = shared_file(path, "wikieval", "wikieval.jsonl", name="WikiEval", do=do)
    numbers = itertools.count(1)

    def record(row: dict, where: str) -> WikiEvalRow:
        texts = {name: row.pop(name) for name in ("context_v1", "context_v2")}
        contexts = {
            name: (text,) if isinstance(text, str) else tuple(text) for name, text in texts.items()
        }
        for name in ("question", "answer", "ungrounded_answer", "poor_answer"):
            texts[name] = _PREFIX.sub("", row.pop(name), count=1).strip()
        source = str(row.pop("source", "") or "")
        return WikiEvalRow(
            **{**texts, **contexts}, id=f"wikieval-{next(numbers):02d}", source=source, meta=row
        )

    return WikiEval("wikieval", tuple(each_record(given, read_jsonl(given), record)))
