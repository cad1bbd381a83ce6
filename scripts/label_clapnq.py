"""Lay out the answers to ClapNQ's questions for claims and labels, and collect both (plan:
docs/preregistration/clapnq.md).

    python scripts/label_clapnq.py sheets ROWS FOLDER  # ROWS: folder of the run of `clapnq_grid`
    python scripts/label_clapnq.py collect FOLDER      # -> data/clapnq/claims.json and _second.json

`sheets` writes FOLDER/sheets.jsonl (what a labeller sees: a question a line, with texts under
neutral names) and FOLDER/key.json (what a labeller must not see: which system got which texts). The
labeller writes FOLDER/labels.jsonl, a line a question:

    {"id": "c01",
     "true_claims": [{"claim": "...", "answers": {"A1": "E", "A2": "N"},
                      "entailed_by": ["K2"], "contradicted_by": [], "together": []}],
     "answer_claims": {
         "A1": [{"claim": "...", "true_answer": "E", "entailed_by": [],
                 "contradicted_by": ["K4"], "together": [["K1", "K3"]]}],
         "A2": []}}

E, N, C: Entailment, Neutral, Contradiction; a chunk that is named nowhere is Neutral. `together`:
the smallest sets of chunks that entail the claim only together. `second` writes
FOLDER/second.jsonl: ten sheets with the claims of labels.jsonl and without their labels, for
FOLDER/labels_second.jsonl.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ragbench.data.ragchecker import RagResult, RagResults, RetrievedText
from ragbench.experiment import load_rows
from ragbench.papers.ragchecker import clapnq_grid

ORDER_SEED = 20261126
SECOND_SEED = 20261127
SECOND_SHEETS = 10
LABEL = {"E": "Entailment", "N": "Neutral", "C": "Contradiction"}
LABELS = Path("data/clapnq")


def sheets(rows: pd.DataFrame, chunks: Mapping[str, str]) -> tuple[list[dict], dict[str, dict]]:
    """Return a sheet a question, and the key: the texts of every system under the names of the
    sheet.

    ``rows``: with question_id, question, reference, retriever, answer and hits; ``chunks``: text by
    name.
    """
    rng = np.random.default_rng(ORDER_SEED)
    seen = []
    key = {}
    for number, (question_id, systems) in enumerate(rows.groupby("question_id", sort=False), 1):
        answers = _named("A", systems["answer"], rng)
        read = _named("K", (chunks[hit] for hits in systems["hits"] for hit in hits), rng)
        first = systems.iloc[0]
        name = f"c{number:02d}"
        seen.append({
            "id": name,
            "question": first["question"],
            "true_answer": first["reference"],
            "answers": {label: text for text, label in answers.items()},
            "chunks": {label: text for text, label in read.items()},
        })  # fmt: skip
        key[name] = {
            "question_id": question_id,
            "systems": {
                row.retriever: {
                    "answer": answers[row.answer],
                    "chunks": [read[chunks[hit]] for hit in row.hits],
                }
                for row in systems.itertuples()
            },
            "documents": {read[chunks[hit]]: hit for hits in systems["hits"] for hit in hits},
        }
    return seen, key


def _named(letter: str, texts: Iterable[str], rng: np.random.Generator) -> dict[str, str]:
    """Name different texts in random order: text -> name."""
    different = sorted(set(texts))
    rng.shuffle(different)
    return {text: f"{letter}{number}" for number, text in enumerate(different, 1)}


def second_sheets(seen: Sequence[dict], labels: Mapping[str, dict]) -> list[dict]:
    """Return the sheets that are labelled twice, with the claims that the first session wrote down."""
    drawn = np.random.default_rng(SECOND_SEED).permutation(len(seen))[:SECOND_SHEETS]
    again = []
    for place in sorted(drawn):
        sheet = seen[place]
        first = labels[sheet["id"]]
        claims = {
            "true_claims": [entry["claim"] for entry in first["true_claims"]],
            "answer_claims": {
                name: [entry["claim"] for entry in entries]
                for name, entries in first["answer_claims"].items()
            },
        }
        again.append(sheet | claims)
    return again


def collect(
    seen: Sequence[dict], key: Mapping[str, dict], labels: Mapping[str, dict]
) -> RagResults:
    """Return the results of every system in RAGChecker's format, with claims and labels."""
    results = []
    for sheet in seen:
        if sheet["id"] not in labels:
            continue
        label = labels[sheet["id"]]
        of = key[sheet["id"]]
        for system, texts in of["systems"].items():
            said = label["answer_claims"].get(texts["answer"], [])
            facts = label["true_claims"]
            names = texts["chunks"]
            results.append(
                RagResult(
                    f"{of['question_id']} {system}",
                    sheet["question"],
                    sheet["true_answer"],
                    sheet["answers"][texts["answer"]],
                    tuple(
                        RetrievedText(text=sheet["chunks"][name], doc_id=of["documents"][name])
                        for name in names
                    ),
                    response_claims=tuple(entry["claim"] for entry in said),
                    reference_claims=tuple(entry["claim"] for entry in facts),
                    response_in_reference=tuple(LABEL[entry["true_answer"]] for entry in said),
                    reference_in_response=tuple(
                        LABEL[entry["answers"][texts["answer"]]] for entry in facts
                    ),
                    response_in_chunks=tuple(_in_chunks(entry, names) for entry in said),
                    reference_in_chunks=tuple(_in_chunks(entry, names) for entry in facts),
                    extra={
                        "question_id": of["question_id"],
                        "retriever": system,
                        "response_in_retrieved": [_in_retrieved(entry, names) for entry in said],
                        "reference_in_retrieved": [_in_retrieved(entry, names) for entry in facts],
                    },
                )
            )
    return RagResults(tuple(results))


