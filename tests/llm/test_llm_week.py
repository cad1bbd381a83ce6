"""What a student meets in a week with Ollama: windows, thinking, queues, clouds, proxies, plans."""

from __future__ import annotations

import ast
import contextlib
import json
import shutil
import ssl
import subprocess
import threading
import time
from pathlib import Path
from typing import Literal

import httpx
import pytest
from fake_ollama import DIGEST, FakeOllama, Fault, press_ctrl_c
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_ollama import ChatOllama
from langsmith.utils import get_env_var, tracing_is_enabled
from pydantic import BaseModel

import ragbench.llm
from ragbench.doctor import checks
from ragbench.embedding import make_embedder
from ragbench.errors import ModelError
from ragbench.llm import Cassette, Usage, ask, chat_model, plan
from ragbench.llm.endpoints import Endpoint
from ragbench.llm.wire import Transport

FAST = {"backoff_s": 0.01, "progress": False}


class Label(BaseModel):
    label: Literal["yes", "no"]


def private_names(source):
    """Attributes with a leading underscore of anything but the module's own objects."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_"):
            owner = getattr(node.value, "id", "")
            if owner not in ("self", "cls", "os") and not node.attr.startswith("__"):
                yield f"{ast.unparse(node)} (line {node.lineno})"


@pytest.mark.parametrize(
    "path", sorted(Path(ragbench.llm.__file__).parent.glob("*.py")), ids=lambda path: path.name
)
def test_no_private_attribute_of_another_library_is_read(path):
    assert list(private_names(path.read_text(encoding="utf-8"))) == []


def test_a_prompt_of_a_plain_chat_ollama_is_refused_and_never_cut(fake):
    plain = ChatOllama(model="llama3:8b", base_url=fake.url)  # the server's window of 4,096 tokens
    (reply,) = ask(plain, ["word " * 5000], **FAST)
    assert (reply.error.kind, fake.calls[0].body["truncate"]) == ("truncated", False)
    ask(plain, ["short"], **FAST)
    endpoint = Endpoint.of(plain)
    endpoint.loaded()
    assert endpoint.num_ctx == 4096


def test_a_local_name_for_a_model_of_the_cloud_gets_no_prompt_unless_asked_for(fake):
    fake.remote_host = "https://ollama.com:443"
    (reply,) = ask(fake.model(), ["p"], **FAST)
    assert (reply.error.kind, fake.calls) == ("no_model", [])
    assert "ollama.com" in reply.error.got
    assert "cloud=True" in reply.error.do
    assert ask(fake.model(digest=DIGEST), ["p"], **FAST)[0].error.kind == "no_model"
    assert ask(fake.model(cloud=True), ["p"], **FAST)[0].ok
    assert (
        Endpoint.identified(fake.model(cloud=True)).weights
        == "8.0B, Q4_0, run at https://ollama.com:443"
    )


def test_a_digest_that_is_named_is_held_against_that_of_the_server(fake):
    (reply,) = ask(fake.model(digest=DIGEST[:12]), ["p"], **FAST)
    assert (reply.error.kind, fake.calls) == ("digest", [])
    assert f"the server has {DIGEST}, not {DIGEST[:12]}" in reply.error.got
    assert "correct digest=" in reply.error.do
    (reply,) = ask(fake.model(digest=DIGEST), ["p"], **FAST)
    assert (reply.ok, reply.digest) == (True, DIGEST)


@pytest.mark.parametrize(("options", "think"), [({}, False), ({"reasoning": True}, True)])
def test_labels_are_asked_without_thinking_unless_the_user_says_so(fake, options, think):
    ask(fake.model(**options), ["p"], schema=Label, **FAST)
    ask(fake.model(**options), ["p"], **FAST)
    assert [call.body.get("think") for call in fake.calls] == [think, options.get("reasoning")]


def test_prompts_are_asked_one_by_one_and_seconds_are_the_servers_own(fake):
    fake.latency_s = 0.05
    replies = ask(fake.model(), [f"p{n}" for n in range(4)], **FAST)
    assert fake.most_at_once == 1
    for reply in replies:
        usage = reply.usage
        assert reply.seconds == usage.prompt_seconds + usage.output_seconds < fake.latency_s


@pytest.mark.parametrize(("writing_s", "late"), [(0.2, False), (2.0, True)])
def test_the_deadline_begins_with_the_first_byte(writing_s, late):
    def pieces():
        for _ in range(10):
            time.sleep(writing_s / 10)
            yield b"x"

    def after_its_turn(request):
        time.sleep(0.5)
        return httpx.Response(200, content=pieces())

    client = httpx.Client(transport=Transport(httpx.MockTransport(after_its_turn)), timeout=0.6)
    with pytest.raises(httpx.ReadTimeout) if late else contextlib.nullcontext():
        assert client.get("http://made").text == "x" * 10


def test_a_plan_counts_no_reply_of_other_options(fake, tmp_path):
    with Cassette(tmp_path / "c.sqlite") as cassette:
        ask(fake.model(num_ctx=1024), ["a", "b"], cassette=cassette, step="s", **FAST)
        same = {"num_ctx": 1024}
        for options, cached in (
            (same, 2),
            ({"num_ctx": 2048}, 0),
            (same | {"temperature": 0.9}, 0),
        ):
            assert plan({"s": 2}, fake.model(**options), cassette)["s"].cached == cached


def recorded(cassette, seconds, tokens=(0, 0), speeds=(0.0, 0.0)):
    """Put a reply of a step on a cassette: tokens read and written, and seconds for a token."""
    usage = Usage(1, *tokens, 0, tokens[0] * speeds[0], tokens[1] * speeds[1], seconds)
    who = {"provider": "ollama", "model": "llama3:8b", "digest": "d", "options": {}}
    answer = {"ok": True, "seconds": seconds, "usage": usage.to_dict()}
    request = json.dumps(who | {"messages": [], "schema": None})
    cassette.put(str(len(cassette)), request, answer, step="s")


def test_a_plan_takes_the_latest_calls_and_says_their_range(fake, tmp_path):
    with Cassette(tmp_path / "c.sqlite") as cassette:
        for number in range(25):
            recorded(cassette, 100.0 if number < 5 else 2.0 + number % 2)
        (step,) = plan({"s": 10}, fake.model(), cassette)
    assert step.seconds == pytest.approx(25)
    assert "2.0 to 3.0, the latest 20 recorded" in step.basis


@pytest.mark.parametrize(("good", "asked"), [(None, 20), (3, 60)])
def test_a_run_whose_labels_all_fail_ends_after_a_few(fake, good, asked):
    def fault(prompt, before):
        return None if prompt == f"p{good}" else Fault("answer", "not JSON")

    fake.fault = fault
    replies = ask(fake.model(), [f"p{n}" for n in range(60)], schema=Label, **FAST)
    assert len(fake.calls) == asked + (asked - (good is not None))  # each with one repair
    assert {reply.error.kind for reply in replies if not reply.ok} == {"unusable"}


# -- the wire


@pytest.fixture
def certificate(tmp_path, monkeypatch):
    """The file of a certificate that a server has signed by itself, and of its key."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate")
    # the tests read no certificates else
    monkeypatch.setattr(
        "ssl.SSLContext.load_verify_locations", ssl.SSLContext.__base__.load_verify_locations
    )
    file = tmp_path / "own.pem"
    name = "-subj /CN=gpu1 -addext subjectAltName=IP:127.0.0.1"
    make = (
        f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 {name} -keyout {file} -out {file}.crt"
    )
    subprocess.run(make.split(), check=True, capture_output=True)
    file.write_text(file.read_text() + Path(f"{file}.crt").read_text())
    return str(file)


