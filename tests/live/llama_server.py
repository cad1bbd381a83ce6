"""Starting a real llama.cpp server.

Found in this interpreter, or through RAGBENCH_LLAMA_PYTHON (the python of an environment that has
``llama-cpp-python[server]`` and ``gguf``; ``make test-live`` builds one).
"""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NUM_CTX = 2048


def llama_python() -> str | None:
    """Return the interpreter that has llama_cpp and gguf, or None."""
    given = os.environ.get("RAGBENCH_LLAMA_PYTHON")
    if given:
        return given
    here = all(importlib.util.find_spec(name) for name in ("llama_cpp", "gguf"))
    return sys.executable if here else None


@contextmanager
def serve(model: Path, port: int = 0, log: Path | None = None) -> Iterator[tuple[str, subprocess.Popen]]:
    """Serve a GGUF file; yield (address, process)."""
    if not port:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
    command = [llama_python(), "-m", "llama_cpp.server", "--model", str(model), "--host", "127.0.0.1"]
    command += ["--port", str(port), "--n_ctx", str(NUM_CTX), "--chat_format", "chatml", "--n_threads", "1"]
    command += ["--interrupt_requests", "false"]
    with open(log or model.with_suffix(".log"), "ab") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out)
    url = f"http://127.0.0.1:{port}"
    try:
        until = time.monotonic() + 120
        while True:
            assert process.poll() is None, Path(out.name).read_text(errors="replace")[-2000:]
            assert time.monotonic() < until, "the llama.cpp server did not come up in two minutes"
            try:
                urllib.request.urlopen(f"{url}/v1/models", timeout=2).close()
                break
            except (urllib.error.URLError, OSError):
                time.sleep(0.1)
        yield url, process
    finally:
        process.kill()
        process.wait()
