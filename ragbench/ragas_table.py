"""The parts of Table 1 (RAGAS): recorded runs scored again, length alone as a yardstick, and the table's cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ragbench.data.wikieval_runs import RecordedRun
from ragbench.metrics.reference_free import answer_relevance, context_relevance, faithfulness
from ragbench.metrics.steps.inputs import Context, joined
from ragbench.ragas import agreement_row

if TYPE_CHECKING:
    import pandas as pd
    from langchain_core.embeddings import Embeddings

_TROUBLE = ("fail", "error", "partial")
NOTE = "agreement with the construction of the pairs, not with people"


class Length:
    """A scorer that looks at length alone: a longer answer, a shorter context is better."""

    def faithfulness(self, answers: Sequence[str], contexts: Sequence[Context]) -> pd.DataFrame:
        """Score answers by their number of words."""
        return _lengths(answers)

    def answer_relevance(self, questions: Sequence[str], answers: Sequence[str]) -> pd.DataFrame:
        """Score answers by their number of words."""
        return _lengths(answers)

    def context_relevance(self, questions: Sequence[str], contexts: Sequence[Context]) -> pd.DataFrame:
        """Score contexts by minus their number of words."""
        return _lengths([joined(c, str(i)) for i, c in enumerate(contexts)], -1)


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
    from ragbench.embedding import default_embedder
    from ragbench.judge.features import embed

    vectors = embed(embedder or default_embedder(), [t for row in run.rows for t in (row.question, *row.texts)])
    return [
        answer_relevance(
            vectors[row.question], [vectors[t] for t in row.texts], noncommittal="zero", flags=row.flags
        )
        for row in run.rows
    ]  # fmt: skip


def recorded_pairs(run: RecordedRun, scores: Sequence[float] | None = None, *, whole: bool = False) -> pd.DataFrame:
    """Return a run's pairs (id, better, worse) for `agreement_row`, with its own scores or others.

    Parameters
    ----------
    run : a recorded run. scores : one per row, in place of its own.
    whole : leave rows unscored (NaN) whose replies were not parsed, or parsed in part, as the recorded status says. The
        recording scores what was left of them, or 0.
    """
    import pandas as pd

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
    import pandas as pd

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
    import pandas as pd

    rows = []
    for name, run in runs.items():
        if run.dimension == "answer_relevance":
            continue
        by_row = [r.verdicts() if run.dimension == "faithfulness" else (r.extraction(),) for r in run.rows]
        labels, unread = sum(map(len, by_row)), sum(own.count(None) for own in by_row)
        partial = sum(flagged(r.status) for r in run.rows)
        cut = sum(r.truncated for r in run.rows)
        rows.append(
            (name, run.dimension, labels, unread, len(by_row), sum(None in own for own in by_row), partial, cut)
        )
    columns = ["run", "dimension", "labels", "unread", "rows", "rows_unread", "flagged", "truncated"]
    return pd.DataFrame(rows, columns=columns).set_index("run")


def agreement_table(tables: Mapping[tuple[str, str], pd.DataFrame], seed: int = 0) -> pd.DataFrame:
    """Turn tables of pairs into rows of Table 1.

    Parameters
    ----------
    tables : (source, dimension) -> columns better and worse.
    seed : of random tie-breaks.

    Returns
    -------
    DataFrame: source, dimension (in words), and the columns of `agreement_row`.
    """
    import pandas as pd

    rows: list[dict[str, Any]] = [
        {"source": source, "dimension": name.replace("_", " "), **agreement_row(table, seed=seed)}
        for (source, name), table in tables.items()
    ]
    first = ["source", "dimension"]
    counts = ["agreement", "low", "high", "at_random", "wins", "ties", "losses", "n", "unscored"]
    return pd.DataFrame(rows, columns=[*first, *counts])


def ledger_cells(table: pd.DataFrame, row: str = "RAGAS", note: str = NOTE) -> pd.DataFrame:
    """Make cells of Table 1 for `ragbench.papers.record` from rows of one source."""
    import pandas as pd

    cells = pd.DataFrame({"row": row, "column": table["dimension"], "value": table["agreement"]})
    return cells.assign(n=table["n"].astype(int), unscored=table["unscored"].astype(int), note=note)


def _lengths(texts: Sequence[str], sign: int = 1) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame({"score": [float(sign * len(text.split())) for text in texts], "status": "scored"})
