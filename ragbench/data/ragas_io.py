"""The record format of RAGAS's users: user_input, retrieved_contexts, response, reference; as JSON lines and pandas.

Single-turn samples only. Fields beside the four (``reference_contexts``, ids, scores ...) are kept and written again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import pandas as pd

from ragbench.data.files import each_record, numbered_lines, require_text
from ragbench.errors import DataError, unknown

FIELDS = ("user_input", "retrieved_contexts", "response", "reference")
# Fields that RAGAS's samples may have beside the four, some named much like them.
_OTHERS = ("reference_contexts", "retrieved_context_ids", "reference_context_ids", "multi_responses")
_OLD = {"question": "user_input", "contexts": "retrieved_contexts", "answer": "response", "ground_truth": "reference"}


@dataclass(frozen=True, slots=True)
class RagasSample:
    """One question with what was retrieved, the response, and the reference; None where the record has none.

    ``extra`` keeps every other field as it is.

    Raises
    ------
    DataError when ``extra`` holds one of the four.
    """

    user_input: str
    retrieved_contexts: tuple[str, ...] | None = None
    response: str | None = None
    reference: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if twice := [name for name in FIELDS if name in self.extra]:
            raise DataError(f"{twice[0]!r} among the extra fields", "other names there", f"pass {twice[0]}=... itself")

    def record(self) -> dict[str, Any]:
        """Return the record as RAGAS writes it: fields without a value are left out."""
        contexts = None if self.retrieved_contexts is None else list(self.retrieved_contexts)
        values = dict(zip(FIELDS, (self.user_input, contexts, self.response, self.reference), strict=True))
        return {**{name: value for name, value in values.items() if value is not None}, **self.extra}


def read_ragas(path: str | Path, fields: Mapping[str, str] | None = None) -> list[RagasSample]:
    """Read samples from JSON lines.

    Parameters
    ----------
    path : JSON lines, plain or gzip, as ``EvaluationDataset.to_jsonl`` writes them.
    fields : own names of the four fields, e.g. ``{"user_input": "question"}``.

    Returns
    -------
    list of RagasSample, in the file's order.

    Raises
    ------
    DataError with file and line for a missing, misspelt or malformed field, and for conversations (a list as
    user_input).
    """
    names = _names(fields)
    return each_record(path, numbered_lines(path), lambda row, where: _sample(row, where, names))


def write_ragas(samples: Iterable[RagasSample], path: str | Path) -> Path:
    """Write samples as JSON lines, which `read_ragas` and ``EvaluationDataset.from_jsonl`` read; return the path."""
    path = Path(path).expanduser()
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(sample.record(), ensure_ascii=False) for sample in samples]
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path


def ragas_from_pandas(frame: pd.DataFrame, fields: Mapping[str, str] | None = None) -> list[RagasSample]:
    """Take samples from a table, such as ``EvaluationDataset.to_pandas()``.

    Parameters
    ----------
    frame : one row per sample; ``retrieved_contexts`` holds lists of texts. NaN and None are no value.
    fields : as for `read_ragas`.

    Raises
    ------
    DataError naming the row (by its index label) for a missing or malformed field.
    """
    names = _names(fields)
    given = (
        {str(k): v for k, v in row.items() if not (pd.api.types.is_scalar(v) and pd.isna(v))}
        for row in frame.to_dict("records")
    )
    rows = ((f"row {label!r}", row) for label, row in zip(frame.index, given, strict=True))
    return each_record("the table", rows, lambda row, where: _sample(row, where, names))


def ragas_to_pandas(samples: Iterable[RagasSample]) -> pd.DataFrame:
    """Return samples as a table for ``EvaluationDataset.from_pandas``: one column per field that some sample has."""
    records = [sample.record() for sample in samples]
    extra = dict.fromkeys(name for record in records for name in record if name not in FIELDS)
    used = [name for name in FIELDS if any(name in record for record in records)]
    columns = [*(used or FIELDS[:1]), *extra]
    # Built by column: pandas would spread equally long lists over columns of their own.
    return pd.DataFrame({c: pd.Series([r.get(c) for r in records], dtype=object) for c in columns})


def _names(fields: Mapping[str, str] | None) -> dict[str, str]:
    wrong = [name for name in fields or {} if name not in FIELDS]
    if wrong:
        raise unknown("field", wrong[0], FIELDS)
    return {name: name for name in FIELDS} | dict(fields or {})


def _sample(row: dict[str, Any], where: str, names: Mapping[str, str]) -> RagasSample:
    asked = names["user_input"]
    if isinstance(row.get(asked), Sequence) and not isinstance(row[asked], str):
        raise DataError(f"{where}: {asked!r} is a conversation", "one question as a text", "export single-turn samples")
    if asked not in row and (old := [name for name in _OLD if name in row]):
        renamed = ", ".join(f"{_OLD[name]!r}: {name!r}" for name in old)
        raise DataError(
            f"{where}: no field {asked!r}, but {', '.join(map(repr, old))}",
            "the names that RAGAS uses since 0.2",
            f"pass fields={{{renamed}}}",
        )
    question = require_text(row, asked, where, named=True)
    _no_misspelling(row, where, names)
    texts = {
        name: require_text(row, names[name], where, empty=True) if row.get(names[name]) is not None else None
        for name in ("response", "reference")
    }
    contexts = row.get(names["retrieved_contexts"])
    extra = {name: value for name, value in row.items() if name not in names.values()}
    return RagasSample(question, _contexts(contexts, names["retrieved_contexts"], where), **texts, extra=extra)


def _no_misspelling(row: Mapping[str, Any], where: str, names: Mapping[str, str]) -> None:
    """Raise for a field that is nearly one of the four where that one is missing: it would be passed over."""
    others = [name for name in row if name not in names.values() and name not in _OTHERS]
    for meant, name in names.items():
        near = get_close_matches(name, others, 1, 0.85) if row.get(name) is None else []
        if near:
            raise DataError(
                f"{where}: no field {name!r}, but {near[0]!r}",
                f"{name!r}, or a name that is not nearly the same",
                f"rename it, or pass fields={{{meant!r}: {near[0]!r}}}",
            )


def _contexts(value: Any, name: str, where: str) -> tuple[str, ...] | None:
    if value is None:
        return None
    # Tables read from Parquet hold arrays.
    listed = value.tolist() if hasattr(value, "tolist") else value
    if not isinstance(listed, list | tuple) or not all(isinstance(text, str) for text in listed):
        raise DataError(f"{where}: {name!r} is {value!r:.40}", "a list of texts", "put each passage into the list")
    return tuple(listed)
