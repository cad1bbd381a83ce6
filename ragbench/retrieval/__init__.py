"""Retrievers: LangChain retrievers with a batched, deterministic ``search(queries, k)``.

Reading order: ``base`` (what all share, and any other LangChain retriever), ``text`` (tokenisers),
``bm25``, ``dense`` (and MMR), then the ones that wrap another: ``multiquery``, ``rerank`` (and
Hybrid and the long-context order); ``gold`` is a ceiling; ``table`` has them by name.
"""

from ragbench.retrieval.base import FromLangChain, Index, Retriever, to_langchain
from ragbench.retrieval.bm25 import BM25
from ragbench.retrieval.dense import MMR, Dense
from ragbench.retrieval.gold import Gold
from ragbench.retrieval.multiquery import MultiQuery, llm_decomposer
from ragbench.retrieval.rerank import (
    CrossEncoder,
    Hybrid,
    LongContextReorder,
    Rerank,
    reorder,
)
from ragbench.retrieval.table import RETRIEVERS, make_retriever
from ragbench.retrieval.text import Tokenizer
