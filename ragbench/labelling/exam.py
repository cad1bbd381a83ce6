"""The judge's exam: how far a model's grades agree with people's, and with reference grades.

People graded MTRAG's answers (`load_mtrag`), and MiniHop has reference grades beside them
(`load_graded_answers`). The ceiling is what people say of each other, the floor a grade that is
always the same.
"""

from __future__ import annotations

import itertools
import math
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
from ragbench.errors import ConfigError, DataError, ModelError
from ragbench.labelling.grades import PROMPT, grade, load_graded_answers
from ragbench.llm import ask, chat_model, model_name
from ragbench.llm.models import not_named
from ragbench.metrics.lexical import contained
from ragbench.prompts import Prompt, fill_prompt, load_prompt, prompt_scale
from ragbench.records import GRADES, Answer
from ragbench.stats import (
    Interval,
    bootstrap_ci,
    correlation,
    kappa,
    ppi_shares,
    with_interval,
)

PROMPTS = {"faithfulness": "people_faithfulness", "completeness": "people_completeness"}
SCALE = (1, 2, 3, 4)
SYSTEMS = ("gpt-4o", "llama-3.1-405b-instruct")
NUMBERS = (
    "accuracy",
    "kappa",
    "spearman",
    "preference",
    "sensitivity",
    "specificity",
    "share_people",
    "share_judge",
    "rogan_gladen",
    "ppi",
    "changes",
    "length_bias",
    "position_bias",
)
_ORDER_SEED = 48
_ANSWER = ["question_id", "system", "measure"]
_FEW = 4  # clusters: with fewer no share is corrected
_APART = 0.1  # difference in accuracy of two judges that are to be told apart


class _OneGrade(BaseModel, title="OneToFour"):
    grade: Literal[SCALE]  # type: ignore[valid-type]


@dataclass(frozen=True)
class JudgeExam:
    """What `measure_judge` found.

    Attributes
    ----------
    table : a row for each measure and grader, see `exam_report`; labels says whose grades the
        judge's are compared with, prompt and scale how it was asked.
    grades : a row for each answer: what the judge and what people said of it, with the texts.
    """

    table: pd.DataFrame
    grades: pd.DataFrame

    def summary(self) -> pd.DataFrame:
        """Return the table with a column for each grader, numbers with their intervals."""
        columns = ["labels", "measure", "grader"]
        shown = self.table[[*columns, "answers", "unscored", "separating", "prompt", "scale"]]
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
    repeats: int = 1,
    prompt: Prompt = PROMPT,
    per_prompt: str | int = "one",
    **options: Any,
) -> JudgeExam:
    """Have a judge grade answers that have grades, and compare.

    By default it grades MTRAG's answers, beside people (prompts `PROMPTS`, 1 to 4), and MiniHop's,
    beside reference grades: 636 and 360 calls. An object with ``grade_all`` is shown MiniHop's
    alone.

    Parameters
    ----------
    judge : as for `ragbench.grade`.
    limit : for a trial: the first so many questions of MTRAG, in the order of `exam_prompts`, with
        four calls each, and the first so many graded answers of each split.
    repeats : how many times each answer is graded, each time with another seed, the first time the
        judge's. At temperature 0 a model replies alike whatever the seed: measure at the
        temperature that you grade with.
    prompt, per_prompt : of the reference grades' part, as for `ragbench.grade`.
    options : for `ragbench.llm.ask`: ``cassette``, ``concurrency`` ...

    ModelError when no reply came at all (no server, no such model ...), with the first reason.
    """
    if judge is None:
        raise not_named("judge", ", or an object with grade_all(questions, answers)")
    if set(prompt_scale(prompt) or GRADES) != set(GRADES):
        raise ConfigError(
            f"the grades of the prompt {prompt}",
            "1 to 5, as the reference grades are",
            "grade answers of your own by hand, and compare by ragbench.kappa",
        )
    runs = [judge, *(_with_seed(judge, number) for number in range(1, repeats))]
    exams = []
    if not hasattr(judge, "grade_all"):
        people = load_mtrag()
        graded = [exam_grades(run, people, questions=limit, **options) for run in runs]
        exams.append(_examined(graded, people, SCALE, "MTRAG, people"))
    reference = _reference_grades(limit)
    options |= {"prompt": prompt, "per_prompt": per_prompt}
    graded = [_graded_references(run, reference, options) for run in runs]
    exams.append(_examined(graded, reference, tuple(GRADES), "MiniHop, reference"))
    table = pd.concat([exam.table for exam in exams], ignore_index=True)
    table["prompt"] = table["measure"].map(PROMPTS).fillna(str(prompt))
    return JudgeExam(table, pd.concat([exam.grades for exam in exams], ignore_index=True))


