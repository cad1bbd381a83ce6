"""The audit of any data frame of rows, a notebook's own as well as an experiment's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ragbench.audit.checks import ANSWERS, GRADES, RETRIEVAL, Check, counted, failed, names, reasons
from ragbench.audit.ranges import cell_name, ranges, require
from ragbench.errors import ConfigError

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("table", "check", "rows", "of", "most_in", "mean", "if_worst", "if_best", "detail")
Bounds = tuple[float, float]


def audit_rows(
    rows: pd.DataFrame,
    score: str | Sequence[str] | Mapping[str, Bounds] = (),
    by: str | Sequence[str] = (),
    *,
    bounds: Bounds = (0.0, 1.0),
    unit: str = "question_id",
    within: Sequence[str] = (),
    table: str = "",
) -> pd.DataFrame:
    """Count what could have gone wrong in silence behind the means of a data frame.

    Parameters
    ----------
    rows : one row per question and cell. Read where they are there: ``status``, ``error_step``, ``error_kind``,
        ``error``, ``reason``, ``note`` (why a row failed or is unscored), ``answer``, ``abstained``, ``finish``, ``N``,
        ``k``, ``hits``, ``zero_hits``, ``context_tokens``, ``prompt_tokens``, ``prompt_estimate``, ``judge_repairs``,
        ``judge_shown``, ``judge_grades_got``, ``judge_answer_cut``, ``judge_prompt_tokens``, ``judge_prompt_estimate``.
    score : column, or columns, whose mean is reported; or a dict column -> its own bounds. NaN is unscored.
    by : columns that make the cells of the table.
    bounds : (worst, best) value a score can have.
    unit : column that names the question, for duplicates and for cells that rest on different questions.
    within : columns of ``by`` whose values have questions of their own (data sets, languages): cells are compared
        within them.
    table : name for the checks that belong to no score; default "rows".

    Returns
    -------
    DataFrame, one row per table and check, columns ``COLUMNS``: ``rows`` (how many show it), ``of`` (how many could),
    ``most_in`` (the cell with most of them), ``detail``. For "unscored", where there are any, the cell is the one whose
    mean is the least certain, with its ``mean``, ``if_worst`` and ``if_best``, see ``ranges``. What the columns do not
    allow to say is listed as "not checked".

    Raises
    ------
    ConfigError for a column that is not there.
    """
    by = [by] if isinstance(by, str) else list(by)
    scores = dict(score) if isinstance(score, Mapping) else dict.fromkeys([score] if isinstance(score, str) else score)
    require(rows, [*scores, *by, *within])
    if set(within) - set(by):
        raise ConfigError(f"within={list(within)}", f"columns of by={by}", "add them to by")
    book = Book(rows, by, unit, within)
    for name, own in scores.items():
        book.score(name, name, own or bounds)
    name = table or "rows"
    if "status" in rows or "error" in rows:
        book.failures(name)
    if unit in rows:
        book.duplicates(name)
    book.checks(name, (*RETRIEVAL, *ANSWERS, *GRADES))
    return book.frame()


class Book:
    """The checks made so far of one frame of rows."""

    def __init__(
        self, rows: pd.DataFrame, by: Sequence[str], unit: str = "question_id", within: Sequence[str] = ()
    ) -> None:
        self.rows, self.by, self.unit, self.within = rows.reset_index(drop=True), list(by), unit, list(within)
        self.made: list[dict[str, Any]] = []

    def frame(self) -> pd.DataFrame:
        """Return what was found."""
        return as_frame(self.made)

    def add(self, table: str, check: str, flagged: Any, of: int, detail: str = "", **more: Any) -> None:
        """Note one check: which rows show the fault, of how many that could."""
        flagged = np.asarray(flagged, bool)
        entry = {"table": table, "check": check, "rows": int(flagged.sum()), "of": int(of), "most_in": ""}
        if self.by and flagged.any():
            sizes = self.rows[flagged].groupby(self.by, sort=False, dropna=False, observed=True).size()
            entry["most_in"] = f"{cell_name(sizes.idxmax())}: {sizes.max()}"
        self.made.append(entry | {"detail": detail if flagged.any() else ""} | more)

    def score(self, table: str, column: str, bounds: Bounds, missing: str = "no reason given") -> None:
        """Check one score: unscored rows and why, the mean's range, cells that rest on different questions."""
        import pandas as pd

        values = pd.to_numeric(self.rows[column], errors="coerce").astype(float)
        unscored = values.isna()
        why = reasons(self.rows[unscored]).replace("", missing)
        cells = ranges(self.rows, column, self.by, bounds)
        more: dict[str, Any] = {}
        if unscored.any():
            worst = cells.loc[(cells["if_best"] - cells["if_worst"]).abs().idxmax()]
            more = {name: float(worst[name]) for name in ("mean", "if_worst", "if_best")}
            if self.by:
                more["most_in"] = f"{cell_name(tuple(worst[name] for name in self.by))}: {worst['unscored']}"
        self.add(table, "unscored", unscored, len(values), counted(why) if len(why) else "", **more)
        low, high = sorted(bounds)
        # A cosine of unit vectors in single precision may be 1.0000002.
        wild = values.notna() & ((values < low - 1e-6) | (values > high + 1e-6))
        self.add(table, "out of bounds", wild, int(values.notna().sum()), f"outside [{low:g}, {high:g}]")
        if self.by:
            self._same_questions(table, ~unscored)

    def _same_questions(self, table: str, scored: pd.Series) -> None:
        """Compare the questions that the cells rest on, within each value of ``within``."""
        import pandas as pd

        keys = [name for name in self.by if name not in self.within]
        fewer, cells, told = [], 0, []
        parts = self.rows.groupby(self.within, sort=False, dropna=False) if self.within else [("", self.rows)]
        for _, part in parts:
            kept = part[scored[part.index]]
            names = part[keys].drop_duplicates() if keys else pd.DataFrame([0])
            per_cell = kept.groupby(keys, sort=False, dropna=False).size() if keys else pd.Series([len(kept)])
            cells += len(names)
            if self.unit in part and keys:
                pairs = kept[[*keys, self.unit]].drop_duplicates()
                whole = pairs[self.unit].nunique()
                per_cell = pairs.groupby(keys, sort=False, dropna=False).size()
            else:
                whole = int(per_cell.max()) if len(per_cell) else 0
            sizes = [*per_cell, *[0] * (len(names) - len(per_cell))]
            if min(sizes, default=whole) < whole:
                fewer += [size for size in sizes if size < whole]
                told.append(f"n from {min(sizes)} to {max(sizes)} of {whole}")
        self.made.append(
            {"table": table, "check": "cells with unequal n", "rows": len(fewer), "of": cells, "most_in": "",
             "detail": "; ".join(told[:3])}
        )  # fmt: skip

    def failures(self, table: str) -> None:
        """Count failed rows by kind."""
        flagged = failed(self.rows)
        self.add(table, "failed", flagged, len(flagged), counted(reasons(self.rows[flagged])))

    def duplicates(self, table: str) -> None:
        """Count rows that repeat a question within a cell."""
        twice = self.rows.duplicated([*self.by, self.unit], keep="last")
        self.add(table, "duplicates", twice, len(twice), "the same question twice in one cell")

    def checks(self, table: str, checks: Sequence[Check]) -> None:
        """Make the checks for which the columns are there, and list the others."""
        open_checks = []
        for check in checks:
            if all(name in self.rows for name in check.columns):
                looked_at = check.looked_at(self.rows)
                self.add(table, check.name, check.flagged(self.rows), int(looked_at.sum()), check.detail)
            else:
                open_checks.append(check)
        if open_checks:
            self.made.append(
                {"table": table, "check": "not checked", "rows": 0, "of": 0, "most_in": "",
                 "detail": f"no such columns: {names(open_checks)}"}
            )  # fmt: skip


