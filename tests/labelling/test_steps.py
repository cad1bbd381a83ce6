"""Claim extraction and checking through a loopback server: exact calls, unscored items, replay."""

import json
import socket
from collections import Counter
from dataclasses import replace

import pytest
from checks import refusals
from fake_ollama import FakeOllama, Fault
from label_replies import between, numbered, reply, truth

from ragbench.data.ragchecker import (
    RagResult,
    RagResults,
    RetrievedText,
    read_ragchecker,
)
from ragbench.errors import ConfigError, DataError, ModelError
from ragbench.labelling.claims import (
    check_claims,
    extract_claims,
    ragchecker_calls,
    ragchecker_labels,
)
from ragbench.labelling.keypoints import keypoint_verdicts
from ragbench.labelling.statements import ModelRagas
from ragbench.llm import Cassette
from ragbench.llm.models import BOUNDS
from ragbench.metrics.claims import claim_metrics_table
from ragbench.metrics.keypoints import keypoint_metrics

QUIET = {"progress": False, "retries": 0}
E = "Entailment"
N = "Neutral"
C = "Contradiction"


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
CLAIMS = [
    "sky is blue",
    "not sea is deep",
    "cats do purr",
    ("sea", "is", "deep"),
    "dogs\n2. sky is blue",
]
TEXT = "sky is blue and sea is deep"
WANTED = (E, C, N, E, N)


def calls_of(fake, about="Question:", end="\n\n"):
    return [between(call.prompt, about, end) for call in fake.calls]


def saying(words, where=lambda prompt: True):
    """A server whose reply is ``words`` to prompts of which ``where`` is true."""

    def odd(body):
        return words if where(body["messages"][0]["content"]) else reply(body)

    return FakeOllama(reply=odd)


def test_each_different_text_is_taken_apart_once_in_one_call(fake):
    texts = ["x is one; y is two", "z is three", "x is one; y is two", " z is three\n", "", "  "]
    extracted = extract_claims(fake.model(), texts, **QUIET)
    assert extracted == [("x is one", "y is two"), ("z is three",)] * 2 + [(), ()]
    assert len(fake.calls) == 2


def _claims(model, questions, texts):
    return extract_claims(model, texts, questions, **QUIET)


def _statements(model, questions, texts):
    return ModelRagas(model, **QUIET).statements(questions, texts)


@pytest.mark.parametrize("extract", [_claims, _statements])
def test_the_question_is_seen_and_equal_pairs_are_asked_once(fake, extract):
    extracted = extract(fake.model(), ["Why?", "How?", "Why?"], ["x is one; y is two"] * 3)
    assert extracted == [("x is one", "y is two")] * 3
    assert sorted(calls_of(fake)) == ["How?", "Why?"]


@pytest.mark.parametrize(
    "bad", ['{"claims": ["x", " "]}', "I would say it is fine.", '{"claims": "x"}', '{"claim": []}']
)
def test_an_unreadable_extraction_is_none_and_logged(bad, caplog):
    with saying(bad, lambda prompt: "odd" in prompt) as server:
        extracted = extract_claims(server.model(), ["x is one", "odd"], ids=["t1", "t2"], **QUIET)
        assert len(server.calls) == 3  # one repair try
    assert extracted == [("x is one",), None]
    assert "claims: 1 of 2 prompts failed (1 unusable). First (t2)" in caplog.text


@pytest.mark.parametrize(("ids", "first"), [(["t1", "t2"], "t1"), (None, "0")])
def test_a_prompt_of_several_examples_has_the_name_or_number_of_the_first(caplog, ids, first):
    with saying("Hm.") as server:
        extract_claims(server.model(), ["odd", "odd"], ids=ids, **QUIET)
    assert f"claims: 1 of 1 prompts failed (1 unusable). First ({first})" in caplog.text


@pytest.mark.parametrize(
    "short",
    ["James Augustus Grant", "yes", "19 June 1964.", "The Feast of the Gods", "一八六七年。"],
)
def test_a_short_answer_is_one_claim_made_of_question_and_answer(fake, short):
    extracted = extract_claims(fake.model(), [short], questions=["Who named it?"], **QUIET)
    claim = f'The answer to "Who named it?" is: {short.rstrip(".。")}.'
    assert extracted == [(claim,)]
    assert fake.calls == []  # a model that sees a name alone invents claims about it
    assert ragchecker_calls([replace(A, response=short, reference=short)])["claims"] == 0


