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
from concurrent.futures import Future, InvalidStateError
from typing import Any, TypeVar

from ragbench.errors import ConfigError

T = TypeVar("T")
_lock = threading.Lock()
_loops: dict[int, asyncio.AbstractEventLoop] = {}  # by process: in a forked one the thread is gone
_POLL_S = 0.1
_GRACE_S = 5.0  # for a coroutine that is cancelled to clean up


def the_loop() -> asyncio.AbstractEventLoop:
    """Return the loop, started on first use."""
    with _lock:
        if os.getpid() not in _loops:
            loop = _loops[os.getpid()] = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, name="ragbench-llm", daemon=True).start()
        return _loops[os.getpid()]


class Caller:
    """The thread that waits in ``run``: a coroutine has it call functions, one after another."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[tuple[Callable[[], object], Future[None]]] = queue.SimpleQueue()
        self._gone = False

    async def call(self, function: Callable[[], object]) -> None:
        """Have the function called, and wait until it has returned; not at all once the thread waits no longer."""
        await asyncio.wrap_future(self.put(function))

    def put(self, function: Callable[[], object] = lambda: None) -> Future[None]:
        """Have the function called some time; without one, ``serve`` returns at once."""
        done: Future[None] = Future()
        self._calls.put((function, done))
        if self._gone:
            self.leave()
        return done

    def serve(self, timeout_s: float = 0.0) -> None:
        """Call the next function; queue.Empty where there is none in time."""
        function, done = self._calls.get(timeout=timeout_s)
        if not self._gone:
            function()
        with contextlib.suppress(InvalidStateError):  # whoever waited for it was cancelled
            done.set_result(None)

    def leave(self) -> None:
        """Call nothing any more; whoever waits for it goes on."""
        self._gone = True
        with contextlib.suppress(queue.Empty):
            while True:
                self.serve()


def run(
    work: Coroutine[Any, Any, T],
    tick: Callable[[], object] = lambda: None,
    caller: Caller | None = None,
    leave: Callable[[], bool] = lambda: False,
) -> T | None:
    """Run a coroutine on the loop and wait for its result here, where Ctrl-C arrives and cancels it.

    Parameters
    ----------
    tick : called in this thread about ten times a second, and at the end (draws the progress bar).
    caller : through which the coroutine calls functions in this thread.
    leave : asked about ten times a second; when it says True, the coroutine is left to itself, and the result is None.
    """
    loop, caller, ended = the_loop(), caller or Caller(), threading.Event()
    if threading.current_thread().name == "ragbench-llm":
        work.close()
        raise ConfigError(
            "ask() or invoke() called from inside ragbench's own event loop",
            "a call from your own thread",
            "await model.ainvoke(...) there, or move the call out of the callback",
        )

    async def watched() -> T:
        try:
            return await work
        finally:
            ended.set()

    future = asyncio.run_coroutine_threadsafe(watched(), loop)
    future.add_done_callback(lambda _: caller.put())
    try:
        while not (future.done() or leave()):
            with contextlib.suppress(queue.Empty):
                caller.serve(_POLL_S)
            tick()
        return future.result() if future.done() else None
    except BaseException:
        future.cancel()
        caller.leave()
        ended.wait(_GRACE_S)
        raise
    finally:
        caller.leave()
        tick()
