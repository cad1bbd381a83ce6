"""Documents -> chunks: windows of tokens, whole sentences, and the thesis's semantic chunking
(§2.5.2).

The thesis describes windows of three consecutive sentences, sliding by two, and a fixed similarity
threshold (``profile="paper"``). The published run did something else (``profile="as_run"``): short
sentences merged to at least 200 characters, windows of three sentences on either side, each
document's own 80th percentile of distances as threshold, and a blank before each sentence of a
chunk. The default, ``profile="merged"``, has the settings of the run without the blanks, and a
short sentence at the end joins the one before: with it the shipped answers were recorded.

Chunks come in document order, ids ``<document id>#0, #1, ...``. But with ``as_run`` a chunk is a
slice of its document's text, so a supporting sentence inside it stays as it is.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ragbench.errors import ConfigError, check_known
from ragbench.records import Chunk, Document, check_records
from ragbench.text.languages import UNSPACED
from ragbench.text.sentences import SENTENCES, Span, sentence_spans
from ragbench.text.tokens import TokenOffsets, default_tokenizer

_RUN = {
    "window": 3,
    "stride": 1,
    "percentile": 80.0,
    "threshold": None,
    "min_chars": 200,
    "max_tokens": None,
}
PROFILES: dict[str, dict] = {
    "merged": _RUN,
    "as_run": _RUN,
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
# Pieces of a text that are tokenised at a time, since what the tokenizer makes of a character takes
# 150 bytes: they end after white space, where there is any.
_PIECE = re.compile(r".{1,16384}(?:\s|\Z)|.{1,16384}", re.DOTALL)
_PIECES = 64
# a word; Chinese, Thai ... may be cut anywhere
_INSIDE = re.compile(rf"(?<=[^\s{UNSPACED}])(?=[^\s{UNSPACED}])")


def _documents(documents: Iterable[Document]) -> list[Document]:
    documents = list(documents)
    check_records(documents, Document, "documents")
    return documents


def _chunks(document: Document, pieces: Iterable[str | Span]) -> list[Chunk]:
    """Return the chunks of a document from texts or spans; a piece without text leaves out its
    number, too.
    """
    chunks = []
    for number, piece in enumerate(pieces):
        text = piece if isinstance(piece, str) else document.text[slice(*piece)]
        if text.strip():
            name = f"{document.id}#{number}"
            chunks.append(Chunk(name, text.strip(), document.id, document.title))
    return chunks


def _token_starts(text: str) -> np.ndarray:
    """Return where the tokens of a text begin, in characters."""
    tokenizer = default_tokenizer()
    pieces = list(_PIECE.finditer(text))
    starts = [np.empty(0, np.int64)]
    for first in range(0, len(pieces), _PIECES):
        batch = pieces[first : first + _PIECES]
        offsets = TokenOffsets.spans(tokenizer, [piece[0] for piece in batch])
        for piece, spans in zip(batch, offsets, strict=True):
            in_piece = np.array([start for start, _ in spans], np.int64)
            starts.append(piece.start() + in_piece)
    return np.concatenate(starts)


def token_chunks(
    documents: Iterable[Document], size: int = 250, overlap: float = 0.2, words: bool = True
) -> list[Chunk]:
    """Cut documents into windows of at most ``size`` tokens of MiniLM's WordPiece.

    Parameters
    ----------
    overlap : share of a chunk repeated at the start of the next, in [0, 1).
    words : chunks begin and end between words; only a word of more than ``size`` tokens is cut.
        False, as in the papers' runs here: after ``size`` tokens, within a word where that falls.

    The default fits into the 256 tokens, with two marks, that MiniLM reads of a text.

    Source: RAGChecker, App. D (300 tokens, overlap 0.2); RAGEval, §5.4.

    >>> document = rb.Document("mill", "Mill", "Ada built the mill. It burnt down in 1902.")
    >>> [chunk.text for chunk in rb.token_chunks([document], size=5, overlap=0.2)]
    ['Ada built the mill.', 'mill. It burnt down', 'down in 1902.']
    """
    if size < 1:
        raise ConfigError(f"size={size!r}", "at least 1 token", "use for instance size=250")
    if not 0 <= overlap < 1:
        raise ConfigError(
            f"overlap={overlap!r}", "a share in [0, 1)", "use for instance overlap=0.2"
        )
    step = max(1, size - round(size * overlap))
    chunks = []
    for document in _documents(documents):
        chunks += _chunks(document, _windows_of_tokens(document.text, size, step, words))
    return chunks


def _windows_of_tokens(text: str, size: int, step: int, words: bool) -> list[Span]:
    """Return where windows of at most ``size`` tokens lie, about ``step`` tokens apart."""
    bounds = _bounds(text)
    last = len(bounds) - 1
    spans = []
    start = stop = 0  # in tokens
    while stop < last:
        stop = min(start + size, last)
        if words:
            stop = _between_words(text, bounds, start, stop, stop)
        spans.append((bounds[start], bounds[stop]))
        following = min(start + step, stop)
        if words:
            following = _between_words(text, bounds, start, following, stop)
        start = following
    return spans


def _between_words(text: str, bounds: np.ndarray, start: int, token: int, otherwise: int) -> int:
    """Return the last token after ``start``, up to ``token``, that begins a word, or is past the
    end; ``otherwise`` where there is none.
    """
    while start < token < len(bounds) - 1 and _INSIDE.match(text, bounds[token]):
        token -= 1
    return token if token > start else otherwise


def _bounds(text: str) -> np.ndarray:
    """Say where tokens begin and the last ends; what a tokenizer drops, as an accent, goes with the
    one before.
    """
    return np.maximum.accumulate(np.concatenate([[0], _token_starts(text)[1:], [len(text)]]))


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


def _settings(profile: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the profile's settings with the options in their place."""
    check_known("chunking profile", [profile], PROFILES)
    check_known("chunking setting", options, PROFILES[profile])
    chosen = {name: value for name, value in options.items() if value is not None}
    if "threshold" in chosen:
        chosen["percentile"] = None  # a threshold goes before it
    return PROFILES[profile] | chosen


