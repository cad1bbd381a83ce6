"""What could have gone wrong in silence behind a table: counted, and with what it could have done
to the mean.

An audit never mends anything and never calls a model: it reads what the rows say of themselves.

Reading order: ``audit_rows`` (any data frame) -> ``audit`` (an experiment) -> ``audit_ledger``
(cells beside the papers') -> ``_unscored`` (the mean if the unscored rows had all been worst or
best) -> ``render``.
"""

from __future__ import annotations

import contextlib
import os
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ragbench.errors import ConfigError, DataError, check_known, unknown
from ragbench.experiment import load_manifest, load_rows
from ragbench.experiment.axes import NONE, QUERY_ONLY
from ragbench.experiment.rows import AXIS_COLUMNS, fully_right, run_folder
from ragbench.llm import Cassette
from ragbench.llm.reply import CUT_SHORT
from ragbench.papers import IDENTITY, ledger, published, published_items

_Bounds = tuple[float, float]
_Entry = dict[str, Any]
_COLUMNS = ("table", "check", "rows", "of", "most_in", "mean", "if_worst", "if_best", "detail")
CELL = tuple(name for name in AXIS_COLUMNS if name != "question_id")
RETRIEVED = ("data", "chunker", "retriever", "k", "N")
ANSWERED = (*RETRIEVED, "generator")
IR_SCORE, ANSWERS, RIGHT = "IR score", "answers", "share of grade 5"  # the tables of a run
NO_DOCUMENTS = "no documents"
_AS_THEY_COME = {"sort": False, "dropna": False, "observed": True}
# What a ledger cell can be, by the unit in which the paper gives it.
_LEDGER_BOUNDS = {
    "percent": (0.0, 100.0),
    "share": (0.0, 1.0),
    "mean IR score": (0.0, 1.0),
    "accuracy": (0.0, 1.0),
}


def _mixed(digests: pd.Series, models: pd.Series) -> pd.Series:
    """Mark the rows whose model has other weights than most rows under the same name."""
    return digests.notna() & digests.ne(
        digests.groupby(models, dropna=False).transform(lambda one: one.mode().get(0))
    )


def _truncated(kinds: pd.Series, steps: pd.Series, step: str) -> pd.Series:
    return kinds.eq("truncated") & steps.eq(step)


# Check -> the table of a run it belongs to; the columns it needs (rows with a value in the first
# could show it); a function of these columns that marks the rows which show it; what it means.
_CHECKS: Mapping[str, tuple[str, tuple[str, ...], Callable[..., pd.Series], str]] = {
    "zero-score hits": (
        IR_SCORE,
        ("zero_hits",),
        lambda hits: pd.to_numeric(hits, errors="coerce") > 0,
        "chunks that share nothing with the question count as found",
    ),
    "empty contexts": (
        IR_SCORE,
        ("context_tokens", "N"),
        lambda tokens, n: (n > 0) & pd.to_numeric(tokens, errors="coerce").eq(0),
        "a budget above 0, and no token of context",
    ),
    "truncated answers": (
        ANSWERS,
        ("finish", "error_kind", "error_step"),
        lambda finish, *error: finish.isin(CUT_SHORT) | _truncated(*error, "generate"),
        "the model ran into its limit of tokens",
    ),
    "mixed models": (ANSWERS, ("digest", "generator"), _mixed, "other weights, the same name"),
    "truncated grades": (
        RIGHT,
        ("judge_raw", "error_kind", "error_step"),
        lambda _, *error: _truncated(*error, "grade"),
        "the judge repeated itself, or ran into its limit of tokens",
    ),
    "answers cut for the judge": (
        RIGHT,
        ("judge_answer_cut",),
        lambda cut: cut.eq(True),
        "longer than max_chars: graded by their beginning",
    ),
    "mixed judges": (RIGHT, ("judge_digest", "judge"), _mixed, "other weights, same name"),
}


