"""The judge's exam: how far a model's grades agree with people's, and with reference grades.

People graded MTRAG's answers (`load_mtrag`), and MiniHop has reference grades beside them
(`load_graded_answers`). The ceiling is what people say of each other, the floor a grade that is
always the same.
"""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pandas as pd
from pydantic import BaseModel

from ragbench.data.mtrag import PeoplesGrades, load_mtrag
from ragbench.data.user import load_minihop
from ragbench.errors import ConfigError, ModelError, check_known
from ragbench.labelling.grades import PROMPT, grade, load_graded_answers
from ragbench.llm import ask, model_name
from ragbench.llm.models import not_named
from ragbench.metrics.lexical import contained
from ragbench.prompts import Prompt, fill_prompt, load_prompt, prompt_scale
from ragbench.records import GRADES, Answer, Grade, Question
from ragbench.stats import Interval, kappa, mean_interval, with_interval

EXAM_PROMPTS = {"faithfulness": "people_faithfulness", "completeness": "people_completeness"}
SCALE = (1, 2, 3, 4)
SYSTEMS = ("gpt-4o", "llama-3.1-405b-instruct")
NUMBERS = ("accuracy", "kappa", "sensitivity", "specificity")
_ORDER_SEED = 48
_ANSWER = ["question_id", "system", "measure"]
_PAIR = ["measure", "grader", "question_id", "system", "conversation"]
_PAIR += ["rater", "grade", "grade_given", "rater_given"]


class _OneGrade(BaseModel, title="OneToFour"):
    grade: Literal[SCALE]  # type: ignore[valid-type]


@dataclass(frozen=True)
class JudgeExam:
    """What `measure_judge` found.

    Attributes
    ----------
    table : a row for each measure and grader, see `exam_report`; labels says whose grades the
        judge's are compared with, prompt and scale how it was asked.
    grades : a row for each answer and judge: what the judge and what people said of it (their
        mean), with the texts.
    pairs : a row for each grader, answer and person: the person's grade, and grade_given, the
        grader's.
    """

    table: pd.DataFrame
    grades: pd.DataFrame
    pairs: pd.DataFrame

    def confusion(self, grader: str, measure: str) -> pd.DataFrame:
        """Count a grader's grades (columns) by the person's (rows)."""
        check_known("grader", [grader], set(self.pairs["grader"]))
        check_known("measure", [measure], set(self.pairs["measure"]))
        is_shown = (self.pairs["grader"] == grader) & (self.pairs["measure"] == measure)
        shown = self.pairs[is_shown]
        return pd.crosstab(shown["grade"], shown["grade_given"].rename(grader))

    def differences(self) -> pd.DataFrame:
        """Compare each two judges on the answers that both graded.

        Columns: measure, first, second, accuracy (of the first less the second, with ``_low`` and
        ``_high`` over conversations), n, differ (answers to which they give different grades).
        """
        right = (self.pairs["grade"] == self.pairs["grade_given"]).astype(float)
        pairs = self.pairs.assign(right=right.where(self.pairs["grade_given"].notna()))
        wide = pairs.pivot_table("right", [*_ANSWER, "conversation", "rater"], "grader")
        rows = []
        for first, second in itertools.combinations(self.grades["judge"].unique(), 2):
            differ = self.disagreements(first, second)["measure"].value_counts()
            minus = (wide[first] - wide[second]).dropna().reset_index(name="minus")
            for measure, part in minus.groupby("measure", sort=False):
                row = {"measure": measure, "first": first, "second": second}
                row |= _share(part["minus"], part["conversation"]).columns("accuracy")
                row |= {"n": _count_answers(part), "differ": differ.get(measure, 0)}
                rows.append(row)
        return pd.DataFrame(rows)

    def disagreements(self, first: str, second: str) -> pd.DataFrame:
        """Return the answers to which two judges give different grades, with people's mean."""
        check_known("judge", [first, second], set(self.grades["judge"]))
        shown = ["measure", "question", "answer", "people", first, second]
        answer = [*_ANSWER, "question", "answer", "people"]
        wide = self.grades.pivot_table("grade", answer, "judge", sort=False).dropna()
        return wide[wide[first] != wide[second]].reset_index()[shown]

    def summary(self) -> pd.DataFrame:
        """Return the table with a column for each grader, numbers with their intervals."""
        columns = ["labels", "measure", "grader"]
        shown = self.table[[*columns, "answers", "unscored", "prompt", "scale"]]
        texts = {}
        for name in NUMBERS:
            bounds = (f"{name}_low", f"{name}_high")
            texts[name] = with_interval(self.table, name, *bounds, digits=2)
        return shown.assign(**texts).set_index(columns).T


