"""WikiEval, the data set of the RAGAS paper (section 4).

A row holds a question, a page's introduction (``context_v1``) and the same padded with related sentences
(``context_v2``), an answer from the introduction (``answer``), one made without it (``ungrounded_answer``), and one
asked to be incomplete (``poor_answer``). People's own preferences are not published with it; which text was *made*
better is known. So results are agreement with the construction, never with people.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ragbench.data.files import raise_all, read_jsonl, require_text
from ragbench.errors import DataError, unknown
from ragbench.paths import mirror

Dimension = Literal["faithfulness", "answer_relevance", "context_relevance"]
DIMENSIONS = ("faithfulness", "answer_relevance", "context_relevance")
_PREFIX = re.compile(r"^\s*(?:Question|Answer)\s*:\s*", re.I)


@dataclass(frozen=True, slots=True)
class WikiEvalRow:
    """One row, under the data set's own field names. ``meta`` holds what a copy of the set adds to them."""

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
    """Two texts of which one was made better. ``context`` is what faithfulness is judged against, else empty."""

    id: str
    question: str
    better: str
    worse: str
    context: str = ""


@dataclass(frozen=True)
class WikiEval:
    """Rows of WikiEval, or of a set of the same shape. ``failed``: what a generator could not make, as (id, reason)."""

    name: str
    rows: tuple[WikiEvalRow, ...]
    failed: tuple[tuple[str, str], ...] = ()

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[WikiEvalRow]:
        return iter(self.rows)

    def __repr__(self) -> str:
        return f"WikiEval({self.name!r}, {len(self.rows)} rows)"

    def pairs(self, dimension: Dimension) -> list[Pair]:
        """Return the pairs of one dimension: the paper's comparisons, the text made better first.

        Faithfulness compares ``answer`` and ``ungrounded_answer`` given ``context_v1``, answer relevance ``answer`` and
        ``poor_answer``, context relevance ``context_v1`` and ``context_v2``.

        Raises
        ------
        ConfigError for another dimension.
        """
        if dimension not in DIMENSIONS:
            raise unknown("dimension", dimension, DIMENSIONS)
        if dimension == "faithfulness":
            return [Pair(r.id, r.question, r.answer, r.ungrounded_answer, joined(r.context_v1)) for r in self.rows]
        if dimension == "answer_relevance":
            return [Pair(r.id, r.question, r.answer, r.poor_answer) for r in self.rows]
        return [Pair(r.id, r.question, joined(r.context_v1), joined(r.context_v2)) for r in self.rows]


def load_wikieval(path: str | Path | None = None) -> WikiEval:
    """Load WikiEval, or a file of the same shape.

    Parameters
    ----------
    path : JSON lines with the fields question, context_v1, context_v2 (lists of texts, or one text), answer,
        ungrounded_answer, poor_answer and optionally source; plain or gzip. Default: ``RAGBENCH_DATA/wikieval``.

    Returns
    -------
    WikiEval; ids number the rows from ``wikieval-01``. "Question:" and "Answer:" before a text are taken off.

    Raises
    ------
    DataError with file and line when a field is missing or no text. An empty answer is kept: metrics define it.

    Source: RAGAS, section 4 (50 rows).
    """
    given = Path(path).expanduser() if path is not None else mirror("wikieval", "wikieval.jsonl")
    if given is None:
        raise DataError(
            "WikiEval is not on this machine",
            "RAGBENCH_DATA/wikieval/wikieval.jsonl",
            "set RAGBENCH_DATA, or pass WikiEval as JSON lines; ragbench.datagen.ragas_pairs makes a set of its shape",
        )
    rows: list[WikiEvalRow] = []
    errors: list[DataError] = []
    records = list(read_jsonl(given))
    for place, (number, record) in enumerate(records, 1):
        try:
            rows.append(_row(record, f"{given}, line {number}", f"wikieval-{place:02d}"))
        except DataError as error:
            errors.append(error)
    raise_all(errors, given, len(records))
    return WikiEval("wikieval", tuple(rows))


def joined(passages: Sequence[str]) -> str:
    """Join passages, a blank line between them."""
    return "\n\n".join(passage.strip() for passage in passages if passage.strip())


def _row(record: dict, where: str, name: str) -> WikiEvalRow:
    texts = {
        f: require_text(record, f, where, empty=True)
        for f in ("question", "answer", "ungrounded_answer", "poor_answer")
    }
    require_text(record, "question", where)
    contexts = {f: _passages(record, f, where) for f in ("context_v1", "context_v2")}
    known = {*texts, *contexts, "source"}
    return WikiEvalRow(
        name,
        **{f: _PREFIX.sub("", text, count=1).strip() for f, text in texts.items()},
        **contexts,
        source=str(record.get("source") or ""),
        meta={f: value for f, value in record.items() if f not in known},
    )


def _passages(record: dict, name: str, where: str) -> tuple[str, ...]:
    value = record.get(name)
    if isinstance(value, list) and all(isinstance(v, str) for v in value):
        return tuple(value)
    return (require_text(record, name, where, empty=True),)
