"""The embedded judge and checker: features by hand, a slow oracle, recorded human labels, bad input."""

import json
import math

import numpy as np
import pandas as pd
import pytest
from checks import load_script, refusals
from hypothesis import given, settings
from hypothesis import strategies as st
from word_bags import Bags

from ragbench.data.ragchecker import ASPECTS, load_ragchecker_meta
from ragbench.embedding import default_embedder
from ragbench.errors import DataError
from ragbench.labelling.checkers import EmbeddedChecker, split_claims
from ragbench.labelling.embedded_judge import (
    NAMES,
    NESTED,
    EmbeddedJudge,
    _features,
    _stance,
    load_coefficients,
)
from ragbench.text.negation import abstains
from ragbench.text.parse import parse
from ragbench.text.sentences import split_sentences
from ragbench.text.words import word_weight

LEXICAL = tuple(n for n in NAMES if n != "cosine")
WORDS = ["the", "river", "Nile", "flows", "north", "1902", "dam", "not", "Egypt", "of"]
texts = st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join)


def row(question, reference, answer, names=LEXICAL):
    return dict(zip(names, _features([question], [reference], [answer], Bags(), names)[0].tolist(), strict=True))


def test_common_words_weigh_less_than_rare_ones_and_unknown_ones_most():
    assert word_weight("the") == pytest.approx(math.log(6))  # the first word of the vocabulary
    assert word_weight("the") < word_weight("river") < word_weight("receptor") < word_weight("keflavik")


def test_sentences_end_at_line_ends_and_stops_but_not_after_abbreviations():
    text = "Dr. Smith came in 1.5 hours. He left!\n- One item\n\nIt cost 3. Then he slept e.g. Well"
    ends = ["Dr. Smith came in 1.5 hours.", "He left!", "- One item", "It cost 3.", "Then he slept e.g. Well"]
    assert list(split_sentences(text, "claims")) == ends


def test_stance_reads_yes_no_and_for_polar_questions_the_first_sentence():
    assert [_stance(t, False) for t in ("Yes, it is.", "no", "It is not.", "")] == [1, -1, 0, 0]
    assert [_stance(t, True) for t in ("It is not so. Yes.", "It is so. Not here.", "The answer is no.")] == [-1, 1, -1]


def test_abstention_is_looked_for_at_the_start_only():
    assert abstains("The context does not mention the river.", "judge")
    assert not abstains("The Nile. " + "x " * 200 + "It does not mention more.", "judge")


def test_names_and_numbers_are_taken_inside_sentences():
    p = parse("Then John Speke saw (Ripon) falls 1,858 times. The end.")
    assert p.names == {"john", "speke", "ripon"}
    assert p.numbers == {"1858"}


def test_overlap_by_hand():
    weight = {w: math.log(2) * (word_weight(w) - 3) for w in ("river", "dam", "egypt", "north")}
    f = row("Which river?", "The river dam Egypt", "the river dam north north")
    # "river" is in the question; "the" has the least weight 0.1; "north" twice has log1p(2)
    the = math.log(2) * 0.1
    shared = the + weight["dam"]
    recall = shared / (shared + weight["egypt"])
    precision = shared / (shared + weight["north"] / math.log(2) * math.log(3))
    assert f["overlap_r"] == pytest.approx(recall)
    assert f["overlap_p"] == pytest.approx(precision)
    assert f["overlap_f"] == pytest.approx(2 * recall * precision / (recall + precision))


def test_question_words_count_when_the_reference_has_no_others():
    assert row("Is it the Nile or the Dam?", "the Nile", "the Nile")["overlap_f"] == 1
    assert row("Is it the Nile or the Dam?", "the Nile", "the Dam")["overlap_f"] < 0.2


def test_sentence_coverage_takes_the_best_single_sentence():
    together = row(None, "The river Nile.", "The river Nile.")
    apart = row(None, "The river Nile.", "The river.\nThe Nile.")
    assert together["sentence_r"] == pytest.approx(1)
    assert apart["overlap_r"] == pytest.approx(1)
    best = 0.1 + word_weight("nile") - 3
    assert apart["sentence_r"] == pytest.approx(best / (best + word_weight("river") - 3))
    assert apart["sentence_p"] == pytest.approx(1)


def test_length_names_numbers_stance_and_abstention_by_hand():
    asked, true = "Did John Speke come in 1850?", "Yes, with John Speke and Henry in 1858."
    f = row(asked, true, "No. Then Henry came in 1858, 1850.")
    assert f["short"] == pytest.approx(math.log((7 + 5) / (8 + 5)))
    assert f["long"] == 0
    assert f["names"] == pytest.approx(math.log(2))  # John and Speke are asked about
    assert f["numbers"] == pytest.approx(math.log(2))
    assert f["stance"] == -1
    assert f["abstains"] == 0
    assert row(None, "The Nile.", "I do not know.")["abstains"] == 1
    assert row(None, "The text does not mention it.", "I do not know.")["abstains"] == 0
    assert row(None, "The Nile.", "")["empty"] == 1
    assert row(None, "Nile", "the river of the Nile flows")["long"] == pytest.approx(math.log(11 / 6))


