"""What ``ask`` needs of a model: who it is, what changes its replies, and one method that calls it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from ragbench.llm.failures import CallError, failure, from_exception, from_status
from ragbench.llm.reply import Usage
from ragbench.llm.secrets import secret_strings

if TYPE_CHECKING:
    import ssl

    import httpx

FINISHED = frozenset({"stop", "end_turn", "stop_sequence", "eos", "eos_token", "STOP"})
_CONNECT_S = 10.0


@dataclass(slots=True)
class Wire:
    """One reply as it came over the wire; None where the server says nothing."""

    text: str
    thinking: str = ""
    finish: str = ""
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    prompt_seconds: float = 0.0
    output_seconds: float = 0.0

    def usage(self, seconds: float, price: tuple[float, float] | None) -> Usage:
        """Turn the counts into Usage; ``price`` is money per million prompt and output tokens."""
        read, written = self.prompt_tokens, self.output_tokens
        counted = read is not None and written is not None
        cost = ((read or 0) * price[0] + (written or 0) * price[1]) / 1e6 if price and counted else math.nan
        return Usage(
            1, read or 0, written or 0, int(not counted), self.prompt_seconds, self.output_seconds, seconds, cost
        )


@dataclass(slots=True)
class Progress:
    """What a call has received so far: tells "no byte" from "too slow" when the deadline passes, and keeps the text."""

    bytes: int = 0
    parts: list[str] = field(default_factory=list)
    end: dict[str, Any] | None = None


class Driver:
    """What ``ask`` needs to know of a model: who it is, what changes its replies, and how to call it."""

    provider = ""
    name = ""
    host = ""
    num_ctx: int | None = None
    num_predict: int | None = None
    deadline_s: float | None = None
    price: tuple[float, float] | None = None
    pinned_digest: str | None = None
    secrets: tuple[str, ...] = ()
    slots: int | None = None  # most calls the server works on at once, where that is known
    has_spoken = False  # whether the server has ever answered here
    kept = False  # by its model, with its connections; else ask() closes it

    @property
    def model(self) -> str:
        """Provider and name, ``"ollama:llama3:8b"``."""
        return f"{self.provider}:{self.name}"

    @property
    def who(self) -> tuple[str, str]:
        """(host, model), the way failures are named."""
        return self.host, self.model

    def options(self) -> dict[str, Any]:
        """Everything that can change a reply, apart from messages and schema."""
        raise NotImplementedError

    async def digest(self) -> str:
        """Return the digest of the model's weights on the server; "" where the provider has none."""
        return self.pinned_digest or ""

    async def complete(self, messages: Sequence[dict], schema: dict | None, progress: Progress) -> Wire:
        """Send one request. Raises CallError, or whatever the model's own client raises."""
        raise NotImplementedError

    async def close(self) -> None:
        """Close the connections."""

    def fail(self, kind: str, detail: str, **more: Any) -> CallError:
        """Build a CallError that names this model and hides its secrets."""
        return failure(kind, detail, *self.who, secrets=self.secrets, **more)


class HttpDriver(Driver):
    """Shared by the two providers that are called directly.

    Each call under way has a client of its own, with one connection that is kept alive. One client for all would look
    at every connection of its pool for every request: 3.8 ms a call at 32 at once, instead of 0.8.
    """

    def __init__(self, base_url: str, headers: Mapping[str, str], client_options: Mapping[str, Any]) -> None:
        self.host = base_url.rstrip("/")
        self._headers = dict(headers)
        self._client_options = dict(client_options)
        self._clients: list[httpx.AsyncClient] = []
        self._idle: list[httpx.AsyncClient] = []
        self._loop: object = None

    @contextmanager
    def client(self) -> Iterator[httpx.AsyncClient]:
        """Lend a keep-alive client of the running loop. The total deadline is set by the caller, per call."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._clients, self._idle, self._loop = [], [], loop
        client = self._idle.pop() if self._idle else self._new_client()
        try:
            yield client
        finally:
            if self._loop is loop:
                self._idle.append(client)

    def _new_client(self) -> httpx.AsyncClient:
        import httpx

        options = {
            "verify": _tls(),
            "limits": httpx.Limits(max_connections=None, max_keepalive_connections=1, keepalive_expiry=60.0),
            **self._client_options,
            "timeout": httpx.Timeout(None, connect=_CONNECT_S),
            "headers": self._headers,
        }
        self._clients.append(httpx.AsyncClient(**options))
        return self._clients[-1]

    async def close(self) -> None:
        for client in self._clients:
            await client.aclose()
        self._clients, self._idle = [], []

    async def get_json(self, path: str, timeout_s: float = 10.0) -> Any:
        """GET a small JSON document. Raises CallError."""
        try:
            async with asyncio.timeout(timeout_s):
                with self.client() as client:
                    response = await client.get(self.host + path)
            self.has_spoken = True
            if response.status_code != 200:
                raise self.fail(*from_status(response.status_code, response.text), status=response.status_code)
            return response.json()
        except CallError:
            raise
        except Exception as error:
            raise self.fail(*from_exception(error)) from None

    async def refuse(self, response: httpx.Response, progress: Progress) -> CallError:
        """Read the body of an error answer and name the failure."""
        body = (await response.aread()).decode("utf-8", "replace")
        progress.bytes += len(body)
        wait = retry_after(response.headers.get("retry-after"))
        kind, detail = from_status(response.status_code, body, wait)
        return self.fail(kind, detail, status=response.status_code, retry_after=wait)


@cache
def _tls() -> ssl.SSLContext:
    """Load the certificates once, not for every client."""
    import httpx

    return httpx.create_ssl_context()


def retry_after(value: str | None) -> float | None:
    """Read a Retry-After header: seconds, or an HTTP date. None where there is none or it makes no sense."""
    if not value:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    from datetime import UTC, datetime
    from email.utils import parsedate_to_datetime

    try:
        return max(0.0, (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds())
    except (TypeError, ValueError):
        return None


def take_settings(driver: HttpDriver, model: Any, headers: Mapping[str, str]) -> None:
    """Take over what ``chat_model`` set beyond the LangChain class, and note the secrets to hide."""
    driver.deadline_s = getattr(model, "deadline_s", None)
    driver.price = getattr(model, "price", None)
    driver.pinned_digest = getattr(model, "digest", None)
    if driver.num_ctx is None:
        driver.num_ctx = getattr(model, "num_ctx", None)
    driver.secrets = secret_strings(model, headers)
