"""Claim inspector: which text entails which claim, as a matrix to click through, with the eleven metrics beside it.

Source: RAGChecker (Ru et al. 2024), section 3: claims, labels, metrics. Labels come from the results; nothing here
checks a claim. The marked sentence is a hint from shared words, not the checker's reason.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ipywidgets as w

from ragbench.data.ragchecker import LABELS, RagResult
from ragbench.errors import ConfigError, check_known
from ragbench.metrics.claims import LOWER_IS_BETTER, METRICS
from ragbench.widgets import claims_view as view
from ragbench.widgets.base import Panel

AS_GIVEN = "as given"
_SIDES = tuple(view.CHECKS_OF)
_CLASSES = {LABELS[0]: "rb-entailed", LABELS[1]: "rb-neutral", LABELS[2]: "rb-contradicted", None: "rb-unread"}
# ipywidgets has no key events. A style element runs its onload when it enters the page: it lets the arrow keys move in
# the matrix and keeps JupyterLab from taking them to move between cells, as it does even with a list in focus. Where
# scripts are not allowed, mouse, Tab and Enter still work.
_STYLE = """<style onload="
  const root = this.closest('.rb-claims');
  if (root && !root.dataset.rbKeys) {
    root.dataset.rbKeys = 'true';
    root.addEventListener('focusin', (e) => { e.target.dataset.lmSuppressShortcuts = 'true'; });
    root.addEventListener('keydown', (e) => {
      const cell = e.target.closest('.rb-cell');
      if (!cell || e.ctrlKey || e.metaKey || e.altKey) return;
      const wide = getComputedStyle(cell.parentElement).gridTemplateColumns.split(' ').length;
      const step = {ArrowLeft: -1, ArrowRight: 1, ArrowUp: -wide, ArrowDown: wide}[e.key];
      if (!step) return;
      e.preventDefault();
      const cells = [...cell.parentElement.children];
      let i = cells.indexOf(cell) + step;
      while (cells[i] && !cells[i].matches('button')) i += step;
      if (cells[i]) { cells[i].focus(); cells[i].click(); }
    });
  }
">
.rb-widget .rb-cell { margin: 0; padding: 0; height: auto; min-height: 26px; line-height: 1.3; min-width: 0;
  width: auto; font-size: 14px; color: var(--rb-text); background: var(--rb-shade); border: 2px solid transparent; }
.rb-widget .rb-cell.rb-head { background: transparent; font-size: 12px; font-weight: 600; }
.rb-widget .rb-cell.rb-claim { text-align: left; white-space: normal; padding: 2px 6px; font-size: 13px;
  background: transparent; }
