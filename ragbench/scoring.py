"""From answers to metrics, by name: for the rows of an experiment, or anybody's own answers.

What a metric needs and the rows lack is made first: a label, by `LABELS`. A label of your own is a
function ``(rows, who, cassette) -> column`` and one entry there:

``LABELS["words"] = LabelMethod(("answer",), lambda rows, who, cassette: [len(a.split()) for a in
rows["answer"]])``
"""

from __future__ import annotations

import inspect
import math
import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from ragbench.data.answers import is_missing, read_answers
from ragbench.data.ragchecker import RagResult, RetrievedText
from ragbench.errors import ConfigError, DataError, check_known
from ragbench.experiment.rows import answers_of, load_rows
from ragbench.labelling.checkers import ModelChecker, make_checker
from ragbench.labelling.claims import extract_claims, ragchecker_calls, ragchecker_labels
from ragbench.labelling.grades import grade
from ragbench.labelling.keypoints import keypoint_verdicts
from ragbench.labelling.statements import ModelRagas
from ragbench.llm import Cassette, Plan, ask, plan
from ragbench.llm.endpoints import model_facts
from ragbench.metrics.table import (
    METRICS,
    find_numbers,
    lower_is_better,
    numbers_by_column,
    readable,
)
from ragbench.records import Answer, Question

_WAYS_TO_LABELS = (
    "name one: labels='ollama:llama3:8b' (docs/models.md says how to install Ollama), or "
    "labels='smollm2', the small "
    "model in the box"
)
Numbers = Mapping[str, tuple[str, str]]  # column -> (metric, which of its numbers)


@dataclass(frozen=True, slots=True)
class _LabelSource:
    """The chat model that labels, the checker of its claims (None:

    the same model), options for ``ask``.
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
    rows are used; only
        those that a metric needs and the rows lack are made. Or the folder or name of a run, with
        its experiment.yaml beside the rows. Where the claims of RAGChecker belong to another true
        answer than ``reference``, columns ``long_reference`` and ``reference_claims`` hold it and
        its claims.
    metrics : names in `ragbench.metrics.table`: of ``METRICS``, of ``GROUPS``, or of single numbers
    (`metric_table`).
    labels : the chat model that labels, where a metric needs labels that the rows lack, as for
    `ragbench.llm.ask`; its
        plan (`plan_score`) is printed first. None: what needs no such label is computed, and a
        warning says what the rest needs.
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

    >>> score([{"answer": "Paris", "reference": "Paris, France"}], ["exact_match",
    "token_f1"])["token_f1"].round(2)[0]
    0.67
    """
    of_calls = [
        name
        for name in inspect.signature(ask).parameters
        if name not in ("model", "prompts", "schema", "ids")
    ]
    check_known("option", options, [*of_calls, "rows", "metrics", "labels", "columns", "checker"])
    table, asked, left_out = _prepare(rows, metrics, columns, labels)
    if left_out:
        warnings.warn(left_out, stacklevel=2)
    to_make = _labels_to_make(asked, _existing_columns(table))
    source = _source(labels, checker, cassette, options)
    by_model = any(LABELS[label].calls for label in to_make)
    if by_model and options.get("progress") is not False:
        print(_plan(table, to_make, source, cassette, {}), file=sys.stderr)
    for label in to_make:
        table[label] = _labelled(label, table, source, cassette)
    table = _with_numbers(table, asked)
    made_by = _labelled_by(source, to_make, cassette)
    words = made_by.pop("words")
    if any(need in LABELS for name in _metrics_of(asked) for need in METRICS[name].needs):
        table["labelled_by"] = words
    table["unscored"] = table[list(asked)].isna().sum(axis=1)
    table["reason"] = [_reason(row, asked) for row in table.to_dict("records")]
    # Last: pandas copies attrs at every look into the table.
    table.attrs |= made_by | {"numbers": list(asked)}
    return table


def _labelled(label: str, table: pd.DataFrame, source: _LabelSource, cassette: Any) -> pd.Series:
    """Make a label of the rows that have all it is made from; None for the others."""
    complete = _complete_rows(label, table)
    labels = LABELS[label].make(complete, source, cassette) if len(complete) else []
    column = pd.Series(dict(zip(complete.index, labels, strict=True)), table.index, dtype=object)
    return column.where(pd.notna, None)


