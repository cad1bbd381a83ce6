"""DRAGONBall, RAGEval's data set (Zhu et al. 2024, section 3.4): 216 documents, three domains, two
languages.

Reads the documents and questions of the release, or the questions rebuilt from the generation
outputs. It is published for non-commercial use under a share-alike licence, so nothing of it ships
here. The seven question types go by one name in both languages, the paper's (Table 6).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ragbench.data.files import each_record, find_file, read_jsonl, shared_file
from ragbench.errors import DataError, check_known
from ragbench.records import Answer, Dataset, Document, Question
from ragbench.text.sentences import LANGUAGES

DOMAINS = ("finance", "law", "medicine")
_DOCUMENTS = "dragonball_docs.jsonl"
_QUESTIONS = ("dragonball_queries.jsonl", "dragonball_queries_rebuilt.jsonl")
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
_TITLES = ("company_name", "court_name", "hospital_patient_name")
_DOMAIN = {"Finance": "finance", "Law": "law", "Medical": "medicine"}


def load_dragonball(
    path: str | Path | None = None, language: str | None = None, domain: str | None = None
) -> Dataset:
    """Load DRAGONBall's questions and documents.

    Parameters
    ----------
    path : a folder with the release's files somewhere in it, such as RAGEval's clone; plain or
        gzip. Default: ``RAGBENCH_DATA/rageval``; the release's questions go before the rebuilt
        ones.
    language, domain : "en" or "zh"; "finance", "law" or "medicine". Default: all.

    Returns
    -------
    Dataset. A question's ``kind`` is one of `QUESTION_TYPES`; ``meta`` has domain, language,
    doc_ids, keypoints (None where the file has none). A document's title is not unique.

    Source: RAGEval, section 3.4.

    >>> rb.data.load_dragonball(language="en", domain="law").name
    'dragonball'
    """
    wanted = {"language": language, "domain": domain}
    check_known("language", {language} - {None}, LANGUAGES)
    check_known("domain", {domain} - {None}, DOMAINS)
    do = (
        "pass the folder of the RAGEval release (non-commercial licence), or make a set by "
        "notebook 40"
    )
    folder = shared_file(path, "rageval", name="DRAGONBall", do=do)
    file = find_file(folder, *_QUESTIONS)
    texts = find_file(folder, _DOCUMENTS)
    if file is None or texts is None:
        raise DataError(
            f"the folder {folder} has no file of questions, or none of documents",
            f"{_DOCUMENTS}, and one of {', '.join(_QUESTIONS)}",
            "check the path",
        )
    documents = each_record(texts, read_jsonl(texts), _document)
    questions = each_record(file, read_jsonl(file), _question)
    setting = "rebuilt" if "rebuilt" in file.name else "release"
    meta = {"file": file.name, "setting": setting, **wanted}
    return Dataset("dragonball", _only(questions, wanted), _only(documents, wanted), meta=meta)


def _only(records: list[Any], wanted: dict[str, str | None]) -> tuple[Any, ...]:
    for name, value in wanted.items():
        if value is not None:
            records = [record for record in records if record.meta[name] == value]
    return tuple(records)


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
    file = shared_file(path, "rageval", ANSWERS_FILE, name="the file of recorded answers", do=do)
    generator = file.name.split(".")[0].rsplit("_", 1)[-1]

    answers = []

    def read(row: dict, where: str) -> Question:
        question = _question(row, where)
        prediction = row["prediction"]
        passages = {"passages": tuple(prediction["references"])}
        answers.append(Answer(question.id, prediction["content"], generator, meta=passages))
        return question

    questions = each_record(file, read_jsonl(file), read)
    return tuple(questions), tuple(answers)


def _place(row: dict) -> dict:
    return {"domain": _DOMAIN[row["domain"]], "language": row["language"]}


def _document(row: dict, where: str) -> Document:
    (title,) = (row[name] for name in _TITLES if name in row)
    return Document(str(row["doc_id"]), title, row["content"], (), _place(row))


def _question(row: dict, where: str) -> Question:
    query = row["query"]
    truth = row["ground_truth"]
    # The rebuilt file has query_id only for 350 rows, so its rows go by their line.
    name = query.get("query_id")
    if name is None:
        name = where.rpartition(", ")[2].replace(" ", "-")
    meta = _place(row)
    meta["doc_ids"] = tuple(map(str, truth.get("doc_ids", ())))
    meta["keypoints"] = truth.get("keypoints")
    if meta["keypoints"] is not None:
        meta["keypoints"] = tuple(meta["keypoints"])
    kind = _TYPE[query["query_type"]]
    references = tuple(truth["references"])
    return Question(str(name), query["content"], truth["content"], references, kind, meta=meta)
