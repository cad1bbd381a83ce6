"""One run of ``ask``: from prompts to replies, through the cassette and the hosts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ragbench.llm.cassette import Cassette, miss
from ragbench.llm.context import prompt_tokens, too_long
from ragbench.llm.driver import CUT_SHORT, Driver, Wire
from ragbench.llm.failures import KINDS, CallError, redact
from ragbench.llm.invoke import call
from ragbench.llm.judge import Verdict, judge
from ragbench.llm.keys import Keys
from ragbench.llm.reply import Reply, Usage
from ragbench.llm.schedule import Gate, Host, Item, Schedule, gate_of
from ragbench.llm.structured import read, repair_messages, schema_dict

# The model's absence is known before the first call; what else goes wrong here will show in the calls themselves.
_KNOWN_BEFOREHAND = ("no_model", "server_down", "dns")


class Job:
    """The state of one ``ask``.

    Parameters
    ----------
    drivers : one per host, all of the same model.
    items : the prompts.
    cassette : or None.
    limits : concurrency, deadline_s, retries, backoff_s, patience_s, outage_s.
    step, price, count_tokens : see ``ask``.
    """

    def __init__(
        self,
        drivers: Sequence[Driver],
        items: list[Item],
        cassette: Cassette | None,
        limits: dict[str, Any],
        step: str,
        price: tuple[float, float] | None,
        count_tokens: Callable[[str], int] | None,
    ) -> None:
        self.drivers, self.items, self.limits, self.step = drivers, items, limits, step
        self.cassette = cassette if cassette is not None and cassette.mode != "off" else None
        self.price, self.count_tokens = price, count_tokens
        self.replies: list[Reply | None] = [None] * len(items)
        self.done = self.failed = self.cached = self.recorded = 0
        self.digest = ""
        self._keys: Keys | None = None

    # -- from the cassette -------------------------------------------------------------------------------------------

    def replay(self) -> CallError | None:
        """Serve everything from the cassette, without a socket. Returns the error for what is missing, if any."""
        assert self.cassette is not None
        driver = self.drivers[0]
        digest = self.cassette.choose_digest(driver.provider, driver.name, driver.pinned_digest)
        missing = self._look_up(digest) if digest is not None else self.items
        if not missing:
            return None
        ids = [self.items[place].id for item in missing for place in item.places]
        error = miss(self.cassette, ids, driver.model, len(self.items))
        for item in missing:
            one = miss(self.cassette, [item.id], driver.model, len(self.items))
            self._settle(item, self.unanswered(item, driver, one))
        return error

    def _look_up(self, digest: str) -> list[Item]:
        """Serve what is recorded; return the rest. A recorded failure is served in replay mode only."""
        assert self.cassette is not None
        driver = self.drivers[0]
        self.digest = digest
        self._keys = Keys(driver.provider, driver.name, digest, driver.options())
        for item in self.items:
            item.key = self._keys.key(item.messages, item.json_schema)
        found = self.cassette.get(item.key for item in self.items)
        missing: dict[str, Item] = {}
        for item in self.items:
            answer = found.get(item.key)
            if answer is not None and (answer["ok"] or self.cassette.mode == "replay"):
                self._settle(item, self._recorded(item, driver, answer))
            elif item.key in missing:
                # The same request twice: asked once, as a second run would find it on the cassette.
                missing[item.key].places += item.places
            else:
                missing[item.key] = item
        self.recorded = self.done
        return list(missing.values())

    def _recorded(self, item: Item, driver: Driver, answer: dict[str, Any]) -> Reply:
        error = None
        parsed = None
        if not answer["ok"]:
            told = answer["error"]
            error = CallError(told["got"], told["expected"], told["do"])
            error.kind, error.model, error.status = told["kind"], driver.model, told["status"]
        elif item.schema is not None:
            parsed, _, problem = read(answer["text"], item.schema)
            if problem:
                error = driver.fail(
                    "invalid", f"the recorded reply does not fit the schema: {problem}", do="record anew"
                )
        return Reply(
            text=answer["text"],
            parsed=parsed,
            ok=error is None,
            error=error,
            usage=Usage.from_dict(answer["usage"]),
            seconds=answer["seconds"],
            cached=True,
            id=item.id,
            step=self.step,
            raw=answer["raw"],
            finish=answer["finish"],
            repairs=answer["repairs"],
            attempts=answer["attempts"],
            model=driver.model,
            digest=self.digest,
            key=item.key,
        )

    # -- from the servers --------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Serve what is recorded, ask for the rest, and settle every item."""
        hosts = [Host(driver, self.limits["concurrency"], gate_of(driver.host)) for driver in self.drivers]
        digest = await self._find_digest(hosts)
        missing = self.items
        if self.cassette is not None and digest is not None:
            missing = self._look_up(digest)
            if missing:
                self.cassette.register(hosts[0].driver.provider, hosts[0].driver.name, digest)
        names = ("retries", "backoff_s", "patience_s", "outage_s")
        schedule = Schedule(missing, hosts, **{name: self.limits[name] for name in names})
        try:
            async with asyncio.TaskGroup() as tasks:
                for host in hosts:
                    for _ in range(min(host.limit, len(missing))):
                        tasks.create_task(self._work(schedule, host))
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None
        for item in schedule.left_over():
            host = next(host for host in reversed(hosts) if host.dead is not None)
            assert host.dead is not None
            self._finish(item, self.unanswered(item, host.driver, host.dead))

    async def _find_digest(self, hosts: Sequence[Host]) -> str | None:
        """Ask every host which weights stand behind the name; they must agree, with each other and the cassette.

        A host that cannot say so takes no part when replies are recorded: nobody would know whose they are. None means
        that no host could, and nothing is recorded yet either.
        """
        answers = await asyncio.gather(*(self._digest_at(host) for host in hosts))
        digests = {answer: host.driver.host for host, answer in zip(hosts, answers, strict=True) if answer is not None}
        driver = hosts[0].driver
        if len(digests) > 1:
            told = ", ".join(f"{digest[:12]} at {host}" for digest, host in digests.items())
            raise driver.fail("digest", f"two digests under one name: {told}", do="pull the same model on every host")
        found = next(iter(digests), None)
        if self.cassette is not None:
            found = self.cassette.choose_digest(driver.provider, driver.name, found)
        self.digest = found or ""
        return found

    async def _digest_at(self, host: Host) -> str | None:
        for tried in range(self.limits["retries"] + 1):
            try:
                digest = await host.driver.digest()
            except CallError as error:
                may_pass = KINDS[error.kind].retry or error.kind == "busy" or host.gate.answered
                if may_pass and error.kind != "no_model" and tried < self.limits["retries"]:
                    pause = self.limits["backoff_s"] * 2**tried
                    await asyncio.sleep(min(error.retry_after or pause, self.limits["patience_s"]))
                    continue
                if self.cassette is not None or error.kind in _KNOWN_BEFOREHAND:
                    host.dead = error
                return None
            host.gate.answered = True
            return digest
        return None

    async def _work(self, schedule: Schedule, host: Host) -> None:
        while (item := await schedule.next(host)) is not None:
            await _enter(host.gate, host.limit)
            try:
                reply = await self._attempt(host.driver, item)
            except CallError as error:
                if schedule.failed(host, item, error):
                    continue
                reply = self.unanswered(item, host.driver, error)
            else:
                schedule.succeeded(host)
            finally:
                host.gate.busy -= 1
                host.gate.free.set()
            self._finish(item, reply)
            schedule.settled()

    async def _attempt(self, driver: Driver, item: Item) -> Reply:
        """Make one call (or, where a structured reply was not good, its repair) and judge what comes back."""
        if not item.estimate:
            item.estimate = prompt_tokens(item.messages, self.count_tokens)
        exact = self.count_tokens is not None
        if error := too_long(item.estimate, exact, driver.num_ctx, driver.num_predict, driver.who):
            raise error
        schema = schema_dict(item.json_schema)
        if item.draft is None:
            wire = await self._call(driver, item, item.messages, schema)
            verdict = judge(driver, wire, item.schema, item.estimate)
            if not verdict.problem:
                return self._answered(item, driver, wire, verdict)
            item.draft = (wire.text, verdict.problem)
        messages = repair_messages(item.messages, *item.draft, item.json_schema)
        wire = await self._call(driver, item, messages, schema)
        verdict = judge(driver, wire, item.schema, prompt_tokens(messages, self.count_tokens))
        if verdict.problem:
            kind = "truncated" if wire.finish in CUT_SHORT else "invalid"
            raise driver.fail(kind, f"after one repair try: {verdict.problem}", raw=wire.text)
        return self._answered(item, driver, wire, verdict)

    def _answered(self, item: Item, driver: Driver, wire: Wire, verdict: Verdict) -> Reply:
        made = {"text": verdict.text, "parsed": verdict.parsed, "raw": wire.text, "finish": wire.finish}
        return self._reply(item, driver, ok=True, **made)

    async def _call(self, driver: Driver, item: Item, messages: list[dict], schema: dict | None) -> Wire:
        item.attempts += 1
        start = time.perf_counter()
        wire = await call(driver, messages, schema, self.limits["deadline_s"])
        usage = wire.usage(time.perf_counter() - start, self.price or driver.price)
        item.spent = usage if item.spent is None else item.spent + usage
        wire.text = _hide(wire.text, driver.secrets)
        return wire

    def _reply(self, item: Item, driver: Driver, **fields: Any) -> Reply:
        usage = item.spent or Usage()
        return Reply(
            usage=usage,
            seconds=usage.seconds,
            id=item.id,
            step=self.step,
            repairs=int(item.draft is not None),
            attempts=item.attempts,
            model=driver.model,
            digest=self.digest,
            host=driver.host,
            key=item.key,
            **fields,
        )

    def unanswered(self, item: Item, driver: Driver, error: CallError) -> Reply:
        """Make the failed Reply of an item."""
        raw = error.raw or (item.draft[0] if item.draft else "")
        return self._reply(item, driver, text=raw, raw=raw, error=error)

    # -- settling ----------------------------------------------------------------------------------------------------

    def _finish(self, item: Item, reply: Reply) -> None:
        """Record a reply that was just made, then settle it."""
        if self.cassette is not None and self._keys is not None:
            request = self._keys.request(item.messages, item.json_schema)
            new = self.cassette.put(item.key, request, _answer(reply), step=self.step, prompt_id=item.id)
            if not new:
                # Another process was first: its answer stays, and is what a replay will give.
                recorded = self.cassette.get([item.key])[item.key]
                reply = self._recorded(item, self.drivers[0], recorded)
        self._settle(item, reply)

    def _settle(self, item: Item, reply: Reply) -> None:
        for number, place in enumerate(item.places):
            one = reply
            if number:
                one = replace(reply, cached=True, id=self.items[place].id)
            self.replies[place] = one
            self.done += 1
            self.failed += not one.ok
            self.cached += one.cached


async def _enter(gate: Gate, limit: int) -> None:
    while gate.busy >= limit:
        gate.free.clear()
        await gate.free.wait()
    gate.busy += 1


def _hide(text: str, secrets: tuple[str, ...]) -> str:
    return redact(text, secrets) if any(secret in text for secret in secrets) else text


def _answer(reply: Reply) -> dict[str, Any]:
    """Return what is stored of a reply."""
    error = None
    if reply.error is not None:
        told = reply.error
        error = {"kind": told.kind, "got": told.got, "expected": told.expected, "do": told.do, "status": told.status}
    return {
        "ok": reply.ok,
        "text": reply.text,
        "raw": reply.raw,
        "finish": reply.finish,
        "usage": reply.usage.to_dict(),
        "seconds": reply.seconds,
        "repairs": reply.repairs,
        "attempts": reply.attempts,
        "error": error,
    }
