"""The manifest of a run: what made its rows, in one JSON file next to them."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
import json
import math
import os
import platform
import re
import subprocess
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from ragbench import __version__
from ragbench.errors import ConfigError, DataError
from ragbench.experiment.axes import AXES
from ragbench.experiment.build import Built, People
from ragbench.experiment.grid import Grid
from ragbench.generation import PROMPTS
from ragbench.llm.failures import redact, sounds_secret
from ragbench.metrics.ir_score import MATCHES
from ragbench.paths import written_whole
from ragbench.prompts import prompt_hash
from ragbench.records import Chunk, Dataset
from ragbench.rows import (
    MANIFEST,
    ROWS,
    Row,
    load_manifest,
    open_file,
)
from ragbench.text.languages import other_languages

CHECKOUT = Path(__file__).parents[2]  # where this package is not installed
_SAMPLE, _MAX_CHARS = 500, 1000  # documents whose language is looked at, and characters of each


def _describe_run(experiment: Grid, built: Built, people: People) -> dict[str, Any]:
    """Return what the manifest says of a run: what could change its rows."""
    seeds = {"order": experiment.order}
    prompts = []
    grading = {}  # of each judge: its prompt and its scale
    for (axis, name), person in people.items():
        seeds[f"{axis}/{name}"] = person.facts.row()["seed"]
        prompt = experiment.prompt(axis, name)
        prompts.append(prompt)
        if axis == "generator":
            prompts.append(PROMPTS["query_only"])
        else:
            grading[name] = {"prompt": Path(prompt).name, "scale": experiment.scale(name)}
    return {
        "format": "ragbench-run-1",
        "name": experiment.name,
        "axes": _axes(experiment, built),
        "grid": {axis: list(getattr(experiment, axis)) for axis in AXES},
        "chunkers": _by_label(experiment.chunker),
        "parameters": _parameters(experiment),
        "prompts": {Path(prompt).name: prompt_hash(prompt) for prompt in prompts},
        "grading": grading,
        "seeds": seeds,
        **_environment(),
    }


def _axes(experiment: Grid, built: Built) -> dict[str, dict[str, Any]]:
    """Describe what was built for each value of an axis, by data, chunker and retriever."""
    retrievers = {"/".join(place): engine for place, engine in built.retrievers.items()}
    return {
        "data": {name: _data_facts(loaded) for name, loaded in built.data.items()},
        "chunker": {"/".join(at): _chunk_facts(chunks) for at, chunks in built.chunks.items()},
        "retriever": _by_label(retrievers),
        "generator": _by_label(experiment.generator),
        "judge": _by_label(experiment.judge),
    }


def _by_label(things: Mapping[str, Any]) -> dict[str, Any]:
    return {label: _describe(thing) for label, thing in things.items()}


def _parameters(experiment: Grid) -> dict[str, Any]:
    names = ("k", "N", "per_prompt", "order", "begin_token", "match", "concurrency")
    tokenizer = experiment.tokenizer
    if tokenizer is not None:  # a file or a function
        tokenizer = getattr(tokenizer, "name", getattr(tokenizer, "__name__", "own"))
    _, form_counts = MATCHES[experiment.match]
    return {
        **{name: getattr(experiment, name) for name in names},
        "options": _describe(experiment.options),
        "tokenizer": tokenizer or "all-MiniLM-L6-v2 WordPiece",
        "form": "NFC" if form_counts else None,
    }


def _environment() -> dict[str, Any]:
    """Return package versions, git revision and machine (no names of hosts, users or folders)."""
    machine = {
        "system": platform.system(),
        "processor": platform.machine(),
        "cores": os.cpu_count(),
    }
    return {
        "python": platform.python_version(),
        "packages": _packages(),
        "git": _git(),
        "machine": machine,
    }


@functools.cache
def _packages() -> dict[str, str]:
    versions = {package.name: package.version for package in metadata.distributions()}
    return versions | {"ragbench": __version__}


def _git() -> dict[str, Any] | None:
    """Return the revision of this package's own checkout; None where it is installed otherwise.

    Git runs what a folder's ``.git/config`` names, so it is asked in no other folder.
    """
    if not (CHECKOUT / ".git").exists():
        return None
    command = ["git", "-c", "core.fsmonitor=false", "status", "--porcelain=v2", "--branch", "-uno"]
    # Asking must not write: a refresh of git's index that breaks off leaves a lock behind.
    variables = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}
    try:
        status = subprocess.run(
            command, env=variables, cwd=CHECKOUT, capture_output=True, text=True, timeout=10
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    revision = re.search(r"^# branch.oid (\w+)$", status, re.M)
    if revision is None:
        return None
    is_changed = re.search(r"^[^#]", status, re.M) is not None
    return {"revision": revision[1], "changed": is_changed}


class RunFiles:
    """``rows.jsonl`` and ``manifest.json`` of a run, while it makes them.

    A first run's rows grow in place. Later ones are written beside the earlier ones; rows and
    manifest take their place together when it closes, unless it was stopped with fewer rows.
    """

    def __init__(self, experiment: Grid, built: Built, people: People) -> None:
        self.folder = experiment.home
        self.people = people
        self.rows = 0
        for name, data in built.data.items():
            self.rows += len(data.questions) * len(experiment.cells(name))
        self.entry: dict[str, Any] = {
            "began": _now(),
            "ended": None,
            "rows": self.rows,
            "rows_made": 0,
            "failed": Counter(),  # rows by the kind of their error
        }
        self.manifest = _describe_run(experiment, built, people)
        self._describe_people()
        self.path = self.folder / ROWS
        self.earlier = 0  # rows of the run before
        self._sha256 = hashlib.sha256()

    def _describe_people(self) -> None:
        for (axis, name), person in self.people.items():
            self.manifest["axes"][axis][name] = person.to_dict()

    def begin(self) -> None:
        """Make ready to write; ConfigError where the folder is that of another experiment."""
        earlier_runs = []
        if (self.folder / MANIFEST).exists():
            earlier_runs = _earlier_runs(self.folder, self.manifest["name"])
        self.manifest["runs"] = [*earlier_runs, self.entry]
        if self.path.exists():
            with open_file(self.path) as file:
                self.earlier = sum(1 for _ in file)
        if self.earlier:
            self.path = self.folder / f"{ROWS}.part"
        else:  # what it writes may be read meanwhile
            self._write_manifest()

    def write(self, rows: Sequence[Row]) -> None:
        """Append a block of rows; DataError for a full disk."""
        lines = [json.dumps(row.to_dict(), default=_as_json, allow_nan=False) for row in rows]
        text = "".join(f"{line}\n" for line in lines).encode()
        mode = "wb"
        if self.entry["rows_made"]:
            mode = "ab"
        try:
            with self.path.open(mode) as file:
                file.write(text)
        except OSError as error:
            raise DataError.not_written(self.path, error.strerror) from None
        self._sha256.update(text)
        self.entry["rows_made"] += len(lines)
        self.entry["failed"].update(row.error_kind for row in rows if row.status == "failed")

    def close(self) -> None:
        """Let rows and manifest take the place of the earlier ones together, or neither."""
        rows_made = self.entry["rows_made"]
        self._describe_people()
        self.entry["ended"] = _now()
        self.manifest["rows_sha256"] = self._sha256.hexdigest()
        try:
            if rows_made < min(self.rows, self.earlier):
                warnings.warn(
                    f"stopped after {rows_made} rows: the earlier rows and their manifest stay; "
                    "run again to replace them",
                    stacklevel=4,
                )
                self._note_sitting()
                return
            self._write_manifest()
            if self.path.exists():
                os.replace(self.path, self.folder / ROWS)
        finally:
            if self.earlier:
                self.path.unlink(missing_ok=True)

    def _note_sitting(self) -> None:
        """Note in the earlier manifest that this run was begun; the last entry stays that of the
        rows.
        """
        with contextlib.suppress(DataError):
            self.manifest = load_manifest(self.folder)
            self.manifest["runs"].insert(-1, self.entry)
            self._write_manifest()

    def _write_manifest(self) -> None:
        text = json.dumps(self.manifest, indent=1, ensure_ascii=False, sort_keys=True)
        try:
            with written_whole(self.folder / MANIFEST) as part:
                part.write_text(text + "\n", encoding="utf-8")
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise DataError.not_written(self.folder / MANIFEST, reason) from None


def _now() -> str:
    """Return the time, UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _as_json(value: Any) -> Any:
    """Return what JSON takes in place of a number of numpy, or of a path."""
    if isinstance(value, np.generic):
        return value.item()
    return str(value)


