"""Functions that stand in notebooks, on hand-made data."""

import numpy as np
import pandas as pd
import pytest
from notebook_parts import parts

# Notebook 91: which step failed, so that every outcome and every rank can be read off

BOOK = parts("91")
MILL, RIVER = "Ada Ruck founded the mill in 1841.", "The mill stands on the river Ouse."
TEXTS = {
    "both": f"{MILL} {RIVER}",
    "mill": f"Long ago. {MILL}",
    "half": "The mill stands on the",  # 22 of the 34 letters of RIVER
    "less": "The mill stand",
    "none": "Nothing of the kind.",
}


def test_outcomes_name_the_step_that_failed():
    grades = pd.array([5, 5, 3, 1, 1, 5, None], dtype="Int64")
    rows = pd.DataFrame({"ir_score": [1.0, 0.4, 1.0, 1.0, 0.4, np.nan, 1.0], "grade": grades})
    assert BOOK.outcomes(rows, 1.0).fillna("no score").tolist() == [*BOOK.OUTCOMES, "no score", "no score"]
    assert BOOK.outcomes(rows, 0.4).tolist()[:5] == ["right", "right", *BOOK.OUTCOMES[2:4], "found, not used"]


@pytest.mark.parametrize(
    ("hits", "recall", "reciprocal"),
    [
        (("none", "mill", "half", "both"), [0, 0.5, 1, 1], [0, 0.5, 0.5, 0.5]),
        (("both", "none"), [1, 1, 1, 1], [1, 1, 1, 1]),
        (("none", "less"), [0, 0, 0, 0], [0, 0, 0, 0]),
        ((), [0, 0, 0, 0], [0, 0, 0, 0]),
    ],
)
def test_evidence_ranks_by_hand(hits, recall, reciprocal):
    curve = BOOK.evidence_ranks([MILL, RIVER], [TEXTS[name] for name in hits], 4)
    assert curve["rank"].tolist() == [1, 2, 3, 4]
    assert curve["recall@k"].tolist() == recall
    assert curve["MRR@k"].tolist() == reciprocal


# Notebook 14: shares by region, and probabilities of the grades' groups that no question has a hand in

CALIBRATION = parts("14")


def test_region_shares_by_hand_with_the_borders_between():
    scores = np.array([0.0, 0.105, 0.3, 0.67, 0.68, 1.0, 1.0, 0.1])
    assert CALIBRATION.region_shares(scores) == {"above k": 0.375, "between": 0.375, "below h": 0.25}


def test_isotonic_groups_follow_the_shares_at_each_score():
    groups = np.array([0, 0, 0, 1, 0, 1, 1, 2, 1, 2, 2, 2])
    shares = [[0.75, 0.25, 0.0], [0.25, 0.5, 0.25], [0.0, 0.25, 0.75]]
    assert CALIBRATION.isotonic(np.repeat([0.1, 0.5, 0.9], 4), groups, [0.1, 0.5, 0.9]).tolist() == shares


def brier(probabilities, truth):
    return ((probabilities - np.eye(3)[truth]) ** 2).sum(axis=1).mean()


def test_calibrated_probabilities_beat_the_boxes_on_unseen_questions():
    rng = np.random.default_rng(0)
    question = np.repeat(np.arange(600), 5)
    scores = rng.random(question.size)
    odds = np.exp(np.stack([0 * scores, 8 * scores - 1, 18 * scores - 8], axis=1))
    group = (rng.random(question.size)[:, None] > np.cumsum(odds / odds.sum(1, keepdims=True), axis=1)).sum(1)
    truth, made = group, CALIBRATION.cross_validated(scores, group, question)
    assert all(np.allclose(p.sum(axis=1), 1) and (p >= 0).all() for p in made.values())
    reached = {name: brier(p, truth) for name, p in made.items()}
    assert reached["isotonic"] < reached["h and k with shares"] < reached["h and k"]


def test_calibration_does_not_see_the_question_it_predicts():
    # Scores are the questions' own numbers and grades are drawn: a model that saw a question would know its grade.
    question = np.repeat(np.arange(80), 5)
    truth = np.random.default_rng(0).choice([0, 1, 2], 80)[question]
    made = CALIBRATION.cross_validated(question / 80, truth, question)
    leaky = CALIBRATION.isotonic(question / 80, truth, question / 80)
    assert brier(made["isotonic"], truth) > brier(made["base rate"], truth) > brier(leaky, truth)


# Notebook 15: what RGB and eRAG count


def test_a_right_answer_is_contained_in_any_case_and_the_first_right_document_counts():
    book = parts("15")
    assert book.contains_answer("It was PARIS in 2022.", "paris")
    assert not book.contains_answer("It was Rome.", "paris")
    assert book.first_right([0.0, 1.0, 1.0]) == 0.5
    assert book.first_right([0.0, 0.0]) == 0
