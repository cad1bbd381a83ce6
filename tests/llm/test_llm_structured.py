"""Structured replies: what is accepted, what gets its one repair try, and what ends as a typed
failure.
"""

from __future__ import annotations

import itertools
import json
import re
from typing import Literal

import pytest
from fake_ollama import FakeOllama, Fault
from hypothesis import example, given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage
from pydantic import BaseModel, ConfigDict

from ragbench.llm import ask, label_schema
from ragbench.llm.endpoints import _received
from ragbench.llm.structured import _json_values, read_reply, without_thinking


class Verdict(BaseModel):
    model_config = ConfigDict(extra="forbid")
    label: Literal["covered", "contradicted", "neither"]
    certainty: int = 0


GOOD = '{"label": "covered", "certainty": 3}'
COVERED = Verdict(label="covered", certainty=3)


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        f"  \n{GOOD}\n",
        f"```json\n{GOOD}\n```",
        f"```\n{GOOD}\n```",
        f"Sure! Here is my verdict:\n{GOOD}\nI hope that helps.",
        f'<think>The point {{is}} there, so "covered". {{"label": "neither"}}</think>\n{GOOD}',
        f"first I compare ...</think>{GOOD}",
        f"The set {{a, b}} is meant. {GOOD}",
        f"{GOOD}\n\nOnce more: {GOOD}",
        '{"certainty": 3, "label": "covered"}',
        '{"label": "covered", "certainty": 3.0}',  # a whole number
    ],
)
def test_one_json_value_counts_whatever_is_wrapped_around_it(text):
    verdict, _, problem = read_reply(text, Verdict)
    assert problem == ""
    assert verdict == COVERED


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("covered", "no complete JSON value"),
        ("", "no complete JSON value"),
        ('{"label": "covered", "certainty": 3', "Invalid JSON: EOF"),
        ('Here it is: {"label": "cov', "no complete JSON value"),
        ('{"reason": {"label": "neither"}, "label": "cov', "Invalid JSON: EOF"),
        ('{"label": "covered", "certainty": "3"}', "certainty: Input should be a valid integer"),
        ('{"label": "covered", "certainty": 3.5}', "certainty: Input should be a valid integer"),
        ('{"label": "Covered"}', "label: Input should be 'covered', 'contradicted' or 'neither'"),
        ('{"label": "covered", "why": "x"}', "why: Extra inputs are not permitted"),
        ("{}", "label: Field required"),
        ('[{"label": "covered"}]', "the JSON: Input should be an object"),
        ('{"label": "covered"} or rather {"label": "neither"}', "2 different JSON values"),
        (f"<think>hm {GOOD}", "thinking part was not finished"),
        ("[" * 100_000, "no complete JSON value|Invalid JSON"),
    ],
)
def test_anything_else_is_named_and_never_guessed(text, words):
    verdict, found, problem = read_reply(text, Verdict)
    assert verdict is None
    assert found == ""
    assert re.search(words, problem), problem


def test_no_value_is_taken_from_inside_a_value_that_breaks_off():
    assert _json_values('x {"a": [1, 2], "b": {"label": "covered"}') == []
    assert _json_values('[1, 2] and {"a": 3}') == ["[1, 2]", '{"a": 3}']


def test_brackets_inside_a_value_are_no_openings_that_count():
    many = json.dumps([[n] for n in range(300)])
    assert _json_values(f"{many} or [1]") == [many, "[1]"]


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=60), st.text(max_size=60).filter(lambda s: not set(s) & set("[{")))
@example("<think>", "</think>")
def test_reading_never_raises_and_never_invents(before, after):
    verdict, found, problem = read_reply(before + GOOD + after, Verdict)
    assert (verdict is None) == bool(problem)
    if verdict is not None:
        assert found in before + GOOD + after
        assert json.loads(found)["label"] == verdict.label


@settings(max_examples=100, deadline=None)
@given(st.integers(min_value=0, max_value=len(GOOD) - 1))
def test_no_cut_of_a_good_reply_is_accepted(length):
    assert read_reply(GOOD[:length], Verdict)[0] is None


