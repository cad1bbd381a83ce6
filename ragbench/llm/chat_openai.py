"""ChatOpenAI with a total deadline and typed errors: OpenAI, every server that speaks its protocol, GGUF files."""

from __future__ import annotations

from typing import Any

from langchain_openai import ChatOpenAI
from pydantic import PrivateAttr

from ragbench.llm.chat_shared import AskedAlike


class OpenAIChat(AskedAlike, ChatOpenAI):
    """``langchain_openai.ChatOpenAI``; plain ``invoke`` and ``ainvoke`` go the way ``ask`` goes.

    Calls with tools, stop words or other call-time options, and ``stream``, go ChatOpenAI's own way.
    """

    num_ctx: int | None = None
    deadline_s: float | None = None
    price: tuple[float, float] | None = None
    digest: str | None = None
    _server: Any = PrivateAttr(default=None)  # of ``ragbench.llm.local``, where the model runs on this machine
    _ragbench_driver: Any = PrivateAttr(default=None)
