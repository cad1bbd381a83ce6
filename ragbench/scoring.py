"""From answers to metrics, by name: for the rows of an experiment, or anybody's own answers.

What a metric needs and the rows lack is made first: a label, by `LABELS`. A label of your own is a
function ``(rows, source, cassette) -> column`` and one entry there:

    def words(rows, source, cassette):
        return [len(answer.split()) for answer in rows["answer"]]

    LABELS["words"] = LabelMethod(("answer",), words)
"""

from __future__ import annotations

import ast
import inspect
import math
import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ragbench.data.answers import read_answers
from ragbench.data.ragchecker import CHECKS, RagResult, RetrievedText
from ragbench.data.tables import is_missing
from ragbench.errors import ConfigError, DataError, check_known
from ragbench.experiment.manifest import load_rows
from ragbench.experiment.rows import answers_of
from ragbench.labelling.checkers import ModelChecker
from ragbench.labelling.claims import extract_claims, ragchecker_calls, ragchecker_labels
from ragbench.labelling.grades import PROMPT, grade
from ragbench.labelling.keypoints import keypoint_verdicts
from ragbench.labelling.statements import ModelRagas
from ragbench.llm import Cassette, Plan, ask, plan
from ragbench.llm.endpoints import model_facts
from ragbench.metrics.table import (
    METRICS,
    claim_result,
    find_numbers,
    lower_is_better,
)
from ragbench.prompts import Prompt
from ragbench.records import Answer, Question
from ragbench.stats.tables import fully_right, grade_numbers

_WAYS_TO_LABELS = (
    "name one: labels='ollama:llama3:8b' (docs/models.md says how to install Ollama), or "
    "labels='smollm2', the small model in the box"
)
Numbers = Mapping[str, tuple[str, str]]  # column -> (metric, which of its numbers)


@dataclass(frozen=True, slots=True)
class _LabelSource:
    """The chat model that labels, the checker of its claims (None: the same model), options for
    ``ask``.
    """

    model: Any = None
    checker: Any = None
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LabelMethod:
    """How a label is made: from which columns, by which function, and with how many calls of a
    model at most.

    ``calls`` None: no model is ever asked, so none need be named.
    """

    needs: tuple[str, ...]
    make: Callable[[pd.DataFrame, _LabelSource, Any], Sequence[Any]]
    calls: Callable[[pd.DataFrame], Mapping[str, int]] | None = None


def score(
    rows: Any,
    metrics: Sequence[str],
    labels: Any = None,
    columns: Mapping[str, str] | None = None,
    *,
    checker: Any = None,
    cassette: Any = None,
    **options: Any,
) -> pd.DataFrame:
    """Compute metrics of every answer.

    Parameters
    ----------
    rows : one per answer, from anywhere: see `ragbench.data.answers.read_answers`. Labels in the
        rows are used; only those that a metric needs and the rows lack are made. Or the folder or
        name of a run, with its experiment.yaml beside the rows. Where the claims of RAGChecker
        belong to another true answer than ``reference``, columns ``long_reference`` and
        ``reference_claims`` hold it and its claims.
    metrics : names in `ragbench.metrics.table`: of ``METRICS``, of ``GROUPS``, or of single numbers
        (`metric_table`).
    labels : the chat model that labels, where a metric needs labels that the rows lack, as for
        `ragbench.llm.ask`; its plan (`plan_score`) is printed first. None: what needs no such label
        is computed, and a warning says what the rest needs.
    columns : our name -> the name in your rows, e.g. ``{"reference": "gold_answer"}``.
    checker : who checks claims in place of ``labels``: a name or object as for
        `ragbench.labelling.checkers`.
    cassette : file of the model's replies; with one, an interrupted call goes on.
    options : for `ragbench.llm.ask`: ``concurrency``, ``progress`` ...

    Returns
    -------
    DataFrame: the rows in our names; a column per number (``keypoints_hallucination`` where
    RAGChecker's has the name); the labels made (`ragbench.widgets.ClaimInspector` opens
    ``claim_labels``); ``labelled_by``; ``unscored``, how many numbers are NaN, and ``reason``, why.
    ``attrs``: "numbers" (their columns), "model", "checker", "repairs".

    Raises ConfigError for an unknown metric or option, or where every metric needs labels and no
    model is named; DataError for all missing columns, before anything runs.

    >>> rows = [{"answer": "Paris", "reference": "Paris, France"}]
    >>> score(rows, ["token_f1"])["token_f1"].round(2).tolist()
    [0.67]
    """
    options_of_ask = set(inspect.signature(ask).parameters) - {"model", "prompts", "schema", "ids"}
    own = ("rows", "metrics", "labels", "columns", "checker")
    check_known("option", options, [*sorted(options_of_ask), *own])
    table, numbers, left_out = _prepare(rows, metrics, columns, labels)
    if left_out:
        warnings.warn(left_out, stacklevel=2)
    to_make = _labels_to_make(numbers, _existing_columns(table))
    source = _source(labels, checker, cassette, options)
    by_model = any(LABELS[label].calls for label in to_make)
    if by_model and options.get("progress") is not False:
        print(_plan(table, to_make, source, cassette, {}), file=sys.stderr)
    for label in to_make:
        table[label] = _labelled(label, table, source, cassette)
    table = _with_numbers(table, numbers)
    labelled_by, words = _labelled_by(source, to_make, cassette)
    needs = {need for name in _metrics_of(numbers) for need in METRICS[name].needs}
    if not needs.isdisjoint(LABELS):
        table["labelled_by"] = words
    # Last: pandas copies attrs at every look into the table.
    table.attrs |= labelled_by | {"numbers": list(numbers)}
    return table


