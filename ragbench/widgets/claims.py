"""Claim inspector: which text entails which claim, as a matrix, with the eleven metrics beside it.

Source: RAGChecker (Ru et al. 2024), section 3: claims, labels, metrics. Labels come from the
results; nothing here checks a claim. The marked sentence is a hint from shared words, not the
checker's reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ipywidgets as w
import numpy as np
import pandas as pd

from ragbench.data.ragchecker import LABELS, RagResult, RagResults, claim_text, from_ragchecker
from ragbench.errors import ConfigError, DataError, check_known
from ragbench.metrics.claims import (
    COUNTS,
    LOWER_IS_BETTER,
    METRICS,
    claim_metrics_table,
)
from ragbench.metrics.lexical import claim_overlap, idf_weights
from ragbench.text.sentences import sentence_spans
from ragbench.text.words import STOP_WORDS, stems
from ragbench.widgets.base import Panel, escape, mark, number_table, row

# they decide only between equal sentences
_FUNCTION_WORDS = dict.fromkeys(stems(" ".join(STOP_WORDS)), 0.05)
_AS_GIVEN = "as given"
_ENTAILED = LABELS[0]
_SYMBOLS = {LABELS[0]: "✓", LABELS[1]: "–", LABELS[2]: "✗", None: "?"}
_CLASSES = {
    LABELS[0]: "rb-entailed",
    LABELS[1]: "rb-neutral",
    LABELS[2]: "rb-contradicted",
    None: "rb-unread",
}
_LEGEND = " &nbsp; ".join(f"{symbol} {label or 'no label'}" for label, symbol in _SYMBOLS.items())
_LEGEND = (
    f"<span class='rb-quiet'>{_LEGEND} &nbsp; R: relevant, the chunk entails a reference "
    "claim</span>"
)
# Side -> the other answer, and the checks of this side's claims: against that answer, against the
# chunks.
_OTHER = {"response": "reference", "reference": "response"}
_CHECKS_OF = {
    "response": ("response_in_reference", "response_in_chunks"),
    "reference": ("reference_in_response", "reference_in_chunks"),
}
_CHOSEN = " aria-current='true'"
_HINT = (
    "Marked: the sentence with most of the claim's words ({:.0%} by weight). A hint; the "
    "label is the checker's."
)
_NO_HINT = "No sentence shares its words (at best {:.0%} by weight)."
# less in common is chance ("the", a name that every chunk has), and a mark there would mislead
_LEAST_SHARE = 0.2
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

_Row = tuple[str, tuple[str | None, ...]]


class ClaimInspector(Panel):
    """Look through checked results claim by claim.

    The matrix has a row for every claim and a column for every text it was checked against: the
    other answer first, then the chunks by rank ("R": relevant, it entails a reference claim).
    Choose a claim and a text in the lists below it to read that text. A label that could not be
    read is shown as "?".

    ``results`` are what `ragbench.data.read_ragchecker` reads, a list of its results, the same as
    plain dicts in RAGChecker's JSON form, or a table of `ragbench.score` with claim_labels. Raises
    DataError for malformed or no results; ConfigError for anything else.
    """

    def __init__(self, results: Any) -> None:
        self.results = _as_results(results)
        self._scores = [_scores_of(result) for result in self.results]
        self.at = 0
        self.side = "response"
        self.claim = 0
        self.column = 0
        self._quiet = False
        self._make_lists()
        self._make_texts()
        above = row([self.previous, self.next, self.choice, self.order])
        middle = row([self.matrix, self.table], align_items="flex-start")
        below = [w.HTML(_LEGEND), row([self.claims, self.columns]), self.detail]
        super().__init__([above, self.texts, middle, *below], "Claim inspector", _STYLE)
        self.add_class("rb-claims")
        self._choose(0)

    def _make_lists(self) -> None:
        """Make what the reader chooses from: results and their order, claims, texts."""
        wide = w.Layout(width="520px")
        narrow = w.Layout(width="380px")
        short = w.Layout(width="44px")
        self.previous = self.button(
            "◀", lambda: self._step(-1), tooltip="Previous result", layout=short
        )
        self.next = self.button("▶", lambda: self._step(1), tooltip="Next result", layout=short)
        orders = [(f"{name.replace('_', ' ')}, worst first", name) for name in METRICS]
        orders.insert(0, (_AS_GIVEN, _AS_GIVEN))
        self.order = w.Dropdown(options=orders, description="Order", layout=narrow)
        choices = self._choices(range(len(self.results)))
        self.choice = w.Dropdown(options=choices, description="Result", layout=wide)
        self.claims = w.Dropdown(description="Claim", layout=wide)
        self.columns = w.Dropdown(description="Text", layout=narrow)
        self._watch(self.choice, self._choose)
        self._watch(self.order, self._sort)
        self._watch(self.claims, lambda place: self.select(*place))
        self._watch(self.columns, lambda column: self.select(self.side, self.claim, column))

    def _make_texts(self) -> None:
        """Make what is drawn anew for each choice."""
        self.texts = w.HTML()
        self.detail = w.HTML()
        self.detail.add_class("rb-detail")
        self.table = w.HTML(layout=w.Layout(flex="0 1 380px"))
        self.matrix = w.HTML(layout=w.Layout(flex="1 1 560px", overflow="auto"))

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
        """Choose a claim of "response" or "reference" by number, from 0, and the text to see it
        against.

        Column 0 is the other answer, 1 the first chunk ...; None: the first chunk that entails the
        claim, else the other answer if it does, else the first chunk. Raises ConfigError for a
        place that does not exist.
        """
        rows = self.rows(side) if side in _OTHER else []
        width = len(self.result.chunks) + 1
        if not 0 <= claim < len(rows) or not (column is None or 0 <= column < width):
            raise ConfigError(
                f"{side} claim {claim}, column {column}",
                f"a place in {width} columns",
                "look again",
            )
        self.side = side
        self.claim = claim
        self.column = _entailing_column(rows[claim][1]) if column is None else column
        self._point()

    def rows(self, side: str) -> list[_Row]:
        """List (claim, its labels against the other answer and every chunk) of one side; None: no
        label.
        """
        result = self.result
        claims = getattr(result, f"{side}_claims") or ()
        of_answer, of_chunks = (getattr(result, check) for check in _CHECKS_OF[side])
        of_answer = of_answer or [None] * len(claims)
        of_chunks = of_chunks or [[None] * len(result.chunks)] * len(claims)
        return [
            (claim_text(claim), (label, *labels))
            for claim, label, labels in zip(claims, of_answer, of_chunks, strict=True)
        ]

    def _watch(self, widget: w.Widget, handler: Callable[[Any], None]) -> None:
        """Call the handler with what the reader chooses in a list."""

        def changed(change: Mapping[str, Any]) -> None:
            if not self._quiet:
                with self.guarded():
                    handler(change["new"])

        widget.observe(changed, "value")

    def _quietly(self, widget: w.Widget, **values: Any) -> None:
        """Set a list without taking it for the reader's choice."""
        self._quiet = True
        for name, value in values.items():
            setattr(widget, name, value)
        self._quiet = False

    def _choices(self, places: Sequence[int]) -> list[tuple[str, int]]:
        metric = self.order.value
        choices = []
        for place in places:
            words = f"{self.results[place].id}: {_short(self.results[place].question)}"
            if metric != _AS_GIVEN:
                words = f"{_number(self._scores[place][0][metric])}  {words}"
            choices.append((words, place))
        return choices

    def _sort(self, name: str) -> None:
        places = list(range(len(self.results)))
        if name != _AS_GIVEN:
            values = np.array([metrics[name] for metrics, _ in self._scores])
            if name in LOWER_IS_BETTER:
                values = -values
            places = np.argsort(values, kind="stable").tolist()  # NaN last
        self._quietly(self.choice, options=self._choices(places), value=places[0])
        self._choose(places[0])

    def _step(self, by: int) -> None:
        order = [i for _, i in self.choice.options]
        self.choice.value = order[(order.index(self.at) + by) % len(order)]

    def _choose(self, number: int) -> None:
        self.at = number
        self.side = "response"
        self.claim = 0
        self.column = 0
        order = [i for _, i in self.choice.options]
        self.texts.value = self._texts(order.index(number) + 1, len(order))
        self.table.value = _metrics_table(*self._scores[number])
        listed = []
        for side in _OTHER:
            for i, (text, _) in enumerate(self.rows(side)):
                listed.append((f"{side} {i + 1}: {_short(text, 90)}", (side, i)))
        self._quietly(self.claims, options=listed or [("no claims", None)])
        if listed:
            self.select(*listed[0][1])
        else:
            self._quietly(self.columns, options=[("no claims", None)])
            self.matrix.value = ""
            self.detail.value = "<p>This result has no claims: extract and check them first.</p>"

    def _texts(self, position: int, count: int) -> str:
        result = self.result
        parts = []
        for name, text in (("Response", result.response), ("Reference", result.reference)):
            shown = escape(text) or "<i>(empty)</i>"
            parts.append(
                f"<div><h4>{name}</h4><div class='rb-long' tabindex='0'>{shown}</div></div>"
            )
        place = f"result {position} of {count}, id {escape(result.id)}"
        head = f"<span class='rb-quiet'>{place}</span><br><b>{escape(result.question)}</b>"
        return f"<p>{head}</p><div class='rb-texts'>{''.join(parts)}</div>"

    def _point(self) -> None:
        """Show the chosen claim against the chosen text."""
        self.matrix.value = "".join(self._matrix(side) for side in _OTHER)
        words, labels = self.rows(self.side)[self.claim]
        listed = [
            (f"{_SYMBOLS[label]} {_place(self.side, i)}: {label or 'no label'}", i)
            for i, label in enumerate(labels)
        ]
        self._quietly(self.claims, value=(self.side, self.claim))
        self._quietly(self.columns, options=listed, value=self.column)
        self.detail.value = self._detail(words, labels)

    def _matrix(self, side: str) -> str:
        """The labels of one side's claims as HTML, with the chosen claim and cell marked."""
        relevant = set()
        for _, labels in self.rows("reference"):
            relevant |= {i for i, label in enumerate(labels) if label == _ENTAILED}
        chunks = range(1, len(self.result.chunks) + 1)
        heads = [_OTHER[side], *(f"{i} R" if i in relevant else f"{i}" for i in chunks)]
        rows = []
        for claim, (text, labels) in enumerate(self.rows(side)):
            chosen = (side, claim) == (self.side, self.claim)
            now = _CHOSEN if chosen else ""
            cells = [f"<th scope='row'{now}>{claim + 1}. {escape(text)}</th>"]
            for column, label in enumerate(labels):
                title = f"{side} claim {claim + 1}, {_place(side, column)}: {label or 'no label'}"
                now = _CHOSEN if chosen and column == self.column else ""
                cells.append(
                    f"<td class='{_CLASSES[label]}' title='{title}'{now}>{_SYMBOLS[label]}</td>"
                )
            rows.append(f"<tr>{''.join(cells)}</tr>")
        head = "".join(f"<th scope='col'>{name}</th>" for name in heads)
        corner = f"<th scope='col'>{side.capitalize()} claims ({len(rows)})</th>"
        return (
            f"<table class='rb-matrix'><thead><tr>{corner}{head}</tr></thead>"
            f"<tbody>{''.join(rows)}</tbody></table>"
        )

    def _detail(self, words: str, labels: Sequence[str | None]) -> str:
        """The claim against the text as HTML: where else it is entailed, and the text with its best
        sentence marked.
        """
        side = self.side
        label = labels[self.column]
        entailing = [_place(side, i) for i, known in enumerate(labels) if known == _ENTAILED]
        where = "Entailed by " + ", ".join(entailing) if entailing else "No text entails it"
        text = getattr(self.result, _OTHER[side])
        place = _place(side, self.column)
        if self.column:
            chunk = self.result.chunks[self.column - 1]
            text = chunk.text
            if chunk.doc_id is not None:
                place += f" ({escape(chunk.doc_id)})"
        marked, hint = _with_best_sentence(words, text)
        return (
            f"<p><b>{side.capitalize()} claim {self.claim + 1}:</b> "
            f"{escape(words)}<br>{escape(where)}.</p>"
            f"<p class='rb-said'><b>{_SYMBOLS[label]} {label or 'no label'}</b> by {place}</p>"
            f"<div class='rb-long' tabindex='0'>{marked}</div>"
            f"<p class='rb-quiet'>{escape(hint)}</p>"
        )


