"""What a judge's grades follow beside the answers, and what they are worth: numbers that the
notebooks about judges show, from a `JudgeExam`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ragbench.data.mtrag import PeoplesGrades, load_mtrag
from ragbench.labelling.exam import JudgeExam, exam_grades
from ragbench.report.audit import labels_by_place
from ragbench.stats import Interval, correlation, mean_interval, power_analysis, ppi_shares, rogan_gladen

APART = 0.1  # difference in accuracy of two judges that are to be told apart
NUMBERS = (
    "spearman",
    "preference",
    "share_people",
    "share_judge",
    "rogan_gladen",
    "ppi",
    "length_bias",
    "position_bias",
)


def by_place(lists: Iterable[Sequence[Any] | None]) -> str:
    """Say whether labels follow the place of their item in the prompt: a list of labels per prompt with several items,
    None where it could not be read. A judge that labels by place is none.
    """
    table = pd.DataFrame([*filter(None, lists)]).melt()
    return labels_by_place(table["variable"] + 1, table["value"])[1]


def grades_by_place(graded: pd.DataFrame, order: int | None) -> str:
    """Say whether grades follow the place of their answer in a prompt of several: rows of an experiment with a judge.

    In a fixed ``order`` (None) a place is a system, and nothing can be said.
    """
    if order is None:
        return "in a fixed order a place is a system: no test tells the two apart"
    shared = graded[graded["judge_shown"] > 1].astype({"judge_position": int, "grade": int})
    return labels_by_place(shared["judge_position"], shared["grade"])[1]


def share(values: Any, conversation: pd.Series) -> Interval:
    """The mean of values, with an interval over conversations."""
    return mean_interval(np.asarray(values), cluster=conversation.tolist())


def numbers(exam: JudgeExam, best: int) -> pd.DataFrame:
    """A row for each measure and grader: `NUMBERS` with their bounds, separating, and refused.

    spearman : rank correlation of the grader's grade with a person's; NaN for a constant.
    preference : of the questions where a person prefers one of two answers, the share in which the
        grader prefers it too; no preference counts one half.
    separating : see `separating`.
    refused : why there is no rogan_gladen.

    Of the judge alone, see `of_judge`.
    """
    rows = []
    judges = exam.grades.groupby(["judge", "measure"])
    for (measure, grader), part in exam.pairs.groupby(["measure", "grader"], sort=False):
        scored = part.dropna(subset="grade_given")
        conversation = scored["conversation"]
        intervals = {
            "spearman": correlation(scored["grade"], scored["grade_given"], "spearman", cluster=conversation),
            "preference": share(*preferences(scored)),
        }
        if (grader, measure) in judges.groups:
            intervals |= of_judge(judges.get_group((grader, measure)), best)
        row = {"measure": measure, "grader": grader}
        undefined = Interval(np.nan, np.nan, np.nan, 0)
        for name in NUMBERS:
            row |= intervals.get(name, undefined).columns(name)
        corrected = intervals.get("rogan_gladen", undefined)
        row["refused"] = corrected.method.partition("refused: ")[2]
        rows.append(row)
    wanted = [separating(exam.pairs, row["measure"], row["grader"]) for row in rows]
    return pd.DataFrame(rows).assign(separating=wanted)


def preferences(pairs: pd.DataFrame) -> tuple[pd.Series, pd.Series]:
    """Agreement (0, 0.5 or 1) on each two answers to a question between which a person has a
    preference, and the conversation.
    """
    key = ["conversation", "question_id", "rater", "rater_given"]
    both = pairs.merge(pairs, on=key, suffixes=("", "_other")).sort_values(key)
    both = both[both["system"] < both["system_other"]]
    person = np.sign(both["grade"] - both["grade_other"])
    grader = np.sign(both["grade_given"] - both["grade_given_other"])
    agreement = (1 + person * grader) / 2
    return agreement[person != 0], both.loc[person != 0, "conversation"]


def separating(pairs: pd.DataFrame, measure: str, grader: str) -> float:
    """Answers that tell a grader apart from one whose accuracy differs by `APART`, with a power of
    .8: by the paired differences on the same answers, over conversations.

    The most that one of the other graders here needs; NaN without another.
    """
    items = ["conversation", "question_id", "system", "rater"]
    scored = pairs[pairs["measure"] == measure].dropna(subset="grade_given")
    right = scored["grade"].eq(scored["grade_given"]).groupby([scored[name] for name in [*items, "grader"]])
    wide = right.mean().unstack("grader")
    wanted = [np.nan]
    for other in wide.columns.drop(grader):
        both = wide[[grader, other]].dropna().reset_index()
        plan = power_analysis(both[grader], both[other], difference=APART, cluster=both["conversation"])
        answers = len(both[["question_id", "system"]].drop_duplicates())
        wanted.append(np.ceil(plan.needed * answers / plan.n))
    return float(np.nanmax(wanted)) if len(wanted) > 1 else np.nan


def of_judge(answers: pd.DataFrame, best: int) -> dict[str, Interval]:
    """What a judge's grades say of the share that is fully right, and what else they follow.

    share_people, share_judge : share of the best grade, by people's mean grade (rounded) and by the
        judge.
    rogan_gladen, ppi : share_judge, corrected by people's grades of every second conversation. They
        should come near share_people.
    length_bias, position_bias : rank correlation of grade less people's mean grade with the number
        of words, and with the place in the prompt.
    """
    scored = answers[answers["grade"].notna()]
    conversation = scored["conversation"]
    said = scored["grade"].eq(best).to_numpy(float)
    right = scored["people"].round().eq(best).to_numpy(float)
    error = scored["grade"] - scored["people"]
    words = scored["answer"].str.split().str.len()
    options = {"method": "spearman", "cluster": conversation.tolist()}
    intervals = {
        "share_people": share(right == 1, conversation),
        "share_judge": share(said == 1, conversation),
        "length_bias": correlation(error, words, **options),
    }
    if "position" in scored:
        intervals["position_bias"] = correlation(error, scored["position"], **options)
    number = pd.factorize(conversation)[0]
    if number.max(initial=0) >= 3:  # four conversations
        labels = np.where(number % 2 == 0, right, np.nan)
        intervals["rogan_gladen"] = rogan_gladen(labels, said, cluster=conversation.tolist())
        strata = np.zeros(len(said), int)
        clusters = conversation.to_numpy()
        (intervals["ppi"],) = ppi_shares(labels[:, None], said[:, None], strata, cluster=clusters)
    return intervals


def changes(model: Any, repeats: int, data: PeoplesGrades | None = None, **options: Any) -> dict[str, Interval]:
    """By measure the share of answers to which a chat model gives more than one grade, graded
    ``repeats`` times with different seeds.

    At temperature 0 a model replies alike whatever the seed: measure at the temperature that you
    grade with. ``options`` are of `exam_grades`.
    """
    data = data or load_mtrag()
    runs = []
    for added in range(repeats):
        one = model.model_copy(update={"seed": (model.seed or 0) + added})
        runs.append(exam_grades(one, data, **options))
    grades = pd.concat([run["grade"] for run in runs], axis=1)
    differ = grades.nunique(axis=1).gt(1).astype("boolean").where(grades.notna().sum(axis=1) > 1)
    answers = data.answers.drop_duplicates("question_id").set_index("question_id")
    conversation = runs[0]["question_id"].map(answers["conversation"])
    by_measure = differ.groupby(runs[0]["measure"], sort=False)
    return {name: share(part, conversation[part.index]) for name, part in by_measure}
