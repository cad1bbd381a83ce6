"""An extension of griffe: docstrings as the API page shows them, text first and then parameters.

Ours keep what is said of the whole function, such as its source, below the parameters, and write
``name : description`` on one line. numpydoc's readers take the one for a parameter and the other
for a type.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_HEAD = re.compile(r"^(Parameters|Returns|Attributes)\n-+\n", re.M)
_EXAMPLE = re.compile(r"^>>> .*(?:\n.+)*", re.M)
_NAME = re.compile(r"^(\*{0,2}\w+(?:, \*{0,2}\w+)*) : (.*)$")


class TextFirst(griffe.Extension):
    """Rewrite each docstring before it is parsed."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = rewritten(obj.docstring.value)


def rewritten(docstring: str) -> str:
    """Return a docstring with its text first, each parameter's description below its name, and its
    example as a block of code.
    """
    docstring = _EXAMPLE.sub(r"```pycon\n\g<0>\n```", docstring)
    text, *sections = _HEAD.split(docstring)
    tables = []
    for title, body in zip(sections[::2], sections[1::2], strict=True):
        named, words = _split(body)
        if named:
            tables.append(f"{title}\n{'-' * len(title)}\n" + "\n".join(named))
        if words:
            opening = "**Returns.** " if title == "Returns" else ""
            text = f"{text.rstrip()}\n\n{opening}{words}"
    return "\n\n".join([text.rstrip(), *tables])


def _split(body: str) -> tuple[list[str], str]:
    """Return the lines of names with their descriptions, and what is no name."""
    named: list[str] = []
    words: list[str] = []
    in_name = False
    for line in body.splitlines():
        match = _NAME.match(line)
        if match:
            named += [match[1], f"    {match[2]}"]
            in_name = True
        elif in_name and line.startswith(" "):
            named.append(line)
        else:
            in_name = in_name and not line.strip()
            words.append(line)
    return named, "\n".join(words).strip()
