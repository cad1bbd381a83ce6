"""Transformer models on onnxruntime: encoded texts in batches, one per core.

The graph of all-MiniLM-L6-v2 is built here from its published weights: no package on PyPI holds it
as an ONNX file in full precision. It follows the BERT encoder (Devlin et al. 2019) with the mean of
the tokens, of unit length, and does not handle token types (always 0) or the pooler head (unused).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ragbench.errors import DataError
from ragbench.text.tokens import load_tokenizer

# what a layer makes of them stays in a core's cache: 1.5 times as fast as 4,096
_TOKENS_PER_BATCH = 512
_TYPES = {"tensor(int64)": np.int64, "tensor(float)": np.float32}


def cores() -> int:
    """Return the number of cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class OnnxModel:
    """A transformer and its tokenizer, on the CPU.

    Parameters
    ----------
    folder : with ``tokenizer.json`` and ``file``.
    file : of ONNX, or the ``model.safetensors`` of all-MiniLM-L6-v2.
    max_tokens : that are read of a text.
    tokens : of MiniLM the vectors of the tokens, in place of that of the text.
    """

    def __init__(self, folder: Path, file: str, max_tokens: int, *, tokens: bool = False) -> None:
        self._tokenizer = load_tokenizer(folder / "tokenizer.json")
        self._tokenizer.enable_truncation(max_tokens)
        self._session = _session(folder / file, tokens)

    def outputs(self, texts: Sequence[Any]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the places of some of the texts (or pairs of texts) and the model's output for
        them.

        Batches are of like length, so that little is spent on padding.
        """
        encodings = self._tokenizer.encode_batch_fast(list(texts))
        batches = _batches(np.array([len(e.ids) for e in encodings], dtype=np.int64))
        with ThreadPoolExecutor(cores()) as pool:
            yield from pool.map(partial(self._run, encodings), batches)

    def _run(self, encodings: Sequence[Any], rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        batch = [encodings[row] for row in rows]
        for encoding in batch:
            encoding.pad(len(batch[-1].ids))  # the last is the longest
        fed = {
            "input_ids": [encoding.ids for encoding in batch],
            "attention_mask": [encoding.attention_mask for encoding in batch],
            "token_type_ids": [encoding.type_ids for encoding in batch],
        }
        needed = self._session.get_inputs()
        inputs = {i.name: np.array(fed[i.name], _TYPES[i.type]) for i in needed}
        (output,) = self._session.run(None, inputs)
        return rows, output


def _session(path: Path, tokens: bool) -> Any:
    """Open a model of a file; a call of it takes one thread."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    model: str | bytes = str(path)
    if path.suffix == ".safetensors":
        model = _graph(path, tokens).SerializeToString()
    try:
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime has an exception of its own for every status
        raise DataError(f"{path}: {error}", "an ONNX model", "export it again") from None


def _batches(lengths: np.ndarray) -> list[np.ndarray]:
    """Group places by length, so that a batch has few tokens."""
    order = np.argsort(lengths, kind="stable")
    batches = []
    start = 0
    for stop in range(1, len(order) + 1):
        if stop < len(order) and lengths[order[stop]] * (stop + 1 - start) <= _TOKENS_PER_BATCH:
            continue
        batches.append(order[start:stop])
        start = stop
    return batches


# -- the graph of all-MiniLM-L6-v2

_LAYERS = 6
_HEADS = 12
_WIDTH = 384
_DENSE = ("attention_output_dense", "intermediate_dense", "output_dense")

# Shapes: x (batch, tokens, 384), q and v (batch, 12, tokens, 32), k (batch, 12, 32, tokens).
_INPUT = """
<ir_version: 9, opset_import: ["" : 20]>
encoder (int64[batch, tokens] input_ids, float[batch, tokens] attention_mask) => (%(output)s)
<int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}, int64[2] one_two = {1, 2},
 int64 first = {0}, int64 second = {1}, int64 third = {2}, float real = {1}, float huge = {1e9},
 int64[5] split = {0, 0, 3, 12, 32}, int64[3] merged = {0, 0, 384}>
{
  word = Gather(embeddings_word_embeddings_weight, input_ids)
  length = Shape<start = 1, end = 2>(input_ids)
  place = Slice(places, zero, length, zero)
  embedded = Add(word, place)
  x0 = LayerNormalization<axis = -1, epsilon = 1e-12>
       (embedded, embeddings_LayerNorm_weight, embeddings_LayerNorm_bias)
  padding = Sub(attention_mask, real)
  far_below = Mul(padding, huge)
  hidden = Unsqueeze(far_below, one_two)
"""
_LAYER = """
  @qkv_product = MatMul(@x, @qkv_weight)
  @qkv_sum = Add(@qkv_product, @qkv_bias)
  @qkv_heads = Reshape(@qkv_sum, split)
  @qkv = Transpose<perm = [2, 0, 3, 1, 4]>(@qkv_heads)
  @q = Gather<axis = 0>(@qkv, first)
  @k_rows = Gather<axis = 0>(@qkv, second)
  @v = Gather<axis = 0>(@qkv, third)
  @k = Transpose<perm = [0, 1, 3, 2]>(@k_rows)
  @scores = MatMul(@q, @k)
  @seen = Add(@scores, hidden)
  @shares = Softmax<axis = -1>(@seen)
  @mixed_heads = MatMul(@shares, @v)
  @mixed_rows = Transpose<perm = [0, 2, 1, 3]>(@mixed_heads)
  @mixed = Reshape(@mixed_rows, merged)
  @attended_product = MatMul(@mixed, @attention_output_dense_weight)
  @attended = Add(@attended_product, @attention_output_dense_bias)
  @attended_sum = Add(@attended, @x)
  @a = LayerNormalization<axis = -1, epsilon = 1e-12>
       (@attended_sum, @attention_output_LayerNorm_weight, @attention_output_LayerNorm_bias)
  @wide_product = MatMul(@a, @intermediate_dense_weight)
  @wide_sum = Add(@wide_product, @intermediate_dense_bias)
  @wide = Gelu(@wide_sum)
  @narrow_product = MatMul(@wide, @output_dense_weight)
  @narrow = Add(@narrow_product, @output_dense_bias)
  @narrow_sum = Add(@narrow, @a)
  @next = LayerNormalization<axis = -1, epsilon = 1e-12>
       (@narrow_sum, @output_LayerNorm_weight, @output_LayerNorm_bias)
"""
# The mean's divisor cancels against the unit length, so the sum is enough.
_OUTPUT = """
  mask = Unsqueeze(attention_mask, two)
  token_embeddings = Mul(%(last)s, mask)
  total = ReduceSum<keepdims = 0>(token_embeddings, one)
  sentence_embedding = LpNormalization<axis = -1, p = 2>(total)
}
"""


def _graph(path: Path, tokens: bool) -> Any:
    """Build the encoder graph of MiniLM's weights.

    Returns
    -------
    onnx.ModelProto with inputs ``input_ids`` int64 (batch, tokens) and ``attention_mask`` float32
    (batch, tokens), 1 for a real token; output ``sentence_embedding`` float32 (batch, 384) of unit
    length, or with ``tokens`` ``token_embeddings`` (batch, tokens, 384), whose sum has the
    direction of that, with 0 for padding.
    """
    from onnx import numpy_helper, parser
    from safetensors.numpy import load_file

    output = "float[batch, 384] sentence_embedding"
    if tokens:
        output = "float[batch, tokens, 384] token_embeddings"
    text = _INPUT % {"output": output}
    for i in range(_LAYERS):
        layer = _LAYER.replace("@next", f"x{i + 1}").replace("@x", f"x{i}")
        text += layer.replace("@", f"encoder_layer_{i}_")
    model = parser.parse_model(text + _OUTPUT % {"last": f"x{_LAYERS}"})
    used = {name for node in model.graph.node for name in node.input}
    for name, array in _constants(load_file(path)).items():
        if name in used:
            array = np.ascontiguousarray(array)
            model.graph.initializer.append(numpy_helper.from_array(array, name))
    return model


def _constants(stored: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return what the graph's names stand for."""
    arrays = {name.replace(".", "_"): array for name, array in stored.items()}
    # Token type 0 is added to every position, so it is folded into the position table.
    positions = arrays["embeddings_position_embeddings_weight"]
    arrays["places"] = positions + arrays["embeddings_token_type_embeddings_weight"][0]
    for i in range(_LAYERS):
        layer = f"encoder_layer_{i}"
        kernel, bias = _joined_attention(arrays, f"{layer}_attention_self")
        arrays[f"{layer}_qkv_weight"] = kernel.T
        arrays[f"{layer}_qkv_bias"] = bias
        for name in _DENSE:
            arrays[f"{layer}_{name}_weight"] = arrays[f"{layer}_{name}_weight"].T
    return arrays


def _joined_attention(arrays: Mapping[str, np.ndarray], part: str) -> tuple[np.ndarray, np.ndarray]:
    """Join the weights of query, key and value, which one product computes."""
    names = [f"{part}_{name}" for name in ("query", "key", "value")]
    kernel = np.concatenate([arrays[f"{name}_weight"] for name in names])
    bias = np.concatenate([arrays[f"{name}_bias"] for name in names])
    # scaling the query weights once saves scaling every score
    scale = np.sqrt(_WIDTH / _HEADS)
    kernel[:_WIDTH] /= scale
    bias[:_WIDTH] /= scale
    return kernel, bias