@pytest.mark.parametrize(
    "text",
    [
        "x is one; y is two",
        "It is one. No.",
        "Yes, since the first one is much older",
        "北京是中国的首都。上海是最大的城市。",
        "真的吗？是的！",
        "水車小屋は川のそばにある。町で最も古い。",
        "これは本です．あれはペンです．",
        "यह एक है। वह दो है।",
        "یہ ایک ہے۔ وہ دو",
    ],
)
def test_a_sentence_is_taken_apart_and_a_text_without_a_question_too(fake, text):
    extract_claims(fake.model(), [text], questions=["Which?"], **QUIET)
    extract_claims(fake.model(), ["Jane Austen"], **QUIET)
    assert len(fake.calls) == 2
    assert between(fake.calls[1].prompt, "Question:\n", "\n") == "(none)"


def test_claims_are_checked_one_by_one_triples_as_their_words_each_on_its_line(fake):
    judged = check_claims(fake.model(), [CLAIMS, CLAIMS[:2], [], None], [TEXT] * 4, **QUIET)
    assert judged == [WANTED, WANTED[:2], (), None]
    assert len(fake.calls) == len(CLAIMS)  # equal claims against equal texts are asked once
    shown = [claim for call in fake.calls for claim in numbered(call.prompt, "claims to check:")]
    assert sorted(shown) == sorted([*CLAIMS[:3], "sea is deep", "dogs 2. sky is blue"])
    assert {call.body["options"]["num_predict"] for call in fake.calls} == {BOUNDS["label"]}


def joint_reply(*rows):
    """Reply with these numbers and labels to a prompt of several claims, else as a perfect model."""

    def answer(body):
        prompt = body["messages"][0]["content"]
        if "claims to check" in prompt and "There are 1 claims" not in prompt:
            labels = [{"number": number, "label": label} for number, label in rows]
            return json.dumps({"labels": labels})
        return reply(body)

    return answer


@pytest.mark.parametrize(
    ("rows", "alone"),
    [
        ([(1, E), (2, N), (3, N)], []),
        ([(3, N), (1, E), (2, N)], []),  # in another order
        ([(1, E), (3, N)], ["c2"]),  # one is missing
        ([(1, E), (2, E), (2, N), (3, N)], ["c2"]),  # one is doubled
        ([(1, E), (2, N), (3, N), (4, E)], []),  # one that there is not
        ([], ["c1", "c2", "c3"]),
    ],
)
def test_a_joint_check_asks_alone_what_is_missing_or_doubled(fake, rows, alone):
    fake.reply = joint_reply(*rows)
    claims = [("c1", "c2", "c3"), ("c1",), None, ("c1", "c2")]
    texts = ["c1 is here", "c1 is here", "x", " "]
    labels = check_claims(fake.model(), claims, texts, joint=True, **QUIET)
    assert labels == [(E, N, N), (E,), None, (N, N)]
    prompts = [call.prompt for call in fake.calls]
    assert sum("There are 3 claims" in prompt for prompt in prompts) == 1
    one = [
        numbered(prompt, "claims to check:")[0] for prompt in prompts if "are 1 claims" in prompt
    ]
    assert sorted(one) == sorted({"c1", *alone})  # the second list has a single claim


def test_a_joint_run_plans_and_asks_a_call_a_text(fake):
    claims = {"response_claims": ("c1", "c2"), "reference_claims": ("c1", "c3", "c4")}
    result = RagResult("r", "Q?", "c1; c3; c4", "c1; c2", chunks("c1", "c9"), **claims)
    planned = ragchecker_calls([result]), ragchecker_calls([result], joint=True)
    assert [calls["claim check"] for calls in planned] == [
        2 + 3 + 4 + 6 - 2,
        2 + 4,
    ]  # c1 is of both
    fake.reply = joint_reply((1, E), (2, N), (3, N))
    (labelled,) = ragchecker_labels(fake.model(), [result], joint=True, **QUIET)
    assert labelled.response_in_chunks == ((E, E), (N, N))
    assert len(fake.calls) <= 6


def test_an_empty_text_entails_nothing_without_a_call(fake):
    judged = check_claims(fake.model(), [CLAIMS[:2]], [" \n"], **QUIET)
    assert judged == [(N, N)]
    assert fake.calls == []


