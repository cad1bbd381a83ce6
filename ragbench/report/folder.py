"""The folder an export writes: only one that is empty or that an export made, never over somebody's changes.

It is written aside and moved in when it is whole: an export that breaks off leaves the folder as it was.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ragbench.data.files import sha256
from ragbench.errors import ConfigError
from ragbench.llm.failures import sounds_secret

MARKER = ".ragbench-export.json"
_USERINFO = re.compile(r"(\w://)[^/\s@\"']+@")
# Narrower than what errors of servers are searched for: answers are prose, in which a bearer may bear anything.
_KEY_LIKE = re.compile(r"\bsk-[\w\-]{16,}|\b[Bb]earer\s+(?=\S*\d)[\w.~+/\-]{16,}=*")


@dataclass
class Exported:
    """What an export wrote."""

    folder: Path
    files: list[str] = field(default_factory=list)  # relative to the folder, in the order written
    notes: list[str] = field(default_factory=list)  # what is missing and why, what was hidden

    def __str__(self) -> str:
        kinds: dict[str, list[str]] = {}
        for name in self.files:
            kinds.setdefault(os.path.dirname(name), []).append(os.path.basename(name))
        lines = [f"{len(self.files)} files in {os.path.relpath(self.folder)}"]
        lines += [f"  {f'{place}/: ' if place else ''}{_listed(names)}" for place, names in kinds.items()]
        return "\n".join([*lines, *(f"  note: {note}" for note in self.notes)])


def _listed(names: list[str]) -> str:
    endings: dict[str, list[str]] = {}
    for name in names:
        stem, _, ending = name.rpartition(".")
        endings.setdefault(stem, []).append(ending)
    return ", ".join(
        f"{stem}.{ends[0] if len(ends) == 1 else '{' + ','.join(ends) + '}'}" for stem, ends in endings.items()
    )


class Folder:
    """A folder being filled, as a context; every text that goes in is searched for secrets.

    The files lie in ``path`` until ``finish``, which clears the folder of what an earlier export wrote. One with files
    of others, or whose exported files were changed since, is refused. ``what`` is exported, for the marker.
    """

    def __init__(self, to: str | os.PathLike[str], what: str) -> None:
        self.target = Path(to).expanduser()
        self.what, self.done = what, Exported(self.target)
        self._secrets = sorted(set(_environment_secrets()), key=len, reverse=True)
        self.hidden = 0
        self._earlier = self._left_by_an_export()
        parent = self.target.resolve().parent
        parent.mkdir(parents=True, exist_ok=True)
        self._aside = tempfile.TemporaryDirectory(prefix=".", suffix=".part", dir=parent)
        self.path = Path(self._aside.name) / "export"
        self.path.mkdir()

    def __enter__(self) -> Folder:
        return self

    def __exit__(self, *_: object) -> None:
        self._aside.cleanup()

    def _left_by_an_export(self) -> dict[str, str]:
        """Return name and hash of the files that an earlier export left here."""
        path = self.target
        if path.exists() and not path.is_dir():
            raise ConfigError(f"{path} is a file", "a folder", "choose another name")
        if not path.exists() or not any(path.iterdir()):
            return {}
        try:
            files = json.loads((path / MARKER).read_text(encoding="utf-8"))["files"]
            known = {str(name): str(sha) for name, sha in files.items() if not Path(name).is_absolute()}
        except (OSError, ValueError, KeyError, AttributeError):
            first = sorted(p.name for p in path.iterdir())[0]
            raise ConfigError(
                f"{path} is not empty (there is {first}) and not made by ragbench export",
                "an empty folder, or one that an export made",
                "choose another folder for --to",
            ) from None
        for name, sha in known.items():
            if ".." in Path(name).parts or ((path / name).exists() and sha256(path / name) != sha):
                raise ConfigError(
                    f"{path / name} was changed since it was exported",
                    "files as the export left them",
                    "move it out of the folder, or choose another folder for --to",
                )
        return known

    def text(self, name: str, parts: str | Iterable[str]) -> None:
        """Write a text file without secrets, whole or part by part; half of a surrogate pair becomes its escape."""
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        hidden = False
        with open(path, "w", encoding="utf-8", errors="backslashreplace", newline="") as file:
            for part in [parts] if isinstance(parts, str) else parts:
                clean = self.redacted(part)
                hidden = hidden or clean != part
                file.write(clean)
        self.hidden += hidden
        self.done.files.append(name)

    def redacted(self, text: str) -> str:
        """Return a text without the secrets of the environment, keys and passwords in addresses."""
        for secret in self._secrets:
            text = text.replace(secret, "[secret]")
        return _USERINFO.sub(r"\1[secret]@", _KEY_LIKE.sub("[secret]", text))

    def finish(self) -> Exported:
        """Move everything to its place and return what was written."""
        if self.hidden:
            self.done.notes.append(f"in {self.hidden} files something that looked like a secret was replaced")
        files = {name: sha256(self.path / name) for name in self.done.files}
        text = json.dumps({"what": self.what, "files": files}, indent=1, sort_keys=True)
        (self.path / MARKER).write_text(text + "\n", encoding="utf-8")
        if not self.target.exists():
            os.rename(self.path, self.target)
            return self.done
        for name in self._earlier.keys() - files.keys():
            (self.target / name).unlink(missing_ok=True)
        for name in (*files, MARKER):
            (self.target / name).parent.mkdir(parents=True, exist_ok=True)
            os.replace(self.path / name, self.target / name)
        return self.done


def _environment_secrets() -> Iterator[str]:
    """Yield the values of environment variables that sound secret, and passwords in addresses."""
    for name, value in os.environ.items():
        if sounds_secret(name) and len(value.strip()) >= 8:
            yield value.strip()
        if "://" in value and "@" in value:
            try:
                password = urlsplit(value).password or ""
            except ValueError:
                continue
            yield from {p for p in (password, unquote(password)) if len(p) >= 4}
