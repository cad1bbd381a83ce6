"""RAGEval's published cells: complete, and adding up where the paper's do."""

from __future__ import annotations

import pytest

from ragbench import papers


def wide(item):
    return papers.published("rageval", item).pivot(index="row", columns="column", values="value")


def test_every_table_and_figure_is_there():
    tables = {f"Table {n}" for n in range(1, 7)} | {f"Figure {n}" for n in range(3, 7)}
    assert tables <= set(papers.published_items("rageval"))


def test_table_1_adds_up_to_a_hundred_percent_and_216_documents():
    table = wide("Table 1")
    assert table["documents"].sum() == 216
    assert table["share of questions"].sum() == pytest.approx(100.0)
    assert table["share by reference count"].sum() == pytest.approx(100.0)
    assert table["questions"].dropna().to_dict() == {"All": 6711}


def test_table_3_rows_add_up_to_one_but_for_gpt_4o_in_chinese():
    table = wide("Table 3")
    assert table.shape == (8, 8)
    for language in ("CN", "EN"):
        total = sum(table[f"{m} {language}"] for m in ("Completeness", "Hallucination", "Irrelevance"))
        off = total[(total - 1).abs() > 0.0012].round(4).to_dict()
        assert off == ({"GPT-4o": 0.9956} if language == "CN" else {})
    assert table["Rouge-L CN"].idxmax() == table["Rouge-L EN"].idxmax() == "Baichuan-2-7B-chat"
    assert table[["Rouge-L CN", "Rouge-L EN"]].sum().round(4).to_dict() == {"Rouge-L CN": 1.8539, "Rouge-L EN": 1.9077}


def test_table_4_has_forty_cells_and_the_text_disagrees_with_three_of_them():
    table, text = wide("Table 4"), wide("Section 5.3")
    assert table.size == 40
    generated = ["Completeness CN", "Completeness EN", "Hallucination CN", "Hallucination EN"]
    generated += ["Irrelevance CN", "Irrelevance EN"]
    sums = table.sum().round(4)
    assert sums[["Recall CN", "Recall EN", "EIR CN", "EIR EN"]].tolist() == [2.869, 2.8508, 0.1838, 0.5139]
    assert sums[generated].tolist() == [2.4413, 2.7203, 1.009, 0.4689, 0.5491, 0.8109]
    generation = sum(table[f"{m} CN"] for m in ("Completeness", "Hallucination", "Irrelevance"))
    assert ((generation - 1).abs() < 0.0060).all()
    assert (table.loc["BGE-M3", text.columns] != text.loc["BGE-M3"]).all()


def test_table_5_repeats_retrieval_but_not_generation_where_the_setting_is_the_same():
    table = wide("Table 5")
    assert table.size == 60
    same, again = table.loc["TopK 2"], table.loc["Chunk-TopK 512-2"]
    retrieval = [c for c in table if c.startswith(("Recall", "EIR"))]
    assert (same[retrieval] == again[retrieval]).all()
    assert (same["Completeness CN"], again["Completeness CN"]) == (0.5004, 0.4932)
    for language in ("CN", "EN"):
        total = sum(table[f"{m} {language}"] for m in ("Completeness", "Hallucination", "Irrelevance"))
        assert ((total - 1).abs() < 0.0006).all(), total


def test_table_2_and_table_6():
    assert wide("Table 2").stack().sum() == pytest.approx(29.01)
    assert wide("Table 6")["group"].value_counts().to_dict() == {
        "Single-document QA": 3,
        "Multi-document QA": 3,
        "Unanswerable Questions": 1,
    }
