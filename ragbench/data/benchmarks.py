"""RAGChecker's benchmark (Tables 6 to 15) and RefChecker's labelled claims (Table 16), as their
repositories write them. Texts of other sets are in them, so that neither ships here.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from ragbench.data.files import each_record, find_file, read_json, read_jsonl, shared_file
from ragbench.errors import NotHereError
from ragbench.records import Dataset, Document, Question

_FINANCE = ("finance", "fiqa")  # two names of one domain
_SCRIPTS = (
    "lay what data_process.sh of github.com/amazon-science/RAGChecker, data/benchmark, writes into "
    "RAGBENCH_DATA/ragchecker/benchmark, or pass it"
)
_LABELS = (
    "lay benchmark/human_annotations_v1 of github.com/amazon-science/RefChecker into "
    "RAGBENCH_DATA/refchecker, or pass it"
)


def load_ragchecker_benchmark(domain: str, path: str | Path | None = None) -> Dataset:
    """Load a domain of RAGChecker's benchmark.

    Parameters
    ----------
    domain : "clapnq", "novelqa", "writing", "bioasq", "finance", "lifestyle", "recreation",
        "science", "technology" or "kiwi".
    path : ``processed_data`` of the repository, or a folder that holds it, plain or gzip; default
        ``RAGBENCH_DATA/ragchecker/benchmark``.

    Returns
    -------
    Dataset. ``answer`` is the long answer. Other fields of a question are its ``meta``, such as
    ``novel`` and ``gt_context``; the claims of the answer are ``claims``. NotHereError without the
    files.

    Source: RAGChecker, section 4.1 and Table 1.

    >>> rb.data.load_ragchecker_benchmark("writing")  # doctest: +SKIP
    """
    folder = shared_file(
        path, "ragchecker", "benchmark", name="RAGChecker's benchmark", do=_SCRIPTS
    )
    names = _FINANCE if domain in _FINANCE else (domain,)
    queries = find_file(folder, *(f"{name}_queries.json" for name in names))
    corpus = find_file(queries.parent, "corpus.jsonl") if queries else None
    if queries is None or corpus is None:
        raise NotHereError(
            f"RAGChecker's {domain} is not in {folder}",
            f"{domain}_queries.json with corpus.jsonl in its folder",
            _SCRIPTS,
        )
    rows = read_json(queries)
    if isinstance(rows, Mapping):  # of LoTTE it is the list alone
        rows = rows["input_data"]
    places = ((f"record {number}", row) for number, row in enumerate(rows, 1))
    questions = each_record(queries, places, _question)
    documents = each_record(corpus, read_jsonl(corpus), _document)
    meta = {"file": queries.name, "setting": "benchmark"}
    return Dataset(domain, tuple(questions), tuple(documents), meta=meta)


def _question(row: Mapping[str, Any], where: str) -> Question:
    meta = dict(row)
    name, text, answer = (meta.pop(field) for field in ("query_id", "query", "gt_answer"))
    if "gt_answer_claims" in meta:
        meta |= {"long_answer": answer, "claims": meta.pop("gt_answer_claims")}
    return Question(str(name), text, answer, meta=meta)


def _document(row: Mapping[str, Any], where: str) -> Document:
    return Document(str(row["doc_id"]), row.get("title") or "", row["text"])


def load_refchecker(path: str | Path | None = None) -> pd.DataFrame:
    """Load the answers whose claims people labelled, RefChecker's benchmark.

    Parameters
    ----------
    path : the repository's ``benchmark/human_annotations_v1`` (21 files, in a folder for each
        setting), or a folder with ``human_annotations_v1.jsonl``, which holds all of them; plain
        or gzip. Default: ``RAGBENCH_DATA/refchecker``.

    Returns
    -------
    DataFrame, a row per answer: setting ("zero_context", "noisy_context", "accurate_context"),
    dataset, model, id, response, claims (a list of {"triplet", "human_label"}). NotHereError
    without the files.

    >>> len(rb.data.load_refchecker()) > 0
    True
    """
    folder = shared_file(path, "refchecker", name="RefChecker's labels", do=_LABELS)
    merged = find_file(folder, "human_annotations_v1.jsonl")
    rows = [row for _, row in read_jsonl(merged)] if merged else []
    for file in sorted(folder.rglob("*_answers.json*")) if not rows else ():
        dataset, _, model = file.name.partition("_answers")[0].partition("_")
        for answer in read_json(file):
            row = {"setting": file.parent.name, "dataset": dataset, "model": model}
            row |= {"id": answer["id"], "response": answer["response"]}
            rows.append(row | {"claims": answer["claude2_response_kg"]})
    if not rows:
        raise NotHereError(f"RefChecker's labels are not in {folder}", "its 21 files", _LABELS)
    return pd.DataFrame(rows)
