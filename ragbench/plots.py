"""One function per kind of figure; each takes a long-form table and returns a matplotlib Figure.

Where the table has columns low and high, intervals are drawn. Colours are Okabe and Ito's, told
apart by colour-blind readers, and two of Tol's; every line has its own marker besides. Of more than
ten systems the eleventh has the first one's colour. Figures are at most 6.3 inches wide, a page's
text, with letters of 7 points or more; `style` sets width and font for a thesis.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text

from ragbench._lazy import public_names
from ragbench.errors import ConfigError, check_known
from ragbench.labelling.grades import GRADE_COLUMNS
from ragbench.paths import figures_dir
from ragbench.records import GRADES
from ragbench.text.escape import in_csv

__dir__ = public_names(globals())
PALETTE = [
    *("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00"),
    *("#56B4E9", "#7F7F7F", "#F0E442", "#332288", "#882255"),
]
MARKERS = ["o", "s", "^", "D", "v", "P", "X", "*"]
_RETRIEVERS = ["BM25", "SIM", "MMR", "MLQ", "REO"]
GRADE_COLOURS = ["#999999", "#E69F00", "#F0E442", "#D55E00", "#009E73"]
GRADE_NAMES = dict(
    zip(GRADE_COLUMNS, ["no answer", "partly wrong", "incomplete", "wrong", "right"], strict=True)
)
_MM_PER_INCH = 25.4
WIDEST = 6.3  # inches: the text of an A4 page, where letters keep their size
_LETTER = 0.0625  # inches, of 8 points: a little more than most are wide
_LINE = 0.15  # inches from a line of 8 points to the next


@dataclass
class _Style:
    width: float | None = None  # inches of every figure


_STYLE = _Style()


def style(
    *,
    width_mm: float | None = None,
    font: str | None = None,
    size: float | None = None,
) -> None:
    """Set the look of the figures that follow, for instance to that of a thesis.

    Parameters
    ----------
    width_mm : width of every figure, such as that of a page's text; None: as wide as it needs, 160
        at most.
    font, size : family and points of the text, as matplotlib's ``font.family`` and ``font.size``
        (small texts have eight tenths of it). None: as they are in ``rcParams``.

    >>> rb.plots.style(width_mm=160)
    """
    _STYLE.width = None
    if width_mm is not None:
        _STYLE.width = width_mm / _MM_PER_INCH
    if font is not None:
        plt.rcParams["font.family"] = font
    if size is not None:
        plt.rcParams["font.size"] = size


def _points(size: float) -> float:
    """Return a font size where ``rcParams["font.size"]`` is 10, else in proportion."""
    return size * plt.rcParams["font.size"] / 10


class _PlainFigure(Figure):
    """A figure whose texts are no formulas: a system may be called Cash$$Bot."""

    alt = ""

    def _repr_mimebundle_(self, **_: Any) -> tuple[dict, dict]:
        """Return the words of a saved figure: IPython asks for this, and draws the picture
        itself.
        """
        return {}, {"image/png": {"alt": self.alt}}

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

    Panels after the first ``used`` are hidden; ``grid`` is for ``plt.subplots``. The width is that
    of `style` where it has one, else at most `WIDEST`.
    """
    import seaborn as sns  # slow to import, and a program that only saves tables needs none of it

    # Loads the backend: within rc_context a notebook's would lose "interactive" again, and a
    # reader's own plots after ours would not show.
    plt.draw_if_interactive()
    whitegrid = sns.axes_style("whitegrid")
    look: dict[Any, Any] = {
        name: value for name, value in whitegrid.items() if not name.startswith("font.")
    }
    look |= {
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.titlesize": _points(11),
        "axes.prop_cycle": cycler(color=PALETTE),
        "figure.dpi": 110,
        "legend.frameon": False,
    }
    with plt.rc_context(look):
        figure, axes = plt.subplots(
            nrows,
            ncols,
            squeeze=False,
            figsize=(_STYLE.width or min(width, WIDEST), height),
            layout="constrained",
            FigureClass=_PlainFigure,
            **grid,
        )
    plt.close(figure)  # shown by the cell that returns it, not a second time by the backend
    for axis in axes.flat[used or axes.size :]:
        axis.set_visible(False)
    return figure, axes