def _earlier_runs(folder: Path, name: str) -> list[dict[str, Any]]:
    """Return the entries of the runs before in a folder; none where there is no manifest.

    Raises ConfigError where the folder is that of another experiment.
    """
    try:
        manifest = load_manifest(folder)
    except DataError:
        return []
    if manifest.get("name", name) != name:
        raise ConfigError(
            f"{folder} holds the run {manifest['name']!r}, not {name!r}",
            "a folder of its own for every name",
            "change folder or name",
        )
    return manifest["runs"]


def _describe(value: Any) -> Any:
    """Return what a manifest says of a value, ready for JSON.

    Numbers, texts and lists and dicts of them as they are; a partial's function and arguments; what
    ``settings()`` gives; else the name. Never an address in memory, never a value whose name sounds
    secret.
    """
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, list | tuple):
        return [_describe(item) for item in value]
    if isinstance(value, Mapping):
        items = {str(name): item for name, item in value.items()}
        return {name: _describe(items[name]) for name in items if not sounds_secret(name)}
    return _describe_object(value)


def _describe_object(thing: Any) -> dict[str, Any]:
    if isinstance(thing, functools.partial):
        arguments = {"args": _describe(thing.args), "keywords": _describe(thing.keywords)}
        return {"partial": _describe(thing.func), **arguments}
    if inspect.isroutine(thing):
        return {"function": _name(thing)}
    facts = {"class": _name(type(thing))}
    if callable(getattr(thing, "settings", None)):
        return facts | _describe(thing.settings())
    name = getattr(thing, "name", None)
    if name is not None:
        facts["name"] = _describe(name)
    return facts


