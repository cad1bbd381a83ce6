"""Formats of retrieval research: BEIR folders, TREC runs and relevance judgements, data sets of ir_datasets.

A question's judgements are ``meta["relevant"]``: document id -> gain. `trec_rows` makes rows of a run and judgements,
for `ragbench.score` and its ranking metrics.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
from pydantic import Field

from ragbench.data.files import Filled, Plain, Row, closest, read_records, read_text
from ragbench.errors import ConfigError, DataError
from ragbench.records import Chunk, Dataset, Document, Hit, Question

Judgements = Mapping[str, Mapping[str, int]]


class _Page(Row):
    id: Annotated[Filled, Field(alias="_id")]
    title: Any = None
    text: Plain


class _Query(Row):
    id: Annotated[Filled, Field(alias="_id")]
    text: Filled


def load_beir(folder: str | Path, split: str = "test") -> Dataset:
    """Load a BEIR folder: ``corpus.jsonl``, ``queries.jsonl``, ``qrels/SPLIT.tsv``.

    Questions are those that the split judges, without a true answer. Documents are all of the corpus. DataError with
    file and line also for a judgement of a query or document that is not there.
    """
    folder = Path(folder).expanduser()
    path = folder / "qrels" / f"{split}.tsv"
    if not path.is_file():
        there = ", ".join(closest(path.parent, path.name)) if path.parent.is_dir() else "no folder qrels"
        raise DataError(f"there is no file {path} (there is {there})", "a split's judgements", "name another split")
    lines = [(place, cells) for place, cells in _lines(path, 3, "\t") if cells[0] != "query-id"]
    judged = _judged((place, (query, document, gain)) for place, (query, document, gain) in lines)
    documents = read_records(
        folder / "corpus.jsonl", _Page, lambda page, _: Document(page.id, str(page.title or ""), page.text)
    )
    queries = {query.id: query.text for query in read_records(folder / "queries.jsonl", _Query)}
    known = {document.id for document in documents}
    for place, (query, document, _) in lines:
        if query not in queries or document not in known:
            missing = f"query {query!r}" if query not in queries else f"document {document!r}"
            raise DataError(f"{place}: {missing} is not there", "an id of queries.jsonl and corpus.jsonl", "mend it")
    return _dataset(folder.name, {query: queries[query] for query in judged}, judged, documents)


def write_beir(data: Dataset, folder: str | Path, split: str = "test") -> Path:
    """Write a data set as a BEIR folder, with `judgements` as relevant documents, and return the folder."""
    folder = Path(folder).expanduser()
    corpus = [{"_id": d.id, "title": d.title, "text": d.text} for d in data.documents]
    queries = [{"_id": q.id, "text": q.text} for q in data.questions]
    for name, rows in (("corpus", corpus), ("queries", queries)):
        _write(folder / f"{name}.jsonl", (json.dumps(row, ensure_ascii=False) for row in rows))
    judged = [(query, name, gain) for query, gains in judgements(data).items() for name, gain in gains.items()]
    if tabbed := [name for query, document, _ in judged for name in (query, document) if "\t" in name]:
        raise DataError(f"the id {tabbed[0]!r}", "an id without tabs: they end a cell here", "rename it")
    lines = ["query-id\tcorpus-id\tscore", *(f"{query}\t{document}\t{gain}" for query, document, gain in judged)]
    _write(folder / "qrels" / f"{split}.tsv", lines)
    return folder


def judgements(data: Dataset) -> dict[str, dict[str, int]]:
    """Return question id -> relevant document -> gain, of the questions that have any.

    They are a question's ``meta["relevant"]``, else the documents of its evidence (``meta["doc_ids"]``), else those in
    which one of its references stands.
    """

    def gains(question: Question) -> dict[str, int]:
        named = question.meta.get("relevant") or question.meta.get("doc_ids")
        if named is None:
            named = [d.id for d in data.documents if any(part in d.text for part in question.references)]
        return dict(named) if isinstance(named, Mapping) else dict.fromkeys(named, 1)

    judged = {question.id: gains(question) for question in data.questions}
    return {name: gained for name, gained in judged.items() if gained}


def read_trec_qrels(path: str | Path) -> dict[str, dict[str, int]]:
    """Read judgements, one ``query 0 document gain`` a line: query -> document -> gain."""
    return _judged((place, (query, document, gain)) for place, (query, _, document, gain) in _lines(path, 4))


def write_trec_qrels(judged: Judgements, path: str | Path) -> Path:
    """Write judgements, one ``query 0 document gain`` a line; return the path."""
    return _write(path, [f"{q} 0 {_word(d)} {gain}" for q, gains in judged.items() for d, gain in gains.items()])


def read_trec_run(path: str | Path) -> tuple[str, dict[str, dict[str, float]]]:
    """Read a run, one ``query Q0 document rank score tag`` a line.

    Returns
    -------
    The tag, and query -> document -> score, in trec_eval's order: by score, ties by document id from the last one; the
    rank that is written does not count.
    """
    rankings: dict[str, dict[str, float]] = {}
    tag = ""
    for place, (query, _, document, _, score, tag) in _lines(path, 6):  # noqa: B007
        if document in rankings.setdefault(query, {}):
            raise DataError(f"{place}: document {document!r} is in the ranking of {query!r} already", "each once")
        try:
            rankings[query][document] = float(score)
        except ValueError:
            raise DataError(f"{place}: the score is {score!r}", "a number", "mend that line") from None
    ordered = {
        query: dict(sorted(scores.items(), key=lambda item: (item[1], item[0]), reverse=True))
        for query, scores in rankings.items()
    }
    return tag, ordered


def write_trec_run(results: Mapping[str, Sequence[Hit | Chunk | str]], path: str | Path, tag: str = "ragbench") -> Path:
    """Write hits by question as a run; return the path.

    Of several chunks of one document the first is written. Scores are the hits' own where these fall with the rank, and
    else count down, so that trec_eval keeps the order.
    """
    lines = []
    for query, hits in results.items():
        first: dict[str, float] = {}
        for hit in hits:
            chunk = hit.chunk if isinstance(hit, Hit) else hit
            name = chunk.doc_id if isinstance(chunk, Chunk) else str(chunk)
            first.setdefault(name, hit.score if isinstance(hit, Hit) else 0.0)
        scores = list(first.values())
        if any(after >= before for before, after in itertools.pairwise(scores)):
            scores = [float(len(first) - rank) for rank in range(len(first))]
        ranked = enumerate(zip(first, scores, strict=True), 1)
        lines += [f"{query} Q0 {_word(name)} {rank} {score!r} {_word(tag)}" for rank, (name, score) in ranked]
    return _write(path, lines)


def trec_rows(run: str | Path, qrels: str | Path | Judgements) -> pd.DataFrame:
    """Make the rows that `ragbench.score` takes for ``["ranking"]`` of a run and its judgements.

    Returns
    -------
    DataFrame, a row per judged query: question_id, system (the run's tag), retrieved, relevant. A query that the run
    lacks retrieved nothing, as in trec_eval -c.
    """
    tag, rankings = read_trec_run(run)
    judged = qrels if isinstance(qrels, Mapping) else read_trec_qrels(qrels)
    retrieved = [list(rankings.get(query, ())) for query in judged]
    relevant = [dict(gains) for gains in judged.values()]
    return pd.DataFrame({"question_id": list(judged), "system": tag, "retrieved": retrieved, "relevant": relevant})


def load_ir_dataset(name: str) -> Dataset:
    """Load a data set by its id of the package ir_datasets, such as ``"beir/scifact/test"``; it downloads it."""
    try:
        import ir_datasets
    except ImportError:
        raise ConfigError(f"{name!r} without ir_datasets", "that package", "pip install ir_datasets") from None
    try:
        source = ir_datasets.load(name)
    except KeyError:
        raise ConfigError(f"unknown id {name!r} of ir_datasets", "an id of ir-datasets.com", "look it up") from None
    judged: dict[str, dict[str, int]] = {}
    for judgement in source.qrels_iter():
        judged.setdefault(judgement.query_id, {})[judgement.doc_id] = int(judgement.relevance)
    documents = [Document(d.doc_id, str(getattr(d, "title", "")), d.default_text()) for d in source.docs_iter()]
    queries = {query.query_id: query.default_text() for query in source.queries_iter() if query.query_id in judged}
    return _dataset(name.replace("/", "-"), queries, judged, documents)


def _dataset(name: str, queries: Mapping[str, str], judged: Judgements, documents: Iterable[Document]) -> Dataset:
    questions = []
    for query, text in queries.items():
        relevant = tuple(document for document, gain in judged[query].items() if gain > 0)
        questions.append(Question(query, text, "", meta={"relevant": dict(judged[query]), "doc_ids": relevant}))
    return Dataset(name, tuple(questions), tuple(documents), meta={"setting": "own"})


def _lines(path: str | Path, count: int, separator: str | None = None) -> Iterator[tuple[str, list[str]]]:
    """Yield ("FILE, line 3", cells) of a file of cells between blanks, or between tabs."""
    for number, line in enumerate(read_text(path).splitlines(), 1):
        cells = line.split(separator)
        if line.strip() and len(cells) != count:
            between = "tabs" if separator else "blanks"
            raise DataError(f"{path}, line {number} has {len(cells)} cells", f"{count}, {between} between", "mend it")
        if line.strip():
            yield f"{path}, line {number}", cells


def _judged(lines: Iterable[tuple[str, tuple[str, str, str]]]) -> dict[str, dict[str, int]]:
    judged: dict[str, dict[str, int]] = {}
    for place, (query, document, gain) in lines:
        if not gain.lstrip("-").isdigit():
            raise DataError(f"{place}: the gain is {gain!r}", "a whole number", "mend that line")
        if document in judged.setdefault(query, {}):
            raise DataError(f"{place}: document {document!r} is judged twice for {query!r}", "once", "drop one")
        # Below 0 is "not relevant" too, in some collections of TREC.
        judged[query][document] = max(int(gain), 0)
    return judged


def _word(name: str) -> str:
    if len(name.split()) != 1:
        raise DataError(f"the id {name!r}", "an id without blanks: they end a cell here", "rename it")
    return name


def _write(path: str | Path, lines: Iterable[str]) -> Path:
    path = Path(path).expanduser()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path
