"""DRAGONBall, RAGEval's data set (Zhu et al. 2024, section 3.4): 216 documents, three domains, two languages.

Reads the documents and questions of the release, or the questions rebuilt from the generation outputs. It is published
for non-commercial use under a share-alike licence, so nothing of it ships here. The seven question types go by one name
in both languages, the paper's (Table 6).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ragbench.data.files import each_record, from_mirror, read_jsonl, require_text, require_texts
from ragbench.errors import DataError, unknown
from ragbench.records import Answer, Dataset, Document, Question
from ragbench.text.sentences import LANGUAGES

DOMAINS = ("finance", "law", "medicine")
DOCUMENTS_FILE = "dragonball_docs.jsonl"
QUESTION_FILES = ("dragonball_queries.jsonl", "dragonball_queries.jsonl.gz", "dragonball_queries_rebuilt.jsonl.gz")
ANSWERS_FILE = "example_finance_en_gpt-4o.jsonl.gz"
QUESTION_TYPES = {
    "factual": ("Factual Question", "事实性问题"),
    "summary": ("Summary Question", "总结性问题", "Summarization Question"),
    "multi-hop": ("Multi-hop Reasoning Question", "多跳推理问题"),
    "information integration": ("Multi-document Information Integration Question", "多文档信息整合问题"),
    "numerical comparison": ("Multi-document Comparison Question", "多文档对比问题"),
    "temporal sequence": ("Multi-document Time Sequence Question", "多文档时间序列问题"),
    "unanswerable": ("Irrelevant Unsolvable Question", "无关无解问", "Unanswerable Question"),
}
_TYPE = {released: name for name, names in QUESTION_TYPES.items() for released in names}
_DOMAIN = {"Finance": "finance", "Law": "law", "Medical": "medicine"}
_TITLE = {"Finance": "company_name", "Law": "court_name", "Medical": "hospital_patient_name"}


def load_dragonball(path: str | Path | None = None, language: str | None = None, domain: str | None = None) -> Dataset:
    """Load DRAGONBall's questions and documents.

    Parameters
    ----------
    path : folder with ``dragonball_docs.jsonl`` and ``dragonball_queries.jsonl`` (the release), or a questions file
        that lies beside the documents. Default: ``RAGBENCH_DATA/rageval``, the release before the rebuilt file.
    language : "en" or "zh"; default both.
    domain : "finance", "law" or "medicine"; default all.

    Returns
    -------
    Dataset. A question's ``kind`` is one of `QUESTION_TYPES`; ``meta`` has domain, language, doc_ids, keypoints (a
    tuple, or None where the file has none), query_id, query_type (as in the file). A document's title (the company,
    court, or hospital and patient) is not unique. Questions without a document are kept and counted in
    ``meta["without_document"]``.

    Raises
    ------
    DataError naming file and line; bad records are listed together and nothing is loaded by halves.

    Source: RAGEval, section 3.4.
    """
    for kind, value, known in (("language", language, LANGUAGES), ("domain", domain, DOMAINS)):
        if value is not None and value not in known:
            raise unknown(kind, value, known)
    questions_file, documents_file = _files(path)
    documents = _documents(documents_file)
    rows = _records(questions_file, lambda row, where, line: _question(row, where, line, documents))
    questions = tuple(q for q in rows if language in (None, q.meta["language"]) and domain in (None, q.meta["domain"]))
    kept = tuple(
        d for d in documents.values() if language in (None, d.meta["language"]) and domain in (None, d.meta["domain"])
    )
    meta = {
        "file": questions_file.name,
        "setting": "rebuilt" if "rebuilt" in questions_file.name else "release",
        "without_document": sum(not q.meta["doc_ids"] for q in questions),
        "language": language,
        "domain": domain,
    }
    return Dataset("dragonball", questions, kept, meta=meta)


def load_dragonball_answers(path: str | Path | None = None) -> tuple[tuple[Question, ...], tuple[Answer, ...]]:
    """Load questions that come with a recorded answer and retrieved passages, such as the 350 of GPT-4o.

    Parameters
    ----------
    path : JSON-lines file in the release's form with ``prediction`` filled in. Default: the 350 records in
        ``RAGBENCH_DATA/rageval``.

    Returns
    -------
    questions, answers : paired by position; an answer's ``meta["passages"]`` are the retrieved passages as recorded,
        metadata prefix included.
    """
    got, do = "the recorded answers are not on this machine", "name a file with load_dragonball_answers(path)"
    path = from_mirror(path, "rageval", ANSWERS_FILE, got=got, do=do)
    generator = path.name.split(".")[0].rsplit("_", 1)[-1]

    def make(row: dict, where: str, line: int) -> tuple[Question, Answer]:
        question = _question(row, where, line, None)
        prediction = _part(row, "prediction", where)
        passages = require_texts(prediction, "references", f"{where}, prediction")
        text = require_text(prediction, "content", f"{where}, prediction", empty=True)
        return question, Answer(question.id, text, generator, meta={"passages": passages})

    pairs = _records(path, make)
    return tuple(q for q, _ in pairs), tuple(a for _, a in pairs)


def _files(path: str | Path | None) -> tuple[Path, Path]:
    """The questions file and the documents file."""
    folder = from_mirror(
        path,
        "rageval",
        got="DRAGONBall is not on this machine",
        expected=f"{DOCUMENTS_FILE} and {QUESTION_FILES[0]} in RAGBENCH_DATA/rageval",
        do="download the RAGEval release (non-commercial licence) and pass its folder, or make a set of your own with "
        "`ragbench data generate`",
    )
    if folder.is_dir():
        files = [folder / name for name in QUESTION_FILES if (folder / name).is_file()]
        if not files:
            raise DataError(
                f"the folder {folder} has no questions file", "one of " + ", ".join(QUESTION_FILES), "check the path"
            )
        return files[0], folder / DOCUMENTS_FILE
    return folder, folder.parent / DOCUMENTS_FILE


def _documents(path: Path) -> dict[int, Document]:
    def make(row: dict, where: str, line: int) -> Document:
        meta = _place(row, where)
        name = require_text(row, _TITLE[row["domain"]], where)
        if type(row.get("doc_id")) is not int:
            raise DataError(f"{where}: 'doc_id' is {row.get('doc_id')!r}", "a whole number", "mend that record")
        return Document(str(row["doc_id"]), name, require_text(row, "content", where), (), meta)

    return {int(document.id): document for document in _records(path, make)}


def _question(row: dict, where: str, line: int, documents: Mapping[int, Document] | None) -> Question:
    query, truth = _part(row, "query", where), _part(row, "ground_truth", where)
    kind = _choice(query, "query_type", f"{where}, query", _TYPE)
    doc_ids = truth.get("doc_ids", [])
    if not isinstance(doc_ids, list) or any(type(i) is not int for i in doc_ids):
        raise DataError(f"{where}: 'doc_ids' is {str(doc_ids)[:40]}", "a list of whole numbers", "mend that record")
    for i in doc_ids:
        if documents is not None and i not in documents:
            raise DataError(
                f"{where}: document {i} is not among the {len(documents)} documents",
                "the doc_id of a document",
                f"check that {DOCUMENTS_FILE} belongs to this questions file",
            )
    number = query.get("query_id")
    points = truth.get("keypoints")
    meta: dict[str, Any] = {
        **_place(row, where),
        "doc_ids": tuple(str(i) for i in doc_ids),
        "keypoints": None if points is None else require_texts(truth, "keypoints", f"{where}, ground_truth"),
        "query_id": number,
        "query_type": query["query_type"],
    }
    # The rebuilt file has query_id only for 350 rows, so its rows go by their line.
    name = f"line-{line}" if number is None else str(number)
    text = require_text(query, "content", f"{where}, query")
    answer = require_text(truth, "content", f"{where}, ground_truth")
    return Question(name, text, answer, require_texts(truth, "references", f"{where}, ground_truth"), kind, "", meta)


def _records(path: Path, make: Any) -> tuple:
    """Make one record per line; all bad lines are reported together, ids must be unique."""
    first: dict[str, int] = {}

    def once(numbered: tuple[int, dict], where: str) -> Any:
        line, row = numbered
        record = make(row, where, line)
        name = (record[0] if isinstance(record, tuple) else record).id
        if first.setdefault(name, line) != line:
            raise DataError(
                f"{where}: the id {name} occurs already in line {first[name]}", "an id used once", "mend one of them"
            )
        return record

    lines = ((f"{path}, line {line}", (line, row)) for line, row in read_jsonl(path))
    return tuple(each_record(path, lines, once))


def _place(row: dict, where: str) -> dict[str, str]:
    languages = dict(zip(LANGUAGES, LANGUAGES, strict=True))
    return {
        "domain": _choice(row, "domain", where, _DOMAIN),
        "language": _choice(row, "language", where, languages),
    }


def _part(row: dict, field: str, where: str) -> dict:
    value = row.get(field)
    if not isinstance(value, dict):
        raise DataError(
            f"{where}: {field!r} is {type(value).__name__}", "an object", "check that this is a DRAGONBall file"
        )
    return value


def _choice(row: dict, field: str, where: str, known: Mapping[str, str]) -> str:
    value = require_text(row, field, where)
    if value not in known:
        raise DataError(f"{where}: {field!r} is {value!r}", "one of " + ", ".join(known), "mend that record")
    return known[value]
