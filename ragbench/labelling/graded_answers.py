"""How good a judge is: its grades of the graded answers over MiniHop.

The grades of these answers are reference labels (``data/minihop/README.md`` says whose). Dev and
test share no supporting document.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
from pydantic import Field

from ragbench.data.files import Filled, read_records
from ragbench.errors import ConfigError, DataError, ModelError, check_known
from ragbench.labelling.grades import grade
from ragbench.llm import chat_model
from ragbench.metrics.lexical import contained
from ragbench.paths import packaged_data
from ragbench.records import GRADES, Answer, Grade, Question
from ragbench.stats import Interval, bootstrap_ci, kappa
from ragbench.stats.tables import fully_right

_Grade = Annotated[int, Field(strict=True, ge=1, le=5)]
SPLITS = ("dev", "test")


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

    def as_answer(self) -> Answer:
        """Return the answer alone, as `ragbench.grade` takes it."""
        meta = {"id": self.id, "split": self.split}
        return Answer(self.question_id, self.text, "graded answers", meta=meta)


def load_graded_answers(
    path: str | Path | None = None, split: str | None = None
) -> tuple[GradedAnswer, ...]:
    """Load graded answers: those over MiniHop, or your own file of the same form.

    ``path``: JSON lines with ``id``, ``question_id``, ``answer``, ``grade`` (1..5), ``split`` and
    optionally ``second_grade``. ``split``: tune a judge on "dev" and open "test" when it is
    finished; default both.
    """
    check_known("split", [split or "dev"], SPLITS)
    path = (
        packaged_data("minihop", "labels", "answers", "graded_answers.jsonl")
        if path is None
        else Path(path)
    )
    rows = read_records(path, GradedAnswer, once=lambda row: [f"id {row.id!r}"])
    dev = {row.question_id for row in rows if row.split == "dev"}
    test = {row.question_id for row in rows if row.split == "test"}
    if dev & test:
        got = f"{path}: question_id {min(dev & test)!r} is in both splits"
        do = "move them together, or tuning sees test rows"
        raise DataError(got, "all answers to a question in one", do)
    return tuple(row for row in rows if split in (None, row.split))


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
    outcomes = np.where(true, 1.0, -1.0) * np.where(said == true, 2, 1)
    return bootstrap_ci(outcomes, _balanced, groups=groups)


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
    repeats: int = 1,
    **options: Any,
) -> pd.DataFrame:
    """Grade the graded answers with a judge, and say how good it is, beside a string comparison.

    Parameters
    ----------
    judge, options : as for `grade`.
    questions, gold : default MiniHop's; else your own, see `load_graded_answers`.
    limit : only the first so many answers of each split, for a trial.
    repeats : how many times each answer is graded, each time with another seed, the first time the
        judge's. At temperature 0 a model replies alike whatever the seed: measure at the
        temperature that you grade with.

    Returns
    -------
    DataFrame, a row per split: judge, split, n, unscored; accuracy (share of scored answers with
    the right grade), kappa (Cohen's, unweighted, since the grades are categories), fully_right
    (balanced accuracy of grade 5 or not), contained (the same number for "the true answer stands in
    the answer", which needs no judge), and with repeats changes (share of
    pairs of repeats that give the same answer two grades).
    Each has ``_low`` and ``_high``, over questions.

    Answers without a readable grade are counted as unscored. ModelError when no reply came at all
    (no server, no such model ...), with the first reason.
    """
    if questions is None:
        from ragbench.data import load_minihop

        questions = load_minihop().questions
    table = _table_of(load_graded_answers() if gold is None else gold, split, limit)
    kept = [question for question in questions if question.id in set(table["question"])]
    answers = [each.as_answer() for each in table["answer"]]
    grades = grade(judge, kept, answers, **options)
    _check_that_some_came(grades)
    again = [
        grade(_with_seed(judge, number), kept, answers, **options) for number in range(1, repeats)
    ]
    runs = [[graded.value for graded in run] for run in (grades, *again)]
    table["grades"] = list(zip(*runs, strict=True))
    table["judged"] = pd.Series(runs[0], dtype=object)
    true = {question.id: question.answer for question in kept}
    table["contained"] = [
        contained(text, true[question])
        for text, question in zip(table["text"], table["question"], strict=True)
    ]
    rows = []
    for name, part in table.groupby("split", sort=False):
        rows.append({"judge": grades[0].judge or "judge", "split": name, **_measured(part)})
    return pd.DataFrame(rows)


def _table_of(gold: Sequence[GradedAnswer], split: str | None, limit: int | None) -> pd.DataFrame:
    """Lay out graded answers as a table, of each split the first so many."""
    check_known("split", [split or "dev"], SPLITS)
    columns = ["split", "question", "text", "gold", "answer"]
    rows = [(each.split, each.question_id, each.text, each.grade, each) for each in gold]
    table = pd.DataFrame(rows, columns=columns)
    if split is not None:
        table = table[table["split"] == split]
    if limit is not None:
        table = table.groupby("split", sort=False).head(limit)
    return table.reset_index(drop=True)


def _measured(answers: pd.DataFrame) -> dict[str, Any]:
    """Measure the grades of one split against its gold grades."""
    questions = answers["question"].tolist()
    scored = answers[answers["judged"].notna()]
    correct = answers["judged"].eq(answers["gold"]).astype(float)
    correct = correct.where(answers["judged"].notna())
    intervals = {
        "accuracy": bootstrap_ci(correct.to_numpy(), groups=questions),
        "kappa": kappa(answers["gold"], answers["judged"], labels=list(GRADES)),
        "fully_right": balanced_accuracy(
            fully_right(scored["judged"]), fully_right(scored["gold"]), scored["question"].tolist()
        ),
        "contained": balanced_accuracy(
            answers["contained"].eq(1), fully_right(answers["gold"]), questions
        ),
    }
    if len(answers["grades"].iloc[0]) > 1:
        changes = answers["grades"].map(_changes)
        intervals["changes"] = bootstrap_ci(changes.to_numpy(float), groups=questions)
    measured: dict[str, Any] = {"n": len(answers), "unscored": len(answers) - len(scored)}
    for name, interval in intervals.items():
        measured |= interval.columns(name)
    return measured


def _changes(grades: Sequence[int | None]) -> float:
    """Share of pairs of repeats that differ; NaN with fewer than two grades."""
    pairs = list(itertools.combinations([grade for grade in grades if grade is not None], 2))
    return sum(first != second for first, second in pairs) / len(pairs) if pairs else math.nan


def _check_that_some_came(grades: Sequence[Grade]) -> None:
    answered = (None, "unusable", "truncated")
    if grades and all(graded.meta.get("error") not in answered for graded in grades):
        reason = grades[0].meta["detail"]
        got = f"none of {len(grades)} answers was graded; the first reason: {reason}"
        do = "see ragbench doctor --model, then run again"
        raise ModelError(got, "a judge that replies with grades", do)


def _with_seed(judge: Any, added: int) -> Any:
    model = chat_model(judge) if isinstance(judge, str | Mapping) else judge
    if not hasattr(model, "seed"):
        got = f"repeats of a judge of the class {type(model).__name__}"
        raise ConfigError(got, "a model with a seed", "use rb.chat_model")
    return model.model_copy(update={"seed": (model.seed or 0) + added})
