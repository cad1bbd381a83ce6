"""Answer metrics: HotpotQA's official EM and F1, BLEU, ROUGE-L, IDF overlap."""

import functools
import math
import re
import time

import numpy as np
import pandas as pd
import pytest
from checks import refusals
from hypothesis import example, given
from hypothesis import strategies as st
from rouge_score.rouge_scorer import RougeScorer

import ragbench as rb
from overlap import idf_overlap
from ragbench.data import load_minihop, load_ragchecker_meta, read_ragchecker
from ragbench.data.ragchecker import ASPECTS
from ragbench.errors import DataError
from ragbench.metrics.lexical import (
    _comparable_words,
    _normalise_answer,
    bleu,
    claim_overlap,
    contained,
    exact_match,
    idf_weights,
    rouge_l,
    token_f1,
)
from ragbench.paths import packaged_data
from ragbench.retrieval.text import TOKENIZERS
from ragbench.stats import preference_correlation
from ragbench.text.words import stems

texts = st.lists(
    st.sampled_from(["red", "blue", "the", "a", "Cat", "dog", "run", "1984", "é", "U.S."]),
    max_size=12,
).map(" ".join)


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("The  U.S. Navy's", "us navys"),
        ("An apple a day", "apple day"),
        ("theatre and another", "theatre and another"),
        ("“quoted”", "“quoted”"),
        ("a-the", "athe"),
    ],
)
def test_normalisation_drops_ascii_punctuation_first_and_articles_as_whole_words(text, normal):
    assert _normalise_answer(text) == normal


def test_exact_match_ignores_case_articles_and_punctuation_only():
    assert exact_match("The Beatles!", "beatles") == 1.0
    assert exact_match("Beatles band", "Beatles") == 0.0
    assert exact_match("b", ["a x", "B."]) == 1.0


IN = [
    ("Burton died at Trieste, in 1890.", "Trieste"),
    ("It was Jean Paul Sartre", "Jean-Paul Sartre"),
    ("the Kings Lynn museum", "King's Lynn"),
    ("in the U.S. Navy", "US Navy"),
    ("It has 1234 towns.", "1,234"),
    ("They had three children", "3"),
    ("aged Twenty-One", "21"),
    ("It weighs 19.5 kg", "19.5"),
    ("the king of Lord of the Rings", "The Lord of Rings"),
    ("Yes, both are in London.", "yes"),
    ("**No**.", "no"),
    ("no", "No."),
    ("北京是中国的首都。", "北京"),
    ("建于1997年", "1997"),
    ("수도는 서울이다", "서울"),
    ("यह दिल्ली है", "दिल्ली"),
    ("It is in A minor", "A minor"),
    ("not Paris", "Paris"),  # a denial fools it
    ("It weighs 5kg.", "5 kg"),
    ("at 3 pm", "3pm"),
    ("about 10 m\u00b2", "10m2"),
    ("in New\u200b York\u200b.", "New York"),
    ("in Istanbul", "İstanbul"),
    ("في عام ١٩٩٧", "1997"),
    ("the exam-\nple of the oﬃce", "example of office"),
    ("in der STRASSE", "Straße"),
    ("Ｐａｒｉｓ", "Paris"),
    ("Zoe\u0308 said", "Zoë"),
    ("minus 5 °C", "−5 °C"),
    ("blood type O-.", "O\N{MINUS SIGN}"),
    ("in C++, or C#", "C++"),
    ("10^6 cells", "10⁶ cells"),
    ("F♯ minor", "F# minor"),
    ("It costs $5.", "5"),
    ("it costs 5", "€5"),
    ("it costs 5 €", "€5"),
    ("in 2019-2021", "2021"),
    ("p < 0.05", "<0.05"),
    ("<b>5</b> men", "5"),
    ("- 5 men", "5"),
    ("p < .05", "p < 0.05"),
    ("-.5 points", "-0.5"),
    ("on Disney+, a service", "Disney+"),
    ("for 5+ years", "5 years"),
]
OUT = [
    ("Bart did it", "art"),
    ("in 1997", "19"),
    ("in 19.5 hours", "19"),
    ("in 1,190 towns", "190"),
    ("chapters 1, 2", "12"),
    ("in the 1990s", "1990"),
    ("Sartre, Jean-Paul", "Jean-Paul Sartre"),
    ("It is in C minor", "A minor"),
    ("No record is known", "no"),
    ("They are. Yes.", "yes"),
    ("Both are in London", "yes"),  # right, and missed
    ("No, yes", "yes"),
    ("the Iron Lady", "Margaret Thatcher"),  # right, and missed
    ("", "Paris"),
    ("東京", "京都"),
    ("-5 °C", "5 °C"),
    ("5 °C", "\N{MINUS SIGN}5 °C"),
    ("C#", "C++"),
    ("C", "C++"),
    ("O-", "O+"),
    ("A", "A-"),
    ("F♭", "F♯"),
    ("≤5", "≥5"),
    ("p < 5", "p > 5"),
    ("≥5", "5"),
    ("$5", "€5"),
    ("5%", "£5"),
    ("106 cells", "10⁶ cells"),
    ("10⁶ cells", "10⁻⁶ cells"),
    ("18412", "1841²"),
    ("11/2 cups", "1½ cups"),
    ("काल", "कील"),
    ("in the 19th century", "19"),
    ("7f3a", "7"),
    ("p < .05", "p < .5"),
    ("p < .05", "p > .05"),
    ("p < .05", "05"),
    ("-.5", ".5"),
    ("chapter 1.05", ".05"),
    ("Disney", "Disney+"),
    ("Disney+", "Disney"),
]


