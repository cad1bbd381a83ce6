"""A user's own questions and documents: files, tables, or a folder of files; and MiniHop, which is
read the same way.

A question needs a question and an answer; the texts that support it are given either as
``references`` (a list of texts) or as ``supporting_facts`` (a list of [document title, sentence
index]). A document needs a text, or a list of sentences. Everything else a record carries is kept
in ``meta``.
"""

from __future__ import annotations

import itertools
import json
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
from pydantic import BeforeValidator, StrictInt

from ragbench.data.documents import READERS, read_documents
from ragbench.data.files import FileRecord, Filled, OfWords, as_record
from ragbench.data.hotpotqa import supporting_sentences
from ragbench.data.tables import Table, read_list
from ragbench.errors import ConfigError, DataError, check_known
from ragbench.paths import packaged_data, refuse_stream, written_whole
from ragbench.records import Dataset, Document, Question, as_id
from ragbench.text.layout import holders

Source = Any  # a path; or a table: a data frame, or a sequence of dicts
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
_ADD = "add it, or name your own column with fields={'{field}': 'your column'}"
_WORD = re.compile(r"[^\W_]+")
_Listed = BeforeValidator(read_list)


class _QuestionFields(FileRecord):
    question: Filled
    answer: Annotated[Filled, OfWords]
    references: Annotated[tuple[Filled, ...], _Listed] = ()
    supporting_facts: Annotated[tuple[tuple[str, StrictInt], ...], _Listed] = ()


class _SentencesField(FileRecord):
    sentences: Annotated[tuple[Filled, ...], _Listed] = ()


