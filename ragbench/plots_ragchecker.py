"""Figures of the RAGChecker notebooks: the published systems as heat maps, correlations as dots, scores as violins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from ragbench.plots import MARKERS, PALETTE, _style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def system_heat_maps(
    tables: dict[str, pd.DataFrame], lower_is_better: Sequence[str] = (), ncols: int = 1, decimals: int | None = None
) -> Figure:
    """Tables of systems (rows) by metrics (columns), one panel each; darker is better.

    A column's shades run from its worst to its best value over all panels.

    Parameters
    ----------
    tables : panel title -> numbers; the same rows and columns in each.
    lower_is_better : columns whose small values are dark.
    ncols : panels side by side.
    decimals : write each number into its cell with so many ("-" for NaN); None leaves the cells bare.
    """
    first = next(iter(tables.values()))
    stacked = pd.concat(tables.values())
    low, reach = stacked.min(), stacked.max() - stacked.min()
    nrows = -(-len(tables) // ncols)
    width, height = 1.8 + 0.55 * first.shape[1] * ncols, 1.3 + (0.28 * len(first) + 0.35) * nrows
    figure, axes = _style(width, height, ncols=ncols, nrows=nrows, sharex=True, sharey=True)
    for axis, (title, table) in zip(axes.ravel(), tables.items(), strict=False):
        shade = ((table - low) / reach.where(reach > 0, 1)).to_numpy(float)
        shade = np.where(table.columns.isin(lower_is_better), 1 - shade, shade)
        axis.imshow(shade, cmap="Blues", vmin=0, vmax=1, aspect="auto")
        axis.set_title(title)
        axis.grid(visible=False)
        axis.set_yticks(range(len(table)), [str(v) for v in table.index], fontsize=8)
        axis.set_xticks(
            range(table.shape[1]),
            [str(c).replace("_", " ") for c in table.columns],
            rotation=40,
            ha="right",
            fontsize=8,
        )
        if decimals is not None:
            for (i, j), value in np.ndenumerate(table.to_numpy(float)):
                colour = "white" if shade[i, j] > 0.6 else "black"
                text = f"{value:.{decimals}f}" if value == value else "-"
                axis.text(j, i, text, ha="center", va="center", fontsize=8, color=colour)
    for axis in axes.ravel()[len(tables) :]:
        axis.set_visible(False)
    return figure


def correlation_dots(
    frame: pd.DataFrame, row: str, value: str, hue: str, xlabel: str, facet: str | None = None
) -> Figure:
    """One line per ``row`` with a dot per ``hue``, and its interval where the table has columns low and high.

    Parameters
    ----------
    frame : long form; rows are drawn from the top in their order of appearance.
    facet : column that makes panels side by side; None draws one.
    """
    panels = list(frame.groupby(facet, sort=False)) if facet else [("", frame)]
    rows, names = list(dict.fromkeys(frame[row])), list(dict.fromkeys(frame[hue]))
    figure, axes = _style(3.6 + 2.9 * len(panels), 1.4 + 0.32 * len(rows), ncols=len(panels), sharex=True, sharey=True)
    for axis, (title, part) in zip(axes[0], panels, strict=True):
        for i, name in enumerate(names):
            points = part[part[hue] == name]
            place = np.array([rows.index(r) for r in points[row]]) + 0.22 * (i - (len(names) - 1) / 2)
            _dots(axis, points, value, place, i, str(name))
        axis.axvline(0, color="#777777", lw=0.8)
        axis.set(title=str(title), xlabel=xlabel)
        axis.set_yticks(range(len(rows)), [str(r).replace("_", " ") for r in rows], fontsize=8)
    axes[0, 0].set_ylim(len(rows) - 0.4, -0.6)
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=len(names), fontsize=8)
    return figure


def _dots(axis: Axes, points: pd.DataFrame, value: str, place: np.ndarray, number: int, label: str) -> None:
    colour, marker = PALETTE[number % len(PALETTE)], MARKERS[number % len(MARKERS)]
    centre, reach = points[value].to_numpy(float), None
    if "low" in points:
        reach = np.vstack([centre - points["low"].to_numpy(), points["high"].to_numpy() - centre]).clip(min=0)
    axis.errorbar(centre, place, xerr=reach, fmt=marker, color=colour, ms=4.5, lw=1, capsize=2, label=label)


def score_violins(frame: pd.DataFrame) -> Figure:
    """Distribution of normalised score differences at each human label, means joined by a dashed line (Figure 4).

    Parameters
    ----------
    frame : one row per label given; columns aspect (a column of panels), metric (a row of panels), label (-2..2) and
        score (-2..2).
    """
    aspects, metrics = list(dict.fromkeys(frame["aspect"])), list(dict.fromkeys(frame["metric"]))
    size = (1.0 + 2.9 * len(aspects), 0.8 + 2.1 * len(metrics))
    figure, axes = _style(*size, ncols=len(aspects), nrows=len(metrics), sharex=True, sharey=True)
    for i, metric in enumerate(metrics):
        for j, aspect in enumerate(aspects):
            axis, part = axes[i, j], frame[(frame["metric"] == metric) & (frame["aspect"] == aspect)]
            by_label = {label: scores.to_numpy(float) for label, scores in part.groupby("label")["score"]}
            # A single point, or equal ones, have no density: they are drawn as their mean alone.
            spread = {label: scores for label, scores in by_label.items() if np.ptp(scores) > 0}
            if spread:
                drawn = axis.violinplot(list(spread.values()), list(spread), widths=0.8, showextrema=False)
                for body in drawn["bodies"]:
                    body.set(facecolor=PALETTE[i % len(PALETTE)], alpha=0.45)
            means = [scores.mean() for scores in by_label.values()]
            axis.plot(list(by_label), means, color="#222222", ls="--", lw=1.2, marker="o", ms=3)
            axis.set(ylim=(-2.1, 2.1), xticks=range(-2, 3))
            if i == 0:
                axis.set_title(aspect)
            if i == len(metrics) - 1:
                axis.set_xlabel("human label")
        axes[i, 0].set_ylabel(f"{metric}\nscore difference", fontsize=9)
    return figure
