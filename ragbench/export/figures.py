"""The figures of a run, drawn by ``ragbench.plots``: split where one could not be read any more."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from ragbench.audit.runs import CELL
from ragbench.export.cells import GRADES, RETRIEVED, system_names

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

MOST_LINES = 8  # colours and markers of the palette
MOST_BARS = 40


def run_figures(tables: Mapping[str, pd.DataFrame]) -> Iterator[tuple[str, Figure, pd.DataFrame, str]]:
    """Yield (name, figure, numbers drawn, alt text).

    Parameters
    ----------
    tables : by stem, the frames of ``run_tables``.
    """
    from ragbench import plots

    if "ir_score" in tables:
        for name, title, part in _parts(tables["ir_score"], "ir_score", MOST_LINES):
            part = part.assign(retriever=system_names(part, RETRIEVED))
            high = part.loc[part["mean"].idxmax()] if part["mean"].notna().any() else None
            best = "" if high is None else f" The highest mean is {high['mean']:.2f}, {high['retriever']}."
            if "N" in part and part["N"].nunique() > 1:
                figure = plots.ir_score_curves(part, title=title)
                alt = f"Mean IR score against N, one line per system: {_names(part)}, with 95% intervals.{best}"
            else:
                drawn = part.assign(all="all")
                figure = plots.grouped_bars(drawn, "retriever", "mean", "all", "mean IR score", title)
                alt = f"Mean IR score of {_names(part)} as bars, with 95% intervals.{best}"
            yield name, figure, part, alt
    if "grades" in tables:
        for name, title, part in _parts(tables["grades"], "grades", MOST_BARS):
            by = [column for column in CELL if column in part]
            cell = part[by].astype(str).agg(", ".join, axis=1) if by else "all"
            drawn = part.assign(cell=cell)
            alt = f"Shares of grades 1 to 5, one bar per cell, {len(part)} cells."
            yield name, plots.stacked_shares(drawn, "cell", GRADES, title), drawn, alt
    if "seconds" in tables:
        for name, title, part in _parts(tables["seconds"].dropna(subset="mean"), "seconds", MOST_LINES):
            if len(part) == 1:  # one bar tells nothing
                continue
            names = system_names(part, (*RETRIEVED, "generator"))
            drawn = part.assign(system=names, N=part.get("N", "all"))
            figure = plots.grouped_bars(drawn, "N", "mean", "system", "seconds per answer", title)
            yield name, figure, drawn, f"Mean seconds per answer by N and system, with 95% intervals: {_names(drawn)}."


def _names(part: pd.DataFrame) -> str:
    return ", ".join(dict.fromkeys(part["retriever" if "retriever" in part else "system"].astype(str)))


def _parts(frame: pd.DataFrame, stem: str, most: int) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """Split a table by data set, chunker, generator and judge, one after the other, until a figure can hold it."""
    if frame.empty:
        return
    split: list[str] = []
    for axis in ("data", "judge", "generator", "chunker"):
        sizes = frame.groupby(split, dropna=False) if split else [((), frame)]
        if max(_size(part, stem) for _, part in sizes) <= most:
            break
        if axis in frame:
            split.append(axis)
    if not split:
        yield stem, _title(stem), frame
        return
    for key, part in frame.groupby(split, sort=False, dropna=False):
        words = ", ".join(map(str, key))
        safe = re.sub(r"[^A-Za-z0-9.]+", "-", words).strip("-")
        yield f"{stem}_{safe}", f"{_title(stem)}, {words}", part.drop(columns=split)


def _size(part: pd.DataFrame, stem: str) -> int:
    return len(part) if stem == "grades" else len(set(system_names(part, (*RETRIEVED, "generator"))))


def _title(stem: str) -> str:
    return {"ir_score": "Mean IR score", "grades": "Shares of grades", "seconds": "Seconds per answer"}[stem]
