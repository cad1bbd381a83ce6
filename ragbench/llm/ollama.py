"""Ollama over HTTP: with ``truncate: false``, the Retry-After header, HTML bodies and the end mark kept in sight."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import httpx
from langchain_ollama import ChatOllama
from pydantic import Field, PrivateAttr, SecretStr, model_validator

from ragbench.llm.drivers import AskedAlike, HttpDriver, Received, Wire, basic, seconds, text_of, token_count, word
from ragbench.llm.failures import CallError, from_exception, from_status, is_html, server_words
from ragbench.llm.reply import LOOP


class OllamaChat(AskedAlike, ChatOllama):
    """``langchain_ollama.ChatOllama`` with a total deadline, whose plain calls go the way of ``ask``."""

    deadline_s: float | None = None
    price: tuple[float, float] | None = None
    digest: str | None = None
    api_key: SecretStr | None = Field(default=None, repr=False)
    userinfo: SecretStr | None = Field(default=None, repr=False)
    _ragbench_driver: Any = PrivateAttr(default=None)

    @model_validator(mode="after")
    def _limit_and_sign(self) -> OllamaChat:
        """Give ChatOllama's own clients a time limit and the key (neither of which belongs into ``client_kwargs``)."""
        for client in (self._client._client, self._async_client._client):
            client.timeout = httpx.Timeout(self.deadline_s, connect=10.0)
            if self.api_key is not None:
                client.headers["authorization"] = f"Bearer {self.api_key.get_secret_value()}"
            elif self.userinfo is not None:
                client.headers["authorization"] = basic(self.userinfo)
        return self


class OllamaDriver(HttpDriver):
    """Ollama's own protocol: ``/api/chat`` as a stream of JSON lines, ``/api/tags`` for the digest."""

    provider = "ollama"

    def __init__(self, model: Any) -> None:
        inner = model._async_client._client
        super().__init__(model, str(inner.base_url), inner.headers, _client_options(model))
        self.name = model.model if ":" in model.model.rsplit("/", 1)[-1] else f"{model.model}:latest"
        self._base = {k: v for k, v in model._chat_params([]).items() if v is not None}
        options = self._base["options"]
        self.num_ctx, self.num_predict = options.get("num_ctx"), options.get("num_predict")
        self._convert = model._convert_messages_to_ollama_messages
        # truncate and shift: an error instead of a prompt cut in silence, on servers that know the fields.
        self._sent = {**self._base, "stream": True, "truncate": False, "shift": False}

    def options(self) -> dict[str, Any]:
        left_out = {"messages", "model", "stream", "keep_alive"}
        return {k: v for k, v in self._base.items() if k not in left_out}

    async def digest(self) -> str:
        if self.pinned_digest is not None:
            return self.pinned_digest
        try:
            listed = (await self.get_json("/api/tags")).get("models") or []
            digests = {entry.get("model") or entry.get("name"): word(entry.get("digest")) for entry in listed}
        except CallError as error:
            if error.kind == "bad_address":
                return ""  # something in front of the server lets only the chat through
            raise
        except (AttributeError, TypeError):
            raise self.fail("garbage", "/api/tags lists no models", do="check that host=... is Ollama") from None
        if self.name not in digests:
            here = ", ".join(sorted(str(name) for name in digests)) or "none"
            raise self.fail("no_model", f"the server does not have this model; it has: {here}")
        return digests[self.name].removeprefix("sha256:")

    async def context_length(self) -> int | None:
        """Return the longest context the model was made for, from ``/api/show``; None where it is not said."""
        try:
            info = (await self.get_json("/api/show", sent={"model": self.name})).get("model_info") or {}
            return next((token_count(value) for key, value in info.items() if key.endswith(".context_length")), None)
        except (CallError, AttributeError):
            return None

    async def complete(self, messages: Sequence[dict], schema: dict | None, received: Received) -> Wire:
        body = {**self._sent, "messages": self._wire_messages(messages)}
        if schema is not None:
            body["format"] = schema
        try:
            with self.client() as client:
                await self._stream(client, json.dumps(body).encode(), received, looking=schema is not None)
        except CallError:
            raise
        except Exception as error:
            if received.end is None:
                raise self.fail(*from_exception(error), raw=received.text) from None
        text, final = received.text, received.end
        if final is None:
            seen = f"after {len(text)} characters" if text else "with nothing in it"
            raise self.fail("unfinished", f"the stream ended {seen}, without its end mark (done)", raw=text)
        return Wire(
            text,
            "".join(received.thinking),
            word(final.get("done_reason")),
            token_count(final.get("prompt_eval_count")),
            token_count(final.get("eval_count")),
            seconds(final.get("prompt_eval_duration"), 1e9),
            seconds(final.get("eval_duration"), 1e9),
        )

    async def _stream(self, client: Any, body: bytes, received: Received, *, looking: bool) -> None:
        """Read the stream to its end; ``looking``: or until the reply does nothing but repeat itself."""
        async with client.stream("POST", f"{self.host}/api/chat", content=body) as response:
            if response.status_code != 200:
                raise await self.refuse(response, received)
            async for piece in response.aiter_bytes():
                for line in received.lines(self.counted(piece, received)):
                    self._take(line, received)
                if looking and received.end is None and received.loops():
                    received.end = {"done_reason": LOOP}
                    return
            for line in received.lines():
                self._take(line, received)

    def _wire_messages(self, messages: Sequence[dict]) -> Sequence[Any]:
        if all(isinstance(message["content"], str) and len(message) == 2 for message in messages):
            return messages
        from langchain_core.messages import convert_to_messages

        return self._convert(convert_to_messages(messages))

    def _take(self, line: bytes, received: Received) -> None:
        """Read one line of the stream."""
        if not line.strip():
            return
        shown = line.decode("utf-8", "replace")
        try:
            part = json.loads(line)
        except (ValueError, RecursionError):
            if is_html(shown):
                raise self.fail("html", f"a web page: {server_words(shown)}", raw=shown) from None
            if received.text:
                raise self.fail("unfinished", "the stream broke off inside a line", raw=received.text) from None
            raise self.fail("garbage", f"not JSON: {server_words(shown)!r}", raw=shown) from None
        try:
            if not {"message", "error", "done"} & part.keys():
                raise TypeError
            if "error" in part:
                raise self.fail(*from_status(0, shown), raw=received.text)
            message = part.get("message") or {}
            received.write(text_of(message.get("content")))
            received.thinking.append(text_of(message.get("thinking")))
        except (TypeError, AttributeError):
            what = f"JSON, but no reply of Ollama's: {server_words(shown)!r}"
            raise self.fail("garbage", what, raw=shown) from None
        if part.get("done"):
            received.end = part


def _client_options(model: Any) -> dict[str, Any]:
    given = {**(model.client_kwargs or {}), **(model.async_client_kwargs or {})}
    return {key: value for key, value in given.items() if key not in ("headers", "timeout", "base_url")}