@pytest.mark.parametrize(("prediction", "true"), IN)
def test_contained_finds_the_true_answer_as_whole_words(prediction, true):
    assert contained(prediction, true) == 1.0


@pytest.mark.parametrize(("prediction", "true"), OUT)
def test_contained_finds_no_part_of_a_word_and_no_other_number(prediction, true):
    assert contained(prediction, true) == 0.0


def test_contained_takes_the_best_of_several_and_is_undefined_without_a_word():
    assert contained("in New York", ["Boston", "New York"]) == 1.0
    assert contained("in New York", ["!", "New York"]) == 1.0
    assert contained("The The played", "The The") == 1.0  # articles stay where nothing else is left
    assert math.isnan(contained("Paris", "?!"))


def spelled_by_some_run(prediction, true):
    """The definition, word run by word run."""
    words = _comparable_words(prediction)
    target = "".join(_comparable_words(true))
    ends = range(len(words) + 1)
    return float(any("".join(words[start:end]) == target for start in ends for end in ends[start:]))


@given(texts, texts)
def test_contained_equals_the_slow_version(a, b):
    if _comparable_words(b):
        assert contained(a, b) == spelled_by_some_run(a, b)


@given(texts, texts, texts)
def test_what_is_an_exact_match_or_stands_between_other_words_is_contained(a, before, after):
    if _comparable_words(a) and _normalise_answer(a):
        assert contained(a, a) == 1.0
        assert contained(f"{before} {a} {after}", a) == 1.0
    if exact_match(a, before) and _normalise_answer(a):
        assert contained(a, before) == 1.0


def test_contained_agrees_with_the_reference_grades_of_a_models_answers():
    true = pd.Series({q.id: q.answer for q in load_minihop().questions}, name="true")
    graded = packaged_data("minihop", "labels", "answers", "thesis_answers.jsonl")
    rows = pd.read_json(graded, lines=True).join(true, on="question_id", how="inner")
    assert len(rows) == 214
    found = np.array(list(map(contained, rows["answer"], rows["true"]))) == 1
    right = rows["grade"] == 5
    balanced = (found[right].mean() + 1 - found[~right].mean()) / 2
    assert balanced == pytest.approx(0.911, abs=0.002)


@pytest.mark.parametrize(
    ("prediction", "true", "f1"),
    [
        (
            "New York",
            "New York City",
            pytest.approx(0.8),
        ),  # common {new, york}: precision 2/2, recall 2/3
        ("so so good", "so good", pytest.approx(0.8)),  # repetition counts: precision 2/3, recall 1
        ("Paris", "London", 0),
        ("the", "Paris", 0),
        ("York", ["London", "New York"], pytest.approx(2 / 3)),
    ],
)
def test_token_f1_by_hand(prediction, true, f1):
    assert token_f1(prediction, true) == f1


@pytest.mark.parametrize("closed", ["yes", "No.", "noanswer"])
def test_a_closed_answer_scores_only_against_itself(closed):
    assert token_f1(closed, f"{closed} indeed") == 0.0
    assert token_f1(f"{closed} indeed", closed) == 0.0
    assert token_f1(closed, closed.upper()) == 1.0


@pytest.mark.data
def test_recorded_em_and_f1_are_reproduced_exactly(recorded):
    rows = pd.DataFrame(recorded("hotpotqa/closedbook_predictions_em_f1.jsonl.gz"))
    assert len(rows) == 3703
    for measure, name in ((exact_match, "exact_match"), (token_f1, "f1_score")):
        assert list(map(measure, rows["prediction"], rows["gold_answer"])) == rows[name].tolist()
    # the comparison is not one of zeros
    assert 0.15 < rows["exact_match"].mean() < 0.2


