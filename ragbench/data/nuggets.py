"""Files of TREC's RAG track: a line per answer, with its nuggets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import pandas as pd
from pydantic import BaseModel, Field

from ragbench.data.files import Filled, read_records, shared_file
from ragbench.paths import written_whole

_COLUMNS = {"qid": "question_id", "query": "question", "run_id": "system", "answer_text": "answer"}
_FILE = "nugget_assignment.20241108.jl.gz"


class _Nugget(BaseModel):
    text: Filled
    importance: Literal["vital", "okay"]
    assignment: Literal["support", "partial_support", "not_support"]


class _Assigned(BaseModel):
    qid: Filled
    query: str = ""
    run_id: Filled
    answer_text: str = ""
    nuggets: list[_Nugget] = Field(default_factory=list)


def read_nuggets(path: str | Path | None = None) -> pd.DataFrame:
    """Read answers with their nuggets, for `ragbench.score` and ``METRICS["nuggets"]``.

    Parameters
    ----------
    path : JSON lines with ``qid``, ``query``, ``run_id``, ``answer_text`` and ``nuggets`` (each
        ``text``, ``importance``, ``assignment``), as the nuggetizer writes them; default the 927
        answers of TREC RAG 2024 in ``RAGBENCH_DATA``.

    Returns
    -------
    DataFrame with question_id, question, system, answer, nuggets.

    Source: TREC 2024 RAG track, arXiv 2411.09607.
    """
    do = "put the track's nugget assignments there, or pass the file as path"
    given = shared_file(path, "trec_rag24", _FILE, name="TREC RAG 2024", do=do)
    answers = read_records(
        given, _Assigned, once=lambda row: [f"qid {row.qid!r} of the run {row.run_id!r}"]
    )
    return pd.DataFrame([answer.model_dump() for answer in answers]).rename(columns=_COLUMNS)


def write_nuggets(rows: pd.DataFrame, path: str | Path) -> Path:
    """Write rows with nuggets in the track's form, which `read_nuggets` reads."""
    theirs = rows.rename(columns={ours: name for name, ours in _COLUMNS.items()})
    lines = [
        json.dumps(record, ensure_ascii=False)
        for record in theirs[[*_COLUMNS, "nuggets"]].to_dict("records")
    ]
    path = Path(path)
    with written_whole(path) as partial:
        Path(partial).write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path
