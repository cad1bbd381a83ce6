"""What `ask` needs of a chat model, whoever serves it: its name and options, the digest of its
weights, and one call.

Ollama is asked by its own client, everything else by LangChain's ``invoke``. What is added here is
what they leave out.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from typing import Any

import httpx
import ollama
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import convert_to_messages
from langchain_ollama import ChatOllama
from langsmith import tracing_context
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random_exponential

from ragbench.errors import ConfigError
from ragbench.llm.cassette import Cassette, canonical
from ragbench.llm.context import Call, Transport, call_under_way, proxy_for
from ragbench.llm.failures import (
    CallError,
    failure,
    from_exception,
    printable,
    secret_strings,
    sounds_secret,
    without_secrets,
)
from ragbench.llm.models import OLLAMA_HOST, chat_model, full_name, split_address
from ragbench.llm.reply import Usage

log = logging.getLogger("ragbench.llm")
_ASK_S = 10.0  # for what is asked beside the prompts
TRACING_VARIABLE = "RAGBENCH_TRACING"  # set: LangSmith may trace what `ask` sends
LONGEST_PAUSE_S = 30.0  # between two tries
FINISHED = frozenset({"stop", "end_turn", "stop_sequence", "eos", "eos_token", "STOP", "load"})


@dataclass(slots=True)
class Received:
    """One whole reply; ``finish`` is "" where the server sent no end mark, a count None where it
    gives none.
    """

    text: str = ""
    thinking: str = ""
    finish: str = ""
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    prompt_seconds: float = 0.0
    output_seconds: float = 0.0
    form: str = ""

    def usage(self, seconds: float) -> Usage:
        """Return the tokens and the time of the call: the server's own time, where it says it."""
        seconds = self.prompt_seconds + self.output_seconds or seconds
        counted = self.prompt_tokens is not None and self.output_tokens is not None
        tokens = (self.prompt_tokens or 0, self.output_tokens or 0)
        return Usage(
            1, *tokens, int(not counted), self.prompt_seconds, self.output_seconds, seconds
        )


class Endpoint:
    """Any LangChain chat model, by its ``invoke``: its own client, options and time limits apply.

    ``options`` is all that can change a reply, apart from messages and schema: the call and the
    cassette's key are made of it. The rest is what one `ask` finds out about the server.
    """

    found: str | None = None  # the digest of the weights
    dead: CallError | None = None  # why it is not asked any more
    spoke = False  # whether the server has said anything
    answered = False  # whether its model has
    bounded = False  # whether num_predict is the step's, not one that the model names
    changes = False  # whether another model may come to stand behind the name in mid-run
    concurrency = 4  # calls under way at once, where the caller names no number
    most_concurrent: int | None = None
    version = ""  # of the server
    weights = ""  # number of parameters and quantisation

    def __init__(self, chat: Any) -> None:
        self.chat = chat
        self.provider = _type_of(chat)
        named = getattr(chat, "model_name", None) or getattr(chat, "model", None)
        self.name = named if isinstance(named, str) else type(chat).__name__
        self.host = ""
        self.num_ctx: int | None = getattr(chat, "num_ctx", None)
        self.num_predict = getattr(chat, "num_predict", None) or getattr(chat, "max_tokens", None)
        self.deadline_s = getattr(chat, "deadline_s", None)
        self.pinned_digest = getattr(chat, "digest", None)
        fields = {name: getattr(chat, name, None) for name in type(chat).model_fields}
        self.secrets = secret_strings(fields.items())
        self.options = {
            name: value
            for name, value in fields.items()
            if not _NO_OPTION.search(name) and _is_plain(value)
        }

    @property
    def model(self) -> str:
        """Provider and name, ``"ollama:llama3:8b"``."""
        return f"{self.provider}:{self.name}"

    def limit(self, num_predict: int) -> None:
        """Take over the step's bound, if the model can be told of one and names none."""

    def digest(self) -> str:
        """Return the digest of the model's weights: the one given with it, else the server's ("":
        it has none).
        """
        return self.served_digest() if self.pinned_digest is None else self.pinned_digest

    def served_digest(self) -> str:
        """Ask the server for the digest. Raises CallError."""
        return ""

    def check(self) -> None:
        """Raise CallError for a model that cannot chat, and warn of a window that the server
        lowers.
        """

    def loaded(self) -> None:
        """Take over the window that is in use, once a model has answered."""

    def call(self, messages: Sequence[dict], schema: dict | None, call: Call) -> Received:
        """Send one request and wait for its last byte. Raises CallError."""
        token = call_under_way.set(call)
        # LANGSMITH_TRACING of the environment would send every prompt out.
        traced = None if os.environ.get(TRACING_VARIABLE) else False
        try:
            with tracing_context(enabled=traced):
                return self.complete(messages, schema)
        except Exception as error:
            raise self.named(error, call) from None
        finally:
            call_under_way.reset(token)

    def complete(self, messages: Sequence[dict], schema: dict | None) -> Received:
        """Send one request; raises whatever the client raises."""
        chat = self.chat
        if schema is not None:
            with contextlib.suppress(NotImplementedError, TypeError, ValueError, AttributeError):
                chat = chat.with_structured_output(schema, include_raw=True)
        message = chat.invoke(convert_to_messages(messages))
        return _received(message["raw"] if isinstance(message, dict) else message)

    def fail(self, kind: str, detail: str, **more: Any) -> CallError:
        """Build a CallError that names this model and hides its secrets."""
        return failure(kind, detail, self.host, self.model, secrets=self.secrets, **more)

    def named(self, error: Exception, call: Call | None = None) -> CallError:
        """Return any exception as a CallError."""
        if isinstance(error, CallError):
            return error
        kind, said, status = from_exception(error)
        wait = None
        if call is not None:
            headers = getattr(getattr(error, "response", None), "headers", call.headers)
            wait = _retry_after(headers.get("retry-after"))
            if kind == "timeout":
                said = f"not finished after {call.deadline_s:g} s"
        if "CERTIFICATE_VERIFY_FAILED" in said:
            do = "set SSL_CERT_FILE to a file with the server's certificate"
            return self.fail("down", said, do=do)
        if wait is not None and kind == "busy":
            said += f" (Retry-After: {wait:g} s)"
        return self.fail(kind, said, status=status, retry_after=wait)


