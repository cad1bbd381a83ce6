"""The pairwise protocol of RAGAS's Table 1: does a metric score the text higher that was made
better?
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ragbench.data.wikieval import DIMENSIONS, Dimension, Pair
from ragbench.errors import DataError, check_known
from ragbench.labelling.asking import Context, StepReport
from ragbench.labelling.statements import ModelRagas
from ragbench.stats import pairwise_agreement
from ragbench.stats.inputs import as_floats

TIE = 6  # decimals: vectors differ in the seventh between machines, which is no preference
# In the ledger it has a row of its own: agreement with the construction is not subtracted from that
# with people.
NOTE = "agreement with the construction of the pairs, not with people"
_NUMBERS = ["agreement", "low", "high", "at_random", "wins", "ties", "losses", "n", "unscored"]


def _score_texts(scorer: Any, pairs: Sequence[Pair], dimension: Dimension) -> pd.DataFrame:
    """Score both texts of every pair by a metric of `ModelRagas` or your own, all in one call.

    The scorer's table, first all texts made better, then all others, with columns id and side
    before it.
    """
    better, worse, questions, contexts = _sides(pairs, dimension)
    if contexts is not None:
        table = scorer.faithfulness(better + worse, contexts * 2, questions * 2)
    else:
        table = getattr(scorer, dimension)(questions * 2, better + worse)
    table.insert(0, "id", [pair.id for pair in pairs] * 2)
    table.insert(1, "side", ["better"] * len(pairs) + ["worse"] * len(pairs))
    return table


def label_texts(
    model: Any, pairs: Mapping[Dimension, Sequence[Pair]], **options: Any
) -> tuple[pd.DataFrame, list[StepReport]]:
    """Label both texts of every pair by RAGAS's prompts, and say what each step took.

    Parameters
    ----------
    pairs : by dimension, as of `WikiEval.pairs`.
    options : as for `ModelRagas`: ``embedder``, ``n``, ``cassette`` ...

    Returns
    -------
    One row per text: dimension, id, side, words; verdicts ("Yes" or "No" per statement), cosines
    (of the generated questions), or extracted of sentences and altered. None where a reply could
    not be read. No text is in it.
    """
    scorer = ModelRagas(model, **options)
    rows = []
    for dimension, some in pairs.items():
        scored = _score_texts(scorer, some, dimension).to_dict("records")
        texts = [pair.better for pair in some] + [pair.worse for pair in some]
        for row, text in zip(scored, texts, strict=True):
            about = {
                "dimension": dimension,
                "id": row["id"],
                "side": row["side"],
                "words": len(text.split()),
            }
            rows.append(about | _labels_of(row, dimension))
    return pd.DataFrame(rows), scorer.reports


def _labels_of(scored: Mapping[str, Any], dimension: Dimension) -> dict[str, Any]:
    if dimension == "faithfulness":
        verdicts = scored["verdicts"]
        return {"verdicts": None if verdicts is None else list(verdicts)}
    if dimension == "answer_relevance":
        cosines = scored["cosines"]
        return {"cosines": None if cosines is None else [round(cosine, TIE) for cosine in cosines]}
    if scored["status"] == "extraction unread":
        return dict.fromkeys(("extracted", "sentences", "altered"))
    return {
        "extracted": scored["extracted"],
        "sentences": scored["n"],
        "altered": scored["altered"],
    }


def as_pairs(texts: pd.DataFrame, score: str) -> pd.DataFrame:
    """Lay a score of texts (columns id and side) side by side: id, better, worse."""
    wide = texts.pivot(index="id", columns="side", values=score)
    return wide.reset_index()[["id", "better", "worse"]].rename_axis(columns=None)


def score_pairs(scorer: Any, pairs: Sequence[Pair], dimension: Dimension) -> pd.DataFrame:
    """Score pairs as `_score_texts` does, one row per pair.

    Columns: id, better, worse (scores of the text made better and of the other, NaN where
    unscored), status ("scored", or why not).
    """
    table = _score_texts(scorer, pairs, dimension)
    return _paired(pairs, list(table["score"]), list(table["status"]))


def baseline_scores(
    model: Any, pairs: Sequence[Pair], dimension: Dimension, **options: Any
) -> tuple[dict[str, pd.DataFrame], float]:
    """Score pairs by the paper's baselines with a model: four calls per pair.

    Returned are the tables of "GPT Score" and "GPT Ranking" as `score_pairs` makes them (a ranking
    that depends on the order shown is a tie), and the ranking's position bias, -0.5 to 0.5.

    Source: RAGAS, section 5; both orders are ours.
    """
    from ragbench.labelling.preferences import gpt_ranking, gpt_score

    first, second, questions, contexts = _sides(pairs, dimension)
    twice = contexts and contexts * 2
    scored = gpt_score(model, dimension, questions * 2, first + second, twice, **options).labels
    ranked = gpt_ranking(model, dimension, questions, first, second, contexts, **options)
    preferred = np.array(ranked.preferences, float)  # NaN where unread
    tables = {
        "GPT Score": _paired(pairs, np.array(scored, float).tolist()),
        "GPT Ranking": _paired(pairs, [*preferred, *(1 - preferred)]),
    }
    return tables, ranked.position_bias


def agreement_row(scores: pd.DataFrame, *, seed: int = 0) -> dict[str, float]:
    """Return the agreement of a metric with the construction of the pairs, better and worse as of
    `score_pairs`.

    Keys: agreement (ties to `TIE` decimals count half: the expectation over random tie-breaks),
    low, high (exact binomial interval), at_random (one tie-break, as published), wins, ties,
    losses, n (pairs used), unscored (pairs left out since a side has no score).

    Source: RAGAS, section 5, Table 1.
    """
    if not {"better", "worse"} <= {*scores}:
        got = f"a table with the columns {', '.join(map(str, scores)) or 'none'}"
        raise DataError(
            got, "the columns better and worse", "make it with score_pairs, or rename your columns"
        )
    better, worse = (as_floats(scores[name], name).round(TIE) for name in ("better", "worse"))
    a = pairwise_agreement(better, worse, seed=seed)
    e = a.expected
    numbers = (e.estimate, e.low, e.high, a.random, a.wins, a.ties, a.losses, e.n, e.n_missing)
    return dict(zip(_NUMBERS, numbers, strict=True))


def agreement_table(tables: Mapping[tuple[str, str], pd.DataFrame], seed: int = 0) -> pd.DataFrame:
    """Turn tables of pairs by (source, dimension) into rows of Table 1: both names, then as of
    `agreement_row`.
    """
    rows: list[dict[str, Any]] = [
        {"source": source, "dimension": name.replace("_", " "), **agreement_row(table, seed=seed)}
        for (source, name), table in tables.items()
    ]
    return pd.DataFrame(rows, columns=["source", "dimension", *_NUMBERS])


def _sides(
    pairs: Sequence[Pair], dimension: Dimension
) -> tuple[list[Context], list[Context], list[str], list[Context] | None]:
    """Better and worse texts, questions, and the contexts where the dimension shows them."""
    check_known("dimension", [dimension], DIMENSIONS)
    contexts = [p.context for p in pairs] if dimension == "faithfulness" else None
    return (
        [p.better for p in pairs],
        [p.worse for p in pairs],
        [p.question for p in pairs],
        contexts,
    )


def _paired(
    pairs: Sequence[Pair], scores: Sequence[float], status: Sequence[str] | None = None
) -> pd.DataFrame:
    """Lay scores of all better texts, then of all worse ones, side by side; a pair's status is its
    first fault.
    """
    half = len(pairs)
    status = status or ["scored" if s == s else "unread" for s in scores]
    both = [a if a != "scored" else b for a, b in zip(status[:half], status[half:], strict=True)]
    sides = {"better": scores[:half], "worse": scores[half:]}
    return pd.DataFrame({"id": [p.id for p in pairs], **sides, "status": both})
