"""Figures: what is drawn is what the table says, and every file of a saved figure is there."""

import warnings
from functools import partial
from itertools import combinations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from IPython.core.formatters import DisplayFormatter
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgba
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.text import Text
from matplotlib.transforms import Bbox
from PIL import Image
from pypdf import PdfReader

from ragbench import plots
from ragbench.errors import ConfigError
from ragbench.metrics import claims
from ragbench.paths import project_root


@pytest.fixture
def curves():
    table = pd.DataFrame({"retriever": ["BM25", "BM25", "REO", "REO"], "N": [100, 200] * 2})
    table["mean"] = [0.4, 0.5, 0.1, 0.2]
    return table.assign(low=table["mean"] - 0.1, high=table["mean"] + 0.1)


def test_curves_show_ours_beside_the_paper(curves):
    figure = plots.curves(
        {"measured here": curves, "as published": curves.drop(columns=["low", "high"])}
    )
    left, right = figure.axes
    np.testing.assert_allclose([line.get_ydata() for line in left.lines], [[0.4, 0.5], [0.1, 0.2]])
    # one band per retriever, where there are intervals
    assert [len(axis.collections) for axis in (left, right)] == [2, 0]
    assert [t.get_text() for t in figure.legends[0].get_texts()] == ["BM25", "REO"]


def test_a_retriever_keeps_its_colour_whatever_stands_beside_it(curves):
    alone = plots.curves({"": curves[curves["retriever"] == "REO"]}).axes[0].lines[0].get_color()
    assert alone == plots.curves({"": curves}).axes[0].lines[1].get_color()


def test_a_category_has_its_colour_whether_or_not_others_are_drawn():
    frame = table_of(metric=["m"], paper=["thesis", "RAGEval"])
    frame["paper"] = pd.Categorical(frame["paper"], ["RAGAS", "RAGEval", "thesis"])
    for some in (frame, frame[frame["paper"] == "thesis"]):
        axis = plots.dots(some, "metric", "mean", "paper", xlabel="r").axes[0]
        drawn = {c.get_label(): c.lines[0].get_color() for c in axis.containers}
        assert drawn["thesis"] == plots.PALETTE[2]
        assert len(drawn) == len(some)


@pytest.mark.parametrize("odd", ["Cash$$Bot", "_a", "$x$ vs $y$", "%", "#1", "a_b^c", "\\alpha"])
def test_an_odd_name_stands_in_legend_axis_and_title_as_it_is(odd, monkeypatch):
    cells = table_of(system=[odd, "b"], N=[1, 2])
    for figure in [
        plots.curves({odd: cells.rename(columns={"system": "retriever"})}),
        plots.dots(cells, "N", "mean", "system", xlabel=odd, title=odd),
        plots.dots(cells, "N", "mean", "system", xlabel=odd, panel="system"),
        plots.stacked_shares(grades_of(system=[odd, "b"]), "system", plots.GRADE_NAMES, odd),
        plots.dots(cells[:2], "system", "mean", xlabel=odd),
    ]:
        assert unreadable(figure, monkeypatch) == []
        assert [text.get_text().strip() for text in figure.findobj(Text)].count(odd) >= 2


def test_saving_writes_picture_print_numbers_and_words(tmp_path, curves):
    def saved(name):
        figure = plots.curves({"": curves})
        paths = plots.save_figure(
            figure, "x", curves, "Two curves.", folder=tmp_path / name, kinds=("png", "pdf", "svg")
        )
        # What is changed after saving is laid out anew.
        assert isinstance(figure.get_layout_engine(), ConstrainedLayoutEngine)
        return {kind: path.read_bytes() for kind, path in paths.items()}

    first = saved("a")
    assert first == saved("b")  # the same numbers give the same bytes
    assert first["png"].startswith(b"\x89PNG")
    assert b"Two curves." in first["png"]
    assert first["pdf"].startswith(b"%PDF")
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "a" / "x.csv"), curves)


def test_a_saved_table_has_no_formula_and_a_figure_words(tmp_path, monkeypatch, curves):
    monkeypatch.setenv("RAGBENCH_FIGURES", str(tmp_path))
    figure = plots.curves({"": curves})
    paths = plots.save_figure(figure, "99_y", curves.assign(retriever="=1+1"), "Two curves.")
    assert "'=1+1" in paths["csv"].read_text()
    with pytest.raises(ConfigError, match="empty alt text"):
        plots.save_figure(figure, "99_x", curves, " ")


