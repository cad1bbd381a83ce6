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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd
from pydantic import BaseModel, Field

from ragbench.chunking import token_chunks
from ragbench.data.user import load_documents, plain_words, validate
from ragbench.datagen.parts import QRA, Call, GeneratedDocument, Section, StepResult, ask_step
from ragbench.datagen.questions import find_references
from ragbench.datagen.sets import json_lines, question_row
from ragbench.errors import ConfigError, DataError, check_known
from ragbench.labelling.people import LabelItem, current, load_labels, read_edits
from ragbench.labelling.statements import extract_sentences
from ragbench.llm.endpoints import endpoints_of
from ragbench.paths import written_whole
from ragbench.records import Chunk, Dataset, Document, Question
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
    "german": "Die Dokumente enthalten nicht genügend Informationen, um diese Frage zu beantworten.",
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
        counts = counts.reindex(
            [t for t in TYPES if t in counts.index], columns=["failed", "rejected", "draft"]
        )
        counts = counts.fillna(0).astype(int).rename(columns={"draft": "left"})
        counts.insert(0, "asked", counts.sum(axis=1))
        return counts.assign(share=counts["left"] / counts["asked"]).rename_axis(columns=None)

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
    desk = _Desk({document.id: [] for document in documents})
    for kind, turn in product(
        [kind for kind in TYPES if kind in types], range(1, per_document + 1)
    ):
        calls = _question_calls(desk, documents, kind, turn, seed)
        desk.take(ask_step(model, "drafts", prompt, calls, desk.asked, options))
    desk.take(find_references(model, desk.standing(), desk.passages, "draft_references", **options))
    drafted_by = endpoints_of(model)[0].model
    questions = {draft.id: _question(draft, drafted_by) for draft in desk.standing()}
    problems = validate(Dataset("drafts", tuple(questions.values()), documents))
    faults = {problem.question_id: problem.what for problem in problems}
    desk.drop(faults | _faults(desk.standing()), "rejected")
    left = desk.standing()
    known, unread = _known_without(model, left, options)
    found, unfound = _found(model, left, documents, options)
    desk.drop(unread | unfound, "failed")
    desk.drop(known | found, "rejected")
    return Drafts(tuple(questions[draft.id] for draft in desk.standing()), desk.rows())


@dataclass
class _Desk:
    """The drafts on the way: all that were asked for, and status and reason of those that fell."""

    questions_of: dict[str, list[str]]  # document -> what was asked about it
    drafts: dict[str, QRA] = field(default_factory=dict)
    fallen: dict[str, tuple[str, str]] = field(default_factory=dict)
    passages: dict[str, GeneratedDocument] = field(default_factory=dict)

    def standing(self) -> list[QRA]:
        return [draft for draft in self.drafts.values() if draft.id not in self.fallen]

    def drop(self, reasons: Mapping[str, str], status: str) -> None:
        for name, reason in reasons.items():
            self.fallen[name] = (status, reason)

    def take(self, result: StepResult[QRA]) -> None:
        for draft in result.made:
            self.drafts[draft.id] = draft
        self.drop({one.id: f"{one.reason}: {one.detail}" for one in result.rejected}, "failed")

    def asked(self, draft: QRA, reply: Any) -> QRA:
        """Return the draft with the question and the answer of a reply."""
        self.questions_of[draft.doc_ids[0].rpartition("@")[0]].append(reply.question)
        answer = getattr(reply, "answer", None)
        if not answer:
            answer = NO_ANSWER.get(language_of([reply.question]), NO_ANSWER["english"])
        return replace(draft, question=reply.question.strip(), statements=(answer.strip(),))

    def rows(self) -> pd.DataFrame:
        """Return a row for each draft."""
        rows = []
        for draft in self.drafts.values():
            references = tuple(reference.text for reference in draft.references)
            status, reason = self.fallen.get(draft.id, ("draft", ""))
            rows.append(
                (draft.id, draft.kind, draft.question, draft.answer, references, status, reason)
            )
        columns = ["id", "type", "question", "answer", "references", "status", "reason"]
        return pd.DataFrame(rows, columns=columns)


def _question_calls(
    desk: _Desk, documents: Sequence[Document], kind: str, turn: int, seed: int
) -> list[Call]:
    """Return the prompts for one draft of a type about each document."""
    neighbours = _neighbours(documents, turn) if kind == "two documents" else {}
    form = _Asked if kind == "unanswerable" else _Answered
    calls = []
    for document in documents:
        shown = [
            _passage(part, random.Random(f"{seed}/{part.id}/{kind}/{turn}"))
            for part in [document, *neighbours.get(document.id, ())]
        ]
        desk.passages |= {passage.id: passage for passage in shown}
        draft = QRA(
            f"{document.id} {kind} {turn}",
            kind,
            "en",
            "",
            (),
            tuple(passage.id for passage in shown),
        )
        desk.drafts[draft.id] = draft
        if kind == "two documents" and len(shown) < 2:
            desk.drop({draft.id: "no other document shares its words"}, "failed")
            continue
        fields = {
            "kind": kind,
            "meaning": TYPES[kind],
            "asked": " | ".join(desk.questions_of[document.id]) or "none yet",
            "sentences": "\n\n".join(passage.text for passage in shown),
        }
        calls.append(Call(draft.id, fields, form, draft))
    return calls


# What a prompt shows


