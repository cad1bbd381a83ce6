"""An experiment from a YAML file: the same axes, with names for what ships and for the user's own files.

    name: first-look
    data: minihop                       # or hotpotqa, or {mine: {questions: q.jsonl, documents: docs/}}
    chunker: {small: {use: token_chunks, size: 100, overlap: 0.2}}
    retriever: [BM25, SIM, Hybrid]
    k: 10                               # or [5, 10], or the name of a paper: thesis
    N: [0, 100, 500, 1000]
    generator: extractive               # or smollm2, or {llama: {use: "ollama:llama3:8b", host: gpu1, num_ctx: 8192}}
    judge: embedded

BM25 cuts texts into words by their language; {german: {use: BM25, tokenizer: german}} sets it (also of Hybrid), and
{use: BM25, variant: terrier} takes Terrier's. `ragbench plan` says which tokenizer was chosen.

A name of your own, such as ``RETRIEVERS["mine"] = Mine``, stands in a Python file beside this one: ``code: mine.py``.

``embedder: onnx:models/e5`` (or minilm, ollama:bge-m3) is the embedding model of every dense retriever and of semantic
chunks that name none themselves; ``reranker: onnx:models/cross-encoder`` scores the hits for ``retriever: Rerank``.

``metrics: [token_f1, claim_recall]`` are computed after the run; ``labels: ollama:llama3:8b`` makes the labels they
need (default: embedded), and ``checker: onnx:models/minicheck`` checks the claims in its place.

An axis is a name, a list of names, or a mapping label -> name or label -> {use: NAME, option: value, ...}. Paths are
relative to the file. API keys come from the environment only (OLLAMA_API_KEY, OPENAI_API_KEY).
"""

from __future__ import annotations

import functools
import importlib.util
import inspect
import math
import os
import pkgutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ragbench import chunking, data, papers, retrieval
from ragbench.data.files import read_text
from ragbench.embedding import make_embedder
from ragbench.errors import ConfigError, RagbenchError, check_known, unknown
from ragbench.experiment.models import TABLES, make_model
from ragbench.labelling.checkers import asks_model, make_checker
from ragbench.retrieval.rerank import make_scorer

_AXES = ("data", "chunker", "retriever", "generator", "judge")
_PLAIN: Mapping[str, tuple[type, ...]] = {
    "per_prompt": (str, int), "order": (int,), "max_chars": (int,), "begin_token": (bool,), "match": (str,),
    "concurrency": (int,), "options": (dict,), "cassette": (str, bool), "tokenizer": (str,), "folder": (str,),
    "truncated": (str,), "metrics": (list, str),
}  # fmt: skip
# Not axes: of the retrievers and chunkers that name none themselves, and of the metrics.
_MODELS = ("embedder", "reranker", "labels", "checker")
# Keys that every file has, as one may write them.
_REQUIRED = {
    "name": "first-look",
    "data": "{mine: {questions: questions.jsonl, documents: docs/}}",
    "chunker": "{small: {use: token_chunks, size: 200, overlap: 0.2}}",
    "retriever": "[BM25, SIM]",
}
MOST_CHARS = 1_000_000  # of an experiment file


def _is_number(value: Any, least: float = -math.inf, kinds: tuple[type, ...] = (int, float)) -> bool:
    return isinstance(value, kinds) and not isinstance(value, bool) and least <= value < math.inf


# What an option of a model must be.
_MODEL_OPTIONS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "host": (lambda v: isinstance(v, str), "an address"),
    "hosts": (lambda v: isinstance(v, list) and bool(v), "a list of addresses"),
    "temperature": (lambda v: _is_number(v, 0), "a number of at least 0"),
    "seed": (lambda v: _is_number(v, kinds=(int,)), "a whole number"),
    "num_ctx": (lambda v: _is_number(v, 1, (int,)), "a number of tokens above 0"),
    "num_predict": (lambda v: _is_number(v, 1, (int,)), "a number of tokens above 0"),
    "deadline_s": (lambda v: _is_number(v, 1e-9), "seconds above 0"),
    "price": (
        lambda v: isinstance(v, list) and len(v) == 2 and all(_is_number(one, 0) for one in v),
        "money per million [prompt tokens, output tokens]",
    ),
    "digest": (lambda v: isinstance(v, str), "a text in quotes"),
}


