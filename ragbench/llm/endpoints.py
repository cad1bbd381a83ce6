"""What `ask` needs of a chat model, whoever serves it: its name and options, the digest of its
weights, and one call.

The calls are LangChain's: ``ainvoke`` of ChatOllama, ChatOpenAI or any other model, hence of
Ollama's and OpenAI's own clients. What is added here is what they leave out.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import os
import re
import threading
import time
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any

from tenacity import AsyncRetrying, retry_if_exception, stop_after_delay, wait_random_exponential

from ragbench.errors import ConfigError
from ragbench.llm.cassette import Cassette, canonical
from ragbench.llm.context import answer_headers
from ragbench.llm.failures import (
    CallError,
    failure,
    from_exception,
    printable,
    secret_strings,
    sounds_secret,
    without_secrets,
)
from ragbench.llm.models import chat_model, full_name
from ragbench.llm.reply import Usage

log = logging.getLogger("ragbench.llm")
_ASK_S = 10.0  # for what is asked beside the prompts
LONGEST_PAUSE_S = 30.0  # between two tries
FINISHED = frozenset({"stop", "end_turn", "stop_sequence", "eos", "eos_token", "STOP", "load"})


@dataclass(slots=True)
class Received:
    """One whole reply;

    ``finish`` is "" where the server sent no end mark, a count None where it gives none.
    """

    text: str = ""
    thinking: str = ""
    finish: str = ""
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    prompt_seconds: float = 0.0
    output_seconds: float = 0.0
    form: str = ""

    def usage(self, seconds: float) -> Usage:
        """Return the tokens and the time of the call."""
        counted = self.prompt_tokens is not None and self.output_tokens is not None
        tokens = (self.prompt_tokens or 0, self.output_tokens or 0)
        return Usage(
            1, *tokens, int(not counted), self.prompt_seconds, self.output_seconds, seconds
        )


class Endpoint:
    """Any LangChain chat model, by its ``ainvoke``: its own client, options and time limits apply.

    ``options`` is all that can change a reply, apart from messages and schema. It also holds what
    one ``ask`` finds out about the server.
    """

    found: str | None = None  # the digest of the weights
    dead: CallError | None = None  # why it is not asked any more
    spoke = answered = False  # whether the server has said anything, and whether its model has
    bounded = False  # whether num_predict is the step's, not one that the model names
    changes = False  # whether another model may come to stand behind the name in mid-run
    slots: int | None = None  # most calls the server works on at once, where that is known
    unsaid_finish = "stop"  # why a reply ended that does not say so

    def __init__(self, model: Any) -> None:
        self.chat = model
        self.provider = str(getattr(model, "_llm_type", "") or type(model).__name__)
        named = getattr(model, "model_name", None) or getattr(model, "model", None)
        self.name = named if isinstance(named, str) else type(model).__name__
        self.host = ""
        self.num_ctx: int | None = getattr(model, "num_ctx", None)
        self.num_predict = getattr(model, "num_predict", None) or getattr(model, "max_tokens", None)
        self.deadline_s = getattr(model, "deadline_s", None)
        self.pinned_digest = getattr(model, "digest", None)
        fields = [
            (name, getattr(model, name, None)) for name in getattr(type(model), "model_fields", {})
        ]
        self.secrets = secret_strings(fields)
        self.options = {
            name: value
            for name, value in fields
            if not _NO_OPTION.search(name) and _is_plain(value)
        }

    @property
    def model(self) -> str:
        """Provider and name, ``"ollama:llama3:8b"``."""
        return f"{self.provider}:{self.name}"

    async def digest(self) -> str:
        """Return the digest of the model's weights:

        the one given with it, else the server's ("": it has none).
        """
        return await self._digest() if self.pinned_digest is None else self.pinned_digest

    async def _digest(self) -> str:
        return ""

    async def check(self) -> None:
        """Raise CallError for a model that cannot chat, and warn of a window that the server
        lowers.
        """

    async def loaded(self) -> None:
        """Take over the window that is in use, once a model has answered."""

    def bound(self, schema: dict) -> Any:
        """Return the model told of the schema in its own way, if it knows one."""
        with contextlib.suppress(NotImplementedError, TypeError, ValueError, AttributeError):
            return self.chat.with_structured_output(schema, include_raw=True)
        return self.chat

    def read(self, message: Any) -> Received:
        """Take in a message of LangChain's."""
        if isinstance(message, dict):  # of with_structured_output
            message = message["raw"]
        meta = message.response_metadata or {}
        counts = message.usage_metadata or {}
        text = message.content if isinstance(message.content, str) else str(message.text)
        if not text and getattr(message, "tool_calls", None):
            text = json.dumps(message.tool_calls[0]["args"], ensure_ascii=False)
        finish = (
            meta.get("finish_reason")
            or meta.get("stop_reason")
            or meta.get("done_reason")
            or self.unsaid_finish
        )
        thinking = str((message.additional_kwargs or {}).get("reasoning_content") or "")
        return Received(
            text, thinking, str(finish), counts.get("input_tokens"), counts.get("output_tokens")
        )

    async def call(
        self, messages: Sequence[dict], schema: dict | None, deadline_s: float | None
    ) -> Received:
        """Send one request and wait no longer than ``deadline_s`` for its last byte.

        Raises CallError.
        """
        from langchain_core.messages import convert_to_messages

        headers: list[Any] = []
        token = answer_headers.set(headers)
        try:
            async with asyncio.timeout(deadline_s):
                return await self.complete(convert_to_messages(messages), schema)
        except TimeoutError:
            raise self.fail("timeout", f"not finished after {deadline_s:g} s") from None
        except Exception as error:
            raise self.named(error, headers) from None
        finally:
            answer_headers.reset(token)

    async def complete(self, messages: list, schema: dict | None) -> Received:
        """Send one request; raises whatever the client raises."""
        model = self.chat if schema is None else self.bound(schema)
        return self.read(await model.ainvoke(messages))

    def fail(self, kind: str, detail: str, **more: Any) -> CallError:
        """Build a CallError that names this model and hides its secrets."""
        return failure(kind, detail, self.host, self.model, secrets=self.secrets, **more)

    def named(self, error: Exception, headers: Sequence[Any] = ()) -> CallError:
        """Return any exception as a CallError."""
        if isinstance(error, CallError):
            return error
        kind, said, status = from_exception(error)
        response = getattr(error, "response", None)
        seen = [*headers, *([response.headers] if response is not None else [])]
        wait = _retry_after(
            next((each["retry-after"] for each in reversed(seen) if "retry-after" in each), None)
        )
        if wait is not None and kind == "busy":
            said += f" (Retry-After: {wait:g} s)"
        return self.fail(kind, said, status=status, retry_after=wait)


