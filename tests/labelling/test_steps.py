"""Claim extraction and checking through a loopback server: exact calls, mismatches, unscored items,
replay.
"""

import json
import socket
from collections import Counter
from dataclasses import replace

import pytest
from checks import refusals
from fake_ollama import FakeOllama, Fault
from label_replies import between, judge, numbered, reply, truth

from ragbench.data.ragchecker import (
    RagResult,
    RagResults,
    RetrievedText,
    from_ragchecker,
    to_ragchecker,
)
from ragbench.errors import ConfigError, DataError, ModelError
from ragbench.labelling.asking import _reply_schema
from ragbench.labelling.claims import (
    check_claims,
    extract_claims,
    ragchecker_calls,
    ragchecker_labels,
)
from ragbench.labelling.keypoints import keypoint_verdicts
from ragbench.labelling.statements import extract_statements
from ragbench.llm import Cassette
from ragbench.llm.models import BOUNDS
from ragbench.metrics.claims import claim_metrics_table
from ragbench.metrics.keypoints import keypoint_table

QUIET = {"progress": False, "retries": 0}


@pytest.fixture
def fake(fake):
    fake.reply = reply
    return fake


def chunks(*texts):
    return tuple(RetrievedText(text=text, doc_id=f"d{i}") for i, text in enumerate(texts))


A = RagResult(
    "a",
    "Q?",
    "sky is blue; sea is deep",
    "sky is blue; not sea is deep; cats do purr",
    chunks("today sky is blue indeed", "cats do purr and sea is deep", "nothing here"),
)
# The same question under another generator: same reference, same chunks, another response.
B = replace(A, id="b", response="sea is deep; dogs are not birds")


def test_each_different_text_is_taken_apart_once_in_one_call(fake):
    texts = ["x is one; y is two", "z is three", "x is one; y is two", " z is three\n", "", "  "]
    found = extract_claims(fake.model(), texts, **QUIET)
    assert found.labels == (("x is one", "y is two"), ("z is three",)) * 2 + ((), ())
    assert len(fake.calls) == found.report.calls == found.report.prompts == 2
    assert (found.report.items, found.report.settled, found.report.unscored) == (6, 2, 0)


def test_statements_see_the_question_and_equal_pairs_are_asked_once(fake):
    found = extract_statements(
        fake.model(), ["Why?", "How?", "Why?"], ["x is one; y is two"] * 3, **QUIET
    )
    assert found.labels == (("x is one", "y is two"),) * 3
    assert sorted(between(call.prompt, "Question:", "\n") for call in fake.calls) == [
        "How?",
        "Why?",
    ]


@pytest.mark.parametrize(
    "bad", ['{"claims": ["x", " "]}', "I would say it is fine.", '{"claims": "x"}', '{"claim": []}']
)
def test_an_unreadable_extraction_is_unscored_with_its_raw_reply(bad):
    with FakeOllama(
        reply=lambda body: bad if "odd" in body["messages"][0]["content"] else reply(body)
    ) as server:
        found = extract_claims(server.model(), ["x is one", "odd"], ids=["t1", "t2"], **QUIET)
        assert len(server.calls) == found.report.calls == 3  # one repair try
    assert found.labels == (("x is one",), None)
    (failure,) = found.report.failures
    assert (failure.id, failure.kind, failure.raw) == ("t2", "unusable", bad)
    assert found.report.unscored == 1


def test_the_extractor_and_the_checker_see_the_question(fake):
    texts = ["x is one; y is two"] * 3
    questions = ["Why?", "How?", "Why?"]
    found = extract_claims(fake.model(), texts, questions=questions, **QUIET)
    assert found.labels == (("x is one", "y is two"),) * 3
    assert sorted(between(call.prompt, "Question:\n", "\n") for call in fake.calls) == [
        "How?",
        "Why?",
    ]
    ragchecker_labels(fake.model(), [A], **QUIET)
    assert {between(call.prompt, "Question:\n", "\n") for call in fake.calls[2:]} == {A.question}


@pytest.mark.parametrize(
    "short", ["James Augustus Grant", "yes", "19 June 1964.", "The Feast of the Gods", "一八六七年"]
)
def test_a_short_answer_is_one_claim_made_of_question_and_answer(fake, short):
    found = extract_claims(fake.model(), [short], questions=["Who named it?"], **QUIET)
    claim = f'The answer to "Who named it?" is: {short.removesuffix(".")}.'
    assert found.labels == ((claim,),)
    assert fake.calls == []  # a model that sees a name alone invents claims about it
    assert found.report.settled == 1
    assert ragchecker_calls([replace(A, response=short, reference=short)])["claims"] == 0


