"""Before a run: how many calls, tokens, hours and how much money, and what of it is on the cassette already."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from ragbench.errors import ConfigError
from ragbench.llm.cassette import Cassette
from ragbench.llm.context import ESTIMATOR, prompt_tokens
from ragbench.llm.drivers import Driver, as_messages, driver_for
from ragbench.llm.keys import Keys
from ragbench.llm.models import chat_model
from ragbench.llm.reply import Usage
from ragbench.llm.structured import json_schema_of

if TYPE_CHECKING:  # slow import
    import pandas as pd

_SAMPLE = 200


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

    steps: tuple[PlannedStep, ...] = ()
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


def plan(
    steps: Sequence[Step] | Step,
    model: Any = None,
    cassette: Cassette | None = None,
    *,
    tokens_per_second: float = math.nan,
    prompt_tokens_per_second: float = math.nan,
    concurrency: int = 1,
    price: tuple[float, float] | None = None,
    count_tokens: Callable[[str], int] | None = None,
    on_recorded: Callable[[int, str], None] | None = None,
) -> Plan:
    """Say what a run will take, without making a call.

    Parameters
    ----------
    steps : the steps of the run.
    model : the chat model; needed to look prompts up on the cassette.
    cassette : a Cassette that may hold some of the replies already. Recorded replies of the same model also give
        the tokens per reply, the correction of the token estimate and the speed, where these are not given.
    tokens_per_second : speed of writing, for one call (from ``fitness``, from ``Usage``, or from the model's papers).
    prompt_tokens_per_second : speed of reading; NaN: reading is not counted.
    concurrency : calls under way at once that the server really runs side by side.
    price : money per million (prompt tokens, output tokens). Default: the model's own.
    count_tokens : the model's own tokenizer; default an estimate.
    on_recorded : called with place and text of every prompt that the cassette has the reply to.

    Raises
    ------
    ConfigError : a step with both prompts and calls, or a cassette without a model.
    """
    if cassette is not None and model is None:
        raise ConfigError("a cassette without a model", "the chat model as well", "plan(steps, model, cassette)")
    driver = None if model is None else driver_for(chat_model(model) if isinstance(model, str) else model)
    price = price or (driver.price if driver else None)
    history = _History(driver, cassette, count_tokens)
    rows = []
    for step in [steps] if isinstance(steps, Step) else steps:
        if len(step.prompts) and step.calls:
            raise ConfigError(f"step {step.name!r} with prompts and calls", "one of the two", "leave calls out")
        row = _with_prompts(step, history, on_recorded) if len(step.prompts) else _without_prompts(step, history)
        read_rate, write_rate, how = prompt_tokens_per_second, tokens_per_second, "given"
        if math.isnan(write_rate):
            write_rate, how = history.writing_speed, f"measured on {history.seen} recorded replies"
            read_rate = history.reading_speed if math.isnan(read_rate) else read_rate
        seconds = row["output_tokens"] / write_rate if write_rate else math.nan
        if not math.isnan(read_rate):
            seconds += row["prompt_tokens"] / read_rate
        if not math.isnan(seconds):
            row["basis"] += f"; {write_rate:.1f} tokens/s {how}, {concurrency} at a time"
        cost = (row["prompt_tokens"] * price[0] + row["output_tokens"] * price[1]) / 1e6 if price else math.nan
        rows.append(PlannedStep(**row, seconds=seconds / concurrency, cost=cost))
    return Plan(tuple(rows))


class _History:
    """What the cassette tells of this model: its digest, and averages over the last recorded replies."""

    def __init__(self, driver: Driver | None, cassette: Cassette | None, count: Callable[[str], int] | None) -> None:
        self.cassette, self.count = cassette, count
        self.keys: Keys | None = None
        self.seen = 0
        self.correction, self.output, self.reading_speed, self.writing_speed = 1.0, math.nan, math.nan, math.nan
        if cassette is None or cassette.mode == "off" or driver is None:
            return
        digest = cassette.choose_digest(driver.provider, driver.name, driver.pinned_digest)
        if digest is None:
            return
        self.keys = Keys(driver.provider, driver.name, digest, driver.options())
        rows = cassette.rows(
            "SELECT request, answer FROM replies WHERE ok = 1 AND provider = ? AND model = ? AND digest = ?"
            " ORDER BY rowid DESC LIMIT ?",
            (driver.provider, driver.name, digest, _SAMPLE),
        )
        total, estimated = Usage(), 0
        for request, answer in rows:
            reply = json.loads(answer)
            usage = Usage.from_dict(reply["usage"])
            if usage.uncounted or usage.calls != 1:
                continue
            total += usage
            estimated += prompt_tokens(json.loads(request)["messages"], count)
        self.seen = total.calls
        if self.seen:
            self.correction = total.prompt_tokens / estimated if estimated else 1.0
            self.output = total.output_tokens / self.seen
            self.writing_speed, self.reading_speed = total.tokens_per_second, total.prompt_tokens_per_second


def _with_prompts(step: Step, history: _History, on_recorded: Callable[[int, str], None] | None) -> dict[str, Any]:
    schemas = step.schema if isinstance(step.schema, Sequence) else [step.schema] * len(step.prompts)
    prompts = [as_messages(prompt) for prompt in step.prompts]
    cached = repeated = 0
    left = prompts
    if history.keys is not None:
        keys = [
            history.keys.key(messages, json_schema_of(schema) if schema is not None else "")
            for messages, schema in zip(prompts, schemas, strict=True)
        ]
        assert history.cassette is not None
        recorded = history.cassette.get(keys)
        left, known = [], set()
        for place, (key, messages) in enumerate(zip(keys, prompts, strict=True)):
            if key in recorded and recorded[key]["ok"]:
                cached += 1
                if on_recorded is not None:
                    on_recorded(place, recorded[key]["text"])
            elif key in known:
                repeated += 1
            else:
                known.add(key)
                left.append(messages)
    tokens = sum(prompt_tokens(messages, history.count) for messages in left)
    how = "tokens counted with the given tokenizer" if history.count else f"tokens estimated: {ESTIMATOR}"
    if history.seen:
        tokens *= history.correction
        how += f", times {history.correction:.2f} measured on {history.seen} recorded replies"
    output = step.output_tokens if math.isnan(history.output) else history.output
    return {
        "name": step.name,
        "calls": len(prompts),
        "cached": cached,
        "repeated": repeated,
        "remaining": len(left),
        "prompt_tokens": float(tokens),
        "output_tokens": len(left) * output if left else 0.0,
        "basis": how,
    }


def _without_prompts(step: Step, history: _History) -> dict[str, Any]:
    if step.calls < 0:
        raise ConfigError(f"step {step.name!r} with calls={step.calls}", "at least 0", "check the count")
    output = step.output_tokens if not math.isnan(step.output_tokens) else history.output
    return {
        "name": step.name,
        "calls": step.calls,
        "remaining": step.calls,
        "prompt_tokens": step.calls * step.prompt_tokens,
        "output_tokens": step.calls * output,
        "basis": "calls counted, prompts not yet made",
    }