def _received(message: Any) -> Received:
    """Take in a message of LangChain's."""
    meta = message.response_metadata or {}
    counts = message.usage_metadata or {}
    text = message.content if isinstance(message.content, str) else str(message.text)
    if not text and getattr(message, "tool_calls", None):
        text = json.dumps(message.tool_calls[0]["args"], ensure_ascii=False)
    reasons = ("finish_reason", "stop_reason", "done_reason")
    finish = next((str(meta[name]) for name in reasons if meta.get(name)), "stop")
    thinking = str((message.additional_kwargs or {}).get("reasoning_content") or "")
    tokens = counts.get("input_tokens"), counts.get("output_tokens")
    return Received(text, thinking, finish, *tokens)


# Fields of ChatOllama, as /api/chat has them.
_SAMPLING = (
    "mirostat",
    "mirostat_eta",
    "mirostat_tau",
    "num_ctx",
    "num_gpu",
    "num_thread",
    "num_predict",
    "repeat_last_n",
    "repeat_penalty",
    "temperature",
    "seed",
    "stop",
    "tfs_z",
    "top_k",
    "top_p",
)
_BESIDE = {"think": "reasoning", "format": "format"}
_BESIDE |= {"logprobs": "logprobs", "top_logprobs": "top_logprobs"}


