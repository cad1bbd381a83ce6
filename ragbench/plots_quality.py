"""Figures of RAGEval's quality assessment: ranks by criterion, people beside judges, verdicts by generator."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from ragbench.errors import ConfigError
from ragbench.plots import MARKERS, PALETTE, _style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Covered, contradicted, neither: apart in grey too, by hatching.
_VERDICTS = {
    "completeness": (PALETTE[2], ""),
    "hallucination": (PALETTE[4], "///"),
    "irrelevance": ("#BBBBBB", "..."),
}


def first_ranks(frame: pd.DataFrame, title: str = "") -> Figure:
    """How often each writer's document is ranked first, by criterion; a panel per domain and language (Figure 5).

    Parameters
    ----------
    frame : from `ragbench.rageval_quality.rank_shares`: language, domain, criterion, writer, first, low, high, n.
    title : of the whole.
    """
    panels = list(frame.groupby(["language", "domain"], sort=False))
    if not panels:
        raise ConfigError("no ranks to draw", "at least one label of kind ranks", "label some documents first")
    writers, criteria = list(dict.fromkeys(frame["writer"])), list(dict.fromkeys(frame["criterion"]))
    columns = min(3, len(panels))
    lines = -(-len(panels) // columns)
    figure, axes = _style(3.4 * columns, 0.9 + 2.5 * lines, ncols=columns, nrows=lines, sharex=True, sharey=True)
    width = 0.8 / len(writers)
    for axis, ((language, domain), part) in zip(axes.ravel(), panels, strict=False):
        for i, writer in enumerate(writers):
            own = part[part["writer"] == writer].set_index("criterion").reindex(criteria)
            place = np.arange(len(criteria)) + (i - (len(writers) - 1) / 2) * width
            axis.bar(place, own["first"], width * 0.92, color=PALETTE[i % len(PALETTE)], label=writer)
            reach = np.vstack([own["first"] - own["low"], own["high"] - own["first"]]).clip(min=0)
            axis.errorbar(place, own["first"], reach, fmt="none", ecolor="#333333", lw=0.8, capsize=2)
        axis.set(title=f"{domain}, {language} (n = {part['n'].max():.0f})", ylim=(0, 1))
        axis.set_xticks(np.arange(len(criteria)), criteria, rotation=20, ha="right", fontsize=8)
        axis.grid(axis="x", visible=False)
    for axis in axes.ravel()[len(panels) :]:
        axis.set_visible(False)
    for axis in axes[:, 0]:
        axis.set_ylabel("share ranked first")
    handles, names = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=len(names), fontsize=8)
    if title:
        figure.suptitle(title)
    return figure


def two_judges(frame: pd.DataFrame, first: str = "people", second: str = "judge") -> Figure:
    """The three measures by two judges side by side, a panel per language (Figure 6).

    Parameters
    ----------
    frame : from `ragbench.rageval_quality.figure_6`: language, measure, people, judge, within, n.
    first, second : what the two are called.
    """
    frame = frame[frame["n"] > 0]
    if frame.empty:
        raise ConfigError("no answer judged by both", "at least one", "label keypoints of the same answers")
    panels = list(frame.groupby("language", sort=False))
    figure, axes = _style(3.6 * len(panels), 3.4, ncols=len(panels), sharey=True)
    for axis, (language, part) in zip(axes[0], panels, strict=True):
        place, ends = np.arange(len(part)), part[["people", "judge"]]
        axis.vlines(place, ends.min(axis=1), ends.max(axis=1), color="#888888")
        for i, (column, label) in enumerate((("people", first), ("judge", second))):
            axis.plot(place, part[column], MARKERS[i], color=PALETTE[i], ms=7, ls="none", label=label)
        above = {"xytext": (0, 8), "textcoords": "offset points", "ha": "center", "fontsize": 8}
        for x, top, gap, within in zip(place, ends.max(axis=1), part["difference"], part["within"], strict=True):
            axis.annotate(f"{gap:+.3f}{'' if within else ' *'}", (x, top), **above)
        axis.set(title=f"{language} (n = {part['n'].max():.0f})", ylim=(0, 1.05), xlim=(-0.6, len(part) - 0.4))
        axis.set_xticks(place, part["measure"], fontsize=8)
    axes[0, 0].set_ylabel("mean")
    axes[0, -1].legend(fontsize=8, loc="upper right")
    figure.supxlabel(f"number: {first} - {second}; * not within the tolerance", fontsize=8)
    return figure


def verdict_shares(frame: pd.DataFrame) -> Figure:
    """Completeness, hallucination and irrelevance of each generator as parts of a bar; a panel per language (Table 3).

    Parameters
    ----------
    frame : columns language, generator, completeness, hallucination, irrelevance; one row per bar.
    """
    panels = list(frame.groupby("language", sort=False))
    most = max(len(part) for _, part in panels)
    figure, axes = _style(4.4 * len(panels) + 1.2, 1.3 + 0.34 * most, ncols=len(panels), sharey=True)
    for axis, (language, part) in zip(axes[0], panels, strict=True):
        left = np.zeros(len(part))
        for measure, (colour, hatch) in _VERDICTS.items():
            axis.barh(
                part["generator"], part[measure], left=left, color=colour, hatch=hatch, edgecolor="white", label=measure
            )
            left = left + part[measure].to_numpy(float)
        axis.set(title=str(language), xlabel="share of keypoints", xlim=(0, 1.01))
        axis.grid(axis="y", visible=False)
    axes[0, 0].invert_yaxis()  # the first row on top; the panels share the axis
    handles, names = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=len(names), fontsize=8)
    return figure