def _with_numbers(table: pd.DataFrame, asked: Numbers) -> pd.DataFrame:
    """Add a column per number; one of its name that was there is kept as ``given_NAME``."""
    values = {name: _values(name, table) for name in _metrics_of(asked)}
    for column, (name, key) in asked.items():
        if column in table:
            table = table.rename(columns={column: f"given_{column}"})
        numbers = [value[key] if isinstance(value, Mapping) else value for value in values[name]]
        table[column] = pd.Series(numbers, table.index, dtype=float)
    return table


def _labelled_by(source: _LabelSource, made: Sequence[str], cassette: Any) -> dict[str, Any]:
    """Say who made labels: the model's facts, the checker, and both in words."""
    made_by: dict[str, Any] = {}
    words = []
    if any(LABELS[label].calls for label in made):
        tape = Cassette(cassette) if isinstance(cassette, str | Path) else cassette
        made_by["model"] = model_facts(source.model, tape, ask_server=False).to_dict()
        words.append("{provider}:{model}".format(**made_by["model"]))
    if source.checker is not None and "claim_labels" in made:
        made_by["checker"] = repr(source.checker)
        words.append(f"claims by {source.checker!r}")
    return made_by | {"words": "; ".join(words) or "given"}


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
    table, asked, _ = _prepare(rows, metrics, columns, labels)
    wanted = _labels_to_make(asked, _existing_columns(table))
    return _plan(table, wanted, _source(labels, checker, cassette, {}), cassette, speeds)


def metric_table() -> pd.DataFrame:
    """List the numbers there are:

    metric, columns needed, source, range, and the labels needed, with who makes them.
    """
    lower = lower_is_better()
    lines = []
    for column, (name, _) in numbers_by_column().items():
        metric = METRICS[name]
        columns = ", ".join(need for need in _needed(name) if need not in LABELS)
        span = "{:g} to {:g}".format(*metric.range)
        if column in lower:
            span += ", lower is better"
        labels = [need for need in metric.needs if need in LABELS]
        by_model = any(LABELS[label].calls for label in _needed(name) if label in LABELS)
        labelled = (
            f"{', '.join(labels)}: {'a model' if by_model else 'no model'}" if labels else "none"
        )
        lines.append((column, name, columns, metric.source, span, labelled))
    return pd.DataFrame(lines, columns=["number", "metric", "needs", "source", "range", "labels"])


# Existing columns, and what is missing


def _prepare(
    rows: Any, metrics: Sequence[str], columns: Mapping[str, str] | None, labels: Any
) -> tuple[pd.DataFrame, Numbers, str]:
    """Return the rows in our names, the numbers that can be computed, and in words what is left
    out.
    """
    asked = find_numbers(metrics)
    if (
        isinstance(rows, str | Path)
        and not Path(rows).suffix
        and not Path(rows).expanduser().is_file()
    ):
        rows = load_rows(rows)
    if (
        isinstance(rows, pd.DataFrame)
        and {"hits", "chunk_ends"} <= set(rows)
        and "chunks" not in rows
    ):
        rows = answers_of(rows)
    table = read_answers(rows, columns)
    if "context" not in table and "chunks" in table:
        table["context"] = table["chunks"].map(
            lambda chunks: None if is_missing(chunks) else " ".join(chunks)
        )
    try:
        computed, left_out = without_labels(metrics, _existing_columns(table), labels)
    except ConfigError:
        # a missing column comes first: a model alone would not help
        _require(table, _metrics_of(asked))
        raise
    _require(table, _metrics_of(computed))
    return table, computed, left_out


def _metrics_of(asked: Numbers) -> list[str]:
    return list(dict.fromkeys(name for name, _ in asked.values()))


def _missing_needs(
    need: str, existing: Collection[str] = (), label: str = ""
) -> Iterator[tuple[str, str]]:
    """Yield what a metric needs and the rows lack, with the label it is for;

    a label after what it is made from.
    """
    if need not in existing:
        for before in LABELS[need].needs if need in LABELS else ():
            yield from _missing_needs(before, existing, need)
        yield need, label


def _needed(metric: str, existing: Collection[str] = ()) -> dict[str, str]:
    """Return column or label -> the label it is for, of all that a metric needs beside existing
    columns.
    """
    return {
        name: label
        for need in METRICS[metric].needs
        for name, label in _missing_needs(need, existing)
    }


def _existing_columns(table: pd.DataFrame) -> set[str]:
    return set(table.columns[table.notna().any()])


