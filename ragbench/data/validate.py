"""Checks on a question set that loading does not make: is each question answerable from its own evidence?"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ragbench.data.hotpotqa import load_hotpotqa
from ragbench.data.user import load_questions
from ragbench.records import Dataset, Question
from ragbench.text.layout import Form, comparable, contains

_WORD = re.compile(r"[^\W_]+")


@dataclass(frozen=True)
class Problem:
    """A finding: which question, what is wrong, and what to do; ``note``: it may also be right."""

    question_id: str
    what: str
    do: str
    note: bool = False

    def __str__(self) -> str:
        return f"{self.question_id}: {'note: ' if self.note else ''}{self.what}; {self.do}"


def plain_words(text: str) -> str:
    """Return the words of a text without case and punctuation, a blank before and after each."""
    return f" {' '.join(_WORD.findall(text.casefold()))} "


def validate(dataset: Dataset, *, min_documents: int = 1, form: Form | None = "NFC") -> list[Problem]:
    """Check a data set's questions against their own evidence.

    Ids are unique; there is evidence and it occurs in the documents; it comes from enough documents. A note, since it
    may be right in other words: an answer that is no string of its evidence, no yes or no, no choice between things the
    question names, and has no stated reasoning. An unanswerable question needs no evidence.

    Parameters
    ----------
    min_documents : how many documents each question's evidence must come from (2 for two-hop questions, as MiniHop's).
    form : evidence is looked for as the IR score does it, see `ragbench.text.layout.comparable`; None for
        ``match="exact"``.

    Returns
    -------
    Problems, in order of the questions.
    """
    texts = [document.text for document in dataset.documents]
    searched = "\0".join(comparable([], text, form)[1].text for text in texts)

    def held(reference: str) -> bool:
        if not texts or comparable([reference], "", form)[0][0] in searched:
            return True
        # A word that is divided at a line end keeps its hyphen beside a reference that writes it so.
        return "-" in reference and any(contains(text, reference, form) for text in texts)

    problems: list[Problem] = []
    uses = Counter(question.id for question in dataset.questions)
    for question in dataset.questions:
        found = partial(Problem, question.id)
        if uses[question.id] > 1:
            problems.append(found("the id is used more than once", "rename one of them"))
        if not question.references:
            if "unanswerable" not in question.kind.lower():
                problems.append(found("no supporting text", "add references or supporting_facts"))
            continue
        problems += [
            found(f"supporting text not found in any document: {text[:60]!r}", "copy it from the document as it is")
            for text in question.references
            if not held(text)
        ]
        count = len(set(question.meta.get("doc_ids", ())))
        if 0 < count < min_documents:
            what = f"evidence from {count} document(s), {min_documents} wanted"
            problems.append(found(what, "add the missing hop, or lower min_documents"))
        if not _follows(question):
            what = f"the answer {question.answer!r} is not in its evidence word for word"
            do = "correct it if it is wrong; if it is right in other words, a column 'reasoning' may say how it follows"
            problems.append(found(what, do, note=True))
    return problems


def _follows(question: Question) -> bool:
    """Tell whether the answer is a string of the evidence, a yes or no, a choice the question names, or reasoned."""
    answer = plain_words(question.answer)
    return (
        answer in plain_words(" ".join(question.references))
        or answer.strip() in ("yes", "no")
        or (question.kind == "comparison" and answer in plain_words(question.text))
        or bool(str(question.meta.get("reasoning", "")).strip())
    )


def validate_files(
    questions: str | Path,
    documents: str | Path | None = None,
    *,
    fields: Mapping[str, str] | None = None,
    **options: Any,
) -> list[Problem]:
    """Load a question file (HotpotQA's JSON, or as `load_questions` does) and run `validate` on it."""
    if str(questions).removesuffix(".gz").lower().endswith(".json"):
        return validate(load_hotpotqa(questions), **options)
    return validate(load_questions(questions, documents, fields=fields), **options)
