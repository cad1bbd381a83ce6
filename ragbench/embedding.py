"""Embeddings: all-MiniLM-L6-v2 without torch, models behind Ollama, and a disk cache for all.

The thesis's own dense model runs on onnxruntime over the published weights (`ragbench.weights`
finds them). One of your own is one entry: ``EMBEDDERS["mine"] = make``.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
import re
import reprlib
import sqlite3
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import numpy as np
from langchain_core.embeddings import Embeddings

from ragbench.errors import ConfigError, DataError, ModelError, check_known
from ragbench.onnx_models import OnnxModel, cores
from ragbench.paths import cache_dir
from ragbench.text.languages import other_languages
from ragbench.text.tokens import default_tokenizer
from ragbench.weights import MINILM

_MAX_TOKENS = 256  # the model card's limit; the tokenizer file itself says 128
_DIMENSION = 384
_MAX_BYTES = 1_100  # about what MiniLM reads of a text
_BYTES_PER_SECOND = 13_000  # that it embeds on an ordinary core
_WAIT_S = 10.0  # for another process that writes
_BLOCK = 512  # texts embedded between two writes to disk
_SAMPLE = 50  # texts whose language is looked at
# of them in other languages than English are not worth a warning: quotations, tables, names
_FEW_FOREIGN = 0.1
_SAMPLE_OF_LENGTHS = 500  # texts that are tokenised to see what is not read of them
# stands before a query's text where a model embeds queries in a way of their own
_QUERY = "query\0"


class _Arrays(Embeddings):
    """LangChain's two methods, by ``embed_array`` and, where queries differ, ``embed_queries``."""

    def embed_array(self, texts: Sequence[str]) -> np.ndarray:
        raise NotImplementedError

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return self.embed_array(texts).tolist()

    def embed_query(self, text: str) -> list[float]:
        return as_array(self, [text], queries=True)[0].tolist()


