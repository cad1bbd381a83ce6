"""RAGAS's metrics from labels and vectors: worked by hand, against slow versions, and where they
are undefined.
"""

import math

import numpy as np
import pandas as pd
import pytest
from checks import refusals
from hypothesis import given
from hypothesis import strategies as st

from ragbench.errors import DataError
from ragbench.metrics.reference_free import (
    ExtractedSentences,
    answer_relevance,
    context_relevance,
    faithfulness,
)


def test_faithfulness_is_the_share_of_supported_statements():
    assert faithfulness([1, 1, 0, 1, 0]) == 0.6
    assert (
        faithfulness(["Yes", "No"])
        == faithfulness([True, False])
        == faithfulness(np.array([1, 0]))
        == 0.5
    )
    assert math.isnan(faithfulness([]))


def test_an_unread_verdict_makes_the_score_undefined():
    for unread in (None, float("nan"), pd.NA):
        assert math.isnan(faithfulness([1, 1, 0, unread]))


def test_answer_relevance_is_the_mean_cosine_and_lengths_do_not_matter():
    question = [3.0, 4.0]
    generated = [[6.0, 8.0], [4.0, -3.0], [5.0, 0.0]]
    assert answer_relevance(question, generated) == pytest.approx((1 + 0 + 0.6) / 3)


@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 4))
def test_answer_relevance_equals_a_loop_over_questions(seed, dimension, n):
    question, *generated = np.random.default_rng(seed).normal(size=(n + 1, dimension))
    cosines = []
    for other in generated:
        length = math.sqrt(sum(question**2)) * math.sqrt(sum(other**2))
        cosines.append(sum(question * other) / length)
    got = answer_relevance(question, generated)
    assert got == pytest.approx(sum(cosines) / n, abs=1e-9)
    assert -1 <= got <= 1


def test_zero_vectors_and_no_questions_are_undefined():
    assert math.isnan(answer_relevance([1.0, 0.0], []))
    assert math.isnan(answer_relevance([1.0, 0.0], [[1.0, 0.0], [0.0, 0.0]]))
    assert math.isnan(answer_relevance([0.0, 0.0], [[1.0, 0.0]]))


SENTENCES = [
    "The tower is tall.",
    "It was built in 1896.",
    "Trams stopped there.",
    "It cost 25,000.",
]


def copies(extracted, sentences=SENTENCES):
    found = ExtractedSentences.of(extracted, sentences)
    return context_relevance(len(found.sentences), found.total)


def test_context_relevance_is_extracted_over_all_sentences():
    assert context_relevance(3, 8) == 0.375
    assert math.isnan(context_relevance(0, 0))
    assert math.isnan(context_relevance(None, 4))


def test_only_whole_copies_count_each_once_whatever_their_white_space():
    copied = ["It was built\n in 1896.", SENTENCES[1], "It was built in 1897.", "Trams stopped"]
    assert copies(copied) == 0.25
    assert copies([" ".join(SENTENCES[:2])]) == 0.5
    assert copies(SENTENCES) == 1
    assert ExtractedSentences.of(copied, SENTENCES).altered == tuple(copied[2:])


@pytest.mark.parametrize(
    "extracted", [[], ["Insufficient Information"], [' "insufficient information." ']]
)
def test_insufficient_information_and_nothing_extracted_are_zero(extracted):
    assert copies(extracted) == 0.0
    assert ExtractedSentences.of(extracted, SENTENCES).insufficient


@given(
    st.integers(1, 8).flatmap(
        lambda n: st.tuples(st.just(n), st.lists(st.integers(0, n + 2), max_size=12))
    )
)
def test_context_relevance_counts_distinct_known_sentences(drawn):
    total, chosen = drawn
    sentences = [f"Sentence {chr(97 + i)} ends." for i in range(total)]
    extracted = [f"Sentence {chr(97 + i)} ends." for i in chosen]
    assert copies(extracted, sentences) == len({i for i in chosen if i < total}) / total
    assert copies(extracted[::-1], sentences) == copies(extracted, sentences)


VECTOR = [1.0, 0.0]
SAME = [[1.0, 0.0]] * 3
test_bad_input_is_named = refusals(
    (lambda: faithfulness([1, "maybe"]), DataError, "verdict 'maybe'"),
    (lambda: faithfulness([0.5]), DataError, "verdict 0.5"),
    (lambda: faithfulness([[1]]), DataError, "verdict"),
    (lambda: faithfulness("Yes"), DataError, "verdicts is one text"),
    (lambda: answer_relevance(VECTOR, [[1.0, 0.0, 0.0]]), DataError, "2 and of 3 numbers"),
    (lambda: answer_relevance([VECTOR], SAME), DataError, "the question as one vector"),
    (lambda: answer_relevance([1.0, float("nan")], SAME), DataError, "finite numbers"),
    (lambda: context_relevance(3, 2), DataError, "3 extracted of 2 sentences"),
)