def _with_seed(judge: Any, added: int) -> Any:
    model = judge
    if isinstance(judge, str | Mapping):
        model = chat_model(judge)
    if not hasattr(model, "seed"):
        raise ConfigError(
            f"repeats of a judge of the class {type(model).__name__}",
            "a model with a seed",
            "use rb.chat_model",
        )
    return model.model_copy(update={"seed": (model.seed or 0) + added})


def _examined(
    runs: Sequence[pd.DataFrame], data: PeoplesGrades, scale: Sequence[int], labels: str
) -> JudgeExam:
    """Report the first run of the same answers, with whether runs differ in column changes.

    ModelError when not one reply came.
    """
    graded = runs[0]
    failures = graded["failure"].dropna()
    came = failures.str.startswith(("unusable", "truncated")).any()
    if len(failures) == len(graded) and not came:
        raise ModelError(
            f"none of {len(graded)} answers was graded; the first reason: {failures.iloc[0]}",
            "a judge that replies with grades",
            "see ragbench doctor --model, then run again",
        )
    grades = pd.concat([run["grade"] for run in runs], axis=1)
    differ = grades.nunique(axis=1).gt(1).astype(float)
    was_repeated = grades.notna().sum(axis=1) > 1
    exam = exam_report(graded.assign(changes=differ.where(was_repeated)), data, scale)
    table = exam.table.assign(labels=labels, scale=f"{min(scale)} to {max(scale)}")
    return JudgeExam(table, exam.grades)


# Answers that people graded: what is asked, in which order


