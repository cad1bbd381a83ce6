"""What could have gone wrong in silence behind a table: counted, with what it could do to the mean.

An audit changes nothing and never calls a model: it reads what the rows say of themselves.

Reading order: ``audit_rows`` (any data frame) -> ``_Part`` (one table and its checks) -> ``audit``
(an experiment).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import chi2_contingency

from ragbench.errors import DataError, check_known
from ragbench.experiment import load_manifest, load_rows
from ragbench.experiment.axes import NONE, QUERY_ONLY
from ragbench.llm import Cassette
from ragbench.llm.reply import CUT_SHORT
from ragbench.rows import AXIS_COLUMNS, run_folder
from ragbench.stats.inputs import several
from ragbench.stats.tables import fully_right

_Bounds = tuple[float, float]
_Entry = dict[str, Any]
_SHARE = (0.0, 1.0)  # worst and best value of a score
_MEANS = ("mean", "if_worst", "if_best")
_COLUMNS = ("table", "check", "rows", "of", "most_in", *_MEANS, "detail")
CELL = tuple(name for name in AXIS_COLUMNS if name != "question_id")
RETRIEVED = ("data", "chunker", "retriever", "k", "N")
ANSWERED = (*RETRIEVED, "generator")
# the tables of a run
ROWS, IR_SCORE, ANSWERS, RIGHT = "rows", "IR score", "answers", "share fully right"
NO_DOCUMENTS = "no documents"  # a plain name for `QUERY_ONLY`: the generator need not be an LLM
_NO_REASON = "no reason given"
_AS_THEY_COME: Mapping[str, Any] = {"sort": False, "dropna": False, "observed": True}


class _Check(NamedTuple):
    """A check of rows by their columns."""

    table: str  # of a run
    columns: tuple[str, ...]  # rows with a value in the first could show it
    marks: Callable[..., pd.Series]  # a function of these columns: the rows that show it
    meaning: str


def _numbers(column: pd.Series) -> pd.Series:
    """Return a column as numbers: of a CSV it is text."""
    return pd.to_numeric(column, errors="coerce")


def _mixed(digests: pd.Series, models: pd.Series) -> pd.Series:
    """Mark the rows whose model has other weights than most rows under the same name."""
    usual = digests.groupby(models, dropna=False).transform(lambda part: part.mode().get(0))
    return digests.notna() & digests.ne(usual)


def _truncated_answer(finish: pd.Series, kinds: pd.Series, steps: pd.Series) -> pd.Series:
    failed_at_the_limit = kinds.eq("truncated") & steps.eq("generate")
    return finish.isin(CUT_SHORT) | failed_at_the_limit


_CHECKS: Mapping[str, _Check] = {
    "zero-score hits": _Check(
        IR_SCORE,
        ("zero_hits",),
        lambda hits: _numbers(hits) > 0,
        "chunks that share nothing with the question count as found",
    ),
    "empty contexts": _Check(
        IR_SCORE,
        ("context_tokens", "N"),
        lambda tokens, n: (_numbers(n) > 0) & _numbers(tokens).eq(0),
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
        lambda cut: cut.astype(str).str.casefold().isin(["true", "1", "1.0"]),
        "longer than 4,000 characters: graded by their beginning",
    ),
    "mixed judges": _Check(RIGHT, ("judge_digest", "judge"), _mixed, "other weights, same name"),
}


def audit_rows(
    rows: pd.DataFrame,
    score: str | Sequence[str] | Mapping[str, _Bounds] = (),
    by: str | Sequence[str] = (),
    *,
    unit: str = "question_id",
    within: Sequence[str] = (),
) -> pd.DataFrame:
    """Count silent problems behind the means of a data frame.

    They are: failed, unscored or doubled rows, unequal n, truncation.

    Parameters
    ----------
    rows : one row per question and cell. Read where they exist: ``status``, ``error_step``,
        ``error_kind``, ``reason``, ``error`` (why a row failed or is unscored), and the columns of
        the checks above.
    score : column, or columns, whose mean is reported; or a dict column -> (worst, best) value that
        it can have, else (0, 1). NaN is unscored.
    by : columns that make the cells of the table.
    unit : column that names the question.
    within : columns whose values have questions of their own (data sets, languages); they make
        cells, too.

    Returns
    -------
    One row per table and check: ``rows`` (how many show it), ``of`` (how many could), ``most_in``
    (the cell with most of them), ``detail``. For "unscored" the cell is the one whose mean is the
    least certain.

    >>> import pandas as pd
    >>> rows = pd.DataFrame({"question_id": [*range(8)] * 2, "system": ["a"] * 8 + ["b"] * 8})
    >>> rows["contained"] = [1, 1, 1, 0, 1, 1, 1, 0] + [0, 1, 0, 0, 1, 0, 1, 0]
    >>> rb.audit_rows(rows, "contained", by="system")[["check", "rows", "of"]]
                      check  rows  of
    0              unscored     0  16
    1  cells with unequal n     0   2
    2            duplicates     0  16
    """
    cell = list(dict.fromkeys([*several(by), *within]))
    bounds = score if isinstance(score, Mapping) else dict.fromkeys(several(score), _SHARE)
    check_known("column", [*bounds, *cell], rows.columns)
    part = _Part(ROWS, rows.reset_index(drop=True), cell, within, unit)
    entries: list[_Entry] = []
    for name, ends in bounds.items():
        entries += part.of_score(name, ends, name)
    if "status" in rows or "error" in rows:
        entries.append(part.failures())
    if unit in rows:
        repeated = part.rows.duplicated([*cell, unit], keep="last")
        detail = "the same question twice in one cell"
        entries.append(part.entry("duplicates", repeated, len(rows), detail))
    entries += part.column_checks(_CHECKS)
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

    @property
    def keys(self) -> list[pd.Series]:
        """The values that make the cells; without such columns all rows are one cell."""
        one_cell = pd.Series(0, self.rows.index)
        return [self.rows[name] for name in self.by] or [one_cell]

    def entry(self, check: str, flagged: pd.Series, of: int, detail: str) -> _Entry:
        """Note one check: which rows show it, of how many that could."""
        entry = _entry(self.table, check, flagged.sum(), of, detail)
        if self.by and flagged.any():
            sizes = self.rows[flagged].groupby(self.by, **_AS_THEY_COME).size()
            cell = _cell_name(sizes.idxmax())
            entry["most_in"] = f"{cell}: {sizes.max()}"
        return entry

    def failures(self) -> _Entry:
        """Count failed rows by kind: ``status`` says so, or without that column an ``error``."""
        if "status" in self.rows:
            failed = self.rows["status"].eq("failed")
        else:
            failed = _text(self.rows, "error").ne("")
        return self.entry("failed", failed, len(failed), _reasons(self.rows[failed]))

    def column_checks(self, checks: Mapping[str, _Check]) -> Iterator[_Entry]:
        """Make the checks whose columns exist."""
        for name, check in checks.items():
            if not {*check.columns} <= {*self.rows}:
                continue
            values = [self.rows[column] for column in check.columns]
            first = values[0]
            flagged = check.marks(*values).fillna(False).astype(bool)
            yield self.entry(name, flagged, first.count(), check.meaning)

    def of_score(
        self, column: str, bounds: _Bounds, table: str, without_reason: str = _NO_REASON
    ) -> Iterator[_Entry]:
        """Note of one score: unscored rows and why, the mean's range, cells of other questions."""
        values = pd.to_numeric(self.rows[column], errors="coerce").astype(float)
        yield self._unscored(values, bounds, table, without_reason)
        if self.by:
            yield self._unequal(values.isna(), table)

    def _unscored(
        self, values: pd.Series, bounds: _Bounds, table: str, without_reason: str
    ) -> _Entry:
        """Count unscored rows, and say what they could do to the mean of a cell.

        The true mean lies between if_worst and if_best, whatever the reason rows are unscored
        (Manski 1990); of all cells that with the widest range is shown.
        """
        unscored = values.isna()
        why = _reasons(self.rows[unscored], without_reason)
        entry = _entry(table, "unscored", unscored.sum(), len(values), why)
        if not unscored.any():
            return entry
        cells = self._ranges(values, *bounds)
        place = int((cells["if_best"] - cells["if_worst"]).abs().argmax())
        entry |= {name: cells[name].iloc[place] for name in _MEANS}
        if self.by:
            cell = _cell_name(cells.index[place])
            entry["most_in"] = f"{cell}: {cells['lacking'].iloc[place]}"
        return entry

    def _ranges(self, values: pd.Series, worst: float, best: float) -> pd.DataFrame:
        """Return the mean of each cell with its unscored rows at their worst and at their best."""
        grouped = values.groupby(self.keys, **_AS_THEY_COME)
        cells = grouped.agg(["size", "count", "sum", "mean"])
        lacking = cells["size"] - cells["count"]
        return cells.assign(
            lacking=lacking,
            if_worst=(cells["sum"] + worst * lacking) / cells["size"],
            if_best=(cells["sum"] + best * lacking) / cells["size"],
        )

    def _unequal(self, unscored: pd.Series, table: str) -> _Entry:
        """Count the cells that have fewer scored questions than all cells of their part."""
        keys = self.keys
        questions = self.rows.groupby(keys, **_AS_THEY_COME).cumcount()
        if self.unit in self.rows:  # without names the questions of a cell are numbered
            questions = self.rows[self.unit]
        scored = questions.mask(unscored)
        within = [self.rows[name] for name in self.within] or (lambda _: 0)
        fewer = 0
        count = 0
        spans = []
        for _, questions in scored.groupby(within, **_AS_THEY_COME):
            sizes = questions.groupby(keys, **_AS_THEY_COME).nunique()
            whole = questions.nunique()
            count += len(sizes)
            fewer += (sizes < whole).sum()
            if sizes.min() < whole:
                spans.append(f"n from {sizes.min()} to {sizes.max()} of {whole}")
        detail = "; ".join(spans[:3])
        return _entry(table, "cells with unequal n", fewer, count, detail)


