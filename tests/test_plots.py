"""Figures: what is drawn is what the table says, and every file of a saved figure is there."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from ragbench import plots
from ragbench.errors import ConfigError


@pytest.fixture
def curves():
    return pd.DataFrame(
        {
            "retriever": ["BM25", "BM25", "REO", "REO"],
            "N": [100, 200, 100, 200],
            "mean": [0.4, 0.5, 0.1, 0.2],
            "low": [0.3, 0.4, 0.0, 0.1],
            "high": [0.5, 0.6, 0.2, 0.3],
        }
    )


def test_curves_show_ours_beside_the_paper(curves):
    figure = plots.ir_score_curves(curves, curves.drop(columns=["low", "high"]))
    left, right = figure.axes
    np.testing.assert_allclose(left.lines[0].get_ydata(), [0.4, 0.5])
    np.testing.assert_allclose(left.lines[1].get_ydata(), [0.1, 0.2])
    assert len(left.collections) == 2  # one band per retriever
    assert len(right.collections) == 0
    assert [t.get_text() for t in right.get_legend().get_texts()] == ["BM25", "REO"]
    assert left.lines[0].get_marker() != left.lines[1].get_marker()


def test_a_retriever_keeps_its_colour_whatever_stands_beside_it(curves):
    alone = plots.ir_score_curves(curves[curves["retriever"] == "REO"]).axes[0].lines[0].get_color()
    together = plots.ir_score_curves(curves).axes[0].lines[1].get_color()
    assert alone == together


def test_distances_draw_the_threshold_and_each_break():
    figure = plots.window_distances(np.array([0.1, 0.7, 0.2]), 0.5, [1], "t")
    axis = figure.axes[0]
    assert sorted({float(line.get_xdata()[0]) for line in axis.lines[2:]}) == [1.0]
    np.testing.assert_allclose(axis.lines[1].get_ydata(), 0.5)


def test_bars_stand_in_groups_with_their_intervals():
    frame = pd.DataFrame({"kind": ["a", "a", "b", "b"], "who": ["x", "y"] * 2, "mean": [1.0, 2, 3, 4]})
    frame = frame.assign(low=frame["mean"] - 0.5, high=frame["mean"] + 0.25)
    axis = plots.grouped_bars(frame, "kind", "mean", "who", "score", "t").axes[0]
    assert [round(p.get_height(), 2) for p in axis.patches] == [1, 3, 2, 4]
    assert len(axis.collections) == 2
    assert [t.get_text() for t in axis.get_xticklabels()] == ["a", "b"]


def test_histogram_keeps_every_value_by_putting_the_tail_into_the_last_bin():
    figure = plots.histogram({"a": [*range(1000), 10**6]}, "x", "t", bins=10)
    heights = figure.axes[0].patches[0].get_xy()[:, 1]
    assert max(heights) < 1000
    assert heights[-2] > 0


def test_saving_writes_picture_print_numbers_and_words(tmp_path, monkeypatch, curves):
    monkeypatch.setenv("RAGBENCH_FIGURES", str(tmp_path))
    figure = plots.ir_score_curves(curves)
    paths = plots.save_figure(figure, "99_x", curves, "Two curves.")
    assert {k: p.name for k, p in paths.items()} == {
        "png": "99_x.png",
        "pdf": "99_x.pdf",
        "csv": "99_x.csv",
        "alt": "99_x.txt",
    }
    assert paths["png"].read_bytes()[:4] == b"\x89PNG"
    assert b"Two curves." in paths["png"].read_bytes()
    assert paths["pdf"].read_bytes()[:4] == b"%PDF"
    pd.testing.assert_frame_equal(pd.read_csv(paths["csv"]), curves)
    first = {k: p.read_bytes() for k, p in paths.items()}
    plots.save_figure(plots.ir_score_curves(curves), "99_x", curves, "Two curves.")
    assert first == {k: p.read_bytes() for k, p in paths.items()}  # the same numbers give the same bytes
    with pytest.raises(ConfigError, match="empty alt text"):
        plots.save_figure(figure, "99_x", curves, " ")


def test_stacked_shares_fill_the_bar_and_write_the_larger_ones():
    table = pd.DataFrame({"system": ["A", "B"], "grade 1": [0.25, 0.02], "grade 2": [0.75, 0.98]})
    axis = plots.stacked_shares(table, "system", ["grade 1", "grade 2"], "t").axes[0]
    ends = [round(p.get_x() + p.get_width(), 6) for p in axis.patches]
    assert ends == [0.25, 0.02, 1.0, 1.0]
    assert [t.get_text() for t in axis.texts] == ["0.25", "0.75", "0.98"]


def test_a_long_title_of_shares_stays_within_the_figure():
    table = pd.DataFrame({"system": ["a"], "grade 1": [1.0]})
    who = "hotpotqa: decomposer rules (stand-in, no LLM), generator extractive reader (no LLM), judge embedded grader"
    figure = plots.stacked_shares(table, "system", ["grade 1"], who)
    figure.draw_without_rendering()
    box = figure.axes[0].title.get_window_extent()
    assert box.x0 >= 0
    assert box.x1 <= figure.bbox.width


def test_score_panels_sort_each_group_and_draw_both_thresholds():
    figure = plots.scores_by_grade_group({"five": [0.9, 0.1, 0.5], "one": [0.2]}, h=0.1, k=0.7)
    first, second = figure.axes
    np.testing.assert_allclose(first.lines[0].get_ydata(), [0.1, 0.5, 0.9])
    assert {float(line.get_ydata()[0]) for line in first.lines[1:]} == {0.1, 0.7}
    assert second.get_title() == "one (n = 1)"


def test_threshold_panels_write_the_three_shares():
    axis = plots.threshold_panels({"BM25": [0.05, 0.3, 0.4, 0.9]}, h=0.1, k=0.7).axes[0]
    shares = {round(t.get_position()[1], 2): t.get_text() for t in axis.texts}
    assert shares == {0.85: "25.0%", 0.4: "50.0%", 0.05: "25.0%"}


def test_reliability_draws_observed_over_predicted_with_intervals():
    curve = pd.DataFrame({"predicted": [0.1, 0.9], "observed": [0.2, 0.8], "low": [0.1, 0.7], "high": [0.3, 0.9]})
    axis = plots.reliability({"grade 5": curve}).axes[0]
    np.testing.assert_allclose(axis.lines[1].get_xydata(), [[0.1, 0.2], [0.9, 0.8]])
    np.testing.assert_allclose(axis.collections[0].get_segments()[0], [[0.1, 0.1], [0.1, 0.3]])


def test_confusion_writes_every_count():
    axis = plots.confusion(np.array([[3, 1], [0, 2]]), ["a", "b"], "t", "judge", "by hand").axes[0]
    assert [t.get_text() for t in axis.texts] == ["3", "1", "0", "2"]
    assert (axis.get_xlabel(), axis.get_ylabel()) == ("judge", "by hand")
