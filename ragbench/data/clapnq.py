"""ClapNQ: Natural Questions with long answers, over their gold passages (Rosenthal et al. 2024).

RAGChecker's benchmark has the same 300 answerable development questions (Table 1, row ClapNQ) over a corpus of 4,293
documents. That corpus is not in this file: the documents here are the questions' own gold passages, 297 of them. To
find one among 297 is easier than among 4,293, so retrieval scores are higher here and not the paper's.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ragbench.data.files import each_record, from_mirror, numbered_lines, require_text, require_texts
from ragbench.data.hotpotqa import Paragraphs
from ragbench.errors import DataError
from ragbench.records import Dataset, Question

FILE = "clapnq_dev_answerable.jsonl"


def load_clapnq(path: str | Path | None = None) -> Dataset:
    """Load ClapNQ's answerable questions with their long answers and gold passages.

    Parameters
    ----------
    path : JSON lines such as ``annotated_data/dev/clapnq_dev_answerable.jsonl`` of ClapNQ's repository.
        Default: ``RAGBENCH_DATA/clapnq``.

    Returns
    -------
    Dataset. ``answer`` is the long answer of the first annotator who wrote one, ``references`` are the passage's
    sentences that this annotator selected (empty where none were), ``meta["answers"]`` all long answers in the file's
    order, ``meta["doc_ids"]`` the gold passages and ``meta["non_consecutive"]`` whether the selected sentences have
    others between them. A passage that several questions share is one document; passages with one title are told
    apart by number. Questions without a written answer are listed in ``excluded``.

    Raises
    ------
    DataError with file and line for a missing or malformed field; bad lines are reported together.

    Source: RAGChecker, section 4.1 and Table 1 (ClapNQ).
    """
    do = "copy annotated_data/dev from ClapNQ's repository there, or pass the file as path"
    given = from_mirror(path, "clapnq", FILE, got="ClapNQ is not on this machine", do=do)
    excluded: list[tuple[str, str]] = []
    seen: dict[str, str] = {}
    passages = Paragraphs()

    def question(row: dict, where: str) -> Question | None:
        name = require_text(row, "id", where)
        if name in seen:
            raise DataError(
                f"{where}: the id {name!r} is that of {seen[name]} too", "an id used once", "mend one of them"
            )
        seen[name] = where.rpartition(", ")[2]
        answered = _question(row, name, where, passages)
        if answered is None:
            excluded.append((name, "no annotator wrote an answer"))
        return answered

    questions = each_record(given, numbered_lines(given), question)
    meta = {"file": given.name, "setting": "gold passages only"}
    return Dataset("clapnq", tuple(questions), tuple(passages.documents.values()), tuple(excluded), meta)


def _question(row: dict, name: str, where: str, passages: Paragraphs) -> Question | None:
    text = require_text(row, "input", where).strip()
    gold = [_passage(p, f"{where}, passages[{i}]") for i, p in enumerate(_objects(row, "passages", where))]
    outputs = []
    for i, output in enumerate(_objects(row, "output", where)):
        at = f"{where}, output[{i}]"
        answer = require_text(output, "answer", at, empty=True).strip()
        selected = tuple(map(str.strip, require_texts(output, "selected_sentences", at)))
        outputs.append((answer, selected, output.get("meta") or {}))
    doc_ids = tuple(passages.add(*passage) for passage in gold)
    written = [output for output in outputs if output[0]]
    if not written:
        return None
    answer, selected, about = written[0]
    meta: Mapping[str, Any] = {
        "doc_ids": doc_ids,
        "answers": tuple(w[0] for w in written),
        "non_consecutive": bool(about.get("non_consecutive")),
    }
    return Question(name, text, answer, selected, meta=meta)


def _passage(passage: dict, where: str) -> tuple[str, str, tuple[str, ...]]:
    title, text = (require_text(passage, field, where).strip() for field in ("title", "text"))
    cut, start = [], 0
    for sentence in require_texts(passage, "sentences", where):
        begin = text.find(sentence.strip(), start)
        if begin < 0:
            raise DataError(
                f"{where}: its text lacks the sentence {sentence[:40]!r}",
                "the sentences of that text in their order",
                "copy the file again",
            )
        end = begin + len(sentence.strip())
        cut.append(text[start:end])
        start = end
    if cut:
        cut[-1] += text[start:]
    return title, text, tuple(cut)


def _objects(row: dict, field: str, where: str) -> list[dict]:
    value = row.get(field)
    if not isinstance(value, list) or not value or not all(isinstance(item, dict) for item in value):
        said = f"is {type(value).__name__} {str(value)[:40]!r}" if field in row else "is missing"
        raise DataError(
            f"{where}: {field!r} {said}", "a list of one or more objects", "check that this is a ClapNQ file"
        )
    return value
