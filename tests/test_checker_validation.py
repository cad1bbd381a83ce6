"""How a claim checker is measured against people's labels (Table 16)."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, f1_score

from ragbench import papers
from ragbench.errors import DataError
from ragbench.labelling.claims import checker_quality

E, N, C = "Entailment", "Neutral", "Contradiction"


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
    assert (got["n"], got["responses"], got["unscored"]) == (5, 3, 0)


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
    got = checker_quality([E, N, N], [E, None, E], [1, 2, 3])
    assert (got["n"], got["responses"], got["unscored"]) == (2, 2, 1)
    assert got["accuracy"] == 0.5


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
    with pytest.raises(DataError, match="predicted label 'entailed'"):
        checker_quality([E], ["entailed"])
    with pytest.raises(DataError, match="human label None"):
        checker_quality([None], [E])
