"""Drills with a real model (SmolLM2 on llama.cpp): server or client killed in mid-run, two slots, a real loop.

As a program it is the client: ``python test_real_model.py FOLDER`` runs the experiment and notes every call it makes.
"""

from __future__ import annotations

import hashlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from experiment_parts import experiment, people
from pydantic import BaseModel, Field

from ragbench.experiment import load_rows
from ragbench.llm import Cassette, ask, chat_model, fitness, local
from ragbench.llm.drivers import driver_for

pytestmark = [pytest.mark.live, pytest.mark.slow]
QUESTIONS, BUDGETS = 10, (0, 20)
ROWS = QUESTIONS * len(BUDGETS)


def drill(folder):
    """The experiment, and its model. Every call is noted in ``calls.log`` as it goes out."""
    model = chat_model("smollm2", num_ctx=512, num_predict=12)
    driver = driver_for(model)
    complete = driver.complete

    async def noted(messages, schema, received):
        with open(folder / "calls.log", "a") as log:
            log.write(hashlib.sha256(messages[-1]["content"].encode()).hexdigest() + "\n")
        return await complete(messages, schema, received)

    driver.complete = noted
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
        texts = cassette.rows("SELECT json_extract(request, '$.messages[0].content') FROM replies WHERE ok = 1")
    return {hashlib.sha256(text.encode()).hexdigest() for (text,) in texts}


def lines(folder):
    path = folder / "run" / "rows.jsonl"
    return path.read_text().count("\n") if path.exists() else 0


def until(condition, seconds=300):
    end = time.monotonic() + seconds
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
        until(lambda: len(calls(tmp_path)) >= 8)  # calls go out one by one, rows are written by the block
        before["pid"], before["asked"] = model._server.pid, len(calls(tmp_path))
        before["recorded"] = recorded(tmp_path)
        os.kill(before["pid"], signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    drilled.run(progress=False)
    killer.join()
    assert_whole(tmp_path)
    assert model._server.pid != before["pid"]
    assert 4 <= len(before["recorded"]) < ROWS  # the kill fell into the run
    assert not before["recorded"] & set(calls(tmp_path)[before["asked"] + 1 :])
    assert ROWS <= len(calls(tmp_path)) <= ROWS + 4


def test_a_client_killed_in_mid_run_goes_on_where_it_was(tmp_path):
    for kill_at in (5, 6):
        known, asked = recorded(tmp_path), len(calls(tmp_path))
        client = subprocess.Popen([sys.executable, __file__, str(tmp_path)])
        try:
            until(lambda at=asked + kill_at, client=client: len(calls(tmp_path)) >= at or client.poll() is not None)
        finally:
            client.kill()
            client.wait()
        assert client.returncode == -signal.SIGKILL  # in mid-run
        assert known <= recorded(tmp_path)
        assert not known & set(calls(tmp_path)[asked:])
    known, asked = recorded(tmp_path), len(calls(tmp_path))
    assert 4 <= len(known) < ROWS
    subprocess.run([sys.executable, __file__, str(tmp_path)], check=True)
    assert_whole(tmp_path)
    assert not known & set(calls(tmp_path)[asked:])
    assert Counter(calls(tmp_path)[asked:]).most_common(1)[0][1] == 1
    again = len(calls(tmp_path))
    drill(tmp_path)[0].run(progress=False)
    assert len(calls(tmp_path)) == again


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
    path = str(local.smollm2().path)
    server = subprocess.Popen(
        [sys.executable, "-c", SLOTS, path], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    for line in server.stdout:
        if line.startswith("http"):
            break
    yield line.strip() + "/v1"
    server.kill()
    server.wait()


def test_the_doctor_advises_the_window_of_a_slot_not_of_the_server(two_slots):
    model = chat_model("openai:SmolLM2", host=two_slots, num_ctx=1024, num_predict=24)
    found = fitness(model)
    assert found.context_length == 512
    assert any("pass num_ctx=512, or give each of its slots 1024" in problem for problem in found.problems)
    assert found.window_works is False
    found = fitness(chat_model("openai:SmolLM2", host=two_slots, num_predict=24))
    assert (found.num_ctx, found.window_works) == (512, True)
    assert found.digest.startswith("told-")
    reply = ask(model, ["A long passage about bridges. " * 100], progress=False)[0]
    assert reply.error.kind == "context"
    counted, advised = (
        int(re.search(words, str(reply.error))[1]) for words in (r"request \((\d+)", r"the server (\d+) tok")
    )
    assert 512 < counted + 24 <= advised <= 1024


class Words(BaseModel):
    words: list[str] = Field(min_length=2, max_length=3)


def test_a_real_stream_gives_what_one_answer_gives(two_slots):
    options = {"host": two_slots, "num_predict": 200, "extra_body": {"cache_prompt": False}}
    streamed, whole = (chat_model("openai:SmolLM2", **options) for _ in range(2))
    driver_for(whole)._streams = False
    asked = [f"Name {n} birds, as JSON." for n in ("two", "three")]
    one, other = (ask(model, asked, schema=Words, concurrency=1, progress=False) for model in (streamed, whole))
    assert driver_for(streamed)._streams
    assert [reply.parsed for reply in one] == [reply.parsed for reply in other]
    for a, b in zip(one, other, strict=True):
        assert (a.ok, a.raw, a.finish, a.form) == (True, b.raw, b.finish, "json_schema")
        assert (a.usage.prompt_tokens, a.usage.output_tokens) == (b.usage.prompt_tokens, b.usage.output_tokens)
        assert min(a.usage.prompt_seconds, a.usage.output_seconds) > 0


class Text(BaseModel):
    text: str


def test_a_real_loop_is_cut_early_and_named():
    # A bias for one token makes any model write it for ever; one of 64 characters is a loop after a hundred.
    always = {"extra_body": {"logit_bias": [["=" * 64, 100.0]]}}
    model = chat_model("smollm2", num_ctx=4096, num_predict=2000, **always)
    reply = ask(model, ["Describe a lake, as JSON."], schema=Text, progress=False)[0]
    assert (reply.error.kind, reply.repairs, reply.attempts) == ("truncated", 1, 2)
    assert "repeats itself" in str(reply.error)
    assert 4000 < len(reply.raw) < 64 * 1000


if __name__ == "__main__":
    drill(Path(sys.argv[1]))[0].run(progress=False)
