"""What could have gone wrong in silence behind a table: counted, and with what it could have done to the mean.

An audit never mends anything and never calls a model: it reads what the rows say of themselves.

Reading order: ``ranges`` (the mean if the unscored rows had all been worst or best) -> ``audit_rows`` (any data frame)
-> ``audit`` (an experiment) -> ``audit_ledger`` (cells beside the papers') -> ``render``.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ragbench.errors import ConfigError, DataError, check_known, unknown
from ragbench.experiment import load_manifest, load_rows
from ragbench.experiment.rows import AXIS_COLUMNS, run_folder
from ragbench.experiment.rows import COLUMNS as ROW_COLUMNS
from ragbench.llm import Cassette
from ragbench.papers import IDENTITY, ledger, published, published_items
from ragbench.report.checks import ANSWERS, GRADES, RETRIEVAL, Fault, counted, failed, reasons

Bounds = tuple[float, float]
Entry = dict[str, Any]
COLUMNS = ("table", "check", "rows", "of", "most_in", "mean", "if_worst", "if_best", "detail")
CELL = tuple(name for name in AXIS_COLUMNS if name != "question_id")
RETRIEVED = ("data", "chunker", "retriever", "k", "N")
ANSWERED = (*RETRIEVED, "generator")
RIGHT = "share of grade 5"
_AS_THEY_COME = {"sort": False, "dropna": False, "observed": True}
# Of these nothing is read, and in a large run they are the longest.
_NOT_AUDITED = ("key", "answer_key", "prompt_sha256", "judge_prompt_sha256", "judge_raw")
_AUDITED = tuple(name for name in ROW_COLUMNS if name not in _NOT_AUDITED)
# What a ledger cell can be, by the unit in which the paper gives it.
_LEDGER_BOUNDS = {"percent": (0.0, 100.0), "share": (0.0, 1.0), "mean IR score": (0.0, 1.0), "accuracy": (0.0, 1.0)}


def ranges(
    rows: pd.DataFrame, score: str, by: Sequence[str] = (), bounds: tuple[float, float] = (0.0, 1.0)
) -> pd.DataFrame:
    """Say per cell what the mean is, and what it would be with every unscored row at its worst or best.

    Parameters
    ----------
    score : column of the score; missing or NaN is unscored.
    by : columns that make the cells of the table; none: one cell.
    bounds : (worst, best) value the score can have. For a score of which less is better: (1, 0).

    Beside ``by`` the columns are n (scored), unscored, mean (over the scored; NaN when there is none), if_worst and
    if_best, between which the true mean of all rows lies, whatever the reason rows are unscored.

    Source: Manski (1990), worst-case bounds for missing outcomes.
    """
    check_known("column", [score, *by], rows.columns)
    worst, best = bounds
    if worst == best:
        raise ConfigError(f"bounds {bounds}", "the worst and the best value of the score", "e.g. (0, 1)")
    values = pd.to_numeric(rows[score], errors="coerce").astype(float)
    keys = [rows[name] for name in by] or [pd.Series(0, index=rows.index, name="")]
    sums = values.groupby(keys, **_AS_THEY_COME).agg(["count", "size", "sum"])
    cells = sums.index.to_frame(index=False)[list(by)]  # an axis may be called "size"
    count, size, total = (sums[name].to_numpy() for name in ("count", "size", "sum"))
    cells["n"], cells["unscored"] = count, size - count
    cells["mean"] = total / np.where(count > 0, count, np.nan)
    for name, value in (("if_worst", worst), ("if_best", best)):
        cells[name] = (total + value * (size - count)) / size
    return cells


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

    ConfigError for columns of ``within`` that are not in ``by``.

    Parameters
    ----------
    rows : one row per question and cell. Read where they are there: ``status``, ``error_step``, ``error_kind``,
        ``error``, ``reason``, ``note`` (why a row failed or is unscored), and the columns of `ragbench.report.checks`.
    score : column, or columns, whose mean is reported; or a dict column -> its own bounds. NaN is unscored.
    by : columns that make the cells of the table.
    bounds : (worst, best) value a score can have.
    unit : column that names the question, for duplicates and for cells that rest on different questions.
    within : columns of ``by`` whose values have questions of their own (data sets, languages): cells are compared
        within them.
    table : name for the checks that belong to no score; default "rows".

    One row per table and check: ``rows`` (how many show it), ``of`` (how many could), ``most_in`` (the cell with most
    of them), ``detail``. For "unscored" the cell is the one whose mean is the least certain, with its ``mean``,
    ``if_worst`` and ``if_best``, see ``ranges``. What the columns do not allow to say is listed as "not checked".
    """
    by = [by] if isinstance(by, str) else list(by)
    scores = dict(score) if isinstance(score, Mapping) else dict.fromkeys([score] if isinstance(score, str) else score)
    check_known("column", [*scores, *by, *within], rows.columns)
    if set(within) - set(by):
        raise ConfigError(f"within={list(within)}", f"columns of by={by}", "add them to by")
    book = _Book(rows, by, unit, within)
    for name, own_bounds in scores.items():
        book.score(name, name, own_bounds or bounds)
    name = table or "rows"
    if "status" in rows or "error" in rows:
        book.failures(name)
    if unit in rows:
        book.add(
            name,
            "duplicates",
            rows.duplicated([*by, unit], keep="last"),
            len(rows),
            "the same question twice in one cell",
        )
    book.checks(name, (*RETRIEVAL, *ANSWERS, *GRADES))
    return _as_frame(book.entries)


