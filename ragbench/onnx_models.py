"""Exported transformer models on onnxruntime: one folder each, with ``model.onnx``, ``tokenizer.json`` and settings.

`run_batches` feeds encoded texts to a session in batches of like length. `Classifier` reads pairs of texts, long ones
in windows, for rerankers and checkers.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from ragbench.errors import ConfigError, DataError, ModelError

_TOKENS_PER_BATCH = 512  # what a layer makes of them stays in a core's cache: 1.5 times as fast as 4,096
_MOST_TOKENS = 100_000  # a tokenizer without a limit says 10^30
_OVERLAP = 64  # tokens that neighbouring windows of a long text share
_TYPES = {"tensor(int64)": np.int64, "tensor(int32)": np.int32, "tensor(float)": np.float32}


def cores() -> int:
    """Return the number of cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def session(model: str | bytes) -> Any:
    """Open a model, from a file or as bytes, on the CPU; a call of it takes one thread, see `run_batches`."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime has an exception of its own for every status
        if isinstance(model, bytes):
            raise
        raise DataError(f"{model}: {error}", "an ONNX model", "export it again") from None


def run_batches(model: Any, encodings: Sequence[Any]) -> Iterator[tuple[np.ndarray, list[np.ndarray]]]:
    """Feed encoded texts to a session, in batches of like length so that little is spent on padding, one per core.

    Yields places of texts and the session's outputs for them.
    """
    lengths = np.array([len(e.ids) for e in encodings], dtype=np.int64)
    order = np.argsort(lengths, kind="stable")
    inputs = {i.name: _TYPES.get(i.type, np.int64) for i in model.get_inputs()}
    batches, start = [], 0
    while start < len(order):
        stop = start + 1
        while stop < len(order) and lengths[order[stop]] * (stop + 1 - start) <= _TOKENS_PER_BATCH:
            stop += 1
        batches.append(order[start:stop])
        start = stop

    def run(rows: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
        ids = np.zeros((len(rows), lengths[rows[-1]]), dtype=np.int64)
        types, mask = np.zeros_like(ids), np.zeros(ids.shape, dtype=np.float32)
        for i, row in enumerate(rows):
            ids[i, : lengths[row]] = encodings[row].ids
            types[i, : lengths[row]] = encodings[row].type_ids
            mask[i, : lengths[row]] = 1
        fed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}
        return rows, model.run(None, {name: fed[name].astype(kind, copy=False) for name, kind in inputs.items()})

    with ThreadPoolExecutor(cores()) as pool:
        yield from pool.map(run, batches)


class ModelFolder:
    """A folder of an exported model: its files, and what they say of its settings."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).expanduser()
        if not (self.path / "tokenizer.json").is_file():
            what = "has no tokenizer.json" if self.path.is_dir() else "is not there"
            raise DataError(f"{self.path} {what}", "a folder with model.onnx and tokenizer.json", "see docs/models.md")

    @functools.cached_property
    def onnx(self) -> Path | None:
        """The file model.onnx, here or in the folder onnx, where exporters put it; None without."""
        places = (self.path / "model.onnx", self.path / "onnx" / "model.onnx")
        return next((place for place in places if place.is_file()), None)

    def settings(self, name: str) -> dict[str, Any]:
        """Read a JSON file of settings; none where there is no such file."""
        path = self.path / name
        if not path.is_file():
            return {}
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise DataError(f"{path}: {error}", "JSON", "copy the file again") from None
        if not isinstance(values, dict):
            raise DataError(f"{path} holds a {type(values).__name__}", "a dict", "copy the file again")
        return values

    def max_tokens(self) -> int:
        """Return how many tokens the model reads, by the first file that says so; 512 where none does."""
        said = (
            self.settings("tokenizer_config.json").get("model_max_length"),
            self.settings("config.json").get("max_position_embeddings"),
        )
        return next((int(n) for n in said if isinstance(n, int | float) and 0 < n < _MOST_TOKENS), 512)

    def tokenizer(self, max_tokens: int | None = None) -> Any:
        """Load the tokenizer without padding, cutting after so many tokens where a number is given."""
        from tokenizers import Tokenizer

        try:
            tokenizer = Tokenizer.from_file(str(self.path / "tokenizer.json"))
        except Exception as error:  # the library raises Exception itself
            raise DataError(f"{self.path / 'tokenizer.json'}: {error}", "a tokenizer", "copy the file again") from None
        tokenizer.no_truncation()
        if max_tokens is not None:
            tokenizer.enable_truncation(max_tokens)
        tokenizer.no_padding()
        return tokenizer


