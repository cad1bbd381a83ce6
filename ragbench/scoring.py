"""From answers to metrics, by name: for the rows of an experiment, or anybody's own answers."""

from __future__ import annotations

import math
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import pandas as pd

from ragbench.data.answers import lacks, read_answers
from ragbench.errors import DataError
from ragbench.labelling.checkers import ModelChecker, PairCounter, asks_model, make_checker
from ragbench.llm import Plan, Step
from ragbench.metrics.table import METRICS, find_numbers, language, lower_is_better, numbers_by_column, readable
from ragbench.records import Answer, Question
from ragbench.text.languages import language_of

CLAIMS_PER_TEXT = 10  # that a plan reckons with before any text is taken apart


def score(
    rows: Any,
    metrics: Sequence[str],
    labels: Any = "embedded",
    columns: Mapping[str, str] | None = None,
    *,
    checker: Any = None,
    **options: Any,
) -> pd.DataFrame:
    """Compute metrics of every answer.

    Parameters
    ----------
    rows : one per answer, from anywhere: see `ragbench.data.answers.read_answers`. What is there is used, labels too;
        only labels that a metric needs and the rows lack are made. Or the folder or name of a run, with its
        experiment.yaml beside the rows; see ``Experiment.answers``.
    metrics : names in `ragbench.metrics.table`: of ``METRICS``, of ``GROUPS``, or of single numbers
        (``"claim_recall"``). `metric_table` lists them.
    labels : who labels: "embedded" (no language model), or a chat model as for `ragbench.llm.ask`. What it will be
        asked is printed first, as `plan_score` says it.
    columns : our name -> the name in your rows, e.g. ``{"reference": "gold_answer"}``.
    checker : who checks the claims of ``claim_labels``, in place of ``labels``, which then only takes the texts apart:
        a name as for `ragbench.labelling.checkers.make_checker`, or an object as `embedded_labels` takes it.
    options : for `ragbench.llm.ask`: ``cassette`` (with one, an interrupted call goes on where it stopped),
        ``concurrency``, ``progress`` ...

    Returns
    -------
    DataFrame: the rows in our names; a column for each number (``keypoints_hallucination`` where RAGChecker's
    ``hallucination`` has the name); the labels made, of which ``claim_labels`` opens in
    `ragbench.widgets.ClaimInspector`; ``labelled_by``; ``unscored``: how many of the row's numbers are NaN, and
    ``reason``: why. ``attrs`` has "numbers": the columns of numbers, for `ragbench.means`; "model": which one labelled,
    with digest and options; "checker": of claims, where one was named; "repairs": what was mended in the rows.

    Raises
    ------
    ConfigError for an unknown metric. DataError, before anything runs, for columns that are not there, with the metrics
    that can be computed without them.

    >>> score([{"answer": "Paris", "reference": "Paris, France"}], ["exact_match", "token_f1"])["token_f1"].round(2)[0]
    0.67
    """
    table, asked = _prepare(rows, metrics, columns)
    wanted = _labels_of(asked, table)
    by = _labeller(labels, checker, options)
    if wanted and by.model is None:
        _warn_of_languages(table)
    if wanted and by.asks and options.get("progress") is not False:
        print(_plan(table, wanted, by, {}), file=sys.stderr)
    for label in wanted:
        table[label] = _made(label, table, by)
    values = {name: _values(name, table) for name in dict.fromkeys(name for name, _ in asked.values())}
    for column, (name, key) in asked.items():
        if column in table:
            table = table.rename(columns={column: f"given_{column}"})
        each = [value[key] if isinstance(value, Mapping) else value for value, _ in values[name]]
        table[column] = pd.Series(each, table.index, dtype=float)
    made_by: dict[str, Any] = {}
    if any(need in LABELS for name in values for need in METRICS[name].needs):
        who = _identity(by.model, options.get("cassette")) if wanted and by.model is not None else {}
        checked = f"; claims by {by.checker!r}" if by.checker is not None and "claim_labels" in wanted else ""
        first = "{provider}:{model}".format(**who) if who else "embedded" if wanted else "given"
        table["labelled_by"] = first + checked
        made_by = {"model": who} | ({"checker": repr(by.checker)} if checked else {})
    table["unscored"] = table[list(asked)].isna().sum(axis=1)
    table["reason"] = [_reason(i, table, asked, values) for i in table.index]
    # Last: pandas copies attrs at every look into the table.
    table.attrs |= made_by | {"numbers": list(asked)}
    return table


