"""On Latin text the published metrics differ by nothing from the scripts and packages that define
them: SQuAD's and HotpotQA's scripts, written here as they say, sacrebleu and rouge-score; of ranks
scikit-learn.
"""

import re
import string
from collections import Counter

import pytest
import sacrebleu
from hypothesis import example, given
from hypothesis import strategies as st
from rouge_score.rouge_scorer import RougeScorer
from sklearn.metrics import average_precision_score, ndcg_score

import ragbench as rb

WORDS = [
    "The",
    "a",
    "An",
    "cat",
    "Cat's",
    "U.S.",
    "1,234",
    "4.5%",
    "$12m",
    "(2021)",
    "é",
    "naïve",
    "Straße",
    "don't",
    "e-mail",
    "no",
    "yes",
    "noanswer",
    "Zoë",
    "“so”",
    "--",
    "x_y",
    "A.D.",
    "10⁶",
    "ﬁne",
    "&",
    "I'm",
    "5 µg",
    "Hawaiʻi",
    "½",
]
LATIN = st.lists(st.sampled_from(WORDS), max_size=10).map(" ".join) | st.text(
    "aAbe .,'-1%é\n\u00a0", max_size=20
)
SEVERAL = st.lists(LATIN, min_size=1, max_size=3)


def normalised(text):
    """Lower case, without ASCII punctuation, without articles, one blank between words."""
    kept = "".join(c for c in text.lower() if c not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", kept).split())


def squads_f1(prediction, true):
    found, wanted = normalised(prediction).split(), normalised(true).split()
    shared = sum((Counter(found) & Counter(wanted)).values())
    if not shared:
        return 0.0
    precision, recall = shared / len(found), shared / len(wanted)
    return 2 * precision * recall / (precision + recall)


def hotpotqas_f1(prediction, true):
    sides = normalised(prediction), normalised(true)
    if sides[0] != sides[1] and {"yes", "no", "noanswer"}.intersection(sides):
        return 0.0
    return squads_f1(prediction, true)


@given(LATIN, SEVERAL)
def test_exact_match_and_f1_are_those_of_the_scripts_of_squad_and_hotpotqa(prediction, several):
    matches = [normalised(prediction) == normalised(true) for true in several]
    assert rb.exact_match(prediction, several) == max(matches)
    assert rb.token_f1(prediction, several) == max(hotpotqas_f1(prediction, t) for t in several)
    if not {"yes", "no", "noanswer"}.intersection(map(normalised, [prediction, *several])):
        assert rb.token_f1(prediction, several) == max(squads_f1(prediction, t) for t in several)


@given(LATIN, SEVERAL)
def test_bleu_is_that_of_sacrebleu(prediction, several):
    theirs = sacrebleu.sentence_bleu(prediction, several).score / 100
    assert rb.bleu(prediction, several) == pytest.approx(theirs, abs=1e-12)


@given(LATIN, LATIN)
@example("Sales, in 2021, grew by 4.5% - to $12m.", "In 2021 sales grew 4.5% and reached $12m!")
def test_rouge_l_is_that_of_rouge_score(prediction, true):
    theirs = RougeScorer(["rougeL"]).score(true, prediction)["rougeL"].fmeasure
    assert rb.rouge_l(prediction, true) == pytest.approx(theirs, abs=1e-15)


@given(st.lists(st.booleans(), min_size=2, max_size=12).filter(any))
def test_ranks_are_scored_as_by_scikit_learn(found):
    ranked = [f"d{place}" for place in range(len(found))]
    relevant = [name for name, is_relevant in zip(ranked, found, strict=True) if is_relevant]
    scores = range(len(found), 0, -1)
    ours = rb.rank_table([ranked], [relevant], ["nDCG@10", "AP", "RR"]).iloc[0]
    assert ours["nDCG@10"] == pytest.approx(ndcg_score([found], [scores], k=10))
    assert ours["AP"] == pytest.approx(average_precision_score(found, scores))
    assert ours["RR"] == pytest.approx(1 / (found.index(True) + 1))
