"""Before a run: how many calls will it take, and how many hours?"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ragbench.llm.cassette import Cassette
from ragbench.llm.endpoints import Endpoint

_LATEST = "ORDER BY rowid DESC LIMIT 20"  # replies of a step, whose speed is taken
_LIMITS_OF_TOKENS = ("num_predict", "max_completion_tokens")


@dataclass(frozen=True, slots=True)
class _Step:
    """One row of a Plan: ``calls = cached + remaining``.

    ``cached`` are on the cassette. Seconds are those of what remains; ``basis`` says what they rest
    on. NaN, printed as "?": not known.
    """

    name: str
    calls: int
    cached: float = 0
    remaining: float = 0
    seconds: float = math.nan
    basis: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run will take, by step: ``plan["grading"].calls``, ``plan.total.seconds``,
    ``print(plan)``.

    ``notes`` are lines that are printed below.
    """

    steps: tuple[_Step, ...] = ()
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, name: str, calls: int, cached: float, seconds: float = 0.0) -> Plan:
        """Plan one step of which so many calls are recorded."""
        return cls((_Step(name, calls, cached, calls - cached, seconds),))

    def __iter__(self) -> Iterator[_Step]:
        return iter(self.steps)

    def __getitem__(self, name: str) -> _Step:
        return {step.name: step for step in self.steps}[name]

    def __add__(self, other: Plan) -> Plan:
        """Join two plans; steps of one name are added up."""
        parts: dict[str, list[_Step]] = {}
        for step in (*self.steps, *other.steps):
            parts.setdefault(step.name, []).append(step)
        steps = tuple(_sum(name, of_name) for name, of_name in parts.items())
        return Plan(steps, tuple(dict.fromkeys(self.notes + other.notes)))

    def all_cached(self) -> Plan:
        """Return the plan of calls that turned out to be recorded, all of them."""
        steps = [_Step(step.name, int(step.cached), step.cached, 0, 0.0) for step in self.steps]
        return Plan(tuple(steps), self.notes)

    @property
    def total(self) -> _Step:
        """The sum over the steps; a sum with an unknown part is unknown."""
        return _sum("total", self.steps)

    def __str__(self) -> str:
        steps = (*self.steps, self.total)
        width = max(16, *(len(step.name) + 1 for step in steps))
        lines = [f"{'step':<{width}}     calls    cached  remaining    hours"]
        for step in steps:
            counts = f"{step.calls:>10,}{_known(step.cached):>10}{_known(step.remaining):>11}"
            hours = _known(step.seconds / 3600, ",.2f")
            lines.append(f"{step.name:<{width}}{counts}{hours:>9}")
        lines += [f"{step.name}: {step.basis}" for step in self.steps if step.basis]
        return "\n".join([*lines, *self.notes])


def _known(count: float, form: str = ",.0f") -> str:
    return "?" if math.isnan(count) else format(count, form)


def plan(
    calls: Mapping[str, int],
    model: Any = None,
    cassette: Cassette | None = None,
    *,
    seconds_per_call: float = math.nan,
    recorded: float | None = None,
    concurrency: int | None = None,
) -> Plan:
    """Say what a run will take, without making a call.

    Parameters
    ----------
    calls : how many calls each step makes, by its name (the ``step`` of `ask`).
    model, cassette : what is recorded of the model under a step's name, with the options that the
        model has now, is subtracted. The others take the mean seconds of the step's latest 20
        replies, else of the model's.
    seconds_per_call : of a step of which nothing is recorded.
    recorded : how many calls of each step are on the cassette, where their prompts were looked up;
        NaN: not known. Default: all replies with the model's options count, whatever their prompts.
    concurrency : calls under way at a time, by which the seconds are divided. Default: as in `ask`.
    """
    steps = []
    at_once = concurrency or (1 if model is None else Endpoint.of(model).concurrency)
    for name, count in calls.items():
        cached = 0
        timed = None
        if model is not None and cassette is not None:
            step = _Recorded(Endpoint.of(model), cassette, name)
            cached = min(step.count() if recorded is None else recorded, count)
            timed = step.seconds() or replace(step, name=None).seconds()
        call_s, basis = timed or (seconds_per_call, "")
        remaining = count - cached
        seconds = 0.0
        if remaining:
            seconds = remaining * call_s / min(at_once, remaining)
        steps.append(_Step(name, count, cached, remaining, seconds, basis))
    return Plan(tuple(steps))


def _sum(name: str, steps: Sequence[_Step]) -> _Step:
    bases = dict.fromkeys(step.basis for step in steps if step.basis)
    return _Step(
        name,
        calls=sum(step.calls for step in steps),
        cached=sum(step.cached for step in steps),
        remaining=sum(step.remaining for step in steps),
        seconds=sum(step.seconds for step in steps),
        basis="; ".join(bases),
    )


_OF_STEP = "FROM replies WHERE ok = 1 AND provider = ? AND model = ? AND step = coalesce(?, step)"


@dataclass(frozen=True)
class _Recorded:
    """What is recorded of a model's step, or with None of any."""

    endpoint: Endpoint
    tape: Cassette
    name: str | None

    def rows(self, columns: str, last: str = "") -> list[tuple]:
        values = (self.endpoint.provider, self.endpoint.name, self.name)
        return self.tape.rows(f"SELECT {columns} {_OF_STEP} {last}", values)

    def count(self) -> int:
        """Count the replies that were made with the options that the model has now; where it names
        no limit of tokens, that is the step's.
        """
        by_options = self.rows("json_extract(request, '$.options'), count(*)", "GROUP BY 1")
        now = self._flat(self.endpoint.options)
        return sum(n for text, n in by_options if self._flat(json.loads(text)) == now)

    def _flat(self, options: dict[str, Any]) -> dict[str, Any]:
        flat = {**options, **options.get("options", {})}  # of Ollama
        flat.pop("options", None)
        if self.endpoint.num_predict is None:
            for limit in _LIMITS_OF_TOKENS:
                flat.pop(limit, None)
        return flat

    def seconds(self) -> tuple[float, str] | None:
        """Return the seconds of a call, the mean of the latest, and what they rest on."""
        sql = "json_extract(answer, '$.seconds')"
        took_s = [seconds for (seconds,) in self.rows(sql, _LATEST)]
        if not took_s:
            return None
        call_s = statistics.fmean(took_s)
        spread = f"{min(took_s):.1f} to {max(took_s):.1f}, the latest {len(took_s)} recorded"
        return call_s, f"{call_s:.1f} s a call ({spread})"
