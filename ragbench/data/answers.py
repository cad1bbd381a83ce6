"""Anybody's answers as one table in our names: frames, lists, files, and the columns of other tools.

One row is one answer. `COLUMNS` says which names are recognised. What can be mended without a guess is mended, counted
and told; everything else is one error with file, row and column, and nothing is loaded by halves.
"""

from __future__ import annotations

import ast
import io
import json
import tokenize
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ragbench.data.files import EXPORT, MAX_FIELD, SPREADSHEETS, plain_name, raise_all, read_json, read_jsonl
from ragbench.data.parquet import read_parquet
from ragbench.data.ragchecker import RagResult, RagResults, from_ragchecker
from ragbench.data.user import CSV_ENDINGS, is_csv, read_csv
from ragbench.errors import ConfigError, DataError, unknown

# Our name -> theirs: ragas (since 0.2, before), DeepEval, RAGChecker.
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "question_id": ("query_id", "id", "_id"),
    "system": (),
    "question": ("user_input", "query", "input"),
    "answer": ("response", "actual_output"),
    "reference": ("ground_truth", "ground_truths", "gt_answer", "expected_output"),
    "chunks": ("retrieved_contexts", "contexts", "retrieval_context", "retrieved_context"),
    "references": ("reference_contexts", "facts"),
    "keypoints": (),
    "context": (),
    "retrieved": ("retrieved_context_ids",),
    "relevant": ("reference_context_ids",),
}
# Our name -> what ragas calls it today, where that differs.
RAGAS: Mapping[str, str] = {
    ours: COLUMNS[ours][0] for ours in ("question", "answer", "chunks", "references", "retrieved", "relevant")
}
_TEXTS = ("system", "question", "answer", "reference", "long_reference", "context")
_ENDINGS = (*CSV_ENDINGS, ".jsonl", ".json", ".parquet")
_LISTS = ("chunks", "references", "reference_claims", "keypoints", "retrieved", "relevant")
_IDS = ("retrieved", "relevant")
_DEEPEVAL = {"actual_output", "retrieval_context"}  # beside these, "context" is the list of ideal passages
_SEPARATOR = "||"
MOST = 1000  # passages in a row; more is a whole corpus, or a text cut into letters


def read_answers(source: Any, columns: Mapping[str, str] | None = None) -> pd.DataFrame:
    """Read answers from anywhere.

    Parameters
    ----------
    source : a data frame; a list of dicts, or a dict of lists; a path (.csv, .tsv, .jsonl, .json, .parquet; all but the
        last also .gz); RAGChecker's JSON, parsed or read; anything with ``to_pandas()``, as a Hugging Face ``Dataset``
        and ragas' ``EvaluationDataset`` have it.
    columns : our name -> the name in your rows, e.g. ``{"reference": "gold_answer"}``. Goes before what is recognised.

    Returns
    -------
    DataFrame, a row per answer, in our names; other columns as they are. ``question_id`` is always there: rows with the
    same question share it, where there was none. ``attrs["repairs"]`` lists what was mended, which is a warning too.

    Raises
    ------
    DataError naming file or row, and column, for cells that cannot be read, two columns of one meaning, and an id used
    twice (by one ``system``, where there is such a column).
    """
    name, places, frame = as_frame(source)
    if frame.empty:
        raise DataError(f"{name} has no row", "at least one answer", "check what made it")
    frame.columns = [str(column) for column in frame.columns]
    if not frame.columns.is_unique:
        twice = frame.columns[frame.columns.duplicated()][0]
        raise DataError(f"{name} has two columns {twice!r}", "one of them", "rename one, or drop it")
    frame = frame.rename(columns=_renamed(name, list(frame.columns), columns or {}))
    repairs: Counter[str] = Counter()
    errors: list[DataError] = []
    for column in frame.columns.intersection([*_TEXTS, *_LISTS]):
        cells = []
        for place, value in zip(places, frame[column], strict=True):
            try:
                cells.append((_text if column in _TEXTS else _list)(value, column, place, repairs))
            except DataError as error:
                errors.append(error)
        if len(cells) == len(frame):
            frame[column] = pd.Series(cells, frame.index, dtype=object)
    raise_all(errors, name, len(frame))
    _identify(frame, places)
    mended = [what.format(n=n, cells=f"{n} cell{'s' * (n != 1)}") for what, n in repairs.items()]
    frame.attrs = {"repairs": mended}
    if mended:
        warnings.warn(f"{name}: {'; '.join(mended)}", stacklevel=3)
    return frame


