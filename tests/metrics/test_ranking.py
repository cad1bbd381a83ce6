"""Rankings against relevant documents: values by hand, against slow definitions and recorded
columns.
"""

import math
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest
from checks import refusals
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import ndcg_score

import ragbench as rb
from ragbench.errors import ConfigError, DataError
from ragbench.metrics.ranking import RANK_MEASURES, rank_table
from ragbench.records import Chunk, Hit


def hits(*pairs):
    return [Hit(Chunk(i, "text", d, d.upper()), 1.0, n) for n, (i, d) in enumerate(pairs, 1)]


def rank_scores(retrieved, relevant, measures=RANK_MEASURES):
    """Of one question: value by measure."""
    return rank_table([retrieved], [relevant], measures).iloc[0].to_dict()


def value(measure, *arguments):
    return rank_scores(*arguments, [measure])[measure]


@pytest.mark.parametrize(
    ("measure", "expected"),
    [
        ("R@2", pytest.approx(1 / 3)),
        ("R@10", pytest.approx(2 / 3)),
        ("Success@1", 0),
        ("Success@2", 1),
        ("P@3", pytest.approx(1 / 3)),
        ("RR", 1 / 2),
        ("RR@1", 0),
        ("AP", pytest.approx((1 / 2 + 2 / 4) / 3)),
        # gains at ranks 2 and 4 over the ideal at 1, 2, 3
        (
            "nDCG",
            pytest.approx((1 / math.log2(3) + 1 / math.log2(5)) / (1 + 1 / math.log2(3) + 1 / 2)),
        ),
    ],
)
def test_values_by_hand(measure, expected):
    assert value(measure, ["x", "a", "y", "b"], {"a", "b", "c"}) == expected


def test_graded_gains_are_weighed():
    expected = (1 + 3 / math.log2(3)) / (3 + 1 / math.log2(3))
    assert value("nDCG", ["b", "a"], {"a": 3, "b": 1}) == pytest.approx(expected)


def test_hits_count_by_document_and_a_document_gains_once():
    found = hits(("c1", "d1"), ("c2", "d1"), ("c3", "d2"))
    assert value("R@2", found, {"d1", "d2"}) == 0.5
    assert value("P@2", found, {"d1"}) == 0.5
    assert value("nDCG", found, {"d1"}) == 1.0
    assert value("R@3", [hit.chunk for hit in found], {"d2"}) == 1.0


def test_an_id_that_comes_twice_gains_where_it_comes_first():
    table = rank_table([["a", "x", "a"]], [{"a"}], ["RR", "P@2", "AP"])
    assert table.to_numpy().tolist() == [[1, 0.5, 1]]


def test_nothing_relevant_is_undefined_and_nothing_found_is_zero():
    assert all(map(math.isnan, rank_scores(["a"], set()).values()))
    assert math.isnan(value("nDCG", ["a"], {"a": 0}))
    assert set(rank_scores([], {"a"}).values()) == {0.0}


@settings(max_examples=50)
@given(
    st.permutations(list("abcdefgh")),
    st.sets(st.sampled_from("abcdefghxyz"), min_size=1),
    st.integers(1, 8),
)
def test_values_equal_slow_definitions(order, wanted, k):
    ranks = [order.index(w) + 1 for w in wanted if w in order[:k]]
    assert value(f"R@{k}", order, wanted) == pytest.approx(len(ranks) / len(wanted))
    assert value(f"RR@{k}", order, wanted) == pytest.approx(1 / min(ranks, default=math.inf))
    # scikit-learn ranks every candidate: those not retrieved come last, in any order, beyond k
    candidates = [*order, *wanted.difference(order)]
    truth = [[float(c in wanted) for c in candidates]]
    scores = [range(len(candidates), 0, -1)]
    assert value(f"nDCG@{k}", order, wanted) == pytest.approx(ndcg_score(truth, scores, k=k))


