"""One call with a total deadline, for ``ask`` and for ``invoke`` on the models of ``chat_model``."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ragbench.errors import ConfigError
from ragbench.llm import loop
from ragbench.llm.driver import Driver, Progress, Wire
from ragbench.llm.drivers import driver_for

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage
    from langchain_core.outputs import ChatResult

_ROLES = {"human": "user", "ai": "assistant", "system": "system", "tool": "tool"}


async def call(driver: Driver, messages: Sequence[dict], schema: dict | None, deadline_s: float | None) -> Wire:
    """Send one request and wait no longer than ``deadline_s`` for its last byte.

    Raises
    ------
    CallError : of kind ``no_bytes`` or ``slow`` when the deadline passes, else what the driver found.
    """
    progress = Progress()
    try:
        async with asyncio.timeout(deadline_s):
            return await driver.complete(messages, schema, progress)
    except TimeoutError:
        text = "".join(progress.parts)
        if progress.bytes:
            detail = f"not finished after {deadline_s:g} s ({progress.bytes} bytes received)"
            raise driver.fail("slow", detail, raw=text) from None
        raise driver.fail("no_bytes", f"no byte received in {deadline_s:g} s") from None


def as_messages(prompt: Any) -> list[dict]:
    """Turn one prompt into a list of ``{"role": ..., "content": ...}``.

    Parameters
    ----------
    prompt : str, a LangChain prompt value, a LangChain message, a dict with role and content, or a list of messages
        (LangChain's, dicts, or (role, text) pairs).

    Returns
    -------
    list of dict; further fields (tool calls ...) are kept.
    """
    if isinstance(prompt, str):
        return [{"role": "user", "content": prompt}]
    if hasattr(prompt, "to_messages"):
        prompt = prompt.to_messages()
    if isinstance(prompt, dict) or not isinstance(prompt, Sequence):
        prompt = [prompt]
    return [_as_message(message) for message in prompt]


def _as_message(message: Any) -> dict:
    if isinstance(message, dict) and "role" in message and "content" in message:
        return message
    from langchain_core.messages import BaseMessage, convert_to_messages, convert_to_openai_messages

    if not isinstance(message, BaseMessage):
        try:
            message = convert_to_messages([message])[0]
        except (ValueError, NotImplementedError, TypeError):
            raise ConfigError(
                f"a prompt of type {type(message).__name__}",
                "str, or a list of messages (LangChain's, {'role', 'content'} or (role, text))",
                "turn it into one of these",
            ) from None
    if isinstance(message.content, str) and message.type in _ROLES and message.type in ("human", "system"):
        return {"role": _ROLES[message.type], "content": message.content}
    return convert_to_openai_messages([message])[0]


def complete_in_place(model: Any, messages: Sequence[BaseMessage]) -> ChatResult:
    """Answer LangChain's ``_generate``, on ragbench's own loop."""
    driver = driver_for(model)
    return _result(driver, loop.run(call(driver, as_messages(messages), None, driver.deadline_s)))


async def complete_later(model: Any, messages: Sequence[BaseMessage]) -> ChatResult:
    """Answer LangChain's ``_agenerate`` from any loop."""
    driver = driver_for(model)
    work = call(driver, as_messages(messages), None, driver.deadline_s)
    if asyncio.get_running_loop() is loop.the_loop():
        return _result(driver, await work)
    return _result(driver, await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop.the_loop())))


def _result(driver: Driver, wire: Wire) -> ChatResult:
    from langchain_core.messages import AIMessage
    from langchain_core.outputs import ChatGeneration, ChatResult

    reason = "done_reason" if driver.provider == "ollama" else "finish_reason"
    meta = {"model_name": driver.name, "model_provider": driver.provider, reason: wire.finish}
    read, written = wire.prompt_tokens, wire.output_tokens
    counts: Any = None
    if read is not None and written is not None:
        counts = {"input_tokens": read, "output_tokens": written, "total_tokens": read + written}
    extra = {"reasoning_content": wire.thinking} if wire.thinking else {}
    message = AIMessage(content=wire.text, response_metadata=meta, usage_metadata=counts, additional_kwargs=extra)
    return ChatResult(generations=[ChatGeneration(message=message, generation_info=meta)])