def _in_chunks(entry: Mapping[str, Any], names: Sequence[str]) -> tuple[str, ...]:
    """Label a claim against each chunk."""
    known = dict.fromkeys(entry["contradicted_by"], "Contradiction") | dict.fromkeys(
        entry["entailed_by"], "Entailment"
    )
    return tuple(known.get(name, "Neutral") for name in names)


def _in_retrieved(entry: Mapping[str, Any], names: Sequence[str]) -> str:
    """Label a claim against the chunks together."""
    sets = [{name} for name in entry["entailed_by"]] + [
        set(together) for together in entry["together"]
    ]
    if any(together <= set(names) for together in sets):
        return "Entailment"
    return "Contradiction" if set(entry["contradicted_by"]) & set(names) else "Neutral"


def check(seen: Sequence[dict], labels: Mapping[str, dict]) -> list[str]:
    """Say what is missing or misnamed in labels."""
    wrong = []
    for sheet in seen:
        label = labels.get(sheet["id"])
        if label is None:
            wrong.append(f"{sheet['id']}: no labels")
            continue
        if not label["true_claims"]:
            wrong.append(f"{sheet['id']}: no claim of the true answer")
        if set(label["answer_claims"]) != set(sheet["answers"]):
            wrong.append(
                f"{sheet['id']}: claims of {sorted(label['answer_claims'])}, not "
                f"{sorted(sheet['answers'])}"
            )
        of_answers = [
            (name, entry) for name, entries in label["answer_claims"].items() for entry in entries
        ]
        for name, entry in [
            *of_answers,
            *(("true answer", entry) for entry in label["true_claims"]),
        ]:
            lists = [entry["entailed_by"], entry["contradicted_by"], *entry["together"]]
            named = set().union(*lists)
            wrong += [
                f"{sheet['id']} {name}: no chunk {chunk!r}"
                for chunk in sorted(named - set(sheet["chunks"]))
            ]
            if both := set(entry["entailed_by"]) & set(entry["contradicted_by"]):
                wrong.append(
                    f"{sheet['id']} {name}: {sorted(both)} entail and contradict {entry['claim']!r}"
                )
            words = (
                entry["answers"] if name == "true answer" else {"true answer": entry["true_answer"]}
            )
            if name == "true answer" and set(words) != set(sheet["answers"]):
                wrong.append(f"{sheet['id']}: {entry['claim']!r} is held against {sorted(words)}")
            wrong += [
                f"{sheet['id']} {name}: the label {word!r}"
                for word in words.values()
                if word not in LABEL
            ]
    return wrong


def read_lines(path: Path) -> list[dict]:
    """Read JSON lines."""
    return [
        json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()
    ]


def write_lines(path: Path, records: Iterable[dict]) -> None:
    """Write records as JSON lines."""
    path.write_text(
        "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records),
        encoding="utf-8",
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("step", choices=("sheets", "second", "collect"))
    parser.add_argument("paths", type=Path, nargs="+")
    given = parser.parse_args()
    folder = given.paths[-1]
    if given.step == "sheets":
        (data,) = clapnq_grid().data.values()
        (cut,) = clapnq_grid().chunker.values()
        rows = load_rows(given.paths[0])
        rows = rows[rows["status"].eq("ok")]
        seen, key = sheets(rows, {chunk.id: chunk.text for chunk in cut(data.documents)})
        folder.mkdir(parents=True, exist_ok=True)
        write_lines(folder / "sheets.jsonl", seen)
        (folder / "key.json").write_text(json.dumps(key), encoding="utf-8")
        print(
            f"Frame closed: {', '.join(sorted(set(rows['model'])))}, {len(seen)} questions, "
            f"{len(rows)} answers."
        )
        return
    seen = read_lines(folder / "sheets.jsonl")
    for name in ("labels", "labels_second"):
        if not (file := folder / f"{name}.jsonl").is_file():
            continue
        labels = {label["id"]: label for label in read_lines(file)}
        wanted = [sheet for sheet in seen if name == "labels" or sheet["id"] in labels]
        if wrong := check(wanted, labels):
            raise SystemExit("\n".join(wrong))
        if given.step == "second":
            write_lines(folder / "second.jsonl", second_sheets(seen, labels))
            return
        key = json.loads((folder / "key.json").read_text(encoding="utf-8"))
        file = LABELS / f"{name.replace('labels', 'claims')}.json"
        results = collect(seen, key, labels)
        file.write_text(json.dumps(results.to_dict(), indent=2), encoding="utf-8")
        print(f"{file}: {len(results.results)} results")


if __name__ == "__main__":
    main()
