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
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, StrictInt

from ragbench.data.answers import is_missing, warn_of_no_word
from ragbench.data.documents import is_document, read_document, read_folder
from ragbench.data.files import Filled, Row, as_record, check_limit, each_record, place_id
from ragbench.data.hotpotqa import load_hotpotqa, supporting_sentences
from ragbench.data.tables import CSV_ENDINGS, as_table, plain_name, written_list
from ragbench.errors import DataError, check_known
from ragbench.paths import packaged_data
from ragbench.records import Dataset, Document, Question, as_id
from ragbench.text.layout import Form, comparable

Source = Any  # a path; or a table: a data frame, or a sequence of dicts
QUESTION_ENDINGS = (".jsonl", *CSV_ENDINGS)
# In these tables, ragas' and RAGChecker's, "answer" is what a system said, not what is true.
_ANSWERED = (
    {"contexts", "retrieved_contexts", "retrieved_context"},
    {"ground_truth", "ground_truths", "gt_answer"},
)
_LISTS = ("references", "supporting_facts", "claims", "sentences")
_DOCUMENT_FIELDS = {"id", "title", "text", "sentences"}
_QUESTION_FIELDS = {
    "id",
    "_id",
    "question",
    "answer",
    "references",
    "supporting_facts",
    "type",
    "level",
}
_OURS = sorted(_DOCUMENT_FIELDS | _QUESTION_FIELDS | {"topic", "reasoning", "claims", "both_hops"})
_KNOWN = {*_OURS, *_ANSWERED[0], *_ANSWERED[1]}
_ADD = "add it, or name your own column with fields={'{field}': 'your column'}"

_WORD = re.compile(r"[^\W_]+")

_Listed = BeforeValidator(
    lambda value: written_list(value, csv=False) if isinstance(value, str) else value
)


class _Asked(Row):
    question: Filled
    answer: Filled
    references: Annotated[tuple[Filled, ...], _Listed] = ()
    supporting_facts: Annotated[tuple[tuple[str, StrictInt], ...], _Listed] = ()


class _Page(Row):
    sentences: Annotated[tuple[Filled, ...], _Listed] = ()


class _Text(Row):
    text: Filled


def load_questions(
    questions: Source,
    documents: Source | None = None,
    *,
    fields: Mapping[str, str] | None = None,
    limit: int | None = None,
) -> Dataset:
    """Load questions, and documents when given, from files or tables.

    Parameters
    ----------
    questions : with ``question`` and ``answer``, and optionally ``id``, ``references`` or
    ``supporting_facts``,
        ``type``, ``level``: a file (.jsonl, .csv, .tsv, .json, .parquet), a data frame, or a list
        of dicts. A folder stands for the questions file in it, and for its documents. In a cell of
        a CSV, references are separated by ``||`` or written as a JSON list, ``supporting_facts`` as
        a JSON list.
    documents : see `load_documents`; or ``Document`` records.
    fields : your own column names, e.g. ``{"question": "query", "answer": "gold"}``.
    limit : keep the first so many questions.
    """
    check_limit(limit)
    check_known("name in fields (ours: theirs)", fields or {}, _OURS)
    name = "mine"
    meta = {"setting": "own"}
    if isinstance(questions, str | Path):
        questions = Path(questions).expanduser()
        if (folder := questions).is_dir():
            questions = next(iter(_tables(folder, "questions")), folder / "questions.jsonl")
            if documents is None and _tables(folder, "documents"):
                documents = folder
        name = questions.stem
        meta = {"file": questions.name, "setting": "own"}
    said_of = meta.get("file", name)
    listed, columns = _documents(documents, fields) if documents is not None else ((), set())
    by_title = {document.title: document for document in reversed(listed)}  # the first of a title
    asked, asked_columns = _records(
        questions,
        fields,
        lambda row, where: _question(row, where, by_title),
        "questions",
        elsewhere=columns,
    )
    strange = sorted(
        c for c in asked_columns - {*(fields or {}).values()} if plain_name(c) not in _KNOWN
    )
    if strange and not any(q.references or "unanswerable" in q.kind.lower() for q in asked):
        warnings.warn(
            f"{said_of}: no question has supporting texts, so there is no IR score. Columns that "
            "were not read: "
            f"{', '.join(strange)}; if one of them holds the texts: fields={{'references': "
            f"{strange[0]!r}}}",
            stacklevel=2,
        )
    asked = asked[:limit]
    if open_ := sum("drafted_by" in q.meta and not q.meta.get("accepted_by") for q in asked):
        accepted = sum(bool(q.meta.get("accepted_by")) for q in asked)
        meta["drafts"] = (
            f"{open_} of {len(asked)} questions are a model's drafts; accepted by a person: "
            f"{accepted}"
        )
        warnings.warn(f"{said_of}: {meta['drafts']}", stacklevel=2)
    return Dataset(name, asked, listed, meta=meta)


