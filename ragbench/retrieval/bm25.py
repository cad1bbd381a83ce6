"""BM25 in two variants, exact, over a compiled inverted index.

With K = k1 * (1 - b + b * length / average length), N chunks, df chunks that hold the term, tf its
count in the chunk and qtf its count in the query, a chunk scores the sum over the query's terms of
idf * saturation:

=========  =======================================  ======================
variant    idf                                      saturation
=========  =======================================  ======================
terrier    log2((N - df + 0.5) / (df + 0.5))        (k1 + 1) tf / (tf + K)
           x (k3 + 1) qtf / (k3 + qtf)
lucene     ln(1 + (N - df + 0.5) / (df + 0.5))      tf / (tf + K)
=========  =======================================  ======================

Sources: ``terrier``: Terrier 5, class BM25; thesis §2.5.3. ``lucene``: Kamphuis et al., ECIR 2020,
Table 1.

``terrier`` counts a repeated query term through k3 = 8, ``lucene`` adds it once per occurrence.
``terrier`` gives a term found in more than half of the chunks a weight that is negative or tiny, as
its model does; that shows only in collections of a few chunks.
"""

from __future__ import annotations

import itertools
from array import array
from collections import Counter, defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Annotated, Any

import numpy as np
from pydantic import Field, PrivateAttr

from ragbench.errors import check_known
from ragbench.onnx_models import cores
from ragbench.records import Chunk, Hit
from ragbench.retrieval.base import Index, ranked
from ragbench.retrieval.text import TOKENIZERS, Tokenizer, Words, get_tokenizer

_HITS_AT_ONCE = 1 << 22  # bounds the memory of results when k is in the thousands
_Weight = Annotated[float, Field(ge=0, strict=True, allow_inf_nan=False)]
_K3 = 8.0  # weight of repeated query terms in ``terrier``


# variant -> its default tokenizer
_VARIANTS = {"terrier": "terrier", "lucene": "auto"}


class BM25(Index):
    """BM25 over chunks. The thesis's retriever *bm25* (PyTerrier's defaults) is
    ``variant="terrier"``.

    Parameters
    ----------
    k1, b : saturation (> 0) and length normalisation in [0, 1].
    variant : ``"terrier"`` or ``"lucene"``; see the module's table.
    tokenizer : a name of `ragbench.retrieval.text` (``"auto"``, ``"german"``, ``"jieba"``,
        ``"plain"`` ...), a ``Tokenizer`` or a callable text -> terms. Default: ``"auto"``, which
        chooses by the chunks' language (attribute ``tokenizer`` and ``settings()`` say what it
        chose); of ``terrier`` its own.
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
        k1: float = 1.2,
        b: float = 0.75,
        variant: str = "lucene",
        tokenizer: str | Words | None = None,
        *,
        title: bool = False,
        k: int = 10,
    ) -> None:
        check_known("BM25 variant", [variant], _VARIANTS)
        tokenizer = _VARIANTS[variant] if tokenizer is None else tokenizer
        get_tokenizer(tokenizer)  # a wrong name is told before the chunks are looked at
        super().__init__(chunks, k1=k1, b=b, variant=variant, title=title, k=k)
        self._tokenizer = get_tokenizer(tokenizer, self.texts)
        self._build()

    @property
    def tokenizer(self) -> Words:
        """What cuts texts and queries into terms; for ``"auto"``, what was chosen."""
        return self._tokenizer

    def settings(self) -> dict[str, Any]:
        cut = self._tokenizer
        named = {id(one): name for name, one in TOKENIZERS.items()}
        name = named.get(id(cut)) or getattr(cut, "name", None) or getattr(cut, "__qualname__", "")
        settings = {"retriever": "BM25", "variant": self.variant, "k1": self.k1, "b": self.b}
        if self.variant == "terrier":
            settings["k3"] = _K3
        settings |= {"tokenizer": name or type(cut).__name__, "ties": "id"}
        return settings | {"chunks": len(self._chunks)} | self.with_title

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
        odds = (len(self._chunks) - df + 0.5) / (df + 0.5)
        return np.log2(odds) if self.variant == "terrier" else np.log(1 + odds)

    def _query_terms(self, queries: list[str]) -> list[list[int]]:
        tokenizer = self._tokenizer
        terms = self._terms
        if not isinstance(tokenizer, Tokenizer):
            return [[terms[t] for t in tokenizer(query) if t in terms] for query in queries]
        tokens = [tokenizer.tokens(tokenizer.clean_query(query)) for query in queries]
        distinct = list({t for ts in tokens for t in ts})
        term_numbers = {
            t: terms[term]
            for t, term in zip(distinct, tokenizer.terms(distinct), strict=True)
            if term in terms
        }
        return [[term_numbers[t] for t in ts if t in term_numbers] for ts in tokens]

    def _search(self, queries: list[str], k: int) -> list[list[Hit]]:
        n = len(queries)
        k = min(k, len(self._chunks))
        search = partial(self._search_part, self._weighted(queries), k)
        size = max(1, min(256, _HITS_AT_ONCE // k))
        starts = range(0, n, size)
        with ThreadPoolExecutor(min(len(starts), cores())) as pool:
            parts = pool.map(search, starts, (min(n, start + size) for start in starts))
            return list(itertools.chain.from_iterable(parts))

    def _weighted(self, queries: list[str]) -> tuple[np.ndarray, ...]:
        """Return where each query's terms begin, the terms, their weights, and within each query
        the numbers of its terms from the lightest to the heaviest.
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
        sizes = np.diff(bounds)
        order = np.lexsort((weight, np.repeat(np.arange(len(terms)), sizes)))
        return bounds, term, weight, order - np.repeat(bounds[:-1], sizes)

    def _search_part(
        self, query_terms: tuple[np.ndarray, ...], k: int, first: int, stop: int
    ) -> list[list[Hit]]:
        """Search for the queries from ``first`` to ``stop``."""
        from ragbench.retrieval import _kernels

        bounds, term, weight, lightest = query_terms
        scores = np.empty((stop - first, k))
        places = np.empty((stop - first, k), np.int32)
        positions = np.zeros(stop - first, np.int32)
        index = (self._start, self._postings, self._tf, self._norm)
        gain = self.k1 + 1 if self.variant == "terrier" else 1.0
        bounds = bounds[first : stop + 1]
        _kernels.search(index, gain, bounds, term, weight, lightest, scores, places, positions)
        chunks = self._chunks  # every look at a private attribute of a pydantic model is slow
        hits = []
        for n, row, values in zip(
            positions.tolist(), places.tolist(), scores.tolist(), strict=True
        ):
            pairs = zip(row[:n], values[:n], strict=True)
            hits.append(ranked((chunks[place], score) for place, score in pairs))
        return hits