def as_frame(made: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Return checks as a data frame with all columns."""
    import pandas as pd

    frame = pd.DataFrame(list(made), columns=list(COLUMNS))
    for name in ("mean", "if_worst", "if_best"):
        frame[name] = pd.to_numeric(frame[name]).astype(float)
    return frame


def render(frame: pd.DataFrame) -> str:
    """Write an audit for the terminal: per table what was found, then on one line what was looked for and not found."""
    lines: list[str] = []
    for table, part in frame.groupby("table", sort=False):
        lines.append(f"{table}")
        clean, empty = [], []
        for row in part.itertuples():
            if row.check == "not checked":
                lines.append(f"  {row.check:28s}{row.detail}")
            elif row.rows:
                where = f"  most in {row.most_in}" if row.most_in else ""
                mean = ""
                if row.if_worst == row.if_worst:
                    mean = f"  mean {row.mean:.3f}, could be {row.if_worst:.3f} to {row.if_best:.3f}"
                detail = f"  ({row.detail})" if row.detail else ""
                lines.append(f"  {row.check:28s}{row.rows} of {row.of}{mean}{where}{detail}")
            elif row.of:
                clean.append(row.check)
            else:
                empty.append(row.check)
        ends = {"none": clean, "no row to look at": empty}
        lines += [f"  {head:28s}{', '.join(some)}" for head, some in ends.items() if some]
    return "\n".join(lines)
