"""The retrieval explorer: what retrievers find for a question, how much of its support, and what a
cut loses.
"""

from __future__ import annotations

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
_STEPS = 200  # of the slider


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
    cutoff, max_tokens : the slider's first and last position.

    Attributes
    ----------
    question : the Question shown.
    hits : what each retriever found for it, or the error that it raised.
    scores : IR score at the slider's cut-off by retriever; NaN where undefined.

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
        max_tokens: int = 2000,
    ) -> None:
        self._retrievers = _as_retrievers(retrievers)
        self._questions = _as_questions(questions)
        self._k = k
        self._offsets = TokenOffsets.of(tokenizer)
        self._found: dict[str, dict[str, list[Hit] | RagbenchError]] = {}
        wide = ipywidgets.Layout(width="auto")
        self.chooser = ipywidgets.Combobox(
            options=[*self._questions],
            placeholder="choose a question, or type your own and press Enter",
            description="Question",
            continuous_update=False,
            layout=wide,
        )
        self.slider = ipywidgets.IntSlider(
            cutoff,
            max=max_tokens,
            step=max(1, max_tokens // _STEPS),
            description="Cut at N",
            tooltip="tokens of retrieved text that the generator would see",
            layout=wide,
        )
        self.summary = ipywidgets.HTML()
        self.columns = {name: _column() for name in retrievers}
        texts = self.row(self.columns.values(), grid_gap="6px")
        rows = [self.chooser, self.slider, self.summary, texts]
        super().__init__(rows, "Retrieval explorer", _STYLE)
        self._ask(self.chooser.options[0])
        self.chooser.observe(lambda change: self._choose(change["new"].strip()), "value")
        self.slider.observe(lambda _: self._draw(), "value")

    def _choose(self, text: str) -> None:
        if text:
            with self.guarded():
                self._ask(text)

    def _ask(self, text: str) -> None:
        """Search with every retriever, once a question, and show what was found."""
        question = self._questions.get(text, Question("typed", text, ""))
        # A model's retriever may take seconds: the question before must not stand there as if it
        # were this one.
        self.summary.value = HTML.searching("searching", question.text)
        if text not in self._found:
            try:
                self._found[text] = self._search(question.text)
            except Exception:
                self.summary.value = HTML.searching("not searched", question.text)
                raise
        self.question = question
        self.hits = self._found[text]
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

    def _draw(self) -> None:
        """Show what was found, scored and marked at the slider's cut-off."""
        tokens = self.slider.value
        facts = self.question.references
        self.scores: dict[str, float] = {}
        shares = []
        for name, hits in self.hits.items():
            if isinstance(hits, RagbenchError):
                self.columns[name].value = HTML.failed(name, hits)
                continue
            cut = _Cut(hits, facts, tokens, self._offsets)
            self.scores[name] = cut.score
            shares.append([_number(share, ".0%") for share in cut.shares])
            self.columns[name].value = HTML.column(name, _number(cut.score), cut.chunks())
        scores = {name: _number(score) for name, score in self.scores.items()}
        self.summary.value = HTML.asked(
            self.question, f"IR score at {tokens} tokens", scores, shares
        )


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


def _as_questions(questions: Dataset | Sequence[Question]) -> dict[str, Question]:
    """Return the questions by their text on one line; of equal texts the first."""
    listed = list(getattr(questions, "questions", questions))
    if not listed or not all(isinstance(question, Question) for question in listed):
        raise ConfigError(
            f"questions is {questions!r:.60}", "at least one Question", "pass dataset.questions"
        )
    by_text: dict[str, Question] = {}
    for question in listed:
        by_text.setdefault(" ".join(question.text.split()), question)
    return by_text


class _Cut:
    """One retriever's hits for one question, joined with one space and cut after so many tokens."""

    def __init__(
        self, hits: Sequence[Hit], facts: Sequence[str], tokens: int, offsets: TokenOffsets
    ) -> None:
        texts = [hit.chunk.text for hit in hits]
        (end,) = joined_cutoffs(texts, [tokens], offsets)
        self.hits = hits
        self.tokens = tokens
        self.text = " ".join(texts)
        self.end = int(end)  # in characters of ``text``
        self.shares = part_scores(facts, self.text, positions=[self.end])[:, 0]
        self.score = float("nan")
        if len(facts):
            self.score = float(self.shares.mean())
        # in the form in which they were matched
        self._facts, self._within = comparable(facts, self.text)

    def span(self, fact: int) -> tuple[int, int]:
        """Start and end in ``text`` of a fact's longest match before the cut; (0, 0) without any."""
        whole = self._facts[fact]
        length = round(np.nan_to_num(self.shares[fact]) * len(whole))
        if not length:
            return 0, 0
        # The metric says how long the match is; the first place where a piece of that length stands
        # is it.
        pieces = {whole[i : i + length] for i in range(len(whole) - length + 1)}
        places = [self._within.text.find(piece) for piece in pieces]
        start = min(place for place in places if place >= 0)
        return self._within.span(start, start + length)

    def chunks(self) -> list[tuple[Hit, str, str, str]]:
        """List each hit with its text before the cut, as HTML with the facts' matches marked, the
        words of the cut where it falls into the chunk, and the text after it.
        """
        words = f"{self.tokens} tokens"
        if self.end >= len(self.text):
            words = f"all within {words}"
        spans = [(*self.span(fact), fact + 1) for fact in range(len(self._facts))]
        chunks = []
        start = 0
        for hit in self.hits:
            text = hit.chunk.text
            stop = start + len(text)
            line = ""
            if start <= self.end <= stop:
                line = words
            seen = min(max(self.end, start), stop)
            marked = _marked(text, start, seen, spans)
            chunks.append((hit, marked, line, text[seen - start :]))
            start = stop + 1  # a space stands between two chunks
        return chunks


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
