"""The claim inspector, driven from Python: what is shown of results worked out by hand."""

import math
import re
from dataclasses import replace

import pandas as pd
import pytest

from ragbench.data.ragchecker import (
    CLAIM_LABELS,
    RagResult,
    RagResults,
    RetrievedText,
    read_ragchecker,
)
from ragbench.errors import ConfigError, DataError
from ragbench.metrics.claims import CLAIM_METRICS
from ragbench.widgets import ClaimInspector

E, N, C = CLAIM_LABELS
LAKE = "Lake Geneva lies between two countries. It is 310 metres deep. The Rhône flows through it."
SHELLEY = "Mary Shelley wrote a novel. She ran away at sixteen."
# Two chunks, three claims on each side. Chunk 1 entails a reference claim, so it is the relevant
# one.
EXAMPLE = {
    "query_id": "geneva",
    "query": "Which lake is deeper?",
    "gt_answer": "Lake Geneva. Byron lived there. It is in Europe.",
    "response": "Lake Geneva is 310 metres deep. Shelley ran away. It floats.",
    "retrieved_context": [{"doc_id": "lake", "text": LAKE}, {"doc_id": "shelley", "text": SHELLEY}],
    "response_claims": [
        "Lake Geneva is 310 metres deep.",
        "Mary Shelley ran away at sixteen.",
        "The lake floats.",
    ],
    "gt_answer_claims": [
        "Lake Geneva is deeper.",
        ["Byron", "lived at", "the lake"],
        "The lake is in Europe.",
    ],
    "answer2response": [E, N, C],
    "response2answer": [E, N, N],
    "retrieved2response": [[E, N], [N, E], [C, N]],
    "retrieved2answer": [[E, N], [N, N], [E, N]],
}
# One of three claims right; two of three reference claims in chunk 1, one of which the response
# uses; the second response claim comes from the other chunk, the third from none.
BY_HAND = dict(
    zip(
        CLAIM_METRICS,
        (1 / 3, 1 / 3, 1 / 3, 2 / 3, 1 / 2, 1 / 2, 0, 1 / 3, 1 / 3, 0, 2 / 3),
        strict=True,
    )
)


NO_RESPONSE_CLAIMS = {"response_claims": [], "answer2response": [], "retrieved2response": []}
NO_CHUNKS = {"retrieved_context": [], "retrieved2response": [[]] * 3, "retrieved2answer": [[]] * 3}


def change(**changes):
    return {**EXAMPLE, **changes}


@pytest.fixture
def inspector():
    return ClaimInspector([EXAMPLE])


def cells(inspector):
    """Every cell of the matrix by its title: its class and its symbol."""
    drawn = re.findall(r"<td class='([\w-]+)' title='([^']+)'[^>]*>(.)</td>", inspector.page.value)
    return {title: (look, symbol) for look, title, symbol in drawn}


def test_the_metrics_are_those_worked_by_hand_beside_the_texts_and_counts(inspector):
    assert inspector.metrics == pytest.approx(BY_HAND)
    shown = shown_metrics(inspector)
    assert [*shown] == [*CLAIM_METRICS]
    assert {name: float(value) for name, value in shown.items()} == pytest.approx(BY_HAND, abs=5e-4)
    counts = "3 response claims, 3 reference claims, 2 chunks, 1 relevant chunks, 2 recalled claims"
    assert counts in inspector.page.value
    for name in ("query", "response", "gt_answer"):
        assert EXAMPLE[name] in inspector.page.value


def shown_metrics(inspector):
    """What the table says of every metric."""
    rows = re.findall(r'<th scope="row">([^<]+)</th><td [^>]+>([^<]+)</td>', inspector.page.value)
    return {name.replace(" ", "_"): value for name, value in rows}


def test_the_matrix_shows_every_label_by_symbol_colour_and_words(inspector):
    look = {E: ("rb-entailed", "✓"), N: ("rb-neutral", "–"), C: ("rb-contradicted", "✗")}
    expected = {}
    for side, other, answers, chunks in (
        ("response", "reference", "answer2response", "retrieved2response"),
        ("reference", "response", "response2answer", "retrieved2answer"),
    ):
        claims = zip(EXAMPLE[answers], EXAMPLE[chunks], strict=True)
        for number, (by_answer, by_chunk) in enumerate(claims, 1):
            places = zip((other, "chunk 1", "chunk 2"), (by_answer, *by_chunk), strict=True)
            for place, label in places:
                expected[f"{side} claim {number}, {place}: {label}"] = look[label]
    assert cells(inspector) == expected
    assert "2. Byron lived at the lake</th>" in inspector.page.value


def test_a_chunk_that_entails_a_reference_claim_is_called_relevant(inspector):
    assert re.findall("<th scope='col'>([^<]+)</th>", inspector.page.value) == [
        "Response claims (3)",
        "reference",
        "1 R",
        "2",
        "Reference claims (3)",
        "response",
        "1 R",
        "2",
    ]


def test_the_texts_of_the_chunks_fold_out_below_the_table(inspector):
    folded = re.findall(
        "<details><summary>([^<]+)</summary><div[^>]+>([^<]+)</div></details>",
        inspector.page.value,
    )
    assert folded == [("chunk 1 R (lake)", LAKE), ("chunk 2 (shelley)", SHELLEY)]


