"""The inputs of the steps, checked: lists of the same length, names, contexts, items on one line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ragbench.errors import ConfigError

Context = str | Sequence[str]


def one_line(text: str) -> str:
    """Put a text on one line, so that an item cannot pass for two numbered ones."""
    return " ".join(text.split())


def check_joint(joint: int | None) -> None:
    """Raise ConfigError unless ``joint`` is None or a number of at least 1."""
    if joint is not None and (isinstance(joint, bool) or not isinstance(joint, int) or joint < 1):
        raise ConfigError(f"joint={joint!r}", "items per prompt, at least 1, or None for all of one text", "choose one")


def same_length(**columns: Sequence[Any] | None) -> int:
    """Return the common length of the columns; ConfigError for one string in place of a list, or unequal lengths."""
    sizes = {}
    for name, values in columns.items():
        if isinstance(values, str):
            raise ConfigError(f"{name} is one string", "a list, one entry per example", f"pass {name}=[...]")
        if values is not None:
            sizes[name] = len(values)
    if len(set(sizes.values())) > 1:
        told = ", ".join(f"{size} {name}" for name, size in sizes.items())
        raise ConfigError(told, "as many of each", "pass one entry per example in every list")
    return next(iter(sizes.values()), 0)


def names_of(ids: Sequence[Any] | None, count: int) -> list[str]:
    """Return the given ids as texts, or numbers."""
    if ids is not None:
        same_length(ids=ids, examples=range(count))
    return [str(name) for name in (ids if ids is not None else range(count))]


def joined(context: Context, name: str) -> str:
    """Return a context as one text, passages a blank line apart."""
    if isinstance(context, str):
        return context.strip()
    if not isinstance(context, Iterable) or not all(isinstance(passage, str) for passage in context):
        raise ConfigError(f"the context of {name} holds something else than texts", "a text or a list of texts",
                          "pass chunk.text, not the chunk")  # fmt: skip
    return "\n\n".join(passage.strip() for passage in context if passage.strip())
