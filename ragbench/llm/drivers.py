"""The wire: which way a chat model is spoken to, and what comes back.

Ollama (``ollama.py``) and OpenAI-compatible servers (``openai.py``) are called over HTTP directly, with the options of
the LangChain model: that keeps what LangChain's path loses (the Retry-After header, HTML bodies, a stream without its
end mark, ``truncate: false``) and is faster. Any other LangChain chat model goes through its own ``ainvoke``.
"""

from __future__ import annotations

import asyncio
import base64
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from ragbench.errors import ConfigError
from ragbench.llm import loop
from ragbench.llm.failures import CallError, failure, from_exception, from_status, printable
from ragbench.llm.reply import Usage
from ragbench.llm.secrets import plain_options, secret_strings
from ragbench.llm.structured import LOOPING, repeats

if TYPE_CHECKING:  # slow imports
    import ssl

    import httpx
    from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
    from langchain_core.messages import BaseMessage
    from langchain_core.outputs import ChatResult
    from pydantic import SecretStr

FINISHED = frozenset({"stop", "end_turn", "stop_sequence", "eos", "eos_token", "STOP"})
_CONNECT_S = 10.0
MOST_BYTES = 64 * 2**20  # of one answer of a server; 100,000 tokens come in some 20 MB of stream
_LOOK_EVERY = 50_000  # bytes of a stream, for a reply that repeats itself (some 500 tokens)


def token_count(value: Any) -> int | None:
    """Return a server's count of tokens; None for anything but a whole number that can be one."""
    whole = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e12 and value == int(value)
    return int(value) if whole else None


def seconds(value: Any, per_second: float) -> float:
    """Return a server's duration in seconds; 0 for anything that is none."""
    known = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e18
    return value / per_second if known else 0.0


def text_of(content: Any) -> str:
    """Return the text of a message's content: a text, a list of blocks (joined), or nothing; TypeError for others."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        raise TypeError(f"content of type {type(content).__name__}")
    blocks = [block for block in content if not isinstance(block, dict) or block.get("type", "text") == "text"]
    return "".join(text_of(block.get("text") if isinstance(block, dict) else block) for block in blocks)


def word(value: Any) -> str:
    """Return a server's own short word (why it stopped, a digest), fit for a table."""
    return printable(str(value or ""))[:100]


@dataclass(slots=True)
class Wire:
    """One reply as it came over the wire; None where the server says nothing. ``form``: how the schema was sent."""

    text: str
    thinking: str = ""
    finish: str = ""
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    prompt_seconds: float = 0.0
    output_seconds: float = 0.0
    form: str = ""

    def usage(self, seconds: float, price: tuple[float, float] | None) -> Usage:
        """Turn the counts into Usage; ``price`` is money per million prompt and output tokens."""
        read, written = self.prompt_tokens, self.output_tokens
        counted = read is not None and written is not None
        cost = ((read or 0) * price[0] + (written or 0) * price[1]) / 1e6 if price and counted else math.nan
        return Usage(
            1, read or 0, written or 0, int(not counted), self.prompt_seconds, self.output_seconds, seconds, cost
        )


@dataclass(slots=True)
class Received:
    """What a call has received so far: tells "no byte" from "too slow" when the deadline passes, and keeps the text."""

    bytes: int = 0
    parts: list[str] = field(default_factory=list)
    thinking: list[str] = field(default_factory=list)
    end: dict[str, Any] | None = None
    _pieces: list[bytes] = field(default_factory=list)
    _tail: str = ""
    _looked_at: int = 0

    @property
    def text(self) -> str:
        """What the model has written so far."""
        return "".join(self.parts)

    def lines(self, piece: bytes = b"\n") -> list[bytes]:
        """Add a piece of a stream; return the lines that it ends (by default what is left, at the stream's end)."""
        if b"\n" not in piece:
            self._pieces.append(piece)
            return []
        *whole, last = b"".join([*self._pieces, piece]).split(b"\n")
        self._pieces = [last]
        return whole

    def write(self, text: str) -> None:
        """Add what the model has written."""
        self.parts.append(text)
        self._tail = (self._tail + text)[-LOOPING:]

    def loops(self) -> bool:
        """Whether the reply does nothing but repeat itself; looked at now and then."""
        if self.bytes - self._looked_at <= _LOOK_EVERY:
            return False
        self._looked_at = self.bytes
        return repeats(self._tail)


