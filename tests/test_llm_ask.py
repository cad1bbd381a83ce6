"""ask(): one Reply per prompt in order, hosts and concurrency, busy servers, interrupts, notebooks, progress."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import re
import signal
import threading
import time
from collections import Counter
from email.utils import format_datetime

import pytest
from fake_ollama import DIGEST, FakeOllama, Fault, at_call
from hypothesis import given, settings
from hypothesis import strategies as st

from ragbench.errors import ConfigError
from ragbench.llm import CallError, Cassette, Interrupted, ask, loop
from ragbench.llm.drivers import Driver, retry_after
from ragbench.llm.failures import failure
from ragbench.llm.schedule import Gate, Host, Limits, Pending, Schedule, Worker, groups

FAST = {"backoff_s": 0.01, "progress": False}


def press_ctrl_c():
    os.kill(os.getpid(), signal.SIGINT)


def numbered(count):
    return [f"p{n}" for n in range(count)]


def pending(prompts):
    """Prompts to be asked, as (group or "", text)."""
    return [Pending([n], str(n), [{"content": text}], group=group) for n, (group, text) in enumerate(prompts)]


def in_groups(prompts):
    """The places of the prompts, as they are asked together."""
    return [[int(item.id) for item in group] for group in groups(pending(prompts))]


def test_replies_come_in_the_order_of_the_prompts_whatever_the_order_of_the_answers():
    delays = random.Random(0)
    with FakeOllama(fault=lambda prompt, _: None) as fake:
        fake.reply = lambda body: time.sleep(delays.random() / 100) or "echo " + body["messages"][-1]["content"]
        prompts = [f"question {n}" for n in range(40)]
        replies = ask(fake.model(), prompts, concurrency=8, progress=False)
    assert [reply.text for reply in replies] == [f"echo {prompt}" for prompt in prompts]
    assert all(reply.ok and reply.error is None and not reply.cached for reply in replies)


def test_a_reply_tells_tokens_seconds_model_digest_finish_and_step(fake):
    reply = ask(fake.model(), ["why is the sky blue?"], ids=["q17"], step="generation", progress=False)[0]
    assert (reply.id, reply.step, reply.model, reply.digest) == ("q17", "generation", "ollama:llama3:8b", DIGEST)
    assert (reply.usage.calls, reply.usage.prompt_tokens, reply.usage.output_tokens) == (1, 10, 2)
    assert reply.usage.tokens_per_second == pytest.approx(20_000)
    assert reply.usage.prompt_tokens_per_second == pytest.approx(10_000)
    assert 0 < reply.seconds < 5
    assert (reply.finish, reply.attempts, reply.repairs) == ("stop", 1, 0)


def test_every_call_sends_seed_temperature_num_ctx_and_asks_not_to_be_cut(fake):
    ask(fake.model(temperature=0.25, seed=7, num_ctx=2048, num_predict=99, top_k=3), ["hi"], progress=False)
    sent = fake.calls[0].body
    assert sent["options"] == {"temperature": 0.25, "seed": 7, "num_ctx": 2048, "num_predict": 99, "top_k": 3}
    assert (sent["truncate"], sent["shift"], sent["stream"]) == (False, False, True)
    assert sent["messages"] == [{"role": "user", "content": "hi"}]


def test_prompts_may_be_texts_messages_pairs_or_prompt_values(fake):
    from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
    from langchain_core.prompts import ChatPromptTemplate

    value = ChatPromptTemplate.from_messages([("system", "Be brief."), ("human", "{q}")]).invoke({"q": "hi"})
    same = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]
    forms = [same, [("system", "Be brief."), ("user", "hi")], [SystemMessage("Be brief."), HumanMessage("hi")], value]
    replies = ask(fake.model(), [*forms, "hi", HumanMessage("hi")], progress=False)
    assert all(call.body["messages"][:1] == same[:1] for call in fake.calls if len(call.body["messages"]) == 2)
    assert len({reply.text for reply in replies[:4]}) == 1
    assert replies[4].text == replies[5].text != replies[0].text
    ask(fake.model(), [[HumanMessage("a"), AIMessage("b"), HumanMessage("c")]], progress=False)
    assert [message["role"] for message in fake.calls[-1].body["messages"]] == ["user", "assistant", "user"]


def test_ask_invoke_and_ainvoke_work_from_any_loop_and_agree(fake):
    async def cell():
        return ask(fake.model(), ["hello"], progress=False)[0].text

    model, asked = fake.model(), asyncio.run(cell())
    assert model.invoke("hello").content == asked
    assert asyncio.run(model.ainvoke("hello")).content == asked  # one loop
    assert asyncio.run(model.ainvoke("hello")).content == asked  # another one, same model
    assert [message.content for message in model.batch(["hello", "hello"])] == [asked, asked]


def test_several_ask_at_once_share_the_limit_of_a_host(fake):
    fake.latency_s = 0.02
    model = fake.model()
    done = []
    threads = [
        threading.Thread(target=lambda n=n: done.extend(ask(model, [f"{n} {i}" for i in range(8)], concurrency=2)))
        for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(done) == 32
    assert all(reply.ok for reply in done)
    assert fake.most_at_once == 2


def test_several_hosts_share_the_work_each_up_to_its_limit_and_each_prompt_is_asked_once():
    prompts = [f"p{n:02} {'x' * n}" for n in range(40)]
    with FakeOllama(latency_s=0.02) as one, FakeOllama(latency_s=0.02) as two:
        replies = ask([one.model(), two.model()], prompts, concurrency=3, progress=False)
    assert Counter(call.prompt for call in one.calls + two.calls) == dict.fromkeys(prompts, 1)
    assert (one.most_at_once, two.most_at_once) == (3, 3)
    assert min(Counter(reply.host for reply in replies)[fake.url] for fake in (one, two)) >= 8


def test_a_host_that_dies_leaves_its_prompts_to_the_other():
    with FakeOllama(latency_s=0.01) as one, FakeOllama(latency_s=0.01) as two:
        one.reply = at_call(10, one.stop)
        replies = ask([one.model(), two.model()], numbered(60), concurrency=2, outage_s=0.2, **FAST)
    assert all(reply.ok for reply in replies)
    assert sum(reply.host == two.url for reply in replies) > 30


def test_prompts_with_a_common_beginning_go_to_one_host_side_by_side_longest_group_first():
    question = "Question about rivers and the lakes that feed them? "
    prompts = ["short one"] + [question + "context " * n for n in (4, 2, 3)] + ["another thing entirely"]
    assert in_groups(("", text) for text in prompts) == [[2, 3, 1], [4], [0]]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.text(max_size=12), max_size=30))
def test_grouping_keeps_every_prompt_once(texts):
    assert sorted(itertools.chain(*in_groups(("", text) for text in texts))) == list(range(len(texts)))


def test_the_prompts_of_a_named_group_stay_together_each_before_those_that_continue_it():
    texts = ["one two three", "x y", "Alone?", "x", "one", "", "zero"]
    assert in_groups(zip("abababa", texts, strict=True)) == [[2, 4, 0, 6], [5, 3, 1]]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["A", "B", "C"]), st.text("xy ", max_size=4)), max_size=20))
def test_named_groups_are_never_mixed_or_divided(prompts):
    made = groups(pending(prompts))
    assert sorted(item.group for group in made for item in list(group)[:1]) == sorted({name for name, _ in prompts})
    assert sorted(int(item.id) for group in made for item in group) == list(range(len(prompts)))
    for group in made:
        texts = [item.text for item in group]
        assert len({item.group for item in group}) == 1
        assert texts == sorted(texts)


def test_the_prompts_of_a_host_that_dies_stay_together_at_the_next_one():
    items = [Pending([n], f"{name}{n}", [{"content": f"{n}"}], group=name) for name in "ab" for n in range(3)]
    hosts = [Host(Driver(), 1, Gate()) for _ in range(2)]
    workers = [Worker(host) for host in hosts]

    async def asked():
        schedule = Schedule(items, workers, Limits(1, 1.0, 0, 0.0, 0.0, 0.0), lambda: False)
        first = await schedule.next(workers[0])
        assert schedule.failed(hosts[0], first, failure("server_down", "gone"))
        return [(await schedule.next(workers[1])).id for _ in items]

    assert asyncio.run(asked()) == ["a0", "a1", "a2", "b0", "b1", "b2"]


def test_each_place_at_a_server_goes_through_a_group_of_its_own():
    with FakeOllama(latency_s=0.05) as fake:
        prompts = [f"{name}: {'x' * n}" for name in "ab" for n in range(5)]
        ask(fake.model(), prompts, groups=[p[0] for p in prompts], concurrency=2, progress=False)
    asked = [call.prompt for call in fake.calls]
    assert [sorted(p[0] for p in asked[i : i + 2]) for i in range(0, 10, 2)] == [["a", "b"]] * 5
    assert [p for p in asked if p[0] == "a"] == prompts[:5]


def test_on_reply_is_told_of_every_reply_in_this_thread_and_holds_up_the_place_that_made_it(tmp_path):
    seen, at_once = [], []
    with FakeOllama(latency_s=0.01) as fake:

        def note(place, reply):
            assert threading.current_thread() is threading.main_thread()
            at_once.append(len(fake.calls) - len(seen))
            seen.append((place, reply.text))

        cassette = Cassette(tmp_path / "c.sqlite")
        prompts = [f"p{n % 12}" for n in range(16)]
        replies = ask(fake.model(), prompts, cassette=cassette, concurrency=3, on_reply=note, progress=False)
        assert sorted(seen) == [(place, reply.text) for place, reply in enumerate(replies)]
        assert len(fake.calls) == 12
        assert max(at_once) <= 3
        for mode in ("record", "replay"):
            seen.clear()
            ask(fake.model(), prompts, cassette=Cassette(cassette.path, mode), on_reply=note, progress=False)
            assert len(seen) == 16


def test_what_on_reply_raises_ends_the_ask(fake):
    def full(place, reply):
        raise OSError("no room")

    with pytest.raises(OSError, match="no room"):
        ask(fake.model(), numbered(30), concurrency=2, on_reply=full, progress=False)
    assert len(fake.calls) <= 4
    assert ask(fake.model(), ["still there"], progress=False)[0].ok


def test_a_stopped_ask_keeps_the_calls_under_way_and_marks_the_rest(fake, tmp_path):
    fake.latency_s = 0.05
    done = []
    replies = ask(
        fake.model(), numbered(20), concurrency=2, progress=False,
        on_reply=lambda place, reply: done.append(place), stop=lambda: len(done) >= 4,
    )  # fmt: skip
    assert sum(reply.ok for reply in replies) == len(done) == len(fake.calls) <= 5
    assert {reply.error.kind for reply in replies if not reply.ok} == {"interrupted"}


def test_a_call_that_outlasts_the_grace_of_a_stopped_ask_is_left_to_end_by_itself(fake, monkeypatch):
    monkeypatch.setattr("ragbench.llm.asking.GRACE_S", 0.0)
    fake.latency_s, told = 0.3, []
    more = {"on_reply": lambda place, reply: told.append(reply), "stop": lambda: bool(fake.calls), "progress": False}
    assert ask(fake.model(), ["a"], **more)[0].error.kind == "interrupted"
    end = time.monotonic() + 10
    while asyncio.all_tasks(loop.the_loop()) and time.monotonic() < end:
        time.sleep(0.01)
    assert not asyncio.all_tasks(loop.the_loop())
    assert told == []


def test_a_server_that_takes_two_at_a_time_gets_all_prompts_of_eight_workers():
    with FakeOllama(busy_above=2, latency_s=0.005) as fake:
        replies = ask(fake.model(), numbered(30), concurrency=8, retries=0, **FAST)
    assert all(reply.ok for reply in replies)


def test_retry_after_is_obeyed_by_the_whole_host():
    with FakeOllama(fault=lambda prompt, before: Fault("429", 1) if prompt == "p0" and not before else None) as fake:
        replies = ask(fake.model(), numbered(6), concurrency=1, **FAST)
    assert all(reply.ok for reply in replies)
    at = next(n for n, call in enumerate(fake.calls) if call.fault)
    assert fake.calls[at + 1].began - fake.calls[at].began >= 1.0


def test_retry_after_is_read_as_seconds_or_as_a_date():
    from datetime import UTC, datetime, timedelta

    assert (retry_after("3"), retry_after("0.5")) == (3.0, 0.5)
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
    assert 25 < retry_after(soon) <= 30
    assert retry_after(format_datetime(datetime(2020, 1, 1, tzinfo=UTC), usegmt=True)) == 0.0
    assert (retry_after("soon"), retry_after(None)) == (None, None)


def test_pauses_between_tries_grow_and_are_never_the_same():
    with FakeOllama(fault=lambda prompt, before: Fault("500") if before < 4 else None) as fake:
        ask(fake.model(), ["a"], retries=4, backoff_s=0.04, progress=False)
        ask(fake.model(), ["b"], retries=4, backoff_s=0.04, progress=False)
    began = [call.began for call in fake.calls]
    first = [b - a for a, b in itertools.pairwise(began[:5])]
    second = [b - a for a, b in itertools.pairwise(began[5:])]
    assert len(second) == 4
    for pauses in (first, second):
        assert all(0.02 * 2**n <= pause <= 0.06 * 2**n + 0.5 for n, pause in enumerate(pauses))
    assert first != second


def test_ctrl_c_keeps_what_is_done_and_a_second_run_asks_only_the_rest(tmp_path):
    prompts = numbered(60)
    with FakeOllama(latency_s=0.05) as fake:
        cassette = Cassette(tmp_path / "run.sqlite")
        fake.reply = at_call(12, press_ctrl_c)
        with pytest.raises(KeyboardInterrupt, match=r"of 60 replies are done \(recorded on run.sqlite") as stop:
            ask(fake.model(), prompts, cassette=cassette, concurrency=2, progress=False)
        replies = stop.value.replies
        done = [reply for reply in replies if reply.ok]
        assert isinstance(stop.value, Interrupted)
        assert len(replies) == 60
        assert 8 <= len(done) < 60
        assert len(cassette) == len(done)
        assert {reply.error.kind for reply in replies if not reply.ok} == {"interrupted"}
        seen = len(fake.calls)
        again = ask(fake.model(), prompts, cassette=cassette, concurrency=2, progress=False)
        assert all(reply.ok for reply in again)
        assert len(fake.calls) == seen + 60 - len(done)


def test_ctrl_c_without_a_cassette_hands_over_what_is_done(fake):
    fake.latency_s = 0.05
    fake.reply = at_call(12, press_ctrl_c)
    with pytest.raises(Interrupted, match=r"in \.replies") as stop:
        ask(fake.model(), numbered(60), concurrency=2, progress=False)
    assert 8 <= sum(reply.ok for reply in stop.value.replies) < 60


def test_progress_shows_time_to_go_failures_and_cached(fake, tmp_path, capsys):
    cassette = Cassette(tmp_path / "c.sqlite")
    fake.fault = lambda prompt, before: Fault("400") if prompt == "p3" else None
    ask(fake.model(), ["p0", "p1"], cassette=cassette, progress=False)
    fake.latency_s = 0.1
    prompts = [*(f"p{n}" for n in range(6)), "p5"]  # the last one is asked once
    ask(fake.model(), prompts, cassette=cassette, concurrency=1, progress=True, step="grading")
    shown = capsys.readouterr().err
    assert "grading" in shown
    assert "7/7" in shown
    assert "cached=3, failed=1" in shown or "failed=1, cached=3" in shown
    assert re.search(r"[345]/7 \[\d\d:\d\d<\d\d:\d\d, ", shown)  # elapsed < to go, while running


def test_no_progress_bar_when_nobody_looks_or_few_prompts(fake, capsys):
    import ipykernel  # noqa: F401 - as libraries do; only a running kernel counts

    ask(fake.model(), ["a"] * 30)
    assert capsys.readouterr().err == ""


def test_failures_are_logged_by_kind_with_the_first_one(fake, caplog):
    fake.fault = lambda prompt, before: Fault("400") if prompt in ("p1", "p2") else None
    ask(fake.model(), ["p0", "p1", "p2"], step="grading", ids=["a", "b", "c"], progress=False)
    assert "grading: 2 of 3 prompts failed: 2 bad_request. First (b): ollama:llama3:8b" in caplog.text


@pytest.mark.parametrize("spec", ["ollama:llama3:8b", "openai:made"])
def test_a_dead_server_that_never_answered_is_told_at_once_for_every_prompt(spec, fake):
    fake.stop()
    model, start = fake.model(spec), time.monotonic()
    replies = ask(model, numbered(2000), outage_s=60, progress=False)
    assert time.monotonic() - start < 3
    assert {reply.error.kind for reply in replies} == {"server_down"}
    assert len(replies) == 2000


def test_a_prompt_too_long_to_be_sent_says_nothing_about_the_server(fake):
    fake.stop()
    model = fake.model("openai:made", num_ctx=256)
    start = time.monotonic()
    replies = ask(model, ["word " * 2000, "short"], concurrency=1, outage_s=60, progress=False)
    assert time.monotonic() - start < 5
    assert [reply.error.kind for reply in replies] == ["context", "server_down"]


def test_a_host_that_asks_to_wait_too_long_leaves_its_prompts_to_the_other():
    with FakeOllama(fault=lambda prompt, before: Fault("429", 500)) as one, FakeOllama() as two:
        replies = ask([one.model(), two.model()], numbered(20), patience_s=5, concurrency=2, **FAST)
    assert all(reply.ok and reply.host == two.url for reply in replies)


def test_a_server_that_restarts_within_outage_s_costs_no_reply():
    with FakeOllama(latency_s=0.01) as fake:

        def restart():
            fake.stop()
            time.sleep(0.5)
            fake.start()

        fake.reply = at_call(12, restart)
        replies = ask(fake.model(), numbered(80), concurrency=2, outage_s=20, **FAST)
    assert all(reply.ok for reply in replies)


def test_a_server_that_stays_away_longer_than_outage_s_fails_the_rest_in_bounded_time():
    with FakeOllama(latency_s=0.01) as fake:
        fake.reply = at_call(12, fake.stop)
        start = time.monotonic()
        replies = ask(fake.model(), numbered(300), concurrency=2, outage_s=0.5, **FAST)
        assert time.monotonic() - start < 5
    assert {reply.error.kind for reply in replies if not reply.ok} == {"server_down"}
    assert any(reply.ok for reply in replies)


def test_a_wrong_key_is_not_tried_ten_thousand_times():
    with FakeOllama(api_key="right") as fake:
        replies = ask(fake.model(api_key="wrong"), numbered(500), concurrency=4, **FAST)
        assert {reply.error.kind for reply in replies} == {"auth"}
        assert len(fake.calls) <= 20


def test_one_refusal_among_answers_does_not_condemn_the_host(fake):
    fake.fault = lambda prompt, before: Fault("404") if prompt == "p5" and not before else None
    replies = ask(fake.model(), numbered(20), concurrency=1, **FAST)
    assert all(reply.ok for reply in replies)


def test_equal_prompts_are_asked_once_with_a_cassette_and_each_time_without(fake, tmp_path):
    without = ask(fake.model(), ["a", "a", "b"], progress=False)
    assert len(fake.calls) == 3
    assert not any(reply.cached for reply in without)
    fake.calls.clear()
    with_one = ask(fake.model(), ["a", "a", "b"], ids=["x", "y", "z"], cassette=tmp_path / "c.sqlite", progress=False)
    assert Counter(call.prompt for call in fake.calls) == {"a": 1, "b": 1}
    assert [(reply.id, reply.cached) for reply in with_one] == [("x", False), ("y", True), ("z", False)]
    assert with_one[0].text == with_one[1].text


def test_no_prompts_give_no_replies_and_no_call(fake):
    assert ask(fake.model(), []) == []
    assert not fake.calls
    assert not fake.other


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"prompts": "one text"}, r"ask\(model, \[prompt\]\)"),
        ({"prompts": [3.5]}, "a prompt of type float"),
        ({"concurrency": 0}, "concurrency=0"),
        ({"deadline_s": -1}, "deadline_s=-1"),
        ({"retries": -1}, "retries=-1"),
        ({"ids": ["a", "b"]}, "2 ids for 1 prompts"),
        ({"schema": [None, None]}, "2 schemas for 1 prompts"),
        ({"schema": dict}, "a pydantic BaseModel class"),
        ({"model": "llama3:8b"}, "unknown model provider 'llama3'"),
        ({"model": object()}, "a LangChain chat model"),
        ({"model": []}, "no model"),
        ({"on_miss": "ignore"}, "unknown on_miss 'ignore'"),
    ],
)
def test_arguments_that_cannot_work_are_refused_in_words(fake, change, words):
    given = {"model": fake.model(), "prompts": ["p"], **change}
    with pytest.raises(ConfigError, match=words):
        ask(given.pop("model"), given.pop("prompts"), **given)


def test_two_models_or_two_options_are_not_one_model_on_two_hosts(fake):
    with pytest.raises(ConfigError, match="two different models"):
        ask([fake.model(), fake.model(temperature=0.5)], ["p"])


def test_hosts_with_different_weights_under_one_name_are_refused():
    with FakeOllama() as one, FakeOllama(models={"llama3:8b": "0" * 64}) as two:
        with pytest.raises(CallError, match="two digests under one name") as caught:
            ask([one.model(), two.model()], ["p"], progress=False)
        assert not one.calls
    assert caught.value.kind == "digest"


def test_ask_from_inside_its_own_loop_says_so_instead_of_hanging(fake):
    async def inside():
        ask(fake.model(), ["p"])

    with pytest.raises(ConfigError, match="own event loop"):
        loop.run(inside())


def test_ask_still_works_after_a_fork(fake):
    ask(fake.model(), ["before"], progress=False)
    pid = os.fork()
    if pid == 0:
        ok = False
        try:
            ok = ask(fake.model(), ["after"], progress=False)[0].ok
        finally:
            os._exit(0 if ok else 1)
    assert os.waitpid(pid, 0)[1] == 0
