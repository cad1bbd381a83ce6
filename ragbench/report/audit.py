"""What could have gone wrong in silence behind a table: counted, with what it could do to the mean.

An audit never mends anything and never calls a model: it reads what the rows say of themselves.

Reading order: ``audit_rows`` (any data frame) -> ``audit`` (an experiment) -> ``audit_ledger``
(cells beside the papers') -> ``_unscored`` (the mean if the unscored rows had all been worst or
best) -> ``render``.
"""

from __future__ import annotations

import contextlib
import os
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import chi2_contingency

from ragbench.errors import ConfigError, DataError, check_known, unknown
from ragbench.experiment import load_manifest, load_rows
from ragbench.experiment.axes import NONE, QUERY_ONLY
from ragbench.experiment.rows import AXIS_COLUMNS, run_folder
from ragbench.llm import Cassette
from ragbench.llm.reply import CUT_SHORT
from ragbench.papers import IDENTITY, ledger, published, published_items
from ragbench.stats.tables import fully_right

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


class _Check(NamedTuple):
    """A check of rows by their columns."""

    table: str  # of a run
    columns: tuple[str, ...]  # rows with a value in the first could show it
    marks: Callable[..., pd.Series]  # a function of these columns: the rows that show it
    meaning: str


def _zero_hits(hits: pd.Series) -> pd.Series:
    return pd.to_numeric(hits, errors="coerce") > 0


def _empty(tokens: pd.Series, n: pd.Series) -> pd.Series:
    return (n > 0) & pd.to_numeric(tokens, errors="coerce").eq(0)


def _truncated_answer(finish: pd.Series, kinds: pd.Series, steps: pd.Series) -> pd.Series:
    return finish.isin(CUT_SHORT) | (kinds.eq("truncated") & steps.eq("generate"))


def _truncated_grade(_: pd.Series, kinds: pd.Series, steps: pd.Series) -> pd.Series:
    return kinds.eq("truncated") & steps.eq("grade")


def _cut(cut: pd.Series) -> pd.Series:
    return cut.eq(True)


def _mixed(digests: pd.Series, models: pd.Series) -> pd.Series:
    """Mark the rows whose model has other weights than most rows under the same name."""
    usual = digests.groupby(models, dropna=False).transform(lambda part: part.mode().get(0))
    return digests.notna() & digests.ne(usual)


_CHECKS: Mapping[str, _Check] = {
    "zero-score hits": _Check(
        IR_SCORE,
        ("zero_hits",),
        _zero_hits,
        "chunks that share nothing with the question count as found",
    ),
    "empty contexts": _Check(
        IR_SCORE,
        ("context_tokens", "N"),
        _empty,
        "a budget above 0, and no token of context",
    ),
    "truncated answers": _Check(
        ANSWERS,
        ("finish", "error_kind", "error_step"),
        _truncated_answer,
        "the model ran into its limit of tokens",
    ),
    "mixed models": _Check(
        ANSWERS, ("digest", "generator"), _mixed, "other weights, the same name"
    ),
    "truncated grades": _Check(
        RIGHT,
        ("judge_raw", "error_kind", "error_step"),
        _truncated_grade,
        "the judge repeated itself, or ran into its limit of tokens",
    ),
    "answers cut for the judge": _Check(
        RIGHT,
        ("judge_answer_cut",),
        _cut,
        "longer than max_chars: graded by their beginning",
    ),
    "mixed judges": _Check(RIGHT, ("judge_digest", "judge"), _mixed, "other weights, same name"),
}


class AuditTable(pd.DataFrame):
    """A frame of checks that a notebook shows as `render` writes it."""

    def _repr_html_(self) -> str:
        return f"<pre>{escape(render(self, width=64))}</pre>"  # of a notebook in half a screen


