"""The retrieval explorer: what retrievers find for a question, how much of its support, and what a
cut loses.

Scores at all cut-offs come from one pass of `ragbench.metrics.ir_score.part_scores`; the slider
only looks them up.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import ipywidgets
import numpy as np
from markupsafe import Markup

from ragbench.errors import ConfigError, RagbenchError
from ragbench.metrics.ir_score import part_scores
from ragbench.records import Dataset, Hit, Question
from ragbench.retrieval.base import check_retriever
from ragbench.text.layout import comparable
from ragbench.text.tokens import TokenOffsets, joined_cutoffs
from ragbench.widgets.base import HTML, Panel, mark, tag

_STYLE = """<style>
.rb-column { border: 1px solid var(--rb-rule); border-radius: 3px; }
.rb-column header { position: sticky; top: 0; background: var(--rb-shade); padding: 4px 8px; display: flex;
  justify-content: space-between; align-items: baseline; border-bottom: 1px solid var(--rb-rule); }
.rb-column article { padding: 4px 8px; border-bottom: 1px solid var(--rb-rule); overflow-wrap: anywhere; }
.rb-column p { margin: 2px 0; }
.rb-column .rb-tag { margin-right: 2px; }
.rb-beyond { color: var(--rb-quiet); }
.rb-cut { display: block; margin: 3px 0; border-top: 3px solid var(--rb-bad); font-size: 11px; line-height: 1.3;
  text-align: right; font-weight: 600; }
