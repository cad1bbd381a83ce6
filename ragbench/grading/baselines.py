"""What a judge must beat, each tuned on dev: the majority class, exact match, cut-offs on ROUGE-L, its words."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ragbench.errors import DataError
from ragbench.grading.categories import GRADES, by_id, check_grades, question_of
from ragbench.grading.graded import GradedAnswer
from ragbench.records import Question
from ragbench.stats import Interval, paired_bootstrap_difference


@dataclass(frozen=True, slots=True)
class Cutoffs:
    """Grades by a score: ``grades[i]`` for scores from ``cuts[i - 1]`` up to below ``cuts[i]``."""

    cuts: tuple[float, ...]
    grades: tuple[int, ...]

    def __call__(self, scores: Sequence[float]) -> list[int]:
        """Return the grade of each score."""
        return [self.grades[i] for i in np.searchsorted(self.cuts, scores, side="right")]


def fit_cutoffs(scores: Sequence[float], grades: Sequence[int], most: int = 4) -> Cutoffs:
    """Find the cut-offs, and a grade for each range between them, with the most right grades.

    Parameters
    ----------
    scores, grades : shape (n,), n at least 1.
    most : cut-offs at most; four make five ranges.

    Returns
    -------
    Cutoffs; the best of all partitions into ``most + 1`` ranges or fewer (dynamic programming), the fewest among
    equals, cuts half-way between neighbouring scores.

    Raises
    ------
    DataError for no scores, lengths that differ, or scores that are not finite.
    """
    x, labels = np.asarray(scores, float), check_grades(grades, "grades")
    if not len(x) or len(x) != len(labels) or not np.isfinite(x).all() or None in labels:
        raise DataError(f"{len(x)} scores, {len(labels)} grades", "as many finite scores as grades", "check the rows")
    levels, where = np.unique(x, return_inverse=True)
    counts = np.zeros((len(levels) + 1, len(GRADES)), int)
    np.add.at(counts, (where + 1, np.array(labels) - 1), 1)
    total = counts.cumsum(0)
    # best[j]: most right among the first j levels with the ranges used so far.
    best, back = total.max(1), [np.zeros(len(levels) + 1, int)]
    used, top = 0, best[-1]
    for ranges in range(1, most + 1):
        gain = np.max(total[None, :, :] - total[:, None, :], axis=2)
        allowed = np.where(np.tri(len(levels) + 1, k=-1, dtype=bool).T, best[:, None] + gain, -1)
        back.append(allowed.argmax(0))
        best = allowed.max(0)
        if best[-1] > top:
            used, top = ranges, best[-1]
    ends = [len(levels)]
    for ranges in range(used, 0, -1):
        ends.append(int(back[ranges][ends[-1]]))
    edges = [0, *reversed(ends)]
    pieces = [total[b] - total[a] for a, b in itertools.pairwise(edges)]
    cuts = tuple(float((levels[e - 1] + levels[e]) / 2) for e in edges[1:-1])
    return Cutoffs(cuts, tuple(int(piece.argmax()) + 1 for piece in pieces))


def baseline_grades(
    questions: Sequence[Question], dev: Sequence[GradedAnswer], answers: Sequence[GradedAnswer]
) -> dict[str, list[int]]:
    """Grade answers in four ways that know nothing of grading.

    Parameters
    ----------
    questions : those the answers belong to.
    dev : graded answers for tuning. answers : those to be graded; their grades are not looked at.

    Returns
    -------
    dict from name to grades: ``majority class`` (the commonest on dev), ``exact match`` (5, else the commonest of the
    rest), ``ROUGE-L cut-offs`` (up to four, on the F1 against the true answer), ``words and length`` (multinomial
    naive Bayes, add-one, on the answer alone: how far the way it is written gives its grade away).
    """
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.naive_bayes import MultinomialNB
    from sklearn.pipeline import make_pipeline

    from ragbench.metrics.lexical import exact_match, rouge_l

    known = by_id(questions)

    def scores(metric: Any, rows: Sequence[GradedAnswer]) -> list[float]:
        return [metric(a.text, question_of(a.question_id, known, i).answer) for i, a in enumerate(rows)]

    truth = [a.grade for a in dev]
    matches = scores(exact_match, dev)
    rest = Counter(g for g, match in zip(truth, matches, strict=True) if not match).most_common(1)[0][0]
    rouge = fit_cutoffs(scores(rouge_l, dev), truth)
    words = make_pipeline(CountVectorizer(analyzer=_words_and_length), MultinomialNB()).fit(
        [a.text for a in dev], truth
    )
    return {
        "majority class": [Counter(truth).most_common(1)[0][0]] * len(answers),
        "exact match": [5 if match else rest for match in scores(exact_match, answers)],
        "ROUGE-L cut-offs": rouge(scores(rouge_l, answers)),
        "words and length": words.predict([a.text for a in answers]).tolist() if answers else [],
    }


def _words_and_length(text: str) -> list[str]:
    """Return the words, and the length as one more: it doubles from one "<...>" to the next."""
    words = re.findall(r"\w+", text.casefold())
    return [*words, f"<{len(words).bit_length()}>"]


def accuracy_gain(
    judge: Sequence[Any], other: Sequence[Any], gold: Sequence[GradedAnswer], *, resamples: int = 2000, seed: int = 0
) -> Interval:
    """Return how much more often one judge is right than another, with a paired bootstrap interval over questions.

    An unscored answer counts as not right.
    """
    pairs = [
        [float(v == g.grade) for v, g in zip(check_grades(values, name), gold, strict=True)]
        for name, values in (("judge", judge), ("other", other))
    ]
    groups = [g.question_id for g in gold]
    return paired_bootstrap_difference(*pairs, groups=groups, resamples=resamples, seed=seed)
