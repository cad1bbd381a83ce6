"""What a run will take, in counts: no vector is made and no model is asked."""

from __future__ import annotations

import contextlib
import math
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ragbench.embedding import CachedEmbeddings
from ragbench.experiment.axes import NONE, is_model
from ragbench.experiment.run import Run
from ragbench.labelling.grades import group_answers
from ragbench.llm import Cassette, Plan, PlannedStep, plan
from ragbench.onnx_models import cores
from ragbench.records import GRADES, Answer
from ragbench.retrieval.base import inner_searches
from ragbench.rows import Row


def plan_experiment(experiment: Any) -> Plan:
    """Count what an `Experiment` will embed, search, ask and grade.

    The steps are "embed" (texts without a vector on disk), "retrieve", "decompose" (calls of
    retrievers), "generation" and "grading". ``cached``: replies on the cassette, under the keys
    that the run will look up; where those cannot be known without a model, replies with the model's
    options, whatever their prompts.
    """
    with CachedEmbeddings.only_from_disk(), experiment.open_cassette(make=False) as cassette:
        options = experiment.options | {"progress": False, "on_miss": "reply"}
        run = Run(experiment, cassette, options)
        run.build()
        planned = _embeddings(run)
        for data, of_data in run.data.items():
            searches = {cell.search for cell in experiment.cells(data) if cell.N}
            planned += _step("retrieve", len(searches) * len(of_data.questions))
        planned += _retrievers(run)
        is_known = all(step.name == "retrieve" or not step.calls for step in planned)
        recorded = None
        if is_known:
            recorded = _recorded_rows(run)
        planned += _asked(run, cassette, recorded)
    return planned


def _asked(run: Run, cassette: Cassette | None, recorded: Sequence[Row] | None) -> Plan:
    """Count what generators and judges are asked."""
    planned = Plan()
    for axis, step in (("generator", "generation"), ("judge", "grading")):
        for label, person in getattr(run.experiment, axis).items():
            calls = _calls(run, axis, label)
            recorded_calls = None
            if recorded is not None:
                recorded_calls = _recorded_calls(recorded, axis, label)
            if is_model(person):
                planned += plan(
                    {step: calls},
                    person,
                    cassette,
                    recorded=recorded_calls,
                    concurrency=run.experiment.concurrency,
                )
            else:
                planned += _step(step, calls, cached=recorded_calls or 0)
    return planned


def _step(name: str, calls: int, seconds: float = 0.0, cached: int = 0) -> Plan:
    return Plan((PlannedStep(name, calls, cached, calls - cached, seconds),))


def _embeddings(run: Run) -> Plan:
    """Count the texts that have no vector on disk, each once for each file of vectors."""
    planned = Plan()
    for data, chunker in run.not_cut:
        note = f"{chunker} on {data} embeds to cut: its chunks are not counted yet"
        planned += Plan((), (note,))
    for embedder, texts in _texts_to_embed(run):
        planned += _step("embed", len(texts), _seconds(embedder, [*texts]))
    return planned


def _texts_to_embed(run: Run) -> list[tuple[Any, set[str]]]:
    to_embed = [(error.embedder, set(error.texts)) for error in run.not_cut.values()]
    by_place: dict[Any, tuple[Any, set[str]]] = {}  # of the file of vectors
    for (data, *_), engine in run.retrievers.items():
        queries = [question.text for question in run.data[data].questions]
        for part, of_queries in inner_searches(engine, queries):
            if not hasattr(part, "nearest"):  # it embeds nothing
                continue
            embedder = part.embedder
            place = getattr(embedder, "path", id(embedder))
            _, texts = by_place.setdefault(place, (embedder, set()))
            missing = _not_on_disk(embedder, part.texts, of_queries)
            texts.update(missing)
    return [*to_embed, *by_place.values()]


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


def _retrievers(run: Run) -> Plan:
    """Count what retrievers ask of models."""
    planned = Plan()
    for (data, *_), engine in run.retrievers.items():
        for part, _ in inner_searches(engine, ()):
            decompose = getattr(part, "decompose", None)
            if not hasattr(decompose, "model"):
                continue
            tape = decompose.cassette
            if tape is not None and not isinstance(tape, Cassette):
                tape = _existing(Path(tape))
            calls = len(run.data[data].questions)
            planned += plan({"decompose": calls}, decompose.model, tape)
    return planned


def _existing(path: Path) -> Cassette | None:
    if path.exists():
        return Cassette(path)
    return None


def _calls(run: Run, axis: str, label: str) -> int:
    """Count the prompts of a generator or judge; an object grades each answer alone."""
    experiment = run.experiment
    by_model = axis == "judge" and is_model(experiment.judge[label])
    count = 0
    for data, of_data in run.data.items():
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


def planned_rows(experiment: Any) -> list[Row] | None:
    """Return the rows of a run as far as they are known before it, for the plan of its metrics.

    An answer that is not recorded is a sentence that stands for it. None where vectors are missing,
    without which nothing can be searched.
    """
    with CachedEmbeddings.only_from_disk(), experiment.open_cassette(make=False) as cassette:
        options = experiment.options | {"progress": False, "on_miss": "reply"}
        run = Run(experiment, cassette, options)
        run.build()
        if run.not_cut or _texts_are_missing(run):
            return None
        rows = _rows_without_asking(run)
    for row in rows:
        if row.answer is None:
            row.status = "ok"
            row.answer = f"{row.generator} has not answered yet what {row.place} stands for here."
        if row.judge != NONE and row.grade is None:
            row.grade = max(row.judge_scale or GRADES)
    return rows


def _texts_are_missing(run: Run) -> bool:
    return any(texts for _, texts in _texts_to_embed(run))


def _recorded_rows(run: Run) -> list[Row] | None:
    """Return the rows whose answers are recorded under the run's own keys.

    None where an object of the user's grades, which is not recorded.
    """
    if run.cassette is None:
        return []
    if not all(map(is_model, run.experiment.judge.values())):
        return None
    return [row for row in _rows_without_asking(run) if row.cached]


def _rows_without_asking(run: Run) -> list[Row]:
    """Make rows as the run makes them, from the cassette alone."""
    with contextlib.ExitStack() as stack:
        tape = run.cassette
        if tape is None:
            empty = stack.enter_context(tempfile.TemporaryDirectory())
            tape = Cassette(Path(empty) / "empty.sqlite")
        if tape.mode == "record":
            tape = stack.enter_context(Cassette(tape.path, "replay"))
        run.cassette = tape
        run.only_recorded = True
        run.meet_models()
        run.pool = stack.enter_context(ThreadPoolExecutor(cores()))
        return [row for rows in run.rows() for row in rows]


def _recorded_calls(rows: Sequence[Row], axis: str, label: str) -> int:
    """Count the recorded calls of a generator or judge; several answers may share a grading."""
    of_label = [row for row in rows if getattr(row, axis) == label]
    if axis == "generator":
        places = {(row.data, row.place) for row in of_label}
        return len(places)
    shares = [1 / row.judge_shown for row in of_label if row.grade is not None]
    return round(sum(shares))
