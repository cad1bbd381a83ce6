"""Answers and references made to agree, and keypoints (RAGEval, section 3.3): by rule, and by a model."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import BaseModel, Field

from ragbench.datagen.parts import LANGUAGES, QRA, Configuration, Done, GeneratedDocument, Reference, ask_step
from ragbench.datagen.questions import ask_about, facts_needed, numbered, plain_statement, references_of
from ragbench.datagen.schema import Schema
from ragbench.datagen.wording import mentions
from ragbench.llm import Cassette
from ragbench.llm.structured import MOST_ITEMS
from ragbench.prompts import Prompt, fill_prompt, load_prompt
from ragbench.text.sentences import split_sentences

MOST_KEYPOINTS = 5
_LEAST_KEYPOINTS = 3
_CLAUSE = {"en": re.compile(r"(?<=;)\s+"), "zh": re.compile(r"(?<=；)")}


def refine(
    question: QRA,
    schema: Schema,
    configurations: Mapping[str, Configuration],
    documents: Mapping[str, GeneratedDocument],
) -> QRA:
    """Make answer and references say the same, by the paper's rules.

    1. A fact of the answer that no reference states: look it up in the documents. Found: its sentence becomes a
       reference and the answer stays. Not found: the statement is removed from the answer.
    2. A fact of the references that the answer lacks: the answer is supplemented.

    Parameters
    ----------
    question : with references (`ragbench.datagen.questions.find_references`) or without.
    schema : names the facts, and words what is added.
    configurations, documents : by id.

    Returns
    -------
    QRA; ``changes`` tells what was done. A question that is unanswerable stays as it is.
    """
    if question.kind == "unanswerable":
        return question
    about = [configurations[i] for i in question.doc_ids]
    fields = schema.fact_fields
    references = list(question.references)
    kept, changes = [], []
    for statement in question.statements:
        support = _support(question, statement, about, fields, references, documents)
        if support is None:
            changes.append(f"removed: {statement}")
        else:
            kept.append(statement)
            changes += [f"reference added: {r.text}" for r in support]
            references += support
    answer = " ".join(kept)
    for fact in schema.facts:
        for c in about:
            stated = [r for r in references if r.doc_id == c.id and any(_says(r.text, c, n) for n in fact.fields)]
            if stated and not any(_says(answer, c, n) for n in fact.fields):
                kept.append(plain_statement(schema, fact.id, c))
                changes.append(f"supplemented: {kept[-1]}")
    ordered = in_document_order(references, documents, question.doc_ids)
    return replace(question, statements=tuple(kept), references=ordered, changes=(*question.changes, *changes))


def _says(text: str, configuration: Configuration, name: str) -> bool:
    return mentions(text, configuration.text[name])


def _support(
    question: QRA,
    statement: str,
    about: Sequence[Configuration],
    fields: Sequence[str],
    references: Sequence[Reference],
    documents: Mapping[str, GeneratedDocument],
) -> list[Reference] | None:
    """References to add for a statement; None when the documents do not state all of its facts."""
    needed = facts_needed(question, statement, about, fields)
    wording = {(c.id, name): c.text[name] for c in about for name in fields}
    added: list[Reference] = []
    for doc_id, name in needed:
        value = wording[doc_id, name]
        # A value that two documents share may stand in either's sentences.
        if any(mentions(r.text, value) for r in (*references, *added)):
            continue
        stating = [s.text for s in documents[doc_id].sentences if mentions(s.text, value)]
        if not stating:
            return None
        added.append(Reference(doc_id, stating[0]))
    return added


def in_document_order(
    references: Sequence[Reference], documents: Mapping[str, GeneratedDocument], doc_ids: Sequence[str]
) -> tuple[Reference, ...]:
    """Sort references by document and place, each once."""
    place = {(d, s.text): i for d in doc_ids for i, s in enumerate(documents[d].sentences)}
    rank = {d: i for i, d in enumerate(doc_ids)}
    unique = dict.fromkeys(references)
    return tuple(sorted(unique, key=lambda r: (rank.get(r.doc_id, len(rank)), place.get((r.doc_id, r.text), 0))))


def keypoints(answer: str, language: str = "en") -> tuple[str, ...]:
    """Cut an answer into 3 to 5 keypoints, by rule.

    Parameters
    ----------
    answer : text. Its sentences are the points; parts between semicolons are, where there are fewer than three
        sentences; of more than five, neighbours are put together.
    language : "en" or "zh".

    Returns
    -------
    keypoints, five at most; an answer with fewer than three sentences and clauses gives as many as it has.

    Source: RAGEval, section 3.3, which has a model do it (`model_keypoints`).
    """
    points = list(split_sentences(answer, language))
    if len(points) < _LEAST_KEYPOINTS:
        points = [part for point in points for part in _CLAUSE[language].split(point)]
    size, extra = divmod(len(points), MOST_KEYPOINTS)
    if len(points) <= MOST_KEYPOINTS:
        return tuple(points)
    ends = [(i + 1) * size + min(i + 1, extra) for i in range(MOST_KEYPOINTS)]
    blank = " " if language == "en" else ""
    return tuple(blank.join(points[a:b]) for a, b in zip([0, *ends[:-1]], ends, strict=True))


def add_keypoints(question: QRA) -> QRA:
    """Give a question the keypoints of its answer."""
    return replace(question, keypoints=keypoints(question.answer, question.language))


# -- by a model --------------------------------------------------------------------------------------------------------


class Unsupported(BaseModel):
    """A statement without support, and the sentence that supports it after all (0: none)."""

    statement: int
    sentence: int


class RefineReply(BaseModel):
    """What to mend."""

    unsupported: list[Unsupported] = Field(max_length=MOST_ITEMS)
    missing: list[str] = Field(max_length=MOST_ITEMS)


class KeypointsReply(BaseModel):
    """Three to five key points."""

    keypoints: list[str] = Field(min_length=3, max_length=5)


def model_refine(
    model: Any,
    questions: Sequence[QRA],
    documents: Mapping[str, GeneratedDocument],
    *,
    cassette: Cassette | None = None,
    prompt: Prompt = "rageval_refine",
) -> Done[QRA]:
    """Let a model compare answers with references; what it reports is mended by the paper's rules.

    An unsupported statement gains the sentence that the model found for it, or is removed; what the references say and
    the answer lacks is added to the answer. Unanswerable questions pass without being asked.
    """
    text = load_prompt(prompt)

    def write(q: QRA) -> str:
        return fill_prompt(
            text,
            language=LANGUAGES[q.language],
            question=q.question,
            statements=numbered(q.statements),
            references="\n".join(f"- {r.text}" for r in q.references) or "none",
            sentences=numbered(references_of(q, documents)),
        )

    return ask_about(model, questions, write, RefineReply, cassette, "refine", lambda q, r: _mended(q, r, documents))


def _mended(question: QRA, report: RefineReply, documents: Mapping[str, GeneratedDocument]) -> QRA | str:
    sentences = references_of(question, documents)
    references, changes, removed = list(question.references), list(question.changes), set()
    for item in report.unsupported:
        if not (1 <= item.statement <= len(question.statements) and 0 <= item.sentence <= len(sentences)):
            return f"statement {item.statement} or sentence {item.sentence} does not exist"
        if item.sentence:
            references.append(sentences[item.sentence - 1])
            changes.append(f"reference added: {references[-1].text}")
        else:
            removed.add(item.statement - 1)
            changes.append(f"removed: {question.statements[item.statement - 1]}")
    kept = [s for i, s in enumerate(question.statements) if i not in removed]
    added = [s.strip() for s in report.missing if s.strip()]
    changes += [f"supplemented: {s}" for s in added]
    ordered = in_document_order(references, documents, question.doc_ids)
    return replace(question, statements=(*kept, *added), references=ordered, changes=tuple(changes))


def model_keypoints(
    model: Any,
    questions: Sequence[QRA],
    *,
    cassette: Cassette | None = None,
    prompt: Prompt = "rageval_keypoints",
) -> Done[QRA]:
    """Let a model cut answers into three to five keypoints; a reply with fewer or more is a failure."""
    text = load_prompt(prompt)
    prompts = [
        fill_prompt(text, language=LANGUAGES[q.language], question=q.question, answer=q.answer) for q in questions
    ]
    replies = ask_step(model, prompts, KeypointsReply, cassette, [q.id for q in questions], "keypoints")
    pairs = list(zip(questions, replies, strict=True))
    done = [replace(q, keypoints=tuple(reply.parsed.keypoints)) for q, reply in pairs if reply.ok]
    return Done(tuple(done), tuple((q.id, str(reply.error)) for q, reply in pairs if not reply.ok))
