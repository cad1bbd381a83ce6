"""What `ask` needs of a chat model, whoever serves it: its name and options, the digest of its
weights, and one call.

Ollama is asked by its own client, everything else by LangChain's ``invoke``. What is added here is
what they leave out.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import httpx
import ollama
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import convert_to_messages
from langchain_ollama import ChatOllama
from langsmith import tracing_context

from ragbench.errors import ConfigError
from ragbench.llm.cassette import Cassette
from ragbench.llm.context import Transport
from ragbench.llm.failures import (
    CallError,
    failure,
    from_exception,
    printable,
    secret_strings,
    without_secrets,
)
from ragbench.llm.models import DEADLINE_S, chat_model, full_name, ollama_settings
from ragbench.llm.reply import Usage

log = logging.getLogger("ragbench.llm")
_ASK_S = 10.0  # for what is asked beside the prompts
TRACING_VARIABLE = "RAGBENCH_TRACING"  # set: LangSmith may trace what `ask` sends
_NO_TEMPLATE = "{{ .Prompt }}"  # what Ollama makes of a model file without one


@dataclass(slots=True)
class Received:
    """One whole reply; ``finish`` is "" where the server sent no end mark."""

    text: str = ""
    thinking: str = ""
    finish: str = ""
    usage: Usage = field(default_factory=lambda: _usage(None, None, 0.0, 0.0))


def _usage(read: int | None, written: int | None, *seconds: float) -> Usage:
    """Return the tokens (None: not counted) and the server's own time, where it says it."""
    uncounted = int(read is None or written is None)
    return Usage(1, read or 0, written or 0, uncounted, *seconds, sum(seconds))


class Endpoint:
    """Any LangChain chat model, by its ``invoke``: its own client, options and time limits apply.

    ``options`` is all that can change a reply, apart from messages and schema: the call and the
    cassette's key are made of it. The rest is what one `ask` finds out about the server.
    """

    found: str | None = None  # the digest of the weights
    dead: CallError | None = None  # why it is not asked any more
    spoke = False  # whether the server has said anything
    answered = False  # whether its model has
    concurrency = 4  # calls under way at once, where the caller names no number
    version = ""  # of the server
    weights = ""  # number of parameters and quantisation
    wire: Transport | None = None

    def __init__(self, chat: Any, deadline_s: float | None = None) -> None:
        fields = {name: getattr(chat, name, None) for name in type(chat).model_fields}
        self.chat = chat
        self.provider = type(chat).__name__
        with contextlib.suppress(Exception):
            self.provider = str(chat.asdict()["_type"])
        named = getattr(chat, "model_name", None) or getattr(chat, "model", None)
        self.name = named if isinstance(named, str) else type(chat).__name__
        self.host = ""
        self.num_ctx: int | None = fields.get("num_ctx")
        self.num_predict = fields.get("num_predict") or fields.get("max_tokens")
        self.deadline_s = deadline_s or fields.get("deadline_s") or DEADLINE_S
        self.pinned_digest = fields.get("digest")
        self.secrets = secret_strings(fields)
        self.options = _plain_options(fields)

    @property
    def model(self) -> str:
        """Provider and name, ``"ollama:llama3:8b"``."""
        return f"{self.provider}:{self.name}"

    def limit(self, num_predict: int) -> None:
        """Take over the step's bound, if the model can be told of one and names none."""

    def digest(self) -> str:
        """Return the digest of the model's weights ("": it has none)."""
        return self.pinned_digest or ""

    def meet(self) -> str | None:
        """Ask the server who it is; return the digest, or None: then the endpoint is ``dead``."""
        try:
            self.found = self.digest()
            self.check()
        except Exception as error:
            self.dead = self.named(error)
        return self.found

    def check(self) -> None:
        """Take over what the server says of itself and of the model."""

    def loaded(self) -> None:
        """Take over the window that is in use, once a model has answered."""

    def call(self, messages: Sequence[dict], schema: dict | None) -> Received:
        """Send one request and wait for its last byte. Raises CallError."""
        # LANGSMITH_TRACING of the environment would send every prompt out.
        traced = None if os.environ.get(TRACING_VARIABLE) else False
        start = time.perf_counter()
        try:
            with tracing_context(enabled=traced):
                got = self.complete(messages, schema)
        except Exception as error:
            raise self.named(error) from None
        if not got.usage.seconds:
            got.usage = replace(got.usage, seconds=time.perf_counter() - start)
        return got

    def complete(self, messages: Sequence[dict], schema: dict | None) -> Received:
        """Send one request; raises whatever the client raises."""
        chat = self.chat
        if schema is not None:
            with contextlib.suppress(NotImplementedError, TypeError, ValueError, AttributeError):
                chat = chat.with_structured_output(schema, include_raw=True)
        message = chat.invoke(convert_to_messages(messages))
        return _received(message["raw"] if isinstance(message, dict) else message)

    def let_go(self) -> None:
        """Break off the calls under way."""
        if self.wire is not None:
            self.wire.abort()

    def to_dict(self) -> dict[str, Any]:
        """Return what a manifest says of the model; never its address or key."""
        return {
            "provider": self.provider,
            "model": self.name,
            "digest": self.found,
            "options": self.options,
            "num_ctx": self.num_ctx,
            "server": f"Ollama {self.version}" if self.version else "",
            "weights": self.weights,
        }

    def row(self) -> dict[str, Any]:
        """Return what a row says of it."""
        options = {**self.options, **self.options.get("options", {})}
        return {
            "model": self.model,
            "digest": "not told" if self.found == "" else self.found,
            "num_ctx": self.num_ctx,
            "temperature": options.get("temperature"),
            "seed": options.get("seed"),
        }

    def fail(self, kind: str, detail: str, **more: Any) -> CallError:
        """Build a CallError that names this model and hides its secrets."""
        return failure(kind, detail, self.host, self.model, secrets=self.secrets, **more)

    def named(self, error: Exception) -> CallError:
        """Return any exception as a CallError."""
        if isinstance(error, CallError):
            return error
        kind, said, status = from_exception(error)
        headers = getattr(getattr(error, "response", None), "headers", {})
        wait = None
        with contextlib.suppress(ValueError):
            wait = float(headers.get("retry-after", ""))
        if kind == "timeout":
            said = f"not finished after {self.deadline_s:g} s"
        if wait is not None and kind == "busy":
            said += f" (Retry-After: {wait:g} s)"
        return self.fail(kind, said, status=status, retry_after=wait)


