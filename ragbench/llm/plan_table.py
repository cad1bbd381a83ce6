"""The steps of a run, and the table that says what they will take."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class Step:
    """One kind of call in a run.

    Attributes
    ----------
    name : ``"grading"``.
    prompts : the prompts themselves; or leave them out and give ``calls``.
    calls : how many calls there will be, when the prompts do not exist yet.
    schema : as for ``ask``.
    prompt_tokens : tokens of one prompt, when the prompts do not exist yet (NaN: unknown).
    output_tokens : tokens of one reply, where there is no recorded reply to go by (NaN: unknown).
    """

    name: str
    prompts: Sequence[Any] = ()
    calls: int = 0
    schema: Any = None
    prompt_tokens: float = math.nan
    output_tokens: float = math.nan


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """One row of a Plan. ``calls = cached + repeated + remaining``; tokens, seconds and cost are for what remains.

    Attributes
    ----------
    calls : prompts of the step. cached : on the cassette. repeated : equal to another prompt of the step.
    remaining : calls to be made.
    prompt_tokens, output_tokens : expected sums (NaN: unknown).
    seconds : expected time (NaN: unknown). cost : expected money (NaN: unknown).
    basis : what the numbers rest on.
    """

    name: str
    calls: int
    cached: int = 0
    repeated: int = 0
    remaining: int = 0
    prompt_tokens: float = math.nan
    output_tokens: float = math.nan
    seconds: float = math.nan
    cost: float = math.nan
    basis: str = ""

    @property
    def hours(self) -> float:
        """Expected time in hours."""
        return self.seconds / 3600


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run will take, by step. ``plan["grading"].calls``, ``plan.total.hours``, ``print(plan)``.

    ``notes`` are lines that are printed below: settings that were chosen from the data, and warnings.
    """

    steps: tuple[PlannedStep, ...] = field(default_factory=tuple)
    notes: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[PlannedStep]:
        return iter(self.steps)

    def __len__(self) -> int:
        return len(self.steps)

    def __getitem__(self, name: str) -> PlannedStep:
        for step in self.steps:
            if step.name == name:
                return step
        raise KeyError(f"{name!r}; the plan has: {', '.join(step.name for step in self.steps)}")

    def __add__(self, other: Plan) -> Plan:
        return Plan(self.steps + other.steps, self.notes + other.notes)

    @property
    def total(self) -> PlannedStep:
        """The sum over the steps; a sum with an unknown part is unknown (a step with nothing left to do is not)."""
        counts = {name: sum(getattr(step, name) for step in self.steps) for name in _COUNTS}
        left = [step for step in self.steps if step.remaining]
        sums = {name: math.fsum(getattr(step, name) for step in left) for name in _SUMS}
        return PlannedStep("total", **counts, **sums)

    def to_frame(self) -> pd.DataFrame:
        """Return the steps and their total as a data frame, one row each."""
        import pandas as pd

        rows = [*self.steps, self.total]
        return pd.DataFrame([{f.name: getattr(row, f.name) for f in fields(PlannedStep)} for row in rows])

    def __str__(self) -> str:
        head = f"{'step':<16}{'calls':>10}{'cached':>10}{'remaining':>11}{'prompt tok.':>14}{'hours':>9}{'cost':>10}"
        lines = [head]
        for step in (*self.steps, self.total):
            tokens = "?" if math.isnan(step.prompt_tokens) else f"{step.prompt_tokens:,.0f}"
            hours = "?" if math.isnan(step.seconds) else f"{step.hours:,.2f}"
            cost = "?" if math.isnan(step.cost) else f"{step.cost:,.2f}"
            counts = f"{step.calls:>10,}{step.cached:>10,}{step.remaining:>11,}"
            lines.append(f"{step.name:<16}{counts}{tokens:>14}{hours:>9}{cost:>10}")
        lines += [f"{step.name}: {step.basis}" for step in self.steps if step.basis]
        lines += self.notes
        return "\n".join(lines)


_COUNTS = ("calls", "cached", "repeated", "remaining")
_SUMS = ("prompt_tokens", "output_tokens", "seconds", "cost")