@given(texts, texts)
def test_em_implies_f1_of_one_and_f1_is_symmetric(a, b):
    assert token_f1(a, b) == pytest.approx(token_f1(b, a))
    if exact_match(a, b) and _normalise_answer(a):
        assert token_f1(a, b) == 1.0


def test_bleu_by_hand():
    # 5 tokens, precisions 4/5, 3/4, 2/3, 1/2, no brevity penalty: (0.8 * 0.75 * 2/3 * 0.5) ** 0.25
    plain = {"tokenizer": "none", "smoothing": "none", "effective_order": False}
    assert bleu("a b c d x", "a b c d e", **plain) == pytest.approx(0.2**0.25)
    assert bleu("a b c d", "a b c d e", **plain) == pytest.approx(math.exp(1 - 5 / 4))
    assert bleu("a b c d", "a b c d e", **plain, brevity_penalty=False) == pytest.approx(1.0)
    assert bleu("a b c", "a b c", **plain) == 0.0  # no 4-gram
    assert bleu("a b c", "a b c") == pytest.approx(1.0)
    assert bleu("", "a b c") == 0.0
    assert bleu("a a a a", "a b c d", **plain) == 0.0


@given(texts, texts)
def test_bleu_with_a_callable_tokenizer_equals_the_same_tokens_by_name(a, b):
    options = {"smoothing": "floor", "effective_order": False}
    by_name = bleu(a, b, tokenizer="none", **options)
    assert bleu(a, b, tokenizer=str.split, **options) == pytest.approx(by_name)


def test_bleu_keeps_tokens_that_are_white_space():
    options = {"tokenizer": list, "effective_order": True}
    assert bleu("a b", "a b", smoothing="none", **options) == pytest.approx(1.0)
    # 3 characters each; "a-b" shares 2 of 3 with "a b", where the space counts as a token
    assert bleu("a-b", "a b", smoothing="exp", **options) < 1.0


def test_bleu_says_nothing_on_standard_error(capfd):
    bleu("a b c d", "a b c e", effective_order=False)
    assert capfd.readouterr().err == ""


@given(texts, texts)
@example("Sales, in 2021, grew by 4.5% - to $12m.", "In 2021 sales grew 4.5% and reached $12m!")
@example("a b c d " * 20, "b d a " * 30)  # more words than a machine word has bits
def test_rouge_l_equals_rouge_score(a, b):
    theirs = RougeScorer(["rougeL"]).score(b, a)["rougeL"].fmeasure
    assert rouge_l(a, b) == pytest.approx(theirs, abs=1e-15)


@pytest.mark.parametrize(
    ("a", "b", "options", "score"),
    [
        # longest common subsequence "police the gunman": 3 of 4 and 3 of 4
        ("police kill the gunman", "police killed the gunman", {}, pytest.approx(3 / 4)),
        ("b a", "a b c", {}, pytest.approx(2 / 5)),  # 1 of 2 and 1 of 3
        ("", "a", {}, 0),
        ("running cats", "run cat", {"stem": True}, 1),
        ("北京", "北京市", {"tokenizer": list}, pytest.approx(0.8)),
        # "the cat sat" / "the black cat sat down": 3 common, 3 and 5 words
        ("The cat sat.", "the black cat sat down", {}, pytest.approx(6 / 8)),
        # 利润上升 / 利润大幅上升10: 4 common, 4 and 7 tokens (10 is one)
        ("利润上升", "利润大幅上升10", {}, pytest.approx(8 / 11)),
        (
            "利润上升",
            "利润大幅上升",
            {"tokenizer": re.compile("利润|大幅|上升").findall},
            pytest.approx(4 / 5),
        ),
    ],
)
def test_rouge_l_by_hand_in_both_languages(a, b, options, score):
    assert rouge_l(a, b, **options) == score


EQUAL = [
    "北京是中国的首都。", "東京は日本の首都です", "서울은 한국의 수도이다", "กรุงเทพมหานครเป็นเมืองหลวง",
    "दिल्ली भारत की राजधानी है",    "Москва — столица России.", "القاهرة عاصمة مصر", "Η Αθήνα", "iPhone 北京", "１９９７",
]  # fmt: skip