def audit_rows(
    rows: pd.DataFrame,
    score: str | Sequence[str] | Mapping[str, _Bounds] = (),
    by: str | Sequence[str] = (),
    *,
    unit: str = "question_id",
    within: Sequence[str] = (),
) -> AuditTable:
    """Count silent problems behind the means of a data frame.

    They are: failed, unscored or doubled rows, unequal n, truncation.

    Parameters
    ----------
    rows : one row per question and cell. Read where they exist: ``status``, ``error_step``,
        ``error_kind``, ``error``, ``reason``, ``note`` (why a row failed or is unscored), and the
        columns of the checks above.
    score : column, or columns, whose mean is reported; or a dict column -> (worst, best) value that
        it can have, else (0, 1). NaN is unscored.
    by : columns that make the cells of the table.
    unit : column that names the question.
    within : columns of ``by`` whose values have questions of their own (data sets, languages).

    Returns
    -------
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
    for name in _CHECKS:
        entries += _column_check(rows, by, "rows", name)
    return _as_table(entries)


def _entry(
    table: str, check: str, rows: int, of: int, most_in: str = "", detail: str = ""
) -> _Entry:
    entry = {"table": table, "check": check, "rows": int(rows), "of": int(of)}
    return entry | {"most_in": most_in if rows else "", "detail": detail if rows else ""}


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
    """Count failed rows by kind: ``status`` says so, or without that column an ``error``."""
    failed = rows["status"].eq("failed") if "status" in rows else _text(rows, "error").ne("")
    detail = _counted(_reasons(rows[failed]))
    return _flagged(rows, by, "rows", "failed", failed, len(failed), detail)


def _column_check(rows: pd.DataFrame, by: Sequence[str], table: str, name: str) -> Iterator[_Entry]:
    """Make one of `_CHECKS`, where its columns exist."""
    check = _CHECKS[name]
    if set(check.columns) <= set(rows.columns):
        values = [rows[column] for column in check.columns]
        marked = check.marks(*values).fillna(False)
        of = int(values[0].notna().sum())
        yield _flagged(rows, by, table, name, marked, of, check.meaning)


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
    """Note of one score: unscored rows and why, the mean's range, cells of different questions."""
    values = pd.to_numeric(rows[score], errors="coerce").astype(float)
    unscored = values.isna()
    keys = [rows[name] for name in by] or [pd.Series(0, rows.index)]
    groups = values.groupby(keys, **_AS_THEY_COME)
    cells = pd.DataFrame({"n": groups.count(), "total": groups.sum(), "size": groups.size()})
    cells = cells.assign(unscored=cells["size"] - cells["n"], worst=bounds[0], best=bounds[1])
    cells["name"] = [_cell_name(key) for key in cells.index] if by else ""
    why = _counted(_reasons(rows[unscored]).replace("", missing))
    yield _unscored(table, cells.reset_index(drop=True), why)
    if not by:
        return
    # Without a column of names the nth scored row of a cell counts as question n.
    nth = (~unscored).groupby(keys, **_AS_THEY_COME).cumsum()
    question = rows.get(unit, nth)
    yield _unequal(table, question.mask(unscored), keys, [rows[name] for name in within])


def _unequal(
    table: str, question: pd.Series, keys: list[pd.Series], within: list[pd.Series]
) -> _Entry:
    """Count the cells that have fewer scored questions than all cells of their part together."""
    fewer = 0
    count = 0
    spans = []
    for _, part in question.groupby(within or (lambda _: 0), **_AS_THEY_COME):
        sizes = part.groupby(keys, **_AS_THEY_COME).nunique()
        whole = part.nunique()
        count += len(sizes)
        if sizes.min() < whole:
            fewer += int((sizes < whole).sum())
            spans.append(f"n from {sizes.min()} to {sizes.max()} of {whole}")
    return _entry(table, "cells with unequal n", fewer, count, detail="; ".join(spans[:3]))


