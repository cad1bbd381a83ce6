"""Fit the embedded judge on RAGChecker's human preferences, and test it on domains that its fit has not seen.

    RAGBENCH_DATA=... python scripts/fit_embedded_judge.py

A pair's preference is modelled as the difference of two scores. A score is a weighted sum of features, so ridge
regression of the mean label on feature differences gives the weights (no constant: swapping the answers must flip the
sign). One domain at a time is left out. Which features and how much ridge is chosen by leaving out each of the
*remaining* domains in turn, so the tested domain has no part in any choice (nested cross-validation).

Writes ``embedded_judge.json`` (coefficients and their card) and ``embedded_judge_nested.csv`` (the score differences of
every pair from fits without its domain, which notebook 21 compares with people).
"""

from __future__ import annotations

import datetime
import itertools
import json
from collections import Counter
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from ragbench.data.ragchecker import ASPECTS, load_ragchecker_meta
from ragbench.embedding import default_embedder
from ragbench.labelling.embedded_judge import COEFFICIENTS, GROUPS, NAMES, NESTED, anchored, scaled
from ragbench.stats import correlation, preference_difference

FEATURE_SETS = (
    ("overlap", "form"),
    ("overlap", "form", "vector"),
    ("overlap", "form", "vector", "facts"),
    ("overlap", "form", "vector", "facts", "order"),
    tuple(GROUPS),
)
STRENGTHS = (0.1, 0.3, 1.0, 3.0)  # ridge per pair, features scaled to root mean square 1
FLOOR = 0.25  # of the median distance between reference and empty answer
LIMITS = (
    "English, long-form answers (median reference 118 words in RAGChecker's data); short factual answers were not "
    "among the labels.",
    "Fitted on preferences between two answers to one question: scores of different questions compare less surely.",
    "Sees words, numbers, names and topic, not entailment: a contradiction in the reference's own words scores high.",
    "Features and the candidate sets were designed with these pairs in view; weights, sets and strengths were chosen "
    "without the tested group.",
)


class Table(NamedTuple):
    """Numbers of n pairs: features of both answers, the empty answer and the reference, shape (n, n_features) each."""

    first: np.ndarray
    second: np.ndarray
    empty: np.ndarray
    itself: np.ndarray
    recorded: np.ndarray  # differences of RAGChecker's scores, shape (n, n_scores)

    def columns(self, names):
        j = [NAMES.index(name) for name in names]
        return Table(*(part[:, j] for part in self[:4]), self.recorded)


def feature_table(pairs, embedder, with_question=True):
    questions = pairs["question"].tolist() if with_question else [None] * len(pairs)
    answers = [responses[side] for side in (0, 1) for responses in pairs["responses"]]
    rows, empty, itself = anchored(questions * 2, pairs["reference"].tolist() * 2, answers, embedder)
    n, recorded = len(pairs), [name for name in pairs if name.startswith("recorded ")]
    gaps = np.hstack([np.diff(np.stack(pairs[name])) for name in recorded])
    return Table(rows[:n], rows[n:], empty[:n], itself[:n], gaps)


def ridge(differences, labels, strength):
    """Ridge regression through the origin on columns scaled to root mean square 1; ``strength`` is the penalty per row.

    Returns the weights in the columns' own units, shape (n_features,); a column of zeros has weight 0.
    """
    size = np.sqrt((differences**2).mean(0))
    z = differences / np.where(size > 0, size, 1.0)
    gram = z.T @ z + strength * len(labels) * np.eye(z.shape[1])
    return np.linalg.solve(gram, z.T @ labels) / np.where(size > 0, size, 1.0)


class Judge(NamedTuple):
    """One choice of features and strength, fitted; ``recorded``: with RAGChecker's scores as further columns."""

    names: tuple[str, ...]
    strength: float
    recorded: bool
    weights: np.ndarray
    floor: float

    def differences(self, table, rows):
        t = table.columns(self.names)
        if self.recorded:
            return np.concatenate([t.second - t.first, t.recorded], 1)[rows] @ self.weights
        around = t.empty[rows], t.itself[rows]
        first, second = (scaled(self.weights, self.floor, part[rows], *around) for part in (t.first, t.second))
        return second - first


def fit(table, labels, rows, names, strength, recorded=False):
    t = table.columns(names)
    columns = np.concatenate([t.second - t.first, t.recorded], 1) if recorded else t.second - t.first
    weights = ridge(columns[rows], labels[rows], strength)
    floor = np.nan if recorded else max(FLOOR * float(np.median((t.itself - t.empty)[rows] @ weights)), 1e-6)
    return Judge(names, strength, recorded, weights, floor)


