"""No prompt is cut in silence: Ollama is asked to refuse one that does not fit, by a transport
under its own client.

A count proves little: from 0.30 on Ollama counts what its cache did not have.
"""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator
from contextvars import ContextVar
from typing import Any

import httpx

MAX_BYTES = 64 * 2**20  # of one answer of a server; 100,000 tokens come in some 20 MB of stream
# Headers of the answer to the call under way, which the clients drop: a list that the transport
# adds to.
answer_headers: ContextVar[list[httpx.Headers] | None] = ContextVar("answer_headers", default=None)


def estimate_tokens(text: str) -> int:
    """Estimate tokens:

    4 ASCII characters or 1 other each. For English within a quarter of common vocabularies.
    """
    plain = len(text) if text.isascii() else len(text.encode("ascii", "ignore"))
    return math.ceil(plain / 4) + len(text) - plain


def prompt_tokens(text: str) -> int:
    """Estimate the tokens of a prompt of one message, 4 more for the template."""
    return estimate_tokens(text) + 4


def _could_overflow(body: dict[str, Any]) -> bool:
    """Whether prompt and answer could together be longer than the window;

    two characters are a token at the most.
    """
    options = body.get("options") or {}
    longest = options.get("num_predict", -1)
    text = sum(len(str(message.get("content", ""))) for message in body.get("messages", ()))
    return longest < 0 or text / 2 + longest > options.get("num_ctx", 4096)


class Transport(httpx.AsyncBaseTransport):
    """Under the clients of Ollama and OpenAI: adds ``truncate`` and ``shift``, bounds replies,
    keeps headers in sight.

    ``shift: false`` ends an answer at num_ctx. From Ollama 0.30 on it also switches the prompt
    cache off, so it is sent only where it can matter.
    """

    def __init__(self, inner: httpx.AsyncBaseTransport | None = None) -> None:
        self._inner = inner or httpx.AsyncHTTPTransport(
            limits=httpx.Limits(
                max_connections=None, max_keepalive_connections=32, keepalive_expiry=5.0
            )
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request."""
        headers = [
            (k, v)
            for k, v in request.headers.raw
            if k.lower() not in (b"accept-encoding", b"content-length")
        ]
        content = await request.aread()
        if request.url.path in ("/api/chat", "/api/embed"):
            body = json.loads(content) | {"truncate": False}
            if request.url.path == "/api/chat" and _could_overflow(body):
                body["shift"] = False
            content = json.dumps(body).encode()
        # a small compressed reply can be gigabytes
        headers.append((b"accept-encoding", b"identity"))
        about = {"headers": headers, "content": content, "extensions": request.extensions}
        response = await self._inner.handle_async_request(
            httpx.Request(request.method, request.url, **about)
        )
        if (seen := answer_headers.get()) is not None:
            seen.append(response.headers)
        if response.headers.get("content-encoding", "identity") != "identity":
            raise httpx.RemoteProtocolError("a compressed reply, which was not asked for")
        response.stream = _Bounded(response.stream)
        return response

    async def aclose(self) -> None:
        """Close the connections."""
        await self._inner.aclose()


class _Bounded(httpx.AsyncByteStream):
    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        count = 0
        async for piece in self._stream:
            count += len(piece)
            if count > MAX_BYTES:
                raise httpx.RemoteProtocolError(f"a reply of more than {MAX_BYTES:,} bytes")
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()
