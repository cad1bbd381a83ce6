"""A real model server for the live tests: llama.cpp, serving a made model with random weights."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from llama_server import NUM_CTX, llama_python, serve


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if llama_python() is None:
        reason = "llama_cpp is not installed here and RAGBENCH_LLAMA_PYTHON is not set: make test-live"
        for item in items:
            if "live" in item.keywords:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The made model file (never committed)."""
    path = tmp_path_factory.mktemp("model") / "made.gguf"
    script = Path(__file__).with_name("make_gguf.py")
    subprocess.run([llama_python(), str(script), str(path)], check=True, timeout=120)
    return path


@pytest.fixture(scope="session")
def llama_url(gguf: Path) -> Iterator[str]:
    """The address of a running llama.cpp server."""
    with serve(gguf) as (url, _):
        yield url


@pytest.fixture(scope="session")
def live_model(llama_url: str) -> Callable[..., object]:
    """Make chat models of the real server: ``live_model(num_predict=50)``."""
    from ragbench.llm import chat_model

    def make(**options: object) -> object:
        return chat_model("openai:made", host=llama_url, **{"num_ctx": NUM_CTX, **options})

    return make
