"""Everything that can go wrong between a prompt and its reply, under one name each, with a remedy and without secrets.

The servers' own signs differ: httpx exceptions, HTTP codes, an ``{"error": ...}`` line inside a stream that began with
200, a proxy's HTML page. This is the one place that turns them into ``CallError``.

Source: Ollama's documentation (docs.ollama.com, "Errors": status codes, ``{"error": ...}``, errors inside a stream).
"""

from __future__ import annotations

import base64
import json
import math
import re
import socket
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from ragbench.errors import ModelError


@dataclass(frozen=True, slots=True)
class Kind:
    """How one kind of failure is met: tried again, waited out, or taken as true of the whole host."""

    expected: str
    do: str
    retry: bool = False
    host_wide: bool = False


KINDS = {
    "server_down": Kind("a model server listening there", "start it (`{serve}`), or pass host=...", host_wide=True),
    "dns": Kind("a host name that resolves", "check the spelling of host=... and the network", host_wide=True),
    "no_model": Kind("a model this server has", "{pull}", host_wide=True),
    "gguf": Kind("a GGUF model file and llama.cpp to run it", "check the path", host_wide=True),
    "auth": Kind(
        "an API key the server accepts", "set {key_variable} to a valid key, or pass api_key=...", host_wide=True
    ),
    "quota": Kind("an account with budget left", "raise the account's limit, then run again", host_wide=True),
    "bad_address": Kind("the address of the model's API", "check host=...: {address}", host_wide=True),
    "busy": Kind("a free server", "run again later, lower concurrency=..., or raise patience_s=..."),
    "out_of_memory": Kind(
        "a model that fits into the server's memory",
        "lower num_ctx or concurrency, close other programs, or take a smaller or more quantised model",
        retry=True,
    ),
    "server_error": Kind("HTTP 200", "look into the server's log (`{log}`), then run again", retry=True),
    "bad_request": Kind("a request the server accepts", "read the server's words above and change that option"),
    "context": Kind("a prompt that fits into num_ctx", "raise num_ctx, or shorten the prompt"),
    "garbage": Kind("JSON", "check that host=... is a model server: {address}", retry=True),
    "html": Kind(
        "JSON from the model server, not a web page",
        "something between here and the server answers in its place: set NO_PROXY={bare_host}, or check host=...",
        retry=True,
    ),
    "dropped": Kind("a whole reply", "the connection broke: look into the server's log (`{log}`)", retry=True),
    "no_bytes": Kind(
        "the first byte within deadline_s", "raise deadline_s, or look whether the server hangs", retry=True
    ),
    "slow": Kind(
        "the last byte within deadline_s", "raise deadline_s, or lower num_predict or concurrency", retry=True
    ),
    "oversized": Kind(
        "a reply within ragbench.llm.drivers.MOST_BYTES",
        "look what answers at host=...; a model's reply is far shorter",
    ),
    "unfinished": Kind("a stream that ends with its end mark", "look into the server's log (`{log}`)", retry=True),
    "empty": Kind("some text", "raise num_predict if the model thinks long; else restart the server", retry=True),
    "truncated": Kind("a reply that ends by itself", "raise num_predict (or num_ctx), or ask for less"),
    "refused": Kind("a reply", "the provider's filter stopped it: look at the prompt"),
    "invalid": Kind("a reply that fits the schema", "take a model that obeys it (`ragbench doctor --model ...`)"),
    "secret": Kind("prompts and replies without the API key", "take the key out of the prompt"),
    "digest": Kind("one model under one name", "choose one with Cassette(..., digest=...), or use a new cassette file"),
    "miss": Kind("a recorded reply", "record it"),
    "interrupted": Kind("time to finish", "run the same call again: what is recorded is not asked again"),
    "other": Kind("an AIMessage", "see the exception named above"),
}

AWAY = frozenset({"server_down", "dns"})  # nothing listens there, now
# After these the server may have been started anew, with another model.
MAY_BE_ANOTHER = AWAY | {"dropped", "busy", "html"}
# With these a second wait of deadline_s rarely helps, so they are tried again once, whatever retries says.
ONCE_MORE = frozenset({"no_bytes", "slow", "empty"})


class CallError(ModelError):
    """A ModelError that also says, for programs, what happened.

    Attributes
    ----------
    kind : one of ``KINDS``.
    host, model : where, and of whom it was asked.
    status : HTTP status, or 0.
    retry_after : seconds the server asked to wait, or None.
    raw : what the server or model had written until then.
    no_host_left : whether this is why no host of the run answers any more.
    """

    kind = "other"
    host = ""
    model = ""
    status = 0
    retry_after: float | None = None
    raw = ""
    no_host_left = False


