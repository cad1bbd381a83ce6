"""What a third drill found: records, hangs, strangers' files, secrets, messages."""

import asyncio
import base64
import dataclasses
import hashlib
import html
import json
import os
import signal
import socket
import sqlite3
import threading
import time
from urllib.parse import quote

import httpx
import pytest
from fake_ollama import EMBEDDER, FakeOllama, Fault
from langchain_ollama import ChatOllama

from ragbench import notebooks
from ragbench.data import load_documents, load_questions
from ragbench.data.user import save_questions
from ragbench.errors import ConfigError, DataError
from ragbench.labelling.people import append_labels, load_labels
from ragbench.llm import Cassette, ask, chat_model
from ragbench.llm.endpoints import Endpoint
from ragbench.llm.failures import redact
from ragbench.llm.identity import identity
from ragbench.llm.structured import without_thinking
from ragbench.llm.wire import OllamaServer, Transport
from ragbench.prompts import load_prompt
from ragbench.records import Question
from ragbench.rows import load_rows
from ragbench.weights import RERANKER

FAST = {"progress": False, "backoff_s": 0.01}


def test_each_reply_keeps_the_version_the_date_and_what_held(tmp_path, fake):
    path = tmp_path / "c.sqlite"
    fake.window = 2048
    fake.modelfile = "num_predict 24"
    for version, prompts in (("0.24.0", ["a"]), ("0.25.1", ["a", "b"])):
        fake.version = version
        replies = ask(fake.model(), prompts, cassette=path, concurrency=1, **FAST)
    held = [reply.held for reply in replies]
    assert [one["server"] for one in held] == ["Ollama 0.24.0", "Ollama 0.25.1"]
    assert {one["num_ctx"] for one in held} == {2048}
    assert {one["num_predict"] for one in held} == {24}
    with Cassette(path) as cassette:
        (sent,) = cassette.rows("SELECT DISTINCT json_extract(request, '$.options') FROM replies")
        assert json.loads(sent[0])["options"]["num_ctx"] == 8192  # what was sent stays


def test_recorded_replies_are_served_when_the_model_was_removed(tmp_path, fake):
    path = tmp_path / "c.sqlite"
    ask(fake.model(), ["a"], cassette=path, **FAST)
    fake.models = {"other:latest": "0" * 64}
    kept, new = ask(fake.model(), ["a", "b"], cassette=path, **FAST)
    assert kept.cached
    assert new.error.kind == "no_model"


# -- the student's own objects


def test_an_own_chat_ollama_gets_the_bound_of_the_step_and_keeps_its_options(fake):
    own = ChatOllama(model="llama3:8b", base_url=fake.url, top_k=7)
    ask(own, ["p"], num_predict=5, **FAST)
    options = fake.calls[-1].body["options"]
    assert (options["num_predict"], options["top_k"]) == (5, 7)


def test_a_subclass_with_a_call_of_its_own_is_called(fake):
    from langchain_core.messages import AIMessage
    from langchain_core.outputs import ChatGeneration, ChatResult

    class Mine(ChatOllama):
        def _generate(self, messages, stop=None, run_manager=None, **kwargs):
            return ChatResult(generations=[ChatGeneration(message=AIMessage(content="mine"))])

    (reply,) = ask(Mine(model="llama3:8b", base_url=fake.url), ["p"], **FAST)
    assert reply.text == "mine"
    assert not fake.calls