def _require(table: pd.DataFrame, asked: Sequence[str]) -> None:
    """Say all that is missing, before anything runs."""
    existing = _existing_columns(table)
    missing = {
        name: {
            column: label
            for column, label in _needed(name, existing).items()
            if column not in LABELS
        }
        for name in METRICS
    }
    users: dict[str, list[str]] = defaultdict(list)  # of a column that is missing
    for name in asked:
        for column, label in missing[name].items():
            users[column].append(f"{name!r} (for its {label})" if label else repr(name))
    if users:
        lines = [
            f"no column {column!r}, needed by {', '.join(names)}" for column, names in users.items()
        ]
        columns = ", ".join(map(str, table.columns.drop("question_id", errors="ignore")))
        first = next(iter(users))
        possible = ", ".join(name for name, lacking in missing.items() if not lacking) or "none"
        raise DataError(
            "\n    ".join(lines) + f"\n  there is {columns}",
            "a column of that name",
            (
                f"add it, or name yours: columns={{{first!r}: ...}}; what can be computed as it is: "
                f"{possible}"
            ),
        )


def _complete_rows(label: str, table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that have all a label is made from;

    a plan leaves out what is still to be made.
    """
    present = [need for need in LABELS[label].needs if need in table]
    if "reference" in present and table["reference"].map(lambda cell: isinstance(cell, list)).any():
        do = (
            "name one: columns={'reference': ...}; exact_match, token_f1, bleu and rouge_l take "
            "several"
        )
        raise DataError("several true answers in 'reference'", f"one text, for the {label}", do)
    return table[~table[present].map(is_missing).any(axis=1)]


def _values(name: str, table: pd.DataFrame) -> list[Any]:
    metric = METRICS[name]
    rows = zip(*(table[need] for need in metric.needs), strict=True)
    return [math.nan if any(map(is_missing, cells)) else metric.function(*cells) for cells in rows]


def _reason(row: Mapping[str, Any], asked: Numbers) -> str:
    columns: dict[str, list[str]] = defaultdict(list)
    for column, (name, _) in asked.items():
        if math.isnan(row[column]):
            columns[_why(row, name)].append(column)
    return "; ".join(f"{why}: {', '.join(names)}" for why, names in columns.items())


def _why(row: Mapping[str, Any], name: str) -> str:
    absent = next((need for need in METRICS[name].needs if is_missing(row[need])), None)
    if absent is None:
        unread = name == "ragchecker" and not readable(row["claim_labels"])
        return "a label could not be read" if unread else "undefined"
    while absent in LABELS:
        before = [need for need in LABELS[absent].needs if need in row and is_missing(row[need])]
        if not before:
            return f"{absent} could not be read"
        absent = before[0]
    return f"no {absent}"


# Who labels


def without_labels(
    metrics: Sequence[str], existing: Collection[str], labels: Any
) -> tuple[Numbers, str]:
    """Return the numbers that can be computed beside existing columns, and in words what the others
    need.

    ConfigError where that leaves none: all need labels, and no model is named.
    """
    asked = find_numbers(metrics)
    if labels is not None:
        return asked, ""
    unlabelled: dict[str, list[str]] = defaultdict(list)  # numbers by the labels that they need
    for column, number in asked.items():
        needed = [
            label for label in _labels_to_make({column: number}, existing) if LABELS[label].calls
        ]
        if needed:
            unlabelled[", ".join(needed)].append(column)
    if not unlabelled:
        return asked, ""
    left_out = {column for columns in unlabelled.values() for column in columns}
    lacking = "; ".join(
        f"{', '.join(columns)} (needs {label})" for label, columns in unlabelled.items()
    )
    if left_out == {*asked}:
        expected = "a chat model, or the labels as columns of the rows"
        raise ConfigError(f"no model is named that labels: {lacking}", expected, _WAYS_TO_LABELS)
    computed = {column: number for column, number in asked.items() if column not in left_out}
    return computed, f"left out, since no model is named that labels: {lacking}; {_WAYS_TO_LABELS}"


def _labels_to_make(asked: Numbers, existing: Collection[str]) -> list[str]:
    """Return the labels to be made beside existing columns, each after what it is made from."""
    needed = (name for metric in _metrics_of(asked) for name in _needed(metric, existing))
    return list(dict.fromkeys(name for name in needed if name in LABELS))


def _source(labels: Any, checker: Any, cassette: Any, options: Mapping[str, Any]) -> _LabelSource:
    if isinstance(checker, str):
        checker = make_checker(checker, cassette=cassette)
    return _LabelSource(labels, checker, options)


def _plan(
    table: pd.DataFrame,
    wanted: Sequence[str],
    who: _LabelSource,
    cassette: Any,
    speeds: Mapping[str, Any],
) -> Plan:
    if isinstance(cassette, str | Path):
        cassette = Cassette(cassette) if Path(cassette).is_file() else None
    calls: Counter[str] = Counter()
    for label in wanted:
        if count := LABELS[label].calls:
            calls += Counter(count(_complete_rows(label, table)))
    if who.checker is not None:
        calls.pop("claim check", None)
    planned = plan(calls, who.model, cassette, **speeds) if calls else Plan()
    if isinstance(who.checker, ModelChecker) and "claim_labels" in wanted:
        results = _results(_complete_rows("claim_labels", table))
        # one claim and one text a prompt
        checks = ragchecker_calls(results, joint=1)["claim check"]
        planned += plan({"claim check": checks}, who.checker.model, cassette, **speeds)
    return planned


# Labels: how each is made, and the calls that takes


def _results(rows: pd.DataFrame) -> list[RagResult]:
    names = rows["question_id"].astype(str)
    names = names + " " + rows["system"].astype(str) if "system" in rows else names
    if names.duplicated().any():
        names = names + " #" + names.groupby(names).cumcount().add(1).astype(str)
    results = []
    for name, row in zip(names, rows.to_dict("records"), strict=True):
        true = row.get("long_reference")
        claims = row.get("reference_claims")
        true = row["reference"] if is_missing(true) else true
        chunks = tuple(RetrievedText(text=text) for text in row["chunks"])
        result = RagResult(name, row["question"], true, row["answer"], chunks)
        results.append(
            result if is_missing(claims) else replace(result, reference_claims=tuple(claims))
        )
    return results


def _claim_labels(rows: pd.DataFrame, who: _LabelSource, cassette: Any) -> list[RagResult]:
    labelled = ragchecker_labels(
        who.model, _results(rows), checker=who.checker, cassette=cassette, **who.options
    )
    # With None for what could not be read, as the inspector shows it.
    return [
        replace(result, **labelled.partial.get(result.id, {}))
        for result in labelled.results.results
    ]


def _keypoints(rows: pd.DataFrame, who: _LabelSource, cassette: Any) -> Sequence[Any]:
    """The claims of the true answer, where nobody wrote key points."""
    texts = rows["reference"].tolist()
    questions = rows["question"].tolist()
    return extract_claims(
        who.model, texts, questions=questions, cassette=cassette, **who.options
    ).labels


def _keypoint_verdicts(rows: pd.DataFrame, who: _LabelSource, cassette: Any) -> Sequence[Any]:
    questions, answers, points = (
        rows[name].tolist() for name in ("question", "answer", "keypoints")
    )
    return keypoint_verdicts(
        who.model, questions, answers, points, cassette=cassette, **who.options
    ).labels


def _grade(rows: pd.DataFrame, who: _LabelSource, cassette: Any) -> list[Any]:
    questions = []
    answers = []
    for i, row in enumerate(rows.itertuples()):
        questions.append(Question(str(i), row.question, row.reference, tuple(row.references)))
        answers.append(Answer(str(i), row.answer, ""))
    graded = grade(who.model, questions, answers, cassette=cassette, **who.options)
    return [each.value for each in graded]


def _ragas(rows: pd.DataFrame, who: _LabelSource, cassette: Any) -> list[Any]:
    model = ModelRagas(who.model, cassette=cassette, **who.options)
    questions, answers, contexts = (
        rows[name].tolist() for name in ("question", "answer", "context")
    )
    scores = {
        "faithfulness": model.faithfulness(answers, contexts),
        "answer_relevance": model.answer_relevance(questions, answers),
        "context_relevance": model.context_relevance(questions, contexts),
    }
    return pd.DataFrame(
        {name: table["score"].to_numpy() for name, table in scores.items()}
    ).to_dict("records")


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
        lambda rows: {"keypoints": len(rows)},
    ),
    "grade": LabelMethod(
        ("question", "answer", "reference", "references"),
        _grade,
        lambda rows: {"grading": len(rows)},
    ),
    "abstained": LabelMethod(("grade",), lambda rows, who, cassette: rows["grade"].eq(1).tolist()),
    "ragas": LabelMethod(
        ("question", "answer", "context"),
        _ragas,
        lambda rows: dict.fromkeys(("statements", "verdicts", "questions", "sentences"), len(rows)),
    ),
}
