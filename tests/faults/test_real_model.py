"""Drills with a real model (SmolLM2 on llama.cpp): server or client killed in mid-run, two slots.

As a program it is the client: ``python test_real_model.py FOLDER`` runs the experiment and notes
every call it makes.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from experiment_parts import experiment, people

from ragbench.experiment import load_rows
from ragbench.llm import Cassette, ask, chat_model, local

pytestmark = [pytest.mark.posix, pytest.mark.live, pytest.mark.slow]
QUESTIONS = 10
BUDGETS = (0, 20)
ROWS = QUESTIONS * len(BUDGETS)


def drill(folder):
    """The experiment, and its model. Every call is noted in ``calls.log`` as it goes out."""
    model = chat_model("smollm2", num_ctx=512, num_predict=12)
    client = model.http_client

    def noted(request):
        asked = json.loads(request.content)["messages"][-1]["content"]
        with open(folder / "calls.log", "a") as log:
            log.write(hashlib.sha256(asked.encode()).hexdigest() + "\n")

    client.event_hooks = {"request": [noted, *client.event_hooks["request"]]}
    axes = {"data": {"people": people(QUESTIONS)}, "N": BUDGETS, "generator": {"small": model}}
    return experiment(folder / "run", **axes, options={"backoff_s": 0.02}), model


def calls(folder):
    path = folder / "calls.log"
    return path.read_text().split() if path.exists() else []


def recorded(folder):
    """Prompts that have an answer on the cassette."""
    path = folder / "run" / "cassette.sqlite"
    if not path.exists():
        return set()
    with Cassette(path, mode="replay") as cassette:
        assert cassette.verify() == []
        texts = cassette.rows(
            "SELECT json_extract(request, '$.messages[0].content') FROM replies WHERE ok = 1"
        )
    return {hashlib.sha256(text.encode()).hexdigest() for (text,) in texts}


def lines(folder):
    path = folder / "run" / "rows.jsonl"
    return path.read_text().count("\n") if path.exists() else 0


def until(condition):
    end = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


def assert_whole(folder):
    """Every row there, once, in the file itself; every prompt answered once on the cassette."""
    rows = load_rows(folder / "run")
    assert set(rows["status"]) == {"ok"}
    assert len(rows) == lines(folder) == ROWS
    assert not rows.duplicated(["question_id", "N"]).any()
    assert rows["answer"].str.len().gt(0).all()
    assert len(recorded(folder)) == ROWS


def test_a_server_killed_in_mid_run_costs_no_row_and_no_recorded_call(tmp_path):
    drilled, model = drill(tmp_path)
    before: dict[str, set] = {}

    def kill():
        # calls go out one by one, rows are written by the block
        until(lambda: len(calls(tmp_path)) >= 8)
        before["pid"] = model.server.pid
        before["asked"] = len(calls(tmp_path))
        before["recorded"] = recorded(tmp_path)
        os.kill(before["pid"], signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    drilled.run(progress=False)
    killer.join()
    assert_whole(tmp_path)
    assert model.server.pid != before["pid"]
    assert 4 <= len(before["recorded"]) < ROWS  # the kill fell into the run
    assert not before["recorded"] & set(calls(tmp_path)[before["asked"] + 1 :])
    assert ROWS <= len(calls(tmp_path)) <= ROWS + 4


SLOTS = """
import sys, threading, xllamacpp
params = xllamacpp.CommonParams()
params.model.path, params.n_ctx, params.n_parallel, params.fit_params = sys.argv[1], 1024, 2, False
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
params.ui = False
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
threading.Event().wait()
"""


@pytest.fixture(scope="module")
def two_slots():
    """The address of a llama.cpp server that shares 1,024 tokens out between two slots."""
    path = str(local.LocalServer(local.SMOLLM2, 1024).path)
    server = subprocess.Popen(
        [sys.executable, "-c", SLOTS, path],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    for line in server.stdout:
        if line.startswith("http"):
            break
    yield line.strip() + "/v1"
    server.kill()
    server.wait()


def test_a_prompt_longer_than_a_slot_is_refused_with_its_numbers_and_never_cut(two_slots):
    model = chat_model("openai:SmolLM2", host=two_slots, num_ctx=1024, num_predict=24)
    long, short = ask(
        model, ["A long passage about bridges. " * 100, "Name a bird."], on_length="keep"
    )
    assert (long.error.kind, long.attempts) == ("truncated", 1)
    assert 512 < int(re.search(r"request \((\d+)", str(long.error))[1]) < 1024
    assert short.ok


if __name__ == "__main__":
    drill(Path(sys.argv[1]))[0].run(progress=False)
