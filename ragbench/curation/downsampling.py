"""A large corpus cut down to its annotated documents and what retrievers find (A.3)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ragbench.errors import ConfigError, DataError

if TYPE_CHECKING:
    import pandas as pd

    from ragbench.records import Document

# Retriever -> documents per question, as in appendix A.3.
BIOMEDICAL = {"bm25": 400}
SCIENCE = {"bm25": 200, "dense": 200}


@dataclass(frozen=True)
class Downsampled:
    """A smaller corpus.

    Attributes
    ----------
    kept : ids in the order of the corpus. kept_by : id -> who kept it ("annotated", names of retrievers).
    annotated : the annotated ids. size : documents before.
    """

    kept: tuple[str, ...]
    kept_by: Mapping[str, tuple[str, ...]]
    annotated: frozenset[str]
    size: int

    def __repr__(self) -> str:
        return f"Downsampled({len(self.kept)} of {self.size} documents)"

    def table(self) -> pd.DataFrame:
        """Return one row per source: documents kept, kept by it alone, and the share of annotated ones it has."""
        import pandas as pd

        sources = dict.fromkeys(name for by in self.kept_by.values() for name in by)
        rows = []
        for source in sources:
            own = {name for name, by in self.kept_by.items() if source in by}
            alone = sum(self.kept_by[name] == (source,) for name in own)
            share = len(own & self.annotated) / len(self.annotated) if self.annotated else float("nan")
            rows.append((source, len(own), alone, share))
        return pd.DataFrame(rows, columns=["source", "documents", "alone", "annotated"]).set_index("source")


def downsample(
    corpus: Sequence[Document],
    queries: Sequence[str],
    annotated: Sequence[Collection[str]],
    retrievers: Mapping[str, tuple[Any, int]],
) -> Downsampled:
    """Cut a corpus down to its annotated documents and what retrievers find.

    Parameters
    ----------
    corpus : documents with ids.
    queries : shape (n,). annotated : for each query the ids of its annotated documents.
    retrievers : name -> (retriever over whole documents, one chunk each; documents per query), e.g.
        ``{"bm25": (bm25, 200), "dense": (dense, 200)}``; see `BIOMEDICAL` and `SCIENCE` for the paper's numbers.

    Returns
    -------
    Downsampled; the same for any order of the queries.

    Raises
    ------
    DataError for an annotated or retrieved id that the corpus lacks, or lists of different length; ConfigError for a
    k below 1, the name "annotated", or a retriever that returns several chunks of one document.

    Source: RAGChecker, appendix A.3: BM25's top 400 per question for the biomedical corpus; the top 200 of BM25 and of
    a dense retriever (400 before duplicates are removed) for science.
    """
    ids = [document.id for document in corpus]
    if len(queries) != len(annotated) or isinstance(queries, str):
        got = "one string" if isinstance(queries, str) else f"{len(queries)} queries and {len(annotated)} annotations"
        raise DataError(got, "a list of queries, and annotated ids for each", "pass [] for a query without any")
    kept_by: dict[str, dict[str, None]] = {name: {} for name in ids}

    def keep(name: str, source: str, query: str) -> None:
        if name not in kept_by:
            raise DataError(
                f"{source}: {name!r} for {query!r:.60}",
                "an id of the corpus",
                "check that index and corpus belong together",
            )
        kept_by[name][source] = None

    for query, own in zip(queries, annotated, strict=True):
        for name in [own] if isinstance(own, str) else own:
            keep(name, "annotated", query)
    marked = frozenset(name for name, by in kept_by.items() if by)
    for source, (retriever, k) in retrievers.items():
        if k < 1 or source == "annotated":
            raise ConfigError(f"{source!r}: k={k}", "a name of its own and k of at least 1", "choose others")
        for query, hits in zip(queries, retriever.search(list(queries), k), strict=True):
            found = [hit.chunk.doc_id for hit in hits]
            if len(set(found)) < len(found):
                raise ConfigError(
                    f"{source}: several chunks of one document for {query!r:.60}",
                    "k documents per query, so one chunk per document",
                    "index the documents whole",
                )
            for name in found:
                keep(name, source, query)
    kept = {name: tuple(by) for name, by in kept_by.items() if by}
    return Downsampled(tuple(kept), kept, marked, len(ids))
