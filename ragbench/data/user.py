"""A user's own questions and documents: files, tables, or a folder of files; and MiniHop, which is
read the same way.

A question needs a question and an answer; the texts that support it are given either as
``references`` (a list of texts) or as ``supporting_facts`` (a list of [document title, sentence
index]). A document needs a text, or a list of sentences. Everything else a record carries is kept
in ``meta``.
"""

from __future__ import annotations

import json
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
from pydantic import BeforeValidator, StrictInt

from ragbench.data.answers import warn_of_no_word
from ragbench.data.documents import is_document, read_documents
from ragbench.data.files import FileRecord, Filled, as_record, each_record
from ragbench.data.hotpotqa import supporting_sentences
from ragbench.data.tables import (
    CSVS,
    Table,
    as_table,
    in_our_names,
    is_missing,
    written_list,
)
from ragbench.errors import ConfigError, DataError, check_known
from ragbench.paths import packaged_data
from ragbench.records import Dataset, Document, Question, as_id
from ragbench.text.layout import Form, holders

Source = Any  # a path; or a table: a data frame, or a sequence of dicts
_ENDINGS = (".jsonl", *CSVS)
# Our name -> other names that are recognised.
_QUESTION: Mapping[str, tuple[str, ...]] = {
    "id": ("_id",),
    "question": ("frage",),
    "answer": ("antwort",),
    "references": ("belege",),
    "supporting_facts": (),
    "type": (),
    "level": (),
    "topic": (),
    "reasoning": (),
    "claims": (),
    "both_hops": (),
    "contexts": ("retrieved_contexts", "retrieved_context"),
    "ground_truth": ("ground_truths", "gt_answer"),
}
_DOCUMENT: Mapping[str, tuple[str, ...]] = {
    "id": (),
    "title": ("titel",),
    "text": (),
    "sentences": (),
}
_QUESTION_FIELDS = {"id", "question", "answer", "references", "supporting_facts", "type", "level"}
_LISTS = ("references", "supporting_facts", "claims", "sentences")
_ADD = "add it, or name your own column with fields={'{field}': 'your column'}"
_WORD = re.compile(r"[^\W_]+")


def _read_list(value: Any) -> Any:
    return written_list(value, csv=False) if isinstance(value, str) else value


_Listed = BeforeValidator(_read_list)


class _Asked(FileRecord):
    question: Filled
    answer: Filled
    references: Annotated[tuple[Filled, ...], _Listed] = ()
    supporting_facts: Annotated[tuple[tuple[str, StrictInt], ...], _Listed] = ()


class _Page(FileRecord):
    sentences: Annotated[tuple[Filled, ...], _Listed] = ()


class _Text(FileRecord):
    text: Filled


