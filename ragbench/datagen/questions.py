"""Questions, references, answers that agree with them, and key points, by a model (RAGEval, section
3.3).

A first answer knows the configurations only: it may state what the documents lost, and it does not
know what else the references say. `refine_answers` puts both right.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from pydantic import BaseModel, Field

from ragbench.data.user import plain_words
from ragbench.datagen.checks import mentions, shared_words, states, unfounded_numbers
from ragbench.datagen.parts import (
    KINDS,
    LANGUAGE,
    QRA,
    Fields,
    GeneratedDocument,
    Reference,
    Unfit,
    Writer,
    field_list,
)
from ragbench.errors import check_known
from ragbench.llm.structured import MOST_ITEMS
from ragbench.prompts import Prompt

# What the types of question ask for, in our words (Table 6).
_MEANING = {
    "factual": (
        "It asks for two or three particular details, such as an amount, a date, a person "
        "or a cause."
    ),
    "multi-hop": "It needs several facts that are linked by a chain of reasoning.",
    "summary": (
        "It asks for a summary of one part of the facts; the answer covers all that is relevant."
    ),
    "information integration": "It needs different facts about both, put together.",
    "numerical comparison": (
        "It compares a number of the one with the same kind of number of the other."
    ),
    "temporal sequence": "It asks for the order in time of events from both.",
    "unanswerable": "It asks for a fact marked as missing. The answer says that it is not "
    "stated, that nothing else "
    "allows to infer it, and that the question cannot be answered.",
}
_OVER_SEVERAL = ("information integration", "numerical comparison", "temporal sequence")
_MIN_SHARED = 0.5  # of a statement's words that references and question must have
_MOST_REFERENCES = 0.5  # of the sentences of the documents, but for summaries


# Questions, with first answers


class _QuestionReply(BaseModel, title="QuestionReply"):
    """A question and the statements of its answer."""

    question: str = Field(min_length=1)
    statements: list[str] = Field(min_length=3, max_length=5)


def ask_questions(
    writer: Writer, documents: Sequence[GeneratedDocument], kinds: Sequence[str] = KINDS
) -> list[QRA]:
    """Let a model write a question of each kind about each document, with a first answer.

    It is shown the facts that the documents state, not the documents. A question over several
    documents joins a document to the next one; the last document has none. An unanswerable question
    is about facts that the document lost; a document that lost none has none. What cannot be asked
    is listed as rejected, and so is a question that does not name its documents, was asked before,
    or is unanswerable and asks for no lost fact, or has numbers in its answer.

    Source: RAGEval, section 3.3 and Table 6.
    """
    check_known("type of question", kinds, KINDS)
    by_id = {document.id: document for document in documents}
    drafts = _to_ask(documents, [kind for kind in KINDS if kind in kinds])
    before: set[str] = set()

    def fields(draft: QRA) -> Fields:
        return _question_fields(draft, [by_id[doc_id] for doc_id in draft.doc_ids])

    def read(draft: QRA, reply: _QuestionReply) -> QRA:
        question = reply.question.strip()
        titles = [by_id[doc_id].title for doc_id in draft.doc_ids]
        before.add(_new_words(question, titles, before))
        statements = tuple(statement.strip() for statement in reply.statements)
        written = replace(draft, question=question, statements=statements)
        if written.kind == "unanswerable":
            _check_unanswerable(written)
        return written

    written = writer.ask("question", "rageval_question", drafts, fields, read, _QuestionReply)
    return list(written.values())


def _new_words(question: str, titles: Sequence[str], before: Collection[str]) -> str:
    """Return the words of a question, which names its documents and was not asked before."""
    if not all(mentions(question, title) for title in titles):
        raise Unfit("the question does not name its document", question)
    words = plain_words(question)
    if words in before:
        raise Unfit("the question was asked before", question)
    return words


def _to_ask(documents: Sequence[GeneratedDocument], kinds: Sequence[str]) -> dict[str, QRA]:
    """Return the questions that are to be written, by id: of each kind one about each document."""
    drafts = {}
    for place, document in enumerate(documents):
        for kind in kinds:
            name = f"{document.id} {kind}"
            draft = QRA(name, kind, "", (), (document.id,))
            if kind in _OVER_SEVERAL:
                both = documents[place : place + 2]
                draft = replace(draft, doc_ids=tuple(one.id for one in both))
            if kind == "unanswerable":
                draft = replace(draft, lost=document.lost)
            drafts[name] = draft
    return drafts


def _question_fields(draft: QRA, documents: Sequence[GeneratedDocument]) -> Fields:
    if draft.kind in _OVER_SEVERAL and len(documents) == 1:
        raise Unfit("needs a second document")
    if draft.kind == "unanswerable" and not draft.lost:
        raise Unfit("the document lost no fact")
    facts = [f"{document.title}\n{field_list(document.stated)}" for document in documents]
    if draft.lost:
        facts.append("Missing: " + "; ".join(draft.lost).replace("_", " "))
    return {
        "language": LANGUAGE,
        "facts": "\n\n".join(facts),
        "names": " and ".join(document.title for document in documents),
        "kind": draft.kind,
        "meaning": _MEANING[draft.kind],
    }


# References


class _ReferencesReply(BaseModel, title="ReferencesReply"):
    """Numbers of sentences, from 1."""

    sentences: list[int] = Field(max_length=MOST_ITEMS)


def find_references(
    writer: Writer,
    questions: Sequence[QRA],
    documents: Mapping[str, GeneratedDocument],
    prompt: Prompt = "rageval_references",
) -> list[QRA]:
    """Let a model choose the references. It names sentences by number, so that a reference is
    always word for word.

    A number that does not exist is rejected. Unanswerable questions pass without being asked.

    Source: RAGEval, section 3.3 (extracting references).
    """

    def fields(question: QRA) -> Fields | None:
        if question.kind == "unanswerable":
            return None
        sentences = _numbered(_texts(_sentences(question, documents)))
        texts = {"question": question.question, "answer": question.answer}
        return {**texts, "sentences": sentences}

    def read(question: QRA, reply: _ReferencesReply) -> QRA:
        sentences = _sentences(question, documents)
        chosen = sorted(set(reply.sentences))
        if chosen and not 1 <= chosen[0] <= chosen[-1] <= len(sentences):
            raise Unfit(
                "a sentence that does not exist",
                f"{reply.sentences}, but there are {len(sentences)}",
            )
        return replace(question, references=tuple(sentences[n - 1] for n in chosen))

    by_id = _by_id(questions)
    supported = writer.ask("references", prompt, by_id, fields, read, _ReferencesReply)
    return list(supported.values())


def _by_id(questions: Sequence[QRA]) -> dict[str, QRA]:
    return {question.id: question for question in questions}


def _sentences(question: QRA, documents: Mapping[str, GeneratedDocument]) -> list[Reference]:
    sentences = []
    for doc_id in question.doc_ids:
        sentences += [Reference(doc_id, text) for text in documents[doc_id].sentences]
    return sentences


def _texts(references: Sequence[Reference]) -> list[str]:
    return [reference.text for reference in references]


def _numbered(texts: Sequence[str]) -> str:
    """Write texts as a numbered list, from 1."""
    return "\n".join(f"{number}. {text}" for number, text in enumerate(texts, 1))


# Answers and references made to agree


class _RefineReply(BaseModel, title="RefineReply"):
    """What to put right."""

    class Unsupported(BaseModel):
        """A statement without support, and the sentence that supports it after all (0: none)."""

        statement: int
        sentence: int

    unsupported: list[Unsupported] = Field(max_length=5)
    missing: list[str] = Field(max_length=5)


def refine_answers(
    writer: Writer, questions: Sequence[QRA], documents: Mapping[str, GeneratedDocument]
) -> list[QRA]:
    """Let a model compare answers with references, and make both agree by the paper's rules.

    A statement without support gets the sentence of the documents that supports it as a reference,
    or is removed where there is none. Sentences that the model overlooked are looked up by strings.
    What the references say and the answer lacks is added to the answer. ``changes`` tells what was
    done. Rejected are references to more than half of the sentences (that is no choice, but for a
    summary), and what still fails the checks of answers below. Unanswerable questions
    pass without being asked.

    Source: RAGEval, section 3.3 (optimising answers and references).
    """

    def fields(question: QRA) -> Fields | None:
        if question.kind == "unanswerable":
            return None
        sentences = _texts(_sentences(question, documents))
        references = _texts(question.references)
        if question.kind != "summary" and len(references) > _MOST_REFERENCES * len(sentences):
            raise Unfit(
                "references to more than half of the sentences",
                f"{len(references)} of {len(sentences)}",
            )
        return {
            "language": LANGUAGE,
            "sentences": _numbered(sentences),
            "question": question.question,
            "statements": _numbered(question.statements),
            "references": "\n".join(f"- {text}" for text in references) or "none",
        }

    def read(question: QRA, report: _RefineReply) -> QRA:
        refined = _refined(question, report, _sentences(question, documents))
        _check_answer(refined)
        return refined

    by_id = _by_id(questions)
    refined = writer.ask("refine", "rageval_refine", by_id, fields, read, _RefineReply)
    return list(refined.values())


def _refined(question: QRA, report: _RefineReply, sentences: Sequence[Reference]) -> QRA:
    """Make statements and references agree: what is unsupported, what was overlooked, what is
    missing.
    """
    kept, added, changes = _supported(question.statements, report, sentences)
    references = [*question.references, *added]
    overlooked = _overlooked(kept, references, sentences)
    references += overlooked
    changes += [f"reference looked up: {text}" for text in _texts(overlooked)]
    source = " ".join(_texts(references))
    for text in map(str.strip, report.missing):
        is_new = text and text not in kept and not unfounded_numbers(text, source)
        if is_new and shared_words(text, source) >= _MIN_SHARED:
            kept.append(text)
            changes.append(f"supplemented: {text}")
    in_order = dict.fromkeys(sentence for sentence in sentences if sentence in references)
    return replace(
        question, statements=tuple(kept), references=tuple(in_order), changes=tuple(changes)
    )


def _supported(
    statements: Sequence[str], report: _RefineReply, sentences: Sequence[Reference]
) -> tuple[list[str], list[Reference], list[str]]:
    """Return the statements that stay, references that support them, and what changed."""
    added = []
    changes = []
    removed = set()
    for item in report.unsupported:
        if not 1 <= item.statement <= len(statements):
            raise Unfit("a statement that does not exist", str(item.statement))
        if not 0 <= item.sentence <= len(sentences):
            raise Unfit("a sentence that does not exist", str(item.sentence))
        if item.sentence:
            added.append(sentences[item.sentence - 1])
            changes.append(f"reference added: {added[-1].text}")
        else:
            removed.add(item.statement)
            changes.append(f"removed: {statements[item.statement - 1]}")
    kept = [text for place, text in enumerate(statements, 1) if place not in removed]
    return kept, added, changes


def _overlooked(
    statements: Sequence[str], references: Sequence[Reference], sentences: Sequence[Reference]
) -> list[Reference]:
    """Return, of each statement, the sentence that states it with the most of its words, where it
    is no reference.
    """
    overlooked = []
    for statement in statements:
        stating = [sentence for sentence in sentences if states([sentence.text], statement)]
        if stating:
            best = max(stating, key=lambda sentence: shared_words(statement, sentence.text))
            if best not in references:
                overlooked.append(best)
    return overlooked


# Key points


class _KeypointsReply(BaseModel, title="KeypointsReply"):
    """Three to five key points."""

    keypoints: list[str] = Field(min_length=3, max_length=5)


def extract_keypoints(writer: Writer, questions: Sequence[QRA]) -> list[QRA]:
    """Let a model take three to five key points out of each answer; a reply with fewer or more, or
    with numbers that the answer lacks, is rejected.

    Source: RAGEval, section 3.3 (generating keypoints).
    """

    def fields(question: QRA) -> Fields:
        texts = {"question": question.question, "answer": question.answer}
        return {"language": LANGUAGE, **texts}

    def read(question: QRA, reply: _KeypointsReply) -> QRA:
        points = tuple(point.strip() for point in reply.keypoints)
        pointed = replace(question, keypoints=points)
        _check_keypoints(pointed)
        return pointed

    by_id = _by_id(questions)
    pointed = writer.ask("key points", "rageval_keypoints", by_id, fields, read, _KeypointsReply)
    return list(pointed.values())


# Questions: each check raises `Unfit` with the first thing that is wrong


def _check_unanswerable(question: QRA) -> None:
    """Check that a question asks for one of the lost facts by name, and that its answer has no
    number.
    """
    lost = " ".join(question.lost).replace("_", " ")
    if not shared_words(lost, question.question):
        raise Unfit("the question asks for no fact that was lost", question.question)
    if unfounded_numbers(question.answer, question.question):
        raise Unfit("an answer to a question that has none", question.answer)


def _check_answer(question: QRA) -> None:
    """Check that each document has a reference, and that references or question hold what each
    statement says.

    That is all of its numbers, or two that it is the sum or difference of, and at least half of its
    words.
    """
    if not question.statements:
        raise Unfit("no statement of the answer is left", question.question)
    referenced = {reference.doc_id for reference in question.references}
    for doc_id in question.doc_ids:
        if doc_id not in referenced:
            raise Unfit("no reference of a document", doc_id)
    source = " ".join([question.question, *_texts(question.references)])
    for statement in question.statements:
        if unfounded_numbers(statement, source):
            raise Unfit("a number that is in no reference", statement)
        if shared_words(statement, source) < _MIN_SHARED:
            raise Unfit("a statement with few words of the references", statement)


def _check_keypoints(question: QRA) -> None:
    """Check that key points have no number that question and answer lack."""
    for point in question.keypoints:
        if unfounded_numbers(point, f"{question.question} {question.answer}"):
            raise Unfit("a key point with a number that the answer lacks", point)
