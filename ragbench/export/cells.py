"""The tables of a run: one row per cell of the grid, means with intervals, counts beside them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ragbench.audit.rows import COLUMNS as AUDIT_COLUMNS
from ragbench.audit.runs import ANSWERED, CELL, RETRIEVED, RIGHT, graded, once, scored_contexts, varying
from ragbench.errors import DataError
from ragbench.export.tables import with_interval
from ragbench.stats import means

if TYPE_CHECKING:
    import pandas as pd

RESAMPLES = 2000
POINTS = ("data", "chunker", "generator", "judge")
GRADES = tuple(f"grade {grade}" for grade in range(1, 6))


@dataclass(frozen=True)
class Made:
    """A table of a run: ``frame`` for the CSV, ``shown`` for readers (None: the same)."""

    stem: str
    caption: str
    frame: pd.DataFrame
    shown: pd.DataFrame | None = None
    notes: tuple[str, ...] = field(default=())


def run_tables(rows: pd.DataFrame, name: str, audit: pd.DataFrame) -> Iterator[Made]:
    """Yield the tables that the rows of a run allow, each as soon as it is made.

    Parameters
    ----------
    rows : of a run, each question once per cell.
    name : of the run, for the captions.
    audit : of the same run.
    """
    left_out = f"Left out here: {_fixed(rows)}." if _fixed(rows) else ""
    notes = (left_out,) if left_out else ()
    contexts = scored_contexts(rows)
    if len(contexts):
        yield from _ir_scores(contexts, name, notes)
    answers = once(rows[rows["generator"] != "none"], ANSWERED, "answer")
    if len(answers):
        yield _seconds(answers, name, notes)
    marks = graded(rows)
    if len(marks):
        yield _grades(marks, name, notes)
        if (marks["N"] > 0).any():
            yield _thresholds(marks[marks["N"] > 0], name)
    yield _ranges(contexts, marks, name)
    shown = audit.drop(columns=[n for n in ("mean", "if_worst", "if_best") if audit[n].isna().all()])
    yield Made("audit", f"{name}: what could have gone wrong in silence", audit[list(AUDIT_COLUMNS)], _worded(shown))


def _fixed(rows: pd.DataFrame) -> str:
    """Name the axes that have one value in the whole run."""
    return ", ".join(
        f"{axis} {rows[axis].iloc[0]}" for axis in CELL
        if rows[axis].nunique(dropna=False) == 1 and rows[axis].iloc[0] != "none"
    )  # fmt: skip


def system_names(frame: pd.DataFrame, cell: Sequence[str]) -> pd.Series:
    """Name each row's system by the values of the columns that vary in the frame, N apart."""
    by = [name for name in cell if name in frame and name != "N" and frame[name].nunique(dropna=False) > 1]
    if not by:
        last = [name for name in ("retriever", "generator") if name in frame]
        return frame[last[0]].astype(str) if last else frame.iloc[:, 0].astype(str).mask(lambda s: s == s, "all")
    return frame[by].astype(str).agg(", ".join, axis=1)


def _ir_scores(contexts: pd.DataFrame, name: str, notes: tuple[str, ...]) -> Iterator[Made]:
    frame = means(contexts, varying(contexts, RETRIEVED), "ir_score", resamples=RESAMPLES)
    shown = frame.drop(columns=["mean", "low", "high"])
    shown.insert(len(shown.columns) - 2, "IR score [95% interval]", with_interval(frame))
    yield Made("ir_score", f"{name}: mean IR score per cell", frame, shown, notes)
    if "N" in frame and len(varying(frame, [n for n in RETRIEVED if n in frame and n != "N"])):
        wide = frame.assign(system=system_names(frame, RETRIEVED)).pivot(index="N", columns="system", values="mean")
        wide = wide[list(dict.fromkeys(system_names(frame, RETRIEVED)))].reset_index()
        yield Made("ir_score_by_n", f"{name}: mean IR score by the budget of N tokens", wide, None, notes)


def _seconds(answers: pd.DataFrame, name: str, notes: tuple[str, ...]) -> Made:
    frame = means(answers, varying(answers, ANSWERED), "seconds", resamples=RESAMPLES)
    by = [column for column in frame.columns if column in ANSWERED]
    counts = [column for column in ("prompt_tokens", "output_tokens") if answers[column].notna().any()]
    if counts:
        numbers = answers[[*by, *counts]].astype(dict.fromkeys(counts, float))
        sums = (
            numbers.groupby(by, sort=False, dropna=False)[counts].mean() if by else numbers[counts].mean().to_frame().T
        )
        frame = frame.join(sums.reset_index(drop=True).add_prefix("mean "))
    frame = frame.rename(columns={"unscored": "untimed"})
    shown = frame.drop(columns=["mean", "low", "high"])
    shown.insert(len(by), "seconds [95% interval]", with_interval(frame))
    cached = int(answers["cached"].map(lambda value: value is True).sum())
    told = (f"{cached} answers came from a cassette: their seconds are those of the recording.",) if cached else ()
    return Made("seconds", f"{name}: seconds per answer", frame, _worded(shown), notes + told)