class OllamaEndpoint(Endpoint):
    """Ollama, by its own client; a ChatOllama says where it is and with which options."""

    changes = True
    concurrency = 1

    def __init__(self, chat: Any) -> None:
        super().__init__(chat)
        self.provider = "ollama"
        self.name = full_name(chat.model)
        about = self._connect(dict(chat.client_kwargs or {}) | dict(chat.sync_client_kwargs or {}))
        self.secrets = secret_strings([*vars(chat).items(), ("headers", about["headers"])])
        self.client = ollama.Client(self.host, **about)
        self._web = httpx.Client(base_url=self.host, **about)
        self.options = {"options": _set_fields(chat, {name: name for name in _SAMPLING})}
        self.options |= _set_fields(chat, _BESIDE)
        self._sampling = dict(self.options["options"])  # as sent
        self._counts_cached = False

    def _connect(self, settings: dict[str, Any]) -> dict[str, Any]:
        """Return the settings of a client of our own: no connection is shared with the model's."""
        address = self.chat.base_url or os.environ.get("OLLAMA_HOST") or OLLAMA_HOST
        self.host, headers = split_address(address, 11434)
        wire = settings.pop("transport", None)
        verify = settings.pop("verify", True)
        if not isinstance(wire, Transport):
            wire = Transport(wire, verify=verify, proxy=proxy_for(self.host))
        headers |= settings.pop("headers", None) or {}
        return settings | {"transport": wire, "headers": headers, "timeout": _ASK_S}

    def limit(self, num_predict: int) -> None:
        if self.num_predict is None:
            self.bounded = True
            self.num_predict = num_predict
            self.options["options"]["num_predict"] = num_predict
            self._sampling["num_predict"] = num_predict

    def served_digest(self) -> str:
        try:
            response = self._web.get("/api/tags")
            if response.status_code in (404, 405):
                return ""  # something in front of the server lets only the chat through
            if response.status_code >= 300:
                raise ollama.ResponseError(response.text, response.status_code)
            entries = {full_name(entry["model"]): entry for entry in response.json()["models"]}
        except Exception as error:
            raise self.named(error) from None
        if self.name not in entries:
            served = ", ".join(sorted(entries)) or "none"
            raise self.fail("no_model", f"the server does not have this model; it has: {served}")
        entry = entries[self.name]
        if entry.get("remote_host") and not getattr(self.chat, "cloud", False):
            do = "pass cloud=True if that is meant"
            what = (
                f"it is a name for a model at {entry['remote_host']}, which would get the prompts"
            )
            raise self.fail("no_model", what, do=do)
        details = entry.get("details") or {}
        facts = (details.get("parameter_size"), details.get("quantization_level"))
        self.weights = printable(", ".join(filter(None, facts)))
        return printable((entry.get("digest") or "").removeprefix("sha256:"))

    def check(self) -> None:
        try:
            shown = self.client.show(self.name)
            self.version = str(self._web.get("/api/version").json().get("version", ""))
            capabilities = shown.capabilities or ["completion"]
        except Exception:
            return  # the prompts tell
        numbers = [int(number) for number in re.findall(r"\d+", self.version)[:2]]
        self._counts_cached = numbers >= [0, 30]
        if "completion" not in capabilities:
            what = f"it does not support chat, only {', '.join(capabilities)}"
            raise self.fail("no_model", what, do="name a model that writes, see `ollama list`")
        own = re.search(r"^num_predict\s+(-?\d+)", shown.parameters or "", re.MULTILINE)
        if self.bounded and own:
            # The key keeps the step's bound: with the digest, which stands for the Modelfile, it
            # says as much.
            self._sampling.pop("num_predict", None)
            self.num_predict = int(own[1])

    def loaded(self) -> None:
        with contextlib.suppress(Exception):
            running = {full_name(model.model or ""): model for model in self.client.ps().models}
            in_use = running[self.name].context_length
            if in_use and self.num_ctx and self.num_ctx > in_use:
                what = "%s: num_ctx=%d, but Ollama lowers it to %d"
                log.warning(what, self.model, self.num_ctx, in_use)
            self.num_ctx = in_use or self.num_ctx

    def complete(self, messages: Sequence[dict], schema: dict | None) -> Received:
        settings = {**self.options, "options": self._sampling, "keep_alive": self.chat.keep_alive}
        if schema is not None:
            # A label has no room for thinking; models that cannot think take it too.
            settings = {"think": False, **settings, "format": schema}
        got = Received()
        said = [{**message, "content": _text(message["content"])} for message in messages]
        with closing(self.client.chat(self.chat.model, said, stream=True, **settings)) as parts:
            for part in parts:
                got.text += part.message.content or ""
                got.thinking += part.message.thinking or ""
                if part.done:  # what a server sends after it is no part of the reply
                    return self._with_counts(got, part)
        return got

    def _with_counts(self, got: Received, part: Any) -> Received:
        got.finish = part.done_reason or "stop"
        got.output_tokens = part.eval_count
        # From 0.30 on it counts what its cache did not have: no number is better than a wrong one.
        got.prompt_tokens = None if self._counts_cached else part.prompt_eval_count
        got.prompt_seconds = (part.prompt_eval_duration or 0) / 1e9
        got.output_seconds = (part.eval_duration or 0) / 1e9
        return got

    def pull(self) -> Any:
        """Let the server fetch the model; yields what it says meanwhile."""
        return self.client.pull(self.name, stream=True)


def _text(content: Any) -> Any:
    """Join the text blocks of a message."""
    return "".join(block["text"] for block in content) if isinstance(content, list) else content


