"""Before a run:

is a model fit to be a judge, how many calls will it take, and how many hours and how much money?
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from ragbench.errors import ConfigError
from ragbench.llm.asking import ask
from ragbench.llm.cassette import Cassette
from ragbench.llm.endpoints import Endpoint, OllamaEndpoint, endpoint_of, endpoints_of, run
from ragbench.llm.failures import printable
from ragbench.llm.models import chat_model
from ragbench.llm.reply import Reply, Usage
from ragbench.paths import cache_dir, written_whole

# -- calls, hours and money
# --------------------------------------------------------------------------------------------

_TIMED = 5  # recorded replies of a step, whose median time is taken


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """One row of a Plan: ``calls = cached + remaining``.

    ``cached`` are on the cassette. Seconds and cost are those of what remains (NaN: unknown);
    ``basis`` says what they rest on.
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
        lines = [
            f"{'step':<{wide}}{'calls':>10}{'cached':>10}{'remaining':>11}{'hours':>9}{'cost':>10}"
        ]
        for step in (*self.steps, self.total):
            hours, cost = (
                "?" if math.isnan(x) else f"{x:,.2f}" for x in (step.seconds / 3600, step.cost)
            )
            lines.append(
                f"{step.name:<{wide}}{step.calls:>10,}{step.cached:>10,}{step.remaining:>11,}{hours:>9}{cost:>10}"
            )
        lines += [f"{step.name}: {step.basis}" for step in self.steps if step.basis]
        return "\n".join([*lines, *self.notes])


