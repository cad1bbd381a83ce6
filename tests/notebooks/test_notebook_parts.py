"""Functions that stand in notebooks, on hand-made data."""

import numpy as np
import pandas as pd
import pytest
from notebook_parts import parts

from ragbench import papers
from ragbench.data import load_dragonball_answers
from ragbench.metrics.lexical import rouge_l
from ragbench.records import Document, Question

# Notebook 41: what people are asked by RAGEval's section 4, and the numbers from labels and from a
# model's verdicts

DRAGONBALL = parts("41")


def asked(
    number,
    domain="finance",
    language="en",
    kind="factual",
    points=("It rose.", "It fell.", "It stayed."),
):
    about = {"domain": domain, "language": language, "doc_ids": ("d1",), "keypoints": points}
    return Question(
        f"q{number}", f"Question {number}?", "It rose. It fell.", ("It rose.",), kind, "", about
    )


def table_of(*rows):
    return pd.DataFrame(
        rows, columns=["kind", "item", "aspect", "label", "annotator"], dtype=object
    )


def score(item, said, annotator="ana"):
    return "rubric", item, "quality", str(said), annotator


def test_a_sample_goes_by_seed_and_name_and_not_by_order_or_by_what_else_there_is():
    questions = [asked(i, language=language) for i in range(30) for language in ("en", "zh")]
    english = [q for q in questions if q.meta["language"] == "en"]
    chosen = DRAGONBALL.drawn(questions, 10)
    assert DRAGONBALL.drawn(questions[::-1], 10) == chosen
    assert [q for q in DRAGONBALL.drawn(questions, 60) if q in english] == DRAGONBALL.drawn(
        english, 30
    )
    assert sorted(q.id for q in chosen) != sorted(q.id for q in questions[:10])


def test_items_show_what_annotators_are_given():
    item = DRAGONBALL.question_item(asked(1), {"d1": Document("d1", "Report", "It rose. It fell.")})
    assert item.id == "finance/en/factual/q1"
    assert item.texts == {
        "Question": "Question 1?\n(factual)",
        "Answer": "It rose. It fell.",
        "References": "- It rose.",
        "Documents": "Report\nIt rose. It fell.",
    }
    point = DRAGONBALL.keypoint_item(asked(1), "")
    assert point.aspects == {"1": "It rose.", "2": "It fell.", "3": "It stayed."}
    assert point.texts == {"Question": "Question 1?", "Answer": "(empty)"}


def test_the_package_rouge_counts_distinct_words_of_sentences():
    rouge_l = DRAGONBALL.package_rouge_l
    answer = "the cat sat. the dog sat"
    true = "the cat and the dog sat"
    # Answer: the cat sat dog = 4 words; reference: the cat and dog sat = 5; common: the cat sat +
    # the dog sat = 4.
    assert rouge_l(answer, true) == pytest.approx(2 * 4 / (4 + 5))
    # Case and punctuation stay: "Cat" is not "cat", "sat," not "sat".
    assert rouge_l("Cat sat,", "cat sat") == 0
    # Order counts within a sentence: one word of the two is in common.
    assert rouge_l("b a", "a b") == pytest.approx(2 * 1 / 4)
    # Of two sequences of one length the package keeps "b" in "b a"; the second sentence adds "a".
    assert rouge_l("b a. a", "a b") == pytest.approx(1)
    assert np.isnan(rouge_l("", "a"))


@pytest.mark.data
def test_the_releases_own_code_and_result_file_have_two_rouge_ls_on_350_answers():
    questions, answers = load_dragonball_answers()
    pairs = [(a.text, q.answer) for a, q in zip(answers, questions, strict=True)]
    # Run once on these answers: package rouge 1.0.1, as the released code calls it, 0.24399820 with
    # 1e-8 in its F1.
    released = [DRAGONBALL.package_rouge_l(*pair) for pair in pairs]
    assert np.mean(released) == pytest.approx(0.24399820, abs=2e-8)
    # The result file beside the code: ROUGE-L 0.132173.
    at_blanks = [rouge_l(*pair, tokenizer=str.split) for pair in pairs]
    assert np.mean(at_blanks) == pytest.approx(0.132173, abs=1e-5)


