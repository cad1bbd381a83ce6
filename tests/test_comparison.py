"""Systems compared in pairs over the same questions: which pairs, what each says, and what cannot
be compared.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pandas as pd
import pytest

from ragbench import comparison, plots
from ragbench.errors import ConfigError, DataError
from ragbench.records import Dataset, Question
from ragbench.stats import (
    compare,
    holm,
    paired_bootstrap_difference,
    paired_permutation_test,
    power_analysis,
)

AB = [("A@50", "B@50"), ("A@100", "B@100")]


def made_rows(n=24, seed=0, **axes):
    """Rows of three retrievers at two budgets: B beats A by 0.3, C equals A; grades only from N =
    100.
    """
    rng = np.random.default_rng(seed)
    rows = []
    for i, (system, N) in itertools.product(
        range(n), [("A", 50), ("A", 100), ("B", 50), ("B", 100), ("C", 100)]
    ):
        score = rng.uniform(0, 0.6) + 0.3 * (system == "B")
        grade = 5 if system == "B" or i % 3 == 0 else 1
        row = {"data": "d", "question_id": f"q{i}", "chunker": "c", "retriever": system, "k": 5, "N": N,
               "generator": "g", "judge": "j", "ir_score": score, "grade": grade}  # fmt: skip
        rows.append(row | axes)
    frame = pd.DataFrame(rows)
    frame["grade"] = frame["grade"].astype("Int64")
    return frame


def column(rows, system, n, name):
    return rows[(rows["retriever"] == system) & (rows["N"] == n)][name].to_numpy(float)


def test_a_comparison_is_the_paired_test_on_the_same_questions_corrected_over_the_table():
    rows = made_rows()
    table = comparison.compare_systems(rows, AB)
    assert list(zip(table["a"], table["b"], table["measure"], strict=True)) == [
        (*pair, measure) for pair in AB for measure in ("IR score", "fully right")
    ]
    for row in table[table["measure"] == "IR score"].to_dict("records"):
        n = int(row["a"].split("@")[1])
        a = column(rows, "A", n, "ir_score")
        b = column(rows, "B", n, "ir_score")
        assert row["difference"] == pytest.approx(a.mean() - b.mean())
        assert (row["mean a"], row["mean b"]) == (pytest.approx(a.mean()), pytest.approx(b.mean()))
        assert row["p"] == paired_permutation_test(a, b).p_value
        interval = paired_bootstrap_difference(a, b)
        assert (row["low"], row["high"]) == (interval.low, interval.high)
        assert row["detectable"] == power_analysis(a, b, difference=1, alpha=0.05 / 4).detectable
    right = table[(table["measure"] == "fully right") & (table["a"] == "A@50")].iloc[0]
    assert right["difference"] == pytest.approx(8 / 24 - 1)
    assert table["p_holm"].tolist() == holm(table["p"]).tolist()
    assert (table["n"] == 24).all()
    # the order of the rows does not matter
    mixed = comparison.compare_systems(rows.sample(frac=1, random_state=1), AB)
    assert mixed["difference"].tolist() == pytest.approx(table["difference"].tolist())


def pairs_of(rows, pairs=None):
    table = comparison.compare_systems(rows, pairs)
    return list(dict.fromkeys(zip(table["a"], table["b"], strict=True)))


def test_systems_are_compared_at_the_same_budget_or_else_every_two():
    rows = made_rows()
    assert pairs_of(rows) == [
        ("A@50", "B@50"),
        ("A@100", "B@100"),
        ("A@100", "C@100"),
        ("B@100", "C@100"),
    ]
    assert pairs_of(rows, [("A@50", "A@100")]) == [("A@50", "A@100")]
    assert pairs_of(rows[rows["retriever"] == "A"]) == [("A@50", "A@100")]
    bare = rows[rows["retriever"] == "C"].assign(N=0, k=0, chunker="none", retriever="LLM only")
    assert pairs_of(pd.concat([rows[rows["retriever"] == "A"], bare])) == [
        ("A@50", "LLM only@0"),
        ("A@100", "LLM only@0"),
    ]
    two = pd.concat([rows[rows["N"] == 50], rows[rows["N"] == 50].assign(k=2)])
    assert ("A, k=5@50", "B, k=2@50") in pairs_of(two)
    assert len(pairs_of(two)) == 6


def test_a_question_that_one_system_lacks_is_missing_and_counted():
    rows = made_rows()
    rows.loc[rows["question_id"] == "q0", "grade"] = pd.NA
    gone = (rows["question_id"] == "q1") & (rows["retriever"] == "A")
    gone |= (rows["question_id"] == "q2") & (rows["retriever"] == "B")
    table = comparison.compare_systems(rows[~gone], AB[:1]).set_index("measure")
    assert table["n"].to_dict() == {"IR score": 22, "fully right": 21}
    assert table["missing"].to_dict() == {"IR score": 2, "fully right": 3}
    for name, system in (("mean a", "A"), ("mean b", "B")):
        both = np.delete(column(rows, system, 50, "ir_score"), [1, 2])
        assert table.loc["IR score", name] == pytest.approx(both.mean())


def test_systems_are_named_by_the_axes_that_differ():
    rows = pd.concat([made_rows(4), made_rows(4, k=9)], ignore_index=True)
    bare = (
        made_rows(4)
        .query("retriever == 'C'")
        .assign(N=0, k=0, chunker="none", retriever="LLM only")
    )
    names = comparison.system_scores(pd.concat([rows, bare]))["system"]
    assert {name.partition("@")[0] for name in names} == {
        *(f"{r}, k={k}" for r in "ABC" for k in (5, 9)),
        "LLM only",
    }
    judged = pd.concat([made_rows(4), made_rows(4, judge="other")], ignore_index=True)
    assert "A, other@50" in set(comparison.system_scores(judged)["system"])


def test_a_column_of_topics_keeps_questions_together():
    rows = made_rows()
    rows["topic"] = rows["question_id"].str[1:].astype(int) // 4
    plain, topical = (
        comparison.compare_systems(rows, AB, cluster=name) for name in (None, "topic")
    )
    # what the rows know is the default
    pd.testing.assert_frame_equal(comparison.compare_systems(rows, AB), topical)
    by_hand = paired_permutation_test(
        *(column(rows, s, 50, "ir_score") for s in "AB"), cluster=np.arange(24) // 4
    )
    assert topical["p"][0] == by_hand.p_value != plain["p"][0]
    assert (topical["clusters"] == 6).all()
    with pytest.raises(DataError, match=r"question 'q0' has 5 values in the column 'topic'"):
        comparison.compare_systems(rows.assign(topic=range(len(rows))), AB, cluster="topic")


def test_a_conclusion_says_who_is_better_or_what_difference_would_have_shown():
    table = comparison.compare_systems(made_rows(), [("A@100", "B@100"), ("A@100", "C@100")])
    said = dict(
        zip(
            zip(table["b"], table["measure"], strict=True),
            comparison.conclusions(table),
            strict=True,
        )
    )
    assert said["B@100", "IR score"].startswith("IR score: B@100 is higher than A@100: -0.")
    assert "no difference shown between A@100 and C@100" in said["C@100", "IR score"]
    detectable = table.set_index(["b", "measure"])["detectable"]
    assert (
        f"24 questions would show one of {detectable['C@100', 'IR score']:.3f}."
        in said["C@100", "IR score"]
    )
    assert "24 questions were asked." in said["C@100", "fully right"]  # the very same grades
    row = table.iloc[0]
    shown = comparison.format_comparison(table)
    assert (
        shown["difference [95%]"][0]
        == f"{row['difference']:.3f} [{row['low']:.3f}, {row['high']:.3f}]"
    )
    assert (shown["p (Holm)"][0], shown["could show"][0]) == ("< 0.001", f"{row['detectable']:.3f}")
    assert (shown["could show"].iloc[3], len(shown)) == ("–", len(table))


@pytest.mark.parametrize(
    ("measure", "said"),
    [
        ("token_f1", "token_f1: ample is higher than scant: +"),
        (
            "keypoints_hallucination",
            "keypoints_hallucination (lower is better): scant is lower than ample: +",
        ),
    ],
)
def test_a_conclusion_names_the_better_system_where_less_is_better(measure, said):
    scores = [(f"q{i}", "ample", 0.9) for i in range(20)] + [
        (f"q{i}", "scant", 0.1 + i / 99) for i in range(20)
    ]
    table = pd.DataFrame(scores, columns=["question_id", "system", measure])
    assert comparison.conclusions(comparison.compare_scores(table, [measure]))[0].startswith(said)
    alone = comparison.conclusions(compare(table, "system", measure))
    # the table does not name what it compares
    assert alone[0].startswith("ample is higher than scant: +")


@pytest.mark.parametrize(
    ("change", "pairs", "message"),
    [
        (lambda r: r, [("A@50", "Z@50")], r"unknown system 'Z@50'(.|\n)*A@50"),
        (lambda r: r, ("A@50", "B@50"), "a list of pairs"),
        (lambda r: pd.concat([r, r.assign(data="e")]), None, "data sets d, e"),
        (
            lambda r: r.drop(columns="grade"),
            None,
            r"without the column 'grade'(.|\n)*compare_scores",
        ),
        (lambda r: pd.concat([r, r]), None, "answered a question twice"),
        (lambda r: r[r["retriever"] == "C"], None, "one system: nothing to compare"),
        (lambda r: r.assign(ir_score=math.nan, grade=pd.NA), AB, "no pair of systems"),
    ],
)
def test_what_cannot_be_compared_is_said(change, pairs, message):
    with pytest.raises((ConfigError, DataError), match=message):
        comparison.compare_systems(change(made_rows()), pairs)


def test_figures_show_every_comparison():
    rows = made_rows()
    table = comparison.compare_systems(rows)
    drawn = table.assign(pair=table["a"] + " - " + table["b"], holds=table["p_holm"] < 0.05)
    figure = plots.dots(
        drawn, "pair", "difference", xlabel="first minus second", panel="measure", filled="holds"
    )
    assert [axis.get_title() for axis in figure.axes] == ["IR score", "fully right"]
    assert len(figure.axes[0].get_yticklabels()) == 4
    dots = [line for line in figure.axes[0].lines if line.get_marker() == "o"]
    filled = sorted(
        y for line in dots if line.get_markerfacecolor() != "white" for y in line.get_ydata()
    )
    assert filled == np.flatnonzero(drawn[drawn["measure"] == "IR score"]["holds"]).tolist()


def test_questions_that_share_a_document_belong_together_also_through_others():
    asked = {"a": ("d1",), "b": ("d1", "d2"), "c": ("d2",), "d": ("d3",), "e": (), "f": ()}
    questions = tuple(
        Question(name, "?", "", meta={"doc_ids": documents}) for name, documents in asked.items()
    )
    groups = comparison.document_clusters(Dataset("made", questions, ()))
    assert groups["a"] == groups["b"] == groups["c"]
    assert len(set(groups.values())) == 4
