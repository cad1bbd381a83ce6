"""Questions about a user's own documents: drafts by a model, for a person to accept.

A draft is made by RAGEval's steps (section 3.3): a question with its answer, then the sentences
that support it, chosen by number, so that they are copies. Left out, with the reason, is a draft
whose evidence does not stand in the documents or does not hold the answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import pandas as pd
from pydantic import BaseModel, Field

from ragbench.data.user import load_documents, save_questions, validate
from ragbench.errors import DataError
from ragbench.labelling.people import LabelItem, current, load_labels
from ragbench.llm import ask, model_name
from ragbench.llm.structured import MOST_ITEMS
from ragbench.prompts import fill_prompt, load_prompt, names_demonstration
from ragbench.records import Dataset, Document, Question
from ragbench.text.languages import language_of
from ragbench.text.sentences import sentence_spans

_KIND = "single fact"
_MEANING = (
    "It asks for one fact that one of the sentences states. Its answer is a few words, copied from "
    'that sentence. For instance: "In what year did Ada Brook build the bridge at Tarn?", with the '
    'answer "1896".'
)
_SENTENCES = 20  # of a document in one prompt, at most
_CHARS = 3000  # of a document in one prompt, about
# A line end inside a sentence: after a long line that ends in a word or comma.
_WRAP = re.compile(r"(?<=[^\n]{50}[\w,;)-])\n(?=\w)")


# Names and docstrings are a part of recorded requests.
class _Answered(BaseModel):
    question: str = Field(min_length=1)
    answer: str = Field(min_length=1)


class _References(BaseModel, title="ReferencesReply"):
    """Numbers of sentences, from 1."""

    sentences: list[int] = Field(max_length=MOST_ITEMS)


@dataclass(slots=True)
class _Draft:
    id: str
    document: Document
    sentences: list[str]  # of the document that are shown
    question: str = ""
    answer: str = ""
    references: tuple[str, ...] = ()
    reason: str = ""  # why it is left out


@dataclass(frozen=True)
class _Drafts:
    """Drafts that passed the checks and that no person has accepted, and a row for each draft that
    was asked for: id, question, answer, references, and the reason why it is left out, if it is.
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
        """The rows that are left out."""
        return self.rows[self.rows["reason"] != ""]

    def write(self, path: str | Path) -> Path:
        """Write the drafts as JSON lines for `ragbench.data.load_questions`; return the path."""
        return save_questions(self.questions, path)


def draft_questions(documents: Any, model: Any, **options: Any) -> _Drafts:
    """Let a model draft a question about each document, two calls each, and check the drafts.

    Parameters
    ----------
    documents : a file or folder, see `ragbench.data.load_documents`, or ``Document`` records; of
        each the first 20 sentences are shown.
    model : a chat model or its name; ``smollm2`` only shows how it works, few of its drafts pass.
    options : for `ragbench.llm.ask`; with a ``cassette`` a run that was broken off goes on.

    Source: RAGEval, section 3.3, by its steps; the check is ours.

    >>> from langchain_core.language_models import FakeListChatModel
    >>> asked = '{"question": "Who built the mill?", "answer": "Ada"}'
    >>> model = FakeListChatModel(responses=[asked, '{"sentences": [1]}'])
    >>> documents = [rb.Document("mill", "Mill", "Ada built the mill.")]
    >>> rb.draft_questions(documents, model, progress=False).questions[0].text
    'Who built the mill?'
    """
    documents = load_documents(documents)
    drafts = [_draft_of(document) for document in documents]

    def question_fields(draft: _Draft) -> dict[str, str]:
        shown = f"{draft.document.title}\n\n{' '.join(draft.sentences)}"
        return {"kind": _KIND, "meaning": _MEANING, "asked": "none yet", "sentences": shown}

    for draft, reply in _replies(
        model, "draft_question", _Answered, drafts, question_fields, options
    ):
        draft.question = reply.question.strip()
        draft.answer = reply.answer.strip()
    _find_references(model, [draft for draft in drafts if draft.question], options)
    return _checked(drafts, documents, model_name(model))


