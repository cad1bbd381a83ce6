"""The judge's exam: a model's grades beside people's, on MTRAG's answers.

The ceiling is what people say of each other, the floor a grade that is always the same.
"""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
from pydantic import BaseModel

from ragbench.data.mtrag import PeoplesGrades, load_mtrag
from ragbench.errors import DataError
from ragbench.llm import ask, model_name
from ragbench.prompts import fill_prompt, load_prompt
from ragbench.records import Question
from ragbench.stats import Interval, bootstrap_ci, correlation, kappa

PROMPTS = {"faithfulness": "people_faithfulness", "completeness": "people_completeness"}
SCALE = (1, 2, 3, 4)
BEST = SCALE[-1]
SYSTEMS = ("gpt-4o", "llama-3.1-405b-instruct")
_ORDER_SEED = 48
_ANSWER = ["question_id", "system", "measure"]


class _OneGrade(BaseModel, title="OneToFour"):
    grade: Literal[SCALE]  # type: ignore[valid-type]


def exam_order(data: PeoplesGrades) -> list[str]:
    """Return the ids of all questions in the order in which a judge is examined.

    One question of each conversation in turn, drawn by one seed: the first 40 are two of each of
    the 20 conversations.
    """
    by_conversation = defaultdict(list)
    for question in data.dataset.questions:
        by_conversation[question.meta["topic"]].append(question.id)
    draw = random.Random(_ORDER_SEED)
    conversations = sorted(by_conversation)
    draw.shuffle(conversations)
    for conversation in conversations:
        draw.shuffle(by_conversation[conversation])
    drawn = [by_conversation[conversation][::-1] for conversation in conversations]
    rounds = itertools.zip_longest(*drawn)
    return [name for one_each in rounds for name in one_each if name is not None]


def exam_prompt(question: Question, passages: Sequence[str], answer: str, measure: str) -> str:
    """Return what a judge is asked about one answer; ``measure`` is a key of `PROMPTS`."""
    return fill_prompt(
        load_prompt(PROMPTS[measure]),
        passages="\n\n".join(passages) or "(none)",
        conversation="\n".join(f"{speaker}: {text}" for speaker, text in question.meta["turns"]),
        answer=answer,
    )


def examine_judge(
    judge: Any, questions: int | None = None, data: PeoplesGrades | None = None, **options: Any
) -> pd.DataFrame:
    """Have a judge grade answers that people graded, and compare: `exam_grades`, then
    `exam_report`.

    Parameters
    ----------
    judge : a chat model or its name, such as "ollama:llama3:8b".
    questions : the first so many of `exam_order`, four calls each; None: all 159.
    options : for `ragbench.llm.ask`: ``cassette``, ``concurrency`` ...
    """
    data = load_mtrag() if data is None else data
    return exam_report(exam_grades(judge, data, questions=questions, **options), data)


def exam_grades(
    judge: Any, data: PeoplesGrades | None = None, *, questions: int | None = None, **options: Any
) -> pd.DataFrame:
    """Have a judge grade the two models' answers to MTRAG's questions, one answer a prompt.

    Parameters
    ----------
    judge : a chat model or its name, as for `ragbench.llm.ask`.
    questions : the first so many of `exam_order`; None: all 159, which are 636 calls.
    options : for `ragbench.llm.ask`: ``cassette``, ``concurrency`` ...

    Returns
    -------
    DataFrame with question_id, system, measure, grade (1 to 4; NaN where the reply is no grade),
    judge.
    """
    data = load_mtrag() if data is None else data
    texts = data.answers.set_index(["question_id", "system"])["answer"]
    rows = []
    prompts = []
    for name in exam_order(data)[:questions]:
        question = data.dataset.question(name)
        passages = data.passages(name)
        for system in SYSTEMS:
            for measure in PROMPTS:
                rows.append((name, system, measure))
                prompts.append(exam_prompt(question, passages, texts[name, system], measure))
    ids = [" ".join(row) for row in rows]
    options = {"step": "exam", **options}
    replies = ask(judge, prompts, schema=_OneGrade, ids=ids, **options)
    graded = pd.DataFrame(rows, columns=_ANSWER)
    graded["grade"] = [reply.parsed.grade if reply.ok else np.nan for reply in replies]
    return graded.assign(judge=model_name(judge))


