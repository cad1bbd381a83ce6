"""The figures of RAGEval's quality assessment draw the numbers they are given."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from ragbench.errors import ConfigError
from ragbench.plots_quality import first_ranks, two_judges, verdict_shares


def ranks() -> pd.DataFrame:
    rows = [
        (language, "law", criterion, writer, share, share - 0.1, share + 0.05, 20)
        for language, more in (("zh", 0.0), ("en", 0.1))
        for criterion, level in (("safety", 0.5), ("clarity", 0.4))
        for writer, share in (("RAGEval", level + more), ("zero-shot", level - 0.2))
    ]
    columns = ["language", "domain", "criterion", "writer", "first", "low", "high", "n"]
    return pd.DataFrame(rows, columns=columns)


def test_bars_are_the_shares_by_writer_and_criterion():
    figure = first_ranks(ranks(), "made")
    chinese, english = figure.axes
    assert [a.get_title() for a in figure.axes] == ["law, zh (n = 20)", "law, en (n = 20)"]
    bars = {
        c.get_label(): [b.get_height() for b in c]
        for c in english.containers
        if c.get_label() in ("RAGEval", "zero-shot")
    }
    np.testing.assert_allclose(bars["RAGEval"], [0.6, 0.5])
    np.testing.assert_allclose(bars["zero-shot"], [0.3, 0.2])
    ends = english.collections[0].get_segments()
    np.testing.assert_allclose([s[:, 1] for s in ends], [[0.5, 0.65], [0.4, 0.55]])
    assert [t.get_text() for t in chinese.get_xticklabels()] == ["safety", "clarity"]
    assert [t.get_text() for t in figure.legends[0].texts] == ["RAGEval", "zero-shot"]


def test_panels_without_data_are_hidden():
    four = pd.concat([ranks(), ranks().assign(domain="finance")])
    assert [a.get_visible() for a in first_ranks(four).axes] == [True] * 4 + [False] * 2


def judges() -> pd.DataFrame:
    rows = [
        ("en", "completeness", 0.6, 0.61, -0.01, True, 30),
        ("en", "hallucination", 0.3, 0.2, 0.1, False, 30),
        ("zh", "completeness", np.nan, np.nan, np.nan, False, 0),
    ]
    return pd.DataFrame(rows, columns=["language", "measure", "people", "judge", "difference", "within", "n"])


def test_two_judges_mark_what_is_outside_the_tolerance_and_leave_out_empty_panels():
    figure = two_judges(judges(), second="GPT")
    assert [a.get_title() for a in figure.axes] == ["en (n = 30)"]
    axis = figure.axes[0]
    assert [t.get_text() for t in axis.texts] == ["-0.010", "+0.100 *"]
    drawn = {line.get_label(): list(line.get_ydata()) for line in axis.lines}
    assert drawn == {"people": [0.6, 0.3], "GPT": [0.61, 0.2]}


def test_verdicts_stack_to_one_and_the_first_generator_is_on_top():
    frame = pd.DataFrame(
        {
            "language": ["CN", "CN", "EN"],
            "generator": ["a", "b", "a"],
            "completeness": [0.5, 0.2, 0.7],
            "hallucination": [0.3, 0.2, 0.1],
            "irrelevance": [0.2, 0.6, 0.2],
        }
    )
    chinese, english = verdict_shares(frame).axes
    ends = [[b.get_x() + b.get_width() for b in c] for c in chinese.containers]
    np.testing.assert_allclose(ends, [[0.5, 0.2], [0.8, 0.4], [1, 1]])
    assert len({c[0].get_hatch() for c in chinese.containers}) == 3
    low, high = english.get_ylim()
    assert low > high


@pytest.mark.parametrize(("draw", "frame"), [(first_ranks, ranks().iloc[:0]), (two_judges, judges().iloc[2:])])
def test_nothing_to_draw_is_said(draw, frame):
    with pytest.raises(ConfigError, match=r"to draw|judged by both"):
        draw(frame)
