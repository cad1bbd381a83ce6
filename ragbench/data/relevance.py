"""Which documents are relevant: BEIR folders, TREC runs and relevance judgements.

A question's judgements are ``meta["relevant"]``: document id -> gain. `trec_rows` makes rows of a run and judgements,
for `ragbench.score` and its ranking metrics.
"""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
from pydantic import Field

from ragbench.data.files import Filled, Plain, Row, closest, read_records, read_text
from ragbench.errors import DataError
from ragbench.records import Chunk, Dataset, Document, Hit, Question, as_id


class _Text(Row):
    id: Annotated[Filled, Field(alias="_id")]
    title: Any = None
    text: Plain


def load_beir(folder: str | Path, split: str = "test") -> Dataset:
    """Load a BEIR folder: ``corpus.jsonl``, ``queries.jsonl``, ``qrels/SPLIT.tsv``.

    Questions are those that the split judges, without a true answer. Documents are all of the corpus. DataError with
    file and line also for a judgement of a query or document that is not there.
    """
    folder = Path(folder).expanduser()
    path = folder / "qrels" / f"{split}.tsv"
    if not path.is_file():
        found = ", ".join(closest(path.parent, path.name)) if path.parent.is_dir() else "no folder qrels"
        raise DataError(f"there is no file {path} (there is {found})", "a split's judgements", "name another split")
    judged = _judgements(path, ("query", "document", "gain"), "\t")
    pages = read_records(folder / "corpus.jsonl", _Text)
    queries = {query.id: query.text for query in read_records(folder / "queries.jsonl", _Text)}
    for column, known in (("query", queries), ("document", {page.id for page in pages})):
        absent = f"{column} {{!r}} is not there"
        _check(path, ~judged[column].isin(known), judged[column], absent, "an id of the folder")
    questions = []
    for query, gains in _by_query(judged).items():
        relevant = tuple(document for document, gain in gains.items() if gain > 0)
        questions.append(Question(query, queries[query], "", meta={"relevant": gains, "doc_ids": relevant}))
    documents = tuple(Document(page.id, str(page.title or ""), page.text) for page in pages)
    return Dataset(folder.name, tuple(questions), documents, meta={"setting": "own"})


def judgements(data: Dataset) -> dict[str, dict[str, int]]:
    """Return question id -> relevant document -> gain, of the questions that have any.

    They are a question's ``meta["relevant"]``, else the documents of its evidence (``meta["doc_ids"]``), else those in
    which one of its references occurs.
    """

    def gains(question: Question) -> dict[str, int]:
        named = question.meta.get("relevant") or question.meta.get("doc_ids")
        if named is None:
            named = [d.id for d in data.documents if any(part in d.text for part in question.references)]
        gained = named if isinstance(named, Mapping) else dict.fromkeys(named, 1)
        return {as_id(name): gain for name, gain in gained.items()}

    judged = {question.id: gains(question) for question in data.questions}
    return {name: gained for name, gained in judged.items() if gained}


def read_trec_qrels(path: str | Path) -> dict[str, dict[str, int]]:
    """Read judgements, one ``query 0 document gain`` a line: query -> document -> gain."""
    return _by_query(_judgements(path, ("query", "zero", "document", "gain"), r"\s+"))


def trec_rows(run: str | Path, qrels: str | Path | Mapping[str, Mapping[str, int]]) -> pd.DataFrame:
    """Make the rows that `ragbench.score` takes for ``["ranking"]`` of a run and its judgements.

    Parameters
    ----------
    run : a file of ``query Q0 document rank score tag`` lines. As in trec_eval the score gives the order, ties by
        document id from the last one, and the written rank does not count.

    Returns
    -------
    DataFrame, a row per judged query: question_id, system (the run's tag), retrieved, relevant. A query that the run
    does not have retrieved nothing, as in trec_eval -c.
    """
    hits = _read(run, ("query", "Q0", "document", "rank", "score", "tag"), "score", r"\s+")
    hits = hits.sort_values(["score", "document"], ascending=False)
    found = hits.groupby("query")["document"].agg(list)
    judged = qrels if isinstance(qrels, Mapping) else read_trec_qrels(qrels)
    tag = hits["tag"].iloc[0]
    rows = [(query, tag, found.get(query, []), dict(gains)) for query, gains in judged.items()]
    return pd.DataFrame(rows, columns=["question_id", "system", "retrieved", "relevant"])


