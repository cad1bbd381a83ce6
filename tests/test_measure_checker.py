"""scripts/measure_checker.py: how thresholds and windows are chosen, and what the shipped table rests on."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from checks import load_script

from ragbench.data.ragchecker import read_ragchecker
from ragbench.metrics.claims import METRICS
from ragbench.paths import packaged_data


@pytest.fixture(scope="module")
def script():
    return load_script("measure_checker")


@pytest.fixture(scope="module")
def claims():
    return read_ragchecker(packaged_data("minihop", "claims_1000.json")).results


@pytest.fixture(scope="module")
def survivors(script, claims):
    return lambda said: script.survivors(claims, said, resamples=300)


def test_balanced_accuracy_is_the_mean_of_both_shares(script):
    entailed, said = [True, True, True, True, False], np.array([True, True, True, False, True])
    assert script.balanced(entailed, said) == pytest.approx((3 / 4 + 0) / 2)


def test_the_threshold_is_the_middle_one_of_the_best(script):
    found, cut = script.best_cut([True, True, False], np.array([0.9, 0.6, 0.4]))
    assert found == 1  # from .41 to .60 it is right everywhere
    assert cut == pytest.approx(0.51)


def test_a_window_is_a_run_of_sentences_or_the_whole_text(script):
    text = "Ely lies on a river. Cam is its name. It is slow."
    assert script.runs(text, 2) == ["Ely lies on a river. Cam is its name.", "Cam is its name. It is slow."]
    assert script.runs(text, None) == script.runs(text, 3) == script.runs(text, 4) == [text]
    assert script.runs(" ", 2) == []


def test_the_pairs_of_a_direction_are_the_labels_of_its_table_in_order(script, claims):
    some = claims[:3]
    pairs = script.pairs_of(some, "response_in_chunks")
    labels = [label for r in some for row in r.response_in_chunks for label in row]
    assert pairs["entailed"].tolist() == [label == "Entailment" for label in labels]
    assert pairs["text"].tolist() == [c.text for r in some for _ in r.response_claims for c in r.chunks]
    assert set(script.pairs_of(some, "reference_in_response")["text"]) == {r.response for r in some}


def test_a_metric_survives_few_wrong_labels_of_its_table_and_dies_of_many(script, claims, survivors):
    said = {check: script.pairs_of(claims, check)["entailed"].to_numpy() for check in script.CHECKS}
    same = survivors(said).set_index("metric")
    assert list(same.index) == list(METRICS)
    assert (same["bias"] == 0).all()
    assert set(same["rank correlation"].dropna().round(9)) == {1}
    found = said["reference_in_chunks"]
    few = survivors(said | {"reference_in_chunks": found ^ (np.arange(len(found)) % 200 == 0)})
    many = survivors(said | {"reference_in_chunks": found | (np.arange(len(found)) % 2 == 0)})
    survives = [table.set_index("metric")["survives"]["context_precision"] for table in (few, many)]
    assert survives == [True, False]


def test_a_shifted_metric_dies_of_its_bias_and_a_shuffled_one_of_its_rank_correlation(script, claims, survivors):
    said = {check: script.pairs_of(claims, check)["entailed"].to_numpy() for check in script.CHECKS}
    last = [np.tile(np.arange(len(r.chunks)) == len(r.chunks) - 1, len(r.reference_claims)) for r in claims]
    shifted = survivors(said | {"reference_in_chunks": said["reference_in_chunks"] | np.concatenate(last)})
    row = shifted.set_index("metric").loc["context_precision"]
    assert row["rank correlation low"] > 0.5
    assert row["bias high"] > 0.1
    assert not row["survives"]
    shuffled = survivors(said | {"reference_in_response": np.roll(said["reference_in_response"], 40)})
    row = shuffled.set_index("metric").loc["recall"]
    assert -0.1 <= row["bias low"] <= row["bias high"] <= 0.1
    assert not row["survives"]


def test_the_shipped_rows_of_the_embedded_checker_and_the_constant_are_what_they_say_now(script, claims):
    shipped = pd.read_csv(packaged_data("recordings", "trained_checker.csv")).set_index(["set", "tool"])
    for check in ("response_in_reference", "reference_in_response"):
        pairs = script.pairs_of(claims, check)
        entailed, said = pairs["entailed"].to_numpy(), script.embedded(pairs)
        row = shipped.loc[check, "embedded"]
        assert row["accuracy"] == pytest.approx((said == entailed).mean(), abs=1e-6)
        assert row["balanced accuracy"] == pytest.approx(script.balanced(entailed, said), abs=1e-6)
        assert shipped.loc[(check, "constant"), "accuracy"] == pytest.approx(
            max(entailed.mean(), 1 - entailed.mean()), abs=1e-6
        )
    plan = packaged_data("minihop", "ANALYSIS.md").read_text(encoding="utf-8")
    assert "**It does not pass**: 4 of 11 metrics survive" in plan
    assert pd.read_csv(packaged_data("recordings", "trained_checker_metrics.csv"))["survives"].sum() == 4