def measure_judge(
    judge: Any,
    *,
    limit: int | None = None,
    prompt: Prompt = PROMPT,
    per_prompt: str | int = "one",
    **options: Any,
) -> JudgeExam:
    """Have a judge grade answers that have grades, and compare.

    By default it grades MTRAG's answers, beside people (prompts `EXAM_PROMPTS`, 1 to 4), and
    MiniHop's, beside reference grades: 636 and 360 calls. An object with ``grade_all`` is shown
    MiniHop's alone.

    Parameters
    ----------
    judge : as for `ragbench.grade`; or a list of judges, who grade the same answers:
        `JudgeExam.differences` compares them.
    limit : for a trial: the first so many questions of MTRAG, in the order of `exam_prompts`, with
        four calls each, and the first so many graded answers of each split.
    prompt, per_prompt : of the reference grades' part, as for `ragbench.grade`.
    options : for `ragbench.llm.ask`: ``cassette``, ``concurrency`` ...

    ModelError when no reply came at all (no server, no such model ...), with the first reason.

    >>> rb.measure_judge("ollama:llama3:8b", limit=20)  # doctest: +SKIP
    """
    if isinstance(judge, list | tuple):
        settings = {"limit": limit, "prompt": prompt, "per_prompt": per_prompt}
        return _join([measure_judge(one, **settings, **options) for one in judge])
    if judge is None:
        raise not_named("judge", ", or an object with grade_all(questions, answers)")
    _check_scale(prompt)
    exams = []
    if not hasattr(judge, "grade_all"):
        people = load_mtrag()
        graded = exam_grades(judge, people, questions=limit, **options)
        exams.append(_examined(graded, people, SCALE, "MTRAG, people"))
    options |= {"prompt": prompt, "per_prompt": per_prompt}
    graded, reference = _graded_references(judge, limit, options)
    exams.append(_examined(graded, reference, tuple(GRADES), "MiniHop, reference"))
    exam = _join(exams)
    exam.table["prompt"] = exam.table["measure"].map(EXAM_PROMPTS).fillna(str(prompt))
    return exam


def _check_scale(prompt: Prompt) -> None:
    if set(prompt_scale(prompt) or GRADES) != set(GRADES):
        raise ConfigError(
            f"the grades of the prompt {prompt}",
            "1 to 5, as the reference grades are",
            "grade answers of your own by hand, and compare by ragbench.kappa",
        )


def _join(exams: Sequence[JudgeExam]) -> JudgeExam:
    """Return exams as one; who graded in several of them (people, constants) stands once."""
    table = pd.concat([exam.table for exam in exams], ignore_index=True)
    pairs = pd.concat([exam.pairs for exam in exams], ignore_index=True)
    return JudgeExam(
        table.drop_duplicates(["labels", "measure", "grader"], ignore_index=True),
        pd.concat([exam.grades for exam in exams], ignore_index=True),
        pairs.drop_duplicates(ignore_index=True),
    )


def _examined(
    graded: pd.DataFrame, data: PeoplesGrades, scale: Sequence[int], labels: str
) -> JudgeExam:
    """Report a judge's grades. ModelError when not one reply came."""
    failures = graded["failure"].dropna()
    came = failures.str.startswith(("unusable", "truncated")).any()
    if len(failures) == len(graded) and not came:
        raise ModelError(
            f"none of {len(graded)} answers was graded; the first reason: {failures.iloc[0]}",
            "a judge that replies with grades",
            "see ragbench doctor --model, then run again",
        )
    exam = exam_report(graded, data, scale)
    table = exam.table.assign(labels=labels, scale=f"{min(scale)} to {max(scale)}")
    return JudgeExam(table, exam.grades, exam.pairs)


# Answers that people graded: what is asked, in which order


