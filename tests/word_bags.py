"""Embeddings that are easy to work out: unit vectors of the counts of a few words."""

import numpy as np


class Bags:
    """Remembers what it was asked for."""

    def __init__(self, *words):
        self.words, self.asked = words or ("river", "nile", "dam", "egypt", "north", "what", "not"), []

    def embed_documents(self, texts):
        self.asked.append(list(texts))
        counts = np.array([[t.lower().split().count(word) for word in self.words] for t in texts], float)
        vectors = np.hstack([counts.reshape(len(texts), -1), np.full((len(texts), 1), 1e-3)])
        return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).tolist()
