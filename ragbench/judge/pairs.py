"""Pairs of answers that people compared: what the judge is fitted on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ragbench.errors import DataError

CRITERIA = ("correctness", "completeness", "overall")


@dataclass(frozen=True)
class LabelledPair:
    """Two answers to one question, and how people compare them.

    ``labels`` maps a criterion to one label per annotator, -2 (answer 1 much better) .. 2 (answer 2 much better).
    ``group`` names the domain that is left out together; ``recorded`` holds another metric's scores of both answers.
    """

    question: str
    reference: str
    answers: tuple[str, str]
    labels: Mapping[str, tuple[float, ...]]
    group: str = ""
    recorded: Mapping[str, tuple[float, float]] = field(default_factory=dict)


def load_ragchecker_pairs(path: str | Path | None = None) -> list[LabelledPair]:
    """Load RAGChecker's 280 human-labelled pairs with its recorded scores.

    Parameters
    ----------
    path : the folder ``meta_evaluation``; default ``ragchecker/meta_evaluation`` in the mirror ``RAGBENCH_DATA``.

    Returns
    -------
    280 pairs in 10 groups, two labels for each of three criteria.

    Raises
    ------
    DataError when the files are missing or their rows do not belong together.
    """
    from ragbench.data.files import read_json
    from ragbench.paths import mirror

    folder = Path(path) if path is not None else mirror("ragchecker", "meta_evaluation")
    if folder is None:
        raise DataError(
            "RAGChecker's human labels are not on this machine",
            "ragchecker/meta_evaluation in the folder that RAGBENCH_DATA names",
            "set RAGBENCH_DATA, or pass your own pairs: read_pairs('pairs.jsonl')",
        )
    human = read_json(folder / "human_labeled_data.json.gz")
    recorded = read_json(folder / "baseline_ragchecker.json")
    if len(human) != 2 * len(recorded):
        raise DataError(
            f"{folder}: {len(human)} label rows for {len(recorded)} scored pairs",
            "two label rows (annotators) per pair",
            "copy both files of RAGChecker's meta_evaluation again",
        )
    pairs = []
    for first, second, scored in zip(human[::2], human[1::2], recorded, strict=True):
        key = (first["dataset"], first["query_id"])
        if not key == (second["dataset"], second["query_id"]) == (scored["dataset"], scored["query_id"]):
            raise DataError(
                f"{folder}: instance {first['instance_id']} has rows of different questions",
                "rows 2i and 2i+1 of the labels and row i of the scores on one question",
                "copy both files of RAGChecker's meta_evaluation again",
            )
        scores = (scored["model1"]["ragchecker"], scored["model2"]["ragchecker"])
        pairs.append(
            LabelledPair(
                first["query"],
                first["gt_answer"],
                (first["model1"]["response"], first["model2"]["response"]),
                {c: (float(first[f"{c}_label"]), float(second[f"{c}_label"])) for c in CRITERIA},
                first["dataset"],
                {c: (float(scores[0][f"{c}_label"]), float(scores[1][f"{c}_label"])) for c in CRITERIA},
            )
        )
    return pairs


def read_pairs(path: str | Path) -> list[LabelledPair]:
    """Read a user's labelled pairs from JSON lines.

    Each line: ``question``, ``reference``, ``answer_1``, ``answer_2`` (texts; an answer may be empty), ``labels``: an
    object from criterion to a label or a list of labels in -2..2 (or ``label``, which is ``overall``), and where
    there is one ``group``: the domain, left out together with its fellows when the fit is measured.

    Raises
    ------
    DataError naming file, line and field.
    """
    from ragbench.data.files import read_jsonl, require_text

    pairs = []
    for number, row in read_jsonl(path):
        where = f"{path}, line {number}"
        question, reference = (require_text(row, name, where) for name in ("question", "reference"))
        answers = tuple(require_text(row, name, where, empty=True) for name in ("answer_1", "answer_2"))
        raw = row["labels"] if "labels" in row else {"overall": row.get("label")}
        if not isinstance(raw, dict) or not raw:
            raise DataError(
                f"{where}: 'labels' is {type(raw).__name__}", 'an object such as {"overall": [1, 2]}', "mend that line"
            )
        labels = {name: _labels(value, f"{where}: {name!r}") for name, value in raw.items()}
        pairs.append(LabelledPair(question, reference, answers, labels, str(row.get("group", ""))))  # type: ignore[arg-type]
    return pairs


def _labels(value: Any, where: str) -> tuple[float, ...]:
    values = value if isinstance(value, list) else [value]
    good = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool) and -2 <= v <= 2]
    if not values or len(good) != len(values):
        raise DataError(
            f"{where} has the label {value!r}",
            "numbers from -2 (answer 1 much better) to 2 (answer 2 much better)",
            "write for instance 1 or [1, 2], one number per annotator",
        )
    return tuple(float(v) for v in values)


def shared_criteria(pairs: Sequence[LabelledPair]) -> list[str]:
    """Return the criteria that every pair is labelled for, in the order of the first pair.

    Raises
    ------
    DataError when there is none.
    """
    common = [c for c in pairs[0].labels if all(c in p.labels for p in pairs)]
    if not common:
        raise DataError(
            "no criterion is labelled in every pair", "at least one", "label all pairs for 'overall', for instance"
        )
    return common
