"""SIGKILL at random moments, started again each time: no reply is lost, no call and no vector is
made twice.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from experiment_parts import graded, killable
from fake_ollama import FakeOllama

from ragbench.experiment import load_manifest, load_rows
from ragbench.llm import Cassette, ask
from ragbench.rows import AXIS_COLUMNS

pytestmark = pytest.mark.posix
PROMPTS = 200
CONCURRENCY = 4
KILLS = 20
LATENCY_S = 0.05
# An answer that left the server this shortly before the kill may not have been recorded yet (a busy
# machine is slow).
ON_ITS_WAY_S = 2.0


def recorded(path):
    with Cassette(path) as cassette:
        assert cassette.verify() == []
        return {
            f"prompt {row[0]}"
            for row in cassette.rows("SELECT prompt_id FROM replies WHERE ok = 1")
        }


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

        def start():
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
            fake.wait_for_quiet()  # what was under way has arrived
            calls = fake.calls[before:]
            assert Path(
                f"{path}-wal"
            ).exists()  # the log was not folded in: this is the half-written state
            on_tape = recorded(path)
            assert known <= on_tape  # nothing that was recorded is lost
            # nothing that was recorded is asked again
            assert not known & {call.prompt for call in calls}
            lost = [call for call in calls if call.prompt not in on_tape]
            assert len(lost) <= CONCURRENCY
            assert all(
                call.written is None or call.written > killed - ON_ITS_WAY_S for call in lost
            )
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
        again = ask(
            model, [f"prompt {n}" for n in range(PROMPTS)], cassette=Cassette(path, mode="replay")
        )
        assert all(reply.ok and reply.cached for reply in again)


def reply(request):
    prompt = request["messages"][-1]["content"]
    return graded(request) or f"{len(prompt)} characters, beginning at {hash(prompt)}."


@pytest.mark.slow
def test_a_killed_experiment_repeats_no_recorded_call_and_no_vector(tmp_path):
    moments = random.Random(5)
    file = tmp_path / "run" / "cassette.sqlite"
    with FakeOllama(reply=reply, latency_s=0.01) as fake:
        command = [
            sys.executable,
            str(Path(__file__).parents[1] / "experiment_parts.py"),
            str(tmp_path),
            fake.url,
        ]
        lost: Counter[str] = Counter()
        known: set[str] = set()
        for _ in range(2):
            before = len(fake.calls)
            child = subprocess.Popen(command)
            while len(fake.calls) < before + moments.randint(20, 50):
                assert child.poll() is None
                time.sleep(0.002)
            child.kill()
            child.wait()
            fake.wait_for_quiet()
            calls = [call.prompt for call in fake.calls[before:]]
            assert not known & set(calls)
            with Cassette(file) as cassette:
                assert cassette.verify() == []
                rows = cassette.rows("SELECT request FROM replies WHERE ok = 1")
                known = {json.loads(request)["messages"][-1]["content"] for (request,) in rows}
            lost.update(prompt for prompt in calls if prompt not in known)
            frame = (
                load_rows(tmp_path / "run") if (tmp_path / "run" / "rows.jsonl").exists() else None
            )
            # readable whenever the kill came
            assert frame is None or not frame.duplicated([*AXIS_COLUMNS]).any()
        assert 20 <= len(known) < 240  # the kills fell into the run, not after it
        assert lost.total() <= 2 * 4  # under way at the kill
        rows = killable(tmp_path, fake.url).run(progress=False)
        assert len(rows) == 120
        assert not rows.duplicated([*AXIS_COLUMNS]).any()
        assert set(rows["status"]) == {"ok"}
        assert set(Counter(call.prompt for call in fake.calls).values()) <= {1, 2}
        assert len(fake.calls) == 240 + lost.total()
    assert len(load_rows(tmp_path / "run")) == 120
    # a sitting that was killed while earlier rows were there leaves no entry
    runs = load_manifest(tmp_path / "run")["runs"]
    assert (len(runs) in (2, 3), runs[-1]["rows_made"]) == (True, 120)
    embedded = Counter((tmp_path / "embedded.txt").read_text().splitlines())
    assert set(embedded.values()) == {1}
    assert len(embedded) == 80  # documents and questions