class _Book:
    """The checks made so far of one frame of rows."""

    def __init__(
        self, rows: pd.DataFrame, by: Sequence[str], unit: str = "question_id", within: Sequence[str] = ()
    ) -> None:
        self.rows, self.by, self.unit, self.within = rows.reset_index(drop=True), list(by), unit, list(within)
        self.entries: list[Entry] = []

    def add(self, table: str, check: str, flagged: Any, of: int, detail: str = "", **more: Any) -> None:
        """Note one check: which rows show the fault, of how many that could."""
        flagged = np.asarray(flagged, bool)
        most_in = ""
        if self.by and flagged.any():
            sizes = self.rows[flagged].groupby(self.by, **_AS_THEY_COME).size()
            most_in = f"{_cell_name(sizes.idxmax())}: {sizes.max()}"
        self.entries.append(_entry(table, check, flagged.sum(), of, most_in, detail) | more)

    def score(self, table: str, column: str, bounds: Bounds, missing: str = "no reason given") -> None:
        """Fault one score: unscored rows and why, the mean's range, cells that rest on different questions."""
        values = pd.to_numeric(self.rows[column], errors="coerce").astype(float)
        unscored = values.isna()
        why = reasons(self.rows[unscored]).replace("", missing)
        cells = ranges(self.rows, column, self.by, bounds)
        more: Entry = {}
        if unscored.any():
            place = (cells["if_best"] - cells["if_worst"]).abs().idxmax()
            widest = {name: cells.at[place, name] for name in cells}  # a row of its own would turn NaN into NA
            more = {name: float(widest[name]) for name in ("mean", "if_worst", "if_best")}
            if self.by:
                more["most_in"] = f"{_cell_name(tuple(widest[name] for name in self.by))}: {widest['unscored']}"
        self.add(table, "unscored", unscored, len(values), counted(why), **more)
        low, high = sorted(bounds)
        # A cosine of unit vectors in single precision may be 1.0000002.
        wild = values.notna() & ~values.between(low - 1e-6, high + 1e-6)
        self.add(table, "out of bounds", wild, int(values.notna().sum()), f"outside [{low:g}, {high:g}]")
        if self.by:
            self._same_questions(table, ~unscored)

    def _same_questions(self, table: str, scored: pd.Series) -> None:
        """Compare the questions that the cells rest on, within each value of ``within``."""
        by, within = ([self.rows[name] for name in names] for names in (self.by, self.within))
        # Without names, the nth scored row of a cell counts as question n.
        asked = self.rows.get(self.unit, scored.groupby(by, **_AS_THEY_COME).cumsum()).where(scored)
        fewer, cells, spans = 0, 0, []
        for _, part in asked.groupby(within or (lambda _: 0), **_AS_THEY_COME):
            sizes, whole = part.groupby(by, **_AS_THEY_COME).nunique(), part.nunique()
            cells += len(sizes)
            if sizes.min() < whole:
                fewer += int((sizes < whole).sum())
                spans.append(f"n from {sizes.min()} to {sizes.max()} of {whole}")
        self.entries.append(_entry(table, "cells with unequal n", fewer, cells, detail="; ".join(spans[:3])))

    def failures(self, table: str) -> None:
        """Count failed rows by kind."""
        flagged = failed(self.rows)
        self.add(table, "failed", flagged, len(flagged), counted(reasons(self.rows[flagged])))

    def checks(self, table: str, checks: Sequence[Fault]) -> None:
        """Make the checks for which the columns are there, and list the others."""
        lacking = [check.name for check in checks if not set(check.columns) <= set(self.rows.columns)]
        for check in checks:
            if check.name not in lacking:
                self.add(table, check.name, check.flagged(self.rows), check.of(self.rows), check.detail)
        if lacking:
            self.entries.append(_not_checked(table, f"no such columns: {', '.join(lacking)}"))


