"""The rows of a run, factor by factor: retriever within chunker, chunker within retriever, prompt
within system.

Reading order: ``measured`` (rows with every number) -> ``run_tables`` (all that ``export`` writes)
-> its tables: ``overview`` (means of every cell), ``factor_table`` (differences of one factor
within every setting of the others), grades, ``worst_questions``. Notebook 91 shows the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pandas as pd
from matplotlib.figure import Figure

from ragbench import plots
from ragbench.comparison import never_differ
from ragbench.experiment.axes import QUERY_ONLY
from ragbench.labelling.grades import grade_shares
from ragbench.metrics.lexical import contained
from ragbench.report.audit import ANSWERS, CELL, IR_SCORE, NO_DOCUMENTS, RIGHT, ROWS, run_parts
from ragbench.report.tables import MOST_DRAWN, ReportTable
from ragbench.rows import AXIS_COLUMNS, answers_of, folder_name, measure_answers
from ragbench.stats import compare, means
from ragbench.stats.tables import fully_right, rows_by_scale

# What is compared, and the part of a run in which each of its values stands once.
MEASURES = {"ir_score": IR_SCORE, "contained": ANSWERS, "fully_right": RIGHT}
FACTORS = {
    "retriever": "retriever",
    "chunker": "chunker",
    "k": "k",
    "generator": "generator, prompt",
}
# Axes that do not change a measure.
_SHARED = {"ir_score": ["generator", "judge"], "contained": ["judge"]}
# What is asked at N = 0, whatever the prompt with documents.
_ASKED = ["model", "digest", "temperature", "seed", "num_ctx", "prompt_sha256"]


def measured(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of a run with every number that can be compared.

    Rows without documents are named so, and stand once for a model that has several prompts with
    documents. Added are ``system`` (of `answers_of`), ``contained`` (1 where the true answer stands
    in the answer) and ``fully_right`` (1 for the best grade).
    """
    rows = answers_of(_asked_once(rows))
    return rows.assign(
        retriever=rows["retriever"].replace(QUERY_ONLY, NO_DOCUMENTS),
        contained=measure_answers(rows, contained).astype("boolean"),
        fully_right=pd.array(fully_right(rows), dtype="boolean"),
    )


def _asked_once(rows: pd.DataFrame) -> pd.DataFrame:
    """Join the generators that ask one model the same without documents: "short, long"."""
    alone = rows["N"].eq(0) & rows["prompt_sha256"].notna()
    names = (
        rows[alone]
        .groupby(_ASKED, dropna=False)["generator"]
        .transform(lambda labels: ", ".join(dict.fromkeys(labels)))
    )
    rows = rows.assign(generator=rows["generator"].mask(alone, names.astype(object)))
    return rows.drop_duplicates([*AXIS_COLUMNS], ignore_index=True)


def run_tables(rows: pd.DataFrame, name: str, by: str | None = None) -> Iterator[ReportTable]:
    """Yield the tables of `measured` rows: means, factor by factor, grades, the ten worst
    questions.

    ``name`` begins their captions. ``by``: a column of the questions file; one more table has the
    means by its values.
    """
    measures = [measure for measure in MEASURES if rows[measure].notna().any()]
    columns = [name for name in (*MEASURES, "seconds") if rows[name].notna().any()]
    if columns:
        averages = overview(rows, columns, name)
        yield replace(averages, figure=_curves(averages.frame, name))
        if by is not None:
            yield overview(rows, columns, name, by)
    for measure in measures:
        for factor in FACTORS:
            table = factor_table(rows, factor, measure, name)
            if table is not None:
                yield table
    yield from _grades_tables(rows, name)
    systems = rows[~_bounds(rows)]
    if measures and len(systems):
        worst = worst_questions(systems, measures[-1])
        if len(worst):
            words = f"the {len(worst)} questions that {worst['system'][0]} does worst"
            yield ReportTable("worst", f"{name}: {words}", worst)


# -- means


def overview(
    rows: pd.DataFrame, measures: Sequence[str], name: str, by: str | None = None
) -> ReportTable:
    """Average `measured` rows by cell: the axes that vary, metric, mean, low, high, n, unscored.

    ``by``: a further column, such as one of the questions file.
    """
    _, axes = run_parts(rows)[ROWS]
    questions = rows["question_id"].nunique()
    caption = f"{name}: means over {questions} questions, with 95% intervals"
    stem = "overview"
    if by is not None:
        axes = [*axes, by]
        caption += f", by {by}"
        stem += f"_by_{folder_name(by)}"
    return ReportTable.means(means(rows, axes, measures), axes, stem, caption)


def _curves(table: pd.DataFrame, name: str) -> Figure | None:
    """Draw the measures against N, one line per system, where several N were run.

    The floor (no documents) and the ceiling (`Gold`) are horizontal lines.
    """
    drawn = table[table["metric"].isin(MEASURES) & table["mean"].notna()]
    if "N" not in drawn or drawn["N"].nunique() < 2:
        return None
    panels = {}
    for metric in (name for name in MEASURES if drawn["metric"].eq(name).any()):
        part = drawn[drawn["metric"].eq(metric)]
        # what answers and judges share is one context, and one point
        part = part.drop(columns=_SHARED.get(metric, []), errors="ignore")
        bounds = _bounds(part)
        systems = _system_names(part[~bounds])
        of_bounds = _system_names(part[bounds].drop(columns=["chunker", "k"], errors="ignore"))
        names = pd.concat([systems.replace("", name), of_bounds])
        part = part.assign(retriever=names, bound=bounds)
        panels[metric.replace("_", " ")] = part.drop_duplicates(["retriever", "N"])
    if max(part["retriever"].nunique() for part in panels.values()) > MOST_DRAWN:
        return None
    return plots.curves(panels, "mean")


