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
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import numpy as np

from ragbench.errors import ConfigError, DataError, check_known
from ragbench.stats.inputs import as_list
from ragbench.text.layout import Form, comparable
from ragbench.text.tokens import as_cutoffs, as_offsets, joined_cutoffs

_Match = Literal[
    "substring", "subsequence", "substring_nfkc", "subsequence_nfkc", "exact", "exact_subsequence"
]

# What is longest common, and the normal form of both sides before that (None: characters as they
# are).
MATCHES: Mapping[str, tuple[str, Form | None]] = {
    "substring": ("substring", "NFC"),
    "subsequence": ("subsequence", "NFC"),
    "substring_nfkc": ("substring", "NFKC"),
    "subsequence_nfkc": ("subsequence", "NFKC"),
    "exact": ("substring", None),
    "exact_subsequence": ("subsequence", None),
}

# Characters of text per unit of work: large enough to keep threads busy, small enough to bound
# memory (4 bytes each).
_BLOCK_CHARACTERS = 2_000_000


def ir_score(parts: Sequence[str], text: str, match: _Match = "substring") -> float:
    """Mean share of each supporting fact found in a text, in [0, 1]; NaN without facts or with an
    empty fact.

    Parameters
    ----------
    parts : the supporting facts p_1..p_n.
    text : the retrieved text, already cut (see `ragbench.text.tokens.truncate`).
    match : of `MATCHES`. "substring"; "subsequence" (as Eq 2.2 is worded); either with "_nfkc"
    (full-width Ａ is A);
        "exact" (as published: no character is changed) or "exact_subsequence".

    Source: thesis §2.3, Eq 2.2.

    >>> ir_score(["abcd", "xyz"], "..abc..xyz")
    0.875
    """
    return float(_mean_per_question(part_scores(parts, text, match)[:, None], [len(parts)])[0, 0])


def part_scores(
    parts: Sequence[str],
    text: str,
    match: _Match = "substring",
    positions: Sequence[int] | None = None,
) -> np.ndarray:
    """The terms len(LCS(p_i, C)) / len(p_i) of Eq 2.2; NaN for an empty fact.

    ``positions`` : ascending cut positions in characters of the text; None: the whole text. Returns
    a float array, shape (len(parts),), or (len(parts), len(positions)) with positions.
    """
    _check([parts], [text])
    cuts = np.array([[len(text)] if positions is None else positions], np.int64)
    shares = _shares([parts], [text], cuts, match, threads=1)
    return shares[:, 0] if positions is None else shares


def ir_score_curve(
    parts: Sequence[str],
    text: str | Sequence[str],
    cutoffs: Sequence[int],
    tokenizer: Any = None,
    match: _Match = "substring",
    *,
    begin_token: bool = False,
) -> np.ndarray:
    """IR score of the first N tokens of a text (or of chunks, joined with one space) for every N: a
    row of the table.

    Source: thesis §2.3, Eq 2.2; the curves of Table 3.1.
    """
    return ir_score_table(
        [parts], [text], cutoffs, tokenizer, match, begin_token=begin_token, threads=1
    )[0]