def _labelled(label: str, table: pd.DataFrame, source: _LabelSource, cassette: Any) -> pd.Series:
    """Make a label of the rows that have all it is made from; None for the others."""
    complete = _complete_rows(label, table)
    column = pd.Series(None, table.index, dtype=object)
    if len(complete):
        labels = LABELS[label].make(complete, source, cassette)
        column[complete.index] = pd.Series(map(_plain, labels), complete.index, dtype=object)
    return column.where(pd.notna, None)


def _plain(cell: Any) -> Any:
    """Return a label as lists, mappings, texts and numbers, which any file can hold.

    What was written so is read again: from CSV it comes as text, from Parquet in arrays.
    """
    if isinstance(cell, str) and cell.startswith(("{", "[", "(")):
        return ast.literal_eval(cell)
    if isinstance(cell, RagResult):
        unread = {CHECKS[name]: getattr(cell, name) for name in cell.missing()}
        return _plain({**cell.to_dict(), **unread})
    if isinstance(cell, Mapping):
        return {key: _plain(value) for key, value in cell.items()}
    if isinstance(cell, list | tuple | np.ndarray):
        return [_plain(value) for value in cell]
    return cell


def _with_numbers(table: pd.DataFrame, numbers: Numbers) -> pd.DataFrame:
    """Add a column per number, how many are NaN, and why; a column of a number's name that was
    there is kept as ``given_NAME``.
    """
    values = {name: _values(name, table) for name in _metrics_of(numbers)}
    for column, (name, key) in numbers.items():
        if column in table:
            table = table.rename(columns={column: f"given_{column}"})
        cells = [value[key] if isinstance(value, Mapping) else value for value in values[name]]
        table[column] = pd.Series(cells, table.index, dtype=float)
    table["unscored"] = table[list(numbers)].isna().sum(axis=1)
    table["reason"] = [_reason(row, numbers) for row in table.to_dict("records")]
    return table


def _labelled_by(
    source: _LabelSource, labels: Sequence[str], cassette: Any
) -> tuple[dict[str, Any], str]:
    """Say who made labels: the model's facts and the checker, and both in words."""
    labelled_by: dict[str, Any] = {}
    words = []
    if any(LABELS[label].calls for label in labels):
        tape = Cassette(cassette) if isinstance(cassette, str | Path) else cassette
        facts = model_facts(source.model, tape, ask_server=False).to_dict()
        labelled_by["model"] = facts
        words.append("{provider}:{model}".format(**facts))
    if source.checker is not None and "claim_labels" in labels:
        labelled_by["checker"] = repr(source.checker)
        words.append(f"claims by {source.checker!r}")
    return labelled_by, "; ".join(words) or "given"


def plan_score(
    rows: Any,
    metrics: Sequence[str],
    labels: Any = None,
    columns: Mapping[str, str] | None = None,
    cassette: Any = None,
    *,
    checker: Any = None,
    **speeds: Any,
) -> Plan:
    """Say what `score` will ask a chat model at most: calls, hours, money.

    ``speeds`` go to `ragbench.llm.plan`; the rest is as for `score`.
    """
    table, numbers, _ = _prepare(rows, metrics, columns, labels)
    wanted = _labels_to_make(numbers, _existing_columns(table))
    return _plan(table, wanted, _source(labels, checker, cassette, {}), cassette, speeds)


