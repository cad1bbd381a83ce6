"""What ships under a name, and an experiment from a YAML file of names; docs/experiment.md lists them all.

An axis is a name, a list of names, or a mapping label -> name or label -> {use: NAME, option: value, ...}. Paths are
relative to the file. API keys come from the environment only.
"""

from __future__ import annotations

import functools
import importlib.util
import inspect
import os
import pkgutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import ConfigDict, Field, FiniteFloat, PositiveInt, TypeAdapter, ValidationError

from ragbench import chunking, data, papers, retrieval
from ragbench.data.files import read_text
from ragbench.embedding import make_embedder
from ragbench.errors import ConfigError, RagbenchError, check_known, unknown
from ragbench.experiment.spec import Experiment
from ragbench.generation import ExtractiveReader
from ragbench.labelling.checkers import asks_model, make_checker
from ragbench.labelling.embedded_grader import EmbeddedGrader
from ragbench.llm import chat_model
from ragbench.llm.models import NAMES
from ragbench.retrieval.rerank import make_scorer

# A reader or grader of your own is one entry: ``GENERATORS["mine"] = Mine``.
GENERATORS: dict[str, Callable[..., Any]] = {"extractive": ExtractiveReader}
JUDGES: dict[str, Callable[..., Any]] = {"embedded": EmbeddedGrader}
_TABLES = {"generator": GENERATORS, "judge": JUDGES, "labels": {"embedded": lambda: "embedded"}}

AXES = ("data", "chunker", "retriever", "generator", "judge")
# Not axes: of the retrievers and chunkers that name none themselves, and of the metrics.
_NAMED: Mapping[str, Callable] = {"embedder": make_embedder, "reranker": make_scorer, "checker": make_checker}
_MODELS = (*_NAMED, "labels")
KEYS = {*inspect.signature(Experiment).parameters, *_MODELS, "code"} - {"prompts", "keep"}
# Keys that every file has, as one may write them.
_REQUIRED = {
    "name": "first-look",
    "data": "{mine: {questions: questions.jsonl, documents: docs/}}",
    "chunker": "{small: {use: token_chunks, size: 200, overlap: 0.2}}",
    "retriever": "[BM25, SIM]",
}
MOST_CHARS = 1_000_000  # of an experiment file

_AtLeast0 = Annotated[FiniteFloat, Field(ge=0)]
_Prices = Annotated[list[_AtLeast0], Field(min_length=2, max_length=2)]
# What an option of a model in a file must be.
_MODEL_OPTIONS: Mapping[str, tuple[Any, str]] = {
    "host": (str, "an address"),
    "hosts": (Annotated[list, Field(min_length=1)], "a list of addresses"),
    "temperature": (_AtLeast0, "a number of at least 0"),
    "seed": (int, "a whole number"),
    "num_ctx": (PositiveInt, "a number of tokens above 0"),
    "num_predict": (PositiveInt, "a number of tokens above 0"),
    "deadline_s": (Annotated[FiniteFloat, Field(gt=0)], "seconds above 0"),
    "price": (_Prices, "money per million [prompt tokens, output tokens]"),
    "digest": (str, "a text in quotes"),
}


def make_generator(name: str = "extractive", **options: Any) -> Any:
    """Make a generator by name: in `GENERATORS`, or a chat model such as ``"ollama:llama3:8b"`` or ``"smollm2"``.

    ``options`` are of the entry in the table, or of `ragbench.llm.chat_model`; ``hosts``, a list of addresses,
    makes one model on several hosts.
    """
    return make_model("generator", name, options)


def make_judge(name: str = "embedded", **options: Any) -> Any:
    """Make a judge by name: in `JUDGES`, or a chat model; see `make_generator`."""
    return make_model("judge", name, options)


def make_model(axis: str, name: str, options: Mapping[str, Any]) -> Any:
    """Make a generator, a judge or who gives labels by name; see `make_generator`."""
    if name in _TABLES[axis]:
        return _TABLES[axis][name](**options)
    if ":" not in name and name not in NAMES:
        raise unknown(axis, name, (*_TABLES[axis], *NAMES))
    others = {key: value for key, value in options.items() if key != "hosts"}
    if options.get("hosts") is None:
        return chat_model(name, **others)
    return [chat_model(name, host=str(host), **others) for host in options["hosts"]]


def by_name(axis: str, name: str) -> Any:
    """Return what ships, or was added to its table, under a name on one of the axes, with its default settings."""
    return _MAKERS[axis](Path(), name, {})


def experiment_file(path: str | os.PathLike[str]) -> Path:
    """Return the file that is meant by its own name or by that of its folder."""
    path = Path(path).expanduser()
    return path / "experiment.yaml" if path.is_dir() else path


