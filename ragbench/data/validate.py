"""Checks on a question set that loading does not make: is each question answerable from its own evidence?"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ragbench.data.hotpotqa import load_hotpotqa
from ragbench.data.user import load_csv, load_jsonl
from ragbench.records import Dataset, Question

_WORD = re.compile(r"[^\W_]+")


@dataclass(frozen=True)
class Problem:
    """One finding: which question, what is wrong, and what to do."""

    question_id: str
    what: str
    do: str

    def __str__(self) -> str:
        return f"{self.question_id}: {self.what}; {self.do}"


def _plain(text: str) -> str:
    return f" {' '.join(_WORD.findall(text.casefold()))} "


def validate(dataset: Dataset, *, min_documents: int = 1) -> list[Problem]:
    """Check a data set's questions against their own evidence.

    Parameters
    ----------
    dataset : questions with references, and the documents these come from.
    min_documents : how many documents each question's evidence must come from (2 for two-hop questions such as MiniHop's).

    Returns
    -------
    Problems, in order of the questions; an empty list when all holds (an unanswerable question needs no evidence):
    ids are unique; there is evidence and it stands in the documents; it comes from enough documents; the answer follows
    from it by string, or is a yes/no or a choice between things the question names, or has a stated reasoning; a
    question marked ``both_hops`` does not name the document that holds its answer.
    """
    seen: set[str] = set()
    texts = {d.id: _plain(d.text) for d in dataset.documents}
    corpus = "\n".join(texts.values())
    problems = []
    for question in dataset.questions:
        if question.id in seen:
            problems.append(Problem(question.id, "the id is used more than once", "rename one of them"))
        seen.add(question.id)
        problems.extend(Problem(question.id, what, do) for what, do in _check(question, texts, corpus, min_documents))
    return problems


def _check(question: Question, texts: dict[str, str], corpus: str, min_documents: int) -> Iterator[tuple[str, str]]:
    if not question.references and "unanswerable" in question.kind.lower():
        return
    if not question.references:
        yield "no supporting text", "add references or supporting_facts"
        return
    for reference in question.references if texts else ():
        if _plain(reference).strip() not in corpus:
            yield f"supporting text not found in any document: {reference[:60]!r}", "copy it from the document as it is"
    documents = set(question.meta.get("doc_ids", ()))
    if documents and len(documents) < min_documents:
        yield (
            f"evidence from {len(documents)} document(s), {min_documents} wanted",
            "add the missing hop, or lower min_documents",
        )
    if not follows(question):
        yield (
            f"the answer {question.answer!r} is not in its evidence",
            "correct it, or state the 'reasoning' that derives it",
        )
    facts = question.meta.get("supporting_facts", ())
    if question.meta.get("both_hops") and question.kind == "bridge" and facts:
        holders = {
            t for (t, _), r in zip(facts, question.references, strict=False) if _plain(question.answer) in _plain(r)
        }
        named = [t for t in holders if _plain(re.sub(r"\s*\(.*?\)", "", t)) in _plain(question.text)]
        if named:
            yield f"marked both_hops, but names {named[0]!r}, which holds the answer", "rephrase it, or unmark it"


def follows(question: Question) -> bool:
    """Tell whether the answer is a string of the evidence, a yes or no, a choice the question names, or reasoned."""
    answer = _plain(question.answer)
    if answer in _plain(" ".join(question.references)) or answer.strip() in ("yes", "no"):
        return True
    if question.kind == "comparison" and answer in _plain(question.text):
        return True
    return bool(str(question.meta.get("reasoning", "")).strip())


def validate_files(
    questions: str | Path, documents: str | Path | None = None, *, min_documents: int = 1
) -> list[Problem]:
    """Load a question file (HotpotQA's JSON, JSON lines or CSV) and run `validate` on it."""
    name = str(questions).removesuffix(".gz").lower()
    if name.endswith(".json"):
        return validate(load_hotpotqa(questions), min_documents=min_documents)
    load = load_csv if name.endswith(".csv") else load_jsonl
    return validate(load(questions, documents), min_documents=min_documents)
