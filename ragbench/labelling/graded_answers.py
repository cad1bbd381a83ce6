"""How good a judge is: its grades of the graded answers over MiniHop.

The grades of these answers are reference labels, assigned by a strong language model under a
written guideline; checked by a person: 0; the second pass measures repeatability, not human
agreement. Dev and test share no supporting document.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
from pydantic import Field

from ragbench.data.files import Filled, read_records
from ragbench.errors import DataError, ModelError, check_known
from ragbench.labelling.grades import grade
from ragbench.metrics.lexical import contained
from ragbench.paths import packaged_data
from ragbench.records import GRADES, Answer, Question
from ragbench.stats import Interval, bootstrap_ci, kappa

_Grade = Annotated[int, Field(strict=True, ge=1, le=5)]
_SPLITS = ("dev", "test")


def check_split(split: str | None) -> None:
    """ConfigError unless a split of labelled data is "dev", "test" or None: both."""
    check_known("split", [split or "dev"], _SPLITS)


@dataclass(frozen=True, slots=True)
class GradedAnswer:
    """An answer with its grade.

    ``second_grade`` is that of a second, blind pass, where there is one.
    """

    id: Filled
    question_id: Filled
    # an empty answer is an answer: a judge must grade it too
    text: Annotated[str, Field(validation_alias="answer")]
    grade: _Grade
    split: Literal["dev", "test"]
    second_grade: _Grade | None = None


def load_graded_answers(
    path: str | Path | None = None, split: str | None = None
) -> tuple[GradedAnswer, ...]:
    """Load graded answers: those over MiniHop, or your own file of the same form.

    ``path``: JSON lines with ``id``, ``question_id``, ``answer``, ``grade`` (1..5), ``split`` and
    optionally ``second_grade``. ``split``: tune a judge on "dev" and open "test" when it is
    finished; default both.
    """
    check_split(split)
    path = packaged_data("minihop", "graded_answers.jsonl") if path is None else Path(path)
    rows = read_records(path, GradedAnswer, once=lambda row: [f"id {row.id!r}"])
    if twice := set.intersection(
        *({row.question_id for row in rows if row.split == half} for half in _SPLITS)
    ):
        got = f"{path}: question_id {min(twice)!r} is in both splits"
        raise DataError(
            got, "all answers to a question in one", "move them together, or tuning sees test rows"
        )
    return tuple(row for row in rows if split in (None, row.split))


def as_answers(gold: Sequence[GradedAnswer]) -> list[Answer]:
    """Return graded answers as the Answer records that ``grade`` takes."""
    return [
        Answer(a.question_id, a.text, "graded answers", meta={"id": a.id, "split": a.split})
        for a in gold
    ]


def judge_report(
    predicted: Sequence[Any],
    gold: Sequence[GradedAnswer],
    judge: str = "",
    questions: Sequence[Question] | None = None,
) -> pd.DataFrame:
    """Measure a judge on graded answers, beside a string comparison.

    Parameters
    ----------
    predicted : its grades (Grade records, 1..5, or None where unscored), in the order of ``gold``.
    judge : its name; default the name in the Grade records.
    questions : those of the answers, for the yardstick ``contained``.

    Returns
    -------
    DataFrame, a row per split: judge, split, n, unscored; accuracy (share of scored answers with
    the right grade), kappa (Cohen's, unweighted, since the grades are categories), fully_right
    (balanced accuracy of grade 5 or not) and, with ``questions``, contained: the same number for
    "the true answer stands in the answer", which needs no judge. Each has ``_low`` and ``_high``,
    over questions.
    """
    if len(predicted) != len(gold) or not gold:
        got = f"{len(predicted)} grades for {len(gold)} graded answers"
        raise DataError(
            got, "one or more, one grade each", "grade all, in the order they were loaded"
        )
    named = [grade.judge for grade in predicted if getattr(grade, "judge", "")]
    table = pd.DataFrame(
        [(g.split, g.question_id, g.grade) for g in gold], columns=["split", "question", "gold"]
    )
    table["given"] = pd.Series(
        [getattr(given, "value", given) for given in predicted], dtype=object
    )
    if questions is not None:
        true = {question.id: question.answer for question in questions}
        table["contained"] = [contained(answer.text, true[answer.question_id]) for answer in gold]
    rows = []
    for split, part in table.groupby("split", sort=False):
        row = {"judge": judge or (named[0] if named else "judge"), "split": split}
        rows.append(row | _measured(part))
    return pd.DataFrame(rows)


def _measured(answers: pd.DataFrame) -> dict[str, Any]:
    """Measure the given grades of one split against its gold grades."""
    scored = answers[answers["given"].notna()]
    correct = answers["given"].eq(answers["gold"]).astype(float).where(answers["given"].notna())
    measured: dict[str, Any] = {"n": len(answers), "unscored": len(answers) - len(scored)}
    measured |= bootstrap_ci(correct.to_numpy(), groups=answers["question"].tolist()).columns(
        "accuracy"
    )
    measured |= kappa(answers["gold"], answers["given"], labels=list(GRADES)).columns("kappa")
    measured |= balanced_accuracy(
        scored["given"].eq(5), scored["gold"].eq(5), scored["question"]
    ).columns("fully_right")
    if "contained" in answers:
        found = balanced_accuracy(
            answers["contained"].eq(1), answers["gold"].eq(5), answers["question"]
        )
        measured |= found.columns("contained")
    return measured


def balanced_accuracy(
    said: Sequence[bool], true: Sequence[bool], groups: Sequence[Any] | None = None
) -> Interval:
    """Mean of two shares: the true ones that were said, and the others that were not; .5 for a coin
    or a constant.

    ``groups``: what the bootstrap draws together, such as questions. NaN where one of the two kinds
    is absent.
    """
    said = np.asarray(said, bool)
    true = np.asarray(true, bool)
    # 2: found, 1: missed, -2: refused, -1: taken
    outcomes = np.where(true, 1, -1) * np.where(said == true, 2, 1)
    return bootstrap_ci(
        outcomes.astype(float), _balanced, groups=None if groups is None else list(groups)
    )


def _balanced(outcomes: np.ndarray) -> float:
    true = outcomes[outcomes > 0]
    others = outcomes[outcomes < 0]
    if not true.size or not others.size:
        return math.nan
    return ((true == 2).mean() + (others == -2).mean()) / 2


def measure_judge(
    judge: Any,
    questions: Sequence[Question] | None = None,
    gold: Sequence[GradedAnswer] | None = None,
    *,
    split: str | None = None,
    limit: int | None = None,
    **options: Any,
) -> pd.DataFrame:
    """Grade the graded answers (default MiniHop's) with a judge: how good it is, as `judge_report`
    says.

    Beside it stands what needs no judge: whether the true answer is contained.

    ``limit``: only the first so many answers of each split, for a trial. ``judge``, ``options``: as
    for `grade`. Answers without a readable grade are counted as unscored. ModelError when no reply
    came at all (no server, no such model ...), with the first reason.
    """
    check_split(split)
    if questions is None:
        from ragbench.data import load_minihop

        questions = load_minihop().questions
    gold = [
        answer
        for answer in (load_graded_answers() if gold is None else gold)
        if split in (None, answer.split)
    ]
    gold = [
        a
        for one in dict.fromkeys(a.split for a in gold)
        for a in [b for b in gold if b.split == one][:limit]
    ]
    asked = {answer.question_id for answer in gold}
    kept = [question for question in questions if question.id in asked]
    grades = grade(judge, kept, as_answers(gold), **options)
    if grades and all(
        graded.meta.get("error") not in (None, "unusable", "truncated") for graded in grades
    ):
        got = (
            f"none of {len(grades)} answers was graded; the first reason: "
            f"{grades[0].meta['detail']}"
        )
        raise ModelError(
            got, "a judge that replies with grades", "see ragbench doctor --model, then run again"
        )
    return judge_report(grades, gold, questions=kept)
