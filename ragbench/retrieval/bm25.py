"""BM25 in five variants, exact, over a compiled inverted index.

With K = k1 * (1 - b + b * length / average length), N chunks, df chunks that hold the term, tf its
count in the chunk and qtf its count in the query, a chunk scores the sum over the query's terms of
idf * saturation:

=========  =======================================  ======================
variant    idf                                      saturation
=========  =======================================  ======================
terrier    log2((N - df + 0.5) / (df + 0.5))        (k1 + 1) tf / (tf + K)
           x (k3 + 1) qtf / (k3 + qtf)
lucene     ln(1 + (N - df + 0.5) / (df + 0.5))      tf / (tf + K)
robertson  ln((N - df + 0.5) / (df + 0.5)),         tf / (tf + K)
           at least 0
atire      ln(N / df)                               (k1 + 1) tf / (tf + K)
okapi      ln((N - df + 0.5) / (df + 0.5)); where   (k1 + 1) tf / (tf + K)
           negative, 0.25 times the mean idf
=========  =======================================  ======================

Sources: ``terrier``: Terrier 5, class BM25; thesis §2.5.3. ``lucene``, ``robertson``, ``atire``:
Kamphuis et al., ECIR 2020, Table 1 (with Robertson et al., TREC-3, and Trotman et al., ADCS 2014).
``okapi``: rank_bm25.BM25Okapi; its ties fall in the order given, not by id.

``terrier`` counts a repeated query term through k3 = 8, the others add it once per occurrence.
``terrier`` and ``okapi`` give a term found in more than half of the chunks a weight that is
negative or tiny, as their models do; that shows only in collections of a few chunks.
"""

from __future__ import annotations

import itertools
import math
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Annotated, Any

import numpy as np
from pydantic import Field, PrivateAttr

from ragbench.errors import check_known
from ragbench.onnx_models import cores
from ragbench.records import Chunk, Hit
from ragbench.retrieval.base import Index, Scopes, check_chunks, ranked
from ragbench.retrieval.text import TOKENIZERS, Tokenizer, Words, get_tokenizer

_HITS_AT_ONCE = 1 << 22  # bounds the memory of results when k is in the thousands
_Weight = Annotated[float, Field(ge=0, strict=True, allow_inf_nan=False)]
_K3 = 8.0  # weight of repeated query terms in ``terrier``
_EPSILON = 0.25  # floor of the idf in ``okapi``, as a share of the mean idf


def _odds(n: int, df: int) -> float:
    return (n - df + 0.5) / (df + 0.5)


# variant -> (idf, whether saturation has the factor k1 + 1, default k1, default tokenizer, order of
# ties)
_VARIANTS: dict[str, tuple[Callable[[int, int], float], bool, float, str, str]] = {
    "terrier": (lambda n, df: math.log2(_odds(n, df)), True, 1.2, "terrier", "id"),
    "lucene": (lambda n, df: math.log(1 + _odds(n, df)), False, 1.2, "auto", "id"),
    "robertson": (lambda n, df: math.log(max(1.0, _odds(n, df))), False, 1.2, "auto", "id"),
    "atire": (lambda n, df: math.log(n / df), True, 1.2, "auto", "id"),
    "okapi": (
        lambda n, df: math.log(n - df + 0.5) - math.log(df + 0.5),
        True,
        1.5,
        "split",
        "corpus",
    ),
}


