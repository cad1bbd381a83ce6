"""A user's own experiment: the folder to start from, and from a parameter cell to an experiment file.

`write_experiment` turns plain values into ``experiment.yaml`` next to the run's results, so that the notebook and
``ragbench run experiment.yaml`` do the same. What comes of it is compared by `ragbench.comparison`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from ragbench import data
from ragbench.data.files import closest
from ragbench.data.user import QUESTION_ENDINGS
from ragbench.errors import ConfigError, DataError, check_known
from ragbench.metrics.ir_score import MATCHES
from ragbench.paths import packaged_data, project_root, results_dir
from ragbench.records import Dataset
from ragbench.retrieval.table import settings_of

TEMPLATES = ("91_your_experiment.ipynb", "93_score_your_answers.ipynb")  # the wheel carries these (pyproject.toml)
_HEAD = """# Written by notebook 91_your_experiment. The same, headless and resumable:
#   ragbench plan {path}
#   ragbench run {path}
"""


def create_project(folder: str | os.PathLike[str]) -> Path:
    """Make a new folder to start from: an experiment file, data, template notebooks, the manual in ``help``."""
    target = Path(folder).expanduser().resolve()
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise ConfigError(f"{target} is there already", "the name of a new or empty folder", "choose another name")
    try:
        target.mkdir(exist_ok=True)
    except OSError as error:
        got = f"{target} cannot be made: {error.strerror}"
        raise ConfigError(got, "a folder to write to", "check path and rights") from None
    shutil.copytree(Path(__file__).parent / "template", target, dirs_exist_ok=True)
    shutil.copytree(packaged_data("docs"), target / "help")
    for name in TEMPLATES:
        book = json.loads(packaged_data("notebooks", name).read_text(encoding="utf-8"))
        _set_to_folder(book)
        (target / name).write_text(json.dumps(book, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return target


def _set_to_folder(book: dict[str, Any]) -> None:
    """Take the results out of a template notebook, and set it to the files beside it."""
    for cell in book["cells"]:
        cell["source"] = "".join(cell["source"]).replace("](../docs/", "](help/").replace("data/results/", "results/")
        if cell["cell_type"] == "code":
            cell |= {"outputs": [], "execution_count": None}
            if "parameters" in cell["metadata"].get("tags", []):
                for name, value in {"DOCUMENTS": "docs", "QUESTIONS": "questions.csv"}.items():
                    cell["source"] = re.sub(rf"(?m)^{name} = None\b", f'{name} = "{value}"', cell["source"])


def write_experiment(
    name: str,
    *,
    questions: str | Path | None = None,
    documents: str | Path | None = None,
    fields: Mapping[str, str] | None = None,
    limit: int | None = None,
    chunk_tokens: int | Sequence[int] = 200,
    overlap: float = 0.2,
    retrievers: Sequence[str] = ("BM25", "SIM"),
    words: str = "auto",
    k: int | Sequence[int] = 10,
    N: Sequence[int] | int = (500,),
    generator: str | None = "extractive",
    judge: str | None = "embedded",
    host: str | Sequence[str] | None = None,
    cassette: str | Path | None = None,
    match: str = "substring",
    metrics: Sequence[str] = (),
    labels: str = "embedded",
    checker: str | None = None,
    embedder: str | None = None,
    reranker: str | None = None,
) -> Path:
    """Write the file of an experiment, for ``Experiment.from_yaml``: ``data/results/<name>/experiment.yaml``.

    What is not named here is as in an experiment file (docs/experiment.md). A value that cannot work is a ConfigError
    or DataError that names it.

    Parameters
    ----------
    questions, documents, fields, limit : as for `ragbench.data.load_questions`; without both, MiniHop. A relative path
        is looked for here, then in the checkout.
    chunk_tokens, overlap : of `ragbench.chunking.token_chunks`, one size or several.
    words : BM25's tokenizer, a name of `ragbench.retrieval.text`: "auto" goes by the documents' language.
    generator, judge : "extractive" and "embedded" (no model), or models such as "ollama:llama3:8b"; None: none.
    host : of the models' server, or several that share the work.
    cassette : file that records the models' replies; default one beside the rows.
    embedder, reranker : of the dense retrievers ("minilm", "ollama:bge-m3"), and of the retriever
        "Rerank" ("onnx:FOLDER", or a chat model); a model is on the first ``host``.
    """
    if not isinstance(name, str) or not name.strip() or Path(name).name != name or name.startswith("."):
        raise ConfigError(f"NAME is {name!r}", "a text that can name a folder", "use letters, digits and dashes")
    folder = results_dir() / name
    sizes = [chunk_tokens] if isinstance(chunk_tokens, int | str) else chunk_tokens
    listed = [retrievers] if isinstance(retrievers, str) else list(retrievers)
    tokenized = [retriever for retriever in listed if "tokenizer" in settings_of(retriever)]
    described: dict[str, Any] = {
        "name": name,
        "folder": ".",
        "data": _described_data(questions, documents, fields, limit, folder),
        "chunker": {f"{size} tokens": {"use": "token_chunks", "size": size, "overlap": overlap} for size in sizes},
        "retriever": listed,
        "k": k,
        "N": [N] if isinstance(N, int | str) else list(N),
    }
    if words != "auto":
        described["retriever"] = {
            name: {"use": name, "tokenizer": words} if name in tokenized else name for name in listed
        }
    for axis, value, embedded in (("generator", generator, "extractive"), ("judge", judge, "embedded")):
        if value is not None:
            described[axis] = value if value == embedded else {value: _model(value, host)}
    check_known("match", [match], MATCHES)
    if match != "substring":
        described["match"] = match
    if metrics:
        described["metrics"] = [metrics] if isinstance(metrics, str) else list(metrics)
    if labels != "embedded":
        described["labels"] = _model(labels, host)
    first = host if host is None or isinstance(host, str) else host[0]
    for key, value in {"checker": checker, "embedder": embedder, "reranker": reranker}.items():
        if value is None:
            continue
        if value.startswith("onnx:"):
            described[key] = f"onnx:{_beside(_resolved(value.removeprefix('onnx:')), folder)}"
        else:
            described[key] = value if first is None or ":" not in value else _model(value, first)
    if cassette is not None:
        described["cassette"] = _beside(_resolved(cassette), folder)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "experiment.yaml"
    text = yaml.safe_dump(described, sort_keys=False, allow_unicode=True)
    path.write_text(_HEAD.format(path=_beside(path, Path.cwd())) + text, encoding="utf-8")
    return path


def load(
    questions: str | Path | None = None,
    documents: str | Path | None = None,
    fields: Mapping[str, str] | None = None,
    limit: int | None = None,
) -> Dataset:
    """Load what `write_experiment` names: the user's own files, or MiniHop without any."""
    if questions is None and documents is None:
        return data.load_minihop(limit=limit)
    asked, texts = _paths(questions, documents)
    loaded = data.load_questions(asked, texts, fields=fields, limit=limit)
    if not loaded.documents:
        raise DataError(f"{asked.name} alone: no documents", "documents to retrieve from", "set DOCUMENTS to a folder")
    return replace(loaded, name=_label(asked))


