"""What is run: the axes of a grid and its cells, from Python or from a file."""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from os import PathLike
from pathlib import Path
from typing import Any, Literal, Self

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PositiveInt,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from ragbench.data.files import read_text
from ragbench.errors import ConfigError, RagbenchError, check_known, unknown
from ragbench.experiment.axes import (
    MODELS,
    NONE,
    QUERY_ONLY,
    check_label,
    is_model,
    parse_axis,
    parse_model,
)
from ragbench.experiment.rows import ROWS, folder_name
from ragbench.llm import Cassette, ask
from ragbench.metrics.ir_score import MATCHES
from ragbench.metrics.table import find_numbers
from ragbench.paths import results_dir
from ragbench.prompts import fill_prompt, load_prompt

AXES = ("data", "chunker", "retriever", "generator", "judge")
# beside the runs, see `ragbench.paths`
_FOLDERS = ("figures", "labels", "notebooks", "recordings", "tables")
# Keys that every file has, as one may write them.
_REQUIRED = {
    "name": "first-look",
    "data": "{mine: {questions: questions.jsonl, documents: docs/}}",
    "chunker": "{small: {use: token_chunks, size: 200, overlap: 0.2}}",
    "retriever": "[BM25, SIM]",
}
_NOT_OPTIONS = {
    "model",
    "prompts",
    "schema",
    "cassette",
    "concurrency",
    "ids",
    "groups",
    "step",
    "on_length",
}


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

    @property
    def answer(self) -> tuple[str, str, int, int, str]:
        """What is answered: the cell without data and judge."""
        return (*self.search, self.N, self.generator)


