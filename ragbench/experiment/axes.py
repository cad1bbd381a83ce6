"""What may stand on the axes of an experiment: names of what ships, ``{use: NAME, option: value}``,
or objects.

A name stands for the same in Python and in an ``experiment.yaml``.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ragbench import chunking, data, retrieval
from ragbench.embedding import make_embedder
from ragbench.errors import ConfigError, RagbenchError, check_known
from ragbench.labelling.checkers import ModelChecker
from ragbench.llm import chat_model
from ragbench.llm.models import NAMES, TWO_WAYS
from ragbench.records import Dataset
from ragbench.retrieval.multiquery import MultiQuery, llm_decomposer
from ragbench.retrieval.rerank import CrossEncoder
from ragbench.retrieval.table import settings_of
from ragbench.retrieval.text import Tokenizer

_Settings = Mapping[str, Any]  # of an experiment: its models, and what relative paths start at
AXES = ("data", "chunker", "retriever", "generator", "judge")
NONE = "none"
QUERY_ONLY = "LLM only"
_OWN_FILES = "own files"  # a data set of the user's questions and documents
# Chat models need no entry. A generator or judge of one's own is one: ``GENERATORS["mine"] =
# Mine``.
GENERATORS: dict[str, Callable[..., Any]] = {}
JUDGES: dict[str, Callable[..., Any]] = {}
# Models that are not axes: of the retrievers and chunkers that name none themselves, and of the
# metrics.
MODELS = ("embedder", "scorer", "decompose", "checker")
# Of a chat model, in a file or a mapping.
_MODEL_OPTIONS = (
    "host",
    "temperature",
    "seed",
    "num_ctx",
    "num_predict",
    "deadline_s",
    "digest",
    "top_p",
    "top_k",
    "stop",
    "reasoning",
    "keep_alive",
    "cloud",
)
_MODEL = "a chat model, a name such as 'ollama:llama3:8b', or an object with "
# What may stand on an axis beside names; an object has one of these methods.
_OBJECTS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "data": ("a Dataset, or a function that loads one", ("__call__",)),
    "chunker": ("a function of the documents", ("__call__",)),
    "retriever": ("a function of the chunks", ("__call__",)),
    "generator": (f"{_MODEL}answer(question, context)", ("answer", "ainvoke")),
    "judge": (f"{_MODEL}grade_all(questions, answers)", ("grade_all", "ainvoke")),
}


def is_model(value: Any) -> bool:
    """Say whether an axis value is a chat model or a name of one."""
    return isinstance(value, str) or hasattr(value, "ainvoke")


def parse_value(key: str, value: Any, settings: _Settings) -> Any:
    """Return what a key of an experiment stands for: of an axis a dict label -> object or function,
    else a model.

    Parameters
    ----------
    key : of `AXES`, of `MODELS`, or ``labels``.
    value : a name or ``{use: NAME, ...}``; of an axis also a Dataset, a list of these, or a dict
        label -> one of these or object. Anything else of a model stands for itself.
    settings : ``paths_from``, what relative paths start at, and those of `MODELS`, for the entries
        that name none themselves.
    """
    if key in ("generator", "judge") and value in (None, NONE, {}, []):
        return {}
    if key in AXES:
        return _axis(key, value, settings)
    if isinstance(value, str | Mapping):
        return _named(key, key, value, settings)
    return value


def _axis(axis: str, value: Any, settings: _Settings) -> dict[str, Any]:
    if isinstance(value, str | Dataset) or (isinstance(value, Mapping) and "use" in value):
        value = [value]
    if isinstance(value, list | tuple):
        value = {_label(entry): entry for entry in value}
    if not isinstance(value, Mapping) or not value:
        raise ConfigError(
            f"{axis} is {type(value).__name__} {str(value)[:60]}",
            "a name of what ships, a list of names, or label: name, function or object",
            f"write for instance {axis}: {{a label: ...}}, see docs/experiment.md",
        )
    parsed = {}
    for label, entry in value.items():
        name = check_label(axis, str(label))
        parsed[name] = _entry(axis, name, entry, settings)
    return parsed


def _label(entry: Any) -> str:
    """Return the label of what has none of its own."""
    if isinstance(entry, Mapping):
        return str(entry.get("use"))
    if isinstance(entry, Dataset):
        return entry.name
    return str(entry)


def check_label(axis: str, label: str) -> str:
    """Return a label as it is; ConfigError for one that no folder or table can bear."""
    is_line = label.strip() and label.isprintable()
    is_short = len(label.encode()) <= 200
    is_taken = label in (NONE, QUERY_ONLY)
    if not is_line or not is_short or is_taken:
        raise ConfigError(
            f"{axis} has the name {label[:60]!r}",
            f"one line of at most 200 bytes, other than {NONE!r} and {QUERY_ONLY!r}",
            "rename it",
        )
    return label


def _entry(axis: str, label: str, value: Any, settings: _Settings) -> Any:
    if isinstance(value, str | Mapping):
        value = _named(f"{axis}.{label}", axis, value, settings)
    expected, methods = _OBJECTS[axis]
    is_fit = any(hasattr(value, method) for method in methods)
    if is_fit or isinstance(value, Dataset):
        return value
    if axis == "generator" and callable(value):
        return SimpleNamespace(name=label, answer=value)
    raise ConfigError(
        f"{axis} {label!r} is {type(value).__name__}",
        expected,
        "see docs/experiment.md",
    )


def _named(where: str, key: str, value: str | Mapping[str, Any], settings: _Settings) -> Any:
    """Make what a name, or ``{use: NAME, option: value}``, stands for; errors name the key."""
    options: dict[str, Any] = {"use": value}
    if isinstance(value, Mapping):
        options = dict(value)
    if "questions" in options:
        options.setdefault("use", _OWN_FILES)
    use = options.pop("use", None)
    if not isinstance(use, str):
        raise ConfigError(f"{where} has no use", "use: NAME", f"write {{use: NAME}} under {where}")
    for option in options:
        if "key" in option.lower() or "password" in option.lower():
            raise ConfigError(
                f"{where}.{option}",
                "no secret in this file",
                "set OLLAMA_API_KEY or OPENAI_API_KEY",
            )
    try:
        return _MAKERS[key](key, use, options, settings)
    except RagbenchError as error:
        raise ConfigError(f"{where}: {error.got}", error.expected, error.do) from None
    except (TypeError, ValueError, OverflowError) as error:
        raise ConfigError(
            f"{where}: {error}",
            "options that fit",
            "see docs/experiment.md",
        ) from None


# -- one function for each kind of name: (key, name, options, settings) -> what it stands for


def _data(_: str, use: str, options: dict[str, Any], settings: _Settings) -> Callable[[], Dataset]:
    loaders = {**data.DATASETS, _OWN_FILES: data.load_questions}
    check_known("data set", [use], loaders)
    load = loaders[use]
    _check_options(use, options, load)
    for name in ("questions", "documents"):
        if use == _OWN_FILES and name in options:
            options[name] = settings["paths_from"] / str(options[name])
    return partial(load, **options)


def _chunker(axis: str, use: str, options: dict[str, Any], settings: _Settings) -> Callable:
    check_known(axis, [use], chunking.CHUNKERS)
    cut = chunking.CHUNKERS[use]
    parameters = inspect.signature(cut).parameters
    takes = [name for name in parameters if name != "documents"]
    filled = _with_models(use, takes, options, settings)
    for name, value in options.items():
        kinds = re.findall(r"\w+", str(parameters[name].annotation))
        if isinstance(value, float) and "int" in kinds and "float" not in kinds:
            raise ConfigError(f"{name}={value}", "a whole number", "write one")
    cut([], **filled)  # settings that cannot work are refused now, and with their key
    return partial(cut, **filled)


def _retriever(_: str, use: str, options: dict[str, Any], settings: _Settings) -> Callable:
    takes = settings_of(use)
    filled = _with_models(use, takes, options, settings)
    if "decompose" in takes:
        MultiQuery.check_decomposer(filled.get("decompose"))
    if "tokenizer" in filled:
        Tokenizer.of(filled["tokenizer"])  # refused now, and with its key
    return partial(retrieval.make_retriever, use, **filled)


def _with_models(
    use: str, takes: Collection[str], options: dict[str, Any], settings: _Settings
) -> dict[str, Any]:
    """Return the options, checked, and the models that are taken: own ones, else the
    experiment's.
    """
    check_known(f"option of {use}", options, takes)
    filled = dict(options)
    for key in MODELS:
        if key in options:
            filled[key] = parse_value(key, options[key], settings)
        elif key in takes and settings.get(key) is not None:
            filled[key] = settings[key]
    return filled


def _person(axis: str, use: str, options: dict[str, Any], settings: _Settings) -> Any:
    """Make who answers, grades or labels: of the axis's table, or a chat model."""
    table = {"generator": GENERATORS, "judge": JUDGES}.get(axis, {})
    if use in table:
        maker = table[use]
        _check_options(use, options, maker)
        return maker(**options)
    if ":" not in use and use not in NAMES:
        error = ConfigError.unknown(axis, use, (*table, *NAMES))
        if "did you mean" in error.do:
            raise error
        raise ConfigError(error.got, error.expected, TWO_WAYS)
    check_known(f"option of {use}", options, _MODEL_OPTIONS)
    return chat_model(_beside(settings, use), **options)


