"""Claim inspector: which text entails which claim, as a matrix, with the eleven metrics beside it.

Source: RAGChecker (Ru et al. 2024), section 3: claims, labels, metrics. Labels come from the
results; nothing here checks a claim.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ipywidgets as w
import pandas as pd

from ragbench.data.ragchecker import LABELS, RagResult, claim_text
from ragbench.errors import DataError, check_known
from ragbench.metrics.claims import COUNTS, LOWER_IS_BETTER, METRICS, claim_metrics_table
from ragbench.metrics.table import claim_result
from ragbench.widgets.base import HTML, Panel, row

_AS_GIVEN = "as given"
_ENTAILED = LABELS[0]
# Label -> symbol, class of the cell, and words.
_LOOKS = {
    LABELS[0]: ("✓", "rb-entailed", LABELS[0]),
    LABELS[1]: ("–", "rb-neutral", LABELS[1]),
    LABELS[2]: ("✗", "rb-contradicted", LABELS[2]),
    None: ("?", "rb-unread", "no label"),
}
_LEGEND = " &nbsp; ".join(f"{symbol} {words}" for symbol, _, words in _LOOKS.values())
_LEGEND = (
    f"<span class='rb-quiet'>{_LEGEND} &nbsp; R: relevant, the chunk entails a reference "
    "claim</span>"
)
# Side -> the other answer, and the checks of this side's claims: against that answer, against the
# chunks.
_SIDES = {
    "response": ("reference", "response_in_reference", "response_in_chunks"),
    "reference": ("response", "reference_in_response", "reference_in_chunks"),
}
_STYLE = """<style>
.rb-widget .rb-matrix td, .rb-widget .rb-matrix th { padding: 2px 6px; text-align: center; font-size: 13px; }
.rb-widget .rb-matrix th[scope=col] { white-space: nowrap; }
.rb-widget .rb-matrix th[scope=row] { text-align: left; min-width: 240px; }
.rb-widget .rb-matrix .rb-entailed { background: var(--rb-good); color: #fff; font-weight: 700; }
.rb-widget .rb-matrix .rb-neutral { background: var(--rb-shade); }
.rb-widget .rb-matrix .rb-contradicted { background: var(--rb-bad); color: #000; font-weight: 700; }
.rb-widget .rb-matrix [aria-current] { outline: 2px solid var(--rb-text); text-decoration: underline; }
.rb-claims p { margin: 4px 0; }
.rb-widget .rb-texts { display: grid; grid-template-columns: 1fr 1fr; gap: 2px 16px; }
.rb-widget .rb-long { white-space: pre-wrap; max-height: 11em; overflow: auto; overflow-wrap: anywhere; }
</style>"""

_Labels = tuple[str | None, ...]


class ClaimInspector(Panel):
    """Look through checked results claim by claim.

    The matrix has a row for every claim and a column for every text it was checked against: the
    other answer first, then the chunks by rank ("R": relevant, it entails a reference claim).
    Choose a claim and a text in the lists below it to read that text. A label that could not be
    read is shown as "?".

    ``results`` are what `ragbench.data.read_ragchecker` reads, a list of its results, or a table of
    `ragbench.score` with claim_labels. Raises DataError for malformed or no results.
    """

    def __init__(self, results: Any) -> None:
        if isinstance(results, pd.DataFrame):
            results = results["claim_labels"].dropna()
        self.results = tuple(map(claim_result, getattr(results, "results", results)))
        if not self.results:
            raise DataError("there are no results", "at least one", "check what made them")
        self._scores = pd.DataFrame([_scores_of(result) for result in self.results])
        orders = [(f"{name.replace('_', ' ')}, worst first", name) for name in METRICS]
        orders.insert(0, (_AS_GIVEN, _AS_GIVEN))
        self.order = self._list("Order", "380px", self._sort)
        self.choice = self._list("Result", "520px", self._show_result)
        self.claims = self._list("Claim", "520px", self._show_claim)
        self.columns = self._list("Text", "380px", self._show_text)
        self.texts = w.HTML()
        self.detail = w.HTML()
        self.detail.add_class("rb-detail")
        self.table = w.HTML(layout=w.Layout(flex="0 1 380px"))
        self.matrix = w.HTML(layout=w.Layout(flex="1 1 560px", overflow="auto"))
        lists = row([self.claims, self.columns])
        tables = row([self.matrix, self.table], align_items="flex-start")
        children = [self._navigation(), self.texts, tables, w.HTML(_LEGEND), lists, self.detail]
        super().__init__(children, "Claim inspector", _STYLE)
        self.add_class("rb-claims")
        self.order.options = orders
        self.order.index = 0

    def _navigation(self) -> w.HBox:
        short = w.Layout(width="44px")
        self.previous = self.button(
            "◀", lambda: self._step(-1), tooltip="Previous result", layout=short
        )
        self.next = self.button("▶", lambda: self._step(1), tooltip="Next result", layout=short)
        return row([self.previous, self.next, self.choice, self.order])

    @property
    def result(self) -> RagResult:
        """The result that is shown."""
        return self.results[self.choice.value]

    @property
    def metrics(self) -> dict[str, float]:
        """The eleven metrics of the result that is shown, in [0, 1]; NaN where undefined."""
        return self._scores.loc[self.choice.value, list(METRICS)].to_dict()

    def show(self, result_id: str | int) -> None:
        """Show the result with this id; ConfigError for an unknown one."""
        ids = [result.id for result in self.results]
        check_known("result", [result_id], ids)
        self.choice.value = ids.index(result_id)

    def rows(self, side: str) -> list[tuple[str, _Labels]]:
        """List (claim, its labels against the other answer and every chunk) of one side; None: no
        label.
        """
        result = self.result
        claims = getattr(result, f"{side}_claims") or ()
        of_answer, of_chunks = (getattr(result, check) for check in _SIDES[side][1:])
        of_answer = of_answer or [None] * len(claims)
        of_chunks = of_chunks or [[None] * len(result.chunks)] * len(claims)
        return [
            (claim_text(claim), (label, *labels))
            for claim, label, labels in zip(claims, of_answer, of_chunks, strict=True)
        ]

    # -- what follows from a choice

    def _list(self, words: str, width: str, show: Callable[[], None]) -> w.Dropdown:
        chooser = w.Dropdown(description=words, layout=w.Layout(width=width))
        # Without a value while its options change.
        chooser.observe(lambda change: change["new"] is not None and show(), "value")
        return chooser

    def _sort(self) -> None:
        """List the results, the worst first by the chosen metric, undefined ones last."""
        name = self.order.value
        places = self._scores.index
        marks = [""] * len(places)
        if name != _AS_GIVEN:
            values = self._scores[name].sort_values(
                ascending=name not in LOWER_IS_BETTER, kind="stable"
            )
            places = values.index
            marks = [f"{_number(value)}  " for value in values]
        options = []
        for mark, place in zip(marks, places, strict=True):
            result = self.results[place]
            options.append((f"{mark}{result.id}: {_short(result.question)}", place))
        self.choice.options = options
        self.choice.index = 0

    def _step(self, by: int) -> None:
        count = len(self.choice.options)
        self.choice.index = (self.choice.index + by) % count

    def _show_result(self) -> None:
        """Show the chosen result and list its claims."""
        scores = self._scores.loc[self.choice.value]
        numbers = [[name.replace("_", " "), _number(scores[name])] for name in METRICS]
        self.table.value = HTML.number_table(["metric", ""], numbers, scores["note"])
        total = len(self.results)
        self.texts.value = HTML.answers(self.result, self.choice.index + 1, total)
        listed = []
        for side in _SIDES:
            for i, (claim, _) in enumerate(self.rows(side)):
                listed.append((f"{side} {i + 1}: {_short(claim, 90)}", (side, i)))
        self.claims.options = listed or [("no claims", ())]
        self.claims.index = 0

    def _show_claim(self) -> None:
        """List the texts of the chosen claim, and choose the first chunk that entails it, else the
        other answer if it does, else the first chunk.
        """
        if not self.claims.value:
            self.columns.options = [("no claims", None)]
            self.matrix.value = ""
            self.detail.value = "<p>This result has no claims: extract and check them first.</p>"
            return
        side, claim = self.claims.value
        labels = self.rows(side)[claim][1]
        listed = []
        for column, label in enumerate(labels):
            symbol, _, words = _LOOKS[label]
            listed.append((f"{symbol} {_place(side, column)}: {words}", column))
        self.columns.options = listed
        chunks = labels[1:]
        column = min(len(chunks), 1)
        if _ENTAILED in chunks:
            column = 1 + chunks.index(_ENTAILED)
        elif labels[0] == _ENTAILED:
            column = 0
        self.columns.index = column

    def _show_text(self) -> None:
        """Show the chosen claim against the chosen text."""
        side, claim = self.claims.value
        column = self.columns.value
        self.matrix.value = "".join(self._matrix(each) for each in _SIDES)
        words, labels = self.rows(side)[claim]
        entailing = [_place(side, i) for i, label in enumerate(labels) if label == _ENTAILED]
        text = getattr(self.result, _SIDES[side][0])
        doc_id = None
        if column:
            chunk = self.result.chunks[column - 1]
            text = chunk.text
            doc_id = chunk.doc_id
        shown = _LOOKS[labels[column]], _place(side, column), doc_id, text
        self.detail.value = HTML.checked(side, claim + 1, words, entailing, *shown)

    def _matrix(self, side: str) -> str:
        """The labels of one side's claims as HTML, with the chosen claim and cell marked."""
        columns = range(len(self.result.chunks) + 1)
        places = [_place(side, column) for column in columns]
        rows = [(text, [_LOOKS[label] for label in labels]) for text, labels in self.rows(side)]
        of_references = [labels for _, labels in self.rows("reference")]
        relevant = [i for i in columns[1:] if _ENTAILED in (labels[i] for labels in of_references)]
        chosen_side, chosen = self.claims.value
        chosen = chosen + 1 if side == chosen_side else 0
        return HTML.matrix(side, places, rows, relevant, chosen, self.columns.value)


def _scores_of(result: RagResult) -> dict[str, Any]:
    """Return the metrics, NaN where undefined, and a note: the numbers of claims and chunks that
    they rest on, or what keeps them from being known.
    """
    gaps = result.missing()
    if gaps:
        note = f"not checked, or unread labels: {', '.join(gaps)}".replace("_", " ")
        return dict.fromkeys(METRICS, math.nan) | {"note": note}
    scores = claim_metrics_table([result]).iloc[0].to_dict()
    # a matrix without rows does not tell how many chunks there were
    scores["n_chunks"] = len(result.chunks)
    words = [f"{scores[name]:.0f} {name[2:].replace('_', ' ')}" for name in COUNTS]
    return scores | {"note": ", ".join(words)}


def _place(side: str, column: int) -> str:
    """Name a column of one side: the other answer, or a chunk from 1."""
    return f"chunk {column}" if column else _SIDES[side][0]


def _short(text: str, size: int = 60) -> str:
    """Cut a text, of any language, to one line of at most ``size`` characters."""
    line = " ".join(text.split())
    return line if len(line) <= size else line[: size - 1] + "…"


def _number(value: float) -> str:
    return "undefined" if math.isnan(value) else f"{value:.3f}"
