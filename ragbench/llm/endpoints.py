"""What `ask` needs of a chat model, whoever serves it: its name and options, the digest of its
weights, and one call.

Ollama is asked by its own client, everything else by LangChain's ``invoke``. What is added here is
what they leave out.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import hashlib
import json
import logging
import re
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx
import ollama
from langchain_core.callbacks import CallbackManager
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, convert_to_messages
from langchain_core.outputs import ChatGeneration, LLMResult
from langchain_ollama import ChatOllama
from langsmith import tracing_context
from pydantic import SecretStr

from ragbench.errors import ConfigError
from ragbench.llm.cassette import Cassette, Keys
from ragbench.llm.failures import SILENCE_S, CallError, mask, redact, sounds_secret
from ragbench.llm.identity import address_mark, identity, without_secrets
from ragbench.llm.models import DEADLINE_S, chat_model
from ragbench.llm.reply import Usage
from ragbench.llm.wire import OllamaServer, Transport, within

log = logging.getLogger("ragbench.llm")
_KEY_CHARS = 12  # shorter ones are ordinary words: "test", "not-needed"
_PUBLIC = ("https://api.openai.com/v1",)
_LOOK_S = 5.0  # to see what a server is, at most
_SLOW_SERVER = "look into the server's log, then run again"


@dataclass(slots=True)
class Received:
    """One whole reply; ``finish`` is "" where the server sent no end mark."""

    text: str = ""
    thinking: str = ""
    finish: str = ""
    usage: Usage = Usage(calls=1, uncounted=1)  # noqa: RUF009 - it is frozen

    @property
    def raw(self) -> str:
        """Everything the model wrote, its thinking in ``<think>`` marks."""
        if not self.thinking.strip():
            return self.text
        return f"<think>{self.thinking}</think>{self.text}"


def _usage(read: int | None, written: int | None, seconds: tuple[float, float]) -> Usage:
    """Return the tokens (None: not counted) and the server's own time, where it says it."""
    uncounted = int(read is None or written is None)
    reading_s, writing_s = seconds
    return Usage(1, read or 0, written or 0, uncounted, reading_s, writing_s, sum(seconds))


