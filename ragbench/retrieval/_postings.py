"""Compiled loops of BM25: an inverted index from token numbers, and its search, term by term over blocks of chunks.

Work is shared among Python threads (the loops release the GIL) rather than numba's own: its thread pools may not be
entered from two threads at once, nor survive a fork, and an experiment may do either.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from ragbench.retrieval._heap import push, sort_best_first

BLOCK = 1 << 14  # chunks scored at a time: their sums stay in the second-level cache
GROUP = 64


@njit(nogil=True, cache=True)
def count(numbers, counts, terms, frequency, lengths):
    """Replace tokens by terms in place (-1: dropped); count chunks per term, and terms per chunk."""
    last = np.full(len(frequency), -1, np.int32)
    p = 0
    for d in range(len(counts)):
        for _ in range(counts[d]):
            t = terms[numbers[p]]
            numbers[p] = t
            p += 1
            if t >= 0:
                lengths[d] += 1
                if last[t] != d:
                    last[t] = d
                    frequency[t] += 1


@njit(nogil=True, cache=True)
def fill(numbers, counts, first, at, chunks, tf):
    """Write the postings of chunks ``first, first + 1, ...``; ``at`` says where each term's next posting goes."""
    last = np.full(len(at), -1, np.int32)
    p = 0
    for d in range(len(counts)):
        for _ in range(counts[d]):
            t = numbers[p]
            p += 1
            if t < 0:
                continue
            if last[t] != d:
                last[t] = d
                chunks[at[t]] = first + d
                tf[at[t]] = 1
                at[t] += 1
            else:
                tf[at[t] - 1] += 1


@njit(nogil=True, cache=True)
def _first_not_below(chunks, p, end, chunk):
    """Return the first posting in ``p:end`` whose chunk is not below ``chunk``; it is expected near ``p``."""
    step = 1
    while p + step < end and chunks[p + step] < chunk:
        p += step
        step *= 2
    end = min(end, p + step)
    while p < end:
        middle = (p + end) // 2
        if chunks[middle] < chunk:
            p = middle + 1
        else:
            end = middle
    return p


@njit(nogil=True, cache=True, error_model="numpy")
def search(start, chunks, tf, norm, gain, bounds, terms, weights, scope, scope_ends, scope_of, scores, items, found):
    """Find the best chunks of each query.

    The score of a chunk is the sum over the query's terms, in their order, of
    ``weight * (tf * gain / (tf + norm[chunk]))``. A chunk with score 0 is no hit.

    ``bounds[q]:bounds[q + 1]`` are the query's ``terms`` and ``weights``. ``scope_of[q]`` is the row of allowed chunks
    in ``scope`` (ending at ``scope_ends``), or -1. Results go to ``scores``, ``items`` (queries, k) and ``found``.
    """
    k = scores.shape[1]
    block = np.zeros(BLOCK)
    at = np.empty(max(1, np.max(np.diff(bounds))), np.int64)
    for q in range(len(found)):
        first, stop, n = bounds[q], bounds[q + 1], 0
        for j in range(first, stop):
            at[j - first] = start[terms[j]]
        row = scope_of[q]
        s, s_end = (scope_ends[row], scope_ends[row + 1]) if row >= 0 else (0, 0)
        worst = -np.inf
        for low in range(0, len(norm), BLOCK):
            for j in range(first, stop):
                w = weights[j]
                end = _first_not_below(chunks, at[j - first], start[terms[j] + 1], low + BLOCK)
                for p in range(at[j - first], end):
                    c = np.uint32(chunks[p])
                    block[c - np.uint32(low)] += w * (tf[p] * gain / (tf[p] + norm[c]))
                at[j - first] = end
            if row >= 0:
                while s < s_end and scope[s] < low + BLOCK:
                    if block[scope[s] - low] != 0.0:
                        n = push(scores[q], items[q], n, block[scope[s] - low], scope[s])
                    s += 1
            else:
                # Constant bounds let the compiler compare a whole group at once; few groups hold a better chunk.
                for group in range(0, BLOCK, GROUP):
                    better = 0
                    for c in range(group, group + GROUP):
                        better += block[c] > worst
                    if better == 0:
                        continue
                    for c in range(group, group + GROUP):
                        if block[c] > worst and block[c] != 0.0:
                            n = push(scores[q], items[q], n, block[c], low + c)
                            if n == k:
                                worst = scores[q, 0]
            block[:] = 0.0
        sort_best_first(scores[q], items[q], n)
        found[q] = n
