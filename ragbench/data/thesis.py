"""The thesis's own results (El Yagouby 2024), as its author published them.

The README of the author's repository links a folder with all grades of GPT-4o (``LLM_scores.json``)
and all IR scores (``ir_scores/scores_bm25.json`` and so on), and a data set with the pages
(``corpus_100k.json``) and chunks (``corpus_chunks.json``). Lay them into ``RAGBENCH_DATA/thesis``.
The scores are files of hundreds of megabytes, read in pieces.

A row of scores has neither an id nor a question: rows of two files belong together by their facts,
the supporting sentences. Grades have no facts: they stand in the order of the scores of BM25, as
the author's notebook pairs them.
"""

from __future__ import annotations

import gzip
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
from pydantic import Field, RootModel

from ragbench.data.files import as_record, find_file, shared_file
from ragbench.data.hotpotqa import Paragraphs
from ragbench.data.tables import Table
from ragbench.errors import DataError, NotHereError
from ragbench.paths import packaged_data
from ragbench.records import Chunk, Document

# Row of Table 3.3 -> its name in the files.
_NAME_IN_FILES: Mapping[str, str] = {
    "LLM only": "llm_only",
    "BM25": "bm25",
    "SIM": "sim",
    "MMR": "mmr",
    "MLQ": "mlq",
    "REO": "reo",
}
LEVELS = range(100, 1001, 100)  # N of the published table
_DO = (
    "lay the folder that the README of github.com/amine-elyagouby/RAG-Evaluation-Framework links "
    "into RAGBENCH_DATA/thesis, or pass it"
)


def _find(folder: str | Path | None, *names: str) -> Path:
    """Return the first of the files; NotHereError where none of them is."""
    place = shared_file(folder, "thesis", name="The folder of the thesis's results", do=_DO)
    path = find_file(place, *names)
    if path is None:
        raise NotHereError(f"{names[0]} is not in {place}", f"the author's {names[0]}", _DO)
    return path


def load_thesis_grades(folder: str | Path | None = None) -> pd.DataFrame:
    """Load the grades 1 to 5 that GPT-4o gave the answers of the thesis's six systems.

    Parameters
    ----------
    folder : the author's; default ``RAGBENCH_DATA/thesis``. The file may also be called
        ``evaluation_scores/llm_scores.json``.

    Returns
    -------
    DataFrame, a row per question in the file's order, a column per row of Table 3.3.
    NotHereError without the file.
    """
    path = _find(folder, "LLM_scores.json")
    return pd.DataFrame(Table.of(path).records(_grades, None))


class _Grades(RootModel[dict[str, Annotated[int, Field(ge=1, le=5)]]]):
    """Grades by system."""


def _grades(row: Mapping[str, Any], where: str) -> dict[str, int]:
    """Return a row's grades by system; each is there and 1 to 5."""
    grades = {system: row[name] for system, name in _NAME_IN_FILES.items()}
    return as_record(_Grades, grades, where).root


def load_thesis_scores(retriever: str, folder: str | Path | None = None) -> pd.DataFrame:
    """Load the IR scores of one of the thesis's five retrievers.

    Parameters
    ----------
    retriever : "BM25", "SIM", "MMR", "MLQ" or "REO".
    folder : the author's; default ``RAGBENCH_DATA/thesis``.

    Returns
    -------
    DataFrame, a row per question in the file's order: ``facts`` (a tuple of texts); a column for
    each N of `LEVELS`, None where the retrieved text ends before it; and ``last``, the last of
    these, which Figures 3.1 and 3.2 use. Scores are `Decimal`, as written: their means round half
    to even, as the thesis's do (`mean_thesis_scores`). NotHereError without the file.
    """
    path = _find(folder, f"scores_{_NAME_IN_FILES[retriever]}.json")
    scores = []
    for levels in _items(path, "all_scores.item"):
        means = [Decimal(level[0]) for level in levels[: len(LEVELS)]]
        row = dict(zip(LEVELS, means, strict=False))
        scores.append(row | {"last": means[-1] if means else None})
    facts = [tuple(texts) for texts in _items(path, "all_P.item")]
    if not scores or len(facts) != len(scores):
        raise DataError(
            f"{path} has {len(scores)} rows of scores and {len(facts)} of facts",
            "as many of both, and at least one",
            "check that it was written completely",
        )
    frame = pd.DataFrame(scores, columns=[*LEVELS, "last"], dtype=object)
    frame = frame.where(frame.notna(), None)
    frame.insert(0, "facts", pd.Series(facts, dtype=object))
    return frame