def failure(
    kind: str,
    detail: str,
    host: str = "",
    model: str = "",
    *,
    do: str = "",
    status: int = 0,
    retry_after: float | None = None,
    raw: str = "",
    secrets: tuple[str, ...] = (),
) -> CallError:
    """Build the CallError of one kind, with the remedy that fits the provider, or a better one (``do``).

    ``detail`` says what was seen; ``model`` has its provider (``"ollama:llama3:8b"``).
    """
    provider, _, name = model.partition(":")
    ollama = provider == "ollama"
    words = {
        "serve": "ollama serve" if ollama else "the server's start command",
        "pull": f"ollama pull {name}" if ollama else f"ask for one of the models listed at {host}/models",
        "log": "journalctl -u ollama, or where `ollama serve` runs" if ollama else "where it was started",
        "key_variable": "OLLAMA_API_KEY" if ollama else "OPENAI_API_KEY",
        "address": "Ollama's own is http://localhost:11434" if ollama else "an OpenAI-compatible one ends in /v1",
        "bare_host": _host_and_port(host).rsplit(":", 1)[0] or "localhost",
    }
    who = f"{model} at {host}" if host else model
    got = redact(f"{who}: {detail}" if who else detail, secrets)
    error = CallError(got, KINDS[kind].expected, redact(do or KINDS[kind].do.format(**words), secrets))
    error.kind, error.host, error.model = kind, host, model
    error.status, error.retry_after, error.raw = status, retry_after, _hide(raw, secrets)
    return error


def reworded(error: CallError, got: str, do: str) -> CallError:
    """Return the error with other words and all else that it holds."""
    new = CallError(got, error.expected, do)
    new.__dict__ = error.__dict__ | new.__dict__
    return new


def without_address(error: CallError) -> CallError:
    """Return the error as it is stored: its words do not say where the server is."""
    got, do = error.got, error.do
    for place in (error.host, _host_and_port(error.host)):
        if place:
            got, do = got.replace(place, "the server"), do.replace(place, "the server")
    stored = reworded(error, got, do)
    stored.host = ""
    return stored


def _host_and_port(address: str) -> str:
    return address.split("//")[-1].split("/")[0]


# -- from a server's own signs to a kind -------------------------------------------------------------------------------

_HTML = re.compile(r"\s*(<!doctype html|<html|<head|<body)", re.IGNORECASE)
_MEMORY = re.compile(
    r"out of memory|more system memory|cudamalloc|insufficient memory|signal: killed|\boom\b", re.IGNORECASE
)
_CONTEXT = re.compile(
    r"context (length|size|window)|context_length|prompt is too long|input length exceeds", re.IGNORECASE
)
_NO_NAME = re.compile(
    r"name or service not known|nodename nor servname|name resolution|getaddrinfo failed", re.IGNORECASE
)


def is_html(text: str) -> bool:
    return bool(_HTML.match(text))


def from_status(status: int, body: str, retry_after: float | None = None) -> tuple[str, str]:
    """Name the failure behind an HTTP status and its body (JSON, HTML or plain): its kind, and the detail in words.

    Status 0: an error line inside a stream that began with 200.
    """
    words = server_words(body)
    lower, html = words.lower(), is_html(body)
    rules = (
        ("quota", status == 402 or (status == 429 and ("quota" in lower or "billing" in lower))),
        ("busy", status in (429, 503) or "server busy" in lower),
        ("html", html),
        ("auth", status in (401, 403)),
        ("no_model", status == 404 and "model" in lower),
        ("bad_address", status in (404, 405) or 300 <= status < 400),
        ("context", status in (0, 400, 413, 422, 500) and _CONTEXT.search(words)),
        ("out_of_memory", _MEMORY.search(words)),
        ("server_error", status in (0, 408) or status >= 500),
    )
    kind = next((kind for kind, holds in rules if holds), "bad_request")
    shown = (
        f"HTTP {status}: {'a web page: ' * (kind == 'html')}{words}" if status else f"error inside the stream: {words}"
    )
    if kind == "busy" and retry_after is not None:
        shown += f" (Retry-After: {retry_after:g} s)"
    return kind, shown


def server_words(body: str) -> str:
    """Return the message inside a JSON error body, or the body's beginning on one line."""
    try:
        error = json.loads(body)
    except (ValueError, RecursionError):
        return _one_line(body)
    if isinstance(error, dict):
        error = error.get("error", error.get("detail", error))
    if isinstance(error, dict):
        error = error.get("message", error)
    return _one_line(str(error))


