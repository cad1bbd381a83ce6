"""Functions that stand in notebooks, on hand-made data."""

import numpy as np
import pandas as pd
import pytest
from notebook_parts import parts

from ragbench import papers
from ragbench.records import Document, Question

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


# Notebook 43: what people are asked by RAGEval's section 4, and the numbers from their labels

PEOPLE = parts("43")


def asked(number, domain="finance", language="en", kind="factual", points=("It rose.", "It fell.", "It stayed.")):
    about = {"domain": domain, "language": language, "doc_ids": ("d1",), "keypoints": points}
    return Question(f"q{number}", f"Question {number}?", "It rose. It fell.", ("It rose.",), kind, "", about)


def table_of(*rows):
    return pd.DataFrame(rows, columns=["kind", "item", "aspect", "label", "annotator"], dtype=object)


def score(item, said, annotator="ana"):
    return "rubric", item, "quality", str(said), annotator


def ranked(item, aspect="safety", annotator="ana", **ranks):
    names = {f"{aspect}/{name.replace('_', '-')}": rank for name, rank in ranks.items()}
    return [("ranks", item, name, str(rank), annotator) for name, rank in names.items()]


def test_a_sample_goes_by_seed_and_name_and_not_by_order_or_by_what_else_there_is():
    questions = [asked(i, language=language) for i in range(30) for language in ("en", "zh")]
    english = [q for q in questions if q.meta["language"] == "en"]
    chosen = PEOPLE.drawn(questions, 10)
    assert PEOPLE.drawn(questions[::-1], 10) == chosen
    assert [q for q in PEOPLE.drawn(questions, 60) if q in english] == PEOPLE.drawn(english, 30)
    assert sorted(q.id for q in chosen) != sorted(q.id for q in questions[:10])


def test_items_show_what_annotators_are_given():
    document = Document("d1", "Report", "It rose. It fell.")
    item = PEOPLE.question_item(asked(1), {"d1": document})
    assert item.id == "finance/en/factual/q1"
    assert item.texts == {
        "Question": "Question 1?\n(factual)",
        "Answer": "It rose. It fell.",
        "References": "- It rose.",
        "Documents": "Report\nIt rose. It fell.",
    }
    point = PEOPLE.keypoint_item(asked(1), "")
    assert point.aspects == {"1": "It rose.", "2": "It fell.", "3": "It stayed."}
    assert point.texts == {"Question": "Question 1?", "Answer": "(empty)"}


def test_scores_are_averaged_by_hand():
    given = {"finance/en/factual/a": 5, "finance/en/factual/b": 3, "finance/en/summary/c": 4, "law/zh/summary/d": 2}
    labels = table_of(*(score(item, said) for item, said in given.items()), score("law/zh/summary/d", 4, "bo"))
    means = PEOPLE.quality_means(labels, ["language", "domain"]).set_index("language")
    assert means[["domain", "mean", "n"]].to_dict("index") == {
        "zh": {"domain": "law", "mean": 3.0, "n": 1},
        "en": {"domain": "finance", "mean": 4.0, "n": 3},
    }
    assert means["share_4_5"].to_dict() == {"zh": 0.0, "en": pytest.approx(2 / 3)}
    by_type = PEOPLE.quality_means(labels, ["type"]).set_index("type")
    assert by_type.loc["summary", "mean"] == 3.5  # (4 + (2 + 4) / 2) / 2


def test_table_2_has_the_papers_cells_and_counts_what_is_missing():
    table = PEOPLE.table_2(table_of(score("finance/zh/factual/a", 4)))
    printed = papers.published("rageval", "Table 2")
    assert table[["row", "column"]].to_numpy().tolist() == printed[["row", "column"]].to_numpy().tolist()
    assert table.iloc[0].tolist() == ["CN", "Finance", 4, 1, 69]
    assert table["value"].isna().sum() == 5
    assert (table.loc[1:, ["n", "unscored"]] == [0, 70]).all(axis=None)
    assert PEOPLE.table_2(table_of())["value"].isna().all()


def test_shares_of_first_ranks_by_hand_with_ties():
    labels = table_of(
        *ranked("finance/en/d1", RAGEval=1, zero_shot=2, one_shot=3),
        *ranked("finance/en/d2", RAGEval=2, zero_shot=2, one_shot=3),  # only the order counts
        *ranked("finance/en/d9", RAGEval=1, zero_shot=2),  # half done: no order
        *ranked("finance/en/d3", RAGEval=2, zero_shot=3, one_shot=1),
        *ranked("finance/en/d3", "clarity", RAGEval=2, zero_shot=1, one_shot=1),
        *ranked("finance/en/d3", "clarity", "bo", RAGEval=1, zero_shot=2, one_shot=3),
    )
    table = PEOPLE.rank_shares(labels, ["criterion", "writer"]).set_index(["criterion", "writer"])
    first = table["first"].to_dict()
    assert first["safety", "RAGEval"] == pytest.approx(2 / 3)
    assert first["safety", "zero-shot"] == first["safety", "one-shot"] == pytest.approx(1 / 3)
    assert table.loc[("safety", "RAGEval"), ["mean_rank", "n"]].tolist() == [pytest.approx(4 / 3), 3]
    assert table.loc[("clarity", "RAGEval"), ["first", "mean_rank", "n"]].tolist() == [0.5, 1.5, 1]  # two people
    five = PEOPLE.figure_5(labels).set_index("row")
    assert set(papers.published("rageval", "Figure 5")["row"]) <= set(five.index)
    assert five.loc["Safety EN", ["value", "n"]].tolist() == [pytest.approx(200 / 3), 3]
    assert np.isnan(five.loc["Richness EN", "value"])


