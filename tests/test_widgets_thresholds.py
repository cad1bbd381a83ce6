"""The threshold explorer driven from Python: picture, shares and agreement after each move of a slider."""

import re

import numpy as np
import pytest
from checks import refusals
from hypothesis import given
from hypothesis import strategies as st

from ragbench.errors import DataError
from ragbench.metrics.thresholds import fit_thresholds
from ragbench.widgets import ThresholdExplorer

SCORES = [0.9, 0.0, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0]
GRADES = [5, 1, 1, 2, 3, 4, 5, 5]


def height(score: float) -> str:
    """Where a score stands in the picture: 1 at y = 24, 0 at y = 286."""
    return f"{286 - 262 * score:.1f}"


def line(drawn: str, name: str) -> str:
    """The level line of a threshold."""
    return re.search(rf'class="rb-{name}" points="52.0,([\d.]+) 540.0,\1"', drawn)[1]


def test_sliders_start_at_the_fitted_values():
    one = ThresholdExplorer(SCORES, GRADES)
    assert one.thresholds == pytest.approx({"h": 0.15, "k": 0.7})
    assert one.agreement == {"h": 1.0, "k": 1.0, "regions": 1.0}
    assert 'fully right</th><td class="rb-number">0</td><td class="rb-number">0</td><td class="rb-number">3' in (
        one.table.value
    )


def test_moving_k_moves_its_line_the_shares_and_the_agreement():
    one = ThresholdExplorer(SCORES, GRADES)
    assert "above 37.5%" in one.picture.value
    one.k.value = 0.85
    drawn = one.picture.value
    assert line(drawn, "k") == height(0.85)
    assert line(drawn, "h") == height(0.15)
    for words in ("below 25.0%", "between 50.0%", "above 25.0%", "k = 0.850", "h = 0.150"):
        assert words in drawn
    assert one.agreement == pytest.approx({"h": 1.0, "k": 7 / 8, "regions": 7 / 8})
    assert '>0.850</td><td class="rb-number">87.5%</td><td class="rb-number">0.700</td>' in one.table.value
    assert "0.600 to 0.800" in one.table.value
    assert "87.5% on the diagonal" in one.table.value


def test_moving_h_moves_its_line_and_its_dot():
    one = ThresholdExplorer(SCORES, GRADES)
    one.h.value = 0.3
    assert line(one.picture.value, "h") == height(0.3)
    # agreement 7/8 on a scale from x = 600 to 846
    assert f'class="rb-dot-h" cx="{600 + 246 * 7 / 8:.1f}" cy="{height(0.3)}"' in one.picture.value


def test_fitted_marks_stay_when_the_sliders_move():
    one = ThresholdExplorer(SCORES, GRADES)
    marks = re.findall(r"<polygon[^>]*>", one.picture.value)
    one.h.value, one.k.value = 0.05, 0.95
    assert len(marks) == 4
    assert re.findall(r"<polygon[^>]*>", one.picture.value) == marks
    assert f",{height(0.15)} " in marks[0]
    assert f",{height(0.7)} " in marks[2]


def test_button_returns_to_the_fitted_values_exactly():
    scores, grades = [0.1003, 0.1004, 0.7001, 0.7002], [1, 2, 3, 5]
    one = ThresholdExplorer(scores, grades)
    fitted = fit_thresholds(scores, grades)
    one.h.value, one.k.value = 0.5, 0.6
    assert one.agreement["k"] == 3 / 4
    one.back.click()
    assert (one.h.value, one.k.value) == (fitted.h.value, fitted.k.value)
    # The browser rounds a slider to its step; within half of it the fitted value holds.
    one.h.value, one.k.value = 0.1, 0.7
    assert one.thresholds == {"h": fitted.h.value, "k": fitted.k.value}
    assert one.agreement == {"h": 1.0, "k": 1.0, "regions": 1.0}
    one.k.value = 0.701
    assert one.thresholds["k"] == 0.701