def plan_score(
    rows: Any,
    metrics: Sequence[str],
    labels: Any = "embedded",
    columns: Mapping[str, str] | None = None,
    cassette: Any = None,
    *,
    checker: Any = None,
    **speeds: Any,
) -> Plan:
    """Say what `score` will ask a chat model: calls, what of them is recorded, tokens, hours.

    Parameters
    ----------
    rows, metrics, labels, columns, cassette, checker : as for `score`.
    speeds : for `ragbench.llm.plan`: ``tokens_per_second``, ``price`` ...
    """
    table, asked = _prepare(rows, metrics, columns)
    return _plan(table, _labels_of(asked, table), _labeller(labels, checker, {"cassette": cassette}), speeds)


def compare_scores(table: pd.DataFrame, columns: Sequence[str] | None = None, **options: Any) -> pd.DataFrame:
    """Compare systems in pairs over the same questions, corrected by Holm for all that is compared.

    Parameters
    ----------
    table : from `score`, with a column ``system``.
    columns : numbers to compare; None: all. Choose few, and before you look.
    options : for `ragbench.stats.compare_pairs`: ``power``, ``alpha``, ``seed`` ...

    Returns
    -------
    DataFrame as from `ragbench.comparison.compare_systems`, which `ragbench.comparison.verdicts` puts into words. Pairs
    without a question scored for both are left out.

    Raises
    ------
    DataError without two systems, or when one has answered a question twice.
    """
    from ragbench.stats import compare_pairs

    systems = list(dict.fromkeys(table["system"])) if "system" in table else []
    if len(systems) < 2:
        raise DataError(
            f"{len(systems)} systems", "two or more in the column 'system'", "name yours: columns={'system': 'model'}"
        )
    if table.duplicated(["question_id", "system"]).any():
        raise DataError("a system answered a question twice", "one row per question and system", "drop one of them")
    wide = {
        name: table.pivot(index="question_id", columns="system", values=name)
        for name in columns or table.attrs["numbers"]
    }
    scores = {(a, b, m): (each[a], each[b]) for m, each in wide.items() for a, b in combinations(systems, 2)}
    both = {key: pair for key, pair in scores.items() if (pair[0] - pair[1]).notna().any()}
    return compare_pairs(both, ("a", "b", "measure"), **options)


def metric_table() -> pd.DataFrame:
    """List the numbers there are: metric, columns needed, source, range, and whether they need labels."""
    lines, lower = [], lower_is_better()
    for column, (name, _) in numbers_by_column().items():
        metric = METRICS[name]
        made = [need for need in metric.needs if need in LABELS]
        needs = dict.fromkeys(base for need in metric.needs for base in _bases(need))
        way = f"{', '.join(made)}: embedded or a model" if made else "none"
        low, high = metric.range
        span = f"{low:g} to {high:g}{', lower is better' * (column in lower)}"
        lines.append((column, name, ", ".join(needs), metric.source, span, way))
    return pd.DataFrame(lines, columns=["number", "metric", "needs", "source", "range", "labels"])


def _of_run(run: Path) -> pd.DataFrame:
    """Return the rows of a run with the texts behind them, by the experiment file that lies beside them."""
    from ragbench.experiment import Experiment, load_rows
    from ragbench.experiment.rows import AXIS_COLUMNS, run_folder

    rows, file = load_rows(run), run_folder(run) / "experiment.yaml"
    if not file.is_file():
        raise DataError(
            f"{file.parent} holds the rows of a run without the texts behind them",
            f"the file that made them, as {file.name} beside them",
            "name it: rb.score(Experiment.from_yaml(FILE).answers(rb.load_rows(RUN)), [...])",
        )
    return Experiment.from_yaml(file).answers(rows.drop_duplicates([*AXIS_COLUMNS], keep="last"))


