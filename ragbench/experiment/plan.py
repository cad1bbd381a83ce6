"""Before a run: how many calls by step, how many of them are there, tokens, time and money. No model is asked."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import asdict, replace
from typing import Any

import pandas as pd

from ragbench.experiment.manifest import recorded_digests
from ragbench.experiment.rows import Rows, without_text
from ragbench.experiment.run import AT_ONCE
from ragbench.experiment.spec import Experiment
from ragbench.experiment.stage import Stage
from ragbench.experiment.work import (
    Batch,
    Call,
    Draft,
    Item,
    Search,
    answer_here,
    block,
    grade_here,
    judge_groups,
    unanswered,
)
from ragbench.labelling.checkers import ModelChecker
from ragbench.llm import Cassette, Plan, PlannedStep, Step, plan
from ragbench.llm.drivers import driver_for
from ragbench.records import Chunk, Hit
from ragbench.retrieval.base import describe
from ragbench.retrieval.dense import embedder_name
from ragbench.retrieval.multiquery import decomposers_with_prompts

STEPS = ("embed", "retrieve", "decompose", "rerank", "generate", "grade")
_ONLY_SOMETIMES = ("embed", "decompose", "rerank")
_TIMED = 5  # questions whose answers and grades are timed, where no server is asked
_UNWRITTEN = "word " * 40  # stands, after the answer's key, for an answer that is not written yet
_PRETENDED = "pretended"  # id of a chunk that stands for hits not searched yet
_FREE = {"prompt_tokens": 0.0, "output_tokens": 0.0, "cost": 0.0}


def plan_experiment(
    experiment: Experiment, speeds: Mapping[str, Any], after: Callable[[pd.DataFrame], Plan] | None = None
) -> Plan:
    """Go through a run without embedding a text or asking a model; see ``Experiment.plan``."""
    by_model = experiment.labels != "embedded" or isinstance(experiment.checker, ModelChecker)
    labels = bool(experiment.metrics) and by_model
    with experiment.open_cassette(make=False) as cassette:
        stage = Stage(experiment, cassette, recorded_digests(experiment.folder), ask_server=False)
        planner = _Planner(stage, cassette, speeds, keeps_rows=after is not None or labels)
        rows = Rows.read(experiment.path)
        keys: list[str] = []
        for name in stage.data:
            todo, every, _ = stage.left_to_do(name, rows)
            planner.add(name, todo)
            keys += every
        notes = [*_words(stage), *(f"warning: {each}" for each in without_text(Rows(planner.searched).frame()))]
        if experiment.metrics and not labels:
            notes.append(f"metrics: {', '.join(experiment.metrics)}; no model is asked for them")
        steps = tuple(planner.step(name) for name in STEPS if name not in _ONLY_SOMETIMES or planner.parts[name])
        planned = Plan(steps, tuple(notes))
        if after is None and not labels:
            return planned
        frame = pd.DataFrame([rows.row(key) if key in rows else planner.rows[key] for key in keys])
        if labels:
            planned += _plan_labels(stage, frame, cassette, speeds)
    return planned if after is None else planned + after(frame)


def _plan_labels(stage: Stage, rows: pd.DataFrame, cassette: Any, speeds: Mapping[str, Any]) -> Plan:
    """Plan what the metrics ask of models, for the answers that are there and those to come."""
    from ragbench.scoring import plan_score

    experiment = stage.experiment
    if experiment.grid.generator:
        answers = rows.get("answer", pd.Series(None, rows.index, dtype=object))
        rows = rows.assign(answer=answers.where(answers.notna(), rows["answer_key"] + f" {_UNWRITTEN}"))
    if experiment.grid.judge:
        rows = rows.assign(grade=1)  # stands for the judge's grade, which no label replaces
    places = zip(rows["hits"], rows["data"], rows["chunker"], strict=True)
    unknown = pd.Series([hits == [_PRETENDED] or (data, cut) in stage.uncut for hits, data, cut in places], rows.index)
    frame = experiment.answers(rows.assign(hits=rows["hits"].where(~unknown, None)))
    for i in frame.index[unknown]:  # as many chunks as are asked for, that share the N tokens
        row = frame.loc[i]
        each = "word " * (row["N"] // row["k"])
        frame.at[i, "chunks"] = [f"{row['question_id']} {row['retriever']} {n} {each}" for n in range(row["k"])]
        frame.at[i, "context"] = " ".join(frame.at[i, "chunks"])
    settings = {"cassette": cassette, "checker": experiment.checker}
    planned = plan_score(frame, experiment.metrics, experiment.labels, **settings, **speeds)
    note = f"metrics: the chunks of {unknown.sum()} answers are estimated"
    return replace(planned, notes=(*planned.notes, note)) if unknown.any() else planned


class _Planner:
    def __init__(self, stage: Stage, cassette: Any, speeds: Mapping[str, Any], *, keeps_rows: bool) -> None:
        self.stage, self.experiment, self.cassette, self.speeds = stage, stage.experiment, cassette, speeds
        self.keeps_rows = keeps_rows
        self.rows: dict[str, dict[str, Any]] = {}
        self.asked: dict[str, set[str]] = {}  # prompts planned so far, by model and options
        self.parts: dict[str, list[PlannedStep]] = {name: [] for name in STEPS}
        self.searched: list[dict[str, Any]] = []  # rows of what was really retrieved

    def add(self, data: str, todo: list[Item]) -> None:
        """Plan one data set; ``todo``: its questions with something left to do."""
        grid, count = self.experiment.grid, len(self.stage.data[data].questions)
        searches, cells = grid.searches(), grid.cells(data)
        totals = {
            "retrieve": len(searches) * count,
            "generate": len({cell.answer for cell in cells if cell.generator in grid.generator}) * count,
            "grade": sum(self._prompts_per_question(data, judge) for judge in grid.judge) * count,
        }
        asking = {s for s in searches if next(decomposers_with_prompts(self.stage.retrievers[data, s[0], s[1]]), None)}
        self._decompose(data, todo)
        waiting = self._embed(data, todo)
        reasons = ["a retriever asks a model first: contexts are estimated"] if asking else []
        if waiting:
            names = ", ".join(dict.fromkeys(search[1] for search in searches if search in waiting))
            reasons.append(f"{names}: texts without vectors, so contexts are estimated")
        if uncut := ", ".join(chunker for name, chunker in self.stage.uncut if name == data):
            reasons.append(f"{uncut} embeds to cut, so chunks are estimated and rows that are there not found")
        for start in range(0, len(todo), AT_ONCE):
            items = todo[start : start + AT_ONCE]
            wanted = sum(len({c.search for c, _, _ in item.wanted if c.N}) for item in items)
            begin = time.perf_counter()
            # Without a model there are no prompts to count: a few questions are timed.
            part = items if self.experiment.live or self.keeps_rows else items[: 10 * _TIMED]
            scale = len(items) / len(part)
            _pretend(part, asking | waiting)
            self.stage.retrieve(data, part)
            seconds = math.nan if asking else (time.perf_counter() - begin) * scale
            self._put(
                "retrieve", wanted, seconds=seconds, basis="; ".join(reasons) or f"timed on {len(part)} questions"
            )
            drafts_of = block(part, self.experiment.cutting, {}, {}, self.experiment.truncated)
            batch = list(zip(part, drafts_of, strict=True))
            drafts = [draft for drafts in drafts_of for draft in drafts]
            if self.keeps_rows:
                self.rows |= {draft.row["key"]: dict(draft.row) for draft in drafts}
            self.searched += [draft.row for draft in drafts if draft.cell.search not in asking | waiting]
            totals["retrieve"] -= wanted
            totals["generate"] -= self._generate(batch, scale)
            totals["grade"] -= self._grade(batch, scale)
        for name, there in totals.items():
            self._put(name, there, cached=True)

    def step(self, name: str) -> PlannedStep:
        """Sum up one step."""
        parts = self.parts[name]
        basis = "; ".join(dict.fromkeys(part.basis for part in parts if part.basis))
        return replace(Plan(tuple(parts)).total, name=name, basis=basis)

    def _put(self, name: str, calls: int, *, cached: bool = False, seconds: float = 0.0, basis: str = "") -> None:
        if calls:
            counts = {"cached": calls} if cached else {"remaining": calls}
            self.parts[name].append(PlannedStep(name, calls, **counts, **_FREE, seconds=seconds, basis=basis))

    def _time(self, step: str, count: float, batch: Batch, work: Callable, name: str, who: Any) -> None:
        """Plan answers or grades by the time of a few; their drafts stay as they are."""
        seconds, timed = 0.0, 0
        for item, drafts in batch[:_TIMED]:
            copies = [Draft(d.cell, dict(d.row), d.context) for d in drafts if name in (d.cell.generator, d.cell.judge)]
            begin = time.perf_counter()
            work(item.question, copies, {name: who})
            seconds += time.perf_counter() - begin
            timed += len({d.row["answer_key"] for d in copies})
        self._put(step, round(count), seconds=seconds / timed * count if timed else 0.0, basis="timed")

    def _ask(self, name: str, axis: str, calls: Sequence[Call], models: Sequence[Any]) -> dict[str, str]:
        """Plan one model's prompts; return those of which the cassette has the reply, with its text."""
        fresh, recorded = list(calls), {}
        if self.experiment.records:
            # The cassette answers a prompt that comes again, under whatever name its model stands in the grid.
            driver = driver_for(models[0])
            known = self.asked.setdefault(repr((driver.provider, driver.name, driver.options())), set())
            fresh = [call for call in calls if not (call.text in known or known.add(call.text))]
        if fresh:
            step = Step(name, prompts=[call.text for call in fresh], schema=[call.schema for call in fresh])
            settings = {"concurrency": self.experiment.concurrency * len(models), **self.speeds}

            def note(place: int, text: str) -> None:
                recorded[fresh[place].text] = text

            planned = plan(step, models[0], self.cassette, on_recorded=note, **settings)
            self.parts[name] += [replace(row, basis=f"{axis}: {row.basis}") for row in planned]
        if repeated := len(calls) - len(fresh):
            self.parts[name].append(PlannedStep(name, repeated, repeated=repeated, **_FREE, seconds=0.0))
        return recorded

    def _embed(self, data: str, todo: Sequence[Item]) -> set[Search]:
        """Plan the texts that need a vector; return the searches that have to wait for one."""
        waiting: set[Search] = set()
        for group in self.stage.texts_to_embed(data, todo):
            missing = group.missing()
            if missing:
                waiting |= group.searches
            self._put("embed", len(group.texts) - len(missing), cached=True)
            seconds_for = getattr(getattr(group.embedder, "embedder", group.embedder), "seconds_for", None)
            seconds = seconds_for(missing) if seconds_for else math.nan
            name = embedder_name(group.embedder)
            basis = f"by the usual speed of {name}" if seconds_for else f"the speed of {name} is not known"
            self._put("embed", len(missing), seconds=seconds, basis=basis)
        return waiting

    def _decompose(self, data: str, todo: Sequence[Item]) -> None:
        """Plan what the retrievers themselves ask: the derived questions of every search, and scores of its hits."""
        asked: dict[str, tuple[Any, list[str]]] = {}
        for search in self.experiment.grid.searches():
            questions = [i.question.text for i in todo if any(c.search == search and c.N for c, _, _ in i.wanted)]
            for decompose in decomposers_with_prompts(self.stage.retrievers[data, search[0], search[1]]):
                tape = getattr(decompose.cassette, "path", decompose.cassette)
                # Without a cassette nothing is remembered from one search to the next.
                alike = repr((decompose.settings(), str(tape) if tape is not None else search))
                asked.setdefault(alike, (decompose, []))[1].extend(decompose.prompts(questions))
        for decompose, prompts in asked.values():
            tape = decompose.cassette
            if tape is not None:
                prompts = list(dict.fromkeys(prompts))
            model = decompose.model[0] if isinstance(decompose.model, list | tuple) else decompose.model
            if isinstance(tape, str | os.PathLike):
                tape = Cassette(tape) if os.path.exists(tape) else None
            if prompts:
                step = getattr(decompose, "step", "decompose")
                self.parts[step] += plan(Step(step, prompts=prompts), model, tape, **self.speeds)

    def _generate(self, batch: Batch, scale: float) -> int:
        """Plan the answers that are missing; the drafts then hold answers, or what stands for them."""
        calls = 0
        for name in self.experiment.grid.generator:
            groups = [group for _, drafts in batch for group in unanswered(drafts, name)]
            calls += round(len(groups) * scale)
            if name in self.stage.readers:
                self._time("generate", len(groups) * scale, batch, answer_here, name, self.stage.readers[name])
            else:
                asked = self.stage.answer_calls(batch, name)
                recorded = self._ask("generate", name, asked, self.stage.generators[name])
                for call in asked:
                    if call.text in recorded:
                        for draft in call.drafts:
                            draft.row["answer"] = recorded[call.text]
            for draft in (draft for group in groups for draft in group):
                draft.row.setdefault("answer", f"{draft.row['answer_key']} {_UNWRITTEN}")
        return calls

    def _grade(self, batch: Batch, scale: float) -> int:
        calls = 0
        for name in self.experiment.grid.judge:
            if name in self.stage.graders:
                waiting = sum(draft.cell.judge == name and draft.ok for _, drafts in batch for draft in drafts)
                self._time("grade", waiting * scale, batch, grade_here, name, self.stage.graders[name])
                calls += round(waiting * scale)
            else:
                asked = self.stage.grade_calls(batch, name)
                self._ask("grade", name, asked, self.stage.judges[name])
                calls += len(asked)
        return calls

    def _prompts_per_question(self, data: str, judge: str) -> int:
        """Count the gradings of one question: prompts of a judge model, answers for the embedded grader."""
        cells = [cell for cell in self.experiment.grid.cells(data) if cell.judge == judge]
        if judge in self.stage.graders:
            return len(cells)
        rows = [asdict(cell) | {"status": "ok", "answer": "x", "key": str(i)} for i, cell in enumerate(cells)]
        item = Item(self.stage.data[data].questions[0], [], places={row["key"]: i for i, row in enumerate(rows)})
        drafts = [Draft(cell, row) for cell, row in zip(cells, rows, strict=True)]
        return len(judge_groups(item, drafts, judge, self.experiment.per_prompt))


def _words(stage: Stage) -> list[str]:
    """Say by which words each retriever searches that has any, since "auto" chooses them from the chunks."""
    notes = {}
    for (data, _, name), retriever in stage.retrievers.items():
        settings = describe(retriever)
        over = settings.get("over")
        for each in (settings, *(over if isinstance(over, list) else ())):
            if "tokenizer" in each:
                notes[f"{name} on {data}: words by the tokenizer {each['tokenizer']!r}"] = None
    return list(notes)


def _pretend(items: Sequence[Item], searches: Set[Search]) -> None:
    """Give the searches that cannot be made yet a hit that is as long as the longest context."""
    for item in items:
        most = max(cell.N for cell, _, _ in item.wanted)
        for search in {cell.search for cell, _, _ in item.wanted} & searches:
            # Of its own, or equal prompts would be counted as repeated.
            item.found[search] = [Hit(Chunk(_PRETENDED, f"{search} " + "word " * most, ""), 1.0, 1)]
