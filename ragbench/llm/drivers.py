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
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache
from typing import Any
from urllib.parse import unquote

from ragbench.errors import ConfigError
from ragbench.llm import loop
from ragbench.llm.failures import (
    CallError,
    failure,
    from_exception,
    from_status,
    is_html,
    printable,
    secret_strings,
    server_words,
    sounds_secret,
)
from ragbench.llm.reply import LOOP, Usage
from ragbench.llm.structured import LOOPING, repeats

FINISHED = frozenset({"stop", "end_turn", "stop_sequence", "eos", "eos_token", "STOP"})
_CONNECT_S = 10.0
MOST_BYTES = 64 * 2**20  # of one answer of a server; 100,000 tokens come in some 20 MB of stream
_LOOK_EVERY = 50_000  # bytes of a stream, for a reply that repeats itself (some 500 tokens)


def token_count(value: Any) -> int | None:
    """Return a server's count of tokens; None for anything but a whole number that can be one."""
    return int(value) if _is_number(value) and value < 1e12 and value == int(value) else None


def seconds(value: Any, per_second: float) -> float:
    """Return a server's duration in seconds; 0 for anything that is none."""
    return value / per_second if _is_number(value) and value < 1e18 else 0.0


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


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
class Received:
    """What a call has received so far, and in the end all of it; None where the server says nothing.

    ``bytes`` tells "no byte" from "too slow" when the deadline passes. ``finish`` is None until the reply has ended.
    ``form`` is how the schema was sent.
    """

    bytes: int = 0
    parts: list[str] = field(default_factory=list)
    thinking: list[str] = field(default_factory=list)
    finish: str | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    prompt_seconds: float = 0.0
    output_seconds: float = 0.0
    form: str = ""
    pieces: list[bytes] = field(default_factory=list)  # not taken in yet
    _tail: str = ""
    _looked_at: int = 0

    @property
    def text(self) -> str:
        return "".join(self.parts)

    @property
    def unread(self) -> str:
        """What was received and not taken in yet."""
        return b"".join(self.pieces).decode("utf-8", "replace")

    def lines(self, piece: bytes = b"\n") -> list[bytes]:
        """Add a piece of a stream; return the lines that it ends (by default what is left, at the stream's end)."""
        if b"\n" not in piece:
            self.pieces.append(piece)
            return []
        *whole, last = b"".join([*self.pieces, piece]).split(b"\n")
        self.pieces = [last]
        return whole

    def write(self, text: Any, thinking: Any) -> None:
        """Add what the model has written; TypeError for what is no text."""
        self.parts.append(text_of(text))
        self._tail = (self._tail + self.parts[-1])[-LOOPING:]
        if thinking:
            self.thinking.append(text_of(thinking))

    def loops(self) -> bool:
        """Whether the reply does nothing but repeat itself; looked at now and then."""
        if self.bytes - self._looked_at <= _LOOK_EVERY:
            return False
        self._looked_at = self.bytes
        return repeats(self._tail)

    def usage(self, seconds: float, price: tuple[float, float] | None) -> Usage:
        counted = self.prompt_tokens is not None and self.output_tokens is not None
        read, written = self.prompt_tokens or 0, self.output_tokens or 0
        cost = (read * price[0] + written * price[1]) / 1e6 if price and counted else math.nan
        return Usage(1, read, written, int(not counted), self.prompt_seconds, self.output_seconds, seconds, cost)


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

    def options(self) -> dict[str, Any]:
        """Everything that can change a reply, apart from messages and schema."""
        raise NotImplementedError

    async def digest(self) -> str:
        """Return the digest of the model's weights on the server; "" where the provider has none."""
        return self.pinned_digest or ""

    async def context_length(self) -> int | None:
        """Return the longest context the model was made for (or that a server gives one request); None: not said."""
        return None

    async def complete(self, messages: Sequence[dict], schema: dict | None, received: Received) -> None:
        """Send one request, and take in the reply; raises whatever the model's client raises."""
        raise NotImplementedError

    async def close(self) -> None:
        pass

    def fail(self, kind: str, detail: str, **more: Any) -> CallError:
        """Build a CallError that names this model and hides its secrets."""
        return failure(kind, detail, self.host, self.model, secrets=self.secrets, **more)

    def named(self, error: Exception, raw: str = "") -> CallError:
        """Return any exception as a CallError."""
        return error if isinstance(error, CallError) else self.fail(*from_exception(error), raw=raw)

    async def call(self, messages: Sequence[dict], schema: dict | None, deadline_s: float | None) -> Received:
        """Send one request and wait no longer than ``deadline_s`` for its last byte. Raises CallError."""
        received = Received()
        try:
            async with asyncio.timeout(deadline_s):
                try:
                    await self.complete(messages, schema, received)
                except Exception as error:  # a TimeoutError of the model's own is not ours
                    raise self.named(error, received.text or received.unread) from None
                return received
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
    """Shared by the two providers that are called directly; ``read`` is what they understand differently.

    Each call under way has a client of its own, with one connection that is kept alive. One client for all would look
    at every connection of its pool for every request: 3.8 ms a call at 32 at once, instead of 0.8.
    """

    answer = ""  # what JSON of this provider is, for messages

    def __init__(self, model: Any, base_url: str, headers: Mapping[str, str], client: Mapping[str, Any]) -> None:
        self.host = base_url.rstrip("/")
        self._headers, self._client_options = dict(headers), dict(client)
        self._clients: list[Any] = []
        self._idle: list[Any] = []
        self._loop: object = None
        # What ``chat_model`` set beyond the LangChain class.
        self.deadline_s, self.price = getattr(model, "deadline_s", None), getattr(model, "price", None)
        self.pinned_digest, self.num_ctx = getattr(model, "digest", None), getattr(model, "num_ctx", None)
        self.secrets = secret_strings(_fields(model), headers)

    @contextmanager
    def client(self) -> Iterator[Any]:
        """Lend a keep-alive client of the running loop. The total deadline is set by the caller, per call."""
        running = asyncio.get_running_loop()
        if self._loop is not running:
            self._clients, self._idle, self._loop = [], [], running
        client = self._idle.pop() if self._idle else self._new_client()
        try:
            yield client
        finally:
            if self._loop is running:
                self._idle.append(client)

    def _new_client(self) -> Any:
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

    async def get_json(self, path: str, *, root: bool = False, sent: Any = None) -> Any:
        """GET (``sent``: POST) a JSON document, below the API's address or (``root``) beside it. Raises CallError."""
        address = (self.host.removesuffix("/v1") if root else self.host) + path
        received = Received()
        try:
            async with asyncio.timeout(_CONNECT_S):
                with self.client() as client:
                    async with client.stream("GET" if sent is None else "POST", address, json=sent) as response:
                        self.has_spoken = True
                        return json.loads(await self._whole(response, received))
        except Exception as error:
            raise self.named(error) from None

    async def post(self, path: str, body: dict, received: Received, *, looking: bool) -> None:
        """Send a request and take in its reply; ``looking``: until that does nothing but repeat itself."""
        try:
            with self.client() as client:
                content = json.dumps(body).encode()
                async with client.stream("POST", self.host + path, content=content) as response:
                    if response.status_code == 200 and self.streams(response):
                        await self._lines(response, received, looking)
                    else:
                        self.parse(await self._whole(response, received), received, whole=True)
        except CallError:
            raise
        except Exception:
            if received.finish is None:
                raise
        if received.finish is None:
            seen = f"after {len(received.text)} characters" if received.text else "with nothing in it"
            raise self.fail("unfinished", f"the stream ended {seen}, without its end mark", raw=received.text)

    async def _whole(self, response: Any, received: Received) -> str:
        """Read a body to its end. Raises CallError for an error answer."""
        async for piece in response.aiter_bytes():
            received.pieces.append(self.counted(piece, received))
        body, received.pieces = received.unread, []
        if response.status_code == 200:
            return body
        wait = retry_after(response.headers.get("retry-after"))
        kind, detail = from_status(response.status_code, body, wait)
        raise self.fail(kind, detail, status=response.status_code, retry_after=wait)

    async def _lines(self, response: Any, received: Received, looking: bool) -> None:
        async for piece in response.aiter_bytes():
            for line in received.lines(self.counted(piece, received)):
                self.take(line.decode("utf-8", "replace").strip(), received)
            if looking and received.finish is None and received.loops():
                received.finish = LOOP
                return
        for line in received.lines():
            self.take(line.decode("utf-8", "replace").strip(), received)

    def counted(self, piece: bytes, received: Received) -> bytes:
        """Count a piece of an answer. Raises CallError where that is more than any reply of a model."""
        received.bytes += len(piece)
        if received.bytes > MOST_BYTES:
            raise self.fail("oversized", f"an answer of more than {MOST_BYTES / 2**20:g} MiB, not read to its end")
        return piece

    def streams(self, response: Any) -> bool:
        """Whether an answer comes line by line."""
        return True

    def take(self, line: str, received: Received) -> None:
        if line:
            self.parse(line, received)

    def read(self, answer: Any, received: Received, whole: bool) -> None:
        """Take in what JSON of the server says; KeyError and the like where that is no reply of this protocol."""
        raise NotImplementedError

    def parse(self, said: str, received: Received, whole: bool = False) -> None:
        """Take in JSON of a server (a line of a stream, or the ``whole`` reply). Raises CallError for anything else."""
        try:
            answer = json.loads(said)
        except (ValueError, RecursionError):
            kind, what = ("html", "a web page") if is_html(said) else ("garbage", "not JSON")
            if kind == "garbage" and received.text:
                kind, what = "unfinished", "the stream broke off inside a line"
            raise self.fail(kind, f"{what}: {server_words(said)!r}", raw=received.text or said) from None
        try:
            if answer.get("error") is not None:
                raise self.fail(*from_status(0, said), raw=received.text or said)
            self.read(answer, received, whole)
        except (KeyError, IndexError, TypeError, AttributeError):
            what = f"JSON, but no {self.answer}: {server_words(said)!r}"
            raise self.fail("garbage", what, raw=received.text or said) from None