def _entailing_column(labels: Sequence[str | None]) -> int:
    """Return the first chunk that entails a claim, else the other answer if it does, else the
    first chunk.
    """
    other_answer, *of_chunks = labels
    if _ENTAILED in of_chunks:
        return 1 + of_chunks.index(_ENTAILED)
    if other_answer == _ENTAILED or not of_chunks:
        return 0
    return 1


def _with_best_sentence(claim: str, text: str) -> tuple[str, str]:
    """Return a text as HTML with the sentence marked that shares most words with a claim, and the
    words on it.
    """
    start, end, share = _best_sentence(claim, text) or (0, 0, 0.0)
    if share < _LEAST_SHARE:
        return escape(text), _NO_HINT.format(share)
    marked = f"{escape(text[:start])}{mark(1, escape(text[start:end]))}{escape(text[end:])}"
    return marked, _HINT.format(share)


def _as_results(results: Any) -> tuple[RagResult, ...]:
    if isinstance(results, pd.DataFrame) and "claim_labels" in results:
        results = results["claim_labels"].dropna().tolist()
    if isinstance(results, Mapping):
        results = from_ragchecker(dict(results))
    if isinstance(results, RagResults):
        results = results.results
    if not isinstance(results, Sequence) or isinstance(results, str):
        raise ConfigError(
            f"results is {type(results).__name__}",
            "RagResults, a list of them, RAGChecker's JSON as dicts, or a table of rb.score with "
            "claim_labels",
            "read a file with ragbench.data.read_ragchecker first",
        )
    if not all(isinstance(result, RagResult) for result in results):
        results = from_ragchecker({"results": list(results)}).results
    if not results:
        raise DataError("there are no results", "at least one", "check what made them")
    return tuple(results)


