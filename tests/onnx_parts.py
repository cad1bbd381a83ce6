"""A tiny exported cross-encoder for the tests: a word-level tokenizer, a model that counts."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

WORDS = [
    "[PAD]",
    "[CLS]",
    "[SEP]",
    "[UNK]",
    "query",
    "passage",
    ":",
    "sun",
    "rain",
    "snow",
    "moon",
    "not",
]


def tokenizer(folder):
    made = Tokenizer(WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    made.pre_tokenizer = Whitespace()
    made.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 1), ("[SEP]", 2)],
    )
    made.save(str(folder / "tokenizer.json"))


def classifier(folder, first, second):
    """A folder whose model adds up, for a pair, rows of ``first`` (tokens of the first text) and of
    ``second``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer(folder)
    nodes = [
        helper.make_node("Gather", ["first", "input_ids"], ["a"]),
        helper.make_node("Gather", ["second", "input_ids"], ["b"]),
        helper.make_node("Cast", ["token_type_ids"], ["types"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["types", "last"], ["in_second"]),
        helper.make_node("Sub", ["one", "in_second"], ["in_first"]),
        helper.make_node("Mul", ["a", "in_first"], ["a_kept"]),
        helper.make_node("Mul", ["b", "in_second"], ["b_kept"]),
        helper.make_node("Add", ["a_kept", "b_kept"], ["tokens"]),
        helper.make_node("ReduceSum", ["tokens", "axis"], ["logits"], keepdims=0),
    ]
    consts = {
        "first": first.astype(np.float32),
        "second": second.astype(np.float32),
        "one": np.float32(1),
    }
    consts |= {"last": np.array([2], np.int64), "axis": np.array([1], np.int64)}
    out = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", first.shape[1]])]
    _save(folder, nodes, consts, out, ["input_ids", "token_type_ids"])
    return folder


def rows(width, **words):
    """A table of zeros with a row for each word named."""
    table = np.zeros((len(WORDS), width))
    for word, row in words.items():
        table[WORDS.index(word)] = row
    return table


def _save(folder, nodes, consts, outputs, inputs):
    fed = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "tokens"])
        for name in inputs
    ]
    initial = [numpy_helper.from_array(np.asarray(value), name) for name, value in consts.items()]
    graph = helper.make_graph(nodes, "tiny", fed, outputs, initial)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(model, folder / "model.onnx")
