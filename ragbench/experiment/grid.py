"""The axes of a grid and its cells: which combinations there are, in which order, and what makes a row's key."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ragbench.errors import ConfigError

AXES = ("data", "chunker", "retriever", "k", "N", "generator", "judge")
NONE = "none"
QUERY_ONLY = "LLM only"


@dataclass(frozen=True, slots=True)
class Cell:
    """One combination of axis values. N = 0 asks without documents: chunker "none", retriever "LLM only", k 0."""

    data: str
    chunker: str
    retriever: str
    k: int
    N: int
    generator: str = NONE
    judge: str = NONE

    @property
    def search(self) -> tuple[str, str, int]:
        """What is retrieved: (chunker, retriever, k)."""
        return (self.chunker, self.retriever, self.k)

    @property
    def answer(self) -> tuple[str, str, int, int, str]:
        """What is answered: the cell without data and judge."""
        return (*self.search, self.N, self.generator)


def named(axis: str, values: Any) -> dict[str, Any]:
    """Return an axis as a dict name -> value.

    Raises
    ------
    ConfigError when it is no mapping, is empty, or has a name that is no text.
    """
    if not isinstance(values, Mapping) or not values:
        raise ConfigError(
            f"{axis} is {'empty' if isinstance(values, Mapping) else type(values).__name__}",
            "a dict name -> object or function, at least one",
            f"pass {axis}={{'a name': ...}}",
        )
    for name in values:
        if not isinstance(name, str) or not name.strip() or name in (NONE, QUERY_ONLY):
            raise ConfigError(
                f"{axis} has the name {name!r}", f"a text other than {NONE!r} and {QUERY_ONLY!r}", "rename it"
            )
    return dict(values)


def numbers(axis: str, values: Any, least: int) -> tuple[int, ...]:
    """Return the values of a numeric axis: an int, several, or a dict name -> int."""
    given = list(values.values()) if isinstance(values, Mapping) else values
    given = list(given) if isinstance(given, Sequence) and not isinstance(given, str) else [given]
    for value in given:
        if isinstance(value, bool) or not hasattr(value, "__index__") or value < least:
            raise ConfigError(f"{axis} has {value!r}", f"whole numbers of at least {least}", f"mend {axis}")
    if not given:
        raise ConfigError(f"{axis} is empty", "at least one number", f"pass for instance {axis}=[10]")
    return tuple(dict.fromkeys(int(value) for value in given))


def depths(k: Any, retrievers: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Return for every retriever the numbers of chunks it is asked for.

    Parameters
    ----------
    k : an int, several, a dict name -> int, or a dict in which a value is itself a dict retriever -> int (the thesis
        gave every retriever its own; one that is not named there takes 10).
    retrievers : the names of the retriever axis.
    """
    per_retriever: dict[str, list[int]] = {name: [] for name in retrievers}
    values = list(k.values()) if isinstance(k, Mapping) else [k]
    for value in values:
        if isinstance(value, Mapping):
            strange = sorted(set(map(str, value)) - set(retrievers))
            if strange:
                raise ConfigError(
                    f"k names the retriever {strange[0]!r}", "one of " + ", ".join(retrievers), "mend the name in k"
                )
        for name in retrievers:
            own = value.get(name, 10) if isinstance(value, Mapping) else value
            per_retriever[name] += numbers("k", own, 1)
    if not values:
        raise ConfigError("k is empty", "at least one number", "pass for instance k=10")
    return {name: tuple(dict.fromkeys(found)) for name, found in per_retriever.items()}


@dataclass(frozen=True)
class Grid:
    """The axes by name; values that are numbers are themselves. ``keep`` says which cells there are; None: all."""

    data: Mapping[str, Any]
    chunker: Mapping[str, Callable]
    retriever: Mapping[str, Callable]
    k: Mapping[str, tuple[int, ...]]
    N: tuple[int, ...]
    generator: Mapping[str, Any]
    judge: Mapping[str, Any]
    keep: Callable[[Cell], bool] | None = None

    def cells(self, data: str) -> list[Cell]:
        """List the cells of one data set in the order of the grid; without a generator there is no cell at N = 0."""
        answered = [(generator, judge) for generator in self.generator or (NONE,) for judge in self.judge or (NONE,)]
        made = []
        if 0 in self.N and self.generator:
            made += [Cell(data, NONE, QUERY_ONLY, 0, 0, *pair) for pair in answered]
        for chunker, retriever, k in self._product():
            made += [Cell(data, chunker, retriever, k, n, *pair) for n in self.N if n for pair in answered]
        return made if self.keep is None else [cell for cell in made if self.keep(cell)]

    def searches(self) -> Iterator[tuple[str, str, int]]:
        """Yield every (chunker, retriever, k) that a cell of some data set needs."""
        needed = {cell.search for data in self.data for cell in self.cells(data)}
        return (search for search in self._product() if search in needed)

    def _product(self) -> Iterator[tuple[str, str, int]]:
        if any(self.N):
            for chunker in self.chunker:
                for retriever in self.retriever:
                    for k in self.k[retriever]:
                        yield chunker, retriever, k
