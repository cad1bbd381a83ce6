"""Fit the embedded judge to people's comparisons, and measure it honestly.

A pair's preference is modelled as the difference of two scores, and a score is a weighted sum of features, so ridge
regression of the mean label on feature differences gives the weights (no constant: swapping the answers must flip the
sign). One group (domain) at a time is left out; which features and how much ridge is chosen by leaving out each of the
*remaining* groups in turn, so the tested group has no part in any choice (nested cross-validation).

The report's protocol is RAGChecker's (section 4.2): score differences of pairs, mapped to [-2, 2], against every
annotator's label; intervals from resampling questions.
"""

from __future__ import annotations

import datetime
import itertools
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from langchain_core.embeddings import Embeddings

from ragbench.errors import DataError
from ragbench.labelling.embedded_judge import GROUPS, NAMES, anchored, scaled
from ragbench.labelling.preferences import LabelledPair, load_ragchecker_pairs
from ragbench.stats import correlation, preference_difference

FEATURE_SETS: tuple[tuple[str, ...], ...] = (
    ("overlap", "form"),
    ("overlap", "form", "vector"),
    ("overlap", "form", "vector", "facts"),
    ("overlap", "form", "vector", "facts", "order"),
    tuple(GROUPS),
)
STRENGTHS = (0.1, 0.3, 1.0, 3.0)  # ridge per pair, features scaled to root mean square 1
_LEAST_PAIRS = 20
_FLOOR = 0.25  # of the median distance between reference and empty answer
METHODS = ("pearson", "spearman")
_ORDER = ("judge", "judge, no question", "recorded", "judge + recorded")
LIMITS = (
    "English, long-form answers (median reference 118 words in RAGChecker's data); short factual answers were not "
    "among the labels.",
    "Fitted on preferences between two answers to one question: scores of different questions compare less surely.",
    "Sees words, numbers, names and topic, not entailment: a contradiction in the reference's own words scores high.",
    "Features and the candidate sets were designed with these pairs in view; weights, sets and strengths were chosen "
    "without the tested group.",
)


class _Table(NamedTuple):
    """Numbers of n pairs: features of both answers, the empty answer and the reference, shape (n, n_features) each."""

    first: np.ndarray
    second: np.ndarray
    empty: np.ndarray
    itself: np.ndarray
    recorded: np.ndarray  # (n, n_scores) differences of another metric's scores; n_scores may be 0

    def columns(self, names: Sequence[str]) -> _Table:
        j = [NAMES.index(n) for n in names]
        return _Table(self.first[:, j], self.second[:, j], self.empty[:, j], self.itself[:, j], self.recorded)


def ridge(differences: np.ndarray, labels: np.ndarray, strength: float) -> np.ndarray:
    """Ridge regression through the origin on columns scaled to root mean square 1; ``strength`` is the penalty per row.

    Returns the weights in the columns' own units, shape (n_features,); a column of zeros has weight 0.
    """
    size = np.sqrt((differences**2).mean(0))
    z = differences / np.where(size > 0, size, 1.0)
    gram = z.T @ z + strength * len(labels) * np.eye(z.shape[1])
    return np.linalg.solve(gram, z.T @ labels) / np.where(size > 0, size, 1.0)


@dataclass(frozen=True)
class _Model:
    """One choice of features and strength, fitted."""

    names: tuple[str, ...]
    strength: float
    weights: np.ndarray
    floor: float

    @classmethod
    def fit(cls, table: _Table, labels: np.ndarray, rows: np.ndarray, names: tuple[str, ...], strength: float) -> Any:
        t = table.columns(names)
        weights = ridge((t.second - t.first)[rows], labels[rows], strength)
        floor = _FLOOR * float(np.median((t.itself - t.empty)[rows] @ weights))
        return cls(names, strength, weights, max(floor, 1e-6))

    def differences(self, table: _Table, rows: np.ndarray) -> np.ndarray:
        t = table.columns(self.names)
        around = t.empty[rows], t.itself[rows]
        first, second = (scaled(self.weights, self.floor, x[rows], *around) for x in (t.first, t.second))
        return second - first


