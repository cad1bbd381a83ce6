"""The grid of an experiment: its settings, each checked and turned into what it stands for, and its
cells.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeInt,
    PositiveInt,
    ValidationInfo,
    field_validator,
    model_validator,
)

from ragbench.errors import ConfigError, check_known
from ragbench.experiment.axes import (
    AXES,
    MODELS,
    NONE,
    QUERY_ONLY,
    check_label,
    is_model,
    parse_value,
)
from ragbench.generation import PROMPTS
from ragbench.labelling.grades import PROMPT as GRADING
from ragbench.llm import Cassette
from ragbench.llm.cassette import MODE_VARIABLE
from ragbench.metrics.ir_score import Match
from ragbench.paths import results_dir
from ragbench.prompts import fill_prompt, load_prompt, prompt_scale
from ragbench.records import GRADES
from ragbench.rows import folder_name
from ragbench.scoring import check_metrics

# the prompt of an axis, where none is named, and the fields of one
_PROMPTS = {
    "generator": (PROMPTS["with_documents"], ("query", "documents")),
    "judge": (GRADING, ("question", "reference", "facts", "count", "answers")),
}
# of `ragbench.llm.ask`, that an experiment may set
_OPTIONS = (
    "retries",
    "deadline_s",
    "patience_s",
    "backoff_s",
    "num_predict",
    "on_miss",
    "progress",
)
# beside the runs, see `ragbench.paths`
_FOLDERS = ("figures", "labels", "notebooks", "recordings", "tables")


@dataclass(frozen=True, slots=True)
class Cell:
    """One combination of axis values.

    N = 0 asks without documents: chunker "none", retriever "LLM only", k 0.
    """

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


class Grid(BaseModel):
    """The settings of an `Experiment`, and the cells that they make."""

    model_config = ConfigDict(
        strict=True, arbitrary_types_allowed=True, extra="forbid", frozen=True
    )

    # In the order in which they are read: what an axis needs stands before it.
    paths_from: Path = Path()
    name: str
    embedder: Any = None
    scorer: Any = None
    decompose: Any = None
    checker: Any = None
    labels: Any = None
    data: dict[str, Any]
    chunker: dict[str, Any]
    retriever: dict[str, Any]
    generator: dict[str, Any] = Field(default_factory=dict)
    judge: dict[str, Any] = Field(default_factory=dict)
    k: dict[str, Annotated[tuple[PositiveInt, ...], Field(min_length=1)]] = Field(
        10, validate_default=True
    )
    N: tuple[NonNegativeInt, ...] = Field(tuple(range(100, 1001, 100)), min_length=1)
    prompts: dict[Any, Any] = Field(default_factory=dict)
    keep: Callable[[Cell], bool] | None = None
    per_prompt: Literal["one", "ten", "systems"] | PositiveInt = "one"
    order: int | None = 0
    tokenizer: Any = None
    begin_token: bool = False
    match: Match = "substring"
    cassette: Cassette | Path | None = None
    concurrency: PositiveInt | None = None  # what the server does by default
    options: dict[str, bool | int | float | Literal["raise", "reply"] | None] = Field(
        default_factory=dict
    )
    folder: Path | None = None
    metrics: Sequence[str] = ()

    # -- what is checked, key by key

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str) -> str:
        if name in _FOLDERS or Path(name).name != name or name.startswith("."):
            raise ConfigError(
                f"the name {name!r}",
                "a text that can name a folder; some ragbench keeps for its own files",
                "choose another name",
            )
        return check_label("the experiment", name)

    @field_validator(*AXES, *MODELS, "labels", mode="before")
    @classmethod
    def _parse(cls, value: Any, info: ValidationInfo) -> Any:
        return parse_value(str(info.field_name), value, info.data)

    @field_validator("k", mode="before")
    @classmethod
    def _check_k(cls, value: Any, info: ValidationInfo) -> dict[str, tuple[Any, ...]]:
        retrievers = info.data.get("retriever", ())
        if not isinstance(value, Mapping):
            value = dict.fromkeys(retrievers, value)
        check_known("retriever in k", value, retrievers)
        return {name: _several(value.get(name, 10)) for name in retrievers}

    @field_validator("N", mode="before")
    @classmethod
    def _check_n(cls, value: Any) -> tuple[Any, ...]:
        return _several(value)

    @field_validator("prompts")
    @classmethod
    def _check_prompts(cls, prompts: dict[Any, Any], info: ValidationInfo) -> dict[Any, Any]:
        """Return the prompts by axis and label; of a label on both axes the fields decide."""
        generators = _models_of(info.data["generator"])
        judges = _models_of(info.data["judge"])
        check_known("chat model in prompts", prompts, dict.fromkeys([*generators, *judges]))
        folder = info.data["paths_from"]
        usable = {}
        for name, prompt in prompts.items():
            if Path(prompt).suffix:
                prompt = str(folder / Path(prompt).expanduser())
            text = load_prompt(prompt)
            axis = "generator"
            if name not in generators or (name in judges and "{answers}" in text):
                axis = "judge"
            _, fields = _PROMPTS[axis]
            fill_prompt(text, **dict.fromkeys(fields, ""))
            usable[axis, name] = prompt
        return usable

    @field_validator("folder", "tokenizer", "cassette", mode="before")
    @classmethod
    def _find(cls, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, str | PathLike):
            return info.data["paths_from"] / Path(value).expanduser()
        return value

    @field_validator("metrics", mode="before")
    @classmethod
    def _check_metrics(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.judge and not self.generator:
            raise ConfigError(
                "a judge without a generator",
                "answers to be graded",
                "add a generator, or drop judge",
            )
        if not any(self.cells(data) for data in self.data):
            raise ConfigError(
                "an experiment without cells",
                "at least one cell: N above 0 or a generator, and a keep that keeps some",
                "change N or keep",
            )
        check_known("option of model calls", self.options, _OPTIONS)
        if self.metrics:
            check_metrics(self.metrics, self.labels, bool(self.generator), bool(self.judge))
        return self

    def __repr__(self) -> str:
        axes = ("data", "chunker", "retriever", "N", "generator", "judge")
        sizes = [f"{len(getattr(self, axis))} {axis}" for axis in axes if getattr(self, axis)]
        return f"{type(self).__name__}({self.name!r}: {' x '.join(sizes)})"

    __str__ = __repr__

    # -- the grid

    def cells(self, data: str) -> list[Cell]:
        """List the cells of one data set in the order of the grid; without a generator there is
        none at N = 0.
        """
        searches: list[tuple[str, str, int, int]] = []
        if 0 in self.N and self.generator:
            searches.append((NONE, QUERY_ONLY, 0, 0))
        budgets = [n for n in self.N if n > 0]
        for chunker, retriever in product(self.chunker, self.retriever):
            for k, n in product(self.k[retriever], budgets):
                searches.append((chunker, retriever, k, n))
        generators = self.generator or (NONE,)
        judges = self.judge or (NONE,)
        cells = []
        for search, generator, judge in product(searches, generators, judges):
            cell = Cell(data, *search, generator, judge)
            if self.keep is None or self.keep(cell):
                cells.append(cell)
        return cells

    def prompt(self, axis: str, label: str) -> str:
        """Return the prompt of a chat model: of a generator that with documents."""
        return self.prompts.get((axis, label), _PROMPTS[axis][0])

    def scale(self, judge: str) -> dict[int, str]:
        """Return the grades that a judge can give, and what they mean."""
        return prompt_scale(self.prompt("judge", judge)) or dict(GRADES)

    @property
    def home(self) -> Path:
        """Where rows, manifest and cassette lie."""
        if self.folder is None:
            return results_dir(folder_name(self.name))
        self.folder.mkdir(parents=True, exist_ok=True)
        return self.folder

    def open_cassette(
        self, *, make: bool = True
    ) -> contextlib.AbstractContextManager[Cassette | None]:
        """Open the run's cassette; None where nobody answers, or where it is not there and not to
        be made.
        """
        if not self.generator and not is_model(self.labels):
            return contextlib.nullcontext()
        if isinstance(self.cassette, Cassette):
            return contextlib.nullcontext(self.cassette)
        if not any(map(is_model, [*self.generator.values(), *self.judge.values(), self.labels])):
            make = make and os.environ.get(MODE_VARIABLE) != "replay"
        path = self.cassette or self.home / "cassette.sqlite"
        if make or path.exists():
            return Cassette(path)
        return contextlib.nullcontext()


def _models_of(axis: Mapping[str, Any]) -> list[str]:
    return [label for label, value in axis.items() if is_model(value)]


def _several(value: Any) -> tuple[Any, ...]:
    """Return the values of a numeric axis, each once: of a number, or several."""
    values = [value]
    if isinstance(value, Iterable) and not isinstance(value, str):
        values = list(value)
    numbers: list[Any] = []
    for number in values:
        if isinstance(number, np.integer):
            number = int(number)
        if number not in numbers:
            numbers.append(number)
    return tuple(numbers)
