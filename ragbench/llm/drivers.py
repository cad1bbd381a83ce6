"""Which way a chat model is spoken to.

Ollama and OpenAI-compatible servers are called over HTTP directly, with the options of the LangChain model: that keeps
what LangChain's path loses (the Retry-After header, HTML bodies, a stream without its end mark, ``truncate: false``)
and is faster. Any other LangChain chat model goes through its own ``ainvoke``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ragbench.errors import ConfigError
from ragbench.llm.driver import Driver, Progress, Wire
from ragbench.llm.driver_ollama import OllamaDriver
from ragbench.llm.driver_openai import OpenAIDriver
from ragbench.llm.failures import from_exception
from ragbench.llm.secrets import plain_options, secret_strings

if TYPE_CHECKING:
    from langchain_core.language_models.chat_models import BaseChatModel


class LangChainDriver(Driver):
    """Any other LangChain chat model, by its ``ainvoke``: its own client, options and time limits apply."""

    def __init__(self, model: BaseChatModel) -> None:
        self._model = model
        self._bindings: dict[str, Any] = {}
        self.provider = str(getattr(model, "_llm_type", "") or type(model).__name__)
        named = getattr(model, "model_name", None) or getattr(model, "model", None)
        self.name = named if isinstance(named, str) else type(model).__name__
        self.secrets = secret_strings(model)

    def options(self) -> dict[str, Any]:
        return plain_options(self._model)

    async def complete(self, messages: Sequence[dict], schema: dict | None, progress: Progress) -> Wire:
        from langchain_core.messages import convert_to_messages

        bound = self._bound(schema) if schema is not None else None
        try:
            message = await (bound or self._model).ainvoke(convert_to_messages(messages))
        except Exception as error:
            raise self.fail(*from_exception(error)) from None
        if bound is not None:
            message = message["raw"]
        meta = getattr(message, "response_metadata", None) or {}
        counts = getattr(message, "usage_metadata", None) or {}
        content = message.content if isinstance(message.content, str) else str(message.text)
        if bound is not None and not content and getattr(message, "tool_calls", None):
            content = json.dumps(message.tool_calls[0]["args"], ensure_ascii=False)
        finish = meta.get("finish_reason") or meta.get("stop_reason") or meta.get("done_reason") or "stop"
        return Wire(content, "", finish, counts.get("input_tokens"), counts.get("output_tokens"))

    def _bound(self, schema: dict) -> Any:
        """Return the model told of the schema in its own way, or None where it knows no such way."""
        name = json.dumps(schema, sort_keys=True)
        if name not in self._bindings:
            try:
                self._bindings[name] = self._model.with_structured_output(schema, include_raw=True)
            except (NotImplementedError, TypeError, ValueError, AttributeError):
                self._bindings[name] = None
        return self._bindings[name]


def driver_for(model: Any) -> Driver:
    """Return the driver of a LangChain chat model (made once for models of ``chat_model``, which keep it)."""
    if not hasattr(model, "ainvoke"):
        raise ConfigError(
            f"model {model!r}",
            "a LangChain chat model, or a name such as 'ollama:llama3:8b'",
            "make one with ragbench.llm.chat_model(...)",
        )
    kept = getattr(model, "_ragbench_driver", None)
    if kept is None:
        kept = _new_driver(model)
        if hasattr(model, "_ragbench_driver"):
            model._ragbench_driver, kept.kept = kept, True
    return kept


def _new_driver(model: Any) -> Driver:
    kinds = {(cls.__module__.partition(".")[0], cls.__name__) for cls in type(model).__mro__}
    if ("langchain_ollama", "ChatOllama") in kinds:
        return OllamaDriver(model)
    # Subclasses such as AzureChatOpenAI build other addresses, so only the class itself is called directly.
    if type(model).__name__ in ("ChatOpenAI", "OpenAIChat") and ("langchain_openai", "ChatOpenAI") in kinds:
        if getattr(model, "_server", None) is None:
            return OpenAIDriver(model)
        from ragbench.llm.driver_local import LocalDriver

        return LocalDriver(model)
    return LangChainDriver(model)