def test_a_certificate_of_ones_own_is_named_trusted_by_its_file_or_not_looked_at(
    certificate, monkeypatch
):
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate)
    with FakeOllama(tls=tls) as fake:
        (refused,) = ask(fake.model(), ["p"], **FAST)
        assert "CERTIFICATE_VERIFY_FAILED" in refused.error.got
        assert "SSL_CERT_FILE" in refused.error.do
        assert fake.calls == []
        with pytest.raises(ModelError, match="SSL_CERT_FILE"):
            make_embedder("ollama:bge-m3", host=fake.url).embedder.embed_array(["p"])
        monkeypatch.setenv("OLLAMA_HOST", fake.url)
        assert "CERTIFICATE_VERIFY_FAILED" in checks()[-1].what
        assert ask(fake.model(client_kwargs={"verify": False}), ["p"], **FAST)[0].ok
        trusting = {"verify": ssl.create_default_context(cafile=certificate)}
        assert ask(fake.model(client_kwargs=trusting), ["p"], **FAST)[0].ok
        monkeypatch.setenv("SSL_CERT_FILE", certificate)
        assert ask(fake.model(), ["p"], **FAST)[0].ok
        assert checks()[-1].ok


@pytest.mark.parametrize(
    ("host", "proxy"),
    [
        ("http://localhost:11434", None),
        ("http://127.0.0.1:1", None),
        ("http://[::1]:1", None),
        ("http://gpu1:11434", "http://proxy:3128"),
        ("http://inside:11434", None),
    ],
)
def test_loopback_is_asked_directly_and_others_by_the_environments_proxy(host, proxy, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://proxy:3128")
    monkeypatch.setenv("no_proxy", "inside,[::1]")
    proxies = []

    def transport(proxy, verify, **_):
        proxies.append(proxy)
        assert verify.verify_mode == ssl.CERT_REQUIRED
        return httpx.MockTransport(lambda request: httpx.Response(200))

    monkeypatch.setattr(httpx, "HTTPTransport", transport)
    httpx.Client(transport=Transport()).get(host)
    assert proxies == [proxy]


@pytest.mark.parametrize("what", ["chat", "embedding", "doctor"])
def test_a_server_behind_a_proxy_is_reached_through_it_by_whatever_asks(what, monkeypatch):
    host = "http://gpu1.example:11434"
    with FakeOllama() as proxy:  # the double is no proxy, but is asked
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.setenv("OLLAMA_HOST", host)
        if what == "chat":
            ask("ollama:llama3:8b", ["p"], **FAST)
        elif what == "embedding":
            with pytest.raises(ModelError):
                make_embedder("ollama:bge-m3").embedder.embed_array(["p"])
        else:
            checks()
    assert proxy.calls or proxy.other


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("SSL_CERT_FILE", "/no/such/file", "/no/such/file"),
        ("all_proxy", "socks5://ann:secret@proxy:1", "the proxy of the environment"),
    ],
)
def test_an_environment_that_cannot_be_used_troubles_no_replay(
    fake, tmp_path, monkeypatch, variable, value, said
):
    path = tmp_path / "c.sqlite"
    ask(fake.model(digest=DIGEST), ["p"], cassette=path, **FAST)
    monkeypatch.setenv(variable, value)

    def refuse(*arguments, **named):
        raise FileNotFoundError(2, "No such file or directory")

    if variable == "SSL_CERT_FILE":  # the tests read no certificates else
        monkeypatch.setattr("ssl.SSLContext.load_verify_locations", refuse)
    tape = Cassette(path, "replay")
    model = chat_model("ollama:llama3:8b", host="http://gpu1.example:11434")
    assert ask(model, ["p"], cassette=tape)[0].cached
    (reply,) = ask(model, ["p"], **FAST)
    assert (reply.error.kind, said in str(reply.error)) == ("down", True)
    assert "secret" not in str(reply.error)


