"""RAGChecker's experiment (Ru et al. 2024, App. D): 20 chunks of 300 tokens, overlap 0.2, all shown to the generator.

`grid` is the experiment. `results` turns its rows into records whose claims are taken out and checked by a model
(`ragbench.ragchecker_labels`); `scores` turns the labels into the eleven metrics.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from ragbench.chunking import token_chunks
from ragbench.data import load_clapnq, load_minihop
from ragbench.data.ragchecker import RagResult, RetrievedText
from ragbench.errors import ConfigError, DataError, check_known
from ragbench.experiment import Experiment
from ragbench.experiment.axes import is_model
from ragbench.llm import chat_model, model_name
from ragbench.records import Chunk, Dataset, Document
from ragbench.retrieval import make_retriever

PROMPTS = {"default": "ragchecker_default", "optimised": "ragchecker_optimised"}
_CLAIMS = ("references", "answers")
RETRIEVER_METRICS = ("claim_recall", "context_precision")  # the metrics that need no response
NOISE = ("relevant_noise_sensitivity", "irrelevant_noise_sensitivity")
# Sets with long answers; see `long_answered`.
DATA: Mapping[str, Callable[..., Dataset]] = {"minihop": load_minihop, "clapnq": load_clapnq}
SYSTEM = ["retriever", "generator"]
# BM25 as in OpenSearch, MiniLM, and both fused by rank.
_WORDS = {"variant": "lucene", "tokenizer": "plain"}
RETRIEVERS: Mapping[str, Callable[[Sequence[Any]], Any]] = {
    "BM25": partial(make_retriever, "BM25", **_WORDS),
    "SIM": partial(make_retriever, "SIM"),
    "hybrid": partial(make_retriever, "Hybrid", **_WORDS),
}
_ABOUT = ["question_id", "kind", "domain", "cluster", "retriever", "generator", "k", "size", "overlap", "prompt"]


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


DEFAULT = Setting()


@dataclass(frozen=True, slots=True)
class _Windows:
    """A chunker of one size and overlap, within a word where a size falls. Once is enough for a run and its scores."""

    size: int
    overlap: float
    _kept: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def __call__(self, documents: Iterable[Document]) -> list[Chunk]:
        """Cut documents."""
        if self._kept.get("documents") is not documents:
            self._kept.update(documents=documents, chunks=token_chunks(documents, self.size, self.overlap, words=False))
        return self._kept["chunks"]


def grid(
    name: str,
    data: Dataset,
    retrievers: Mapping[str, Callable],
    generators: Mapping[str, Any] | None = None,
    settings: Sequence[Setting] = (DEFAULT,),
    **options: Any,
) -> Experiment:
    """Build the experiment; a context is all k chunks, uncut.

    ``generators``: name -> chat model, or an object that answers; None: retrieval only. Chat models get RAGChecker's
    default prompt; one that is called "optimised" gets the other, and answers only under the settings with that prompt.
    ``options``: for `Experiment`.

    Source: RAGChecker, appendices D and F (temperature 0, at most 2,048 new tokens: options of the chat model).
    """
    if not settings:
        raise ConfigError("no settings", "at least one", "leave settings out for the paper's default")
    wanted = {(s.chunker, s.k, s.prompt) for s in settings}
    models = [label for label, generator in (generators or {}).items() if is_model(generator)]
    return Experiment(
        name,
        data={data.name: data},
        chunker={s.chunker: _Windows(s.size, s.overlap) for s in settings},
        retriever=retrievers,
        k=sorted({s.k for s in settings}),
        N=max(s.k * s.size for s in settings),
        generator=generators,
        prompts={label: PROMPTS[_prompt(label)] for label in models},
        keep=lambda cell: (cell.chunker, cell.k, _prompt(cell.generator)) in wanted,
        **options,
    )


def _prompt(generator: str) -> str:
    return generator if generator in PROMPTS else DEFAULT.prompt


def long_answered(data: Dataset, limit: int | None = None) -> Dataset:
    """Keep the (first ``limit``) questions with a long answer and exclude the others; all where none is marked long."""
    short = [q for q in data.questions if not q.meta.get("long_answer")]
    if len(short) == len(data.questions):  # ClapNQ: all its answers are long
        return replace(data, questions=data.questions[:limit])
    kept = tuple(q for q in data.questions if q.meta.get("long_answer"))[:limit]
    return replace(data, questions=kept, excluded=(*data.excluded, *((q.id, "no long answer") for q in short)))


CLAPNQ_SEED = 20261126  # of the order of its questions; drawn before any was asked


def clapnq_sample(questions: int = 50) -> Dataset:
    """Return ClapNQ with the first ``questions`` of a fixed random order, and the gold passages of all 300."""
    data = load_clapnq()
    ordered = sorted(data.questions, key=lambda question: question.id)
    random.Random(CLAPNQ_SEED).shuffle(ordered)
    return replace(data, questions=tuple(ordered[:questions]))


def clapnq_grid(generator: Any = None, questions: int = 50, **options: Any) -> Experiment:
    """Build the experiment on ClapNQ: BM25 and dense retrieval, 5 chunks of 300 tokens, RAGChecker's default prompt.

    ``generator``: name -> chat model; None: retrieval only. ``options``: for `Experiment`.

    Departs from RAGChecker, appendix D: 5 chunks in place of 20, since the corpus is the gold passages of 300 questions
    and not 4,293 documents; MiniLM in place of E5-Mistral; answers of at most 512 tokens, an option of the chat model.
    """
    size, k = 300, 5
    models = [name for name, value in (generator or {}).items() if is_model(value)]
    return Experiment(
        "ragchecker-clapnq",
        data={"clapnq": clapnq_sample(questions)},
        chunker={"300 tokens, overlap 0.2": partial(token_chunks, size=size, overlap=0.2)},
        retriever={"BM25": RETRIEVERS["BM25"], "MiniLM": RETRIEVERS["SIM"]},
        k=(k,),
        N=2 * k * size,  # more tokens than the chunks have: nothing is cut off
        generator=generator,
        prompts=dict.fromkeys(models, PROMPTS["default"]),
        **options,
    )


def _row_ids(rows: pd.DataFrame) -> pd.Series:
    return rows[["question_id", "chunker", "retriever", "k", "generator"]].astype(str).agg("/".join, axis=1)


def results(experiment: Experiment, rows: pd.DataFrame, claims: str = "answers") -> list[RagResult]:
    """Turn the rows of a `grid` that did not fail into RAGChecker's results, named by their places in the grid.

    ``claims`` of ``"answers"`` are those of the true answer (the data set's own where there are any) and of the
    response. ``"references"``: the retriever's half; a question's references are the claims, responses are left out.
    """
    check_known("kind of claims", [claims], _CLAIMS)
    (data,) = experiment.data.values()
    questions = {q.id: q for q in data.questions}
    chunks = {
        name: {c.id: RetrievedText(text=c.text, doc_id=c.doc_id) for c in cut(data.documents)}
        for name, cut in experiment.chunker.items()
    }
    responses = []
    done = rows[rows["status"] == "ok"]
    for row, row_id in zip(done.itertuples(), _row_ids(done), strict=True):
        lacking = {row.question_id} - set(questions) or set(row.hits) - set(chunks[row.chunker])
        if lacking:
            raise DataError(f"rows about {min(lacking)!r}", f"questions and chunks of {data!r}", "load the same data")
        q = questions[row.question_id]
        if claims == "references":
            texts: dict[str, Any] = {"reference": "\n".join(q.references), "response": "", "response_claims": ()}
            texts["reference_claims"] = q.references
        else:
            given = q.meta.get("claims")
            texts = {"reference": q.meta.get("long_answer") or q.answer, "response": row.answer}
            texts["reference_claims"] = None if given is None else tuple(claim["text"] for claim in given)
        about = {"question_id": q.id, "retriever": row.retriever, "generator": row.generator}
        retrieved = tuple(chunks[row.chunker][name] for name in row.hits)
        responses.append(RagResult(row_id, q.text, **texts, chunks=retrieved, extra=about))
    return responses


def scores(experiment: Experiment, rows: pd.DataFrame, labelled: Any, claims: str = "answers") -> pd.DataFrame:
    """Score every row of a run with RAGChecker's metrics; ``labelled`` are its `results` with their labels.

    Columns: those of the row; domain, cluster (of `question_clusters`), size, overlap and prompt; the eleven metrics in
    [0, 1] and the numbers of claims and chunks; noise_sensitivity (the sum of the two kinds); scored. NaN where a
    metric is undefined, the row failed or its labels could not be read, and for ``"references"`` in all but
    `RETRIEVER_METRICS`.

    Source: RAGChecker, section 3.3.
    """
    from ragbench.metrics.claims import claim_metrics_table

    table = claim_metrics_table(labelled.scored.results)
    ids = _row_ids(rows)
    scored = ids.isin(table.index).to_numpy()
    table = table.reindex(ids).reset_index(drop=True)
    if claims == "references":
        table[[name for name in table if name not in RETRIEVER_METRICS]] = np.nan  # of responses that were left out
    table["noise_sensitivity"] = table[list(NOISE)].sum(axis=1, skipna=False)
    (data,) = experiment.data.values()
    windows = rows["chunker"].map(experiment.chunker)
    place = rows.assign(
        domain=rows["question_id"].map({q.id: q.meta.get("domain", "") for q in data.questions}),
        cluster=rows["question_id"].map(question_clusters(data)),
        k=rows["k"].astype(int),
        size=[w.size for w in windows],
        overlap=[w.overlap for w in windows],
        prompt=rows["generator"].map(_prompt),
    )
    return place[[*_ABOUT, "context_tokens"]].reset_index(drop=True).join(table).assign(scored=scored)


def question_clusters(data: Dataset) -> dict[str, int]:
    """Number the clusters of questions that documents tie together: what one document is like, moves them all."""
    from ragbench.data.relevance import linked_questions

    known = {document.id for document in data.documents}
    return linked_questions(
        {q.id: known.intersection(q.meta.get("doc_ids", ())) or {q.meta.get("topic")} - {None} for q in data.questions}
    )


def generator(model: str | Mapping[str, Any], **options: Any) -> dict[str, Any]:
    """Return a chat model under its name, with a context window for 20 chunks of 300 tokens and a reply of 2,048.

    ``options`` are of `ragbench.llm.chat_model`.
    """
    return {model_name(model): chat_model(model, **{"num_ctx": 16384, "num_predict": 2048, **options})}
