"""The wire under the clients of Ollama and OpenAI: no prompt is cut in silence, no reply is
endless, and a call under way can be let go.

Ollama is asked to refuse a prompt that does not fit (``truncate: false``), which its client cannot
say. A count proves little: from 0.30 on Ollama counts what its cache did not have.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import math
import os
import re
import socket
import ssl
import threading
import time
import urllib.request
import weakref
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any

import httpx
import ollama

from ragbench.errors import ConfigError
from ragbench.llm.failures import redact

OLLAMA_HOST = "http://localhost:11434"
_CONNECT_S = 10.0
_ASK_S = 10.0  # for what is asked beside the prompts, at most
_DEFAULT_WINDOW = 4096  # tokens of Ollama's window where a request names none
_MOST_TOKENS_A_BYTE = 0.5  # a token has two bytes at least


def estimate_tokens(text: str) -> int:
    """Estimate tokens: 4 ASCII characters or 1 other each. For English within a quarter of common
    vocabularies.
    """
    ascii_count = len(text.encode("ascii", "ignore"))
    return math.ceil(ascii_count / 4) + len(text) - ascii_count


# -- one request


class Transport(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Under the clients of a model: completes requests, and bounds the time of replies.

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
        self._async: tuple[asyncio.AbstractEventLoop, httpx.AsyncBaseTransport] | None = None
        self._port = port
        self._verify = verify
        self._connections: weakref.WeakSet[Any] = weakref.WeakSet()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request."""
        self._complete(request, request.read())
        if self._inner is None:
            self._inner = _opened(httpx.HTTPTransport, request.url, self._verify)
        request.extensions["trace"] = self._note_connection
        limits = request.extensions["timeout"]
        seconds = limits["read"]
        # httpx's limit is on each piece: a server can say "100 Continue" for ever
        send = functools.partial(self._inner.handle_request, request)
        response = within(seconds and seconds + limits["connect"], send)
        response.stream = _Bounded(response.stream, seconds)
        return response

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request of ``ainvoke``; `ask` makes none."""
        self._complete(request, await request.aread())
        loop = asyncio.get_running_loop()  # connections are of the loop that opened them
        if self._async is None or self._async[0] is not loop:
            self._async = loop, _opened(httpx.AsyncHTTPTransport, request.url, self._verify)
        return await self._async[1].handle_async_request(request)

    def _complete(self, request: httpx.Request, content: bytes) -> None:
        """Add what its client cannot say to a request, and bound connecting."""
        if self._port is not None:
            request.url = request.url.copy_with(host="127.0.0.1", port=self._port())
        if content:
            content = _with_fields(request.url, content)
            request.stream = httpx.ByteStream(content)
            request.headers["content-length"] = str(len(content))
        timeout = request.extensions["timeout"]
        timeout["connect"] = min(timeout["connect"] or math.inf, _CONNECT_S)

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

    @staticmethod
    def address(host: str, port: int, path: str = "") -> str:
        """Complete an address such as "gpu1", ":11434" or "::1".

        ``port`` and ``path`` are used where none is given (the port only without a scheme).
        """
        host = host.strip().strip("'\"").strip()
        if own_port := re.fullmatch(r"::1:(\d{4,5})", host):
            host = f"[::1]:{own_port[1]}"  # as people write it; no other machine is meant
        parts = _ADDRESS.fullmatch(host)
        if parts is None or not (parts["name"] or parts["port"]) or int(parts["port"] or 0) > 65535:
            raise ConfigError(
                f"host={host.rsplit('@', 1)[-1]!r}",
                "an address such as http://localhost:11434, without user and password",
                "check the spelling; a password goes into a header, see docs/models.md",
            )
        name = parts["name"]
        if name in ("", "0.0.0.0", "::", "[::]"):
            name = "127.0.0.1"  # what a server binds to is not where it is reached
        elif ":" in name:
            name = f"[{name.strip('[]')}]"
        if parts["port"]:
            name += f":{parts['port']}"
        elif not parts["scheme"]:
            name += f":{port}"
        own_path = (parts["path"] or "").rstrip("/")
        scheme = (parts["scheme"] or "http").lower()
        return f"{scheme}://{name}{own_path or path}"


def within(seconds: float | None, call: Callable[[], httpx.Response]) -> httpx.Response:
    """Return what a call returns, or raise httpx.ReadTimeout; then its thread is left alone."""
    outcome: Future[httpx.Response] = Future()

    def work() -> None:
        try:
            outcome.set_result(call())
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    try:
        return outcome.result(seconds)
    except TimeoutError:
        if outcome.done():
            raise
        raise httpx.ReadTimeout("the deadline is over") from None


class _Bounded(httpx.SyncByteStream):
    def __init__(self, stream: Any, seconds: float | None) -> None:
        self._stream = stream
        self._end = time.monotonic() + (seconds or math.inf)

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._stream:
            if time.monotonic() > self._end:
                raise httpx.ReadTimeout("the deadline is over")
            yield piece

    def close(self) -> None:
        self._stream.close()


def _with_fields(url: httpx.URL, content: bytes) -> bytes:
    """Add what the clients cannot say to the body of a request."""
    if url.path.endswith(("/api/chat", "/api/embed")):
        body = json.loads(content)
        body["truncate"] = False
        options = body.get("options") or {}
        num_predict = options.get("num_predict", math.inf)  # as long as the model likes
        longest = len(content) * _MOST_TOKENS_A_BYTE + num_predict
        if num_predict < 0 or longest > options.get("num_ctx", _DEFAULT_WINDOW):
            # An answer ends at num_ctx. From Ollama 0.30 on this also switches the prompt cache
            # off, so it is sent only where it can matter.
            body["shift"] = False
    elif url.path.endswith("/chat/completions") and url.host != "api.openai.com":
        body = json.loads(content)
        # The limit of tokens goes under its older name, which all servers but OpenAI's know;
        # extra_body={"max_tokens": None} keeps the newer one.
        if "max_completion_tokens" in body and "max_tokens" not in body:
            body["max_tokens"] = body.pop("max_completion_tokens")
        elif body.get("max_tokens", 0) is None:
            del body["max_tokens"]
    else:
        return content
    return json.dumps(body).encode()


# -- the way to a server


def _proxy_for(url: httpx.URL) -> str | None:
    """Return the proxy that the environment names for an address; this machine needs none."""
    is_here = url.host in ("localhost", "::1") or url.host.startswith("127.")
    if is_here or urllib.request.proxy_bypass(url.host):
        return None
    proxies = urllib.request.getproxies()
    return proxies.get(url.scheme) or proxies.get("all")


def _opened(kind: Any, url: httpx.URL, verify: Any) -> Any:
    certificates = os.environ.get("SSL_CERT_FILE")
    limits = httpx.Limits(max_connections=None, keepalive_expiry=5.0)
    try:
        if verify is True:
            verify = _trusted(certificates)
        return kind(limits=limits, verify=verify, proxy=_proxy_for(url))
    except (ImportError, OSError, ValueError) as error:  # a package for SOCKS, a certificate's file
        what = f"{type(error).__name__}: {error}; SSL_CERT_FILE {certificates}"
        raise httpx.ConnectError(f"{what}, or the proxy of the environment") from None


@functools.lru_cache(maxsize=4)
def _trusted(file: str | None) -> ssl.SSLContext:
    """Read the certificates that are trusted, once: it takes 40 ms."""
    return httpx.create_ssl_context()


_ADDRESS = re.compile(
    r"""((?P<scheme>https?)://)?
        (?P<name> \[[\da-f:.]+(%[^\s/\]]+)?\] | [^/:@\s\[\]?\#]*
            | ([\da-f]{0,4}:){2,}[\da-f:.]*?(%\w+)? )   # IPv6, bare
        (:(?P<port>\d{1,5}))?
        (?P<path>/[^@\s?\#]*)?
        ([?\#][^@\s]*)?   # is left out""",
    re.IGNORECASE | re.VERBOSE,
)


class OllamaServer:
    """A server of Ollama, by one rule for chat, embedding and doctor.

    This machine is asked directly, others as the environment's proxies say.

    Parameters
    ----------
    host : its address; default ``OLLAMA_HOST``, else this machine.
    timeout_s : seconds to wait for a reply of ``client`` (None: for ever).
    settings : of httpx (``headers``, ``verify``, ``transport``), which hold.
    api_key : default ``OLLAMA_API_KEY``.

    Attributes
    ----------
    address, settings : what every client of this server is made with.
    ask_s : seconds to wait for what is asked beside the prompts.
    client : the package ``ollama``'s, for prompts and vectors.
    """

    def __init__(
        self,
        host: str | None = None,
        *,
        timeout_s: float | None,
        settings: Mapping[str, Any] | None = None,
        api_key: str | None = None,
    ) -> None:
        self.address = _ollama_address(host)
        # A redirect's address would get the prompts, and every header but Authorization. Proxies of
        # the environment are read by the transport: httpx refuses a NO_PROXY such as [::1].
        self.settings = {"follow_redirects": False, "trust_env": False, **(settings or {})}
        self.settings["headers"] = _with_key(self.settings.get("headers"), api_key)
        self.wire = self.settings.get("transport")
        if not isinstance(self.wire, Transport):
            self.wire = Transport(self.wire, verify=self.settings.get("verify", True))
        self.settings["transport"] = self.wire
        self.settings["timeout"] = httpx.Timeout(timeout_s, connect=_CONNECT_S)
        try:
            self.client = ollama.Client(self.address, **self.settings)
        except (TypeError, ValueError) as error:
            settings_of = "settings of httpx.Client"
            raise ConfigError(
                redact(f"client_kwargs: {error}"), settings_of, "correct it"
            ) from None
        self.ask_s = min(_ASK_S, timeout_s or math.inf)
        # so that a server that is away is told from one that is slow
        timeout = httpx.Timeout(self.ask_s, connect=self.ask_s / 2)
        of_web: dict[str, Any] = {**self.settings, "timeout": timeout}
        self._web = httpx.Client(base_url=self.address, **of_web)

    def say(self, path: str, end: float = math.inf, **body: Any) -> dict[str, Any]:
        """Ask for something beside the prompts, which the client does not hand on whole.

        ``end`` : by ``time.monotonic()``, the latest moment; a deadline below 10 s bounds it too.
        """
        method = "POST" if body else "GET"
        send = functools.partial(self._web.request, method, path, json=body or None)
        response = within(min(self.ask_s, max(0.0, end - time.monotonic())), send)
        if response.status_code >= 300:
            raise ollama.ResponseError(response.text, response.status_code)
        return response.json()

    def models(self, path: str = "/api/tags") -> dict[str, dict[str, Any]]:
        """Return what the server says of its models (with ``/api/ps``: of those loaded), by their
        full names.
        """
        listed = self.say(path)["models"]
        return {self.full_name(entry["model"]): entry for entry in listed}

    @staticmethod
    def full_name(name: str) -> str:
        """Return the name that Ollama lists for one.

        >>> OllamaServer.full_name("registry.ollama.ai/library/SmolLM2")
        'smollm2:latest'
        >>> OllamaServer.full_name("host:5000/bge-m3")
        'host:5000/bge-m3:latest'
        """
        short = name.casefold().removeprefix("registry.ollama.ai/").removeprefix("library/")
        if ":" in short.rsplit("/", 1)[-1]:
            return short
        return f"{short}:latest"


def _ollama_address(host: str | None) -> str:
    """Return the whole address of a server; ConfigError for OpenAI's protocol."""
    address = Transport.address(host or os.environ.get("OLLAMA_HOST") or OLLAMA_HOST, 11434)
    if re.search(r"/v1/?$", address):
        raise ConfigError(
            f"host={address}, which speaks OpenAI's protocol",
            "an address of Ollama, without /v1",
            "leave out /v1, or name the model openai:NAME",
        )
    return address


def _with_key(headers: Mapping[str, str] | None, api_key: str | None) -> dict[str, str]:
    headers = dict(headers or {})
    api_key = api_key or os.environ.get("OLLAMA_API_KEY")
    if api_key:
        headers.setdefault("authorization", f"Bearer {api_key}")
    return headers