def audit_rows(
    rows: pd.DataFrame,
    score: str | Sequence[str] | Mapping[str, _Bounds] = (),
    by: str | Sequence[str] = (),
    *,
    unit: str = "question_id",
    within: Sequence[str] = (),
) -> pd.DataFrame:
    """Count silent problems behind the means of a data frame: failed, unscored or doubled rows,
    unequal n, truncation.

    Parameters
    ----------
    rows : one row per question and cell. Read where they exist: ``status``, ``error_step``,
    ``error_kind``, ``error``,
        ``reason``, ``note`` (why a row failed or is unscored), and the columns of the checks above.
    score : column, or columns, whose mean is reported; or a dict column -> (worst, best) value that
    it can have, else
        (0, 1). NaN is unscored.
    by : columns that make the cells of the table.
    unit : column that names the question.
    within : columns of ``by`` whose values have questions of their own (data sets, languages).

    One row per table and check: ``rows`` (how many show it), ``of`` (how many could), ``most_in``
    (the cell with most of them), ``detail``. For "unscored" the cell is the one whose mean is the
    least certain.
    """
    by = [by] if isinstance(by, str) else list(by)
    names = [score] if isinstance(score, str) else score
    scores = dict(names) if isinstance(names, Mapping) else dict.fromkeys(names, (0.0, 1.0))
    check_known("column", [*scores, *by, *within], rows.columns)
    if set(within) - set(by):
        raise ConfigError(f"within={list(within)}", f"columns of by={by}", "add them to by")
    rows = rows.reset_index(drop=True)
    entries = []
    for name, bounds in scores.items():
        entries += _score_checks(rows, name, bounds, by, unit, within, name)
    if "status" in rows or "error" in rows:
        entries.append(_failures(rows, by))
    if unit in rows:
        twice = rows.duplicated([*by, unit], keep="last")
        detail = "the same question twice in one cell"
        entries.append(_flagged(rows, by, "rows", "duplicates", twice, len(rows), detail))
    return _as_frame([*entries, *_column_checks(rows, by, "rows", _CHECKS)])


def _flagged(
    rows: pd.DataFrame,
    by: Sequence[str],
    table: str,
    check: str,
    flagged: Any,
    of: int,
    detail: str = "",
) -> _Entry:
    """Note one check: which rows show it, of how many that could."""
    flagged = np.asarray(flagged, bool)
    most_in = ""
    if by and flagged.any():
        sizes = rows[flagged].groupby(by, **_AS_THEY_COME).size()
        most_in = f"{_cell_name(sizes.idxmax())}: {sizes.max()}"
    return _entry(table, check, flagged.sum(), of, most_in, detail)


def _failures(rows: pd.DataFrame, by: Sequence[str]) -> _Entry:
    """Count failed rows by kind:

    ``status`` says so, or without that column there is an ``error``.
    """
    failed = rows["status"].eq("failed") if "status" in rows else _text(rows, "error").ne("")
    return _flagged(
        rows, by, "rows", "failed", failed, len(failed), _counted(_reasons(rows[failed]))
    )


def _column_checks(
    rows: pd.DataFrame, by: Sequence[str], table: str, names: Iterable[str]
) -> Iterator[_Entry]:
    """Make those of `_CHECKS` whose columns exist."""
    for name in names:
        _, columns, mark, detail = _CHECKS[name]
        if set(columns) <= set(rows.columns):
            values = [rows[column] for column in columns]
            marked = mark(*values).fillna(False)
            of = int(values[0].notna().sum())
            yield _flagged(rows, by, table, name, marked, of, detail)