class Driver:
    """What ``ask`` needs of a model: who it is, what changes its replies, and one method that calls it."""

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
    kept_by: Any = None  # the model that keeps it, with its connections; without one ask() closes it

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

    async def complete(self, messages: Sequence[dict], schema: dict | None, received: Received) -> Wire:
        """Send one request. Raises CallError, or whatever the model's own client raises."""
        raise NotImplementedError

    async def close(self) -> None:
        """Close the connections."""

    def fail(self, kind: str, detail: str, **more: Any) -> CallError:
        """Build a CallError that names this model and hides its secrets."""
        return failure(kind, detail, *self.who, secrets=self.secrets, **more)

    def named(self, error: Exception) -> CallError:
        """Return any exception as a CallError."""
        return error if isinstance(error, CallError) else self.fail(*from_exception(error))

    async def call(self, messages: Sequence[dict], schema: dict | None, deadline_s: float | None) -> Wire:
        """Send one request and wait no longer than ``deadline_s`` for its last byte.

        Raises
        ------
        CallError : of kind ``no_bytes`` or ``slow`` when the deadline passes, else what ``complete`` found.
        """
        received = Received()
        try:
            async with asyncio.timeout(deadline_s):
                return await self.complete(messages, schema, received)
        except TimeoutError:
            if received.bytes:
                detail = f"not finished after {deadline_s:g} s ({received.bytes} bytes received)"
                raise self.fail("slow", detail, raw=received.text) from None
            raise self.fail("no_bytes", f"no byte received in {deadline_s:g} s") from None


def agreed_digest(drivers: Iterable[Driver], digests: Iterable[str | None]) -> str | None:
    """Return the one digest that the hosts of a model give (None: not said). Raises CallError for several."""
    said = {digest: driver for driver, digest in zip(drivers, digests, strict=True) if digest is not None}
    if len(said) > 1:
        digests_at = ", ".join(f"{digest[:12]} at {driver.host}" for digest, driver in said.items())
        first = next(iter(said.values()))
        raise first.fail("digest", f"two digests under one name: {digests_at}", do="pull the same model on every host")
    return next(iter(said), None)


class HttpDriver(Driver):
    """Shared by the two providers that are called directly.

    Each call under way has a client of its own, with one connection that is kept alive. One client for all would look
    at every connection of its pool for every request: 3.8 ms a call at 32 at once, instead of 0.8.
    """

    def __init__(self, model: Any, base_url: str, headers: Mapping[str, str], client: Mapping[str, Any]) -> None:
        self.host = base_url.rstrip("/")
        self._headers = dict(headers)
        self._client_options = dict(client)
        self._clients: list[httpx.AsyncClient] = []
        self._idle: list[httpx.AsyncClient] = []
        self._loop: object = None
        # What ``chat_model`` set beyond the LangChain class.
        self.deadline_s = getattr(model, "deadline_s", None)
        self.price = getattr(model, "price", None)
        self.pinned_digest = getattr(model, "digest", None)
        self.num_ctx = getattr(model, "num_ctx", None)
        self.secrets = secret_strings(model, headers)

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

    async def get_json(self, path: str, timeout_s: float = 10.0, *, root: bool = False, sent: Any = None) -> Any:
        """GET (``sent``: POST) a JSON document, below the API's address or (``root``) beside it. Raises CallError."""
        address = (self.host.removesuffix("/v1") if root else self.host) + path
        received = Received()
        try:
            async with asyncio.timeout(timeout_s):
                with self.client() as client:
                    async with client.stream("GET" if sent is None else "POST", address, json=sent) as response:
                        self.has_spoken = True
                        if response.status_code != 200:
                            raise await self.refuse(response, received)
                        return json.loads(await self.whole(response, received))
        except Exception as error:
            raise self.named(error) from None

    async def whole(self, response: httpx.Response, received: Received) -> str:
        """Read a body to its end."""
        return b"".join([self.counted(piece, received) async for piece in response.aiter_bytes()]).decode(
            "utf-8", "replace"
        )

    def counted(self, piece: bytes, received: Received) -> bytes:
        """Count a piece of an answer. Raises CallError where that is more than any reply of a model."""
        received.bytes += len(piece)
        if received.bytes > MOST_BYTES:
            raise self.fail("oversized", f"an answer of more than {MOST_BYTES / 2**20:g} MiB, not read to its end")
        return piece

    async def refuse(self, response: httpx.Response, received: Received) -> CallError:
        """Read the body of an error answer and name the failure."""
        body = await self.whole(response, received)
        wait = retry_after(response.headers.get("retry-after"))
        kind, detail = from_status(response.status_code, body, wait)
        return self.fail(kind, detail, status=response.status_code, retry_after=wait)


