"""Compiled loops of dense retrieval: the best of a tile of similarities, exact scores, and MMR's selection."""

from __future__ import annotations

import numpy as np
from numba import njit

from ragbench.retrieval._heap import push, sort_best_first

TILE = 4096  # chunks per tile; constant, so that the compiler compares a whole group at once
GROUP = 64


@njit(nogil=True, cache=True)
def collect(tile, width, first, scores, items, found):
    """Offer a tile of similarities (queries, TILE), of which ``width`` columns count, to each query's heap."""
    k = scores.shape[1]
    for q in range(len(tile)):
        row, n = tile[q], found[q]
        worst = scores[q, 0] if n == k else np.float32(-np.inf)
        for group in range(0, TILE, GROUP):
            better = 0
            for c in range(group, group + GROUP):
                better += row[c] > worst
            if better == 0:
                continue
            for c in range(group, min(group + GROUP, width)):
                if row[c] > worst:
                    n = push(scores[q], items[q], n, row[c], first + c)
                    if n == k:
                        worst = scores[q, 0]
        found[q] = n


@njit(nogil=True, cache=True, fastmath={"reassoc", "contract"})
def dot(x, y):
    """Inner product in float64. Reordered for speed, yet equal vectors always give equal products."""
    total = 0.0
    for i in range(len(x)):
        total += np.float64(x[i]) * np.float64(y[i])
    return total


@njit(nogil=True, cache=True)
def rescore(queries, vectors, rough, candidates, n_candidates, error, scores, items, found):
    """Turn rough candidates into exact hits, best first, zeros left out.

    ``rough``, ``candidates`` (queries, more than k) come from ``collect``; ``scores``, ``items`` (queries, k) receive
    the hits. Where more chunks than the candidates could tie with the last hit, all chunks are scored again.
    """
    for q in range(len(queries)):
        n = 0
        for c in range(n_candidates[q]):
            score = dot(queries[q], vectors[candidates[q, c]])
            if score != 0.0:
                n = push(scores[q], items[q], n, score, candidates[q, c])
        left_out = n_candidates[q] < len(vectors)
        if left_out and (n < scores.shape[1] or rough[q, 0] + error >= scores[q, 0]):
            n = 0
            for c in range(len(vectors)):
                score = dot(queries[q], vectors[c])
                if score != 0.0:
                    n = push(scores[q], items[q], n, score, c)
        sort_best_first(scores[q], items[q], n)
        found[q] = n


@njit(nogil=True, cache=True)
def diversify(vectors, candidates, similarity, n_candidates, weight, chosen, found):
    """Select by maximal marginal relevance (Carbonell and Goldstein 1998) among each query's candidates.

    The first pick is the most similar candidate; each next one has the largest
    ``weight * similarity - (1 - weight) * (largest similarity to a pick)``, the earlier candidate winning a tie.
    ``chosen`` (queries, k) receives places in the candidate lists.
    """
    k = chosen.shape[1]
    redundancy = np.empty(candidates.shape[1])
    free = np.empty(candidates.shape[1], np.bool_)
    for q in range(len(candidates)):
        n = n_candidates[q]
        redundancy[:n] = -np.inf
        free[:n] = True
        for step in range(min(k, n)):
            best, best_value = -1, -np.inf
            for c in range(n):
                if not free[c]:
                    continue
                value = similarity[q, c]
                if step > 0:
                    value = weight * value - (1.0 - weight) * redundancy[c]
                if best < 0 or value > best_value:
                    best, best_value = c, value
            chosen[q, step] = best
            free[best] = False
            if step + 1 == min(k, n):
                break
            for c in range(n):
                if free[c]:
                    redundancy[c] = max(redundancy[c], dot(vectors[candidates[q, c]], vectors[candidates[q, best]]))
        found[q] = min(k, n)
