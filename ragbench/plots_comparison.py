"""Figures of a comparison of systems: the differences with their intervals, and power against questions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ragbench.plots import MARKERS, PALETTE, _style

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from ragbench.stats import PowerAnalysis


def differences(table: pd.DataFrame, alpha: float = 0.05) -> Figure:
    """Draw every comparison as its mean difference with the interval; filled where it holds after Holm's correction.

    Parameters
    ----------
    table : from `ragbench.comparison.compare`.
    alpha : level at which a marker is filled.
    """
    measures = list(dict.fromkeys(table["measure"]))
    pairs = list(dict.fromkeys(zip(table["a"], table["b"], strict=True)))
    size = (2.6 + 3.2 * len(measures), 1.2 + 0.34 * len(pairs))
    figure, axes = _style(*size, ncols=len(measures), sharey=True)
    for axis, measure in zip(axes[0], measures, strict=True):
        for row in table[table["measure"] == measure].to_dict("records"):
            y, holds = pairs.index((row["a"], row["b"])), row["p_holm"] < alpha
            colour = PALETTE[0] if holds else PALETTE[6]
            axis.plot([row["low"], row["high"]], [y, y], color=colour, lw=1.6)
            axis.plot(row["difference"], y, marker="o", ms=6, color=colour, mfc=colour if holds else "white")
        axis.axvline(0, color="#777777", lw=0.8, ls=":")
        axis.set(title=measure, xlabel="first minus second")
        axis.grid(axis="y", visible=False)
    axes[0, 0].set_yticks(range(len(pairs)), [f"{a} - {b}" for a, b in pairs], fontsize=9)
    axes[0, 0].set_ylim(len(pairs) - 0.5, -0.5)
    return figure


def power_curves(analyses: Mapping[Any, PowerAnalysis], limit: int = 5000) -> Figure:
    """Draw the chance of finding each difference again against the number of questions; a marker stands at the run's.

    Parameters
    ----------
    analyses : by name or (a, b, measure), as `ragbench.comparison.analyses` returns them; those without a standard
        deviation have no curve and are named in the legend.
    limit : questions at which the axis ends at the latest.
    """
    from ragbench.stats import power_curve

    figure, axes = _style(8.4, 3.8)
    axis = axes[0, 0]
    finite = [a.needed for a in analyses.values() if np.isfinite(a.needed)]
    end = float(min(limit, 1.6 * max([20, *finite, *(a.n for a in analyses.values())])))
    sizes = np.unique(np.geomspace(5, end, 60).round().astype(int)).tolist()
    for i, (key, analysis) in enumerate(analyses.items()):
        colour, marker = PALETTE[i % len(PALETTE)], MARKERS[i % len(MARKERS)]
        name = key if isinstance(key, str) else f"{key[0]} - {key[1]}, {key[2]}"
        curve = power_curve(analysis, sizes)
        if not curve:
            axis.plot([], [], color=colour, marker=marker, label=f"{name}: too few pairs")
            continue
        needed = f"{analysis.needed:,.0f}" if np.isfinite(analysis.needed) else "no number"
        axis.plot(*zip(*curve, strict=True), color=colour, ls=("-", "--")[i // len(PALETTE) % 2])
        place = (analysis.n, analysis.power) if analysis.n <= end else ([], [])
        axis.plot(*place, color=colour, marker=marker, ms=7, label=f"{name}: {needed}")
    axis.axhline(next(iter(analyses.values())).target, color="#777777", lw=0.8, ls=":")
    axis.set(xscale="log", ylim=(0, 1.03), xlabel="questions", ylabel="chance of finding the difference")
    ticks = [t for t in (5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000) if t <= end]
    axis.set_xticks(ticks, [f"{t:,}" for t in ticks], fontsize=8)
    axis.minorticks_off()
    level = next(iter(analyses.values())).alpha
    title = f"questions needed, each test at {level:g}"
    figure.legend(fontsize=8, loc="outside right upper", title=title, title_fontsize=8)
    return figure