class _Combined(_Model):
    """The same with another metric's recorded scores as further columns; no scale per reference."""

    @classmethod
    def fit(cls, table: _Table, labels: np.ndarray, rows: np.ndarray, names: tuple[str, ...], strength: float) -> Any:
        return cls(names, strength, ridge(cls._columns(table, names)[rows], labels[rows], strength), np.nan)

    def differences(self, table: _Table, rows: np.ndarray) -> np.ndarray:
        return self._columns(table, self.names)[rows] @ self.weights

    @staticmethod
    def _columns(table: _Table, names: tuple[str, ...]) -> np.ndarray:
        t = table.columns(names)
        return np.concatenate([t.second - t.first, t.recorded], 1)


def _agreement(differences: np.ndarray, labels: np.ndarray) -> float:
    """Mean of Pearson and Spearman with the mean labels: what a choice is judged by."""
    if differences.std() == 0 or labels.std() == 0:
        return -1.0
    return float(np.mean([np.corrcoef(x, y)[0, 1] for x, y in _forms(differences, labels)]))


def _forms(*values: np.ndarray) -> list[list[np.ndarray]]:
    """The values as they are, for Pearson, and their ranks, for Spearman."""
    from scipy.stats import rankdata

    return [list(values), [rankdata(v) for v in values]]


def _choose(kind: type[_Model], table: _Table, labels: np.ndarray, folds: np.ndarray, rows: np.ndarray) -> Any:
    """Choose features and strength by leaving out each group of ``rows`` in turn, then fit on all of ``rows``.

    Parameters
    ----------
    table : numbers of all pairs. labels : mean label, shape (n,). folds : group number of each pair, shape (n,).
    rows : bool, the pairs that may be looked at.
    """

    def reached(choice: tuple[tuple[str, ...], float]) -> float:
        predicted = np.empty(len(labels))
        for fold in np.unique(folds[rows]):
            out = rows & (folds == fold)
            predicted[out] = kind.fit(table, labels, rows & ~out, *choice).differences(table, out)
        return _agreement(predicted[rows], labels[rows])

    feature_sets = [tuple(n for group in groups for n in GROUPS[group]) for groups in FEATURE_SETS]
    best = max(itertools.product(feature_sets, STRENGTHS), key=reached)  # the first among equals
    return kind.fit(table, labels, rows, *best)


def _folds(pairs: Sequence[LabelledPair], seed: int) -> tuple[np.ndarray, list[str]]:
    """Number the groups; without at least three, ten folds of questions drawn at random."""
    names = sorted({p.group for p in pairs})
    if len(names) >= 3:
        group: dict[str, str] = {}
        for p in pairs:
            if group.setdefault(p.question, p.group) != p.group:
                raise DataError(
                    f"the question {p.question!r:.60} is in the groups {group[p.question]!r} and {p.group!r}",
                    "every question in one group",
                    "mend its group; else the fit has seen what it is tested on",
                )
        return np.array([names.index(p.group) for p in pairs]), names
    questions = sorted({p.question for p in pairs})
    if len(questions) < 3:
        raise DataError(f"{len(questions)} different questions", "at least 3", "label answers to more questions")
    number = np.random.default_rng(seed).permutation(len(questions)) % min(10, len(questions))
    where = dict(zip(questions, number, strict=True))
    folds = np.array([where[p.question] for p in pairs])
    return folds, [f"random fold {i + 1}" for i in range(folds.max() + 1)]


def _table(pairs: Sequence[LabelledPair], embedder: Embeddings | None, ask: bool = True) -> _Table:
    questions = [p.question if ask else None for p in pairs]
    references = [p.reference for p in pairs]
    both = [p.answers[0] for p in pairs] + [p.answers[1] for p in pairs]
    answers, empty, itself = anchored(questions * 2, references * 2, both, embedder)
    n = len(pairs)
    keys = list(pairs[0].recorded) if all(set(p.recorded) == set(pairs[0].recorded) for p in pairs) else []
    recorded = np.array([[p.recorded[k][1] - p.recorded[k][0] for k in keys] for p in pairs], float).reshape(n, -1)
    return _Table(answers[:n], answers[n:], empty[:n], itself[:n], recorded)


