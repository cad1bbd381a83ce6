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
    LANGUAGES,
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
    in_order = [kind for kind in KINDS if kind in kinds]
    drafts = _planned(writer, schema.language, documents, in_order)
    title_of = {document.id: document.title for document in documents}
    facts_of = _stated_facts(configurations, documents)
    prompts = {name: _question_fields(one, title_of, facts_of) for name, one in drafts.items()}
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
    writer: Writer, language: str, documents: Sequence[GeneratedDocument], kinds: Sequence[str]
) -> dict[str, QRA]:
    """Return a question without text for each document and kind; others are rejected."""
    drafts = {}
    for place, document in enumerate(documents):
        for kind in kinds:
            name = f"{document.id} {kind}"
            doc_ids = (document.id,)
            lost: tuple[str, ...] = ()
            if kind in OVER_SEVERAL:
                doc_ids = tuple(one.id for one in documents[place : place + 2])
                if len(doc_ids) < 2:
                    writer.reject(name, "question", "needs a second document")
                    continue
            elif kind == "unanswerable":
                lost = document.lost
                if not lost:
                    writer.reject(name, "question", "the document lost no fact")
                    continue
            drafts[name] = QRA(name, kind, language, "", (), doc_ids, lost=lost)
    return drafts


def _question_fields(
    draft: QRA, title_of: Mapping[str, str], facts_of: Mapping[str, str]
) -> dict[str, str]:
    """Return what fills the prompt of a question."""
    facts = [facts_of[doc_id] for doc_id in draft.doc_ids]
    if draft.lost:
        facts.append("Missing: " + "; ".join(name.replace("_", " ") for name in draft.lost))
    return {
        "language": LANGUAGES[draft.language],
        "facts": "\n\n".join(facts),
        "names": " and ".join(title_of[doc_id] for doc_id in draft.doc_ids),
        "kind": draft.kind,
        "meaning": _MEANING[draft.kind],
    }


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
    answerable = {one.id: one for one in questions if one.kind != "unanswerable"}
    prompts = {
        name: {
            "question": question.question,
            "answer": question.answer,
            "sentences": _sentence_list(question, documents),
        }
        for name, question in answerable.items()
    }

    def read(name: str, reply: _ReferencesReply) -> QRA:
        question = answerable[name]
        sentences = _sentences(question, documents)
        for number in reply.sentences:
            if not 1 <= number <= len(sentences):
                detail = f"{reply.sentences}, but there are {len(sentences)}"
                raise Unfit("a sentence that does not exist", detail)
        chosen = sorted(set(reply.sentences))
        return replace(question, references=tuple(sentences[number - 1] for number in chosen))

    with_references = writer.ask("references", prompt, prompts, read, _ReferencesReply)
    return _in_order(questions, with_references)


def _sentences(question: QRA, documents: Mapping[str, GeneratedDocument]) -> list[Reference]:
    sentences = []
    for doc_id in question.doc_ids:
        sentences += [Reference(doc_id, text) for text in documents[doc_id].sentences]
    return sentences


def _sentence_list(question: QRA, documents: Mapping[str, GeneratedDocument]) -> str:
    return _numbered([sentence.text for sentence in _sentences(question, documents)])


def _numbered(texts: Sequence[str]) -> str:
    """Write texts as a numbered list, from 1."""
    return "\n".join(f"{number}. {text}" for number, text in enumerate(texts, 1))


def _in_order(questions: Sequence[QRA], changed: Mapping[str, QRA]) -> list[QRA]:
    """Return the changed questions, and the unanswerable ones as they were, in their order."""
    kept = []
    for question in questions:
        if question.kind == "unanswerable":
            kept.append(question)
        elif question.id in changed:
            kept.append(changed[question.id])
    return kept


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
    answerable = {one.id: one for one in questions if one.kind != "unanswerable"}
    prompts = {}
    for name, question in answerable.items():
        total = len(_sentences(question, documents))
        if question.kind != "summary" and len(question.references) > _MOST_REFERENCES * total:
            reason = "references to more than half of the sentences"
            writer.reject(name, "refine", reason, f"{len(question.references)} of {total}")
            continue
        references = "\n".join(f"- {reference.text}" for reference in question.references)
        prompts[name] = {
            "language": LANGUAGES[question.language],
            "sentences": _sentence_list(question, documents),
            "question": question.question,
            "statements": _numbered(question.statements),
            "references": references or "none",
        }

    def read(name: str, report: _RefineReply) -> QRA:
        question = answerable[name]
        sentences = _sentences(question, documents)
        refined = _without_unsupported(question, report, sentences)
        refined = _with_overlooked(refined, sentences)
        refined = _with_missing(refined, report)
        in_order = [sentence for sentence in sentences if sentence in refined.references]
        refined = replace(refined, references=tuple(dict.fromkeys(in_order)))
        check_answer(refined)
        return refined

    refined = writer.ask("refine", "rageval_refine", prompts, read, _RefineReply)
    return _in_order(questions, refined)


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
            statement = question.statements[item.statement - 1]
            removed.add(item.statement - 1)
            changes.append(f"removed: {statement}")
    kept = [text for place, text in enumerate(question.statements) if place not in removed]
    return replace(
        question, statements=tuple(kept), references=tuple(references), changes=tuple(changes)
    )


def _with_overlooked(question: QRA, sentences: Sequence[Reference]) -> QRA:
    """Add, for each statement, the sentence that states it with the most of its words."""
    references = list(question.references)
    changes = list(question.changes)
    for statement in question.statements:
        stating = [sentence for sentence in sentences if states([sentence.text], statement)]
        if not stating:
            continue
        best = max(stating, key=lambda sentence: shared_words(statement, sentence.text))
        if best not in question.references:
            references.append(best)
            changes.append(f"reference looked up: {best.text}")
    return replace(question, references=tuple(references), changes=tuple(changes))


def _with_missing(question: QRA, report: _RefineReply) -> QRA:
    """Add what the report misses in the answer, where the references say it."""
    statements = list(question.statements)
    changes = list(question.changes)
    source = " ".join(reference.text for reference in question.references)
    for missing in report.missing:
        text = missing.strip()
        if not text or text in statements or unfounded_numbers(text, source):
            continue
        if shared_words(text, source) >= MIN_SHARED:
            statements.append(text)
            changes.append(f"supplemented: {text}")
    return replace(question, statements=tuple(statements), changes=tuple(changes))


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
            "language": LANGUAGES[question.language],
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
