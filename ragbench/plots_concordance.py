"""Figures of the concordance notebook: which metrics go together, what people's grades say, how systems are ranked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ragbench.plots import MARKERS, PALETTE, _style

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


def clustered_heat_map(matrix: pd.DataFrame, groups: Mapping[str, str], title: str) -> Figure:
    """Draw correlations as a heat map, like metrics side by side, with the tree that put them there.

    Parameters
    ----------
    matrix : symmetric, from `ragbench.concordance.correlation_matrix`; an undefined cell is crossed out.
    groups : metric -> paper; its names colour the labels.
    title : of the figure.
    """
    from scipy.cluster.hierarchy import dendrogram

    from ragbench.concordance import cluster_order

    names, tree = cluster_order(matrix)
    values = matrix.loc[names, names].to_numpy(float)
    side = 2.2 + 0.31 * len(names)
    figure, axes = _style(side + 2.2, side, ncols=2, gridspec_kw={"width_ratios": [1, 7]})
    branch, axis = axes[0]
    if len(tree):
        dendrogram(tree, orientation="left", no_labels=True, ax=branch, color_threshold=0,
                           above_threshold_color="#777777")  # fmt: skip
    branch.set_ylim(10 * len(names), 0)  # a leaf of the tree is ten units high; the map counts from the top
    branch.axis("off")
    image = axis.imshow(values, cmap="RdBu_r", vmin=-1, vmax=1, aspect="auto")
    for i, j in zip(*np.nonzero(np.isnan(values)), strict=True):
        axis.plot([j - 0.3, j + 0.3], [i - 0.3, i + 0.3], color="#777777", lw=0.8)
    if len(names) <= 30:
        for (i, j), value in np.ndenumerate(values):
            if i != j and abs(value) >= 0.3:
                colour = "white" if abs(value) > 0.6 else "black"
                axis.text(j, i, f"{value:.1f}".replace("0.", "."), ha="center", va="center", fontsize=6, color=colour)
    axis.set_xticks(range(len(names)), names, rotation=60, ha="right", fontsize=8)
    axis.set_yticks(range(len(names)), names, fontsize=8)
    axis.yaxis.tick_right()
    axis.grid(visible=False)
    colours = {paper: PALETTE[i % len(PALETTE)] for i, paper in enumerate(dict.fromkeys(groups.values()))}
    for label in (*axis.get_xticklabels(), *axis.get_yticklabels()):
        label.set_color(_dark(colours.get(groups.get(label.get_text(), ""), "#000000")))
    axis.set_title(title)
    figure.colorbar(image, ax=branch, location="left", shrink=0.4, pad=0.05, label="correlation")
    return figure


def agreement_dots(table: pd.DataFrame, groups: Mapping[str, str], chance: float = 0.5) -> Figure:
    """Draw each metric's AUC with its interval, and the share of pairs within a question it orders as people do.

    Parameters
    ----------
    table : from `ragbench.concordance.grade_agreement`. groups : metric -> paper, by colour and marker.
    chance : drawn as a dotted line.
    """
    rows = table.dropna(subset="auc").reset_index(drop=True)
    papers = list(dict.fromkeys(groups.values()))
    figure, axes = _style(7.6, 1.2 + 0.24 * len(rows), ncols=2, sharey=True)
    seen: dict[str, object] = {}
    for y, row in enumerate(rows.to_dict("records")):
        place = papers.index(groups[row["metric"]])
        look = {"color": PALETTE[place % len(PALETTE)], "marker": MARKERS[place % len(MARKERS)], "ms": 5}
        axes[0, 0].plot([row["low"], row["high"]], [y, y], color=look["color"], lw=1.3)
        seen[groups[row["metric"]]] = axes[0, 0].plot(row["auc"], y, ls="", **look)[0]
        axes[0, 1].plot(row["within"], y, ls="", **look)
    names = {0: "AUC over all answers,\n95% interval", 1: "pairs to one question\nordered as the grades do"}
    for axis, name in zip(axes[0], names.values(), strict=True):
        axis.axvline(chance, color="#777777", lw=0.8, ls=":")
        axis.set(xlim=(0.3, 1.0))
        axis.set_xlabel(name, fontsize=9)
    axes[0, 0].set_yticks(range(len(rows)), rows["metric"], fontsize=8)
    axes[0, 0].set_ylim(len(rows) - 0.4, -0.6)
    shown = [paper for paper in papers if paper in seen]
    figure.legend([seen[p] for p in shown], shown, loc="outside upper center", ncols=len(shown), fontsize=8)
    return figure


def ranking_lines(means: pd.DataFrame, higher: Mapping[str, bool], metrics: Sequence[str]) -> Figure:
    """Draw each system's rank by each metric as a line: crossings are disagreements.

    Parameters
    ----------
    means : from `ragbench.concordance.system_means`, a row per system.
    higher : metric -> whether more is better. metrics : those drawn, from left to right; equal means share a rank.
    """
    ranks = means[list(metrics)].mul([1 if higher[m] else -1 for m in metrics]).rank(ascending=False)
    figure, axes = _style(1.6 + 0.85 * len(metrics), 1.6 + 0.3 * len(means))
    axis = axes[0, 0]
    for i, (system, line) in enumerate(ranks.iterrows()):
        look = {"color": _dark(PALETTE[i % len(PALETTE)]), "marker": MARKERS[i % len(MARKERS)]}
        axis.plot(range(len(metrics)), line, lw=1.4, ms=6, **look)
        axis.text(len(metrics) - 0.85, line.iloc[-1], str(system), va="center", fontsize=9, color=look["color"])
    axis.set_xticks(
        range(len(metrics)), [m.replace(" ", "\n", 1) for m in metrics], fontsize=8, rotation=45, ha="right"
    )
    axis.set_yticks(range(1, len(means) + 1))
    axis.set_xlim(-0.3, len(metrics) + 0.1)
    axis.set(ylabel="rank (1 is best)")
    axis.invert_yaxis()
    axis.grid(axis="x", visible=False)
    return figure


def _dark(colour: str) -> str:
    """Darken the light colours of the palette, which are for areas, so that text in them can be read."""
    from matplotlib.colors import to_hex, to_rgb

    red, green, blue = to_rgb(colour)
    light = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    factor = min(1.0, 0.42 / light) if light else 1.0
    return to_hex((red * factor, green * factor, blue * factor))