def write_ragas(source: Any, path: str | Path, columns: Mapping[str, str] | None = None) -> Path:
    """Write answers in ragas' names as JSON lines, which its ``EvaluationDataset.from_jsonl`` and `read_answers` read.

    Parameters
    ----------
    source, columns : as for `read_answers`. Empty cells are left out, other columns are kept.
    path : of the file, which is returned.
    """
    table = read_answers(source, columns).drop(columns="claim_labels", errors="ignore")
    if table.duplicated([name for name in ("question_id", "system") if name in table]).any():
        table = table.drop(columns="question_id")  # numbered here: an id that was given stands once
    path = Path(path).expanduser()
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = (
        {name: cell for name, cell in row.items() if not lacks(cell)}
        for row in table.rename(columns=RAGAS).to_dict("records")
    )
    lines = [json.dumps(row, ensure_ascii=False, default=np.ndarray.tolist) for row in rows]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def lacks(value: Any) -> bool:
    """Tell whether a cell is empty: None, NaN or pandas' NA."""
    return value is None or (pd.api.types.is_scalar(value) and bool(pd.isna(value)))


# Sources


def as_frame(source: Any) -> tuple[str, list[str], pd.DataFrame]:
    """Return what the source is called in messages, what each row is called, and the rows."""
    if isinstance(source, str | Path):
        return _file(Path(source).expanduser())
    if isinstance(source, RagResults):
        source = source.results
    if hasattr(source, "to_pandas"):
        source = source.to_pandas()
    if isinstance(source, Mapping) and "results" in source:
        source = from_ragchecker(source).results
    if isinstance(source, Mapping) and all(hasattr(part, "to_pandas") for part in source.values()):
        splits = ", ".join(map(repr, source))
        raise DataError(f"several sets: {splits}", "one of them", "pass for instance data[split]")
    if isinstance(source, Mapping):
        source = pd.DataFrame({key: pd.Series(list(values), dtype=object) for key, values in source.items()})
    if isinstance(source, pd.DataFrame):
        places = [f"row {label!r}" for label in source.index]
        return "the table", places, source.reset_index(drop=True)
    rows = list(source) if isinstance(source, Iterable) else None
    if rows is None or not all(isinstance(row, Mapping | RagResult) for row in rows):
        other = type(source if rows is None else next(row for row in rows if not isinstance(row, Mapping))).__name__
        raise DataError(
            f"a table as {other}", "a data frame, a list of dicts, or a path", "bring it into one of these forms"
        )
    return "the rows", [f"row {i}" for i in range(len(rows))], _of_dicts(rows)


def _file(path: Path) -> tuple[str, list[str], pd.DataFrame]:
    ending = Path(path.name.removesuffix(".gz")).suffix.lower()
    if ending == ".parquet":
        frame = read_parquet(path)
        return str(path), [f"{path}, row {i}" for i in range(len(frame))], frame
    if is_csv(path):
        numbered: list[tuple[str, Any]] = [(f"{path}, {place}", row) for place, row in read_csv(path)]
    elif ending == ".jsonl":
        numbered = [(f"{path}, {place}", row) for place, row in read_jsonl(path)]
    elif ending == ".json":
        whole = read_json(path)
        if isinstance(whole, dict) and "results" in whole:
            whole = list(from_ragchecker(whole, str(path)).results)
        if not isinstance(whole, list) or not all(isinstance(row, Mapping | RagResult) for row in whole):
            raise DataError(
                f"{path} holds no list of objects",
                'a list such as [{"question": ..., "answer": ...}], or RAGChecker\'s {"results": [...]}',
                "write one object per answer",
            )
        numbered = [(f"{path}, [{i}]", row) for i, row in enumerate(whole)]
    elif ending in SPREADSHEETS:
        raise ConfigError(f"unknown kind of file {ending!r}: {path.name}", ", ".join(_ENDINGS), EXPORT)
    else:
        raise unknown("kind of file", ending or path.name, _ENDINGS)
    return str(path), [place for place, _ in numbered], _of_dicts([row for _, row in numbered])


