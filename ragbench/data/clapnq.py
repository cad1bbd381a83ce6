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

    >>> rb.data.load_clapnq()
    Dataset('clapnq', 300 questions, 297 documents)
    """
    do = "copy annotated_data/dev from ClapNQ's repository there, or pass the file as path"
    file = shared_file(path, "clapnq", _FILE, name="ClapNQ", do=do)
    paragraphs = Paragraphs()
    questions = []
    excluded = []
    rows = read_jsonl(file)
    for question in each_record(file, rows, lambda row, where: _question(row, paragraphs)):
        if question.answer:
            questions.append(question)
        else:
            excluded.append((question.id, "no annotator wrote an answer"))
    meta = {"file": file.name, "setting": "gold passages only"}
    return Dataset("clapnq", tuple(questions), paragraphs.documents, tuple(excluded), meta)


def _question(row: dict, paragraphs: Paragraphs) -> Question:
    gold = []
    for page in row["passages"]:
        document = paragraphs.add(page["title"].strip(), page["text"].strip())
        gold.append(document.id)
    answers = []
    references: tuple[str, ...] = ()
    for output in row["output"]:
        answer = output["answer"].strip()
        if not answer:
            continue
        if not answers:
            references = tuple(text.strip() for text in output["selected_sentences"])
        answers.append(answer)
    meta = {"doc_ids": tuple(gold), "answers": tuple(answers)}
    first = next(iter(answers), "")
    return Question(row["id"], row["input"].strip(), first, references, meta=meta)
