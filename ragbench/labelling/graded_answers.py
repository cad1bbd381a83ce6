"""Graded answers over MiniHop, on which `ragbench.measure_judge` measures a judge.

Their grades are reference labels (``data/minihop/README.md`` says whose). Dev and test share no
supporting document.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from ragbench.data.files import Filled, read_records
from ragbench.errors import DataError, check_known
from ragbench.paths import packaged_data
from ragbench.records import Answer

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
    rows = read_records(path, GradedAnswer, once=lambda row: row.id)
    dev = {row.question_id for row in rows if row.split == "dev"}
    test = {row.question_id for row in rows if row.split == "test"}
    if dev & test:
        got = f"{path}: question_id {min(dev & test)!r} is in both splits"
        do = "move them together, or tuning sees test rows"
        raise DataError(got, "all answers to a question in one", do)
    return tuple(row for row in rows if split in (None, row.split))