def fit_judge(
    pairs: Sequence[LabelledPair] | None = None,
    embedder: Embeddings | None = None,
    resamples: int = 2000,
    seed: int = 0,
) -> FitReport:
    """Fit the embedded judge and measure it by nested cross-validation over groups.

    Parameters
    ----------
    pairs : labelled pairs; default RAGChecker's 280 from the mirror. Your own: ``read_pairs("pairs.jsonl")``.
    embedder : a LangChain ``Embeddings``; default the embedded MiniLM.
    resamples : of the bootstrap over questions.
    seed : of the bootstrap, and of the folds when the pairs name fewer than three groups.

    Returns
    -------
    FitReport; its coefficients are fitted on all pairs, its numbers come from the pairs each fit had not seen.

    Raises
    ------
    DataError for fewer than 20 pairs, a question in two groups, a reference without a word, or no criterion that all
    pairs share.
    """
    pairs = load_ragchecker_pairs() if pairs is None else list(pairs)
    if len(pairs) < _LEAST_PAIRS:
        raise DataError(f"{len(pairs)} pairs", f"at least {_LEAST_PAIRS}", "label more pairs; 200 make a usable fit")
    criteria = [c for c in pairs[0].labels if all(c in p.labels for p in pairs)]
    if not criteria:
        raise DataError("no criterion is labelled in every pair", "at least one", "label all pairs for 'overall'")
    folds, names = _folds(pairs, seed)
    table, blind = _table(pairs, embedder), _table(pairs, embedder, ask=False)
    bad = np.flatnonzero(np.isnan(table.first).any(1))
    if bad.size:
        raise DataError(f"pair {bad[0]} has a reference without a word", "a reference text", "leave the pair out")
    kinds = {"judge": _Model} | ({"judge + recorded": _Combined} if table.recorded.size else {})
    predictions: dict[str, dict[str, np.ndarray]] = {}
    coefficients: dict[str, Any] = {}
    choices: dict[str, dict[str, tuple[int, float]]] = {}
    for criterion in criteria:
        labels = np.array([np.mean(p.labels[criterion]) for p in pairs])
        out: dict[str, np.ndarray] = {name: np.empty(len(pairs)) for name in [*kinds, "judge, no question"]}
        choices[criterion] = {}
        for fold, name in enumerate(names):
            test = folds == fold
            models = {kind: _choose(cls, table, labels, folds, ~test) for kind, cls in kinds.items()}
            for kind, model in models.items():
                out[kind][test] = model.differences(table, test)
            out["judge, no question"][test] = models["judge"].differences(blind, test)
            choices[criterion][name] = (len(models["judge"].names), models["judge"].strength)
        if criterion in pairs[0].recorded and table.recorded.size:
            out["recorded"] = np.array([p.recorded[criterion][1] - p.recorded[criterion][0] for p in pairs])
        predictions[criterion] = out
        final = _choose(_Model, table, labels, folds, np.ones(len(pairs), bool))
        coefficients[criterion] = {
            "features": list(final.names),
            "weights": [round(float(w), 6) for w in final.weights],
            "strength": final.strength,
            "floor": round(final.floor, 6),
        }
    return FitReport(coefficients, tuple(pairs), tuple(names), predictions, choices, resamples, seed)


