"""What can go wrong between a prompt and its reply: eight kinds, the server's own words, and no
secret in them.

Source: Ollama's documentation (docs.ollama.com, "Errors": status codes, ``{"error": ...}``, errors
inside a stream).
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

from ragbench.errors import ModelError

# Kind: (what was expected, what to do). The last three are not the server's.
KINDS = {
    "down": ("a model server listening there", "start it, or pass host=..."),
    "no_model": ("a model this server has", "choose one that it lists, or pull it"),
    "auth": (
        "an account that the server accepts",
        "set OLLAMA_API_KEY or OPENAI_API_KEY, or pass api_key=...",
    ),
    "busy": ("a free server", "run again later, lower concurrency=..., or raise patience_s=..."),
    "timeout": (
        "the last byte within deadline_s",
        "raise deadline_s, or lower num_predict or concurrency",
    ),
    "server": ("a whole reply of a model server", "look into the server's log, then run again"),
    "truncated": ("a prompt and a reply that fit", "raise num_predict or num_ctx, or ask for less"),
    "unusable": (
        "a reply that can be used",
        "look at the reply; another model may obey better (`ragbench doctor`)",
    ),
    "digest": (
        "one model under one name",
        "choose one with Cassette(..., digest=...), or use a new cassette file",
    ),
    "miss": ("a recorded reply", "record it"),
    "interrupted": (
        "time to finish",
        "run the same call again: what is recorded is not asked again",
    ),
}
START_OLLAMA = (
    "`ollama serve`, its app, or `systemctl start ollama`; it comes from ollama.com/download"
)
# true of every prompt that this host is sent
HOST_FAILURES = frozenset({"down", "no_model", "auth"})
TRANSIENT = frozenset({"down", "busy", "timeout", "server"})  # another try may help


class CallError(ModelError):
    """A ModelError that also says, for programs, what happened.

    Attributes
    ----------
    kind : one of ``KINDS``.
    host, model : where, and of whom it was asked.
    status : HTTP status, or 0.
    retry_after : seconds the server asked to wait, or None.
    raw : what the model had written until then.
    """

    kind = "server"
    host = ""
    model = ""
    status = 0
    retry_after: float | None = None
    raw = ""

    def __init__(self, got: str, expected: str = "", do: str = "", **about: Any) -> None:
        super().__init__(got, expected, do)
        vars(self).update(about)

    def without_address(self) -> CallError:
        """Return the error as it is stored: its words do not say where the server is."""
        words = [self.got, self.expected, self.do]
        for place in filter(None, (self.host, self.host.split("//")[-1].split("/")[0])):
            words = [text.replace(place, "the server") for text in words]
        return CallError(*words, kind=self.kind, model=self.model, status=self.status)


def failure(
    kind: str,
    detail: str,
    host: str = "",
    model: str = "",
    *,
    do: str = "",
    raw: str = "",
    secrets: tuple[str, ...] = (),
    **about: Any,
) -> CallError:
    """Build the CallError of one kind; ``detail`` says what was seen, ``model`` has its provider;
    ``about``: ``status``, ``retry_after``.
    """
    source = f"{model} at {host}" if host else model
    expected, usual = KINDS[kind]
    provider, _, name = model.partition(":")
    if provider == "ollama":
        remedies = {
            "down": f"start it ({START_OLLAMA}), or pass host=...",
            "no_model": f"ollama pull {name}",
        }
        usual = remedies.get(kind, usual)
    got = redact(f"{source}: {detail}" if source else detail, secrets)
    about |= {"kind": kind, "host": host, "model": model, "raw": _hide(raw, secrets)}
    return CallError(got, expected, redact(do or usual, secrets), **about)


# -- from a server's own signs to a kind

_CONTEXT = re.compile(
    r"context.?(length|size|window)|prompt is too long|input length exceeds", re.IGNORECASE
)
_OPTIONS = re.compile(
    r"must be of type|invalid (json schema|format|option)|response_format", re.IGNORECASE
)
_BUSY = re.compile("server busy|loading model|too many requests", re.IGNORECASE)
_NO_MONEY = re.compile("quota|billing", re.IGNORECASE)
# Exceptions of httpx, the clients and Python, by name: the client of OpenAI need not be installed.
# A connection error of a client stands for a broken reply too, so that is looked for first.
_BY_NAME = {
    "RemoteProtocolError": "broken",
    "ReadError": "broken",
    "WriteError": "broken",
    "CloseError": "broken",
    "LocalProtocolError": "broken",
    "JSONDecodeError": "broken",
    "ConnectError": "down",
    "ConnectTimeout": "down",
    "ConnectionError": "down",
    "ConnectionRefusedError": "down",
    "APIConnectionError": "down",
    "gaierror": "down",
    "ReadTimeout": "timeout",
    "WriteTimeout": "timeout",
    "PoolTimeout": "timeout",
    "TimeoutError": "timeout",
    "APITimeoutError": "timeout",
    "LengthFinishReasonError": "truncated",
    "UnicodeEncodeError": "unusable",
}


def from_exception(error: BaseException) -> tuple[str, str, int]:
    """Name the failure behind an exception of a client or a LangChain model: its kind, what it
    says, HTTP status.
    """
    chain = list(_chain(error))
    words = _server_words(str(getattr(error, "error", None) or error))
    said = _one_line(words) or type(error).__name__
    status = next(filter(None, map(_status, chain)), 0)
    if "token repeat limit" in said.lower():
        return "truncated", said, max(status, 0)
    if status >= 300:
        page = "a web page: " if said.lower().startswith(("<!doctype", "<html")) else ""
        return _from_status(status, said), f"HTTP {status}: {page}{said}", status
    if status < 0:  # an error inside a reply that began with 200
        return _from_status(500, said), said, 0
    kinds = {_BY_NAME.get(type(link).__name__): _one_line(str(link)) for link in reversed(chain)}
    if "broken" in kinds:
        return "server", f"the reply broke off or is no JSON ({kinds['broken'] or said})", 0
    kind = next((kind for kind in _BY_NAME.values() if kind in kinds), "server")
    return kind, f"no connection ({said})" if kind == "down" else said, 0


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an exception and those that caused it."""
    seen = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _status(error: BaseException) -> int:
    """Return the HTTP status that an exception of a client holds, or 0."""
    for holder in (error, getattr(error, "response", None)):
        status = getattr(holder, "status_code", None)
        if isinstance(status, int):
            return status
    return 0


