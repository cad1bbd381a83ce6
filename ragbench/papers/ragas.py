"""The pairwise protocol of RAGAS's Table 1: does a metric score the text higher that was made
better?
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from ragbench.data.wikieval import DIMENSIONS, Dimension, Pair
from ragbench.errors import check_known
from ragbench.labelling.asking import Context
from ragbench.labelling.statements import ModelRagas
from ragbench.stats import pairwise_agreement
from ragbench.stats.inputs import as_floats

TIE = 6  # decimals: vectors differ in the seventh between machines, which is no preference
# In the ledger it has a row of its own: agreement with the construction is not subtracted from that
# with people.
NOTE = "agreement with the construction of the pairs, not with people"


def label_texts(
    model: Any, pairs: Mapping[Dimension, Sequence[Pair]], **options: Any
) -> pd.DataFrame:
    """Label both texts of every pair by RAGAS's prompts.

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
        texts, questions, contexts = _both(some, dimension)
        if contexts is None:
            scored = getattr(scorer, dimension)(questions, texts)
        else:
            scored = scorer.faithfulness(texts, contexts, questions)
        places = product(("better", "worse"), some)
        for (side, pair), text, row in zip(places, texts, scored.to_dict("records"), strict=True):
            about = {"dimension": dimension, "id": pair.id, "side": side}
            rows.append({**about, "words": len(text.split()), **_labels_of(row, dimension)})
    return pd.DataFrame(rows)


def _both(
    pairs: Sequence[Pair], dimension: Dimension
) -> tuple[list[Context], list[str], list[Context] | None]:
    """Return all texts made better, then all others; their questions; the contexts where the
    dimension shows them.
    """
    check_known("dimension", [dimension], DIMENSIONS)
    texts: list[Context] = [pair.better for pair in pairs] + [pair.worse for pair in pairs]
    questions = [pair.question for pair in pairs] * 2
    if dimension != "faithfulness":
        return texts, questions, None
    return texts, questions, [pair.context for pair in pairs] * 2


def _labels_of(scored: Mapping[str, Any], dimension: Dimension) -> dict[str, Any]:
    if dimension == "faithfulness":
        verdicts = scored["verdicts"]
        return {"verdicts": None if verdicts is None else list(verdicts)}
    if dimension == "answer_relevance":
        cosines = scored["cosines"]
        return {"cosines": None if cosines is None else [round(cosine, TIE) for cosine in cosines]}
    names = {"extracted": "extracted", "sentences": "n", "altered": "altered"}
    if scored["status"] == "extraction unread":
        return dict.fromkeys(names)
    return {name: scored[theirs] for name, theirs in names.items()}


def as_pairs(texts: pd.DataFrame, score: str) -> pd.DataFrame:
    """Lay a score of texts (columns id and side) side by side: id, better, worse."""
    wide = texts.pivot(index="id", columns="side", values=score)
    return wide.reset_index()[["id", "better", "worse"]].rename_axis(columns=None)


def baseline_scores(
    model: Any, pairs: Sequence[Pair], dimension: Dimension, **options: Any
) -> tuple[dict[str, pd.DataFrame], float]:
    """Score pairs by the paper's baselines with a model: four calls per pair.

    Returned are the tables of "GPT Score" and "GPT Ranking" with the columns id, better and worse
    (scores of both texts, NaN where unread; a ranking that depends on the order shown is a tie),
    and the ranking's position bias, -0.5 to 0.5.

    Source: RAGAS, section 5; both orders are ours.
    """
    from ragbench.labelling.preferences import gpt_ranking, gpt_score

    half = len(pairs)
    texts, questions, contexts = _both(pairs, dimension)
    scored = gpt_score(model, dimension, questions, texts, contexts, **options)
    ranked = gpt_ranking(
        model,
        dimension,
        questions[:half],
        texts[:half],
        texts[half:],
        contexts and contexts[:half],
        **options,
    )
    scores = np.array(scored, float)  # NaN where unread
    preferred = np.array(ranked.preferences, float)
    ids = [pair.id for pair in pairs]
    tables = {
        "GPT Score": {"id": ids, "better": scores[:half], "worse": scores[half:]},
        "GPT Ranking": {"id": ids, "better": preferred, "worse": 1 - preferred},
    }
    return {name: pd.DataFrame(table) for name, table in tables.items()}, ranked.position_bias


_AGREEMENT = (
    "source",
    "dimension",
    "agreement",
    "low",
    "high",
    "at_random",
    "wins",
    "ties",
    "losses",
    "n",
    "unscored",
)


def agreement_table(tables: Mapping[tuple[str, str], pd.DataFrame], seed: int = 0) -> pd.DataFrame:
    """Turn tables of pairs by (source, dimension), with the columns better and worse, into rows of
    Table 1.

    Columns: source, dimension; agreement with the construction of the pairs (ties to `TIE` decimals
    count half: the expectation over random tie-breaks), low, high (exact binomial interval),
    at_random (one tie-break, as published), wins, ties, losses, n (pairs used), unscored (pairs
    left out since a side has no score).

    Source: RAGAS, section 5, Table 1.
    """
    rows = []
    for (source, dimension), table in tables.items():
        check_known("column of pairs", ["better", "worse"], table)
        better, worse = (as_floats(table[name], name).round(TIE) for name in ("better", "worse"))
        found = pairwise_agreement(better, worse, seed=seed)
        expected = found.expected
        rows.append(
            {
                "source": source,
                "dimension": dimension.replace("_", " "),
                "agreement": expected.estimate,
                "low": expected.low,
                "high": expected.high,
                "at_random": found.random,
                "wins": found.wins,
                "ties": found.ties,
                "losses": found.losses,
                "n": expected.n,
                "unscored": expected.n_missing,
            }
        )
    return pd.DataFrame(rows, columns=_AGREEMENT)
