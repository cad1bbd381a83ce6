"""The threshold explorer: where h and k cut the IR scores, and how well that agrees with the grades."""

from __future__ import annotations

import base64
import io
from typing import Any

import ipywidgets
import numpy as np

from ragbench import plots
from ragbench.errors import ConfigError, DataError
from ragbench.metrics.thresholds import (
    GROUPS,
    Thresholds,
    fit_thresholds,
    grade_groups,
    predicted_groups,
    valid_pairs,
)
from ragbench.widgets.base import Panel, figure, number_table, row

_STEP = 0.001
# Threshold -> the grade expected beyond it, and on which side that is.
_EXPECTED = {"h": (1, "below"), "k": (5, "above")}
_STYLE = "<style>.rb-side { display: flex; flex-wrap: wrap; gap: 12px 28px; align-items: flex-start; }</style>"


class ThresholdExplorer(Panel):
    """Sliders for h and k over the sorted IR scores: shares above, between and below, and agreement with the grades.

    Below h the grade 1 (no information) is expected, above k the grade 5 (fully right). ``ir_scores`` and ``grades`` (1
    to 5) are those of answers, shape (n,). ``fitted`` is a `ragbench.metrics.thresholds.Thresholds`, or None where the
    grades allow no fit. Raises DataError for empty input, lengths that differ, NaN scores, or grades outside 1-5.

    Source: thesis §3.3, Eq 3.1-3.5, Figures 3.1 and 3.2. Paper values: h = 0.105, k = 0.670.
    """

    def __init__(self, ir_scores: Any, grades: Any) -> None:
        self._scores, self._grades = valid_pairs(ir_scores, grades)
        self._range = min(0.0, float(self._scores.min())), max(1.0, float(self._scores.max()))
        self.fitted: Thresholds | None = None
        self._why = ""
        try:
            self.fitted = fit_thresholds(self._scores, self._grades)
        except DataError as error:
            self._why = str(error)
        look: dict[str, Any] = {"min": self._range[0], "max": self._range[1], "step": _STEP, "readout_format": ".3f"}
        look |= {"layout": ipywidgets.Layout(width="460px"), "continuous_update": False}  # a picture takes 0.2 s
        self.h, self.k = (ipywidgets.FloatSlider(description=name, **look) for name in _EXPECTED)
        start = (self.fitted.h.value, self.fitted.k.value) if self.fitted else self._range
        self._set(*start)
        self.back = self.button("Back to fitted", lambda: self._set(*start), icon="undo", disabled=self.fitted is None)
        self.picture, self.table = ipywidgets.HTML(), ipywidgets.HTML()
        super().__init__([row([self.h, self.back]), self.k, self.picture, self.table], "Threshold explorer", _STYLE)
        self._draw()
        for slider in (self.h, self.k):
            slider.observe(lambda _: self._draw(), "value")

    def _set(self, h: float, k: float) -> None:
        self.h.value, self.k.value = h, k

    @property
    def thresholds(self) -> dict[str, float]:
        """Values of h and k; within half a step of a fitted value that value itself, as sliders round to their step."""
        shown = {"h": self.h.value, "k": self.k.value}
        best = {name: getattr(self.fitted, name).value for name in shown} if self.fitted else {}
        near = {name: value for name, value in best.items() if abs(shown[name] - value) <= _STEP / 2}
        return shown | near

    @property
    def agreement(self) -> dict[str, float]:
        """Share of answers where threshold and grade agree: for h, for k, and for the three regions together."""
        h, k = self.thresholds.values()
        return {
            "h": float(((self._scores < h) == (self._grades == 1)).mean()),
            "k": float(((self._scores > k) == (self._grades == 5)).mean()),
            "regions": float((predicted_groups(self._scores, h, k) == grade_groups(self._grades)).mean()),
        }

    def _draw(self) -> None:
        with self.guarded():
            if self._why:
                self.message.say(f"not fitted: {self._why}")
            (h, k), agreement = self.thresholds.values(), self.agreement
            predicted, graded = predicted_groups(self._scores, h, k), grade_groups(self._grades)
            if h <= k:
                below, between, above = np.bincount(predicted, minlength=3) / predicted.size
                regions = f"Below h {below:.1%}, between {between:.1%}, above k {above:.1%}."
            else:
                regions, got = "h lies above k.", f"h = {h:.3f} lies above k = {k:.3f}"
                self.message.error(ConfigError(got, "h <= k", "the regions overlap: move one of them"))
            words = (
                f"IR scores of {self._scores.size} answers in ascending order, cut at h = {h:.3f} and k = {k:.3f}. "
                f"{regions} Agreement with the grades: h {agreement['h']:.1%}, k {agreement['k']:.1%}."
            )
            self.picture.value = figure(self._picture(h, k), words)
            counts = np.bincount(3 * graded + predicted, minlength=9).reshape(3, 3)
            rows = [[name, *map(str, cells)] for name, cells in zip(GROUPS, counts, strict=True)]
            caption = f"answers by grade and region; {agreement['regions']:.1%} on the diagonal"
            grid = number_table(["", "below h", "between", "above k"], rows, caption)
            self.table.value = f'<div class="rb-side">{self._fit_table(agreement)}{grid}</div>'

    def _picture(self, h: float, k: float) -> str:
        """HTML of the sorted scores cut at h and k, as in the thesis's Figures 3.1 and 3.2."""
        drawn = io.BytesIO()
        plots.sorted_scores({"answers": self._scores}, h, k, shares=h <= k, wide=7.0).savefig(drawn, format="png")
        return f'<img alt="" src="data:image/png;base64,{base64.b64encode(drawn.getvalue()).decode()}">'

    def _fit_table(self, agreement: dict[str, float]) -> str:
        heads = ["", "now", "agreement", *(["fitted", "equally good", "agreement"] if self.fitted else [])]
        rows = []
        for name, value in self.thresholds.items():
            grade, side = _EXPECTED[name]
            rows.append([f"<b>{name}</b> ({side} it grade {grade})", f"{value:.3f}", f"{agreement[name]:.1%}"])
            if self.fitted:
                best = getattr(self.fitted, name)
                rows[-1] += [f"{best.value:.3f}", f"{best.low:.3f} to {best.high:.3f}", f"{best.agreement:.1%}"]
        return number_table(heads, rows, "thresholds")