# -- texts, and the room that they take


def _looks(names: Sequence[Any]) -> dict[Any, dict[str, Any]]:
    """Colour and marker by name; the five retrievers of the thesis always have the same ones."""
    order = list(names)
    if set(names) & set(_RETRIEVERS):
        order = list(dict.fromkeys([*_RETRIEVERS, *names]))
    looks = {}
    for number, name in enumerate(order):
        turn, place = divmod(number, len(PALETTE))
        # at each turn the markers move on by one: no two names have both in common
        marker = MARKERS[(place + turn) % len(MARKERS)]
        looks[name] = {"color": PALETTE[place], "marker": marker}
    return looks


def _in_words(name: object) -> str:
    """Write a metric's name in words; a model's ("q4_K_M") stays as it is."""
    text = str(name)
    if re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)+", text):
        return text.replace("_", " ")
    return text


def _wrapped(name: object, letters: float) -> str:
    """Break a text into lines of at most so many letters, "k = 10" not within."""
    text = str(name).replace(" = ", "\u00a0=\u00a0")
    lines = textwrap.wrap(text, max(8, int(letters)))
    return "\n".join(lines).replace("\u00a0", " ")


def _label(name: object) -> str:
    """Return the name for a legend, which leaves names out that begin with "_"."""
    text = str(name)
    if text.startswith("_"):
        return f"\u00a0{text}"
    return text


def _size(texts: Sequence[str]) -> tuple[float, int]:
    """Inches of the longest line of 8 points, and the most lines."""
    longest = 0
    most_lines = 1
    for text in texts:
        lines = text.split("\n")
        longest = max(longest, *map(len, lines))
        most_lines = max(most_lines, len(lines))
    return _points(_LETTER) * longest, most_lines


def _legend_below(figure: Figure) -> None:
    """Write one legend for all panels, in as many columns as fit, and make room for it."""
    handles: dict[str, Any] = {}
    for axis in figure.axes:
        of_axis, labels = axis.get_legend_handles_labels()
        handles |= dict(zip(labels, of_axis, strict=True))
    if not handles:
        return
    width, height = figure.get_size_inches()
    letters = (width - 0.8) / _points(_LETTER)
    names = [_wrapped(label, letters) for label in handles]
    wide, deep = _size(names)
    beside_each_other = int((width - 0.1) / (wide + 0.55))
    columns = max(1, min(len(names), beside_each_other))
    rows = math.ceil(len(names) / columns)
    row_height = _points(_LINE) * deep
    figure.set_size_inches(width, height + row_height * (rows - 1))
    figure.legend(
        handles.values(),
        names,
        loc="outside lower center",
        ncols=columns,
        fontsize=_points(8),
        frameon=False,
    )


# -- tables


def _need(frame: pd.DataFrame, *columns: str | None) -> None:
    """Raise ConfigError for a column that is not there, and for a table without rows."""
    check_known("column", [column for column in columns if column is not None], frame.columns)
    if frame.empty:
        raise ConfigError("no rows to draw", "at least one", "check what the table was made from")


def _unique(values: pd.Series) -> list:
    """Return the values in order of appearance, or all categories of a categorical column."""
    if isinstance(values.dtype, pd.CategoricalDtype):
        return list(values.cat.categories)
    return list(dict.fromkeys(values))


def _panels(frame: pd.DataFrame, by: str | None) -> dict[str, pd.DataFrame]:
    if by is None:
        return {"": frame}
    return {str(name): part for name, part in frame.groupby(by, sort=False)}


def _reach(part: pd.DataFrame, value: str) -> np.ndarray | None:
    """Lengths of the interval below and above each value."""
    if "low" not in part:
        return None
    below = part[value] - part["low"]
    above = part["high"] - part[value]
    return np.vstack([below, above]).astype(float).clip(min=0)


# -- files


