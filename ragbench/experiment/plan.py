"""What a run will take, in counts: no vector is made and no model is asked."""

from __future__ import annotations

import contextlib
import math
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ragbench.embedding import CachedEmbeddings
from ragbench.experiment.axes import NONE, is_model
from ragbench.experiment.build import Built, Person
from ragbench.experiment.grid import Grid
from ragbench.experiment.run import Run
from ragbench.labelling.grades import group_answers
from ragbench.llm import Cassette, Plan, plan
from ragbench.onnx_models import cores
from ragbench.records import GRADES, Answer
from ragbench.retrieval.base import inner_searches
from ragbench.rows import Row
from ragbench.scoring import check_metrics, plan_score

_UNKNOWN = "what of it is recorded is known once vectors and decompositions are there"


def plan_experiment(experiment: Grid) -> Plan:
    """Count what an `Experiment` will embed, search, ask and grade, and what the labels of its
    metrics take.

    The steps are "embed" (texts without a vector on disk), "retrieve", "decompose" (calls of
    retrievers), "generation", "grading", and those of labels. ``cached``: replies on the cassette,
    under the keys that the run will look up; NaN where these cannot be known yet.
    """
    with CachedEmbeddings.only_from_disk(), experiment.open_cassette(make=False) as cassette:
        built = Built.of(experiment)
        planned = _embeddings(built)
        for data, of_data in built.data.items():
            searches = {cell.search for cell in experiment.cells(data) if cell.N}
            planned += Plan.of("retrieve", len(searches) * len(of_data.questions), cached=0)
        planned += _decompositions(built)
        is_known = all(step.name == "retrieve" or not step.calls for step in planned)
        rows = None
        if is_known:
            rows = _recorded_rows(experiment, built, cassette)
        planned += _people(experiment, built, cassette, rows)
        if experiment.metrics:
            planned += _labels(experiment, cassette, rows)
    return planned


# -- vectors and retrievers


def _embeddings(built: Built) -> Plan:
    """Count the texts that have no vector on disk, each once for each file of vectors."""
    planned = Plan()
    for data, chunker in built.not_cut:
        note = f"{chunker} on {data} embeds to cut: its chunks are not counted yet"
        planned += Plan((), (note,))
    to_embed = [(error.embedder, {*error.texts}) for error in built.not_cut.values()]
    for embedder, texts in [*to_embed, *_without_vector(built)]:
        planned += Plan.of("embed", len(texts), 0, _seconds(embedder, [*texts]))
    return planned


def _without_vector(built: Built) -> Iterable[tuple[Any, set[str]]]:
    """Return embedders with the texts that their files of vectors lack."""
    by_place: dict[Any, tuple[Any, set[str]]] = {}  # of the file of vectors
    for (data, *_), engine in built.retrievers.items():
        queries = [question.text for question in built.data[data].questions]
        for part, of_queries in inner_searches(engine, queries):
            if hasattr(part, "nearest"):  # it embeds
                embedder = part.embedder
                place = getattr(embedder, "path", id(embedder))
                _, texts = by_place.setdefault(place, (embedder, set()))
                texts.update(_not_on_disk(embedder, part.texts, of_queries))
    return by_place.values()


def _seconds(embedder: Any, texts: Sequence[str]) -> float:
    """Say about how long it takes to embed texts; NaN where that is not known."""
    if not texts:
        return 0.0
    estimate = getattr(getattr(embedder, "embedder", None), "seconds_for", None)
    if estimate is None:
        return math.nan
    return estimate(texts)


def _not_on_disk(embedder: Any, texts: Sequence[str], queries: Sequence[str]) -> list[str]:
    if not isinstance(embedder, CachedEmbeddings):
        return [*texts, *queries]
    return embedder.not_on_disk(texts) + embedder.not_on_disk(queries, queries=True)


def _decompositions(built: Built) -> Plan:
    """Count what retrievers ask of models."""
    planned = Plan()
    for (data, *_), engine in built.retrievers.items():
        for part, _ in inner_searches(engine, ()):
            decompose = getattr(part, "decompose", None)
            if decompose is None or not hasattr(decompose, "model"):
                continue
            tape = decompose.cassette
            if tape is not None and not isinstance(tape, Cassette):
                tape = Cassette(tape) if Path(tape).exists() else None
            calls = len(built.data[data].questions)
            planned += plan({"decompose": calls}, decompose.model, tape)
    return planned


# -- answers and grades


