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
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from pydantic import BaseModel

from ragbench.data.mtrag import PeoplesGrades, load_mtrag
from ragbench.data.user import load_minihop
from ragbench.errors import ConfigError, DataError, ModelError, check_known
from ragbench.labelling.grades import PROMPT, grade, load_graded_answers
from ragbench.llm import ask, model_name
from ragbench.llm.models import not_named
from ragbench.metrics.lexical import contained
from ragbench.prompts import Prompt, fill_prompt, load_prompt, prompt_scale
from ragbench.records import GRADES, Answer
from ragbench.stats import (
    Interval,
    kappa,
    mean_interval,
    with_interval,
)

EXAM_PROMPTS = {"faithfulness": "people_faithfulness", "completeness": "people_completeness"}
SCALE = (1, 2, 3, 4)
SYSTEMS = ("gpt-4o", "llama-3.1-405b-instruct")
NUMBERS = ("accuracy", "kappa", "sensitivity", "specificity")
_ORDER_SEED = 48
_ANSWER = ["question_id", "system", "measure"]
_PAIR = ["measure", "grader", "question_id", "system", "conversation", "rater", "grade"]


class _OneGrade(BaseModel, title="OneToFour"):
    grade: Literal[SCALE]  # type: ignore[valid-type]


@dataclass(frozen=True)
class JudgeExam:
    """What `measure_judge` found.

    Attributes
    ----------
    table : a row for each measure and grader, see `exam_report`; labels says whose grades the
        judge's are compared with, prompt and scale how it was asked.
    grades : a row for each answer and judge: what the judge and what people said of it, with the
        texts; agreement is the share of people who gave the judge's grade.
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
        rows = []
        for measure, graded in self.grades.groupby("measure", sort=False):
            judges = graded["judge"].unique()
            for first, second in itertools.combinations(judges, 2):
                both = _both_judges(graded, first, second)
                difference = both["agreement"] - both["agreement_second"]
                interval = _share(difference, both["conversation"])
                row = {"measure": measure, "first": first, "second": second}
                row |= interval.columns("accuracy")
                row |= {
                    "n": len(both),
                    "differ": int((both["grade"] != both["grade_second"]).sum()),
                }
                rows.append(row)
        return pd.DataFrame(rows)

    def disagreements(self, first: str, second: str) -> pd.DataFrame:
        """Return the answers to which two judges give different grades, with people's mean."""
        parts = []
        for _, graded in self.grades.groupby("measure", sort=False):
            both = _both_judges(graded, first, second)
            parts.append(both[both["grade"] != both["grade_second"]])
        shown = ["measure", "question", "answer", "people", "grade", "grade_second"]
        return pd.concat(parts, ignore_index=True)[shown]

    def summary(self) -> pd.DataFrame:
        """Return the table with a column for each grader, numbers with their intervals."""
        columns = ["labels", "measure", "grader"]
        shown = self.table[[*columns, "answers", "unscored", "prompt", "scale"]]
        texts = {}
        for name in NUMBERS:
            bounds = (f"{name}_low", f"{name}_high")
            texts[name] = with_interval(self.table, name, *bounds, digits=2)
        return shown.assign(**texts).set_index(columns).T

    def worst(self, n: int = 3) -> pd.DataFrame:
        """Return, of each measure, the answers that the judge and people grade farthest apart."""
        difference = self.grades["grade"] - self.grades["people"]
        graded = self.grades.assign(miss=difference.abs())
        graded = graded.dropna(subset="miss")
        graded = graded.sort_values("miss", ascending=False, kind="stable")
        farthest = graded.groupby("measure").head(n)
        return farthest[["measure", "question", "answer", "people", "grade", "miss"]]


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
    """
    if isinstance(judge, list | tuple):
        settings = {"limit": limit, "prompt": prompt, "per_prompt": per_prompt}
        return _join([measure_judge(one, **settings, **options) for one in judge])
    if judge is None:
        raise not_named("judge", ", or an object with grade_all(questions, answers)")
    if set(prompt_scale(prompt) or GRADES) != set(GRADES):
        raise ConfigError(
            f"the grades of the prompt {prompt}",
            "1 to 5, as the reference grades are",
            "grade answers of your own by hand, and compare by ragbench.kappa",
        )
    exams = []
    if not hasattr(judge, "grade_all"):
        people = load_mtrag()
        graded = exam_grades(judge, people, questions=limit, **options)
        exams.append(_examined(graded, people, SCALE, "MTRAG, people"))
    reference = _reference_grades(limit)
    options |= {"prompt": prompt, "per_prompt": per_prompt}
    graded = _graded_references(judge, reference, options)
    exams.append(_examined(graded, reference, tuple(GRADES), "MiniHop, reference"))
    exam = _join(exams)
    exam.table["prompt"] = exam.table["measure"].map(EXAM_PROMPTS).fillna(str(prompt))
    return exam


def _join(exams: Sequence[JudgeExam]) -> JudgeExam:
    """Return exams as one; who graded in several of them (people, constants) stands once."""
    table = pd.concat([exam.table for exam in exams], ignore_index=True)
    pairs = pd.concat([exam.pairs for exam in exams], ignore_index=True)
    return JudgeExam(
        table.drop_duplicates(["labels", "measure", "grader"], ignore_index=True),
        pd.concat([exam.grades for exam in exams], ignore_index=True),
        pairs.drop_duplicates(ignore_index=True),
    )


def _both_judges(graded: pd.DataFrame, first: str, second: str) -> pd.DataFrame:
    """Return the answers of a measure that two judges graded, a row each."""
    of = {name: part.dropna(subset="grade") for name, part in graded.groupby("judge")}
    check_known("judge", [first, second], of)
    others = of[second][[*_ANSWER, "grade", "agreement"]]
    return of[first].merge(others, on=_ANSWER, suffixes=("", "_second"))


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
    DataFrame with question_id, system, measure, grade (1 to 4; NaN where the reply is no grade),
    failure (why there is none), judge.
    """
    if data is None:
        data = load_mtrag()
    graded = exam_prompts(data, questions)
    prompts = graded.pop("prompt").tolist()
    ids = [" ".join(row) for row in graded.itertuples(index=False)]
    replies = ask(judge, prompts, schema=_OneGrade, ids=ids, **{"step": "exam", **options})
    graded["grade"] = [reply.parsed.grade if reply.ok else np.nan for reply in replies]
    graded["failure"] = [_failure(reply.error) for reply in replies]
    return graded.assign(judge=model_name(judge))


