"""The graded answers over MiniHop, which are checked as they are read."""

from collections import Counter

import pytest

from ragbench.data import load_minihop
from ragbench.errors import ConfigError, DataError
from ragbench.labelling.graded_answers import (
    load_graded_answers,
)


@pytest.fixture(scope="module")
def questions():
    return load_minihop().questions


@pytest.fixture(scope="module")
def gold():
    return load_graded_answers()


def test_there_are_360_answers_two_to_each_of_the_180_questions(questions, gold):
    assert len(gold) == len({one.id for one in gold}) == 360
    assert {one.question_id for one in gold} <= {question.id for question in questions}
    assert Counter(one.split for one in gold) == {"dev": 179, "test": 181}


def test_no_supporting_document_is_in_both_splits(questions, gold):
    documents = {q.id: {title for title, _ in q.meta["supporting_facts"]} for q in questions}
    dev, test = (
        set().union(*(documents[one.question_id] for one in gold if one.split == s))
        for s in ("dev", "test")
    )
    assert not dev & test


def test_an_unknown_split_is_named():
    with pytest.raises(ConfigError, match="dev, test"):
        load_graded_answers(split="train")


def test_fifty_five_are_graded_twice_and_alike(gold):
    twice = [(one.grade, one.second_grade) for one in gold if one.second_grade is not None]
    assert len(twice) == 55
    assert all(first == second for first, second in twice)


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
        ({"id": "a"}, "line 2: 'a' was there before"),
        ({"split": "test"}, "g.jsonl: question_id 'q' is in both splits"),
    ],
)
def test_a_bad_line_is_named(write_lines, change, message):
    path = write_lines("g.jsonl", GOOD, GOOD | {"id": "b"} | change)
    with pytest.raises(DataError, match=message):
        load_graded_answers(path)
