"""How good is a judge? Measured against answers graded by the criteria."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ragbench.errors import DataError, ModelError
from ragbench.grading.categories import GRADES, by_id, check_grades
from ragbench.grading.graded import GradedAnswer, load_graded_answers
from ragbench.records import Answer, Question
from ragbench.stats import ConfusionMatrix, Interval, bootstrap_ci, confusion_matrix, kappa

if TYPE_CHECKING:
    import pandas as pd

_LABELS = tuple(GRADES)


@dataclass(frozen=True, slots=True)
class SplitReport:
    """One judge on one split.

    Attributes
    ----------
    accuracy : share of scored answers with the right grade, with a bootstrap interval over questions.
    kappa : Cohen's, unweighted, since the grades are categories; interval over answers.
    confusion : rows the gold grades, columns the judge's, 1..5.
    n : answers. unscored : of these, the ones without a grade; they count in neither accuracy nor kappa.
    """

    split: str
    accuracy: Interval
    kappa: Interval
    confusion: ConfusionMatrix
    n: int
    unscored: int


@dataclass(frozen=True, slots=True)
class JudgeReport:
    """One judge on each split, and the agreement of two blind passes of grading, where there are any."""

    judge: str
    splits: tuple[SplitReport, ...]
    second_grading: Interval

    def __getitem__(self, split: str) -> SplitReport:
        for one in self.splits:
            if one.split == split:
                return one
        raise KeyError(f"{split!r}; there is: {', '.join(one.split for one in self.splits)}")

    def to_frame(self) -> pd.DataFrame:
        """Return one row per split."""
        import pandas as pd

        rows = [
            {
                "judge": self.judge,
                "split": one.split,
                "n": one.n,
                "unscored": one.unscored,
                "accuracy": one.accuracy.estimate,
                "accuracy_low": one.accuracy.low,
                "accuracy_high": one.accuracy.high,
                "kappa": one.kappa.estimate,
                "kappa_low": one.kappa.low,
                "kappa_high": one.kappa.high,
            }
            for one in self.splits
        ]
        return pd.DataFrame(rows)

    def __str__(self) -> str:
        lines = []
        for one in self.splits:
            lines += [
                f"{self.judge}, {one.split}: {one.n} answers, {one.unscored} unscored",
                f"  accuracy {one.accuracy}",
                f"  kappa    {one.kappa}",
                "  gold \\ judge    " + "".join(f"{label:>5}" for label in one.confusion.labels),
            ]
            rows = zip(one.confusion.labels, one.confusion.counts.tolist(), strict=True)
            lines += [f"  {label:<16}" + "".join(f"{count:>5}" for count in counts) for label, counts in rows]
        if not math.isnan(self.second_grading.estimate):
            lines.append(f"two blind passes of grading: kappa {self.second_grading}")
        return "\n".join(lines)


def judge_report(
    predicted: Sequence[Any], gold: Sequence[GradedAnswer], judge: str = "", *, resamples: int = 2000, seed: int = 0
) -> JudgeReport:
    """Measure a judge on graded answers.

    Parameters
    ----------
    predicted : the judge's grades (Grade records, 1..5, or None where unscored), in the order of ``gold``.
    gold : the graded answers.
    judge : its name; default the name in the Grade records.
    resamples, seed : of the bootstrap.

    Returns
    -------
    JudgeReport, one part per split that occurs.

    Raises
    ------
    DataError for lengths that differ, no answers, or a grade outside 1..5.
    """
    if len(predicted) != len(gold) or not gold:
        raise DataError(
            f"{len(predicted)} grades for {len(gold)} graded answers", "one or more, one grade each",
            "grade all answers in the order of load_graded_answers()",
        )  # fmt: skip
    judge = judge or next((p.judge for p in predicted if getattr(p, "judge", "")), "judge")
    values = check_grades(predicted, "predicted")
    parts = []
    for split in dict.fromkeys(answer.split for answer in gold):
        rows = [(v, g) for v, g in zip(values, gold, strict=True) if g.split == split]
        truth, given = [g.grade for _, g in rows], [v for v, _ in rows]
        right = [math.nan if v is None else float(v == g.grade) for v, g in rows]
        parts.append(
            SplitReport(
                split,
                bootstrap_ci(right, groups=[g.question_id for _, g in rows], resamples=resamples, seed=seed),
                kappa(truth, given, labels=_LABELS, resamples=resamples, seed=seed),
                confusion_matrix(truth, given, _LABELS),
                len(rows),
                sum(v is None for v in given),
            )
        )
    return JudgeReport(judge, tuple(parts), second_grading_kappa(gold, resamples=resamples, seed=seed))


def second_grading_kappa(gold: Sequence[GradedAnswer], *, resamples: int = 2000, seed: int = 0) -> Interval:
    """Return the unweighted kappa of the two blind passes of grading, over the answers that were graded twice."""
    twice = [g for g in gold if g.second_grade is not None]
    first, second = [g.grade for g in twice], [g.second_grade for g in twice]
    return kappa(first, second, labels=_LABELS, resamples=resamples, seed=seed)


def as_answers(gold: Sequence[GradedAnswer]) -> list[Answer]:
    """Return graded answers as the Answer records that ``grade`` takes."""
    return [
        Answer(one.question_id, one.text, "graded answers", meta={"id": one.id, "split": one.split}) for one in gold
    ]


def measure_judge(
    judge: Any = None,
    questions: Sequence[Question] | None = None,
    gold: Sequence[GradedAnswer] | None = None,
    *,
    split: str | None = None,
    **options: Any,
) -> JudgeReport:
    """Grade the graded answers with a judge and report how good it is: what ``ragbench judge`` does.

    Parameters
    ----------
    judge : as for :func:`ragbench.grading.grade`; default the embedded grader.
    questions, gold : default MiniHop and its graded answers.
    split : only this split of ``gold``.
    options : for ``grade``: ``per_prompt``, ``order``, ``cassette`` ...

    Returns
    -------
    JudgeReport.

    Raises
    ------
    ModelError when the judge graded none of the answers (no server, no such model ...), with the first reason.
    """
    from ragbench.grading.embedded import EmbeddedGrader
    from ragbench.grading.model import grade

    if questions is None:
        from ragbench.data.minihop import load_minihop

        questions = load_minihop().questions
    gold = load_graded_answers() if gold is None else gold
    gold = [one for one in gold if split in (None, one.split)]
    asked = {one.question_id for one in gold}
    kept = [question for question in by_id(questions).values() if question.id in asked]
    grades = grade(judge or EmbeddedGrader(), kept, as_answers(gold), **options)
    if grades and all(one.value is None for one in grades):
        raise ModelError(
            f"none of {len(grades)} answers was graded; the first reason: {grades[0].meta.get('detail', 'unknown')}",
            "a judge that replies with grades",
            "see ragbench doctor --model, then run again",
        )
    return judge_report(grades, gold)
