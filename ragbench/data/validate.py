"""Checks on a question set that loading does not make: is each question answerable from its own evidence?"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from Stemmer import Stemmer

from ragbench.data.hotpotqa import load_hotpotqa
from ragbench.data.user import load_questions
from ragbench.records import Dataset, Question
from ragbench.text.layout import Form, comparable, contains
from ragbench.text.words import STOP_WORDS

_WORD = re.compile(r"[^\W_]+")
_NAME = re.compile(r"(?<=[a-z,;] )[A-Z][\w'’-]*(?: (?:(?:of|the|de|von|van) )*[A-Z0-9][\w'’-]*)*")
_ABOVE_ALL = re.compile(r"than (?:in |on |of )?any other\b|^No \w+.* than\b|\bthe first (?:of\b|\w+ to\b)")
_ORDER = re.compile(r"\b(?:which|who|before)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Problem:
    """One finding: which question, what is wrong, and what to do; ``note``: perhaps nothing is."""

    question_id: str
    what: str
    do: str
    note: bool = False

    def __str__(self) -> str:
        return f"{self.question_id}: {'note: ' if self.note else ''}{self.what}; {self.do}"


def _plain(text: str) -> str:
    return f" {' '.join(_WORD.findall(text.casefold()))} "


def validate(dataset: Dataset, *, min_documents: int = 1, form: Form | None = "NFC") -> list[Problem]:
    """Check a data set's questions against their own evidence.

    Ids are unique; there is evidence and it stands in the documents; it comes from enough documents; a question marked
    ``both_hops`` does not name the document that holds its answer. A note, since it may be right in other words: an
    answer that is no string of its evidence, no yes or no, no choice between things the question names, and has no
    stated reasoning. With ``min_documents`` of 2 or more also, as far as rules can tell, that no single document gives
    the answer away: see `one_document`. An unanswerable question needs no evidence.

    Parameters
    ----------
    min_documents : how many documents each question's evidence must come from (2 for two-hop questions, as MiniHop's).
    form : evidence is looked for as the IR score does it, see `ragbench.text.layout.comparable`; None for
        ``match="exact"``.

    Returns
    -------
    Problems, in order of the questions.
    """
    seen: set[str] = set()
    evidence = _Evidence(dataset, form)
    by_title = {d.title: f"{d.title}. {d.text}" for d in dataset.documents}
    problems = []
    for question in dataset.questions:
        if question.id in seen:
            problems.append(Problem(question.id, "the id is used more than once", "rename one of them"))
        seen.add(question.id)
        problems += [Problem(question.id, *fault) for fault in _faults(question, evidence, min_documents, by_title)]
    return problems


class _Evidence:
    """Finds supporting texts in the documents, each normalised once."""

    def __init__(self, dataset: Dataset, form: Form | None) -> None:
        self.texts, self.form = [d.text for d in dataset.documents], form
        self.all = "\0".join(comparable([], text, form)[1].text for text in self.texts)

    def holds(self, reference: str) -> bool:
        """Tell whether some document holds a text; all do where there are none."""
        if not self.texts or comparable([reference], "", self.form)[0][0] in self.all:
            return True
        # A word that is divided at a line end keeps its hyphen beside a reference that writes it so.
        return "-" in reference and any(contains(text, reference, self.form) for text in self.texts)


def _faults(
    question: Question, evidence: _Evidence, min_documents: int, by_title: Mapping[str, str]
) -> Iterator[tuple[str, str] | tuple[str, str, bool]]:
    """Yield what is wrong, what to do, and whether it is but a note."""
    if not question.references and "unanswerable" in question.kind.lower():
        return
    if not question.references:
        yield "no supporting text", "add references or supporting_facts"
    for reference in question.references:
        if not evidence.holds(reference):
            yield f"supporting text not found in any document: {reference[:60]!r}", "copy it from the document as it is"
    documents = set(question.meta.get("doc_ids", ())) if question.references else set()
    if documents and len(documents) < min_documents:
        what = f"evidence from {len(documents)} document(s), {min_documents} wanted"
        yield what, "add the missing hop, or lower min_documents"
    if question.meta.get("both_hops") and question.kind == "bridge":
        answer, asked = _plain(question.answer), _plain(question.text)
        supported = zip(question.meta.get("supporting_facts", ()), question.references, strict=False)
        titles = [title for (title, _), text in supported if answer in _plain(text)]
        if named := [title for title in titles if _plain(re.sub(r"\s*\(.*?\)", "", title)) in asked]:
            yield f"marked both_hops, but names {named[0]!r}, which holds the answer", "rephrase it, or unmark it"
    if question.references and not _follows(question):
        what = f"the answer {question.answer!r} is not in its evidence word for word"
        do = "correct it if it is wrong; if it is right in other words, a column 'reasoning' may say how it follows"
        yield what, do, True
    if min_documents > 1 and (alone := one_document(question, by_title)):
        yield f"one document may be enough: {alone}", "ask for what needs both"


def one_document(question: Question, texts: Mapping[str, str]) -> str | None:
    """Tell why one document may be enough to answer a question that should need two, or None.

    Three rules, which find careless questions and miss many: a comparison that asks whether something holds for both,
    and does not (the one for which it is false is enough); a comparison that asks for an order, with a supporting
    sentence that puts its subject before all others; a bridge question whose words (stems without stop words) stand,
    half of them or more, in the document with the answer, while the other documents' supporting sentences add one at
    most, and hold no name of the question that it lacks.

    Parameters
    ----------
    question : with ``supporting_facts`` ((title, index) pairs) beside its references; others are not looked at.
    texts : title -> title and text of each document.
    """
    facts = question.meta.get("supporting_facts", ())
    if len(facts) != len(question.references) or not all(title in texts for title, _ in facts):
        return None
    answer = _plain(question.answer)
    words = _plain(question.text)
    if question.kind == "comparison":
        if answer == " no " and re.search(r" (both|each|all) ", words) and " same " not in words:
            return "a 'both' that is answered with 'no' follows from the one for which it is false"
        for (title, _), reference in zip(facts, question.references, strict=True):
            if _ORDER.search(question.text) and _ABOVE_ALL.search(reference):
                return f"{title!r} says that it comes before all others"
        return None
    asked = _stems(question.text)
    for title in {t for (t, _), r in zip(facts, question.references, strict=True) if answer in _plain(f"{t} {r}")}:
        others = " ".join(f"{t}. {r}" for (t, _), r in zip(facts, question.references, strict=True) if t != title)
        names = [_plain(name) for name in _NAME.findall(question.text)]
        linked = any(name in _plain(others) and name not in _plain(texts[title]) for name in names)
        here = _stems(texts[title])
        if not linked and 2 * len(asked & here) >= len(asked) and len(asked & _stems(others) - here) <= 1:
            return f"{title!r} has the answer and most words of the question"
    return None


def _stems(text: str) -> set[str]:
    return set(Stemmer("english").stemWords([w for w in _WORD.findall(text.casefold()) if w not in STOP_WORDS]))


def _follows(question: Question) -> bool:
    """Tell whether the answer is a string of the evidence, a yes or no, a choice the question names, or reasoned."""
    answer = _plain(question.answer)
    return (
        answer in _plain(" ".join(question.references))
        or answer.strip() in ("yes", "no")
        or (question.kind == "comparison" and answer in _plain(question.text))
        or bool(str(question.meta.get("reasoning", "")).strip())
    )


def validate_files(
    questions: str | Path,
    documents: str | Path | None = None,
    *,
    fields: Mapping[str, str] | None = None,
    min_documents: int = 1,
    form: Form | None = "NFC",
) -> list[Problem]:
    """Load a question file (HotpotQA's JSON, or as `load_questions` does) and run `validate` on it."""
    if str(questions).removesuffix(".gz").lower().endswith(".json"):
        dataset = load_hotpotqa(questions)
    else:
        dataset = load_questions(questions, documents, fields=fields)
    return validate(dataset, min_documents=min_documents, form=form)
