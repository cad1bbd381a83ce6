"""Long-context reorder (thesis: *reo*): the best chunks at both ends of the context, the others in the middle.

As published, the library's reorder alternates from the worst chunk outwards: for an odd count the best chunk comes
first (1,3,5,7,9,8,6,4,2), for an even one it comes last (2,4,6,8,10,9,7,5,3,1). The thesis took 10 chunks and cut the
joined text after N tokens, so the best chunk was what the cut removed. The mended order always starts with the best
chunk, and with a token budget the cut is made before anything is moved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, TypeVar

from pydantic import PositiveInt, PrivateAttr

from ragbench.errors import check_known
from ragbench.records import Hit
from ragbench.retrieval.base import Retriever, Scopes, Searcher, before, retriever_settings
from ragbench.text.tokens import as_offsets, joined_cutoffs

T = TypeVar("T")


def reorder(items: Sequence[T], order: str = "published") -> list[T]:
    """Move the best items to both ends.

    Parameters
    ----------
    items : best first.
    order : ``"published"`` (as LangChain's LongContextReorder: the best item first for an odd count, last for an even
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
    """Reorder another retriever's hits for a long context (thesis: the retriever *reo*, over *sim*).

    Hits keep their scores; ranks are the new places.

    Parameters
    ----------
    budget : None for the order as published. A number of tokens: cut the hits, best first, to that many tokens (the
        last one may lose its end), then put them in the mended order.
    tokenizer : what counts the tokens, see `ragbench.TokenOffsets`; default the embedded model's WordPiece.
    """

    retriever: Searcher
    budget: PositiveInt | None
    _tokenizer: Any = PrivateAttr()

    def __init__(self, retriever: Any, budget: int | None = None, tokenizer: Any = None, *, k: int = 10) -> None:
        super().__init__(retriever=retriever, budget=budget, k=k)
        self._tokenizer = tokenizer

    def settings(self) -> dict[str, Any]:
        about: dict[str, Any] = {"retriever": "LongContextReorder", "order": "published", "budget": self.budget}
        if self.budget is not None:
            name = "default" if self._tokenizer is None else getattr(self._tokenizer, "__name__", None)
            name = name or (self._tokenizer if isinstance(self._tokenizer, str) else type(self._tokenizer).__name__)
            about |= {"order": "mended", "tokenizer": name}
        return about | {"over": retriever_settings(self.retriever)}

    def _search(self, queries: list[str], k: int, scopes: Scopes) -> list[list[Hit]]:
        lists = []
        for hits in self.retriever.search(queries, k, scopes):
            if self.budget is not None:
                chunks = [hit.chunk for hit in hits]
                end = int(joined_cutoffs([chunk.text for chunk in chunks], [self.budget], self._offsets)[0])
                hits = [replace(hit, chunk=chunk) for hit, chunk in zip(hits, before(end, chunks), strict=False)]
            lists.append(reorder(hits, "published" if self.budget is None else "mended"))
        return [[replace(hit, rank=rank) for rank, hit in enumerate(hits, 1)] for hits in lists]

    @cached_property
    def _offsets(self) -> Any:
        return as_offsets(self._tokenizer)
