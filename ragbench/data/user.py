"""A user's own questions and documents: JSON lines, CSV, or a folder of text files.

A question needs a question and an answer; the texts that support it are given either as ``references`` (a list of
texts) or as ``supporting_facts`` (a list of [document title, sentence index]). A document needs a text, or a list of
sentences. Everything else a record carries is kept in ``meta``.
"""

from __future__ import annotations

import csv
import functools
import io
import json
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ragbench.data.documents import ENDINGS, read_document
from ragbench.data.files import (
    MAX_FIELD,
    Filled,
    Row,
    as_record,
    check_limit,
    plain_name,
    raise_all,
    read_jsonl,
    read_text,
)
from ragbench.errors import DataError, EmptyFileError, unknown
from ragbench.records import Dataset, Document, Question

Reader = Callable[[str | Path], Iterator[tuple[str, dict]]]
Source = Any  # a path; or a table: a data frame, or a sequence of dicts
_SEPARATOR = "||"
_BETWEEN = {",": "commas", ";": "semicolons", "\t": "tabs"}  # the cells of a CSV file, as spreadsheets write it
CSV_ENDINGS = (".csv", ".tsv")
QUESTION_ENDINGS = (".jsonl", *CSV_ENDINGS)
_DOCUMENT_FIELDS = {"title", "text", "sentences"}
_QUESTION_FIELDS = {"id", "_id", "question", "answer", "references", "supporting_facts", "type", "level"}
_OURS = sorted(_DOCUMENT_FIELDS | _QUESTION_FIELDS | {"reasoning", "claims", "both_hops"})
# In these tables, ragas' and RAGChecker's, "answer" is what a system said, not what is true.
_ANSWERED = ({"contexts", "retrieved_contexts", "retrieved_context"}, {"ground_truth", "ground_truths", "gt_answer"})
_ADD = "add it, or name your own column with fields={'{field}': 'your column'}"
_KNOWN = {*_OURS, *_ANSWERED[0], *_ANSWERED[1]}


class _Asked(Row):
    question: Filled
    answer: Filled


class _Told(Row):
    text: Filled


def load_jsonl(
    questions: str | Path,
    documents: Source | None = None,
    *,
    fields: Mapping[str, str] | None = None,
    limit: int | None = None,
) -> Dataset:
    """Load questions, and documents when given, from JSON-lines files.

    Parameters
    ----------
    questions : file with ``question`` and ``answer``, and optionally ``id``, ``references`` or ``supporting_facts``,
        ``type``, ``level``. A folder stands for the ``questions.jsonl`` in it, and for its documents where
        ``documents`` is left out (as ``ragbench data generate`` writes them).
    documents : JSON-lines or CSV file with ``text`` or ``sentences``, and optionally ``id`` and ``title``; or a folder
        with ``documents.jsonl``, ``.csv`` or ``.tsv``, or else of ``.txt`` and ``.md`` files.
    fields : your own column names, e.g. ``{"question": "query", "answer": "gold"}``.
    limit : keep the first so many questions.

    Raises
    ------
    DataError that names file and line; several bad records are listed together and nothing is loaded.
    """
    return _load(questions, documents, read_jsonl, (".jsonl",), fields, limit)


