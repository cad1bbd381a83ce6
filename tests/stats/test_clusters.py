"""Which questions belong together: one rule, and the same numbers on every road to them."""

import warnings

import numpy as np
import pandas as pd
import pytest

import ragbench as rb
from ragbench.comparison import conclusions
from ragbench.errors import DataError
from ragbench.stats import compare, compare_scores, find_clusters, mean_interval, means

QUESTIONS = np.arange(60)
OWN = "each question is on its own"


def asked(**columns):
    """Two systems, of which each answers sixty questions."""
    rows = pd.DataFrame({"question_id": QUESTIONS, **columns})
    score = np.random.default_rng(7).random(120)
    both = pd.concat([rows.assign(system="a"), rows.assign(system="b")], ignore_index=True)
    return both.assign(score=score)


def in_documents(count):
    """Evidence of which each document serves neighbouring questions."""
    return [{f"d{number}": 1} for number in QUESTIONS * count // 60]


@pytest.mark.parametrize(
    ("columns", "rule"),
    [
        ({}, OWN),
        ({"topic": QUESTIONS // 3}, "20 by topic"),
        ({"topic": QUESTIONS // 3, "relevant": in_documents(12)}, "12 by shared documents of the evidence"),
        ({"topic": QUESTIONS // 6, "document": QUESTIONS // 3}, "10 by topic"),
        ({"topic": QUESTIONS // 20, "document": QUESTIONS // 2}, "30 by document; 3 by topic are too few to allow for"),
        ({"topic": QUESTIONS // 7, "relevant": in_documents(15)}, "15 by shared documents of the evidence; 9 by topic are too few to allow for"),
        ({"cluster": QUESTIONS // 30, "topic": QUESTIONS // 3}, "2 by the column 'cluster'"),
        ({"topic": QUESTIONS // 20, "document": QUESTIONS}, f"{OWN}; 3 by topic are too few to allow for"),
        ({"topic": "one", "document": QUESTIONS, "relevant": None}, OWN),
        ({"cluster": None, "topic": QUESTIONS // 3}, "20 by topic"),
    ],
)  # fmt: skip
def test_the_coarsest_column_with_ten_groups_is_taken_and_said(columns, rule):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rows = asked(**columns)
        assert find_clusters(rows).rule == rule
        assert means(rows, "system", "score").attrs["clusters"] == rule
        assert compare(rows, "system", "score").attrs["clusters"] == rule
        assert rb.compare_scores(rows, ["score"]).attrs["clusters"] == rule


def test_where_no_column_has_ten_groups_the_one_with_the_most_is_taken_with_a_warning():
    rows = asked(topic=QUESTIONS // 30, document=QUESTIONS // 10)
    with pytest.warns(UserWarning, match="only 6 clusters, by document: an interval over so few"):
        table = means(rows, "system", "score")
    assert table["clusters"].tolist() == [6, 6]
    assert table["low"].notna().all()
    assert table.attrs["clusters"] == "6 by document; 2 by topic are too few to allow for"


def test_fewer_than_five_clusters_have_no_interval_and_no_p_with_the_reason_unless_they_are_named():
    rows = asked(topic=QUESTIONS // 15)
    without = {means: "interval", compare: "interval and no p", compare_scores: "interval and no p"}
    for function, words in without.items():
        columns = ["score"] if function is compare_scores else ["system", "score"]
        with pytest.warns(UserWarning, match="only 4 clusters, by topic: too few"):
            table = function(rows, *columns)
        undefined = table.columns.intersection(["low", "high", "p", "p_holm"])
        assert table[undefined].isna().all(axis=None)
        assert set(table["clusters"]) == {4}
        assert table.attrs["clusters"] == f"4 by topic; no {words} over fewer than 5"
        assert table.attrs["intervals"] == []
    (sentence,) = conclusions(table)
    assert sentence.endswith("60 questions in 4 clusters are too few to test.")
    assert means(rows, "system", "score", cluster="topic")["low"].notna().all()
    named = compare(rows, "system", "score", cluster="topic")
    assert named[["low", "p", "p_holm"]].notna().all(axis=None)
    parts = means(asked(topic=QUESTIONS // 3, part=QUESTIONS // 57), "part", "score")
    assert parts["clusters"].tolist() == [19, 1]
    assert parts["low"].isna().tolist() == [False, True]


def test_topics_divide_a_table_and_are_no_clusters_within_one():
    rows = asked(topic=QUESTIONS // 3, document=QUESTIONS // 2)
    for table in (means(rows, "topic", "score"), compare(rows, "system", "score", by="topic")):
        assert table.attrs["clusters"].startswith("30 by document")
        assert set(table["clusters"]) == {2}


def test_each_data_set_has_its_own_clusters():
    one = asked(topic=QUESTIONS // 3, data="one")
    two = asked(document=QUESTIONS // 5, data="two")
    both = pd.concat([one, two], ignore_index=True)
    found = find_clusters(both)
    assert found.rule == "one: 20 by topic; two: 12 by document"
    assert found.labels.nunique() == 32
    apart = means(both, ["data", "system"], "score")
    for name, rows in (("one", one), ("two", two)):
        alone = means(rows, "system", "score")
        part = apart[apart["data"] == name].drop(columns="data").reset_index(drop=True)
        pd.testing.assert_frame_equal(part, alone)


def test_a_question_without_a_topic_is_one_cluster_in_all_its_rows():
    topics = pd.Series(QUESTIONS // 3).where(QUESTIONS > 5)
    with pytest.warns(UserWarning, match="6 of 60 questions have no 'topic'"):
        table = means(asked(topic=topics), [], "score")
    assert table["clusters"].tolist() == [18 + 6]
    assert table["n"].tolist() == [120]


def test_sixty_questions_of_twelve_documents_have_the_interval_of_twelve_by_hand():
    rows = asked(relevant=in_documents(12))
    one = rows[rows["system"] == "a"]
    by_hand = mean_interval(one["score"], cluster=QUESTIONS // 5)
    table = means(rows, "system", "score")
    assert table.loc[0, ["low", "high", "clusters"]].tolist() == [by_hand.low, by_hand.high, 12]
    assert compare(rows, "system", "score")["clusters"].tolist() == [12]
    named = means(
        rows.assign(topic=QUESTIONS.repeat(2)[::-1]), "system", "score", cluster="relevant"
    )
    assert named["clusters"].tolist() == [12, 12]
    alone = means(rows, "system", "score", cluster=None)
    assert "clusters" not in alone
    assert alone.attrs["clusters"] == "none, each row counts as one"


def test_a_question_in_two_topics_has_none_of_them_unasked():
    rows = asked()
    rows["topic"] = np.arange(120) // 3
    assert find_clusters(rows).rule == OWN
    with pytest.raises(DataError, match="question '0' has 2 values in the column 'topic'"):
        compare(rows, "system", "score", cluster="topic")


def test_where_no_two_systems_share_a_setting_the_table_is_empty():
    rows = asked(topic=QUESTIONS // 3)
    apart = rows.assign(k=rows["system"].map({"a": 1, "b": 2}))
    assert compare(apart, "system", "score", by=["k"]).empty
