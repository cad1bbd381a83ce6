"""Files of TREC's RAG track: a line per answer, with its nuggets."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from ragbench.data.files import read_jsonl, shared_file

_COLUMNS = {
    "qid": "question_id",
    "query": "question",
    "run_id": "system",
    "answer_text": "answer",
    "nuggets": "nuggets",
}
_FILE = "nugget_assignment.20241108.jl.gz"


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
    file = shared_file(path, "trec_rag24", _FILE, name="TREC RAG 2024", do=do)
    rows = pd.DataFrame([row for _, row in read_jsonl(file)])
    return rows.reindex(columns=list(_COLUMNS)).rename(columns=_COLUMNS)
