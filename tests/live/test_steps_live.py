"""The model steps against a real llama.cpp: a model that counts badly, under a grammar that does not count for it."""

from __future__ import annotations

import pytest

from ragbench.data.ragchecker import LABELS, RagResult, RetrievedText
from ragbench.llm import plan
from ragbench.metrics.claims import claim_metrics_table
from ragbench.metrics.steps import check_claims, gpt_ranking, ragchecker_labels, steps_for_ragchecker

pytestmark = pytest.mark.live


def test_a_model_with_random_weights_miscounts_and_every_claim_still_gets_a_label_of_its_own(live_model):
    claims = [[f"The bridge at mile {n} was built in {1900 + 7 * n + i}." for i in range(6)] for n in range(4)]
    texts = [f"A bridge stands at mile {n}." for n in range(4)]
    judged = check_claims(live_model(num_predict=300), claims, texts, 6, progress=False)
    report = judged.report
    assert report.joint == 4
    assert report.mismatches + report.unreadable >= 1
    assert report.rechecked == 6 * (report.mismatches + report.unreadable)
    assert all(label in LABELS for row in judged.labels for label in row)
    assert report.unscored == 0


def test_a_whole_result_is_labelled_and_measured_with_as_many_calls_as_planned(live_model):
    row = RagResult(
        "a",
        "Where?",
        "On the hill.",
        "In the town.",
        (RetrievedText("It stands on the hill."),),
        response_claims=("It is in the town.", "It is old."),
        reference_claims=("It is on the hill.",),
    )
    planned = plan(steps_for_ragchecker([row], joint=1))
    done = ragchecker_labels(live_model(num_predict=200), [row], joint=1, progress=False)
    assert done.unscored == ()
    report = done.reports["claim check"]
    assert report.prompts == planned.total.calls == 6
    assert report.calls >= 6  # attempts that end in an error are repeated
    assert 0 <= claim_metrics_table(done.scored.results)["precision"].iloc[0] <= 1


def test_a_ranking_asks_both_orders_and_reads_both(live_model):
    got = gpt_ranking(
        live_model(num_predict=60), "answer_relevance", ["Where?"] * 3, list("abc"), list("def"), progress=False
    )
    assert all(choice in (1, 2) for pair in got.choices for choice in pair)
    assert -0.5 <= got.position_bias <= 0.5