@pytest.mark.parametrize("fails", [False, True])
def test_rate_limiter_and_callbacks_of_an_own_chat_ollama_are_called(fake, fails):
    from langchain_core.callbacks import BaseCallbackHandler
    from langchain_core.rate_limiters import BaseRateLimiter

    seen = []

    class Limiter(BaseRateLimiter):
        def acquire(self, *, blocking=True):
            seen.append("limiter")
            return True

        async def aacquire(self, *, blocking=True):
            return True

    class Handler(BaseCallbackHandler):
        def on_chat_model_start(self, serialized, messages, **kwargs):
            seen.append(messages[0][0].content)

        def on_llm_end(self, response, **kwargs):
            seen.append(response.generations[0][0].text)

        def on_llm_error(self, error, **kwargs):
            seen.append("error")

    if fails:
        fake.fault = lambda prompt, before: Fault("dropped", 1)
    own = {"rate_limiter": Limiter(), "callbacks": [Handler()]}
    (reply,) = ask(
        ChatOllama(model="llama3:8b", base_url=fake.url, **own), ["p"], retries=0, **FAST
    )
    assert reply.ok != fails
    assert seen == ["limiter", "p", "error" if fails else reply.text]


def test_a_model_answers_in_two_loops_one_after_the_other(fake):
    model = fake.model()
    first, second = (asyncio.run(model.ainvoke("x")).content for _ in range(2))
    assert first == second


@pytest.mark.parametrize("version", ["0.24.0", "0.30.0"])
def test_a_prompt_that_ollama_cuts_behind_v1_is_truncated(fake, version):
    fake.version = version
    fake.counted = 4096 if version == "0.24.0" else 17
    model = chat_model("openai:llama3:8b", host=f"{fake.url}/v1")
    (reply,) = ask(model, ["A word of a prompt. " * 1500], **FAST)
    assert reply.error.kind == "truncated"
    assert "ollama:NAME" in reply.error.do
    fake.counted = None
    assert ask(model, ["short"], **FAST)[0].ok


# -- hangs


