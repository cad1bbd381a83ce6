"""Chunks for the tests of retrievers, and what is read off their hits."""

from ragbench.records import Chunk


def chunks_of(*texts, docs=None):
    """Chunks c00000, c00001, ... of documents of their own, or of those named."""
    return [
        Chunk(f"c{i:05d}", text, docs[i] if docs else f"d{i}", f"T{i}")
        for i, text in enumerate(texts)
    ]


def ids(hits):
    return [hit.chunk.id for hit in hits]


def hotpot_chunks(recorded):
    """By question of HotpotQA's recorded subset: a chunk for each of its paragraphs."""
    rows = recorded("hotpotqa/hotpot_dev_distractor_subset.json.gz")
    return {
        row["_id"]: [
            Chunk(t, " ".join(s.strip() for s in sentences), t, t)
            for t, sentences in row["context"]
        ]
        for row in rows
    }
