"""The wire under the clients of Ollama and OpenAI: no prompt is cut in silence, no reply is
endless.

Ollama is asked to refuse a prompt that does not fit (``truncate: false``), which its client cannot
say. A count proves little: from 0.30 on Ollama counts what its cache did not have.
"""

from __future__ import annotations

import functools
import json
import math
import os
import ssl
import time
import urllib.request
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import httpx

MAX_BYTES = 64 * 2**20  # of one answer of a server; 100,000 tokens come in some 20 MB of stream
_CONNECT_S = 10.0


def estimate_tokens(text: str) -> int:
    """Estimate tokens: 4 ASCII characters or 1 other each. For English within a quarter of common
    vocabularies.
    """
    plain = len(text) if text.isascii() else len(text.encode("ascii", "ignore"))
    return math.ceil(plain / 4) + len(text) - plain


def prompt_tokens(text: str) -> int:
    """Estimate the tokens of a prompt of one message, 4 more for the template."""
    return estimate_tokens(text) + 4


@dataclass
class Call:
    """One call under way: how long it may take, when it must be over, what its answer's head says.

    ``deadline_s`` holds until the first byte, and from there to the last one.
    """

    deadline_s: float
    end: float = math.inf
    headers: httpx.Headers = field(default_factory=httpx.Headers)


# Of this thread: the clients take no argument that would reach the transport.
call_under_way: ContextVar[Call | None] = ContextVar("call_under_way", default=None)


def proxy_for(host: str) -> str | None:
    """Return the proxy that the environment names for an address; this machine needs none."""
    url = httpx.URL(host)
    if url.host in ("localhost", "::1") or url.host.startswith("127."):
        return None
    if urllib.request.proxy_bypass(url.host):
        return None
    proxies = urllib.request.getproxies()
    return proxies.get(url.scheme) or proxies.get("all")


def _could_overflow(body: dict[str, Any]) -> bool:
    """Whether prompt and answer could together be longer than the window.

    Two characters are a token at the most.
    """
    options = body.get("options") or {}
    longest = options.get("num_predict", -1)
    text = sum(len(str(message.get("content", ""))) for message in body.get("messages", ()))
    return longest < 0 or text / 2 + longest > options.get("num_ctx", 4096)


def _with_fields(path: str, host: str, content: bytes) -> bytes:
    """Add what the clients cannot say to the body of a request.

    ``shift: false`` ends an answer at num_ctx. From Ollama 0.30 on it also switches the prompt
    cache off, so it is sent only where it can matter. The limit of tokens goes to OpenAI's
    protocol under its older name, which all its servers but OpenAI's know.
    """
    if path in ("/api/chat", "/api/embed"):
        body = json.loads(content) | {"truncate": False}
        if path == "/api/chat" and _could_overflow(body):
            body["shift"] = False
        return json.dumps(body).encode()
    if path.endswith("/chat/completions") and host != "api.openai.com":
        body = json.loads(content)
        if "max_completion_tokens" in body:
            body["max_tokens"] = body.pop("max_completion_tokens")
        return json.dumps(body).encode()
    return content


def _rewritten(request: httpx.Request, content: bytes) -> httpx.Request:
    replaced = (b"accept-encoding", b"content-length")
    headers = [pair for pair in request.headers.raw if pair[0].lower() not in replaced]
    headers.append((b"accept-encoding", b"identity"))  # a small compressed reply can be gigabytes
    extensions = request.extensions
    if (call := call_under_way.get()) is not None:
        extensions = {**extensions, "timeout": dict.fromkeys(("read", "write"), call.deadline_s)}
        extensions["timeout"] |= {"connect": _CONNECT_S, "pool": call.deadline_s}
    content = _with_fields(request.url.path, request.url.host, content)
    more = {"headers": headers, "content": content, "extensions": extensions}
    return httpx.Request(request.method, request.url, **more)


class Transport(httpx.BaseTransport):
    """Under a client of Ollama or OpenAI: completes requests, bounds replies in size and time.

    ``options`` (proxy, verify) are of httpx's transport, which is made at the first request: a
    proxy or certificate that cannot be used troubles no replay.
    """

    def __init__(self, inner: httpx.BaseTransport | None = None, **options: Any) -> None:
        self._inner = inner
        self._options = options

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request."""
        if self._inner is None:
            self._inner = _made(httpx.HTTPTransport, self._options)
        response = self._inner.handle_request(_rewritten(request, request.read()))
        call = call_under_way.get()
        if call is not None:
            call.headers = response.headers
            call.end = min(call.end, time.monotonic() + call.deadline_s)
        if response.headers.get("content-encoding", "identity") != "identity":
            raise httpx.RemoteProtocolError("a compressed reply, which was not asked for")
        response.stream = _Bounded(response.stream, call)
        return response

    def close(self) -> None:
        """Close the connections."""
        if self._inner is not None:
            self._inner.close()


class _Bounded(httpx.SyncByteStream):
    def __init__(self, stream: Any, call: Call | None) -> None:
        self._stream = stream
        self._call = call

    def __iter__(self) -> Iterator[bytes]:
        count = 0
        for piece in self._stream:
            count += len(piece)
            if count > MAX_BYTES:
                raise httpx.RemoteProtocolError(f"a reply of more than {MAX_BYTES:,} bytes")
            if self._call is not None and time.monotonic() > self._call.end:
                raise httpx.ReadTimeout("the deadline is over")
            yield piece

    def close(self) -> None:
        self._stream.close()


class AsyncTransport(httpx.AsyncBaseTransport):
    """The same requests for ``ainvoke``; `ask` does not use it."""

    def __init__(self, **options: Any) -> None:
        self._inner: httpx.AsyncBaseTransport | None = None
        self._options = options

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request."""
        if self._inner is None:
            self._inner = _made(httpx.AsyncHTTPTransport, self._options)
        return await self._inner.handle_async_request(_rewritten(request, await request.aread()))


@functools.lru_cache(maxsize=4)
def _trusted(file: str | None) -> ssl.SSLContext:
    """Read the certificates that are trusted, once: it takes 40 ms."""
    return httpx.create_ssl_context()


def _made(kind: Any, options: dict[str, Any]) -> Any:
    limits = httpx.Limits(max_connections=None, keepalive_expiry=5.0)
    try:
        if options.get("verify", True) is True:
            options = {**options, "verify": _trusted(os.environ.get("SSL_CERT_FILE"))}
        return kind(limits=limits, **options)
    except (ImportError, OSError, ValueError) as error:  # a package for SOCKS, a certificate's file
        what = f"proxy {options.get('proxy')}, SSL_CERT_FILE {os.environ.get('SSL_CERT_FILE')}"
        raise httpx.ConnectError(f"{type(error).__name__}: {error}; {what}") from None
