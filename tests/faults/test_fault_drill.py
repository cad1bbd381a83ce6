"""The fault drill: 200 prompts under each fault at random (seeded) places; none lost, none twice,
in bounded time.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from dataclasses import dataclass

import pytest
from fake_ollama import FakeOllama, Fault
from pydantic import BaseModel

from ragbench.llm import Cassette, ask

PROMPTS = 200
RETRIES = 2
ALWAYS = 99
LIMITS = {
    "concurrency": 8,
    "retries": RETRIES,
    "backoff_s": 0.01,
    "deadline_s": 30.0,
    "progress": False,
}


@dataclass(frozen=True)
class Drill:
    """One fault: how it looks, the kind it must get, and how many calls a prompt makes under it."""

    fault: Fault
    kind: str
    share: float = 0.15
    times: int = ALWAYS  # how often the same prompt meets it
    calls: int = 1 + RETRIES
    deadline_s: float = 30.0


DRILLS = {
    "HTTP 500": Drill(Fault("500"), "server"),
    "HTTP 500, passing": Drill(Fault("500"), "", times=2),
    "out of memory": Drill(Fault("oom"), "unusable", calls=1),
    "429, passing": Drill(Fault("429", 0), "", times=3),
    "503, passing": Drill(Fault("503"), "", times=3, share=0.05),
    "bad request": Drill(Fault("400"), "unusable", calls=1),
    "garbage": Drill(Fault("garbage"), "server"),
    "garbage, passing": Drill(Fault("garbage"), "", times=1),
    "proxy page": Drill(Fault("html"), "server"),
    "proxy 502": Drill(Fault("html_502"), "server"),
    "slow drip": Drill(Fault("drip", 0.2), "timeout", calls=2, share=0.04, deadline_s=4.0),
    "no bytes": Drill(Fault("no_bytes", 200), "timeout", calls=2, share=0.04, deadline_s=4.0),
    "no bytes, passing": Drill(Fault("no_bytes", 200), "", times=1, share=0.04, deadline_s=4.0),
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


def places(name, share):
    return {
        f"prompt {n}" for n in random.Random(name).sample(range(PROMPTS), round(share * PROMPTS))
    }


@pytest.mark.parametrize("name", DRILLS)
def test_every_prompt_ends_with_an_answer_or_a_failure_of_the_right_kind(name, tmp_path):
    drill = DRILLS[name]
    hit = places(name, drill.share)
    prompts = [f"prompt {n}" for n in range(PROMPTS)]
    with FakeOllama(
        reply=echo, fault=lambda p, n: drill.fault if p in hit and n < drill.times else None
    ) as fake:
        cassette = Cassette(tmp_path / "drill.sqlite")
        start = time.monotonic()
        limits = {**LIMITS, "deadline_s": drill.deadline_s}
        replies = ask(fake.model(), prompts, cassette=cassette, ids=prompts, **limits)
        took = time.monotonic() - start
        calls = Counter(call.prompt for call in fake.calls)
        again = ask(fake.model(), prompts, cassette=Cassette(cassette.path, mode="replay"))
    assert took < 120  # less than a server's silence, however slow the machine
    assert [reply.id for reply in replies] == prompts
    for prompt, reply in zip(prompts, replies, strict=True):
        if prompt in hit and drill.kind:
            assert not reply.ok
            assert reply.error.kind == drill.kind, reply.error
        else:
            assert reply.ok, reply.error
            assert reply.text == f"echo of {prompt}"
        expected = 1 if prompt not in hit else drill.calls if drill.kind else 1 + drill.times
        assert calls[prompt] == reply.attempts == expected
    recorded = Counter(row[0] for row in cassette.rows("SELECT prompt_id FROM replies"))
    assert recorded == Counter(prompts)  # none lost, none twice
    assert (len(cassette), cassette.verify()) == (PROMPTS - (len(hit) if drill.kind else 0), [])
    assert [(reply.ok, reply.text) for reply in again] == [
        (reply.ok, reply.text) for reply in replies
    ]


def test_all_faults_together_each_prompt_another(tmp_path):
    chance = random.Random(7)
    passing = [name for name in DRILLS if "passing" in name]
    met = {
        f"prompt {n}": DRILLS[chance.choice(passing)]
        for n in range(PROMPTS)
        if chance.random() < 0.3
    }
    prompts = [f"prompt {n}" for n in range(PROMPTS)]

    def fault(prompt, before):
        return met[prompt].fault if prompt in met and before < met[prompt].times else None

    with FakeOllama(reply=echo, fault=fault) as fake:
        start = time.monotonic()
        replies = ask(
            fake.model(), prompts, cassette=tmp_path / "c.sqlite", **{**LIMITS, "deadline_s": 4.0}
        )
        assert time.monotonic() - start < 60
        assert len(fake.calls) == PROMPTS + sum(drill.times for drill in met.values())
    assert [reply.text for reply in replies] == [f"echo of {prompt}" for prompt in prompts]


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


@pytest.mark.parametrize("overflow", ["error", "fill"])
def test_every_cut_prompt_is_found_among_whole_ones(overflow):
    hit = places(overflow, 0.1)
    prompts = [
        f"prompt {n}" + " with much context to read" * (60 if f"prompt {n}" in hit else 1)
        for n in range(PROMPTS)
    ]
    with FakeOllama(overflow=overflow) as fake:
        replies = ask(fake.model(num_ctx=256, num_predict=64), prompts, **LIMITS)
        assert len(fake.calls) == PROMPTS
    failed = {
        " ".join(prompt.split()[:2])
        for prompt, reply in zip(prompts, replies, strict=True)
        if not reply.ok
    }
    assert failed == hit
    assert {reply.error.kind for reply in replies if not reply.ok} == {"truncated"}


class Verdict(BaseModel):
    verdict: int


@pytest.mark.parametrize(
    "text", ["plain words", '{"verdict": 1', '{"verdict": "1"}', "<think>hm</think>", "[]"]
)
def test_every_bad_structured_reply_is_repaired_once_or_fails_with_its_raw_text(text, tmp_path):
    hit = places(text, 0.1)
    twice = set(sorted(hit)[::2])

    def fault(prompt, before):
        return Fault("answer", text) if prompt in hit and (before == 0 or prompt in twice) else None

    prompts = [f"prompt {n}" for n in range(PROMPTS)]
    with FakeOllama(fault=fault, reply=lambda body: '{"verdict": 3}') as fake:
        model = fake.model()
        replies = ask(
            model,
            prompts,
            schema=Verdict,
            cassette=tmp_path / "c.sqlite",
            **{**LIMITS, "retries": 0},
        )
        calls = Counter(call.prompt for call in fake.calls)
    thought = text.startswith("<think>")  # nothing but thinking: there is nothing to repair
    for prompt, reply in zip(prompts, replies, strict=True):
        if prompt in (hit if thought else twice):
            assert (reply.ok, reply.error.kind, reply.raw) == (False, "unusable", text)
        else:
            assert (reply.parsed, reply.repairs) == (Verdict(verdict=3), prompt in hit)
        assert calls[prompt] == (2 if prompt in hit and not thought else 1)
