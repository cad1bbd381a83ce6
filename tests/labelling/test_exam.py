"""The judge's exam: what is asked, in which order, and the numbers of a small case by hand."""

import json
import math
from dataclasses import replace

import pandas as pd
import pytest
from experiment_parts import JudgeDouble
from fake_ollama import FakeOllama
from sklearn.metrics import cohen_kappa_score

from ragbench.data.mtrag import PeoplesGrades, load_mtrag
from ragbench.errors import ConfigError, DataError, ModelError
from ragbench.labelling.exam import (
    EXAM_PROMPTS,
    SYSTEMS,
    exam_grades,
    exam_prompts,
    exam_report,
    measure_judge,
)
from ragbench.records import Dataset, Failure, Question

QUIET = {"progress": False, "retries": 0}
GIVEN = {  # question, system -> the grades of rater 1 and rater 2
    ("p", SYSTEMS[0]): (4, 4),
    ("p", SYSTEMS[1]): (2, 3),
    ("q", SYSTEMS[0]): (4, 3),
    ("q", SYSTEMS[1]): (4, 4),
}
COLUMNS = ["question_id", "system", "measure", "rater", "grade"]


def people(given, texts=("a",) * 4):
    """Make people's grades of a conversation a question."""
    grades = [
        (*key, "faithfulness", f"rater {n}", grade)
        for key, both in given.items()
        for n, grade in enumerate(both, 1)
    ]
    answers = pd.DataFrame(list(given), columns=COLUMNS[:2]).assign(answer=texts)
    answers["conversation"] = answers["question_id"]
    questions = tuple(Question(name, f"{name}?", "x") for name in answers["question_id"].unique())
    dataset = Dataset("small", questions, ())
    return PeoplesGrades(dataset, answers, pd.DataFrame(grades, columns=COLUMNS))


def judged(keys, grades):
    rows = [(*key, "faithfulness", grade) for key, grade in zip(keys, grades, strict=True)]
    return pd.DataFrame(rows, columns=[*COLUMNS[:3], "grade"])


def report(*grades):
    return exam_report(judged(GIVEN, grades), people(GIVEN)).table.set_index("grader")


def row_of_the_judge(graded, *labels):
    return exam_report(graded, *labels).table.iloc[0]


def test_by_hand():
    table = report(4, 3, 4, 3)
    judge = table.loc["the judge"]
    # pairs with a person: 4-4 4-4, 3-2 3-3, 4-4 4-3, 3-4 3-4
    assert judge["accuracy"] == 4 / 8
    # persons below 4: 2, 3 (judge 3, 3) and 3 (judge 4); persons at 4: two with 4, one with 4, two with 3
    assert judge["sensitivity"] == 2 / 3
    assert judge["specificity"] == 3 / 5
    another = table.loc["another person"]
    assert another["accuracy"] == 4 / 8  # p1 and q2 agree, both ways
    constant = table.loc["always 4"]
    assert constant[["accuracy", "sensitivity", "specificity"]].tolist() == [5 / 8, 0, 1]
    pairs = [(4, 4), (4, 4), (3, 2), (3, 3), (4, 4), (4, 3), (3, 4), (3, 4)]
    expected = cohen_kappa_score(*zip(*pairs, strict=True), weights="quadratic")
    assert judge["kappa"] == pytest.approx(expected)


def test_a_judge_that_says_what_both_people_say_is_right_and_an_unread_grade_is_counted():
    table = report(4, 2, 4, None)
    assert table.loc["the judge", ["answers", "unscored"]].tolist() == [4, 1]
    assert table.loc["the judge", "accuracy"] == 4 / 6


def test_grades_are_counted_by_the_persons_grade():
    exam = exam_report(judged(GIVEN, [4, 3, 4, None]), people(GIVEN))
    counts = exam.confusion("the judge", "faithfulness")
    assert counts.loc[4, 4] == 3  # both of p, one of q
    assert (counts.loc[3, 4], counts.loc[2, 3], counts.loc[3, 3]) == (1, 1, 1)
    assert counts.to_numpy().sum() == 6
    with pytest.raises(ConfigError, match="unknown grader 'nobody'"):
        exam.confusion("nobody", "faithfulness")


def test_the_first_twenty_questions_are_of_twenty_conversations():
    data = load_mtrag()
    order = exam_prompts(data)["question_id"].unique()
    topics = [data.dataset.question(name).meta["topic"] for name in order]
    assert len(set(order)) == 159
    assert len(set(topics[:20])) == len(set(topics[20:40])) == 20


@pytest.mark.parametrize(
    ("measure", "words"), [("faithfulness", "How faithful"), ("completeness", "How complete")]
)
def test_the_prompt_holds_all_that_people_saw(measure, words):
    data = load_mtrag()
    question = next(q for q in data.dataset.questions if q.id.endswith("::>3"))
    place = [question.id, SYSTEMS[0]]
    prompt = exam_prompts(data).set_index(COLUMNS[:3])["prompt"][*place, measure]
    answer = data.answers.set_index(COLUMNS[:2])["answer"][*place]
    turns = [text for _, text in question.meta["turns"]]
    assert all(text in prompt for text in (*data.passages(question.id), *turns, answer, words))