def _failure(error: Any) -> str | None:
    return None if error is None else f"{error.kind}: {error.without_address()}"


# Answers with reference grades, in the same form


def _reference_grades(limit: int | None) -> PeoplesGrades:
    """Lay graded answers out as people's grades are, a measure a split.

    Each question is a cluster, and column contained the grade by a rule: the best where the true
    answer stands in the answer, else the worst.
    """
    dataset = load_minihop()
    rows = []
    for split in ("dev", "test"):
        for answer in load_graded_answers(split)[:limit]:
            question = dataset.question(answer.question_id)
            holds = contained(answer.text, question.answer) == 1
            rows.append(
                {
                    "question_id": question.id,
                    "system": answer.meta["id"],
                    "measure": f"grade, {split}",
                    "rater": "reference",
                    "grade": answer.meta["grade"],
                    "answer": answer.text,
                    "conversation": question.id,
                    "contained": max(GRADES) if holds else min(GRADES),
                }
            )
    table = pd.DataFrame(rows)
    return PeoplesGrades(dataset, table, table[[*_ANSWER, "rater", "grade"]])


def _graded_references(judge: Any, data: PeoplesGrades, options: Mapping[str, Any]) -> pd.DataFrame:
    """Have a judge grade them by `ragbench.grade`, as `exam_grades` does MTRAG's."""
    texts = zip(data.answers["question_id"], data.answers["answer"], strict=True)
    answers = [Answer(question, text, "graded answers") for question, text in texts]
    grades = grade(judge, data.dataset.questions, answers, **options)
    failures = [one.failure and str(one.failure) for one in grades]
    graded = data.grades[_ANSWER].copy()
    graded["grade"] = pd.Series([one.value for one in grades], dtype=float)
    graded["failure"] = pd.Series(failures, dtype=object)
    graded["position"] = [one.meta.get("position", 1) for one in grades]
    return graded.assign(judge=grades[0].judge or "the judge")


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
    if data is None:
        data = load_mtrag()
    if missing := {*_ANSWER, "grade"} - set(graded.columns):
        raise DataError(f"no column {min(missing)!r}", "grades as `exam_grades` returns them")
    grades = _beside_people(graded, data)
    judge = graded["judge"].iloc[0] if "judge" in graded else "the judge"
    pairs = _pairs_of_graders(grades, graded, data, judge, max(scale))
    rows = []
    for measure in dict.fromkeys(graded["measure"]):
        of_measure = pairs[pairs["measure"] == measure]
        for grader, part in of_measure.groupby("grader", sort=False):
            rows.append({"measure": measure, "grader": grader, **_row(part, scale)})
    return JudgeExam(pd.DataFrame(rows), grades, pairs)


