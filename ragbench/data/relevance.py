"""Which documents are relevant: BEIR folders, TREC runs and relevance judgements.

A question's judgements are ``meta["relevant"]``: document id -> gain. `trec_rows` makes rows of a
run and judgements, for `ragbench.score` and its ranking metrics.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
from pydantic import Field, FiniteFloat

from ragbench.data.files import (
    Filled,
    Row,
    as_record,
    closest,
    each_record,
    read_records,
    read_text,
)
from ragbench.errors import DataError
from ragbench.records import Chunk, Dataset, Document, Hit, Question, as_id


class _Judgement(Row):
    query: Filled
    document: Filled
    gain: int


class _Ranked(Row):
    query: Filled
    document: Filled
    score: FiniteFloat
    tag: str


class _Text(Row):
    id: Annotated[Filled, Field(alias="_id")]
    title: Any = None
    text: str


def load_beir(folder: str | Path, split: str = "test") -> Dataset:
    """Load a BEIR folder: ``corpus.jsonl``, ``queries.jsonl``, ``qrels/SPLIT.tsv``.

    Questions are those that the split judges, without a true answer. Documents are all of the
    corpus. DataError also for a judgement of a query or document that is not there.
    """
    folder = Path(folder).expanduser()
    path = folder / "qrels" / f"{split}.tsv"
    if not path.is_file():
        found = (
            ", ".join(closest(path.parent, path.name))
            if path.parent.is_dir()
            else "no folder qrels"
        )
        raise DataError(
            f"there is no file {path} (there is {found})",
            "a split's judgements",
            "name another split",
        )
    judged = _lines(path, _Judgement, ("query", "document", "gain"), "\t")
    pages = read_records(folder / "corpus.jsonl", _Text)
    queries = {query.id: query.text for query in read_records(folder / "queries.jsonl", _Text)}
    for column, known in (("query", queries), ("document", {page.id for page in pages})):
        if absent := [name for row in judged if (name := getattr(row, column)) not in known]:
            raise DataError(
                f"{path}: {column} {absent[0]!r} is not in the folder",
                "an id of the folder",
                "mend it",
            )
    questions = []
    for query, gains in _by_query(judged).items():
        relevant = tuple(document for document, gain in gains.items() if gain > 0)
        questions.append(
            Question(query, queries[query], "", meta={"relevant": gains, "doc_ids": relevant})
        )
    documents = tuple(Document(page.id, str(page.title or ""), page.text) for page in pages)
    return Dataset(folder.name, tuple(questions), documents, meta={"setting": "own"})


def judgements(data: Dataset) -> dict[str, dict[str, int]]:
    """Return question id -> relevant document -> gain, of the questions that have any.

    They are a question's ``meta["relevant"]``, else the documents of its evidence
    (``meta["doc_ids"]``), else those in which one of its references occurs.
    """

    def gains(question: Question) -> dict[str, int]:
        named = question.meta.get("relevant") or question.meta.get("doc_ids")
        if named is None:
            named = [
                d.id for d in data.documents if any(part in d.text for part in question.references)
            ]
        gained = named if isinstance(named, Mapping) else dict.fromkeys(named, 1)
        return {as_id(name): gain for name, gain in gained.items()}

    judged = {question.id: gains(question) for question in data.questions}
    return {name: gained for name, gained in judged.items() if gained}


def read_trec_qrels(path: str | Path) -> dict[str, dict[str, int]]:
    """Read judgements, one ``query 0 document gain`` a line: query -> document -> gain."""
    return _by_query(_lines(path, _Judgement, ("query", "0", "document", "gain")))


def trec_rows(run: str | Path, qrels: str | Path | Mapping[str, Mapping[str, int]]) -> pd.DataFrame:
    """Make the rows that `ragbench.score` takes for ``["ranking"]`` of a run and its judgements.

    ``run`` is a file of ``query Q0 document rank score tag`` lines. As in trec_eval the score gives
    the order, ties by document id from the last one; a judged query that the run does not have
    retrieved nothing (-c).

    Returns
    -------
    DataFrame, a row per judged query: question_id, system (the run's tag), retrieved, relevant.
    """
    hits = _lines(run, _Ranked, ("query", "Q0", "document", "rank", "score", "tag"))
    found = defaultdict(list)
    for hit in sorted(hits, key=lambda hit: (hit.score, hit.document), reverse=True):
        found[hit.query].append(hit.document)
    judged = qrels if isinstance(qrels, Mapping) else read_trec_qrels(qrels)
    rows = [(query, hits[0].tag, found[query], dict(gains)) for query, gains in judged.items()]
    return pd.DataFrame(rows, columns=["question_id", "system", "retrieved", "relevant"])


def write_trec_run(
    results: Mapping[str, Sequence[Hit | Chunk | str]], path: str | Path, tag: str = "ragbench"
) -> Path:
    """Write hits by question as a run; return the path.

    Of several chunks of one document the first is written. Scores are the hits' own if they fall
    with the rank; else they count down, so that trec_eval keeps the order.
    """
    lines = []
    for query, hits in results.items():
        first: dict[str, float] = {}
        for hit in hits:
            chunk, score = (hit.chunk, hit.score) if isinstance(hit, Hit) else (hit, 0.0)
            first.setdefault(chunk.doc_id if isinstance(chunk, Chunk) else as_id(chunk), score)
        if blank := [name for name in (*first, tag) if len(name.split()) != 1]:
            raise DataError(
                f"the id {blank[0]!r}",
                "an id without blanks, which separate cells here",
                "rename it",
            )
        if any(after >= before for before, after in itertools.pairwise(first.values())):
            first = {name: float(len(first) - place) for place, name in enumerate(first)}
        lines += [
            f"{query} Q0 {name} {rank} {first[name]!r} {tag}\n"
            for rank, name in enumerate(first, 1)
        ]
    path = Path(path).expanduser()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(lines), encoding="utf-8")
    return path


def _by_query(judged: Iterable[_Judgement]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = defaultdict(dict)
    for row in judged:
        # below 0 is "not relevant" too, in some of TREC's
        found[row.query][row.document] = max(row.gain, 0)
    return dict(found)


def _lines(
    path: str | Path, shape: type[Any], columns: Sequence[str], separator: str | None = None
) -> list[Any]:
    """Read cells that blanks or a separator divide; each query and document occur once together."""

    def record(cells: Sequence[str], where: str) -> Any:
        if len(cells) != len(columns):
            raise DataError(
                f"{where}: {len(cells)} cells",
                f"{len(columns)}: {', '.join(columns)}",
                "mend that line",
            )
        return as_record(shape, dict(zip(columns, cells, strict=True)), where)

    lines = (
        (f"line {n}", line.rstrip("\r")) for n, line in enumerate(read_text(path).split("\n"), 1)
    )
    rows = ((place, line.split(separator)) for place, line in lines if line.strip())
    rows = ((place, cells) for place, cells in rows if cells[0] != "query-id")
    return each_record(
        path, rows, record, lambda row: [f"document {row.document!r} of query {row.query!r}"]
    )


def document_clusters(dataset: Dataset) -> dict[str, int]:
    """Number groups of questions that share relevant documents, directly or through others:
    question id -> group.

    A question without a relevant document (see `judgements`) is a group of its own.
    """
    judged = judgements(dataset)
    return linked_questions(
        {question.id: judged.get(question.id, ()) for question in dataset.questions}
    )


def linked_questions(documents: Mapping[str, Iterable[Hashable]]) -> dict[str, int]:
    """Number groups of questions by what names their documents, as `document_clusters` does."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    places = {
        name: i
        for i, name in enumerate(dict.fromkeys(d for own in documents.values() for d in own))
    }
    edges = [
        (i, len(documents) + places[d]) for i, own in enumerate(documents.values()) for d in own
    ]
    a, b = np.array(edges, int).reshape(-1, 2).T
    graph = coo_array((np.ones(len(edges)), (a, b)), shape=(len(documents) + len(places),) * 2)
    groups = connected_components(graph, directed=False)[1]
    return dict(zip(documents, groups.tolist(), strict=False))  # the documents' own groups follow
