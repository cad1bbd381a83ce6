"""RAGChecker's data: its JSON of checked results, the counts of its benchmark, the response pairs
that people compared.

One record per question: question, reference answer, response, retrieved texts; then, as far as the
work has gone, the claims of both texts, the label of every claim against every text, and the
metrics. All three label words are kept apart; only the metrics make them two.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
from pydantic import BeforeValidator, ConfigDict, StrictInt, TypeAdapter
from pydantic_core import to_json

from ragbench.data.files import (
    FileRecord,
    as_record,
    each_record,
    find_file,
    is_missing,
    read_json,
    shared_file,
)
from ragbench.errors import DataError

CLAIM_LABELS = ("Entailment", "Neutral", "Contradiction")
Claim = str | tuple[str, str, str]

# Our name of a check -> RAGChecker's, after the text that is asked and the text whose claims are
# asked about.
CHECKS = {
    "response_in_reference": "answer2response",
    "reference_in_response": "response2answer",
    "response_in_chunks": "retrieved2response",
    "reference_in_chunks": "retrieved2answer",
}
# Our names of a result's fields -> RAGChecker's.
_NAMES = {
    "id": "query_id",
    "question": "query",
    "reference": "gt_answer",
    "response": "response",
    "chunks": "retrieved_context",
    "response_claims": "response_claims",
    "reference_claims": "gt_answer_claims",
    **CHECKS,
    "metrics": "metrics",
}
# What has to have one entry per claim: of the response, of the reference.
_SIDES = (
    ("response_claims", "response_in_reference", "response_in_chunks"),
    ("reference_claims", "reference_in_response", "reference_in_chunks"),
)
ASPECTS = ("correctness", "completeness", "overall")
_HUMAN = "human_labeled_data.json"
_RECORDED = "baseline_ragchecker.json"
_META = "set RAGBENCH_DATA, or pass data/meta_evaluation of RAGChecker's repository"
# Row of Tables 2 and 5 -> its baseline and metric in the authors' files.
BASELINES: Mapping[str, tuple[str, str]] = {
    "BLEU | BLEU-avg": ("crud", "bleu-avg"),
    "ROUGE | ROUGE-L": ("crud", "rouge-L"),
    "BERTScore | BERTScore": ("crud", "bertScore"),
    "TruLens | Groundedness": ("trulens", "groundedness"),
    "TruLens | Answer Relevance": ("trulens", "answer_relevance"),
    "ARES | Answer Relevance": ("ares", "Answer Relevance Scores"),
    "ARES | Answer Faithfulness": ("ares", "Answer Faithfulness Scores"),
    "RAGAS | Faithfulness": ("ragas", "faithfulness"),
    "RAGAS | Answer Correctness": ("ragas", "answer_correctness"),
    "RAGAS | Answer Similarity": ("ragas", "answer_similarity"),
    "RAGAS | Answer Relevance": ("ragas", "answer_relevancy"),
    "CRUD-RAG | Precision": ("crud", "QA_avg_F1"),
    "CRUD-RAG | Recall": ("crud", "QA_recall"),
}


def _or_nan(value: Any) -> Any:
    return math.nan if value is None else value


_Claims = tuple[Claim, ...]
_Labels = tuple[Literal[CLAIM_LABELS] | None, ...]  # type: ignore[valid-type]
_Numbers = dict[str, Annotated[float, BeforeValidator(_or_nan)]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievedText:
    """One retrieved text; by keyword only, since text and id exchanged would make every context
    metric 0.
    """

    text: str
    doc_id: str | StrictInt | None = None


@dataclass(frozen=True, slots=True)
class RagResult:
    """One question with its response, and what is known about their claims; None where a step has
    not been done.

    ``response_in_reference`` and ``reference_in_response`` have one label per claim,
    ``response_in_chunks`` and ``reference_in_chunks`` one row per claim with one label per
    retrieved text. ``extra`` holds the fields of a file that RAGChecker does not know.
    """

    __pydantic_config__ = ConfigDict(alias_generator=lambda name: _NAMES.get(name, name))

    id: str | StrictInt
    question: str
    reference: str
    response: str
    chunks: tuple[RetrievedText, ...] = ()
    response_claims: _Claims | None = None
    reference_claims: _Claims | None = None
    response_in_reference: _Labels | None = None
    reference_in_response: _Labels | None = None
    response_in_chunks: tuple[_Labels, ...] | None = None
    reference_in_chunks: tuple[_Labels, ...] | None = None
    metrics: _Numbers | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, labels: RagResult | Mapping[str, Any]) -> RagResult:
        """Return a cell of ``claim_labels`` as a record; it may be RAGChecker's JSON object."""
        if isinstance(labels, cls):
            return labels
        return read_ragchecker({"results": [labels]}).results[0]

    @classmethod
    def of_row(cls, name: str, row: Mapping[Any, Any], **extra: Any) -> RagResult:
        """Return an answer's row as a record without labels, its true answer the long one where
        there is any; its claims are the data set's own, or not known yet.
        """
        known = {
            field: row[field]
            for field in ("long_reference", "reference_claims")
            if not is_missing(row.get(field))
        }
        claims = known.get("reference_claims")
        return cls(
            name,
            row["question"],
            reference=known.get("long_reference") or row["reference"],
            response=row["answer"],
            chunks=tuple(RetrievedText(text=text) for text in row["chunks"]),
            reference_claims=None if claims is None else tuple(claims),
            extra=extra,
        )

    def missing(self) -> tuple[str, ...]:
        """Names of the checks that have not been done, or of which a label is unread (None).

        Empty when metrics can be computed.
        """
        return tuple(name for name in CHECKS if not _is_read(getattr(self, name)))

    def to_dict(self) -> dict:
        """Return a result as RAGChecker's JSON object; what has not been done is left out, an
        undefined metric is null.
        """
        done = replace(self, **dict.fromkeys(self.missing()))
        row = json.loads(_row_type().dump_json(done, by_alias=True, exclude_none=True))
        return row.pop("extra") | row


