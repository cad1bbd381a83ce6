"""One function per figure; each takes a long-form table and returns a matplotlib Figure.

Colours are Okabe and Ito's, told apart by colour-blind readers, and every line has its own marker besides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from ragbench.errors import ConfigError
from ragbench.paths import figures_dir

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PALETTE = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#7F7F7F", "#F0E442"]
RETRIEVERS = ["BM25", "SIM", "MMR", "MLQ", "REO"]
MARKERS = ["o", "s", "^", "D", "v", "P", "X", "*"]


def _style(width: float = 7.0, height: float = 4.2, ncols: int = 1, nrows: int = 1, **grid):
    """Open a figure in the project's look."""
    import matplotlib.pyplot as plt
    import seaborn as sns

    look = {"axes.spines.top": False, "axes.spines.right": False, "figure.dpi": 110, "legend.frameon": False}
    with sns.axes_style("whitegrid", rc=look), plt.rc_context({"font.size": 10, "axes.titlesize": 11}):
        figure, axes = plt.subplots(nrows, ncols, figsize=(width, height), squeeze=False, layout="constrained", **grid)
    plt.close(figure)  # shown by the cell that returns it, not a second time by the backend
    return figure, axes


def _look(names: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Colour and marker by name; the five retrievers of the thesis always have the same ones."""
    order = [*RETRIEVERS, *(n for n in names if n not in RETRIEVERS)]
    return {n: (PALETTE[i % len(PALETTE)], MARKERS[i % len(MARKERS)]) for i, n in enumerate(order)}


def save_figure(figure: Figure, name: str, table: pd.DataFrame, alt: str) -> dict[str, Path]:
    """Write a figure as PNG and PDF, and the numbers it shows as CSV.

    Parameters
    ----------
    figure : what a plot function returned.
    name : ``<notebook>_<item>``, e.g. ``"11_table_3.1"``.
    table : the numbers drawn.
    alt : the picture in words, stored in the PNG's description and beside it as text.

    Returns
    -------
    Paths by kind: png, pdf, csv, alt.
    """
    if not alt.strip():
        raise ConfigError(
            "an empty alt text", "the picture in words", "say what a reader who cannot see it should know"
        )
    paths = {kind: figures_dir() / f"{name}.{kind}" for kind in ("png", "pdf", "csv")}
    paths["alt"] = figures_dir() / f"{name}.txt"
    figure.savefig(paths["png"], dpi=150, metadata={"Software": None, "Description": alt})
    figure.savefig(paths["pdf"], metadata={"CreationDate": None, "Producer": None, "Creator": None})
    table.to_csv(paths["csv"], index=False, float_format="%.6g", lineterminator="\n")
    paths["alt"].write_text(alt.strip() + "\n", encoding="utf-8")
    return paths


def ir_score_curves(ours: pd.DataFrame, paper: pd.DataFrame | None = None, title: str = "measured here") -> Figure:
    """Mean IR score against the token budget, one line per retriever, with the published curves beside (Table 3.1).

    Parameters
    ----------
    ours : columns retriever, N, mean, low, high.
    paper : columns retriever, N, mean; None draws one panel.
    title : what the left panel was measured on.
    """
    panels = [(title, ours)] + ([("as published", paper)] if paper is not None else [])
    figure, axes = _style(4.6 * len(panels), 4.0, ncols=len(panels), sharey=True)
    look = _look(list(ours["retriever"].unique()))
    for axis, (name, frame) in zip(axes[0], panels, strict=True):
        for retriever, line in frame.groupby("retriever", sort=False):
            colour, marker = look[retriever]
            axis.plot(line["N"], line["mean"], color=colour, marker=marker, ms=4, label=retriever)
            if "low" in line:
                axis.fill_between(line["N"], line["low"], line["high"], color=colour, alpha=0.15, lw=0)
        axis.set(title=name, xlabel="N, tokens of context", ylim=(0, 1))
    axes[0, 0].set_ylabel("mean IR score")
    axes[0, -1].legend(loc="upper left", ncols=2, fontsize=8)
    return figure


def window_distances(distances: np.ndarray, threshold: float, breaks: Sequence[int], title: str) -> Figure:
    """Cosine distance from each window of sentences to the next, with the breaks (Figure 2.6)."""
    figure, axes = _style(7.5, 3.2)
    axis = axes[0, 0]
    x = np.arange(len(distances))
    axis.plot(x, distances, color=PALETTE[0], marker="o", ms=3)
    axis.axhline(threshold, color=PALETTE[4], ls="--", lw=1, label=f"threshold {threshold:.3f}")
    for i, at in enumerate(breaks):
        axis.axvline(at, color=PALETTE[6], lw=0.8, label="new chunk after this window" if i == 0 else None)
    axis.set(xlabel="window", ylabel="cosine distance to the next", title=title)
    axis.set_ylim(0, max(float(np.max(distances, initial=0)), threshold) * 1.35)  # room for the legend
    axis.legend(loc="upper right", ncols=2, fontsize=8)
    return figure


def histogram(groups: Mapping[str, Sequence[float]], xlabel: str, title: str, bins: int = 40) -> Figure:
    """Distribution of a quantity, one outline per group."""
    figure, axes = _style(7.0, 3.2)
    top = float(np.percentile(np.concatenate([np.asarray(v, float) for v in groups.values()]), 99.5))
    # Dashes of its own for each outline: where two coincide, both are seen.
    for i, (name, values) in enumerate(groups.items()):
        axes[0, 0].hist(
            np.clip(values, 0, top),
            bins=bins,
            range=(0, top),
            histtype="step",
            lw=1.5,
            color=PALETTE[i],
            ls=("-", "--", ":", "-.")[i % 4],
            label=name,
        )
    axes[0, 0].set(xlabel=xlabel, ylabel="count", title=title)
    axes[0, 0].legend(fontsize=8)
    return figure


def grouped_bars(frame: pd.DataFrame, x: str, y: str, hue: str, ylabel: str, title: str) -> Figure:
    """Bars of ``y`` over ``x`` in groups of ``hue``, with intervals where the table has columns low and high."""
    figure, axes = _style(max(6.0, 1.1 * frame[x].nunique() * max(1, frame[hue].nunique() / 3)), 3.6)
    axis = axes[0, 0]
    names, groups = list(dict.fromkeys(frame[hue])), list(dict.fromkeys(frame[x]))
    width = 0.8 / len(names)
    look = _look(names)
    for i, name in enumerate(names):
        part = frame[frame[hue] == name].set_index(x).reindex(groups)
        place = np.arange(len(groups)) + (i - (len(names) - 1) / 2) * width
        axis.bar(place, part[y], width=width * 0.92, color=look[name][0], label=str(name))
        if "low" in part:
            reach = np.vstack([part[y] - part["low"], part["high"] - part[y]]).clip(min=0)
            axis.errorbar(place, part[y], reach, fmt="none", ecolor="#333333", lw=0.9, capsize=2)
    axis.set_xticks(np.arange(len(groups)), [str(g) for g in groups])
    axis.set(xlabel=x, ylabel=ylabel, title=title)
    axis.set_ylim(0, 1.2 * float(frame["high" if "high" in frame else y].max()))  # room for the legend
    axis.grid(axis="x", visible=False)
    axis.legend(fontsize=8, ncols=min(4, len(names)))
    return figure
