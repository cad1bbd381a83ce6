"""``ask``: many prompts to one chat model, and one Reply each, whatever happens."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from ragbench.errors import ConfigError, check_known
from ragbench.llm import loop
from ragbench.llm.cassette import Cassette, Keys, canonical
from ragbench.llm.context import prompt_tokens, too_long, was_cut, with_advice
from ragbench.llm.drivers import FINISHED, Driver, Received, agreed_digest, as_messages, driver_for
from ragbench.llm.failures import AWAY, KINDS, CallError, printable, without_address
from ragbench.llm.models import DEADLINE_S, chat_model
from ragbench.llm.reply import CUT_SHORT, Reply, Usage
from ragbench.llm.schedule import Host, Limits, Pending, Schedule, Worker, gate_of
from ragbench.llm.structured import json_schema_of, read_reply, repair_messages, repeats, schema_dict, without_thinking

log = logging.getLogger("ragbench.llm")
_BAR_FROM = 20
GRACE_S = 2.0  # for calls under way when ``stop`` says so


class Interrupted(KeyboardInterrupt):
    """Ctrl-C (or "Interrupt kernel") during ``ask``. ``replies`` holds what was done, the rest as failures."""

    def __init__(self, message: str, replies: list[Reply]) -> None:
        super().__init__(message)
        self.replies = replies


def ask(
    model: Any,
    prompts: Sequence[Any],
    schema: Any = None,
    cassette: Cassette | str | os.PathLike[str] | None = None,
    concurrency: int = 4,
    deadline_s: float | None = None,
    retries: int = 3,
    progress: bool | None = None,
    *,
    ids: Sequence[str] | None = None,
    step: str = "",
    patience_s: float = 3600.0,
    outage_s: float = 60.0,
    backoff_s: float = 0.5,
    on_miss: str = "raise",
    on_length: str = "fail",
    on_reply: Callable[[int, Reply], None] | None = None,
    stop: Callable[[], bool] | None = None,
    groups: Sequence[str] | None = None,
) -> list[Reply]:
    """Send many prompts to one chat model; return one Reply each, in the order of the prompts.

    Parameters
    ----------
    model : a LangChain chat model, or a name for ``chat_model``; or a sequence of the same model on several hosts.
    prompts : str, LangChain messages, ``{"role", "content"}`` dicts, (role, text) pairs, or lists of these.
    schema : pydantic model that every reply must fit strictly (or one, or None, per prompt). A reply that does not fit
        gets one repair try, which is counted; after that it is a failure that keeps the raw text.
    cassette : where replies are recorded and looked up; a path means record mode. With one, equal prompts are asked
        once.
    concurrency : most calls under way to one host at a time, over all ``ask`` of this process.
    deadline_s : seconds for one whole call. Default: the model's own, else 600.
    retries : how often a failure that may pass is tried again; one that ran into its deadline at most once.
    progress : a bar. Default: from 20 prompts on, when somebody looks.
    ids : names of the prompts, for messages and the cassette. Default: their numbers.
    step : name of the step ("grading"), for sums by step.
    patience_s : how long one prompt may wait for a server that is busy (HTTP 429, 503).
    outage_s : how long a server that has answered before may be away before its prompts count as failed.
    backoff_s : first pause before another try; doubles each time, with jitter, up to 30 s.
    on_miss : in replay mode, ``"raise"`` or ``"reply"`` (failures of kind ``miss``).
    on_length : a reply without schema that ended at its limit of tokens is a failure of kind ``truncated`` (``"fail"``,
        for labels), or an answer with ``finish == "length"`` (``"keep"``, for generated answers).
    on_reply : called in this thread with place and reply, as the replies come. A place at a server takes on its next
        prompt when this has returned.
    stop : when it says True, no further prompt goes out; those under way have two seconds. What is then not answered
        is a failure of kind ``interrupted``, of which ``on_reply`` is not told.
    groups : what each prompt belongs to (its question, say). The prompts of one group go to one place at one server,
        one after another. Default: prompts that share their beginning are a group.

    Raises CallError for a prompt that is not on the cassette in replay mode, and for two digests under one name;
    Interrupted (a KeyboardInterrupt) on Ctrl-C: its ``replies`` hold what is done, the cassette has it too.
    """
    drivers = _drivers(model)
    items = _items(prompts, schema, ids, groups, drivers[0])
    check_known("on_miss", [on_miss], ("raise", "reply"))
    check_known("on_length", [on_length], ("fail", "keep"))
    if isinstance(cassette, str | os.PathLike):
        cassette = Cassette(cassette)
    deadline_s = deadline_s or drivers[0].deadline_s or DEADLINE_S
    limits = Limits(concurrency, deadline_s, retries, backoff_s, patience_s, outage_s)
    tape = None if cassette is None or cassette.mode == "off" else cassette
    job = Job(drivers, items, tape, limits, step, on_length == "keep", on_reply, stop)
    if tape is not None and tape.mode == "replay":
        missing = job.replay(tape)
        if missing is not None and on_miss == "raise":
            raise missing
    elif items:
        _run(job, progress)
    replies = job.all_replies()
    kinds = Counter(reply.error.kind for reply in replies if reply.error is not None)
    if kinds:
        counts = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
        first = next(reply for reply in replies if reply.error is not None)
        failed = f"{kinds.total()} of {len(replies)} prompts failed: {counts}. First ({first.id})"
        log.warning("%s%s: %s", f"{step}: " if step else "", failed, first.error)
    return replies


def _drivers(model: Any) -> list[Driver]:
    models = list(model) if isinstance(model, Sequence) and not isinstance(model, str) else [model]
    if not models:
        raise ConfigError("no model", "a chat model, or a sequence of the same model on several hosts", "pass one")
    drivers = [driver_for(chat_model(one) if isinstance(one, str) else one) for one in models]
    if len(drivers) > 1:
        first, *others = (canonical([driver.model, driver.options()]) for driver in drivers)
        for other in others:
            if other != first:
                same = "one model with the same options on every host"
                raise ConfigError(f"two different models: {first} and {other}", same, "call ask once per model")
    return drivers


def _items(prompts: Any, schema: Any, ids: Any, groups: Any, driver: Driver) -> list[Pending]:
    if isinstance(prompts, str):
        raise ConfigError("prompts is one str", "a list of prompts", "ask(model, [prompt])")
    prompts = list(prompts)
    schemas = list(schema) if isinstance(schema, Sequence) else [schema] * len(prompts)
    ids = range(len(prompts)) if ids is None else list(ids)
    groups = [""] * len(prompts) if groups is None else list(groups)
    for what, given in (("schemas", schemas), ("ids", ids), ("groups", groups)):
        if len(given) != len(prompts):
            raise ConfigError(f"{len(given)} {what} for {len(prompts)} prompts", "one per prompt", f"check {what}")
    items = []
    for place, (prompt, schema, name, group) in enumerate(zip(prompts, schemas, ids, groups, strict=True)):
        item = Pending([place], str(name), as_messages(prompt), schema, json_schema_of(schema), group)
        if any(secret in item.text for secret in driver.secrets):
            raise driver.fail("secret", f"prompt {item.id!r} holds the API key")
        items.append(item)
    return items


def _run(job: Job, progress: bool | None) -> None:
    bar = None
    if len(job.items) >= _BAR_FROM and _somebody_looks() if progress is None else progress:
        from tqdm.auto import tqdm

        bar = tqdm(total=len(job.items), desc=job.step or "ask", unit="prompt")

    def tick() -> None:
        if bar is not None:
            bar.initial = job.recorded  # recorded replies take no time and must not flatter the time to go
            bar.set_postfix(failed=job.failed, cached=job.cached, refresh=False)
            bar.update(job.done - bar.n)

    stopped_at: list[float] = []

    def leave() -> bool:
        if not stopped_at and job.stopped():
            stopped_at.append(time.monotonic())
        return bool(stopped_at) and time.monotonic() - stopped_at[0] >= GRACE_S

    try:
        loop.run(job.run(), tick, job.caller, leave)
    except KeyboardInterrupt:
        replies = job.all_replies()
        done = sum(reply.error is None or reply.error.kind != "interrupted" for reply in replies)
        kept = f"recorded on {job.cassette.path.name}, run again to go on" if job.cassette else "in .replies"
        raise Interrupted(f"{done} of {len(replies)} replies are done ({kept})", replies) from None
    finally:
        if bar is not None:
            bar.close()


def _somebody_looks() -> bool:
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    in_kernel = shell is not None and hasattr(shell, "kernel")  # that ipykernel is imported alone says nothing
    return in_kernel or (sys.stderr is not None and sys.stderr.isatty())


@dataclass
class Job:
    """The state of one ``ask``; ``drivers``: one per host; ``keep_cut``: a text cut at its limit is an answer."""

    drivers: Sequence[Driver]
    items: list[Pending]
    cassette: Cassette | None
    limits: Limits
    step: str
    keep_cut: bool
    on_reply: Callable[[int, Reply], None] | None
    stop: Callable[[], bool] | None
    caller: loop.Caller = field(default_factory=loop.Caller)
    digest: str = ""
    keys: Keys | None = None
    replies: dict[int, Reply] = field(default_factory=dict)  # by place
    untold: deque[int] = field(default_factory=deque)  # places of replies that ``on_reply`` was not told of yet
    done: int = 0
    failed: int = 0
    cached: int = 0
    recorded: int = 0

    def stopped(self) -> bool:
        """Whether no further prompt is to go out."""
        return self.stop is not None and self.stop()

    # -- from the cassette -------------------------------------------------------------------------------------------

    def replay(self, tape: Cassette) -> CallError | None:
        """Serve everything from the cassette, without a socket. Returns the error for what is missing, if any."""
        driver = self.drivers[0]
        digest = tape.choose_digest(driver.provider, driver.name, driver.pinned_digest)
        missing = self._look_up(tape, digest) if digest is not None else self.items
        for item in missing:
            self._settle(item, self._unanswered(item, driver, tape.miss([item.id], driver.model, len(self.items))))
        self._tell()
        ids = [self.items[place].id for item in missing for place in item.places]
        return tape.miss(ids, driver.model, len(self.items)) if ids else None

    def _look_up(self, tape: Cassette, digest: str) -> list[Pending]:
        """Serve what is recorded; return the rest. A recorded failure is served in replay mode only."""
        driver = self.drivers[0]
        self.digest, self.keys = digest, Keys(driver.provider, driver.name, digest, driver.options())
        for item in self.items:
            item.key = self.keys.key(item.messages, item.json_schema)
        recorded = tape.get(item.key for item in self.items)
        missing: dict[str, Pending] = {}
        for item in self.items:
            answer = recorded.get(item.key)
            if answer is not None and (answer["ok"] or tape.mode == "replay"):
                self._settle(item, self._served(item, answer))
            elif item.key in missing:
                # The same request twice: asked once, as a second run would find it on the cassette.
                missing[item.key].places += item.places
            else:
                missing[item.key] = item
        self.recorded = self.done
        return list(missing.values())

    def _served(self, item: Pending, answer: Mapping[str, Any]) -> Reply:
        """Rebuild a reply; a structured one is validated again, so that new validators hold for old replies."""
        driver, error, parsed = self.drivers[0], None, None
        if not answer["ok"]:
            stored = answer["error"]
            error = CallError(printable(stored["got"]), stored["expected"], printable(stored["do"]))
            error.kind, error.model, error.status = stored["kind"], driver.model, stored["status"]
        elif item.schema is not None:
            parsed, _, problem = read_reply(answer["text"], item.schema)
            if problem:
                what = f"the recorded reply does not fit the schema: {problem}"
                error = driver.fail("invalid", what, do="record anew")
        elif answer["finish"] in CUT_SHORT and not self.keep_cut:
            error = driver.fail("truncated", "the recorded reply was cut off", raw=answer["raw"])
        same = {name: answer[name] for name in ("text", "seconds", "raw", "finish", "repairs", "attempts")}
        same |= {"usage": Usage.from_dict(answer["usage"]), "form": answer.get("form", "")}
        judged = {"ok": error is None, "error": error, "parsed": parsed}
        return Reply(**same, **judged, **self._who(item, driver), cached=True)

    # -- from the servers --------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Serve what is recorded, ask for the rest, and settle every item."""
        try:
            await self._ask_hosts()
        finally:
            for driver in self.drivers:
                if driver.kept_by is None:
                    await driver.close()

    async def _ask_hosts(self) -> None:
        most = self.limits.concurrency
        hosts = [Host(d, min(most, d.slots or most), gate_of(d.host)) for d in self.drivers]
        missing = await self._not_recorded(hosts)
        await self._hand_over()
        workers = [Worker(host) for host in hosts for _ in range(min(host.limit, len(missing)))]
        schedule = Schedule(missing, workers, self.limits, self.stopped)
        try:
            async with asyncio.TaskGroup() as tasks:
                for worker in workers:
                    tasks.create_task(self._work(schedule, worker))
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None
        if not self.stopped():
            for item in schedule.left_over():
                host = next(host for host in reversed(hosts) if host.dead is not None)
                assert host.dead is not None
                host.dead.no_host_left = True
                error = too_long(host.driver, item.tokens()) or host.dead
                self._finish(item, self._unanswered(item, host.driver, error))
            await self._hand_over()

    async def _not_recorded(self, hosts: Sequence[Host]) -> list[Pending]:
        """Find out whose replies these will be, serve what is recorded of that model, and return the rest.

        A host that cannot say which weights it has takes no part when replies are recorded: nobody would know whose
        they are. As long as everything is on the cassette, no host needs to be there.
        """
        driver, tape = self.drivers[0], self.cassette
        on_server = await self._digest_of(hosts, patient=False)
        if tape is None:
            self.digest = on_server or ""
            return self.items
        digest = tape.choose_digest(driver.provider, driver.name, on_server)
        missing = self._look_up(tape, digest) if digest is not None else self.items
        if missing and any(host.digest is None for host in hosts):
            on_server = await self._digest_of(hosts, patient=True)
            chosen = tape.choose_digest(driver.provider, driver.name, on_server)
            if digest is None and chosen is not None:
                missing = self._look_up(tape, chosen)
        if missing and on_server is not None:
            tape.register(driver.provider, driver.name, self.digest)
        return missing

    async def _digest_of(self, hosts: Sequence[Host], patient: bool) -> str | None:
        """Ask the hosts that have not said so yet which weights stand behind the name; they must agree."""
        await asyncio.gather(*(self._ask_digest(host, patient) for host in hosts if host.digest is None))
        return agreed_digest(self.drivers, [host.digest for host in hosts])

    async def _ask_digest(self, host: Host, patient: bool) -> None:
        for tried in range(self.limits.retries + 1 if patient else 1):
            if tried:
                await asyncio.sleep(self.limits.backoff_s * 2 ** (tried - 1))
            try:
                host.digest = await host.driver.digest()
            except Exception as unnamed:
                error = host.driver.named(unnamed)
                final = KINDS[error.kind].host_wide and not (error.kind in AWAY and host.gate.answered)
                host.dead = error if final or (patient and self.cassette is not None) else None
                if final:
                    return
            else:
                host.dead = None
                if host.driver.has_spoken:
                    host.gate.spoke()
                return

    async def _work(self, schedule: Schedule, worker: Worker) -> None:
        host = worker.host
        while (item := await schedule.next(worker)) is not None:
            await host.gate.enter(host.limit)
            if self.stopped():
                host.gate.leave()
                return
            try:
                if host.was_away:
                    await self._same_model(host)
                reply = await self._attempt(host.driver, item)
            except Exception as unnamed:
                # Whatever a server says, and whatever that breaks here, is the failure of this prompt alone.
                error = host.driver.named(unnamed)
                if error.kind == "digest":
                    raise error from None
                if error.kind == "context" and "num_ctx=" not in error.do:
                    error = with_advice(host.driver, error, item.tokens())
                if (item.attempts or error.kind != "context") and schedule.failed(host, item, error):
                    continue
                error.no_host_left = KINDS[error.kind].host_wide and all(h.dead is not None for h in schedule.hosts)
                reply = self._unanswered(item, host.driver, error)
            else:
                schedule.succeeded(host)
            finally:
                host.gate.leave()
            self._finish(item, reply)
            await self._hand_over()
            schedule.settled()

    async def _same_model(self, host: Host) -> None:
        """Compare the model of a host that was away with the one it had. Raises CallError."""
        if host.digest is not None:
            digest = await host.driver.digest()
            if host.digest and not digest:
                raise host.driver.fail("server_error", "the server no longer tells which model it has")
            agreed_digest([host.driver] * 2, [host.digest, digest])
        host.was_away = False

    async def _attempt(self, driver: Driver, item: Pending) -> Reply:
        """Make one call and, where a structured reply was not good, its repair; judge what comes back."""
        if error := too_long(driver, item.tokens()):
            raise error
        while True:
            messages, estimate = item.messages, item.tokens()
            if item.draft is not None:
                messages = repair_messages(messages, *item.draft, item.json_schema)
                estimate = prompt_tokens(messages)
            received = await self._call(driver, item, messages)
            parsed, text, problem = _judge(driver, received, item.schema, estimate, self.keep_cut)
            raw, finish = received.text, received.finish or ""
            if not problem:
                fields = {"text": text, "parsed": parsed, "raw": raw, "finish": finish, "form": received.form}
                return self._made(item, driver, ok=True, **fields)
            if item.draft is not None:
                kind = "truncated" if finish in CUT_SHORT else "invalid"
                raise driver.fail(kind, f"after one repair try: {problem}", raw=raw)
            item.draft = (raw, problem)

    async def _call(self, driver: Driver, item: Pending, messages: list[dict]) -> Received:
        item.attempts += 1
        start = time.perf_counter()
        received = await driver.call(messages, schema_dict(item.json_schema), self.limits.deadline_s)
        usage = received.usage(time.perf_counter() - start, driver.price)
        item.spent = usage if item.spent is None else item.spent + usage
        if any(secret in received.text for secret in driver.secrets):
            raise driver.fail("secret", "the reply holds the API key", raw=received.text, do="ask another server")
        return received

    def _who(self, item: Pending, driver: Driver) -> dict[str, Any]:
        return {"id": item.id, "step": self.step, "model": driver.model, "digest": self.digest, "key": item.key}

    def _made(self, item: Pending, driver: Driver, **fields: Any) -> Reply:
        usage = item.spent or Usage()
        calls = {"repairs": int(item.draft is not None), "attempts": item.attempts, "host": driver.host}
        return Reply(usage=usage, seconds=usage.seconds, **calls, **self._who(item, driver), **fields)

    def _unanswered(self, item: Pending, driver: Driver, error: CallError) -> Reply:
        raw = error.raw or (item.draft[0] if item.draft else "")
        return self._made(item, driver, text=raw, raw=raw, error=error)

    # -- settling ----------------------------------------------------------------------------------------------------

    def _finish(self, item: Pending, reply: Reply) -> None:
        """Record a reply that was just made, then settle it."""
        if self.cassette is not None and self.keys is not None:
            request = self.keys.request(item.messages, item.json_schema)
            if not self.cassette.put(item.key, request, _to_answer(reply), step=self.step, prompt_id=item.id):
                # Another process was first: its answer stays, and is what a replay will give.
                reply = self._served(item, self.cassette.get([item.key])[item.key])
        self._settle(item, reply)

    def _settle(self, item: Pending, reply: Reply) -> None:
        for number, place in enumerate(item.places):
            self.replies[place] = replace(reply, cached=True, id=self.items[place].id) if number else reply
            self.untold.append(place)
            self.done += 1
            self.failed += not reply.ok
            self.cached += reply.cached or number > 0

    async def _hand_over(self) -> None:
        if self.on_reply is not None and self.untold:
            await self.caller.call(self._tell)

    def _tell(self) -> None:
        """Tell ``on_reply`` of what was settled; runs in the caller's thread."""
        while self.on_reply is not None and self.untold:
            place = self.untold.popleft()
            self.on_reply(place, self.replies[place])

    def all_replies(self) -> list[Reply]:
        """Return one reply per prompt, a failure of kind ``interrupted`` where there is none."""
        driver = self.drivers[0]
        interrupted = partial(driver.fail, "interrupted", "not answered yet")
        places = enumerate(self.items)
        return [self.replies.get(place) or self._unanswered(item, driver, interrupted()) for place, item in places]


