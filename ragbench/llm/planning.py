"""Before a run: how many calls will it take, and how many hours?"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ragbench.llm.cassette import Cassette
from ragbench.llm.endpoints import Endpoint, endpoint_of
from ragbench.llm.reply import Usage

_LATEST = 20  # recorded replies of a step, whose speed is taken
_LIMITS_OF_TOKENS = ("num_predict", "max_completion_tokens")


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

    def __add__(self, other: PlannedStep) -> PlannedStep:
        """Add up two parts of a step; a sum with an unknown part is unknown."""
        return PlannedStep(
            self.name,
            self.calls + other.calls,
            self.cached + other.cached,
            self.remaining + other.remaining,
            self.seconds + other.seconds,
            "; ".join(dict.fromkeys(filter(None, (self.basis, other.basis)))),
        )


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
        steps = {step.name: step for step in self.steps}
        if name not in steps:
            raise KeyError(f"{name!r}; the plan has: {', '.join(steps)}")
        return steps[name]

    def __add__(self, other: Plan) -> Plan:
        """Join two plans; steps of one name are added up."""
        steps = {step.name: step for step in self.steps}
        for step in other.steps:
            known = steps.get(step.name)
            steps[step.name] = step if known is None else known + step
        notes = dict.fromkeys(self.notes + other.notes)
        return Plan(tuple(steps.values()), tuple(notes))

    @property
    def total(self) -> PlannedStep:
        """The sum over the steps; a sum with an unknown part is unknown."""
        total = PlannedStep("total", 0, seconds=0.0)
        for step in self.steps:
            total += replace(step, basis="")
        return total

    def __str__(self) -> str:
        rows = (*self.steps, self.total)
        wide = max(16, *(len(step.name) + 1 for step in rows))
        form = f"{{:<{wide}}}{{:>10}}{{:>10}}{{:>11}}{{:>9}}"
        lines = [form.format("step", "calls", "cached", "remaining", "hours")]
        for step in rows:
            counts = [f"{count:,}" for count in (step.calls, step.cached, step.remaining)]
            hours = "?" if math.isnan(step.seconds) else f"{step.seconds / 3600:,.2f}"
            lines.append(form.format(step.name, *counts, hours))
        lines += [f"{step.name}: {step.basis}" for step in self.steps if step.basis]
        return "\n".join([*lines, *self.notes])


def plan(
    calls: Mapping[str, int],
    model: Any = None,
    cassette: Cassette | None = None,
    *,
    seconds_per_call: float = math.nan,
    recorded: int | None = None,
) -> Plan:
    """Say what a run will take, without making a call.

    Parameters
    ----------
    calls : how many calls each step makes, by its name (the ``step`` of `ask`).
    model, cassette : what is recorded of the model under a step's name, with the options that the
        model has now, is subtracted. The others take the mean tokens of what is recorded of the
        step, at the speed of its latest 20 replies.
    seconds_per_call : of a step of which nothing is recorded.
    recorded : how many calls of each step are on the cassette, where their prompts were looked up.
        Default: all replies with the model's options count, whatever their prompts.
    """
    endpoint = None
    if model is not None and cassette is not None:
        endpoint = endpoint_of(model)
    steps = []
    for name, count in calls.items():
        cached = 0
        seconds = seconds_per_call
        basis = ""
        if endpoint is not None:
            known = _recorded(endpoint, cassette, name) if recorded is None else recorded
            cached = min(count, known)
            timed = _timed(endpoint, cassette, name) or _timed(endpoint, cassette, None)
            if timed is not None:
                seconds = timed[0]
                basis = timed[1]
        left = count - cached
        steps.append(PlannedStep(name, count, cached, left, left * seconds if left else 0.0, basis))
    return Plan(tuple(steps))


_OF_STEP = "FROM replies WHERE ok = 1 AND provider = ? AND model = ? AND step = coalesce(?, step)"


def _recorded(endpoint: Endpoint, tape: Cassette, step: str) -> int:
    """Count the replies of a step that were made with the options that the model has now."""
    sql = f"SELECT json_extract(request, '$.options'), count(*) {_OF_STEP} GROUP BY 1"
    rows = tape.rows(sql, (endpoint.provider, endpoint.name, step))
    now = _without_bound(endpoint, endpoint.options)
    return sum(count for text, count in rows if _without_bound(endpoint, json.loads(text)) == now)


def _without_bound(endpoint: Endpoint, options: dict[str, Any]) -> dict[str, Any]:
    """Leave out the limit of tokens where the model names none: then it is the step's."""
    if endpoint.num_predict is not None:
        return options
    flat = {**options, **options.get("options", {})}
    return {k: v for k, v in flat.items() if k not in ("options", *_LIMITS_OF_TOKENS)}


def _timed(endpoint: Endpoint, tape: Cassette, step: str | None) -> tuple[float, str] | None:
    """Return the seconds of a call of a step (None: of any), and what they rest on."""
    of_step = (endpoint.provider, endpoint.name, step)
    rows = tape.rows(f"SELECT answer {_OF_STEP} ORDER BY rowid DESC LIMIT {_LATEST}", of_step)
    latest = [json.loads(answer) for (answer,) in rows]
    if not latest:
        return None
    took = [answer["seconds"] for answer in latest]
    used = sum((Usage.from_dict(answer["usage"]) for answer in latest), Usage())
    seconds, how = _by_tokens(used, tape, of_step) or (math.fsum(took) / len(took), "their mean")
    spread = f"{min(took):.1f} to {max(took):.1f}, the latest {len(took)} recorded"
    return seconds, f"{seconds:.1f} s a call ({how}; {spread})"


def _by_tokens(
    used: Usage, tape: Cassette, of_step: tuple[str | None, ...]
) -> tuple[float, str] | None:
    """Return the seconds of the mean tokens of a step at the speed of some replies."""
    known = (used.prompt_tokens, used.prompt_seconds, used.output_tokens, used.output_seconds)
    if not all(known) or used.uncounted:
        return None
    fields = "avg(json_extract(answer, '$.usage.{}_tokens'))"
    means = f"{fields.format('prompt')}, {fields.format('output')}"
    read, written = tape.rows(f"SELECT {means} {_OF_STEP}", of_step)[0]
    reading = used.prompt_tokens / used.prompt_seconds
    writing = used.tokens_per_second
    how = f"{read:.0f} tokens read at {reading:.0f}/s, {written:.0f} written at {writing:.1f}/s"
    return read / reading + written / writing, how
