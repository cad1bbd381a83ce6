"""Figures of the RAGAS notebook: the two scores of every pair, and Table 1 with its intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ragbench.plots import MARKERS, PALETTE, _style

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


def pair_scatter(frame: pd.DataFrame, row: str = "source", column: str = "dimension") -> Figure:
    """Draw each pair at its two scores: above the diagonal the text made better wins.

    Parameters
    ----------
    frame : columns better and worse (NaN: not drawn, but counted in the title), and the two that make panels.
    row, column : columns whose values make rows and columns of panels, in order of appearance.
    """
    rows, columns = list(dict.fromkeys(frame[row])), list(dict.fromkeys(frame[column]))
    figure, axes = _style(1.0 + 2.9 * len(columns), 0.7 + 2.7 * len(rows), ncols=len(columns), nrows=len(rows))
    for i, source in enumerate(rows):
        for j, name in enumerate(columns):
            axis, part = axes[i, j], frame[(frame[row] == source) & (frame[column] == name)]
            known = part.dropna(subset=["better", "worse"])
            low, high = _range(known[["better", "worse"]].to_numpy(float))
            axis.plot([low, high], [low, high], color="#777777", lw=0.8, ls=":")
            wins = (known["better"] > known["worse"]).to_numpy()
            for k, (label, chosen) in enumerate({"made better wins": wins, "tie or loss": ~wins}.items()):
                points = known[chosen]
                style = {"color": PALETTE[(0, 4)[k]], "marker": MARKERS[(0, 6)[k]], "s": 22, "alpha": 0.75}
                axis.scatter(points["worse"], points["better"], label=f"{label} ({len(points)})", linewidths=0, **style)
            unscored = len(part) - len(known)
            axis.set(xlim=(low, high), ylim=(low, high), aspect="equal")
            axis.set_title(f"{name}\n{source}, n = {len(known)}" + (f" ({unscored} unscored)" if unscored else ""))
            axis.legend(fontsize=7, loc="lower right", handletextpad=0.1, borderpad=0.2)
            if i == len(rows) - 1:
                axis.set_xlabel("score, text made worse")
        axes[i, 0].set_ylabel("score, text made better")
    return figure


def agreement_dots(frame: pd.DataFrame, chance: float = 0.5) -> Figure:
    """Draw agreement by dimension (panels) and by what measured it (lines), with intervals where there are any.

    Parameters
    ----------
    frame : columns dimension, source, agreement, low, high (NaN: no interval).
    chance : drawn as a dotted line.
    """
    dimensions, sources = list(dict.fromkeys(frame["dimension"])), list(dict.fromkeys(frame["source"]))
    size = (2.2 + 2.4 * len(dimensions), 0.9 + 0.3 * len(sources))
    figure, axes = _style(*size, ncols=len(dimensions), sharex=True, sharey=True)
    for axis, name in zip(axes[0], dimensions, strict=True):
        part = frame[frame["dimension"] == name]
        place = np.array([sources.index(s) for s in part["source"]])
        for y, (_, cell) in zip(place, part.iterrows(), strict=True):
            colour = PALETTE[int(y) % len(PALETTE)]
            axis.plot([cell["low"], cell["high"]], [y, y], color=colour, lw=1.4)
            axis.plot(cell["agreement"], y, color=colour, marker=MARKERS[int(y) % len(MARKERS)], ms=6)
        axis.axvline(chance, color="#777777", lw=0.8, ls=":")
        axis.set(title=name, xlabel="agreement", xlim=(0, 1.03), xticks=[0, 0.25, 0.5, 0.75, 1])
    axes[0, 0].set_yticks(range(len(sources)), sources, fontsize=9)
    axes[0, 0].set_ylim(len(sources) - 0.5, -0.5)
    return figure


def _range(values: np.ndarray) -> Sequence[float]:
    """From a little below the least to a little above the greatest; 0..1 without values."""
    if not values.size:
        return 0.0, 1.0
    low, high = float(values.min()), float(values.max())
    room = 0.06 * max(high - low, 0.1)
    return low - room, high + room
