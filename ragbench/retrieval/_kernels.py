"""The compiled loops of BM25: a heap of hits, and the search of the inverted index.

One file for all of them, because numba's cache looks for changes only in the file of the function
that is called. The first use in a new environment waits for the compiler: array expressions
(``np.diff``, ``np.argsort``, a slice copied to a slice) cost it seconds each, a loop a fraction of
one. A bare 0 handed on would be one more type of argument to compile for, hence ``np.int64(0)``.
Work is shared among Python threads (the loops release the GIL) rather than numba's own: its thread
pools may not be entered from two threads at once, nor survive a fork, and an experiment may do
either.
"""

from __future__ import annotations

import numpy as np

from ragbench._compiled import compiled

BLOCK = 1 << 14  # chunks scored at a time: their sums stay in the second-level cache
SKIP = 0.2  # share of the worst hit that unread terms may add


@compiled()
def _sift_down(scores, items, i, n):
    """Restore a heap whose root is the worst hit: lowest score, then highest chunk."""
    while True:
        worst = i
        left = 2 * i + 1
        for j in (left, left + 1):
            if j < n and (
                scores[j] < scores[worst]
                or (scores[j] == scores[worst] and items[j] > items[worst])
            ):
                worst = j
        if worst == i:
            return
        scores[i], scores[worst] = scores[worst], scores[i]
        items[i], items[worst] = items[worst], items[i]
        i = worst


@compiled()
def _push(scores, items, n, score, item):
    """Offer a hit to a heap of capacity ``len(scores)`` that holds ``n``; return how many it holds
    now.
    """
    if n < len(scores):
        i = n
        while i > 0:
            parent = (i - 1) // 2
            if not (score < scores[parent] or (score == scores[parent] and item > items[parent])):
                break
            scores[i], items[i] = scores[parent], items[parent]
            i = parent
        scores[i] = score
        items[i] = item
        return n + 1
    if score > scores[0] or (score == scores[0] and item < items[0]):
        scores[0] = score
        items[0] = item
        _sift_down(scores, items, np.int64(0), n)
    return n


@compiled()
def _sort_best_first(scores, items, n):
    for end in range(n - 1, 0, -1):
        scores[0], scores[end] = scores[end], scores[0]
        items[0], items[end] = items[end], items[0]
        _sift_down(scores, items, np.int64(0), end)


@compiled()
def _first_not_below(chunks, p, end, chunk):
    """Return the first posting in ``p:end`` whose chunk is not below ``chunk``; it is expected near
    ``p``.
    """
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


@compiled(error_model="numpy")
def search(
    start,
    chunks,
    tf,
    norm,
    gain,
    bounds,
    terms,
    weights,
    lightest,
    scope,
    scope_ends,
    scope_of,
    scores,
    items,
    found,
):
    """Find the best chunks of each query.

    The score of a chunk is the sum over the query's terms, in their order, of
    ``weight * (tf * gain / (tf + norm[chunk]))``. A chunk with score 0 is no hit.

    ``bounds[q]:bounds[q + 1]`` are the query's ``terms`` and ``weights``; ``lightest`` holds the
    same places in the order of their weights. ``scope_of[q]`` is the row of allowed chunks in
    ``scope`` (ending at ``scope_ends``), or -1. Results go to ``scores``, ``items`` (queries, k)
    and ``found``.

    Once k hits are known, the terms of least weight, such as stop words, are left unread while all
    of them together could add no more than a small share of the worst hit; the few chunks that come
    close are then scored in full. The hits stay exact (the idea of MaxScore: Turtle and Flood
    1995).
    """
    k = scores.shape[1]
    block = np.zeros(BLOCK)
    longest = 1
    for q in range(len(found)):
        longest = max(longest, bounds[q + 1] - bounds[q])
    at = np.empty(longest, np.int64)
    end = np.empty(longest, np.int64)
    skipped = np.empty(longest, np.bool_)
    for q in range(len(found)):
        first = bounds[q]
        m = bounds[q + 1] - bounds[q]
        n = np.int64(0)
        for j in range(m):
            at[j] = start[terms[first + j]]
        may_skip = m > 1 and weights[lightest[first]] > 0.0
        row = scope_of[q]
        s, s_end = (scope_ends[row], scope_ends[row + 1]) if row >= 0 else (0, 0)
        worst = -np.inf
        for low in range(0, len(norm), BLOCK):
            skipped[:m] = False
            unread = 0.0
            if may_skip and n == k:
                for j in lightest[first : first + m]:
                    if unread + weights[j] * gain > SKIP * worst:
                        break
                    unread += weights[j] * gain
                    skipped[j - first] = True
            for j in range(m):
                end[j] = start[terms[first + j] + 1]
                if skipped[j]:
                    continue
                w = weights[first + j]
                at[j] = _first_not_below(chunks, at[j], end[j], low)
                end[j] = _first_not_below(chunks, at[j], end[j], low + BLOCK)
                for p in range(at[j], end[j]):
                    c = np.uint32(chunks[p])
                    block[c - np.uint32(low)] += w * (tf[p] * gain / (tf[p] + norm[c]))
            floor = worst - unread * (1.0 + 1e-9)
            c = 0
            while c < BLOCK:
                if row >= 0:
                    if s == s_end or scope[s] >= low + BLOCK:
                        break
                    c = scope[s] - low
                    s += 1
                score = block[c]
                if score > floor and score != 0.0:
                    if unread > 0.0:
                        score = 0.0
                        for j in range(m):
                            p = _first_not_below(chunks, at[j], end[j], low + c)
                            at[j] = p  # chunks come in ascending order, so the next one lies behind
                            if p < end[j] and chunks[p] == low + c:
                                score += weights[first + j] * (
                                    tf[p] * gain / (tf[p] + norm[low + c])
                                )
                    n = _push(scores[q], items[q], n, score, low + c)
                    if n == k:
                        worst = scores[q, 0]
                        floor = worst - unread * (1.0 + 1e-9)
                c += 1
            for j in range(m):
                if not skipped[j]:
                    at[j] = end[j]
            block[:] = 0.0
        _sort_best_first(scores[q], items[q], n)
        found[q] = n