def problems(dataset: Dataset, match: str = "substring") -> pd.DataFrame:
    """Check a data set; references are looked for as the IR score does it (``match``).

    Returns
    -------
    DataFrame, one row per kind of problem, most frequent first: questions (how many), what, do, first (ids of the
    first three). Empty when nothing was found.
    """
    found = pd.DataFrame(
        # What stands after the colon, and in quotes, is the text of one question.
        [(p.question_id, p.note, p.what.split(": ")[0], p.do) for p in data.validate(dataset, form=MATCHES[match][1])],
        columns=["id", "note", "what", "do"],
    )
    found.loc[found["note"].astype(bool), "what"] = "note: the answer is not in its evidence word for word"
    kinds = found.drop_duplicates(["id", "what", "do"]).groupby(["what", "do"], sort=False)["id"]
    table = kinds.agg(questions="size", first=lambda ids: ", ".join(ids[:3])).reset_index()
    return table.sort_values("questions", ascending=False, kind="stable", ignore_index=True)[
        ["questions", "what", "do", "first"]
    ]


def _model(value: Any, host: str | Sequence[str] | None) -> dict[str, Any]:
    if not isinstance(value, str):
        raise ConfigError(f"the model {value!r}", "a name such as 'ollama:llama3:8b'", "write it in quotes")
    at: dict[str, Any] = {} if host is None else {"host": host} if isinstance(host, str) else {"hosts": list(host)}
    return {"use": value, **at}


