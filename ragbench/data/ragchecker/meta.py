"""RAGChecker's meta-evaluation: response pairs that people compared, with RAGChecker's own scores (section 4.2)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragbench.data.files import raise_all, read_json, require_text
from ragbench.errors import DataError, unknown
from ragbench.paths import mirror

if TYPE_CHECKING:
    import numpy as np

ASPECTS = ("correctness", "completeness", "overall")
HUMAN = "human_labeled_data.json"
RECORDED = "baseline_ragchecker.json"
_SHARED = ("dataset", "query_id", "query", "gt_answer")


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
        import numpy as np

        return np.array([pair.labels[_aspect(aspect)] for pair in self.pairs])

    def recorded(self, aspect: str) -> np.ndarray:
        """RAGChecker's scores of both responses in [0, 1]: float array, shape (n_pairs, 2); DataError without them."""
        import numpy as np

        _aspect(aspect)
        for pair in self.pairs:
            if not all(response.scores for response in pair.responses):
                raise DataError(
                    f"pair {pair.id} has no recorded scores", f"{RECORDED} beside {HUMAN}", "copy that file too"
                )
        return np.array([[response.scores[aspect] for response in pair.responses] for pair in self.pairs])

    def score(self, metric: Callable[[str, str], float]) -> np.ndarray:
        """Apply ``metric(response, reference)`` to all responses: float array, shape (n_pairs, 2)."""
        import numpy as np

        return np.array([[metric(r.text, pair.reference) for r in pair.responses] for pair in self.pairs], float)

    def domains(self) -> np.ndarray:
        """Domain of each pair, as in the recorded data: text array, shape (n_pairs,)."""
        import numpy as np

        return np.array([pair.domain for pair in self.pairs])


def _aspect(aspect: str) -> str:
    if aspect not in ASPECTS:
        raise unknown("aspect", aspect, ASPECTS)
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
    given = Path(path).expanduser() if path is not None else mirror("ragchecker", "meta_evaluation")
    if given is None:
        raise DataError(
            "RAGChecker's human labels are not on this machine",
            f"RAGBENCH_DATA/ragchecker/meta_evaluation/{HUMAN}(.gz)",
            "set RAGBENCH_DATA, or give the folder data/meta_evaluation of RAGChecker's repository as path",
        )
    folder = given if given.is_dir() else given.parent
    human = given if not given.is_dir() else _find(folder, HUMAN) or folder / HUMAN
    recorded = _find(folder, RECORDED)
    groups: dict[str, list[tuple[str, dict]]] = {}
    errors: list[DataError] = []
    rows = _rows(human)
    for where, row in rows:
        try:
            groups.setdefault(str(_checked(row, where)["instance_id"]), []).append((where, row))
        except DataError as error:
            errors.append(error)
    raise_all(errors, human, len(rows))
    scores = {str(row.get("instance_id")): (where, row) for where, row in _rows(recorded)} if recorded else {}
    pairs = []
    for name, seen in groups.items():
        try:
            pairs.append(_pair(name, seen, scores.get(name), bool(recorded)))
        except DataError as error:
            errors.append(error)
    raise_all(errors, human, len(groups))
    counts = {len(next(iter(pair.labels.values()))): pair.id for pair in pairs}
    if len(counts) > 1:
        said = ", ".join(f"{n} (pair {name})" for n, name in sorted(counts.items()))
        raise DataError(f"{human}: numbers of annotators that differ: {said}", "the same number for every pair")
    return MetaEvaluation(tuple(pairs))


def _find(folder: Path, name: str) -> Path | None:
    return next((file for file in (folder / name, folder / f"{name}.gz") if file.is_file()), None)


def _rows(path: Path) -> list[tuple[str, dict]]:
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
    responses = [_response(first[side], scored, side) for side in ("model1", "model2")]
    labels = {aspect: tuple(row[f"{aspect}_label"] for _, row in seen) for aspect in ASPECTS}
    domain, query_id, question, reference = (first[field] for field in _SHARED)
    return PreferencePair(name, domain, query_id, question, reference, (responses[0], responses[1]), labels)


def _texts(row: dict) -> list[Any]:
    sides = [row.get(side) or {} for side in ("model1", "model2")]
    return [*(row.get(name) for name in _SHARED), *((s.get("model_name"), s.get("response")) for s in sides)]


def _response(row: dict, scored: tuple[str, dict] | None, side: str) -> RatedResponse:
    scores = {}
    if scored:
        found = scored[1][side].get("ragchecker") or {}
        for aspect in ASPECTS:
            value = found.get(f"{aspect}_label")
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
                raise DataError(
                    f"{scored[0]}, {side}: ragchecker[{aspect + '_label'!r}] is {value!r}",
                    "a score from 0 to 1",
                    "copy RAGChecker's file again",
                )
            scores[aspect] = float(value)
    return RatedResponse(row["model_name"], row["response"], row.get("critiques", ""), scores)