def _of_dicts(rows: Sequence[Mapping[str, Any] | RagResult]) -> pd.DataFrame:
    dicts = [_of_result(row) if isinstance(row, RagResult) else row for row in rows]
    names = dict.fromkeys(str(name) for row in dicts for name in row)
    # Built by column: pandas would spread equally long lists over columns of their own.
    return pd.DataFrame({name: pd.Series([row.get(name) for row in dicts], dtype=object) for name in names})


def _of_result(result: RagResult) -> dict[str, Any]:
    row = {
        "question_id": result.id, "question": result.question, "answer": result.response,
        "reference": result.reference, "chunks": [chunk.text for chunk in result.chunks],
    }  # fmt: skip
    return row if result.missing() else row | {"claim_labels": result}


# Columns


def _renamed(name: str, there: Sequence[str], columns: Mapping[str, str]) -> dict[str, str]:
    """Return their name -> ours."""
    if absent := [theirs for theirs in columns.values() if theirs not in there]:
        raise DataError(
            f"{name}: columns names {absent[0]!r}, which is not there", f"one of {', '.join(there)}", "mend columns={}"
        )
    renamed = {theirs: ours for ours, theirs in columns.items()}
    # What the user has renamed away from gives way, wherever it stands.
    renamed |= {ours: f"given_{ours}" for ours in columns if ours in there and ours not in renamed}
    plain = {column: plain_name(column) for column in there}
    for ours, theirs in COLUMNS.items():
        known = [ours, *theirs, *(["context"] if ours == "references" and _DEEPEVAL & set(plain.values()) else [])]
        meant = [column for column in there if plain[column] in known and column not in renamed]
        found = sorted(meant, key=lambda column: known.index(plain[column]))
        if ours in columns or not found:
            continue
        if len(found) > 1 and ours != "question_id":
            raise DataError(
                f"{name}: the columns {' and '.join(map(repr, found))} both mean {ours!r}",
                "one of them",
                f"say which: columns={{{ours!r}: {found[-1]!r}}}",
            )
        renamed[found[0]] = ours
    return renamed


def _identify(frame: pd.DataFrame, places: Sequence[str]) -> None:
    """Refuse an id that is used twice; number the questions where there is none."""
    if "question_id" not in frame:
        texts = frame.get("question", pd.Series(range(len(frame))))
        frame["question_id"] = [f"q{number + 1}" for number in pd.factorize(texts)[0]]
        return
    seen: dict[tuple, str] = {}
    for i, place in enumerate(places):
        key = tuple(frame.at[i, column] for column in ("question_id", "system") if column in frame)
        if any(map(lacks, key)) or key in seen:
            got = f"{key} is that of {seen[key]} too" if key in seen else f"{key} lacks a part"
            raise DataError(
                f"{place}: the {'id and system' if 'system' in frame else 'id'} {got}",
                "an id that one system uses once",
                "rename one; or name the column of systems: columns={'system': 'model'}",
            )
        seen[key] = place


# Cells


