"""What goes wrong with a real Ollama in mid-run: nothing lost, nothing asked twice, no reply under
a wrong digest.
"""

import contextlib
import os
import re
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest
import serve_ollama
from ollama import Client, ResponseError

from ragbench.llm import Cassette, ask, chat_model

pytestmark = [pytest.mark.ollama, pytest.mark.posix]
PROMPTS = [f"Write one sentence about the number {number}." for number in range(12)]
SMALL = {"num_predict": 24, "num_ctx": 512}


def recorded(path):
    """Return the digests of the replies that are on a cassette so far."""
    with (
        contextlib.suppress(sqlite3.OperationalError),
        contextlib.closing(sqlite3.connect(path)) as file,
    ):
        return [digest for (digest,) in file.execute("SELECT digest FROM replies WHERE ok = 1")]
    return []


def after(count, path, event):
    """Let something happen once so many replies are recorded."""

    def wait():
        end = time.monotonic() + 400
        while len(recorded(path)) < count and time.monotonic() < end:
            time.sleep(0.02)
        event()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread


def answered(folder, port):
    """Return how many chats a server has answered, by its log."""
    return len(
        re.findall(r'\| 200 \|.*POST +"/api/chat"', (folder / f"serve-{port}.log").read_text())
    )


def logs(folder):
    """Return the logs of all servers that have served from a folder, and their ports."""
    return [(log, int(log.stem.removeprefix("serve-"))) for log in folder.glob("serve-*.log")]


def model_of(address, name="smollm2"):
    return chat_model(f"ollama:{name}", host=address, **SMALL)


def runners(address):
    """Return the processes that run the models of one server, and of no other that tests have
    started.
    """
    found = subprocess.run(
        ["pgrep", "-f", "ollama runner|llama-server"], capture_output=True, text=True, check=False
    )
    pids = map(int, found.stdout.split())
    return [
        pid
        for pid in pids
        if f"OLLAMA_HOST={address}\0".encode() in Path(f"/proc/{pid}/environ").read_bytes()
    ]


def ask_all(models, path, **options):
    with Cassette(path) as cassette:
        return ask(
            models, PROMPTS, cassette=cassette, on_length="keep", **{"concurrency": 2} | options
        )


@pytest.fixture
def tally(models, record_property):
    """Count what was asked; fail if a reply was lost, asked for twice, or kept under a wrong
    digest.

    `make drills PYTEST_ARGS=--junitxml=drills.xml` writes the counts; docs/models.md has them for
    both versions.
    """
    before = {log: answered(models, port) for log, port in logs(models)}

    def count(path, ok, digest=None, under_way=0):
        kept = recorded(path)
        asked = sum(answered(models, port) - before.get(log, 0) for log, port in logs(models))
        counts = {
            "asked": asked,
            "kept": len(kept),
            "lost": ok - len(kept),
            "asked twice": max(asked - len(kept) - under_way, 0),
            "wrong digest": sum(one != (digest or kept[0]) for one in kept),
        }
        for name, value in counts.items():
            record_property(name, value)
        assert list(counts.values())[2:] == [0, 0, 0]

    return count


def test_a_killed_runner_costs_no_reply(ollama, tmp_path, tally):
    path = tmp_path / "killed.sqlite"
    killed = []

    def kill():
        for pid in runners(ollama):
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)

    thread = after(3, path, kill)
    replies = ask_all(model_of(ollama), path)
    thread.join()
    assert killed
    assert [reply.ok for reply in replies] == [True] * len(PROMPTS)
    tally(path, len(PROMPTS), under_way=2)


def test_a_server_that_is_started_again_is_asked_again(program, models, tmp_path, tally):
    port = serve_ollama.free_port()
    path = tmp_path / "again.sqlite"
    with contextlib.ExitStack() as stack:
        first = contextlib.ExitStack()
        address = first.enter_context(serve_ollama.serving(models, port, program))

        def restart():
            first.close()
            stack.enter_context(serve_ollama.serving(models, port, program))

        thread = after(3, path, restart)
        # a busy machine starts a server slowly
        replies = ask_all(model_of(address), path, retries=12)
        thread.join()
        assert [reply.ok for reply in replies] == [True] * len(PROMPTS)
        again = ask_all(model_of(address), path)
        assert [reply.cached for reply in again] == [True] * len(PROMPTS)
        tally(path, len(PROMPTS), under_way=2)


