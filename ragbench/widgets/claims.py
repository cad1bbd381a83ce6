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

from ragbench.data.ragchecker import CLAIM_LABELS, RagResult, claim_text
from ragbench.errors import DataError, check_known
from ragbench.metrics.claims import CLAIM_METRICS, COUNTS, LOWER_IS_BETTER, claim_metrics_table
from ragbench.widgets.base import HTML, Panel

_AS_GIVEN = "as given"
_ORDERS = [(f"{name.replace('_', ' ')}, worst first", name) for name in CLAIM_METRICS]
_ENTAILED = CLAIM_LABELS[0]
# Label -> symbol, class of the cell, and words.
_LOOKS = {
    CLAIM_LABELS[0]: ("✓", "rb-entailed", CLAIM_LABELS[0]),
    CLAIM_LABELS[1]: ("–", "rb-neutral", CLAIM_LABELS[1]),
    CLAIM_LABELS[2]: ("✗", "rb-contradicted", CLAIM_LABELS[2]),
    None: ("?", "rb-unread", "no label"),
}
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
.rb-claims p { margin: 4px 0; }
.rb-widget .rb-texts { display: grid; grid-template-columns: 1fr 1fr; gap: 2px 16px; }
.rb-widget .rb-beside { display: flex; flex-flow: row wrap; gap: 4px 24px; align-items: flex-start; }
.rb-widget .rb-beside > div { overflow: auto; }
.rb-widget .rb-long { white-space: pre-wrap; max-height: 11em; overflow: auto; overflow-wrap: anywhere; }
</style>"""


class ClaimInspector(Panel):
    """Look through checked results claim by claim, one table a result.

    A row is a claim of the response or of the reference, a column a text that it was checked
    against: the other answer first, then the chunks by rank ("R": relevant, it entails a reference
    claim). The chunks' texts fold out below. A label that could not be read is shown as "?".

    ``results`` are what `ragbench.data.read_ragchecker` reads, a list of its results, or a table of
    `ragbench.score` with claim_labels. Raises DataError for malformed or no results.

    >>> from ragbench.data.ragchecker import RagResult
    >>> yes = ("Entailment",)
    >>> labels = {"response_in_reference": yes, "reference_in_response": yes}
    >>> claims = {"response_claims": ("Ada built it.",), "reference_claims": ("It was Ada.",)}
    >>> result = RagResult("q1", "Who?", "It was Ada.", "Ada built it.", **claims, **labels)
    >>> rb.widgets.ClaimInspector([result]).result.response
    'Ada built it.'
    """

    def __init__(self, results: Any) -> None:
        self.results = _as_results(results)
        self._scores = pd.DataFrame([_scores_of(result) for result in self.results])
        self.order = self._list("Order", "380px", self._sort)
        self.choice = self._list("Result", "520px", self._show_result)
        self.page = w.HTML()
        super().__init__(
            [self.row([self.choice, self.order]), self.page], "Claim inspector", _STYLE
        )
        self.add_class("rb-claims")
        self.order.options = [(_AS_GIVEN, _AS_GIVEN), *_ORDERS]
        self.order.index = 0

    @property
    def result(self) -> RagResult:
        """The result that is shown."""
        return self.results[self._place]

    @property
    def metrics(self) -> dict[str, float]:
        """The eleven metrics of the result that is shown, in [0, 1]; NaN where undefined."""
        return {name: self._scores[name][self._place] for name in CLAIM_METRICS}

    def show(self, result_id: str | int) -> None:
        """Show the result with this id; ConfigError for an unknown one."""
        ids = [result.id for result in self.results]
        check_known("result", [result_id], ids)
        self.choice.value = ids.index(result_id)

    def rows(self, side: str) -> list[tuple[str, tuple[str | None, ...]]]:
        """List (claim, its labels against the other answer and every chunk) of one side,
        "response" or "reference"; None: no label.
        """
        result = self.result
        _, against_answer, against_chunks = _SIDES[side]
        claims = getattr(result, f"{side}_claims") or ()
        of_answer = getattr(result, against_answer) or [None] * len(claims)
        unread = [None] * len(result.chunks)
        of_chunks = getattr(result, against_chunks) or [unread] * len(claims)
        rows = []
        for claim, label, labels in zip(claims, of_answer, of_chunks, strict=True):
            rows.append((claim_text(claim), (label, *labels)))
        return rows

    def _list(self, words: str, width: str, show: Callable[[Any], None]) -> w.Dropdown:
        chooser = w.Dropdown(description=words, layout={"width": width})
        # Without a value while its options change.
        chooser.observe(lambda change: change["new"] is not None and show(change["new"]), "value")
        return chooser

    def _sort(self, name: str) -> None:
        """List the results, the worst first by the chosen metric, undefined ones last."""
        shown = pd.Series("", self._scores.index)
        if name != _AS_GIVEN:
            less_is_better = name in LOWER_IS_BETTER
            worst_first = self._scores[name].sort_values(
                ascending=not less_is_better, kind="stable"
            )
            shown = worst_first.map(_number) + "  "
        self._order = shown.index.tolist()
        options = []
        for place in self._order:
            result = self.results[place]
            question = " ".join(result.question.split())
            options.append((f"{shown[place]}{result.id}: {question:.60}", place))
        self.choice.options = options
        self.choice.index = 0

    def _show_result(self, place: int) -> None:
        self._place = place
        scores = self._scores.iloc[place]
        numbers = [[name.replace("_", " "), _number(scores[name])] for name in CLAIM_METRICS]
        sides = {side: self.rows(side) for side in _SIDES}
        relevant = set()
        for _, labels in sides["reference"]:
            relevant |= {i for i, label in enumerate(labels) if i and label == _ENTAILED}
        number = self._order.index(place) + 1
        self.page.value = HTML.checked(
            self.result,
            f"result {number} of {len(self.results)}, id {self.result.id}",
            {side: (other, sides[side]) for side, (other, *_) in _SIDES.items()},
            _LOOKS,
            relevant,
            HTML.number_table(["metric", ""], numbers, scores["note"]),
        )


def _as_results(results: Any) -> tuple[RagResult, ...]:
    if isinstance(results, pd.DataFrame):
        results = results["claim_labels"].dropna()
    read = tuple(map(RagResult.of, getattr(results, "results", results)))
    if not read:
        raise DataError("there are no results", "at least one", "check what made them")
    return read


def _scores_of(result: RagResult) -> dict[str, Any]:
    """Return the metrics, NaN where undefined, and a note: the numbers of claims and chunks that
    they rest on, or what keeps them from being known.
    """
    gaps = result.missing()
    if gaps:
        note = f"not checked, or unread labels: {', '.join(gaps)}".replace("_", " ")
        return dict.fromkeys(CLAIM_METRICS, math.nan) | {"note": note}
    row = claim_metrics_table([result]).iloc[0]
    scores = {name: row[name] for name in (*CLAIM_METRICS, *COUNTS)}
    # a matrix without rows does not tell how many chunks there were
    scores["n_chunks"] = len(result.chunks)
    counts = []
    for name in COUNTS:
        words = name.removeprefix("n_").replace("_", " ")
        counts.append(f"{scores[name]:.0f} {words}")
    return scores | {"note": ", ".join(counts)}


def _number(value: float) -> str:
    return "undefined" if math.isnan(value) else f"{value:.3f}"
