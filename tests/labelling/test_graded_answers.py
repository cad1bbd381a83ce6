"""The graded answers over MiniHop."""

from collections import Counter

import pytest

from ragbench.data import load_minihop
from ragbench.errors import ConfigError
from ragbench.labelling.grades import load_graded_answers


@pytest.fixture(scope="module")
def gold():
    return load_graded_answers()


def test_there_are_360_answers_two_to_each_of_the_180_questions(gold):
    assert len(gold) == len({one.meta["id"] for one in gold}) == 360
    questions = Counter(one.question_id for one in gold)
    assert set(questions) <= {question.id for question in load_minihop().questions}
    assert Counter(one.meta["split"] for one in gold) == {"dev": 179, "test": 181}
    assert all(one.meta["grade"] in range(1, 6) for one in gold)
    assert load_graded_answers("dev") == tuple(one for one in gold if one.meta["split"] == "dev")


def test_no_question_and_no_supporting_document_is_in_both_splits(gold):
    questions = {question.id: question for question in load_minihop().questions}
    documents = {"dev": set(), "test": set()}
    for one in gold:
        facts = questions[one.question_id].meta["supporting_facts"]
        documents[one.meta["split"]] |= {one.question_id, *(title for title, _ in facts)}
    assert not documents["dev"] & documents["test"]


def test_an_unknown_split_is_named():
    with pytest.raises(ConfigError, match="dev, test"):
        load_graded_answers(split="train")


def test_fifty_five_are_graded_twice_and_alike(gold):
    twice = [one.meta for one in gold if one.meta["second_grade"] is not None]
    assert len(twice) == 55
    assert all(meta["grade"] == meta["second_grade"] for meta in twice)