class OllamaEndpoint(Endpoint):
    """Ollama, by its own client."""

    changes = True
    unsaid_finish = ""  # its stream broke off

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self.provider = "ollama"
        self.name = full_name(model.model)
        self.client = model._async_client
        self.host = str(self.client._client.base_url).rstrip("/")
        self.options = _without(model._chat_params([]), "messages", "model", "stream", "keep_alive")
        self.num_predict = self.options["options"].get("num_predict")
        self._counts_cached = True

    async def _digest(self) -> str:
        try:
            async with asyncio.timeout(_ASK_S):
                models = (await self.client.list()).models
        except Exception as error:
            if (named := self.named(error)).status in (404, 405):
                return ""  # something in front of the server lets only the chat through
            raise named from None
        listed = {full_name(model.model): model.digest or "" for model in models if model.model}
        if self.name not in listed:
            served = ", ".join(sorted(listed)) or "none"
            raise self.fail("no_model", f"the server does not have this model; it has: {served}")
        return printable(listed[self.name].removeprefix("sha256:"))

    async def check(self) -> None:
        try:
            async with asyncio.timeout(_ASK_S):
                shown = await self.client.show(self.name)
                version = await self.client._request_raw("GET", "/api/version")
                capabilities = shown.capabilities or ["completion"]
                others = []
                if "completion" not in capabilities:
                    names = [str(model.model) for model in (await self.client.list()).models]
                    shows = [
                        (name, (await self.client.show(name)).capabilities or ()) for name in names
                    ]
                    others = [name for name, can in shows if "completion" in can]
        except Exception:
            return  # the prompts tell
        numbers = re.findall(r"\d+", version.json().get("version", ""))[:2]
        self._counts_cached = [int(number) for number in numbers] < [0, 30]
        if "completion" not in capabilities:
            do = f"name a model that writes; this server has: {', '.join(others) or 'none'}"
            raise self.fail(
                "no_model", f"it does not support chat, only {', '.join(capabilities)}", do=do
            )
        if self.bounded and (
            own := re.search(r"^num_predict\s+(-?\d+)", shown.parameters or "", re.MULTILINE)
        ):
            # The key keeps the step's bound: with the digest, which stands for the Modelfile, it
            # says as much.
            self.chat = self.chat.model_copy(update={"num_predict": None})
            self.num_predict = int(own[1])
        info = shown.modelinfo or {}
        self._lower(
            next(
                (int(value) for key, value in info.items() if key.endswith(".context_length")), None
            )
        )

    def _lower(self, window: int | None) -> None:
        if window and self.num_ctx is not None and self.num_ctx > window:
            log.warning(
                "%s: num_ctx=%d, but Ollama lowers it to %d", self.model, self.num_ctx, window
            )
            self.num_ctx = window

    async def loaded(self) -> None:
        with contextlib.suppress(Exception):
            async with asyncio.timeout(_ASK_S):
                running = (await self.client.ps()).models
            here = (
                model.context_length
                for model in running
                if full_name(model.model or "") == self.name
            )
            self._lower(next(here, None))

    def bound(self, schema: dict) -> Any:
        return self.chat.bind(format=schema)

    def read(self, message: Any) -> Received:
        received = super().read(message)
        meta = message.response_metadata or {}
        received.prompt_seconds = (meta.get("prompt_eval_duration") or 0) / 1e9
        received.output_seconds = (meta.get("eval_duration") or 0) / 1e9
        received.output_tokens = meta.get("eval_count", received.output_tokens)
        # From 0.30 on it counts what its cache did not have: no number is better than a wrong one.
        received.prompt_tokens = meta.get("prompt_eval_count") if self._counts_cached else None
        return received


