"""``ChatOpenAI`` for servers that speak OpenAI's protocol: the older name of a limit, which all of them know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langchain_openai import ChatOpenAI
from pydantic import Field, PrivateAttr, SecretStr


class OpenAIChat(ChatOpenAI):
    """``langchain_openai.ChatOpenAI`` with what `ragbench.llm.ask` has to know beside it."""

    num_ctx: int | None = None
    deadline_s: float | None = None
    price: tuple[float, float] | None = None
    digest: str | None = None
    userinfo: SecretStr | None = Field(default=None, repr=False)
    default_headers: Mapping[str, str] | None = Field(default=None, repr=False)
    extra_body: Mapping[str, Any] | None = Field(default=None, repr=False)
    default_query: Mapping[str, object] | None = Field(default=None, repr=False)
    _server: Any = PrivateAttr(default=None)  # of ``ragbench.llm.local``, where the model runs on this machine

    def _get_request_payload(self, input_: Any, *, stop: list[str] | None = None, **options: Any) -> dict:
        payload = super()._get_request_payload(input_, stop=stop, **options)
        if "max_completion_tokens" in payload and self.openai_api_base:
            payload["max_tokens"] = payload.pop("max_completion_tokens")
        return payload
