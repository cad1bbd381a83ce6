"""What a package offers loads when it is first used, and is what ``dir`` and the Tab key show."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any


def lazy(
    package: str, homes: Mapping[str, Iterable[str]], shown: Iterable[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package.

    Parameters
    ----------
    homes : module of the package -> the names that live there.
    shown : names that ``dir`` has beside those. Every module of the package can be had, shown or
        not.
    """
    where = {name: f"{package}.{module}" for module, names in homes.items() for name in names}
    names = sorted({*where, *shown})

    def load(name: str) -> Any:
        if name in where:
            return getattr(importlib.import_module(where[name]), name)
        try:
            return importlib.import_module(f"{package}.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"{package}.{name}":
                raise
        import difflib

        close = difflib.get_close_matches(name, names, n=1)
        guess = f"; did you mean {close[0]!r}?" if close else ""
        raise AttributeError(f"module {package!r} has no attribute {name!r}{guess}")

    return load, lambda: names


def modules(path: Iterable[str]) -> list[str]:
    """Return the names of a package's modules, by its ``__path__``."""
    from pkgutil import iter_modules

    return [module.name for module in iter_modules(path) if not module.name.startswith("_")]


def public_names(namespace: Mapping[str, Any]) -> Callable[[], list[str]]:
    """Return a module's ``__dir__`` that leaves out what it imports from elsewhere, by its
    ``globals()``.
    """

    def shown() -> list[str]:
        module = namespace["__name__"]
        named = {name: value for name, value in namespace.items() if not name.startswith("_")}
        return sorted(
            n
            for n, v in named.items()
            if n.isupper() or getattr(v, "__module__", "").startswith(module)
        )

    return shown