GPT_OSS = "<|channel|>analysis<|message|>{draft}<|end|><|start|>assistant"
DRAFTS = [
    "<think>{draft}</think>\n",
    "[THINK]{draft}[/THINK]",
    GPT_OSS + "<|channel|>final<|message|>",
    "{draft} or so</think>",
    "<think>hm</think>\n<think>{draft}</think>",
    "Let me see. <think>{draft}</think> Then ",
]
OTHER = '{"label": "neither", "certainty": 0}'


@pytest.mark.parametrize("form", DRAFTS)
def test_a_draft_is_never_a_verdict_wherever_it_stands(form):
    draft = form.replace("{draft}", OTHER)
    assert read_reply(draft + GOOD, Verdict)[0] == COVERED
    assert read_reply(draft + "as I said", Verdict)[0] is None
    for mark in ("</think>", "[/THINK]", "<|channel|>final<|message|>"):
        draft = draft.replace(mark, "")
    if "think" in draft.lower() or "analysis" in draft:  # begun, and not finished
        assert read_reply(draft, Verdict)[0] is None


@pytest.mark.parametrize(
    "text",
    [f"{GOOD} <think>hm {OTHER}</think>", f"<think>a</think>{GOOD}<think>{OTHER}</think> so."],
)
def test_what_stands_before_a_closed_draft_counts(text):
    assert read_reply(text, Verdict)[0] == COVERED
    verdicts = f"{GOOD} <think>hm</think> {OTHER}"
    assert read_reply(verdicts, Verdict)[2] == "2 different JSON values in it fit the schema"


@pytest.mark.parametrize("form", DRAFTS[:5])
def test_thinking_is_taken_off_a_plain_answer_and_kept_in_raw(form):
    text = form.replace("{draft}", "Paris or Lyon?") + "Paris"
    reply, _ = talk(text, schema=None)
    assert (reply.text, reply.raw) == ("Paris", text)
    assert without_thinking("<think>endless") is None


def talk(*script, schema=Verdict, retries=0, fault=None, **options):
    """Ask with scripted replies (the last one is repeated); return the reply and the calls."""
    replies = itertools.chain(script, itertools.repeat(script[-1]))
    with FakeOllama(reply=lambda body: next(replies), fault=fault) as fake:
        model = fake.model(**options)
        (reply,) = ask(model, ["p"], schema=schema, retries=retries, backoff_s=0.01)
        return reply, fake.calls


def test_what_an_openai_like_server_calls_reasoning_is_the_thinking():
    message = AIMessage("Yes.", additional_kwargs={"reasoning_content": "hm"})
    assert (_received(message).text, _received(message).thinking) == ("Yes.", "hm")


def test_the_schema_goes_to_the_server_as_json_schema():
    reply, calls = talk(GOOD)
    assert calls[0].body["format"] == Verdict.model_json_schema()
    assert reply.parsed == COVERED
    assert (reply.ok, reply.text, reply.repairs, reply.usage.calls) == (True, GOOD, 0, 1)


class Explained(BaseModel):
    why: str
    verdict: Literal["yes", "no"]


def test_fields_of_a_schema_are_sent_in_their_order_since_a_grammar_keeps_to_it():
    _, (call,) = talk('{"why": "w", "verdict": "yes"}', schema=Explained)
    assert list(call.body["format"]["properties"]) == ["why", "verdict"]


@pytest.mark.parametrize("bad", ["I say covered", '{"label": "covered', '{"label": "maybe"}'])
@pytest.mark.parametrize("then", [GOOD, "still none"])
def test_a_bad_reply_is_repaired_once_and_that_is_counted(bad, then):
    reply, (first, second) = talk(bad, then, retries=3)
    assert (reply.repairs, reply.attempts, reply.usage.calls) == (1, 2, 2)
    *before, repair = second.body["messages"]
    assert before == [*first.body["messages"], {"role": "assistant", "content": bad}]
    assert "JSON schema" in repair["content"]
    assert second.body["format"] == first.body["format"]
    assert reply.ok == (then == GOOD)
    if not reply.ok:
        assert reply.error.kind == "unusable"
        assert "no complete JSON value" in str(reply.error)
        assert reply.raw == reply.text == "still none"