def save_figure(
    figure: Figure,
    name: str,
    table: pd.DataFrame,
    alt: str,
    *,
    folder: Path | None = None,
    dpi: int = 150,
    kinds: Sequence[str] = ("png",),
) -> dict[str, Path]:
    """Write a figure as PNG and the numbers it shows as CSV; return paths by kind.

    Parameters
    ----------
    name : ``<notebook>_<item>``, e.g. ``"11_table_3.1"``.
    table : the numbers drawn; in the CSV no cell is a formula to a spreadsheet.
    alt : the picture in words. It is the PNG's description, and stays in the output of a notebook
        that shows the figure afterwards: pages by nbconvert have it as the image's ``alt``. The PNG
        also states the size of its smallest letters.
    folder : default ``figures/`` of the checkout. dpi : of the PNG; 300 for print.
    kinds : for print ``("png", "pdf")`` or ``("png", "svg")``.

    >>> from pathlib import Path
    >>> import pandas as pd
    >>> table = pd.DataFrame({"system": ["BM25", "SIM"], "mean": [0.72, 0.79]})
    >>> figure = rb.plots.dots(table, "system", "mean", xlabel="IR score")
    >>> sorted(rb.plots.save_figure(figure, "means", table, "Two means.", folder=Path()))
    ['csv', 'png']
    """
    _check_figure(figure, alt)
    folder = folder or figures_dir()
    folder.mkdir(parents=True, exist_ok=True)
    paths = {kind: folder / f"{name}.{kind}" for kind in (*kinds, "csv")}
    # No date and no program, so that bytes repeat.
    facts = {
        "png": {
            "Software": None,
            "Description": alt,
            "Smallest letters": _smallest_letters(figure),
        },
        "pdf": {"CreationDate": None, "Producer": None, "Creator": None},
        "svg": {"Date": None, "Creator": None, "Description": alt},
    }
    # TrueType: publishers refuse Type 3. The salt makes the ids of an SVG the same at each run.
    with plt.rc_context({"pdf.fonttype": 42, "svg.hashsalt": name}):
        layout = figure.get_layout_engine()
        for kind in kinds:
            figure.savefig(paths[kind], dpi=dpi, metadata=facts[kind])
            # The first drawing has laid the panels out; doing it again would double the time.
            figure.set_layout_engine("none")
        figure.set_layout_engine(layout)
    in_csv(table).to_csv(paths["csv"], index=False, float_format="%.6g", lineterminator="\n")
    if isinstance(figure, _PlainFigure):
        figure.alt = alt.strip()
    return paths


def _check_figure(figure: Figure, alt: str) -> None:
    if not alt.strip():
        raise ConfigError(
            "an empty alt text",
            "the picture in words",
            "say what one who cannot see it should know",
        )


def _smallest_letters(figure: Figure) -> str:
    sizes = [text.get_fontsize() for text in figure.findobj(Text) if text.get_visible()]
    return f"{min(sizes):g} points"


# -- kinds of figures


def _open_rows(
    names: Sequence[object], headings: Sequence[str], xlabel: str, wide: float, band: float
) -> tuple[Figure, Any, float]:
    """Open panels with these headings side by side, names of rows at their left, the first on top,
    and the label below; return their width in inches, too.

    ``wide``: inches of a panel, if there is room. ``band``: inches of a row, at least.
    """
    panels = len(headings)
    letters = 40 if panels == 1 else 20
    texts = [_wrapped(name, letters) for name in names]
    beside = _size(texts)[0] + 0.6
    room = (_STYLE.width or WIDEST) - beside
    ncols = max(1, min(4, panels, int(room / wide)))
    nrows = math.ceil(panels / ncols)
    wide = min(wide, room / ncols)
    headings = [_wrapped(heading, 10 * wide) for heading in headings]
    height = 1.2 + _panel_height(texts, headings, band) * nrows
    width = beside + wide * ncols
    figure, axes = open_figure(width, height, ncols, nrows, panels, sharex=True, sharey=True)
    axes[0, 0].set_yticks(range(len(texts)), texts, fontsize=_points(8))
    axes[0, 0].set_ylim(len(texts) - 0.4, -0.6)
    for axis, heading in zip(axes.flat, headings, strict=False):
        axis.set_title(heading, fontsize=_points(10))
    for axis in axes[-1]:
        axis.set_xlabel(_wrapped(xlabel, 10 * wide))
        axis.tick_params(axis="x", labelsize=_points(8))
    return figure, axes, wide


