"""A larger corpus from a Wikipedia dump: other pages beside the gold ones, as the thesis did up to 100,000 (§2.5.1)."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import random
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from ragbench.data.files import MAX_FIELD, bounded_lines
from ragbench.errors import ConfigError, DataError
from ragbench.records import Document


def build_wiki_corpus(dump: str | Path, n: int, seed: int = 0, gold: Iterable[Document] = ()) -> tuple[Document, ...]:
    """Put pages of a dump, drawn at random, beside the gold documents until there are ``n``.

    One pass of reservoir sampling: only the drawn pages are in memory.

    Parameters
    ----------
    dump : HotpotQA's processed Wikipedia (the ``.tar.bz2``, or its unpacked folder of ``.bz2`` files), or any
        JSON-lines file (plain, ``.gz``, ``.bz2``) of pages ``{"id", "title", "text"}`` whose text is a string or a
        list of sentences (or of paragraphs, each a list of sentences).
    n : documents in the corpus, the gold ones included.
    gold : documents that must be in it, e.g. ``load_hotpotqa().documents``. Pages of the same title are not added.

    Returns
    -------
    The gold documents in their order, then the drawn pages in the dump's order.
    """
    gold = tuple(gold)
    wanted = n - len(gold)
    if wanted < 0:
        raise ConfigError(f"n={n}", f"at least the {len(gold)} gold documents", "raise n")
    titles, ids = {d.title for d in gold}, {d.id for d in gold}
    rng = random.Random(seed)
    drawn: list[tuple[int, Document]] = []
    count = 0
    for document in _pages(Path(dump).expanduser()):
        if document.title in titles or document.id in ids or not document.text.strip():
            continue
        count += 1
        if len(drawn) < wanted:
            drawn.append((count, document))
        elif wanted and (slot := rng.randrange(count)) < wanted:
            drawn[slot] = (count, document)
    if count < wanted:
        got, do = f"{dump} has {count:,} usable pages besides the gold ones", f"use n={len(gold) + count} or less"
        raise DataError(got, f"at least {wanted:,}", f"{do}, or a larger dump")
    return gold + tuple(document for _, document in sorted(drawn, key=lambda pair: pair[0]))


def _pages(dump: Path) -> Iterator[Document]:
    if not dump.exists():
        raise DataError(f"there is no dump {dump}", "a file or folder of a Wikipedia dump", "check the path")
    if ".tar" in dump.suffixes:
        with tarfile.open(dump) as archive:
            for member in archive:
                stream = archive.extractfile(member) if member.isfile() else None
                if stream is not None:
                    yield from _records(bz2.BZ2File(stream) if member.name.endswith(".bz2") else stream, member.name)
        return
    files = [dump]
    if dump.is_dir():
        files = sorted(p for p in dump.rglob("*") if p.suffix in (".bz2", ".gz", ".jsonl"))
        if not files:
            raise DataError(f"{dump} holds no .bz2, .gz or .jsonl file", "the unpacked dump", "check the path")
    for file in files:
        yield from _records({".bz2": bz2.open, ".gz": gzip.open}.get(file.suffix, io.FileIO)(file), file)


def _records(stream: IO[bytes], name: str | Path) -> Iterator[Document]:
    with stream:
        try:
            for number, line in enumerate(bounded_lines(stream, name), 1):
                if line.strip():
                    yield _page(line, f"{name}, line {number}")
        except (OSError, EOFError) as error:
            raise DataError(f"{name} is damaged: {error}", "a whole compressed file", "download it again") from None


def _page(line: bytes, where: str) -> Document:
    try:
        row = json.loads(line)
        sentences = tuple(_sentences(row["text"]))
        title, name = str(row["title"]), str(row.get("id", row["title"]))
    except (ValueError, KeyError, TypeError, AttributeError):
        expected = 'an object {"id", "title", "text"} per line'
        raise DataError(f"{where}: no page: {line[:60]!r}", expected, "check that this is the dump") from None
    text = "".join(sentences)
    if len(text) > MAX_FIELD:
        raise DataError(f"{where}: a page of {len(text):,} characters", f"at most {MAX_FIELD:,}", "check the dump")
    return Document(f"wiki-{name}", title, text, sentences)


def _sentences(text: Any) -> Iterator[str]:
    """Flatten a text, a list of sentences, or a list of paragraphs of sentences."""
    if isinstance(text, str):
        yield text
    else:
        for part in text:
            yield from _sentences(part)
