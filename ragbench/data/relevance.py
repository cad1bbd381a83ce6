"""Which documents are relevant: BEIR folders, judgements, TREC runs.

A question's judgements are ``meta["relevant"]``: document id -> gain.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from ragbench.data.files import FileRecord, Filled, each_record, read_jsonl
from ragbench.data.tables import Table, read_ids, read_mapping
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
    corpus. DataError also for a judgement of a query or document that is not there, and for a file
    without a judgement.
    """
    folder = Path(folder).expanduser()
    pages = _texts(folder / "corpus.jsonl")
    queries = _texts(folder / "queries.jsonl")
    judged: dict[str, dict[str, int]] = defaultdict(dict)
    path = folder / "qrels" / f"{split}.tsv"
    for judgement in _judgements(path, queries, pages):
        judged[judgement.query][judgement.document] = judgement.gain
    questions = []
    for name, gains in judged.items():
        relevant = tuple(document for document, gain in gains.items() if gain > 0)
        meta = {"relevant": gains, "doc_ids": relevant}
        questions.append(Question(name, queries[name].text, "", meta=meta))
    documents = [Document(name, page.title or "", page.text) for name, page in pages.items()]
    return Dataset(folder.name, tuple(questions), tuple(documents), meta={"setting": "own"})


def _texts(path: Path) -> dict[str, _Text]:
    return {text.id: text for text in each_record(path, read_jsonl(path), _Text)}


def _judgements(
    path: Path, queries: Collection[str], documents: Collection[str]
) -> list[_Judgement]:
    """Read the judgements of a split, each of a query and a document that are there."""
    read = Table.of(path).records(_Judgement, lambda row: (row.query, row.document))
    if not read:
        raise DataError(
            f"{path} holds no judgement below its first line",
            "a header line (query-id, corpus-id, score), then a judgement a line",
            "add the header line, or check that the file was written completely",
        )
    for judgement in read:
        missing = judgement.document
        if judgement.query not in queries:
            missing = judgement.query
        elif judgement.document in documents:
            continue
        raise DataError(
            f"{path}: {missing!r} is not in the folder",
            "ids of queries and of documents of the folder",
            "correct it",
        )
    return read


def judgements(data: Dataset) -> dict[str, dict[str, int]]:
    """Return question id -> relevant document -> gain, of the questions that have any.

    They are a question's ``meta["relevant"]``, else the documents of its evidence
    (``meta["doc_ids"]``), else those in which one of its references occurs, compared as the IR
    score compares them (`ragbench.text.layout.comparable`).
    """
    judged: dict[str, dict[str, int]] = {}
    unjudged = []
    for question in data.questions:
        meta = question.meta
        gains = read_mapping(meta.get("relevant") or meta.get("doc_ids", ()))
        if not isinstance(gains, Mapping):
            gains = read_ids(gains)
            gains = dict.fromkeys(gains, 1)
        judged[question.id] = {as_id(name): gain for name, gain in gains.items()}
        if "relevant" not in meta and "doc_ids" not in meta:
            unjudged.append(question)
    for name, gains in _documents_of_references(unjudged, data.documents).items():
        judged[name] |= gains
    return {name: gains for name, gains in judged.items() if gains}


def _documents_of_references(
    questions: Sequence[Question], documents: Sequence[Document]
) -> dict[str, dict[str, int]]:
    """Return, of each question, the documents in which one of its references occurs."""
    references = [text for question in questions for text in question.references]
    texts = [document.text for document in documents]
    places_of = dict(zip(references, holders(references, texts), strict=True))
    judged: dict[str, dict[str, int]] = {}
    for question in questions:
        gains = judged.setdefault(question.id, {})
        for text in question.references:
            for place in places_of[text]:
                gains[documents[place].id] = 1
    return judged


def write_trec_run(
    results: Mapping[str, Sequence[Hit | str]], path: str | Path, tag: str = "ragbench"
) -> Path:
    """Write hits, or ids of documents, by question as a run; return the path.

    Of several chunks of one document the first is written. Scores count down, so that trec_eval
    keeps the order. A blank in an id is written as %20.
    """
    lines = []
    for query, hits in results.items():
        names = [hit.chunk.doc_id if isinstance(hit, Hit) else hit for hit in hits]
        documents = list(dict.fromkeys(names))
        for rank, name in enumerate(documents, 1):
            score = len(documents) - rank + 1
            cells = (query, "Q0", name, rank, score, tag)
            lines.append(" ".join(map(_trec_cell, cells)))
    path = Path(path).expanduser()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)
    return path


def _trec_cell(value: Any) -> str:
    written = as_id(value).replace(" ", "%20")  # blanks divide the cells
    if len(written.split()) != 1:
        raise DataError(
            f"the id {value!r}", "an id without tabs and line breaks, not empty", "rename it"
        )
    return written
