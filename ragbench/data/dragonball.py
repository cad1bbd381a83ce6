"""DRAGONBall, RAGEval's data set (Zhu et al. 2024, section 3.4): 216 documents, three domains, two
languages.

Reads the documents and questions of the release, or the questions rebuilt from the generation
outputs. It is published for non-commercial use under a share-alike licence, so nothing of it ships
here. The seven question types go by one name in both languages, the paper's (Table 6).
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, Field, StrictInt

from ragbench.data.files import FileRecord, Filled, read_records, shared_file
from ragbench.errors import DataError, check_known
from ragbench.records import Answer, Dataset, Document, Question
from ragbench.text.sentences import LANGUAGES

DOMAINS = ("finance", "law", "medicine")
_DOCUMENTS = "dragonball_docs.jsonl"
_QUESTIONS = (
    "dragonball_queries.jsonl",
    "dragonball_queries.jsonl.gz",
    "dragonball_queries_rebuilt.jsonl.gz",
)
ANSWERS_FILE = "example_finance_en_gpt-4o.jsonl.gz"
QUESTION_TYPES = {
    "factual": ("Factual Question", "事实性问题"),
    "summary": ("Summary Question", "总结性问题", "Summarization Question"),
    "multi-hop": ("Multi-hop Reasoning Question", "多跳推理问题"),
    "information integration": (
        "Multi-document Information Integration Question",
        "多文档信息整合问题",
    ),
    "numerical comparison": ("Multi-document Comparison Question", "多文档对比问题"),
    "temporal sequence": ("Multi-document Time Sequence Question", "多文档时间序列问题"),
    "unanswerable": ("Irrelevant Unsolvable Question", "无关无解问", "Unanswerable Question"),
}
_TYPE = {released: name for name, names in QUESTION_TYPES.items() for released in names}
_DOMAIN = {"Finance": "finance", "Law": "law", "Medical": "medicine"}
_Texts = tuple[Filled, ...]


class _Place(FileRecord):
    domain: Literal[tuple(_DOMAIN)]  # type: ignore[valid-type]
    language: Literal[LANGUAGES]  # type: ignore[valid-type]

    def meta(self) -> dict[str, Any]:
        return {"domain": _DOMAIN[self.domain], "language": self.language}


class _Text(_Place):
    doc_id: StrictInt
    content: Filled
    title: Annotated[
        Filled,
        Field(validation_alias=AliasChoices("company_name", "court_name", "hospital_patient_name")),
    ]


class _Query(FileRecord):
    query_id: StrictInt | str | None = None
    query_type: Literal[tuple(_TYPE)]  # type: ignore[valid-type]
    content: Filled


class _Truth(FileRecord):
    doc_ids: tuple[StrictInt, ...] = ()
    content: Filled
    references: _Texts
    keypoints: _Texts | None = None


class _Prediction(FileRecord):
    content: str
    references: _Texts


class _Asked(_Place):
    query: _Query
    ground_truth: _Truth
    prediction: _Prediction | None = None


def load_dragonball(
    path: str | Path | None = None, language: str | None = None, domain: str | None = None
) -> Dataset:
    """Load DRAGONBall's questions and documents.

    Parameters
    ----------
    path : the release's folder, or a questions file beside the documents. Default:
        ``RAGBENCH_DATA/rageval``, the release before the rebuilt file.
    language, domain : "en" or "zh"; "finance", "law" or "medicine". Default: all.

    Returns
    -------
    Dataset. A question's ``kind`` is one of `QUESTION_TYPES`; ``meta`` has domain, language,
    doc_ids, keypoints (None where the file has none). A document's title is not unique.

    Source: RAGEval, section 3.4.
    """
    wanted = {"language": language, "domain": domain}
    check_known("language", {language} - {None}, LANGUAGES)
    check_known("domain", {domain} - {None}, DOMAINS)
    file = _questions_file(path)
    documents = read_records(
        file.parent / _DOCUMENTS, _Text, _document, lambda document: [f"the id {document.id}"]
    )
    ids = {document.id for document in documents}
    questions = read_records(
        file,
        _Asked,
        lambda row, where: _question(row, where, ids),
        lambda question: [f"the id {question.id}"],
    )

    def is_wanted(record: Question | Document) -> bool:
        return all(value in (None, record.meta[name]) for name, value in wanted.items())

    setting = "rebuilt" if "rebuilt" in file.name else "release"
    return Dataset(
        "dragonball",
        tuple(filter(is_wanted, questions)),
        tuple(filter(is_wanted, documents)),
        meta={"file": file.name, "setting": setting, **wanted},
    )


def _questions_file(path: str | Path | None) -> Path:
    do = (
        "pass the folder of the RAGEval release (non-commercial licence), or make a set: "
        "`ragbench data generate`"
    )
    given = shared_file(path, "rageval", name="DRAGONBall", do=do)
    if not given.is_dir():
        return given
    for name in _QUESTIONS:
        if (given / name).is_file():
            return given / name
    got = f"the folder {given} has no questions file"
    raise DataError(got, f"one of {', '.join(_QUESTIONS)}", "check the path")


def _document(row: _Text, where: str) -> Document:
    return Document(str(row.doc_id), row.title, row.content, (), row.meta())


def load_dragonball_answers(
    path: str | Path | None = None,
) -> tuple[tuple[Question, ...], tuple[Answer, ...]]:
    """Load questions that come with a recorded answer and retrieved passages, such as the 350 of
    GPT-4o.

    Parameters
    ----------
    path : JSON-lines file in the release's form with ``prediction`` filled in; default in
        ``RAGBENCH_DATA/rageval``.

    Returns
    -------
    questions, answers : paired by position; ``meta["passages"]`` are the retrieved passages with
    their prefix.
    """
    do = "name a file with load_dragonball_answers(path)"
    path = shared_file(path, "rageval", ANSWERS_FILE, name="the file of recorded answers", do=do)
    generator = path.name.split(".")[0].rsplit("_", 1)[-1]

    def pair(row: _Asked, where: str) -> tuple[Question, Answer]:
        if row.prediction is None:
            raise DataError(
                f"{where}: no field 'prediction'", "a recorded answer", "name a file with answers"
            )
        question = _question(row, where, None)
        passages = {"passages": row.prediction.references}
        return question, Answer(question.id, row.prediction.content, generator, meta=passages)

    pairs = read_records(path, _Asked, pair, lambda pair: [f"the id {pair[0].id}"])
    return tuple(question for question, _ in pairs), tuple(answer for _, answer in pairs)


def _question(row: _Asked, where: str, ids: set[str] | None) -> Question:
    query = row.query
    truth = row.ground_truth
    doc_ids = tuple(map(str, truth.doc_ids))
    for name in doc_ids:
        if ids is not None and name not in ids:
            got = f"{where}: document {name} is not among the {len(ids)} documents"
            do = f"check that {_DOCUMENTS} belongs to this questions file"
            raise DataError(got, "the doc_id of a document", do)
    # The rebuilt file has query_id only for 350 rows, so its rows go by their line.
    place = where.rpartition(", ")[2].replace(" ", "-")
    name = place if query.query_id is None else str(query.query_id)
    meta = row.meta() | {"doc_ids": doc_ids, "keypoints": truth.keypoints}
    return Question(
        name, query.content, truth.content, truth.references, _TYPE[query.query_type], "", meta
    )
