"""How each provider is spoken to.

Ollama and OpenAI-compatible servers are called over HTTP directly, with the options of the LangChain model: that keeps
what LangChain's path loses (the Retry-After header, HTML bodies, a stream without its end mark, ``truncate: false``)
and takes about half the time per call. Any other LangChain chat model goes through its own ``ainvoke``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ragbench.errors import ConfigError
from ragbench.llm.driver import Driver, HttpDriver, Progress, Wire
from ragbench.llm.failures import CallError, from_exception, from_status, is_html, server_words
from ragbench.llm.secrets import plain_options, secret_strings

if TYPE_CHECKING:
    from langchain_core.language_models.chat_models import BaseChatModel


class OllamaDriver(HttpDriver):
    """Ollama's own protocol: ``/api/chat`` as a stream of JSON lines, ``/api/tags`` for the digest."""

    provider = "ollama"

    def __init__(self, model: Any) -> None:
        inner = model._async_client._client
        super().__init__(str(inner.base_url), inner.headers, _client_options(model))
        self.name = model.model if ":" in model.model.rsplit("/", 1)[-1] else f"{model.model}:latest"
        self._base = {k: v for k, v in model._chat_params([]).items() if v is not None}
        options = self._base["options"]
        self.num_ctx, self.num_predict = options.get("num_ctx"), options.get("num_predict")
        self._convert = model._convert_messages_to_ollama_messages
        # truncate and shift: an error instead of a prompt cut in silence, on servers that know the fields.
        self._sent = {**self._base, "stream": True, "truncate": False, "shift": False}
        _take_settings(self, model, inner.headers)

    def options(self) -> dict[str, Any]:
        left_out = {"messages", "model", "stream", "keep_alive"}
        return {k: v for k, v in self._base.items() if k not in left_out}

    async def digest(self) -> str:
        if self.pinned_digest is not None:
            return self.pinned_digest
        try:
            listed = (await self.get_json("/api/tags")).get("models") or []
        except CallError as error:
            if error.kind == "bad_address":
                return ""  # something in front of the server lets only the chat through
            raise
        digests = {entry.get("model") or entry.get("name"): entry.get("digest", "") for entry in listed}
        if self.name not in digests:
            here = ", ".join(sorted(str(name) for name in digests)) or "none"
            raise self.fail("no_model", f"the server does not have this model; it has: {here}")
        return digests[self.name].removeprefix("sha256:")

    async def context_length(self) -> int | None:
        """Return the longest context the model was made for, from ``/api/show``; None where it is not said."""
        import httpx

        try:
            response = await self.client().post(f"{self.host}/api/show", json={"model": self.name}, timeout=10.0)
            info = response.json().get("model_info") or {}
        except (httpx.HTTPError, ValueError):
            return None
        return next((int(value) for key, value in info.items() if key.endswith(".context_length")), None)

    async def complete(self, messages: Sequence[dict], schema: dict | None, progress: Progress) -> Wire:
        body = {**self._sent, "messages": self._wire_messages(messages)}
        if schema is not None:
            body["format"] = schema
        text = progress.parts
        thinking: list[str] = []
        final: dict[str, Any] | None = None
        request = self.client().stream("POST", f"{self.host}/api/chat", content=json.dumps(body).encode())
        try:
            async with request as response:
                if response.status_code != 200:
                    raise await self.refuse(response, progress)
                async for line in response.aiter_lines():
                    progress.bytes += len(line)
                    if not line or line.isspace():
                        continue
                    part = self._part(line, text)
                    message = part.get("message") or {}
                    if piece := message.get("content"):
                        text.append(piece)
                    if piece := message.get("thinking"):
                        thinking.append(piece)
                    if part.get("done"):
                        final = part
        except CallError:
            raise
        except Exception as error:
            if final is None:
                raise self.fail(*from_exception(error), raw="".join(text)) from None
        if final is None:
            seen = f"after {sum(map(len, text))} characters" if text else "with nothing in it"
            raise self.fail("unfinished", f"the stream ended {seen}, without its end mark (done)", raw="".join(text))
        return Wire(
            "".join(text),
            "".join(thinking),
            final.get("done_reason") or "",
            final.get("prompt_eval_count"),
            final.get("eval_count"),
            (final.get("prompt_eval_duration") or 0) / 1e9,
            (final.get("eval_duration") or 0) / 1e9,
        )

    def _wire_messages(self, messages: Sequence[dict]) -> Sequence[Any]:
        if all(isinstance(message["content"], str) and len(message) == 2 for message in messages):
            return messages
        from langchain_core.messages import convert_to_messages

        return self._convert(convert_to_messages(messages))

    def _part(self, line: str, text: Sequence[str]) -> dict[str, Any]:
        raw = "".join(text)
        try:
            part = json.loads(line)
        except ValueError:
            if is_html(line):
                raise self.fail("html", f"a web page: {server_words(line)}", raw=line) from None
            if text:
                raise self.fail("unfinished", "the stream broke off inside a line", raw=raw) from None
            raise self.fail("garbage", f"not JSON: {server_words(line)!r}", raw=line) from None
        if not isinstance(part, dict) or not ("message" in part or "error" in part or "done" in part):
            raise self.fail("garbage", f"JSON, but no reply of Ollama's: {server_words(line)!r}", raw=line)
        if "error" in part:
            raise self.fail(*from_status(0, line), raw=raw)
        return part


