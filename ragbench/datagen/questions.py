"""Questions, references, answers that agree with them, and key points, by a model (RAGEval, section
3.3).

A first answer knows the configurations only: it may state what the documents lost, and it does not
know what else the references say. `refine_answers` puts both right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pydantic import BaseModel, Field

from ragbench.data.user import plain_words
from ragbench.datagen.checks import (
    MIN_SHARED,
    check_answer,
    check_keypoints,
    check_unanswerable,
    mentions,
    shared_words,
    states,
    unfounded_numbers,
)
from ragbench.datagen.parts import (
    KINDS,
    LANGUAGE,
    OVER_SEVERAL,
    QRA,
    Configuration,
    GeneratedDocument,
    Reference,
    Schema,
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
_MOST_REFERENCES = 0.5  # of the sentences of the documents, but for summaries


# Questions, with first answers


class _QuestionReply(BaseModel, title="QuestionReply"):
    """A question and the statements of its answer."""

    question: str = Field(min_length=1)
    statements: list[str] = Field(min_length=3, max_length=5)


def ask_questions(
    writer: Writer,
    schema: Schema,
    configurations: Sequence[Configuration],
    documents: Sequence[GeneratedDocument],
    kinds: Sequence[str] = KINDS,
) -> list[QRA]:
    """Let a model write a question of each kind about each document, with a first answer.

    It is shown the facts that the documents state, not the documents. A question over several
    documents joins a document to the next one; the last document has none. An unanswerable question
    is about facts that the document lost; a document that lost none has none. What cannot be asked
    is listed as rejected, and so is a question that does not name its documents, was asked before,
    or fails `ragbench.datagen.checks.check_unanswerable`.

    Source: RAGEval, section 3.3 and Table 6.
    """
    check_known("type of question", kinds, KINDS)
    facts_of = _stated_facts(configurations, documents)
    title_of = {document.id: document.title for document in documents}
    drafts = _planned(writer, documents, [kind for kind in KINDS if kind in kinds])
    prompts = {}
    for name, draft in drafts.items():
        facts = [facts_of[doc_id] for doc_id in draft.doc_ids]
        if draft.lost:
            facts.append("Missing: " + "; ".join(draft.lost).replace("_", " "))
        prompts[name] = {
            "language": LANGUAGE,
            "facts": "\n\n".join(facts),
            "names": " and ".join(title_of[doc_id] for doc_id in draft.doc_ids),
            "kind": draft.kind,
            "meaning": _MEANING[draft.kind],
        }
    before: set[str] = set()

    def read(name: str, reply: _QuestionReply) -> QRA:
        question = reply.question.strip()
        if not all(mentions(question, title_of[doc_id]) for doc_id in drafts[name].doc_ids):
            raise Unfit("the question does not name its document", question)
        words = plain_words(question)
        if words in before:
            raise Unfit("the question was asked before", question)
        before.add(words)
        statements = tuple(statement.strip() for statement in reply.statements)
        written = replace(drafts[name], question=question, statements=statements)
        if written.kind == "unanswerable":
            check_unanswerable(written)
        return written

    written = writer.ask("question", "rageval_question", prompts, read, _QuestionReply)
    return list(written.values())


def _planned(
    writer: Writer, documents: Sequence[GeneratedDocument], kinds: Sequence[str]
) -> dict[str, QRA]:
    """Return a question without text for each document and kind; others are rejected."""
    drafts = {}
    for document, following in zip(documents, [*documents[1:], None], strict=True):
        for kind in kinds:
            draft = QRA(f"{document.id} {kind}", kind, "", (), (document.id,))
            fault = ""
            if kind in OVER_SEVERAL and following is None:
                fault = "needs a second document"
            elif kind in OVER_SEVERAL:
                draft = replace(draft, doc_ids=(document.id, following.id))
            elif kind == "unanswerable":
                draft = replace(draft, lost=document.lost)
                fault = "" if document.lost else "the document lost no fact"
            if fault:
                writer.reject(draft.id, "question", fault)
            else:
                drafts[draft.id] = draft
    return drafts


def _stated_facts(
    configurations: Sequence[Configuration], documents: Sequence[GeneratedDocument]
) -> dict[str, str]:
    """Return, by document, its title and below it the list of the values that it states."""
    values_of = {configuration.id: configuration.values for configuration in configurations}
    facts = {}
    for document in documents:
        values = values_of[document.id]
        stated = {name: value for name, value in values.items() if name not in document.lost}
        facts[document.id] = f"{document.title}\n{field_list(stated)}"
    return facts


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
    by_id = {question.id: question for question in questions}
    prompts = {}
    for question in _answerable(questions):
        prompts[question.id] = {
            "question": question.question,
            "answer": question.answer,
            "sentences": _numbered(_sentences(question, documents)),
        }

    def read(name: str, reply: _ReferencesReply) -> QRA:
        sentences = _sentences(by_id[name], documents)
        chosen = sorted(set(reply.sentences))
        if chosen and not 1 <= chosen[0] <= chosen[-1] <= len(sentences):
            detail = f"{reply.sentences}, but there are {len(sentences)}"
            raise Unfit("a sentence that does not exist", detail)
        return replace(by_id[name], references=tuple(sentences[n - 1] for n in chosen))

    with_references = writer.ask("references", prompt, prompts, read, _ReferencesReply)
    return _in_order(questions, with_references)


def _answerable(questions: Sequence[QRA]) -> list[QRA]:
    return [question for question in questions if question.kind != "unanswerable"]


def _sentences(question: QRA, documents: Mapping[str, GeneratedDocument]) -> list[Reference]:
    sentences = []
    for doc_id in question.doc_ids:
        sentences += [Reference(doc_id, text) for text in documents[doc_id].sentences]
    return sentences


def _numbered(texts: Sequence[str | Reference]) -> str:
    """Write texts as a numbered list, from 1."""
    lines = [text if isinstance(text, str) else text.text for text in texts]
    return "\n".join(f"{number}. {line}" for number, line in enumerate(lines, 1))


def _in_order(questions: Sequence[QRA], changed: Mapping[str, QRA]) -> list[QRA]:
    """Return the changed questions, and the unanswerable ones as they were, in their order."""
    lost = {question.id for question in _answerable(questions)} - changed.keys()
    return [changed.get(one.id, one) for one in questions if one.id not in lost]


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
    summary), and what still fails `ragbench.datagen.checks.check_answer`. Unanswerable questions
    pass without being asked.

    Source: RAGEval, section 3.3 (optimising answers and references).
    """
    by_id = {question.id: question for question in questions}
    prompts = {}
    for question in _answerable(questions):
        sentences = _sentences(question, documents)
        count = len(question.references)
        if question.kind != "summary" and count > _MOST_REFERENCES * len(sentences):
            reason = "references to more than half of the sentences"
            writer.reject(question.id, "refine", reason, f"{count} of {len(sentences)}")
            continue
        references = "\n".join(f"- {reference.text}" for reference in question.references)
        prompts[question.id] = {
            "language": LANGUAGE,
            "sentences": _numbered(sentences),
            "question": question.question,
            "statements": _numbered(question.statements),
            "references": references or "none",
        }

    def read(name: str, report: _RefineReply) -> QRA:
        refined = _refined(by_id[name], report, _sentences(by_id[name], documents))
        check_answer(refined)
        return refined

    refined = writer.ask("refine", "rageval_refine", prompts, read, _RefineReply)
    return _in_order(questions, refined)


