"""Longest common substring and subsequence (LCS).

For a fact p, a text t and ascending cut-offs c_1 <= ... <= c_K they give the LCS length of p and of
the prefix t[:c_j], for every j in one pass. Libraries take one pair and one cut-off at a time.

Substring, compiled, on Unicode code points (``uint32``): a match that beats the best length b so
far holds a q-gram of the fact on any grid of step b + 2 - q, so only those text positions are
looked at and extended both ways. Worst case O(len(p) * len(t)), usually far below len(t). The
kernel releases the GIL and is run from ordinary threads: numba's own thread pools abort the process
when two Python threads enter them at once, or after a fork, and executors do both.

Subsequence, of any tokens: a column of the table is the bits of one integer, V' = (V + (V & M)) |
(V & ~M), and the LCS length is the number of its zero bits (Crochemore et al. 2001; Hyyrö 2004).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ragbench._compiled import compiled

# Length of the q-grams of the main pass: longer means fewer false candidates, a finer grid. Best of
# 2 to 10 measured.
_Q = 4


def _lcs_lengths(a: Sequence[Any], b: Sequence[Any], stops: Iterable[int]) -> list[int]:
    """Lengths of the longest common subsequence of ``a`` and ``b[:stop]``, for ascending stops."""
    places: dict[Any, int] = defaultdict(int)  # bits of the positions in a
    for position, token in enumerate(a):
        places[token] |= 1 << position
    whole = (1 << len(a)) - 1
    column = whole  # a zero bit marks a row where the length grows
    start = 0
    lengths = []
    for stop in stops:
        for token in b[start:stop]:
            if token in places:
                matches = column & places[token]
                column = ((column + matches) | (column - matches)) & whole
        lengths.append(len(a) - column.bit_count())
        start = stop
    return lengths


def lcs_length(a: Sequence[Any], b: Sequence[Any]) -> int:
    """Length of the longest common subsequence."""
    return _lcs_lengths(a, b, [len(b)])[0]


def _joined(texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return the code points of all texts, one after the other, and where each text begins; the
    last number is the length of all.
    """
    joined = "".join(texts)
    codes = np.array([joined]).view(np.uint32)[: len(joined)]
    return codes, np.cumsum([0, *map(len, texts)], dtype=np.int64)


@compiled(inline="always")
def _slot(codes, at, q, mask):
    hashed = np.uint64(0)
    for place in range(at, at + q):
        rotated = (hashed << np.uint64(11)) ^ (hashed >> np.uint64(53))
        hashed = rotated ^ np.uint64(codes[place])
    hashed *= np.uint64(0x9E3779B97F4A7C15)
    hashed >>= np.uint64(32)
    return np.int64(hashed & np.uint64(mask))


@compiled()
def _index(part, q, mask, head, chain):
    """Chain the positions of every q-gram of the fact by hash slot."""
    head[: mask + 1] = -1
    for p in range(part.size - q + 1):
        slot = _slot(part, p, q, mask)
        chain[p] = head[slot]
        head[slot] = p


@compiled()
def _scan(part, text, first, stop, q, best, mask, head, chain):
    """Best match length: ``best``, or that of a longer match in text[:stop] with a q-gram at or
    after ``first``.
    """
    at = first  # a position in the text; p is one in the fact
    while at + q <= stop and best < part.size:
        p = head[_slot(text, at, q, mask)]
        while p >= 0:
            room = min(part.size - p, stop - at)
            right = 0
            while right < room and text[at + right] == part[p + right]:
                right += 1
            if right >= q:
                room = min(p, at)
                left = 0
                while left < room and text[at - left - 1] == part[p - left - 1]:
                    left += 1
                best = max(best, left + right)
            p = chain[p]
        at += best + 2 - q
    return best


@compiled()
def _substring(part, text, cuts, head, chain, head1, chain1, out):
    m = part.size
    mask = 255
    while mask + 1 < 4 * m:
        mask = 2 * mask + 1
    q = min(_Q, m)
    _index(part, q, mask, head, chain)
    indexed1 = False
    best = np.int64(0)
    before = np.int64(0)
    for j in range(cuts.size):
        stop = cuts[j]
        # What is new since the last cut-off ends after it: the first q-gram that can matter reaches
        # one past it.
        floor = max(best, q - 1)
        longer = _scan(part, text, max(0, before + 1 - q), stop, q, floor, mask, head, chain)
        if longer > floor:
            best = longer
        elif best < q - 1 and stop > before:
            # Nothing of q characters is shared, so the answer is below q: settle it character by
            # character.
            if not indexed1:
                _index(part, 1, mask, head1, chain1)
                indexed1 = True
            best = _scan(part, text, before, stop, 1, best, mask, head1, chain1)
        out[j] = best
        before = stop


@compiled()
def _sizes(part_starts):
    longest = np.int64(1)
    for i in range(part_starts.size - 1):
        longest = max(longest, part_starts[i + 1] - part_starts[i])
    slots = 256
    while slots < 4 * longest:
        slots *= 2
    return longest, slots


@compiled()
def _substrings(parts, part_starts, texts, text_starts, first_part, cuts, out):
    longest, slots = _sizes(part_starts)
    head = np.empty(slots, np.int64)
    head1 = np.empty(slots, np.int64)
    chain = np.empty(longest, np.int64)
    chain1 = np.empty(longest, np.int64)
    for row in range(text_starts.size - 1):
        text = texts[text_starts[row] : text_starts[row + 1]]
        for i in range(first_part[row], first_part[row + 1]):
            part = parts[part_starts[i] : part_starts[i + 1]]
            if part.size == 0:
                out[i] = 0
            else:
                _substring(part, text, cuts[row], head, chain, head1, chain1, out[i])


def common_lengths(
    longest: str, parts: Sequence[Sequence[str]], texts: Sequence[str], cuts: np.ndarray
) -> np.ndarray:
    """Lengths of the longest common substring (or subsequence) of each part of row i and
    texts[i][:cuts[i, j]]: int64 (parts of all rows, K).

    Parameters
    ----------
    longest : "substring" or "subsequence".
    cuts : int64 (rows, K), each row ascending and at most its text's length.
    """
    flat = [part for of_row in parts for part in of_row]
    out = np.empty((len(flat), cuts.shape[1]), np.int64)
    first_part = np.cumsum([0, *map(len, parts)], dtype=np.int64)
    if longest == "substring":
        _substrings(*_joined(flat), *_joined(texts), first_part, cuts, out)
        return out
    row_of = np.repeat(np.arange(len(texts)), np.diff(first_part))
    for i, row in enumerate(row_of.tolist()):
        out[i] = _lcs_lengths(flat[i], texts[row], cuts[row])
    return out
