"""Embeddings that are easy to work out: unit vectors of the counts of a few words, or other parts
of a text.
"""

import re

import numpy as np
from langchain_core.embeddings import Embeddings


class Bags(Embeddings):
    """Counts words; with ``inside`` any parts, as letters. Remembers what it was asked for."""

    def __init__(self, *words, inside=False):
        self.words = words or ("river", "nile", "dam", "egypt", "north", "what", "not")
        self.asked = []
        self.pieces = str if inside else re.compile(r"\w+").findall

    def embed_documents(self, texts):
        self.asked.append(list(texts))
        pieces = [self.pieces(text.lower()) for text in texts]
        vectors = np.array([[*map(of_text.count, self.words), 1e-3] for of_text in pieces]).reshape(
            len(texts), -1
        )
        return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).tolist()

    def embed_query(self, text):
        return self.embed_documents([text])[0]