class _OpenAIEndpoint(Endpoint):
    """The OpenAI protocol, as vLLM, llama.cpp and others speak it."""

    changes = True

    def __init__(self, model: Any) -> None:
        from langchain_openai import ChatOpenAI

        super().__init__(model)
        self.provider = "openai"
        self.host = str(model.root_async_client.base_url).rstrip("/")
        left_out = (
            "messages",
            "model",
            "stream",
            "user",
            "store",
            "metadata",
            "service_tier",
            "extra_headers",
        )
        payload = ChatOpenAI._get_request_payload(model, [])
        self.options = without_secrets(_without(payload, *left_out, "prompt_cache_key"))
        if self.num_ctx:
            self.options["num_ctx"] = self.num_ctx
        # Servers differ in how they take a schema; what answers is kept, for this model at this
        # host.
        self.forms = ["json_schema", "json_object"]

    async def _digest(self) -> str:
        """Return a hash of what the server tells of the model it has; "" where it tells nothing."""
        try:
            async with asyncio.timeout(_ASK_S):
                listed = [
                    model.model_dump() async for model in self.chat.root_async_client.models.list()
                ]
        except Exception as error:
            if (named := self.named(error)).kind in ("down", "busy", "timeout", "auth"):
                raise named from None
            return ""
        entry = next(
            (e for e in listed if e["id"] == self.name), listed[0] if len(listed) == 1 else {}
        )
        meta = entry["meta"] if isinstance(entry.get("meta"), dict) else {}
        about = {name: entry.get(name) for name in ("root", "max_model_len")}
        about |= {
            name: meta.get(name)
            for name in ("size", "n_params", "n_vocab", "n_embd", "n_ctx_train")
        }
        facts = {
            name: value for name, value in about.items() if isinstance(value, int | float | str)
        }
        listing = canonical({"id": entry.get("id"), **facts})
        return f"told-{hashlib.sha256(listing.encode()).hexdigest()}" if facts else ""

    async def complete(self, messages: list, schema: dict | None) -> Received:
        if schema is None:
            return self.read(await self.chat.ainvoke(messages))
        for form in tuple(self.forms):
            extra = {
                **(self.chat.extra_body or {}),
                "response_format": _response_format(schema, form),
            }
            try:
                received = self.read(await self.chat.bind(extra_body=extra).ainvoke(messages))
            except Exception as error:
                refused = re.search("response_format|schema", str(error))
                if (
                    not refused
                    or self.named(error).status not in (400, 422, 500)
                    or form == self.forms[-1]
                ):
                    raise
                if form in self.forms:  # or a call beside this one was first
                    self.forms.remove(form)
                log.warning(
                    "%s takes no response_format %r: asked with %r", self.model, form, self.forms[0]
                )
            else:
                received.form = form
                return received
        raise AssertionError("the last form raises or returns")


