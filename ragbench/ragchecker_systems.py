"""RAGChecker's experiment on systems of our own (Ru et al. 2024, sections 4.1, 4.3, App. D): retrievers x generators.

Questions with long answers -> `systems` (an Experiment: responses, row by row, resumable) -> `as_results` -> `label`
(embedded or a model) -> `score_rows` (metrics per response) -> `means`, `retriever_differences`, `recall_by_k`.

The generators without a language model copy sentences (`ragbench.ragchecker_readers`): what retrieval does shows, how a
language model uses, misreads or ignores its context does not.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from ragbench.errors import DataError, unknown
from ragbench.generation import ExtractiveReader
from ragbench.ragchecker_readers import LeadSentences, NearestSentences
from ragbench.records import Dataset

if TYPE_CHECKING:
    import pandas as pd

    from ragbench.data.ragchecker import RagResult, RagResults
    from ragbench.experiment import Experiment
    from ragbench.metrics.steps import Labelled

SIZE, OVERLAP, K = 300, 0.2, 20  # App. D
SYSTEM = ["retriever", "generator"]
DATA = ("minihop", "clapnq")


def generators(data: Dataset, model: str | None = None, **options: Any) -> dict[str, Any]:
    """Return the generators of the notebook by name: four without a language model, and ``model`` when it is named.

    Parameters
    ----------
    data : whose questions and sentences are embedded here in one call, for ``nearest``.
    model : for example ``"ollama:llama3:8b"``; None for the four alone.
    options : for `ragbench.llm.chat_model`: ``host`` ... The context window is 16,384 tokens unless you say otherwise,
        since 20 chunks of 300 tokens and a reply of 2,048 must fit.
    """
    near = NearestSentences(3)
    near.warm([q.text for q in data.questions], [d.text for d in data.documents])
    made: dict[str, Any] = {
        "lead 3": LeadSentences(3),
        # Without a threshold it never abstains: an abstention would count as a wrong claim.
        "reader": ExtractiveReader(threshold=0),
        "nearest 3": near,
        "nearest 8": near.with_n(8),
    }
    if model is not None:
        from ragbench.llm import chat_model

        made[model] = chat_model(model, **{"num_ctx": 16384, **options})
    return made


def retrievers() -> dict[str, Callable[[Sequence[Any]], Any]]:
    """Return how each retriever is built from chunks: BM25 (as in OpenSearch), SIM (MiniLM), and both fused by rank."""
    from ragbench.embedding import default_embedder
    from ragbench.retrieval import BM25, Dense, Hybrid

    def bm25(chunks: Sequence[Any]) -> Any:
        return BM25(chunks, variant="lucene")

    def sim(chunks: Sequence[Any]) -> Any:
        return Dense(chunks, default_embedder())

    return {"BM25": bm25, "SIM": sim, "hybrid": lambda chunks: Hybrid([bm25(chunks), sim(chunks)])}


def dataset(name: str = "minihop", limit: int | None = None) -> Dataset:
    """Load questions with long answers.

    Parameters
    ----------
    name : ``"minihop"`` (65 questions, claims by hand) or ``"clapnq"`` (300, without claims; in RAGBENCH_DATA).
    limit : keep the first so many questions; the documents stay complete.

    Returns
    -------
    Dataset whose ``answer`` is the long answer; ``meta["claims"]`` holds its claims as texts, or None.

    Raises
    ------
    ConfigError for another name; DataError when ClapNQ is asked for and absent.
    """
    from ragbench.data import load_clapnq, load_minihop

    if name not in DATA:
        raise unknown("data set with long answers", name, DATA)
    data = load_minihop() if name == "minihop" else load_clapnq()
    questions = []
    for q in data.questions:
        claims = q.meta.get("claims")
        meta = dict(q.meta) | {"claims": None if claims is None else tuple(c["text"] for c in claims)}
        if name == "clapnq" or q.meta.get("long_answer"):
            questions.append(replace(q, answer=q.meta.get("long_answer", q.answer), meta=meta))
    return replace(data, questions=tuple(questions[:limit]))


def systems(data: Dataset, answerers: Mapping[str, Any], *, cassette: Any = None, **settings: Any) -> Experiment:
    """Set up the grid of App. D: 300 tokens, overlap 0.2, the 20 best chunks, all of them shown to the generator.

    Parameters
    ----------
    data : from `dataset`.
    answerers : name -> reader or chat model, from `generators`.
    cassette : file that records a model's replies.
    settings : for `ragbench.experiment.Experiment`, e.g. ``folder`` or ``concurrency``.

    Returns
    -------
    Experiment: ``plan()``, ``run()``. Its rows lie in ``data/results/ragchecker_systems_<data>`` as they are made, and
    are not made again.

    Source: RAGChecker, App. D; its prompt in our words (``ragchecker_default``).
    """
    from ragbench.chunking import token_chunks
    from ragbench.experiment import Experiment

    models = [name for name, value in answerers.items() if not callable(getattr(value, "answer", None))]
    return Experiment(
        f"ragchecker_systems_{data.name}",
        data={data.name: data},
        chunker={f"{SIZE} tokens, overlap {OVERLAP}": lambda documents: token_chunks(documents, SIZE, OVERLAP)},
        retriever=retrievers(),
        k=K,
        N=(K * SIZE,),
        generator=dict(answerers),
        prompts=dict.fromkeys(models, "ragchecker_default"),
        cassette=cassette,
        **settings,
    )


def as_results(rows: pd.DataFrame, data: Dataset) -> RagResults:
    """Turn the experiment's rows into RAGChecker's results: question, reference answer, response, retrieved texts.

    Parameters
    ----------
    rows : from ``systems(...).run()``. Failed rows are left out here; `score_rows` counts them.
    data : the same data set; claims it ships are taken over as reference claims.

    Returns
    -------
    RagResults with ids ``question|retriever|generator``; ``extra`` names question, retriever and generator.
    """
    from ragbench.chunking import token_chunks
    from ragbench.data.ragchecker import RagResult, RagResults, RetrievedText

    chunks = {c.id: RetrievedText(c.text, c.doc_id) for c in token_chunks(data.documents, SIZE, OVERLAP)}
    questions = {q.id: q for q in data.questions}
    made = []
    for row in rows[rows["status"] == "ok"].to_dict("records"):
        lacking = {row["question_id"]} - set(questions) or set(row["hits"]) - set(chunks)
        if lacking:
            raise DataError(f"rows about {min(lacking)!r}", f"questions and chunks of {data!r}", "load the same data")
        q = questions[row["question_id"]]
        about = {name: row[name] for name in ("question_id", *SYSTEM)}
        found = tuple(chunks[i] for i in row["hits"])
        claims = q.meta.get("claims")
        name = "|".join(about.values())
        made.append(RagResult(name, q.text, q.answer, row["answer"], found, reference_claims=claims, extra=about))
    return RagResults(tuple(made))


def label(results: RagResults, judge: str = "embedded", *, cassette: Any = None, **options: Any) -> Labelled:
    """Extract and check the claims, by the judge that a parameter cell names.

    Parameters
    ----------
    results : from `as_results`.
    judge : ``"embedded"`` (no LLM), or a model for extraction and checking: ``"ollama:llama3:70b"``.
    cassette : file that records the model's replies; with the environment variable RAGBENCH_CASSETTE=replay nothing
        else is asked.
    options : for `ragbench.llm.chat_model`: ``host`` ...
    """
    if judge == "embedded":
        from ragbench.judge import embedded_labels

        return embedded_labels(results)
    from ragbench.llm import Cassette, chat_model
    from ragbench.metrics.steps import ragchecker_labels

    tape = Cassette(cassette) if isinstance(cassette, (str, os.PathLike)) else cassette
    return ragchecker_labels(chat_model(judge, **options), results, cassette=tape)


def score_rows(labelled: Labelled, rows: pd.DataFrame) -> pd.DataFrame:
    """Compute the eleven metrics of every response.

    Parameters
    ----------
    labelled : from `label`.
    rows : the experiment's rows; those that failed, or whose labels could not be read, have NaN in every metric.

    Returns
    -------
    DataFrame, one row per response: question_id, retriever, generator, the metrics (in [0, 1]), the numbers of claims
    and chunks, and ``scored``.
    """
    import pandas as pd

    from ragbench.metrics.claims import claim_metrics_table

    keys = ["question_id", *SYSTEM]
    scored = labelled.scored.results
    table = claim_metrics_table(scored).reset_index(drop=True)
    names = pd.DataFrame([[r.extra[key] for key in keys] for r in scored], columns=keys, dtype=object)
    found = pd.concat([names, table], axis=1).assign(scored=True)
    whole = rows[keys].astype(object).merge(found, on=keys, how="left", validate="1:1")
    return whole.assign(scored=whole["scored"].eq(True))


def means(scores: pd.DataFrame, resamples: int = 1000) -> pd.DataFrame:
    """Average each metric by system, with a bootstrap interval over questions: the rows of Tables 3 and 6-15.

    Returns
    -------
    DataFrame: retriever, generator, metric, mean, low, high (all in [0, 1]), n (defined) and unscored.
    """
    import pandas as pd

    from ragbench.metrics.claims import METRICS
    from ragbench.stats import bootstrap_ci

    made = []
    for system, part in scores.groupby(SYSTEM, sort=False):
        for metric in METRICS:
            i = bootstrap_ci(part[metric], resamples=resamples)
            made.append((*system, metric, i.estimate, i.low, i.high, i.n, i.n_missing))
    return pd.DataFrame(made, columns=[*SYSTEM, "metric", "mean", "low", "high", "n", "unscored"])


def retriever_differences(scores: pd.DataFrame, metric: str = "f1", resamples: int = 1000) -> pd.DataFrame:
    """Compare retrievers under each generator, question by question.

    Returns
    -------
    DataFrame: generator, better, worse (by the mean), difference with interval, p (paired permutation test), p_holm
    (corrected for all rows of this table), n.
    """
    import pandas as pd

    from ragbench.stats import holm, paired_bootstrap_difference, paired_permutation_test

    made = []
    for generator, part in scores.groupby("generator", sort=False):
        wide = part.pivot(index="question_id", columns="retriever", values=metric)
        for pair in combinations(dict.fromkeys(part["retriever"]), 2):
            both = wide[list(pair)].dropna()
            better, worse = sorted(pair, key=lambda name: -both[name].mean())
            i = paired_bootstrap_difference(both[better], both[worse], resamples=resamples)
            p = paired_permutation_test(both[better], both[worse]).p_value
            made.append((generator, better, worse, i.estimate, i.low, i.high, p, i.n))
    columns = ["generator", "better", "worse", "difference", "low", "high", "p", "n"]
    table = pd.DataFrame(made, columns=columns)
    table.insert(7, "p_holm", holm(table["p"]))
    return table


def recall_by_k(results: Sequence[RagResult], ks: Sequence[int] = (1, 2, 5, 10, K)) -> pd.DataFrame:
    """Claim recall of each retriever with its first k chunks, from labels that are there.

    Returns
    -------
    DataFrame, index retriever, columns ks: mean over questions of the share of reference claims that one of the first
    k chunks entails (questions without reference claims left out). Generators share their retriever's labels.
    """
    import pandas as pd

    seen = {(r.extra["question_id"], r.extra["retriever"]): r.reference_in_chunks for r in results}
    made = [
        [retriever, *(np.mean(["Entailment" in row[:k] for row in labels]) for k in ks)]
        for (_, retriever), labels in seen.items()
        if labels
    ]
    return pd.DataFrame(made, columns=["retriever", *ks]).groupby("retriever", sort=False).mean()