def load_questions(
    questions: Source,
    documents: Source | None = None,
    *,
    fields: Mapping[str, str] | None = None,
    limit: int | None = None,
) -> Dataset:
    """Load questions, and documents when given, from files or tables.

    Questions without an id that repeat an earlier question and its answer are one question: they
    are left out, with a warning.

    Parameters
    ----------
    questions : with ``question`` and ``answer``, and optionally ``id``, ``references`` or
        ``supporting_facts``, ``type``, ``level``: a file (.jsonl, .csv, .tsv, .json, .parquet), a
        data frame, or a list of dicts. A folder stands for the questions file in it, and for its
        documents. In a cell of a CSV, references are separated by ``||`` or written as a JSON list,
        ``supporting_facts`` as a JSON list.
    documents : see `load_documents`; or ``Document`` records.
    fields : your own column names, e.g. ``{"question": "query", "answer": "gold"}``.
    limit : keep the first so many questions.
    """
    if limit is not None and limit < 1:
        raise ConfigError(f"limit={limit!r}", "at least 1, or None for all", "leave it out")
    check_known("name in fields (ours: theirs)", fields or {}, {**_QUESTION, **_DOCUMENT})
    name = "mine"
    meta = {"setting": "own"}
    if isinstance(questions, str | Path):
        path = Path(questions).expanduser()
        if path.is_dir():
            if documents is None and _tables(path, "documents"):
                documents = path
            path = next(iter(_tables(path, "questions")), path / "questions.jsonl")
        name = path.stem
        meta = {"file": path.name, "setting": "own"}
        questions = path
    listed = () if documents is None else load_documents(documents, fields=fields)
    by_title = {document.title: document for document in reversed(listed)}  # the first of a title
    table = as_table(questions)
    own = {ours: theirs for ours, theirs in (fields or {}).items() if ours in _QUESTION}
    frame = in_our_names(table, _QUESTION, own, "fields")
    _check_unanswered(table.name, frame)
    records = _records(
        table,
        frame,
        ["question", "answer"],
        lambda row, where: _question(row, where, by_title),
    )
    records = _once(records, table.name) if "id" not in frame else records
    asked = tuple(records[:limit])
    _warn_of_no_references(meta.get("file", name), asked)
    drafts = [question for question in asked if "drafted_by" in question.meta]
    accepted = sum(bool(question.meta.get("accepted_by")) for question in drafts)
    if accepted < len(drafts):
        meta["drafts"] = (
            f"{len(drafts) - accepted} of {len(asked)} questions are a model's drafts; accepted by "
            f"a person: {accepted}"
        )
        warnings.warn(f"{meta.get('file', name)}: {meta['drafts']}", stacklevel=2)
    return Dataset(name, asked, listed, meta=meta)


def load_documents(
    path: Source, *, fields: Mapping[str, str] | None = None
) -> tuple[Document, ...]:
    """Load documents from a file, a folder or a table.

    Parameters
    ----------
    path : a table with ``text`` or ``sentences`` and optionally ``id`` and ``title``; a folder with
        such a ``documents.jsonl``, ``.csv`` or ``.tsv``; a ``.pdf``, ``.docx`` or ``.html`` file;
        or a folder of these and ``.txt``, ``.md``, ``.rst``, in subfolders too, without hidden
        files, links that lead out of it and (with a warning) those without text.
    fields : your own column names.
    """
    if isinstance(path, Sequence) and path and all(isinstance(d, Document) for d in path):
        return tuple(path)
    if isinstance(path, str | Path):
        path = Path(path).expanduser()
        tables = _tables(path, "documents")
        if tables:
            path = tables[0]
        elif path.is_dir() or is_document(path):
            return tuple(read_documents(path))
    table = as_table(path)
    own = {ours: theirs for ours, theirs in (fields or {}).items() if ours in _DOCUMENT}
    if own.get("id") not in table.frame:
        own.pop("id", None)  # it is the questions'
    frame = in_our_names(table, _DOCUMENT, own, "fields")
    needed = "sentences" if "sentences" in frame else "text"
    return tuple(_records(table, frame, [needed], _document))


def load_minihop(limit: int | None = None) -> Dataset:
    """Load MiniHop, our own two-hop questions (CC BY 4.0), or its first ``limit`` questions with
    all documents.

    Its labels are assigned by a strong language model under a written guideline; checked by a
    person: 0 (see ``data/minihop/README.md``). ``meta`` of a question holds ``supporting_facts``
    ((title, index) pairs), ``reasoning``, ``both_hops`` and, for about a third, ``long_answer`` and
    ``claims``.
    """
    return _packaged("minihop", "questions.jsonl", {"setting": "shipped"}, limit)


def load_minihop_probes() -> Dataset:
    """Load the 80 probes over MiniHop's documents: 40 easy questions ("single hop"), and 40 that
    are "unanswerable".

    The ``level`` of an unanswerable one is "not in the documents" or "false premise". It has no
    references.
    """
    return _packaged("minihop probes", "probe_questions.jsonl", {})


def _packaged(name: str, file: str, meta: Mapping[str, str], limit: int | None = None) -> Dataset:
    folder = packaged_data("minihop")
    data = load_questions(folder / file, folder / "documents.jsonl", limit=limit)
    return Dataset(name, data.questions, data.documents, meta={"file": file, **meta})