class _LocalEndpoint(_OpenAIEndpoint):
    """A model of ``local``: the file's sha256 is its digest."""

    changes = False
    slots = 1

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self.provider = "gguf"

    async def digest(self) -> str:
        return await asyncio.to_thread(self.chat._server.file.checked, self.pinned_digest)


def endpoint_of(model: Any, num_predict: int | None = None) -> Endpoint:
    """Return the endpoint of a chat model, a name or a mapping for `chat_model`.

    ``num_predict``: the step's bound, for a model of `chat_model` that names none.
    """
    if isinstance(model, str | Mapping):
        model = chat_model(model)
    if not hasattr(model, "ainvoke"):
        expected = "a LangChain chat model, or a name such as 'ollama:llama3:8b'"
        raise ConfigError(
            f"model {model!r}", expected, "make one with ragbench.llm.chat_model(...)"
        )
    name = type(model).__name__
    limit = {"OllamaChat": "num_predict", "OpenAIChat": "max_tokens"}.get(name)
    bounded = num_predict is not None and limit is not None and getattr(model, limit) is None
    if bounded:
        model = model.model_copy(update={limit: num_predict})
    kind = Endpoint
    if "ChatOllama" in {cls.__name__ for cls in type(model).__mro__}:
        kind = OllamaEndpoint
    elif name in (
        "ChatOpenAI",
        "OpenAIChat",
    ):  # subclasses such as AzureChatOpenAI build other addresses
        kind = _OpenAIEndpoint if getattr(model, "_server", None) is None else _LocalEndpoint
    endpoint = kind(model)
    endpoint.bounded = bounded
    return endpoint


async def served_digest(
    endpoint: Endpoint, patience_s: float = 0.0, backoff_s: float = 0.5
) -> str | None:
    """Ask a server for the digest of a model's weights; None where it cannot be asked.

    Then the endpoint is ``dead``. ``patience_s``: for a server that still loads its model.
    """
    busy = retry_if_exception(lambda error: isinstance(error, CallError) and error.kind == "busy")
    pause = wait_random_exponential(backoff_s, max=LONGEST_PAUSE_S)
    patiently = AsyncRetrying(
        retry=busy, stop=stop_after_delay(patience_s), wait=pause, reraise=True
    )
    try:
        endpoint.found = await patiently(endpoint.digest)
        await endpoint.check()
        endpoint.spoke = True
    except CallError as error:
        endpoint.dead = error
    return endpoint.found


def model_name(model: Any) -> str:
    """Return the name of a model, or of an object that answers or grades; a name stays as it is."""
    if isinstance(model, Mapping):
        model = model.get("use", "")
    if isinstance(model, str):
        return model
    name = getattr(model, "name", None)  # of an object that answers or grades
    return name if isinstance(name, str) else endpoint_of(model).model


def _retry_after(value: str | None) -> float | None:
    """Read a Retry-After header:

    seconds, or an HTTP date. None where there is none or it makes no sense.
    """
    with contextlib.suppress(ValueError):
        return max(0.0, float(value or ""))
    with contextlib.suppress(ValueError):
        return max(0.0, parsedate_to_datetime(value or "").timestamp() - time.time())
    return None


