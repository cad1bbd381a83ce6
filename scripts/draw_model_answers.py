"""Draw the recorded answers that get reference labels, as data/minihop/ANALYSIS.md says, and lay them out blind.

    python scripts/draw_model_answers.py smollm2 FOLDER     # the stratified draw from five retrievers' answers
    python scripts/draw_model_answers.py evidence FOLDER    # all answers of the evidence experiment
    python scripts/draw_model_answers.py probes FOLDER      # all answers to the probes

Writes FOLDER/items.jsonl (what a grader sees: id, question, true answer, supporting facts, answer; shuffled),
FOLDER/second_pass.jsonl (some of them again, in another order) and FOLDER/key.jsonl (what a grader must not see: which
answer an id is, stratum, inclusion probability), and prints the line that closes the frame in ANALYSIS.md.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ragbench import recordings
from ragbench.data import load_minihop, load_minihop_probes
from ragbench.papers.ragchecker import question_clusters
from ragbench.recordings import distinct_answers
from ragbench.stats import stratified_draw

LABELS, SECOND = 250, 150
DRAW_SEED, ORDER_SEED, SECOND_SEED = 20261123, 20261124, 20261125
CENSUS_SEEDS = {"evidence": (20261127, 20261126), "probes": (20261129, 20261128)}  # of the order, of the second pass


def draw(items: pd.DataFrame) -> pd.DataFrame:
    """Return the drawn items, shuffled, with id, inclusion probability, and place in the second pass (or none)."""
    drawn = stratified_draw(items["stratum"].astype(int), LABELS, seed=DRAW_SEED)
    probability = pd.Series(drawn, dtype=float).groupby(items["stratum"]).transform("mean")
    return shuffled(items.assign(inclusion_probability=probability)[drawn], "a", ORDER_SEED, SECOND_SEED)


def census(rows: pd.DataFrame, name: str = "evidence") -> pd.DataFrame:
    """Return every distinct answer of an experiment, shuffled, with id and place in the second pass."""
    items = distinct_answers(rows)[["question_id", "answer"]].assign(inclusion_probability=1.0)
    return shuffled(items, name[0], *CENSUS_SEEDS[name])


def rows_of(name: str) -> pd.DataFrame:
    """Return the replayed rows whose answers are labelled."""
    if name == "evidence":
        return recordings.evidence_rows()
    if name == "probes":
        return pd.concat([recordings.rows(model, "probes") for model in recordings.RECORDINGS], ignore_index=True)
    return recordings.rows(name, "retrievers")


def shuffled(items: pd.DataFrame, letter: str, order_seed: int, second_seed: int) -> pd.DataFrame:
    """Return items in the order in which they are labelled."""
    chosen = items.iloc[np.random.default_rng(order_seed).permutation(len(items))].reset_index(drop=True)
    again = np.random.default_rng(second_seed).permutation(len(chosen))[:SECOND]
    place = pd.Series(pd.NA, index=chosen.index, dtype="Int64")
    place[again] = range(len(again))
    return chosen.assign(id=[f"{letter}{number:03d}" for number in range(1, len(chosen) + 1)], second_pass=place)


def blind(chosen: pd.DataFrame) -> list[dict[str, Any]]:
    """Return what a grader sees of each item, and nothing else."""
    questions = {q.id: q for data in (load_minihop(), load_minihop_probes()) for q in data.questions}
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recording")
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    whole = given.recording in CENSUS_SEEDS
    names = list(recordings.RECORDINGS) if whole else [given.recording]
    rows = rows_of(given.recording)
    items = distinct_answers(rows) if whole else recordings.answers_to_label(rows)
    chosen = census(rows, given.recording) if whole else draw(items)
    given.folder.mkdir(parents=True, exist_ok=False)
    write = {
        "items": blind(chosen),
        "second_pass": blind(chosen.dropna(subset="second_pass").sort_values("second_pass")),
        "key": json.loads(chosen.to_json(orient="records", double_precision=15)),
    }
    for name, records in write.items():
        text = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
        (given.folder / f"{name}.jsonl").write_text(text, encoding="utf-8")
    ids = set(rows["question_id"])
    known = question_clusters(load_minihop())
    clusters = {known.get(name, name) for name in ids}
    counted = f"{len(ids)} questions, {len(clusters)} clusters, {len(items)} items"
    if not whole:
        counted += (
            f", strata { {int(grade): int(n) for grade, n in items['stratum'].value_counts().sort_index().items()} }"
        )
    files = "; ".join(f"{m['model']}, replies {m['file']['sha256']}" for m in map(recordings.manifest, names))
    print(f"Frame closed: {files}, {counted}, {len(chosen)} drawn.")


if __name__ == "__main__":
    main()
