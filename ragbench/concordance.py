"""Concordance: the same answers scored by the metrics of all four papers, and how far these agree.

With each other over answers, with reference grades, and in the ranking of systems. Every metric is turned so that more
is better before it is compared (hallucination counts as its negative), so a positive number always means agreement.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from ragbench.errors import DataError, check_known, unknown
from ragbench.labelling.checkers import split_claims
from ragbench.labelling.embedded_judge import EmbeddedJudge
from ragbench.labelling.grades import grade, plan_grading
from ragbench.llm import Plan
from ragbench.metrics.claims import GROUPS
from ragbench.metrics.lexical import idf_overlap, idf_weights
from ragbench.metrics.table import lower_is_better
from ragbench.records import Answer, Grade, Question
from ragbench.scoring import plan_score, score
from ragbench.stats import correlation, separation
from ragbench.stats.inputs import group_counts, percentiles

_READS = {"overall": "answer", "retriever": "context", "generator": "answer and context"}  # by RAGChecker's groups

# Metric -> number of `ragbench.metrics.table`, paper, and what it looks at ("answer" with the true answer). The numbers
# right, preference and idf_overlap are made here.
METRICS = pd.DataFrame(
    [
        ("IR score", "ir_score", "thesis", "context"),
        ("grader: fully right", "right", "thesis", "answer"),
        *(
            (f"RAGChecker {name.replace('_', ' ')}", name, "RAGChecker", _READS[group])
            for group, names in GROUPS.items()
            for name in names
        ),
        ("RAGAS faithfulness", "ragas_faithfulness", "RAGAS", "answer and context"),
        ("RAGAS answer relevance", "answer_relevance", "RAGAS", "answer"),
        ("RAGAS context relevance", "context_relevance", "RAGAS", "context"),
        ("RAGEval completeness", "completeness", "RAGEval", "answer"),
        ("RAGEval hallucination", "keypoints_hallucination", "RAGEval", "answer"),
        ("RAGEval irrelevance", "irrelevance", "RAGEval", "answer"),
        ("RAGEval recall", "reference_recall", "RAGEval", "context"),
        ("RAGEval EIR", "eir", "RAGEval", "context"),
        ("exact match", "exact_match", "lexical", "answer"),
        ("token F1", "token_f1", "lexical", "answer"),
        ("ROUGE-L", "rouge_l", "lexical", "answer"),
        ("BLEU", "bleu", "lexical", "answer"),
        ("IDF overlap", "idf_overlap", "lexical", "answer"),
        ("judge: preference", "preference", "ragbench", "answer"),
    ],
    columns=["metric", "number", "paper", "reads"],
).set_index("metric")
METRICS["higher"] = ~METRICS["number"].isin(lower_is_better())
NAMES = tuple(METRICS.index)
_ASKED = [name for name in METRICS["number"] if name not in ("right", "preference", "idf_overlap")]


def long_reference(question: Question) -> str:
    """Return the long true answer: the data set's own, else the short one followed by the supporting sentences."""
    of_data = str(question.meta.get("long_answer", "")).strip()
    return of_data or "\n".join([question.answer, *dict.fromkeys(question.references)])


def _reference_claims(question: Question) -> list[str]:
    """Return the claims of the true answer: the data set's own, else the supporting sentences."""
    of_data = [claim["text"] for claim in question.meta.get("claims", ())]
    return of_data or list(dict.fromkeys(c for text in question.references for c in split_claims(text)))


def _asked(cases: pd.DataFrame, questions: Sequence[Question]) -> list[Question]:
    by_id = {question.id: question for question in questions}
    return [by_id[name] for name in cases["question_id"]]


def _answers(cases: pd.DataFrame) -> list[Answer]:
    return [Answer(name, text, "") for name, text in zip(cases["question_id"], cases["answer"], strict=True)]


def with_true_answers(cases: pd.DataFrame, questions: Sequence[Question]) -> pd.DataFrame:
    """Put beside cases what `ragbench.score` compares them with: long true answer, its claims, keypoints."""
    asked = _asked(cases, questions)
    cases = cases.assign(
        answer=cases["answer"].fillna(""),
        long_reference=[long_reference(q) for q in asked],
        reference_claims=[_reference_claims(q) for q in asked],
        keypoints=[list(q.meta.get("keypoints", ())) or [q.answer] for q in asked],
    )
    return cases if "case" in cases else cases.assign(case=cases["question_id"] + " " + cases["system"])


