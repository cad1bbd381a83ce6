"""Retrievers: LangChain retrievers with a batched, deterministic ``search(queries, k, scope=None)``.

Reading order: ``base`` (what all share), ``text`` (tokenisers), ``bm25``, ``dense``, then the ones that wrap another:
``mmr``, ``multiquery``, ``reorder``, ``hybrid``; ``from_langchain`` takes anybody's; ``table`` has them by name.
"""

from ragbench.retrieval.base import Index, Retriever
from ragbench.retrieval.bm25 import BM25
from ragbench.retrieval.dense import Dense
from ragbench.retrieval.from_langchain import FromLangChain, to_langchain
from ragbench.retrieval.hybrid import Hybrid
from ragbench.retrieval.mmr import MMR
from ragbench.retrieval.multiquery import MultiQuery, llm_decomposer, rule_decomposer
from ragbench.retrieval.reorder import LongContextReorder, reorder
from ragbench.retrieval.rerank import ModelScorer, OnnxScorer, Rerank
from ragbench.retrieval.table import RETRIEVERS, make_retriever
from ragbench.retrieval.text import Tokenizer
