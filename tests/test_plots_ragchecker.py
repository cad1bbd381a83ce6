"""Figures of the RAGChecker notebooks: what is drawn is what the table says."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from ragbench import plots_ragchecker as plots


@pytest.fixture
def systems():
    first = pd.DataFrame({"f1": [10.0, 20.0], "hallucination": [5.0, 1.0]}, index=["A", "B"])
    return {"one": first, "two": first + 10}


def test_heat_map_is_dark_where_a_system_is_good_on_one_scale_for_all_panels(systems):
    figure = plots.system_heat_maps(systems, ["hallucination"], ncols=2, decimals=1)
    left, right = (axis.images[0].get_array() for axis in figure.axes)
    np.testing.assert_allclose(left, [[0, 1 - 4 / 14], [0.5, 1]])
    np.testing.assert_allclose(right, [[0.5, 0], [1, 1 - 10 / 14]])
    assert [t.get_text() for t in figure.axes[1].texts] == ["20.0", "15.0", "30.0", "11.0"]
    assert [axis.get_title() for axis in figure.axes] == ["one", "two"]


def test_heat_map_hides_panels_without_a_table_and_survives_a_constant_column(systems):
    figure = plots.system_heat_maps(systems | {"three": systems["one"].assign(f1=7.0)}, ncols=2)
    assert [axis.get_visible() for axis in figure.axes] == [True, True, True, False]
    assert not figure.axes[0].texts
    same = plots.system_heat_maps({"x": pd.DataFrame({"f1": [3.0, 3.0]})})
    assert np.isfinite(same.axes[0].images[0].get_array()).all()


def test_dots_stand_on_their_row_with_their_interval():
    frame = pd.DataFrame(
        {"metric": ["m", "n", "m", "n"], "who": ["x", "x", "y", "y"], "r": [0.1, 0.2, 0.3, 0.4], "aspect": ["a"] * 4}
    )
    frame = frame.assign(low=frame["r"] - 0.1, high=frame["r"] + 0.2)
    axis = plots.correlation_dots(frame, "metric", "r", "who", "correlation", "aspect").axes[0]
    points = [c.lines[0] for c in axis.containers]
    np.testing.assert_allclose(points[0].get_xdata(), [0.1, 0.2])
    np.testing.assert_allclose(np.round(points[1].get_ydata()), [0, 1])
    segments = axis.containers[1].lines[2][0].get_segments()
    np.testing.assert_allclose([s[:, 0] for s in segments], [[0.2, 0.5], [0.3, 0.6]])
    assert axis.yaxis_inverted()
    bare = plots.correlation_dots(frame.drop(columns=["low", "high", "aspect"]), "metric", "r", "who", "r")
    assert len(bare.axes) == 1
    assert not bare.axes[0].containers[0].lines[2]


def test_violins_join_the_means_and_skip_what_has_no_spread():
    rows = [("a", "m", -2, s) for s in (-1.0, 0.0)] + [("a", "m", 1, s) for s in (0.5, 1.5)] + [("a", "m", 2, 2.0)]
    frame = pd.DataFrame(rows, columns=["aspect", "metric", "label", "score"])
    frame = pd.concat([frame, frame.assign(aspect="b"), frame.assign(metric="k"), frame.assign(aspect="b", metric="k")])
    figure = plots.score_violins(frame)
    assert len(figure.axes) == 4
    axis = figure.axes[0]
    np.testing.assert_allclose(axis.lines[0].get_xdata(), [-2, 1, 2])
    np.testing.assert_allclose(axis.lines[0].get_ydata(), [-0.5, 1.0, 2.0])
    assert axis.lines[0].get_linestyle() == "--"
    assert len(axis.collections) == 2
    assert [a.get_title() for a in figure.axes[:2]] == ["a", "b"]
    assert figure.axes[2].get_ylabel().startswith("k")
