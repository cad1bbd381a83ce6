"""Published numbers and the ledger."""

import io
import math
import re

import numpy as np
import pandas as pd
import pytest
from checks import load_script, refused

from ragbench import papers
from ragbench.errors import ConfigError, DataError
from ragbench.paths import project_root


@pytest.fixture(autouse=True)
def own_figures(tmp_path, monkeypatch):
    monkeypatch.setenv("RAGBENCH_FIGURES", str(tmp_path))
    return tmp_path


def cells(**columns):
    return pd.DataFrame({"row": ["100"], "column": ["BM25"], "value": [0.41]} | columns)


def record(table, **options):
    return papers.record("thesis", "Table 3.1", table, **options)


def printed(item):
    """Values of an item of the thesis, by row and column."""
    return papers.published("thesis", item).set_index(["row", "column"])["value"]


def by_row(item):
    return papers.published("thesis", item).set_index("row")["value"].to_dict()


def test_table_3_1_is_transcribed_cell_by_cell():
    table = printed("Table 3.1").unstack().sort_index(key=lambda rows: rows.astype(int))
    names = ["BM25", "MLQ", "MMR", "REO", "SIM"]
    assert table.shape == (10, 5)
    # column sums of the thesis's table, added up from the print
    assert table.sum().round(2)[names].tolist() == [5.4, 3.82, 4.16, 2.22, 4.52]
    assert table.loc["1000", names].tolist() == [0.62, 0.43, 0.46, 0.26, 0.52]
    assert (table.diff().dropna() >= 0).all(axis=None)
    assert (table["BM25"] > table["SIM"]).all()


def test_table_3_2_counts_a_hundred_answers_in_every_row():
    table = printed("Table 3.2").unstack()
    assert (table.filter(like="grade").sum(axis=1) == 100).all()
    assert table["seconds"].sum() == pytest.approx(9.69)
    assert table.loc["1000", "grade 5"] == 57


def test_table_3_3_and_figure_3_2_add_up_to_rounding():
    shares = printed("Table 3.3").groupby("row").sum().round(2).to_dict()
    off = {"BM25": 0.99, "MLQ": 1.01}
    assert shares == dict.fromkeys(("LLM only", "SIM", "MMR", "REO"), 1.0) | off
    assert ((printed("Figure 3.2").groupby("row").sum() - 100).abs() < 0.02).all()


def test_figure_3_1_s_counts_read_off_the_picture_give_its_shares_and_agree_with_table_3_3():
    figure = papers.published("thesis", "Figure 3.1").set_index("row")
    counts = figure["unit"].str.extract(r"about ([\d,]+) of")[0].str.replace(",", "").astype(int)
    assert counts.to_dict() == {"grade 5": 3130, "grades 2, 3, 4": 3690, "grade 1": 570}
    assert (100 * counts / counts.sum()).round(1).to_dict() == figure["value"].to_dict()
    assert figure["unit"].str.contains("read off the picture").all()
    bm25 = printed("Table 3.3")["BM25"] * 100
    middle = bm25[["grade 2", "grade 3", "grade 4"]].sum()
    expected = {"grade 5": bm25["grade 5"], "grades 2, 3, 4": middle, "grade 1": bm25["grade 1"]}
    assert figure["value"].to_dict() == pytest.approx(expected, abs=1.5)  # three rounded shares


def test_thresholds_and_the_count_of_calls():
    assert by_row("Equation 3.1") == {"h": 0.105, "k": 0.67}
    calls = {"grading calls": 7404 * 5, "generations": 7404 + 10 * 7404 * 5}
    assert by_row("Section 3.2.1") == calls


def test_measured_cells_stand_beside_the_published_ones_and_are_replaced_by_the_same_maker():
    record(cells(n=[10]), by="first")
    record(cells(value=[0.5], n=[20], unscored=[3]), by="first")
    record(cells(value=[0.3]), by="second")
    frame = papers.ledger("thesis", "Table 3.1")
    assert len(frame) == 51
    names = ["published", "ours", "ours_by", "n", "unscored"]
    mine = frame.query("row == '100' and column == 'BM25'")[names].fillna(-1)
    first = [0.4, 0.5, "first", 20, 3]
    assert mine.to_numpy().tolist() == [first, [0.4, 0.3, "second", -1, -1]]