def _panel_height(rows: Sequence[str], headings: Sequence[str], band: float) -> float:
    line = _points(_LINE)
    band = max(band, line * _size(rows)[1] + 0.06)
    return 0.3 + line * _size(headings)[1] + band * len(rows)


def curves(panels: Mapping[str, pd.DataFrame], ylabel: str = "mean IR score") -> Figure:
    """Means between 0 and 1 against the token budget, a panel a table, one line per retriever.

    ``panels``: heading -> table, such as the means measured here and, beside them, those of a
    paper. The tables have the columns retriever, N, mean. Where one has ``bound`` and it is True,
    the mean at the largest N is a horizontal line: of a floor or a ceiling.

    >>> import pandas as pd
    >>> table = pd.DataFrame({"retriever": "BM25", "N": [100, 1000], "mean": [0.4, 0.7]})
    >>> rb.plots.curves({"MiniHop": table}).axes[0].get_ylabel()
    'mean IR score'
    """
    for frame in panels.values():
        _need(frame, "retriever", "N", "mean")
    looks = _looks(_unique(pd.concat([frame["retriever"] for frame in panels.values()])))
    count = len(panels)
    figure, axes = open_figure(4.6 * count, 4.0, count, sharey=True)
    for axis, (heading, frame) in zip(axes.flat, panels.items(), strict=True):
        _draw_curves(axis, frame, looks)
        axis.set_title(_wrapped(heading, 30), fontsize=_points(10))
        axis.set(xlabel="N, tokens of context", ylim=(0, 1))
    axes[0, 0].set_ylabel(ylabel)
    _legend_below(figure)  # within the axes it would lie on curves of some data
    return figure


def _draw_curves(axis: Axes, frame: pd.DataFrame, looks: dict) -> None:
    for retriever, line in frame.groupby("retriever", sort=False):
        look = looks[retriever]
        if "bound" in line and line["bound"].all():
            height = line.sort_values("N")["mean"].iloc[-1]
            axis.axhline(height, ls="--", color=look["color"], label=_label(retriever))
            continue
        axis.plot(line["N"], line["mean"], ms=4, label=_label(retriever), **look)
        if "low" in line:
            axis.fill_between(
                line["N"], line["low"], line["high"], color=look["color"], alpha=0.15, lw=0
            )


def _shifts(names: Sequence[Any], apart: float) -> dict[Any, float]:
    """Return how far aside each of several values of one place is drawn."""
    step = min(apart, 0.8 / len(names))
    middle = (len(names) - 1) / 2
    return {name: step * (number - middle) for number, name in enumerate(names)}


def grade_names(scale: Mapping[int, str]) -> dict[str, str]:
    """Return the columns of a scale's shares and what a figure calls them, for `stacked_shares`."""
    if scale == GRADES:
        return GRADE_NAMES
    return {f"grade {grade}": meaning for grade, meaning in scale.items()}


def stacked_shares(
    table: pd.DataFrame,
    row: str,
    columns: Mapping[str, str] = GRADE_NAMES,
    title: str = "",
    *,
    panel: str | None = None,
) -> Figure:
    """Shares of the five grades as one stacked bar per row, each share written into its part.

    ``columns``: column -> what the legend says of it.

    >>> import pandas as pd
    >>> table = pd.DataFrame({"system": ["BM25"], "right": [0.7], "wrong": [0.3]})
    >>> figure = rb.plots.stacked_shares(table, "system", {"right": "right", "wrong": "wrong"})
    >>> len(figure.axes)
    1
    """
    _need(table, row, panel, *columns)
    panels = _panels(table, panel)
    rows = _unique(table[row])
    wide = 6.0  # inches of a bar of 1
    band = 0.42
    if panel:
        wide = 3.6
        band = 0.34
    headings = [heading or title for heading in panels]
    figure, axes, wide = _open_rows(rows, headings, "share of answers", wide, band)
    for axis, part in zip(axes.flat, panels.values(), strict=False):
        places = part[row].map(rows.index).to_numpy()
        _draw_stack(axis, places, part, columns, wide)
        axis.set_xlim(0, 1)
        axis.grid(axis="y", visible=False)
    _legend_below(figure)
    return figure


