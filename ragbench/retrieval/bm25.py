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
from typing import Annotated, Any, NamedTuple

import numpy as np
from pydantic import Field, PrivateAttr

from ragbench.errors import check_known
from ragbench.onnx_models import cores
from ragbench.records import Chunk, Hit
from ragbench.retrieval.base import Index
from ragbench.retrieval.text import Tokenizer, Words

_HITS_AT_ONCE = 1 << 22  # bounds the memory of results when k is in the thousands
_Weight = Annotated[float, Field(ge=0, strict=True, allow_inf_nan=False)]
_K3 = 8.0  # weight of repeated query terms in ``terrier``


# variant -> its default tokenizer
_VARIANTS = {"terrier": "terrier", "lucene": "auto"}


class _WeightedTerms(NamedTuple):
    """The terms of all queries, one query after the other."""

    bounds: np.ndarray  # (queries + 1,): where each query's terms begin
    terms: np.ndarray  # their numbers
    weights: np.ndarray  # idf, times what a repeated term counts
    lightest: np.ndarray  # places within the query, from the lightest term to the heaviest


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

    >>> chunks = [rb.Chunk("1", "Ada built the mill.", ""), rb.Chunk("2", "The lake is deep.", "")]
    >>> rb.BM25(chunks).search(["Who built the mill?"], k=1)[0][0].chunk.text
    'Ada built the mill.'
    """

    variant: str
    k1: _Weight = Field(gt=0)
    b: _Weight = Field(le=1)
    _tokenizer: Tokenizer = PrivateAttr()
    _terms: dict[str, int] = PrivateAttr()  # the number of each term
    _idf: np.ndarray = PrivateAttr()  # (terms,)
    _index: tuple[np.ndarray, ...] = PrivateAttr()  # see `_build`

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
        if tokenizer is None:
            tokenizer = _VARIANTS[variant]
        super().__init__(chunks, k1=k1, b=b, variant=variant, title=title, k=k)
        self._tokenizer = Tokenizer.of(tokenizer, self.texts)
        self._build()

    @property
    def tokenizer(self) -> Tokenizer:
        """What cuts texts and queries into terms; for ``"auto"``, what was chosen."""
        return self._tokenizer

    def settings(self) -> dict[str, Any]:
        settings = super().settings()
        if self.variant == "terrier":
            settings["k3"] = _K3
        own = {"tokenizer": self._tokenizer.name, "ties": "id", "chunks": len(self._chunks)}
        return settings | own

    def _build(self) -> None:
        """Index the chunks.

        ``_index`` holds where each term's postings begin, the chunks in which it stands (their
        places, ascending), its count tf in each, and K of every chunk.
        """
        from scipy.sparse import csc_array

        n = len(self._chunks)
        term, chunk = self._occurrences()
        ones = np.ones(len(chunk), np.uint32)
        shape = (n, max(1, len(self._terms)))
        counts = csc_array((ones, (chunk, term)), shape=shape)  # adds up the ones
        start = counts.indptr.astype(np.int64)
        df = np.diff(start)[: len(self._terms)]
        self._idf = self._idf_of(df)
        lengths = np.bincount(chunk, minlength=n)
        average = lengths.sum() / n or 1.0  # where no chunk has a term, there is nothing to divide
        norm = self.k1 * (1 - self.b + self.b * lengths / average)
        self._index = (start, counts.indices, counts.data, norm)

    def _occurrences(self) -> tuple[np.ndarray, np.ndarray]:
        """Number the terms; return the term and the chunk of every word of the chunks, in order."""
        tokenizer = self._tokenizer
        number_of: dict[str, int] = defaultdict(itertools.count().__next__)
        tokens = array("i")  # numbers, of one chunk after the other
        ends = [0]
        for text in self.texts:
            tokens.extend(map(number_of.__getitem__, tokenizer.tokens(text)))
            ends.append(len(tokens))
        self._terms = {}
        terms = self._terms
        term_of_token = []  # -1: the token is dropped
        # stop words and stems are settled once for each distinct token
        for term in tokenizer.terms(list(number_of)):
            number = -1
            if term is not None:
                number = terms.setdefault(term, len(terms))
            term_of_token.append(number)
        term = np.array(term_of_token, np.int32)[np.array(tokens, np.int32)]
        chunk = np.repeat(np.arange(len(ends) - 1, dtype=np.int32), np.diff(ends))
        kept = term >= 0
        return term[kept], chunk[kept]

    def _idf_of(self, df: np.ndarray) -> np.ndarray:
        """Return the idf of terms that stand in so many chunks."""
        odds = (len(self._chunks) - df + 0.5) / (df + 0.5)
        return np.log2(odds) if self.variant == "terrier" else np.log(1 + odds)

    def _search(self, queries: list[str], k: int) -> list[list[Hit]]:
        k = min(k, len(self._chunks))
        weighted = self._weighted(queries)
        size = max(1, min(256, _HITS_AT_ONCE // k))  # queries that a thread takes at a time
        search = partial(self._search_part, weighted, k, size)
        starts = range(0, len(queries), size)
        with ThreadPoolExecutor(min(len(starts), cores())) as pool:
            parts = pool.map(search, starts)
            return list(itertools.chain.from_iterable(parts))

    def _weighted(self, queries: list[str]) -> _WeightedTerms:
        terms: list[int] = []
        factors: list[float] = []
        bounds = [0]
        for of_query in self._query_terms(queries):
            counted, by_repetition = self._counted(of_query)
            terms += counted
            factors += by_repetition
            bounds.append(len(terms))
        term = np.array(terms, np.int32)
        weight = self._idf[term] * np.array(factors)
        sizes = np.diff(bounds)
        query = np.repeat(np.arange(len(queries)), sizes)
        query_start = np.repeat(bounds[:-1], sizes)
        lightest = np.lexsort((weight, query)) - query_start
        return _WeightedTerms(np.array(bounds), term, weight, lightest)

    def _query_terms(self, queries: list[str]) -> list[list[int]]:
        """Return the terms of each query that the chunks have, in their order."""
        tokenizer = self._tokenizer
        tokens = [tokenizer.tokens(tokenizer.clean_query(query)) for query in queries]
        distinct = list(dict.fromkeys(itertools.chain.from_iterable(tokens)))
        terms = self._terms
        number_of = {}
        for token, term in zip(distinct, tokenizer.terms(distinct), strict=True):
            if term in terms:
                number_of[token] = terms[term]
        return [[number_of[token] for token in row if token in number_of] for row in tokens]

    def _counted(self, terms: list[int]) -> tuple[list[int], list[float]]:
        """Return a query's terms, and by what each is multiplied for its repetitions."""
        if self.variant == "lucene":
            return terms, [1.0] * len(terms)
        qtf_of = Counter(terms)
        factors = [(_K3 + 1) * qtf / (_K3 + qtf) for qtf in qtf_of.values()]
        return list(qtf_of), factors

    def _search_part(
        self, weighted: _WeightedTerms, k: int, size: int, first: int
    ) -> list[list[Hit]]:
        """Search for ``size`` queries, beginning with the query ``first``."""
        from ragbench.retrieval import _kernels

        bounds = weighted.bounds[first : first + size + 1]
        count = len(bounds) - 1
        scores = np.empty((count, k))
        places = np.empty((count, k), np.int32)
        n_hits = np.zeros(count, np.int32)
        gain = self.k1 + 1 if self.variant == "terrier" else 1.0
        _kernels.search(self._index, gain, bounds, *weighted[1:], scores, places, n_hits)
        results = zip(n_hits.tolist(), places.tolist(), scores.tolist(), strict=True)
        return [self.hits_at(row[:n], values[:n]) for n, row, values in results]
