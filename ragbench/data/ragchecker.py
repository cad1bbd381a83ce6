"""RAGChecker's data: its JSON of checked results, the counts of its benchmark, the response pairs that people compared.

One record per question: question, reference answer, response, retrieved texts; then, as far as the work has gone, the
claims of both texts, the label of every claim against every text, and the metrics.

RAGChecker names a check after the text that is asked and the text whose claims are asked about:
``answer2response`` holds one label per *response* claim. Here the same thing is ``response_in_reference``.

RAGChecker (0.1.9) expects triples: when it reads a claim that is a sentence it takes it for a list, and writes its
letters. Labels and metrics do not suffer; read here again, the letters are a sentence again.

Everything keeps the three label words apart (Entailment, Neutral, Contradiction); only the metrics make them two.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ragbench.data.files import each_record, from_mirror, read_json, require_text
from ragbench.errors import DataError, check_known
from ragbench.paths import mirror

LABELS = ("Entailment", "Neutral", "Contradiction")
Claim = str | tuple[str, str, str]

TEXTS = {"query": "question", "gt_answer": "reference", "response": "response"}
CLAIMS = {"response_claims": "response_claims", "gt_answer_claims": "reference_claims"}
VECTORS = {"answer2response": "response_in_reference", "response2answer": "reference_in_response"}
MATRICES = {"retrieved2response": "response_in_chunks", "retrieved2answer": "reference_in_chunks"}
CHECKS = VECTORS | MATRICES
OPTIONAL = (*CLAIMS, *CHECKS, "metrics")
_SAME = {label: label for label in LABELS}
_OF_RESPONSE = ("response_claims", "answer2response", "retrieved2response")
_OF_REFERENCE = ("gt_answer_claims", "response2answer", "retrieved2answer")
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
_QUERIES = ("{0}_ids.json", "{0}_queries.json", "{0}_metadata.json", "{0}_queries_metadata.json", "{0}_qid2gt.json")
ASPECTS = ("correctness", "completeness", "overall")
HUMAN = "human_labeled_data.json"
RECORDED = "baseline_ragchecker.json"
_SHARED = ("dataset", "query_id", "query", "gt_answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievedText:
    """One retrieved text, its fields by keyword only: text and id exchanged would make every context metric 0.

    ``doc_id`` may be missing in RAGChecker's format, ``extra`` keeps fields of other tools."""

    text: str
    doc_id: str | int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RagResult:
    """One question with its response, and what is known about their claims; None where a step has not been done.

    ``response_in_reference`` has one label per response claim, ``reference_in_response`` one per reference claim;
    ``response_in_chunks`` and ``reference_in_chunks`` have one row per claim with one label per retrieved text.
    ``extra`` keeps fields that RAGChecker does not know.
    """

    id: str | int
    question: str
    reference: str
    response: str
    chunks: tuple[RetrievedText, ...] = ()
    response_claims: tuple[Claim, ...] | None = None
    reference_claims: tuple[Claim, ...] | None = None
    response_in_reference: tuple[str, ...] | None = None
    reference_in_response: tuple[str, ...] | None = None
    response_in_chunks: tuple[tuple[str, ...], ...] | None = None
    reference_in_chunks: tuple[tuple[str, ...], ...] | None = None
    metrics: Mapping[str, float] | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    def missing(self) -> tuple[str, ...]:
        """Names of the checks that have not been done, as in this record; empty when metrics can be computed."""
        return tuple(name for name in CHECKS.values() if getattr(self, name) is None)


@dataclass(frozen=True, slots=True)
class RagResults:
    """A file of results; ``metrics`` are RAGChecker's averages in percent, by group, or None when not computed."""

    results: tuple[RagResult, ...]
    metrics: Mapping[str, Mapping[str, float]] | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


def claim_text(claim: Claim) -> str:
    """Return a claim as one text: a sentence as it is, a triple (subject, predicate, object) joined by spaces."""
    return claim if isinstance(claim, str) else " ".join(claim)


