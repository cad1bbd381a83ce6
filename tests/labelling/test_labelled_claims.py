"""Labelled claims: what MiniHop's file promises, how a checker is measured on them."""

import hashlib
import math
from collections import Counter

import numpy as np
import pytest
from checks import refusals
from sklearn.metrics import accuracy_score, f1_score

from ragbench import papers, stats
from ragbench.data import load_minihop
from ragbench.data.ragchecker import LABELS
from ragbench.errors import ConfigError, DataError
from ragbench.labelling.claims import checker_intervals, load_labelled_claims

E = "Entailment"
N = "Neutral"
C = "Contradiction"


def test_there_are_hundreds_of_claims_about_a_third_of_each_label_in_either_split():
    claims = load_labelled_claims()
    assert len(claims) == claims["id"].nunique() == 425
    assert claims["document"].nunique() == 123
    assert not claims.duplicated(["document", "claim"]).any()
    assert (claims.groupby("document")["split"].nunique() == 1).all()
    texts = {document.title: document.text for document in load_minihop().documents}
    assert claims["text"].tolist() == [texts[title] for title in claims["document"]]
    for split in ("dev", "test"):
        shares = load_labelled_claims(split=split)["label"].value_counts(normalize=True)
        assert set(shares.index) == set(LABELS)
        assert shares.between(0.3, 0.36).all()
        assert len(load_labelled_claims(split=split)) == (claims["split"] == split).sum() > 200
    with pytest.raises(ConfigError, match="dev, test"):
        load_labelled_claims("train")


def test_the_place_of_a_claim_says_nothing_of_its_label():
    """Within a document claims stand in the order of the SHA-256 of their text."""
    first = Counter()
    for _, claims in load_labelled_claims().groupby("document"):
        digests = [hashlib.sha256(claim.encode()).hexdigest() for claim in claims["claim"]]
        assert digests == sorted(digests)
        assert claims["id"].is_monotonic_increasing
        first[claims["label"].iloc[0]] += 1
    assert first == {N: 54, C: 36, E: 33}


def test_two_labellings_agree_but_for_the_claim_whose_label_was_changed():
    claims = load_labelled_claims()
    twice = claims[claims["second_label"].notna()]
    assert len(twice) == 422
    for column in ("second_label", "label"):
        assert twice.loc[twice["first_label"] != twice[column], "id"].tolist() == ["claim-239"]
    assert stats.kappa(twice["first_label"], twice["second_label"]).estimate > 0.98
    assert claims.loc[claims["second_label"].isna(), "first_label"].tolist() == [None] * 3


def checker_quality(*labels):
    measured = checker_intervals(*labels, resamples=0)
    return {name: interval.estimate for name, interval in measured.items()}


def test_worked_by_hand():
    # entailed or not: yes/yes, yes/no, no/no (Contradiction for Neutral), no/yes, no/no
    got = checker_quality([E, E, N, C, C], [E, N, C, E, C], ["a", "a", "b", "b", "c"])
    assert got["accuracy"] == 3 / 5
    assert got["factual f1"] == 2 * 1 / (2 + 2)
    assert got["non-factual f1"] == 2 * 2 / (3 + 3)
    assert got["accuracy, three labels"] == 2 / 5
    # shares not entailed by response: people 0, 1, 1; checker 1/2, 1/2, 1
    assert got["pearson"] == pytest.approx(0.5)
    assert got["spearman"] == pytest.approx(0.5)


def test_equals_scikit_learn_and_plain_loops_on_random_labels():
    rng = np.random.default_rng(0)
    human, said = rng.choice([E, N, C], (2, 300)).tolist()
    of = rng.integers(40, size=300).tolist()
    got = checker_quality(human, said, of)
    true = [h == E for h in human]
    guess = [s == E for s in said]
    assert got["accuracy"] == pytest.approx(accuracy_score(true, guess))
    assert got["factual f1"] == pytest.approx(f1_score(true, guess, pos_label=True))
    assert got["non-factual f1"] == pytest.approx(f1_score(true, guess, pos_label=False))
    rates = [
        [
            np.mean([label != E for label, r in zip(labels, of, strict=True) if r == response])
            for response in set(of)
        ]
        for labels in (human, said)
    ]
    assert got["pearson"] == pytest.approx(np.corrcoef(*rates)[0, 1])


def test_a_claim_without_verdict_is_left_out_and_counted():
    got = checker_intervals([E, N, N], [E, None, E], [1, 2, 3], resamples=0)
    assert (got["accuracy"].n, got["pearson"].n, got["accuracy"].estimate) == (2, 2, 0.5)


def test_what_is_undefined_is_nan():
    nothing = checker_quality([], [], [])
    assert all(
        math.isnan(nothing[name])
        for name in ("accuracy", "factual f1", "accuracy, three labels", "pearson")
    )
    one = checker_quality([E, E], [E, E], ["a", "a"])
    assert math.isnan(one["non-factual f1"])
    assert math.isnan(one["pearson"])
    assert one["factual f1"] == 1


def test_published_accuracy_follows_from_the_two_f1_so_it_counts_two_classes():
    cells = papers.published("ragchecker", "Table 16")
    table = cells.pivot(index="row", columns="column", values="value") / 100
    errors = 1 - table["accuracy"]
    right = sum(f1 * errors / 2 / (1 - f1) for f1 in (table["factual f1"], table["non-factual f1"]))
    assert (right - table["accuracy"]).abs().max() < 0.01


test_bad_input_is_named = refusals(
    (lambda: checker_quality([E, N], [E], [1, 2]), DataError, "human 2, predicted 1"),
    (lambda: checker_quality([E, N], [E, N], ["a"]), DataError, "predicted 2, responses 1"),
    (lambda: checker_quality([E], ["entailed"], [1]), "label 'entailed'"),
    (lambda: checker_quality([None], [E], [1]), "label None"),
)


def test_claims_of_one_response_are_drawn_together():
    # Ten responses, each all right or all wrong: as wide as for ten claims.
    human = [E] * 100
    said = [E if i // 10 < 5 else N for i in range(100)]
    together = checker_intervals(human, said, [i // 10 for i in range(100)])["accuracy"]
    apart = checker_intervals(human, said, range(100))["accuracy"]
    assert together.high - together.low > 2.5 * (apart.high - apart.low)
