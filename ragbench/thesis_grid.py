"""The thesis's second half: answers and grades for a grid of systems and budgets, one row per answer (§2.4, §3.2).

Model calls go through a cassette when one is given, so a run that was stopped goes on where it was and repeats none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ragbench.errors import ConfigError
from ragbench.records import Dataset, Hit

LLM_ONLY = "LLM only"
GRADE_COLUMNS = tuple(f"grade {g}" for g in range(1, 6))


def generator(name: str = "extractive", **options: Any) -> Any:
    """Return the generator a parameter cell names: ``"extractive"`` (no LLM), or a model: ``"ollama:llama3:8b"``."""
    if name == "extractive":
        from ragbench.generation import ExtractiveReader

        return ExtractiveReader()
    from ragbench.llm import chat_model

    return chat_model(name, **options)


def judge(name: str = "embedded", **options: Any) -> Any:
    """Return the judge a parameter cell names: ``"embedded"`` (no LLM) or a model such as ``"ollama:llama3:70b"``."""
    if name == "embedded":
        from ragbench.grading import EmbeddedGrader

        return EmbeddedGrader()
    from ragbench.llm import chat_model

    return chat_model(name, **options)


def cassette(path: Any) -> Any:
    """Open the recording that a parameter cell names; None records nothing."""
    from ragbench.llm import Cassette

    return None if path is None else Cassette(path)


def graded_answers(
    data: Dataset,
    hits: Mapping[str, Sequence[Sequence[Hit]]],
    answerer: Any,
    grader: Any,
    budgets: Sequence[int] = (0, 1000),
    *,
    per_prompt: str | int = "one",
    recording: Any = None,
    **options: Any,
) -> pd.DataFrame:
    """Answer and grade every question for every system and budget.

    Parameters
    ----------
    data : questions with true answers and references.
    hits : by system, one list of hits per question.
    answerer : an extractive reader or a chat model (`generator`).
    grader : an embedded grader or a chat model (`judge`).
    budgets : N in tokens; 0 asks without documents, once per question, as system ``"LLM only"``.
    per_prompt : answers the judge sees at once: "one", "ten", "systems" or a number.
    recording : a Cassette, or None.
    options : for the model calls, e.g. ``concurrency``, ``deadline_s``, ``progress``.

    Returns
    -------
    One row per answer: question_id, kind, system, N, ir_score (NaN without documents), answer, seconds, grade (missing
    when unscored), generator, judge, error.
    """
    from ragbench.generation import generate, generation_tasks
    from ragbench.grading import grade
    from ragbench.metrics.cutoffs import TokenOffsets
    from ragbench.metrics.ir_score import ir_score_table

    if not data.questions:
        raise ConfigError("no questions", "at least one", "raise the limit of the parameter cell")
    tasks = generation_tasks(data.questions, hits, budgets, TokenOffsets(None))
    questions = [t.question for t in tasks]
    meta = [{"system": t.system if t.n_tokens else LLM_ONLY, "n_tokens": t.n_tokens} for t in tasks]
    live = {} if hasattr(answerer, "answer") else {"cassette": recording, **options}
    answers = generate(answerer, questions, [t.context for t in tasks], meta=meta, **live)
    live = {} if hasattr(grader, "grade_all") else {"cassette": recording, **options}
    grades = grade(grader, data.questions, answers, per_prompt=per_prompt, **live)
    references = [list(q.references) for q in questions]
    # The context is already cut, so its score is that of all of it.
    texts = [t.context or "" for t in tasks]
    ends = np.array([[len(text)] for text in texts], dtype=np.int64)
    scores = ir_score_table(references, texts, [max(1, *budgets)], positions=ends)[:, 0]
    rows = pd.DataFrame(
        {
            "question_id": [q.id for q in questions],
            "kind": [q.kind for q in questions],
            "system": [m["system"] for m in meta],
            "N": [t.n_tokens for t in tasks],
            "ir_score": scores,
            "answer": [a.text for a in answers],
            "seconds": [a.seconds for a in answers],
            "grade": pd.array([g.value for g in grades], dtype="Int64"),
            "generator": [a.generator for a in answers],
            "judge": [g.judge for g in grades],
            "error": [a.meta.get("error", g.meta.get("error", "")) for a, g in zip(answers, grades, strict=True)],
        }
    )
    rows.loc[rows["N"] == 0, "ir_score"] = float("nan")
    return rows


def grade_shares(rows: pd.DataFrame, by: str = "system", *, counts: bool = False) -> pd.DataFrame:
    """Count grades by system or budget (Tables 3.2 and 3.3).

    Parameters
    ----------
    rows : from `graded_answers`.
    by : column that makes the rows of the table.
    counts : numbers of answers instead of shares of the scored ones.

    Returns
    -------
    Columns ``by``, grade 1 ... grade 5, seconds (mean), n (scored), unscored. Shares of nothing are NaN.
    """
    made = []
    for name, group in rows.groupby(by, sort=False):
        marks = group["grade"].dropna()
        found = [int((marks == g).sum()) for g in range(1, 6)]
        values = found if counts else [f / len(marks) if len(marks) else float("nan") for f in found]
        made.append(
            {by: name}
            | dict(zip(GRADE_COLUMNS, values, strict=True))
            | {"seconds": group["seconds"].mean(), "n": len(marks), "unscored": int(group["grade"].isna().sum())}
        )
    return pd.DataFrame(made)


def ledger_cells(table: pd.DataFrame, by: str, columns: Sequence[str] = GRADE_COLUMNS) -> pd.DataFrame:
    """Turn a table of `grade_shares` into cells for `ragbench.papers.record`."""
    long = table.melt(id_vars=[by, "n", "unscored"], value_vars=list(columns), var_name="column")
    return long.rename(columns={by: "row"})
