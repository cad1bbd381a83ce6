"""A compiled bounded heap of hits: keeps the best, where a higher score wins and then a lower position."""

from __future__ import annotations

from numba import njit


@njit(nogil=True, cache=True)
def _sift_down(scores, items, i, n):
    """Restore a heap whose root is the worst hit: lowest score, then highest chunk."""
    while True:
        worst, left = i, 2 * i + 1
        for j in (left, left + 1):
            if j < n and (scores[j] < scores[worst] or (scores[j] == scores[worst] and items[j] > items[worst])):
                worst = j
        if worst == i:
            return
        scores[i], scores[worst] = scores[worst], scores[i]
        items[i], items[worst] = items[worst], items[i]
        i = worst


@njit(nogil=True, cache=True)
def push(scores, items, n, score, item):
    """Offer a hit to a heap of capacity ``len(scores)`` that holds ``n``; return how many it holds now."""
    if n < len(scores):
        i = n
        while i > 0:
            parent = (i - 1) // 2
            if not (score < scores[parent] or (score == scores[parent] and item > items[parent])):
                break
            scores[i], items[i] = scores[parent], items[parent]
            i = parent
        scores[i], items[i] = score, item
        return n + 1
    if score > scores[0] or (score == scores[0] and item < items[0]):
        scores[0], items[0] = score, item
        _sift_down(scores, items, 0, n)
    return n


@njit(nogil=True, cache=True)
def sort_best_first(scores, items, n):
    """Turn the heap into a list, best first."""
    for end in range(n - 1, 0, -1):
        scores[0], scores[end] = scores[end], scores[0]
        items[0], items[end] = items[end], items[0]
        _sift_down(scores, items, 0, end)
