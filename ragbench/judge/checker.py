"""The embedded checker: is a claim entailed by a text, contradicted, or neither - without a language model.

A documented rule over the text's best window of sentences (not an inference model): results made with it are labelled
*embedded*. It sees shared words, numbers, names and topic; it does not see who did what to whom.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ragbench.errors import ConfigError
from ragbench.judge.features import embed
from ragbench.judge.text import NEGATION, Prepared, prepare, split_sentences

if TYPE_CHECKING:
    from langchain_core.embeddings import Embeddings

ENTAILMENT, NEUTRAL, CONTRADICTION = "Entailment", "Neutral", "Contradiction"
LABELS = (ENTAILMENT, NEUTRAL, CONTRADICTION)
_MARKER = re.compile(r"^\s*(?:[-*+•]|\d+[.)])\s+")
_CITATION = re.compile(r"\s*\[\d+(?:,\s*\d+)*\]")
_EMPHASIS = re.compile(r"\*\*|__|`")

Claim = str | Sequence[str]


def split_claims(text: str) -> list[str]:
    """Cut a text into sentence claims, without list markers, emphasis marks and citation numbers."""
    if not isinstance(text, str):
        raise ConfigError(f"text is {type(text).__name__}", "a text", "split one text at a time")
    claims = (_EMPHASIS.sub("", _CITATION.sub("", _MARKER.sub("", s))).strip() for s in split_sentences(text))
    return [c for c in claims if any(ch.isalnum() for ch in c)]


def claim_text(claim: Claim, where: str = "claim") -> str:
    """Return a claim as a sentence; a triple (subject, predicate, object) is joined by spaces.

    Raises
    ------
    ConfigError for anything else, naming ``where``.
    """
    if isinstance(claim, str):
        return claim
    if isinstance(claim, Sequence) and len(claim) == 3 and all(isinstance(part, str) for part in claim):
        return " ".join(part.strip() for part in claim)
    raise ConfigError(
        f"{where} is {type(claim).__name__} {str(claim)[:40]!r}",
        "a sentence, or a triple [subject, predicate, object] of texts",
        "check how the claims were extracted",
    )


class EmbeddedChecker:
    """Label claims against texts as Entailment, Neutral or Contradiction.

    The rule, for a claim and the window of up to ``window`` consecutive sentences of the text that supports it best,
    where *support* = ``mix`` x coverage + (1 - ``mix``) x cosine; coverage is the share of the claim's stems, by
    weight, that the window has, and cosine is MiniLM's between claim and window (its sentences' mean direction):

    1. *Entailment*: support >= ``entail``, every number of the claim is in the text, and claim and best sentence agree
       in being negated or not.
    2. *Contradiction*: support >= ``related`` and the window has other numbers in place of one of the claim's, or
       support >= ``entail`` and only one side is negated.
    3. *Neutral* otherwise.

    Parameters
    ----------
    embedder : a LangChain ``Embeddings`` with unit vectors; default the embedded MiniLM.
    entail, related, mix : thresholds and weight, in [0, 1]; the defaults were set on MiniHop's claims (see LOG.md) and
        on nothing else.
    window : sentences read together.
    """

    def __init__(
        self,
        embedder: Embeddings | None = None,
        entail: float = 0.53,
        related: float = 0.45,
        mix: float = 0.7,
        window: int = 3,
    ) -> None:
        for name, value in (("entail", entail), ("related", related), ("mix", mix)):
            if not 0 <= value <= 1:
                raise ConfigError(f"{name}={value}", "a number in [0, 1]", "leave it out for the default")
        if window < 1:
            raise ConfigError(f"window={window}", "at least 1 sentence", "leave it out for the default, 3")
        self.entail, self.related, self.mix, self.window = entail, related, mix, window
        self._embedder = embedder

    def __repr__(self) -> str:
        return f"EmbeddedChecker(entail={self.entail}, related={self.related}, mix={self.mix}, window={self.window})"

    @functools.cached_property
    def embedder(self) -> Embeddings:
        """The embedding model, loaded at first use."""
        if self._embedder is not None:
            return self._embedder
        from ragbench.embedding import default_embedder

        return default_embedder()

    def check(self, claims: Sequence[Claim], text: str) -> list[str]:
        """Label claims against one text.

        Parameters
        ----------
        claims : sentences, or triples of texts. text : what they are checked against.

        Returns
        -------
        One label per claim.

        Raises
        ------
        ConfigError for a claim that is neither, or a text that is none.
        """
        if not isinstance(text, str):
            raise ConfigError(f"text is {type(text).__name__}", "one text", "use check_many for a list of texts")
        return [row[0] for row in self.check_many(claims, [text])]

    def check_many(self, claims: Sequence[Claim], texts: Sequence[str]) -> list[list[str]]:
        """Label every claim against every text, embedding all sentences in one call.

        Returns
        -------
        Labels, shape (n_claims, n_texts): RAGChecker's ``retrieved2response`` for the claims of a response and the
        chunks retrieved for it.
        """
        ready, vectors, windows = self._ready(claims, texts)
        return [[self._label(claim, vectors[claim.text], w) for w in windows] for claim in ready]

    def support(self, claims: Sequence[Claim], texts: Sequence[str]) -> np.ndarray:
        """Return the support of each claim in each text's best window: shape (n_claims, n_texts), about 0..1."""
        ready, vectors, windows = self._ready(claims, texts)
        values = [w.best(claim, vectors[claim.text], self.mix)[0] for claim in ready for w in windows]
        return np.array(values, float).reshape(len(ready), len(windows))

    def _ready(
        self, claims: Sequence[Claim], texts: Sequence[str]
    ) -> tuple[list[Prepared], dict[str, np.ndarray], list[_Windows]]:
        if isinstance(claims, str) or isinstance(texts, str):
            raise ConfigError("one string", "a list of claims and a list of texts", "use check(claims, text)")
        for i, text in enumerate(texts):
            if not isinstance(text, str):
                raise ConfigError(f"text {i} is {type(text).__name__}", "a text", "pass chunk.text, not the chunk")
        ready = [prepare(claim_text(c, f"claim {i}")) for i, c in enumerate(claims)]
        sources = [prepare(t) for t in texts]
        vectors = embed(self.embedder, [c.text for c in ready] + [s for t in sources for s in t.sentences])
        return ready, vectors, [_Windows(t, vectors, self.window) for t in sources]

    def _label(self, claim: Prepared, vector: np.ndarray, windows: _Windows) -> str:
        support, best = windows.best(claim, vector, self.mix)
        if support < min(self.related, self.entail):
            return NEUTRAL
        missing = claim.numbers - windows.text.numbers
        if missing:
            others = windows.numbers(best) - claim.numbers
            return CONTRADICTION if others and support >= self.related else NEUTRAL
        if support < self.entail:
            return NEUTRAL
        negated = bool(NEGATION.search(claim.text))
        return ENTAILMENT if negated == windows.negated(best, vector) else CONTRADICTION


