"""Ollama over HTTP: with ``truncate: false``, the Retry-After header, HTML bodies and the end mark kept in sight."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import httpx
from langchain_ollama import ChatOllama
from pydantic import Field, PrivateAttr, SecretStr, model_validator

from ragbench.llm.drivers import AskedAlike, HttpDriver, Received, basic, seconds, token_count, word
from ragbench.llm.failures import CallError


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
                client.headers["authorization"] = basic(self.userinfo.get_secret_value())
        return self


class OllamaDriver(HttpDriver):
    """Ollama's own protocol: ``/api/chat`` as a stream of JSON lines, ``/api/tags`` for the digest."""

    provider = "ollama"
    answer = "reply of Ollama's"

    def __init__(self, model: Any) -> None:
        inner = model._async_client._client
        given = {**(model.client_kwargs or {}), **(model.async_client_kwargs or {})}
        client = {key: value for key, value in given.items() if key not in ("headers", "timeout", "base_url")}
        super().__init__(model, str(inner.base_url), inner.headers, client)
        self.name = model.model if ":" in model.model.rsplit("/", 1)[-1] else f"{model.model}:latest"
        self._base = {k: v for k, v in model._chat_params([]).items() if v is not None}
        self.num_ctx, self.num_predict = (self._base["options"].get(name) for name in ("num_ctx", "num_predict"))
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
        try:
            info = (await self.get_json("/api/show", sent={"model": self.name})).get("model_info") or {}
            return next((token_count(value) for key, value in info.items() if key.endswith(".context_length")), None)
        except (CallError, AttributeError):
            return None

    async def complete(self, messages: Sequence[dict], schema: dict | None, received: Received) -> None:
        if not all(isinstance(message["content"], str) and len(message) == 2 for message in messages):
            from langchain_core.messages import convert_to_messages

            messages = self._convert(convert_to_messages(messages))
        body = {**self._sent, "messages": messages} | ({} if schema is None else {"format": schema})
        await self.post("/api/chat", body, received, looking=schema is not None)

    def read(self, answer: Any, received: Received, whole: bool) -> None:
        if not {"message", "done"} & answer.keys():
            raise TypeError
        message = answer.get("message") or {}
        received.write(message.get("content"), message.get("thinking"))
        if answer.get("done"):
            received.finish = word(answer.get("done_reason"))
            received.prompt_tokens = token_count(answer.get("prompt_eval_count"))
            received.output_tokens = token_count(answer.get("eval_count"))
            received.prompt_seconds = seconds(answer.get("prompt_eval_duration"), 1e9)
            received.output_seconds = seconds(answer.get("eval_duration"), 1e9)