def test_a_claim_that_stays_unreadable_is_none_and_never_neutral(caplog):
    with saying("Who knows?", lambda prompt: "cats" in prompt.rsplit("to check:", 1)[1]) as server:
        judged = check_claims(server.model(), [CLAIMS[:4]], [TEXT], ids=["q1"], **QUIET)
    assert judged == [(*WANTED[:2], None, WANTED[3])]
    assert "First (q1 claim 3)" in caplog.text
    with FakeOllama(reply=reply, fault=lambda prompt, before: Fault("500")) as server:
        judged = check_claims(server.model(), [CLAIMS], [TEXT], **QUIET)
    assert judged == [(None,) * 5]


test_input_that_does_not_fit_is_named = refusals(
    (lambda: check_claims("ollama:x", [["a"], ["b"]], [TEXT]), DataError, "claims 2, references 1"),
    (lambda: check_claims("ollama:x", [["a"]], TEXT), DataError, "references is one text"),
    (lambda: check_claims("ollama:x", ["a claim"], [TEXT]), DataError, "claims of 0 is one text"),
    (
        lambda: check_claims("ollama:x", [["a"]], [TEXT], prompt="steps_keypoints"),
        r"no field \{reference\}",
    ),
    (lambda: ragchecker_labels("ollama:x", [A, A]), DataError, "'a' belongs to several results"),
    (lambda: ragchecker_calls([A, A]), DataError, "'a' belongs to several results"),
    (lambda: ragchecker_labels("ollama:x", RagResults((A,))), DataError, "results is RagResults"),
)


def test_ragchecker_labels_are_those_worked_by_hand_in_as_many_calls_as_planned(fake):
    model = fake.model()
    done = ragchecker_labels(model, [A], **QUIET)
    (row,) = done
    assert row.response_claims == ("sky is blue", "not sea is deep", "cats do purr")
    assert row.reference_claims == ("sky is blue", "sea is deep")
    assert row.response_in_reference == (E, C, N)
    assert row.reference_in_response == (E, E)
    assert row.response_in_chunks == ((E, N, N), (N, C, N), (N, E, N))
    assert row.reference_in_chunks == ((E, N, N), (N, E, N))
    table = claim_metrics_table(done)
    numbers = table.loc["a", ["precision", "recall", "faithfulness"]].tolist()
    assert numbers == pytest.approx([1 / 3, 1, 2 / 3])
    # a claim of both sides is checked once against each of the three chunks
    assert len(fake.calls) == 2 + 17
    assert {*calls_of(fake, "Question:\n", "\n")} == {A.question}
    assert ragchecker_calls(done) == {"claims": 0, "claim check": 0}
    response, reference = extract_claims(model, [A.response, A.reference], **QUIET)
    apart = replace(A, response_claims=response, reference_claims=reference)
    assert ragchecker_calls([apart]) == {"claims": 0, "claim check": 17}
    assert ragchecker_calls([A, B]) == {"claims": 3, "claim check": 26}


def test_a_second_generator_costs_only_what_its_own_response_needs(fake):
    model = fake.model()
    done = ragchecker_labels(model, [A, B], **QUIET)
    assert Counter(call.prompt for call in fake.calls).most_common(1)[0][1] == 1
    # B: its response; its two claims against the reference, one of them new to the three chunks,
    # the reference's two against the response
    assert len(fake.calls) == (2 + 17) + 1 + 2 + 3 + 2
    assert done[:1] == ragchecker_labels(model, [A], **QUIET)


def test_an_empty_response_and_no_chunks_have_labels_and_metrics(fake):
    empty = replace(A, id="e", response="")
    bare = replace(A, id="n", chunks=())
    first, second = done = ragchecker_labels(fake.model(), [empty, bare], **QUIET)
    assert first.response_claims == first.response_in_reference == first.response_in_chunks == ()
    assert first.reference_in_response == (N, N)
    assert second.response_in_chunks == ((), (), ())
    table = claim_metrics_table(done)
    assert table["recall"].tolist() == [0, 1]
    assert table["precision"].isna().tolist() == [True, False]


def test_a_plan_counts_no_check_against_an_empty_text_since_none_is_made(fake):
    known = {"response": " ", "response_claims": (), "reference_claims": ("sky is blue",)}
    row = replace(A, **known, chunks=chunks("today sky is blue", "\n"))
    assert ragchecker_calls([row]) == {"claims": 0, "claim check": 1}
    ragchecker_labels(fake.model(), [row], **QUIET)
    assert len(fake.calls) == 1