def to_ragchecker(results: RagResults) -> dict[str, Any]:
    """Return results as RAGChecker's JSON object; what has not been done is left out, an undefined metric is null."""
    data: dict[str, Any] = {"results": [_row(result) for result in results.results]}
    if results.metrics is not None:
        data["metrics"] = {group: _plain(part) for group, part in results.metrics.items()}
    return data | {k: v for k, v in results.extra.items() if k not in data}


def write_ragchecker(results: RagResults, path: str | Path) -> Path:
    """Write results as RAGChecker's JSON and return the path; reading it again gives the same results."""
    path = Path(path).expanduser()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(to_ragchecker(results), indent=2), encoding="utf-8")
    return path


def _row(result: RagResult) -> dict[str, Any]:
    row: dict[str, Any] = {"query_id": result.id} | {k: getattr(result, v) for k, v in TEXTS.items()}
    chunks = [
        ({} if chunk.doc_id is None else {"doc_id": chunk.doc_id}) | {"text": chunk.text} | dict(chunk.extra)
        for chunk in result.chunks
    ]
    if chunks or "retrieved_context" not in result.extra:
        row["retrieved_context"] = chunks
    for theirs, ours in (CLAIMS | CHECKS).items():
        value = getattr(result, ours)
        if value is not None:
            row[theirs] = [item if isinstance(item, str) else list(item) for item in value]
    if result.metrics is not None:
        row["metrics"] = _plain(result.metrics)
    return row | {k: v for k, v in result.extra.items() if k not in row}


def _plain(numbers: Mapping[str, float]) -> dict[str, float | None]:
    return {name: None if value != value else value for name, value in numbers.items()}


# -- reading: every message names result id and field, in RAGChecker's words -------------------------------------------


def read_ragchecker(path: str | Path) -> RagResults:
    """Read RAGChecker's JSON: checking inputs, outputs, or anything between.

    Parameters
    ----------
    path : JSON file, plain or gzip, an object with a list under "results".

    Returns
    -------
    RagResults; claims may be triples or sentences.

    Raises
    ------
    DataError that names result id and field (in RAGChecker's words) for a missing field, an unknown label word, or
    numbers of claims, labels and retrieved texts that do not fit. Several bad results are listed together.
    """
    return from_ragchecker(read_json(path), where=str(path))


def from_ragchecker(data: Any, where: str = "the data") -> RagResults:
    """Build results from parsed RAGChecker JSON; ``where`` begins the error messages. As `read_ragchecker`."""
    if not isinstance(data, dict) or not isinstance(data.get("results"), list):
        got = f"the fields {', '.join(map(repr, data)) or 'none'}" if isinstance(data, dict) else type(data).__name__
        raise DataError(
            f"{where}: JSON with {got}",
            'an object such as {"results": [...]}',
            'put the list of results under "results", or check that this is RAGChecker\'s file',
        )
    seen: dict[str, str] = {}

    def result(row: Any, place: str) -> RagResult:
        one = _result(row, f"{where}, {place}")
        if str(one.id) in seen:
            raise DataError(
                f"{where}, {place}: the id {one.id!r} is that of {seen[str(one.id)]} too",
                "an id used once",
                "rename one, or keep the systems in separate files",
            )
        seen[str(one.id)] = place
        return one

    results = each_record(where, ((f"results[{i}]", row) for i, row in enumerate(data["results"])), result)
    metrics = data.get("metrics")
    if metrics is not None:
        if not isinstance(metrics, dict):
            raise DataError(f"{where}: 'metrics' is {type(metrics).__name__}", "an object of groups of numbers")
        metrics = {group: _numbers(part, f"{where}, metrics[{group!r}]") for group, part in metrics.items()}
    extra = {k: v for k, v in data.items() if k != "results" and (k != "metrics" or v is None)}
    return RagResults(tuple(results), metrics, extra)