def _received(message: Any) -> Received:
    """Take in a message of LangChain's."""
    meta = message.response_metadata or {}
    counts = message.usage_metadata or {}
    text = str(message.text)
    if not text and getattr(message, "tool_calls", None):
        text = json.dumps(message.tool_calls[0]["args"], ensure_ascii=False)
    reasons = [meta.get(name) for name in ("finish_reason", "stop_reason", "done_reason")]
    thinking = str((message.additional_kwargs or {}).get("reasoning_content") or "")
    finish = str(next(filter(None, reasons), "stop"))
    used = _usage(counts.get("input_tokens"), counts.get("output_tokens"), 0.0, 0.0)
    return Received(text, thinking, finish, used)


def _set_fields(chat: Any, names: Iterable[str]) -> dict[str, Any]:
    """Return the fields of a model that are set."""
    values = {name: getattr(chat, name, None) for name in names}
    return {name: value for name, value in values.items() if value is not None}


class _OllamaEndpoint(Endpoint):
    """Ollama, by its own client; a ChatOllama says where it is and with which options."""

    concurrency = 1

    def __init__(self, chat: Any, deadline_s: float | None = None) -> None:
        super().__init__(chat, deadline_s)
        self.provider = "ollama"
        self.name = full_name(chat.model)
        own = {**(chat.client_kwargs or {}), **(chat.sync_client_kwargs or {})}
        self.host, settings = ollama_settings(chat.base_url, own, self.deadline_s)
        self.wire = settings["transport"]
        self.client = ollama.Client(self.host, **settings)
        self._web = httpx.Client(base_url=self.host, **settings | {"timeout": _ASK_S})
        self.options = _set_fields(chat, ("format", "logprobs", "top_logprobs"))
        self.options["options"] = _set_fields(chat, ollama.Options.model_fields)
        if chat.reasoning is not None:
            self.options["think"] = chat.reasoning
        self._is_bounded = False  # whether num_predict is the step's, not one that the model names
        self._overruled = ""  # the option that its Modelfile has a value for
        self._counts_cached = False  # by the server, and not counted again

    def limit(self, num_predict: int) -> None:
        if self.num_predict is None:
            self._is_bounded = True
            self.num_predict = num_predict
            self.options["options"]["num_predict"] = num_predict

    def _say(self, path: str, **body: Any) -> dict[str, Any]:
        """Ask the server something beside the prompts."""
        response = self._web.request("POST" if body else "GET", path, json=body or None)
        self.spoke = True
        if response.status_code >= 300:
            raise ollama.ResponseError(response.text, response.status_code)
        return response.json()

    def digest(self) -> str:
        if self.pinned_digest is not None:
            return self.pinned_digest
        entries = {full_name(one["model"]): one for one in self._say("/api/tags")["models"]}
        if self.name not in entries:
            served = ", ".join(sorted(entries)) or "none"
            raise self.fail("no_model", f"the server does not have this model; it has: {served}")
        entry = entries[self.name]
        elsewhere = entry.get("remote_host")
        if elsewhere and not getattr(self.chat, "cloud", False):
            what = f"it is a name for a model at {elsewhere}, which would get the prompts"
            raise self.fail("no_model", what, do="pass cloud=True if that is meant")
        details = entry.get("details") or {}
        facts = (
            details.get("parameter_size"),
            details.get("quantization_level"),
            elsewhere and f"run at {elsewhere}",
        )
        self.weights = printable(", ".join(filter(None, facts)))
        return printable(entry.get("digest", "").removeprefix("sha256:"))

    def check(self) -> None:
        try:
            self.version = str(self._say("/api/version").get("version", ""))
            shown = self._say("/api/show", model=self.name)
        except Exception:
            return  # the prompts tell
        numbers = [int(number) for number in re.findall(r"\d+", self.version)[:2]]
        self._counts_cached = numbers >= [0, 30]
        if str(shown.get("template", "")).strip() == _NO_TEMPLATE:
            what = "%s has no chat template: prompts are sent as plain text; "
            log.warning(what + "write TEMPLATE into its Modelfile", self.model)
        own = re.search(r"^num_predict\s+(-?\d+)", shown.get("parameters") or "", re.MULTILINE)
        if self._is_bounded and own:
            # The key keeps the step's bound: with the digest, which stands for the Modelfile, it
            # says as much.
            self._overruled = "num_predict"
            self.num_predict = int(own[1])

    def loaded(self) -> None:
        with contextlib.suppress(Exception):
            running = {full_name(one["model"]): one for one in self._say("/api/ps")["models"]}
            in_use = running[self.name].get("context_length")
            if in_use and self.num_ctx and self.num_ctx > in_use:
                what = "%s: num_ctx=%d, but Ollama lowers it to %d"
                log.warning(what, self.model, self.num_ctx, in_use)
            self.num_ctx = in_use or self.num_ctx

    def complete(self, messages: Sequence[dict], schema: dict | None) -> Received:
        sampling = {**self.options["options"]}
        sampling.pop(self._overruled, None)
        settings = {**self.options, "options": sampling, "keep_alive": self.chat.keep_alive}
        if schema is not None:
            # A label has no room for thinking; models that cannot think take it too.
            settings = {"think": False, **settings, "format": schema}
        got = Received()
        parts = self.client.chat(self.chat.model, messages, stream=True, **settings)
        for part in parts:
            got.text += part.message.content or ""
            got.thinking += part.message.thinking or ""
            if part.done:
                got.finish = part.done_reason or "stop"
                # From 0.30 on it counts what its cache did not have: no number is better than a
                # wrong one.
                read = None if self._counts_cached else part.prompt_eval_count
                seconds = (part.prompt_eval_duration or 0) / 1e9, (part.eval_duration or 0) / 1e9
                got.usage = _usage(read, part.eval_count, *seconds)
                break
        with contextlib.suppress(Exception):  # what comes after it is no part of the reply, but
            deque(parts, maxlen=0)  # a connection is kept where all of it was read
        return got