def metric_table() -> pd.DataFrame:
    """List the numbers there are: metric, columns needed, source, range, and the labels needed,
    with who makes them.
    """
    lower = lower_is_better()
    rows = []
    for column, (name, _) in find_numbers().items():
        metric = METRICS[name]
        needed = _needed(name)
        labels = [need for need in metric.needs if need in LABELS]
        by_model = any(LABELS[need].calls for need in needed if need in LABELS)
        row = {
            "number": column,
            "metric": name,
            "needs": ", ".join(need for need in needed if need not in LABELS),
            "source": metric.source,
            "range": "{:g} to {:g}".format(*metric.range),
            "labels": "none",
        }
        if column in lower:
            row["range"] += ", lower is better"
        if labels:
            row["labels"] = f"{', '.join(labels)}: {'a model' if by_model else 'no model'}"
        rows.append(row)
    return pd.DataFrame(rows)


# Existing columns, and what is missing


def _prepare(
    rows: Any, metrics: Sequence[str], columns: Mapping[str, str] | None, labels: Any
) -> tuple[pd.DataFrame, Numbers, str]:
    """Return the rows in our names, the numbers that can be computed, and in words what is left
    out.
    """
    numbers = find_numbers(metrics)
    table = _read_rows(rows, columns)
    try:
        computed, left_out = without_labels(metrics, _existing_columns(table), labels)
    except ConfigError:
        # a missing column comes first: a model alone would not help
        _require(table, _metrics_of(numbers))
        raise
    _require(table, _metrics_of(computed))
    return table, computed, left_out


def _read_rows(rows: Any, columns: Mapping[str, str] | None) -> pd.DataFrame:
    if isinstance(rows, str | Path):
        path = Path(rows).expanduser()
        if not path.suffix and not path.is_file():
            rows = load_rows(rows)
    if isinstance(rows, pd.DataFrame):
        of_a_run = {"hits", "zero_hits"} <= set(rows) and "system" not in rows
        rows = answers_of(rows) if of_a_run else rows
    table = read_answers(rows, columns)
    if "context" not in table and "chunks" in table:
        table["context"] = table["chunks"].map(" ".join, na_action="ignore")
    for label in table.columns.intersection([*LABELS]):
        table[label] = pd.Series(map(_plain, table[label]), table.index, dtype=object)
    return table


def _metrics_of(numbers: Numbers) -> list[str]:
    return list(dict.fromkeys(name for name, _ in numbers.values()))


def _needed(metric: str, existing: Collection[str] = ()) -> dict[str, str]:
    """Return column or label -> the label it is for, of all that a metric needs beside existing
    columns; a label after what it is made from.
    """
    needed: dict[str, str] = {}

    def add(need: str, label: str) -> None:
        if need not in existing:
            for before in LABELS[need].needs if need in LABELS else ():
                add(before, need)
            needed[need] = label

    for need in METRICS[metric].needs:
        add(need, "")
    return needed


def _existing_columns(table: pd.DataFrame) -> set[str]:
    return set(table.columns[table.notna().any()])


def _missing_columns(metric: str, existing: Collection[str]) -> dict[str, str]:
    needed = _needed(metric, existing)
    return {column: label for column, label in needed.items() if column not in LABELS}


def _require(table: pd.DataFrame, metrics: Sequence[str]) -> None:
    """Say all that is missing, before anything runs."""
    existing = _existing_columns(table)
    users: dict[str, list[str]] = defaultdict(list)  # of a column that is missing
    for name in metrics:
        for column, label in _missing_columns(name, existing).items():
            users[column].append(f"{name!r} (for its {label})" if label else repr(name))
    if not users:
        return
    lines = [f"no column {column!r}, needed by {', '.join(of)}" for column, of in users.items()]
    columns = ", ".join(map(str, table.columns.drop("question_id", errors="ignore")))
    possible = [name for name in METRICS if not _missing_columns(name, existing)]
    do = (
        f"add it, or name yours: columns={{{next(iter(users))!r}: ...}}; what can be computed as "
        f"it is: {', '.join(possible) or 'none'}"
    )
    got = "\n    ".join(lines) + f"\n  there is {columns}"
    raise DataError(got, "a column of that name", do)


