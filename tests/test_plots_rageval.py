"""RAGEval's figures draw the numbers they are given."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from ragbench.errors import ConfigError
from ragbench.plots_rageval import rank_changes, settings_beside_paper


def models() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "panel": ["CN"] * 3 + ["EN"] * 3,
            "name": list("abcabc"),
            "x": [3, 2, 1, 1, 2, 3],
            "y": [0.1, 0.5, 0.5, 3, 2, 1],
        }
    )


def test_rank_lines_start_at_the_rank_by_the_left_measure_and_end_at_the_right_one():
    figure = rank_changes(models(), "x", "y")
    chinese, english = figure.axes
    assert [list(line.get_ydata()) for line in chinese.lines] == [[1, 3], [2, 1.5], [3, 1.5]]
    assert [list(line.get_ydata()) for line in english.lines] == [[3, 1], [2, 2], [1, 3]]
    assert chinese.get_ylim() == (3.5, 0.5)  # rank 1 on top
    assert "b / c" in [text.get_text() for text in chinese.texts]


def test_rank_changes_refuses_more_systems_than_colours():
    many = pd.DataFrame({"panel": "p", "name": range(9), "x": range(9), "y": range(9)})
    with pytest.raises(ConfigError, match="9 systems"):
        rank_changes(many, "x", "y")


def test_settings_show_means_intervals_and_the_papers_value():
    rows = [
        (panel, setting, system, measure, mean, mean - 0.1, mean + 0.2)
        for panel in ("CN", "EN")
        for measure, level in (("recall", 0.5), ("eir", 0.3))
        for setting, step in (("k2", 0.0), ("k4", 0.1))
        for system, mean in (("BM25", level + step), ("MiniLM", level - step))
        if panel == "EN" or system == "BM25"
    ]
    ours = pd.DataFrame(rows, columns=["panel", "setting", "system", "measure", "mean", "low", "high"])
    paper = pd.DataFrame({"panel": ["EN"], "setting": ["k4"], "measure": ["recall"], "mean": [0.77]})
    figure = settings_beside_paper(ours, paper)
    assert [a.get_title() for a in figure.axes] == ["CN", "EN", "", ""]
    recall = figure.axes[1]
    assert recall.get_ylabel() == ""
    assert figure.axes[0].get_ylabel() == "recall"
    points = {c.get_label(): np.asarray(c.lines[0].get_ydata(), float) for c in recall.containers}
    np.testing.assert_allclose(points["BM25"], [0.5, 0.6])
    np.testing.assert_allclose(points["MiniLM"], [0.5, 0.4])
    bar = next(c for c in recall.collections if c.get_label() == "paper")
    np.testing.assert_allclose(bar.get_segments()[0], [[0.58, 0.77], [1.42, 0.77]])
    ends = recall.containers[0].lines[2][0].get_segments()[1][:, 1]
    np.testing.assert_allclose(ends, [0.5, 0.8])
    assert {t.get_text() for t in figure.legends[0].get_texts()} == {"paper", "BM25", "MiniLM"}
    assert all(a.get_ylim()[0] == 0 for a in figure.axes)
    assert recall.get_ylim()[1] > 0.8


def test_a_panel_with_larger_values_than_the_first_stays_in_view():
    rows = [("CN", "k2", "BM25", "eir", 0.05, 0.04, 0.06), ("EN", "k2", "BM25", "eir", 0.25, 0.2, 0.3)]
    ours = pd.DataFrame(rows, columns=["panel", "setting", "system", "measure", "mean", "low", "high"])
    assert settings_beside_paper(ours).axes[1].get_ylim()[1] > 0.3