</style>"""


class RetrievalExplorer(Panel):
    """Retrievers side by side for one question: chunks with rank and score, support marked, and a
    cut at N tokens.

    Choose a question from the list (type to narrow it), or type one of your own. The slider moves
    the cut; the IR score of every retriever follows. In each text the longest match of each
    supporting fact before the cut is marked with the fact's number, colour and underline: the very
    match that the IR score counts.

    Parameters
    ----------
    questions : a `ragbench.Dataset` or `ragbench.Question` records.
    retrievers : retriever by name, each with ``search(queries, k)``.
    tokenizer : what tokens are, see `ragbench.TokenOffsets`; default MiniLM's WordPiece.
    k : chunks per retriever, one number or one by name.
    cutoff : the slider's first position, in tokens. cutoffs : its positions, evenly spaced from 0.

    Attributes
    ----------
    question : the Question shown.
    rankings, scores : by retriever its hits, and its IR score at the slider's cut-off; NaN where
        undefined.

    Source: the IR score is Eq 2.2 of the thesis, §2.3; the cut is its C_N.
    """

    def __init__(
        self,
        questions: Dataset | Sequence[Question],
        retrievers: Mapping[str, Any],
        tokenizer: Any = None,
        k: int | Mapping[str, int] = 10,
        *,
        cutoff: int = 500,
        cutoffs: Sequence[int] = range(0, 2001, 10),
    ) -> None:
        self._retrievers = _as_retrievers(retrievers)
        self._questions = _as_questions(questions)
        self._k = k
        self._offsets = TokenOffsets.of(tokenizer)
        self._cutoffs = cutoffs
        # by question: by retriever its hits, or the error that it raised
        self._found: dict[str, dict[str, list[Hit] | RagbenchError]] = {}
        self._make_controls(cutoff)
        self.summary = ipywidgets.HTML()
        self.columns = {name: _column() for name in retrievers}
        super().__init__(self._rows(), "Retrieval explorer", _STYLE)
        self._ask(1, "")
        self.chooser.observe(lambda change: self._choose(change["new"]), "value")
        self.slider.observe(lambda _: self._draw(), "value")

    def _rows(self) -> list[ipywidgets.Widget]:
        """What stands in the widget, from top to bottom."""
        buttons = self.row([self.previous, self.next])
        texts = self.row(self.columns.values(), grid_gap="6px")
        return [self.chooser, buttons, self.slider, self.summary, texts]

    def _make_controls(self, cutoff: int) -> None:
        """Make the list of questions, the buttons and the slider."""
        self._listed = {}
        for number, question in enumerate(self._questions, 1):
            text = " ".join(question.text.split())
            self._listed[f"{number}. {text}"] = number
        wide = {"layout": ipywidgets.Layout(width="auto")}
        self.chooser = ipywidgets.Combobox(
            options=[*self._listed],
            placeholder="choose a question, or type your own and press Enter",
            description="Question",
            continuous_update=False,
            **wide,
        )
        self.previous = self.button("Previous", lambda: self._move(-1), icon="arrow-left")
        self.next = self.button("Next", lambda: self._move(1), icon="arrow-right")
        span = {"max": self._cutoffs[-1], "step": self._cutoffs[1]}
        hint = "tokens of retrieved text that the reader would see"
        self.slider = ipywidgets.IntSlider(
            cutoff, description="Cut at N", tooltip=hint, **span, **wide
        )

    @property
    def scores(self) -> dict[str, float]:
        """IR score of every retriever at the slider's cut-off."""
        return {name: float(ranking.scores[self._at]) for name, ranking in self.rankings.items()}

    @property
    def _at(self) -> int:
        return int(np.searchsorted(self._cutoffs, self.slider.value, side="right")) - 1

    def _move(self, by: int) -> None:
        number = self._number + by
        if 0 < number <= len(self._questions):
            self.chooser.value = [*self._listed][number - 1]

    def _choose(self, text: str) -> None:
        if text.strip():
            with self.guarded():
                self._ask(self._listed.get(text, 0), text.strip())

    def _ask(self, number: int, text: str) -> None:
        """Search with every retriever, once per question, and show it; number 0 is a typed one."""
        question = Question("typed", text, "")
        if number:
            question = self._questions[number - 1]
        self._number = number
        self.question = question
        self.previous.disabled = number <= 1
        self.next.disabled = number == len(self._questions)
        # A model's retriever may take seconds: the question before must not stand there as if it
        # were this one.
        self.summary.value = f"<p role='status'>searching: <b>{html.escape(question.text)}</b></p>"
        if question.text not in self._found:
            try:
                self._found[question.text] = self._search(question.text)
            except Exception:
                self.summary.value = self.summary.value.replace("searching", "not searched", 1)
                raise
        self._score()
        self._draw()

    def _search(self, text: str) -> dict[str, list[Hit] | RagbenchError]:
        results: dict[str, list[Hit] | RagbenchError] = {}
        for name, retriever in self._retrievers.items():
            k = self._k
            if isinstance(k, Mapping):
                k = k.get(name, 10)
            try:
                (results[name],) = retriever.search([text], k)
            except RagbenchError as error:  # a retriever without its server: the others answer
                results[name] = error
        return results

    def _score(self) -> None:
        """Score what was found at all cut-offs; of a retriever that failed, show the error."""
        self.rankings = {}
        for name, hits in self._found[self.question.text].items():
            if isinstance(hits, RagbenchError):
                error = f'<div class="rb-message rb-error">{html.escape(str(hits))}</div>'
                self.columns[name].value = f"<h4>{html.escape(str(name))}</h4>{error}"
            else:
                facts = self.question.references
                self.rankings[name] = _ScoredHits(hits, facts, self._cutoffs, self._offsets)

    def _draw(self) -> None:
        tokens = self._cutoffs[self._at]
        self.summary.value = self._summary(tokens)
        for name, ranking in self.rankings.items():
            self.columns[name].value = ranking.column(name, self._at, tokens)

    def _summary(self, tokens: int) -> str:
        """The question, its answer, and a table of scores by retriever, as HTML."""
        scores = {name: _number(score) for name, score in self.scores.items()}
        shares = []
        for fact in range(len(self.question.references)):
            of_fact = [ranking.shares[fact, self._at] for ranking in self.rankings.values()]
            shares.append([_number(share, ".0%") for share in of_fact])
        return HTML.asked(self.question, f"IR score at {tokens} tokens", scores, shares)


def _column() -> ipywidgets.HTML:
    column = ipywidgets.HTML(
        layout=ipywidgets.Layout(
            flex="1 1 0", min_width="230px", max_height="460px", overflow="auto"
        )
    )
    column.add_class("rb-column")
    return column


