"""What is run: the axes of a grid, its cells, and ``Experiment``, which plans and runs them."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

import pandas as pd
from pydantic import ConfigDict, PositiveInt, SkipValidation, ValidationError, validate_call

from ragbench.errors import ConfigError, RagbenchError, check_known
from ragbench.experiment.identity import as_prompts, is_model, tokenizer_identity
from ragbench.experiment.rows import ROWS
from ragbench.llm import Cassette, Plan, ask
from ragbench.metrics.ir_score import MATCHES
from ragbench.paths import results_dir
from ragbench.records import Dataset

NONE, QUERY_ONLY = "none", "LLM only"
MOST_NAME = 200  # bytes of a name: more cannot name a folder once something stands before or behind it
STOP_AFTER = 0.5  # share of prompts failed by the servers, above which a run ends
_OURS = ("model", "prompts", "schema", "cassette", "concurrency", "ids", "groups", "step", "stop")
_OPTIONS = {*inspect.signature(ask).parameters} - {*_OURS, "on_length", "on_reply"}  # of ``ask``, that a user may set
_WANTED = {
    "data": ("a Dataset, or a function that loads one", "pass Dataset(NAME, questions, documents)"),
    "chunker": ("a function of the documents", "pass lambda documents: ..."),
    "retriever": ("a function of the chunks", "pass lambda chunks: ..."),
}

Axis = Annotated[Mapping[str, Any] | str | Sequence[str] | Dataset, SkipValidation]


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
        """List the cells of one data set in the order of the grid; without a generator there is none at N = 0."""
        answered = list(product(self.generator or (NONE,), self.judge or (NONE,)))
        above = [n for n in self.N if n]
        cells = [Cell(data, NONE, QUERY_ONLY, 0, 0, *pair) for pair in answered if 0 in self.N and self.generator]
        cells += [Cell(data, *search, n, *pair) for search, n, pair in product(self._product(), above, answered)]
        return cells if self.keep is None else [cell for cell in cells if self.keep(cell)]

    def searches(self) -> list[tuple[str, str, int]]:
        """List every (chunker, retriever, k) that a cell of some data set needs."""
        needed = {cell.search for data in self.data for cell in self.cells(data)}
        return [search for search in self._product() if search in needed]

    def _product(self) -> list[tuple[str, str, int]]:
        return [(chunker, name, k) for chunker in self.chunker for name in self.retriever for k in self.k[name]]


@dataclass(frozen=True)
class Cutting:
    """How contexts are cut and scored: tokenizer of N, whether its begin token counts, match of the IR score."""

    tokenizer: Any = None
    begin_token: bool = False
    match: str = "substring"


def named(axis: str, values: Any) -> dict[str, Any]:
    """Return an axis as a dict name -> value; a name stands for what ships under it, except a model's with a colon."""
    from ragbench.experiment.config import by_name

    if isinstance(values, str | Dataset):
        values = [values] if isinstance(values, str) else {values.name: values}
    if isinstance(values, list | tuple) and all(isinstance(value, str) for value in values):
        values = {value: value for value in values}
    if not isinstance(values, Mapping) or not values:
        empty = values is None or (hasattr(values, "__len__") and len(values) == 0)
        tables = "; of tables: data=ragbench.data.load_questions(questions, documents)" if axis == "data" else ""
        raise ConfigError(
            f"{axis} is {'empty' if empty else type(values).__name__}",
            "a name of what ships, a list of names, or a dict name -> object or function",
            f"pass {axis}={{'a name': ...}}{tables}",
        )
    found = {}
    for label, value in values.items():
        if not isinstance(label, str) or not label.strip() or label in (NONE, QUERY_ONLY):
            expected = f"a text other than {NONE!r} and {QUERY_ONLY!r}"
            raise ConfigError(f"{axis} has the name {label!r}", expected, "rename it")
        _check_writable(f"{axis} has the name", label, "give it a label of your own")
        if isinstance(value, str) and ":" not in value:
            value = by_name(axis, value)
        if axis in _WANTED and not callable(value) and not (axis == "data" and isinstance(value, Dataset)):
            raise ConfigError(f"{axis} {label!r} is {type(value).__name__}", *_WANTED[axis])
        found[label] = value
    return found