def choose(table, labels, folds, rows, recorded=False):
    """Choose features and strength by leaving out each fold of ``rows`` in turn, then fit on all of ``rows``."""

    def reached(choice):
        predicted = np.empty(len(labels))
        for fold in np.unique(folds[rows]):
            out = rows & (folds == fold)
            predicted[out] = fit(table, labels, rows & ~out, *choice, recorded).differences(table, out)
        x, y = predicted[rows], labels[rows]
        if x.std() == 0 or y.std() == 0:
            return -1.0
        return float(np.mean([np.corrcoef(x, y)[0, 1], np.corrcoef(rankdata(x), rankdata(y))[0, 1]]))

    feature_sets = [tuple(name for group in groups for name in GROUPS[group]) for groups in FEATURE_SETS]
    best = max(itertools.product(feature_sets, STRENGTHS), key=reached)  # the first among equals
    return fit(table, labels, rows, *best, recorded)


def nested(table, blind, labels, folds):
    """Return the score differences of each pair from fits without its fold, and the judge chosen for each fold."""
    out = {row: np.empty(len(labels)) for row in ("judge", "judge, no question", "judge + recorded")}
    chosen = {}
    for fold in np.unique(folds):
        test = folds == fold
        judge = chosen[fold] = choose(table, labels, folds, ~test)
        out["judge"][test] = judge.differences(table, test)
        out["judge, no question"][test] = judge.differences(blind, test)
        out["judge + recorded"][test] = choose(table, labels, folds, ~test, True).differences(table, test)
    return pd.DataFrame(out), chosen


def agreement(differences, labels):
    """Correlations x 100 with every annotator's label, and their 95% intervals over questions (one per pair)."""
    pair = np.repeat(np.arange(len(labels)), labels.shape[1])
    points = preference_difference(np.zeros(len(differences)), differences)[pair], labels.ravel()
    found = {m: correlation(*points, m, groups=pair) for m in ("pearson", "spearman")}
    return {m: [round(100 * number, 2) for number in (r.estimate, r.low, r.high)] for m, r in found.items()}


def main() -> None:
    meta, embedder = load_ragchecker_meta(), default_embedder()
    table, blind = (feature_table(meta, embedder, with_question) for with_question in (True, False))
    domains = meta["domain"].to_numpy()
    criteria, predictions, chosen_in_folds, numbers = {}, [], {}, {}
    for criterion in ASPECTS:
        labels = np.stack(meta[criterion])
        found, chosen = nested(table, blind, labels.mean(axis=1), domains)
        predictions.append(found.assign(pair=meta["id"].tolist(), criterion=criterion))
        chosen_in_folds[criterion] = {fold: [len(judge.names), judge.strength] for fold, judge in chosen.items()}
        found["recorded"] = np.diff(np.stack(meta[f"recorded {criterion}"])).ravel()
        numbers |= {f"{criterion}, {row}": agreement(found[row], labels) for row in found}
        final = choose(table, labels.mean(axis=1), domains, np.ones(len(labels), bool))
        weights = [round(float(weight), 6) for weight in final.weights]
        entry = {"features": list(final.names), "weights": weights, "strength": final.strength}
        criteria[criterion] = entry | {"floor": round(final.floor, 6)}
    card = {
        "pairs": len(meta),
        "labels": {criterion: np.stack(meta[criterion]).size for criterion in ASPECTS},
        "groups": dict(Counter(domains.tolist())),
        "folds": "each of 10 groups left out in turn; every choice made inside the others (nested)",
        "chosen_in_folds": chosen_in_folds,
        "numbers_x100": numbers,
        "interval": "95%, 2000 bootstrap resamples of questions",
        "limits": list(LIMITS),
        "fitted": f"{datetime.date.today()}",
        "data": "RAGChecker meta_evaluation: 280 pairs of answers, two annotators (Apache-2.0; "
        "github.com/amazon-science/RAGChecker)",
        "recorded": "RAGChecker's own precision, recall and F1 (Llama3-70B)",
        "embedder": embedder.model_id,
        "script": "scripts/fit_embedded_judge.py",
    }
    COEFFICIENTS.write_text(json.dumps({"criteria": criteria, "card": card}, indent=1) + "\n", encoding="utf-8")
    pd.concat(predictions).set_index(["pair", "criterion"]).to_csv(NESTED)
    print(pd.DataFrame(numbers).T, f"written: {COEFFICIENTS.name}, {NESTED.name}", sep="\n")


if __name__ == "__main__":
    main()
