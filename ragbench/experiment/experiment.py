"""An experiment: a grid, from Python or an ``experiment.yaml``, that can be planned and run."""

from __future__ import annotations

import re
import sys
from concurrent.futures import Executor
from importlib.machinery import SourceFileLoader
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import Any, Self

import pandas as pd
import yaml
from pydantic import ValidationError

from ragbench.data.files import read_text
from ragbench.errors import ConfigError, RagbenchError
from ragbench.experiment.grid import Grid
from ragbench.experiment.plan import plan_experiment
from ragbench.experiment.run import Run
from ragbench.llm import Plan


class Experiment(Grid):
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
                cls.import_code(path.parent, settings.pop("code"))
            return cls(**settings | {"paths_from": path.parent})
        except RagbenchError as error:
            raise ConfigError(
                f"{path}{_line_of(error.got, path)}: {error.got}",
                error.expected,
                error.do,
            ) from None

    @staticmethod
    def import_code(folder: Path, code: Any) -> None:
        """Run a Python file of the user's, in a folder, which adds own names to the tables."""
        file = folder / str(code)
        if file.suffix != ".py" or not file.is_file():
            raise ConfigError(
                f"code is {code!r}",
                "a Python file beside it",
                "write for instance code: mine.py",
            )
        name = f"ragbench_code_{file.stem}"  # takes the place of no module
        module = ModuleType(name)
        module.__file__ = str(file)
        sys.modules[name] = module
        SourceFileLoader(name, str(file)).exec_module(module)

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
        return Run.execute(self, executor, progress)


def _in_words(error: ValidationError) -> ConfigError:
    """Say the first thing that does not fit."""
    first, *_ = details = error.errors()
    name = str(first["loc"][0])
    if first["type"] == "extra_forbidden":
        return ConfigError.unknown("key", name, Grid.model_fields)
    if first["type"] == "missing":
        return ConfigError(
            f"there is no key {name!r}",
            "name, data, chunker, retriever",
            "see docs/experiment.md",
        )
    if name in ("k", "N"):
        return ConfigError(
            f"{name} is {first['input']!r}",
            f"whole numbers of at least {int(name == 'k')}",
            f"write for instance {name}: 10, or a list: {name}: [10, 100]",
        )
    ways = dict.fromkeys(detail["msg"] for detail in details if detail["loc"][0] == name)
    do = f"correct {name}"
    if first["type"] == "string_type":
        do = "write it in quotes"
    return ConfigError(f"{name} is {first['input']!r}", " or ".join(ways), do)


# -- an experiment.yaml: its keys as written, and the line that a message is about


class _Loader(yaml.SafeLoader):
    """YAML whose keys are texts, as written, each once."""

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


def _read_yaml(path: Path) -> dict[str, Any]:
    """Read the keys of an experiment file; ConfigError or DataError names file and line."""
    text = read_text(path)
    try:
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