def _grades(marks: pd.DataFrame, name: str, notes: tuple[str, ...]) -> Made:
    import pandas as pd

    from ragbench.grading import grade_shares
    from ragbench.stats import binomial_ci

    by = varying(marks, CELL)
    cells = marks[by].drop_duplicates().reset_index(drop=True) if by else pd.DataFrame(index=[0])
    key = marks[by].astype(str).agg("\x1f".join, axis=1) if by else pd.Series("", index=marks.index)
    shares = grade_shares(marks.assign(cell=key), "cell").drop(columns=["cell", "seconds"])
    frame = pd.concat([cells, shares], axis=1)
    rights = [binomial_ci(round(share * n), n) if n else None for share, n in frame[["grade 5", "n"]].to_numpy()]
    low, high = ([float("nan") if i is None else getattr(i, side) for i in rights] for side in ("low", "high"))
    frame.insert(frame.columns.get_loc("n"), "grade 5 low", low)
    frame.insert(frame.columns.get_loc("n"), "grade 5 high", high)
    shown = frame.drop(columns=["grade 5 low", "grade 5 high"]).astype({"grade 5": object})
    shown["grade 5"] = with_interval(frame, "grade 5", "grade 5 low", "grade 5 high")
    shown = shown.rename(columns={"grade 5": "grade 5 [95% interval]"})
    return Made("grades", f"{name}: shares of the five grades", frame, shown, notes)


def _thresholds(marks: pd.DataFrame, name: str) -> Made:
    """Fit h and k per data set, chunker, generator and judge, over all retrievers at the largest N (section 3.3)."""
    import pandas as pd

    from ragbench.thresholds import fit_thresholds

    largest = int(marks["N"].max())
    points = marks[(marks["N"] == largest) & marks["ir_score"].notna() & marks["grade"].notna()]
    by = varying(marks, POINTS)
    made = []
    for key, group in points.groupby(by, sort=False, dropna=False) if by else [((), points)]:
        cells = dict(zip(by, key if isinstance(key, tuple) else (key,), strict=True))
        scores, grades = group["ir_score"].to_numpy(float), group["grade"].to_numpy(int)
        try:
            fitted = fit_thresholds(scores, grades)
        except DataError as error:
            made.append(cells | {"threshold": "h, k", "n": len(group), "note": error.got})
            continue
        for side, one in (("h", fitted.h), ("k", fitted.k)):
            told = {"value": one.value, "plateau_from": one.low, "plateau_to": one.high}
            told |= {"agreement": one.agreement, "n": len(group)}
            made.append(cells | {"threshold": side} | told | {"note": ""})
    columns = [*by, "threshold", "value", "plateau_from", "plateau_to", "agreement", "n", "note"]
    frame = pd.DataFrame(made, columns=columns)
    caption = f"{name}: thresholds of the IR score, all retrievers at N = {largest}"
    under = (
        "h: below it grade 1 is expected; k: above it grade 5.",
        "Plateau: values that agree with the grades equally well; not a confidence interval.",
    )
    shown = frame if frame["note"].any() else frame.drop(columns="note")
    return Made("thresholds", caption, frame, _worded(shown), under)


def _ranges(contexts: pd.DataFrame, marks: pd.DataFrame, name: str) -> Made:
    import pandas as pd

    from ragbench.audit import ranges

    parts: list[Any] = []
    for score, rows, cell in (("IR score", contexts, RETRIEVED), (RIGHT, marks, CELL)):
        if len(rows):
            column = "ir_score" if score == "IR score" else RIGHT
            told = ranges(rows, column, [n for n in cell if n in varying(rows, cell)])
            told.insert(0, "score", score)
            parts.append(told)
    frame = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame({"score": []})
    axes = [n for n in CELL if n in frame]
    frame = frame[["score", *axes, *[n for n in frame.columns if n not in ("score", *axes)]]]
    shown = frame.copy()
    for axis in axes:  # the IR score has no generator and judge
        shown[axis] = frame[axis].astype(object).where(frame[axis].notna(), "–")
    return Made("ranges", f"{name}: means, and all unscored rows at their worst or best", frame, _worded(shown))


def _worded(table: pd.DataFrame) -> pd.DataFrame:
    return table.rename(columns=lambda name: name.replace("_", " "))
