"""What RAGEval's retrieval experiment searches: documents cut into chunks, metadata, terms, queries (section 5.1).

The paper gives chunk sizes without a unit. The passages of the 350 recorded retrievals (English finance) are whole
sentences, 450 characters or 75 WordPiece tokens in the median and never above 146 tokens: not "512 tokens". The default
here packs whole sentences up to ``size`` *characters*, which comes nearest to the published EIR in both languages
(notebook 42); 30% of the recorded passages are longer, so the paper's splitter was another one. Tokens, and plain
windows of tokens, are there to compare.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ragbench.errors import ConfigError, unknown
from ragbench.records import Chunk, Document, Hit
from ragbench.retrieval.text import jieba_words

if TYPE_CHECKING:
    from langchain_core.embeddings import Embeddings

CUTS = ("characters", "tokens", "windows")
TOKENIZERS = ("auto", "jieba", "bigrams")
_RUN = re.compile(r"[a-z0-9]+|[\u3400-\u9fff]+")


class Searches(Protocol):
    """What a retriever has to offer."""

    def search(self, queries: Sequence[str], k: int) -> list[list[Hit]]: ...


Make = Callable[[list[Chunk]], Searches]


def sentence_chunks(
    documents: Iterable[Document], size: int = 512, unit: str = "characters", language: str = "en"
) -> list[Chunk]:
    """Pack whole sentences into chunks of at most ``size``.

    Parameters
    ----------
    documents : the texts to cut.
    size : most characters (or tokens) from the first to the last character of a chunk. A sentence that is longer
        makes a chunk by itself.
    unit : ``"characters"``, or ``"tokens"`` of the embedded model's WordPiece (one per character in Chinese).
    language : ``"en"`` or ``"zh"``: how sentences end.

    Returns
    -------
    Chunks in document order, each a slice of its document; ids ``<document id>#0, #1, ...``.

    Raises
    ------
    ConfigError for a size below 1, an unknown unit or language.

    Source: RAGEval, section 5.1, which names neither the unit nor the splitter; see the module.
    """
    from ragbench.text.sentences import split_sentences

    if size < 1:
        raise ConfigError(f"size={size}", "at least 1", "the paper uses 128, 256 and 512")
    if unit not in CUTS[:2]:
        raise unknown("unit", unit, CUTS[:2])
    documents = list(documents)
    chunks = []
    for document, place in zip(documents, _places(documents, unit), strict=True):
        spans: list[tuple[int, int]] = []
        end = 0
        open_chunk = False
        for sentence in split_sentences(document.text, language):
            start = document.text.index(sentence, end)
            end = start + len(sentence)
            if open_chunk and place(end) - place(spans[-1][0]) <= size:
                spans[-1] = (spans[-1][0], end)
            else:
                spans.append((start, end))
                open_chunk = True
        chunks += [
            Chunk(f"{document.id}#{i}", document.text[a:b], document.id, document.title)
            for i, (a, b) in enumerate(spans)
        ]
    return chunks


def _places(documents: Sequence[Document], unit: str) -> list[Callable[[int], int]]:
    """For each document: character position -> number of units before it."""
    if unit == "characters":
        return [int] * len(documents)
    from ragbench.embedding import default_tokenizer

    encodings = default_tokenizer().encode_batch([d.text for d in documents], add_special_tokens=False)
    starts = [np.array([start for start, _ in e.offsets]) for e in encodings]
    return [lambda at, own=own: int(np.searchsorted(own, at)) for own in starts]


def cut(documents: Iterable[Document], size: int, how: str = "characters", language: str = "en") -> list[Chunk]:
    """Cut documents: whole sentences by ``"characters"`` or ``"tokens"``, or ``"windows"`` of tokens, no overlap."""
    from ragbench.chunking import token_chunks

    if how not in CUTS:
        raise unknown("way to cut", how, CUTS)
    return token_chunks(documents, size, 0.0) if how == "windows" else sentence_chunks(documents, size, how, language)


def with_metadata(chunks: Iterable[Chunk]) -> list[Chunk]:
    """Put each chunk's title in brackets before its text, as the paper's indexer does (section 5.1)."""
    return [replace(c, text=f"({c.title}) {c.text}") if c.title else c for c in chunks]


def character_bigrams(text: str) -> list[str]:
    """Overlapping pairs of Chinese characters, and runs of Latin letters and digits; a lone character stays.

    The usual way to index Chinese without a dictionary, so it works with no further package.
    """
    terms = []
    for run in _RUN.findall(text.lower()):
        chinese = run[0] >= "\u3400"
        terms += [run[i : i + 2] for i in range(len(run) - 1)] if chinese and len(run) > 1 else [run]
    return terms


def chinese_tokenizer(name: str = "auto") -> Callable[[str], list[str]]:
    """Return `jieba_words` or `character_bigrams`; ``"auto"`` takes jieba where it is installed."""
    if name not in TOKENIZERS:
        raise unknown("Chinese tokenizer", name, TOKENIZERS)
    there = importlib.util.find_spec("jieba") is not None
    if name == "jieba" and not there:
        raise ConfigError("jieba, which is not installed", "the package jieba", "pip install jieba, or use 'bigrams'")
    return jieba_words if there and name != "bigrams" else character_bigrams


def bm25(language: str = "en", tokenizer: str | Callable[[str], list[str]] = "auto", **options: Any) -> Make:
    """Return what builds BM25 for a language.

    Parameters
    ----------
    language : ``"en"``: Terrier's stems and stop words; ``"zh"``: words or bigrams.
    tokenizer : ``"auto"``; in Chinese a name `chinese_tokenizer` knows, in English one ``BM25`` knows; or a callable.
    options : further arguments of ``BM25``. The variant is ``lucene`` unless named here: in a collection about one
        subject many terms stand in more than half of the chunks, where Terrier's idf is negative.
    """
    from ragbench.retrieval import make_retriever

    if language == "zh" and isinstance(tokenizer, str):
        tokenizer = chinese_tokenizer(tokenizer)
    chosen = "terrier" if tokenizer == "auto" else tokenizer
    return partial(make_retriever, "BM25", **{"variant": "lucene", "tokenizer": chosen, **options})


def dense(embedder: Embeddings) -> Make:
    """Return what builds exact dense search with any LangChain ``Embeddings``."""
    from ragbench.retrieval import make_retriever

    return partial(make_retriever, "SIM", embedder=embedder)


def cut_queries(queries: Sequence[str], tokens: int = 128) -> list[str]:
    """Cut queries to their first ``tokens`` WordPiece tokens (section 5.1: 128)."""
    from ragbench.embedding import default_tokenizer

    if tokens < 1:
        raise ConfigError(f"tokens={tokens}", "at least 1", "the paper uses 128")
    encodings = default_tokenizer().encode_batch(list(queries), add_special_tokens=False)
    return [
        q[: e.offsets[tokens - 1][1]] if len(e.offsets) > tokens else q for q, e in zip(queries, encodings, strict=True)
    ]