def _entry(table: str, check: str, rows: float, of: int, detail: str) -> _Entry:
    """Note one check; what no row shows has no detail."""
    entry = {"table": table, "check": check, "rows": int(rows), "of": int(of)}
    return entry | {"most_in": "", "detail": detail if rows else ""}


def _text(rows: pd.DataFrame, name: str) -> pd.Series:
    """Return a column as stripped texts, "" where a value or the column is missing."""
    missing = pd.Series("", rows.index)
    values = rows.get(name, missing).astype(object)
    values = values.where(values.notna(), "")
    # Objects: strings of pyarrow hold no half of a surrogate pair.
    return pd.Series([str(value).strip() for value in values], rows.index, dtype=object)


def _reasons(rows: pd.DataFrame, without_reason: str = _NO_REASON) -> str:
    """Count why rows failed or are unscored: ``"retrieve: context 2, no references 1"``."""
    step = _text(rows, "error_step")
    kind = _text(rows, "error_kind")
    reason = (step + ": " + kind).str.strip(": ")
    for name in ("reason", "error"):
        # Of a message its kind, which stands before the colon, is what can be counted.
        kind_of_message = _text(rows, name).str.split(":").str[0]
        reason = reason.where(reason.ne(""), kind_of_message)
    counts = reason.replace("", without_reason).value_counts()
    parts = [f"{name} {count}" for name, count in counts[:5].items()]
    if len(counts) > 5:
        parts.append(f"and {len(counts) - 5} more")
    return ", ".join(parts)


