"""What may stand on the axes of an experiment: names of what ships, ``{use: NAME, option: value}``,
or objects.

A name stands for the same in Python and in an ``experiment.yaml``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ragbench import chunking, data, retrieval
from ragbench.embedding import make_embedder
from ragbench.errors import ConfigError, RagbenchError, check_known, unknown
from ragbench.labelling.checkers import make_checker
from ragbench.llm import chat_model
from ragbench.llm.models import NAMES, TWO_WAYS, not_named
from ragbench.records import Dataset
from ragbench.retrieval.multiquery import make_decomposer, no_decomposer
from ragbench.retrieval.rerank import make_scorer

AXES = ("data", "chunker", "retriever", "generator", "judge")
NONE = "none"
QUERY_ONLY = "LLM only"
# Chat models need no entry. A generator or judge of one's own is one: ``GENERATORS["mine"] =
# Mine``.
GENERATORS: dict[str, Callable[..., Any]] = {}
JUDGES: dict[str, Callable[..., Any]] = {}
_TABLES: Mapping[str, Mapping[str, Callable[..., Any]]] = {
    "generator": GENERATORS,
    "judge": JUDGES,
    "labels": {},
}
# Models that are no axes: of the retrievers and chunkers that name none themselves, and of the
# metrics.
MODELS: Mapping[str, Callable] = {
    "embedder": make_embedder,
    "scorer": make_scorer,
    "decompose": make_decomposer,
    "checker": make_checker,
}
# Of a chat model, in a file or a mapping.
MODEL_OPTIONS = (
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
    value : a name, a list of names, one Dataset, or a dict label -> name, ``{use: NAME, ...}`` or
        object.
    models : those of `MODELS`, for the entries that name none themselves.
    folder : what relative paths start at.
    """
    if isinstance(value, Dataset):
        value = {value.name: value}
    elif isinstance(value, str):
        value = {value: value}
    elif isinstance(value, Mapping) and "use" in value:
        value = {str(value["use"]): value}
    elif isinstance(value, list | tuple) and all(isinstance(name, str) for name in value):
        value = dict(zip(value, value, strict=True))
    if not isinstance(value, Mapping) or not value:
        got = f"{axis} is {type(value).__name__} {str(value)[:60]}"
        expected = "a name of what ships, a list of names, or label: name, function or object"
        do = f"write for instance {axis}: {{a label: ...}}, see docs/experiment.md"
        raise ConfigError(got, expected, do)
    return {
        check_label(axis, str(label)): _entry(axis, str(label), entry, models, folder)
        for label, entry in value.items()
    }


def check_label(axis: str, label: str) -> str:
    """Return a label as it is; ConfigError for one that no folder or table can bear."""
    fits = label.strip() and label.isprintable() and len(label.encode()) <= 200
    if not fits or label in (NONE, QUERY_ONLY):
        expected = f"one line of at most 200 bytes, other than {NONE!r} and {QUERY_ONLY!r}"
        raise ConfigError(f"{axis} has the name {label[:60]!r}", expected, "rename it")
    return label


def parse_model(key: str, value: Any, folder: Path = Path()) -> Any:
    """Return a model that is no axis, of `MODELS` or ``labels``, by its name, or as it is."""
    if not isinstance(value, str | Mapping):
        return value
    with _at(key):
        use, options = _use(key, value)
        if key == "labels":
            return _person("labels", use, options, folder)
        if key != "embedder" and not use.startswith("onnx:") and use != "minilm":
            # A model's replies are kept beside the file, so that a run goes on where it stopped.
            options["cassette"] = str(folder / options.get("cassette", f"{key}.sqlite"))
        return MODELS[key](_beside(folder, use), **options)


@contextmanager
def _at(where: str) -> Iterator[None]:
    """Name the key in the errors of what stands under it."""
    try:
        yield
    except RagbenchError as error:
        raise ConfigError(f"{where}: {error.got}", error.expected, error.do) from None
    except (TypeError, ValueError, OverflowError) as error:
        do = "see docs/experiment.md"
        raise ConfigError(f"{where}: {error}", "options that fit", do) from None


