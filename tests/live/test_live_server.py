"""The whole live path through a real llama.cpp: its verdicts mean nothing, its tokens, limits and grammar are real."""

from __future__ import annotations

import hashlib
import socket
import threading
import time
from typing import Literal

import pytest
from llama_server import NUM_CTX, serve
from pydantic import BaseModel, Field

from ragbench.llm import Cassette, Step, ask, chat_model, fitness, label_schema, plan, usage_by_step

pytestmark = pytest.mark.live


class Verdict(BaseModel):
    label: Literal["covered", "contradicted", "neither"]
    reasons: list[Literal["text", "number", "date"]] = Field(min_length=1, max_length=2)


def claims(count):
    return [f"Claim {n}: the bridge at mile {n} was built in 19{n:02}. Is it covered?" for n in range(count)]


def test_every_structured_reply_of_the_real_grammar_is_valid(live_model):
    replies = ask(live_model(num_predict=200), claims(20), schema=Verdict, step="check", progress=False)
    assert [reply.error for reply in replies] == [None] * 20
    assert all(isinstance(reply.parsed, Verdict) for reply in replies)
    usage = usage_by_step(replies)["check"]["spent"]
    assert usage.uncounted == 0
    assert usage.prompt_tokens > 20 * 60  # one token per byte
    assert usage.output_tokens > 20 * 10
    assert usage.tokens_per_second > 0


def test_the_real_grammar_gives_exactly_as_many_labels_as_asked_for(live_model):
    prompts = claims(6)
    schemas = [label_schema(n + 1, ("yes", "no")) for n in range(6)]
    replies = ask(live_model(num_predict=300), prompts, schema=schemas, progress=False)
    assert [len(reply.parsed.labels) for reply in replies] == [1, 2, 3, 4, 5, 6]


def test_plain_replies_end_with_an_answer_or_a_typed_failure(live_model):
    model = live_model(num_predict=64, stop=["e", "a", "<"])
    replies = ask(model, claims(20), retries=0, progress=False)
    assert {reply.error.kind for reply in replies if not reply.ok} <= {"truncated", "empty"}
    assert sum(reply.ok for reply in replies) >= 5
    for reply in replies:
        if reply.error is not None and reply.error.kind == "truncated":
            assert "num_predict=64" in str(reply.error)
            assert reply.raw
            assert 60 <= reply.usage.output_tokens <= 80  # the server counts invalid bytes in its own way


def test_record_then_replay_without_a_socket_gives_the_same_bytes(live_model, tmp_path, monkeypatch):
    model = live_model(num_predict=200)
    path = tmp_path / "live.sqlite"
    first = ask(model, claims(10), schema=Verdict, cassette=path, progress=False)

    def refuse(*args, **kwargs):
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    cassette = Cassette(path, mode="replay")
    again = ask(model, claims(10), schema=Verdict, cassette=cassette)
    assert [(r.text, r.parsed, r.usage) for r in again] == [(r.text, r.parsed, r.usage) for r in first]
    assert cassette.verify() == []


def test_the_same_prompt_and_seed_give_the_same_reply(live_model):
    model = live_model(num_predict=60, temperature=0.9, seed=5)
    one, two = ask(model, ["Tell me of rivers."] * 2, retries=0, concurrency=1, progress=False)
    other = ask(live_model(num_predict=60, temperature=0.9, seed=6), ["Tell me of rivers."], retries=0, progress=False)[
        0
    ]
    assert one.raw == two.raw != other.raw


def test_a_prompt_longer_than_the_window_fails_with_the_servers_two_numbers_and_a_num_ctx_that_would_do(live_model):
    text = "A long passage about bridges. " * 80
    reply = ask(live_model(num_predict=100), [text], progress=False)[0]
    assert reply.error.kind == "context"
    assert f"maximum context length is {NUM_CTX} tokens" in str(reply.error)
    assert "requested" in str(reply.error)
    would_do = int(reply.error.do.split("num_ctx=")[1].split(",")[0])
    assert len(text) + 100 < would_do < 2 * len(text)
    assert reply.attempts == 1


def test_plan_agrees_with_the_real_token_counts(live_model, tmp_path):
    model = live_model(num_predict=200, price=(1.0, 1.0))
    cassette = Cassette(tmp_path / "live.sqlite")
    ask(model, claims(30)[:10], schema=Verdict, cassette=cassette, progress=False)
    made = plan(Step("check", claims(30), schema=Verdict), model, cassette)["check"]
    spent = usage_by_step(ask(model, claims(30), schema=Verdict, cassette=cassette, progress=False))[""]["spent"]
    assert (made.calls, made.cached, made.remaining) == (30, 10, 20)
    assert spent.calls == 20
    assert made.prompt_tokens == pytest.approx(spent.prompt_tokens, rel=0.05)
    assert made.output_tokens == pytest.approx(spent.output_tokens, rel=0.3)
    assert made.cost == pytest.approx(spent.cost, rel=0.1)


def test_the_doctor_finds_that_this_model_obeys_and_cannot_judge(live_model):
    found = fitness(live_model(num_predict=400, stop=["e", "a", "<"]), probe_context=False)
    assert found.asked in (0, 4)
    assert not found.fit
    if found.asked:
        assert found.obeyed + found.repaired == 4
        assert found.deterministic
    else:
        assert "plain calls failed" in found.problems[0]


def test_a_killed_server_costs_no_recorded_reply_and_the_run_goes_on_after_its_restart(gguf, tmp_path):
    prompts = claims(60)
    digest = hashlib.sha256(gguf.read_bytes()).hexdigest()
    path = tmp_path / "killed.sqlite"
    options = {"schema": Verdict, "concurrency": 2, "outage_s": 0.3, "backoff_s": 0.02, "progress": False}
    with serve(gguf, log=tmp_path / "log") as (url, process):

        def kill_when_some_are_done():
            cassette = Cassette(path)
            while len(cassette) < 10:
                time.sleep(0.005)
            process.kill()

        threading.Thread(target=kill_when_some_are_done).start()
        model = chat_model("openai:made", host=url, num_predict=200, digest=digest)
        first = ask(model, prompts, cassette=path, **options)
    port = int(url.rsplit(":", 1)[1])
    done = sum(reply.ok for reply in first)
    assert 10 <= done < 60
    assert {reply.error.kind for reply in first if not reply.ok} <= {"server_down", "dropped"}
    with serve(gguf, port=port, log=tmp_path / "log"):
        second = ask(model, prompts, cassette=path, **options)
    assert all(reply.ok for reply in second)
    assert sum(reply.cached for reply in second) == done
    assert {reply.digest for reply in second} == {digest}
