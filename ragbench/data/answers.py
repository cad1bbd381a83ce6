"""Anybody's answers as one table in our names: frames, lists, files, and the columns of other
tools.

One row is one answer. `COLUMNS` says which names are recognised. What can be mended without a guess
is mended, counted and told; everything else is one error with file, row and column, and nothing is
loaded by halves.
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
from ragbench.data.tables import as_table, plain_name, written_list
from ragbench.errors import DataError

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
# beside these, "context" is the list of ideal passages
_DEEPEVAL = {"actual_output", "retrieval_context"}


def read_answers(source: Any, columns: Mapping[str, str] | None = None) -> pd.DataFrame:
    """Read answers from anywhere.

    Parameters
    ----------
    source : a data frame; a list of dicts, or a dict of lists; a path (.csv, .tsv, .jsonl, .json,
    .parquet; all but the
        last also .gz); RAGChecker's JSON; anything with ``to_pandas()``, such as a Hugging Face
        ``Dataset``.
    columns : our name -> the name in your rows, e.g. ``{"reference": "gold_answer"}``. Goes before
    what is recognised.

    Returns
    -------
    DataFrame, a row per answer, in our names; other columns as they are. Rows with the same
    question share a ``question_id`` where there was none. ``attrs["repairs"]`` lists what was
    mended, which is a warning too. A ``reference`` of several true answers stays a list. Empty
    answers and contexts are texts, other empty cells missing.
    """
    name, places, frame, csv = as_table(source)
    if frame.empty:
        raise DataError(f"{name} has no row", "at least one answer", "check what made it")
    frame.columns = [str(column) for column in frame.columns]
    if not frame.columns.is_unique:
        twice = frame.columns[frame.columns.duplicated()][0]
        raise DataError(
            f"{name} has two columns {twice!r}", "one of them", "rename one, or drop it"
        )
    frame = frame.rename(columns=_renamed(name, list(frame.columns), columns or {}))
    if csv:
        others = frame.columns.drop(["answer", "context"], errors="ignore")
        frame[others] = frame[others].replace("", None)
    repairs: Counter[str] = Counter()
    errors: list[DataError] = []
    for column in frame.columns.intersection([*_TEXTS, *_LISTS]):
        read = _text if column in _TEXTS else _list
        cells: list[Any] = []
        for place, value in zip(places, _whole_numbers(frame[column]), strict=True):
            try:
                cells.append(read(value, column, repairs, csv))
            except DataError as error:
                errors.append(DataError(f"{place}: {error.got}", error.expected, error.do))
                continue
            if column == "reference" and isinstance(cells[-1], str):
                warn_of_no_word(cells[-1], place)
        if len(cells) == len(frame):
            frame[column] = pd.Series(cells, frame.index, dtype=object)
    raise_all(errors, name, len(frame))
    _identify(frame, places)
    mended = [what.format(n=n, cells=f"{n} cell{'s' * (n != 1)}") for what, n in repairs.items()]
    frame.attrs = {"repairs": mended}
    if mended:
        warnings.warn(f"{name}: {'; '.join(mended)}", stacklevel=3)
    return frame


def warn_of_no_word(answer: str, place: str) -> None:
    """Warn of a true answer without a letter or digit, to which no answer has a word in common."""
    if not re.search(r"[^\W_]", answer):
        said = (
            f"{place}: the true answer {answer!r} holds no word; write it in words, or leave "
            "the row out"
        )
        warnings.warn(said, stacklevel=3)


def is_missing(value: Any) -> bool:
    """Tell whether a cell is empty: None, NaN or pandas' NA."""
    return value is None or (pd.api.types.is_scalar(value) and bool(pd.isna(value)))


def _renamed(name: str, there: Sequence[str], columns: Mapping[str, str]) -> dict[str, str]:
    """Return their name -> ours."""
    if absent := [theirs for theirs in columns.values() if theirs not in there]:
        got = f"{name}: columns names {absent[0]!r}, which is not there"
        raise DataError(got, f"one of {', '.join(there)}", "mend columns={}")
    renamed = {theirs: ours for ours, theirs in columns.items()}
    # What the user has renamed away from gives way, wherever it stands.
    renamed |= {ours: f"given_{ours}" for ours in columns if ours in there and ours not in renamed}
    plain = {column: plain_name(column) for column in there}
    for ours, theirs in COLUMNS.items():
        known = [
            ours,
            *theirs,
            *(["context"] if ours == "references" and _DEEPEVAL & set(plain.values()) else []),
        ]
        meant = [column for column in there if plain[column] in known and column not in renamed]
        if ours in columns or not meant:
            continue
        meant.sort(key=lambda column: known.index(plain[column]))
        if len(meant) > 1 and ours != "question_id":
            raise DataError(
                f"{name}: the columns {' and '.join(map(repr, meant))} both mean {ours!r}",
                "one of them",
                f"say which: columns={{{ours!r}: {meant[-1]!r}}}",
            )
        renamed[meant[0]] = ours
    return renamed


