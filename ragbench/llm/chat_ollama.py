"""ChatOllama with a total deadline, typed errors, and no way for a cut prompt or reply to pass unseen."""

from __future__ import annotations

import base64
from typing import Any
from urllib.parse import unquote

import httpx
from langchain_ollama import ChatOllama
from pydantic import Field, PrivateAttr, SecretStr, model_validator

from ragbench.llm.chat_shared import AskedAlike


class OllamaChat(AskedAlike, ChatOllama):
    """``langchain_ollama.ChatOllama``; plain ``invoke`` and ``ainvoke`` go the way ``ask`` goes.

    Calls with tools, stop words or other call-time options, and ``stream``, go ChatOllama's own way.
    """

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
                pair = unquote(self.userinfo.get_secret_value()).encode()
                client.headers["authorization"] = f"Basic {base64.b64encode(pair).decode()}"
        return self
