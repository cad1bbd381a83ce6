"""Who a model is: what tells its replies from those of every other model.

A model behind a server is its provider, name, digest (the address where there is none) and options,
see `ragbench.llm.endpoints`. An object of a class of one's own is what is said here.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import re
import sysconfig
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from langchain_core.runnables import Runnable
from pydantic import BaseModel

from ragbench.errors import ConfigError
from ragbench.llm.failures import sounds_secret

# How long to wait, what to log and where to keep: none of it changes a reply.
_NO_SETTING = re.compile(
    r"timeout|retries|proxy|client|cache|callback|verbose|^tags$|metadata|rate_limiter|organization"
    r"|disable_streaming|^name$|profile|output_version|deadline|headers|auth|token$"
    r"|^i$|^responses$|^messages$|^sleep$|lock$",
    re.IGNORECASE,
)
_ADDRESS = re.compile(r"url|host|endpoint|api_base|address", re.IGNORECASE)
_INSTALLED = [Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib")]


def identity(model: Any) -> dict[str, Any]:
    """Say who an object of a class of one's own, or a function, is.

    It is the ``model_id`` that it states; else the sha256 of its source and of its bases' (as far
    as they are no installed package's), and its fields, those of models within it too. ConfigError
    for a field that cannot be told from another one of its kind.
    """
    stated = getattr(model, "model_id", None)
    if isinstance(stated, str) and stated:
        return {"model_id": stated}
    if isinstance(model, types.FunctionType):
        return {"function": model.__qualname__, "code": _code(model), "uses": _uses(model)}
    if isinstance(model, types.MethodType):
        return {"method": model.__name__, "of": identity(model.__self__)}
    if isinstance(model, functools.partial):
        arguments = {"args": model.args, "keywords": model.keywords}
        return {"partial": identity(model.func), "with": _value(arguments, "partial")}
    kind = type(model)
    return {"class": kind.__qualname__, "code": _code(kind), **_settings(model)}


@functools.lru_cache(maxsize=256)
def _code(owner: Any) -> str:
    """Return the sha256 of the source of a function, or of a class and its bases; of installed
    packages the name alone.
    """
    parts = []
    for part in getattr(owner, "__mro__", (owner,)):
        if _is_installed(part):
            parts.append(f"{part.__module__}.{part.__qualname__}")
            continue
        try:
            parts.append(inspect.getsource(part))
        except (OSError, TypeError):
            raise _cannot_tell(f"{part.__qualname__}, whose source is not there") from None
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _is_installed(owner: Any) -> bool:
    try:
        file = Path(inspect.getfile(owner)).resolve()
    except (OSError, TypeError):
        return inspect.getmodule(owner) is not None and owner.__module__ != "__main__"
    own = Path(__file__).resolve().parents[1]
    return any(file.is_relative_to(folder) for folder in (*_INSTALLED, own))


def _uses(function: types.FunctionType) -> str:
    """Return one hash (some of it may be secret) of the defaults of a function, of what it holds of
    the one around it, and of the texts, numbers and functions of its module that it names.
    """
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    held = {"around": cells, "defaults": function.__defaults__, "named": function.__kwdefaults__}
    uses = {"held": _value(held, function.__qualname__)}
    for name, value in inspect.getclosurevars(function).globals.items():
        if _is_plain(value):
            uses[name] = value
        elif isinstance(value, types.FunctionType) and not _is_installed(value):
            uses[name] = _code(value)
    return hashlib.sha256(json.dumps(uses, sort_keys=True).encode()).hexdigest()


def _settings(model: Any) -> dict[str, Any]:
    values = dict(getattr(model, "__dict__", {}))
    # a client of a library is made of its other fields
    skips_clients = isinstance(model, BaseModel) and _is_installed(type(model))
    if isinstance(model, BaseModel):
        # private attributes count calls, too: only what can be a model or its name
        hidden = getattr(model, "__pydantic_private__", None) or {}
        values |= {name: value for name, value in hidden.items() if _is_model(value)}
    settings = {}
    for name, value in sorted(values.items()):
        if sounds_secret(name):
            continue
        if not _is_model(value) and (
            _NO_SETTING.search(name) or (skips_clients and not _is_plain(value))
        ):
            continue
        settings[name] = _value(value, f"{type(model).__qualname__}.{name}")
    return settings


def _is_model(value: Any) -> bool:
    return isinstance(value, str | Runnable | types.FunctionType) or hasattr(value, "model_id")


def address_mark(address: str) -> str:
    """Return what stands for an address in a key: no file says where a server is."""
    return hashlib.sha256(address.encode()).hexdigest()[:16]


def _value(value: Any, place: str) -> Any:
    if isinstance(value, str) and _ADDRESS.search(place):
        return address_mark(value)
    if value is None or _is_plain(value):
        return without_secrets(value, place)
    if isinstance(value, Mapping):
        return {str(name): _value(each, f"{place}.{name}") for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_value(each, place) for each in value]
    if hasattr(value, "get_secret_value"):
        return None
    if isinstance(value, Runnable | BaseModel | types.FunctionType) or _has_source(value):
        return identity(value)
    raise _cannot_tell(f"{place}, a {type(value).__qualname__}")


def _has_source(value: Any) -> bool:
    return not _is_installed(type(value)) and hasattr(value, "__dict__")


def _cannot_tell(what: str) -> ConfigError:
    return ConfigError(
        f"{what}: its replies cannot be told from those of another model",
        "fields of texts, numbers and models",
        "give it a model_id, a text that names the model and all its settings",
    )


def _is_plain(value: Any) -> bool:
    """Whether a value is made of numbers, texts, lists and mappings alone."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return isinstance(value, bool | int | float | str)


def without_secrets(value: Any, of: str = "") -> Any:
    """Leave out the entries of a mapping (its name is ``of``), at any depth, whose names sound like
    secrets.
    """
    if isinstance(value, Mapping):
        kept = {name: each for name, each in value.items() if not sounds_secret(str(name), of)}
        return {name: without_secrets(each, str(name)) for name, each in kept.items()}
    if isinstance(value, list | tuple):
        return [without_secrets(each) for each in value]
    return value