def _draw_stack(
    axis: Axes, places: np.ndarray, table: pd.DataFrame, columns: Mapping[str, str], wide: float
) -> None:
    left = np.zeros(len(table))
    colours = GRADE_COLOURS
    if not {*columns} <= {*GRADE_NAMES}:  # another scale: from grey to yellow
        colours = plt.get_cmap("cividis")(np.linspace(0.25, 1, len(columns)))
    for (column, meaning), colour in zip(columns.items(), colours, strict=False):
        label = _label(f"{column}: {meaning}")
        shares = table[column].to_numpy(float)
        bars = axis.barh(places, shares, 0.75, left, color=colour, label=label)
        # A narrow part's number would touch its neighbour.
        texts = [f"{share:.2f}" if share * wide >= 0.32 else "" for share in shares]
        axis.bar_label(bars, texts, label_type="center", fontsize=_points(8))
        left += np.nan_to_num(shares)


def dots(
    frame: pd.DataFrame,
    row: str,
    value: str,
    hue: str | None = None,
    *,
    xlabel: str,
    title: str = "",
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
    filled : boolean column; dots are hollow where it is False, and grey without ``hue``.

    >>> import pandas as pd
    >>> table = pd.DataFrame({"system": ["BM25", "SIM"], "mean": [0.72, 0.79]})
    >>> rb.plots.dots(table, "system", "mean", xlabel="IR score").axes[0].get_xlabel()
    'IR score'
    """
    _need(frame, row, value, hue, panel, filled)
    rows = _unique(frame[row])
    hues = frame[hue] if hue else ""
    drawn = frame.assign(at=frame[row].map(rows.index).astype(float), hue=hues)
    looks = _looks(_unique(drawn["hue"]))
    panels = _panels(drawn, panel)
    apart, band = _spread(frame, [row, panel], len(looks))
    wide = max(1.4, 4.4 / len(panels))
    headings = [heading or title for heading in panels]
    figure, axes, _ = _open_rows([*map(_in_words, rows)], headings, xlabel, wide, band)
    for axis, part in zip(axes.flat, panels.values(), strict=False):
        _draw_dots(axis, part, value, looks, apart, filled)
        axis.axvline(at, color="#777777", lw=0.8, ls=":")
        if xlim:  # None would freeze the limits at the first panel's
            axis.set_xlim(xlim)
    if hue and hue != row:
        _legend_below(figure)
    return figure


def _spread(frame: pd.DataFrame, line: list[str | None], count: int) -> tuple[float, float]:
    """Return how far apart the dots of one line are drawn, and the inches of a line."""
    if frame.duplicated([column for column in line if column]).any():
        return 0.22, max(0.32, 0.07 * count)
    return 0.0, 0.32


def _draw_dots(
    axis: Axes, part: pd.DataFrame, value: str, looks: dict, apart: float, filled: str | None
) -> None:
    present = [name for name in looks if name in set(part["hue"])]
    for name, shift in _shifts(present, apart).items():
        points = part[part["hue"] == name]
        look = {"label": _label(name), **looks[name]}
        if filled is not None:
            holds = points[filled].astype(bool)
            hollow = look | {"mfc": "white"}
            if len(looks) == 1:
                hollow |= {"color": PALETTE[6], "label": ""}
            _draw_points(axis, points[~holds], value, shift, hollow)
            points = points[holds]
        _draw_points(axis, points, value, shift, look)


def _draw_points(
    axis: Axes, points: pd.DataFrame, value: str, shift: float, look: dict[str, Any]
) -> None:
    if points.empty:
        return
    x = points[value].to_numpy(float).round(9)  # 1e-17 is no difference
    y = points["at"].to_numpy() + shift
    reach = _reach(points, value)
    axis.errorbar(x, y, xerr=reach, ls="none", ms=5, lw=1.2, capsize=2, **look)