def _complete_rows(label: str, table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that have all a label is made from; a plan leaves out what is still to be
    made.
    """
    present = [need for need in LABELS[label].needs if need in table]
    if "reference" in present and table["reference"].map(lambda cell: isinstance(cell, list)).any():
        do = (
            "name one: columns={'reference': ...}; exact_match, token_f1, bleu and rouge_l take "
            "several"
        )
        raise DataError("several true answers in 'reference'", f"one text, for the {label}", do)
    return _complete(table, present)


def _complete(table: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """Return the rows in which no cell of these columns is missing."""
    return table[~table[list(columns)].map(is_missing).any(axis=1)]


def _values(name: str, table: pd.DataFrame) -> list[Any]:
    """Return a metric's value of every row; NaN for one that lacks something."""
    if name == "fully_right" and "judge_scale" in table and table["judge_scale"].notna().any():
        return fully_right(table).tolist()
    metric = METRICS[name]
    complete = _complete(table, metric.needs)[list(metric.needs)]
    if metric.all_rows:
        values = metric.function(*(complete[need].tolist() for need in metric.needs))
    else:
        values = [metric.function(*cells) for cells in complete.itertuples(index=False)]
    undefined = dict.fromkeys(metric.names, math.nan) or math.nan
    column = pd.Series([undefined] * len(table), table.index, dtype=object)
    column[complete.index] = pd.Series(list(values), complete.index, dtype=object)
    return column.tolist()


def _reason(row: Mapping[str, Any], numbers: Numbers) -> str:
    columns: dict[str, list[str]] = defaultdict(list)
    for column, (name, _) in numbers.items():
        if math.isnan(row[column]):
            columns[_why(row, name)].append(column)
    return "; ".join(f"{why}: {', '.join(names)}" for why, names in columns.items())


def _why(row: Mapping[str, Any], name: str) -> str:
    absent = _absent(METRICS[name].needs, row)
    if absent is None:
        unread = name == "ragchecker" and claim_result(row["claim_labels"]).missing()
        return "a label could not be read" if unread else "undefined"
    while absent in LABELS:
        label = absent
        absent = _absent([need for need in LABELS[label].needs if need in row], row)
        if absent is None:
            return f"{label} could not be read"
    return f"no {absent}"


def _absent(needs: Sequence[str], row: Mapping[str, Any]) -> str | None:
    """Return the first of the columns whose cell is missing."""
    return next((need for need in needs if is_missing(row[need])), None)


# Who labels


def without_labels(
    metrics: Sequence[str], existing: Collection[str], labels: Any
) -> tuple[Numbers, str]:
    """Return the numbers that can be computed beside existing columns, and in words what the others
    need.

    ConfigError where that leaves none: all need labels, and no model is named.
    """
    numbers = find_numbers(metrics)
    if labels is not None:
        return numbers, ""
    lacking: dict[str, list[str]] = defaultdict(list)  # numbers by the labels that they need
    computed = {}
    for column, number in numbers.items():
        to_make = _labels_to_make({column: number}, existing)
        if by_model := [label for label in to_make if LABELS[label].calls]:
            lacking[", ".join(by_model)].append(column)
        else:
            computed[column] = number
    words = "; ".join(f"{', '.join(of)} (needs {label})" for label, of in lacking.items())
    if not computed:
        expected = "a chat model, or the labels as columns of the rows"
        raise ConfigError(f"no model is named that labels: {words}", expected, _WAYS_TO_LABELS)
    if words:
        words = f"left out, since no model is named that labels: {words}; {_WAYS_TO_LABELS}"
    return computed, words


def _labels_to_make(numbers: Numbers, existing: Collection[str]) -> list[str]:
    """Return the labels to be made beside existing columns, each after what it is made from."""
    needed: dict[str, str] = {}
    for metric in _metrics_of(numbers):
        needed |= _needed(metric, existing)
    return [name for name in needed if name in LABELS]


def _source(labels: Any, checker: Any, cassette: Any, options: Mapping[str, Any]) -> _LabelSource:
    if isinstance(checker, str):
        checker = ModelChecker(checker, cassette=cassette)
    return _LabelSource(labels, checker, options)


def _plan(
    table: pd.DataFrame,
    wanted: Sequence[str],
    source: _LabelSource,
    cassette: Any,
    speeds: Mapping[str, Any],
) -> Plan:
    if isinstance(cassette, str | Path):
        cassette = Cassette(cassette) if Path(cassette).is_file() else None
    calls: Counter[str] = Counter()
    for label in wanted:
        if count := LABELS[label].calls:
            calls += Counter(count(_complete_rows(label, table)))
    if source.checker is not None:
        calls.pop("claim check", None)
    planned = plan(calls, source.model, cassette, **speeds) if calls else Plan()
    if isinstance(source.checker, ModelChecker) and "claim_labels" in wanted:
        results = _results(_complete_rows("claim_labels", table))
        checks = ragchecker_calls(results)["claim check"]
        planned += plan({"claim check": checks}, source.checker.model, cassette, **speeds)
    return planned


# Labels: how each is made, and the calls that takes


def _results(rows: pd.DataFrame) -> list[RagResult]:
    """Return the rows as RAGChecker's records, an id each."""
    names = rows["question_id"].astype(str)
    if "system" in rows:
        names = names + " " + rows["system"].astype(str)
    if names.duplicated().any():
        names = names + " #" + names.groupby(names).cumcount().add(1).astype(str)
    results = []
    for name, row in zip(names, rows.to_dict("records"), strict=True):
        long_reference = row.get("long_reference")
        reference = row["reference"] if is_missing(long_reference) else long_reference
        claims = row.get("reference_claims")
        claims = None if is_missing(claims) else tuple(claims)
        chunks = tuple(RetrievedText(text=text) for text in row["chunks"])
        texts = row["question"], reference, row["answer"], chunks
        results.append(RagResult(name, *texts, reference_claims=claims))
    return results


def _claim_labels(rows: pd.DataFrame, source: _LabelSource, cassette: Any) -> Sequence[Any]:
    options = {"checker": source.checker, "cassette": cassette, **source.options}
    return ragchecker_labels(source.model, _results(rows), **options)


def _keypoints(rows: pd.DataFrame, source: _LabelSource, cassette: Any) -> Sequence[Any]:
    """The claims of the true answer, where nobody wrote key points."""
    texts = rows["reference"].tolist()
    options = {"questions": rows["question"].tolist(), "cassette": cassette, **source.options}
    return extract_claims(source.model, texts, **options)


def _keypoint_verdicts(rows: pd.DataFrame, source: _LabelSource, cassette: Any) -> Sequence[Any]:
    columns = [rows[name].tolist() for name in ("question", "answer", "keypoints")]
    return keypoint_verdicts(source.model, *columns, cassette=cassette, **source.options)


def grade_label(prompt: Prompt = PROMPT) -> LabelMethod:
    """Make the label ``grade`` of a grading prompt, whose grades stand in its header.

    ``LABELS["grade"] = grade_label("mine.txt")``, with `ragbench.metrics.table.grade_metrics`.
    """

    def make(rows: pd.DataFrame, source: _LabelSource, cassette: Any) -> list[Any]:
        questions = []
        answers = []
        for i, row in enumerate(rows.itertuples()):
            questions.append(Question(str(i), row.question, row.reference, tuple(row.references)))
            answers.append(Answer(str(i), row.answer, ""))
        options = {"prompt": prompt, "cassette": cassette, **source.options}
        return [graded.value for graded in grade(source.model, questions, answers, **options)]

    needs = ("question", "answer", "reference", "references")
    return LabelMethod(needs, make, lambda rows: {"grading": len(rows)})


def _abstained(rows: pd.DataFrame, source: _LabelSource, cassette: Any) -> list[Any]:
    """Grade 1 is an answer that gives no information."""
    return [None if math.isnan(value) else value == 1 for value in grade_numbers(rows["grade"])]


def _ragas(rows: pd.DataFrame, source: _LabelSource, cassette: Any) -> list[Any]:
    model = ModelRagas(source.model, cassette=cassette, **source.options)
    questions = rows["question"].tolist()
    answers = rows["answer"].tolist()
    contexts = rows["context"].tolist()
    scores = {
        "faithfulness": model.faithfulness(answers, contexts),
        "answer_relevance": model.answer_relevance(questions, answers),
        "context_relevance": model.context_relevance(questions, contexts),
    }
    table = pd.DataFrame({name: metric["score"].to_numpy() for name, metric in scores.items()})
    return table.astype(object).where(table.notna(), None).to_dict("records")


_PER_TEXT = 10  # claims, key points or statements of a text that is not taken apart yet


def _keypoint_count(rows: pd.DataFrame) -> int:
    return int(rows["keypoints"].map(len).sum()) if "keypoints" in rows else _PER_TEXT * len(rows)


def _ragas_calls(rows: pd.DataFrame) -> dict[str, int]:
    calls = dict.fromkeys(("statements", "questions", "sentences"), len(rows))
    return {**calls, "verdicts": _PER_TEXT * len(rows)}


LABELS: dict[str, LabelMethod] = {
    "claim_labels": LabelMethod(
        ("question", "answer", "reference", "chunks"),
        _claim_labels,
        lambda rows: ragchecker_calls(_results(rows)),
    ),
    "keypoints": LabelMethod(("reference",), _keypoints, lambda rows: {"claims": len(rows)}),
    "keypoint_verdicts": LabelMethod(
        ("question", "answer", "keypoints"),
        _keypoint_verdicts,
        lambda rows: {"keypoints": _keypoint_count(rows)},
    ),
    "grade": grade_label(),
    "abstained": LabelMethod(("grade",), _abstained),
    "ragas": LabelMethod(
        ("question", "answer", "context"),
        _ragas,
        _ragas_calls,
    ),
}
