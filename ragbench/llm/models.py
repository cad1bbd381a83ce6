"""Making chat models from a name: ``chat_model("ollama:llama3:8b")``."""

from __future__ import annotations

import base64
import functools
import os
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

import httpx
from langchain_ollama import ChatOllama
from pydantic import Field

from ragbench.errors import ConfigError, check_known, unknown
from ragbench.llm import local
from ragbench.llm.context import AsyncTransport, Transport, proxy_for
from ragbench.llm.local import SMOLLM2, SMOLLM2_SHA256

DEADLINE_S = 600.0
NUM_CTX = 8192
OLLAMA_HOST = "http://localhost:11434"
# Most tokens of a reply, by what a step asks for, where the model names no bound of its own.
BOUNDS = {"label": 64, "text": 512, "document": 2048}
NAMES = ("ollama:NAME", "openai:NAME", "gguf:FILE", "smollm2")
_PROVIDERS = ("ollama", "openai", "gguf")
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

    deadline_s: float | None = None
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
    digest : name of the exact weights for providers that have none of their own. For a GGUF file:
        the sha256 that it must have.
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
    settings = {"temperature": temperature, "seed": seed, "num_ctx": num_ctx}
    settings |= {"deadline_s": deadline_s, "digest": digest}
    if isinstance(spec, Mapping):
        given = {**settings, "host": host, "num_predict": num_predict, "api_key": api_key}
        given |= {"cloud": cloud, **options, **spec}
        return chat_model(str(given.pop("use", "")), **given)
    provider, _, name = spec.partition(":")
    if spec == SMOLLM2:
        provider = "gguf"
        name = SMOLLM2
        settings["digest"] = digest or SMOLLM2_SHA256
    if provider not in _PROVIDERS:
        if api_key is not None:
            options["api_key"] = api_key
        return _other(spec, provider, name, temperature, options)
    _check(provider, name, settings, options)
    if num_ctx is None and provider != "openai":
        settings["num_ctx"] = NUM_CTX
    settings |= options
    if provider == "ollama":
        settings |= {"num_predict": num_predict, "cloud": cloud}
        return _ollama(name, host, api_key, settings)
    settings["max_tokens"] = num_predict
    if provider == "gguf":
        return _local(name, host, settings)
    return _openai(name, host, api_key, settings)


def _check(provider: str, name: str, settings: dict, options: dict) -> None:
    if not name:
        do = "say which model, for example 'ollama:llama3:8b'"
        raise ConfigError(f"model '{provider}:'", " or ".join(NAMES), do)
    for limit in ("deadline_s", "num_ctx"):
        value = settings[limit]
        if value is not None and not value > 0:
            do = "leave it out for the default"
            raise ConfigError(f"{limit}={value}", "a number above 0", do)
    if "base_url" in options:
        raise ConfigError("base_url=...", "host=...", "write host= for the address of a server")
    chat = OllamaChat if provider == "ollama" else _openai_chat()
    aliases = {field.alias for field in chat.model_fields.values() if field.alias}
    check_known(f"option of {chat.__bases__[-1].__name__}", options, {*chat.model_fields, *aliases})


def _ollama(name: str, host: str | None, api_key: str | None, settings: dict) -> Any:
    if name.endswith((":cloud", "-cloud")) and not settings["cloud"]:
        what = f"ollama:{name} sends prompts to ollama.com"
        raise ConfigError(what, "a model on this machine", "pass cloud=True if that is meant")
    base_url, headers = split_address(host or os.environ.get("OLLAMA_HOST") or OLLAMA_HOST, 11434)
    key = api_key or os.environ.get("OLLAMA_API_KEY")
    if key:
        headers["authorization"] = f"Bearer {key}"
    client = dict(settings.pop("client_kwargs", None) or {})
    client["headers"] = headers | dict(client.get("headers") or {})
    client.setdefault("timeout", httpx.Timeout(settings["deadline_s"], connect=10.0))
    settings["client_kwargs"] = client
    if "transport" not in client:
        wire = {"verify": client.get("verify", True), "proxy": proxy_for(base_url)}
        settings.setdefault("sync_client_kwargs", {"transport": Transport(**wire)})
        settings.setdefault("async_client_kwargs", {"transport": AsyncTransport(**wire)})
    return OllamaChat(model=name, base_url=base_url, **settings)


def _local(name: str, host: str | None, settings: dict) -> Any:
    file = local.smollm2() if name == SMOLLM2 else local.gguf(name)
    if host is not None:
        do = "leave host out; a model on another machine is 'openai:NAME' or 'ollama:NAME'"
        raise ConfigError(f"host={host!r} for gguf:{file.name}", "a model on this machine", do)
    server = local.server_for(file, settings["num_ctx"])
    about = {
        "trust_env": False,
        "transport": Transport(),
        "event_hooks": {"request": [server.reach]},
    }
    settings["http_client"] = httpx.Client(**about)
    about = {"trust_env": False, "event_hooks": {"request": [server.reach_async]}}
    settings["http_async_client"] = httpx.AsyncClient(**about, transport=AsyncTransport())
    address = f"http://{server.label}/v1"
    about = {"base_url": address, "api_key": server.key, "server": server, "max_retries": 0}
    return _openai_chat()(model=file.name, **about, **settings)


