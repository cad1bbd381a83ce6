"""What may stand on the axes of an experiment: names of what ships, ``{use: NAME, option: value}``,
or objects.

A name stands for the same in Python and in an ``experiment.yaml``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
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
)
MODEL_OPTIONS += ("top_p", "top_k", "stop", "reasoning", "keep_alive", "cloud")
# What may stand on an axis beside names.
_WANTED = {
    "data": "a Dataset, or a function that loads one",
    "chunker": "a function of the documents",
    "retriever": "a function of the chunks",
    "generator": (
        "a chat model, a name such as 'ollama:llama3:8b', or an object with "
        "answer(question, context)"
    ),
    "judge": (
        "a chat model, a name such as 'ollama:llama3:8b', or an object with "
        "grade_all(questions, answers)"
    ),
}
_METHODS = {"generator": "answer", "judge": "grade_all"}


def make_generator(name: str | Mapping[str, Any], **options: Any) -> Any:
    """Make a generator by name: a chat model such as ``"ollama:llama3:8b"`` or ``"smollm2"``, or
    one of `GENERATORS`.

    Or by a mapping as in an experiment file, ``{"use": "ollama:llama3:8b", "num_predict": 200}``.
    ``options`` are of the entry in the table, or of `ragbench.llm.chat_model`.
    """
    use, named = _use("generator", name)
    return _model("generator", use, options | named)


def make_judge(name: str | Mapping[str, Any], **options: Any) -> Any:
    """Make a judge by name: a chat model, or one of `JUDGES`; see `make_generator`."""
    use, named = _use("judge", name)
    return _model("judge", use, options | named)


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
    elif isinstance(value, list | tuple):
        for name in value:
            if not isinstance(name, str):
                raise ConfigError(
                    f"{axis} lists {name!r}", "names", f"write {axis}: {{a label: ...}}"
                )
        value = {name: name for name in value}
    if not isinstance(value, Mapping) or not value:
        shown = (
            "empty"
            if value is None or (hasattr(value, "__len__") and not len(value))
            else type(value).__name__
        )
        tables = (
            "; of tables: data=ragbench.data.load_questions(questions, documents)"
            if axis == "data"
            else ""
        )
        expected = (
            "a name of what ships, a list of names, or label: name, or a dict label -> "
            "object or function"
        )
        raise ConfigError(
            f"{axis} is {shown}", expected, f"write for instance {axis}: {{a label: ...}}{tables}"
        )
    return {
        check_label(axis, label): _entry(axis, str(label), entry, models, folder)
        for label, entry in value.items()
    }


def check_label(axis: str, label: Any) -> str:
    """Return a label as it is; ConfigError for one that no folder or table can bear."""
    if (
        not isinstance(label, str | int | float)
        or not str(label).strip()
        or label in (NONE, QUERY_ONLY)
    ):
        expected = f"a text other than {NONE!r} and {QUERY_ONLY!r}"
        raise ConfigError(f"{axis} has the name {label!r}", expected, "rename it")
    if not str(label).isprintable() or len(str(label).encode()) > 200:
        raise ConfigError(
            f"{axis} has the name {str(label)[:60]!r}", "one line of at most 200 bytes", "rename it"
        )
    return str(label)


def parse_model(key: str, value: Any, folder: Path = Path()) -> Any:
    """Return a model that is no axis, of `MODELS` or ``labels``, by its name, or as it is."""
    if not isinstance(value, str | Mapping):
        return value
    with _at(key):
        use, options = _use(key, value)
        if key == "labels":
            return _model("labels", use, options, folder)
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
        raise ConfigError(
            f"{where}: {error}", "options that fit", "see docs/experiment.md"
        ) from None


def _entry(axis: str, label: str, value: Any, models: Mapping[str, Any], folder: Path) -> Any:
    if isinstance(value, str | Mapping):
        with _at(f"{axis}.{label}"):
            if axis == "data" and isinstance(value, Mapping) and "questions" in value:
                value = {"use": "own files"} | dict(value)
            use, options = _use(f"{axis}.{label}", value)
            return _MAKERS[axis](use, options, models, folder)
    method = _METHODS.get(axis)
    if method and (callable(getattr(value, method, None)) or is_model(value)):
        return value
    if axis == "generator" and callable(value):
        return _function(label, value)
    if not method and (callable(value) or (axis == "data" and isinstance(value, Dataset))):
        return value
    raise ConfigError(
        f"{axis} {label!r} is {type(value).__name__}", _WANTED[axis], "see docs/experiment.md"
    )


def _function(label: str, function: Callable) -> SimpleNamespace:
    """Make a generator of a function; its ``key``, if it has one, is for `KeptAnswers`."""
    generator = SimpleNamespace(name=label, answer=function)
    if hasattr(function, "key"):
        generator.key = function.key
    return generator


def _use(where: str, value: Any) -> tuple[str, dict[str, Any]]:
    """Return the name under ``use``, and the options beside it."""
    if value is None:
        raise not_named(where)
    options = dict(value) if isinstance(value, Mapping) else {"use": value}
    use = options.pop("use", None)
    if not isinstance(use, str):
        raise ConfigError(f"{where} has no use", "use: NAME", f"write {{use: NAME}} under {where}")
    for option in options:
        if "key" in str(option).lower() or "password" in str(option).lower():
            raise ConfigError(
                f"{where}.{option}",
                "no secret in this file",
                "set OLLAMA_API_KEY or OPENAI_API_KEY",
            )
    return use, options


def _beside(folder: Path, use: str) -> str:
    """Return a model's name with the path in it, if any, seen from the folder."""
    kind, _, path = use.partition(":")
    return f"{kind}:{folder / Path(path).expanduser()}" if kind in ("onnx", "gguf") else use