def experiment_file(path: str | os.PathLike[str]) -> Path:
    """Return the file that is meant by its own name or by that of its folder."""
    path = Path(path).expanduser()
    return path / "experiment.yaml" if path.is_dir() else path


def read_experiment(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the arguments of ``Experiment`` that a YAML file, or a folder's ``experiment.yaml``, stands for.

    Raises
    ------
    ConfigError naming file and key; DataError for a file that is missing or no UTF-8.
    """
    path = experiment_file(path)
    told = _load(path)
    known = (*_REQUIRED, "k", "N", "generator", "judge", "code", *_MODELS, *_PLAIN)
    for key in told:
        if key not in known:
            raise _at(path, str(key), unknown("key", key, known))
    if lacking := [key for key in _REQUIRED if key not in told]:
        do = "add " + " and ".join(f"'{key}: {_REQUIRED[key]}'" for key in lacking) + ", see docs/experiment.md"
        raise ConfigError(f"{path}: there is no key {', '.join(map(repr, lacking))}", ", ".join(_REQUIRED), do)
    if "code" in told:
        _run(path, told["code"])
    if isinstance(told["name"], bool) or not isinstance(told["name"], str | int | float):
        raise ConfigError(f"{path}: name is {told['name']!r}", "a text", "write it in quotes: YAML reads it otherwise")
    made: dict[str, Any] = {"name": str(told["name"])}
    models = {key: _named(path, key, told[key]) for key in _MODELS if key in told}
    for key in _AXES:
        if told.get(key) not in (None, "none"):
            made[key] = _axis(path, key, told[key], models)
    made |= {key: models[key] for key in ("labels", "checker") if key in models}
    made["k"] = _depths(told.get("k", 10), made["retriever"])
    if "N" in told:
        made["N"] = told["N"]
    for key, kinds in _PLAIN.items():
        if key in told:
            value = told[key]
            if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
                wanted = " or ".join(kind.__name__ for kind in kinds)
                raise ConfigError(f"{path}: {key} is {value!r}", wanted, f"mend {key}")
            made[key] = str(path.parent / value) if key in ("tokenizer", "folder") else value
    if isinstance(made.get("cassette"), str):
        made["cassette"] = str(path.parent / made["cassette"])
    return made


def _load(path: Path) -> dict[str, Any]:
    import yaml

    class Loader(yaml.SafeLoader):
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

    def mapping(loader: Any, node: Any) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            key = loader.construct_object(key_node, deep=True)
            if not isinstance(key, str | int | float | bool):
                raise yaml.constructor.ConstructorError(None, None, "a key that is no text", key_node.start_mark)
            if key in found:
                raise yaml.constructor.ConstructorError(None, None, f"the key {key!r} twice", key_node.start_mark)
            found[key] = loader.construct_object(value_node, deep=True)
        return found

    Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, mapping)
    text = read_text(path)
    if len(text) > MOST_CHARS:
        raise ConfigError(
            f"{path} has {len(text):,} characters", f"an experiment file of at most {MOST_CHARS:,}", "check the path"
        )
    try:
        told = yaml.load(text, Loader)
    except RecursionError:
        raise ConfigError(f"{path} nests too deeply", "YAML of plain values", "see docs/experiment.md") from None
    except ValueError as error:  # a date that is none, a number of thousands of digits
        raise ConfigError(f"{path}: {error}", "YAML of plain values", "put the value in quotes") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        raise ConfigError(
            f"{path}{line}: {getattr(error, 'problem', None) or error}", "YAML of plain values", "mend that line"
        ) from None
    if not isinstance(told, dict):
        raise ConfigError(f"{path} holds {type(told).__name__}", "keys such as name and data", "see docs/experiment.md")
    return told


def _run(path: Path, code: Any) -> None:
    """Import the Python file beside an experiment file that adds the user's own names."""
    file = path.parent / str(code)
    if file.suffix != ".py" or not file.is_file():
        raise ConfigError(f"{path}: code is {code!r}", "a Python file beside it", "write for instance code: mine.py")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if file.stem in sys.modules and getattr(sys.modules[file.stem], "__file__", None) != str(file):
        raise ConfigError(f"{path}: code is {code!r}, a name that is taken", "another name", "rename the file")
    sys.modules[file.stem] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)


