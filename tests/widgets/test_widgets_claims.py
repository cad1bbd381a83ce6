"""The claim inspector, driven from Python: what is shown of results worked out by hand."""

import json
import math
import random
import re
from dataclasses import replace

import pandas as pd
import pytest

from ragbench.data.ragchecker import (
    LABELS,
    RagResult,
    RagResults,
    RetrievedText,
    from_ragchecker,
    to_ragchecker,
)
from ragbench.errors import ConfigError, DataError
from ragbench.metrics.claims import METRICS
from ragbench.widgets import ClaimInspector
from ragbench.widgets.claims import _best_sentence

E, N, C = LABELS
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
    zip(METRICS, (1 / 3, 1 / 3, 1 / 3, 2 / 3, 1 / 2, 1 / 2, 0, 1 / 3, 1 / 3, 0, 2 / 3), strict=True)
)


def change(**changes):
    return {**EXAMPLE, **changes}


@pytest.fixture
def inspector():
    return ClaimInspector({"results": [EXAMPLE]})


def cells(inspector):
    """Every cell of the matrix by its title: its class and its symbol."""
    drawn = re.findall(
        r"<td class='([\w-]+)' title='([^']+)'[^>]*>(.)</td>", inspector.matrix.value
    )
    return {title: (look, symbol) for look, title, symbol in drawn}


def test_the_metrics_are_those_worked_by_hand_beside_the_texts_and_counts(inspector):
    assert inspector.metrics == pytest.approx(BY_HAND)
    rows = re.findall(r'<th scope="row">([^<]+)</th><td [^>]+>([^<]+)</td>', inspector.table.value)
    assert [name.replace(" ", "_") for name, _ in rows] == list(METRICS)
    assert {name.replace(" ", "_"): float(value) for name, value in rows} == pytest.approx(
        BY_HAND, abs=5e-4
    )
    counts = "3 response claims, 3 reference claims, 2 chunks, 1 relevant chunks, 2 recalled claims"
    assert counts in inspector.table.value
    assert all(
        EXAMPLE[name] in inspector.texts.value for name in ("query", "response", "gt_answer")
    )


def test_the_matrix_shows_every_label_by_symbol_colour_and_words(inspector):
    shown = cells(inspector)
    look = {E: ("rb-entailed", "✓"), N: ("rb-neutral", "–"), C: ("rb-contradicted", "✗")}
    for side, answer, other in (
        ("response", "answer2response", "reference"),
        ("reference", "response2answer", "response"),
    ):
        chunks = EXAMPLE["retrieved2response" if side == "response" else "retrieved2answer"]
        for i in range(3):
            assert (
                shown.pop(f"{side} claim {i + 1}, {other}: {EXAMPLE[answer][i]}")
                == look[EXAMPLE[answer][i]]
            )
            for j, label in enumerate(chunks[i], 1):
                assert shown.pop(f"{side} claim {i + 1}, chunk {j}: {label}") == look[label]
    assert shown == {}
    assert "2. Byron lived at the lake</th>" in inspector.matrix.value


def test_a_chunk_that_entails_a_reference_claim_is_called_relevant(inspector):
    heads = re.findall("<th scope='col'>([^<]+)</th>", inspector.matrix.value)
    assert heads == [
        "Response claims (3)",
        "reference",
        "1 R",
        "2",
        "Reference claims (3)",
        "response",
        "1 R",
        "2",
    ]


def test_a_claim_leads_to_the_first_chunk_that_entails_it(inspector):
    inspector.claims.value = ("response", 1)
    assert (inspector.side, inspector.claim, inspector.column) == ("response", 1, 2)
    assert "Entailed by chunk 2." in inspector.detail.value
    assert '<mark class="rb-mark-1">She ran away at sixteen.</mark>' in inspector.detail.value
    inspector.claims.value = ("response", 0)
    assert inspector.column == 1  # the other answer entails it too
    assert "Entailed by reference, chunk 1." in inspector.detail.value
    inspector.claims.value = ("response", 2)
    assert "No text entails it." in inspector.detail.value
    assert inspector.column == 1
    unfound = ClaimInspector([change(retrieved2response=[[N, N]] * 3)])
    assert (unfound.claim, unfound.column) == (0, 0)  # the other answer alone entails it
    nothing = {
        "retrieved_context": [],
        "retrieved2response": [[]] * 3,
        "retrieved2answer": [[]] * 3,
    }
    # no chunk to show
    assert ClaimInspector([change(**nothing, answer2response=[N] * 3)]).column == 0


def test_a_chosen_text_is_shown_with_the_checkers_label_and_marked_in_the_matrix(inspector):
    inspector.claims.value = ("reference", 2)
    inspector.columns.value = 1
    assert "<b>✓ Entailment</b> by chunk 1 (lake)" in inspector.detail.value
    inspector.columns.value = 2
    assert "<b>– Neutral</b> by chunk 2 (shelley)" in inspector.detail.value
    assert "<mark" not in inspector.detail.value
    assert "No sentence shares its words (at best 0% by weight)." in inspector.detail.value
    chosen = re.findall(r"aria-current='true'>([^<]+)<", inspector.matrix.value)
    assert chosen == ["3. The lake is in Europe.", "–"]
    inspector.select("reference", 0, 0)
    assert (inspector.claims.value, inspector.columns.value) == (("reference", 0), 0)
    assert (
        '<mark class="rb-mark-1">Lake Geneva is 310 metres deep.</mark>' in inspector.detail.value
    )
    assert "(67% by weight). A hint; the label is the checker" in inspector.detail.value