def load_documents(
    path: Source, *, fields: Mapping[str, str] | None = None
) -> tuple[Document, ...]:
    """Load documents from a file, a folder or a table.

    Parameters
    ----------
    path : a table with ``text`` or ``sentences`` and optionally ``id`` and ``title``; a folder with
    such a
        ``documents.jsonl``, ``.csv`` or ``.tsv``; a ``.pdf``, ``.docx`` or ``.html`` file; or a
        folder of these and ``.txt``, ``.md``, ``.rst``, in subfolders too, without hidden files and
        (with a warning) those without text.
    fields : your own column names.
    """
    return _documents(path, fields)[0]


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


def _documents(
    source: Source, fields: Mapping[str, str] | None
) -> tuple[tuple[Document, ...], set[str]]:
    """Return the documents, and the columns of a table of them."""
    if (
        isinstance(source, Sequence)
        and source
        and all(isinstance(item, Document) for item in source)
    ):
        return tuple(source), set()
    if isinstance(source, str | Path):
        source = Path(source).expanduser()
        if source.is_dir():
            tables = _tables(source, "documents")
            if not tables:
                return tuple(read_folder(source)), set()
            source = tables[0]
        elif is_document(source):
            return tuple(read_document(source, source.name)), set()
    return _records(source, fields, _document, "documents")


def _tables(folder: Path, stem: str) -> list[Path]:
    return [
        folder / f"{stem}{ending}"
        for ending in QUESTION_ENDINGS
        if (folder / f"{stem}{ending}").is_file()
    ]


def _records(
    source: Source,
    fields: Mapping[str, str] | None,
    make: Callable[[dict, str], Any],
    noun: str,
    elsewhere: Collection[str] = (),
) -> tuple[tuple, set[str]]:
    """Return the records, and the columns of the table;

    ``elsewhere`` are those of the other table.
    """
    table = as_table(source)
    if table.frame.empty:
        raise DataError(
            f"{table.name} holds no record", "at least one", "check that it was written completely"
        )
    ours_of = {theirs: ours for ours, theirs in (fields or {}).items()}
    columns = {*map(str, table.frame.columns)}
    for theirs, ours in ours_of.items():
        # A misspelt column of references would leave all questions without any.
        of_documents = ours in ("title", "text", "sentences")
        if theirs not in columns.union(elsewhere) and of_documents == (noun == "documents"):
            raise DataError(
                f"{table.name}: fields names the column {theirs!r} for {ours!r}, but no record "
                "has it",
                f"a column that is there: {', '.join(sorted(columns.union(elsewhere)))}",
                f"mend fields={{{ours!r}: {theirs!r}}}: our name first, then your column",
            )
    rows = [_named(row, ours_of, table.csv) for row in table.frame.to_dict("records")]
    name = f"the table of {noun}"
    places = [f"row {i}" for i in range(len(rows))]
    if isinstance(source, str | Path):
        name = table.name
        places = [place.removeprefix(f"{table.name}, ") for place in table.places]
    key = "id or title" if noun == "documents" else "id"
    records = each_record(
        name, zip(places, rows, strict=True), make, lambda record: [f"the {key} {record.id!r}"]
    )
    return tuple(records), columns


def _named(row: Mapping[Any, Any], ours_of: Mapping[str, str], csv: bool) -> dict[str, Any]:
    """Return a row without empty cells under our names:

    ``ours_of``, else but for capitals, spaces and hyphens.
    """
    named: dict[str, Any] = {}
    for column, value in json.loads(
        json.dumps({str(n): v for n, v in row.items()}, default=_plain)
    ).items():
        name = ours_of.get(column, column)
        if (
            name not in _KNOWN
            and (plain := plain_name(column)) in _KNOWN
            and plain not in row
            and plain not in named
        ):
            name = plain
        # An empty cell of a needed column stays, so that it is told as empty and not as missing.
        empty = is_missing(value) or (
            csv and value == "" and name not in ("question", "answer", "text")
        )
        # A column of ours that fields replaces by another gives way, wherever it stands.
        if empty or (column not in ours_of and name in ours_of.values()):
            continue
        listed = csv and name in _LISTS and not value.lstrip().startswith("[")
        named[name] = written_list(value, csv=True) if listed else value
    return named