class BM25(Index):
    """BM25 over chunks. The thesis's retriever *bm25* (PyTerrier's defaults) is
    ``variant="terrier"``.

    Parameters
    ----------
    k1, b : saturation (> 0; default 1.2, for ``okapi`` 1.5) and length normalisation in [0, 1].
    variant : ``"terrier"``, ``"lucene"``, ``"robertson"``, ``"atire"`` or ``"okapi"``; see the
        module's table.
    tokenizer : a name of `ragbench.retrieval.text` (``"auto"``, ``"german"``, ``"jieba"``,
        ``"plain"`` ...), a ``Tokenizer`` or a callable text -> terms. Default: ``"auto"``, which
        chooses by the chunks' language (attribute ``tokenizer`` and ``settings()`` say what it
        chose); of ``terrier`` and ``okapi`` their own.
    """

    k1: _Weight = Field(gt=0)
    b: _Weight = Field(le=1)
    variant: str
    _tokenizer: Words = PrivateAttr()
    _terms: dict[str, int] = PrivateAttr()
    _start: np.ndarray = PrivateAttr()  # (terms + 1,): where each term's postings begin
    _postings: np.ndarray = PrivateAttr()  # positions of chunks, ascending within a term
    _tf: np.ndarray = PrivateAttr()  # count of the term in that chunk
    _norm: np.ndarray = PrivateAttr()  # (chunks,): K
    _idf: np.ndarray = PrivateAttr()  # (terms,)

    def __init__(
        self,
        chunks: Sequence[Chunk],
        k1: float | None = None,
        b: float = 0.75,
        variant: str = "lucene",
        tokenizer: str | Words | None = None,
        *,
        title: bool = False,
        k: int = 10,
    ) -> None:
        check_known("BM25 variant", [variant], _VARIANTS)
        _, _, default_k1, default_tokenizer, ties = _VARIANTS[variant]
        tokenizer = default_tokenizer if tokenizer is None else tokenizer
        get_tokenizer(tokenizer)  # a wrong name is told before the chunks are looked at
        chunks = check_chunks(chunks)
        super().__init__(
            chunks, k1=default_k1 if k1 is None else k1, b=b, variant=variant, title=title, k=k
        )
        self._tokenizer = get_tokenizer(tokenizer, self.texts)
        if ties == "corpus":
            self._chunks = chunks
        self._build()

    @property
    def tokenizer(self) -> Words:
        """What cuts texts and queries into terms; for ``"auto"``, what was chosen."""
        return self._tokenizer

    def settings(self) -> dict[str, Any]:
        cut = self._tokenizer
        name = next((name for name, one in TOKENIZERS.items() if one is cut), None) or getattr(
            cut, "name", None
        )
        of_variant = {"terrier": {"k3": _K3}, "okapi": {"epsilon": _EPSILON}}.get(self.variant, {})
        about = {
            "retriever": "BM25",
            "variant": self.variant,
            "k1": self.k1,
            "b": self.b,
            **of_variant,
        }
        about["tokenizer"] = name or getattr(cut, "__qualname__", type(cut).__name__)
        about["ties"] = _VARIANTS[self.variant][4]
        return about | {"chunks": len(self._chunks)} | self.with_title

    def _build(self) -> None:
        from scipy.sparse import csc_array

        n = len(self._chunks)
        term, chunk = self._occurrences()
        ones = np.ones(len(chunk), np.uint32)
        # adds up the ones
        counts = csc_array((ones, (chunk, term)), shape=(n, max(1, len(self._terms))))
        self._start = counts.indptr.astype(np.int64)
        self._postings = counts.indices
        self._tf = counts.data
        lengths = np.bincount(chunk, minlength=n)
        # no chunk has a term: there is nothing to normalise
        average = int(lengths.sum()) / n or 1.0
        self._norm = self.k1 * (1 - self.b + self.b * lengths / average)
        self._idf = self._idf_of(np.diff(self._start)[: len(self._terms)])

    def _occurrences(self) -> tuple[np.ndarray, np.ndarray]:
        """Number the terms; return the term and the chunk of every word of the chunks, in order."""
        tokenizer = self._tokenizer
        tokens_of = tokenizer.tokens if isinstance(tokenizer, Tokenizer) else tokenizer
        number_of: dict[str, int] = defaultdict(itertools.count().__next__)
        numbers = array("i")
        ends = [0]
        for text in self.texts:
            numbers.extend(map(number_of.__getitem__, tokens_of(text)))
            ends.append(len(numbers))
        # Stop words and stems are settled once per distinct token.
        kept: Sequence[str | None] = list(number_of)
        if isinstance(tokenizer, Tokenizer):
            kept = tokenizer.terms(list(number_of))
        terms = self._terms = {}
        term_of = np.array(
            [-1 if t is None else terms.setdefault(t, len(terms)) for t in kept], np.int32
        )
        term = term_of[np.array(numbers, np.int32)]
        chunk = np.repeat(np.arange(len(ends) - 1, dtype=np.int32), np.diff(ends))
        return term[term >= 0], chunk[term >= 0]

    def _idf_of(self, df: np.ndarray) -> np.ndarray:
        """Return the idf of terms that stand in so many chunks."""
        if not len(df):
            return np.empty(0)
        idf_of = _VARIANTS[self.variant][0]
        values, back = np.unique(df, return_inverse=True)
        idf = np.array([idf_of(len(self._chunks), int(value)) for value in values])[back]
        if self.variant == "okapi":
            # rank_bm25 adds the idfs one by one, in order of first appearance; so does cumsum, to
            # the last bit.
            idf[idf < 0] = _EPSILON * (np.cumsum(idf)[-1] / len(idf))
        return idf

    def _query_terms(self, queries: list[str]) -> list[list[int]]:
        tokenizer = self._tokenizer
        terms = self._terms
        if not isinstance(tokenizer, Tokenizer):
            return [[terms[t] for t in tokenizer(query) if t in terms] for query in queries]
        tokens = [tokenizer.tokens(tokenizer.clean_query(query)) for query in queries]
        distinct = list({t for ts in tokens for t in ts})
        known = {
            t: terms[term]
            for t, term in zip(distinct, tokenizer.terms(distinct), strict=True)
            if term in terms
        }
        return [[known[t] for t in ts if t in known] for ts in tokens]

    def _search(self, queries: list[str], k: int, scopes: Scopes) -> list[list[Hit]]:
        n = len(queries)
        k = min(k, len(self._chunks))
        search = partial(self._search_part, self._weighted(queries), self._allowed(scopes, n), k)
        size = max(1, min(256, _HITS_AT_ONCE // k))
        starts = range(0, n, size)
        with ThreadPoolExecutor(min(len(starts), cores())) as pool:
            parts = pool.map(search, starts, (min(n, start + size) for start in starts))
            return list(itertools.chain.from_iterable(parts))

    def _weighted(self, queries: list[str]) -> tuple[np.ndarray, ...]:
        """Return where each query's terms begin, the terms, their weights, and within each query
        the places of its terms from the lightest to the heaviest.
        """
        terms = self._query_terms(queries)
        factors = [1.0] * sum(map(len, terms))
        if self.variant == "terrier":
            counts = [Counter(of_query) for of_query in terms]
            terms = [list(count) for count in counts]
            factors = [(_K3 + 1) * qtf / (_K3 + qtf) for count in counts for qtf in count.values()]
        bounds = np.cumsum([0, *map(len, terms)])
        term = np.array([t for of_query in terms for t in of_query], np.int32)
        weight = self._idf[term] * np.array(factors)
        lightest = np.lexsort((weight, np.repeat(np.arange(len(terms)), np.diff(bounds))))
        return bounds, term, weight, lightest

    def _allowed(self, scopes: Scopes, n: int) -> tuple[np.ndarray, ...]:
        """Return the chunks of all scopes, where each scope's begin, and each query's scope, -1 for
        none.
        """
        scope_of = np.full(n, -1, np.int64)
        scopes_places = []
        for places, members in self._by_scope(scopes, n):
            if places is not None:
                scope_of[members] = len(scopes_places)
                scopes_places.append(places)
        scope = np.concatenate([np.empty(0, np.int32), *scopes_places])
        return scope, np.cumsum([0, *map(len, scopes_places)]), scope_of

    def _search_part(
        self,
        asked: tuple[np.ndarray, ...],
        allowed: tuple[np.ndarray, ...],
        k: int,
        first: int,
        stop: int,
    ) -> list[list[Hit]]:
        """Search for the queries from ``first`` to ``stop``."""
        from ragbench.retrieval import _kernels

        chunks = self._chunks  # every look at a private attribute of a pydantic model is slow
        bounds, term, weight, lightest = asked
        scope, scope_ends, scope_of = allowed
        scores = np.empty((stop - first, k))
        items = np.empty((stop - first, k), np.int32)
        found = np.zeros(stop - first, np.int32)
        _kernels.search(
            self._start,
            self._postings,
            self._tf,
            self._norm,
            self.k1 + 1 if _VARIANTS[self.variant][1] else 1.0,
            bounds[first : stop + 1],
            term,
            weight,
            lightest,
            scope,
            scope_ends,
            scope_of[first:stop],
            scores,
            items,
            found,
        )
        hits = []
        for n, row, values in zip(found.tolist(), items.tolist(), scores.tolist(), strict=True):
            pairs = zip(row[:n], values[:n], strict=True)
            hits.append(ranked((chunks[place], score) for place, score in pairs))
        return hits