def _at(path: Path, key: str, error: RagbenchError) -> ConfigError:
    return ConfigError(f"{path}: {key}: {error.got}", error.expected, error.do)


def _axis(path: Path, axis: str, told: Any, models: Mapping[str, Any]) -> dict[str, Any]:
    """Return one axis as label -> object or function; ``models`` are of the entries that name none themselves."""
    if isinstance(told, str):
        told = [told]
    if isinstance(told, list):
        for name in told:
            if not isinstance(name, str):
                raise ConfigError(f"{path}: {axis} lists {name!r}", "names", f"write {axis}: {{a label: ...}}")
        told = {name: name for name in told}
    if not isinstance(told, dict) or not told:
        raise ConfigError(f"{path}: {axis} is {told!r}", "a name, a list of names, or label: name", f"mend {axis}")
    made = {}
    for label, value in told.items():
        where = f"{axis}.{label}"
        if axis == "data" and isinstance(value, dict) and "questions" in value:
            value = {"use": "own files"} | value
        use, options = _use(path, where, value)
        own = {key: _named(path, f"{where}.{key}", options.pop(key)) for key in _MODELS if key in options}
        try:
            made[str(label)] = _MAKERS[axis](path, use, options, **_taken(axis, use, own, models))
        except RagbenchError as error:
            raise _at(path, where, error) from None
        except (TypeError, ValueError, OverflowError) as error:
            raise ConfigError(f"{path}: {where}: {error}", "options that fit", "see docs/experiment.md") from None
    return made


def _use(path: Path, where: str, value: Any) -> tuple[str, dict[str, Any]]:
    """Return the name under ``use``, and the options beside it."""
    options = dict(value) if isinstance(value, dict) else {"use": value}
    use = options.pop("use", None)
    if not isinstance(use, str):
        raise ConfigError(f"{path}: {where} has no use", "use: NAME", f"write {{use: NAME}} under {where}")
    for option in options:
        if "key" in str(option).lower() or "password" in str(option).lower():
            raise ConfigError(
                f"{path}: {where}.{option}", "no secret in this file", "set OLLAMA_API_KEY or OPENAI_API_KEY"
            )
    return use, options


_MAKE_NAMED: Mapping[str, Callable] = {"embedder": make_embedder, "reranker": make_scorer, "checker": make_checker}


def _named(path: Path, where: str, value: Any) -> Any:
    """Return a model that is no axis: a name, or {use: NAME, option: value, ...}."""
    use, options = _use(path, where, value)
    if use.startswith("onnx:"):
        use = f"onnx:{path.parent / Path(use[5:]).expanduser()}"
    key = where.rpartition(".")[2]
    if key in ("reranker", "checker") and asks_model(use):
        # A model's replies are kept beside the file, so that a run goes on where it stopped.
        options["cassette"] = str(path.parent / options.get("cassette", f"{key}.sqlite"))
    try:
        if key == "labels":
            return _model(path, use, options, "labels")
        return _MAKE_NAMED[key](use, **options)
    except RagbenchError as error:
        raise _at(path, where, error) from None


