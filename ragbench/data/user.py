"""A user's own questions and documents: JSON lines, CSV, tables, or a folder of files; and MiniHop, which is read so.

A question needs a question and an answer; the texts that support it are given either as ``references`` (a list of
texts) or as ``supporting_facts`` (a list of [document title, sentence index]). A document needs a text, or a list of
sentences. Everything else a record carries is kept in ``meta``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, StrictInt

from ragbench.data.documents import is_document, read_document, read_folder
from ragbench.data.files import Filled, Row, as_record, check_limit, each_record, read_jsonl
from ragbench.data.tables import CSV_ENDINGS, as_frame, is_csv, plain_name, read_csv, written_list
from ragbench.errors import DataError, check_known
from ragbench.paths import packaged_data
from ragbench.records import Dataset, Document, Question

Source = Any  # a path; or a table: a data frame, or a sequence of dicts
QUESTION_ENDINGS = (".jsonl", *CSV_ENDINGS)
# In these tables, ragas' and RAGChecker's, "answer" is what a system said, not what is true.
_ANSWERED = ({"contexts", "retrieved_contexts", "retrieved_context"}, {"ground_truth", "ground_truths", "gt_answer"})
_DOCUMENT_FIELDS = {"title", "text", "sentences"}
_ADD = "add it, or name your own column with fields={'{field}': 'your column'}"

_Cell = BeforeValidator(lambda value: written_list(value) if isinstance(value, str) else value)
_Facts = Annotated[tuple[tuple[str, StrictInt], ...], _Cell]


class _Claim(Row):
    support: _Facts = ()


class _Asked(Row):
    question: Filled
    answer: Filled
    references: Annotated[tuple[Filled, ...], _Cell] = ()
    supporting_facts: _Facts = ()
    claims: Annotated[tuple[_Claim | str, ...], _Cell] = ()


class _Told(Row):
    sentences: Annotated[tuple[Filled, ...], _Cell] = ()


class _Text(Row):
    text: Filled


# Fields of a question that are not kept in its meta.
_QUESTION_FIELDS = {"id", "_id", "question", "answer", "references", "supporting_facts", "type", "level"}
_OURS = sorted(_DOCUMENT_FIELDS | _QUESTION_FIELDS | {"reasoning", "claims", "both_hops"})
_KNOWN = {*_OURS, *_ANSWERED[0], *_ANSWERED[1]}


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
    questions : with ``question`` and ``answer``, and optionally ``id``, ``references`` or ``supporting_facts``,
        ``type``, ``level``: a file (.csv, .tsv, else JSON lines), or a table: a data frame, a list of dicts. A folder
        stands for the ``questions.jsonl`` in it, and for its documents where ``documents`` is left out (as
        ``ragbench data generate`` writes them). In a cell of a CSV, several references are separated by ``||`` or
        written as a JSON list; ``supporting_facts`` are a JSON list.
    documents : with ``text`` or ``sentences``, and optionally ``id`` and ``title``; see `load_documents`. Or
        ``Document`` records.
    fields : your own column names, e.g. ``{"question": "query", "answer": "gold"}``.
    limit : keep the first so many questions.
    """
    csv = isinstance(questions, str | Path) and is_csv(questions)
    return _load(questions, documents, CSV_ENDINGS if csv else (".jsonl",), fields, limit)


def load_jsonl(
    questions: str | Path,
    documents: Source | None = None,
    *,
    fields: Mapping[str, str] | None = None,
    limit: int | None = None,
) -> Dataset:
    """Load questions from a JSON-lines file, whatever its ending; else as `load_questions`."""
    return _load(questions, documents, (".jsonl",), fields, limit)


def load_csv(
    questions: str | Path,
    documents: Source | None = None,
    *,
    fields: Mapping[str, str] | None = None,
    limit: int | None = None,
) -> Dataset:
    """Load questions from a CSV file with a header line, whatever its ending; else as `load_questions`."""
    return _load(questions, documents, CSV_ENDINGS, fields, limit)


def load_documents(path: Source, *, fields: Mapping[str, str] | None = None) -> tuple[Document, ...]:
    """Load documents from a file, a folder or a table.

    Parameters
    ----------
    path : a file (.csv, .tsv, else JSON lines); or a folder with ``documents.jsonl``, ``.csv`` or ``.tsv``; or a
        folder of ``.txt``, ``.md``, ``.rst``, ``.pdf``, ``.docx`` and ``.html`` files, in subfolders too (title: file
        name, and page of a PDF). Hidden files and folders are passed over; a file without text is left out, with a
        warning. Or a table: a data frame, a list of dicts.
    fields : your own column names.
    """
    return _documents(path, fields)[0]