def test_recorded_and_ours_are_apart_and_the_difference_prefers_ours():
    record(cells(value=[0.1]), by="others", recorded=True)
    row = papers.side_by_side("thesis", "Table 3.1").iloc[0]
    assert (row["recorded"], row["by"]) == (0.1, "others")
    assert math.isnan(row["ours"])
    assert row["difference"] == pytest.approx(-0.3)
    record(cells(column=["SIM"], value=[0.44]), by="me")
    table = papers.side_by_side("thesis", "Table 3.1")
    assert table[table["column"] == "SIM"].iloc[0]["difference"] == pytest.approx(0.1)
    assert str(table["n"].dtype) == "Int64"
    mine = papers.side_by_side("thesis", "Table 3.1", "me")
    assert mine["ours"].to_dict() == {("100", "SIM"): 0.44}
    assert mine.columns[:3].tolist() == ["paper", "recorded", "ours"]


def test_a_number_that_is_not_comparable_has_no_difference():
    note = [f"{papers.NOT_COMPARABLE}: another model"]
    record(cells(column=["SIM"], value=[0.44], note=note), by="small")
    small = papers.side_by_side("thesis", "Table 3.1", "small").iloc[0]
    assert (small["ours"], small["paper"]) == (0.44, 0.34)
    assert math.isnan(small["difference"])


def test_items_that_were_not_measured_are_those_of_the_ledger_and_stand_in_the_docs(monkeypatch):
    monkeypatch.setenv("RAGBENCH_FIGURES", str(project_root() / "figures"))
    script = load_script("not_run_table")
    table = script.not_run()
    assert not table.duplicated(["paper", "item"]).any()
    # Of each item with cells some are open; each open item has its line, with a reason, and each
    # reason an open item.
    assert (table["measured"] + table["beside"] <= table["cells"]).all()
    assert table["needs"].notna().all()
    assert table[table["cells"] == 0].groupby("paper")["item"].agg(list).to_dict() == {
        "thesis": ["Figure 2.6"],
        "ragchecker": ["Figure 8", "Table 4"],
        "ragas": ["Table 2", "Table 3", "Table 4"],
    }
    page = (project_root() / "docs" / "not-run.md").read_text(encoding="utf-8")
    for written in (script.table(), script.road_table()):
        assert f"{written}\n\n" in page, "run: python scripts/not_run_table.py"


def test_each_of_the_printed_cells_has_one_road(monkeypatch):
    monkeypatch.setenv("RAGBENCH_FIGURES", str(project_root() / "figures"))
    script = load_script("not_run_table")
    roads = script.roads()
    printed = {(paper, item) for paper in papers.PAPERS for item in papers._published_items(paper)}
    assert roads.to_numpy().sum() == 1743
    assert set(roads.index) <= printed
    assert script.road_table().splitlines()[-1].endswith("| 1743 |")


@pytest.mark.parametrize(
    ("value", "note", "road"),
    [
        (0.3449, None, "exact"),  # printed: .34
        (0.346, None, "comparable"),
        (0.34, f"{papers.NOT_COMPARABLE}: rules", "one command"),
    ],
)
def test_a_cell_is_exact_in_the_printed_digits(value, note, road, monkeypatch):
    script = load_script("not_run_table")
    needs = "paper,item,notebook,road,needs\n"
    for paper in papers.PAPERS:
        for item in papers._published_items(paper):
            needs += f"{paper},{item},1,one command,files\n"
    monkeypatch.setattr(script, "packaged_data", lambda *_: io.StringIO(needs))
    record(cells(column=["SIM"], value=[value], note=[note]), by="a model")
    counted = script.roads().loc[("thesis", "Table 3.1")]
    assert counted.loc[road] == 50 - 49 * (road != "one command")
    assert counted.sum() == 50