@functools.cache
def _row_type() -> TypeAdapter[RagResult]:
    return TypeAdapter(RagResult)


def _is_read(labels: Any) -> bool:
    """Whether all labels of a list, or of a list of lists, are there."""
    if isinstance(labels, str) or labels is None:
        return labels is not None
    return all(map(_is_read, labels))


@dataclass(frozen=True, slots=True)
class RagResults:
    """A file of results; ``metrics`` are RAGChecker's averages in percent, by group, or None when
    not computed.
    """

    results: tuple[RagResult, ...]
    metrics: Mapping[str, Mapping[str, float]] | None = None

    def to_dict(self) -> dict:
        """Return results as RAGChecker's JSON object, which `read_ragchecker` reads."""
        data: dict = {"results": [result.to_dict() for result in self.results]}
        if self.metrics is not None:
            data["metrics"] = json.loads(to_json(self.metrics, inf_nan_mode="null"))
        return data


class _File(FileRecord):
    results: list[Any]
    metrics: dict[str, _Numbers] | None = None


def claim_text(claim: Claim) -> str:
    """Return a claim as one text: a sentence as it is, a triple (subject, predicate, object) joined
    by spaces.
    """
    return claim if isinstance(claim, str) else " ".join(claim)


def read_ragchecker(source: Any, where: str = "the data") -> RagResults:
    """Read RAGChecker's JSON: checking inputs, outputs, or anything between.

    Parameters
    ----------
    source : a path (plain or gzip), or the parsed JSON object.
    where : begins the error messages about an object.

    DataError in RAGChecker's words, also where the numbers of claims, labels and retrieved texts do
    not fit.
    """
    if isinstance(source, str | Path):
        where = str(source)
        source = read_json(source)
    add = 'write {"results": [...]}, or check that this is RAGChecker\'s file'
    whole = as_record(_File, source, where, add)
    rows = [(f"results[{place}]", row) for place, row in enumerate(whole.results)]
    results = each_record(where, rows, _result, once=lambda result: str(result.id))
    return RagResults(tuple(results), whole.metrics)


def _result(data: Any, where: str) -> RagResult:
    if isinstance(data, dict):
        where = f"{where} (id {data.get('query_id')!r})"
        if "retrieved_context" not in data:
            raise DataError(
                f"{where}: no field 'retrieved_context'", "a list of texts", "write [] for none"
            )
        extra = {name: value for name, value in data.items() if name not in _NAMES.values()}
        data = {**data, "extra": extra}
    row = as_record(RagResult, data, where, 'add it; write "" for an empty text')
    for names in _SIDES:
        _check_sizes(row, names, where)
    return row


def _check_sizes(row: RagResult, names: Sequence[str], where: str) -> None:
    """Check that as many claims are in each step that has been done, and a label per retrieved
    text.

    Without a retrieved text there is nothing to hold a row per claim: an empty list is right.
    """
    in_chunks = names[-1]
    chunks = len(row.chunks)
    sizes = {}
    for name in names:
        part = getattr(row, name)
        if part is not None and (chunks or name != in_chunks):
            sizes[_NAMES[name]] = len(part)
    labels = getattr(row, in_chunks) or ()
    is_even = all(len(of_claim) == chunks for of_claim in labels)
    if not is_even or len(set(sizes.values())) > 1:
        listed = ", ".join(f"{name} has {size}" for name, size in sizes.items())
        raise DataError(
            f"{where}: {listed}, or not {chunks} labels in each row",
            "as many claims in each, and a label per retrieved text",
            "check that result again; do not pad the labels",
        )