def test_a_deleted_model_fails_its_prompts_and_keeps_what_was_answered(ollama, tmp_path, tally):
    client = Client(ollama)
    path = tmp_path / "deleted.sqlite"
    client.copy("smollm2", "victim")
    thread = after(3, path, lambda: client.delete("victim"))
    replies = ask_all(model_of(ollama, "victim"), path)
    thread.join()
    failed = [reply for reply in replies if not reply.ok]
    assert failed
    assert {reply.error.kind for reply in failed} == {"no_model"}
    assert len(recorded(path)) >= 3
    tally(path, len(PROMPTS) - len(failed))


def test_a_model_replaced_under_its_name_is_noticed_and_no_reply_has_the_wrong_digest(
    ollama, tmp_path, tally
):
    client = Client(ollama)
    path = tmp_path / "replaced.sqlite"

    def digest():
        return next(
            model.digest for model in client.list().models if model.model == "changing:latest"
        )

    client.create(model="changing", from_="smollm2", parameters={"top_k": 40})
    before = digest()
    at_replacement = []

    def replace():
        client.create(model="changing", from_="smollm2", parameters={"top_k": 41})
        at_replacement.append(len(recorded(path)))

    thread = after(3, path, replace)
    replies = ask_all(model_of(ollama, "changing"), path)
    thread.join()
    assert digest() != before
    kept = recorded(path)
    assert kept.count(before) <= at_replacement[0]
    told = [str(reply.error) for reply in replies if not reply.ok]
    assert told
    assert "replaced" in told[0] or "digest" in told[0]
    tally(path, sum(reply.ok for reply in replies), before, under_way=len(told))


def test_four_callers_wait_for_a_server_with_a_queue_of_one(program, models, tmp_path, tally):
    port = serve_ollama.free_port()
    path = tmp_path / "queue.sqlite"
    one = {"OLLAMA_MAX_QUEUE": "1", "OLLAMA_NUM_PARALLEL": "1"}
    with serve_ollama.serving(models, port, program, **one) as address:
        replies = ask_all(model_of(address), path, concurrency=4)
        assert [reply.ok for reply in replies] == [True] * len(PROMPTS)
        tally(path, len(PROMPTS))


def test_ctrl_c_keeps_what_was_answered_and_the_server_stops_writing(ollama, tmp_path, tally):
    path = tmp_path / "stopped.sqlite"
    script = textwrap.dedent(f"""
        from ragbench.llm import Cassette, ask, chat_model
        model = chat_model("ollama:smollm2", host={ollama!r}, num_predict=400, num_ctx=2048)
        with Cassette({str(path)!r}) as cassette:
            ask(model, {PROMPTS!r}, cassette=cassette, on_length="keep", concurrency=1)
    """)
    process = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE, text=True)
    after(2, path, lambda: process.send_signal(signal.SIGINT)).join()
    said = process.communicate(timeout=120)[1]
    assert process.returncode != 0
    assert "recorded" in said
    kept = len(recorded(path))
    assert 2 <= kept < len(PROMPTS)
    tally(path, kept, under_way=1)
    model = chat_model("ollama:smollm2", host=ollama, num_predict=4, num_ctx=2048)
    began = time.monotonic()
    assert ask(model, ["Say yes."], on_length="keep")[0].ok
    # the answer that was under way does not hold the model any more
    assert time.monotonic() - began < 10


def test_a_full_disk_at_the_server_stops_no_answer_and_is_said_by_what_needs_room(
    program, models, tmp_path, tally
):
    full = tmp_path / "full.sh"
    # no file grows beyond two megabytes
    full.write_text(f'#!/bin/bash\nulimit -f 2000\nexec "{program}" "$@"\n')
    full.chmod(0o755)
    (tmp_path / "weights.gguf").write_bytes(bytes(5_000_000))
    port = serve_ollama.free_port()
    path = tmp_path / "full.sqlite"
    with serve_ollama.serving(models, port, str(full)) as address:
        with pytest.raises(ResponseError, match="file too large"):
            Client(address).create_blob(tmp_path / "weights.gguf")
        replies = ask_all(model_of(address), path)
        assert [reply.ok for reply in replies] == [True] * len(PROMPTS)
        tally(path, len(PROMPTS))
