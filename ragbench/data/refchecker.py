"""RefChecker's benchmark: 10,733 claims labelled by people, on which a claim checker is validated (Table 16).

The labels are published, the texts they were made against are not: they are joined from the files that RefChecker's own
download script makes of the original sets (Natural Questions, MS MARCO, Dolly), when the user has those.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from ragbench.data.files import Filled, Plain, Row, as_record, each_record, read_list, read_records, shared_file
from ragbench.data.ragchecker import LABELS
from ragbench.errors import DataError

# The paper's three settings and the set each was made of.
SETTINGS = {"zero_context": "nq", "noisy_context": "msmarco", "accurate_context": "dolly"}
_FILE = ("refchecker", "human_annotations_v1.jsonl.gz")


class _Claim(Row):
    triplet: tuple[str, str, str]
    human_label: Literal[LABELS]  # type: ignore[valid-type]


class _LabelledResponse(Row):
    """A model's response as claim triples, each with a person's label.

    ``references`` are the passages the labels are about; they and ``question`` are empty without the original set.
    """

    id: Filled
    setting: Literal[tuple(SETTINGS)]  # type: ignore[valid-type]
    dataset: Literal[tuple(SETTINGS.values())]  # type: ignore[valid-type]
    model: Filled
    response: Plain
    labelled: Annotated[tuple[_Claim, ...], Field(alias="claims")]
    question: str = ""
    references: tuple[str, ...] = ()

    @property
    def claims(self) -> tuple[tuple[str, str, str], ...]:
        return tuple(claim.triplet for claim in self.labelled)

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(claim.human_label for claim in self.labelled)


class _Example(Row):
    id: str
    question: str
    context: tuple[str, ...]


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
    rows = read_records(path, _LabelledResponse)
    folder = Path(sources).expanduser() if sources is not None else path.parent
    if not folder.is_dir():
        raise DataError(f"there is no folder {folder}", "a folder with the original sets", "check the path")
    texts: dict[tuple[str, str], _Example] = {}
    for name in SETTINGS.values():
        for file in [*folder.glob(f"{name}.json"), *folder.glob(f"*_context/{name}.json")][:1]:
            examples = each_record(file, read_list(file), partial(as_record, _Example))
            texts |= {(name, example.id): example for example in examples}
            if missing := sorted({row.id for row in rows if row.dataset == name and (name, row.id) not in texts}):
                got = f"{file}: {len(missing)} labelled examples are not there (first: {missing[0]})"
                do = "complete it, or take it out of the folder to load the labels without references"
                raise DataError(got, f"the complete {name} set", do)
    joined = ((row, texts.get((row.dataset, row.id))) for row in rows)
    return tuple(
        row.model_copy(update={"question": text.question, "references": text.context}) if text else row
        for row, text in joined
    )