.rb-widget .rb-cell.rb-entailed { background: var(--rb-good); color: #fff; font-weight: 700; }
.rb-widget .rb-cell.rb-contradicted { background: var(--rb-bad); color: #000; font-weight: 700; }
.rb-widget .rb-cell.rb-unread { background: transparent; border: 2px dashed var(--rb-rule); }
.rb-widget .rb-cell.rb-chosen { border: 2px solid var(--rb-text); text-decoration: underline; }
.rb-widget .rb-texts { display: grid; grid-template-columns: 1fr 1fr; gap: 2px 16px; }
.rb-widget .rb-long { white-space: pre-wrap; max-height: 11em; overflow: auto; overflow-wrap: anywhere; }
</style>"""


class ClaimInspector(Panel):
    """Look through checked results claim by claim.

    The matrix has a row for every claim and a column for every text it was checked against: the other answer first,
    then the chunks by rank ("R": relevant, it entails a reference claim). Click a claim to see where it is entailed, a
    cell to see that text. By keyboard: Tab to a claim, arrow keys from there, or the lists *Claim* and *Text*.

    Parameters
    ----------
    results : what `ragbench.data.read_ragchecker` reads, a list of its results, or the same as plain dicts in
        RAGChecker's JSON form (a file, a list of results, or one); or a table of `ragbench.score` with claim_labels.
    labels : label words for results that lack them: (id, check) -> labels, as in ``Labelled.partial``, or id -> an
        object or mapping with some of the four checks. A label that is None is shown as unread ("?").

    Raises
    ------
    DataError for malformed or no results, and for labels that do not fit; ConfigError for anything else.
    """

    def __init__(self, results: Any, labels: Mapping[Any, Any] | None = None) -> None:
        self.results = view.as_results(results)
        self._labels = view.label_sets(self.results, labels or {})
        self._scores = [view.scores_of(r, sets) for r, sets in zip(self.results, self._labels, strict=True)]
        self.at, self.side, self.claim, self.column = 0, "response", 0, 0
        self._pool: list[w.Button] = []
        self._places: list[tuple[str, int, int]] = []
        self._shared = {"layout": w.Layout(width="auto"), "style": w.ButtonStyle()}
        self._build()
        super().__init__(
            [
                w.HTML(_STYLE),
                w.HBox([self.previous, self.next, self.choice, self.order], layout=w.Layout(flex_flow="row wrap")),
                self.texts,
                w.HBox([self.grid, self.table], layout=w.Layout(align_items="flex-start", flex_flow="row wrap")),
                w.HTML(view.LEGEND),
                w.HBox([self.claims, self.columns], layout=w.Layout(flex_flow="row wrap")),
                self.detail,
            ],
            "Claim inspector",
        )
        self.add_class("rb-claims")
        self._quiet = False
        self._watch(self.choice, self._choose)
        self._watch(self.order, self._sort)
        self._watch(self.claims, lambda place: self.select(*place))
        self._watch(self.columns, lambda column: self.select(self.side, self.claim, column))
        self._show()

    @property
    def result(self) -> RagResult:
        """The result that is shown."""
        return self.results[self.at]

    @property
    def metrics(self) -> dict[str, float]:
        """The eleven metrics of the result that is shown, in [0, 1]; NaN where undefined."""
        return dict(self._scores[self.at][0])

    def show(self, result_id: str | int) -> None:
        """Show the result with this id; ConfigError for an unknown one."""
        ids = [r.id for r in self.results]
        check_known("result", [result_id], ids)
        self.choice.value = ids.index(result_id)

    def select(self, side: str, claim: int, column: int | None = None) -> None:
        """Choose a claim, and the text to see it against.

        Parameters
        ----------
        side : "response" or "reference".
        claim : its number, from 0.
        column : 0 is the other answer, 1 the first chunk ...; None: the first text that entails the claim, chunks
            before the other answer.

        Raises
        ------
        ConfigError for a place that is not there.
        """
        rows = self.rows(side) if side in _SIDES else []
        width = len(self.result.chunks) + 1
        if not 0 <= claim < len(rows) or not (column is None or 0 <= column < width):
            raise ConfigError(f"{side} claim {claim}, column {column}", f"a place in {width} columns", "look again")
        self.side, self.claim = side, claim
        self.column = view.first_entailing(rows[claim][1]) if column is None else column
        self._point()

    def rows(self, side: str) -> list[tuple[str, tuple[str | None, ...]]]:
        """List (claim, its labels against the other answer and every chunk) of one side; None: no label."""
        return view.side_rows(self.result, self._labels[self.at], side)

    def _build(self) -> None:
        wide, short = w.Layout(width="520px"), w.Layout(width="44px")
        self.previous = w.Button(description="◀", tooltip="Previous result", layout=short)
        self.next = w.Button(description="▶", tooltip="Next result", layout=short)
        orders = [(AS_GIVEN, AS_GIVEN), *((f"{name.replace('_', ' ')}, worst first", name) for name in METRICS)]
        self.order = w.Dropdown(options=orders, description="Order", layout=w.Layout(width="380px"))
        self.choice = w.Dropdown(options=self._choices(range(len(self.results))), description="Result", layout=wide)
        self.texts, self.table, self.detail = w.HTML(), w.HTML(), w.HTML()
        self.grid = w.GridBox(layout=w.Layout(flex="1 1 560px", overflow="auto", grid_gap="2px"))
        self.detail.add_class("rb-detail")
        self.table.layout = w.Layout(flex="0 1 380px")
        self.claims = w.Dropdown(description="Claim", layout=wide)
        self.columns = w.Dropdown(description="Text", layout=w.Layout(width="380px"))
        self.previous.on_click(lambda _: self._step(-1))
        self.next.on_click(lambda _: self._step(1))

    def _watch(self, widget: w.Widget, handler: Callable[[Any], None]) -> None:
        """Call the handler with what the reader chooses in a list."""

        def changed(change: Mapping[str, Any]) -> None:
            if not self._quiet:
                with self.guarded():
                    handler(change["new"])

        widget.observe(changed, "value")

    def _choices(self, places: Sequence[int]) -> list[tuple[str, int]]:
        name = self.order.value
        choices = []
        for i in places:
            value = "" if name == AS_GIVEN else f"{view.number(self._scores[i][0][name])}  "
            choices.append((f"{value}{self.results[i].id}: {view.short(self.results[i].question)}", i))
        return choices

    def _sort(self, name: str) -> None:
        places, sign = list(range(len(self.results))), -1 if name in LOWER_IS_BETTER else 1
        if name != AS_GIVEN:
            values = [self._scores[i][0][name] for i in places]
            places.sort(key=lambda i: (math.isnan(values[i]), sign * values[i]))
        self._quietly(self.choice, options=self._choices(places), value=places[0])
        self._choose(places[0])

    def _step(self, by: int) -> None:
        order = [i for _, i in self.choice.options]
        self.choice.value = order[(order.index(self.at) + by) % len(order)]

    def _choose(self, number: int) -> None:
        self.at, self.side, self.claim, self.column = number, "response", 0, 0
        self._show()

    def _clicked(self, number: int, _: Any) -> None:
        with self.guarded():
            side, claim, column = self._places[number]
            if claim < 0:  # the head of a column: the chosen claim of this side against that text
                claim = self.claim if self.side == side else 0
            self.select(side, claim, None if column < 0 else column)

    def _quietly(self, widget: w.Widget, **values: Any) -> None:
        """Set a list without taking it for the reader's choice."""
        self._quiet = True
        try:
            for name, value in values.items():
                setattr(widget, name, value)
        finally:
            self._quiet = False

    def _show(self) -> None:
        """Draw the chosen result anew."""
        result, sides = self.result, {side: self.rows(side) for side in _SIDES}
        order = [i for _, i in self.choice.options]
        self.texts.value = view.texts(result, order.index(self.at) + 1, len(order))
        self.table.value = view.metrics_html(*self._scores[self.at])
        relevant = [
            any(labels[i + 1] == view.ENTAILED for _, labels in sides["reference"]) for i in range(len(result.chunks))
        ]
        self._fill(sides, relevant)
        listed = [
            (f"{side} {i + 1}: {view.short(text, 90)}", (side, i))
            for side, rows in sides.items()
            for i, (text, _) in enumerate(rows)
        ]
        self._quietly(self.claims, options=listed or [("no claims", None)])
        if listed:
            self.select(*listed[0][1])
        else:
            self._quietly(self.columns, options=[("no claims", None)])
            self.detail.value = "<p>This result has no claims: extract and check them first.</p>"

    def _fill(self, sides: Mapping[str, Sequence[tuple]], relevant: Sequence[bool]) -> None:
        self._places = []
        children: list[w.Widget] = []
        for side, rows in sides.items():
            other = view.OTHER[side]
            children.append(w.HTML(f"<b>{side.capitalize()} claims ({len(rows)})</b>"))
            heads = [(other[:3], f"against the {other}")]
            heads += [
                (f"{i + 1}{' R' if r else ''}", f"chunk {i + 1}{', relevant' if r else ''}")
                for i, r in enumerate(relevant)
            ]
            for column, (head, tooltip) in enumerate(heads):
                children.append(self._cell((side, -1, column), head, f"{side} claims {tooltip}", ["rb-head"]))
            for number, (text, labels) in enumerate(rows):
                words = f"{number + 1}. {text}"
                children.append(self._cell((side, number, -1), words, f"{side} claim {words}", ["rb-claim"]))
                for column, label in enumerate(labels):
                    tooltip = f"{side} claim {number + 1}, {view.place(side, column)}: {label or 'no label'}"
                    children.append(self._cell((side, number, column), view.SYMBOLS[label], tooltip, [_CLASSES[label]]))
        self.grid.layout.grid_template_columns = f"minmax(240px, 1fr) 42px repeat({len(relevant)}, 38px)"
        self.grid.children = children

    def _cell(self, place: tuple[str, int, int], words: str, tooltip: str, classes: list[str]) -> w.Button:
        """Take the next button of the pool: making hundreds of widgets for every result would take seconds."""
        number = len(self._places)
        self._places.append(place)
        # Cells are left out of the Tab order, a matrix would be hundreds of stops: the arrow keys reach them.
        state = {
            "description": words,
            "tooltip": tooltip,
            "_dom_classes": ("rb-cell", *classes),
            "tabbable": None if place[2] < 0 else False,
        }
        if number == len(self._pool):
            button = w.Button(**state, **self._shared)
            button.on_click(functools.partial(self._clicked, number))
            self._pool.append(button)
        else:
            with self._pool[number].hold_sync():
                for name, value in state.items():
                    setattr(self._pool[number], name, value)
        return self._pool[number]

    def _point(self) -> None:
        """Show the chosen claim against the chosen text."""
        for place, button in zip(self._places, self._pool, strict=False):
            chosen = place[:2] == (self.side, self.claim) and place[2] in (-1, self.column)
            classes = tuple(c for c in button._dom_classes if c != "rb-chosen")
            button._dom_classes = (*classes, "rb-chosen") if chosen else classes
        rows = self.rows(self.side)
        labels = rows[self.claim][1]
        listed = [
            (f"{view.SYMBOLS[label]} {view.place(self.side, i)}: {label or 'no label'}", i)
            for i, label in enumerate(labels)
        ]
        self._quietly(self.claims, value=(self.side, self.claim))
        self._quietly(self.columns, options=listed, value=self.column)
        self.detail.value = view.detail(self.result, self.side, self.claim, rows, self.column)
