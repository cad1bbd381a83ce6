"""Questions, references, answers that agree with them, and key points, by a model (RAGEval, section
3.3).

A first answer knows the configurations only: it may state what the documents lost, and it does not
know what else the references say. `refine_answers` puts both right.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

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
    LANGUAGES,
    OVER_SEVERAL,
    QRA,
    Call,
    Configuration,
    GeneratedDocument,
    Reference,
    Rejected,
    Schema,
    StepResult,
    Unfit,
    ask_step,
    field_list,
    numbered,
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
_Pair = tuple[Configuration, GeneratedDocument]


# Questions, with first answers


class _QuestionReply(BaseModel, title="QuestionReply"):
    """A question and the statements of its answer."""

    question: str = Field(min_length=1)
    statements: list[str] = Field(min_length=3, max_length=5)


def ask_questions(
    model: Any,
    schema: Schema,
    configurations: Sequence[Configuration],
    documents: Sequence[GeneratedDocument],
    kinds: Sequence[str] = KINDS,
    **options: Any,
) -> StepResult[QRA]:
    """Let a model write a question of each kind about each document, with a first answer.

    It is shown the facts that the documents state, not the documents. A question over several
    documents joins a document to the next one; the last document has none. An unanswerable question
    is about facts that the document lost; a document that lost none has none. What cannot be asked
    is listed as rejected, and so is a question that does not name its documents, was asked before,
    or fails `ragbench.datagen.checks.check_unanswerable`.

    Source: RAGEval, section 3.3 and Table 6.
    """
    check_known("type of question", kinds, KINDS)
    calls, rejected = _question_calls(schema, configurations, documents, kinds)
    before: set[str] = set()
    title_of = {document.id: document.title for document in documents}

    def read(draft: QRA, reply: _QuestionReply) -> QRA:
        question = reply.question.strip()
        if not all(mentions(question, title_of[doc_id]) for doc_id in draft.doc_ids):
            raise Unfit("the question does not name its document", question)
        words = plain_words(question)
        if words in before:
            raise Unfit("the question was asked before", question)
        before.add(words)
        statements = tuple(statement.strip() for statement in reply.statements)
        asked = replace(draft, question=question, statements=statements)
        if asked.kind == "unanswerable":
            check_unanswerable(asked)
        return asked

    result = ask_step(model, "question", "rageval_question", calls, read, options)
    return StepResult(result.made, (*rejected, *result.rejected))


def _question_calls(
    schema: Schema,
    configurations: Sequence[Configuration],
    documents: Sequence[GeneratedDocument],
    kinds: Sequence[str],
) -> tuple[list[Call], list[Rejected]]:
    """Return a prompt for each document and kind, and what cannot be asked."""
    configuration_of = {configuration.id: configuration for configuration in configurations}
    pairs = [(configuration_of[document.id], document) for document in documents]
    calls = []
    rejected = []
    for place, pair in enumerate(pairs):
        for kind in [kind for kind in KINDS if kind in kinds]:
            identity = f"{pair[1].id} {kind}"
            shown = pairs[place : place + 2] if kind in OVER_SEVERAL else [pair]
            if kind in OVER_SEVERAL and len(shown) < 2:
                rejected.append(Rejected(identity, "question", "needs a second document"))
            elif kind == "unanswerable" and not pair[1].lost:
                rejected.append(Rejected(identity, "question", "the document lost no fact"))
            else:
                calls.append(_question_call(identity, kind, schema, shown))
    return calls, rejected


def _question_call(identity: str, kind: str, schema: Schema, pairs: Sequence[_Pair]) -> Call:
    documents = [document for _, document in pairs]
    lost = documents[0].lost if kind == "unanswerable" else ()
    facts = [_facts(configuration, document) for configuration, document in pairs]
    if lost:
        facts.append("Missing: " + "; ".join(name.replace("_", " ") for name in lost))
    fields = {
        "language": LANGUAGES[schema.language],
        "facts": "\n\n".join(facts),
        "names": " and ".join(document.title for document in documents),
        "kind": kind,
        "meaning": _MEANING[kind],
    }
    doc_ids = tuple(document.id for document in documents)
    draft = QRA(identity, kind, schema.language, "", (), doc_ids, lost=lost)
    return Call(identity, fields, _QuestionReply, draft)


def _facts(configuration: Configuration, document: GeneratedDocument) -> str:
    """List the values that a document states, below its title."""
    stated = {
        name: value for name, value in configuration.values.items() if name not in document.lost
    }
    return f"{document.title}\n{field_list(stated)}"


# References


class _ReferencesReply(BaseModel, title="ReferencesReply"):
    """Numbers of sentences, from 1."""

    sentences: list[int] = Field(max_length=MOST_ITEMS)


def find_references(
    model: Any,
    questions: Sequence[QRA],
    documents: Mapping[str, GeneratedDocument],
    prompt: Prompt = "rageval_references",
    **options: Any,
) -> StepResult[QRA]:
    """Let a model choose the references. It names sentences by number, so that a reference is
    always word for word.

    A number that does not exist is rejected. Unanswerable questions pass without being asked.

    Source: RAGEval, section 3.3 (extracting references).
    """
    calls = []
    for question in questions:
        if question.kind != "unanswerable":
            sentences = numbered([sentence.text for sentence in _sentences(question, documents)])
            fields = {
                "question": question.question,
                "answer": question.answer,
                "sentences": sentences,
            }
            calls.append(Call(question.id, fields, _ReferencesReply, question))

    def read(question: QRA, reply: _ReferencesReply) -> QRA:
        sentences = _sentences(question, documents)
        if not all(1 <= number <= len(sentences) for number in reply.sentences):
            raise Unfit(
                "a sentence that does not exist",
                f"{reply.sentences}, but there are {len(sentences)}",
            )
        numbers = sorted(set(reply.sentences))
        return replace(question, references=tuple(sentences[number - 1] for number in numbers))

    result = ask_step(model, "references", prompt, calls, read, options)
    return _with_unasked(questions, result)


def _sentences(question: QRA, documents: Mapping[str, GeneratedDocument]) -> list[Reference]:
    return [
        Reference(doc_id, text)
        for doc_id in question.doc_ids
        for text in documents[doc_id].sentences
    ]


def _with_unasked(questions: Iterable[QRA], result: StepResult[QRA]) -> StepResult[QRA]:
    """Put the unanswerable questions, which were not asked about, back in their places."""
    asked = {question.id: question for question in result.made}
    unasked = {question.id: question for question in questions if question.kind == "unanswerable"}
    after = unasked | asked
    return StepResult(
        tuple(after[question.id] for question in questions if question.id in after), result.rejected
    )


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
    model: Any, questions: Sequence[QRA], documents: Mapping[str, GeneratedDocument], **options: Any
) -> StepResult[QRA]:
    """Let a model compare answers with references, and make both agree by the paper's rules.

    A statement without support gets the sentence of the documents that supports it as a reference,
    or is removed where there is none. Sentences that the model overlooked are looked up by strings.
    What the references say and the answer lacks is added to the answer. ``changes`` tells what was
    done. Rejected are references to more than half of the sentences (that is no choice, but for a
    summary), and what still fails `ragbench.datagen.checks.check_answer`. Unanswerable questions
    pass without being asked.

    Source: RAGEval, section 3.3 (optimising answers and references).
    """
    calls = []
    rejected = []
    for question in questions:
        if question.kind == "unanswerable":
            continue
        sentences = _sentences(question, documents)
        if question.kind != "summary" and len(question.references) > _MOST_REFERENCES * len(
            sentences
        ):
            detail = f"{len(question.references)} of {len(sentences)}"
            rejected.append(
                Rejected(
                    question.id, "refine", "references to more than half of the sentences", detail
                )
            )
            continue
        fields = {
            "language": LANGUAGES[question.language],
            "sentences": numbered([sentence.text for sentence in sentences]),
            "question": question.question,
            "statements": numbered(question.statements),
            "references": "\n".join(f"- {reference.text}" for reference in question.references)
            or "none",
        }
        calls.append(Call(question.id, fields, _RefineReply, question))

    def read(question: QRA, report: _RefineReply) -> QRA:
        refined = _refined(question, report, _sentences(question, documents))
        check_answer(refined)
        return refined

    result = ask_step(model, "refine", "rageval_refine", calls, read, options)
    result = StepResult(result.made, (*rejected, *result.rejected))
    return _with_unasked(questions, result)


def _refined(question: QRA, report: _RefineReply, sentences: Sequence[Reference]) -> QRA:
    """Apply the paper's rules to what a model reports."""
    question = _without_unsupported(question, report, sentences)
    statements = list(question.statements)
    references = list(question.references)
    changes = list(question.changes)
    for reference in _overlooked(statements, references, sentences):
        references.append(reference)
        changes.append(f"reference looked up: {reference.text}")
    source = " ".join(reference.text for reference in references)
    for text in [missing.strip() for missing in report.missing]:
        is_said = shared_words(text, source) >= MIN_SHARED and not unfounded_numbers(text, source)
        if is_said and text not in ("", *statements):
            statements.append(text)
            changes.append(f"supplemented: {text}")
    in_order = tuple(dict.fromkeys(sentence for sentence in sentences if sentence in references))
    return replace(
        question, statements=tuple(statements), references=in_order, changes=tuple(changes)
    )