@pytest.mark.parametrize("text", EQUAL)
@pytest.mark.parametrize("metric", [exact_match, token_f1, rouge_l, bleu])
def test_equal_texts_score_one_in_every_script(metric, text):
    assert metric(text, text) == 1.0
    assert metric("iPhone 上海", text) < 1


def test_other_scripts_by_hand():
    # 北 京 of 北 京 市: precision 2/2, recall 2/3.
    assert token_f1("北京", "北京市。") == rouge_l("北京", "北京市。") == pytest.approx(0.8)
    assert exact_match("北京。", "北京") == exact_match("МОСКВА!", "Москва") == 1.0
    assert token_f1("в Москве", "в 1147 году в Москве") == pytest.approx(2 * 1 * 0.4 / 1.4)
    # Characters 北 and 京 of 北 京 市, one pair of two: (2/3 * 1/2 * 1/2) ** (1/3), smoothed where no
    # triple matches.
    assert bleu("北京市", "北京") == pytest.approx((2 / 3 * 1 / 2 * 1 / 2) ** (1 / 3))
    # One Greek letter does not make an English text Greek: rouge-score's tokens, which lack it.
    assert rouge_l("the alpha and omega, α", "the alpha and omega") == 1.0


def test_idf_weights_by_hand():
    weights = idf_weights(["The cats", "a cat runs"])
    once = math.log(2)
    expected = {"the": once, "cat": math.log(1.2), "a": once, "run": once}
    assert weights == pytest.approx(expected)
    assert idf_weights([]) == {}


def test_idf_overlap_by_hand():
    idf = {"cat": 1.0, "sat": 3.0}
    # prediction cats + sat = 4; reference cat + cat + flew (unseen: 3) = 5; common cat = 1
    assert idf_overlap("Cats sat", "cat cat flew", idf) == pytest.approx(2 / 9)
    assert idf_overlap("Cats sat", "cat cat flew", idf, unseen=0.0) == pytest.approx(2 / 6)
    assert idf_overlap("same", "same", {}) == 1.0
    assert idf_overlap("", "cat", idf) == 0.0
    assert math.isnan(idf_overlap("", "!", idf))


def test_claim_overlap_by_hand():
    idf = {"cat": 1.0, "sat": 3.0, "mat": 2.0}
    # claim: cat 1 + sat 3 + mat 2 = 6; in the text cat and mat = 3. Repetition on either side
    # changes nothing.
    assert claim_overlap("Cats sat: cat, mat", "mats, cats, mats, dogs", idf) == pytest.approx(
        1 / 2
    )
    # unseen words weigh as the rarest
    assert claim_overlap("cat flew", "flew", idf) == pytest.approx(3 / 4)
    assert claim_overlap("cat flew", "it flew", {}) == 0.5
    assert math.isnan(claim_overlap("?", "cat", idf))


@given(texts, texts)
def test_claim_overlap_equals_the_slow_version(a, b):
    idf = idf_weights(["red blue", "the cat", "the dog"])
    unseen = max(idf.values())
    claimed = set(stems(a))
    total = sum(idf.get(word, unseen) for word in claimed)
    present = sum(idf.get(word, unseen) for word in claimed & set(stems(b)))
    expected = present / total if claimed else math.nan
    assert claim_overlap(a, b, idf) == pytest.approx(expected, nan_ok=True)


def test_claim_overlap_ranks_the_chunks_that_entail_a_claim_first():
    from sklearn.metrics import roc_auc_score

    path = packaged_data("minihop", "labels", "claims", "claims_1000.json")
    results = read_ragchecker(path).results
    idf = idf_weights(doc.text for doc in load_minihop().documents)
    overlap = []
    entailed = []
    for result in results:
        for claim, labels in zip(result.reference_claims, result.reference_in_chunks, strict=True):
            overlap += [claim_overlap(claim, chunk.text, idf) for chunk in result.chunks]
            entailed += [label == "Entailment" for label in labels]
    assert len(entailed) == 3633
    assert roc_auc_score(entailed, overlap) > 0.995


def test_contained_and_claim_overlap_are_metrics_by_name():
    row = {
        "answer": "In Trieste.",
        "reference": "Trieste",
        "chunks": ["Burton died at Trieste.", "A lake"],
    }
    scored = rb.score([row], ["contained", "claim_overlap"])
    assert scored[["contained", "claim_overlap"]].to_numpy().tolist() == [[1.0, 1.0]]
    scored = rb.score([row | {"reference": "Trieste Burton Rome"}], ["claim_overlap"])
    # Weights of two chunks: a stem in one of them ln 2; "rome", in neither, as much.
    assert scored["claim_overlap"][0] == pytest.approx(2 / 3)