def _plain(value: Any) -> Any:
    """Return a value of numpy or pandas as one of Python."""
    return None if is_missing(value) else value.tolist() if hasattr(value, "tolist") else str(value)


def _question(row: dict, where: str, by_title: Mapping[str, Document]) -> Question:
    if all(names & row.keys() for names in _ANSWERED):
        truth = next(iter(_ANSWERED[1] & row.keys()))
        raise DataError(
            f"{where}: columns of answers that were already given ({', '.join(map(repr, row))})",
            "questions with their true answers: 'answer' here is what a system said",
            f"score them with rb.score, or take the questions alone: fields={{'answer': {truth!r}}}",
        )
    asked = as_record(_Asked, row, where, add=_ADD)
    warn_of_no_word(asked.answer, where)
    meta = {name: value for name, value in row.items() if name not in _QUESTION_FIELDS}
    found, about = supporting_sentences(asked.supporting_facts, by_title, where)
    if found:
        meta |= about
    name = as_id(row.get("_id", row.get("id", place_id(where))))
    kind = str(row.get("type", ""))
    level = str(row.get("level", ""))
    return Question(
        name, asked.question, asked.answer, asked.references or found, kind, level, meta
    )


def _document(row: dict, where: str) -> Document:
    title = str(row["title"]) if "title" in row else as_id(row.get("id", place_id(where)))
    meta = {name: value for name, value in row.items() if name not in _DOCUMENT_FIELDS}
    # Sentences carry the space before them, as HotpotQA's do, so that joining them gives the text.
    sentences = as_record(_Page, row, where).sentences
    spaced = tuple(s if i == 0 or s[:1].isspace() else f" {s}" for i, s in enumerate(sentences))
    text = "".join(spaced) or as_record(_Text, row, where, add=_ADD).text
    return Document(as_id(row.get("id", title)), title, text, spaced, meta)


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
    searched = "\0".join(comparable([], text, form)[1].text for text in texts)

    def held(reference: str) -> bool:
        wanted = comparable([reference], "", form)[0][0]
        if not texts or wanted in searched:
            return True
        # A word that is divided at a line end keeps its hyphen beside a reference that writes it
        # so.
        return "-" in reference and any(
            wanted in comparable([reference], text, form)[1].text for text in texts
        )

    problems: list[Problem] = []
    uses = Counter(question.id for question in dataset.questions)
    for question in dataset.questions:
        found = partial(Problem, question.id)
        if uses[question.id] > 1:
            problems.append(found("the id is used more than once", "rename one of them"))
        if not question.references:
            if "unanswerable" not in question.kind.lower():
                problems.append(found("no supporting text", "add references or supporting_facts"))
            continue
        problems += [
            found(
                f"supporting text not found in any document: {text[:60]!r}",
                "copy it from the document as it is",
            )
            for text in question.references
            if not held(text)
        ]
        count = len(set(question.meta.get("doc_ids", ())))
        if 0 < count < min_documents:
            what = f"evidence from {count} document(s), {min_documents} wanted"
            problems.append(found(what, "add the missing hop, or lower min_documents"))
        # A string of the evidence, a yes or no, a choice the question names, or reasoned.
        answer = plain_words(question.answer)
        if not (
            answer in plain_words(" ".join(question.references))
            or answer.strip() in ("yes", "no")
            or (question.kind == "comparison" and answer in plain_words(question.text))
            or str(question.meta.get("reasoning", "")).strip()
        ):
            what = f"the answer {question.answer!r} is not in its evidence word for word"
            do = (
                "correct it if it is wrong; if it is right in other words, a column 'reasoning' "
                "may say how it follows"
            )
            problems.append(found(what, do, note=True))
    return problems


def validate_files(
    questions: str | Path,
    documents: str | Path | None = None,
    *,
    fields: Mapping[str, str] | None = None,
    **options: Any,
) -> list[Problem]:
    """Load a question file (HotpotQA's JSON, or as `load_questions` does) and run `validate` on it."""
    if str(questions).removesuffix(".gz").lower().endswith(".json"):
        return validate(load_hotpotqa(questions), **options)
    return validate(load_questions(questions, documents, fields=fields), **options)