def read_yaml(path: Path) -> dict[str, Any]:
    """Read the keys of an experiment file; ConfigError or DataError names file and line."""
    text = read_text(path)
    if len(text) > MOST_CHARS:
        expected = f"an experiment file of at most {MOST_CHARS:,}"
        raise ConfigError(f"{path} has {len(text):,} characters", expected, "check the path")
    try:
        told = yaml.load(text, _Loader)  # a SafeLoader
    except RecursionError:
        raise ConfigError(f"{path} nests too deeply", "YAML of plain values", "see docs/experiment.md") from None
    except ValueError as error:  # a date that is none, a number of thousands of digits
        raise ConfigError(f"{path}: {error}", "YAML of plain values", "put the value in quotes") from None
    except yaml.YAMLError as error:
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None) or error
        line = f", line {mark.line + 1}" if mark else ""
        raise ConfigError(f"{path}{line}: {problem}", "YAML of plain values", "mend that line") from None
    if not isinstance(told, dict):
        raise ConfigError(f"{path} holds {type(told).__name__}", "keys such as name and data", "see docs/experiment.md")
    return told


class _Loader(yaml.SafeLoader):
    """PyYAML keeps the last of two equal keys in silence, and lets a few aliases stand for gigabytes."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark
            raise yaml.composer.ComposerError(None, None, "an alias (*name): write the value out", mark)
        return super().compose_node(parent, index)

    def construct_scalar(self, node: Any) -> Any:
        if "\0" in node.value:
            raise yaml.constructor.ConstructorError(None, None, "a NUL character", node.start_mark)
        return super().construct_scalar(node)

    def construct_once(self, node: Any) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str | int | float | bool) or key in found:
                problem = f"the key {key!r} twice" if isinstance(key, str | int | float) else "a key that is no text"
                raise yaml.constructor.ConstructorError(None, None, problem, key_node.start_mark)
            found[key] = self.construct_object(value_node, deep=True)
        return found


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _Loader.construct_once)


def arguments(told: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return the arguments of ``Experiment`` that the keys of a file in this folder stand for, or a ConfigError."""
    for key in told:
        if key not in KEYS:
            raise _at(str(key), unknown("key", key, KEYS))
    if lacking := [key for key in _REQUIRED if key not in told]:
        do = "add " + " and ".join(f"'{key}: {_REQUIRED[key]}'" for key in lacking) + ", see docs/experiment.md"
        raise ConfigError(f"there is no key {', '.join(map(repr, lacking))}", ", ".join(_REQUIRED), do)
    if "code" in told:
        _import(folder, told["code"])
    models = {key: _named(folder, key, told[key]) for key in _MODELS if key in told}
    given = {key: value for key, value in told.items() if key not in ("code", "embedder", "reranker")}
    given |= {key: models[key] for key in ("labels", "checker") if key in models}
    for key in AXES:
        if key in _REQUIRED or told.get(key) not in (None, "none"):
            given[key] = _axis(folder, key, told[key], models)
        else:
            given.pop(key, None)
    if isinstance(given["name"], int | float) and not isinstance(given["name"], bool):
        given["name"] = str(given["name"])
    if isinstance(given.get("k"), str):
        given["k"] = _published_depths(given["k"], given["retriever"])
    for key in ("tokenizer", "folder", "cassette"):
        if isinstance(given.get(key), str):
            given[key] = str(folder / given[key])
    return given


def _import(folder: Path, code: Any) -> None:
    """Import the Python file beside an experiment file that adds the user's own names."""
    file = folder / str(code)
    if file.suffix != ".py" or not file.is_file():
        raise ConfigError(f"code is {code!r}", "a Python file beside it", "write for instance code: mine.py")
    if file.stem in sys.modules and getattr(sys.modules[file.stem], "__file__", None) != str(file):
        raise ConfigError(f"code is {code!r}, a name that is taken", "another name", "rename the file")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    sys.modules[file.stem] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)


def _at(where: str, error: RagbenchError) -> ConfigError:
    return ConfigError(f"{where}: {error.got}", error.expected, error.do)


def _axis(folder: Path, axis: str, told: Any, models: Mapping[str, Any]) -> dict[str, Any]:
    """Return one axis as label -> object or function; ``models`` are of the entries that name none themselves."""
    if isinstance(told, str):
        told = [told]
    if isinstance(told, list):
        for name in told:
            if not isinstance(name, str):
                raise ConfigError(f"{axis} lists {name!r}", "names", f"write {axis}: {{a label: ...}}")
        told = {name: name for name in told}
    if not isinstance(told, dict) or not told:
        raise ConfigError(f"{axis} is {told!r}", "a name, a list of names, or label: name", f"mend {axis}")
    entries = {}
    for label, value in told.items():
        where = f"{axis}.{label}"
        if axis == "data" and isinstance(value, dict) and "questions" in value:
            value = {"use": "own files"} | value
        use, options = _use(where, value)
        of_its_own = {key: _named(folder, f"{where}.{key}", options.pop(key)) for key in _MODELS if key in options}
        try:
            takes = _takes(axis, use)
            check_known(f"option of {use}", of_its_own, takes)
            taken = {key: model for key, model in (models | of_its_own).items() if key in takes}
            entries[str(label)] = _MAKERS[axis](folder, use, options, **taken)
        except RagbenchError as error:
            raise _at(where, error) from None
        except (TypeError, ValueError, OverflowError) as error:
            raise ConfigError(f"{where}: {error}", "options that fit", "see docs/experiment.md") from None
    return entries