@pytest.mark.parametrize(
    "text", ["x is one; y is two", "It is one. No.", "Yes, since the first one is much older"]
)
def test_a_sentence_is_taken_apart_and_a_text_without_a_question_too(fake, text):
    extract_claims(fake.model(), [text], questions=["Which?"], **QUIET)
    extract_claims(fake.model(), ["Jane Austen"], **QUIET)
    assert len(fake.calls) == 2
    assert between(fake.calls[1].prompt, "Question:\n", "\n") == "(none)"


def test_claims_of_one_prompt_stand_in_an_order_that_is_drawn_and_keep_their_labels(fake):
    judged = check_claims(fake.model(), [CLAIMS, CLAIMS[:1]], [TEXT, TEXT], None, **QUIET)
    assert judged.labels == (WANTED, WANTED[:1])
    (shown,) = (
        numbered(c.prompt, "claims to check:") for c in fake.calls if "7 claims" in c.prompt
    )
    assert sorted(shown) == sorted(CLAIMS)
    assert shown != CLAIMS
    alone = check_claims(fake.model(), [CLAIMS], [TEXT], **QUIET)
    assert alone.report.calls == len(CLAIMS)  # by default one claim a prompt
    assert alone.labels == judged.labels[:1]


CLAIMS = [
    "sky is blue",
    "not sea is deep",
    "cats do purr",
    "sea is deep",
    "not sky is blue",
    "dogs bark",
    "deep",
]
TEXT = "sky is blue and sea is deep"
WANTED = (
    "Entailment",
    "Contradiction",
    "Neutral",
    "Entailment",
    "Contradiction",
    "Neutral",
    "Entailment",
)


@pytest.mark.parametrize(("joint", "calls"), [(1, 7), (2, 4), (3, 3), (7, 1), (50, 1), (None, 1)])
def test_any_number_of_claims_per_prompt_gives_the_same_three_labels(fake, joint, calls):
    judged = check_claims(fake.model(), [CLAIMS], [TEXT], joint, **QUIET)
    assert judged.labels == (WANTED,)
    assert len(fake.calls) == judged.report.calls == calls
    assert judged.report.items == 7
    assert judged.report.mismatches == judged.report.rechecked == 0


def test_equal_claims_against_equal_texts_are_asked_once_and_other_lists_never_share_a_prompt(fake):
    judged = check_claims(
        fake.model(), [CLAIMS[:2], CLAIMS[:2], CLAIMS[2:3]], [TEXT, TEXT, TEXT], 10, **QUIET
    )
    assert judged.labels == (WANTED[:2], WANTED[:2], WANTED[2:3])
    assert [len(numbered(call.prompt, "claims to check:")) for call in fake.calls] in (
        [2, 1],
        [1, 2],
    )


def test_an_empty_text_entails_nothing_without_a_call_and_no_claims_need_none(fake):
    judged = check_claims(fake.model(), [CLAIMS[:2], [], None], [" \n", TEXT, TEXT], **QUIET)
    assert judged.labels == (("Neutral", "Neutral"), (), None)
    assert fake.calls == []
    assert (judged.report.items, judged.report.settled) == (2, 2)


def test_triples_are_checked_as_their_words_and_a_claim_stays_on_its_line(fake):
    claims = [("sky", "is", "blue"), "dogs\n2. sky is blue"]
    judged = check_claims(fake.model(), [claims], [TEXT], 2, **QUIET)
    assert judged.labels == (("Entailment", "Neutral"),)
    assert sorted(numbered(fake.calls[0].prompt, "claims to check:")) == [
        "dogs 2. sky is blue",
        "sky is blue",
    ]
    assert "There are 2 claims" in fake.calls[0].prompt


@pytest.mark.parametrize("off", [-2, -1, 1, 2])
def test_a_wrong_number_of_labels_is_a_mismatch_whose_claims_are_all_checked_singly(off):
    def miscounts(body):
        made = judge(body["messages"][0]["content"])["labels"]
        if len(made) == 4:
            # What is written is wrong as well, so that a label taken from it would show.
            made = ["Neutral"] * (4 + off)
        return json.dumps({"labels": made})

    with FakeOllama(reply=miscounts) as server:
        judged = check_claims(server.model(), [CLAIMS], [TEXT], 4, **QUIET)
        sizes = [
            (len(numbered(c.prompt, "claims to check:")), c.body["options"]["num_predict"])
            for c in server.calls
        ]
    assert judged.labels == (WANTED,)
    # A single label needs less room than several.
    assert Counter(sizes) == {
        (4, BOUNDS["text"]): 1,
        (3, BOUNDS["text"]): 1,
        (1, BOUNDS["label"]): 4,
    }
    report = judged.report
    assert (report.prompts, report.calls, report.mismatches, report.rechecked) == (6, 6, 1, 4)
    assert report.unscored == 0


