"""ask(): one Reply per prompt in order, concurrency, busy servers, interrupts, progress."""

import asyncio
import os
import random
import threading
import time
from collections import Counter

import pytest
from fake_ollama import DIGEST, FakeOllama, Fault, at_call, dies_at, press_ctrl_c
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda

from ragbench.errors import ConfigError
from ragbench.llm import Cassette, ask, asking

FAST = {"backoff_s": 0.01, "progress": False}


def numbered(count):
    return [f"p{n}" for n in range(count)]


def test_replies_come_in_the_order_of_the_prompts_whatever_the_order_of_the_answers(fake):
    delays = random.Random(0)

    def reply(body):
        time.sleep(delays.random() / 100)
        return "echo " + body["messages"][-1]["content"]

    fake.reply = reply
    prompts = numbered(40)
    replies = ask(fake.model(), prompts, concurrency=8)
    assert [reply.text for reply in replies] == [f"echo {prompt}" for prompt in prompts]
    assert ask(fake.model(), []) == []


def test_a_call_sends_every_option_and_a_reply_tells_tokens_model_digest_and_step(fake):
    options = {"temperature": 0.25, "seed": 7, "num_ctx": 2048, "num_predict": 99, "top_k": 3}
    reply = ask(fake.model(**options), ["why is the sky blue?"], ids=["q17"], step="s")[0]
    assert (reply.id, reply.step, reply.model) == ("q17", "s", "ollama:llama3:8b")
    assert (reply.digest, reply.finish, reply.attempts, reply.repairs) == (DIGEST, "stop", 1, 0)
    usage = reply.usage
    assert (usage.calls, usage.prompt_tokens, usage.output_tokens) == (1, 10, 2)
    assert usage.output_tokens / usage.output_seconds == pytest.approx(20_000)
    sent = fake.calls[0].body
    assert sent["options"] == options
    assert (sent["truncate"], sent["stream"]) == (False, True)


def test_the_digest_is_asked_for_at_the_start_and_the_end_and_not_after_each_call(fake):
    ask(fake.model(), numbered(30))
    assert Counter(call.path for call in fake.other)["/api/tags"] == 2


BRIEF = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]
TEMPLATE = ChatPromptTemplate.from_messages([("system", "Be brief."), ("human", "{q}")])


@pytest.mark.parametrize(
    "prompt",
    [
        BRIEF,
        [("system", "Be brief."), ("user", "hi")],
        [SystemMessage("Be brief."), HumanMessage("hi")],
        TEMPLATE.invoke({"q": "hi"}),
    ],
)
def test_prompts_may_be_texts_messages_pairs_or_prompt_values(fake, prompt):
    ask(fake.model(), [prompt, "hi", HumanMessage("hi"), [HumanMessage("a"), AIMessage("b")]])
    said = [call.body["messages"] for call in fake.calls]
    assert said[0] == BRIEF
    assert said[1] == said[2] == BRIEF[1:]
    assert [message["role"] for message in said[3]] == ["user", "assistant"]


def test_ctrl_c_keeps_what_is_done_and_a_second_run_asks_only_the_rest(tmp_path):
    prompts = numbered(60)
    with FakeOllama(latency_s=0.05) as fake:
        cassette = Cassette(tmp_path / "run.sqlite")
        fake.reply = at_call(12, press_ctrl_c)
        said = r"of 60 replies are done \(recorded on run\.sqlite"
        with pytest.raises(KeyboardInterrupt, match=said) as stop:
            ask(fake.model(), prompts, cassette=cassette, concurrency=2)
        done = int(str(stop.value).split()[0])
        assert 8 <= done < 60
        # Ctrl-C may fall between the recording of a reply and its return
        assert len(cassette) - done in (0, 1)
        kept = {row[0] for row in cassette.rows("SELECT prompt_id FROM replies WHERE ok = 1")}
        again = ask(fake.model(), prompts, cassette=cassette, concurrency=2)
        assert all(reply.ok for reply in again)
        # A call that Ctrl-C broke off may reach the server late, so the prompts are compared, not
        # their number.
        asked = Counter(call.prompt for call in fake.calls)
        assert set(asked) == set(prompts)
        assert {asked[f"p{name}"] for name in kept} == {1}


def test_no_progress_bar_when_nobody_looks_or_few_prompts(fake, capsys):
    import ipykernel  # noqa: F401 - as libraries do; only a running kernel counts

    ask(fake.model(), ["a"] * 30)
    assert capsys.readouterr().err == ""


def test_failures_are_logged_by_kind_with_the_first_one(fake, caplog):
    fake.fault = lambda prompt, before: Fault("400") if prompt in ("p1", "p2") else None
    ask(fake.model(), ["p0", "p1", "p2"], step="grading", ids=["a", "b", "c"])
    assert "grading: 2 of 3 prompts failed (2 unusable). First (b): ollama:llama3:8b" in caplog.text


@pytest.mark.parametrize("spec", ["ollama:llama3:8b", "openai:made"])
def test_a_dead_server_that_never_answered_is_told_at_once_for_every_prompt(spec, fake):
    fake.stop()
    start = time.monotonic()
    replies = ask(fake.model(spec), numbered(2000))
    assert time.monotonic() - start < 20  # one try for each would take minutes
    assert Counter(reply.error.kind for reply in replies) == {"down": 2000}


