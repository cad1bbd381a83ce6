"""The retrieval explorer: what retrievers find for a question, how much of its support, and what a
cut loses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
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
.rb-columns { display: flex; flex-flow: row wrap; gap: 6px; }
.rb-column { border: 1px solid var(--rb-rule); border-radius: 3px; flex: 1 1 0; min-width: 230px; max-height: 460px;
  overflow: auto; }
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
_Found = dict[str, list[Hit] | RagbenchError]  # by retriever
_Span = tuple[int, int, int]  # start and end of a match in the joined text, and its fact's number
_Part = tuple[Hit, str, str, str]  # a hit: before the cut, words of the cut, beyond


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

    >>> minihop = rb.data.load_minihop(limit=5)
    >>> chunks = rb.token_chunks(minihop.documents)
    >>> explorer = rb.widgets.RetrievalExplorer(minihop, {"BM25": rb.BM25(chunks)})
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
        self._found: dict[str, _Found] = {}
        wide = {"width": "auto"}
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
        self.page = ipywidgets.HTML()
        super().__init__([self.chooser, self.slider, self.page], "Retrieval explorer", _STYLE)
        self._ask(self.chooser.options[0])
        self.chooser.observe(self._choose, "value")
        self.slider.observe(self._draw, "value")

    def _choose(self, change: Mapping[str, str]) -> None:
        text = change["new"].strip()
        if text:
            with self.guarded():
                self._ask(text)

    def _ask(self, text: str) -> None:
        """Search with every retriever, once a question, and show what was found."""
        question = self._questions.get(text, Question("typed", text, ""))
        # A model's retriever may take seconds: the question before must not stand there as if it
        # were this one.
        self.page.value = HTML.searching("searching", question.text)
        if text not in self._found:
            try:
                self._found[text] = self._search(question.text)
            except Exception:
                self.page.value = HTML.searching("not searched", question.text)
                raise
        self.question = question
        self.hits = self._found[text]
        self._draw()

    def _search(self, text: str) -> _Found:
        results: _Found = {}
        for name, retriever in self._retrievers.items():
            k = self._k
            if isinstance(k, Mapping):
                k = k.get(name, 10)
            try:
                (results[name],) = retriever.search([text], k)
            except RagbenchError as error:  # a retriever without its server: the others answer
                results[name] = error
        return results

    def _draw(self, _: Any = None) -> None:
        """Show what was found, scored and marked at the slider's cut-off."""
        tokens = self.slider.value
        facts = self.question.references
        self.scores: dict[str, float] = {}
        shares = []
        columns = []
        for name, hits in self.hits.items():
            if isinstance(hits, RagbenchError):
                columns.append(HTML.failed(name, hits))
                continue
            of_facts, parts = _cut(hits, facts, tokens, self._offsets)
            self.scores[name] = float(of_facts.mean()) if len(facts) else np.nan
            shares.append([_number(share, ".0%") for share in of_facts])
            columns.append(HTML.column(name, _number(self.scores[name]), parts))
        shown = {name: _number(score) for name, score in self.scores.items()}
        at_cut = f"IR score at {tokens} tokens"
        self.page.value = HTML.asked(self.question, at_cut, shown, shares, columns)


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
    listed = list(questions.questions if isinstance(questions, Dataset) else questions)
    if not listed or not all(isinstance(question, Question) for question in listed):
        raise ConfigError(
            f"questions is {questions!r:.60}", "at least one Question", "pass dataset.questions"
        )
    by_text: dict[str, Question] = {}
    for question in listed:
        by_text.setdefault(" ".join(question.text.split()), question)
    return by_text


def _cut(
    hits: Sequence[Hit], facts: Sequence[str], tokens: int, offsets: TokenOffsets
) -> tuple[np.ndarray, list[_Part]]:
    """Cut one retriever's hits, joined with one space, after so many tokens.

    Return each fact's matched share, and of each hit its text before the cut, as HTML with the
    facts' matches marked, the words of the cut where it falls into the chunk, and the text after
    it.
    """
    texts = [hit.chunk.text for hit in hits]
    joined = " ".join(texts)
    (end,) = joined_cutoffs(texts, [tokens], offsets)
    shares = part_scores(facts, joined, positions=[end])[:, 0]
    spans = _matches(facts, joined, shares)
    words = f"{tokens} tokens"
    if end >= len(joined):
        words = f"all within {words}"
    parts = []
    start = 0
    for hit, text in zip(hits, texts, strict=True):
        seen = min(max(end - start, 0), len(text))
        line = words if 0 <= end - start <= len(text) else ""
        parts.append((hit, _marked(text[:seen], start, spans), line, text[seen:]))
        start += len(text) + 1  # a space stands between two chunks
    return shares, parts


def _matches(facts: Sequence[str], text: str, shares: np.ndarray) -> list[_Span]:
    """List start, end and number of each fact's longest match; a fact without any has none.

    The metric says how long the match is; the first place where a piece of that length stands is
    it.
    """
    wholes, within = comparable(facts, text)
    spans = []
    for number, (whole, share) in enumerate(zip(wholes, shares, strict=True), 1):
        length = round(np.nan_to_num(share) * len(whole))
        if length:
            pieces = {whole[i : i + length] for i in range(len(whole) - length + 1)}
            places = [within.text.find(piece) for piece in pieces]
            start = min(place for place in places if place >= 0)
            spans.append((*within.span(start, start + length), number))
    return spans


def _marked(text: str, start: int, spans: Sequence[_Span]) -> str:
    """HTML of ``text``, which begins at ``start`` of the joined text, with the matches marked."""

    def numbers_at(letter: tuple[int, str]) -> list[int]:
        return [number for low, high, number in spans if low <= letter[0] < high]

    html = Markup()
    before: list[int] = []
    for numbers, letters in groupby(enumerate(text, start), numbers_at):
        content = "".join(letter for _, letter in letters)
        for number in reversed(numbers):
            content = mark(number, content)
        for number in numbers:
            if number not in before:
                html += tag(number)
        html += content
        before = numbers
    return html


def _number(value: float, form: str = ".3f") -> str:
    return "-" if np.isnan(value) else format(value, form)