# Fields of ChatOpenAI that can change a reply; recordings have the limit of tokens as OpenAI does.
_OPENAI = (
    "temperature",
    "seed",
    "top_p",
    "presence_penalty",
    "frequency_penalty",
    "logprobs",
    "top_logprobs",
    "logit_bias",
    "stop",
    "n",
    "reasoning_effort",
    "reasoning",
    "verbosity",
    "truncation",
    "extra_body",
)


class _OpenAIEndpoint(Endpoint):
    """The OpenAI protocol, as vLLM, llama.cpp and others speak it.

    A server that takes no ``json_schema`` gets its own form by ``extra_body={"response_format":
    {"type": "json_object"}}``; a reply is validated either way.
    """

    def __init__(self, chat: Any, deadline_s: float | None = None) -> None:
        super().__init__(chat, deadline_s)
        self.provider = "openai"
        if getattr(chat, "server", None) is not None:  # of `local`
            self.provider = "gguf"
            self.concurrency = 1
        self.host = str(chat.root_client.base_url).rstrip("/")
        self.wire = getattr(chat, "wire", None)
        self.options = without_secrets(_set_fields(chat, _OPENAI) | (chat.model_kwargs or {}))
        if self.num_predict is not None:
            self.options["max_completion_tokens"] = self.num_predict
        if self.num_ctx:
            self.options["num_ctx"] = self.num_ctx

    def digest(self) -> str:
        if self.provider == "gguf":  # the file's sha256
            return self.chat.server.file.checked(self.pinned_digest)
        return super().digest()

    def limit(self, num_predict: int) -> None:
        if self.num_predict is None:
            self.num_predict = num_predict
            self.options["max_completion_tokens"] = num_predict
            self.chat = self.chat.model_copy(update={"max_tokens": num_predict})

    def complete(self, messages: Sequence[dict], schema: dict | None) -> Received:
        extra = dict(self.chat.extra_body or {})
        form = extra.pop("response_format", {"type": "json_schema"})
        if schema is not None:
            content = {"schema": schema}
            if form["type"] == "json_schema":
                content = {"json_schema": {"name": "reply", "schema": schema}}
            extra["response_format"] = content | form
        options = {"timeout": self.deadline_s, "extra_body": extra or None}
        return _received(self.chat.invoke(convert_to_messages(messages), **options))


