"""The graded answers over MiniHop, and what the embedded grader and its baselines reach on them."""

import hashlib
from collections import Counter

import numpy as np
import pytest
from checks import load_script
from fake_ollama import FakeOllama
from ragbench.labelling.embedded_grader import EmbeddedGrader

from ragbench.data import load_minihop
from ragbench.errors import ConfigError, DataError, ModelError
from ragbench.labelling.graded_answers import (
    as_answers,
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


def test_fifty_five_are_graded_twice_and_alike(gold):
    twice = [(one.grade, one.second_grade) for one in gold if one.second_grade is not None]
    assert len(twice) == 55
    assert all(first == second for first, second in twice)


def test_the_embedded_grader_on_the_test_split_as_measured(gold, judged):
    _, test = judge_report(judged, gold).to_dict("records")
    assert (test["judge"], test["split"], test["n"], test["unscored"]) == ("embedded grader", "test", 181, 0)
    assert test["accuracy"] == pytest.approx(138 / 181)
    assert test["kappa"] == pytest.approx(0.702, abs=0.001)
    assert test["kappa_low"] > 0.6


def test_the_shipped_weights_are_a_fit_on_dev_alone_of_the_shipped_data(questions):
    card = EmbeddedGrader().card
    for name, digest in card["data_sha256"].items():
        found = hashlib.sha256(packaged_data("minihop", name).read_bytes()).hexdigest()
        assert found == digest, f"{name} changed: run scripts/fit_embedded_grader.py"
    assert "179 answers to 94 questions, split dev" in card["fitted_on"]
    fit = load_script("fit_embedded_grader").fit_embedded_grader
    made, grader = fit(questions, load_graded_answers(split="dev")), EmbeddedGrader()
    np.testing.assert_allclose(made["weights"], grader._weights, atol=2e-3)
    np.testing.assert_allclose(made["offsets"], grader._offsets, atol=2e-3)


def test_measure_judge_needs_no_argument_and_takes_a_split():
    (dev,) = measure_judge(split="dev").to_dict("records")
    assert dev["split"] == "dev"
    assert dev["accuracy"] > 0.85  # fitted on it
    assert measure_judge(limit=3)["n"].tolist() == [3, 3]
    for call in (measure_judge, load_graded_answers):
        with pytest.raises(ConfigError, match="dev, test"):
            call(split="train")


def test_a_judge_whose_replies_cannot_be_read_is_measured_and_one_that_is_not_there_is_told():
    with FakeOllama(reply=lambda body: "junk") as server:
        judge = server.model()
        (dev,) = measure_judge(judge, split="dev", limit=2, progress=False).to_dict("records")
        assert (dev["n"], dev["unscored"]) == (2, 2)
        assert np.isnan(dev["accuracy"])
    with pytest.raises(ModelError, match="none of 2 answers was graded; the first reason"):
        measure_judge(judge, split="dev", limit=2, progress=False, retries=1)


GOOD = {"id": "a", "question_id": "q", "answer": "x", "grade": 3, "split": "dev"}


def test_a_file_of_ones_own_is_read_and_an_empty_answer_kept(write_lines):
    (one,) = load_graded_answers(write_lines("g.jsonl", GOOD | {"answer": "", "second_grade": 2}))
    assert (one.text, one.grade, one.second_grade) == ("", 3, 2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"grade": 6}, "line 2: 'grade' is 6"),
        ({"grade": "3"}, "line 2: 'grade' is '3'"),
        ({"grade": True}, "line 2: 'grade' is True"),
        ({"second_grade": 9}, "line 2: 'second_grade' is 9"),
        ({"split": "train"}, "line 2: 'split' is 'train'"),
        ({"id": "a"}, "line 2: id 'a' was there before"),
        ({"split": "test"}, "g.jsonl: question_id 'q' is in both splits"),
    ],
)
def test_a_bad_line_is_named(write_lines, change, message):
    path = write_lines("g.jsonl", GOOD, GOOD | {"id": "b"} | change)
    with pytest.raises(DataError, match=message):
        load_graded_answers(path)