def columns_of(metrics: Sequence[str]) -> set[str]:
    """Return the columns that metrics are computed from where no label is there yet."""
    names = {name for name, _ in find_numbers(metrics).values()}
    return {base for name in names for need in METRICS[name].needs for base in _bases(need)}


def _prepare(
    rows: Any, metrics: Sequence[str], columns: Mapping[str, str] | None
) -> tuple[pd.DataFrame, dict[str, tuple[str, str]]]:
    asked = find_numbers(metrics)
    if isinstance(rows, str | Path) and not Path(rows).suffix and not Path(rows).expanduser().is_file():
        rows = _of_run(Path(rows))
    elif isinstance(rows, pd.DataFrame) and {"answer_key", "hits"} <= set(rows) and "question" not in rows:
        raise DataError("rows of a run without the texts behind them", "both", "take experiment.answers(rows)")
    table = read_answers(rows, columns)
    if "context" not in table and "chunks" in table:
        table["context"] = table["chunks"].map(lambda chunks: None if lacks(chunks) else " ".join(chunks))
    _require(table, dict.fromkeys(name for name, _ in asked.values()))
    return table, asked


def _bases(need: str) -> tuple[str, ...]:
    """Return the columns that a need comes from, when nothing is there yet."""
    return tuple(b for n in LABELS[need].needs for b in _bases(n)) if need in LABELS else (need,)


def _lacking(need: str, table: pd.DataFrame) -> dict[str, str]:
    """Return what a need lacks -> the label that needs it ("" where it is the need itself)."""
    if need in table and table[need].notna().any():
        return {}
    if need not in LABELS:
        return {need: ""}
    return {base: by or need for n in LABELS[need].needs for base, by in _lacking(n, table).items()}


def _require(table: pd.DataFrame, asked: Mapping[str, None]) -> None:
    """Say all that is missing, before anything runs."""
    missing = {
        name: {base: label for need in metric.needs for base, label in _lacking(need, table).items()}
        for name, metric in METRICS.items()
    }
    lines = [
        f"no column {column!r}, which {f'label {label!r} needs, for ' if label else ''}metric {name!r}"
        f"{'' if label else ' needs'}"
        for name in asked
        for column, label in missing[name].items()
    ]
    if lines:
        there = ", ".join(map(str, table.columns.drop("question_id", errors="ignore")))
        column = next(column for name in asked for column in missing[name])
        possible = ", ".join(name for name, lacking in missing.items() if not lacking) or "none"
        raise DataError(
            "\n    ".join(lines) + f"\n  there is {there}",
            "a column of that name",
            f"add it, or name yours: columns={{{column!r}: ...}}; what can be computed as it is: {possible}",
        )


def _labels_of(asked: Mapping[str, tuple[str, str]], table: pd.DataFrame) -> list[str]:
    """Return the labels to be made, each after those it is made from."""
    wanted: list[str] = []

    def add(need: str) -> None:
        if need in LABELS and not (need in table and table[need].notna().any()):
            for before in LABELS[need].needs:
                add(before)
            if need not in wanted:
                wanted.append(need)

    for name, _ in asked.values():
        for need in METRICS[name].needs:
            add(need)
    return wanted


