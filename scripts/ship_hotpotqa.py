"""Record Qwen's answers to HotpotQA as docs/preregistration/hotpotqa.md plans, and ship them without the
contexts.

    python scripts/ship_hotpotqa.py FOLDER            # FOLDER has cassettes: nothing is asked twice
    python scripts/ship_hotpotqa.py FOLDER --filled   # as docs/preregistration/hotpotqa_filled.md plans
    python scripts/ship_hotpotqa.py FOLDER --gold     # as docs/preregistration/hotpotqa_gold.md plans
    python scripts/ship_hotpotqa.py FOLDER --cheats   # as docs/preregistration/cheats.md plans; no model
    python scripts/ship_hotpotqa.py FOLDER --contexts  # as docs/preregistration/retrieval_numbers.md plans; no model

Needs HotpotQA (`ragbench data fetch hotpotqa`). Writes questions.jsonl, answers.jsonl.gz and
answers.json in data/hotpotqa/. ``FOLDER/hotpotqa_grades.sqlite``, where there is one, has Qwen's
grades of the answers. With ``--filled``: filled.jsonl.gz and filled.json, the questions that are
whole; with ``--gold``: gold.jsonl.gz and gold.json. ``--ask`` asks for the others first, one after
the other, and can be stopped and started.
With ``--cheats``: cheats.csv.gz, the numbers of the shipped answers and of the cheats beside them.
With ``--contexts``: contexts.csv.gz, the numbers of the texts that the answers were given to.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ragbench import Answer, grade
from ragbench.chunking import semantic_chunks
from ragbench.data import load_hotpotqa
from ragbench.experiment import Experiment
from ragbench.llm import CallError, Cassette
from ragbench.llm.endpoints import Endpoint
from ragbench.metrics.lexical import contained
from ragbench.papers import thesis
from ragbench.paths import project_root
from ragbench.prompts import prompt_hash
from ragbench.records import Chunk, Dataset, Question
from ragbench.stats.clusters import document_clusters

sys.path.append(str(Path(__file__).parents[1] / "notebooks"))
import cheats
import contexts
import recorded

ASKED = 200  # questions
FILLED = 100  # of them, in the arm whose text fills N
FILLED_N = (100, 300, 500, 1000)
FILLED_K = 40  # chunks that BM25 keeps there
GOLD_UNITS = ("sentences", "documents")
MACHINE = (
    "one NVIDIA H200, prompts in batches; the 4-bit weights as bfloat16; llama.cpp may "
    "differ in a letter"
)
RUNS = {
    "systems": (thesis.RETRIEVER_NAMES, (0, 1000)),
    "budgets": (("BM25",), (0, *thesis.CUTOFFS)),
}
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
    return replace(data, questions=tuple(data.shuffled(recorded.ORDER_SEED)[:ASKED]))


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
            generator={"qwen": recorded.RECORDINGS["qwen"].chat_model()},
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
        model = recorded.RECORDINGS["qwen"].chat_model()
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
    shipped = with_strings(rows, data)[[*COLUMNS, *recorded.STRING_METRICS, "model_grade"]]
    write_packed(folder / "answers.jsonl.gz", shipped)
    (folder / "answers.json").write_text(json.dumps(about(), indent=1) + "\n", encoding="utf-8")


def filled(data: Dataset, folder: Path, ask: bool) -> pd.DataFrame:
    """Return the rows of the filled arm, of the questions that are whole."""
    chunks = semantic_chunks(data.documents)
    bm25 = thesis.retrievers()["BM25"](chunks)
    settings = {
        "chunker": {"semantic": lambda _: chunks},
        "retriever": {"BM25": lambda _: bm25},
        "k": FILLED_K,
        "N": FILLED_N,
    }
    asked = ((question, settings) for question in data.questions[:FILLED])
    return one_by_one("filled", data, asked, folder, ask)


def gold(data: Dataset, folder: Path, ask: bool) -> pd.DataFrame:
    """Return the rows of the ceiling, of the questions that are recorded in each unit."""
    none = [Chunk("none", "-", "none")]  # Gold searches nothing
    asked = []
    for unit, question in itertools.product(GOLD_UNITS, data.questions):
        retriever = {f"Gold, {unit}": {"use": "Gold", "unit": unit}}
        settings = {"chunker": {"documents": lambda _: none}, "retriever": retriever, "N": 1000}
        asked.append((question, settings))
    return one_by_one("gold", data, asked, folder, ask)


def one_by_one(
    arm: str,
    data: Dataset,
    asked: Iterable[tuple[Question, dict[str, Any]]],
    folder: Path,
    ask: bool,
) -> pd.DataFrame:
    """Return the rows of an arm, one question and its settings after the other.

    A question that is not whole on the arm's cassette is asked, or left out.
    """
    parts = []
    with Cassette(folder / f"hotpotqa_{arm}.sqlite", "record" if ask else "replay") as cassette:
        for question, settings in asked:
            experiment = Experiment(
                f"hotpotqa-{arm}",
                data={"hotpotqa": replace(data, questions=(question,))},
                generator={"qwen": recorded.RECORDINGS["qwen"].chat_model()},
                match="exact",
                concurrency=1,
                cassette=cassette,
                folder=folder / arm,
                **settings,
            )
            try:
                parts.append(experiment.run(progress=False))
            except CallError:
                if ask:
                    raise
    return pd.concat(parts, ignore_index=True)


def with_strings(rows: pd.DataFrame, data: Dataset) -> pd.DataFrame:
    """Add the string metrics."""
    true = {q.id: q.answer for q in data.questions}
    for name, metric in recorded.STRING_METRICS.items():
        rows[name] = [metric(row.answer, true[row.question_id]) for row in rows.itertuples()]
    return rows


def ship_arm(name: str, rows: pd.DataFrame, data: Dataset, facts: dict[str, Any]) -> None:
    """Write NAME.jsonl.gz and NAME.json of an arm that was asked on a processor."""
    rows = with_strings(rows, data)
    true = {q.id: q.answer for q in data.questions}
    rows["in_text"] = [contained(row.context, true[row.question_id]) for row in rows.itertuples()]
    folder = project_root() / "data" / "hotpotqa"
    columns = [*COLUMNS, "context_tokens", "in_text", *recorded.STRING_METRICS]
    write_packed(folder / f"{name}.jsonl.gz", rows[columns].drop(columns="seconds"))
    machine = "llama.cpp on a processor, one thread, prompt cache on"
    text = json.dumps(about() | facts | {"machine": machine}, indent=1) + "\n"
    (folder / f"{name}.json").write_text(text, encoding="utf-8")


def texts_of(
    data: Dataset, folder: Path, names: Sequence[str], budgets: Sequence[int]
) -> pd.DataFrame:
    """Return the rows of retrievers, without answers; no model is asked.

    A run for each N: without answers a run keeps the texts of its largest one.
    """
    chunks = semantic_chunks(data.documents)
    built = {name: thesis.retrievers()[name](chunks) for name in names}
    parts = []
    for N in budgets:
        experiment = Experiment(
            "hotpotqa-texts",
            data={"hotpotqa": data},
            chunker={"semantic": lambda _: chunks},
            retriever={name: lambda _, found=found: found for name, found in built.items()},
            k={name: thesis.TOP_K[name] for name in names},
            N=(N,),
            match="exact",
            folder=folder / f"N = {N}",
        )
        parts.append(experiment.run(progress=False))
    return pd.concat(parts, ignore_index=True)


def of_recorded(answers: pd.DataFrame, texts: pd.DataFrame) -> pd.DataFrame:
    """Return answers with the texts that they were given to."""
    key = ["question_id", "retriever", "N"]
    new = texts[texts.columns.difference(answers.columns)]
    rows = answers.merge(
        new.join(texts[key]).assign(ir_score_again=texts["ir_score"]), on=key, validate="1:1"
    )
    if len(rows) < len(answers) or not np.allclose(rows["ir_score"], rows["ir_score_again"]):
        raise SystemExit("the texts are not those of the recorded answers: their IR scores differ")
    return rows


def cheated(data: Dataset, folder: Path) -> pd.DataFrame:
    """Return the numbers of the recorded answers to BM25's texts at N = 1000, and of the cheats."""
    answers = recorded.thesis_rows("Table 3.2").query("N == 1000")
    rows = of_recorded(answers, texts_of(data, folder / "cheats", ("BM25",), (1000,)))
    return cheats.cheat_rows(rows, document_clusters(data))


