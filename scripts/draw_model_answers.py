"""Lay out the recorded answers that get reference labels, blind, as docs/preregistration/minihop.md says.

    python scripts/draw_model_answers.py evidence FOLDER        # all of the evidence experiment
    python scripts/draw_model_answers.py probes FOLDER          # all answers to the probes
    python scripts/draw_model_answers.py alone FOLDER           # Qwen's to the question alone
    python scripts/draw_model_answers.py thesis FOLDER          # Qwen's, five retrievers, N = 1000
    python scripts/draw_model_answers.py budgets FOLDER         # SmolLM2's with BM25 at eleven N
    python scripts/draw_model_answers.py claims FOLDER          # claims of 150 answers of Qwen
    python scripts/draw_model_answers.py claims_1000 FOLDER     # the same at N = 1000
    python scripts/draw_model_answers.py claims_prompts FOLDER  # under RAGChecker's two prompts

*claims* are those of the answers and of their references.

Writes FOLDER/items.jsonl (what a grader sees: id, question, true answer, supporting facts, answer;
shuffled), FOLDER/second_pass.jsonl (some of them again, in another order) and FOLDER/key.jsonl
(what a grader must not see: which answer an id is), and prints the line that closes the frame in
docs/preregistration/minihop.md. For
*claims*, items.jsonl holds a question a line with claims and texts, and key.json the same as
RAGChecker's results.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ragbench.data import load_minihop
from ragbench.data.ragchecker import RagResult, RagResults, RetrievedText
from ragbench.rows import answers_of
from ragbench.stats.clusters import document_clusters
from ragbench.text.sentences import split_sentences

sys.path.append(str(Path(__file__).parents[1] / "notebooks"))
import recorded

SECOND = 150
# letter of the ids, seeds of the order and of the second pass, size of the second pass
CENSUSES = {
    "evidence": ("e", 20261127, 20261126, SECOND),
    "probes": ("p", 20261129, 20261128, SECOND),
    "alone": ("n", 20261204, 20261205, SECOND),
    "thesis": ("t", 20261206, 20261207, 60),
    "budgets": ("b", 20261211, 20261212, 60),
}
ANSWERED = ("smollm2", "qwen")  # the recordings under the thesis's prompt
# recording, grid, N
_AT_N = {"alone": ("qwen", "retrievers", 0), "thesis": ("qwen", "thesis", 1000)}

CHECKED = 50
SYSTEMS = ("BM25", "SIM", "REO")
SECOND_SHEETS = 10
CLAIMS = {  # recording, grid, N, seed, the axis of the systems
    "claims": ("qwen", "retrievers", 300, 20261130, "retriever"),
    "claims_1000": ("qwen", "thesis", 1000, 20261208, "retriever"),
    "claims_prompts": ("qwen_prompts", "prompts", 1000, 20261213, "generator"),
}


def census(rows: pd.DataFrame, name: str = "evidence") -> pd.DataFrame:
    """Return every distinct answer of an experiment, shuffled, with id and place in the second
    pass.
    """
    return shuffled(distinct_answers(rows)[["question_id", "answer"]], *CENSUSES[name])


def distinct_answers(rows: pd.DataFrame) -> pd.DataFrame:
    """Return what gets a reference label, once each: the distinct pairs of question and answer.

    Columns: question_id, answer, retrievers (the list of those that led to the answer); ordered by
    question and SHA-256 of the answer.
    """
    distinct = (
        rows[rows["status"].eq("ok")]
        .groupby(["question_id", "answer"], as_index=False)
        .agg(retrievers=("retriever", list))
    )
    distinct["hash"] = [
        hashlib.sha256(answer.encode()).hexdigest() for answer in distinct["answer"]
    ]
    return distinct.sort_values(["question_id", "hash"], ignore_index=True).drop(columns="hash")


def rows_of(name: str) -> pd.DataFrame:
    """Return the replayed rows whose answers are labelled."""
    if name == "evidence":
        return recorded.evidence_rows()
    if name == "probes":
        return pd.concat([recorded.rows(model, "probes") for model in ANSWERED], ignore_index=True)
    if name in _AT_N:
        recording, grid, n = _AT_N[name]
        answered = recorded.rows(recording, grid)
        return answered[answered["N"].eq(n)]
    return recorded.rows("smollm2", "budgets")


def shuffled(
    items: pd.DataFrame, letter: str, order_seed: int, second_seed: int, second: int
) -> pd.DataFrame:
    """Return items in the order in which they are labelled."""
    chosen = items.iloc[np.random.default_rng(order_seed).permutation(len(items))].reset_index(
        drop=True
    )
    again = np.random.default_rng(second_seed).permutation(len(chosen))[:second]
    place = pd.Series(pd.NA, index=chosen.index, dtype="Int64")
    place[again] = range(len(again))
    return chosen.assign(
        id=[f"{letter}{number:03d}" for number in range(1, len(chosen) + 1)], second_pass=place
    )


def blind(chosen: pd.DataFrame) -> list[dict[str, Any]]:
    """Return what a grader sees of each item, and nothing else."""
    questions = {
        q.id: q for data in (load_minihop(), load_minihop(probes=True)) for q in data.questions
    }
    return [
        {
            "id": row.id,
            "question": questions[row.question_id].text,
            "true_answer": questions[row.question_id].answer,
            "supporting_facts": list(questions[row.question_id].references)
            or [questions[row.question_id].meta["reasoning"]],
            "answer": row.answer,
        }
        for row in chosen.itertuples()
    ]


def to_check(name: str) -> list[RagResult]:
    """Return what RAGChecker checks: response, reference, their claims, and what the generator
    read.
    """
    recording, grid, n, _, axis = CLAIMS[name]
    rows = recorded.rows(recording, grid)
    first = list(dict.fromkeys(rows["question_id"]))[:CHECKED]
    wanted = rows["question_id"].isin(first) & rows["retriever"].isin(SYSTEMS) & rows["N"].eq(n)
    results = []
    for row in answers_of(rows[wanted]).itertuples():
        claims = (f'The answer to "{row.question}" is: {row.reference}.', *row.references)
        results.append(
            RagResult(
                f"{row.question_id} {getattr(row, axis)}",
                row.question,
                "\n".join(claims),
                row.answer,
                tuple(
                    RetrievedText(text=text, doc_id=name)
                    for text, name in zip(row.chunks, row.retrieved, strict=False)
                ),
                response_claims=split_sentences(row.answer, "claims"),
                reference_claims=claims,
                extra={"question_id": row.question_id, axis: getattr(row, axis)},
            )
        )
    return results


def claim_sheets(results: list[RagResult], seed: int) -> list[dict[str, Any]]:
    """Lay out each question once: its texts under neutral names, shuffled, and the claims to hold
    against them.
    """
    sheets: dict[str, dict[str, Any]] = {}
    rng = np.random.default_rng(seed)
    for result in results:
        sheet = sheets.setdefault(
            result.extra["question_id"],
            {
                "question": result.question,
                "reference": result.reference_claims,
                "read": set(),
                "answers": {},
            },
        )
        sheet["read"] |= {chunk.text for chunk in result.chunks}
        sheet["answers"][result.response] = result.response_claims
    laid_out = []
    for number, (name, sheet) in enumerate(sheets.items(), 1):
        texts = sorted(sheet["read"])
        answers = sorted(sheet["answers"])
        rng.shuffle(texts)
        rng.shuffle(answers)
        claims = {f"R{i}": claim for i, claim in enumerate(sheet["reference"], 1)}
        for i, answer in enumerate(answers, 1):
            claims |= {f"A{i}.{j}": claim for j, claim in enumerate(sheet["answers"][answer], 1)}
        named = {f"K{i}": text for i, text in enumerate(texts, 1)} | {
            f"A{i}": text for i, text in enumerate(answers, 1)
        }
        laid_out.append(
            {
                "id": f"c{number:02d}",
                "question_id": name,
                "question": sheet["question"],
                "claims": claims,
                "texts": named,
            }
        )
    return laid_out


def second_sheets(sheets: list[dict[str, Any]], seed: int) -> list[dict[str, Any]]:
    """Return the sheets that are judged twice."""
    again = np.random.default_rng(seed + 1).permutation(len(sheets))[:SECOND_SHEETS]
    return [sheets[i] for i in sorted(again)]


def write_claims(folder: Path, name: str) -> None:
    """Write the sheets, with ten of them for a second pass, and the results that the labels will
    fill.
    """
    recording, *_, seed, _ = CLAIMS[name]
    results = to_check(name)
    sheets = claim_sheets(results, seed)
    write_lines(folder / "items.jsonl", sheets)
    write_lines(folder / "second_pass.jsonl", second_sheets(sheets, seed))
    key = json.dumps(RagResults(tuple(results)).to_dict(), indent=2)
    (folder / "key.json").write_text(key, encoding="utf-8")
    about = recorded.manifest(recording)
    counted = f"{len(sheets)} questions, {len(results)} answers"
    print(f"Frame closed: {about['model']}, replies {about['file']['sha256']}, {counted}.")


def write_lines(path: Path, records: list[dict[str, Any]]) -> None:
    """Write records as JSON lines."""
    path.write_text(
        "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records),
        encoding="utf-8",
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("recording", choices=[*CENSUSES, *CLAIMS])
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=False)
    if given.recording in CLAIMS:
        return write_claims(given.folder, given.recording)
    rows = rows_of(given.recording)
    written = set(rows["model"])
    names = [name for name in ANSWERED if recorded.manifest(name)["model"] in written]
    chosen = census(rows, given.recording)
    write = {
        "items": blind(chosen),
        "second_pass": blind(chosen.dropna(subset="second_pass").sort_values("second_pass")),
        "key": json.loads(chosen.to_json(orient="records", double_precision=15)),
    }
    for name, records in write.items():
        write_lines(given.folder / f"{name}.jsonl", records)
    ids = set(rows["question_id"])
    known = document_clusters(load_minihop())
    clusters = {known.get(name, name) for name in ids}
    counted = f"{len(ids)} questions, {len(clusters)} clusters, {len(chosen)} items"
    files = "; ".join(
        f"{m['model']}, replies {m['file']['sha256']}" for m in map(recorded.manifest, names)
    )
    print(f"Frame closed: {files}, {counted}, all labelled.")


if __name__ == "__main__":
    main()