def _whole(label: str, table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that have all a label is made from."""
    needs = list(LABELS[label].needs)
    return table[~table[needs].map(lacks).any(axis=1)]


def _made(label: str, table: pd.DataFrame, by: Labeller) -> pd.Series:
    """Labels for the rows that have all that is needed; None for the others."""
    whole = _whole(label, table)
    made = LABELS[label].make(whole, by) if len(whole) else []
    return pd.Series(dict(zip(whole.index, made, strict=True)), table.index, dtype=object).where(pd.notna, None)


def _values(name: str, table: pd.DataFrame) -> list[tuple[Any, str]]:
    """Return the metric of each row, and why there is none."""
    metric, values = METRICS[name], []
    for i in table.index:
        cells = [table.at[i, need] for need in metric.needs]
        absent = [need for need, cell in zip(metric.needs, cells, strict=True) if lacks(cell)]
        values.append((math.nan, _why(absent[0], i, table)) if absent else (metric.function(*cells), ""))
    return values


def _why(need: str, i: int, table: pd.DataFrame) -> str:
    for base in LABELS[need].needs if need in LABELS else ():
        if base in table and lacks(table.at[i, base]):
            return _why(base, i, table)
    return f"{need} could not be read" if need in LABELS else f"no {need}"


def _reason(
    i: int, table: pd.DataFrame, asked: Mapping[str, tuple[str, str]], values: Mapping[str, Sequence[tuple[Any, str]]]
) -> str:
    why: dict[str, list[str]] = {}
    for column, (name, _) in asked.items():
        if math.isnan(table.at[i, column]):
            unread = name == "ragchecker" and not values[name][i][1] and not readable(table.at[i, "claim_labels"])
            reason = values[name][i][1] or ("a label could not be read" if unread else "undefined")
            why.setdefault(reason, []).append(column)
    return "; ".join(f"{reason}: {', '.join(columns)}" for reason, columns in why.items())


def _warn_of_languages(table: pd.DataFrame) -> None:
    texts = [column for column in ("question", "answer", "reference") if column in table]
    spoken = [language_of(str(cell) for cell in row if not lacks(cell)) for row in table[texts].to_numpy()]
    others = Counter(name for name in spoken if name not in (None, "english"))
    if others:
        named = ", ".join(f"{name} {n}" for name, n in others.most_common())
        warnings.warn(
            f"{others.total()} of {len(table)} answers are not in English ({named}): embedded labels are made for "
            "English; name a model that reads the language, labels='ollama:...'",
            stacklevel=3,
        )


def _identity(model: Any, cassette: Any) -> dict[str, Any]:
    from ragbench.experiment.identity import hosts_of, model_identity
    from ragbench.llm import Cassette

    tape = Cassette(cassette) if isinstance(cassette, str | Path) else cassette
    return model_identity(hosts_of(model), tape, None, ask_server=False)


def _plan(table: pd.DataFrame, wanted: Sequence[str], by: Labeller, speeds: Mapping[str, Any]) -> Plan:
    steps: list[Step] = []
    for label in wanted if by.model is not None else ():
        waits = [need for need in LABELS[label].needs if need in wanted]
        if waits:  # prompts that are made of replies
            steps.append(Step(f"{label}, at most", calls=len(table)))
        else:
            steps += LABELS[label].steps(_whole(label, table))
    if by.checker is not None:
        steps = [step for step in steps if not step.name.startswith("claim check")]
    planned = _planned(steps, by.model, by.options.get("cassette"), speeds)
    if isinstance(by.checker, ModelChecker) and "claim_labels" in wanted:
        step = _check_step(_whole("claim_labels", table), by)
        planned += _planned([step], by.checker.model, by.checker.options.get("cassette"), speeds)
    return planned


def _planned(steps: Sequence[Step], model: Any, cassette: Any, speeds: Mapping[str, Any]) -> Plan:
    from ragbench.llm import Cassette, plan

    if isinstance(cassette, str | Path):
        cassette = Cassette(cassette) if Path(cassette).is_file() else None
    first = model[0] if isinstance(model, list | tuple) else model
    return plan([step for step in steps if len(step.prompts) or step.calls], first, cassette, **speeds)


# Labels: how each is made, and what that takes


@dataclass(frozen=True, slots=True)
class Labeller:
    """Who labels: a chat model (None: embedded), a checker of claims (None: the former), options for ``ask``."""

    model: Any
    checker: Any
    options: Mapping[str, Any]

    @property
    def asks(self) -> bool:
        """Whether a chat model is asked."""
        return self.model is not None or isinstance(self.checker, ModelChecker)


def _labeller(labels: Any, checker: Any, options: Mapping[str, Any]) -> Labeller:
    if isinstance(checker, str):
        checker = make_checker(checker, **({"cassette": options.get("cassette")} if asks_model(checker) else {}))
    return Labeller(None if isinstance(labels, str) and labels == "embedded" else labels, checker, options)


def _results(rows: pd.DataFrame) -> list[Any]:
    from ragbench.data.ragchecker import RagResult, RetrievedText

    names = rows["question_id"].astype(str)
    names = names + " " + rows["system"].astype(str) if "system" in rows else names
    if names.duplicated().any():
        names = names + " #" + names.groupby(names).cumcount().add(1).astype(str)
    return [
        RagResult(name, row.question, row.reference, row.answer, tuple(RetrievedText(text=text) for text in row.chunks))
        for name, row in zip(names, rows.itertuples(), strict=True)
    ]


def _claim_labels(rows: pd.DataFrame, by: Labeller) -> list[Any]:
    from ragbench.labelling.claims import embedded_labels, ragchecker_labels

    results = _results(rows)
    if by.model is not None and by.checker is None:
        labelled = ragchecker_labels(by.model, results, **by.options)
    else:
        results = results if by.model is None else _taken_apart(results, by)
        read = [result for result in results if by.model is None or result.response_claims is not None]
        labelled = embedded_labels(read, by.checker)
        known = {result.id: result for result in labelled.results.results}
        return [known.get(result.id, result) for result in results]
    partial: dict[Any, dict[str, Any]] = {}
    for (name, check), part in labelled.partial.items():
        partial.setdefault(name, {})[check] = part  # with None for what could not be read, as the inspector shows it
    return [replace(result, **partial.get(result.id, {})) for result in labelled.results.results]


def _taken_apart(results: Sequence[Any], by: Labeller) -> list[Any]:
    """Put in the claims that the model takes out; none for a result of which a text could not be read."""
    from ragbench.labelling.claims import extract_claims

    texts = [text for result in results for text in (result.response, result.reference)]
    claims = extract_claims(by.model, texts, **by.options).claims
    sides = zip(results, claims[::2], claims[1::2], strict=True)
    return [
        result if None in (said, true) else replace(result, response_claims=said, reference_claims=true)
        for result, said, true in sides
    ]


def _check_step(rows: pd.DataFrame, by: Labeller) -> Step:
    """Count what a checker that is a chat model is asked: exactly where sentences are the claims."""
    from ragbench.labelling.claims import embedded_labels

    results, pairs = _results(rows), PairCounter()
    if by.model is not None:
        every = range(CLAIMS_PER_TEXT)
        sides = {"response_claims": "response", "reference_claims": "reference"}
        results = [
            replace(r, **{side: tuple(f"{i} {getattr(r, text)}" for i in every) for side, text in sides.items()})
            for r in results
        ]
    embedded_labels(results, pairs)
    if by.model is not None:
        return Step(f"claim check, if {CLAIMS_PER_TEXT} claims per text", calls=len(dict.fromkeys(pairs.pairs)))
    return Step("claim check", prompts=[by.checker.prompt(*pair) for pair in pairs.pairs])


def _claim_steps(rows: pd.DataFrame) -> list[Step]:
    from ragbench.labelling.claims import steps_for_ragchecker

    return steps_for_ragchecker(_results(rows), claims_per_text=CLAIMS_PER_TEXT)


def _keypoints(rows: pd.DataFrame, by: Labeller) -> list[Any]:
    """The claims of the true answer, where nobody wrote key points."""
    from ragbench.labelling.claims import extract_claims
    from ragbench.labelling.embedded_checker import split_claims

    texts = rows["reference"].tolist()
    if by.model is None:
        return [split_claims(text) for text in texts]
    return list(extract_claims(by.model, texts, **by.options).claims)


def _keypoint_steps(rows: pd.DataFrame) -> list[Step]:
    from ragbench.labelling.asking import as_step
    from ragbench.labelling.claims import claim_requests

    return [as_step("keypoints", [r for r in claim_requests(rows["reference"].tolist(), "sentence", None) if r])]


def _keypoint_verdicts(rows: pd.DataFrame, by: Labeller) -> list[Any]:
    from ragbench.labelling.keypoints import embedded_keypoint_verdicts, keypoint_verdicts

    points, answers = rows["keypoints"].tolist(), rows["answer"].tolist()
    if by.model is None:
        return embedded_keypoint_verdicts(points, answers, [language(own) for own in points])
    return list(keypoint_verdicts(by.model, rows["question"].tolist(), answers, points, **by.options).labels)


def _verdict_steps(rows: pd.DataFrame) -> list[Step]:
    from ragbench.labelling.keypoints import steps_for_keypoints

    return steps_for_keypoints(*(rows[name].tolist() for name in ("question", "answer", "keypoints")))


def _to_grade(rows: pd.DataFrame) -> tuple[list[Question], list[Answer]]:
    names = [str(i) for i in range(len(rows))]
    each = list(zip(names, rows.itertuples(), strict=True))
    return (
        [Question(name, row.question, row.reference, tuple(row.references)) for name, row in each],
        [Answer(name, row.answer, "") for name, row in each],
    )


def _grades(rows: pd.DataFrame, by: Labeller) -> list[Any]:
    from ragbench.labelling.embedded_grader import EmbeddedGrader
    from ragbench.labelling.grades import grade

    return [one.value for one in grade(by.model or EmbeddedGrader(), *_to_grade(rows), **by.options)]


def _grade_steps(rows: pd.DataFrame) -> list[Step]:
    from ragbench.labelling.grades import grading_prompts

    prompts = grading_prompts(*_to_grade(rows))
    return [Step("grading", [one.text for one in prompts], schema=[one.schema for one in prompts])]


def _ragas(rows: pd.DataFrame, by: Labeller) -> list[Any]:
    from ragbench.labelling.embedded_ragas import EmbeddedRagas
    from ragbench.labelling.statements import ModelRagas

    ragas: Any = EmbeddedRagas() if by.model is None else ModelRagas(by.model, **by.options)
    questions, answers, contexts = (rows[name].tolist() for name in ("question", "answer", "context"))
    scores = {
        "faithfulness": ragas.faithfulness(answers, contexts),
        "answer_relevance": ragas.answer_relevance(questions, answers),
        "context_relevance": ragas.context_relevance(questions, contexts),
    }
    return pd.DataFrame({name: table["score"].to_numpy() for name, table in scores.items()}).to_dict("records")


def _ragas_steps(rows: pd.DataFrame) -> list[Step]:
    from ragbench.labelling.statements import steps_for_ragas

    return steps_for_ragas(*(rows[name].tolist() for name in ("question", "answer", "context")))


@dataclass(frozen=True, slots=True)
class LabelWay:
    """How a label is made: from which columns, by which function, and with which calls of a model."""

    needs: tuple[str, ...]
    make: Callable[[pd.DataFrame, Labeller], list[Any]]
    steps: Callable[[pd.DataFrame], list[Step]]


LABELS: dict[str, LabelWay] = {
    "claim_labels": LabelWay(("question", "answer", "reference", "chunks"), _claim_labels, _claim_steps),
    "keypoints": LabelWay(("reference",), _keypoints, _keypoint_steps),
    "keypoint_verdicts": LabelWay(("question", "answer", "keypoints"), _keypoint_verdicts, _verdict_steps),
    "grade": LabelWay(("question", "answer", "reference", "references"), _grades, _grade_steps),
    "ragas": LabelWay(("question", "answer", "context"), _ragas, _ragas_steps),
}