def segment(
    documents: Iterable[Document],
    embedder: Any = None,
    profile: str = "merged",
    **settings: float | None,
) -> list[_Segmentation]:
    """Find the semantic breaks of each document (settings as in `semantic_chunks`).

    A document whose windows are all the same text has distance 0 everywhere and is not embedded:
    but with ``paper`` this holds for four merged sentences or fewer, which is most of HotpotQA's
    paragraphs (notebook 10 counts them). An embedder reads the beginning of a window that is longer
    than it can read, as in the published run.

    >>> document = rb.data.load_minihop().documents[0]
    >>> len(rb.segment([document], rb.MiniLM()))
    1
    """
    chosen = _settings(profile, settings)
    sentences = []
    windows = []
    distinct: dict[str, None] = {}
    rule = "as_run" if profile == "as_run" else "chunks"
    for document in _documents(documents):
        spans = sentence_spans(document.text, rule, chosen["min_chars"])
        texts = _windows(document.text, spans, profile, chosen["window"], chosen["stride"])
        sentences.append(spans)
        windows.append(texts)
        if len(set(texts)) > 1:
            distinct |= dict.fromkeys(texts)
    vectors = _unit_vectors(list(distinct), embedder)
    segmentations = []
    for spans, texts in zip(sentences, windows, strict=True):
        segmentations.append(_segmentation(spans, _distances(texts, vectors), chosen))
    return segmentations


def _segmentation(
    sentences: Sequence[Span], distances: np.ndarray, settings: Mapping[str, Any]
) -> _Segmentation:
    """Return where the distances between a document's windows cut it."""
    threshold = 0.0
    if settings["percentile"] is None:
        threshold = 1.0 - settings["threshold"]
    elif len(distances):
        threshold = float(np.percentile(distances, settings["percentile"]))
    # Windows are centred on their sentence, so the break lies before the next centre; with paper
    # the new chunk begins with the first sentence of the next window.
    starts = tuple(settings["stride"] * number for number in range(1, len(distances) + 1))
    return _Segmentation(tuple(sentences), distances, threshold, starts)


