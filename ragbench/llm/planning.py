"""Before a run: how many calls, tokens, hours and how much money, and what of it is on the cassette already."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ragbench.errors import ConfigError
from ragbench.llm.context import ESTIMATOR, prompt_tokens
from ragbench.llm.invoke import as_messages
from ragbench.llm.keys import Keys
from ragbench.llm.plan_table import Plan, PlannedStep, Step
from ragbench.llm.reply import Usage
from ragbench.llm.structured import json_schema_of

if TYPE_CHECKING:
    from ragbench.llm.cassette import Cassette

_SAMPLE = 200


def thesis_steps(questions: int = 7404, retrievers: int = 5, budgets: int = 10, **per_call: float) -> tuple[Step, Step]:
    """Count the calls of the thesis's grid before it is run.

    Parameters
    ----------
    questions : examples in the data set.
    retrievers : retrieval systems.
    budgets : values of N above 0 (100, 200 ... 1000).
    per_call : ``prompt_tokens`` and ``output_tokens`` of one call, where known.

    Returns
    -------
    (grading, generation) : grading is one call per question and retriever (the judge sees the answers of all N at
    once); generation is one per question without context, and one per question, retriever and N.

    Source: thesis, section 3.2.1: 7,404 x 5 = 37,020 and 7,404 + 10 x 7,404 x 5 = 377,604.

    Examples
    --------
    >>> [step.calls for step in thesis_steps()]
    [37020, 377604]
    """
    for name, value in (("questions", questions), ("retrievers", retrievers), ("budgets", budgets)):
        if value < 0:
            raise ConfigError(f"{name}={value}", "a count of at least 0", f"check {name}")
    grading = Step("grading", calls=questions * retrievers, **per_call)
    generation = Step("generation", calls=questions + budgets * questions * retrievers, **per_call)
    return grading, generation


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

    Returns
    -------
    Plan.

    Raises
    ------
    ConfigError : a step with neither prompts nor calls, or a cassette without a model.
    """
    if cassette is not None and model is None:
        raise ConfigError("a cassette without a model", "the chat model as well", "plan(steps, model, cassette)")
    driver, price = _driver(model, price)
    history = _History(driver, cassette, count_tokens)
    rows = []
    for step in [steps] if isinstance(steps, Step) else steps:
        if len(step.prompts) and step.calls:
            raise ConfigError(f"step {step.name!r} with prompts and calls", "one of the two", "leave calls out")
        row = _with_prompts(step, history, count_tokens) if len(step.prompts) else _without_prompts(step, history)
        read_rate = prompt_tokens_per_second
        write_rate, how = history.speed() if math.isnan(tokens_per_second) else (tokens_per_second, "given")
        if math.isnan(read_rate) and how != "given":
            read_rate = history.reading_speed
        basis = [row["basis"]]
        seconds = row["output_tokens"] / write_rate if write_rate else math.nan
        if not math.isnan(read_rate):
            seconds += row["prompt_tokens"] / read_rate
        if not math.isnan(seconds):
            basis.append(f"{write_rate:.1f} tokens/s {how}, {concurrency} at a time")
        cost = (row["prompt_tokens"] * price[0] + row["output_tokens"] * price[1]) / 1e6 if price else math.nan
        row["basis"] = "; ".join(part for part in basis if part)
        rows.append(PlannedStep(**row, seconds=seconds / concurrency, cost=cost))
    return Plan(tuple(rows))


def _driver(model: Any, price: tuple[float, float] | None) -> tuple[Any, tuple[float, float] | None]:
    if model is None:
        return None, price
    from ragbench.llm.drivers import driver_for
    from ragbench.llm.models import chat_model

    driver = driver_for(chat_model(model) if isinstance(model, str) else model)
    return driver, price or driver.price


class _History:
    """What the cassette tells of this model: its digest, and averages over the last recorded replies."""

    def __init__(self, driver: Any, cassette: Cassette | None, count: Callable[[str], int] | None) -> None:
        self.cassette = cassette if cassette is not None and cassette.mode != "off" else None
        self.keys: Keys | None = None
        self.seen = 0
        self.correction, self.output, self.reading_speed, self._speed = 1.0, math.nan, math.nan, math.nan
        if self.cassette is None:
            return
        digest = self.cassette.choose_digest(driver.provider, driver.name, driver.pinned_digest)
        if digest is None:
            return
        self.keys = Keys(driver.provider, driver.name, digest, driver.options())
        self._learn(driver, digest, count)

    def _learn(self, driver: Any, digest: str, count: Callable[[str], int] | None) -> None:
        assert self.cassette is not None
        rows = self.cassette.rows(
            "SELECT request, answer FROM replies WHERE ok = 1 AND provider = ? AND model = ? AND digest = ?"
            " ORDER BY rowid DESC LIMIT ?",
            (driver.provider, driver.name, digest, _SAMPLE),
        )
        total, estimated = Usage(), 0
        for request, answer in rows:
            told = json.loads(answer)
            usage = Usage.from_dict(told["usage"])
            if usage.uncounted or usage.calls != 1:
                continue
            total += usage
            estimated += prompt_tokens(json.loads(request)["messages"], count)
        self.seen = total.calls
        if self.seen:
            self.correction = total.prompt_tokens / estimated if estimated else 1.0
            self.output = total.output_tokens / self.seen
            self._speed, self.reading_speed = total.tokens_per_second, total.prompt_tokens_per_second

    def speed(self) -> tuple[float, str]:
        """Return (tokens per second, how it is known)."""
        return self._speed, f"measured on {self.seen} recorded replies"


def _with_prompts(step: Step, history: _History, count: Callable[[str], int] | None) -> dict[str, Any]:
    schemas = step.schema if isinstance(step.schema, Sequence) else [step.schema] * len(step.prompts)
    prompts = [as_messages(prompt) for prompt in step.prompts]
    cached = repeated = 0
    left = prompts
    if history.keys is not None:
        made = [
            history.keys.key(messages, json_schema_of(schema) if schema is not None else "")
            for messages, schema in zip(prompts, schemas, strict=True)
        ]
        assert history.cassette is not None
        found = history.cassette.get(made)
        left, known = [], set()
        for key, messages in zip(made, prompts, strict=True):
            if key in found and found[key]["ok"]:
                cached += 1
            elif key in known:
                repeated += 1
            else:
                known.add(key)
                left.append(messages)
    tokens = sum(prompt_tokens(messages, count) for messages in left)
    how = "tokens counted with the given tokenizer" if count else f"tokens estimated: {ESTIMATOR}"
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
