"""RAGEval's measures: hand-worked cases, slow oracles, properties, the recorded GPT-4o run."""

import math
import re

import numpy as np
import pytest
from checks import refusals
from hypothesis import given, settings
from hypothesis import strategies as st

from ragbench.errors import DataError
from ragbench.metrics.keypoints import (
    effective_information_rate,
    keypoint_metrics,
    passage_table,
    reference_recall,
)
from ragbench.text.sentences import split_sentences

REFERENCES = ["Oil rose in May. Gas fell in June.", "Wheat was flat."]
# 6 + 4 words without prefix
SPLIT_OVER_TWO = ["(Company: Marn) Oil rose in May. Nothing else.", "Gas fell in June."]


def test_keypoint_metrics_are_shares_of_the_verdicts():
    got = keypoint_metrics(["covered", "neither", "covered", "contradicted"])
    assert got == {"completeness": 0.5, "hallucination": 0.25, "irrelevance": 0.25}
    assert np.isnan(list(keypoint_metrics([]).values())).all()


def test_recall_lets_sentences_of_one_reference_match_in_different_passages():
    assert reference_recall(REFERENCES, SPLIT_OVER_TWO) == 0.5
    assert reference_recall(REFERENCES, SPLIT_OVER_TWO[:1]) == 0.0


def test_eir_counts_words_of_whole_references():
    first = SPLIT_OVER_TWO[:1]  # 6 words; one of the reference's two sentences, 4 words
    assert effective_information_rate(REFERENCES, first) == 0.0
    assert effective_information_rate(REFERENCES, SPLIT_OVER_TWO) == pytest.approx(8 / 10)
    assert effective_information_rate(["oil rose again."], ["So oil", "rose again."]) == 0.0


def test_the_metadata_prefix_is_neither_counted_nor_matched():
    arguments = ["Wheat was flat."], ["(Company: Marn Ltd.)Wheat was flat. Rye was not."]
    assert effective_information_rate(*arguments) == pytest.approx(3 / 6)
    assert effective_information_rate(*arguments, prefix=False) == pytest.approx(3 / 8)
    assert reference_recall(["Company: Marn Ltd."], arguments[1]) == 0.0
    # Only a bracket at the very start is metadata.
    assert effective_information_rate(["Rye."], ["Rye. (a note here)"]) == pytest.approx(1 / 4)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("(RML) Ltd was founded in 1990.", 6),
        ("(Marn (Holdings) Ltd) was founded in 1990.", 7),
        ("（马恩）公司成立于1990年。", 16),
        ("(a) is so. (b) is not.", 6),
    ],
)
def test_a_reference_that_opens_with_a_bracket_stands_in_itself(text, words):
    language = "zh" if words == 16 else "en"
    assert reference_recall([text], [text], language) == 1.0
    assert effective_information_rate([text], [text], language) == 1.0
    assert reference_recall([text], [f"(Company: Marn) {text}"], language) == 1.0
    assert passage_table([[text]], [[f"(Company) {text}"]], language)["words"][0] >= words
    assert reference_recall(["Ltd was founded"], ["(RML) Ltd was founded in 1990."]) == 1.0


@pytest.mark.parametrize(
    ("passage", "language", "words"),
    [
        ("(Marn (Holdings) Ltd) Rye.", "en", 1),
        (" (Marn) Rye.", "en", 1),
        ("（马恩（集团）公司）黑麦。", "zh", 3),
        ("(Marn Rye.", "en", 2),
        ("(Marn (Holdings) Rye.", "en", 3),
    ],
)
def test_a_name_with_brackets_is_cut_off_whole_and_an_open_bracket_is_text(
    passage, language, words
):
    assert passage_table([[passage[-3:]]], [[passage]], language)["words"].tolist() == [words]


def test_chinese_words_are_characters_and_sentences_end_at_full_stops_and_line_breaks():
    references = ["利润上升。现金减少！"]
    passages = ["（公司：甲）利润上升。其他。", "现金减少！"]
    assert reference_recall(references, passages, "zh") == 1.0
    assert effective_information_rate(references, passages, "zh") == pytest.approx(10 / 13)
    assert split_sentences("一。二！\n三 四？五", "zh") == ("一。", "二！", "三 四？", "五")


def test_without_references_the_value_is_nan():
    assert math.isnan(reference_recall([], ["a b"]))
    assert math.isnan(effective_information_rate([], ["a b"]))
    assert reference_recall(["A."], []) == 0.0
    assert math.isnan(effective_information_rate(["A."], []))


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("Dr. Marn left. Ms. Orl stayed.", 2),
        ("Tarn Inc. reported 3.5 million. It grew.", 2),
        ("Tarn Ltd. The firm grew.", 2),
        ("It was filed by J. Orl of Tarn Co. Marn signed.", 1),
        ("Section No. 7 applies, e.g. Rule 2.", 1),
        ('He said "stop." Then he left! Did she? Yes.', 4),
        ("up to 5. item", 1),
        ("1. The first point. 2. The second", 2),
        ("One line\nAnother line", 2),
        ("  ", 0),
    ],
)
def test_english_sentences_by_rule(text, count):
    assert len(split_sentences(text, "en")) == count


