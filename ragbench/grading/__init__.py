"""Grades 1..5 for answers: by a judge model, by the embedded grader, and how good either is.

Reading order: ``categories`` -> ``model`` (prompts for a judge model, any number of answers each) -> ``text``,
``stance``, ``evidence``, ``embedded`` (the judge without a model) -> ``graded`` (answers with a gold grade) ->
``report`` and ``baselines`` (any judge measured on them).
"""

from __future__ import annotations

from ragbench.grading.baselines import Cutoffs, accuracy_gain, baseline_grades, fit_cutoffs
from ragbench.grading.categories import GRADE_COLUMNS, GRADES, facts_of, grade_shares
from ragbench.grading.embedded import EmbeddedGrader, fit_embedded_grader
from ragbench.grading.graded import GradedAnswer, load_graded_answers
from ragbench.grading.model import GradingPrompt, grade, grading_prompts, group_answers, plan_grading
from ragbench.grading.report import (
    JudgeReport,
    SplitReport,
    as_answers,
    judge_report,
    measure_judge,
    second_grading_kappa,
)

__all__ = [
    "GRADES",
    "GRADE_COLUMNS",
    "Cutoffs",
    "EmbeddedGrader",
    "GradedAnswer",
    "GradingPrompt",
    "JudgeReport",
    "SplitReport",
    "accuracy_gain",
    "as_answers",
    "baseline_grades",
    "facts_of",
    "fit_cutoffs",
    "fit_embedded_grader",
    "grade",
    "grade_shares",
    "grading_prompts",
    "group_answers",
    "judge_report",
    "load_graded_answers",
    "measure_judge",
    "plan_grading",
    "second_grading_kappa",
]
