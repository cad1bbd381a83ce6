"""One run of ``ask``: from prompts to replies, through the cassette and the hosts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ragbench.llm.cassette import Cassette, miss
from ragbench.llm.context import prompt_tokens, too_long, with_advice
from ragbench.llm.driver import Driver, Wire
from ragbench.llm.failures import AWAY, CallError, redact
from ragbench.llm.invoke import call
from ragbench.llm.judge import Verdict, judge
from ragbench.llm.keys import Keys
from ragbench.llm.record import from_answer, to_answer
from ragbench.llm.reply import CUT_SHORT, Reply, Usage
from ragbench.llm.schedule import Gate, Host, Item, Schedule, gate_of
from ragbench.llm.structured import repair_messages, schema_dict


class Job:
    """The state of one ``ask``.

    Parameters
    ----------
    drivers : one per host, all of the same model.
    items : the prompts.
    cassette : or None.
    limits : concurrency, deadline_s, retries, backoff_s, patience_s, outage_s.
    step, price, count_tokens : see ``ask``. keep_cut : whether a text that ended at its limit is an answer.
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
        keep_cut: bool = False,
    ) -> None:
        self.drivers, self.items, self.limits, self.step = drivers, items, limits, step
        self.cassette = cassette if cassette is not None and cassette.mode != "off" else None
        self.price, self.count_tokens, self.keep_cut = price, count_tokens, keep_cut
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
                self._settle(item, self._served(item, answer))
            elif item.key in missing:
                # The same request twice: asked once, as a second run would find it on the cassette.
                missing[item.key].places += item.places
            else:
                missing[item.key] = item
        self.recorded = self.done
        return list(missing.values())

    def _served(self, item: Item, answer: dict[str, Any]) -> Reply:
        names = {"id": item.id, "step": self.step, "digest": self.digest, "key": item.key}
        return from_answer(answer, self.drivers[0], item.schema, self.keep_cut, **names)

    # -- from the servers --------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Serve what is recorded, ask for the rest, and settle every item."""
        try:
            await self._run()
        finally:
            for driver in self.drivers:
                if not driver.kept:
                    await driver.close()

    async def _run(self) -> None:
        most = self.limits["concurrency"]
        hosts = [Host(d, min(most, d.slots or most), gate_of(d.host)) for d in self.drivers]
        missing = await self._not_recorded(hosts)
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

    async def _not_recorded(self, hosts: Sequence[Host]) -> list[Item]:
        """Find out whose replies these will be, serve what is recorded of that model, and return the rest.

        A host that cannot say which weights it has takes no part when replies are recorded: nobody would know whose
        they are. As long as everything is on the cassette, no host needs to be there.
        """
        driver = hosts[0].driver
        on_server = await self._digest_of(hosts, patient=False)
        if self.cassette is None:
            self.digest = on_server or ""
            return self.items
        digest = self.cassette.choose_digest(driver.provider, driver.name, on_server)
        missing = self._look_up(digest) if digest is not None else self.items
        if missing and any(host.digest is None for host in hosts):
            on_server = await self._digest_of(hosts, patient=True)
            chosen = self.cassette.choose_digest(driver.provider, driver.name, on_server)
            if digest is None and chosen is not None:
                missing = self._look_up(chosen)
        if missing and on_server is not None:
            self.cassette.register(driver.provider, driver.name, self.digest)
        return missing

    async def _digest_of(self, hosts: Sequence[Host], patient: bool) -> str | None:
        """Ask the hosts that have not said so yet which weights stand behind the name; they must agree."""
        await asyncio.gather(*(self._ask_digest(host, patient) for host in hosts if host.digest is None))
        digests = {host.digest: host.driver.host for host in hosts if host.digest is not None}
        if len(digests) > 1:
            told = ", ".join(f"{digest[:12]} at {host}" for digest, host in digests.items())
            words = f"two digests under one name: {told}"
            raise hosts[0].driver.fail("digest", words, do="pull the same model on every host")
        return next(iter(digests), None)

    async def _ask_digest(self, host: Host, patient: bool) -> None:
        for tried in range(self.limits["retries"] + 1 if patient else 1):
            if tried:
                await asyncio.sleep(self.limits["backoff_s"] * 2 ** (tried - 1))
            try:
                host.digest = await host.driver.digest()
            except CallError as error:
                final = error.kind in ("no_model", "gguf") or (error.kind in AWAY and not host.gate.answered)
                host.dead = error if final or (patient and self.cassette is not None) else None
                if final:
                    return
            else:
                host.gate.answered, host.dead = host.gate.answered or host.driver.has_spoken, None
                return

    async def _work(self, schedule: Schedule, host: Host) -> None:
        while (item := await schedule.next(host)) is not None:
            await _enter(host.gate, host.limit)
            try:
                reply = await self._attempt(host.driver, item)
            except CallError as error:
                if error.kind == "context" and "num_ctx=" not in error.do:
                    error = with_advice(error, item.estimate, host.driver.num_predict)
                if item.attempts and schedule.failed(host, item, error):
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
            verdict = judge(driver, wire, item.schema, item.estimate, self.keep_cut)
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
            new = self.cassette.put(item.key, request, to_answer(reply), step=self.step, prompt_id=item.id)
            if not new:
                # Another process was first: its answer stays, and is what a replay will give.
                recorded = self.cassette.get([item.key])[item.key]
                reply = self._served(item, recorded)
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