def server_that_says(first, then, seconds):
    """Listen; answer the first request with some bytes, and go on with others."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve():
        connection, _ = listening.accept()
        connection.recv(65536)
        end = time.monotonic() + seconds
        try:
            connection.sendall(first)
            while time.monotonic() < end:
                connection.sendall(then)
                time.sleep(0.05)
        except OSError:
            pass

    threading.Thread(target=serve, daemon=True).start()
    return listening.getsockname()[1]


def test_a_server_that_says_continue_for_ever_ends_by_the_deadline(monkeypatch):
    port = server_that_says(b"", b"HTTP/1.1 100 Continue\r\n\r\n", 20)
    model = chat_model("openai:m", host=f"http://127.0.0.1:{port}/v1", digest="d", deadline_s=0.5)
    monkeypatch.setattr("ragbench.llm.endpoints._OpenAIEndpoint.check", lambda self: None)
    start = time.monotonic()
    (reply,) = ask(model, ["p"], retries=0, **FAST)
    assert time.monotonic() - start < 5
    assert reply.error.kind == "timeout"


OF_CHECK = ("/api/show", "/api/version", "/api/ps")


@pytest.mark.parametrize("silent", [OF_CHECK, OF_CHECK[:1], ("/api/tags",)])
@pytest.mark.parametrize("name", ["ollama:llama3:8b", "openai:m"])
def test_what_is_asked_beside_the_prompts_ends_by_the_deadline_and_is_said(
    fake, monkeypatch, caplog, name, silent
):
    monkeypatch.setattr("ragbench.llm.endpoints.SILENCE_S", 0.1)
    fake.silent = silent
    model = fake.model(name, deadline_s=1)
    start = time.monotonic()
    (reply,) = ask(model, ["p"], retries=0, **FAST)
    assert time.monotonic() - start < 4
    is_asked = name.startswith("ollama") or "/api/version" in silent
    time.sleep(0 if is_asked else 0.2)  # a quick answer is not said later either
    assert ("after 0.1 s it is not known yet" in caplog.text) == is_asked
    assert reply.ok == (name.startswith("openai") or silent != ("/api/tags",))
    assert reply.ok or "no list of its models after 1 s" in str(reply.error)


def test_the_list_of_models_and_the_look_at_one_share_a_deadline(fake):
    list_models = fake.others["/api/tags"]
    waits = [1.2]  # before the first list

    def slow_list(body):
        if waits:
            time.sleep(waits.pop())
        return list_models(body)

    fake.others["/api/tags"] = slow_list
    fake.silent = ("/api/show",)
    start = time.monotonic()
    (reply,) = ask(fake.model("ollama:llama3:8b", deadline_s=2), ["p"], retries=0, **FAST)
    assert reply.ok
    assert time.monotonic() - start < 2.8  # not 1.2 and 2 more


@pytest.mark.posix
def test_a_server_that_takes_no_connection_is_down():
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listening:
        port = listening.getsockname()[1]
        waiting = [socket.socket() for _ in range(3)]
        for client in waiting:  # nobody accepts them: others find no room
            client.setblocking(False)
            client.connect_ex(("127.0.0.1", port))
        model = chat_model("ollama:m", host=f"127.0.0.1:{port}", deadline_s=1)
        (reply,) = ask(model, ["p"], retries=0, **FAST)
        for client in waiting:
            client.close()
    assert reply.error.kind == "down"


def test_a_redirect_is_not_waited_for():
    start = time.monotonic()
    with httpx.Client() as _:
        transport = httpx.MockTransport(
            lambda request: (
                httpx.Response(307, headers={"location": "http://other.example"})
                if request.method == "POST"
                else httpx.Response(200, json={"models": [{"model": "m:latest", "digest": "d"}]})
            )
        )
        model = chat_model("ollama:m", client_kwargs={"transport": transport})
        (reply,) = ask(model, ["p"], retries=0, **FAST)
    assert time.monotonic() - start < 5
    assert reply.error.status == 307


# -- strangers' cassettes


@pytest.mark.parametrize("answer", ["NULL", "7", "'[1]'", "x'00ff'", "'{\"ok\": true}'", "'{'"])
def test_an_answer_that_is_none_is_told_with_its_prompt(tmp_path, fake, answer):
    path = tmp_path / "c.sqlite"
    ask(fake.model(), ["a"], ids=["one"], cassette=path, **FAST)
    text = answer.strip("'") if answer[0] == "'" else ""
    import hashlib

    digest = hashlib.sha256(text.encode()).hexdigest()
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE loose AS SELECT * FROM replies")
        db.execute(f"UPDATE loose SET answer = {answer}, checksum = '{digest}'")
        db.execute("DROP TABLE replies")
        db.execute("ALTER TABLE loose RENAME TO replies")
    with pytest.raises(DataError, match="'one'"):
        ask(fake.model(), ["a"], cassette=path, **FAST)


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("CREATE VIEW more AS SELECT 1", "view"),
        ("CREATE TRIGGER t BEFORE INSERT ON replies BEGIN SELECT RAISE(IGNORE); END", "trigger"),
        ("ALTER TABLE replies ADD COLUMN more", "columns"),
        ("DROP TABLE replies; CREATE VIEW replies AS SELECT 1 AS key", "view"),
        # it may never end: it is not read
        ("DROP TABLE about; CREATE VIEW about AS SELECT 0 name, abs(-1 << 63) value", "view about"),
        ("CREATE INDEX i ON replies (hex(zeroblob(1)))", "index i"),
        ("ALTER TABLE replies ADD COLUMN more AS (hex(key))", "'more'"),
    ],
)
@pytest.mark.parametrize("mode", ["record", "replay"])
def test_a_file_of_other_tables_is_refused_at_the_door(tmp_path, sql, words, mode):
    path = tmp_path / "c.sqlite"
    Cassette(path).close()
    with sqlite3.connect(path) as db:
        db.executescript(sql)
    with pytest.raises(DataError, match=words):
        Cassette(path, mode)


# -- what may never end

READERS = {
    "c.sqlite": lambda path: Cassette(path, "replay"),
    "new.sqlite": Cassette,
    "c.jsonl": lambda path: Cassette(path.with_name("d.sqlite")).import_(path),
    "l.csv": load_labels,
    "in a folder.csv": lambda path: load_labels(path.parent),
    "more.csv": lambda path: append_labels(path, [SAID]),
    "q.jsonl": load_questions,
    "q.csv": load_questions,
    "to.jsonl": lambda path: save_questions([Question("q", "Who?", "Ada")], path),
    "d.txt": load_documents,
    "d.html": load_documents,
    "d.pdf": load_documents,
    "p.txt": load_prompt,
    "n.ipynb": notebooks.execute,
    "manifest.json": lambda path: load_rows(path.parent),
}
SAID = {"kind": "draft", "item": "q", "aspect": "draft", "label": "accept", "annotator": "me"}


@pytest.fixture
def _ends():
    """End a call that hangs."""

    def end(*_):
        raise TimeoutError("it hangs")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(120)  # a first import may take 20 s
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.posix
@pytest.mark.usefixtures("_ends")
@pytest.mark.parametrize("name", READERS)
def test_a_pipe_under_the_name_of_a_file_is_refused(tmp_path, name):
    (tmp_path / "rows.jsonl").touch()
    os.mkfifo(tmp_path / name)
    with pytest.raises(DataError, match="is a pipe or a device"):
        READERS[name](tmp_path / name)


def test_a_lock_that_another_process_keeps_is_waited_for_and_named(tmp_path, fake, monkeypatch):
    monkeypatch.setattr("ragbench.llm.cassette._WAIT_S", 0.2)
    path = tmp_path / "c.sqlite"
    with Cassette(path) as cassette, sqlite3.connect(path, isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(DataError, match="another process has kept it locked"):
            ask(fake.model(), ["a"], cassette=cassette, **FAST)
        with pytest.raises(DataError, match="another process has kept it locked"):
            Cassette(path)


# -- secrets

SECRET = 'k3y with/odd+signs"in it'
MORE_SIGNS = """k3y<with>odd&signs"in'it"""


