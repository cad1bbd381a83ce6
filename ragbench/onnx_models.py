"""Exported transformer models on onnxruntime:

`Classifier` reads pairs of texts, for rerankers and checkers.
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
from ragbench.paths import sha256_of
from ragbench.text.tokens import load_tokenizer

_TOKENS_PER_BATCH = (
    512  # what a layer makes of them stays in a core's cache: 1.5 times as fast as 4,096
)
_MOST_TOKENS = 100_000  # a tokenizer without a limit says 10^30
_OVERLAP = 64  # tokens that neighbouring windows of a long text share
_TYPES = {"tensor(int64)": np.int64, "tensor(int32)": np.int32, "tensor(float)": np.float32}


def cores() -> int:
    """Return the number of cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def session(model: str | bytes) -> Any:
    """Open a model, from a file or as bytes, on the CPU;

    a call of it takes one thread, see `run_batches`.
    """
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


def run_batches(
    model: Any, encodings: Sequence[Any]
) -> Iterator[tuple[np.ndarray, list[np.ndarray]]]:
    """Feed encoded texts to a session, in batches of like length so that little is spent on
    padding, one per core.

    Yields places of texts and the session's outputs for them.
    """
    lengths = np.array([len(e.ids) for e in encodings], dtype=np.int64)
    order = np.argsort(lengths, kind="stable")
    inputs = {i.name: _TYPES.get(i.type, np.int64) for i in model.get_inputs()}
    batches = []
    start = 0
    while start < len(order):
        stop = start + 1
        while stop < len(order) and lengths[order[stop]] * (stop + 1 - start) <= _TOKENS_PER_BATCH:
            stop += 1
        batches.append(order[start:stop])
        start = stop

    def run(rows: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
        ids = np.zeros((len(rows), lengths[rows[-1]]), dtype=np.int64)
        types = np.zeros_like(ids)
        mask = np.zeros(ids.shape, dtype=np.float32)
        for i, row in enumerate(rows):
            ids[i, : lengths[row]] = encodings[row].ids
            types[i, : lengths[row]] = encodings[row].type_ids
            mask[i, : lengths[row]] = 1
        fed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}
        return rows, model.run(
            None, {name: fed[name].astype(kind, copy=False) for name, kind in inputs.items()}
        )

    with ThreadPoolExecutor(cores()) as pool:
        yield from pool.map(run, batches)


class Classifier:
    """A sequence classifier over pairs of texts, exported to ONNX.

    Parameters
    ----------
    folder : with ``model.onnx`` and ``tokenizer.json``; ``config.json`` may name the labels
    (``id2label``).
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
        self.folder = Path(folder).expanduser()
        self.cut = cut
        if not (self.folder / "tokenizer.json").is_file():
            what = "has no tokenizer.json" if self.folder.is_dir() else "is not there"
            raise DataError(
                f"{self.folder} {what}",
                "a folder with model.onnx and tokenizer.json",
                "see docs/models.md",
            )
        # exporters use both
        places = (self.folder / "model.onnx", self.folder / "onnx" / "model.onnx")
        self._onnx = next((place for place in places if place.is_file()), places[0])
        if not self._onnx.is_file():
            do = "optimum-cli export onnx --task text-classification --model NAME FOLDER"
            raise DataError(
                f"{self.folder} has no model.onnx", "an exported sequence classifier", do
            )
        about = self._settings("config.json")
        said = (
            self._settings("tokenizer_config.json").get("model_max_length"),
            about.get("max_position_embeddings"),
        )
        own = next(
            (int(n) for n in said if isinstance(n, int | float) and 0 < n < _MOST_TOKENS), 512
        )
        self.max_tokens = max_tokens or own
        if self.max_tokens < 2 * (_OVERLAP + 1):
            raise ConfigError(
                f"max_tokens={self.max_tokens}", f"at least {2 * (_OVERLAP + 1)}", "leave it out"
            )
        named = about.get("id2label", {})
        self.labels = (
            tuple(labels) if labels else tuple(str(named[key]) for key in sorted(named, key=int))
        )

    def _settings(self, name: str) -> dict[str, Any]:
        path = self.folder / name
        try:
            return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        except ValueError as error:
            raise DataError(f"{path}: {error}", "JSON", "copy the file again") from None

    @functools.cached_property
    def digest(self) -> str:
        """Hash of weights, tokenizer and settings."""
        total = hashlib.sha256(
            json.dumps({"max_tokens": self.max_tokens, "overlap": _OVERLAP}).encode()
        )
        for path in (self._onnx, self.folder / "tokenizer.json"):
            total.update(bytes.fromhex(sha256_of(path)))
        return total.hexdigest()

    @functools.cached_property
    def _tokenizer(self) -> Any:
        tokenizer = load_tokenizer(self.folder / "tokenizer.json")
        # One text is cut into windows that overlap, the other one is whole in each of them.
        tokenizer.enable_truncation(self.max_tokens, stride=_OVERLAP, strategy=f"only_{self.cut}")
        return tokenizer

    @functools.cached_property
    def _session(self) -> Any:
        return session(str(self._onnx))

    def logits(self, pairs: Sequence[tuple[str, str]]) -> list[np.ndarray]:
        """Return each pair's logits, shape (windows, labels):

        several windows where the pair is too long.
        """
        encodings = []
        owners = []
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
                got = f"{self.folder}: outputs of shape {values.shape} for {len(rows)} pairs"
                do = "export with --task text-classification, or name the labels: labels=[...]"
                raise ModelError(
                    got, f"one number for each of {len(self.labels) or 'the'} labels", do
                )
            windows |= zip(rows.tolist(), values, strict=True)
        logits: list[list[np.ndarray]] = [[] for _ in pairs]
        for i, owner in enumerate(owners):
            logits[owner].append(windows[i])
        return [np.array(values) for values in logits]
