"""The errors ragbench raises on purpose.

Every message says what was got, what was expected, and what to do next.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Self

_MAX_NAMES = 100  # names that a message lists
_CODED = ("retriever", "chunker", "metric")  # what a file of one's own may add


class RagbenchError(Exception):
    """Base of every error a user of ragbench is meant to read.

    Parameters
    ----------
    got : what was found, with file and line where there is one.
    expected : what would have been right.
    do : the next step.

    >>> print(rb.RagbenchError("N = -1", "a count of tokens", "N=300"))
    N = -1
      expected: a count of tokens
      do: N=300
    """

    def __init__(self, got: str, expected: str = "", do: str = "") -> None:
        self.got = got
        self.expected = expected
        self.do = do
        lines = [got]
        if expected:
            lines.append(f"expected: {expected}")
        if do:
            lines.append(f"do: {do}")
        super().__init__("\n  ".join(lines))

    def __reduce__(self) -> tuple:
        # Executors send exceptions between processes; the default would rebuild this one from its
        # joined message.
        return type(self), (self.got, self.expected, self.do), self.__dict__


class DataError(RagbenchError):
    """A data set or file is missing, malformed, or not the one it claims to be.

    >>> print(rb.DataError("no column 'answer'", "a column of that name", "name yours"))
    no column 'answer'
      expected: a column of that name
      do: name yours
    """

    @classmethod
    def not_written(cls, file: object, reason: str | None) -> Self:
        """Build the error that ends a run when a file cannot be written."""
        return cls(
            f"{file} cannot be written: {reason}",
            "room, and a file to write to",
            "make room or check the rights, then run again: recorded replies and vectors are kept",
        )


class EmptyFileError(DataError):
    """A file holds no text."""


class NotHereError(DataError):
    """A data set that one has to bring oneself is not on this machine."""


class ModelError(RagbenchError):
    """A model server is away, refuses, or replied with something that cannot be used.

    >>> print(rb.ModelError("no server at localhost:11434", "Ollama", "ollama serve"))
    no server at localhost:11434
      expected: Ollama
      do: ollama serve
    """


class ConfigError(RagbenchError):
    """A parameter has a value that cannot work.

    >>> print(rb.ConfigError("retriever 'bm26'", "BM25, SIM, Hybrid"))
    retriever 'bm26'
      expected: BM25, SIM, Hybrid
    """

    @classmethod
    def unknown(cls, kind: str, name: object, valid: Iterable[object]) -> Self:
        """Build the error for a name that is not among the known ones.

        It names the choices (of very many the nearest) and, when one is close, a guess.

        Parameters
        ----------
        kind : what is being named, e.g. ``"retriever"``.
        """
        names = sorted(map(str, valid))
        close = _closest(str(name), names)
        expected = f"one of {', '.join(names)}"
        if len(names) > _MAX_NAMES:
            nearest = ", ".join(close or names[:5])
            expected = f"one of {nearest} ... ({len(names):,} in all)"
        guess = _guess(str(name), names, close)
        do = f"{guess}choose one of the names above"
        if kind in _CODED:
            do += ", or name the file of your own: code: mine.py"
        return cls(f"unknown {kind} {name!r}", expected, do)


def _closest(name: str, names: list[str]) -> list[str]:
    import difflib

    name_of = {valid.casefold(): valid for valid in names}
    lower_case = name.casefold()
    close = difflib.get_close_matches(lower_case, name_of, n=5)
    return [name_of[match] for match in close]


def _guess(name: str, names: list[str], close: list[str]) -> str:
    """Say what was probably meant; "" where nothing comes near."""
    if name.isdigit():
        return "a decimal comma? write a point, such as 0.2; or "
    parts = [part.strip() for part in name.split(",")]
    are_names = set(parts) <= set(names)
    if are_names and len(parts) > 1:
        return f"write a list: [{', '.join(parts)}]; or "
    if close:
        return f"did you mean {close[0]!r}? "
    return ""


def check_known(kind: str, names: Iterable[object], valid: Collection) -> None:
    """Raise `ConfigError.unknown` for the first of the names that is not among the known ones."""
    for name in names:
        if name not in valid:
            raise ConfigError.unknown(kind, name, valid)
