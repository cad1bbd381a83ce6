"""Numbers of what a retriever delivered, and which of them tells the context that gives the right answer, within
a question: read by notebook 16 and by scripts/ship_hotpotqa.py (docs/preregistration/retrieval_numbers.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import minimize

from ragbench import stats
from ragbench.metrics.keypoints import effective_information_rate, reference_recall
from ragbench.metrics.lexical import claim_overlap, contained
from ragbench.metrics.ranking import rank_table
from ragbench.metrics.table import METRICS

RANKS = ("nDCG@10", "AP", "Success@10")
GAIN = "gain less distraction"
# in the order of the plan, which breaks ties
NUMBERS = (
    "IR score",
    "recall of documents",
    "recall of sentences",
    *RANKS,
    "claim overlap",
    "EIR",
    GAIN,
    "answer in the text",
    "tokens",
)
MEASURED = tuple("distraction" if name == GAIN else name for name in NUMBERS)  # before anything is fitted
ALL = "all together"
RIDGE = 1.0
PENALTIES = np.arange(11) / 10


# -- what was delivered


def context_rows(rows: pd.DataFrame) -> pd.DataFrame:
    """A row a context: its numbers, and no text.

    ``rows`` : of an Experiment with one data set. ``same`` numbers the different texts of a question.
    """
    delivered = [row.retrieved[: len(row.chunks)] for row in rows.itertuples()]
    about = rows[["question_id", "retriever", "N"]].reset_index(drop=True)
    about["same"] = rows.groupby("question_id")["context"].transform(lambda texts: pd.factorize(texts)[0]).to_numpy()
    values = pd.DataFrame([_numbers(row) for row in rows.itertuples()])
    values[list(RANKS)] = rank_table(delivered, rows["relevant"].tolist(), RANKS)
    pairs = zip(delivered, rows["relevant"], strict=True)
    values["recall of documents"] = [len(set(found) & set(relevant)) / len(relevant) for found, relevant in pairs]
    return about.join(values[list(MEASURED)].round(6))


def _numbers(row: Any) -> dict[str, float]:
    """What is measured of one context, but for the ranks of its documents."""
    return {
        "IR score": row.ir_score,
        "recall of sentences": reference_recall(row.references, row.chunks),
        "claim overlap": METRICS["claim_overlap"].function(row.reference, row.chunks),
        "EIR": effective_information_rate(row.references, row.chunks),
        "distraction": distraction(row.question, row.references, row.chunks),
        "answer in the text": contained(row.context, row.reference),
        "tokens": row.context_tokens,
    }


def distraction(question: str, references: Sequence[str], chunks: Sequence[str]) -> float:
    """The mean share of the question's words in a chunk that holds no whole supporting sentence; 0 without one."""
    others = [chunk for chunk in chunks if not reference_recall(references, [chunk])]
    return float(np.mean([claim_overlap(question, chunk, {}) for chunk in others])) if others else 0.0


def distinct(contexts: pd.DataFrame) -> pd.DataFrame:
    """Contexts that have a label, those of one question with the same text once."""
    labelled = contexts.dropna(subset="right")
    return labelled.drop_duplicates(["question_id", "same"]).reset_index(drop=True)


# -- within a question


def by_question(contexts: pd.DataFrame, numbers: Sequence[str]) -> dict[Any, tuple[np.ndarray, np.ndarray]]:
    """By question that tells something: which contexts are right, and their numbers, a row a context."""
    right = contexts["right"].to_numpy(bool)
    values = contexts[list(numbers)].to_numpy(float)
    groups = contexts.groupby("question_id", sort=False).indices
    parts = {name: (right[places], values[places]) for name, places in groups.items()}
    return {name: part for name, part in parts.items() if part[0].any() and not part[0].all()}


def differences(right: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The numbers of a right context less those of a wrong one of the same question, a row a pair."""
    return (values[right][:, None] - values[~right]).reshape(-1, values.shape[1])


def share_of_pairs(right: np.ndarray, values: np.ndarray) -> float:
    """The share of pairs in which the right context has the higher number; ties count one half."""
    return float((1 + np.sign(differences(right, values).round(9)).mean()) / 2)


def within_questions(contexts: pd.DataFrame, number: str) -> pd.Series:
    """The share of pairs of each question that tells something."""
    shares = {name: share_of_pairs(*part) for name, part in by_question(contexts, [number]).items()}
    return pd.Series(shares, dtype=float)


def auc(contexts: pd.DataFrame, number: str) -> stats.Interval:
    """The mean over questions, with its interval over clusters."""
    shares = within_questions(contexts, number)
    return stats.mean_interval(shares, cluster=_clusters(contexts, shares))


def minus(contexts: pd.DataFrame, number: str, other: str | None = None) -> stats.Interval:
    """The AUC of a number less that of another one, or less .5; ``p`` is the test's."""
    shares = within_questions(contexts, number)
    others = within_questions(contexts, other) if other else shares * 0 + 0.5
    return stats.paired_difference(shares, others, cluster=_clusters(contexts, shares))


def _clusters(contexts: pd.DataFrame, shares: pd.Series) -> list[Any]:
    return contexts.groupby("question_id")["cluster"].first()[shares.index].tolist()


def shuffled(contexts: pd.DataFrame, number: str, times: int, seed: int = 0) -> np.ndarray:
    """AUCs of the number when its values are shuffled among the contexts of a question."""
    rng = np.random.default_rng(seed)
    parts = by_question(contexts, [number]).values()
    drawn = [[share_of_pairs(right, rng.permutation(values)) for right, values in parts] for _ in range(times)]
    return np.mean(drawn, axis=1)


# -- fitted in one set, used in another


class Fitted:
    """What a training set decides: the penalty of distraction, the better direction of the tokens, the weights of
    all numbers together, and the order of the numbers by AUC.
    """

    def __init__(self, train: pd.DataFrame) -> None:
        self.penalty, self.direction = 0.0, 1.0
        reached = {}
        for penalty in PENALTIES:
            gain = train["recall of sentences"] - penalty * train["distraction"]
            reached[penalty] = within_questions(train.assign(gain=gain), "gain").mean()
        self.penalty = max(reached, key=reached.__getitem__)
        if within_questions(train, "tokens").mean() < 0.5:
            self.direction = -1.0
        self.weights = _weights(train)
        ready = self.apply(train)
        reached = {name: within_questions(ready, name).mean() for name in NUMBERS}
        self.order = sorted(NUMBERS, key=lambda name: -round(reached[name], 9))

    def apply(self, contexts: pd.DataFrame) -> pd.DataFrame:
        """Contexts with the fitted numbers."""
        gain = contexts["recall of sentences"] - self.penalty * contexts["distraction"]
        together = contexts[list(MEASURED)].to_numpy(float) @ self.weights
        return contexts.assign(**{GAIN: gain, "tokens": self.direction * contexts["tokens"], ALL: together})


def _weights(train: pd.DataFrame) -> np.ndarray:
    """Weights by logistic regression on the differences between a right and a wrong context, each question of
    weight 1, with a ridge penalty.
    """
    pairs = [differences(*part) for part in by_question(train, MEASURED).values()]
    x = np.concatenate(pairs)
    weight = np.concatenate([np.full(len(part), 1 / len(part)) for part in pairs])
    scale = x.std(axis=0)
    scale[scale == 0] = 1
    z = x / scale

    def loss(beta: np.ndarray) -> float:
        return weight @ np.logaddexp(0, -z @ beta) + RIDGE / 2 * beta @ beta

    return minimize(loss, np.zeros(len(MEASURED))).x / scale
