"""RAGChecker's data: its JSON of checked results, the counts of its benchmark, the response pairs that people compared.

One record per question: question, reference answer, response, retrieved texts; then, as far as the work has gone, the
claims of both texts, the label of every claim against every text, and the metrics. All three label words are kept
apart; only the metrics make them two.

RAGChecker (0.1.9) expects triples: when it reads a claim that is a sentence it takes it for a list, and writes its
letters. Labels and metrics do not suffer; read here again, the letters are a sentence again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator, ConfigDict, Field, Strict, StrictInt
from typing_extensions import TypedDict

from ragbench.data.files import Filled, Plain, Row, as_record, each_record, read_json, read_list, shared_file
from ragbench.errors import DataError, check_known

LABELS = ("Entailment", "Neutral", "Contradiction")
Claim = str | tuple[str, str, str]

# Our name of a check -> RAGChecker's, after the text that is asked and the text whose claims are asked about.
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
# Row of Table 1 -> name in the recorded data, and the table that holds the domain's results (Tables 6-15).
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
_Labels = tuple[Literal[LABELS], ...]  # type: ignore[valid-type]
_Numbers = dict[str, Annotated[Any, BeforeValidator(_number)]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievedText:
    """One retrieved text; by keyword only, since text and id exchanged would make every context metric 0."""

    text: str
    doc_id: str | StrictInt | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


_Chunk = Annotated[RetrievedText, BeforeValidator(lambda row: _gathered(row, "text", "doc_id"))]


@dataclass(frozen=True, slots=True)
class RagResult:
    """One question with its response, and what is known about their claims; None where a step has not been done.

    ``response_in_reference`` has one label per response claim, ``reference_in_response`` one per reference claim;
    ``response_in_chunks`` and ``reference_in_chunks`` have one row per claim with one label per retrieved text.
    ``extra`` keeps fields that RAGChecker does not know.
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
        """Names of the checks that have not been done, as in this record; empty when metrics can be computed."""
        return tuple(name for name in CHECKS if getattr(self, name) is None)


@dataclass(frozen=True, slots=True)
class RagResults:
    """A file of results; ``metrics`` are RAGChecker's averages in percent, by group, or None when not computed."""

    results: tuple[RagResult, ...]
    metrics: Mapping[str, Mapping[str, float]] | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


class _File(Row):
    results: list[Any]
    metrics: dict[str, _Numbers] | None = None


def claim_text(claim: Claim) -> str:
    """Return a claim as one text: a sentence as it is, a triple (subject, predicate, object) joined by spaces."""
    return claim if isinstance(claim, str) else " ".join(claim)


def read_ragchecker(path: str | Path) -> RagResults:
    """Read RAGChecker's JSON (plain or gzip): checking inputs, outputs, or anything between.

    DataError in RAGChecker's words, also where the numbers of claims, labels and retrieved texts do not fit.
    """
    return from_ragchecker(read_json(path), where=str(path))


def from_ragchecker(data: Any, where: str = "the data") -> RagResults:
    """Build results from parsed RAGChecker JSON; ``where`` begins the error messages. As `read_ragchecker`."""
    whole = as_record(_File, data, where, add='write {"results": [...]}, or check that this is RAGChecker\'s file')
    rows = ((f"results[{place}]", row) for place, row in enumerate(whole.results))
    results = each_record(where, rows, _result, lambda result: [f"the id {str(result.id)!r}"])
    return RagResults(tuple(results), whole.metrics, whole.model_extra or {})


def _result(data: Any, where: str) -> RagResult:
    if isinstance(data, dict):
        where = f"{where} (id {data.get('query_id')!r})"
        if "retrieved_context" not in data:
            raise DataError(f"{where}: no field 'retrieved_context'", "a list of texts", "write [] for none")
    row = as_record(RagResult, _gathered(data, *_NAMES.values()), where, add='add it; write "" for an empty text')
    width = len(row.chunks)
    for side in _SIDES:
        for place, each in enumerate(getattr(row, side[2]) or ()):
            if len(each) != width:
                got, do = f"{where}: {_NAMES[side[2]]}[{place}] has {len(each)} labels", "check that rows are claims"
                raise DataError(got, f"{width} labels, one per retrieved text", do)
        # Without a retrieved text there is nothing to hold a row per claim: [] is right as well.
        parts = {_NAMES[name]: getattr(row, name) for name in side if width or getattr(row, name) or name != side[2]}
        sizes = {name: len(part) for name, part in parts.items() if part is not None}
        if len(set(sizes.values())) > 1:
            got = f"{where}: {', '.join(f'{name} has {size}' for name, size in sizes.items())}"
            raise DataError(got, "the same number of claims in each", "check that result again; do not pad the labels")
    return row


def to_ragchecker(results: RagResults) -> dict[str, Any]:
    """Return results as RAGChecker's JSON object; what has not been done is left out, an undefined metric is null."""
    data: dict[str, Any] = {"results": [_row(result) for result in results.results]}
    if results.metrics is not None:
        data["metrics"] = {group: _plain(part) for group, part in results.metrics.items()}
    return {**results.extra, **data}


def write_ragchecker(results: RagResults, path: str | Path) -> Path:
    """Write results as RAGChecker's JSON and return the path; reading it again gives the same results."""
    path = Path(path).expanduser()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(to_ragchecker(results), indent=2), encoding="utf-8")
    return path