def test_an_unreadable_joint_reply_is_no_mismatch_but_is_checked_singly_too():
    def talks(body):
        made = judge(body["messages"][0]["content"])["labels"]
        return json.dumps({"labels": made}) if len(made) == 1 else "All of them are fine."

    with FakeOllama(reply=talks) as server:
        judged = check_claims(server.model(), [CLAIMS], [TEXT], 7, **QUIET)
        # the joint prompt, its repair, seven singles
        assert len(server.calls) == judged.report.calls == 2 + 7
    assert judged.labels == (WANTED,)
    assert (judged.report.mismatches, judged.report.rechecked) == (0, 7)


def test_a_claim_that_stays_unreadable_is_none_and_never_neutral():
    def never_about_cats(body):
        prompt = body["messages"][0]["content"]
        return "Who knows?" if "cats" in prompt.rsplit("to check:", 1)[1] else reply(body)

    with FakeOllama(reply=never_about_cats) as server:
        judged = check_claims(server.model(), [CLAIMS[:4]], [TEXT], 4, ids=["q1"], **QUIET)
    assert judged.labels == ((*WANTED[:2], None, WANTED[3]),)
    (failure,) = judged.report.failures
    assert (failure.id, failure.kind, failure.raw) == ("q1 claim 3", "unusable", "Who knows?")
    assert (judged.report.unscored, judged.report.rechecked) == (1, 4)


def test_a_server_that_fails_leaves_claims_unscored_without_asking_for_each_again():
    with FakeOllama(reply=reply, fault=lambda prompt, before: Fault("500")) as server:
        judged = check_claims(server.model(), [CLAIMS], [TEXT], None, **QUIET)
        assert len(server.calls) == 1
    assert judged.labels == ((None,) * 7,)
    assert judged.report.unscored == len(judged.report.failures) == 7
    assert judged.report.rechecked == 0
    assert {f.kind for f in judged.report.failures} == {"server"}


def test_the_schema_leaves_the_number_open_for_joint_prompts_and_fixes_it_for_single_ones():
    many = _reply_schema(3, ("Yes", "No")).model_json_schema()["properties"]["labels"]
    assert (many["minItems"], many["maxItems"]) == (0, 6)
    one = _reply_schema(1, ("Yes", "No")).model_json_schema()["properties"]["labels"]
    assert (one["minItems"], one["maxItems"]) == (1, 1)


test_input_that_does_not_fit_is_named = refusals(
    (lambda: check_claims("ollama:x", [["a"], ["b"]], [TEXT]), DataError, "claims 2, references 1"),
    (lambda: check_claims("ollama:x", [["a"]], TEXT), DataError, "references is one text"),
    (lambda: check_claims("ollama:x", ["a claim"], [TEXT]), DataError, "claims of 0 is one text"),
    (lambda: check_claims("ollama:x", [["a"]], [TEXT], 0), "joint=0"),
    (lambda: check_claims("ollama:x", [["a"]], [TEXT], -1), "joint=-1"),
    (
        lambda: check_claims("ollama:x", [["a"]], [TEXT], prompt="steps_keypoints"),
        r"no field \{reference\}",
    ),
    (lambda: ragchecker_labels("ollama:x", [A, A]), DataError, "'a' belongs to several results"),
    (lambda: ragchecker_calls([A, A]), DataError, "'a' belongs to several results"),
)


def test_ragchecker_labels_are_those_worked_by_hand(fake):
    done = ragchecker_labels(fake.model(), [A], **QUIET)
    (row,) = done.results.results
    e = "Entailment"
    n = "Neutral"
    c = "Contradiction"
    assert row.response_claims == ("sky is blue", "not sea is deep", "cats do purr")
    assert row.reference_claims == ("sky is blue", "sea is deep")
    assert row.response_in_reference == (e, c, n)
    assert row.reference_in_response == (e, e)
    assert row.response_in_chunks == ((e, n, n), (n, c, n), (n, e, n))
    assert row.reference_in_chunks == ((e, n, n), (n, e, n))
    table = claim_metrics_table(done.scored.results)
    assert table.loc["a", ["precision", "recall", "faithfulness"]].tolist() == pytest.approx(
        [1 / 3, 1, 2 / 3]
    )
    assert done.unscored == ()


