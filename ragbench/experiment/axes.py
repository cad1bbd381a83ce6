"""What may stand on the axes of an experiment: names of what ships, ``{use: NAME, option: value}``,
or objects.

A name stands for the same in Python and in an ``experiment.yaml``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ragbench import chunking, data, retrieval
from ragbench.embedding import make_embedder
from ragbench.errors import ConfigError, RagbenchError, check_known, unknown
from ragbench.labelling.checkers import ModelChecker
from ragbench.llm import chat_model
from ragbench.llm.models import NAMES, TWO_WAYS
from ragbench.records import Dataset
from ragbench.retrieval.multiquery import llm_decomposer, no_decomposer
from ragbench.retrieval.rerank import CrossEncoder

AXES = ("data", "chunker", "retriever", "generator", "judge")
NONE = "none"
QUERY_ONLY = "LLM only"
# Chat models need no entry. A generator or judge of one's own is one: ``GENERATORS["mine"] =
# Mine``.
GENERATORS: dict[str, Callable[..., Any]] = {}
JUDGES: dict[str, Callable[..., Any]] = {}
# Models that are no axes: of the retrievers and chunkers that name none themselves, and of the
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


def parse_axis(
    axis: str, value: Any, models: Mapping[str, Any], folder: Path = Path()
) -> dict[str, Any]:
    """Return an axis as a dict label -> object or function.

    Parameters
    ----------
    value : a name, ``{use: NAME, ...}`` or Dataset, a list of these, or a dict label -> one of
        these or object.
    models : those of `MODELS`, for the entries that name none themselves.
    folder : what relative paths start at.
    """
    if isinstance(value, str | Dataset) or (isinstance(value, Mapping) and "use" in value):
        value = [value]
    if isinstance(value, list | tuple):
        value = {_label(each): each for each in value}
    if not isinstance(value, Mapping) or not value:
        got = f"{axis} is {type(value).__name__} {str(value)[:60]}"
        expected = "a name of what ships, a list of names, or label: name, function or object"
        do = f"write for instance {axis}: {{a label: ...}}, see docs/experiment.md"
        raise ConfigError(got, expected, do)
    parsed = {}
    for label, entry in value.items():
        name = check_label(axis, str(label))
        parsed[name] = _entry(axis, name, entry, models, folder)
    return parsed


def _label(value: Any) -> str:
    """Return the label of what has none of its own."""
    if isinstance(value, Mapping):
        return str(value.get("use"))
    return value.name if isinstance(value, Dataset) else str(value)


def check_label(axis: str, label: str) -> str:
    """Return a label as it is; ConfigError for one that no folder or table can bear."""
    fits = label.strip() and label.isprintable() and len(label.encode()) <= 200
    if not fits or label in (NONE, QUERY_ONLY):
        expected = f"one line of at most 200 bytes, other than {NONE!r} and {QUERY_ONLY!r}"
        raise ConfigError(f"{axis} has the name {label[:60]!r}", expected, "rename it")
    return label


def parse_model(key: str, value: Any, folder: Path = Path()) -> Any:
    """Return a model that is no axis, of `MODELS` or ``labels``, by its name, or as it is."""
    return _named(key, key, value, {}, folder) if isinstance(value, str | Mapping) else value


def _entry(axis: str, label: str, value: Any, models: Mapping[str, Any], folder: Path) -> Any:
    if isinstance(value, str | Mapping):
        value = _named(f"{axis}.{label}", axis, value, models, folder)
    expected, methods = _OBJECTS[axis]
    if isinstance(value, Dataset) or any(hasattr(value, method) for method in methods):
        return value
    if axis == "generator" and callable(value):
        return SimpleNamespace(name=label, answer=value)
    got = f"{axis} {label!r} is {type(value).__name__}"
    raise ConfigError(got, expected, "see docs/experiment.md")


def _named(
    where: str,
    key: str,
    value: str | Mapping[str, Any],
    models: Mapping[str, Any],
    folder: Path,
) -> Any:
    """Make what a name, or ``{use: NAME, option: value}``, stands for; errors name the key."""
    options = {"use": value} if isinstance(value, str) else dict(value)
    if "questions" in options:
        options.setdefault("use", "own files")
    use = options.pop("use", None)
    if not isinstance(use, str):
        raise ConfigError(f"{where} has no use", "use: NAME", f"write {{use: NAME}} under {where}")
    for option in options:
        if "key" in option.lower() or "password" in option.lower():
            do = "set OLLAMA_API_KEY or OPENAI_API_KEY"
            raise ConfigError(f"{where}.{option}", "no secret in this file", do)
    try:
        return _MAKERS[key](key, use, options, models, folder)
    except RagbenchError as error:
        raise ConfigError(f"{where}: {error.got}", error.expected, error.do) from None
    except (TypeError, ValueError, OverflowError) as error:
        do = "see docs/experiment.md"
        raise ConfigError(f"{where}: {error}", "options that fit", do) from None


def _beside(folder: Path, use: str) -> str:
    """Return a model's name with the path in it, if any, seen from the folder."""
    kind, _, path = use.partition(":")
    return f"{kind}:{folder / Path(path).expanduser()}" if kind in ("onnx", "gguf") else use