@pytest.mark.parametrize(
    "form",
    [
        SECRET,
        quote(SECRET, safe=""),
        quote(SECRET, safe="").replace("%2F", "%2f").replace("%2B", "%2b"),
        json.dumps(SECRET),
        json.dumps(SECRET).replace("/", "\\/"),
        html.escape(SECRET),
        base64.b64encode(SECRET.encode()).decode(),
        base64.b64encode(f"user:{SECRET}".encode()).decode(),
        base64.urlsafe_b64encode(f"u:{SECRET}".encode()).decode(),
    ],
)
def test_a_secret_is_hidden_in_every_form_that_a_server_can_echo(form):
    shown = redact(f"refused: {form}!", [SECRET])
    assert "[secret]" in shown
    assert SECRET[4:12] not in shown
    assert form[8:20] not in shown


@pytest.mark.parametrize(
    "form",
    [
        quote(quote(MORE_SIGNS, safe=""), safe=""),
        json.dumps(json.dumps(MORE_SIGNS)[1:-1])[1:-1],
        json.dumps(html.escape(MORE_SIGNS))[1:-1],
        # as servers in Go write them
        "k3y\\u003cwith\\u003eodd\\u0026signs\\\"in'it",
        "k3y&lt;with&gt;odd&amp;signs&#34;in&#39;it",
        MORE_SIGNS.encode().hex(),
        MORE_SIGNS.encode().hex().upper(),
    ],
)
def test_a_secret_is_hidden_though_it_was_written_twice_by_go_or_in_digits(form):
    assert redact(f"refused: {form}!", [MORE_SIGNS]) == "refused: [secret]!"