def _row(pairs: pd.DataFrame, scale: Sequence[int]) -> dict[str, Any]:
    """Return the numbers of one grader: counts, and all of `NUMBERS` with their bounds."""
    scored = pairs.dropna(subset="grade_given")
    n_answers = _count_answers(pairs)
    row = {"answers": n_answers, "unscored": n_answers - _count_answers(scored)}
    for name, interval in _agreement(scored, scale).items():
        row |= interval.columns(name)
    return row


def _beside_people(graded: pd.DataFrame, data: PeoplesGrades) -> pd.DataFrame:
    """Return a judge's grades with people's mean grade, the conversation, and the texts."""
    means = data.grades.groupby(_ANSWER)["grade"].mean()
    table = graded.merge(means.rename("people").reset_index(), on=_ANSWER)
    answers = data.answers[["question_id", "system", "answer", "conversation"]]
    table = table.merge(answers, on=["question_id", "system"])
    texts = {question.id: question.text for question in data.dataset.questions}
    given = data.grades.merge(graded[[*_ANSWER, "grade"]], on=_ANSWER, suffixes=("", "_given"))
    same = given["grade"].eq(given["grade_given"]).groupby([given[name] for name in _ANSWER]).mean()
    table = table.merge(same.rename("agreement").reset_index(), on=_ANSWER)
    return table.assign(question=table["question_id"].map(texts))


def _pairs_of_graders(
    grades: pd.DataFrame, graded: pd.DataFrame, data: PeoplesGrades, judge: str, best: int
) -> pd.DataFrame:
    """Return people's grades beside each grader's (grade_given)."""
    people = data.grades.merge(grades[[*_ANSWER, "conversation"]], on=_ANSWER)
    sides = {"on": _ANSWER, "suffixes": ("", "_given")}
    others = people.merge(people[[*_ANSWER, "rater", "grade"]], **sides)
    pairs = {
        judge: people.merge(graded[[*_ANSWER, "grade"]], **sides),
        "another person": others[others["rater"] != others["rater_given"]],
        f"always {best}": people.assign(grade_given=best),
    }
    if "contained" in data.answers:
        rule = data.answers[["question_id", "system", "contained"]]
        pairs["contained"] = people.merge(rule.rename(columns={"contained": "grade_given"}))
    parts = [part.assign(grader=grader) for grader, part in pairs.items()]
    return pd.concat(parts, ignore_index=True).reindex(
        columns=[*_PAIR, "grade_given", "rater_given"]
    )


def _count_answers(pairs: pd.DataFrame) -> int:
    return len(pairs[["question_id", "system"]].drop_duplicates())


def _agreement(pairs: pd.DataFrame, scale: Sequence[int]) -> dict[str, Interval]:
    """Compare the given grade with the person's, in pairs that conversations hold together."""
    of_judge = pairs["grade_given"]
    person = pairs["grade"]
    conversation = pairs["conversation"]
    best_given = of_judge == max(scale)
    is_best = person == max(scale)
    return {
        "accuracy": _share(of_judge == person, conversation),
        "kappa": kappa(person, of_judge, weights="quadratic", labels=scale, cluster=conversation),
        "sensitivity": _share(~best_given[~is_best], conversation[~is_best]),
        "specificity": _share(best_given[is_best], conversation[is_best]),
    }


def _share(values: pd.Series, groups: pd.Series) -> Interval:
    return mean_interval(values.to_numpy(), cluster=groups.tolist())
