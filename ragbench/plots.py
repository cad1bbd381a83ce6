"""One function per kind of figure; each takes a long-form table and returns a matplotlib Figure.

Where the table has columns low and high, intervals are drawn. Colours are Okabe and Ito's, told
apart by colour-blind readers, and every line has its own marker besides.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.text import Text

from ragbench._lazy import public_names
from ragbench.errors import ConfigError, check_known
from ragbench.labelling.grades import GRADE_COLUMNS
from ragbench.paths import figures_dir
from ragbench.text.escape import in_csv

__dir__ = public_names(globals())
PALETTE = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#7F7F7F", "#F0E442"]
MARKERS = ["o", "s", "^", "D", "v", "P", "X", "*"]
_DASHES = [":", "--", "-.", (0, (1, 3)), (0, (6, 2))]
_LINES = ["-", *_DASHES]
_HATCHES = ["", "///", "...", "xxx", "\\\\\\"]
_RETRIEVERS = ["BM25", "SIM", "MMR", "MLQ", "REO"]
GRADE_COLOURS = ["#999999", "#E69F00", "#F0E442", "#D55E00", "#009E73"]
GRADE_NAMES = dict(
    zip(GRADE_COLUMNS, ["no answer", "partly wrong", "incomplete", "wrong", "right"], strict=True)
)
# Covered, contradicted, neither: apart in grey too, by hatching.
VERDICT_COLOURS = {
    "completeness": PALETTE[2],
    "hallucination": PALETTE[4],
    "irrelevance": "#BBBBBB",
}
VERDICT_HATCHES = ["", "///", "..."]
WIDEST = 14.5  # inches: on A4's long side, letters of 8 points are then 6
_PER_ROW = 4
_NAME = 36  # characters of a system's name on one line
_LETTER = 0.0625  # inches, of 8 points: a little more than most are wide
_LINE = 0.15  # inches from a line of 8 points to the next
# letters up to which the names under bars stand side by side; longer ones stand beside lying bars
_NAMED = 14
_LEAST_SPAN = 0.2  # a point or two of difference must not fill a panel


class _PlainFigure(Figure):
    """A figure whose texts are no formulas: a system may be called Cash$$Bot."""

    def draw(self, renderer: Any) -> None:
        for text in self.findobj(Text):
            text.set_parse_math(False)
        super().draw(renderer)


def open_figure(
    width: float = 7.0,
    height: float = 4.2,
    ncols: int = 1,
    nrows: int = 1,
    used: int | None = None,
    **grid: Any,
) -> tuple[Figure, Any]:
    """Open a figure in the project's look: (figure, axes of shape (nrows, ncols)).

    Panels after the first ``used`` are hidden; ``grid`` is for ``plt.subplots``.
    """
    import seaborn as sns  # slow to import, and a program that only saves tables needs none of it

    # loads the backend: within rc_context a notebook's would lose "interactive" again, and
    plt.draw_if_interactive()
    # a reader's own plots after ours would not show.
    look = {
        "axes.spines.top": False,
        "axes.spines.right": False,
        "figure.dpi": 110,
        "legend.frameon": False,
    }
    with (
        sns.axes_style("whitegrid", rc=look),
        plt.rc_context({"font.size": 10, "axes.titlesize": 11}),
    ):
        options: dict[str, Any] = {
            "figsize": (width, height),
            "layout": "constrained",
            "FigureClass": _PlainFigure,
        }
        figure, axes = plt.subplots(nrows, ncols, squeeze=False, **options, **grid)
    plt.close(figure)  # shown by the cell that returns it, not a second time by the backend
    for axis in axes.ravel()[used:] if used is not None else ():
        axis.set_visible(False)
    return figure, axes


def _looks(names: Sequence[Any]) -> dict[Any, dict[str, Any]]:
    """Colour, marker and line by name, no two alike;

    the five retrievers of the thesis always have the same ones.
    """
    order = (
        [*_RETRIEVERS, *(n for n in names if n not in _RETRIEVERS)]
        if set(names) & {*_RETRIEVERS}
        else [*names]
    )
    looks = {}
    for i, name in enumerate(order):
        again, i = divmod(i, len(PALETTE))
        marker = MARKERS[(i + again) % len(MARKERS)]
        looks[name] = {"color": PALETTE[i], "marker": marker, "ls": _LINES[again % len(_LINES)]}
    return looks


def _hatch(looks: Mapping[str, Any]) -> str:
    """Tell bars of one colour apart as the lines are."""
    return _HATCHES[_LINES.index(looks["ls"]) % len(_HATCHES)]


def _in_words(name: object) -> str:
    """Write a metric's name in words; a model's ("q4_K_M") stays as it is."""
    text = str(name)
    return text.replace("_", " ") if re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)+", text) else text


def _wrapped(name: object, letters: float = _NAME) -> str:
    """Break a text into lines of at most so many letters, "k = 10" not within."""
    whole = str(name).replace(" = ", "\u00a0=\u00a0")
    return "\n".join(textwrap.wrap(whole, max(8, int(letters)))).replace("\u00a0", " ") or str(name)


def _label(name: object) -> str:
    """Return the name for a legend, which leaves names out that begin with "_"."""
    return f"\u00a0{name}" if str(name).startswith("_") else str(name)


def _size(texts: Sequence[str]) -> tuple[float, int]:
    """Inches of the longest line of 8 points, and the most lines."""
    lines = [text.split("\n") for text in texts]
    return _LETTER * max((len(line) for text in lines for line in text), default=0), max(
        map(len, lines), default=1
    )


def _under(values: Sequence[object], inches: float) -> tuple[dict[str, Any], float]:
    """Lay names out under ticks so far apart, upright if too long:

    what ``set_xticks`` takes, and how deep they are.
    """
    letters = inches / _LETTER - 1
    texts = [_wrapped(value, letters) for value in values]
    wide, lines = _size(texts)
    broken = any(len(word) > max(8, letters) for value in values for word in str(value).split())
    look: dict[str, Any] = {"ticks": range(len(values)), "fontsize": 8}
    if not broken and lines <= 3 and wide <= inches:
        return look | {"labels": texts}, _LINE * lines
    texts = [_wrapped(value) for value in values]
    if _size(texts)[1] * _LINE > inches:
        texts = [str(value) for value in values]
    return look | {"labels": texts, "rotation": 90}, _size(texts)[0]


def _reach(part: pd.DataFrame, value: str) -> np.ndarray | None:
    """Lengths of the interval below and above each value."""
    if "low" not in part:
        return None
    centre, low, high = (part[name].to_numpy(float) for name in (value, "low", "high"))
    return np.vstack([centre - low, high - centre]).clip(min=0)


def _need(frame: pd.DataFrame, *columns: str | None) -> None:
    check_known("column", [column for column in columns if column is not None], frame.columns)


def _unique(values: pd.Series) -> list:
    """Return the values in order of appearance;

    of a categorical column all categories, whether they appear or not.
    """
    if isinstance(values.dtype, pd.CategoricalDtype):
        return list(values.cat.categories)
    return list(dict.fromkeys(values))


def _panels(frame: pd.DataFrame, by: str | None) -> list[tuple[str, pd.DataFrame]]:
    return (
        [(str(name), part) for name, part in frame.groupby(by, sort=False)] if by else [("", frame)]
    )


def _legend_below(figure: Figure) -> None:
    """Write one legend for all panels, in as many columns as fit, on room that the figure gets for
    it.
    """
    handles: dict[str, Any] = {}
    for axis in figure.axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    if not handles:
        return
    width, height = figure.get_size_inches()
    names = [_wrapped(label, (width - 0.8) / _LETTER) for label in handles]
    wide, deep = _size(names)
    columns = max(1, min(len(names), int((width - 0.1) / (wide + 0.55))))
    figure.set_size_inches(width, height + _LINE * deep * max(0, -(-len(names) // columns) - 1))
    figure.legend(
        handles.values(),
        names,
        loc="outside lower center",
        ncols=columns,
        fontsize=8,
        frameon=False,
    )


def check_alt(alt: str) -> None:
    """Raise ConfigError for an empty alt text."""
    if not alt.strip():
        raise ConfigError(
            "an empty alt text",
            "the picture in words",
            "say what one who cannot see it should know",
        )


def save_figure(
    figure: Figure,
    name: str,
    table: pd.DataFrame,
    alt: str,
    *,
    folder: Path | None = None,
    dpi: int = 150,
) -> dict[str, Path]:
    """Write a figure as PNG and PDF, the numbers it shows as CSV, and what it shows in words;
    return paths by kind.

    Parameters
    ----------
    name : ``<notebook>_<item>``, e.g. ``"11_table_3.1"``.
    table : the numbers drawn; in the CSV no cell is a formula to a spreadsheet.
    alt : the picture in words, stored in the PNG's description and beside it as text.
    folder : default ``figures/`` of the checkout. dpi : of the PNG; 300 for print.
    """
    check_alt(alt)
    # With A4's long side of 11.7 inches to fill, what is wider has letters nobody can read.
    width = figure.get_size_inches()[0]
    if width > WIDEST:
        raise ConfigError(
            f"a figure {width:.1f} inches wide",
            f"at most {WIDEST}",
            "draw fewer panels or split it",
        )
    folder = folder or figures_dir()
    folder.mkdir(parents=True, exist_ok=True)
    paths = {kind: folder / f"{name}.{kind}" for kind in ("png", "pdf", "csv")}
    paths["alt"] = folder / f"{name}.txt"
    with plt.rc_context({"pdf.fonttype": 42}):  # TrueType: publishers refuse Type 3
        figure.savefig(paths["png"], dpi=dpi, metadata={"Software": None, "Description": alt})
        # The first drawing has laid the panels out; doing it again would double the time.
        layout = figure.get_layout_engine()
        figure.set_layout_engine("none")
        figure.savefig(
            paths["pdf"], metadata={"CreationDate": None, "Producer": None, "Creator": None}
        )
        figure.set_layout_engine(layout)
    in_csv(table).to_csv(paths["csv"], index=False, float_format="%.6g", lineterminator="\n")
    paths["alt"].write_text(alt.strip() + "\n", encoding="utf-8")
    return paths


def ir_score_curves(
    ours: pd.DataFrame, paper: pd.DataFrame | None = None, title: str = "measured here"
) -> Figure:
    """Mean IR score against the token budget, one line per retriever, with the published curves
    beside (Table 3.1).

    Both tables have the columns retriever, N, mean. ``title`` says what the left panel was measured
    on.
    """
    panels = [(title, ours)] + ([("as published", paper)] if paper is not None else [])
    for _, frame in panels:
        _need(frame, "retriever", "N", "mean")
    figure, axes = open_figure(4.6 * len(panels), 4.0, ncols=len(panels), sharey=True)
    looks = _looks(_unique(pd.concat([frame["retriever"] for _, frame in panels])))
    for axis, (name, frame) in zip(axes[0], panels, strict=True):
        for retriever, line in frame.groupby("retriever", sort=False):
            drawn = axis.plot(
                line["N"], line["mean"], ms=4, label=_label(retriever), **looks[retriever]
            )
            if "low" in line:
                axis.fill_between(
                    line["N"],
                    line["low"],
                    line["high"],
                    color=drawn[0].get_color(),
                    alpha=0.15,
                    lw=0,
                )
        axis.set_title(_wrapped(name, 44), fontsize=10)
        axis.set(xlabel="N, tokens of context", ylim=(0, 1))
    axes[0, 0].set_ylabel("mean IR score")
    _legend_below(figure)  # within the axes it would lie on curves of some data
    return figure


def settings(
    ours: pd.DataFrame,
    x: str,
    values: Sequence[Any],
    panel: str,
    row: str | None = None,
    *,
    hue: str = "system",
    paper: pd.DataFrame | None = None,
    thin: str | None = None,
    join: bool = True,
    spread: float = 0.06,
    xlabel: str = "",
    titles: Mapping[str, str] | None = None,
) -> Figure:
    """Means with intervals along a setting, a panel per metric, with the paper's numbers in black.

    Parameters
    ----------
    x, values : column of the setting, and its values along the axis, in order.
    panel, row : column whose values stand side by side, and one whose values stand above each
    other, on one scale. With
        no ``row`` panels wrap, each on a scale of its own.
    hue : column that makes lines.
    paper : the same columns without hue. A panel that only the paper has is drawn too.
    thin : column; rows with a value in it other than "" are drawn as thin lines without intervals.
    join : draw lines. Otherwise points, from zero up, and the paper's values as bars.
    spread : distance between the systems, so that intervals stand beside each other; less where
    they are many.
    titles : of panels, where a value's own name is not enough.
    """
    _need(ours, x, panel, row, hue, thin, "mean")
    paper = ours.iloc[:0] if paper is None else paper[paper[x].isin(values)]
    panels = _unique(pd.concat([ours[panel], paper[panel]]))
    names = _unique(ours[hue])
    rows = _unique(ours[row]) if row else [""]
    ncols = len(panels) if row else min(_PER_ROW, len(panels))
    nrows = len(rows) if row else -(-len(panels) // ncols)
    shown = [f"{v:,}" if isinstance(v, int | np.integer) else str(v) for v in values]
    wide = max(2.6, min(min(0.75, 0.25 + _size(shown)[0]) * len(values), (WIDEST - 0.9) / ncols))
    (ticks, below) = _under(shown, wide / len(values))
    looks = _looks(names)
    size = (0.9 + wide * ncols, 0.7 + below + (2.3 if row else 2.2 + below) * nrows)
    shared = {"sharey": "row" if row else False, "sharex": bool(row)}
    figure, axes = open_figure(*size, ncols, nrows, len(panels) * len(rows), **shared)
    for (place, axis), (line, name) in zip(
        enumerate(axes.ravel()), product(rows, panels), strict=False
    ):
        part, printed = (
            f[(f[panel] == name) & (f[row] == line if row else True)] for f in (ours, paper)
        )
        for i, system in enumerate(names):
            points = part[part[hue] == system]
            for j, (detail, some) in enumerate(
                points[points[thin] != ""].groupby(thin, sort=False) if thin else ()
            ):
                style = {
                    "color": looks[system]["color"],
                    "ls": _DASHES[j % len(_DASHES)],
                    "lw": 0.9,
                    "alpha": 0.6,
                }
                axis.plot(
                    [values.index(v) for v in some[x]],
                    some["mean"],
                    label=_label(f"{system}, {detail}"),
                    **style,
                )
            thick = points[points[thin] == ""] if thin else points
            if len(thick):
                step = min(spread, 0.6 / len(names))
                at = [values.index(v) + step * (i - (len(names) - 1) / 2) for v in thick[x]]
                look = (
                    looks[system]
                    | {"ms": 5, "capsize": 2}
                    | ({"lw": 1.8} if join else {"lw": 0, "elinewidth": 1})
                )
                axis.errorbar(
                    at, thick["mean"], _reach(thick, "mean"), label=_label(system), **look
                )
        at = [values.index(v) for v in printed[x]]
        if join and at:
            axis.plot(at, printed["mean"], color="black", marker="X", ms=6, lw=1.4, label="paper")
        elif at:
            ends = ([v - 0.42 for v in at], [v + 0.42 for v in at])
            axis.hlines(printed["mean"], *ends, color="black", lw=1.6, label="paper")
        axis.set_xticks(**ticks)
        axis.set_xlim(-0.4, len(values) - 0.6)
        axis.grid(axis="x", visible=False)
        if row is None or place < ncols:
            heading = (titles or {}).get(name, _in_words(name))
            axis.set_title(_wrapped(heading, 10 * wide), fontsize=9 if row is None else 11)
        if row is None or place >= ncols * (nrows - 1):
            axis.set_xlabel(xlabel)
        if row and place % ncols == 0:
            axis.set_ylabel(_wrapped(_in_words(line), 24))
    # only now: limits set earlier would end the scaling
    for axis in axes[:, 0] if row else axes.ravel():
        low, high = axis.get_ylim()
        room = max(0.0, _LEAST_SPAN - (high - low)) / 2 if join else 0
        axis.set_ylim(*((low - room, high + room) if join else (0, high)))
    _legend_below(figure)
    return figure


def rank_lines(
    frame: pd.DataFrame,
    measures: Sequence[str],
    name: str,
    panel: str | None = None,
    lower_is_better: Sequence[str] = (),
) -> Figure:
    """Each system's rank by each measure as a line: crossings are disagreements. Rank 1 is on top.

    ``frame`` has a row per system (its column ``name``) and panel; equal values share their mean
    rank.
    """
    _need(frame, name, panel, *measures)
    panels = _panels(frame, panel)
    names = _unique(frame[name])
    two = len(measures) == 2
    last = len(measures) - 1
    looks = _looks(names)
    wide, deep = _size([_wrapped(name) for name in names])
    # inches between the first measure and the last, and beside
    lines, side = (1.8 if two else 0.85 * last, wide + 0.15)
    width = lines + side * (2 if two else 1) + (0.2 if two else 0.9)
    ticks, below = _under(measures, lines if two else 0.85)
    height = 1.1 + below + max(0.34, _LINE * deep + 0.04) * len(names)
    figure, axes = open_figure(width * len(panels), height, ncols=len(panels))
    for axis, (title, part) in zip(axes[0], panels, strict=True):
        signs = [-1 if measure in lower_is_better else 1 for measure in measures]
        ranks = part[list(measures)].mul(signs).rank(ascending=False)
        for system, line in zip(part[name], ranks.to_numpy(), strict=True):
            look = looks[system] | {"color": _dark(looks[system]["color"])}
            axis.plot(range(len(measures)), line, lw=1.6, **look)
        unit = last / lines  # of the axis, in an inch
        ends = ((-0.08, measures[0], "right"),) if two else ()
        for x, measure, side_of in (*ends, (last + 0.08 * unit, measures[-1], "left")):
            # systems of equal value have as many lines as ranks
            for rank, same in part[name].groupby(ranks[measure]):
                axis.text(
                    x, rank, "\n".join(map(_wrapped, same)), ha=side_of, va="center", fontsize=8
                )
        axis.set_xticks(**ticks)
        axis.set(title=_wrapped(title, 9 * width), ylim=(len(part) + 0.5, 0.5))
        axis.set_xlim(-side * unit if two else -0.3 * unit, last + side * unit)
        axis.set_yticks([] if two else range(1, len(part) + 1))
        axis.set_ylabel("" if two else "rank (1 is best)")
        axis.grid(visible=False)
        axis.spines[["left", "bottom"]].set_visible(False)
    return figure


def grouped_bars(
    frame: pd.DataFrame,
    x: str,
    y: str,
    hue: str,
    ylabel: str,
    title: str = "",
    panel: str | None = None,
) -> Figure:
    """Bars of ``y`` over ``x`` in groups of ``hue``;

    each value of ``panel`` has a panel of its own, three in a row.
    """
    if frame.empty:
        raise ConfigError("no rows to draw", "at least one", "check what the table was made from")
    _need(frame, x, y, hue, panel)
    panels = _panels(frame, panel)
    names = _unique(frame[hue])
    groups = _unique(frame[x])
    ncols = min(3, len(panels))
    looks = _looks(names)
    thick = 0.8 / len(names)
    nrows = -(-len(panels) // ncols)
    lying = max(len(str(group)) for group in groups) > _NAMED
    labels = [_wrapped(group) for group in groups] if lying else [str(group) for group in groups]
    band = (
        max(0.3, 0.13 * len(names), _LINE * _size(labels)[1] + 0.08)
        if lying
        else max(0.55, 0.17 * len(names))
    )
    long = max(2.4 if panel else 3.6, band * len(groups))  # inches that the groups take
    if not lying:
        long = min(long, (WIDEST - 1) / ncols)
    beside = _size(labels)[0] + 0.7 if lying else 0.9
    ticks, below = _under(groups, long / len(groups))
    size = (beside + long * ncols, 0.7 + below + 2.7 * nrows)
    if lying:
        size = (beside + 3.4 * ncols, 1.2 + (long + 0.5) * nrows)
    figure, axes = open_figure(*size, ncols, nrows, len(panels), sharex=True, sharey=True)
    for axis, (heading, cell) in zip(axes.ravel(), panels, strict=False):
        for i, name in enumerate(names):
            part = cell[cell[hue] == name].set_index(x).reindex(groups)
            place = np.arange(len(groups)) + (i - (len(names) - 1) / 2) * thick
            look = {"color": looks[name]["color"], "label": _label(name), "edgecolor": "white"}
            look |= {"hatch": _hatch(looks[name]), "height" if lying else "width": thick * 0.92}
            (axis.barh if lying else axis.bar)(place, part[y], **look)
            if "low" in part:
                reach = {"fmt": "none", "ecolor": "#333333", "lw": 0.9, "capsize": 2}
                ends = (part[y], place) if lying else (place, part[y])
                axis.errorbar(*ends, **{"xerr" if lying else "yerr": _reach(part, y)}, **reach)
        counted = f" (n = {cell['n'].max():.0f})" if panel and "n" in cell else ""
        inches = 3.4 if lying else long
        axis.set_title(
            _wrapped(f"{heading}{counted}" if panel else title, 10 * inches), fontsize=10
        )
        if lying:
            axis.set_yticks(range(len(groups)), labels, fontsize=8)
        else:
            axis.set_xticks(**ticks)
        axis.grid(axis="y" if lying else "x", visible=False)
    # one question alone has no interval
    top = float(frame[[y, "high"] if "high" in frame else [y]].max().max())
    limits = (0, 1.05 * top if top > 0 else 1.0)
    if lying:
        axes[0, 0].set(xlim=limits, ylim=(len(groups) - 0.5, -0.5))
        for axis in axes[-1]:
            axis.set_xlabel(ylabel)
    else:
        axes[0, 0].set_ylim(limits)
        for axis in axes[:, 0]:
            axis.set_ylabel(ylabel)
        if not panel:
            axes[0, 0].set_xlabel(x)
    if panel and title:
        figure.suptitle(_wrapped(title, 10 * size[0]), fontsize=11)
    if len(names) > 1:
        _legend_below(figure)
    return figure


def stacked_shares(
    table: pd.DataFrame,
    row: str,
    columns: Sequence[str],
    title: str = "",
    *,
    panel: str | None = None,
    colours: Sequence[str] = GRADE_COLOURS,
    hatches: Sequence[str] = (),
    xlabel: str = "share of answers",
) -> Figure:
    """Shares of categories as one stacked bar per row, each share written into its part unless that
    is hatched.

    The legend says what the five grades mean.
    """
    _need(table, row, panel, *columns)
    panels = _panels(table, panel)
    rows = _unique(table[row])
    names = [_wrapped(name) for name in rows]
    beside, lines = _size(names)
    wide = 3.6 if panel else 6.0  # inches of a bar of 1
    height = 1.3 + max(0.34 if panel else 0.42, _LINE * lines + 0.06) * len(rows)
    figure, axes = open_figure(
        beside + 0.6 + wide * len(panels), height, ncols=len(panels), sharey=True
    )
    for axis, (heading, part) in zip(axes[0], panels, strict=True):
        place = np.array([rows.index(name) for name in part[row]])
        left = np.zeros(len(part))
        for i, (column, colour) in enumerate(zip(columns, colours, strict=False)):
            values = part[column].to_numpy(float)
            hatch = {"hatch": hatches[i], "edgecolor": "white"} if hatches else {}
            name = f"{column}: {GRADE_NAMES[column]}" if column in GRADE_NAMES else column
            axis.barh(
                place, values, left=left, color=colour, label=_label(name), height=0.75, **hatch
            )
            for y, start, value in zip(place, left, values, strict=True):
                if value * wide >= 0.32 and not hatches:  # else it would touch its neighbour
                    axis.text(
                        start + value / 2, y, f"{value:.2f}", ha="center", va="center", fontsize=8
                    )
            left += np.nan_to_num(values)
        axis.set_title(_wrapped(heading or title, 11.5 * wide), fontsize=10)
        axis.set(xlim=(0, 1), xlabel=xlabel)
        axis.grid(axis="y", visible=False)
    axes[0, 0].set_yticks(range(len(rows)), names, fontsize=8 if lines > 1 else 9)
    axes[0, 0].set_ylim(len(rows) - 0.5, -0.5)
    _legend_below(figure)
    return figure


def dots(
    frame: pd.DataFrame,
    row: str,
    value: str,
    hue: str | None = None,
    *,
    xlabel: str,
    panel: str | None = None,
    at: float = 0.0,
    filled: str | None = None,
    xlim: tuple[float, float] | None = None,
) -> Figure:
    """One line per ``row`` with a dot per ``hue``; rows stand in their order of appearance, panels
    side by side.

    Parameters
    ----------
    at : where the reference line stands: no correlation, chance.
    filled : boolean column; dots are hollow and grey where it is False.
    """
    _need(frame, row, value, hue, panel, filled)
    panels = _panels(frame, panel)
    rows = _unique(frame[row])
    names = _unique(frame[hue]) if hue else [""]
    alone = not frame.duplicated([row, *([panel] if panel else [])]).any()
    shown = [_wrapped(_in_words(r), 40) for r in rows]
    (beside, lines) = _size(shown)
    looks = _looks(names)
    step = 0 if alone else min(0.22, 0.8 / len(names))
    band = max(0.32, _LINE * lines + 0.06, 0 if alone else 0.07 * len(names))
    ncols = min(_PER_ROW, len(panels))
    nrows = -(-len(panels) // ncols)
    size = (
        beside + 0.6 + max(2.2, 4.4 - len(panels)) * ncols,
        1.2 + (0.4 + band * len(rows)) * nrows,
    )
    figure, axes = open_figure(*size, ncols, nrows, len(panels), sharex=True, sharey=True)
    for axis, (title, part) in zip(axes.ravel(), panels, strict=False):
        for i, name in enumerate(names):
            points = part[part[hue] == name] if hue else part
            look = {
                "color": looks[name]["color"],
                "fmt": looks[name]["marker"],
                "ms": 5,
                "lw": 1.2,
                "capsize": 2,
            }
            kinds = [(points[points[filled]] if filled else points, {"label": _label(name)})]
            kinds += (
                [(points[~points[filled]], {"color": PALETTE[6], "mfc": "white"})] if filled else []
            )
            for some, special in kinds:
                if len(some):
                    place = np.array([rows.index(r) for r in some[row]]) + step * (
                        i - (len(names) - 1) / 2
                    )
                    reach = _reach(some, value)
                    axis.errorbar(
                        some[value].to_numpy(float), place, xerr=reach, ls="none", **look | special
                    )
        axis.axvline(at, color="#777777", lw=0.8, ls=":")
        axis.set_title(_wrapped(title, 9 * size[0] / (ncols + 1)), fontsize=10)
        if xlim:  # None would freeze the limits at the first panel's
            axis.set_xlim(xlim)
    if np.ptp(axes[0, 0].get_xlim()) < 1e-9:  # all values alike but for rounding
        axes[0, 0].set_xlim(at - 0.1, at + 0.1)
    for axis in axes[-1]:
        axis.set_xlabel(_wrapped(xlabel, 9 * size[0] / (ncols + 1)))
    axes[0, 0].set_yticks(range(len(rows)), shown, fontsize=8)
    axes[0, 0].set_ylim(len(rows) - 0.4, -0.6)
    if hue and hue != row:
        _legend_below(figure)
    return figure


def _cells(axis: Axes, texts: np.ndarray, dark: np.ndarray, size: int = 8) -> None:
    """Write a text into each cell of a heat map, white where the cell is dark."""
    for (i, j), text in np.ndenumerate(texts):
        axis.text(
            j,
            i,
            text,
            ha="center",
            va="center",
            fontsize=size,
            color="white" if dark[i, j] else "black",
        )


def heat_maps(
    tables: Mapping[str, pd.DataFrame],
    lower_is_better: Sequence[str] = (),
    ncols: int = 1,
    decimals: int | None = None,
) -> Figure:
    """Tables of systems (rows) by metrics (columns) by their title, one panel each; darker is
    better.

    All tables have the same rows and columns. A column's shades run from its worst to its best
    value over all panels. ``decimals`` writes each number into its cell ("-" for NaN).
    """
    first = next(iter(tables.values()))
    stacked = pd.concat(tables.values())
    low = stacked.min()
    reach = stacked.max() - stacked.min()
    nrows = -(-len(tables) // ncols)
    names = [_wrapped(v) for v in first.index]
    columns = [_in_words(c) for c in first.columns]
    beside, lines = _size(names)
    cell = min(0.55, (WIDEST - beside - 0.6) / (ncols * len(columns)))
    height = 0.4 + max(0.28, _LINE * lines + 0.03) * len(first)
    ticks, below = _under(columns, cell)
    size = (beside + 0.6 + max(1.2, cell * len(columns)) * ncols, 0.4 + below + height * nrows)
    figure, axes = open_figure(*size, ncols, nrows, len(tables), sharex=True, sharey=True)
    for axis, (title, table) in zip(axes.ravel(), tables.items(), strict=False):
        shade = ((table - low) / reach.where(reach > 0, 1)).to_numpy(float)
        shade = np.where(table.columns.isin(lower_is_better), 1 - shade, shade)
        axis.imshow(shade, cmap="Blues", vmin=0, vmax=1, aspect="auto")
        axis.set_title(_wrapped(title, max(14, 11 * cell * len(columns))), fontsize=10)
        axis.grid(visible=False)
        axis.set_yticks(range(len(table)), names, fontsize=8)
        axis.set_xticks(**ticks)
        if decimals is not None:
            texts = table.map(
                lambda value: f"{value:.{decimals}f}" if pd.notna(value) else "-"
            ).to_numpy()
            _cells(axis, texts, shade > 0.6)
    return figure


def confusion(
    counts: np.ndarray, labels: Sequence[object], title: str, xlabel: str, ylabel: str
) -> Figure:
    """A confusion matrix with its counts written in."""
    names = [_wrapped(v, 14) for v in labels]
    beside, lines = _size(names)
    cell = max(0.62, _LINE * lines + 0.05, min(beside, 1.1))
    ticks, below = _under(labels, cell)
    figure, axes = open_figure(beside + 0.9 + cell * len(labels), 1.0 + below + cell * len(labels))
    axis = axes[0, 0]
    # equal counts are dark, as their white figures need
    axis.imshow(counts, cmap="Blues", aspect="auto", vmin=0)
    _cells(axis, np.asarray(counts).astype(str), counts > counts.max() / 2, size=10)
    axis.set_xticks(**ticks)
    axis.set_yticks(range(len(labels)), names, fontsize=8)
    axis.set_title(_wrapped(title, 11 * cell * len(labels)), fontsize=10)
    axis.set(xlabel=xlabel, ylabel=ylabel)
    axis.grid(visible=False)
    return figure


def _dark(colour: str) -> str:
    """Darken the light colours of the palette, which are for areas, so that text in them can be
    read.
    """
    red, green, blue = to_rgb(colour)
    light = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    factor = min(1.0, 0.42 / light) if light else 1.0
    return to_hex((red * factor, green * factor, blue * factor))


def sorted_scores(
    groups: Mapping[str, Sequence[float]],
    h: float,
    k: float,
    *,
    shares: bool = False,
    wide: float | None = None,
) -> Figure:
    """Sorted IR scores of each group with the thresholds h and k, and the shares beyond them
    (Figures 3.1 and 3.2).

    ``wide`` is a panel's width in inches.
    """
    ncols = min(5, len(groups))
    wide = wide or (2.6 if shares or ncols > 4 else 3.1)
    nrows = -(-len(groups) // ncols)
    figure, axes = open_figure(
        wide * ncols, 0.7 + 2.7 * nrows, ncols, nrows, len(groups), sharey=True
    )
    for axis, (name, scores) in zip(axes.ravel(), groups.items(), strict=False):
        ordered = np.sort(np.asarray(scores, float))
        axis.plot(np.arange(len(ordered)), ordered, color=PALETTE[0])
        axis.axhline(k, color=PALETTE[4], lw=1, label=f"k = {k:.3f}")
        axis.axhline(h, color=PALETTE[2], lw=1, ls="--", label=f"h = {h:.3f}")
        axis.set_title(_wrapped(f"{name} (n = {len(ordered)})", 11 * (wide - 0.3)), fontsize=10)
        axis.set(xlabel="sorted by IR score", ylim=(-0.02, 1.02))
        if not len(ordered):
            axis.set_xticks([])
        if shares:
            above = np.mean(ordered > k)
            below = np.mean(ordered < h)
            for height, share in (
                ((k + 1) / 2, above),
                ((h + k) / 2, 1 - above - below),
                (h / 2, below),
            ):
                # The curve climbs from lower left to upper right: the top share stands left of it,
                # the others right.
                x, side = (0.03, "left") if height > k else (0.97, "right")
                style = {
                    "transform": axis.get_yaxis_transform(),
                    "fontsize": 9,
                    "va": "center",
                    "ha": side,
                }
                axis.text(x, height, f"{share:.1%}", **style)
    for axis in axes[:, 0]:
        axis.set_ylabel("IR score")
    _legend_below(figure)
    return figure


def scatter(frame: pd.DataFrame, x: str, y: str, name: str, xlabel: str, ylabel: str) -> Figure:
    """One marker for each row, named in a legend:

    labels beside the points would lie on each other.
    """
    _need(frame, x, y, name)
    figure, axes = open_figure(5.5, 3.6)
    axis = axes[0, 0]
    looks = _looks(_unique(frame[name]))
    for system, at, height in frame[[name, x, y]].itertuples(index=False):
        axis.plot(at, height, ms=7, label=_label(system), **looks[system] | {"ls": ""})
    axis.set(xlabel=xlabel, ylabel=ylabel)
    _legend_below(figure)
    return figure


def score_strips(scores: pd.DataFrame, means: pd.DataFrame) -> Figure:
    """Draw every answer's value as a dot, and the mean with its interval as a diamond: a panel for
    each metric.

    ``scores`` have the columns system, metric, value (in [0, 1]); ``means`` system, metric, mean,
    low, high. Of one system the metrics are the lines of one panel.
    """
    _need(scores, "system", "metric", "value")
    _need(means, "system", "metric", "mean", "low", "high")
    means, scores = (t.assign(metric=t["metric"].map(_in_words)) for t in (means, scores))
    line, panel = ("system", "metric") if means["system"].nunique() > 1 else ("metric", "system")
    lines = _unique(means[line])
    panels = _unique(means[panel])
    names = [_wrapped(name, 44) for name in lines]
    beside, deep = _size(names)
    ncols = min(_PER_ROW if len(panels) < 9 else 5, len(panels))
    nrows = -(-len(panels) // ncols)
    wide = 1.9 if len(panels) > 1 else 5.0
    height = 0.5 + max(0.22, _LINE * deep + 0.04) * len(lines)
    size = (beside + 0.5 + wide * ncols, 0.6 + height * nrows)
    figure, axes = open_figure(*size, ncols, nrows, len(panels), sharex=True, sharey=True)
    spread = {
        key: np.sort(part.dropna())
        for key, part in scores.groupby([panel, line], sort=False)["value"]
    }
    marks = means.set_index([panel, line])
    for axis, title in zip(axes.ravel(), panels, strict=False):
        for i, name in enumerate(lines):
            colour = PALETTE[i % len(PALETTE)]
            points = spread[title, name]
            # Equal values lie beside each other, not on one spot.
            equal = [np.count_nonzero(points[:n] == value) for n, value in enumerate(points)]
            shift = 0.28 * np.array(
                [0 if not n else (-1) ** n * min((n + 1) // 2 / 4, 1) for n in equal]
            )
            axis.plot(points, i + shift, "o", color=colour, alpha=0.45, ms=4, mew=0)
            mean, low, high = marks.loc[(title, name), ["mean", "low", "high"]].astype(float)
            if not np.isnan(mean):
                reach = [[mean - low], [high - mean]] if not np.isnan(low) else None
                axis.errorbar(
                    mean, i, xerr=reach, fmt="D", color=colour, mec="#222222", ms=5, capsize=3
                )
        axis.set_title(_wrapped(title, 12 * wide), fontsize=9)
        axis.grid(False, axis="y")
    axes[0, 0].set_yticks(range(len(lines)), names, fontsize=8)
    axes[0, 0].set(ylim=(len(lines) - 0.4, -0.6), xlim=(-0.04, 1.04))
    figure.supxlabel("dots: answers; diamond: mean with 95% interval", fontsize=9)
    return figure