def load_minihop(limit: int | None = None) -> Dataset:
    """Load MiniHop, our own two-hop questions (CC BY 4.0), or its first ``limit`` questions with all documents.

    Its labels are reference labels, assigned by a strong language model under a written guideline; checked by a person:
    0; the second pass measures repeatability, not human agreement. See ``data/minihop/README.md``.

    Returns
    -------
    Dataset. ``meta`` of a question holds ``supporting_facts`` ((title, index) pairs), ``reasoning``, ``both_hops``
    and, for about a third of them, ``long_answer`` and ``claims`` (a text and its supporting sentences each).
    """
    return _shipped("minihop", "questions.jsonl", {"setting": "shipped"}, limit)


def load_minihop_probes() -> Dataset:
    """Load the 80 probes over MiniHop's documents: 40 easy questions, and 40 that have no answer in them.

    Returns
    -------
    Dataset with ``kind`` "single hop" or "unanswerable". The ``level`` of an unanswerable one is "not in the documents"
    or "false premise": to abstain, or to correct the premise, is right. It has no references and so no IR score.
    """
    return _shipped("minihop probes", "probe_questions.jsonl", {})


def _shipped(name: str, file: str, meta: Mapping[str, str], limit: int | None = None) -> Dataset:
    folder = packaged_data("minihop")
    data = load_jsonl(folder / file, folder / "documents.jsonl", limit=limit)
    return Dataset(name, data.questions, data.documents, meta={"file": file, **meta})


def _load(
    questions: Source,
    documents: Source | None,
    endings: Sequence[str],
    fields: Mapping[str, str] | None,
    limit: int | None,
) -> Dataset:
    check_limit(limit)
    check_known("name in fields (ours: theirs)", fields or {}, _OURS)
    name, meta = "mine", {"setting": "own"}
    if isinstance(questions, str | Path):
        folder = Path(questions).expanduser()
        if folder.is_dir():
            questions = next(iter(_tables(folder, "questions", endings)), folder / f"questions{endings[0]}")
            if documents is None and _tables(folder, "documents"):
                documents = folder
        name, meta = Path(questions).stem, {"file": Path(questions).name, "setting": "own"}
    listed, columns = _documents(documents, fields) if documents is not None else ((), set())
    by_title: dict[str, Document] = {}
    for document in listed:
        by_title.setdefault(document.title, document)
    place, rows = _rows(questions, "the table of questions", csv=endings == CSV_ENDINGS)
    # Names of a document's columns are not looked for where no table of documents was read.
    wanted = [ours for ours in fields or {} if columns or ours not in _DOCUMENT_FIELDS]
    columns = columns.union(*(row for _, row in rows))
    for ours in wanted:
        theirs = (fields or {})[ours]
        if columns and theirs not in columns:  # or a misspelt column of references would leave all without any
            raise DataError(
                f"{place}: fields names the column {theirs!r} for {ours!r}, but no record has it",
                f"a column that is there: {', '.join(sorted(columns))}",
                f"mend fields={{{ours!r}: {theirs!r}}}: our name first, then your column",
            )
    asked = _records(place, rows, fields, lambda row, where: _question(row, where, by_title))
    return Dataset(name, asked[:limit], listed, meta=meta)


def _documents(source: Source, fields: Mapping[str, str] | None) -> tuple[tuple[Document, ...], set[str]]:
    """Return the documents, and the columns of a table of them."""
    if isinstance(source, Sequence) and source and all(isinstance(item, Document) for item in source):
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
    place, rows = _rows(source, "the table of documents", csv=isinstance(source, Path) and is_csv(source))
    return _records(place, rows, fields, _document, "id or title"), set().union(*(row for _, row in rows))


def _tables(folder: Path, stem: str, endings: Sequence[str] = QUESTION_ENDINGS) -> list[Path]:
    return [folder / f"{stem}{ending}" for ending in endings if (folder / f"{stem}{ending}").is_file()]


def _rows(source: Source, name: str, *, csv: bool) -> tuple[str | Path, list[tuple[str, dict]]]:
    """Return what the source is called, and (place, row) of each record."""
    if isinstance(source, str | Path):
        rows = list(read_csv(source) if csv else read_jsonl(source))
    else:
        rows = list(_of_table(source))
    place = source if isinstance(source, str | Path) else name
    if not rows:
        do = "check that it was written completely"
        raise DataError(f"{place} holds a header and no record", "at least one record", do)
    return place, rows