def _score_checks(
    rows: pd.DataFrame,
    score: str,
    bounds: _Bounds,
    by: list[str],
    unit: str,
    within: Sequence[str],
    table: str,
    missing: str = "no reason given",
) -> Iterator[_Entry]:
    """Note of one score:

    unscored rows and why, the mean's range, cells that rest on different questions.
    """
    values = pd.to_numeric(rows[score], errors="coerce").astype(float)
    unscored = values.isna()
    keys, apart = ([rows[name] for name in names] for names in (by, within))
    cells = values.groupby(keys or (lambda _: 0), **_AS_THEY_COME).agg(["count", "size", "sum"])
    cells = cells.assign(unscored=cells["size"] - cells["count"], worst=bounds[0], best=bounds[1])
    cells = cells.rename(columns={"count": "n", "sum": "total"})
    cells["name"] = list(map(_cell_name, cells.index)) if by else ""
    yield _unscored(
        table, cells.reset_index(drop=True), _counted(_reasons(rows[unscored]).replace("", missing))
    )
    if not by:
        return
    # Without names, the nth scored row of a cell counts as question n.
    asked = rows.get(unit, (~unscored).groupby(keys, **_AS_THEY_COME).cumsum()).mask(unscored)
    fewer = 0
    count = 0
    spans = []
    for _, part in asked.groupby(apart or (lambda _: 0), **_AS_THEY_COME):
        sizes = part.groupby(keys, **_AS_THEY_COME).nunique()
        whole = part.nunique()
        count += len(sizes)
        if sizes.min() < whole:
            fewer += int((sizes < whole).sum())
            spans.append(f"n from {sizes.min()} to {sizes.max()} of {whole}")
    yield _entry(table, "cells with unequal n", fewer, count, detail="; ".join(spans[:3]))


def _unscored(table: str, cells: pd.DataFrame, detail: str = "") -> _Entry:
    """Note how many are unscored, and of the cell whose mean is the least certain what it could be.

    ``cells`` : a name, n, unscored and total (the sum of the scores) each, and the worst and best
    value of a score (1 and 0 where less is better). The true mean lies between if_worst and
    if_best, whatever the reason rows are unscored (Manski 1990).
    """
    n = cells["n"]
    unscored = cells["unscored"]
    total = cells["total"]
    entry = _entry(table, "unscored", unscored.sum(), n.sum() + unscored.sum(), detail=detail)
    ends = {
        f"if_{end}": (total + cells[end] * unscored) / (n + unscored) for end in ("worst", "best")
    }
    reach = (ends["if_best"] - ends["if_worst"]).abs().where(unscored > 0)
    if reach.notna().any():
        at = reach.idxmax()
        entry |= {"mean": total[at] / n[at] if n[at] else np.nan} | {
            name: end[at] for name, end in ends.items()
        }
        entry["most_in"] = (
            f"{cells.at[at, 'name']}: {int(unscored[at])}" if cells.at[at, "name"] else ""
        )
    return entry


def _text(rows: pd.DataFrame, name: str) -> pd.Series:
    """Return a column as stripped texts, "" where a value or the column is missing."""
    values = rows[name] if name in rows else [None] * len(rows)
    # Objects: strings of pyarrow hold no half of a surrogate pair.
    return pd.Series(
        ["" if pd.isna(v) else str(v).strip() for v in values], rows.index, dtype=object
    )


def _reasons(rows: pd.DataFrame) -> pd.Series:
    """Say of each row why it failed or is unscored, in a few words; "" where no column says it."""
    reason = (_text(rows, "error_step") + ": " + _text(rows, "error_kind")).str.strip(": ")
    for name in ("reason", "error", "note"):
        # Of a long message its kind, which stands before the colon, is what can be counted.
        reason = reason.where(
            reason.ne(""), _text(rows, name).str.split(":").str[0].str.slice(0, 60)
        )
    return reason


def _counted(values: pd.Series) -> str:
    """Write the values of a Series with how often each occurs: ``"context 2, no references 1"``."""
    sizes = values.where(values.ne(""), "no reason given").value_counts(sort=True)
    shown = [f"{name} {count}" for name, count in sizes[:5].items()]
    return ", ".join([*shown, *([f"and {len(sizes) - 5} more"] if len(sizes) > 5 else [])])


def _cell_name(values: object) -> str:
    return ", ".join(map(str, values)) if isinstance(values, tuple) else str(values)


def _entry(
    table: str, check: str, rows: int, of: int, most_in: str = "", detail: str = ""
) -> _Entry:
    counts = {"table": table, "check": check, "rows": int(rows), "of": int(of)}
    return counts | {"most_in": most_in if rows else "", "detail": detail if rows else ""}


