"""Reranking: another retriever's hits, put in the order in which a model scores them against the query.

Follows Nogueira and Cho, "Passage Re-ranking with BERT" (2019), with any cross-encoder; or a chat model that gives each
passage a number from 0 to 10 (pointwise). `make_scorer` makes a scorer by name.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, Field, PositiveInt

from ragbench.errors import ConfigError, ModelError, check_known
from ragbench.onnx_models import Classifier
from ragbench.prompts import fill_prompt, load_prompt, prompt_hash
from ragbench.records import Hit
from ragbench.retrieval.base import Retriever, Scopes, Searcher, ranked, retriever_settings

_Pair = tuple[str, str]  # query, passage
_PROMPT = "rerank_passage"


class Rerank(Retriever):
    """The best of ``depth`` hits of another retriever, by a scorer that reads query and chunk together.

    The scorer has ``score(pairs)``, pairs of (query, text), higher is better: `OnnxScorer`, `ModelScorer`, your own.
    """

    retriever: Searcher
    depth: PositiveInt
    scorer: Any

    def __init__(self, retriever: Any, scorer: Any, depth: int = 50, *, k: int = 10) -> None:
        if not callable(getattr(scorer, "score", None)):
            do = "in experiment.yaml, write reranker: onnx:FOLDER or reranker: ollama:NAME; see docs/models.md"
            raise ConfigError(f"the scorer is {type(scorer).__name__}", "an object with score(pairs)", do)
        super().__init__(retriever=retriever, depth=depth, scorer=scorer, k=k)

    def settings(self) -> dict[str, Any]:
        about = {"retriever": "Rerank", "depth": self.depth, "scorer": retriever_settings(self.scorer)}
        return about | {"over": retriever_settings(self.retriever)}

    def _search(self, queries: list[str], k: int, scopes: Scopes) -> list[list[Hit]]:
        candidates = self.retriever.search(queries, max(k, self.depth), scopes)
        pairs = [(query, hit.chunk.text) for query, hits in zip(queries, candidates, strict=True) for hit in hits]
        scores = [float(score) for score in self.scorer.score(pairs)] if pairs else []
        if len(scores) != len(pairs) or any(score != score for score in scores):
            got = f"{type(self.scorer).__name__} gave {len(scores)} scores for {len(pairs)} pairs, or one that is NaN"
            raise ModelError(got, "one number for each pair", "check its score method")
        rest = iter(scores)
        scored = [[(hit.chunk, next(rest)) for hit in hits] for hits in candidates]
        return [ranked(sorted(pairs, key=lambda pair: -pair[1])[:k]) for pairs in scored]


class OnnxScorer:
    """A cross-encoder (`ragbench.onnx_models.Classifier`) in a folder: its last logit, the best of a text's windows."""

    def __init__(self, folder: str | os.PathLike[str], *, max_tokens: int | None = None) -> None:
        self._model = Classifier(folder, max_tokens=max_tokens)

    def settings(self) -> dict[str, Any]:
        """Return every parameter that can change a score."""
        return {"scorer": f"onnx:{self._model.folder.name}", "digest": self._model.digest}

    def score(self, pairs: Sequence[_Pair]) -> list[float]:
        """Score (query, text) pairs."""
        return [float(logits[:, -1].max()) for logits in self._model.logits(pairs)]


class _Relevance(BaseModel):
    score: int = Field(ge=0, le=10)


class ModelScorer:
    """A chat model that gives each passage a number from 0 to 10, in a call of its own; arguments as of `ask`."""

    def __init__(self, model: Any, cassette: Any = None, **options: Any) -> None:
        self.model, self.cassette, self.options = model, cassette, options
        self._text = load_prompt(_PROMPT)

    def settings(self) -> dict[str, Any]:
        """Return what can change a score, ready for JSON."""
        from ragbench.llm import model_name

        return {"scorer": "model", "model": model_name(self.model), "prompt_sha256": prompt_hash(_PROMPT)}

    def score(self, pairs: Sequence[_Pair]) -> list[float]:
        """Score (query, text) pairs; ModelError where a reply cannot be read (the cassette keeps the others)."""
        from ragbench.llm import ask
        from ragbench.llm.models import BOUNDS

        options = {"schema": _Relevance, "cassette": self.cassette, "step": "rerank", "num_predict": BOUNDS["label"]}
        prompts = [fill_prompt(self._text, query=query, passage=text) for query, text in pairs]
        replies = ask(self.model, prompts, **options | self.options)
        if failed := [reply for reply in replies if not reply.ok]:
            got = f"{len(failed)} of {len(replies)} passages got no score; the first: {failed[0].error}"
            raise ModelError(got, "a number from 0 to 10", "run again with the same cassette: only these are asked")
        return [float(reply.parsed.score) for reply in replies]


def make_scorer(name: str, **options: Any) -> Any:
    """Make a scorer by name: ``"onnx:FOLDER"`` (option ``max_tokens``), or a chat model such as ``"ollama:llama3:8b"``
    (``cassette`` and the options of `ragbench.llm.chat_model`).
    """
    if name.startswith("onnx:"):
        check_known(f"option of {name}", sorted(options), ("max_tokens",))
        return OnnxScorer(name.removeprefix("onnx:"), **options)
    from ragbench.llm import chat_model

    cassette = options.pop("cassette", None)
    return ModelScorer(chat_model(name, **options), cassette)