def exam_prompts(data: PeoplesGrades, questions: int | None = None) -> pd.DataFrame:
    """Return what a judge is asked, one answer and measure a prompt, in the order of asking.

    One question of each conversation in turn, drawn by one seed: the first 40 are two of each of
    the 20 conversations. ``questions``: the first so many; None: all.

    DataFrame with question_id, system (of `SYSTEMS`), measure (of `PROMPTS`), prompt.
    """
    answer_of = data.answers.set_index(["question_id", "system"])["answer"]
    templates = {measure: load_prompt(prompt) for measure, prompt in PROMPTS.items()}
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
    failures = []
    for one in grades:
        failed = one.meta.get("error")
        if failed:
            failed = f"{failed}: {one.meta.get('detail', '')}"
        failures.append(failed or None)
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
    spearman : rank correlation of the two grades over all answers; NaN for a constant.
    preference : the same within a question: of the questions where a person prefers one of two
        answers, the share in which the grader prefers it too; no preference counts one half.
    sensitivity, specificity : of the answers that a person does not grade 4, and that they do, the
        share in which the grader does the same. Their mean, the balanced accuracy, is .5 for a
        coin or a constant.

    Of the judge alone:

    share_people, share_judge : share of grade 4, by people's mean grade (rounded) and by the judge.
    rogan_gladen, ppi : share_judge corrected by people's grades of every second conversation:
        (share + specificity - 1) / (sensitivity + specificity - 1), with sensitivity for grade 4,
        and `ragbench.stats.ppi_shares`. They should come near share_people.
    changes : share of answers that repeats gave more than one grade.
    length_bias, position_bias : rank correlation of grade less people's mean grade with the number
        of words, and with the place in the prompt (undefined where each prompt has one answer).
    separating : answers that tell two judges apart whose accuracies differ by .10, with a power of
        .8, if they err independently and conversations are as these.

    Intervals are those of `ragbench.stats`, with the conversations as clusters: 20 are few.
    """
    if data is None:
        data = load_mtrag()
    if missing := {*_ANSWER, "grade"} - set(graded.columns):
        raise DataError(f"no column {min(missing)!r}", "grades as `exam_grades` returns them")
    grades = _beside_people(graded, data)
    people = data.grades.merge(grades[[*_ANSWER, "conversation"]], on=_ANSWER)
    judge = graded["judge"].iloc[0] if "judge" in graded else "the judge"
    pairs_of = _pairs_of_graders(people, graded, data, judge, max(scale))
    rows = []
    for measure in dict.fromkeys(graded["measure"]):
        for grader, pairs in pairs_of.items():
            part = pairs[pairs["measure"] == measure]
            if part.empty:
                continue
            of_judge = {}
            if grader == judge:
                of_judge = _of_judge_alone(grades[grades["measure"] == measure], max(scale))
            rows.append({"measure": measure, "grader": grader, **_row(part, scale, of_judge)})
    return JudgeExam(pd.DataFrame(rows), grades)


def _row(
    pairs: pd.DataFrame, scale: Sequence[int], of_judge: Mapping[str, Interval]
) -> dict[str, Any]:
    """Return the numbers of one grader: counts, and all of `NUMBERS` with their bounds."""
    scored = pairs.dropna(subset="grade_given")
    n_answers = _count_answers(pairs)
    n_scored = _count_answers(scored)
    intervals = _agreement(scored, scale) | of_judge
    row = {"answers": n_answers, "unscored": n_answers - n_scored}
    row["separating"] = _separating(intervals["accuracy"], n_scored)
    for name in NUMBERS:
        row |= intervals.get(name, _UNDEFINED).columns(name)
    return row


def _beside_people(graded: pd.DataFrame, data: PeoplesGrades) -> pd.DataFrame:
    """Return a judge's grades with people's mean grade, the conversation, and the texts."""
    means = data.grades.groupby(_ANSWER)["grade"].mean()
    table = graded.merge(means.rename("people").reset_index(), on=_ANSWER)
    answers = data.answers[["question_id", "system", "answer", "conversation"]]
    table = table.merge(answers, on=["question_id", "system"])
    texts = {question.id: question.text for question in data.dataset.questions}
    return table.assign(question=table["question_id"].map(texts))


_UNDEFINED = Interval(math.nan, math.nan, math.nan, 0)


def _pairs_of_graders(
    people: pd.DataFrame, graded: pd.DataFrame, data: PeoplesGrades, judge: str, best: int
) -> dict[str, pd.DataFrame]:
    """Return, by grader, people's grades beside the grader's (grade_given)."""
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
    return pairs


def _count_answers(pairs: pd.DataFrame) -> int:
    return len(pairs[["question_id", "system"]].drop_duplicates())


def _agreement(pairs: pd.DataFrame, scale: Sequence[int]) -> dict[str, Interval]:
    """Compare the given grade with the person's, in pairs that conversations hold together."""
    of_judge = pairs["grade_given"]
    person = pairs["grade"]
    conversation = pairs["conversation"]
    best_given = of_judge == max(scale)
    is_best = person == max(scale)
    preferred = _preferences(pairs)
    return {
        "accuracy": _share(of_judge == person, conversation),
        "kappa": kappa(person, of_judge, weights="quadratic", labels=scale, groups=conversation),
        "spearman": correlation(person, of_judge, "spearman", groups=conversation),
        "preference": _share(preferred["agreement"], preferred["conversation"]),
        "sensitivity": _share(~best_given[~is_best], conversation[~is_best]),
        "specificity": _share(best_given[is_best], conversation[is_best]),
    }


