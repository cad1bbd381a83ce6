"""An experiment: the axes of a grid, from Python or from an ``experiment.yaml``, its cells, and its
run.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from itertools import product
from numbers import Integral
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import pandas as pd
import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PositiveInt,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from ragbench.data.files import read_text
from ragbench.errors import ConfigError, RagbenchError, check_known, unknown
from ragbench.experiment.axes import (
    AXES,
    MODELS,
    NONE,
    QUERY_ONLY,
    check_label,
    is_model,
    parse_value,
)
from ragbench.experiment.plan import plan_experiment
from ragbench.experiment.run import OPTIONS, Cell, run_experiment
from ragbench.generation import PROMPTS
from ragbench.labelling.grades import PROMPT as GRADING
from ragbench.llm import Cassette, Plan
from ragbench.llm.cassette import MODE_VARIABLE
from ragbench.metrics.ir_score import MATCHES
from ragbench.metrics.table import find_numbers
from ragbench.paths import results_dir
from ragbench.prompts import fill_prompt, load_prompt, prompt_scale
from ragbench.records import GRADES
from ragbench.rows import folder_name

# the prompt of an axis, where none is named, and the fields of one
_PROMPTS = {
    "generator": (PROMPTS["with_documents"], ("query", "documents")),
    "judge": (GRADING, ("question", "reference", "facts", "count", "answers")),
}
# beside the runs, see `ragbench.paths`
_FOLDERS = ("figures", "labels", "notebooks", "recordings", "tables")
_MAX_ALIASES = 20  # of a file: a few lines with many stand for a table without end


class Experiment(BaseModel):
    """A grid of data x chunker x retriever x k x N x generator x judge; one row per question and
    cell.

    ``data``, ``chunker``, ``retriever``, ``generator`` and ``judge`` take what an experiment.yaml
    has: names of what ships (``retriever=["BM25", "SIM"]``), or a dict label -> name, ``{"use":
    NAME, option: value}`` or object.

    Parameters
    ----------
    name : of the run; its files lie in ``data/results/<name>/``, or in ``folder``.
    data : label -> Dataset, or a function that loads one. A single Dataset goes by its own name.
    chunker, retriever : label -> function documents -> chunks; label -> function chunks ->
        retriever (anything with ``search(queries, k)``).
    k : chunks asked for: an int, several, or a dict retriever -> int or several.
    N : token budgets. N = 0 asks the generator without documents, once per question, as retriever
        "LLM only".
    generator : a chat model's name (``"ollama:llama3:8b"``, ``"smollm2"``), or label -> name, chat
        model, function (question, context) -> answer, or object with ``answer``, such as a pipeline
        of your own. None: retrieval only.
    judge : the same for grades; an object of your own has ``grade_all``. None: answers without
        grades.
    prompts : generator -> id or file of its prompt with documents (fields ``{query}``,
        ``{documents}``), or judge -> that of its grading prompt (fields as in ``ragbench.grade``;
        the scale stands in its header), for chat models; one that is not named takes the thesis's.
        One model under two names is two prompts compared.
    keep : function of a ``Cell``: which cells of the product there are. None: all.
    per_prompt, order : answers a judge model sees at once, as in ``ragbench.grade``.
    tokenizer, begin_token, match : how contexts are cut and scored, as in ``ir_score_table``.
    cassette : where replies of models are recorded; default a file beside the rows.
    concurrency : calls under way at once. Default: 1 for Ollama and GGUF files, else 4.
    options : for ``ragbench.llm.ask``: ``retries``, ``deadline_s``, ``patience_s`` ...
    metrics, labels, checker : for `ragbench.score`, which the command ``ragbench run`` calls after
        the run.
    embedder, scorer, decompose : of the retrievers and chunkers that name none themselves.
    paths_from : folder that relative paths start at.

    Raises ConfigError for an axis that cannot work.

    Examples
    --------
    >>> Experiment(
    ...     "first look",
    ...     data="minihop",
    ...     chunker={"100 tokens": {"use": "token_chunks", "size": 100}},
    ...     retriever=["BM25", "SIM"],
    ...     N=(0, 100, 1000),
    ...     generator="ollama:llama3:8b",
    ...     judge="ollama:llama3:70b",
    ... ).run()  # doctest: +SKIP
    """

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
    k: Any = Field(10, validate_default=True)
    N: Any = tuple(range(100, 1001, 100))
    prompts: dict[str, Any] = Field(default_factory=dict)
    keep: Callable[[Cell], bool] | None = None
    per_prompt: Literal["one", "ten", "systems"] | PositiveInt = "one"
    order: int | None = 0
    tokenizer: Any = None
    begin_token: bool = False
    match: str = "substring"
    cassette: Cassette | Path | None = None
    concurrency: PositiveInt | None = None  # what the server does by default
    options: dict[str, bool | int | float | Literal["raise", "reply"] | None] = Field(
        default_factory=dict
    )
    folder: Path | None = None
    metrics: Sequence[str] = ()

    def __init__(self, name: Any = None, **settings: Any) -> None:
        if name is not None:
            settings["name"] = name
        try:
            super().__init__(**settings)
        except ValidationError as error:
            raise _in_words(error) from None

    @classmethod
    def from_yaml(cls, path: str | PathLike[str]) -> Self:
        """Build an experiment from a file (docs/experiment.md); ConfigError names file and key of
        what cannot work.

        The file's ``code:`` is imported: run only files whose code you trust.
        """
        path = Path(path).expanduser()
        path = path / "experiment.yaml" if path.is_dir() else path
        settings = _read_yaml(path)
        try:
            if "code" in settings:
                import_code(path.parent, settings.pop("code"))
            return cls(**settings | {"paths_from": path.parent})
        except RagbenchError as error:
            raise ConfigError(
                f"{path}{_line_of(error.got, path)}: {error.got}",
                error.expected,
                error.do,
            ) from None

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
        return parse_value(info.field_name, value, info.data)

    @field_validator("k", mode="before")
    @classmethod
    def _check_k(cls, value: Any, info: ValidationInfo) -> dict[str, tuple[int, ...]]:
        retrievers = info.data.get("retriever", ())
        if not isinstance(value, Mapping):
            value = dict.fromkeys(retrievers, value)
        check_known("retriever in k", value, retrievers)
        numbers = {}
        for name in retrievers:
            numbers[name] = _whole("k", value.get(name, 10), 1)
        return numbers

    @field_validator("N", mode="before")
    @classmethod
    def _check_n(cls, value: Any) -> tuple[int, ...]:
        return _whole("N", value, 0)

    @field_validator("prompts")
    @classmethod
    def _check_prompts(cls, prompts: dict[str, Any], info: ValidationInfo) -> dict[Any, Any]:
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
        check_known("match", [self.match], MATCHES)
        if self.metrics:
            find_numbers(self.metrics)
        check_known("option of model calls", self.options, OPTIONS)
        return self

    def __repr__(self) -> str:
        axes = ("data", "chunker", "retriever", "N", "generator", "judge")
        sizes = [f"{len(getattr(self, axis))} {axis}" for axis in axes if getattr(self, axis)]
        return f"Experiment({self.name!r}: {' x '.join(sizes)})"

    __str__ = __repr__

    # -- the grid

    def cells(self, data: str) -> list[Cell]:
        """List the cells of one data set in the order of the grid; without a generator there is
        none at N = 0.
        """
        searches = []
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

    def plan(self) -> Plan:
        """Count what a run will embed, search, ask and grade, see `plan_experiment`."""
        return plan_experiment(self)

    def run(self, executor: Executor | None = None, progress: bool = True) -> pd.DataFrame:
        """Run a grid from its beginning and return its rows, as `load_rows` does.

        Recorded replies are not asked for again, known vectors not computed: a run that was killed,
        or stopped by Ctrl-C, is started again and soon where it was. The file of rows holds those
        of this grid alone: a first run's grow block by block; later ones are written beside the
        earlier ones and take their place, with the manifest, at the end. A failure of one question
        is a row with ``status`` "failed".

        Parameters
        ----------
        executor : any ``concurrent.futures`` executor for what computes: threads (default), a
            process pool, dask's ``client.get_executor()``. Calls to models are made from this
            process, whatever the executor.
        progress : show a bar.

        Raises ConfigError, DataError or ModelError for what stops the whole run: no server of a
        model, too many prompts failed by the servers, two processes on one run, a full disk.
        """
        return run_experiment(self, executor, progress)


def _in_words(error: ValidationError) -> ConfigError:
    """Say the first thing that does not fit."""
    first, *_ = details = error.errors()
    name = str(first["loc"][0])
    if first["type"] == "extra_forbidden":
        return unknown("key", name, Experiment.model_fields)
    if first["type"] == "missing":
        return ConfigError(
            f"there is no key {name!r}",
            "name, data, chunker, retriever",
            "see docs/experiment.md",
        )
    ways = dict.fromkeys(detail["msg"] for detail in details if detail["loc"][0] == name)
    do = f"correct {name}"
    if first["type"] == "string_type":
        do = "write it in quotes"
    return ConfigError(f"{name} is {first['input']!r}", " or ".join(ways), do)


def _models_of(axis: Mapping[str, Any]) -> list[str]:
    return [label for label, value in axis.items() if is_model(value)]


def _whole(axis: str, value: Any, least: int) -> tuple[int, ...]:
    """Return the values of a numeric axis: an int, or several."""
    numbers = [value]
    if isinstance(value, Iterable) and not isinstance(value, str):
        numbers = list(value)
    for number in numbers or [value]:
        is_whole = isinstance(number, Integral) and not isinstance(number, bool)
        if not is_whole or number < least:
            raise ConfigError(
                f"{axis} has {number!r}",
                f"whole numbers of at least {least}",
                f"write for instance {axis}: 10, or a list: {axis}: [10, 100]",
            )
    distinct = dict.fromkeys(map(int, numbers))
    return tuple(distinct)


# -- an experiment.yaml: its keys as written, and the line that a message is about


class _Loader(yaml.SafeLoader):
    """YAML 1.2's plain values: ``010``, ``1:30``, ``no`` and ``on`` are texts, and so is every key,
    as written.
    """

    yaml_implicit_resolvers: ClassVar[dict[str, list]] = {}

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[str, Any]:
        """Read a mapping; PyYAML would keep the last of two equal keys in silence."""
        mapping = {}
        for key, value in node.value:
            if key.value in mapping:
                raise yaml.MarkedYAMLError(
                    problem=f"the key {key.value!r} twice", problem_mark=key.start_mark
                )
            mapping[key.value] = self.construct_object(value, deep=True)
        return mapping


for _tag, _pattern, _first in (
    ("null", r"~|null|", "~n"),
    ("bool", r"true|false", "tf"),
    ("int", r"[-+]?(0|[1-9]\d*)", "-+0123456789"),
    ("float", r"[-+]?(0|[1-9]\d*)(\.\d*)?([eE][-+]?\d+)?", "-+0123456789"),
):
    _characters = [*_first, ""] if _tag == "null" else [*_first]
    _Loader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(rf"(?:{_pattern})$"), _characters
    )


def _read_yaml(path: Path) -> dict[str, Any]:
    """Read the keys of an experiment file; ConfigError or DataError names file and line."""
    text = read_text(path)
    try:
        _check_aliases(text)
        settings = yaml.load(text, _Loader)  # a SafeLoader
    except (yaml.YAMLError, ValueError, TypeError) as error:
        place = str(path)
        mark = getattr(error, "problem_mark", None)
        if mark is not None:
            place = f"{path}, line {mark.line + 1}"
        problem = getattr(error, "problem", None) or error
        raise ConfigError(
            f"{place}: {problem}",
            "YAML of plain values",
            "correct that line",
        ) from None
    if not isinstance(settings, dict):
        raise ConfigError(
            f"{path} holds {type(settings).__name__}",
            "keys such as name and data",
            "see docs/experiment.md",
        )
    return settings


def _check_aliases(text: str) -> None:
    aliases = [event for event in yaml.parse(text) if isinstance(event, yaml.AliasEvent)]
    if len(aliases) > _MAX_ALIASES:
        mark = aliases[_MAX_ALIASES].start_mark
        raise yaml.MarkedYAMLError(
            problem=f"more than {_MAX_ALIASES} aliases (*name)", problem_mark=mark
        )


def _line_of(message: str, path: Path) -> str:
    """Return ", line 5" for the first key of the file that a message names; "" for none."""
    lines = {}
    for number, line in enumerate(read_text(path).splitlines(), 1):
        key, _, _ = line.partition(":")
        lines[key.strip()] = f", line {number}"
    for word in re.findall(r"\w+", message):
        if word in lines:
            return lines[word]
    return ""


def import_code(folder: Path, code: Any) -> None:
    """Run a Python file of the user's, in a folder, that adds names of their own to the tables."""
    file = folder / str(code)
    if file.suffix != ".py" or not file.is_file():
        raise ConfigError(
            f"code is {code!r}",
            "a Python file beside it",
            "write for instance code: mine.py",
        )
    name = f"ragbench_code_{file.stem}"  # takes the place of no module
    spec = importlib.util.spec_from_file_location(name, file)
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
