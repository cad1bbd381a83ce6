"""OpenAI-compatible servers over HTTP, whatever form of a JSON schema they accept; and those of ``local``."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import httpx
from langchain_openai import ChatOpenAI
from pydantic import Field, PrivateAttr, SecretStr

from ragbench.llm.cassette import canonical
from ragbench.llm.drivers import AskedAlike, HttpDriver, Received, basic, seconds, token_count, word
from ragbench.llm.failures import AWAY, CallError, from_status
from ragbench.llm.reply import LOOP

log = logging.getLogger("ragbench.llm")


class OpenAIChat(AskedAlike, ChatOpenAI):
    """``langchain_openai.ChatOpenAI`` with a total deadline, whose plain calls go the way of ``ask``."""

    num_ctx: int | None = None
    deadline_s: float | None = None
    price: tuple[float, float] | None = None
    digest: str | None = None
    userinfo: SecretStr | None = Field(default=None, repr=False)
    default_headers: Mapping[str, str] | None = Field(default=None, repr=False)
    _server: Any = PrivateAttr(default=None)  # of ``ragbench.llm.local``, where the model runs on this machine
    _ragbench_driver: Any = PrivateAttr(default=None)


class OpenAIDriver(HttpDriver):
    """The OpenAI protocol, as vLLM, llama.cpp and others speak it: ``/chat/completions`` in one JSON answer.

    Structured replies come as a stream, so that one which repeats itself can be cut early. A server that takes no
    stream, or counts no tokens in it, is asked for one answer again.
    """

    provider = "openai"
    answer = "chat completion"

    def __init__(self, model: Any) -> None:
        headers = {"Content-Type": "application/json", **(model.default_headers or {})}
        if (userinfo := getattr(model, "userinfo", None)) is not None:
            headers["Authorization"] = basic(userinfo.get_secret_value())
        if hasattr(model.openai_api_key, "get_secret_value"):
            headers.setdefault("Authorization", f"Bearer {model.openai_api_key.get_secret_value()}")
        if model.openai_organization:
            headers["OpenAI-Organization"] = model.openai_organization
        super().__init__(model, str(model.root_async_client.base_url), headers, {})
        self.name = model.model_name
        payload = model._get_request_payload([])
        self._base = {k: v for k, v in payload.items() if v is not None and k not in ("messages", "stream")}
        self._sent = dict(self._base)
        extra = self._sent.pop("extra_body", None) or {}
        if "max_completion_tokens" in self._sent and "api.openai.com" not in self.host:
            # The newer name is unknown to many servers that speak this protocol; all know the older one.
            self._sent["max_tokens"] = self._sent.pop("max_completion_tokens")
        self._sent |= extra
        self.num_predict = self._base.get("max_completion_tokens", self._base.get("max_tokens"))
        # Servers differ in how they take a schema; what answers is kept, for this model at this host.
        self._forms = ["json_schema", "json_object"]
        self._streams = True

    def options(self) -> dict[str, Any]:
        left_out = {"model", "user", "store", "metadata", "service_tier", "extra_headers", "prompt_cache_key"}
        options = {k: v for k, v in self._base.items() if k not in left_out}
        return {**options, "num_ctx": self.num_ctx} if self.num_ctx else options

    async def digest(self) -> str:
        """Return a hash of what the server tells of the model it has; "" where it tells nothing."""
        if self.pinned_digest is not None:
            return self.pinned_digest
        listed = await self._told("/models")
        try:
            named = [entry for entry in listed["data"] if entry["id"] == self.name]
            entry = named[0] if named or len(listed["data"]) > 1 else listed["data"][0]
            facts = _facts(entry, "root", "max_model_len")  # vLLM
            if "meta" in entry and entry["meta"] is None:  # llama.cpp, as long as it loads its model
                raise self.fail("busy", "the server is still loading its model")
            if meta := _facts(entry.get("meta"), "size", "n_params", "n_vocab", "n_embd", "n_ctx_train"):
                facts |= meta | await self._slot()
            told = canonical({"id": entry["id"], **facts})
        except (KeyError, IndexError, TypeError, AttributeError):
            return ""
        return f"told-{hashlib.sha256(told.encode()).hexdigest()}" if facts else ""

    async def context_length(self) -> int | None:
        """Return the window of one request, as llama.cpp (per slot) or vLLM tells it; None where it is not said."""
        if window := (await self._slot()).get("n_ctx"):
            return token_count(window)
        try:
            listed = (await self._told("/models"))["data"]
            return next((token_count(entry["max_model_len"]) for entry in listed if entry["id"] == self.name), None)
        except (KeyError, TypeError):
            return None

    async def _slot(self) -> dict[str, Any]:
        """Return what llama.cpp tells of a slot: its ``n_ctx`` is its share of the server's window."""
        props = await self._told("/props", root=True)
        return _facts(props.get("default_generation_settings") if isinstance(props, dict) else None, "n_ctx")

    async def _told(self, path: str, *, root: bool = False) -> Any:
        """Return what the server tells there, None where it tells nothing. Raises CallError: it is away or busy."""
        try:
            return await self.get_json(path, root=root)
        except CallError as error:
            if error.kind in AWAY | {"busy"}:
                raise
            return None

    async def complete(self, messages: Sequence[dict], schema: dict | None, received: Received) -> None:
        body = {**self._sent, "messages": messages}
        if schema is None:
            await self.post("/chat/completions", body, received, looking=False)
            return
        for form in tuple(self._forms):
            try:
                await self._structured({**body, "response_format": _response_format(schema, form)}, received)
            except CallError as error:
                # llama.cpp's Python server answers 500 to the standard form, other servers 400 or 422. A 500 that does
                # not name the form is an accident, and says nothing about it.
                names_it = "response_format" in error.got or "json_schema" in error.got
                refused = error.kind in ("bad_request", "server_error") and (
                    error.status in (400, 422) or (error.status == 500 and names_it)
                )
                if not refused or form == self._forms[-1]:
                    raise
                if names_it and form in self._forms:
                    self._forms.remove(form)
                    log.warning("%s takes no response_format %r: asked with %r", self.model, form, self._forms[0])
            else:
                received.form = form
                return

    async def _structured(self, body: dict, received: Received) -> None:
        """Ask for a stream, where the server takes one and counts the tokens in it."""
        if self._streams:
            try:
                stream = {"stream": True, "stream_options": {"include_usage": True}}
                await self.post("/chat/completions", body | stream, received, looking=True)
            except CallError as error:
                if not (error.status in (400, 422) and "stream" in error.got):
                    raise
                self._streams = False
            else:
                self._streams = received.finish == LOOP or received.output_tokens is not None
                return
        await self.post("/chat/completions", body, received, looking=False)

    def streams(self, response: httpx.Response) -> bool:
        return "event-stream" in response.headers.get("content-type", "")

    def take(self, line: str, received: Received) -> None:
        name, _, data = line.partition(":")
        if name == "error":
            raise self.fail(*from_status(0, data), raw=received.text)
        if name == "data" and data.strip() != "[DONE]":
            self.parse(data, received)

    def read(self, answer: Any, received: Received, whole: bool) -> None:
        for choice in [answer["choices"][0]] if whole else answer.get("choices") or []:
            message = choice["message"] if whole else choice.get("delta") or {}
            received.write(message.get("content"), message.get("reasoning_content"))
            if whole or choice.get("finish_reason"):
                received.finish = word(choice.get("finish_reason"))
        if isinstance(usage := answer.get("usage"), dict):
            received.prompt_tokens = token_count(usage.get("prompt_tokens"))
            received.output_tokens = token_count(usage.get("completion_tokens"))
        if isinstance(timings := answer.get("timings"), dict):  # llama.cpp's own: without waiting for a free slot
            received.prompt_seconds = seconds(timings.get("prompt_ms"), 1e3)
            received.output_seconds = seconds(timings.get("predicted_ms"), 1e3)


def _facts(entry: Any, *names: str) -> dict[str, Any]:
    """Return the plain values that are there under these names."""
    facts = {name: entry.get(name) for name in names} if isinstance(entry, dict) else {}
    return {name: value for name, value in facts.items() if isinstance(value, int | float | str)}


def _response_format(schema: dict, form: str) -> dict[str, Any]:
    if form == "json_object":
        return {"type": "json_object", "schema": schema}
    name = "".join(c if c.isalnum() else "_" for c in str(schema.get("title", "reply")))[:60]
    return {"type": "json_schema", "json_schema": {"name": name, "schema": schema}}


class LocalDriver(OpenAIDriver):
    """A model of ``local``: the file's sha256 is its digest."""

    provider = "gguf"
    slots = 1

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self._file = model._server.file
        # A proxy has no business on the way to loopback.
        self._client_options = {"trust_env": False, "event_hooks": {"request": [model._server.reach_async]}}

    async def digest(self) -> str:
        return await asyncio.to_thread(self._file.checked, self.pinned_digest)

    async def context_length(self) -> int | None:
        """Return the longest context the model was made for."""
        return (await self.get_json("/models"))["data"][0]["meta"]["n_ctx_train"]
