"""The embedded judge: a score for an answer against a reference, without a language model.

A weighted sum of features, fitted on people's comparisons of answers (``scripts/fit_embedded_judge.py``, notebook 21),
scaled per reference so that an empty answer has 0 and the reference itself 1.

A feature is a function of (question, reference, answer) alone, so the difference of two scores is the same sum over
feature differences. ``_r`` is recall (how much of the reference the answer has), ``_p`` precision (how much of the
answer the reference backs), ``_f`` their harmonic mean. Words of the question are left out of the overlaps: every
answer repeats them.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from langchain_core.embeddings import Embeddings

from ragbench.embedding import default_embedder, embed_distinct
from ragbench.errors import DataError, check_known
from ragbench.text.common import lcs_length
from ragbench.text.negation import NEGATION, abstains
from ragbench.text.parse import ParsedText, parse
from ragbench.text.sentences import split_sentences

GROUPS: dict[str, tuple[str, ...]] = {
    "overlap": ("overlap_r", "overlap_p", "overlap_f"),
    "sentences": ("sentence_r", "sentence_p", "sentence_f"),
    "form": ("short", "long", "empty", "abstains", "stance"),
    "vector": ("cosine",),
    "order": ("order_f",),
    "facts": ("names", "numbers"),
}
NAMES: tuple[str, ...] = tuple(name for group in GROUPS.values() for name in group)


def _harmonic(r: float, p: float) -> float:
    return 2 * r * p / (r + p) if r + p > 0 else 0.0


def _overlap(reference: dict[str, float], answer: dict[str, float]) -> tuple[float, float, float]:
    """Recall, precision and F of two bags of weights; a shared item counts as often as the poorer side has it."""
    shared = sum(min(w, answer[s]) for s, w in reference.items() if s in answer)
    r, p = (shared / total if total > 0 else 0.0 for total in (sum(reference.values()), sum(answer.values())))
    return r, p, _harmonic(r, p)


def _bag(text: ParsedText, left_out: frozenset[str]) -> dict[str, float]:
    return {s: math.log1p(n) * text.weight[s] for s, n in text.counts.items() if s not in left_out}


def _sentence_coverage(text: ParsedText, other: ParsedText, left_out: frozenset[str]) -> float:
    """Share of a text's sentences found in the other's best single sentence, by content weight."""
    total = covered = 0.0
    for stems in text.sentence_stems:
        weights = {s: text.weight[s] for s in stems if s not in left_out}
        mass = sum(weights.values())
        if mass > 0:
            total += mass
            covered += max(
                (sum(w for s, w in weights.items() if s in have) for have in other.sentence_stems), default=0.0
            )
    return covered / total if total > 0 else 0.0


def _lexical(question: ParsedText, reference: ParsedText, answer: ParsedText) -> dict[str, float]:
    """Compute the features that need no vectors."""
    asked = frozenset(question.stems)
    if asked.issuperset(reference.stems):  # "Paris or Rome?"
        asked = frozenset()
    f: dict[str, float] = {}
    f["overlap_r"], f["overlap_p"], f["overlap_f"] = _overlap(_bag(reference, asked), _bag(answer, asked))
    f["sentence_r"] = _sentence_coverage(reference, answer, asked)
    f["sentence_p"] = _sentence_coverage(answer, reference, asked)
    f["sentence_f"] = _harmonic(f["sentence_r"], f["sentence_p"])
    both = len(reference.stems) + len(answer.stems)
    f["order_f"] = 2 * lcs_length(reference.stems, answer.stems) / both if both else 0.0
    ratio = math.log((len(answer.words) + 5) / (len(reference.words) + 5))
    f["short"], f["long"] = min(ratio, 0.0), max(ratio, 0.0)
    f["empty"] = float(not answer.words)
    f["abstains"] = float(abstains(answer.text, "judge") and not abstains(reference.text, "judge"))
    polar = bool(_POLAR.match(question.text))  # asks for yes or no
    f["stance"] = float(_stance(reference.text, polar) * _stance(answer.text, polar))
    said = frozenset(answer.words)
    f["names"] = math.log1p(len((reference.names - frozenset(question.words)) & said))
    f["numbers"] = math.log1p(len((reference.numbers - question.numbers) & answer.numbers))
    return f


_YES_NO = re.compile(r"^\W*(?:the answer is )?(yes|no)\b", re.I)
_POLAR = re.compile(
    r"^\W*(is|are|was|were|am|do|does|did|can|could|should|would|will|has|have|had|may|might|must)\b", re.I
)


def _stance(text: str, polar: bool) -> int:
    """1 for yes, -1 for no, 0 for neither; without a yes or no, a polar question is answered by its first sentence."""
    if match := _YES_NO.match(text):
        return 1 if match[1].lower() == "yes" else -1
    if not polar or not text.strip():
        return 0
    first = next(iter(split_sentences(text, "claims")), text)
    return -1 if NEGATION.search(first) else 1


def _without_question(vectors: np.ndarray, question: np.ndarray) -> np.ndarray:
    """Remove the question's direction from vectors (n, d), scaled to unit length again; a zero stays zero."""
    rest = vectors - np.outer(vectors @ question, question)
    size = np.linalg.norm(rest, axis=1, keepdims=True)
    return rest / np.where(size > 1e-6, size, np.inf)