def _result(row: Any, where: str) -> RagResult:
    if not isinstance(row, dict):
        raise DataError(f"{where} is a JSON {type(row).__name__}", "an object", "check that file")
    name = row.get("query_id")
    if type(name) not in (str, int):
        said = f"'query_id' is {name!r}" if "query_id" in row else f"no field 'query_id' (it has {', '.join(row)})"
        raise DataError(f"{where}: {said}", "a text under 'query_id'", "give every result an id of its own")
    where = f"{where} (id {name!r})"
    values: dict[str, Any] = {ours: _text(row, theirs, where) for theirs, ours in TEXTS.items()}
    values["chunks"] = _chunks(row, where)
    for theirs, ours in CLAIMS.items():
        values[ours] = _claims(row.get(theirs), f"{where}: {theirs}")
    for theirs, ours in CHECKS.items():
        width = None if theirs in VECTORS else len(values["chunks"])
        values[ours] = _labels(row.get(theirs), width, f"{where}: {theirs}")
    for side in (_OF_RESPONSE, _OF_REFERENCE):
        _same_claims(row, side, len(values["chunks"]), where)
    metrics = row.get("metrics")
    values["metrics"] = None if metrics is None else _numbers(metrics, f"{where}: metrics")
    known = {"query_id", "retrieved_context", *TEXTS, *OPTIONAL}
    # A null stays a null when the file is written again.
    extra = {k: v for k, v in row.items() if k not in known or (k in (*OPTIONAL, "retrieved_context") and v is None)}
    return RagResult(name, **values, extra=extra)


def _text(row: dict, name: str, where: str) -> str:
    if not isinstance(row.get(name), str):
        said = f"{name!r} is {row[name]!r:.60}" if name in row else f"no field {name!r} (it has {', '.join(row)})"
        raise DataError(f"{where}: {said}", f"a text under {name!r}", 'add it; write "" for an empty text')
    return row[name]


def _chunks(row: dict, where: str) -> tuple[RetrievedText, ...]:
    retrieved = row.get("retrieved_context")
    if retrieved is None and "retrieved_context" in row:
        return ()  # what RAGChecker writes where nothing was retrieved
    if not isinstance(retrieved, list):
        said = f"is {type(retrieved).__name__}" if "retrieved_context" in row else "is missing"
        raise DataError(
            f"{where}: the field 'retrieved_context' {said}",
            'a list of {"doc_id": ..., "text": ...}',
            "write an empty list where nothing was retrieved",
        )
    chunks = []
    for place, item in enumerate(retrieved):
        at = f"{where}: retrieved_context[{place}]"
        if not isinstance(item, dict):
            raise DataError(f"{at} is {type(item).__name__}", 'an object {"doc_id": ..., "text": ...}', "mend it")
        extra = {k: v for k, v in item.items() if k not in ("doc_id", "text") or (k == "doc_id" and v is None)}
        chunks.append(RetrievedText(text=_text(item, "text", at), doc_id=item.get("doc_id"), extra=extra))
    return tuple(chunks)


def _claims(value: Any, where: str) -> tuple[Claim, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list):
        raise DataError(f"{where} is {type(value).__name__}", "a list of claims", "write an empty list for no claim")
    claims: list[Claim] = []
    for place, claim in enumerate(value):
        if isinstance(claim, list) and len(claim) != 3 and _letters(claim):
            claim = "".join(claim)
        triple = isinstance(claim, list) and len(claim) == 3 and all(isinstance(part, str) for part in claim)
        if not (triple or isinstance(claim, str)):
            raise DataError(
                f"{where}[{place}] is {str(claim)[:60]!r}",
                "a sentence, or a triple [subject, predicate, object] of texts",
                "mend that claim",
            )
        claims.append(claim if isinstance(claim, str) else (claim[0], claim[1], claim[2]))
    return tuple(claims)


def _letters(claim: list) -> bool:
    return bool(claim) and all(isinstance(part, str) and len(part) == 1 for part in claim)