def _check_writable(what: str, name: str, do: str) -> None:
    """Raise ConfigError for a name that no folder or table can bear."""
    if not name.isprintable() or len(name.encode()) > MOST_NAME:
        start = repr(name) if len(repr(name)) <= 60 else f"{repr(name)[:60]}... ({len(name)} characters)"
        raise ConfigError(f"{what} {start}", f"one line of at most {MOST_NAME} bytes", do)


def numbers(axis: str, values: Any, least: int) -> tuple[int, ...]:
    """Return the values of a numeric axis: an int, several, or a dict name -> int."""
    values = values.values() if isinstance(values, Mapping) else values
    given = list(values) if isinstance(values, Iterable) and not isinstance(values, str) else [values]
    for value in given:
        if isinstance(value, bool) or not hasattr(value, "__index__") or value < least:
            raise ConfigError(f"{axis} has {value!r}", f"whole numbers of at least {least}", f"mend {axis}")
    if not given:
        raise ConfigError(f"{axis} is empty", "at least one number", f"pass for instance {axis}=[10]")
    return tuple(dict.fromkeys(int(value) for value in given))


def depths(k: Any, retrievers: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """Return the numbers of chunks of every retriever (``k`` of `Experiment`); 10 where a dict does not name it."""
    found: dict[str, list[int]] = {name: [] for name in retrievers}
    for value in k.values() if isinstance(k, Mapping) else [k]:
        by_retriever = value if isinstance(value, Mapping) else dict.fromkeys(found, value)
        if strange := sorted({*map(str, by_retriever)} - {*found}):
            do = "mend the name in k"
            raise ConfigError(f"k names the retriever {strange[0]!r}", "one of " + ", ".join(found), do)
        for name, depths_of_it in found.items():
            depths_of_it += numbers("k", by_retriever.get(name, 10), 1)
    return {name: numbers("k", depths_of_it, 1) for name, depths_of_it in found.items()}


def _check_options(options: Mapping[str, Any]) -> None:
    """Raise ConfigError for what is no option of ``ask``, or no number where it takes one."""
    check_known("option of model calls", options, _OPTIONS)
    for name, value in options.items():
        wants_number = name == "retries" or name.endswith("_s")
        if wants_number and value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise ConfigError(f"options: {name} is {value!r}", "a number", f"mend {name}")


def _check_metrics(names: Sequence[str], answered: bool) -> None:
    """Raise ConfigError for an unknown metric, or one of answers where nobody writes any."""
    from ragbench.metrics.table import find_numbers
    from ragbench.scoring import columns_of

    if names:
        find_numbers(names)
    if not answered and (lacking := [name for name in names if "answer" in columns_of([name])]):
        raise ConfigError(f"the metric {lacking[0]!r} without a generator", "answers to score", "add a generator")


def by_annotations(function: Callable) -> Callable:
    """Check the arguments of a function by their annotations: the first one that does not fit is a ConfigError."""
    check = validate_call(function, config=ConfigDict(strict=True, arbitrary_types_allowed=True))  # type: ignore[call-overload]
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*arguments: Any, **settings: Any) -> Any:
        signature.bind(*arguments, **settings)  # a name that is no argument is a TypeError, as everywhere
        try:
            return check(*arguments, **settings)
        except ValidationError as error:
            first, *_ = details = error.errors()
            name = first["loc"][0]
            ways = [each["msg"].removeprefix("Input should be ") for each in details if each["loc"][0] == name]
            do = "write it in quotes" if ways == ["a valid string"] else f"mend {name}"
            raise ConfigError(f"{name} is {first['input']!r}", " or ".join(dict.fromkeys(ways)), do) from None

    return call