def mean_thesis_scores(scores: pd.DataFrame) -> pd.DataFrame:
    """Return Table 3.1's cells of one retriever: N, mean (rounded to two digits, half to even) and
    n, the questions whose own retrieved text reaches N.
    """
    cells = []
    for level in LEVELS:
        reached = scores[level].dropna()
        if len(reached):
            mean = float(round(sum(reached) / len(reached), 2))
            cells.append({"N": level, "mean": mean, "n": len(reached)})
    return pd.DataFrame(cells, columns=["N", "mean", "n"])


def align_by_facts(scores: pd.DataFrame, facts: Iterable[tuple[str, ...]]) -> pd.DataFrame:
    """Return rows of scores in the order of other rows, of which the facts are given.

    White space around facts and their order do not count. Several rows with the same facts go to
    such rows one after the other; a row that has no partner is missing (None).
    """
    places = defaultdict(list)
    for place, own in enumerate(scores["facts"]):
        places[_key(own)].append(place)
    wanted = []
    for own in facts:
        same = places[_key(own)]
        wanted.append(same.pop(0) if same else -1)
    aligned = scores.reset_index(drop=True).reindex(wanted)
    return aligned.where(aligned.notna(), None).reset_index(drop=True)


def _key(facts: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(" ".join(fact.split()) for fact in facts))


def load_thesis_documents(folder: str | Path | None = None) -> tuple[Document, ...]:
    """Load the 100,000 pages of the thesis's corpus (``corpus_100k.json``: title and text).

    An id is the title, with a number from the second page of that title on.
    """
    paragraphs = Paragraphs()
    for page in _items(_find(folder, "corpus_100k.json"), "item"):
        paragraphs.add(page["title"], page["text"])
    return paragraphs.documents


def load_thesis_chunks(folder: str | Path | None = None) -> list[Chunk]:
    """Load the thesis's chunks (``corpus_chunks.json``: pairs of title and text, which begins with
    a blank).
    """
    chunks = []
    for title, text in _items(_find(folder, "corpus_chunks.json"), "item"):
        chunks.append(Chunk(f"c{len(chunks):06}", text, title, title))
    return chunks


def load_figure_3_1() -> pd.DataFrame:
    """Load the readings of Figure 3.1, which come with ragbench: grades ("5", "2,3,4", "1"), rank
    and ir_score of the thesis's own 7,400 BM25 answers.

    One pixel is about seven answers and .003 in score: shares and agreements can be computed from
    them, single values are not the author's.
    """
    path = packaged_data("thesis", "figure_3.1_readings.csv.gz")
    return pd.read_csv(path, dtype={"grades": str})


def _items(path: Path, prefix: str) -> Iterator[Any]:
    """Yield the values of a JSON file that stand at a place, without reading the others whole."""
    import ijson

    try:
        with path.open("rb") as packed:
            is_packed = packed.peek(2)[:2] == b"\x1f\x8b"
            yield from ijson.items(gzip.GzipFile(fileobj=packed) if is_packed else packed, prefix)
    except (ijson.JSONError, EOFError, OSError) as error:
        raise DataError(
            f"{path} cannot be read: {error}", "the author's file", "download it again"
        ) from None