class Grid(BaseModel):
    """The settings of an `ragbench.Experiment`, checked, and the cells that follow from them."""

    model_config = ConfigDict(
        strict=True, arbitrary_types_allowed=True, extra="forbid", frozen=True
    )

    name: str
    data: dict[str, Any]
    chunker: dict[str, Any]
    retriever: dict[str, Any]
    k: Any = 10
    N: Any = (100, 200, 300, 400, 500, 600, 700, 800, 900, 1000)
    generator: dict[str, Any] = Field(default_factory=dict)
    judge: dict[str, Any] = Field(default_factory=dict)
    prompts: dict[str, Any] = Field(default_factory=dict)
    keep: Callable[[Cell], bool] | None = None
    per_prompt: Literal["one", "ten", "systems"] | PositiveInt = "one"
    order: int | None = 0
    max_chars: PositiveInt = 4000
    tokenizer: Any = None
    begin_token: bool = False
    match: str = "substring"
    cassette: Any = None
    concurrency: PositiveInt | None = None  # what the server does by default
    options: dict[str, Any] = Field(default_factory=dict)
    truncated: Literal["score", "unscored"] = "score"
    folder: Path | None = None
    metrics: list[str] = Field(default_factory=list)
    labels: Any = None
    checker: Any = None
    embedder: Any = Field(default=None, exclude=True)
    scorer: Any = Field(default=None, exclude=True)
    decompose: Any = Field(default=None, exclude=True)

    def __init__(self, name: Any, *, paths_from: Path = Path(), **settings: Any) -> None:
        try:
            given = {"name": name, **settings}
            self.__pydantic_validator__.validate_python(
                given, self_instance=self, context=paths_from
            )
        except ValidationError as error:
            raise _in_words(error) from None

    @model_validator(mode="before")
    @classmethod
    def _parse(cls, given: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        folder = info.context
        given = {k: v for k, v in given.items() if v is not None or k in ("k", "N")}
        for key in given:
            if key not in cls.model_fields:
                raise unknown("key", key, cls.model_fields)
        if lacking := [key for key in _REQUIRED if key not in given]:
            do = (
                "add "
                + " and ".join(f"'{key}: {_REQUIRED[key]}'" for key in lacking)
                + ", see docs/experiment.md"
            )
            raise ConfigError(
                f"there is no key {', '.join(map(repr, lacking))}", ", ".join(_REQUIRED), do
            )
        _check_name(given["name"])
        models = {
            key: parse_model(key, given[key], folder) for key in (*MODELS, "labels") if key in given
        }
        given |= models
        for axis in AXES:
            if axis in _REQUIRED or given.get(axis) not in (None, NONE, {}, []):
                given[axis] = parse_axis(axis, given[axis], models, folder)
            else:
                given.pop(axis, None)
        given["k"] = _depths(given.get("k", 10), given["retriever"])
        given["N"] = _numbers("N", given.get("N", cls.model_fields["N"].default), 0)
        generators = given.get("generator", {})
        given["prompts"] = _prompts(given.get("prompts", {}), generators, folder)
        if isinstance(given.get("metrics"), str | tuple):
            given["metrics"] = (
                [given["metrics"]] if isinstance(given["metrics"], str) else list(given["metrics"])
            )
        if "folder" in given:
            given["folder"] = folder / Path(given["folder"]).expanduser()
        for key in ("tokenizer", "cassette"):
            if isinstance(given.get(key), str):
                given[key] = str(folder / Path(given[key]).expanduser())
        return given

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.judge and not self.generator:
            raise ConfigError(
                "a judge without a generator",
                "answers to be graded",
                "add a generator, or drop judge",
            )
        if self.N == (0,) and not self.generator:
            raise ConfigError(
                "N=0 without a generator", "a budget above 0, or a generator", "add one of the two"
            )
        if not any(self.cells(data) for data in self.data):
            raise ConfigError(
                "keep drops every cell of the grid", "at least one cell", "try it on one Cell"
            )
        check_known("match", [self.match], MATCHES)
        if self.metrics:
            find_numbers(self.metrics)
        check_known(
            "option of model calls",
            self.options,
            {*inspect.signature(ask).parameters} - _NOT_OPTIONS,
        )
        for name, value in self.options.items():
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if (name == "retries" or name.endswith("_s")) and not number:
                raise ConfigError(f"options: {name} is {value!r}", "a number", f"mend {name}")
        return self

    def __repr__(self) -> str:
        axes = (
            (axis, getattr(self, axis))
            for axis in ("data", "chunker", "retriever", "N", "generator", "judge")
        )
        return (
            f"Experiment({self.name!r}: "
            f"{' x '.join(f'{len(values)} {axis}' for axis, values in axes if values)})"
        )

    __str__ = __repr__

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
            if isinstance(settings.get("name"), int | float) and not isinstance(
                settings["name"], bool
            ):
                settings["name"] = str(settings["name"])
            return cls(settings.pop("name", None), paths_from=path.parent, **settings)
        except RagbenchError as error:
            raise ConfigError(
                f"{path}{_line_of(error.got, path)}: {error.got}", error.expected, error.do
            ) from None

    # -- the grid
    # --------------------------------------------------------------------------------

    def cells(self, data: str) -> list[Cell]:
        """List the cells of one data set in the order of the grid; without a generator there is
        none at N = 0.
        """
        answered = list(product(self.generator or (NONE,), self.judge or (NONE,)))
        above = [n for n in self.N if n]
        searches = [
            (chunker, name, k)
            for chunker in self.chunker
            for name in self.retriever
            for k in self.k[name]
        ]
        cells = [
            Cell(data, NONE, QUERY_ONLY, 0, 0, *pair)
            for pair in answered
            if 0 in self.N and self.generator
        ]
        cells += [
            Cell(data, *search, n, *pair) for search, n, pair in product(searches, above, answered)
        ]
        return cells if self.keep is None else [cell for cell in cells if self.keep(cell)]

    @property
    def home(self) -> Path:
        """Where rows, manifest and cassette lie."""
        if self.folder is None:
            return results_dir(folder_name(self.name))
        self.folder.mkdir(parents=True, exist_ok=True)
        return self.folder

    @property
    def path(self) -> Path:
        """The file of rows."""
        return self.home / ROWS

    @property
    def live(self) -> bool:
        """Whether a generator, a judge or who labels is a chat model."""
        labels = () if self.labels is None else (self.labels,)
        return any(
            is_model(value) for value in (*self.generator.values(), *self.judge.values(), *labels)
        )

    def open_cassette(
        self, *, make: bool = True
    ) -> contextlib.AbstractContextManager[Cassette | None]:
        """Open the run's cassette; None without models, without one, or where it is not there and
        not to be made.
        """
        if not self.live or self.cassette is False:
            return contextlib.nullcontext()
        if isinstance(self.cassette, Cassette):
            return contextlib.nullcontext(self.cassette)
        path = Path(self.cassette or self.home / "cassette.sqlite")
        return Cassette(path) if make or path.exists() else contextlib.nullcontext()


def _in_words(error: ValidationError) -> ConfigError:
    """Say the first thing that does not fit."""
    first, *_ = details = error.errors()
    name = str(first["loc"][0])
    ways = [
        each["msg"].removeprefix("Input should be ")
        for each in details
        if str(each["loc"][0]) == name
    ]
    do = "write it in quotes" if ways == ["a valid string"] else f"mend {name}"
    return ConfigError(f"{name} is {first['input']!r}", " or ".join(dict.fromkeys(ways)), do)


def _check_name(name: Any) -> None:
    if not isinstance(name, str):
        raise ConfigError(f"name is {name!r}", "a valid string", "write it in quotes")
    if not name.strip() or Path(name).name != name or name.startswith("."):
        raise ConfigError(
            f"the name {name!r}", "a text that can name a folder", "use letters, digits and dashes"
        )
    if name in _FOLDERS:
        expected = "another one: ragbench keeps its own files there"
        raise ConfigError(f"the name {name!r}", expected, "choose another name")
    check_label("the experiment", name)


def _prompts(
    prompts: Mapping[str, Any], generators: Mapping[str, Any], folder: Path
) -> dict[str, Any]:
    """Return the prompts by generator, files from ``folder`` on; ConfigError for an unusable
    one.
    """
    check_known("generator in prompts", prompts, generators)
    usable = {}
    for name, prompt in prompts.items():
        if not is_model(generators[name]):
            got = f"a prompt for {name!r}, which is no chat model"
            raise ConfigError(got, "prompts for chat models only", "leave it out")
        if isinstance(prompt, str) and Path(prompt).suffix:
            prompt = str(folder / Path(prompt).expanduser())
        fill_prompt(load_prompt(prompt), query="", documents="")
        usable[name] = prompt
    return usable


def _numbers(axis: str, values: Any, least: int) -> tuple[int, ...]:
    """Return the values of a numeric axis: an int, or several."""
    several = isinstance(values, Iterable) and not isinstance(values, str | Mapping)
    given = list(values) if several else [values]
    for value in given:
        if isinstance(value, bool) or not hasattr(value, "__index__") or value < least:
            do = f"write for instance {axis}: {max(least, 10)}"
            raise ConfigError(f"{axis} has {value!r}", f"whole numbers of at least {least}", do)
    if not given:
        raise ConfigError(
            f"{axis} is empty", "at least one number", f"pass for instance {axis}=[10]"
        )
    return tuple(dict.fromkeys(int(value) for value in given))


def _depths(k: Any, retrievers: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """Return the numbers of chunks of every retriever; 10 where a dict does not name it."""
    by_retriever = k if isinstance(k, Mapping) else dict.fromkeys(retrievers, k)
    strange = [name for name in by_retriever if name not in retrievers]
    if strange:
        expected = f"one of {', '.join(retrievers)}"
        raise ConfigError(f"k names the retriever {str(strange[0])!r}", expected, "mend k")
    return {name: _numbers("k", by_retriever.get(name, 10), 1) for name in retrievers}


_MAX_ALIASES = 20  # of an experiment file


class _Loader(yaml.SafeLoader):
    """YAML without what it reads otherwise than written: ``no``, ``012``, ``1:30``, ``1.10``; and
    with few aliases: a few lines with many stand for a table without end.
    """

    aliases = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            self.aliases += 1
            if self.aliases > _MAX_ALIASES:
                problem = f"more than {_MAX_ALIASES} aliases (*name)"
                mark = self.peek_event().start_mark
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=mark)
        return super().compose_node(parent, index)


def _as_written(node: yaml.Node, pattern: str, do: str) -> str:
    """Return the text of a plain value; an error where YAML would read something else."""
    if not re.fullmatch(pattern, node.value):
        raise _yaml_error(node, f"{node.value} is not what it looks like in YAML: {do}")
    return node.value


def _yaml_error(node: yaml.Node, problem: str) -> yaml.MarkedYAMLError:
    return yaml.constructor.ConstructorError(None, None, problem, node.start_mark)


def _truth(loader: _Loader, node: yaml.ScalarNode) -> bool:
    return _as_written(node, "(?i)true|false", "quote it, or write true or false").lower() == "true"


def _whole_number(loader: _Loader, node: yaml.ScalarNode) -> int:
    return int(_as_written(node, r"[-+]?(0|[1-9]\d*)", "quote it, or write a plain number"))


def _fraction(loader: _Loader, node: yaml.ScalarNode) -> float:
    return float(_as_written(node, r"[-+]?[\d.]+([eE][-+]?\d+)?", "quote it, or write 0.5"))


def _text(loader: _Loader, node: yaml.ScalarNode) -> str:
    if node.style is None:
        _as_written(node, r"(?!\d+,\d+$)[\s\S]*", "a decimal comma; write 0.2, or quote it")
    return node.value


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    """Read a mapping; PyYAML keeps the last of two equal keys in silence."""
    mapping: dict[Any, Any] = {}
    before = ""
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, str | int | float) or key in mapping:
            raise _yaml_error(key_node, f"the key {key!r} twice")
        value = loader.construct_object(value_node, deep=True)
        if isinstance(key, int) and value is None:  # {overlap: 0,2}
            do = "a decimal comma? write 0.2"
            raise _yaml_error(key_node, f"{before},{key_node.value}: {do}")
        before = getattr(value_node, "value", "")
        if str(key) != key_node.value:
            raise _yaml_error(key_node, f"the label {key_node.value} is read as {key}: quote it")
        if key == "name" and str(value) != before:
            raise _yaml_error(value_node, f"the name {before} is read as {value}: quote it")
        mapping[key] = value
    return mapping


