"""Which documents are relevant: BEIR folders, judgements, TREC runs.

A question's judgements are ``meta["relevant"]``: document id -> gain.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from ragbench.data.files import FileRecord, Filled, each_record, read_jsonl
from ragbench.data.tables import Table
from ragbench.errors import DataError
from ragbench.records import Dataset, Document, Hit, Question, as_id
from ragbench.text.layout import holders


class _Text(FileRecord):
    id: Annotated[Filled, Field(alias="_id")]
    title: str | None = None
    text: str


class _Judgement(FileRecord):
    query: Annotated[Filled, Field(alias="query-id")]
    document: Annotated[Filled, Field(alias="corpus-id")]
    gain: Annotated[int, Field(alias="score")]


def load_beir(folder: str | Path, split: str = "test") -> Dataset:
    """Load a BEIR folder: ``corpus.jsonl``, ``queries.jsonl``, ``qrels/SPLIT.tsv``.

    Questions are those that the split judges, without a true answer. Documents are all of the
    corpus. DataError also for a judgement of a query or document that is not there.
    """
    folder = Path(folder).expanduser()
    pages = _texts(folder / "corpus.jsonl")
    queries = _texts(folder / "queries.jsonl")
    table = Table.of(folder / "qrels" / f"{split}.tsv")
    judged: dict[str, dict[str, int]] = defaultdict(dict)
    for one in table.records(_Judgement, lambda one: (one.query, one.document)):
        for name, there in ((one.query, queries), (one.document, pages)):
            if name not in there:
                got = f"{table.name}: {name!r} is not in the folder"
                raise DataError(got, "ids of queries and of documents of the folder", "correct it")
        judged[one.query][one.document] = one.gain
    questions = []
    for query, gains in judged.items():
        relevant = tuple(document for document, gain in gains.items() if gain > 0)
        meta = {"relevant": gains, "doc_ids": relevant}
        questions.append(Question(query, queries[query].text, "", meta=meta))
    documents = tuple(Document(page.id, page.title or "", page.text) for page in pages.values())
    return Dataset(folder.name, tuple(questions), documents, meta={"setting": "own"})


def _texts(path: Path) -> dict[str, _Text]:
    return {text.id: text for text in each_record(path, read_jsonl(path), _Text)}


def judgements(data: Dataset) -> dict[str, dict[str, int]]:
    """Return question id -> relevant document -> gain, of the questions that have any.

    They are a question's ``meta["relevant"]``, else the documents of its evidence
    (``meta["doc_ids"]``), else those in which one of its references occurs, compared as the IR
    score compares them (`ragbench.text.layout.comparable`).
    """
    judged: dict[str, dict[str, int]] = {}
    unnamed = []
    for question in data.questions:
        gains = question.meta.get("relevant") or question.meta.get("doc_ids", ())
        if not isinstance(gains, Mapping):
            gains = dict.fromkeys(gains, 1)
        judged[question.id] = {as_id(name): gain for name, gain in gains.items()}
        if question.meta.keys().isdisjoint(("relevant", "doc_ids")):
            unnamed += [(question.id, text) for text in question.references]
    texts = [document.text for document in data.documents]
    documents = holders([reference for _, reference in unnamed], texts)
    for (name, _), places in zip(unnamed, documents, strict=True):
        judged[name] |= {data.documents[place].id: 1 for place in places}
    return {name: gains for name, gains in judged.items() if gains}


def write_trec_run(
    results: Mapping[str, Sequence[Hit | str]], path: str | Path, tag: str = "ragbench"
) -> Path:
    """Write hits, or ids of documents, by question as a run; return the path.

    Of several chunks of one document the first is written. Scores count down, so that trec_eval
    keeps the order. A blank in an id is written as %20.
    """
    lines = []
    for query, hits in results.items():
        names = (hit.chunk.doc_id if isinstance(hit, Hit) else hit for hit in hits)
        documents = list(dict.fromkeys(names))
        for rank, name in enumerate(documents, 1):
            cells = (query, "Q0", name, rank, len(documents) - rank + 1, tag)
            lines.append(" ".join(map(_trec_cell, cells)) + "\n")
    path = Path(path).expanduser()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(lines), encoding="utf-8")
    return path


def _trec_cell(value: Any) -> str:
    written = as_id(value).replace(" ", "%20")  # blanks divide the cells
    if len(written.split()) != 1:
        got = f"the id {value!r}"
        raise DataError(got, "an id without tabs and line breaks, not empty", "rename it")
    return written


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
