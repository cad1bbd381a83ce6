"""Which step failed, question by question: did retrieval miss the evidence, or did the generator not use it?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from ragbench.errors import ConfigError, DataError
from ragbench.metrics.ir_score import ir_score_table
from ragbench.records import Chunk, Dataset

OUTCOMES = ("right", "right without evidence", "found, wrong or incomplete", "found, not used", "not found")
SEARCH = ["chunker", "retriever", "k"]


def outcomes(rows: pd.DataFrame, enough: float = 1.0) -> pd.Series:
    """Sort graded answers by the step that failed.

    Parameters
    ----------
    rows : of an experiment, with ``ir_score`` and ``grade``.
    enough : the IR score from which the evidence counts as found, above 0 and up to 1.

    Returns
    -------
    One of `OUTCOMES` per row: *right* is grade 5, *not used* is grade 1 although the evidence was in the context.
    Missing where the row has no IR score (N = 0, no references) or no grade.
    """
    _check_share("enough", enough)
    supported, grade = rows["ir_score"] >= enough - 1e-9, rows["grade"]
    right, silent = grade.eq(5).fillna(False), grade.eq(1).fillna(False)
    cases = [right & supported, right, supported & ~silent, supported]
    sorted_out = pd.Series(np.select(cases, OUTCOMES[:4], OUTCOMES[4]), rows.index, dtype=object)
    return sorted_out.where(rows["ir_score"].notna() & grade.notna(), None)


def outcome_shares(rows: pd.DataFrame, by: str, enough: float = 1.0) -> pd.DataFrame:
    """Count `outcomes` per system: ``by``, a share per outcome (of the scored rows, adding up to 1), n, unscored."""
    systems = rows.assign(outcome=outcomes(rows, enough)).groupby(by, sort=False)["outcome"]
    counts = pd.DataFrame({"n": systems.count(), "unscored": systems.size() - systems.count()})
    shares = {outcome: systems.agg(lambda part, name=outcome: (part == name).sum()) for outcome in OUTCOMES}
    return pd.DataFrame(shares).div(counts["n"], axis=0).join(counts).reset_index()


def _check_share(name: str, value: float) -> None:
    if not 0 < value <= 1:
        raise ConfigError(f"{name}={value}", "above 0 and up to 1", "leave it out, to have the usual value")


def evidence_ranks(
    rows: pd.DataFrame, dataset: Dataset, chunks: Mapping[str, Sequence[Chunk]], share: float = 0.5
) -> pd.DataFrame:
    """Find how high the evidence stands among the hits, whatever the generator read of them.

    A chunk is relevant to a reference if at least ``share`` of the reference stands in it, in one piece.

    Parameters
    ----------
    rows : of an experiment on ``dataset``.
    chunks : by the name of the chunker, those that were searched.
    share : of a reference, above 0 and up to 1. Less than 1, since a chunk may end within a reference.

    Returns
    -------
    DataFrame, a row per question, search (chunker, retriever, k) and rank from 1 to the number of hits asked for:
    ``recall`` (share of the references with a relevant chunk up to this rank) and ``reciprocal_rank`` (1 / rank of the
    first relevant chunk up to this rank, else 0; its mean over questions is the MRR at this rank). NaN without
    references.
    """
    _check_share("share", share)
    texts = {(name, chunk.id): chunk.text for name, listed in chunks.items() for chunk in listed}
    references = {question.id: list(question.references) for question in dataset.questions}
    searched = rows[(rows["N"] > 0) & rows["hits"].map(lambda hits: isinstance(hits, list))]
    searched = searched.drop_duplicates(["question_id", *SEARCH])[["question_id", *SEARCH, "hits"]]
    pairs = searched.assign(reference=searched["question_id"].map(references)).explode("reference")
    pairs["hit"] = [list(enumerate(hits, 1)) for hits in pairs["hits"]]
    pairs = pairs.explode("hit").dropna(subset=["reference", "hit"])
    hit_texts = [texts[chunker, hit[1]] for chunker, hit in zip(pairs["chunker"], pairs["hit"], strict=True)]
    whole = np.array([[len(text)] for text in hit_texts], np.int64).reshape(-1, 1)
    scores = ir_score_table([[part] for part in pairs["reference"]], hit_texts, [1], positions=whole)[:, 0]
    ranks = pd.Series([hit[0] for hit in pairs["hit"]], pairs.index, dtype=float).where(scores >= share - 1e-9)
    first = ranks.groupby([pairs[name] for name in ("question_id", *SEARCH, "reference")], sort=False).min()

    curves = []
    for row in searched.itertuples(index=False):
        key = (row.question_id, row.chunker, row.retriever, row.k)
        at = np.arange(1, row.k + 1)
        parts = dict.fromkeys(references[row.question_id])
        firsts = np.array([first.get((*key, part), np.nan) for part in parts])
        seen = firsts[:, None] <= at
        best = np.nanmin(firsts, initial=np.inf)
        undefined = np.full(row.k, np.nan)
        recall = seen.mean(axis=0) if parts else undefined
        reciprocal = np.where(best <= at, 1 / best, 0.0) if parts else undefined
        curve = {"rank": at, "recall": recall, "reciprocal_rank": reciprocal}
        curves.append(pd.DataFrame(dict(zip(("question_id", *SEARCH), key, strict=True)) | curve))
    if not curves:
        raise DataError("no row has hits", "rows that read documents", "add a budget above 0 to N")
    return pd.concat(curves, ignore_index=True)
