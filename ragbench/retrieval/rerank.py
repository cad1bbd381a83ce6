"""Another order for what other retrievers find: rankings fused, a model's scores, the ends of a
long context.

`Rerank` follows Nogueira and Cho, "Passage Re-ranking with BERT" (2019), with any cross-encoder; or
a chat model that gives each passage a number from 0 to 10 (pointwise). `make_scorer` makes a scorer
by name.

`LongContextReorder` (thesis: *reo*) puts the best chunks at both ends of the context. As published,
the library's order alternates from the worst chunk outwards: for an odd count the best chunk comes
first (1,3,5,7,9,8,6,4,2), for an even one it comes last (2,4,6,8,10,9,7,5,3,1). The thesis took 10
chunks and cut the joined text after N tokens, so the best chunk was what the cut removed. The
mended order always starts with the best chunk, and with a token budget the cut is made before
anything is moved.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, Field, PositiveInt, PrivateAttr

from ragbench.errors import ConfigError, DataError, ModelError, check_known
from ragbench.onnx_models import Classifier
from ragbench.prompts import fill_prompt, load_prompt, prompt_hash
from ragbench.records import Chunk, Hit
from ragbench.retrieval.base import Retriever, Scopes, Searcher, before, ranked, retriever_settings
from ragbench.text.tokens import as_offsets, joined_cutoffs

T = TypeVar("T")
_Pair = tuple[str, str]  # query, passage
_PROMPT = "rerank_passage"


class Hybrid(Retriever):
    """Reciprocal rank fusion: a chunk scores the sum over the retrievers of ``1 / (constant +
    rank)``.

    ``depth`` hits of each retriever are fused (at least k are asked for); ``constant`` is 60 in the
    paper.

    Source: Cormack, Clarke and Büttcher, SIGIR 2009.
    """

    fusion: Literal["reciprocal rank"] = "reciprocal rank"
    constant: float = Field(ge=0, allow_inf_nan=False)
    depth: PositiveInt
    over: list[Searcher] = Field(min_length=1)

    def __init__(
        self, over: Sequence[Any], constant: float = 60.0, depth: int = 100, *, k: int = 10
    ) -> None:
        super().__init__(over=over, constant=constant, depth=depth, k=k)

    def _search(self, queries: list[str], k: int, scopes: Scopes) -> list[list[Hit]]:
        rankings = [
            retriever.search(queries, max(k, self.depth), scopes) for retriever in self.over
        ]
        fused = []
        for of_query in zip(*rankings, strict=True):
            chunks: dict[str, Chunk] = {}
            shares: dict[str, list[float]] = {}
            for hit in itertools.chain(*of_query):
                chunk = hit.chunk
                if chunks.setdefault(chunk.id, chunk).text != chunk.text:
                    got = f"two chunks share the id {chunk.id!r} but not their text"
                    do = "build all retrievers from one list of chunks"
                    raise DataError(got, "retrievers over the same chunks", do)
                shares.setdefault(chunk.id, []).append(1 / (self.constant + hit.rank))
            # fsum: equal shares in another order must tie, so that the id decides.
            scores = {name: math.fsum(parts) for name, parts in shares.items()}
            best = sorted(scores, key=lambda name: (-scores[name], name))[:k]
            fused.append(ranked((chunks[name], scores[name]) for name in best))
        return fused


def reorder(items: Sequence[T], order: str = "published") -> list[T]:
    """Move the best items to both ends.

    Parameters
    ----------
    items : best first.
    order : ``"published"`` (as LangChain's LongContextReorder: the best item first for an odd
    count, last for an even
        one) or ``"mended"`` (best first, second best last, for every count).

    Source: thesis §2.5.3; Liu et al., "Lost in the Middle", 2023.

    >>> reorder([1, 2, 3, 4, 5, 6, 7, 8, 9, 10])
    [2, 4, 6, 8, 10, 9, 7, 5, 3, 1]
    >>> reorder([1, 2, 3, 4, 5, 6, 7, 8, 9, 10], order="mended")
    [1, 3, 5, 7, 9, 10, 8, 6, 4, 2]
    """
    check_known("order", [order], ("published", "mended"))
    items = list(items)
    begin = 1 if order == "published" and len(items) % 2 == 0 else 0
    return items[begin::2] + items[1 - begin :: 2][::-1]


class LongContextReorder(Retriever):
    """Reorder another retriever's hits for a long context (thesis: the retriever *reo*, over
    *sim*).

    Hits keep their scores; ranks are the new places.

    Parameters
    ----------
    budget : None for the order as published. A number of tokens: cut the hits, best first, to that
    many tokens (the
        last one may lose its end), then put them in the mended order.
    tokenizer : what counts the tokens, see `ragbench.TokenOffsets`; default MiniLM's WordPiece.
    """

    budget: PositiveInt | None
    over: Searcher
    _tokenizer: Any = PrivateAttr()

    def __init__(
        self, over: Any, budget: int | None = None, tokenizer: Any = None, *, k: int = 10
    ) -> None:
        super().__init__(over=over, budget=budget, k=k)
        self._tokenizer = tokenizer

    def settings(self) -> dict[str, Any]:
        about: dict[str, Any] = {
            "retriever": "LongContextReorder",
            "order": "published",
            "budget": self.budget,
        }
        if self.budget is not None:
            name = (
                "default" if self._tokenizer is None else getattr(self._tokenizer, "__name__", None)
            )
            name = name or (
                self._tokenizer
                if isinstance(self._tokenizer, str)
                else type(self._tokenizer).__name__
            )
            about |= {"order": "mended", "tokenizer": name}
        return about | {"over": retriever_settings(self.over)}

    def _search(self, queries: list[str], k: int, scopes: Scopes) -> list[list[Hit]]:
        lists = []
        for hits in self.over.search(queries, k, scopes):
            if self.budget is not None:
                chunks = [hit.chunk for hit in hits]
                end = int(
                    joined_cutoffs([chunk.text for chunk in chunks], [self.budget], self._offsets)[
                        0
                    ]
                )
                hits = [
                    replace(hit, chunk=chunk)
                    for hit, chunk in zip(hits, before(end, chunks), strict=False)
                ]
            lists.append(reorder(hits, "published" if self.budget is None else "mended"))
        return [[replace(hit, rank=rank) for rank, hit in enumerate(hits, 1)] for hits in lists]

    @cached_property
    def _offsets(self) -> Any:
        return as_offsets(self._tokenizer)


class Rerank(Retriever):
    """The best of ``depth`` hits of another retriever, by a scorer that reads query and chunk
    together.

    The scorer has ``score(pairs)``, pairs of (query, text), higher is better: `OnnxScorer`,
    `ModelScorer`, your own.
    """

    depth: PositiveInt
    scorer: Any
    over: Searcher

    def __init__(self, over: Any, scorer: Any, depth: int = 50, *, k: int = 10) -> None:
        if not callable(getattr(scorer, "score", None)):
            do = (
                "in experiment.yaml, write reranker: onnx:FOLDER or reranker: ollama:NAME; see "
                "docs/models.md"
            )
            raise ConfigError(
                f"the scorer is {type(scorer).__name__}", "an object with score(pairs)", do
            )
        super().__init__(over=over, depth=depth, scorer=scorer, k=k)

    def _search(self, queries: list[str], k: int, scopes: Scopes) -> list[list[Hit]]:
        candidates = self.over.search(queries, max(k, self.depth), scopes)
        pairs = [
            (query, hit.chunk.text)
            for query, hits in zip(queries, candidates, strict=True)
            for hit in hits
        ]
        scores = [float(score) for score in self.scorer.score(pairs)] if pairs else []
        if len(scores) != len(pairs) or any(score != score for score in scores):
            got = (
                f"{type(self.scorer).__name__} gave {len(scores)} scores for {len(pairs)} "
                "pairs, or one that is NaN"
            )
            raise ModelError(got, "one number for each pair", "check its score method")
        rest = iter(scores)
        scored = [[(hit.chunk, next(rest)) for hit in hits] for hits in candidates]
        return [ranked(sorted(pairs, key=lambda pair: -pair[1])[:k]) for pairs in scored]


class OnnxScorer:
    """A cross-encoder (`ragbench.onnx_models.Classifier`) in a folder:

    its last logit, the best of a text's windows.
    """

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
    """A chat model that gives each passage a number from 0 to 10, in a call of its own;

    arguments as of `ask`.
    """

    def __init__(self, model: Any, cassette: Any = None, **options: Any) -> None:
        self.model = model
        self.cassette = cassette
        self.options = options
        self._text = load_prompt(_PROMPT)

    def settings(self) -> dict[str, Any]:
        """Return what can change a score, ready for JSON."""
        from ragbench.llm import model_name

        return {
            "scorer": "model",
            "model": model_name(self.model),
            "prompt_sha256": prompt_hash(_PROMPT),
        }

    def score(self, pairs: Sequence[_Pair]) -> list[float]:
        """Score (query, text) pairs;

        ModelError where a reply cannot be read (the cassette keeps the others).
        """
        from ragbench.llm import ask
        from ragbench.llm.models import BOUNDS

        options = {
            "schema": _Relevance,
            "cassette": self.cassette,
            "step": "rerank",
            "num_predict": BOUNDS["label"],
        }
        prompts = [fill_prompt(self._text, query=query, passage=text) for query, text in pairs]
        replies = ask(self.model, prompts, **options | self.options)
        if failed := [reply for reply in replies if not reply.ok]:
            got = (
                f"{len(failed)} of {len(replies)} passages got no score; the first: "
                f"{failed[0].error}"
            )
            raise ModelError(
                got,
                "a number from 0 to 10",
                "run again with the same cassette: only these are asked",
            )
        return [float(reply.parsed.score) for reply in replies]


def make_scorer(name: str, **options: Any) -> Any:
    """Make a scorer by name: ``"onnx:FOLDER"`` (option ``max_tokens``), or a chat model such as
    ``"ollama:llama3:8b"`` (``cassette`` and the options of `ragbench.llm.chat_model`).
    """
    if name.startswith("onnx:"):
        check_known(f"option of {name}", sorted(options), ("max_tokens",))
        return OnnxScorer(name.removeprefix("onnx:"), **options)
    from ragbench.llm import chat_model

    cassette = options.pop("cassette", None)
    return ModelScorer(chat_model(name, **options), cassette)
