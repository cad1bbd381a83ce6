"""Every way a call can go wrong has a name, a host, a model and a remedy; and no secret gets out."""

import json
import logging
import pickle
import socket
import time

import httpx
import ollama
import pytest
from fake_ollama import FakeOllama, Fault

from ragbench.errors import ModelError
from ragbench.llm import KINDS, CallError, Cassette, ask, chat_model
from ragbench.llm.endpoints import Endpoint
from ragbench.llm.failures import redact

KEY = "sk-verysecretkey1234567890"


def once(fault=None, host=None, spec="ollama:llama3:8b", **options):
    """Ask one prompt of a server with one fault that stays; return the reply."""
    with FakeOllama(fault=lambda p, n: fault) as fake:
        model = chat_model(spec, host=host or fake.url)
        return ask(model, ["p"], retries=1, backoff_s=0.01, **options)[0]


CASES = {
    # fault, kind, words in the message, words in the remedy
    "HTTP 500": (Fault("500"), "server", "HTTP 500: an error was encountered", "log"),
    "out of memory": (Fault("oom"), "unusable", "more system memory (9.3 GiB)", "smaller num_ctx"),
    "not pulled": (
        Fault("404"),
        "no_model",
        "model 'llama3:8b' not found",
        "ollama pull llama3:8b",
    ),
    "no money": (Fault("402"), "auth", "HTTP 402: insufficient balance", "OLLAMA_API_KEY"),
    "wrong key": (Fault("401"), "auth", "HTTP 401: unauthorized", "OLLAMA_API_KEY"),
    "bad option": (Fault("400"), "unusable", "invalid options: mirostat", "look at the reply"),
    "garbage": (Fault("garbage"), "server", "not JSON", "log"),
    "other JSON": (Fault("no_reply"), "server", "message", "log"),
    "proxy page": (Fault("html"), "server", "not JSON", "log"),
    "proxy 502": (Fault("html_502"), "server", "HTTP 502: a web page", "log"),
    "dropped": (Fault("dropped"), "server", "broke off", "log"),
    "hung up": (Fault("hang_up"), "server", "broke off", "log"),
    "no end mark": (Fault("no_end_mark"), "server", "without its end mark", "log"),
    "half a line": (Fault("half_line"), "server", "not JSON", "log"),
    "error in stream": (Fault("error_line", "unexpected EOF"), "server", "unexpected EOF", "log"),
    "loop": (
        Fault("error_line", "token repeat limit reached"),
        "truncated",
        "token repeat limit",
        "num_predict",
    ),
    "empty": (Fault("answer", ""), "unusable", "an empty answer", "num_predict"),
    "blank": (Fault("answer", " \n "), "unusable", "an empty answer", "num_predict"),
    "cut off": (
        Fault("truncated"),
        "truncated",
        "cut off after 1 tokens (num_predict=2048",
        "num_predict",
    ),
    "filtered": (
        Fault("finish", "content_filter"),
        "unusable",
        "'content_filter'",
        "look at the reply",
    ),
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
    assert reply.attempts == (2 if kind == "server" else 1)


@pytest.mark.parametrize(
    ("asked", "kind", "words", "remedy"),
    [
        (
            {"fault": Fault("no_bytes", 30), "deadline_s": 0.3},
            "timeout",
            "not finished after 0.3 s",
            "deadline_s",
        ),
        # every single read is quick, and the total is not
        (
            {"fault": Fault("drip", 0.02), "deadline_s": 0.5},
            "timeout",
            "not finished after 0.5 s",
            "raise deadline_s",
        ),
        ({"host": "http://127.0.0.1:9"}, "down", "no connection", "`ollama serve`"),
        ({"host": "http://no-such-host.invalid:11434"}, "down", "no connection", "ollama serve"),
        ({"spec": "ollama:qwen2:7b"}, "no_model", "it has: llama3:8b", "ollama pull qwen2:7b"),
    ],
    ids=["no byte", "slow drip", "server down", "unknown host", "model not pulled"],
)
def test_a_server_that_is_late_away_or_without_the_model_is_told_in_bounded_time(
    asked, kind, words, remedy
):
    start = time.monotonic()
    reply = once(**asked)
    assert time.monotonic() - start < 20
    assert reply.error.kind == kind
    assert words in reply.error.got
    assert remedy in reply.error.do


@pytest.mark.parametrize(
    ("status", "words", "kind"),
    [
        (429, "You exceeded your current quota, check billing", "auth"),
        (429, "slow down", "busy"),
        (503, "unavailable", "busy"),
        (500, "server busy, please try again", "busy"),
        (402, "", "auth"),
        (403, "", "auth"),
        (404, "The model `gpt-9` does not exist", "no_model"),
        (400, '"all-minilm" does not support chat', "no_model"),
        (302, "", "down"),
        (400, "maximum context length is 512 tokens", "truncated"),
        (
            400,
            "request (9000 tokens) exceeds the available context size (4096 tokens)",
            "truncated",
        ),
        (504, "upstream", "server"),
        (500, "llama runner process has terminated: signal: killed", "server"),
        (500, 'option "num_ctx" must be of type integer', "unusable"),
        (500, "invalid JSON schema in format", "unusable"),
        (422, "bad", "unusable"),
        # what a server says of another one does not count
        (500, "upstream said HTTP 404: no route", "server"),
        (500, "proxy: HTTP 401: bad key", "server"),
        (400, "HTTP 503: overloaded", "unusable"),
        (400, "x HTTP 30", "unusable"),
    ],
)
def test_http_answers_are_named(status, words, kind):
    assert CallError.signs(ollama.ResponseError(words, status))[0] == kind


def chained(outer, inner):
    outer.__cause__ = inner
    return outer


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (
            chained(httpx.ConnectError("x"), socket.gaierror(-2, "Name or service not known")),
            "down",
        ),
        (httpx.ConnectTimeout(""), "down"),
        (ConnectionError("Failed to connect to Ollama."), "down"),
        (httpx.ReadTimeout(""), "timeout"),
        (httpx.RemoteProtocolError("peer closed connection"), "server"),
        (json.JSONDecodeError("Expecting value", "x", 0), "server"),
        (ollama.ResponseError("model 'x' not found", 404), "no_model"),
        (ollama.ResponseError("unexpected EOF", -1), "server"),
        (ollama.ResponseError("exception raised: connection Timeout in worker", -1), "server"),
        (ollama.ResponseError("token repeat limit reached", 500), "truncated"),
        (ollama.ResponseError("token repeat limit reached", -1), "truncated"),
        (ValueError("something else"), "server"),
    ],
)
def test_exceptions_of_the_clients_are_named_even_without_a_message(error, kind):
    found, words, _ = CallError.signs(error)
    assert (found, bool(words.strip())) == (kind, True)