def _taken(axis: str, use: str, own: Mapping[str, Any], models: Mapping[str, Any]) -> dict[str, Any]:
    """Return the models that an entry of an axis takes; ConfigError for one of its own that it does not take."""
    takes: tuple[str, ...] = ()
    if axis == "retriever" and use in retrieval.RETRIEVERS:
        takes = tuple(retrieval.table.settings_of(use, objects=True))
    elif axis == "chunker" and use in chunking.CHUNKERS:
        takes = tuple(inspect.signature(chunking.CHUNKERS[use]).parameters)
    check_known(f"option of {use}", own, takes)
    return {key: model for key, model in {**models, **own}.items() if key in takes}


def _checked(use: str, function: Callable, options: Mapping[str, Any], leave_out: tuple[str, ...]) -> None:
    known = [n for n in inspect.signature(function).parameters if n not in leave_out]
    check_known(f"option of {use}", options, known)


def _data(path: Path, use: str, options: dict[str, Any]) -> Callable:
    if use in data.DATASETS:
        _checked(use, data.DATASETS[use], options, ())
        return functools.partial(data.load_dataset, use, **options)
    if use != "own files":
        raise data.unknown_data(use, (*data.DATASETS, "own files"))
    if "questions" not in options:
        raise ConfigError("own files without questions", "questions: FILE", "add it, and documents: FILE or FOLDER")
    for name in ("questions", "documents"):
        if name in options:
            options[name] = path.parent / str(options[name])
    _checked(use, data.load_questions, options, ())
    return functools.partial(data.load_questions, **options)


def _chunker(path: Path, use: str, options: dict[str, Any], **models: Any) -> Callable:
    check_known("chunker", [use], chunking.CHUNKERS)
    cut = chunking.CHUNKERS[use]
    _checked(use, cut, options, ("documents", "tokenizer", "embedder"))
    cut([], **options)  # settings that cannot work are told now, and with their key
    return functools.partial(cut, **options, **models)


def _retriever(path: Path, use: str, options: dict[str, Any], **models: Any) -> Callable:
    retrieval.table.check_settings(use, options)
    if "tokenizer" in options:
        retrieval.text.get_tokenizer(options["tokenizer"])  # a wrong name is told now, and with its key
    return functools.partial(retrieval.make_retriever, use, **options, **models)


def _model(path: Path, use: str, options: dict[str, Any], axis: str) -> Any:
    if use in TABLES[axis]:
        _checked(use, TABLES[axis][use], options, ("self",))
        return make_model(axis, use, options)
    if use.startswith("gguf:"):
        use = f"gguf:{path.parent / Path(use[5:]).expanduser()}"
    check_known(f"option of {use}", options, _MODEL_OPTIONS)
    for option, value in options.items():
        fits, wanted = _MODEL_OPTIONS[option]
        if value is not None and not fits(value):
            raise ConfigError(f"{option} is {value!r}", wanted, f"mend {option}")
    return make_model(axis, use, options)


_MAKERS: Mapping[str, Callable] = {
    "data": _data,
    "chunker": _chunker,
    "retriever": _retriever,
    "generator": functools.partial(_model, axis="generator"),
    "judge": functools.partial(_model, axis="judge"),
}


def by_name(axis: str, name: str) -> Any:
    """Return what ships, or was added to its table, under a name on one of the axes, with its default settings."""
    return _MAKERS[axis](Path(), name, {})


def _depths(told: Any, retrievers: Mapping[str, Any]) -> Any:
    """Return k; a paper's name stands for the depths it published (``TOP_K`` of its module in `ragbench.papers`)."""
    if not isinstance(told, str):
        return told
    known = [module.name for module in pkgutil.iter_modules(papers.__path__)]
    check_known("paper in k", [told], known)
    published = getattr(importlib.import_module(f"ragbench.papers.{told}"), "TOP_K", {})
    return {told: {name: published[name] for name in retrievers if name in published}}
