"""Systems compared in pairs over the same questions: what each pair says, and what cannot be
compared.
"""

import numpy as np
import pandas as pd
import pytest

from ragbench import comparison
from ragbench.errors import ConfigError, DataError
from ragbench.records import Dataset, Question
from ragbench.report.export import export_scores
from ragbench.report.scores import score_tables
from ragbench.stats import (
    holm,
    paired_difference,
    power_analysis,
)
from ragbench.stats.clusters import document_clusters

QUESTIONS = 24


def scored(**columns):
    """Three systems: B beats A by about 0.3, C is like A; ``right`` is 1 for B and every third."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        [(f"q{i}", system) for i in range(QUESTIONS) for system in "ABC"],
        columns=["question_id", "system"],
    )
    is_b = table["system"].eq("B")
    third = table["question_id"].str[1:].astype(int) % 3 == 0
    table["score"] = rng.uniform(0, 0.6, len(table)) + 0.3 * is_b
    table["right"] = (is_b | third).astype(float)
    table["numbers"] = "score; right"
    return table.assign(**columns)


def of(table, system, name="score"):
    return table[table["system"] == system][name].to_numpy(float)


def test_a_comparison_is_the_paired_test_on_the_same_questions_corrected_over_the_table():
    table = scored()
    pairs = [("A", "B"), ("C", "A")]
    compared = comparison.compare_scores(table, pairs=pairs)
    named = compared[["a", "b", "measure"]].itertuples(index=False, name=None)
    assert [*named] == [(*pair, measure) for pair in pairs for measure in ("score", "right")]
    for row in compared.to_dict("records"):
        a, b = (of(table, row[side], row["measure"]) for side in "ab")
        interval = paired_difference(a, b)
        expected = {
            "mean a": a.mean(),
            "mean b": b.mean(),
            "difference": a.mean() - b.mean(),
            "p": interval.p,
            "low": interval.low,
            "high": interval.high,
            "detectable": power_analysis(a, b, difference=1, alpha=0.05 / 4).detectable,
        }
        assert {name: row[name] for name in expected} == pytest.approx(expected, nan_ok=True)
        assert row["wins"] == (a > b).sum()
        assert row["ties"] == (a == b).sum()
        assert row["losses"] == (a < b).sum()
    assert compared["p_holm"].tolist() == holm(compared["p"]).tolist()
    mixed = comparison.compare_scores(table.sample(frac=1, random_state=1), pairs=pairs)
    assert mixed["difference"].tolist() == pytest.approx(compared["difference"].tolist())
    every = comparison.compare_scores(table, ["right"])
    assert every[["a", "b"]].agg("".join, axis=1).tolist() == ["AB", "AC", "BC"]


def test_a_question_that_one_system_lacks_is_missing_and_counted():
    table = scored()
    table.loc[table["question_id"] == "q0", "right"] = np.nan
    system = table["system"]
    gone = (table["question_id"] == "q1") & (system == "A")
    gone |= (table["question_id"] == "q2") & (system == "B")
    compared = comparison.compare_scores(table[~gone], pairs=[("A", "B")]).set_index("measure")
    counts = compared.loc[["score", "right"], ["n", "missing"]]
    assert counts.to_numpy().tolist() == [[22, 2], [21, 3]]
    means = [np.delete(of(table, system), [1, 2]).mean() for system in "AB"]
    assert compared.loc["score", ["mean a", "mean b"]].tolist() == pytest.approx(means)
    unscored = table.assign(other=np.where(system == "A", 1.0, np.nan))
    tested = comparison.compare_scores(unscored, ["score", "other"])
    assert tested["measure"].tolist() == ["score"] * 3


def test_a_column_of_topics_keeps_questions_together():
    table = scored()
    table["topic"] = table["question_id"].str[1:].astype(int) // 4
    known = comparison.compare_scores(table, ["score"])
    topical = comparison.compare_scores(table, ["score"], cluster="topic")
    plain = comparison.compare_scores(table, ["score"], cluster=None)
    pd.testing.assert_frame_equal(known, topical)
    topics = np.arange(QUESTIONS) // 4
    by_hand = paired_difference(of(table, "A"), of(table, "B"), cluster=topics)
    assert topical["p"][0] == by_hand.p != plain["p"][0]
    assert (topical["clusters"] == 6).all()
    with pytest.raises(DataError, match="question 'q0' has 3 values"):
        comparison.compare_scores(table.assign(topic=range(len(table))), cluster="topic")


def test_a_conclusion_says_who_is_better_or_what_difference_would_have_shown():
    table = scored()
    table["same"] = 1.0
    three = table["question_id"].isin(["q1", "q2", "q3"]) & (table["system"] == "C")
    table["few"] = three.astype(float)
    table = comparison.compare_scores(
        table, ["score", "same", "few"], pairs=[("A", "B"), ("A", "C")], cluster=None
    )
    better, _, _, like, same, few = comparison.conclusions(table)
    detectable = f"{table['detectable'][3]:.3f}"
    assert better.startswith("score: B is higher than A: -0.")
    assert "no difference shown between A and C" in like
    assert f"24 questions would show one of {detectable}." in like
    assert same == "same: A and C are equal in all 24 questions."
    least = paired_difference([1] * 3 + [0] * 21, [0] * 24).p
    assert few.endswith(f"; 3 of 24 questions differ, so p is at least {least:.2g}.")
    row = table.iloc[0]
    shown = comparison.format_comparison(table)
    cell = f"{row['difference']:.3f} [{row['low']:.3f}, {row['high']:.3f}]"
    assert shown["difference [95%]"][0] == cell
    assert shown["p (Holm)"][0] == "< 0.001"
    assert shown["could show"][3:5].tolist() == [detectable, "–"]
    assert shown["wins / ties / losses"][4:].tolist() == ["0 / 24 / 0", "0 / 21 / 3"]


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
    ample = pd.DataFrame({"question_id": range(20), "system": "ample", measure: 0.9})
    table = pd.concat([ample, ample.assign(system="scant", **{measure: np.arange(20) / 99})])
    assert comparison.conclusions(comparison.compare_scores(table, [measure]))[0].startswith(said)


@pytest.mark.parametrize(
    ("table", "options", "message"),
    [
        (scored(), {"pairs": [("A", "Z")]}, "unknown system 'Z'"),
        (scored(), {"pairs": ("A", "B")}, "a list of pairs"),
        (scored(), {"columns": ["grade"]}, "fully_right"),
        (scored(), {"columns": ["f1"]}, "unknown column 'f1'"),
        (pd.concat([scored(), scored()]), {"columns": ["score"]}, "several rows"),
        (scored(system="A"), {}, "fewer than two systems"),
        (scored(score=np.nan, right=np.nan), {}, "no pair of systems"),
    ],
)
def test_what_cannot_be_compared_is_said(table, options, message):
    with pytest.raises((ConfigError, DataError), match=message):
        comparison.compare_scores(table, **options)


def test_questions_that_share_a_document_belong_together_also_through_others():
    documents = {"a": ("d1",), "b": ("d1", "d2"), "c": ("d2",), "d": ("d3",), "e": (), "f": ()}
    questions = tuple(
        Question(name, "?", "", meta={"doc_ids": own}) for name, own in documents.items()
    )
    groups = document_clusters(Dataset("made", questions, ()))
    assert groups["a"] == groups["b"] == groups["c"]
    assert len(set(groups.values())) == 4


def test_one_system_is_said_before_anything_else():
    with pytest.raises(DataError, match="fewer than two systems"):
        comparison.compare_scores(pd.DataFrame({"question_id": ["1"], "x": [1.0]}))


def test_a_table_that_was_read_from_a_file_names_its_numbers():
    table = pd.DataFrame({"system": ["a", "b"] * 9, "question_id": np.repeat(range(9), 2)})
    table["exact_match"] = np.tile([1.0, 0.0, 0.0], 6)
    with pytest.raises(ConfigError, match="no columns to compare"):
        comparison.compare_scores(table)
    one = comparison.compare_scores(table, "exact_match")
    pd.testing.assert_frame_equal(one, comparison.compare_scores(table, ["exact_match"]))


def test_systems_that_no_other_beats_may_be_first():
    table = scored()
    table["keypoints_hallucination"] = 1 - table["score"]  # less is better
    compared = comparison.compare_scores(table, ["score", "keypoints_hallucination"])
    first = comparison.may_be_first(compared).set_index(["measure", "system"])["may_be_first"]
    assert first["score"].to_dict() == {"A": False, "B": True, "C": False}
    assert first["keypoints_hallucination"].to_dict() == first["score"].to_dict()
    said = comparison.conclusions(compared)[6:]
    assert said == [f"{measure}: may be the best: B." for measure in compared["measure"].unique()]
    alike = comparison.compare_scores(table[table["question_id"] < "q12"], ["right"])
    assert alike["p_holm"].min() > 0.05
    assert comparison.may_be_first(alike)["may_be_first"].all()
    # two systems, or not every pair: nothing is said
    two = comparison.compare_scores(table, ["score"], pairs=[("A", "B"), ("A", "C")])
    assert comparison.may_be_first(two).empty
    assert comparison.may_be_first(compared[compared["a"].eq("A") & compared["b"].eq("B")]).empty


def test_the_tables_of_an_export_mark_what_may_be_first(tmp_path):
    rows = scored().drop(columns="right")
    rows["numbers"] = "score"
    folder = export_scores(rows, tmp_path / "o", "made").folder
    means = pd.read_csv(folder / "tables" / "means.csv")
    assert means.set_index("system")["may_be_first"].to_dict() == {
        "A": False,
        "B": True,
        "C": False,
    }
    tex = (folder / "tables" / "means.tex").read_text()
    marked = [line for line in tex.splitlines() if line.startswith(("A ", "B ", "C "))]
    assert [r"\textsuperscript{1}" in line for line in marked] == [False, True, False]
    assert r"\textsuperscript{1} may be the best" in tex
    axis = score_tables(rows, "made")[0].figure.axes[0]
    assert "filled: may be" in axis.get_xlabel()
    hollow = [dot.lines[0].get_mfc() == "white" for dot in axis.containers]
    assert hollow == [True, False, True]
