"""Recall, precision, reciprocal rank, nDCG."""

from __future__ import annotations

import csv
import gzip
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragbench.errors import ConfigError
from ragbench.metrics.ranking import ndcg_at_k, precision_at_k, ranking_table, recall_at_k, reciprocal_rank
from ragbench.records import Chunk, Hit

rankings = st.permutations(list("abcdefgh")).flatmap(
    lambda order: st.tuples(st.just(order), st.sets(st.sampled_from("abcdefghxyz")), st.integers(1, 8))
)


def hits(*pairs):
    return [Hit(Chunk(i, "text", d, d.upper()), 1.0, n) for n, (i, d) in enumerate(pairs, 1)]


def test_values_by_hand():
    found, wanted = ["x", "a", "y", "b"], {"a", "b", "c"}
    assert recall_at_k(found, wanted, 2) == pytest.approx(1 / 3)
    assert recall_at_k(found, wanted) == pytest.approx(2 / 3)
    assert recall_at_k(found, wanted, 1, kind="any") == 0.0
    assert recall_at_k(found, wanted, 2, kind="any") == 1.0
    assert recall_at_k(found, wanted, 4, kind="full") == 0.0
    assert recall_at_k(found, {"a", "b"}, 4, kind="full") == 1.0
    assert precision_at_k(found, wanted, 3) == pytest.approx(1 / 3)
    assert reciprocal_rank(found, wanted) == 0.5
    assert reciprocal_rank(found, wanted, 1) == 0.0
    # gains at ranks 2 and 4 over the ideal at 1, 2, 3
    ideal = 1 + 1 / math.log2(3) + 1 / 2
    assert ndcg_at_k(found, wanted) == pytest.approx((1 / math.log2(3) + 1 / math.log2(5)) / ideal)


def test_graded_gains_are_weighed():
    assert ndcg_at_k(["b", "a"], {"a": 3.0, "b": 1.0}) == pytest.approx((1 + 3 / math.log2(3)) / (3 + 1 / math.log2(3)))


def test_hits_count_by_document_chunk_or_title_and_a_document_gains_once():
    found = hits(("c1", "d1"), ("c2", "d1"), ("c3", "d2"))
    assert recall_at_k(found, {"d1", "d2"}, 2) == 0.5
    assert reciprocal_rank(found, {"c3"}, by="id") == pytest.approx(1 / 3)
    assert reciprocal_rank(found, {"D2"}, by="title") == pytest.approx(1 / 3)
    assert precision_at_k(found, {"d1"}, 2) == 1.0
    assert ndcg_at_k(found, {"d1"}) == 1.0
    assert recall_at_k([hit.chunk for hit in found], {"d2"}) == 1.0


def test_nothing_relevant_is_undefined_and_nothing_found_is_zero():
    assert math.isnan(recall_at_k(["a"], set(), 1))
    assert math.isnan(reciprocal_rank(["a"], []))
    assert math.isnan(ndcg_at_k(["a"], {"a": 0.0}))
    assert math.isnan(precision_at_k([], {"a"}))
    assert recall_at_k([], {"a"}, 3) == reciprocal_rank([], {"a"}) == ndcg_at_k([], {"a"}) == 0.0


@settings(deadline=None)
@given(rankings)
def test_values_equal_slow_definitions(case):
    from sklearn.metrics import ndcg_score

    order, wanted, k = case
    if not wanted:
        return
    assert recall_at_k(order, wanted, k) == len([w for w in wanted if w in order[:k]]) / len(wanted)
    ranks = [order.index(w) + 1 for w in wanted if w in order[:k]]
    assert reciprocal_rank(order, wanted, k) == (1 / min(ranks) if ranks else 0)
    # scikit-learn ranks every candidate: those not retrieved come last, in any order, beyond k
    candidates = order + [w for w in sorted(wanted) if w not in order]
    truth = np.array([[float(c in wanted) for c in candidates]])
    scores = -np.arange(len(candidates), dtype=float)[None]
    if len(candidates) > 1:
        assert ndcg_at_k(order, wanted, k) == pytest.approx(ndcg_score(truth, scores, k=k))


@pytest.mark.data
@pytest.mark.parametrize("name", ["first500_bm25_results.csv.gz", "first500_dense_minilm_results.csv.gz"])
def test_recorded_recall_and_reciprocal_rank_columns_are_reproduced_exactly(data_mirror, name):
    with gzip.open(data_mirror / "hotpotqa" / name, "rt", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 500
    checked = 0
    for row in rows:
        found, wanted = row["retrieved_titles"].split(" | "), row["gold_titles"].split(" | ")
        for k in (2, 5, 10):
            for kind in ("any", "full", "partial"):
                recorded = row[f"{kind}_evidence_recall@{k}"]
                if recorded:  # blank where a question has no more than k paragraphs
                    assert recall_at_k(found, wanted, k, kind=kind) == float(recorded)
                    checked += 1
        for k in (10, 50):
            if row[f"reciprocal_rank_at_{k}"]:
                assert reciprocal_rank(found, wanted, k) == float(row[f"reciprocal_rank_at_{k}"])
                checked += 1
    assert checked > 4000


def test_table_has_a_row_per_question_and_names_that_carry_their_parameters():
    table = ranking_table([["a", "b"], ["x"]], [{"b"}, {"b"}], ks=(1, 2))
    assert len(table) == 2
    assert table["recall[full]@2"].tolist() == [1.0, 0.0]
    assert table["reciprocal_rank@2"].tolist() == [0.5, 0.0]
    assert table["ndcg@1"].tolist() == [0.0, 0.0]
    assert len(table.columns) == 10


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: recall_at_k("abc", {"a"}), "retrieved is str"),
        (lambda: recall_at_k(["a"], "a"), "relevant is str"),
        (lambda: recall_at_k(["a"], {"a"}, 0), "k=0"),
        (lambda: recall_at_k(["a"], {"a"}, kind="ful"), "did you mean 'full'"),
        (lambda: reciprocal_rank(["a"], {"a"}, by="doc"), "did you mean 'doc_id'"),
        (lambda: ndcg_at_k(["a"], {"a": -1.0}), "at least 0"),
        (lambda: ranking_table([["a"]], []), "1 results for 0 questions"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ConfigError, match=message):
        call()
