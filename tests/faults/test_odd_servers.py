"""Servers that answer, but oddly: every prompt ends with an answer or a failure of its own, and
nothing mixes.
"""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from copy import deepcopy

import httpx
import pytest
from experiment_parts import live_rows, rows_of
from fake_ollama import FakeOllama, Fault, dies_at
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from ragbench.errors import DataError, ModelError
from ragbench.experiment import load_rows
from ragbench.llm import Cassette, ask, asking, chat_model
from ragbench.llm.wire import Transport
from ragbench.records import Grade

LIMITS = {"concurrency": 8, "retries": 0, "backoff_s": 0.01, "progress": False}
MUTATED = int(os.environ.get("RAGBENCH_MUTATED", "1500"))  # replies of the wire fuzz


class Said(BaseModel):
    answer: str


# -- keys
# --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["test", "none", "not-needed"])
def test_a_placeholder_key_changes_no_prompt_and_no_reply(key):
    with FakeOllama(
        reply=lambda body: json.dumps({"answer": key}) if body.get("format") else f"{key}ed"
    ) as fake:
        model = chat_model("openai:llama3:8b", host=f"{fake.url}/v1", api_key=key)
        plain, schema = ask(model, [f"is it {key}?", "p"], schema=[None, Said])
    assert plain.text == f"{key}ed"
    assert schema.parsed == Said(answer=key)


# -- replies
# -----------------------------------------------------------------------------------------------------------

CHAT = {
    "choices": [
        {"index": 0, "message": {"role": "assistant", "content": "Ely."}, "finish_reason": "stop"}
    ],
    "usage": {"prompt_tokens": 9, "completion_tokens": 2},
    "timings": {"prompt_ms": 3.5, "predicted_ms": 20.0},
}
LINE = {
    "message": {"role": "assistant", "content": "Ely."}, "done": True, "done_reason": "stop", "prompt_eval_count": 9,
    "eval_count": 2, "prompt_eval_duration": 1000, "eval_duration": 2000,
}  # fmt: skip
MODELS = {"ollama": "ollama:llama3:8b", "openai": "openai:made"}
SHAPES = {"openai": CHAT, "ollama": LINE}


def mocked(handle, spec="openai:made"):
    """A model whose server is a function of the request."""
    wire = Transport(httpx.MockTransport(handle))
    if spec.startswith("ollama"):
        return chat_model(spec, host="http://made.example", client_kwargs={"transport": wire})
    client = httpx.Client(transport=wire)
    return chat_model(spec, host="http://made.example/v1", http_client=client)


def served(provider, reply):
    """A model whose server gives ``reply(prompt)`` as the body of every chat."""

    def handle(request):
        if request.url.path.endswith("/api/tags"):
            return httpx.Response(
                200, json={"models": [{"model": "llama3:8b", "digest": "d" * 64}]}
            )
        if request.method == "GET":
            return httpx.Response(404)
        body = reply(json.loads(request.content)["messages"][-1]["content"])
        content = body if isinstance(body, bytes) else body.encode("utf-8", "surrogatepass")
        return httpx.Response(200, content=content, headers={"content-type": "text/json"})

    return mocked(handle, MODELS[provider])


def with_content(provider, content):
    whole = deepcopy(SHAPES[provider])
    holder = whole["choices"][0] if provider == "openai" else whole
    holder["message"]["content"] = content
    return json.dumps(whole)


def test_text_blocks_are_joined():
    blocks = [
        {"type": "text", "text": "El"},
        {"type": "text", "text": "y."},
        {"type": "reasoning", "text": "hm"},
    ]
    (reply,) = ask(served("openai", lambda p: with_content("openai", blocks)), ["p"], **LIMITS)
    assert reply.text == "Ely."


@pytest.mark.parametrize("provider", MODELS)
def test_a_redirect_to_another_host_is_not_followed_and_carries_no_key(provider):
    asked = set()

    def handle(request):
        asked.add(request.url.host)
        if request.method == "POST":
            other = str(request.url.copy_with(host="other.example"))
            return httpx.Response(307, headers={"location": other})
        return httpx.Response(200, json={"models": [{"model": "llama3:8b", "digest": "d"}]})

    (reply,) = ask(mocked(handle, MODELS[provider]), ["p"], **LIMITS)
    assert (asked, reply.error.kind) == ({"made.example"}, "down")
    assert "307" in reply.error.got


def test_a_server_that_still_loads_its_model_is_waited_for():
    loading = [httpx.Response(503, json={"error": {"message": "Loading model"}})] * 2

    def handle(request):
        return loading.pop() if loading else httpx.Response(200, json=CHAT)

    assert ask(mocked(handle), ["p"], **LIMITS)[0].ok


ODD = {
    "deep": '{"choices": ' + "[" * 100_000,
    "deep and whole": "[" * 100_000 + "]" * 100_000,
    "a long number": '{"choices": ' + "9" * 5000 + "}",
    "a number as text": {"openai": with_content("openai", 5), "ollama": with_content("ollama", 5)},
    "a list": "[1, 2]",
    "null": "null",
    "no choices": {"openai": json.dumps(CHAT | {"choices": []}), "ollama": "{}"},
    "no message": '{"choices": [{"message": "x"}], "message": "x"}',
}


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("provider", MODELS)
def test_an_odd_reply_is_the_failure_of_its_prompt_alone(provider, name):
    odd = ODD[name][provider] if isinstance(ODD[name], dict) else ODD[name]
    good = json.dumps(SHAPES[provider])
    model = served(provider, lambda prompt: odd if prompt == "p3" else good)
    replies = ask(model, [f"p{n}" for n in range(8)], **LIMITS)
    assert [reply.ok for reply in replies] == [n != 3 for n in range(8)]
    assert replies[3].error.kind in ("server", "unusable")