def _tables(folder: Path, stem: str) -> list[Path]:
    paths = [folder / f"{stem}{ending}" for ending in _ENDINGS]
    return [path for path in paths if path.is_file()]


def _records(
    table: Table,
    frame: pd.DataFrame,
    needed: Sequence[str],
    make: Callable[[dict[str, Any], str], Any],
) -> list[Any]:
    """Make a record of each row, without the row's empty cells.

    An empty cell of a needed column stays, so that it is named as empty and not as missing.
    """
    if frame.empty:
        do = "check that it was written completely"
        raise DataError(f"{table.name} holds no record", "at least one", do)
    for field in needed:
        if field not in frame:
            got = f"{table.name}: no field {field!r} (it has {', '.join(map(repr, frame))})"
            raise DataError(got, f"a column {field!r}", _ADD.replace("{field}", field))
    rows = json.loads(json.dumps(frame.to_dict("records"), default=_plain))
    for row in rows:
        for name, value in list(row.items()):
            if is_missing(value) or (table.csv and value == "" and name not in needed):
                del row[name]
            elif table.csv and name in _LISTS and not value.lstrip().startswith("["):
                row[name] = written_list(value, csv=True)
    places = [place.removeprefix(f"{table.name}, ") for place in table.places]
    if table.name == "the table":  # labels of a frame's rows may repeat
        places = [f"row {number}" for number in range(len(rows))]
    return each_record(
        table.name,
        zip(places, rows, strict=True),
        make,
        lambda record: [f"the id or title {record.id!r}"],
    )


def _plain(value: Any) -> Any:
    """Return a value of numpy or pandas as one of Python."""
    if is_missing(value):
        return None
    return value.tolist() if hasattr(value, "tolist") else str(value)


def _once(questions: Sequence[Question], name: str) -> list[Question]:
    """Leave out questions without ids that repeat an earlier one and its answer."""
    first = {(" ".join(q.text.split()), q.answer): q for q in reversed(questions)}
    ids = {question.id for question in first.values()}
    kept = [question for question in questions if question.id in ids]
    if len(kept) < len(questions):
        warnings.warn(
            f"{name}: {len(questions) - len(kept)} of {len(questions)} rows repeat a question and "
            "its answer and are left out: each is one question. Give them ids to keep them",
            stacklevel=3,
        )
    return kept


def _check_unanswered(name: str, frame: pd.DataFrame) -> None:
    """Refuse a table of answers, ragas' or RAGChecker's: its "answer" is what a system said."""
    if {"contexts", "ground_truth", "answer"} <= {*frame}:
        got = f"{name}: columns of answers that were already given ({', '.join(map(repr, frame))})"
        expected = "questions with their true answers: 'answer' here is what a system said"
        do = "score them with rb.score, or name the true answer: fields={'answer': 'ground_truth'}"
        raise DataError(got, expected, do)


def _place_id(where: str) -> str:
    """Name a record without an id by its place: "line-3"."""
    return where.rpartition(", ")[2].replace(" ", "-")


def _question(row: dict, where: str, by_title: Mapping[str, Document]) -> Question:
    asked = as_record(_Asked, row, where, add=_ADD)
    warn_of_no_word(asked.answer, where)
    references, about = supporting_sentences(asked.supporting_facts, by_title, where)
    meta = {name: value for name, value in row.items() if name not in _QUESTION_FIELDS}
    if references:
        meta |= about
    return Question(
        as_id(row.get("id", _place_id(where))),
        asked.question,
        asked.answer,
        asked.references or references,
        str(row.get("type", "")),
        str(row.get("level", "")),
        meta,
    )