def test_every_kind_has_an_expectation_and_a_remedy_and_survives_a_process_border():
    details = {"status": 418, "raw": "half"}
    for kind, (expected, _) in KINDS.items():
        error = CallError.of(kind, "seen", "http://h:1", "ollama:m", **details)
        assert expected in str(error)
        assert "do: " in str(error)
        copy = pickle.loads(pickle.dumps(error))
        assert (type(copy), str(copy)) == (CallError, str(error))
        facts = {"kind": kind, "host": "http://h:1", **details}
        assert facts.items() <= vars(copy).items()


# -- secrets
# -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [KEY, "0123-house-key-without-a-pattern"])
def test_the_key_is_sent_and_appears_nowhere(key, tmp_path, caplog, capsys):
    caplog.set_level(logging.DEBUG)

    with FakeOllama(api_key=key) as fake:
        model = fake.model(api_key=key)
        cassette = Cassette(tmp_path / "c.sqlite")
        good = ask(model, ["fine"], cassette=cassette)[0]
        fake.api_key = "another"  # its error answer repeats the header it got
        bad = ask(model, ["q"], cassette=cassette, backoff_s=0.01)[0]
        fake.api_key = key
        fake.fault = lambda prompt, before: Fault("refused", f"{key} may not do that")
        named = ask(model, ["r"], cassette=cassette)[0]
        assert fake.calls[0].headers["authorization"] == f"Bearer {key}"
        cassette.export(tmp_path / "c.jsonl")
        cassette.close()
    assert good.ok
    assert bad.error.kind == "auth"
    assert "OLLAMA_API_KEY" in bad.error.do
    assert "[secret]" in str(bad.error)
    assert "[secret] may not do that" in str(named.error)
    seen = [repr(model), str(model), str(model.asdict())]
    seen += [repr(good), repr(bad), repr(named), caplog.text, *capsys.readouterr()]
    seen += [path.read_bytes().decode("latin-1") for path in tmp_path.iterdir()]
    for text in seen:
        assert key not in text
        assert key[3:] not in text