def endpoint_of(
    model: Any, num_predict: int | None = None, deadline_s: float | None = None
) -> Endpoint:
    """Return the endpoint of a chat model, a name or a mapping for `chat_model`.

    ``num_predict``: the step's bound, for a model of `chat_model` that names none.
    """
    if isinstance(model, str | Mapping):
        model = chat_model(model)
    if not isinstance(model, BaseChatModel):
        expected = "a LangChain chat model, or a name such as 'ollama:llama3:8b'"
        do = "make one with ragbench.llm.chat_model(...)"
        raise ConfigError(f"model {model!r}", expected, do)
    name = type(model).__name__
    kind = Endpoint
    if isinstance(model, ChatOllama):
        kind = _OllamaEndpoint
    elif name in ("ChatOpenAI", "OpenAIChat"):  # AzureChatOpenAI and others build other addresses
        kind = _OpenAIEndpoint
    endpoint = kind(model, deadline_s)
    if num_predict is not None and name in ("OllamaChat", "OpenAIChat"):
        endpoint.limit(num_predict)
    return endpoint


def model_name(model: Any) -> str:
    """Return the name of a model, or of an object that answers or grades; a name stays as it is."""
    if isinstance(model, Mapping):
        model = model.get("use", "")
    if isinstance(model, str):
        return model
    name = getattr(model, "name", None)  # of an object that answers or grades
    return name if isinstance(name, str) else endpoint_of(model).model


# Where a model is, how long to wait, and what to log: none of it changes a reply.
_NO_OPTION = re.compile(
    r"url|host|api_base|endpoint|proxy|timeout|retries|headers|client|cache|callback|verbose|^tags$|metadata|rate_limiter"
    r"|organization|disable_streaming|^name$|profile|output_version|deadline|api.?key|secret|password|credential"
    r"|cookie|auth|token$|^i$|^responses$|^messages$|^sleep$",
    re.IGNORECASE,
)


def _plain_options(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of a model's fields can change a reply."""
    plain = {name: value for name, value in fields.items() if _is_plain(value)}
    return without_secrets({k: v for k, v in plain.items() if not _NO_OPTION.search(k)})


def _is_plain(value: Any) -> bool:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return isinstance(value, bool | int | float | str)


def model_facts(
    model: Any,
    cassette: Cassette | None = None,
    *,
    ask_server: bool = True,
    num_predict: int | None = None,
) -> Endpoint:
    """Return who a chat model is (a name or an object): its endpoint, with the digest in ``found``.

    The server is not asked without ``ask_server``, and where the cassette is in replay mode; then
    the digest is the one on the cassette. ``num_predict``: as in `ragbench.llm.ask`. ModelError
    when no server answers and nothing says which weights are meant.
    """
    endpoint = endpoint_of(model, num_predict)
    if ask_server and (cassette is None or cassette.mode == "record"):
        endpoint.meet()
    dead = endpoint.dead
    if dead is not None and dead.kind != "down":
        raise dead
    if endpoint.found is None:
        endpoint.found = endpoint.pinned_digest
    if endpoint.found is None and cassette is not None:
        endpoint.found = cassette.choose_digest(endpoint.provider, endpoint.name)
    if endpoint.found is None and dead is not None:
        raise dead
    return endpoint