def _labels(value: Any, width: int | None, where: str) -> tuple | None:
    """Labels, one per claim; with a ``width``, one row of so many labels per claim."""
    if value is None:
        return None
    if not isinstance(value, list):
        what = "one label per claim" if width is None else "one list of labels per claim"
        raise DataError(f"{where} is {type(value).__name__}", what, "mend that field")
    if width is None:
        return _known(value, where)
    rows = []
    for i, row in enumerate(value):
        if not isinstance(row, list) or len(row) != width:
            got = f"has {len(row)} labels" if isinstance(row, list) else f"is {row!r}"
            raise DataError(
                f"{where}[{i}] {got}",
                f"{width} labels, one per retrieved text",
                "check that rows are claims and columns retrieved texts",
            )
        rows.append(_known(row, f"{where}[{i}]"))
    return tuple(rows)


def _known(labels: list, where: str) -> tuple[str, ...]:
    """The labels as the three strings of `LABELS` themselves: a file holds millions of equal ones."""
    try:
        return tuple([_SAME[label] for label in labels])
    except (KeyError, TypeError):
        place, label = next((i, label) for i, label in enumerate(labels) if label not in LABELS)
        raise DataError(
            f"{where}[{place}]: label {label!r:.60}", f"one of {', '.join(LABELS)}", "check that claim again"
        ) from None


def _same_claims(row: dict, side: Sequence[str], width: int, where: str) -> None:
    sizes = {name: len(row[name]) for name in side if row.get(name) is not None}
    if not width:
        # Without a retrieved text there is nothing to hold a row per claim: [] is right as well.
        sizes = {name: size for name, size in sizes.items() if size or name not in MATRICES}
    if len(set(sizes.values())) > 1:
        raise DataError(
            f"{where}: {', '.join(f'{name} has {size}' for name, size in sizes.items())}",
            "the same number of claims in each",
            "extract and check that result again; do not pad the labels",
        )


def _numbers(numbers: Any, where: str) -> dict[str, float]:
    if not isinstance(numbers, dict):
        raise DataError(f"{where} is {type(numbers).__name__}", "an object of numbers", "mend that field")
    for name, value in numbers.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float))):
            raise DataError(f"{where}[{name!r}] is {value!r}", "a number, or null where undefined", "mend that value")
    return {name: float("nan") if value is None else value for name, value in numbers.items()}


# -- Table 1: the benchmark's counts -----------------------------------------------------------------------------------


def load_ragchecker_counts(path: str | Path | None = None) -> dict[str, dict[str, int]]:
    """Count the benchmark's questions and documents in its metadata files.

    Parameters
    ----------
    path : folder with RAGChecker's ``data/benchmark/metadata`` files. Default: ``RAGBENCH_DATA/ragchecker/benchmark``.

    Returns
    -------
    Row of Table 1 -> {"queries": n, "documents": n}; "documents" only where the files tell (the corpora themselves
    are elsewhere).

    Raises
    ------
    DataError when the folder, or the questions of a domain, are not there.

    Source: RAGChecker, Table 1.
    """
    folder = Path(path).expanduser() if path is not None else mirror("ragchecker", "benchmark")
    if folder is None or not folder.is_dir():
        raise DataError(
            f"RAGChecker's benchmark metadata are not in {folder or 'RAGBENCH_DATA/ragchecker/benchmark'}",
            "the folder data/benchmark/metadata of RAGChecker's repository",
            "set RAGBENCH_DATA, or give the folder as path",
        )
    return {row: _counts(folder, name.removeprefix("robustqa/")) for row, (name, _) in BENCHMARK.items()}