@dataclass(frozen=True)
class FitReport:
    """A fitted judge and how well it agrees with people on pairs it had not seen.

    ``predictions[criterion][row]`` are score differences (answer 2 - answer 1), shape (n_pairs,), each from a fit
    without the pair's group. ``choices[criterion][group]`` is (number of features, strength) chosen without it.
    """

    coefficients: dict[str, Any]
    pairs: tuple[LabelledPair, ...]
    groups: tuple[str, ...]
    predictions: dict[str, dict[str, np.ndarray]]
    choices: dict[str, dict[str, tuple[int, float]]]
    resamples: int = 2000
    seed: int = 0

    def _points(self, criterion: str, differences: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Repeat each pair per annotator: mapped differences, labels, question numbers."""
        labels = [p.labels[criterion] for p in self.pairs]
        times = [len(x) for x in labels]
        _, question = np.unique([f"{p.group}\n{p.question}" for p in self.pairs], return_inverse=True)
        mapped = preference_difference(np.zeros(len(differences)), differences)
        return np.repeat(mapped, times), np.concatenate(labels), np.repeat(question, times)

    def table(self) -> pd.DataFrame:
        """Correlations with people, x 100.

        Returns
        -------
        DataFrame with columns criterion, score, n, and for pearson and spearman the value and its 95% interval.
        ``judge`` is nested; ``judge, no question`` is the same weights without the question; ``recorded`` is the other
        metric's own score; ``judge + recorded`` is nested with its scores as further features; ``annotators`` is one
        against the other, where every pair has two labels.
        """
        rows = []
        for criterion, predicted in self.predictions.items():
            points = {name: self._points(criterion, predicted[name]) for name in _ORDER if name in predicted}
            labels = [p.labels[criterion] for p in self.pairs]
            if all(len(x) == 2 for x in labels):
                first, second = np.array(labels).T
                points["annotators"] = (first, second, self._points(criterion, first)[2][::2])
            for name, (x, y, question) in points.items():
                row: dict[str, Any] = {"criterion": criterion, "score": name, "n": len(x)}
                for method in METHODS:
                    r = correlation(x, y, method, groups=question, resamples=self.resamples, seed=self.seed)  # type: ignore[arg-type]
                    row |= {column: 100 * value for column, value in r.columns(method).items()}
                rows.append(row)
        return pd.DataFrame(rows)

    def comparison(self) -> pd.DataFrame:
        """The judge minus the recorded metric, x 100, on the same resampled questions.

        Returns
        -------
        DataFrame with columns criterion, method, difference, low, high (95% interval) and above: the share of resamples
        in which the judge is ahead. Empty without recorded scores.
        """
        rows = []
        for criterion, predicted in self.predictions.items():
            if "recorded" not in predicted:
                continue
            ours, truth, question = self._points(criterion, predicted["judge"])
            theirs = self._points(criterion, predicted["recorded"])[0]
            rng = np.random.default_rng(self.seed)
            members = [np.flatnonzero(question == q) for q in range(question.max() + 1)]
            leads = []  # one row per resample, one column per method; the first is the sample itself
            for b in range(self.resamples + 1):
                chosen = rng.integers(len(members), size=len(members)) if b else range(len(members))
                i = np.concatenate([members[q] for q in chosen])
                matrices = [np.corrcoef(form) for form in _forms(ours[i], theirs[i], truth[i])]
                leads.append([100 * float(r[0, 2] - r[1, 2]) for r in matrices])
            for method, (lead, *sample) in zip(METHODS, np.array(leads).T, strict=True):
                low, high = np.percentile(sample, [2.5, 97.5]) if sample else (np.nan, np.nan)
                above = float((np.array(sample) > 0).mean()) if sample else np.nan
                rows.append((criterion, method, lead, low, high, above))
        return pd.DataFrame(rows, columns=["criterion", "method", "difference", "low", "high", "above"])

    def card(self, **more: Any) -> dict[str, Any]:
        """Provenance card: what was fitted on what, how it was measured, with which numbers, and where it ends."""
        numbers = {
            f"{row['criterion']}, {row['score']}": {
                m: [round(row[column], 2) for column in (m, f"{m}_low", f"{m}_high")] for m in METHODS
            }
            for row in self.table().to_dict("records")
        }
        return {
            "pairs": len(self.pairs),
            "labels": {c: sum(len(p.labels[c]) for p in self.pairs) for c in self.coefficients},
            "groups": dict(Counter(p.group for p in self.pairs)),
            "folds": f"each of {len(self.groups)} groups left out in turn; "
            "every choice made inside the others (nested)",
            "chosen_in_folds": {c: {g: list(v) for g, v in x.items()} for c, x in self.choices.items()},
            "numbers_x100": numbers,
            "interval": f"95%, {self.resamples} bootstrap resamples of questions",
            "limits": list(LIMITS),
        } | more

    def __str__(self) -> str:
        lines = [
            f"{len(self.pairs)} pairs, {len(self.groups)} groups; each number from fits without the pair's group",
            self.table().to_string(index=False, float_format="%.1f"),
        ]
        other = self.comparison()
        if len(other):
            lines += ["judge minus recorded:", other.to_string(index=False, float_format="%.2f")]
        for criterion, chosen in self.choices.items():
            counted = Counter(chosen.values()).most_common()
            folds = ", ".join(f"{f} features, strength {s} ({n} folds)" for (f, s), n in counted)
            lines.append(f"{criterion}: {folds}")
        return "\n".join(lines)

    def save(self, path: str | Path, **more: Any) -> None:
        """Write coefficients and card as JSON, to be loaded with ``EmbeddedJudge(coefficients=path)``."""
        data = {"criteria": self.coefficients, "card": self.card(fitted=f"{datetime.date.today()}", **more)}
        Path(path).write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
