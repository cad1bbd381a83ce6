"""Retrievers: LangChain retrievers with a batched, deterministic ``search(queries, k, scope=None)``.

Reading order: ``base`` (what all share, and any other LangChain retriever), ``text`` (tokenisers), ``bm25``, ``dense``
(and MMR), then the ones that wrap another: ``multiquery``, ``reorder``, ``hybrid``, ``rerank``; ``table`` has them by
name.
"""

from ragbench.retrieval.base import FromLangChain, Index, Retriever, to_langchain
from ragbench.retrieval.bm25 import BM25
from ragbench.retrieval.dense import MMR, Dense
from ragbench.retrieval.hybrid import Hybrid
from ragbench.retrieval.multiquery import MultiQuery, llm_decomposer, rule_decomposer
from ragbench.retrieval.reorder import LongContextReorder, reorder
from ragbench.retrieval.rerank import ModelScorer, OnnxScorer, Rerank
from ragbench.retrieval.table import RETRIEVERS, make_retriever
from ragbench.retrieval.text import Tokenizer