def basic(userinfo: SecretStr) -> str:
    """Return the Authorization header for ``user:password``, as it stood in an address."""
    pair = unquote(userinfo.get_secret_value()).encode()
    return f"Basic {base64.b64encode(pair).decode()}"


@cache
def _tls() -> ssl.SSLContext:
    """Load the certificates once, not for every client."""
    import httpx

    return httpx.create_ssl_context()


def retry_after(value: str | None) -> float | None:
    """Read a Retry-After header: seconds, or an HTTP date. None where there is none or it makes no sense."""
    if not value:
        return None
    with suppress(ValueError):
        return max(0.0, float(value))
    try:
        return max(0.0, (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds())
    except (TypeError, ValueError):
        return None


class LangChainDriver(Driver):
    """Any other LangChain chat model, by its ``ainvoke``: its own client, options and time limits apply."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._bindings: dict[str, Any] = {}
        self.provider = str(getattr(model, "_llm_type", "") or type(model).__name__)
        named = getattr(model, "model_name", None) or getattr(model, "model", None)
        self.name = named if isinstance(named, str) else type(model).__name__
        self.secrets = secret_strings(model)

    def options(self) -> dict[str, Any]:
        return plain_options(self._model)

    async def complete(self, messages: Sequence[dict], schema: dict | None, received: Received) -> Wire:
        from langchain_core.messages import convert_to_messages

        bound = self._bound(schema) if schema is not None else None
        try:
            message = await (bound or self._model).ainvoke(convert_to_messages(messages))
        except Exception as error:
            raise self.fail(*from_exception(error)) from None
        if bound is not None:
            message = message["raw"]
        meta = getattr(message, "response_metadata", None) or {}
        counts = getattr(message, "usage_metadata", None) or {}
        content = message.content if isinstance(message.content, str) else str(message.text)
        if bound is not None and not content and getattr(message, "tool_calls", None):
            content = json.dumps(message.tool_calls[0]["args"], ensure_ascii=False)
        finish = meta.get("finish_reason") or meta.get("stop_reason") or meta.get("done_reason") or "stop"
        return Wire(content, "", word(finish), counts.get("input_tokens"), counts.get("output_tokens"))

    def _bound(self, schema: dict) -> Any:
        """Return the model told of the schema in its own way, or None where it knows no such way."""
        name = json.dumps(schema, sort_keys=True)
        if name not in self._bindings:
            try:
                self._bindings[name] = self._model.with_structured_output(schema, include_raw=True)
            except (NotImplementedError, TypeError, ValueError, AttributeError):
                self._bindings[name] = None
        return self._bindings[name]


def driver_for(model: Any) -> Driver:
    """Return the driver of a LangChain chat model (made once for models of ``chat_model``, which keep it)."""
    if not hasattr(model, "ainvoke"):
        raise ConfigError(
            f"model {model!r}",
            "a LangChain chat model, or a name such as 'ollama:llama3:8b'",
            "make one with ragbench.llm.chat_model(...)",
        )
    kept = getattr(model, "_ragbench_driver", None)
    if kept is None or kept.kept_by is not model:  # a copy of a model, with another seed say, brings the original's
        kept = _new_driver(model)
        if hasattr(model, "_ragbench_driver"):
            model._ragbench_driver, kept.kept_by = kept, model
    return kept


def _new_driver(model: Any) -> Driver:
    kinds = {(cls.__module__.partition(".")[0], cls.__name__) for cls in type(model).__mro__}
    if ("langchain_ollama", "ChatOllama") in kinds:
        from ragbench.llm.ollama import OllamaDriver

        return OllamaDriver(model)
    # Subclasses such as AzureChatOpenAI build other addresses, so only the class itself is called directly.
    if type(model).__name__ in ("ChatOpenAI", "OpenAIChat") and ("langchain_openai", "ChatOpenAI") in kinds:
        from ragbench.llm.openai import LocalDriver, OpenAIDriver

        return OpenAIDriver(model) if getattr(model, "_server", None) is None else LocalDriver(model)
    return LangChainDriver(model)


_ROLES = {"human": "user", "system": "system"}


def as_messages(prompt: Any) -> list[dict]:
    """Turn one prompt into a list of ``{"role": ..., "content": ...}``.

    Parameters
    ----------
    prompt : str, a LangChain prompt value, a LangChain message, a dict with role and content, or a list of messages
        (LangChain's, dicts, or (role, text) pairs). Further fields of a message (tool calls ...) are kept.
    """
    if isinstance(prompt, str):
        return [{"role": "user", "content": prompt}]
    if hasattr(prompt, "to_messages"):
        prompt = prompt.to_messages()
    if isinstance(prompt, dict) or not isinstance(prompt, Sequence):
        prompt = [prompt]
    return [_as_message(message) for message in prompt]


def _as_message(message: Any) -> dict:
    if isinstance(message, dict) and "role" in message and "content" in message:
        return message
    from langchain_core.messages import BaseMessage, convert_to_messages, convert_to_openai_messages

    if not isinstance(message, BaseMessage):
        try:
            message = convert_to_messages([message])[0]
        except (ValueError, NotImplementedError, TypeError):
            raise ConfigError(
                f"a prompt of type {type(message).__name__}",
                "str, or a list of messages (LangChain's, {'role', 'content'} or (role, text))",
                "turn it into one of these",
            ) from None
    if isinstance(message.content, str) and message.type in _ROLES:
        return {"role": _ROLES[message.type], "content": message.content}
    return convert_to_openai_messages([message])[0]


class AskedAlike:
    """Put before a LangChain chat model: ``invoke`` and ``ainvoke`` without call-time options go the way of ``ask``.

    Calls with tools, stop words or other options, and ``stream``, go the model's own way.
    """

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        if stop or kwargs:
            return super()._generate(messages, stop, run_manager, **kwargs)  # type: ignore[misc]
        driver = driver_for(self)
        return _result(driver, loop.run(driver.call(as_messages(messages), None, driver.deadline_s)))

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        if stop or kwargs:
            return await super()._agenerate(messages, stop, run_manager, **kwargs)  # type: ignore[misc]
        driver = driver_for(self)
        work = driver.call(as_messages(messages), None, driver.deadline_s)
        if asyncio.get_running_loop() is not loop.the_loop():
            work = asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop.the_loop()))
        return _result(driver, await work)


def _result(driver: Driver, wire: Wire) -> ChatResult:
    from langchain_core.messages import AIMessage
    from langchain_core.outputs import ChatGeneration, ChatResult

    reason = "done_reason" if driver.provider == "ollama" else "finish_reason"
    meta = {"model_name": driver.name, "model_provider": driver.provider, reason: wire.finish}
    read, written = wire.prompt_tokens, wire.output_tokens
    counts: Any = None
    if read is not None and written is not None:
        counts = {"input_tokens": read, "output_tokens": written, "total_tokens": read + written}
    extra = {"reasoning_content": wire.thinking} if wire.thinking else {}
    message = AIMessage(content=wire.text, response_metadata=meta, usage_metadata=counts, additional_kwargs=extra)
    return ChatResult(generations=[ChatGeneration(message=message, generation_info=meta)])