def _counts(folder: Path, name: str) -> dict[str, int]:
    forms = [*(form.format(name) for form in _QUERIES), f"{name}_question_ids.json"]
    file = next((folder / form for form in forms if (folder / form).is_file()), None)
    if file is None:
        raise DataError(f"{folder} holds no questions of {name!r}", f"one of {', '.join(forms)}", "complete the folder")
    questions = read_json(file)
    counts = {}
    if isinstance(questions, dict) and "input_data" in questions:
        questions = questions["input_data"]
        # NovelQA: every question belongs to one novel, and the novels are the documents.
        counts["documents"] = len({question["novel"] for question in questions})
    corpus = next(folder.glob(f"{name}_doc_indices.json*"), None)
    if corpus is not None:
        counts["documents"] = len(read_json(corpus))
    return {"queries": _size(questions)} | counts


def _size(questions: Any) -> int:
    if isinstance(questions, dict) and all(isinstance(part, list) for part in questions.values()):
        return sum(map(len, questions.values()))  # BioASQ: question ids by the file they come from
    return len(questions)


# -- section 4.2: response pairs that people compared, with RAGChecker's own scores ------------------------------------


@dataclass(frozen=True, slots=True)
class RatedResponse:
    """One system's response; ``critiques`` is what GPT-4 noted for the annotators.

    ``scores`` are RAGChecker's recorded ones by aspect (precision, recall and F1), empty where not recorded.
    """

    model: str
    text: str
    critiques: str = ""
    scores: Mapping[str, float] = field(default_factory=dict)


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
        return np.array([pair.labels[_aspect(aspect)] for pair in self.pairs])

    def recorded(self, aspect: str) -> np.ndarray:
        """RAGChecker's scores of both responses in [0, 1]: float array, shape (n_pairs, 2); DataError without them."""
        _aspect(aspect)
        for pair in self.pairs:
            if not all(response.scores for response in pair.responses):
                raise DataError(
                    f"pair {pair.id} has no recorded scores", f"{RECORDED} beside {HUMAN}", "copy that file too"
                )
        return np.array([[response.scores[aspect] for response in pair.responses] for pair in self.pairs])

    def score(self, metric: Callable[[str, str], float]) -> np.ndarray:
        """Apply ``metric(response, reference)`` to all responses: float array, shape (n_pairs, 2)."""
        return np.array([[metric(r.text, pair.reference) for r in pair.responses] for pair in self.pairs], float)

    def domains(self) -> np.ndarray:
        """Domain of each pair, as in the recorded data: text array, shape (n_pairs,)."""
        return np.array([pair.domain for pair in self.pairs])


def _aspect(aspect: str) -> str:
    check_known("aspect", [aspect], ASPECTS)
    return aspect


def load_ragchecker_meta(path: str | Path | None = None) -> MetaEvaluation:
    """Load the response pairs that people compared, with RAGChecker's recorded scores when they are there.

    Parameters
    ----------
    path : RAGChecker's folder ``data/meta_evaluation``, or its file of human labels (JSON, plain or gzip; the recorded
        scores are looked for beside it). Default: ``RAGBENCH_DATA/ragchecker/meta_evaluation``.

    Returns
    -------
    MetaEvaluation: 280 pairs, 28 in each of 10 domains, two annotators each, in the published file.

    Raises
    ------
    DataError when a file is missing or malformed, when annotators of one pair saw different texts or differ in number,
    or when the recorded scores belong to other responses.

    Source: RAGChecker, section 4.2 (meta evaluation dataset).
    """
    got = "RAGChecker's human labels are not on this machine"
    expected = f"RAGBENCH_DATA/ragchecker/meta_evaluation/{HUMAN}(.gz)"
    do = "set RAGBENCH_DATA, or give the folder data/meta_evaluation of RAGChecker's repository as path"
    given = from_mirror(path, "ragchecker", "meta_evaluation", got=got, expected=expected, do=do)
    folder = given if given.is_dir() else given.parent
    human = given if not given.is_dir() else _plain_or_gzip(folder, HUMAN) or folder / HUMAN
    recorded = _plain_or_gzip(folder, RECORDED)
    groups: dict[str, list[tuple[str, dict]]] = {}
    for where, row in each_record(human, _objects(human), lambda row, where: (where, _checked(row, where))):
        groups.setdefault(str(row["instance_id"]), []).append((where, row))
    scores = {str(row.get("instance_id")): (where, row) for where, row in _objects(recorded)} if recorded else {}
    pairs = each_record(human, groups.items(), lambda seen, name: _pair(name, seen, scores.get(name), bool(recorded)))
    counts = {len(next(iter(pair.labels.values()))): pair.id for pair in pairs}
    if len(counts) > 1:
        said = ", ".join(f"{n} (pair {name})" for n, name in sorted(counts.items()))
        raise DataError(f"{human}: numbers of annotators that differ: {said}", "the same number for every pair")
    return MetaEvaluation(tuple(pairs))