def _preferences(pairs: pd.DataFrame) -> pd.DataFrame:
    """Return the agreement (0, 0.5 or 1) on each two answers to a question between which a person
    has a preference.
    """
    key = ["conversation", "question_id", "rater"]
    if "rater_given" in pairs:
        key.append("rater_given")
    both = pairs.merge(pairs, on=key, suffixes=("", "_other")).sort_values(key)
    both = both[both["system"] < both["system_other"]]
    person = np.sign(both["grade"] - both["grade_other"])
    grader = np.sign(both["grade_given"] - both["grade_given_other"])
    agreement = (1 + person * grader) / 2
    return both.assign(agreement=agreement)[person != 0]


def _share(values: pd.Series, groups: pd.Series) -> Interval:
    return bootstrap_ci(values.to_numpy(float), groups=groups.tolist())


def _separating(accuracy: Interval, n: int) -> float:
    """Answers for a power of .8 in telling apart two judges: 2 s^2 (1.96 + .84)^2 / .1^2.

    s^2 = n SE^2, the variance that one answer adds, with what conversations take away.
    """
    error = (accuracy.high - accuracy.low) / (2 * 1.96)
    variance = n * error**2
    return float(np.ceil(2 * variance * (1.96 + 0.84) ** 2 / _APART**2))


def _of_judge_alone(answers: pd.DataFrame, best: int) -> dict[str, Interval]:
    """Measure what a judge's grades of answers say of the share that is fully right, and what
    else they follow.
    """
    scored = answers[answers["grade"].notna()]
    conversation = scored["conversation"]
    said = scored["grade"].eq(best)
    right = scored["people"].round().eq(best)
    error = scored["grade"] - scored["people"]
    words = scored["answer"].str.split().str.len()
    options = {"method": "spearman", "groups": conversation.tolist()}
    intervals = {
        "share_people": _share(right, conversation),
        "share_judge": _share(said, conversation),
        "length_bias": correlation(error, words, **options),
    }
    if "position" in scored:
        intervals["position_bias"] = correlation(error, scored["position"], **options)
    if "changes" in scored:
        intervals["changes"] = _share(scored["changes"], conversation)
    if conversation.nunique() >= _FEW:
        intervals |= _corrected_shares(said.to_numpy(), right.to_numpy(), conversation)
    return intervals


def _corrected_shares(
    said: np.ndarray, right: np.ndarray, conversation: pd.Series
) -> dict[str, Interval]:
    """Correct the judge's share by people's grades of every second conversation."""
    seen = pd.factorize(conversation)[0] % 2 == 0

    def of_drawn(places: np.ndarray) -> float:
        drawn = places.astype(int)
        return _rogan_gladen(said[drawn], right[drawn], seen[drawn])

    places = np.arange(len(said))
    labels = np.where(seen, right, np.nan)[:, None]
    judged = said.astype(float)[:, None]
    strata = np.zeros(len(said), int)
    (ppi,) = ppi_shares(labels, judged, strata, clusters=conversation.to_numpy())
    rogan_gladen = bootstrap_ci(places, of_drawn, groups=conversation.tolist())
    return {"rogan_gladen": rogan_gladen, "ppi": ppi}


def _rogan_gladen(said: np.ndarray, right: np.ndarray, seen: np.ndarray) -> float:
    """Correct the share that a judge said by its errors where the right grade was seen."""
    seen_right = seen & right
    seen_wrong = seen & ~right
    with np.errstate(invalid="ignore"):
        sensitivity = (said & seen_right).sum() / seen_right.sum()
        false_alarms = (said & seen_wrong).sum() / seen_wrong.sum()
    informed = sensitivity - false_alarms  # sensitivity + specificity - 1
    if informed == 0:
        return math.nan
    return (said.mean() - false_alarms) / informed