def test_stems_are_porters_over_unicode_words():
    assert stems("Running relational Élodie's") == ["run", "relat", "élodi"]


SAME_WORDS = [
    ("ofﬁce", "office"),
    ("of\u00adfice", "office"),
    ("of-\nfice", "office"),
    ("Zoe\u0308", "Zoë"),
    ("Ｐａｒｉｓ", "Paris"),
    ("Straße", "STRASSE"),
    ("१९९७", "1997"),
    ("İstanbul", "istanbul"),
    ("off\u200bice", "office"),
]
OTHER_WORDS = [("काल", "कील"), ("10⁶", "106"), ("1841²", "18412"), ("1½", "11/2")]


@pytest.mark.parametrize(("a", "b"), SAME_WORDS)
def test_what_looks_the_same_is_the_same_word_to_every_reader(a, b):
    assert stems(a) == stems(b)
    assert TOKENIZERS["words"](a) == TOKENIZERS["words"](b)
    assert contained(a, b) == contained(b, a) == 1.0
    assert claim_overlap(a, b, {}) == idf_overlap(a, b, {}) == 1.0


@pytest.mark.parametrize(("a", "b"), OTHER_WORDS)
def test_what_differs_is_another_word_to_every_reader(a, b):
    assert stems(a) != stems(b)
    assert TOKENIZERS["words"](a) != TOKENIZERS["words"](b)
    assert contained(a, b) == contained(b, a) == 0.0
    assert claim_overlap(b, a, {}) < 1


def test_overlaps_know_pairs_of_characters_where_there_are_no_blanks():
    assert claim_overlap("北京市", "他在北京长大", {}) == 0.5


def test_contained_reads_a_long_text_once():
    text = "the red fox, in 1997. " * 20_000  # 100,000 words
    start = time.process_time()
    assert contained(text, "the red cat") == 0.0
    assert time.process_time() - start < 1  # 6 s when it compared at every word


@given(texts, texts)
def test_idf_overlap_is_symmetric_and_in_range(a, b):
    idf = idf_weights(["red blue", "the cat", "the dog"])
    score = idf_overlap(a, b, idf)
    assert math.isnan(score) == (not stems(a) and not stems(b))
    if not math.isnan(score):
        assert 0 <= score <= 1 + 1e-12
        assert score == idf_overlap(b, a, idf)


def correlations(meta, score):
    """Pearson and Spearman, in percent, of score differences with the annotators' labels
    (RAGChecker, Table 2).
    """
    one, two = ([*map(score, meta["responses"].str[i], meta["reference"])] for i in (0, 1))
    labels = [np.stack(meta[aspect]) for aspect in ASPECTS]
    return [
        tuple(
            round(
                100 * preference_correlation(one, two, of_aspect, method, resamples=0).estimate, 2
            )
            for method in ("pearson", "spearman")
        )
        for of_aspect in labels
    ]


@pytest.mark.data
def test_bleu_and_rouge_l_give_the_published_rows_of_ragchecker_table_2(data_mirror):
    jieba = pytest.importorskip("jieba")
    jieba.setLogLevel("ERROR")
    meta = load_ragchecker_meta()
    cut = functools.cache(jieba.lcut)
    plain = {"smoothing": "none", "effective_order": False, "brevity_penalty": False}
    assert correlations(meta, functools.partial(bleu, tokenizer=cut, **plain)) == [
        (38.89, 35.32),
        (32.13, 21.85),
        (35.14, 29.42),
    ]
    assert correlations(meta, functools.partial(rouge_l, tokenizer=cut)) == [
        (31.75, 31.72),
        (47.88, 45.67),
        (43.10, 43.21),
    ]


@pytest.mark.data
def test_idf_overlap_reaches_55_and_56_with_overall_preference(data_mirror):
    meta = load_ragchecker_meta()
    idf = idf_weights(meta["reference"])
    overall = correlations(meta, functools.partial(idf_overlap, idf=idf))[2]
    assert [round(percent) for percent in overall] == [55, 56]


test_bad_input_is_named = refusals(
    (lambda: rouge_l("a", ["a", None]), DataError, r"reference\[1\] is None"),
    (lambda: exact_match(None, "a"), "prediction is None"),
    (lambda: token_f1("a", []), "one or several true texts"),
    (lambda: token_f1("a", 3), DataError, "reference is int"),
    (lambda: bleu("a", "a", smoothing="expo"), "did you mean 'exp'"),
    (lambda: bleu("a", "a", tokenizer="13b"), "did you mean '13a'"),
)