def load_ragchecker_meta(path: str | Path | None = None) -> pd.DataFrame:
    """Load the response pairs that people compared, with RAGChecker's recorded scores when they are
    there.

    Parameters
    ----------
    path : RAGChecker's ``data/meta_evaluation``; default
        ``RAGBENCH_DATA/ragchecker/meta_evaluation``.

    Returns
    -------
    DataFrame, a row per pair: id, domain, query_id, question, reference, models and responses (of
    two), and by aspect (`ASPECTS`) the preference of every annotator, -2..2, positive: the second
    response wins; "recorded correctness" ... are RAGChecker's scores of both in [0, 1], or NaN.

    Source: RAGChecker, section 4.2 (meta evaluation dataset: 280 pairs, 28 in each of 10 domains,
    two annotators each).
    """
    folder = shared_file(
        path, "ragchecker", "meta_evaluation", name=f"RAGChecker's {_HUMAN}", do=_META
    )
    recorded: dict[tuple, dict] = {}
    if any(folder.glob(f"{_RECORDED}*")):
        for row in _pairs(folder, _RECORDED):
            for side in (row["model1"], row["model2"]):
                recorded[_key(row, side)] = side.get("ragchecker", {})
    by_pair: dict[str, list[dict]] = {}
    for row in _pairs(folder, _HUMAN):
        by_pair.setdefault(row["instance_id"], []).append(row)
    return pd.DataFrame([_pair(rows, recorded) for rows in by_pair.values()])


def _pair(rows: Sequence[dict], recorded: Mapping[tuple, dict]) -> dict:
    """Return one pair from its rows, one an annotator."""
    first = rows[0]
    sides = first["model1"], first["model2"]
    pair = {
        "id": str(first["instance_id"]),
        "domain": first["dataset"],
        "query_id": first["query_id"],
        "question": first["query"],
        "reference": first["gt_answer"],
        "models": tuple(side["model_name"] for side in sides),
        "responses": tuple(side["response"] for side in sides),
    }
    scores = [recorded.get(_key(first, side), {}) for side in sides]
    for aspect in ASPECTS:
        label = f"{aspect}_label"
        pair[aspect] = [row[label] for row in rows]
        pair[f"recorded {aspect}"] = [float(score.get(label, math.nan)) for score in scores]
    return pair


def _key(row: Mapping[str, Any], side: Mapping[str, Any]) -> tuple:
    """Return what recorded scores are found by: pair, model and response."""
    return row["instance_id"], side["model_name"], side["response"]


def _pairs(folder: Path, name: str) -> list[dict]:
    return read_json(next(folder.glob(f"{name}*"), folder / name))


def load_ragchecker_baselines(
    path: str | Path | None = None, judge: str | None = "llama3"
) -> dict[str, np.ndarray]:
    """Load the recorded scores of the baselines that RAGChecker is compared with.

    Parameters
    ----------
    path : as in `load_ragchecker_meta`.
    judge : of the files: "llama3" is the printed tables' (``baseline_ragas_llama3.json``), None
        another run of the authors' (``baseline_ragas.json``; there is none of ARES).

    Returns
    -------
    row of Table 5 (`BASELINES`) -> scores of both responses, shape (pairs, 2), by position: in the
    order of `load_ragchecker_meta`. NaN where a baseline gave no score. Rows whose file is not in
    the folder are left out.

    Source: RAGChecker, Tables 2 and 5; data/meta_evaluation of its repository.
    """
    folder = shared_file(
        path, "ragchecker", "meta_evaluation", name="RAGChecker's baselines", do=_META
    )
    suffix = f"_{judge}" if judge else ""
    files = {}
    for baseline in dict(BASELINES.values()):
        file = find_file(folder, f"baseline_{baseline}{suffix}.json")
        if file is not None:
            files[baseline] = file
    return {
        row: _baseline(files[baseline], baseline, metric)
        for row, (baseline, metric) in BASELINES.items()
        if baseline in files
    }


def _baseline(file: Path, baseline: str, metric: str) -> np.ndarray:
    """Return one metric of both responses of every pair."""

    def scores(row: dict, where: str) -> list[float]:
        return [float(row[side][baseline][metric]) for side in ("model1", "model2")]

    places = ((f"record {number}", row) for number, row in enumerate(read_json(file), 1))
    return np.array(each_record(file, places, scores, None))
