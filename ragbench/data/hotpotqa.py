"""HotpotQA, distractor setting: the thesis's questions (sections 2.1, 2.5.1).

The tables of this project are on 1,886 of the 7,405 questions (``data/hotpotqa/subset.json``):
everybody gets the same ones, from the official file, which `fetch_hotpotqa` downloads, or from the
subset in ``RAGBENCH_DATA``. Documents are the distinct paragraphs of all contexts, title and
sentences joined as they are. The thesis put 100,000 Wikipedia pages beside them; notebook 10 draws
them from a dump.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field, StrictInt

from ragbench.data.fetch import download
from ragbench.data.files import FileRecord, Filled, as_record, read_json, read_text
from ragbench.data.tables import Table
from ragbench.errors import DataError, NotHereError
from ragbench.paths import cache_dir, packaged_data, shared_data
from ragbench.records import Dataset, Document, Question

OFFICIAL_NAME = "hotpot_dev_distractor_v1.json"
_URL = f"http://curtis.ml.cmu.edu/datasets/hotpot/{OFFICIAL_NAME}"
# Of the published file, 46,320,117 bytes: with it, it does not matter that its server speaks plain
# http only.
OFFICIAL_SHA256 = "4e9ecb5c8d3b719f624d66b60f8d56bf227f03914f5f0753d6fa1b359d7104ea"
_SUBSET = ("hotpotqa", "hotpot_dev_distractor_subset.json.gz")


def find_hotpotqa() -> Path | None:
    """Return the file `load_hotpotqa` would read: official before subset, or None when there is
    neither.
    """
    official = shared_data("hotpotqa", OFFICIAL_NAME)
    if official:
        return official
    fetched = cache_dir("hotpotqa") / OFFICIAL_NAME
    return fetched if fetched.is_file() else shared_data(*_SUBSET)


def load_hotpotqa(path: str | Path | None = None, limit: int | None = None) -> Dataset:
    """Load HotpotQA (distractor) questions and the paragraphs of their contexts.

    Parameters
    ----------
    path : a file of the official JSON's shape, or of the Hub's, also 2WikiMultihopQA's (.json,
        .jsonl or .parquet), of which all is read. Default: the 1,886 questions of the subset, from
        the official file in ``RAGBENCH_DATA`` or in the cache, or from the subset in
        ``RAGBENCH_DATA``.
    limit : keep the first so many questions, and only their paragraphs.

    Returns
    -------
    Dataset; ``references`` of a question are its supporting sentences, ``meta["supporting_facts"]``
    their (title, index), ``meta["doc_ids"]`` their documents. In the official file, and only there,
    a supporting fact that points nowhere excludes its row (one is known, hence the thesis's 7,404
    of 7,405).

    >>> rb.data.load_hotpotqa(limit=10)
    Dataset('hotpotqa', 10 questions, 100 documents)
    """
    file = Path(path) if path else find_hotpotqa()
    if file is None:
        raise NotHereError(
            "HotpotQA's dev set is not on this machine",
            f"{OFFICIAL_NAME} or its subset in RAGBENCH_DATA/hotpotqa, or in the cache",
            "run `ragbench data fetch hotpotqa` (47 MB), or use load_minihop()",
        )
    is_official = hashlib.sha256(read_text(file).encode()).hexdigest() == OFFICIAL_SHA256
    table = Table.of(file)
    if path is None and is_official:
        table = _of_subset(table)
    table = table._replace(frame=table.frame[:limit], places=table.places[:limit])
    setting = file.name
    if path is None or file.name == _SUBSET[-1]:
        setting = "subset"
    elif is_official:
        setting = "official"
    read = _Reader(is_official)
    records = table.records(read.question, lambda question: question and question.id)
    questions = tuple(filter(None, records))
    meta = {"file": file.name, "setting": setting}
    return Dataset("hotpotqa", questions, read.paragraphs.documents, tuple(read.excluded), meta)


def _official(row: Any) -> Any:
    """Return a row of the Hub, whose pairs are two lists, in the official shape."""
    if not isinstance(row, Mapping) or "id" not in row:
        return row
    pairs = dict(row, _id=row["id"])
    for field, names in {
        "supporting_facts": ("title", "sent_id"),
        "context": ("title", "sentences"),
    }.items():
        lists = row.get(field)
        if isinstance(lists, Mapping) and lists.keys() >= set(names):
            pairs[field] = list(zip(*(lists[name] for name in names), strict=True))
    return pairs


class _Reader:
    """Questions from rows; of the official file, those with a fact that points nowhere are left
    out.
    """

    def __init__(self, is_official: bool) -> None:
        self._is_official = is_official
        self.paragraphs = Paragraphs()
        self.excluded: list[tuple[str, str]] = []

    def question(self, row: dict, where: str) -> Question | None:
        record = as_record(_Asked, _official(row), where)
        pages = {}
        for title, sentences in record.context:
            pages[title] = self.paragraphs.add(title, "".join(sentences), sentences)
        try:
            place = f"{where} ({record.id})"
            references, meta = supporting_sentences(record.supporting_facts, pages, place)
        except DataError as error:
            if not self._is_official:
                raise
            self.excluded.append((record.id, error.got))
            return None
        kind = (record.type, record.level)
        return Question(record.id, record.question, record.answer, references, *kind, meta)


def _of_subset(table: Table) -> Table:
    """Keep the subset's questions, each with the paragraphs that it has there (eleven have fewer
    than ten).
    """
    subset = read_json(packaged_data("hotpotqa", "subset.json"))
    kept = np.flatnonzero(table.frame["_id"].isin(subset["ids"]))
    frame = table.frame.iloc[kept]
    contexts = []
    for name, pages in zip(frame["_id"], frame["context"], strict=True):
        titles = subset["paragraphs"].get(name)
        contexts.append([page for page in pages if titles is None or page[0] in titles])
    places = [table.places[number] for number in kept]
    return table._replace(frame=frame.assign(context=contexts), places=places)


class _Asked(FileRecord):
    id: Annotated[Filled, Field(alias="_id")]
    question: Filled
    answer: Filled
    type: Filled
    level: str = ""  # 2WikiMultihopQA has none
    supporting_facts: Annotated[tuple[tuple[str, StrictInt], ...], Field(min_length=1)]
    context: Annotated[tuple[tuple[str, tuple[str, ...]], ...], Field(min_length=1)]


class Paragraphs:
    """The distinct (title, text) pairs, as documents. An id is the title, with a number from the
    second paragraph of that title on.
    """

    def __init__(self) -> None:
        self._documents: dict[tuple[str, str], Document] = {}
        self._ids: set[str] = set()

    @property
    def documents(self) -> tuple[Document, ...]:
        """All of them, in the order in which they came."""
        return tuple(self._documents.values())

    def add(self, title: str, text: str, sentences: Sequence[str] = ()) -> Document:
        """Return the document of a paragraph."""
        if (title, text) not in self._documents:
            name = title
            number = 1
            while name in self._ids:
                number += 1
                name = f"{title} #{number}"
            self._ids.add(name)
            self._documents[title, text] = Document(name, title, text, tuple(sentences))
        return self._documents[title, text]


def supporting_sentences(
    facts: Sequence[tuple[str, int]], pages: Mapping[str, Document], where: str
) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Return the sentences that supporting facts, (title, index from 0), point at, and the ``meta``
    of their question.

    DataError for a fact that points nowhere.
    """
    texts = []
    for title, index in facts:
        sentences: Sequence[str] = ()
        fault = f"{title!r} is no document's title, or that of several: then name its id"
        if title in pages:
            sentences = pages[title].sentences
            fault = f"that document has {len(sentences)} sentences"
        if not 0 <= index < len(sentences):
            raise DataError(
                f"{where}: supporting fact [{title!r}, {index}] points nowhere: {fault}",
                "the title of a document and the index of one of its sentences, counted from 0",
                "correct it; or pass documents with a list of 'sentences' as second argument",
            )
        texts.append(sentences[index].strip())
    doc_ids = tuple(dict.fromkeys(pages[title].id for title, _ in facts))
    return tuple(texts), {"supporting_facts": facts, "doc_ids": doc_ids}


def fetch_hotpotqa(url: str = _URL) -> Path:
    """Download the official dev set (distractor setting, 47 MB) to the cache; return its path.

    ``url`` may be that of a copy. DataError for a file with another sha256.
    """
    import pooch

    return download(
        url,
        OFFICIAL_SHA256,
        cache_dir("hotpotqa") / OFFICIAL_NAME,
        f"the official file, sha256:{OFFICIAL_SHA256}",
        "the file into RAGBENCH_DATA/hotpotqa",
        downloader=pooch.HTTPDownloader(progressbar=True, timeout=60),
    )
