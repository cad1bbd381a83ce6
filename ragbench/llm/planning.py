"""Before a run: how many calls will it take, and how many hours?"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from ragbench.errors import ConfigError
from ragbench.llm.cassette import Cassette
from ragbench.llm.endpoints import OllamaEndpoint, endpoint_of

_TIMED = 5  # recorded replies of a step, whose median time is taken


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """One row of a Plan: ``calls = cached + remaining``.

    ``cached`` are on the cassette. Seconds are those of what remains (NaN: unknown); ``basis`` says
    what they rest on.
    """

    name: str
    calls: int
    cached: int = 0
    remaining: int = 0
    seconds: float = math.nan
    basis: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run will take, by step: ``plan["grading"].calls``, ``plan.total.seconds``,
    ``print(plan)``.

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
        lines = [f"{'step':<{wide}}{'calls':>10}{'cached':>10}{'remaining':>11}{'hours':>9}"]
        for step in (*self.steps, self.total):
            hours = "?" if math.isnan(step.seconds) else f"{step.seconds / 3600:,.2f}"
            counts = f"{step.calls:>10,}{step.cached:>10,}{step.remaining:>11,}"
            lines.append(f"{step.name:<{wide}}{counts}{hours:>9}")
        lines += [f"{step.name}: {step.basis}" for step in self.steps if step.basis]
        return "\n".join([*lines, *self.notes])


def _sum(name: str, steps: Sequence[PlannedStep]) -> PlannedStep:
    counts = [sum(getattr(step, n) for step in steps) for n in ("calls", "cached", "remaining")]
    seconds = math.fsum(step.seconds for step in steps)
    basis = "; ".join(dict.fromkeys(step.basis for step in steps if step.basis))
    return PlannedStep(name, *counts, seconds, basis)


def plan(
    calls: Mapping[str, int],
    model: Any = None,
    cassette: Cassette | None = None,
    *,
    seconds_per_call: float = math.nan,
) -> Plan:
    """Say what a run will take, without making a call.

    Parameters
    ----------
    calls : how many calls each step makes, by its name (the ``step`` of `ask`).
    model, cassette : what is recorded of the model under a step's name is subtracted; the median
    time of its first
        five replies is that of the others.
    seconds_per_call : of a step of which nothing is recorded.
    """
    endpoint = None if model is None else endpoint_of(model)
    tape = None if cassette is None or cassette.mode == "off" else cassette
    steps = []
    for name, count in calls.items():
        cached = 0
        seconds = seconds_per_call
        basis = ""
        if endpoint is not None and tape is not None:
            of_model = "FROM replies WHERE ok = 1 AND provider = ? AND model = ?"
            key = (endpoint.provider, endpoint.name)
            cached = min(
                count, tape.rows(f"SELECT count(*) {of_model} AND step = ?", (*key, name))[0][0]
            )
            timed = f"SELECT answer {of_model} {{}} ORDER BY rowid LIMIT {_TIMED}"
            answers = tape.rows(timed.format("AND step = ?"), (*key, name)) or tape.rows(
                timed.format(""), key
            )
            if replies := [json.loads(answer) for (answer,) in answers]:
                seconds = median(reply["seconds"] for reply in replies)
                basis = f"{seconds:.1f} s a call, the median of {len(replies)} recorded"
        left = count - cached
        remaining_s = left * seconds if left else 0.0
        steps.append(PlannedStep(name, count, cached, left, remaining_s, basis))
    return Plan(tuple(steps))


def pull(model: Any) -> None:
    """Fetch a model into its Ollama, with a progress bar (``ragbench doctor --model ollama:NAME
    --pull``).

    Raises CallError where the server cannot reach its registry, and ConfigError for a model of
    another provider.
    """
    from tqdm.auto import tqdm

    endpoint = endpoint_of(model)
    if not isinstance(endpoint, OllamaEndpoint):
        raise ConfigError(
            f"--pull with {endpoint.model}", "a model of Ollama", "get it as its own server says"
        )
    try:
        with tqdm(
            desc=f"pull {endpoint.name}", unit="B", unit_scale=True, unit_divisor=1024
        ) as bar:
            done: dict[str, int] = {}
            sizes: dict[str, int] = {}
            for part in endpoint.chat._client.pull(endpoint.name, stream=True):
                if part.digest:
                    done[part.digest] = part.completed or 0
                    sizes[part.digest] = part.total or 0
                bar.total = sum(sizes.values())
                bar.n = sum(done.values())
                bar.set_postfix_str(part.status or "")
    except Exception as error:
        raise endpoint.named(error) from None