def _text(value: Any, column: str, place: str, repairs: Counter[str]) -> str | None:
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, np.ndarray | list | tuple) and len(value) == 1 and isinstance(value[0], str):
        repairs[f"{{cells}} of {column!r} held a list of one text: its text was taken"] += 1
        value = value[0]
    if lacks(value):
        return None
    if isinstance(value, bool | int | float):
        repairs[f"{{cells}} of {column!r} held a number: written as text"] += 1
        # pandas makes 1979 to 1979.0 where another cell of the column is empty.
        value = str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
    if not isinstance(value, str):
        raise DataError(
            f"{place}: {column!r} is {type(value).__name__} {str(value)[:40]!r}",
            "a text (of a conversation: the last question and answer)",
            "mend that cell",
        )
    if len(value) > MAX_FIELD:
        raise DataError(f"{place}: {column!r} has {len(value):,} characters", f"at most {MAX_FIELD:,}", "split it")
    return value


def _list(value: Any, column: str, place: str, repairs: Counter[str]) -> Any:
    if isinstance(value, Mapping) and column in _IDS:
        return value  # gains by id
    if isinstance(value, str):
        value = _written_list(value, column, place, repairs)
    if lacks(value):
        return None
    if not isinstance(value, list | tuple | set | frozenset | np.ndarray):
        raise DataError(
            f"{place}: {column!r} is {type(value).__name__} {str(value)[:40]!r}", "a list of texts", "mend that cell"
        )
    items = []
    for item in value:
        if isinstance(item, Mapping) and isinstance(item.get("text"), str):
            item = item["text"]  # RAGChecker's {"doc_id", "text"}
        if lacks(item):
            repairs[f"{{n}} empty places in lists of {column!r} were left out"] += 1
        elif isinstance(item, str) or column in _IDS:
            items.append(item)
        else:
            raise DataError(
                f"{place}: item {len(items)} of {column!r} is {type(item).__name__} {str(item)[:40]!r}",
                "a text",
                "mend that cell",
            )
    if len(items) > MOST and column not in _IDS:
        raise DataError(
            f"{place}: {column!r} has {len(items):,} texts",
            f"at most {MOST:,}",
            "keep what the answer was written from; a text that was cut into letters is one text",
        )
    return items


def _written_list(text: str, column: str, place: str, repairs: Counter[str]) -> list[Any] | None:
    """Read a list that a CSV holds as text: JSON's, Python's or numpy's way of writing it, or texts with || between."""
    if not text.strip():
        return None
    if not text.lstrip().startswith("["):
        parts = [part.strip() for part in text.split(_SEPARATOR) if part.strip()]
        if len(parts) == 1:
            repairs[f"{{cells}} of {column!r} held one text, no list: taken as a list of one"] += 1
        return parts
    try:
        items = _json_texts(text) or _literals(text, column)
    except (ValueError, SyntaxError, tokenize.TokenError):
        raise DataError(
            f"{place}: {column!r} begins like a list and cannot be read as one: {text[:40]!r}",
            'a list of texts in quotes: ["first", "second"]',
            "write the cell with json.dumps, or save the table as JSON lines or Parquet",
        ) from None
    repairs[f"{{cells}} of {column!r} held a list written as text: read as lists"] += 1
    return items


def _json_texts(text: str) -> list[Any] | None:
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError):  # brackets by the thousand
        return None


def _literals(text: str, column: str) -> list[str | None]:
    """Read Python's or numpy's way of writing a list; ValueError for anything else."""
    *tokens, last = [
        token
        for token in tokenize.generate_tokens(io.StringIO(text.strip()).readline)
        if token.type not in (tokenize.NL, tokenize.NEWLINE, tokenize.ENDMARKER)
    ]
    items: list[str | None] = []
    for token in tokens[1:]:
        # numpy writes no commas: each literal is an item of its own, though Python would join them.
        if token.type == tokenize.STRING:
            items.append(ast.literal_eval(token.string))
        elif token.type == tokenize.NUMBER and column in _IDS:
            items.append(token.string)
        elif token.string in ("None", "nan"):
            items.append(None)
        elif token.string != ",":
            raise ValueError
    if last.string != "]" or not all(isinstance(item, str | None) for item in items):
        raise ValueError
    return items