class _TextField(FileRecord):
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
        data frame, or a list of dicts. In a cell of a CSV, references are separated by ``||`` or
        written as a JSON list, ``supporting_facts`` as a JSON list.
    documents : see `load_documents`; or ``Document`` records.
    fields : your own column names, e.g. ``{"question": "query", "answer": "gold"}``.
    limit : keep the first so many questions.

    >>> row = {"question": "Who?", "answer": "Ada", "references": ["Ada built it."]}
    >>> rb.data.load_questions([row], [{"title": "Mill", "text": "Ada built it."}])
    Dataset('mine', 1 questions, 1 documents)
    """
    if limit is not None and limit < 1:
        raise ConfigError(f"limit={limit!r}", "at least 1, or None for all", "leave it out")
    check_known("name in fields (ours: theirs)", fields or {}, {**_QUESTION, **_DOCUMENT})
    meta = {"setting": "own"}
    file = Path("mine")
    if isinstance(questions, str | Path):
        file = Path(questions)
        meta["file"] = file.name
    pages: tuple[Document, ...] = ()
    if documents is not None:
        pages = load_documents(documents, fields=fields)
    records = _read_questions(questions, fields or {}, pages)[:limit]
    _warn_of_no_references(file.name, records)
    drafts = _unaccepted_drafts(records)
    if drafts:
        meta["drafts"] = drafts
        warnings.warn(f"{file.name}: {drafts}", stacklevel=2)
    return Dataset(file.stem, tuple(records), pages, meta=meta)


def _unaccepted_drafts(questions: Sequence[Question]) -> str:
    drafts = [question.meta for question in questions if "drafted_by" in question.meta]
    accepted = sum(bool(meta.get("accepted_by")) for meta in drafts)
    if accepted == len(drafts):
        return ""
    what = f"{len(drafts) - accepted} of {len(questions)} questions are a model's drafts"
    return f"{what}; accepted by a person: {accepted}"


def _read_questions(
    source: Source, fields: Mapping[str, str], documents: Sequence[Document]
) -> list[Question]:
    by_title = _by_title(documents)
    needed = ["question", "answer"]
    table = _in_our_names(_squad(Table.of(source)), _QUESTION, fields, needed)
    _refuse_given_answers(table)
    questions = _records(table, needed, lambda row, where: _question(row, where, by_title))
    if "id" in table.frame:
        return questions
    single_spaced = table.frame[needed].map(lambda cell: " ".join(str(cell).split()))
    repeats = single_spaced.duplicated()
    if repeats.any():
        warnings.warn(
            f"{table.name}: {repeats.sum()} of {len(repeats)} rows repeat a question and its "
            "answer and are left out: each is one question. Give them ids to keep them",
            stacklevel=3,
        )
    return list(itertools.compress(questions, ~repeats))


def _by_title(documents: Sequence[Document]) -> dict[str, Document]:
    """Return documents by id, and by their title where it is that of one."""
    uses = Counter(document.title for document in documents)
    by_title = {document.id: document for document in documents}
    return by_title | {d.title: d for d in documents if uses[d.title] == 1}


def _refuse_given_answers(table: Table) -> None:
    if {"contexts", "ground_truth", "answer"} <= {*table.frame}:
        there = ", ".join(map(str, table.frame))
        raise DataError(
            f"{table.name}: columns of answers that were already given ({there})",
            "questions with their true answers: 'answer' here is what a system said",
            "score them with rb.score, or name the true answer: fields={'answer': 'ground_truth'}",
        )


def _squad(table: Table) -> Table:
    """Return SQuAD's rows with the first of their true answers, and the passage that it stands in;
    else what is given. All of them stay in ``answers``.
    """
    frame = table.frame
    with_answers = table.with_squad_answers()
    if with_answers is table or "answer" in frame or "context" not in frame:
        return table
    answers = with_answers.frame["reference"].str[0]
    passages = pd.Series([[text] for text in frame["context"]], frame.index)
    return table._replace(frame=frame.assign(answer=answers, references=passages))


def load_documents(
    path: Source, *, fields: Mapping[str, str] | None = None
) -> tuple[Document, ...]:
    """Load documents from a file, a folder or a table.

    Parameters
    ----------
    path : a table with ``text`` or ``sentences`` and optionally ``id`` and ``title``; a ``.pdf``,
        ``.docx`` or ``.html`` file; or a folder of these and ``.txt``, ``.md``, ``.rst``, in
        subfolders too, without hidden files, links that lead out of it and (with a warning) those
        without text.
    fields : your own column names.

    >>> (document,) = rb.data.load_documents([{"title": "Mill", "text": "Ada built it."}])
    >>> document.text
    'Ada built it.'
    """
    if isinstance(path, Sequence) and path and all(isinstance(d, Document) for d in path):
        return tuple(path)
    if isinstance(path, str | Path):
        path = Path(path).expanduser()
        if path.is_dir() or path.suffix.lower() in READERS:
            return tuple(read_documents(path))
    table = Table.of(path)
    own = dict(fields or {})
    if own.get("id") not in table.frame:
        own.pop("id", None)  # questions have an id too: theirs is meant
    table = _in_our_names(table, _DOCUMENT, own, ["text"])
    needed = "sentences" if "sentences" in table.frame else "text"
    return tuple(_records(table, [needed], _document))


def save_questions(questions: Iterable[Question], path: str | Path) -> Path:
    """Write questions as JSON lines that `load_questions` reads, and return the path.

    DataError where there is a file of other questions: accepted ones could be in it.
    """
    lines = []
    for question in questions:
        row = {
            "id": question.id,
            "question": question.text,
            "answer": question.answer,
            "references": question.references,
            "type": question.kind,
            "level": question.level,
        }
        lines.append(json.dumps(row | dict(question.meta), ensure_ascii=False) + "\n")
    text = "".join(lines)
    path = Path(path).expanduser()
    refuse_stream(path)
    if path.is_dir() or (path.exists() and path.read_bytes() != text.encode()):
        raise DataError(f"{path} is there already", "a new file", "name another, or move it")
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(path) as part:
        part.write_text(text, encoding="utf-8", newline="\n")
    return path


def load_minihop(limit: int | None = None, probes: bool = False) -> Dataset:
    """Load MiniHop, our own two-hop questions (CC BY 4.0), or its first ``limit`` questions with
    all documents.

    Its labels are assigned by a strong language model under a written guideline; checked by a
    person: 0 (see ``data/minihop/README.md``). ``meta`` of a question holds ``supporting_facts``
    ((title, index) pairs), ``reasoning``, ``both_hops`` and, for about a third, ``long_answer`` and
    ``claims``.

    Parameters
    ----------
    probes : load the 80 probes over the same documents instead: 40 easy questions ("single hop"),
        and 40 that are "unanswerable", whose ``level`` is "not in the documents" or "false
        premise", without references.

    >>> rb.data.load_minihop(limit=10)
    Dataset('minihop', 10 questions, 270 documents)
    """
    file = "probe_questions.jsonl" if probes else "questions.jsonl"
    folder = packaged_data("minihop")
    data = load_questions(folder / file, folder / "documents.jsonl", limit=limit)
    if probes:
        return replace(data, name="minihop probes", meta={"file": file})
    return replace(data, name="minihop", meta={"file": file, "setting": "shipped"})


def _in_our_names(
    table: Table, names: Mapping[str, Any], fields: Mapping[str, str], needed: Sequence[str]
) -> Table:
    """Return a table in our names; an empty cell of a needed column of a CSV stays, so that it is
    named as empty and not as missing.
    """
    own = {ours: theirs for ours, theirs in fields.items() if ours in names}
    lists = ("references", "supporting_facts", "claims", "sentences")
    return table.in_our_names(names, own, "fields", lists, needed)


def _records(table: Table, needed: Sequence[str], make: Callable[[dict, str], Any]) -> list[Any]:
    """Make a record of each row, with the values that JSON has: rows are written in it."""
    for field in needed:
        if field not in table.frame:
            there = ", ".join(map(repr, table.frame))
            raise DataError(
                f"{table.name}: no field {field!r} (it has {there})",
                f"a column {field!r}",
                _ADD.replace("{field}", field),
            )

    def read(row: dict, where: str) -> Any:
        return make(json.loads(json.dumps(row, default=_for_json)), where)

    return table.records(read)


def _for_json(value: Any) -> Any:
    """Return what JSON has for a value that it has not, such as a date."""
    return value.tolist() if hasattr(value, "tolist") else str(value)


def _name(row: Mapping[str, Any], where: str) -> str:
    """Return a record's id; without one its place: "line-3"."""
    place = where.rpartition(", ")[2]
    return as_id(row.get("id", place.replace(" ", "-")))