@pytest.mark.parametrize(
    "text",
    [
        "{} is my verdict, as it wrote </think>, then no more",
        "<think>hm</think>{}, for it says `</think>` itself",
        "{}: it holds '</think>', which is odd",
        "It holds (</think>) and [/THINK]. {}",
        "hm</think>{} since </think>; stands there",
    ],
)
def test_a_tag_that_is_only_named_takes_no_verdict_away(text):
    assert read_reply(text.format(GOOD), Verdict)[1] == GOOD


def test_nothing_but_thinking_is_no_answer_and_not_repaired():
    reply, calls = talk(f"<think>{GOOD}")
    assert (reply.error.kind, len(calls)) == ("unusable", 1)
    assert "nothing but thinking" in str(reply.error)


@pytest.mark.parametrize("after", ["good", "cut again"])
def test_a_truncated_json_reply_gets_the_repair_try_and_is_never_closed_by_us(after):
    def fault(prompt, before):
        return Fault("truncated") if before == 0 or after == "cut again" else None

    reply, calls = talk(GOOD, fault=fault, num_predict=77)
    assert len(calls) == 2
    if after == "good":
        assert (reply.ok, reply.repairs) == (True, 1)
    else:
        assert reply.error.kind == "truncated"
        assert "num_predict=77" in str(reply.error)
        assert reply.raw in GOOD


def test_a_whole_json_value_with_white_space_up_to_the_limit_is_the_value():
    reply, _ = talk(GOOD + " \n" * 9, fault=lambda p, n: Fault("finish", "length"))
    assert (reply.parsed, reply.repairs) == (COVERED, 0)


class Reasoned(BaseModel):
    label: str
    reason: str


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("HTML has no tag <think>, and no </b>.", None),
        ("Write <think> and </think> around it.", None),
        ("a</think>b<think>c</think>d", "b<think>c</think>d"),  # at the beginning only
        ("Half is red </think>, then half is blue.", None),
    ],
)
def test_a_think_tag_that_is_only_named_is_part_of_the_answer(text, answer):
    assert without_thinking(text) == (answer or text)
    verdict = json.dumps({"label": "covered", "reason": text})
    assert read_reply(verdict, Reasoned)[0].reason == text


@pytest.mark.parametrize("count", [2, 4])
def test_too_few_or_too_many_labels_are_not_padded_or_cut(count):
    schema = label_schema(3, ("yes", "no"))
    wrong = json.dumps({"labels": ["yes"] * count})
    right = '{"labels": ["yes", "no", "yes"]}'
    reply, _ = talk(wrong, right, schema=schema)
    assert (reply.ok, reply.repairs, reply.parsed.labels) == (True, 1, ["yes", "no", "yes"])
    reply, _ = talk(wrong, schema=schema)
    assert reply.error.kind == "unusable"
    assert "3 items" in str(reply.error)
    assert reply.raw == wrong


def test_label_schema_tells_the_server_how_many():
    labels = label_schema(3, ("yes", "no")).model_json_schema()["properties"]["labels"]
    assert labels["minItems"] == labels["maxItems"] == 3
    assert label_schema(3, ("yes", "no")) is label_schema(3, ("yes", "no"))


def test_each_prompt_may_have_its_own_schema():
    def reply(body):
        return '{"labels": ["yes", "yes"]}' if body.get("format") else "plain"

    schemas = [None, label_schema(2, ("yes",)), label_schema(1, ("yes",))]
    with FakeOllama(reply=reply) as fake:
        plain, two, one = ask(fake.model(), ["a", "b", "c"], schema=schemas)
    assert (plain.ok, plain.parsed, plain.text) == (True, None, "plain")
    assert two.parsed.labels == ["yes", "yes"]
    assert one.error.kind == "unusable"


def test_repaired_replies_replay_with_their_count_and_are_validated_again(tmp_path):
    script = iter(["bad", GOOD])
    with FakeOllama(reply=lambda body: next(script)) as fake:
        model = fake.model()
        first = ask(model, ["p"], schema=Verdict, cassette=tmp_path / "c.sqlite")[0]
    again = ask(model, ["p"], schema=Verdict, cassette=tmp_path / "c.sqlite")[0]
    assert (again.cached, again.repairs) == (True, 1)
    assert (again.parsed, again.usage) == (first.parsed, first.usage)
