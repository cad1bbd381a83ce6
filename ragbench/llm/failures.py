"""What can go wrong between a prompt and its reply: eight kinds, the server's own words, and no
secret in them.

Source: Ollama's documentation (docs.ollama.com, "Errors": status codes, ``{"error": ...}``, errors
inside a stream).
"""

from __future__ import annotations

import base64
import contextlib
import functools
import html
import json
import re
from collections.abc import Callable, Iterable
from typing import Any, Self
from urllib.parse import quote

from ragbench.errors import ModelError
from ragbench.records import Failure

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
        "use a new cassette file (cassette: NAME.sqlite), or pull the old model again",
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
_OF_OLLAMA = {
    "down": f"start it ({START_OLLAMA}), or pass host=...",
    "no_model": "ollama pull {name}",
}
# What helps where a server refuses with these words: a failure's usual remedy would not.
_REMEDIES = {
    "WRONG_VERSION_NUMBER": "write http:// in place of https://",
    "record layer failure": "write http:// in place of https://",
    "memory": "take a smaller model, or a smaller num_ctx",
    "does not support chat": "it makes vectors: name a chat model here",
    "no Ollama": "pass host=... of an Ollama server",
    "CERTIFICATE_VERIFY_FAILED": "set SSL_CERT_FILE to a file with the server's certificate",
    "max_completion_tokens": "pass extra_body={'max_tokens': None}",
    "response_format": "pass extra_body={'response_format': {'type': 'json_object'}}",
    "temperature": "pass temperature=1, or temperature=None to send none",
}
# true of every prompt that this host is sent
SILENCE_S = 10.0  # of a wait, until it is said
HOST_FAILURES = frozenset({"down", "no_model", "auth"})
TRANSIENT = frozenset({"down", "busy", "timeout", "server"})  # another try may help


class CallError(ModelError):
    """A ModelError that also says, for programs, what happened.

    Attributes
    ----------
    kind : one of ``KINDS``.
    host, model : where, and of whom it was asked.
    status : HTTP status, or 0.
    raw : what the model had written until then.
    """

    kind = "server"
    host = ""
    model = ""
    status = 0
    raw = ""

    def __init__(self, got: str, expected: str = "", do: str = "", **details: Any) -> None:
        super().__init__(got, expected, do)
        vars(self).update(details)

    @classmethod
    def of(
        cls,
        kind: str,
        detail: str,
        host: str = "",
        model: str = "",
        *,
        do: str = "",
        secrets: Iterable[str] = (),
        **details: Any,
    ) -> Self:
        """Build the error of one kind.

        ``detail`` says what was seen, ``model`` has its provider; ``details``: ``status``, ``raw``.
        """
        source = f"{model} at {host}" if host else model
        expected, usual = KINDS[kind]
        if model.startswith("ollama:"):
            usual = _OF_OLLAMA.get(kind, usual).format(name=model.removeprefix("ollama:"))
        if kind in ("down", "no_model") or (kind == "unusable" and details.get("status")):
            helps = [remedy for words, remedy in _REMEDIES.items() if words in detail]
            usual = "; ".join(helps) or usual
        got = redact(f"{source}: {detail}" if source else detail, secrets)
        return cls(got, expected, do or usual, kind=kind, host=host, model=model, **details)

    def to_dict(self) -> dict[str, Any]:
        """Return the error as it is stored: its words do not say where the server is."""
        facts = {"kind": self.kind, "got": self.got, "expected": self.expected, "do": self.do}
        name = self.host.split("//")[-1].split("/")[0]
        for place in filter(None, (self.host, name)):
            facts = {field: text.replace(place, "the server") for field, text in facts.items()}
        return {**facts, "status": self.status}

    def failure(self) -> Failure:
        """Return what is kept of it in answers, grades and rows."""
        return Failure(self.kind, str(CallError(**self.to_dict())))

    @staticmethod
    def signs(error: BaseException) -> tuple[str, str, int]:
        """Name the failure behind an exception of a client or a LangChain model: its kind, what it
        says, HTTP status.
        """
        chain = _chain(error)
        words = _words_of(error)
        status = next(filter(None, map(_status, chain)), 0)
        if status < 0:  # an error inside a reply that began with 200
            return _kind(f"said: {words}"), words, 0
        raised = {_kind(f"raised {type(link).__name__}"): str(link) for link in chain}
        if "broken" in raised:  # whatever its status
            said = _one_line(raised["broken"])
            return "server", f"the reply broke off or is not JSON ({said})", 0
        if status >= 300:
            is_page = words.lower().startswith(("<!doctype", "<html"))
            page = "a web page: " * is_page
            return _kind(f"HTTP {status}: {words}"), f"HTTP {status}: {page}{words}", status
        kind = next((kind for kind in _RAISED if kind in raised), "server")
        if kind == "down":
            words = f"no connection ({words})"
        elif kind == "server":  # an error in the body of a reply with status 200
            kind = _kind(f"said: {words}")
        return kind, words, 0