def test_a_judge_is_asked_once_per_answer_and_measure_beside_people_and_references():
    def reply(body):
        return '{"grades": [3]}' if "grades" in json.dumps(body["format"]) else '{"grade": 3}'

    with FakeOllama(reply=reply) as server:
        graded = exam_grades(server.model(), questions=2, progress=False)
        assert len(server.calls) == len(graded) == 2 * len(SYSTEMS) * len(EXAM_PROMPTS)
        assert graded["grade"].eq(3).all()
        exam = measure_judge(server.model(), limit=2, progress=False)
        assert len(server.calls) == 2 * len(graded) + 2 * 2
        summary = exam.summary()
    by_people = exam.table[exam.table["labels"] == "MTRAG, people"]
    assert by_people["accuracy"].tolist() == exam_report(graded).table["accuracy"].tolist()
    assert set(by_people["prompt"]) == set(EXAM_PROMPTS.values())
    assert exam.table["scale"].tolist() == ["1 to 4"] * 6 + ["1 to 5"] * 6
    graders = {grader for labels, _, grader in summary.columns if labels == "MiniHop, reference"}
    assert graders == {"ollama:llama3:8b", "always 5", "contained"}


def test_a_grade_outside_the_scale_is_unscored():
    with FakeOllama(reply=lambda body: '{"grade": 5}') as server:
        graded = exam_grades(server.model(), questions=1, **QUIET)
    assert graded["grade"].isna().all()
    assert graded["failure"].str.startswith("unusable").all()


# Reference grades


def test_the_yardstick_itself_is_as_good_as_contained():
    exam = measure_judge(JudgeDouble())
    assert exam.table["answers"].tolist() == [179] * 3 + [181] * 3
    assert exam.table["unscored"].eq(0).all()
    for _, rows in exam.table.groupby("measure"):
        numbers = rows.set_index("grader")[["sensitivity", "specificity"]]
        # The double grades 5 where the true answer stands in the answer.
        assert numbers.loc["judge double"].equals(numbers.loc["contained"])
        assert numbers.loc["contained"].mean() == pytest.approx(0.67, abs=0.03)
    row = exam.table.iloc[0]
    assert row["sensitivity_low"] < row["sensitivity"] < row["sensitivity_high"]


def test_reference_grades_by_hand():
    keys = [("p", "a"), ("p", "b"), ("q", "a"), ("q", "b")]
    data = people(dict(zip(keys, [(1,), (1,), (2,), (5,)], strict=True)))
    row = row_of_the_judge(judged(keys, [1, 2, 2, None]), data, range(1, 6))
    assert row[["answers", "unscored", "accuracy"]].tolist() == [4, 1, pytest.approx(2 / 3)]
    assert row["kappa"] == pytest.approx(cohen_kappa_score([1, 1, 2], [1, 2, 2]))
    with pytest.raises(DataError, match="7"):
        exam_report(judged(keys, [1, 7, 2, 2]), data, range(1, 6))


def test_a_judge_whose_replies_cannot_be_read_is_measured_and_one_that_is_not_there_is_told():
    with FakeOllama(reply=lambda body: "junk") as server:
        judge = server.model()
        row = measure_judge(judge, limit=1, progress=False).table.iloc[0]
        assert row[["answers", "unscored"]].tolist() == [2, 2]
        assert math.isnan(row["accuracy"])
    with pytest.raises(ModelError, match="none of 4 answers was graded; the first reason"):
        measure_judge(judge, limit=1, **QUIET)


class Harsh(JudgeDouble):
    """A double that calls the first half of the answers wrong."""

    name = "harsh double"

    def grade_all(self, questions, answers):
        grades = super().grade_all(questions, answers)
        half = len(grades) // 2
        harsh = [replace(one, value=2, judge=self.name) for one in grades[:half]]
        return harsh + [replace(one, judge=self.name) for one in grades[half:]]


def test_two_judges_are_compared_on_the_same_answers():
    exam = measure_judge([JudgeDouble(), Harsh()], limit=10)
    of_judge = exam.table.set_index(["measure", "grader"])["accuracy"]
    assert len(of_judge) == 2 * 4  # both judges, the constant, contained
    for row in exam.differences().itertuples():
        assert (row.first, row.second, row.n) == ("judge double", "harsh double", 10)
        expected = of_judge[row.measure, row.first] - of_judge[row.measure, row.second]
        assert row.accuracy == pytest.approx(expected)
        assert not row.accuracy_low > row.accuracy
    differ = exam.disagreements("judge double", "harsh double")
    assert len(differ) == exam.differences()["differ"].sum() > 0
    assert differ["harsh double"].eq(2).all()
    assert differ["people"].isin(range(1, 6)).all()
    assert exam.differences()["differ"].tolist() == [10, 0]  # half of all 20
    with pytest.raises(ConfigError, match="unknown judge 'nobody'"):
        exam.disagreements("nobody", "harsh double")


def test_a_prompt_of_another_scale_than_the_reference_grades_is_refused_before_any_call(tmp_path):
    prompt = tmp_path / "mine.txt"
    prompt.write_text("---\nScale:\n0: wrong\n1: right\n---\n{question} {answers}")
    with FakeOllama() as server:
        with pytest.raises(ConfigError, match=r"mine.txt(.|\n)*1 to 5(.|\n)*ragbench.kappa"):
            measure_judge(server.model(), prompt=prompt, limit=1, progress=False)
        assert server.calls == []


def test_a_judge_of_ones_own_that_fails_without_a_word_is_counted():
    class Silent(JudgeDouble):
        def grade_all(self, questions, answers):
            first, *others = super().grade_all(questions, answers)
            return [replace(first, value=None, failure=Failure("boom", "")), *others]

    exam = measure_judge(Silent(), limit=4)
    assert exam.grades["failure"].dropna().unique().tolist() == ["boom: "]
