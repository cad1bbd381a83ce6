"""One event loop in a thread of its own, so that ``ask`` works the same in a script and in a notebook cell.

A notebook's cell runs inside a running loop, where ``asyncio.run`` fails and patching the loop breaks other things.
All connections live on this loop, so that they are kept alive from one call of ``ask`` to the next.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from ragbench.errors import ConfigError

T = TypeVar("T")
_lock = threading.Lock()
_state: dict[str, Any] = {"pid": None, "loop": None}
_POLL_S = 0.1


def the_loop() -> asyncio.AbstractEventLoop:
    """Return the loop, started on first use (and again in a forked process, where the thread is gone)."""
    with _lock:
        if _state["pid"] != os.getpid() or _state["loop"].is_closed():
            loop = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, name="ragbench-llm", daemon=True).start()
            _state.update(pid=os.getpid(), loop=loop)
        return _state["loop"]


def run(work: Coroutine[Any, Any, T], tick: Callable[[], None] | None = None, grace_s: float = 5.0) -> T:
    """Run a coroutine on the loop and wait for it here, where Ctrl-C arrives.

    Parameters
    ----------
    work : the coroutine.
    tick : called in this thread about ten times a second, and at the end (draws the progress bar).
    grace_s : on an interrupt the coroutine is cancelled and given this long to clean up.

    Returns
    -------
    what the coroutine returns; its exceptions are raised here.
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
    ended = threading.Event()

    async def watched() -> T:
        try:
            return await work
        finally:
            ended.set()

    future = asyncio.run_coroutine_threadsafe(watched(), loop)
    try:
        while True:
            try:
                return future.result(timeout=_POLL_S if tick else 1.0)
            except TimeoutError:
                # A TimeoutError of the coroutine itself ends up here too; then it is done.
                if future.done():
                    return future.result()
                if tick:
                    tick()
    except (KeyboardInterrupt, SystemExit):
        future.cancel()
        ended.wait(grace_s)
        raise
    finally:
        if tick:
            tick()