def _document(row: dict, where: str) -> Document:
    title = str(row.get("title", as_id(row.get("id", _place_id(where)))))
    meta = {name: value for name, value in row.items() if name not in _DOCUMENT}
    # Sentences carry the space before them, as HotpotQA's do, so that joining them gives the text.
    sentences = list(as_record(_Page, row, where).sentences)
    for i, sentence in enumerate(sentences[1:], 1):
        if not sentence[0].isspace():
            sentences[i] = f" {sentence}"
    text = "".join(sentences) or as_record(_Text, row, where, add=_ADD).text
    return Document(as_id(row.get("id", title)), title, text, tuple(sentences), meta)


def _warn_of_no_references(name: str, asked: Sequence[Question]) -> None:
    if any(q.references or "unanswerable" in q.kind.lower() for q in asked):
        return
    columns = [column for question in asked[:1] for column in question.meta]
    if columns:
        warnings.warn(
            f"{name}: no question has supporting texts, so there is no IR score. Columns that were "
            f"not read: {', '.join(columns)}; if one of them holds the texts: "
            f"fields={{'references': {columns[0]!r}}}",
            stacklevel=3,
        )


# Checks that loading does not make: is each question answerable from its own evidence?


@dataclass(frozen=True)
class Problem:
    """A finding: which question, what is wrong, and what to do; ``note``: it may also be right."""

    question_id: str
    what: str
    do: str
    note: bool = False

    def __str__(self) -> str:
        return f"{self.question_id}: {'note: ' if self.note else ''}{self.what}; {self.do}"


def plain_words(text: str) -> str:
    """Return the words of a text without case and punctuation, a blank before and after each."""
    return f" {' '.join(_WORD.findall(text.casefold()))} "


def validate(
    dataset: Dataset, *, min_documents: int = 1, form: Form | None = "NFC"
) -> list[Problem]:
    """Check a data set's questions against their own evidence.

    Ids are unique; there is evidence (but for unanswerable questions), it occurs in the documents
    and comes from enough of them. A note: an answer that is no string of its evidence, no yes or
    no, no choice, and has no stated reasoning.

    Parameters
    ----------
    min_documents : how many documents each question's evidence must come from (2 for two-hop
        questions, as MiniHop's).
    form : how evidence is looked for, see `ragbench.text.layout.comparable`.
    """
    texts = [document.text for document in dataset.documents]
    references = [text for question in dataset.questions for text in question.references]
    in_documents = dict(zip(references, holders(references, texts, form), strict=True))
    absent = {text for text, places in in_documents.items() if texts and not places}
    problems: list[Problem] = []
    uses = Counter(question.id for question in dataset.questions)
    for question in dataset.questions:
        if uses[question.id] > 1:
            what = "the id is used more than once"
            problems.append(Problem(question.id, what, "rename one of them"))
        if question.references:
            problems += _evidence_problems(question, absent, min_documents)
        elif "unanswerable" not in question.kind.lower():
            do = "add references or supporting_facts"
            problems.append(Problem(question.id, "no supporting text", do))
    return problems


def _evidence_problems(
    question: Question, absent: set[str], min_documents: int
) -> Iterator[Problem]:
    for text in question.references:
        if text in absent:
            what = f"supporting text not found in any document: {text[:60]!r}"
            yield Problem(question.id, what, "copy it from the document as it is")
    count = len(set(question.meta.get("doc_ids", ())))
    if 0 < count < min_documents:
        what = f"evidence from {count} document(s), {min_documents} wanted"
        yield Problem(question.id, what, "add the missing hop, or lower min_documents")
    if not _is_answered(question):
        what = f"the answer {question.answer!r} is not in its evidence word for word"
        do = (
            "correct it if it is wrong; if it is right in other words, a column 'reasoning' may "
            "say how it follows"
        )
        yield Problem(question.id, what, do, note=True)


def _is_answered(question: Question) -> bool:
    """Tell whether an answer is a string of the evidence, a yes or no, a choice that the question
    names, or reasoned.
    """
    answer = plain_words(question.answer)
    if answer.strip() in ("yes", "no") or answer in plain_words(" ".join(question.references)):
        return True
    if question.kind == "comparison" and answer in plain_words(question.text):
        return True
    return bool(str(question.meta.get("reasoning", "")).strip())
