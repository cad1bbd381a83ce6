"""Published numbers and the ledger."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from ragbench import papers
from ragbench.errors import ConfigError


@pytest.fixture(autouse=True)
def own_figures(tmp_path, monkeypatch):
    monkeypatch.setenv("RAGBENCH_FIGURES", str(tmp_path))
    return tmp_path


def cells(**columns) -> pd.DataFrame:
    return pd.DataFrame({"row": ["100"], "column": ["BM25"], "value": [0.41]} | columns)


def test_table_3_1_is_transcribed_cell_by_cell():
    table = papers.published("thesis", "Table 3.1").pivot(index="row", columns="column", values="value")
    table.index = table.index.astype(int)
    table = table.sort_index()
    assert table.shape == (10, 5)
    # column sums of the thesis's table, added up from the print
    assert table.sum().round(2).to_dict() == {"BM25": 5.4, "MLQ": 3.82, "MMR": 4.16, "REO": 2.22, "SIM": 4.52}
    assert table.loc[1000].to_dict() == {"BM25": 0.62, "MLQ": 0.43, "MMR": 0.46, "REO": 0.26, "SIM": 0.52}
    assert (table.diff().dropna() >= 0).all().all()
    assert (table["BM25"] > table["SIM"]).all()


def test_table_3_2_counts_a_hundred_answers_in_every_row():
    table = papers.published("thesis", "Table 3.2").pivot(index="row", columns="column", values="value")
    assert (table.filter(like="grade").sum(axis=1) == 100).all()
    assert table["seconds"].sum() == pytest.approx(9.69)
    assert table.loc["1000", "grade 5"] == 57


def test_table_3_3_and_figure_3_2_add_up_to_rounding():
    shares = papers.published("thesis", "Table 3.3").groupby("row")["value"].sum()
    assert shares.round(2).to_dict() == {"LLM only": 1.0, "BM25": 0.99, "SIM": 1.0, "MMR": 1.0, "MLQ": 1.01, "REO": 1.0}
    panels = papers.published("thesis", "Figure 3.2").groupby("row")["value"].sum()
    assert ((panels - 100).abs() < 0.02).all()


def test_thresholds_and_the_count_of_calls():
    h_k = papers.published("thesis", "Equation 3.1").set_index("row")["value"].to_dict()
    assert h_k == {"h": 0.105, "k": 0.67}
    calls = papers.published("thesis", "Section 3.2.1").set_index("row")["value"].to_dict()
    assert calls == {"grading calls": 7404 * 5, "generations": 7404 + 10 * 7404 * 5}


def test_every_published_cell_is_in_the_ledger_before_anything_is_measured():
    frame = papers.ledger("thesis", "Table 3.1")
    assert len(frame) == 50
    assert frame["published"].notna().all()
    assert frame["ours"].isna().all()


def test_measured_cells_stand_beside_the_published_ones_and_are_replaced_by_the_same_maker():
    papers.record("thesis", "Table 3.1", cells(n=[10]), by="first")
    papers.record("thesis", "Table 3.1", cells(value=[0.5], n=[20], unscored=[3]), by="first")
    papers.record("thesis", "Table 3.1", cells(value=[0.3]), by="second")
    frame = papers.ledger("thesis", "Table 3.1")
    mine = frame[(frame["row"] == "100") & (frame["column"] == "BM25")]
    assert mine[["published", "ours", "ours_by"]].values.tolist() == [[0.4, 0.5, "first"], [0.4, 0.3, "second"]]
    assert mine.iloc[0][["n", "unscored"]].tolist() == [20, 3]
    assert len(frame) == 51


def test_file_of_the_ledger_has_the_contracts_columns_and_survives_a_second_reading(own_figures):
    papers.record("thesis", "Table 3.1", cells(note=["a, b"]), by="x")
    written = pd.read_csv(own_figures / "ledger.csv")
    assert list(written.columns) == papers.COLUMNS
    before = papers.ledger()
    papers.record("thesis", "Table 3.2", cells(column=["seconds"], value=[0.2]), by="x")
    after = papers.ledger()
    assert len(before) == len(after)
    assert after[after["note"] == "a, b"].iloc[0]["ours"] == 0.41


def test_recorded_and_ours_are_apart_and_the_difference_prefers_ours():
    papers.record("thesis", "Table 3.1", cells(value=[0.1]), by="others", recorded=True)
    row = papers.side_by_side("thesis", "Table 3.1").iloc[0]
    assert (row["recorded"], row["by"]) == (0.1, "others")
    assert math.isnan(row["ours"])
    assert row["difference"] == pytest.approx(-0.3)
    papers.record("thesis", "Table 3.1", cells(column=["SIM"], value=[0.44]), by="me")
    table = papers.side_by_side("thesis", "Table 3.1")
    assert table[table["column"] == "SIM"].iloc[0]["difference"] == pytest.approx(0.1)


def test_cells_beyond_the_paper_stand_last():
    papers.record("thesis", "Table 3.1", cells(column=["Hybrid"]), by="x")
    papers.record("thesis", "Beyond", cells(), by="x")
    frame = papers.ledger("thesis")
    assert frame.iloc[-1]["item"] == "Beyond"
    assert frame[frame["item"] == "Table 3.1"].iloc[-1]["column"] == "Hybrid"
    table = papers.ledger("thesis", "Table 3.1")
    assert pd.isna(table[table["column"] == "Hybrid"].iloc[0]["published"])


def test_markdown_shows_paper_and_measured_in_the_table_s_own_shape(own_figures):
    rows = pd.DataFrame({"row": ["100", "100", "200"], "column": ["BM25", "SIM", "BM25"], "value": [0.41, 0.3, 0.5]})
    papers.record("thesis", "Table 3.1", rows.assign(n=[10, 10, 9], unscored=[0, 0, 1]), by="BM25|x")
    text = papers.write_markdown().read_text()
    assert "### Table 3.1, ours: BM25|x" in text
    assert "| | BM25 | SIM |" in text
    assert "| 100 | 0.4 -> 0.41 | 0.34 -> 0.3 |" in text
    assert "| 200 | 0.46 -> 0.5 |  |" in text
    assert "n = 9 to 10, up to 1 unscored." in text
    calls = pd.DataFrame({"row": ["generations"], "column": ["count"], "value": [377604]})
    papers.record("thesis", "Section 3.2.1", calls, by="x")
    assert "| generations | 377604 -> 377604 |" in papers.write_markdown().read_text()
    assert "Table 3.1 (47)" in text  # what was not measured is counted
    assert papers.summary("thesis") in papers.write_markdown().read_text()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: papers.published("thesys", "Table 3.1"), "did you mean 'thesis'"),
        (lambda: papers.published("thesis", "Table 3.11"), "did you mean 'Table 3.1'"),
        (
            lambda: papers.record("thesis", "Table 3.1", pd.DataFrame({"row": ["1"]}), by="x"),
            "cells without column, value",
        ),
        (lambda: papers.record("thesis", "Table 3.1", cells(), by=" "), "empty 'by'"),
        (
            lambda: papers.record("thesis", "Table 3.1", pd.concat([cells(), cells()]), by="x"),
            "the cell .100, BM25. twice",
        ),
    ],
)
def test_wrong_use_is_named(call, message):
    with pytest.raises(ConfigError, match=message):
        call()


def test_counts_of_the_ledger_are_whole_numbers():
    table = pd.DataFrame({"row": ["BM25", "SIM"], "column": "100", "value": [0.5, 0.25], "n": [7.0, math.nan]})
    lines = papers.record("thesis", "Table 3.1", table, by="x").read_text().splitlines()
    assert [line.split(",")[9] for line in lines if ",x," in line] == ["7", ""]
    for wrong in (6.5, -1):
        with pytest.raises(ConfigError, match=f"n = {wrong}"):
            papers.record("thesis", "Table 3.1", table.assign(n=wrong), by="x")
