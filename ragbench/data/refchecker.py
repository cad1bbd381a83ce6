"""RefChecker's benchmark: 10,733 claims labelled by people, on which a claim checker is validated (Table 16).

The labels are published, the texts they were made against are not: they are joined from the files that RefChecker's own
download script makes of the original sets (Natural Questions, MS MARCO, Dolly), when the user has those.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

from ragbench.data.files import Filled, Plain, Row, as_record, each_record, read_json, read_records, shared_file
from ragbench.data.ragchecker import LABELS
from ragbench.errors import DataError

# The paper's three settings and the set each was made of.
SETTINGS = {"zero_context": "nq", "noisy_context": "msmarco", "accurate_context": "dolly"}
_FILE = ("refchecker", "human_annotations_v1.jsonl.gz")


@dataclass(frozen=True, slots=True)
class _LabelledResponse:
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


def load_refchecker(path: str | Path | None = None, sources: str | Path | None = None) -> tuple[_LabelledResponse, ...]:
    """Load RefChecker's human claim labels, with the reference texts when the original sets are there.

    Parameters
    ----------
    path : JSON-lines file with setting, dataset, model, id, response, claims (triplet and human_label each). Default:
        ``RAGBENCH_DATA/refchecker/human_annotations_v1.jsonl.gz``.
    sources : folder with any of RefChecker's ``nq.json``, ``msmarco.json``, ``dolly.json``, as its own download script
        makes them, in it or in folders such as ``zero_context``. Default: the folder of ``path``. Without its file a
        set stays without references.

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
    texts = {name: _texts(folder, name, {row.id for row in rows if row.dataset == name}) for name in SETTINGS.values()}
    joined = [(row, texts[row.dataset].get(row.id, ("", ()))) for row in rows]
    return tuple(replace(row, question=question, references=references) for row, (question, references) in joined)


class _Claim(Row):
    triplet: tuple[str, str, str]
    human_label: Literal[LABELS]  # type: ignore[valid-type]


class _Example(Row):
    id: str
    question: str
    context: tuple[str, ...]


class _Labelled(Row):
    id: Filled
    setting: Filled
    dataset: Filled
    model: Filled
    response: Plain
    claims: tuple[_Claim, ...]


def _response(row: _Labelled, where: str) -> _LabelledResponse:
    if SETTINGS.get(row.setting) != row.dataset:
        pairs = ", ".join(f"{setting} with {dataset}" for setting, dataset in SETTINGS.items())
        got = f"{where} (id {row.id!r}, {row.model}): setting {row.setting!r} with dataset {row.dataset!r}"
        raise DataError(got, f"one of {pairs}")
    claims = tuple(claim.triplet for claim in row.claims)
    labels = tuple(claim.human_label for claim in row.claims)
    return _LabelledResponse(row.id, row.setting, row.dataset, row.model, row.response, claims, labels)


def _texts(folder: Path, dataset: str, ids: set[str]) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Return question and reference passages of the examples, where the folder holds the set."""
    files = [*folder.glob(f"{dataset}.json"), *folder.glob(f"*_context/{dataset}.json")]
    if not files or not ids:
        return {}
    file = files[0]
    numbered = ((f"record {number}", row) for number, row in enumerate(read_json(file)))
    texts = {row.id: (row.question, row.context) for row in each_record(file, numbered, partial(as_record, _Example))}
    if missing := sorted(ids - texts.keys()):
        got = f"{file}: {len(missing)} of {len(ids)} labelled examples are not there (first: {missing[0]})"
        do = "complete it, or take it out of the folder to load the labels without references"
        raise DataError(got, f"the complete {dataset} set", do)
    return texts