def _cell_name(values: object) -> str:
    if isinstance(values, tuple):
        return ", ".join(map(str, values))
    return str(values)


def _as_table(entries: Sequence[_Entry]) -> pd.DataFrame:
    table = pd.DataFrame(list(entries), columns=list(_COLUMNS))
    return table.astype(dict.fromkeys(_MEANS, float))


# -- a run


def audit(
    run: str | os.PathLike[str] | pd.DataFrame, rows: pd.DataFrame | None = None
) -> pd.DataFrame:
    """List per table of a run what could have gone wrong in silence, as `audit_rows` does.

    ``run`` is its name or folder, or its rows (then without the manifest, which says how many rows
    there should be, and without the cassette); ``rows`` beside a name: as loaded from there. The
    tables are "rows", "IR score" (each context once, whatever the number of generators and judges),
    "answers", "share fully right" and "cassette" (replies that are not as they were recorded).

    >>> settings = {"retriever": "BM25", "N": 100, "folder": "look"}
    >>> small = {"small": {"use": "token_chunks", "size": 100}}
    >>> grid = rb.Experiment("look", data="minihop", chunker=small, **settings)
    >>> _ = grid.run(progress=False)
    >>> int(rb.audit("look")["rows"].sum())
    0
    """
    is_name = not isinstance(run, pd.DataFrame)
    if rows is None:
        rows = load_rows(run) if is_name else run
    if rows.empty:
        raise DataError("the run has no rows", "at least one", "run the experiment first")
    if not {*AXIS_COLUMNS} <= {*rows}:
        raise DataError(
            f"a table with the columns {', '.join(map(str, rows))}",
            "the name of a run, or its rows",
            "take ragbench.report.audit.audit_rows(table, scores), for any table",
        )
    planned = len(rows)
    if is_name:
        planned = max(planned, load_manifest(run)["runs"][-1]["rows"])
    entries = [*_run_checks(rows, planned)]
    if is_name:
        entries += _cassette_checks(run_folder(run) / "cassette.sqlite")
    return _as_table(entries)