def _unscored(table: str, cells: pd.DataFrame, detail: str = "") -> _Entry:
    """Note how many are unscored, and what the least certain mean of a cell could be.

    ``cells`` : a name, n, unscored and total (the sum of the scores) each, and the worst and best
    value of a score (1 and 0 where less is better). The true mean lies between if_worst and
    if_best, whatever the reason rows are unscored (Manski 1990).
    """
    n = cells["n"]
    unscored = cells["unscored"]
    entry = _entry(table, "unscored", unscored.sum(), n.sum() + unscored.sum(), detail=detail)
    worst = (cells["total"] + cells["worst"] * unscored) / (n + unscored)
    best = (cells["total"] + cells["best"] * unscored) / (n + unscored)
    reach = (best - worst).abs().where(unscored > 0)
    if reach.notna().any():
        at = reach.idxmax()
        entry["mean"] = cells.at[at, "total"] / n[at] if n[at] else np.nan
        entry |= {"if_worst": worst[at], "if_best": best[at]}
        name = cells.at[at, "name"]
        entry["most_in"] = f"{name}: {int(unscored[at])}" if name else ""
    return entry


def _text(rows: pd.DataFrame, name: str) -> pd.Series:
    """Return a column as stripped texts, "" where a value or the column is missing."""
    values = rows[name] if name in rows else [None] * len(rows)
    texts = ["" if pd.isna(value) else str(value).strip() for value in values]
    # Objects: strings of pyarrow hold no half of a surrogate pair.
    return pd.Series(texts, rows.index, dtype=object)


def _reasons(rows: pd.DataFrame) -> pd.Series:
    """Say of each row why it failed or is unscored, in a few words; "" where no column says it."""
    reason = (_text(rows, "error_step") + ": " + _text(rows, "error_kind")).str.strip(": ")
    for name in ("reason", "error", "note"):
        # Of a long message its kind, which stands before the colon, is what can be counted.
        kind = _text(rows, name).str.split(":").str[0].str.slice(0, 60)
        reason = reason.where(reason.ne(""), kind)
    return reason


def _counted(values: pd.Series) -> str:
    """Write the values of a Series with how often each occurs: ``"context 2, no references 1"``."""
    sizes = values.where(values.ne(""), "no reason given").value_counts(sort=True)
    shown = [f"{name} {count}" for name, count in sizes[:5].items()]
    if len(sizes) > 5:
        shown.append(f"and {len(sizes) - 5} more")
    return ", ".join(shown)


def _cell_name(values: object) -> str:
    return ", ".join(map(str, values)) if isinstance(values, tuple) else str(values)


def _as_table(entries: Sequence[_Entry]) -> AuditTable:
    table = AuditTable(list(entries), columns=list(_COLUMNS))
    numbers = ["mean", "if_worst", "if_best"]
    table[numbers] = table[numbers].astype(float)
    return table


# -- a run


def audit(
    run: str | os.PathLike[str] | pd.DataFrame, *, cassette: str | os.PathLike[str] | None = None
) -> AuditTable:
    """List per table of a run what could have gone wrong in silence, as `audit_rows` does.

    ``run`` is its name or folder, or its rows (then without the manifest, which says how many rows
    there should be, and without the cassette). The tables are "rows", "IR score" (each context
    once, whatever the number of generators and judges), "answers", "share of grade 5" and
    "cassette" (replies that are not as they were recorded).
    """
    wanted = 0
    replies = None
    if isinstance(run, pd.DataFrame):
        rows = run
    else:
        rows = load_rows(run)
        replies = cassette_of(run, cassette)
        with contextlib.suppress(DataError):
            wanted = load_manifest(run)["runs"][-1]["rows"]
    if rows.empty:
        what = "the table of rows" if rows is run else f"the run {str(run)!r}"
        raise DataError(f"{what} has no rows", "at least one", "run the experiment first")
    rows = name_rows(rows)
    wanted = max(wanted, len(rows))
    stopped = "the run was stopped: run it again to go on"
    entries = [
        _failures(rows, varying(rows, CELL)),
        _entry("rows", "missing rows", wanted - len(rows), wanted, detail=stopped),
    ]
    for table, (part, by) in run_parts(rows).items():
        if not part.empty:
            entries += _run_checks(table, part, by)
    if replies is not None:
        entries.append(_changed_replies(replies))
    return _as_table(entries)