def _one_line(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 300 else text[:297] + "..."


_BY_CLASS = {
    "server_down": {"ConnectError", "ConnectTimeout", "ConnectionRefusedError", "APIConnectionError"},
    "no_bytes": {"ReadTimeout", "WriteTimeout", "TimeoutError", "APITimeoutError"},
    "dropped": {"RemoteProtocolError", "ReadError", "WriteError", "LocalProtocolError", "CloseError"},
    "truncated": {"LengthFinishReasonError"},
    "garbage": {"JSONDecodeError", "DecodingError", "UnicodeDecodeError", "APIResponseValidationError"},
}
_SAID = {"server_down": "no connection", "dropped": "the connection broke off", "garbage": "not JSON"}


def from_exception(error: BaseException) -> tuple[str, str]:
    """Name the failure behind an exception of httpx, of a client library, or of a LangChain model."""
    chain: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in chain:
        chain.append(link)
        link = link.__cause__ or link.__context__
    said = _one_line(str(error)) or "no message"
    for link in chain:
        if isinstance(status := getattr(link, "status_code", None), int) and status >= 300:
            return from_status(status, said)
    if any(isinstance(link, socket.gaierror) for link in chain) or _NO_NAME.search(said):
        return "dns", f"the host name does not resolve ({said})"
    names = {type(link).__name__ for link in chain}
    if isinstance(error, ConnectionError):
        names.add("ConnectError")
    kind = next((kind for kind, classes in _BY_CLASS.items() if names & classes), "other")
    if kind in _SAID:
        return kind, f"{_SAID[kind]} ({said})"
    words = {"no_bytes": f"timed out ({type(error).__name__})", "truncated": said}
    return kind, words.get(kind, f"{type(error).__name__}: {said}")


# -- secrets -----------------------------------------------------------------------------------------------------------

_SECRET_NAME = re.compile(r"api.?key|authori[sz]ation|secret|password|credential|cookie|token$", re.IGNORECASE)
_KEY_CHARS, _KEY_BITS = 12, 36
# Error texts of servers repeat keys in part ("Incorrect API key provided: sk-ab***yz").
_KEY_LIKE = re.compile(
    r"\bsk-[\w*.\-]{4,}|(?i:bearer)\s+[\w.~+/\-]{8,}=*|\bBasic\s+(?=\S*[A-Z0-9=])[\w+/]{4,}=*|(?<=//)[^/\s@]+(?=@)"
)
# Escape codes, carriage returns, marks that turn the direction of writing, and what UTF-8 cannot hold.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def sounds_secret(name: str) -> bool:
    """Whether a field, header or variable of this name is likely to hold a secret."""
    return bool(_SECRET_NAME.search(name))


def looks_like_key(text: str) -> bool:
    """Whether a text is long and varied enough for a key; "test", "none" and "not-needed" are ordinary words."""
    counts = Counter(text).values()
    bits = -sum(count * math.log2(count / len(text)) for count in counts)
    return len(text) >= _KEY_CHARS and bits >= _KEY_BITS and not any(c.isspace() for c in text)


def secret_strings(fields: Iterable[tuple[str, Any]], headers: Mapping[str, str]) -> tuple[str, ...]:
    """Collect keys from a model's fields and headers: SecretStr, headers, the password in an address. Longest first."""
    secrets = _in_headers(headers)
    for _, value in fields:
        if hasattr(value, "get_secret_value"):
            secret = str(value.get_secret_value())
            secrets |= {secret, secret.partition(":")[2]}  # of user:password
        elif isinstance(value, Mapping):
            inner = value.get("headers")
            secrets |= _in_headers(value) | _in_headers(inner if isinstance(inner, Mapping) else {})
        elif isinstance(value, str) and "@" in value and "//" in value and (parts := urlsplit(value)).password:
            user, password = unquote(parts.username or ""), unquote(parts.password)
            secrets |= {password, parts.password, base64.b64encode(f"{user}:{password}".encode()).decode()}
    return tuple(sorted(filter(looks_like_key, secrets), key=len, reverse=True))


def _in_headers(headers: Mapping[str, Any]) -> set[str]:
    return {v.split(" ", 1)[-1] for name, v in headers.items() if isinstance(v, str) and sounds_secret(str(name))}


def _hide(text: str, secrets: tuple[str, ...]) -> str:
    for secret in secrets:
        text = text.replace(secret, "[secret]")
    return text


def redact(text: str, secrets: tuple[str, ...]) -> str:
    """Make words of a server fit for a message (never for a reply): no keys in them, and nothing a terminal obeys."""
    return printable(_KEY_LIKE.sub("[secret]", _hide(text, secrets)))


def printable(text: str) -> str:
    """Show control characters as their code (``\\x1b``), so that a terminal or a table does not obey them."""
    return _CONTROLS.sub(lambda match: match[0].encode("unicode_escape").decode(), text)
