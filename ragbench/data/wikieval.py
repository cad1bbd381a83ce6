"""WikiEval, the data set of the RAGAS paper (section 4).

People's own preferences are not published with it; which text was *made* better is known. So
results are agreement with the construction, never with people.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator

from ragbench.data.files import Filled, as_record, each_record, read_jsonl, shared_file
from ragbench.errors import check_known

Dimension = Literal["faithfulness", "answer_relevance", "context_relevance"]
DIMENSIONS = ("faithfulness", "answer_relevance", "context_relevance")
_PREFIX = re.compile(r"^\s*(?:Question|Answer)\s*:\s*", re.I)
_without_prefix = AfterValidator(lambda text: _PREFIX.sub("", text, count=1).strip())
_Passages = Annotated[
    tuple[str, ...], BeforeValidator(lambda value: [value] if isinstance(value, str) else value)
]


@dataclass(frozen=True, slots=True)
class WikiEvalRow:
    """A question with texts made for it, under the data set's own names.

    ``context_v1`` is a page's introduction, ``context_v2`` the same padded with related sentences;
    ``answer`` was made from the introduction, ``ungrounded_answer`` without it, ``poor_answer`` to
    be incomplete. ``meta`` holds the rest.
    """

    id: str
    question: Annotated[Filled, _without_prefix]
    context_v1: _Passages
    context_v2: _Passages
    answer: Annotated[str, _without_prefix]
    ungrounded_answer: Annotated[str, _without_prefix]
    poor_answer: Annotated[str, _without_prefix]
    source: Annotated[str, BeforeValidator(lambda value: str(value or ""))] = ""
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


def _pair(row: WikiEvalRow, dimension: Dimension) -> Pair:
    first = _passages(row.context_v1)
    if dimension == "faithfulness":
        return Pair(row.id, row.question, row.answer, row.ungrounded_answer, first)
    if dimension == "answer_relevance":
        return Pair(row.id, row.question, row.answer, row.poor_answer)
    return Pair(row.id, row.question, first, _passages(row.context_v2))


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
    known = {part.name for part in fields(WikiEvalRow)}

    def record(row: dict, where: str) -> WikiEvalRow:
        meta = {name: value for name, value in row.items() if name not in known}
        return replace(as_record(WikiEvalRow, {**row, "id": ""}, where), meta=meta)

    rows = each_record(given, read_jsonl(given), record)
    return WikiEval(
        "wikieval", tuple(replace(row, id=f"wikieval-{n:02d}") for n, row in enumerate(rows, 1))
    )


def _passages(passages: Sequence[str]) -> str:
    """Join passages, a blank line between them."""
    return "\n\n".join(passage.strip() for passage in passages if passage.strip())