def _distances(windows: Sequence[str], vectors: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return the cosine distance of each window from the next one.

    The same text on both sides is no break, whatever rounding says.
    """
    differ = np.array([a != b for a, b in itertools.pairwise(windows)], bool)
    distances = np.zeros(differ.size)
    if differ.any():
        embedded = np.stack([vectors[text] for text in windows])
        cosines = np.einsum("ij,ij->i", embedded[:-1], embedded[1:], dtype=np.float64)
        distances[differ] = 1.0 - cosines[differ]
    return distances


def _windows(
    text: str, sentences: Sequence[Span], profile: str, window: int, stride: int
) -> list[str]:
    """Return the texts of a document's windows of sentences."""
    count = len(sentences)
    if not count:
        return []
    before = 0
    after = window
    last = max(1, count - window + stride)
    if profile != "paper":
        before = window
        after = window + 1
        last = count
    windows = []
    for place in range(0, last, stride):
        first = max(0, place - before)
        final = min(count, place + after) - 1
        windows.append(text[sentences[first][0] : sentences[final][1]])
    return windows


def _unit_vectors(texts: list[str], embedder: Any) -> dict[str, np.ndarray]:
    """Embed texts, each to unit length."""
    if not texts:
        return {}
    from ragbench.embedding import MiniLM, as_array, make_embedder

    embedder = embedder or make_embedder()
    model = getattr(embedder, "embedder", embedder)
    if isinstance(model, MiniLM):
        model.warn_of_language(texts)
    vectors = as_array(embedder, texts)
    vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return dict(zip(texts, vectors, strict=True))


def semantic_chunks(
    documents: Iterable[Document],
    embedder: Any = None,
    profile: str = "merged",
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
    profile : ``"merged"``, ``"as_run"`` or ``"paper"``; every setting left at None takes the
        profile's value (`PROFILES`).
    window, stride : sentences of a window (but for ``paper`` on either side of its centre), and
        from one window to the next.
    percentile : break where the distance is above this percentile of the document's own distances,
        0-100.
    threshold : break where the cosine similarity falls below this fixed value (the thesis gives
        none; ours is 0.5); it goes before a percentile.
    min_chars : merge sentences up to this length first.
    max_tokens : the thesis's maximum chunk size S (§2.2): longer chunks are cut at sentence ends,
        else between words.

    Source: thesis §2.5.2; for ``as_run`` the published run.

    >>> document = rb.data.load_minihop().documents[0]
    >>> rb.semantic_chunks([document], rb.MiniLM())[0].doc_id == document.id
    True
    """
    documents = _documents(documents)
    options = {"window": window, "stride": stride, "percentile": percentile}
    options |= {"threshold": threshold, "min_chars": min_chars, "max_tokens": max_tokens}
    limit = _settings(profile, options)["max_tokens"]
    chunks = []
    segmentations = segment(documents, embedder, profile, **options)
    for document, cut in zip(documents, segmentations, strict=True):
        spans: list[Span] = []
        groups = list(_groups(cut))
        for sentences in groups:
            if limit:
                spans += _at_most(document.text, sentences, limit)
            else:
                spans.append((sentences[0][0], sentences[-1][1]))
        found = _chunks(document, spans)
        if profile == "as_run" and not limit:
            for chunk, sentences in zip(found, groups, strict=True):
                chunks.append(replace(chunk, text=_text_as_run(document.text, sentences)))
        else:
            chunks += found
    return chunks


def _groups(cut: _Segmentation) -> Iterator[tuple[Span, ...]]:
    """Yield the sentences between two breaks."""
    bounds = [0, *(cut.starts[place] for place in cut.breaks), len(cut.sentences)]
    for first, after in itertools.pairwise(bounds):
        if first < after:
            yield cut.sentences[first:after]


def _at_most(text: str, sentences: Sequence[Span], limit: int) -> list[Span]:
    """Pack sentences into spans of at most ``limit`` tokens."""
    base = sentences[0][0]
    stop = sentences[-1][1]
    bounds = base + _bounds(text[base:stop])
    start = 0  # of the last span
    cuts = [start]
    whole = 0  # tokens of the whole sentences so far
    for end in _sentence_ends(bounds, sentences):
        if end - start > limit:
            start = whole
            cuts.append(start)
        while end - start > limit:
            start = _between_words(text, bounds, start, start + limit, start + limit)
            cuts.append(start)
        whole = end
    cuts.append(whole)
    tokens = itertools.pairwise(cuts)
    return [(bounds[first], bounds[last]) for first, last in tokens if first < last]


def _sentence_ends(bounds: np.ndarray, sentences: Sequence[Span]) -> list[int]:
    """Return where sentences end, in tokens."""
    following = [start for start, _ in sentences[1:]]
    return [*np.searchsorted(bounds[:-1], following).tolist(), len(bounds) - 1]


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
    check_known("unit", [unit], UNITS)
    chunks = []
    for document in _documents(documents):
        text = document.text
        starts = _token_starts(text) if unit == "tokens" else np.arange(len(text))
        spans: list[Span] = []
        for start, end in sentence_spans(text, language):
            inside = text[start:end]
            start += len(inside) - len(inside.lstrip())
            end -= len(inside) - len(inside.rstrip())
            if spans:
                first, after = np.searchsorted(starts, (spans[-1][0], end))
                if after - first <= size:
                    start, _ = spans.pop()
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

    >>> document = rb.Document("mill", "Mill", "Ada built it.\\nIt burnt down.")
    >>> [chunk.text for chunk in rb.split_chunks([document], str.splitlines)]
    ['Ada built it.', 'It burnt down.']
    """
    if not callable(split):
        raise ConfigError(
            f"split is {split!r:.120}", "a function text -> texts", "pass splitter.split_text"
        )
    chunks = []
    for document in _documents(documents):
        pieces = split(document.text)
        texts: list[Any] = [None]
        if isinstance(pieces, Iterable) and not isinstance(pieces, str):
            texts = [getattr(piece, "page_content", piece) for piece in pieces]
        if not all(isinstance(text, str) for text in texts):
            raise ConfigError(
                f"split gave {pieces!r:.120} for document {document.id!r}",
                "a list of texts",
                "pass splitter.split_text",
            )
        chunks += _chunks(document, texts)
    return chunks


# One of your own is a function documents -> chunks, and one entry.
CHUNKERS: dict[str, Callable[..., list[Chunk]]] = {
    "token_chunks": token_chunks,
    "semantic": semantic_chunks,
    "sentences": sentence_chunks,
}


def _text_as_run(text: str, sentences: Sequence[Span]) -> str:
    """Join sentences of a text as the thesis's published run wrote its chunks: a blank before each,
    and one where white space stood between those that were merged.
    """
    gap = SENTENCES["as_run"].gap
    return " ".join(" " + gap.sub(" ", text[start:end]) for start, end in sentences)