def _response_format(schema: dict, form: str) -> dict[str, Any]:
    if form == "json_object":
        return {"type": "json_object", "schema": schema}
    name = "".join(c if c.isalnum() else "_" for c in str(schema.get("title", "reply")))[:60]
    return {"type": "json_schema", "json_schema": {"name": name, "schema": schema}}


# Where a model is, how long to wait, and what to log: none of it changes a reply.
_NO_OPTION = re.compile(
    r"url|host|api_base|endpoint|proxy|timeout|retries|headers|client|cache|callback|verbose|^tags$|metadata|rate_limiter"
    r"|organization|disable_streaming|^name$|profile|output_version|deadline|api.?key|secret|password|credential"
    r"|cookie|auth|token$|^i$|^responses$|^messages$|^sleep$",
    re.IGNORECASE,
)


def _without(payload: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {
        name: value for name, value in payload.items() if value is not None and name not in names
    }


def _is_plain(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(
            isinstance(k, str) and not sounds_secret(k) and _is_plain(v) for k, v in value.items()
        )
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return isinstance(value, bool | int | float | str)


# -- who it is
# ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """Provider, name, digest, options and window of a chat model; never its address or key."""

    provider: str
    model: str
    digest: str | None
    options: dict[str, Any]
    num_ctx: int | None
    secrets: tuple[str, ...] = field(default=(), repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Return what a manifest says."""
        return {
            name: getattr(self, name)
            for name in ("provider", "model", "digest", "options", "num_ctx")
        }

    def row(self) -> dict[str, Any]:
        """Return what a row says."""
        options = {**self.options, **self.options.get("options", {})}
        digest = "not told" if self.digest == "" else self.digest
        facts = {
            "model": f"{self.provider}:{self.model}",
            "digest": digest,
            "num_ctx": self.num_ctx,
        }
        return facts | {"temperature": options.get("temperature"), "seed": options.get("seed")}


def model_facts(
    model: Any,
    cassette: Cassette | None = None,
    *,
    ask_server: bool = True,
    num_predict: int | None = None,
) -> ModelFacts:
    """Return who a chat model is (a name or an object).

    The server is not asked without ``ask_server``, and where the cassette is in replay mode; then
    the digest is the one on the cassette. ``num_predict``: as in `ragbench.llm.ask`. ModelError
    when no server answers and nothing says which weights are meant.
    """
    endpoint = endpoint_of(model, num_predict)
    digest = endpoint.pinned_digest
    if ask_server and not (cassette is not None and cassette.mode == "replay"):
        found = run(served_digest(endpoint))  # "": a server that says nothing of its weights
        digest = digest if found is None else found
    if endpoint.dead is not None and endpoint.dead.kind != "down":
        raise endpoint.dead
    if digest is None and cassette is not None and cassette.mode != "off":
        digest = cassette.choose_digest(endpoint.provider, endpoint.name, None)
    if digest is None and endpoint.dead is not None:
        raise endpoint.dead
    about = (endpoint.provider, endpoint.name, digest, endpoint.options, endpoint.num_ctx)
    return ModelFacts(*about, endpoint.secrets)


def window(model: Any) -> int | None:
    """Return the window that a model works with: the server's own, where it says and is loaded."""
    endpoint = endpoint_of(model)
    run(endpoint.loaded())
    return endpoint.num_ctx


# -- one event loop
# ----------------------------------------------------------------------------------------------------

_loop: asyncio.AbstractEventLoop | None = None
_starting = threading.Lock()


def run(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine in the one loop of this process:

    a notebook has a loop of its own, clients want one alone.
    """
    global _loop
    with _starting:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            threading.Thread(target=_loop.run_forever, name="ragbench.llm", daemon=True).start()
    future = asyncio.run_coroutine_threadsafe(work, _loop)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


def _after_fork() -> None:
    global _loop, _starting
    _loop = None
    _starting = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
