"""The graded answers over MiniHop, and what the embedded grader and its baselines reach on them."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from checks import load_script

from ragbench.data import load_minihop
from ragbench.data.files import sha256
from ragbench.errors import DataError
from ragbench.labelling.embedded_grader import EmbeddedGrader
from ragbench.labelling.graded_answers import (
    _second_grading_kappa,
    accuracy_gain,
    as_answers,
    baseline_grades,
    judge_report,
    load_graded_answers,
    measure_judge,
)
from ragbench.labelling.grades import grade
from ragbench.paths import packaged_data


@pytest.fixture(scope="module")
def questions():
    return load_minihop().questions


@pytest.fixture(scope="module")
def gold():
    return load_graded_answers()


@pytest.fixture(scope="module")
def judged(questions, gold):
    return grade(EmbeddedGrader(), questions, as_answers(gold))


def test_there_are_360_answers_two_to_each_of_the_180_questions(questions, gold):
    assert len(gold) == len({one.id for one in gold}) == 360
    assert {one.question_id for one in gold} <= {question.id for question in questions}
    assert Counter(one.split for one in gold) == {"dev": 179, "test": 181}


def test_no_supporting_document_is_in_both_splits(questions, gold):
    documents = {q.id: {title for title, _ in q.meta["supporting_facts"]} for q in questions}
    dev, test = (set().union(*(documents[one.question_id] for one in gold if one.split == s)) for s in ("dev", "test"))
    assert not dev & test


def test_fifty_five_are_graded_twice_with_their_kappa(gold):
    assert sum(one.second_grade is not None for one in gold) == 55
    agreement = _second_grading_kappa(gold)
    assert (agreement.n, agreement.estimate) == (55, 1.0)


def test_the_embedded_grader_on_the_test_split_as_measured(gold, judged):
    report = judge_report(judged, gold)
    test = report["test"]
    assert report.judge == "embedded grader"
    assert (test.n, test.unscored) == (181, 0)
    assert test.accuracy.estimate == pytest.approx(138 / 181)
    assert test.kappa.estimate == pytest.approx(0.702, abs=0.001)
    assert test.kappa.low > 0.6
    assert np.diag(test.confusion).tolist() == [24, 26, 29, 33, 26]


def test_it_beats_the_baselines_tuned_on_dev_with_intervals_that_exclude_zero(questions, gold, judged):
    dev, test = ([one for one in gold if one.split == s] for s in ("dev", "test"))
    mine = [value for value, one in zip(judged, gold, strict=True) if one.split == "test"]
    baselines = baseline_grades(questions, dev, test)
    reached = {name: judge_report(other, test)["test"].accuracy.estimate for name, other in baselines.items()}
    right = {"majority class": 37, "exact match": 39, "ROUGE-L cut-offs": 58, "words and length": 94}
    assert reached == pytest.approx({name: n / 181 for name, n in right.items()})
    for name, other in baselines.items():
        gain = accuracy_gain(mine, other, test)
        assert gain.low > (0.1 if name == "words and length" else 0.25), name


def test_the_shipped_weights_are_a_fit_on_dev_alone_of_the_shipped_data(questions):
    card = EmbeddedGrader().card
    for name, digest in card["data_sha256"].items():
        assert sha256(packaged_data("minihop", name)) == digest, f"{name} changed: run scripts/fit_embedded_grader.py"
    assert "179 answers to 94 questions, split dev" in card["fitted_on"]
    fit = load_script("fit_embedded_grader").fit_embedded_grader
    made, grader = fit(questions, load_graded_answers(split="dev")), EmbeddedGrader()
    np.testing.assert_allclose(made["weights"], grader._weights, atol=2e-3)
    np.testing.assert_allclose(made["offsets"], grader._offsets, atol=2e-3)


def test_measure_judge_needs_no_argument_and_takes_a_split():
    report = measure_judge(split="dev")
    assert list(report.splits) == ["dev"]
    assert report["dev"].accuracy.estimate > 0.85  # fitted on it
    assert report.second_grading.n == 28


GOOD = {"id": "a", "question_id": "q", "answer": "x", "grade": 3, "split": "dev"}


def test_a_file_of_ones_own_is_read_and_an_empty_answer_kept(write_lines):
    (one,) = load_graded_answers(write_lines("g.jsonl", GOOD | {"answer": "", "second_grade": 2}))
    assert (one.text, one.grade, one.second_grade) == ("", 3, 2)
    assert math.isnan(_second_grading_kappa(load_graded_answers(write_lines("h.jsonl", GOOD))).estimate)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"grade": 6}, "line 2: 'grade' is 6"),
        ({"grade": "3"}, "line 2: 'grade' is '3'"),
        ({"grade": True}, "line 2: 'grade' is True"),
        ({"second_grade": 9}, "line 2: 'second_grade' is 9"),
        ({"split": "train"}, "line 2: 'split' is 'train'"),
        ({"id": "a"}, "line 2: id 'a' was there before"),
        ({"split": "test"}, "line 2: question_id 'q' is in both splits"),
    ],
)
def test_a_bad_line_is_named(write_lines, change, message):
    path = write_lines("g.jsonl", GOOD, GOOD | {"id": "b"} | change)
    with pytest.raises(DataError, match=message):
        load_graded_answers(path)