def test_a_cell_without_a_road_is_an_error_that_names_its_table(monkeypatch):
    script = load_script("not_run_table")
    with refused(DataError, r"cells without a road in (.|\n)*Table 3\.1"):
        script.roads()


def test_a_cell_is_measured_once_a_number_compares():
    not_run = load_script("not_run_table").not_run

    def open_cells():
        table = not_run().set_index("item")
        return table.loc["Table 3.1", ["cells", "measured", "beside"]].tolist()

    assert open_cells() == [50, 0, 0]
    every = {(paper, item) for paper in papers.PAPERS for item in papers._published_items(paper)}
    table = not_run()  # of an empty ledger: every item, those without a line too
    assert set(zip(table["paper"], table["item"], strict=True)) >= every
    record(cells(note=[f"{papers.NOT_COMPARABLE}: rules"]), by="rules")
    assert open_cells() == [50, 0, 1]
    record(cells(), by="a model")
    assert open_cells() == [50, 1, 0]


def test_arithmetic_on_printed_numbers_is_counted_apart_from_what_was_recorded(own_figures):
    two = pd.DataFrame({"row": ["100", "200"], "column": "BM25", "value": [0.4, 0.46]})
    record(two, by="identity: as printed", recorded=True)
    record(cells(), by="others' answers", recorded=True)
    record(cells(value=[float("nan")]), by="others' empty answers", recorded=True)
    record(cells(), by="me")
    found = papers.counts(papers.ledger("thesis")).loc["Table 3.1"]
    assert found.to_dict() == {"published": 50, "recorded": 1, "identities": 2, "ours": 1}
    text = papers.write_markdown().read_text()
    for words in (
        "### Table 3.1, identity: as printed",
        "### Table 3.1, recorded: others' answers",
        "An *identity* is arithmetic on",
        "1 recorded, 2 identities, 1 ours.",
    ):
        assert words in text


def test_cells_beyond_the_paper_stand_last():
    record(cells(column=["Hybrid"]), by="x")
    papers.record("thesis", "Beyond", cells(), by="x")
    frame = papers.ledger("thesis")
    assert frame.iloc[-1]["item"] == "Beyond"
    assert frame[frame["item"] == "Table 3.1"].iloc[-1]["column"] == "Hybrid"
    table = papers.ledger("thesis", "Table 3.1")
    assert pd.isna(table[table["column"] == "Hybrid"].iloc[0]["published"])


def test_markdown_shows_paper_and_measured_in_the_table_s_own_shape(own_figures):
    rows = pd.DataFrame(
        {"row": ["100", "100", "200"], "column": ["BM25", "SIM", "BM25"], "value": [0.41, 0.3, 0.5]}
    )
    record(rows.assign(n=[10, 10, 9], unscored=[0, 0, 1]), by="BM25|x")
    calls = cells(row=["generations"], column=["count"], value=[377604])
    papers.record("thesis", "Section 3.2.1", calls, by="x")
    text = papers.write_markdown().read_text()
    for line in (
        "### Table 3.1, ours: BM25|x",
        "| | BM25 | SIM |",
        "| 100 | 0.4 -> 0.41 | 0.34 -> 0.3 |",
        "| 200 | 0.46 -> 0.5 |  |",
        "n = 9 to 10, up to 1 unscored.",
        "Table 3.1 (47)",  # what was not measured is counted
        "| generations | 377604 -> 377604 |",
    ):
        assert line in text


def test_the_summary_has_a_line_a_paper_with_the_share_of_cells_that_have_a_number():
    assert papers.summary("thesis") == "thesis: nothing measured"
    record(pd.concat([cells(), cells(row=["200"])]), by="x")
    record(cells(), by="y", recorded=True)  # a cell counts once
    record(cells(value=[math.nan]), by="could not be measured")
    record(cells(column=["Hybrid"]), by="z")  # not in the print
    note = f"{papers.NOT_COMPARABLE}: another model"
    two = {"row": ["100", "300"], "column": "SIM", "value": 0.41, "note": note}
    record(pd.DataFrame(two), by="small")
    assert papers.summary().splitlines() == [
        "thesis: Table 3.1 (2 of 50 cells, 2 not comparable)",
        "ragchecker: nothing measured",
        "ragas: nothing measured",
        "rageval: nothing measured",
    ]