@pytest.mark.parametrize(
    ("text", "marked"),
    [
        ("It was hot in the end.", False),  # stop words of the claim: next to nothing
        ("It is a town on the Rhône. Lausanne is not.", True),
        ("The house is old.", False),
        ("A town.", True),  # one of three
    ],
)
def test_a_sentence_with_next_to_no_shared_words_is_not_marked(text, marked):
    claim = "Geneva is a town on the Rhône."
    share = _best_sentence(claim, text)[2]
    assert (share >= 0.2) is marked
    shown = one_cell(text, claim, N)
    assert ("<mark" in shown.detail.value) is marked
    assert (
        f"No sentence shares its words (at best {share:.0%} by weight)." in shown.detail.value
    ) is not marked


def one_cell(text, claim, label):
    """The inspector of a response's one claim beside one chunk without an id."""
    chunks = (RetrievedText(text=text),)
    shown = ClaimInspector(
        [RagResult(1, "q", "a", "b c", chunks, (claim,), ("b",), (N,), (N,), ((label,),), ((N,),))]
    )
    shown.select("response", 0, 1)
    return shown


@pytest.mark.parametrize(
    ("changes", "undefined", "note"),
    [
        (
            {
                "response": "",
                "response_claims": [],
                "answer2response": [],
                "retrieved2response": [],
            },
            ("precision", "f1", *METRICS[6:]),
            "0 response claims, 3 reference claims, 2 chunks",
        ),
        (
            {"gt_answer_claims": [], "response2answer": [], "retrieved2answer": []},
            METRICS[1:8],
            "3 response claims, 0 reference claims",
        ),
        (
            {
                "retrieved_context": [],
                "retrieved2response": [[], [], []],
                "retrieved2answer": [[], [], []],
            },
            ("context_utilization", "context_precision", *METRICS[6:]),
            "0 chunks",
        ),
        ({"retrieved2answer": [[N, N]] * 3}, ("context_utilization",), "0 recalled claims"),
        ({"response2answer": None}, METRICS, "reference in response not checked"),
    ],
)
def test_an_undefined_metric_says_so_and_the_counts_say_why(changes, undefined, note):
    shown = ClaimInspector([change(**changes)])
    assert {name for name, value in shown.metrics.items() if math.isnan(value)} == set(undefined)
    names = re.findall(r'<th scope="row">([^<]+)</th><td [^>]+>undefined</td>', shown.table.value)
    assert {name.replace(" ", "_") for name in names} == set(undefined)
    assert note in shown.table.value


def test_results_without_claims_say_so():
    bare = {
        k: EXAMPLE[k] for k in ("query_id", "query", "gt_answer", "response", "retrieved_context")
    }
    shown = ClaimInspector([bare])
    assert "no claims: extract and check them first" in shown.detail.value
    assert set(shown.rows("response")) == set()


def test_missing_labels_are_question_marks_and_never_a_number():
    whole = from_ragchecker({"results": [EXAMPLE]}).results[0]
    shown = ClaimInspector([replace(whole, response_in_chunks=((E, None), (N, E), (C, N)))])
    assert cells(shown)["response claim 1, chunk 2: no label"] == ("rb-unread", "?")
    assert all(math.isnan(value) for value in shown.metrics.values())
    assert "response in chunks has unread labels" in shown.table.value
    assert (
        "undefined"
        in ClaimInspector([replace(whole, response_in_reference=(E, None, C))]).table.value
    )


def test_results_come_as_records_dicts_or_a_list():
    results = from_ragchecker({"results": [EXAMPLE, change(query_id="b")]})
    forms = [
        results,
        list(results.results),
        to_ragchecker(results),
        [EXAMPLE, change(query_id="b")],
    ]
    forms.append(json.loads(json.dumps(to_ragchecker(results))))
    for form in forms:
        assert [r.id for r in ClaimInspector(form).results] == ["geneva", "b"]
    for nothing in (RagResults(()), [], {"results": []}):
        with pytest.raises(DataError, match="no results"):
            ClaimInspector(nothing)
    with pytest.raises(ConfigError, match="read_ragchecker first"):
        ClaimInspector("results.json")
    with pytest.raises(DataError, match="no field '"):
        ClaimInspector([{"question": "?"}])


@pytest.fixture
def three():
    """Precision 1/3, undefined, 1; hallucination 1/3, undefined, 0."""
    empty = {"response_claims": [], "answer2response": [], "retrieved2response": []}
    best = {"answer2response": [E, E, E], "query": "Best?", "retrieved2response": [[E, E]] * 3}
    return ClaimInspector(
        [change(query_id="best", **best), change(query_id="none", **empty), EXAMPLE]
    )


