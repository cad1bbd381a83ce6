"""What could have gone wrong in silence behind a table: counted, with what it could do to the mean.

An audit never mends anything and never calls a model: it reads what the rows say of themselves.

Reading order: ``audit_rows`` (any data frame) -> ``_Part`` (one table and its checks) -> ``audit``
(an experiment) -> ``render``.
"""

from __future__ import annotations

import os
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import chi2_contingency

from ragbench.errors import ConfigError, DataError, check_known
from ragbench.experiment import load_manifest, load_rows
from ragbench.experiment.axes import NONE, QUERY_ONLY
from ragbench.experiment.rows import AXIS_COLUMNS, run_folder
from ragbench.llm import Cassette
from ragbench.llm.reply import CUT_SHORT
from ragbench.stats.tables import fully_right, rows_by_scale

_Bounds = tuple[float, float]
_Entry = dict[str, Any]
_SHARE = (0.0, 1.0)  # worst and best value of a score
_COUNTS = ("table", "check", "rows", "of", "most_in")
_MEANS = ("mean", "if_worst", "if_best")
CELL = tuple(name for name in AXIS_COLUMNS if name != "question_id")
RETRIEVED = ("data", "chunker", "retriever", "k", "N")
ANSWERED = (*RETRIEVED, "generator")
IR_SCORE, ANSWERS, RIGHT = "IR score", "answers", "share of grade 5"  # the tables of a run
NO_DOCUMENTS = "no documents"  # a plain name for `QUERY_ONLY`: the generator need not be an LLM
# Of a table whose mean is reported: the column, its worst and best value, the table, and why a row
# is unscored where nothing else is said.
_SCORES = {
    IR_SCORE: ("ir_score", _SHARE, IR_SCORE, "no references"),
    RIGHT: (RIGHT, _SHARE, RIGHT, "no reason given"),
}
_AS_THEY_COME = {"sort": False, "dropna": False, "observed": True}


class _Check(NamedTuple):
    """A check of rows by their columns."""

    table: str  # of a run
    columns: tuple[str, ...]  # rows with a value in the first could show it
    marks: Callable[..., pd.Series]  # a function of these columns: the rows that show it
    meaning: str


def _mixed(digests: pd.Series, models: pd.Series) -> pd.Series:
    """Mark the rows whose model has other weights than most rows under the same name."""
    usual = digests.groupby(models, dropna=False).transform(lambda part: part.mode().get(0))
    return digests.notna() & digests.ne(usual)


def _truncated_answer(finish: pd.Series, kinds: pd.Series, steps: pd.Series) -> pd.Series:
    return finish.isin(CUT_SHORT) | (kinds.eq("truncated") & steps.eq("generate"))