def _from_status(status: int, words: str) -> str:
    rules = (
        ("auth", status in (401, 402, 403) or (status == 429 and _NO_MONEY.search(words))),
        ("busy", status in (429, 503) or _BUSY.search(words)),
        ("no_model", status == 404 or "does not support chat" in words.lower()),
        ("truncated", _CONTEXT.search(words)),
        ("server", status >= 500 and not _OPTIONS.search(words)),
        ("down", 300 <= status < 400 or status == 405),
    )
    return next((kind for kind, holds in rules if holds), "unusable")


def _server_words(body: str) -> str:
    """Return the message inside a JSON error body, or the body itself."""
    try:
        error = json.loads(body)
    except (ValueError, RecursionError):
        return body
    for name in ("error", "detail", "message"):
        if isinstance(error, dict):
            error = error.get(name, error)
    return str(error)


def _one_line(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 300 else text[:297] + "..."


# -- secrets
# --------------------------------------------------------------------------------

_SECRET_NAME = re.compile(
    r"(api|subscription|access|private).?key|authori[sz]ation|secret|password|credential|cookie|token$",
    re.IGNORECASE,
)
_KEY_CHARS = 12
_KEY_LETTERS = 8  # different ones
# Error texts of servers repeat keys in part ("Incorrect API key provided: sk-ab***yz").
_KEY_LIKE = re.compile(
    r"\bsk-[\w*.\-]{4,}|(?i:bearer)\s+[\w.~+/\-]{8,}=*|\bBasic\s+(?=\S*[A-Z0-9=])[\w+/]{4,}=*|(?<=//)[^/\s@]+(?=@)"
)
# Escape codes, carriage returns, marks that turn the direction of writing, and what UTF-8 cannot
# hold.
_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def sounds_secret(name: str) -> bool:
    """Whether a field, header or variable of this name is likely to hold a secret."""
    return bool(_SECRET_NAME.search(name))


def without_secrets(value: Any) -> Any:
    """Leave out the entries of a mapping, at any depth, whose names sound like secrets."""
    if isinstance(value, Mapping):
        return {k: without_secrets(v) for k, v in value.items() if not sounds_secret(str(k))}
    return [without_secrets(v) for v in value] if isinstance(value, list | tuple) else value


def _looks_like_key(text: str) -> bool:
    """Whether a text is long and varied enough for a key; "test", "none" and "not-needed" are
    ordinary words.
    """
    return len(text) >= _KEY_CHARS and len(set(text)) >= _KEY_LETTERS and len(text.split()) == 1


def secret_strings(fields: Iterable[tuple[str, Any]]) -> tuple[str, ...]:
    """Collect keys from a model's fields: SecretStr, headers and bodies, passwords in addresses.
    Longest first.
    """
    secrets = {secret for field in fields for secret in _secrets_of(*field)}
    return tuple(sorted(filter(_looks_like_key, secrets), key=len, reverse=True))


def _secrets_of(name: str, value: Any) -> Iterator[str]:
    if hasattr(value, "get_secret_value"):
        yield str(value.get_secret_value())
    elif isinstance(value, Mapping):
        for inner, part in value.items():
            yield from _secrets_of(str(inner), part)
    elif isinstance(value, str):
        if sounds_secret(name):
            yield value.split(" ", 1)[-1]
        if value.startswith("Basic "):
            pair = base64.b64decode(value.split(" ", 1)[1]).decode("utf-8", "replace")
            yield from (pair, pair.partition(":")[2])
        if "@" in value and "//" in value and (password := urlsplit(value).password):
            yield from (password, unquote(password))


def _hide(text: str, secrets: tuple[str, ...]) -> str:
    for secret in secrets:
        text = text.replace(secret, "[secret]")
    return text


def redact(text: str, secrets: tuple[str, ...]) -> str:
    """Make words of a server fit for a message (never for a reply): no keys in them, and nothing a
    terminal obeys.
    """
    return printable(_KEY_LIKE.sub("[secret]", _hide(text, secrets)))


def printable(text: str) -> str:
    """Show control characters as their code (``\\x1b``), so that a terminal or a table does not
    obey them.
    """
    return _CONTROLS.sub(lambda match: match[0].encode("unicode_escape").decode(), text)