def _set_fields(chat: Any, names: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of a model that are set, under the names of the protocol."""
    values = {name: getattr(chat, own, None) for name, own in names.items()}
    return {name: value for name, value in values.items() if value is not None}


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


class _OpenAIEndpoint(Endpoint):
    """The OpenAI protocol, as vLLM, llama.cpp and others speak it."""

    changes = True

    def __init__(self, chat: Any) -> None:
        super().__init__(chat)
        self.provider = "openai"
        self.host = str(chat.root_client.base_url).rstrip("/")
        names = {name: name for name in _OPENAI} | {"max_completion_tokens": "max_tokens"}
        self.options = without_secrets(_set_fields(chat, names) | (chat.model_kwargs or {}))
        if self.num_ctx:
            self.options["num_ctx"] = self.num_ctx
        # Servers differ in how they take a schema; what answers is kept.
        self.forms = ["json_schema", "json_object"]

    def limit(self, num_predict: int) -> None:
        if self.num_predict is None:
            self.bounded = True
            self.num_predict = num_predict
            self.options["max_completion_tokens"] = num_predict
            self.chat = self.chat.model_copy(update={"max_tokens": num_predict})

    def served_digest(self) -> str:
        """Return a hash of what the server tells of the model it has; "" where it tells nothing."""
        try:
            models = self.chat.root_client.with_options(timeout=_ASK_S).models.list()
            listed = [model.model_dump(warnings=False) for model in models]
        except Exception as error:
            if (named := self.named(error)).kind in ("down", "busy", "timeout", "auth"):
                raise named from None
            return ""
        entries = {entry["id"]: entry for entry in listed}
        only = listed[0] if len(listed) == 1 else {}
        return _hash_of(entries.get(self.name, only))

    def complete(self, messages: Sequence[dict], schema: dict | None) -> Received:
        said = convert_to_messages(messages)
        if schema is None:
            return _received(self.chat.invoke(said))
        for form in tuple(self.forms):
            extra = {**(self.chat.extra_body or {}), "response_format": _in_form(schema, form)}
            try:
                got = _received(self.chat.bind(extra_body=extra).invoke(said))
            except Exception as error:
                if not self._refuses(form, error):
                    raise
                log.warning("%s takes no response_format %r", self.model, form)
            else:
                got.form = form
                return got
        raise AssertionError("the last form raises or returns")

    def _refuses(self, form: str, error: Exception) -> bool:
        """Whether a server does not know this form of a schema; then it is not asked so again."""
        if form == self.forms[-1] or self.named(error).status not in (400, 422, 500):
            return False
        if not re.search("response_format|schema", str(error)):
            return False
        if form in self.forms:  # or a call beside this one was first
            self.forms.remove(form)
        return True


class _LocalEndpoint(_OpenAIEndpoint):
    """A model of ``local``: the file's sha256 is its digest."""

    changes = False
    concurrency = 1
    most_concurrent = 1

    def __init__(self, chat: Any) -> None:
        super().__init__(chat)
        self.provider = "gguf"

    def digest(self) -> str:
        return self.chat.server.file.checked(self.pinned_digest)


def endpoint_of(model: Any, num_predict: int | None = None) -> Endpoint:
    """Return the endpoint of a chat model, a name or a mapping for `chat_model`.

    ``num_predict``: the step's bound, for a model of `chat_model` that names none.
    """
    if isinstance(model, str | Mapping):
        model = chat_model(model)
    if not isinstance(model, BaseChatModel):
        expected = "a LangChain chat model, or a name such as 'ollama:llama3:8b'"
        do = "make one with ragbench.llm.chat_model(...)"
        raise ConfigError(f"model {model!r}", expected, do)
    name = type(model).__name__
    kind = Endpoint
    if isinstance(model, ChatOllama):
        kind = OllamaEndpoint
    elif getattr(model, "server", None) is not None:
        kind = _LocalEndpoint
    elif name in ("ChatOpenAI", "OpenAIChat"):  # AzureChatOpenAI and others build other addresses
        kind = _OpenAIEndpoint
    endpoint = kind(model)
    if num_predict is not None and name in ("OllamaChat", "OpenAIChat"):
        endpoint.limit(num_predict)
    return endpoint


def served_digest(
    endpoint: Endpoint, patience_s: float = 0.0, backoff_s: float = 0.5
) -> str | None:
    """Ask a server for the digest of a model's weights; None where it cannot be asked.

    Then the endpoint is ``dead``. ``patience_s``: for a server that still loads its model.
    """
    busy = retry_if_exception(lambda error: isinstance(error, CallError) and error.kind == "busy")
    pause = wait_random_exponential(backoff_s, max=LONGEST_PAUSE_S)
    patiently = Retrying(retry=busy, stop=stop_after_delay(patience_s), wait=pause, reraise=True)
    try:
        endpoint.found = patiently(endpoint.digest)
        endpoint.check()
        endpoint.spoke = True
    except CallError as error:
        endpoint.dead = error
    return endpoint.found


def model_name(model: Any) -> str:
    """Return the name of a model, or of an object that answers or grades; a name stays as it is."""
    if isinstance(model, Mapping):
        model = model.get("use", "")
    if isinstance(model, str):
        return model
    name = getattr(model, "name", None)  # of an object that answers or grades
    return name if isinstance(name, str) else endpoint_of(model).model


def _retry_after(value: str | None) -> float | None:
    """Read the seconds of a Retry-After header."""
    with contextlib.suppress(ValueError):
        return max(0.0, float(value or ""))
    return None


def _hash_of(entry: Mapping[str, Any]) -> str:
    """Hash what an entry of ``/v1/models`` says of the weights (vLLM and llama.cpp do)."""
    meta = entry["meta"] if isinstance(entry.get("meta"), dict) else {}
    sizes = ("size", "n_params", "n_vocab", "n_embd", "n_ctx_train")
    about = {name: entry.get(name) for name in ("root", "max_model_len")}
    about |= {name: meta.get(name) for name in sizes}
    facts = {name: v for name, v in about.items() if isinstance(v, int | float | str)}
    listing = canonical({"id": entry.get("id"), **facts})
    return f"told-{hashlib.sha256(listing.encode()).hexdigest()}" if facts else ""


def _in_form(schema: dict, form: str) -> dict[str, Any]:
    if form == "json_object":
        return {"type": "json_object", "schema": schema}
    name = re.sub(r"\W", "_", str(schema.get("title", "reply")))[:60]
    return {"type": "json_schema", "json_schema": {"name": name, "schema": schema}}


# Where a model is, how long to wait, and what to log: none of it changes a reply.
_NO_OPTION = re.compile(
    r"url|host|api_base|endpoint|proxy|timeout|retries|headers|client|cache|callback|verbose|^tags$|metadata|rate_limiter"
    r"|organization|disable_streaming|^name$|profile|output_version|deadline|api.?key|secret|password|credential"
    r"|cookie|auth|token$|^i$|^responses$|^messages$|^sleep$",
    re.IGNORECASE,
)


def _is_plain(value: Any) -> bool:
    if isinstance(value, Mapping):
        return not any(sounds_secret(str(name)) for name in value) and all(
            map(_is_plain, value.values())
        )
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return isinstance(value, bool | int | float | str)


def _type_of(chat: Any) -> str:
    with contextlib.suppress(Exception):
        return str(chat.asdict()["_type"])
    return type(chat).__name__


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """Provider, name, digest, options and window of a chat model; never its address or key.

    ``server`` and ``weights`` are its version, and the number of parameters with the quantisation,
    where the server was asked and says them.
    """

    provider: str
    model: str
    digest: str | None
    options: dict[str, Any]
    num_ctx: int | None
    server: str = ""
    weights: str = ""
    secrets: tuple[str, ...] = field(default=(), repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Return what a manifest says."""
        return {name: value for name, value in asdict(self).items() if name != "secrets"}

    def row(self) -> dict[str, Any]:
        """Return what a row says."""
        options = {**self.options, **self.options.get("options", {})}
        return {
            "model": f"{self.provider}:{self.model}",
            "digest": "not told" if self.digest == "" else self.digest,
            "num_ctx": self.num_ctx,
            "temperature": options.get("temperature"),
            "seed": options.get("seed"),
        }


def model_facts(
    model: Any,
    cassette: Cassette | None = None,
    *,
    ask_server: bool = True,
    num_predict: int | None = None,
) -> ModelFacts:
    """Return who a chat model is (a name or an object).

    The server is not asked without ``ask_server``, and where the cassette is in replay mode; then
    the digest is the one on the cassette. ``num_predict``: as in `ragbench.llm.ask`. ModelError
    when no server answers and nothing says which weights are meant.
    """
    endpoint = endpoint_of(model, num_predict)
    digest = endpoint.pinned_digest
    if ask_server and not (cassette is not None and cassette.mode == "replay"):
        found = served_digest(endpoint)  # "": a server that says nothing of its weights
        digest = digest if found is None else found
    if endpoint.dead is not None and endpoint.dead.kind != "down":
        raise endpoint.dead
    if digest is None and cassette is not None and cassette.mode != "off":
        digest = cassette.choose_digest(endpoint.provider, endpoint.name, None)
    if digest is None and endpoint.dead is not None:
        raise endpoint.dead
    server = f"Ollama {endpoint.version}" if endpoint.version else ""
    about = (endpoint.provider, endpoint.name, digest, endpoint.options, endpoint.num_ctx)
    return ModelFacts(*about, server, endpoint.weights, endpoint.secrets)


def window(model: Any) -> int | None:
    """Return the window that a model works with: the server's own, where it says and is loaded."""
    endpoint = endpoint_of(model)
    endpoint.loaded()
    return endpoint.num_ctx
