"""Making chat models from a name: ``chat_model("ollama:llama3:8b")``."""

from __future__ import annotations

import os
from difflib import get_close_matches
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from ragbench.errors import ConfigError, check_known, unknown
from ragbench.llm import local
from ragbench.llm.local import SMOLLM2, SMOLLM2_SHA256

_WITHOUT_A_MODEL = ("embedded", "extractive")  # names that labels, judges and readers go by beside those of models
DEADLINE_S = 600.0
NUM_CTX = 8192
NAMES = ("ollama:NAME", "openai:NAME", "gguf:FILE", "smollm2")


def chat_model(
    spec: str,
    host: str | None = None,
    temperature: float = 0,
    seed: int | None = 0,
    num_ctx: int | None = None,
    num_predict: int | None = 2048,
    *,
    api_key: str | None = None,
    deadline_s: float = DEADLINE_S,
    price: tuple[float, float] | None = None,
    digest: str | None = None,
    **options: Any,
) -> Any:
    """Make a LangChain chat model whose options and time limit are all explicit.

    ConfigError for an unknown provider or a limit that cannot be.

    ``invoke``, ``ainvoke`` and ``batch`` obey the same deadline and raise the same typed errors as ``ask``.

    Parameters
    ----------
    spec : ``"ollama:NAME"`` (a model pulled into Ollama); ``"openai:NAME"`` (OpenAI, or with ``host`` any server that
        speaks its protocol: vLLM, llama.cpp, LM Studio ...; needs the extra ``ragbench[openai]``); ``"gguf:FILE"`` (a
        model file, run here by llama.cpp); ``"smollm2"`` (the GGUF file that `make setup` brings: 135 million
        parameters, writes answers, no judge).
    host : address of the server. Default: OLLAMA_HOST or http://localhost:11434; OPENAI_BASE_URL or OpenAI itself.
        For a GGUF file the number of its server on this machine: a list of models with "1" and "2" uses two cores.
    num_ctx : context window in tokens, prompt and reply together; Ollama and llama.cpp are told to use it (default
        8192). An OpenAI-compatible server has its own; give its size here to have every prompt checked against it.
    num_predict : most tokens of a reply.
    api_key : default OLLAMA_API_KEY or OPENAI_API_KEY; never shown or stored.
    deadline_s : seconds for one whole call, from the first byte sent to the last byte received.
    price : money per million (prompt tokens, output tokens), where known.
    digest : name of the exact weights for providers that have none of their own. For a GGUF file: the sha256 that it
        must have.
    options : any further option of ``ChatOllama`` or ``ChatOpenAI`` (``top_p``, ``stop``, ``reasoning`` ...).

    Examples
    --------
    >>> model = chat_model("ollama:llama3:8b", num_ctx=4096)
    >>> model.temperature, model.seed, model.num_ctx, model.deadline_s
    (0.0, 0, 4096, 600.0)
    """
    provider, _, name = spec.partition(":")
    makers = {"ollama": _ollama, "openai": _openai, "gguf": _local}
    if spec == SMOLLM2:
        provider, name, digest = "gguf", SMOLLM2, digest or SMOLLM2_SHA256
    if provider not in makers:
        if get_close_matches(provider.casefold(), [*makers, SMOLLM2, *_WITHOUT_A_MODEL], cutoff=0.9):
            raise unknown("model provider", provider, [*NAMES, *_WITHOUT_A_MODEL])
        do = f"write 'ollama:{spec}' for a model of Ollama, 'openai:{spec}' for a server with OpenAI's interface"
        raise ConfigError(f"unknown model provider {provider!r}", "one of " + ", ".join(NAMES), do)
    if not name:
        raise ConfigError(f"model {spec!r}", " or ".join(NAMES), "say which model, for example 'ollama:llama3:8b'")
    for limit, value in (("deadline_s", deadline_s), ("num_ctx", num_ctx)):
        if value is not None and not value > 0:
            raise ConfigError(f"{limit}={value}", "a number above 0", "leave it out for the default")
    if num_ctx is None and provider != "openai":
        num_ctx = NUM_CTX
    settings = {"temperature": temperature, "seed": seed, "deadline_s": deadline_s, "price": price, "digest": digest}
    return makers[provider](name, host, num_ctx, num_predict, api_key, {**options, **settings})


