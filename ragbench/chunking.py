"""Documents -> chunks: windows of tokens, whole sentences, and the thesis's semantic chunking
(§2.5.2).

The thesis describes windows of three consecutive sentences, sliding by two, and a fixed similarity
threshold (``profile="paper"``). The published run did something else (``profile="as_run"``): short
sentences merged to at least 200 characters, windows of three sentences on either side, and each
document's own 80th percentile of distances as threshold. Chunks come in document order, ids
``<document id>#0, #1, ...``. A chunk is a slice of its document's text, so a supporting sentence
inside it stays as it is.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ragbench.errors import ConfigError, check_known
from ragbench.records import Chunk, Document, check_records
from ragbench.text.languages import UNSPACED
from ragbench.text.sentences import LANGUAGES, Span, sentence_spans
from ragbench.text.tokens import default_tokenizer, token_offsets

PROFILES: dict[str, dict] = {
    "as_run": {
        "window": 3,
        "stride": 1,
        "percentile": 80.0,
        "threshold": None,
        "min_chars": 200,
        "max_tokens": None,
    },
    "paper": {
        "window": 3,
        "stride": 2,
        "percentile": None,
        "threshold": 0.5,
        "min_chars": 0,
        "max_tokens": 512,
    },
}
UNITS = ("characters", "tokens")
_BLOCK = 1024  # documents tokenised at a time
# a word; Chinese, Thai ... may be cut anywhere
_INSIDE = re.compile(rf"(?<=[^\s{UNSPACED}])(?=[^\s{UNSPACED}])")


def _documents(documents: Iterable[Document]) -> list[Document]:
    documents = list(documents)
    check_records(documents, Document, "documents")
    return documents


def _chunks(document: Document, pieces: Iterable[str | Span]) -> list[Chunk]:
    """Return the chunks of a document from texts or spans;

    a piece without text leaves out its number, too.
    """
    texts = (piece if isinstance(piece, str) else document.text[slice(*piece)] for piece in pieces)
    named = enumerate(text.strip() for text in texts)
    return [
        Chunk(f"{document.id}#{i}", text, document.id, document.title) for i, text in named if text
    ]


def _with_offsets(documents: Sequence[Document]) -> Iterator[tuple[Document, list[Span]]]:
    """Yield documents with the character spans of their tokens, a block of them in memory at a
    time.
    """
    for i in range(0, len(documents), _BLOCK):
        block = documents[i : i + _BLOCK]
        yield from zip(
            block, token_offsets(default_tokenizer(), [d.text for d in block]), strict=True
        )


def token_chunks(
    documents: Iterable[Document], size: int = 250, overlap: float = 0.2, words: bool = True
) -> list[Chunk]:
    """Cut documents into windows of at most ``size`` tokens of MiniLM's WordPiece.

    Parameters
    ----------
    overlap : share of a chunk repeated at the start of the next, in [0, 1).
    words : chunks begin and end between words; only a word of more than ``size`` tokens is cut.
    False, as in the
        papers' runs here: after ``size`` tokens, within a word where that falls.

    The default fits into the 256 tokens, with two marks, that MiniLM reads of a text.

    Source: RAGChecker, App. D (300 tokens, overlap 0.2); RAGEval, §5.4.
    """
    if size < 1:
        raise ConfigError(f"size={size!r}", "at least 1 token", "use for instance size=250")
    if not 0 <= overlap < 1:
        raise ConfigError(
            f"overlap={overlap!r}", "a share in [0, 1)", "use for instance overlap=0.2"
        )
    step = max(1, size - round(size * overlap))
    chunks = []
    for document, offsets in _with_offsets(_documents(documents)):
        text = document.text
        bounds = _bounds(offsets, 0, len(document.text))
        spans = []
        start = stop = 0
        while stop < len(bounds) - 1:
            stop = min(start + size, len(bounds) - 1)
            stop = (words and _word_boundary(text, bounds, start, stop)) or stop
            spans.append((bounds[start], bounds[stop]))
            following = min(start + step, stop)
            start = (_word_boundary(text, bounds, start, following) or stop) if words else following
        chunks += _chunks(document, spans)
    return chunks


def _word_boundary(text: str, bounds: Sequence[int], start: int, i: int) -> int:
    """Return the last place after token ``start``, up to token i, that lies between two words;

    0 without one.
    """
    while i > start and i < len(bounds) - 1 and _INSIDE.match(text, bounds[i]):
        i -= 1
    return i if i > start else 0


def _bounds(offsets: Sequence[Span], start: int, stop: int) -> list[int]:
    """Say where tokens begin and the last ends;

    what a tokenizer drops, as an accent, goes with the one before.
    """
    return np.maximum.accumulate([start, *(start + a for a, _ in offsets[1:]), stop]).tolist()


@dataclass(frozen=True)
class _Segmentation:
    """How one document was cut (Figure 2.6): cosine distances from window to window, and the
    sentences that follow.

    A new chunk starts at sentence ``starts[i]`` where ``distances[i]`` is above ``threshold``.
    """

    sentences: tuple[Span, ...]
    distances: np.ndarray
    threshold: float
    starts: tuple[int, ...]

    @property
    def breaks(self) -> tuple[int, ...]:
        """Positions in ``distances`` where the document is cut."""
        return tuple(int(i) for i in np.flatnonzero(self.distances > self.threshold))


def _settings(profile: str, given: dict) -> dict:
    check_known("chunking profile", [profile], PROFILES)
    given = {name: value for name, value in given.items() if value is not None}
    check_known("chunking setting", given, PROFILES[profile])
    if {"percentile", "threshold"} <= given.keys():
        raise ConfigError("both percentile and threshold", "one of them", "leave one out")
    either = {"percentile", "threshold"} & given.keys()
    settings = (
        PROFILES[profile] | ({"percentile": None, "threshold": None} if either else {}) | given
    )
    for name, value in settings.items():
        low, high = {"min_chars": (0, np.inf), "percentile": (0, 100), "threshold": (-1, 1)}.get(
            name, (1, np.inf)
        )
        if value is not None and not low <= value <= high:
            do = f"leave {name} out for the profile's own"
            raise ConfigError(f"{name}={value}", f"a value in [{low:g}, {high:g}]", do)
    return settings


def segment(
    documents: Iterable[Document],
    embedder: Any = None,
    profile: str = "as_run",
    **settings: float | None,
) -> list[_Segmentation]:
    """Find the semantic breaks of each document (settings as in `semantic_chunks`).

    A document whose windows are all the same text has distance 0 everywhere and is not embedded:
    with ``as_run`` this holds for four merged sentences or fewer, which is most of HotpotQA's
    paragraphs (notebook 10 counts them).
    """
    s = _settings(profile, settings)
    plans = []
    numbers = {}
    window = s["window"]
    stride = s["stride"]
    for document in _documents(documents):
        sentences = sentence_spans(document.text, "chunks", s["min_chars"])
        n = len(sentences)
        if profile == "as_run":
            spans = [(max(0, i - window), min(n, i + window + 1)) for i in range(0, n, stride)]
        else:
            spans = [
                (i, min(n, i + window))
                for i in range(0, max(1, n - window + stride) if n else 0, stride)
            ]
        windows = [document.text[sentences[a][0] : sentences[b - 1][1]] for a, b in spans]
        several = len(set(windows)) > 1
        plans.append(
            (sentences, [numbers.setdefault(w, len(numbers)) if several else -1 for w in windows])
        )
    segmentations = []
    if numbers:
        from ragbench.embedding import as_array, default_embedder, warn_of_language

        embedder = embedder or default_embedder()
        warn_of_language(embedder, list(numbers))
        vectors = as_array(embedder, list(numbers))
        vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    for sentences, windows in plans:
        # The same text on both sides is no break, whatever rounding says.
        distances = np.zeros(max(0, len(windows) - 1))
        differ = np.flatnonzero(np.diff(windows))
        if len(differ):
            v = vectors[windows]
            distances[differ] = 1.0 - np.einsum("ij,ij->i", v[:-1], v[1:], dtype=np.float64)[differ]
        threshold = 1.0 - s["threshold"] if s["percentile"] is None else 0.0
        if s["percentile"] is not None and len(distances):
            threshold = float(np.percentile(distances, s["percentile"]))
        # as_run: windows are centred on their sentence, so the break lies before the next centre.
        # paper: the new chunk begins with the first sentence of the next window.
        starts = tuple((i + 1) * stride for i in range(len(distances)))
        segmentations.append(_Segmentation(tuple(sentences), distances, threshold, starts))
    return segmentations


def semantic_chunks(
    documents: Iterable[Document],
    embedder: Any = None,
    profile: str = "as_run",
    *,
    window: int | None = None,
    stride: int | None = None,
    percentile: float | None = None,
    threshold: float | None = None,
    min_chars: int | None = None,
    max_tokens: int | None = None,
) -> list[Chunk]:
    """Cut documents where neighbouring windows of sentences differ in meaning.

    Parameters
    ----------
    embedder : LangChain ``Embeddings``; default MiniLM with cached vectors.
    profile : ``"as_run"`` or ``"paper"``; every setting left at None takes the profile's value
    (`PROFILES`).
    window, stride : sentences of a window (as_run: on either side of its centre), and from one
    window to the next.
    percentile : break where the distance is above this percentile of the document's own distances,
    0-100.
    threshold : break where the cosine similarity falls below this fixed value (the thesis gives
    none; ours is 0.5).
    min_chars : merge sentences up to this length first.
    max_tokens : the thesis's maximum chunk size S (§2.2): longer chunks are cut at sentence ends,
    else between words.

    Source: thesis §2.5.2; for ``as_run`` the published run.
    """
    documents = _documents(documents)
    given = {"window": window, "stride": stride, "percentile": percentile, "threshold": threshold}
    given |= {"min_chars": min_chars, "max_tokens": max_tokens}
    limit = _settings(profile, given)["max_tokens"]
    chunks = []
    for document, cut in zip(
        documents, segment(documents, embedder, profile, **given), strict=True
    ):
        bounds = [0, *(cut.starts[i] for i in cut.breaks), len(cut.sentences)]
        groups = [cut.sentences[a:b] for a, b in itertools.pairwise(bounds) if a < b]
        spans = [(group[0][0], group[-1][1]) for group in groups]
        if limit:
            spans = [span for group in groups for span in _at_most(document.text, group, limit)]
        chunks += _chunks(document, spans)
    return chunks


def _at_most(text: str, sentences: Sequence[Span], limit: int) -> list[Span]:
    """Pack sentences into spans of at most ``limit`` tokens."""
    base = sentences[0][0]
    stop = sentences[-1][1]
    (offsets,) = token_offsets(default_tokenizer(), [text[base:stop]])
    if len(offsets) <= limit:
        return [(base, stop)]
    bounds = _bounds(offsets, base, stop)
    first = np.searchsorted(bounds[:-1], [start for start, _ in sentences])
    spans = []
    start = 0
    for begin, end in itertools.pairwise([*first.tolist(), len(offsets)]):
        if end - start > limit and begin > start:
            spans.append((start, begin))
            start = begin
        while end - start > limit:
            stop = _word_boundary(text, bounds, start, start + limit) or start + limit
            spans.append((start, stop))
            start = stop
    if start < len(offsets):
        spans.append((start, len(offsets)))
    return [(bounds[a], bounds[b]) for a, b in spans]


def sentence_chunks(
    documents: Iterable[Document], size: int = 512, unit: str = "characters", language: str = "en"
) -> list[Chunk]:
    """Pack whole sentences into chunks of at most ``size``; a sentence that is longer makes a chunk
    by itself.

    Parameters
    ----------
    size : most characters (or tokens) from the first to the last character of a chunk.
    unit : ``"characters"``, or ``"tokens"`` of MiniLM's WordPiece (one per character in Chinese).
    language : ``"en"`` or ``"zh"``: how sentences end.
    """
    if size < 1:
        raise ConfigError(f"size={size}", "at least 1", "use for instance 512 characters")
    check_known("unit", [unit], UNITS)
    check_known("language", [language], LANGUAGES)
    documents = _documents(documents)
    counted: Iterable = (
        ((d, None) for d in documents) if unit == "characters" else _with_offsets(documents)
    )
    chunks = []
    for document, offsets in counted:
        begins = offsets and [start for start, _ in offsets]
        spans: list[Span] = []
        for start, end in sentence_spans(document.text, language):
            sentence = document.text[start:end]
            start += len(sentence) - len(sentence.lstrip())
            end -= len(sentence) - len(sentence.rstrip())
            longer = (spans[-1][0] if spans else start, end)
            length = (
                longer[1] - longer[0]
                if begins is None
                else np.diff(np.searchsorted(begins, longer))[0]
            )
            if spans and length <= size:
                spans[-1] = longer
            else:
                spans.append((start, end))
        chunks += _chunks(document, spans)
    return chunks


def split_chunks(
    documents: Iterable[Document], split: Callable[[str], Iterable[Any]]
) -> list[Chunk]:
    """Cut documents by a function text -> texts, or LangChain documents, without the white space at
    either end.

    ``split`` is for instance ``RecursiveCharacterTextSplitter(chunk_size=1000).split_text`` of
    LangChain.
    """
    name = getattr(split, "__qualname__", type(split).__name__)
    chunks = []
    if not callable(split):
        raise ConfigError(
            f"split is {name}", "a function text -> texts", "pass splitter.split_text"
        )
    for document in _documents(documents):
        returned = split(document.text)
        listed = isinstance(returned, Iterable) and not isinstance(returned, str)
        texts = [getattr(piece, "page_content", piece) for piece in returned] if listed else [None]
        if not all(isinstance(text, str) for text in texts):
            got = f"{name} returned {repr(returned)[:120]} for document {document.id!r}"
            raise ConfigError(got, "a list of texts", "pass splitter.split_text")
        chunks += _chunks(document, texts)
    return chunks


# One of your own is a function documents -> chunks, and one entry.
CHUNKERS: dict[str, Callable[..., list[Chunk]]] = {
    "token_chunks": token_chunks,
    "semantic": semantic_chunks,
    "sentences": sentence_chunks,
}
