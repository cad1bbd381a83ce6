"""One function per figure; each takes a long-form table and returns a matplotlib Figure.

Colours are Okabe and Ito's, told apart by colour-blind readers, and every line has its own marker besides.
"""

from __future__ import annotations

import textwrap
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
WIDEST = 16.0  # inches
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


def save_figure(
    figure: Figure, name: str, table: pd.DataFrame, alt: str, *, folder: Path | None = None, dpi: int = 150
) -> dict[str, Path]:
    """Write a figure as PNG and PDF, and the numbers it shows as CSV.

    The PDF has its fonts embedded as TrueType: text stays text, and publishers who refuse Type 3 fonts take it.

    Parameters
    ----------
    figure : what a plot function returned.
    name : ``<notebook>_<item>``, e.g. ``"11_table_3.1"``.
    table : the numbers drawn.
    alt : the picture in words, stored in the PNG's description and beside it as text.
    folder : where; default ``figures/`` of the checkout.
    dpi : of the PNG; 300 for print.

    Returns
    -------
    Paths by kind: png, pdf, csv, alt.

    Raises
    ------
    ConfigError for an empty alt text, or a figure too wide for a page: with A4's long side of 11.7 inches to fill, what
    is wider than 16 has letters nobody can read.
    """
    import matplotlib.pyplot as plt

    if not alt.strip():
        raise ConfigError(
            "an empty alt text", "the picture in words", "say what a reader who cannot see it should know"
        )
    width = figure.get_size_inches()[0]
    if width > WIDEST:
        raise ConfigError(f"a figure {width:.1f} inches wide", f"at most {WIDEST}", "draw fewer panels or split it")
    folder = folder or figures_dir()
    folder.mkdir(parents=True, exist_ok=True)
    paths = {kind: folder / f"{name}.{kind}" for kind in ("png", "pdf", "csv")}
    paths["alt"] = folder / f"{name}.txt"
    with plt.rc_context({"pdf.fonttype": 42}):
        figure.savefig(paths["png"], dpi=dpi, metadata={"Software": None, "Description": alt})
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
    top = float(frame[[y, "high"] if "high" in frame else [y]].max().max())  # one question alone has no interval
    axis.set_ylim(0, 1.2 * top if top > 0 else 1.0)  # room for the legend
    axis.grid(axis="x", visible=False)
    axis.legend(fontsize=8, ncols=min(4, len(names)))
    return figure


GRADE_COLOURS = [
    "#999999",
    "#E69F00",
    "#F0E442",
    "#D55E00",
    "#009E73",
]  # 1 none, 2 part wrong, 3 part, 4 wrong, 5 right


def stacked_shares(table: pd.DataFrame, row: str, columns: Sequence[str], title: str) -> Figure:
    """Shares of categories as one stacked bar per row, each share written into its part (Tables 3.2 and 3.3)."""
    figure, axes = _style(7.5, 0.45 * len(table) + 1.3)
    axis = axes[0, 0]
    left = np.zeros(len(table))
    for column, colour in zip(columns, GRADE_COLOURS, strict=False):
        values = table[column].to_numpy(float)
        axis.barh(np.arange(len(table)), values, left=left, color=colour, label=column, height=0.75)
        for i, value in enumerate(values):
            if value >= 0.04:
                axis.text(left[i] + value / 2, i, f"{value:.2f}", ha="center", va="center", fontsize=8)
        left += np.nan_to_num(values)
    axis.set_yticks(np.arange(len(table)), [str(v) for v in table[row]])
    axis.invert_yaxis()
    axis.set(xlim=(0, 1), xlabel="share of answers")
    axis.set_title(textwrap.fill(title, 75), pad=24)  # the names of three models are longer than the figure is wide
    axis.grid(axis="y", visible=False)
    axis.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=len(columns), fontsize=8)
    return figure