class Classifier:
    """A sequence classifier over pairs of texts, exported to ONNX.

    Parameters
    ----------
    folder : with ``model.onnx`` and ``tokenizer.json``; ``config.json`` may name the labels (``id2label``).
    labels : names of the model's outputs in their order, instead of those of ``config.json``.
    max_tokens : of a pair; default what the folder says.
    cut : "first" or "second" text of a pair, which is read in windows where the pair is too long.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        labels: Sequence[str] | None = None,
        cut: str = "second",
        max_tokens: int | None = None,
    ) -> None:
        self.folder = ModelFolder(folder)
        if self.folder.onnx is None:
            do = "optimum-cli export onnx --task text-classification --model NAME FOLDER"
            raise DataError(f"{self.folder.path} has no model.onnx", "an exported sequence classifier", do)
        self.cut, self.max_tokens = cut, max_tokens or self.folder.max_tokens()
        if self.max_tokens < 2 * (_OVERLAP + 1):
            raise ConfigError(f"max_tokens={self.max_tokens}", f"at least {2 * (_OVERLAP + 1)}", "leave it out")
        named = self.folder.settings("config.json").get("id2label", {})
        self.labels = tuple(labels) if labels else tuple(str(named[key]) for key in sorted(named, key=int))

    @functools.cached_property
    def digest(self) -> str:
        """Hash of weights, tokenizer and settings."""
        assert self.folder.onnx is not None
        total = hashlib.sha256(json.dumps({"max_tokens": self.max_tokens, "overlap": _OVERLAP}).encode())
        for path in (self.folder.onnx, self.folder.path / "tokenizer.json"):
            with open(path, "rb") as file:
                total.update(hashlib.file_digest(file, "sha256").digest())
        return total.hexdigest()

    @functools.cached_property
    def _tokenizer(self) -> Any:
        tokenizer = self.folder.tokenizer(self.max_tokens)
        # One text is cut into windows that overlap, the other one is whole in each of them.
        tokenizer.enable_truncation(self.max_tokens, stride=_OVERLAP, strategy=f"only_{self.cut}")
        return tokenizer

    @functools.cached_property
    def _session(self) -> Any:
        return session(str(self.folder.onnx))

    def logits(self, pairs: Sequence[tuple[str, str]]) -> list[np.ndarray]:
        """Return each pair's logits, shape (windows, labels): several windows where the pair is too long."""
        encodings, owners = [], []
        for i, (first, second) in enumerate(pairs):
            try:
                encoding = self._tokenizer.encode(first, second)
            except Exception as error:  # the library raises Exception itself
                whole = first if self.cut == "second" else second
                got = f"{whole[:60]!r}... leaves no room for the other text: {error}"
                raise DataError(got, f"fewer than {self.max_tokens} tokens", "shorten it") from None
            encodings += [encoding, *encoding.overflowing]
            owners += [i] * (1 + len(encoding.overflowing))
        windows: dict[int, np.ndarray] = {}
        for rows, outputs in run_batches(self._session, encodings):
            values = outputs[0]
            if values.ndim != 2 or (self.labels and values.shape[1] != len(self.labels)):
                got = f"{self.folder.path}: outputs of shape {values.shape} for {len(rows)} pairs"
                do = "export with --task text-classification, or name the labels: labels=[...]"
                raise ModelError(got, f"one number for each of {len(self.labels) or 'the'} labels", do)
            windows |= zip(rows.tolist(), values, strict=True)
        logits: list[list[np.ndarray]] = [[] for _ in pairs]
        for i, owner in enumerate(owners):
            logits[owner].append(windows[i])
        return [np.array(values) for values in logits]
