"""A sentence encoder of BERT's kind as an ONNX graph, built from its weights.

Follows the BERT encoder (Devlin et al. 2019) with the mean of the tokens, of unit length. Does not
handle token types (always 0) or the pooler head (unused by MiniLM and E5).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def build(stored: Mapping[str, Any], layers: int, heads: int, eps: float, *, tokens: bool = False):
    """Build the encoder graph of a model's weights.

    Parameters
    ----------
    stored : arrays by their names in ``model.safetensors``. The table of words may be in 4 bits:
    uint8 (words, blocks,
        16), and its ``scale`` (words, blocks, 1). It then stays so in the graph, where a batch
        needs few of its rows.
    eps : of the layer norms.
    tokens : give each token's vector, not the text's.

    Returns
    -------
    onnx.ModelProto with inputs ``input_ids`` int64 (batch, tokens) and ``attention_mask`` float32
    (batch, tokens), 1 for a real token; output ``sentence_embedding`` float32 (batch, width) of
    unit length, or ``token_embeddings`` (batch, tokens, width), whose sum has the direction of
    that.
    """
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    floats = {
        name: value for name, value in stored.items() if value.dtype in (np.float16, np.float32)
    }
    w = {name: value.astype(np.float32, copy=False) for name, value in floats.items()}
    width = w["embeddings.position_embeddings.weight"].shape[1]
    head = width // heads
    nodes = []
    consts = []

    def const(name: str, value) -> str:
        consts.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def op(kind: str, *inputs: str, out: str, **attributes) -> str:
        nodes.append(helper.make_node(kind, list(inputs), [out], **attributes))
        return out

    def dense(x: str, kernel, bias, out: str) -> str:
        product = op("MatMul", x, const(f"{out}_w", kernel.T), out=f"{out}_mm")
        return op("Add", product, const(f"{out}_b", bias), out=out)

    def norm(x: str, key: str, out: str) -> str:
        scale = const(f"{out}_s", w[f"{key}.weight"])
        shift = const(f"{out}_t", w[f"{key}.bias"])
        return op("LayerNormalization", x, scale, shift, out=out, axis=-1, epsilon=eps)

    def words_of_4_bits(table) -> str:
        rows = op("Gather", const("word", table), "input_ids", out="word_bytes")
        low = op("BitwiseAnd", rows, const("fifteen", np.uint8(15)), out="word_low")
        high = op("BitShift", rows, const("four", np.uint8(4)), out="word_high", direction="RIGHT")
        numbers = op(
            "Cast",
            op("Concat", low, high, out="word_halves", axis=-1),
            out="word_cast",
            to=TensorProto.FLOAT,
        )
        numbers = op("Sub", numbers, const("eight", np.float32(8)), out="word_numbers")
        scale = op(
            "Gather",
            const("word_scale", w["embeddings.word_embeddings.scale"]),
            "input_ids",
            out="word_scales",
        )
        blocks = op("Mul", numbers, scale, out="word_blocks")
        return op(
            "Reshape",
            blocks,
            const("word_shape", np.array([0, 0, width], np.int64)),
            out="word_rows",
        )

    table = stored["embeddings.word_embeddings.weight"]
    in_4_bits = table.dtype == np.uint8
    word = (
        words_of_4_bits(table)
        if in_4_bits
        else op("Gather", const("word", table), "input_ids", out="word_rows")
    )
    # Token type 0 is added to every position, so it is folded into the position table.
    table = (
        w["embeddings.position_embeddings.weight"] + w["embeddings.token_type_embeddings.weight"][0]
    )
    length = op("Shape", "input_ids", out="length", start=1, end=2)
    zero = const("zero", np.array([0], np.int64))
    one = const("one", np.array([1], np.int64))
    place = op("Slice", const("places", table), zero, length, zero, out="place_rows")
    x = norm(op("Add", word, place, out="summed"), "embeddings.LayerNorm", "x0")

    # (batch, tokens) -> additive (batch, 1, 1, tokens): 0 for a real token, a large negative number
    # for padding
    hidden = op("Sub", "attention_mask", const("one_f", np.float32(1)), out="mask_minus_1")
    hidden = op("Mul", hidden, const("huge", np.float32(1e9)), out="mask_scaled")
    hidden = op("Unsqueeze", hidden, const("axes", np.array([1, 2], np.int64)), out="mask_4d")
    split_shape = const("split_shape", np.array([0, 0, 3, heads, head], np.int64))
    merge_shape = const("merge_shape", np.array([0, 0, width], np.int64))
    first = const("first", np.array([0], np.int64))

    for i in range(layers):
        key = f"encoder.layer.{i}"
        n = f"l{i}"
        parts = [f"{key}.attention.self.{part}" for part in ("query", "key", "value")]
        kernel = np.concatenate([w[f"{p}.weight"] for p in parts])
        bias = np.concatenate([w[f"{p}.bias"] for p in parts])
        kernel[:width] /= np.sqrt(head)  # scaling the query weights once saves scaling every score
        bias[:width] /= np.sqrt(head)
        qkv = op("Reshape", dense(x, kernel, bias, f"{n}_qkv"), split_shape, out=f"{n}_heads")
        # (3, batch, heads, tokens, head)
        qkv = op("Transpose", qkv, out=f"{n}_t", perm=[2, 0, 3, 1, 4])
        split = [f"{n}_{part}5" for part in "qkv"]
        nodes.append(helper.make_node("Split", [qkv], split, axis=0, num_outputs=3))
        q, k, v = (op("Squeeze", s, first, out=s[:-1]) for s in split)
        k = op("Transpose", k, out=f"{n}_kt", perm=[0, 1, 3, 2])
        scores = op("Add", op("MatMul", q, k, out=f"{n}_raw"), hidden, out=f"{n}_scores")
        mixed = op("MatMul", op("Softmax", scores, out=f"{n}_p", axis=-1), v, out=f"{n}_mixed")
        mixed = op("Transpose", mixed, out=f"{n}_back", perm=[0, 2, 1, 3])
        mixed = op("Reshape", mixed, merge_shape, out=f"{n}_merged")
        output = f"{key}.attention.output"
        attended = dense(mixed, w[f"{output}.dense.weight"], w[f"{output}.dense.bias"], f"{n}_o")
        x = norm(op("Add", attended, x, out=f"{n}_r1"), f"{output}.LayerNorm", f"{n}_a")
        inner = dense(
            x, w[f"{key}.intermediate.dense.weight"], w[f"{key}.intermediate.dense.bias"], f"{n}_i"
        )
        inner = op("Gelu", inner, out=f"{n}_g")
        inner = dense(
            inner, w[f"{key}.output.dense.weight"], w[f"{key}.output.dense.bias"], f"{n}_f"
        )
        x = norm(op("Add", inner, x, out=f"{n}_r2"), f"{key}.output.LayerNorm", f"{n}_x")

    weight = op(
        "Unsqueeze", "attention_mask", const("last", np.array([2], np.int64)), out="mask_3d"
    )
    # The mean's divisor cancels against the unit length, so the sum is enough.
    output = op("Mul", x, weight, out="token_embeddings")
    axes = ["batch", "tokens", width]
    if not tokens:
        total = op("ReduceSum", output, one, out="total", keepdims=0)
        output = op("LpNormalization", total, out="sentence_embedding", axis=-1, p=2)
        axes = ["batch", width]

    graph = helper.make_graph(
        nodes,
        "sentence encoder",
        [
            helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "tokens"]),
            helper.make_tensor_value_info("attention_mask", TensorProto.FLOAT, ["batch", "tokens"]),
        ],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, axes)],
        consts,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