def _check_options(
    use: str, function: Callable, options: Mapping[str, Any], leave_out: Sequence[str] = ()
) -> None:
    known = [name for name in inspect.signature(function).parameters if name not in leave_out]
    check_known(f"option of {use}", options, known)


def _data(use: str, options: dict[str, Any], _: Mapping[str, Any], folder: Path) -> Callable:
    if use in data.DATASETS:
        _check_options(use, data.DATASETS[use], options)
        return partial(data.load_dataset, use, **options)
    if use != "own files":
        raise data.unknown_data(use, (*data.DATASETS, "own files"))
    _check_options(use, data.load_questions, options)
    paths = {
        name: folder / str(options[name]) for name in ("questions", "documents") if name in options
    }
    return partial(data.load_questions, **options | paths)


def _own_models(
    use: str, takes: Sequence[str], options: dict[str, Any], models: Mapping, folder: Path
) -> dict:
    """Take the models out of the options; return them and those of the experiment, as far as they
    are taken.
    """
    own = {
        key: parse_model(key, options.pop(key), folder)
        for key in MODELS
        if isinstance(options.get(key), str | dict)
    }
    check_known(f"option of {use}", own, takes)
    return {key: model for key, model in (dict(models) | own).items() if key in takes}


def _chunker(
    use: str, options: dict[str, Any], models: Mapping[str, Any], folder: Path
) -> Callable:
    check_known("chunker", [use], chunking.CHUNKERS)
    cut = chunking.CHUNKERS[use]
    models = _own_models(use, tuple(inspect.signature(cut).parameters), options, models, folder)
    _check_options(use, cut, options, ("documents", "embedder"))
    cut([], **options)  # settings that cannot work are told now, and with their key
    return partial(cut, **options, **models)


def _retriever(
    use: str, options: dict[str, Any], models: Mapping[str, Any], folder: Path
) -> Callable:
    check_known("retriever", [use], retrieval.RETRIEVERS)
    takes = tuple(retrieval.table.settings_of(use, objects=True))
    models = _own_models(use, takes, options, models, folder)
    if "decompose" in takes and models.get("decompose") is None:
        raise no_decomposer()
    check_known(f"option of {use}", options, retrieval.table.settings_of(use))
    if "tokenizer" in options:
        # a wrong name is told now, and with its key
        retrieval.text.get_tokenizer(options["tokenizer"])
    return partial(retrieval.make_retriever, use, **options, **models)


def _model(axis: str, use: str, options: Mapping[str, Any], folder: Path = Path()) -> Any:
    """Make who answers, grades or labels: of the axis's table, or a chat model."""
    if use in _TABLES[axis]:
        _check_options(use, _TABLES[axis][use], options, ("self",))
        return _TABLES[axis][use](**options)
    if ":" not in use and use not in NAMES:
        error = unknown(axis, use, (*_TABLES[axis], *NAMES))
        raise ConfigError(
            error.got, error.expected, error.do if "did you mean" in error.do else TWO_WAYS
        )
    check_known(f"option of {use}", options, MODEL_OPTIONS)
    for key in ("temperature", "seed", "num_ctx", "num_predict", "deadline_s"):
        value = options.get(key)
        if value is not None and (
            isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0
        ):
            raise ConfigError(f"{key} is {value!r}", "a number of at least 0", f"mend {key}")
    return chat_model(_beside(folder, use), **options)


_MAKERS: Mapping[str, Callable] = {
    "data": _data,
    "chunker": _chunker,
    "retriever": _retriever,
    "generator": lambda use, options, _, folder: _model("generator", use, options, folder),
    "judge": lambda use, options, _, folder: _model("judge", use, options, folder),
}