def exam_prompts(data: PeoplesGrades, questions: int | None = None) -> pd.DataFrame:
    """Return what a judge is asked, one answer and measure a prompt, in the order of asking.

    One question of each conversation in turn, drawn by one seed: the first 40 are two of each of
    the 20 conversations. ``questions``: the first so many; None: all.

    DataFrame with question_id, system (of `SYSTEMS`), measure (of `EXAM_PROMPTS`), prompt.
    """
    answer_of = data.answers.set_index(["question_id", "system"])["answer"]
    templates = {measure: load_prompt(prompt) for measure, prompt in EXAM_PROMPTS.items()}
    rows = []
    for name in _exam_order(data)[:questions]:
        turns = data.dataset.question(name).meta["turns"]
        shown = {
            "passages": "\n\n".join(data.passages(name)) or "(none)",
            "conversation": "\n".join(f"{speaker}: {text}" for speaker, text in turns),
        }
        for system in SYSTEMS:
            shown["answer"] = answer_of[name, system]
            for measure, template in templates.items():
                rows.append((name, system, measure, fill_prompt(template, **shown)))
    return pd.DataFrame(rows, columns=[*_ANSWER, "prompt"])


def _exam_order(data: PeoplesGrades) -> list[str]:
    """Return the ids of all questions in the order in which a judge is examined."""
    by_conversation = defaultdict(list)
    for question in data.dataset.questions:
        by_conversation[question.meta["topic"]].append(question.id)
    draw = random.Random(_ORDER_SEED)
    conversations = sorted(by_conversation)
    draw.shuffle(conversations)
    drawn = []
    for conversation in conversations:
        names = by_conversation[conversation]
        draw.shuffle(names)
        drawn.append(names[::-1])
    one_each = itertools.chain.from_iterable(itertools.zip_longest(*drawn))
    return [name for name in one_each if name is not None]


def exam_grades(
    judge: Any, data: PeoplesGrades | None = None, *, questions: int | None = None, **options: Any
) -> pd.DataFrame:
    """Have a judge grade the two models' answers to MTRAG's questions, one answer a prompt.

    Parameters
    ----------
    judge : a chat model or its name, as for `ragbench.llm.ask`.
    questions : the first so many of `exam_prompts`; None: all 159, which are 636 calls.
    options : for `ragbench.llm.ask`: ``cassette``, ``concurrency`` ...

    Returns
    -------
    DataFrame with question_id, system, measure, grade (1 to 4; NaN where the reply has no grade),
    failure (why there is none), judge.
    """
    graded = exam_prompts(data or load_mtrag(), questions)
    prompts = graded.pop("prompt").tolist()
    ids = [" ".join(row) for row in graded.itertuples(index=False)]
    replies = ask(judge, prompts, schema=_OneGrade, ids=ids, **{"step": "exam", **options})
    graded["grade"] = [reply.parsed.grade if reply.ok else np.nan for reply in replies]
    errors = [reply.error for reply in replies]
    graded["failure"] = [error and str(error.failure()) for error in errors]
    return graded.assign(judge=model_name(judge))


# Answers with reference grades, in the same form


def _graded_references(
    judge: Any, limit: int | None, options: Mapping[str, Any]
) -> tuple[pd.DataFrame, PeoplesGrades]:
    """Have a judge grade them by `ragbench.grade`; return its grades as `exam_grades` does, and the
    reference grades as people's: a measure a split, each question a cluster.

    Column contained is the grade by a rule: the best where the true answer stands in the answer,
    else the worst.
    """
    dataset = load_minihop()
    answers = [*load_graded_answers("dev")[:limit], *load_graded_answers("test")[:limit]]
    unlabelled = [replace(answer, meta={}) for answer in answers]
    grades = grade(judge, dataset.questions, unlabelled, **options)
    rows = []
    for answer, given in zip(answers, grades, strict=True):
        rows.append(_reference_row(dataset.question(answer.question_id), answer, given))
    table = pd.DataFrame(rows).astype({"grade": float, "failure": object})
    graded = table[[*_ANSWER, "grade", "failure", "position", "judge"]]
    references = table[[*_ANSWER, "rater"]].assign(grade=table["reference"])
    return graded, PeoplesGrades(dataset, table, references)


def _reference_row(question: Question, answer: Answer, given: Grade) -> dict[str, Any]:
    holds = contained(answer.text, question.answer) == 1
    return {
        "question_id": question.id,
        "system": answer.meta["id"],
        "measure": f"grade, {answer.meta['split']}",
        "rater": "reference",
        "reference": answer.meta["grade"],
        "answer": answer.text,
        "conversation": question.id,
        "contained": max(GRADES) if holds else min(GRADES),
        "grade": given.value,
        "failure": given.failure and str(given.failure),
        "position": given.meta.get("position", 1),
        "judge": given.judge or "the judge",
    }