def _bounds(rows: pd.DataFrame) -> pd.Series:
    """Say which rows are no system's: without documents, or of a retriever called Gold, such as
    "Gold, documents".
    """
    if "retriever" not in rows:
        return pd.Series(False, rows.index)
    return rows["retriever"].eq(NO_DOCUMENTS) | rows["retriever"].str.match(r"Gold\b")


def _system_names(rows: pd.DataFrame) -> pd.Series:
    """Name systems by retriever and what else varies between them, but N."""
    axes = rows.drop(columns="N")
    kept = [axis for axis in axes if axis == "retriever" or axes[axis].nunique() > 1]
    return _setting_names(axes[kept])


def _setting_names(table: pd.DataFrame) -> pd.Series:
    """Name the setting of each row of a table by the columns of a cell that it has; "" without."""
    names = pd.Series("", table.index)
    for axis in table.columns.intersection([*CELL], sort=False):
        names += ", " + table[axis].astype(str)
    return names.str.removeprefix(", ")


# -- factor by factor


def factor_table(rows: pd.DataFrame, factor: str, measure: str, name: str) -> ReportTable | None:
    """Compare the values of one factor within every setting of the others, question by question.

    Each context, answer or grade counts once, whatever stands behind it in the grid: a test of
    retrieval is not repeated for every prompt. p is corrected by Holm within the table.

    Returns
    -------
    The table of `ragbench.compare`, with ``pair`` ("BM25 - SIM"); its picture, where what is
    significant at .05 is filled, and None where no question differs; as ``finding`` which value is
    ahead of which, in how many settings. None where no setting has two values of the factor.
    """
    part, axes = run_parts(rows[rows["N"] > 0])[MEASURES[measure]]
    if factor not in axes:
        return None
    others = [axis for axis in axes if axis != factor]
    table = compare(part, factor, measure, by=others)
    if table.empty:  # no setting has two of its values
        return None
    table["pair"] = table["a"].astype(str) + " - " + table["b"].astype(str)
    words = measure.replace("_", " ")
    title = f"{name}, {words} by {FACTORS[factor]}: differences, with 95% intervals, p by Holm"
    finding = _finding(factor, table)
    laid_out = ReportTable.differences(table, others, f"{factor}_{measure}", title, finding)
    return replace(laid_out, figure=_draw_factor(table, words))


def _draw_factor(table: pd.DataFrame, measure: str) -> Figure | None:
    """Draw the differences; those that are 0 in every question are no points."""
    drawn = table[~never_differ(table)]
    if drawn.empty:
        return None
    names = drawn["pair"] + " | " + _setting_names(drawn)
    drawn = drawn.assign(row=names.str.removesuffix(" | "), holds=drawn["p_holm"] < 0.05)
    label = f"difference in {measure}; filled: p by Holm below .05"
    return plots.dots(drawn, "row", "difference", xlabel=label, filled="holds")


def _finding(factor: str, table: pd.DataFrame) -> str:
    """Say which value of a factor is ahead of which, in how many settings."""
    parts = []
    for (a, b), part in table.groupby(["a", "b"], sort=False):
        significant = part.loc[part["p_holm"] < 0.05, "difference"]
        higher_in = {a: (significant > 0).sum(), b: (significant <= 0).sum()}
        words = [f"{value} higher in {count}" for value, count in higher_in.items() if count]
        said = f"{', '.join(words) or 'no difference shown in any'} of {len(part)}"
        if never_differ(part).all():
            said = "equal in every question"
        parts.append(f"{a} against {b}: {said}")
    return f"{FACTORS[factor]}: {'; '.join(parts)}"


# -- grades and questions


def _grades_tables(rows: pd.DataFrame, name: str) -> Iterator[ReportTable]:
    """Yield the shares of the grades, a table for each scale of the judges."""
    graded, axes = run_parts(rows)[RIGHT]
    for number, (scale, places) in enumerate(rows_by_scale(graded), 1):
        table = _grades_table(graded[places], axes, scale, name)
        if number > 1:
            table = replace(table, stem=f"grades_{number}")
        yield table


def _grades_table(
    graded: pd.DataFrame, axes: list[str], scale: Mapping[int, str], name: str
) -> ReportTable:
    names = plots.grade_names(scale)
    count = {5: "five"}.get(len(scale), len(scale))
    cell = _setting_names(graded[axes])
    shares = grade_shares(graded.assign(cell=cell), "cell").drop(columns="seconds")
    cells = graded[axes].drop_duplicates().reset_index(drop=True)
    table = pd.concat([cells, shares.drop(columns="cell")], axis=1)
    figure = None
    if len(shares) <= MOST_DRAWN:
        figure = plots.stacked_shares(shares, "cell", names, "Shares of grades")
    caption = f"{name}: shares of the {count} grades"
    return ReportTable("grades", caption, table, table.rename(columns=names), figure)


def worst_questions(rows: pd.DataFrame, measure: str, count: int = 10) -> pd.DataFrame:
    """Return the questions that the system with the highest mean does worst, with their texts: of
    those below its mean.
    """
    rows = rows[rows["N"] > 0]
    averages = rows.groupby("system", sort=False)[measure].mean()
    of_best = rows[rows["system"] == averages.idxmax()]
    below = of_best[of_best[measure].lt(averages.max()).fillna(False)]
    worst = below.sort_values([measure, "ir_score"], kind="stable").head(count)
    columns = ["system", "question", "reference", "answer", *MEASURES, "grade"]
    known = [name for name in columns if rows[name].notna().any()]
    return worst[known].reset_index(drop=True)