def _run_checks(table: str, part: pd.DataFrame, by: list[str]) -> Iterator[_Entry]:
    within = [name for name in by if name == "data"]
    share = (0.0, 1.0)
    if table == IR_SCORE:
        yield from _score_checks(
            part, "ir_score", share, by, "question_id", within, table, "no references"
        )
    if table == RIGHT:
        yield from _score_checks(part, RIGHT, share, by, "question_id", within, table)
        if "judge_shown" in part:
            yield from _labels_by_place(part)
    for name, check in _CHECKS.items():
        if check.table == table:
            yield from _column_check(part, by, table, name)


def _changed_replies(path: Path) -> _Entry:
    with Cassette(path, mode="replay") as cassette:
        problems = cassette.verify()
        count = len(cassette)
    detail = "; ".join(problems[:3])
    return _entry("cassette", "changed or damaged", len(problems), count, detail=detail)


def _labels_by_place(grades: pd.DataFrame) -> list[_Entry]:
    """Test whether the grades of prompts with several answers depend on the answer's place there.

    The answers of a prompt are in random order, so that grades and places are independent: a
    chi-squared test of their table, with the shares of each grade by place.
    """
    several = grades[pd.to_numeric(grades["judge_shown"], errors="coerce") > 1]
    counts = pd.crosstab(several["judge_position"], several["grade"])
    if min(counts.shape) < 2:
        return []
    p = chi2_contingency(counts).pvalue
    shares = []
    for place, row in counts.div(counts.sum(axis=1), axis=0).iterrows():
        of_place = ", ".join(f"grade {grade:g} {share:.0%}" for grade, share in row.items())
        shares.append(f"place {place:g}: {of_place}")
    detail = f"p = {p:.2g} (chi-squared); {'; '.join(shares)}"
    flagged = len(several) if p < 0.05 else 0
    return [_entry(RIGHT, "labels by place", flagged, len(several), detail=detail)]


def name_rows(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of a run with a plain name for what has no documents.

    The generator need not be an LLM.
    """
    return rows.assign(retriever=rows["retriever"].replace(QUERY_ONLY, NO_DOCUMENTS))


def cassette_of(
    run: str | os.PathLike[str], path: str | os.PathLike[str] | None = None
) -> Path | None:
    """Return the path of a run's cassette, None where it has none.

    Raises DataError when ``path`` is named and not there.
    """
    if path is None:
        beside = run_folder(run) / "cassette.sqlite"
        return beside if beside.is_file() else None
    named = Path(path).expanduser()
    if not named.is_file():
        expected = "the file that recorded the run"
        raise DataError(f"there is no cassette {named}", expected, "check --cassette")
    return named


def run_parts(rows: pd.DataFrame) -> dict[str, tuple[pd.DataFrame, list[str]]]:
    """Return contexts, answers and grades of a run, and the columns that tell their cells apart.

    Each question is once per cell: of the rows that share a context or an answer one with a score,
    or a text, counts. Grades have 1.0 for grade 5.
    """
    graded = rows[rows["judge"] != NONE]
    graded = graded.assign(**{RIGHT: fully_right(graded["grade"])}).reset_index(drop=True)
    contexts = _once(rows[rows["N"] > 0], RETRIEVED, "ir_score")
    answers = _once(rows[rows["generator"] != NONE], ANSWERED, "answer")
    return {
        IR_SCORE: (contexts, varying(contexts, RETRIEVED)),
        ANSWERS: (answers, varying(answers, ANSWERED)),
        RIGHT: (graded, varying(graded, CELL)),
    }


def _once(rows: pd.DataFrame, cell: Sequence[str], column: str) -> pd.DataFrame:
    known_first = rows.loc[rows[column].isna().sort_values(kind="stable").index]
    once = known_first.drop_duplicates([*cell, "question_id"])
    return once.sort_index().reset_index(drop=True)


def varying(rows: pd.DataFrame, cell: Sequence[str]) -> list[str]:
    """Return the columns of a cell that have more than one value."""
    return [name for name in cell if rows[name].nunique(dropna=False) > 1]


# -- the ledger


def audit_ledger(paper: str, item: str) -> AuditTable:
    """List what could have gone wrong behind the measured cells of one published item.

    There is a table per measurer. An identity rests on printed numbers and needs no n.

    Raises ConfigError for an item that was not published.
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
    )
    cells["unit"] = _units(cells, paper, item)
    entries = []
    for name, part in cells.groupby("who", sort=False):
        entries += _ledger_checks(f"{item}: {name}", part)
    return _as_table(entries)


