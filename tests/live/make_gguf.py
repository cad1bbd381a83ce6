"""Write a made language model: llama architecture, random weights, one token per byte. Its answers mean nothing.

Run by the interpreter that has ``gguf`` and ``llama_cpp``: ``python make_gguf.py OUT.gguf``.
"""

from __future__ import annotations

import sys

import numpy as np
from gguf import GGUFWriter, TokenType

LAYERS, WIDTH, HEADS, HIDDEN, CONTEXT = 2, 64, 4, 128, 4096


def write(path: str, seed: int = 0) -> None:
    """Write the model file (about 0.5 MB)."""
    rng = np.random.default_rng(seed)
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    # The tokenizer needs a piece for the space it puts before a text, and pieces for plain letters to spell with.
    tokens += ["\u2581", *(chr(code) for code in range(33, 127))]
    kinds = [TokenType.UNKNOWN, TokenType.CONTROL, TokenType.CONTROL]
    kinds += [TokenType.BYTE] * 256 + [TokenType.NORMAL] * (len(tokens) - 259)

    out = GGUFWriter(path, "llama")
    out.add_name("made")
    out.add_context_length(CONTEXT)
    out.add_embedding_length(WIDTH)
    out.add_block_count(LAYERS)
    out.add_feed_forward_length(HIDDEN)
    out.add_head_count(HEADS)
    out.add_head_count_kv(HEADS)
    out.add_layer_norm_rms_eps(1e-5)
    out.add_rope_dimension_count(WIDTH // HEADS)
    out.add_vocab_size(len(tokens))
    out.add_tokenizer_model("llama")
    out.add_token_list(tokens)
    out.add_token_scores([0.0] * len(tokens))
    out.add_token_types(kinds)
    out.add_bos_token_id(1)
    out.add_eos_token_id(2)
    out.add_unk_token_id(0)

    def random(*shape: int) -> np.ndarray:
        return rng.normal(0.0, 0.3, shape).astype(np.float32)

    out.add_tensor("token_embd.weight", random(len(tokens), WIDTH))
    out.add_tensor("output_norm.weight", np.ones(WIDTH, np.float32))
    out.add_tensor("output.weight", random(len(tokens), WIDTH))
    for layer in range(LAYERS):
        block = f"blk.{layer}."
        for name in ("attn_norm", "ffn_norm"):
            out.add_tensor(f"{block}{name}.weight", np.ones(WIDTH, np.float32))
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            out.add_tensor(f"{block}{name}.weight", random(WIDTH, WIDTH))
        out.add_tensor(f"{block}ffn_gate.weight", random(HIDDEN, WIDTH))
        out.add_tensor(f"{block}ffn_up.weight", random(HIDDEN, WIDTH))
        out.add_tensor(f"{block}ffn_down.weight", random(WIDTH, HIDDEN))
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


if __name__ == "__main__":
    write(sys.argv[1])