def _of_table(table: Any) -> Iterator[tuple[str, dict]]:
    """Yield rows of a table as if they stood in a JSON-lines file."""
    frame = as_frame(table)[2]
    for number, row in enumerate(frame.astype(object).where(frame.notna(), None).to_dict("records")):
        there = {str(name): value for name, value in row.items() if value is not None}
        plain = json.dumps(there, default=lambda value: getattr(value, "tolist", value.__str__)())
        yield f"row {number}", json.loads(plain)


def _records(place: str | Path, rows: Any, fields: Mapping[str, str] | None, make: Any, key: str = "id") -> tuple:
    rename = {theirs: ours for ours, theirs in (fields or {}).items()}
    named = ((at, _named(row, rename)) for at, row in rows)
    return tuple(each_record(place, named, make, lambda record: [f"the {key} {record.id!r}"]))


def _named(row: Mapping[str, Any], rename: Mapping[str, str]) -> dict[str, Any]:
    """Give the columns our names: those of ``rename``, else what only capitals, spaces or hyphens tell from ours."""
    named: dict[str, Any] = {}
    for column, value in row.items():
        name = rename.get(column, column)
        if name not in _KNOWN and (plain := plain_name(name)) in _KNOWN and plain not in row and plain not in named:
            name = plain
        # A column of ours that fields replaces by another gives way, wherever it stands.
        if column in rename or name not in rename.values():
            named[name] = value
    return named


def _question(row: dict, where: str, by_title: Mapping[str, Document]) -> Question:
    if all(names & row.keys() for names in _ANSWERED):
        truth = next(iter(_ANSWERED[1] & row.keys()))
        raise DataError(
            f"{where}: columns of answers that were already given ({', '.join(map(repr, row))})",
            "questions with their true answers: 'answer' here is what a system said",
            f"score them with rb.score, or take the questions alone: fields={{'answer': {truth!r}}}",
        )
    asked = as_record(_Asked, row, where, add=_ADD)
    meta = {name: value for name, value in row.items() if name not in _QUESTION_FIELDS}
    support = [(_holder(title, index, where, by_title), index) for title, index in asked.supporting_facts]
    references = asked.references or tuple(document.sentences[index].strip() for document, index in support)
    if support:
        meta["supporting_facts"] = tuple((document.title, index) for document, index in support)
        meta["doc_ids"] = tuple(dict.fromkeys(document.id for document, _ in support))
    for claim in asked.claims:
        for title, index in claim.support if isinstance(claim, _Claim) else ():
            _holder(title, index, where, by_title)
    name = str(row.get("_id", row.get("id", _place(where))))
    kind, level = str(row.get("type", "")), str(row.get("level", ""))
    return Question(name, asked.question, asked.answer, references, kind, level, meta)


def _holder(title: str, index: int, where: str, by_title: Mapping[str, Document]) -> Document:
    """Return the document that holds a supporting fact."""
    if title not in by_title:
        raise DataError(
            f"{where}: supporting fact names {title!r}, which is no document's title",
            "a title of the documents file",
            "check the spelling, or pass the documents file as second argument",
        )
    count = len(by_title[title].sentences)
    if not 0 <= index < count:
        raise DataError(
            f"{where}: supporting fact [{title!r}, {index}], but that document has {count} sentences",
            f"an index from 0 to {count - 1}" if count else "a document with a list of sentences",
            "mend the index, or give the document as a list under 'sentences'",
        )
    return by_title[title]


def _document(row: dict, where: str) -> Document:
    title = str(row.get("title", row.get("id", _place(where))))
    name = str(row.get("id", title))
    meta = {name: value for name, value in row.items() if name not in {"id", *_DOCUMENT_FIELDS}}
    # Sentences carry the space before them, as HotpotQA's do, so that joining them gives the text.
    sentences = as_record(_Told, row, where).sentences
    spaced = tuple(s if i == 0 or s[:1].isspace() else f" {s}" for i, s in enumerate(sentences))
    text = "".join(spaced) or as_record(_Text, row, where, add=_ADD).text
    return Document(name, title, text, spaced, meta)


def _place(where: str) -> str:
    """Name a record without an id by its place: "line-3"."""
    return where.rpartition(", ")[2].replace(" ", "-")
