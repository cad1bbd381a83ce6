"""Before a run: how many calls by step, how many of them are there, tokens, time and money. No model is asked."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ragbench.experiment.live import judge_groups
from ragbench.experiment.manifest import recorded_digests
from ragbench.experiment.rows import latest, without_text
from ragbench.experiment.stage import Stage, items, prepare, retrieve
from ragbench.experiment.work import Draft, Item, block, grade_here, read, unanswered
from ragbench.records import Chunk, Hit

if TYPE_CHECKING:
    import pandas as pd

    from ragbench.experiment.core import Experiment
    from ragbench.llm import Plan, PlannedStep
    from ragbench.retrieval.multiquery import LLMDecomposer

STEPS = ("retrieve", "decompose", "generate", "grade")
_AT_ONCE = 500  # questions whose prompts are in memory together
_TIMED = 5  # questions whose answers and grades are timed, where no server is asked
_UNWRITTEN = "word " * 40  # stands, after the answer's key, for an answer that is not written yet

Made = list[tuple[Item, list[Draft]]]


def plan_experiment(
    experiment: Experiment, speeds: Mapping[str, Any], after: Callable[[pd.DataFrame], Plan] | None = None
) -> Plan:
    """Do what ``Experiment.plan`` says."""
    import pandas as pd

    from ragbench.llm import Plan

    with experiment.open_cassette(make=False) as cassette:
        stage = prepare(experiment, cassette, recorded_digests(experiment.folder), ask_server=False)
        planner = _Planner(experiment, stage, cassette, speeds, whole=after is not None)
        rows = latest(experiment.path)
        keys: list[str] = []
        for name in stage.data:
            todo, every, _ = items(stage, experiment, name, rows, retry=False)
            planner.add(name, todo)
            keys += every
    notes = (*_words(stage), *(f"warning: {said}" for said in without_text(planner.tried)))
    planned = Plan(tuple(planner.step(name) for name in STEPS if name != "decompose" or planner.parts[name]), notes)
    if after is None:
        return planned
    return planned + after(pd.DataFrame([rows.get(key) or planner.rows[key] for key in keys]))


class _Planner:
    def __init__(
        self, experiment: Experiment, stage: Stage, cassette: Any, speeds: Mapping[str, Any], *, whole: bool = False
    ) -> None:
        self.experiment, self.stage, self.cassette, self.speeds = experiment, stage, cassette, speeds
        self.whole = whole  # whether the rows themselves are wanted, too
        self.rows: dict[str, dict[str, Any]] = {}
        self.asked: dict[str, set[str]] = {}  # prompts planned so far, by model and options
        self.parts: dict[str, list[PlannedStep]] = {name: [] for name in STEPS}
        self.tried: list[dict[str, Any]] = []  # rows of what was really retrieved

    def add(self, data: str, todo: list[Item]) -> None:
        """Plan one data set; ``todo``: its questions with something left to do."""
        grid, count = self.experiment.grid, len(self.stage.data[data].questions)
        searches, cells = list(grid.searches()), grid.cells(data)
        left = dict.fromkeys((*STEPS, *grid.generator, *grid.judge), 0)
        totals = {
            "retrieve": len(searches) * count,
            "generate": len({cell.answer for cell in cells if cell.generator in grid.generator}) * count,
            "grade": sum(self._prompts_per_question(data, judge) for judge in grid.judge) * count,
        }
        asking = any(_asks_a_model(self.stage.retrievers[data, c, r]) for c, r, _ in searches)
        if asking:
            self._decompose(data, todo)
        live = self.experiment.live or self.whole
        for start in range(0, len(todo), _AT_ONCE):
            some = todo[start : start + _AT_ONCE]
            found = sum(len({c.search for c, _, _ in item.wanted if c.N}) for item in some)
            begin = time.perf_counter()
            # Without a model there are no prompts to count: a few questions are timed.
            part = some if live else some[: 10 * _TIMED]
            note = f"timed on {len(part)} questions"
            if asking:
                _pretend(part)
                note = "a retriever asks a model first: contexts are estimated"
            else:
                retrieve(self.stage, data, part)
            seconds = math.nan if asking else (time.perf_counter() - begin) * len(some) / len(part)
            self._put("retrieve", found, seconds=seconds, basis=note)
            made = list(zip(part, block(part, self.experiment.cutting, {}, {}), strict=True))
            if self.whole:
                self.rows |= {draft.row["key"]: dict(draft.row) for _, drafts in made for draft in drafts}
            if not asking:
                self.tried += [draft.row for _, drafts in made for draft in drafts]
            left["retrieve"] += found
            left["generate"] += self._generate(made, len(some) / len(part))
            left["grade"] += self._grade(made, len(some) / len(part))
        for name, total in totals.items():
            self._put(name, total - left[name], cached=True)

    def step(self, name: str) -> PlannedStep:
        """Sum up one step."""
        from ragbench.llm import Plan

        parts = self.parts[name]
        whole = Plan(tuple(parts)).total
        basis = "; ".join(dict.fromkeys(part.basis for part in parts if part.basis))
        return replace(whole, name=name, basis=basis)

    def _put(self, name: str, calls: int, *, cached: bool = False, seconds: float = 0.0, basis: str = "") -> None:
        from ragbench.llm import PlannedStep

        if calls:
            counts = {"cached": calls} if cached else {"remaining": calls}
            free = {"prompt_tokens": 0.0, "output_tokens": 0.0, "cost": 0.0}
            self.parts[name].append(PlannedStep(name, calls, **counts, **free, seconds=seconds, basis=basis))

    def _ask(self, name: str, axis: str, prompts: list[str], schemas: Any, model: Sequence[Any]) -> None:
        from ragbench.llm import PlannedStep, Step, plan
        from ragbench.llm.drivers import driver_for

        if prompts:
            at_once = self.experiment.concurrency * len(model)
            fresh = range(len(prompts))
            if self.experiment.records:
                # The cassette answers a prompt that comes again, under whatever name its model stands in the grid.
                driver = driver_for(model[0])
                known = self.asked.setdefault(repr((driver.provider, driver.name, driver.options())), set())
                fresh = [i for i, prompt in enumerate(prompts) if not (prompt in known or known.add(prompt))]
            repeated = len(prompts) - len(fresh)
            prompts, schemas = [prompts[i] for i in fresh], schemas and [schemas[i] for i in fresh]
            step = Step(name, prompts=prompts, schema=schemas)
            planned = (
                () if not prompts else plan(step, model[0], self.cassette, **{"concurrency": at_once, **self.speeds})
            )
            self.parts[name] += [replace(row, basis=f"{axis}: {row.basis}") for row in planned]
            if repeated:
                free = {"prompt_tokens": 0.0, "output_tokens": 0.0, "seconds": 0.0, "cost": 0.0}
                self.parts[name].append(PlannedStep(name, repeated, repeated=repeated, **free))

    def _decompose(self, data: str, todo: Sequence[Item]) -> None:
        """Plan what the retrievers themselves ask: the derived questions of every search."""
        from ragbench.llm import Cassette, Step, plan

        asked: dict[str, tuple[LLMDecomposer, list[str]]] = {}
        for search in self.experiment.grid.searches():
            questions = [i.question.text for i in todo if any(c.search == search and c.N for c, _, _ in i.wanted)]
            for own in _decomposers(self.stage.retrievers[data, search[0], search[1]]):
                tape = getattr(own.cassette, "path", own.cassette)
                # Without a cassette nothing is remembered from one search to the next.
                alike = repr((own.settings(), str(tape) if tape is not None else search))
                asked.setdefault(alike, (own, []))[1].extend(own.prompts(questions))
        for own, prompts in asked.values():
            if own.cassette is not None:
                prompts = list(dict.fromkeys(prompts))
            model = own.model[0] if isinstance(own.model, list | tuple) else own.model
            tape = own.cassette
            if isinstance(tape, str | os.PathLike):
                tape = Cassette(tape) if os.path.exists(tape) else None
            if prompts:
                self.parts["decompose"] += plan(Step("decompose", prompts=prompts), model, tape, **self.speeds)

    def _generate(self, made: Made, scale: float) -> int:
        """Plan the answers that are missing; the drafts then hold answers, or what stands for them."""
        from ragbench.generation import PROMPTS
        from ragbench.prompts import fill_prompt, load_prompt

        calls = 0
        for name in self.experiment.grid.generator:
            groups = [(item, group) for item, drafts in made for group in unanswered(drafts, name)]
            calls += round(len(groups) * scale)
            if name in self.stage.readers:
                each = _seconds_each(
                    made, lambda q, drafts, name=name: read(q, drafts, {name: self.stage.readers[name]}), name
                )
                self._put("generate", round(len(groups) * scale), seconds=each * len(groups) * scale, basis="timed")
            else:
                own = self.experiment.prompts.get(name, PROMPTS["with_documents"])
                prompts = [
                    fill_prompt(load_prompt(PROMPTS["query_only"]), query=item.question.text)
                    if group[0].context is None
                    else fill_prompt(load_prompt(own), query=item.question.text, documents=group[0].context)
                    for item, group in groups
                ]
                self._ask("generate", name, prompts, None, self.stage.generators[name])
                self._from_cassette(groups, prompts, name)
            for _, group in groups:
                for draft in group:
                    draft.row.setdefault("answer", f"{draft.row['answer_key']} {_UNWRITTEN}")
        return calls

    def _from_cassette(self, groups: Sequence[tuple[Item, list[Draft]]], prompts: list[str], name: str) -> None:
        """Fill in the answers that are recorded already, so that their gradings can be found too."""
        from ragbench.llm.drivers import driver_for
        from ragbench.llm.invoke import as_messages
        from ragbench.llm.keys import Keys

        digest = self.stage.identity["generator"][name]["digest"]
        if self.cassette is None or self.cassette.mode == "off" or digest is None:
            return
        driver = driver_for(self.stage.generators[name][0])
        keys = Keys(driver.provider, driver.name, digest, driver.options())
        wanted = [keys.key(as_messages(prompt)) for prompt in prompts]
        found = self.cassette.get(wanted)
        for key, (_, group) in zip(wanted, groups, strict=True):
            if key in found and found[key]["ok"]:
                for draft in group:
                    draft.row["answer"] = found[key]["text"]

    def _grade(self, made: Made, scale: float) -> int:
        from ragbench.labelling.grades import grading_prompts

        calls = 0
        settings = {"order": self.experiment.order, "max_chars": self.experiment.max_chars}
        for name in self.experiment.grid.judge:
            if name in self.stage.graders:
                waiting = sum(d.cell.judge == name and d.row["status"] == "ok" for _, drafts in made for d in drafts)
                each = _seconds_each(
                    made, lambda q, drafts, name=name: grade_here(q, drafts, {name: self.stage.graders[name]}), name
                )
                self._put("grade", round(waiting * scale), seconds=each * waiting * scale, basis="timed")
                calls += round(waiting * scale)
                continue
            asked = [
                grading_prompts([item.question], answers, per_prompt=len(answers), **settings)[0]
                for item, drafts in made
                for answers, _ in judge_groups(item, drafts, name, self.experiment.per_prompt)
            ]
            self._ask("grade", name, [p.text for p in asked], [p.schema for p in asked], self.stage.judges[name])
            calls += len(asked)
        return calls

    def _prompts_per_question(self, data: str, judge: str) -> int:
        """Count the gradings of one question: prompts of a judge model, answers for the embedded grader."""
        question = self.stage.data[data].questions[0]
        cells = [cell for cell in self.experiment.grid.cells(data) if cell.judge == judge]
        if judge in self.stage.graders:
            return len(cells)
        told = [
            {"chunker": c.chunker, "retriever": c.retriever, "k": c.k, "N": c.N, "status": "ok", "answer": "x",
             "judge": c.judge, "generator": c.generator, "key": str(i)}
            for i, c in enumerate(cells)
        ]  # fmt: skip
        item = Item(question, [], places={row["key"]: i for i, row in enumerate(told)})
        drafts = [Draft(cell, row) for cell, row in zip(cells, told, strict=True)]
        return len(judge_groups(item, drafts, judge, self.experiment.per_prompt))


def _decomposers(retriever: Any) -> Iterator[LLMDecomposer]:
    """Yield the models that a retriever, or one inside it, asks for derived questions."""
    from ragbench.retrieval.multiquery import LLMDecomposer

    own = getattr(retriever, "_decompose", None)
    if isinstance(own, LLMDecomposer):
        yield own
    inside = [getattr(retriever, "retriever", None), *(getattr(retriever, "retrievers", None) or ())]
    for inner in inside:
        if inner is not None:
            yield from _decomposers(inner)


def _words(stage: Stage) -> list[str]:
    """Say by which words each retriever searches that has any, since "auto" chooses them from the chunks."""
    from ragbench.retrieval.base import describe

    said = {}
    for (data, _, name), retriever in stage.retrievers.items():
        told = describe(retriever)
        over = told.get("over")
        for one in (told, *(over if isinstance(over, list) else ())):
            if "tokenizer" in one:
                said[f"{name} on {data}: words by the tokenizer {one['tokenizer']!r}"] = None
    return list(said)


def _asks_a_model(retriever: Any) -> bool:
    return '"decomposer": "llm"' in _settings_text(retriever)


def _settings_text(retriever: Any) -> str:
    import json

    from ragbench.retrieval.base import describe

    return json.dumps(describe(retriever), default=str)


def _pretend(some: Sequence[Item]) -> None:
    for item in some:
        for cell, _, _ in item.wanted:
            if cell.N:
                # Of its own, or equal prompts would be counted as repeated.
                text = f"{cell.search} " + "word " * max(other.N for other, _, _ in item.wanted)
                item.found[cell.search] = [Hit(Chunk("pretended", text, ""), 1.0, 1)]


def _seconds_each(made: Made, work: Callable[[Any, list[Draft]], None], name: str) -> float:
    """Return the seconds of one answer or grade, timed on a few questions; their drafts stay as they are."""
    seconds, count = 0.0, 0
    for item, drafts in made[:_TIMED]:
        copies = [Draft(d.cell, dict(d.row), d.context) for d in drafts if name in (d.cell.generator, d.cell.judge)]
        begin = time.perf_counter()
        work(item.question, copies)
        seconds += time.perf_counter() - begin
        count += len({d.row["answer_key"] for d in copies})
    return seconds / count if count else 0.0