class _Windows:
    """Runs of 1..size sentences of a text, with their stems and directions."""

    def __init__(self, text: Prepared, vectors: dict[str, np.ndarray], size: int) -> None:
        self.text = text
        n = len(text.sentences)
        self.spans = [(i, i + k) for k in range(1, size + 1) for i in range(n - k + 1)]
        if n and not self.spans:
            self.spans = [(0, n)]
        self.stems = [frozenset().union(*text.sentence_stems[a:b]) for a, b in self.spans]
        self.sentence_vectors = np.array([vectors[s] for s in text.sentences])
        sums = [self.sentence_vectors[a:b].sum(0) for a, b in self.spans]
        self.directions = np.array([s / max(float(np.linalg.norm(s)), 1e-9) for s in sums])

    def best(self, claim: Prepared, vector: np.ndarray, mix: float) -> tuple[float, int]:
        """Return the greatest support and its window; (0, -1) where there is nothing to compare."""
        total = sum(claim.weight.values())
        if not self.spans or total == 0:
            return 0.0, -1
        covered = np.array([sum(w for s, w in claim.weight.items() if s in have) for have in self.stems]) / total
        support = mix * covered + (1 - mix) * (self.directions @ vector)
        i = int(support.argmax())
        return float(support[i]), i

    def numbers(self, i: int) -> frozenset[str]:
        """Return the numbers in window ``i``."""
        a, b = self.spans[i]
        return frozenset().union(*(prepare(s).numbers for s in self.text.sentences[a:b]))

    def negated(self, i: int, vector: np.ndarray) -> bool:
        """Whether the sentence of window ``i`` that is nearest to the claim has a negation."""
        a, b = self.spans[i]
        nearest = a + int((self.sentence_vectors[a:b] @ vector).argmax())
        return bool(NEGATION.search(self.text.sentences[nearest]))
