"""Figures of RAGChecker's diagnosis: metrics along a setting, ours and the paper's, and settings of equal budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pandas as pd

from ragbench.plots import MARKERS, PALETTE, _style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DASHES = [":", "--", "-.", (0, (1, 3)), (0, (6, 2))]
_PER_ROW = 4
_LEAST_SPAN = 0.2  # a point or two of difference must not fill a panel


def setting_lines(
    ours: pd.DataFrame,
    paper: pd.DataFrame,
    xlabel: str,
    values: Sequence[object],
    titles: Mapping[str, str] | None = None,
) -> Figure:
    """One panel per metric: its mean along a setting, by system, with the paper's numbers in black (Figures 6-8, 10).

    Parameters
    ----------
    ours : columns value, metric, system, domain, mean, low, high. Rows with domain "" are drawn thick, with their
        intervals; those of a domain thin.
    paper : columns value, metric, mean. A metric that only the paper has gets its panel too.
    xlabel : name of the setting. values : along the axis, in order.
    titles : of panels, by metric, where the metric's own name is not enough.
    """
    metrics = list(dict.fromkeys([*ours["metric"], *paper["metric"]]))
    systems = list(dict.fromkeys(ours["system"]))
    domains = [name for name in dict.fromkeys(ours["domain"]) if name]
    ncols = min(_PER_ROW, len(metrics))
    nrows = -(-len(metrics) // ncols)
    figure, axes = _style(2.6 * ncols, 0.7 + 2.3 * nrows, ncols=ncols, nrows=nrows)
    for axis, metric in zip(axes.ravel(), metrics, strict=False):
        for i, system in enumerate(systems):
            mine = ours[(ours["metric"] == metric) & (ours["system"] == system)]
            shift = 0.06 * (i - (len(systems) - 1) / 2)
            for domain, part in mine[mine["domain"] != ""].groupby("domain", sort=False):
                dash = DASHES[domains.index(domain) % len(DASHES)]
                x = [values.index(v) for v in part["value"]]
                axis.plot(x, part["mean"], color=PALETTE[i], ls=dash, lw=0.9, alpha=0.6, label=f"{system}, {domain}")
            _with_interval(axis, mine[mine["domain"] == ""], values, i, system, shift)
        printed = paper[paper["metric"] == metric]
        x = [values.index(v) for v in printed["value"]]
        axis.plot(x, printed["mean"], color="black", marker="X", ms=6, lw=1.4, label="paper")
        title = (titles or {}).get(metric, metric.replace("_", " "))
        axis.set_title(title, fontsize=9)
        axis.set(xlabel=xlabel, xlim=(-0.4, len(values) - 0.6))
        axis.set_xticks(range(len(values)), [str(v) for v in values])
        axis.grid(axis="x", visible=False)
        low, high = axis.get_ylim()
        room = max(0.0, _LEAST_SPAN - (high - low)) / 2
        axis.set_ylim(low - room, high + room)
    _finish(figure, axes, len(metrics))
    return figure


def budget_lines(table: pd.DataFrame) -> Figure:
    """Metrics against the tokens of context, k x size, one line per chunk size; systems above each other.

    Parameters
    ----------
    table : columns system, k, size, metric, mean, low, high.
    """
    systems, metrics = list(dict.fromkeys(table["system"])), list(dict.fromkeys(table["metric"]))
    table = table.assign(value=table["k"] * table["size"])
    budgets = sorted(table["value"].unique())
    figure, axes = _style(
        4.2 * len(metrics), 0.7 + 2.5 * len(systems), ncols=len(metrics), nrows=len(systems), sharex=True, sharey="col"
    )
    for row, system in zip(axes, systems, strict=True):
        for axis, metric in zip(row, metrics, strict=True):
            mine = table[(table["system"] == system) & (table["metric"] == metric)].sort_values("value")
            for i, (size, part) in enumerate(mine.groupby("size")):
                _with_interval(axis, part, budgets, i, f"{size} tokens each")
            axis.set(title=f"{system}: {metric.replace('_', ' ')}")
            axis.set_xticks(range(len(budgets)), [f"{b:,}" for b in budgets])
    for axis in axes[-1]:
        axis.set_xlabel("tokens of context")
    _finish(figure, axes, axes.size)
    return figure


def _with_interval(
    axis: Axes, part: pd.DataFrame, values: Sequence[object], number: int, label: str, shift: float = 0.0
) -> None:
    reach = [part["mean"] - part["low"], part["high"] - part["mean"]]
    colour, marker = PALETTE[number % len(PALETTE)], MARKERS[number % len(MARKERS)]
    x = [values.index(v) + shift for v in part["value"]]
    axis.errorbar(x, part["mean"], reach, color=colour, marker=marker, ms=5, lw=1.8, capsize=2, label=label)


def _finish(figure: Figure, axes, shown: int) -> None:
    """Hide panels without a metric, and write one legend for all."""
    handles = {}
    for i, axis in enumerate(axes.ravel()):
        axis.set_visible(i < shown)
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=4, fontsize=8)