def ir_score_table(
    parts: Sequence[Sequence[str]],
    texts: Sequence[str | Sequence[str]],
    cutoffs: Sequence[int],
    tokenizer: Any = None,
    match: _Match = "substring",
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
    """
    values = as_cutoffs(cutoffs)
    _check(parts, texts)
    joined = [t if isinstance(t, str) else " ".join(t) for t in texts]
    if positions is None:
        offsets = as_offsets(tokenizer)
        offsets.warm(t for t in texts if isinstance(t, str))
        offsets.warm_chunks(c for t in texts if not isinstance(t, str) for c in t)
        chunked = ([t] if isinstance(t, str) else t for t in texts)
        rows = [joined_cutoffs(chunks, values, offsets, begin_token) for chunks in chunked]
        positions = np.array(rows, np.int64).reshape(len(texts), values.size)
    else:
        positions = np.asarray(positions)
        if positions.shape != (len(joined), values.size) or positions.dtype.kind not in "iu":
            got = f"positions of shape {positions.shape} and type {positions.dtype}"
            raise ConfigError(got, f"whole numbers, shape {(len(joined), values.size)}")
        positions = np.clip(positions, 0, np.array([len(t) for t in joined], np.int64)[:, None])
    # The kernels walk a text once, so they want ascending positions; the columns go back to the
    # caller's order.
    order = np.argsort(positions, axis=1, kind="stable")
    shares = _shares(
        parts,
        joined,
        np.take_along_axis(positions, order, axis=1),
        match,
        threads or os.cpu_count() or 1,
    )
    result = np.empty(positions.shape)
    np.put_along_axis(result, order, _mean_per_question(shares, [len(p) for p in parts]), axis=1)
    return result


def _check(parts: Sequence[Sequence[str]], texts: Sequence[str | Sequence[str]]) -> None:
    as_list(parts, "parts", object)
    as_list(texts, "texts", object)
    if len(parts) != len(texts):
        raise DataError(
            f"{len(parts)} lists of facts for {len(texts)} texts", "one list of facts per text"
        )
    for row, (facts, text) in enumerate(zip(parts, texts, strict=True)):
        as_list(facts, f"facts of row {row}")
        as_list([text] if isinstance(text, str) else text, f"text of row {row}")


def _blocks(texts: Sequence[str]) -> Iterator[tuple[int, int]]:
    start = size = 0
    for i, text in enumerate(texts):
        if size and size + len(text) > _BLOCK_CHARACTERS:
            yield start, i
            start = i
            size = 0
        size += len(text)
    if start < len(texts):
        yield start, len(texts)


def _shares(
    parts: Sequence[Sequence[str]], texts: Sequence[str], cuts: np.ndarray, match: str, threads: int
) -> np.ndarray:
    """len(LCS) / len(part) of every part of every question: shape (all parts, n cut-offs)."""
    # numba takes seconds
    from ragbench.text.common import code_points, subsequence_lengths, substring_lengths

    check_known("match", [match], MATCHES)
    longest, form = MATCHES[match]
    kernel: Callable[..., None] = (
        substring_lengths if longest == "substring" else subsequence_lengths
    )
    if form is not None and texts:
        forms = [comparable(facts, text, form) for facts, text in zip(parts, texts, strict=True)]
        parts = [facts for facts, _ in forms]
        texts = [text.text for _, text in forms]
        cuts = np.stack([text.cut(row) for (_, text), row in zip(forms, cuts, strict=True)])
    counts = np.array([len(p) for p in parts], np.int64)
    first = np.append(0, np.cumsum(counts))
    shares = np.empty((int(first[-1]), cuts.shape[1]))

    def score(block: tuple[int, int]) -> None:
        start, stop = block
        codes, offsets = code_points(
            [t[:c] for t, c in zip(texts[start:stop], cuts[start:stop, -1], strict=True)]
        )
        facts, fact_offsets = code_points([p for ps in parts[start:stop] for p in ps])
        owner = np.repeat(np.arange(stop - start), counts[start:stop])
        lengths = np.empty((owner.size, cuts.shape[1]), np.int64)
        kernel(facts, fact_offsets, owner, codes, offsets, cuts[start:stop], lengths)
        size = np.diff(fact_offsets).astype(float)
        size[size == 0] = np.nan
        shares[first[start] : first[stop]] = lengths / size[:, None]

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(score, _blocks(texts)))
    return shares


def _mean_per_question(shares: np.ndarray, counts: Sequence[int]) -> np.ndarray:
    """Mean of consecutive groups of rows: shape (len(counts), columns); NaN for an empty group."""
    means = np.full((len(counts), shares.shape[1]), np.nan)
    at = 0
    for row, n in enumerate(counts):
        if n:
            means[row] = shares[at : at + n].mean(axis=0)
        at += n
    return means