def _run_checks(rows: pd.DataFrame, planned: int) -> Iterator[_Entry]:
    """Yield the checks of a run's tables; ``planned`` rows should there be."""
    parts = run_parts(rows)
    rows_of, by = parts.pop(ROWS)
    yield _Part(ROWS, rows_of, by).failures()
    stopped = "the run was stopped: run it again to go on"
    yield _entry(ROWS, "missing rows", planned - len(rows), planned, stopped)
    for table, (rows_of, by) in parts.items():
        if rows_of.empty:
            continue
        data = [name for name in by if name == "data"]
        part = _Part(table, rows_of, by, data)
        if table == IR_SCORE:
            yield from part.of_score("ir_score", _SHARE, table, "no references")
        if table == RIGHT:
            yield from part.of_score(RIGHT, _SHARE, table)
            yield from _labels_by_place(rows_of)
        own = {name: check for name, check in _CHECKS.items() if check.table == table}
        yield from part.column_checks(own)


def _cassette_checks(path: Path) -> Iterator[_Entry]:
    if path.is_file():
        with Cassette(path, mode="replay") as cassette:
            problems = cassette.verify()
            replies = len(cassette)
        detail = "; ".join(problems[:3])
        yield _entry("cassette", "changed or damaged", len(problems), replies, detail)


def _labels_by_place(grades: pd.DataFrame) -> Iterator[_Entry]:
    """Test the grades of prompts with several answers, which are there in random order."""
    if "judge_shown" not in grades:
        return
    several = grades[pd.to_numeric(grades["judge_shown"]) > 1]
    scored = several.dropna(subset="grade").astype({"judge_position": int, "grade": int})
    labels = "grade " + scored["grade"].astype(str)
    p, words = labels_by_place(scored["judge_position"], labels)
    if not np.isnan(p):
        flagged = len(several) if p < 0.05 else 0
        yield _entry(RIGHT, "labels by place", flagged, len(several), words)


def labels_by_place(
    places: pd.Series | Sequence[Any], labels: pd.Series | Sequence[Any]
) -> tuple[float, str]:
    """Test whether labels depend on the place of their item in the prompt (chi-squared): a small
    model may give the first item one label and the second another, without reading them.

    ``places`` and ``labels``: one each for every item that shared its prompt; missing labels are
    left out. Return p (NaN with one place or one label: nothing to test) and what was found, with
    the shares of each label by place.
    """
    counts = pd.crosstab(pd.Series(places, name="place"), pd.Series(labels, name="label"))
    if min(counts.shape) < 2:
        return np.nan, "one item a prompt, or one label alone: no place to depend on"
    tested: Any = chi2_contingency(counts)
    p = float(tested.pvalue)
    parts = [f"p = {p:.2g} (chi-squared)"]
    shares = counts.div(counts.sum(axis=1), axis=0)
    for place, row in shares.iterrows():
        of_place = ", ".join(f"{label} {share:.0%}" for label, share in row.items())
        parts.append(f"place {place}: {of_place}")
    return p, "; ".join(parts)


def run_parts(rows: pd.DataFrame) -> dict[str, tuple[pd.DataFrame, list[str]]]:
    """Return rows, contexts, answers and grades of a run, and the columns that tell their cells
    apart.

    Each question is once per cell: of the rows that share a context or an answer one with a score,
    or a text, counts. Grades have 1.0 for the best of their scale. Rows without documents are named
    so.
    """
    rows = rows.assign(retriever=rows["retriever"].replace(QUERY_ONLY, NO_DOCUMENTS))
    retrieved = rows[rows["N"] > 0]
    answered = rows[rows["generator"] != NONE]
    graded = rows[rows["judge"] != NONE].reset_index(drop=True)
    graded[RIGHT] = pd.array(fully_right(graded), dtype="boolean")
    contexts = _once(retrieved, RETRIEVED, "ir_score")
    answers = _once(answered, ANSWERED, "answer")
    return {
        ROWS: (rows, _varying(rows, CELL)),
        IR_SCORE: (contexts, _varying(contexts, RETRIEVED)),
        ANSWERS: (answers, _varying(answers, ANSWERED)),
        RIGHT: (graded, _varying(graded, CELL)),
    }


def _once(rows: pd.DataFrame, cell: Sequence[str], column: str) -> pd.DataFrame:
    known_first = rows.loc[rows[column].isna().sort_values(kind="stable").index]
    once = known_first.drop_duplicates([*cell, "question_id"])
    return once.sort_index().reset_index(drop=True)


def _varying(rows: pd.DataFrame, cell: Sequence[str]) -> list[str]:
    """Return the columns of a cell that have more than one value."""
    return [name for name in cell if rows[name].nunique(dropna=False) > 1]
