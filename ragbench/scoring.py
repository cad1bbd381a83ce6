"""From rows to metrics, by name: for the rows of an experiment, or anybody's own answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from ragbench.errors import DataError, unknown
from ragbench.metrics.table import METRICS
from ragbench.records import Answer, Question


def score(
    rows: pd.DataFrame | Iterable[Mapping[str, Any]],
    metrics: Sequence[str],
    labels: Any = "embedded",
    columns: Mapping[str, str] | None = None,
    **options: Any,
) -> pd.DataFrame:
    """Compute metrics of every row.

    Parameters
    ----------
    rows : one per answer: a data frame, or mappings. What is there is used, labels too; only labels that a metric
        needs and the rows lack are made.
    metrics : names in `ragbench.metrics.table.METRICS`, whose ``needs`` say which columns each one reads.
    labels : who labels: "embedded" (no language model), or a chat model as for `ragbench.llm.ask`.
    columns : our name -> the name in your rows, e.g. ``{"reference": "gold_answer"}``.
    options : for `ragbench.llm.ask`: ``cassette``, ``concurrency`` ...

    Returns
    -------
    DataFrame: the rows, then a column for each number of each metric (``keypoints_hallucination`` where RAGChecker's
    ``hallucination`` is there already), then ``unscored``: how many of the row's numbers are NaN, because they are
    undefined, their label could not be read, or the row lacks a value they need.

    Raises
    ------
    ConfigError for an unknown metric; DataError for a column that is not there.

    >>> score([{"answer": "Paris", "reference": "Paris, France"}], ["exact_match", "token_f1"])["token_f1"].round(2)[0]
    0.67
    """
    table = pd.DataFrame(list(rows) if not isinstance(rows, pd.DataFrame) else rows).reset_index(drop=True)
    known = table.rename(columns={theirs: ours for ours, theirs in (columns or {}).items()})
    if "context" not in known and "chunks" in known:
        known["context"] = known["chunks"].map(lambda chunks: chunks if _lacks(chunks) else " ".join(chunks))
    numbers: list[str] = []
    for name in metrics:
        if name not in METRICS:
            raise unknown("metric", name, METRICS)
        metric = METRICS[name]
        for need in metric.needs:
            if need not in known and need in LABELS:
                known[need] = _made(need, known, labels, options)
            _require(known, need, f"metric {name!r}")
        inputs = zip(*(known[need] for need in metric.needs), strict=True)
        values = [None if any(map(_lacks, row)) else metric.function(*row) for row in inputs]
        for key in metric.names or (name,):
            each = [value[key] if isinstance(value, Mapping) else value for value in values]
            column = f"{name}_{key}" if key in numbers else key
            table[column] = pd.Series(each, table.index, dtype=float)
            numbers.append(column)
    return table.assign(unscored=table[numbers].isna().sum(axis=1))


def _lacks(value: Any) -> bool:
    return value is None or (isinstance(value, float) and value != value)


def _require(known: pd.DataFrame, column: str, who: str) -> None:
    if column not in known:
        raise DataError(
            f"no column {column!r}, which {who} needs; there is {', '.join(map(str, known.columns))}",
            "a column of that name",
            f"name yours: columns={{{column!r}: ...}}",
        )


def _made(label: str, known: pd.DataFrame, labels: Any, options: Mapping[str, Any]) -> pd.Series:
    """Labels for the rows that have all that is needed; None for the others."""
    needs, make = LABELS[label]
    for need in needs:
        _require(known, need, f"label {label!r}")
    whole = [i for i in known.index if not any(_lacks(known.at[i, need]) for need in needs)]
    made = make(known.loc[whole, list(needs)], None if labels == "embedded" else labels, options) if whole else []
    return pd.Series(dict(zip(whole, made, strict=True)), known.index, dtype=object).where(lambda s: s.notna(), None)


def _claim_labels(rows: pd.DataFrame, model: Any, options: Mapping[str, Any]) -> list[Any]:
    from ragbench.data.ragchecker import RagResult, RetrievedText
    from ragbench.labelling.claims import embedded_labels, ragchecker_labels

    results = [
        RagResult(i, row.question, row.reference, row.answer, tuple(RetrievedText(text=text) for text in row.chunks))
        for i, row in enumerate(rows.itertuples())
    ]
    labelled = embedded_labels(results) if model is None else ragchecker_labels(model, results, **options)
    return [None if result.missing() else result for result in labelled.results.results]


def _keypoint_verdicts(rows: pd.DataFrame, model: Any, options: Mapping[str, Any]) -> list[Any]:
    from ragbench.labelling.keypoints import embedded_keypoint_verdicts, keypoint_verdicts

    points, answers = rows["keypoints"].tolist(), rows["answer"].tolist()
    if model is None:
        return embedded_keypoint_verdicts(points, answers)
    return list(keypoint_verdicts(model, rows["question"].tolist(), answers, points, **options).labels)


def _grades(rows: pd.DataFrame, model: Any, options: Mapping[str, Any]) -> list[Any]:
    from ragbench.labelling.embedded_grader import EmbeddedGrader
    from ragbench.labelling.grades import grade

    names = [str(i) for i in range(len(rows))]
    each = list(zip(names, rows.itertuples(), strict=True))
    questions = [Question(name, row.question, row.reference, tuple(row.facts)) for name, row in each]
    answers = [Answer(name, row.answer, "") for name, row in each]
    return [one.value for one in grade(model or EmbeddedGrader(), questions, answers, **options)]


def _ragas(rows: pd.DataFrame, model: Any, options: Mapping[str, Any]) -> list[Any]:
    from ragbench.labelling.embedded_ragas import EmbeddedRagas
    from ragbench.labelling.statements import ModelRagas

    ragas: Any = EmbeddedRagas() if model is None else ModelRagas(model, **options)
    questions, answers, contexts = (rows[name].tolist() for name in ("question", "answer", "context"))
    scores = {
        "faithfulness": ragas.faithfulness(answers, contexts),
        "answer_relevance": ragas.answer_relevance(questions, answers),
        "context_relevance": ragas.context_relevance(questions, contexts),
    }
    return pd.DataFrame({name: table["score"].to_numpy() for name, table in scores.items()}).to_dict("records")


Maker = Callable[[pd.DataFrame, Any, Mapping[str, Any]], list[Any]]
# Label -> the columns it is made from, and the function that makes it.
LABELS: dict[str, tuple[tuple[str, ...], Maker]] = {
    "claim_labels": (("question", "answer", "reference", "chunks"), _claim_labels),
    "keypoint_verdicts": (("question", "answer", "keypoints"), _keypoint_verdicts),
    "grade": (("question", "answer", "reference", "facts"), _grades),
    "ragas": (("question", "answer", "context"), _ragas),
}