@pytest.mark.parametrize(("joint", "at_most", "made"), [(None, 8, 8), (1, 20, 17), (2, 12, 12)])
def test_the_calls_of_a_run_are_known_before_it(fake, joint, at_most, made):
    model = fake.model()
    done = ragchecker_labels(model, [A], joint=joint, **QUIET)
    # nothing is left to do
    assert ragchecker_calls(done.results, joint) == {"claims": 0, "claim check": 0}
    # With one claim per prompt, a claim of both sides is checked once against each of the three
    # chunks.
    assert len(fake.calls) == 2 + made
    response, reference = extract_claims(model, [A.response, A.reference], **QUIET).labels
    apart = replace(A, response_claims=response, reference_claims=reference)
    assert ragchecker_calls([apart], joint) == {"claims": 0, "claim check": at_most}
    guessed = ragchecker_calls([A], joint, claims_per_text=3)
    assert guessed == {"claims": 2, "claim check": 8 * -(-3 // (joint or 3))}


def test_a_second_generator_costs_only_what_its_own_response_needs(fake):
    model = fake.model()
    done = ragchecker_labels(model, [A, B], joint=None, **QUIET)
    # Texts: reference, two responses. Checks: each response's claims against the reference and
    # three chunks, the reference's claims against two responses, and against the three chunks once
    # for both.
    assert len(fake.calls) == 3 + 2 * 4 + 2 + 3
    assert ragchecker_calls([A, B], joint=None) == {"claims": 3, "claim check": 2 * 8}
    assert done.reports["claims"].calls == 3
    assert Counter(call.prompt for call in fake.calls).most_common(1)[0][1] == 1
    assert (
        done.results.results[0]
        == ragchecker_labels(model, [A], joint=None, **QUIET).results.results[0]
    )


def test_an_empty_response_and_no_chunks_have_labels_and_metrics(fake):
    empty = replace(A, id="e", response="")
    bare = replace(A, id="n", chunks=())
    done = ragchecker_labels(fake.model(), [empty, bare], joint=None, **QUIET)
    assert len(fake.calls) == 2 + 3 + 2
    first, second = done.results.results
    assert first.response_claims == first.response_in_reference == first.response_in_chunks == ()
    assert first.reference_in_response == ("Neutral", "Neutral")
    assert second.response_in_chunks == ((), (), ())
    table = claim_metrics_table(done.scored.results)
    assert table["recall"].tolist() == [0, 1]
    assert table["precision"].isna().tolist() == [True, False]


def test_claims_and_labels_that_are_there_are_kept_and_old_metrics_are_not(fake):
    model = fake.model()
    whole = ragchecker_labels(model, [A], joint=5, **QUIET).results
    count = len(fake.calls)
    row = replace(whole.results[0], metrics={"precision": 1.0})
    assert ragchecker_labels(
        model, RagResults((row,), {"overall": {}}), **QUIET
    ).results.metrics == {"overall": {}}
    assert len(fake.calls) == count
    undone = RagResults((replace(row, reference_in_chunks=None),), {"overall": {}})
    again = ragchecker_labels(model, undone, joint=5, **QUIET)
    assert len(fake.calls) == count + 3
    assert again.results.results == whole.results
    assert again.results.metrics is None


def test_an_unread_label_keeps_its_check_out_of_the_metrics_and_is_told():
    def shy(body):
        prompt = body["messages"][0]["content"]
        chunk = "Reference text:\ntoday" in prompt and "cats" in prompt.rsplit("to check:", 1)[1]
        return "Hm." if chunk else reply(body)

    with FakeOllama(reply=shy) as server:
        done = ragchecker_labels(server.model(), [A, B], **QUIET)
    assert done.unscored == ("a",)
    assert done.results.results[0].missing() == ("response_in_chunks",)
    e = "Entailment"
    n = "Neutral"
    c = "Contradiction"
    table = ((e, n, n), (n, c, n), (None, e, n))
    assert done.results.results[0].response_in_chunks == table
    assert [row.id for row in done.scored.results] == ["b"]
    assert [f.id for f in done.reports["claim check"].failures] == [
        "a response_in_chunks[0] claim 3"
    ]
    # RAGChecker's form and its metrics have no fourth label: the check stays out of its file
    first, second = from_ragchecker(json.loads(json.dumps(to_ragchecker(done.results)))).results
    assert first == replace(done.results.results[0], response_in_chunks=None)
    assert second == done.results.results[1]


def test_a_text_that_cannot_be_taken_apart_leaves_its_side_undone():
    def no_cats(body):
        prompt = body["messages"][0]["content"]
        return "Hm." if "take a text apart" in prompt and "cats" in prompt else reply(body)

    with FakeOllama(reply=no_cats) as server:
        done = ragchecker_labels(server.model(), [A], **QUIET)
    (row,) = done.results.results
    assert row.response_claims is None
    assert row.missing() == ("response_in_reference", "response_in_chunks")
    assert row.reference_in_response == ("Entailment", "Entailment")
    assert done.unscored == ("a",)
    assert done.reports["claims"].failures[0].id == "a response_claims"


class Words:
    """A checker that entails only what stands in the text."""

    def __init__(self, texts=None):
        self.texts = texts

    def check_many(self, claims, texts):
        texts = texts[: self.texts]
        return [[truth(claim, text) for text in texts] for claim in claims]


def test_a_checker_of_ones_own_needs_check_many_alone_and_labels_every_pair():
    known = replace(A, response_claims=("sky is blue",), reference_claims=())
    (row,) = ragchecker_labels(None, [known], checker=Words()).results.results
    assert row.response_in_reference == ("Entailment",)
    assert row.response_in_chunks == (("Entailment", "Neutral", "Neutral"),)
    assert row.reference_in_response == row.reference_in_chunks == ()
    with pytest.raises(ConfigError, match=r"shape \(1, 2\)(.|\n)*do not pad"):
        ragchecker_labels(None, [known], checker=Words(texts=2))
    with pytest.raises(ConfigError, match="no model that writes claims is named"):
        ragchecker_labels(None, [A], checker=Words())


def test_a_recorded_run_replays_without_a_server_mismatches_included(tmp_path, monkeypatch):
    def miscounts(body):
        made = judge(body["messages"][0]["content"])
        if len(made.get("labels", [])) == 3:
            made["labels"].pop()
        return json.dumps(made)

    path = tmp_path / "c.sqlite"
    with FakeOllama(reply=miscounts) as server:
        model = server.model()
        first = ragchecker_labels(model, [A, B], joint=5, cassette=path, **QUIET)
        count = len(server.calls)
        again = ragchecker_labels(model, [A, B], joint=5, cassette=path, **QUIET)
        assert len(server.calls) == count
    monkeypatch.setattr(socket.socket, "connect", lambda *a: pytest.fail("a socket was opened"))
    replayed = ragchecker_labels(model, [A, B], joint=5, cassette=Cassette(path, "replay"), **QUIET)
    assert replayed.results == again.results == first.results
    one = first.reports["claim check"]
    two = replayed.reports["claim check"]
    assert one.mismatches == two.mismatches == 4
    assert one.rechecked == two.rechecked == 12
    assert (one.cached, two.calls, two.cached) == (0, 0, one.prompts)
    with pytest.raises(ModelError, match="1 of"):
        extract_claims(model, ["never asked"], cassette=Cassette(path, "replay"), **QUIET)


def test_keypoint_verdicts_go_straight_into_the_metrics(fake, tmp_path):
    points = [["sky is blue", "not sea is deep", "cats do purr"], ["sky is blue"], []]
    responses = ["sky is blue; sea is deep", " \n", "x"]
    judged = keypoint_verdicts(
        fake.model(), ["Q1?", "Q2?", "Q3?"], responses, points, None, **QUIET
    )
    assert judged.labels == (("covered", "contradicted", "neither"), ("neither",), ())
    table = keypoint_table(judged.labels)
    assert table["completeness"].tolist()[:2] == pytest.approx([1 / 3, 0])
    assert len(fake.calls) == 1
    assert "Question: Q1?\n" in fake.calls[0].prompt
    own = tmp_path / "own.txt"
    own.write_text("{question} {response} {count} {keypoints}")
    keypoint_verdicts(fake.model(), ["Q1?"], responses[:1], points[:1], prompt=own, **QUIET)
    assert fake.calls[1].prompt.startswith("Q1? sky")
    own.write_text("In verse: {question} {passage}")
    extract_claims(fake.model(), ["x is one"], prompt=own, **QUIET)
    assert "In verse: (none) x is one" in [call.prompt for call in fake.calls]