OWN = "mine-0123456789"
PAIR = base64.b64encode(f"user:{OWN}".encode()).decode()
OF_OLLAMA = [
    {"headers": {"X-Own": OWN}},
    {"params": {"token": OWN}},
    {"params": {"key": OWN}},
    {"auth": ("user", OWN)},
    {"cookies": {"visit": OWN}},
]
OF_OPENAI = [
    {"api_key": OWN},
    {"default_headers": {"X-Own": OWN}},
    {"default_headers": {"Authorization": f"Basic {PAIR}"}},
    {"default_query": {"sig": OWN, "version": "2026"}},
    {"model_kwargs": {"extra_headers": {"X-Own": OWN}}},
    {"model_kwargs": {"extra_query": {"sig": OWN}}},
    {"extra_body": {"access": {"api_key": OWN}}},
]


@pytest.mark.parametrize("is_refused", [False, True])
@pytest.mark.parametrize(
    ("name", "given"),
    [
        *(("ollama:llama3:8b", {"client_kwargs": given}) for given in OF_OLLAMA),
        *(("openai:m", given) for given in OF_OPENAI),
    ],
)
def test_a_secret_that_the_server_echoes_stands_in_no_reply_and_no_file(
    name, given, is_refused, tmp_path
):
    words = f"on 2026 you sent {OWN}"
    with FakeOllama(reply=lambda body: words) as fake:
        if is_refused:
            fake.fault = lambda prompt, before: Fault("refused", words)
        model = fake.model(name, **given)
        replies = ask(model, ["p"], cassette=tmp_path / "c.sqlite", retries=0, **FAST)
    (reply,) = replies
    assert (reply.text == "on 2026 you sent [secret]") != is_refused
    assert reply.ok != is_refused
    seen = f"{replies} {Endpoint.of(model).options} {identity(model)}"
    for path in tmp_path.iterdir():
        seen += path.read_bytes().decode("latin-1")
    assert OWN not in seen
    assert PAIR not in seen
    assert ("default_query" in given) == ("'version': '2026'" in str(identity(model)))


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("openai:m", {"openai_proxy": f"http://user:{OWN}@proxy"}),
        ("openai:m", {"openai_proxy": f"user:{OWN}@proxy"}),
        ("ollama:m", {"client_kwargs": {"proxy": f"user:{OWN}@proxy"}}),
    ],
)
def test_the_password_of_a_proxy_stands_in_no_message(fake, name, given):
    with pytest.raises(ConfigError, match="proxy") as caught:
        fake.model(name, **given)
    assert OWN not in str(caught.value)


# -- messages


@pytest.mark.parametrize("proxy", ["[::1]", "fe80::/10", "localhost,[::1]"])
def test_no_proxy_in_any_form_stops_no_local_model(fake, monkeypatch, proxy):
    monkeypatch.setenv("NO_PROXY", proxy)
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:1")
    assert ask(fake.model(), ["p"], **FAST)[0].ok
    assert ask(fake.model("openai:m"), ["p"], **FAST)[0].ok


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("::1:11435", "http://[::1]:11435"),
        ("::1:8080", "http://[::1]:8080"),
        ('"gpu1:11434" ', "http://gpu1:11434"),
        ("'http://gpu1'", "http://gpu1"),
        ("fe80::1", "http://[fe80::1]:11434"),
    ],
)
def test_addresses_as_people_write_them(host, address):
    assert Transport.address(host, 11434) == address


def test_messages_name_the_way_out(fake):
    with pytest.raises(ConfigError, match="openai:NAME"):
        OllamaServer(f"{fake.url}/v1", timeout_s=1)
    with pytest.raises(ConfigError, match="reasoning_effort"):
        fake.model("openai:m", reasoning=False)
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    with pytest.raises(ConfigError, match="texts: images"):
        ask(fake.model(), [[{"role": "user", "content": [image]}]], **FAST)
    fake.others["/api/tags"] = lambda _: (404, b"not found")
    (reply,) = ask(fake.model(), ["p"], **FAST)
    assert reply.error.kind == "down"
    assert "pull" not in reply.error.do


