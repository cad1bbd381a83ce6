"""The wire under the clients of Ollama and OpenAI: no prompt is cut in silence, no reply is
endless, and a call under way can be let go.

Ollama is asked to refuse a prompt that does not fit (``truncate: false``), which its client cannot
say. A count proves little: from 0.30 on Ollama counts what its cache did not have.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
import os
import socket
import ssl
import time
import urllib.request
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import httpx

MAX_BYTES = 64 * 2**20  # of one answer of a server; 100,000 tokens come in some 20 MB of stream
_CONNECT_S = 10.0


def estimate_tokens(text: str) -> int:
    """Estimate tokens: 4 ASCII characters or 1 other each. For English within a quarter of common
    vocabularies.
    """
    plain = len(text.encode("ascii", "ignore"))
    return math.ceil(plain / 4) + len(text) - plain


def _proxy_for(url: httpx.URL) -> str | None:
    """Return the proxy that the environment names for an address; this machine needs none."""
    if url.host in ("localhost", "::1") or url.host.startswith("127."):
        return None
    if urllib.request.proxy_bypass(url.host):
        return None
    proxies = urllib.request.getproxies()
    return proxies.get(url.scheme) or proxies.get("all")


class Transport(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Under the clients of a model: completes requests, bounds replies in size and time.

    ``verify`` is of httpx's transport, which is made at the first request: a proxy or certificate
    that cannot be used troubles no replay. The timeout of a request holds
    until the first byte of its reply, and from there to the last one. ``port`` gives that of a
    server which is started at the first request.
    """

    def __init__(
        self,
        inner: httpx.BaseTransport | None = None,
        *,
        port: Callable[[], int] | None = None,
        verify: Any = True,
    ) -> None:
        self._inner = inner
        self._async: httpx.AsyncBaseTransport | None = None
        self._port = port
        self._verify = verify
        self._connections: weakref.WeakSet[Any] = weakref.WeakSet()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request."""
        timeout = self._complete(request, request.read())
        if self._inner is None:
            self._inner = _opened(httpx.HTTPTransport, request.url, self._verify)
        request.extensions["trace"] = self._note_connection
        response = self._inner.handle_request(request)
        if response.headers.get("content-encoding", "identity") != "identity":
            raise httpx.RemoteProtocolError("a compressed reply, which was not asked for")
        response.stream = _Bounded(response.stream, timeout["read"])
        busy = response.status_code in (429, 503)
        if busy and request.url.path.startswith("/api/"):  # the client of Ollama drops the headers
            words = response.read().decode("utf-8", "replace")
            raise httpx.HTTPStatusError(words, request=request, response=response)
        is_json = response.headers.get("content-type", "").startswith("application/json")
        if is_json and request.url.path.endswith("/chat/completions"):
            content = _choice_first(response.read())
            kept = {"headers": response.headers, "extensions": response.extensions}
            response = httpx.Response(response.status_code, content=content, **kept)
        return response

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request of ``ainvoke``; `ask` makes none."""
        self._complete(request, await request.aread())
        if self._async is None:
            self._async = _opened(httpx.AsyncHTTPTransport, request.url, self._verify)
        return await self._async.handle_async_request(request)

    def _complete(self, request: httpx.Request, content: bytes) -> dict[str, float | None]:
        """Add what its client cannot say to a request, and bound connecting; return its limits."""
        if self._port is not None:
            request.url = request.url.copy_with(host="127.0.0.1", port=self._port())
        if content:
            content = _with_fields(request.url, content)
            request.stream = httpx.ByteStream(content)
            request.headers["content-length"] = str(len(content))
        # a small compressed reply can be gigabytes
        request.headers["accept-encoding"] = "identity"
        timeout = request.extensions["timeout"]
        timeout["connect"] = min(timeout["connect"] or math.inf, _CONNECT_S)
        return timeout

    def _note_connection(self, event: str, details: dict[str, Any]) -> None:
        if event.endswith(("connect_tcp.complete", "start_tls.complete")):
            self._connections.add(details["return_value"])

    def abort(self) -> None:
        """Break all connections: calls under way end, and the server stops writing."""
        for connection in list(self._connections):
            with contextlib.suppress(OSError):
                connection.get_extra_info("socket").shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connections."""
        if self._inner is not None:
            self._inner.close()


class _Bounded(httpx.SyncByteStream):
    def __init__(self, stream: Any, seconds: float | None) -> None:
        self._stream = stream
        self._end = time.monotonic() + (seconds or math.inf)

    def __iter__(self) -> Iterator[bytes]:
        left = MAX_BYTES
        for piece in self._stream:
            left -= len(piece)
            if left < 0:
                raise httpx.RemoteProtocolError(f"a reply of more than {MAX_BYTES:,} bytes")
            if time.monotonic() > self._end:
                raise httpx.ReadTimeout("the deadline is over")
            yield piece

    def close(self) -> None:
        self._stream.close()


def _with_fields(url: httpx.URL, content: bytes) -> bytes:
    """Add what the clients cannot say to the body of a request.

    ``shift: false`` ends an answer at num_ctx. From Ollama 0.30 on it also switches the prompt
    cache off, so it is sent only where it can matter. The limit of tokens goes to OpenAI's
    protocol under its older name, which all its servers but OpenAI's know; ``extra_body=
    {"max_tokens": None}`` keeps the newer one.
    """
    to_openai = url.path.endswith("/chat/completions") and url.host != "api.openai.com"
    if not to_openai and url.path not in ("/api/chat", "/api/embed"):
        return content
    body = json.loads(content)
    if not to_openai:
        body["truncate"] = False
        options = body.get("options") or {}
        longest = options.get("num_predict", -1)
        # two characters are a token at the most
        text = sum(len(str(message.get("content", ""))) for message in body.get("messages", ()))
        if text and (longest < 0 or text / 2 + longest > options.get("num_ctx", 4096)):
            body["shift"] = False
    elif "max_completion_tokens" in body and "max_tokens" not in body:
        body["max_tokens"] = body.pop("max_completion_tokens")
    elif body.get("max_tokens", 0) is None:
        del body["max_tokens"]
    return json.dumps(body).encode()


def _choice_first(content: bytes) -> bytes:
    """Put the choice with the lowest index first: LangChain takes the first of the list."""
    try:
        body = json.loads(content)
        if len(body["choices"]) > 1:
            body["choices"].sort(key=lambda choice: choice["index"])
            return json.dumps(body).encode()
    except (ValueError, LookupError, TypeError, RecursionError):
        pass  # whoever reads it says what is wrong
    return content


@functools.lru_cache(maxsize=4)
def _trusted(file: str | None) -> ssl.SSLContext:
    """Read the certificates that are trusted, once: it takes 40 ms."""
    return httpx.create_ssl_context()


def _opened(kind: Any, url: httpx.URL, verify: Any) -> Any:
    certificates = os.environ.get("SSL_CERT_FILE")
    proxy = _proxy_for(url)
    try:
        if verify is True:
            verify = _trusted(certificates)
        limits = httpx.Limits(max_connections=None, keepalive_expiry=5.0)
        return kind(limits=limits, verify=verify, proxy=proxy)
    except (ImportError, OSError, ValueError) as error:  # a package for SOCKS, a certificate's file
        what = f"proxy {proxy}, SSL_CERT_FILE {certificates}"
        raise httpx.ConnectError(f"{type(error).__name__}: {error}; {what}") from None
