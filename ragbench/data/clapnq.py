"""ClapNQ: Natural Questions with long answers, over their gold passages (Rosenthal et al. 2024).

RAGChecker's benchmark has the same 300 answerable development questions (Table 1, row ClapNQ) over
a corpus of 4,293 documents. That corpus is not in this file: the documents here are the questions'
own gold passages, 297 of them. To find one among 297 is easier than among 4,293, so retrieval
scores are higher here and not the paper's.
"""

from __future__ import annotations

from pathlib import Path

from ragbench.data.files import each_record, read_jsonl, shared_file
from ragbench.data.hotpotqa import Paragraphs
from ragbench.records import Dataset, Question

_FILE = "clapnq_dev_answerable.jsonl"


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
    file = shared_file(path, "clapnq", _FILE, name="ClapNQ", do=do)
    documents = Paragraphs()
    every = each_record(file, read_jsonl(file), lambda row, where: _question(row, documents))
    questions = tuple(question for question in every if question.answer)
    unanswered = (question for question in every if not question.answer)
    excluded = tuple((question.id, "no annotator wrote an answer") for question in unanswered)
    meta = {"file": file.name, "setting": "gold passages only"}
    return Dataset("clapnq", questions, documents.documents, excluded, meta)


def _question(row: dict, documents: Paragraphs) -> Question:
    pages = row["passages"]
    gold = [documents.add(page["title"].strip(), page["text"].strip()).id for page in pages]
    written = [output for output in row["output"] if output["answer"].strip()]
    answers = tuple(output["answer"].strip() for output in written)
    selected = written[0]["selected_sentences"] if written else ()
    return Question(
        row["id"],
        row["input"].strip(),
        answers[0] if answers else "",
        tuple(text.strip() for text in selected),
        meta={"doc_ids": tuple(gold), "answers": answers},
    )
