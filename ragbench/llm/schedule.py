"""In which order the prompts go out, to which host, and when again."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import random
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from ragbench.errors import ConfigError
from ragbench.llm.context import prompt_tokens
from ragbench.llm.drivers import Driver
from ragbench.llm.failures import AWAY, KINDS, MAY_BE_ANOTHER, ONCE_MORE, CallError
from ragbench.llm.reply import Usage

# A host that refuses this many prompts more than can be under way at once, and answers none between them, has no right
# answer for the rest either.
_GIVE_UP_AFTER = 2
_LONGEST_PAUSE_S = 30.0
_POLL_S = 0.2  # how often a waiting worker looks whether it is to stop


@dataclass(frozen=True, slots=True)
class Limits:
    """How many calls at once, how long and how often; see ``ask``."""

    concurrency: int
    deadline_s: float
    retries: int
    backoff_s: float
    patience_s: float
    outage_s: float

    def __post_init__(self) -> None:
        least = {"concurrency": 1, "deadline_s": 1e-9}
        for name, value in asdict(self).items():
            if not value >= least.get(name, 0):
                raise ConfigError(f"{name}={value}", f"a number of at least {least.get(name, 0):g}", f"raise {name}")


@dataclass(slots=True, eq=False)
class Pending:
    """One prompt on its way: where its reply belongs, and what has happened to it so far."""

    places: list[int]
    id: str
    messages: list[dict]
    schema: Any = None
    json_schema: str = ""
    group: str = ""  # what it belongs to (a question, say); "" where its beginning decides
    key: str = ""
    estimate: int = 0  # of its tokens; 0: not made yet
    tries: int = 0
    attempts: int = 0
    busy_since: float | None = None
    spent: Usage | None = None
    draft: tuple[str, str] | None = None  # (what was written, what was wrong): the repair try is due
    refused_by: list[Host] = field(default_factory=list)

    @property
    def text(self) -> str:
        """All of the prompt as one text, for ordering."""
        return "\n".join(str(message["content"]) for message in self.messages)

    def tokens(self) -> int:
        """Estimate the tokens of the prompt, once."""
        self.estimate = self.estimate or prompt_tokens(self.messages)
        return self.estimate


@dataclass(slots=True)
class Gate:
    """What all ``ask`` of this process know of one host: calls under way, whether it ever answered, since when not."""

    busy: int = 0
    answered: bool = False
    down_since: float | None = None
    free: asyncio.Event = field(default_factory=asyncio.Event)

    async def enter(self, limit: int) -> None:
        """Wait until fewer than so many calls are under way, and count one more."""
        while self.busy >= limit:
            self.free.clear()
            await self.free.wait()
        self.busy += 1

    def leave(self) -> None:
        self.busy -= 1
        self.free.set()

    def spoke(self) -> None:
        self.answered, self.down_since = True, None


_gates: dict[tuple[int, str, int], Gate] = {}


def gate_of(host: str) -> Gate:
    """Return the gate of a host on the running loop."""
    return _gates.setdefault((os.getpid(), host, id(asyncio.get_running_loop())), Gate())


@dataclass(slots=True, eq=False)
class Host:
    """One server of a run, and how it has behaved."""

    driver: Driver
    limit: int
    gate: Gate
    digest: str | None = None
    pause_until: float = 0.0
    refused: set[int] = field(default_factory=set)
    busy_answers: int = 0
    was_away: bool = False  # and may have come back with another model
    dead: CallError | None = None


@dataclass(slots=True, eq=False)
class Worker:
    """One place at a host, with the prompts it goes through one after another."""

    host: Host
    current: deque[Pending] = field(default_factory=deque)


def groups(items: Iterable[Pending]) -> list[deque[Pending]]:
    """Put prompts that share their beginning side by side, the group with the most text first.

    Prompts with the name of a group are put together by it. Without one, two neighbours (in alphabetical order) belong
    together when they share at least half of the shorter one: the same question with more and more context, or the same
    passage with many claims. Such a group goes to one place of one host in this order, so that the server finds the
    beginning in its prompt cache.
    """
    sized: list[tuple[int, deque[Pending]]] = []
    before, named = "", ""
    for name, text, item in sorted(((item.group, item.text, item) for item in items), key=lambda entry: entry[:2]):
        half = (min(len(before), len(text)) + 1) // 2
        if sized and name == named and (name or (half and before[:half] == text[:half])):
            size, group = sized[-1]
            group.append(item)
            sized[-1] = (size + len(text), group)
        else:
            sized.append((len(text), deque([item])))
        before, named = text, name
    return [group for _, group in sorted(sized, key=lambda pair: -pair[0])]


class Schedule:
    """Hands items to workers until every one is settled, no host is left, or ``stop`` says so."""

    def __init__(self, items: list[Pending], workers: list[Worker], limits: Limits, stop: Callable[[], bool]) -> None:
        self.workers, self.hosts = workers, list(dict.fromkeys(worker.host for worker in workers))
        self.limits, self.stop = limits, stop
        self._waiting = deque(groups(items))
        self._later: list[tuple[float, int, Pending]] = []
        self._numbers = itertools.count()
        self._open = len(items)
        self._wake = asyncio.Event()

    def settled(self) -> None:
        self._open -= 1
        if not self._open:
            self._rouse()

    def left_over(self) -> list[Pending]:
        """Return the items nobody will take any more (all hosts are dead, or the run is stopped)."""
        rest = [item for group in (*self._waiting, *(worker.current for worker in self.workers)) for item in group]
        return rest + [item for _, _, item in sorted(self._later, key=lambda entry: entry[:2])]

    async def next(self, worker: Worker) -> Pending | None:
        """Wait for an item this worker may take on; None when there will be none."""
        host = worker.host
        while self._open and host.dead is None and not self.stop():
            now = asyncio.get_running_loop().time()
            # A host tries again what it refused only where no other is left to ask.
            mine = (entry for entry in self._later if host not in entry[2].refused_by or not self._others(entry[2]))
            again = min(mine, default=None, key=lambda entry: entry[:2])
            if host.pause_until > now:
                await self._sleep(host.pause_until - now)
            elif again is not None and again[0] <= now:
                self._later.remove(again)
                return again[2]
            elif (item := self._take(worker)) is not None:
                return item
            else:
                await self._sleep(again[0] - now if again is not None else _POLL_S)
        return None

    def _take(self, worker: Worker) -> Pending | None:
        if worker.current or self._waiting:
            worker.current = worker.current or self._waiting.popleft()
            return worker.current.popleft()
        # Nothing untouched is left: help whoever has most still to do, from the far end of its group.
        other = max(self.workers, key=lambda w: len(w.current))
        return other.current.pop() if other.current else None

    def _others(self, item: Pending) -> bool:
        """Whether a host is left that has not refused the item."""
        return any(host.dead is None and host not in item.refused_by for host in self.hosts)

    async def _sleep(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(seconds, _POLL_S)):
                await self._wake.wait()

    def _rouse(self) -> None:
        self._wake.set()
        self._wake = asyncio.Event()

    def succeeded(self, host: Host) -> None:
        host.gate.spoke()
        host.busy_answers = 0
        host.refused.clear()

    def failed(self, host: Host, item: Pending, error: CallError) -> bool:
        """Decide what follows a failure: True when the item will be tried again, False when it is final."""
        now = asyncio.get_running_loop().time()
        kind, retries = KINDS[error.kind], self.limits.retries
        host.was_away |= error.kind in MAY_BE_ANOTHER
        if error.kind in AWAY:
            return self._away(host, item, error, now)
        if error.kind == "busy":
            return self._busy(host, item, error, now)
        if kind.host_wide:
            host.refused.add(item.places[0])
            item.refused_by.append(host)
            if len(host.refused) > host.limit + _GIVE_UP_AFTER or not host.gate.answered:
                return self._bury(host, item, error, now)
            if self._others(item):
                return self._again(item, now)
        else:
            self.succeeded(host)
        most = min(1, retries) if error.kind in ONCE_MORE or kind.host_wide else retries
        if item.tries >= most or not (kind.retry or kind.host_wide):
            return False
        item.tries += 1
        return self._again(item, now + self._jitter(item.tries))

    def _away(self, host: Host, item: Pending, error: CallError, now: float) -> bool:
        gate, outage_s = host.gate, self.limits.outage_s
        gate.down_since = now if gate.down_since is None else gate.down_since
        if not gate.answered or now - gate.down_since >= outage_s:
            return self._bury(host, item, error, now)
        host.pause_until = now + min(self._jitter(1), outage_s / 4)
        return self._again(item, now)

    def _busy(self, host: Host, item: Pending, error: CallError, now: float) -> bool:
        patience_s = self.limits.patience_s
        host.gate.spoke()
        item.busy_since = now if item.busy_since is None else item.busy_since
        if host.pause_until <= now:
            host.busy_answers += 1  # once for all calls that were under way together
        pause = min(self._jitter(min(host.busy_answers, 8)), patience_s)
        if error.retry_after is not None:
            if error.retry_after > patience_s:  # no prompt waits so long
                return self._bury(host, item, error, now)
            pause = error.retry_after + self.limits.backoff_s * random.random()
        host.pause_until = max(host.pause_until, now + pause)
        others = any(other.dead is None and other.pause_until <= now for other in self.hosts)
        if now + pause - item.busy_since > patience_s and not others:
            return False
        return self._again(item, now)

    def _bury(self, host: Host, item: Pending, error: CallError, now: float) -> bool:
        """Give up a host; its prompts, and the item, are for the others."""
        host.dead = error
        for worker in self.workers:
            if worker.host is host and worker.current:
                self._waiting.appendleft(worker.current)
                worker.current = deque()
        self._rouse()
        return any(other.dead is None for other in self.hosts) and self._again(item, now)

    def _again(self, item: Pending, when: float) -> bool:
        self._later.append((when, next(self._numbers), item))
        self._rouse()
        return True

    def _jitter(self, tries: int) -> float:
        return min(self.limits.backoff_s * 2 ** (tries - 1), _LONGEST_PAUSE_S) * random.uniform(0.5, 1.5)
