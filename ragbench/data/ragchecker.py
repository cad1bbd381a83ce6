"""RAGChecker's data: its JSON of checked results, the counts of its benchmark, the response pairs
that people compared.

One record per question: question, reference answer, response, retrieved texts; then, as far as the
work has gone, the claims of both texts, the label of every claim against every text, and the
metrics. All three label words are kept apart; only the metrics make them two.

RAGChecker (0.1.9) expects triples: when it reads a claim that is a sentence it takes it for a list,
and writes its letters. Labels and metrics do not suffer; read here again, the letters are a
sentence again.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import pandas as pd
from pydantic import BeforeValidator, ConfigDict, StrictInt

from ragbench.data.files import (
    FileRecord,
    as_record,
    each_record,
    read_json,
    shared_file,
)
from ragbench.errors import DataError

LABELS = ("Entailment", "Neutral", "Contradiction")
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
# Row of Table 1 -> name in the recorded data, and the table that holds the domain's results (Tables
# 6-15).
BENCHMARK = {
    "ClapNQ": ("clapnq", "Table 6"),
    "NovelQA": ("novelqa", "Table 7"),
    "RobustQA Writing": ("robustqa/writing", "Table 8"),
    "RobustQA BioASQ": ("robustqa/bioasq", "Table 9"),
    "RobustQA Finance": ("robustqa/fiqa", "Table 10"),
    "RobustQA Lifestyle": ("robustqa/lifestyle", "Table 11"),
    "RobustQA Recreation": ("robustqa/recreation", "Table 12"),
    "RobustQA Science": ("robustqa/science", "Table 13"),
    "RobustQA Technology": ("robustqa/technology", "Table 14"),
    "KIWI": ("kiwi", "Table 15"),
}
ASPECTS = ("correctness", "completeness", "overall")
_HUMAN = "human_labeled_data.json"
_RECORDED = "baseline_ragchecker.json"


def _claim(value: Any) -> Claim:
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        if len(value) == 3:
            return (value[0], value[1], value[2])
        if value and all(len(part) == 1 for part in value):
            return "".join(value)
    if not isinstance(value, str):
        raise ValueError("a sentence, or a triple [subject, predicate, object] of texts")
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | None):
        raise ValueError("a number, or null where undefined")
    return float("nan") if value is None else value


def _gathered(row: Any, *known: str) -> Any:
    """Put the fields that RAGChecker does not know under ``extra``."""
    if not isinstance(row, dict) or row.keys() <= set(known):
        return row
    extra = {name: value for name, value in row.items() if name not in known}
    return {name: value for name, value in row.items() if name in known} | {"extra": extra}


_Claims = tuple[Annotated[Any, BeforeValidator(_claim)], ...]
_Labels = tuple[Literal[LABELS] | None, ...]  # type: ignore[valid-type]
_Numbers = dict[str, Annotated[Any, BeforeValidator(_number)]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievedText:
    """One retrieved text; by keyword only, since text and id exchanged would make every context
    metric 0.
    """

    text: str
    doc_id: str | StrictInt | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


_Chunk = Annotated[RetrievedText, BeforeValidator(lambda row: _gathered(row, "text", "doc_id"))]


@dataclass(frozen=True, slots=True)
class RagResult:
    """One question with its response, and what is known about their claims; None where a step has
    not been done.

    ``response_in_reference`` and ``reference_in_response`` have one label per claim,
    ``response_in_chunks`` and ``reference_in_chunks`` one row per claim with one label per
    retrieved text.
    """

    __pydantic_config__ = ConfigDict(alias_generator=lambda name: _NAMES.get(name, name))

    id: str | StrictInt
    question: str
    reference: str
    response: str
    chunks: Annotated[tuple[_Chunk, ...], BeforeValidator(lambda texts: texts or ())] = ()
    response_claims: _Claims | None = None
    reference_claims: _Claims | None = None
    response_in_reference: _Labels | None = None
    reference_in_response: _Labels | None = None
    response_in_chunks: tuple[_Labels, ...] | None = None
    reference_in_chunks: tuple[_Labels, ...] | None = None
    metrics: _Numbers | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    def missing(self) -> tuple[str, ...]:
        """Names of the checks that have not been done, or of which a label is unread (None).

        Empty when metrics can be computed.
        """
        return tuple(name for name in CHECKS if not _is_read(getattr(self, name)))


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
    extra: Mapping[str, Any] = field(default_factory=dict)


class _File(FileRecord):
    results: list[Any]
    metrics: dict[str, _Numbers] | None = None


def claim_text(claim: Claim) -> str:
    """Return a claim as one text: a sentence as it is, a triple (subject, predicate, object) joined
    by spaces.
    """
    return claim if isinstance(claim, str) else " ".join(claim)


def read_ragchecker(path: str | Path) -> RagResults:
    """Read RAGChecker's JSON (plain or gzip): checking inputs, outputs, or anything between.

    DataError in RAGChecker's words, also where the numbers of claims, labels and retrieved texts do
    not fit.
    """
    return from_ragchecker(read_json(path), where=str(path))


def from_ragchecker(data: Any, where: str = "the data") -> RagResults:
    """Build results from parsed RAGChecker JSON; ``where`` begins the error messages. As
    `read_ragchecker`.
    """
    whole = as_record(
        _File, data, where, add='write {"results": [...]}, or check that this is RAGChecker\'s file'
    )
    rows = ((f"results[{place}]", row) for place, row in enumerate(whole.results))
    results = each_record(where, rows, _result, lambda result: [f"the id {str(result.id)!r}"])
    return RagResults(tuple(results), whole.metrics, whole.model_extra or {})


def _result(data: Any, where: str) -> RagResult:
    if isinstance(data, dict):
        where = f"{where} (id {data.get('query_id')!r})"
        if "retrieved_context" not in data:
            raise DataError(
                f"{where}: no field 'retrieved_context'", "a list of texts", "write [] for none"
            )
    row = as_record(
        RagResult,
        _gathered(data, *_NAMES.values()),
        where,
        add='add it; write "" for an empty text',
    )
    for claims, labels, labels_in_chunks in _SIDES:
        _check_rows(row, labels_in_chunks, where)
        sizes = _sizes(row, (claims, labels, labels_in_chunks))
        if len(set(sizes.values())) > 1:
            got = f"{where}: {', '.join(f'{name} has {size}' for name, size in sizes.items())}"
            do = "check that result again; do not pad the labels"
            raise DataError(got, "the same number of claims in each", do)
    return row


def _check_rows(result: RagResult, name: str, where: str) -> None:
    """Each claim has one label per retrieved text."""
    width = len(result.chunks)
    for place, labels in enumerate(getattr(result, name) or ()):
        if len(labels) != width:
            got = f"{where}: {_NAMES[name]}[{place}] has {len(labels)} labels"
            do = "check that rows are claims"
            raise DataError(got, f"{width} labels, one per retrieved text", do)


def _sizes(result: RagResult, names: tuple[str, str, str]) -> dict[str, int]:
    """Numbers of claims by RAGChecker's names of those steps that have been done.

    Without a retrieved text there is nothing to hold a row per claim: an empty list is right.
    """
    sizes = {}
    for name in names:
        part = getattr(result, name)
        if part is not None and (part or result.chunks or name != names[-1]):
            sizes[_NAMES[name]] = len(part)
    return sizes


def to_ragchecker(results: RagResults) -> dict[str, Any]:
    """Return results as RAGChecker's JSON object; what has not been done is left out, an undefined
    metric is null.
    """
    data: dict[str, Any] = {"results": [_row(result) for result in results.results]}
    if results.metrics is not None:
        data["metrics"] = {group: _plain(part) for group, part in results.metrics.items()}
    return {**results.extra, **data}


def write_ragchecker(results: RagResults, path: str | Path) -> Path:
    """Write results as RAGChecker's JSON and return the path; reading it again gives the same
    results.
    """
    path = Path(path).expanduser()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(to_ragchecker(results), indent=2), encoding="utf-8")
    return path


def _row(result: RagResult) -> dict[str, Any]:
    row = {
        theirs: value
        for ours, theirs in _NAMES.items()
        if (value := getattr(result, ours)) is not None and ours not in result.missing()
    }
    row["retrieved_context"] = [
        {
            **({} if chunk.doc_id is None else {"doc_id": chunk.doc_id}),
            "text": chunk.text,
            **chunk.extra,
        }
        for chunk in result.chunks
    ]
    for name in (_NAMES[name] for side in _SIDES for name in side):
        if name in row:
            row[name] = [item if isinstance(item, str) else list(item) for item in row[name]]
    if result.metrics is not None:
        row["metrics"] = _plain(result.metrics)
    return {**result.extra, **row}


def _plain(numbers: Mapping[str, float]) -> dict[str, float | None]:
    return {name: None if value != value else value for name, value in numbers.items()}


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
    do = "set RAGBENCH_DATA, or pass data/meta_evaluation of RAGChecker's repository"
    folder = shared_file(
        path, "ragchecker", "meta_evaluation", name=f"RAGChecker's {_HUMAN}", do=do
    )
    try:
        return _compared(folder)
    except (KeyError, TypeError) as error:
        got = f"{folder}: a pair lacks {error}"
        raise DataError(got, "RAGChecker's files", "download them again") from None


def _compared(folder: Path) -> pd.DataFrame:
    scores = {}
    if list(folder.glob(f"{_RECORDED}*")):
        for row in _pairs(folder, _RECORDED):
            for side in (row["model1"], row["model2"]):
                key = (row["instance_id"], side["model_name"], side["response"])
                scores[key] = side.get("ragchecker", {})
    pairs: dict[Any, dict[str, Any]] = {}
    for row in _pairs(folder, _HUMAN):
        pair = pairs.setdefault(row["instance_id"], {aspect: [] for aspect in ASPECTS})
        sides = (row["model1"], row["model2"])
        pair |= {"id": str(row["instance_id"]), "domain": row["dataset"]}
        pair |= {"query_id": row["query_id"], "question": row["query"]}
        pair["reference"] = row["gt_answer"]
        pair["models"] = tuple(side["model_name"] for side in sides)
        pair["responses"] = tuple(side["response"] for side in sides)
        for aspect in ASPECTS:
            pair[aspect].append(row[f"{aspect}_label"])
            pair[f"recorded {aspect}"] = [
                float(scores.get((row["instance_id"], *key), {}).get(f"{aspect}_label", math.nan))
                for key in zip(pair["models"], pair["responses"], strict=True)
            ]
    if len({len(pair["overall"]) for pair in pairs.values()}) > 1:
        got = f"{folder / _HUMAN}: numbers of annotators that differ"
        raise DataError(got, "the same for every pair")
    return pd.DataFrame(list(pairs.values()))


def _pairs(folder: Path, name: str) -> list[dict[str, Any]]:
    path = folder / name
    return read_json(path if path.is_file() else folder / f"{name}.gz")
