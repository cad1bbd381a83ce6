"""The pairwise protocol of RAGAS's Table 1: does a metric score the text higher that was made better?

`score_pairs` takes any scorer with the three metrics (`EmbeddedRagas`, or a model as `ModelRagas`, or `Length` as a
yardstick); `baseline_scores` is the two baselines by a model; `agreement_row` turns any of them into a cell of the
table, with its interval and counts. Recorded runs are scored again by `rescore`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import pandas as pd
from langchain_core.embeddings import Embeddings

from ragbench.data.wikieval import DIMENSIONS, Dimension, Pair, RecordedRun
from ragbench.errors import ConfigError, DataError, check_known
from ragbench.labelling.asking import Context, context_text
from ragbench.llm import Step
from ragbench.metrics.reference_free import answer_relevance, context_relevance, faithfulness
from ragbench.stats import pairwise_agreement
from ragbench.stats.inputs import as_floats

TIE = 6  # decimals: vectors differ in the seventh between machines, which is no preference
_TROUBLE = ("fail", "error", "partial")
# In the ledger it has a row of its own: agreement with the construction is not subtracted from that with people.
NOTE = "agreement with the construction of the pairs, not with people"


class Scorer(Protocol):
    """Anything with RAGAS's three metrics over lists; each returns a table with the columns score and status."""

    def faithfulness(
        self, answers: Sequence[str], contexts: Sequence[Any], questions: Sequence[str] | None = None
    ) -> pd.DataFrame:
        """Score answers against contexts; the questions may help to read the answers."""

    def answer_relevance(self, questions: Sequence[str], answers: Sequence[str]) -> pd.DataFrame:
        """Score answers against questions."""

    def context_relevance(self, questions: Sequence[str], contexts: Sequence[Any]) -> pd.DataFrame:
        """Score contexts against questions."""


def score_pairs(scorer: Scorer, pairs: Sequence[Pair], dimension: Dimension) -> pd.DataFrame:
    """Score both texts of every pair, all in one call, so that what they share is processed once.

    Returns
    -------
    DataFrame, one row per pair: id, better, worse (scores of the text made better and of the other, NaN where
    unscored), status ("scored", or why not).

    Raises
    ------
    ConfigError for an unknown dimension.
    """
    texts = [*(p.better for p in pairs), *(p.worse for p in pairs)]
    questions = [p.question for p in pairs] * 2
    if _dimension(dimension) == "faithfulness":
        table = scorer.faithfulness(texts, [p.context for p in pairs] * 2, questions)
    elif dimension == "answer_relevance":
        table = scorer.answer_relevance(questions, texts)
    else:
        table = scorer.context_relevance(questions, texts)
    return _paired([p.id for p in pairs], list(table["score"]), list(table["status"]))


def baseline_scores(
    model: Any, pairs: Sequence[Pair], dimension: Dimension, **options: Any
) -> tuple[dict[str, pd.DataFrame], float]:
    """Score pairs by the paper's baselines with a model: four calls per pair.

    Returns
    -------
    {"GPT Score": table, "GPT Ranking": table} as `score_pairs` makes them (a ranking that depends on the order shown is
    a tie), and the ranking's position bias (-0.5 .. 0.5, see `Ranking.position_bias`).

    Raises
    ------
    ConfigError for an unknown dimension.

    Source: RAGAS, section 5; both orders are ours.
    """
    from ragbench.labelling.preferences import gpt_ranking, gpt_score

    first, second, questions = [p.better for p in pairs], [p.worse for p in pairs], [p.question for p in pairs]
    contexts = [p.context for p in pairs] if _dimension(dimension) == "faithfulness" else None
    twice = contexts * 2 if contexts is not None else None
    scored = gpt_score(model, dimension, questions * 2, first + second, twice, **options).scores
    ranked = gpt_ranking(model, dimension, questions, first, second, contexts, **options)
    preferred = [np.nan if p is None else p for p in ranked.preferences]
    ids = [p.id for p in pairs]
    tables = {
        "GPT Score": _paired(ids, [np.nan if s is None else float(s) for s in scored]),
        "GPT Ranking": _paired(ids, [*preferred, *(1 - p for p in preferred)]),
    }
    return tables, ranked.position_bias