def load_csv(
    questions: str | Path,
    documents: Source | None = None,
    *,
    fields: Mapping[str, str] | None = None,
    limit: int | None = None,
) -> Dataset:
    """Load questions, and documents when given, from CSV files with a header line.

    As `load_jsonl`; several references in one cell are separated by ``||`` or written as a JSON list, and
    ``supporting_facts`` are a JSON list.
    """
    return _load(questions, documents, read_csv, CSV_ENDINGS, fields, limit)


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
    questions : a file, by its ending as for `load_csv` (.csv, .tsv), else as for `load_jsonl`; or a table with the same
        columns: a data frame, a list of dicts.
    documents : as for `load_jsonl`; or a table, or ``Document`` records.
    fields, limit : as for `load_jsonl`.

    Raises
    ------
    DataError that names file and line, or row; several bad records are listed together and nothing is loaded.
    """
    load = load_csv if isinstance(questions, str | Path) and is_csv(questions) else load_jsonl
    return load(questions, documents, fields=fields, limit=limit)


def is_csv(path: str | Path) -> bool:
    """Tell by the ending whether a file is read by `read_csv`."""
    return str(path).lower().removesuffix(".gz").endswith(CSV_ENDINGS)


def load_documents(path: Source, *, fields: Mapping[str, str] | None = None) -> tuple[Document, ...]:
    """Load documents from a JSON-lines or CSV file, from a folder, or from a table.

    Parameters
    ----------
    path : the file (.csv, .tsv, else JSON lines); or a folder with ``documents.jsonl``, ``.csv`` or ``.tsv``; or a
        folder of ``.txt``, ``.md``, ``.rst``, ``.pdf``, ``.docx`` and ``.html`` files, in subfolders too (title: file
        name, and page of a PDF). Hidden files and folders are passed over; a file without text is left out, with a
        warning. Or a table: a data frame, a list of dicts.
    fields : your own column names.

    Raises
    ------
    DataError when files are malformed (a folder's are listed), or a folder holds no such file (saying what it holds).
    """
    return _documents(path, fields, set())


def _documents(path: Source, fields: Mapping[str, str] | None, met: set[str]) -> tuple[Document, ...]:
    if not isinstance(path, str | Path):
        if isinstance(path, Sequence) and path and all(isinstance(one, Document) for one in path):
            return tuple(path)
        return _collect("the table of documents", _Table(path), fields, _document, met)
    path = Path(path).expanduser()
    if path.is_dir():
        if tables := _tables(path, "documents"):
            return _documents(tables[0], fields, met)
        visible = [p for p in path.rglob("*") if not any(part.startswith(".") for part in p.relative_to(path).parts)]
        files = sorted(p for p in visible if p.suffix.lower() in (".txt", ".md", ".rst", *ENDINGS) and p.is_file())
        held = _kinds(visible)
        if not files:
            raise DataError(
                f"the folder {path} holds no .txt, .md or .rst file, no PDF, DOCX or HTML "
                f"({f'it holds {held}' if held else 'it is empty'})",
                "one text file per document, or documents.jsonl",
                "check the path; turn other formats into text first, for instance with pandoc",
            )
        if skipped := _kinds(set(visible) - set(files)):
            warnings.warn(f"{path}: read {_kinds(files)}; skipped {skipped}", stacklevel=4)
        return tuple(_of_files(files, path))
    if path.suffix.lower() in ENDINGS and path.is_file():
        return tuple(_file(path, path.name))
    reader = read_csv if is_csv(path) else read_jsonl
    return _collect(path, reader, fields, _document, met)


def _of_files(files: Sequence[Path], folder: Path) -> Iterator[Document]:
    """Read each file; those without text are left out and named in a warning, all others that fail are told at once."""
    errors: list[DataError] = []
    empty: list[EmptyFileError] = []
    for path in files:
        try:
            yield from _file(path, str(path.relative_to(folder)))
        except EmptyFileError as error:
            empty.append(error)
        except DataError as error:
            errors.append(error)
    raise_all(errors, folder, len(files), "files")
    if len(empty) == len(files):
        raise_all(empty, folder, len(files), "files")
    if empty:
        names = ", ".join(error.got for error in empty[:5]) + ", ..." * (len(empty) > 5)
        warnings.warn(f"{len(empty)} of {len(files)} files left out, without text: {names}", stacklevel=5)


def _file(path: Path, name: str) -> list[Document]:
    documents = (
        read_document(path, name) if path.suffix.lower() in ENDINGS else [Document(name, path.stem, read_text(path))]
    )
    for size in (len(document.text) for document in documents):
        if size > MAX_FIELD:
            raise DataError(f"{path} has {size:,} characters", f"at most {MAX_FIELD:,}", "split it into several files")
    return documents


def read_csv(path: str | Path) -> Iterator[tuple[str, dict]]:
    """Yield ("line 3", record) of a CSV file with a header line; commas, semicolons or tabs are between the cells.

    Raises
    ------
    DataError that names file and line for a row with too few or too many cells, and for one that is no CSV.
    """
    csv.field_size_limit(MAX_FIELD)
    text = read_text(path)
    header = text.lstrip("\r\n").partition("\n")[0]
    # Most columns win; a comma wins a tie.
    between = max(_BETWEEN, key=lambda separator: len(next(csv.reader([header], delimiter=separator))))
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True, delimiter=between)
    try:
        for row in reader:
            if None in row or None in row.values():
                raise DataError(
                    f"{path}, line {reader.line_num}: the number of cells differs from the header",
                    f"{len(reader.fieldnames or ())} cells, one per column",
                    f'put cells that hold {_BETWEEN[between]} or line breaks in double quotes, and write a quote as ""',
                )
            yield f"line {reader.line_num}", {k: v for k, v in row.items() if v != ""}
    except csv.Error as error:
        raise DataError(
            f"{path}, line {reader.reader.line_num}: {error}",
            f"CSV cells of at most {MAX_FIELD:,} characters, quotes closed",
            "mend that line",
        ) from None


def _tables(folder: Path, stem: str, endings: Sequence[str] = QUESTION_ENDINGS) -> list[Path]:
    return [folder / f"{stem}{ending}" for ending in endings if (folder / f"{stem}{ending}").is_file()]


def _kinds(files: Iterable[Path]) -> str:
    """Count files by ending, the commonest first: "3 .pdf, 1 .png"; empty for none."""
    counts = Counter(p.suffix.lower() or "without an ending" for p in sorted(files) if p.is_file())
    return ", ".join(f"{count} {ending}" for ending, count in counts.most_common())


class _Table:
    """Reads the rows of a table, as if they stood in a file."""

    def __init__(self, table: Any) -> None:
        from ragbench.data.answers import as_frame  # which reads CSV by this module

        frame = as_frame(table)[2]
        self.rows = frame.astype(object).where(frame.notna(), None).to_dict("records")

    def __call__(self, _: str | Path) -> Iterator[tuple[str, dict]]:
        for number, row in enumerate(self.rows):
            there = {str(name): value for name, value in row.items() if value is not None}
            plain = json.dumps(there, default=lambda value: getattr(value, "tolist", value.__str__)())
            yield f"row {number}", json.loads(plain)


def _load(
    questions: Source,
    documents: Source | None,
    reader: Reader,
    endings: Sequence[str],
    fields: Mapping[str, str] | None,
    limit: int | None,
) -> Dataset:
    check_limit(limit)
    table = None if isinstance(questions, str | Path) else _Table(questions)
    folder = Path("mine" if table else questions).expanduser()
    if not table and folder.is_dir():
        questions = next(iter(_tables(folder, "questions", endings)), folder / f"questions{endings[0]}")
        if documents is None and _tables(folder, "documents"):
            documents = folder
    met: set[str] = set()
    loaded = _documents(documents, fields, met) if documents is not None else ()
    by_title: dict[str, Document] = {}
    for document in loaded:
        by_title.setdefault(document.title, document)
    make = functools.partial(_question, by_title=by_title)
    if misspelt := [name for name in fields or {} if name not in _OURS]:
        raise unknown("name in fields (ours: theirs)", misspelt[0], _OURS)
    # Names of a document's columns are not looked for where no table of documents was read.
    wanted = [pair for pair in (fields or {}).items() if met or pair[0] not in _DOCUMENT_FIELDS]
    if table:
        rows = _collect("the table of questions", table, fields, make, met, wanted)
        return Dataset("mine", rows[:limit], loaded, meta={"setting": "own"})
    rows = _collect(questions, reader, fields, make, met, wanted)
    return Dataset(Path(questions).stem, rows[:limit], loaded, meta={"file": Path(questions).name, "setting": "own"})


def _collect(
    path: str | Path,
    reader: Reader,
    fields: Mapping[str, str] | None,
    make: Callable,
    met: set[str],
    wanted: Iterable[tuple[str, str]] = (),
) -> tuple:
    """Make one record per row; all bad rows are reported together.

    The names of the columns are added to ``met``; of ``wanted`` (our name, the user's column) each has to be there
    then, or a misspelt column of references would leave every question without any.
    """
    rename = {theirs: ours for ours, theirs in (fields or {}).items()}
    records: list[Any] = []
    errors: list[DataError] = []
    first: dict[str, str] = {}
    total = 0
    for number, row in reader(path):
        total += 1
        met.update(row)
        where = f"{path}, {number}"
        try:
            record = make(_named(row, rename), where, number.replace(" ", "-"))
            if record.id in first:
                raise DataError(
                    f"{where}: the id {record.id!r} occurs already in {first[record.id]}",
                    "an id used once",
                    "rename or remove one of the two (a document without an id goes by its title)",
                )
            first[record.id] = number
            records.append(record)
        except DataError as error:
            errors.append(error)
    for ours, theirs in wanted:
        if met and theirs not in met:
            raise DataError(
                f"{path}: fields names the column {theirs!r} for {ours!r}, but no record has it",
                f"a column that is there: {', '.join(sorted(met))}",
                f"mend fields={{{ours!r}: {theirs!r}}}: our name first, then your column",
            )
    raise_all(errors, path, total)
    if not records:
        raise DataError(
            f"{path} holds a header and no record", "at least one record", "check that it was written completely"
        )
    return tuple(records)


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


def _question(row: dict, where: str, place: str, by_title: Mapping[str, Document]) -> Question:
    if all(names & row.keys() for names in _ANSWERED):
        truth = next(iter(_ANSWERED[1] & row.keys()))
        raise DataError(
            f"{where}: columns of answers that were already given ({', '.join(map(repr, row))})",
            "questions with their true answers: 'answer' here is what a system said",
            f"score them with rb.score, or take the questions alone: fields={{'answer': {truth!r}}}",
        )
    name = row.get("_id", row.get("id", place))
    meta = {k: v for k, v in row.items() if k not in _QUESTION_FIELDS}
    references = tuple(_texts(row.get("references", []), "references", where))
    facts = _listed(row.get("supporting_facts", []), "supporting_facts", where)
    if facts:
        found = [_fact(fact, where, by_title) for fact in facts]
        references = references or tuple(document.sentences[i].strip() for document, i in found)
        meta["supporting_facts"] = tuple((document.title, i) for document, i in found)
        meta["doc_ids"] = tuple(dict.fromkeys(document.id for document, _ in found))
    for claim in _listed(meta.get("claims", []), "claims", where):
        for fact in claim.get("support", []) if isinstance(claim, dict) else []:
            _fact(fact, where, by_title)
    asked = as_record(_Asked, row, where, add=_ADD)
    return Question(
        str(name), asked.question, asked.answer, references, str(row.get("type", "")), str(row.get("level", "")), meta
    )


def _fact(fact: Any, where: str, by_title: Mapping[str, Document]) -> tuple[Document, int]:
    if not (isinstance(fact, list) and len(fact) == 2 and isinstance(fact[0], str) and type(fact[1]) is int):
        raise DataError(
            f"{where}: supporting fact {str(fact)[:60]}", "[document title, sentence index]", "mend that fact"
        )
    title, index = fact
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
    return by_title[title], index


def _document(row: dict, where: str, place: str) -> Document:
    title = str(row.get("title", row.get("id", place)))
    meta = {k: v for k, v in row.items() if k not in {"id", *_DOCUMENT_FIELDS}}
    sentences = _texts(row.get("sentences", []), "sentences", where)
    if sentences:
        # Sentences carry the space before them, as HotpotQA's do, so that joining them gives the text.
        spaced = [s if i == 0 or s[:1].isspace() else f" {s}" for i, s in enumerate(sentences)]
        return Document(str(row.get("id", title)), title, "".join(spaced), tuple(spaced), meta)
    return Document(str(row.get("id", title)), title, as_record(_Told, row, where, add=_ADD).text, (), meta)


def _listed(value: Any, field: str, where: str) -> list:
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = json.loads(value)
        except json.JSONDecodeError as error:
            raise DataError(
                f"{where}: {field!r} is no JSON list ({error.msg})", "a JSON list", "mend that cell"
            ) from None
    if not isinstance(value, list):
        raise DataError(f"{where}: {field!r} is {type(value).__name__}", "a list", "write it in square brackets")
    return value


def _texts(value: Any, field: str, where: str) -> list[str]:
    if isinstance(value, str) and not value.lstrip().startswith("["):
        value = [part.strip() for part in value.split(_SEPARATOR) if part.strip()]
    value = _listed(value, field, where)
    for i, text in enumerate(value):
        if not isinstance(text, str) or not text.strip():
            raise DataError(
                f"{where}: item {i} of {field!r} is {str(text)[:40]!r}", "a text", "fill it in or remove it"
            )
    return value