@given(st.text(alphabet="aB .!?\n\"'1。！？（) L", max_size=60), st.sampled_from(["en", "zh"]))
def test_splitting_keeps_every_character_but_white_space(text, language):
    assert "".join("".join(split_sentences(text, language)).split()) == "".join(text.split())


test_unusable_arguments_say_what_was_expected = refusals(
    (lambda: keypoint_metrics("covered"), DataError, "verdicts is one text"),
    (
        lambda: keypoint_metrics(["Covered"]),
        DataError,
        "'Covered'(?s:.)*covered, contradicted, neither",
    ),
    (lambda: keypoint_metrics([None]), DataError, r"verdicts\[0\] is None"),
    (lambda: reference_recall(["A."], ["A."], "fr"), "en, zh"),
    (
        lambda: effective_information_rate(["A."], ["A."], variant="x"),
        "normalised, paper",
    ),
    (lambda: reference_recall(["A.", " "], ["A."]), DataError, "reference 1 is empty"),
    (lambda: reference_recall("A.", ["A."]), DataError, "references is one text"),
    (lambda: reference_recall(["A.", None], ["A."]), DataError, r"references\[1\] is None"),
    (
        lambda: passage_table([["A."], [""]], [["A."], ["A."]]),
        DataError,
        "question 1: reference 0 is empty",
    ),
    (lambda: passage_table([["A."], ["B."]], [["A."]]), DataError, "references 2, passages 1"),
)


def slow(references, passages, language):
    """Eq 1 and Eq 2, written out word by word."""
    cut = [re.sub(r"^(\([^)]*\)|（[^）]*）)", "", passage) for passage in passages]
    size = len if language == "zh" else (lambda text: len(text.split()))
    split = [split_sentences(reference, language) for reference in references]
    found = [sentences for sentences in split if all(any(s in p for p in cut) for s in sentences)]
    words = sum(size(sentence) for sentences in found for sentence in sentences)
    total = sum(map(size, cut))
    return len(found) / len(references), words / total if total else math.nan


SENTENCE = st.sampled_from(
    ["Oil rose.", "Gas fell a lot.", "Rye was flat.", "油价上升。", "气价下降！"]
)
PASSAGE = st.lists(SENTENCE, max_size=3).map(" ".join)


@given(
    st.lists(st.lists(SENTENCE, min_size=1, max_size=3).map(" ".join), min_size=1, max_size=4),
    st.lists(
        st.builds("{}{}".format, st.sampled_from(["", "(Co: X)", "（公司）"]), PASSAGE), max_size=4
    ),
    st.sampled_from(["en", "zh"]),
)
@settings(max_examples=200)
def test_measures_equal_the_slow_oracle(references, passages, language):
    table = passage_table([references], [passages], language, "paper")
    expected = slow(references, passages, language)
    np.testing.assert_allclose(table.loc[0, ["recall", "eir"]].astype(float), expected)
    assert table.loc[0, "recall"] == reference_recall(references, passages, language, "paper")


@pytest.mark.data
def test_the_recorded_gpt_4o_run_scores_as_measured(recorded):
    rows = recorded("rageval/example_finance_en_gpt-4o.jsonl.gz")
    references = [r["ground_truth"]["references"] for r in rows]
    passages = [r["prediction"]["references"] for r in rows]
    table = passage_table(references, passages)
    oracle = [slow(r, p, "en") for r, p in zip(references, passages, strict=True) if r]
    np.testing.assert_allclose(table.dropna()[["recall", "eir"]], oracle)
    assert (len(table), int(table["recall"].isna().sum())) == (350, 38)
    # As the paper counts, 0 without references; Table 4 has 0.6717 to 0.7542 and 0.1162 to 0.1372
    # for four retrievers.
    zero = table.fillna(0.0)
    assert zero["recall"].mean() == pytest.approx(0.58636, abs=1e-5)
    assert zero["eir"].mean() == pytest.approx(0.10781, abs=1e-5)


@pytest.mark.data
def test_the_releases_own_result_file_is_met_on_its_350_answers():
    from ragbench.data import load_dragonball_answers

    questions, answers = load_dragonball_answers()
    # The result file beside the code: Recall 0.586359, EIR 0.107808, undefined values as 0.
    passages = [a.meta["passages"] for a in answers]
    scores = passage_table([q.references for q in questions], passages, "en", "paper").fillna(0.0)
    assert scores["recall"].mean() == pytest.approx(0.5863585373543355, abs=1e-12)
    assert scores["eir"].mean() == pytest.approx(0.10780761369852739, abs=1e-12)
