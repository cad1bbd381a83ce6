"""Texts -> token numbers, over UTF-8 bytes: a compiled scan with a hash table of the tokens seen so far.

Python's own tokenising would take longer than building and searching the index together. The scan gives every distinct
token a number in order of first appearance; stop words and stems are then settled once per distinct token.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice, pairwise

import numpy as np
from numba import njit

_BATCH = 1024  # texts at a time


@njit(nogil=True, cache=True)
def _insert_all(slots, hashes, n):
    mask = np.uint64(len(slots) - 1)
    for i in range(n):
        j = hashes[i] & mask
        while slots[j] >= 0:
            j = (j + np.uint64(1)) & mask
        slots[j] = i


@njit(nogil=True, cache=True)
def _differ(arena, at, buffer, start, length):
    i = 0
    while i < length and arena[at + i] == buffer[start + i]:
        i += 1
    return i < length


@njit(nogil=True, cache=True)
def _code_point(buffer, i):
    """Decode the multi-byte character at ``i``: (code point, bytes)."""
    c = np.int64(buffer[i])
    if c < 0xE0:
        return ((c & 0x1F) << 6) | (buffer[i + 1] & 0x3F), 2
    if c < 0xF0:
        return ((c & 0x0F) << 12) | ((buffer[i + 1] & 0x3F) << 6) | (buffer[i + 2] & 0x3F), 3
    return (
        ((c & 0x07) << 18) | ((buffer[i + 1] & 0x3F) << 12) | ((buffer[i + 2] & 0x3F) << 6) | (buffer[i + 3] & 0x3F)
    ), 4


@njit(nogil=True, cache=True)
def _scan(buffer, ends, is_word, slots, hashes, starts, arena, n):
    """Number the tokens of some texts.

    ``ends`` are the texts' ends in ``buffer``; ``slots``, ``hashes``, ``starts`` and ``arena`` hold the ``n`` tokens
    known so far and come back grown. Returns them with the token numbers and the number of tokens of each text.
    """
    numbers = np.empty(len(buffer) // 2 + len(ends) + 1, np.int32)
    counts = np.zeros(len(ends), np.int32)
    mask = np.uint64(len(slots) - 1)
    filled, i = 0, 0
    for d in range(len(ends)):
        end = ends[d]
        before = filled
        paired = False  # the last token was a pair of characters, the second of which comes now
        while i < end:
            start = i
            h = np.uint64(14695981039346656037)  # FNV-1a
            while i < end:
                c = buffer[i]
                if c < 128:
                    if is_word[c] != 1:
                        break
                    h = (h ^ np.uint64(c)) * np.uint64(1099511628211)
                    i += 1
                else:
                    point, width = _code_point(buffer, i)
                    if is_word[point] != 1:
                        break
                    for _ in range(width):
                        h = (h ^ np.uint64(buffer[i])) * np.uint64(1099511628211)
                        i += 1
            after = i
            if i == start:
                if buffer[i] < 128:
                    i += 1
                    paired = False
                    continue
                point, width = _code_point(buffer, i)
                i += width
                if is_word[point] != 2:
                    paired = False
                    continue
                # A script without blanks: this character and the next are a token, and the next one begins another.
                after = i
                if i < end and buffer[i] >= 128:
                    point, width = _code_point(buffer, i)
                    if is_word[point] == 2:
                        after = i + width
                if after == i and paired:
                    paired = False
                    continue
                paired = after > i
                for b in range(start, after):
                    h = (h ^ np.uint64(buffer[b])) * np.uint64(1099511628211)
            else:
                paired = False
            length = after - start
            h ^= h >> np.uint64(32)
            j = h & mask
            while True:
                token = slots[j]
                if token < 0:
                    break
                if (
                    hashes[token] == h
                    and starts[token + 1] - starts[token] == length
                    and not _differ(arena, starts[token], buffer, start, length)
                ):
                    break
                j = (j + np.uint64(1)) & mask
            if token < 0:
                token = n
                if n + 1 == len(hashes):
                    hashes = np.concatenate((hashes, np.empty_like(hashes)))
                    starts = np.concatenate((starts, np.empty_like(starts)))
                while starts[n] + length > len(arena):
                    arena = np.concatenate((arena, np.empty_like(arena)))
                hashes[n] = h
                for b in range(length):  # copying a slice would take the compiler seconds
                    arena[starts[n] + b] = buffer[start + b]
                starts[n + 1] = starts[n] + length
                slots[j] = n
                n += 1
                if 2 * n > len(slots):
                    slots = np.full(2 * len(slots), -1, np.int32)
                    mask = np.uint64(len(slots) - 1)
                    _insert_all(slots, hashes, n)
            numbers[filled] = token
            filled += 1
        counts[d] = filled - before
    return numbers[:filled].copy(), counts, slots, hashes, starts, arena, n


def scan(encoded: Iterable[bytes], is_word: np.ndarray) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Cut UTF-8 texts into runs of word characters, or pairs in scripts without blanks, and number the distinct tokens.

    ``is_word`` is the word table of `ragbench.retrieval.text`. Returns what `number_tokens` there does.
    """
    slots = np.full(1 << 15, -1, np.int32)
    hashes, starts = np.empty(1 << 13, np.uint64), np.zeros(1 << 13, np.int64)
    arena, n = np.empty(1 << 16, np.uint8), 0
    all_numbers, all_counts, rest = [], [], iter(encoded)
    while batch := list(islice(rest, _BATCH)):
        buffer, ends = np.frombuffer(b"".join(batch), np.uint8), np.cumsum([len(b) for b in batch], dtype=np.int64)
        numbers, counts, slots, hashes, starts, arena, n = _scan(buffer, ends, is_word, slots, hashes, starts, arena, n)
        all_numbers.append(numbers)
        all_counts.append(counts)
    data = arena.tobytes()
    tokens = [data[a:b].decode("utf-8", "surrogatepass") for a, b in pairwise(starts[: n + 1].tolist())]
    return np.concatenate(all_numbers), np.concatenate(all_counts), tokens
