"""What a run will take, in counts: no vector is made and no model is asked."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

from ragbench.embedding import CachedEmbeddings, NotOnDiskError, only_from_disk
from ragbench.experiment.axes import is_model
from ragbench.experiment.grid import Grid
from ragbench.labelling.grades import group_answers
from ragbench.llm import Cassette, Plan, PlannedStep, plan
from ragbench.records import Answer, Dataset
from ragbench.retrieval.base import retriever_settings
from ragbench.retrieval.multiquery import dense_searches, model_calls


def plan_experiment(
    experiment: Grid,
    recorded: Mapping[tuple[str, str, str], int] | None,
    **speeds: Any,
) -> Plan:
    """Count what a run will embed, search, ask and grade.

    The steps are "embed" (texts without a vector on disk), "retrieve", "decompose" and "rerank"
    (calls of retrievers), "generation" and "grading". ``cached``: replies on the cassette.
    ``recorded`` : the calls of a run that are on the cassette, by data set, axis and model; None:
    not known, then replies with the model's options are counted, whatever their prompts.
    ``speeds`` are for `ragbench.llm.plan`: ``seconds_per_call`` of a step of which nothing is
    recorded.
    """
    plan = Plan()
    with experiment.open_cassette(make=False) as cassette:
        for name, value in experiment.data.items():
            data = value if isinstance(value, Dataset) else value()
            plan += _retrieval(experiment, name, data, speeds)
            cells = experiment.cells(name)
            count = len(data.questions)
            for label, model in experiment.generator.items():
                prompts = len({cell.answer for cell in cells if cell.generator == label})
                known = None if recorded is None else recorded.get((name, "generator", label), 0)
                asked = speeds | {"recorded": known}
                plan += _calls("generation", count * prompts, model, cassette, asked)
            for label, model in experiment.judge.items():
                prompts = _gradings(
                    experiment, [cell for cell in cells if cell.judge == label], is_model(model)
                )
                known = None if recorded is None else recorded.get((name, "judge", label), 0)
                asked = speeds | {"recorded": known}
                plan += _calls("grading", count * prompts, model, cassette, asked)
    if experiment.metrics:
        plan += Plan((), (f"metrics: {', '.join(experiment.metrics)}, after the run",))
    return plan


def _retrieval(experiment: Grid, name: str, data: Dataset, speeds: dict[str, Any]) -> Plan:
    made = Plan()
    queries = [question.text for question in data.questions]
    chunks = {}
    missing: dict[
        Any, tuple[Any, dict[str, None]]
    ] = {}  # embedder and texts, by the file of vectors
    searches = [s for s in dict.fromkeys(cell.search for cell in experiment.cells(name)) if s[2]]
    for chunker in dict.fromkeys(chunker for chunker, _, _ in searches):
        try:
            with only_from_disk():
                chunks[chunker] = list(experiment.chunker[chunker](data.documents))
        except NotOnDiskError as error:
            missing[chunker] = error.embedder, dict.fromkeys(error.texts)
            made += Plan(
                (), (f"{chunker} on {name} embeds to cut: its chunks are not counted yet",)
            )
    for chunker, retriever in dict.fromkeys((s[0], s[1]) for s in searches if s[0] in chunks):
        engine = experiment.retriever[retriever](chunks[chunker])
        for dense, of_queries in dense_searches(engine, queries):
            place = getattr(dense.embedder, "path", id(dense.embedder))
            _, texts = missing.setdefault(place, (dense.embedder, {}))
            for wanted, are_queries in ((dense.texts, False), (of_queries, True)):
                if isinstance(dense.embedder, CachedEmbeddings):
                    wanted = dense.embedder.not_on_disk(wanted, queries=are_queries)
                texts |= dict.fromkeys(wanted)
        for step, calls, asked_by in model_calls(engine):
            tape = asked_by.cassette
            if isinstance(tape, str | os.PathLike):
                tape = Cassette(tape) if os.path.exists(tape) else None
            made += plan({step: calls * len(queries)}, asked_by.model, tape, **speeds)
        settings = retriever_settings(engine)
        over = settings.get("over")
        parts = (settings, *(over if isinstance(over, list) else [over or {}]))
        # "auto" chooses them from the chunks
        words = [part["tokenizer"] for part in parts if "tokenizer" in part]
        made += Plan(
            (), tuple(f"{retriever} on {name}: words by the tokenizer {used!r}" for used in words)
        )
        made += Plan(
            (),
            tuple(
                f"{retriever} on {name}: {part['share_not_read']:.1%} of the chunks' tokens are "
                f"not read by {part['embedder']}"
                for part in parts
                if "share_not_read" in part
            ),
        )
    for embedder, texts in missing.values():
        seconds_for = getattr(getattr(embedder, "embedder", embedder), "seconds_for", None)
        seconds = seconds_for(list(texts)) if seconds_for and texts else math.nan if texts else 0.0
        made += _unasked("embed", len(texts), seconds)
    return made + _unasked("retrieve", len(searches) * len(queries), 0.0)


def _unasked(step: str, calls: int, seconds: float, basis: str = "") -> Plan:
    return Plan((PlannedStep(step, calls, remaining=calls, seconds=seconds, basis=basis),))


def _gradings(experiment: Grid, cells: Sequence[Any], by_model: bool) -> int:
    """Count the prompts of a judge for one question; an object with ``grade_all`` grades each
    answer alone.
    """
    if not by_model or experiment.per_prompt == "one":
        return len(cells)
    count = 0
    for generator in experiment.generator:
        of_generator = [cell for cell in cells if cell.generator == generator]
        shown = [
            Answer("q", "", generator, meta={"retriever": cell.search, "budget": cell.N})
            for cell in of_generator
        ]
        count += len(group_answers(shown, experiment.per_prompt))
    return count


def _calls(
    step: str, calls: int, model: Any, cassette: Cassette | None, speeds: dict[str, Any]
) -> Plan:
    if is_model(model):
        return plan({step: calls}, model, cassette, **speeds)
    return _unasked(step, calls, 0.0, "on this machine, not timed")