def _use(where: str, value: Any) -> tuple[str, dict[str, Any]]:
    """Return the name under ``use``, and the options beside it."""
    options = dict(value) if isinstance(value, dict) else {"use": value}
    use = options.pop("use", None)
    if not isinstance(use, str):
        raise ConfigError(f"{where} has no use", "use: NAME", f"write {{use: NAME}} under {where}")
    for option in options:
        if "key" in str(option).lower() or "password" in str(option).lower():
            raise ConfigError(f"{where}.{option}", "no secret in this file", "set OLLAMA_API_KEY or OPENAI_API_KEY")
    return use, options


def _named(folder: Path, where: str, value: Any) -> Any:
    """Return a model that is no axis: a name, or {use: NAME, option: value, ...}."""
    use, options = _use(where, value)
    key = where.rpartition(".")[2]
    try:
        if key == "labels":
            return _model(folder, use, options, "labels")
        if key in ("reranker", "checker") and asks_model(use):
            # A model's replies are kept beside the file, so that a run goes on where it stopped.
            options["cassette"] = str(folder / options.get("cassette", f"{key}.sqlite"))
        return _NAMED[key](_beside(folder, use), **options)
    except RagbenchError as error:
        raise _at(where, error) from None


def _beside(folder: Path, use: str) -> str:
    """Return a model's name with the path in it, if any, seen from the file."""
    kind, _, path = use.partition(":")
    return f"{kind}:{folder / Path(path).expanduser()}" if kind in ("onnx", "gguf") else use


def _takes(axis: str, use: str) -> tuple[str, ...]:
    """Return the names of the models that an entry of an axis can be given."""
    if axis == "retriever" and use in retrieval.RETRIEVERS:
        return tuple(retrieval.table.settings_of(use, objects=True))
    return tuple(inspect.signature(chunking.CHUNKERS[use]).parameters) if use in chunking.CHUNKERS else ()


def _check_options(use: str, function: Callable, options: Mapping[str, Any], leave_out: tuple[str, ...] = ()) -> None:
    known = [name for name in inspect.signature(function).parameters if name not in leave_out]
    check_known(f"option of {use}", options, known)


def _data(folder: Path, use: str, options: dict[str, Any]) -> Callable:
    if use in data.DATASETS:
        _check_options(use, data.DATASETS[use], options)
        return functools.partial(data.load_dataset, use, **options)
    if use != "own files":
        raise data.unknown_data(use, (*data.DATASETS, "own files"))
    if "questions" not in options:
        raise ConfigError("own files without questions", "questions: FILE", "add it, and documents: FILE or FOLDER")
    _check_options(use, data.load_questions, options)
    paths = {name: folder / str(options[name]) for name in ("questions", "documents") if name in options}
    return functools.partial(data.load_questions, **options | paths)


def _chunker(folder: Path, use: str, options: dict[str, Any], **models: Any) -> Callable:
    check_known("chunker", [use], chunking.CHUNKERS)
    cut = chunking.CHUNKERS[use]
    _check_options(use, cut, options, ("documents", "tokenizer", "embedder"))
    cut([], **options)  # settings that cannot work are told now, and with their key
    return functools.partial(cut, **options, **models)


def _retriever(folder: Path, use: str, options: dict[str, Any], **models: Any) -> Callable:
    retrieval.table.check_settings(use, options)
    if "tokenizer" in options:
        retrieval.text.get_tokenizer(options["tokenizer"])  # a wrong name is told now, and with its key
    return functools.partial(retrieval.make_retriever, use, **options, **models)


def _model(folder: Path, use: str, options: dict[str, Any], axis: str) -> Any:
    if use in _TABLES[axis]:
        _check_options(use, _TABLES[axis][use], options, ("self",))
        return make_model(axis, use, options)
    check_known(f"option of {use}", options, _MODEL_OPTIONS)
    for option, value in options.items():
        kind, expected = _MODEL_OPTIONS[option]
        try:
            TypeAdapter(kind | None, config=ConfigDict(strict=True)).validate_python(value)
        except ValidationError:
            raise ConfigError(f"{option} is {value!r}", expected, f"mend {option}") from None
    return make_model(axis, _beside(folder, use), options)


_MAKERS: Mapping[str, Callable] = {
    "data": _data,
    "chunker": _chunker,
    "retriever": _retriever,
    "generator": functools.partial(_model, axis="generator"),
    "judge": functools.partial(_model, axis="judge"),
}


def _published_depths(paper: str, retrievers: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    """Return k as a paper published it (``TOP_K`` of its module in `ragbench.papers`)."""
    check_known("paper in k", [paper], [module.name for module in pkgutil.iter_modules(papers.__path__)])
    published = getattr(importlib.import_module(f"ragbench.papers.{paper}"), "TOP_K", {})
    return {paper: {name: published[name] for name in retrievers if name in published}}