def _without_unsupported(
    question: QRA, report: _RefineReply, sentences: Sequence[Reference]
) -> QRA:
    """Add the reported sentences to the references, and remove the statements that no sentence
    supports.
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
            reference = sentences[item.sentence - 1]
            references.append(reference)
            changes.append(f"reference added: {reference.text}")
        else:
            removed.add(item.statement)
            changes.append(f"removed: {question.statements[item.statement - 1]}")
    kept = tuple(
        text for number, text in enumerate(question.statements, 1) if number not in removed
    )
    return replace(question, statements=kept, references=tuple(references), changes=tuple(changes))


def _overlooked(
    statements: Sequence[str], references: Sequence[Reference], sentences: Sequence[Reference]
) -> list[Reference]:
    """Return, for each statement, the sentence that states it with the most of its words, where it
    is no reference.
    """
    overlooked = []
    for statement in statements:
        stating = [sentence for sentence in sentences if states([sentence.text], statement)]
        if not stating:
            continue
        best = max(stating, key=lambda sentence: shared_words(statement, sentence.text))
        if best not in references:
            overlooked.append(best)
    return overlooked


# Key points


class _KeypointsReply(BaseModel, title="KeypointsReply"):
    """Three to five key points."""

    keypoints: list[str] = Field(min_length=3, max_length=5)


def extract_keypoints(model: Any, questions: Sequence[QRA], **options: Any) -> StepResult[QRA]:
    """Let a model take three to five key points out of each answer; a reply with fewer or more, or
    with numbers that the answer lacks, is rejected.

    Source: RAGEval, section 3.3 (generating keypoints).
    """
    calls = []
    for question in questions:
        fields = {
            "language": LANGUAGES[question.language],
            "question": question.question,
            "answer": question.answer,
        }
        calls.append(Call(question.id, fields, _KeypointsReply, question))

    def read(question: QRA, reply: _KeypointsReply) -> QRA:
        pointed = replace(question, keypoints=tuple(point.strip() for point in reply.keypoints))
        check_keypoints(pointed)
        return pointed

    return ask_step(model, "key points", "rageval_keypoints", calls, read, options)
