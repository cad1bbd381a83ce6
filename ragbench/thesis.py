"""The thesis's experiment in four steps: data set, five retrievers, per-question IR scores, Table 3.1.

Settings follow the published run (El Yagouby 2024, §2.5 and the run's own constants): BM25 keeps 5 chunks, MLQ keeps 5
of the union over its sub-questions, SIM, MMR and REO take 10 from all-MiniLM-L6-v2 vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ragbench.data import load_dataset
from ragbench.data.hotpotqa import find_hotpotqa
from ragbench.errors import unknown
from ragbench.records import Chunk, Dataset, Hit

if TYPE_CHECKING:
    from langchain_core.embeddings import Embeddings

RETRIEVERS = ("BM25", "SIM", "MMR", "MLQ", "REO")
TOP_K: Mapping[str, int] = {"BM25": 5, "SIM": 10, "MMR": 10, "MLQ": 5, "REO": 10}
CUTOFFS = tuple(range(100, 1001, 100))


def dataset(name: str = "auto", limit: int | None = None) -> Dataset:
    """Load the questions of the experiment.

    Parameters
    ----------
    name : ``"hotpotqa"``, ``"minihop"``, or ``"auto"``: HotpotQA where it is there, else MiniHop.
    limit : keep the first so many questions. HotpotQA then has only their paragraphs, which makes retrieval easier.
    """
    if name == "auto":
        name = "hotpotqa" if find_hotpotqa() else "minihop"
    if name not in ("hotpotqa", "minihop"):
        raise unknown("data set", name, ("auto", "hotpotqa", "minihop"))
    return load_dataset(name, limit=limit)


def retrievers(
    chunks: Sequence[Chunk], embedder: Embeddings, decompose: Callable[[str], Sequence[str]] | None = None
) -> dict[str, Any]:
    """Build the five retrievers over one set of chunks, sharing one dense index (§2.5.3).

    Parameters
    ----------
    chunks : what is searched.
    embedder : LangChain ``Embeddings`` for SIM, MMR, MLQ and REO.
    decompose : question -> sub-questions for MLQ; default the rule-based stand-in, which is not an LLM.

    Returns
    -------
    Retrievers by the thesis's names, in its order.
    """
    from ragbench.retrieval import make_retriever, rule_decomposer

    settings: dict[str, dict[str, Any]] = {
        "BM25": {"variant": "terrier"},
        "SIM": {"embedder": embedder},
        "MMR": {"embedder": embedder, "fetch_k": 20, "lambda_mult": 0.5},
        "MLQ": {"embedder": embedder, "decompose": decompose or rule_decomposer, "k_each": 10, "keep": 5},
        "REO": {"embedder": embedder},
    }
    return {name: make_retriever(name, chunks, **chosen) for name, chosen in settings.items()}


def search(
    systems: Mapping[str, Any], queries: Sequence[str], top_k: Mapping[str, int] = TOP_K
) -> dict[str, list[list[Hit]]]:
    """Ask every retriever every question, each with its own number of chunks."""
    return {name: system.search(queries, top_k.get(name, 10)) for name, system in systems.items()}


def ir_scores(
    data: Dataset,
    hits: Mapping[str, Sequence[Sequence[Hit]]],
    cutoffs: Sequence[int] = CUTOFFS,
    *,
    match: str = "exact",
    tokenizer: Any = None,
    begin_token: bool = False,
) -> pd.DataFrame:
    """Score what each retriever found against the supporting sentences (Eq 2.2).

    Parameters
    ----------
    data : questions with references.
    hits : by retriever, one list of hits per question, in the order they are joined.
    cutoffs : token budgets N.
    match : "exact", as published, or any other of `ragbench.metrics.ir_score.MATCHES`.
    tokenizer, begin_token : as in `ragbench.metrics.ir_score.ir_score_table`.

    Returns
    -------
    One row per question, retriever and N: question_id, kind, level, retriever, N, ir_score (NaN without references).
    """
    from ragbench.metrics.cutoffs import TokenOffsets
    from ragbench.metrics.ir_score import ir_score_table

    offsets = tokenizer if isinstance(tokenizer, TokenOffsets) else TokenOffsets(tokenizer)
    parts = [list(q.references) for q in data.questions]
    frames = []
    for name, found in hits.items():
        texts = [[h.chunk.text for h in one] for one in found]
        scores = ir_score_table(parts, texts, cutoffs, tokenizer=offsets, match=match, begin_token=begin_token)
        frames.append(
            pd.DataFrame(
                {
                    "question_id": np.repeat([q.id for q in data.questions], len(cutoffs)),
                    "kind": np.repeat([q.kind for q in data.questions], len(cutoffs)),
                    "level": np.repeat([q.level for q in data.questions], len(cutoffs)),
                    "retriever": name,
                    "N": np.tile(np.asarray(cutoffs), len(parts)),
                    "ir_score": scores.ravel(),
                }
            )
        )
    return pd.concat(frames, ignore_index=True)


def best_chunk_position(k: int) -> int:
    """Return where the published reorder puts the best of k chunks, counted from 1.

    First for odd k; last for even k, where the cut at N tokens then removes it (papers: the cause of REO's low scores).
    """
    from ragbench.retrieval import reorder

    return list(reorder(list(range(k)))).index(0) + 1
