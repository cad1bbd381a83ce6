"""Questions about a user's own documents: drafts by a model, checked by rules and by the model, for
a person to accept.

A draft is made by RAGEval's steps (section 3.3): a question with its answer, then the sentences
that support it, chosen by number, so that they are copies. Three checks follow: the evidence stands
in the documents; the answer stands in the evidence; the model does not give the answer without the
evidence (RAGAS, section 4: its question without a context). For a question without an answer,
RAGAS's extraction of sentences must find none in the passages nearest to it.
"""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pydantic import BaseModel, Field

from ragbench.chunking import token_chunks
from ragbench.data.user import load_documents, plain_words, save_questions, validate
from ragbench.datagen.parts import QRA, Fields, GeneratedDocument, Rejected, Writer
from ragbench.datagen.questions import find_references
from ragbench.errors import ConfigError, DataError, check_known
from ragbench.labelling.people import LabelItem, current, load_labels
from ragbench.labelling.statements import ModelRagas
from ragbench.llm import model_name
from ragbench.records import Dataset, Document, Hit, Question
from ragbench.retrieval.bm25 import BM25
from ragbench.text.languages import language_of
from ragbench.text.sentences import sentence_spans

# Type of question -> what a model is told about it.
TYPES: Mapping[str, str] = {
    "single fact": "It asks for one fact that one of the sentences states. Its answer is a few "
    "words, copied from that "
    'sentence. For instance: "In what year did Ada Brook build the bridge at Tarn?", with the '
    'answer "1896".',
    "unanswerable": "It fits the subject of the sentences, and asks for a fact that they do not "
    "state. It has no "
    'answer. For instance, where nothing is said of costs: "What did the bridge at Tarn cost?"',
}
# The true answer to a question that has none, by language; English where there is no other.
NO_ANSWER: Mapping[str, str] = {
    "english": "The documents do not contain enough information to answer this question.",
    "german": (
        "Die Dokumente enthalten nicht genügend Informationen, um diese Frage zu beantworten."
    ),
    "french": (
        "Les documents ne contiennent pas assez d'informations pour répondre à cette question."
    ),
    "chinese": "现有文档不足以回答该问题。",
}
_SENTENCES = 20  # of a document in one prompt, at most
_CHARS = 3000  # of a document in one prompt, about
_SEARCHED = 4  # passages in which the answer of an unanswerable question is looked for
# A line end inside a sentence: after a long line that ends in a word or comma.
_WRAP = re.compile(r"(?<=[^\n]{50}[\w,;)-])\n(?=\w)")


class _Asked(BaseModel):
    question: str = Field(min_length=1)


class _Answered(_Asked):
    answer: str = Field(min_length=1)


_FORMS = {"single fact": _Answered, "unanswerable": _Asked}


@dataclass(frozen=True)
class Drafts:
    """Drafts that passed the checks and that no person has accepted, and a row for each draft that
    was asked for.

    Status in ``rows`` is "draft", "rejected", or "failed" where a call failed.
    ``meta["drafted_by"]`` names the model.
    """

    questions: tuple[Question, ...]
    rows: pd.DataFrame

    def __repr__(self) -> str:
        return (
            f"Drafts({len(self.questions)} of {len(self.rows)} passed the checks; accepted by "
            "a person: 0)"
        )

    @property
    def rejected(self) -> pd.DataFrame:
        """What did not pass, with the reason."""
        return self.rows.loc[
            self.rows["status"] != "draft", ["id", "type", "question", "answer", "reason"]
        ]

    def table(self) -> pd.DataFrame:
        """Return, by type, how many drafts were asked for, failed, rejected, left, and the share
        that is left.
        """
        counts = pd.crosstab(self.rows["type"], self.rows["status"]).rename_axis(columns=None)
        types = [kind for kind in TYPES if kind in counts.index]
        counts = counts.reindex(types, columns=["failed", "rejected", "draft"], fill_value=0)
        total = counts.sum(axis=1)
        counts.insert(0, "asked", total)
        return counts.rename(columns={"draft": "left"}).assign(share=counts["draft"] / total)

    def write(self, path: str | Path) -> Path:
        """Write the drafts as JSON lines for `ragbench.data.load_questions`; return the path."""
        return save_questions(self.questions, path)


