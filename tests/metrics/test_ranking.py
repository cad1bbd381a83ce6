"""Rankings against relevant documents: values by hand, against slow definitions and recorded
columns.
"""

import math

import numpy as np
import pandas as pd
import pytest
from checks import refusals
from hypothesis import given, settings
from hypothesis import strategies as st

import ragbench as rb
from ragbench.errors import DataError
from ragbench.metrics.ranking import MEASURES, rank_table
from ragbench.records import Chunk, Hit

rankings = st.permutations(list("abcdefgh")).flatmap(
    lambda order: st.tuples(
        st.just(order), st.sets(st.sampled_from("abcdefghxyz")), st.integers(1, 8)
    )
)


def hits(*pairs):
    return [Hit(Chunk(i, "text", d, d.upper()), 1.0, n) for n, (i, d) in enumerate(pairs, 1)]


def rank_scores(retrieved, relevant, measures=MEASURES):
    """Of one question: value by measure."""
    return rank_table([retrieved], [relevant], measures).iloc[0].to_dict()


def value(measure, *arguments):
    return rank_scores(*arguments, [measure])[measure]


def test_values_by_hand():
    found = ["x", "a", "y", "b"]
    wanted = {"a", "b", "c"}
    assert value("R@2", found, wanted) == pytest.approx(1 / 3)
    assert value("R@10", found, wanted) == pytest.approx(2 / 3)
    assert value("Success@1", found, wanted) == 0.0
    assert value("Success@2", found, wanted) == 1.0
    assert value("P@3", found, wanted) == pytest.approx(1 / 3)
    assert value("RR", found, wanted) == 0.5
    assert value("RR@1", found, wanted) == 0.0
    assert value("AP", found, wanted) == pytest.approx((1 / 2 + 2 / 4) / 3)
    # gains at ranks 2 and 4 over the ideal at 1, 2, 3
    ideal = 1 + 1 / math.log2(3) + 1 / 2
    assert value("nDCG", found, wanted) == pytest.approx(
        (1 / math.log2(3) + 1 / math.log2(5)) / ideal
    )


def test_graded_gains_are_weighed():
    assert value("nDCG", ["b", "a"], {"a": 3, "b": 1}) == pytest.approx(
        (1 + 3 / math.log2(3)) / (3 + 1 / math.log2(3))
    )


def test_hits_count_by_document_and_a_document_gains_once():
    found = hits(("c1", "d1"), ("c2", "d1"), ("c3", "d2"))
    assert value("R@2", found, {"d1", "d2"}) == 0.5
    assert value("P@2", found, {"d1"}) == 0.5
    assert value("nDCG", found, {"d1"}) == 1.0
    assert value("R@3", [hit.chunk for hit in found], {"d2"}) == 1.0


def test_nothing_relevant_is_undefined_and_nothing_found_is_zero():
    assert all(map(math.isnan, rank_scores(["a"], set()).values()))
    assert math.isnan(value("nDCG", ["a"], {"a": 0}))
    assert set(rank_scores([], {"a"}).values()) == {0.0}


@settings(deadline=None, max_examples=50)
@given(rankings)
def test_values_equal_slow_definitions(case):
    from sklearn.metrics import ndcg_score

    order, wanted, k = case
    if not wanted:
        return
    assert value(f"R@{k}", order, wanted) == pytest.approx(
        len([w for w in wanted if w in order[:k]]) / len(wanted)
    )
    ranks = [order.index(w) + 1 for w in wanted if w in order[:k]]
    assert value(f"RR@{k}", order, wanted) == pytest.approx(1 / min(ranks) if ranks else 0)
    # scikit-learn ranks every candidate: those not retrieved come last, in any order, beyond k
    candidates = order + [w for w in sorted(wanted) if w not in order]
    truth = np.array([[float(c in wanted) for c in candidates]])
    scores = -np.arange(len(candidates), dtype=float)[None]
    assert value(f"nDCG@{k}", order, wanted) == pytest.approx(ndcg_score(truth, scores, k=k))


@pytest.mark.data
@pytest.mark.parametrize(
    "name", ["first500_bm25_results.csv.gz", "first500_dense_minilm_results.csv.gz"]
)
def test_recorded_recall_and_reciprocal_rank_columns_are_reproduced_exactly(recorded, name):
    rows = recorded(f"hotpotqa/{name}")
    assert len(rows) == 500
    checked = 0
    for row in rows:
        found = row["retrieved_titles"].split(" | ")
        wanted = row["gold_titles"].split(" | ")
        names = [*(f"{m}@{k}" for k in (2, 5, 10) for m in ("R", "Success")), "RR@10", "RR@50"]
        ours = rank_scores(found, wanted, names)
        ours |= {f"full@{k}": float(ours[f"R@{k}"] == 1) for k in (2, 5, 10)}
        for k in (2, 5, 10):
            for kind, measure in (("any", "Success"), ("full", "full"), ("partial", "R")):
                theirs = row[f"{kind}_evidence_recall@{k}"]
                if theirs:  # blank where a question has no more than k paragraphs
                    assert ours[f"{measure}@{k}"] == float(theirs)
                    checked += 1
        for k in (10, 50):
            if row[f"reciprocal_rank_at_{k}"]:
                assert ours[f"RR@{k}"] == pytest.approx(float(row[f"reciprocal_rank_at_{k}"]))
                checked += 1
    assert checked > 4000


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
    alone = [rank_scores(*case) for case in zip(found, wanted, strict=True)]
    calls = []
    once = ir_measures.iter_calc
    monkeypatch.setattr(ir_measures, "iter_calc", lambda *a: calls.append(a) or once(*a))
    table = rank_table(found, wanted)
    assert len(calls) == 1
    assert table["RR"].fillna(-1).tolist() == [1.0, 0.0, -1, 0.5]
    pd.testing.assert_frame_equal(table, pd.DataFrame(alone))
    twice = rank_table(found, wanted, ["RR", "MRR"])  # two names of one measure
    assert twice["RR"].tolist()[:2] == twice["MRR"].tolist()[:2] == [1.0, 0.0]


def test_rows_are_ranked_by_the_measures_names():
    rows = [{"retrieved_context_ids": ["a", "b"], "reference_context_ids": ["b"]}]
    scored = rb.score(rows, ["ranking"])
    assert scored.attrs["numbers"] == list(MEASURES)
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