_CHECKS: Mapping[str, _Check] = {
    "zero-score hits": _Check(
        IR_SCORE,
        ("zero_hits",),
        lambda hits: hits > 0,
        "chunks that share nothing with the question count as found",
    ),
    "empty contexts": _Check(
        IR_SCORE,
        ("context_tokens", "N"),
        lambda tokens, n: (n > 0) & tokens.eq(0),
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
        lambda _, kinds, steps: kinds.eq("truncated") & steps.eq("grade"),
        "the judge repeated itself, or ran into its limit of tokens",
    ),
    "answers cut for the judge": _Check(
        RIGHT,
        ("judge_answer_cut",),
        lambda cut: cut.eq(True),
        "longer than 4,000 characters: graded by their beginning",
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
        ``error_kind``, ``error`` (why a row failed or is unscored), and the
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
    scores = dict(names) if isinstance(names, Mapping) else dict.fromkeys(names, _SHARE)
    check_known("column", [*scores, *by, *within], rows.columns)
    if set(within) - set(by):
        raise ConfigError(f"within={list(within)}", f"columns of by={by}", "add them to by")
    part = _Part("rows", rows.reset_index(drop=True), by, within, unit)
    entries: list[_Entry] = []
    for name, bounds in scores.items():
        entries += part.score(name, bounds, name)
    if "status" in rows or "error" in rows:
        entries.append(part.failures())
    if unit in rows:
        twice = part.rows.duplicated([*by, unit], keep="last")
        detail = "the same question twice in one cell"
        entries.append(part.entry("duplicates", twice, len(rows), detail))
    entries += part.column_checks()
    return _as_table(entries)


@dataclass(frozen=True)
class _Part:
    """Rows behind one table: the columns that make its cells, and those that tell questions
    apart.
    """

    table: str
    rows: pd.DataFrame
    by: list[str]
    within: Sequence[str] = ()
    unit: str = "question_id"

    def entry(self, check: str, flagged: pd.Series, of: int, detail: str = "") -> _Entry:
        """Note one check: which rows show it, of how many that could."""
        most_in = ""
        if self.by and flagged.any():
            sizes = self.rows[flagged].groupby(self.by, **_AS_THEY_COME).size()
            most_in = f"{_cell_name(sizes.idxmax())}: {sizes.max()}"
        return _entry(self.table, check, flagged.sum(), of, most_in, detail)

    def failures(self) -> _Entry:
        """Count failed rows by kind: ``status`` says so, or without that column an ``error``."""
        failed = _text(self.rows, "error").ne("")
        if "status" in self.rows:
            failed = self.rows["status"].eq("failed")
        return self.entry("failed", failed, len(failed), _reasons(self.rows[failed]))

    def column_checks(self) -> Iterator[_Entry]:
        """Make those of `_CHECKS` for this table, or "rows", whose columns exist."""
        for name, check in _CHECKS.items():
            if self.table in ("rows", check.table) and {*check.columns} <= {*self.rows}:
                values = [self.rows[column] for column in check.columns]
                marked = check.marks(*values).fillna(False).astype(bool)
                yield self.entry(name, marked, int(values[0].notna().sum()), check.meaning)

    def score(
        self, column: str, bounds: _Bounds, table: str, missing: str = "no reason given"
    ) -> Iterator[_Entry]:
        """Note of one score: unscored rows and why, the mean's range, cells of other questions.

        The true mean of a cell lies between if_worst and if_best, whatever the reason rows are
        unscored (Manski 1990); the cell with the widest range is told.
        """
        values = pd.to_numeric(self.rows[column], errors="coerce").astype(float)
        unscored = values.isna()
        why = _reasons(self.rows[unscored], missing)
        entry = _entry(table, "unscored", unscored.sum(), len(values), detail=why)
        keys = [self.rows[name] for name in self.by] or [pd.Series(0, self.rows.index)]
        cells = values.groupby(keys, **_AS_THEY_COME).agg(["size", "count", "sum", "mean"])
        lacking = cells["size"] - cells["count"]
        worst, best = ((cells["sum"] + bound * lacking) / cells["size"] for bound in bounds)
        if unscored.any():
            place = (best - worst).abs().argmax()
            entry |= {"mean": cells["mean"].iloc[place]}
            entry |= {"if_worst": worst.iloc[place], "if_best": best.iloc[place]}
            if self.by:
                entry["most_in"] = f"{_cell_name(cells.index[place])}: {lacking.iloc[place]}"
        yield entry
        if self.by:
            # without names the questions of a cell are numbered
            numbers = self.rows.groupby(keys, **_AS_THEY_COME).cumcount()
            yield self._unequal(self.rows.get(self.unit, numbers).mask(unscored), keys, table)

    def _unequal(self, question: pd.Series, keys: list[pd.Series], table: str) -> _Entry:
        """Count the cells that have fewer scored questions than all cells of their part."""
        fewer = 0
        count = 0
        spans = []
        within = [self.rows[name] for name in self.within] or (lambda _: 0)
        for _, part in question.groupby(within, **_AS_THEY_COME):
            sizes = part.groupby(keys, **_AS_THEY_COME).nunique()
            whole = part.nunique()
            count += len(sizes)
            if sizes.min() < whole:
                fewer += int((sizes < whole).sum())
                spans.append(f"n from {sizes.min()} to {sizes.max()} of {whole}")
        return _entry(table, "cells with unequal n", fewer, count, detail="; ".join(spans[:3]))


def _entry(
    table: str, check: str, rows: int, of: int, most_in: str = "", detail: str = ""
) -> _Entry:
    entry = {"table": table, "check": check, "rows": int(rows), "of": int(of)}
    return entry | {"most_in": most_in if rows else "", "detail": detail if rows else ""}


def _text(rows: pd.DataFrame, name: str) -> pd.Series:
    """Return a column as stripped texts, "" where a value or the column is missing."""
    values = rows[name] if name in rows else [None] * len(rows)
    texts = ["" if pd.isna(value) else str(value).strip() for value in values]
    # Objects: strings of pyarrow hold no half of a surrogate pair.
    return pd.Series(texts, rows.index, dtype=object)


def _reasons(rows: pd.DataFrame, missing: str = "no reason given") -> str:
    """Count why rows failed or are unscored: ``"retrieve: context 2, no references 1"``."""
    reason = (_text(rows, "error_step") + ": " + _text(rows, "error_kind")).str.strip(": ")
    for name in ("reason", "error"):
        # Of a message its kind, which stands before the colon, is what can be counted.
        kind = _text(rows, name).str.split(":").str[0]
        reason = reason.where(reason.ne(""), kind)
    sizes = reason.replace("", missing).value_counts()
    shown = [f"{name} {count}" for name, count in sizes[:5].items()]
    if len(sizes) > 5:
        shown.append(f"and {len(sizes) - 5} more")
    return ", ".join(shown)


def _cell_name(values: object) -> str:
    return ", ".join(map(str, values)) if isinstance(values, tuple) else str(values)


def _as_table(entries: Sequence[_Entry]) -> AuditTable:
    table = pd.DataFrame(list(entries), columns=[*_COUNTS, *_MEANS, "detail"])
    return AuditTable(table.astype(dict.fromkeys(_MEANS, float)))


# -- a run


def audit(run: str | os.PathLike[str] | pd.DataFrame) -> AuditTable:
    """List per table of a run what could have gone wrong in silence, as `audit_rows` does.

    ``run`` is its name or folder, or its rows (then without the manifest, which says how many rows
    there should be, and without the cassette). The tables are "rows", "IR score" (each context
    once, whatever the number of generators and judges), "answers", "share of grade 5" and
    "cassette" (replies that are not as they were recorded).
    """
    rows = run if isinstance(run, pd.DataFrame) else load_rows(run)
    if rows.empty:
        raise DataError("the run has no rows", "at least one", "run the experiment first")
    wanted = len(rows)
    if rows is not run:
        wanted = max(wanted, load_manifest(run)["runs"][-1]["rows"])
    named = rows.assign(retriever=rows["retriever"].replace(QUERY_ONLY, NO_DOCUMENTS))
    stopped = "the run was stopped: run it again to go on"
    entries = [
        _Part("rows", named, varying(named, CELL)).failures(),
        _entry("rows", "missing rows", wanted - len(rows), wanted, detail=stopped),
    ]
    for table, (rows_of, by) in run_parts(named).items():
        if not rows_of.empty:
            part = _Part(table, rows_of, by, [name for name in by if name == "data"])
            if table in _SCORES:
                entries += part.score(*_SCORES[table])
            if table == RIGHT and "judge_shown" in rows_of:
                entries += _labels_by_place(rows_of)
            entries += part.column_checks()
    if rows is not run:
        entries += _cassette_checks(run_folder(run) / "cassette.sqlite")
    checks = _as_table(entries)
    checks["table"] = checks["table"].replace(RIGHT, right_words(rows))
    return checks


def right_words(rows: pd.DataFrame) -> str:
    """Return what is counted of a run's grades: "share of grade 5", or the best of its scales."""
    graded = rows[rows["judge"] != NONE]
    best = sorted({str(max(scale)) for scale, _ in rows_by_scale(graded)}) or ["5"]
    return f"share of grade {' or '.join(best)}"


def _cassette_checks(path: Path) -> Iterator[_Entry]:
    if path.is_file():
        with Cassette(path, mode="replay") as tape:
            problems = tape.verify()
            detail = "; ".join(problems[:3])
            yield _entry("cassette", "changed or damaged", len(problems), len(tape), detail=detail)


def _labels_by_place(grades: pd.DataFrame) -> Iterator[_Entry]:
    """Test whether the grades of prompts with several answers depend on the answer's place there.

    The answers of a prompt are in random order, so that grades and places are independent: a
    chi-squared test of their table, with the shares of each grade by place.
    """
    several = grades[pd.to_numeric(grades["judge_shown"]) > 1]
    counts = pd.crosstab(several["judge_position"], several["grade"])
    if min(counts.shape) < 2:
        return
    p = chi2_contingency(counts).pvalue
    shares = []
    for place, row in counts.div(counts.sum(axis=1), axis=0).iterrows():
        of_place = ", ".join(f"grade {grade:g} {share:.0%}" for grade, share in row.items())
        shares.append(f"place {place:g}: {of_place}")
    detail = f"p = {p:.2g} (chi-squared); {'; '.join(shares)}"
    flagged = len(several) if p < 0.05 else 0
    yield _entry(RIGHT, "labels by place", flagged, len(several), detail=detail)


def run_parts(rows: pd.DataFrame) -> dict[str, tuple[pd.DataFrame, list[str]]]:
    """Return contexts, answers and grades of a run, and the columns that tell their cells apart.

    Each question is once per cell: of the rows that share a context or an answer one with a score,
    or a text, counts. Grades have 1.0 for the best of their scale.
    """
    graded = rows[rows["judge"] != NONE]
    graded = graded.assign(**{RIGHT: fully_right(graded)}).reset_index(drop=True)
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
