"""Which strings of a model are secret, and which of its options may be written down."""

from __future__ import annotations

import base64
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

_SECRET_NAME = re.compile(r"api.?key|authori[sz]ation|secret|password|credential|cookie|token$", re.IGNORECASE)
_KEY_CHARS, _KEY_BITS = 12, 36
# Where a model is, how long to wait, and what to log: none of it changes a reply.
_NO_OPTION = re.compile(
    r"url|host|api_base|endpoint|proxy|timeout|retries|headers|client|cache|callback|verbose|^tags$|metadata|rate_limiter"
    r"|organization|disable_streaming|^name$|profile|output_version|deadline|price|api.?key|secret|password|credential"
    r"|cookie|auth|token$|^i$|^responses$|^messages$|^sleep$",
    re.IGNORECASE,
)


def looks_like_key(text: str) -> bool:
    """Whether a text is long and varied enough for a key; "test", "none" and "not-needed" are ordinary words."""
    counts = Counter(text).values()
    bits = -sum(count * math.log2(count / len(text)) for count in counts)
    return len(text) >= _KEY_CHARS and bits >= _KEY_BITS and not any(c.isspace() for c in text)


def sounds_secret(name: str) -> bool:
    """Whether a field, header or variable of this name is likely to hold a secret."""
    return bool(_SECRET_NAME.search(name))


def secret_strings(model: Any, headers: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Collect the keys a LangChain chat model holds: SecretStr fields, keys in headers, the password in its address.

    Longest first; those alone that `looks_like_key`.
    """
    secrets: set[str] = set()
    for _, value in _fields(model):
        if hasattr(value, "get_secret_value"):
            secret = str(value.get_secret_value())
            secrets |= {secret, secret.partition(":")[2]}  # of user:password
        elif isinstance(value, Mapping):
            secrets.update(_from_headers(value))
            if isinstance(value.get("headers"), Mapping):
                secrets.update(_from_headers(value["headers"]))
        elif isinstance(value, str) and "@" in value and "//" in value:
            parts = urlsplit(value)
            if parts.password:
                user, password = unquote(parts.username or ""), unquote(parts.password)
                secrets |= {password, parts.password, base64.b64encode(f"{user}:{password}".encode()).decode()}
    secrets.update(_from_headers(headers or {}))
    return tuple(sorted(filter(looks_like_key, secrets), key=len, reverse=True))


def _fields(model: Any) -> Iterator[tuple[str, Any]]:
    return ((name, getattr(model, name, None)) for name in getattr(type(model), "model_fields", {}))


def _from_headers(headers: Mapping[str, Any]) -> Iterator[str]:
    for name, value in headers.items():
        if isinstance(value, str) and sounds_secret(str(name)):
            yield value.split(" ", 1)[-1]


def plain_options(model: Any) -> dict[str, Any]:
    """Return the options of any LangChain model that may change its replies, without addresses, limits and secrets.

    They are JSON values: the pydantic fields that are numbers, strings, booleans or plain lists and dicts of them.
    """
    given = ((name, value) for name, value in _fields(model) if value is not None and not _NO_OPTION.search(name))
    return {name: value for name, value in given if _is_plain(value)}


def _is_plain(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(isinstance(k, str) and not sounds_secret(k) and _is_plain(v) for k, v in value.items())
    if isinstance(value, list | tuple):
        return all(_is_plain(item) for item in value)
    return isinstance(value, bool | int | float | str)
