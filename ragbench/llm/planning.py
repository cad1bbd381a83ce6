"""Before a run: how many calls will it take, and how many hours?"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from ragbench.errors import ConfigError
from ragbench.llm.cassette import Cassette
from ragbench.llm.endpoints import Endpoint, OllamaEndpoint, endpoint_of, served_digest

log = logging.getLogger("ragbench.llm")
_LATEST = 20  # recorded replies of a step, whose median time is taken
LIMITS_OF_TOKENS = ("num_predict", "max_completion_tokens")


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
    recorded: int | None = None,
) -> Plan:
    """Say what a run will take, without making a call.

    Parameters
    ----------
    calls : how many calls each step makes, by its name (the ``step`` of `ask`).
    model, cassette : what is recorded of the model under a step's name, with the options that the
        model has now, is subtracted; the median time of its latest 20 replies is that of the
        others.
    seconds_per_call : of a step of which nothing is recorded.
    recorded : how many calls of each step are on the cassette, where their prompts were looked up.
        Default: all replies with the model's options count, whatever their prompts.
    """
    endpoint = None if model is None else endpoint_of(model)
    if cassette is None or cassette.mode == "off":
        endpoint = None
    steps = []
    for name, count in calls.items():
        cached = 0
        seconds = seconds_per_call
        basis = ""
        if endpoint is not None:
            known = _recorded(endpoint, cassette, name) if recorded is None else recorded
            cached = min(count, known)
            timed = _seconds(endpoint, cassette, name) or _seconds(endpoint, cassette)
            if timed:
                seconds = median(timed)
                spread = f"{min(timed):.1f} to {max(timed):.1f}, the latest {len(timed)} recorded"
                basis = f"{seconds:.1f} s a call ({spread})"
        left = count - cached
        steps.append(PlannedStep(name, count, cached, left, left * seconds if left else 0.0, basis))
    return Plan(tuple(steps))


_OF_MODEL = "FROM replies WHERE ok = 1 AND provider = ? AND model = ?"


def _recorded(endpoint: Endpoint, tape: Cassette, step: str) -> int:
    """Count the replies of a step that were made with the options that the model has now."""
    sql = f"SELECT json_extract(request, '$.options'), count(*) {_OF_MODEL} AND step = ? GROUP BY 1"
    rows = tape.rows(sql, (endpoint.provider, endpoint.name, step))
    now = _without_bound(endpoint, endpoint.options)
    return sum(count for text, count in rows if _without_bound(endpoint, json.loads(text)) == now)


def _without_bound(endpoint: Endpoint, options: dict[str, Any]) -> dict[str, Any]:
    """Leave out the limit of tokens where the model names none: then it is the step's."""
    if endpoint.num_predict is not None:
        return options
    flat = {**options, **options.get("options", {})}
    return {k: v for k, v in flat.items() if k not in ("options", *LIMITS_OF_TOKENS)}


def _seconds(endpoint: Endpoint, tape: Cassette, step: str | None = None) -> list[float]:
    """Return the seconds of the latest replies of a step, or of all steps."""
    of_step = "" if step is None else " AND step = ?"
    sql = f"SELECT answer {_OF_MODEL}{of_step} ORDER BY rowid DESC LIMIT {_LATEST}"
    given = [endpoint.provider, endpoint.name] + ([] if step is None else [step])
    return [json.loads(answer)["seconds"] for (answer,) in tape.rows(sql, given)]


def pull(model: Any) -> None:
    """Fetch a model into its Ollama, with a progress bar (``ragbench doctor --model ollama:NAME
    --pull``).

    Raises CallError where the server cannot reach its registry, and ConfigError for a model of
    another provider.
    """
    from tqdm.auto import tqdm

    endpoint = endpoint_of(model)
    if not isinstance(endpoint, OllamaEndpoint):
        do = "get it as its own server says"
        raise ConfigError(f"--pull with {endpoint.model}", "a model of Ollama", do)
    about = {"unit": "B", "unit_scale": True, "unit_divisor": 1024}
    try:
        with tqdm(desc=f"pull {endpoint.name}", **about) as bar:
            for part in endpoint.pull():  # of one file after another
                bar.total = part.total or bar.total
                bar.n = part.completed or bar.n
                bar.set_postfix_str(part.status or "")
    except Exception as error:
        named = endpoint.named(error)
        if named.kind == "down" or served_digest(endpoint) is None:
            raise named from None
        log.warning("%s is there already, and not newer: %s", endpoint.model, named)
