"""Every way a call can go wrong has a name, a host, a model and a remedy; and no secret gets out."""

from __future__ import annotations

import json
import logging
import pickle
import socket
import time
import traceback

import httpx
import pytest
from fake_ollama import FakeOllama, Fault

from ragbench.errors import ModelError
from ragbench.llm import KINDS, CallError, Cassette, ask, chat_model
from ragbench.llm.failures import failure, from_exception, from_status, redact

KEY = "sk-verysecretkey1234567890"


def once(fault=None, prompt="p", host=None, spec="ollama:llama3:8b", **options):
    """Ask one prompt of a server with one fault that stays; return the reply."""
    server = {name: options.pop(name) for name in ("api_key",) if name in options}
    key = options.pop("key", None)
    with FakeOllama(fault=lambda p, n: fault, **server) as fake:
        model = chat_model(spec, host=host or fake.url, api_key=key)
        return ask(model, [prompt], retries=1, backoff_s=0.01, progress=False, **options)[0]


CASES = {
    # fault, kind, words in the message, words in the remedy
    "HTTP 500": (Fault("500"), "server_error", "HTTP 500: an error was encountered", "journalctl"),
    "out of memory": (Fault("oom"), "out_of_memory", "more system memory (9.3 GiB)", "lower num_ctx"),
    "not pulled": (Fault("404"), "no_model", "model 'llama3:8b' not found", "ollama pull llama3:8b"),
    "no money": (Fault("402"), "quota", "HTTP 402: insufficient balance", "raise the account's limit"),
    "wrong key": (Fault("401"), "auth", "HTTP 401: unauthorized", "OLLAMA_API_KEY"),
    "bad option": (Fault("400"), "bad_request", "invalid options: mirostat", "change that option"),
    "garbage": (Fault("garbage"), "garbage", "not JSON", "http://localhost:11434"),
    "other JSON": (Fault("no_reply"), "garbage", "no reply of Ollama's", "http://localhost:11434"),
    "proxy page": (Fault("html"), "html", "a web page", "NO_PROXY=127.0.0.1"),
    "proxy 502": (Fault("html_502"), "html", "HTTP 502: a web page", "NO_PROXY=127.0.0.1"),
    "dropped": (Fault("dropped"), "dropped", "the connection broke off", "log"),
    "hung up": (Fault("hang_up"), "dropped", "the connection broke off", "log"),
    "no end mark": (Fault("no_end_mark"), "unfinished", "without its end mark", "log"),
    "half a line": (Fault("half_line"), "unfinished", "broke off inside a line", "log"),
    "error in stream": (Fault("error_line", "unexpected EOF"), "server_error", "error inside the stream", "log"),
    "memory in stream": (Fault("error_line", "CUDA error: out of memory"), "out_of_memory", "CUDA", "smaller"),
    "empty": (Fault("answer", ""), "empty", "an empty answer", "num_predict"),
    "blank": (Fault("answer", " \n "), "empty", "an empty answer", "num_predict"),
    "cut off": (Fault("truncated"), "truncated", "cut off after 1 tokens (num_predict=2048", "num_predict"),
    "filtered": (Fault("finish", "content_filter"), "refused", "'content_filter'", "look at the prompt"),
    "only loaded": (Fault("finish", "load"), "unfinished", "'load'", "log"),
}


@pytest.mark.parametrize("name", CASES)
def test_each_failure_has_its_kind_its_words_and_its_remedy(name):
    fault, kind, words, remedy = CASES[name]
    reply = once(fault)
    assert not reply.ok
    assert isinstance(reply.error, ModelError)
    assert reply.error.kind == kind
    assert words in reply.error.got
    assert remedy in reply.error.do
    assert reply.error.got.startswith("ollama:llama3:8b at http://127.0.0.1:")
    assert (reply.error.model, reply.error.host[:17]) == ("ollama:llama3:8b", "http://127.0.0.1:")
    assert reply.attempts == (2 if KINDS[kind].retry or KINDS[kind].host_wide else 1)


def test_what_was_written_before_a_failure_is_kept():
    with FakeOllama(fault=lambda p, n: Fault("no_end_mark"), reply=lambda body: "one two three") as fake:
        reply = ask(fake.model(), ["p"], retries=0, progress=False)[0]
    assert (reply.raw, reply.ok) == ("one two three", False)


@pytest.mark.parametrize(
    ("asked", "kind", "words", "remedy"),
    [
        ({"fault": Fault("no_bytes", 30), "deadline_s": 0.3}, "no_bytes", "no byte received in 0.3 s", "deadline_s"),
        # every single read is quick, and the total is not
        ({"fault": Fault("drip", 0.02), "deadline_s": 0.5}, "slow", "not finished after 0.5 s", "raise deadline_s"),
        ({"host": "http://127.0.0.1:9"}, "server_down", "no connection", "`ollama serve`"),
        ({"host": "http://no-such-host.invalid:11434"}, "dns", "does not resolve", "check the spelling"),
        ({"spec": "ollama:qwen2:7b"}, "no_model", "it has: llama3:8b", "ollama pull qwen2:7b"),
    ],
    ids=["no byte", "slow drip", "server down", "unknown host", "model not pulled"],
)
def test_a_server_that_is_late_away_or_without_the_model_is_told_in_bounded_time(asked, kind, words, remedy):
    start = time.monotonic()
    reply = once(**asked)
    assert time.monotonic() - start < 5
    assert reply.error.kind == kind
    assert words in reply.error.got
    assert remedy in reply.error.do
    assert reply.attempts == (2 if kind == "no_bytes" else reply.attempts)