def _model(key: str, use: str, options: dict[str, Any], settings: _Settings) -> Any:
    """Make a model that is not on an axis."""
    if key == "embedder":
        return make_embedder(_beside(settings, use), **options)
    if key == "scorer":
        check_known("scorer", [use], ["minilm"])
        return CrossEncoder(**options)
    # A model's replies are kept beside the file, so that a run goes on where it stopped.
    name = options.pop("cassette", f"{key}.sqlite")
    cassette = str(settings["paths_from"] / name)
    model = chat_model(_beside(settings, use), **options)
    asks = {"decompose": llm_decomposer, "checker": ModelChecker}[key]
    return asks(model, cassette=cassette)


def _beside(settings: _Settings, use: str) -> str:
    """Return a model's name, in which the path of a file, if any, is seen from the folder."""
    kind, _, path = use.partition(":")
    if kind in ("onnx", "gguf"):
        return f"{kind}:{settings['paths_from'] / Path(path).expanduser()}"
    return use


def _check_options(use: str, options: Mapping[str, Any], function: Callable) -> None:
    check_known(f"option of {use}", options, inspect.signature(function).parameters)


_MAKERS: Mapping[str, Callable] = {
    "data": _data,
    "chunker": _chunker,
    "retriever": _retriever,
    **dict.fromkeys(("generator", "judge", "labels"), _person),
    **dict.fromkeys(MODELS, _model),
}