def test_scores_are_averaged_by_hand():
    labels = table_of(
        score("finance/en/factual/a", 5),
        score("finance/en/factual/b", 3),
        score("finance/en/summary/c", 4),
        score("law/zh/summary/d", 2),
        score("law/zh/summary/d", 4, "bo"),
    )
    means = DRAGONBALL.quality_means(labels, ["language", "domain"]).set_index("language")
    names = ["domain", "mean", "n", "share_4_5"]
    assert means.loc["zh", names].tolist() == ["law", 3.0, 1, 0.0]
    assert means.loc["en", names].tolist() == ["finance", 4.0, 3, pytest.approx(2 / 3)]
    by_type = DRAGONBALL.quality_means(labels, ["type"]).set_index("type")
    assert by_type.loc["summary", "mean"] == 3.5  # (4 + (2 + 4) / 2) / 2


def test_table_2_has_the_papers_cells_and_counts_what_is_missing():
    table = DRAGONBALL.table_2(table_of(score("finance/zh/factual/a", 4)))
    cell = ["row", "column"]
    assert table[cell].equals(papers.published("rageval", "Table 2")[cell])
    assert table.iloc[0].tolist() == ["CN", "Finance", 4, 1, 69]
    assert table["value"].isna().sum() == 5
    assert (table.loc[1:, ["n", "unscored"]] == [0, 70]).all(axis=None)
    assert DRAGONBALL.table_2(table_of())["value"].isna().all()


def verdicts_of(*counts):
    """Rows with the verdicts on the true answer: covered, contradicted, neither, unread."""
    columns = ["true covered", "true contradicted", "true neither", "true unread"]
    return pd.DataFrame(counts, columns=columns)


def test_key_point_shares_are_eq_3_to_5_and_an_unread_verdict_leaves_them_out():
    shares = DRAGONBALL.keypoint_shares(verdicts_of((2, 1, 1, 0), (1, 0, 0, 1)), "true")
    assert [*shares] == ["completeness", "hallucination", "irrelevance"]
    assert shares.fillna(-1).to_numpy().tolist() == [[0.5, 0.25, 0.25], [-1, -1, -1]]


def test_points_found_are_pooled_over_questions_and_not_averaged():
    assert DRAGONBALL.pooled("true", verdicts_of((1, 0, 0, 0), (0, 2, 1, 0))) == 1 / 4


# Notebook 14: shares by region, and probabilities of the grades' groups that no question has a hand
# in

CALIBRATION = parts("14")


def test_region_shares_by_hand_with_the_borders_between():
    assert CALIBRATION.region_shares(np.array([0.0, 0.105, 0.3, 0.67, 0.68, 1.0, 1.0, 0.1])) == {
        "above k": 0.375,
        "between": 0.375,
        "below h": 0.25,
    }


def test_isotonic_groups_follow_the_shares_at_each_score():
    groups = np.array([0, 0, 0, 1, 0, 1, 1, 2, 1, 2, 2, 2])
    scores = [0.1, 0.5, 0.9]
    shares = CALIBRATION.isotonic(np.repeat(scores, 4), groups, scores)
    assert shares.tolist() == [[0.75, 0.25, 0.0], [0.25, 0.5, 0.25], [0.0, 0.25, 0.75]]


def brier(probabilities, truth):
    return ((probabilities - np.eye(3)[truth]) ** 2).sum(axis=1).mean()


def test_calibrated_probabilities_beat_the_boxes_on_unseen_questions():
    rng = np.random.default_rng(0)
    question = np.repeat(np.arange(600), 5)
    scores = rng.random(question.size)
    odds = np.exp(np.stack([0 * scores, 8 * scores - 1, 18 * scores - 8], axis=1))
    group = (
        rng.random(question.size)[:, None] > np.cumsum(odds / odds.sum(1, keepdims=True), axis=1)
    ).sum(1)
    truth = group
    made = CALIBRATION.cross_validated(scores, group, question)
    assert all(np.allclose(p.sum(axis=1), 1) and (p >= 0).all() for p in made.values())
    reached = {name: brier(p, truth) for name, p in made.items()}
    assert reached["isotonic"] < reached["h and k with shares"] < reached["h and k"]


def test_calibration_does_not_see_the_question_it_predicts():
    # Scores are the questions' own numbers and grades are drawn: a model that saw a question would
    # know its grade.
    question = np.repeat(np.arange(80), 5)
    truth = np.random.default_rng(0).choice([0, 1, 2], 80)[question]
    made = CALIBRATION.cross_validated(question / 80, truth, question)
    leaky = CALIBRATION.isotonic(question / 80, truth, question / 80)
    assert brier(made["isotonic"], truth) > brier(made["base rate"], truth) > brier(leaky, truth)
