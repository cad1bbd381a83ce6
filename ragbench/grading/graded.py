"""The graded answers over MiniHop, by which any judge can be measured.

Their grades are reference labels, assigned by a strong language model under a written guideline; checked by a person:
0; the second pass measures repeatability, not human agreement. Dev and test share no supporting document.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ragbench.data.files import raise_all, read_jsonl, require_text
from ragbench.errors import DataError, unknown
from ragbench.grading.categories import GRADES
from ragbench.paths import shipped

SPLITS = ("dev", "test")


@dataclass(frozen=True, slots=True)
class GradedAnswer:
    """An answer with its grade. ``second_grade`` is that of a second, blind pass, where there is one."""

    id: str
    question_id: str
    text: str
    grade: int
    split: str
    second_grade: int | None = None


def load_graded_answers(path: str | Path | None = None, split: str | None = None) -> tuple[GradedAnswer, ...]:
    """Load graded answers: those over MiniHop, or your own file of the same form.

    Parameters
    ----------
    path : JSON lines with ``id``, ``question_id``, ``answer``, ``grade`` (1..5), ``split`` ("dev" or "test") and
        optionally ``second_grade``; default ``data/minihop/graded_answers.jsonl``.
    split : only this one; default both. Tune a judge on "dev" and open "test" when it is finished.

    Returns
    -------
    tuple of GradedAnswer, in file order.

    Raises
    ------
    DataError that names file and line: a missing field, a grade outside 1..5, a repeated id, or a question whose
    answers are in both splits.
    """
    if split is not None and split not in SPLITS:
        raise unknown("split", split, SPLITS)
    path = shipped("minihop", "graded_answers.jsonl") if path is None else Path(path)
    rows, errors, total = [], [], 0
    ids: set[str] = set()
    split_of: dict[str, str] = {}
    for line, row in read_jsonl(path):
        total += 1
        try:
            one = _row(row, f"{path}, line {line}")
            if one.id in ids:
                raise DataError(f"{path}, line {line}: id {one.id!r} was there before", "ids that occur once", "rename")
            if split_of.setdefault(one.question_id, one.split) != one.split:
                raise DataError(
                    f"{path}, line {line}: question {one.question_id!r} is in both splits",
                    "all answers to a question in one split",
                    "move them together, or tuning sees the test questions",
                )
        except DataError as error:
            errors.append(error)
            continue
        ids.add(one.id)
        rows.append(one)
    raise_all(errors, path, total)
    return tuple(row for row in rows if split in (None, row.split))


def _row(row: dict, where: str) -> GradedAnswer:
    # An empty answer is an answer: a judge must grade it too.
    values = {name: require_text(row, name, where, empty=name == "answer") for name in ("id", "question_id", "answer")}
    if row.get("split") not in SPLITS:
        raise DataError(f"{where}: split is {row.get('split')!r}", "'dev' or 'test'", "write one of the two")
    for name in ("grade", "second_grade"):
        value = row.get(name)
        if (value is None and name == "grade") or (
            value is not None and (type(value) is not int or value not in GRADES)
        ):
            raise DataError(f"{where}: {name} is {value!r}", "a whole number from 1 to 5", "correct the grade")
    return GradedAnswer(
        values["id"], values["question_id"], values["answer"], row["grade"], row["split"], row.get("second_grade")
    )