def _replies(
    model: Any,
    prompt: str,
    form: type[BaseModel],
    drafts: Sequence[_Draft],
    fields: Callable[[_Draft], dict[str, str]],
    options: dict[str, Any],
) -> Iterator[tuple[_Draft, Any]]:
    """Ask one prompt for each draft; yield the drafts whose reply could be read, with it."""
    template = load_prompt(prompt)
    prompts = [fill_prompt(template, **fields(draft)) for draft in drafts]
    ids = [draft.id for draft in drafts]
    replies = ask(model, prompts, form, ids=ids, **{"step": "drafts", **options}) if ids else []
    for draft, asked, reply in zip(drafts, prompts, replies, strict=True):
        shown = fill_prompt(template, **{**fields(draft), "sentences": ""})
        if not reply.ok:
            draft.reason = f"no readable reply: {reply.error}"
        elif names_demonstration(reply.parsed.model_dump_json(), shown, asked):
            draft.reason = "it has a name that only the example of its prompt has"
        else:
            yield draft, reply.parsed


def _find_references(model: Any, drafts: Sequence[_Draft], options: dict[str, Any]) -> None:
    """Let the model choose the sentences that support each draft, by their numbers."""

    def fields(draft: _Draft) -> dict[str, str]:
        numbered = [f"{number}. {text}" for number, text in enumerate(draft.sentences, 1)]
        texts = {"question": draft.question, "answer": draft.answer}
        return {**texts, "sentences": "\n".join(numbered)}

    for draft, reply in _replies(model, "draft_references", _References, drafts, fields, options):
        numbers = sorted(set(reply.sentences))
        if numbers and not 1 <= numbers[0] <= numbers[-1] <= len(draft.sentences):
            draft.reason = f"sentences {numbers}, but there are {len(draft.sentences)}"
        else:
            draft.references = tuple(draft.sentences[number - 1] for number in numbers)


def _checked(drafts: Sequence[_Draft], documents: Any, drafted_by: str) -> _Drafts:
    """Check each draft's evidence against the documents."""
    questions = []
    for draft in drafts:
        if not draft.reason:
            meta = {"doc_ids": [draft.document.id], "drafted_by": drafted_by, "accepted_by": ""}
            texts = (draft.question, draft.answer, draft.references)
            questions.append(Question(draft.id, *texts, _KIND, "draft", meta))
    problems = validate(Dataset("drafts", tuple(questions), documents))
    reasons = {problem.question_id: problem.what for problem in problems}
    rows = []
    for draft in drafts:
        reason = draft.reason or reasons.get(draft.id, "")
        rows.append((draft.id, draft.question, draft.answer, draft.references, reason))
    columns = ["id", "question", "answer", "references", "reason"]
    kept = tuple(question for question in questions if question.id not in reasons)
    return _Drafts(kept, pd.DataFrame(rows, columns=columns))


def _draft_of(document: Document) -> _Draft:
    """Return a draft that is to be written about the first sentences."""
    shown = _sentences_of(document)[:_SENTENCES]
    lengths = accumulate(len(sentence) for sentence in shown)
    fitting = sum(length <= _CHARS for length in lengths)
    return _Draft(f"{document.id} 1", document, shown[: max(1, fitting)])


def _sentences_of(document: Document) -> list[str]:
    """Return a document's sentences as they stand in its text."""
    text = _WRAP.sub(" ", document.text)  # as long as before: places stay what they are
    profile = "zh" if language_of([text]) == "chinese" else "en"
    return [document.text[start:end].strip() for start, end in sentence_spans(text, profile)]


# What a person says


def draft_items(questions: Sequence[Question]) -> list[LabelItem]:
    """Make items for `ragbench.widgets.LabellingTool` of kind "draft".

    >>> draft = rb.Question("q1", "Who built it?", "Ada", references=("Ada built it.",))
    >>> rb.draft_items([draft])[0].id
    'q1'
    """
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

    >>> draft = rb.Question("q1", "Who built it?", "Ada", references=("Ada built it.",))
    >>> said = {"kind": "draft", "item": "q1", "aspect": "draft", "label": "accept"}
    >>> rb.append_labels("drafts.csv", [said | {"annotator": "me"}])
    >>> rb.accept_drafts([draft], "drafts.csv", "accepted.jsonl")
    {'accepted': 1, 'dropped': 0, 'open': 0}
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
