"""Record Qwen's answers to HotpotQA as docs/preregistration/hotpotqa.md plans, and ship them without the
contexts.

    python scripts/ship_hotpotqa.py FOLDER   # FOLDER has cassettes: nothing is asked twice

Needs HotpotQA (`ragbench data fetch hotpotqa`). Writes questions.jsonl, answers.jsonl.gz and
answers.json in data/hotpotqa/. ``FOLDER/hotpotqa_grades.sqlite``, where there is one, has Qwen's
grades of the answers.
"""

from __future__ import annotations

import gzip
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from ragbench import Answer, grade, recordings
from ragbench.chunking import semantic_chunks
from ragbench.data import load_hotpotqa
from ragbench.data.relevance import document_clusters
from ragbench.experiment import Experiment
from ragbench.llm import Cassette
from ragbench.llm.endpoints import Endpoint
from ragbench.papers import thesis
from ragbench.paths import project_root
from ragbench.prompts import prompt_hash
from ragbench.records import Dataset

ASKED = 200  # questions
MACHINE = (
    "one NVIDIA H200, prompts in batches; the 4-bit weights as bfloat16; llama.cpp may "
    "differ in a letter"
)
RUNS = {"systems": (thesis.RETRIEVERS, (0, 1000)), "budgets": (("BM25",), (0, *thesis.CUTOFFS))}
COLUMNS = [
    "question_id",
    "retriever",
    "N",
    "answer",
    "prompt_tokens",
    "output_tokens",
    "seconds",
    "finish",
    "ir_score",
]


def asked_questions() -> Dataset:
    """Return HotpotQA with the first questions of the random order; the corpus stays whole."""
    data = load_hotpotqa()
    return replace(data, questions=tuple(data.shuffled(recordings.ORDER_SEED)[:ASKED]))


def record(data: Dataset, folder: Path) -> pd.DataFrame:
    """Return the rows of both runs, each answer once."""
    build = thesis.retrievers()
    parts = []
    for run, (names, budgets) in RUNS.items():
        experiment = Experiment(
            f"hotpotqa-{run}",
            data={"hotpotqa": data},
            chunker={"semantic": semantic_chunks},
            retriever={name: build[name] for name in names},
            k={name: thesis.TOP_K[name] for name in names},
            N=budgets,
            generator={"qwen": recordings.RECORDINGS["qwen"].chat_model()},
            match="exact",
            cassette=Cassette(folder / f"hotpotqa_{run}.sqlite"),
            folder=folder / run,
        )
        parts.append(experiment.run())
    rows = pd.concat(parts, ignore_index=True)
    return rows.drop_duplicates(["question_id", "retriever", "N"], ignore_index=True)


def with_model_grades(
    rows: pd.DataFrame, data: Dataset, file: Path, mode: str = "record"
) -> pd.DataFrame:
    """Add ``model_grade``: Qwen's grades, one answer a prompt; none without the cassette."""
    if not file.exists():
        return rows.assign(model_grade=None)
    distinct = rows.drop_duplicates(["question_id", "answer"])
    answers = [Answer(row.question_id, row.answer, "") for row in distinct.itertuples()]
    with Cassette(file, mode) as cassette:
        model = recordings.RECORDINGS["qwen"].chat_model()
        grades = [
            one.value
            for one in grade(model, data.questions, answers, cassette=cassette, on_miss="reply")
        ]
    labels = distinct[["question_id", "answer"]].assign(model_grade=grades)
    return rows.merge(labels, on=["question_id", "answer"], how="left")


def ship(rows: pd.DataFrame, data: Dataset, folder: Path) -> None:
    """Write the three files."""
    clusters = document_clusters(data)
    questions = [
        {
            "question_id": q.id,
            "question": q.text,
            "answer": q.answer,
            "kind": q.kind,
            "cluster": clusters[q.id],
        }
        for q in data.questions
    ]
    write_lines(folder / "questions.jsonl", questions)
    true = {q.id: q.answer for q in data.questions}
    for name, metric in recordings.STRING_METRICS.items():
        rows[name] = [metric(row.answer, true[row.question_id]) for row in rows.itertuples()]
    shipped = rows[[*COLUMNS, *recordings.STRING_METRICS, "model_grade"]]
    with (
        open(folder / "answers.jsonl.gz", "wb") as file,
        gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed,
    ):
        packed.write(
            shipped.to_json(
                orient="records", lines=True, force_ascii=False, double_precision=10
            ).encode()
        )
    (folder / "answers.json").write_text(json.dumps(about(), indent=1) + "\n", encoding="utf-8")


def about() -> dict[str, Any]:
    """Return what the answers depend on besides the questions."""
    driver = Endpoint.of(recordings.RECORDINGS["qwen"].chat_model())
    prompts = (
        "thesis_with_documents",
        "thesis_query_only",
        "multiquery_decomposition",
        "thesis_grade",
    )
    return {
        "model": driver.model,
        "digest": driver.pinned_digest,
        "options": driver.options,
        "prompts": {name: prompt_hash(name) for name in prompts},
        "order_seed": recordings.ORDER_SEED,
        "questions": ASKED,
        "machine": MACHINE,
    }


def write_lines(path: Path, records: list[dict[str, Any]]) -> None:
    """Write records as JSON lines."""
    path.write_text(
        "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records),
        encoding="utf-8",
    )


if __name__ == "__main__":
    source = Path(sys.argv[1])
    asked = asked_questions()
    answered = with_model_grades(record(asked, source), asked, source / "hotpotqa_grades.sqlite")
    ship(answered, asked, project_root() / "data" / "hotpotqa")