def _entry(axis: str, label: str, value: Any, models: Mapping[str, Any], folder: Path) -> Any:
    if isinstance(value, str | Mapping):
        with _at(f"{axis}.{label}"):
            if axis == "data" and isinstance(value, Mapping) and "questions" in value:
                value = {"use": "own files"} | dict(value)
            use, options = _use(f"{axis}.{label}", value)
            if axis == "data":
                return _data(use, options, folder)
            if axis in ("generator", "judge"):
                return _person(axis, use, options, folder)
            make = _chunker if axis == "chunker" else _retriever
            return make(use, options, models, folder)
    expected, methods = _OBJECTS[axis]
    if isinstance(value, Dataset) or any(hasattr(value, method) for method in methods):
        return value
    if axis == "generator" and callable(value):
        return _as_generator(label, value)
    got = f"{axis} {label!r} is {type(value).__name__}"
    raise ConfigError(got, expected, "see docs/experiment.md")


def _as_generator(label: str, function: Callable) -> SimpleNamespace:
    """Make a generator of a function; its ``key``, if it has one, is for `KeptAnswers`."""
    return SimpleNamespace(name=label, answer=function, key=getattr(function, "key", ""))


def _use(where: str, value: Any) -> tuple[str, dict[str, Any]]:
    """Return the name under ``use``, and the options beside it."""
    if value is None:
        raise not_named(where)
    options = dict(value) if isinstance(value, Mapping) else {"use": value}
    use = options.pop("use", None)
    if not isinstance(use, str):
        raise ConfigError(f"{where} has no use", "use: NAME", f"write {{use: NAME}} under {where}")
    for option in options:
        if "key" in option.lower() or "password" in option.lower():
            do = "set OLLAMA_API_KEY or OPENAI_API_KEY"
            raise ConfigError(f"{where}.{option}", "no secret in this file", do)
    return use, options


def _beside(folder: Path, use: str) -> str:
    """Return a model's name with the path in it, if any, seen from the folder."""
    kind, _, path = use.partition(":")
    return f"{kind}:{folder / Path(path).expanduser()}" if kind in ("onnx", "gguf") else use


def _parameters(function: Callable) -> Iterable[str]:
    return inspect.signature(function).parameters


def _data(use: str, options: dict[str, Any], folder: Path) -> Callable:
    if use == "own files":
        check_known(f"option of {use}", options, _parameters(data.load_questions))
        for name in {"questions", "documents"} & options.keys():
            options[name] = folder / str(options[name])
        return partial(data.load_questions, **options)
    if use not in data.DATASETS:
        raise data.unknown_data(use, (*data.DATASETS, "own files"))
    check_known(f"option of {use}", options, _parameters(data.DATASETS[use]))
    return partial(data.load_dataset, use, **options)


def _with_models(
    use: str, takes: Iterable[str], options: dict[str, Any], models: Mapping, folder: Path
) -> dict[str, Any]:
    """Return the options, checked, and the models that are taken: own ones, else the
    experiment's.
    """
    check_known(f"option of {use}", options, takes)
    shared = {key: models[key] for key in MODELS if key in takes and models.get(key) is not None}
    own = {key: parse_model(key, options[key], folder) for key in MODELS if key in options}
    return shared | options | own


def _chunker(
    use: str, options: dict[str, Any], models: Mapping[str, Any], folder: Path
) -> Callable:
    check_known("chunker", [use], chunking.CHUNKERS)
    cut = chunking.CHUNKERS[use]
    takes = [name for name in _parameters(cut) if name != "documents"]
    settings = _with_models(use, takes, options, models, folder)
    cut([], **settings)  # settings that cannot work are refused now, and with their key
    return partial(cut, **settings)


def _retriever(
    use: str, options: dict[str, Any], models: Mapping[str, Any], folder: Path
) -> Callable:
    takes = retrieval.table.settings_of(use, objects=True)
    settings = _with_models(use, takes, options, models, folder)
    if "decompose" in takes and settings.get("decompose") is None:
        raise no_decomposer()
    if "tokenizer" in settings:
        retrieval.text.get_tokenizer(settings["tokenizer"])  # refused now, and with its key
    return partial(retrieval.make_retriever, use, **settings)


def _person(axis: str, use: str, options: Mapping[str, Any], folder: Path = Path()) -> Any:
    """Make who answers, grades or labels: of the axis's table, or a chat model."""
    table = _TABLES[axis]
    if use in table:
        check_known(f"option of {use}", options, _parameters(table[use]))
        return table[use](**options)
    if ":" not in use and use not in NAMES:
        error = unknown(axis, use, (*table, *NAMES))
        do = error.do if "did you mean" in error.do else TWO_WAYS
        raise ConfigError(error.got, error.expected, do)
    check_known(f"option of {use}", options, MODEL_OPTIONS)
    return chat_model(_beside(folder, use), **options)