class _AuditTable(pd.DataFrame):
    """A frame of checks that a notebook shows as `render` writes it."""

    def _repr_html_(self) -> str:
        return f"<pre>{escape(render(self, width=64))}</pre>"  # of a notebook in half a screen


def _as_frame(entries: Sequence[_Entry]) -> _AuditTable:
    frame = _AuditTable(list(entries), columns=list(_COLUMNS))
    for name in ("mean", "if_worst", "if_best"):
        frame[name] = pd.to_numeric(frame[name]).astype(float)
    return frame


def audit(
    run: str | os.PathLike[str] | pd.DataFrame, *, cassette: str | os.PathLike[str] | None = None
) -> pd.DataFrame:
    """List per table of a run what could have gone wrong in silence, as ``audit_rows`` does.

    ``run`` is its name or folder, or its rows (then without the manifest, which says how many rows
    there should be, and without the cassette). The tables are "rows", "IR score" (each context
    once, whatever the number of generators and judges), "answers", "share of grade 5" and
    "cassette" (replies that are not as they were recorded).
    """
    manifest: Mapping[str, Any] = {}
    tape = None
    if isinstance(run, pd.DataFrame):
        rows = run
    else:
        rows = load_rows(run)
        tape = cassette_of(run, cassette)
        with contextlib.suppress(DataError):
            manifest = load_manifest(run)
    if rows.empty:
        what = "the table of rows" if rows is run else f"the run {str(run)!r}"
        raise DataError(f"{what} has no rows", "at least one", "run the experiment first")
    rows = name_rows(rows)
    wanted = max(len(rows), *(ended.get("rows", 0) for ended in manifest.get("runs", ())[-1:]), 0)
    stopped = "the run was stopped: run it again to go on"
    entries = [
        _failures(rows, varying(rows, CELL)),
        _entry("rows", "missing rows", wanted - len(rows), wanted, detail=stopped),
    ]
    missing = {IR_SCORE: ("ir_score", "no references"), RIGHT: (RIGHT, "no reason given")}
    for table, (part, by) in run_parts(rows).items():
        if part.empty:
            continue
        if table in missing:
            score, why = missing[table]
            within = [name for name in by if name == "data"]
            entries += _score_checks(part, score, (0.0, 1.0), by, "question_id", within, table, why)
        entries += _column_checks(
            part, by, table, [name for name, (of, *_) in _CHECKS.items() if of == table]
        )
    if tape is not None:
        with Cassette(tape, mode="replay") as replies:
            problems = replies.verify()
            count = len(replies)
        entries.append(
            _entry(
                "cassette",
                "changed or damaged",
                len(problems),
                count,
                detail="; ".join(problems[:3]),
            )
        )
    return _as_frame(entries)