def _described_data(questions: Any, documents: Any, fields: Any, limit: int | None, folder: Path) -> dict[str, Any]:
    more: dict[str, Any] = {} if limit is None else {"limit": limit}
    if questions is None and documents is None:
        return {"minihop": {"use": "minihop", **more}}
    asked, texts = _paths(questions, documents)
    files = {"questions": _beside(asked, folder)} | ({} if texts is None else {"documents": _beside(texts, folder)})
    return {_label(asked): files | more | ({"fields": dict(fields)} if fields else {})}


def _label(questions: Path) -> str:
    """Name a data set by its file, or by the folder of a file that is named like any other."""
    if questions.is_dir():
        return questions.name
    return questions.parent.name if questions.stem == "questions" else questions.stem


def _paths(questions: Any, documents: Any) -> tuple[Path, Path | None]:
    if questions is None:
        do = 'set QUESTIONS = "my_questions.jsonl"'
        raise ConfigError("DOCUMENTS without QUESTIONS", "a file of questions with answers", do)
    asked = _existing("QUESTIONS", questions)
    if asked.is_file() and asked.suffix.lower() not in QUESTION_ENDINGS:
        raise ConfigError(
            f"QUESTIONS is a {asked.suffix or 'file without an ending'} file: {asked.name}",
            "JSON lines (.jsonl) or CSV (.csv, .tsv)",
            "export it as CSV in UTF-8, with the columns question, answer and references",
        )
    if asked.is_dir() and not (asked / "questions.jsonl").is_file():
        held = ", ".join(sorted(p.name for p in asked.iterdir())[:5]) or "nothing"
        raise ConfigError(f"QUESTIONS is a folder with {held}", "a file", "name the file of questions in it")
    return asked, None if documents is None else _existing("DOCUMENTS", documents)


def _existing(parameter: str, value: Any) -> Path:
    if not isinstance(value, str | os.PathLike) or not str(value).strip():
        raise ConfigError(f"{parameter} is {value!r}", "a path", f'set {parameter} = "path/to/them"')
    path = _resolved(value)
    if not path.exists():
        parent = next(p for p in path.parents if p.is_dir())
        near = ", ".join(closest(parent, path.relative_to(parent).parts[0])) or "nothing"
        raise DataError(
            f"{parameter}: there is no {path}; {parent} holds {near}",
            "an existing file or folder",
            "check the spelling; a relative path starts at the notebook's folder, or at the checkout",
        )
    return path


def _resolved(value: str | os.PathLike[str]) -> Path:
    """Return an absolute path: from here, or from the checkout where only that one exists."""
    path = Path(value).expanduser()
    if not path.is_absolute() and not path.exists() and (project_root() / path).exists():
        path = project_root() / path
    return path.resolve()


def _beside(path: Path, folder: Path) -> str:
    """Write a path relative to a folder where both lie in the checkout (which may be moved), else absolute."""
    path, folder, root = path.resolve(), folder.resolve(), project_root().resolve()
    inside = path.is_relative_to(root) and folder.is_relative_to(root)
    return Path(os.path.relpath(path, folder)).as_posix() if inside else str(path)
