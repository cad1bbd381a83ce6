"""ChatOpenAI with a total deadline and typed errors, for OpenAI and every server that speaks its protocol."""

from __future__ import annotations

from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatResult
from langchain_openai import ChatOpenAI
from pydantic import PrivateAttr

from ragbench.llm.invoke import complete_in_place, complete_later


class OpenAIChat(ChatOpenAI):
    """``langchain_openai.ChatOpenAI``; plain ``invoke`` and ``ainvoke`` go the way ``ask`` goes.

    Calls with tools, stop words or other call-time options, and ``stream``, go ChatOpenAI's own way.
    """

    num_ctx: int | None = None
    deadline_s: float | None = None
    price: tuple[float, float] | None = None
    digest: str | None = None
    _ragbench_driver: Any = PrivateAttr(default=None)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        if stop or kwargs:
            return super()._generate(messages, stop, run_manager, **kwargs)
        return complete_in_place(self, messages)

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        if stop or kwargs:
            return await super()._agenerate(messages, stop, run_manager, **kwargs)
        return await complete_later(self, messages)