def test_a_chat_model_is_asked_for_where_one_makes_vectors():
    with FakeOllama({EMBEDDER: "0" * 64}) as fake:
        (reply,) = ask(fake.model(f"ollama:{EMBEDDER}"), ["p"], **FAST)
    assert "name a chat model" in reply.error.do


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ({"choices": []}, "server"),
        ({"error": {"message": "the request exceeds the available context size"}}, "truncated"),
    ],
)
def test_odd_replies_of_status_200_have_their_kind(body, kind):
    transport = httpx.MockTransport(lambda request: httpx.Response(200, json=body))
    client = httpx.Client(transport=transport)
    model = chat_model("openai:m", host="http://made.example", digest="d", http_client=client)
    (reply,) = ask(model, ["p"], retries=0, **FAST)
    assert (reply.error.kind, "out of range" in str(reply.error)) == (kind, False)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<think>a</think>b", "b"),
        ("a\n</think>\n\nb", "b"),
        ("Close it with </think>, then answer.", "Close it with </think>, then answer."),
        ("The tag </think>; and more", "The tag </think>; and more"),
        ("<think>a", None),
        ("Say `</think>` and </think>. Done", "Say `</think>` and </think>. Done"),
        ("First. <think>a</think> Second.", "First. <think>a</think> Second."),
    ],
)
def test_only_a_leading_or_unclosed_block_is_thought(text, answer):
    assert without_thinking(text) == answer


# -- weights


def test_flipped_bits_with_the_files_time_kept_end_the_run(tmp_path, monkeypatch):
    import shutil

    from ragbench import embedding
    from ragbench.weights import MINILM

    folder = tmp_path / "weights"
    shutil.copytree(MINILM.folder(), folder)
    monkeypatch.setenv("RAGBENCH_MINILM", str(folder))
    monkeypatch.setenv("RAGBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(embedding, "_intact", embedding._intact.__wrapped__)
    embedding.MiniLM().embed_array(["a"])
    flip_bits(folder / "model.safetensors", 5_000_000)
    with pytest.raises(DataError, match="was changed"):
        embedding.MiniLM().embed_array(["a"])


def flip_bits(file, start):
    times = file.stat()
    with file.open("r+b") as weights:
        weights.seek(start)
        part = weights.read(200)
        weights.seek(start)
        weights.write(bytes(each ^ 1 for each in part))
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))


def test_flipped_bits_of_the_reranker_are_found(tmp_path, monkeypatch):
    monkeypatch.setenv("OF_TEST", str(tmp_path))
    monkeypatch.setenv("RAGBENCH_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "model.onnx"
    file.write_bytes(bytes(1000))
    right = {file.name: hashlib.sha256(bytes(1000)).hexdigest()}
    weights = dataclasses.replace(RERANKER, published=right, variable="OF_TEST")
    assert weights.verified() == tmp_path
    weights.digests(tmp_path)  # remembered
    flip_bits(file, 400)
    with pytest.raises(DataError, match=r"model\.onnx was changed"):
        weights.verified()


def test_flipped_bits_of_a_local_model_end_the_run(tmp_path, monkeypatch):
    monkeypatch.setenv("RAGBENCH_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "own.gguf"
    file.write_bytes(bytes(1000))
    model = chat_model(f"gguf:{file}")
    Endpoint.of(model).fetch_digest()  # remembered
    flip_bits(file, 400)
    (reply,) = ask(model, ["p"], retries=0, **FAST)
    assert reply.error.kind == "no_model"
    assert "is not the file whose sha256 was noted" in str(reply.error)


def test_a_note_of_a_digest_that_was_cut_is_made_anew(tmp_path, monkeypatch):
    from ragbench.paths import sha256_of

    monkeypatch.setenv("RAGBENCH_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "file"
    file.write_bytes(b"x")
    digest = sha256_of(file, remembered=True)
    (note,) = (tmp_path / "cache" / "sha256").iterdir()
    note.write_text("")
    assert sha256_of(file, remembered=True) == digest
