"""Chunks for the tests of retrievers, and what is read off their hits."""

import math
from collections import Counter

from ragbench.records import Chunk


def chunks_of(*texts, docs=None):
    """Chunks c00000, c00001, ... of documents of their own, or of those named."""
    return [
        Chunk(f"c{i:05d}", text, docs[i] if docs else f"d{i}", f"T{i}")
        for i, text in enumerate(texts)
    ]


def ids(hits):
    return [hit.chunk.id for hit in hits]


def scores_of(hits):
    return [hit.score for hit in hits]


def ranks_of(hits):
    return [hit.rank for hit in hits]


def ids_found(retriever, query, k):
    """The ids of what is found for one query."""
    return ids(retriever.search([query], k)[0])


def hotpot_chunks(recorded):
    """By question of HotpotQA's recorded subset: a chunk for each of its paragraphs."""
    return {
        row["_id"]: [
            Chunk(t, " ".join(s.strip() for s in sentences), t, t)
            for t, sentences in row["context"]
        ]
        for row in recorded("hotpotqa/hotpot_dev_distractor_subset.json.gz")
    }


def slow_scores(texts, query, variant, k1, b, tokenizer, k3=8.0):
    """The formulas of BM25's table, one chunk and one term at a time."""
    bags = [Counter(tokenizer(text)) for text in texts]
    average = sum(bag.total() for bag in bags) / len(bags)
    df = Counter(term for bag in bags for term in bag)
    terms = Counter(tokenizer(getattr(tokenizer, "clean_query", str)(query)))
    scores = []
    for bag in bags:
        score = 0.0
        for term, qtf in terms.items():
            if tf := bag[term]:
                odds = (len(bags) - df[term] + 0.5) / (df[term] + 0.5)
                part = tf / (tf + k1 * (1 - b + b * bag.total() / average))
                if variant == "terrier":
                    score += math.log2(odds) * part * (k1 + 1) * (k3 + 1) * qtf / (k3 + qtf)
                else:
                    score += math.log(1 + odds) * part * qtf
        scores.append(score)
    return scores