def test_h_above_k_is_said_and_has_no_shares():
    one = ThresholdExplorer(SCORES, GRADES)
    one.h.value = 0.9
    assert "h = 0.900 lies above k = 0.700" in one.message.value
    assert "rb-band" not in one.picture.value
    assert "h lies above k" in one.picture.value
    one.h.value = 0.2
    assert one.message.value == ""
    assert one.picture.value.count("rb-band") == 3


def test_picture_says_in_words_what_it_shows():
    drawn = ThresholdExplorer(SCORES, GRADES).picture.value
    assert drawn.startswith(
        '<div role="img" aria-label="IR scores of 8 answers in ascending order, cut at h = 0.150 and k = 0.700. '
        "Below h 25.0%, between 37.5%, above k 37.5%. Agreement with the grades: h 100.0%, k 100.0%."
    )


def test_grades_that_allow_no_fit_say_why_and_the_sliders_work():
    one = ThresholdExplorer([0.2, 0.5, 0.9], [1, 2, 3])
    assert one.fitted is None
    assert one.back.disabled
    assert "not fitted: no grade 5 among 3 points" in one.message.value
    assert "<polygon" not in one.picture.value
    one.h.value = 0.4
    assert "below 33.3%" in one.picture.value
    assert one.agreement["h"] == 1.0
    assert "not fitted" in one.message.value


test_bad_points_are_refused = refusals(
    (lambda: ThresholdExplorer([0.1, float("nan")], [1, 5]), DataError, "NaN"),
    (lambda: ThresholdExplorer([0.1, 0.2], [1, 6]), DataError, "outside 1-5"),
    (lambda: ThresholdExplorer([0.1], [1, 5]), DataError, "scores 1, grades 2"),
    (lambda: ThresholdExplorer([], []), DataError, "at least one"),
)


def test_scores_outside_0_to_1_widen_the_scale():
    one = ThresholdExplorer([-1.0, 0.0, 2.0, 3.0], [1, 1, 5, 5])
    one.h.value, one.k.value = -0.5, 2.0
    assert line(one.picture.value, "k") == f"{286 - 262 * 0.75:.1f}"
    assert line(one.picture.value, "h") == f"{286 - 262 * 0.125:.1f}"
    assert "below 25.0%" in one.picture.value


def test_curve_of_many_answers_stays_small():
    scores = np.linspace(0, 1, 50_000)
    one = ThresholdExplorer(scores, 1 + (scores * 4.999).astype(int))
    assert len(one.picture.value) < 30_000
    curve = re.search(r'class="rb-curve" points="([^"]*)"', one.picture.value)[1].split()
    assert curve[0].endswith(",286.0")
    assert curve[-1].endswith(",24.0")


points = st.lists(st.tuples(st.integers(0, 20).map(lambda i: i / 20), st.integers(1, 5)), min_size=1, max_size=25)


@given(points=points, h=st.integers(0, 1000), k=st.integers(0, 1000))
def test_agreement_and_table_equal_counting_by_hand(points, h, k):
    scores, grades = zip(*points, strict=True)
    one = ThresholdExplorer(scores, grades)
    one.h.value, one.k.value = h / 1000, k / 1000
    low, high = one.thresholds.values()
    said = [2 if s > high else 0 if s < low else 1 for s in scores]
    given = [2 if g == 5 else 0 if g == 1 else 1 for g in grades]
    assert one.agreement["h"] == pytest.approx(np.mean([(s < low) == (g == 1) for s, g in points]))
    assert one.agreement["k"] == pytest.approx(np.mean([(s > high) == (g == 5) for s, g in points]))
    assert one.agreement["regions"] == pytest.approx(np.mean([a == b for a, b in zip(said, given, strict=True)]))
    counts = [
        str(sum((g, s) == (row, col) for g, s in zip(given, said, strict=True))) for row in range(3) for col in range(3)
    ]
    grid = one.table.value.split("<table>")[2]
    assert re.findall(r'<td class="rb-number">(\d+)</td>', grid) == counts
