"""What the chat models of both providers share: plain calls go the way that ``ask`` goes."""

from __future__ import annotations

from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatResult

from ragbench.llm.invoke import complete_in_place, complete_later


class AskedAlike:
    """Put before a LangChain chat model: ``invoke`` and ``ainvoke`` without call-time options go the way of ``ask``.

    Calls with tools, stop words or other options go the model's own way.
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
        return complete_in_place(self, messages)

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        if stop or kwargs:
            return await super()._agenerate(messages, stop, run_manager, **kwargs)  # type: ignore[misc]
        return await complete_later(self, messages)
