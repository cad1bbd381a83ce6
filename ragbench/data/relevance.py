"""Which documents are relevant: BEIR folders, judgements, TREC runs.

A question's judgements are ``meta["relevant"]``: document id -> gain.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from ragbench.data.files import FileRecord, Filled, as_record, each_record, read_jsonl
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
    corpus. DataError also for a judgement of a query or document that is not there.

    >>> from pathlib import Path
    >>> Path("qrels").mkdir()
    >>> _ = Path("corpus.jsonl").write_text('{"_id": "d1", "title": "", "text": "Ada built it."}')
    >>> _ = Path("queries.jsonl").write_text('{"_id": "q1", "text": "Who built the mill?"}')
    >>> _ = Path("qrels/test.tsv").write_text("query-id\\tcorpus-id\\tscore\\nq1\\td1\\t1\\n")
    >>> len(rb.data.load_beir(".").questions)
    1
    """
    folder = Path(folder).expanduser()
    pages = _texts(folder / "corpus.jsonl")
    queries = _texts(folder / "queries.jsonl")
    judged: dict[str, dict[str, int]] = defaultdict(dict)
    for judgement in _judgements(folder / "qrels" / f"{split}.tsv", queries, pages):
        judged[judgement.query][judgement.document] = judgement.gain
    questions = []
    for name, gains in judged.items():
        meta = {"relevant": gains, "doc_ids": tuple(page for page in gains if gains[page] > 0)}
        questions.append(Question(name, queries[name].text, "", meta=meta))
    documents = [Document(name, page.title or "", page.text) for name, page in pages.items()]
    return Dataset(folder.name, tuple(questions), tuple(documents), meta={"setting": "own"})


def _texts(path: Path) -> dict[str, _Text]:
    return {
        text.id: text for text in each_record(path, read_jsonl(path), partial(as_record, _Text))
    }


def _judgements(
    path: Path, queries: Collection[str], documents: Collection[str]
) -> list[_Judgement]:
    """Read the judgements of a split, each of a query and a document that are there."""
    read = Table.of(path).records(partial(as_record, _Judgement), attrgetter("query", "document"))
    missing = {row.query for row in read} - {*queries}
    missing |= {row.document for row in read} - {*documents}
    if missing:
        raise DataError(
            f"{path}: {min(missing)!r} is not in the folder",
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
    judged = {}
    unjudged = []
    for question in data.questions:
        if "relevant" not in question.meta and "doc_ids" not in question.meta:
            unjudged.append(question)
        judged[question.id] = _given_gains(question.meta)
    references = [text for question in unjudged for text in question.references]
    places = holders(references, [document.text for document in data.documents])
    for question in unjudged:
        for text in question.references:
            found = [data.documents[place].id for place in places[text]]
            judged[question.id] |= dict.fromkeys(found, 1)
    return {name: gains for name, gains in judged.items() if gains}


def _given_gains(meta: Mapping[str, Any]) -> dict[str, int]:
    gains = read_mapping(meta.get("relevant") or meta.get("doc_ids", ()))
    if not isinstance(gains, Mapping):
        gains = dict.fromkeys(read_ids(gains), 1)
    return {as_id(name): gain for name, gain in gains.items()}


def write_trec_run(
    results: Mapping[str, Sequence[Hit | str]], path: str | Path, tag: str = "ragbench"
) -> Path:
    """Write hits, or ids of documents, by question as a run; return the path.

    Of several chunks of one document the first is written. Scores count down, so that trec_eval
    keeps the order. A blank in an id is written as %20, since blanks divide the cells.
    """
    lines = []
    for query, hits in results.items():
        names = [hit.chunk.doc_id if isinstance(hit, Hit) else hit for hit in hits]
        documents = list(dict.fromkeys(names))
        for rank, name in enumerate(documents, 1):
            cells = (query, "Q0", name, rank, len(documents) - rank + 1, tag)
            written = ["%20".join(as_id(cell).split()) for cell in cells]
            lines.append(" ".join(written) + "\n")
    path = Path(path).expanduser()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(lines), encoding="utf-8", newline="\n")
    return path
