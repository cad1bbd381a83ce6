"""Everything that can go wrong between a prompt and its reply, under one name each, with a remedy.

The servers' own signs differ: httpx exceptions, HTTP codes, an ``{"error": ...}`` line inside a stream that began with
200, a proxy's HTML page. This is the one place that turns them into ``CallError``, a ``ModelError`` with kind, host,
model and remedy.

Source: Ollama's documentation (docs.ollama.com, "Errors": status codes, ``{"error": ...}``, errors inside a stream).
"""

from __future__ import annotations

import json
import re
import socket
from dataclasses import dataclass

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

    no_host_left = False
    kind = "other"
    host = ""
    model = ""
    status = 0
    retry_after: float | None = None
    raw = ""


def reworded(error: CallError, got: str, do: str) -> CallError:
    """Return the error with other words and all else that it holds."""
    new = CallError(got, error.expected, do)
    new.__dict__.update({name: value for name, value in error.__dict__.items() if name not in new.__dict__})
    return new


def without_address(error: CallError) -> CallError:
    """Return the error as it is stored: its words do not say where the server is."""
    places = [error.host, error.host.split("//")[-1].split("/")[0]] if error.host else []
    got, do = error.got, error.do
    for place in places:
        got, do = got.replace(place, "the server"), do.replace(place, "the server")
    stored = reworded(error, got, do)
    stored.host = ""
    return stored


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
    """Build the CallError for one kind of failure, with the remedy that fits the provider.

    ``detail`` says what was seen, ``model`` has its provider (``"ollama:llama3:8b"``), ``do`` is a remedy better than
    the kind's own, and ``secrets`` must not appear in the message.
    """
    provider, _, name = model.partition(":")
    bare = host.split("//")[-1].split("/")[0].rsplit(":", 1)[0]
    ollama = provider == "ollama"
    words = {
        "serve": "ollama serve" if ollama else "the server's start command",
        "pull": f"ollama pull {name}" if ollama else f"ask for one of the models listed at {host}/models",
        "log": "journalctl -u ollama, or where `ollama serve` runs" if ollama else "where it was started",
        "key_variable": "OLLAMA_API_KEY" if ollama else "OPENAI_API_KEY",
        "address": "Ollama's own is http://localhost:11434" if ollama else "an OpenAI-compatible one ends in /v1",
        "bare_host": bare or "localhost",
    }
    who = f"{model} at {host}" if host else model
    got = redact(f"{who}: {detail}" if who else detail, secrets)
    error = CallError(got, KINDS[kind].expected, redact(do or KINDS[kind].do.format(**words), secrets))
    error.kind, error.host, error.model = kind, host, model
    error.status, error.retry_after, error.raw = status, retry_after, hide(raw, secrets)
    return error


# Error texts of servers repeat keys in part ("Incorrect API key provided: sk-ab***yz").
_KEY_LIKE = re.compile(
    r"\bsk-[\w*.\-]{4,}|(?i:bearer)\s+[\w.~+/\-]{8,}=*|\bBasic\s+(?=\S*[A-Z0-9=])[\w+/]{4,}=*|(?<=//)[^/\s@]+(?=@)"
)


def hide(text: str, secrets: tuple[str, ...]) -> str:
    """Replace the given secrets by ``[secret]``."""
    for secret in secrets:
        text = text.replace(secret, "[secret]")
    return text


def redact(text: str, secrets: tuple[str, ...]) -> str:
    """Make words of a server fit for a message (never for a reply): no keys in them, and nothing a terminal obeys."""
    return printable(_KEY_LIKE.sub("[secret]", hide(text, secrets)))


# Escape codes, carriage returns, marks that turn the direction of writing, and what UTF-8 cannot hold.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """Show control characters as their code (``\\x1b``), so that a terminal or a table does not obey them."""
    return _CONTROLS.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


_HTML = re.compile(r"\s*(<!doctype html|<html|<head|<body)", re.IGNORECASE)
_MEMORY = re.compile(
    r"out of memory|more system memory|cudamalloc|insufficient memory|signal: killed|\boom\b", re.IGNORECASE
)
_CONTEXT = re.compile(
    r"context (length|size|window)|context_length|prompt is too long|input length exceeds", re.IGNORECASE
)


def is_html(text: str) -> bool:
    """Whether a body is a web page."""
    return bool(_HTML.match(text))


def from_status(status: int, body: str, retry_after: float | None = None) -> tuple[str, str]:
    """Name the failure behind an HTTP status and its body (JSON, HTML or plain): its kind, and the detail in words.

    Status 0: an error line inside a stream that began with 200.
    """
    words = server_words(body)
    lower = words.lower()
    shown = f"HTTP {status}: {words}" if status else f"error inside the stream: {words}"
    if status == 429 and ("quota" in lower or "billing" in lower):
        return "quota", shown
    if status in (429, 503) or "server busy" in lower:
        return "busy", shown + (f" (Retry-After: {retry_after:g} s)" if retry_after is not None else "")
    if is_html(body):
        return "html", f"HTTP {status}: a web page: {_one_line(body)}"
    if status in (401, 403):
        return "auth", shown
    if status == 402:
        return "quota", shown
    if status == 404:
        return ("no_model" if "model" in lower else "bad_address"), shown
    if _CONTEXT.search(words) and status in (0, 400, 413, 422, 500):
        return "context", shown
    if _MEMORY.search(words):
        return "out_of_memory", shown
    if status == 0 or status >= 500 or status == 408:
        return "server_error", shown
    return ("bad_address" if status in range(300, 400) or status == 405 else "bad_request"), shown


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


def from_exception(error: BaseException) -> tuple[str, str]:
    """Name the failure behind an exception of httpx, of a client library, or of a LangChain model, likewise."""
    chain: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in chain:
        chain.append(link)
        link = link.__cause__ or link.__context__
    names = {type(link).__name__ for link in chain}
    said = _one_line(str(error)) or "no message"
    status = next((int(s) for link in chain if isinstance(s := getattr(link, "status_code", None), int) and s > 0), 0)
    if status >= 300:
        return from_status(status, said)
    if any(isinstance(link, socket.gaierror) for link in chain) or re.search(
        r"name or service not known|nodename nor servname|name resolution|getaddrinfo failed", said, re.IGNORECASE
    ):
        return "dns", f"the host name does not resolve ({said})"
    if names & {"ConnectError", "ConnectTimeout", "ConnectionRefusedError", "APIConnectionError"} or isinstance(
        error, ConnectionError
    ):
        return "server_down", f"no connection ({said})"
    if names & {"ReadTimeout", "WriteTimeout", "TimeoutError", "APITimeoutError"}:
        return "no_bytes", f"timed out ({type(error).__name__})"
    if names & {"RemoteProtocolError", "ReadError", "WriteError", "LocalProtocolError", "CloseError"}:
        return "dropped", f"the connection broke off ({said})"
    if names & {"LengthFinishReasonError"}:
        return "truncated", said
    if names & {"JSONDecodeError", "DecodingError", "UnicodeDecodeError", "APIResponseValidationError"}:
        return "garbage", f"not JSON ({said})"
    return "other", f"{type(error).__name__}: {said}"
