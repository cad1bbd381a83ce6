"""all-MiniLM-L6-v2 as an ONNX graph, built from its published weights: no package on PyPI holds it
as an ONNX file in full precision.

Follows the BERT encoder (Devlin et al. 2019) with the mean of the tokens, of unit length. Does not
handle token types (always 0) or the pooler head (unused).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

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


def build(stored: Mapping[str, np.ndarray], *, tokens: bool = False) -> Any:
    """Build the encoder graph of a model's weights, arrays by their names in ``model.safetensors``.

    Returns
    -------
    onnx.ModelProto with inputs ``input_ids`` int64 (batch, tokens) and ``attention_mask`` float32
    (batch, tokens), 1 for a real token; output ``sentence_embedding`` float32 (batch, 384) of unit
    length, or with ``tokens`` ``token_embeddings`` (batch, tokens, 384), whose sum has the
    direction of that, with 0 for padding.
    """
    from onnx import numpy_helper, parser

    output = "float[batch, 384] sentence_embedding"
    if tokens:
        output = "float[batch, tokens, 384] token_embeddings"
    text = _INPUT % {"output": output}
    for i in range(_LAYERS):
        layer = _LAYER.replace("@next", f"x{i + 1}").replace("@x", f"x{i}")
        text += layer.replace("@", f"encoder_layer_{i}_")
    model = parser.parse_model(text + _OUTPUT % {"last": f"x{_LAYERS}"})
    used = {name for node in model.graph.node for name in node.input}
    for name, array in _constants(stored).items():
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