def _refined(question: QRA, report: _RefineReply, sentences: Sequence[Reference]) -> QRA:
    """Make statements and references agree: what is unsupported, what was overlooked, what is
    missing.
    """
    references = list(question.references)
    changes = []
    removed = set()
    for item in report.unsupported:
        if not 1 <= item.statement <= len(question.statements):
            raise Unfit("a statement that does not exist", str(item.statement))
        if not 0 <= item.sentence <= len(sentences):
            raise Unfit("a sentence that does not exist", str(item.sentence))
        if item.sentence:
            references.append(sentences[item.sentence - 1])
            changes.append(f"reference added: {references[-1].text}")
        else:
            removed.add(item.statement - 1)
            changes.append(f"removed: {question.statements[item.statement - 1]}")
    statements = [text for place, text in enumerate(question.statements) if place not in removed]
    overlooked = _overlooked(statements, references, sentences)
    references += overlooked
    changes += [f"reference looked up: {reference.text}" for reference in overlooked]
    source = " ".join(reference.text for reference in references)
    for text in map(str.strip, report.missing):
        is_new = text and text not in statements and not unfounded_numbers(text, source)
        if is_new and shared_words(text, source) >= MIN_SHARED:
            statements.append(text)
            changes.append(f"supplemented: {text}")
    in_order = dict.fromkeys(sentence for sentence in sentences if sentence in references)
    return replace(
        question,
        statements=tuple(statements),
        references=tuple(in_order),
        changes=tuple(changes),
    )


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
    by_id = {question.id: question for question in questions}
    prompts = {
        name: {
            "language": LANGUAGE,
            "question": question.question,
            "answer": question.answer,
        }
        for name, question in by_id.items()
    }

    def read(name: str, reply: _KeypointsReply) -> QRA:
        points = tuple(point.strip() for point in reply.keypoints)
        pointed = replace(by_id[name], keypoints=points)
        check_keypoints(pointed)
        return pointed

    pointed = writer.ask("key points", "rageval_keypoints", prompts, read, _KeypointsReply)
    return list(pointed.values())