def _cell_name(values: object) -> str:
    """Write the values that name a cell on one line."""
    return ", ".join(map(str, values)) if isinstance(values, tuple) else str(values)


def _entry(table: str, check: str, rows: int, of: int, most_in: str = "", detail: str = "") -> Entry:
    counts = {"table": table, "check": check, "rows": int(rows), "of": int(of)}
    return counts | {"most_in": most_in if rows else "", "detail": detail if rows else ""}


def _not_checked(table: str, why: str) -> Entry:
    return _entry(table, "not checked", 0, 0) | {"detail": why}


class AuditTable(pd.DataFrame):
    """A frame of checks that a notebook shows as `render` writes it."""

    def _repr_html_(self) -> str:
        return f'<pre style="white-space: pre-wrap">{escape(render(self))}</pre>'


def _as_frame(entries: Sequence[Entry]) -> AuditTable:
    """Return checks as a data frame with all columns."""
    frame = AuditTable(list(entries), columns=list(COLUMNS))
    for name in ("mean", "if_worst", "if_best"):
        frame[name] = pd.to_numeric(frame[name]).astype(float)
    return frame


def audit(
    run: str | os.PathLike[str] | pd.DataFrame, *, cassette: str | os.PathLike[str] | None = None
) -> pd.DataFrame:
    """List per table of a run what could have gone wrong in silence, as ``audit_rows`` does. DataError without rows.

    ``run`` is its name or folder, or its rows (then without the manifest, which says how many rows there should be, and
    without the cassette). The tables are "rows", "IR score" (cells with documents; each context once, whatever the
    number of generators and judges), "answers", "share of grade 5" and "cassette" (replies that are not as they were
    recorded).
    """
    manifest: Mapping[str, Any] = {}
    tape = None
    if isinstance(run, pd.DataFrame):
        rows = run
    else:
        rows, tape = load_rows(run, _AUDITED), cassette_of(run, cassette)
        with contextlib.suppress(DataError):
            manifest = load_manifest(run)
    if rows.empty:
        what = "the table of rows" if rows is run else f"the run {str(run)!r}"
        raise DataError(f"{what} has no rows", "at least one", "run the experiment first")
    current = in_grid_order(current_rows(rows), manifest)
    book, older = _book(current, CELL), _Book(rows, varying(rows, CELL))
    book.failures("rows")
    again = rows.duplicated([*AXIS_COLUMNS], keep="last")
    older.add("rows", "duplicates", again, len(rows), "several settings under the same names: the last one made counts")
    entries = [*book.entries, *older.entries, _missing(current, manifest)]
    for table, part, cell, score, missing, checks in (
        ("IR score", scored_contexts(current), RETRIEVED, "ir_score", "no references", RETRIEVAL),
        ("answers", answered(current), ANSWERED, None, "", ANSWERS),
        (RIGHT, graded(current), CELL, RIGHT, "no reason given", GRADES),
    ):
        if len(part):
            book = _book(part, cell)
            if score:
                book.score(table, score, (0.0, 1.0), missing)
            book.checks(table, checks)
            entries += book.entries
    return _as_frame([*entries, *(_recorded(rows, tape) if manifest else [])])


def _book(rows: pd.DataFrame, cell: Sequence[str]) -> _Book:
    by = varying(rows, cell)
    return _Book(rows, by, within=[name for name in by if name == "data"])


def _recorded(rows: pd.DataFrame, path: Path | None) -> list[Entry]:
    """Check the replies that the rows rest on."""
    if path is not None:
        with Cassette(path, mode="replay") as cassette:
            problems, count = cassette.verify(), cassette.rows("SELECT count(*) FROM replies")[0][0]
        more = [f"and {len(problems) - 3} more"] if len(problems) > 3 else []
        detail = "; ".join([*problems[:3], *more])
        return [_entry("cassette", "changed or damaged", len(problems), max(count, 1), detail=detail)]
    if rows["digest"].notna().any() or rows["judge_digest"].notna().any():
        return [_not_checked("cassette", "no cassette in the run's folder: name it with --cassette")]
    return []