def test_a_notebook_shows_a_saved_figure_with_its_words(tmp_path, curves):
    figure = plots.curves({"": curves})
    paths = plots.save_figure(figure, "99_x", curves, " Two curves.\n", folder=tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["99_x.csv", "99_x.png"]
    assert {*paths} == {"png", "csv"}
    formatter = DisplayFormatter()
    formatter.formatters["image/png"].for_type(type(figure), lambda _: b"drawn")
    data, metadata = formatter.format(figure)
    assert data["image/png"] == b"drawn"
    assert metadata["image/png"] == {"alt": "Two curves."}


TWO_GRADES = {name: plots.GRADE_NAMES[name] for name in ("grade 1", "grade 2")}


def test_stacked_shares_fill_the_bar_and_write_the_larger_ones():
    table = pd.DataFrame({"system": ["A", "B"], "grade 1": [0.25, 0.02], "grade 2": [0.75, 0.98]})
    axis = plots.stacked_shares(table, "system", TWO_GRADES, "t").axes[0]
    assert [round(p.get_x() + p.get_width(), 6) for p in axis.patches] == [0.25, 0.02, 1.0, 1.0]
    assert [t.get_text() for t in axis.texts] == ["0.25", "", "0.75", "0.98"]
    words = [t.get_text() for t in axis.get_figure().legends[0].get_texts()]
    assert words == ["grade 1: no answer", "grade 2: partly wrong"]


def test_dots_stand_on_their_row_with_their_interval():
    frame = table_of(who=["x", "y"], metric=["m", "n"], aspect=["a"])
    axis = plots.dots(frame, "metric", "mean", "who", xlabel="r", panel="aspect").axes[0]
    for points, (_, own) in zip(axis.containers, frame.groupby("who"), strict=True):
        places = points.lines[0].get_xydata()
        np.testing.assert_allclose(places[:, 0], own["mean"])
        np.testing.assert_allclose(np.round(places[:, 1]), [0, 1])
        ends = [segment[:, 0] for segment in points.lines[2][0].get_segments()]
        np.testing.assert_allclose(ends, own[["low", "high"]])
    assert axis.yaxis_inverted()
    bare = plots.dots(frame[["who", "metric", "mean"]], "metric", "mean", "who", xlabel="r")
    assert not bare.axes[0].containers[0].lines[2]


def test_dots_without_a_row_are_no_figure_and_those_of_one_line_stand_beside_each_other():
    frame = table_of(kind=["a", "b"], who=["x", "y"])
    axis = plots.dots(frame, "kind", "mean", "who", xlabel="score", title="t").axes[0]
    heights = [points.lines[0].get_ydata() for points in axis.containers]
    np.testing.assert_allclose(np.mean(heights, axis=0), [0, 1], atol=1e-9)  # around their names
    assert heights[0][0] < heights[1][0]
    assert [t.get_text() for t in axis.get_yticklabels()] == ["a", "b"]
    assert axis.get_title() == "t"
    with pytest.raises(ConfigError, match="no rows to draw"):
        plots.dots(frame[:0], "kind", "mean", "who", xlabel="score")


def test_dots_that_do_not_hold_are_hollow():
    frame = table_of(pair=["a", "b"]).assign(holds=[True, False])
    axis = plots.dots(frame, "pair", "mean", xlabel="x", filled="holds").axes[0]
    colours = {c.lines[0].get_xdata()[0]: c.lines[0].get_mfc() for c in axis.containers}
    assert colours == {0.1: plots.PALETTE[0], 0.9: "white"}


def test_dots_of_equal_values_have_an_axis_wider_than_rounding():
    alike = pd.DataFrame({"pair": ["a - b", "c - d"], "difference": [0.0, -1.4e-17]})
    low, high = plots.dots(alike, "pair", "difference", xlabel="x").axes[0].get_xlim()
    assert high - low > 0.01


FRAME = pd.DataFrame({"system": ["A"], "mean": [0.5]})


@pytest.mark.parametrize(
    ("column", "draw"),
    [
        ("retriever", lambda: plots.curves({"": FRAME})),
        ("hue", lambda: plots.dots(FRAME, "system", "mean", "hue", xlabel="share")),
        ("grade 5", lambda: plots.stacked_shares(FRAME, "system", {"mean": "", "grade 5": ""})),
        ("value", lambda: plots.dots(FRAME, "system", "value", xlabel="share")),
    ],
)
def test_a_column_that_is_not_there_is_told_with_those_that_are(column, draw):
    with pytest.raises(ConfigError, match=rf"unknown column '{column}'\n.*one of mean, system"):
        draw()


def test_dots_of_every_panel_are_inside_the_axes_the_panels_share():
    intervals = {"value": [0.2, 0.8], "low": [0.1, 0.6], "high": [0.3, 1.4]}
    frame = pd.DataFrame({"row": "a", "panel": ["first", "second"], **intervals})
    draw = partial(plots.dots, frame, "row", "value", xlabel="share", panel="panel")
    for axis in draw().axes:
        low, high = axis.get_xlim()
        assert low < 0.1
        assert high > 1.4
    assert draw(xlim=(0, 2)).axes[1].get_xlim() == (0, 2)


NAMES = [
    f"llama3.{i}:8b-instruct-q4_K_M, LongContextReorder, k = 10, N = {300 + i}" for i in range(13)
]
LONG_METRICS = [
    *claims.CLAIM_METRICS,
    "reference_recall",
    "effective_information_rate",
    "rouge_l",
    "ir_score",
]


def table_of(**columns):
    """Every combination of the columns' values, with a mean and its interval."""
    frame = pd.MultiIndex.from_product(columns.values(), names=columns).to_frame(index=False)
    frame["mean"] = np.linspace(0.1, 0.9, len(frame))
    return frame.assign(low=frame["mean"] - 0.05, high=frame["mean"] + 0.08, n=180)


def grades_of(**columns):
    shares = dict.fromkeys(plots.GRADE_NAMES, 0.2) | {"grade 2": 0.05, "grade 3": 0.35}
    return table_of(**columns).assign(**shares)


KINDS = {
    "curves": lambda names: plots.curves({NAMES[0]: table_of(retriever=names, N=[100, 1000])}),
    "curves and the paper's": lambda names: plots.curves(
        {
            "": table_of(retriever=names, N=[100, 500]),
            "as published": table_of(retriever=names[:2], N=[100, 500]),
        }
    ),
    "dots by budget": lambda names: plots.dots(
        table_of(N=[0, 300, 1000], system=names), "N", "mean", "system", xlabel="seconds per answer", title=NAMES[0]
    ),
    "shares": lambda names: plots.stacked_shares(
        grades_of(system=names), "system", plots.GRADE_NAMES, ", ".join(NAMES[:3])
    ),
    "shares in panels": lambda names: plots.stacked_shares(
        grades_of(model=NAMES[:2], system=names), "system", plots.GRADE_NAMES, panel="model"
    ),
    "dots": lambda names: plots.dots(table_of(system=names), "system", "mean", xlabel="mean IR score"),
    "dots by system": lambda names: plots.dots(
        table_of(metric=LONG_METRICS, paper=["thesis", "RAGEval"], system=names), "metric", "mean", "system",
        panel="paper", xlabel="Spearman correlation with F1 over 80 cells and within domains",
    ),
}  # fmt: skip


def unreadable(figure, monkeypatch):
    """What of a figure's texts is cut, lies on another text or a panel, or is too small on a sheet
    of paper.
    """
    drawn = {}
    draw = Text.draw

    def noted(text, renderer):
        drawn[text] = repr(text.get_text())
        draw(text, renderer)

    with monkeypatch.context() as patch:
        patch.setattr(Text, "draw", noted)
        FigureCanvasAgg(figure).draw()
    words = {t: name for t, name in drawn.items() if t.get_visible() and t.get_text().strip()}
    boxes = {t: t.get_window_extent() for t in words}
    sheet = figure.bbox.padded(1)
    found = []
    for text, name in words.items():
        if not all(sheet.fully_contains(*corner) for corner in (boxes[text].min, boxes[text].max)):
            found.append(f"{name} is cut")
        if text.get_fontsize() < 7:
            found.append(f"{name} is small")
    for one, other in combinations(words, 2):
        shared = Bbox.intersection(boxes[one], boxes[other])
        if shared and min(shared.size) > 1:
            found.append(f"{words[one]} lies on {words[other]}")
    panels = [axis.get_window_extent() for axis in figure.axes if axis.get_visible()]
    legends = filter(None, [*figure.legends, *(axis.get_legend() for axis in figure.axes)])
    if any(legend.get_window_extent().count_overlaps(panels) for legend in legends):
        found.append("a legend lies on a panel")
    if any(min(panel.size) < 50 for panel in panels):
        found.append("a panel has no room")
    return found


@pytest.mark.parametrize("count", [2, 6, 13])
@pytest.mark.parametrize("kind", KINDS)
def test_no_text_is_cut_or_covered_whatever_the_number_of_systems(kind, count, monkeypatch):
    figure = KINDS[kind](NAMES[:count])
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # constrained layout says when it gives up
        assert unreadable(figure, monkeypatch) == []
    assert figure.get_size_inches()[0] <= plots.WIDEST
    assert figure.get_size_inches()[1] <= 20


def printed(path):
    """Inches of a PNG, and the points of its smallest letters (None: drawn before PNGs stated it)."""
    with Image.open(path) as image:
        words = image.info.get("Smallest letters", "")
        return image.width / image.info["dpi"][0], float(words.split()[0]) if words else None


def test_a_figure_states_the_size_of_its_smallest_letters(tmp_path):
    figure, axes = plots.open_figure(9, 3)
    assert axes[0, 0].set_xlabel("small", fontsize=6.5)
    axes[0, 0].text(0.5, 0.5, "not shown", fontsize=2, visible=False)
    path = plots.save_figure(figure, "x", pd.DataFrame(), "A.", folder=tmp_path)["png"]
    assert printed(path) == (pytest.approx(plots.WIDEST, abs=0.01), 6.5)


def test_every_committed_figure_fits_a_page_and_its_letters_can_be_read():
    sizes = {path.name: printed(path) for path in (project_root() / "figures").glob("[0-9]*.png")}
    assert len(sizes) > 50
    wide = {name: inches for name, (inches, _) in sizes.items() if inches > plots.WIDEST + 0.01}
    small = {name: points for name, (_, points) in sizes.items() if points and points < 7}
    assert (wide, small) == ({}, {})
    unknown = [name for name, (_, points) in sizes.items() if points is None]
    assert unknown == []


def test_the_reader_of_figures_finds_what_is_cut_covered_or_small(monkeypatch):
    figure, axes = plt.subplots(figsize=(3, 2))
    axes.text(0.5, 0.5, "one")
    axes.text(0.5, 0.5, "two", fontsize=5)
    axes.text(0.9, 0.9, "a long text that leaves the figure")
    axes.plot([0, 1], label="line")
    axes.legend()
    found = " ".join(unreadable(figure, monkeypatch))
    for fault in ("is cut", "'two' is small", "'one' lies on 'two'", "a legend lies on"):
        assert fault in found


def test_no_two_of_thirteen_names_have_one_look():
    figure = plots.curves({"": table_of(retriever=NAMES, N=[100, 1000])})
    assert len({(line.get_color(), line.get_marker()) for line in figure.axes[0].lines}) == 13
    assert len({line.get_color() for line in figure.axes[0].lines[:10]}) == 10


def test_a_thesis_has_its_width_and_its_font(tmp_path, curves):
    with plt.rc_context():
        plots.style(width_mm=160, font="serif", size=12)
        figure = plots.curves({"measured here": curves, "as published": curves})
        plots.style()
    assert figure.get_size_inches()[0] == pytest.approx(160 / 25.4)
    axis = figure.axes[0]
    assert axis.yaxis.label.get_fontfamily() == ["serif"]
    assert {label.get_fontsize() for label in axis.get_xticklabels()} == {12}
    assert figure.legends[0].get_texts()[0].get_fontsize() == pytest.approx(9.6)
    path = plots.save_figure(figure, "x", curves, "A.", folder=tmp_path, kinds=["pdf"])["pdf"]
    assert b"/Type3" not in path.read_bytes()
    assert "mean IR score" in PdfReader(path).pages[0].extract_text()


def test_what_names_no_colour_has_those_of_the_house():
    _, ((axis,),) = plots.open_figure()
    assert [axis.plot([0, 1])[0].get_color() for _ in range(3)] == list(plots.PALETTE[:3])
    assert axis.scatter([0], [0]).get_facecolor()[0] == pytest.approx(to_rgba(plots.PALETTE[0]))


def test_ten_systems_have_ten_colours():
    names = [f"system {number}" for number in range(10)]
    figure = plots.dots(
        table_of(metric=["m"], system=names), "metric", "mean", "system", xlabel="x"
    )
    drawn = [line.get_color() for bars in figure.axes[0].containers for line in bars.lines[:1]]
    assert len(drawn) == len({*drawn}) == 10