def scores_by_grade_group(groups: Mapping[str, Sequence[float]], h: float, k: float) -> Figure:
    """Sorted IR scores of each grade group, with the thresholds h and k (Figure 3.1)."""
    figure, axes = _style(3.1 * len(groups), 3.2, ncols=len(groups), sharey=True)
    for axis, (name, scores) in zip(axes[0], groups.items(), strict=True):
        ordered = np.sort(np.asarray(scores, float))
        axis.plot(np.arange(len(ordered)), ordered, color=PALETTE[0])
        axis.axhline(k, color=PALETTE[4], lw=1, label=f"k = {k:.3f}")
        axis.axhline(h, color=PALETTE[2], lw=1, ls="--", label=f"h = {h:.3f}")
        axis.set(title=f"{name} (n = {len(ordered)})", xlabel="answer, sorted by IR score", ylim=(-0.02, 1.02))
    axes[0, 0].set_ylabel("IR score")
    axes[0, -1].legend(loc="lower right", fontsize=8)
    return figure


def threshold_panels(scores: Mapping[str, Sequence[float]], h: float, k: float) -> Figure:
    """Sorted IR scores of each retriever cut by h and k, the three shares written in (Figure 3.2)."""
    figure, axes = _style(2.6 * len(scores), 3.0, ncols=len(scores), sharey=True)
    for axis, (name, values) in zip(axes[0], scores.items(), strict=True):
        ordered = np.sort(np.asarray(values, float))
        axis.plot(np.arange(len(ordered)), ordered, color=PALETTE[0])
        axis.axhline(k, color=PALETTE[4], lw=1)
        axis.axhline(h, color=PALETTE[2], lw=1, ls="--")
        parts = {(k + 1) / 2: np.mean(ordered > k), (h + k) / 2: np.mean((ordered >= h) & (ordered <= k))}
        parts[h / 2] = np.mean(ordered < h)
        for height, share in parts.items():
            # The curve climbs from lower left to upper right: the top share stands left of it, the others right.
            x, side = (0.03, "left") if height > k else (0.97, "right")
            axis.text(x, height, f"{share:.1%}", transform=axis.get_yaxis_transform(), fontsize=9, va="center", ha=side)
        axis.set(title=name, xlabel="question, sorted", ylim=(0, 1))
    axes[0, 0].set_ylabel("IR score")
    return figure


def reliability(curves: Mapping[str, pd.DataFrame]) -> Figure:
    """Predicted probability against observed share, a line per group (columns predicted, observed, low, high)."""
    figure, axes = _style(4.6, 4.2)
    axis = axes[0, 0]
    axis.plot([0, 1], [0, 1], color="#777777", lw=0.8, ls=":")
    for i, (name, curve) in enumerate(curves.items()):
        reach = np.vstack([curve["observed"] - curve["low"], curve["high"] - curve["observed"]]).clip(min=0)
        axis.errorbar(
            curve["predicted"], curve["observed"], reach, color=PALETTE[i], marker=MARKERS[i], ms=5, lw=1, label=name
        )
    axis.set(xlabel="predicted probability", ylabel="observed share", xlim=(0, 1), ylim=(0, 1))
    axis.legend(fontsize=8)
    return figure


def confusion(counts: np.ndarray, labels: Sequence[object], title: str, xlabel: str, ylabel: str) -> Figure:
    """A confusion matrix with its counts written in."""
    figure, axes = _style(4.2, 3.8)
    axis = axes[0, 0]
    axis.imshow(counts, cmap="Blues")
    for (i, j), count in np.ndenumerate(counts):
        axis.text(j, i, str(count), ha="center", va="center", color="white" if count > counts.max() / 2 else "black")
    axis.set_xticks(range(len(labels)), [str(v) for v in labels])
    axis.set_yticks(range(len(labels)), [str(v) for v in labels])
    axis.set(title=title, xlabel=xlabel, ylabel=ylabel)
    axis.grid(visible=False)
    return figure