def _units(cells: pd.DataFrame, paper: str, item: str) -> pd.Series:
    """Return the unit of each cell; a row of our own has that of its column, where all are
    alike.
    """
    if item not in published_items(paper):
        return pd.Series(None, cells.index, dtype=object)
    known = published(paper, item)
    of_cell = known.drop_duplicates(["row", "column"]).set_index(["row", "column"])["unit"]
    of_column = known.groupby("column")["unit"].agg(["first", "nunique"])
    alike = of_column.loc[of_column["nunique"] == 1, "first"]
    places = pd.MultiIndex.from_frame(cells[["row", "column"]])
    units = pd.Series(of_cell.reindex(places).to_numpy(), cells.index, dtype=object)
    return units.fillna(cells["column"].map(alike))


def _ledger_checks(table: str, cells: pd.DataFrame) -> Iterator[_Entry]:
    names = cells["row"].astype(str) + ", " + cells["column"].astype(str)
    n = cells["n"]
    empty = cells["value"].isna()
    why = cells.loc[empty, "note"].fillna("").astype(str).str.slice(0, 80)
    yield _ledger_entry(table, "cells without a number", names[empty], len(cells), _counted(why))
    countless = n.isna() & ~empty & ~cells["who"].str.startswith(IDENTITY)
    yield _ledger_entry(table, "cells without n", names[countless], len(cells))
    bounds = [_LEDGER_BOUNDS.get(unit, (np.nan, np.nan)) for unit in cells["unit"]]
    bounded = cells.assign(
        name=names,
        total=cells["value"] * n,
        worst=[worst for worst, _ in bounds],
        best=[best for _, best in bounds],
    )
    yield _unscored(table, bounded.reset_index(drop=True))
    span = f"n from {n.min():g} to {n.max():g}"
    yield _ledger_entry(table, "cells with unequal n", names[n < n.max()], n.notna().sum(), span)


def _ledger_entry(table: str, check: str, names: pd.Series, of: int, detail: str = "") -> _Entry:
    first = ""
    if len(names):
        first = names.iloc[0]
    if len(names) > 1:
        first += f" and {len(names) - 1} more"
    return _entry(table, check, len(names), of, first, detail)


def render(frame: pd.DataFrame, width: int = 78) -> str:
    """Write an audit for the terminal.

    Per table: what was found, then what was looked for and not found.
    """
    lines: list[str] = []
    for table, part in frame.groupby("table", sort=False):
        lines.append(str(table))
        lines += [_rendered(row) for row in part[part["rows"] > 0].itertuples()]
        clean = part[(part["rows"] == 0) & (part["of"] > 0)]["check"]
        if len(clean):
            lines.append(f"  {'none':24s}{', '.join(clean)}")
    wrapped = [
        textwrap.fill(line, width, subsequent_indent=" " * 26, break_on_hyphens=False)
        for line in lines
    ]
    return "\n".join(wrapped)


def _rendered(row: Any) -> str:
    line = f"  {row.check:24s}{row.rows} of {row.of}"
    if not np.isnan(row.if_worst):
        mean = "no mean" if np.isnan(row.mean) else f"mean {row.mean:.3f}"
        line += f"  {mean}, could be {row.if_worst:.3f} to {row.if_best:.3f}"
    if row.most_in:
        line += f"  most in {row.most_in}"
    if row.detail:
        line += f"  ({row.detail})"
    return line
