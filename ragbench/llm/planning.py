"""Before a run: how many calls, tokens, hours and how much money, and what of it is on the cassette already."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ragbench.errors import ConfigError
from ragbench.llm.cassette import Cassette, Keys
from ragbench.llm.context import ESTIMATOR, prompt_tokens
from ragbench.llm.drivers import Driver, as_messages, driver_for
from ragbench.llm.models import chat_model
from ragbench.llm.reply import Usage
from ragbench.llm.structured import json_schema_of

_SAMPLE = 200


@dataclass(frozen=True, slots=True)
class Step:
    """One kind of call in a run ("grading"): its prompts, or how many ``calls`` there will be.

    ``schema`` as for ``ask``. ``prompt_tokens``: of one prompt, when the prompts do not exist yet; ``output_tokens``:
    of one reply, where there is no recorded reply to go by (NaN: unknown).
    """

    name: str
    prompts: Sequence[Any] = ()
    calls: int = 0
    schema: Any = None
    prompt_tokens: float = math.nan
    output_tokens: float = math.nan


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """One row of a Plan: ``calls = cached + repeated + remaining``.

    ``cached`` are on the cassette, ``repeated`` equal another prompt of the step. Tokens, seconds and cost are sums
    expected for what remains (NaN: unknown); ``basis`` says what they rest on.
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
    """What a run will take, by step: ``plan["grading"].calls``, ``plan.total.hours``, ``print(plan)``.

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
        counts = ("calls", "cached", "repeated", "remaining")
        left = [step for step in self.steps if step.remaining]
        sums = ("prompt_tokens", "output_tokens", "seconds", "cost")
        return PlannedStep(
            "total",
            **{name: sum(getattr(step, name) for step in self.steps) for name in counts},
            **{name: math.fsum(getattr(step, name) for step in left) for name in sums},
        )

    def to_frame(self) -> Any:
        """Return the steps and their total as a pandas DataFrame, one row each."""
        import pandas as pd

        return pd.DataFrame(map(asdict, (*self.steps, self.total)))

    def __str__(self) -> str:
        lines = [f"{'step':<16}{'calls':>10}{'cached':>10}{'remaining':>11}{'prompt tok.':>14}{'hours':>9}{'cost':>10}"]
        for step in (*self.steps, self.total):
            sums = ((step.prompt_tokens, "14,.0f"), (step.hours, "9,.2f"), (step.cost, "10,.2f"))
            shown = (f"{'?':>{form.partition(',')[0]}}" if math.isnan(x) else f"{x:>{form}}" for x, form in sums)
            lines.append(f"{step.name:<16}{step.calls:>10,}{step.cached:>10,}{step.remaining:>11,}{''.join(shown)}")
        lines += [f"{step.name}: {step.basis}" for step in self.steps if step.basis]
        return "\n".join([*lines, *self.notes])


def plan(
    steps: Mapping[str, int] | Sequence[Step] | Step,
    model: Any = None,
    cassette: Cassette | None = None,
    *,
    seconds_per_call: float = math.nan,
    tokens_per_second: float = math.nan,
    prompt_tokens_per_second: float = math.nan,
    concurrency: int = 1,
    price: tuple[float, float] | None = None,
    on_recorded: Callable[[int, str], None] | None = None,
) -> Plan:
    """Say what a run will take, without making a call.

    Parameters
    ----------
    steps : how many calls each step makes, by its name (the ``step`` of `ask`).
    seconds_per_call : of a step of which nothing is recorded.
    model : the chat model; needed to look prompts up on the cassette.
    cassette : recorded replies of the same model also give the tokens per reply, the correction of the token estimate
        and the speed, where these are not given.
    tokens_per_second : speed of writing, for one call (from ``fitness``, from ``Usage``, or from the model's papers).
    prompt_tokens_per_second : speed of reading; NaN: reading is not counted.
    concurrency : calls under way at once that the server really runs side by side.
    price : money per million (prompt tokens, output tokens). Default: the model's own.
    on_recorded : called with place and text of every prompt that the cassette has the reply to.
    """
    if isinstance(steps, Mapping):
        return Plan(
            tuple(_planned(name, calls, model, cassette, seconds_per_call, price) for name, calls in steps.items())
        )
    if cassette is not None and model is None:
        raise ConfigError("a cassette without a model", "the chat model as well", "plan(steps, model, cassette)")
    driver = None if model is None else driver_for(chat_model(model) if isinstance(model, str) else model)
    price = price or (driver.price if driver else None)
    history = _History(driver, cassette)
    rows = []
    for step in [steps] if isinstance(steps, Step) else steps:
        row = _counted(step, history, on_recorded)
        read_rate, write_rate, how = prompt_tokens_per_second, tokens_per_second, "given"
        if math.isnan(write_rate):
            write_rate, how = history.used.tokens_per_second, f"measured on {history.used.calls} recorded replies"
            read_rate = history.used.prompt_tokens_per_second if math.isnan(read_rate) else read_rate
        seconds = row["output_tokens"] / write_rate if write_rate else math.nan
        if not math.isnan(read_rate):
            seconds += row["prompt_tokens"] / read_rate
        if not math.isnan(seconds):
            row["basis"] += f"; {write_rate:.1f} tokens/s {how}, {concurrency} at a time"
        cost = (row["prompt_tokens"] * price[0] + row["output_tokens"] * price[1]) / 1e6 if price else math.nan
        rows.append(PlannedStep(step.name, **row, seconds=seconds / concurrency, cost=cost))
    return Plan(tuple(rows))


_TIMED = 5  # recorded replies of a step, whose median time is taken


def _planned(
    name: str, calls: int, model: Any, cassette: Cassette | None, seconds: float, price: tuple[float, float] | None
) -> PlannedStep:
    """Count what a step has still to ask; its time is that of the first replies recorded of it."""
    driver = None if model is None else driver_for(chat_model(model) if isinstance(model, str) else model)
    price, cost, cached, basis = price or (driver.price if driver else None), math.nan, 0, ""
    if driver is not None and cassette is not None:
        of_model = "FROM replies WHERE ok = 1 AND provider = ? AND model = ?"
        who = (driver.provider, driver.name)
        cached = min(calls, cassette.rows(f"SELECT count(*) {of_model} AND step = ?", (*who, name))[0][0])
        first = "SELECT answer {} {} ORDER BY rowid LIMIT {}"
        replies = cassette.rows(first.format(of_model, "AND step = ?", _TIMED), (*who, name))
        replies = [
            json.loads(answer) for (answer,) in replies or cassette.rows(first.format(of_model, "", _TIMED), who)
        ]
        if replies:
            seconds = statistics.median(reply["seconds"] for reply in replies)
            basis = f"{seconds:.1f} s a call, the median of {len(replies)} recorded"
            if price:
                used = [Usage.from_dict(reply["usage"]) for reply in replies]
                cost = statistics.median(u.prompt_tokens * price[0] + u.output_tokens * price[1] for u in used) / 1e6
    left = calls - cached
    return PlannedStep(
        name, calls, cached, remaining=left, seconds=left * seconds if left else 0.0, cost=left * cost, basis=basis
    )


class _History:
    """What the cassette tells of this model: its keys, and the usage of the last recorded replies."""

    def __init__(self, driver: Driver | None, cassette: Cassette | None) -> None:
        self.cassette, self.used = cassette, Usage()
        self.keys: Keys | None = None
        self.correction = 1.0
        if cassette is None or cassette.mode == "off" or driver is None:
            return
        digest = cassette.choose_digest(driver.provider, driver.name, driver.pinned_digest)
        if digest is None:
            return
        self.keys = Keys(driver.provider, driver.name, digest, driver.options())
        sql = (
            "SELECT request, answer FROM replies WHERE ok = 1 AND provider = ? AND model = ? AND digest = ?"
            " ORDER BY rowid DESC LIMIT ?"
        )
        estimated = 0
        for request, answer in cassette.rows(sql, (driver.provider, driver.name, digest, _SAMPLE)):
            usage = Usage.from_dict(json.loads(answer)["usage"])
            if usage.calls == 1 and not usage.uncounted:
                self.used += usage
                estimated += prompt_tokens(json.loads(request)["messages"])
        if estimated:
            self.correction = self.used.prompt_tokens / estimated


def _counted(step: Step, history: _History, on_recorded: Callable[[int, str], None] | None) -> dict[str, Any]:
    """Return what is known of a step before speed and price: calls, tokens, and what they rest on."""
    if step.calls < 0:
        raise ConfigError(f"step {step.name!r} with calls={step.calls}", "at least 0", "check the count")
    if len(step.prompts) and step.calls:
        raise ConfigError(f"step {step.name!r} with prompts and calls", "one of the two", "leave calls out")
    seen = history.used.calls
    output = history.used.output_tokens / seen if seen else math.nan
    if not len(step.prompts):
        output = output if math.isnan(step.output_tokens) else step.output_tokens
        tokens = {"prompt_tokens": step.calls * step.prompt_tokens, "output_tokens": step.calls * output}
        return {"calls": step.calls, "remaining": step.calls, "basis": "calls counted, prompts not yet made", **tokens}
    prompts = [as_messages(prompt) for prompt in step.prompts]
    cached, left = 0, dict(enumerate(prompts))
    if history.keys is not None and history.cassette is not None:
        schemas = step.schema if isinstance(step.schema, Sequence) else [step.schema] * len(prompts)
        asked = zip(prompts, schemas, strict=True)
        keys = [history.keys.key(messages, json_schema_of(schema)) for messages, schema in asked]
        recorded = {key: answer for key, answer in history.cassette.get(keys).items() if answer["ok"]}
        for place, key in enumerate(keys):
            if key in recorded and on_recorded is not None:
                on_recorded(place, recorded[key]["text"])
        cached = sum(key in recorded for key in keys)
        left = {key: messages for key, messages in zip(keys, prompts, strict=True) if key not in recorded}
    how = f"tokens estimated: {ESTIMATOR}"
    if seen:
        how += f", times {history.correction:.2f} measured on {seen} recorded replies"
    output = step.output_tokens if math.isnan(output) else output
    return {
        "calls": len(prompts),
        "cached": cached,
        "repeated": len(prompts) - cached - len(left),
        "remaining": len(left),
        "prompt_tokens": history.correction * sum(map(prompt_tokens, left.values())),
        "output_tokens": len(left) * output if left else 0.0,
        "basis": how,
    }
