"""RefChecker's benchmark: 10,733 claims labelled by people, on which a claim checker is validated (Table 16).

The labels are published, the texts they were made against are not: they are joined from the original sets (Natural
Questions, MS MARCO, Dolly), or from the files RefChecker's own download script makes of them, when the user has those.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from ragbench.data.files import Filled, Plain, Row, bounded_lines, read_json, read_records, shared_file
from ragbench.data.ragchecker import LABELS
from ragbench.errors import DataError

# The paper's three settings and the set each was made of.
SETTINGS = {"zero_context": "nq", "noisy_context": "msmarco", "accurate_context": "dolly"}
_Texts = tuple[str, tuple[str, ...]]
_Examples = Iterator[tuple[str, str, tuple[str, ...]]]
_FILE = ("refchecker", "human_annotations_v1.jsonl.gz")


@dataclass(frozen=True, slots=True)
class LabelledResponse:
    """A model's response as claim triples, each with a person's label.

    ``references`` are the passages the labels are about; they and ``question`` are empty without the original set.
    """

    id: str
    setting: str
    dataset: str
    model: str
    response: str
    claims: tuple[tuple[str, str, str], ...]
    labels: tuple[str, ...]
    question: str = ""
    references: tuple[str, ...] = ()


def load_refchecker(path: str | Path | None = None, sources: str | Path | None = None) -> tuple[LabelledResponse, ...]:
    """Load RefChecker's human claim labels, with the reference texts when the original sets are there.

    Parameters
    ----------
    path : JSON-lines file with setting, dataset, model, id, response, claims (triplet and human_label each). Default:
        ``RAGBENCH_DATA/refchecker/human_annotations_v1.jsonl.gz``.
    sources : folder with any of ``nq-dev-*.jsonl`` (Natural Questions 1.0), ``dev_v2.1.json`` (MS MARCO),
        ``databricks-dolly-15k.jsonl``, each plain or gzip, or RefChecker's gathered ``nq.json``, ``msmarco.json``,
        ``dolly.json``. Default: the folder of ``path``. What is not there stays without reference.

    Returns
    -------
    2,100 responses (100 examples x 7 models x 3 settings) in the published file; 195 of them have no claim, for they
    decline to answer.

    Source: RAGChecker, appendix G, Table 16 (RefChecker benchmark).
    """
    path = shared_file(path, *_FILE, name="RefChecker's benchmark", do="set RAGBENCH_DATA, or give the file as path")
    rows = read_records(path, _Labelled, _response)
    folder = Path(sources).expanduser() if sources is not None else path.parent
    if not folder.is_dir():
        raise DataError(f"there is no folder {folder}", "a folder with the original sets", "check the path")
    texts = {name: _join(folder, name, {row.id for row in rows if row.dataset == name}) for name in _FORMS}
    joined = [(row, texts[row.dataset].get(row.id, ("", ()))) for row in rows]
    return tuple(replace(row, question=question, references=references) for row, (question, references) in joined)


class _Claim(Row):
    triplet: tuple[str, str, str]
    human_label: Literal[LABELS]  # type: ignore[valid-type]


class _Labelled(Row):
    id: Filled
    setting: Filled
    dataset: Filled
    model: Filled
    response: Plain
    claims: tuple[_Claim, ...]


def _response(row: _Labelled, where: str) -> LabelledResponse:
    if SETTINGS.get(row.setting) != row.dataset:
        pairs = ", ".join(f"{setting} with {dataset}" for setting, dataset in SETTINGS.items())
        got = f"{where} (id {row.id!r}, {row.model}): setting {row.setting!r} with dataset {row.dataset!r}"
        raise DataError(got, f"one of {pairs}")
    claims = tuple(claim.triplet for claim in row.claims)
    labels = tuple(claim.human_label for claim in row.claims)
    return LabelledResponse(row.id, row.setting, row.dataset, row.model, row.response, claims, labels)


def _join(folder: Path, dataset: str, ids: set[str]) -> dict[str, _Texts]:
    """Return question and reference passages of the examples, from the first form of the set that the folder holds."""
    for pattern, read in _FORMS[dataset].items():
        files = sorted([*folder.glob(pattern), *folder.glob(f"{pattern}.gz"), *folder.glob(f"*_context/{pattern}")])
        texts: dict[str, _Texts] = {}
        for file in files if ids else ():
            try:
                texts |= {name: (question, passages) for name, question, passages in read(file, ids) if name in ids}
            except (KeyError, TypeError, IndexError, ValueError) as error:
                got = f"{file}: not {dataset} as published ({type(error).__name__}: {error})"
                do = "download it again, or take it out of the folder"
                raise DataError(got, f"the unmodified file {pattern}", do) from error
        if files and (lacking := sorted(ids - texts.keys())):
            got = f"{len(lacking)} of {len(ids)} labelled examples are not there (first: {lacking[0]})"
            do = "complete it, or take it out of the folder to load the labels without references"
            raise DataError(f"{', '.join(map(str, files))}: {got}", f"the complete {dataset} set", do)
        if files:
            return texts
    return {}


# Each reader yields id, question and reference passages of the examples; `ids` are those that are wanted.


def _gathered(file: Path, ids: set[str]) -> _Examples:
    """RefChecker's own form: a list of id, question and context (list of passages)."""
    for row in read_json(file):
        yield row["id"], row["question"], tuple(row["context"])


def _dolly(file: Path, ids: set[str]) -> _Examples:
    """The id is the number of the row, from 0."""
    for number, row in enumerate(_lines(file)):
        yield str(number), row["instruction"], (row["context"],)


def _msmarco(file: Path, ids: set[str]) -> _Examples:
    """One object of columns, each from row number to value."""
    columns = read_json(file)
    for row, name in columns["query_id"].items():
        if str(name) in ids:
            yield str(name), columns["query"][row], tuple(p["passage_text"] for p in columns["passages"][row])


def _nq(file: Path, ids: set[str]) -> _Examples:
    """The reference is the first long answer that comes with a short one, without its HTML tokens."""
    for row in _lines(file):
        for note in row["annotations"] if str(row["example_id"]) in ids else ():
            words = row["document_tokens"]
            long = _words(words, note["long_answer"])
            if long and any(_words(words, span) for span in note["short_answers"]):
                yield str(row["example_id"]), row["question_text"], (long,)
                break


def _words(tokens: list[dict], span: dict) -> str:
    return " ".join(t["token"] for t in tokens[span["start_token"] : span["end_token"]] if not t["html_token"]).strip()


def _lines(file: Path) -> Iterator[dict[str, Any]]:
    # These files have gigabytes and long lines: one record in memory at a time.
    with gzip.open(file, "rt", encoding="utf-8") if file.suffix == ".gz" else open(file, encoding="utf-8") as lines:
        for line in bounded_lines(lines, file):
            yield json.loads(line)


_FORMS: dict[str, dict[str, Callable[[Path, set[str]], _Examples]]] = {
    "nq": {"nq.json": _gathered, "nq-dev-*.jsonl": _nq},
    "msmarco": {"msmarco.json": _gathered, "dev_v2.1.json": _msmarco},
    "dolly": {"dolly.json": _gathered, "databricks-dolly-15k.jsonl": _dolly},
}