def _question(row: dict, where: str, by_title: Mapping[str, Document]) -> Question:
    record = as_record(_QuestionFields, row, where, _ADD)
    references, documents = supporting_sentences(record.supporting_facts, by_title, where)
    meta = {name: value for name, value in row.items() if name not in _QUESTION_FIELDS}
    if references:
        meta |= documents
    return Question(
        _name(row, where),
        record.question,
        record.answer,
        record.references or references,
        str(row.get("type", "")),
        str(row.get("level", "")),
        meta,
    )


def _document(row: dict, where: str) -> Document:
    title = str(row.get("title", _name(row, where)))
    name = as_id(row.get("id", title))
    meta = {field: value for field, value in row.items() if field not in _DOCUMENT}
    sentences = []
    for sentence in as_record(_SentencesField, row, where).sentences:
        # They carry the space before them, as HotpotQA's do, so that joining them gives the text.
        is_joined = not sentences or sentence[0].isspace()
        sentences.append(sentence if is_joined else f" {sentence}")
    text = "".join(sentences) or as_record(_TextField, row, where, _ADD).text
    return Document(name, title, text, tuple(sentences), meta)


def _warn_of_no_references(name: str, questions: Sequence[Question]) -> None:
    if any(question.references or _is_unanswerable(question) for question in questions):
        return
    columns = list(questions[0].meta)
    if columns:
        warnings.warn(
            f"{name}: no question has supporting texts, so there is no IR score. Columns that were "
            f"not read: {', '.join(columns)}; if one of them holds the texts: "
            f"fields={{'references': {columns[0]!r}}}",
            stacklevel=3,
        )


def _is_unanswerable(question: Question) -> bool:
    return "unanswerable" in question.kind.lower()


# Checks that loading does not make: is each question answerable from its own evidence?


@dataclass(frozen=True)
class _Problem:
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


def validate(dataset: Dataset, *, min_documents: int = 1) -> list[_Problem]:
    """Check a data set's questions against their own evidence.

    Ids are unique; there is evidence (but for unanswerable questions), it occurs in the documents
    and comes from enough of them. A note: an answer that is no string of its evidence, no yes or
    no, no choice, and has no stated reasoning.

    Parameters
    ----------
    min_documents : how many documents each question's evidence must come from (2 for two-hop
        questions, as MiniHop's).

    >>> rb.data.validate(rb.data.load_minihop(), min_documents=2)
    []
    """
    references = [text for question in dataset.questions for text in question.references]
    places = holders(references, [document.text for document in dataset.documents])
    uses = Counter(question.id for question in dataset.questions)
    problems = []
    for question in dataset.questions:
        name = question.id
        if uses[name] > 1:
            problems.append(_Problem(name, "the id is used more than once", "rename one of them"))
        for text in question.references:
            if dataset.documents and not places[text]:
                what = f"supporting text not found in any document: {text[:60]!r}"
                problems.append(_Problem(name, what, "copy it from the document as it is"))
        problems += _evidence_problems(question, min_documents)
    return problems


def _evidence_problems(question: Question, min_documents: int) -> Iterator[_Problem]:
    if not question.references:
        if not _is_unanswerable(question):
            yield _Problem(question.id, "no supporting text", "add references or supporting_facts")
        return
    count = len(set(question.meta.get("doc_ids", ())))
    if 0 < count < min_documents:
        yield _Problem(
            question.id,
            f"evidence from {count} document(s), {min_documents} wanted",
            "add the missing hop, or lower min_documents",
        )
    # An answer stands in the evidence, is yes or no, a choice that the question names, or reasoned.
    answer = plain_words(question.answer)
    texts = [" ".join(question.references), "yes", "no"]
    if question.kind == "comparison":
        texts.append(question.text)
    if any(answer in plain_words(text) for text in texts):
        return
    if not str(question.meta.get("reasoning", "")).strip():
        yield _Problem(
            question.id,
            f"the answer {question.answer!r} is not in its evidence word for word",
            "correct it if it is wrong; if it is right in other words, a column 'reasoning' may "
            "say how it follows",
            note=True,
        )
