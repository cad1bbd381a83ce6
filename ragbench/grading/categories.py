"""The thesis's five categories and what a judge is shown beside an answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ragbench.errors import ConfigError, DataError
from ragbench.records import Question, check_records

if TYPE_CHECKING:
    import pandas as pd

GRADES: Mapping[int, str] = {
    1: "no information",
    2: "partly right, with wrong statements",
    3: "partly right, incomplete",
    4: "wrong",
    5: "fully correct",
}
"""The grades of thesis §2.4. They are categories: 3 is not better than 2, and no mean is taken. 2 and 4 contain
hallucination, 1 and 3 lack information."""
GRADE_COLUMNS = tuple(f"grade {grade}" for grade in GRADES)


def facts_of(question: Question) -> tuple[str, ...]:
    """Return the supporting sentences of a question, each with its document's title before it where that is known.

    The sentences are full of pronouns ("He was born in Bolton"); the title says who is meant, and HotpotQA's own
    supporting facts name it too.
    """
    marks = question.meta.get("supporting_facts", ())
    if len(marks) != len(question.references):
        return tuple(question.references)
    return tuple(f"{mark[0]}: {text}" for mark, text in zip(marks, question.references, strict=True))


def check_grades(values: Sequence[Any], name: str) -> list[int | None]:
    """Return grades as ints, None where there is none.

    Parameters
    ----------
    values : 1..5, None or NaN, or Grade records.
    name : of the argument, for the message.

    Raises
    ------
    DataError for anything else, with its position.
    """
    grades: list[int | None] = []
    for place, value in enumerate(values):
        value = getattr(value, "value", value)
        if value is None or value != value:
            grades.append(None)
        elif isinstance(value, bool) or value not in GRADES:
            raise DataError(
                f"{name}: grade {value!r} at position {place}", "1, 2, 3, 4, 5, or None", "check the grades"
            )
        else:
            grades.append(int(value))
    return grades


def by_id(questions: Sequence[Question]) -> dict[str, Question]:
    """Return the questions by id; two questions with one id are an error."""
    check_records(questions, Question, "questions")
    found = {question.id: question for question in questions}
    if len(found) != len(questions):
        raise ConfigError(
            f"{len(questions)} questions with {len(found)} ids", "one question per id", "pass each question once"
        )
    return found


def question_of(question_id: str, known: Mapping[str, Question], place: int) -> Question:
    """Return the question an answer belongs to; DataError when it is not among them."""
    if question_id not in known:
        raise DataError(
            f"answer {place} belongs to question {question_id!r}, which is not among the {len(known)} questions",
            "answers to the questions given",
            "pass all questions, or only the answers to these",
        )
    return known[question_id]


def grade_shares(rows: pd.DataFrame, by: str = "retriever", *, counts: bool = False) -> pd.DataFrame:
    """Count grades by system or budget (thesis, Tables 3.2 and 3.3).

    Parameters
    ----------
    rows : of an experiment: columns grade (missing when unscored) and seconds.
    by : column that makes the rows of the table.
    counts : numbers of answers instead of shares of the scored ones.

    Returns
    -------
    DataFrame: ``by``, grade 1 ... grade 5, seconds (mean), n (scored), unscored. Shares of nothing are NaN.
    """
    import pandas as pd

    table = pd.DataFrame({"seconds": rows.groupby(by, sort=False)["seconds"].mean()})
    number = pd.crosstab(rows[by], rows["grade"]).reindex(index=table.index, columns=list(GRADES), fill_value=0)
    scored = number.sum(axis=1)
    number = (number if counts else number.div(scored.where(scored > 0), axis=0)).set_axis(list(GRADE_COLUMNS), axis=1)
    table = number.join(table).assign(n=scored, unscored=rows["grade"].isna().groupby(rows[by], sort=False).sum())
    return table.rename_axis(by).reset_index()
