"""Loops that numba compiles, once for a machine: the machine code is kept beside the source."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numba

from ragbench.paths import cache_dir


def compiled(**options: Any) -> Callable[[Callable], Any]:
    """Return a decorator: ``numba.njit`` without the GIL, with its cache.

    Where neither the package nor a home can be written to, the code is kept in ragbench's cache
    folder; where that cannot be written to either, it is compiled in each process.
    """

    def decorate(function: Callable) -> Any:
        compiled_function = numba.njit(nogil=True, **options)(function)
        try:
            compiled_function.enable_caching()
        except RuntimeError:  # numba has no place for it
            with contextlib.suppress(OSError, RuntimeError):
                numba.config.CACHE_DIR = str(cache_dir("numba"))  # pyright: ignore
                compiled_function.enable_caching()
        return compiled_function

    return decorate