def _missing(rows: pd.DataFrame, manifest: Mapping[str, Any]) -> Entry:
    """Count the rows that the manifest calls for: in the cells that are there, and in those without a row yet."""
    known = manifest.get("axes", {}).get("data", {})
    questions = rows.groupby("data")["question_id"].nunique().to_dict()
    questions |= {name: facts["questions"] for name, facts in known.items() if "questions" in facts}
    made = rows.groupby(list(CELL), sort=False, dropna=False)["question_id"].nunique()
    wanted = made.index.get_level_values("data").map(questions).to_numpy()
    gone = (wanted - made).clip(lower=0)
    # A run that was stopped early has whole cells (a second data set) without a single row to know them by.
    unseen = max(0, next((run.get("rows", 0) for run in reversed(manifest.get("runs", ()))), 0) - wanted.sum())
    in_cell = f"{_cell_name(gone.idxmax())}: {gone.max()}"
    most_in = in_cell if gone.max() >= unseen else f"cells without any row: {unseen}"
    stopped = "the run was stopped: run it again to go on"
    return _entry("rows", "not made yet", gone.sum() + unseen, wanted.sum() + unseen, most_in, stopped)


def cassette_of(run: str | os.PathLike[str], given: str | os.PathLike[str] | None) -> Path | None:
    """Return the path of a run's cassette, None where it has none; DataError when the one given is not there."""
    path = Path(given).expanduser() if given is not None else run_folder(run) / "cassette.sqlite"
    if given is not None and not path.is_file():
        raise DataError(f"there is no cassette {path}", "the file that recorded the run", "check --cassette")
    return path if path.is_file() else None


