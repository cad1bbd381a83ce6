"""What is installed, which data sets and models are there, and what to do about what is not."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ragbench import llm
from ragbench.errors import RagbenchError
from ragbench.paths import shared_data

_PROMPT = (
    "Text: The library opens at nine.\nDoes the text say when the library opens? "
    'Answer with JSON: {"labels": ["yes"]} or {"labels": ["no"]}.'
)
# What brings each; with a command of pip it is an extra, which nothing else needs.
_PACKAGES = dict.fromkeys(
    ("jupyterlab", "ipywidgets", "langchain_ollama", "onnxruntime", "numba"), "run `make setup`"
) | {
    "langchain_openai": "pip install 'ragbench-lab[openai]'",
    "xllamacpp": "pip install 'ragbench-lab[local]'",
    "distributed": "pip install 'ragbench-lab[dask]'",
}
_SHARED = {
    "RAGChecker meta-evaluation": "ragchecker/meta_evaluation",
    "WikiEval": "wikieval/wikieval.jsonl",
    "DRAGONBall": "rageval/dragonball_docs.jsonl",
    "ClapNQ": "clapnq/clapnq_dev_answerable.jsonl",
    "RefChecker labels": "refchecker/human_annotations_v1.jsonl.gz",
}


@dataclass(frozen=True)
class _Check:
    """One line of the report. ``optional`` checks may fail without harm."""

    name: str
    ok: bool
    what: str
    do: str = ""
    optional: bool = False


def checks(model: Any = None) -> list[_Check]:
    """Run every check, with a chat model those of it too. Nothing is downloaded, and no other
    server is contacted but Ollama's.
    """
    results = [*_packages(), *_weights(), *_data_checks(), _ollama()]
    if model is not None:
        results += _model_checks(model)
    return results


def _packages() -> Iterator[_Check]:
    for module, do in _PACKAGES.items():
        if importlib.util.find_spec(module) is not None:
            yield _Check(module, True, "installed")
        else:
            yield _Check(module, False, "not installed", do, optional=do.startswith("pip"))


def _weights() -> Iterator[_Check]:
    from ragbench.llm.local import SMOLLM2, SMOLLM2_SHA256, LocalServer
    from ragbench.weights import MINILM, RERANKER

    smollm2 = LocalServer(SMOLLM2, 0)
    verified: dict[str, Callable[[], Any]] = {
        "MiniLM": MINILM.verified,
        "Reranker": RERANKER.verified,
        "SmolLM2": lambda: smollm2.digest(SMOLLM2_SHA256),
    }
    for name, verify in verified.items():
        try:
            verify()
            yield _Check(f"{name} weights", True, "sha256 as published")
        except RagbenchError as error:
            yield _Check(f"{name} weights", False, error.got, error.do, optional=name != "MiniLM")


def _model_checks(model: Any) -> list[_Check]:
    """Ask a chat model a short question: does it answer, how fast, and keep to labels?"""
    schema = llm.label_schema(1, ("yes", "no"))
    (reply,) = llm.ask(model, [_PROMPT], schema, num_predict=64, retries=0, progress=False)
    if reply.error is not None and reply.error.kind not in ("unusable", "truncated"):
        what = f"{reply.model}: {reply.error.kind}: {reply.error.got}"
        return [_Check("model", False, what, reply.error.do)]
    facts = [
        reply.model,
        f"digest {reply.digest[:12] or 'none'}",
        llm.Endpoint.identified(model).weights,
        f"{reply.seconds:.1f} s for {reply.usage.output_tokens} tokens",
    ]
    answers = _Check("model", True, ", ".join(filter(None, facts)))
    if reply.error is not None:
        do = "a larger model may keep to it; whether it judges well is measured by rb.measure_judge"
        return [answers, _Check("labels", False, reply.error.got, do)]
    kept = "kept to after a repair try" if reply.repairs else "kept to at once"
    return [answers, _Check("labels", True, kept)]


def _data_checks() -> Iterator[_Check]:
    """Say which data sets are on this machine."""
    from ragbench.data.hotpotqa import find_hotpotqa

    yield _Check("MiniHop", True, "shipped, 270 documents and 180 questions")
    hotpot = find_hotpotqa()
    if hotpot is not None:
        yield _Check("HotpotQA", True, hotpot.name)
    else:
        yield _Check(
            "HotpotQA",
            False,
            "not here; the notebooks use MiniHop",
            "ragbench data fetch hotpotqa, or set RAGBENCH_DATA to a folder with hotpotqa/",
            optional=True,
        )
    for name, place in _SHARED.items():
        if shared_data(place) is not None:
            yield _Check(name, True, "in RAGBENCH_DATA")
        else:
            yield _Check(
                name,
                False,
                "not here",
                f"set RAGBENCH_DATA to a folder and put it there as {place}",
                optional=True,
            )


def _ollama() -> _Check:
    from ragbench.llm.failures import START_OLLAMA, redact
    from ragbench.llm.wire import OllamaServer

    do = f"{START_OLLAMA}; then for instance `ollama pull llama3:8b`. Without it: smollm2"
    try:
        names = [redact(name) for name in OllamaServer(timeout_s=2.0).models()]
    except Exception as error:  # of ollama, httpx and json
        why = redact(f"{type(error).__name__}: {error}")
        return _Check(
            "Ollama",
            False,
            f"no Ollama answers ({why}); retrieval, word metrics and replays need none",
            do,
            optional=True,
        )
    return _Check("Ollama", True, f"{len(names)} models: {', '.join(names[:5])}")