def _ollama(name: str, host: str | None, num_ctx: Any, num_predict: Any, api_key: Any, settings: dict) -> Any:
    from ragbench.llm.ollama import OllamaChat

    _check(OllamaChat, settings)
    base_url, user = address(host or os.environ.get("OLLAMA_HOST") or "http://localhost:11434", 11434)
    key = api_key or os.environ.get("OLLAMA_API_KEY") or None
    return OllamaChat(
        model=name, base_url=base_url, num_ctx=num_ctx, num_predict=num_predict, api_key=key, userinfo=user, **settings
    )


def _local(name: str, host: str | None, num_ctx: Any, num_predict: Any, api_key: Any, settings: dict) -> Any:
    openai, httpx = _openai_module()
    server = local.server_for(local.smollm2() if name == SMOLLM2 else local.gguf(name), num_ctx, host)
    hooks = {"http_client": (httpx.Client, server.reach), "http_async_client": (httpx.AsyncClient, server.reach_async)}
    for field, (client, reach) in hooks.items():
        settings[field] = client(trust_env=False, event_hooks={"request": [reach]})
    url = f"http://{server.label}/v1"
    model = _openai_chat(openai.OpenAIChat, server.file.name, url, server.key, num_ctx, num_predict, settings)
    model._server = server
    return model


def _openai(name: str, host: str | None, num_ctx: Any, num_predict: Any, api_key: Any, settings: dict) -> Any:
    openai, httpx = _openai_module()
    url = host or os.environ.get("OPENAI_BASE_URL") or os.environ.get("OPENAI_API_BASE")
    base_url, user = address(url, 80, "/v1") if url else (None, None)
    if user:
        # ``stream`` and calls with tools go the client's own way, which would send the key.
        login = tuple(unquote(part) for part in user.partition(":")[::2])
        clients = {"http_client": httpx.Client(auth=login), "http_async_client": httpx.AsyncClient(auth=login)}
        settings = {"userinfo": user} | clients | settings
    # Servers of one's own often need no key, but the client insists on one.
    key = api_key or os.environ.get("OPENAI_API_KEY") or ("not-needed" if base_url else None)
    if key is None:
        raise ConfigError(
            "no API key for openai:", "OPENAI_API_KEY", "set it, or pass host=... for a server of your own"
        )
    return _openai_chat(openai.OpenAIChat, name, base_url, key, num_ctx, num_predict, settings)


def _openai_chat(cls: Any, name: str, url: Any, key: str, num_ctx: Any, num_predict: Any, settings: dict) -> Any:
    _check(cls, settings)
    limits = {"max_tokens": num_predict, "num_ctx": num_ctx, "max_retries": 0}
    return cls(model=name, base_url=url, api_key=key, **limits, **settings)


def _openai_module() -> Any:
    try:
        import httpx

        from ragbench.llm import openai
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"the package {error.name} is not installed",
            "the extra that openai: and gguf: models need",
            "pip install 'ragbench[openai]'",
        ) from None
    return openai, httpx


def _check(cls: Any, settings: dict) -> None:
    known = set(cls.model_fields) | {field.alias for field in cls.model_fields.values() if field.alias}
    check_known(f"option of {cls.__bases__[-1].__name__}", settings, known)


def address(host: str, port: int, path: str = "") -> tuple[str, str | None]:
    """Complete a server address, and take user and password out of it.

    Parameters
    ----------
    host : ``"gpu1"``, ``"gpu1:11434"``, ``"http://user:pw@gpu1:11434/"`` ...
    port, path : used where none is given (the port only without a scheme).

    Returns
    -------
    (address without user and password, ``"user:password"`` or None)
    """
    given_scheme = "//" in host
    parts = urlsplit(host if given_scheme else f"http://{host}")
    try:
        name, number = parts.hostname, parts.port
    except ValueError:
        name, number = None, None
    if not name or parts.scheme not in ("http", "https"):
        shown = host.rsplit("@", 1)[-1]
        raise ConfigError(f"host={shown!r}", "an address such as http://localhost:11434", "check the spelling")
    if name == "0.0.0.0":
        name = "127.0.0.1"  # what a server binds to is not where a client can reach it
    if number is None and not given_scheme:
        number = port
    shown = f"[{name}]" if ":" in name else name
    netloc = shown if number is None else f"{shown}:{number}"
    user = parts.netloc.rpartition("@")[0] or None
    return urlunsplit((parts.scheme, netloc, parts.path.rstrip("/") or path, "", "")), user