def numbered(data: Dataset, folder: Path) -> pd.DataFrame:
    """Return the numbers of every text that an answer was given to."""
    parts = []
    for table, (names, budgets) in zip(("Table 3.3", "Table 3.2"), RUNS.values(), strict=True):
        N = [n for n in budgets if n]
        answers = recorded.thesis_rows(table).query("N > 0")
        parts.append(of_recorded(answers, texts_of(data, folder / f"texts of {table}", names, N)))
    rows = pd.concat(parts).drop_duplicates(["question_id", "retriever", "N"], ignore_index=True)
    return contexts.context_rows(rows)


def write_packed(path: Path, rows: pd.DataFrame) -> None:
    """Write rows as packed JSON lines, the same bytes each time."""
    lines = rows.to_json(orient="records", lines=True, force_ascii=False, double_precision=10)
    with open(path, "wb") as file, gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed:
        packed.write(lines.encode())


def about() -> dict[str, Any]:
    """Return what the answers depend on besides the questions."""
    driver = Endpoint.of(recorded.RECORDINGS["qwen"].chat_model())
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
        "order_seed": recorded.ORDER_SEED,
        "questions": ASKED,
        "machine": MACHINE,
    }


def write_lines(path: Path, records: list[dict[str, Any]]) -> None:
    """Write records as JSON lines."""
    path.write_text(
        "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records),
        encoding="utf-8",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="of the cassettes")
    parser.add_argument("--filled", action="store_true", help="the arm whose text fills N")
    parser.add_argument("--gold", action="store_true", help="the evidence itself")
    parser.add_argument("--ask", action="store_true", help="of these arms what is not recorded")
    parser.add_argument(
        "--cheats", action="store_true", help="numbers of answers that choose nothing"
    )
    parser.add_argument("--contexts", action="store_true", help="numbers of the retrieved texts")
    options = parser.parse_args()
    asked = asked_questions()
    target = project_root() / "data" / "hotpotqa"
    if options.filled:
        rows = filled(asked, options.folder, options.ask)
        facts = {"questions": int(rows["question_id"].nunique()), "planned": FILLED}
        ship_arm("filled", rows, asked, facts | {"k": FILLED_K, "N": FILLED_N})
        return
    if options.gold:
        rows = gold(asked, options.folder, options.ask)
        whole = rows.groupby("retriever")["question_id"].nunique().to_dict()
        ship_arm("gold", rows, asked, {"questions": whole, "planned": ASKED, "N": 1000})
        return
    for wanted, name, make in (
        (options.cheats, "cheats.csv.gz", cheated),
        (options.contexts, "contexts.csv.gz", numbered),
    ):
        if wanted:
            table = make(asked, options.folder).round(6)
            packed = {"method": "gzip", "mtime": 0}
            table.to_csv(target / name, index=False, compression=packed)
            return
    rows = record(asked, options.folder)
    graded = with_model_grades(rows, asked, options.folder / "hotpotqa_grades.sqlite")
    ship(graded, asked, target)


if __name__ == "__main__":
    main()