def test_invoke_obeys_the_total_deadline_too(fake):
    fake.fault = lambda p, n: Fault("drip", 0.02)
    start = time.monotonic()
    with pytest.raises(CallError, match=r"not finished after 0\.4 s"):
        fake.model(deadline_s=0.4).invoke("p")
    assert time.monotonic() - start < 4


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (429, '{"error": {"message": "You exceeded your current quota, check billing"}}', "quota"),
        (429, "slow down", "busy"),
        (503, "<html>unavailable</html>", "busy"),
        (500, '{"error": "server busy, please try again"}', "busy"),
        (402, "{}", "quota"),
        (403, "{}", "auth"),
        (404, "404 page not found", "bad_address"),
        (404, '{"error": {"message": "The model `gpt-9` does not exist"}}', "no_model"),
        (405, "", "bad_address"),
        (302, "", "bad_address"),
        (
            400,
            '{"error": {"message": "maximum context length is 512 tokens", "code": "context_length_exceeded"}}',
            "context",
        ),
        (400, '{"error": "request (9000 tokens) exceeds the available context size (4096 tokens)"}', "context"),
        (504, "<html>gateway time-out</html>", "html"),
        (504, "upstream", "server_error"),
        (408, "", "server_error"),
        (500, '{"error": "llama runner process has terminated: signal: killed"}', "out_of_memory"),
        (422, '{"detail": "bad"}', "bad_request"),
    ],
)
def test_http_answers_are_named(status, body, kind):
    assert from_status(status, body)[0] == kind


def chained(outer, inner):
    outer.__cause__ = inner
    return outer


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (chained(httpx.ConnectError("x"), socket.gaierror(-2, "Name or service not known")), "dns"),
        (httpx.ConnectError("All connection attempts failed"), "server_down"),
        (httpx.ConnectTimeout(""), "server_down"),
        (ConnectionError("Failed to connect to Ollama."), "server_down"),
        (httpx.ReadTimeout(""), "no_bytes"),
        (httpx.RemoteProtocolError("peer closed connection"), "dropped"),
        (httpx.ReadError(""), "dropped"),
        (json.JSONDecodeError("Expecting value", "x", 0), "garbage"),
        (ValueError("something else"), "other"),
    ],
)
def test_exceptions_of_the_clients_are_named_even_without_a_message(error, kind):
    found, words = from_exception(error)
    assert found == kind
    assert words.strip()


def test_the_ollama_clients_own_errors_are_named():
    ollama = pytest.importorskip("ollama")
    assert from_exception(ollama.ResponseError("model 'x' not found", 404))[0] == "no_model"
    assert from_exception(ollama.ResponseError("unexpected EOF", -1))[0] == "other"


def test_every_kind_has_an_expectation_and_a_remedy_and_survives_a_process_border():
    for kind, how in KINDS.items():
        error = failure(kind, "seen", "http://h:1", "ollama:m", status=418, retry_after=2.0, raw="half")
        assert how.expected in str(error)
        assert "do: " in str(error)
        assert "{" not in error.do
        copy = pickle.loads(pickle.dumps(error))
        assert (str(copy), copy.kind, copy.host, copy.raw) == (str(error), kind, "http://h:1", "half")
        assert (copy.status, copy.retry_after, type(copy)) == (418, 2.0, CallError)


# -- secrets -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [KEY, "0123-house-key-without-a-pattern"])
def test_the_key_is_sent_and_appears_nowhere(key, tmp_path, caplog, capsys):
    caplog.set_level(logging.DEBUG)

    def reply(body):
        return f"your key is {key}, is it not?" if "p" in body["messages"][-1]["content"] else "no"

    with FakeOllama(api_key=key, reply=reply) as fake:
        model = fake.model(api_key=key)
        cassette = Cassette(tmp_path / "c.sqlite")
        told, good = ask(model, ["p", "fine"], cassette=cassette, progress=False)
        fake.api_key = "another"  # its error answer repeats the header it got
        bad = ask(model, ["q"], cassette=cassette, backoff_s=0.01, progress=False)[0]
        with pytest.raises(CallError) as caught:
            model.invoke("r")
        assert fake.calls[0].headers["authorization"] == f"Bearer {key}"
        cassette.export(tmp_path / "c.jsonl")
        cassette.close()
    assert good.ok
    assert (told.error.kind, told.raw) == ("secret", "your key is [secret], is it not?")  # no answer is rewritten
    assert bad.error.kind == "auth"
    assert "OLLAMA_API_KEY" in bad.error.do
    assert "[secret]" in str(bad.error)
    trace = "".join(traceback.format_exception(caught.value))
    seen = [repr(model), str(model), model.model_dump_json(exclude={"callbacks"}), str(model._identifying_params)]
    seen += [repr(good), repr(told), repr(bad), trace, repr(caught.value), caplog.text, *capsys.readouterr()]
    seen += [path.read_bytes().decode("latin-1") for path in tmp_path.iterdir()]
    for text in seen:
        assert key not in text
        assert key[3:] not in text


def test_a_prompt_that_holds_the_key_is_not_sent(fake):
    with pytest.raises(CallError, match="'b'") as caught:
        ask(fake.model(api_key=KEY), ["fine", f"my key is {KEY}"], ids=["a", "b"], progress=False)
    assert (fake.calls, caught.value.kind) == ([], "secret")
    assert KEY not in str(caught.value)


def test_what_looks_like_a_key_is_hidden_in_errors_though_nobody_gave_it():
    assert redact("Incorrect API key provided: sk-ab***yz12.", ()) == "Incorrect API key provided: [secret]"
    assert (redact("got Bearer abcdefghij", ()), redact("risk-free", ())) == ("got [secret]", "risk-free")
