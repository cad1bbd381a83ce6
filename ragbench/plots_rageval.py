"""Figures of the RAGEval notebooks: how two measures order models, and settings beside the published ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from ragbench.errors import ConfigError
from ragbench.plots import MARKERS, PALETTE, _style

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def rank_changes(frame: pd.DataFrame, left: str, right: str, panel: str = "panel", name: str = "name") -> Figure:
    """Join each system's rank by one measure to its rank by another; rank 1 is on top.

    Parameters
    ----------
    frame : one row per system and panel; larger values of ``left`` and ``right`` are better. Equal values share their
        mean rank.
    left, right : columns to be ranked.
    panel, name : columns that make the panels and name the systems.
    """
    panels = list(frame.groupby(panel, sort=False))
    names = list(dict.fromkeys(frame[name]))
    if len(names) > len(PALETTE):
        raise ConfigError(f"{len(names)} systems", f"at most {len(PALETTE)}", "draw fewer in one figure")
    figure, axes = _style(5.2 * len(panels), 1.2 + 0.36 * len(names), ncols=len(panels))
    for axis, (title, part) in zip(axes[0], panels, strict=True):
        ranks = part[[left, right]].rank(ascending=False)
        for label, a, b in zip(part[name], ranks[left], ranks[right], strict=True):
            i = names.index(label)
            axis.plot([0, 1], [a, b], color=PALETTE[i], marker=MARKERS[i], lw=1.6)
        # Systems of equal value share a line of text.
        for x, column, side in ((-0.05, left, "right"), (1.05, right, "left")):
            for rank, same in part[name].groupby(ranks[column]):
                axis.text(x, rank, " / ".join(same), ha=side, va="center", fontsize=8)
        axis.set(title=str(title), xlim=(-1.1, 2.1), ylim=(len(part) + 0.5, 0.5))
        axis.set_xticks([0, 1], [left, right])
        axis.set_yticks([])
        axis.grid(visible=False)
        axis.spines[["left", "bottom"]].set_visible(False)
    return figure


def settings_beside_paper(ours: pd.DataFrame, paper: pd.DataFrame | None = None) -> Figure:
    """Mean of each measure under each setting with intervals, a black bar where the paper has its value.

    Parameters
    ----------
    ours : columns panel, setting, system, measure, mean, low, high. Panels stand side by side, measures above each
        other.
    paper : columns panel, setting, measure, mean.
    """
    panels, measures = list(dict.fromkeys(ours["panel"])), list(dict.fromkeys(ours["measure"]))
    systems, settings = list(dict.fromkeys(ours["system"])), list(dict.fromkeys(ours["setting"]))
    size = (1.6 + 0.75 * len(settings) * len(panels), 0.9 + 2.4 * len(measures))
    figure, axes = _style(*size, ncols=len(panels), nrows=len(measures), sharex=True, sharey="row")
    for i, measure in enumerate(measures):
        for j, panel in enumerate(panels):
            axis = axes[i, j]
            part = ours[(ours["measure"] == measure) & (ours["panel"] == panel)]
            for s, system in enumerate(systems):
                points = part[part["system"] == system].set_index("setting").reindex(settings)
                place = [x + 0.16 * (s - (len(systems) - 1) / 2) for x in range(len(settings))]
                reach = [points["mean"] - points["low"], points["high"] - points["mean"]]
                axis.errorbar(
                    place,
                    points["mean"],
                    reach,
                    fmt=MARKERS[s],
                    color=PALETTE[s],
                    ms=4.5,
                    lw=1,
                    capsize=2,
                    label=system,
                )
            if paper is not None:
                known = paper[(paper["measure"] == measure) & (paper["panel"] == panel)]
                known = known[known["setting"].isin(settings)]
                axis.hlines(
                    known["mean"],
                    [settings.index(s) - 0.42 for s in known["setting"]],
                    [settings.index(s) + 0.42 for s in known["setting"]],
                    color="black",
                    lw=1.6,
                    label="paper",
                )
            axis.set_xticks(range(len(settings)), settings, rotation=30, ha="right", fontsize=8)
            axis.grid(axis="x", visible=False)
            if i == 0:
                axis.set_title(str(panel))
        axes[i, 0].set(ylabel=measure)
        axes[i, 0].set_ylim(bottom=0)  # only now: it would end the scaling to the panels still to come
    handles = {}
    for axis in axes.ravel():
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=len(handles), fontsize=8)
    return figure