def basic(userinfo: str) -> str:
    """Return the Authorization header for ``user:password``, as it stood in an address."""
    return f"Basic {base64.b64encode(unquote(userinfo).encode()).decode()}"


@cache
def _tls() -> Any:
    import httpx

    return httpx.create_ssl_context()  # loads the certificates: once, not for every client


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


# -- LangChain ---------------------------------------------------------------------------------------------------------

# Where a model is, how long to wait, and what to log: none of it changes a reply.
_NO_OPTION = re.compile(
    r"url|host|api_base|endpoint|proxy|timeout|retries|headers|client|cache|callback|verbose|^tags$|metadata|rate_limiter"
    r"|organization|disable_streaming|^name$|profile|output_version|deadline|price|api.?key|secret|password|credential"
    r"|cookie|auth|token$|^i$|^responses$|^messages$|^sleep$",
    re.IGNORECASE,
)


def _fields(model: Any) -> Iterator[tuple[str, Any]]:
    return ((name, getattr(model, name, None)) for name in getattr(type(model), "model_fields", {}))


def _is_plain(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(isinstance(k, str) and not sounds_secret(k) and _is_plain(v) for k, v in value.items())
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return isinstance(value, bool | int | float | str)


class LangChainDriver(Driver):
    """Any other LangChain chat model, by its ``ainvoke``: its own client, options and time limits apply."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._bindings: dict[str, Any] = {}
        self.provider = str(getattr(model, "_llm_type", "") or type(model).__name__)
        named = getattr(model, "model_name", None) or getattr(model, "model", None)
        self.name = named if isinstance(named, str) else type(model).__name__
        self.secrets = secret_strings(_fields(model), {})

    def options(self) -> dict[str, Any]:
        """Return the plain fields that may change a reply, without addresses, limits and secrets."""
        given = ((name, value) for name, value in _fields(self._model) if not _NO_OPTION.search(name))
        return {name: value for name, value in given if _is_plain(value)}

    async def complete(self, messages: Sequence[dict], schema: dict | None, received: Received) -> None:
        from langchain_core.messages import convert_to_messages

        bound = self._bound(schema) if schema is not None else None
        message = await (bound or self._model).ainvoke(convert_to_messages(messages))
        if bound is not None:
            message = message["raw"]
        meta = getattr(message, "response_metadata", None) or {}
        counts = getattr(message, "usage_metadata", None) or {}
        content = message.content if isinstance(message.content, str) else str(message.text)
        if bound is not None and not content and getattr(message, "tool_calls", None):
            content = json.dumps(message.tool_calls[0]["args"], ensure_ascii=False)
        finish = meta.get("finish_reason") or meta.get("stop_reason") or meta.get("done_reason") or "stop"
        received.write(content, None)
        received.finish = word(finish)
        received.prompt_tokens, received.output_tokens = counts.get("input_tokens"), counts.get("output_tokens")

    def _bound(self, schema: dict) -> Any:
        """Return the model told of the schema in its own way, if it knows one."""
        name = json.dumps(schema, sort_keys=True)
        if name not in self._bindings:
            self._bindings[name] = None
            with suppress(NotImplementedError, TypeError, ValueError, AttributeError):
                self._bindings[name] = self._model.with_structured_output(schema, include_raw=True)
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
    from langchain_core.messages import convert_to_messages, convert_to_openai_messages

    try:
        (message,) = convert_to_messages([message])
    except (ValueError, NotImplementedError, TypeError):
        raise ConfigError(
            f"a prompt of type {type(message).__name__}",
            "str, or a list of messages (LangChain's, {'role', 'content'} or (role, text))",
            "turn it into one of these",
        ) from None
    role = {"human": "user", "system": "system"}.get(message.type)
    if role and isinstance(message.content, str):
        return {"role": role, "content": message.content}
    return convert_to_openai_messages([message])[0]


class AskedAlike:
    """Put before a LangChain chat model: ``invoke`` and ``ainvoke`` without call-time options go the way of ``ask``.

    Calls with tools, stop words or other options, and ``stream``, go the model's own way.
    """

    def _generate(self, messages: list, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> Any:
        if stop or kwargs:
            return super()._generate(messages, stop, run_manager, **kwargs)  # type: ignore[misc]
        return loop.run(self._agenerate(messages))

    async def _agenerate(self, messages: list, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> Any:
        if stop or kwargs:
            return await super()._agenerate(messages, stop, run_manager, **kwargs)  # type: ignore[misc]
        from langchain_core.messages import AIMessage
        from langchain_core.outputs import ChatGeneration, ChatResult

        driver = driver_for(self)
        work = driver.call(as_messages(messages), None, driver.deadline_s)
        if asyncio.get_running_loop() is not loop.the_loop():
            work = asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop.the_loop()))
        received = await work
        reason = "done_reason" if driver.provider == "ollama" else "finish_reason"
        meta = {"model_name": driver.name, "model_provider": driver.provider, reason: received.finish}
        read, written = received.prompt_tokens, received.output_tokens
        counts: Any = None
        if read is not None and written is not None:
            counts = {"input_tokens": read, "output_tokens": written, "total_tokens": read + written}
        thought = "".join(received.thinking)
        message = AIMessage(
            content=received.text,
            response_metadata=meta,
            usage_metadata=counts,
            additional_kwargs={"reasoning_content": thought} if thought else {},
        )
        return ChatResult(generations=[ChatGeneration(message=message, generation_info=meta)])