class OpenAIDriver(HttpDriver):
    """The OpenAI protocol, as vLLM, llama.cpp and others speak it: ``/chat/completions`` in one JSON answer."""

    provider = "openai"

    def __init__(self, model: Any) -> None:
        headers = {"Content-Type": "application/json", **(model.default_headers or {})}
        if hasattr(model.openai_api_key, "get_secret_value"):
            headers["Authorization"] = f"Bearer {model.openai_api_key.get_secret_value()}"
        if model.openai_organization:
            headers["OpenAI-Organization"] = model.openai_organization
        super().__init__(str(model.root_async_client.base_url), headers, {})
        self.name = model.model_name
        payload = model._get_request_payload([])
        self._base = {k: v for k, v in payload.items() if v is not None and k not in ("messages", "stream")}
        self._sent = dict(self._base)
        if "max_completion_tokens" in self._sent and "api.openai.com" not in self.host:
            # The newer name is unknown to many servers that speak this protocol; all know the older one.
            self._sent["max_tokens"] = self._sent.pop("max_completion_tokens")
        self.num_predict = self._base.get("max_completion_tokens", self._base.get("max_tokens"))
        # Servers differ in how they take a schema; the one that answers is kept.
        self._dialects = ["json_schema", "json_object"]
        _take_settings(self, model, headers)

    def options(self) -> dict[str, Any]:
        left_out = {"model", "user", "store", "metadata", "service_tier", "extra_headers", "prompt_cache_key"}
        options = {k: v for k, v in self._base.items() if k not in left_out}
        return {**options, "num_ctx": self.num_ctx} if self.num_ctx else options

    async def complete(self, messages: Sequence[dict], schema: dict | None, progress: Progress) -> Wire:
        body = {**self._sent, "messages": list(messages)}
        if schema is None:
            return await self._post(body, progress)
        while True:
            dialect = self._dialects[0]
            try:
                return await self._post({**body, "response_format": _response_format(schema, dialect)}, progress)
            except CallError as error:
                # llama.cpp's Python server answers 500 to the standard form, other servers 400 or 422.
                refused = error.status in (400, 422, 500) and error.kind in ("bad_request", "server_error")
                if not refused or self._dialects[0] != dialect or len(self._dialects) == 1:
                    raise
                self._dialects.pop(0)

    async def _post(self, body: dict, progress: Progress) -> Wire:
        extra = body.pop("extra_body", None) or {}
        request = self.client().stream(
            "POST", f"{self.host}/chat/completions", content=json.dumps({**body, **extra}).encode()
        )
        parts: list[bytes] = []
        try:
            async with request as response:
                if response.status_code != 200:
                    raise await self.refuse(response, progress)
                async for piece in response.aiter_bytes():
                    parts.append(piece)
                    progress.bytes += len(piece)
        except CallError:
            raise
        except Exception as error:
            raise self.fail(*from_exception(error), raw=b"".join(parts).decode("utf-8", "replace")) from None
        return self._read(b"".join(parts).decode("utf-8", "replace"))

    def _read(self, body: str) -> Wire:
        try:
            answer = json.loads(body)
        except ValueError:
            kind = "html" if is_html(body) else "garbage"
            what = "a web page" if kind == "html" else "not JSON"
            raise self.fail(kind, f"{what}: {server_words(body)!r}", raw=body) from None
        try:
            choice = answer["choices"][0]
            message, usage = choice["message"], answer.get("usage") or {}
            return Wire(
                message.get("content") or "",
                message.get("reasoning_content") or "",
                choice.get("finish_reason") or "",
                usage.get("prompt_tokens"),
                usage.get("completion_tokens"),
            )
        except (KeyError, IndexError, TypeError, AttributeError):
            if isinstance(answer, dict) and "error" in answer:
                raise self.fail(*from_status(0, body), raw=body) from None
            raise self.fail("garbage", f"JSON, but no chat completion: {server_words(body)!r}", raw=body) from None


def _response_format(schema: dict, dialect: str) -> dict[str, Any]:
    if dialect == "json_object":
        return {"type": "json_object", "schema": schema}
    name = "".join(c if c.isalnum() else "_" for c in str(schema.get("title", "reply")))[:60]
    return {"type": "json_schema", "json_schema": {"name": name, "schema": schema}}


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
            model._ragbench_driver = kept
    return kept


def _new_driver(model: Any) -> Driver:
    kinds = {(cls.__module__.partition(".")[0], cls.__name__) for cls in type(model).__mro__}
    if ("langchain_ollama", "ChatOllama") in kinds:
        return OllamaDriver(model)
    # Subclasses such as AzureChatOpenAI build other addresses, so only the class itself is called directly.
    if type(model).__name__ in ("ChatOpenAI", "OpenAIChat") and ("langchain_openai", "ChatOpenAI") in kinds:
        return OpenAIDriver(model)
    return LangChainDriver(model)


def _client_options(model: Any) -> dict[str, Any]:
    given = {**(model.client_kwargs or {}), **(model.async_client_kwargs or {})}
    return {key: value for key, value in given.items() if key not in ("headers", "timeout", "base_url")}


def _take_settings(driver: HttpDriver, model: Any, headers: Mapping[str, str]) -> None:
    """Take over what ``chat_model`` set beyond the LangChain class, and note the secrets to hide."""
    driver.deadline_s = getattr(model, "deadline_s", None)
    driver.price = getattr(model, "price", None)
    driver.pinned_digest = getattr(model, "digest", None)
    if driver.num_ctx is None:
        driver.num_ctx = getattr(model, "num_ctx", None)
    driver.secrets = secret_strings(model, headers)