def _as_retrievers(retrievers: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(retrievers, Mapping) or not retrievers:
        raise ConfigError(
            f"retrievers is {retrievers!r:.60}",
            "name -> retriever, at least one",
            'pass for instance {"BM25": BM25(chunks)}',
        )
    return {name: check_retriever(retriever) for name, retriever in retrievers.items()}


def _as_questions(questions: Dataset | Sequence[Question]) -> list[Question]:
    listed = list(getattr(questions, "questions", questions))
    if not listed or not all(isinstance(question, Question) for question in listed):
        raise ConfigError(
            f"questions is {questions!r:.60}", "at least one Question", "pass dataset.questions"
        )
    return listed


class _ScoredHits:
    """One retriever's hits for one question, joined with one space, and how much of the facts is
    there at every cut.
    """

    def __init__(
        self,
        hits: Sequence[Hit],
        facts: Sequence[str],
        cutoffs: Sequence[int],
        offsets: TokenOffsets,
    ) -> None:
        chunks = [hit.chunk.text for hit in hits]
        self.hits = hits
        self.facts = facts
        self.text = " ".join(chunks)
        # where each ends, in characters of ``text``
        self.cuts = joined_cutoffs(chunks, cutoffs, offsets)
        # longest matches: (facts, cut-offs)
        self.shares = part_scores(facts, self.text, positions=self.cuts)
        self.scores = np.full(len(self.cuts), np.nan)
        if len(facts):
            self.scores = self.shares.mean(axis=0)
        # in the form in which they were matched
        self.compared = comparable(facts, self.text)

    def span(self, fact: int, cutoff: int) -> tuple[int, int]:
        """Start and end in ``text`` of a fact's longest match before a cut-off (both by number);
        (0, 0) without any.
        """
        facts, within = self.compared
        whole = facts[fact]
        length = round(np.nan_to_num(self.shares[fact, cutoff]) * len(whole))
        if not length:
            return 0, 0
        # The metric says how long the match is; the first place where a piece of that length stands
        # is it.
        pieces = {whole[i : i + length] for i in range(len(whole) - length + 1)}
        places = [within.text.find(piece) for piece in pieces]
        start = min(place for place in places if place >= 0)
        return within.span(start, start + length)

    def column(self, name: str, cutoff: int, tokens: int) -> str:
        """HTML of the chunks: facts' matches marked, a line at cut-off number ``cutoff``, at
        ``tokens``.
        """
        cut = int(self.cuts[cutoff])
        words = f"{tokens} tokens"
        if cut >= len(self.text):
            words = f"all within {tokens} tokens"
        spans = [(*self.span(fact, cutoff), fact + 1) for fact in range(len(self.facts))]
        chunks = []
        start = 0
        for hit in self.hits:
            text = hit.chunk.text
            stop = start + len(text)
            line = ""
            if start <= cut <= stop:
                line = words
            seen = min(max(cut, start), stop)
            marked = _marked(text, start, seen, spans)
            chunks.append((hit, marked, line, text[seen - start :]))
            start = stop + 1  # a space stands between two chunks
        return HTML.column(name, _number(self.scores[cutoff]), chunks)


def _number(value: float, form: str = ".3f") -> str:
    if np.isnan(value):
        return "-"
    return format(value, form)


def _marked(text: str, start: int, stop: int, spans: Sequence[tuple[int, int, int]]) -> str:
    """HTML of ``text``, which begins at ``start`` of the joined text, up to ``stop`` there, with
    the matches marked.
    """
    edges = {start, stop}
    for low, high, _ in spans:
        edges |= {edge for edge in (low, high) if start < edge < stop}
    html = Markup()
    for low, high in pairwise(sorted(edges)):
        content = text[low - start : high - start]
        inside = [(begin, number) for begin, end, number in spans if begin <= low and high <= end]
        for begin, number in inside:
            if low in (begin, start):
                html += tag(number)
        for _, number in reversed(inside):
            content = mark(number, content)
        html += content
    return html