# -- from a server's own signs to a kind

# What each sign of a failure means; the first that fits counts. A sign is "HTTP 404: words of the
# server", "said: words" (an error inside a reply that began with 200), or "raised" and the names of
# the exceptions: those of OpenAI's client are not imported, which need not be installed.
_SIGNS = {
    "^HTTP 429: .*(quota|billing)|^HTTP 40[123]:": "auth",
    "^HTTP (429|503):": "busy",
    "^HTTP 404:": "no_model",
    "^HTTP 405:": "down",
    "server busy|loading model|too many requests": "busy",
    "does not support chat": "no_model",
    r"(more|enough|out of) (system |gpu |video )?memory": "unusable",
    "context.?(length|size|window)|prompt is too long|input length exceeds"
    "|token repeat limit": "truncated",
    "must be of type|invalid (json schema|format|option)|response_format": "unusable",
    "^HTTP 3": "down",
    "^HTTP 4": "unusable",
    "^HTTP 5": "server",
    # a connection error of a client stands for a broken reply too
    r"^raised.*(ProtocolError|\b(Read|Write|Close)Error|\bJSONDecodeError)": "broken",
    r"^raised.*\b(Connect|gaierror)": "down",
    "^raised.*Timeout": "timeout",
    "^raised.*LengthFinishReasonError": "truncated",
    "^raised.*UnicodeEncodeError": "unusable",
}
_RAISED = ("down", "timeout", "truncated", "unusable")  # what counts first, of a chain


def _words_of(error: BaseException) -> str:
    body = getattr(error, "body", None) or getattr(error, "error", None) or str(error)
    return _server_words(body) or type(error).__name__


def _chain(error: BaseException) -> list[BaseException]:
    """Return an exception and those that it came of."""
    chain = [error]
    while (cause := chain[-1].__cause__ or chain[-1].__context__) and cause not in chain:
        chain.append(cause)
    return chain


def _kind(sign: str) -> str:
    kinds = (kind for words, kind in _SIGNS.items() if re.search(words, sign, re.IGNORECASE))
    return next(kinds, "server")


def _status(error: BaseException) -> int:
    """Return the HTTP status that an exception of a client holds, or 0."""
    for holder in (error, getattr(error, "response", None)):
        status = getattr(holder, "status_code", None)
        if isinstance(status, int):
            return status
    return 0


def _server_words(body: Any) -> str:
    """Return the message inside a JSON error body, or the body itself, in one line."""
    if isinstance(body, str):
        with contextlib.suppress(ValueError, RecursionError):
            body = json.loads(body)
    for name in ("error", "detail", "message"):
        if isinstance(body, dict):
            body = body.get(name, body)
    return _one_line(str(body))


def _one_line(text: str) -> str:
    text = " ".join(text.split())
    if len(text) > 300:
        return text[:297] + "..."
    return text