def draft_questions(
    documents: Any,
    model: Any,
    per_document: int = 1,
    types: Sequence[str] = tuple(TYPES),
    **options: Any,
) -> Drafts:
    """Let a model draft questions about documents, and check each draft.

    At most three calls for a draft about a single fact, two for an unanswerable one.

    Parameters
    ----------
    documents : a file or folder, see `ragbench.data.load_documents`, or ``Document`` records.
    model : a chat model or its name; ``smollm2`` only shows how it works, few of its drafts pass.
    per_document : drafts of each type about each document; of one longer than 20 sentences a
        passage is drawn for each.
    options : for `ragbench.llm.ask`.

    Source: RAGEval, section 3.3, and RAGAS, section 4, by their own steps; checks and types are
    ours.
    """
    check_known("type of question", types, TYPES)
    if per_document < 1:
        raise ConfigError(f"per_document={per_document!r}", "a whole number, at least 1")
    documents = load_documents(documents)
    writer = Writer(model, **options)
    turns = product([kind for kind in TYPES if kind in types], range(1, per_document + 1))
    drafts, passages = _write_drafts(writer, documents, turns)
    written = [draft for draft in drafts.values() if draft.question]
    supported = find_references(writer, written, passages, "draft_references")
    drafted_by = model_name(model)
    questions = {draft.id: _question(draft, drafted_by) for draft in supported}
    data = Dataset("drafts", tuple(questions.values()), documents)
    faults = _faults(writer, supported, data)
    drafts |= {draft.id: draft for draft in supported}
    rows = _rows(drafts.values(), faults, writer.rejected)
    left = rows.loc[rows["status"] == "draft", "id"]
    return Drafts(tuple(questions[name] for name in left), rows)


def _write_drafts(
    writer: Writer, documents: Sequence[Document], turns: Iterable[tuple[str, int]]
) -> tuple[dict[str, QRA], dict[str, GeneratedDocument]]:
    """Let the model write a question with its answer about each document, for each type and turn.

    Returned are all drafts by id, without a question where that failed, and the passages shown.
    """
    drafts: dict[str, QRA] = {}
    passages: dict[str, GeneratedDocument] = {}
    before: dict[str, list[str]] = defaultdict(list)  # questions, by document

    def fields(draft: QRA) -> Fields:
        (passage,) = draft.doc_ids
        return {
            "kind": draft.kind,
            "meaning": TYPES[draft.kind],
            "asked": " | ".join(before[_document_of(passage)]) or "none yet",
            "sentences": passages[passage].text,
        }

    def read(draft: QRA, reply: Any) -> QRA:
        (passage,) = draft.doc_ids
        before[_document_of(passage)].append(reply.question)
        return _written(draft, reply)

    for kind, turn in turns:
        to_draft = {}
        for document in documents:
            draft, passage = _to_draft(document, kind, turn)
            to_draft[draft.id] = draft
            passages[passage.id] = passage
        written = writer.ask("drafts", "draft_question", to_draft, fields, read, _FORMS[kind])
        drafts |= to_draft | written
    return drafts, passages


def _to_draft(document: Document, kind: str, turn: int) -> tuple[QRA, GeneratedDocument]:
    """Return a draft that is to be written, and the passage of the document that is shown."""
    passage = _passage(document, random.Random(f"0/{document.id}/{kind}/{turn}"))
    draft = QRA(f"{document.id} {kind} {turn}", kind, "", (), (passage.id,))
    return draft, passage


def _written(draft: QRA, reply: Any) -> QRA:
    """Return the draft with the question and the answer of a reply."""
    answer = getattr(reply, "answer", None)
    if not answer:
        answer = NO_ANSWER.get(language_of([reply.question]), NO_ANSWER["english"])
    return replace(draft, question=reply.question.strip(), statements=(answer.strip(),))


def _document_of(passage: str) -> str:
    """Return the id of the document that a passage is of."""
    return passage.rpartition("@")[0]


def _rows(
    drafts: Iterable[QRA], faults: Mapping[str, str], failures: Sequence[Rejected]
) -> pd.DataFrame:
    """Return a row for each draft, with what became of it."""
    failed = {one.id: f"{one.reason}: {one.detail}".removesuffix(": ") for one in failures}
    records = []
    for draft in drafts:
        references = tuple(reference.text for reference in draft.references)
        records.append((draft.id, draft.kind, draft.question, draft.answer, references))
    rows = pd.DataFrame(records, columns=["id", "type", "question", "answer", "references"])
    is_of = [rows["id"].isin(list(names)) for names in (faults, failed)]
    rows["status"] = np.select(is_of, ["rejected", "failed"], "draft")
    reasons = failed | dict(faults)
    rows["reason"] = [reasons.get(name, "") for name in rows["id"]]
    return rows


# What a prompt shows


def _passage(document: Document, rng: random.Random) -> GeneratedDocument:
    """Return up to 20 sentences in a row of a document; id: "document's id@first sentence"."""
    sentences = _sentences_of(document)
    start = rng.randrange(max(1, len(sentences) - _SENTENCES + 1))
    shown = sentences[start : start + _SENTENCES]
    lengths = np.cumsum([len(sentence) for sentence in shown])
    fitting = int((lengths <= _CHARS).sum())
    shown = shown[: max(1, fitting)]
    name = f"{document.id}@{start}"
    return GeneratedDocument(name, document.title, {"": tuple(shown)})