def mutated(draw, shape):
    """One reply with one to three of its parts changed, or some of its bytes."""
    whole = deepcopy(SHAPES[shape])
    odd = [
        None,
        True,
        -1,
        1e308,
        "x",
        "",
        [],
        {},
        [{"text": "y"}],
        "\ud800",
        {"a": [1]},
        10**30,
        "9" * 5000,
    ]
    for _ in range(draw.randint(1, 3)):
        place = whole
        names = []
        while isinstance(place, dict | list) and place and (not names or draw.random() < 0.7):
            names.append(
                (place, draw.choice(list(place) if isinstance(place, dict) else range(len(place))))
            )
            place = place[names[-1][1]]
        if names:
            holder, name = names[-1]
            holder[name] = deepcopy(draw.choice(odd))
            if draw.random() < 0.2:
                del holder[name]
    body = json.dumps(whole).replace('"' + "9" * 5000 + '"', "9" * 5000).encode()
    if draw.random() < 0.3:
        at = draw.randrange(len(body))
        body = body[:at] + draw.randbytes(draw.randint(0, 3)) + body[at + draw.randint(0, 9) :]
    return body


@pytest.mark.parametrize("shape", SHAPES)
@settings(max_examples=MUTATED // 2 // 100, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 2**32))
def test_whatever_a_server_says_every_prompt_ends(shape, seed):
    draw = random.Random(seed)
    bodies = {f"p{n}": mutated(draw, shape) for n in range(100)}
    model = served(shape, bodies.__getitem__)
    replies = ask(model, list(bodies), schema=[None, None, None, Said] * 25, **LIMITS)
    assert len(replies) == 100
    assert all(reply.ok or reply.error.kind for reply in replies)


# -- waiting
# -----------------------------------------------------------------------------------------------------------


def answered(folder, server, count):
    return live_rows(folder, server, count, judge=None, N=(4,), concurrency=2)


def test_a_run_ends_when_its_server_dies_and_goes_on_where_it_was(tmp_path, fake, monkeypatch):
    monkeypatch.setattr(asking, "OUTAGE_S", 0.5)
    fake.fault = dies_at(6, fake)
    for _ in range(2):
        with pytest.raises(ModelError, match="prompts failed at the server"):
            answered(tmp_path, fake, 40)
    fake.fault = None
    fake.start()
    rows = answered(tmp_path, fake, 40)
    assert rows["status"].tolist() == load_rows(tmp_path)["status"].tolist() == ["ok"] * 40
    assert rows["cached"].sum() >= 4  # what was recorded before is not asked again


# -- cassettes
# ---------------------------------------------------------------------------------------------------------


def test_a_reply_edited_on_the_cassette_is_never_served(tmp_path, fake):
    model = fake.model()
    cassette = Cassette(tmp_path / "c.sqlite")
    ask(model, ["a", "b"], ids=["one", "two"], cassette=cassette, **LIMITS)
    cassette.rows(
        "UPDATE replies SET answer = replace(answer, 'Answer', 'Answes') WHERE prompt_id = 'two'"
    )
    with pytest.raises(DataError, match=r"prompt 'two'.*changed after recording"):
        ask(model, ["a", "b"], cassette=cassette, **LIMITS)
    assert ask(model, ["a"], cassette=cassette, **LIMITS)[0].cached


def test_a_full_disk_is_told_once_and_closing_says_nothing_over_it(tmp_path):
    cassette = Cassette(tmp_path / "c.sqlite")
    cassette.rows("PRAGMA max_page_count = 1")
    with (
        FakeOllama() as fake,
        pytest.raises(
            DataError,
            match=r"(?s)c\.sqlite: cannot be written \(database or disk is full\).*make room",
        ),
    ):
        ask(fake.model(), ["x" * 100_000, "y"], cassette=cassette, **LIMITS)
    cassette.close()


# -- rows
# --------------------------------------------------------------------------------------------------------------


class Odd:
    """A generator or judge of somebody's own that gives what it is told to."""

    name = "odd"

    def __init__(self, value):
        self.value = value

    def answer(self, question, context):
        return self.value

    def grade_all(self, questions, answers):
        return [Grade(answer.question_id, self.value, self.name) for answer in answers]


@pytest.mark.parametrize(
    ("axis", "value", "words"),
    [
        ("generator", value, f"the generator 'odd' gave {type(value).__name__}")
        for value in (None, 3, b"Ely", ["Ely"])
    ]
    + [("judge", value, f"the judge 'odd' gave {value!r}") for value in (0, 6, 4.5, True, "5")],
)
def test_a_generator_without_text_or_a_judge_without_grade_gives_a_failed_row(
    tmp_path, axis, value, words
):
    (row,) = rows_of(tmp_path, 1, N=(4,), **{axis: {"odd": Odd(value)}}).to_dict("records")
    assert row["status"] == "failed"
    assert words in row["error"]


def test_the_address_of_a_server_stands_in_no_file_of_a_run(tmp_path):
    def fault(prompt, before):
        for name, words in (("400", "Person1"), ("html", "Person2")):
            if words in prompt:
                return Fault(name)

    with FakeOllama(reply=lambda body: "Ely.", fault=fault) as fake:
        rows = answered(tmp_path, fake, 4)
        port = str(fake.port)
    assert Counter(rows["status"]) == {"ok": 2, "failed": 2}
    assert rows["error"].str.contains("the server").sum() == 2
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert f"127.0.0.1:{port}".encode() not in path.read_bytes(), path.name
