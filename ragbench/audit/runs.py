"""The audit of a run of an experiment: its rows, IR scores, answers and grades, each a table of its own."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ragbench.audit.checks import ANSWERS, GRADES, RETRIEVAL
from ragbench.audit.rows import Book, as_frame
from ragbench.errors import DataError
from ragbench.experiment.rows import AXIS_COLUMNS

if TYPE_CHECKING:
    import pandas as pd

CELL = tuple(name for name in AXIS_COLUMNS if name != "question_id")
RETRIEVED = ("data", "chunker", "retriever", "k", "N")
ANSWERED = (*RETRIEVED, "generator")
RIGHT = "share of grade 5"


def audit(run: str | os.PathLike[str] | pd.DataFrame) -> pd.DataFrame:
    """List per table of a run what could have gone wrong in silence.

    Parameters
    ----------
    run : name or folder of a run, or its rows as ``load_rows`` gives them (then without the manifest, which says how
        many rows there should be).

    Returns
    -------
    DataFrame as from ``audit_rows``, with the tables "rows", "IR score" (cells with documents; each context once,
    whatever the number of generators and judges), "answers" and "share of grade 5".

    Raises
    ------
    DataError for a run that does not exist or has no rows.
    """
    from ragbench.experiment import load_manifest, load_rows

    if isinstance(run, str | os.PathLike):
        rows = load_rows(run)
        try:
            manifest: Mapping[str, Any] = load_manifest(run)
        except DataError:
            manifest = {}
    else:
        rows, manifest = run, {}
    if rows.empty:
        raise DataError("a run without rows", "at least one row", "run the experiment first")
    current = in_grid_order(current_rows(rows), manifest)
    made = _rows_table(rows, current, manifest)
    found = scored_contexts(current)
    if len(found):
        book = _book(found, RETRIEVED)
        book.score("IR score", "ir_score", (0.0, 1.0), "no references")
        book.checks("IR score", RETRIEVAL)
        made += book.made
    answers = once(current[current["generator"] != "none"], ANSWERED, "answer")
    if len(answers):
        book = _book(answers, ANSWERED)
        book.checks("answers", ANSWERS)
        made += book.made
    grades = graded(current)
    if len(grades):
        book = _book(grades, CELL)
        book.score(RIGHT, RIGHT, (0.0, 1.0))
        book.checks(RIGHT, GRADES)
        made += book.made
    return as_frame(made)


def current_rows(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that count: of several under the same names (older settings in one file) the last one."""
    return rows.drop_duplicates([*AXIS_COLUMNS], keep="last").reset_index(drop=True)


def in_grid_order(rows: pd.DataFrame, manifest: Mapping[str, Any]) -> pd.DataFrame:
    """Return the rows by cell, in the order in which the grid names its values: a file has them as they came."""
    places = {axis: {name: i for i, name in enumerate(names)} for axis, names in manifest.get("grid", {}).items()}
    order = rows[list(CELL)].copy()
    for axis, place in places.items():
        order[axis] = rows[axis].map(place)
    # What is named in no grid stands first: the rows without documents.
    return rows.loc[order.fillna(-1).sort_values(list(CELL), kind="stable").index].reset_index(drop=True)


def once(rows: pd.DataFrame, cell: Sequence[str], column: str) -> pd.DataFrame:
    """Return each question once per cell: the row that has the column, where one has it."""
    there = rows[column].isna().sort_values(kind="stable").index
    return rows.loc[there].drop_duplicates([*cell, "question_id"]).sort_index()


def scored_contexts(rows: pd.DataFrame) -> pd.DataFrame:
    """Return one row per question and retrieved context (N > 0)."""
    return once(rows[rows["N"] > 0], RETRIEVED, "ir_score")


def graded(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that were to be graded, with 1.0 for grade 5, 0.0 for another one, NaN where there is none."""
    found = rows[rows["judge"] != "none"]
    right = found["grade"].eq(5).astype(object).where(found["grade"].notna(), np.nan).astype(float)
    return found.assign(**{RIGHT: right})


def varying(rows: pd.DataFrame, cell: Sequence[str]) -> list[str]:
    """Return the columns of a cell that have more than one value, and the last one where none has."""
    return [name for name in cell if rows[name].nunique(dropna=False) > 1]


def _book(rows: pd.DataFrame, cell: Sequence[str]) -> Book:
    by = varying(rows, cell)
    return Book(rows, by, within=[name for name in by if name == "data"])


def _rows_table(rows: pd.DataFrame, current: pd.DataFrame, manifest: Mapping[str, Any]) -> list[dict[str, Any]]:
    book = _book(current, CELL)
    book.failures("rows")
    older = Book(rows, varying(rows, CELL))
    older.add(
        "rows", "duplicates", rows.duplicated([*AXIS_COLUMNS], keep="last"), len(rows),
        "several settings under the same names: the last one made counts",
    )  # fmt: skip
    return [*book.made, *older.made, _missing(current, manifest)]


def _missing(rows: pd.DataFrame, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Count the rows that the manifest calls for: in the cells that are there, and in those without a row yet."""
    known = manifest.get("axes", {}).get("data", {})
    missing = wanted = 0
    worst = ("", 0)
    for cell, group in rows.groupby(list(CELL), sort=False, dropna=False):
        asked = known.get(cell[0], {}).get("questions", rows.loc[rows["data"] == cell[0], "question_id"].nunique())
        gone = max(0, asked - group["question_id"].nunique())
        missing, wanted = missing + gone, wanted + asked
        worst = max(worst, (", ".join(map(str, cell)), gone), key=lambda pair: pair[1])
    # A run that was stopped early has whole cells (a second data set) without a single row to know them by.
    unseen = max(0, next((run.get("rows", 0) for run in reversed(manifest.get("runs", ()))), 0) - wanted)
    missing, wanted = missing + unseen, wanted + unseen
    worst = max(worst, ("cells without any row", unseen), key=lambda pair: pair[1])
    return {
        "table": "rows", "check": "not made yet", "rows": missing, "of": wanted,
        "most_in": f"{worst[0]}: {worst[1]}" if missing else "",
        "detail": "the run was stopped: run it again to go on" if missing else "",
    }  # fmt: skip
