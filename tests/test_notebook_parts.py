"""Which step failed, as notebook 91 tells it: hand-made rows, so that every outcome and every rank can be read off."""

import numpy as np
import pandas as pd
import pytest
from notebook_parts import parts

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
