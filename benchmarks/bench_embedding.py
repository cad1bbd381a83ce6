"""Texts per second of the embedded MiniLM, beside its int8 form and sentence-transformers (extra [st]) in one run.

python benchmarks/bench_embedding.py [--texts 200]
"""

from __future__ import annotations

import argparse
import importlib.util
import time

import numpy as np

from ragbench.data import load_minihop
from ragbench.embedding import MiniLM, minilm_dir


def texts_of(words: int, count: int) -> list[str]:
    """Make texts of one length from MiniHop's words."""
    flow = " ".join(d.text for d in load_minihop().documents).split()
    return [" ".join(flow[(i * 37) % (len(flow) - words) :][:words]) for i in range(count)]


def rate(embed, texts: list[str]) -> tuple[float, np.ndarray]:
    """Texts per second (best of three) and the vectors."""
    embed(texts[:8])
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        vectors = embed(texts)
        best = min(best, time.perf_counter() - start)
    return len(texts) / best, np.asarray(vectors)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--texts", type=int, default=200)
    count = parser.parse_args().texts
    peers = {"onnxruntime fp32": MiniLM().embed_array, "onnxruntime int8": MiniLM("int8").embed_array}
    if importlib.util.find_spec("sentence_transformers"):
        from sentence_transformers import SentenceTransformer

        model = SentenceTransformer(str(minilm_dir()), device="cpu")
        model.max_seq_length = 256
        peers = {"sentence-transformers": lambda t: model.encode(t, normalize_embeddings=True)} | peers
    else:
        print("sentence-transformers is not installed (extra [st]); ratios are to fp32")
    print(f"{'words':>6} {'method':<24} {'texts/s':>8} {'ratio':>6} {'min cosine':>11}")
    for words in (25, 100, 190):
        texts = texts_of(words, count)
        base = None
        for name, embed in peers.items():
            speed, vectors = rate(embed, texts)
            base = base or (speed, vectors)
            cosine = (base[1] * vectors).sum(1).min()
            print(f"{words:>6} {name:<24} {speed:>8.0f} {speed / base[0]:>6.2f} {cosine:>11.6f}")


if __name__ == "__main__":
    main()
