"""With the thesis's own results in RAGBENCH_DATA its printed cells are recorded, exactly."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from ragbench.notebooks import execute, find

# Of four questions: the scores by level and the grade of an answer to them.
SCORES = [["0.125", "0.25"], ["0.5"], ["0.9"], ["0.05"]]
GRADES = [4, 5, 5, 1]


@pytest.fixture
def folder(tmp_path):
    """Lay out the author's folder: every retriever has the same answers, in another order."""
    systems = ["bm25", "sim", "mmr", "mlq", "reo"]
    place = tmp_path / "data" / "thesis"
    (place / "ir_scores").mkdir(parents=True)
    grades = [dict.fromkeys([*systems, "llm_only"], grade) for grade in GRADES]
    (place / "LLM_scores.json").write_text(json.dumps(grades))
    for shift, name in enumerate(systems):
        order = [(place + shift) % 4 for place in range(4)]
        rows = [[[float(mean), [float(mean)]] for mean in SCORES[at]] for at in order]
        scores = {"all_scores": rows, "all_P": [[f"Fact {at}."] for at in order]}
        (place / "ir_scores" / f"scores_{name}.json").write_text(json.dumps(scores))
    return tmp_path / "data"


@pytest.fixture
def recorded_cells(folder, tmp_path, monkeypatch):
    """Run a notebook on MiniHop with that folder; return what the author's files gave it."""
    out = tmp_path / "out"
    out.mkdir()
    for name, value in {"DATA": folder, "FIGURES": out, "RESULTS": out}.items():
        monkeypatch.setenv(f"RAGBENCH_{name}", str(value))

    def cells(name, **parameters):
        (path,) = (path for path in find() if path.stem.startswith(name))
        execute(path, {"DATA": "minihop", **parameters}, out / path.name, timeout_s=300)
        ledger = pd.read_csv(out / "ledger.csv")
        return ledger[ledger["recorded_by"].str.startswith("the author's files", na=False)]

    return cells


@pytest.mark.slow
def test_table_3_1_has_the_authors_means_and_how_many_questions_reach_n(recorded_cells):
    cells = recorded_cells("11", LIMIT=5)
    assert set(cells["column"]) == {"BM25", "SIM", "MMR", "MLQ", "REO"}
    cells = cells[cells["column"] == "REO"].set_index("row")
    # (.125 + .5 + .9 + .05) / 4 = .39375; then the one question that goes on
    assert cells["recorded"].to_dict() == {"100": 0.39, "200": 0.25}
    assert cells["n"].to_dict() == {"100": 4, "200": 1}


@pytest.mark.slow
def test_table_3_3_has_the_shares_of_the_authors_grades(recorded_cells):
    cells = recorded_cells("13", RESAMPLES=50)
    cells = cells[cells["row"] == "LLM only"].set_index("column")["recorded"]
    assert cells.to_dict() == {
        "grade 1": 0.25, "grade 2": 0, "grade 3": 0, "grade 4": 0.25, "grade 5": 0.5
    }  # fmt: skip


@pytest.mark.slow
def test_figures_3_1_and_3_2_and_the_thresholds_are_of_the_authors_points(recorded_cells):
    cells = recorded_cells("14", LIMIT=5, RESAMPLES=50)
    figure = cells[cells["item"] == "Figure 3.1"].set_index("row")["recorded"]
    assert figure.to_dict() == {"grade 5": 50, "grades 2, 3, 4": 25, "grade 1": 25}
    # last scores .25, .5, .9, .05: one above k = .670, one below h = .105
    regions = cells[(cells["item"] == "Figure 3.2") & (cells["row"] == "MMR")]
    regions = regions.set_index("column")["recorded"]
    assert regions.to_dict() == {"above k": 25, "between": 50, "below h": 25}
    # each answer by its own grade, though the rows of SIM to REO have another order: all agree
    values = cells[(cells["item"] == "Equation 3.1") & cells["recorded_by"].str.contains("five")]
    agreement = values[values["column"] == "value"].set_index("row")
    assert agreement["n"].to_dict() == {"h": 20, "k": 20}
    assert agreement.loc["k", "note"] == "any cut in [0.2500, 0.5000]"
    assert agreement.loc["h", "note"] == "any cut in [0.0500, 0.2500]"
