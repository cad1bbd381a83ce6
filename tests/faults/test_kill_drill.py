"""SIGKILL at 20 random moments, resumed each time: no reply is lost, and no call is made that need not be made."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from fake_ollama import FakeOllama

from ragbench.llm import Cassette, ask

PROMPTS, CONCURRENCY, KILLS = 200, 4, 20
LATENCY_S = 0.05
# An answer that left the server this shortly before the kill may not have been recorded yet (a busy machine is slow).
ON_ITS_WAY_S = 2.0


def recorded(path: Path) -> set[str]:
    with Cassette(path) as cassette:
        assert cassette.verify() == []
        return {f"prompt {row[0]}" for row in cassette.rows("SELECT prompt_id FROM replies WHERE ok = 1")}


@pytest.mark.slow
def test_twenty_kills_cost_only_the_calls_in_flight(tmp_path):
    moments = random.Random(20)
    path = tmp_path / "killed.sqlite"
    with FakeOllama(latency_s=LATENCY_S) as fake:
        command = [
            sys.executable,
            str(Path(__file__).with_name("zygote.py")),
            fake.url,
            str(path),
            str(PROMPTS),
            str(CONCURRENCY),
        ]
        zygote = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert zygote.stdout.readline() == "ready\n"

        def start() -> int:
            zygote.stdin.write("go\n")
            zygote.stdin.flush()
            return int(zygote.stdout.readline())

        in_flight: Counter[str] = Counter()
        known: set[str] = set()
        for _ in range(KILLS):
            before = len(fake.calls)
            pid = start()
            # Counted in calls, not in seconds: the machine may be slow.
            enough = before + moments.randint(1, 12)
            while len(fake.calls) < enough:
                time.sleep(0.001)
            time.sleep(moments.uniform(0, LATENCY_S))
            killed = time.monotonic()
            os.kill(pid, signal.SIGKILL)
            assert int(zygote.stdout.readline()) == signal.SIGKILL
            time.sleep(0.01)
            calls = fake.calls[before:]
            on_tape = recorded(path)
            assert known <= on_tape  # nothing that was recorded is lost
            assert not known & {call.prompt for call in calls}  # nothing that was recorded is asked again
            lost = [call for call in calls if call.prompt not in on_tape]
            assert len(lost) <= CONCURRENCY
            assert all(call.written is None or call.written > killed - ON_ITS_WAY_S for call in lost)
            in_flight.update(call.prompt for call in lost)
            known = on_tape
        assert 20 <= len(known) < PROMPTS  # the kills fell into the run, not after it
        start()
        assert zygote.stdout.readline() == "0\n"
        zygote.stdin.close()
        zygote.wait(10)

        assert len(fake.calls) == PROMPTS + in_flight.total()
        assert Counter(call.prompt for call in fake.calls) == Counter(
            {f"prompt {n}": 1 + in_flight[f"prompt {n}"] for n in range(PROMPTS)}
        )
        assert recorded(path) == {f"prompt {n}" for n in range(PROMPTS)}
        model = fake.model()
        again = ask(model, [f"prompt {n}" for n in range(PROMPTS)], cassette=Cassette(path, mode="replay"))
        assert all(reply.ok and reply.cached for reply in again)