def current_rows(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that count: of several under the same names (older settings in one file) the last one."""
    older = rows.duplicated([*AXIS_COLUMNS], keep="last")
    return rows[~older].reset_index(drop=True) if older.any() else rows  # two copies of a large run do not fit


def in_grid_order(rows: pd.DataFrame, manifest: Mapping[str, Any]) -> pd.DataFrame:
    """Return the rows by cell, in the order in which the grid names its values: a file has them as they came."""
    places = {axis: {name: i for i, name in enumerate(names)} for axis, names in manifest.get("grid", {}).items()}
    order = rows[list(CELL)].copy()
    for axis, place in places.items():
        order[axis] = rows[axis].map(place)
    # What is named in no grid stands first: the rows without documents.
    sorted_rows = order.fillna(-1).sort_values(list(CELL), kind="stable").index
    return rows if sorted_rows.is_monotonic_increasing else rows.loc[sorted_rows].reset_index(drop=True)


def select(rows: pd.DataFrame, wanted: pd.Series) -> pd.DataFrame:
    """Return the rows that are wanted; all of them are not copied."""
    return rows if wanted.all() else rows[wanted]


def _once(rows: pd.DataFrame, cell: Sequence[str], column: str) -> pd.DataFrame:
    """Return each question once per cell: the row that has the column, where one has it."""
    there = rows[column].isna().sort_values(kind="stable").index
    again = rows.loc[there, [*cell, "question_id"]].duplicated()
    return rows.loc[again.index[~again].sort_values()] if again.any() else rows


def scored_contexts(rows: pd.DataFrame) -> pd.DataFrame:
    """Return one row per question and retrieved context (N > 0)."""
    return _once(select(rows, rows["N"] > 0), RETRIEVED, "ir_score")


def answered(rows: pd.DataFrame) -> pd.DataFrame:
    """Return one row per question and answer."""
    return _once(select(rows, rows["generator"] != "none"), ANSWERED, "answer")


def graded(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that were to be graded, with 1.0 for grade 5, 0.0 for another one, NaN where there is none."""
    asked = select(rows, rows["judge"] != "none")
    right = asked["grade"].eq(5).astype(object).where(asked["grade"].notna(), np.nan).astype(float)
    return asked.assign(**{RIGHT: right})


def varying(rows: pd.DataFrame, cell: Sequence[str]) -> list[str]:
    """Return the columns of a cell that have more than one value."""
    return [name for name in cell if rows[name].nunique(dropna=False) > 1]


def audit_ledger(paper: str, item: str, by: str | None = None, *, bounds: Bounds | None = None) -> pd.DataFrame:
    """List what could have gone wrong in silence behind the measured cells of one published item, a table per ``by``.

    ConfigError for an item that was not published.

    Cells without a number and why, questions unscored (with the range of the cell whose value is the least certain),
    cells that rest on different numbers of questions, cells of which nobody said how many questions they rest on (an
    identity rests on printed numbers). ``bounds`` are (worst, best) of a cell; default by the paper's unit (percent,
    share ...).
    """
    cells = ledger(paper, item)
    if cells.empty:
        raise unknown(f"item of {paper}", item, published_items(paper))
    cells = cells[cells["ours_by"].notna() | cells["recorded_by"].notna()]
    cells = cells.assign(
        who=cells["ours_by"].fillna(cells["recorded_by"]),
        value=pd.to_numeric(cells["ours"].fillna(cells["recorded"]), errors="coerce"),
        n=pd.to_numeric(cells["n"], errors="coerce"),
        unscored=pd.to_numeric(cells["unscored"], errors="coerce").fillna(0),
        unit=None,
    )
    if item in published_items(paper):
        known = published(paper, item)
        cells = cells.drop(columns="unit").merge(known[["row", "column", "unit"]], on=["row", "column"], how="left")
        # A row of our own has the unit of its column, where the column has one.
        alike = known.groupby("column")["unit"].agg(lambda units: units.iloc[0] if units.nunique() == 1 else None)
        cells["unit"] = cells["unit"].fillna(cells["column"].map(alike))
    cells["limits"] = [bounds or _LEDGER_BOUNDS.get(unit) for unit in cells["unit"]]
    tables = cells[cells["who"] == by] if by is not None else cells
    parts = [_ledger_table(f"{item}: {name}", part) for name, part in tables.groupby("who", sort=False)]
    return _as_frame([entry for part in parts for entry in part])


def _ledger_table(table: str, cells: pd.DataFrame) -> list[Entry]:
    def entry(check: str, flagged: pd.Series, of: float, detail: str = "", rows: float | None = None) -> Entry:
        names = cells.loc[flagged, "row"].astype(str) + ", " + cells.loc[flagged, "column"].astype(str)
        first = "" if names.empty else names.iloc[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "")
        return _entry(table, check, int(flagged.sum() if rows is None else rows), int(of), first, detail)

    n, missing, empty = cells["n"], cells["unscored"], cells["value"].isna()
    why = cells.loc[empty, "note"].fillna("").astype(str).str.slice(0, 80)
    countless = n.isna() & ~empty & ~cells["who"].str.startswith(IDENTITY)
    unscored = entry("unscored", missing > 0, n.sum() + missing.sum(), rows=missing.sum())
    return [
        entry("cells without a number", empty, len(cells), counted(why)),
        entry("cells without n", countless, len(cells)),
        unscored | _range(cells),
        entry("cells with unequal n", n < n.max(), n.notna().sum(), f"n from {n.min():g} to {n.max():g}"),
    ]


def _range(cells: pd.DataFrame) -> Entry:
    """Return the mean's range of the cell that its unscored questions could move most."""
    known = cells[cells["limits"].notna() & (cells["unscored"] > 0) & cells["value"].notna() & cells["n"].notna()]
    if known.empty:
        return {}
    total, sums = known["n"] + known["unscored"], known["value"] * known["n"]
    worst, best = ((sums + known["limits"].str[end] * known["unscored"]) / total for end in (0, 1))
    at = (best - worst).abs().idxmax()
    name = f"{known.at[at, 'row']}, {known.at[at, 'column']}: {known.at[at, 'unscored']:g}"
    return {"mean": known.at[at, "value"], "if_worst": worst[at], "if_best": best[at], "most_in": name}


def render(frame: pd.DataFrame) -> str:
    """Write an audit for the terminal: per table what was found, then on one line what was looked for and not found."""
    lines: list[str] = []
    for table, part in frame.groupby("table", sort=False):
        lines.append(f"{table}")
        for row in part[(part["rows"] > 0) | (part["check"] == "not checked")].itertuples():
            if row.check == "not checked":
                lines.append(f"  {row.check:28s}{row.detail}")
                continue
            mean = "no mean" if np.isnan(row.mean) else f"mean {row.mean:.3f}"
            ends = "" if np.isnan(row.if_worst) else f"  {mean}, could be {row.if_worst:.3f} to {row.if_best:.3f}"
            where = f"  most in {row.most_in}" if row.most_in else ""
            lines.append(
                f"  {row.check:28s}{row.rows} of {row.of}{ends}{where}" + (f"  ({row.detail})" if row.detail else "")
            )
        clean = part[(part["rows"] == 0) & (part["check"] != "not checked")]
        for head, some in (("none", clean[clean["of"] > 0]), ("no row to look at", clean[clean["of"] == 0])):
            lines += [f"  {head:28s}{', '.join(some['check'])}"] if len(some) else []
    return "\n".join(lines)
