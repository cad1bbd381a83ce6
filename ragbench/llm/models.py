"""Making chat models from a name: ``chat_model("ollama:llama3:8b")``."""

from __future__ import annotations

import base64
import functools
import os
from collections.abc import AsyncIterator, Mapping
from difflib import get_close_matches
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

import httpx
from langchain_ollama import ChatOllama
from pydantic import Field, PrivateAttr, SecretStr, model_validator

from ragbench.errors import ConfigError, check_known, unknown
from ragbench.llm import local
from ragbench.llm.context import Transport
from ragbench.llm.local import SMOLLM2, SMOLLM2_SHA256

DEADLINE_S = 600.0
NUM_CTX = 8192
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
    api_key: SecretStr | None = Field(default=None, repr=False)
    userinfo: SecretStr | None = Field(default=None, repr=False)
    # with the header that holds the key
    client_kwargs: dict | None = Field(default_factory=dict, repr=False)

    @model_validator(mode="after")
    def _limit_and_sign(self) -> OllamaChat:
        """Give the clients their time limit and the key, which does not belong into fields that a
        repr shows.
        """
        for client in (self._client._client, self._async_client._client):
            client.timeout = httpx.Timeout(self.deadline_s, connect=10.0)
            if self.api_key is not None:
                client.headers["authorization"] = f"Bearer {self.api_key.get_secret_value()}"
            elif self.userinfo is not None:
                login = base64.b64encode(
                    unquote(self.userinfo.get_secret_value()).encode()
                ).decode()
                client.headers["authorization"] = f"Basic {login}"
        return self

    async def _acreate_chat_stream(self, *arguments: Any, **options: Any) -> AsyncIterator[Any]:
        """Read a stream up to its end mark:

        what a server sends after it is no part of the reply.
        """
        async for part in super()._acreate_chat_stream(*arguments, **options):
            yield part
            if not isinstance(part, str) and part.get("done"):
                return


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
    ``host`` any server that
        speaks its protocol: vLLM, llama.cpp, LM Studio ...; needs the extra ``ragbench-lab[openai]``);
        ``"gguf:FILE"`` (a model file, run here by llama.cpp); ``"smollm2"`` (the GGUF file that
        `make setup` brings: 135 million parameters, writes answers, no judge); any other provider
        that LangChain's ``init_chat_model`` knows, such as ``"anthropic:NAME"``, if its package is
        installed. Or a mapping as in an experiment file: ``{"use": "ollama:llama3:8b",
        "num_predict": 200}``.
    host : address of the server. Default: OLLAMA_HOST or http://localhost:11434; OPENAI_BASE_URL or
    OpenAI itself.
    num_ctx : context window in tokens, prompt and reply together; Ollama and llama.cpp are told to
    use it (default
        8192). An OpenAI-compatible server has its own; give its size here to have the counts
        compared with it.
    num_predict : most tokens of a reply. Default: a Modelfile's own, else what fits the step
    (`BOUNDS`): one grade or
        verdict 64, an answer or a list of claims 512, a document 2,048.
    api_key : default OLLAMA_API_KEY or OPENAI_API_KEY; never shown or stored.
    deadline_s : seconds for one whole call of `ask`, from the first byte sent to the last byte
    received.
    digest : name of the exact weights for providers that have none of their own. For a GGUF file:
    the sha256 that it
        must have.
    cloud : True lets Ollama pass the prompts of a cloud model (``x:cloud``) on to ollama.com.
    options : any further option of ``ChatOllama`` or ``ChatOpenAI`` (``top_p``, ``stop``,
    ``reasoning`` ...).

    Raises ConfigError for an unknown provider or option, and for a limit that cannot be.

    Examples
    --------
    >>> model = chat_model("ollama:llama3:8b", num_ctx=4096)
    >>> model.temperature, model.seed, model.num_ctx, model.deadline_s
    (0.0, 0, 4096, 600.0)
    """
    if isinstance(spec, Mapping):
        given = {
            "host": host,
            "temperature": temperature,
            "seed": seed,
            "num_ctx": num_ctx,
            "cloud": cloud,
            **options,
        }
        given |= {
            "num_predict": num_predict,
            "api_key": api_key,
            "deadline_s": deadline_s,
        }
        settings = {key: value for key, value in spec.items() if key != "use"}
        return chat_model(str(spec.get("use", "")), **(given | {"digest": digest} | settings))
    provider, _, name = spec.partition(":")
    if spec == SMOLLM2:
        provider = "gguf"
        name = SMOLLM2
        digest = digest or SMOLLM2_SHA256
    if provider not in _PROVIDERS:
        return _other(spec, provider, name, temperature, api_key, options)
    if not name:
        raise ConfigError(
            f"model {spec!r}", " or ".join(NAMES), "say which model, for example 'ollama:llama3:8b'"
        )
    for limit, value in (("deadline_s", deadline_s), ("num_ctx", num_ctx)):
        if value is not None and not value > 0:
            raise ConfigError(
                f"{limit}={value}", "a number above 0", "leave it out for the default"
            )
    if provider == "ollama" and name.endswith((":cloud", "-cloud")) and not cloud:
        expected = "a model on this machine"
        raise ConfigError(
            f"ollama:{name} sends prompts to ollama.com",
            expected,
            "pass cloud=True if that is meant",
        )
    if num_ctx is None and provider != "openai":
        num_ctx = NUM_CTX
    chat = OllamaChat if provider == "ollama" else _openai_chat()
    known = {
        *chat.model_fields,
        *(field.alias for field in chat.model_fields.values() if field.alias),
    }
    check_known(f"option of {chat.__bases__[-1].__name__}", options, known)
    settings = {
        **options,
        "temperature": temperature,
        "seed": seed,
        "num_ctx": num_ctx,
        "deadline_s": deadline_s,
    }
    settings |= {"digest": digest}
    if provider == "ollama":
        return _ollama(name, host, num_predict, api_key, settings)
    if provider == "gguf":
        return _local(name, host, num_predict, settings)
    return _openai(name, host, num_predict, api_key, settings)


def _ollama(
    name: str, host: str | None, num_predict: int | None, api_key: str | None, settings: dict
) -> Any:
    base_url, user = _address(
        host or os.environ.get("OLLAMA_HOST") or "http://localhost:11434", 11434
    )
    key = api_key or os.environ.get("OLLAMA_API_KEY") or None
    settings["async_client_kwargs"] = {"transport": Transport()}
    about = {"base_url": base_url, "api_key": key, "userinfo": user, "num_predict": num_predict}
    return OllamaChat(model=name, **about, **settings)


def _local(name: str, host: str | None, num_predict: int | None, settings: dict) -> Any:
    file = local.smollm2() if name == SMOLLM2 else local.gguf(name)
    if host is not None:
        do = "leave host out; a model on another machine is 'openai:NAME' or 'ollama:NAME'"
        raise ConfigError(f"host={host!r} for gguf:{file.name}", "a model on this machine", do)
    server = local.server_for(file, settings["num_ctx"])
    hooks = {"request": [server.reach_async]}
    settings["http_client"] = httpx.Client(trust_env=False, event_hooks={"request": [server.reach]})
    settings["http_async_client"] = httpx.AsyncClient(transport=Transport(), event_hooks=hooks)
    about = {
        "base_url": f"http://{server.label}/v1",
        "api_key": server.key,
        "max_tokens": num_predict,
    }
    model = _openai_chat()(model=file.name, max_retries=0, **about, **settings)
    model._server = server
    return model


def _openai(
    name: str, host: str | None, num_predict: int | None, api_key: str | None, settings: dict
) -> Any:
    url = host or os.environ.get("OPENAI_BASE_URL") or os.environ.get("OPENAI_API_BASE")
    base_url, user = _address(url, 80, "/v1") if url else (None, None)
    if base_url:
        # A server of one's own: bounded replies, and a password of the address in place of a key.
        login = tuple(unquote(part) for part in user.partition(":")[::2]) if user else None
        settings["http_async_client"] = httpx.AsyncClient(transport=Transport(), auth=login)
        settings |= {"http_client": httpx.Client(auth=login), "userinfo": user} if user else {}
    # Servers of one's own often need no key, but the client insists on one.
    key = api_key or os.environ.get("OPENAI_API_KEY") or ("not-needed" if base_url else None)
    if key is None:
        do = "set it, or pass host=... for a server of your own"
        raise ConfigError("no API key for openai:", "OPENAI_API_KEY", do)
    about = {"base_url": base_url, "api_key": key, "max_tokens": num_predict}
    return _openai_chat()(model=name, max_retries=0, **about, **settings)


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
        userinfo: SecretStr | None = Field(default=None, repr=False)
        default_headers: Mapping[str, str] | None = Field(default=None, repr=False)
        extra_body: Mapping[str, Any] | None = Field(default=None, repr=False)
        default_query: Mapping[str, object] | None = Field(default=None, repr=False)
        # of ``ragbench.llm.local``, where the model runs on this machine
        _server: Any = PrivateAttr(default=None)

        def _get_request_payload(
            self, input_: Any, *, stop: list[str] | None = None, **options: Any
        ) -> dict:
            """Write the limit under its older name, which all servers of the protocol know."""
            payload = super()._get_request_payload(input_, stop=stop, **options)
            if "max_completion_tokens" in payload and self.openai_api_base:
                payload["max_tokens"] = payload.pop("max_completion_tokens")
            return payload

    return OpenAIChat


def _other(
    spec: str, provider: str, name: str, temperature: float, api_key: str | None, options: dict
) -> Any:
    from langchain.chat_models import init_chat_model

    if get_close_matches(provider.casefold(), [*_PROVIDERS, SMOLLM2], cutoff=0.9):
        raise unknown("model provider", provider, NAMES)
    if name:
        try:
            key = {} if api_key is None else {"api_key": api_key}
            return init_chat_model(
                name, model_provider=provider, temperature=temperature, **key, **options
            )
        except ImportError as error:
            raise ConfigError(
                str(error), f"the package of {provider}", "install it with pip"
            ) from None
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

    >>> full_name("registry.ollama.ai/library/SmolLM2"), full_name("host:5000/bge-m3"),
    full_name("llama3:8B") ('smollm2:latest', 'host:5000/bge-m3:latest', 'llama3:8b')
    """
    short = name.casefold().removeprefix("registry.ollama.ai/").removeprefix("library/")
    return short if ":" in short.rsplit("/", 1)[-1] else f"{short}:latest"


def _address(host: str, port: int, path: str = "") -> tuple[str, str | None]:
    """Complete an address such as "gpu1" or "http://user:pw@gpu1:11434/"; return it and its
    "user:pw" (or None).

    ``port`` and ``path`` are used where none is given (the port only without a scheme).
    """
    given_scheme = "//" in host
    parts = urlsplit(host if given_scheme else f"http://{host}")
    try:
        name = parts.hostname
        number = parts.port
    except ValueError:
        name = None
        number = None
    if not name or parts.scheme not in ("http", "https"):
        shown = host.rsplit("@", 1)[-1]
        raise ConfigError(
            f"host={shown!r}", "an address such as http://localhost:11434", "check the spelling"
        )
    if name == "0.0.0.0":
        name = "127.0.0.1"  # what a server binds to is not where a client can reach it
    if number is None and not given_scheme:
        number = port
    shown = f"[{name}]" if ":" in name else name
    netloc = shown if number is None else f"{shown}:{number}"
    user = parts.netloc.rpartition("@")[0] or None
    return urlunsplit((parts.scheme, netloc, parts.path.rstrip("/") or path, "", "")), user
