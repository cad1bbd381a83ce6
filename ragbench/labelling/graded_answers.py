"""How good a judge is: its grades of the graded answers over MiniHop, beside baselines that it must beat.

The grades of these answers are reference labels, assigned by a strong language model under a written guideline; checked
by a person: 0; the second pass measures repeatability, not human agreement. Dev and test share no supporting document.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import pandas as pd
from pydantic import Field

from ragbench.data.files import Filled, Plain, Split, as_record, split_records
from ragbench.errors import DataError, ModelError
from ragbench.labelling.embedded_grader import EmbeddedGrader
from ragbench.labelling.grades import grade
from ragbench.paths import packaged_data
from ragbench.records import GRADES, Answer, Question, questions_of
from ragbench.stats import Interval, bootstrap_ci, confusion_matrix, kappa, paired_bootstrap_difference

_LABELS = tuple(GRADES)
_Grade = Annotated[int, Field(strict=True, ge=1, le=5)]


@dataclass(frozen=True, slots=True)
class GradedAnswer:
    """An answer with its grade. ``second_grade`` is that of a second, blind pass, where there is one."""

    id: Filled
    question_id: Filled
    text: Annotated[Plain, Field(validation_alias="answer")]  # an empty answer is an answer: a judge must grade it too
    grade: _Grade
    split: Split
    second_grade: _Grade | None = None


def load_graded_answers(path: str | Path | None = None, split: str | None = None) -> tuple[GradedAnswer, ...]:
    """Load graded answers: those over MiniHop, or your own file of the same form.

    Parameters
    ----------
    path : JSON lines with ``id``, ``question_id``, ``answer``, ``grade`` (1..5), ``split`` ("dev" or "test") and
        optionally ``second_grade``; default ``data/minihop/graded_answers.jsonl``.
    split : only this one; default both. Tune a judge on "dev" and open "test" when it is finished.
    """
    path = packaged_data("minihop", "graded_answers.jsonl") if path is None else Path(path)
    make = partial(as_record, GradedAnswer)
    return split_records(path, split, make, lambda row: [f"id {row.id!r}"], "question_id")


def as_answers(gold: Sequence[GradedAnswer]) -> list[Answer]:
    """Return graded answers as the Answer records that ``grade`` takes."""
    return [
        Answer(answer.question_id, answer.text, "graded answers", meta={"id": answer.id, "split": answer.split})
        for answer in gold
    ]


# How good a judge is


class SplitReport(NamedTuple):
    """One judge on one split; what is unscored counts in neither accuracy nor kappa.

    ``accuracy``: share of scored answers with the right grade, interval over questions. ``kappa``: Cohen's, unweighted,
    since the grades are categories. ``confusion``: rows the gold grades, columns the judge's, 1..5.
    """

    accuracy: Interval
    kappa: Interval
    confusion: pd.DataFrame
    n: int
    unscored: int


@dataclass(frozen=True, slots=True)
class JudgeReport:
    """One judge on each split, and the agreement of two blind passes of grading, where there are any."""

    judge: str
    splits: dict[str, SplitReport]
    second_grading: Interval

    def __getitem__(self, split: str) -> SplitReport:
        return self.splits[split]

    def to_frame(self) -> pd.DataFrame:
        """Return one row per split."""
        rows = []
        for split, report in self.splits.items():
            counts = {"judge": self.judge, "split": split, "n": report.n, "unscored": report.unscored}
            rows.append(counts | report.accuracy.columns("accuracy") | report.kappa.columns("kappa"))
        return pd.DataFrame(rows)

    def __str__(self) -> str:
        lines = []
        for split, report in self.splits.items():
            counts = report.confusion.rename_axis(index="gold", columns="judge")
            lines += [
                f"{self.judge}, {split}: {report.n} answers, {report.unscored} unscored",
                f"  accuracy {report.accuracy}",
                f"  kappa    {report.kappa}",
                *(f"  {line}" for line in counts.to_string().splitlines()),
            ]
        if not math.isnan(self.second_grading.estimate):
            lines.append(f"two blind passes of grading: kappa {self.second_grading}")
        return "\n".join(lines)


def judge_report(predicted: Sequence[Any], gold: Sequence[GradedAnswer], judge: str = "") -> JudgeReport:
    """Measure a judge on graded answers.

    ``predicted``: its grades (Grade records, 1..5, or None where unscored), in the order of ``gold``. ``judge``: its
    name; default the name in the Grade records. DataError for another number of grades, or a grade outside 1..5.
    """
    if len(predicted) != len(gold) or not gold:
        got, do = f"{len(predicted)} grades for {len(gold)} graded answers", "grade all, in the order they were loaded"
        raise DataError(got, "one or more, one grade each", do)
    judge = judge or next((p.judge for p in predicted if getattr(p, "judge", "")), "judge")
    table = pd.DataFrame([(g.split, g.question_id, g.grade) for g in gold], columns=["split", "question", "gold"])
    table["given"] = _values(predicted)
    confusion_matrix(table["gold"], table["given"], _LABELS)  # names a grade that is none
    splits = {}
    for split, rows in table.groupby("split", sort=False):
        right = rows["given"].eq(rows["gold"]).astype(float).where(rows["given"].notna())
        splits[split] = SplitReport(
            bootstrap_ci(right.to_numpy(), groups=rows["question"].tolist()),
            kappa(rows["gold"], rows["given"], labels=_LABELS),
            confusion_matrix(rows["gold"], rows["given"], _LABELS),
            len(rows),
            int(rows["given"].isna().sum()),
        )
    return JudgeReport(judge, splits, _second_grading_kappa(gold))


def _values(grades: Sequence[Any]) -> pd.Series:
    """Grades as numbers, missing where there is none; of Grade records their values."""
    return pd.Series([getattr(given, "value", given) for given in grades], dtype=object)


def _second_grading_kappa(gold: Sequence[GradedAnswer]) -> Interval:
    """Return the unweighted kappa of the two blind passes of grading, over the answers that were graded twice."""
    twice = [g for g in gold if g.second_grade is not None]
    return kappa([g.grade for g in twice], [g.second_grade for g in twice], labels=_LABELS)


def accuracy_gain(judge: Sequence[Any], other: Sequence[Any], gold: Sequence[GradedAnswer]) -> Interval:
    """Return how much more often one judge is right than another; unscored is not right. Interval over questions."""
    truth = pd.Series([g.grade for g in gold], dtype=object)
    right = [_values(grades).eq(truth).to_numpy(float) for grades in (judge, other)]
    return paired_bootstrap_difference(*right, groups=[g.question_id for g in gold])


def measure_judge(
    judge: Any = None,
    questions: Sequence[Question] | None = None,
    gold: Sequence[GradedAnswer] | None = None,
    *,
    split: str | None = None,
    limit: int | None = None,
    **options: Any,
) -> JudgeReport:
    """Grade the graded answers (default MiniHop's) with a judge and report how good it is.

    ``limit``: only the first so many answers of each split, for a trial. ``judge``, ``options``: as for `grade`;
    default the embedded grader. ModelError when the judge graded none of the answers (no server, no such model ...),
    with the first reason.
    """
    if questions is None:
        from ragbench.data import load_minihop

        questions = load_minihop().questions
    gold = [answer for answer in (load_graded_answers() if gold is None else gold) if split in (None, answer.split)]
    gold = [a for one in dict.fromkeys(a.split for a in gold) for a in [b for b in gold if b.split == one][:limit]]
    asked = {answer.question_id for answer in gold}
    kept = [question for question in questions if question.id in asked]
    grades = grade(judge or EmbeddedGrader(), kept, as_answers(gold), **options)
    if grades and all(graded.value is None for graded in grades):
        got = f"none of {len(grades)} answers was graded; the first reason: {grades[0].meta.get('detail', 'unknown')}"
        raise ModelError(got, "a judge that replies with grades", "see ragbench doctor --model, then run again")
    return judge_report(grades, gold)


# What a judge must beat, each tuned on dev


def baseline_grades(
    questions: Sequence[Question], dev: Sequence[GradedAnswer], answers: Sequence[GradedAnswer]
) -> dict[str, list[int]]:
    """Grade answers in four ways that know nothing of grading, tuned on ``dev``: grades by name.

    ``majority class`` (the commonest on dev), ``exact match`` (5, else the commonest of the rest), ``ROUGE-L cut-offs``
    (up to four, on the F1 against the true answer), ``words and length`` (multinomial naive Bayes, add-one, on the
    answer alone: how far the way it is written gives its grade away). The grades of ``answers`` are not looked at.
    """
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.naive_bayes import MultinomialNB
    from sklearn.pipeline import make_pipeline

    from ragbench.metrics.lexical import exact_match, rouge_l

    def scores(metric: Any, rows: Sequence[GradedAnswer]) -> list[float]:
        return [metric(a.text, q.answer) for a, q in zip(rows, questions_of(rows, questions), strict=True)]

    truth = [a.grade for a in dev]
    matches = scores(exact_match, dev)
    rest = Counter(g for g, match in zip(truth, matches, strict=True) if not match).most_common(1)[0][0]
    cuts, grades = _fit_cutoffs(scores(rouge_l, dev), truth)
    words = make_pipeline(CountVectorizer(analyzer=_words_and_length), MultinomialNB()).fit(
        [a.text for a in dev], truth
    )
    return {
        "majority class": [Counter(truth).most_common(1)[0][0]] * len(answers),
        "exact match": [5 if match else rest for match in scores(exact_match, answers)],
        "ROUGE-L cut-offs": [grades[i] for i in np.searchsorted(cuts, scores(rouge_l, answers), side="right")],
        "words and length": words.predict([a.text for a in answers]).tolist() if answers else [],
    }


def _fit_cutoffs(scores: Sequence[float], grades: Sequence[int], most: int = 4) -> tuple[list[float], list[int]]:
    """Find the cut-offs of a score (``most`` of them), and a grade for each range between, with the most right grades.

    Returns (cuts, grades): ``grades[i]`` for scores from ``cuts[i - 1]`` up to below ``cuts[i]``. The best of all
    partitions (dynamic programming), the fewest ranges among equals, cuts half-way between scores.
    """
    levels, where = np.unique(scores, return_inverse=True)
    counts = np.zeros((len(levels) + 1, len(GRADES)), int)
    np.add.at(counts, (where + 1, np.array(grades) - 1), 1)
    total = counts.cumsum(0)
    gain = np.max(total[None, :, :] - total[:, None, :], axis=2)  # right in the range from level i up to level j
    earlier = np.tri(len(levels) + 1, k=-1, dtype=bool).T
    # best[j]: most right among the first j levels with the ranges used so far.
    best, back = total.max(1), [np.zeros(len(levels) + 1, int)]
    used, top = 0, best[-1]
    for ranges in range(1, most + 1):
        allowed = np.where(earlier, best[:, None] + gain, -1)
        back.append(allowed.argmax(0))
        best = allowed.max(0)
        if best[-1] > top:
            used, top = ranges, best[-1]
    ends = [len(levels)]
    for ranges in range(used, 0, -1):
        ends.append(int(back[ranges][ends[-1]]))
    edges = [0, *reversed(ends)]
    pieces = [total[b] - total[a] for a, b in itertools.pairwise(edges)]
    return [float((levels[e - 1] + levels[e]) / 2) for e in edges[1:-1]], [int(p.argmax()) + 1 for p in pieces]


def _words_and_length(text: str) -> list[str]:
    """Return the words, and the length as one more: it doubles from one "<...>" to the next."""
    words = re.findall(r"\w+", text.casefold())
    return [*words, f"<{len(words).bit_length()}>"]