def score_cases(
    cases: pd.DataFrame, questions: Sequence[Question], labels: Any = "embedded", **options: Any
) -> pd.DataFrame:
    """Score every answer by every metric.

    Parameters
    ----------
    cases : an answer per row, in the columns of ``Experiment.answers``; ``case`` names one (default: question and
        system). An answer that failed counts as empty.
    questions : those asked, with long true answer, claims and keypoints in their ``meta`` where the data set has them.
    labels, options : as for `ragbench.score`.

    Returns
    -------
    DataFrame, one row per case: case, question_id, system, grade (the reference grade, where there is one), and
    `METRICS` (NaN where undefined or unread; "judge: preference" is always the embedded judge's).
    """
    cases, asked = with_true_answers(cases, questions), _asked(cases, questions)
    table = score(cases, _ASKED, labels, **options)
    table["right"] = [_right(each) for each in grade(labels, questions, _answers(cases), **options)]
    texts, references = cases["answer"].tolist(), cases["long_reference"].tolist()
    table["preference"] = EmbeddedJudge().scores(texts, references, [q.text for q in asked])
    idf = idf_weights({q.id: f"{q.answer} {q.text}" for q in asked}.values())
    table["idf_overlap"] = [idf_overlap(text, q.answer, idf) for text, q in zip(texts, asked, strict=True)]
    named = table[METRICS["number"]].set_axis(METRICS.index, axis=1)
    return pd.concat([table[["case", "question_id", "system"]], table.get("grade"), named], axis=1)


def plan_cases(cases: pd.DataFrame, questions: Sequence[Question], labels: Any, cassette: Any = None) -> Plan:
    """Say what `score_cases` will ask a chat model."""
    cases = with_true_answers(cases, questions)
    grading = plan_grading(labels, questions, _answers(cases), cassette=cassette)
    return plan_score(cases, _ASKED, labels, cassette=cassette) + grading


def _right(graded: Grade) -> float:
    """Probability of grade 5; a model's grade gives 0 or 1, an unread one NaN."""
    if graded.value is None:
        return np.nan
    return graded.meta["probabilities"][4] if "probabilities" in graded.meta else float(graded.value == 5)


# How far metrics agree


def _turned(table: pd.DataFrame, metrics: Sequence[str]) -> dict[str, np.ndarray]:
    """Columns as arrays in which more is better."""
    for name in metrics:
        if name not in table:
            raise unknown("metric", name, [n for n in NAMES if n in table])
    return {
        name: table[name].to_numpy(float) * (1.0 if METRICS["higher"].get(name, True) else -1.0) for name in metrics
    }


def metric_correlations(
    table: pd.DataFrame, metrics: Sequence[str] = NAMES, *, resamples: int = 500, seed: int = 0
) -> pd.DataFrame:
    """Correlate every two metrics over answers, with a bootstrap over questions (``resamples=0``: none).

    The table has a, b, method, estimate, low, high (95%), n (answers scored by both), missing; NaN where a metric has
    only one value.
    """
    rows = []
    for (a, x), (b, y) in combinations(_turned(table, metrics).items(), 2):
        for method in ("spearman", "kendall"):
            i = correlation(x, y, method, groups=table["question_id"].tolist(), resamples=resamples, seed=seed)
            rows.append((a, b, method, i.estimate, i.low, i.high, i.n, i.n_missing))
    return pd.DataFrame(rows, columns=["a", "b", "method", "estimate", "low", "high", "n", "missing"])


def correlation_matrix(pairs: pd.DataFrame, method: str | None = None) -> pd.DataFrame:
    """Lay out pairs (columns a, b, estimate, and method if there are several) as a symmetric matrix."""
    if method is not None:
        check_known("method", [method], list(dict.fromkeys(pairs["method"])))
        pairs = pairs[pairs["method"] == method]
    names = list(dict.fromkeys([*pairs["a"], *pairs["b"]]))
    matrix = pd.DataFrame(np.eye(len(names)), index=names, columns=names)
    for a, b, estimate in pairs[["a", "b", "estimate"]].itertuples(index=False):
        matrix.loc[a, b] = matrix.loc[b, a] = estimate
    return matrix


def cluster_order(matrix: pd.DataFrame) -> tuple[list[str], np.ndarray]:
    """Order metrics so that like ones stand together: average linkage on 1 - correlation (undefined counts as 0).

    Returns
    -------
    (names in order, linkage of `scipy.cluster.hierarchy` over the matrix's own order), empty for fewer than two.
    """
    from scipy.cluster.hierarchy import leaves_list, linkage, optimal_leaf_ordering
    from scipy.spatial.distance import squareform

    if len(matrix) < 2:
        return list(matrix.index), np.empty((0, 4))
    distance = 1 - np.nan_to_num(matrix.to_numpy(float), nan=0.0)
    np.fill_diagonal(distance, 0)
    condensed = squareform(distance.clip(min=0), checks=False)
    tree = optimal_leaf_ordering(linkage(condensed, "average"), condensed)
    return [matrix.index[i] for i in leaves_list(tree)], tree