def _scores_of(result: RagResult) -> tuple[dict[str, float], str]:
    """Return the metrics, NaN where undefined, and the numbers of claims and chunks that they rest
    on, or what keeps them from being known.
    """
    gaps = []
    for check in result.missing():
        state = "not checked" if getattr(result, check) is None else "has unread labels"
        gaps.append(f"{check} {state}")
    if gaps:
        return dict.fromkeys(METRICS, math.nan), "; ".join(gaps).replace("_", " ")
    row = claim_metrics_table([result]).iloc[0]
    counts = row[list(COUNTS)].astype(int).to_dict()
    # a matrix without rows does not tell how many chunks there were
    counts["n_chunks"] = len(result.chunks)
    words = [f"{counts[name]} {name[2:].replace('_', ' ')}" for name in COUNTS]
    return row[list(METRICS)].to_dict(), ", ".join(words)


def _best_sentence(claim: str, text: str) -> tuple[int, int, float] | None:
    """Find the sentence of a text that shares most stems with a claim, by weight of the claim's
    words, or None.

    Returns (start, end, share): its place, the first of equally good ones, and the shared weight as
    a share of the claim's, in (0, 1].
    """
    spans = sentence_spans(text, "claims")
    sentences = [text[start:end] for start, end in spans]
    weights = idf_weights(sentences) | _FUNCTION_WORDS
    shares = [claim_overlap(claim, sentence, weights) for sentence in sentences]
    if not any(share > 0 for share in shares):
        return None
    best = max(range(len(shares)), key=shares.__getitem__)
    return (*spans[best], shares[best])


def _place(side: str, column: int) -> str:
    """Name a column of one side: the other answer, or a chunk from 1."""
    return f"chunk {column}" if column else _OTHER[side]


def _short(text: str, size: int = 60) -> str:
    """Cut a text, of any language, to one line of at most ``size`` characters."""
    line = " ".join(text.split())
    return line if len(line) <= size else line[: size - 1] + "…"


def _number(value: float) -> str:
    return "undefined" if math.isnan(value) else f"{value:.3f}"


def _metrics_table(values: Mapping[str, float], note: str) -> str:
    """The eleven metrics as an HTML table, and what they rest on."""
    rows = [[name.replace("_", " "), _number(value)] for name, value in values.items()]
    return number_table(["metric", ""], rows, escape(note))