def test_a_key_in_the_body_of_requests_is_in_no_option_on_the_cassette_and_in_no_repr():
    told = {
        "extra_body": {"api_key": KEY, "more": [{"token": KEY}], "top_k": 3},
        "default_query": {"key": KEY},
        "default_headers": {"X-Key": KEY},
    }
    model = chat_model("openai:x", host="http://127.0.0.1:9/v1", **told)
    # what can change a reply is kept
    assert Endpoint.of(model).options["extra_body"] == {"more": [{}], "top_k": 3}
    assert KEY not in repr(model)


def test_what_looks_like_a_key_is_hidden_in_errors_though_nobody_gave_it():
    for words, shown in (
        ("Incorrect API key provided: sk-ab***yz12.", "Incorrect API key provided: [secret]"),
        ("got Bearer abcdefghij", "got [secret]"),
        ("risk-free", "risk-free"),
        ("proxy ann:pa55@10.0.0.1 refused", "proxy [secret]@10.0.0.1 refused"),
        ("http://ann:pa55@0123456789ab:80/v1", "http://[secret]@0123456789ab:80/v1"),
        # a model's tag and digest, which manifests keep, are no user and password
        ("all-minilm:latest@336ef21e5198", "all-minilm:latest@336ef21e5198"),
    ):
        assert redact(words) == shown


def test_secrets_of_headers_and_bodies_are_found():
    fields = {
        "default_headers": {"Ocp-Apim-Subscription-Key": "a1b2c3d4e5f6g7h8"},
        "extra_body": {"api_key": "q9w8e7r6t5z4u3i2"},
    }
    model = chat_model("openai:x", host="http://127.0.0.1:9/v1", **fields)
    assert Endpoint.of(model).secrets == {"a1b2c3d4e5f6g7h8", "q9w8e7r6t5z4u3i2"}


def test_the_password_of_a_basic_header_is_a_secret_beside_its_pair():
    packed = "dXNlcjphMWIyYzNkNGU1ZjY="  # user:a1b2c3d4e5f6
    model = chat_model("openai:x", host="h", default_headers={"Authorization": f"Basic {packed}"})
    assert Endpoint.of(model).secrets == {packed, "user:a1b2c3d4e5f6", "a1b2c3d4e5f6"}


def test_a_secret_of_several_words_is_one():
    model = chat_model(
        "openai:x", host="h", default_headers={"X-Key": "Bearer correct horse battery"}
    )
    assert Endpoint.of(model).secrets == {"correct horse battery"}


def test_a_remedy_for_a_refused_parameter_is_not_given_for_a_reply_or_a_window():
    replied = CallError.of("unusable", "after one repair try: temperature: Field required")
    window = CallError.of("truncated", "'max_completion_tokens' is too large: 9000", status=400)
    assert "pass temperature" not in replied.do
    assert "extra_body" not in window.do
