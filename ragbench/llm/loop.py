"""One event loop in a thread of its own, so that ``ask`` works the same in a script and in a notebook cell.

A notebook's cell runs inside a running loop, where ``asyncio.run`` fails and patching the loop breaks other things.
All connections live on this loop, so that they are kept alive from one call of ``ask`` to the next.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from ragbench.errors import ConfigError

T = TypeVar("T")
_lock = threading.Lock()
_state: dict[str, Any] = {"pid": None, "loop": None}
_POLL_S = 0.1
_GRACE_S = 5.0  # for a coroutine that is cancelled to clean up


def the_loop() -> asyncio.AbstractEventLoop:
    """Return the loop, started on first use (and again in a forked process, where the thread is gone)."""
    with _lock:
        if _state["pid"] != os.getpid() or _state["loop"].is_closed():
            loop = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, name="ragbench-llm", daemon=True).start()
            _state.update(pid=os.getpid(), loop=loop)
        return _state["loop"]


class Caller:
    """The thread that waits in ``run``: a coroutine has it call functions, one after another."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[tuple[Callable[[], None], asyncio.Future[None]] | None] = queue.SimpleQueue()
        self._gone = False

    async def call(self, function: Callable[[], None]) -> None:
        """Have the function called, and wait until it has returned; not at all once the thread waits no longer."""
        done = asyncio.get_running_loop().create_future()
        self._calls.put((function, done))
        if self._gone:
            self.leave()
        await done

    def serve(self, timeout_s: float) -> None:
        """Call the next function, if there is one in time."""
        with contextlib.suppress(queue.Empty):
            asked = self._calls.get(timeout=timeout_s)
            if asked is not None:
                asked[0]()
                self._release(asked[1])

    def wake(self) -> None:
        """Let ``serve`` return."""
        self._calls.put(None)

    def leave(self) -> None:
        """Call nothing any more; whoever waits for it goes on."""
        self._gone = True
        with contextlib.suppress(queue.Empty):
            while True:
                if (asked := self._calls.get_nowait()) is not None:
                    self._release(asked[1])

    @staticmethod
    def _release(done: asyncio.Future[None]) -> None:
        done.get_loop().call_soon_threadsafe(lambda: done.done() or done.set_result(None))


def run(
    work: Coroutine[Any, Any, T],
    tick: Callable[[], None] | None = None,
    *,
    caller: Caller | None = None,
    leave: Callable[[], bool] = lambda: False,
) -> T | None:
    """Run a coroutine on the loop and wait for it here, where Ctrl-C arrives and cancels it.

    Parameters
    ----------
    tick : called in this thread about ten times a second, and at the end (draws the progress bar).
    caller : through which the coroutine calls functions in this thread.
    leave : asked about ten times a second; when it says True, the coroutine is left to itself.

    Returns
    -------
    what the coroutine returns (None when it was left); its exceptions are raised here.
    """
    loop = the_loop()
    try:
        inside = asyncio.get_running_loop() is loop
    except RuntimeError:
        inside = False
    if inside:
        work.close()
        raise ConfigError(
            "ask() or invoke() called from inside ragbench's own event loop",
            "a call from your own thread",
            "await model.ainvoke(...) there, or move the call out of the callback",
        )
    caller = caller or Caller()
    ended = threading.Event()

    async def watched() -> T:
        try:
            return await work
        finally:
            ended.set()

    future = asyncio.run_coroutine_threadsafe(watched(), loop)
    future.add_done_callback(lambda _: caller.wake())
    try:
        while not (future.done() or leave()):
            caller.serve(_POLL_S)
            if tick:
                tick()
        return future.result() if future.done() else None
    except BaseException:
        future.cancel()
        caller.leave()
        ended.wait(_GRACE_S)
        raise
    finally:
        caller.leave()
        if tick:
            tick()
