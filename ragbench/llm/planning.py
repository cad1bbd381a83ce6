"""Before a run: how many calls, how many of them are on the cassette already, hours and money."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ragbench.llm.cassette import Cassette
from ragbench.llm.doctor import measured_seconds
from ragbench.llm.endpoints import Endpoint, endpoints_of
from ragbench.llm.reply import Usage

_TIMED = 5  # recorded replies of a step, whose median time is taken


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """One row of a Plan: ``calls = cached + remaining``.

    ``cached`` are on the cassette. Seconds and cost are those of what remains (NaN: unknown); ``basis`` says what they
    rest on.
    """

    name: str
    calls: int
    cached: int = 0
    remaining: int = 0
    seconds: float = math.nan
    cost: float = math.nan
    basis: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run will take, by step: ``plan["grading"].calls``, ``plan.total.seconds``, ``print(plan)``.

    ``notes`` are lines that are printed below.
    """

    steps: tuple[PlannedStep, ...] = ()
    notes: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[PlannedStep]:
        return iter(self.steps)

    def __getitem__(self, name: str) -> PlannedStep:
        for step in self.steps:
            if step.name == name:
                return step
        raise KeyError(f"{name!r}; the plan has: {', '.join(step.name for step in self.steps)}")

    def __add__(self, other: Plan) -> Plan:
        """Join two plans; steps of one name are added up."""
        together: dict[str, list[PlannedStep]] = {}
        for step in (*self.steps, *other.steps):
            together.setdefault(step.name, []).append(step)
        steps = tuple(_sum(name, steps) for name, steps in together.items())
        return Plan(steps, tuple(dict.fromkeys(self.notes + other.notes)))

    @property
    def total(self) -> PlannedStep:
        """The sum over the steps; a sum with an unknown part is unknown."""
        return replace(_sum("total", self.steps), basis="")

    def __str__(self) -> str:
        wide = max(16, *(len(step.name) + 1 for step in (*self.steps, self.total)))
        lines = [f"{'step':<{wide}}{'calls':>10}{'cached':>10}{'remaining':>11}{'hours':>9}{'cost':>10}"]
        for step in (*self.steps, self.total):
            hours, cost = ("?" if math.isnan(x) else f"{x:,.2f}" for x in (step.seconds / 3600, step.cost))
            lines.append(
                f"{step.name:<{wide}}{step.calls:>10,}{step.cached:>10,}{step.remaining:>11,}{hours:>9}{cost:>10}"
            )
        lines += [f"{step.name}: {step.basis}" for step in self.steps if step.basis]
        return "\n".join([*lines, *self.notes])


def _sum(name: str, steps: Sequence[PlannedStep]) -> PlannedStep:
    counts = [sum(getattr(step, n) for step in steps) for n in ("calls", "cached", "remaining")]
    amounts = [math.fsum(getattr(step, n) for step in steps) for n in ("seconds", "cost")]
    return PlannedStep(name, *counts, *amounts, "; ".join(dict.fromkeys(step.basis for step in steps if step.basis)))


def plan(
    calls: Mapping[str, int],
    model: Any = None,
    cassette: Cassette | None = None,
    *,
    seconds_per_call: float = math.nan,
    price: tuple[float, float] | None = None,
) -> Plan:
    """Say what a run will take, without making a call.

    Parameters
    ----------
    calls : how many calls each step makes, by its name (the ``step`` of `ask`).
    model, cassette : what is recorded of the model under a step's name is subtracted; the median time of its first
        five replies is that of the others.
    seconds_per_call : of a step of which nothing is recorded. Default: what `ragbench doctor --model` measured last.
    price : money per million (prompt tokens, output tokens). Default: the model's own.
    """
    first = None if model is None else endpoints_of(model)[0]
    price, basis = price or (first.price if first else None), ""
    if first is not None and math.isnan(seconds_per_call) and (measured := measured_seconds(first)):
        seconds_per_call, day = measured
        basis = f"{seconds_per_call:.1f} s a call of the thesis's grid, as `ragbench doctor` measured on {day}"
    tape = None if cassette is None or cassette.mode == "off" else cassette
    return Plan(tuple(_planned(name, n, first, tape, seconds_per_call, basis, price) for name, n in calls.items()))


def _planned(
    name: str, calls: int, first: Endpoint | None, cassette: Cassette | None, seconds: float, basis: str, price: Any
) -> PlannedStep:
    cost, cached = math.nan, 0
    if first is not None and cassette is not None:
        of_model = "FROM replies WHERE ok = 1 AND provider = ? AND model = ?"
        who = (first.provider, first.name)
        cached = min(calls, cassette.rows(f"SELECT count(*) {of_model} AND step = ?", (*who, name))[0][0])
        timed = f"SELECT answer {of_model} {{}} ORDER BY rowid LIMIT {_TIMED}"
        replies = cassette.rows(timed.format("AND step = ?"), (*who, name)) or cassette.rows(timed.format(""), who)
        if replies := [json.loads(answer) for (answer,) in replies]:
            seconds = statistics.median(reply["seconds"] for reply in replies)
            basis = f"{seconds:.1f} s a call, the median of {len(replies)} recorded"
            if price:
                used = [Usage.from_dict(reply["usage"]) for reply in replies]
                cost = statistics.median(u.prompt_tokens * price[0] + u.output_tokens * price[1] for u in used) / 1e6
    left = calls - cached
    return PlannedStep(name, calls, cached, left, left * seconds if left else 0.0, left * cost if left else 0.0, basis)
