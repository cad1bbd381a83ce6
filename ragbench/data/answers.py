"""Anybody's answers as one table in our names: frames, lists, files, and the columns of other
tools.

One row is one answer. `COLUMNS` says which names are recognised. What can be put right without a
guess is put right, counted and said; everything else is one error with file, row and column, and
nothing is loaded by halves.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Any

import pandas as pd
from pydantic import BaseModel, BeforeValidator
from pydantic_core import PydanticCustomError

from ragbench.data.files import OfWords, as_record, is_missing
from ragbench.data.tables import (
    Table,
    are_texts,
    read_ids,
    read_list,
    read_mapping,
)
from ragbench.errors import DataError
from ragbench.records import Chunk, Hit, as_id

# Our name -> theirs: ragas (since 0.2, before), DeepEval, RAGChecker; then PyTerrier-RAG, RAGBench.
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "question_id": ("query_id", "id", "_id", "qid"),
    "system": ("generation_model_name",),
    "question": ("user_input", "query", "input"),
    "answer": ("response", "actual_output", "qanswer"),
    "reference": (
        *("ground_truth", "ground_truths", "gt_answer", "expected_output"),
        "gold_answer",
    ),
    "chunks": (
        *("retrieved_contexts", "contexts", "retrieval_context", "retrieved_context"),
        "documents",
    ),
    "references": ("reference_contexts", "facts"),
    "keypoints": (),
    "context": ("qcontext",),
    "retrieved": ("retrieved_context_ids",),
    "relevant": ("reference_context_ids",),
}
EMPTY = "answer_is_empty"  # true where the empty cell of a CSV is an answer of no words
# In DeepEval's tables "context" is the list of ideal passages.
_OF_DEEPEVAL = {"actual_output", "retrieval_context"}
_DEEPEVAL = {**COLUMNS, "context": ("joined_context",), "references": ("context",)}


def _inner(item: Any) -> Any:
    """Return the text of a passage: of a document of LangChain, or a mapping's "text"."""
    if isinstance(item, Mapping):
        for name in ("text", "page_content"):
            if isinstance(item.get(name), str):
                return item[name]
    return getattr(item, "page_content", item)


def _one_text(value: Any) -> Any:
    """Return a list of one text as that text, one of none as None, and a number as text."""
    if isinstance(value, list) and len(value) < 2:
        value = _inner(value[0]) if value else None
    return as_id(value) if isinstance(value, bool | int | float) else value


def _no_list(value: Any) -> Any:
    if isinstance(value, list) and len(value) > 1:
        how = "columns={'chunks': 'context'}"
        raise PydanticCustomError("texts", f"one text; for a list of retrieved texts pass {how}")
    return value


def _no_empty_text(value: Any) -> Any:
    return None if value == "" else value


def _texts(value: Any) -> Any:
    """Return a list without its empty places."""
    listed = read_list(value)
    if not isinstance(listed, list) or are_texts(listed):
        return listed if isinstance(listed, list) else value
    texts = [_inner(item) for item in listed]
    return [text for text in texts if not is_missing(text)]


def _is_id(item: Any) -> bool:
    return isinstance(item, Hit | Chunk) or pd.api.types.is_scalar(item)


def _ids(value: Any) -> Any:
    """Return ids without empty places, or gains by id, which a file may hold as text.

    A document in place of its id would never be found.
    """
    if isinstance(value, list) and are_texts(value):
        return value
    value = read_mapping(value)
    if isinstance(value, Mapping):
        return value
    listed = read_ids(value)
    is_mapping = isinstance(value, str) and value.lstrip().startswith("{")
    is_unread = is_mapping and read_list(value) == [value]
    if is_unread or (isinstance(listed, list) and not all(map(_is_id, listed))):
        raise PydanticCustomError("ids", "ids of documents, or a mapping of ids to gains")
    return _texts(listed)


_MaybeEmpty = Annotated[str | None, BeforeValidator(_one_text)]
_Text = Annotated[_MaybeEmpty, BeforeValidator(_no_empty_text)]
_Texts = Annotated[list[str] | None, BeforeValidator(_texts), BeforeValidator(_no_empty_text)]
# Of documents; gains by id are a mapping.
_Ids = Annotated[
    dict[Any, Any] | list[Any] | None, BeforeValidator(_ids), BeforeValidator(_no_empty_text)
]


