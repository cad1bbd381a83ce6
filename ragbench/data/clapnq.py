"""ClapNQ: Natural Questions with long answers, over their gold passages (Rosenthal et al. 2024).

RAGChecker's benchmark has the same 300 answerable development questions (Table 1, row ClapNQ) over a corpus of 4,293
documents. That corpus is not in this file: the documents here are the questions' own gold passages, 297 of them. To
find one among 297 is easier than among 4,293, so retrieval scores are higher here and not the paper's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from ragbench.data.files import Filled, Plain, Row, read_records, shared_file
from ragbench.data.hotpotqa import Paragraphs
from ragbench.errors import DataError
from ragbench.records import Dataset, Question

_FILE = "clapnq_dev_answerable.jsonl"


class _Passage(Row):
    title: Filled
    text: Filled
    sentences: tuple[Filled, ...]


class _Output(Row):
    answer: Plain
    selected_sentences: tuple[Filled, ...]
    meta: dict[str, Any] | None = None


class _Asked(Row):
    id: Filled
    input: Filled
    passages: Annotated[tuple[_Passage, ...], Field(min_length=1)]
    output: Annotated[tuple[_Output, ...], Field(min_length=1)]


def load_clapnq(path: str | Path | None = None) -> Dataset:
    """Load ClapNQ's answerable questions with their long answers and gold passages.

    Parameters
    ----------
    path : JSON lines such as ClapNQ's ``annotated_data/dev/clapnq_dev_answerable.jsonl``; default
        ``RAGBENCH_DATA/clapnq``.

    Returns
    -------
    Dataset. ``answer`` is the long answer of the first annotator who wrote one, ``references`` the sentences of the
    passage that this annotator selected, ``meta["answers"]`` all long answers in the file's order, ``meta["doc_ids"]``
    the gold passages and ``meta["non_consecutive"]`` whether there are other sentences between the selected ones.
    Equal passages are one document. Questions without a written answer are listed in ``excluded``.

    Source: RAGChecker, section 4.1 and Table 1 (ClapNQ).
    """
    do = "copy annotated_data/dev from ClapNQ's repository there, or pass the file as path"
    given = shared_file(path, "clapnq", _FILE, name="ClapNQ", do=do)
    documents = Paragraphs()
    questions = read_records(
        given, _Asked, lambda row, where: _question(row, where, documents), lambda question: [f"the id {question.id!r}"]
    )
    answered = tuple(question for question in questions if question.answer)
    excluded = tuple((question.id, "no annotator wrote an answer") for question in questions if not question.answer)
    meta = {"file": given.name, "setting": "gold passages only"}
    return Dataset("clapnq", answered, tuple(documents.documents.values()), excluded, meta)


def _question(row: _Asked, where: str, documents: Paragraphs) -> Question:
    gold = [_passage(passage, f"{where}, passages[{place}]") for place, passage in enumerate(row.passages)]
    meta: dict[str, Any] = {"doc_ids": tuple(documents.add(*passage) for passage in gold)}
    written = [output for output in row.output if output.answer.strip()]
    if not written:
        return Question(row.id, row.input.strip(), "", meta=meta)
    meta["answers"] = tuple(output.answer.strip() for output in written)
    meta["non_consecutive"] = bool((written[0].meta or {}).get("non_consecutive"))
    selected = tuple(sentence.strip() for sentence in written[0].selected_sentences)
    return Question(row.id, row.input.strip(), meta["answers"][0], selected, meta=meta)


def _passage(passage: _Passage, where: str) -> tuple[str, str, tuple[str, ...]]:
    """Return title, text, and the text divided after each of its sentences."""
    text = passage.text.strip()
    cut, start = [], 0
    for sentence in map(str.strip, passage.sentences):
        begin = text.find(sentence, start)
        if begin < 0:
            got, expected = f"{where}: its text lacks the sentence {sentence[:40]!r}", "that text's sentences in order"
            raise DataError(got, expected, "copy the file again")
        cut.append(text[start : begin + len(sentence)])
        start = begin + len(sentence)
    if cut:
        cut[-1] += text[start:]
    return passage.title.strip(), text, tuple(cut)