def _check_options(use: str, options: Mapping[str, Any], function: Callable) -> None:
    check_known(f"option of {use}", options, inspect.signature(function).parameters)


def _data(_: str, use: str, options: dict[str, Any], __: Mapping, folder: Path) -> Callable:
    if use == "own files":
        _check_options(use, options, data.load_questions)
        for name in {"questions", "documents"} & options.keys():
            options[name] = folder / str(options[name])
        return partial(data.load_questions, **options)
    check_known("data set", [use], (*data.DATASETS, "own files"))
    _check_options(use, options, data.DATASETS[use])
    return partial(data.load_dataset, use, **options)


def _with_models(
    use: str, takes: Iterable[str], options: dict[str, Any], models: Mapping, folder: Path
) -> dict[str, Any]:
    """Return the options, checked, and the models that are taken: own ones, else the
    experiment's.
    """
    check_known(f"option of {use}", options, takes)
    settings = dict(options)
    for key in MODELS:
        if key in options:
            settings[key] = parse_model(key, options[key], folder)
        elif key in takes and models.get(key) is not None:
            settings[key] = models[key]
    return settings


def _chunker(
    axis: str, use: str, options: dict[str, Any], models: Mapping[str, Any], folder: Path
) -> Callable:
    check_known(axis, [use], chunking.CHUNKERS)
    cut = chunking.CHUNKERS[use]
    takes = [name for name in inspect.signature(cut).parameters if name != "documents"]
    settings = _with_models(use, takes, options, models, folder)
    cut([], **settings)  # settings that cannot work are refused now, and with their key
    return partial(cut, **settings)


def _retriever(
    _: str, use: str, options: dict[str, Any], models: Mapping[str, Any], folder: Path
) -> Callable:
    takes = retrieval.table.settings_of(use)
    settings = _with_models(use, takes, options, models, folder)
    if "decompose" in takes and settings.get("decompose") is None:
        raise no_decomposer()
    if "tokenizer" in settings:
        retrieval.text.get_tokenizer(settings["tokenizer"])  # refused now, and with its key
    return partial(retrieval.make_retriever, use, **settings)


def _person(axis: str, use: str, options: Mapping[str, Any], _: Mapping, folder: Path) -> Any:
    """Make who answers, grades or labels: of the axis's table, or a chat model."""
    table = {"generator": GENERATORS, "judge": JUDGES}.get(axis, {})
    if use in table:
        _check_options(use, options, table[use])
        return table[use](**options)
    if ":" not in use and use not in NAMES:
        error = unknown(axis, use, (*table, *NAMES))
        do = error.do if "did you mean" in error.do else TWO_WAYS
        raise ConfigError(error.got, error.expected, do)
    check_known(f"option of {use}", options, _MODEL_OPTIONS)
    return chat_model(_beside(folder, use), **options)


def _model(key: str, use: str, options: dict[str, Any], _: Mapping, folder: Path) -> Any:
    """Make a model that is no axis."""
    if key == "embedder":
        return make_embedder(_beside(folder, use), **options)
    if key == "scorer":
        check_known("scorer", [use], ["minilm"])
        return CrossEncoder(**options)
    # A model's replies are kept beside the file, so that a run goes on where it stopped.
    cassette = str(folder / options.pop("cassette", f"{key}.sqlite"))
    asks = {"decompose": llm_decomposer, "checker": ModelChecker}[key]
    return asks(chat_model(_beside(folder, use), **options), cassette=cassette)


_MAKERS: Mapping[str, Callable] = {
    "data": _data,
    "chunker": _chunker,
    "retriever": _retriever,
    **dict.fromkeys(("generator", "judge", "labels"), _person),
    **dict.fromkeys(MODELS, _model),
}
