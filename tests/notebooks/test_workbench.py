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
    monkeypatch.setenv("RAGBENCH_FIGURES", str(tmp_path / "figures"))
    starts = ("from itertools", "DRAW", "words =", "reference = {", "ITEMS =")
    imports, draw, forms, table, ledger = cells(*starts)
    for source in (imports, draw, forms):
        exec(source, names)
    drawn = (len(names["graded"]), len(names["checks"]))
    assert drawn == (60, 80)
    shown = {heading for item in names["claims"] for heading in item.texts}
    assert shown == {"Question", "Text", "Claim"}
    exec(table, names)
    exec(ledger, names)
    assert names["people_beside"].empty
    assert not (tmp_path / "figures" / "ledger.csv").exists()
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
    exec(ledger, names)
    printed = rb.papers.write_markdown().read_text(encoding="utf-8")
    head = "### Reference labels, ours: ana, a person, beside the reference labels"
    assert printed.count(head) == 1  # of ClapNQ alone, under RAGChecker
    of_person = printed.split("## Ru et al.")[1].split(head)[1]
    of_reference = 10 * (labels[:10] == "1").sum()
    assert f"| {of_reference} | 90 |" in of_person
    assert "n = 10, none unscored; percent of the items" in of_person
