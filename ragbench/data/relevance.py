"""Which documents are relevant: BEIR folders, TREC runs and relevance judgements.

A question's judgements are ``meta["relevant"]``: document id -> gain. `trec_rows` makes rows of a
run and judgements, for `ragbench.score` and its ranking metrics.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
from pydantic import Field

from ragbench.data.files import FileRecord, Filled, read_records, read_text
from ragbench.errors import DataError
from ragbench.records import Chunk, Dataset, Document, Hit, Question, as_id
from ragbench.text.layout import holders

_BLANK = "%20"  # a blank of an id in TREC's files, whose cells blanks divide


class _Text(FileRecord):
    id: Annotated[Filled, Field(alias="_id")]
    title: str | None = None
    text: str


def load_beir(folder: str | Path, split: str = "test") -> Dataset:
    """Load a BEIR folder: ``corpus.jsonl``, ``queries.jsonl``, ``qrels/SPLIT.tsv``.

    Questions are those that the split judges, without a true answer. Documents are all of the
    corpus. DataError also for a judgement of a query or document that is not there.
    """
    folder = Path(folder).expanduser()
    path = folder / "qrels" / f"{split}.tsv"
    pages = read_records(folder / "corpus.jsonl", _Text)
    queries = {query.id: query.text for query in read_records(folder / "queries.jsonl", _Text)}
    ids = {page.id for page in pages}
    questions = []
    for query, gains in _read_lines(path, "query document value", _gain, "\t").items():
        absent = ({query} - queries.keys()) | (gains.keys() - ids)
        if absent:
            got = f"{path}: {min(absent)!r} is not in the folder"
            raise DataError(got, "ids of queries and of documents of the folder", "correct it")
        relevant = tuple(document for document, gain in gains.items() if gain > 0)
        meta = {"relevant": gains, "doc_ids": relevant}
        questions.append(Question(query, queries[query], "", meta=meta))
    documents = tuple(Document(page.id, page.title or "", page.text) for page in pages)
    return Dataset(folder.name, tuple(questions), documents, meta={"setting": "own"})


def judgements(data: Dataset) -> dict[str, dict[str, int]]:
    """Return question id -> relevant document -> gain, of the questions that have any.

    They are a question's ``meta["relevant"]``, else the documents of its evidence
    (``meta["doc_ids"]``), else those in which one of its references occurs, compared as the IR
    score compares them (`ragbench.text.layout.comparable`).
    """
    unnamed = [q for q in data.questions if "relevant" not in q.meta and "doc_ids" not in q.meta]
    references = [text for question in unnamed for text in question.references]
    places = dict(
        zip(references, holders(references, [d.text for d in data.documents]), strict=True)
    )
    judged: dict[str, dict[str, int]] = {}
    for question in data.questions:
        gains = question.meta.get("relevant") or question.meta.get("doc_ids", ())
        if not isinstance(gains, Mapping):
            gains = dict.fromkeys(gains, 1)
        judged[question.id] = {as_id(name): gain for name, gain in gains.items()}
    for question in unnamed:
        for text in question.references:
            judged[question.id] |= {data.documents[place].id: 1 for place in places[text]}
    return {name: gains for name, gains in judged.items() if gains}


def read_trec_qrels(path: str | Path) -> dict[str, dict[str, int]]:
    """Read judgements, one ``query 0 document gain`` a line: query -> document -> gain."""
    return _read_lines(path, "query 0 document value", _gain)


def _gain(cell: str) -> int:
    return max(int(cell), 0)  # some of TREC's are below 0


def trec_rows(run: str | Path, qrels: str | Path | Mapping[str, Mapping[str, int]]) -> pd.DataFrame:
    """Make the rows that `ragbench.score` takes for ``["ranking"]`` of a run and its judgements.

    As in trec_eval the score gives the order, ties by document id from the last one; a judged query
    that the run does not have retrieved nothing (-c).

    Parameters
    ----------
    run : a file of ``query Q0 document rank score tag`` lines.

    Returns
    -------
    DataFrame, a row per judged query: question_id, system (the run's tag), retrieved, relevant.
    """
    scores = _read_lines(run, "query Q0 document rank value tag", float)
    tag = read_text(run).split(maxsplit=6)[5].replace(_BLANK, " ")
    judged = qrels if isinstance(qrels, Mapping) else read_trec_qrels(qrels)
    rows = []
    for query, gains in judged.items():
        found = sorted(scores.get(query, {}).items(), key=lambda item: (item[1], item[0]))
        retrieved = [document for document, _ in reversed(found)]
        rows.append((query, tag, retrieved, dict(gains)))
    return pd.DataFrame(rows, columns=["question_id", "system", "retrieved", "relevant"])


def write_trec_run(
    results: Mapping[str, Sequence[Hit | Chunk | str]], path: str | Path, tag: str = "ragbench"
) -> Path:
    """Write hits by question as a run; return the path.

    Of several chunks of one document the first is written. Scores count down, so that trec_eval
    keeps the order. A blank in an id is written as %20.
    """
    lines = []
    for query, hits in results.items():
        documents: dict[str, None] = {}
        for hit in hits:
            chunk = hit.chunk if isinstance(hit, Hit) else hit
            documents[chunk.doc_id if isinstance(chunk, Chunk) else as_id(chunk)] = None
        for rank, name in enumerate(documents, 1):
            score = len(documents) - rank + 1
            ids = [_trec_id(each) for each in (query, name, tag)]
            lines.append(f"{ids[0]} Q0 {ids[1]} {rank} {score} {ids[2]}\n")
    path = Path(path).expanduser()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(lines), encoding="utf-8")
    return path


def _trec_id(name: Any) -> str:
    written = as_id(name).replace(" ", _BLANK)
    if len(written.split()) != 1:
        got = f"the id {name!r}"
        raise DataError(got, "an id without tabs and line breaks, not empty", "rename it")
    return written


def _read_lines(
    path: str | Path, columns: str, number: Callable[[str], Any], separator: str | None = None
) -> dict[str, dict[str, Any]]:
    """Read lines of cells with these names: query -> document -> number of the value."""
    names = columns.split()
    read: dict[str, dict[str, Any]] = defaultdict(dict)
    for count, line in enumerate(read_text(path).splitlines(), 1):
        if not line.strip() or line.startswith("query-id\t"):
            continue
        cells = [cell.replace(_BLANK, " ") for cell in line.split(separator)]
        try:
            if len(cells) != len(names):
                raise ValueError(f"{len(cells)} cells")
            row = dict(zip(names, cells, strict=True))
            found = read[row["query"]]
            if row["document"] in found:
                raise ValueError(f"{row['document']!r} was there before for {row['query']!r}")
            found[row["document"]] = number(row["value"])
        except ValueError as error:
            got = f"{path}, line {count}: {error}"
            raise DataError(got, columns, "correct that line") from None
    return dict(read)


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
    from scipy.cluster.hierarchy import DisjointSet

    groups = DisjointSet()
    for question, own in documents.items():
        groups.add((question,))
        for document in own:
            groups.add(("document", document))
            groups.merge((question,), ("document", document))
    numbers: dict[tuple, int] = {}
    return {name: numbers.setdefault(groups[(name,)], len(numbers)) for name in documents}