def write_trec_run(results: Mapping[str, Sequence[Hit | Chunk | str]], path: str | Path, tag: str = "ragbench") -> Path:
    """Write hits by question as a run; return the path.

    Of several chunks of one document the first is written. Scores are the hits' own if they fall with the rank; else
    they count down, so that trec_eval keeps the order.
    """
    lines = []
    for query, hits in results.items():
        first: dict[str, float] = {}
        for hit in hits:
            chunk, score = (hit.chunk, hit.score) if isinstance(hit, Hit) else (hit, 0.0)
            first.setdefault(chunk.doc_id if isinstance(chunk, Chunk) else as_id(chunk), score)
        if blank := [name for name in (*first, tag) if len(name.split()) != 1]:
            raise DataError(f"the id {blank[0]!r}", "an id without blanks, which separate cells here", "rename it")
        if any(after >= before for before, after in itertools.pairwise(first.values())):
            first = {name: float(len(first) - place) for place, name in enumerate(first)}
        lines += [f"{query} Q0 {name} {rank} {first[name]!r} {tag}\n" for rank, name in enumerate(first, 1)]
    path = Path(path).expanduser()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(lines), encoding="utf-8")
    return path


def _judgements(path: str | Path, columns: Sequence[str], separator: str) -> pd.DataFrame:
    judged = _read(path, columns, "gain", separator)
    _check(path, judged["gain"] % 1 != 0, judged["gain"], "the gain is {!r}", "a whole number")
    # Below 0 is "not relevant" too, in some collections of TREC.
    return judged.assign(gain=judged["gain"].clip(lower=0).astype(int))


def _by_query(judged: pd.DataFrame) -> dict[str, dict[str, int]]:
    return {
        query: dict(zip(group["document"], group["gain"].tolist(), strict=True))
        for query, group in judged.groupby("query", sort=False)
    }


def _read(path: str | Path, columns: Sequence[str], number: str, separator: str) -> pd.DataFrame:
    """Read cells of text and one of numbers; each query and document occur once together."""
    settings = {"dtype": str, "keep_default_na": False, "quoting": csv.QUOTE_NONE, "skip_blank_lines": False}
    try:
        frame = pd.read_csv(io.StringIO(read_text(path)), sep=separator, names=[*columns, "more"], **settings)
    except pd.errors.ParserError as error:
        raise DataError(f"{path}: {error}", f"{len(columns)} cells a line", "mend that line") from None
    frame = frame.fillna("")
    frame = frame[(frame["query"] != "") & (frame["query"] != "query-id")]
    filled = (frame != "").sum(axis=1)
    _check(path, filled != len(columns), filled, "{} cells", f"{len(columns)}: {', '.join(columns)}")
    numbers = pd.to_numeric(frame[number], errors="coerce")
    _check(path, numbers.isna(), frame[number], f"the {number} is {{!r}}", "a number")
    twice = frame.duplicated(["query", "document"])
    _check(path, twice, frame["document"], "document {!r} is there twice for its query", "each once")
    return frame.assign(**{number: numbers})


def _check(path: str | Path, wrong: pd.Series, values: pd.Series, what: str, expected: str) -> None:
    """Raise DataError with the first line that is wrong; the index counts lines from 0."""
    if wrong.any():
        line = wrong.idxmax()
        value = getattr(values[line], "item", lambda: values[line])()
        raise DataError(f"{path}, line {line + 1}: {what.format(value)}", expected, "mend that line")


def document_clusters(dataset: Dataset) -> dict[str, int]:
    """Number groups of questions that share relevant documents, directly or through others: question id -> group.

    A question without a relevant document (see `judgements`) is a group of its own.
    """
    judged = judgements(dataset)
    return linked_questions({question.id: judged.get(question.id, ()) for question in dataset.questions})


def linked_questions(documents: Mapping[str, Iterable[Hashable]]) -> dict[str, int]:
    """Number groups of questions by what names their documents, as `document_clusters` does."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    places = {name: i for i, name in enumerate(dict.fromkeys(d for own in documents.values() for d in own))}
    edges = [(i, len(documents) + places[d]) for i, own in enumerate(documents.values()) for d in own]
    a, b = np.array(edges, int).reshape(-1, 2).T
    graph = coo_array((np.ones(len(edges)), (a, b)), shape=(len(documents) + len(places),) * 2)
    groups = connected_components(graph, directed=False)[1]
    return dict(zip(documents, groups.tolist(), strict=False))  # the documents' own groups follow