class Endpoint:
    """Any LangChain chat model, by its ``invoke``: its own client, options and time limits apply.

    Attributes
    ----------
    chat : the LangChain chat model.
    provider, name, host : who answers, and where.
    options : all that can change a reply, apart from messages and schema: the call and the
        cassette's key are made of it.
    num_ctx, num_predict, deadline_s : its limits, where they are known.
    pinned_digest : of the weights, as the user says (whole).
    secrets : strings that no message may show.

    What one `ask` finds out about the server: ``digest`` (of the weights), ``dead`` (why
    it is not asked any more), ``spoke`` (whether it has said anything), ``answered`` (whether its
    model has), ``version``, ``weights`` (number of parameters and quantisation), and ``shown``
    (what the server shows of the model: family, what it was made of, its Modelfile).
    """

    digest: str | None = None
    dead: CallError | None = None
    spoke = False
    answered = False
    version = ""
    weights = ""
    shown: Mapping[str, Any] = MappingProxyType({})
    concurrency = 4  # calls under way at once, where the caller names no number
    wire: Transport | None = None

    def __init__(self, chat: Any, deadline_s: float | None = None) -> None:
        fields = {name: getattr(chat, name, None) for name in type(chat).model_fields}
        self.chat = chat
        self.provider = type(chat).__name__
        with contextlib.suppress(Exception):
            self.provider = str(chat.asdict()["_type"])
        self.name = type(chat).__name__
        name_of_model = getattr(chat, "model_name", None) or getattr(chat, "model", None)
        if isinstance(name_of_model, str):
            self.name = name_of_model
        self.host = ""
        self.num_ctx: int | None = fields.get("num_ctx")
        self.num_predict = fields.get("num_predict") or fields.get("max_tokens")
        self.deadline_s = deadline_s or fields.get("deadline_s") or DEADLINE_S
        self.pinned_digest = fields.get("digest")
        self.secrets = _secret_strings(fields)
        self.options = self._options_of(fields)

    @staticmethod
    def of(model: Any, num_predict: int | None = None, deadline_s: float | None = None) -> Endpoint:
        """Return the endpoint of a chat model, a name or a mapping for `chat_model`.

        ``num_predict``: the step's bound, for a model of `chat_model` that names none.
        """
        if isinstance(model, str | Mapping):
            model = chat_model(model)
        if not isinstance(model, BaseChatModel):
            raise ConfigError(
                f"model {model!r}",
                "a LangChain chat model, or a name such as 'ollama:llama3:8b'",
                "make one with ragbench.llm.chat_model(...)",
            )
        kind = Endpoint
        if isinstance(model, ChatOllama) and not _calls_itself(type(model)):
            kind = _OllamaEndpoint
        # AzureChatOpenAI and others build other addresses
        elif type(model).__name__ in ("ChatOpenAI", "OpenAIChat"):
            kind = _OpenAIEndpoint
        endpoint = kind(model, deadline_s)
        if num_predict is not None:
            endpoint.limit(num_predict)
        return endpoint

    @classmethod
    def identified(
        cls,
        model: Any,
        cassette: Cassette | None = None,
        *,
        ask_server: bool = True,
        num_predict: int | None = None,
    ) -> Endpoint:
        """Return who a chat model is (a name or an object): its endpoint, with the ``digest``.

        The server is not asked without ``ask_server``, and where the cassette is in replay mode;
        then the digest is the one on the cassette. ``num_predict``: as in `ragbench.llm.ask`.
        ModelError when no server answers and nothing says which weights are meant.
        """
        endpoint = cls.of(model, num_predict)
        if ask_server and (cassette is None or cassette.mode == "record"):
            endpoint.meet()
        dead = endpoint.dead
        if dead is not None and dead.kind not in ("down", "no_model"):
            raise dead
        if endpoint.digest is None:
            endpoint.digest = endpoint.pinned_digest
        if endpoint.digest is None and cassette is not None:
            endpoint.digest = cassette.choose_digest(endpoint.provider, endpoint.name)
        if endpoint.digest is None and dead is not None:
            raise dead
        return endpoint

    def _options_of(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        return identity(self.chat)

    def key_options(self, digest: str) -> dict[str, Any]:
        """Return the options as the cassette's key has them: with the address where no digest says
        which weights are there.
        """
        if digest or not self.host or self.host in _PUBLIC:
            return self.options
        return {**self.options, "address": address_mark(self.host)}

    def held(self, schema: Any = None) -> dict[str, Any]:
        """Return what holds for a reply (of this schema) that is made now, as far as is known."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        server = f"Ollama {self.version}" if self.version else ""
        facts = {"server": server, "num_ctx": self.num_ctx, "num_predict": self.num_predict}
        return {name: value for name, value in facts.items() if value} | {"at": now}

    def cut_prompt(self, estimate: int, counted: int) -> str:
        """Say why the server must have cut a prompt of so many tokens, or ""."""
        return ""

    @property
    def model(self) -> str:
        """Provider and name, ``"ollama:llama3:8b"``."""
        return f"{self.provider}:{self.name}"

    def limit(self, num_predict: int) -> None:
        """Take over the step's bound, if the model can be told of one and names none."""

    def fetch_digest(self) -> str:
        """Return the digest of the model's weights ("": it has none)."""
        return self.pinned_digest or ""

    def meet(self) -> str | None:
        """Ask the server who it is; return the digest, or None: then the endpoint is ``dead``."""
        what = "%s: after %g s it is not known yet which weights and version answer"
        slow = threading.Timer(SILENCE_S, log.warning, (what, self.model, SILENCE_S))
        slow.daemon = True
        slow.start()
        try:
            self.digest = self.fetch_digest()
            self.check()
        except Exception as error:
            self.dead = self.named(error)
        finally:
            slow.cancel()
        return self.digest

    def check(self) -> None:
        """Take over what the server says of itself and of the model."""

    def has_answered(self) -> None:
        """Note a first answer: then the window in use is known."""
        if not self.answered:
            self.answered = self.spoke = True
            self.loaded()

    def loaded(self) -> None:
        """Take over the window that is in use, once a model has answered."""

    def call(self, messages: Sequence[dict], schema: dict | None) -> Received:
        """Send one request and wait for its last byte. Raises CallError."""
        start = time.perf_counter()
        try:
            # LANGSMITH_TRACING of the environment would send every prompt out
            with tracing_context(enabled=False):
                got = self.complete(messages, schema)
            got.text = mask(got.text, self.secrets)
            got.thinking = mask(got.thinking, self.secrets)
        except Exception as error:
            raise self.named(error) from None
        if not got.usage.seconds:
            got.usage = replace(got.usage, seconds=time.perf_counter() - start)
        return got

    def complete(self, messages: Sequence[dict], schema: dict | None) -> Received:
        """Send one request; raises whatever the client raises."""
        chat = self.chat
        if schema is not None:
            with contextlib.suppress(NotImplementedError, TypeError, ValueError, AttributeError):
                chat = chat.with_structured_output(schema, include_raw=True)
        message = chat.invoke(convert_to_messages(messages))
        if isinstance(message, dict):  # of a structured output: beside what was made of it
            message = message["raw"]
        return _received(message)

    def let_go(self) -> None:
        """Break off the calls under way."""
        if self.wire is not None:
            self.wire.abort()

    def to_dict(self) -> dict[str, Any]:
        """Return what a manifest says of the model; never its address or key."""
        return {
            "provider": self.provider,
            "model": self.name,
            "digest": self.digest,
            "options": self.sent_options(),
            "num_ctx": self.num_ctx,
            "server": f"Ollama {self.version}" if self.version else "",
            "weights": self.weights,
            **self.shown,
        }

    def sent_options(self) -> dict[str, Any]:
        """Return the options as they are sent."""
        return self.options

    def row(self) -> dict[str, Any]:
        """Return what a row says of it."""
        options = {**self.options, **self.options.get("options", {})}
        digest = self.digest
        if digest == "":
            digest = "not told"
        return {
            "model": self.model,
            "digest": digest,
            "num_ctx": self.num_ctx,
            "temperature": options.get("temperature"),
            "seed": options.get("seed"),
        }

    def fail(self, kind: str, detail: str, **more: Any) -> CallError:
        """Build a CallError that names this model and hides its secrets."""
        return CallError.of(kind, detail, self.host, self.model, secrets=self.secrets, **more)

    def named(self, error: Exception) -> CallError:
        """Return any exception as a CallError."""
        if isinstance(error, CallError):
            return error
        kind, words, status = CallError.signs(error)
        if kind == "timeout":
            words = f"not finished after {self.deadline_s:g} s"
        return self.fail(kind, words, status=status)


def _calls_itself(kind: type) -> bool:
    """Whether a subclass of ChatOllama has a call of its own: then that one is called."""
    own = kind.__mro__[: kind.__mro__.index(ChatOllama)]
    return any({"_generate", "_stream", "invoke"} & vars(part).keys() for part in own)


def _received(message: Any) -> Received:
    """Take in a message of LangChain's."""
    facts = message.response_metadata or {}
    counts = message.usage_metadata or {}
    text = str(message.text)
    tool_calls = getattr(message, "tool_calls", None)
    if not text and tool_calls:
        text = json.dumps(tool_calls[0]["args"], ensure_ascii=False)
    thinking = (message.additional_kwargs or {}).get("reasoning_content")
    finish = facts.get("finish_reason") or facts.get("stop_reason") or facts.get("done_reason")
    usage = _usage(counts.get("input_tokens"), counts.get("output_tokens"), (0.0, 0.0))
    return Received(text, str(thinking or ""), str(finish or "stop"), usage)


def _set_fields(chat: Any, names: Iterable[str]) -> dict[str, Any]:
    """Return the fields of a model that are set."""
    values = {name: getattr(chat, name, None) for name in names}
    return {name: value for name, value in values.items() if value is not None}


class _OllamaEndpoint(Endpoint):
    """Ollama, by its own client; a ChatOllama says where it is and with which options."""

    concurrency = 1

    def __init__(self, chat: Any, deadline_s: float | None = None) -> None:
        super().__init__(chat, deadline_s)
        self.provider = "ollama"
        self.name = OllamaServer.full_name(chat.model)
        own = {**(chat.client_kwargs or {}), **(chat.sync_client_kwargs or {})}
        self.server = OllamaServer(chat.base_url, timeout_s=self.deadline_s, settings=own)
        self.host = self.server.address
        self.wire = self.server.wire
        self._bound_is_the_steps = False  # num_predict: the model names none
        self._modelfile_has_bound = False
        self._counts_cached = False  # tokens in the server's cache are not counted again
        self._look_ends = 0.0  # by time.monotonic(), for the list and the check together

    def _options_of(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        options = _set_fields(self.chat, ("format", "logprobs", "top_logprobs"))
        options["options"] = _set_fields(self.chat, ollama.Options.model_fields)
        if self.chat.reasoning is not None:
            options["think"] = self.chat.reasoning
        return options

    def limit(self, num_predict: int) -> None:
        if self.num_predict is None:
            self._bound_is_the_steps = True
            self.num_predict = num_predict
            self.options["options"]["num_predict"] = num_predict

    def fetch_digest(self) -> str:
        self._look_ends = time.monotonic() + self.server.ask_s
        try:
            listed = self.server.models()
        except Exception as error:
            if self.pinned_digest is not None:
                return self.pinned_digest  # of a gateway that does not list its models
            if getattr(error, "status_code", 0) == 404:
                raise self.fail("down", "no Ollama answers there (HTTP 404)") from None
            if CallError.signs(error)[0] == "timeout":
                what = f"no list of its models after {self.server.ask_s:g} s"
                raise self.fail("timeout", what, do=_SLOW_SERVER) from None
            raise
        self.spoke = True
        if self.name not in listed:
            names = ", ".join(sorted(listed)) or "none"
            raise self.fail("no_model", f"the server does not have this model; it has: {names}")
        self._take_entry(listed[self.name])
        digest = redact(listed[self.name].get("digest", "").removeprefix("sha256:"))
        pinned = self.pinned_digest
        if digest and pinned not in (None, digest):
            what = f"the server has {digest}, not {pinned}"
            raise self.fail("digest", what, do="pull that one again, or correct digest=...")
        return digest or pinned or ""

    def _take_entry(self, entry: Mapping[str, Any]) -> None:
        """Take over what the server's list says of the model, unless it is one of a cloud."""
        details = entry.get("details") or {}
        facts = [details.get("parameter_size"), details.get("quantization_level")]
        if remote_host := entry.get("remote_host"):
            if not getattr(self.chat, "cloud", False):
                what = f"it is a name for a model at {remote_host}, which would get the prompts"
                raise self.fail("no_model", what, do="pass cloud=True if that is meant")
            facts.append(f"run at {remote_host}")
        self.weights = redact(", ".join(filter(None, facts)))

    def check(self) -> None:
        end = self._look_ends
        try:
            self.version = str(self.server.say("/api/version", end).get("version", ""))
            shown = self.server.say("/api/show", end, model=self.name)
        except Exception:
            return  # the prompts tell
        self.spoke = True
        self.shown = _shown(shown)
        numbers = [int(number) for number in re.findall(r"\d+", self.version)[:2]]
        self._counts_cached = numbers >= [0, 30]
        bound = re.search(r"^num_predict\s+(-?\d+)", shown.get("parameters") or "", re.MULTILINE)
        if bound and self._bound_is_the_steps:
            # The key keeps the step's bound: with the digest, which stands for the Modelfile, it
            # says as much.
            self._modelfile_has_bound = True
            self.num_predict = int(bound[1])

    def loaded(self) -> None:
        with contextlib.suppress(Exception):
            window = self.server.models("/api/ps")[self.name].get("context_length")
            if window and self.num_ctx and self.num_ctx > window:
                log.warning(
                    "%s: num_ctx=%d, but Ollama lowers it to %d", self.model, self.num_ctx, window
                )
            self.num_ctx = window or self.num_ctx

    def sent_options(self) -> dict[str, Any]:
        sampling = dict(self.options["options"])
        if self._modelfile_has_bound:
            del sampling["num_predict"]
        return {**self.options, "options": sampling}

    def held(self, schema: Any = None) -> dict[str, Any]:
        thinks = self.options.get("think", None if schema is None else False)
        facts = super().held()
        if thinks is not None:
            facts["think"] = thinks
        return facts

    def complete(self, messages: Sequence[dict], schema: dict | None) -> Received:
        if self.chat.rate_limiter is not None:
            self.chat.rate_limiter.acquire(blocking=True)
        callbacks = CallbackManager.configure(local_callbacks=self.chat.callbacks)
        (run,) = callbacks.on_chat_model_start({}, [convert_to_messages(messages)])
        try:
            received = self._stream(messages, schema)
        except Exception as error:
            run.on_llm_error(error)
            raise
        reply = ChatGeneration(message=AIMessage(received.text))
        run.on_llm_end(LLMResult(generations=[[reply]]))
        return received

    def _stream(self, messages: Sequence[dict], schema: dict | None) -> Received:
        settings = {**self.sent_options(), "keep_alive": self.chat.keep_alive}
        if schema is not None:
            # A label has no room for thinking; models that cannot think take it too.
            settings = {"think": False, **settings, "format": schema}
        received = Received()
        parts = self.server.client.chat(self.chat.model, messages, stream=True, **settings)
        for part in parts:
            received.text += part.message.content or ""
            received.thinking += part.message.thinking or ""
            if part.done:
                received.finish = part.done_reason or "stop"
                received.usage = self._usage_of(part)
                break
        with contextlib.suppress(Exception):  # what comes after it is not part of the reply, but
            deque(parts, maxlen=0)  # a connection is kept where all of it was read
        return received

    def _usage_of(self, last: ollama.ChatResponse) -> Usage:
        prompt_tokens = last.prompt_eval_count
        if self._counts_cached:
            # It counts what its cache did not have: no number is better than a wrong one.
            prompt_tokens = None
        reading_s = (last.prompt_eval_duration or 0) / 1e9
        writing_s = (last.eval_duration or 0) / 1e9
        return _usage(prompt_tokens, last.eval_count, (reading_s, writing_s))


def _shown(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a manifest says of Ollama's ``/api/show``: family, the model that it was made of
    here, and what its Modelfile says, whole and hashed.
    """
    details = answer.get("details") or {}
    texts = {**details, **answer}
    names = ("family", "parent_model", "template", "system", "parameters")
    facts: dict[str, Any] = {name: redact(str(texts.get(name) or "")) for name in names}
    modelfile = {name: facts.pop(name) for name in names[2:]}
    sha256 = hashlib.sha256(Keys.canonical(modelfile).encode()).hexdigest()
    return {**facts, "modelfile": {**modelfile, "sha256": sha256}}


# Fields of ChatOpenAI that can change a reply; recordings have the limit of tokens as OpenAI does.
_OPENAI = (
    "temperature",
    "seed",
    "top_p",
    "presence_penalty",
    "frequency_penalty",
    "logprobs",
    "top_logprobs",
    "logit_bias",
    "stop",
    "n",
    "reasoning_effort",
    "reasoning",
    "verbosity",
    "truncation",
    "extra_body",
)


_LEAST_WINDOW = 1024  # tokens; powers of two from here on are sizes of windows
_OLLAMA_WINDOW = 4096  # where nobody says another, as under /v1 nobody can


class _OpenAIEndpoint(Endpoint):
    """The OpenAI protocol, as vLLM, llama.cpp and others speak it.

    A server that takes no ``json_schema`` gets its own form by ``extra_body={"response_format":
    {"type": "json_object"}}``; a reply is validated either way.
    """

    def __init__(self, chat: Any, deadline_s: float | None = None) -> None:
        super().__init__(chat, deadline_s)
        self.provider = "openai"
        self._local_server = getattr(chat, "server", None)
        if self._local_server is not None:
            self.provider = "gguf"
            self.concurrency = 1
        self.host = str(chat.root_client.base_url).rstrip("/")
        self.wire = getattr(chat, "wire", None)
        self._is_ollama = False

    def _options_of(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        options = _set_fields(self.chat, _OPENAI) | (self.chat.model_kwargs or {})
        options = without_secrets(options)
        if self.num_predict is not None:
            options["max_completion_tokens"] = self.num_predict
        if self.num_ctx:
            options["num_ctx"] = self.num_ctx
        return options

    def check(self) -> None:
        """See whether Ollama is behind it, which cuts a long prompt in silence here."""
        if self._local_server is None and self.wire is not None:
            seconds = min(_LOOK_S, self.deadline_s)
            limits = {"timeout": httpx.Timeout(seconds).as_dict()}
            url = f"{self.host.removesuffix('/v1')}/api/version"
            request = httpx.Request("GET", url, extensions=limits)
            with contextlib.suppress(Exception):
                response = within(seconds, functools.partial(self.wire.handle_request, request))
                self.version = str(json.loads(response.read())["version"])
                self._is_ollama = True

    def cut_prompt(self, estimate: int, counted: int) -> str:
        power = counted >= _LEAST_WINDOW and counted & (counted - 1) == 0
        if power and estimate > counted:
            return f"the server read {counted} tokens of a prompt of about {estimate}"
        if self._is_ollama and estimate > 1.25 * _OLLAMA_WINDOW and counted <= _OLLAMA_WINDOW:
            return f"a prompt of about {estimate} tokens, where Ollama reads {_OLLAMA_WINDOW}"
        return ""

    def fetch_digest(self) -> str:
        if self._local_server is not None:  # the file's sha256
            return self._local_server.digest(self.pinned_digest)
        return super().fetch_digest()

    def limit(self, num_predict: int) -> None:
        if self.num_predict is None:
            self.num_predict = num_predict
            self.options["max_completion_tokens"] = num_predict
            self.chat = self.chat.model_copy(update={"max_tokens": num_predict})

    def complete(self, messages: Sequence[dict], schema: dict | None) -> Received:
        extra = dict(self.chat.extra_body or {})
        form = extra.pop("response_format", {"type": "json_schema"})
        if schema is not None:
            content = {"schema": schema}
            if form["type"] == "json_schema":
                content = {"json_schema": {"name": "reply", "schema": schema}}
            extra["response_format"] = content | form
        try:
            message = self.chat.invoke(
                convert_to_messages(messages), timeout=self.deadline_s, extra_body=extra or None
            )
        except IndexError:
            raise self.fail("server", "a reply without choices") from None
        return _received(message)


def model_name(model: Any) -> str:
    """Return the name of a model, or of an object that answers or grades; a name stays as it is."""
    if isinstance(model, Mapping):
        model = model.get("use", "")
    if isinstance(model, str):
        return model
    name = getattr(model, "name", None)  # of an object that answers or grades
    return name if isinstance(name, str) else Endpoint.of(model).model


def _secret_strings(value: Any, name: str = "", *, all_of_it: bool = False) -> set[str]:
    """Collect keys from a model's fields: SecretStr, texts under names that sound secret, every
    header of the user's, passwords and queries of addresses.
    """
    if isinstance(value, Mapping):
        found: set[str] = set()
        for inner, part in value.items():
            is_secret = all_of_it or sounds_secret(str(inner), name)
            found |= _secret_strings(part, str(inner), all_of_it=is_secret)
        return found
    if isinstance(value, tuple) and all_of_it:  # of user and password, for httpx
        return _secret_strings({str(part): part for part in value}, all_of_it=True)
    if isinstance(value, str) and "://" in value:
        return _secrets_of_address(value)
    if isinstance(value, SecretStr):
        value = value.get_secret_value()
    elif not all_of_it:
        return set()
    return {each for each in _of_header(str(value)) if len(each) >= _KEY_CHARS}


def _of_header(value: str) -> set[str]:
    """Return the secrets of a header, without "Bearer" or "Basic"; a password beside its pair."""
    scheme, _, rest = value.partition(" ")
    found = {rest or scheme}
    if scheme.lower() == "basic":
        with contextlib.suppress(ValueError):
            pair = base64.b64decode(rest, validate=True).decode()
            found |= {pair, pair.partition(":")[2]}
    return found


def _secrets_of_address(address: str) -> set[str]:
    try:
        parts = urlsplit(address)
        found = {parts.password or ""}
    except ValueError:
        return set()
    found |= {value for name, value in parse_qsl(parts.query) if sounds_secret(name, "query")}
    return {each for each in found if len(each) >= _KEY_CHARS}