@pytest.mark.data
@pytest.mark.parametrize(
    "name", ["first500_bm25_results.csv.gz", "first500_dense_minilm_results.csv.gz"]
)
def test_recorded_recall_and_reciprocal_rank_columns_are_reproduced_exactly(recorded, name):
    rows = pd.DataFrame(recorded(f"hotpotqa/{name}"))
    assert len(rows) == 500
    cuts = (2, 5, 10)
    columns = {f"any_evidence_recall@{k}": f"Success@{k}" for k in cuts}
    columns |= {f"partial_evidence_recall@{k}": f"R@{k}" for k in cuts}
    columns |= {f"reciprocal_rank_at_{k}": f"RR@{k}" for k in (10, 50)}
    ours = rank_table(
        rows["retrieved_titles"].str.split(" | ", regex=False),
        rows["gold_titles"].str.split(" | ", regex=False),
        list(columns.values()),
    ).set_axis([*columns], axis=1)
    for k in cuts:
        ours[f"full_evidence_recall@{k}"] = ours[f"partial_evidence_recall@{k}"] == 1
    theirs = rows[ours.columns].replace("", np.nan).astype(float)
    # blank where a question has no more than k paragraphs
    assert theirs.count().sum() > 4000
    shown = ours.astype(float).where(theirs.notna())
    pd.testing.assert_frame_equal(shown, theirs, rtol=1e-6, atol=1e-12)
    recalls = [column for column in theirs if "recall" in column]
    assert shown[recalls].equals(theirs[recalls])


def test_err_by_hand_and_names_with_blanks():
    # Gains 1 and 2 of at most 4: satisfied by (2 ** gain - 1) / 16. Rank 1 satisfies 1/16, rank 3
    # 3/16 of those who are left (Chapelle et al. 2009).
    found = ["the tower", "b", "c"]
    expected = 1 / 16 + (1 - 1 / 16) * 3 / 16 / 3
    assert value("ERR@3", found, {"the tower": 1, "c": 2}) == pytest.approx(expected, abs=1e-5)


def test_many_questions_are_scored_in_one_call_as_each_alone(monkeypatch):
    import ir_measures

    found = [["a", "b"], [], ["c"], hits(("c1", "x"), ("c2", "a"))]
    wanted = [{"a"}, {"a"}, set(), {"a": 2}]
    alone = pd.DataFrame(map(rank_scores, found, wanted))
    counted = Mock(wraps=ir_measures.iter_calc)
    monkeypatch.setattr(ir_measures, "iter_calc", counted)
    table = rank_table(found, wanted)
    assert counted.call_count == 1
    assert table["RR"].fillna(-1).tolist() == [1.0, 0.0, -1, 0.5]
    pd.testing.assert_frame_equal(table, alone)
    twice = rank_table(found, wanted, ["RR", "MRR"])  # two names of one measure
    assert twice["RR"].tolist()[:2] == twice["MRR"].tolist()[:2] == [1.0, 0.0]


def test_rows_are_ranked_by_the_measures_names():
    rows = [{"retrieved_context_ids": ["a", "b"], "reference_context_ids": ["b"]}]
    scored = rb.score(rows, ["ranking"])
    assert scored.numbers == list(RANK_MEASURES)
    assert scored[["RR", "P@10"]].to_numpy().tolist() == [[0.5, 0.1]]


test_bad_input_is_named = refusals(
    (lambda: rank_scores("abc", {"a"}), DataError, "retrieved is one text"),
    (lambda: rank_scores(["a"], "a"), DataError, "relevant is one text"),
    (lambda: rank_scores(["a"], {"a"}, ["nDGC@10"]), "unknown measure 'nDGC@10'"),
    (lambda: rank_scores(["a"], {"a": -1}), "at least 0"),
)


@pytest.mark.parametrize(
    ("found", "wanted"),
    [([2.0, 1.0], [1]), ([2, 1], [1.0]), (["2", "1"], [1.0]), ([2.0, 1.0], ["1"])],
)
def test_a_number_as_an_id_is_one_id_however_it_is_written(found, wanted):
    assert rank_scores(found, wanted, ["RR"]) == {"RR": 0.5}


def test_one_measure_may_be_named_alone():
    assert rank_table([["a"]], [["a"]], "RR")["RR"].tolist() == [1.0]


@pytest.mark.parametrize("gain", ["high", None, 0.5, -1])
def test_a_gain_that_is_no_whole_number_is_named_with_its_document(gain):
    with pytest.raises(ConfigError, match=f"the gain {gain!r} of 'd'"):
        rank_table([["d"]], [{"d": gain}])