class _Row(BaseModel):
    """What the columns hold that are read here."""

    system: _Text = None
    question: _Text = None
    answer: _MaybeEmpty = None
    reference: Annotated[list[str] | _Text, OfWords, BeforeValidator(_one_text)] = None
    chunks: _Texts = None
    references: _Texts = None
    keypoints: _Texts = None
    context: Annotated[_MaybeEmpty, BeforeValidator(_no_list)] = None
    retrieved: _Ids = None
    relevant: _Ids = None


_LISTS = ("reference", "chunks", "references", "keypoints", "retrieved", "relevant")


def read_answers(source: Any, columns: Mapping[str, str] | None = None) -> pd.DataFrame:
    """Read answers from anywhere.

    Parameters
    ----------
    source : a data frame; a list of dicts, or of objects with fields; columns by name; a path
        (.csv, .tsv, .jsonl, .json, .parquet; all but the last also .gz); RAGChecker's JSON; a test
        run of DeepEval; anything with ``to_pandas()``, such as a Hugging Face ``Dataset``.
    columns : our name -> the name in your rows, e.g. ``{"reference": "gold_answer"}``. Goes before
        what is recognised.

    Returns
    -------
    DataFrame, a row per answer, in our names; other columns as they are. Rows with the same
    question share a ``question_id`` where there was none. ``attrs["repairs"]`` lists what was put
    right, which is a warning too. A ``reference`` of several true answers stays a list. An empty
    context is a text, other empty cells of a CSV are missing: an answer too, unless the column
    ``answer_is_empty`` says that it is the empty text.
    """
    table = Table.of(source).with_squad_answers()
    aliases = _DEEPEVAL if _OF_DEEPEVAL.intersection(table.frame.columns) else COLUMNS
    table = table.in_our_names(aliases, columns or {}, "columns", _LISTS, ("context", "kind"))
    repairs = _read_cells(table)
    repairs += _read_empty_answers(table)
    _identify(table)
    table.frame.attrs = {"repairs": repairs}
    if repairs:
        warnings.warn(f"{table.name}: {'; '.join(repairs)}", stacklevel=3)
    return table.frame


def _read_cells(table: Table) -> list[str]:
    """Read the cells of our columns, in place; say of which columns how many were put right."""
    repairs: Counter[str] = Counter()

    def read(row: dict, where: str) -> _Row:
        record = as_record(_Row, row, where)
        for name in record.model_fields_set:
            value = getattr(record, name)
            repairs[name] += value is not None and value != row[name]
        return record

    records = table.records(read, None)
    frame = table.frame
    for name in frame.columns.intersection(list(_Row.model_fields)):
        cells = [getattr(record, name) for record in records]
        frame[name] = pd.Series(cells, frame.index, dtype=object)
    counts = sorted((+repairs).items())
    return [f"cells of {name!r} put right: {count}" for name, count in counts]


def _read_empty_answers(table: Table) -> list[str]:
    """Read which answers are the empty text, in place; say how many empty cells are missing."""
    frame = table.frame
    if "answer" not in frame:
        return []
    missing = frame["answer"].isna()
    if EMPTY in frame:
        said = frame[EMPTY].astype(str).str.casefold().isin(["true", "1", "1.0", "yes"])
        frame.loc[missing & said, "answer"] = ""
        missing &= ~said
    if not table.is_csv or not missing.any():
        return []
    return [
        f"empty answers that count as missing: {missing.sum()} (true in the column {EMPTY!r} says "
        "that an answer is the empty text)"
    ]


def _identify(table: Table) -> None:
    """Number the questions where there is no id; refuse an id that two questions have."""
    frame = table.frame
    rows = frame.index.to_series()
    texts = frame.get("question", rows).fillna(rows)  # a row without one is on its own
    if "question_id" not in frame:
        frame["question_id"] = [f"q{number + 1}" for number in pd.factorize(texts)[0]]
    names = ["question_id", "system"] if "system" in frame else ["question_id"]
    keys = frame[names].map(as_id)  # 1 and "1" are one id
    is_repeated = keys.duplicated()
    is_other = is_repeated & ~keys.assign(text=texts).duplicated()
    wrong = frame[names].isna().any(axis=1) | is_other
    what = "columns={'system': 'model'}"
    if wrong.any():
        row = int(wrong.argmax())
        raise DataError(
            f"{table.name}, {table.places[row]}: {' and '.join(names)} is empty or used twice",
            "an id that one system uses once",
            f"rename one; or name the column of systems: {what}",
        )
    if is_repeated.any():
        warnings.warn(
            f"{table.name}: {is_repeated.sum()} of {len(frame)} rows repeat a question: their "
            f"answers count as one system's; if they are not, name the column of systems: {what}",
            stacklevel=4,
        )
