"""RAGChecker's experiment (Ru et al. 2024, App. D): 20 chunks of 300 tokens, overlap 0.2, all shown
to the generator.

`grid` is the experiment, `benchmark_grid` that on one of the paper's ten sets. `results` turns rows
into records whose claims a model takes out and checks (`ragbench.ragchecker_labels`). Notebook 23
turns the labels into the eleven metrics, and has what the retriever's metrics come to where claims
are sentences of documents.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from ragbench.chunking import token_chunks
from ragbench.data import load_clapnq, load_ragchecker_benchmark
from ragbench.data.ragchecker import RagResult
from ragbench.embedding import make_embedder
from ragbench.errors import ConfigError, check_known
from ragbench.experiment import Experiment
from ragbench.experiment.axes import is_model
from ragbench.records import Dataset
from ragbench.retrieval import make_retriever

ANSWER_PROMPTS = {"default": "ragchecker_default", "optimised": "ragchecker_optimised"}
# BM25 as in OpenSearch, MiniLM, and both fused by rank.
_WORDS = {"variant": "lucene", "tokenizer": "plain"}
PAPER_RETRIEVERS: Mapping[str, Callable[[Sequence[Any]], Any]] = {
    "BM25": partial(make_retriever, "BM25", **_WORDS),
    "SIM": partial(make_retriever, "SIM"),
    "hybrid": partial(make_retriever, "Hybrid", **_WORDS),
}


@dataclass(frozen=True, slots=True)
class Setting:
    """Chunks, tokens in each, the share that neighbours share, the prompt (App. D)."""

    k: int = 20
    size: int = 300
    overlap: float = 0.2
    prompt: str = "default"

    @property
    def chunker(self) -> str:
        """Name of its chunker in the grid."""
        return f"{self.size} tokens, overlap {self.overlap:g}"

    @property
    def windows(self) -> partial:
        """Its chunker; within a word where a size falls."""
        return partial(token_chunks, size=self.size, overlap=self.overlap, words=False)


DEFAULT = Setting()


def grid(
    name: str,
    data: Dataset,
    retrievers: Mapping[str, Callable],
    generators: Mapping[str, Any] | None = None,
    settings: Sequence[Setting] = (DEFAULT,),
    **options: Any,
) -> Experiment:
    """Build the experiment; a context is all k chunks, uncut.

    ``generators``: name -> chat model, or an object that answers; None: retrieval only. Chat models
    get RAGChecker's default prompt; one that is called "optimised" gets the other, and answers only
    under the settings with that prompt. ``options``: for `Experiment`.

    Source: RAGChecker, appendices D and F (temperature 0, at most 2,048 new tokens: options of the
    chat model).
    """
    if not settings:
        raise ConfigError(
            "no settings", "at least one", "leave settings out for the paper's default"
        )
    wanted = {(setting.chunker, setting.k, setting.prompt) for setting in settings}
    models = _chat_models(generators)
    return Experiment(
        name,
        data={data.name: data},
        chunker={setting.chunker: setting.windows for setting in settings},
        retriever=retrievers,
        k=sorted({setting.k for setting in settings}),
        N=max(setting.k * setting.size for setting in settings),
        generator=generators,
        prompts={label: ANSWER_PROMPTS[_prompt(label)] for label in models},
        keep=lambda cell: (cell.chunker, cell.k, _prompt(cell.generator)) in wanted,
        **options,
    )


def _chat_models(generators: Mapping[str, Any] | None) -> list[str]:
    return [name for name, generator in (generators or {}).items() if is_model(generator)]


def _prompt(generator: str) -> str:
    if generator in ANSWER_PROMPTS:
        return generator
    return DEFAULT.prompt


CLAPNQ_SEED = 20261126  # of the order of its questions; drawn before any was asked


# domain of the benchmark -> its name in Table 1, and the table with its numbers
BENCHMARKS: Mapping[str, tuple[str, str]] = {
    "clapnq": ("ClapNQ", "Table 6"),
    "novelqa": ("NovelQA", "Table 7"),
    "writing": ("RobustQA Writing", "Table 8"),
    "bioasq": ("RobustQA BioASQ", "Table 9"),
    "finance": ("RobustQA Finance", "Table 10"),
    "lifestyle": ("RobustQA Lifestyle", "Table 11"),
    "recreation": ("RobustQA Recreation", "Table 12"),
    "science": ("RobustQA Science", "Table 13"),
    "technology": ("RobustQA Technology", "Table 14"),
    "kiwi": ("KIWI", "Table 15"),
}


def _sample(
    domain: str = "clapnq", questions: int | None = 50, benchmark: str | Path | None = None
) -> Dataset:
    """Return the first ``questions`` of a fixed random order, over RAGChecker's passages of the
    domain; ClapNQ's without ``benchmark`` over the gold passages of all 300.
    """
    check_known("domain", [domain], BENCHMARKS)
    load = partial(load_ragchecker_benchmark, domain, benchmark)
    if domain == "clapnq" and benchmark is None:
        load = load_clapnq
    data = load()
    return replace(data, questions=tuple(data.shuffled(CLAPNQ_SEED)[:questions]))


def benchmark_grid(
    domain: str,
    generator: Any = None,
    questions: int | None = None,
    k: int = 20,
    benchmark: str | Path | None = None,
    embedder: str = "minilm",
    **options: Any,
) -> Experiment:
    """Build the experiment on one of the ten sets: BM25 and dense retrieval, k chunks of 300
    tokens, RAGChecker's default prompt.

    Parameters
    ----------
    domain : of `BENCHMARKS`.
    generator : name -> chat model; None: retrieval only.
    questions : the first so many of a fixed random order; None for all.
    benchmark : the folder of `ragbench.data.load_ragchecker_benchmark`; None: the folder of data
        sets, and for ClapNQ its gold passages.
    embedder : of the dense retriever, for `ragbench.make_embedder`; the retriever has its name. The
        paper: E5-Mistral.
    options : for `Experiment`.

    Source: RAGChecker, section 4.1 and appendix D.
    """
    size = 300
    data = _sample(domain, questions, benchmark)
    dense = partial(make_retriever, "SIM", embedder=make_embedder(embedder))
    return Experiment(
        f"ragchecker-{domain}",
        data={data.name: data},
        chunker={"300 tokens, overlap 0.2": partial(token_chunks, size=size, overlap=0.2)},
        retriever={"BM25": PAPER_RETRIEVERS["BM25"], dense_name(embedder): dense},
        k=(k,),
        N=2 * k * size,  # more tokens than the chunks have: nothing is cut off
        generator=generator,
        prompts=dict.fromkeys(_chat_models(generator), ANSWER_PROMPTS["default"]),
        **options,
    )


def dense_name(embedder: str) -> str:
    """Return the name of the dense retriever in rows: MiniLM, or that of another embedder."""
    return "MiniLM" if embedder == "minilm" else embedder


def clapnq_grid(
    generator: Any = None, questions: int = 50, k: int = 5, **options: Any
) -> Experiment:
    """Build the experiment that was recorded: `benchmark_grid` on ClapNQ, smaller.

    Departs from RAGChecker, appendix D: 5 chunks in place of 20, since the corpus is the gold
    passages of 300 questions and not 4,293 documents; MiniLM in place of E5-Mistral; answers of at
    most 512 tokens, an option of the chat model.
    """
    return benchmark_grid("clapnq", generator, questions, k, **options)


def row_ids(rows: pd.DataFrame) -> pd.Series:
    """Name the place of each row in the grid, as the ids of `results`."""
    axes = ["question_id", "chunker", "retriever", "k", "generator"]
    return rows[axes].astype(str).agg("/".join, axis=1)


def results(rows: pd.DataFrame) -> list[RagResult]:
    """Turn the rows of a grid that did not fail into RAGChecker's results, named by their places in
    the grid.

    The true answer's claims are the data set's own where there are any, else they are not known
    yet.
    """
    done = rows[rows["status"] == "ok"]
    places = ("question_id", "retriever", "generator")
    records = zip(row_ids(done), done.to_dict("records"), strict=True)
    return [
        RagResult.of_row(name, row, **{place: row[place] for place in places})
        for name, row in records
    ]
