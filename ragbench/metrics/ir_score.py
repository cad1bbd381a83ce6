"""The IR score: how much of the supporting facts stands in the first N retrieved tokens (thesis
§2.3, Eq 2.2).

    Score_IR = 1/n * sum_i len(LCS(p_i, C_N)) / len(p_i)

with lengths in characters (Unicode code points). The equation says longest common *subsequence*;
the published scores come from the longest common *substring* (``match="substring"``, the default):
a character subsequence of one sentence in a few thousand characters is almost always complete. Both
are exact here, for all cut-offs N in one pass.

The published scores compare characters as they are (``match="exact"``). In other people's documents
lines are wrapped and characters composed in several ways, so by default both sides are normalised
first (`ragbench.text.layout`); for a text without such differences the scores are the same.

Undefined: a question without facts, or with an empty fact, scores NaN. An empty text scores 0.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Literal

import numpy as np

from ragbench.errors import check_known
from ragbench.stats.inputs import as_list, same_length
from ragbench.text.layout import comparable
from ragbench.text.tokens import TokenOffsets, joined_cutoffs

Match = Literal["substring", "subsequence", "exact", "exact_subsequence"]

# What is longest common, and whether both sides are normalised before that (else characters as they
# are).
MATCHES: Mapping[str, tuple[str, bool]] = {
    "substring": ("substring", True),
    "subsequence": ("subsequence", True),
    "exact": ("substring", False),
    "exact_subsequence": ("subsequence", False),
}

_ROWS_AT_ONCE = 128  # scored by one compiled call; few enough that all threads have some


def ir_score(parts: Sequence[str], text: str | Sequence[str], match: Match = "substring") -> float:
    """Mean share of each supporting fact found in a text, in [0, 1]; NaN without facts or with an
    empty fact.

    Parameters
    ----------
    parts : the supporting facts p_1..p_n.
    text : the retrieved text, already cut (see `ragbench.text.tokens.truncate`), or chunks, which
        are joined with one space.
    match : of `MATCHES`. "substring"; "subsequence" (as Eq 2.2 is worded); "exact" (as published:
        no character is changed) or "exact_subsequence".

    Source: thesis §2.3, Eq 2.2.

    >>> ir_score(["abcd", "xyz"], "..abc..xyz")
    0.875
    """
    if not isinstance(text, str):
        text = " ".join(as_list(text, "text"))
    return float(np.mean(part_scores(parts, text, match))) if len(parts) else np.nan


def part_scores(
    parts: Sequence[str],
    text: str,
    match: Match = "substring",
    positions: Sequence[int] | None = None,
) -> np.ndarray:
    """The terms len(LCS(p_i, C)) / len(p_i) of Eq 2.2; NaN for an empty fact.

    ``positions`` : ascending cut positions in characters of the text; None: the whole text. Returns
    a float array, shape (len(parts),), or (len(parts), len(positions)) with positions.

    A slow version, with the longest common substring of two texts found by hand:

        def longest(part, text):
            starts = range(len(part))
            return max(n for i in starts for n in range(len(part) - i + 1) if part[i : i + n] in
            text)

        [longest(part, text) / len(part) for part in parts]
    """
    check_known("match", [match], MATCHES)
    whole_text = positions is None
    if whole_text:
        positions = [len(text)]
    cuts = np.array([positions], np.int64)
    shares = _shares([as_list(parts, "parts")], [text], cuts, match)
    return shares[:, 0] if whole_text else shares


def _shares(
    facts: Sequence[Sequence[str]], texts: Sequence[str], positions: np.ndarray, match: Match
) -> np.ndarray:
    """The terms of Eq 2.2 of the facts of all rows: float (facts, K); positions (rows, K) ascend
    in each row.
    """
    # numba takes seconds
    from ragbench.text.common import common_lengths

    longest, is_normalised = MATCHES[match]
    pairs = zip(facts, texts, strict=True)
    rows = [comparable(of_row, text, is_normalised) for of_row, text in pairs]
    compared = [of_row for of_row, _ in rows]
    cuts = [text.cut(row) for (_, text), row in zip(rows, positions, strict=True)]
    plain = [text.text for _, text in rows]
    lengths = common_lengths(longest, compared, plain, np.array(cuts))
    sizes = np.array([len(fact) or np.nan for of_row in compared for fact in of_row])
    return lengths / sizes[:, None]


def ir_score_curve(
    parts: Sequence[str],
    text: str | Sequence[str],
    cutoffs: Sequence[int],
    tokenizer: Any = None,
    match: Match = "substring",
    *,
    begin_token: bool = False,
) -> np.ndarray:
    """IR score of the first N tokens of a text (or of chunks, joined with one space) for every N: a
    row of the table.

    Source: thesis §2.3, Eq 2.2; the curves of Table 3.1.

    >>> rb.ir_score_curve(["Ada built the mill."], "It is deep. Ada built the mill.", [2, 100])
    array([0.10526316, 1.        ])
    """
    table = ir_score_table([parts], [text], cutoffs, tokenizer, match, begin_token=begin_token)
    return table[0]


def ir_score_table(
    parts: Sequence[Sequence[str]],
    texts: Sequence[str | Sequence[str]],
    cutoffs: Sequence[int],
    tokenizer: Any = None,
    match: Match = "substring",
    *,
    begin_token: bool = False,
    positions: np.ndarray | None = None,
    threads: int | None = None,
) -> np.ndarray:
    """IR scores of many questions at many cut-offs: float array, shape (n, len(cutoffs)), never
    falling as N grows.

    Parameters
    ----------
    parts : for each question its supporting facts.
    texts : for each question the retrieved text, or the retrieved chunks' texts, joined with one
        space.
    cutoffs, tokenizer, begin_token : as in `ragbench.text.tokens.joined_cutoffs`.
    match : as in `ir_score`; cut positions are those of the text as it is.
    positions : int array, shape (n, len(cutoffs)): cut positions in characters, in place of the
        tokenizer's.
    threads : default one per core.

    A question without facts, or with an empty one, is a row of NaN: count these before averaging.
    An empty text is a row of 0.

    Source: thesis §2.3, Eq 2.2; §3.1, Table 3.1.

    >>> facts, texts = [["Ada built it."], ["It is deep."]], ["Ada built it.", "It burnt down."]
    >>> rb.ir_score_table(facts, texts, [100]).round(2)
    array([[1.  ],
           [0.27]])
    """
    check_known("match", [match], MATCHES)
    parts = [as_list(facts, f"facts of row {row}") for row, facts in enumerate(parts)]
    chunks = []
    for row, text in enumerate(texts):
        if isinstance(text, str):
            text = [text]
        chunks.append(as_list(text, f"text of row {row}"))
    same_length(facts=parts, texts=chunks)
    joined = [" ".join(of_row) for of_row in chunks]
    shape = (len(joined), np.size(cutoffs))
    if positions is None:
        positions = _positions(texts, chunks, cutoffs, tokenizer, begin_token)
    same_length(texts=chunks, positions=positions)
    positions = np.asarray(positions).reshape(shape)
    scored = partial(_block, parts, joined, positions, match)
    starts = range(0, len(joined), _ROWS_AT_ONCE)
    with ThreadPoolExecutor(threads or os.cpu_count()) as pool:
        blocks = list(pool.map(scored, starts))
    return np.concatenate([np.empty((0, shape[1])), *blocks])


def _block(
    facts: Sequence[Sequence[str]],
    texts: Sequence[str],
    positions: np.ndarray,
    match: Match,
    start: int,
) -> np.ndarray:
    """Means over the facts of each question, at every cut position, of a block of questions."""
    block = slice(start, start + _ROWS_AT_ONCE)
    facts = facts[block]
    texts = texts[block]
    lengths = np.array([len(text) for text in texts])
    cuts = np.clip(positions[block], 0, lengths[:, None])
    # the kernel walks a text once, so it wants ascending positions
    order = np.argsort(cuts, axis=1, kind="stable")
    shares = _shares(facts, texts, np.take_along_axis(cuts, order, 1), match)
    n_facts = np.array([len(of_row) for of_row in facts])
    has_facts = n_facts > 0
    firsts = np.cumsum(n_facts) - n_facts
    means = np.full(cuts.shape, np.nan)
    if has_facts.any():
        sums = np.add.reduceat(shares, firsts[has_facts])
        means[has_facts] = sums / n_facts[has_facts, None]
    curves = np.empty_like(means)
    np.put_along_axis(curves, order, means, 1)
    return curves


def _positions(
    texts: Iterable[str | Sequence[str]],
    chunks: Sequence[Sequence[str]],
    cutoffs: Sequence[int],
    tokenizer: Any,
    begin_token: bool,
) -> np.ndarray:
    """Return where the first N tokens of each text end, in characters."""
    offsets = TokenOffsets.of(tokenizer)
    whole = []
    for text, of_row in zip(texts, chunks, strict=True):
        if isinstance(text, str):
            whole.append(text)
        else:
            offsets.warm_chunks(of_row)
    offsets.warm(whole)
    ends = [joined_cutoffs(of_row, cutoffs, offsets, begin_token) for of_row in chunks]
    return np.array(ends, np.int64)