def read_back(text):
    """Read the tables of a ledger:

    {(paper's title, item and maker): rows of cells}, as a Markdown reader sees them.
    """
    tables = {}
    paper = ""
    head = ""
    for line in text.splitlines():
        if line.startswith("## "):
            paper = line[3:]
        elif line.startswith("### "):
            head = line[4:]
        elif line.startswith("|"):
            inner = re.sub(r"^\||(?<!\\)\|$", "", line)
            cells = [cell.strip().replace(r"\|", "|") for cell in re.split(r"(?<!\\)\|", inner)]
            tables.setdefault((paper, head), []).append(cells)
    return tables


def test_the_readable_ledger_holds_the_numbers_of_the_csv_in_their_own_columns(own_figures):
    for paper in papers.PAPERS:
        for item in papers._published_items(paper):
            table = papers.published(paper, item)
            papers.record(paper, item, table.assign(value=np.arange(len(table)) + 0.5), by="x | y")
    tables = read_back(papers.write_markdown().read_text())
    every = pd.read_csv(own_figures / "ledger.csv", dtype={"row": str, "column": str})
    frame = every[every["ours_by"] == "x | y"]
    assert frame["row"].str.contains("|", regex=False).any()
    for (paper, item), cells in frame.groupby(["paper", "item"], sort=False):
        (_, *columns), _, *rows = tables[papers.PAPERS[paper], f"{item}, ours: x | y"]
        found = {}
        for name, *texts in rows:
            by_column = zip(columns, texts, strict=True)
            found |= {(name, column): text for column, text in by_column if text}
        assert set(found) == set(zip(cells["row"], cells["column"], strict=True))
        for cell in cells.itertuples():
            *published, ours = found[cell.row, cell.column].split(" -> ")
            assert float(ours) == pytest.approx(cell.ours, rel=0.005)
            try:
                assert float(published[0]) == pytest.approx(float(cell.published), rel=0.005)
            except ValueError:  # Table 1.1 holds words
                assert published == [cell.published]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: papers.published("thesys", "Table 3.1"), "did you mean 'thesis'"),
        (lambda: papers.published("thesis", "Table 3.11"), "did you mean 'Table 3.1'"),
        (lambda: record(pd.DataFrame({"row": ["1"]}), by="x"), "cells without column, value"),
        (lambda: record(pd.concat([cells(), cells()]), by="x"), "the cell .100, BM25. twice"),
    ],
)
def test_wrong_use_is_named(call, message):
    with pytest.raises(ConfigError, match=message):
        call()


def test_counts_of_the_ledger_are_whole_numbers():
    table = pd.DataFrame(
        {"row": ["BM25", "SIM"], "column": "100", "value": [0.5, 0.25], "n": [7.0, math.nan]}
    )
    lines = record(table, by="x").read_text().splitlines()
    assert [line.split(",")[9] for line in lines if ",x," in line] == ["7", ""]


def test_before_a_first_measurement_the_ledger_is_the_one_that_came_along_and_a_full_run_begins_empty(
    tmp_path, monkeypatch
):
    monkeypatch.delenv("RAGBENCH_FIGURES")
    monkeypatch.setenv("RAGBENCH_RESULTS", str(tmp_path))
    came = papers.ledger()["ours"].count()
    assert papers.ledger("thesis", "Table 3.1")["ours"].count() > 0
    assert record(cells(), by="mine") == tmp_path / "figures" / "ledger.csv"
    assert papers.ledger()["ours"].count() == came + 1
    papers.begin_ledger()
    assert papers.ledger()["ours"].count() == 0
    record(cells(), by="mine")
    assert papers.ledger()["ours"].count() == 1