def _passage(document: Document, rng: random.Random) -> GeneratedDocument:
    """Return up to 20 sentences in a row of a document, by the name "document's id@first sentence"."""
    sentences = _sentences_of(document)
    start = rng.randrange(max(1, len(sentences) - _SENTENCES + 1))
    shown = []
    room = _CHARS
    for sentence in sentences[start : start + _SENTENCES]:
        room -= len(sentence)
        if shown and room < 0:
            break
        shown.append(sentence)
    return GeneratedDocument(
        f"{document.id}@{start}", document.title, "en", (Section("", tuple(shown)),)
    )


def _neighbours(documents: Sequence[Document], turn: int) -> dict[str, list[Document]]:
    """Return each document's turn-th most similar other one, in a list that is empty where there
    are not so many.
    """
    by_id = {document.id: document for document in documents}
    index = BM25(
        [Chunk(document.id, document.text, document.id, document.title) for document in documents]
    )
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
    names = list(dict.fromkeys(r.doc_id.rpartition("@")[0] for r in draft.references))
    meta = {"doc_ids": names, "drafted_by": drafted_by, "accepted_by": ""}
    return draft.as_question("draft", meta)


# Checks


def _faults(drafts: Sequence[QRA]) -> dict[str, str]:
    """Return what strings alone show to be wrong with drafts, by id."""
    faults = {}
    before = set()
    for draft in drafts:
        question = plain_words(draft.question)
        if question in before:
            faults[draft.id] = "the question was asked before"
        elif (
            draft.kind == "two documents"
            and len({reference.doc_id for reference in draft.references}) < 2
        ):
            faults[draft.id] = "its evidence is from one document"
        elif draft.kind == "single fact" and plain_words(draft.answer) in question:
            faults[draft.id] = f"the question holds its answer {draft.answer!r}"
        before.add(question)
    return faults


def _known_without(
    model: Any, drafts: Sequence[QRA], options: Mapping[str, Any]
) -> tuple[dict[str, str], dict[str, str]]:
    """Ask each question without the evidence of one document after the other.

    Returned are the reasons by id, of those that are answered all the same, and of those whose call
    failed.
    """
    alone = []
    with_the_rest = []
    for draft in drafts:
        for left_out in dict.fromkeys(reference.doc_id for reference in draft.references):
            rest = " ".join(
                reference.text for reference in draft.references if reference.doc_id != left_out
            )
            if rest:
                fields = {"question": draft.question, "context": rest}
                with_the_rest.append(Call(draft.id, fields, None, draft))
            else:
                alone.append(Call(draft.id, {"question": draft.question}, None, draft))
    known = {}
    unread = {}
    for prompt, calls in (("ragas_data_ungrounded", alone), ("ragas_data_answer", with_the_rest)):
        result = ask_step(
            model, "without evidence", prompt, calls, lambda draft, text: (draft, text), options
        )
        unread |= {one.id: f"{one.reason}: {one.detail}" for one in result.rejected}
        for draft, text in result.made:
            if plain_words(draft.answer) in plain_words(text):
                known[draft.id] = f"answered without its evidence: {' '.join(text.split())[:80]!r}"
    return known, unread


def _found(
    model: Any, drafts: Sequence[QRA], documents: Sequence[Document], options: Mapping[str, Any]
) -> tuple[dict[str, str], dict[str, str]]:
    """Look for the answers of unanswerable questions in the nearest passages;

    returns as `_known_without`.
    """
    questions = {draft.id: draft.question for draft in drafts if draft.kind == "unanswerable"}
    if not questions:
        return {}, {}
    index = BM25(token_chunks(documents, size=150, overlap=0))
    hits_of = index.search(list(questions.values()), _SEARCHED)
    contexts = [[hit.chunk.text for hit in hits] for hits in hits_of]
    copied = extract_sentences(
        model, list(questions.values()), contexts, ids=list(questions), **options
    )
    reasons = {}
    unread = {}
    for name, label in zip(questions, copied.labels, strict=True):
        if label is None:
            unread[name] = "the check whether the documents answer it could not be read"
        elif label.sentences:
            reasons[name] = f"the documents may answer it: {label.sentences[0][:80]!r}"
    return reasons, unread


# What a person says


def draft_items(questions: Sequence[Question]) -> list[LabelItem]:
    """Make items for `ragbench.widgets.LabellingTool` of kind "draft";

    its form changes question and answer.
    """
    return [
        LabelItem(
            q.id,
            {"Question": q.text, "Answer": q.answer, "Evidence": "\n".join(q.references) or "none"},
        )
        for q in questions
    ]


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
            edits = _last_edits(rows["note"])
            counts["accepted"] += 1
            counts["edited"] += bool(edits)
            meta = {**question.meta, "accepted_by": ", ".join(sorted(set(rows["annotator"])))}
            text = edits.get("Question", question.text)
            answer = edits.get("Answer", question.answer)
            kept.append(replace(question, text=text, answer=answer, meta=meta))
    if not kept:
        got = f"no draft was accepted ({counts['dropped']} dropped, {counts['open']} open)"
        do = "label them with rb.widgets.LabellingTool(rb.draft_items(questions), 'draft')"
        raise DataError(got, "at least one label 'accept'", do)
    _write(kept, to)
    return counts


def _last_edits(notes: pd.Series) -> Mapping[str, str]:
    """Return the edits of the last label that has some."""
    written = [note for note in notes if note]
    return read_edits(written[-1]) if written else {}


def _write(questions: Sequence[Question], path: str | Path) -> Path:
    path = Path(path).expanduser()
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(path) as part:
        part.write_text(json_lines(map(question_row, questions)), encoding="utf-8")
    return path