def grade_agreement(
    table: pd.DataFrame, metrics: Sequence[str] = NAMES, *, right: int = 5, resamples: int = 1000, seed: int = 0
) -> pd.DataFrame:
    """Say how well each metric tells answers with the reference grade ``right`` from the others.

    Returns
    -------
    DataFrame, best first: metric, auc (chance that a right answer scores above another; ties count half), low, high
    (bootstrap over questions), tau (Kendall's tau-b with right or not), within (share of pairs of a right and another
    answer *to the same question* that the metric orders rightly, ties half: the question's own difficulty has no part
    in it), pairs (of that kind), n, missing (without score or grade). NaN without right and other answers.
    """
    if not table["grade"].notna().any():
        raise DataError("no grades", "answers with reference grades", "use cases of graded answers")
    grades = table["grade"].astype(float).to_numpy()
    rows = []
    for name, values in _turned(table, metrics).items():
        present = ~np.isnan(values) & ~np.isnan(grades)
        x, good = values[present], grades[present] == right
        groups = table["question_id"].to_numpy()[present]
        auc, low, high = separation(x, good, groups, resamples=resamples, seed=seed)
        tau = correlation(x, good.astype(float), "kendall", resamples=0).estimate
        rows.append((name, auc, low, high, tau, *_within(x, good, groups), present.sum(), (~present).sum()))
    columns = ["metric", "auc", "low", "high", "tau", "within", "pairs", "n", "missing"]
    frame = pd.DataFrame(rows, columns=columns)
    return frame.sort_values("auc", ascending=False, kind="stable", ignore_index=True)


def _within(values: np.ndarray, good: np.ndarray, groups: np.ndarray) -> tuple[float, int]:
    won, pairs = 0.0, 0
    for name in dict.fromkeys(groups[good].tolist()):
        of_question = groups == name
        gaps = values[of_question & good][:, None] - values[of_question & ~good][None, :]
        won += float((gaps > 0).sum() + (gaps == 0).sum() / 2)
        pairs += gaps.size
    return (won / pairs if pairs else np.nan), pairs


def ranking_correlations(
    table: pd.DataFrame, metrics: Sequence[str] = NAMES, *, resamples: int = 1000, seed: int = 0
) -> pd.DataFrame:
    """Kendall's tau-b between the rankings of systems that metrics give by their means.

    Every system has to answer every question. The table has a, b, estimate, low, high (bootstrap over questions),
    systems; NaN for a metric by which all systems are equal.
    """
    systems, questions = list(dict.fromkeys(table["system"])), list(dict.fromkeys(table["question_id"]))
    if len(systems) < 3:
        raise DataError(f"{len(systems)} systems", "at least 3, or there is no ranking", "add retrievers or budgets")
    cells = table.set_index(["system", "question_id"])
    if not cells.index.is_unique or len(cells) != len(systems) * len(questions):
        raise DataError(
            f"{len(cells)} answers of {len(systems)} systems to {len(questions)} questions",
            "every question answered once by every system",
            "leave out questions that a system lacks",
        )
    ordered = cells.reindex(pd.MultiIndex.from_product([systems, questions]))
    draws = [np.ones((1, len(questions))), *group_counts(len(questions), resamples, seed, len(systems))]
    turned = _turned(ordered, metrics)
    signs = {name: _pair_signs(x.reshape(len(systems), -1), draws) for name, x in turned.items()}
    rows = []
    for (a, x), (b, y) in combinations(signs.items(), 2):
        scale = np.sqrt((x**2).sum(1) * (y**2).sum(1))
        tau = np.divide((x * y).sum(1), scale, out=np.full(len(x), np.nan), where=scale > 0)
        low, high = percentiles(tau[1:], 0.95)
        rows.append((a, b, float(tau[0]), low, high, len(systems)))
    return pd.DataFrame(rows, columns=["a", "b", "estimate", "low", "high", "systems"])


def _pair_signs(values: np.ndarray, draws: Sequence[np.ndarray]) -> np.ndarray:
    """Which of every two systems has the higher mean, per resample: -1, 0, 1, shape (resamples, pairs)."""
    known = ~np.isnan(values)
    filled = np.where(known, values, 0.0)
    first, second = np.triu_indices(len(values), 1)
    signs = []
    for counts in draws:
        total, n = counts @ filled.T, counts @ known.T.astype(float)
        means = np.divide(total, n, out=np.full(total.shape, np.nan), where=n > 0)
        gap = np.round(means[:, first] - means[:, second], 12)  # sums in another order are no difference
        signs.append(np.sign(np.nan_to_num(gap, nan=0.0)))
    return np.concatenate(signs)


def disagreements(table: pd.DataFrame, metrics: Sequence[str], top: int = 5) -> pd.DataFrame:
    """Find the answers on which metrics part most, each brought to one scale: the share of answers that score lower.

    Returns
    -------
    DataFrame indexed by case, most disagreement first: question_id, system, grade, a column per metric with that share
    (0 worst, 1 best, ties half, NaN undefined), spread (largest minus smallest). An answer that fewer than two metrics
    score is left out.
    """
    turned = pd.DataFrame(_turned(table, metrics), table.index)
    shares = (turned.rank() - 0.5) / turned.count()
    frame = table[["case", "question_id", "system", "grade"]].assign(**shares)
    frame["spread"] = (shares.max(axis=1) - shares.min(axis=1)).where(shares.notna().sum(axis=1) > 1)
    frame = frame.dropna(subset="spread").sort_values("spread", ascending=False, kind="stable")
    return frame.head(top).set_index("case")
