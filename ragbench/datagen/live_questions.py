"""Questions, references, refinement and keypoints by a model (RAGEval, section 3.3)."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, Field

from ragbench.datagen.live import NAMES, Done, ask_all, listed
from ragbench.datagen.parts import KINDS, QRA, Configuration, GeneratedDocument, Reference
from ragbench.datagen.questions import MULTI, PER_DOCUMENT
from ragbench.datagen.refine import in_document_order
from ragbench.datagen.schema import Schema
from ragbench.errors import unknown
from ragbench.llm.structured import MOST_ITEMS
from ragbench.prompts import fill_prompt, load_prompt

if TYPE_CHECKING:
    from ragbench.llm import Cassette, Reply

# What the seven types ask for, in our words (Table 6).
MEANING = {
    "factual": "It asks for particular details of one document.",
    "multi-hop": "It needs several facts of one document that are linked by a chain of reasoning.",
    "summary": "It asks for a summary of one part of a document; the answer covers all that is relevant.",
    "information integration": "It needs different facts from both documents, put together.",
    "numerical comparison": "It compares a number of one document with the same kind of number of the other.",
    "temporal sequence": "It asks for the order in time of events from both documents.",
    "unanswerable": "It asks for a fact marked as missing. The documents do not state it; the answer says that it "
    "is not stated, that nothing else allows to infer it, and that the question cannot be answered.",
}


class QuestionReply(BaseModel):
    """A question and the statements of its answer."""

    question: str = Field(min_length=1)
    statements: list[str] = Field(min_length=3, max_length=5)


class ReferencesReply(BaseModel):
    """Numbers of sentences, from 1."""

    sentences: list[int] = Field(max_length=MOST_ITEMS)


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


def model_questions(
    model: Any,
    schema: Schema,
    configurations: Sequence[Configuration],
    documents: Sequence[GeneratedDocument],
    per_document: Mapping[str, int] = PER_DOCUMENT,
    *,
    cassette: Cassette | None = None,
    prompt: str | os.PathLike[str] = "rageval_question",
) -> Done[QRA]:
    """Let a model ask questions with first answers from configurations.

    Parameters
    ----------
    model, cassette : as for `ragbench.llm.ask`.
    schema, configurations, documents : configurations and documents pair up. The model sees the facts, not the texts.
    per_document : how many of each type, see `KINDS`; asked one after another, so that each differs from those before.
    prompt : id or file.

    Returns
    -------
    Done with QRA without references. A document without dropped facts gets no unanswerable question, a single document
    none over several; both are listed in ``failed``.
    """
    for kind in per_document:
        if kind not in KINDS:
            raise unknown("type of question", kind, KINDS)
    text = load_prompt(prompt)
    made: list[QRA] = []
    failed: list[tuple[str, str]] = []
    asked: dict[str, list[str]] = {c.id: [] for c in configurations}
    rounds = [(kind, turn) for kind, count in per_document.items() for turn in range(count)]
    for kind, turn in rounds:
        jobs, prompts = [], []
        for number, c in enumerate(configurations):
            name = f"{c.id}-{kind.replace(' ', '-')}-{turn + 1}"
            after = (number + 1) % len(configurations)
            own = [number, after] if kind in MULTI else [number]
            reason = _impossible(kind, own, documents[number])
            if reason:
                failed.append((name, reason))
                continue
            facts = "\n\n".join(_facts(schema, configurations[i], documents[i], kind) for i in own)
            named = "; ".join(configurations[i].text[n] for i in own for n in schema.named)
            before = " | ".join(asked[c.id]) or "none yet"
            fields = {"language": NAMES[schema.language], "kind": kind, "meaning": MEANING[kind], "facts": facts}
            prompts.append(fill_prompt(text, **fields, names=named, asked=before))
            jobs.append((name, c, tuple(configurations[i].id for i in own), documents[number]))
        replies = ask_all(model, prompts, QuestionReply, cassette, [job[0] for job in jobs], "questions")
        for (name, c, doc_ids, document), reply in zip(jobs, replies, strict=True):
            if not reply.ok:
                failed.append((name, str(reply.error)))
                continue
            asked[c.id].append(reply.parsed.question)
            lost = tuple((c.id, n) for n in document.dropped) if kind == "unanswerable" else ()
            statements = tuple(s.strip() for s in reply.parsed.statements)
            made.append(QRA(name, kind, schema.language, reply.parsed.question, statements, doc_ids, lost=lost))
    return Done(tuple(made), tuple(failed))


def _impossible(kind: str, own: Sequence[int], document: GeneratedDocument) -> str:
    if kind in MULTI and len(set(own)) < 2:
        return "needs a second document"
    return "no fact was left out" if kind == "unanswerable" and not document.dropped else ""


def _facts(schema: Schema, configuration: Configuration, document: GeneratedDocument, kind: str) -> str:
    stated = [n for n in schema.fact_fields if n not in document.dropped]
    text = f"{document.title}\n{listed(configuration, [*schema.context, *stated])}"
    if kind == "unanswerable":
        text += "\nMissing: " + "; ".join(n.replace("_", " ") for n in document.dropped)
    return text


def model_references(
    model: Any,
    questions: Sequence[QRA],
    documents: Mapping[str, GeneratedDocument],
    *,
    cassette: Cassette | None = None,
    prompt: str | os.PathLike[str] = "rageval_references",
) -> Done[QRA]:
    """Let a model choose the references. It names sentences by number, so a reference is always word for word.

    Returns
    -------
    Done; a reply with a number that does not exist is a failure. Unanswerable questions pass without being asked.
    """
    text = load_prompt(prompt)
    asked = [q for q in questions if q.kind != "unanswerable"]
    prompts = [
        fill_prompt(text, question=q.question, answer=q.answer, sentences=_numbered(_sentences(q, documents)))
        for q in asked
    ]
    replies = ask_all(model, prompts, ReferencesReply, cassette, [q.id for q in asked], "references")
    return _settled(questions, asked, replies, lambda q, report: _supported(q, report, documents))


def model_refine(
    model: Any,
    questions: Sequence[QRA],
    documents: Mapping[str, GeneratedDocument],
    *,
    cassette: Cassette | None = None,
    prompt: str | os.PathLike[str] = "rageval_refine",
) -> Done[QRA]:
    """Let a model compare answers with references; what it reports is mended by the paper's rules.

    An unsupported statement gains the sentence that the model found for it, or is removed; what the references say and
    the answer lacks is added to the answer. Unanswerable questions pass without being asked.
    """
    text = load_prompt(prompt)
    asked = [q for q in questions if q.kind != "unanswerable"]
    prompts = [
        fill_prompt(
            text,
            language=NAMES[q.language],
            question=q.question,
            statements=_numbered(q.statements),
            references="\n".join(f"- {r.text}" for r in q.references) or "none",
            sentences=_numbered(_sentences(q, documents)),
        )
        for q in asked
    ]
    replies = ask_all(model, prompts, RefineReply, cassette, [q.id for q in asked], "refine")
    return _settled(questions, asked, replies, lambda q, report: _mended(q, report, documents))


def _settled(
    questions: Sequence[QRA], asked: Sequence[QRA], replies: Sequence[Reply], settle: Callable[[QRA, Any], QRA | str]
) -> Done[QRA]:
    """Put what the replies say into the questions that were asked; a text in place of a question says why it failed."""
    got = {q.id: reply for q, reply in zip(asked, replies, strict=True)}
    made, failed = [], []
    for q in questions:
        if q.id not in got:
            made.append(q)
            continue
        reply = got[q.id]
        done = settle(q, reply.parsed) if reply.ok else str(reply.error)
        if isinstance(done, str):
            failed.append((q.id, done))
        else:
            made.append(done)
    return Done(tuple(made), tuple(failed))


def _supported(question: QRA, report: ReferencesReply, documents: Mapping[str, GeneratedDocument]) -> QRA | str:
    sentences = _sentences(question, documents)
    if not all(1 <= n <= len(sentences) for n in report.sentences):
        return f"sentences {report.sentences}, but there are {len(sentences)}"
    return replace(question, references=tuple(sentences[n - 1] for n in sorted(set(report.sentences))))


def _mended(question: QRA, report: RefineReply, documents: Mapping[str, GeneratedDocument]) -> QRA | str:
    sentences = _sentences(question, documents)
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
    prompt: str | os.PathLike[str] = "rageval_keypoints",
) -> Done[QRA]:
    """Let a model cut answers into three to five keypoints; a reply with fewer or more is a failure."""
    text = load_prompt(prompt)
    prompts = [fill_prompt(text, language=NAMES[q.language], question=q.question, answer=q.answer) for q in questions]
    replies = ask_all(model, prompts, KeypointsReply, cassette, [q.id for q in questions], "keypoints")
    pairs = list(zip(questions, replies, strict=True))
    made = [replace(q, keypoints=tuple(reply.parsed.keypoints)) for q, reply in pairs if reply.ok]
    return Done(tuple(made), tuple((q.id, str(reply.error)) for q, reply in pairs if not reply.ok))


def _sentences(question: QRA, documents: Mapping[str, GeneratedDocument]) -> list[Reference]:
    return [Reference(i, s.text) for i in question.doc_ids for s in documents[i].sentences]


def _numbered(items: Sequence[Any]) -> str:
    return "\n".join(f"{i}. {getattr(item, 'text', item)}" for i, item in enumerate(items, 1))
