"""Who answers, who grades and who labels, by name: by rules, or a chat model on one host or several.

A reader or grader of your own is one entry: ``GENERATORS["mine"] = Mine``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ragbench.errors import ConfigError, unknown
from ragbench.generation import ExtractiveReader
from ragbench.labelling.embedded_grader import EmbeddedGrader
from ragbench.llm import chat_model
from ragbench.llm.models import NAMES

GENERATORS: dict[str, Callable[..., Any]] = {"extractive": ExtractiveReader}
JUDGES: dict[str, Callable[..., Any]] = {"embedded": EmbeddedGrader}
LABELS: dict[str, Callable[..., Any]] = {"embedded": lambda: "embedded"}  # as `ragbench.score` takes it
TABLES: Mapping[str, dict[str, Callable[..., Any]]] = {"generator": GENERATORS, "judge": JUDGES, "labels": LABELS}


def make_generator(name: str = "extractive", **options: Any) -> Any:
    """Make a generator by name.

    Parameters
    ----------
    name : in `GENERATORS`, or a chat model: ``"ollama:llama3:8b"``, ``"smollm2"`` ...
    options : of the entry in the table, or of :func:`ragbench.llm.chat_model`. ``hosts``, a list of addresses, makes
        one model on several hosts.

    Raises
    ------
    ConfigError for an unknown name or option.
    """
    return make_model("generator", name, options)


def make_judge(name: str = "embedded", **options: Any) -> Any:
    """Make a judge by name: in `JUDGES`, or a chat model; see :func:`make_generator`."""
    return make_model("judge", name, options)


def make_model(axis: str, name: str, options: dict[str, Any]) -> Any:
    """Make what one of the `TABLES` holds under a name, or a chat model; see :func:`make_generator`."""
    if name in TABLES[axis]:
        return TABLES[axis][name](**options)
    if ":" not in name and name not in NAMES:
        raise unknown(axis, name, (*TABLES[axis], *NAMES))
    hosts = options.pop("hosts", None)
    if hosts is None:
        return chat_model(name, **options)
    if not isinstance(hosts, list) or not hosts:
        raise ConfigError(f"hosts is {hosts!r}", "a list of addresses", "write hosts: [gpu1, gpu2]")
    return [chat_model(name, host=str(host), **options) for host in hosts]
