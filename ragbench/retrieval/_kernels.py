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

BLOCK = 1 << 11  # chunks scored at a time: after the first block light terms can stay unread
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
def _choose(weights, lightest, gain, scores, n, read):
    """Say which terms of a query are read in the next block; return what the others could add.

    Once k hits are known, the terms of least weight, such as stop words, are left unread while all
    of them together could add no more than a small share of the worst hit (the idea of MaxScore:
    Turtle and Flood 1995).
    """
    for j in range(len(read)):
        read[j] = True
    unread = 0.0
    if n == len(scores):
        for j in lightest:
            largest = weights[j] * gain
            if largest <= 0.0 or unread + largest > SKIP * scores[0]:
                break
            unread += largest
            read[j] = False
    return unread


@compiled(error_model="numpy")
def _add_term(index, gain, weight, first, stop, block, low):
    """Add what a term's postings ``first:stop`` give to the chunks of the block that begins at
    ``low``.
    """
    _, chunks, tf, norm = index
    for p in range(first, stop):
        c = np.uint32(chunks[p])
        block[c - np.uint32(low)] += weight * (tf[p] * gain / (tf[p] + norm[c]))


@compiled(error_model="numpy")
def _whole_score(index, gain, weights, at, end, chunk):
    """Score a chunk by all terms; chunks come in ascending order, so the next one lies behind
    ``at``.
    """
    _, chunks, tf, norm = index
    score = 0.0
    for j in range(len(weights)):
        p = _first_not_below(chunks, at[j], end[j], chunk)
        at[j] = p
        if p < end[j] and chunks[p] == chunk:
            score += weights[j] * (tf[p] * gain / (tf[p] + norm[chunk]))
    return score


@compiled(error_model="numpy")
def _collect(index, gain, weights, at, end, unread, block, low, scores, items, n):
    """Offer the chunks of a block to the heap of hits; return how many it holds now."""
    slack = unread * (1.0 + 1e-9)
    floor = scores[0] - slack if n == len(scores) else -np.inf  # scores up to it are no hits
    for c in range(BLOCK):
        score = block[c]
        if score > floor and score != 0.0:
            if unread > 0.0:
                score = _whole_score(index, gain, weights, at, end, low + c)
            n = _push(scores, items, n, score, low + c)
            if n == len(scores):
                floor = scores[0] - slack
    block[:] = 0.0
    return n


@compiled(error_model="numpy")
def _search_one(index, gain, terms, weights, lightest, block, scores, items):
    """Put the best chunks of one query into the heap ``scores, items``; return how many."""
    start, chunks, _, norm = index
    m = len(terms)
    at = np.empty(m, np.int64)  # the next posting of each term
    end = np.empty(m, np.int64)
    read = np.empty(m, np.bool_)
    for j in range(m):
        at[j] = start[terms[j]]
    n = np.int64(0)
    for low in range(0, len(norm), BLOCK):
        unread = _choose(weights, lightest, gain, scores, n, read)
        for j in range(m):
            end[j] = start[terms[j] + 1]
            if read[j]:
                at[j] = _first_not_below(chunks, at[j], end[j], low)
                end[j] = _first_not_below(chunks, at[j], end[j], low + BLOCK)
                _add_term(index, gain, weights[j], at[j], end[j], block, low)
        n = _collect(index, gain, weights, at, end, unread, block, low, scores, items, n)
        for j in range(m):
            if read[j]:
                at[j] = end[j]
    return n


@compiled(error_model="numpy")
def search(index, gain, bounds, terms, weights, lightest, scores, items, positions):
    """Find the best chunks of each query.

    The score of a chunk is the sum over the query's terms, in their order, of
    ``weight * (tf * gain / (tf + norm[chunk]))``. A chunk with score 0 is no hit. The few chunks
    that come close to a hit without the terms that `_choose` leaves unread are scored in full, so
    the hits are exact.

    ``index`` holds where each term's postings begin, their chunks and counts ``tf``, and ``norm``
    by chunk. ``bounds[q]:bounds[q + 1]`` are the query's ``terms`` and ``weights``; ``lightest``
    numbers them in the order of their weights. Results go to ``scores``, ``items`` (queries, k) and
    ``positions``.
    """
    block = np.zeros(BLOCK)
    for q in range(len(positions)):
        first = bounds[q]
        stop = bounds[q + 1]
        positions[q] = _search_one(
            index,
            gain,
            terms[first:stop],
            weights[first:stop],
            lightest[first:stop],
            block,
            scores[q],
            items[q],
        )
        _sort_best_first(scores[q], items[q], positions[q])
