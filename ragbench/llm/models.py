"""Making chat models from a name: ``chat_model("ollama:llama3:8b")``."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
from langchain_ollama import ChatOllama
from pydantic import Field, ValidationError

from ragbench.errors import ConfigError, check_known
from ragbench.llm.failures import redact, sounds_secret
from ragbench.llm.local import LABEL, SMOLLM2, SMOLLM2_SHA256, LocalServer
from ragbench.llm.wire import OllamaServer, Transport

DEADLINE_S = 600.0
NUM_CTX = 8192
# Most tokens of a reply, by what a step asks for, where the model names no bound of its own.
BOUNDS = {"label": 64, "text": 512, "document": 2048}
NAMES = ("ollama:NAME", "openai:NAME", "gguf:FILE", "smollm2")
TWO_WAYS = (
    "name one: 'ollama:llama3:8b' (docs/models.md says how to install Ollama), or "
    "'smollm2', the small model in the box"
)


def not_named(role: str, where: str = "") -> ConfigError:
    """Build the error where no model is named for a role, such as "judge", with the two ways to
    one.
    """
    return ConfigError(f"no {role} is named", f"a chat model{where}", TWO_WAYS)


class OllamaChat(ChatOllama):
    """``langchain_ollama.ChatOllama`` with what `ragbench.llm.ask` has to know beside it."""

    deadline_s: float | None = Field(default=None, gt=0)
    num_ctx: int | None = Field(default=None, gt=0)
    digest: str | None = None
    cloud: bool = False
    # with the header that holds the key
    client_kwargs: dict | None = Field(default_factory=dict, repr=False)


def chat_model(
    spec: str | Mapping[str, Any],
    host: str | None = None,
    temperature: float = 0,
    seed: int | None = 0,
    num_ctx: int | None = None,
    num_predict: int | None = None,
    *,
    api_key: str | None = None,
    deadline_s: float = DEADLINE_S,
    digest: str | None = None,
    cloud: bool = False,
    **options: Any,
) -> Any:
    """Make a LangChain chat model whose options and time limit are all explicit.

    Parameters
    ----------
    spec : ``"ollama:NAME"`` (a model pulled into Ollama); ``"openai:NAME"`` (OpenAI, or with
        ``host`` any server that speaks its protocol: vLLM, llama.cpp, LM Studio ...; needs the
        extra ``ragbench-lab[openai]``); ``"gguf:FILE"`` (a model file, run here by llama.cpp);
        ``"smollm2"`` (the GGUF file that `make setup` brings: 135 million parameters, writes
        answers, no judge); any other provider that LangChain's ``init_chat_model`` knows, such as
        ``"anthropic:NAME"``, if its package is installed. Or a mapping as in an experiment file:
        ``{"use": "ollama:llama3:8b", "num_predict": 200}``.
    host : address of the server. Default: OLLAMA_HOST or http://localhost:11434; OPENAI_BASE_URL
        or OpenAI itself.
    num_ctx : context window in tokens, prompt and reply together; Ollama and llama.cpp are told to
        use it (default 8192). An OpenAI-compatible server has its own; give its size here to have
        the counts compared with it.
    num_predict : most tokens of a reply. Default: a Modelfile's own, else what fits the step
        (`BOUNDS`): one grade or verdict 64, an answer or a list of claims 512, a document 2,048.
    api_key : default OLLAMA_API_KEY or OPENAI_API_KEY; never shown or stored.
    deadline_s : seconds that `ask` waits for the first byte of a reply, and from there to its last.
    digest : the exact weights. For a GGUF file the sha256 that it must have; for Ollama the whole
        digest that the server must have, where it tells one; for other servers a name of your own.
    cloud : True lets Ollama pass the prompts of a cloud model (``x:cloud``, or a local name for
        one) on to its server.
    options : any further option of ``ChatOllama`` or ``ChatOpenAI`` (``top_p``, ``stop``,
        ``reasoning`` ...).

    Raises ConfigError for an unknown provider or option, and for a limit that cannot be.

    Examples
    --------
    >>> model = chat_model("ollama:llama3:8b", num_ctx=4096)
    >>> model.temperature, model.seed, model.num_ctx, model.deadline_s
    (0.0, 0, 4096, 600.0)
    """
    settings = {
        "temperature": temperature,
        "seed": seed,
        "num_ctx": num_ctx,
        "num_predict": num_predict,
        "deadline_s": deadline_s,
        "digest": digest,
        "cloud": cloud,
    }
    if isinstance(spec, Mapping):
        named = {"host": host, "api_key": api_key, **settings, **options, **spec}
        return chat_model(str(named.pop("use", "")), **named)
    if spec == SMOLLM2:
        spec = f"gguf:{SMOLLM2}"
        settings["digest"] = digest or SMOLLM2_SHA256
    provider, _, name = spec.partition(":")
    make = {"ollama": _ollama, "openai": _openai, "gguf": _local}.get(provider)
    if make is None:
        return _other(spec, temperature, api_key, options)
    if not name:
        raise ConfigError(
            f"model '{provider}:'",
            " or ".join(NAMES),
            "say which model, for example 'ollama:llama3:8b'",
        )
    if num_ctx is None and provider != "openai":
        settings["num_ctx"] = NUM_CTX
    return make(name, options.pop("base_url", host), api_key, settings, options)


def _ollama(name: str, host: str | None, api_key: str | None, settings: dict, options: dict) -> Any:
    if name.endswith((":cloud", "-cloud")) and not settings["cloud"]:
        raise ConfigError(
            f"ollama:{name} sends prompts to ollama.com",
            "a model on this machine",
            "pass cloud=True if that is meant",
        )
    of_client = options.pop("client_kwargs", None)
    timeout_s = settings["deadline_s"]
    server = OllamaServer(host, timeout_s=timeout_s, settings=of_client, api_key=api_key)
    settings |= {"base_url": server.address, "client_kwargs": server.settings}
    return _checked(OllamaChat, {"model": name, **settings}, options)


def _checked(kind: Any, settings: dict, options: dict) -> Any:
    """Make a model of a class; ConfigError for an option that it lacks, or a value it cannot be."""
    aliases = {field.alias for field in kind.model_fields.values() if field.alias}
    check_known(f"option of {kind.__bases__[-1].__name__}", options, {*kind.model_fields, *aliases})
    try:
        return kind(**settings | options)
    except ValidationError as error:
        wrong = error.errors(include_url=False)[0]
        place = [str(part) for part in wrong["loc"]]
        shown = ".".join(place) or f"the options of {kind.__name__}"
        if place and not any(map(sounds_secret, place)):
            shown = redact(f"{shown}={wrong['input']!r:.60}")
        raise ConfigError(shown, redact(wrong["msg"]), "correct it, or leave it out") from None


def _local(name: str, host: str | None, _: str | None, settings: dict, options: dict) -> Any:
    if host is not None:
        options["host"] = host  # which is refused
    file = name if name == SMOLLM2 else Path(name).expanduser().absolute()
    server = LocalServer.shared(file, settings["num_ctx"])
    settings |= {"model": server.name, "api_key": server.key, "server": server}
    settings |= {"base_url": f"http://{LABEL}/v1", "wire": Transport(port=server.port)}
    return _openai_chat(settings, options, extra="local")


def _openai(name: str, host: str | None, api_key: str | None, settings: dict, options: dict) -> Any:
    api_key = api_key or os.environ.get("OPENAI_API_KEY")
    host = host or os.environ.get("OPENAI_BASE_URL")
    if host:
        settings["base_url"] = Transport.address(host, 80, "/v1")
        settings["wire"] = Transport()
        # Servers of one's own often need no key, but the client insists on one.
        api_key = api_key or "not-needed"
    if api_key is None:
        raise ConfigError(
            "no API key for openai:",
            "OPENAI_API_KEY",
            "set it, or pass host=... for a server of your own",
        )
    return _openai_chat({"model": name, "api_key": api_key, **settings}, options)


def _openai_chat(settings: dict, options: dict, extra: str = "openai") -> Any:
    if isinstance(options.get("reasoning"), bool):
        raise ConfigError(
            f"reasoning={options['reasoning']} for an openai: model",
            "reasoning_effort, a text",
            "pass reasoning_effort='none' ('minimal', 'low') to have it think less",
        )
    settings["max_tokens"] = settings.pop("num_predict")
    del settings["cloud"]
    wire = settings.get("wire")
    if wire is not None:
        options.setdefault("http_client", httpx.Client(transport=wire, trust_env=False))
        options.setdefault("http_async_client", httpx.AsyncClient(transport=wire, trust_env=False))
    return _checked(_openai_class(extra), {**settings, "max_retries": 0}, options)


@functools.cache
def _openai_class(extra: str) -> Any:
    try:
        from langchain_openai import ChatOpenAI
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"the package {error.name} is not installed",
            f"the extra {extra!r}, which this model needs",
            f"pip install 'ragbench-lab[{extra}]'",
        ) from None

    class OpenAIChat(ChatOpenAI):
        """``langchain_openai.ChatOpenAI`` with what `ragbench.llm.ask` has to know beside it."""

        num_ctx: int | None = Field(default=None, gt=0)
        deadline_s: float | None = Field(default=None, gt=0)
        digest: str | None = None
        # of ``ragbench.llm.local``, where the model runs on this machine
        server: Any = Field(default=None, exclude=True)
        wire: Any = Field(default=None, exclude=True)

        def __repr__(self) -> str:  # headers, bodies and queries may hold keys
            return f"OpenAIChat({self.model_name!r})"

        __str__ = __repr__

    return OpenAIChat


def _other(spec: str, temperature: float, api_key: str | None, options: dict) -> Any:
    from langchain.chat_models import init_chat_model

    provider, _, name = spec.partition(":")
    if api_key is not None:
        options = {"api_key": api_key, **options}
    try:
        if name:
            return init_chat_model(
                name, model_provider=provider, temperature=temperature, **options
            )
    except ImportError as error:
        raise ConfigError(str(error), f"the package of {provider}", "install it with pip") from None
    except ValueError:
        pass  # LangChain does not know it either
    error = ConfigError.unknown("model provider", provider, NAMES)
    expected = f"{error.expected}, or a provider of LangChain's init_chat_model"
    do = f"{error.do}, or write 'ollama:{spec}' for Ollama, 'openai:{spec}' for another server"
    raise ConfigError(error.got, expected, do)
