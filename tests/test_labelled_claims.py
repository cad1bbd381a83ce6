"""Labelled claims: what MiniHop's file promises, what the loader refuses, how a checker is measured on them."""

from __future__ import annotations

import hashlib
import math
from collections import Counter

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, f1_score

from ragbench import papers, stats
from ragbench.data.ragchecker import LABELS
from ragbench.errors import DataError
from ragbench.labelling.checkers import EmbeddedChecker
from ragbench.labelling.claims import checker_intervals, load_labelled_claims

E, N, C = "Entailment", "Neutral", "Contradiction"
ROW = {"id": "a", "document": "Moss", "claim": "Moss is green.", "label": E, "split": "dev"}
TEXTS = {"Moss": "Moss is green.", "Fern": "Ferns are old."}


def test_there_are_hundreds_of_claims_about_a_third_of_each_label_in_either_split():
    claims = load_labelled_claims()
    assert len(claims) == 425
    assert len({c.document for c in claims}) == 123
    for split in ("dev", "test"):
        counts = Counter(c.label for c in load_labelled_claims(split=split))
        total = sum(counts.values())
        assert total > 200
        assert set(counts) == set(LABELS)
        assert all(0.3 < n / total < 0.36 for n in counts.values())


def test_the_place_of_a_claim_says_nothing_of_its_label():
    """Within a document claims stand in the order of the SHA-256 of their text."""
    of: dict[str, list] = {}
    for claim in load_labelled_claims():
        of.setdefault(claim.document, []).append(claim)
    for claims in of.values():
        assert claims == sorted(claims, key=lambda c: hashlib.sha256(c.claim.encode()).hexdigest())
        assert [c.id for c in claims] == sorted(c.id for c in claims)
    assert Counter(claims[0].label for claims in of.values()) == {N: 54, C: 36, E: 33}


def test_two_labellings_agree_but_for_the_claim_whose_label_was_changed():
    twice = [c for c in load_labelled_claims() if c.second_label is not None]
    assert len(twice) == 422
    assert [c.id for c in twice if c.first_label != c.second_label] == ["claim-239"]
    assert [c.id for c in twice if c.label != c.first_label] == ["claim-239"]
    assert stats.kappa([c.first_label for c in twice], [c.second_label for c in twice]).estimate > 0.98
    reworded = [c for c in load_labelled_claims() if c.second_label is None]
    assert all(c.first_label is None for c in reworded)


def test_an_own_file_is_joined_with_its_texts(write_lines):
    path = write_lines("c.jsonl", ROW, {**ROW, "id": "b", "claim": "Moss is red.", "label": C, "second_label": N})
    first, second = load_labelled_claims(path, texts=TEXTS)
    assert (first.text, first.first_label, first.second_label) == ("Moss is green.", None, None)
    assert (second.label, second.first_label, second.second_label) == (C, C, N)
    assert load_labelled_claims(path, split="test", texts=TEXTS) == ()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"label": "entailed"}, "'label' is 'entailed'"),
        ({"second_label": "Perhaps"}, "'second_label' is 'Perhaps'"),
        ({"split": "train"}, "'split' is 'train'"),
        ({"document": "Mos"}, "no document 'Mos'"),
        ({"claim": " "}, "'claim' is empty"),
        ({"id": "a"}, "'a' was there before"),
        ({"claim": "Moss is green."}, "was there before"),
        ({"split": "test"}, "'Moss' is in both splits"),
    ],
)
def test_bad_rows_are_named_by_file_and_line(write_lines, change, message):
    bad = {**ROW, "id": "b", "claim": "Moss is old.", **change}
    with pytest.raises(DataError, match=rf"c.jsonl, line 2: .*{message}"):
        load_labelled_claims(write_lines("c.jsonl", ROW, bad), texts=TEXTS)


# --- a checker beside labels (Table 16) --------------------


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
    true, guess = [h == E for h in human], [s == E for s in said]
    assert got["accuracy"] == pytest.approx(accuracy_score(true, guess))
    assert got["factual f1"] == pytest.approx(f1_score(true, guess, pos_label=True))
    assert got["non-factual f1"] == pytest.approx(f1_score(true, guess, pos_label=False))
    rates = [
        [np.mean([label != E for label, r in zip(labels, of, strict=True) if r == response]) for response in set(of)]
        for labels in (human, said)
    ]
    assert got["pearson"] == pytest.approx(np.corrcoef(*rates)[0, 1])


def test_a_claim_without_verdict_is_left_out_and_counted():
    got = checker_intervals([E, N, N], [E, None, E], [1, 2, 3], resamples=0)
    assert (got["accuracy"].n, got["pearson"].n, got["accuracy"].estimate) == (2, 2, 0.5)


def test_what_is_undefined_is_nan():
    nothing = checker_quality([], [])
    assert all(math.isnan(nothing[name]) for name in ("accuracy", "factual f1", "accuracy, three labels", "pearson"))
    one = checker_quality([E, E], [E, E], ["a", "a"])
    assert math.isnan(one["non-factual f1"])
    assert math.isnan(one["pearson"])
    assert one["factual f1"] == 1
    assert math.isnan(checker_quality([E, N], [E, N])["spearman"])


def test_published_accuracy_follows_from_the_two_f1_so_it_counts_two_classes():
    cells = papers.published("ragchecker", "Table 16")
    table = cells.pivot(index="row", columns="column", values="value") / 100
    errors = 1 - table["accuracy"]
    right = sum(f1 * errors / 2 / (1 - f1) for f1 in (table["factual f1"], table["non-factual f1"]))
    assert (right - table["accuracy"]).abs().max() < 0.01


def test_bad_input_is_named():
    with pytest.raises(DataError, match="1 and 2 items"):
        checker_quality([E, N], [E])
    with pytest.raises(DataError, match="1 and 2 items"):
        checker_quality([E, N], [E, N], ["a"])
    with pytest.raises(DataError, match="the label 'entailed'"):
        checker_quality([E], ["entailed"])
    with pytest.raises(DataError, match="the label None"):
        checker_quality([None], [E])


# --- intervals --------------------------------------------------------------------------------------------------


def test_claims_of_one_response_are_drawn_together():
    # Ten responses, each all right or all wrong: as wide as for ten claims.
    human = [E] * 100
    said = [E if i // 10 < 5 else N for i in range(100)]
    together = checker_intervals(human, said, [i // 10 for i in range(100)])["accuracy"]
    apart = checker_intervals(human, said, range(100))["accuracy"]
    assert together.high - together.low > 2.5 * (apart.high - apart.low)


def test_the_embedded_checker_tells_natural_claims_no_better_than_chance(kept_minilm):
    claims = load_labelled_claims(split="dev")
    checker = EmbeddedChecker(kept_minilm)
    said = [checker.check([c.claim], c.text)[0] for c in claims]
    quality = checker_quality([c.label for c in claims], said, [c.document for c in claims])
    assert quality["accuracy"] == pytest.approx(0.502, abs=0.02)
    always = checker_quality([c.label for c in claims], [N] * len(claims))
    assert always["accuracy"] > quality["accuracy"]