def name_rows(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of a run with a plain name for what has no documents:

    the generator need not be an LLM.
    """
    return rows.assign(retriever=rows["retriever"].replace(QUERY_ONLY, NO_DOCUMENTS))


def cassette_of(run: str | os.PathLike[str], given: str | os.PathLike[str] | None) -> Path | None:
    """Return the path of a run's cassette, None where it has none;

    DataError when the one given is not there.
    """
    path = Path(given).expanduser() if given is not None else run_folder(run) / "cassette.sqlite"
    if given is not None and not path.is_file():
        raise DataError(
            f"there is no cassette {path}", "the file that recorded the run", "check --cassette"
        )
    return path if path.is_file() else None


def run_parts(rows: pd.DataFrame) -> dict[str, tuple[pd.DataFrame, list[str]]]:
    """Return contexts, answers and grades of a run, each question once per cell, and the columns
    that tell cells apart.

    Of the rows that share a context or an answer one with a score, or a text, counts. Grades have
    1.0 for grade 5.
    """

    def once(part: pd.DataFrame, cell: Sequence[str], column: str) -> pd.DataFrame:
        known_first = part.loc[part[column].isna().sort_values(kind="stable").index]
        return known_first.drop_duplicates([*cell, "question_id"]).sort_index()

    contexts = once(rows[rows["N"] > 0], RETRIEVED, "ir_score")
    answers = once(rows[rows["generator"] != NONE], ANSWERED, "answer")
    grades = rows[rows["judge"] != NONE]
    grades = grades.assign(**{RIGHT: fully_right(grades)})
    parts = {IR_SCORE: (contexts, RETRIEVED), ANSWERS: (answers, ANSWERED), RIGHT: (grades, CELL)}
    return {
        name: (part.reset_index(drop=True), varying(part, cell))
        for name, (part, cell) in parts.items()
    }


def varying(rows: pd.DataFrame, cell: Sequence[str]) -> list[str]:
    """Return the columns of a cell that have more than one value."""
    return [name for name in cell if rows[name].nunique(dropna=False) > 1]


def audit_ledger(paper: str, item: str) -> pd.DataFrame:
    """List what could have gone wrong behind the measured cells of one published item, a table per
    who measured.

    An identity rests on printed numbers and needs no n. ConfigError for an item that was not
    published.
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
        # A row of our own has the unit of its column, where the column has one.
        alike = known.groupby("column")["unit"].agg(
            lambda units: units.iloc[0] if units.nunique() == 1 else None
        )
        cells = cells.drop(columns="unit").merge(
            known[["row", "column", "unit"]], on=["row", "column"], how="left"
        )
        cells["unit"] = cells["unit"].fillna(cells["column"].map(alike))
    parts = [
        _ledger_table(f"{item}: {name}", part) for name, part in cells.groupby("who", sort=False)
    ]
    return _as_frame([entry for part in parts for entry in part])


def _ledger_table(table: str, cells: pd.DataFrame) -> list[_Entry]:
    names = cells["row"].astype(str) + ", " + cells["column"].astype(str)

    def entry(check: str, flagged: pd.Series, of: float, detail: str = "") -> _Entry:
        first = names[flagged][:1].sum() or ""
        more = int(flagged.sum()) - 1
        return _entry(
            table,
            check,
            more + 1,
            int(of),
            first + (f" and {more} more" if more > 0 else ""),
            detail,
        )

    n = cells["n"]
    empty = cells["value"].isna()
    why = cells.loc[empty, "note"].fillna("").astype(str).str.slice(0, 80)
    countless = n.isna() & ~empty & ~cells["who"].str.startswith(IDENTITY)
    worst, best = zip(
        *(_LEDGER_BOUNDS.get(unit, (np.nan, np.nan)) for unit in cells["unit"]), strict=True
    )
    return [
        entry("cells without a number", empty, len(cells), _counted(why)),
        entry("cells without n", countless, len(cells)),
        _unscored(
            table, cells.assign(name=names, total=cells["value"] * n, worst=worst, best=best)
        ),
        entry(
            "cells with unequal n",
            n < n.max(),
            n.notna().sum(),
            f"n from {n.min():g} to {n.max():g}",
        ),
    ]


def render(frame: pd.DataFrame, width: int = 78) -> str:
    """Write an audit for the terminal:

    per table what was found, then what was looked for and not found.
    """
    lines: list[str] = []
    for table, part in frame.groupby("table", sort=False):
        lines.append(f"{table}")
        for row in part[part["rows"] > 0].itertuples():
            mean = "no mean" if np.isnan(row.mean) else f"mean {row.mean:.3f}"
            ends = (
                ""
                if np.isnan(row.if_worst)
                else f"  {mean}, could be {row.if_worst:.3f} to {row.if_best:.3f}"
            )
            where = f"  most in {row.most_in}" if row.most_in else ""
            detail = f"  ({row.detail})" if row.detail else ""
            lines.append(f"  {row.check:24s}{row.rows} of {row.of}{ends}{where}{detail}")
        clean = part[(part["rows"] == 0) & (part["of"] > 0)]["check"]
        lines += [f"  {'none':24s}{', '.join(clean)}"] if len(clean) else []
    return "\n".join(
        textwrap.fill(line, width, subsequent_indent=" " * 26, break_on_hyphens=False)
        for line in lines
    )