class MiniLM(_Arrays):
    """all-MiniLM-L6-v2 on onnxruntime: unit vectors of 384 numbers, at most 256 tokens of a text.

    Equal to sentence-transformers to cosine 0.9999. Raises DataError, when it embeds, without the
    weights.

    Source: thesis §2.5.3; the model card of sentence-transformers/all-MiniLM-L6-v2.

    >>> len(rb.MiniLM().embed_query("Who built the mill?"))
    384
    """

    dimension = _DIMENSION

    def __repr__(self) -> str:
        return "MiniLM()"

    @property
    def model_id(self) -> str:
        """The model's name; with a digest of weights and tokenizer where they are not the published
        ones.
        """
        name = "all-MiniLM-L6-v2-fp32"
        version = MINILM.version()
        if version:
            name += f"@{version}"
        return name

    def embed_array(self, texts: Sequence[str]) -> np.ndarray:
        """Embed texts: float32, shape (len(texts), 384), rows of unit length."""
        vectors = np.empty((len(texts), _DIMENSION), dtype=np.float32)
        for rows, outputs in self._outputs(texts, tokens=False):
            vectors[rows] = outputs
        return vectors

    def token_vectors(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Return the vectors of each text's tokens, shape (tokens, 384); the first and the last
        are marks.
        """
        vectors: list[np.ndarray] = [np.empty(0)] * len(texts)
        for rows, outputs in self._outputs(texts, tokens=True):
            for row, padded in zip(rows, outputs, strict=True):
                is_token = padded.any(axis=1)  # padding has vectors of zeros
                vectors[row] = padded[is_token]
        return vectors

    def _outputs(self, texts: Sequence[str], tokens: bool) -> Iterator[tuple[np.ndarray, Any]]:
        _require_texts(texts)
        folder = MINILM.folder()
        intact = _intact(folder, MINILM.version())
        model = _minilm(folder, MINILM.version(), tokens)
        yield from model.outputs(texts)
        intact.result()

    def seconds_for(self, texts: Sequence[str]) -> float:
        """Say about how long it takes to embed texts."""
        bytes_read = sum(min(len(text.encode(errors="replace")), _MAX_BYTES) for text in texts)
        return bytes_read / _BYTES_PER_SECOND / cores()

    def unread_share(self, texts: Sequence[str]) -> float:
        """Return the share of the texts' tokens beyond the 256 that it reads, by 500 texts."""
        sample = list(texts[:: max(1, len(texts) // _SAMPLE_OF_LENGTHS)])
        encodings = default_tokenizer().encode_batch_fast(sample)
        lengths = np.array([len(encoding.ids) for encoding in encodings])
        unread = np.maximum(lengths - _MAX_TOKENS, 0)
        return float(unread.sum() / max(1, lengths.sum()))

    def warn_of_language(self, texts: Sequence[str]) -> None:
        """Warn of texts in other languages than English, which alone it knows."""
        sample = texts[:: max(1, len(texts) // _SAMPLE)]
        foreign = other_languages([text] for text in sample)
        if sum(foreign.values()) > _FEW_FOREIGN * len(sample):
            counts = ", ".join(f"{n} {name.capitalize()}" for name, n in foreign.items())
            warnings.warn(
                f"of {len(sample)} texts looked at, {counts}: all-MiniLM-L6-v2 knows English, its "
                "vectors say little of them. Name a multilingual model: embedder: ollama:bge-m3 "
                "(docs/models.md)",
                stacklevel=3,
            )


@functools.lru_cache(maxsize=2)
def _minilm(folder: Path, version: str, tokens: bool) -> OnnxModel:
    """Open the model, once for all `MiniLM` of a process: it takes half a second.

    ``version`` has other weights that come to lie in the folder opened anew.
    """
    return OnnxModel(folder, "model.safetensors", _MAX_TOKENS, tokens=tokens)


@functools.lru_cache(maxsize=2)
def _intact(folder: Path, version: str) -> Future[None]:
    """Read the weights again, once a process and beside the first embedding: DataError where they
    are not what was noted of files of this size and time.
    """
    pool = ThreadPoolExecutor(1)
    outcome = pool.submit(MINILM.check_remembered, folder)
    pool.shutdown(wait=False)
    return outcome


# What to do about a failure, where it is not the same as for a chat model.
_DO = {
    "busy": "run again later; vectors made so far are kept",
    "server": "look into the server's log, then run again; vectors made so far are kept",
    "truncated": "make smaller chunks, or take a model with a longer context",
    "unusable": (
        "check that host=... is an Ollama server, which gives one vector of numbers for each text"
    ),
}


class _OllamaEmbedder(_Arrays):
    """An embedding model behind Ollama, such as bge-m3, through the package ``ollama``.

    Parameters
    ----------
    name : as ``ollama list`` shows it.
    host : address of the server; default ``OLLAMA_HOST``, else this machine.
    deadline_s : seconds to wait for the vectors of 16 texts.

    Raises ModelError, whose ``kind`` is "down", "no_model",
    "busy" ..., when the server cannot answer, when a text is too long (the server never cuts one in
    silence), and when the model is replaced under its name meanwhile.
    """

    block = 16  # texts of a request: a laptop answers within the deadline

    def __init__(self, name: str, host: str | None = None, deadline_s: float = 120.0) -> None:
        from ragbench.llm.wire import OllamaServer

        self.name = name
        self.deadline_s = deadline_s
        self._server = OllamaServer(host, timeout_s=deadline_s)

    def __repr__(self) -> str:
        return f"OllamaEmbedder({self.name!r})"

    @functools.cached_property
    def model_id(self) -> str:
        """The name with the digest of the weights: a new pull is another model."""
        return self._name_and_digest()

    def embed_array(self, texts: Sequence[str]) -> np.ndarray:
        """Embed texts in one request: float32, shape (len(texts), dimension)."""
        _require_texts(texts)
        first = self.model_id
        vectors = _checked(self._vectors(texts), len(texts), repr(self))
        if self._name_and_digest() != first:
            what = "was replaced by another model under its name meanwhile"
            raise self._failure("unusable", what)
        return vectors

    def _vectors(self, texts: Sequence[str]) -> list[Sequence[float]]:
        try:
            embed = self._server.client.embed
            return self._request(embed, self.name, list(texts), truncate=False).embeddings
        except ModelError as error:
            if getattr(error, "kind", "") != "truncated":
                raise
        text = max(texts, key=len)  # the server does not say which
        what = f"{text[:60]!r}... of {len(text)} characters is too long"
        raise self._failure("truncated", what, text=text)

    def _name_and_digest(self) -> str:
        full_name = self._server.full_name(self.name)
        listed = self._request(self._server.models)
        digest = listed.get(full_name, {}).get("digest")
        if not digest:
            raise self._failure("no_model", f"not among {', '.join(listed) or 'none'}")
        return f"{full_name}@{digest[:12]}"

    def _request(self, call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        from ragbench.llm.failures import CallError

        try:
            return call(*arguments, **options)
        except Exception as error:  # of httpx, ollama, json and pydantic
            kind, words, _ = CallError.signs(error)
            if isinstance(error, ValueError | LookupError | TypeError):
                kind = "unusable"
                words = f"{type(error).__name__}: {str(error)[:200]}"
        raise self._failure(kind, words)

    def _failure(self, kind: str, detail: str, **details: Any) -> ModelError:
        from ragbench.llm.failures import CallError

        where = self._server.address.partition("//")[2]
        do = _DO.get(kind, "")
        return CallError.of(kind, detail, where, f"ollama:{self.name}", do=do, **details)


def _require_texts(texts: Sequence[str]) -> None:
    if isinstance(texts, str):
        raise ConfigError("one string", "a list of texts", "pass [text], or call embed_query(text)")
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            raise ConfigError(f"text {i} is {type(text).__name__}", "str", "pass texts only")


class NotOnDiskError(Exception):
    """Texts have no vector on disk, and no model may be asked, see
    `CachedEmbeddings.only_from_disk`.
    """

    def __init__(self, embedder: CachedEmbeddings, texts: list[str]) -> None:
        super().__init__(f"{len(texts)} texts have no vector on disk")
        self.embedder = embedder
        self.texts = texts


_no_model: ContextVar[bool] = ContextVar("no_model", default=False)


class CachedEmbeddings(_Arrays):
    """Any LangChain ``Embeddings`` with its vectors kept on disk, by content and model.

    One SQLite file per model: a half-written batch is never seen, and two processes may share it.

    Parameters
    ----------
    embedder : the model. It is called only for texts that are not on disk yet, and what it returns
        is checked before it is kept: one vector for each text, of one length, of finite numbers,
        not all of them 0.
    model_id : names the model and every setting that changes its vectors (server, revision,
        dimensions, instruction). Default ``embedder.model_id``; ConfigError where it has none.
    folder : where the file lies; default the cache folder.

    >>> embedder = rb.CachedEmbeddings(rb.MiniLM())
    >>> _ = embedder.embed_documents(["Ada built the mill."])
    >>> embedder.not_on_disk(["Ada built the mill.", "It burnt down."])
    ['It burnt down.']
    """

    def __init__(
        self, embedder: Embeddings, model_id: str | None = None, folder: Path | None = None
    ) -> None:
        kind = _kind(embedder)
        # of a class first: a model behind a server is not asked for its digest yet
        if not (model_id or hasattr(type(embedder), "model_id") or hasattr(embedder, "model_id")):
            raise ConfigError(
                f"{kind} does not say which model it is, and by which settings",
                "a model_id, since vectors are kept by content and model",
                "pass CachedEmbeddings(embedder, model_id='name, dimensions, server')",
            )
        self.embedder = embedder
        self._named_id = model_id
        self._folder = folder
        self._lock = threading.Lock()
        self.computed = 0  # texts that went to the model

    def __repr__(self) -> str:
        return f"CachedEmbeddings({self._named_id or self.embedder!r})"

    def __reduce__(self) -> tuple:  # a lock does not go to another process
        return CachedEmbeddings, (self.embedder, self._named_id, self._folder)

    @functools.cached_property
    def model_id(self) -> str:
        """The name that vectors are kept under.

        A model behind a server is asked for its digest only here.
        """
        return self._named_id or str(getattr(self.embedder, "model_id"))  # noqa: B009 - of a class that has one

    @functools.cached_property
    def path(self) -> Path:
        """The file of vectors."""
        folder = self._folder or cache_dir("vectors")
        name = re.sub(r"[^\w.-]", "_", self.model_id)
        digest = hashlib.sha256(self.model_id.encode()).hexdigest()
        return folder / f"{name}-{digest[:8]}.sqlite"

    @staticmethod
    @contextlib.contextmanager
    def only_from_disk() -> Iterator[None]:
        """Within it no model is asked: NotOnDiskError for texts without a vector."""
        before = _no_model.set(True)
        try:
            yield
        finally:
            _no_model.reset(before)

    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """Open the file; DataError, with its name, where it is damaged, foreign, full or gone."""
        try:
            with self._lock, closing(sqlite3.connect(self.path, timeout=_WAIT_S)) as db:
                # another process is just setting it
                with contextlib.suppress(sqlite3.OperationalError):
                    db.execute("PRAGMA journal_mode=WAL")
                db.execute("PRAGMA synchronous=NORMAL")
                db.execute(
                    "CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, value BLOB) "
                    "WITHOUT ROWID"
                )
                yield db
        except sqlite3.Error as error:
            raise DataError(
                f"the vectors in {self.path}: {error}",
                "a file of ragbench's vectors, in a folder with room to write",
                "make room, or delete the file: its vectors are then made again",
            ) from None

    def embed_array(self, texts: Sequence[str]) -> np.ndarray:
        """Embed documents, float32 (len(texts), dimension); only texts not on disk reach the
        model.
        """
        return self._embed(texts, queries=False)

    def embed_queries(self, texts: Sequence[str]) -> np.ndarray:
        """Embed queries, likewise.

        A model that embeds queries as it does documents keeps one vector for both.
        """
        return self._embed(texts, queries=True)

    def not_on_disk(self, texts: Sequence[str], *, queries: bool = False) -> list[str]:
        """List the distinct texts that have no vector on disk, as documents or as ``queries``."""
        text_of = dict(zip(self._keys(texts, queries), texts, strict=True))
        with self._open() as db:
            kept = _select(db, text_of)
        return [text for key, text in text_of.items() if key not in kept]

    def _keys(self, texts: Sequence[str], queries: bool) -> list[bytes]:
        """Return what vectors are kept under, by kind and content."""
        kind = ""
        has_arrays = hasattr(self.embedder, "embed_array")
        if queries and (not has_arrays or hasattr(self.embedder, "embed_queries")):
            kind = _QUERY
        contents = [(kind + text).encode("utf-8", "surrogatepass") for text in texts]
        return [hashlib.sha256(content).digest()[:16] for content in contents]

    def _embed(self, texts: Sequence[str], *, queries: bool) -> np.ndarray:
        _require_texts(texts)
        if not texts:
            return np.empty((0, 0), dtype=np.float32)
        keys = self._keys(texts, queries)
        text_of = dict(zip(keys, texts, strict=True))
        with self._open() as db:
            vectors = _select(db, text_of)
            missing = {key: text for key, text in text_of.items() if key not in vectors}
            if missing and _no_model.get():
                raise NotOnDiskError(self, list(missing.values()))
            vectors |= self._compute(missing, queries, db)
        self._check_lengths(vectors.values())
        joined = b"".join([vectors[key] for key in keys])
        return np.frombuffer(joined, dtype=np.float32).reshape(len(texts), -1)

    def _check_lengths(self, vectors: Iterable[bytes]) -> None:
        lengths = {len(vector) / 4 for vector in vectors}  # a number has 4 bytes
        if len(lengths) > 1 or lengths != {getattr(self.embedder, "dimension", min(lengths))}:
            numbers = ", ".join(f"{length:g}" for length in sorted(lengths))
            raise ModelError(
                f"{self.model_id} has vectors of lengths [{numbers}]",
                "one length",
                f"delete {self.path}, or give the model another model_id",
            )

    def _compute(
        self, missing: dict[bytes, str], queries: bool, db: sqlite3.Connection
    ) -> dict[bytes, bytes]:
        """Embed in blocks, each kept before the next begins: a run that is killed loses one."""
        from tqdm.auto import tqdm

        keys = sorted(missing, key=lambda key: len(missing[key]))  # like lengths share batches
        size = getattr(self.embedder, "block", _BLOCK)
        blocks = [keys[start : start + size] for start in range(0, len(keys), size)]
        vectors: dict[bytes, bytes] = {}
        for block in tqdm(blocks, desc="embedding", disable=len(blocks) < 2):
            vectors |= self._keep({key: missing[key] for key in block}, queries, db)
        return vectors

    def _keep(
        self, texts: dict[bytes, str], queries: bool, db: sqlite3.Connection
    ) -> dict[bytes, bytes]:
        """Embed texts and write their vectors."""
        arrays = as_array(self.embedder, list(texts.values()), queries=queries)
        for text, array in zip(texts.values(), arrays, strict=True):
            if not array.any():
                raise ModelError(
                    f"{self.model_id}: the vector of {text[:60]!r} is all 0",
                    "a vector with a direction",
                    "check the embedding model",
                )
        vectors = dict(zip(texts, map(np.ndarray.tobytes, arrays), strict=True))
        with db:
            db.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?)", vectors.items())
        self.computed += len(vectors)
        return vectors


def _select(db: sqlite3.Connection, keys: Iterable[bytes]) -> dict[bytes, bytes]:
    """Return the vectors that are there."""
    vectors: dict[bytes, bytes] = {}
    for key in keys:
        vectors.update(db.execute("SELECT key, value FROM vectors WHERE key = ?", (key,)))
    return vectors


def as_array(embedder: Embeddings, texts: Sequence[str], *, queries: bool = False) -> np.ndarray:
    """Embed documents or queries with any LangChain ``Embeddings``: float32, shape (len(texts),
    dimension), checked.
    """
    kind = _kind(embedder)
    arrays = getattr(embedder, "embed_array", None)
    of_queries = getattr(embedder, "embed_queries", arrays)
    if queries and of_queries:
        vectors = of_queries(list(texts))
    elif queries:
        vectors = [embedder.embed_query(text) for text in texts]
    else:
        vectors = (arrays or embedder.embed_documents)(list(texts))
    return _checked(vectors, len(texts), kind)


def _kind(embedder: Embeddings) -> str:
    """Return the name of an embedder's class; ConfigError for one that cuts texts in silence."""
    kind = type(embedder).__name__
    if kind == "OllamaEmbeddings":
        raise ConfigError(
            "OllamaEmbeddings, which cuts long texts in silence and hides which weights it has",
            "an embedder that does neither",
            f"rb.make_embedder('ollama:{getattr(embedder, 'model', 'NAME')}', host=...)",
        )
    return kind


def _checked(vectors: Any, n: int, name: str) -> np.ndarray:
    """Return vectors as float32 (n, dimension); ModelError, with the embedder's name, for
    others.
    """
    try:
        array = np.asarray(vectors, np.float32)
    except (TypeError, ValueError):  # of several lengths, or no numbers
        array = np.empty(0)
    whole = array.ndim == 2 and len(array) == n and (array.size > 0 or not n)
    if not whole or not np.isfinite(np.linalg.norm(array, axis=1)).all():
        raise ModelError(
            f"{name} returned for {n} texts {reprlib.repr(vectors)}",
            f"{n} vectors of one length, of finite numbers",
            "check the embedding model",
        )
    return array


# Name, or what stands before the colon in "ollama:NAME" -> what makes it of the rest and the
# options.
EMBEDDERS: dict[str, Callable[..., Embeddings]] = {"minilm": MiniLM, "ollama": _OllamaEmbedder}


def make_embedder(name: str = "minilm", **options: Any) -> CachedEmbeddings:
    """Make an embedder by name, with its vectors kept on disk.

    Parameters
    ----------
    name : ``"minilm"`` (English), ``"ollama:NAME"`` (an embedding model such as bge-m3, which reads
        many languages), or one of your own in `EMBEDDERS`.
    options : of the class, such as ``host`` of Ollama. ConfigError for an unknown name or option.

    >>> len(rb.make_embedder("minilm").embed_query("Who built the mill?"))
    384
    """
    kind, colon, rest = name.partition(":")
    needs_rest = {"ollama": True, "minilm": False}.get(kind, bool(colon))
    if kind not in EMBEDDERS or needs_rest != bool(rest):
        raise ConfigError.unknown("embedder", name, {*EMBEDDERS, "ollama:NAME"} - {"ollama"})
    make = EMBEDDERS[kind]
    check_known(f"option of {name}", options, {*inspect.signature(make).parameters} - {"name"})
    arguments = [rest] if rest else []
    return CachedEmbeddings(make(*arguments, **options))


def embed_distinct(embedder: Embeddings, texts: Sequence[str]) -> dict[str, np.ndarray]:
    """Embed distinct texts in one call; a text without a word is the zero vector."""
    distinct = list(dict.fromkeys(text for text in texts if text.strip()))
    rows = as_array(embedder, distinct) if distinct else np.zeros((0, 1), np.float32)
    zero = np.zeros(rows.shape[1], np.float32)
    return dict.fromkeys(texts, zero) | dict(zip(distinct, rows, strict=True))
