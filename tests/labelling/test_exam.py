"""The judge's exam: what is asked, in which order, and the numbers of a small case by hand."""

import math

import pandas as pd
import pytest
from fake_ollama import FakeOllama

import ragbench as rb
from ragbench.data.mtrag import PeoplesGrades, load_mtrag
from ragbench.errors import DataError
from ragbench.labelling.exam import (
    PROMPTS,
    SYSTEMS,
    exam_grades,
    exam_order,
    exam_prompt,
    exam_report,
)
from ragbench.records import Dataset, Question


def small():
    """Two conversations, a question each, two answers each, two raters."""
    questions = tuple(
        Question(name, f"{name}?", "x", meta={"topic": f"c-{name}", "doc_ids": (), "turns": ()})
        for name in ("p", "q")
    )
    given = {  # question, system -> the grades of rater 1 and rater 2
        ("p", SYSTEMS[0]): (4, 4),
        ("p", SYSTEMS[1]): (2, 3),
        ("q", SYSTEMS[0]): (4, 3),
        ("q", SYSTEMS[1]): (4, 4),
    }
    grades = [
        (*key, "faithfulness", f"rater {n}", grade)
        for key, both in given.items()
        for n, grade in enumerate(both, 1)
    ]
    columns = ["question_id", "system", "measure", "rater", "grade"]
    answers = pd.DataFrame(list(given), columns=columns[:2]).assign(answer="a")
    return PeoplesGrades(
        Dataset("small", questions, ()), answers, pd.DataFrame(grades, columns=columns)
    )


def judged(*grades):
    keys = [("p", SYSTEMS[0]), ("p", SYSTEMS[1]), ("q", SYSTEMS[0]), ("q", SYSTEMS[1])]
    rows = [(*key, "faithfulness", grade) for key, grade in zip(keys, grades, strict=True)]
    return pd.DataFrame(rows, columns=["question_id", "system", "measure", "grade"])


def report(*grades):
    return exam_report(judged(*grades), small()).set_index("grader")


def test_by_hand():
    table = report(4, 3, 4, 3)
    judge = table.loc["the judge"]
    # pairs with a person: 4-4 4-4, 3-2 3-3, 4-4 4-3, 3-4 3-4
    assert judge["accuracy"] == 4 / 8
    # persons below 4: 2, 3 (judge 3, 3) and 3 (judge 4); persons at 4: two with 4, one with 4, two with 3
    assert judge["sensitivity"] == 2 / 3
    assert judge["specificity"] == 3 / 5
    # both persons prefer the first in p, rater 2 the second in q; the judge prefers the first in both
    assert judge["preference"] == 2 / 3
    another = table.loc["another person"]
    assert another["accuracy"] == 4 / 8  # p1 and q2 agree, both ways
    constant = table.loc["always 4"]
    assert constant[["accuracy", "sensitivity", "specificity"]].tolist() == [5 / 8, 0, 1]
    assert constant["preference"] == 0.5
    assert math.isnan(constant["spearman"])


def test_a_judge_that_says_what_both_people_say_is_right_and_an_unread_grade_is_counted():
    table = report(4, 2, 4, None)
    assert table.loc["the judge", ["answers", "unscored"]].tolist() == [4, 1]
    assert table.loc["the judge", "accuracy"] == 4 / 6
    # the pair in q has no second grade: only p counts
    assert table.loc["the judge", "preference"] == 1


def test_the_quadratic_kappa_is_that_of_scikit_learn():
    sklearn = pytest.importorskip("sklearn.metrics")
    pairs = [(4, 4), (4, 4), (3, 2), (3, 3), (4, 4), (4, 3), (3, 4), (3, 4)]
    expected = sklearn.cohen_kappa_score(*zip(*pairs, strict=True), weights="quadratic")
    assert report(4, 3, 4, 3).loc["the judge", "kappa"] == pytest.approx(expected)


def test_grades_without_their_columns_are_refused():
    with pytest.raises(DataError, match="measure"):
        exam_report(pd.DataFrame({"question_id": ["p"], "system": ["s"], "grade": [4]}), small())


def test_the_first_twenty_questions_are_of_twenty_conversations():
    data = load_mtrag()
    order = exam_order(data)
    topics = [data.dataset.question(name).meta["topic"] for name in order]
    assert len(set(order)) == 159
    assert len(set(topics[:20])) == len(set(topics[20:40])) == 20


def test_the_prompt_holds_all_that_people_saw():
    data = load_mtrag()
    question = next(q for q in data.dataset.questions if q.id.endswith("::>3"))
    for measure in PROMPTS:
        prompt = exam_prompt(question, data.passages(question.id), "The answer.", measure)
        assert all(text in prompt for text in data.passages(question.id))
        assert all(text in prompt for _, text in question.meta["turns"])
        assert "The answer." in prompt
        assert {"faithfulness": "How faithful", "completeness": "How complete"}[measure] in prompt


def test_a_judge_is_asked_once_per_answer_and_measure_and_bad_replies_are_unscored():
    with FakeOllama(reply=lambda body: '{"grade": 3}') as server:
        graded = exam_grades(server.model(), questions=2, progress=False)
        assert len(server.calls) == len(graded) == 2 * len(SYSTEMS) * len(PROMPTS)
        assert graded["grade"].eq(3).all()
        table = rb.examine_judge(server.model(), questions=2, progress=False)
        assert table.equals(exam_report(graded))
    with FakeOllama(reply=lambda body: '{"grade": 5}') as server:
        graded = exam_grades(server.model(), questions=1, progress=False, retries=0)
        assert graded["grade"].isna().all()
