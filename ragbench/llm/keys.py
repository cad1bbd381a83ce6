"""The key of a reply: the sha256 of everything that can change it, and of nothing else."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from ragbench.llm.structured import canonical_schema

FORMAT = "ragbench-cassette-1"


_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)  # making one costs 3 us


def canonical(value: Any) -> str:
    """Write JSON in one way only: sorted names, no spaces, 0.0 as 0."""
    if type(value) is list and all(type(item) is str for item in value):  # four times as fast
        return "[" + ",".join(map(json.encoder.encode_basestring, value)) + "]"
    return _ENCODER.encode(_plain(value))


def canonical_messages(messages: Sequence[dict]) -> str:
    """Write messages as ``canonical`` does; four times as fast for those of nothing but role and text."""
    if all(len(m) == 2 and type(m.get("role")) is str and type(m.get("content")) is str for m in messages):
        quote = json.encoder.encode_basestring
        return "[" + ",".join(f'{{"content":{quote(m["content"])},"role":{quote(m["role"])}}}' for m in messages) + "]"
    return canonical(messages)


def _plain(value: Any) -> Any:
    if type(value) is str:  # most are; to ask whether one is a Mapping takes long
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [item if type(item) is str else _plain(item) for item in value]
    return value


class Keys:
    """Makes keys for one model: what does not change from prompt to prompt is hashed once."""

    def __init__(self, provider: str, model: str, digest: str, options: Mapping[str, Any]) -> None:
        self.who = {"provider": provider, "model": model, "digest": digest, "options": _plain(options)}
        self._base = hashlib.sha256(f"{FORMAT}\n{canonical(self.who)}\n".encode())

    def key(self, messages: Sequence[dict], schema: str = "") -> str:
        """Return the sha256 (hex) for these messages and this schema (its canonical JSON text, or "")."""
        hashed = self._base.copy()
        hashed.update(f"{canonical_messages(messages)}\n{schema}".encode("utf-8", "surrogatepass"))
        return hashed.hexdigest()

    def request(self, messages: Sequence[dict], schema: str = "") -> str:
        """Return the request as stored: all that the key was made of."""
        whole = {**self.who, "messages": messages, "schema": json.loads(schema) if schema else None}
        written = json.dumps(whole, ensure_ascii=False, separators=(",", ":"))
        try:
            written.encode()
        except UnicodeEncodeError:  # ASCII escapes keep a lone surrogate, which SQLite's text cannot hold
            return json.dumps(whole, separators=(",", ":"))
        return written


def key_of(request: Mapping[str, Any]) -> str:
    """Return the key that belongs to a stored request."""
    return _keys_of(request).key(request["messages"], canonical_schema(request["schema"]))


def stored_request(request: Mapping[str, Any]) -> str:
    """Return a request (parsed) in the form in which it is stored."""
    return _keys_of(request).request(request["messages"], canonical_schema(request["schema"]))


def _keys_of(request: Mapping[str, Any]) -> Keys:
    return Keys(request["provider"], request["model"], request["digest"], request["options"])


def checksum(text: str) -> str:
    """Return the sha256 (hex) of a text."""
    return hashlib.sha256(text.encode()).hexdigest()
