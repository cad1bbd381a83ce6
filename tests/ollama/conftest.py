"""A real Ollama on loopback, with the two models that the environment carries; skipped where there
is none.
"""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

import serve_ollama


@pytest.fixture(scope="session")
def program():
    """The path of the `ollama` program."""
    try:
        return serve_ollama.program(build=False)
    except RuntimeError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def models(program, tmp_path_factory):
    """A folder with the models of the environment, made once; every server of the tests serves from
    it.
    """
    folder = tmp_path_factory.mktemp("ollama")
    with serve_ollama.serving(folder, serve_ollama.free_port(), program) as address:
        assert {"all-minilm:latest", "smollm2:latest"} <= set(
            serve_ollama.add_models(address, num_thread=1)
        )
    return folder


@pytest.fixture(scope="session")
def ollama(program, models):
    """The address of a real Ollama that serves `smollm2` and `all-minilm`."""
    with serve_ollama.serving(models, serve_ollama.free_port(), program) as address:
        yield address