def _openai(name: str, host: str | None, api_key: str | None, settings: dict) -> Any:
    url = host or os.environ.get("OPENAI_BASE_URL") or os.environ.get("OPENAI_API_BASE")
    base_url = None
    if url:
        # A server of one's own: bounded replies, and a password of the address in place of a key.
        base_url, headers = split_address(url, 80, "/v1")
        wire = {"proxy": proxy_for(base_url)}
        settings.setdefault("http_client", httpx.Client(transport=Transport(**wire)))
        asynchronous = httpx.AsyncClient(transport=AsyncTransport(**wire))
        settings.setdefault("http_async_client", asynchronous)
        settings["default_headers"] = headers | dict(settings.get("default_headers") or {})
    # Servers of one's own often need no key, but the client insists on one.
    key = api_key or os.environ.get("OPENAI_API_KEY") or ("not-needed" if base_url else None)
    if key is None:
        do = "set it, or pass host=... for a server of your own"
        raise ConfigError("no API key for openai:", "OPENAI_API_KEY", do)
    return _openai_chat()(model=name, base_url=base_url, api_key=key, max_retries=0, **settings)


@functools.cache
def _openai_chat() -> Any:
    try:
        from langchain_openai import ChatOpenAI
    except ModuleNotFoundError as error:
        got = f"the package {error.name} is not installed"
        expected = "the extra that openai: and gguf: models need"
        raise ConfigError(got, expected, "pip install 'ragbench-lab[openai]'") from None

    class OpenAIChat(ChatOpenAI):
        """``langchain_openai.ChatOpenAI`` with what `ragbench.llm.ask` has to know beside it."""

        num_ctx: int | None = None
        deadline_s: float | None = None
        digest: str | None = None
        default_headers: Mapping[str, str] | None = Field(default=None, repr=False)
        extra_body: Mapping[str, Any] | None = Field(default=None, repr=False)
        default_query: Mapping[str, object] | None = Field(default=None, repr=False)
        # of ``ragbench.llm.local``, where the model runs on this machine
        server: Any = Field(default=None, repr=False, exclude=True)

    return OpenAIChat


def _other(spec: str, provider: str, name: str, temperature: float, options: dict) -> Any:
    from langchain.chat_models import init_chat_model

    if get_close_matches(provider.casefold(), [*_PROVIDERS, SMOLLM2], cutoff=0.9):
        raise unknown("model provider", provider, NAMES)
    if name:
        about = {"model_provider": provider, "temperature": temperature}
        try:
            return init_chat_model(name, **about, **options)
        except ImportError as error:
            do = "install it with pip"
            raise ConfigError(str(error), f"the package of {provider}", do) from None
        except ValueError:
            pass  # LangChain does not know it either
    do = (
        f"write 'ollama:{spec}' for a model of Ollama, 'openai:{spec}' for a server with "
        "OpenAI's interface"
    )
    expected = "one of " + ", ".join(NAMES) + ", or a provider of LangChain's init_chat_model"
    raise ConfigError(f"unknown model provider {provider!r}", expected, do)


def full_name(name: str) -> str:
    """Return the name that Ollama lists for one.

    >>> full_name("registry.ollama.ai/library/SmolLM2"), full_name("host:5000/bge-m3")
    ('smollm2:latest', 'host:5000/bge-m3:latest')
    """
    short = name.casefold().removeprefix("registry.ollama.ai/").removeprefix("library/")
    return short if ":" in short.rsplit("/", 1)[-1] else f"{short}:latest"


def split_address(host: str, port: int, path: str = "") -> tuple[str, dict[str, str]]:
    """Complete an address such as "gpu1", ":11434" or "http://user:pw@gpu1:11434/".

    Returns it, and the header for its user and password (or none). ``port`` and ``path`` are used
    where none is given (the port only without a scheme).
    """
    given_scheme = "//" in host
    parts = urlsplit(host if given_scheme else f"http://{_bracketed(host)}")
    try:
        name = parts.hostname
        number = parts.port or (None if given_scheme else port)
    except ValueError:
        name = None
    if not name or parts.scheme not in ("http", "https"):
        shown = host.rsplit("@", 1)[-1]
        expected = "an address such as http://localhost:11434"
        raise ConfigError(f"host={shown!r}", expected, "check the spelling")
    if name in ("0.0.0.0", "::"):
        name = "127.0.0.1"  # what a server binds to is not where a client can reach it
    netloc = f"[{name}]" if ":" in name else name
    if number is not None:
        netloc += f":{number}"
    headers = {}
    if user := parts.netloc.rpartition("@")[0]:
        pair = base64.b64encode(unquote(user).encode()).decode()
        headers["authorization"] = f"Basic {pair}"
    return urlunsplit((parts.scheme, netloc, parts.path.rstrip("/") or path, "", "")), headers


def _bracketed(host: str) -> str:
    """Write an address without scheme as a URL has it: ``::1`` in brackets, ``:11434`` here."""
    if host.startswith(":") and host[1:].isdecimal():
        return f"127.0.0.1{host}"
    return f"[{host}]" if host.count(":") > 1 and "[" not in host and "@" not in host else host
