"""ClapNQ: Natural Questions with long answers, over their gold passages (Rosenthal et al. 2024).

RAGChecker's benchmark has the same 300 answerable development questions (Table 1, row ClapNQ) over
a corpus of 4,293 documents. That corpus is not in this file: the documents here are the questions'
own gold passages, 297 of them. To find one among 297 is easier than among 4,293, so retrieval
scores are higher here and not the paper's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field

from ragbench.data.files import FileRecord, Filled, read_records, shared_file
from ragbench.data.hotpotqa import Paragraphs
from ragbench.records import Dataset, Question

_FILE = "clapnq_dev_answerable.jsonl"


class _Passage(FileRecord):
    title: Filled
    text: Filled


class _Output(FileRecord):
    answer: str
    selected_sentences: tuple[Filled, ...]


class _Asked(FileRecord):
    id: Filled
    input: Filled
    passages: Annotated[tuple[_Passage, ...], Field(min_length=1)]
    output: Annotated[tuple[_Output, ...], Field(min_length=1)]


def load_clapnq(path: str | Path | None = None) -> Dataset:
    """Load ClapNQ's answerable questions with their long answers and gold passages.

    Parameters
    ----------
    path : ClapNQ's ``annotated_data/dev/clapnq_dev_answerable.jsonl``; default
        ``RAGBENCH_DATA/clapnq``.

    Returns
    -------
    Dataset. ``answer`` and ``references`` are the long answer and the selected sentences of the
    first annotator who wrote one, ``meta["answers"]`` all long answers, ``meta["doc_ids"]`` the
    gold passages.

    Source: RAGChecker, section 4.1 and Table 1 (ClapNQ).
    """
    do = "copy annotated_data/dev from ClapNQ's repository there, or pass the file as path"
    given = shared_file(path, "clapnq", _FILE, name="ClapNQ", do=do)
    documents = Paragraphs()
    questions = []
    excluded = []
    for row in read_records(given, _Asked, once=lambda row: [f"the id {row.id!r}"]):
        gold = [
            documents.add(passage.title.strip(), passage.text.strip()) for passage in row.passages
        ]
        written = [output for output in row.output if output.answer.strip()]
        if not written:
            excluded.append((row.id, "no annotator wrote an answer"))
            continue
        answers = tuple(output.answer.strip() for output in written)
        selected = tuple(sentence.strip() for sentence in written[0].selected_sentences)
        meta = {"doc_ids": tuple(gold), "answers": answers}
        questions.append(Question(row.id, row.input.strip(), answers[0], selected, meta=meta))
    meta = {"file": given.name, "setting": "gold passages only"}
    return Dataset(
        "clapnq", tuple(questions), tuple(documents.documents.values()), tuple(excluded), meta
    )
