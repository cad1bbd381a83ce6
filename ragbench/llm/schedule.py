"""In which order the prompts go out, to which host, and when again."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import os
import random
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ragbench.llm.failures import AWAY, KINDS, ONCE_MORE, CallError

if TYPE_CHECKING:
    from ragbench.llm.driver import Driver
    from ragbench.llm.reply import Usage

# A host that refuses this many prompts more than can be under way at once, and answers none between them, has no right
# answer for the rest either.
_GIVE_UP_AFTER = 2
_LONGEST_PAUSE_S = 30.0


@dataclass(slots=True)
class Item:
    """One prompt on its way: where its reply belongs, and what has happened to it so far."""

    places: list[int]
    id: str
    messages: list[dict]
    schema: Any = None
    json_schema: str = ""
    key: str = ""
    estimate: int = 0
    tries: int = 0
    attempts: int = 0
    busy_since: float | None = None
    spent: Usage | None = None
    draft: tuple[str, str] | None = None  # (what was written, what was wrong): the repair try is due

    @property
    def text(self) -> str:
        """All of the prompt as one text, for ordering."""
        return "\n".join(str(message["content"]) for message in self.messages)


@dataclass(slots=True)
class Gate:
    """What all ``ask`` of this process know of one host: calls under way, and whether it has ever answered."""

    busy: int = 0
    answered: bool = False
    free: asyncio.Event = field(default_factory=asyncio.Event)


_gates: dict[tuple[int, str, int], Gate] = {}


def gate_of(host: str) -> Gate:
    """Return the gate of a host on the running loop."""
    return _gates.setdefault((os.getpid(), host, id(asyncio.get_running_loop())), Gate())


@dataclass(slots=True)
class Host:
    """One server of a run, and how it has behaved."""

    driver: Driver
    limit: int
    gate: Gate
    digest: str | None = None
    pause_until: float = 0.0
    down_since: float | None = None
    refused: set[int] = field(default_factory=set)
    busy_answers: int = 0
    dead: CallError | None = None
    current: deque[Item] = field(default_factory=deque)


def groups(items: list[Item]) -> list[deque[Item]]:
    """Put prompts that share their beginning side by side, the longest job first.

    Two neighbours (in alphabetical order) belong together when they share at least half of the shorter one: the same
    question with more and more context, or the same passage with many claims. Such a group goes to one host in this
    order, so that the server finds the beginning in its prompt cache.

    Parameters
    ----------
    items : the prompts of one call of ``ask``.

    Returns
    -------
    list of groups, the one with the most text first; each in alphabetical order.
    """
    texts = sorted(((item.text, number) for number, item in enumerate(items)), key=lambda pair: pair)
    found: list[tuple[int, deque[Item]]] = []
    before = ""
    for text, number in texts:
        half = (min(len(before), len(text)) + 1) // 2
        if found and half and before[:half] == text[:half]:
            size, group = found[-1]
            group.append(items[number])
            found[-1] = (size + len(text), group)
        else:
            found.append((len(text), deque([items[number]])))
        before = text
    found.sort(key=lambda pair: -pair[0])
    return [group for _, group in found]


class Schedule:
    """Hands items to hosts until every one is settled or no host is left.

    Parameters
    ----------
    items : the prompts.
    hosts : the servers that share them.
    retries : how often a failure that may pass (``KINDS[...].retry``) is tried again.
    backoff_s : first pause before another try; doubled each time, with jitter.
    patience_s : how long a prompt waits, in all, for a server that says it is busy.
    outage_s : how long a server that has answered before may be away.
    """

    def __init__(
        self,
        items: list[Item],
        hosts: list[Host],
        retries: int,
        backoff_s: float,
        patience_s: float,
        outage_s: float,
    ) -> None:
        self.hosts, self.retries, self.backoff_s = hosts, retries, backoff_s
        self.patience_s, self.outage_s = patience_s, outage_s
        self._waiting = deque(groups(items))
        self._later: list[tuple[float, int, Item]] = []
        self._numbers = itertools.count()
        self._open = len(items)
        self._wake = asyncio.Event()

    def settled(self) -> None:
        """Note that one item has its reply."""
        self._open -= 1
        if not self._open:
            self._rouse()

    def left_over(self) -> list[Item]:
        """Return the items nobody will take any more (all hosts are dead)."""
        rest = [item for group in (*self._waiting, *(host.current for host in self.hosts)) for item in group]
        rest += [item for _, _, item in sorted(self._later)]
        self._waiting.clear()
        self._later.clear()
        for host in self.hosts:
            host.current.clear()
        return rest

    async def next(self, host: Host) -> Item | None:
        """Wait for an item this host may work on; None when there will be none."""
        while self._open and host.dead is None:
            now = asyncio.get_running_loop().time()
            if host.pause_until > now:
                await self._sleep(host.pause_until - now)
            elif self._later and self._later[0][0] <= now:
                return heapq.heappop(self._later)[2]
            elif (item := self._take(host)) is not None:
                return item
            else:
                await self._sleep(self._later[0][0] - now if self._later else None)
        return None

    def _take(self, host: Host) -> Item | None:
        if not host.current:
            if self._waiting:
                host.current = self._waiting.popleft()
            else:
                # Nothing untouched is left: help the host that has most still to do, from the far end of its group.
                other = max(self.hosts, key=lambda h: len(h.current))
                return other.current.pop() if other.current else None
        return host.current.popleft()

    async def _sleep(self, seconds: float | None) -> None:
        wake = self._wake
        try:
            async with asyncio.timeout(seconds):
                await wake.wait()
        except TimeoutError:
            return

    def _rouse(self) -> None:
        self._wake.set()
        self._wake = asyncio.Event()

    def succeeded(self, host: Host) -> None:
        """Note that a host has answered."""
        host.gate.answered, host.down_since, host.busy_answers = True, None, 0
        host.refused.clear()

    def failed(self, host: Host, item: Item, error: CallError) -> bool:
        """Decide what follows a failure: True when the item will be tried again, False when it is final."""
        now = asyncio.get_running_loop().time()
        kind = KINDS[error.kind]
        if error.kind in AWAY:
            return self._away(host, item, error, now)
        if error.kind == "busy":
            return self._busy(host, item, error, now)
        if kind.host_wide:
            host.refused.add(item.places[0])
            if len(host.refused) > host.limit + _GIVE_UP_AFTER or not host.gate.answered:
                self._bury(host, error)
                return self._elsewhere(item, now)
        else:
            self.succeeded(host)
        if item.tries >= (min(1, self.retries) if error.kind in ONCE_MORE or kind.host_wide else self.retries):
            return False
        if not (kind.retry or kind.host_wide):
            return False
        item.tries += 1
        self._again(item, now + self._jitter(item.tries))
        return True

    def _away(self, host: Host, item: Item, error: CallError, now: float) -> bool:
        host.down_since = now if host.down_since is None else host.down_since
        if not host.gate.answered or now - host.down_since >= self.outage_s:
            self._bury(host, error)
            return self._elsewhere(item, now)
        host.pause_until = now + min(self._jitter(1), self.outage_s / 4)
        self._again(item, now)
        return True

    def _busy(self, host: Host, item: Item, error: CallError, now: float) -> bool:
        host.gate.answered, host.down_since = True, None
        item.busy_since = now if item.busy_since is None else item.busy_since
        if host.pause_until <= now:
            host.busy_answers += 1  # once for all calls that were under way together
        pause = self._jitter(min(host.busy_answers, 8))
        if error.retry_after is not None:
            pause = error.retry_after + self.backoff_s * random.random()
        host.pause_until = max(host.pause_until, now + pause)
        others = any(other.dead is None and other.pause_until <= now for other in self.hosts)
        if now + pause - item.busy_since > self.patience_s and not others:
            return False
        self._again(item, now)
        return True

    def _elsewhere(self, item: Item, now: float) -> bool:
        if all(host.dead is not None for host in self.hosts):
            return False
        self._again(item, now)
        return True

    def _bury(self, host: Host, error: CallError) -> None:
        host.dead = error
        if host.current:
            self._waiting.appendleft(host.current)
            host.current = deque()
        self._rouse()

    def _again(self, item: Item, when: float) -> None:
        heapq.heappush(self._later, (when, next(self._numbers), item))
        self._rouse()

    def _jitter(self, tries: int) -> float:
        return min(self.backoff_s * 2 ** (tries - 1), _LONGEST_PAUSE_S) * random.uniform(0.5, 1.5)
