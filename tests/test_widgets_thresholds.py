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


def words(one: ThresholdExplorer) -> str:
    """What the picture says to one who cannot see it."""
    return re.search('aria-label="([^"]*)"', one.picture.value)[1]


def test_sliders_start_at_the_fitted_values():
    one = ThresholdExplorer(SCORES, GRADES)
    assert one.thresholds == pytest.approx({"h": 0.15, "k": 0.7})
    assert one.agreement == {"h": 1.0, "k": 1.0, "regions": 1.0}
    assert 'fully right</th><td class="rb-number">0</td><td class="rb-number">0</td><td class="rb-number">3' in (
        one.table.value
    )


def test_moving_a_slider_changes_the_picture_its_words_and_the_agreement():
    one = ThresholdExplorer(SCORES, GRADES)
    before = one.picture.value
    assert before.startswith('<div role="img" aria-label="IR scores of 8 answers in ascending order, ')
    assert words(one).endswith(
        "cut at h = 0.150 and k = 0.700. Below h 25.0%, between 37.5%, above k 37.5%. "
        "Agreement with the grades: h 100.0%, k 100.0%."
    )
    one.k.value = 0.85
    assert "Below h 25.0%, between 50.0%, above k 25.0%." in words(one)
    picture = re.compile('src="data:image/png;base64,([^"]+)"')
    assert picture.search(one.picture.value)[1] != picture.search(before)[1]
    assert one.agreement == pytest.approx({"h": 1.0, "k": 7 / 8, "regions": 7 / 8})
    assert '>0.850</td><td class="rb-number">87.5%</td><td class="rb-number">0.700</td>' in one.table.value
    assert "0.600 to 0.800" in one.table.value
    assert "87.5% on the diagonal" in one.table.value
    one.back.click()
    assert one.picture.value == before


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
    assert "h lies above k. Agreement" in words(one)
    one.h.value = 0.2
    assert one.message.value == ""
    assert "Below h 25.0%" in words(one)


def test_grades_that_allow_no_fit_say_why_and_the_sliders_work():
    one = ThresholdExplorer([0.2, 0.5, 0.9], [1, 2, 3])
    assert one.fitted is None
    assert one.back.disabled
    assert "not fitted: no grade 5 among 3 points" in one.message.value
    assert "equally good" not in one.table.value
    one.h.value = 0.4
    assert "Below h 33.3%" in words(one)
    assert one.agreement["h"] == 1.0
    assert "not fitted" in one.message.value


test_bad_points_are_refused = refusals(
    (lambda: ThresholdExplorer([0.1, float("nan")], [1, 5]), DataError, "NaN"),
    (lambda: ThresholdExplorer([0.1, 0.2], [1, 6]), DataError, "outside 1-5"),
    (lambda: ThresholdExplorer([0.1], [1, 5]), DataError, "scores 1, grades 2"),
    (lambda: ThresholdExplorer([], []), DataError, "at least one"),
)


class Undrawn(ThresholdExplorer):
    """Without the picture, which takes most of the time."""

    def _picture(self, h, k):
        return ""


points = st.lists(st.tuples(st.integers(0, 20).map(lambda i: i / 20), st.integers(1, 5)), min_size=1, max_size=25)


@given(points=points, h=st.integers(0, 1000), k=st.integers(0, 1000))
def test_agreement_and_table_equal_counting_by_hand(points, h, k):
    scores, grades = zip(*points, strict=True)
    one = Undrawn(scores, grades)
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
