"""Notebook 90: its areas, correlations and tables against other libraries and by hand."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from notebook_parts import parts
from scipy.stats import spearmanr
from sklearn.metrics import roc_auc_score

BOOK = parts("90")


def table(n=40, seed=0):
    """Made scores of every metric, with two answers a question and four questions a cluster."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.random((n, len(BOOK.METRICS))), columns=BOOK.METRICS.index)
    frame["question_id"] = [f"q{i // 2}" for i in range(n)]
    frame["cluster"] = [i // 8 for i in range(n)]
    frame["fully right"] = (rng.random(n) < 0.4).astype(float)
    return frame


def test_every_metric_has_a_paper_what_it_reads_and_a_direction():
    assert BOOK.METRICS.index.is_unique
    assert set(BOOK.METRICS["reads"]) == {"answer", "context", "answer and context"}
    lower = {name for name, higher in BOOK.METRICS["higher"].items() if not higher}
    assert "RAGChecker hallucination" in lower
    assert "contained" not in lower


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=2, max_size=30))
def test_the_area_is_scikit_learns(pairs):
    values = np.array([v for v, _ in pairs], float)
    good = np.array([g for _, g in pairs])
    if good.all() or not good.any():
        assert np.isnan(BOOK.area(values, good))
    else:
        assert BOOK.area(values, good) == pytest.approx(roc_auc_score(good, values))


def test_a_metric_of_which_less_is_better_is_turned():
    frame = table()
    name = "RAGChecker hallucination"
    np.testing.assert_allclose(BOOK.turned(frame)[name], -frame[name])
    np.testing.assert_allclose(BOOK.turned(frame)["contained"], frame["contained"])


def test_pairs_to_one_question_by_hand():
    values = np.array([3.0, 1.0, 2.0, 2.0, 9.0])
    good = np.array([True, False, True, False, True])
    groups = ["a", "a", "b", "b", "c"]  # won, tied, and a question without another answer
    assert BOOK.pairs_within(values, good, groups) == (1.5, 2)


def test_agreement_is_in_order_counts_what_is_undefined_and_turns_each_metric():
    frame = table()
    frame["contained"] = frame["fully right"]
    frame["RAGChecker hallucination"] = 1 - frame["fully right"]
    frame.loc[:4, "RAGEval EIR"] = np.nan
    agreed = BOOK.grade_agreement(frame, 50).set_index("metric")
    assert list(agreed["auc"]) == sorted(agreed["auc"], reverse=True)
    assert agreed.loc["contained", "auc"] == agreed.loc["RAGChecker hallucination", "auc"] == 1.0
    assert tuple(agreed.loc["RAGEval EIR", ["n", "undefined"]]) == (35, 5)
    row = agreed.loc["token F1"]
    assert row["low"] <= row["auc"] <= row["high"]
    assert row["auc"] == pytest.approx(roc_auc_score(frame["fully right"], frame["token F1"]))


def test_correlations_are_scipys_on_metrics_turned_so_that_more_is_better():
    frame = table(seed=3)
    a = "RAGChecker hallucination"
    b = "contained"
    found = BOOK.rank_correlations(frame, [(a, b)], 0)
    assert found["estimate"].item() == pytest.approx(-spearmanr(frame[a], frame[b]).statistic)


def test_the_matrix_is_symmetric_with_ones():
    names = list(BOOK.METRICS.index)
    pairs = pd.DataFrame(
        [(a, b, 0.25) for i, a in enumerate(names) for b in names[i + 1 :]],
        columns=["a", "b", "estimate"],
    )
    matrix = BOOK.as_matrix(pairs).to_numpy()
    assert (matrix == matrix.T).all()
    assert (np.diag(matrix) == 1).all()
    assert set(matrix[~np.eye(len(names), dtype=bool)]) == {0.25}