def test_next_and_previous_walk_through_the_results_and_come_round(three):
    seen = [three.result.id]
    for _ in range(3):
        three.next.click()
        seen.append(three.result.id)
    assert seen == ["best", "none", "geneva", "best"]
    three.previous.click()
    assert three.result.id == "geneva"
    assert "result 3 of 3" in three.texts.value
    three.show("best")
    assert "Best?" in three.texts.value
    with pytest.raises(ConfigError, match="unknown result 'worst'"):
        three.show("worst")


@pytest.mark.parametrize("metric", ["precision", "hallucination", "faithfulness", "as given"])
def test_sorting_puts_the_worst_first_and_the_undefined_last(three, metric):
    three.order.value = "f1"
    three.order.value = metric
    expected = ["best", "none", "geneva"] if metric == "as given" else ["geneva", "best", "none"]
    assert [three.results[i].id for _, i in three.choice.options] == expected
    assert three.result.id == expected[0]
    if metric == "precision":
        assert [label.split(" ")[0] for label, _ in three.choice.options] == [
            "0.333",
            "1.000",
            "undefined",
        ]
        three.next.click()
        assert three.result.id == "best"


def test_another_result_leaves_nothing_of_the_one_before(three):
    three.show("none")
    assert [title for title in cells(three) if title.startswith("response claim")] == []
    three.show("geneva")
    assert len(cells(three)) == 18


def test_a_table_of_scores_is_taken():
    whole = from_ragchecker({"results": [EXAMPLE]}).results[0]
    table = pd.DataFrame({"question_id": ["a", "b"], "claim_labels": [None, whole]})
    assert [r.id for r in ClaimInspector(table).results] == ["geneva"]
    with pytest.raises(DataError, match="no results"):
        ClaimInspector(table[:1])
    with pytest.raises(ConfigError, match="results is DataFrame"):
        ClaimInspector(table.drop(columns="claim_labels"))


def test_hostile_text_is_shown_and_not_run():
    evil = '<img src=x onerror="alert(1)"></div><script>alert(2)</script>'
    hostile = change(
        query=evil, response=evil, gt_answer=evil, query_id=evil,
        response_claims=[evil] * 3, gt_answer_claims=[evil] * 3,
        retrieved_context=[{"doc_id": evil, "text": evil + " lake"}, {"doc_id": "x", "text": evil}],
    )  # fmt: skip
    shown = ClaimInspector([hostile])
    for side in ("response", "reference"):
        for column in range(3):
            shown.select(side, 0, column)
            for part in (shown.detail, shown.texts, shown.table, shown.matrix):
                assert "<img" not in part.value
                assert "<script" not in part.value
    assert "&lt;img" in shown.detail.value


@pytest.mark.parametrize(
    "bad", [("response", 3, 0), ("response", 0, 3), ("answer", 0, 0), ("reference", -1, 0)]
)
def test_a_place_that_is_not_there_is_an_error(inspector, bad):
    with pytest.raises(ConfigError):
        inspector.select(*bad)


def test_the_best_sentence_has_the_greatest_weight_of_shared_stems():
    text = 'He said "no." The lake is deep!  The lakes of Geneva are the deepest.\nGeneva.'
    a, b, share = _best_sentence("Lake Geneva is deepest", text)
    assert text[a:b] == "The lakes of Geneva are the deepest."
    assert 0.5 < share < 1  # "is" is missing
    assert _best_sentence("Zebra", text) is None
    assert _best_sentence("Zebra", "") is None
    twice = "Geneva is here. Geneva is here."
    assert _best_sentence("Geneva", twice) == (0, 15, 1.0)
    # A sentence that also stands within an earlier one is marked where it is a sentence.
    assert _best_sentence("56", "It was 1956. 56. It ended.")[:2] == (13, 16)
    # A rare word outweighs several common ones.
    a, b, share = _best_sentence("It was in the Rhône", "It was in the end. Rhône.")
    assert "It was in the end. Rhône."[a:b] == "Rhône."


def test_the_marked_sentence_is_a_slice_of_the_text_whatever_the_text():
    rng = random.Random(1)
    parts = [
        "Lake. ",
        "Mr. ",
        "\n\n",
        "Geneva",
        " ",
        '"deep!" ',
        "2.5 ",
        "St. Paul. ",
        "…",
        "\t",
        "<b>",
        ") ",
    ]
    for _ in range(300):
        text = "".join(rng.choices(parts, k=12))
        found = _best_sentence("Geneva lake", text)
        if found:
            assert re.search("geneva|lake", text[found[0] : found[1]], re.IGNORECASE)
        else:
            assert not re.search(r"\b(geneva|lake)\b", text.lower())


def test_chunks_without_ids_and_triples_are_shown():
    shown = one_cell("A lake.", ("a", "is", "lake"), C)
    assert "<b>✗ Contradiction</b> by chunk 1</p>" in shown.detail.value
    assert "a is lake" in shown.detail.value
