"""The threshold explorer: where h and k cut the IR scores, what they predict, and how well that agrees with the grades.

The picture is SVG written as text: what never changes (the two curves) once, the lines and shares anew at every move.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ipywidgets
import numpy as np

from ragbench.errors import ConfigError, DataError
from ragbench.metrics.thresholds import (
    GROUPS,
    Thresholds,
    agreement_curve,
    fit_thresholds,
    grade_groups,
    predicted_groups,
    valid_pairs,
)
from ragbench.widgets.base import Panel, figure, number_table

# Left panel: sorted scores. Right panel: agreement. One scale of scores for both, top to bottom.
_WIDTH, _HEIGHT, _TOP, _BOTTOM = 860, 330, 24, 286
_LEFT, _RIGHT = (52, 540), (600, 846)
# A finer line than one point per two pixels cannot be seen and slows the drawing of large runs.
_POINTS = 400
_STEP = 0.001
# Threshold -> the grade expected beyond it, and on which side that is.
_EXPECTED = {"h": (1, "below"), "k": (5, "above")}
_REGIONS = ("below", "between", "above")

_STYLE = """<style>
.rb-svg { width: 100%; max-width: 1000px; height: auto; display: block; font-size: 12px; }
.rb-svg .rb-axis { stroke: var(--rb-rule); fill: none; }
.rb-svg .rb-curve { stroke: var(--rb-text); stroke-width: 1.8; fill: none; }
.rb-svg .rb-h { stroke: var(--rb-3); stroke-width: 2; stroke-dasharray: 7 4; fill: none; }
.rb-svg .rb-k { stroke: var(--rb-5); stroke-width: 2; fill: none; }
.rb-svg .rb-dot-h { fill: var(--rb-3); } .rb-svg .rb-dot-k { fill: var(--rb-5); }
.rb-svg .rb-band-0 { fill: var(--rb-7-soft); } .rb-svg .rb-band-1 { fill: var(--rb-2-soft); }
.rb-svg .rb-band-2 { fill: var(--rb-1-soft); } .rb-svg .rb-strong { font-weight: 600; }
.rb-svg text { paint-order: stroke; stroke: var(--rb-paper); stroke-width: 3px; stroke-opacity: 0.7; }
.rb-side { display: flex; flex-wrap: wrap; gap: 12px 28px; align-items: flex-start; }
</style>"""


class ThresholdExplorer(Panel):
    """Sliders for h and k over the sorted IR scores: shares above, between and below, and agreement with the grades.

    Below h the grade 1 (no information) is expected, above k the grade 5 (fully right). The fitted thresholds are
    marked with triangles; "Back to fitted" sets the sliders to them.

    Parameters
    ----------
    ir_scores : IR scores of answers, shape (n,).
    grades : their grades 1 to 5, shape (n,).

    Attributes
    ----------
    h, k : the sliders, in steps of 0.001.
    thresholds : the values of h and k that are shown.
    agreement : share of answers on which threshold and grade agree.
    fitted : `ragbench.metrics.thresholds.Thresholds`, or None where the grades do not allow a fit.

    Raises DataError for empty input, lengths that differ, NaN scores, or grades outside 1-5.

    Source: thesis §3.3, Eq 3.1-3.5, Figures 3.1 and 3.2. Paper values: h = 0.105, k = 0.670.
    """

    def __init__(self, ir_scores: Any, grades: Any) -> None:
        self._scores, self._grades = valid_pairs(ir_scores, grades)
        low, high = self._range = min(0.0, float(self._scores.min())), max(1.0, float(self._scores.max()))
        self.fitted: Thresholds | None = None
        self._why = ""
        try:
            self.fitted = fit_thresholds(self._scores, self._grades)
        except DataError as error:
            self._why = str(error)
        look = {"min": low, "max": high, "step": _STEP, "readout_format": ".3f"}
        look["layout"] = ipywidgets.Layout(width="460px")
        self.h, self.k = (ipywidgets.FloatSlider(description=name, **look) for name in _EXPECTED)
        start = (self.fitted.h.value, self.fitted.k.value) if self.fitted else (low, high)
        self._set(*start)
        self.back = self.button("Back to fitted", lambda: self._set(*start), icon="undo", disabled=self.fitted is None)
        self.picture, self.table = ipywidgets.HTML(), ipywidgets.HTML()
        self._still = self._curves()
        controls = ipywidgets.VBox([ipywidgets.HBox([self.h, self.back]), self.k])
        super().__init__([controls, self.picture, self.table], "Threshold explorer", _STYLE)
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
            (h, k), agreement, shares = self.thresholds.values(), self.agreement, None
            predicted, graded = predicted_groups(self._scores, h, k), grade_groups(self._grades)
            if h <= k:
                shares = np.bincount(predicted, minlength=3) / predicted.size
            else:
                got = f"h = {h:.3f} lies above k = {k:.3f}"
                self.message.error(ConfigError(got, "h <= k", "the regions overlap: move one of them"))
            self.picture.value = figure(self._svg(h, k, shares, agreement), self._words(h, k, shares, agreement))
            counts = np.bincount(3 * graded + predicted, minlength=9).reshape(3, 3)
            caption = f"answers by grade and region; {agreement['regions']:.1%} on the diagonal"
            rows = [[name, *map(str, row)] for name, row in zip(GROUPS, counts, strict=True)]
            grid = number_table(["", "below h", "between", "above k"], rows, caption)
            self.table.value = f'<div class="rb-side">{self._fit_table(agreement)}{grid}</div>'

    def _y(self, score: float) -> float:
        low, high = self._range
        return _BOTTOM - (score - low) / (high - low) * (_BOTTOM - _TOP)

    def _curves(self) -> str:
        """SVG of the axes and of what no slider moves: the sorted scores, the agreement curves, the fitted marks."""
        ordered = np.sort(self._scores)
        at = _thinned(ordered.size)
        across = _LEFT[0] + (at + 0.5) / ordered.size * (_LEFT[1] - _LEFT[0])
        parts = [_axes(_LEFT, f"{ordered.size} answers, sorted by IR score"), _axes(_RIGHT, "agreement, 0 to 1")]
        parts += [_line("rb-curve", across, [self._y(s) for s in ordered[at]])]
        for score in np.linspace(*self._range, 6):
            parts.append(_text(_LEFT[0] - 6, self._y(score) + 4, f"{score:.2g}", "end"))
        for name, (grade, side) in _EXPECTED.items():
            values, agreement = agreement_curve(self._scores, self._grades == grade, side)
            at = _thinned(values.size)
            parts.append(_line(f"rb-{name}", _across(agreement[at]), [self._y(v) for v in values[at]]))
            if self.fitted:
                y = self._y(getattr(self.fitted, name).value)
                for x, turn in ((_LEFT[1] + 3, 1), (_RIGHT[0] - 3, -1)):
                    points = f"{x},{y:.1f} {x + 9 * turn},{y - 5:.1f} {x + 9 * turn},{y + 5:.1f}"
                    parts.append(f'<polygon class="rb-dot-{name}" points="{points}"/>')
                parts.append(_text((_LEFT[1] + _RIGHT[0]) / 2, y + 4, f"{name} fit", "middle"))
        return "".join(parts)

    def _svg(self, h: float, k: float, shares: Sequence[float] | None, agreement: dict[str, float]) -> str:
        bands, words = [], []
        edges = [self._y(score) for score in (self._range[0], h, k, self._range[1])]
        for i, share in enumerate(() if shares is None else shares):
            bottom, top = edges[i], edges[i + 1]
            bands.append(
                f'<rect class="rb-band-{i}" x="{_LEFT[0]}" y="{top:.1f}" width="{_LEFT[1] - _LEFT[0]}" '
                f'height="{max(bottom - top, 0):.1f}"/>'
            )
            # The curve climbs from lower left to upper right: the top share stands left of it, the others right.
            x, side = (_LEFT[0] + 8, "start") if i == 2 else (_LEFT[1] - 8, "end")
            if bottom - top >= 14:
                words.append(_text(x, (bottom + top) / 2 + 4, f"{_REGIONS[i]} {share:.1%}", side, "rb-strong"))
        # Where the curve is far away: over the line at its left end, under it at its right end.
        for name, value, lift, x in (("h", h, 14, _LEFT[1] - 140), ("k", k, -5, _LEFT[0] + 180)):
            y = self._y(value)
            words.append(_line(f"rb-{name}", _LEFT, [y, y]))
            words.append(_text(x, y + lift, f"{name} = {value:.3f}", "end"))
            words.append(f'<circle class="rb-dot-{name}" cx="{_across(agreement[name]):.1f}" cy="{y:.1f}" r="5"/>')
        return (
            f'<svg class="rb-svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" aria-hidden="true">'
            f"{''.join(bands)}{self._still}{''.join(words)}</svg>"
        )

    def _words(self, h: float, k: float, shares: Sequence[float] | None, agreement: dict[str, float]) -> str:
        regions = "h lies above k."
        if shares is not None:
            regions = f"Below h {shares[0]:.1%}, between {shares[1]:.1%}, above k {shares[2]:.1%}."
        return (
            f"IR scores of {self._scores.size} answers in ascending order, cut at h = {h:.3f} and k = {k:.3f}. "
            f"{regions} Agreement with the grades: h {agreement['h']:.1%}, k {agreement['k']:.1%}."
        )

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


def _thinned(n: int) -> np.ndarray:
    return np.unique(np.linspace(0, n - 1, min(n, _POINTS)).astype(int))


def _across(agreement: Any) -> Any:
    return _RIGHT[0] + agreement * (_RIGHT[1] - _RIGHT[0])


def _axes(panel: tuple[int, int], label: str) -> str:
    frame = f'<path class="rb-axis" d="M{panel[0]} {_TOP}V{_BOTTOM}H{panel[1]}"/>'
    return frame + _text(sum(panel) / 2, _BOTTOM + 24, label, "middle")


def _line(kind: str, xs: Any, ys: Any) -> str:
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(xs, ys, strict=True))
    return f'<polyline class="{kind}" points="{points}"/>'


def _text(x: float, y: float, words: str, anchor: str, kind: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{kind}">{words}</text>'