def agreement_row(scores: pd.DataFrame, *, level: float = 0.95, seed: int = 0) -> dict[str, float]:
    """Return the agreement of a metric with the construction of the pairs.

    Parameters
    ----------
    scores : columns better and worse, as `score_pairs` makes them. Scores that agree to `TIE` decimals are ties.
    level : of the exact binomial interval. seed : of the random tie-break.

    Returns
    -------
    dict: agreement (ties count half: the expectation over random tie-breaks), low, high, at_random (one tie-break, as
    published), wins, ties, losses, n (pairs used), unscored (pairs left out since a side has no score).

    Raises
    ------
    DataError without these columns, or with something else than numbers in them.

    Source: RAGAS, section 5, Table 1.
    """
    lacking = [name for name in ("better", "worse") if name not in scores]
    if lacking:
        raise DataError(
            f"a table without {' and '.join(lacking)} (it has {', '.join(map(str, scores)) or 'no columns'})",
            "the columns better and worse",
            "make it with score_pairs, or rename your columns",
        )
    better, worse = (as_floats(scores[name], name).round(TIE) for name in ("better", "worse"))
    agreement = pairwise_agreement(better, worse, level=level, seed=seed)
    e, wins, ties, losses = agreement.expected, agreement.wins, agreement.ties, agreement.losses
    counts = {"wins": wins, "ties": ties, "losses": losses, "n": e.n, "unscored": e.n_missing}
    return {"agreement": e.estimate, "low": e.low, "high": e.high, "at_random": agreement.random, **counts}


def steps_for_pairs(pairs: Mapping[Dimension, Sequence[Pair]], n: int = 3, baselines: bool = True) -> list[Step]:
    """Make the steps of a live run of Table 1 for `ragbench.llm.plan`, which counts the calls before any is made.

    Parameters
    ----------
    pairs : by dimension. n : generated questions per answer. baselines : whether GPT Score and GPT Ranking are run too.

    Returns
    -------
    Steps. RAGAS takes at most four calls per pair for faithfulness and two each for the others: 8, where the paper's
    own way (a call per generated question) takes 6 + 2n; each baseline takes two calls per pair and dimension. A joint
    reply with a wrong number of verdicts costs one more call per statement, which the step's report counts.

    Raises
    ------
    ConfigError without pairs.
    """
    from ragbench.labelling.preferences import steps_for_baselines
    from ragbench.labelling.statements import steps_for_ragas

    if not pairs:
        raise ConfigError("no pairs", "pairs by dimension", "pass {dimension: data.pairs(dimension)}")
    places = {"faithfulness": (0, 1), "answer_relevance": (2,), "context_relevance": (3,)}
    steps = []
    for dimension, listed in pairs.items():
        texts = [*(p.better for p in listed), *(p.worse for p in listed)]
        questions, blank = [p.question for p in listed] * 2, [""] * len(texts)
        grounded = _dimension(dimension) == "faithfulness"
        contexts = [p.context for p in listed] * 2 if grounded else blank
        all_four = steps_for_ragas(
            questions,
            blank if dimension == "context_relevance" else texts,
            texts if dimension == "context_relevance" else contexts,
            n,
        )
        steps += [all_four[place] for place in places[dimension]]
        if baselines:
            half = len(listed)
            sides = (questions[:half], texts[:half], texts[half:], contexts[:half] if grounded else None)
            steps += steps_for_baselines(dimension, *sides)
    return steps


class Length:
    """A scorer that looks at length alone: a longer answer, a shorter context is better."""

    def faithfulness(
        self, answers: Sequence[str], contexts: Sequence[Context], questions: Sequence[str] | None = None
    ) -> pd.DataFrame:
        """Score answers by their number of words."""
        return _lengths(answers)

    def answer_relevance(self, questions: Sequence[str], answers: Sequence[str]) -> pd.DataFrame:
        """Score answers by their number of words."""
        return _lengths(answers)

    def context_relevance(self, questions: Sequence[str], contexts: Sequence[Context]) -> pd.DataFrame:
        """Score contexts by minus their number of words."""
        return _lengths([context_text(c, str(i)) for i, c in enumerate(contexts)], -1)


def rescore(run: RecordedRun, embedder: Embeddings | None = None) -> list[float]:
    """Compute the scores of a recorded run with our metrics, from its labels and texts.

    Parameters
    ----------
    run : from `ragbench.data.load_wikieval_runs`.
    embedder : for answer relevance; default the embedded MiniLM, which the run used too. Evasive answers are 0 in it.

    Returns
    -------
    One score per row, in the run's order.
    """
    if run.dimension == "faithfulness":
        return [faithfulness(row.labels) for row in run.rows]
    if run.dimension == "context_relevance":
        return [context_relevance(row.labels, row.total) for row in run.rows]
    from ragbench.embedding import default_embedder, embed_distinct

    vectors = embed_distinct(
        embedder or default_embedder(), [t for row in run.rows for t in (row.question, *row.texts)]
    )
    guesses = [[vectors[text] for text in row.texts] for row in run.rows]
    return [
        answer_relevance(vectors[row.question], guessed, noncommittal="zero", flags=row.flags)
        for row, guessed in zip(run.rows, guesses, strict=True)
    ]