def _sentences_of(document: Document) -> list[str]:
    """Return a document's sentences as they stand in its text."""
    text = _WRAP.sub(" ", document.text)  # as long as before: places stay what they are
    profile = "zh" if language_of([text]) == "chinese" else "en"
    return [document.text[start:end].strip() for start, end in sentence_spans(text, profile)]


def _question(draft: QRA, drafted_by: str) -> Question:
    doc_ids = [_document_of(name) for name in draft.doc_ids if draft.references]
    meta = {"doc_ids": doc_ids, "drafted_by": drafted_by, "accepted_by": ""}
    return draft.as_question("draft", meta)


# Checks: each returns, by id, what is wrong with a draft


def _faults(writer: Writer, drafts: Sequence[QRA], data: Dataset) -> dict[str, str]:
    """Check drafts by strings; those that pass with the model."""
    faults = {problem.question_id: problem.what for problem in validate(data)}
    faults |= _faults_of_strings(drafts)
    sound = [draft for draft in drafts if draft.id not in faults]
    faults |= _known_without_evidence(writer, sound)
    faults |= _answered_elsewhere(writer, sound, data.documents)
    return faults


def _faults_of_strings(drafts: Sequence[QRA]) -> dict[str, str]:
    faults = {}
    before = set()
    for draft in drafts:
        question = plain_words(draft.question)
        if question in before:
            faults[draft.id] = "the question was asked before"
        elif draft.kind == "single fact" and plain_words(draft.answer) in question:
            faults[draft.id] = f"the question holds its answer {draft.answer!r}"
        before.add(question)
    return faults


def _known_without_evidence(writer: Writer, drafts: Sequence[QRA]) -> dict[str, str]:
    """Ask each question that has evidence without it."""
    evident = {draft.id: draft for draft in drafts if draft.references}

    def read(draft: QRA, text: str) -> str:
        stated = plain_words(draft.answer) in plain_words(text)
        words = " ".join(text.split())[:80]
        return f"answered without its evidence: {words!r}" if stated else ""

    def fields(draft: QRA) -> Fields:
        return {"question": draft.question}

    faults = writer.ask("without evidence", "ragas_data_ungrounded", evident, fields, read)
    return {name: fault for name, fault in faults.items() if fault}


def _answered_elsewhere(
    writer: Writer, drafts: Sequence[QRA], documents: Sequence[Document]
) -> dict[str, str]:
    """Look for the answers of unanswerable questions in the nearest passages (RAGAS's
    extraction).
    """
    questions = {draft.id: draft.question for draft in drafts if draft.kind == "unanswerable"}
    if not questions:
        return {}
    index = BM25(token_chunks(documents, size=150, overlap=0))
    names = list(questions)
    texts = list(questions.values())
    contexts = [_chunk_texts(hits) for hits in index.search(texts, _SEARCHED)]
    copier = ModelRagas(writer.model, ids=names, **writer.options)
    copied = copier.sentences(texts, contexts)
    faults = {}
    for name, label in zip(names, copied, strict=True):
        if label is None:
            writer.reject(
                name, "unanswerable", "the check whether the documents answer it could not be read"
            )
        elif label.sentences:
            faults[name] = f"the documents may answer it: {label.sentences[0][:80]!r}"
    return faults


def _chunk_texts(hits: Sequence[Hit]) -> list[str]:
    return [hit.chunk.text for hit in hits]


# What a person says


def draft_items(questions: Sequence[Question]) -> list[LabelItem]:
    """Make items for `ragbench.widgets.LabellingTool` of kind "draft"."""
    items = []
    for question in questions:
        evidence = "\n".join(question.references) or "none"
        texts = {"Question": question.text, "Answer": question.answer, "Evidence": evidence}
        items.append(LabelItem(question.id, texts))
    return items


def accept_drafts(
    questions: Sequence[Question], labels: str | Path, to: str | Path
) -> dict[str, int]:
    """Write the drafts that a person accepted, with the person's name in ``accepted_by``.

    A draft that one person accepts and another drops is dropped.

    ``labels`` is a label file, or a folder of them. Returns the counts: accepted, dropped, open
    (nobody has said anything).
    """
    held = current(load_labels(labels), "draft")
    dropped = set(held.loc[held["label"] == "drop", "item"])
    people = held.groupby("item")["annotator"].agg(lambda names: ", ".join(sorted(set(names))))
    accepted = []
    counts = {"accepted": 0, "dropped": 0, "open": 0}
    for question in questions:
        if question.id in dropped:
            counts["dropped"] += 1
        elif question.id in people:
            meta = {**question.meta, "accepted_by": people[question.id]}
            accepted.append(replace(question, meta=meta))
        else:
            counts["open"] += 1
    counts["accepted"] = len(accepted)
    if not accepted:
        raise DataError(
            f"no draft was accepted ({counts['dropped']} dropped, {counts['open']} open)",
            "at least one label 'accept'",
            "label them with rb.widgets.LabellingTool(rb.draft_items(questions), 'draft')",
        )
    save_questions(accepted, to)
    return counts