def _sum(name: str, steps: Sequence[PlannedStep]) -> PlannedStep:
    counts = [sum(getattr(step, n) for step in steps) for n in ("calls", "cached", "remaining")]
    amounts = [math.fsum(getattr(step, n) for step in steps) for n in ("seconds", "cost")]
    return PlannedStep(
        name,
        *counts,
        *amounts,
        "; ".join(dict.fromkeys(step.basis for step in steps if step.basis)),
    )


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
    model, cassette : what is recorded of the model under a step's name is subtracted; the median
    time of its first
        five replies is that of the others.
    seconds_per_call : of a step of which nothing is recorded. Default: what `ragbench doctor
    --model` measured last.
    price : money per million (prompt tokens, output tokens). Default: the model's own.
    """
    first = None if model is None else endpoints_of(model)[0]
    tape = None if cassette is None or cassette.mode == "off" else cassette
    price = price or (first.price if first else None)
    unrecorded = ""
    if first is not None and math.isnan(seconds_per_call) and (kept := _kept(first)).is_file():
        measured = json.loads(kept.read_text(encoding="utf-8"))
        seconds_per_call = measured["seconds"]
        by = f"as `ragbench doctor` measured on {measured['day']}"
        unrecorded = f"{seconds_per_call:.1f} s a call of the thesis's grid, {by}"
    steps = []
    for name, count in calls.items():
        cached = 0
        seconds = seconds_per_call
        cost = math.nan
        basis = unrecorded
        if first is not None and tape is not None:
            of_model = "FROM replies WHERE ok = 1 AND provider = ? AND model = ?"
            key = (first.provider, first.name)
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
                if price:
                    used = [Usage.from_dict(reply["usage"]) for reply in replies]
                    cost = (
                        median(
                            u.prompt_tokens * price[0] + u.output_tokens * price[1] for u in used
                        )
                        / 1e6
                    )
        left = count - cached
        steps.append(
            PlannedStep(
                name,
                count,
                cached,
                left,
                left * seconds if left else 0.0,
                left * cost if left else 0.0,
                basis,
            )
        )
    return Plan(tuple(steps))


# -- is it fit to judge?
# -----------------------------------------------------------------------------------------------

_SAME = 3
_MOST_TOKENS = 48  # of a reply, so that a model that does not stop takes seconds
_STATEMENTS = (
    ("A river flows from a lake to the sea.", "Water moves from a lake towards the sea.", "yes"),
    ("The library opens at nine.", "The library is closed all day.", "no"),
    ("Anna sold her bicycle to Ben.", "Ben owns the bicycle that was Anna's.", "yes"),
    ("The tower has four floors.", "The tower has more than ten floors.", "no"),
)
_QUESTION = (
    "Text: {text}\nStatement: {statement}\nDoes the statement follow from the text? Answer with "
    "JSON alone: "
    '{{"follows": "yes"}} or {{"follows": "no"}}.'
)
_FILLING = ("lake", "hill", "tree", "road", "bird", "wind", "moon")
_READ_WORDS = 600  # of a prompt that is read once, for the speed of reading
# A question of the thesis's grid: answers without documents and at ten N of five retrievers, one
# grading a retriever. Tokens: N and 80 of the prompt; a grading has ten answers of 50, and 200
# around them; a list of grades has 40.
_GRID_CALLS = 51 + 5
_GRID_READ = 80 + 5 * sum(n + 80 for n in range(100, 1001, 100)) + 5 * 700
_GRID_WRITTEN = 51 * 50 + 5 * 40


class _Verdict(BaseModel):
    model_config = ConfigDict(extra="forbid")
    follows: Literal["yes", "no"]


@dataclass(frozen=True, slots=True)
class _Fitness:
    """What `fitness` found out about a model.

    Attributes
    ----------
    about : what the server says of itself and the model: version, quantisation, parameters,
    capabilities, window,
        share of it on a GPU.
    latency_s : median seconds of a short reply. read_per_second, tokens_per_second : tokens read
    and written.
    deterministic : the same prompt three times gave the same text; None when it could not be tried.
    obeyed, repaired, asked : structured replies that fit the schema at once, after a repair try,
    and all.
    right : yes/no verdicts that were right (out of ``asked``): a weak model obeys and still cannot
    judge.
    problems : what speaks against the model as a judge; empty when it is fit.
    """

    model: str
    host: str
    digest: str
    about: dict[str, str]
    latency_s: float
    read_per_second: float
    tokens_per_second: float
    deterministic: bool | None
    obeyed: int
    repaired: int
    asked: int
    right: int
    problems: tuple[str, ...]

    @property
    def grid_seconds(self) -> float:
        """Seconds of one question of the thesis's grid:

        by both speeds, or by short replies where one is not known.
        """
        by_speed = _GRID_READ / self.read_per_second + _GRID_WRITTEN / self.tokens_per_second
        return _GRID_CALLS * self.latency_s if math.isnan(by_speed) else by_speed

    @property
    def fit(self) -> bool:
        """Whether nothing speaks against it."""
        return not self.problems

    def __str__(self) -> str:
        same = {True: "yes", False: "NO", None: "not tried"}[self.deterministic]
        verdict = "fit" if self.fit else "NOT FIT: " + "; ".join(self.problems)
        facts = "\n".join(f"  {name:<14} {value}" for name, value in self.about.items())
        return printable(f"""{self.model} at {self.host} (digest {self.digest[:12] or "none"})
{facts}
  speed          {self.read_per_second:.0f} tokens/s read, {self.tokens_per_second:.1f} written, \
{self.latency_s:.2f} s a short reply
  one question   of the thesis's grid ({_GRID_CALLS} calls): about {self.grid_seconds:.0f} s
  deterministic  {same} ({_SAME} calls)
  schema         {self.obeyed} of {self.asked} at once, {self.repaired} after a repair try; {self.right} right
  verdict        {verdict}""")


def fitness(model: Any) -> _Fitness:
    """Try whether a model can serve as a judge (what ``ragbench doctor --model ollama:NAME``
    prints).

    Failures of the server are ``problems``, not exceptions.
    """
    model = chat_model(model) if isinstance(model, str) else model
    limit = "num_predict" if hasattr(model, "num_predict") else "max_tokens"
    if hasattr(model, limit):
        model = model.model_copy(
            update={limit: min(getattr(model, limit) or _MOST_TOKENS, _MOST_TOKENS)}
        )
    endpoint = endpoint_of(model)
    settings = {"concurrency": 1, "retries": 0, "progress": False, "deadline_s": 60.0}
    prompt = "Write the numbers from one to ten as words, separated by commas."
    same = ask(model, [prompt], on_length="keep", **settings)
    if same[0].ok:  # or the next ones would wait for their deadlines too
        same += ask(model, [prompt] * (_SAME - 1), on_length="keep", **settings)
    good = [reply for reply in same if reply.ok]
    errors = [reply.error for reply in same if reply.error is not None]
    problems = (
        [f"{len(errors)} of {len(same)} plain calls failed ({errors[0].kind}): {errors[0]}"]
        if errors
        else []
    )
    verdicts: list[Reply] = []
    reading = math.nan
    if good or any(error.kind in ("unusable", "truncated") for error in errors):
        asked = [
            _QUESTION.format(text=text, statement=statement) for text, statement, _ in _STATEMENTS
        ]
        verdicts = ask(model, asked, schema=_Verdict, **settings)
        words = " ".join(itertools.islice(itertools.cycle(_FILLING), _READ_WORDS))
        (read,) = ask(
            model, [f"{words}\nHow many words are there above?"], on_length="keep", **settings
        )
        # Each of the words is one token; from Ollama 0.30 on its own count leaves out what its
        # cache had.
        reading = _READ_WORDS / read.usage.prompt_seconds if read.usage.prompt_seconds else math.nan
    texts = {reply.text for reply in good}
    tried = len(good) == _SAME
    obeyed = sum(reply.ok and not reply.repairs for reply in verdicts)
    repaired = sum(reply.ok and bool(reply.repairs) for reply in verdicts)
    right = sum(
        r.ok and r.parsed.follows == truth
        for r, (*_, truth) in zip(verdicts, _STATEMENTS, strict=False)
    )
    if tried and len(texts) > 1:
        problems.append(f"the same prompt gave {len(texts)} different replies in {_SAME} calls")
    if unusable := len(verdicts) - obeyed - repaired:
        problems.append(f"{unusable} of {len(verdicts)} structured replies unusable")
    elif right < len(verdicts):
        problems.append(f"only {right} of {len(verdicts)} plain verdicts are right")
    speeds = [speed for reply in good if not math.isnan(speed := reply.usage.tokens_per_second)]
    found = _Fitness(
        model=endpoint.model,
        host=endpoint.host,
        digest=same[0].digest,
        about=_about(endpoint) if good else {},
        latency_s=median(reply.seconds for reply in good) if good else math.nan,
        read_per_second=reading,
        tokens_per_second=median(speeds) if speeds else math.nan,
        deterministic=len(texts) == 1 if tried else None,
        obeyed=obeyed,
        repaired=repaired,
        asked=len(verdicts),
        right=right,
        problems=tuple(problems),
    )
    if good:
        measured = {"model": endpoint.model, "seconds": found.grid_seconds / _GRID_CALLS}
        with written_whole(_kept(endpoint)) as part:
            part.write_text(
                json.dumps(measured | {"day": datetime.now(UTC).date().isoformat()}),
                encoding="utf-8",
            )
    return found


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


def _kept(endpoint: Endpoint) -> Path:
    where = hashlib.sha256(f"{endpoint.model} {endpoint.host}".encode()).hexdigest()[:16]
    return cache_dir("doctor") / f"{where}.json"


def _about(endpoint: Any) -> dict[str, str]:
    """Return what a server says of itself and of the model; empty where it says nothing."""
    if not isinstance(endpoint, OllamaEndpoint):
        return {"window": f"num_ctx {endpoint.num_ctx}"} if endpoint.num_ctx else {}

    async def look() -> dict[str, str]:
        client = endpoint.client
        async with asyncio.timeout(10):
            version = (await client._request_raw("GET", "/api/version")).json().get("version", "")
            shown = await client.show(endpoint.name)
            loaded = (await client.ps()).models
        info = shown.modelinfo or {}
        served = next((m for m in loaded if m.model == endpoint.name), None)
        made_for = next(
            (value for key, value in info.items() if key.endswith(".context_length")), "unknown"
        )
        about = {"server": f"Ollama {version}"}
        if shown.details is not None:
            about["weights"] = f"{shown.details.parameter_size}, {shown.details.quantization_level}"
        about["can"] = ", ".join(shown.capabilities or ()) or "not said"
        window = getattr(served, "context_length", None) or endpoint.num_ctx
        about["window"] = f"{window} in use, made for {made_for}"
        if served is not None and served.size:
            about["on the GPU"] = f"{(served.size_vram or 0) / served.size:.0%}"
        return about

    try:
        return run(look())
    except Exception as error:
        return {"server": f"says nothing of itself ({type(error).__name__})"}
