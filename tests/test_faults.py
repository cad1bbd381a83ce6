"""Which step failed: hand-made rows, so that every outcome and every rank can be read off."""

import numpy as np
import pandas as pd
import pytest

from ragbench.errors import ConfigError, DataError
from ragbench.faults import OUTCOMES, evidence_ranks, outcome_shares, outcomes
from ragbench.records import Chunk, Dataset, Question

MILL, RIVER = "Ada Ruck founded the mill in 1841.", "The mill stands on the river Ouse."
CHUNKS = {
    "c": [
        Chunk("both", f"{MILL} {RIVER}", "d1", "Mill"),
        Chunk("mill", f"Long ago. {MILL}", "d2", "Ruck"),
        Chunk("half", "The mill stands on the", "d3", "Cut"),  # 22 of the 34 letters of RIVER
        Chunk("none", "Nothing of the kind.", "d4", "Other"),
    ]
}
DATA = Dataset(
    "mills",
    (
        Question("q1", "Who founded the mill, and where?", "Ada Ruck", (MILL, RIVER)),
        Question("q2", "Why?", "no one knows", ()),
    ),
    (),
)


def rows(*hits, question="q1", N=100, **more):
    cells = {"question_id": question, "chunker": "c", "N": N, "hits": list(hits), "k": 4, "retriever": "R"}
    return pd.DataFrame([cells | {"ir_score": 0.5, "grade": 5, "answer": "Ada"} | more])


def test_outcomes_name_the_step_that_failed():
    frame = pd.DataFrame(
        {
            "ir_score": [1.0, 0.4, 1.0, 1.0, 0.4, np.nan, 1.0],
            "grade": pd.array([5, 5, 3, 1, 1, 5, None], dtype="Int64"),
            "system": ["a"] * 6 + ["b"],
        }
    )
    assert outcomes(frame).tolist() == [*OUTCOMES, None, None]
    assert outcomes(frame, enough=0.4).tolist()[:5] == ["right", "right", *OUTCOMES[2:4], "found, not used"]
    shares = outcome_shares(frame, "system").set_index("system")
    assert shares.loc["a", list(OUTCOMES)].tolist() == [0.2] * 5
    assert shares[["n", "unscored"]].to_numpy().tolist() == [[5, 1], [0, 1]]
    assert shares.loc["b", list(OUTCOMES)].isna().all()
    for wrong in (0, 1.1):
        with pytest.raises(ConfigError, match="above 0 and up to 1"):
            outcomes(frame, enough=wrong)


@pytest.mark.parametrize(
    ("hits", "recall", "reciprocal"),
    [
        (("none", "mill", "half", "both"), [0, 0.5, 1, 1], [0, 0.5, 0.5, 0.5]),
        (("both", "none"), [1, 1, 1, 1], [1, 1, 1, 1]),
        (("none",), [0, 0, 0, 0], [0, 0, 0, 0]),
        ((), [0, 0, 0, 0], [0, 0, 0, 0]),
    ],
)
def test_evidence_ranks_by_hand(hits, recall, reciprocal):
    curve = evidence_ranks(rows(*hits), DATA, CHUNKS)
    assert curve["rank"].tolist() == [1, 2, 3, 4]
    assert curve["recall"].tolist() == recall
    assert curve["reciprocal_rank"].tolist() == reciprocal


def test_rows_without_documents_have_no_ranks():
    with pytest.raises(DataError, match="no row has hits"):
        evidence_ranks(rows(N=0), DATA, CHUNKS)


def test_a_chunk_with_less_than_the_share_is_not_relevant():
    assert evidence_ranks(rows("half"), DATA, CHUNKS, share=0.7)["recall"].tolist() == [0] * 4


def test_budgets_count_once_and_questions_without_references_are_nan():
    frame = pd.concat(
        [rows("both"), rows("both", N=300), rows(N=0), rows("both", question="q2"), rows("mill", retriever="S")]
    )
    curve = evidence_ranks(frame, DATA, CHUNKS)
    assert len(curve) == 3 * 4
    assert curve.loc[curve["question_id"] == "q2", "recall"].isna().all()
    at_1 = curve[(curve["rank"] == 1) & (curve["question_id"] == "q1")].set_index("retriever")["recall"]
    assert at_1.to_dict() == {"R": 1.0, "S": 0.5}
