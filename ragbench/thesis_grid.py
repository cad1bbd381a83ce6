"""The thesis's second half: answers and grades for a grid of systems and budgets, one row per answer (§2.4, §3.2).

Model calls go through a cassette when one is given, so a run that was stopped goes on where it was and repeats none.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from ragbench.errors import ConfigError
from ragbench.paths import results_dir
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


@dataclass(frozen=True, slots=True)
class Models:
    """Everything in a run of the thesis that may be a language model; made by `models`.

    Attributes
    ----------
    decompose : question -> sub-questions, for MLQ.
    generator, judge : as `generator` and `judge` return them.
    recording : the cassette all three use, or None.
    """

    decompose: Any
    generator: Any
    judge: Any
    recording: Any

    @property
    def names(self) -> dict[str, str]:
        """Who took part, by part: the names that stand in rows and in the ledger."""
        model = getattr(self.decompose, "model", None)
        return {
            "decomposer": self.decompose.settings()["decomposer"] if model is None else _name(model),
            "generator": _name(self.generator),
            "judge": _name(self.judge),
        }

    def __str__(self) -> str:
        return ", ".join(f"{part} {name}" for part, name in self.names.items())


def models(model: str | None = None, judge_model: str | None = None, recording: Any = None, **options: Any) -> Models:
    """Return all that take part in a run, from the switch of a notebook's parameter cell.

    Parameters
    ----------
    model : a chat model such as ``"ollama:llama3:8b"``: it decomposes MLQ's questions, answers and grades. None: rules,
        the extractive reader and the embedded grader, none of them a language model.
    judge_model : another chat model for the grades (in the thesis Llama 3 8B answers and GPT-4o grades), or
        ``"embedded"``; None: ``model``.
    recording : a file that records the calls of all three, or None.
    options : of the chat models, as for :func:`ragbench.llm.chat_model`.

    Source: thesis §2.5.3 (MLQ asks a language model for its queries), §2.4 (answers and grades).
    """
    from ragbench.retrieval import llm_decomposer, rule_decomposer

    tape = cassette(recording)
    answerer = generator(model, **options) if model else generator()
    graded_by = judge_model or model or "embedded"
    grader = judge() if graded_by == "embedded" else judge(graded_by, **options)
    return Models(llm_decomposer(answerer, cassette=tape) if model else rule_decomposer, answerer, grader, tape)


def _name(model: Any) -> str:
    if isinstance(getattr(model, "name", None), str):  # a reader or a grader
        return model.name
    from ragbench.llm.drivers import driver_for

    return driver_for(model).model


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
    scores = ir_score_table(references, texts, [max(1, *budgets)], match="exact", positions=ends)[:, 0]
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


def table_3_3(data: Dataset, who: Models, *, again: bool = False, **options: Any) -> pd.DataFrame:
    """The run of Table 3.3: the question alone and with 1,000 tokens of each retriever, answered and graded.

    The rows are kept in ``data/results/thesis/``, one file per questions and models, so that Figures 3.1 and 3.2 are
    drawn from the very answers that the table counts, and none is graded twice.

    Parameters
    ----------
    data : questions with true answers and references, and their documents.
    who : from `models`.
    again : make the run even where its rows are kept, and replace them.
    options : for the model calls, as in `graded_answers`.

    Returns
    -------
    Rows as of `graded_answers`, with a column decomposer.

    Source: thesis §3.2.2; the judge sees the six answers to a question in one prompt.
    """
    from ragbench.chunking import semantic_chunks
    from ragbench.embedding import default_embedder
    from ragbench.thesis import retrievers, search

    asked = [(q.id, q.text, q.answer, q.references) for q in data.questions]
    key = hashlib.sha256(repr((asked, len(data.documents), who.names)).encode()).hexdigest()[:12]
    path = results_dir("thesis") / f"table_3.3_{data.name}_{key}.jsonl"
    if path.is_file() and not again:
        kept = pd.read_json(path, orient="records", lines=True, dtype=False)
        return kept.astype({"grade": "Int64", "ir_score": float})
    embedder = default_embedder()
    systems = retrievers(semantic_chunks(data.documents, embedder), embedder, who.decompose)
    hits = search(systems, [q.text for q in data.questions])
    options = {"per_prompt": "systems", "recording": who.recording, **options}
    rows = graded_answers(data, hits, who.generator, who.judge, (0, 1000), **options)
    rows = rows.assign(decomposer=who.names["decomposer"])
    rows.to_json(path, orient="records", lines=True, double_precision=15)
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
