"""An ``experiment.yaml``: its keys as written, and the line that a message is about."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any, ClassVar

import yaml

from ragbench.data.files import read_text
from ragbench.errors import ConfigError

_MAX_ALIASES = 20  # of a file: a few lines with many stand for a table without end


class _Loader(yaml.SafeLoader):
    """YAML 1.2's plain values: ``010``, ``1:30``, ``no`` and ``on`` are texts, and so is every key,
    as written.
    """

    yaml_implicit_resolvers: ClassVar[dict[str, list]] = {}

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[str, Any]:
        """Read a mapping; PyYAML would keep the last of two equal keys in silence."""
        mapping = {}
        for key, value in node.value:
            if key.value in mapping:
                raise yaml.MarkedYAMLError(
                    problem=f"the key {key.value!r} twice", problem_mark=key.start_mark
                )
            mapping[key.value] = self.construct_object(value, deep=True)
        return mapping


for _tag, _pattern, _first in (
    ("null", r"~|null|", "~n"),
    ("bool", r"true|false", "tf"),
    ("int", r"[-+]?(0|[1-9]\d*)", "-+0123456789"),
    ("float", r"[-+]?(0|[1-9]\d*)(\.\d*)?([eE][-+]?\d+)?", "-+0123456789"),
):
    _characters = [*_first, ""] if _tag == "null" else [*_first]
    _Loader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(rf"(?:{_pattern})$"), _characters
    )


def read_experiment(path: Path, keys: Collection[str]) -> dict[str, Any]:
    """Read the keys of an experiment file; ConfigError or DataError names file and line.

    ``keys`` : those that stand at the beginning of a line.
    """
    text = read_text(path)
    try:
        _check_aliases(text)
        settings = yaml.load(text, _Loader)  # a SafeLoader
    except (yaml.YAMLError, ValueError, TypeError) as error:
        slip = _known_slip(path, text, keys)
        if slip is not None:
            raise slip from None
        place = str(path)
        mark = getattr(error, "problem_mark", None)
        if mark is not None:
            place = f"{path}, line {mark.line + 1}"
        problem = getattr(error, "problem", None) or error
        raise ConfigError(
            got=f"{place}: {problem}",
            expected="YAML of plain values",
            do="correct that line",
        ) from None
    if not isinstance(settings, dict):
        raise ConfigError(
            got=f"{path} holds {type(settings).__name__}",
            expected="keys such as name and data",
            do="see docs/experiment.md",
        )
    return settings


def _check_aliases(text: str) -> None:
    aliases = [event for event in yaml.parse(text) if isinstance(event, yaml.AliasEvent)]
    if len(aliases) > _MAX_ALIASES:
        mark = aliases[_MAX_ALIASES].start_mark
        raise yaml.MarkedYAMLError(
            problem=f"more than {_MAX_ALIASES} aliases (*name)", problem_mark=mark
        )


def _known_slip(path: Path, text: str, keys: Collection[str]) -> ConfigError | None:
    """Say what is wrong with a key at the line where it stands; PyYAML often names a later one."""
    key = "|".join(keys)
    slips = (
        (rf"\t\s*({key})\s*:", "begins with a tab", "replace the tab by blanks"),
        (rf" +({key})\s*:", "is indented", "remove the blanks before it"),
        (rf"({key}):\S", "has no blank after the colon", "write '{}: {}'"),
    )
    for number, line in enumerate(text.splitlines(), 1):
        for pattern, what, do in slips:
            if re.match(pattern, line):
                plain = line.strip()
                name, _, value = plain.partition(":")
                return ConfigError(
                    got=f"{path}, line {number}: {plain[:60]!r} {what}",
                    expected="key: value",
                    do=do.format(name, value),
                )
    return None


def line_of(message: str, path: Path) -> str:
    """Return ", line 5" for the first key of the file that a message names; "" for none."""
    lines = {}
    for number, line in enumerate(read_text(path).splitlines(), 1):
        key, _, _ = line.partition(":")
        lines[key.strip()] = f", line {number}"
    for word in re.findall(r"\w+", message):
        if word in lines:
            return lines[word]
    return ""


def import_code(folder: Path, code: Any) -> None:
    """Run a Python file of the user's, in a folder, that adds names of their own to the tables."""
    file = folder / str(code)
    if file.suffix != ".py" or not file.is_file():
        raise ConfigError(
            got=f"code is {code!r}",
            expected="a Python file beside it",
            do="write for instance code: mine.py",
        )
    name = f"ragbench_code_{file.stem}"  # takes the place of no module
    spec = importlib.util.spec_from_file_location(name, file)
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
