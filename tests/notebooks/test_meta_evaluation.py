"""Notebook 25's fitted baseline: features by hand, choices that never see the tested domain, the
known numbers.
"""

import numpy as np
import pandas as pd
import pytest
from notebook_parts import parts

BOOK = parts("25")
QUESTION = "Which river is longer?"
TRUE = "The Nile is longer, at 6,650 kilometres, than the Congo."


@pytest.fixture
def features():
    vectors = {QUESTION: np.array([1.0, 0, 0]), TRUE: np.array([0.6, 0.8, 0])}
    vectors["The Nile. It has 6,650 kilometres."] = np.array([0.6, 0.0, 0.8])
    return lambda response: BOOK.features(QUESTION, TRUE, response, vectors)


def test_the_reference_itself_has_full_overlap_and_the_empty_response_none(features):
    itself = features(TRUE)
    empty = features("")
    assert [
        itself[name] for name in ("overlap_r", "overlap_p", "overlap_f", "order_f")
    ] == pytest.approx([1] * 4)
    assert itself["cosine"] == pytest.approx(1)
    assert (itself["short"], itself["long"], itself["empty"]) == (0, 0, 0)
    assert [
        empty[name] for name in ("overlap_r", "overlap_f", "order_f", "cosine", "names", "numbers")
    ] == [0] * 6
    assert empty["empty"] == 1
    assert empty["short"] == pytest.approx(np.log(5 / (10 + 5)))  # ten words, 6,650 among them


def test_numbers_and_names_are_those_of_the_reference_that_the_question_does_not_give(features):
    said = features("The Nile. It has 6,650 kilometres.")
    assert said["numbers"] == pytest.approx(np.log1p(1))
    assert said["names"] == pytest.approx(np.log1p(1))  # Nile; Congo is not said
    # beside the question's direction the two have nothing in common
    assert said["cosine"] == pytest.approx(0)


def test_stance_reads_yes_and_no_and_for_such_questions_the_first_sentence():
    assert [BOOK.stance(text, False) for text in ("Yes, it is.", "no", "It is not.", "")] == [
        1,
        -1,
        0,
        0,
    ]
    polar = ("It is not so. Yes.", "It is so. Not here.", "The answer is no.")
    assert [BOOK.stance(text, True) for text in polar] == [-1, 1, -1]


def test_an_overlap_by_hand():
    assert BOOK.overlap({"nile": 2.0, "north": 2.0}, {"nile": 3.0, "dam": 1.0}) == pytest.approx(
        (0.5, 0.5, 0.5)
    )
    assert BOOK.overlap({"nile": 2.0}, {}) == (0.0, 0.0, 0.0)


def test_a_common_word_weighs_less_than_a_rare_one_and_an_unknown_one_most():
    assert BOOK.log_rank("the") == pytest.approx(np.log(6))  # the first word of the vocabulary
    assert (
        BOOK.log_rank("the")
        < BOOK.log_rank("river")
        < BOOK.log_rank("receptor")
        < BOOK.log_rank("keflavik")
    )


def test_ridge_has_the_weights_of_its_equations():
    columns = np.array([[2.0, 0.0], [2.0, 0.0]])
    labels = np.array([1.0, 1.0])
    # One column of root mean square 2: z = 1, 1; w = 2 / (2 + 0.5 x 2) on z, half of it on the
    # column; no column, 0.
    assert BOOK.fitted(columns, labels, 0.5) == pytest.approx([1 / 3, 0])


def test_no_label_of_a_domain_moves_its_own_predictions(monkeypatch):
    rng = np.random.default_rng(1)
    names = BOOK.nested.__globals__
    domains = np.repeat(["a", "b", "c", "d"], 6)
    apart = pd.DataFrame(rng.normal(size=(24, 12)), columns=BOOK.SETS[-1])
    for name, value in {"domains": domains, "apart": apart, "whole": apart.abs() + 1}.items():
        monkeypatch.setitem(names, name, value)
    labels = rng.normal(size=24)
    other = labels.copy()
    other[domains == "b"] = rng.normal(size=6)
    one = BOOK.nested(labels)
    two = BOOK.nested(other)
    assert np.array_equal(one[domains == "b"], two[domains == "b"])
    assert not np.array_equal(one[domains != "b"], two[domains != "b"])


def test_simultaneous_intervals_are_wider_than_single_ones_and_hold_the_estimate():
    rng = np.random.default_rng(2)
    n = 60
    preference = {
        aspect: rng.integers(-2, 3, (n, 2)) for aspect in ("correctness", "completeness", "overall")
    }
    meta = pd.DataFrame({"domain": "x", "question": [f"{i:02d}" for i in range(n)]})
    first, second = ({aspect: rng.normal(size=n) for aspect in preference} for _ in range(2))
    estimate, low, high = BOOK.simultaneous(
        {"first - second": (first, second)}, meta, preference, 200
    )
    assert len(estimate) == 3 * 2
    assert ((low < estimate) & (estimate < high)).all()
    one = 100 * (
        np.corrcoef(np.repeat(first["overall"], 2), preference["overall"].ravel())[0, 1]
        - np.corrcoef(np.repeat(second["overall"], 2), preference["overall"].ravel())[0, 1]
    )
    assert estimate[4] == pytest.approx(one)
