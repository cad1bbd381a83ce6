"""Notebook 92's check of the reference labels: what is drawn, what is shown, and the table."""

import json

import pytest

import ragbench as rb
from ragbench.paths import project_root


def cells(*starts):
    """The cells that begin so, in the order given."""
    path = project_root() / "notebooks" / "92_workbench.ipynb"
    sources = ["".join(cell["source"]) for cell in json.loads(path.read_text())["cells"]]
    for start in starts:
        (source,) = [source for source in sources if source.startswith(start)]
        yield source


@pytest.mark.filterwarnings("ignore")
def test_a_persons_labels_stand_beside_the_reference_labels_and_nobody_sees_those(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("RAGBENCH_RESULTS", str(tmp_path))
    names = {"ANNOTATOR": "ana"}
    imports, draw, forms, table = cells("from itertools", "DRAW", "words =", "reference = {")
    for source in (imports, draw, forms):
        exec(source, names)
    drawn = (len(names["graded"]), len(names["checks"]))
    assert drawn == (60, 80)
    shown = {heading for item in names["claims"] for heading in item.texts}
    assert shown == {"Question", "Text", "Claim"}
    exec(table, names)
    assert names["people_beside"].empty
    labels = names["reference"]["ClapNQ, claims"]
    rows = [
        {"kind": "grade", "aspect": "grade", "annotator": "ana", "item": item, "label": label}
        for item, label in labels.iloc[:10].items()
    ]
    rows[0]["label"] = "1" if rows[0]["label"] != "1" else "2"
    rb.append_labels(tmp_path / "label_check" / "clapnq_ana.csv", rows)
    exec(table, names)
    (row,) = names["people_beside"].to_dict("records")
    assert (row["labels"], row["person"], row["n"]) == ("ClapNQ, claims", "ana", 10)
    assert row["agreement"].startswith("0.90 [")