for _tag, _reader in {
    "map": _mapping,
    "bool": _truth,
    "int": _whole_number,
    "float": _fraction,
    "str": _text,
}.items():
    _Loader.add_constructor(f"tag:yaml.org,2002:{_tag}", _reader)


def _read_yaml(path: Path) -> dict[str, Any]:
    """Read the keys of an experiment file; ConfigError or DataError names file and line."""
    try:
        settings = yaml.load(read_text(path), _Loader)  # a SafeLoader
    except (yaml.YAMLError, ValueError) as error:
        _refuse_known_slips(path)
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or error
        line = f", line {mark.line + 1}" if mark else ""
        raise ConfigError(
            f"{path}{line}: {problem}", "YAML of plain values", "mend that line"
        ) from None
    if not isinstance(settings, dict):
        got = f"{path} holds {type(settings).__name__}"
        raise ConfigError(got, "keys such as name and data", "see docs/experiment.md")
    return settings


def _refuse_known_slips(path: Path) -> None:
    """Say what is wrong with a key at the line where it stands; PyYAML often names a later one."""
    nested = False  # whether the last key at the margin has its values below it
    for number, line in enumerate(read_text(path).splitlines(), 1):
        found = re.match(r"(\s*)(\w+)(\s*):(.?)", line)
        if line[:1].strip():
            nested = line.partition(" #")[0].rstrip().endswith((":", "{", "[", ","))
        if found is None or found[2] not in {*Grid.model_fields, "code"} or (nested and found[1]):
            continue
        where = f"{path}, line {number}: {line.strip()[:60]!r}"
        if "\t" in found[1]:
            raise ConfigError(f"{where} begins with a tab", "blanks", "replace the tab")
        if found[1]:
            raise ConfigError(
                f"{where} is indented", "keys that begin their line", "remove the blanks before it"
            )
        if found[4].strip():
            do = f"write '{found[2]}: {line.partition(':')[2].strip()}'"
            raise ConfigError(f"{where} has no blank after the colon", "key: value", do)


def _line_of(got: str, path: Path) -> str:
    """Return ", line 5" for the first key of the file that a message names."""
    named = re.findall(r"\w+", got)
    lines = {
        m[1]: n
        for n, line in enumerate(read_text(path).splitlines(), 1)
        if (m := re.match(r"(\w+)\s*:", line))
    }
    return next((f", line {lines[word]}" for word in named if word in lines), "")


def import_code(folder: Path, code: Any) -> None:
    """Run a Python file of the user's, in a folder, that adds names of their own to the tables."""
    file = folder / str(code)
    if file.suffix != ".py" or not file.is_file():
        raise ConfigError(
            f"code is {code!r}", "a Python file beside it", "write for instance code: mine.py"
        )
    if file.stem in sys.modules and getattr(sys.modules[file.stem], "__file__", None) != str(file):
        raise ConfigError(
            f"code is {code!r}, a name that is taken", "another name", "rename the file"
        )
    spec = importlib.util.spec_from_file_location(file.stem, file)
    sys.modules[file.stem] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