def _row(result: RagResult) -> dict[str, Any]:
    row = {theirs: value for ours, theirs in _NAMES.items() if (value := getattr(result, ours)) is not None}
    row["retrieved_context"] = [
        {**({} if chunk.doc_id is None else {"doc_id": chunk.doc_id}), "text": chunk.text, **chunk.extra}
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


_Score = Annotated[float, Strict(), Field(ge=0, le=1)]
_Preference = Annotated[StrictInt, Field(ge=-2, le=2)]


class _Scores(TypedDict):
    correctness: Annotated[_Score, Field(alias="correctness_label")]
    completeness: Annotated[_Score, Field(alias="completeness_label")]
    overall: Annotated[_Score, Field(alias="overall_label")]


@dataclass(frozen=True, slots=True)
class RatedResponse:
    """One system's response; ``critiques`` is what GPT-4 noted for the annotators.

    ``scores`` are RAGChecker's recorded ones by aspect (precision, recall and F1), empty where not recorded.
    """

    model: Annotated[Filled, Field(alias="model_name")]
    text: Annotated[Plain, Field(alias="response")]
    critiques: str = ""
    scores: Annotated[_Scores, Field(alias="ragchecker")] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PreferencePair:
    """Two responses to one question, and every annotator's preference by aspect: -2..2, positive: the second wins."""

    id: str
    domain: str
    query_id: str
    question: str
    reference: str
    responses: tuple[RatedResponse, RatedResponse]
    labels: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class MetaEvaluation:
    """The pairs, as arrays by aspect: what `ragbench.stats.preference_correlation` takes."""

    pairs: tuple[PreferencePair, ...]

    def labels(self, aspect: str) -> np.ndarray:
        """Human preferences: int array, shape (n_pairs, n_annotators)."""
        check_known("aspect", [aspect], ASPECTS)
        return np.array([pair.labels[aspect] for pair in self.pairs])

    def recorded(self, aspect: str) -> np.ndarray:
        """RAGChecker's scores of both responses in [0, 1]: float array, shape (n_pairs, 2); DataError without them."""
        check_known("aspect", [aspect], ASPECTS)
        for pair in self.pairs:
            if not all(response.scores for response in pair.responses):
                do = "copy both files again"
                raise DataError(f"pair {pair.id} has no recorded scores", f"its responses in {_RECORDED}", do)
        return np.array([[response.scores[aspect] for response in pair.responses] for pair in self.pairs])

    def score(self, metric: Callable[[str, str], float]) -> np.ndarray:
        """Apply ``metric(response, reference)`` to all responses: float array, shape (n_pairs, 2)."""
        return np.array([[metric(r.text, pair.reference) for r in pair.responses] for pair in self.pairs], float)

    def domains(self) -> np.ndarray:
        """Domain of each pair, as in the recorded data: text array, shape (n_pairs,)."""
        return np.array([pair.domain for pair in self.pairs])


class _Pair(Row):
    instance_id: StrictInt | str
    dataset: Filled
    query_id: Filled
    query: Filled
    gt_answer: Filled
    model1: RatedResponse
    model2: RatedResponse


class _Labelled(_Pair):
    correctness: Annotated[_Preference, Field(alias="correctness_label")]
    completeness: Annotated[_Preference, Field(alias="completeness_label")]
    overall: Annotated[_Preference, Field(alias="overall_label")]


def load_ragchecker_meta(path: str | Path | None = None) -> MetaEvaluation:
    """Load the response pairs that people compared, with RAGChecker's recorded scores when they are there.

    Parameters
    ----------
    path : RAGChecker's folder ``data/meta_evaluation``, its JSON files plain or gzip. Default:
        ``RAGBENCH_DATA/ragchecker/meta_evaluation``.

    Source: RAGChecker, section 4.2 (meta evaluation dataset: 280 pairs, 28 in each of 10 domains, two annotators each).
    """
    do = "set RAGBENCH_DATA, or give the folder data/meta_evaluation of RAGChecker's repository as path"
    folder = shared_file(path, "ragchecker", "meta_evaluation", name=f"RAGChecker's {_HUMAN}", do=do)
    scored = {
        (row.instance_id, side.model, side.text): side
        for row in (_pairs(folder, _RECORDED, _Pair) if [*folder.glob(f"{_RECORDED}*")] else ())
        for side in (row.model1, row.model2)
    }
    by_pair: dict[Any, list[_Labelled]] = {}
    for row in _pairs(folder, _HUMAN, _Labelled):
        by_pair.setdefault(row.instance_id, []).append(row)
    pairs = []
    for name, rows in by_pair.items():
        first = rows[0]
        responses = tuple(scored.get((name, s.model, s.text), s) for s in (first.model1, first.model2))
        labels = {aspect: tuple(getattr(row, aspect) for row in rows) for aspect in ASPECTS}
        asked = (first.dataset, first.query_id, first.query, first.gt_answer)
        pairs.append(PreferencePair(str(name), *asked, responses, labels))
    counts = {len(pair.labels["overall"]): pair.id for pair in pairs}
    if len(counts) > 1:
        said = ", ".join(f"{n} (pair {name})" for n, name in sorted(counts.items()))
        raise DataError(f"{folder / _HUMAN}: numbers of annotators that differ: {said}", "the same for every pair")
    return MetaEvaluation(tuple(pairs))


def _pairs(folder: Path, name: str, shape: type[Any]) -> list[Any]:
    path = folder / name if (folder / name).is_file() else folder / f"{name}.gz"
    return each_record(path, read_list(path), partial(as_record, shape))