def _plain_or_gzip(folder: Path, name: str) -> Path | None:
    return next((file for file in (folder / name, folder / f"{name}.gz") if file.is_file()), None)


def _objects(path: Path) -> list[tuple[str, dict]]:
    rows = read_json(path)
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise DataError(f"{path}: not a list of objects", "a JSON list of records", "check that this is the right file")
    return [(f"{path}, record {i} (instance {row.get('instance_id')!r})", row) for i, row in enumerate(rows)]


def _checked(row: dict, where: str) -> dict:
    if "instance_id" not in row:
        raise DataError(f"{where}: no field 'instance_id'", "the number of the pair", "check that this is the file")
    for name in _SHARED:
        require_text(row, name, where)
    for side in ("model1", "model2"):
        if not isinstance(row.get(side), dict):
            raise DataError(
                f"{where}: no object {side!r}", "an object with model_name and response", "mend that record"
            )
        require_text(row[side], "model_name", f"{where}, {side}")
        require_text(row[side], "response", f"{where}, {side}", empty=True)
    for aspect in ASPECTS:
        label = row.get(f"{aspect}_label")
        if type(label) is not int or not -2 <= label <= 2:
            raise DataError(
                f"{where}: {aspect}_label is {label!r}",
                "a whole number from -2 (the first is much better) to 2 (the second)",
                "mend that label",
            )
    return row


def _pair(name: str, seen: list[tuple[str, dict]], scored: tuple[str, dict] | None, expected: bool) -> PreferencePair:
    _, first = seen[0]
    for where, row in seen[1:]:
        if _texts(row) != _texts(first):
            raise DataError(f"{where}: other texts than in {seen[0][0]}", "one pair of responses per instance_id")
    if expected and (scored is None or _texts(scored[1]) != _texts(first)):
        at = scored[0] if scored else f"{RECORDED}, instance {name!r}"
        raise DataError(f"{at}: no scores of the responses people saw", "the same texts as in the human labels")
    responses = [_rated(first[side], scored, side) for side in ("model1", "model2")]
    labels = {aspect: tuple(row[f"{aspect}_label"] for _, row in seen) for aspect in ASPECTS}
    domain, query_id, question, reference = (first[field] for field in _SHARED)
    return PreferencePair(name, domain, query_id, question, reference, (responses[0], responses[1]), labels)


def _texts(row: dict) -> list[Any]:
    sides = [row.get(side) or {} for side in ("model1", "model2")]
    return [*(row.get(name) for name in _SHARED), *((s.get("model_name"), s.get("response")) for s in sides)]


def _rated(row: dict, scored: tuple[str, dict] | None, side: str) -> RatedResponse:
    scores = {}
    if scored:
        recorded = scored[1][side].get("ragchecker") or {}
        for aspect in ASPECTS:
            value = recorded.get(f"{aspect}_label")
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
                raise DataError(
                    f"{scored[0]}, {side}: ragchecker[{aspect + '_label'!r}] is {value!r}",
                    "a score from 0 to 1",
                    "copy RAGChecker's file again",
                )
            scores[aspect] = float(value)
    return RatedResponse(row["model_name"], row["response"], row.get("critiques", ""), scores)