@pytest.mark.parametrize(
    ("changes", "undefined", "note"),
    [
        (
            {"response": ""} | NO_RESPONSE_CLAIMS,
            ("precision", "f1", *CLAIM_METRICS[6:]),
            "0 response claims, 3 reference claims, 2 chunks",
        ),
        (
            {"gt_answer_claims": [], "response2answer": [], "retrieved2answer": []},
            CLAIM_METRICS[1:8],
            "3 response claims, 0 reference claims",
        ),
        (NO_CHUNKS, ("context_utilization", "context_precision", *CLAIM_METRICS[6:]), "0 chunks"),
        ({"retrieved2answer": [[N, N]] * 3}, ("context_utilization",), "0 recalled claims"),
        ({"response2answer": None}, CLAIM_METRICS, "unread labels: reference in response"),
    ],
)
def test_an_undefined_metric_says_so_and_the_counts_say_why(changes, undefined, note):
    inspector = ClaimInspector([change(**changes)])
    values = inspector.metrics
    assert {name for name in values if math.isnan(values[name])} == {*undefined}
    shown = shown_metrics(inspector)
    assert {name for name in shown if shown[name] == "undefined"} == {*undefined}
    assert note in inspector.page.value


def test_results_without_claims_say_so():
    names = ("query_id", "query", "gt_answer", "response", "retrieved_context")
    shown = ClaimInspector([{name: EXAMPLE[name] for name in names}])
    assert shown.page.value.count("no claims: extract and check them first") == 2


def test_missing_labels_are_question_marks_and_never_a_number():
    whole = read_ragchecker({"results": [EXAMPLE]}).results[0]
    shown = ClaimInspector([replace(whole, response_in_chunks=((E, None), (N, E), (C, N)))])
    assert cells(shown)["response claim 1, chunk 2: no label"] == ("rb-unread", "?")
    assert all(math.isnan(value) for value in shown.metrics.values())
    assert "unread labels: response in chunks" in shown.page.value


def test_results_come_as_records_as_dicts_or_in_a_table_of_scores():
    dicts = [EXAMPLE, change(query_id="b")]
    results = read_ragchecker({"results": dicts})
    table = pd.DataFrame({"question_id": ["a", "b", "c"], "claim_labels": [None, *results.results]})
    for form in (results, list(results.results), dicts, table):
        assert [r.id for r in ClaimInspector(form).results] == ["geneva", "b"]
    for nothing in (RagResults(()), [], table[:1]):
        with pytest.raises(DataError, match="no results"):
            ClaimInspector(nothing)
    with pytest.raises(DataError, match=r"results\[0\]"):
        ClaimInspector([{"question": "?"}])


@pytest.fixture
def three():
    """Precision 1/3, undefined, 1; hallucination 1/3, undefined, 0."""
    best = {"answer2response": [E, E, E], "query": "Best?", "retrieved2response": [[E, E]] * 3}
    none = change(query_id="none", **NO_RESPONSE_CLAIMS)
    return ClaimInspector([change(query_id="best", **best), none, EXAMPLE])


def test_a_result_is_shown_by_its_id_and_says_which_of_how_many_it_is(three):
    assert (three.result.id, "result 1 of 3, id best" in three.page.value) == ("best", True)
    three.show("geneva")
    assert "result 3 of 3, id geneva" in three.page.value
    with pytest.raises(ConfigError, match="unknown result 'worst'"):
        three.show("worst")


@pytest.mark.parametrize("metric", ["precision", "hallucination", "faithfulness"])
def test_sorting_puts_the_worst_first_and_the_undefined_last(three, metric):
    three.order.value = metric
    assert [three.results[i].id for _, i in three.choice.options] == ["geneva", "best", "none"]
    assert three.result.id == "geneva"
    marks = [label.split(" ")[0] for label, _ in three.choice.options]
    assert marks == [*(f"{three._scores.loc[i, metric]:.3f}" for i in (2, 0)), "undefined"]
    three.order.value = "as given"
    assert [three.results[i].id for _, i in three.choice.options] == ["best", "none", "geneva"]


def test_another_result_leaves_nothing_of_the_one_before(three):
    three.show("none")
    assert [title for title in cells(three) if title.startswith("response claim")] == []
    three.show("geneva")
    assert len(cells(three)) == 18


def test_hostile_text_is_shown_and_not_run():
    evil = '<img src=x onerror="alert(1)"></div><script>alert(2)</script>'
    hostile = change(
        query=evil, response=evil, gt_answer=evil, query_id=evil,
        response_claims=[evil] * 3, gt_answer_claims=[evil] * 3,
        retrieved_context=[{"doc_id": evil, "text": evil + " lake"}, {"doc_id": "x", "text": evil}],
    )  # fmt: skip
    page = ClaimInspector([hostile]).page.value
    assert not re.search("<(img|script)", page)
    assert page.count("&lt;img") == 13


def test_chunks_without_ids_and_triples_are_shown():
    chunks = (RetrievedText(text="A lake."),)
    claims = (("a", "is", "lake"),)
    result = RagResult(1, "q", "a", "b", chunks, claims, ("b",), (N,), (N,), ((C,),), ((N,),))
    shown = ClaimInspector([result])
    assert "<summary>chunk 1</summary>" in shown.page.value
    assert "1. a is lake</th>" in shown.page.value
