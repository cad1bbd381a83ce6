"""The validator: what a generated set promises, checked from its texts alone."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from ragbench.data.validate import Problem
from ragbench.datagen.configuration import real_names
from ragbench.datagen.parts import QRA, Configuration, GeneratedDocument
from ragbench.datagen.wording import NUMBER, derive, mentions, without
from ragbench.errors import DataError

# A capital inside an English sentence; a family name with 某 as our Chinese records write people.
_NAME = {"en": re.compile(r"(?<=[a-z,;:] )[A-Z][a-z]+"), "zh": re.compile(r"[\u4e00-\u9fff]某[某甲乙丙丁]")}
# Words that carry meaning; in Chinese, characters.
_WORD = re.compile(r"[a-z]{4,}|[\u4e00-\u9fff]")
_SHARED = 0.5
_EDIT = "mend it, or generate it again with another seed"


def check(
    configurations: Sequence[Configuration],
    documents: Sequence[GeneratedDocument],
    questions: Sequence[QRA],
    fields: Sequence[str],
) -> list[Problem]:
    """Check a generated set.

    Parameters
    ----------
    configurations, documents : pair up by id.
    questions : with references and keypoints.
    fields : the fields that count as facts (``schema.fact_fields``).

    Returns
    -------
    Problems; empty when: every fact of a configuration stands in its document or is listed as dropped, and then does
    not stand there; no document, question or answer names a known real person or company; every reference is found
    word for word in its document; every answer follows from its references: each fact, number and name in it stands in
    them, or in the question, or is derived from values that do, recomputed; a statement about one of two documents
    states no fact of the other alone; a statement without a fact shares half of its words with references and
    question; an unanswerable question has no reference, and what it asks for is in none of its documents; each question
    has 3 to 5 keypoints. These are rules over words: that two values of one document have changed places is not seen.
    """
    by_id = {c.id: c for c in configurations}
    texts = {d.id: d for d in documents}
    lone = [d.id for d in documents if d.id not in by_id]
    problems = [Problem(i, "a document without its configuration", _EDIT) for i in lone]
    problems += [
        Problem(d.id, what, _EDIT)
        for d in documents
        if d.id in by_id
        for what in (*_document(d, by_id[d.id], fields), *(f"names {n!r}, which is real" for n in real_names(d.text)))
    ]
    for question in questions:
        missing = [i for i in question.doc_ids if i not in texts or i not in by_id]
        if missing:
            problems.append(Problem(question.id, f"asks about {missing[0]!r}, which is not in the set", _EDIT))
            continue
        problems += [Problem(question.id, what, _EDIT) for what in _question(question, by_id, texts, fields)]
    return problems


def _document(document: GeneratedDocument, configuration: Configuration, fields: Sequence[str]) -> Iterator[str]:
    text = document.text
    for name in fields:
        there = mentions(text, configuration.text[name])
        if there and name in document.dropped:
            yield f"{name} is listed as dropped, but the document states {configuration.text[name]!r}"
        if not there and name not in document.dropped:
            yield f"{name} = {configuration.text[name]!r} is neither in the document nor listed as dropped"


def _question(
    question: QRA,
    configurations: Mapping[str, Configuration],
    documents: Mapping[str, GeneratedDocument],
    fields: Sequence[str],
) -> Iterator[str]:
    for name in real_names(f"{question.question} {question.answer}"):
        yield f"names {name!r}, which is real"
    for reference in question.references:
        if reference.doc_id not in question.doc_ids:
            yield f"a reference to {reference.doc_id!r}, which is not among its documents"
        elif reference.text not in documents[reference.doc_id].text:
            yield f"the reference {reference.text[:60]!r} is not in document {reference.doc_id}"
    if not 3 <= len(question.keypoints) <= 5:
        yield f"{len(question.keypoints)} keypoints, not 3 to 5"
    if question.kind == "unanswerable":
        if question.references:
            yield "an unanswerable question with references"
        for doc_id, name in question.lost:
            if mentions(documents[doc_id].text, configurations[doc_id].text[name]):
                yield f"an unanswerable question, but document {doc_id} states {name}"
        return
    if not question.references or not question.statements:
        yield "no reference or no answer"
        return
    yield from _follows(question, configurations, fields)
    yield from _statements(question, configurations, documents, fields)


def _follows(question: QRA, configurations: Mapping[str, Configuration], fields: Sequence[str]) -> Iterator[str]:
    stated = {d: " ".join(r.text for r in question.references if r.doc_id == d) for d in question.doc_ids}
    every = " ".join(stated.values())
    for d in question.derived:
        wordings = [configurations[doc_id].text[name] for doc_id, name in d.of]
        for (doc_id, name), wording in zip(d.of, wordings, strict=True):
            if mentions(question.answer, d.text) and not mentions(stated.get(doc_id, ""), wording):
                yield f"{d.text!r} is derived from {name} of {doc_id}, which no reference states"
        if derive(d.rule, wordings, d.names, question.language) != d.text:
            yield f"{d.text!r} is not the {d.rule} of {', '.join(wordings)}"
    given = " ".join((every, question.question, *(d.text for d in question.derived)))
    for doc_id in question.doc_ids:
        for name in fields:
            wording = configurations[doc_id].text[name]
            if mentions(question.answer, wording) and not mentions(given, wording):
                yield f"the answer states {name} = {wording!r}, which no reference does"
    allowed = f"{given} " + " ".join(
        configurations[i].text[n] for i in question.doc_ids for n in configurations[i].text if n not in fields
    )
    known = set(NUMBER.findall(allowed))
    for number in NUMBER.findall(question.answer):
        if number not in known:
            yield f"the number {number} of the answer is in no reference"
    for name in _NAME[question.language].findall(question.answer):
        if name not in allowed:
            yield f"the name {name!r} of the answer is in no reference"


def _statements(
    question: QRA,
    configurations: Mapping[str, Configuration],
    documents: Mapping[str, GeneratedDocument],
    fields: Sequence[str],
) -> Iterator[str]:
    """What is wrong with single statements: facts of the other document, and nothing of the references."""
    names = {d: _names(d, question, configurations, documents, fields) for d in question.doc_ids}
    wordings = [(d, n, configurations[d].text[n]) for d in question.doc_ids for n in fields]
    every = f"{question.question} " + " ".join(r.text for r in question.references)
    for statement in question.statements:
        plain = statement
        for d in question.derived:
            plain = without(plain, d.text)
        stated = [(d, n, wording) for d, n, wording in wordings if mentions(plain, wording)]
        about = [d for d, said in names.items() if any(mentions(statement, n) for n in said)]
        if 0 < len(about) < len(question.doc_ids):
            known = " ".join(r.text for r in question.references if r.doc_id in about)
            for _, n, wording in stated:
                if not mentions(f"{known} {question.question}", wording):
                    yield f"{statement[:60]!r} is about {', '.join(about)}, whose references do not state {n}"
        words = set(_WORD.findall(statement.lower()))
        if not stated and plain == statement and len(words & set(_WORD.findall(every.lower()))) < _SHARED * len(words):
            yield f"{statement[:60]!r} has no fact of the references, and few of their words"


def _names(
    doc_id: str,
    question: QRA,
    configurations: Mapping[str, Configuration],
    documents: Mapping[str, GeneratedDocument],
    fields: Sequence[str],
) -> list[str]:
    """What a document is called: context in its title, that no other document of the question has."""
    others = " ".join(documents[i].text for i in question.doc_ids if i != doc_id)
    context = (wording for n, wording in configurations[doc_id].text.items() if n not in fields)
    title = documents[doc_id].title
    return [w for w in context if mentions(title, w) and not mentions(others, w)]


def require_references(question: QRA, documents: Mapping[str, GeneratedDocument]) -> None:
    """Raise DataError when a reference is not word for word in its document; for questions edited by hand."""
    for reference in question.references:
        document = documents.get(reference.doc_id)
        if document is None or reference.text not in document.text:
            raise DataError(
                f"question {question.id}: the reference {reference.text[:60]!r} is not in {reference.doc_id!r}",
                "a sentence of that document, word for word",
                "copy it from the document, or let find_references choose",
            )