def test_a_server_that_is_started_again_costs_no_reply():
    with FakeOllama(latency_s=0.01) as fake:

        def restart():
            fake.stop()
            time.sleep(0.5)
            fake.start()

        fake.reply = at_call(12, restart)
        replies = ask(fake.model(), numbered(80), concurrency=2, **FAST)
    assert all(reply.ok for reply in replies)


def test_a_server_that_stays_away_too_long_fails_the_rest_in_bounded_time(monkeypatch):
    monkeypatch.setattr(asking, "OUTAGE_S", 0.5)
    with FakeOllama(latency_s=0.01) as fake:
        fake.fault = dies_at(12, fake)
        start = time.monotonic()
        replies = ask(fake.model(), numbered(300), concurrency=2, **FAST)
        assert time.monotonic() - start < 30
    assert {reply.error.kind for reply in replies if not reply.ok} == {"down"}
    assert any(reply.ok for reply in replies)


def test_equal_prompts_are_asked_once_with_a_cassette_and_each_time_without(fake, tmp_path):
    prompts = ["a", "a", "b"]
    assert not any(reply.cached for reply in ask(fake.model(), prompts))
    replies = ask(fake.model(), prompts, ids=["x", "y", "z"], cassette=tmp_path / "c.sqlite")
    assert Counter(call.prompt for call in fake.calls) == {"a": 2 + 1, "b": 1 + 1}
    assert [(one.id, one.cached) for one in replies] == [("x", False), ("y", True), ("z", False)]
    assert replies[0].text == replies[1].text
    again = ask(fake.model(), prompts, ids=["x", "y", "z"], cassette=tmp_path / "c.sqlite")
    assert [(one.id, one.cached, one.text) for one in again] == [
        (one.id, True, one.text) for one in replies
    ]


def test_equal_prompts_that_fail_do_not_wait_for_each_other(fake, tmp_path):
    fake.fault = lambda prompt, before: Fault("400")
    kinds = []

    def asking():
        replies = ask(fake.model(), ["a", "a"], cassette=tmp_path / "c.sqlite", **FAST)
        kinds.extend(reply.error.kind for reply in replies)

    thread = threading.Thread(target=asking, daemon=True)
    thread.start()
    thread.join(60)
    assert kinds == ["unusable", "unusable"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"prompts": "one text"}, r"ask\(model, \[prompt\]\)"),
        ({"prompts": [3.5]}, "a prompt of type float"),
        ({"ids": ["a", "b"]}, "2 ids for 1 prompts"),
        ({"schema": [None, None]}, "2 schemas for 1 prompts"),
        ({"schema": dict}, "a pydantic BaseModel class"),
        ({"schema": {"type": "object"}}, "a pydantic BaseModel class"),
        ({"model": "llama3:8b"}, "unknown model provider 'llama3'"),
        ({"model": object()}, "a LangChain chat model"),
        ({"model": RunnableLambda(str)}, "a LangChain chat model"),
    ],
)
def test_arguments_that_cannot_work_are_refused_in_words(fake, change, words):
    given = {"model": fake.model(), "prompts": ["p"], **change}
    with pytest.raises(ConfigError, match=words):
        ask(given.pop("model"), given.pop("prompts"), **given)


@pytest.mark.posix
def test_ask_still_works_after_a_fork(fake):
    ask(fake.model(), ["before"])
    pid = os.fork()
    if pid == 0:
        ok = False
        try:
            ok = ask(fake.model(), ["after"])[0].ok
        finally:
            os._exit(0 if ok else 1)
    assert os.waitpid(pid, 0)[1] == 0


def test_one_model_serves_a_cell_with_ask_and_cells_with_invoke_and_ainvoke(fake):
    model = fake.model(num_predict=99)

    async def cells():
        awaited = (await model.ainvoke("x")).content
        asked = ask(model, ["x"], **FAST)[0].text
        return {awaited, asked, (await model.ainvoke("x")).content}

    assert asyncio.run(cells()) == {model.invoke("x").content}
    assert "".join(chunk.text for chunk in model.stream("x")) == model.invoke("x").content
    assert all(call.body["truncate"] is False for call in fake.calls)
    model.invoke("x", stop=["."])
    assert fake.calls[-1].body["options"]["stop"] == ["."]


def test_a_wait_without_a_reply_is_said_once_and_how_long_it_may_last(fake, monkeypatch, caplog):
    monkeypatch.setattr(asking, "SILENCE_S", 0.2)
    fake.latency_s = 2.5
    assert ask(fake.model(deadline_s=30), ["p"])[0].ok
    assert caplog.text.count("ollama:llama3:8b: no reply after 0.2 s") == 1
    assert "deadline_s=30" in caplog.text


def test_a_model_replaced_in_mid_run_is_noticed_and_only_what_this_ask_recorded_is_taken_out(
    fake, tmp_path, caplog
):
    with Cassette(tmp_path / "c.sqlite") as cassette:
        ask(fake.model(), ["before"], cassette=cassette)
        fake.reply = at_call(4, lambda: fake.models.update({"llama3:8b": "0" * 64}))
        fake.latency_s = 0.05
        replies = ask(fake.model(), numbered(12), cassette=cassette, concurrency=1)
        kept = cassette.rows("SELECT json_extract(request, '$.messages[0].content') FROM replies")
    assert kept == [("before",)]
    assert {reply.error.kind for reply in replies} == {"digest"}
    assert "replaced under its name in mid-run" in caplog.text