def _name(thing: Any) -> str:
    # A user's class is "__main__" in a notebook and something else when imported; it is the same
    # class.
    if str(thing.__module__).partition(".")[0] == "ragbench":
        return f"{thing.__module__}.{thing.__qualname__}"
    return thing.__qualname__


def _chunk_facts(chunks: Sequence[Chunk]) -> dict[str, Any]:
    texts = ([chunk.id, chunk.doc_id, chunk.title, chunk.text] for chunk in chunks)
    return {"chunks": len(chunks), "sha256": _sha256(texts)}


def _data_facts(data: Dataset) -> dict[str, Any]:
    questions = ([q.id, q.text, q.answer, *q.references] for q in data.questions)
    documents = ([d.id, d.title, d.text] for d in data.documents)
    step = math.ceil(len(data.documents) / _SAMPLE) or 1
    sample = data.documents[::step]
    return {
        "name": data.name,
        "questions": len(data.questions),
        "documents": len(data.documents),
        "excluded": len(data.excluded),
        "other_languages": other_languages([q.text, q.answer] for q in data.questions),
        "sampled_documents": len(sample),
        "documents_in_other_languages": other_languages([d.text[:_MAX_CHARS]] for d in sample),
        "questions_sha256": _sha256(questions),
        "documents_sha256": _sha256(documents),
    }


def _sha256(rows: Iterable[Sequence[str]]) -> str:
    # One running hash: a corpus as one JSON text would be in memory twice.
    total = hashlib.sha256()
    for row in rows:
        total.update(json.dumps(row).encode() + b"\n")
    return total.hexdigest()