# Comparison


def exam_report(
    graded: pd.DataFrame, data: PeoplesGrades | None = None, scale: Sequence[int] = SCALE
) -> JudgeExam:
    """Compare a judge's grades with people's, beside people with each other and a constant.

    Parameters
    ----------
    graded : as `exam_grades` returns them.
    scale : the grades there are; the greatest means fully right.

    Returns
    -------
    JudgeExam, whose table has for each measure a row per grader: the judge; "another person" (each
    person against the others who graded the same answer: the ceiling); "always 4" (the floor); with
    reference grades "contained" (a comparison of strings). Columns: answers, unscored, and, with
    ``_low`` and ``_high`` over conversations,

    accuracy : share of pairs (grader, person) with the same grade.
    kappa : the same beyond chance, a difference weighted by its square.
    sensitivity, specificity : of the answers that a person does not grade 4, and that they do, the
        share in which the grader does the same. Their mean, the balanced accuracy, is .5 for a
        coin or a constant.

    Intervals are those of `ragbench.stats`, with the conversations as clusters: 20 are few.
    """
    data = data or load_mtrag()
    grades = _beside_people(graded, data)
    pairs = _pairs_of_graders(grades, data.grades, max(scale))
    rows = []
    for measure in dict.fromkeys(graded["measure"]):
        of_measure = pairs[pairs["measure"] == measure]
        for grader, part in of_measure.groupby("grader", sort=False):
            rows.append({"measure": measure, "grader": grader, **_row(part, scale)})
    return JudgeExam(pd.DataFrame(rows), grades, pairs)


def _beside_people(graded: pd.DataFrame, data: PeoplesGrades) -> pd.DataFrame:
    """Return a judge's grades with people's mean grade, the conversation, and the texts."""
    means = data.grades.groupby(_ANSWER)["grade"].mean().rename("people").reset_index()
    key = ["question_id", "system"]
    known = data.answers.columns.intersection([*key, "answer", "conversation", "contained"])
    table = graded.merge(means, on=_ANSWER).merge(data.answers[known], on=key)
    texts = {question.id: question.text for question in data.dataset.questions}
    return table.assign(question=table["question_id"].map(texts))


def _pairs_of_graders(grades: pd.DataFrame, people: pd.DataFrame, best: int) -> pd.DataFrame:
    """Return people's grades beside each grader's (grade_given)."""
    judge = grades["judge"].iloc[0] if "judge" in grades else "the judge"
    sides = {"on": _ANSWER, "suffixes": ("", "_given")}
    known = grades.columns.intersection([*_ANSWER, "grade", "conversation", "contained"])
    pairs = people.merge(grades[known], **sides)
    others = pairs.drop(columns="grade_given").merge(people, **sides)
    parts = [
        pairs.assign(grader=judge),
        others[others["rater"] != others["rater_given"]].assign(grader="another person"),
        pairs.assign(grader=f"always {best}", grade_given=best),
    ]
    if "contained" in pairs:
        parts.append(pairs.assign(grader="contained", grade_given=pairs["contained"]))
    return pd.concat(parts, ignore_index=True).reindex(columns=_PAIR)


def _row(pairs: pd.DataFrame, scale: Sequence[int]) -> dict[str, Any]:
    """Return the numbers of one grader: counts, and all of `NUMBERS` with their bounds."""
    scored = pairs.dropna(subset="grade_given")
    given = scored["grade_given"]
    person = scored["grade"]
    conversation = scored["conversation"]
    best_given = given == max(scale)
    is_best = person == max(scale)
    intervals = {
        "accuracy": _share(given == person, conversation),
        "kappa": kappa(
            person.tolist(),
            given.tolist(),
            weights="quadratic",
            labels=scale,
            cluster=conversation.tolist(),
        ),
        "sensitivity": _share(~best_given[~is_best], conversation[~is_best]),
        "specificity": _share(best_given[is_best], conversation[is_best]),
    }
    n_answers = _count_answers(pairs)
    row = {"answers": n_answers, "unscored": n_answers - _count_answers(scored)}
    for name, interval in intervals.items():
        row |= interval.columns(name)
    return row


def _count_answers(pairs: pd.DataFrame) -> int:
    return len(pairs[["question_id", "system"]].drop_duplicates())


def _share(values: pd.Series, cluster: pd.Series) -> Interval:
    return mean_interval(values.to_numpy(), cluster=cluster.tolist())
