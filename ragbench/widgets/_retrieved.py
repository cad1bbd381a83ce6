"""What the retrieval explorer shows, as numbers and as HTML: scores at every cut-off once, then one drawing per cut.

Scores at all cut-offs come from one pass of :func:`ragbench.metrics.ir_score.part_scores`; moving the slider only
looks them up and writes the text again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from ragbench.metrics.cutoffs import TokenOffsets, joined_cutoffs
from ragbench.metrics.ir_score import MATCHES, part_scores
from ragbench.records import Hit
from ragbench.text.layout import Normalised, comparable
from ragbench.widgets.base import escape, mark, tag


@dataclass
class Ranking:
    """One retriever's hits for one question, joined with one space, and what of the facts is in them at every cut-off.

    Attributes
    ----------
    hits : best first.
    facts : the supporting facts of the question.
    text : the hits' texts, joined.
    tokens : number of tokens of ``text``.
    cuts : int array, shape (n_cutoffs,): where each cut-off ends, in characters of ``text``.
    scores : float array, shape (n_cutoffs,): IR score; NaN without facts.
    shares : float array, shape (n_facts, n_cutoffs): longest match of each fact over its length.
    compared : facts and text in the form in which they were matched.
    """

    hits: Sequence[Hit]
    facts: Sequence[str]
    text: str
    tokens: int
    cuts: np.ndarray
    scores: np.ndarray
    shares: np.ndarray
    compared: tuple[Sequence[str], Normalised]
    _found: dict[tuple[int, int], int] = field(default_factory=dict)

    def span(self, fact: int, cutoff: int) -> tuple[int, int]:
        """Start and end in ``text`` of a fact's longest match before a cut-off (both by number); the first of several.

        Empty, (0, 0), where nothing of the fact is there.
        """
        share, whole, made = self.shares[fact, cutoff], self.compared[0][fact], self.compared[1]
        length = 0 if np.isnan(share) else round(share * len(whole))
        if not length:
            return 0, 0
        if (fact, length) not in self._found:
            pieces = {whole[i : i + length] for i in range(len(whole) - length + 1)}
            # The metric says how long the match is; the first place where a piece of that length stands is it.
            self._found[fact, length] = min(at for piece in pieces if (at := made.text.find(piece)) >= 0)
        start = self._found[fact, length]
        return made.span(start, start + length)


def rankings(
    found: Mapping[str, Sequence[Hit]],
    facts: Sequence[str],
    cutoffs: Sequence[int],
    offsets: TokenOffsets,
    match: str = "substring",
) -> dict[str, Ranking]:
    """Score what each retriever found for one question at every cut-off.

    Parameters
    ----------
    found : hits by retriever, best first.
    facts : the supporting facts; none leaves the scores NaN.
    cutoffs : N in tokens, ascending.
    offsets : the tokenizer's cache.
    match : "substring", "substring_nfkc" or "exact", as in :func:`ragbench.metrics.ir_score.ir_score`.

    Returns
    -------
    dict of Ranking, by retriever.
    """
    made = {}
    for name, hits in found.items():
        chunks = [hit.chunk.text for hit in hits]
        text, cuts = " ".join(chunks), joined_cutoffs(chunks, cutoffs, offsets)
        shares = part_scores(facts, text, match, positions=cuts)
        scores = shares.mean(axis=0) if len(facts) else np.full(len(cuts), np.nan)
        tokens = offsets.joined_ends(chunks, len(text)).size
        compared = comparable(facts, text, MATCHES[match][1])
        made[name] = Ranking(hits, facts, text, tokens, cuts, scores, shares, compared)
    return made


def column(name: str, ranking: Ranking, cutoff: int, tokens: int) -> str:
    """HTML of one retriever's chunks, with the facts' matches marked and the cut at ``tokens`` as a line in the text.

    Parameters
    ----------
    name : of the retriever.
    ranking : its hits.
    cutoff : number of the cut-off.
    tokens : that cut-off in tokens, for the line's label.
    """
    cut = int(ranking.cuts[cutoff])
    spans = [(*ranking.span(i, cutoff), i + 1) for i in range(len(ranking.facts))]
    parts, start, drawn = [], 0, False
    for hit in ranking.hits:
        stop = start + len(hit.chunk.text)
        line = not drawn and cut <= stop and cut < len(ranking.text)
        parts.append(_chunk(hit, start, max(cut, start) if line else stop if not drawn else start, spans, line, tokens))
        drawn, start = drawn or line, stop + 1
    if not drawn:
        label = f"all {ranking.tokens} tokens are within {tokens}" if ranking.hits else "nothing was found"
        parts.append(f'<div class="rb-cut rb-all">{label}</div>')
    return f'<section aria-label="{escape(name)}">{_head(name, ranking, cutoff)}{"".join(parts)}</section>'


def score_words(score: float) -> str:
    """An IR score with three decimals, or the word that it is undefined."""
    return "undefined" if np.isnan(score) else f"{score:.3f}"


def _head(name: str, ranking: Ranking, cutoff: int) -> str:
    score = score_words(ranking.scores[cutoff])
    return f'<header><h4>{escape(name)}</h4> <span>IR score <b class="rb-score">{score}</b></span></header>'


def _chunk(hit: Hit, start: int, cut: int, spans: Sequence[tuple], line: bool, tokens: int) -> str:
    text = hit.chunk.text
    before = _marked(text, start, start, cut, spans)
    after = escape(text[cut - start :])
    separator = f'<span class="rb-cut" role="separator">{tokens} tokens</span>' if line else ""
    beyond = f'<span class="rb-beyond">{after}</span>' if after else ""
    title = f" {escape(hit.chunk.title)}" if hit.chunk.title else ""
    note = f'<span class="rb-quiet" title="{escape(hit.chunk.id)}">score {hit.score:.4g}</span>'
    return f"<article><div><b>{hit.rank}.</b>{title} {note}</div><p>{before}{separator}{beyond}</p></article>"


def _marked(text: str, start: int, first: int, last: int, spans: Sequence[tuple]) -> str:
    """HTML of ``text`` (at ``start`` in the joined text) from ``first`` to ``last``, each fact's match marked."""
    edges = sorted({first, last, *(e for low, high, _ in spans for e in (low, high) if first < e < last)})
    html = []
    for low, high in pairwise(edges):
        content = escape(text[low - start : high - start])
        inside = [(begin, number) for begin, end, number in spans if begin <= low and high <= end]
        labels = "".join(tag(number) for begin, number in inside if low in (begin, first))
        for _, number in reversed(inside):
            content = mark(number, content)
        html.append(labels + content)
    return "".join(html)
