"""Reranking: another retriever's hits, put in the order in which a model scores them against the query.

Follows Nogueira and Cho, "Passage Re-ranking with BERT" (2019), with any cross-encoder; or a chat model that gives each
passage a number from 0 to 10 (pointwise). `make_scorer` makes a scorer by name.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, Field

from ragbench.errors import ConfigError, ModelError, check_known
from ragbench.onnx_models import Classifier
from ragbench.prompts import fill_prompt, load_prompt, prompt_hash
from ragbench.records import Hit
from ragbench.retrieval.base import Retriever, Scopes, check_positive, check_retriever, describe, model_name, ranked

Pair = tuple[str, str]  # query, passage
PROMPT = "rerank_passage"


class Rerank(Retriever):
    """The best hits of another retriever, by a scorer that reads query and chunk together.

    Parameters
    ----------
    retriever : finds the candidates.
    scorer : with ``score(pairs)``, pairs of (query, text), higher is better: `OnnxScorer`, `ModelScorer`, your own.
    depth : candidates scored for each query.
    k : hits per ``invoke()``.

    Equal scores stay in the retriever's order. A hit's score is the scorer's.

    Raises
    ------
    ConfigError for something that is no retriever or scorer; ModelError for one that gives another number of scores.
    """

    retriever: Any
    depth: int
    scorer: Any

    def __init__(self, retriever: Any, scorer: Any, depth: int = 50, *, k: int = 10) -> None:
        if not callable(getattr(scorer, "score", None)):
            raise ConfigError(
                f"the scorer is {type(scorer).__name__}",
                "an object with score(pairs)",
                "in experiment.yaml, write reranker: onnx:FOLDER or reranker: ollama:NAME; see docs/models.md",
            )
        depth, k = check_positive("depth", depth), check_positive("k", k)
        super().__init__(retriever=check_retriever(retriever), depth=depth, scorer=scorer, k=k)

    @property
    def asking(self) -> Asking | None:
        """What a scorer will ask a model, for a plan; None where it asks none."""
        return Asking(self.scorer, self.depth) if isinstance(self.scorer, ModelScorer) else None

    def settings(self) -> dict[str, Any]:
        about = {"retriever": "Rerank", "depth": self.depth, "scorer": describe(self.scorer)}
        return about | {"over": describe(self.retriever)}

    def _search(self, queries: list[str], k: int, scopes: Scopes) -> list[list[Hit]]:
        candidates = self.retriever.search(queries, max(k, self.depth), scopes)
        pairs = [(query, hit.chunk.text) for query, hits in zip(queries, candidates, strict=True) for hit in hits]
        scores = [float(score) for score in self.scorer.score(pairs)] if pairs else []
        if len(scores) != len(pairs) or any(score != score for score in scores):
            raise ModelError(
                f"{type(self.scorer).__name__} gave {len(scores)} scores for {len(pairs)} pairs, or one that is NaN",
                "one number for each pair",
                "check its score method",
            )
        rest = iter(scores)
        scored = [[(hit.chunk, next(rest)) for hit in hits] for hits in candidates]
        return [ranked(sorted(pairs, key=lambda pair: -pair[1])[:k]) for pairs in scored]


class OnnxScorer:
    """A cross-encoder in a folder: the logit of relevance of (query, text), the best of its windows for a long text.

    Parameters
    ----------
    folder, max_tokens : as for `ragbench.onnx_models.Classifier`. A model of several labels is read at its last one.
    """

    def __init__(self, folder: str | os.PathLike[str], *, max_tokens: int | None = None) -> None:
        self._model = Classifier(folder, max_tokens=max_tokens)

    def settings(self) -> dict[str, Any]:
        """Return every parameter that can change a score."""
        return {"scorer": f"onnx:{self._model.folder.path.name}", "digest": self._model.digest}

    def score(self, pairs: Sequence[Pair]) -> list[float]:
        """Score (query, text) pairs."""
        return [float(logits[:, -1].max()) for logits in self._model.logits(pairs)]


class _Relevance(BaseModel):
    score: int = Field(ge=0, le=10)


class ModelScorer:
    """A chat model that gives each passage a number from 0 to 10, in a call of its own.

    Parameters
    ----------
    model : as for `ragbench.llm.ask`.
    cassette, options : for `ragbench.llm.ask`.
    """

    def __init__(self, model: Any, cassette: Any = None, **options: Any) -> None:
        self.model, self.cassette, self.options = model, cassette, options
        self._text = load_prompt(PROMPT)

    def settings(self) -> dict[str, Any]:
        """Return what can change a score, ready for JSON."""
        return {"scorer": "model", "model": model_name(self.model), "prompt_sha256": prompt_hash(PROMPT)}

    def prompts(self, pairs: Sequence[Pair]) -> list[str]:
        """Return what the model is asked, one prompt per pair."""
        return [fill_prompt(self._text, query=query, passage=text) for query, text in pairs]

    def score(self, pairs: Sequence[Pair]) -> list[float]:
        """Score (query, text) pairs; ModelError where a reply cannot be read (the cassette keeps the others)."""
        from ragbench.llm import ask

        replies = ask(
            self.model, self.prompts(pairs), schema=_Relevance, cassette=self.cassette, step=Asking.step, **self.options
        )
        failed = [reply for reply in replies if not reply.ok]
        if failed:
            raise ModelError(
                f"{len(failed)} of {len(replies)} passages got no score; the first: {failed[0].error}",
                "a number from 0 to 10",
                "run again with the same cassette: only these are asked again",
            )
        return [float(reply.parsed.score) for reply in replies]


class Asking:
    """The calls of a `ModelScorer` before there are passages; as a plan takes them from `decomposers_with_prompts`."""

    step = "rerank"

    def __init__(self, scorer: ModelScorer, depth: int) -> None:
        self.model, self.cassette, self.settings = scorer.model, scorer.cassette, scorer.settings
        self._scorer, self._depth = scorer, depth

    def prompts(self, questions: Sequence[str]) -> list[str]:
        """Return a prompt for each candidate of each question, with a passage of 200 words that stands for it."""
        passages = [f"{i} " + "word " * 200 for i in range(self._depth)]
        return self._scorer.prompts([(question, passage) for question in questions for passage in passages])


def make_scorer(name: str, **options: Any) -> Any:
    """Make a scorer by name.

    Parameters
    ----------
    name : ``"onnx:FOLDER"``, or a chat model such as ``"ollama:llama3:8b"``.
    options : ``max_tokens`` of a folder; ``cassette`` and those of `ragbench.llm.chat_model` for a model.

    Raises
    ------
    ConfigError for an unknown name or option; DataError for a folder that lacks a file.
    """
    if name.startswith("onnx:"):
        check_known(f"option of {name}", sorted(options), ("max_tokens",))
        return OnnxScorer(name.removeprefix("onnx:"), **options)
    from ragbench.llm import chat_model

    cassette = options.pop("cassette", None)
    return ModelScorer(chat_model(name, **options), cassette)
