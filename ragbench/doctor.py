"""What is installed, which data sets and models are there, and what to do about what is not."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ragbench import llm
from ragbench.errors import RagbenchError
from ragbench.paths import cache_dir, packaged_data, shared_data

_WORDS = 300  # of the prompt whose reading is timed; each is one token
_TOKENS = 48  # of a reply, so that a model that does not stop takes seconds
DEADLINE_S = 120.0
_LONG_PROMPT = "lake hill tree road bird wind " * (_WORDS // 6) + "\nWhich words stand above?"
_LABEL_PROMPT = (
    "Text: The library opens at nine.\nDoes the text say when the library opens? "
    'Answer with JSON: {"labels": ["yes"]} or {"labels": ["no"]}.'
)
_SHARED = {
    "RAGChecker meta-evaluation": "ragchecker/meta_evaluation",
    "WikiEval": "wikieval/wikieval.jsonl",
    "DRAGONBall": "rageval/dragonball_docs.jsonl",
    "ClapNQ": "clapnq/clapnq_dev_answerable.jsonl",
    "RefChecker labels": "refchecker/human_annotations_v1.jsonl.gz",
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
    return [*_packages(), *_weights(), *_data_checks(), _ollama()]


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
    yield Check(
        "python", sys.version_info >= (3, 11), platform.python_version(), "use Python 3.11 or newer"
    )
    for package in (
        "jupyterlab",
        "ipywidgets",
        "langchain-core",
        "langchain-ollama",
        "onnxruntime",
        "numba",
    ):
        try:
            yield Check(package, True, importlib.metadata.version(package))
        except importlib.metadata.PackageNotFoundError:
            yield Check(package, False, "missing", "run `make setup`")
    extras = {
        "openai": "langchain_openai",
        "local": "xllamacpp",
        "dask": "distributed",
    }
    for extra, module in extras.items():
        ok = importlib.util.find_spec(module) is not None
        what = "installed" if ok else "not installed"
        yield Check(
            f"extra [{extra}]", ok, what, f"pip install 'ragbench-lab[{extra}]'", optional=True
        )


def _weights() -> Iterator[Check]:
    from ragbench.llm.local import verify_smollm2
    from ragbench.retrieval.rerank import reranker_dir
    from ragbench.text.tokens import verify_minilm

    for name, weights, verify in (
        ("MiniLM", "all-MiniLM-L6-v2", verify_minilm),
        ("Reranker", "ms-marco-MiniLM-L-12-v2", reranker_dir),
        ("SmolLM2", "SmolLM2-135M-Instruct", verify_smollm2),
    ):
        try:
            verify()
            yield Check(f"{name} weights", True, f"{weights}, sha256 as published")
        except RagbenchError as error:
            yield Check(f"{name} weights", False, error.got, error.do, optional=name != "MiniLM")


def model_checks(model: Any) -> list[Check]:
    """Ask a chat model two short questions: does it answer, how fast, and does it keep to
    labels?
    """
    settings = {"num_predict": _TOKENS, "retries": 0, "deadline_s": DEADLINE_S, "progress": False}
    answer = llm.ask(model, [_LONG_PROMPT], on_length="keep", **settings)[0]
    if answer.error is not None:
        what = f"{answer.error.kind}: {answer.error.got}"
        if answer.error.kind == "timeout":
            what = f"slower than {_TOKENS} tokens in {DEADLINE_S:g} s"
        return [Check("model", False, f"{answer.model}: {what}", answer.error.do)]
    schema = llm.label_schema(1, ("yes", "no"))
    label = llm.ask(model, [_LABEL_PROMPT], schema, **settings)[0]
    kept = "kept to after a repair try" if label.repairs else "kept to at once"
    do = "a larger model may keep to it"
    command = f"measured by rb.measure_judge({llm.model_name(model)!r}), beside people"
    return [
        Check("model", True, _model_facts(model, answer)),
        Check("speed", True, _speed(answer)),
        Check("labels", label.ok, kept if label.ok else str(label.error.got), do),
        Check("judge", True, command),
    ]


def _model_facts(model: Any, answer: llm.Reply) -> str:
    facts = llm.model_facts(model)
    window = f"window {facts.num_ctx}" if facts.num_ctx else ""
    server = f"Ollama {facts.version}" if facts.version else ""
    digest = f"digest {answer.digest[:12] or 'none'}"
    return ", ".join(filter(None, (answer.model, digest, facts.weights, server, window)))


def _speed(answer: llm.Reply) -> str:
    usage = answer.usage
    said = f"{answer.seconds:.1f} s for {usage.output_tokens} tokens"
    if usage.prompt_seconds:
        read = _WORDS / usage.prompt_seconds
        said += f"; {read:.0f} tokens/s read, {usage.tokens_per_second:.1f} written"
    return said


def _data_checks() -> Iterator[Check]:
    """Say which data sets are on this machine."""
    from ragbench.data.files import read_text
    from ragbench.data.hotpotqa import find_hotpotqa

    sizes = [
        read_text(packaged_data("minihop", f"{name}.jsonl")).count("\n")
        for name in ("documents", "questions")
    ]
    yield Check("MiniHop", True, "shipped, {} documents and {} questions".format(*sizes))
    hotpot = find_hotpotqa()
    do = "ragbench data fetch hotpotqa, or set RAGBENCH_DATA to a folder with hotpotqa/"
    yield Check(
        "HotpotQA",
        bool(hotpot),
        hotpot.name if hotpot else "not here; the notebooks use MiniHop",
        do,
        True,
    )
    for name, place in _SHARED.items():
        ok = shared_data(place) is not None
        what = f"in RAGBENCH_DATA/{place.partition('/')[0]}" if ok else "not here"
        yield Check(
            name,
            ok,
            what,
            f"set RAGBENCH_DATA to a folder and put it there as {place}",
            optional=True,
        )
    size = sum(path.stat().st_size for path in cache_dir().rglob("*") if path.is_file())
    yield Check("cache", True, f"{size / 2**20:.0f} MiB")


def _ollama() -> Check:
    from ollama import Client

    from ragbench.llm.failures import START_OLLAMA, printable
    from ragbench.llm.models import ollama_settings

    do = f"{START_OLLAMA}; then for instance `ollama pull llama3:8b`. Without it: smollm2"
    try:
        host, settings = ollama_settings(None, {}, 2.0)
        names = [printable(str(model.model)) for model in Client(host, **settings).list().models]
    except Exception:  # of ollama, httpx, json and pydantic
        return Check(
            "Ollama",
            False,
            "no server; retrieval, word metrics and replays need none",
            do,
            optional=True,
        )
    what = f"{len(names)} models: {', '.join(names[:5])}" if names else "no models"
    return Check("Ollama", True, what, do, optional=True)