def recorded_pairs(run: RecordedRun, scores: Sequence[float] | None = None, *, whole: bool = False) -> pd.DataFrame:
    """Return a run's pairs (id, better, worse) for `agreement_row`, with its own scores or others.

    Parameters
    ----------
    run : a recorded run. scores : one per row, in place of its own.
    whole : leave rows unscored (NaN) whose replies were not parsed, or parsed in part, as the recorded status says. The
        recording scores what was left of them, or 0.
    """
    values = [row.score for row in run.rows] if scores is None else list(scores)
    if whole:
        values = [float("nan") if flagged(row.status) else value for row, value in zip(run.rows, values, strict=True)]
    return pd.DataFrame(run.pairs(values), columns=["id", "better", "worse"])


def flagged(status: str) -> bool:
    """Whether a recorded parse status says that a reply was not parsed, or parsed in part."""
    return any(word in status.lower() for word in _TROUBLE)


def exactness(runs: Mapping[str, RecordedRun], embedder: Embeddings | None = None) -> pd.DataFrame:
    """Compare our scores of recorded runs with the recorded ones.

    Returns
    -------
    DataFrame by run: dimension, rows, equal (to the last bit), largest_difference.
    """
    rows = []
    for name, run in runs.items():
        gaps = [abs(ours - row.score) for ours, row in zip(rescore(run, embedder), run.rows, strict=True)]
        rows.append((name, run.dimension, len(gaps), gaps.count(0.0), max(gaps)))
    return pd.DataFrame(rows, columns=["run", "dimension", "rows", "equal", "largest_difference"]).set_index("run")


def readability(runs: Mapping[str, RecordedRun]) -> pd.DataFrame:
    """Count what could be read in recorded runs of faithfulness and context relevance.

    Returns
    -------
    DataFrame by run: dimension, labels (verdicts, or replies with sentences), unread, rows, rows_unread (rows with an
    unread label), flagged (rows whose parse status, as recorded, says that parsing failed or was partial), truncated
    (rows with a reply that was cut off).
    """
    rows = []
    for name, run in runs.items():
        if run.dimension == "answer_relevance":
            continue
        by_row = [r.verdicts() if run.dimension == "faithfulness" else (r.extraction(),) for r in run.rows]
        labels, unread = sum(map(len, by_row)), sum(row.count(None) for row in by_row)
        partial = sum(flagged(r.status) for r in run.rows)
        cut = sum(r.truncated for r in run.rows)
        with_unread = sum(None in row for row in by_row)
        rows.append((name, run.dimension, labels, unread, len(by_row), with_unread, partial, cut))
    columns = ["run", "dimension", "labels", "unread", "rows", "rows_unread", "flagged", "truncated"]
    return pd.DataFrame(rows, columns=columns).set_index("run")


def agreement_table(tables: Mapping[tuple[str, str], pd.DataFrame], seed: int = 0) -> pd.DataFrame:
    """Turn tables of pairs into rows of Table 1.

    Parameters
    ----------
    tables : (source, dimension) -> columns better and worse.

    Returns
    -------
    DataFrame: source, dimension (in words), and the columns of `agreement_row`.
    """
    rows: list[dict[str, Any]] = [
        {"source": source, "dimension": name.replace("_", " "), **agreement_row(table, seed=seed)}
        for (source, name), table in tables.items()
    ]
    first = ["source", "dimension"]
    counts = ["agreement", "low", "high", "at_random", "wins", "ties", "losses", "n", "unscored"]
    return pd.DataFrame(rows, columns=[*first, *counts])


def _dimension(name: str) -> str:
    check_known("dimension", [name], DIMENSIONS)
    return name


def _paired(ids: Sequence[str], scores: Sequence[float], status: Sequence[str] | None = None) -> pd.DataFrame:
    half = len(ids)
    frame = pd.DataFrame({"id": ids, "better": scores[:half], "worse": scores[half:]})
    said = list(status) if status is not None else ["scored" if s == s else "unread" for s in scores]
    frame["status"] = [a if a != "scored" else b for a, b in zip(said[:half], said[half:], strict=True)]
    return frame


def _lengths(texts: Sequence[str], sign: int = 1) -> pd.DataFrame:
    return pd.DataFrame({"score": [float(sign * len(text.split())) for text in texts], "status": "scored"})
