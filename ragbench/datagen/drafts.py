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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
from pydantic import BaseModel, Field

from ragbench.chunking import token_chunks
from ragbench.data.user import load_documents, plain_words, validate
from ragbench.datagen.parts import QRA, GeneratedDocument, Rejected, Section, Writer
from ragbench.datagen.questions import find_references
from ragbench.datagen.sets import question_lines
from ragbench.errors import ConfigError, DataError, check_known
from ragbench.labelling.people import LabelItem, current, load_labels, read_edits
from ragbench.labelling.statements import extract_sentences
from ragbench.llm import model_name
from ragbench.paths import written_whole
from ragbench.prompts import Prompt
from ragbench.records import Chunk, Dataset, Document, Hit, Question
from ragbench.retrieval.bm25 import BM25
from ragbench.text.languages import language_of
from ragbench.text.sentences import sentence_spans

# Type of question -> what a model is told about it.
TYPES: Mapping[str, str] = {
    "single fact": "It asks for one fact that one of the sentences states. Its answer is a few "
    "words, copied from that "
    'sentence. For instance: "In what year did Ada Brook build the bridge at Tarn?", with the '
    'answer "1896".',
    "two documents": "It joins a fact of the one document to a fact of the other, so that only "
    "somebody who reads both "
    "can answer it. Its answer is a few words, copied from one of them. For instance, where one "
    "document names the "
    'builder of a bridge and the other says where she was born: "In which country was the '
    "builder of the bridge at "
    'Tarn born?", with the answer "Wales".',
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
        counts = pd.crosstab(self.rows["type"], self.rows["status"])
        types = [kind for kind in TYPES if kind in counts.index]
        counts = counts.reindex(types, columns=["failed", "rejected", "draft"], fill_value=0)
        counts = counts.rename(columns={"draft": "left"}).rename_axis(columns=None)
        counts.insert(0, "asked", counts.sum(axis=1))
        return counts.assign(share=counts["left"] / counts["asked"])

    def write(self, path: str | Path) -> Path:
        """Write the drafts as JSON lines for `ragbench.load_questions`, and return the path."""
        return _write(self.questions, path)


def draft_questions(
    documents: Any,
    model: Any,
    per_document: int = 1,
    types: Sequence[str] = tuple(TYPES),
    *,
    seed: int = 0,
    **options: Any,
) -> Drafts:
    """Let a model draft questions about documents, and check each draft.

    At most three calls for a draft about a single fact, four for one about two documents, two for
    an unanswerable one.

    Parameters
    ----------
    documents : a file or folder, see `ragbench.load_documents`, or ``Document`` records.
    model : a chat model or its name; ``smollm2`` only shows how it works, few of its drafts pass.
    per_document : drafts of each type about each document. "two documents" takes the most similar
        other one (BM25).
    seed : of the passage shown of a document that is longer than 20 sentences.
    options : for `ragbench.llm.ask`; ``prompt``, another one with the fields kind, meaning, asked,
        sentences.

    Source: RAGEval, section 3.3, and RAGAS, section 4, by their own steps; checks and types are
    ours.
    """
    check_known("type of question", types, TYPES)
    if per_document < 1:
        raise ConfigError(
            f"per_document={per_document!r}", "a whole number, at least 1", "ask for one or more"
        )
    documents = load_documents(documents)
    prompt = options.pop("prompt", "draft_question")
    writer = Writer(model, **options)
    drafts, passages = _write_drafts(writer, documents, per_document, types, seed, prompt)
    written = [draft for draft in drafts.values() if draft.question]
    supported = find_references(writer, written, passages, "draft_references")
    drafted_by = model_name(model)
    questions = {draft.id: _question(draft, drafted_by) for draft in supported}
    problems = validate(Dataset("drafts", tuple(questions.values()), documents))
    faults = {problem.question_id: problem.what for problem in problems} | _faults(supported)
    sound = [draft for draft in supported if draft.id not in faults]
    faults |= _known_without_evidence(writer, sound)
    faults |= _answered_elsewhere(writer, sound, documents)
    drafts |= {draft.id: draft for draft in supported}
    rows = _rows(drafts.values(), faults, writer.rejected)
    left = rows.loc[rows["status"] == "draft", "id"]
    return Drafts(tuple(questions[name] for name in left), rows)


def _write_drafts(
    writer: Writer,
    documents: Sequence[Document],
    per_document: int,
    types: Sequence[str],
    seed: int,
    prompt: Prompt,
) -> tuple[dict[str, QRA], dict[str, GeneratedDocument]]:
    """Let the model write a question with its answer for each draft.

    Returned are all drafts by id, without a question where that failed, and the passages shown.
    """
    drafts: dict[str, QRA] = {}
    passages: dict[str, GeneratedDocument] = {}
    before: dict[str, list[str]] = {document.id: [] for document in documents}  # questions
    in_order = [kind for kind in TYPES if kind in types]
    for kind, turn in product(in_order, range(1, per_document + 1)):
        planned, shown = _planned(documents, kind, turn, seed)
        passages |= shown
        prompts = {}
        for draft in planned:
            drafts[draft.id] = draft
            if kind == "two documents" and len(draft.doc_ids) < 2:
                writer.reject(draft.id, "drafts", "no other document shares its words")
                continue
            texts = [passages[name].text for name in draft.doc_ids]
            prompts[draft.id] = _prompt_fields(kind, before[_subject(draft)], texts)
        form = _Asked if kind == "unanswerable" else _Answered
        replies = writer.ask("drafts", prompt, prompts, lambda _, reply: reply, form)
        for name, reply in replies.items():
            before[_subject(drafts[name])].append(reply.question)
            drafts[name] = _written(drafts[name], reply)
    return drafts, passages


def _subject(draft: QRA) -> str:
    """Return the document that a draft is about; another one may stand beside it."""
    return _document_of(draft.doc_ids[0])


def _prompt_fields(kind: str, before: Sequence[str], texts: Sequence[str]) -> dict[str, str]:
    return {
        "kind": kind,
        "meaning": TYPES[kind],
        "asked": " | ".join(before) or "none yet",
        "sentences": "\n\n".join(texts),
    }


def _written(draft: QRA, reply: Any) -> QRA:
    """Return the draft with the question and the answer of a reply."""
    answer = getattr(reply, "answer", None)
    if not answer:
        answer = NO_ANSWER.get(language_of([reply.question]), NO_ANSWER["english"])
    return replace(draft, question=reply.question.strip(), statements=(answer.strip(),))


def _planned(
    documents: Sequence[Document], kind: str, turn: int, seed: int
) -> tuple[list[QRA], dict[str, GeneratedDocument]]:
    """Return a draft without question about each document, and the passages to be shown."""
    neighbours = _neighbours(documents, turn) if kind == "two documents" else {}
    drafts = []
    passages = {}
    for document in documents:
        names = []
        for part in [document, *neighbours.get(document.id, ())]:
            passage = _passage(part, random.Random(f"{seed}/{part.id}/{kind}/{turn}"))
            passages[passage.id] = passage
            names.append(passage.id)
        drafts.append(QRA(f"{document.id} {kind} {turn}", kind, "en", "", (), tuple(names)))
    return drafts, passages


def _rows(
    drafts: Iterable[QRA], faults: Mapping[str, str], failures: Sequence[Rejected]
) -> pd.DataFrame:
    """Return a row for each draft, with what became of it."""
    failed = {one.id: f"{one.reason}: {one.detail}".removesuffix(": ") for one in failures}
    rows = []
    for draft in drafts:
        status = "draft"
        reason = ""
        if draft.id in faults:
            status = "rejected"
            reason = faults[draft.id]
        elif draft.id in failed:
            status = "failed"
            reason = failed[draft.id]
        references = tuple(reference.text for reference in draft.references)
        rows.append(
            (draft.id, draft.kind, draft.question, draft.answer, references, status, reason)
        )
    columns = ["id", "type", "question", "answer", "references", "status", "reason"]
    return pd.DataFrame(rows, columns=columns)


# What a prompt shows


def _passage(document: Document, rng: random.Random) -> GeneratedDocument:
    """Return up to 20 sentences in a row of a document; id: "document's id@first sentence"."""
    sentences = _sentences_of(document)
    start = rng.randrange(max(1, len(sentences) - _SENTENCES + 1))
    shown = []
    room = _CHARS
    for sentence in sentences[start : start + _SENTENCES]:
        room -= len(sentence)
        if shown and room < 0:
            break
        shown.append(sentence)
    name = f"{document.id}@{start}"
    return GeneratedDocument(name, document.title, "en", (Section("", tuple(shown)),))


def _document_of(passage: str) -> str:
    """Return the id of the document that a passage is of."""
    return passage.rpartition("@")[0]


def _neighbours(documents: Sequence[Document], turn: int) -> dict[str, list[Document]]:
    """Return each document's turn-th most similar other one, in a list that is empty where there
    are not so many.
    """
    by_id = {document.id: document for document in documents}
    index = BM25([Chunk(one.id, one.text, one.id, one.title) for one in documents])
    hits_of = index.search([document.text for document in documents], turn + 1)
    near = {}
    for document, hits in zip(documents, hits_of, strict=True):
        others = [by_id[hit.chunk.doc_id] for hit in hits if hit.chunk.doc_id != document.id]
        near[document.id] = others[turn - 1 : turn]
    return near


def _sentences_of(document: Document) -> list[str]:
    """Return a document's sentences as they stand in its text."""
    text = _WRAP.sub(" ", document.text)  # as long as before: places stay what they are
    profile = "zh" if language_of([text]) == "chinese" else "en"
    return [document.text[start:end].strip() for start, end in sentence_spans(text, profile)]


def _question(draft: QRA, drafted_by: str) -> Question:
    doc_ids = list(dict.fromkeys(_document_of(one.doc_id) for one in draft.references))
    meta = {"doc_ids": doc_ids, "drafted_by": drafted_by, "accepted_by": ""}
    return draft.as_question("draft", meta)


# Checks: each returns, by id, what is wrong with a draft


def _faults(drafts: Sequence[QRA]) -> dict[str, str]:
    """Look at the strings alone."""
    faults = {}
    before = set()
    for draft in drafts:
        question = plain_words(draft.question)
        passages = {reference.doc_id for reference in draft.references}
        if question in before:
            faults[draft.id] = "the question was asked before"
        elif draft.kind == "two documents" and len(passages) < 2:
            faults[draft.id] = "its evidence is from one document"
        elif draft.kind == "single fact" and plain_words(draft.answer) in question:
            faults[draft.id] = f"the question holds its answer {draft.answer!r}"
        before.add(question)
    return faults


def _known_without_evidence(writer: Writer, drafts: Sequence[QRA]) -> dict[str, str]:
    """Ask each question without the evidence of its first document, then of its second."""
    by_id = {draft.id: draft for draft in drafts}
    known = {}
    for place in range(2):
        alone = {}
        with_the_rest = {}
        for draft in drafts:
            passages = list(dict.fromkeys(reference.doc_id for reference in draft.references))
            if place >= len(passages):
                continue
            rest = [one.text for one in draft.references if one.doc_id != passages[place]]
            if rest:
                with_the_rest[draft.id] = {"question": draft.question, "context": " ".join(rest)}
            else:
                alone[draft.id] = {"question": draft.question}
        texts = _texts(writer, "ragas_data_ungrounded", alone)
        texts |= _texts(writer, "ragas_data_answer", with_the_rest)
        for name, text in texts.items():
            if plain_words(by_id[name].answer) in plain_words(text):
                known[name] = f"answered without its evidence: {' '.join(text.split())[:80]!r}"
    return known


def _texts(writer: Writer, prompt: str, fields: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    return writer.ask("without evidence", prompt, fields, lambda _, text: text)


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
    texts = list(questions.values())
    contexts = [_chunk_texts(hits) for hits in index.search(texts, _SEARCHED)]
    names = list(questions)
    copied = extract_sentences(writer.model, texts, contexts, ids=names, **writer.options)
    faults = {}
    for name, label in zip(names, copied.labels, strict=True):
        if label is None:
            reason = "the check whether the documents answer it could not be read"
            writer.reject(name, "unanswerable", reason)
        elif label.sentences:
            faults[name] = f"the documents may answer it: {label.sentences[0][:80]!r}"
    return faults


def _chunk_texts(hits: Sequence[Hit]) -> list[str]:
    return [hit.chunk.text for hit in hits]


# What a person says


def draft_items(questions: Sequence[Question]) -> list[LabelItem]:
    """Make items for `ragbench.widgets.LabellingTool` of kind "draft"; its form changes question
    and answer.
    """
    items = []
    for question in questions:
        evidence = "\n".join(question.references) or "none"
        texts = {"Question": question.text, "Answer": question.answer, "Evidence": evidence}
        items.append(LabelItem(question.id, texts))
    return items


def accept_drafts(
    questions: Sequence[Question], labels: str | Path | Sequence[str | Path], to: str | Path
) -> dict[str, int]:
    """Write the drafts that a person accepted, as edited, with the person's name in
    ``accepted_by``.

    A draft that one person accepts and another drops is dropped; of several edits the last one
    holds.

    ``labels`` are one or more label files of kind "draft". Returns the counts: accepted, edited
    (among them), dropped, open (nobody has said anything).
    """
    paths = [labels] if isinstance(labels, str | Path) else labels
    labels_of = dict(list(current(load_labels(*paths), "draft").groupby("item")))
    counts = {"accepted": 0, "edited": 0, "dropped": 0, "open": 0}
    kept = []
    for question in questions:
        rows = labels_of.get(question.id)
        if rows is None:
            counts["open"] += 1
        elif rows["label"].eq("drop").any():
            counts["dropped"] += 1
        else:
            accepted = _as_edited(question, rows)
            counts["accepted"] += 1
            if (accepted.text, accepted.answer) != (question.text, question.answer):
                counts["edited"] += 1
            kept.append(accepted)
    if not kept:
        got = f"no draft was accepted ({counts['dropped']} dropped, {counts['open']} open)"
        do = "label them with rb.widgets.LabellingTool(rb.draft_items(questions), 'draft')"
        raise DataError(got, "at least one label 'accept'", do)
    _write(kept, to)
    return counts


def _as_edited(question: Question, rows: pd.DataFrame) -> Question:
    """Return a question with the edits of the last label that has some, and who accepted it."""
    edits: Mapping[str, str] = {}
    for note in rows["note"]:
        if note:
            edits = read_edits(note)
    return replace(
        question,
        text=edits.get("Question", question.text),
        answer=edits.get("Answer", question.answer),
        meta={**question.meta, "accepted_by": ", ".join(sorted(set(rows["annotator"])))},
    )


def _write(questions: Sequence[Question], path: str | Path) -> Path:
    path = Path(path).expanduser()
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(path) as part:
        part.write_text(question_lines(questions), encoding="utf-8")
    return path
