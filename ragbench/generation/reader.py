"""The extractive reader: the embedded generator. It copies sentences; it knows nothing and writes nothing of its own.

A question over two documents is answered by two sentences: one that matches the question's description and brings in a
new name, and one about that name which holds the kind of thing asked for. All pairs of sentences are scored for the
share of the question's words they cover (weighted by rarity), for the names that link them, and for the kind of answer.
No language model, no vectors: on MiniHop's held-out topics (arts, history; BM25, N = 1000) its answer holds the true
one for 21% of the questions, where the context does for 60%; only 2 of 17 choices between two options hold it.
English cues; other scripts are matched word by word (Chinese: character by character).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ragbench.generation.compare import Rarity, answer_comparison, name_stems
from ragbench.records import Chunk
from ragbench.text.languages import language_of
from ragbench.text.parse import ParsedSentence, sentences
from ragbench.text.words import stem, stems

ABSTENTION = "The documents do not contain enough information to answer this question."
ABSTENTIONS = {
    "english": ABSTENTION,
    "german": "Die Dokumente enthalten nicht genügend Informationen, um diese Frage zu beantworten.",
    "french": "Les documents ne contiennent pas assez d'informations pour répondre à cette question.",
    "chinese": "现有文档不足以回答该问题。",
}

_FIRST_HOPS = 40
_ADDS = 0.05  # a second sentence must cover this much more of the question to be said
# Weights of a pair's score, chosen on MiniHop's questions about places, science and letters.
_LINK, _KIND, _ASKED, _BOTH = 0.2, 0.2, 2.0, 1.0
_DECAY = (1.0, 0.5, 0.35, 0.25)


class ExtractiveReader:
    """Answer in one or two sentences of the context, word for word, or abstain; the same for any order of calls.

    A comparison is answered by a name or yes or no, and the evidence after a colon.

    The thesis used Llama-3 (§2.4): tables must name this reader.

    Parameters
    ----------
    background : chunks (or texts) of the corpus, for the rarity of words. None: the context's own sentences.
    threshold : share of the question's words (weighted by rarity, in [0, 1]) that the chosen sentences must cover.
    abstention : what is said instead of an answer. None: a sentence in the question's language where ``ABSTENTIONS``
        has one, else in English. A question too short to tell is taken to be in the context's language.
    """

    name = "extractive reader (no LLM)"

    def __init__(
        self, background: Iterable[Chunk | str] | None = None, threshold: float = 0.2, abstention: str | None = None
    ) -> None:
        self.threshold, self.abstention = threshold, abstention
        texts = [item.text if isinstance(item, Chunk) else item for item in background or ()]
        words = (word for text in texts for word in set(stems(text, "reader")))
        self._frequency, self._texts = None if background is None else Counter(words), len(texts)

    def settings(self) -> dict[str, Any]:
        """Return every parameter that can change an answer, ready for JSON."""
        said = self.abstention or "in the question's language"
        about = {"generator": self.name, "threshold": self.threshold}
        return about | {"abstention": said, "background_texts": self._texts}

    def abstains(self, text: str) -> bool:
        """Say whether an answer is the abstention."""
        return text in (ABSTENTIONS.values() if self.abstention is None else (self.abstention,))

    def answer(self, question: str, context: str) -> str:
        """Answer one question from a context that is already cut to its budget; without one, abstain."""
        parts = sentences(context)
        asked = list(dict.fromkeys(stems(question, "reader")))
        if not parts or not asked:
            return self._abstain(question, context)
        rarity = self._rarity(parts)
        verdict = answer_comparison(question, parts, rarity)
        return verdict or self._pair(question, parts, asked, rarity) or self._abstain(question, context)

    def _abstain(self, question: str, context: str) -> str:
        if self.abstention is not None:
            return self.abstention
        return ABSTENTIONS.get(language_of([question]) or language_of([context]) or "", ABSTENTION)

    def _rarity(self, parts: Sequence[ParsedSentence]) -> Rarity:
        frequency, n = self._frequency, self._texts
        if frequency is None:
            frequency, n = Counter(t for s in parts for t in s.terms), len(parts)
        return lambda term: math.log1p((n + 1) / (frequency[term] + 0.5))

    def _pair(self, question: str, parts: Sequence[ParsedSentence], asked: Sequence[str], rarity: Rarity) -> str:
        """Answer by the best pair of sentences; empty when it covers too little of the question."""
        weights = np.array([rarity(t) for t in asked])
        idf = weights / weights.sum()
        there = np.array([[t in s.terms for t in asked] for s in parts], dtype=float)
        near = _smooth(there)
        clause = _asking_clause(question)
        wanted = set(stems(clause, "reader"))
        tail = idf * [t in wanted for t in asked]
        kind = next((kind for kind, words in _KINDS.items() if re.search(words, clause, re.IGNORECASE)), "thing")
        known = {stem(w, "reader") for w in re.findall(r"\w+", question.lower())}
        fits = np.array([_fits(s, kind, known) for s in parts])
        first = np.sort(np.argsort(-(near @ idf), kind="stable")[:_FIRST_HOPS])
        links = _links(parts, first, known, rarity)
        # (first, answer, term): what the two sentences cover together.
        cover = np.maximum(near[first][:, None, :], near[None, :, :]) @ idf
        ask = (0.5 * there + 0.5 * near) @ tail
        both = np.maximum(there[first][:, None, :], there[None, :, :]) @ idf
        score = cover + _LINK * links + _KIND * fits + _ASKED * ask + _BOTH * both
        a, b = np.unravel_index(int(np.argmax(score)), score.shape)
        if cover[a, b] < self.threshold:
            return ""
        i, j = int(first[a]), int(b)
        alone = near[j] @ idf
        chosen = [j] if i == j or cover[a, b] - alone < _ADDS else sorted((i, j))
        return " ".join(parts[c].text for c in chosen)


def _links(parts: Sequence[ParsedSentence], first: np.ndarray, known: set[str], rarity: Rarity) -> np.ndarray:
    """How strongly a name that sentence a adds to the question is taken up by sentence b, 0 to 1."""
    new = [name_stems(s.names) - known for s in parts]
    names = sorted(set().union(*(new[i] for i in first)))
    if not names:
        return np.zeros((len(first), len(parts)))
    there = np.array([[name in terms for name in names] for terms in new], dtype=float)
    weights = np.array([rarity(name) for name in names])
    return np.minimum(there[first] * (weights / weights.max()) @ _smooth(there).T, 1.0)


def _smooth(rows: np.ndarray) -> np.ndarray:
    """Let a sentence share in what its neighbours say: pronouns leave the name to the sentence before."""
    out = rows.copy()
    for d, weight in enumerate(_DECAY[1:], 1):
        np.maximum(out[d:], weight * rows[:-d], out=out[d:])
        np.maximum(out[:-d], weight * rows[d:], out=out[:-d])
    return out


_ASKING = re.compile(r"\b(?:who|whom|whose|where|when|what|which|how)\b", re.IGNORECASE)
# What a question asks for, by its words; the first that fits.
_KINDS = {
    "time": r"\bwhen\b|\b(?:which|what) (?:\w+ ){0,3}(?:year|date|day|month|century|decade)\b",
    "count": r"\bhow (?:many|much|old|long|far|tall|high|deep|large|big)\b|\bwhat (?:age|number)\b",
    "place": r"\bwhere\b|\b(?:which|what) (?:\w+ ){0,3}(?:city|town|country|village|place|port|region|street|island|"
    r"settlement|canton|county|bay|cathedral|birthplace|university|house|castle|fortress|stronghold|church|province)\b",
    "person": r"\b(?:who|whom|whose)\b|"
    r"\b(?:which|what) (?:\w+ ){0,3}(?:man|woman|person|singer|writer|king|queen)\b",
}


def _asking_clause(question: str) -> str:
    """The last sentence of the question that asks something, from its question word on where one stands late."""
    parts = [p for p in re.split(r"(?<=[.?!;:])\s+", question) if _ASKING.search(p)]
    return parts[-1] if parts else question


def _fits(s: ParsedSentence, kind: str, known: set[str]) -> float:
    """1 when the sentence holds something of the asked kind that the question does not name already, else 0."""
    if kind == "time":
        return float(s.dated)
    if kind == "count":
        return float(bool(s.numbers))
    fresh = [name for name in s.names if not name_stems([name]) <= known]
    if kind == "place":
        return float(s.placed and bool(fresh))
    return 1.0 if kind == "person" and any(" " in name for name in fresh) else 0.5 * bool(fresh)