def _judge(driver: Driver, received: Received, schema: Any, estimate: int, keep_cut: bool) -> tuple[Any, str, str]:
    """Judge one reply as it came over the wire: as ``read_reply``; CallError where it cannot even be repaired."""
    text, finish = received.text, received.finish or ""
    # A reply that filled the window is cut off itself; its prompt was read whole.
    written = None if finish in CUT_SHORT else received.output_tokens
    if error := was_cut(driver, estimate, received.prompt_tokens, written):
        error.raw = text
        raise error
    if finish in CUT_SHORT and not (keep_cut and schema is None):
        limits = f"num_predict={driver.num_predict}, num_ctx={driver.num_ctx}"
        what = f"the reply was cut off after {received.output_tokens} tokens ({limits})"
        if repeats(text):
            what = f"the reply repeats itself, and ends after {len(text)} characters without an end"
        if schema is None:
            raise driver.fail("truncated", what, raw=text)
        return None, "", what
    if finish not in FINISHED | CUT_SHORT:
        kind = "refused" if "filter" in finish or finish == "refusal" else "unfinished"
        raise driver.fail(kind, f"the server stopped for the reason {finish!r}", raw=text)
    said = without_thinking(text)
    if not said:
        what = "nothing but an unfinished thinking part" if said is None else "an empty answer"
        raise driver.fail("empty", what, raw=text)
    return (None, said, "") if schema is None else read_reply(text, schema)


def _to_answer(reply: Reply) -> dict[str, Any]:
    """Return what is stored of a reply; what the key says already (model, options ...) is not repeated."""
    form = ("form",) if reply.form else ()
    names = ("ok", "text", "raw", "finish", *form, "usage", "seconds", "repairs", "attempts", "error")
    answer = {name: getattr(reply, name) for name in names} | {"usage": reply.usage.to_dict()}
    if reply.error is not None:
        stored = without_address(reply.error)
        answer["error"] = {name: getattr(stored, name) for name in ("kind", "got", "expected", "do", "status")}
    return answer
