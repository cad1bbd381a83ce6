"""What a package offers loads when it is first used, and is what ``dir`` and the Tab key show."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from pkgutil import iter_modules
from typing import Any


def lazy(
    package: str,
    homes: Mapping[str, Iterable[str]] | None = None,
    shown: Iterable[str] = (),
    path: Iterable[str] = (),
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package.

    Parameters
    ----------
    homes : module of the package -> the names that live there.
    shown : names that ``dir`` has beside those.
    path : ``__path__`` of a package that shows all its modules. Every module of a package can be
        had, shown or not.
    """
    module_of: dict[str, str] = {}
    for module, names in (homes or {}).items():
        module_of |= dict.fromkeys(names, f"{package}.{module}")
    modules = [module.name for module in iter_modules(path) if not module.name.startswith("_")]
    all_names = sorted({*module_of, *shown, *modules})

    def load(name: str) -> Any:
        if name in module_of:
            return getattr(importlib.import_module(module_of[name]), name)
        module_name = f"{package}.{name}"
        try:
            return importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            if error.name != module_name:
                raise
        raise _missing(package, name, all_names)

    return load, lambda: all_names


def _missing(package: str, name: str, names: Iterable[str]) -> AttributeError:
    """Build the error of a name that a package has not, with the one that may be meant."""
    import difflib

    message = f"module {package!r} has no attribute {name!r}"
    close = difflib.get_close_matches(name, names, n=1)
    if close:
        message += f"; did you mean {close[0]!r}?"
    return AttributeError(message)


def public_names(namespace: Mapping[str, Any]) -> Callable[[], list[str]]:
    """Return a module's ``__dir__`` that leaves out what it imports from elsewhere, by its
    ``globals()``.
    """

    def shown() -> list[str]:
        module = namespace["__name__"]
        names = []
        for name, value in namespace.items():
            if name.startswith("_"):
                continue
            is_own = getattr(value, "__module__", "").startswith(module)
            if is_own or name.isupper():
                names.append(name)
        return sorted(names)

    return shown
