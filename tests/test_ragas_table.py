"""The parts of Table 1: recorded runs scored again, length alone, readability, cells and figures."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from ragbench import data, papers, plots
from ragbench.data.wikieval import Pair, RecordedRow, RecordedRun
from ragbench.papers import ragas
from ragbench.papers.ragas import score_pairs

RUN = RecordedRun(
    "ff",
    "faithfulness",
    (
        RecordedRow("a", "q?", True, 1.0, (1, 1), ("Verdict: 1", "Verdict: 1"), status="ok"),
        RecordedRow("a", "q?", False, 0.25, (0, 1), ("Hm.", "Verdict: 1"), status="failed", truncated=True),
    ),
)


def test_rescoring_shows_rows_that_do_not_come_out():
    assert ragas.rescore(RUN) == [1.0, 0.5]  # the second was recorded as 0.25
    assert ragas.recorded_pairs(RUN).to_numpy().tolist() == [["a", 1.0, 0.25]]
    assert ragas.recorded_pairs(RUN, [0.5, 0.5]).to_numpy().tolist() == [["a", 0.5, 0.5]]
    # The worse text's replies were not parsed: its recorded score stands for nothing.
    whole = ragas.recorded_pairs(RUN, whole=True)
    assert whole["better"].tolist() == [1.0]
    assert whole["worse"].isna().all()


def test_readability_counts_labels_rows_flags_and_cut_replies():
    context = RecordedRun(
        "cr",
        "context_relevance",
        (
            RecordedRow("a", "q?", True, 0.0, (), ('["A sentence.",',), total=3, status="partial_fix_list"),
            RecordedRow("a", "q?", False, 0.0, (), ('["Insufficient Information"]',), total=3),
        ),
    )
    table = ragas.readability({"ff": RUN, "cr": context})
    assert table.loc["ff"].tolist() == ["faithfulness", 4, 1, 2, 1, 1, 1]
    assert table.loc["cr"].tolist() == ["context_relevance", 2, 1, 2, 1, 1, 0]


def test_length_alone_prefers_longer_answers_and_shorter_contexts():
    pairs = [Pair("a", "q?", "one two three", "one two", "c")]
    for dimension, better in {"faithfulness": 3.0, "answer_relevance": 3.0, "context_relevance": -3.0}.items():
        table = score_pairs(ragas.Length(), pairs, dimension)
        assert table["better"].item() == better
        assert table["worse"].item() == better * 2 / 3


def test_rows_become_cells_of_the_published_table(tmp_path, monkeypatch):
    monkeypatch.setenv("RAGBENCH_FIGURES", str(tmp_path))
    pairs = pd.DataFrame({"better": [1.0, 0.5, math.nan], "worse": [0.0, 0.5, 1.0]})
    table = ragas.agreement_table({("made", "answer_relevance"): pairs})
    assert table[["source", "dimension", "agreement", "n", "unscored"]].to_numpy().tolist() == [
        ["made", "answer relevance", 0.75, 2, 1]
    ]
    cells = papers.cells(table.assign(source="RAGAS (construction)"), "source", "dimension", "agreement")
    papers.record("ragas", "Table 1", cells.assign(note=ragas.NOTE), by="a test")
    row = papers.ledger("ragas", "Table 1").query("ours_by == 'a test'").iloc[0]
    # Agreement with the construction never stands in the paper's row, which is agreement with people.
    assert row["row"] == "RAGAS (construction)"
    assert math.isnan(row["published"])
    assert (row["ours"], row["n"], row["unscored"]) == (0.75, 2, 1)
    assert "not with people" in row["note"]
    assert ragas.agreement_table({}).empty


@pytest.mark.data
def test_the_recorded_column_of_table_1():
    runs = data.load_wikieval_runs()
    names = {"ff": "faithfulness", "ar": "answer_relevance", "cr": "context_relevance"}
    table = ragas.agreement_table({("r", d): ragas.recorded_pairs(runs[n]) for n, d in names.items()})
    assert table["agreement"].tolist() == [0.94, 0.58, 0.82]
    assert table[["wins", "ties", "losses"]].to_numpy().tolist() == [[23, 1, 1], [14, 1, 10], [20, 1, 4]]
    assert table["n"].tolist() == [25, 25, 25]
    whole = {("w", d): ragas.recorded_pairs(runs[n], whole=True) for n, d in names.items()}
    table = ragas.agreement_table(whole)
    assert table[["wins", "ties", "losses"]].to_numpy().tolist() == [[23, 1, 1], [14, 1, 10], [16, 1, 2]]
    assert table["unscored"].tolist() == [0, 0, 6]


def test_the_figure_has_a_row_per_source(tmp_path, monkeypatch):
    monkeypatch.setenv("RAGBENCH_FIGURES", str(tmp_path))
    table = pd.DataFrame({"source": ["paper", "ours"], "dimension": "faithfulness", "agreement": [0.95, 0.9]})
    table["low"], table["high"] = [math.nan, 0.8], [math.nan, 1.0]
    dots = plots.dots(table, "source", "agreement", "source", xlabel="agreement", panel="dimension", at=0.5)
    (axis,) = dots.get_axes()
    assert [t.get_text() for t in axis.get_yticklabels()] == ["paper", "ours"]
    assert plots.save_figure(dots, "x", table, "dots")["png"].stat().st_size > 0


def test_the_papers_ragas_cells_are_only_what_it_prints():
    # Tables 2 to 4 are worked examples without a score.
    assert set(papers.published_items("ragas")) == {"Section 4", "Table 1"}
