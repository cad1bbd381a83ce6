"""The rows of a run, factor by factor: retriever within chunker, chunker within retriever, prompt
within system.

Notebook 91 and ``export`` show the same tables: `overview` (means of every cell), `compare_factor`
(differences of one factor within every setting of the others), `worst_questions`.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.figure import Figure

from ragbench import plots
from ragbench.data.relevance import linked_questions
from ragbench.experiment.axes import QUERY_ONLY
from ragbench.experiment.rows import measure_answers, system_names
from ragbench.metrics.lexical import contained
from ragbench.report.audit import (
    ANSWERS,
    CELL,
    IR_SCORE,
    NO_DOCUMENTS,
    RIGHT,
    run_parts,
    varying,
)
from ragbench.stats import compare, means, with_interval
from ragbench.stats.tables import fully_right

# What is compared, and the part of a run in which each of its values stands once.
MEASURES = {"ir_score": IR_SCORE, "contained": ANSWERS, "fully_right": RIGHT}
FACTORS = {
    "retriever": "retriever",
    "chunker": "chunker",
    "k": "k",
    "generator": "generator, prompt",
}


def measured(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of a run with every number that can be compared.

    Rows without documents are named so. Added are ``system``; ``contained`` (1 where the true
    answer stands in the answer); ``fully_right`` (1 for the best grade); and ``cluster``: the
    questions that share a document of their evidence, else those of one topic, else each question
    is on its own.
    """
    rows = rows.assign(retriever=rows["retriever"].replace(QUERY_ONLY, NO_DOCUMENTS))
    return rows.assign(
        system=system_names(rows),
        contained=measure_answers(rows, contained),
        fully_right=fully_right(rows),
        cluster=_clusters(rows),
    )


def _clusters(rows: pd.DataFrame) -> pd.Series:
    questions = rows["data"].astype(str) + "/" + rows["question_id"].astype(str)
    judged = rows.assign(question=questions).drop_duplicates("question")
    evidence = {}
    for question, data, relevant in judged[["question", "data", "relevant"]].to_numpy():
        documents = relevant if isinstance(relevant, dict) else ()
        evidence[question] = [(data, document) for document in documents]
    shared = pd.Series(linked_questions(evidence), dtype=object)
    if 1 < shared.nunique() < len(shared):
        return questions.map(shared)
    if rows["topic"].nunique() > 1:
        return rows["topic"].fillna(questions)
    return questions


def overview(rows: pd.DataFrame, measures: Sequence[str], by: Sequence[str] = ()) -> pd.DataFrame:
    """Average `measured` rows by cell: the axes that vary, metric, mean, low, high, n, unscored.

    ``by``: further columns, such as one of the questions file.
    """
    return means(rows, [*varying(rows, CELL), *by], measures, groups="cluster")


def overview_cells(table: pd.DataFrame) -> pd.DataFrame:
    """Lay an `overview` out for readers: a row per cell, a column per measure, n beside."""
    parts = dict(tuple(table.groupby("metric", sort=False)))
    first = next(iter(parts.values())).reset_index(drop=True)
    cells = first.loc[:, :"metric"].drop(columns="metric")
    for name, part in parts.items():
        words = name.replace("_", " ")
        cells[f"{words} [95%]"] = with_interval(part).to_numpy()
        cells[f"n, {words}"] = part["n"].to_numpy()
    return cells


def compare_factor(rows: pd.DataFrame, factor: str, measure: str) -> pd.DataFrame:
    """Compare the values of one factor within every setting of the others, question by question.

    Each context, answer or grade counts once, whatever stands behind it in the grid: a test of
    retrieval is not repeated for every prompt. Clusters are flipped together; p is corrected by
    Holm within the table.

    Returns
    -------
    The table of `ragbench.compare`, with ``pair`` ("BM25 - SIM"); no row where the factor has one
    value.
    """
    part, axes = run_parts(rows[rows["N"] > 0])[MEASURES[measure]]
    if factor not in axes:
        return pd.DataFrame()
    others = [name for name in axes if name != factor]
    table = compare(part, factor, measure, by=others, cluster="cluster")
    return table.assign(pair=table["a"].astype(str) + " - " + table["b"].astype(str))


def setting_names(table: pd.DataFrame) -> pd.Series:
    """Name the setting of each row of a table by the columns of a cell that it has; "" without."""
    axes = [name for name in CELL if name in table]
    names = pd.Series("", table.index)
    for axis in axes:
        names += ", " + table[axis].astype(str)
    return names.str.removeprefix(", ")


def comparison_cells(table: pd.DataFrame) -> pd.DataFrame:
    """Lay a table of `compare_factor` out for readers."""
    others = [name for name in CELL if name in table]
    shown = table[[*others, "pair"]].copy()
    shown["difference [95%]"] = with_interval(table, "difference")
    shown["p (Holm)"] = table["p_holm"]
    return shown.assign(n=table["n"], clusters=table["clusters"])


def draw_factor(table: pd.DataFrame, measure: str) -> Figure:
    """Draw the differences of `compare_factor`; what is significant at .05 is filled."""
    setting = setting_names(table)
    row = table["pair"].where(setting.eq(""), table["pair"] + " | " + setting)
    drawn = table.assign(row=row, holds=table["p_holm"] < 0.05)
    label = f"difference in {measure.replace('_', ' ')}"
    return plots.dots(drawn, "row", "difference", xlabel=label, filled="holds")


def factor_sentence(factor: str, table: pd.DataFrame) -> str:
    """Say which value of a factor is ahead of which, in how many settings."""
    parts = []
    for (a, b), part in table.groupby(["a", "b"], sort=False):
        shown = part.loc[part["p_holm"] < 0.05, "difference"]
        ahead = {a: (shown > 0).sum(), b: (shown <= 0).sum()}
        counts = [f"{name} higher in {count}" for name, count in ahead.items() if count]
        words = ", ".join(counts) or "no difference shown in any"
        parts.append(f"{a} against {b}: {words} of {len(part)}")
    return f"{FACTORS[factor]}: {'; '.join(parts)}"


def worst_questions(rows: pd.DataFrame, measure: str, count: int = 10) -> pd.DataFrame:
    """Return the questions that the system with the highest mean does worst, with their texts."""
    rows = rows[rows["N"] > 0]
    best = rows.groupby("system", sort=False)[measure].mean().idxmax()
    of_best = rows[rows["system"] == best].sort_values([measure, "ir_score"], kind="stable")
    of_best = of_best.dropna(subset=measure)
    columns = ["question", "reference", "answer", *MEASURES, "grade"]
    return of_best[columns].head(count).dropna(axis="columns", how="all").reset_index(drop=True)
