"""Anybody's answers as one table in our names: frames, lists, files, and the columns of other
tools.

One row is one answer. `COLUMNS` says which names are recognised. What can be put right without a
guess is put right, counted and said; everything else is one error with file, row and column, and
nothing is loaded by halves.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ragbench.data.files import raise_all
from ragbench.data.tables import as_table, in_our_names, is_missing, written_list
from ragbench.errors import DataError
from ragbench.records import as_id

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
_TEXTS = ("system", "question", "answer", "reference", "context")
_LISTS = ("chunks", "references", "keypoints", "retrieved", "relevant")
_IDS = ("retrieved", "relevant")
_MAY_BE_EMPTY = ("answer", "context")
# In DeepEval's tables "context" is the list of ideal passages.
_OF_DEEPEVAL = {"actual_output", "retrieval_context"}
_DEEPEVAL = {**COLUMNS, "context": ("joined_context",), "references": ("context",)}


def read_answers(source: Any, columns: Mapping[str, str] | None = None) -> pd.DataFrame:
    """Read answers from anywhere.

    Parameters
    ----------
    source : a data frame; a list of dicts, or a dict of lists; a path (.csv, .tsv, .jsonl, .json,
        .parquet; all but the last also .gz); RAGChecker's JSON; anything with ``to_pandas()``, such
        as a Hugging Face ``Dataset``.
    columns : our name -> the name in your rows, e.g. ``{"reference": "gold_answer"}``. Goes before
        what is recognised.

    Returns
    -------
    DataFrame, a row per answer, in our names; other columns as they are. Rows with the same
    question share a ``question_id`` where there was none. ``attrs["repairs"]`` lists what was put
    right, which is a warning too. A ``reference`` of several true answers stays a list. Empty
    answers and contexts are texts, other empty cells missing.
    """
    table = as_table(source)
    if table.frame.empty:
        raise DataError(f"{table.name} has no row", "at least one answer", "check what made it")
    frame = in_our_names(table, _aliases(table.frame), columns or {}, "columns")
    if table.csv:
        others = frame.columns.drop(list(_MAY_BE_EMPTY), errors="ignore")
        frame[others] = frame[others].replace("", None)
    repairs: Counter[str] = Counter()
    errors: list[DataError] = []
    for column in frame.columns.intersection([*_TEXTS, *_LISTS]):
        read = _text if column in _TEXTS else _list
        cells: list[Any] = []
        for place, value in zip(table.places, frame[column], strict=True):
            try:
                cells.append(read(value, column, repairs, table.csv))
            except DataError as error:
                errors.append(DataError(f"{place}: {error.got}", error.expected, error.do))
        if column == "reference":
            for place, cell in zip(table.places, cells, strict=False):
                warn_of_no_word(cell, place)
        if len(cells) == len(frame):
            frame[column] = pd.Series(cells, frame.index, dtype=object)
    raise_all(errors, table.name, len(frame))
    _identify(frame, table.places)
    frame.attrs = {"repairs": [f"{count} {what}" for what, count in repairs.items()]}
    if repairs:
        warnings.warn(f"{table.name}: {'; '.join(frame.attrs['repairs'])}", stacklevel=3)
    return frame


def warn_of_no_word(answer: Any, place: str) -> None:
    """Warn of a true answer without a letter or digit, to which no answer has a word in common."""
    if isinstance(answer, str) and not re.search(r"[^\W_]", answer):
        warnings.warn(
            f"{place}: the true answer {answer!r} holds no word; write it in words, or leave the "
            "row out",
            stacklevel=4,
        )


def _aliases(frame: pd.DataFrame) -> Mapping[str, tuple[str, ...]]:
    return _DEEPEVAL if _OF_DEEPEVAL.intersection(frame.columns) else COLUMNS


def _identify(frame: pd.DataFrame, places: Sequence[str]) -> None:
    """Refuse an id that is used twice; number the questions where there is none."""
    if "question_id" not in frame:
        texts = frame.get("question", pd.Series(range(len(frame))))
        frame["question_id"] = [f"q{number + 1}" for number in pd.factorize(texts)[0]]
        return
    keys = frame[[name for name in ("question_id", "system") if name in frame]]
    names = " and ".join(keys).replace("question_", "")
    texts = keys.map(as_id)  # 1 and "1" are one id
    for wrong, what in (
        (keys.isna().any(axis=1), "lacks a part"),
        (texts.duplicated(), "is used twice"),
    ):
        if wrong.any():
            place = int(wrong.argmax())
            got = f"{places[place]}: the {names} {tuple(texts.iloc[place])} {what}"
            do = "rename one; or name the column of systems: columns={'system': 'model'}"
            raise DataError(got, "an id that one system uses once", do)


def _text(value: Any, column: str, repairs: Counter[str], csv: bool) -> Any:
    """Return a cell as a text, or several true answers as a list of texts."""
    is_list = isinstance(value, str) and (value.lstrip().startswith("[") or "||" in value)
    if csv and column == "reference" and is_list:
        value = _from_text(value, column, repairs, csv)
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple) and value and all(isinstance(text, str) for text in value):
        if column == "reference" and len(value) > 1:
            return list(value)
        if len(value) == 1:
            repairs[f"cells of {column!r} held a list of one text: its text was taken"] += 1
            value = value[0]
    if is_missing(value) or (value == "" and column not in _MAY_BE_EMPTY):
        return None
    if isinstance(value, bool | int | float):
        repairs[f"cells of {column!r} held a number: written as text"] += 1
        return as_id(value)
    if not isinstance(value, str):
        raise _bad(value, repr(column), "a text (of a conversation: the last question and answer)")
    return value


def _list(value: Any, column: str, repairs: Counter[str], csv: bool) -> Any:
    """Return a cell as a list of texts, or of ids; gains by id stay a mapping."""
    if isinstance(value, Mapping) and column in _IDS:
        return value
    if is_missing(value) or (isinstance(value, str) and not value.strip()):
        return None
    if isinstance(value, str):
        value = _from_text(value, column, repairs, csv)
    if not isinstance(value, list | tuple | set | frozenset | np.ndarray):
        raise _bad(value, repr(column), "a list of texts")
    items = []
    for item in value:
        if isinstance(item, Mapping) and isinstance(item.get("text"), str):
            item = item["text"]  # RAGChecker's {"doc_id", "text"}
        if is_missing(item):
            repairs[f"empty places in lists of {column!r} were left out"] += 1
        elif isinstance(item, str) or column in _IDS:
            items.append(item)
        else:
            raise _bad(item, f"item {len(items)} of {column!r}", "a text")
    return items


def _from_text(text: str, column: str, repairs: Counter[str], csv: bool) -> list[Any]:
    try:
        items = written_list(text, csv=csv)
    except ValueError as error:
        got = f"{column!r} begins like a list and cannot be read as one: {text[:40]!r}"
        do = "write the cell with json.dumps, or save the table as JSON lines or Parquet"
        raise DataError(got, str(error), do) from None
    if text.lstrip().startswith("["):
        repairs[f"cells of {column!r} held a list written as text: read as lists"] += 1
    elif len(items) == 1:
        repairs[f"cells of {column!r} held one text, no list: taken as a list of one"] += 1
    return items


def _bad(value: Any, what: str, expected: str) -> DataError:
    got = f"{what} is {type(value).__name__} {str(value)[:40]!r}"
    return DataError(got, expected, "correct that cell")