def exam_report(graded: pd.DataFrame, data: PeoplesGrades | None = None) -> pd.DataFrame:
    """Compare a judge's grades with people's, beside people with each other and a constant.

    Parameters
    ----------
    graded : as `exam_grades` returns them.

    Returns
    -------
    DataFrame, for each measure a row per grader: the judge; "another person" (each person against
    the others who graded the same answer: the ceiling); "always 4" (the floor). Columns: answers,
    unscored, and, with ``_low`` and ``_high`` over conversations,

    accuracy : share of pairs (grader, person) with the same grade.
    kappa : the same beyond chance, a difference weighted by its square.
    spearman : rank correlation of the two grades; NaN for a constant.
    preference : of the questions where a person prefers one of the two models, the share in which
        the grader prefers it too; no preference counts one half.
    sensitivity, specificity : of the answers that a person does not grade 4, and that they do, the
        share in which the grader does the same.

    Intervals are those of `ragbench.stats`, with the conversations as clusters: 20 are few.
    """
    data = load_mtrag() if data is None else data
    if missing := {*_ANSWER, "grade"} - set(graded.columns):
        raise DataError(f"no column {min(missing)!r}", "grades as `exam_grades` returns them")
    conversation = {question.id: question.meta["topic"] for question in data.dataset.questions}
    people = data.grades.merge(graded[_ANSWER], on=_ANSWER)
    people["conversation"] = people["question_id"].map(conversation)
    others = people.merge(people[[*_ANSWER, "rater", "grade"]], on=_ANSWER, suffixes=("", "_given"))
    others = others[others["rater"] != others["rater_given"]]
    judged = people.merge(graded[[*_ANSWER, "grade"]], on=_ANSWER, suffixes=("", "_given"))
    named = graded["judge"].iloc[0] if "judge" in graded else "the judge"
    graders = {named: judged, "another person": others, "always 4": people.assign(grade_given=BEST)}
    rows = []
    for measure in dict.fromkeys(graded["measure"]):
        for grader, pairs in graders.items():
            part = pairs[pairs["measure"] == measure]
            row = {"measure": measure, "grader": grader, "answers": _answers(part)}
            scored = part[part["grade_given"].notna()]
            row["unscored"] = row["answers"] - _answers(scored)
            for name, interval in _statistics(scored).items():
                row |= interval.columns(name)
            rows.append(row)
    return pd.DataFrame(rows)


def _answers(pairs: pd.DataFrame) -> int:
    return len(pairs[["question_id", "system"]].drop_duplicates())


def _statistics(pairs: pd.DataFrame) -> dict[str, Interval]:
    """Compare the given grade with the person's, in pairs that conversations hold together."""
    given = pairs["grade_given"]
    conversation = pairs["conversation"]
    person = pairs["grade"]
    best = person == BEST
    preferred = _preferences(pairs)
    return {
        "accuracy": _share(given == person, conversation),
        "kappa": kappa(person, given, weights="quadratic", labels=SCALE, groups=conversation),
        "spearman": correlation(person, given, "spearman", groups=conversation),
        "preference": _share(preferred["agreement"], preferred["conversation"]),
        "sensitivity": _share(given[~best] < BEST, conversation[~best]),
        "specificity": _share(given[best] == BEST, conversation[best]),
    }


def _preferences(pairs: pd.DataFrame) -> pd.DataFrame:
    """Return conversation and agreement (0, 0.5 or 1) of each question and person with a
    preference between the two models.
    """
    key = ["conversation", "question_id", "rater"]
    if "rater_given" in pairs:
        key.append("rater_given")
    wide = pairs.pivot_table(index=key, columns="system", values=["grade", "grade_given"]).dropna()
    first, second = SYSTEMS
    person = np.sign(wide["grade", first] - wide["grade", second])
    given = np.sign(wide["grade_given", first] - wide["grade_given", second])
    agreement = (1 + person * given) / 2
    return agreement[person != 0].rename("agreement").reset_index()


def _share(values: pd.Series, groups: pd.Series) -> Interval:
    return bootstrap_ci(values.to_numpy(float), groups=groups.tolist())