def _people(
    experiment: Grid, built: Built, cassette: Cassette | None, rows: Sequence[Row] | None
) -> Plan:
    """Count what generators and judges are asked."""
    planned = Plan()
    for axis, step in (("generator", "generation"), ("judge", "grading")):
        for label, person in getattr(experiment, axis).items():
            calls = _calls(experiment, built, axis, label)
            recorded = 0.0
            if rows is not None:
                recorded = _recorded_calls(rows, axis, label)
            elif cassette is not None and len(cassette):
                recorded = math.nan
            if is_model(person):
                at_once = experiment.concurrency
                planned += plan(
                    {step: calls}, person, cassette, recorded=recorded, concurrency=at_once
                )
            else:
                planned += Plan.of(step, calls, recorded)
            if math.isnan(recorded):
                planned += Plan((), (f"{step}: {_UNKNOWN}",))
    return planned


def _calls(experiment: Grid, built: Built, axis: str, label: str) -> int:
    """Count the prompts of a generator or judge; an object grades each answer alone."""
    by_model = axis == "judge" and is_model(experiment.judge[label])
    count = 0
    for data, of_data in built.data.items():
        all_cells = experiment.cells(data)
        cells = [cell for cell in all_cells if getattr(cell, axis) == label]
        contexts = {(*cell.search, cell.N, cell.generator) for cell in cells}
        prompts = len(contexts)
        if by_model and experiment.per_prompt != "one":
            shown = []  # answers to a question by different generators are not shown together
            for cell in cells:
                place = {"retriever": cell.search, "budget": cell.N}
                shown.append(Answer(cell.generator, "", cell.generator, meta=place))
            prompts = len(group_answers(shown, experiment.per_prompt))
        count += prompts * len(of_data.questions)
    return count


def _recorded_rows(experiment: Grid, built: Built, cassette: Cassette | None) -> list[Row]:
    """Make the rows as the run makes them, from the cassette alone."""
    if not experiment.metrics and (cassette is None or not experiment.generator):
        return []
    options = {**experiment.options, "progress": False, "on_miss": "reply"}
    with contextlib.ExitStack() as stack:
        if cassette is None:
            empty = stack.enter_context(tempfile.TemporaryDirectory())
            cassette = Cassette(Path(empty) / "empty.sqlite")
        if cassette.mode == "record":
            cassette = stack.enter_context(Cassette(cassette.path, "replay"))
        people = Person.meet(experiment, cassette)
        pool = stack.enter_context(ThreadPoolExecutor(cores()))
        run = Run(experiment, built, people, cassette, pool, options, only_recorded=True)
        return [row for rows in run.rows() for row in rows]


def _recorded_calls(rows: Sequence[Row], axis: str, label: str) -> float:
    """Count the recorded calls of a generator or judge; several answers may share a grading."""
    of_label = [row for row in rows if getattr(row, axis) == label]
    if axis == "generator":
        places = {(row.data, row.place) for row in of_label if row.cached}
        return len(places)
    return round(sum(1 / (row.judge_shown or 1) for row in of_label if row.grade is not None))


# -- labels of metrics


def _labels(experiment: Grid, cassette: Cassette | None, rows: Sequence[Row] | None) -> Plan:
    """Count what the labels of the metrics take: of recorded answers some may be recorded, of the
    others none.
    """
    left_out = check_metrics(
        experiment.metrics,
        experiment.labels,
        bool(experiment.generator),
        bool(experiment.judge),
    )
    notes = [f"metrics: {', '.join(experiment.metrics)}, after the run", left_out]
    if rows is None:
        notes.append("labels of the metrics are counted once vectors are there")
        rows = []
    planned = Plan((), tuple(filter(None, notes)))
    parts: dict[bool, list[Row]] = {True: [], False: []}
    for row in rows:
        parts[row.answer is not None or row.generator == NONE].append(_with_answer(row))
    for is_recorded, part in parts.items():
        if part:
            planned += plan_score(
                Row.frame(part),
                experiment.metrics,
                experiment.labels,
                cassette=cassette,
                checker=experiment.checker,
                concurrency=experiment.concurrency,
                recorded=is_recorded,
            )
    return planned


def _with_answer(row: Row) -> Row:
    """Return a row with a sentence in place of an answer that is not there yet, and a grade."""
    if row.answer is None and row.generator != NONE:
        row.status = "ok"
        row.answer = f"{row.generator} has not answered yet what {row.place} stands for here."
    if row.judge != NONE and row.grade is None:
        row.grade = max(row.judge_scale or GRADES)
    return row