def test_cosine_leaves_out_the_question():
    f = _features(["What river", None], ["river Nile"] * 2, ["river dam"] * 2, Bags(), ["cosine"])[:, 0]
    assert f[1] == pytest.approx(0.5, abs=1e-3)  # they share "river"
    # without the direction (river + what)/sqrt 2: nile + (river - what)/2 against dam + (river - what)/2
    assert f[0] == pytest.approx(0.5 / 1.5, abs=1e-3)


@settings(max_examples=60, deadline=None)
@given(texts, texts, texts)
def test_overlaps_are_shares_and_swap_sides(question, reference, answer):
    f = row(question, reference + " Egypt", answer + " Egypt")
    for name in ("overlap", "sentence"):
        assert all(0 <= f[f"{name}_{x}"] <= 1 + 1e-9 for x in "rpf")
    if not question:
        g = row(question, answer + " Egypt", reference + " Egypt")
        assert (f["overlap_r"], f["sentence_r"]) == pytest.approx((g["overlap_p"], g["sentence_p"]))


def test_a_reference_without_words_is_nan_not_zero():
    assert np.isnan(_features(["q"], [" - "], ["answer"], Bags())).all()
    assert math.isnan(EmbeddedJudge(embedder=Bags()).score("answer", ""))


test_the_bad_argument_is_named = refusals(
    (lambda: _features(["q"], ["r"], ["a", "b"]), DataError, "1 questions, 1 references, 2 answers"),
    (lambda: _features(["q"], ["r"], [None]), DataError, "None among the texts"),
    (lambda: _features(["q"], ["r"], ["a"], None, ["cosinus"]), "cosinus"),
    (lambda: EmbeddedJudge("overal"), "completeness, correctness, overall"),
    (lambda: EmbeddedChecker().check("claim", "t"), "one string"),
    (lambda: EmbeddedChecker().check_many(["claim"], [None]), "text 0 is NoneType"),
)


REFERENCE = "The Nile flows north through Egypt. A dam was built there in 1902 by John Aird."


@pytest.fixture(scope="module")
def judge(kept_minilm):
    return EmbeddedJudge(embedder=kept_minilm)


def test_empty_answer_scores_0_and_the_reference_1(judge):
    for criterion in ("overall", "correctness", "completeness"):
        j = EmbeddedJudge(criterion, judge.embedder)
        for question in (None, "Where does the Nile flow?", "Is the Nile long?"):
            assert j.score("", REFERENCE, question) == 0
            assert j.score(REFERENCE, REFERENCE, question) == pytest.approx(1, abs=1e-6)


def test_batch_equals_one_by_one_and_embeds_once():
    counting = Bags()
    judge = EmbeddedJudge(embedder=counting)
    answers, references = ["river dam", "", "Nile"], ["river dam Egypt", "Nile north", "Nile north"]
    batch = judge.scores(answers, references, [None, "what", "north"])
    (asked,) = counting.asked
    assert len(asked) == len(set(asked))
    for i, q in enumerate([None, "what", "north"]):
        assert judge.score(answers[i], references[i], q) == pytest.approx(batch[i], abs=1e-6)
    assert judge.scores([], []).shape == (0,)


def test_shipped_coefficients_carry_their_card():
    data = load_coefficients()
    assert set(data["criteria"]) == {"overall", "correctness", "completeness"}
    card = data["card"]
    assert (card["pairs"], len(card["groups"]), set(card["labels"].values())) == (280, 10, {560})
    assert all(card["numbers_x100"][f"{c}, judge"]["pearson"][0] > 50 for c in data["criteria"])
    assert len(card["limits"]) >= 3


@pytest.fixture(scope="module")
def fitting():
    return load_script("fit_embedded_judge")


def made_up(n, groups=4):
    """Pairs whose label is which answer has more of the reference."""
    rng = np.random.default_rng(n)
    vocabulary = ["lake", "mountain", "castle", "bishop", "treaty", "engine", "copper", "violin", "harbour", "winter"]
    pairs, labels = [], []
    for i in range(n):
        words, sizes = rng.permutation(vocabulary), rng.integers(0, 9, 2)
        responses = [" ".join(words[:k]) or "nothing" for k in sizes]
        pairs.append((f"g{i % groups}", f"question {i}", " ".join(words), responses, [float(k) for k in sizes]))
        labels.append(float(np.sign(sizes[1] - sizes[0])))
    pairs = pd.DataFrame(pairs, columns=["domain", "question", "reference", "responses", "recorded overall"])
    return pairs, np.array(labels), pairs["domain"].to_numpy()


def nested(fitting, pairs, labels, folds):
    tables = [fitting.feature_table(pairs, Bags(), ask) for ask in (True, False)]
    return fitting.nested(*tables, labels, folds)


