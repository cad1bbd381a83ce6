"""Draw the recorded answers that get reference labels, as data/minihop/ANALYSIS.md says, and lay them out blind.

    python scripts/draw_model_answers.py smollm2 FOLDER

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
from ragbench.data import load_minihop
from ragbench.papers.ragchecker import question_clusters
from ragbench.stats import stratified_draw

LABELS, SECOND = 250, 150
DRAW_SEED, ORDER_SEED, SECOND_SEED = 20261123, 20261124, 20261125


def draw(items: pd.DataFrame) -> pd.DataFrame:
    """Return the drawn items, shuffled, with id, inclusion probability, and place in the second pass (or none)."""
    drawn = stratified_draw(items["stratum"].astype(int), LABELS, seed=DRAW_SEED)
    probability = pd.Series(drawn, dtype=float).groupby(items["stratum"]).transform("mean")
    chosen = items.assign(inclusion_probability=probability)[drawn]
    chosen = chosen.iloc[np.random.default_rng(ORDER_SEED).permutation(len(chosen))].reset_index(drop=True)
    again = np.random.default_rng(SECOND_SEED).permutation(len(chosen))[:SECOND]
    place = pd.Series(pd.NA, index=chosen.index, dtype="Int64")
    place[again] = range(len(again))
    return chosen.assign(id=[f"a{number:03d}" for number in range(1, len(chosen) + 1)], second_pass=place)


def blind(chosen: pd.DataFrame) -> list[dict[str, Any]]:
    """Return what a grader sees of each item, and nothing else."""
    questions = {q.id: q for q in load_minihop().questions}
    return [
        {
            "id": row.id,
            "question": questions[row.question_id].text,
            "true_answer": questions[row.question_id].answer,
            "supporting_facts": list(questions[row.question_id].references),
            "answer": row.answer,
        }
        for row in chosen.itertuples()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recording")
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    told = recordings.manifest(given.recording)
    rows = recordings.rows(given.recording, "retrievers")
    items = recordings.answers_to_label(rows)
    chosen = draw(items)
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
    clusters = {c for q, c in question_clusters(load_minihop()).items() if q in ids}
    strata = {int(grade): int(n) for grade, n in items["stratum"].value_counts().sort_index().items()}
    counted = f"{len(ids)} questions, {len(clusters)} clusters, {len(items)} items, strata {strata}"
    print(f"Frame closed: {told['model']}, replies {told['file']['sha256']}, {counted}, {len(chosen)} drawn.")


if __name__ == "__main__":
    main()