def _identify(frame: pd.DataFrame, places: Sequence[str]) -> None:
    """Refuse an id that is used twice; number the questions where there is none."""
    if "question_id" not in frame:
        texts = frame.get("question", pd.Series(range(len(frame))))
        frame["question_id"] = [f"q{number + 1}" for number in pd.factorize(texts)[0]]
        return
    named = [name for name in ("question_id", "system") if name in frame]
    seen: dict[tuple, str] = {}
    for place, key in zip(places, frame[named].itertuples(index=False, name=None), strict=True):
        if any(map(is_missing, key)) or key in seen:
            got = f"{key} is that of {seen[key]} too" if key in seen else f"{key} lacks a part"
            raise DataError(
                f"{place}: the {'id and system' if 'system' in frame else 'id'} {got}",
                "an id that one system uses once",
                "rename one; or name the column of systems: columns={'system': 'model'}",
            )
        seen[key] = place


def _whole_numbers(cells: pd.Series) -> pd.Series:
    """Return whole numbers as such:

    pandas makes 1979 to 1979.0 where another cell of the column is empty.
    """
    whole = (
        pd.api.types.is_float_dtype(cells)
        and cells.isna().any()
        and (cells.dropna() % 1 == 0).all()
    )
    return cells.astype("Int64").astype(object) if whole else cells


def _text(value: Any, column: str, repairs: Counter[str], csv: bool) -> Any:
    if (
        csv
        and column == "reference"
        and isinstance(value, str)
        and re.match(r"\s*\[|.*\|\|", value)
    ):
        value = _from_text(value, column, repairs, csv)
    if isinstance(value, np.generic | np.ndarray):
        value = (
            int(value) if isinstance(value, np.floating) and value.is_integer() else value.tolist()
        )
    if isinstance(value, list | tuple) and value and all(isinstance(text, str) for text in value):
        if column == "reference" and len(value) > 1:
            return list(value)
        if len(value) == 1:
            repairs[f"{{cells}} of {column!r} held a list of one text: its text was taken"] += 1
            value = value[0]
    if is_missing(value) or (value == "" and column not in ("answer", "context")):
        return None
    if isinstance(value, bool | int | float):
        repairs[f"{{cells}} of {column!r} held a number: written as text"] += 1
        value = str(value)
    if not isinstance(value, str):
        raise _bad(value, repr(column), "a text (of a conversation: the last question and answer)")
    return value


def _list(value: Any, column: str, repairs: Counter[str], csv: bool) -> Any:
    if isinstance(value, Mapping) and column in _IDS:
        return value  # gains by id
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
            repairs[f"{{n}} empty places in lists of {column!r} were left out"] += 1
        elif isinstance(item, str) or column in _IDS:
            items.append(item)
        else:
            raise _bad(item, f"item {len(items)} of {column!r}", "a text")
    return items


def _from_text(text: str, column: str, repairs: Counter[str], csv: bool) -> list[Any]:
    try:
        items = written_list(text, csv=csv, numbers=column in _IDS)
    except ValueError as error:
        got = f"{column!r} begins like a list and cannot be read as one: {text[:40]!r}"
        do = "write the cell with json.dumps, or save the table as JSON lines or Parquet"
        raise DataError(got, str(error), do) from None
    if csv and column in _IDS:  # 1.0 in a list of numbers that pandas wrote
        items = [
            re.sub(r"^(-?\d+)\.0$", r"\1", item) if isinstance(item, str) else item
            for item in items
        ]
    if text.lstrip().startswith("["):
        repairs[f"{{cells}} of {column!r} held a list written as text: read as lists"] += 1
    elif len(items) == 1:
        repairs[f"{{cells}} of {column!r} held one text, no list: taken as a list of one"] += 1
    return items


def _bad(value: Any, what: str, expected: str) -> DataError:
    return DataError(
        f"{what} is {type(value).__name__} {str(value)[:40]!r}", expected, "mend that cell"
    )