def test_ridge_by_hand_is_odd_and_ignores_units(fitting):
    x, y = np.array([[1.0, 0.0], [-1.0, 0.0]]), np.array([2.0, -2.0])
    # one column of root mean square 1: weight = (1*2 + 1*2) / (2 + 0.5 * 2)
    assert fitting.ridge(x, y, 0.5) == pytest.approx([4 / 3, 0])
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(30, 3)), rng.normal(size=30)
    assert fitting.ridge(-x, -y, 0.3) == pytest.approx(fitting.ridge(x, y, 0.3))
    assert fitting.ridge(x * [1, 10, 100], y, 0.3) * [1, 10, 100] == pytest.approx(fitting.ridge(x, y, 0.3))


def test_the_left_out_group_has_no_part_in_its_own_prediction_and_the_others_find_the_signal(fitting):
    pairs, labels, folds = made_up(60)
    inside = folds == "g1"
    before, chosen = nested(fitting, pairs, labels, folds)
    after, again = nested(fitting, pairs, np.where(inside, -labels, labels), folds)
    assert (before[inside] == after[inside]).all(axis=None)
    assert not np.allclose(before[~inside], after[~inside])
    assert chosen["g1"].names == again["g1"].names
    assert (before.corrwith(pd.Series(labels)) > 0.8).all()


@pytest.mark.data
@pytest.mark.slow
def test_refit_on_ragchecker_reproduces_the_shipped_coefficients_and_predictions(fitting, data_mirror):
    meta, there = load_ragchecker_meta(), load_coefficients()
    kept = pd.read_csv(NESTED).set_index("criterion")
    tables = [fitting.feature_table(meta, default_embedder(), ask) for ask in (True, False)]
    for criterion in ASPECTS:
        labels = np.stack(meta[criterion]).mean(axis=1)
        refitted = fitting.choose(tables[0], labels, meta["domain"].to_numpy(), np.ones(len(labels), bool))
        assert list(refitted.names) == there["criteria"][criterion]["features"]
        assert refitted.weights == pytest.approx(there["criteria"][criterion]["weights"], abs=2e-3)
        found, _ = fitting.nested(*tables, labels, meta["domain"].to_numpy())
        assert found.to_numpy() == pytest.approx(kept.loc[criterion, list(found)].to_numpy(), abs=1e-3)


TEXT = "Speke reached the lake in 1858. He named it after the queen. The lake is shared by three countries."


@pytest.fixture(scope="module")
def checker(kept_minilm):
    return EmbeddedChecker(kept_minilm)


@pytest.mark.parametrize(
    ("claim", "label"),
    [
        ("Speke reached the lake in 1858.", "Entailment"),
        (["Speke", "reached", "the lake"], "Entailment"),
        ("Speke reached the lake in 1862.", "Contradiction"),
        ("The lake is not shared by three countries.", "Contradiction"),
        ("Violins are made of spruce and maple.", "Neutral"),
        ("Speke composed 12 operas in Vienna.", "Neutral"),
    ],
)
def test_the_rule_on_plain_cases(checker, claim, label):
    assert checker.check([claim], TEXT) == [label]


def test_support_by_hand():
    checker = EmbeddedChecker(Bags(), mix=0.5)
    # window "dam Egypt." has one of two equally weighed halves by cosine, and dam's share of the weight by coverage
    dam, river = word_weight("dam") - 3, word_weight("river") - 3
    by_hand = 0.5 * dam / (dam + river) + 0.5 * math.sqrt(0.5)
    assert checker.support(["dam river"], ["dam"])[0, 0] == pytest.approx(by_hand, abs=1e-3)


def test_claims_are_sentences_without_markers():
    assert split_claims("1. **Bold** start [3]. Next one.\n- item `x`\n\n***") == ["Bold start.", "Next one.", "item x"]


@pytest.mark.data
def test_recorded_ragchecker_verdicts_agree_with_the_checker(checker, data_mirror):
    results = json.loads((data_mirror / "ragchecker/examples/checking_outputs.json").read_text())["results"]
    got, said = [], []
    for r in results:
        got += checker.check(r["response_claims"], r["gt_answer"]) + checker.check(r["gt_answer_claims"], r["response"])
        said += r["answer2response"] + r["response2answer"]
        chunks = [c["text"] for c in r["retrieved_context"]]
        for claims, key in ((r["response_claims"], "retrieved2response"), (r["gt_answer_claims"], "retrieved2answer")):
            got += [label for labels in checker.check_many(claims, chunks) for label in labels]
            said += [label for labels in r[key] for label in labels]
    assert len(said) == 217
    entailed = [(a == "Entailment", b == "Entailment") for a, b in zip(got, said, strict=True)]
    assert sum(a == b for a, b in entailed) / 217 > 0.84
    assert 2 * entailed.count((True, True)) / (sum(a for a, _ in entailed) + sum(b for _, b in entailed)) > 0.75
