"""``ask``: many prompts to one chat model, and one Reply each, whatever happens."""

from __future__ import annotations

import logging
import os
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ragbench.errors import ConfigError
from ragbench.llm import loop
from ragbench.llm.cassette import Cassette
from ragbench.llm.driver import Driver
from ragbench.llm.drivers import driver_for
from ragbench.llm.failures import failure
from ragbench.llm.invoke import as_messages
from ragbench.llm.job import Job
from ragbench.llm.keys import canonical
from ragbench.llm.models import DEADLINE_S, chat_model
from ragbench.llm.reply import Reply
from ragbench.llm.schedule import Item
from ragbench.llm.structured import json_schema_of

if TYPE_CHECKING:
    from pydantic import BaseModel

log = logging.getLogger("ragbench.llm")
_BAR_FROM = 20


class Interrupted(KeyboardInterrupt):
    """Ctrl-C (or "Interrupt kernel") during ``ask``. ``replies`` holds what was done, the rest as failures."""

    def __init__(self, message: str, replies: list[Reply]) -> None:
        super().__init__(message)
        self.replies = replies


def ask(
    model: Any,
    prompts: Sequence[Any],
    schema: type[BaseModel] | Sequence[type[BaseModel] | None] | None = None,
    cassette: Cassette | str | os.PathLike[str] | None = None,
    concurrency: int = 4,
    deadline_s: float | None = None,
    retries: int = 3,
    progress: bool | None = None,
    *,
    ids: Sequence[str] | None = None,
    step: str = "",
    count_tokens: Callable[[str], int] | None = None,
    price: tuple[float, float] | None = None,
    patience_s: float = 3600.0,
    outage_s: float = 60.0,
    backoff_s: float = 0.5,
    on_miss: str = "raise",
    on_length: str = "fail",
) -> list[Reply]:
    """Send many prompts to one chat model; return one Reply each, in the order of the prompts.

    Parameters
    ----------
    model : a LangChain chat model, or a name for ``chat_model``; or a sequence of the same model on several hosts,
        which share the work.
    prompts : str, LangChain messages, ``{"role", "content"}`` dicts, (role, text) pairs, or lists of these.
    schema : pydantic model that every reply must fit (or one, or None, per prompt). It goes to the server as JSON
        schema, and replies are validated strictly. A reply that does not fit gets one repair try, which is counted;
        after that it is a failure that keeps the raw text. See ``label_schema`` for a list of exactly n labels.
    cassette : where replies are recorded and looked up; a path means record mode. With one, equal prompts are asked
        once.
    concurrency : most calls under way to one host at a time, over all ``ask`` of this process.
    deadline_s : seconds for one whole call. Default: the model's own, else 600.
    retries : how often a failure that may pass (a broken connection, HTTP 500, an empty answer ...) is tried again.
        A call that ran into its deadline is tried again at most once.
    progress : a bar with time to go, failures and cached replies. Default: from 20 prompts on, when somebody looks.
    ids : names of the prompts, for messages and the cassette. Default: their numbers.
    step : name of the step ("grading"), for sums by step.
    count_tokens : counts the tokens of a text with the model's own tokenizer. Default: an estimate.
    price : money per million (prompt tokens, output tokens). Default: the model's own.
    patience_s : how long one prompt may wait for a server that is busy (HTTP 429, 503) before that counts as failure.
    outage_s : how long a server that has answered before may be away before its prompts count as failed.
    backoff_s : first pause before another try; doubles each time, with jitter, up to 30 s.
    on_miss : in replay mode, ``"raise"`` or ``"reply"`` (failures of kind ``miss``).
    on_length : a reply without schema that ended at its limit of tokens is a failure of kind ``truncated`` (``"fail"``,
        for labels), or an answer with ``finish == "length"`` (``"keep"``, for generated answers: ``generate`` does so).
        With a schema it is always a failure.

    Returns
    -------
    list of Reply, ``len(prompts)`` long.

    Raises
    ------
    ConfigError : arguments that cannot work.
    CallError (a ModelError) : in replay mode a prompt is not on the cassette; or two digests under one name.
    DataError : the cassette cannot be written.
    Interrupted (a KeyboardInterrupt) : Ctrl-C; ``.replies`` holds what is done, the cassette has it too.
    """
    drivers = _drivers(model)
    items = _items(prompts, schema, ids, drivers[0])
    if isinstance(cassette, str | os.PathLike):
        cassette = Cassette(cassette)
    for name, value, known in (("on_miss", on_miss, ("raise", "reply")), ("on_length", on_length, ("fail", "keep"))):
        if value not in known:
            raise ConfigError(f"{name}={value!r}", "'{}' or '{}'".format(*known), "choose one of the two")
    limits = _limits(
        concurrency=concurrency,
        deadline_s=deadline_s or drivers[0].deadline_s or DEADLINE_S,
        retries=retries,
        backoff_s=backoff_s,
        patience_s=patience_s,
        outage_s=outage_s,
    )
    job = Job(drivers, items, cassette, limits, step, price, count_tokens, keep_cut=on_length == "keep")
    if job.cassette is not None and job.cassette.mode == "replay":
        missing = job.replay()
        if missing is not None and on_miss == "raise":
            raise missing
    elif items:
        _run(job, progress)
    replies = [reply for reply in job.replies if reply is not None]
    _tell(replies, step)
    return replies