def test_a_busy_server_is_waited_for_with_pauses_as_long_as_patience_lasts():
    start = time.monotonic()
    with FakeOllama(fault=lambda prompt, before: Fault("429", 0)) as fake:
        (reply,) = ask(fake.model(), ["p"], patience_s=4, backoff_s=0.5, progress=False)
        assert 2 <= len(fake.calls) < 9  # pauses of .5 to 1 s, then twice as long
    assert reply.error.kind == "busy"
    assert time.monotonic() - start >= 4


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("server busy, please try again", "busy"),
        ("the input length exceeds the context length", "truncated"),
        ("unexpected EOF", "server"),
    ],
)
def test_an_error_inside_a_reply_of_200_keeps_its_kind(words, kind):
    with FakeOllama(fault=lambda prompt, before: Fault("error_line", words)) as fake:
        (reply,) = ask(fake.model(), ["p"], retries=0, patience_s=0, **FAST)
    assert reply.error.kind == kind


def test_half_a_surrogate_pair_is_unusable_and_tried_once(fake):
    (reply,) = ask(chat_model("openai:made", host=fake.url), ["\ud800"], **FAST)
    assert (reply.error.kind, reply.attempts) == ("unusable", 1)


class Watching(BaseChatModel):
    """Answers whether LangSmith would be told of the prompt."""

    @property
    def _llm_type(self):
        return "watching"

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        said = AIMessage(content=f"traced: {tracing_is_enabled()}")
        return ChatResult(generations=[ChatGeneration(message=said)])


def test_prompts_are_not_traced(monkeypatch):
    monkeypatch.setenv("LANGSMITH_TRACING", "true")
    monkeypatch.setenv("LANGSMITH_ENDPOINT", "http://127.0.0.1:9")
    get_env_var.cache_clear()
    assert ask(Watching(), ["p"], **FAST)[0].text == "traced: False"
    get_env_var.cache_clear()


def test_ctrl_c_lets_go_of_the_call_under_way_though_the_server_says_nothing():
    def silent(prompt, before):
        threading.Thread(target=press_ctrl_c).start()  # once the call is there
        return Fault("no_bytes", 60)

    with FakeOllama(fault=silent) as fake:
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            ask(fake.model(), ["p"], **FAST)
        fake.wait_for_quiet(10)
        assert time.monotonic() - began < 10
        assert fake.under_way == 0


@pytest.mark.parametrize(
    ("words", "remedy", "option"),
    [
        ("'max_tokens' is not supported, use 'max_completion_tokens'", "'max_tokens': None",
         {"extra_body": {"max_tokens": None}}),
        ("'temperature' does not support 0", "temperature=1", {"temperature": 1}),
    ],
)  # fmt: skip
def test_a_gateway_that_refuses_a_parameter_is_said_with_the_option_that_helps(
    fake, words, remedy, option
):
    fake.fault = lambda prompt, before: Fault("refused", words)
    (reply,) = ask(fake.model("openai:made"), ["p"], **FAST)
    assert reply.error.kind == "unusable"
    assert remedy in reply.error.do
    fake.fault = None
    assert ask(fake.model("openai:made", **option), ["p"], **FAST)[0].ok
    sent = fake.calls[-1].body
    assert ("max_tokens" in sent) == ("extra_body" not in option)
    assert sent["temperature"] == option.get("temperature", 0)
    assert {sent.get("max_tokens"), sent.get("max_completion_tokens")} == {None, 2048}
