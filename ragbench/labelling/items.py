"""Answers as things to be labelled."""

from __future__ import annotations

from collections.abc import Sequence

from ragbench.grading.categories import by_id, facts_of, question_of
from ragbench.labelling.kinds import LabelItem
from ragbench.records import Answer, Question


def grade_items(questions: Sequence[Question], answers: Sequence[Answer], *, facts: bool = True) -> list[LabelItem]:
    """Make items for grades: question, true answer, what supports it, and the answer. The generator is not shown.

    Parameters
    ----------
    questions : those that the answers belong to, and maybe more.
    answers : several for one question are several items. An item's id is the answer's ``meta["id"]`` where it has
        one, else question id and generator.
    facts : whether the supporting sentences are shown.

    Raises
    ------
    DataError for an answer whose question is not among the questions.

    Source: thesis §2.4 (what its judge was shown).
    """
    known = by_id(questions)
    items = []
    for place, answer in enumerate(answers):
        question = question_of(answer.question_id, known, place)
        texts = {"Question": question.text, "True answer": question.answer}
        if facts and question.references:
            texts["Supporting facts"] = "\n".join(facts_of(question))
        name = answer.meta.get("id") or f"{question.id}/{answer.generator}"
        items.append(LabelItem(str(name), texts | {"Answer to be graded": answer.text or "(empty)"}))
    return items


def preference_items(questions: Sequence[Question], answers: Sequence[Sequence[Answer]]) -> list[LabelItem]:
    """Make items for preferences: question, true answer, and two responses on sides that the session chooses.

    Parameters
    ----------
    questions : those that the answers belong to, and maybe more.
    answers : pairs of answers to one question; a label above 0 says that the second is better. An item's id is the
        question's; a generator stands in the file by its name.

    Raises
    ------
    DataError for an answer whose question is not among the questions.

    Source: RAGChecker, section 4.2.
    """
    known = by_id(questions)
    items = []
    for place, (first, second) in enumerate(answers):
        question = question_of(first.question_id, known, place)
        names = (f"1 {first.generator}", f"2 {second.generator}")
        texts = {"Question": question.text, "True answer": question.answer}
        items.append(LabelItem(question.id, texts, dict(zip(names, (first.text, second.text), strict=True))))
    return items
