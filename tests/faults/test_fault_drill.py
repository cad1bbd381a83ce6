"""The fault drill: 200 prompts, of which 84 meet one of 21 faults each; none lost, none twice, in
bounded time.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from dataclasses import dataclass

import pytest
from fake_ollama import FakeOllama, Fault

from ragbench.llm import Cassette, ask

PROMPTS = 200
RETRIES = 2
ALWAYS = 99
LIMITS = {
    "concurrency": 8,
    "retries": RETRIES,
    "backoff_s": 0.01,
    "deadline_s": 4.0,
    "progress": False,
}


@dataclass(frozen=True)
class Drill:
    """One fault: how it looks, the kind it must get, and how many calls a prompt makes under it."""

    fault: Fault | None
    kind: str
    times: int = ALWAYS  # how often the same prompt meets it
    calls: int = 1 + RETRIES


DRILLS = {
    "HTTP 500": Drill(Fault("500"), "server"),
    "HTTP 500, passing": Drill(Fault("500"), "", times=2),
    "out of memory": Drill(Fault("oom"), "unusable", calls=1),
    "429, passing": Drill(Fault("429", 0), "", times=3),
    "503, passing": Drill(Fault("503"), "", times=3),
    "bad request": Drill(Fault("400"), "unusable", calls=1),
    "garbage": Drill(Fault("garbage"), "server"),
    "garbage, passing": Drill(Fault("garbage"), "", times=1),
    "proxy page": Drill(Fault("html"), "server"),
    "proxy 502": Drill(Fault("html_502"), "server"),
    "slow drip": Drill(Fault("drip", 0.2), "timeout", calls=2),
    "no bytes": Drill(Fault("no_bytes", 200), "timeout", calls=2),
    "no bytes, passing": Drill(Fault("no_bytes", 200), "", times=1),
    "dropped": Drill(Fault("dropped"), "server"),
    "hung up": Drill(Fault("hang_up"), "server"),
    "hung up, passing": Drill(Fault("hang_up"), "", times=2),
    "no end mark": Drill(Fault("no_end_mark"), "server"),
    "half a line": Drill(Fault("half_line"), "server"),
    "error in stream": Drill(Fault("error_line", "unexpected EOF"), "server"),
    "empty": Drill(Fault("answer", ""), "unusable", calls=1),
    "cut off": Drill(Fault("truncated"), "truncated", calls=1),
}


def echo(body):
    return f"echo of {body['messages'][0]['content']}"


def test_every_prompt_ends_with_an_answer_or_a_failure_of_the_right_kind(tmp_path):
    chance = random.Random(7)
    prompts = [f"prompt {n}" for n in range(PROMPTS)]
    hit = chance.sample(prompts, 4 * len(DRILLS))
    met = dict(zip(hit, [*DRILLS.values()] * 4, strict=True))

    def fault(prompt, before):
        return met[prompt].fault if prompt in met and before < met[prompt].times else None

    with FakeOllama(reply=echo, fault=fault) as fake:
        cassette = Cassette(tmp_path / "drill.sqlite")
        start = time.monotonic()
        replies = ask(fake.model(), prompts, cassette=cassette, ids=prompts, **LIMITS)
        took = time.monotonic() - start
        calls = Counter(call.prompt for call in fake.calls)
        again = ask(fake.model(), prompts, cassette=Cassette(cassette.path, mode="replay"))
    assert took < 120  # less than a server's silence, however slow the machine
    assert [reply.id for reply in replies] == prompts
    for prompt, reply in zip(prompts, replies, strict=True):
        drill = met.get(prompt, Drill(None, "", times=0))
        if drill.kind:
            assert (reply.ok, reply.error.kind) == (False, drill.kind), reply.error
        else:
            assert (reply.ok, reply.text) == (True, f"echo of {prompt}"), reply.error
        expected = drill.calls if drill.kind else 1 + drill.times
        assert calls[prompt] == reply.attempts == expected
    recorded = Counter(row[0] for row in cassette.rows("SELECT prompt_id FROM replies"))
    assert recorded == Counter(prompts)  # none lost, none twice
    assert cassette.verify() == []
    told = [(reply.ok, reply.text) for reply in replies]
    assert [(reply.ok, reply.text) for reply in again] == told


@pytest.mark.parametrize(("fault", "kind"), [("404", "no_model"), ("401", "auth"), ("402", "auth")])
def test_what_is_true_of_the_whole_host_ends_it_and_is_the_failure_of_every_prompt_left(
    fault, kind, tmp_path
):
    prompts = [f"prompt {n}" for n in range(PROMPTS)]
    with FakeOllama(
        reply=echo, fault=lambda p, n: Fault(fault) if int(p.split()[1]) >= 50 else None
    ) as fake:
        replies = ask(fake.model(), prompts, cassette=tmp_path / "c.sqlite", **LIMITS)
        assert len(fake.calls) <= 50 + LIMITS["concurrency"]
        fake.fault = None
        again = ask(fake.model(), prompts, cassette=tmp_path / "c.sqlite", **LIMITS)
    assert all(reply.ok for reply in replies[:40])
    assert {reply.error.kind for reply in replies[50:]} == {kind}
    assert [reply.cached for reply in again] == [reply.ok for reply in replies]
    assert all(reply.ok for reply in again)