class Experiment:
    """A grid of data x chunker x retriever x k x N x generator x judge; one row per question and cell.

    ``data``, ``chunker``, ``retriever``, ``generator`` and ``judge`` take dicts as below, or names of what ships, as an
    experiment.yaml has them: ``retriever=["BM25", "SIM"]``. A single Dataset goes by its own name.

    Parameters
    ----------
    name : of the run; its files lie in ``data/results/<name>/``, or in ``folder``.
    data : name -> Dataset, or a function that loads one.
    chunker : name -> function documents -> chunks.
    retriever : name -> function chunks -> retriever (anything with ``search(queries, k)``).
    k : chunks asked for: an int, several, or a dict name -> int, or name -> (dict retriever -> int).
    N : token budgets. N = 0 asks the generator without documents, once per question, as retriever "LLM only".
    generator : name -> reader, function (question, context) -> answer, chat model, ``"ollama:NAME"``, or a list of
        one model on several hosts. Empty: retrieval only.
    judge : name -> ``EmbeddedGrader()``, or a chat model as above. Empty: answers without grades.
    prompts : generator -> id or file of its prompt with documents (fields ``{query}``, ``{documents}``), for chat
        models; one that is not named takes the thesis's. One model under two names is two prompts compared.
    keep : function of a ``Cell``: which cells of the product there are. None: all.
    per_prompt, order, max_chars : answers a judge model sees at once, as in ``ragbench.grade``.
    tokenizer, begin_token, match : how contexts are cut and scored, as in ``ir_score_table``.
    cassette : where replies of models are recorded; default a file next to the rows. False: nowhere.
    concurrency : questions under way at once per host. Keep 1 to measure seconds as the thesis did.
    options : for ``ragbench.llm.ask``: ``retries``, ``deadline_s``, ``patience_s`` ...
    truncated : of an answer that ended at its limit of tokens, which is counted either way. ``"score"``: it is graded
        like any other, as in the papers; ``"unscored"``: it gets no grade.
    metrics, labels, checker : of `score`, as for `ragbench.score`. Rows do not depend on them.

    Raises
    ------
    ConfigError for an axis that cannot work, or an unknown metric.

    Examples
    --------
    >>> Experiment(
    ...     "first look",
    ...     data="minihop",
    ...     chunker={"100 tokens": lambda documents: token_chunks(documents, size=100)},
    ...     retriever=["BM25", "SIM"],
    ...     N=(0, 100, 1000),
    ...     generator="extractive",
    ...     judge="embedded",
    ... ).run()  # doctest: +SKIP
    """

    @by_annotations
    def __init__(
        self,
        name: str,
        *,
        data: Axis,
        chunker: Axis,
        retriever: Axis,
        k: Any = 10,
        N: Any = (100, 200, 300, 400, 500, 600, 700, 800, 900, 1000),
        generator: Axis | None = None,
        judge: Axis | None = None,
        prompts: dict[str, Any] | None = None,
        keep: Callable[[Cell], bool] | None = None,
        per_prompt: Literal["one", "ten", "systems"] | PositiveInt = "one",
        order: int | None = None,
        max_chars: PositiveInt = 4000,
        tokenizer: Any = None,
        begin_token: bool = False,
        match: str = "substring",
        cassette: Cassette | str | os.PathLike | Literal[False] | None = None,
        concurrency: PositiveInt = 4,
        options: dict[str, Any] | None = None,
        truncated: Literal["score", "unscored"] = "score",
        folder: str | os.PathLike | None = None,
        metrics: list[str] | tuple[str, ...] | str = (),
        labels: Any = "embedded",
        checker: Any = None,
    ) -> None:
        if not name.strip() or Path(name).name != name or name.startswith("."):
            raise ConfigError(f"the name {name!r}", "a text that can name a folder", "use letters, digits and dashes")
        _check_writable("the name", name, "use letters, digits and dashes")
        retrievers = named("retriever", retriever)
        self.name = name
        self.grid = Grid(
            named("data", data),
            named("chunker", chunker),
            retrievers,
            depths(k, retrievers),
            numbers("N", N, 0),
            named("generator", generator) if generator else {},
            named("judge", judge) if judge else {},
            keep,
        )
        if judge and not generator:
            raise ConfigError("a judge without a generator", "answers to be graded", "add a generator, or drop judge")
        if self.grid.N == (0,) and not generator:
            raise ConfigError("N=0 without a generator", "a budget above 0, or a generator", "add one of the two")
        if not any(self.grid.cells(data_set) for data_set in self.grid.data):
            raise ConfigError("keep drops every cell of the grid", "at least one cell", "try it on one Cell")
        check_known("match", [match], MATCHES)
        _check_options(options or {})
        self.prompts = as_prompts(prompts or {}, self.grid.generator)
        self.per_prompt, self.order, self.max_chars, self.truncated = per_prompt, order, max_chars, truncated
        self.cutting = Cutting(tokenizer, begin_token, match)
        self.concurrency, self.options = concurrency, dict(options or {})
        self.metrics = (metrics,) if isinstance(metrics, str) else tuple(metrics)
        _check_metrics(self.metrics, bool(generator))
        self.labels, self.checker = labels, checker
        self._cassette = cassette
        self._folder = Path(folder).expanduser() if folder is not None else None

    def __repr__(self) -> str:
        sizes = {axis: getattr(self.grid, axis) for axis in ("data", "chunker", "retriever", "N", "generator", "judge")}
        axes = " x ".join(f"{len(values)} {axis}" for axis, values in sizes.items() if values)
        return f"Experiment({self.name!r}: {axes})"

    @property
    def folder(self) -> Path:
        """Where rows, manifest and cassette lie."""
        if self._folder is None:
            return results_dir(self.name)
        self._folder.mkdir(parents=True, exist_ok=True)
        return self._folder

    @property
    def path(self) -> Path:
        """The file of rows."""
        return self.folder / ROWS

    @classmethod
    def from_yaml(cls, path: str | os.PathLike[str]) -> Experiment:
        """Build an experiment from a file (docs/experiment.md); ConfigError names file and key of what cannot work."""
        from ragbench.experiment import config

        path = config.experiment_file(path)
        told = config.read_yaml(path)
        try:
            return cls(**config.arguments(told, path.parent))
        except RagbenchError as error:
            raise ConfigError(f"{path}: {error.got}", error.expected, error.do) from None

    def plan(self, *, after: Callable[[pd.DataFrame], Plan] | None = None, **speeds: Any) -> Plan:
        """Say what ``run`` will take, by step, without asking a model and without embedding a text.

        The steps are "embed" (its calls are texts), "retrieve", "decompose" and "rerank" (calls of retrievers),
        "generate" and "grade". ``cached``: rows that are there, replies on the cassette, vectors on disk. Contexts that
        wait for vectors are estimated.

        Parameters
        ----------
        after : plans what follows the run (checking claims, say) from the rows it will give: those that are there, and
            the others with their hits but without answer and grade. Its steps are added.
        speeds : for ``ragbench.llm.plan``: ``tokens_per_second``, ``price`` ...
        """
        from ragbench.experiment.plan import plan_experiment

        return plan_experiment(self, speeds, after)

    def run(
        self,
        executor: Executor | None = None,
        progress: bool | Callable[[Any], None] = True,
        *,
        retry_failed: bool = False,
        stop: Any = None,
        stop_after: float = STOP_AFTER,
    ) -> pd.DataFrame:
        """Make the rows that are not there yet, and return all rows of the grid in its order, as ``load_rows`` does.

        Rows are on disk as soon as they are made: after Ctrl-C, a kill or a full disk, run again to go on; nothing that
        is there is made again. A failure of one question is a row with ``status`` "failed".

        Parameters
        ----------
        executor : any ``concurrent.futures`` executor for what computes: threads (default), a process pool, dask's
            ``client.get_executor()``. Calls to model servers are made from this process, whatever the executor.
        progress : True shows a bar; a function is called with a ``Progress`` after every row.
        retry_failed : make failed rows again.
        stop : a ``threading.Event``; when it is set, the run ends early and keeps what is done.
        stop_after : share of prompts that may fail at the servers (from the twentieth reply on); above it the run
            ends. Replies that cannot be used (no grade in it, cut off ...) do not count.

        Raises
        ------
        ConfigError, DataError, ModelError for what stops the whole run: no server of a model left, too many failures,
        two processes on one run, a full disk.
        """
        from ragbench.experiment.run import run_experiment

        return run_experiment(self, executor, progress, retry_failed, stop, stop_after)

    def answers(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Put the texts behind rows of ``run`` beside them: ``rb.score(experiment.answers(rows), [...])``.

        Adds ``system`` (the retriever, the other axes that take several values, and N), ``question``, ``reference``
        (the true answer), ``references``, ``context`` and ``chunks`` (of the hits, what stands before the cut at N:
        what a generator read), ``retrieved`` and ``relevant`` (ids of documents, of all hits). Without documents, at
        N = 0, there are no chunks and there is no context. DataError for a row of other data or other chunks.
        """
        from ragbench.experiment.run import with_texts

        return with_texts(self, rows)

    def score(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Compute the experiment's ``metrics`` of every row, as `ragbench.score` does; replies are on the cassette."""
        from ragbench.scoring import score

        if not self.metrics:
            raise ConfigError("an experiment without metrics", "names such as token_f1", "pass metrics=[...]")
        with self.open_cassette() as cassette:
            settings = {"cassette": cassette, "concurrency": self.concurrency, **self.options}
            return score(self.answers(rows), self.metrics, self.labels, checker=self.checker, **settings)

    @property
    def live(self) -> bool:
        """Whether a generator, a judge or who labels is a model on a server."""
        labels = () if self.labels == "embedded" else (self.labels,)
        return any(is_model(value) for value in (*self.grid.generator.values(), *self.grid.judge.values(), *labels))

    @property
    def records(self) -> bool:
        """Whether the run records what models say."""
        return self.live and self._cassette is not False

    @contextlib.contextmanager
    def open_cassette(self, *, make: bool = True) -> Iterator[Cassette | None]:
        """Open the run's cassette; None without models, without one, or where it is not there and not to be made."""
        if not self.records or isinstance(self._cassette, Cassette):
            yield self._cassette if self.records else None
            return
        path = Path(self._cassette or self.folder / "cassette.sqlite").expanduser()
        if not make and not path.exists():
            yield None
            return
        with Cassette(path) as cassette:
            yield cassette

    def cutting_identity(self) -> dict[str, Any]:
        """Return what contexts and IR scores depend on."""
        cut = self.cutting
        identity = {"tokenizer": tokenizer_identity(cut.tokenizer), "begin_token": cut.begin_token, "match": cut.match}
        return identity | {"form": MATCHES[cut.match][1]}

    def grading_identity(self) -> dict[str, Any]:
        """Return what the prompts of a judge model depend on."""
        return {"per_prompt": self.per_prompt, "order": self.order, "max_chars": self.max_chars}

    def parameters(self) -> dict[str, Any]:
        """Return the plain parameters, for the manifest."""
        options = {name: value for name, value in self.options.items() if isinstance(value, bool | int | float | str)}
        axes = {"k": {name: list(values) for name, values in self.grid.k.items()}, "N": list(self.grid.N)}
        other = {"concurrency": self.concurrency, "options": options, "truncated": self.truncated}
        return self.cutting_identity() | self.grading_identity() | axes | other