# -- secrets

_SECRET_NAME = re.compile(
    r"(api|subscription|access|private).?key|authori[sz]ation|secret|password|credential|cookie|token$|^auth$",
    re.IGNORECASE,
)
# Error texts of servers repeat keys in part ("Incorrect API key provided: sk-ab***yz"). A name and
# tag before the twelve digits of a digest are a model, not a user and a password.
_KEY_LIKE = re.compile(
    r"\bsk-[\w*.\-]{4,}|(?i:bearer)\s+[\w.~+/\-]{8,}=*|\bBasic\s+(?=\S*[A-Z0-9=])[\w+/]{4,}=*|(?<=//)[^/\s@]+(?=@)|[\w.%-]+:[^/\s@]+(?=@(?![0-9a-f]{12}\b))"
)
# Escape codes, carriage returns, marks that turn the direction of writing, and what UTF-8 cannot
# hold.
_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


# Headers that hold no secret of anybody; names in a query that often do.
_OPEN_HEADERS = {"accept", "accept-encoding", "content-type", "connection", "user-agent"}
_OF_QUERY = {"key", "sig", "signature", "code", "sid", "pwd"}


def sounds_secret(name: str, of: str = "") -> bool:
    """Whether a field, header or variable of this name is likely to hold a secret.

    ``of`` : name of the mapping that it is in, such as ``default_headers`` or ``extra_query``.
    """
    of, name = of.lower(), name.lower()
    if of.endswith("headers"):
        return name not in _OPEN_HEADERS
    is_of_query = of.endswith(("query", "params")) and name in _OF_QUERY
    return is_of_query or bool(_SECRET_NAME.search(name))


def mask(text: str, secrets: Iterable[str]) -> str:
    """Hide secrets in a text, in the forms that a server can echo: plain, in a URL, in JSON, in
    HTML or two of these, in base64, in hexadecimal digits.
    """
    forms = {form for secret in secrets for form in _forms(secret)}
    for form in sorted(forms, key=len, reverse=True):
        text = text.replace(form, "[secret]")
    return text


def _in_json(text: str) -> str:
    return json.dumps(text)[1:-1]


def _in_json_of_go(text: str) -> str:
    signs = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}
    return _in_json(text).translate(str.maketrans(signs))


def _in_html_of_go(text: str) -> str:
    return html.escape(text).replace("&quot;", "&#34;").replace("&#x27;", "&#39;")


def _in_url(text: str) -> str:
    return quote(text, safe="")


_ENCODERS: tuple[Callable[[str], str], ...] = (
    html.escape,
    _in_html_of_go,
    _in_json,
    _in_json_of_go,
    lambda text: _in_json(text).replace("/", "\\/"),
    _in_url,
    quote,
    lambda text: re.sub("%..", lambda code: code[0].lower(), _in_url(text)),
)


@functools.lru_cache(maxsize=64)
def _forms(secret: str) -> frozenset[str]:
    forms = {secret}
    for _ in range(2):  # also JSON in JSON, a URL in a URL
        forms.update([encode(form) for form in forms for encode in _ENCODERS])
    of_bytes = secret.encode("utf-8", "replace")
    forms |= {of_bytes.hex(), of_bytes.hex().upper()}
    for before in range(3):  # places in the three bytes that four letters stand for
        packed = base64.b64encode(b"\0" * before + of_bytes).decode()
        # without the letters that its neighbours change
        inside = re.sub(r".=+$", "", packed[(0, 2, 3)[before] :])
        forms |= {inside, inside.replace("+", "-").replace("/", "_")}
    return frozenset(forms)


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """Make words of a server fit for a message (never for a reply): no keys in them, and nothing a
    terminal obeys.
    """
    text = _KEY_LIKE.sub("[secret]", mask(text, secrets))
    return _CONTROLS.sub(lambda match: match[0].encode("unicode_escape").decode(), text)