def test_people_and_judge_are_compared_by_hand():
    questions = [asked(0), asked(1, language="zh"), asked(2)]
    ana = [["covered", "covered", "neither"], ["contradicted", "neither", "covered"], ["covered", "covered", None]]
    bot = [["covered", "neither", "neither"], ["contradicted", "neither", "covered"], ["covered"] * 3]
    sides = [PEOPLE.verdict_labels(questions, verdicts, name) for verdicts, name in ((ana, "ana"), (bot, "bot"))]
    table = PEOPLE.figure_6(*sides).set_index(["language", "measure"])
    both = table.loc["all"]
    assert both["people"].tolist() == pytest.approx([1 / 2, 1 / 6, 1 / 3])
    assert both["judge"].tolist() == pytest.approx([1 / 3, 1 / 6, 1 / 2])
    assert both["difference"].tolist() == pytest.approx([1 / 6, 0, -1 / 6])
    assert table.loc[("zh", "completeness"), "difference"] == 0
    assert table["n"].tolist() == [1, 1, 1, 1, 1, 1, 2, 2, 2]
    assert both["unscored"].tolist() == [1, 1, 1]  # one verdict could not be read
    alone = PEOPLE.figure_6(table_of(), sides[1])
    assert alone["people"].isna().all()
    assert alone["unscored"].tolist() == [1, 1, 1, 2, 2, 2, 3, 3, 3]


def test_what_the_embedded_checker_judged_never_stands_in_a_row_of_the_paper():
    columns = ["Completeness EN", "Hallucination CN", "Rouge-L EN", "Rouge-L CN"]
    cells = pd.DataFrame({"row": "BM25", "column": columns, "value": 0.5})
    index = pd.MultiIndex.from_product([["en", "zh"], ["its references"]], names=["language", "text"])
    sight = pd.DataFrame({"completeness": [0.52, 0.71]}, index)
    own = PEOPLE.apart(cells, None, sight)
    assert not set(own["row"]) & set(papers.published("rageval", "Table 4")["row"])
    assert "0.52" in own["note"][0]
    assert "0.71" in own["note"][1]
    assert own["note"][2] == "ROUGE-L of the released code"
    judged = PEOPLE.apart(cells, "ollama:llama3:70b", sight)
    assert judged["row"].tolist() == ["BM25"] * 4
    assert judged["note"].isna().tolist() == [True, True, False, False]


# Notebook 14: Eq 3.1, shares by region, and probabilities of the grades' groups that no question has a hand in

CALIBRATION = parts("14")


def test_eq_3_1_by_hand():
    agrees = np.array([True, True, False, False])
    assert CALIBRATION.likelihood(agrees) == pytest.approx(-2 * np.log(1 + 1e-10) - 2 * np.log(1e-10))
    assert CALIBRATION.likelihood(agrees[:2]) == pytest.approx(0, abs=1e-9)


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
    truth, made = CALIBRATION.cross_validated(scores, np.array([1, 3, 5])[group], question)
    assert (truth == group).all()
    assert all(np.allclose(p.sum(axis=1), 1) and (p >= 0).all() for p in made.values())
    reached = {name: brier(p, truth) for name, p in made.items()}
    assert reached["calibrated"] < reached["boxes with shares"] < reached["boxes"]
    curve = CALIBRATION.reliability_curve(made["calibrated"][:, 2], truth == 2, bins=8)
    assert curve["n"].sum() == 3000
    assert (curve["predicted"] - curve["observed"]).abs().max() < 0.06


def test_calibration_does_not_see_the_question_it_predicts():
    # Scores are the questions' own numbers and grades are drawn: a model that saw a question would know its grade.
    question = np.repeat(np.arange(80), 5)
    grades = np.random.default_rng(0).choice([1, 3, 5], 80)[question]
    truth, made = CALIBRATION.cross_validated(question / 80, grades, question)
    leaky = CALIBRATION.isotonic(question / 80, truth, question / 80)
    assert brier(made["calibrated"], truth) > brier(made["base rate"], truth) > brier(leaky, truth)


def test_the_bins_of_the_reliability_curve_are_scikit_learns_and_keep_equal_predictions_together():
    from sklearn.calibration import calibration_curve

    rng = np.random.default_rng(0)
    p = rng.random(997)
    happened = rng.random(997) < p
    ours = CALIBRATION.reliability_curve(p, happened, bins=7)
    observed, predicted = calibration_curve(happened, p, n_bins=7, strategy="quantile")
    np.testing.assert_allclose(ours[["observed", "predicted"]], np.stack([observed, predicted], axis=1))
    few = CALIBRATION.reliability_curve(np.array([0.1, 0.1, 0.1, 0.1, 0.7, 0.9]), np.array([0, 0, 1, 0, 1, 1]), bins=2)
    assert few["n"].tolist() == [4, 2]
    assert few["observed"].tolist() == [0.25, 1]


# Notebook 15: what RGB and eRAG count


def test_a_right_answer_is_contained_in_any_case_and_the_first_right_document_counts():
    book = parts("15")
    assert book.contains_answer("It was PARIS in 2022.", "paris")
    assert not book.contains_answer("It was Rome.", "paris")
    assert book.first_right([0.0, 1.0, 1.0]) == 0.5
    assert book.first_right([0.0, 0.0]) == 0