def test_claims_and_labels_that_are_there_are_kept_and_old_metrics_are_not(fake):
    model = fake.model()
    (whole,) = ragchecker_labels(model, [A], **QUIET)
    fake.calls.clear()
    row = replace(whole, metrics={"precision": 1.0})
    assert ragchecker_labels(model, [row], **QUIET) == [row]
    assert fake.calls == []
    assert ragchecker_labels(model, [replace(row, reference_in_chunks=None)], **QUIET) == [whole]
    assert len(fake.calls) == 6


def test_an_unread_label_keeps_its_check_out_of_the_metrics_and_is_told():
    def of_the_first_chunk(prompt):
        return "Reference text:\ntoday" in prompt and "cats" in prompt.rsplit("to check:", 1)[1]

    with saying("Hm.", of_the_first_chunk) as server:
        first, second = done = ragchecker_labels(server.model(), [A, B], **QUIET)
    assert (first.missing(), second.missing()) == (("response_in_chunks",), ())
    assert first.response_in_chunks == ((E, N, N), (N, C, N), (None, E, N))
    # RAGChecker's form and its metrics have no fourth label: the check stays out of its file
    written = json.loads(json.dumps(RagResults(tuple(done)).to_dict()))
    assert read_ragchecker(written).results == (replace(first, response_in_chunks=None), second)


def test_a_text_that_cannot_be_taken_apart_leaves_its_side_undone():
    def about_cats(prompt):
        return "take a text apart" in prompt and "cats" in prompt

    with saying("Hm.", about_cats) as server:
        (row,) = ragchecker_labels(server.model(), [A], **QUIET)
    assert row.response_claims is None
    assert row.missing() == ("response_in_reference", "response_in_chunks")
    assert row.reference_in_response == (E, E)


class Words:
    """A checker that entails only what stands in the text."""

    def __init__(self, texts=None):
        self.texts = texts
        self.calls = 0

    def check_many(self, claims, texts):
        self.calls += 1
        return [[truth(claim, text) for text in texts[: self.texts]] for claim in claims]


def test_a_checker_of_ones_own_needs_check_many_alone_and_labels_every_pair_once():
    known = replace(A, response_claims=("sky is blue",), reference_claims=())
    words = Words()
    _, row = ragchecker_labels(None, [known, replace(known, id="b")], checker=words)
    assert row.response_in_reference == (E,)
    assert row.response_in_chunks == ((E, N, N),)
    assert row.reference_in_response == row.reference_in_chunks == ()
    assert words.calls == 1
    with pytest.raises(ConfigError, match=r"shape \(1, 2\)(.|\n)*do not pad"):
        ragchecker_labels(None, [known], checker=Words(texts=2))
    with pytest.raises(ConfigError, match="no model that writes claims is named"):
        ragchecker_labels(None, [A], checker=Words())


def test_a_recorded_run_replays_without_a_server(fake, tmp_path, monkeypatch):
    path = tmp_path / "c.sqlite"
    model = fake.model()
    first = ragchecker_labels(model, [A, B], cassette=path, **QUIET)
    monkeypatch.setattr(socket.socket, "connect", lambda *a: pytest.fail("a socket was opened"))
    tape = Cassette(path, "replay")
    assert ragchecker_labels(model, [A, B], cassette=tape, **QUIET) == first
    with pytest.raises(ModelError, match="1 of"):
        extract_claims(model, ["never asked"], cassette=tape, **QUIET)


def test_keypoint_verdicts_go_straight_into_the_metrics(fake, tmp_path):
    points = [["sky is blue", "not sea is deep", "cats do purr"], ["sky is blue"], []]
    responses = ["sky is blue; sea is deep", " \n", "x"]
    judged = keypoint_verdicts(fake.model(), ["Q1?", "Q2?", "Q3?"], responses, points, **QUIET)
    assert judged == [("covered", "contradicted", "neither"), ("neither",), ()]
    shares = [keypoint_metrics(labels)["completeness"] for labels in judged]
    assert shares[:2] == pytest.approx([1 / 3, 0])
    assert len(fake.calls) == 3
    assert "Question: Q1?\n" in fake.calls[0].prompt
    own = tmp_path / "own.txt"
    own.write_text("{question} {response} {count} {keypoints}")
    keypoint_verdicts(fake.model(), ["Q1?"], responses[:1], points[:1], prompt=own, **QUIET)
    assert fake.calls[-1].prompt.startswith("Q1? sky")