def _features(
    questions: Sequence[str | None],
    references: Sequence[str],
    answers: Sequence[str],
    embedder: Embeddings | None = None,
    names: Sequence[str] = NAMES,
) -> np.ndarray:
    """Compute the judge's features, shape (len(answers), len(names)); NaN where a reference has no word.

    The embedder is asked once for all texts, and only when ``names`` has ``cosine``.
    """
    check_known("feature", names, NAMES)
    if isinstance(answers, str) or not len(questions) == len(references) == len(answers):
        sizes = f"{len(questions)} questions, {len(references)} references, {len(answers)} answers"
        raise DataError(sizes, "one question and one reference per answer", "pass lists; repeat the reference")
    rows = [(question or "", *texts) for question, *texts in zip(questions, references, answers, strict=True)]
    if strange := [text for row in rows for text in row if not isinstance(text, str)]:
        raise DataError(f"{strange[0]!r:.60} among the texts", "texts", "pass '' for an empty answer")
    vectors: dict[str, np.ndarray] = {}
    if "cosine" in names and rows:
        vectors = embed_distinct(embedder or default_embedder(), [text for row in rows for text in row])
    result = np.full((len(rows), len(names)), np.nan)
    for i, (question, reference, answer) in enumerate(tuple(map(parse, row)) for row in rows):
        if not reference.words:
            continue
        f = _lexical(question, reference, answer)
        if vectors:
            pair = _without_question(np.stack([vectors[reference.text], vectors[answer.text]]), vectors[question.text])
            f["cosine"] = float(pair[0] @ pair[1])
        result[i] = [f[n] for n in names]
    return result


COEFFICIENTS = Path(__file__).with_name("embedded_judge.json")
NESTED = Path(__file__).with_name("embedded_judge_nested.csv")  # tests of the fit, for notebook 21


def load_coefficients() -> dict[str, Any]:
    """Read the shipped coefficients: ``criteria``, and the ``card`` that says what they were fitted on."""
    return json.loads(COEFFICIENTS.read_text(encoding="utf-8"))


def scaled(weights: np.ndarray, floor: float, answer: np.ndarray, empty: np.ndarray, itself: np.ndarray) -> np.ndarray:
    """Score feature rows (n, n_features): 0 for the empty answer, 1 for the reference itself, linear elsewhere.

    ``floor`` is the least distance in raw score between reference and empty answer that is divided by.
    """
    return (answer - empty) @ weights / np.maximum((itself - empty) @ weights, floor)


class EmbeddedJudge:
    """Score answers against references without a language model.

    ``criterion``: "overall", "correctness" or "completeness". ``embedder``: default MiniLM, with which the coefficients
    were fitted: refit for another. Fitted on English long-form answers; scores compare between answers to one question
    and, less surely, between questions. ``card`` says what it was fitted on and how well it agrees with people.
    """

    def __init__(self, criterion: str = "overall", embedder: Embeddings | None = None) -> None:
        data = load_coefficients()
        check_known("criterion", [criterion], data["criteria"])
        entry = data["criteria"][criterion]
        self.criterion, self.card = criterion, data.get("card", {})
        self.features: tuple[str, ...] = tuple(entry["features"])
        self.weights = np.asarray(entry["weights"], float)
        self.floor = float(entry["floor"])
        self.embedder = embedder or default_embedder()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.criterion!r}, {len(self.features)} features)"

    def score(self, answer: str, reference: str, question: str | None = None) -> float:
        """Score one answer: 0 for an empty one, 1 for the reference word for word, NaN without a reference.

        It may lie a little outside: an answer can be worse than none (a wrong yes), or longer than the reference.
        """
        return float(self.scores([answer], [reference], [question])[0])

    def scores(
        self, answers: Sequence[str], references: Sequence[str], questions: Sequence[str | None] | None = None
    ) -> np.ndarray:
        """Score many answers at once, shape (n,), embedding all texts in one call."""
        questions = [None] * len(answers) if questions is None else questions
        parts = anchored(questions, references, answers, self.embedder, self.features)
        return scaled(self.weights, self.floor, *parts)


def anchored(
    questions: Sequence[str | None],
    references: Sequence[str],
    answers: Sequence[str],
    embedder: Embeddings | None,
    names: Sequence[str] = NAMES,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features of answers, of the empty answer and of the reference as its own answer: three arrays (n, n_features)."""
    keys = list(dict.fromkeys(zip(questions, references, strict=True)))
    place = {key: i for i, key in enumerate(keys)}
    asked, true = [q for q, _ in keys], [r for _, r in keys]
    rows = _features(
        [*questions, *asked, *asked], [*references, *true, *true], [*answers, *[""] * len(keys), *true], embedder, names
    )
    index = [place[key] for key in zip(questions, references, strict=True)]
    n, k = len(answers), len(keys)
    return rows[:n], rows[n : n + k][index], rows[n + k :][index]
