"""What tests of many modules assert in the same words: that a call is refused, and with which
message.
"""

import importlib.util
import subprocess
import sys

import pytest

from ragbench.errors import ConfigError
from ragbench.paths import project_root


def refused(error, message):
    """What follows is refused by this error, with this message."""
    return pytest.raises(error, match=message)


def refusals(*cases):
    """Return a test that every call is refused: ``(call, message)`` by a ConfigError, or ``(call,
    error, message)``.
    """

    @pytest.mark.parametrize("case", cases, ids=[case[-1] for case in cases])
    def test(case):
        call, *error, message = case
        with refused(*error or (ConfigError,), message):
            call()

    return test


def load_script(name):
    """Return a file of scripts/ as a module."""
    spec = importlib.util.spec_from_file_location(name, project_root() / "scripts" / f"{name}.py")
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def refuse_servers(monkeypatch):
    """A replay that starts a model's server fails; other programs, such as git, may start."""
    start = subprocess.Popen

    def popen(command, *args, **options):
        if "ragbench.llm.local" in command:
            pytest.fail("a server was started")
        return start(command, *args, **options)

    monkeypatch.setattr("subprocess.Popen", popen)