def _drivers(model: Any) -> list[Driver]:
    models = list(model) if isinstance(model, Sequence) and not isinstance(model, str) else [model]
    if not models:
        raise ConfigError("no model", "a chat model, or a sequence of the same model on several hosts", "pass one")
    drivers = [driver_for(chat_model(one) if isinstance(one, str) else one) for one in models]
    first = drivers[0]
    for other in drivers[1:]:
        mine, its = canonical([first.model, first.options()]), canonical([other.model, other.options()])
        if mine != its:
            raise ConfigError(
                f"two different models: {mine} and {its}", "one model with the same options on every host",
                "call ask once per model",
            )  # fmt: skip
    return drivers


def _items(prompts: Sequence[Any], schema: Any, ids: Sequence[str] | None, driver: Driver) -> list[Item]:
    if isinstance(prompts, str):
        raise ConfigError("prompts is one str", "a list of prompts", "ask(model, [prompt])")
    prompts = list(prompts)
    schemas = list(schema) if isinstance(schema, Sequence) else [schema] * len(prompts)
    names = [str(name) for name in ids] if ids is not None else [str(number) for number in range(len(prompts))]
    for what, given in (("schemas", schemas), ("ids", names)):
        if len(given) != len(prompts):
            raise ConfigError(f"{len(given)} {what} for {len(prompts)} prompts", "one per prompt", f"check {what}")
    items = []
    for place, (prompt, one, name) in enumerate(zip(prompts, schemas, names, strict=True)):
        item = Item([place], name, as_messages(prompt), one, json_schema_of(one) if one is not None else "")
        if driver.secrets and any(secret in item.text for secret in driver.secrets):
            raise failure("secret", f"prompt {name!r} holds the API key", *driver.who, secrets=driver.secrets)
        items.append(item)
    return items


def _limits(**limits: float) -> dict[str, float]:
    least = {"concurrency": 1, "deadline_s": 1e-9}
    for name, value in limits.items():
        if not value >= least.get(name, 0):
            raise ConfigError(f"{name}={value}", f"a number of at least {least.get(name, 0):g}", f"raise {name}")
    return limits


def _run(job: Job, progress: bool | None) -> None:
    total = len(job.items)
    show = total >= _BAR_FROM and _somebody_looks() if progress is None else progress
    bar = None
    if show:
        from tqdm.auto import tqdm

        bar = tqdm(total=total, desc=job.step or "ask", unit="prompt")

    def tick() -> None:
        if bar is not None:
            bar.initial = job.recorded  # recorded replies take no time and must not flatter the time to go
            bar.set_postfix(failed=job.failed, cached=job.cached, refresh=False)
            bar.update(job.done - bar.n)

    try:
        loop.run(job.run(), tick if bar is not None else None)
    except KeyboardInterrupt:
        raise _interrupted(job) from None
    finally:
        if bar is not None:
            bar.close()


def _interrupted(job: Job) -> Interrupted:
    driver = job.drivers[0]
    replies = []
    for item in job.items:
        reply = job.replies[item.places[0]]
        if reply is None:
            reply = job.unanswered(item, driver, driver.fail("interrupted", "not answered yet"))
        replies.append(reply)
    done = sum(reply.error is None or reply.error.kind != "interrupted" for reply in replies)
    kept = f"recorded on {job.cassette.path.name}, run again to go on" if job.cassette else "in .replies"
    return Interrupted(f"{done} of {len(replies)} replies are done ({kept})", replies)


def _somebody_looks() -> bool:
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    in_kernel = shell is not None and hasattr(shell, "kernel")  # that ipykernel is imported alone says nothing
    return in_kernel or (sys.stderr is not None and sys.stderr.isatty())


def _tell(replies: Sequence[Reply], step: str) -> None:
    kinds = Counter(reply.error.kind for reply in replies if reply.error is not None)
    if kinds:
        told = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
        first = next(reply for reply in replies if reply.error is not None)
        log.warning("%s%d of %d prompts failed: %s. First (%s): %s", f"{step}: " if step else "", sum(kinds.values()),
                    len(replies), told, first.id, first.error)  # fmt: skip
